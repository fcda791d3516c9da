/*
 * Inside src/codegen only: happened-before for threads that are numbered 0 .. n-1. A thread's
 * history is what it knows of the others; it travels with data, signals and flags. Histories
 * are sparse (a thread hears of few others) and shared (taking one is cheap to keep).
 */
#ifndef COPSE_CODEGEN_CHECK_HISTORY_H
#define COPSE_CODEGEN_CHECK_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Something a thread did: its `time`-th action, from 1; time 0 is nothing. */
struct copse_action {
  int thread;
  uint32_t time;
};

struct copse_history; /* a snapshot; owned by whoever took it */
struct copse_threads;

/*
 * The first n_loose threads are loose: groups whose members are ordered only where they meet.
 * What one does is before its next actions, and part of its history, once they have met.
 */
copse_status copse_threads_new(int n, int n_loose, struct copse_threads **out,
                               struct copse_err *err) COPSE_CHECKED;
void copse_threads_free(struct copse_threads *threads);

/* The thread does its next action. */
struct copse_action copse_threads_act(struct copse_threads *threads, int thread);
uint32_t copse_threads_time(const struct copse_threads *threads, int thread);

/* A loose thread's members meet. */
void copse_threads_meet(struct copse_threads *threads, int thread);

/* What the thread has done and knows by now. Release it with copse_history_drop. */
copse_status copse_history_take(struct copse_threads *threads, int thread,
                                struct copse_history **out, struct copse_err *err) COPSE_CHECKED;
/* One action alone. */
copse_status copse_history_of(struct copse_action action, struct copse_history **out,
                              struct copse_err *err) COPSE_CHECKED;
void copse_history_drop(struct copse_history *history);
/* The thread learns all that the history holds. */
copse_status copse_history_learn(struct copse_threads *threads, int thread,
                                 struct copse_history *history,
                                 struct copse_err *err) COPSE_CHECKED;

/* Whether the action came before what the thread does now. */
bool copse_threads_before(const struct copse_threads *threads, struct copse_action action,
                          int thread);

#endif
