/*
 * Lowering of tree collectives to the low-latency protocol: one chunk, everything between ranks
 * goes in packets, and a root that has summed up sends on in the same operation. A worker does
 * the reductions of all its units before their broadcasts: whatever waits, waits for a smaller
 * (phase, unit) or for the same one nearer to the tree's leaves or root.
 */
#include <stdlib.h>

#include "codegen/lower/plan_build.h"
#include "codegen/lower/unit.h"

struct lowering {
  const struct copse_schedule *schedule;
  struct copse_units units;
  int n_workers;       /* per rank */
  int *worker;         /* [n_units] */
  uint32_t *channel;   /* [n_units * n_ranks] from a rank to its parent in the reduction */
  uint32_t *down;      /* [n_units * n_ranks] from its parent in the broadcast to a rank */
  uint32_t *greeting;  /* [n_units * n_ranks] from the receiver; only with `greets` */
  uint32_t *up_region; /* [n_units * n_ranks] at the parent, for what the rank sends up */
  uint32_t *down_region; /* [n_units * n_ranks] at the rank, for what comes down */
  bool greets;           /* nobody answers, so receivers must say that they have entered */
  struct copse_plan_build b;
  struct copse_err *err;
};

static size_t at(const struct lowering *l, int u, int rank) {
  return (size_t)u * (size_t)l->schedule->n_ranks + (size_t)rank;
}

static const struct copse_unit *unit_of(const struct lowering *l, int u) {
  return &l->units.units[u];
}

static uint32_t global_worker(const struct lowering *l, int rank, int u) {
  return (uint32_t)(rank * l->n_workers + l->worker[u]);
}

static int child_count(const struct copse_unit_tree *tree, int rank) {
  return tree->first_child[rank + 1] - tree->first_child[rank];
}

/* ---- tables --------------------------------------------------------------------------- */

/* Sources or destinations of one MOVE besides the rank's own. */
static copse_status check_degrees(const struct lowering *l) {
  for (int u = 0; u < l->units.n_units; u++)
    for (int rank = 0; rank < l->schedule->n_ranks; rank++) {
      const struct copse_unit *unit = unit_of(l, u);
      int up = unit->reduce ? child_count(unit->reduce, rank) : 0;
      int down = unit->broadcast ? child_count(unit->broadcast, rank) : 0;
      if (up >= (int)COPSE_MOVE_MAX_OPERANDS || down >= (int)COPSE_MOVE_MAX_OPERANDS)
        return copse_fail(l->err, COPSE_UNSUPPORTED,
                          "rank %d has %d children in a tree, a low-latency plan takes %d; lower "
                          "without it",
                          rank, up > down ? up : down, (int)COPSE_MOVE_MAX_OPERANDS - 1);
    }
  return COPSE_OK;
}

static copse_status make_tables(struct lowering *l) {
  size_t n = (size_t)l->units.n_units * (size_t)l->schedule->n_ranks;
  copse_status status;
  COPSE_TRY(copse_calloc(n, sizeof(uint32_t), &l->channel, l->err));
  COPSE_TRY(copse_calloc(n, sizeof(uint32_t), &l->down, l->err));
  COPSE_TRY(copse_calloc(n, sizeof(uint32_t), &l->greeting, l->err));
  COPSE_TRY(copse_calloc(n, sizeof(uint32_t), &l->up_region, l->err));
  COPSE_TRY(copse_calloc(n, sizeof(uint32_t), &l->down_region, l->err));
  COPSE_TRY(copse_calloc((size_t)l->units.n_units, sizeof(int), &l->worker, l->err));
  COPSE_TRY(copse_units_spread(&l->units, l->b.options.max_workers, l->worker, &l->n_workers,
                               l->err));
  for (int u = 0; u < l->units.n_units; u++)
    COPSE_TRY(copse_build_piece(&l->b, unit_of(l, u)->lo, unit_of(l, u)->hi, 0));
out:
  return status;
}

static copse_status add_channel(struct lowering *l, int u, int from, int to, uint32_t *channel) {
  *channel = l->b.header.n_channels;
  return copse_build_channel(&l->b, global_worker(l, from, u), global_worker(l, to, u));
}

static copse_status make_channels(struct lowering *l) {
  copse_status status = COPSE_OK;
  for (int u = 0; u < l->units.n_units; u++)
    for (int rank = 0; rank < l->schedule->n_ranks; rank++) {
      const struct copse_unit *unit = unit_of(l, u);
      if (rank == unit->root) continue;
      if (unit->reduce) {
        int parent = unit->reduce->parent[rank];
        COPSE_TRY(add_channel(l, u, rank, parent, &l->channel[at(l, u, rank)]));
        if (l->greets) COPSE_TRY(add_channel(l, u, parent, rank, &l->greeting[at(l, u, rank)]));
      }
      if (unit->broadcast) {
        int parent = unit->broadcast->parent[rank];
        COPSE_TRY(add_channel(l, u, parent, rank, &l->down[at(l, u, rank)]));
        if (l->greets) COPSE_TRY(add_channel(l, u, rank, parent, &l->greeting[at(l, u, rank)]));
      }
    }
out:
  return status;
}

/* Grouped by rank, as the plan wants them. */
static copse_status make_regions(struct lowering *l) {
  copse_status status = COPSE_OK;
  for (int rank = 0; rank < l->schedule->n_ranks; rank++)
    for (int u = 0; u < l->units.n_units; u++) {
      const struct copse_unit *unit = unit_of(l, u);
      const struct copse_unit_tree *up = unit->reduce;
      for (int i = up ? up->first_child[rank] : 0; up && i < up->first_child[rank + 1]; i++)
        COPSE_TRY(copse_build_region(&l->b, rank, u, &l->up_region[at(l, u, up->children[i])]));
      if (unit->broadcast && rank != unit->root)
        COPSE_TRY(copse_build_region(&l->b, rank, u, &l->down_region[at(l, u, rank)]));
    }
out:
  return status;
}

/* ---- operations ------------------------------------------------------------------------- */

static uint32_t block_of(const struct lowering *l, uint32_t blocks, int u) {
  return blocks > 1 ? (uint32_t)unit_of(l, u)->block : 0;
}

static copse_status add_input(struct lowering *l, int u, int rank) {
  return copse_build_operand(&l->b, rank, COPSE_BUFFER_INPUT,
                             block_of(l, l->b.header.input_blocks, u));
}

static copse_status add_output(struct lowering *l, int u, int rank) {
  return copse_build_operand(&l->b, rank, COPSE_BUFFER_OUTPUT,
                             block_of(l, l->b.header.output_blocks, u));
}

/* The broadcast's children as destinations; before it, where they must have entered. */
static copse_status add_children(struct lowering *l, int u, int rank) {
  const struct copse_unit_tree *tree = unit_of(l, u)->broadcast;
  copse_status status = COPSE_OK;
  for (int i = tree->first_child[rank]; i < tree->first_child[rank + 1]; i++)
    COPSE_TRY(copse_build_operand(&l->b, tree->children[i], COPSE_BUFFER_PACKETS,
                                  l->down_region[at(l, u, tree->children[i])]));
out:
  return status;
}

static copse_status sync_children(struct lowering *l, int u, int rank, bool greetings) {
  const struct copse_unit_tree *tree = unit_of(l, u)->broadcast;
  copse_status status = COPSE_OK;
  for (int i = tree->first_child[rank]; i < tree->first_child[rank + 1]; i++) {
    size_t child = at(l, u, tree->children[i]);
    if (!greetings)
      COPSE_TRY(copse_build_data_sync(&l->b, COPSE_OP_SIGNAL, l->down[child]));
    else if (l->greets)
      COPSE_TRY(
          copse_build_sync(&l->b, COPSE_OP_WAIT, COPSE_WHEN_FIRST, l->greeting[child]));
  }
out:
  return status;
}

/* Own input plus the children's sums, up to the parent or, at the root, out and down. */
static copse_status add_reduce(struct lowering *l, int u, int rank) {
  const struct copse_unit *unit = unit_of(l, u);
  const struct copse_unit_tree *tree = unit->reduce;
  bool root = rank == unit->root;
  copse_status status = COPSE_OK;
  for (int i = tree->first_child[rank]; i < tree->first_child[rank + 1]; i++)
    COPSE_TRY(
        copse_build_data_sync(&l->b, COPSE_OP_WAIT, l->channel[at(l, u, tree->children[i])]));
  if (!root && l->greets)
    COPSE_TRY(
        copse_build_sync(&l->b, COPSE_OP_WAIT, COPSE_WHEN_FIRST, l->greeting[at(l, u, rank)]));
  uint32_t first = l->b.header.n_operands;
  COPSE_TRY(add_input(l, u, rank));
  for (int i = tree->first_child[rank]; i < tree->first_child[rank + 1]; i++)
    COPSE_TRY(copse_build_operand(&l->b, rank, COPSE_BUFFER_PACKETS,
                                  l->up_region[at(l, u, tree->children[i])]));
  uint32_t first_dst = l->b.header.n_operands;
  if (root) {
    COPSE_TRY(add_output(l, u, rank));
    if (unit->broadcast) COPSE_TRY(add_children(l, u, rank));
  } else {
    COPSE_TRY(copse_build_operand(&l->b, tree->parent[rank], COPSE_BUFFER_PACKETS,
                                  l->up_region[at(l, u, rank)]));
  }
  COPSE_TRY(copse_build_move(&l->b, u, first, (int)(l->b.header.n_operands - first_dst),
                             root ? COPSE_MOVE_FINAL : 0));
  if (!root)
    COPSE_TRY(copse_build_data_sync(&l->b, COPSE_OP_SIGNAL, l->channel[at(l, u, rank)]));
  else if (unit->broadcast)
    COPSE_TRY(sync_children(l, u, rank, false));
out:
  return status;
}

static copse_status add_broadcast(struct lowering *l, int u, int rank) {
  const struct copse_unit *unit = unit_of(l, u);
  bool root = rank == unit->root;
  copse_status status = COPSE_OK;
  if (root && unit->reduce) return COPSE_OK; /* done when it had summed up */
  if (!root) COPSE_TRY(copse_build_data_sync(&l->b, COPSE_OP_WAIT, l->down[at(l, u, rank)]));
  COPSE_TRY(sync_children(l, u, rank, true));
  uint32_t first = l->b.header.n_operands;
  if (root)
    COPSE_TRY(add_input(l, u, rank));
  else
    COPSE_TRY(copse_build_operand(&l->b, rank, COPSE_BUFFER_PACKETS,
                                  l->down_region[at(l, u, rank)]));
  COPSE_TRY(add_output(l, u, rank));
  COPSE_TRY(add_children(l, u, rank));
  COPSE_TRY(copse_build_move(&l->b, u, first, (int)(l->b.header.n_operands - first) - 1, 0));
  COPSE_TRY(sync_children(l, u, rank, false));
out:
  return status;
}

/* What a receiver says before it waits for anything. */
static copse_status add_greetings(struct lowering *l, int u, int rank) {
  const struct copse_unit *unit = unit_of(l, u);
  const struct copse_unit_tree *up = unit->reduce;
  copse_status status = COPSE_OK;
  if (!l->greets) return COPSE_OK;
  if (unit->broadcast && rank != unit->root)
    COPSE_TRY(
        copse_build_sync(&l->b, COPSE_OP_SIGNAL, COPSE_WHEN_FIRST, l->greeting[at(l, u, rank)]));
  for (int i = up ? up->first_child[rank] : 0; up && i < up->first_child[rank + 1]; i++)
    COPSE_TRY(copse_build_sync(&l->b, COPSE_OP_SIGNAL, COPSE_WHEN_FIRST,
                               l->greeting[at(l, u, up->children[i])]));
out:
  return status;
}

static copse_status add_worker(struct lowering *l, int rank, int worker) {
  uint32_t first_op = l->b.header.n_ops;
  copse_status status = COPSE_OK;
  for (int step = 0; step < 3; step++)
    for (int u = 0; u < l->units.n_units; u++) {
      if (l->worker[u] != worker) continue;
      if (step == 0) COPSE_TRY(add_greetings(l, u, rank));
      if (step == 1 && unit_of(l, u)->reduce) COPSE_TRY(add_reduce(l, u, rank));
      if (step == 2 && unit_of(l, u)->broadcast) COPSE_TRY(add_broadcast(l, u, rank));
    }
  status = copse_build_worker(&l->b, rank, first_op);
out:
  return status;
}

static void release(struct lowering *l) {
  copse_units_free(&l->units);
  free(l->worker);
  free(l->channel);
  free(l->down);
  free(l->greeting);
  free(l->up_region);
  free(l->down_region);
  copse_build_free(&l->b);
}

copse_status copse_lower_packets(const struct copse_schedule *schedule,
                                 const struct copse_lower_options *options,
                                 struct copse_plan **out, struct copse_err *err) {
  struct lowering l = {.schedule = schedule, .err = err};
  copse_status status;
  COPSE_TRY(copse_build_start(&l.b, schedule, options, 1, err));
  /* Elsewhere every rank hears of every other, and of each before its next launch but one. */
  l.greets = copse_collective_rooted(schedule->collective);
  COPSE_TRY(copse_units_make(schedule, l.b.options.instances, &l.units, err));
  COPSE_TRY(check_degrees(&l));
  COPSE_TRY(make_tables(&l));
  COPSE_TRY(make_channels(&l));
  COPSE_TRY(make_regions(&l));
  for (int rank = 0; rank < schedule->n_ranks; rank++)
    for (int w = 0; w < l.n_workers; w++) COPSE_TRY(add_worker(&l, rank, w));
  COPSE_TRY(copse_build_finish(&l.b, out));
out:
  release(&l);
  return status;
}
