/*
 * Expert placement: the model of a routing trace, the time of a placement, and the order in which
 * search, bound, and branch and cut are asked.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/rational.h"
#include "solver/placement/internal.h"
#include "solver/placement/place.h"

/* Times stay below this, so that differences and a few sums of them need no care. */
#define MAX_TIME ((int64_t)1 << 60)

bool copse_place_late(const struct copse_place_model *model) {
  return model->deadline > 0 && copse_clock_seconds() > model->deadline;
}

/* ---- the model --------------------------------------------------------------------------- */

static copse_status check_sizes(const struct copse_place_problem *p, struct copse_err *err) {
  int64_t counts, slots;
  if (p->n_ranks <= 0 || p->n_experts <= 0 || p->n_steps <= 0 || p->capacity <= 0)
    return copse_fail(err, COPSE_INVALID, "ranks, experts, steps and capacity must be positive");
  if (copse_mul_overflows(p->n_ranks, p->n_experts, &counts) ||
      copse_mul_overflows(counts, p->n_steps, &counts) || counts > COPSE_PLACE_MAX_COUNTS)
    return copse_fail(err, COPSE_INVALID,
                      "%d steps of %d ranks and %d experts are too much; at most %lld counts in "
                      "all",
                      p->n_steps, p->n_ranks, p->n_experts, (long long)COPSE_PLACE_MAX_COUNTS);
  if (copse_mul_overflows(p->n_ranks, p->capacity, &slots) || slots < p->n_experts)
    return copse_fail(err, COPSE_INVALID, "%d experts don't fit on %d ranks with %d on each",
                      p->n_experts, p->n_ranks, p->capacity);
  return COPSE_OK;
}

/* No group moves more than all tokens of a step, so this bounds every time. */
static copse_status check_sums(const struct copse_place_problem *p, struct copse_err *err) {
  int64_t most = 1, all = 0, time;
  size_t n = (size_t)p->n_steps * (size_t)p->n_ranks * (size_t)p->n_experts;
  for (int g = 0; g < p->n_groups; g++) {
    const struct copse_place_group *group = &p->groups[g];
    if (group->out_cost < 0 || group->in_cost < 0)
      return copse_fail(err, COPSE_INVALID, "a group's cost is negative");
    if (group->out_cost > most) most = group->out_cost;
    if (group->in_cost > most) most = group->in_cost;
  }
  for (size_t i = 0; i < n; i++) {
    if (p->counts[i] < 0) return copse_fail(err, COPSE_INVALID, "a token count is negative");
    if (copse_add_overflows(all, p->counts[i], &all)) all = INT64_MAX;
  }
  if (copse_mul_overflows(all, most, &time) || time > MAX_TIME / 2)
    return copse_fail(err, COPSE_OVERFLOW,
                      "the trace's tokens times their costs need more than "
                      "60 bits");
  return COPSE_OK;
}

static copse_status list_groups(struct copse_place_model *m, struct copse_err *err) {
  const struct copse_place_problem *p = m->p;
  size_t total = 0;
  int *depth = NULL;
  COPSE_DO(COPSE_ARRAY(&m->arena, m->n_ranks, depth, err));
  COPSE_DO(COPSE_ARRAY(&m->arena, m->n_ranks + 1, m->first, err));
  COPSE_DO(COPSE_ARRAY(&m->arena, m->n_groups * m->n_ranks, m->inside, err));
  for (size_t g = 0; g < m->n_groups; g++)
    for (int i = 0; i < p->groups[g].n_members; i++) {
      int r = p->groups[g].members[i];
      if (r < 0 || r >= p->n_ranks || m->inside[g * m->n_ranks + (size_t)r])
        return copse_fail(err, COPSE_INVALID, "a group lists a rank twice, or none of ours");
      m->inside[g * m->n_ranks + (size_t)r] = 1;
      if (++depth[r] > COPSE_PLACE_MAX_DEPTH)
        return copse_fail(err, COPSE_INVALID, "rank %d is in too many groups", r);
      total++;
    }
  COPSE_DO(COPSE_ARRAY(&m->arena, total, m->groups_of, err));
  for (size_t r = 0, n = 0; r < m->n_ranks; r++) {
    for (size_t g = 0; g < m->n_groups; g++)
      if (m->inside[g * m->n_ranks + r]) m->groups_of[n++] = (int)g;
    m->first[r + 1] = (int)n;
  }
  return COPSE_OK;
}

/* Turns the trace around: steps innermost, ranks added up by group. */
static copse_status add_up(struct copse_place_model *m, struct copse_err *err) {
  const struct copse_place_problem *p = m->p;
  size_t n_s = m->n_steps, n_e = m->n_experts;
  COPSE_DO(COPSE_ARRAY(&m->arena, m->n_groups * n_e * n_s, m->sent, err));
  COPSE_DO(COPSE_ARRAY(&m->arena, n_e * n_s, m->tokens, err));
  COPSE_DO(COPSE_ARRAY(&m->arena, m->n_groups * n_s, m->sum, err));
  for (size_t s = 0; s < n_s; s++)
    for (size_t r = 0; r < m->n_ranks; r++) {
      const int64_t *row = p->counts + (s * m->n_ranks + r) * n_e;
      for (size_t e = 0; e < n_e; e++) {
        m->tokens[e * n_s + s] += row[e];
        for (int i = m->first[r]; i < m->first[r + 1]; i++) {
          size_t g = (size_t)m->groups_of[i];
          m->sent[(g * n_e + e) * n_s + s] += row[e];
          m->sum[g * n_s + s] += row[e];
        }
      }
    }
  return COPSE_OK;
}

static void model_free(struct copse_place_model *m) { copse_arena_free(&m->arena); }

static copse_status model_prepare(struct copse_place_model *m, struct copse_err *err) {
  const struct copse_place_problem *problem = m->p;
  COPSE_DO(check_sizes(problem, err));
  COPSE_DO(check_sums(problem, err));
  m->n_steps = (size_t)problem->n_steps;
  m->n_experts = (size_t)problem->n_experts;
  m->n_ranks = (size_t)problem->n_ranks;
  m->n_groups = (size_t)problem->n_groups;
  m->n_kinds = 1;
  for (size_t g = 0; g < m->n_groups; g++)
    if (problem->groups[g].out_cost != problem->groups[g].in_cost) m->n_kinds = 2;
  m->multiplicity = 2 / m->n_kinds;
  if (problem->seconds > 0) m->deadline = copse_clock_seconds() + problem->seconds;
  COPSE_DO(list_groups(m, err));
  return add_up(m, err);
}

/* ---- the time of a placement --------------------------------------------------------------- */

void copse_place_loads(const struct copse_place_model *m, const int *rank_of, int64_t *in,
                       int64_t *out, int64_t *step_times, int64_t *time) {
  size_t n_s = m->n_steps;
  memset(in, 0, m->n_groups * n_s * sizeof *in);
  memcpy(out, m->sum, m->n_groups * n_s * sizeof *out);
  for (size_t e = 0; e < m->n_experts; e++) {
    const int64_t *tokens = copse_place_tokens(m, e);
    for (int i = m->first[rank_of[e]]; i < m->first[rank_of[e] + 1]; i++) {
      size_t g = (size_t)m->groups_of[i];
      const int64_t *sent = copse_place_sent(m, g, e);
      for (size_t s = 0; s < n_s; s++) {
        in[g * n_s + s] += tokens[s] - sent[s];
        out[g * n_s + s] -= sent[s];
      }
    }
  }
  *time = 0;
  for (int kind = 0; kind < m->n_kinds; kind++)
    for (size_t s = 0; s < n_s; s++) {
      int64_t worst = 0;
      for (size_t g = 0; g < m->n_groups; g++) {
        int64_t a = in[g * n_s + s] * copse_place_in_cost(m, g, kind);
        int64_t b = out[g * n_s + s] * copse_place_out_cost(m, g, kind);
        if (a > worst) worst = a;
        if (b > worst) worst = b;
      }
      if (step_times) step_times[(size_t)kind * n_s + s] = worst;
      *time += m->multiplicity * worst;
    }
}

static copse_status check_placement(struct copse_place_model *m, const int *rank_of,
                                    struct copse_err *err) {
  const struct copse_place_problem *p = m->p;
  int *held = NULL;
  COPSE_DO(COPSE_ARRAY(&m->arena, m->n_ranks, held, err));
  for (int e = 0; e < p->n_experts; e++) {
    if (rank_of[e] < 0 || rank_of[e] >= p->n_ranks)
      return copse_fail(err, COPSE_INVALID, "expert %d is on no rank", e);
    if (++held[rank_of[e]] > p->capacity)
      return copse_fail(err, COPSE_INVALID, "rank %d has more than %d experts", rank_of[e],
                        p->capacity);
  }
  return COPSE_OK;
}

copse_status copse_place_time(const struct copse_place_problem *problem, const int *rank_of,
                              int64_t *time, int64_t *per_step, struct copse_err *err) {
  COPSE_AT_END(model_free) struct copse_place_model m = {.p = problem};
  int64_t *in, *out, *steps;
  COPSE_DO(model_prepare(&m, err));
  COPSE_DO(check_placement(&m, rank_of, err));
  COPSE_DO(COPSE_ARRAYS(&m.arena, m.n_groups * m.n_steps, int64_t, err, &in, &out));
  COPSE_DO(COPSE_ARRAY(&m.arena, 2 * m.n_steps, steps, err));
  copse_place_loads(&m, rank_of, in, out, steps, time);
  for (size_t s = 0; per_step && s < m.n_steps; s++)
    per_step[s] = m.n_kinds == 2 ? steps[s] + steps[m.n_steps + s] : 2 * steps[s];
  return COPSE_OK;
}

/* Expert e on rank e / ceil(n_experts / n_ranks), what frameworks do without being asked. */
static void place_default(const struct copse_place_problem *p, int *rank_of) {
  int each = (int)(((int64_t)p->n_experts + p->n_ranks - 1) / p->n_ranks);
  for (int e = 0; e < p->n_experts; e++) rank_of[e] = e / each;
}

/* ---- all together -------------------------------------------------------------------------- */

/* Greedy and default, each improved; the better one. */
static copse_status find(struct copse_place_model *m, struct copse_placement *out,
                         struct copse_err *err) {
  int *other = NULL;
  int64_t time = 0;
  COPSE_DO(COPSE_ARRAY(&m->arena, m->n_experts, other, err));
  place_default(m->p, out->rank_of);
  COPSE_DO(copse_place_time(m->p, out->rank_of, &out->default_time, NULL, err));
  COPSE_DO(copse_place_search(m, out->rank_of, &out->time, &out->evaluations, err));
  COPSE_DO(copse_place_greedy(m, other, err));
  COPSE_DO(copse_place_search(m, other, &time, &out->evaluations, err));
  if (time < out->time) {
    memcpy(out->rank_of, other, m->n_experts * sizeof *other);
    out->time = time;
  }
  return COPSE_OK;
}

copse_status copse_place_solve(const struct copse_place_problem *problem,
                               struct copse_placement *out, struct copse_err *err) {
  COPSE_AT_END(model_free) struct copse_place_model m = {.p = problem};
  int64_t *implied;
  *out = (struct copse_placement){.proof = COPSE_PLACE_GAP};
  COPSE_DO(model_prepare(&m, err));
  COPSE_DO(copse_calloc(m.n_experts, sizeof *out->rank_of, &out->rank_of, err));
  COPSE_DO(find(&m, out, err));
  COPSE_DO(copse_place_implied(&m, &implied, err));
  COPSE_DO(copse_place_bound(&m, implied, out, err));
  out->root_bound = out->bound;
  if (out->bound < out->time) COPSE_DO(copse_place_ilp(&m, implied, out, err));
  if (out->bound >= out->time && out->proof == COPSE_PLACE_GAP) out->proof = COPSE_PLACE_CERTIFIED;
  out->out_of_time = out->proof == COPSE_PLACE_GAP && copse_place_late(&m);
  return COPSE_OK;
}
