/* Lowering of tree collectives. src/codegen/README.md tells the design. */
#include "codegen/plan_build.h"

#include <stdlib.h>
#include <string.h>

#include "codegen/unit.h"

enum { PHASE_REDUCE = 0, PHASE_BROADCAST = 1, N_PHASES = 2 };

/* One phase of one unit, as the channels and workers see it. */
struct part {
  const struct copse_unit_tree *tree; /* NULL: the unit lacks this phase */
  int worker;                         /* index among the rank's workers, the same on every rank */
  uint32_t data_channel; /* of the edge to the first rank that is no root; see edge_slot */
  uint32_t back_channel; /* ready and credit, against the data; unused without handshake */
  int next_on_worker;    /* next unit of the same worker, -1 at the end */
};

struct lowering {
  const struct copse_schedule *schedule;
  struct copse_units units;
  struct part *parts[N_PHASES]; /* [n_units] */
  int n_workers[N_PHASES];      /* per rank */
  int *first_on_worker[N_PHASES];
  uint32_t *local_channel; /* [n_units] allreduce: from the root's reduce to its broadcast */
  uint32_t *region;        /* [n_units * n_ranks] where a child's partial sums arrive */
  bool handshake;          /* broadcasts need the peers' word that they have entered */
  struct copse_plan_build b;
  struct copse_err *err;
};

static bool both_phases(const struct lowering *l) {
  return l->schedule->collective == COPSE_ALLREDUCE;
}

/* ---- workers ---------------------------------------------------------------------- */

/*
 * The choice is the same on all ranks, and a worker does its units in ascending order:
 * whatever waits, waits for a smaller (chunk, unit) or for the same one further down or up
 * its tree, so no ring of waits can close.
 */
static copse_status assign_workers(struct lowering *l, int phase, int first, int most) {
  int *worker_of = NULL, workers;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)l->units.n_units, sizeof(int), &worker_of, l->err));
  COPSE_TRY(copse_units_spread(&l->units, most, worker_of, &workers, l->err));
  COPSE_TRY(copse_calloc((size_t)workers, sizeof(int), &l->first_on_worker[phase], l->err));
  for (int w = 0; w < workers; w++) l->first_on_worker[phase][w] = -1;
  for (int u = l->units.n_units - 1; u >= 0; u--) {
    struct part *part = &l->parts[phase][u];
    part->worker = first + worker_of[u];
    part->next_on_worker = l->first_on_worker[phase][worker_of[u]];
    l->first_on_worker[phase][worker_of[u]] = u;
  }
  l->n_workers[phase] = workers;
out:
  free(worker_of);
  return status;
}

static copse_status make_workers(struct lowering *l) {
  bool reduces = l->units.units[0].reduce != NULL;
  bool broadcasts = l->units.units[0].broadcast != NULL;
  int most = l->b.options.max_workers / (reduces && broadcasts ? 2 : 1);
  copse_status status = COPSE_OK;
  for (int p = 0; p < N_PHASES; p++) {
    COPSE_TRY(copse_calloc((size_t)l->units.n_units, sizeof(struct part), &l->parts[p], l->err));
    for (int u = 0; u < l->units.n_units; u++)
      l->parts[p][u].tree =
          p == PHASE_REDUCE ? l->units.units[u].reduce : l->units.units[u].broadcast;
  }
  if (reduces) COPSE_TRY(assign_workers(l, PHASE_REDUCE, 0, most));
  if (broadcasts) COPSE_TRY(assign_workers(l, PHASE_BROADCAST, l->n_workers[PHASE_REDUCE], most));
out:
  return status;
}

static int workers_per_rank(const struct lowering *l) {
  return l->n_workers[PHASE_REDUCE] + l->n_workers[PHASE_BROADCAST];
}

static uint32_t global_worker(const struct lowering *l, int rank, int worker) {
  return (uint32_t)(rank * workers_per_rank(l) + worker);
}

/* ---- channels and regions --------------------------------------------------------- */

/* Edges are named by their child; the root, which has none, is left out of the count. */
static uint32_t edge_slot(int child, int root) {
  return (uint32_t)(child < root ? child : child - 1);
}

/* Channels along the tree's edges: with the data, or against it. */
static copse_status add_edge_channels(struct lowering *l, int phase, int u, bool to_parent) {
  const struct part *part = &l->parts[phase][u];
  copse_status status = COPSE_OK;
  for (int child = 0; child < l->schedule->n_ranks; child++) {
    int parent = part->tree->parent[child];
    if (parent < 0) continue;
    int src = to_parent ? child : parent, dst = to_parent ? parent : child;
    COPSE_TRY(copse_build_channel(&l->b, global_worker(l, src, part->worker),
                                  global_worker(l, dst, part->worker)));
  }
out:
  return status;
}

static copse_status make_channels(struct lowering *l) {
  copse_status status = COPSE_OK;
  COPSE_TRY(copse_calloc((size_t)l->units.n_units, sizeof(uint32_t), &l->local_channel, l->err));
  for (int u = 0; u < l->units.n_units; u++) {
    struct part *reduce = &l->parts[PHASE_REDUCE][u], *broadcast = &l->parts[PHASE_BROADCAST][u];
    int root = l->units.units[u].root;
    if (reduce->tree) {
      reduce->data_channel = l->b.header.n_channels;
      COPSE_TRY(add_edge_channels(l, PHASE_REDUCE, u, true));
      reduce->back_channel = l->b.header.n_channels;
      COPSE_TRY(add_edge_channels(l, PHASE_REDUCE, u, false));
    }
    if (broadcast->tree) {
      broadcast->data_channel = l->b.header.n_channels;
      COPSE_TRY(add_edge_channels(l, PHASE_BROADCAST, u, false));
      broadcast->back_channel = l->b.header.n_channels;
      if (l->handshake) COPSE_TRY(add_edge_channels(l, PHASE_BROADCAST, u, true));
    }
    if (!reduce->tree || !broadcast->tree) continue;
    l->local_channel[u] = l->b.header.n_channels;
    COPSE_TRY(copse_build_channel(&l->b, global_worker(l, root, reduce->worker),
                                  global_worker(l, root, broadcast->worker)));
  }
out:
  return status;
}

/* Sources (or destinations) of one MOVE besides the rank's own; more take several. */
#define CHILDREN_PER_MOVE ((int)COPSE_MOVE_MAX_OPERANDS - 1)

static int child_count(const struct copse_unit_tree *tree, int rank) {
  return tree->first_child[rank + 1] - tree->first_child[rank];
}

/* One region per edge, at the parent; the plan wants them grouped by rank. */
static copse_status make_regions(struct lowering *l) {
  int n = l->schedule->n_ranks;
  copse_status status;
  COPSE_TRY(
      copse_calloc((size_t)l->units.n_units * (size_t)n, sizeof(uint32_t), &l->region, l->err));
  for (int rank = 0; rank < n; rank++) {
    for (int u = 0; u < l->units.n_units; u++) {
      const struct copse_unit_tree *tree = l->parts[PHASE_REDUCE][u].tree;
      uint32_t *region = l->region + (size_t)u * (size_t)n;
      if (!tree) continue;
      for (int i = tree->first_child[rank]; i < tree->first_child[rank + 1]; i++)
        COPSE_TRY(copse_build_region(&l->b, rank, u, &region[tree->children[i]]));
    }
  }
out:
  return status;
}

static copse_status make_pieces(struct lowering *l) {
  copse_status status = COPSE_OK;
  for (int u = 0; u < l->units.n_units; u++)
    COPSE_TRY(copse_build_piece(&l->b, l->units.units[u].lo, l->units.units[u].hi, 0));
out:
  return status;
}

/* ---- operations ------------------------------------------------------------------- */

static uint32_t input_block(const struct lowering *l, int u) {
  return l->b.header.input_blocks > 1 ? (uint32_t)l->units.units[u].block : 0;
}

static uint32_t output_block(const struct lowering *l, int u) {
  return l->b.header.output_blocks > 1 ? (uint32_t)l->units.units[u].block : 0;
}

static uint32_t channel_of(uint32_t base, int child, int root) {
  return base + edge_slot(child, root);
}

/* Where a rank's sum goes: the parent's slot for it, or at the root the output. */
static copse_status add_sum_target(struct lowering *l, int u, int rank) {
  int parent = l->parts[PHASE_REDUCE][u].tree->parent[rank];
  if (parent < 0) return copse_build_operand(&l->b, rank, COPSE_BUFFER_OUTPUT, output_block(l, u));
  return copse_build_operand(&l->b, parent, COPSE_BUFFER_SCRATCH,
                             l->region[(size_t)u * (size_t)l->schedule->n_ranks + (size_t)rank]);
}

/*
 * Own input plus the children's sums, in the tree's order. Beyond what one MOVE takes, the
 * sum so far goes into the first child's slot, which has been read by then.
 */
static copse_status add_sum(struct lowering *l, int u, int rank) {
  const struct copse_unit_tree *tree = l->parts[PHASE_REDUCE][u].tree;
  const uint32_t *region = l->region + (size_t)u * (size_t)l->schedule->n_ranks;
  int n = child_count(tree, rank), done = 0;
  const int *children = tree->children + tree->first_child[rank];
  copse_status status = COPSE_OK;
  do {
    uint32_t first = l->b.header.n_operands;
    if (done == 0)
      COPSE_TRY(copse_build_operand(&l->b, rank, COPSE_BUFFER_INPUT, input_block(l, u)));
    else
      COPSE_TRY(copse_build_operand(&l->b, rank, COPSE_BUFFER_SCRATCH, region[children[0]]));
    int upto = n - done > CHILDREN_PER_MOVE ? done + CHILDREN_PER_MOVE : n;
    for (; done < upto; done++)
      COPSE_TRY(copse_build_operand(&l->b, rank, COPSE_BUFFER_SCRATCH, region[children[done]]));
    if (done < n) {
      COPSE_TRY(copse_build_operand(&l->b, rank, COPSE_BUFFER_SCRATCH, region[children[0]]));
      COPSE_TRY(copse_build_move(&l->b, u, first, 1, 0));
    } else {
      COPSE_TRY(add_sum_target(l, u, rank));
      COPSE_TRY(
          copse_build_move(&l->b, u, first, 1, tree->parent[rank] < 0 ? COPSE_MOVE_FINAL : 0));
    }
  } while (done < n);
out:
  return status;
}

/* Reduce phase of unit u at `rank`, for one chunk. The data goes from child to parent. */
static copse_status add_reduce(struct lowering *l, int u, int rank) {
  const struct part *part = &l->parts[PHASE_REDUCE][u];
  const struct copse_unit_tree *tree = part->tree;
  int root = l->units.units[u].root;
  copse_status status = COPSE_OK;
  for (int i = tree->first_child[rank]; i < tree->first_child[rank + 1]; i++)
    COPSE_TRY(copse_build_sync(&l->b, COPSE_OP_WAIT, COPSE_WHEN_ALWAYS,
                               channel_of(part->data_channel, tree->children[i], root)));
  if (rank != root) { /* the parent has entered; later: a slot is free again */
    uint32_t credit = channel_of(part->back_channel, rank, root);
    COPSE_TRY(copse_build_sync(&l->b, COPSE_OP_WAIT, COPSE_WHEN_FIRST, credit));
    COPSE_TRY(copse_build_sync(&l->b, COPSE_OP_WAIT, COPSE_WHEN_AFTER_FIFO, credit));
  }
  COPSE_TRY(add_sum(l, u, rank));
  if (rank != root)
    COPSE_TRY(copse_build_sync(&l->b, COPSE_OP_SIGNAL, COPSE_WHEN_ALWAYS,
                               channel_of(part->data_channel, rank, root)));
  else if (l->units.units[u].broadcast)
    COPSE_TRY(copse_build_sync(&l->b, COPSE_OP_SIGNAL, COPSE_WHEN_ALWAYS, l->local_channel[u]));
  for (int i = tree->first_child[rank]; i < tree->first_child[rank + 1]; i++)
    COPSE_TRY(copse_build_sync(&l->b, COPSE_OP_SIGNAL, COPSE_WHEN_BEFORE_FIFO,
                               channel_of(part->back_channel, tree->children[i], root)));
out:
  return status;
}

/* Puts to the children `from`..`to` of the tree's list, and at a lone root to itself. */
static copse_status add_put(struct lowering *l, int u, int rank, int from, int to) {
  const struct copse_unit_tree *tree = l->parts[PHASE_BROADCAST][u].tree;
  bool source = rank == l->units.units[u].root && !l->units.units[u].reduce;
  bool keep = source && from == tree->first_child[rank]; /* the root's own copy, once */
  uint32_t first = l->b.header.n_operands;
  copse_status status;
  COPSE_TRY(copse_build_operand(&l->b, rank, source ? COPSE_BUFFER_INPUT : COPSE_BUFFER_OUTPUT,
                                source ? input_block(l, u) : output_block(l, u)));
  if (keep) COPSE_TRY(copse_build_operand(&l->b, rank, COPSE_BUFFER_OUTPUT, output_block(l, u)));
  for (int i = from; i < to; i++)
    COPSE_TRY(
        copse_build_operand(&l->b, tree->children[i], COPSE_BUFFER_OUTPUT, output_block(l, u)));
  COPSE_TRY(copse_build_move(&l->b, u, first, (to - from) + (keep ? 1 : 0), 0));
out:
  return status;
}

/* Broadcast phase of unit u at `rank`, for one chunk. The data goes from parent to child. */
static copse_status add_broadcast(struct lowering *l, int u, int rank) {
  const struct part *part = &l->parts[PHASE_BROADCAST][u];
  const struct copse_unit_tree *tree = part->tree;
  int root = l->units.units[u].root;
  int from = tree->first_child[rank], end = tree->first_child[rank + 1];
  bool source = rank == root && !l->units.units[u].reduce;
  copse_status status = COPSE_OK;
  if (rank != root)
    COPSE_TRY(copse_build_sync(&l->b, COPSE_OP_WAIT, COPSE_WHEN_ALWAYS,
                               channel_of(part->data_channel, rank, root)));
  else if (!source)
    COPSE_TRY(copse_build_sync(&l->b, COPSE_OP_WAIT, COPSE_WHEN_ALWAYS, l->local_channel[u]));
  for (int i = from; i < end && l->handshake; i++)
    COPSE_TRY(copse_build_sync(&l->b, COPSE_OP_WAIT, COPSE_WHEN_FIRST,
                               channel_of(part->back_channel, tree->children[i], root)));
  for (int i = from; i < end || (i == from && source); i += CHILDREN_PER_MOVE)
    COPSE_TRY(add_put(l, u, rank, i, end - i > CHILDREN_PER_MOVE ? i + CHILDREN_PER_MOVE : end));
  for (int i = from; i < end; i++)
    COPSE_TRY(copse_build_sync(&l->b, COPSE_OP_SIGNAL, COPSE_WHEN_ALWAYS,
                               channel_of(part->data_channel, tree->children[i], root)));
out:
  return status;
}

/*
 * What a rank has to say before it waits for anything: "I have entered". To the children
 * whose sums it takes (their slots are free), to the parents that put into its output.
 */
static copse_status add_greetings(struct lowering *l, int phase, int first_unit, int rank) {
  copse_status status = COPSE_OK;
  for (int u = first_unit; u >= 0; u = l->parts[phase][u].next_on_worker) {
    const struct part *part = &l->parts[phase][u];
    int root = l->units.units[u].root;
    if (phase == PHASE_REDUCE) {
      for (int i = part->tree->first_child[rank]; i < part->tree->first_child[rank + 1]; i++)
        COPSE_TRY(copse_build_sync(&l->b, COPSE_OP_SIGNAL, COPSE_WHEN_FIRST,
                                   channel_of(part->back_channel, part->tree->children[i], root)));
    } else if (l->handshake && rank != root) {
      COPSE_TRY(copse_build_sync(&l->b, COPSE_OP_SIGNAL, COPSE_WHEN_FIRST,
                                 channel_of(part->back_channel, rank, root)));
    }
  }
out:
  return status;
}

static copse_status add_worker(struct lowering *l, int phase, int worker, int rank) {
  int first_unit = l->first_on_worker[phase][worker];
  uint32_t first_op = l->b.header.n_ops;
  copse_status status;
  COPSE_TRY(add_greetings(l, phase, first_unit, rank));
  for (int u = first_unit; u >= 0; u = l->parts[phase][u].next_on_worker) {
    if (phase == PHASE_REDUCE)
      COPSE_TRY(add_reduce(l, u, rank));
    else
      COPSE_TRY(add_broadcast(l, u, rank));
  }
  status = copse_build_worker(&l->b, rank, first_op);
out:
  return status;
}

static copse_status make_ops(struct lowering *l) {
  copse_status status = COPSE_OK;
  for (int rank = 0; rank < l->schedule->n_ranks; rank++)
    for (int phase = 0; phase < N_PHASES; phase++)
      for (int w = 0; w < l->n_workers[phase]; w++) COPSE_TRY(add_worker(l, phase, w, rank));
out:
  return status;
}

static void release(struct lowering *l) {
  copse_units_free(&l->units);
  for (int p = 0; p < N_PHASES; p++) {
    free(l->parts[p]);
    free(l->first_on_worker[p]);
  }
  free(l->local_channel);
  free(l->region);
  copse_build_free(&l->b);
}

copse_status copse_lower_trees(const struct copse_schedule *schedule,
                               const struct copse_lower_options *options, struct copse_plan **out,
                               struct copse_err *err) {
  struct lowering l = {.schedule = schedule, .err = err};
  copse_status status;
  COPSE_TRY(copse_build_start(&l.b, schedule, options, both_phases(&l) ? 2 : 1, err));
  /* In an allreduce a rank's output is written only after its input went into the sum. */
  l.handshake = !both_phases(&l);
  COPSE_TRY(copse_units_make(schedule, l.b.options.instances, &l.units, err));
  COPSE_TRY(make_workers(&l));
  COPSE_TRY(make_channels(&l));
  COPSE_TRY(make_regions(&l));
  COPSE_TRY(make_pieces(&l));
  COPSE_TRY(make_ops(&l));
  COPSE_TRY(copse_build_finish(&l.b, out));
out:
  release(&l);
  return status;
}
