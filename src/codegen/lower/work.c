/*
 * What a schedule asks for, in pieces, and how its roles are dealt to workers.
 *
 * An allreduce's trees of both phases cut a block at different places; units are the common
 * refinement, so that each has one tree of each kind:
 *
 *   reduce trees       |   A    |      B      |
 *   broadcast trees    |     P     |    Q     |
 *   units              |  AP   |BP |    BQ    |
 *
 * Each rank deals its roles for itself: who has little to do for one piece has more to do for
 * another. A role's cost is the data that it reads and writes. Largest first to the least loaded
 * worker (R. L. Graham, Bounds on multiprocessing timing anomalies, 1969). A worker that
 * only waited would be a multiprocessor that does nothing, so a role that only waits costs next
 * to nothing and is done beside others. COPSE_LOWER_AUTO cuts all trees or paths into the
 * fewest instances with which all workers have about as much to move.
 */
#include "codegen/lower/work.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/graph.h"
#include "base/types.h"
#include "codegen/lower/options.h"
#include "codegen/lower/policy.h"
#include "schedule/chunks.h"
#include "schedule/demand.h"

/* ---- trees ---------------------------------------------------------------------------- */

struct maker {
  struct copse_arena *arena;
  const struct copse_schedule *schedule;
  struct copse_units *out;              /* room for all whole units */
  const struct copse_unit_tree **trees; /* [schedule->n_trees] */
  struct copse_err *err;
};

/* Turns a list of edges into parents and children. */
static copse_status index_tree(struct maker *m, const struct copse_schedule_tree *tree,
                               const struct copse_unit_tree **out) {
  int n = m->schedule->n_ranks;
  struct copse_arena *arena = m->arena;
  bool reduce = tree->phase == COPSE_PHASE_REDUCE;
  struct copse_unit_tree *t;
  struct copse_adjacency by_parent = {NULL, NULL};
  const int *parents = tree->n_edges == 0 ? NULL : reduce ? &tree->edges->dst : &tree->edges->src;
  COPSE_DO(COPSE_ARRAY(arena, 1, t, m->err));
  COPSE_DO(COPSE_ARRAY(arena, (size_t)n, t->parent, m->err));
  COPSE_DO(copse_adjacency_by(arena, n, tree->n_edges, parents, sizeof *tree->edges, &by_parent,
                              m->err));
  t->reduce = reduce;
  t->first_child = by_parent.first;
  t->children = by_parent.item; /* edges for now */
  t->parent[tree->root] = -1;
  for (int i = 0; i < tree->n_edges; i++) {
    const struct copse_schedule_edge *e = &tree->edges[t->children[i]];
    t->children[i] = reduce ? e->src : e->dst;
    t->parent[t->children[i]] = reduce ? e->dst : e->src;
  }
  *out = t;
  return COPSE_OK;
}

/* Whether a block belongs to a single root, so that weights count in units of its share. */
static bool block_per_root(const struct copse_schedule *schedule) {
  return schedule->collective == COPSE_ALLGATHER || schedule->collective == COPSE_REDUCE_SCATTER;
}

/* A tree and how far its piece reaches, in fractions of the block. */
struct reach {
  enum copse_phase phase;
  int tree; /* -1 before the first, n_trees after the last */
  struct copse_q end;
};

/* Moves on to the root's next tree of the phase; its piece starts where the last ended. */
static copse_status advance(struct maker *m, int root, struct reach *r) {
  const struct copse_schedule *s = m->schedule;
  struct copse_q weight, scale = {s->n_ranks, 1};
  do r->tree++;
  while (r->tree < s->n_trees &&
         (s->trees[r->tree].root != root || s->trees[r->tree].phase != r->phase));
  if (r->tree == s->n_trees) return COPSE_OK;
  weight = s->trees[r->tree].weight;
  if (block_per_root(s)) COPSE_DO(copse_q_mul(weight, scale, &weight, m->err));
  return copse_q_add(r->end, weight, &r->end, m->err);
}

/* Cuts all units of one root, from position `*at` in its block on. With both phases, each step
 * goes to the nearer end of the two pieces at hand. */
static copse_status cut_root(struct maker *m, int root, bool reduces, bool broadcasts,
                             struct copse_q *at) {
  int none = m->schedule->n_trees;
  struct reach r = {COPSE_PHASE_REDUCE, -1, *at}, b = {COPSE_PHASE_BROADCAST, -1, *at};
  if (reduces) COPSE_DO(advance(m, root, &r));
  if (broadcasts) COPSE_DO(advance(m, root, &b));
  while ((reduces && r.tree < none) || (broadcasts && b.tree < none)) {
    struct copse_unit unit = {.root = root,
                              .block = block_per_root(m->schedule) ? root : 0,
                              .tree = reduces ? r.tree : b.tree,
                              .broadcast_tree = broadcasts ? b.tree : -1,
                              .lo = *at,
                              .reduce = reduces ? m->trees[r.tree] : NULL,
                              .broadcast = broadcasts ? m->trees[b.tree] : NULL};
    bool to_reduce = !broadcasts || (reduces && copse_q_cmp(r.end, b.end) <= 0);
    *at = unit.hi = to_reduce ? r.end : b.end;
    m->out->units[m->out->n_units++] = unit;
    if (reduces && copse_q_eq(r.end, *at)) COPSE_DO(advance(m, root, &r));
    if (broadcasts && copse_q_eq(b.end, *at)) COPSE_DO(advance(m, root, &b));
  }
  return COPSE_OK;
}

COPSE_ORDER(compare_units, struct copse_unit, COPSE_UP(tree) ?: copse_q_cmp(a->lo, b->lo))

bool copse_schedule_is_group(const struct copse_schedule *s) {
  bool group = s->n_ranks > 1 && s->n_copying > 0 && s->n_copying == s->n_adding;
  for (int i = 0; i < s->n_copying && group; i++) group = s->copying[i] == s->adding[i];
  for (int t = 0; t < s->n_trees && group; t++)
    for (int e = 0; e < s->trees[t].n_edges && group; e++) {
      const struct copse_schedule_edge *edge = &s->trees[t].edges[e];
      bool marked = false;
      for (int i = 0; i < s->n_copying && edge->n_path == 3; i++)
        marked = marked || edge->path[1] == s->copying[i];
      group = marked && s->trees[t].root ==
                            (s->trees[t].phase == COPSE_PHASE_REDUCE ? edge->dst : edge->src);
    }
  return group;
}

/* Refuses schedules whose switches copy or add: a plan's send goes to one receiver, and sums are
 * made at ranks. */
static copse_status refuse(const struct copse_schedule *s, struct copse_err *err) {
  if (s->n_copying + s->n_adding == 0) return COPSE_OK;
  return copse_fail(
      err, COPSE_UNSUPPORTED,
      "the schedule counts on '%s' to %s for its time, which only a plan in chunks can "
      "ask of a switch (--to plan, mscclpp); solve the topology without \"multicast\" and "
      "\"aggregation\" for one "
      "that is sent as it says",
      s->nodes[s->n_copying > 0 ? s->copying[0] : s->adding[0]], s->n_copying > 0 ? "copy" : "add");
}

/* Makes a unit for each piece, whose trees come one after the other. */
static copse_status make_stage_units(struct maker *m) {
  const struct copse_schedule *s = m->schedule;
  size_t n = (size_t)s->n_ranks;
  struct copse_q at = COPSE_Q_ZERO;
  int n_stages = 0;
  for (int t = 0; t < s->n_trees; t++)
    if (s->trees[t].stage > n_stages) n_stages = s->trees[t].stage;
  for (int t = 0; t < s->n_trees; t++) {
    const struct copse_schedule_tree *tree = &s->trees[t];
    const struct copse_unit_tree **stages;
    if (t == 0 || tree->piece != tree[-1].piece) {
      struct copse_unit *unit = &m->out->units[m->out->n_units++];
      *unit = (struct copse_unit){.tree = t, .broadcast_tree = -1, .lo = at, .n_stages = n_stages};
      COPSE_DO(copse_q_add(at, tree->weight, &at, m->err));
      unit->hi = at;
      COPSE_DO(COPSE_ARRAY(m->arena, n * (size_t)n_stages, stages, m->err));
      unit->stages = stages;
    }
    COPSE_DO(index_tree(m, tree, &stages[(size_t)(tree->stage - 1) * n + (size_t)tree->root]));
  }
  return COPSE_OK;
}

/* Makes a unit for each stretch that has one tree of each kind. There are at most as many as
 * trees, since each ends with one. */
static copse_status make_tree_units(struct maker *m) {
  const struct copse_schedule *s = m->schedule;
  size_t n_trees = (size_t)s->n_trees;
  bool reduces = false, broadcasts = false;
  struct copse_q at = COPSE_Q_ZERO;
  COPSE_DO(refuse(s, m->err));
  COPSE_DO(COPSE_ARRAY(m->arena, n_trees, m->trees, m->err));
  COPSE_DO(COPSE_ARRAY(m->arena, n_trees, m->out->units, m->err));
  if (copse_schedule_doubles(s)) return make_stage_units(m);
  for (int t = 0; t < s->n_trees; t++) {
    COPSE_DO(index_tree(m, &s->trees[t], &m->trees[t]));
    *(s->trees[t].phase == COPSE_PHASE_REDUCE ? &reduces : &broadcasts) = true;
  }
  for (int root = 0; root < s->n_ranks; root++) {
    if (block_per_root(s)) at = COPSE_Q_ZERO;
    COPSE_DO(cut_root(m, root, reduces, broadcasts, &at));
  }
  m->out->in_order = s->objective.bytes > 0;
  m->out->far_first = m->out->in_order && s->objective.far_first;
  if (m->out->in_order && !(reduces && broadcasts))
    COPSE_SORT(m->out->units, m->out->n_units, compare_units);
  return COPSE_OK;
}

/* ---- paths ---------------------------------------------------------------------------- */

static bool same_path(const struct copse_unit *a, const struct copse_unit *b) {
  return a->n_path == b->n_path &&
         memcmp(a->path, b->path, (size_t)a->n_path * sizeof *a->path) == 0;
}

/* Adds the units of one pair. Weights are parts of M, of which the pair has `share`; pieces are
 * parts of what the pair sends, side by side. `apart`: equal paths stay different units. */
static copse_status add_flow(struct maker *m, const struct copse_schedule_flow *flow, bool apart,
                             struct copse_q share, const int *rank_of) {
  struct copse_q at = COPSE_Q_ZERO;
  struct copse_unit *units = m->out->units + m->out->n_units;
  int n = 0;
  for (int p = 0; p < flow->n_paths; p++) { /* widths first, in hi */
    const struct copse_schedule_path *path = &flow->paths[p];
    struct copse_unit unit = {.root = flow->src};
    int *ranks, i = apart ? n : 0;
    COPSE_DO(COPSE_ARRAY(m->arena, (size_t)path->n_nodes, ranks, m->err));
    for (int k = 0; k < path->n_nodes; k++)
      if (rank_of[path->nodes[k]] >= 0) ranks[unit.n_path++] = rank_of[path->nodes[k]];
    unit.path = ranks;
    COPSE_DO(copse_q_div(path->weight, share, &unit.hi, m->err));
    while (i < n && !same_path(&units[i], &unit)) i++;
    if (i < n)
      COPSE_DO(copse_q_add(units[i].hi, unit.hi, &units[i].hi, m->err));
    else
      units[n++] = unit;
  }
  for (int i = 0; i < n; i++) {
    units[i].lo = at;
    COPSE_DO(copse_q_add(at, units[i].hi, &at, m->err));
    units[i].hi = at;
  }
  m->out->n_units += n;
  return COPSE_OK;
}

static int compare_paths(const void *a, const void *b, void *n_ranks) {
  const struct copse_unit *x = a, *y = b;
  int n = *(int *)n_ranks;
  int dx = copse_path_distance(x, n), dy = copse_path_distance(y, n);
  if (dx != dy) return dx - dy;
  if (x->path[0] != y->path[0]) return x->path[0] - y->path[0];
  return copse_q_cmp(x->lo, y->lo);
}

static copse_status make_path_units(struct maker *m) {
  const struct copse_schedule *s = m->schedule;
  struct copse_q share;
  int64_t total = 0;
  int *rank_of, n = s->n_ranks;
  size_t most = (size_t)n;
  if (s->demand) COPSE_DO(copse_demand_total(s->demand, n, &total, m->err));
  for (int f = 0; f < s->n_flows; f++) most += (size_t)s->flows[f].n_paths;
  COPSE_DO(COPSE_ARRAY(m->arena, most, m->out->units, m->err));
  COPSE_DO(COPSE_ARRAY(m->arena, (size_t)s->n_nodes, rank_of, m->err));
  for (int v = 0; v < s->n_nodes; v++) rank_of[v] = -1;
  for (int r = 0; r < n; r++) rank_of[s->rank_nodes[r]] = r;
  for (int r = 0; r < n; r++) /* a rank's block for itself has a path of one */
    if (!s->demand || s->demand[(size_t)r * (size_t)n + (size_t)r] != 0)
      m->out->units[m->out->n_units++] = (struct copse_unit){.root = r,
                                                             .lo = COPSE_Q_ZERO,
                                                             .hi = COPSE_Q_ONE,
                                                             .path = &rank_of[s->rank_nodes[r]],
                                                             .n_path = 1};
  for (int f = 0; f < s->n_flows; f++) {
    const struct copse_schedule_flow *flow = &s->flows[f];
    if (flow->n_paths == 0) continue; /* of a pair that sends nothing */
    COPSE_DO(copse_demand_share(s->demand, n, total, flow->src, flow->dst, &share, m->err));
    COPSE_DO(add_flow(m, flow, s->objective.bytes > 0, share, rank_of));
  }
  if (m->out->n_units > 0 && s->objective.bytes == 0) /* else they take turns as they are listed */
    qsort_r(m->out->units, (size_t)m->out->n_units, sizeof *m->out->units, compare_paths, &n);
  return COPSE_OK;
}

/* ---- parts ---------------------------------------------------------------------------- */

static int count_parts(const struct copse_unit *unit, int instances, bool own_whole,
                       double widest) {
  if (own_whole && unit->n_path == 1) return 1;
  if (instances > 0) return instances;
  int n = (int)(-instances * (widest > 0 ? copse_width(unit) / widest : 1) + 0.5);
  return n > 1 ? n : 1;
}

/* Computes the end of part i of n. */
static copse_status part_end(const struct copse_unit *unit, int i, int n, struct copse_q *end,
                             struct copse_err *err) {
  *end = unit->hi;
  if (i == n) return COPSE_OK;
  COPSE_DO(copse_q_sub(unit->hi, unit->lo, end, err));
  COPSE_DO(copse_q_mul(*end, (struct copse_q){i, n}, end, err));
  return copse_q_add(unit->lo, *end, end, err);
}

static copse_status cut_units(struct maker *m, int instances, bool own_whole) {
  const struct copse_units whole = *m->out;
  size_t n_parts = 0;
  double widest = 0;
  for (int u = 0; u < whole.n_units; u++)
    if (copse_width(&whole.units[u]) > widest) widest = copse_width(&whole.units[u]);
  for (int u = 0; u < whole.n_units; u++)
    n_parts += (size_t)count_parts(&whole.units[u], instances, own_whole, widest);
  *m->out = (struct copse_units){.in_order = whole.in_order, .far_first = whole.far_first};
  COPSE_DO(copse_arena_array(m->arena, n_parts, sizeof *whole.units, &m->out->units, m->err));
  for (int u = 0; u < whole.n_units; u++) {
    struct copse_unit part = whole.units[u];
    int n = count_parts(&whole.units[u], instances, own_whole, widest);
    for (int i = 1; i <= n; i++) {
      COPSE_DO(part_end(&whole.units[u], i, n, &part.hi, m->err));
      m->out->units[m->out->n_units++] = part;
      part.lo = part.hi;
    }
  }
  return COPSE_OK;
}

copse_status copse_units_make(struct copse_arena *arena, const struct copse_schedule *schedule,
                              int instances, bool own_whole, struct copse_units *out,
                              struct copse_err *err) {
  struct maker m = {.arena = arena, .schedule = schedule, .out = out, .err = err};
  *out = (struct copse_units){0};
  COPSE_DO((schedule->collective == COPSE_ALLTOALL ? make_path_units : make_tree_units)(&m));
  return instances == 1 ? COPSE_OK : cut_units(&m, instances, own_whole);
}

/* ---- dealing -------------------------------------------------------------------------- */

COPSE_ORDER(compare_roles, struct copse_role,
            COPSE_UP(rank) ?: COPSE_UP(worker) ?: COPSE_UP(phase) ?: COPSE_UP(level) ?:
            COPSE_UP(turn) ?: COPSE_UP(unit) ?: COPSE_UP(first))

void copse_roles_sort(struct copse_role *roles, size_t n) { COPSE_SORT(roles, n, compare_roles); }

size_t copse_roles_of_worker(const struct copse_role *roles, size_t n) {
  size_t i = 0;
  while (i < n && roles[i].rank == roles[0].rank && roles[i].worker == roles[0].worker) i++;
  return i;
}

COPSE_ORDER(larger_first, struct copse_role,
            COPSE_DOWN(cost) ?: COPSE_UP(phase) ?: COPSE_UP(unit) ?: COPSE_UP(first))

copse_status copse_roles_deal(struct copse_role *roles, size_t n, int first, int n_workers,
                              double *most, struct copse_err *err) {
  COPSE_AT_END(copse_free_at) double *load = NULL;
  COPSE_DO(copse_calloc((size_t)n_workers, sizeof *load, &load, err));
  COPSE_SORT(roles, n, larger_first);
  for (size_t i = 0; i < n; i++) {
    int best = 0;
    for (int w = 1; w < n_workers; w++)
      if (load[w] < load[best]) best = w;
    roles[i].worker = first + best;
    load[best] += roles[i].cost;
    if (load[best] > *most) *most = load[best];
  }
  return COPSE_OK;
}

static bool is_enough(const struct copse_deal_outcome *it, int64_t n_workers) {
  bool many = (double)it->roles / (double)n_workers >= COPSE_POLICY_MANY_ROLES;
  return it->balance >= COPSE_POLICY_ENOUGH_BALANCE || it->roles > COPSE_POLICY_ENOUGH_ROLES ||
         (many && it->balance >= COPSE_POLICY_FAIR_BALANCE);
}

copse_status copse_deal_instances(void *lowering, copse_deal_cut cut, int instances,
                                  int64_t n_workers, struct copse_err *err) {
  struct copse_deal_outcome it = {0, 0};
  double best_balance = 0;
  int best = 1, tried = 0;
  if (instances != COPSE_LOWER_AUTO) return cut(lowering, instances, &it, err);
  for (int i = 1; i <= COPSE_LOWER_MOST_INSTANCES && !is_enough(&it, n_workers); i++) {
    COPSE_DO(cut(lowering, -i, &it, err));
    tried = i;
    if (it.balance > best_balance * COPSE_POLICY_BETTER_BALANCE) {
      best_balance = it.balance;
      best = i;
    }
  }
  if (tried != best) COPSE_DO(cut(lowering, -best, &it, err));
  return COPSE_OK;
}

/* Whether a rank deals its puts for a unit to several workers. In a schedule for one size it does
 * where its messages, one after the other, take longer than the links. A root's links are busy with
 * n_units trees: with many trees, which have workers of their own, the order counts. With eight
 * trees dealt allgathers of 256 KiB and 1 MiB on torus-a100-x4 took 2 to 3 % longer. A rank that
 * passes on deals where its messages take a part of that time: ranks that wait for the last of them
 * are late by it. */
static bool is_dealt(const struct copse_schedule *s, const struct copse_unit *unit, int rank,
                     int n_units) {
  double message_us = fmin(copse_q_to_double(s->objective.alpha_us), COPSE_MESSAGE_US);
  double links_us = copse_q_to_double(s->bound.time_per_GB) * (double)s->objective.bytes * 1e-3;
  int messages = copse_tree_children(unit->broadcast, rank);
  if (s->objective.bytes == 0) return true;
  if (unit->reduce) { /* for a message alone: an allreduce's bound may be replaced in the end */
    links_us = (double)s->objective.bytes / s->n_ranks / COPSE_POLICY_DEALT_RATE;
    messages = 1;
  }
  links_us *= rank == unit->root ? n_units : COPSE_POLICY_DEALT_PART;
  return message_us * messages > links_us;
}

copse_status copse_units_ways(struct copse_arena *arena, const struct copse_schedule *schedule,
                              const struct copse_units *units,
                              const struct copse_lower_options *options, int **out,
                              struct copse_err *err) {
  size_t n = (size_t)schedule->n_ranks;
  int *n_roots, *n_puts, *ways; /* [n_ranks] trees of a root, trees in which a rank puts */
  COPSE_DO(COPSE_ARRAYS(arena, n, int, err, &n_roots, &n_puts));
  COPSE_DO(COPSE_ARRAY(arena, n * (size_t)units->n_units, ways, err));
  *out = ways;
  for (int u = 0; u < units->n_units; u++) {
    const struct copse_unit_tree *tree = units->units[u].broadcast;
    n_roots[units->units[u].root]++;
    for (int r = 0; r < (int)n && tree; r++) n_puts[r] += copse_tree_children(tree, r) > 0;
  }
  for (int u = 0; u < units->n_units; u++, ways += n)
    for (int r = 0; r < (int)n; r++) {
      const struct copse_unit *unit = &units->units[u];
      int children = unit->broadcast ? copse_tree_children(unit->broadcast, r) : 0;
      int of = r == unit->root ? n_roots[r] : n_puts[r];
      ways[r] = copse_ways(options, children, of);
      if (ways[r] < 2 || !(units->in_order || options->low_latency) ||
          !is_dealt(schedule, unit, r, of))
        ways[r] = 1;
    }
  return COPSE_OK;
}

/* ---- whole chunks --------------------------------------------------------------------- */

/*
 * Starts with equal chunks, into C of which MSCCL and MSCCL++ cut a message once and for all, so
 * shares become whole chunks: C is the least number on which every boundary of the schedule falls,
 * or what --chunks says, with boundaries rounded to the nearest chunk. The executors serve only
 * sizes that C divides: a C with odd factors (k = 3) shuts out powers of two, and `copse lower`
 * says so.
 */
copse_status copse_chunks_start(struct copse_whole_chunks *w, const struct copse_schedule *schedule,
                                int instances, int stretch, struct copse_err *err) {
  *w = (struct copse_whole_chunks){.schedule = schedule, .stretch = stretch};
  if (copse_collective_rooted(schedule->collective))
    return copse_fail(err, COPSE_UNSUPPORTED,
                      "this format has no root, so a %s is not lowered to it (--to plan does it)",
                      copse_collective_name(schedule->collective));
  w->blocks = schedule->collective == COPSE_ALLREDUCE ? 1 : schedule->n_ranks;
  if (schedule->demand)
    return copse_fail(err, COPSE_UNSUPPORTED,
                      "an alltoall by demand has blocks of different sizes, which only a native "
                      "plan (--to plan) can move");
  if (schedule->n_rotations > 0)
    return copse_fail(err, COPSE_UNSUPPORTED,
                      "a compact schedule must be expanded before it is lowered");
  return copse_units_make(&w->arena, schedule, instances, true, &w->units, err);
}

void copse_chunks_free(struct copse_whole_chunks *w) { copse_arena_free(&w->arena); }

copse_status copse_chunks_exact(const struct copse_whole_chunks *w, int most, int64_t *block,
                                struct copse_err *err) {
  *block = 1;
  for (int i = 0; i < w->units.n_units && *block <= most; i++)
    COPSE_DO(copse_lcm(*block, w->units.units[i].hi.den, block, err));
  return COPSE_OK;
}

/* Returns a boundary's chunk: up from half a chunk on, or from another part for each root. */
static int chunk_at(const struct copse_whole_chunks *w, int root, struct copse_q at) {
  int parts = w->spread ? 2 * w->blocks : 2, up = w->spread ? 2 * root + 1 : 1;
  __int128 chunks = (__int128)at.num * w->block * parts + (__int128)at.den * up;
  return (int)(chunks / ((__int128)at.den * parts));
}

copse_status copse_chunks_cut(struct copse_whole_chunks *w, int block, bool spread,
                              struct copse_err *err) {
  w->block = block;
  w->spread = spread && w->blocks > 1 && w->schedule->n_flows == 0;
  w->chunks = block * w->blocks;
  w->n_runs = 0;
  for (int u = 0; u < w->units.n_units; u++) {
    struct copse_chunk_run run = {.unit = &w->units.units[u]};
    int end = chunk_at(w, run.unit->root, run.unit->hi);
    for (run.offset = chunk_at(w, run.unit->root, run.unit->lo); run.offset < end;
         run.offset += run.count) {
      int stop = (run.offset / w->stretch + 1) * w->stretch;
      run.count = (stop < end ? stop : end) - run.offset;
      COPSE_DO(COPSE_PUSH_IN(&w->arena, w->runs, w->n_runs, w->runs_capacity, err, run));
    }
  }
  return COPSE_OK;
}

void copse_chunks_add_name(const struct copse_whole_chunks *w, struct copse_text *text) {
  const char *name = w->schedule->topology_name;
  for (int i = 0; i < 100 && name[i]; i++)
    copse_text_add(text, "%c",
                   isalnum((unsigned char)name[i]) || strchr("_.-", name[i]) ? name[i] : '_');
}

/* ---- hosts -------------------------------------------------------------------------------- */

/* Returns the length of "h3" in "h3.gpu0"; 0 in "gpu0" and in a bus id, "gpu@0000:c1:00.0". */
static size_t host_length(const char *id) {
  size_t n = strcspn(id, ".@:");
  return id[n] == '.' ? n : 0;
}

int copse_schedule_hosts(const struct copse_schedule *s, int ranks_per_host, int *host) {
  int n_hosts = 0;
  for (int r = 0; r < s->n_ranks; r++) {
    const char *id = s->nodes[s->rank_nodes[r]];
    size_t length = host_length(id);
    int other = 0;
    for (; other < r; other++) {
      const char *before = s->nodes[s->rank_nodes[other]];
      if (host_length(before) == length && strncmp(before, id, length) == 0) break;
    }
    host[r] = other < r ? host[other] : n_hosts;
    if (ranks_per_host > 0) host[r] = r / ranks_per_host;
    if (host[r] >= n_hosts) n_hosts = host[r] + 1;
  }
  return n_hosts;
}
