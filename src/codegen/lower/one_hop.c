/*
 * An allreduce of packets in one hop: every rank sends its input to all others and sums all
 * inputs itself, in the ranks' order, so that all get the same bits. N - 1 times the message leaves
 * and enters each rank, where trees have 2 (N - 1) / N; what is saved is a hop, which is most of
 * the time of a few KiB. No tree is followed: of the schedule it takes the ranks, and that each
 * pair of them has a way of its own.
 */
#include <stdlib.h>

#include "codegen/lower/plan_build.h"

struct lowering {
  const struct copse_schedule *schedule;
  int n_ranks, n_parts; /* of the message, a worker of each rank for each */
  struct copse_plan_build b;
  struct copse_err *err;
};

/* ---- does it apply? --------------------------------------------------------------------- */

static copse_status check_collective(const struct lowering *l) {
  if (l->schedule->collective != COPSE_ALLREDUCE)
    return copse_fail(l->err, COPSE_UNSUPPORTED,
                      "one hop is for an allreduce: the trees of other collectives have no second "
                      "one to save");
  if (l->n_ranks > (int)COPSE_MOVE_MAX_OPERANDS)
    return copse_fail(l->err, COPSE_UNSUPPORTED,
                      "%d ranks' inputs are more than one operation adds, which is %d: lower "
                      "without one hop",
                      l->n_ranks, (int)COPSE_MOVE_MAX_OPERANDS);
  return COPSE_OK;
}

/* Ranks that the trees don't join straight may have no way to each other, or one over third ranks.
 */
static copse_status check_pairs(const struct lowering *l) {
  size_t n = (size_t)l->n_ranks;
  bool *joined = NULL;
  copse_status status;
  COPSE_TRY(copse_calloc(n * n, sizeof *joined, &joined, l->err));
  for (int i = 0; i < l->schedule->n_trees; i++) {
    const struct copse_schedule_tree *tree = &l->schedule->trees[i];
    for (int e = 0; e < tree->n_edges; e++)
      joined[(size_t)tree->edges[e].src * n + (size_t)tree->edges[e].dst] = true;
  }
  for (size_t i = 0; i < n * n; i++)
    if (!joined[i] && i / n != i % n) {
      status = copse_fail(l->err, COPSE_UNSUPPORTED,
                          "one hop needs each rank to send to every other, and in this schedule "
                          "rank %zu never sends to rank %zu: lower without it",
                          i / n, i % n);
      goto out;
    }
out:
  free(joined);
  return status;
}

/* ---- tables ----------------------------------------------------------------------------- */

/* No more parts than workers: none has to do one after another. */
static copse_status make_pieces(struct lowering *l) {
  const struct copse_lower_options *o = &l->b.options;
  copse_status status = COPSE_OK;
  l->n_parts = o->instances < o->max_workers ? o->instances : o->max_workers;
  for (int p = 0; p < l->n_parts; p++) {
    struct copse_q lo, hi;
    COPSE_TRY(copse_q_make(p, l->n_parts, &lo, l->err));
    COPSE_TRY(copse_q_make(p + 1, l->n_parts, &hi, l->err));
    COPSE_TRY(copse_build_piece(&l->b, lo, hi, 0));
  }
out:
  return status;
}

/* From `src`, at `dst`, of part p: the number of its region and of its channel, both laid out
 * by (dst, part, src). */
static uint32_t at(const struct lowering *l, int src, int dst, int p) {
  int others = l->n_ranks - 1;
  return (uint32_t)((dst * l->n_parts + p) * others + (src < dst ? src : src - 1));
}

static copse_status make_regions_and_channels(struct lowering *l) {
  copse_status status = COPSE_OK;
  for (int dst = 0; dst < l->n_ranks; dst++)
    for (int p = 0; p < l->n_parts; p++)
      for (int src = 0; src < l->n_ranks; src++) {
        uint32_t region;
        if (src == dst) continue;
        COPSE_TRY(copse_build_region(&l->b, dst, p, &region));
        COPSE_TRY(copse_build_channel(&l->b, (uint32_t)(src * l->n_parts + p),
                                      (uint32_t)(dst * l->n_parts + p)));
      }
out:
  return status;
}

/* ---- operations ------------------------------------------------------------------------- */

/* To all others, the next rank first: not everybody to one at the same moment. */
static copse_status add_send(struct lowering *l, int rank, int p) {
  uint32_t first = l->b.header.n_operands;
  copse_status status;
  COPSE_TRY(copse_build_operand(&l->b, rank, COPSE_BUFFER_INPUT, 0));
  for (int i = 1; i < l->n_ranks; i++) {
    int dst = (rank + i) % l->n_ranks;
    COPSE_TRY(copse_build_operand(&l->b, dst, COPSE_BUFFER_PACKETS, at(l, rank, dst, p)));
  }
  COPSE_TRY(copse_build_move(&l->b, p, first, l->n_ranks - 1, 0));
  for (int i = 1; i < l->n_ranks; i++)
    COPSE_TRY(
        copse_build_data_sync(&l->b, COPSE_OP_SIGNAL, at(l, rank, (rank + i) % l->n_ranks, p)));
out:
  return status;
}

static copse_status add_sum(struct lowering *l, int rank, int p) {
  copse_status status = COPSE_OK;
  for (int src = 0; src < l->n_ranks; src++)
    if (src != rank) COPSE_TRY(copse_build_data_sync(&l->b, COPSE_OP_WAIT, at(l, src, rank, p)));
  uint32_t first = l->b.header.n_operands;
  for (int src = 0; src < l->n_ranks; src++)
    COPSE_TRY(src == rank
                  ? copse_build_operand(&l->b, rank, COPSE_BUFFER_INPUT, 0)
                  : copse_build_operand(&l->b, rank, COPSE_BUFFER_PACKETS, at(l, src, rank, p)));
  COPSE_TRY(copse_build_operand(&l->b, rank, COPSE_BUFFER_OUTPUT, 0));
  COPSE_TRY(copse_build_move(&l->b, p, first, 1, COPSE_MOVE_FINAL));
out:
  return status;
}

static copse_status add_worker(struct lowering *l, int rank, int p) {
  uint32_t first_op = l->b.header.n_ops;
  copse_status status = COPSE_OK;
  if (l->n_ranks > 1) COPSE_TRY(add_send(l, rank, p));
  COPSE_TRY(add_sum(l, rank, p));
  COPSE_TRY(copse_build_worker(&l->b, rank, first_op));
out:
  return status;
}

copse_status copse_lower_one_hop(const struct copse_schedule *schedule,
                                 const struct copse_lower_options *options, struct copse_plan **out,
                                 struct copse_err *err) {
  struct lowering l = {.schedule = schedule, .n_ranks = schedule->n_ranks, .err = err};
  copse_status status;
  COPSE_TRY(copse_build_start(&l.b, schedule, options, 1, err));
  COPSE_TRY(check_collective(&l));
  COPSE_TRY(check_pairs(&l));
  COPSE_TRY(make_pieces(&l));
  COPSE_TRY(make_regions_and_channels(&l));
  for (int rank = 0; rank < l.n_ranks; rank++)
    for (int p = 0; p < l.n_parts; p++) COPSE_TRY(add_worker(&l, rank, p));
  COPSE_TRY(copse_build_finish(&l.b, out));
out:
  copse_build_free(&l.b);
  return status;
}
