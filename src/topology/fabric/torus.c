#include "topology/fabric/torus.h"

#include <stdio.h>

static int stride_of(const int *dims, int n_dims, int d) {
  int stride = 1;
  for (int i = d + 1; i < n_dims; i++) stride *= dims[i];
  return stride;
}

int copse_torus_next(const int *dims, int n_dims, int at, int d) {
  int stride = stride_of(dims, n_dims, d), size = dims[d], x = at / stride % size;
  if (x + 1 < size) return at + stride;
  return size > 1 ? at - x * stride : -1;
}

void copse_torus_coordinates(const int *dims, int n_dims, int at, char *text, size_t size) {
  size_t used = 0;
  for (int d = 0; d < n_dims && used < size; d++)
    used += (size_t)snprintf(text + used, size - used, "%s%d", d ? "_" : "",
                             at / stride_of(dims, n_dims, d) % dims[d]);
}
