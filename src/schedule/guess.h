/*
 * Whether the bound of a schedule rests on bandwidths that nobody has stated or measured: links of
 * its cut (or, of an alltoall, links that have a length in its certificate) that are marked as
 * guesses in the topology. A bound whose cut has none holds whatever the guessed links really have.
 */
#pragma once

#include "base/memory.h"
#include "base/text.h"
#include "schedule/schedule.h"
#include "topology/topology.h"

struct copse_guessed {
  int n;
  const int *links; /* [n] of the topology, in its order */
};

/* The schedule's nodes are the topology's. The list is in the arena. COPSE_NOMEM. */
copse_status copse_guessed_find(const struct copse_topology *topology,
                                const struct copse_schedule *schedule, struct copse_arena *arena,
                                struct copse_guessed *out, struct copse_err *err) COPSE_CHECKED;

/* "cpu@0 -> cpu@1 and 1 like it, 16 GB/s: NCCL's constant for such CPUs. To measure it: ..", a line
 * for each kind of guess, which begins with `before`. */
void copse_guessed_text(const struct copse_topology *topology, const struct copse_guessed *guessed,
                        const char *before, struct copse_text *text);
/* A JSON list of {"src", "dst", "bandwidth_GBps", "reason", "remedy"}. */
void copse_guessed_json(const struct copse_topology *topology, const struct copse_guessed *guessed,
                        struct copse_text *text);
