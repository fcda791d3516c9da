/*
 * The fractional optimum by column generation. The master mixes orders so that the fullest row is
 * as low as possible (solver/lp, the dual of packing); its prices over bandwidths are lengths; the
 * shortest orders under these are the next columns. Every such search proves a bound, since its
 * lengths are integers: the best is kept. Last, lengths are tried that are small multiples of each
 * other, as the optimum's are.
 */
#include "solver/rings/rings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "solver/lp/linear_programme.h"
#include "solver/policy.h"

struct generation {
  const struct copse_ring_instance *instance;
  struct copse_ring_set *set;
  struct copse_mixture *master;
  struct copse_mixture_load *column;
  int64_t *load, *lengths; /* [n_rows] */
  double *price, *inverse; /* [n_rows] length of each row; unit / bandwidth */
  double unit;             /* the least bandwidth */
  struct copse_ring *found;
  int n_found;
  struct copse_arena scratch;
};

/* ---- loads ---------------------------------------------------------------------------------- */

static void add_step(const struct copse_ring_step *step, int64_t *load) {
  for (int i = 0; i < step->n; i++) load[step->loads[i].row] += step->loads[i].amount;
}

void copse_ring_add_load(const struct copse_ring_instance *instance, const struct copse_ring *ring,
                         int64_t *load) {
  int n = instance->n_gpus, first = ring->gpus[0], last = ring->gpus[n - 1];
  for (int i = 0; i + 1 < n; i++)
    add_step(&instance->move[ring->gpus[i] * n + ring->gpus[i + 1]], load);
  if (instance->closed) add_step(&instance->move[last * n + first], load);
  if (instance->n_doors == 0) return;
  add_step(&instance->enter[ring->doors[0] * n + first], load);
  if (instance->leave) add_step(&instance->leave[ring->doors[1] * n + last], load);
  if (instance->second && n > 1)
    add_step(&instance->second[ring->doors[1] * n + ring->gpus[1]], load);
}

/* ---- bounds --------------------------------------------------------------------------------- */

/* Lengths on rows of this sum over bandwidths, whose least order is known: kept if it is the best
 * bound so far. One whose numbers leave 64 bits is none. */
static copse_status offer_bound(struct generation *g, int64_t least, bool exact,
                                struct copse_err *err) {
  const struct copse_ring_instance *instance = g->instance;
  struct copse_ring_bound *bound = &g->set->bound;
  struct copse_q sum = COPSE_Q_ZERO, term;
  bool fits = least > 0;
  for (int r = 0; fits && r < instance->n_rows; r++)
    fits = copse_q_mul(instance->bandwidth[r], (struct copse_q){g->lengths[r], 1}, &term, NULL) ==
               COPSE_OK &&
           copse_q_add(sum, term, &sum, NULL) == COPSE_OK;
  fits = fits && copse_q_div(sum, (struct copse_q){least, 1}, &sum, NULL) == COPSE_OK;
  if (!fits || (bound->lengths && copse_q_cmp(sum, bound->GBps) >= 0)) return COPSE_OK;
  if (!bound->lengths)
    COPSE_DO(COPSE_ARRAY(&g->set->arena, (size_t)instance->n_rows, bound->lengths, err));
  int64_t common = least;
  for (int r = 0; r < instance->n_rows; r++) common = copse_gcd(common, g->lengths[r]);
  for (int r = 0; r < instance->n_rows; r++) bound->lengths[r] = g->lengths[r] / common;
  bound->least = least / common;
  bound->exact = exact;
  bound->GBps = sum;
  return COPSE_OK;
}

/* The shortest orders under g->price times `scale`, rounded, and their bound. */
static copse_status search(struct generation *g, double scale, int64_t *least,
                           struct copse_err *err) {
  bool exact;
  for (int r = 0; r < g->instance->n_rows; r++) g->lengths[r] = llround(g->price[r] * scale);
  COPSE_DO(copse_rings_shortest(g->instance, g->lengths, &g->set->arena, g->found, &g->n_found,
                                least, &exact, err));
  return offer_bound(g, *least, exact, err);
}

static double highest(const struct generation *g) {
  double most = 0;
  for (int r = 0; r < g->instance->n_rows; r++) most = fmax(most, g->price[r]);
  return most;
}

/* ---- columns --------------------------------------------------------------------------------- */

static int64_t length_under(const struct generation *g) {
  int64_t sum = 0;
  for (int r = 0; r < g->instance->n_rows; r++) sum += g->load[r] * g->lengths[r];
  return sum;
}

static copse_status add_column(struct generation *g, const struct copse_ring *ring,
                               struct copse_err *err) {
  struct copse_ring_set *set = g->set;
  size_t need = (size_t)set->n_rings + 1;
  int n = 0;
  COPSE_DO(COPSE_GROW(set->rings, set->capacity, need, err));
  COPSE_DO(COPSE_GROW(set->weights, set->weights_capacity, need, err));
  for (int r = 0; r < g->instance->n_rows; r++)
    if (g->load[r] > 0)
      g->column[n++] = (struct copse_mixture_load){r, (double)g->load[r] * g->inverse[r]};
  copse_mixture_add(g->master, 0, g->column, n);
  set->weights[set->n_rings] = 0;
  set->rings[set->n_rings++] = *ring;
  return COPSE_OK;
}

/* Columns for the orders found that are shorter than `than`; how many. */
static copse_status add_shorter(struct generation *g, double than, int *added,
                                struct copse_err *err) {
  *added = 0;
  for (int i = 0; i < g->n_found; i++) {
    memset(g->load, 0, (size_t)g->instance->n_rows * sizeof *g->load);
    copse_ring_add_load(g->instance, &g->found[i], g->load);
    if ((double)length_under(g) >= than) break;
    COPSE_DO(add_column(g, &g->found[i], err));
    ++*added;
  }
  return COPSE_OK;
}

/* The prices of the master as lengths: a row's price over its bandwidth. */
static void take_prices(struct generation *g) {
  for (int r = 0; r < g->instance->n_rows; r++)
    g->price[r] = fmax(0, copse_mixture_price(g->master, r)) * g->inverse[r];
}

static copse_status generate(struct generation *g, struct copse_err *err) {
  int64_t least;
  int added;
  double than = INFINITY;
  for (int r = 0; r < g->instance->n_rows; r++) g->price[r] = g->inverse[r];
  int most =
      g->instance->n_gpus > COPSE_RINGS_EXACT_GPUS ? COPSE_RINGS_LONG_ROUNDS : COPSE_RINGS_ROUNDS;
  for (int round = 0; round < most; round++) {
    double scale = (double)COPSE_RINGS_LONGEST / highest(g);
    COPSE_DO(search(g, scale, &least, err));
    if (g->n_found == 0)
      return copse_fail(err, COPSE_INFEASIBLE,
                        "no order of the %d GPUs is found in which each "
                        "reaches the next",
                        g->instance->n_gpus);
    if (round > 0) than = copse_mixture_share_price(g->master, 0) * scale * (1 - COPSE_RINGS_GAIN);
    COPSE_DO(add_shorter(g, than, &added, err));
    if (added == 0) break;
    if (!copse_mixture_solve(g->master))
      return copse_fail(err, COPSE_INTERNAL, "GLPK gives up on a mixture of %d rings",
                        g->set->n_rings);
    take_prices(g);
  }
  return COPSE_OK;
}

/* Lengths that are fractions of the largest with a small common denominator. */
static copse_status search_fractions(struct generation *g, struct copse_err *err) {
  double most = highest(g);
  int64_t least;
  for (int r = 0; r < g->instance->n_rows; r++) g->price[r] /= most;
  int64_t common =
      copse_common_denominator(g->price, g->instance->n_rows, COPSE_RINGS_DENOMINATOR, 1e-6);
  return common > 0 ? search(g, (double)common, &least, err) : COPSE_OK;
}

static copse_status start(struct generation *g, struct copse_err *err) {
  const struct copse_ring_instance *instance = g->instance;
  size_t rows = (size_t)instance->n_rows;
  COPSE_DO(COPSE_ARRAYS(&g->scratch, rows, int64_t, err, &g->load, &g->lengths));
  COPSE_DO(COPSE_ARRAYS(&g->scratch, rows, double, err, &g->price, &g->inverse));
  COPSE_DO(COPSE_ARRAY(&g->scratch, rows, g->column, err));
  COPSE_DO(COPSE_ARRAY(&g->scratch, (size_t)instance->n_gpus, g->found, err));
  g->unit = INFINITY;
  for (size_t r = 0; r < rows; r++)
    g->unit = fmin(g->unit, copse_q_to_double(instance->bandwidth[r]));
  for (size_t r = 0; r < rows; r++)
    g->inverse[r] = g->unit / copse_q_to_double(instance->bandwidth[r]);
  return copse_mixture_new(instance->n_rows, 1, &g->master, err);
}

static copse_status solve(struct generation *g, struct copse_err *err) {
  struct copse_ring_set *set = g->set;
  COPSE_DO(start(g, err));
  COPSE_DO(generate(g, err));
  set->GBps = g->unit / copse_mixture_most(g->master);
  for (int i = 0; i < set->n_rings; i++)
    set->weights[i] = fmax(0, copse_mixture_weight(g->master, (size_t)i));
  COPSE_DO(search_fractions(g, err));
  if (!set->bound.lengths)
    return copse_fail(err, COPSE_OVERFLOW, "the bound of rings does not fit into 64 bits");
  return COPSE_OK;
}

copse_status copse_rings_solve(const struct copse_ring_instance *instance,
                               struct copse_ring_set *out, struct copse_err *err) {
  struct generation g = {.instance = instance, .set = out};
  *out = (struct copse_ring_set){0};
  if (instance->n_gpus > COPSE_RINGS_MAX_GPUS)
    return copse_fail(err, COPSE_UNSUPPORTED, "rings of %d GPUs: at most %d", instance->n_gpus,
                      COPSE_RINGS_MAX_GPUS);
  if (instance->second && instance->n_gpus > COPSE_RINGS_EXACT_GPUS)
    return copse_fail(err, COPSE_UNSUPPORTED, "links at the second of %d GPUs: at most %d",
                      instance->n_gpus, COPSE_RINGS_EXACT_GPUS);
  copse_status status = solve(&g, err);
  copse_mixture_free(g.master);
  copse_arena_free(&g.scratch);
  return status;
}

void copse_ring_set_free(struct copse_ring_set *set) {
  free(set->rings);
  free(set->weights);
  copse_arena_free(&set->arena);
  *set = (struct copse_ring_set){0};
}
