/*
 * Expert placement: the model of a routing trace, the time of a placement, and the order in which
 * search, bound, and branch and cut are asked.
 *
 * Local search over placements. A rank has `capacity` slots; a step exchanges the contents
 * of two slots on different ranks, an expert each or an expert and nothing. What an exchange
 * costs is worked out from the few groups that it touches and, for all others, from a list of
 * each step's most loaded groups. docs/theory.md, "src/solver/placement/".
 */
#include <stdlib.h>
#include <string.h>

#include "base/rational.h"
#include "solver/placement/internal.h"
#include "solver/policy.h"

/* Times stay below this, so that differences and a few sums of them need no care. */
#define MAX_TIME ((int64_t)1 << 60)

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

/* Checks that sums fit: no group moves more than all tokens of a step, so this bounds every
 * time. */
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

/* Transposes the trace: steps innermost, ranks added up by group. */
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
                              int64_t *time, struct copse_err *err) {
  COPSE_AT_END(model_free) struct copse_place_model m = {.p = problem};
  int64_t *in, *out;
  COPSE_DO(model_prepare(&m, err));
  COPSE_DO(check_placement(&m, rank_of, err));
  COPSE_DO(COPSE_ARRAYS(&m.arena, m.n_groups * m.n_steps, int64_t, err, &in, &out));
  copse_place_loads(&m, rank_of, in, out, NULL, time);
  return COPSE_OK;
}

/* Places expert e on rank e / ceil(n_experts / n_ranks), what frameworks do without being asked. */
static void place_default(const struct copse_place_problem *p, int *rank_of) {
  int each = (int)(((int64_t)p->n_experts + p->n_ranks - 1) / p->n_ranks);
  for (int e = 0; e < p->n_experts; e++) rank_of[e] = e / each;
}

/* ---- local search -------------------------------------------------------------------------- */

/* Touched are the groups of two ranks; one more is enough to find the worst of the others. */
#define MAX_TOUCHED (2 * COPSE_PLACE_MAX_DEPTH)
#define MAX_TOP (MAX_TOUCHED + 1)

struct touched {
  size_t group;
  int lose, gain; /* experts, -1: none */
};

struct search {
  const struct copse_place_model *m;
  int *slots;   /* [n_slots] expert or -1; slot i is on rank i / capacity */
  int *slot_of; /* [n_experts] */
  size_t n_slots, capacity;
  int64_t *in, *out; /* [g][s] */
  int64_t *value;    /* [kind][s][g] time of a group */
  int *top;          /* [kind][s][n_top] most loaded groups, worst first */
  int n_top;
  int *stamps; /* [g] */
  int stamp;
  struct touched touched[MAX_TOUCHED];
  int n_touched;
  int64_t time;
  int64_t work, evaluations;
  uint64_t random;
  struct copse_arena *scratch;
};

static int64_t *row_of(const struct search *s, int kind, size_t step) {
  return s->value + ((size_t)kind * s->m->n_steps + step) * s->m->n_groups;
}
static int *top_of(const struct search *s, int kind, size_t step) {
  return s->top + ((size_t)kind * s->m->n_steps + step) * (size_t)s->n_top;
}

/* ---- keeping the state --------------------------------------------------------------------- */

/* Finds the n_top most loaded groups by insertion; equal ones by number. */
static void rank_groups(struct search *s, int kind, size_t step) {
  const int64_t *value = row_of(s, kind, step);
  int *top = top_of(s, kind, step), n = 0;
  for (size_t g = 0; g < s->m->n_groups; g++) {
    if (n == s->n_top && value[g] <= value[top[n - 1]]) continue;
    int at = n < s->n_top ? n++ : n - 1;
    for (; at > 0 && value[top[at - 1]] < value[g]; at--) top[at] = top[at - 1];
    top[at] = (int)g;
  }
}

static void set_value(struct search *s, size_t g, size_t step) {
  const struct copse_place_model *m = s->m;
  for (int kind = 0; kind < m->n_kinds; kind++)
    row_of(s, kind, step)[g] =
        copse_larger(s->in[g * m->n_steps + step] * copse_place_in_cost(m, g, kind),
                     s->out[g * m->n_steps + step] * copse_place_out_cost(m, g, kind));
}

static void start(struct search *s, const int *rank_of) {
  const struct copse_place_model *m = s->m;
  for (size_t i = 0; i < s->n_slots; i++) s->slots[i] = -1;
  for (size_t e = 0; e < m->n_experts; e++) {
    size_t i = (size_t)rank_of[e] * s->capacity;
    while (s->slots[i] >= 0) i++;
    s->slots[i] = (int)e;
    s->slot_of[e] = (int)i;
  }
  copse_place_loads(m, rank_of, s->in, s->out, NULL, &s->time);
  for (size_t step = 0; step < m->n_steps; step++) {
    for (size_t g = 0; g < m->n_groups; g++) set_value(s, g, step);
    for (int kind = 0; kind < m->n_kinds; kind++) rank_groups(s, kind, step);
  }
}

/* ---- one exchange -------------------------------------------------------------------------- */

static void touch(struct search *s, size_t rank, size_t other, int lose, int gain) {
  const struct copse_place_model *m = s->m;
  for (int i = m->first[rank]; i < m->first[rank + 1]; i++) {
    size_t g = (size_t)m->groups_of[i];
    if (m->inside[g * m->n_ranks + other]) continue;
    s->touched[s->n_touched++] = (struct touched){g, lose, gain};
    s->stamps[g] = s->stamp;
  }
}

static void touch_slots(struct search *s, size_t a, size_t b) {
  if (s->stamp == INT32_MAX) {
    memset(s->stamps, 0, s->m->n_groups * sizeof *s->stamps);
    s->stamp = 0;
  }
  s->stamp++;
  s->n_touched = 0;
  touch(s, a / s->capacity, b / s->capacity, s->slots[a], s->slots[b]);
  touch(s, b / s->capacity, a / s->capacity, s->slots[b], s->slots[a]);
}

/* Computes what comes in and goes out of a touched group after the exchange. */
static void changed(const struct search *s, const struct touched *t, size_t step, int64_t *in,
                    int64_t *out) {
  const struct copse_place_model *m = s->m;
  size_t at = t->group * m->n_steps + step;
  *in = s->in[at];
  *out = s->out[at];
  if (t->lose >= 0) {
    int64_t sent = copse_place_sent(m, t->group, (size_t)t->lose)[step];
    *in -= copse_place_tokens(m, (size_t)t->lose)[step] - sent;
    *out += sent;
  }
  if (t->gain >= 0) {
    int64_t sent = copse_place_sent(m, t->group, (size_t)t->gain)[step];
    *in += copse_place_tokens(m, (size_t)t->gain)[step] - sent;
    *out -= sent;
  }
}

static int64_t step_time(const struct search *s, size_t step) {
  const struct copse_place_model *m = s->m;
  int64_t worst[2] = {0, 0};
  for (int i = 0; i < s->n_touched; i++) {
    int64_t in, out;
    changed(s, &s->touched[i], step, &in, &out);
    for (int kind = 0; kind < m->n_kinds; kind++) {
      int64_t v = copse_larger(in * copse_place_in_cost(m, s->touched[i].group, kind),
                               out * copse_place_out_cost(m, s->touched[i].group, kind));
      worst[kind] = copse_larger(worst[kind], v);
    }
  }
  for (int kind = 0; kind < m->n_kinds; kind++) {
    const int *top = top_of(s, kind, step);
    const int64_t *value = row_of(s, kind, step);
    for (int i = 0; i < s->n_top; i++)
      if (s->stamps[top[i]] != s->stamp) {
        worst[kind] = copse_larger(worst[kind], value[top[i]]);
        break;
      }
  }
  return m->multiplicity * (worst[0] + worst[1]);
}

/* Tries the time after exchanging two slots, or something above `limit` if it is above. */
static int64_t try_exchange(struct search *s, size_t a, size_t b, int64_t limit) {
  int64_t time = 0;
  touch_slots(s, a, b);
  s->evaluations++;
  for (size_t step = 0; step < s->m->n_steps && time <= limit; step++) {
    time += step_time(s, step);
    s->work++;
  }
  return time;
}

static void exchange(struct search *s, size_t a, size_t b, int64_t time) {
  const struct copse_place_model *m = s->m;
  touch_slots(s, a, b);
  for (int i = 0; i < s->n_touched; i++)
    for (size_t step = 0; step < m->n_steps; step++) {
      size_t at = s->touched[i].group * m->n_steps + step;
      changed(s, &s->touched[i], step, &s->in[at], &s->out[at]);
      set_value(s, s->touched[i].group, step);
    }
  for (int kind = 0; kind < m->n_kinds; kind++)
    for (size_t step = 0; step < m->n_steps; step++) rank_groups(s, kind, step);
  /* ranking walks over all groups: count it, so that accepting is not free */
  s->work += (int64_t)(m->n_steps * m->n_groups) / 8;
  int held = s->slots[a];
  s->slots[a] = s->slots[b];
  s->slots[b] = held;
  if (s->slots[a] >= 0) s->slot_of[s->slots[a]] = (int)a;
  if (s->slots[b] >= 0) s->slot_of[s->slots[b]] = (int)b;
  s->time = time;
}

static void save(const struct search *s, int *rank_of) {
  for (size_t e = 0; e < s->m->n_experts; e++)
    rank_of[e] = (int)((size_t)s->slot_of[e] / s->capacity);
}

/* ---- the two searches ---------------------------------------------------------------------- */

/* Searches by late acceptance: an exchange is taken if the time is not above the one
 * COPSE_PLACE_HISTORY steps ago. Most exchanges change no step's worst group, so many go sideways;
 * that is how plateaus are crossed. */
static copse_status anneal(struct search *s, int *rank_of, int64_t *best, struct copse_err *err) {
  int64_t *history = NULL;
  COPSE_DO(COPSE_ARRAY(s->scratch, COPSE_PLACE_HISTORY, history, err));
  for (int i = 0; i < COPSE_PLACE_HISTORY; i++) history[i] = s->time;
  int64_t sweep = (int64_t)(s->m->n_experts * s->n_slots), end = COPSE_PLACE_ANNEAL_WORK;
  if (sweep < end / COPSE_PLACE_ANNEAL_SWEEPS / (int64_t)(s->m->n_steps + 1))
    end = sweep * COPSE_PLACE_ANNEAL_SWEEPS * (int64_t)(s->m->n_steps + 1);
  for (int64_t i = 0; s->work < end && s->time > 0; i++) {
    size_t a = (size_t)s->slot_of[copse_place_random(&s->random) % s->m->n_experts];
    size_t b = copse_place_random(&s->random) % s->n_slots;
    int64_t *late = &history[i % COPSE_PLACE_HISTORY];
    s->work++; /* also where nothing is tried */
    if (a / s->capacity != b / s->capacity) {
      int64_t limit = copse_larger(*late, s->time), time = try_exchange(s, a, b, limit);
      if (time <= limit) exchange(s, a, b, time);
    }
    if (s->time < *late) *late = s->time;
    if (s->time < *best) {
      *best = s->time;
      save(s, rank_of);
    }
  }
  return COPSE_OK;
}

/* Takes every exchange that helps, until none does. */
static void descend(struct search *s) {
  int64_t end = s->work + COPSE_PLACE_DESCENT_WORK;
  size_t idle = 0;
  for (size_t e = 0; idle < s->m->n_experts && s->work < end; e = (e + 1) % s->m->n_experts) {
    idle++;
    for (size_t b = 0; b < s->n_slots; b++) {
      size_t a = (size_t)s->slot_of[e];
      if (a / s->capacity == b / s->capacity) continue;
      int64_t time = try_exchange(s, a, b, s->time - 1);
      if (time >= s->time) continue;
      exchange(s, a, b, time);
      idle = 0;
    }
  }
}

static copse_status search_new(struct search *s, struct copse_err *err) {
  const struct copse_place_model *m = s->m;
  size_t cells = m->n_groups * m->n_steps, kinds = (size_t)m->n_kinds;
  s->capacity = (size_t)(m->p->capacity < m->p->n_experts ? m->p->capacity : m->p->n_experts);
  s->n_slots = s->capacity * m->n_ranks;
  s->n_top = m->n_groups < MAX_TOP ? (int)m->n_groups : MAX_TOP;
  s->random = 1;
  COPSE_DO(COPSE_ARRAY(s->scratch, s->n_slots, s->slots, err));
  COPSE_DO(COPSE_ARRAY(s->scratch, m->n_experts, s->slot_of, err));
  COPSE_DO(COPSE_ARRAYS(s->scratch, cells, int64_t, err, &s->in, &s->out));
  COPSE_DO(COPSE_ARRAY(s->scratch, kinds * cells, s->value, err));
  COPSE_DO(COPSE_ARRAY(s->scratch, kinds * m->n_steps * (size_t)s->n_top, s->top, err));
  return COPSE_ARRAY(s->scratch, m->n_groups, s->stamps, err);
}

static copse_status improve(const struct copse_place_model *model, int *rank_of, int64_t *time,
                            int64_t *evaluations, struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct search s = {.m = model, .scratch = &scratch};
  COPSE_DO(search_new(&s, err));
  start(&s, rank_of);
  *time = s.time;
  copse_progress_report(model->p->progress, "search", 0, 2);
  if (model->n_ranks > 1) {
    COPSE_DO(anneal(&s, rank_of, time, err));
    copse_progress_report(model->p->progress, "search", 1, 2);
    start(&s, rank_of);
    descend(&s);
    save(&s, rank_of);
    *time = s.time;
  }
  *evaluations += s.evaluations;
  return COPSE_OK;
}

/* ---- the greedy start ---------------------------------------------------------------------- */

/* Returns what a rank's groups would take in, added up over steps: the worst of its groups. */
static int64_t load_with(const struct copse_place_model *m, const int64_t *load, size_t e, size_t r,
                         const int64_t *tokens) {
  int64_t worst = 0;
  for (int i = m->first[r]; i < m->first[r + 1]; i++) {
    size_t g = (size_t)m->groups_of[i];
    int64_t cost = copse_larger(copse_place_in_cost(m, g, 0), copse_place_out_cost(m, g, 0)),
            sent = 0;
    for (size_t s = 0; s < m->n_steps; s++) sent += copse_place_sent(m, g, e)[s];
    worst = copse_larger(worst, (load[g] + tokens[e] - sent) * cost);
  }
  return worst;
}

static copse_status place_greedily(const struct copse_place_model *m, int *rank_of,
                                   struct copse_err *err) {
  struct copse_place_load *wishes;
  int64_t *load = NULL, *tokens = NULL;
  int *held = NULL;
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  COPSE_DO(COPSE_ARRAY(&scratch, m->n_experts, wishes, err));
  COPSE_DO(COPSE_ARRAY(&scratch, m->n_experts, tokens, err));
  COPSE_DO(COPSE_ARRAY(&scratch, m->n_groups, load, err));
  COPSE_DO(COPSE_ARRAY(&scratch, m->n_ranks, held, err));
  for (size_t e = 0; e < m->n_experts; e++) {
    for (size_t s = 0; s < m->n_steps; s++) tokens[e] += copse_place_tokens(m, e)[s];
    wishes[e] = (struct copse_place_load){-tokens[e], (int)e};
  }
  COPSE_SORT(wishes, m->n_experts, copse_place_by_load);
  for (size_t i = 0; i < m->n_experts; i++) {
    size_t e = (size_t)wishes[i].expert, best = m->n_ranks;
    int64_t least = INT64_MAX;
    for (size_t r = 0; r < m->n_ranks; r++) {
      int64_t load_here = held[r] < m->p->capacity ? load_with(m, load, e, r, tokens) : INT64_MAX;
      if (load_here < least) {
        least = load_here;
        best = r;
      }
    }
    rank_of[e] = (int)best;
    held[best]++;
    for (int j = m->first[best]; j < m->first[best + 1]; j++) {
      size_t g = (size_t)m->groups_of[j];
      load[g] += tokens[e];
      for (size_t s = 0; s < m->n_steps; s++) load[g] -= copse_place_sent(m, g, e)[s];
    }
  }
  return COPSE_OK;
}

/* ---- all together -------------------------------------------------------------------------- */

/* Finds a placement: greedy and default, each improved; the better one. */
static copse_status find(struct copse_place_model *m, struct copse_placement *out,
                         struct copse_err *err) {
  int *other = NULL;
  int64_t time = 0;
  COPSE_DO(COPSE_ARRAY(&m->arena, m->n_experts, other, err));
  place_default(m->p, out->rank_of);
  COPSE_DO(copse_place_time(m->p, out->rank_of, &out->default_time, err));
  COPSE_DO(improve(m, out->rank_of, &out->time, &out->evaluations, err));
  COPSE_DO(place_greedily(m, other, err));
  COPSE_DO(improve(m, other, &time, &out->evaluations, err));
  copse_place_take(m, other, time, out);
  return COPSE_OK;
}

copse_status copse_place_solve(const struct copse_place_problem *problem,
                               struct copse_placement *out, struct copse_err *err) {
  COPSE_AT_END(model_free) struct copse_place_model m = {.p = problem};
  *out = (struct copse_placement){.proof = COPSE_PLACE_GAP};
  COPSE_DO(model_prepare(&m, err));
  COPSE_DO(copse_calloc(m.n_experts, sizeof *out->rank_of, &out->rank_of, err));
  COPSE_DO(find(&m, out, err));
  COPSE_DO(copse_place_prove(&m, out, err));
  if (out->bound >= out->time && out->proof == COPSE_PLACE_GAP) out->proof = COPSE_PLACE_CERTIFIED;
  return COPSE_OK;
}
