/* Lowering of tree collectives. src/codegen/README.md tells the design. */
#include "codegen/lower/plan_build.h"

#include <stdlib.h>
#include <string.h>

#include "codegen/lower/tree_roles.h"

enum { PHASE_REDUCE = COPSE_TREE_REDUCE, PHASE_BROADCAST = COPSE_TREE_BROADCAST };

/* The channels of one phase of one unit. */
struct channels {
  uint32_t data; /* of the edge to the first rank that is no root; see edge_slot */
  uint32_t back; /* ready and credit, against the data; unused without handshake */
};

struct lowering {
  const struct copse_schedule *schedule;
  struct copse_tree_roles t;
  struct channels *channels[COPSE_TREE_PHASES]; /* [n_units] */
  uint32_t *region; /* [n_units * n_ranks] where a child's partial sums arrive */
  bool handshake;   /* broadcasts need the peers' word that they have entered */
  struct copse_plan_build b;
  struct copse_err *err;
};

static bool both_phases(const struct lowering *l) {
  return l->schedule->collective == COPSE_ALLREDUCE;
}

/* ---- channels and regions --------------------------------------------------------- */

/* Edges are named by their child; the root, which has none, is left out of the count. */
static uint32_t edge_slot(int child, int root) {
  return (uint32_t)(child < root ? child : child - 1);
}

/* Channels along the tree's edges: with the data, or against it. */
static copse_status add_edge_channels(struct lowering *l, int phase, int u, bool to_parent) {
  const struct copse_tree_part *part = &l->t.parts[phase][u];
  copse_status status = COPSE_OK;
  for (int child = 0; child < l->schedule->n_ranks; child++) {
    int parent = part->tree->parent[child];
    if (parent < 0) continue;
    bool folded = !copse_tree_has_role(&l->t, phase, u, parent); /* part of its reduction */
    uint32_t above = copse_tree_worker(&l->t, folded ? PHASE_REDUCE : phase, u, parent);
    uint32_t below = copse_tree_worker(&l->t, phase, u, child);
    COPSE_TRY(copse_build_channel(&l->b, to_parent ? below : above, to_parent ? above : below));
  }
out:
  return status;
}

static copse_status make_channels(struct lowering *l) {
  copse_status status = COPSE_OK;
  for (int p = 0; p < COPSE_TREE_PHASES; p++)
    COPSE_TRY(
        copse_calloc((size_t)l->t.units.n_units, sizeof(struct channels), &l->channels[p], l->err));
  for (int u = 0; u < l->t.units.n_units; u++) {
    struct channels *reduce = &l->channels[PHASE_REDUCE][u];
    struct channels *broadcast = &l->channels[PHASE_BROADCAST][u];
    if (l->t.units.units[u].reduce) {
      reduce->data = l->b.header.n_channels;
      COPSE_TRY(add_edge_channels(l, PHASE_REDUCE, u, true));
      reduce->back = l->b.header.n_channels;
      COPSE_TRY(add_edge_channels(l, PHASE_REDUCE, u, false));
    }
    if (!l->t.units.units[u].broadcast) continue;
    broadcast->data = l->b.header.n_channels;
    COPSE_TRY(add_edge_channels(l, PHASE_BROADCAST, u, false));
    broadcast->back = l->b.header.n_channels;
    if (l->handshake) COPSE_TRY(add_edge_channels(l, PHASE_BROADCAST, u, true));
  }
out:
  return status;
}

/* Sources (or destinations) of one MOVE besides the rank's own; more take several. */
#define CHILDREN_PER_MOVE ((int)COPSE_MOVE_MAX_OPERANDS - 1)

/* One region per edge, at the parent; the plan wants them grouped by rank. */
static copse_status make_regions(struct lowering *l) {
  int n = l->schedule->n_ranks;
  copse_status status;
  COPSE_TRY(
      copse_calloc((size_t)l->t.units.n_units * (size_t)n, sizeof(uint32_t), &l->region, l->err));
  for (int rank = 0; rank < n; rank++) {
    for (int u = 0; u < l->t.units.n_units; u++) {
      const struct copse_unit_tree *tree = l->t.parts[PHASE_REDUCE][u].tree;
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
  for (int u = 0; u < l->t.units.n_units; u++)
    COPSE_TRY(copse_build_piece(&l->b, l->t.units.units[u].lo, l->t.units.units[u].hi, 0));
out:
  return status;
}

/* ---- operations ------------------------------------------------------------------- */

static uint32_t input_block(const struct lowering *l, int u) {
  return l->b.header.input_blocks > 1 ? (uint32_t)l->t.units.units[u].block : 0;
}

static uint32_t output_block(const struct lowering *l, int u) {
  return l->b.header.output_blocks > 1 ? (uint32_t)l->t.units.units[u].block : 0;
}

static uint32_t channel_of(uint32_t base, int child, int root) {
  return base + edge_slot(child, root);
}

/* Where a rank's sum goes: the parent's slot for it, or at the root the output, and from there
 * at once to the first `folded` children of the broadcast. */
static copse_status add_sum_targets(struct lowering *l, int u, int rank, int folded) {
  int parent = l->t.parts[PHASE_REDUCE][u].tree->parent[rank];
  const struct copse_unit_tree *down = l->t.units.units[u].broadcast;
  copse_status status;
  if (parent >= 0)
    return copse_build_operand(&l->b, parent, COPSE_BUFFER_SCRATCH,
                               l->region[(size_t)u * (size_t)l->schedule->n_ranks + (size_t)rank]);
  COPSE_TRY(copse_build_operand(&l->b, rank, COPSE_BUFFER_OUTPUT, output_block(l, u)));
  for (int i = 0; i < folded; i++)
    COPSE_TRY(copse_build_operand(&l->b, down->children[down->first_child[rank] + i],
                                  COPSE_BUFFER_OUTPUT, output_block(l, u)));
out:
  return status;
}

/*
 * Own input plus the children's sums, in the tree's order. Beyond what one MOVE takes, the
 * sum so far goes into the first child's slot, which has been read by then.
 */
static copse_status add_sum(struct lowering *l, int u, int rank, int folded) {
  const struct copse_unit_tree *tree = l->t.parts[PHASE_REDUCE][u].tree;
  const uint32_t *region = l->region + (size_t)u * (size_t)l->schedule->n_ranks;
  int n = copse_tree_children(tree, rank), done = 0;
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
      COPSE_TRY(add_sum_targets(l, u, rank, folded));
      COPSE_TRY(copse_build_move(&l->b, u, first, 1 + folded,
                                 tree->parent[rank] < 0 ? COPSE_MOVE_FINAL : 0));
    }
  } while (done < n);
out:
  return status;
}

/* ---- broadcasts ------------------------------------------------------------------- */

/* Who passes nothing on needs to hear only that all of it is there. */
static uint8_t when_told(const struct copse_unit_tree *tree, int rank) {
  return copse_tree_children(tree, rank) > 0 ? COPSE_WHEN_ALWAYS : COPSE_WHEN_LAST;
}

/* A MOVE to the children `from`..`to` of the tree's list, and at a lone root to itself. */
static copse_status add_put(struct lowering *l, int u, int rank, int from, int to) {
  const struct copse_unit_tree *tree = l->t.parts[PHASE_BROADCAST][u].tree;
  bool source = rank == l->t.units.units[u].root && !l->t.units.units[u].reduce;
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

/* To the children from the `from`-th of the tree's list on, as many MOVEs as that takes. */
static copse_status add_puts(struct lowering *l, int u, int rank, int from, bool source) {
  const struct copse_unit_tree *tree = l->t.parts[PHASE_BROADCAST][u].tree;
  int end = tree->first_child[rank + 1];
  copse_status status = COPSE_OK;
  for (int i = from; i < end || (i == from && source); i += CHILDREN_PER_MOVE)
    COPSE_TRY(add_put(l, u, rank, i, end - i > CHILDREN_PER_MOVE ? i + CHILDREN_PER_MOVE : end));
out:
  return status;
}

static copse_status tell_children(struct lowering *l, int u, int rank) {
  const struct channels *channels = &l->channels[PHASE_BROADCAST][u];
  const struct copse_unit_tree *tree = l->t.parts[PHASE_BROADCAST][u].tree;
  copse_status status = COPSE_OK;
  for (int i = tree->first_child[rank]; i < tree->first_child[rank + 1]; i++)
    COPSE_TRY(
        copse_build_sync(&l->b, COPSE_OP_SIGNAL, when_told(tree, tree->children[i]),
                         channel_of(channels->data, tree->children[i], l->t.units.units[u].root)));
out:
  return status;
}

/* Broadcast phase of unit u at `rank`, for one chunk. The data goes from parent to child. */
static copse_status add_broadcast(struct lowering *l, int u, int rank) {
  const struct channels *channels = &l->channels[PHASE_BROADCAST][u];
  const struct copse_unit_tree *tree = l->t.parts[PHASE_BROADCAST][u].tree;
  int root = l->t.units.units[u].root, from = tree->first_child[rank];
  copse_status status = COPSE_OK;
  if (rank != root)
    COPSE_TRY(copse_build_sync(&l->b, COPSE_OP_WAIT, when_told(tree, rank),
                               channel_of(channels->data, rank, root)));
  for (int i = from; i < tree->first_child[rank + 1] && l->handshake; i++)
    COPSE_TRY(copse_build_sync(&l->b, COPSE_OP_WAIT, COPSE_WHEN_FIRST,
                               channel_of(channels->back, tree->children[i], root)));
  COPSE_TRY(add_puts(l, u, rank, from, rank == root));
  COPSE_TRY(tell_children(l, u, rank));
out:
  return status;
}

/* ---- reductions ------------------------------------------------------------------- */

/* The root of both phases: the sum goes out and down. */
static copse_status add_root(struct lowering *l, int u, int rank) {
  const struct copse_unit_tree *down = l->t.units.units[u].broadcast;
  int folded = down ? copse_tree_children(down, rank) : 0;
  if (folded > CHILDREN_PER_MOVE) folded = CHILDREN_PER_MOVE;
  copse_status status;
  COPSE_TRY(add_sum(l, u, rank, folded));
  if (!down) return COPSE_OK;
  COPSE_TRY(add_puts(l, u, rank, down->first_child[rank] + folded, false));
  COPSE_TRY(tell_children(l, u, rank));
out:
  return status;
}

/* Reduce phase of unit u at `rank`, for one chunk. The data goes from child to parent. */
static copse_status add_reduce(struct lowering *l, int u, int rank) {
  const struct channels *channels = &l->channels[PHASE_REDUCE][u];
  const struct copse_unit_tree *tree = l->t.parts[PHASE_REDUCE][u].tree;
  int root = l->t.units.units[u].root;
  copse_status status = COPSE_OK;
  for (int i = tree->first_child[rank]; i < tree->first_child[rank + 1]; i++)
    COPSE_TRY(copse_build_sync(&l->b, COPSE_OP_WAIT, COPSE_WHEN_ALWAYS,
                               channel_of(channels->data, tree->children[i], root)));
  if (rank == root) {
    COPSE_TRY(add_root(l, u, rank));
  } else { /* the parent has entered; later: a slot is free again */
    uint32_t credit = channel_of(channels->back, rank, root);
    COPSE_TRY(copse_build_sync(&l->b, COPSE_OP_WAIT, COPSE_WHEN_FIRST, credit));
    COPSE_TRY(copse_build_sync(&l->b, COPSE_OP_WAIT, COPSE_WHEN_AFTER_FIFO, credit));
    COPSE_TRY(add_sum(l, u, rank, 0));
    COPSE_TRY(copse_build_sync(&l->b, COPSE_OP_SIGNAL, COPSE_WHEN_ALWAYS,
                               channel_of(channels->data, rank, root)));
  }
  for (int i = tree->first_child[rank]; i < tree->first_child[rank + 1]; i++)
    COPSE_TRY(copse_build_sync(&l->b, COPSE_OP_SIGNAL, COPSE_WHEN_BEFORE_FIFO,
                               channel_of(channels->back, tree->children[i], root)));
out:
  return status;
}

/* ---- a worker's list --------------------------------------------------------------- */

/* What a worker does for one unit in one phase, and when among the rest. */
struct role {
  int worker, phase, level, turn, unit;
};

/*
 * Within a chunk a worker goes by phase and level: whatever waits, waits for an earlier chunk or
 * for a smaller (phase, level) of the same, so no ring of waits can close, whatever the ranks'
 * workers are. Within a level each rank starts with another root: not all send to one.
 */
static int compare_roles(const void *a, const void *b) {
  const struct role *x = a, *y = b;
  if (x->worker != y->worker) return x->worker - y->worker;
  if (x->phase != y->phase) return x->phase - y->phase;
  if (x->level != y->level) return x->level - y->level;
  if (x->turn != y->turn) return x->turn - y->turn;
  return x->unit - y->unit;
}

static size_t list_roles(const struct lowering *l, int rank, struct role *roles) {
  size_t n = 0;
  int n_ranks = l->schedule->n_ranks;
  for (int p = 0; p < COPSE_TREE_PHASES; p++)
    for (int u = 0; u < l->t.units.n_units; u++)
      if (copse_tree_has_role(&l->t, p, u, rank))
        roles[n++] = (struct role){.worker = l->t.parts[p][u].worker[rank],
                                   .phase = p,
                                   .level = l->t.parts[p][u].level[rank],
                                   .turn = (l->t.units.units[u].root - rank + n_ranks) % n_ranks,
                                   .unit = u};
  qsort(roles, n, sizeof *roles, compare_roles);
  return n;
}

/*
 * What a rank has to say before it waits for anything: "I have entered". To the children
 * whose sums it takes (their slots are free), to the parents that put into its output.
 */
static copse_status add_greeting(struct lowering *l, const struct role *role, int rank) {
  const struct channels *channels = &l->channels[role->phase][role->unit];
  const struct copse_unit_tree *tree = l->t.parts[role->phase][role->unit].tree;
  int root = l->t.units.units[role->unit].root;
  copse_status status = COPSE_OK;
  if (role->phase == PHASE_REDUCE) {
    for (int i = tree->first_child[rank]; i < tree->first_child[rank + 1]; i++)
      COPSE_TRY(copse_build_sync(&l->b, COPSE_OP_SIGNAL, COPSE_WHEN_FIRST,
                                 channel_of(channels->back, tree->children[i], root)));
  } else if (l->handshake && rank != root) {
    COPSE_TRY(copse_build_sync(&l->b, COPSE_OP_SIGNAL, COPSE_WHEN_FIRST,
                               channel_of(channels->back, rank, root)));
  }
out:
  return status;
}

static copse_status add_worker(struct lowering *l, int rank, const struct role *roles, size_t n) {
  uint32_t first_op = l->b.header.n_ops;
  copse_status status = COPSE_OK;
  for (size_t i = 0; i < n; i++) COPSE_TRY(add_greeting(l, &roles[i], rank));
  for (size_t i = 0; i < n; i++)
    COPSE_TRY(roles[i].phase == PHASE_REDUCE ? add_reduce(l, roles[i].unit, rank)
                                             : add_broadcast(l, roles[i].unit, rank));
  status = copse_build_worker(&l->b, rank, first_op);
out:
  return status;
}

static copse_status make_ops(struct lowering *l) {
  struct role *roles = NULL;
  copse_status status;
  COPSE_TRY(
      copse_calloc((size_t)l->t.units.n_units * COPSE_TREE_PHASES, sizeof *roles, &roles, l->err));
  for (int rank = 0; rank < l->schedule->n_ranks; rank++) {
    size_t n = list_roles(l, rank, roles), end;
    for (size_t i = 0; i < n; i = end) {
      for (end = i; end < n && roles[end].worker == roles[i].worker;) end++;
      COPSE_TRY(add_worker(l, rank, roles + i, end - i));
    }
  }
out:
  free(roles);
  return status;
}

/* ---- all of it ---------------------------------------------------------------------- */

copse_status copse_lower_trees(const struct copse_schedule *schedule,
                               const struct copse_lower_options *options, struct copse_plan **out,
                               struct copse_err *err) {
  struct lowering l = {.schedule = schedule, .err = err};
  copse_status status;
  COPSE_TRY(copse_build_start(&l.b, schedule, options, both_phases(&l) ? 2 : 1, err));
  /* In an allreduce a rank's output is written only after its input went into the sum. */
  l.handshake = !both_phases(&l);
  l.t.schedule = schedule;
  l.t.max_workers = l.b.options.max_workers;
  COPSE_TRY(copse_deal_instances(&l.t, copse_tree_roles_cut, l.b.options.instances, err));
  copse_build_levels(&l.b, copse_tree_levels(&l.t));
  COPSE_TRY(make_channels(&l));
  COPSE_TRY(make_regions(&l));
  COPSE_TRY(make_pieces(&l));
  COPSE_TRY(make_ops(&l));
  COPSE_TRY(copse_build_finish(&l.b, out));
out:
  copse_tree_roles_free(&l.t);
  for (int p = 0; p < COPSE_TREE_PHASES; p++) free(l.channels[p]);
  free(l.region);
  copse_build_free(&l.b);
  return status;
}
