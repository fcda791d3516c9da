/*
 * Trees as operations of a plan. A unit (work.h) is one piece with the tree that reduces it and
 * the tree that broadcasts it. A chunk c of the piece goes through them like this:
 *
 *   broadcast, zero copy                          reduce, staged in FIFO slots at the parent
 *
 *   parent                 child                  child                    parent
 *     |<----- first: in ------|  has entered        |<-- first: slots free ---|
 *     |-- put c into output ->|                     |-- put sum of c, slot -->|  slot c mod f
 *     |------- signal ------->|  every chunk, or    |-------- signal -------->|
 *     |         ...           |  the last one if    |                         | fold own input
 *     |                       |  it passes on none  |                         | and all slots
 *     |                       |                     |<------- credit ---------|  while f more come
 *
 * Broadcast. The parent puts each chunk straight into its final place in the children's output and
 * signals: for every chunk to a child that passes it on, once at the end to one that doesn't.
 * Before the first put into its output a child must have entered the call, so it says so once
 * (`first`). An allreduce needs no such signal: a chunk comes down only after the rank's own
 * contribution went up.
 *
 * Reduce. A child puts its partial sum into its slot at the parent and signals. The parent folds
 * its own input and the children's slots, in the schedule's order, into its parent's slot, then
 * gives the slots back as credits. The root folds into its output, with FINAL, which makes a sum an
 * average, and in the same operation into the outputs of its children in the broadcast.
 *
 * Workers. A role is what a rank does for a unit in a phase; its cost is the bytes that it reads
 * and writes. Each rank deals its roles to its workers. Reductions and broadcasts that are passed
 * on have workers of their own, in proportion to what they move: a worker of both would wait for
 * its own chunk to come back before it sent the next. A role that only waits for the end of a
 * broadcast is done by any worker, beside others. In a schedule for one size a rank deals small
 * puts to all its workers, since each message keeps one busy. Signals within the rank say that a
 * sum, or what came, is there to be put, or that the input was read, for the root's own copy, which
 * in place lies there.
 *
 * Order, and why nothing deadlocks. Within a chunk a worker goes by phase and level: the distance
 * from the leaves in a reduction, from the root in a broadcast. An operation at (chunk, phase,
 * level) waits only for operations at smaller ones, or FIFO slots of an earlier chunk. So no ring
 * of waits can close, whatever workers the roles have; of one rank's puts of a chunk that are dealt
 * the others wait for the first, which each worker does before them. Within a level each rank
 * starts with another root, so that not all send to one. Of a schedule with far_first a worker goes
 * by what is farthest from its tree's end instead (longest way first), a broadcast's children with
 * the same to go at once; what an operation waits for has farther to go than itself. What a rank
 * signals without a cause, that it has entered, it signals before it waits for anything.
 *
 * In place (NCCL's rules) input and output share bytes. A broadcast writes a rank's output only
 * after that rank's input was read: in an allreduce because the result depends on it, in an
 * allgather because only the root reads that block.
 *
 * What is proved of every plan made so: docs/theory.md, "src/codegen/check/".
 */

#include <limits.h>

#include "codegen/lower/plan_build.h"
#include "codegen/lower/policy.h"
#include "codegen/lower/work.h"
#include "schedule/chunks.h"

enum { REDUCE = 0, BROADCAST = 1, N_PHASES = 2 };
#define OWN_COPY INT_MAX /* the level of what comes last in a chunk: nothing waits for it */

/* A unit's part in one phase. */
struct part {
  int *to_go;    /* [n_ranks] moves to the tree's end: root (reduce) or leaves (broadcast) */
  const struct copse_unit_tree *tree; /* NULL: the unit lacks this phase */
  int *level;    /* [n_ranks] moves from the tree's leaves (reduce) or root (broadcast) */
  int *worker;   /* [n_ranks] among the rank's workers */
  int *ways;     /* [n_ranks] roles that the rank's puts are dealt to; NULL: one for all, which at a
                    root also keeps its own copy */
  int *sender;   /* [n_ranks] where they are dealt, the parent's worker that puts to this rank */
  uint32_t *local; /* [n_ranks] where they are dealt, channels within a rank, + 1, 0: none, for it
                      is one worker. Of the last child of each role: that it was read, for the
                      root's own copy, which in place lies there. Where the root sums up, and of
                      ranks that pass on what came, of the first child: that it is there. */
  uint32_t data; /* channel of the edge to the first rank that is no root; see edge_slot */
  uint32_t back; /* entered and credit, against the data; unused without handshake */
};

struct lowering {
  struct copse_plan_build *b;
  int n_ranks;
  struct copse_units units;
  struct part *parts[N_PHASES]; /* [n_units] */
  struct copse_role *roles;     /* scratch for the roles of one rank */
  int *first_worker;            /* [n_ranks + 1] */
  uint32_t *region;             /* [n_units * n_ranks] where a child's partial sums arrive */
  bool handshake;               /* broadcasts wait until the peers have entered */
  struct copse_arena arena;     /* of one cut into instances */
};

/* ---- roles ----------------------------------------------------------------------------- */

/* Whether the rank has a part in it: the reduction's root sends on what it has summed up in the
 * same operation, and has none in the broadcast. */
static bool has_role(const struct lowering *l, int phase, int u, int rank) {
  const struct copse_unit *unit = &l->units.units[u];
  if (!l->parts[phase][u].tree) return false;
  return phase == REDUCE || !unit->reduce || rank != unit->root;
}

/* Whether a role only waits for the end of a broadcast. */
static bool only_waits(const struct lowering *l, int phase, int u, int rank) {
  return phase == BROADCAST && rank != l->units.units[u].root &&
         copse_tree_children(l->parts[phase][u].tree, rank) == 0;
}

static int ways_of(const struct part *part, int rank) { return part->ways ? part->ways[rank] : 1; }

/* Returns, of a rank's children in the tree's list, where those of a role begin; all ways' are
 * all. */
static int first_of_way(const struct part *part, int rank, int way) {
  return copse_way_first(part->tree->first_child[rank], part->tree->first_child[rank + 1], way,
                         ways_of(part, rank));
}

/* Counts children that the root of both phases puts to in the operation that sums up. */
static int count_folded(const struct lowering *l, int u) {
  const struct part *down = &l->parts[BROADCAST][u];
  int root = l->units.units[u].root;
  return down->tree ? first_of_way(down, root, 1) - down->tree->first_child[root] : 0;
}

/* Counts pieces read and written, with so many of the rank's children. */
static double role_cost(const struct lowering *l, int phase, int u, int rank, int children) {
  const struct copse_unit *unit = &l->units.units[u];
  double operands = 1 + children;
  bool sends_on = phase == REDUCE && rank == unit->root && unit->broadcast;
  bool keeps = ways_of(&l->parts[phase][u], rank) == 1 || children == 0;
  if (phase == REDUCE || (rank == unit->root && keeps)) operands++; /* or the root's own copy */
  if (sends_on) operands += count_folded(l, u);
  if (only_waits(l, phase, u, rank)) operands = COPSE_POLICY_WAIT;
  return operands * copse_width(unit);
}

/* Sorts a rank's children, first those from which there is the farthest to go. */
static void sort_children(const struct copse_unit_tree *tree, const int *to_go, int n_ranks) {
  for (int rank = 0; rank < n_ranks; rank++)
    for (int i = tree->first_child[rank]; i < tree->first_child[rank + 1]; i++) {
      int child = tree->children[i], at = i;
      for (; at > tree->first_child[rank] && to_go[tree->children[at - 1]] < to_go[child]; at--)
        tree->children[at] = tree->children[at - 1];
      tree->children[at] = child;
    }
}

/* Finds levels of one tree: a broadcast's from the root down, a reduction's from the leaves up. */
static void find_levels(const struct copse_unit_tree *tree, int root, int phase, int *level,
                        int *order) {
  int n = 1;
  order[0] = root;
  level[root] = 0;
  for (int i = 0; i < n; i++) /* ranks by distance from the root */
    for (int k = tree->first_child[order[i]]; k < tree->first_child[order[i] + 1]; k++) {
      level[tree->children[k]] = phase == BROADCAST ? level[order[i]] + 1 : 0;
      order[n++] = tree->children[k];
    }
  for (int i = n - 1; i > 0 && phase == REDUCE; i--) {
    int parent = tree->parent[order[i]];
    if (level[parent] <= level[order[i]]) level[parent] = level[order[i]] + 1;
  }
}

/* Deals a rank's puts to all its workers: each may read the input, the sum, or what came. */
static copse_status spread_puts(struct lowering *l, struct copse_err *err) {
  size_t n = (size_t)l->n_ranks;
  int *ways;
  COPSE_DO(copse_units_ways(&l->arena, l->b->schedule, &l->units, &l->b->options, &ways, err));
  for (int u = 0; u < l->units.n_units; u++, ways += n) {
    struct part *part = &l->parts[BROADCAST][u];
    bool any = false;
    for (size_t r = 0; r < n; r++) any = any || ways[r] > 1;
    if (!any) continue;
    part->ways = ways;
    COPSE_DO(COPSE_ARRAY(&l->arena, n, part->sender, err));
    COPSE_DO(COPSE_ARRAY(&l->arena, n, part->local, err));
    for (size_t r = 0; r < n; r++) part->sender[r] = -1;
  }
  return COPSE_OK;
}

static copse_status make_parts(struct lowering *l, struct copse_err *err) {
  size_t n = (size_t)l->n_ranks;
  int *order;
  COPSE_DO(COPSE_ARRAY(&l->arena, n, order, err));
  for (int p = 0; p < N_PHASES; p++) {
    COPSE_DO(COPSE_ARRAY(&l->arena, (size_t)l->units.n_units, l->parts[p], err));
    for (int u = 0; u < l->units.n_units; u++) {
      struct part *part = &l->parts[p][u];
      const struct copse_unit *unit = &l->units.units[u];
      part->tree = p == REDUCE ? unit->reduce : unit->broadcast;
      if (!part->tree) continue;
      COPSE_DO(COPSE_ARRAY(&l->arena, n, part->level, err));
      COPSE_DO(COPSE_ARRAY(&l->arena, n, part->worker, err));
      find_levels(part->tree, unit->root, p, part->level, order);
      if (!l->units.far_first) continue;
      COPSE_DO(COPSE_ARRAY(&l->arena, n, part->to_go, err));
      find_levels(part->tree, unit->root, p == REDUCE ? BROADCAST : REDUCE, part->to_go, order);
      if (p == BROADCAST) sort_children(part->tree, part->to_go, l->n_ranks);
    }
  }
  return spread_puts(l, err);
}

/* Counts the moves that follow each other: up the deepest tree, and down. */
static int count_levels(const struct lowering *l) {
  int levels = 0;
  for (int p = 0; p < N_PHASES; p++) {
    int most = 0;
    for (int u = 0; u < l->units.n_units; u++)
      for (int rank = 0; rank < l->n_ranks && l->parts[p][u].tree; rank++)
        if (l->parts[p][u].level[rank] > most) most = l->parts[p][u].level[rank];
    levels += most;
  }
  return levels;
}

/* ---- workers --------------------------------------------------------------------------- */

/* Returns when a role comes among those of a worker in a phase. */
static int turn_of(const struct lowering *l, int phase, int u, int rank) {
  const struct copse_unit *unit = &l->units.units[u];
  if (!l->units.far_first) return l->parts[phase][u].level[rank];
  int to_go = l->parts[phase][u].to_go[rank];
  if (phase == REDUCE && unit->broadcast) to_go += l->parts[BROADCAST][u].to_go[unit->root];
  return -to_go;
}

/* Lists a rank's roles in a phase, by unit. Returns how many. A root whose puts are dealt keeps
 * its own copy by a role without children, after all else. */
static size_t list_roles(const struct lowering *l, int phase, int rank, struct copse_role *roles) {
  size_t n = 0;
  for (int u = 0; u < l->units.n_units; u++) {
    const struct part *part = &l->parts[phase][u];
    bool root = rank == l->units.units[u].root, sums = root && l->units.units[u].reduce;
    int ways = part->tree ? ways_of(part, rank) : 1;
    bool dealt = phase == BROADCAST && ways > 1;
    if (!has_role(l, phase, u, rank) && !(dealt && sums)) continue;
    for (int w = dealt && sums; w < ways + (dealt && root && !sums); w++) {
      bool own = w == ways;
      int first = part->tree->first_child[rank + own];
      int end = part->tree->first_child[rank + 1];
      if (dealt && !own) first = first_of_way(part, rank, w), end = first_of_way(part, rank, w + 1);
      roles[n++] = (struct copse_role){
          .cost = role_cost(l, phase, u, rank, end - first),
          .worker = dealt && !own ? part->sender[part->tree->children[first]] : part->worker[rank],
          .phase = phase,
          .level = own ? OWN_COPY : turn_of(l, phase, u, rank),
          .turn = l->units.in_order ? 0 : (l->units.units[u].root - rank + l->n_ranks) % l->n_ranks,
          .unit = u,
          .first = first,
          .end = end};
    }
  }
  return n;
}

/* What the busiest rank has to do in a phase. */
struct effort {
  double cost;
  int movers, waiters; /* roles that move data, and roles that don't */
};

static struct effort phase_effort(const struct lowering *l, int phase, struct copse_role *roles) {
  struct effort most = {0, 0, 0};
  for (int rank = 0; rank < l->n_ranks; rank++) {
    struct effort it = {0, 0, 0};
    size_t n = list_roles(l, phase, rank, roles);
    for (size_t i = 0; i < n; i++) {
      *(only_waits(l, phase, roles[i].unit, rank) ? &it.waiters : &it.movers) += 1;
      it.cost += roles[i].cost;
    }
    if (it.cost > most.cost) most.cost = it.cost;
    if (it.movers > most.movers) most.movers = it.movers;
    if (it.waiters > most.waiters) most.waiters = it.waiters;
  }
  return most;
}

/* Splits workers: [first, first + count) of each rank for each phase. */
static void split_workers(const struct effort effort[N_PHASES], int most, int first[N_PHASES],
                          int count[N_PHASES]) {
  const struct effort reduce = effort[REDUCE], broadcast = effort[BROADCAST];
  int roles = broadcast.movers > 0 ? broadcast.movers : broadcast.waiters;
  first[REDUCE] = first[BROADCAST] = 0;
  count[REDUCE] = copse_smaller(reduce.movers, most);
  count[BROADCAST] = copse_smaller(roles, most);
  if (reduce.movers == 0) return;
  count[BROADCAST] = count[REDUCE];
  if (broadcast.movers == 0) return;
  int share = (int)(most * broadcast.cost / (reduce.cost + broadcast.cost) + 0.5);
  share = share < 1 ? 1 : copse_smaller(share, most - 1);
  count[REDUCE] = copse_smaller(reduce.movers, most - share);
  count[BROADCAST] = copse_smaller(broadcast.movers, share);
  first[BROADCAST] = count[REDUCE];
}

/* Counts roles of the rank that has most when every child of a broadcast is one. */
static size_t most_roles(const struct lowering *l) {
  size_t most = 0;
  for (int rank = 0; rank < l->n_ranks; rank++) {
    size_t n = N_PHASES * (size_t)l->units.n_units;
    for (int u = 0; u < l->units.n_units; u++)
      if (l->parts[BROADCAST][u].tree)
        n += 1 + (size_t)copse_tree_children(l->parts[BROADCAST][u].tree, rank);
    if (n > most) most = n;
  }
  return most;
}

/* Whether a rank's channel leads to this role. A rank deals its puts to several roles; the channel
 * leads to the first of them, or to the one with a root's own copy. */
static bool is_keeper(const struct lowering *l, const struct copse_role *role, int rank) {
  const struct part *part = &l->parts[role->phase][role->unit];
  if (role->phase == REDUCE || ways_of(part, rank) == 1) return true;
  return rank == l->units.units[role->unit].root ? role->level == OWN_COPY
                                                 : role->first == part->tree->first_child[rank];
}

/* Makes workers; *balance: the busiest rank's work over what its workers could do in the time of
 * the busiest. */
static copse_status make_workers(struct lowering *l, double *balance, struct copse_err *err) {
  int first[N_PHASES], count[N_PHASES], max_workers = l->b->options.max_workers;
  struct effort effort[N_PHASES];
  double most = 0;
  COPSE_DO(COPSE_ARRAY(&l->arena, most_roles(l), l->roles, err));
  COPSE_DO(COPSE_ARRAY(&l->arena, (size_t)l->n_ranks + 1, l->first_worker, err));
  for (int p = 0; p < N_PHASES; p++) effort[p] = phase_effort(l, p, l->roles);
  split_workers(effort, max_workers, first, count);
  for (int rank = 0; rank < l->n_ranks; rank++) {
    int n_workers = 0; /* of the first phase all have something to do, of the second maybe fewer */
    for (int p = 0; p < N_PHASES; p++) {
      size_t n = list_roles(l, p, rank, l->roles);
      COPSE_DO(copse_roles_deal(l->roles, n, first[p], count[p], &most, err));
      for (size_t i = 0; i < n; i++) {
        const struct copse_role *role = &l->roles[i];
        struct part *part = &l->parts[p][role->unit];
        if (is_keeper(l, role, rank)) part->worker[rank] = role->worker;
        for (int k = role->first; k < role->end && part->sender; k++)
          part->sender[part->tree->children[k]] = role->worker;
        if (role->worker >= n_workers) n_workers = role->worker + 1;
      }
    }
    l->first_worker[rank + 1] = l->first_worker[rank] + n_workers;
  }
  *balance = most > 0 ? (effort[REDUCE].cost + effort[BROADCAST].cost) / (most * max_workers) : 1;
  return COPSE_OK;
}

/* Cuts every tree into so many instances and deals the roles. O(units * ranks * workers). */
static copse_status cut_into(void *lowering, int instances, struct copse_deal_outcome *outcome,
                             struct copse_err *err) {
  struct lowering *l = lowering;
  copse_arena_free(&l->arena);
  COPSE_DO(copse_units_make(&l->arena, l->b->schedule, instances, false, &l->units, err));
  COPSE_DO(make_parts(l, err));
  COPSE_DO(make_workers(l, &outcome->balance, err));
  outcome->roles = (int64_t)l->units.n_units * l->n_ranks;
  return COPSE_OK;
}

/* ---- channels and regions -------------------------------------------------------------- */

/* Returns the number of the rank's worker over all ranks. */
static uint32_t worker_of(const struct lowering *l, int phase, int u, int rank) {
  return (uint32_t)(l->first_worker[rank] + l->parts[phase][u].worker[rank]);
}

/* Returns the channel of an edge, which is named by its child; the root, which has none, is left
 * out of the count. */
static uint32_t channel_of(const struct lowering *l, int u, uint32_t base, int child) {
  return base + (uint32_t)(child < l->units.units[u].root ? child : child - 1);
}

/* Adds channels along the tree's edges, with the data or against it: returns the number of the
 * first. */
static uint32_t add_channels(struct lowering *l, int phase, int u, bool to_parent) {
  const struct part *part = &l->parts[phase][u];
  uint32_t first = l->b->header.n_channels;
  for (int child = 0; child < l->n_ranks; child++) {
    int parent = part->tree->parent[child];
    if (parent < 0) continue;
    bool folded = !has_role(l, phase, u, parent); /* part of its reduction */
    uint32_t above = worker_of(l, folded ? REDUCE : phase, u, parent);
    if (part->sender && part->sender[child] >= 0)
      above = (uint32_t)(l->first_worker[parent] + part->sender[child]);
    uint32_t below = worker_of(l, phase, u, child);
    copse_build_channel(l->b, to_parent ? below : above, to_parent ? above : below);
  }
  return first;
}

/* Adds channels within a rank whose puts are dealt: from who puts to who keeps the root's own copy,
 * or from who sums up, or takes in, to who puts. */
static void add_locals(struct lowering *l, int u, int rank) {
  const struct part *part = &l->parts[BROADCAST][u];
  bool root = rank == l->units.units[u].root, sums = root && l->units.units[u].reduce;
  bool first = sums || !root;
  uint32_t other = worker_of(l, sums ? REDUCE : BROADCAST, u, rank);
  for (int w = first; w < ways_of(part, rank); w++) {
    int at = first ? first_of_way(part, rank, w) : first_of_way(part, rank, w + 1) - 1;
    int child = part->tree->children[at];
    uint32_t puts = (uint32_t)(l->first_worker[rank] + part->sender[child]);
    if (puts == other) continue;
    part->local[child] = 1 + copse_build_channel(l->b, first ? other : puts, first ? puts : other);
  }
}

static void make_channels(struct lowering *l) {
  for (int u = 0; u < l->units.n_units; u++) {
    struct part *reduce = &l->parts[REDUCE][u], *broadcast = &l->parts[BROADCAST][u];
    if (reduce->tree) {
      reduce->data = add_channels(l, REDUCE, u, true);
      reduce->back = add_channels(l, REDUCE, u, false);
    }
    if (!broadcast->tree) continue;
    broadcast->data = add_channels(l, BROADCAST, u, false);
    if (l->handshake) broadcast->back = add_channels(l, BROADCAST, u, true);
    for (int r = 0; r < l->n_ranks && broadcast->ways; r++)
      if (broadcast->ways[r] > 1) add_locals(l, u, r);
  }
}

static uint32_t *region_of(const struct lowering *l, int u, int child) {
  return &l->region[(size_t)u * (size_t)l->n_ranks + (size_t)child];
}

/* Makes one region per edge, at the parent; the plan has them grouped by rank. */
static void make_regions(struct lowering *l) {
  for (int rank = 0; rank < l->n_ranks; rank++)
    for (int u = 0; u < l->units.n_units; u++) {
      const struct copse_unit_tree *tree = l->parts[REDUCE][u].tree;
      for (int i = tree ? tree->first_child[rank] : 0; tree && i < tree->first_child[rank + 1]; i++)
        *region_of(l, u, tree->children[i]) = copse_build_region(l->b, rank, u);
    }
}

/* ---- sums ------------------------------------------------------------------------------ */

/* Sources (or destinations) of one MOVE besides the rank's own; more take several. */
#define CHILDREN_PER_MOVE ((int)COPSE_MOVE_MAX_OPERANDS - 1)

static void add_input(struct lowering *l, int u, int rank) {
  copse_build_block(l->b, rank, COPSE_BUFFER_INPUT, l->units.units[u].block);
}

static void add_output(struct lowering *l, int u, int rank) {
  copse_build_block(l->b, rank, COPSE_BUFFER_OUTPUT, l->units.units[u].block);
}

static void add_slot(struct lowering *l, int u, int rank, int child) {
  copse_build_operand(l->b, rank, COPSE_BUFFER_SCRATCH, *region_of(l, u, child));
}

/* Adds where a rank's sum goes: the parent's slot for it, or at the root the output, and from there
 * at once to the first `folded` children of the broadcast. */
static void add_sum_targets(struct lowering *l, int u, int rank, int folded) {
  int parent = l->parts[REDUCE][u].tree->parent[rank];
  const struct copse_unit_tree *down = l->units.units[u].broadcast;
  if (parent >= 0) {
    add_slot(l, u, parent, rank);
    return;
  }
  add_output(l, u, rank);
  for (int i = 0; i < folded; i++) add_output(l, u, down->children[down->first_child[rank] + i]);
}

/* Adds the own input and the children's sums, in the tree's order. Where one MOVE takes no more
 * operands, the sum so far goes into the first child's slot, which has been read by then. */
static void add_sum(struct lowering *l, int u, int rank, int folded) {
  const struct copse_unit_tree *tree = l->parts[REDUCE][u].tree;
  int n = copse_tree_children(tree, rank), done = 0;
  const int *children = tree->children + tree->first_child[rank];
  do {
    uint32_t first = l->b->header.n_operands;
    if (done == 0)
      add_input(l, u, rank);
    else
      add_slot(l, u, rank, children[0]);
    int upto = n - done > CHILDREN_PER_MOVE ? done + CHILDREN_PER_MOVE : n;
    for (; done < upto; done++) add_slot(l, u, rank, children[done]);
    if (done < n) {
      add_slot(l, u, rank, children[0]);
      copse_build_move(l->b, u, first, 1, 0);
    } else {
      add_sum_targets(l, u, rank, folded);
      copse_build_move(l->b, u, first, 1 + folded, tree->parent[rank] < 0 ? COPSE_MOVE_FINAL : 0);
    }
  } while (done < n);
}

/* ---- what a role does for one chunk ------------------------------------------------------ */

typedef void add_sync(struct copse_plan_build *b, enum copse_plan_when when, uint32_t channel);

/* Adds a SIGNAL or WAIT for every child, on the channels from `base` on. */
static void sync_children(struct lowering *l, int phase, int u, int rank, add_sync *add,
                          enum copse_plan_when when, uint32_t base) {
  const struct copse_unit_tree *tree = l->parts[phase][u].tree;
  for (int i = tree->first_child[rank]; i < tree->first_child[rank + 1]; i++)
    add(l->b, when, channel_of(l, u, base, tree->children[i]));
}

/* Returns when a rank waits: for every chunk, or, where it passes nothing on, once at the end. */
static enum copse_plan_when when_notified(const struct copse_unit_tree *tree, int rank) {
  return copse_tree_children(tree, rank) > 0 ? COPSE_WHEN_ALWAYS : COPSE_WHEN_LAST;
}

static void notify_children(struct lowering *l, int u, int first, int end) {
  const struct part *part = &l->parts[BROADCAST][u];
  for (int i = first; i < end; i++) {
    int child = part->tree->children[i];
    copse_build_signal(l->b, when_notified(part->tree, child), channel_of(l, u, part->data, child));
  }
}

/* Adds MOVEs to the children from the `from`-th of the tree's list on; at a lone root with the
 * first ones also to itself. */
static void add_puts(struct lowering *l, int u, int rank, int from, int end) {
  const struct copse_unit_tree *tree = l->parts[BROADCAST][u].tree;
  bool source = rank == l->units.units[u].root && !l->units.units[u].reduce;
  bool own =
      source && ways_of(&l->parts[BROADCAST][u], rank) == 1 && from == tree->first_child[rank];
  for (bool keep = own; from < end || keep; keep = false) { /* keep: the root's own copy, once */
    int upto = end - from > CHILDREN_PER_MOVE ? from + CHILDREN_PER_MOVE : end;
    uint32_t first = l->b->header.n_operands;
    if (source)
      add_input(l, u, rank);
    else
      add_output(l, u, rank);
    if (keep) add_output(l, u, rank);
    for (int i = from; i < upto; i++) add_output(l, u, tree->children[i]);
    copse_build_move(l->b, u, first, upto - from + (keep ? 1 : 0), 0);
    from = upto;
  }
}

/* Signals to the workers that put a sum or what came in, which another worker made or took. */
static void signal_ways(struct lowering *l, int u, int rank) {
  const struct part *part = &l->parts[BROADCAST][u];
  for (int w = 1; w < ways_of(part, rank); w++) {
    uint32_t local = part->local[part->tree->children[first_of_way(part, rank, w)]];
    if (local > 0) copse_build_signal(l->b, COPSE_WHEN_ALWAYS, local - 1);
  }
}

/* Adds the broadcast of a role's unit at `rank`, to its children there: the data goes from parent
 * to child. The first of the unit's roles waits for them, and tells the others. */
static void add_broadcast(struct lowering *l, const struct copse_role *role, int rank) {
  int u = role->unit;
  const struct part *part = &l->parts[BROADCAST][u];
  bool root = rank == l->units.units[u].root;
  if (!root && role->first == part->tree->first_child[rank]) {
    copse_build_wait(l->b, when_notified(part->tree, rank), channel_of(l, u, part->data, rank));
    signal_ways(l, u, rank);
  }
  for (int i = role->first; i < role->end && l->handshake; i++)
    copse_build_wait(l->b, COPSE_WHEN_FIRST,
                     channel_of(l, u, part->back, part->tree->children[i]));
  bool deals = ways_of(part, rank) > 1 && role->first < role->end;
  bool source = root && !l->units.units[u].reduce;
  uint32_t before = deals && !source ? part->local[part->tree->children[role->first]] : 0;
  uint32_t after = deals && source ? part->local[part->tree->children[role->end - 1]] : 0;
  if (before > 0) copse_build_wait(l->b, COPSE_WHEN_ALWAYS, before - 1);
  add_puts(l, u, rank, role->first, role->end);
  notify_children(l, u, role->first, role->end);
  if (after > 0) copse_build_signal(l->b, COPSE_WHEN_ALWAYS, after - 1);
}

/* Adds the root's own copy of what several of its workers put, once they have read it. */
static void add_own(struct lowering *l, int u, int rank) {
  const struct part *part = &l->parts[BROADCAST][u];
  for (int w = 1; w <= ways_of(part, rank); w++) {
    uint32_t read = part->local[part->tree->children[first_of_way(part, rank, w) - 1]];
    if (read > 0) copse_build_wait(l->b, COPSE_WHEN_ALWAYS, read - 1);
  }
  uint32_t first = l->b->header.n_operands;
  add_input(l, u, rank);
  add_output(l, u, rank);
  copse_build_move(l->b, u, first, 1, 0);
}

/* Adds the root of both phases: the sum goes out and down. */
static void add_root(struct lowering *l, int u, int rank) {
  const struct copse_unit_tree *down = l->units.units[u].broadcast;
  int folded = copse_smaller(count_folded(l, u), CHILDREN_PER_MOVE);
  add_sum(l, u, rank, folded);
  if (!down) return;
  int first = down->first_child[rank], end = first + count_folded(l, u);
  signal_ways(l, u, rank);
  add_puts(l, u, rank, first + folded, end);
  notify_children(l, u, first, end);
}

/* Adds the reduction of unit u at `rank`: the data goes from child to parent. */
static void add_reduce(struct lowering *l, const struct copse_role *role, int rank) {
  int u = role->unit;
  const struct part *part = &l->parts[REDUCE][u];
  sync_children(l, REDUCE, u, rank, copse_build_wait, COPSE_WHEN_ALWAYS, part->data);
  if (rank == l->units.units[u].root) {
    add_root(l, u, rank);
  } else { /* the parent has entered; later: a slot is free again */
    uint32_t credit = channel_of(l, u, part->back, rank);
    copse_build_wait(l->b, COPSE_WHEN_FIRST, credit);
    copse_build_wait(l->b, COPSE_WHEN_AFTER_FIFO, credit);
    add_sum(l, u, rank, 0);
    copse_build_signal(l->b, COPSE_WHEN_ALWAYS, channel_of(l, u, part->data, rank));
  }
  sync_children(l, REDUCE, u, rank, copse_build_signal, COPSE_WHEN_BEFORE_FIFO, part->back);
}

/* Adds signals that the rank has entered: to the children whose sums it takes (their slots are
 * free), to the parents that put into its output. */
static void add_entered(struct lowering *l, int phase, int u, int rank) {
  const struct part *part = &l->parts[phase][u];
  if (phase == REDUCE)
    sync_children(l, phase, u, rank, copse_build_signal, COPSE_WHEN_FIRST, part->back);
  else if (l->handshake && rank != l->units.units[u].root)
    copse_build_signal(l->b, COPSE_WHEN_FIRST, channel_of(l, u, part->back, rank));
}

/* ---- a worker's list --------------------------------------------------------------------- */

static bool is_first_of_unit(const struct lowering *l, const struct copse_role *role, int rank) {
  return role->first == l->parts[role->phase][role->unit].tree->first_child[rank];
}

static void add_worker(struct lowering *l, int rank, const struct copse_role *roles, size_t n) {
  uint32_t first_op = l->b->header.n_ops;
  for (size_t i = 0; i < n; i++)
    if (is_first_of_unit(l, &roles[i], rank)) add_entered(l, roles[i].phase, roles[i].unit, rank);
  for (size_t i = 0; i < n; i++) {
    if (roles[i].level == OWN_COPY)
      add_own(l, roles[i].unit, rank);
    else
      (roles[i].phase == REDUCE ? add_reduce : add_broadcast)(l, &roles[i], rank);
  }
  copse_build_worker(l->b, rank, first_op);
}

/* Splits, with far_first, broadcasts where there is farther to go from one child than from another:
 * then others' data may go between. `roles` has room for the most that come of it. */
static size_t split_roles(const struct lowering *l, struct copse_role *roles, size_t n) {
  size_t all = n;
  for (size_t i = 0; i < n && l->units.far_first; i++) {
    struct copse_role *role = &roles[i];
    const struct part *part = &l->parts[role->phase][role->unit];
    const int *child = part->tree->children;
    if (role->phase == REDUCE || role->first == role->end) continue;
    for (int k = role->end - 1; k > role->first; k--) {
      if (part->to_go[child[k - 1]] == part->to_go[child[k]]) continue;
      roles[all] = *role;
      roles[all].first = k;
      roles[all++].level = -part->to_go[child[k]] - 1;
      role->end = k;
    }
  }
  return all;
}

static void make_ops(struct lowering *l) {
  for (int rank = 0; rank < l->n_ranks; rank++) {
    size_t n = list_roles(l, REDUCE, rank, l->roles), of_worker;
    n += list_roles(l, BROADCAST, rank, l->roles + n);
    n = split_roles(l, l->roles, n);
    copse_roles_sort(l->roles, n);
    for (size_t i = 0; i < n; i += of_worker) {
      of_worker = copse_roles_of_worker(l->roles + i, n - i);
      add_worker(l, rank, l->roles + i, of_worker);
    }
  }
}

/* Bytes of what a rank does for a unit, from when it is dealt on: a plan, its copy and its file.
 * Measured: the peak of rails of 256 and 512 ranks is 1.0 times that. */
static size_t role_bytes(copse_collective collective) {
  if (!copse_collective_reduces(collective)) return 220;
  return copse_collective_broadcasts(collective) ? 500 : 400;
}

static void end_lowering(struct lowering *l) { copse_arena_free(&l->arena); }

copse_status copse_lower_trees(struct copse_plan_build *b) {
  const struct copse_schedule *s = b->schedule;
  COPSE_AT_END(end_lowering)
  struct lowering l = {
      .b = b, .n_ranks = s->n_ranks, .handshake = s->collective != COPSE_ALLREDUCE};
  int64_t n_workers = (int64_t)l.n_ranks * b->options.max_workers;
  COPSE_DO(copse_deal_instances(&l, cut_into, b->options.instances, n_workers, b->err));
  size_t n = (size_t)l.units.n_units * (size_t)l.n_ranks;
  COPSE_DO(copse_memory_check(n * role_bytes(s->collective), NULL, "fewer --instances", b->err,
                              "the plan of %d pieces", l.units.n_units));
  COPSE_DO(COPSE_ARRAY(&l.arena, n, l.region, b->err));
  copse_build_levels(b, count_levels(&l));
  make_channels(&l);
  make_regions(&l);
  for (int u = 0; u < l.units.n_units; u++)
    copse_build_piece(b, l.units.units[u].lo, l.units.units[u].hi, 0);
  COPSE_DO(COPSE_ARRAY(&l.arena, most_roles(&l), l.roles, b->err));
  make_ops(&l);
  return COPSE_OK;
}
