#include "codegen/lower/unit.h"

#include <stdlib.h>
#include <string.h>

#include "codegen/lower/deal.h"

struct maker {
  const struct copse_schedule *schedule;
  struct copse_units *out;
  size_t capacity;
  const struct copse_unit_tree **trees; /* [schedule->n_trees] */
  int instances;                        /* < 0: of the widest unit, and of others in proportion */
  double widest;
  struct copse_err *err;
};

/* Turns a list of edges into parents and children. */
static copse_status index_tree(struct maker *m, const struct copse_schedule_tree *tree,
                               const struct copse_unit_tree **out) {
  size_t n = (size_t)m->schedule->n_ranks;
  struct copse_arena *arena = &m->out->arena;
  bool reduce = tree->phase == COPSE_PHASE_REDUCE;
  struct copse_unit_tree *t = copse_arena_alloc(arena, 1, sizeof *t);
  if (!t) return copse_fail_nomem(m->err);
  t->parent = copse_arena_alloc(arena, n, sizeof(int));
  t->first_child = copse_arena_alloc(arena, n + 2, sizeof(int));
  t->children = copse_arena_alloc(arena, n, sizeof(int));
  if (!t->parent || !t->first_child || !t->children) return copse_fail_nomem(m->err);
  t->parent[tree->root] = -1;
  /* counting sort by parent; first_child is off by one while filling */
  for (int i = 0; i < tree->n_edges; i++) {
    const struct copse_schedule_edge *e = &tree->edges[i];
    t->first_child[(reduce ? e->dst : e->src) + 2]++;
  }
  for (size_t r = 1; r < n + 2; r++) t->first_child[r] += t->first_child[r - 1];
  for (int i = 0; i < tree->n_edges; i++) {
    const struct copse_schedule_edge *e = &tree->edges[i];
    int parent = reduce ? e->dst : e->src, child = reduce ? e->src : e->dst;
    t->parent[child] = parent;
    t->children[t->first_child[parent + 1]++] = child;
  }
  *out = t;
  return COPSE_OK;
}

static copse_status add_unit(struct maker *m, const struct copse_unit *unit) {
  if ((size_t)m->out->n_units == m->capacity) {
    size_t grown = m->capacity ? 2 * m->capacity : 64;
    struct copse_unit *units = copse_arena_alloc(&m->out->arena, grown, sizeof *units);
    if (!units) return copse_fail_nomem(m->err);
    if (m->out->n_units > 0) memcpy(units, m->out->units, (size_t)m->out->n_units * sizeof *units);
    m->out->units = units;
    m->capacity = grown;
  }
  m->out->units[m->out->n_units++] = *unit;
  return COPSE_OK;
}

static double width_of(const struct copse_unit *unit) {
  return copse_q_to_double(unit->hi) - copse_q_to_double(unit->lo);
}

/* The unit's piece in equal parts. */
static copse_status add_instances(struct maker *m, const struct copse_unit *unit) {
  double part_of_widest = m->widest > 0 ? width_of(unit) / m->widest : 1;
  int n = copse_instances_of(m->instances, part_of_widest);
  struct copse_q width, step, offset, parts = {n, 1};
  struct copse_unit part = *unit;
  copse_status status;
  if (n == 1) return add_unit(m, unit);
  COPSE_TRY(copse_q_sub(unit->hi, unit->lo, &width, m->err));
  COPSE_TRY(copse_q_div(width, parts, &step, m->err));
  for (int i = 0; i < n; i++) {
    struct copse_q index = {i + 1, 1};
    part.lo = i == 0 ? unit->lo : part.hi;
    COPSE_TRY(copse_q_mul(step, index, &offset, m->err));
    COPSE_TRY(copse_q_add(unit->lo, offset, &part.hi, m->err));
    COPSE_TRY(add_unit(m, &part));
  }
out:
  return status;
}

/* The next tree of this root and phase from `from` on, or n_trees. */
static int next_tree(const struct maker *m, int root, enum copse_phase phase, int from) {
  int t = from;
  while (t < m->schedule->n_trees &&
         (m->schedule->trees[t].root != root || m->schedule->trees[t].phase != phase))
    t++;
  return t;
}

/* Whether a block belongs to a single root, so that weights count in units of its share. */
static bool block_per_root(const struct copse_schedule *schedule) {
  return schedule->collective == COPSE_ALLGATHER || schedule->collective == COPSE_REDUCE_SCATTER;
}

/* A tree and how far its piece reaches, in fractions of the block. */
struct reach {
  enum copse_phase phase;
  int tree;
  struct copse_q end;
};

/* Moves on to the root's next tree of the phase; its piece starts where the last ended. */
static copse_status advance(struct maker *m, int root, struct reach *r) {
  struct copse_q weight, scale = {m->schedule->n_ranks, 1};
  copse_status status = COPSE_OK;
  r->tree = next_tree(m, root, r->phase, r->tree + 1);
  if (r->tree == m->schedule->n_trees) return COPSE_OK;
  weight = m->schedule->trees[r->tree].weight;
  if (block_per_root(m->schedule)) COPSE_TRY(copse_q_mul(weight, scale, &weight, m->err));
  COPSE_TRY(copse_q_add(r->end, weight, &r->end, m->err));
out:
  return status;
}

/*
 * All units of one root, from position `*at` in its block on. With both phases, each step
 * goes to the nearer end of the two pieces at hand.
 */
static copse_status cut_root(struct maker *m, int root, bool reduces, bool broadcasts,
                             struct copse_q *at) {
  int none = m->schedule->n_trees;
  struct reach r = {COPSE_PHASE_REDUCE, -1, *at}, b = {COPSE_PHASE_BROADCAST, -1, *at};
  copse_status status = COPSE_OK;
  if (reduces) COPSE_TRY(advance(m, root, &r));
  if (broadcasts) COPSE_TRY(advance(m, root, &b));
  while ((reduces && r.tree < none) || (broadcasts && b.tree < none)) {
    struct copse_unit unit = {.root = root,
                              .block = block_per_root(m->schedule) ? root : 0,
                              .lo = *at,
                              .reduce = reduces ? m->trees[r.tree] : NULL,
                              .broadcast = broadcasts ? m->trees[b.tree] : NULL};
    bool to_reduce = !broadcasts || (reduces && copse_q_cmp(r.end, b.end) <= 0);
    *at = unit.hi = to_reduce ? r.end : b.end;
    COPSE_TRY(add_instances(m, &unit));
    if (reduces && copse_q_eq(r.end, *at)) COPSE_TRY(advance(m, root, &r));
    if (broadcasts && copse_q_eq(b.end, *at)) COPSE_TRY(advance(m, root, &b));
  }
out:
  return status;
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

int copse_instances_of(int instances, double part_of_widest) {
  if (instances > 0) return instances;
  int n = (int)(-instances * part_of_widest + 0.5);
  return n > 1 ? n : 1;
}

static copse_status make_units(const struct copse_schedule *schedule, int instances, double widest,
                               struct copse_units *out, struct copse_err *err) {
  struct maker m = {
      .schedule = schedule, .out = out, .instances = instances, .widest = widest, .err = err};
  bool reduces = false, broadcasts = false;
  copse_status status = COPSE_OK;
  *out = (struct copse_units){0};
  COPSE_TRY(refuse_in_network(schedule, err));
  m.trees = copse_arena_alloc(&out->arena, (size_t)schedule->n_trees + 1, sizeof *m.trees);
  if (!m.trees) return copse_fail_nomem(err);
  for (int t = 0; t < schedule->n_trees; t++) {
    COPSE_TRY(index_tree(&m, &schedule->trees[t], &m.trees[t]));
    if (schedule->trees[t].phase == COPSE_PHASE_REDUCE)
      reduces = true;
    else
      broadcasts = true;
  }
  struct copse_q at = COPSE_Q_ZERO;
  for (int root = 0; root < schedule->n_ranks; root++) {
    if (block_per_root(schedule)) at = COPSE_Q_ZERO;
    COPSE_TRY(cut_root(&m, root, reduces, broadcasts, &at));
  }
out:
  if (status != COPSE_OK) copse_units_free(out);
  return status;
}

copse_status copse_units_make(const struct copse_schedule *schedule, int instances,
                              struct copse_units *out, struct copse_err *err) {
  double widest = 0;
  if (instances < 0) {
    copse_status status = make_units(schedule, 1, 0, out, err);
    if (status != COPSE_OK) return status;
    for (int u = 0; u < out->n_units; u++) {
      double width = width_of(&out->units[u]);
      if (width > widest) widest = width;
    }
    copse_units_free(out);
  }
  return make_units(schedule, instances, widest, out, err);
}

/* ---- spreading over workers -------------------------------------------------------- */

copse_status copse_units_spread(const struct copse_units *units, int most, int *worker_of,
                                int *n_workers, struct copse_err *err) {
  size_t n = (size_t)units->n_units;
  struct copse_deal_role *roles = NULL;
  double load = 0;
  copse_status status;
  *n_workers = units->n_units < most ? units->n_units : most;
  COPSE_TRY(copse_calloc(n, sizeof *roles, &roles, err));
  for (int u = 0; u < units->n_units; u++)
    roles[u] = (struct copse_deal_role){.cost = width_of(&units->units[u]), .key = u};
  COPSE_TRY(copse_deal(roles, n, *n_workers, &load, err));
  for (size_t i = 0; i < n; i++) worker_of[roles[i].key] = roles[i].worker;
out:
  free(roles);
  return status;
}

void copse_units_free(struct copse_units *units) {
  copse_arena_free(&units->arena);
  units->n_units = 0;
}
