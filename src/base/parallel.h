/* Threads: independent tasks by several of them, and a call that its caller need not wait for. */
#pragma once

#include <pthread.h>

#include "base/memory.h"

/* Holds the mutex from here to the end of the block. */
#define COPSE_HOLD(mutex) \
  COPSE_AT_END(copse_let_go_at) pthread_mutex_t *const held_ = copse_hold(mutex)
static inline pthread_mutex_t *copse_hold(pthread_mutex_t *mutex) {
  pthread_mutex_lock(mutex);
  return mutex;
}
static inline void copse_let_go_at(pthread_mutex_t *const *mutex) { pthread_mutex_unlock(*mutex); }

typedef copse_status copse_task(void *arg, int i, struct copse_err *err);

/* Returns as many threads as there are processors, at most 16. */
int copse_processors(void);

/*
 * Calls task(arg, i, ..) for every i from 0 to n - 1, begun in that order by up to `threads`
 * threads, this one among them; where fewer can be had these do the rest. Returns when all have
 * ended. If some fail, status and text are those of the lowest i that does, whatever the threads:
 * higher ones may not have begun then.
 */
copse_status copse_parallel(int n, int threads, copse_task *task, void *arg,
                            struct copse_err *err) COPSE_CHECKED;

/*
 * Calls run(context) in a thread of its own and waits for its end, `seconds` at most. Returns false
 * where the call goes on by itself; the context must then be the call's alone. For calls that may
 * never return, such as the end of a communicator that waits for other ranks. Where no thread can
 * be had, run is called in the caller.
 */
bool copse_run_detached(void (*run)(void *context), void *context, double seconds);
