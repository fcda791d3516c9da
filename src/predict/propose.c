/*
 * The one maker of schedules to choose among: solver, fewer trees, equal shares, baselines,
 * allreduces in stages. The stages are chosen as shortest paths with two weights (P. Hansen,
 * Bicriterion path problems, 1980).
 */
#include "predict/propose.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "codegen/lower/policy.h"
#include "codegen/lower/work.h"
#include "predict/baseline.h"
#include "predict/doubling.h"
#include "predict/policy.h"
#include "schedule/adapt.h"
#include "schedule/loads.h"
#include "topology/modify.h"
#include "verify/verify.h"

/* ==== allreduces in stages ==================================================================== */

/*
 * Allreduces in stages. The groups of a stage are the ranks that differ in one digit of their
 * numbers; every rank's sum goes through its group along a breadth-first tree over the group's own
 * ranks, of equal ways the one over the least loaded links.
 *
 *   16 ranks as 4x4:   stage 1: 0-1-2-3, 4-5-6-7, ...    stage 2: 0-4-8-12, 1-5-9-13, ...
 *
 * Where the first digit is scattered M is in 4 pieces. The sum of the first is made at 0 of
 * 0-1-2-3, at 4 of 4-5-6-7; then 0, 4, 8 and 12 send each other theirs, and all others get them
 * from those.
 *
 * Which digits: all ways to write the number of ranks as a product, from the last digit on, but
 * those that another one beats in latency and load (a shortest path with two weights, P. Hansen,
 * Bicriterion path problems, 1980). Numbers follow the fabric in tori, hypercubes, hosts and pods;
 * where they don't, one stage of all ranks is left, in as many hops as the fabric is wide.
 */

/* One stage of all ranks, in groups of `base` that are `stride` apart. */
struct stage {
  const struct copse_topology *topology;
  const struct copse_routes *routes;
  int stride, base;
  int64_t *load; /* [n_links] trees */
  int *sends;    /* [n_ranks] messages */
  int *puts;     /* [n_ranks] trees that they go along */
  double us;     /* of the tree that takes longest, each hop with the default alpha */
  struct copse_arena scratch;
  struct copse_err *err;
};

static int link_of(const struct copse_topology *t, const int *nodes, int i) {
  return copse_topology_find_link(t, nodes[i], nodes[i + 1]);
}

/* Returns the most that a link of a way from rank to rank has to carry, in us per byte; infinite
 * where there is no hop. */
static double busiest(const struct stage *s, int src, int dst) {
  int n;
  const int *nodes = copse_route(s->routes, src, dst, &n);
  double most = 0;
  if (!copse_route_is_hop(s->topology, nodes, n)) return INFINITY;
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

/* Returns the rank with this digit, others as in `rank`. */
static int with_digit(const struct stage *s, int rank, int digit) {
  return rank + (digit - rank / s->stride % s->base) * s->stride;
}

/* Finds, of those reached at `level`, the one from which the way is loaded least; -1: none. */
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

/* Grows from the root to all of its group, hop by hop; COPSE_UNSUPPORTED where that can't be. */
static copse_status grow(struct stage *s, struct copse_arena *arena,
                         struct copse_schedule_tree *tree) {
  int root = tree->root, *reached, *n_puts; /* [base] level, from 1; messages */
  struct copse_schedule_edge *edges;
  double *us;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)s->base, edges, s->err));
  COPSE_DO(COPSE_ARRAYS(&s->scratch, (size_t)s->base, int, s->err, &reached, &n_puts));
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
      s->puts[with_digit(s, root, parent)] += n_puts[parent]++ == 0;
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

/* Turns the same tree around for sums on their way to the root. */
static copse_status turn_around(struct stage *s, struct copse_arena *arena,
                                struct copse_schedule_tree *tree) {
  const struct copse_schedule_edge *from = tree->edges;
  struct copse_schedule_edge *edges;
  double ignored;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)s->base, edges, s->err));
  for (int e = tree->n_edges - 1, i = 0; e >= 0; e--, i++) {
    if (isinf(busiest(s, from[e].dst, from[e].src)))
      return copse_fail(s->err, COPSE_UNSUPPORTED, "there is no hop back");
    COPSE_DO(add_edge(s, from[e].dst, from[e].src, arena, &edges[i], &ignored));
  }
  tree->edges = edges;
  tree->phase = COPSE_PHASE_REDUCE;
  return COPSE_OK;
}

/* Makes trees [n_ranks], in the arena; us [2] and *load: of the highest tree and the busiest rank,
 * its puts dealt to workers or by one, and of the busiest link. */
static copse_status make_stage(const struct copse_topology *t, const struct copse_routes *routes,
                               int stride, int base, struct copse_arena *arena,
                               struct copse_schedule_tree *trees, double us[2], double *load,
                               struct copse_err *err) {
  COPSE_AT_END(end_stage)
  struct stage s = {.topology = t, .routes = routes, .stride = stride, .base = base, .err = err};
  COPSE_DO(COPSE_ARRAY(&s.scratch, (size_t)t->n_links, s.load, err));
  COPSE_DO(COPSE_ARRAYS(&s.scratch, (size_t)t->n_ranks, int, err, &s.sends, &s.puts));
  for (int r = 0; r < t->n_ranks; r++) {
    trees[r] = (struct copse_schedule_tree){.root = r, .phase = COPSE_PHASE_BROADCAST};
    COPSE_DO(grow(&s, arena, &trees[r]));
  }
  *load = 0;
  int most[2] = {0, 0}; /* of a worker: who puts in one tree alone may share them with others */
  for (int r = 0; r < t->n_ranks; r++) {
    int of = s.puts[r] > 1 ? 1 : COPSE_POLICY_WORKERS, n = (s.sends[r] + of - 1) / of;
    most[0] = n > most[0] ? n : most[0];
    most[1] = s.sends[r] > most[1] ? s.sends[r] : most[1];
  }
  for (int i = 0; i < 2; i++) us[i] = s.us + most[i] * COPSE_MESSAGE_US;
  for (int l = 0; l < t->n_links; l++)
    *load = fmax(*load, (double)s.load[l] / copse_q_to_double(t->links[l].bandwidth));
  return COPSE_OK;
}

/* Turns the trees of a stage [n_ranks] around for sums on their way to the roots; COPSE_UNSUPPORTED
 * where there are no hops back. */
static copse_status turn_stage(const struct copse_topology *t, const struct copse_routes *routes,
                               int base, struct copse_arena *arena,
                               struct copse_schedule_tree *trees, struct copse_err *err) {
  COPSE_AT_END(end_stage)
  struct stage s = {.topology = t, .routes = routes, .base = base, .err = err};
  COPSE_DO(COPSE_ARRAY(&s.scratch, (size_t)t->n_links, s.load, err));
  COPSE_DO(COPSE_ARRAY(&s.scratch, (size_t)t->n_ranks, s.sends, err));
  for (int r = 0; r < t->n_ranks; r++) COPSE_DO(turn_around(&s, arena, &trees[r]));
  return COPSE_OK;
}

/* ---- which digits -------------------------------------------------------------------------- */

/* The digits that write the numbers below a divisor of the number of ranks; the time of their
 * stages; and the part of M that is left for the stages that follow. */
struct label {
  struct copse_doubling digits;
  double us[2], load, share; /* us as of make_stage */
};

struct labels {
  struct label list[COPSE_MOST_DOUBLINGS / 2];
  int n;
};

static bool beats(const struct label *a, const struct label *b) {
  return a->us[0] <= b->us[0] * (1 + SAME_TIME) && a->us[1] <= b->us[1] * (1 + SAME_TIME) &&
         a->load <= b->load * (1 + SAME_TIME) && a->share <= b->share;
}

/* Adds a label that no other beats, and drops the labels that it beats, while there is room. */
static void add_label(struct labels *to, const struct label *it) {
  int n = 0;
  for (int i = 0; i < to->n; i++)
    if (beats(&to->list[i], it)) return;
  for (int i = 0; i < to->n; i++)
    if (!beats(it, &to->list[i])) to->list[n++] = to->list[i];
  if (n < COPSE_MOST_DOUBLINGS / 2) to->list[n++] = *it;
  to->n = n;
}

/* Counts the pieces that M is in, by turns from a digit on: each scattered digit cuts all before
 * it. */
static int pieces_of(const struct copse_doubling *d, int first) {
  int pieces = 1;
  for (int i = 0; i < d->n_scattered; i++) pieces *= d->bases[(first + i) % d->n_digits];
  return pieces;
}

static int pieces_of_all(const struct copse_doubling *d) {
  int pieces = 0;
  for (int turn = 0; turn < (d->turned ? d->n_digits : 1); turn++) pieces += pieces_of(d, turn);
  return pieces;
}

/* Adds a label with a digit more, whose stage takes so much of all of M; with `scatters` there and
 * back. */
static void add_digit(const struct label *from, int base, bool scatters, bool ends,
                      const double us[2], double load, struct labels *to) {
  struct label it = *from;
  if (it.digits.n_digits == COPSE_DOUBLING_DIGITS) return;
  if (scatters && (it.digits.n_scattered < it.digits.n_digits || ends)) return;
  it.digits.bases[it.digits.n_digits++] = base;
  it.digits.n_scattered += scatters;
  for (int i = 0; i < 2; i++) it.us[i] += us[i] * (scatters ? 2 : 1);
  it.load += it.share * load * (scatters ? 2.0 / base : 1);
  it.share = ends ? 0 : scatters ? it.share / base : it.share;
  if (pieces_of(&it.digits, 0) <= MOST_SCATTERED) add_label(to, &it);
}

/* Extends all labels of a divisor by one digit. */
static copse_status extend(const struct copse_topology *t, const struct copse_routes *routes,
                           struct labels *all, int stride, int base, struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct copse_err why = COPSE_ERR_INIT;
  struct copse_schedule_tree *trees;
  double us[2], load;
  bool ends = stride * base == t->n_ranks;
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)t->n_ranks, trees, err));
  copse_status status = make_stage(t, routes, stride, base, &scratch, trees, us, &load, &why);
  for (int scatters = 0; scatters < 2 && status == COPSE_OK; scatters++) {
    for (int i = 0; i < all[stride].n; i++)
      add_digit(&all[stride].list[i], base, scatters, ends, us, load, &all[stride * base]);
    if (scatters == 0) status = turn_stage(t, routes, base, &scratch, trees, &why);
  }
  if (status == COPSE_OK || status == COPSE_UNSUPPORTED) return COPSE_OK;
  return copse_fail(err, status, "%s", why.text);
}

/* Makes stages in the arena, by digit and root: [n_digits * n_ranks]. */
static copse_status make_trees(const struct copse_topology *t, const struct copse_routes *routes,
                               const struct copse_doubling *d, enum copse_phase phase,
                               struct copse_arena *arena, struct copse_schedule_tree *trees,
                               struct copse_err *err) {
  double us[2], load;
  for (int i = 0, stride = 1; i < d->n_digits; stride *= d->bases[i++]) {
    struct copse_schedule_tree *of = trees + i * t->n_ranks;
    COPSE_DO(make_stage(t, routes, stride, d->bases[i], arena, of, us, &load, err));
    if (phase == COPSE_PHASE_REDUCE) COPSE_DO(turn_stage(t, routes, d->bases[i], arena, of, err));
  }
  return COPSE_OK;
}

/* Whether M is in few enough pieces, and digits can be scattered that weren't. */
static copse_status check_turned(const struct copse_topology *t, const struct copse_routes *routes,
                                 const struct copse_doubling *d, bool *turns,
                                 struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct copse_err why = COPSE_ERR_INIT;
  struct copse_schedule_tree *trees;
  *turns = d->n_digits > 1 && (d->n_scattered == 0 || pieces_of_all(d) <= MOST_SCATTERED);
  if (d->n_scattered == 0 || !*turns) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)t->n_ranks * (size_t)d->n_digits, trees, err));
  copse_status status = make_trees(t, routes, d, COPSE_PHASE_REDUCE, &scratch, trees, &why);
  *turns = status == COPSE_OK;
  if (status == COPSE_OK || status == COPSE_UNSUPPORTED) return COPSE_OK;
  return copse_fail(err, status, "%s", why.text);
}

copse_status copse_doublings_find(const struct copse_topology *t, const struct copse_routes *routes,
                                  struct copse_doubling *list, int *n, struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct labels *all; /* [n_ranks + 1] by divisor */
  *n = 0;
  if (t->n_ranks < 2 || t->n_ranks > MOST_DOUBLED) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)t->n_ranks + 1, all, err));
  all[1] = (struct labels){.list = {{.share = 1}}, .n = 1};
  for (int stride = 1; stride < t->n_ranks; stride++)
    for (int base = 2; all[stride].n > 0 && stride * base <= t->n_ranks; base++)
      if (t->n_ranks % (stride * base) == 0 && base <= MOST_GROUP &&
          t->n_ranks * (base - 1) <= MOST_TRANSFERS)
        COPSE_DO(extend(t, routes, all, stride, base, err));
  const struct labels *found = &all[t->n_ranks];
  for (int i = 0; i < found->n; i++) {
    struct copse_doubling turned = found->list[i].digits;
    list[(*n)++] = turned;
    turned.turned = true;
    bool turns;
    COPSE_DO(check_turned(t, routes, &turned, &turns, err));
    if (turns) list[(*n)++] = turned;
  }
  return COPSE_OK;
}

/* ---- the schedule -------------------------------------------------------------------------- */

struct doubling {
  const struct copse_doubling *d;
  int n_ranks, strides[COPSE_DOUBLING_DIGITS];
  const struct copse_schedule_tree *there, *back; /* [n_digits * n_ranks] */
  struct copse_schedule_tree *trees;
  int n_trees, n_pieces;
};

/* Whether a rank has the piece that comes `number`-th of those that begin with a digit when so many
 * digits are scattered. */
static bool holds(const struct doubling *m, int first, int number, int n_scattered, int rank) {
  bool held = true;
  for (int i = 0; i < n_scattered; i++) {
    int digit = (first + i) % m->d->n_digits, base = m->d->bases[digit];
    held = held && rank / m->strides[digit] % base == number % base;
    number /= base;
  }
  return held;
}

/* Adds a piece in so many stages: digits are scattered, go from all to all, and are gathered in
 * turn. */
static void add_piece(struct doubling *m, int first, int number, struct copse_q weight) {
  int digits = m->d->n_digits, scattered = m->d->n_scattered;
  for (int i = 0; i < digits + scattered; i++) {
    int turn = i < digits ? i : digits + scattered - 1 - i;
    int held = turn < scattered ? turn + 1 : scattered, digit = (first + turn) % digits;
    const struct copse_schedule_tree *from = i < scattered ? m->back : m->there;
    for (int r = 0; r < m->n_ranks; r++) {
      if (!holds(m, first, number, held, r)) continue;
      struct copse_schedule_tree *tree = &m->trees[m->n_trees++];
      *tree = from[digit * m->n_ranks + r];
      tree->weight = weight;
      tree->piece = m->n_pieces;
      tree->stage = i + 1;
    }
  }
  m->n_pieces++;
}

copse_status copse_doubling_make(const struct copse_topology *t, const struct copse_routes *routes,
                                 const struct copse_doubling *d, struct copse_schedule **out,
                                 struct copse_err *err) {
  const struct copse_baseline_options like = {.collective = COPSE_ALLREDUCE, .root = -1};
  COPSE_AT_END(copse_schedule_free_at) struct copse_schedule *s = NULL;
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct copse_schedule_tree *there, *back;
  struct doubling m = {.d = d, .n_ranks = t->n_ranks, .strides = {1}};
  int turns = d->turned ? d->n_digits : 1;
  size_t stages = (size_t)d->n_digits * (size_t)t->n_ranks;
  for (int i = 1; i < d->n_digits; i++) m.strides[i] = m.strides[i - 1] * d->bases[i - 1];
  COPSE_DO(copse_baseline_make(t, COPSE_BASELINE_DIRECT, &like, &s, NULL, err));
  COPSE_DO(
      COPSE_ARRAY(&s->arena, 2 * stages * (size_t)pieces_of_all(d), m.trees, err)); /* at most */
  COPSE_DO(COPSE_ARRAYS(&scratch, stages, struct copse_schedule_tree, err, &there, &back));
  COPSE_DO(make_trees(t, routes, d, COPSE_PHASE_BROADCAST, &s->arena, there, err));
  if (d->n_scattered > 0)
    COPSE_DO(make_trees(t, routes, d, COPSE_PHASE_REDUCE, &s->arena, back, err));
  m.there = there;
  m.back = back;
  for (int turn = 0; turn < turns; turn++)
    for (int i = 0, n = pieces_of(d, turn); i < n; i++)
      add_piece(&m, turn, i, (struct copse_q){1, turns * n});
  s->trees = m.trees;
  s->n_trees = m.n_trees;
  s->k = copse_schedule_unit_k(s);
  COPSE_DO(copse_tree_time(t, m.trees, (size_t)m.n_trees, &s->time_per_GB, err));
  *out = s;
  s = NULL;
  return COPSE_OK;
}

static const char *doubling_name(const struct copse_doubling *d, char name[COPSE_DOUBLING_NAME]) {
  size_t n = (size_t)snprintf(name, COPSE_DOUBLING_NAME, "stages %d", d->bases[0]);
  for (int i = 1; i < d->n_digits; i++)
    n += (size_t)snprintf(name + n, COPSE_DOUBLING_NAME - n, "x%d", d->bases[i]);
  if (d->turned) n += (size_t)snprintf(name + n, COPSE_DOUBLING_NAME - n, " turned");
  if (d->n_scattered > 0)
    snprintf(name + n, COPSE_DOUBLING_NAME - n, ", %d scattered", d->n_scattered);
  return name;
}

/* ==== proposals =============================================================================== */

struct proposing {
  const struct copse_proposer *p;
  const struct copse_schedule *first;
  struct copse_topology *balanced; /* NULL: the topology is */
  struct copse_err *err;
};

static void release(struct proposing *g) { copse_topology_free(g->balanced); }

int copse_proposal_hops(const struct copse_schedule *schedule) {
  bool twice = schedule->collective == COPSE_ALLREDUCE && !copse_schedule_doubles(schedule);
  return copse_schedule_height(schedule) * (twice ? 2 : 1);
}

copse_status copse_proposal_check(const struct copse_topology *topology,
                                  const struct copse_schedule *schedule, const char *name,
                                  struct copse_err *err) {
  struct copse_verify_report report;
  struct copse_err why = COPSE_ERR_INIT;
  copse_status status = copse_verify_schedule(schedule, topology, "schedule", &report, &why);
  if (status == COPSE_OK) return COPSE_OK;
  return copse_fail(err, status == COPSE_REFUTED ? COPSE_INTERNAL : status,
                    "the %s schedule fails verification: %s", name, why.text);
}

bool copse_proposal_beats(const struct copse_schedule *a, const struct copse_schedule *b,
                          int64_t most_edges) {
  int64_t edges = copse_schedule_edges(b);
  return edges > most_edges && copse_schedule_edges(a) < edges &&
         copse_q_cmp(a->time_per_GB, b->time_per_GB) <= 0 &&
         copse_proposal_hops(a) <= copse_proposal_hops(b);
}

/* ---- of another topology ------------------------------------------------------------------ */

struct mending {
  const struct copse_topology *t;
  const struct copse_routes *routes;
};

/* Replaces a way between two ranks that is not there. */
static copse_status mend_way(void *context, struct copse_arena *arena, int src, int dst,
                             const int **path, int *n_path, struct copse_err *err) {
  const struct mending *m = context;
  bool is_there = true;
  int n, *nodes;
  for (int i = 0; i + 1 < *n_path && is_there; i++)
    is_there = (*path)[i] >= 0 && (*path)[i + 1] >= 0 &&
               copse_topology_find_link(m->t, (*path)[i], (*path)[i + 1]) >= 0;
  if (is_there) return COPSE_OK;
  if (!m->routes) return copse_fail(err, COPSE_UNSUPPORTED, "too many pairs of ranks for routes");
  const int *route = copse_route(m->routes, src, dst, &n);
  if (!copse_route_is_hop(m->t, route, n))
    return copse_fail(err, COPSE_UNSUPPORTED, "ranks between two ranks");
  COPSE_DO(COPSE_ARRAY(arena, (size_t)n, nodes, err));
  memcpy(nodes, route, (size_t)n * sizeof *nodes);
  *path = nodes;
  *n_path = n;
  return COPSE_OK;
}

/* Takes, of trees, the cut that bounds a direct exchange, and so any schedule. */
static copse_status take_bound(const struct copse_topology *t, const struct copse_schedule *like,
                               struct copse_schedule *s, struct copse_err *err) {
  const struct copse_baseline_options of = {.collective = s->collective, .root = s->root};
  COPSE_AT_END(copse_schedule_free_at) struct copse_schedule *direct = NULL;
  int *cut;
  s->bound_at = NULL;
  s->routes = NULL; /* another topology may have other routes */
  if (s->collective == COPSE_ALLTOALL) {
    s->bound = like->bound;
    return copse_arena_text(&s->arena, like->topology_sha256, &s->topology_sha256, err);
  }
  COPSE_DO(copse_baseline_make(t, COPSE_BASELINE_DIRECT, &of, &direct, NULL, err));
  COPSE_DO(copse_arena_text(&s->arena, direct->topology_sha256, &s->topology_sha256, err));
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)direct->bound.n_cut, cut, err));
  memcpy(cut, direct->bound.cut, (size_t)direct->bound.n_cut * sizeof *cut);
  s->bound = direct->bound;
  s->bound.cut = cut;
  return COPSE_OK;
}

/* Replaces a path over what is not there by the fabric's own route. The bound is one of any
 * schedule, like's where that is of lengths. */
static copse_status place_on(const struct copse_topology *t, const struct copse_routes *routes,
                             const struct copse_schedule *like, struct copse_schedule *s,
                             struct copse_err *err) {
  COPSE_DO(copse_schedule_place(s, t, err));
  COPSE_DO(copse_arena_text(&s->arena, t->name, &s->topology_name, err));
  COPSE_DO(copse_schedule_change_ways(s, mend_way, &(struct mending){t, routes}, err));
  COPSE_DO(take_bound(t, like, s, err));
  return s->n_flows > 0 ? copse_flow_time(t, s->flows, s->n_flows, &s->time_per_GB, err)
                        : copse_tree_time(t, s->trees, (size_t)s->n_trees, &s->time_per_GB, err);
}

copse_status copse_proposal_adopt(const struct copse_topology *t, enum copse_proposal_way way,
                                  const struct copse_routes *routes,
                                  const struct copse_schedule *like, struct copse_schedule *s,
                                  struct copse_err *err) {
  struct copse_verify_report report;
  struct copse_err why = COPSE_ERR_INIT;
  if (way == COPSE_PROPOSAL_MENDED) {
    bool repaired;
    COPSE_DO(copse_schedule_repair(s, t, &repaired, err));
    if (!repaired) return copse_fail(err, COPSE_UNSUPPORTED, "trees that can't be mended");
    s->bound = like->bound;
  } else {
    COPSE_DO(place_on(t, way == COPSE_PROPOSAL_REROUTED ? routes : NULL, like, s, err));
    if (s->collective == COPSE_ALLTOALL || copse_schedule_doubles(s))
      return copse_proposal_check(t, s, "healthy", err);
    const struct copse_bound of_any = s->bound;
    s->bound = like->bound; /* which lasts as long, and says more where it holds for these trees */
    if (copse_verify_schedule(s, t, "schedule", &report, &why) == COPSE_OK) return COPSE_OK;
    s->bound = of_any;
  }
  return copse_proposal_check(t, s, "healthy", err);
}

/* ==== proposals =============================================================================== */

static bool wants(const struct copse_proposer *p, const char *name) {
  return !p->wants || p->wants(p->context, name);
}

/* Hands a schedule on; releases it where it is not right. */
static copse_status offer(struct proposing *g, struct copse_schedule *schedule, const char *name) {
  const struct copse_topology *t = g->p->topology;
  struct copse_err why = COPSE_ERR_INIT;
  schedule->others_excluded = t->others_excluded;
  copse_status status = copse_proposal_check(t, schedule, name, &why);
  if (status == COPSE_OK) status = copse_schedule_expand(schedule, &why);
  if (status != COPSE_OK) copse_schedule_free(schedule);
  if (status == COPSE_OVERFLOW && g->first) return COPSE_OK;
  if (status != COPSE_OK) return copse_fail(g->err, status, "%s", why.text);
  if (!g->first) g->first = schedule;
  return g->p->take(g->p->context, schedule, name, g->err);
}

/* Adopts a schedule for the balanced topology, which has the same nodes, as one of the real one. */
static copse_status adopt(struct proposing *g, struct copse_schedule *schedule) {
  COPSE_DO(copse_schedule_expand(schedule, g->err));
  return place_on(g->p->topology, g->p->routes, NULL, schedule, g->err);
}

/* Solves; where relays are out of balance, with links narrowed. */
static copse_status solve(struct proposing *g, const struct copse_solve_options *options,
                          struct copse_schedule **out, struct copse_solve_seconds *seconds) {
  const struct copse_topology *t = g->p->topology;
  struct copse_err why = COPSE_ERR_INIT;
  if (options == g->p->solve && g->p->solved)
    return copse_schedule_borrow(g->p->solved, out, g->err);
  if (!g->balanced) {
    copse_status status = copse_solve_schedule(t, options, out, seconds, &why);
    if (status == COPSE_OK) return COPSE_OK;
    if (status != COPSE_BAD_INPUT || options->collective == COPSE_ALLTOALL ||
        copse_topology_balance(t, &g->balanced, &why) != COPSE_OK)
      return copse_fail(g->err, status, "%s", why.text);
  }
  COPSE_DO(copse_solve_schedule(g->balanced, options, out, seconds, g->err));
  copse_status status = adopt(g, *out);
  if (status != COPSE_OK) copse_schedule_free(*out);
  return status;
}

/* Offers a solved schedule; without a name it has its k's. */
static copse_status offer_solved(struct proposing *g, const struct copse_solve_options *options,
                                 const char *name, struct copse_solve_seconds *seconds) {
  struct copse_schedule *schedule;
  char trees[COPSE_PROPOSAL_NAME];
  COPSE_DO(solve(g, options, &schedule, seconds));
  snprintf(trees, sizeof trees, "k=%" PRId64, schedule->k);
  return offer(g, schedule, name ? name : trees);
}

/* Offers the best schedules of few trees: as fast as the optimum with luck, and shallow. */
static copse_status offer_fewer(struct proposing *g, int least, int most) {
  static const int few[] = {1, 2, 3, 4, 6, 8, 12, 16};
  struct copse_solve_options fewer = *g->p->solve;
  struct copse_solve_seconds ignored;
  fewer.tolerance = COPSE_Q_ZERO;
  for (size_t i = 0; i < sizeof few / sizeof *few; i++) {
    char name[COPSE_PROPOSAL_NAME];
    if (few[i] < least || few[i] > most || few[i] >= g->first->k) continue;
    snprintf(name, sizeof name, "k=%d", few[i]);
    fewer.k = few[i];
    if (wants(g->p, name)) COPSE_DO(offer_solved(g, &fewer, name, &ignored));
  }
  return COPSE_OK;
}

/* Offers trees near the optimum, where its own are more. */
static copse_status offer_near(struct proposing *g) {
  struct copse_solve_options near = *g->p->solve;
  struct copse_solve_seconds ignored;
  if (near.k > 0 || near.tolerance.num > 0 || g->first->k == 1 || !wants(g->p, COPSE_NEAR_NAME))
    return COPSE_OK;
  near.tolerance = COPSE_NEAR_OPTIMUM;
  return offer_solved(g, &near, COPSE_NEAR_NAME, &ignored);
}

/* Whether the fabric's own routes load a link more than the first schedule's paths do. */
static copse_status detours(struct proposing *g, bool *longer) {
  const struct copse_topology *t = g->p->topology;
  const struct copse_schedule *s = g->first;
  COPSE_AT_END(copse_free_at) int64_t *load = NULL;
  double time = copse_q_to_double(s->time_per_GB);
  *longer = false;
  COPSE_DO(copse_calloc((size_t)t->n_links, sizeof *load, &load, g->err));
  for (int i = 0; i < s->n_trees; i++)
    for (int e = 0; e < s->trees[i].n_edges; e++) {
      int64_t amount = llround(copse_q_to_double(s->trees[i].weight) * ROUTED_WHOLE);
      const struct copse_schedule_edge *edge = &s->trees[i].edges[e];
      int n;
      (void)copse_route_take(t, g->p->routes, edge->src, edge->dst, amount, load, &n);
    }
  for (int e = 0; e < t->n_links; e++)
    *longer = *longer || (double)load[e] / ROUTED_WHOLE >
                             copse_q_to_double(t->links[e].bandwidth) * time * (1 + CLOSE_TIME);
  return COPSE_OK;
}

static int count_ways(const struct copse_routes *routes) {
  int n = 0;
  for (int pair = 0; pair < routes->n_ranks * routes->n_ranks; pair++)
    for (int way = 0; way < routes->ways; way++)
      n += way == 0 ||
           routes->first[pair * routes->ways + way] != routes->first[pair * routes->ways];
  return n;
}

/* Offers the best trees on the fabric's own routes, where those of the first are not on them. */
static copse_status offer_routed(struct proposing *g) {
  struct copse_solve_options routed = *g->p->solve;
  struct copse_solve_seconds ignored;
  struct copse_err why = COPSE_ERR_INIT, *err = g->err;
  struct copse_schedule *schedule;
  bool longer;
  if (routed.collective == COPSE_ALLTOALL || routed.on_routes || !g->p->routes ||
      count_ways(g->p->routes) > MOST_ROUTED_WAYS)
    return COPSE_OK;
  COPSE_DO(detours(g, &longer));
  if (!longer || !wants(g->p, "routes")) return COPSE_OK;
  routed.on_routes = true;
  routed.equal_shares = routed.compact = routed.in_network = false;
  routed.k = 0;
  g->err = &why;
  copse_status status = solve(g, &routed, &schedule, &ignored);
  g->err = err;
  if (status == COPSE_UNSUPPORTED || status == COPSE_OVERFLOW || status == COPSE_INFEASIBLE)
    return COPSE_OK;
  if (status != COPSE_OK) return copse_fail(err, status, "%s", why.text);
  return offer(g, schedule, "routes");
}

/* Finds whether there are so few routes that trees on them are looked for: *few. */
static copse_status has_few_ways(const struct copse_topology *t, bool *few, struct copse_err *err) {
  COPSE_AT_END(copse_routes_free) struct copse_routes routes = {0};
  COPSE_DO(copse_plan_routes_find(t, &routes, err));
  *few = count_ways(&routes) <= MOST_ROUTED_WAYS;
  return COPSE_OK;
}

copse_status copse_proposal_routes_bound(const struct copse_topology *t,
                                         const struct copse_schedule *s, struct copse_q runs,
                                         struct copse_q *time, struct copse_err *err) {
  const struct copse_solve_options options = {.collective = s->collective,
                                              .root = s->root,
                                              .label = t->name,
                                              .tolerance = COPSE_Q_ZERO,
                                              .on_routes = true,
                                              .bound_only = true};
  COPSE_AT_END(copse_schedule_free_at) struct copse_schedule *best = NULL;
  struct copse_solve_seconds ignored;
  struct copse_err why = COPSE_ERR_INIT;
  double any = copse_q_to_double(s->bound.time_per_GB);
  bool marked = false, few;
  *time = COPSE_Q_ZERO;
  for (int v = 0; v < t->n_nodes; v++)
    marked = marked || t->nodes[v].multicast || t->nodes[v].aggregation;
  if (s->n_trees == 0 || copse_schedule_doubles(s) || marked ||
      (int64_t)t->n_ranks * (t->n_ranks - 1) > MOST_ROUTED_WAYS ||
      copse_q_to_double(runs) <= any * (1 + CLOSE_TIME))
    return COPSE_OK; /* they need not, or can't be slower */
  COPSE_DO(has_few_ways(t, &few, err));
  if (!few) return COPSE_OK;
  copse_status status = copse_solve_schedule(t, &options, &best, &ignored, &why);
  if (status == COPSE_NOMEM) return copse_fail_nomem(err);
  if (status == COPSE_OK && copse_q_to_double(best->routes->time_per_GB) > any * (1 + CLOSE_TIME))
    *time = best->routes->time_per_GB;
  return COPSE_OK;
}

const char *copse_proposal_name(enum copse_baseline kind) {
  return kind == COPSE_BASELINE_RINGS ? "rings" : copse_baseline_name(kind);
}

void copse_proposal_name_add(char *name, size_t size, const char *done, int copies) {
  size_t n = strlen(name);
  if (!strstr(name, done)) n += (size_t)snprintf(name + n, size - n, ", %s", done);
  if (copies > 1 && n < size) snprintf(name + n, size - n, " x%d", copies);
}

const char *copse_proposal_without_size(const char *name) {
  size_t digits = strspn(name, "0123456789");
  bool sized = digits > 0 && strchr("KM", name[digits]) && strncmp(name + digits + 1, ": ", 2) == 0;
  return sized ? name + digits + 3 : name;
}

static copse_status offer_baselines(struct proposing *g) {
  const struct copse_solve_options *o = g->p->solve;
  COPSE_AT_END(copse_baseline_shared_free) struct copse_baseline_shared own = {0};
  const struct copse_baseline_options like = {.collective = o->collective,
                                              .root = o->root,
                                              .demand = o->demand,
                                              .like = g->first,
                                              .shared = g->p->shared ? g->p->shared : &own};
  for (int kind = 0; kind < COPSE_N_ARRANGEMENTS; kind++) {
    const char *name = copse_proposal_name((enum copse_baseline)kind);
    struct copse_err why = COPSE_ERR_INIT;
    struct copse_schedule *schedule;
    if (!copse_baseline_exists((enum copse_baseline)kind, o->collective) || !wants(g->p, name))
      continue;
    copse_status status = copse_baseline_make(g->p->topology, (enum copse_baseline)kind, &like,
                                              &schedule, NULL, &why);
    if (status == COPSE_UNSUPPORTED || status == COPSE_OVERFLOW) continue;
    if (status != COPSE_OK) return copse_fail(g->err, status, "%s", why.text);
    COPSE_DO(offer(g, schedule, name));
  }
  return COPSE_OK;
}

static copse_status offer_stages(struct proposing *g) {
  const struct copse_proposer *p = g->p;
  struct copse_doubling list[COPSE_MOST_DOUBLINGS];
  char name[COPSE_DOUBLING_NAME];
  int n;
  if (p->solve->collective != COPSE_ALLREDUCE || !p->routes) return COPSE_OK;
  COPSE_DO(copse_doublings_find(p->topology, p->routes, list, &n, g->err));
  for (int i = 0; i < n; i++) {
    struct copse_schedule *schedule;
    if (!wants(p, doubling_name(&list[i], name))) continue;
    COPSE_DO(copse_doubling_make(p->topology, p->routes, &list[i], &schedule, g->err));
    COPSE_DO(offer(g, schedule, name));
  }
  return COPSE_OK;
}

copse_status copse_propose(const struct copse_proposer *p, struct copse_solve_seconds *seconds,
                           struct copse_err *err) {
  COPSE_AT_END(release) struct proposing g = {.p = p, .err = err};
  struct copse_solve_options equal = *p->solve;
  struct copse_solve_seconds ignored;
  bool chosen =
      p->solve->collective != COPSE_ALLTOALL && (p->solve->k > 0 || p->solve->tolerance.num > 0);
  COPSE_DO(offer_solved(&g, p->solve, chosen ? NULL : "optimal", seconds));
  if (p->topology->n_ranks == 1) return COPSE_OK;
  if (p->solve->collective != COPSE_ALLTOALL) COPSE_DO(offer_near(&g));
  equal.equal_shares = true;
  if (p->solve->collective == COPSE_ALLREDUCE && !p->solve->equal_shares &&
      wants(p, "equal shares"))
    COPSE_DO(offer_solved(&g, &equal, "equal shares", &ignored));
  COPSE_DO(offer_routed(&g));
  if (p->solve->collective != COPSE_ALLTOALL) COPSE_DO(offer_fewer(&g, 1, 1));
  COPSE_DO(offer_baselines(&g));
  COPSE_DO(offer_stages(&g));
  return p->solve->collective == COPSE_ALLTOALL ? COPSE_OK : offer_fewer(&g, 2, INT32_MAX);
}

copse_status copse_propose_switch(const struct copse_topology *t,
                                  const struct copse_solve_options *options,
                                  struct copse_schedule **out, struct copse_err *err) {
  struct copse_solve_options wanted = *options;
  struct copse_solve_seconds ignored;
  bool marked = false;
  *out = NULL;
  for (int v = 0; v < t->n_nodes; v++)
    marked = marked || (t->nodes[v].multicast && t->nodes[v].aggregation);
  if (options->collective != COPSE_ALLREDUCE || !marked) return COPSE_OK;
  wanted.in_network = true;
  COPSE_DO(copse_solve_schedule(t, &wanted, out, &ignored, err));
  if (copse_schedule_is_group(*out)) return COPSE_OK;
  copse_schedule_free(*out);
  *out = NULL;
  return COPSE_OK;
}
