#include "topology/topology.h"

#include <stdlib.h>
#include <string.h>

#include "topology/topology_internal.h"

void copse_topology_release(struct copse_topology *topology) {
  if (!topology) return;
  struct copse_topology_box *box = (struct copse_topology_box *)topology;
  free(box->nodes);
  free(box->links);
  free(box->rank_nodes);
  free(box->sorted_links);
  free(box->sorted_dsts);
  free(box->first_sorted);
  copse_index_map_free(&box->ids);
  copse_arena_free(&box->arena);
  free(box);
}

int copse_topology_find(const struct copse_topology *topology, const char *id) {
  const struct copse_topology_box *box = copse_topology_box_of(topology);
  size_t cursor = 0;
  uint64_t key = copse_key_text(id);
  for (;;) {
    int i = copse_index_map_next(&box->ids, key, &cursor);
    if (i < 0 || strcmp(box->nodes[i].id, id) == 0) return i;
  }
}

int copse_topology_compare_links(const struct copse_link *a, const struct copse_link *b) {
  if (a->src != b->src) return a->src < b->src ? -1 : 1;
  return (a->dst > b->dst) - (a->dst < b->dst);
}

int copse_topology_find_link(const struct copse_topology *topology, int src, int dst) {
  const struct copse_topology_box *box = copse_topology_box_of(topology);
  if (src < 0 || src >= topology->n_nodes) return -1;
  int low = box->first_sorted[src], high = box->first_sorted[src + 1] - 1;
  while (low <= high) {
    int middle = low + (high - low) / 2, at = box->sorted_dsts[middle];
    if (at == dst) return box->sorted_links[middle];
    if (at < dst)
      low = middle + 1;
    else
      high = middle - 1;
  }
  return -1;
}

static copse_status sum_bandwidths(const struct copse_topology *topology, struct copse_q *in,
                                   struct copse_q *out, struct copse_err *err) {
  copse_status status = COPSE_OK;
  for (int i = 0; i < topology->n_nodes; i++) in[i] = out[i] = COPSE_Q_ZERO;
  for (int i = 0; i < topology->n_links && status == COPSE_OK; i++) {
    const struct copse_link *link = &topology->links[i];
    status = copse_q_add(out[link->src], link->bandwidth, &out[link->src], err);
    if (status == COPSE_OK)
      status = copse_q_add(in[link->dst], link->bandwidth, &in[link->dst], err);
  }
  return status;
}

copse_status copse_topology_find_unbalanced(const struct copse_topology *topology, int *node,
                                            struct copse_q *in, struct copse_q *out,
                                            struct copse_err *err) {
  struct copse_q *sums = NULL;
  size_t n = (size_t)topology->n_nodes;
  copse_status status;
  *node = -1;
  COPSE_TRY(copse_calloc(2 * n, sizeof *sums, &sums, err));
  COPSE_TRY(sum_bandwidths(topology, sums, sums + n, err));
  for (size_t i = 0; i < n && *node < 0; i++) {
    if (topology->nodes[i].rank >= 0 || copse_q_eq(sums[i], sums[n + i])) continue;
    *node = (int)i;
    if (in) *in = sums[i];
    if (out) *out = sums[n + i];
  }
out:
  free(sums);
  return status;
}
