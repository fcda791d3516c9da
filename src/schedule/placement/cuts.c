/*
 * The cuts of a topology that bound an all-to-all: around each rank, each host, and what wide links
 * hold together (links put in widest first, class by class), with the max-flow bandwidth over each.
 */
#include <stdlib.h>
#include <string.h>

#include "base/graph.h"
#include "base/memory.h"
#include "schedule/solve/instance.h"
#include "schedule/placement/place.h"
#include "solver/network/flow.h"

/* Where costs have no common denominator they get about so many bits. */
#define ROUNDED_COST ((int64_t)1 << 30)
#define MAX_TIME ((int64_t)1 << 58)

/* What sets are found with. */
struct sets {
  const struct copse_topology *t;
  struct copse_place_cuts *cuts; /* sets found so far: `groups` grows, members are in its arena */
  size_t capacity;
  int *depth;  /* [n_ranks] sets that a rank is in */
  int *parent; /* [n_nodes] disjoint sets */
  int *stamps; /* [n_nodes] */
  int stamp;
  struct copse_arena *scratch;
  struct copse_err *err;
};

/* ---- which sets ---------------------------------------------------------------------------- */

static bool is_known(const struct copse_place_cuts *cuts, const int *members, int n) {
  for (int i = 0; i < cuts->n_cuts; i++)
    if (cuts->groups[i].n_members == n &&
        memcmp(cuts->groups[i].members, members, (size_t)n * sizeof *members) == 0)
      return true;
  return false;
}

/* Adds the ranks r with label[r] == which. Sets of all ranks bound nothing; so would empty
 * ones. A rank that is in enough sets already takes no more. */
static copse_status add_set(struct sets *s, const int *label, int which) {
  struct copse_place_cuts *cuts = s->cuts;
  int *members, n = 0;
  for (int r = 0; r < s->t->n_ranks; r++) {
    if (label[r] == which && s->depth[r] >= COPSE_PLACE_MAX_DEPTH) return COPSE_OK;
    n += label[r] == which;
  }
  if (n == 0 || n == s->t->n_ranks) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(&cuts->arena, (size_t)n, members, s->err));
  for (int r = 0, at = 0; r < s->t->n_ranks; r++)
    if (label[r] == which) members[at++] = r;
  if (is_known(cuts, members, n)) return COPSE_OK;
  COPSE_DO(
      COPSE_GROW_IN(&cuts->arena, cuts->groups, s->capacity, (size_t)cuts->n_cuts + 1, s->err));
  cuts->groups[cuts->n_cuts++] = (struct copse_place_group){.members = members, .n_members = n};
  for (int i = 0; i < n; i++) s->depth[members[i]]++;
  return COPSE_OK;
}

/* Adds one set for each label that at least one rank carries first. */
static copse_status add_labels(struct sets *s, const int *label) {
  char *seen = NULL;
  COPSE_DO(COPSE_ARRAY(s->scratch, (size_t)s->t->n_nodes, seen, s->err));
  for (int r = 0; r < s->t->n_ranks; r++) {
    if (label[r] < 0 || seen[label[r]]) continue;
    seen[label[r]] = 1;
    COPSE_DO(add_set(s, label, label[r]));
  }
  return COPSE_OK;
}

/* A host's label is its first rank. */
static copse_status add_hosts(struct sets *s) {
  int *label = NULL;
  COPSE_DO(COPSE_ARRAY(s->scratch, (size_t)s->t->n_ranks, label, s->err));
  for (int r = 0, first = 0; r < s->t->n_ranks; r++) {
    const char *id = s->t->nodes[s->t->rank_nodes[r]].id;
    size_t n = copse_host_prefix(id, NULL);
    label[r] = n > 0 ? r : -1;
    for (first = 0; n > 0 && first < r; first++)
      if (strncmp(id, s->t->nodes[s->t->rank_nodes[first]].id, n) == 0) {
        label[r] = label[first];
        break;
      }
  }
  return add_labels(s, label);
}

/* Widest first. */
static int by_bandwidth(const void *a, const void *b) {
  const struct copse_link *x = a, *y = b;
  int order = copse_q_cmp(y->bandwidth, x->bandwidth);
  if (order != 0) return order;
  return x->src != y->src ? (x->src > y->src) - (x->src < y->src)
                          : (x->dst > y->dst) - (x->dst < y->dst);
}

/* Labels ranks by what holds them together so far; how many different ones there are. */
static int label_islands(struct sets *s, int *label) {
  int n = 0;
  for (int r = 0; r < s->t->n_ranks; r++) {
    label[r] = copse_sets_find(s->parent, s->t->rank_nodes[r]);
    if (s->stamps[label[r]] != s->stamp) n++;
    s->stamps[label[r]] = s->stamp;
  }
  s->stamp++;
  return n;
}

/* What wide links hold together: links are put in widest first, class by class. */
static copse_status add_islands(struct sets *s) {
  const struct copse_topology *t = s->t;
  struct copse_link *links = NULL;
  int *label = NULL, islands = t->n_ranks;
  COPSE_DO(COPSE_ARRAY(s->scratch, (size_t)t->n_links, links, s->err));
  COPSE_DO(COPSE_ARRAY(s->scratch, (size_t)t->n_ranks, label, s->err));
  if (t->n_links > 0) memcpy(links, t->links, (size_t)t->n_links * sizeof *links);
  qsort(links, (size_t)t->n_links, sizeof *links, by_bandwidth);
  copse_sets_init(s->parent, t->n_nodes);
  for (int i = 0; i < t->n_links;) {
    struct copse_q bandwidth = links[i].bandwidth;
    for (; i < t->n_links && copse_q_eq(links[i].bandwidth, bandwidth); i++)
      (void)copse_sets_unite(s->parent, links[i].src, links[i].dst);
    int now = label_islands(s, label);
    if (now < islands) COPSE_DO(add_labels(s, label));
    islands = now;
  }
  return COPSE_OK;
}

static copse_status find_sets(struct sets *s) {
  int *label = NULL;
  COPSE_DO(COPSE_ARRAYS(s->scratch, (size_t)s->t->n_ranks, int, s->err, &s->depth, &label));
  COPSE_DO(COPSE_ARRAYS(s->scratch, (size_t)s->t->n_nodes, int, s->err, &s->parent, &s->stamps));
  s->stamp = 1;
  for (int r = 0; r < s->t->n_ranks; r++) label[r] = r;
  COPSE_DO(add_labels(s, label));
  COPSE_DO(add_hosts(s));
  return add_islands(s);
}

/* ---- how much goes over them ----------------------------------------------------------------- */

struct meter {
  const struct copse_topology *t;
  struct copse_err *err;
  struct copse_instance instance;
  struct copse_flow *flow;
  int64_t all; /* the sum of all capacities: more than any flow */
};

/* Joins the set's ranks to `source` and the others to `sink`, or (amount < 0) undoes it. */
static copse_status join(struct meter *m, const struct copse_place_group *set, bool leaving,
                         int64_t amount) {
  const struct copse_topology *t = m->t;
  int next = 0;
  int ends[2] = {t->n_nodes, t->n_nodes + 1};
  for (int r = 0; r < t->n_ranks; r++) {
    bool inside = next < set->n_members && set->members[next] == r;
    next += inside;
    if (inside == leaving)
      COPSE_DO(copse_flow_change(m->flow, ends[0], t->rank_nodes[r], amount, m->err));
    else
      COPSE_DO(copse_flow_change(m->flow, t->rank_nodes[r], ends[1], amount, m->err));
  }
  return COPSE_OK;
}

static copse_status measure(struct meter *m, const struct copse_place_group *set, bool leaving,
                            struct copse_q *bandwidth) {
  const struct copse_topology *t = m->t;
  int64_t value;
  COPSE_DO(join(m, set, leaving, m->all));
  value = copse_flow_max(m->flow, t->n_nodes, t->n_nodes + 1, m->all);
  COPSE_DO(join(m, set, leaving, -m->all));
  if (value == 0)
    return copse_fail(m->err, COPSE_INFEASIBLE,
                      leaving ? "rank '%s' can't reach the ranks outside of its group"
                              : "rank '%s' can't be reached from outside of its group",
                      t->nodes[t->rank_nodes[set->members[0]]].id);
  return copse_q_make(value, m->instance.scale, bandwidth, m->err);
}

static copse_status meter_new(struct meter *m) {
  const struct copse_topology *t = m->t;
  struct copse_err *err = m->err;
  COPSE_DO(copse_instance_scale(t, &m->instance, err));
  COPSE_DO(copse_flow_new(t->n_nodes + 2, &m->flow, err));
  for (int i = 0; i < t->n_links; i++) {
    const struct copse_net_link *l = &m->instance.links[i];
    if (copse_add_overflows(m->all, l->capacity, &m->all) ||
        m->all >= COPSE_FLOW_MAX / (t->n_ranks + 2))
      return copse_fail(err, COPSE_OVERFLOW,
                        "the bandwidths are too fine to add up in 64 bits; use fewer digits");
    COPSE_DO(copse_flow_change(m->flow, l->src, l->dst, l->capacity, err));
  }
  return COPSE_OK;
}

static void meter_free(struct meter *m) {
  copse_flow_free(m->flow);
  copse_instance_free(&m->instance);
}

static copse_status measure_all(const struct copse_topology *t, struct copse_place_cuts *out,
                                struct copse_err *err) {
  COPSE_AT_END(meter_free) struct meter m = {.t = t, .err = err};
  COPSE_DO(
      COPSE_ARRAYS(&out->arena, (size_t)out->n_cuts, struct copse_q, err, &out->out, &out->in));
  COPSE_DO(meter_new(&m));
  for (int i = 0; i < out->n_cuts; i++) {
    COPSE_DO(measure(&m, &out->groups[i], true, &out->out[i]));
    COPSE_DO(measure(&m, &out->groups[i], false, &out->in[i]));
  }
  return COPSE_OK;
}

/* ---- costs ----------------------------------------------------------------------------------- */

/* Costs unit / bandwidth as whole numbers; false where they are too large. */
static bool exact_costs(struct copse_place_cuts *c, int64_t tokens, double *unit_us) {
  int64_t unit = 1, most = 1, time;
  for (int i = 0; i < c->n_cuts; i++)
    if (copse_lcm(unit, c->out[i].num, &unit, NULL) != COPSE_OK ||
        copse_lcm(unit, c->in[i].num, &unit, NULL) != COPSE_OK)
      return false;
  for (int i = 0; i < c->n_cuts; i++) {
    struct copse_place_group *g = &c->groups[i];
    if (copse_mul_overflows(unit / c->out[i].num, c->out[i].den, &g->out_cost) ||
        copse_mul_overflows(unit / c->in[i].num, c->in[i].den, &g->in_cost))
      return false;
    if (g->out_cost > most) most = g->out_cost;
    if (g->in_cost > most) most = g->in_cost;
  }
  *unit_us = 1e-3 / (double)unit; /* a byte over 1 GB/s takes a nanosecond */
  return !copse_mul_overflows(most, tokens, &time) && time <= MAX_TIME;
}

/* floor(most * least / bandwidth): the narrowest cut costs `most`. */
static int64_t rounded_cost(struct copse_q least, struct copse_q bandwidth, int64_t most) {
  __int128 a = (__int128)least.num * bandwidth.den, b = (__int128)bandwidth.num * least.den;
  while (a > INT64_MAX || b > INT64_MAX) {
    a /= 2;
    b = b / 2 + 1; /* down in all: the cost must not come out above the true one */
  }
  return (int64_t)(a * most / b);
}

static copse_status rounded_costs(struct copse_place_cuts *c, int64_t tokens, double *unit_us,
                                  struct copse_err *err) {
  struct copse_q least = c->out[0];
  int64_t most = MAX_TIME / tokens < ROUNDED_COST ? MAX_TIME / tokens : ROUNDED_COST;
  if (most < 1000)
    return copse_fail(err, COPSE_OVERFLOW, "the trace has too many tokens to count times exactly");
  for (int i = 0; i < c->n_cuts; i++) {
    if (copse_q_cmp(c->out[i], least) < 0) least = c->out[i];
    if (copse_q_cmp(c->in[i], least) < 0) least = c->in[i];
  }
  for (int i = 0; i < c->n_cuts; i++) {
    c->groups[i].out_cost = rounded_cost(least, c->out[i], most);
    c->groups[i].in_cost = rounded_cost(least, c->in[i], most);
  }
  *unit_us = 1e-3 / (copse_q_to_double(least) * (double)most);
  return COPSE_OK;
}

/* ---- all together ---------------------------------------------------------------------------- */

copse_status copse_place_cuts_find(const struct copse_topology *topology, int64_t tokens,
                                   struct copse_place_cuts *out, double *unit_us,
                                   struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct sets s = {.t = topology, .cuts = out, .scratch = &scratch, .err = err};
  *out = (struct copse_place_cuts){0};
  *unit_us = 1;
  COPSE_DO(find_sets(&s));
  COPSE_DO(measure_all(topology, out, err));
  if (tokens < 1) tokens = 1;
  if (out->n_cuts == 0 || exact_costs(out, tokens, unit_us)) return COPSE_OK;
  return rounded_costs(out, tokens, unit_us, err);
}

void copse_place_cuts_free(struct copse_place_cuts *cuts) { copse_arena_free(&cuts->arena); }
