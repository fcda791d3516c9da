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
 * Where only some ranks of a host reach other hosts in one hop, as some GPUs have a NIC of their
 * own and others send through those, these gateways alone may have numbers. The others hang below
 * them: they send them their sums before the first stage and get the result after the last
 * (two-level forms: Karonis et al., Exploiting hierarchy in parallel computer networks, 2000).
 *
 *   hosts of 4 ranks, gateways 1 and 3:   0 > 1, 2 > 3    1-3, 5-7    1-5, 3-7    1 > 0, 3 > 2
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

#include "base/memory.h"
#include "codegen/lower/policy.h"
#include "predict/baseline.h"
#include "predict/policy.h"
#include "schedule/chunks.h"
#include "schedule/loads.h"

/* ---- which ranks ----------------------------------------------------------------------------- */

/* The ranks that have numbers, all or gateways, and where the others hang. */
struct members {
  int n;       /* 0: there are no gateways, or no others */
  int *rank;   /* [n] */
  int *number; /* [n_ranks] number among the members; -1: no member */
  int *parent; /* [n_ranks] the next rank on the way to its gateway; -1: a gateway */
  int *level;  /* [n_ranks] hops from the gateway; -1: not reached yet */
  int highest; /* of those */
  int64_t *load; /* [n_links] trees of all stages; NULL: each stage begins with none */
  struct copse_arena arena;
};

static void free_members(struct members *m) { copse_arena_free(&m->arena); }

/* Whether two ranks reach each other in one hop. */
static bool are_joined(const struct copse_topology *t, const struct copse_routes *routes, int a,
                       int b) {
  int there, back;
  const int *to = copse_route(routes, a, b, &there), *from = copse_route(routes, b, a, &back);
  return copse_route_is_hop(t, to, there) && copse_route_is_hop(t, from, back);
}

/* Whether a rank reaches another host in one hop. */
static bool leads(const struct copse_topology *t, const struct copse_routes *routes,
                  const struct copse_hosts *hosts, int rank) {
  for (int r = 0; r < t->n_ranks; r++)
    if (hosts->of_rank[r] != hosts->of_rank[rank] && are_joined(t, routes, rank, r)) return true;
  return false;
}

/* Takes as many gateways of each host as the host with the fewest has, in the hosts' order. */
static void take_gateways(const struct copse_hosts *hosts, const bool *is_gateway,
                          struct members *m) {
  int fewest = INT32_MAX;
  for (int h = 0; h < hosts->n_hosts; h++) {
    int n = 0;
    for (int i = hosts->first[h]; i < hosts->first[h + 1]; i++) n += is_gateway[hosts->members[i]];
    fewest = n < fewest ? n : fewest;
  }
  for (int h = 0; h < hosts->n_hosts; h++)
    for (int i = hosts->first[h], n = 0; i < hosts->first[h + 1] && n < fewest; i++) {
      int rank = hosts->members[i];
      if (!is_gateway[rank]) continue;
      m->rank[m->n] = rank;
      m->number[rank] = m->n++;
      m->level[rank] = 0;
      n++;
    }
}

/* Hangs a rank below a rank of its host that was reached one level before, the one with the fewest
 * below it. False: there is none. */
static bool hang(const struct copse_topology *t, const struct copse_routes *routes,
                 const struct copse_hosts *hosts, int rank, int level, int *below,
                 struct members *m) {
  int host = hosts->of_rank[rank], parent = -1;
  for (int i = hosts->first[host]; i < hosts->first[host + 1]; i++) {
    int r = hosts->members[i];
    if (m->level[r] != level - 1 || !are_joined(t, routes, rank, r)) continue;
    if (parent < 0 || below[r] < below[parent]) parent = r;
  }
  if (parent < 0) return false;
  below[parent]++;
  m->parent[rank] = parent;
  m->level[rank] = m->highest = level;
  return true;
}

static copse_status find_gateways(const struct copse_topology *t, const struct copse_routes *routes,
                                  struct members *m, struct copse_err *err) {
  COPSE_AT_END(copse_hosts_free) struct copse_hosts hosts = {0};
  bool *is_gateway;
  int *below, n_reached;
  COPSE_DO(copse_hosts_find(t, &hosts, err));
  if (hosts.n_hosts < 2) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(&m->arena, (size_t)t->n_ranks, is_gateway, err));
  COPSE_DO(COPSE_ARRAY(&m->arena, (size_t)t->n_ranks, below, err));
  for (int r = 0; r < t->n_ranks; r++) is_gateway[r] = leads(t, routes, &hosts, r);
  take_gateways(&hosts, is_gateway, m);
  n_reached = m->n;
  for (int level = 1, before = 0; n_reached > before; level++) {
    before = n_reached;
    for (int r = 0; r < t->n_ranks; r++)
      n_reached += m->level[r] < 0 && hang(t, routes, &hosts, r, level, below, m);
  }
  if (m->n == t->n_ranks || n_reached < t->n_ranks) m->n = 0;
  return COPSE_OK;
}

static copse_status find_members(const struct copse_topology *t, const struct copse_routes *routes,
                                 bool gateways, struct members *m, struct copse_err *err) {
  size_t n = (size_t)t->n_ranks;
  COPSE_DO(COPSE_ARRAYS(&m->arena, n, int, err, &m->rank, &m->number, &m->parent, &m->level));
  for (int r = 0; r < t->n_ranks; r++) {
    m->rank[r] = r;
    m->number[r] = gateways ? -1 : r;
    m->parent[r] = -1;
    m->level[r] = gateways ? -1 : 0;
  }
  if (gateways) return find_gateways(t, routes, m, err);
  m->n = t->n_ranks;
  return COPSE_OK;
}

/* ---- one stage ------------------------------------------------------------------------------- */

/* Trees of members, in groups of `base` that are `stride` apart; or of those that hang below. */
struct stage {
  const struct copse_topology *topology;
  const struct copse_routes *routes;
  const struct members *members;
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

/* Returns the rank whose number has this digit, others as in `number`. */
static int with_digit(const struct stage *s, int number, int digit) {
  return s->members->rank[number + (digit - number / s->stride % s->base) * s->stride];
}

/* Finds, of those reached at `level`, the one from which the way is loaded least; -1: none. */
static int find_parent(const struct stage *s, int number, const int *reached, int level,
                       int digit) {
  double least = INFINITY;
  int parent = -1;
  for (int p = 0; p < s->base; p++) {
    if (reached[p] != level) continue;
    double load = busiest(s, with_digit(s, number, p), with_digit(s, number, digit));
    if (load >= least) continue;
    least = load;
    parent = p;
  }
  return parent;
}

/* Grows from the root to all of its group, hop by hop; COPSE_UNSUPPORTED where that can't be. */
static copse_status grow(struct stage *s, struct copse_arena *arena,
                         struct copse_schedule_tree *tree) {
  int number = s->members->number[tree->root];
  int *reached, *n_puts; /* [base] level, from 1; messages */
  struct copse_schedule_edge *edges;
  double *us;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)s->base, edges, s->err));
  COPSE_DO(COPSE_ARRAYS(&s->scratch, (size_t)s->base, int, s->err, &reached, &n_puts));
  COPSE_DO(COPSE_ARRAY(&s->scratch, (size_t)s->base, us, s->err));
  reached[number / s->stride % s->base] = 1;
  for (int level = 1, before = -1; tree->n_edges < s->base - 1; level++) {
    if (tree->n_edges == before)
      return copse_fail(s->err, COPSE_UNSUPPORTED, "a group has ranks that none of it reaches");
    before = tree->n_edges;
    for (int turn = 1; turn < s->base; turn++) { /* the next rank first */
      int d = (number / s->stride + turn) % s->base;
      int parent = reached[d] ? -1 : find_parent(s, number, reached, level, d);
      if (parent < 0) continue;
      us[d] = us[parent];
      s->puts[with_digit(s, number, parent)] += n_puts[parent]++ == 0;
      reached[d] = level + 1;
      COPSE_DO(add_edge(s, with_digit(s, number, parent), with_digit(s, number, d), arena,
                        &edges[tree->n_edges++], &us[d]));
      s->us = fmax(s->us, us[d]);
    }
  }
  tree->edges = edges;
  return COPSE_OK;
}

/* Grows a tree from a gateway to all ranks that hang below it. */
static copse_status grow_below(struct stage *s, struct copse_arena *arena,
                               struct copse_schedule_tree *tree) {
  const struct members *m = s->members;
  int n = s->topology->n_ranks;
  struct copse_schedule_edge *edges;
  double *us; /* [n_ranks] -1: it is in another tree */
  COPSE_DO(COPSE_ARRAY(arena, (size_t)n, edges, s->err));
  COPSE_DO(COPSE_ARRAY(&s->scratch, (size_t)n, us, s->err));
  for (int r = 0; r < n; r++) us[r] = r == tree->root ? 0 : -1;
  for (int level = 1; level <= m->highest; level++)
    for (int r = 0; r < n; r++) {
      if (m->level[r] != level || us[m->parent[r]] < 0) continue;
      us[r] = us[m->parent[r]];
      COPSE_DO(add_edge(s, m->parent[r], r, arena, &edges[tree->n_edges++], &us[r]));
      s->puts[m->parent[r]] = 1;
      s->us = fmax(s->us, us[r]);
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
  COPSE_DO(COPSE_ARRAY(arena, (size_t)tree->n_edges, edges, s->err));
  for (int e = tree->n_edges - 1, i = 0; e >= 0; e--, i++) {
    if (isinf(busiest(s, from[e].dst, from[e].src)))
      return copse_fail(s->err, COPSE_UNSUPPORTED, "there is no hop back");
    COPSE_DO(add_edge(s, from[e].dst, from[e].src, arena, &edges[i], &ignored));
  }
  tree->edges = edges;
  tree->phase = COPSE_PHASE_REDUCE;
  return COPSE_OK;
}

/* Makes the members' trees [n], in the arena, with base 0 over those that hang below; us [2] and
 * *load: of the highest tree and the busiest rank, its puts dealt to workers or by one, and of the
 * busiest link. */
static copse_status make_stage(const struct copse_topology *t, const struct copse_routes *routes,
                               const struct members *m, int stride, int base,
                               struct copse_arena *arena, struct copse_schedule_tree *trees,
                               double us[2], double *load, struct copse_err *err) {
  COPSE_AT_END(end_stage)
  struct stage s = {t, routes, m, .stride = stride, .base = base, .load = m->load, .err = err};
  if (!s.load) COPSE_DO(COPSE_ARRAY(&s.scratch, (size_t)t->n_links, s.load, err));
  COPSE_DO(COPSE_ARRAYS(&s.scratch, (size_t)t->n_ranks, int, err, &s.sends, &s.puts));
  for (int i = 0; i < m->n; i++) {
    trees[i] = (struct copse_schedule_tree){.root = m->rank[i], .phase = COPSE_PHASE_BROADCAST};
    COPSE_DO(base > 0 ? grow(&s, arena, &trees[i]) : grow_below(&s, arena, &trees[i]));
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

/* Turns the trees of a stage [n] around for sums on their way to the roots; COPSE_UNSUPPORTED where
 * there are no hops back. */
static copse_status turn_stage(const struct copse_topology *t, const struct copse_routes *routes,
                               const struct members *m, struct copse_arena *arena,
                               struct copse_schedule_tree *trees, struct copse_err *err) {
  COPSE_AT_END(end_stage)
  struct stage s = {t, routes, m, .load = m->load, .err = err};
  if (!s.load) COPSE_DO(COPSE_ARRAY(&s.scratch, (size_t)t->n_links, s.load, err));
  COPSE_DO(COPSE_ARRAY(&s.scratch, (size_t)t->n_ranks, s.sends, err));
  for (int i = 0; i < m->n; i++) COPSE_DO(turn_around(&s, arena, &trees[i]));
  return COPSE_OK;
}

/* ---- which digits -------------------------------------------------------------------------- */

/* The digits that write the numbers below a divisor of the number of members; the time of their
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

static int copies_of(const struct copse_doubling *d) { return d->copies > 1 ? d->copies : 1; }

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
                           const struct members *m, struct labels *all, int stride, int base,
                           struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct copse_err why = COPSE_ERR_INIT;
  struct copse_schedule_tree *trees;
  double us[2], load;
  bool ends = stride * base == m->n;
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)m->n, trees, err));
  copse_status status = make_stage(t, routes, m, stride, base, &scratch, trees, us, &load, &why);
  for (int scatters = 0; scatters < 2 && status == COPSE_OK; scatters++) {
    for (int i = 0; i < all[stride].n; i++)
      add_digit(&all[stride].list[i], base, scatters, ends, us, load, &all[stride * base]);
    if (scatters == 0) status = turn_stage(t, routes, m, &scratch, trees, &why);
  }
  if (status == COPSE_OK || status == COPSE_UNSUPPORTED) return COPSE_OK;
  return copse_fail(err, status, "%s", why.text);
}

/* Makes stages in the arena, by digit and number, last those that hang below: [(n_digits + 1) * n].
 */
static copse_status make_trees(const struct copse_topology *t, const struct copse_routes *routes,
                               const struct members *m, const struct copse_doubling *d,
                               enum copse_phase phase, struct copse_arena *arena,
                               struct copse_schedule_tree *trees, struct copse_err *err) {
  double us[2], load;
  for (int i = 0, stride = 1, base; i < d->n_digits + d->gateways; i++, stride *= base) {
    struct copse_schedule_tree *of = trees + i * m->n;
    base = i < d->n_digits ? d->bases[i] : 0;
    COPSE_DO(make_stage(t, routes, m, stride, base, arena, of, us, &load, err));
    if (phase == COPSE_PHASE_REDUCE) COPSE_DO(turn_stage(t, routes, m, arena, of, err));
  }
  return COPSE_OK;
}

/* Whether M is in few enough pieces, and digits can be scattered that weren't. */
static copse_status check_turned(const struct copse_topology *t, const struct copse_routes *routes,
                                 const struct members *m, const struct copse_doubling *d,
                                 bool *turns, struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct copse_err why = COPSE_ERR_INIT;
  struct copse_schedule_tree *trees;
  *turns = d->n_digits > 1 && (d->n_scattered == 0 || pieces_of_all(d) <= MOST_SCATTERED);
  if (d->n_scattered == 0 || !*turns) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)m->n * (size_t)(d->n_digits + 1), trees, err));
  copse_status status = make_trees(t, routes, m, d, COPSE_PHASE_REDUCE, &scratch, trees, &why);
  *turns = status == COPSE_OK;
  if (status == COPSE_OK || status == COPSE_UNSUPPORTED) return COPSE_OK;
  return copse_fail(err, status, "%s", why.text);
}

/* Adds what it takes to hang ranks below gateways, before and after all digits; COPSE_UNSUPPORTED
 * where that can't be. */
static copse_status add_below(const struct copse_topology *t, const struct copse_routes *routes,
                              const struct members *m, struct label *to, struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct copse_schedule_tree *trees;
  double us[2], load;
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)m->n, trees, err));
  COPSE_DO(make_stage(t, routes, m, 1, 0, &scratch, trees, us, &load, err));
  for (int i = 0; i < 2; i++) to->us[i] += 2 * us[i];
  to->load += 2 * load;
  to->digits.gateways = true;
  return COPSE_OK;
}

/* Adds ways of members to write their numbers. */
static copse_status find_digits(const struct copse_topology *t, const struct copse_routes *routes,
                                const struct members *m, bool gateways, struct labels *found,
                                struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct labels *all; /* [n + 1] by divisor */
  if (m->n < 2) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)m->n + 1, all, err));
  all[1] = (struct labels){.list = {{.share = 1}}, .n = 1};
  if (gateways) COPSE_DO(add_below(t, routes, m, &all[1].list[0], err));
  for (int stride = 1; stride < m->n; stride++)
    for (int base = 2; all[stride].n > 0 && stride * base <= m->n; base++)
      if (m->n % (stride * base) == 0 && base <= MOST_GROUP && m->n * (base - 1) <= MOST_TRANSFERS)
        COPSE_DO(extend(t, routes, m, all, stride, base, err));
  for (int i = 0; i < all[m->n].n; i++) add_label(found, &all[m->n].list[i]);
  return COPSE_OK;
}

copse_status copse_doublings_find(const struct copse_topology *t, const struct copse_routes *routes,
                                  struct copse_doubling *list, int *n, struct copse_err *err) {
  COPSE_AT_END(free_members) struct members ranks = {0};
  COPSE_AT_END(free_members) struct members gateways = {0};
  struct labels found = {.n = 0};
  *n = 0;
  if (t->n_ranks < 2 || t->n_ranks > MOST_DOUBLED) return COPSE_OK;
  COPSE_DO(find_members(t, routes, false, &ranks, err));
  COPSE_DO(find_members(t, routes, true, &gateways, err));
  COPSE_DO(find_digits(t, routes, &ranks, false, &found, err));
  COPSE_DO(find_digits(t, routes, &gateways, true, &found, err));
  for (int i = 0; i < found.n; i++) {
    struct copse_doubling turned = found.list[i].digits;
    const struct members *m = turned.gateways ? &gateways : &ranks;
    list[(*n)++] = turned;
    turned.turned = true;
    bool turns;
    COPSE_DO(check_turned(t, routes, m, &turned, &turns, err));
    if (turns) list[(*n)++] = turned;
  }
  return COPSE_OK;
}

/* ---- the schedule -------------------------------------------------------------------------- */

struct doubling {
  const struct copse_doubling *d;
  struct members members;
  int n_ranks, strides[COPSE_DOUBLING_DIGITS];
  struct copse_schedule_tree *there, *back; /* as make_trees has them */
  struct copse_schedule_tree *trees;
  int n_trees, n_pieces;
  struct copse_arena scratch;
};

/* Whether a member has the piece that comes `count`-th of those that begin with a digit when so
 * many digits are scattered. */
static bool holds(const struct doubling *m, int first, int count, int n_scattered, int number) {
  bool held = true;
  for (int i = 0; i < n_scattered; i++) {
    int digit = (first + i) % m->d->n_digits, base = m->d->bases[digit];
    held = held && number / m->strides[digit] % base == count % base;
    count /= base;
  }
  return held;
}

/* Adds a member's tree to a stage of the piece at hand. */
static void add_tree(struct doubling *m, const struct copse_schedule_tree *from, int stage,
                     struct copse_q weight) {
  struct copse_schedule_tree *tree = &m->trees[m->n_trees++];
  *tree = *from;
  tree->weight = weight;
  tree->piece = m->n_pieces;
  tree->stage = stage;
}

/* Adds the stage in which those that hang below gateways send their sums, or get the result. */
static void add_outer(struct doubling *m, const struct copse_schedule_tree *trees, int stage,
                      struct copse_q weight) {
  const struct copse_schedule_tree *from = trees + m->d->n_digits * m->members.n;
  for (int r = 0; r < m->n_ranks; r++) {
    int number = m->members.number[r];
    if (number >= 0 && from[number].n_edges > 0) add_tree(m, &from[number], stage, weight);
  }
}

/* Adds a piece in so many stages: digits are scattered, go from all to all, and are gathered in
 * turn; trees by root. */
static void add_piece(struct doubling *m, int first, int count, struct copse_q weight) {
  int digits = m->d->n_digits, scattered = m->d->n_scattered, stage = 1;
  if (m->d->gateways) add_outer(m, m->back, stage++, weight);
  for (int i = 0; i < digits + scattered; i++, stage++) {
    int turn = i < digits ? i : digits + scattered - 1 - i;
    int held = turn < scattered ? turn + 1 : scattered, digit = (first + turn) % digits;
    const struct copse_schedule_tree *from = i < scattered ? m->back : m->there;
    for (int r = 0; r < m->n_ranks; r++) {
      int number = m->members.number[r];
      if (number >= 0 && holds(m, first, count, held, number))
        add_tree(m, &from[digit * m->members.n + number], stage, weight);
    }
  }
  if (m->d->gateways) add_outer(m, m->there, stage, weight);
  m->n_pieces++;
}

static void end_doubling(struct doubling *m) {
  copse_arena_free(&m->scratch);
  free_members(&m->members);
}

/* Adds all pieces. */
static copse_status add_pieces(struct doubling *m, const struct copse_topology *t,
                               const struct copse_routes *routes, struct copse_arena *arena,
                               struct copse_err *err) {
  const struct copse_doubling *d = m->d;
  struct members *all = &m->members;
  int turns = d->turned ? d->n_digits : 1, copies = copies_of(d);
  size_t stages = (size_t)(d->n_digits + 1) * (size_t)all->n;
  size_t pieces = (size_t)(pieces_of_all(d) * copies);
  COPSE_DO(COPSE_ARRAY(arena, 2 * stages * pieces, m->trees, err)); /* at most */
  COPSE_DO(COPSE_ARRAYS(&m->scratch, stages, struct copse_schedule_tree, err, &m->there, &m->back));
  if (copies > 1) COPSE_DO(COPSE_ARRAY(&m->scratch, (size_t)t->n_links, all->load, err));
  for (int copy = 0; copy < copies; copy++) {
    COPSE_DO(make_trees(t, routes, all, d, COPSE_PHASE_BROADCAST, arena, m->there, err));
    if (d->n_scattered > 0 || d->gateways)
      COPSE_DO(make_trees(t, routes, all, d, COPSE_PHASE_REDUCE, arena, m->back, err));
    for (int turn = 0; turn < turns; turn++)
      for (int i = 0, n = pieces_of(d, turn); i < n; i++)
        add_piece(m, turn, i, (struct copse_q){1, turns * n * copies});
  }
  return COPSE_OK;
}

copse_status copse_doubling_make(const struct copse_topology *t, const struct copse_routes *routes,
                                 const struct copse_doubling *d,
                                 struct copse_baseline_shared *shared, struct copse_schedule **out,
                                 struct copse_err *err) {
  const struct copse_baseline_options like = {
      .collective = COPSE_ALLREDUCE, .root = -1, .shared = shared};
  COPSE_AT_END(copse_schedule_free_at) struct copse_schedule *s = NULL;
  COPSE_AT_END(end_doubling)
  struct doubling m = {.d = d, .n_ranks = t->n_ranks, .strides = {1}};
  for (int i = 1; i < d->n_digits; i++) m.strides[i] = m.strides[i - 1] * d->bases[i - 1];
  if (copies_of(d) > 1 && pieces_of_all(d) * copies_of(d) > MOST_SCATTERED)
    return copse_fail(err, COPSE_UNSUPPORTED, "too many pieces");
  COPSE_DO(find_members(t, routes, d->gateways, &m.members, err));
  COPSE_DO(copse_baseline_make(t, COPSE_BASELINE_DIRECT, &like, &s, NULL, err));
  COPSE_DO(add_pieces(&m, t, routes, &s->arena, err));
  s->trees = m.trees;
  s->n_trees = m.n_trees;
  s->k = copse_schedule_unit_k(s);
  COPSE_DO(copse_tree_time(t, m.trees, (size_t)m.n_trees, &s->time_per_GB, err));
  *out = s;
  s = NULL;
  return COPSE_OK;
}
