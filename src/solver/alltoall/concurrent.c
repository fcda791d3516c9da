/*
 * The search for a maximum concurrent flow: rounds of a master problem that mixes trees, and of
 * shortest paths under its prices, which find trees that improve it.
 *
 *   prices of links -> shortest-path trees, one per source -> mixture of least time
 *         ^                                                        |
 *         +--------------------------------------------------------+
 *
 * Then the floating-point result is made exact: integer lengths and what they prove, and weights
 * with a common denominator and the loads that they make. The weights are first read off the
 * master's solution by continued fractions. Where that is not the bound, the simplex method says
 * which trees are used and which orbits are full, and the linear system that this makes is solved
 * modulo two primes. Else they are rounded down to a grid. docs/theory.md, "src/solver/alltoall/".
 */
#include "solver/alltoall/concurrent.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "solver/policy.h"
#include "solver/lp/linear_programme.h"
#include "solver/network/network.h"

struct column_load {
  int orbit;
  int64_t load; /* on each link of the orbit, by the source and all of its images */
};

/* A tree that carries all demand of one base source. */
struct column {
  int base;
  int *via; /* [n_nodes] the link into each node, -1 */
  struct column_load *loads;
  int n_loads;
  double weight; /* in the master's solution */
  int next;      /* of the same source, or -1 */
};

struct search {
  const struct copse_concurrent_problem *problem;
  int *orbit; /* [n_links] */
  int n_orbits;
  int *orbit_size;
  int64_t *orbit_capacity;
  int *base; /* [n_bases] terminals that are routed */
  int n_bases;
  int *first_column, *last_column; /* [n_bases] */
  int64_t most_demand;             /* of a base source */
  double unit;   /* time that is about 1 in the master: of the first tree with a load */
  bool *blocked; /* [n_nodes] may not be passed */
  struct copse_shortest shortest;
  int64_t *below;   /* [n_nodes] scratch */
  int64_t *lengths; /* [n_links] scratch */
  int64_t *loads;   /* [n_orbits] of the tree at hand, or of paths in 1 / whole units of demand */
  int *nodes;       /* [n_nodes] scratch */
  struct copse_mixture_load *row; /* [n_orbits] scratch */
  struct column *columns;
  size_t n_columns, columns_capacity;
  struct copse_mixture *master;
  int n_rounds;
  bool stuck;          /* GLPK gave up on the last master: its values are of the one before */
  double time;         /* the master's: demand units over capacity units */
  double *price;       /* [n_orbits] the master's duals, >= 0 */
  double *share_price; /* [n_bases] */
  double *best_price;  /* [n_orbits] that gave best_bound */
  double best_bound;
  struct copse_balance balance; /* what was found without the master; its paths are in `ways` */
  struct copse_arena arena, ways;
  struct copse_err *err;
};

static int64_t column_demand(const struct search *s, int base, int sink) {
  const struct copse_concurrent_problem *p = s->problem;
  if (s->base[base] == sink) return 0;
  if (!p->demand) return 1;
  return p->demand[(size_t)s->base[base] * (size_t)p->network->n_terminals + (size_t)sink];
}

/* ---- setting up ------------------------------------------------------------------- */

/* Finds orbits of links; a link's load is its orbit's, times order / size of the orbit. */
static copse_status find_orbits(struct search *s) {
  const struct copse_network *network = s->problem->network;
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  size_t links = (size_t)network->n_links;
  int *first;
  COPSE_DO(COPSE_ARRAYS(&s->arena, links, int, s->err, &s->orbit, &s->orbit_size));
  COPSE_DO(COPSE_ARRAY(&s->arena, links, s->orbit_capacity, s->err));
  COPSE_DO(copse_links_orbits(network, &s->problem->rotation, 1, &scratch, &first, s->err));
  for (int e = 0; e < network->n_links; e++) {
    if (first[e] == e) s->orbit_capacity[s->n_orbits] = network->links[e].capacity;
    s->orbit[e] = first[e] == e ? s->n_orbits++ : s->orbit[first[e]];
    s->orbit_size[s->orbit[e]]++;
  }
  return COPSE_OK;
}

/* Finds one source per orbit of terminals. */
static copse_status find_bases(struct search *s) {
  const struct copse_network *network = s->problem->network;
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  int *first;
  bool *covered;
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)network->n_nodes, covered, s->err));
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)network->n_terminals, s->base, s->err));
  COPSE_DO(copse_nodes_orbits(network, &s->problem->rotation, 1, &scratch, &first, s->err));
  for (int i = 0; i < network->n_terminals; i++) {
    bool *known = &covered[first[network->terminals[i]]];
    if (!*known) s->base[s->n_bases++] = i;
    *known = true;
  }
  return COPSE_OK;
}

static copse_status prepare(struct search *s) {
  const struct copse_network *network = s->problem->network;
  size_t nodes = (size_t)network->n_nodes, links = (size_t)network->n_links;
  COPSE_DO(find_orbits(s));
  COPSE_DO(find_bases(s));
  COPSE_DO(COPSE_ARRAY(&s->arena, nodes, s->blocked, s->err));
  COPSE_DO(COPSE_ARRAY(&s->arena, nodes, s->below, s->err));
  COPSE_DO(COPSE_ARRAY(&s->arena, nodes, s->nodes, s->err));
  COPSE_DO(COPSE_ARRAY(&s->arena, links, s->lengths, s->err));
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)s->n_orbits, s->loads, s->err));
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)s->n_orbits, s->row, s->err));
  COPSE_DO(COPSE_ARRAYS(&s->arena, (size_t)s->n_orbits, double, s->err, &s->price, &s->best_price));
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)s->n_bases, s->share_price, s->err));
  COPSE_DO(
      COPSE_ARRAYS(&s->arena, (size_t)s->n_bases, int, s->err, &s->first_column, &s->last_column));
  for (int b = 0; b < s->n_bases; b++) s->first_column[b] = -1;
  COPSE_DO(copse_shortest_prepare(network, &s->arena, &s->shortest, s->err));
  for (int i = 0; i < network->n_terminals; i++)
    s->blocked[network->terminals[i]] = !s->problem->forward;
  for (int b = 0; b < s->n_bases; b++) {
    int64_t sum = 0;
    for (int j = 0; j < network->n_terminals; j++)
      if (copse_add_overflows(sum, column_demand(s, b, j), &sum) || sum > INT64_MAX >> 12)
        return copse_fail(s->err, COPSE_OVERFLOW, "the demand of a rank is too large");
    if (sum > s->most_demand) s->most_demand = sum;
  }
  return COPSE_OK;
}

static void release(struct search *s) {
  copse_mixture_free(s->master);
  copse_arena_free(&s->arena);
  copse_arena_free(&s->ways);
}

/* ---- columns ---------------------------------------------------------------------- */

static int orbit_factor(const struct search *s, int orbit) {
  return s->problem->rotation.order / s->orbit_size[orbit];
}

/* Finds the shortest-path tree of a base source and its loads: demand below each link, by orbit. */
static copse_status find_tree(struct search *s, int base, struct copse_concurrent *out) {
  const struct copse_network *network = s->problem->network;
  const int *order = s->shortest.order;
  copse_shortest_run(&s->shortest, network->terminals[s->base[base]], s->lengths, s->blocked);
  memset(s->below, 0, (size_t)network->n_nodes * sizeof *s->below);
  memset(s->loads, 0, (size_t)s->n_orbits * sizeof *s->loads);
  for (int j = 0; j < network->n_terminals; j++) {
    int node = network->terminals[j];
    s->below[node] = column_demand(s, base, j);
    if (s->below[node] > 0 && copse_shortest_length(&s->shortest, node) < 0) {
      out->unreached_source = s->base[base];
      out->unreached_sink = j;
      return COPSE_INFEASIBLE;
    }
  }
  for (int i = s->shortest.n_order - 1; i > 0; i--) {
    int link = s->shortest.via[order[i]];
    s->below[network->links[link].src] += s->below[order[i]];
    s->loads[s->orbit[link]] += s->below[order[i]] * orbit_factor(s, s->orbit[link]);
  }
  return COPSE_OK;
}

/* Adds a column, each row in its own capacity, and T near 1, whatever the units. */
static copse_status add_to_master(struct search *s, const struct column *column) {
  for (int i = 0; i < column->n_loads; i++) {
    const struct column_load *load = &column->loads[i];
    s->row[i] = (struct copse_mixture_load){
        load->orbit, (double)load->load / (double)s->orbit_capacity[load->orbit] / s->unit};
  }
  return copse_mixture_add(s->master, column->base, s->row, column->n_loads, s->err);
}

/* Sets time, prices and the columns' weights; or `stuck`, which leaves them as they were: what was
 * found so far stands, and its gap is stated. */
static void solve_master(struct search *s, double slack) {
  s->stuck = !copse_mixture_solve(s->master, slack);
  if (s->stuck) return;
  s->time = copse_mixture_most(s->master) * s->unit;
  for (int o = 0; o < s->n_orbits; o++) {
    double price = copse_mixture_price(s->master, o);
    s->price[o] = (price > 0 ? price : 0) / (double)s->orbit_capacity[o];
  }
  for (int b = 0; b < s->n_bases; b++)
    s->share_price[b] = copse_mixture_share_price(s->master, b) * s->unit;
  for (size_t c = 0; c < s->n_columns; c++)
    s->columns[c].weight = copse_mixture_weight(s->master, c);
}

/* Keeps the tree as a column, its loads as a sparse list. */
static copse_status keep_tree(struct search *s, int base) {
  const struct copse_network *network = s->problem->network;
  /* the first tree of each source is a solution by itself, should no master be solved */
  struct column column = {.base = base, .weight = s->n_rounds == 0 ? 1 : 0, .next = -1};
  for (int o = 0; o < s->n_orbits; o++) column.n_loads += s->loads[o] > 0;
  COPSE_DO(COPSE_GROW_IN(&s->arena, s->columns, s->columns_capacity, s->n_columns + 1, s->err));
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)column.n_loads, column.loads, s->err));
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)network->n_nodes, column.via, s->err));
  memcpy(column.via, s->shortest.via, (size_t)network->n_nodes * sizeof *column.via);
  for (int o = 0, n = 0; o < s->n_orbits; o++)
    if (s->loads[o] > 0) column.loads[n++] = (struct column_load){o, s->loads[o]};
  int number = (int)s->n_columns;
  *(s->first_column[base] < 0 ? &s->first_column[base] : &s->columns[s->last_column[base]].next) =
      number;
  s->last_column[base] = number;
  s->columns[s->n_columns++] = column;
  return add_to_master(s, &column);
}

/* Sets integer lengths from the prices of orbits. */
static void set_lengths(struct search *s, const double *price) {
  double most = 0;
  for (int o = 0; o < s->n_orbits; o++)
    if (price[o] * orbit_factor(s, o) > most) most = price[o] * orbit_factor(s, o);
  for (int e = 0; e < s->problem->network->n_links; e++) {
    int o = s->orbit[e];
    double part = most > 0 ? price[o] * orbit_factor(s, o) / most : 1;
    s->lengths[e] = (int64_t)llround(part * (double)(COPSE_LENGTH_MAX >> 2));
  }
}

static double tree_cost(const struct search *s, const double *price) {
  double cost = 0;
  for (int o = 0; o < s->n_orbits; o++) cost += price[o] * (double)s->loads[o];
  return cost;
}

/* Finds shortest-path trees under `price`; those whose cost under the master's own prices is below
 * their source's share price improve the master and are kept: so many. *bound: what these prices
 * prove about T. */
static copse_status price_columns(struct search *s, const double *price, double *bound,
                                  int *improving, struct copse_concurrent *out) {
  double weight = 0, cost = 0;
  *improving = 0;
  set_lengths(s, price);
  for (int o = 0; o < s->n_orbits; o++) weight += price[o] * (double)s->orbit_capacity[o];
  for (int b = 0; b < s->n_bases; b++) {
    COPSE_DO(find_tree(s, b, out));
    cost += tree_cost(s, price);
    double own = tree_cost(s, s->price), share = s->share_price[b];
    if (s->n_rounds > 0 && own >= share - COPSE_PATH_GAIN * fabs(share)) continue;
    COPSE_DO(keep_tree(s, b));
    ++*improving;
  }
  *bound = weight > 0 ? cost / weight : 0;
  return COPSE_OK;
}

/* Sets the scale of the master to the time that the first trees take by themselves. */
static copse_status estimate_unit(struct search *s, const double *price,
                                  struct copse_concurrent *out) {
  set_lengths(s, price);
  for (int b = 0; b < s->n_bases; b++) {
    COPSE_DO(find_tree(s, b, out));
    for (int o = 0; o < s->n_orbits; o++) {
      double time = (double)s->loads[o] / (double)s->orbit_capacity[o];
      if (time > s->unit) s->unit = time;
    }
  }
  return COPSE_OK;
}

/* ---- the search ------------------------------------------------------------------- */

/* Finds, where the master is large, ways for all pairs without it, and prices that bound them. */
static copse_status balance_pairs(struct search *s, double tolerance) {
  struct copse_balance_problem problem = {
      s->problem->network, s->blocked, s->problem->demand, s->base,     s->orbit,
      s->orbit_capacity,   s->loads,   s->n_bases,         s->n_orbits, 1 + tolerance};
  for (int o = 0; o < s->n_orbits; o++) s->loads[o] = orbit_factor(s, o);
  COPSE_DO(copse_balance_paths(&problem, &s->ways, &s->balance, s->err));
  if (s->balance.bound <= s->best_bound) return COPSE_OK;
  s->best_bound = s->balance.bound;
  memcpy(s->best_price, s->balance.price, (size_t)s->n_orbits * sizeof *s->best_price);
  return COPSE_OK;
}

/* Runs rounds of master and pricing. Prices are smoothed towards the best ones so far (Wentges
 * 1997), which damps their swings; where the smoothed ones find nothing, the master's own
 * decide. */
static copse_status run_rounds(struct search *s, struct copse_concurrent *out) {
  double tolerance = s->problem->tolerance.num > 0 ? copse_q_to_double(s->problem->tolerance) : 0;
  double last_time = INFINITY;
  int stalled = 0, improving;
  double bound;
  double *smoothed;
  tolerance = fmax(tolerance, COPSE_LEAST_TOLERANCE);
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)s->n_orbits, smoothed, s->err));
  for (int o = 0; o < s->n_orbits; o++) s->best_price[o] = 1 / (double)s->orbit_capacity[o];
  COPSE_DO(estimate_unit(s, s->best_price, out));
  COPSE_DO(price_columns(s, s->best_price, &bound, &improving, out));
  s->best_bound = bound;
  bool large = s->n_orbits > COPSE_LP_MIXTURE_WHOLE;
  if (large) COPSE_DO(balance_pairs(s, tolerance));
  if (s->balance.n_paths > 0 && s->balance.time <= s->best_bound * (1 + tolerance)) return COPSE_OK;
  int64_t sweep = (int64_t)s->n_bases * s->problem->network->n_links;
  int64_t most = copse_smaller(COPSE_MAX_ROUNDS, large ? COPSE_PRICING_WORK / sweep : INT64_MAX);
  for (s->n_rounds = 1; s->n_rounds < most; s->n_rounds++) {
    solve_master(s, fmax(tolerance / 4, COPSE_LP_MIXTURE_SLACK));
    if (s->stuck) break;
    if (s->time <= s->best_bound * (1 + tolerance)) break;
    /* neither side moves: degenerate steps, and rounding noise at the optimum */
    stalled = s->time < last_time * (1 - COPSE_ROUND_GAIN) ? 0 : stalled + 1;
    if (stalled > COPSE_STALLED_ROUNDS) break;
    bool still = s->time > last_time * (1 - tolerance / COPSE_PRICE_STILL);
    double own = large && still ? 1 : COPSE_PRICE_OWN;
    last_time = s->time;
    for (int o = 0; o < s->n_orbits; o++)
      smoothed[o] = own * s->price[o] + (1 - own) * s->best_price[o];
    COPSE_DO(price_columns(s, smoothed, &bound, &improving, out));
    const double *used = smoothed;
    if (improving == 0) {
      used = s->price;
      COPSE_DO(price_columns(s, s->price, &bound, &improving, out));
    }
    if (bound > s->best_bound) {
      s->best_bound = bound;
      stalled = 0;
      memcpy(s->best_price, used, (size_t)s->n_orbits * sizeof *used);
    }
    if (improving == 0) break;
    copse_progress_report(s->problem->progress, "flow", s->n_rounds, most);
  }
  return COPSE_OK;
}

/* ---- rounding: exact weights ------------------------------------------------------- */

typedef __int128 wide;

/* Equations sum_j a[i][j] * weight[j] = a[i][n], modulo a prime: rationals would grow. */
struct system {
  const struct copse_prime *prime;
  int rows, n;
  uint64_t *a;    /* [rows * (n + 1)] below the prime */
  size_t *column; /* [n] of the search */
  int *pivot_row; /* [n] -1: free */
  bool *used;     /* [rows] by a pivot */
};

static uint64_t *at(const struct system *y, int i, int j) {
  return &y->a[(size_t)i * (size_t)(y->n + 1) + (size_t)j];
}

static bool is_full(const struct search *s, const double *load, int o) {
  return load[o] >= s->time * (double)s->orbit_capacity[o] * (1 - COPSE_FULL_SLACK);
}

/* Fills a row per source (its weights add up to 1) and per full orbit (its load: T * capacity). */
static void fill_system(const struct search *s, const double *load, struct copse_q time,
                        struct system *y) {
  const struct copse_prime *p = y->prime;
  uint64_t t = copse_prime_times(p, copse_prime_reduce(p, (uint64_t)time.num),
                                 copse_prime_inverse(p, copse_prime_reduce(p, (uint64_t)time.den)));
  for (int j = 0; j < y->n; j++) *at(y, s->columns[y->column[j]].base, j) = 1;
  for (int b = 0; b < s->n_bases; b++) *at(y, b, y->n) = 1;
  for (int o = 0, row = s->n_bases; o < s->n_orbits; o++) {
    if (!is_full(s, load, o)) continue;
    for (int j = 0; j < y->n; j++) {
      const struct column *c = &s->columns[y->column[j]];
      for (int i = 0; i < c->n_loads; i++)
        if (c->loads[i].orbit == o)
          *at(y, row, j) = copse_prime_reduce(p, (uint64_t)c->loads[i].load);
    }
    *at(y, row++, y->n) = copse_prime_times(p, t, (uint64_t)s->orbit_capacity[o]);
  }
}

/* Computes to[i] -= factor * from[i], i < n. */
static void subtract(const struct copse_prime *p, uint64_t *to, const uint64_t *from, int n,
                     uint64_t factor) {
  const unsigned __int128 minus = copse_prime_value(p) - factor;
  for (int i = 0; i < n; i++)
    if (from[i] != 0) to[i] = copse_prime_reduce(p, minus * from[i] + to[i]);
}

/* Eliminates by Gauss and Jordan. False if the equations contradict each other. */
static bool eliminate(struct system *y) {
  for (int j = 0; j < y->n; j++) {
    int pivot = -1;
    for (int i = 0; i < y->rows && pivot < 0; i++)
      if (!y->used[i] && *at(y, i, j) != 0) pivot = i;
    y->pivot_row[j] = pivot;
    if (pivot < 0) continue;
    uint64_t factor = copse_prime_inverse(y->prime, *at(y, pivot, j));
    y->used[pivot] = true;
    for (int k = j; k <= y->n; k++)
      *at(y, pivot, k) = copse_prime_times(y->prime, *at(y, pivot, k), factor);
    for (int i = 0; i < y->rows; i++)
      if (i != pivot && *at(y, i, j) != 0)
        subtract(y->prime, at(y, i, j), at(y, pivot, j), y->n + 1 - j, *at(y, i, j));
  }
  int row = 0;
  while (row < y->rows && (y->used[row] || *at(y, row, y->n) == 0)) row++;
  return row == y->rows;
}

/* Finds the weights; free ones are put at a near fraction and the others follow. */
static void back_substitute(const struct search *s, const struct system *y, uint64_t *weight) {
  const struct copse_prime *p = y->prime;
  for (int j = 0; j < y->n; j++) {
    uint64_t near = (uint64_t)lround(s->columns[y->column[j]].weight * 64);
    weight[j] = y->pivot_row[j] < 0 ? copse_prime_times(p, near, copse_prime_inverse(p, 64))
                                    : *at(y, y->pivot_row[j], y->n);
  }
  for (int j = 0; j < y->n; j++)
    for (int k = 0; k < y->n && y->pivot_row[j] >= 0; k++)
      if (y->pivot_row[k] < 0) subtract(p, &weight[j], &weight[k], 1, *at(y, y->pivot_row[j], k));
}

/* Converts weights to integers over their common denominator, *whole; 0 where it doesn't fit. */
static void to_integers(const struct search *s, const struct system *y, const int64_t *num,
                        const int64_t *den, int64_t *weights, int64_t *whole) {
  wide common = 1, weight;
  for (int j = 0; j < y->n; j++) {
    common = common / copse_gcd((int64_t)common, den[j]) * den[j];
    if (common >> (COPSE_WEIGHT_BITS - 1) > 0) return;
  }
  for (size_t c = 0; c < s->n_columns; c++) weights[c] = 0;
  for (int j = 0; j < y->n; j++) {
    if ((weight = common / den[j] * num[j]) > common) return;
    weights[y->column[j]] = (int64_t)weight;
  }
  *whole = (int64_t)common;
}

/* Solves modulo both primes, and leaves *whole 0 where no solution fits. */
static copse_status solve_systems(const struct search *s, struct system y, const double *load,
                                  struct copse_q time, int64_t *weights, int64_t *whole,
                                  struct copse_arena *scratch) {
  uint64_t *found[2];
  int64_t *num, *den;
  size_t rows = (size_t)y.rows, n = (size_t)y.n;
  COPSE_DO(COPSE_ARRAYS(scratch, n, int64_t, s->err, &num, &den));
  for (int i = 0; i < 2; i++) {
    y.prime = &copse_primes[i];
    COPSE_DO(COPSE_ARRAY(scratch, rows * (n + 1), y.a, s->err));
    COPSE_DO(COPSE_ARRAY(scratch, rows, y.used, s->err));
    COPSE_DO(COPSE_ARRAY(scratch, n, y.pivot_row, s->err));
    COPSE_DO(COPSE_ARRAY(scratch, n, found[i], s->err));
    fill_system(s, load, time, &y);
    if (!eliminate(&y)) return COPSE_OK;
    back_substitute(s, &y, found[i]);
  }
  for (size_t j = 0; j < n; j++)
    if (!copse_prime_fraction(found[0][j], found[1][j], COPSE_WEIGHT_BITS, &num[j], &den[j]))
      return COPSE_OK;
  to_integers(s, &y, num, den, weights, whole);
  return COPSE_OK;
}

/* Finds weights of the columns as integers over a common denominator, *whole. They fill, at the
 * given time, exactly the orbits of links that the master fills. 0 where there are none that fit 48
 * bits; the caller then rounds. */
static copse_status exact_weights(const struct search *s, struct copse_q time, int64_t *weights,
                                  int64_t *whole) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct system y = {.rows = s->n_bases};
  double *load; /* of each orbit in the floating-point solution */
  *whole = 0;
  if (time.num == 0) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)s->n_orbits, load, s->err));
  COPSE_DO(COPSE_ARRAY(&scratch, s->n_columns, y.column, s->err));
  for (size_t c = 0; c < s->n_columns; c++) {
    const struct column *column = &s->columns[c];
    for (int i = 0; i < column->n_loads; i++)
      load[column->loads[i].orbit] += column->weight * (double)column->loads[i].load;
    if (column->weight >= COPSE_LEAST_WEIGHT) y.column[y.n++] = c;
  }
  for (int o = 0; o < s->n_orbits; o++) y.rows += is_full(s, load, o);
  if (y.rows > COPSE_WEIGHT_EQUATIONS || y.n > COPSE_WEIGHT_EQUATIONS) return COPSE_OK;
  return solve_systems(s, y, load, time, weights, whole, &scratch);
}

/* ---- the bound -------------------------------------------------------------------- */

/* Computes lengths = prices * grid / largest price, rounded. */
static void grid_lengths(const struct search *s, const double *price, double most, int64_t grid,
                         int64_t *lengths) {
  for (int e = 0; e < s->problem->network->n_links; e++) {
    int o = s->orbit[e];
    lengths[e] = (int64_t)llround(price[o] * orbit_factor(s, o) / most * (double)grid);
  }
}

/* Computes the bound that lengths prove: sum demand * distance / sum capacity * length, exactly. */
static bool prove(struct search *s, const int64_t *lengths, struct copse_q *bound,
                  struct copse_q *in_units) {
  const struct copse_network *network = s->problem->network;
  wide need = 0, room = 0;
  for (int e = 0; e < network->n_links; e++) room += (wide)network->links[e].capacity * lengths[e];
  for (int b = 0; b < s->n_bases; b++) {
    copse_shortest_run(&s->shortest, network->terminals[s->base[b]], lengths, s->blocked);
    for (int j = 0; j < network->n_terminals; j++)
      need += (wide)column_demand(s, b, j) *
              copse_shortest_length(&s->shortest, network->terminals[j]) *
              s->problem->rotation.order;
  }
  if (room <= 0 || need <= 0) return false;
  if (!copse_mpq_get_product(need, 1, room, 1, in_units))
    *in_units = COPSE_Q_ZERO; /* no exact weights then */
  return copse_mpq_get_product(need, s->problem->time_unit, room, s->problem->total, bound);
}

static void take_better(struct search *s, const int64_t *lengths, struct copse_concurrent *out) {
  struct copse_q bound, in_units;
  if (!prove(s, lengths, &bound, &in_units) || copse_q_cmp(bound, out->bound) <= 0) return;
  out->bound = bound;
  out->bound_in_units = in_units;
  memcpy(out->lengths, lengths, (size_t)s->problem->network->n_links * sizeof *lengths);
}

/* Tries lengths from one set of prices: as fractions if they are some, else on grids. */
static copse_status try_prices(struct search *s, const double *price,
                               struct copse_concurrent *out) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  size_t links = (size_t)s->problem->network->n_links;
  double most = 0, *values;
  int64_t *lengths;
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)s->n_orbits, values, s->err));
  COPSE_DO(COPSE_ARRAY(&scratch, links, lengths, s->err));
  for (int o = 0; o < s->n_orbits; o++) {
    values[o] = price[o] * orbit_factor(s, o);
    if (values[o] > most) most = values[o];
  }
  if (most <= 0) return COPSE_OK;
  for (int o = 0; o < s->n_orbits; o++) values[o] /= most;
  int64_t q = copse_common_denominator(values, s->n_orbits, COPSE_PRICE_DENOMINATOR, COPSE_NEAR);
  if (q > 0) {
    grid_lengths(s, price, most, q, lengths);
    take_better(s, lengths, out);
  }
  for (int bits = 24; bits >= 10 && (q == 0 || bits == 24); bits -= 7) {
    grid_lengths(s, price, most, (int64_t)1 << bits, lengths);
    take_better(s, lengths, out);
  }
  return COPSE_OK;
}

static copse_status round_bound(struct search *s, struct copse_concurrent *out) {
  COPSE_DO(try_prices(s, s->price, out));
  COPSE_DO(try_prices(s, s->best_price, out));
  if (out->bound.num == 0)
    return copse_fail(s->err, COPSE_OVERFLOW,
                      "the bound needs more than 64 bits; use fewer digits");
  return COPSE_OK;
}

/* ---- the paths -------------------------------------------------------------------- */

#define AMOUNT_MAX ((int64_t)1 << 62)

struct collector {
  struct search *s;
  struct copse_concurrent *out; /* whole is set */
  const int64_t *weights;       /* of the columns, out of whole; NULL: their own, rounded */
  struct copse_concurrent_path *paths;
  size_t n, capacity;
  struct copse_arena arena; /* of the result's paths */
  bool overflow;
};

/* Writes the way to a sink in a column's tree into the scratch from its end; returns its start. */
static int walk(struct collector *k, const struct column *column, int sink) {
  const struct copse_network *network = k->s->problem->network;
  int at = network->n_nodes, node = network->terminals[sink];
  k->s->nodes[--at] = node;
  while (column->via[node] >= 0) {
    node = network->links[column->via[node]].src;
    k->s->nodes[--at] = node;
  }
  return at;
}

/* Adds the load of a path to the orbits of its links. */
static void add_load(struct collector *k, const struct column *column, int sink, int64_t amount) {
  const struct copse_network *network = k->s->problem->network;
  int node = network->terminals[sink];
  for (int link; (link = column->via[node]) >= 0; node = network->links[link].src) {
    int o = k->s->orbit[link];
    int64_t load;
    if (copse_mul_overflows(amount, orbit_factor(k->s, o), &load) ||
        copse_add_overflows(k->s->loads[o], load, &k->s->loads[o]))
      k->overflow = true;
  }
}

/* Adds `amount` to the pair's path if it has the same, else a new path. */
static copse_status add_path(struct collector *k, size_t first,
                             const struct copse_concurrent_path *path, int at) {
  int n = k->s->problem->network->n_nodes - at;
  for (size_t i = first; i < k->n; i++) {
    struct copse_concurrent_path *p = &k->paths[i];
    if (p->n_nodes != n || memcmp(p->nodes, k->s->nodes + at, (size_t)n * sizeof *k->s->nodes) != 0)
      continue;
    p->amount += path->amount;
    return COPSE_OK;
  }
  COPSE_DO(COPSE_GROW_IN(&k->arena, k->paths, k->capacity, k->n + 1, k->s->err));
  int *copy;
  COPSE_DO(COPSE_ARRAY(&k->arena, (size_t)n, copy, k->s->err));
  memcpy(copy, k->s->nodes + at, (size_t)n * sizeof *copy);
  k->paths[k->n] = *path;
  k->paths[k->n].nodes = copy;
  k->paths[k->n++].n_nodes = n;
  return COPSE_OK;
}

/* Returns how much of a pair's demand takes a column's tree. */
static int64_t amount_of(const struct collector *k, int c, int64_t due) {
  const struct column *column = &k->s->columns[c];
  if (k->weights) return due / k->out->whole * k->weights[c];
  return column->weight < COPSE_LEAST_WEIGHT ? 0 : (int64_t)floor(column->weight * (double)due);
}

/* Collects a pair's paths; its largest share takes up what rounding leaves. */
static copse_status collect_pair(struct collector *k, int base, int sink) {
  size_t first = k->n;
  int largest = -1;
  int64_t due, left;
  if (copse_mul_overflows(column_demand(k->s, base, sink), k->out->whole, &due)) {
    k->overflow = true;
    return COPSE_OK;
  }
  if (due == 0) return COPSE_OK;
  left = due;
  for (int c = k->s->first_column[base]; c >= 0; c = k->s->columns[c].next) {
    left -= amount_of(k, c, due);
    if (largest < 0 || amount_of(k, c, due) > amount_of(k, largest, due)) largest = c;
  }
  for (int c = k->s->first_column[base]; c >= 0; c = k->s->columns[c].next) {
    struct copse_concurrent_path path = {
        .source = k->s->base[base], .sink = sink, .amount = amount_of(k, c, due)};
    if (c == largest) path.amount += left;
    if (path.amount <= 0) continue;
    add_load(k, &k->s->columns[c], sink, path.amount);
    COPSE_DO(add_path(k, first, &path, walk(k, &k->s->columns[c], sink)));
  }
  return COPSE_OK;
}

/* Finds the most loaded orbit, compared exactly; the largest must fit the caller's fractions. */
static bool measure(const struct collector *k, struct copse_q *time) {
  const struct search *s = k->s;
  int most = -1;
  if (k->overflow || s->problem->total > AMOUNT_MAX / k->out->whole) return false;
  for (int o = 0; o < s->n_orbits; o++) {
    if (k->s->loads[o] == 0) continue;
    if (most < 0 || (wide)k->s->loads[o] * s->orbit_capacity[most] >
                        (wide)k->s->loads[most] * s->orbit_capacity[o])
      most = o;
  }
  if (most < 0) return false;
  return copse_mpq_get_product(k->s->loads[most], s->problem->time_unit,
                               (wide)s->orbit_capacity[most] * k->out->whole, s->problem->total,
                               time);
}

/* Collects all paths with amounts in units of demand / whole. *good: it fits, and is better. */
static copse_status collect(struct collector *k, bool *good, struct copse_q *time) {
  *good = false;
  memset(k->s->loads, 0, (size_t)k->s->n_orbits * sizeof *k->s->loads);
  for (int b = 0; b < k->s->n_bases; b++)
    for (int j = 0; j < k->s->problem->network->n_terminals && !k->overflow; j++)
      COPSE_DO(collect_pair(k, b, j));
  *good = measure(k, time) && (k->out->time.num == 0 || copse_q_cmp(*time, k->out->time) < 0);
  return COPSE_OK;
}

/* Takes the collector's paths as the best so far. */
static void take_paths(struct collector *k, struct copse_q time) {
  struct copse_arena before = k->out->arena;
  k->out->arena = k->arena;
  k->arena = before;
  k->out->paths = k->paths;
  k->out->n_paths = (int)k->n;
  k->out->time = time;
}

static void release_collector(struct collector *k) { copse_arena_free(&k->arena); }

/* Tries one denominator, and keeps its solution if that is the best so far. */
static copse_status try_whole(struct search *s, int64_t whole, const int64_t *weights,
                              struct copse_concurrent *out) {
  int64_t before = out->whole;
  COPSE_AT_END(release_collector) struct collector k = {.s = s, .out = out, .weights = weights};
  struct copse_q time;
  bool good;
  out->whole = whole;
  COPSE_DO(collect(&k, &good, &time));
  if (!good) {
    out->whole = before;
    return COPSE_OK;
  }
  take_paths(&k, time);
  return COPSE_OK;
}

/* Tries the denominator that the weights show, if they add up to exactly one per source. */
static copse_status try_visible(struct search *s, int64_t *weights, struct copse_concurrent *out) {
  double *values;
  int n = 0;
  COPSE_DO(COPSE_ARRAY(&s->arena, s->n_columns, values, s->err));
  for (size_t c = 0; c < s->n_columns; c++)
    if (s->columns[c].weight >= COPSE_LEAST_WEIGHT) values[n++] = s->columns[c].weight;
  int64_t whole = copse_common_denominator(values, n, COPSE_WEIGHT_DENOMINATOR, COPSE_NEAR);
  bool exact = whole > 0;
  for (int b = 0; b < s->n_bases && exact; b++) {
    int64_t left = whole;
    for (int c = s->first_column[b]; c >= 0; c = s->columns[c].next) {
      weights[c] = s->columns[c].weight < COPSE_LEAST_WEIGHT
                       ? 0
                       : llround(s->columns[c].weight * (double)whole);
      left -= weights[c];
    }
    exact = left == 0;
  }
  if (exact) return try_whole(s, whole, weights, out);
  return COPSE_OK;
}

/* Tries the paths that were found without the master programme. */
static void try_balance(struct search *s, struct copse_concurrent *out) {
  const struct copse_balance *found = &s->balance;
  struct collector k = {.s = s, .out = out, .paths = found->paths, .n = found->n_paths};
  struct copse_q time;
  out->whole = found->whole;
  memcpy(s->loads, found->load, (size_t)s->n_orbits * sizeof *s->loads);
  if (!measure(&k, &time)) return;
  k.arena = s->ways;
  take_paths(&k, time);
  s->ways = k.arena;
}

/* Takes exact weights if they are seen or can be solved for; else amounts rounded down to the
 * finest grid whose fractions fit. */
static copse_status round_paths(struct search *s, struct copse_concurrent *out) {
  int64_t *weights, whole;
  out->time = COPSE_Q_ZERO;
  if (s->balance.n_paths > 0) try_balance(s, out);
  if (s->n_rounds == 0 && out->time.num > 0) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(&s->arena, s->n_columns, weights, s->err));
  COPSE_DO(try_visible(s, weights, out));
  if (!copse_q_eq(out->time, out->bound)) {
    COPSE_DO(exact_weights(s, out->bound_in_units, weights, &whole));
    if (whole > 0) COPSE_DO(try_whole(s, whole, weights, out));
  }
  bool rounded = copse_q_eq(out->time, out->bound);
  for (int bits = 32; bits >= 0 && !rounded; bits -= 4) {
    struct copse_q before = out->time;
    COPSE_DO(try_whole(s, (int64_t)1 << bits, NULL, out));
    rounded = !copse_q_eq(out->time, before); /* coarser ones are no better */
  }
  if (out->time.num == 0)
    return copse_fail(s->err, COPSE_OVERFLOW, "the flows need more than 64 bits; use fewer digits");
  return COPSE_OK;
}

/* ---- the whole ---------------------------------------------------------------------- */

copse_status copse_concurrent_solve(const struct copse_concurrent_problem *problem,
                                    struct copse_concurrent *out, struct copse_err *err) {
  COPSE_AT_END(release) struct search s = {.problem = problem, .err = err};
  *out = (struct copse_concurrent){.whole = 1, .unreached_source = -1, .unreached_sink = -1};
  COPSE_DO(prepare(&s));
  COPSE_DO(copse_calloc((size_t)problem->network->n_links, sizeof(int64_t), &out->lengths, err));
  out->time = out->bound = out->bound_in_units = COPSE_Q_ZERO;
  if (s.most_demand == 0) return COPSE_OK;
  if (problem->lengths) {
    take_better(&s, problem->lengths, out);
    return COPSE_OK;
  }
  bool large = s.n_orbits > COPSE_LP_MIXTURE_WHOLE;
  int64_t work = large ? COPSE_LP_MIXTURE_WORK : problem->work > 0 ? problem->work : INT64_MAX;
  COPSE_DO(copse_mixture_new(s.n_orbits, s.n_bases, work, &s.master, err));
  copse_status status = run_rounds(&s, out);
  if (status == COPSE_INFEASIBLE) return COPSE_OK; /* the caller names the ranks */
  if (status != COPSE_OK) return status;
  out->finished = !s.stuck;
  COPSE_DO(round_bound(&s, out));
  return round_paths(&s, out);
}
