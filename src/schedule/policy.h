/* The numbers that steer the repair of a schedule's trees (adapt.c). */
#pragma once

/* A link is so much longer for a search than an empty one where it carries as much as the busiest
 * link of the schedule: a power of two, times this, and at most such a power. Steep, since the
 * busiest link makes the time; 2^28 times a path's links fits in 64 bits. Not measured. */
#define COPSE_STEEPNESS 12
#define COPSE_MOST_STEEPNESS 28
