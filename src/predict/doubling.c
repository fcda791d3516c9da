/*
 * Allreduces in stages. The groups of a stage are the ranks that differ in one digit of their
 * numbers; every rank's sum goes through its group along a breadth-first tree over the group's own
 * ranks, of equal ways the one over the least loaded links.
 *
 *   16 ranks as 4x4:   stage 1: 0-1-2-3, 4-5-6-7, ...    stage 2: 0-4-8-12, 1-5-9-13, ...
 *
 * Which digits: all ways to write the number of ranks as a product, from the last digit on, but
 * those that another one beats in latency and load (a shortest path with two weights, P. Hansen,
 * Bicriterion path problems, 1980). Numbers follow the fabric in tori, hypercubes, hosts and pods;
 * where they don't, one stage of all ranks is left, in as many hops as the fabric is wide.
 */
#include "predict/doubling.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "predict/baseline.h"
#include "predict/policy.h"
#include "schedule/loads.h"

/* One stage of all ranks, in groups of `base` that are `stride` apart. */
struct stage {
  const struct copse_topology *topology;
  const struct copse_routes *routes;
  int stride, base;
  int64_t *load; /* [n_links] trees */
  int *sends;    /* [n_ranks] messages */
  double us;     /* of the tree that takes longest, each hop with the default alpha */
  struct copse_arena scratch;
  struct copse_err *err;
};

/* Over relays alone. */
static bool is_hop(const struct copse_topology *t, const int *nodes, int n) {
  for (int i = 1; i + 1 < n; i++)
    if (t->nodes[nodes[i]].rank >= 0) return false;
  return n >= 2;
}

static int link_of(const struct copse_topology *t, const int *nodes, int i) {
  return copse_topology_find_link(t, nodes[i], nodes[i + 1]);
}

/* The most that a link of a way from rank to rank has to carry, in us per byte; infinite where
 * there is no hop. */
static double busiest(const struct stage *s, int src, int dst) {
  int n;
  const int *nodes = copse_route(s->routes, src, dst, &n);
  double most = 0;
  if (!is_hop(s->topology, nodes, n)) return INFINITY;
  for (int i = 0; i + 1 < n; i++) {
    int link = link_of(s->topology, nodes, i);
    double bandwidth = copse_q_to_double(s->topology->links[link].bandwidth);
    most = fmax(most, (double)(s->load[link] + 1) / bandwidth);
  }
  return most;
}

static copse_status add_edge(struct stage *s, int src, int dst, struct copse_arena *arena,
                             struct copse_schedule_edge *edge, double *us) {
  int n, *path;
  const int *nodes = copse_route_take(s->topology, s->routes, src, dst, 1, s->load, &n);
  *us += ALPHA_US;
  s->sends[src]++;
  for (int i = 0; i + 1 < n; i++)
    *us += copse_q_to_double(s->topology->links[link_of(s->topology, nodes, i)].latency);
  COPSE_DO(COPSE_ARRAY(arena, (size_t)n, path, s->err));
  memcpy(path, nodes, (size_t)n * sizeof *path);
  *edge = (struct copse_schedule_edge){src, dst, path, n};
  return COPSE_OK;
}

/* The rank with this digit, others as in `rank`. */
static int with_digit(const struct stage *s, int rank, int digit) {
  return rank + (digit - rank / s->stride % s->base) * s->stride;
}

/* Of those that were reached at `level`, the one from which the way is loaded least; -1: none. */
static int find_parent(const struct stage *s, int root, const int *reached, int level, int digit) {
  double least = INFINITY;
  int parent = -1;
  for (int p = 0; p < s->base; p++) {
    if (reached[p] != level) continue;
    double load = busiest(s, with_digit(s, root, p), with_digit(s, root, digit));
    if (load >= least) continue;
    least = load;
    parent = p;
  }
  return parent;
}

/* From the root to all of its group, hop by hop; COPSE_UNSUPPORTED where that can't be. */
static copse_status grow(struct stage *s, struct copse_arena *arena,
                         struct copse_schedule_tree *tree) {
  int root = tree->root, *reached; /* [base] level, from 1 */
  struct copse_schedule_edge *edges;
  double *us;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)s->base, edges, s->err));
  COPSE_DO(COPSE_ARRAY(&s->scratch, (size_t)s->base, reached, s->err));
  COPSE_DO(COPSE_ARRAY(&s->scratch, (size_t)s->base, us, s->err));
  reached[root / s->stride % s->base] = 1;
  for (int level = 1, before = -1; tree->n_edges < s->base - 1; level++) {
    if (tree->n_edges == before)
      return copse_fail(s->err, COPSE_UNSUPPORTED, "a group has ranks that none of it reaches");
    before = tree->n_edges;
    for (int turn = 1; turn < s->base; turn++) { /* the next rank first */
      int d = (root / s->stride + turn) % s->base;
      int parent = reached[d] ? -1 : find_parent(s, root, reached, level, d);
      if (parent < 0) continue;
      us[d] = us[parent];
      reached[d] = level + 1;
      COPSE_DO(add_edge(s, with_digit(s, root, parent), with_digit(s, root, d), arena,
                        &edges[tree->n_edges++], &us[d]));
      s->us = fmax(s->us, us[d]);
    }
  }
  tree->edges = edges;
  return COPSE_OK;
}

static void end_stage(struct stage *s) { copse_arena_free(&s->scratch); }

/* trees [n_ranks], in the arena; *us and *load: of the highest tree and the busiest rank, and of
 * the busiest link. */
static copse_status make_stage(const struct copse_topology *t, const struct copse_routes *routes,
                               int stride, int base, struct copse_arena *arena,
                               struct copse_schedule_tree *trees, double *us, double *load,
                               struct copse_err *err) {
  COPSE_AT_END(end_stage)
  struct stage s = {.topology = t, .routes = routes, .stride = stride, .base = base, .err = err};
  COPSE_DO(COPSE_ARRAY(&s.scratch, (size_t)t->n_links, s.load, err));
  COPSE_DO(COPSE_ARRAY(&s.scratch, (size_t)t->n_ranks, s.sends, err));
  for (int r = 0; r < t->n_ranks; r++) {
    trees[r] = (struct copse_schedule_tree){.root = r, .phase = COPSE_PHASE_BROADCAST};
    COPSE_DO(grow(&s, arena, &trees[r]));
  }
  *load = 0;
  int most = 0;
  for (int r = 0; r < t->n_ranks; r++) most = s.sends[r] > most ? s.sends[r] : most;
  *us = s.us + most * MESSAGE_US;
  for (int l = 0; l < t->n_links; l++)
    *load = fmax(*load, (double)s.load[l] / copse_q_to_double(t->links[l].bandwidth));
  return COPSE_OK;
}

/* ---- which digits -------------------------------------------------------------------------- */

/* Digits of the numbers below a divisor of the number of ranks, and what their stages take. */
struct label {
  struct copse_doubling digits;
  double us, load;
};

struct labels {
  struct label list[COPSE_MOST_DOUBLINGS / 2];
  int n;
};

/* Takes one in that no other beats, in place of those that it beats, while there is room. */
static void add_label(struct labels *to, const struct label *it) {
  int n = 0;
  for (int i = 0; i < to->n; i++)
    if (to->list[i].us <= it->us * (1 + SAME_TIME) &&
        to->list[i].load <= it->load * (1 + SAME_TIME))
      return;
  for (int i = 0; i < to->n; i++)
    if (to->list[i].us < it->us || to->list[i].load < it->load) to->list[n++] = to->list[i];
  if (n < COPSE_MOST_DOUBLINGS / 2) to->list[n++] = *it;
  to->n = n;
}

/* All labels of a divisor with one digit more. */
static copse_status extend(const struct copse_topology *t, const struct copse_routes *routes,
                           struct labels *all, int stride, int base, struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct copse_err why = COPSE_ERR_INIT;
  struct copse_schedule_tree *trees;
  double us, load;
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)t->n_ranks, trees, err));
  copse_status status = make_stage(t, routes, stride, base, &scratch, trees, &us, &load, &why);
  if (status == COPSE_UNSUPPORTED) return COPSE_OK;
  if (status != COPSE_OK) return copse_fail(err, status, "%s", why.text);
  for (int i = 0; i < all[stride].n; i++) {
    struct label it = all[stride].list[i];
    if (it.digits.n_digits == COPSE_DOUBLING_DIGITS) continue;
    it.digits.bases[it.digits.n_digits++] = base;
    it.us += us;
    it.load += load;
    add_label(&all[stride * base], &it);
  }
  return COPSE_OK;
}

copse_status copse_doublings_find(const struct copse_topology *t, const struct copse_routes *routes,
                                  struct copse_doubling *list, int *n, struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct labels *all; /* [n_ranks + 1] by divisor */
  *n = 0;
  if (t->n_ranks < 2 || t->n_ranks > MOST_DOUBLED) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)t->n_ranks + 1, all, err));
  all[1].n = 1;
  for (int stride = 1; stride < t->n_ranks; stride++)
    for (int base = 2; all[stride].n > 0 && stride * base <= t->n_ranks; base++)
      if (t->n_ranks % (stride * base) == 0 && base <= MOST_GROUP &&
          t->n_ranks * (base - 1) <= MOST_TRANSFERS)
        COPSE_DO(extend(t, routes, all, stride, base, err));
  const struct labels *found = &all[t->n_ranks];
  for (int i = 0; i < found->n; i++) {
    list[(*n)++] = found->list[i].digits;
    if (found->list[i].digits.n_digits == 1) continue;
    list[*n] = found->list[i].digits;
    list[(*n)++].turned = true;
  }
  return COPSE_OK;
}

/* ---- the schedule -------------------------------------------------------------------------- */

/* Stages in the arena, by digit and root: [n_digits * n_ranks]. */
static copse_status make_trees(const struct copse_topology *t, const struct copse_routes *routes,
                               const struct copse_doubling *d, struct copse_arena *arena,
                               struct copse_schedule_tree *trees, struct copse_err *err) {
  double us, load;
  int stride = 1;
  for (int i = 0; i < d->n_digits; stride *= d->bases[i++])
    COPSE_DO(
        make_stage(t, routes, stride, d->bases[i], arena, trees + i * t->n_ranks, &us, &load, err));
  return COPSE_OK;
}

copse_status copse_doubling_make(const struct copse_topology *t, const struct copse_routes *routes,
                                 const struct copse_doubling *d, struct copse_schedule **out,
                                 struct copse_err *err) {
  const struct copse_baseline_options like = {.collective = COPSE_ALLREDUCE, .root = -1};
  COPSE_AT_END(copse_schedule_free_at) struct copse_schedule *s = NULL;
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct copse_schedule_tree *trees, *digits;
  int pieces = d->turned ? d->n_digits : 1, n = 0;
  size_t stages = (size_t)d->n_digits * (size_t)t->n_ranks;
  COPSE_DO(copse_baseline_make(t, COPSE_BASELINE_DIRECT, &like, &s, NULL, err));
  COPSE_DO(COPSE_ARRAY(&s->arena, stages * (size_t)pieces, trees, err));
  COPSE_DO(COPSE_ARRAY(&scratch, stages, digits, err));
  COPSE_DO(make_trees(t, routes, d, &s->arena, digits, err));
  for (int p = 0; p < pieces; p++)
    for (int i = 0; i < d->n_digits; i++)
      for (int r = 0; r < t->n_ranks; r++) {
        trees[n] = digits[(p + i) % d->n_digits * t->n_ranks + r];
        trees[n].weight = (struct copse_q){1, pieces};
        trees[n].piece = p;
        trees[n++].stage = i + 1;
      }
  s->trees = trees;
  s->n_trees = n;
  s->k = copse_schedule_unit_k(s);
  COPSE_DO(copse_tree_time(t, trees, (size_t)n, &s->time_per_GB, err));
  *out = s;
  s = NULL;
  return COPSE_OK;
}

const char *copse_doubling_name(const struct copse_doubling *d, char name[COPSE_DOUBLING_NAME]) {
  size_t n = (size_t)snprintf(name, COPSE_DOUBLING_NAME, "stages %d", d->bases[0]);
  for (int i = 1; i < d->n_digits; i++)
    n += (size_t)snprintf(name + n, COPSE_DOUBLING_NAME - n, "x%d", d->bases[i]);
  if (d->turned) snprintf(name + n, COPSE_DOUBLING_NAME - n, " turned");
  return name;
}
