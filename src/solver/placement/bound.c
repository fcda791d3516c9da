/*
 * How fast can any placement be? With x[e][r] = 1 where expert e is on rank r, the time t of
 * each all-to-all is at least
 *
 *   in row of group g:    in_cost  * sum_{e, r in g} x[e][r] * (tokens[e] - sent[g][e])
 *   out row of group g:   out_cost * (sum[g] - sum_{e, r in g} x[e][r] * sent[g][e])
 *   row of expert e:      sum_r x[e][r] * implied[e][r]
 *
 * An expert's row holds because exactly one of its x is 1, and then the all-to-all takes what
 * follows from that (the expert's own tokens, and the least that the group must hold besides).
 * Without such rows a relaxation would spread a hot expert over all ranks.
 *
 * Any weights >= 0 of the rows of an all-to-all that add up to at most 1 give a bound: the
 * weighted rows' least value over all assignments, which is a transport problem. The best
 * weights give the bound of the linear relaxation. They are looked for in floating point, by
 * mirror ascent; the bound that is reported is worked out from them again in integers, with
 * the transport problem's dual prices, so it holds whatever the rounding was.
 * docs/theory.md, "src/solver/placement/".
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rational.h"
#include "solver/lp/linear_programme.h"
#include "solver/placement/internal.h"
#include "solver/policy.h"

/* ---- what follows from where one expert is -------------------------------------------------- */

struct implied {
  const struct copse_place_model *m;
  int64_t *out;  /* the result */
  int64_t *base; /* [kind][s] least time wherever the experts are */
  struct copse_place_load *sorted;
  int64_t *prefix;               /* [n_experts + 1] */
  int64_t *least_in, *least_out; /* [n_experts] tokens, given the expert is in the group */
};

/* Computes least[e]: the smallest sum of `n` loads that has expert e's among them; returns the
 * smallest sum of `free` loads. */
static int64_t least_sums(struct implied *w, size_t n, size_t free_n, int64_t *least) {
  size_t n_e = w->m->n_experts;
  COPSE_SORT(w->sorted, n_e, copse_place_by_load);
  for (size_t i = 0; i < n_e; i++) w->prefix[i + 1] = w->prefix[i] + w->sorted[i].tokens;
  for (size_t i = 0; i < n_e; i++)
    least[w->sorted[i].expert] = i < n ? w->prefix[n] : w->prefix[n - 1] + w->sorted[i].tokens;
  return w->prefix[free_n];
}

/* Sets least_in and least_out of group g in a step; the same without any expert in *in, *out. */
static void least_loads(struct implied *w, size_t g, size_t s, int64_t *in, int64_t *out) {
  const struct copse_place_model *m = w->m;
  int64_t members = m->p->groups[g].n_members, others = (int64_t)m->n_ranks - members;
  int64_t capacity = m->p->capacity, n_e = (int64_t)m->n_experts;
  int64_t at_least = n_e - capacity * others, at_most = capacity * members;
  if (at_least < 0) at_least = 0;
  if (at_most > n_e) at_most = n_e;
  for (size_t e = 0; e < m->n_experts; e++)
    w->sorted[e] = (struct copse_place_load){
        copse_place_tokens(m, e)[s] - copse_place_sent(m, g, e)[s], (int)e};
  *in = least_sums(w, at_least > 0 ? (size_t)at_least : 1, (size_t)at_least, w->least_in);
  /* most that can stay inside: the least of the negatives */
  for (size_t e = 0; e < m->n_experts; e++)
    w->sorted[e] = (struct copse_place_load){-copse_place_sent(m, g, e)[s], (int)e};
  *out = m->sum[g * m->n_steps + s] + least_sums(w, (size_t)at_most, (size_t)at_most, w->least_out);
  for (size_t e = 0; e < m->n_experts; e++) w->least_out[e] += m->sum[g * m->n_steps + s];
}

static void imply(struct implied *w, size_t g, size_t s) {
  const struct copse_place_model *m = w->m;
  size_t kinds = (size_t)m->n_kinds;
  int64_t in, out;
  least_loads(w, g, s, &in, &out);
  for (size_t k = 0; k < kinds; k++) {
    int64_t in_cost = copse_place_in_cost(m, g, (int)k);
    int64_t out_cost = copse_place_out_cost(m, g, (int)k);
    int64_t *base = &w->base[k * m->n_steps + s];
    *base = copse_larger(*base, copse_larger(in * in_cost, out * out_cost));
    for (size_t e = 0; e < m->n_experts; e++) {
      int64_t least = copse_larger(w->least_in[e] * in_cost, w->least_out[e] * out_cost);
      for (int i = 0; i < m->p->groups[g].n_members; i++) {
        size_t r = (size_t)m->p->groups[g].members[i];
        int64_t *to = &w->out[((e * m->n_ranks + r) * kinds + k) * m->n_steps + s];
        *to = copse_larger(*to, least);
      }
    }
  }
}

/* Finds lower bounds of the time of a step's all-to-all given where one expert is: implied[((e *
 * n_ranks + r) * n_kinds + kind) * n_steps + s]. The model's arena owns it. */
static copse_status find_implied(struct copse_place_model *m, int64_t **implied,
                                 struct copse_err *err) {
  struct implied w = {.m = m};
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  size_t cells = (size_t)m->n_kinds * m->n_steps, pairs = m->n_experts * m->n_ranks;
  COPSE_DO(COPSE_ARRAY(&m->arena, pairs * cells, w.out, err));
  COPSE_DO(COPSE_ARRAY(&scratch, cells, w.base, err));
  COPSE_DO(COPSE_ARRAY(&scratch, m->n_experts, w.sorted, err));
  COPSE_DO(COPSE_ARRAY(&scratch, m->n_experts + 1, w.prefix, err));
  COPSE_DO(COPSE_ARRAYS(&scratch, m->n_experts, int64_t, err, &w.least_in, &w.least_out));
  for (size_t g = 0; g < m->n_groups; g++)
    for (size_t s = 0; s < m->n_steps; s++) imply(&w, g, s);
  for (size_t i = 0; i < pairs; i++)
    for (size_t c = 0; c < cells; c++)
      w.out[i * cells + c] = copse_larger(w.out[i * cells + c], w.base[c]);
  *implied = w.out;
  return COPSE_OK;
}

/* ---- assignment ----------------------------------------------------------------------------- */

/* The oracle: the cheapest assignment of experts to ranks, at most `capacity` each, by shortest
 * augmenting paths (Jonker and Volgenant 1987, with capacities). */
struct assign {
  int n_experts, n_ranks, capacity;
  int *rank_of;     /* [n_experts] */
  double *prices;   /* [n_ranks] duals <= 0 of the capacities */
  double *distance; /* [n_ranks] */
  int *via;         /* [n_ranks] expert that a path comes in by */
  char *done;       /* [n_ranks] */
  int *held;        /* [n_ranks * capacity] experts of each rank */
  int *n_held;      /* [n_ranks] */
};

static copse_status assign_new(const struct copse_place_problem *p, struct copse_arena *arena,
                               struct assign *a, struct copse_err *err) {
  size_t ranks = (size_t)p->n_ranks;
  a->n_experts = p->n_experts;
  a->n_ranks = p->n_ranks;
  a->capacity = p->capacity < p->n_experts ? p->capacity : p->n_experts;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)p->n_experts, a->rank_of, err));
  COPSE_DO(COPSE_ARRAYS(arena, ranks, double, err, &a->prices, &a->distance));
  COPSE_DO(COPSE_ARRAYS(arena, ranks, int, err, &a->via, &a->n_held));
  COPSE_DO(COPSE_ARRAY(arena, ranks, a->done, err));
  return COPSE_ARRAY(arena, ranks * (size_t)a->capacity, a->held, err);
}

/* Returns the reduced cost of putting an expert on a rank; prices are <= 0 and make full ranks
 * dear. */
static double reduced(const struct assign *a, const double *cost, int e, int r) {
  return cost[(size_t)e * (size_t)a->n_ranks + (size_t)r] - a->prices[r];
}

static void relax(struct assign *a, const double *cost, int e, double base) {
  for (int r = 0; r < a->n_ranks; r++) {
    double d = base + reduced(a, cost, e, r);
    if (!a->done[r] && d < a->distance[r]) {
      a->distance[r] = d;
      a->via[r] = e;
    }
  }
}

static int nearest(const struct assign *a) {
  int best = -1;
  for (int r = 0; r < a->n_ranks; r++)
    if (!a->done[r] && (best < 0 || a->distance[r] < a->distance[best])) best = r;
  return best;
}

/* Hands the places along the path: the last rank has room, each expert moves one on. */
static void shift(struct assign *a, int last, int expert) {
  for (int r = last;;) {
    int e = a->via[r], from = a->rank_of[e];
    a->held[(size_t)r * (size_t)a->capacity + (size_t)a->n_held[r]++] = e;
    a->rank_of[e] = r;
    if (e == expert) return;
    int *held = a->held + (size_t)from * (size_t)a->capacity;
    for (int i = 0; i < a->n_held[from]; i++)
      if (held[i] == e) {
        held[i] = held[--a->n_held[from]];
        break;
      }
    r = from;
  }
}

static void add_expert(struct assign *a, const double *cost, int expert) {
  int r;
  for (int i = 0; i < a->n_ranks; i++) a->distance[i] = INFINITY;
  memset(a->done, 0, (size_t)a->n_ranks);
  relax(a, cost, expert, 0);
  for (r = nearest(a); a->n_held[r] >= a->capacity; r = nearest(a)) {
    const int *held = a->held + (size_t)r * (size_t)a->capacity;
    a->done[r] = 1;
    for (int i = 0; i < a->n_held[r]; i++)
      relax(a, cost, held[i], a->distance[r] - reduced(a, cost, held[i], r));
  }
  for (int i = 0; i < a->n_ranks; i++)
    if (a->done[i]) a->prices[i] += a->distance[i] - a->distance[r];
  shift(a, r, expert);
}

/* Assigns all experts by cost [n_experts * n_ranks]. */
static void assign_run(struct assign *a, const double *cost) {
  memset(a->n_held, 0, (size_t)a->n_ranks * sizeof *a->n_held);
  for (int r = 0; r < a->n_ranks; r++) a->prices[r] = 0;
  for (int e = 0; e < a->n_experts; e++) a->rank_of[e] = -1;
  for (int e = 0; e < a->n_experts; e++) add_expert(a, cost, e);
}

/* ---- ascent ---------------------------------------------------------------------------------- */

/* Rows of an all-to-all (kind, step), in this order: in of each group, out of each group, each
 * expert. Arrays over rows are [kind][s][n_rows]. */
struct ascent {
  const struct copse_place_model *m;
  const int64_t *implied;
  size_t n_rows, n_cells;          /* cells: n_kinds * n_steps */
  double *weights, *logs, *values; /* of the rows; values at the oracle's placement */
  double *best_weights, *best_logs, *best_prices;
  double *scale;     /* [cell] a typical time, to make steps alike */
  double *cost;      /* [n_experts * n_ranks] */
  double *part;      /* [n_experts] */
  int64_t *in, *out; /* [g][s] of the oracle's placement */
  struct assign assign;
  double value, best_value, rate;
  int idle;
};

static double *row(const struct ascent *a, double *of, int kind, size_t s) {
  return of + ((size_t)kind * a->m->n_steps + s) * a->n_rows;
}

/* Adds what the rows of group g say to the costs; returns their constant part. */
static double price_group(struct ascent *a, size_t g) {
  const struct copse_place_model *m = a->m;
  double constant = 0;
  memset(a->part, 0, m->n_experts * sizeof *a->part);
  for (int kind = 0; kind < m->n_kinds; kind++)
    for (size_t s = 0; s < m->n_steps; s++) {
      const double *w = row(a, a->weights, kind, s);
      double in = w[g] * (double)copse_place_in_cost(m, g, kind);
      double out = w[m->n_groups + g] * (double)copse_place_out_cost(m, g, kind);
      if (in + out == 0) continue;
      constant += out * (double)m->sum[g * m->n_steps + s];
      for (size_t e = 0; e < m->n_experts; e++)
        a->part[e] += in * (double)copse_place_tokens(m, e)[s] -
                      (in + out) * (double)copse_place_sent(m, g, e)[s];
    }
  for (int i = 0; i < m->p->groups[g].n_members; i++) {
    double *cost = a->cost + m->p->groups[g].members[i];
    for (size_t e = 0; e < m->n_experts; e++) cost[e * m->n_ranks] += a->part[e];
  }
  return constant;
}

static void price_experts(struct ascent *a) {
  const struct copse_place_model *m = a->m;
  for (size_t e = 0; e < m->n_experts; e++)
    for (size_t c = 0; c < a->n_cells; c++) {
      double w = a->weights[c * a->n_rows + 2 * m->n_groups + e];
      const int64_t *implied = a->implied + e * m->n_ranks * a->n_cells + c;
      if (w == 0) continue;
      for (size_t r = 0; r < m->n_ranks; r++)
        a->cost[e * m->n_ranks + r] += w * (double)implied[r * a->n_cells];
    }
}

/* Computes costs from weights, then the cheapest assignment: the bound that these weights give. */
static void ask_oracle(struct ascent *a) {
  const struct copse_place_model *m = a->m;
  double value = 0;
  memset(a->cost, 0, m->n_experts * m->n_ranks * sizeof *a->cost);
  for (size_t g = 0; g < m->n_groups; g++) value += price_group(a, g);
  price_experts(a);
  assign_run(&a->assign, a->cost);
  for (size_t e = 0; e < m->n_experts; e++)
    value += a->cost[e * m->n_ranks + (size_t)a->assign.rank_of[e]];
  a->value = value * m->multiplicity;
}

/* Computes the rows' values at the oracle's placement; takes the placement if it is a better
 * one. */
static void look_at_placement(struct ascent *a, struct copse_placement *best) {
  const struct copse_place_model *m = a->m;
  const int *rank_of = a->assign.rank_of;
  int64_t time;
  copse_place_loads(m, rank_of, a->in, a->out, NULL, &time);
  copse_place_take(m, rank_of, time, best);
  for (int kind = 0; kind < m->n_kinds; kind++)
    for (size_t s = 0; s < m->n_steps; s++) {
      double *v = row(a, a->values, kind, s);
      for (size_t g = 0; g < m->n_groups; g++) {
        v[g] = (double)(a->in[g * m->n_steps + s] * copse_place_in_cost(m, g, kind));
        v[m->n_groups + g] =
            (double)(a->out[g * m->n_steps + s] * copse_place_out_cost(m, g, kind));
      }
      for (size_t e = 0; e < m->n_experts; e++)
        v[2 * m->n_groups + e] =
            (double)a->implied[(e * m->n_ranks + (size_t)rank_of[e]) * a->n_cells +
                               (size_t)kind * m->n_steps + s];
    }
}

/* Sets weights = exp(logs), brought to sum 1; what is next to nothing becomes nothing. */
static void normalise(struct ascent *a, size_t cell) {
  double *logs = a->logs + cell * a->n_rows, *weights = a->weights + cell * a->n_rows;
  double most = logs[0], sum = 0;
  for (size_t i = 1; i < a->n_rows; i++)
    if (logs[i] > most) most = logs[i];
  for (size_t i = 0; i < a->n_rows; i++) {
    logs[i] = fmax(logs[i] - most, COPSE_PLACE_LEAST_LOG);
    weights[i] = logs[i] < COPSE_PLACE_LOG_OF_NOTHING ? 0 : exp(logs[i]);
    sum += weights[i];
  }
  for (size_t i = 0; i < a->n_rows; i++) weights[i] /= sum;
}

/* Takes one step up, or, after a while without success, goes back to the best with smaller
 * steps. */
static void ascend(struct ascent *a) {
  size_t all = a->n_cells * a->n_rows;
  if (a->value > a->best_value) {
    if (a->value > a->best_value * (1 + COPSE_PLACE_STEP_GAIN)) a->idle = 0;
    a->best_value = a->value;
    memcpy(a->best_weights, a->weights, all * sizeof *a->weights);
    memcpy(a->best_logs, a->logs, all * sizeof *a->logs);
    memcpy(a->best_prices, a->assign.prices, a->m->n_ranks * sizeof *a->best_prices);
  } else if (++a->idle > COPSE_PLACE_VAIN_STEPS) {
    a->idle = 0;
    a->rate *= COPSE_PLACE_STEP_PART;
    memcpy(a->logs, a->best_logs, all * sizeof *a->logs);
  }
  for (size_t c = 0; c < a->n_cells; c++) {
    for (size_t i = 0; i < a->n_rows; i++)
      a->logs[c * a->n_rows + i] += a->rate * a->values[c * a->n_rows + i] / a->scale[c];
    normalise(a, c);
  }
}

static copse_status ascent_new(struct ascent *a, const struct copse_placement *best,
                               struct copse_arena *arena, struct copse_err *err) {
  const struct copse_place_model *m = a->m;
  int64_t *steps = NULL, time;
  a->n_cells = (size_t)m->n_kinds * m->n_steps;
  a->n_rows = 2 * m->n_groups + m->n_experts;
  size_t all = a->n_cells * a->n_rows, pairs = m->n_experts * m->n_ranks;
  COPSE_DO(COPSE_ARRAYS(arena, all, double, err, &a->weights, &a->logs, &a->values,
                        &a->best_weights, &a->best_logs));
  COPSE_DO(COPSE_ARRAY(arena, m->n_ranks, a->best_prices, err));
  COPSE_DO(COPSE_ARRAY(arena, a->n_cells, a->scale, err));
  COPSE_DO(COPSE_ARRAY(arena, pairs, a->cost, err));
  COPSE_DO(COPSE_ARRAY(arena, m->n_experts, a->part, err));
  COPSE_DO(COPSE_ARRAYS(arena, m->n_groups * m->n_steps, int64_t, err, &a->in, &a->out));
  COPSE_DO(COPSE_ARRAY(arena, a->n_cells, steps, err));
  COPSE_DO(assign_new(m->p, arena, &a->assign, err));
  copse_place_loads(m, best->rank_of, a->in, a->out, steps, &time);
  for (size_t c = 0; c < a->n_cells; c++) a->scale[c] = steps[c] > 0 ? (double)steps[c] : 1;
  for (size_t c = 0; c < a->n_cells; c++) normalise(a, c);
  a->rate = COPSE_PLACE_FIRST_STEP;
  a->best_value = -1;
  return COPSE_OK;
}

/* ---- the bound, in integers ------------------------------------------------------------------ */

static int64_t whole_weight(double w) {
  return (int64_t)(w * (1 - 1e-9) * (1 << COPSE_PLACE_WEIGHT_BITS));
}

/* Adds the integer cost of expert e on the ranks that are in group g to cost[r]. */
static void certify_group(const struct ascent *a, size_t g, size_t e, __int128 *cost) {
  const struct copse_place_model *m = a->m;
  __int128 part = 0;
  for (int kind = 0; kind < m->n_kinds; kind++)
    for (size_t s = 0; s < m->n_steps; s++) {
      const double *w = row(a, a->best_weights, kind, s);
      int64_t sent = copse_place_sent(m, g, e)[s];
      part += (__int128)whole_weight(w[g]) *
              (copse_place_in_cost(m, g, kind) * (copse_place_tokens(m, e)[s] - sent));
      part -=
          (__int128)whole_weight(w[m->n_groups + g]) * (copse_place_out_cost(m, g, kind) * sent);
    }
  for (int i = 0; i < m->p->groups[g].n_members; i++) cost[m->p->groups[g].members[i]] += part;
}

/* Returns min over ranks of cost - price: at least what the expert costs in any assignment. */
static __int128 certify_expert(const struct ascent *a, size_t e, const __int128 *prices,
                               __int128 *cost) {
  const struct copse_place_model *m = a->m;
  __int128 least = 0;
  for (size_t r = 0; r < m->n_ranks; r++) cost[r] = -prices[r];
  for (size_t g = 0; g < m->n_groups; g++) certify_group(a, g, e, cost);
  for (size_t c = 0; c < a->n_cells; c++) {
    int64_t w = whole_weight(a->best_weights[c * a->n_rows + 2 * m->n_groups + e]);
    for (size_t r = 0; w > 0 && r < m->n_ranks; r++)
      cost[r] += (__int128)w * a->implied[(e * m->n_ranks + r) * a->n_cells + c];
  }
  for (size_t r = 0; r < m->n_ranks; r++)
    if (r == 0 || cost[r] < least) least = cost[r];
  return least;
}

/* Whether the rows' weights of every all-to-all add up to at most 1, as whole numbers. */
static bool weights_are_shares(const struct ascent *a) {
  for (size_t c = 0; c < a->n_cells; c++) {
    int64_t sum = 0;
    for (size_t i = 0; i < a->n_rows; i++) sum += whole_weight(a->best_weights[c * a->n_rows + i]);
    if (sum > (int64_t)1 << COPSE_PLACE_WEIGHT_BITS) return false;
  }
  return true;
}

static copse_status certify(struct ascent *a, int64_t *bound, struct copse_arena *arena,
                            struct copse_err *err) {
  const struct copse_place_model *m = a->m;
  __int128 *prices = NULL, *cost = NULL, sum = 0;
  *bound = 0;
  if (!weights_are_shares(a)) return copse_fail(err, COPSE_INTERNAL, "weights above 1");
  COPSE_DO(COPSE_ARRAYS(arena, m->n_ranks, __int128, err, &prices, &cost));
  for (size_t r = 0; r < m->n_ranks; r++) {
    double price = a->best_prices[r] < 0 ? a->best_prices[r] : 0;
    prices[r] = (__int128)(price * (1 << COPSE_PLACE_WEIGHT_BITS));
    sum += prices[r] * a->assign.capacity;
  }
  for (size_t g = 0; g < m->n_groups; g++)
    for (int kind = 0; kind < m->n_kinds; kind++)
      for (size_t s = 0; s < m->n_steps; s++)
        sum += (__int128)whole_weight(row(a, a->best_weights, kind, s)[m->n_groups + g]) *
               (copse_place_out_cost(m, g, kind) * m->sum[g * m->n_steps + s]);
  for (size_t e = 0; e < m->n_experts; e++) sum += certify_expert(a, e, prices, cost);
  /* an integer time that is at least sum / 2^bits is at least that rounded up */
  __int128 unit = (__int128)1 << COPSE_PLACE_WEIGHT_BITS;
  *bound = sum > 0 ? m->multiplicity * (int64_t)((sum + unit - 1) / unit) : 0;
  return COPSE_OK;
}

/* Finds the relaxation's bound. */
static copse_status bound_relaxation(const struct copse_place_model *m, const int64_t *implied,
                                     struct copse_placement *best, struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct ascent a = {.m = m, .implied = implied};
  COPSE_DO(ascent_new(&a, best, &scratch, err));
  int64_t each = (int64_t)(a.n_cells * (m->n_groups + m->n_ranks + 1) * m->n_experts) +
                 (int64_t)(m->n_experts * m->n_ranks * m->n_experts / 4);
  int64_t rounds = COPSE_PLACE_BOUND_WORK / each;
  if (rounds < COPSE_PLACE_LEAST_ROUNDS) rounds = COPSE_PLACE_LEAST_ROUNDS;
  if (rounds > COPSE_PLACE_BOUND_ROUNDS) rounds = COPSE_PLACE_BOUND_ROUNDS;
  for (; best->rounds < rounds && a.rate > COPSE_PLACE_LEAST_STEP; best->rounds++) {
    copse_progress_report(m->p->progress, "bound", best->rounds, rounds);
    ask_oracle(&a);
    look_at_placement(&a, best);
    ascend(&a);
    if (a.best_value >= (double)best->time * (1 - 1e-9)) break;
  }
  return certify(&a, &best->bound, &scratch, err);
}

/* ---- branch and cut -------------------------------------------------------------------------- */

/*
 * By GLPK, for small problems: the same rows with x whole.
 *
 *   minimise sum t[kind][s]   over x[e][r] in {0, 1}, t
 *   expert e:  sum_r x[e][r] = 1            rank r:  sum_e x[e][r] <= capacity
 *   t[kind][s] >= every in row, out row, expert row
 *
 * Work is limited by steps of the simplex method, so that the result doesn't depend on the clock.
 */
struct ilp {
  const struct copse_place_model *m;
  const int64_t *implied;
  struct copse_integer *lp;
  double unit;      /* a time that counts as 1 */
  double *solution; /* [columns] the placement to begin with, as column values */
  struct copse_arena scratch;
};

static int x_column(const struct ilp *i, size_t e, size_t r) {
  return (int)(e * i->m->n_ranks + r);
}
static int t_column(const struct ilp *i, int kind, size_t s) {
  return (int)(i->m->n_experts * i->m->n_ranks + (size_t)kind * i->m->n_steps + s);
}

static void add_assignment(struct ilp *i) {
  const struct copse_place_model *m = i->m;
  for (size_t e = 0; e < m->n_experts; e++) {
    for (size_t r = 0; r < m->n_ranks; r++) copse_integer_put(i->lp, x_column(i, e, r), 1);
    copse_integer_add_row(i->lp, COPSE_EXACTLY, 1);
  }
  for (size_t r = 0; r < m->n_ranks; r++) {
    for (size_t e = 0; e < m->n_experts; e++) copse_integer_put(i->lp, x_column(i, e, r), 1);
    copse_integer_add_row(i->lp, COPSE_AT_MOST, m->p->capacity);
  }
}

/* Adds t - in_cost * sum x (tokens - sent) >= 0, and t + out_cost * sum x sent >= out_cost *
 * sum. */
static void add_group_rows(struct ilp *i, size_t g, int kind, size_t s) {
  const struct copse_place_model *m = i->m;
  double in = (double)copse_place_in_cost(m, g, kind) / i->unit;
  double out = (double)copse_place_out_cost(m, g, kind) / i->unit;
  for (int way = 0; way < 2; way++) {
    copse_integer_put(i->lp, t_column(i, kind, s), 1);
    for (size_t e = 0; e < m->n_experts; e++) {
      double sent = (double)copse_place_sent(m, g, e)[s];
      double each = way ? out * sent : -in * ((double)copse_place_tokens(m, e)[s] - sent);
      for (int k = 0; k < m->p->groups[g].n_members; k++)
        copse_integer_put(i->lp, x_column(i, e, (size_t)m->p->groups[g].members[k]), each);
    }
    copse_integer_add_row(i->lp, COPSE_AT_LEAST,
                          way ? out * (double)m->sum[g * m->n_steps + s] : 0);
  }
}

static void add_expert_row(struct ilp *i, size_t e, int kind, size_t s) {
  const struct copse_place_model *m = i->m;
  const int64_t *implied = i->implied + e * m->n_ranks * (size_t)m->n_kinds * m->n_steps;
  copse_integer_put(i->lp, t_column(i, kind, s), 1);
  for (size_t r = 0; r < m->n_ranks; r++)
    copse_integer_put(
        i->lp, x_column(i, e, r),
        -(double)implied[(r * (size_t)m->n_kinds + (size_t)kind) * m->n_steps + s] / i->unit);
  copse_integer_add_row(i->lp, COPSE_AT_LEAST, 0);
}

static void build(struct ilp *i) {
  const struct copse_place_model *m = i->m;
  add_assignment(i);
  for (int kind = 0; kind < m->n_kinds; kind++)
    for (size_t s = 0; s < m->n_steps; s++) {
      for (size_t g = 0; g < m->n_groups; g++) add_group_rows(i, g, kind, s);
      for (size_t e = 0; e < m->n_experts; e++) add_expert_row(i, e, kind, s);
    }
}

/* Describes the starting placement as a solution of the programme. */
static copse_status describe_start(struct ilp *i, const int *rank_of, struct copse_err *err) {
  const struct copse_place_model *m = i->m;
  int64_t *in = NULL, *out = NULL, *steps = NULL, time;
  size_t cells = m->n_groups * m->n_steps;
  COPSE_DO(COPSE_ARRAYS(&i->scratch, cells, int64_t, err, &in, &out));
  COPSE_DO(COPSE_ARRAY(&i->scratch, (size_t)m->n_kinds * m->n_steps, steps, err));
  COPSE_DO(COPSE_ARRAY(&i->scratch, m->n_experts * m->n_ranks + (size_t)m->n_kinds * m->n_steps,
                       i->solution, err));
  copse_place_loads(m, rank_of, in, out, steps, &time);
  for (size_t e = 0; e < m->n_experts; e++) i->solution[x_column(i, e, (size_t)rank_of[e])] = 1;
  for (int kind = 0; kind < m->n_kinds; kind++)
    for (size_t s = 0; s < m->n_steps; s++)
      i->solution[t_column(i, kind, s)] = (double)steps[(size_t)kind * m->n_steps + s] / i->unit;
  return COPSE_OK;
}

static void look(void *ctx, int64_t nodes) {
  const struct ilp *i = ctx;
  copse_progress_report(i->m->p->progress, "ilp", nodes, 0);
}

/* Takes over GLPK's placement where, counted exactly, it is better. */
static copse_status take(struct ilp *i, struct copse_placement *best, struct copse_err *err) {
  const struct copse_place_model *m = i->m;
  int *rank_of = NULL;
  int64_t time = 0;
  COPSE_DO(COPSE_ARRAY(&i->scratch, m->n_experts, rank_of, err));
  for (size_t e = 0; e < m->n_experts; e++) {
    rank_of[e] = -1;
    for (size_t r = 0; r < m->n_ranks; r++)
      if (copse_integer_is_one(i->lp, x_column(i, e, r))) rank_of[e] = (int)r;
  }
  /* refuses what isn't a placement, which rounding could only make of a broken solution */
  COPSE_DO(copse_place_time(m->p, rank_of, &time, err));
  copse_place_take(m, rank_of, time, best);
  return COPSE_OK;
}

/* Runs branch and cut; a GLPK that gives up leaves things as they are. */
static copse_status run_ilp(struct ilp *i, struct copse_placement *best, struct copse_err *err) {
  struct copse_integer_result result;
  copse_integer_solve(i->lp, i->solution, COPSE_PLACE_ILP_WORK, look, i, &result);
  if (!result.relaxed) return COPSE_OK;
  best->nodes = result.nodes > 0 ? result.nodes : 1;
  if (result.found) COPSE_DO(take(i, best, err));
  if (result.optimal) {
    best->proof = COPSE_PLACE_ILP;
    best->bound = best->time;
  } else if (result.lower > 0) {
    int64_t bound = (int64_t)(result.lower * (1 - COPSE_PLACE_TRUST) * i->unit);
    if (bound > best->bound) best->bound = bound < best->time ? bound : best->time;
  }
  return COPSE_OK;
}

/* Counts how many entries the programme has at most; above COPSE_PLACE_MAX_NONZEROS it isn't
 * built. */
static int64_t count_entries(const struct copse_place_model *m) {
  int64_t members = 0, pairs = (int64_t)(m->n_experts * m->n_ranks);
  for (size_t g = 0; g < m->n_groups; g++) members += m->p->groups[g].n_members;
  return 2 * pairs +
         (int64_t)m->n_steps * m->n_kinds * (2 * members * (int64_t)m->n_experts + pairs);
}

static void release(struct ilp *i) {
  copse_integer_free(i->lp);
  copse_arena_free(&i->scratch);
}

static copse_status branch_and_cut(const struct copse_place_model *m, const int64_t *implied,
                                   struct copse_placement *best, struct copse_err *err) {
  COPSE_AT_END(release) struct ilp i = {.m = m, .implied = implied};
  int64_t entries = count_entries(m);
  if (m->n_experts * m->n_ranks > COPSE_PLACE_MAX_BINARIES || entries > COPSE_PLACE_MAX_NONZEROS)
    return COPSE_OK;
  /* one step's share of the time found is 1: coefficients near 1 whatever the units */
  i.unit = best->time > 0 ? (double)best->time / (double)m->n_steps : 1;
  COPSE_DO(copse_integer_new((int)(m->n_experts * m->n_ranks), m->n_kinds * (int)m->n_steps,
                             m->multiplicity, &i.lp, err));
  build(&i);
  COPSE_DO(describe_start(&i, best->rank_of, err));
  return run_ilp(&i, best, err);
}

copse_status copse_place_prove(struct copse_place_model *m, struct copse_placement *best,
                               struct copse_err *err) {
  int64_t *implied;
  COPSE_DO(find_implied(m, &implied, err));
  COPSE_DO(bound_relaxation(m, implied, best, err));
  best->root_bound = best->bound;
  return best->bound < best->time ? branch_and_cut(m, implied, best, err) : COPSE_OK;
}
