/* Independent tasks by several threads. */
#ifndef COPSE_BASE_PARALLEL_H
#define COPSE_BASE_PARALLEL_H

#include "base/err.h"

typedef copse_status copse_task(void *arg, int i, struct copse_err *err);

/* As many threads as there are processors, at most 16. */
int copse_processors(void);

/*
 * task(arg, i, ..) for every i from 0 to n - 1, begun in that order by up to `threads` threads, this
 * one among them; where fewer can be had these do the rest. Returns when all have ended. If some
 * fail, status and text of the lowest i that does, whatever the threads: higher ones may not have
 * begun then.
 */
copse_status copse_parallel(int n, int threads, copse_task *task, void *arg,
                            struct copse_err *err) COPSE_CHECKED;

#endif
