/*
 * Sets of transfers, which the simulator (simulate.h) runs: added one by one, along paths, or all
 * those of a schedule.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/memory.h"
#include "runtime/plan/plan.h"
#include "schedule/schedule.h"
#include "topology/topology.h"

#define COPSE_SIM_MAX_WORKERS 4096

/*
 * One transfer, as handed to copse_sim_dag_add, which copies all of it. `after` and `streams`
 * name transfers added before.
 */
struct copse_sim_transfer {
  const int *links; /* [n_links] topology links, each starting where the last one ended */
  int n_links;      /* 0: moves nothing over links; joins others (a barrier) or computes */
  const int *after; /* [n_after] starts when all of these have arrived whole */
  int n_after;
  const int *streams; /* [n_streams] a chunk starts when the same part of each has arrived */
  int n_streams;
  const int *copies; /* [n_links] or NULL: a number >= 0 marks one and the same copy: of all
                        transfers with it, a chunk takes the link once (multicast,
                        aggregation); -1: its own */
  double amount;     /* >= 0; bytes = amount * unit_bytes of copse_simulate. 0 takes latency */
  double delay_us;   /* >= 0; between being ready and starting: compute, a launch */
  bool reduces;      /* what arrives is added to the receiver's data */
  int adder;         /* with `reduces` and no links: the rank that adds; else not used */
  int order;         /* among transfers that ask at the same moment, lowest first */
  int worker;        /* >= 0: which of the workers of the rank where it starts sends it */
};

/* A set of transfers; zero-initialise to start, free with copse_sim_dag_free. */
struct copse_sim_dag {
  int n_transfers;
  int n_copies;                 /* 1 + the largest number in `copies` */
  int n_workers;                /* 1 + the largest `worker` */
  struct copse_sim_item *items; /* private */
  size_t items_capacity;
  int *ints; /* private: all lists of numbers */
  size_t n_ints, ints_capacity;
};

void copse_sim_dag_free(struct copse_sim_dag *dag);

/* Whether the same transfers were added in the same order. */
bool copse_sim_dags_equal(const struct copse_sim_dag *a, const struct copse_sim_dag *b);

/*
 * Adds a transfer; *id (may be NULL) gets its number, counted from 0. COPSE_INVALID for a
 * dependency that isn't there yet or a negative amount, COPSE_OVERFLOW, COPSE_NOMEM.
 */
copse_status copse_sim_dag_add(struct copse_sim_dag *dag, const struct copse_sim_transfer *transfer,
                               int *id, struct copse_err *err) COPSE_CHECKED;

/*
 * Adds `transfer` along a path of topology nodes, cut into one transfer per pair of
 * consecutive ranks on it; each streams from the one before. `links` and `copies` of
 * `transfer` are ignored; after, streams and delay apply to the first. *last (may be NULL)
 * gets the number of the transfer that arrives at the path's end. COPSE_INVALID where a link
 * is missing.
 */
copse_status copse_sim_dag_add_path(struct copse_sim_dag *dag,
                                    const struct copse_topology *topology, const int *nodes,
                                    int n_nodes, const struct copse_sim_transfer *transfer,
                                    int *last, struct copse_err *err) COPSE_CHECKED;

/*
 * Appends the transfers of a schedule, in amounts of M. A broadcast edge passes on what
 * reached its source, a reduce edge what all children brought; the broadcast of an allreduce
 * starts with the pieces that its reduction has finished. Each path of a flow runs on its own.
 * Paths that share a link into a multicast switch or out of an aggregation switch take it
 * once per tree. COPSE_INVALID for a path or rank that the topology lacks, and for a compact
 * schedule: copse_schedule_expand it first. With `turns` as plans have it, where that matters at
 * one moment: each rank serves its right-hand neighbour's trees first, and trees have different
 * workers. Trees with far_first go as copse_sim_dag_far_first has it.
 */
copse_status copse_sim_dag_of_schedule(const struct copse_schedule *schedule,
                                       const struct copse_topology *topology, bool turns,
                                       struct copse_sim_dag *dag,
                                       struct copse_err *err) COPSE_CHECKED;

/* A multicast: `transfer` from each of n ranks to `hub` (gathers), or from it to each. */
struct copse_sim_multicast {
  const struct copse_topology *topology;
  const struct copse_sim_transfer *transfer;
  const int *ranks; /* [n] the hub may be one of them: its data go to the switch and back */
  int n, hub;
  bool gathers;
  int64_t count; /* what load [links] gets where a link carries it */
  int64_t *load;
};

/*
 * Adds a multicast over a switch that copies and adds and joins all of its ranks; the hub's own
 * link carries them once. ids[k]: what the k-th streams from (-1: nothing), then its number.
 * COPSE_INFEASIBLE without such a switch.
 */
copse_status copse_sim_dag_add_multicast(struct copse_sim_dag *dag,
                                         const struct copse_sim_multicast *multicast, int *ids,
                                         struct copse_err *err) COPSE_CHECKED;

/*
 * Computes what each piece of a plan is of M: amounts[p] of `whole` parts, in the arena; exact
 * where the pieces have a common denominator of 64 bits, else rounded. *demand: of an alltoall by
 * demand, for the caller to free (in parts of its own; M is the largest row); untouched for
 * others. COPSE_OVERFLOW where the demand's own parts don't fit.
 */
copse_status copse_sim_amounts_of_plan(const char *label, const struct copse_plan *plan,
                                       struct copse_arena *arena, int64_t **amounts, int64_t *whole,
                                       int64_t **demand, struct copse_err *err) COPSE_CHECKED;

/*
 * Makes `order` one in which what has the most transfers over links after it comes first, and of
 * as many what came first before: longest way first, as a schedule's far_first asks for it.
 * O(transfers and streams).
 */
copse_status copse_sim_dag_far_first(struct copse_sim_dag *dag, struct copse_err *err)
    COPSE_CHECKED;

/* What the number of chunks depends on. */
struct copse_sim_shape {
  double largest;  /* amount of a transfer */
  int64_t n_links; /* of all transfers */
  int longest;     /* links of a transfer, the most */
  int levels;      /* transfers over links that stream from one another, the most: of those that
                      reduce, and of those that don't, as plans count them */
};

copse_status copse_sim_dag_shape(const struct copse_sim_dag *dag, struct copse_sim_shape *shape,
                                 struct copse_err *err) COPSE_CHECKED;

/* ---- private: how a set is kept ---- */

/* Lists are offsets into dag->ints, one after the other: links, copies, after, streams. */
struct copse_sim_item {
  size_t first;
  int n_links, n_copies, n_after, n_streams;
  int order, adder, worker;
  bool reduces;
  double amount, delay_us;
};

static inline const int *copse_sim_links(const struct copse_sim_dag *dag, int t) {
  return dag->ints + dag->items[t].first;
}
/* Returns the transfer's copies; NULL where it has none. */
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
