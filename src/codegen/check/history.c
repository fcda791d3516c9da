#include "codegen/check/history.h"

#include <stdlib.h>

#include "base/memory.h"

struct copse_history {
  int refs;
  int n;
  struct copse_action last[]; /* [n] by thread: the latest known action of each */
};

struct thread {
  uint32_t time;
  uint32_t met; /* the time up to which its actions are ordered before its next ones */
  struct copse_history *known; /* NULL: nothing; its own entry may be behind `time` */
};

struct copse_threads {
  int n, n_loose;
  struct thread *threads;
};

copse_status copse_threads_new(int n, int n_loose, struct copse_threads **out,
                               struct copse_err *err) {
  struct copse_threads *t = NULL;
  copse_status status;
  *out = NULL;
  COPSE_TRY(copse_calloc(1, sizeof *t, &t, err));
  t->n = n;
  t->n_loose = n_loose;
  COPSE_TRY(copse_calloc((size_t)n, sizeof *t->threads, &t->threads, err));
  *out = t;
  return COPSE_OK;
out:
  copse_threads_free(t);
  return status;
}

void copse_threads_free(struct copse_threads *t) {
  if (!t) return;
  for (int i = 0; t->threads && i < t->n; i++) copse_history_drop(t->threads[i].known);
  free(t->threads);
  free(t);
}

struct copse_action copse_threads_act(struct copse_threads *t, int thread) {
  struct copse_action action = {thread, ++t->threads[thread].time};
  if (thread >= t->n_loose) copse_threads_meet(t, thread);
  return action;
}

void copse_threads_meet(struct copse_threads *t, int thread) {
  t->threads[thread].met = t->threads[thread].time;
}

uint32_t copse_threads_time(const struct copse_threads *t, int thread) {
  return t->threads[thread].time;
}

static copse_status new_history(int n, struct copse_history **out, struct copse_err *err) {
  copse_status status = copse_calloc(1, sizeof **out + (size_t)n * sizeof *(*out)->last, out, err);
  if (status == COPSE_OK) (*out)->refs = 1;
  return status;
}

void copse_history_drop(struct copse_history *h) {
  if (h && --h->refs == 0) free(h);
}

copse_status copse_history_of(struct copse_action action, struct copse_history **out,
                              struct copse_err *err) {
  copse_status status = new_history(1, out, err);
  if (status == COPSE_OK) (*out)->last[(*out)->n++] = action;
  return status;
}

/* The union, the later action of each thread. */
static copse_status merge(const struct copse_history *a, const struct copse_history *b,
                          struct copse_history **out, struct copse_err *err) {
  int i = 0, j = 0;
  copse_status status = new_history(a->n + b->n, out, err);
  if (status != COPSE_OK) return status;
  while (i < a->n || j < b->n) {
    struct copse_action *next = &(*out)->last[(*out)->n++];
    if (j == b->n || (i < a->n && a->last[i].thread < b->last[j].thread)) {
      *next = a->last[i++];
    } else if (i == a->n || b->last[j].thread < a->last[i].thread) {
      *next = b->last[j++];
    } else {
      *next = a->last[i].time > b->last[j].time ? a->last[i] : b->last[j];
      i++, j++;
    }
  }
  return COPSE_OK;
}

copse_status copse_history_take(struct copse_threads *t, int thread, struct copse_history **out,
                                struct copse_err *err) {
  struct copse_history *own = NULL, *all = NULL;
  struct thread *me = &t->threads[thread];
  copse_status status;
  COPSE_TRY(copse_history_of((struct copse_action){thread, me->met}, &own, err));
  if (me->known) {
    COPSE_TRY(merge(me->known, own, &all, err));
    copse_history_drop(me->known);
    me->known = all;
  } else {
    me->known = own;
    own = NULL;
  }
  me->known->refs++;
  *out = me->known;
out:
  copse_history_drop(own);
  return status;
}

/* Whether `a` holds all that `b` holds. */
static bool covers(const struct copse_history *a, const struct copse_history *b) {
  int i = 0;
  for (int j = 0; j < b->n; j++) {
    while (i < a->n && a->last[i].thread < b->last[j].thread) i++;
    if (i == a->n || a->last[i].thread != b->last[j].thread || a->last[i].time < b->last[j].time)
      return false;
  }
  return true;
}

copse_status copse_history_learn(struct copse_threads *t, int thread, struct copse_history *history,
                                 struct copse_err *err) {
  struct thread *me = &t->threads[thread];
  struct copse_history *all;
  copse_status status = COPSE_OK;
  if (!me->known) {
    me->known = history;
    history->refs++;
    return COPSE_OK;
  }
  if (me->known == history || covers(me->known, history)) return COPSE_OK;
  COPSE_TRY(merge(me->known, history, &all, err));
  copse_history_drop(me->known);
  me->known = all;
out:
  return status;
}

bool copse_threads_before(const struct copse_threads *t, struct copse_action action, int thread) {
  const struct copse_history *h = t->threads[thread].known;
  if (action.time == 0) return true;
  if (action.thread == thread)
    return action.time <= t->threads[thread].met || action.time == t->threads[thread].time;
  int low = 0, high = h ? h->n : 0;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (h->last[middle].thread < action.thread)
      low = middle + 1;
    else
      high = middle;
  }
  return h && low < h->n && h->last[low].thread == action.thread &&
         h->last[low].time >= action.time;
}
