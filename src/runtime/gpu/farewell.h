/*
 * Inside src/runtime only: how the processes of a host know that the others have let go of each
 * other's memory, without waiting for one that never does. Each holds a lock on a file in POSIX shared
 * memory, whose name is gone as soon as all have opened it; who dies holds none any more, nor do children
 * that it forked when they end.
 */
#ifndef COPSE_RUNTIME_GPU_FAREWELL_H
#define COPSE_RUNTIME_GPU_FAREWELL_H

#include <stdbool.h>

#include "base/err.h"

struct copse_farewell;

#define COPSE_FAREWELL_NAME 56 /* bytes, its end included */

/* One process makes it and tells the others the name. COPSE_IO where there is no shared memory, or
 * another one's (containers), or no lock on it; COPSE_NOMEM. */
copse_status copse_farewell_new(char name[COPSE_FAREWELL_NAME], struct copse_farewell **out,
                                struct copse_err *err);
copse_status copse_farewell_open(const char *name, struct copse_farewell **out,
                                 struct copse_err *err);
/* By who made it, when nobody will open it any more. */
void copse_farewell_forget(const char *name);

/* After all have opened it: what this process did before is done where others see it. */
void copse_farewell_say(struct copse_farewell *farewell);
/* Whether the others have, or are gone. */
bool copse_farewell_all_said(const struct copse_farewell *farewell);
void copse_farewell_free(struct copse_farewell *farewell); /* or NULL; says it too */

#endif
