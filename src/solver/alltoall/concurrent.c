/*
 * The search for a maximum concurrent flow: rounds of a master problem that mixes trees, and of
 * shortest paths under its prices, which find trees that improve it.
 *
 *   prices of links -> shortest-path trees, one per source -> mixture of least time
 *         ^                                                        |
 *         +--------------------------------------------------------+
 */
#include "solver/alltoall/concurrent.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "solver/alltoall/internal.h"
#include "solver/alltoall/policy.h"

static int64_t demand_of(const struct copse_concurrent_problem *problem, int source, int sink) {
  if (source == sink) return 0;
  if (!problem->demand) return 1;
  return problem->demand[(size_t)source * (size_t)problem->network->n_terminals + (size_t)sink];
}

int64_t copse_column_demand(const struct copse_search *s, int base, int sink) {
  return demand_of(s->problem, s->base[base], sink);
}

/* ---- setting up ------------------------------------------------------------------- */

/* Orbits of links; a link's load is its orbit's, times order / size of the orbit. */
static copse_status find_orbits(struct copse_search *s, struct copse_err *err) {
  const struct copse_network *network = s->problem->network;
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  size_t links = (size_t)network->n_links;
  int *first;
  COPSE_DO(COPSE_ARRAYS(&s->arena, links, int, err, &s->orbit, &s->orbit_size));
  COPSE_DO(COPSE_ARRAY(&s->arena, links, s->orbit_capacity, err));
  COPSE_DO(copse_links_orbits(network, &s->problem->rotation, 1, &scratch, &first, err));
  for (int e = 0; e < network->n_links; e++) {
    if (first[e] == e) s->orbit_capacity[s->n_orbits] = network->links[e].capacity;
    s->orbit[e] = first[e] == e ? s->n_orbits++ : s->orbit[first[e]];
    s->orbit_size[s->orbit[e]]++;
  }
  return COPSE_OK;
}

/* One source per orbit of terminals. */
static copse_status find_bases(struct copse_search *s, struct copse_err *err) {
  const struct copse_network *network = s->problem->network;
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  int *first;
  bool *covered;
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)network->n_nodes, covered, err));
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)network->n_terminals, s->base, err));
  COPSE_DO(copse_nodes_orbits(network, &s->problem->rotation, 1, &scratch, &first, err));
  for (int i = 0; i < network->n_terminals; i++) {
    bool *known = &covered[first[network->terminals[i]]];
    if (!*known) s->base[s->n_bases++] = i;
    *known = true;
  }
  return COPSE_OK;
}

static copse_status prepare(struct copse_search *s, struct copse_err *err) {
  const struct copse_network *network = s->problem->network;
  size_t nodes = (size_t)network->n_nodes, links = (size_t)network->n_links;
  COPSE_DO(find_orbits(s, err));
  COPSE_DO(find_bases(s, err));
  COPSE_DO(COPSE_ARRAY(&s->arena, nodes, s->blocked, err));
  COPSE_DO(COPSE_ARRAY(&s->arena, nodes, s->below, err));
  COPSE_DO(COPSE_ARRAY(&s->arena, links, s->lengths, err));
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)s->n_orbits, s->loads, err));
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)s->n_orbits, s->row, err));
  COPSE_DO(COPSE_ARRAYS(&s->arena, (size_t)s->n_orbits, double, err, &s->price, &s->best_price));
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)s->n_bases, s->share_price, err));
  COPSE_DO(copse_shortest_prepare(network, &s->arena, &s->shortest, err));
  for (int i = 0; i < network->n_terminals; i++)
    s->blocked[network->terminals[i]] = !s->problem->forward;
  for (int b = 0; b < s->n_bases; b++) {
    int64_t sum = 0;
    for (int j = 0; j < network->n_terminals; j++)
      if (copse_add_overflows(sum, copse_column_demand(s, b, j), &sum) || sum > INT64_MAX >> 12)
        return copse_fail(err, COPSE_OVERFLOW, "the demand of a rank is too large");
    if (sum > s->most_demand) s->most_demand = sum;
  }
  return COPSE_OK;
}

static void release(struct copse_search *s) {
  copse_mixture_free(s->master);
  free(s->columns);
  copse_arena_free(&s->arena);
}

/* ---- columns ---------------------------------------------------------------------- */

int copse_orbit_factor(const struct copse_search *s, int orbit) {
  return s->problem->rotation.order / s->orbit_size[orbit];
}

/* Loads of the tree of the last shortest-path run: demand below each link, by orbit. */
static copse_status load_tree(struct copse_search *s, int base, struct copse_concurrent *out) {
  const struct copse_network *network = s->problem->network;
  const int *order = s->shortest.order;
  memset(s->below, 0, (size_t)network->n_nodes * sizeof *s->below);
  memset(s->loads, 0, (size_t)s->n_orbits * sizeof *s->loads);
  for (int j = 0; j < network->n_terminals; j++) {
    int node = network->terminals[j];
    s->below[node] = copse_column_demand(s, base, j);
    if (s->below[node] > 0 && copse_shortest_length(&s->shortest, node) < 0) {
      out->unreached_source = s->base[base];
      out->unreached_sink = j;
      return COPSE_INFEASIBLE;
    }
  }
  for (int i = s->shortest.n_order - 1; i > 0; i--) {
    int link = s->shortest.via[order[i]];
    s->below[network->links[link].src] += s->below[order[i]];
    s->loads[s->orbit[link]] += s->below[order[i]] * copse_orbit_factor(s, s->orbit[link]);
  }
  return COPSE_OK;
}

/* Each row in its own capacity, and T near 1, whatever the units and however they differ. */
static void add_to_master(struct copse_search *s, const struct copse_column *column) {
  for (int i = 0; i < column->n_loads; i++) {
    const struct copse_column_load *load = &column->loads[i];
    s->row[i] = (struct copse_mixture_load){
        load->orbit, (double)load->load / (double)s->orbit_capacity[load->orbit] / s->unit};
  }
  copse_mixture_add(s->master, column->base, s->row, column->n_loads);
}

/* Sets time, prices and the columns' weights; or `stuck`, which leaves them as they were: what was
 * found so far stands, and its gap is stated. */
static void solve_master(struct copse_search *s) {
  s->stuck = !copse_mixture_solve(s->master);
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
static copse_status keep_tree(struct copse_search *s, int base, struct copse_err *err) {
  const struct copse_network *network = s->problem->network;
  /* the first tree of each source is a solution by itself, should no master be solved */
  struct copse_column column = {.base = base, .weight = s->n_rounds == 0 ? 1 : 0};
  for (int o = 0; o < s->n_orbits; o++) column.n_loads += s->loads[o] > 0;
  COPSE_DO(
      copse_grow(&s->columns, &s->columns_capacity, s->n_columns + 1, sizeof *s->columns, err));
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)column.n_loads, column.loads, err));
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)network->n_nodes, column.via, err));
  memcpy(column.via, s->shortest.via, (size_t)network->n_nodes * sizeof *column.via);
  for (int o = 0, n = 0; o < s->n_orbits; o++)
    if (s->loads[o] > 0) column.loads[n++] = (struct copse_column_load){o, s->loads[o]};
  s->columns[s->n_columns++] = column;
  add_to_master(s, &column);
  return COPSE_OK;
}

/* Integer lengths from the prices of orbits. */
static void set_lengths(struct copse_search *s, const double *price) {
  double most = 0;
  for (int o = 0; o < s->n_orbits; o++)
    if (price[o] * copse_orbit_factor(s, o) > most) most = price[o] * copse_orbit_factor(s, o);
  for (int e = 0; e < s->problem->network->n_links; e++) {
    int o = s->orbit[e];
    double part = most > 0 ? price[o] * copse_orbit_factor(s, o) / most : 1;
    s->lengths[e] = (int64_t)llround(part * (double)(COPSE_LENGTH_MAX >> 2));
  }
}

/* The sum of demand * distance over base sources, in the units of the prices. */
struct pricing {
  double bound;  /* what these prices prove about T */
  int improving; /* columns added */
};

static double tree_cost(const struct copse_search *s, const double *price) {
  double cost = 0;
  for (int o = 0; o < s->n_orbits; o++) cost += price[o] * (double)s->loads[o];
  return cost;
}

/*
 * Shortest-path trees under `price`; those whose cost under the master's own prices is
 * below their source's share price improve the master and are kept.
 */
static copse_status price_columns(struct copse_search *s, const double *price,
                                  struct pricing *result, struct copse_concurrent *out,
                                  struct copse_err *err) {
  double weight = 0, cost = 0;
  result->improving = 0;
  set_lengths(s, price);
  for (int o = 0; o < s->n_orbits; o++) weight += price[o] * (double)s->orbit_capacity[o];
  for (int b = 0; b < s->n_bases; b++) {
    copse_shortest_run(&s->shortest, s->problem->network->terminals[s->base[b]], s->lengths,
                       s->blocked);
    COPSE_DO(load_tree(s, b, out));
    cost += tree_cost(s, price);
    double own = tree_cost(s, s->price), share = s->share_price[b];
    if (s->n_rounds > 0 && own >= share - 1e-9 * fabs(share)) continue;
    COPSE_DO(keep_tree(s, b, err));
    result->improving++;
  }
  result->bound = weight > 0 ? cost / weight : 0;
  return COPSE_OK;
}

/* The time that the first trees take by themselves sets the scale of the master. */
static copse_status estimate_unit(struct copse_search *s, const double *price,
                                  struct copse_concurrent *out) {
  set_lengths(s, price);
  for (int b = 0; b < s->n_bases; b++) {
    copse_shortest_run(&s->shortest, s->problem->network->terminals[s->base[b]], s->lengths,
                       s->blocked);
    COPSE_DO(load_tree(s, b, out));
    for (int o = 0; o < s->n_orbits; o++) {
      double time = (double)s->loads[o] / (double)s->orbit_capacity[o];
      if (time > s->unit) s->unit = time;
    }
  }
  return COPSE_OK;
}

/* ---- the search ------------------------------------------------------------------- */

/*
 * Rounds of master and pricing. Prices are smoothed towards the best ones so far
 * (Wentges 1997), which damps their swings; where the smoothed ones find nothing, the
 * master's own decide.
 */
static copse_status search(struct copse_search *s, struct copse_concurrent *out,
                           struct copse_err *err) {
  double tolerance = s->problem->tolerance.num > 0 ? copse_q_to_double(s->problem->tolerance) : 0;
  double last_time = INFINITY;
  int stalled = 0;
  struct pricing pricing;
  double *smoothed;
  if (tolerance < 1e-11) tolerance = 1e-11;
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)s->n_orbits, smoothed, err));
  for (int o = 0; o < s->n_orbits; o++) s->best_price[o] = 1 / (double)s->orbit_capacity[o];
  COPSE_DO(estimate_unit(s, s->best_price, out));
  COPSE_DO(price_columns(s, s->best_price, &pricing, out, err));
  s->best_bound = pricing.bound;
  for (s->n_rounds = 1; s->n_rounds < COPSE_MAX_ROUNDS; s->n_rounds++) {
    solve_master(s);
    if (s->stuck) break;
    if (s->time <= s->best_bound * (1 + tolerance)) break;
    /* neither side moves: degenerate steps, and rounding noise at the optimum */
    stalled = s->time < last_time * (1 - 1e-12) ? 0 : stalled + 1;
    if (stalled > COPSE_STALLED_ROUNDS) break;
    last_time = s->time;
    for (int o = 0; o < s->n_orbits; o++) smoothed[o] = 0.5 * s->price[o] + 0.5 * s->best_price[o];
    COPSE_DO(price_columns(s, smoothed, &pricing, out, err));
    const double *used = smoothed;
    if (pricing.improving == 0) {
      used = s->price;
      COPSE_DO(price_columns(s, s->price, &pricing, out, err));
    }
    if (pricing.bound > s->best_bound) {
      s->best_bound = pricing.bound;
      stalled = 0;
      memcpy(s->best_price, used, (size_t)s->n_orbits * sizeof *used);
    }
    if (pricing.improving == 0) break;
    copse_progress_report(s->problem->progress, "flow", s->n_rounds, COPSE_MAX_ROUNDS);
  }
  out->rounds = s->n_rounds;
  out->n_columns = (int)s->n_columns;
  return COPSE_OK;
}

copse_status copse_concurrent_solve(const struct copse_concurrent_problem *problem,
                                    struct copse_concurrent *out, struct copse_err *err) {
  COPSE_AT_END(release) struct copse_search s = {.problem = problem};
  *out = (struct copse_concurrent){.whole = 1, .unreached_source = -1, .unreached_sink = -1};
  COPSE_DO(prepare(&s, err));
  COPSE_DO(copse_calloc((size_t)problem->network->n_links, sizeof(int64_t), &out->lengths, err));
  out->time = out->bound = out->bound_in_units = COPSE_Q_ZERO;
  if (s.most_demand == 0) return COPSE_OK;
  COPSE_DO(copse_mixture_new(s.n_orbits, s.n_bases, &s.master, err));
  copse_status status = search(&s, out, err);
  if (status == COPSE_INFEASIBLE) return COPSE_OK; /* the caller names the ranks */
  if (status != COPSE_OK) return status;
  COPSE_DO(copse_concurrent_round_bound(&s, out, err));
  return copse_concurrent_round_paths(&s, out, err);
}

void copse_concurrent_free(struct copse_concurrent *result) {
  free(result->lengths);
  result->lengths = NULL;
  copse_arena_free(&result->arena);
}
