#include "support/oracle_trees.h"

#include <glpk.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "support/support.h"

#define MOST_RANKS 4
#define MOST_WAYS 64 /* between two ranks */
#define MOST_LINKS 64

struct way {
  int links[MOST_LINKS], n;
};

struct fabric {
  const struct copse_topology *t;
  struct way ways[MOST_RANKS][MOST_RANKS][MOST_WAYS];
  int n_ways[MOST_RANKS][MOST_RANKS];
  glp_prob *lp;
  int share_row[2]; /* first row of the roots, by phase: [1] reduces */
};

/* All simple ways through relays. */
static void find_ways(struct fabric *f, int from, int node, struct way *way, bool *seen) {
  const struct copse_topology *t = f->t;
  for (int e = 0; e < t->n_links; e++) {
    int next = t->links[e].dst, rank = t->nodes[next].rank;
    if (t->links[e].src != node || seen[next]) continue;
    way->links[way->n++] = e;
    if (rank >= 0) {
      ck_assert_int_lt(f->n_ways[from][rank], MOST_WAYS);
      f->ways[from][rank][f->n_ways[from][rank]++] = *way;
    } else {
      seen[next] = true;
      find_ways(f, from, next, way, seen);
      seen[next] = false;
    }
    way->n--;
  }
}

/* ---- ways that hardware takes --------------------------------------------------------------- */

/* The length of "h12." that an id begins with, or 0. */
static size_t host_of(const char *id) {
  size_t digits = id[0] == 'h' ? strspn(id + 1, "0123456789") : 0;
  return digits > 0 && id[1 + digits] == '.' ? digits + 2 : 0;
}

static bool is_inside(const struct fabric *f, int from, const struct way *way) {
  const struct copse_topology *t = f->t;
  const char *host = t->nodes[t->rank_nodes[from]].id;
  for (int r = 0; r < t->n_ranks; r++)
    if (host_of(t->nodes[t->rank_nodes[r]].id) == 0) return true; /* all are one host */
  for (int i = 0; i < way->n; i++)
    if (strncmp(t->nodes[t->links[way->links[i]].dst].id, host, host_of(host)) != 0) return false;
  return true;
}

static double width(const struct fabric *f, const struct way *way) {
  double least = 1e300;
  for (int i = 0; i < way->n; i++)
    least = fmin(least, copse_q_to_double(f->t->links[way->links[i]].bandwidth));
  return least;
}

/* Whether a is better than b. */
static bool is_better(const struct fabric *f, int from, const struct way *a, const struct way *b) {
  if (is_inside(f, from, a) != is_inside(f, from, b)) return is_inside(f, from, a);
  return a->n != b->n ? a->n < b->n : width(f, a) > width(f, b);
}

static void keep_best_ways(struct fabric *f, int from, int to) {
  struct way *ways = f->ways[from][to];
  int n = f->n_ways[from][to], best = 0;
  for (int i = 1; i < n; i++)
    if (is_better(f, from, &ways[i], &ways[best])) best = i;
  struct way least = ways[best];
  f->n_ways[from][to] = 0;
  for (int i = 0; i < n; i++)
    if (!is_better(f, from, &least, &ways[i])) ways[f->n_ways[from][to]++] = ways[i];
}

/* ---- trees ---------------------------------------------------------------------------------- */

/* Loads of one tree: parent[v] and the way's number of each rank but the root. */
static void count_loads(const struct fabric *f, int root, bool reduce, const int *parent,
                        const int *choice, int *loads) {
  const struct copse_topology *t = f->t;
  memset(loads, 0, (size_t)t->n_links * sizeof *loads);
  for (int v = 0; v < t->n_ranks; v++) {
    if (v == root) continue;
    const struct way *way =
        reduce ? &f->ways[v][parent[v]][choice[v]] : &f->ways[parent[v]][v][choice[v]];
    for (int i = 0; i < way->n; i++) {
      const struct copse_link *link = &t->links[way->links[i]];
      bool once = reduce ? t->nodes[link->src].aggregation : t->nodes[link->dst].multicast;
      int *load = &loads[way->links[i]];
      *load = once ? 1 : *load + 1;
    }
  }
}

static void add_tree(struct fabric *f, int root, bool reduce, const int *parent,
                     const int *choice) {
  int loads[MOST_LINKS], rows[MOST_LINKS + 2], n = 0;
  double values[MOST_LINKS + 2];
  count_loads(f, root, reduce, parent, choice, loads);
  for (int e = 0; e < f->t->n_links; e++) {
    if (loads[e] == 0) continue;
    rows[++n] = e + 1;
    values[n] = loads[e];
  }
  rows[++n] = f->share_row[reduce] + root;
  values[n] = 1;
  int column = glp_add_cols(f->lp, 1);
  glp_set_col_bnds(f->lp, column, GLP_LO, 0, 0);
  glp_set_mat_col(f->lp, column, n, rows, values);
}

static void choose_ways(struct fabric *f, int root, bool reduce, const int *parent, int *choice,
                        int v) {
  if (v == f->t->n_ranks) {
    add_tree(f, root, reduce, parent, choice);
  } else if (v == root) {
    choose_ways(f, root, reduce, parent, choice, v + 1);
  } else {
    int n = reduce ? f->n_ways[v][parent[v]] : f->n_ways[parent[v]][v];
    for (choice[v] = 0; choice[v] < n; choice[v]++)
      choose_ways(f, root, reduce, parent, choice, v + 1);
  }
}

static bool is_tree(int n, int root, const int *parent) {
  for (int v = 0; v < n; v++) {
    int at = v;
    for (int step = 0; step < n && at != root; step++) at = parent[at];
    if (at != root) return false;
  }
  return true;
}

static void choose_parents(struct fabric *f, int root, bool reduce, int *parent, int v) {
  int choice[MOST_RANKS] = {0}, n = f->t->n_ranks;
  if (v == n) {
    if (is_tree(n, root, parent)) choose_ways(f, root, reduce, parent, choice, 0);
  } else if (v == root) {
    choose_parents(f, root, reduce, parent, v + 1);
  } else {
    for (parent[v] = 0; parent[v] < n; parent[v]++)
      if (parent[v] != v) choose_parents(f, root, reduce, parent, v + 1);
  }
}

/* Columns 1 .. n: the roots' shares. Rows: links, then each phase's roots, then equal shares. */
static void start(struct fabric *f, copse_collective collective) {
  int n = f->t->n_ranks, links = f->t->n_links;
  f->lp = glp_create_prob();
  glp_term_out(GLP_OFF);
  glp_set_obj_dir(f->lp, GLP_MAX);
  glp_add_rows(f->lp, links + 3 * n);
  f->share_row[0] = links + 1;
  f->share_row[1] = links + n + 1;
  for (int e = 0; e < links; e++)
    glp_set_row_bnds(f->lp, e + 1, GLP_UP, 0, copse_q_to_double(f->t->links[e].bandwidth));
  for (int i = 0; i < 2 * n; i++) glp_set_row_bnds(f->lp, links + 1 + i, GLP_FX, 0, 0);
  for (int v = 0; v < n; v++)
    glp_set_row_bnds(f->lp, links + 2 * n + 1 + v, collective == COPSE_ALLREDUCE ? GLP_FR : GLP_FX,
                     0, 0);
  glp_add_cols(f->lp, n);
  for (int v = 0; v < n; v++) {
    int rows[6] = {0}, k = 0;
    double values[6];
    glp_set_col_bnds(f->lp, v + 1, GLP_LO, 0, 0);
    glp_set_obj_coef(f->lp, v + 1, 1);
    for (int phase = 0; phase < 2; phase++) {
      if (!(phase ? copse_collective_reduces(collective) : copse_collective_broadcasts(collective)))
        continue;
      rows[++k] = f->share_row[phase] + v;
      values[k] = -1;
    }
    rows[++k] = links + 2 * n + 1 + v; /* x[v] = x[v - 1] */
    values[k] = 1;
    rows[++k] = links + 2 * n + 1 + (v + 1) % n;
    values[k] = -1;
    glp_set_mat_col(f->lp, v + 1, k, rows, values);
  }
}

static double trees_time(const struct copse_topology *t, copse_collective collective, bool routed) {
  struct fabric *f = calloc(1, sizeof *f);
  bool *seen = calloc((size_t)t->n_nodes, sizeof *seen);
  int parent[MOST_RANKS] = {0};
  glp_smcp options;
  ck_assert(f && seen && t->n_ranks > 1 && t->n_ranks <= MOST_RANKS && t->n_links <= MOST_LINKS);
  f->t = t;
  for (int r = 0; r < t->n_ranks; r++) {
    struct way way = {.n = 0};
    seen[t->rank_nodes[r]] = true;
    find_ways(f, r, t->rank_nodes[r], &way, seen);
    seen[t->rank_nodes[r]] = false;
    for (int to = 0; routed && to < t->n_ranks; to++) keep_best_ways(f, r, to);
  }
  start(f, collective);
  for (int r = 0; r < t->n_ranks; r++) {
    if (copse_collective_broadcasts(collective)) choose_parents(f, r, false, parent, 0);
    if (copse_collective_reduces(collective)) choose_parents(f, r, true, parent, 0);
  }
  glp_init_smcp(&options);
  options.msg_lev = GLP_MSG_OFF;
  options.tol_bnd = options.tol_dj = 1e-10;
  ck_assert_int_eq(glp_simplex(f->lp, &options), 0);
  ck_assert_int_eq(glp_get_status(f->lp), GLP_OPT);
  double rate = glp_get_obj_val(f->lp);
  glp_delete_prob(f->lp);
  glp_free_env();
  free(f);
  free(seen);
  return 1 / rate;
}

double copse_test_all_trees_time(const struct copse_topology *t, copse_collective collective) {
  return trees_time(t, collective, false);
}

double copse_test_routed_trees_time(const struct copse_topology *t, copse_collective collective) {
  return trees_time(t, collective, true);
}
