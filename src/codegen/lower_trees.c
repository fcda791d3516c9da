/* Lowering of tree collectives. src/codegen/README.md tells the design. */
#include "codegen/plan_build.h"

#include <stdlib.h>
#include <string.h>

#include "codegen/deal.h"
#include "codegen/unit.h"

enum { PHASE_REDUCE = 0, PHASE_BROADCAST = 1, N_PHASES = 2 };

/* One phase of one unit, as the channels and workers see it. */
struct part {
  const struct copse_unit_tree *tree; /* NULL: the unit lacks this phase */
  int *level;            /* [n_ranks] moves from the tree's leaves (reduce) or root (broadcast) */
  int *worker;           /* [n_ranks] among the rank's workers */
  uint32_t data_channel; /* of the edge to the first rank that is no root; see edge_slot */
  uint32_t back_channel; /* ready and credit, against the data; unused without handshake */
};

struct lowering {
  const struct copse_schedule *schedule;
  struct copse_units units;
  struct part *parts[N_PHASES]; /* [n_units] */
  struct copse_arena arena;     /* the parts' lists */
  int *first_worker;            /* [n_ranks + 1] */
  uint32_t *region;             /* [n_units * n_ranks] where a child's partial sums arrive */
  bool handshake;               /* broadcasts need the peers' word that they have entered */
  struct copse_plan_build b;
  struct copse_err *err;
};

static bool both_phases(const struct lowering *l) {
  return l->schedule->collective == COPSE_ALLREDUCE;
}

static int child_count(const struct copse_unit_tree *tree, int rank) {
  return tree->first_child[rank + 1] - tree->first_child[rank];
}

/* ---- roles: what a rank does for a unit in a phase ---------------------------------- */

/* The reduction's root sends on what it has summed up in the same operation. */
static bool has_role(const struct lowering *l, int phase, int u, int rank) {
  const struct copse_unit *unit = &l->units.units[u];
  if (!l->parts[phase][u].tree) return false;
  return phase == PHASE_REDUCE || !unit->reduce || rank != unit->root;
}

/* Pieces read and written. */
static double role_cost(const struct lowering *l, int phase, int u, int rank) {
  const struct copse_unit *unit = &l->units.units[u];
  int children = child_count(l->parts[phase][u].tree, rank);
  double operands = 1 + children;
  if (phase == PHASE_REDUCE)
    operands += 1 + (rank == unit->root && unit->broadcast ? child_count(unit->broadcast, rank) : 0);
  else if (rank == unit->root)
    operands++; /* its own copy */
  else if (children == 0)
    operands = COPSE_DEAL_WAIT;
  return operands * (copse_q_to_double(unit->hi) - copse_q_to_double(unit->lo));
}

/* Levels of one tree: a broadcast's from the root down, a reduction's from the leaves up. */
static void find_levels(const struct copse_unit_tree *tree, int root, int phase, int *level,
                        int *order) {
  int n = 1;
  order[0] = root;
  level[root] = 0;
  for (int i = 0; i < n; i++) /* ranks by distance from the root */
    for (int k = tree->first_child[order[i]]; k < tree->first_child[order[i] + 1]; k++) {
      level[tree->children[k]] = phase == PHASE_BROADCAST ? level[order[i]] + 1 : 0;
      order[n++] = tree->children[k];
    }
  for (int i = n - 1; i > 0 && phase == PHASE_REDUCE; i--) {
    int parent = tree->parent[order[i]];
    if (level[parent] <= level[order[i]]) level[parent] = level[order[i]] + 1;
  }
}

static copse_status make_parts(struct lowering *l) {
  size_t n = (size_t)l->schedule->n_ranks;
  int *order = copse_arena_alloc(&l->arena, n, sizeof *order);
  copse_status status = order ? COPSE_OK : copse_fail_nomem(l->err);
  for (int p = 0; p < N_PHASES && status == COPSE_OK; p++) {
    COPSE_TRY(copse_calloc((size_t)l->units.n_units, sizeof(struct part), &l->parts[p], l->err));
    for (int u = 0; u < l->units.n_units; u++) {
      struct part *part = &l->parts[p][u];
      const struct copse_unit *unit = &l->units.units[u];
      part->tree = p == PHASE_REDUCE ? unit->reduce : unit->broadcast;
      if (!part->tree) continue;
      part->level = copse_arena_alloc(&l->arena, n, sizeof(int));
      part->worker = copse_arena_alloc(&l->arena, n, sizeof(int));
      if (!part->level || !part->worker) return copse_fail_nomem(l->err);
      find_levels(part->tree, unit->root, p, part->level, order);
    }
  }
out:
  return status;
}

/* ---- workers ---------------------------------------------------------------------- */

/* What the busiest rank has to do in a phase. */
struct effort {
  double cost;
  int movers, waiters; /* roles that move data, and roles that don't */
};

static struct effort phase_effort(const struct lowering *l, int phase) {
  struct effort most = {0, 0, 0};
  for (int rank = 0; rank < l->schedule->n_ranks; rank++) {
    struct effort it = {0, 0, 0};
    for (int u = 0; u < l->units.n_units; u++) {
      if (!has_role(l, phase, u, rank)) continue;
      bool waits = phase == PHASE_BROADCAST && rank != l->units.units[u].root &&
                   child_count(l->parts[phase][u].tree, rank) == 0;
      *(waits ? &it.waiters : &it.movers) += 1;
      it.cost += role_cost(l, phase, u, rank);
    }
    if (it.cost > most.cost) most.cost = it.cost;
    if (it.movers > most.movers) most.movers = it.movers;
    if (it.waiters > most.waiters) most.waiters = it.waiters;
  }
  return most;
}

static int at_most(int value, int most) {
  return value < most ? value : most;
}

/*
 * Reductions and broadcasts that are passed on have workers of their own, in proportion to what
 * they move: one worker for both would wait for its own chunk to come back before it sent
 * the next. Who only waits for the end of a broadcast does that anywhere.
 */
static void split_workers(const struct lowering *l, int first[N_PHASES], int count[N_PHASES]) {
  struct effort reduce = phase_effort(l, PHASE_REDUCE);
  struct effort broadcast = phase_effort(l, PHASE_BROADCAST);
  int most = l->b.options.max_workers;
  int roles = broadcast.movers > 0 ? broadcast.movers : broadcast.waiters;
  first[PHASE_REDUCE] = first[PHASE_BROADCAST] = 0;
  count[PHASE_REDUCE] = at_most(reduce.movers, most);
  count[PHASE_BROADCAST] = at_most(roles, most);
  if (reduce.movers == 0) return;
  count[PHASE_BROADCAST] = count[PHASE_REDUCE];
  if (broadcast.movers == 0) return;
  int share = (int)(most * broadcast.cost / (reduce.cost + broadcast.cost) + 0.5);
  share = share < 1 ? 1 : at_most(share, most - 1);
  count[PHASE_REDUCE] = at_most(reduce.movers, most - share);
  count[PHASE_BROADCAST] = at_most(broadcast.movers, share);
  first[PHASE_BROADCAST] = count[PHASE_REDUCE];
}

static copse_status deal_phase(struct lowering *l, int phase, int rank, int first, int count,
                               struct copse_deal_role *roles, double *most) {
  size_t n = 0;
  copse_status status;
  for (int u = 0; u < l->units.n_units; u++)
    if (has_role(l, phase, u, rank))
      roles[n++] = (struct copse_deal_role){.cost = role_cost(l, phase, u, rank), .key = u};
  COPSE_TRY(copse_deal(roles, n, count, most, l->err));
  for (size_t i = 0; i < n; i++)
    l->parts[phase][roles[i].key].worker[rank] = first + roles[i].worker;
out:
  return status;
}

/* Those of a rank: of the first phase all have something to do, of the second maybe fewer. */
static int count_workers(const struct lowering *l, int rank) {
  int n = 0;
  for (int p = 0; p < N_PHASES; p++)
    for (int u = 0; u < l->units.n_units; u++)
      if (has_role(l, p, u, rank) && l->parts[p][u].worker[rank] >= n)
        n = l->parts[p][u].worker[rank] + 1;
  return n;
}

/* *balance: the busiest rank's work over what its workers could do in the time of the busiest. */
static copse_status make_workers(struct lowering *l, double *balance) {
  int first[N_PHASES], count[N_PHASES], n = l->schedule->n_ranks;
  double most = 0, cost = 0;
  struct copse_deal_role *roles = NULL;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)l->units.n_units, sizeof *roles, &roles, l->err));
  COPSE_TRY(copse_calloc((size_t)n + 1, sizeof(int), &l->first_worker, l->err));
  split_workers(l, first, count);
  for (int p = 0; p < N_PHASES; p++) {
    for (int rank = 0; rank < n && count[p] > 0; rank++)
      COPSE_TRY(deal_phase(l, p, rank, first[p], count[p], roles, &most));
    cost += phase_effort(l, p).cost;
  }
  for (int rank = 0; rank < n; rank++)
    l->first_worker[rank + 1] = l->first_worker[rank] + count_workers(l, rank);
  *balance = most > 0 ? cost / (most * l->b.options.max_workers) : 1;
out:
  free(roles);
  return status;
}

static uint32_t global_worker(const struct lowering *l, const struct part *part, int rank) {
  return (uint32_t)(l->first_worker[rank] + part->worker[rank]);
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
    bool folded = phase == PHASE_BROADCAST && parent == l->units.units[u].root &&
                  l->parts[PHASE_REDUCE][u].tree; /* the root's part in it */
    const struct part *at_parent = folded ? &l->parts[PHASE_REDUCE][u] : part;
    COPSE_TRY(copse_build_channel(&l->b, global_worker(l, to_parent ? part : at_parent, src),
                                  global_worker(l, to_parent ? at_parent : part, dst)));
  }
out:
  return status;
}

static copse_status make_channels(struct lowering *l) {
  copse_status status = COPSE_OK;
  for (int u = 0; u < l->units.n_units; u++) {
    struct part *reduce = &l->parts[PHASE_REDUCE][u], *broadcast = &l->parts[PHASE_BROADCAST][u];
    if (reduce->tree) {
      reduce->data_channel = l->b.header.n_channels;
      COPSE_TRY(add_edge_channels(l, PHASE_REDUCE, u, true));
      reduce->back_channel = l->b.header.n_channels;
      COPSE_TRY(add_edge_channels(l, PHASE_REDUCE, u, false));
    }
    if (!broadcast->tree) continue;
    broadcast->data_channel = l->b.header.n_channels;
    COPSE_TRY(add_edge_channels(l, PHASE_BROADCAST, u, false));
    broadcast->back_channel = l->b.header.n_channels;
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

/* Where a rank's sum goes: the parent's slot for it, or at the root the output, and from there
 * at once to the first `folded` children of the broadcast. */
static copse_status add_sum_targets(struct lowering *l, int u, int rank, int folded) {
  int parent = l->parts[PHASE_REDUCE][u].tree->parent[rank];
  const struct copse_unit_tree *down = l->units.units[u].broadcast;
  copse_status status;
  if (parent >= 0)
    return copse_build_operand(
        &l->b, parent, COPSE_BUFFER_SCRATCH,
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
  return child_count(tree, rank) > 0 ? COPSE_WHEN_ALWAYS : COPSE_WHEN_LAST;
}

/* A MOVE to the children `from`..`to` of the tree's list, and at a lone root to itself. */
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

/* To the children from the `from`-th of the tree's list on, as many MOVEs as that takes. */
static copse_status add_puts(struct lowering *l, int u, int rank, int from, bool source) {
  const struct copse_unit_tree *tree = l->parts[PHASE_BROADCAST][u].tree;
  int end = tree->first_child[rank + 1];
  copse_status status = COPSE_OK;
  for (int i = from; i < end || (i == from && source); i += CHILDREN_PER_MOVE)
    COPSE_TRY(add_put(l, u, rank, i, end - i > CHILDREN_PER_MOVE ? i + CHILDREN_PER_MOVE : end));
out:
  return status;
}

static copse_status tell_children(struct lowering *l, int u, int rank) {
  const struct part *part = &l->parts[PHASE_BROADCAST][u];
  const struct copse_unit_tree *tree = part->tree;
  copse_status status = COPSE_OK;
  for (int i = tree->first_child[rank]; i < tree->first_child[rank + 1]; i++)
    COPSE_TRY(copse_build_sync(
        &l->b, COPSE_OP_SIGNAL, when_told(tree, tree->children[i]),
        channel_of(part->data_channel, tree->children[i], l->units.units[u].root)));
out:
  return status;
}

/* Broadcast phase of unit u at `rank`, for one chunk. The data goes from parent to child. */
static copse_status add_broadcast(struct lowering *l, int u, int rank) {
  const struct part *part = &l->parts[PHASE_BROADCAST][u];
  const struct copse_unit_tree *tree = part->tree;
  int root = l->units.units[u].root, from = tree->first_child[rank];
  copse_status status = COPSE_OK;
  if (rank != root)
    COPSE_TRY(copse_build_sync(&l->b, COPSE_OP_WAIT, when_told(tree, rank),
                               channel_of(part->data_channel, rank, root)));
  for (int i = from; i < tree->first_child[rank + 1] && l->handshake; i++)
    COPSE_TRY(copse_build_sync(&l->b, COPSE_OP_WAIT, COPSE_WHEN_FIRST,
                               channel_of(part->back_channel, tree->children[i], root)));
  COPSE_TRY(add_puts(l, u, rank, from, rank == root));
  COPSE_TRY(tell_children(l, u, rank));
out:
  return status;
}

/* ---- reductions ------------------------------------------------------------------- */

/* The root of both phases: the sum goes out and down. */
static copse_status add_root(struct lowering *l, int u, int rank) {
  const struct copse_unit_tree *down = l->units.units[u].broadcast;
  int folded = down ? at_most(child_count(down, rank), CHILDREN_PER_MOVE) : 0;
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
  const struct part *part = &l->parts[PHASE_REDUCE][u];
  const struct copse_unit_tree *tree = part->tree;
  int root = l->units.units[u].root;
  copse_status status = COPSE_OK;
  for (int i = tree->first_child[rank]; i < tree->first_child[rank + 1]; i++)
    COPSE_TRY(copse_build_sync(&l->b, COPSE_OP_WAIT, COPSE_WHEN_ALWAYS,
                               channel_of(part->data_channel, tree->children[i], root)));
  if (rank == root) {
    COPSE_TRY(add_root(l, u, rank));
  } else { /* the parent has entered; later: a slot is free again */
    uint32_t credit = channel_of(part->back_channel, rank, root);
    COPSE_TRY(copse_build_sync(&l->b, COPSE_OP_WAIT, COPSE_WHEN_FIRST, credit));
    COPSE_TRY(copse_build_sync(&l->b, COPSE_OP_WAIT, COPSE_WHEN_AFTER_FIFO, credit));
    COPSE_TRY(add_sum(l, u, rank, 0));
    COPSE_TRY(copse_build_sync(&l->b, COPSE_OP_SIGNAL, COPSE_WHEN_ALWAYS,
                               channel_of(part->data_channel, rank, root)));
  }
  for (int i = tree->first_child[rank]; i < tree->first_child[rank + 1]; i++)
    COPSE_TRY(copse_build_sync(&l->b, COPSE_OP_SIGNAL, COPSE_WHEN_BEFORE_FIFO,
                               channel_of(part->back_channel, tree->children[i], root)));
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
  for (int p = 0; p < N_PHASES; p++)
    for (int u = 0; u < l->units.n_units; u++)
      if (has_role(l, p, u, rank))
        roles[n++] =
            (struct role){.worker = l->parts[p][u].worker[rank],
                          .phase = p,
                          .level = l->parts[p][u].level[rank],
                          .turn = (l->units.units[u].root - rank + n_ranks) % n_ranks,
                          .unit = u};
  qsort(roles, n, sizeof *roles, compare_roles);
  return n;
}

/*
 * What a rank has to say before it waits for anything: "I have entered". To the children
 * whose sums it takes (their slots are free), to the parents that put into its output.
 */
static copse_status add_greeting(struct lowering *l, const struct role *role, int rank) {
  const struct part *part = &l->parts[role->phase][role->unit];
  int root = l->units.units[role->unit].root;
  copse_status status = COPSE_OK;
  if (role->phase == PHASE_REDUCE) {
    for (int i = part->tree->first_child[rank]; i < part->tree->first_child[rank + 1]; i++)
      COPSE_TRY(copse_build_sync(&l->b, COPSE_OP_SIGNAL, COPSE_WHEN_FIRST,
                                 channel_of(part->back_channel, part->tree->children[i], root)));
  } else if (l->handshake && rank != root) {
    COPSE_TRY(copse_build_sync(&l->b, COPSE_OP_SIGNAL, COPSE_WHEN_FIRST,
                               channel_of(part->back_channel, rank, root)));
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
  COPSE_TRY(copse_calloc((size_t)l->units.n_units * N_PHASES, sizeof *roles, &roles, l->err));
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

static void release_workers(struct lowering *l) {
  copse_units_free(&l->units);
  for (int p = 0; p < N_PHASES; p++) {
    free(l->parts[p]);
    l->parts[p] = NULL;
  }
  free(l->first_worker);
  l->first_worker = NULL;
  copse_arena_free(&l->arena);
}

static copse_status cut_into(void *lowering, int instances, struct copse_deal_outcome *outcome,
                             struct copse_err *err) {
  struct lowering *l = lowering;
  copse_status status;
  release_workers(l);
  COPSE_TRY(copse_units_make(l->schedule, instances, &l->units, err));
  COPSE_TRY(make_parts(l));
  COPSE_TRY(make_workers(l, &outcome->balance));
  outcome->roles = (int64_t)l->units.n_units * l->schedule->n_ranks;
out:
  return status;
}

copse_status copse_lower_trees(const struct copse_schedule *schedule,
                               const struct copse_lower_options *options, struct copse_plan **out,
                               struct copse_err *err) {
  struct lowering l = {.schedule = schedule, .err = err};
  copse_status status;
  COPSE_TRY(copse_build_start(&l.b, schedule, options, both_phases(&l) ? 2 : 1, err));
  /* In an allreduce a rank's output is written only after its input went into the sum. */
  l.handshake = !both_phases(&l);
  COPSE_TRY(copse_deal_instances(&l, cut_into, l.b.options.instances, err));
  COPSE_TRY(make_channels(&l));
  COPSE_TRY(make_regions(&l));
  COPSE_TRY(make_pieces(&l));
  COPSE_TRY(make_ops(&l));
  COPSE_TRY(copse_build_finish(&l.b, out));
out:
  release_workers(&l);
  free(l.region);
  copse_build_free(&l.b);
  return status;
}
