/*
 * Native plans in the simulator: the plan is run once, as a message of one chunk, with the numbers
 * of the transfers that brought what each operation reads in place of data.
 */
#include <stdlib.h>
#include <string.h>

#include "predict/simulate_programs.h"
#include "runtime/plan/plan_math.h"

/* A piece of an output block at a rank, which some MOVE writes. */
struct cell {
  uint32_t rank, block, piece;
  int arrival; /* the transfer that brings it, -1: none, it was there at once */
  bool written;
};

struct work {
  const struct copse_plan *plan;
  const char *label;
  struct copse_foreign_sim sim;
  int64_t *amount;    /* [n_pieces] of M, in parts of sim.chunks */
  struct cell *cells; /* sorted, for operands in outputs */
  size_t n_cells;
  int *region;         /* [n_regions] the transfer that brings what is in it; -1: none */
  bool *region_filled; /* [n_regions] */
  bool *summed;        /* [n_regions] what is in it is added to something */
  uint32_t *next;      /* [n_workers] op of its list */
  uint64_t *raised;    /* [n_channels] signals less waits */
  uint32_t *ready;     /* [n_workers] a stack of workers that may get on */
  bool *is_ready;      /* [n_workers] */
  uint32_t n_ready;
  int needs[COPSE_MOVE_MAX_OPERANDS + 1], n_needs;
  struct copse_err *err;
};

/* ---- shares ---------------------------------------------------------------------------- */

/* An alltoall by demand: what each pair has, in parts of a common denominator; M is the largest
 * row. */
static copse_status demand_of(struct work *w, int64_t **demand, int64_t *most) {
  const struct copse_plan *plan = w->plan;
  int64_t n = plan->header.n_ranks, whole = 1;
  *most = 0;
  COPSE_DO(copse_calloc((size_t)(n * n), sizeof **demand, demand, w->err));
  for (int64_t i = 0; i < n * n; i++)
    COPSE_DO(copse_lcm(whole, plan->extents[i].den, &whole, w->err));
  for (int64_t r = 0; r < n; r++) {
    int64_t row = 0;
    for (int64_t i = r * n; i < (r + 1) * n; i++)
      if (copse_mul_overflows(plan->extents[i].num, whole / plan->extents[i].den, *demand + i) ||
          copse_add_overflows(row, (*demand)[i], &row))
        return copse_fail_at(w->err, COPSE_OVERFLOW, w->label, 0,
                             "the plan's demand doesn't fit 64 bits");
    if (row > *most) *most = row;
  }
  return COPSE_OK;
}

/* What a piece is of M. */
static copse_status share_of(const struct work *w, uint32_t p, const int64_t *demand, int64_t most,
                             struct copse_q *out) {
  const struct copse_plan_piece *piece = &w->plan->pieces[p];
  const struct copse_plan_header *h = &w->plan->header;
  struct copse_q lo, hi, block = {1, 1};
  COPSE_DO(copse_q_make(piece->lo_num, piece->lo_den, &lo, w->err));
  COPSE_DO(copse_q_make(piece->hi_num, piece->hi_den, &hi, w->err));
  COPSE_DO(copse_q_sub(hi, lo, out, w->err));
  if (demand && piece->pair > 0)
    COPSE_DO(
        copse_q_make(most > 0 ? demand[piece->pair - 1] : 0, most > 0 ? most : 1, &block, w->err));
  else if (h->input_blocks > 1 || h->output_blocks > 1)
    block.den = h->n_ranks;
  return copse_q_mul(*out, block, out, w->err);
}

/* All pieces in parts of one denominator, which is sim.chunks. */
static copse_status find_amounts(struct work *w, const int64_t *demand, int64_t most) {
  uint32_t n = w->plan->header.n_pieces;
  struct copse_q *shares = NULL;
  int64_t whole = 1;
  copse_status status;
  COPSE_TRY(copse_arena_array(&w->sim.scratch, (size_t)n + 1, sizeof *shares, &shares, w->err));
  COPSE_TRY(
      copse_arena_array(&w->sim.scratch, (size_t)n + 1, sizeof *w->amount, &w->amount, w->err));
  for (uint32_t p = 0; p < n; p++) {
    COPSE_TRY(share_of(w, p, demand, most, &shares[p]));
    COPSE_TRY(copse_lcm(whole, shares[p].den, &whole, w->err));
  }
  if (whole > INT64_MAX / 2 / ((int64_t)w->plan->header.n_operands + 1)) {
    status = copse_fail_at(w->err, COPSE_OVERFLOW, w->label, 0,
                           "the plan's shares add up beyond 64 bits");
    goto out;
  }
  for (uint32_t p = 0; p < n; p++) w->amount[p] = shares[p].num * (whole / shares[p].den);
  w->sim.chunks = whole;
out:
  return status;
}

/* ---- where data lies ------------------------------------------------------------------- */

static int compare_cells(const void *a, const void *b) {
  const struct cell *x = a, *y = b;
  if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
  if (x->block != y->block) return x->block < y->block ? -1 : 1;
  return x->piece == y->piece ? 0 : x->piece < y->piece ? -1 : 1;
}

static struct cell *find_cell(const struct work *w, const struct copse_plan_operand *at,
                              uint32_t piece) {
  struct cell key = {.rank = at->rank, .block = at->index, .piece = piece};
  return bsearch(&key, w->cells, w->n_cells, sizeof key, compare_cells);
}

static const struct copse_plan_operand *operands_of(const struct work *w,
                                                    const struct copse_plan_op *op) {
  return &w->plan->operands[op->operand];
}

static bool is_region(const struct copse_plan_operand *at) {
  return at->buffer == COPSE_BUFFER_SCRATCH || at->buffer == COPSE_BUFFER_PACKETS;
}

static copse_status list_cells(struct work *w) {
  const struct copse_plan *plan = w->plan;
  COPSE_DO(copse_arena_array(&w->sim.scratch, (size_t)plan->header.n_operands + 1, sizeof *w->cells,
                             &w->cells, w->err));
  for (uint32_t i = 0; i < plan->header.n_ops; i++) {
    const struct copse_plan_op *op = &plan->ops[i];
    if (op->kind != COPSE_OP_MOVE) continue;
    const struct copse_plan_operand *at = operands_of(w, op);
    for (uint32_t k = 0; k < op->n_src; k++)
      if (op->n_src > 1 && is_region(&at[k])) w->summed[at[k].index] = true;
    for (uint32_t k = op->n_src; k < (uint32_t)op->n_src + op->n_dst; k++)
      if (at[k].buffer == COPSE_BUFFER_OUTPUT)
        w->cells[w->n_cells++] = (struct cell){at[k].rank, at[k].index, op->piece, -1, false};
  }
  qsort(w->cells, w->n_cells, sizeof *w->cells, compare_cells);
  return COPSE_OK;
}

/* ---- operations ------------------------------------------------------------------------ */

/* Where a source's data come from; false where nobody has written them. */
static bool add_need(struct work *w, const struct copse_plan_operand *at, uint32_t piece) {
  int arrival = -1;
  if (at->buffer == COPSE_BUFFER_OUTPUT) {
    const struct cell *cell = find_cell(w, at, piece);
    if (!cell || !cell->written) return false;
    arrival = cell->arrival;
  } else if (is_region(at)) {
    if (!w->region_filled[at->index]) return false;
    arrival = w->region[at->index];
  }
  for (int i = 0; i < w->n_needs; i++)
    if (w->needs[i] == arrival) return true;
  if (arrival >= 0) w->needs[w->n_needs++] = arrival;
  return true;
}

static void note_written(struct work *w, const struct copse_plan_operand *at, uint32_t piece,
                         int arrival) {
  if (is_region(at)) {
    w->region[at->index] = arrival;
    w->region_filled[at->index] = true;
    return;
  }
  struct cell *cell = find_cell(w, at, piece);
  cell->arrival = arrival;
  cell->written = true;
}

static struct copse_sim_transfer transfer(const struct work *w, uint32_t op, uint32_t first_op,
                                          int64_t parts) {
  return (struct copse_sim_transfer){.streams = w->needs,
                                     .n_streams = w->n_needs,
                                     .amount = (double)parts / (double)w->sim.chunks,
                                     .order = (int)(op - first_op)};
}

/* What the own rank keeps, is there when all sources are: one node for all of them. */
static copse_status join_needs(struct work *w, uint32_t op, uint32_t first_op) {
  struct copse_sim_transfer t = transfer(w, op, first_op, w->amount[w->plan->ops[op].piece]);
  copse_status status;
  if (w->n_needs < 2) return COPSE_OK;
  status = copse_sim_dag_add(w->sim.dag, &t, &w->needs[0], w->err);
  w->n_needs = 1;
  return status;
}

static copse_status do_move(struct work *w, uint32_t rank, uint32_t i, uint32_t first_op) {
  const struct copse_plan_op *op = &w->plan->ops[i];
  const struct copse_plan_operand *at = operands_of(w, op), *dst = at + op->n_src;
  bool keeps = false;
  w->n_needs = 0;
  for (uint32_t k = 0; k < op->n_src; k++)
    if (!add_need(w, &at[k], op->piece))
      return copse_fail_at(w->err, COPSE_REFUTED, w->label, 0,
                           "operation %u reads what none has written; 'copse check' says more", i);
  for (uint32_t k = 0; k < op->n_dst; k++) keeps = keeps || dst[k].rank == rank;
  if (keeps) COPSE_DO(join_needs(w, i, first_op));
  for (uint32_t k = 0; k < op->n_dst; k++) {
    int arrival = w->n_needs > 0 ? w->needs[0] : -1;
    int64_t parts = w->amount[op->piece] * (dst[k].buffer == COPSE_BUFFER_PACKETS ? 2 : 1);
    struct copse_sim_transfer t = transfer(w, i, first_op, parts);
    t.reduces = is_region(&dst[k]) && w->summed[dst[k].index];
    if (dst[k].rank != rank)
      COPSE_DO(copse_foreign_sim_move(&w->sim, (int)rank, (int)dst[k].rank, parts, &t, &arrival));
    note_written(w, &dst[k], op->piece, arrival);
  }
  return COPSE_OK;
}

static void wake(struct work *w, uint32_t worker) {
  if (w->is_ready[worker]) return;
  w->is_ready[worker] = true;
  w->ready[w->n_ready++] = worker;
}

/* One worker, as far as its waits let it. */
static copse_status run_worker(struct work *w, uint32_t worker) {
  const struct copse_plan_worker *list = &w->plan->workers[worker];
  for (; w->next[worker] < list->n_ops; w->next[worker]++) {
    uint32_t i = list->first_op + w->next[worker];
    const struct copse_plan_op *op = &w->plan->ops[i];
    if (!copse_op_runs(op->when, 0, 1, w->plan->header.fifo)) continue;
    if (op->kind == COPSE_OP_WAIT && w->raised[op->channel] == 0) return COPSE_OK;
    if (op->kind == COPSE_OP_WAIT) w->raised[op->channel]--;
    if (op->kind == COPSE_OP_SIGNAL) {
      w->raised[op->channel]++;
      wake(w, w->plan->channels[op->channel].dst_worker);
    }
    if (op->kind == COPSE_OP_MOVE) COPSE_DO(do_move(w, list->rank, i, list->first_op));
  }
  return COPSE_OK;
}

/* As a message of one chunk runs; the simulator cuts the transfers. */
static copse_status run_all(struct work *w) {
  uint32_t n = w->plan->header.n_workers;
  for (uint32_t i = n; i > 0; i--) wake(w, i - 1);
  while (w->n_ready > 0) {
    uint32_t worker = w->ready[--w->n_ready];
    w->is_ready[worker] = false;
    COPSE_DO(run_worker(w, worker));
  }
  for (uint32_t i = 0; i < n; i++)
    if (w->next[i] < w->plan->workers[i].n_ops)
      return copse_fail_at(w->err, COPSE_REFUTED, w->label, 0,
                           "operation %u waits forever; 'copse check' says more",
                           w->plan->workers[i].first_op + w->next[i]);
  return COPSE_OK;
}

static copse_status set_up(struct work *w) {
  const struct copse_plan_header *h = &w->plan->header;
  COPSE_DO(copse_arena_array(&w->sim.scratch, (size_t)h->n_regions + 1, sizeof *w->region,
                             &w->region, w->err));
  COPSE_DO(copse_arena_array(&w->sim.scratch, (size_t)h->n_regions + 1, sizeof *w->region_filled,
                             &w->region_filled, w->err));
  COPSE_DO(copse_arena_array(&w->sim.scratch, (size_t)h->n_regions + 1, sizeof *w->summed,
                             &w->summed, w->err));
  COPSE_DO(copse_arena_array(&w->sim.scratch, (size_t)h->n_workers + 1, sizeof *w->next, &w->next,
                             w->err));
  COPSE_DO(copse_arena_array(&w->sim.scratch, (size_t)h->n_workers + 1, sizeof *w->ready, &w->ready,
                             w->err));
  COPSE_DO(copse_arena_array(&w->sim.scratch, (size_t)h->n_workers + 1, sizeof *w->is_ready,
                             &w->is_ready, w->err));
  COPSE_DO(copse_arena_array(&w->sim.scratch, (size_t)h->n_channels + 1, sizeof *w->raised,
                             &w->raised, w->err));
  return list_cells(w);
}

void copse_sim_options_of_plan(const struct copse_plan_header *h,
                               struct copse_sim_options *options) {
  bool packets = h->protocol == COPSE_PROTOCOL_LOW_LATENCY;
  options->fifo = packets ? 0 : (int)h->fifo;
  options->max_chunk_bytes = packets ? 1e18 : (double)h->chunk_bytes;
  options->min_chunk_bytes = packets ? 1e18 : (double)h->min_chunk_bytes;
  options->pipeline_chunks = packets ? 1 : (int)h->pipeline_chunks;
}

copse_status copse_sim_dag_of_plan(const char *label, const struct copse_plan *plan,
                                   const struct copse_topology *topology, struct copse_sim_dag *dag,
                                   struct copse_foreign *foreign, struct copse_err *err) {
  struct work w = {.plan = plan, .label = label, .err = err};
  int64_t most = 0;
  copse_status status;
  foreign->collective = (copse_collective)plan->header.collective;
  foreign->root = plan->header.root;
  COPSE_TRY(
      copse_foreign_sim_start(&w.sim, label, (int)plan->header.n_ranks, 1, topology, dag, err));
  if (plan->header.n_extents > 0) COPSE_TRY(demand_of(&w, &foreign->demand, &most));
  COPSE_TRY(find_amounts(&w, foreign->demand, most));
  COPSE_TRY(set_up(&w));
  COPSE_TRY(run_all(&w));
  COPSE_TRY(copse_foreign_sim_time(&w.sim, &foreign->time_per_GB));
out:
  copse_foreign_sim_free(&w.sim);
  return status;
}
