/*
 * Inside src/runtime only: calls that may not return for a long time, or ever, and that nobody may
 * be kept by: ends of communicators that wait for what others do.
 */
#ifndef COPSE_RUNTIME_COMM_APART_H
#define COPSE_RUNTIME_COMM_APART_H

#include <stdbool.h>

/*
 * Calls run(context) in a thread of its own and waits for its end, `seconds` at most; false where
 * it goes on by itself, so what it uses must be its own. In the caller where no thread can be had.
 */
bool copse_run_apart(void (*run)(void *context), void *context, double seconds);

#endif
