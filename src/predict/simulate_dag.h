/* The insides of a copse_sim_dag: for the simulator's own files. */
#ifndef COPSE_PREDICT_SIMULATE_DAG_H
#define COPSE_PREDICT_SIMULATE_DAG_H

#include "predict/simulate.h"

/* Lists are offsets into dag->ints, one after the other: links, copies, after, streams. */
struct copse_sim_item {
  size_t first;
  int n_links, n_copies, n_after, n_streams;
  int order, adder;
  bool reduces;
  double amount, delay_us;
};

static inline const int *copse_sim_links(const struct copse_sim_dag *dag, int t) {
  return dag->ints + dag->items[t].first;
}
/* NULL where the transfer has none. */
static inline const int *copse_sim_copies(const struct copse_sim_dag *dag, int t) {
  const struct copse_sim_item *item = &dag->items[t];
  return item->n_copies > 0 ? dag->ints + item->first + item->n_links : NULL;
}
static inline const int *copse_sim_after(const struct copse_sim_dag *dag, int t) {
  const struct copse_sim_item *item = &dag->items[t];
  return dag->ints + item->first + item->n_links + item->n_copies;
}
static inline const int *copse_sim_streams(const struct copse_sim_dag *dag, int t) {
  return copse_sim_after(dag, t) + dag->items[t].n_after;
}

#endif
