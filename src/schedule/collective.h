/* What the collectives mean, in words and phases. */
#ifndef COPSE_SCHEDULE_COLLECTIVE_H
#define COPSE_SCHEDULE_COLLECTIVE_H

#include <stdbool.h>

#include "copse/copse.h"

/* "allgather", "reduce_scatter", ... */
const char *copse_schedule_collective_name(copse_collective collective);
bool copse_schedule_collective_parse(const char *name, copse_collective *out);

/* Whether schedules of it have trees of the broadcast or the reduce phase. */
bool copse_collective_broadcasts(copse_collective collective);
bool copse_collective_aggregates(copse_collective collective);

/* Whether one rank is the root of everything. */
bool copse_collective_rooted(copse_collective collective);

#endif
