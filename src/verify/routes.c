/*
 * The check of a schedule whose edges take the fabric's own routes (struct copse_schedule_routes):
 * each path is a route of its pair, as topology/route.h, which is given as the topology is, has
 * them; and the bound for such forests follows from the lengths of links. A shortest tree of a root
 * over all pairs of ranks: Chu and Liu (1965), Edmonds (1967). At the end the shortest order of a
 * host's GPUs, for bounds of rings and chains.
 */

#include "base/types.h"
#include "topology/route.h"
#include "verify/internal.h"
#include "verify/ways.h"

/* All lengths together in whole numbers, so that a tree's length fits. */
#define MOST_LENGTH ((int64_t)1 << 50)
#define NO_WAY INT64_MAX

/* Ranks: a table of their pairs takes 8 bytes for each. */
#define MOST_RANKS 4096

struct routes {
  struct copse_verify_checker *c;
  const struct copse_schedule_routes *claim;
  int n;             /* ranks */
  int64_t *length;   /* [n_links] in whole numbers */
  int64_t *distance; /* [n * n] least over the routes of a pair, NO_WAY: it has none */
  int64_t *w, *next; /* [n * n] pairs of what is left to join, and of what that becomes */
  int *from, *id, *mark;
  struct copse_way_finder *finder;
};

static void release(struct routes *r) { copse_way_finder_free(r->finder); }

static copse_status open_routes(struct routes *r) {
  if (r->n > MOST_RANKS)
    return copse_fail(r->c->err, COPSE_UNSUPPORTED,
                      "%s: trees on the fabric's routes are checked for at most %d ranks",
                      r->c->label, MOST_RANKS);
  return copse_way_finder_new(r->c->topology, &r->finder, r->c->err);
}

/* ---- paths --------------------------------------------------------------------------------- */

static copse_status check_paths(struct routes *r, int tree) {
  const struct copse_schedule_tree *t = &r->c->schedule->trees[tree];
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  for (int e = 0; e < t->n_edges; e++) {
    const struct copse_schedule_edge *edge = &t->edges[e];
    int *nodes;
    COPSE_DO(COPSE_ARRAY(&scratch, (size_t)edge->n_path, nodes, r->c->err));
    for (int i = 0; i < edge->n_path; i++) nodes[i] = r->c->node_of[edge->path[i]];
    if (!copse_way_is_one(r->finder,
                          &(struct copse_way){edge->src, edge->dst, edge->n_path, nodes}))
      return refute(r->c,
                    "tree %d, edge %d: the path is not the fabric's route from rank %d to rank %d, "
                    "which \"routes\" says",
                    tree, e, edge->src, edge->dst);
  }
  return COPSE_OK;
}

/* ---- lengths ------------------------------------------------------------------------------- */

static int link_of(const struct routes *r, const struct copse_schedule_length *l) {
  int src = r->c->node_of[l->src], dst = r->c->node_of[l->dst];
  return src < 0 || dst < 0 ? -1 : copse_topology_find_link(r->c->topology, src, dst);
}

static copse_status read_lengths(struct routes *r) {
  struct copse_verify_checker *c = r->c;
  const char *const *ids = c->schedule->nodes;
  int64_t sum = 0, common = 1;
  COPSE_DO(COPSE_ARRAY(&c->scratch.arena, (size_t)c->topology->n_links, r->length, c->err));
  for (int i = 0; i < r->claim->n_lengths; i++)
    COPSE_DO(copse_lcm(common, r->claim->lengths[i].length.den, &common, c->err));
  for (int i = 0; i < r->claim->n_lengths; i++) {
    const struct copse_schedule_length *l = &r->claim->lengths[i];
    int link = link_of(r, l);
    int64_t whole;
    if (link < 0)
      return refute(c, "\"routes\" has a length of '%s' -> '%s', which is no link", ids[l->src],
                    ids[l->dst]);
    if (r->length[link] != 0)
      return refute(c, "\"routes\" has two lengths of '%s' -> '%s'", ids[l->src], ids[l->dst]);
    if (copse_mul_overflows(l->length.num, common / l->length.den, &whole) ||
        copse_add_overflows(sum, whole, &sum) || sum > MOST_LENGTH)
      return copse_fail(c->err, COPSE_OVERFLOW, "%s: the lengths of \"routes\" need over 50 bits",
                        c->label);
    r->length[link] = whole;
  }
  return COPSE_OK;
}

static copse_status measure_pairs(struct routes *r) {
  size_t pairs = (size_t)r->n * (size_t)r->n;
  struct copse_verify_checker *c = r->c;
  COPSE_DO(COPSE_ARRAYS(&c->scratch.arena, pairs, int64_t, c->err, &r->distance, &r->w, &r->next));
  COPSE_DO(COPSE_ARRAYS(&c->scratch.arena, (size_t)r->n, int, c->err, &r->from, &r->id, &r->mark));
  for (int src = 0; src < r->n; src++)
    for (int dst = 0; dst < r->n; dst++) {
      int64_t least = src == dst ? -1 : copse_way_shortest(r->finder, src, dst, r->length, NULL);
      r->distance[src * r->n + dst] = least < 0 ? NO_WAY : least;
    }
  return COPSE_OK;
}

/* ---- the shortest tree of a root ------------------------------------------------------------ */

/* Chooses what leads to each of m at least cost; false where nothing does. Adds the costs. */
static bool choose_nearest(struct routes *r, int m, int root, int64_t *sum) {
  for (int v = 0; v < m; v++) {
    int from = -1;
    for (int u = 0; u < m && v != root; u++)
      if (u != v && r->w[u * m + v] != NO_WAY && (from < 0 || r->w[u * m + v] < r->w[from * m + v]))
        from = u;
    if (v != root && from < 0) return false;
    if (v != root) *sum += r->w[from * m + v];
    r->from[v] = from;
  }
  return true;
}

/* Numbers the circles of those choices, and each node outside of them; returns how many numbers
 * there are. */
static int number_circles(struct routes *r, int m, int root) {
  int n = 0;
  for (int v = 0; v < m; v++) r->id[v] = r->mark[v] = -1;
  for (int v = 0; v < m; v++) {
    int u = v;
    while (u != root && r->mark[u] < 0) {
      r->mark[u] = v;
      u = r->from[u];
    }
    if (u == root || r->mark[u] != v || r->id[u] >= 0) continue;
    for (int at = u; r->id[at] < 0; at = r->from[at]) r->id[at] = n;
    n++;
  }
  for (int v = 0; v < m; v++)
    if (r->id[v] < 0) r->id[v] = n++;
  return n;
}

/* Contracts each circle to one node. A way into the circle then costs the difference to the way
 * into that node that was chosen. */
static void contract(struct routes *r, int m, int n, int root) {
  int64_t *before = r->w;
  for (int i = 0; i < n * n; i++) r->next[i] = NO_WAY;
  for (int u = 0; u < m; u++)
    for (int v = 0; v < m; v++) {
      int64_t *to = &r->next[r->id[u] * n + r->id[v]];
      if (r->id[u] == r->id[v] || v == root || r->w[u * m + v] == NO_WAY) continue;
      int64_t more = r->w[u * m + v] - r->w[r->from[v] * m + v];
      if (more < *to) *to = more;
    }
  r->w = r->next;
  r->next = before;
}

/* Returns the length of the least tree; -1: not all are reached. */
static int64_t least_tree(struct routes *r, bool reduce, int root) {
  int64_t sum = 0;
  int m = r->n, n;
  for (int u = 0; u < m; u++)
    for (int v = 0; v < m; v++) r->w[u * m + v] = r->distance[reduce ? v * m + u : u * m + v];
  for (;;) {
    if (!choose_nearest(r, m, root, &sum)) return -1;
    n = number_circles(r, m, root);
    if (n == m) return sum;
    contract(r, m, n, root);
    root = r->id[root];
    m = n;
  }
}

/* ---- the bound ------------------------------------------------------------------------------ */

/* Sums the shares times what a root's trees are long: of an allreduce, the least of any root. */
static copse_status tree_lengths(struct routes *r, mpq_t sum) {
  const struct copse_schedule *s = r->c->schedule;
  bool both = s->collective == COPSE_ALLREDUCE, rooted = copse_collective_rooted(s->collective);
  COPSE_MPQ(length);
  for (int root = 0; root < r->n; root++) {
    int64_t out = 0, in = 0;
    if (rooted && root != s->root) continue;
    if (copse_collective_broadcasts(s->collective)) out = least_tree(r, false, root);
    if (copse_collective_reduces(s->collective)) in = least_tree(r, true, root);
    if (out < 0 || in < 0)
      return refute(r->c, "no tree of root %d over the fabric's routes reaches all ranks", root);
    mpq_set_si(length, out + in, 1);
    if (!both)
      mpq_add(sum, sum, length);
    else if (root == 0 || mpq_cmp(length, sum) < 0)
      mpq_set(sum, length);
  }
  mpq_set_ui(length, both || rooted ? 1 : (unsigned long)r->n, 1);
  mpq_div(sum, sum, length);
  return COPSE_OK;
}

static copse_status find_bound(struct routes *r, struct copse_q *time) {
  struct copse_verify_checker *c = r->c;
  COPSE_MPQ(sum);
  COPSE_MPQ(all);
  COPSE_MPQ(q);
  COPSE_DO(read_lengths(r));
  COPSE_DO(measure_pairs(r));
  COPSE_DO(tree_lengths(r, sum));
  for (int e = 0; e < c->topology->n_links; e++) {
    COPSE_MPQ(length);
    mpq_set_si(length, r->length[e], 1);
    copse_mpq_set(q, c->topology->links[e].bandwidth);
    mpq_mul(q, q, length);
    mpq_add(all, all, q);
  }
  if (mpq_sgn(all) == 0 && r->n > 1) return refute(c, "all lengths of \"routes\" are 0");
  if (mpq_sgn(all) > 0) mpq_div(sum, sum, all);
  return copse_verify_get_q(sum, c->label, time, c->err);
}

static void release_checker(struct copse_verify_checker *c) {
  copse_verify_scratch_free(&c->scratch);
}

copse_status copse_verify_routes_bound(const struct copse_schedule *s,
                                       const struct copse_topology *topology, const char *label,
                                       struct copse_q *time, struct copse_err *err) {
  COPSE_AT_END(release_checker)
  struct copse_verify_checker c = {.schedule = s, .topology = topology, .label = label, .err = err};
  COPSE_AT_END(release) struct routes r = {.c = &c, .claim = s->routes, .n = s->n_ranks};
  COPSE_DO(COPSE_ARRAY(&c.scratch.arena, (size_t)s->n_nodes, c.node_of, err));
  for (int i = 0; i < s->n_nodes; i++) c.node_of[i] = copse_topology_find(topology, s->nodes[i]);
  COPSE_DO(open_routes(&r));
  return find_bound(&r, time);
}

static bool has_marked_switch(const struct copse_topology *t) {
  int v = 0;
  while (v < t->n_nodes && !t->nodes[v].multicast && !t->nodes[v].aggregation) v++;
  return v < t->n_nodes;
}

copse_status copse_verify_routes(struct copse_verify_checker *c,
                                 struct copse_verify_report *report) {
  const struct copse_schedule *s = c->schedule;
  COPSE_AT_END(release) struct routes r = {.c = c, .claim = s->routes, .n = s->n_ranks};
  if (s->collective == COPSE_ALLTOALL || s->n_rotations > 0 || copse_schedule_doubles(s))
    return refute(c, "\"routes\" is for trees that are listed, without stages");
  COPSE_DO(open_routes(&r));
  for (int t = 0; t < s->n_trees; t++) COPSE_DO(check_paths(&r, t));
  COPSE_DO(find_bound(&r, &report->routes_bound));
  report->on_routes = true;
  report->routes_optimal = copse_q_cmp(report->time_per_GB, report->routes_bound) <= 0;
  /* a switch that copies may make the time shorter than the bound, which counts every copy */
  return copse_verify_compare_bound(
      c->label, s->routes->time_per_GB, report->routes_bound,
      has_marked_switch(c->topology) ? report->routes_bound : report->time_per_GB, c->err);
}

/* ---- the shortest order of GPUs ----------------------------------------------------------------
 *
 * The dynamic programme over sets of GPUs (Bellman; Held and Karp 1962), forwards from the first
 * GPU; for many GPUs the assignment problem, by shortest augmenting paths that Bellman and Ford's
 * method finds. */

#define NONE COPSE_VERIFY_NO_STEP

static int64_t sum(int64_t a, int64_t b) { return a == NONE || b == NONE ? NONE : a + b; }

static void lower(int64_t *least, int64_t value) {
  if (value < *least) *least = value;
}

/* Returns what ports `from` to `to` add at a GPU: the least. */
static int64_t at_ports(const struct copse_verify_orders *o, const int64_t *lengths, int from,
                        int to, int gpu) {
  int64_t least = lengths && o->n_ports > 0 ? NONE : 0;
  for (int d = from; lengths && d < to; d++) lower(&least, lengths[d * o->n + gpu]);
  return least;
}

/* Searches orders by these ports; best [2^n * n] by set and last GPU. */
static int64_t search_sets(const struct copse_verify_orders *o, int from, int to, int64_t *best) {
  int n = o->n;
  size_t sets = (size_t)1 << n;
  int64_t least = NONE;
  for (size_t i = 0; i < sets * (size_t)n; i++) best[i] = NONE;
  for (int g = 0; g < (o->closed ? 1 : n); g++)
    best[((size_t)1 << g) * (size_t)n + (size_t)g] = at_ports(o, o->first, from, to, g);
  for (size_t set = 1; set < sets; set++) {
    bool alone = (set & (set - 1)) == 0;
    for (int g = 0; g < n; g++) {
      int64_t so_far = best[set * (size_t)n + (size_t)g];
      for (int h = 0; so_far != NONE && h < n; h++) {
        size_t with = set | (size_t)1 << h;
        int64_t length = sum(so_far, o->move[g * n + h]);
        if (with == set) continue;
        if (alone) length = sum(length, at_ports(o, o->second, from, to, h));
        lower(&best[with * (size_t)n + (size_t)h], length);
      }
    }
  }
  for (int g = 0; g < n; g++) {
    int64_t end = o->closed ? o->move[g * n] : at_ports(o, o->last, from, to, g);
    lower(&least, sum(best[(sets - 1) * (size_t)n + (size_t)g], end));
  }
  return least;
}

static copse_status over_sets(const struct copse_verify_orders *o, int64_t *least,
                              struct copse_err *err) {
  COPSE_AT_END(copse_free_at) int64_t *best = NULL;
  bool each = o->same_port && o->n_ports > 0;
  COPSE_DO(copse_calloc(((size_t)1 << o->n) * (size_t)o->n, sizeof *best, &best, err));
  *least = NONE;
  for (int d = 0; d < (each ? o->n_ports : 1); d++)
    lower(least, search_sets(o, each ? d : 0, each ? d + 1 : o->n_ports, best));
  return COPSE_OK;
}

/* Assignments. */
struct assignment {
  const struct copse_verify_orders *orders;
  int m;         /* GPUs, and a depot for the ports */
  int *row_of;   /* [m] which goes to it, or -1 */
  int *before;   /* [m] the column before on the path, or -1 */
  int64_t *path; /* [m] length of the shortest path to the column */
};

static int64_t step(const struct assignment *a, int i, int j) {
  const struct copse_verify_orders *o = a->orders;
  if (i == j) return NONE;
  if (i == o->n) return at_ports(o, o->first, 0, o->n_ports, j);
  if (j == o->n) return at_ports(o, o->last, 0, o->n_ports, i);
  return o->move[i * o->n + j];
}

/* Finds paths from a row over columns that others have, which take others instead. */
static void find_paths(struct assignment *a, int row) {
  bool changed = true;
  for (int j = 0; j < a->m; j++) {
    a->path[j] = step(a, row, j);
    a->before[j] = -1;
  }
  while (changed) {
    changed = false;
    for (int x = 0; x < a->m; x++) {
      if (a->row_of[x] < 0 || a->path[x] == NONE) continue;
      int64_t without = a->path[x] - step(a, a->row_of[x], x);
      for (int z = 0; z < a->m; z++) {
        int64_t length = sum(without, step(a, a->row_of[x], z));
        if (z == x || length >= a->path[z]) continue;
        a->path[z] = length;
        a->before[z] = x;
        changed = true;
      }
    }
  }
}

static bool add_row(struct assignment *a, int row) {
  int end = -1;
  find_paths(a, row);
  for (int j = 0; j < a->m; j++)
    if (a->row_of[j] < 0 && a->path[j] != NONE && (end < 0 || a->path[j] < a->path[end])) end = j;
  if (end < 0) return false;
  for (; a->before[end] >= 0; end = a->before[end]) a->row_of[end] = a->row_of[a->before[end]];
  a->row_of[end] = row;
  return true;
}

static copse_status over_assignments(const struct copse_verify_orders *o, int64_t *least,
                                     struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena arena = {0};
  struct assignment a = {.orders = o, .m = o->n + !o->closed};
  COPSE_DO(COPSE_ARRAYS(&arena, (size_t)a.m, int, err, &a.row_of, &a.before));
  COPSE_DO(COPSE_ARRAY(&arena, (size_t)a.m, a.path, err));
  for (int j = 0; j < a.m; j++) a.row_of[j] = -1;
  *least = 0;
  for (int i = 0; i < a.m; i++) {
    if (add_row(&a, i)) continue;
    *least = NONE;
    return COPSE_OK;
  }
  for (int j = 0; j < a.m; j++) *least += step(&a, a.row_of[j], j);
  return COPSE_OK;
}

copse_status copse_verify_least_order(const struct copse_verify_orders *o, int64_t *least,
                                      bool *all, struct copse_err *err) {
  *all = o->n <= COPSE_VERIFY_ALL_ORDERS;
  COPSE_DO(*all ? over_sets(o, least, err) : over_assignments(o, least, err));
  if (*least == NONE)
    return copse_fail(err, COPSE_REFUTED, "there is no order of the %d GPUs", o->n);
  return COPSE_OK;
}
