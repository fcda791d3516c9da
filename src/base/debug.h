/*
 * Diagnostics on standard error, off by default: the environment variable COPSE_DEBUG says how
 * much (WARN, INFO or TRACE, in any case, as NCCL_DEBUG; each level holds those before it). It is
 * read once per process. A line looks like NCCL's: "host:pid:thread [rank] COPSE INFO text".
 *
 *   WARN   every error that a call of a communicator returns
 *   INFO   communicators made and ended, plans loaded
 *   TRACE  each collective: the plan that runs, and why that one
 */
#ifndef COPSE_BASE_DEBUG_H
#define COPSE_BASE_DEBUG_H

#include <stdbool.h>

enum copse_debug_level { COPSE_DEBUG_NONE, COPSE_DEBUG_WARN, COPSE_DEBUG_INFO, COPSE_DEBUG_TRACE };

/* Whether lines of this level are wanted; for texts that cost something to make. */
bool copse_debug_wants(enum copse_debug_level level);

/* rank < 0: no one rank's. One write per line, so that threads don't mix. Keeps errno. */
void copse_debug(enum copse_debug_level level, int rank, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
