/*
 * Status and errors, and diagnostics on standard error.
 *
 * Every fallible function returns a copse_status and takes a nullable `struct copse_err *` last;
 * the first error set in it wins, so that the cause is kept while callers unwind.
 *
 * Diagnostics are off by default. The environment variable COPSE_DEBUG says how much (WARN, INFO or
 * TRACE, in any case, as NCCL_DEBUG; each level holds those before it). It is read once per
 * process. A line looks like NCCL's: "host:pid:thread [rank] COPSE INFO text".
 *
 *   WARN   every error that a call of a communicator returns
 *   INFO   communicators made and ended, plans loaded
 *   TRACE  each collective: the plan that runs, and why that one
 */
#pragma once

/* With copse.h, which has <stddef.h> and <stdint.h>: the types that every other file may take for
 * given. */
#include <stdbool.h>

#include "copse/copse.h"

struct copse_err {
  copse_status status;
  char text[512]; /* one line, printable, no trailing newline */
};

#define COPSE_ERR_INIT \
  { COPSE_OK, "" }

/* Sets `err` (if not NULL and not set yet) and returns `status`. The text is
 * "FILE:LINE: message"; file NULL or line <= 0 leave that part out. Bytes that do not
 * print (hostile names) become '?'; text that is too long ends in "...". */
copse_status copse_fail(struct copse_err *err, copse_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
copse_status copse_fail_at(struct copse_err *err, copse_status status, const char *file, long line,
                           const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* Fails in the same way for an allocation. */
copse_status copse_fail_nomem(struct copse_err *err);

/* Jumps to the function's single `out:` label; needs a local `status`. */
#define COPSE_TRY(call)               \
  do {                                \
    status = (call);                  \
    if (status != COPSE_OK) goto out; \
  } while (0)

/* Returns the call's status, unless it is COPSE_OK, from a function that has nothing to release. */
#define COPSE_DO(call)                       \
  do {                                       \
    copse_status status_ = (call);           \
    if (status_ != COPSE_OK) return status_; \
  } while (0)

/* For an object whose `status` keeps the first failure: makes the call only before any. */
#define COPSE_KEEP(object, call)                                 \
  do {                                                           \
    if ((object)->status == COPSE_OK) (object)->status = (call); \
  } while (0)

/* Remarks that are no errors ("a link to a device that the file lacks is left out").
 * Readers report them here; a NULL sink drops them. The text is one line. */
struct copse_notes {
  void (*note)(void *ctx, const char *text);
  void *ctx;
};
void copse_note(const struct copse_notes *notes, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Copies err's text to this thread's slot, from which copse_last_error() returns it. */
copse_status copse_publish_error(const struct copse_err *err);
enum copse_debug_level { COPSE_DEBUG_NONE, COPSE_DEBUG_WARN, COPSE_DEBUG_INFO, COPSE_DEBUG_TRACE };

/* Whether lines of this level are wanted; for texts that cost something to make. */
bool copse_debug_wants(enum copse_debug_level level);

/* Prints a line to the log if its level is asked for; rank < 0: no one rank's. One write per line,
 * so that threads don't mix. Keeps errno. */
void copse_debug(enum copse_debug_level level, int rank, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
