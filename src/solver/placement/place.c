/*
 * Expert placement: the model of a routing trace, the time of a placement, and the order in which
 * search, bound, and branch and cut are asked. Also the oracle of the bound's relaxation,
 * assignment with capacities by shortest augmenting paths (Jonker and Volgenant 1987).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/rational.h"
#include "solver/placement/internal.h"
#include "solver/placement/place.h"

copse_status copse_place_assign_new(int n_experts, int n_ranks, int capacity,
                                    struct copse_place_assign *out, struct copse_err *err) {
  struct copse_place_assign *a = out;
  size_t ranks = (size_t)n_ranks;
  copse_status status;
  if (capacity > n_experts) capacity = n_experts;
  *a =
      (struct copse_place_assign){.n_experts = n_experts, .n_ranks = n_ranks, .capacity = capacity};
  COPSE_TRY(copse_arena_array(&a->arena, (size_t)n_experts, sizeof *a->rank_of, &a->rank_of, err));
  COPSE_TRY(copse_arena_array(&a->arena, ranks, sizeof *a->prices, &a->prices, err));
  COPSE_TRY(copse_arena_array(&a->arena, ranks, sizeof *a->distance, &a->distance, err));
  COPSE_TRY(copse_arena_array(&a->arena, ranks, sizeof *a->via, &a->via, err));
  COPSE_TRY(copse_arena_array(&a->arena, ranks, sizeof *a->done, &a->done, err));
  COPSE_TRY(copse_arena_array(&a->arena, ranks, sizeof *a->n_held, &a->n_held, err));
  COPSE_TRY(copse_arena_array(&a->arena, ranks * (size_t)capacity, sizeof *a->held, &a->held, err));
out:
  if (status != COPSE_OK) copse_place_assign_free(a);
  return status;
}

void copse_place_assign_free(struct copse_place_assign *a) {
  copse_arena_free(&a->arena);
  *a = (struct copse_place_assign){0};
}

/* Reduced cost of putting an expert on a rank; prices are <= 0 and make full ranks dear. */
static double reduced(const struct copse_place_assign *a, const double *cost, int e, int r) {
  return cost[(size_t)e * (size_t)a->n_ranks + (size_t)r] - a->prices[r];
}

static void relax(struct copse_place_assign *a, const double *cost, int e, double base) {
  for (int r = 0; r < a->n_ranks; r++) {
    double d = base + reduced(a, cost, e, r);
    if (!a->done[r] && d < a->distance[r]) {
      a->distance[r] = d;
      a->via[r] = e;
    }
  }
}

static int nearest(const struct copse_place_assign *a) {
  int best = -1;
  for (int r = 0; r < a->n_ranks; r++)
    if (!a->done[r] && (best < 0 || a->distance[r] < a->distance[best])) best = r;
  return best;
}

/* Hands the places along the path: the last rank has room, each expert moves one on. */
static void shift(struct copse_place_assign *a, int last, int expert) {
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

static void add_expert(struct copse_place_assign *a, const double *cost, int expert) {
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

void copse_place_assign_run(struct copse_place_assign *a, const double *cost) {
  memset(a->n_held, 0, (size_t)a->n_ranks * sizeof *a->n_held);
  for (int r = 0; r < a->n_ranks; r++) a->prices[r] = 0;
  for (int e = 0; e < a->n_experts; e++) a->rank_of[e] = -1;
  for (int e = 0; e < a->n_experts; e++) add_expert(a, cost, e);
}

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
  COPSE_DO(copse_arena_array(&m->arena, m->n_ranks, sizeof *depth, &depth, err));
  COPSE_DO(copse_arena_array(&m->arena, m->n_ranks + 1, sizeof *m->first, &m->first, err));
  COPSE_DO(copse_arena_array(&m->arena, m->n_groups * m->n_ranks, 1, &m->inside, err));
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
  COPSE_DO(copse_arena_array(&m->arena, total, sizeof *m->groups_of, &m->groups_of, err));
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
  COPSE_DO(copse_arena_array(&m->arena, m->n_groups * n_e * n_s, sizeof *m->sent, &m->sent, err));
  COPSE_DO(copse_arena_array(&m->arena, n_e * n_s, sizeof *m->tokens, &m->tokens, err));
  COPSE_DO(copse_arena_array(&m->arena, m->n_groups * n_s, sizeof *m->sum, &m->sum, err));
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

static void model_free(struct copse_place_model *m) {
  copse_arena_free(&m->arena);
  *m = (struct copse_place_model){0};
}

static copse_status model_new(const struct copse_place_problem *problem,
                              struct copse_place_model *m, struct copse_err *err) {
  copse_status status;
  *m = (struct copse_place_model){.p = problem, .n_kinds = 1};
  COPSE_TRY(check_sizes(problem, err));
  COPSE_TRY(check_sums(problem, err));
  m->n_steps = (size_t)problem->n_steps;
  m->n_experts = (size_t)problem->n_experts;
  m->n_ranks = (size_t)problem->n_ranks;
  m->n_groups = (size_t)problem->n_groups;
  for (size_t g = 0; g < m->n_groups; g++)
    if (problem->groups[g].out_cost != problem->groups[g].in_cost) m->n_kinds = 2;
  m->multiplicity = 2 / m->n_kinds;
  if (problem->seconds > 0) m->deadline = copse_clock_seconds() + problem->seconds;
  COPSE_TRY(list_groups(m, err));
  status = add_up(m, err);
out:
  if (status != COPSE_OK) model_free(m);
  return status;
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

static copse_status check_placement(const struct copse_place_problem *p, const int *rank_of,
                                    struct copse_err *err) {
  int *held = NULL;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)p->n_ranks, sizeof *held, &held, err));
  for (int e = 0; e < p->n_experts; e++) {
    if (rank_of[e] < 0 || rank_of[e] >= p->n_ranks)
      COPSE_TRY(copse_fail(err, COPSE_INVALID, "expert %d is on no rank", e));
    if (++held[rank_of[e]] > p->capacity)
      COPSE_TRY(copse_fail(err, COPSE_INVALID, "rank %d has more than %d experts", rank_of[e],
                           p->capacity));
  }
out:
  free(held);
  return status;
}

copse_status copse_place_time(const struct copse_place_problem *problem, const int *rank_of,
                              int64_t *time, int64_t *per_step, struct copse_err *err) {
  struct copse_place_model m;
  int64_t *in = NULL, *out = NULL, *steps = NULL;
  copse_status status = model_new(problem, &m, err);
  if (status != COPSE_OK) return status;
  COPSE_TRY(check_placement(problem, rank_of, err));
  COPSE_TRY(copse_arena_array(&m.arena, m.n_groups * m.n_steps, sizeof *in, &in, err));
  COPSE_TRY(copse_arena_array(&m.arena, m.n_groups * m.n_steps, sizeof *out, &out, err));
  COPSE_TRY(copse_arena_array(&m.arena, 2 * m.n_steps, sizeof *steps, &steps, err));
  copse_place_loads(&m, rank_of, in, out, steps, time);
  for (size_t s = 0; per_step && s < m.n_steps; s++)
    per_step[s] = m.n_kinds == 2 ? steps[s] + steps[m.n_steps + s] : 2 * steps[s];
out:
  model_free(&m);
  return status;
}

/* Expert e on rank e / ceil(n_experts / n_ranks), what frameworks do without being asked. */
static void place_default(const struct copse_place_problem *p, int *rank_of) {
  int each = (int)(((int64_t)p->n_experts + p->n_ranks - 1) / p->n_ranks);
  for (int e = 0; e < p->n_experts; e++) rank_of[e] = e / each;
}

/* ---- all together -------------------------------------------------------------------------- */

/* Greedy and default, each improved; the better one. */
static copse_status find(const struct copse_place_model *m, struct copse_placement *out,
                         struct copse_err *err) {
  int *other = NULL;
  int64_t time = 0;
  copse_status status;
  COPSE_TRY(copse_calloc(m->n_experts, sizeof *other, &other, err));
  place_default(m->p, out->rank_of);
  COPSE_TRY(copse_place_time(m->p, out->rank_of, &out->default_time, NULL, err));
  COPSE_TRY(copse_place_search(m, out->rank_of, &out->time, &out->evaluations, err));
  COPSE_TRY(copse_place_greedy(m, other, err));
  COPSE_TRY(copse_place_search(m, other, &time, &out->evaluations, err));
  if (time < out->time) {
    memcpy(out->rank_of, other, m->n_experts * sizeof *other);
    out->time = time;
  }
out:
  free(other);
  return status;
}

copse_status copse_place_solve(const struct copse_place_problem *problem,
                               struct copse_placement *out, struct copse_err *err) {
  struct copse_place_model m;
  int64_t *implied = NULL;
  copse_status status;
  *out = (struct copse_placement){.proof = COPSE_PLACE_GAP};
  status = model_new(problem, &m, err);
  if (status != COPSE_OK) return status;
  COPSE_TRY(copse_calloc(m.n_experts, sizeof *out->rank_of, &out->rank_of, err));
  COPSE_TRY(find(&m, out, err));
  COPSE_TRY(copse_place_implied(&m, &implied, err));
  COPSE_TRY(copse_place_bound(&m, implied, out, err));
  out->root_bound = out->bound;
  if (out->bound < out->time) COPSE_TRY(copse_place_ilp(&m, implied, out, err));
  if (out->bound >= out->time && out->proof == COPSE_PLACE_GAP) out->proof = COPSE_PLACE_CERTIFIED;
  out->out_of_time = out->proof == COPSE_PLACE_GAP && copse_place_late(&m);
out:
  free(implied);
  model_free(&m);
  if (status != COPSE_OK) {
    free(out->rank_of);
    out->rank_of = NULL;
  }
  return status;
}
