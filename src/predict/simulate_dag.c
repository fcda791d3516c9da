#include "predict/simulate_dag.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void copse_sim_dag_free(struct copse_sim_dag *dag) {
  free(dag->items);
  free(dag->ints);
  *dag = (struct copse_sim_dag){0};
}

static bool all_before(const int *list, int n, int limit) {
  for (int i = 0; i < n; i++)
    if (list[i] < 0 || list[i] >= limit) return false;
  return true;
}

static copse_status check(const struct copse_sim_dag *dag, const struct copse_sim_transfer *t,
                          struct copse_err *err) {
  if (!all_before(t->after, t->n_after, dag->n_transfers) ||
      !all_before(t->streams, t->n_streams, dag->n_transfers))
    return copse_fail(err, COPSE_INVALID, "a transfer waits for one that was not added before it");
  if (!(t->amount >= 0) || !isfinite(t->amount) || !(t->delay_us >= 0) || !isfinite(t->delay_us))
    return copse_fail(err, COPSE_INVALID, "a transfer's amount and delay must be 0 or more");
  if (dag->n_transfers == INT_MAX)
    return copse_fail(err, COPSE_OVERFLOW, "too many transfers to simulate");
  return COPSE_OK;
}

static void append(struct copse_sim_dag *dag, const int *list, int n) {
  if (n > 0) memcpy(dag->ints + dag->n_ints, list, (size_t)n * sizeof *list);
  dag->n_ints += (size_t)n;
}

copse_status copse_sim_dag_add(struct copse_sim_dag *dag, const struct copse_sim_transfer *t,
                               int *id, struct copse_err *err) {
  int n_copies = t->copies ? t->n_links : 0;
  size_t n = (size_t)t->n_links + (size_t)n_copies + (size_t)t->n_after + (size_t)t->n_streams;
  copse_status status;
  COPSE_TRY(check(dag, t, err));
  COPSE_TRY(copse_grow(&dag->ints, &dag->ints_capacity, dag->n_ints + n, sizeof *dag->ints, err));
  COPSE_TRY(copse_grow(&dag->items, &dag->items_capacity, (size_t)dag->n_transfers + 1,
                       sizeof *dag->items, err));
  dag->items[dag->n_transfers] = (struct copse_sim_item){.first = dag->n_ints,
                                                         .n_links = t->n_links,
                                                         .n_copies = n_copies,
                                                         .n_after = t->n_after,
                                                         .n_streams = t->n_streams,
                                                         .order = t->order,
                                                         .adder = t->adder,
                                                         .reduces = t->reduces,
                                                         .amount = t->amount,
                                                         .delay_us = t->delay_us};
  append(dag, t->links, t->n_links);
  append(dag, t->copies, n_copies);
  append(dag, t->after, t->n_after);
  append(dag, t->streams, t->n_streams);
  for (int i = 0; i < n_copies; i++)
    if (t->copies[i] >= dag->n_copies) dag->n_copies = t->copies[i] + 1;
  if (id) *id = dag->n_transfers;
  dag->n_transfers++;
out:
  return status;
}

copse_status copse_sim_dag_add_path(struct copse_sim_dag *dag,
                                    const struct copse_topology *topology, const int *nodes,
                                    int n_nodes, const struct copse_sim_transfer *transfer,
                                    int *last, struct copse_err *err) {
  struct copse_sim_transfer hop = *transfer;
  int *links = NULL, n = 0, id = -1;
  copse_status status;
  if (n_nodes < 2) return copse_fail(err, COPSE_INVALID, "a path must have two nodes");
  COPSE_TRY(copse_calloc((size_t)n_nodes, sizeof *links, &links, err));
  hop.copies = NULL;
  hop.links = links;
  for (int i = 0; i + 1 < n_nodes; i++) {
    links[n] = copse_topology_find_link(topology, nodes[i], nodes[i + 1]);
    if (links[n] < 0) {
      status = copse_fail(err, COPSE_INVALID, "the topology has no link '%s' -> '%s'",
                          topology->nodes[nodes[i]].id, topology->nodes[nodes[i + 1]].id);
      goto out;
    }
    hop.n_links = ++n;
    hop.reduces = transfer->reduces && i + 2 == n_nodes; /* ranks on the way pass it on as it is */
    if (topology->nodes[nodes[i + 1]].rank < 0 && i + 2 < n_nodes) continue;
    COPSE_TRY(copse_sim_dag_add(dag, &hop, &id, err));
    hop.n_after = 0;
    hop.streams = &id;
    hop.n_streams = 1;
    hop.delay_us = 0;
    n = 0;
  }
  if (last) *last = id;
out:
  free(links);
  return status;
}
