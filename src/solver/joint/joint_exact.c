#include <gmp.h>
#include <stdlib.h>
#include <string.h>

#include "solver/network/flow.h"
#include "solver/joint/joint_internal.h"

bool copse_joint_q(const mpq_t from, struct copse_q *to) {
  if (!mpz_fits_slong_p(mpq_numref(from)) || !mpz_fits_slong_p(mpq_denref(from))) return false;
  *to = (struct copse_q){mpz_get_si(mpq_numref(from)), mpz_get_si(mpq_denref(from))};
  return true;
}

/* value * factor / divisor, whole by the choice of the factor; false beyond the flows' range. */
static bool scale(const mpq_t value, const mpz_t factor, unsigned long divisor, mpz_t t,
                  int64_t *out) {
  mpz_divexact(t, factor, mpq_denref(value));
  mpz_mul(t, t, mpq_numref(value));
  mpz_divexact_ui(t, t, divisor);
  if (mpz_sizeinbase(t, 2) > 58) return false;
  *out = mpz_get_si(t);
  return true;
}

static void common_denominator(const struct copse_joint_search *s, int group, mpq_t *solution,
                               mpz_t factor) {
  int members = s->groups[group].n_members;
  mpz_set(factor, mpq_denref(solution[copse_joint_rate_column(s, group)]));
  for (int i = 0; s->share[group] && i < members; i++)
    mpz_lcm(factor, factor, mpq_denref(solution[s->share[group][i]]));
  for (int q = 0; q < s->n_phases; q++)
    for (int e = 0; s->phases[q].group == group && e < s->network->n_links; e++)
      if (s->phases[q].column[e] >= 0)
        mpz_lcm(factor, factor, mpq_denref(solution[s->phases[q].column[e]]));
  if (copse_joint_roots(s, group) > 1)
    mpz_mul_ui(factor, factor, (unsigned long)copse_joint_roots(s, group));
}

static void reduce_by(int64_t *values, size_t n, int64_t g) {
  for (size_t i = 0; values && i < n; i++) values[i] /= g;
}

static int64_t gcd_of(const int64_t *values, size_t n, int64_t g) {
  for (size_t i = 0; values && i < n; i++) g = copse_gcd(g, values[i]);
  return g;
}

/* Where a phase's amounts stand: the broadcast's, the reduction's, then those to each member. */
static int slot_of(const struct copse_joint_phase *phase) {
  return phase->sink >= 0 ? 2 + phase->sink : phase->reduce;
}

const int64_t *copse_joint_amounts(const struct copse_joint_phase *phase,
                                   const struct copse_joint_part *part) {
  if (phase->sink >= 0) return part->exchange[phase->sink];
  return phase->reduce ? part->reduce : part->broadcast;
}

/* The capacity in whole numbers less the amount. */
static bool take_rest(int64_t capacity, const mpz_t factor, mpz_t t, int64_t *amount) {
  mpz_mul_si(t, factor, capacity);
  if (mpz_sizeinbase(t, 2) > 58) return false;
  *amount = mpz_get_si(t) - *amount;
  return true;
}

static copse_status set_amounts(const struct copse_joint_search *s, int group, mpq_t *solution,
                                const mpz_t factor, struct copse_joint *out, int64_t **slots,
                                bool *fits, struct copse_err *err) {
  size_t links = (size_t)s->network->n_links;
  copse_status status = COPSE_OK;
  int64_t sum = 0; /* of all links: more than goes through any node */
  mpz_t t;
  mpz_init(t);
  for (int q = 0; q < s->n_phases && *fits && status == COPSE_OK; q++) {
    const struct copse_joint_phase *phase = &s->phases[q];
    if (phase->group != group) continue;
    int64_t *amounts = copse_arena_alloc(&out->arena, links, sizeof *amounts);
    if (!amounts) status = copse_fail_nomem(err);
    for (size_t e = 0; e < links && *fits && amounts; e++) {
      if (phase->column[e] < 0) continue;
      *fits = scale(solution[phase->column[e]], factor, 1, t, &amounts[e]) &&
              (!phase->rest || take_rest(s->network->links[e].capacity, factor, t, &amounts[e])) &&
              !copse_add_overflows(sum, amounts[e], &sum) && sum < COPSE_FLOW_MAX / 2;
    }
    slots[slot_of(phase)] = amounts;
  }
  mpz_clear(t);
  return status;
}

static void set_weights(const struct copse_joint_search *s, int group, mpq_t *solution,
                        const mpz_t factor, int64_t *weights, int64_t *whole, bool *fits) {
  const struct copse_joint_group *g = &s->groups[group];
  int roots = copse_joint_roots(s, group);
  mpz_t t;
  mpz_init(t);
  for (int i = 0; i < g->n_members && *fits; i++) {
    int column = roots > 0 ? copse_joint_rate_column(s, group) : s->share[group][i];
    if (!copse_joint_is_root(g, i)) continue;
    *fits = scale(solution[column], factor, roots > 0 ? (unsigned long)roots : 1, t, &weights[i]);
    *whole += weights[i];
  }
  mpz_clear(t);
}

void copse_joint_rate(const struct copse_joint_search *s, int group, mpq_t *solution, mpq_t rate) {
  if (!s->whole) mpq_set(rate, solution[copse_joint_rate_column(s, group)]);
  for (int i = 0; s->whole && i < s->groups[group].n_members; i++)
    mpq_add(rate, rate, solution[s->share[group][i]]);
}

static bool set_rate(const struct copse_joint_search *s, int group, mpq_t *solution,
                     struct copse_q *rate) {
  mpq_t sum;
  mpq_init(sum);
  copse_joint_rate(s, group, solution, sum);
  bool fits = copse_joint_q(sum, rate);
  mpq_clear(sum);
  return fits;
}

/* The rational solution times a common denominator, less what all have in common. */
static copse_status set_part(const struct copse_joint_search *s, int group, mpq_t *solution,
                             struct copse_joint *out, struct copse_joint_part *part, bool *fits,
                             struct copse_err *err) {
  const struct copse_joint_group *g = &s->groups[group];
  size_t members = (size_t)g->n_members, links = (size_t)s->network->n_links;
  size_t n_slots = 2 + (g->exchanges ? members : 0);
  int64_t *weights = copse_arena_alloc(&out->arena, members, sizeof *weights), common;
  int64_t **slots = copse_arena_alloc(&out->arena, n_slots, sizeof *slots);
  copse_status status;
  mpz_t factor;
  if (!weights || !slots) return copse_fail_nomem(err);
  mpz_init(factor);
  *fits = set_rate(s, group, solution, &part->rate);
  common_denominator(s, group, solution, factor);
  set_weights(s, group, solution, factor, weights, &part->whole, fits);
  COPSE_TRY(set_amounts(s, group, solution, factor, out, slots, fits, err));
  if (!*fits) goto out;
  common = gcd_of(weights, members, part->whole);
  for (size_t i = 0; i < n_slots; i++) common = gcd_of(slots[i], links, common);
  if (common > 1) {
    reduce_by(weights, members, common);
    for (size_t i = 0; i < n_slots; i++) reduce_by(slots[i], links, common);
    part->whole /= common;
  }
  *fits = part->whole <= s->max_whole;
  part->weights = weights;
  part->broadcast = slots[0];
  part->reduce = slots[1];
  part->exchange = g->exchanges ? (const int64_t *const *)slots + 2 : NULL;
out:
  mpz_clear(factor);
  return status;
}

copse_status copse_joint_parts(const struct copse_joint_search *s, mpq_t *solution,
                               struct copse_joint *out, bool *fits, struct copse_err *err) {
  struct copse_joint_part *parts =
      copse_arena_alloc(&out->arena, (size_t)s->n_groups, sizeof *parts);
  copse_status status = COPSE_OK;
  if (!parts) return copse_fail_nomem(err);
  out->rate = COPSE_Q_ZERO;
  *fits = true;
  for (int g = 0; g < s->n_groups && *fits; g++)
    COPSE_TRY(set_part(s, g, solution, out, &parts[g], fits, err));
  for (int g = 0; g < s->n_rates && *fits; g++)
    *fits = copse_q_add(out->rate, parts[g].rate, &out->rate, NULL) == COPSE_OK;
  if (!*fits) goto out;
  out->parts = parts;
out:
  return status;
}
