#include "solver/network/cuts.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

int copse_trust_from = 129;

/* Enough for every host of a cluster and every pair of neighbours in a mid-sized fabric. */
#define MOST_CUTS 1024

copse_status copse_cuts_new(int n_nodes, struct copse_cuts *out, struct copse_err *err) {
  copse_status status;
  *out = (struct copse_cuts){.n_nodes = n_nodes, .most = MOST_CUTS};
  COPSE_TRY(copse_calloc(MOST_CUTS, sizeof *out->slack, &out->slack, err));
  COPSE_TRY(copse_calloc(MOST_CUTS, sizeof *out->hash, &out->hash, err));
  COPSE_TRY(copse_calloc((size_t)n_nodes, MOST_CUTS, &out->member, err));
  COPSE_TRY(copse_calloc((size_t)n_nodes, sizeof(int), &out->n_holding, err));
  COPSE_TRY(copse_calloc((size_t)n_nodes, MOST_CUTS * sizeof(int), &out->holding, err));
  return COPSE_OK;
out:
  copse_cuts_free(out);
  return status;
}

void copse_cuts_free(struct copse_cuts *cuts) {
  free(cuts->slack);
  free(cuts->hash);
  free(cuts->member);
  free(cuts->n_holding);
  free(cuts->holding);
  *cuts = (struct copse_cuts){0};
}

const unsigned char *copse_cuts_of(const struct copse_cuts *cuts, int node) {
  return cuts->member + (size_t)node * (size_t)cuts->most;
}

const int *copse_cuts_holding(const struct copse_cuts *cuts, int node) {
  return cuts->holding + (size_t)node * (size_t)cuts->most;
}

/* Keeps the list of node v in step with whether it is in the cut at `place`. */
static void list_cut(struct copse_cuts *cuts, int v, int place, bool inside) {
  int *list = cuts->holding + (size_t)v * (size_t)cuts->most;
  if (inside) {
    list[cuts->n_holding[v]++] = place;
    return;
  }
  int i = 0;
  while (list[i] != place) i++;
  list[i] = list[--cuts->n_holding[v]];
}

static uint64_t hash_of(const struct copse_cuts *cuts, const unsigned char *inside) {
  uint64_t hash = 0;
  for (int v = 0; v < cuts->n_nodes; v++) hash = (hash + inside[v]) * UINT64_C(0x9e3779b97f4a7c15);
  return hash;
}

static bool equals(const struct copse_cuts *cuts, int c, const unsigned char *inside) {
  for (int v = 0; v < cuts->n_nodes; v++)
    if (copse_cuts_of(cuts, v)[c] != inside[v]) return false;
  return true;
}

int copse_cuts_add(struct copse_cuts *cuts, const unsigned char *inside, int64_t slack) {
  int place = cuts->n;
  uint64_t hash = hash_of(cuts, inside);
  for (int c = 0; c < cuts->n; c++)
    if (cuts->hash[c] == hash && equals(cuts, c, inside)) return -1;
  if (cuts->n < cuts->most) {
    cuts->n++;
  } else {
    place = 0;
    for (int c = 1; c < cuts->n; c++)
      if (cuts->slack[c] > cuts->slack[place]) place = c;
  }
  cuts->slack[place] = slack;
  cuts->hash[place] = hash;
  for (int v = 0; v < cuts->n_nodes; v++) {
    unsigned char *member = &cuts->member[(size_t)v * (size_t)cuts->most + (size_t)place];
    if (*member != inside[v]) list_cut(cuts, v, place, inside[v]);
    *member = inside[v];
  }
  return place;
}
