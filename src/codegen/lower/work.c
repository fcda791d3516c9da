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

#include <stdlib.h>
#include <string.h>

#include "base/graph.h"
#include "codegen/lower/options.h"
#include "codegen/lower/policy.h"
#include "schedule/demand.h"

/* Parts of what has so large a part of the widest one's width. */
static int instances_of(int instances, double part_of_widest) {
  if (instances > 0) return instances;
  int n = (int)(-instances * part_of_widest + 0.5);
  return n > 1 ? n : 1;
}

/* The end of part i of n of [lo, hi). */
static copse_status part_end(struct copse_q lo, struct copse_q hi, int i, int n,
                             struct copse_q *end, struct copse_err *err) {
  COPSE_DO(copse_q_sub(hi, lo, end, err));
  COPSE_DO(copse_q_mul(*end, (struct copse_q){i, n}, end, err));
  return copse_q_add(lo, *end, end, err);
}

/* ---- units ---------------------------------------------------------------------------- */

struct maker {
  const struct copse_schedule *schedule;
  struct copse_units *out;
  const struct copse_unit_tree **trees; /* [schedule->n_trees] */
  int instances;
  double widest;
  struct copse_err *err;
};

/* Turns a list of edges into parents and children. */
static copse_status index_tree(struct maker *m, const struct copse_schedule_tree *tree,
                               const struct copse_unit_tree **out) {
  int n = m->schedule->n_ranks;
  struct copse_arena *arena = &m->out->arena;
  bool reduce = tree->phase == COPSE_PHASE_REDUCE;
  struct copse_unit_tree *t;
  struct copse_adjacency by_parent = {NULL, NULL};
  const int *parents = tree->n_edges == 0 ? NULL : reduce ? &tree->edges->dst : &tree->edges->src;
  COPSE_DO(copse_arena_array(arena, 1, sizeof *t, &t, m->err));
  COPSE_DO(copse_arena_array(arena, (size_t)n, sizeof(int), &t->parent, m->err));
  COPSE_DO(copse_adjacency_by(arena, n, tree->n_edges, parents, sizeof *tree->edges, &by_parent,
                              m->err));
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

/* The unit's piece in equal parts. */
static copse_status add_unit(struct maker *m, const struct copse_unit *unit) {
  struct copse_units *out = m->out;
  double width = copse_width(unit->lo, unit->hi);
  int n = instances_of(m->instances, m->widest > 0 ? width / m->widest : 1);
  struct copse_unit part = *unit;
  COPSE_DO(copse_grow(&out->units, &out->capacity, (size_t)out->n_units + (size_t)n,
                      sizeof *out->units, m->err));
  for (int i = 1; i <= n; i++) {
    part.hi = unit->hi;
    if (i < n) COPSE_DO(part_end(unit->lo, unit->hi, i, n, &part.hi, m->err));
    out->units[out->n_units++] = part;
    part.lo = part.hi;
  }
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

/*
 * All units of one root, from position `*at` in its block on. With both phases, each step
 * goes to the nearer end of the two pieces at hand.
 */
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
                              .lo = *at,
                              .reduce = reduces ? m->trees[r.tree] : NULL,
                              .broadcast = broadcasts ? m->trees[b.tree] : NULL};
    bool to_reduce = !broadcasts || (reduces && copse_q_cmp(r.end, b.end) <= 0);
    *at = unit.hi = to_reduce ? r.end : b.end;
    COPSE_DO(add_unit(m, &unit));
    if (reduces && copse_q_eq(r.end, *at)) COPSE_DO(advance(m, root, &r));
    if (broadcasts && copse_q_eq(b.end, *at)) COPSE_DO(advance(m, root, &b));
  }
  return COPSE_OK;
}

static int compare_units(const void *a, const void *b) {
  const struct copse_unit *x = a, *y = b;
  return x->tree != y->tree ? x->tree - y->tree : copse_q_cmp(x->lo, y->lo);
}

/* Every send of a plan goes to one receiver, and every sum is made at a rank. */
static copse_status refuse_in_network(const struct copse_schedule *s, struct copse_err *err) {
  if (s->n_copying + s->n_adding == 0) return COPSE_OK;
  return copse_fail(err, COPSE_UNSUPPORTED,
                    "the schedule counts on '%s' to %s for its time, which plans can't ask of a "
                    "switch; solve the topology without \"multicast\" and \"aggregation\" for one "
                    "that is sent as it says",
                    s->nodes[s->n_copying > 0 ? s->copying[0] : s->adding[0]],
                    s->n_copying > 0 ? "copy" : "add");
}

static copse_status make_units(const struct copse_schedule *schedule, int instances, double widest,
                               struct copse_units *out, struct copse_err *err) {
  struct maker m = {
      .schedule = schedule, .out = out, .instances = instances, .widest = widest, .err = err};
  bool reduces = false, broadcasts = false;
  struct copse_q at = COPSE_Q_ZERO;
  copse_status status;
  *out = (struct copse_units){0};
  COPSE_TRY(refuse_in_network(schedule, err));
  COPSE_TRY(
      copse_arena_array(&out->arena, (size_t)schedule->n_trees, sizeof *m.trees, &m.trees, err));
  for (int t = 0; t < schedule->n_trees; t++) {
    COPSE_TRY(index_tree(&m, &schedule->trees[t], &m.trees[t]));
    *(schedule->trees[t].phase == COPSE_PHASE_REDUCE ? &reduces : &broadcasts) = true;
  }
  for (int root = 0; root < schedule->n_ranks; root++) {
    if (block_per_root(schedule)) at = COPSE_Q_ZERO;
    COPSE_TRY(cut_root(&m, root, reduces, broadcasts, &at));
  }
  out->in_order = schedule->objective.bytes > 0;
  if (out->in_order && !(reduces && broadcasts))
    qsort(out->units, (size_t)out->n_units, sizeof *out->units, compare_units);
out:
  if (status != COPSE_OK) copse_units_free(out);
  return status;
}

copse_status copse_units_make(const struct copse_schedule *schedule, int instances,
                              struct copse_units *out, struct copse_err *err) {
  double widest = 0;
  if (instances < 0) {
    COPSE_DO(make_units(schedule, 1, 0, out, err));
    for (int u = 0; u < out->n_units; u++) {
      double width = copse_width(out->units[u].lo, out->units[u].hi);
      if (width > widest) widest = width;
    }
    copse_units_free(out);
  }
  return make_units(schedule, instances, widest, out, err);
}

void copse_units_free(struct copse_units *units) {
  free(units->units);
  copse_arena_free(&units->arena);
  *units = (struct copse_units){0};
}

/* ---- chains --------------------------------------------------------------------------- */

static copse_status add_chain(struct copse_chains *out, const struct copse_chain *chain,
                              struct copse_err *err) {
  copse_status status =
      copse_grow(&out->chains, &out->capacity, (size_t)out->n_chains + 1, sizeof *out->chains, err);
  if (status == COPSE_OK) out->chains[out->n_chains++] = *chain;
  return status;
}

static bool same_ranks(const struct copse_chain *a, const struct copse_chain *b) {
  return a->n == b->n && memcmp(a->ranks, b->ranks, (size_t)a->n * sizeof *a->ranks) == 0;
}

/*
 * The chains of one pair. Weights are parts of M, of which the pair has `share`; pieces are parts
 * of what the pair sends, side by side. `apart`: equal paths stay different chains.
 */
static copse_status add_flow(const struct copse_schedule_flow *flow, bool apart,
                             struct copse_q share, const int *rank_of, struct copse_chains *out,
                             struct copse_err *err) {
  struct copse_q at = COPSE_Q_ZERO;
  int first = out->n_chains;
  for (int p = 0; p < flow->n_paths; p++) { /* widths first, in hi */
    const struct copse_schedule_path *path = &flow->paths[p];
    struct copse_chain chain = {.n = 0};
    int *ranks, i = apart ? out->n_chains : first;
    COPSE_DO(copse_arena_array(&out->arena, (size_t)path->n_nodes, sizeof *ranks, &ranks, err));
    for (int k = 0; k < path->n_nodes; k++)
      if (rank_of[path->nodes[k]] >= 0) ranks[chain.n++] = rank_of[path->nodes[k]];
    chain.ranks = ranks;
    COPSE_DO(copse_q_div(path->weight, share, &chain.hi, err));
    while (i < out->n_chains && !same_ranks(&out->chains[i], &chain)) i++;
    if (i < out->n_chains)
      COPSE_DO(copse_q_add(out->chains[i].hi, chain.hi, &out->chains[i].hi, err));
    else
      COPSE_DO(add_chain(out, &chain, err));
  }
  for (int i = first; i < out->n_chains; i++) {
    out->chains[i].lo = at;
    COPSE_DO(copse_q_add(at, out->chains[i].hi, &at, err));
    out->chains[i].hi = at;
  }
  return COPSE_OK;
}

/* By distance from sender to receiver, then by sender: at any moment the ranks send to
 * different ranks, so none is flooded. */
static int compare_chains(const void *a, const void *b, void *n_ranks) {
  const struct copse_chain *x = a, *y = b;
  int n = *(int *)n_ranks;
  int dx = copse_chain_distance(x, n), dy = copse_chain_distance(y, n);
  if (dx != dy) return dx - dy;
  if (x->ranks[0] != y->ranks[0]) return x->ranks[0] - y->ranks[0];
  return copse_q_cmp(x->lo, y->lo);
}

/* Whole chains, sorted. */
static copse_status make_chains(const struct copse_schedule *s, struct copse_chains *out,
                                struct copse_err *err) {
  struct copse_q share;
  int64_t m = 0;
  int *rank_of, n = s->n_ranks;
  if (s->demand) COPSE_DO(copse_demand_total(s->demand, s->n_ranks, &m, err));
  COPSE_DO(copse_arena_array(&out->arena, (size_t)s->n_nodes, sizeof(int), &rank_of, err));
  for (int v = 0; v < s->n_nodes; v++) rank_of[v] = -1;
  for (int r = 0; r < s->n_ranks; r++) rank_of[s->rank_nodes[r]] = r;
  for (int r = 0; r < s->n_ranks; r++) { /* a rank's block for itself is a chain of one */
    const int *own = &rank_of[s->rank_nodes[r]];
    struct copse_chain chain = {.n = 1, .ranks = own, .lo = COPSE_Q_ZERO, .hi = COPSE_Q_ONE};
    if (s->demand && s->demand[(size_t)r * (size_t)n + (size_t)r] == 0) continue;
    COPSE_DO(add_chain(out, &chain, err));
  }
  for (int f = 0; f < s->n_flows; f++) {
    const struct copse_schedule_flow *flow = &s->flows[f];
    if (flow->n_paths == 0) continue; /* of a pair that sends nothing */
    COPSE_DO(copse_demand_share(s->demand, s->n_ranks, m, flow->src, flow->dst, &share, err));
    COPSE_DO(add_flow(flow, s->objective.bytes > 0, share, rank_of, out, err));
  }
  if (out->n_chains > 0 && s->objective.bytes == 0) /* else they take turns as they are listed */
    qsort_r(out->chains, (size_t)out->n_chains, sizeof *out->chains, compare_chains,
            (void *)(uintptr_t)&s->n_ranks);
  return COPSE_OK;
}

/* Every chain's piece in equal parts; see copse_units_make. */
static copse_status cut_chains(int instances, bool own_whole, struct copse_chains *out,
                               struct copse_err *err) {
  struct copse_chain *whole = out->chains;
  int n = out->n_chains;
  double widest = 0;
  copse_status status = COPSE_OK;
  for (int i = 0; i < n; i++)
    if (copse_width(whole[i].lo, whole[i].hi) > widest)
      widest = copse_width(whole[i].lo, whole[i].hi);
  out->chains = NULL;
  out->n_chains = 0;
  out->capacity = 0;
  for (int i = 0; i < n; i++) {
    struct copse_chain part = whole[i];
    int parts = instances_of(instances, copse_width(part.lo, part.hi) / widest);
    if (own_whole && part.n == 1) parts = 1;
    for (int k = 1; k <= parts; k++) {
      COPSE_TRY(part_end(whole[i].lo, whole[i].hi, k, parts, &part.hi, err));
      COPSE_TRY(add_chain(out, &part, err));
      part.lo = part.hi;
    }
  }
out:
  free(whole);
  return status;
}

copse_status copse_chains_make(const struct copse_schedule *schedule, int instances, bool own_whole,
                               struct copse_chains *out, struct copse_err *err) {
  copse_status status;
  *out = (struct copse_chains){0};
  COPSE_TRY(make_chains(schedule, out, err));
  if (instances != 1) COPSE_TRY(cut_chains(instances, own_whole, out, err));
out:
  if (status != COPSE_OK) copse_chains_free(out);
  return status;
}

void copse_chains_free(struct copse_chains *chains) {
  free(chains->chains);
  copse_arena_free(&chains->arena);
  *chains = (struct copse_chains){0};
}

/* ---- dealing -------------------------------------------------------------------------- */

static int larger_first(const void *a, const void *b) {
  const struct copse_deal_role *x = a, *y = b;
  if (x->cost != y->cost) return x->cost < y->cost ? 1 : -1;
  return x->key < y->key ? -1 : x->key > y->key;
}

copse_status copse_deal(struct copse_deal_role *roles, size_t n, int n_workers, double *most,
                        struct copse_err *err) {
  double *load = NULL;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)n_workers, sizeof *load, &load, err));
  if (n > 0) qsort(roles, n, sizeof *roles, larger_first);
  for (size_t i = 0; i < n; i++) {
    int best = 0;
    for (int w = 1; w < n_workers; w++)
      if (load[w] < load[best]) best = w;
    roles[i].worker = best;
    load[best] += roles[i].cost;
    if (load[best] > *most) *most = load[best];
  }
out:
  free(load);
  return status;
}

copse_status copse_units_spread(const struct copse_units *units, int most, int *worker_of,
                                int *n_workers, struct copse_err *err) {
  size_t n = (size_t)units->n_units;
  struct copse_deal_role *roles = NULL;
  double load = 0;
  copse_status status;
  *n_workers = units->n_units < most ? units->n_units : most;
  COPSE_TRY(copse_calloc(n, sizeof *roles, &roles, err));
  for (int u = 0; u < units->n_units; u++)
    roles[u] = (struct copse_deal_role){.cost = copse_width(units->units[u].lo, units->units[u].hi),
                                        .key = u};
  COPSE_TRY(copse_deal(roles, n, *n_workers, &load, err));
  for (size_t i = 0; i < n; i++) worker_of[roles[i].key] = roles[i].worker;
out:
  free(roles);
  return status;
}

static bool is_enough(const struct copse_deal_outcome *it) {
  return it->balance >= COPSE_POLICY_ENOUGH_BALANCE || it->roles > COPSE_POLICY_ENOUGH_ROLES ||
         (it->per_worker >= COPSE_POLICY_MANY_ROLES && it->balance >= COPSE_POLICY_FAIR_BALANCE);
}

copse_status copse_deal_instances(void *lowering, copse_deal_cut cut, int instances,
                                  struct copse_err *err) {
  struct copse_deal_outcome it = {0, 0, 0};
  double best_balance = 0;
  int best = 1, tried = 0;
  if (instances != COPSE_LOWER_AUTO) return cut(lowering, instances, &it, err);
  for (int i = 1; i <= COPSE_LOWER_MOST_INSTANCES && !is_enough(&it); i++) {
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
