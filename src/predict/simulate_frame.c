#include "predict/simulate_frame.h"

#include <stdlib.h>

#include "base/memory.h"

/* ---- places ------------------------------------------------------------------------------ */

struct ordered {
  int order, transfer;
};

static int by_order(const void *a, const void *b) {
  const struct ordered *x = a, *y = b;
  if (x->order != y->order) return x->order < y->order ? -1 : 1;
  return (x->transfer > y->transfer) - (x->transfer < y->transfer);
}

/* Leaves `places` NULL where the numbers are in order already. */
static copse_status find_places(struct copse_sim_frame *f, struct copse_err *err) {
  const struct copse_sim_item *items = f->dag->items;
  int n = f->dag->n_transfers, sorted = 1;
  struct ordered *list = NULL;
  copse_status status = COPSE_OK;
  while (sorted < n && items[sorted - 1].order <= items[sorted].order) sorted++;
  if (sorted >= n) return COPSE_OK;
  COPSE_TRY(copse_calloc((size_t)n, sizeof *list, &list, err));
  COPSE_TRY(copse_calloc((size_t)n, sizeof *f->places, &f->places, err));
  for (int t = 0; t < n; t++) list[t] = (struct ordered){items[t].order, t};
  qsort(list, (size_t)n, sizeof *list, by_order);
  for (int p = 0; p < n; p++) f->places[list[p].transfer] = p;
out:
  free(list);
  return status;
}

/* ---- flights ----------------------------------------------------------------------------- */

static int streams_from(const struct copse_sim_frame *f, int t) {
  int n = f->dag->items[t].n_streams;
  if (n == 0) return COPSE_SIM_NO_STREAM;
  if (n > 1) return COPSE_SIM_SEVERAL_STREAMS;
  return copse_sim_place(f, copse_sim_streams(f->dag, t)[0]);
}

static copse_status make_flights(struct copse_sim_frame *f, struct copse_err *err) {
  const struct copse_sim_dag *dag = f->dag;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)dag->n_transfers + 1, sizeof *f->flights, &f->flights, err));
  for (int t = 0; t < dag->n_transfers; t++) {
    const struct copse_sim_item *item = &dag->items[t];
    const int *links = copse_sim_links(dag, t);
    for (int i = 0; i < item->n_links; i++)
      if (links[i] < 0 || links[i] >= f->topology->n_links)
        return copse_fail(err, COPSE_INVALID, "transfer %d: the topology has no link %d", t,
                          links[i]);
    if (item->reduces && (item->adder < 0 || item->adder >= f->topology->n_ranks))
      return copse_fail(err, COPSE_INVALID, "transfer %d: the topology has no rank %d", t,
                        item->adder);
    f->flights[copse_sim_place(f, t)] =
        (struct copse_sim_flight){.first_link = item->first,
                                  .n_links = item->n_links,
                                  .waits = item->n_after,
                                  .streams_from = streams_from(f, t),
                                  .transfer = t};
    f->n_links += item->n_links;
    if (item->n_links > f->longest) f->longest = item->n_links;
    if (item->amount > f->largest) f->largest = item->amount;
    f->delays = f->delays || item->delay_us > 0;
    f->only_streams = f->only_streams && item->n_after == 0 && item->amount > 0;
  }
out:
  return status;
}

/* Lists for each flight the ones that wait for it, in the order of their transfers' numbers. */
static copse_status find_dependents(struct copse_sim_frame *f, struct copse_err *err) {
  const struct copse_sim_dag *dag = f->dag;
  struct copse_sim_flight *p = f->flights;
  size_t total = 0;
  copse_status status = COPSE_OK;
  for (int t = 0; t < dag->n_transfers; t++) {
    const int *list = copse_sim_after(dag, t); /* `streams` follow at once */
    int n = dag->items[t].n_after + dag->items[t].n_streams;
    for (int i = 0; i < n; i++) p[copse_sim_place(f, list[i])].n_dependents++;
    total += (size_t)n;
    if (total > INT32_MAX) return copse_fail(err, COPSE_OVERFLOW, "too many dependencies");
  }
  COPSE_TRY(copse_calloc(total, sizeof *f->dependents, &f->dependents, err));
  for (int i = 0; i < dag->n_transfers; i++) {
    p[i + 1].first_dependent = p[i].first_dependent + p[i].n_dependents;
    p[i].n_dependents = 0;
  }
  for (int t = 0; t < dag->n_transfers; t++) {
    const int *list = copse_sim_after(dag, t);
    int n_after = dag->items[t].n_after, n = n_after + dag->items[t].n_streams;
    int place = copse_sim_place(f, t);
    for (int i = 0; i < n; i++) {
      struct copse_sim_flight *from = &p[copse_sim_place(f, list[i])];
      f->dependents[from->first_dependent + from->n_dependents++] = i < n_after ? place : ~place;
    }
  }
out:
  return status;
}

/* ---- levels ------------------------------------------------------------------------------ */

/* How many transfers over links lead to t by streams, t included, all of which reduce as t does. */
static int level_of(const struct copse_sim_dag *dag, int t, const int *levels) {
  const struct copse_sim_item *item = &dag->items[t];
  const int *streams = copse_sim_streams(dag, t);
  int level = 0;
  for (int i = 0; i < item->n_streams; i++)
    if (dag->items[streams[i]].reduces == item->reduces && levels[streams[i]] > level)
      level = levels[streams[i]];
  return level + (item->n_links > 0);
}

static copse_status find_levels(struct copse_sim_frame *f, struct copse_err *err) {
  const struct copse_sim_dag *dag = f->dag;
  int *levels = NULL, most[2] = {0, 0};
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)dag->n_transfers, sizeof *levels, &levels, err));
  for (int t = 0; t < dag->n_transfers; t++) {
    int *phase = &most[dag->items[t].reduces];
    levels[t] = level_of(dag, t, levels);
    if (levels[t] > *phase) *phase = levels[t];
  }
  f->levels = most[0] + most[1];
out:
  free(levels);
  return status;
}

/* ---- all together ------------------------------------------------------------------------ */

copse_status copse_sim_frame_make(const struct copse_topology *topology,
                                  const struct copse_sim_dag *dag, struct copse_sim_frame *frame,
                                  struct copse_err *err) {
  copse_status status;
  *frame = (struct copse_sim_frame){.topology = topology, .dag = dag, .only_streams = true};
  COPSE_TRY(find_places(frame, err));
  COPSE_TRY(make_flights(frame, err));
  COPSE_TRY(find_dependents(frame, err));
  COPSE_TRY(find_levels(frame, err));
  COPSE_TRY(copse_calloc((size_t)topology->n_links, sizeof *frame->wires, &frame->wires, err));
  for (int i = 0; i < topology->n_links; i++) {
    const struct copse_link *link = &topology->links[i];
    frame->wires[i].us_per_byte = 1e-3 / copse_q_to_double(link->bandwidth);
    frame->wires[i].latency_us = copse_q_to_double(link->latency);
  }
out:
  return status;
}

void copse_sim_frame_free(struct copse_sim_frame *frame) {
  free(frame->flights);
  free(frame->places);
  free(frame->dependents);
  free(frame->wires);
  *frame = (struct copse_sim_frame){0};
}
