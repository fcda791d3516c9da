/*
 * Who of this host takes part in the job: a table in memory that its processes share from before
 * MPI_Init on, so that one which is stuck within MPI can still say who has died or never came. In a
 * file of the job's PMIx session folder; where the launcher has none, nothing is known.
 */
#ifndef COPSE_RUNTIME_MPI_ROSTER_H
#define COPSE_RUNTIME_MPI_ROSTER_H

#include <stddef.h>

void copse_roster_join(void);
/* All have joined: the file is no longer needed. */
void copse_roster_is_complete(void);
/* This process ends of its own accord, with or without an error: it has not died. */
void copse_roster_leave(void);

/* This process's rank as the launcher says it, or -1. */
int copse_roster_rank(void);
/* "rank 3 has died", "ranks 1, 2 have not started" and the like, or "" where nothing is known. For
 * signal handlers too. Returns the text's length. */
size_t copse_roster_tell(char *text, size_t size);

/* Appends, for signal handlers: where printf must not be called. Return the new length. */
size_t copse_roster_add(char *text, size_t size, size_t used, const char *more);
size_t copse_roster_add_number(char *text, size_t size, size_t used, unsigned long number);

#endif
