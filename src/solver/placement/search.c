/*
 * Local search over placements. A rank has `capacity` slots; a step exchanges the contents
 * of two slots on different ranks, an expert each or an expert and nothing. What an exchange
 * costs is worked out from the few groups that it touches and, for all others, from a list of
 * each step's most loaded groups.
 */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/rational.h"
#include "solver/placement/internal.h"
#include "solver/placement/policy.h"

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

/* The n_top most loaded groups by insertion; equal ones by number. */
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

/* What comes in and goes out of a touched group after the exchange. */
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

/* The time after exchanging two slots, or something above `limit` if it is above. */
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

/*
 * Late acceptance: an exchange is taken if the time is not above the one HISTORY steps ago.
 * Most exchanges change no step's worst group, so many go sideways; that is how plateaus are
 * crossed.
 */
static copse_status anneal(struct search *s, int *rank_of, int64_t *best, struct copse_err *err) {
  int64_t *history = NULL;
  COPSE_DO(COPSE_ARRAY(s->scratch, HISTORY, history, err));
  for (int i = 0; i < HISTORY; i++) history[i] = s->time;
  int64_t sweep = (int64_t)(s->m->n_experts * s->n_slots), end = ANNEAL_WORK;
  if (sweep < end / ANNEAL_SWEEPS / (int64_t)(s->m->n_steps + 1))
    end = sweep * ANNEAL_SWEEPS * (int64_t)(s->m->n_steps + 1);
  for (int64_t i = 0; s->work < end && s->time > 0; i++) {
    size_t a = (size_t)s->slot_of[copse_place_random(&s->random) % s->m->n_experts];
    size_t b = copse_place_random(&s->random) % s->n_slots;
    int64_t *late = &history[i % HISTORY];
    if ((i & 1023) == 0 && copse_place_late(s->m)) break;
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
  int64_t end = s->work + DESCENT_WORK;
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
    if (copse_place_late(s->m)) return;
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

copse_status copse_place_search(const struct copse_place_model *model, int *rank_of, int64_t *time,
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

int copse_place_by_load(const void *a, const void *b) {
  const struct copse_place_load *x = a, *y = b;
  if (x->tokens != y->tokens) return x->tokens < y->tokens ? -1 : 1;
  return x->expert - y->expert;
}

/* What a rank's groups would take in, added up over steps: the worst of its groups. */
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

copse_status copse_place_greedy(const struct copse_place_model *m, int *rank_of,
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
  qsort(wishes, m->n_experts, sizeof *wishes, copse_place_by_load);
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
