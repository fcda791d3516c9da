/* What the collectives mean, in words and phases. */
#ifndef COPSE_BASE_COLLECTIVE_H
#define COPSE_BASE_COLLECTIVE_H

#include <stdbool.h>

#include "copse/copse.h"

/* How many there are: values from outside are checked against it. */
#define COPSE_N_COLLECTIVES (COPSE_ALLTOALL + 1)

/* "allgather", "reduce_scatter", ...; "unknown" for a value that is none. */
const char *copse_collective_name(copse_collective collective);
bool copse_collective_from_name(const char *name, copse_collective *out);

/* Whether schedules of it have trees of the broadcast or the reduce phase. */
bool copse_collective_broadcasts(copse_collective collective);
bool copse_collective_reduces(copse_collective collective);

/* Whether one rank is the root of everything. */
bool copse_collective_rooted(copse_collective collective);

#endif
