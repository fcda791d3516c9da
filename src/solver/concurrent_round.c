/*
 * From the floating-point search to an exact result: integer lengths and what they prove,
 * weights with a common denominator and the loads that they make.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "solver/approximate.h"
#include "solver/concurrent_internal.h"

typedef __int128 wide;

static wide wide_gcd(wide a, wide b) {
  while (b) {
    wide t = a % b;
    a = b;
    b = t;
  }
  return a;
}

/* num / den in lowest terms if that fits 64 bits; num, den > 0. */
static bool narrow(wide num, wide den, struct copse_q *out) {
  wide g = wide_gcd(num, den);
  num /= g;
  den /= g;
  if (num > INT64_MAX || den > INT64_MAX) return false;
  *out = (struct copse_q){(int64_t)num, (int64_t)den};
  return true;
}

/* ---- the bound -------------------------------------------------------------------- */

/* Lengths = prices * grid / largest price, rounded. */
static void grid_lengths(const struct copse_search *s, const double *price, double most,
                         int64_t grid, int64_t *lengths) {
  for (int e = 0; e < s->problem->network->n_links; e++) {
    int o = s->orbit[e];
    lengths[e] = (int64_t)llround(price[o] * copse_orbit_factor(s, o) / most * (double)grid);
  }
}

/* What lengths prove: sum demand * distance / sum capacity * length, exactly. */
static bool prove(struct copse_search *s, const int64_t *lengths, struct copse_q *bound) {
  const struct copse_network *network = s->problem->network;
  wide need = 0, room = 0;
  for (int e = 0; e < network->n_links; e++) room += (wide)network->links[e].capacity * lengths[e];
  for (int b = 0; b < s->n_bases; b++) {
    copse_shortest_run(s->shortest, network->terminals[s->base[b]], lengths, s->blocked);
    for (int j = 0; j < network->n_terminals; j++)
      need += (wide)copse_column_demand(s, b, j) *
              copse_shortest_length(s->shortest, network->terminals[j]) *
              s->problem->rotation.order;
  }
  return room > 0 && need > 0 && narrow(need, room, bound);
}

static void take_better(struct copse_search *s, const int64_t *lengths,
                        struct copse_concurrent *out) {
  struct copse_q bound;
  if (!prove(s, lengths, &bound) || copse_q_cmp(bound, out->bound) <= 0) return;
  out->bound = bound;
  memcpy(out->lengths, lengths, (size_t)s->problem->network->n_links * sizeof *lengths);
}

/* Lengths from one set of prices: as fractions if they are some, else on grids. */
static copse_status try_prices(struct copse_search *s, const double *price,
                               struct copse_concurrent *out, struct copse_err *err) {
  double most = 0, *values = NULL;
  int64_t *lengths = NULL;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)s->n_orbits, sizeof *values, &values, err));
  COPSE_TRY(copse_calloc((size_t)s->problem->network->n_links, sizeof *lengths, &lengths, err));
  for (int o = 0; o < s->n_orbits; o++) {
    values[o] = price[o] * copse_orbit_factor(s, o);
    if (values[o] > most) most = values[o];
  }
  if (most <= 0) goto out;
  for (int o = 0; o < s->n_orbits; o++) values[o] /= most;
  int64_t q = copse_common_denominator(values, s->n_orbits, 1000000, 1e-6);
  if (q > 0) {
    grid_lengths(s, price, most, q, lengths);
    take_better(s, lengths, out);
  }
  for (int bits = 24; bits >= 10 && (q == 0 || bits == 24); bits -= 7) {
    grid_lengths(s, price, most, (int64_t)1 << bits, lengths);
    take_better(s, lengths, out);
  }
out:
  free(values);
  free(lengths);
  return status;
}

copse_status copse_concurrent_round_bound(struct copse_search *s, struct copse_concurrent *out,
                                          struct copse_err *err) {
  copse_status status;
  COPSE_TRY(try_prices(s, s->price, out, err));
  COPSE_TRY(try_prices(s, s->best_price, out, err));
  if (out->bound.num == 0)
    status = copse_fail(err, COPSE_OVERFLOW, "the bound needs more than 64 bits; use fewer digits");
out:
  return status;
}

/* ---- the paths -------------------------------------------------------------------- */

#define LEAST_WEIGHT 1e-9

/* Columns' weights as integers that add up to `whole` per source; the largest one of each
 * takes up what rounding leaves. False if that would make it negative. */
static bool round_weights(const struct copse_search *s, int64_t whole, int64_t *weights) {
  for (int b = 0; b < s->n_bases; b++) {
    int64_t left = whole;
    size_t largest = s->n_columns;
    for (size_t c = 0; c < s->n_columns; c++) {
      const struct copse_column *column = &s->columns[c];
      if (column->base != b) continue;
      weights[c] = column->weight < LEAST_WEIGHT ? 0 : llround(column->weight * (double)whole);
      left -= weights[c];
      if (largest == s->n_columns || weights[c] > weights[largest]) largest = c;
    }
    if (largest == s->n_columns) return false;
    weights[largest] += left;
    if (weights[largest] < 0) return false;
  }
  return true;
}

/* The time that integer weights make, exactly. */
static bool measure(const struct copse_search *s, int64_t whole, const int64_t *weights, wide *load,
                    struct copse_q *time) {
  *time = COPSE_Q_ZERO;
  memset(load, 0, (size_t)s->n_orbits * sizeof *load);
  for (size_t c = 0; c < s->n_columns; c++)
    for (int i = 0; i < s->columns[c].n_loads && weights[c] > 0; i++)
      load[s->columns[c].loads[i].orbit] += (wide)s->columns[c].loads[i].load * weights[c];
  for (int o = 0; o < s->n_orbits; o++) {
    struct copse_q t;
    if (load[o] == 0) continue;
    if (!narrow(load[o], (wide)s->orbit_capacity[o] * whole, &t)) return false;
    if (copse_q_cmp(t, *time) > 0) *time = t;
  }
  return true;
}

/* The best denominator: the one that the weights show or turn out to have, else a grid. */
static copse_status choose_weights(struct copse_search *s, struct copse_concurrent *out,
                                   int64_t *weights, struct copse_err *err) {
  double *values = NULL;
  wide *load = NULL;
  int64_t *trial = NULL;
  bool any = false;
  int n = 0;
  copse_status status;
  COPSE_TRY(copse_calloc(s->n_columns, sizeof *values, &values, err));
  COPSE_TRY(copse_calloc(s->n_columns, sizeof *trial, &trial, err));
  COPSE_TRY(copse_calloc((size_t)s->n_orbits, sizeof *load, &load, err));
  for (size_t c = 0; c < s->n_columns; c++)
    if (s->columns[c].weight >= LEAST_WEIGHT) values[n++] = s->columns[c].weight;
  int64_t wholes[] = {copse_common_denominator(values, n, 10000000, 1e-6),
                      0,
                      (int64_t)1 << 30,
                      (int64_t)1 << 24,
                      (int64_t)1 << 18,
                      (int64_t)1 << 12,
                      (int64_t)1 << 8,
                      1};
  for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++) {
    struct copse_q time;
    int64_t whole = wholes[i];
    if (i == 1) /* not fractions that one sees: solve for them */
      whole = copse_concurrent_exact_weights(s, out->bound, trial);
    else if (whole > 0 && !round_weights(s, whole, trial))
      whole = 0;
    bool fits = s->problem->unit_limit == 0 || whole <= s->problem->unit_limit;
    if (whole == 0 || !fits || !measure(s, whole, trial, load, &time)) continue;
    if (any && copse_q_cmp(time, out->time) >= 0) continue;
    any = true;
    out->time = time;
    out->whole = whole;
    memcpy(weights, trial, s->n_columns * sizeof *weights);
    if (copse_q_eq(time, out->bound)) break;
  }
  if (!any)
    status = copse_fail(err, COPSE_OVERFLOW, "the flows need more than 64 bits; use fewer digits");
out:
  free(values);
  free(trial);
  free(load);
  return status;
}

struct collector {
  struct copse_search *s;
  struct copse_concurrent *out;
  struct copse_concurrent_path *paths;
  size_t n, capacity;
  int *nodes; /* [n_nodes] scratch */
};

/* The way to a sink in a column's tree, into the scratch from its end; returns its start. */
static int walk(struct collector *k, const struct copse_column *column, int sink) {
  const struct copse_network *network = k->s->problem->network;
  int at = network->n_nodes, node = network->terminals[sink];
  k->nodes[--at] = node;
  while (column->via[node] >= 0) {
    node = network->links[column->via[node]].src;
    k->nodes[--at] = node;
  }
  return at;
}

/* Adds `amount` to the pair's path if it has the same, else a new path. */
static copse_status add_path(struct collector *k, size_t first, int source, int sink, int at,
                             int64_t amount, struct copse_err *err) {
  int n = k->s->problem->network->n_nodes - at;
  copse_status status;
  for (size_t i = first; i < k->n; i++) {
    struct copse_concurrent_path *p = &k->paths[i];
    if (p->n_nodes != n || memcmp(p->nodes, k->nodes + at, (size_t)n * sizeof *k->nodes) != 0)
      continue;
    p->amount += amount;
    return COPSE_OK;
  }
  COPSE_TRY(copse_grow(&k->paths, &k->capacity, k->n + 1, sizeof *k->paths, err));
  int *copy = copse_arena_alloc(&k->out->arena, (size_t)n, sizeof *copy);
  if (!copy) return copse_fail_nomem(err);
  memcpy(copy, k->nodes + at, (size_t)n * sizeof *copy);
  k->paths[k->n++] = (struct copse_concurrent_path){source, sink, amount, copy, n};
out:
  return status;
}

static copse_status collect_pair(struct collector *k, const int64_t *weights, int base, int sink,
                                 struct copse_err *err) {
  size_t first = k->n;
  copse_status status = COPSE_OK;
  if (copse_column_demand(k->s, base, sink) == 0) return COPSE_OK;
  for (size_t c = 0; c < k->s->n_columns; c++) {
    const struct copse_column *column = &k->s->columns[c];
    if (column->base != base || weights[c] == 0) continue;
    int at = walk(k, column, sink);
    COPSE_TRY(add_path(k, first, k->s->base[base], sink, at, weights[c], err));
  }
out:
  return status;
}

copse_status copse_concurrent_round_paths(struct copse_search *s, struct copse_concurrent *out,
                                          struct copse_err *err) {
  struct collector k = {.s = s, .out = out};
  int64_t *weights = NULL;
  copse_status status;
  COPSE_TRY(copse_calloc(s->n_columns, sizeof *weights, &weights, err));
  COPSE_TRY(choose_weights(s, out, weights, err));
  COPSE_TRY(copse_calloc((size_t)s->problem->network->n_nodes, sizeof(int), &k.nodes, err));
  for (int b = 0; b < s->n_bases; b++)
    for (int j = 0; j < s->problem->network->n_terminals; j++)
      COPSE_TRY(collect_pair(&k, weights, b, j, err));
  struct copse_concurrent_path *paths =
      copse_arena_alloc(&out->arena, k.n ? k.n : 1, sizeof *paths);
  if (!paths) {
    status = copse_fail_nomem(err);
    goto out;
  }
  if (k.n > 0) memcpy(paths, k.paths, k.n * sizeof *paths);
  out->paths = paths;
  out->n_paths = (int)k.n;
out:
  free(weights);
  free(k.paths);
  free(k.nodes);
  return status;
}
