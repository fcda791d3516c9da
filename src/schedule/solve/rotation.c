/* Rotations: of hosts, found by the names of the nodes and proved on the links; else any. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "schedule/solve/solve.h"
#include "topology/symmetry/symmetry.h"

/* The host number of an id "h12.gpu0" and what follows the dot; -1 for other ids. */
static int host_of(const char *id, const char **rest) {
  if (id[0] != 'h' || id[1] < '0' || id[1] > '9' || (id[1] == '0' && id[2] != '.')) return -1;
  char *end;
  long host = strtol(id + 1, &end, 10);
  if (*end != '.' || host > COPSE_TOPOLOGY_MAX_NODES) return -1;
  *rest = end + 1;
  return (int)host;
}

static int count_hosts(const struct copse_topology *topology) {
  int most = -1;
  const char *rest;
  for (int v = 0; v < topology->n_nodes; v++) {
    int host = host_of(topology->nodes[v].id, &rest);
    if (host > most) most = host;
    if (host < 0 && topology->nodes[v].rank >= 0) return 0; /* a rank outside of hosts */
  }
  return most + 1;
}

/* The image by name, -1 where there is no such node. */
static int image_by_name(const struct copse_topology *topology, int node, int n_hosts) {
  const char *rest;
  char id[512];
  int host = host_of(topology->nodes[node].id, &rest);
  if (host < 0) return node;
  int n = snprintf(id, sizeof id, "h%d.%s", (host + 1) % n_hosts, rest);
  return n < (int)sizeof id ? copse_topology_find(topology, id) : -1;
}

copse_status copse_find_host_rotation(const struct copse_topology *topology, int *order,
                                      int **image, struct copse_err *err) {
  int n_hosts = count_hosts(topology);
  copse_status status = COPSE_OK;
  bool *hit = NULL, good = n_hosts > 1;
  *order = 1;
  *image = NULL;
  if (!good) return COPSE_OK;
  COPSE_TRY(copse_calloc((size_t)topology->n_nodes, sizeof **image, image, err));
  COPSE_TRY(copse_calloc((size_t)topology->n_nodes, sizeof *hit, &hit, err));
  for (int v = 0; v < topology->n_nodes && good; v++) {
    int to = image_by_name(topology, v, n_hosts);
    good = to >= 0 && !hit[to];
    if (!good) break;
    (*image)[v] = to;
    hit[to] = true;
  }
  if (good) COPSE_TRY(copse_topology_is_automorphism(topology, *image, &good, err));
  if (good) *order = n_hosts; /* every rank's host moves on, so n_hosts steps and not fewer */
out:
  free(hit);
  if (status != COPSE_OK || !good) {
    free(*image);
    *image = NULL;
  }
  return status;
}

copse_status copse_find_rotation(const struct copse_topology *topology, int *order, int **image,
                                 struct copse_err *err) {
  struct copse_symmetry found = {.n_products = 1};
  int longest = -1;
  copse_status status;
  COPSE_TRY(copse_find_host_rotation(topology, order, image, err));
  if (*order > 1) return COPSE_OK;
  COPSE_TRY(copse_topology_symmetry(topology, &found, err));
  for (int g = 0; g < found.n; g++)
    if (longest < 0 || found.generators[g].order > found.generators[longest].order) longest = g;
  if (longest < 0) goto out;
  *order = found.generators[longest].order;
  *image = found.generators[longest].image;
  found.generators[longest].image = NULL;
out:
  copse_symmetry_free(&found);
  return status;
}
