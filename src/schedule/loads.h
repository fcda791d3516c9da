/*
 * What trees and flows put on the links: exact fractions of M. Paths are in the topology's node
 * numbers and over its links. A link into a multicast switch counts once per broadcast tree, one
 * out of an aggregation switch once per reduce tree. (The verifier has its own.)
 */
#pragma once

#include "base/memory.h"
#include "base/text.h"
#include "schedule/schedule.h"
#include "topology/topology.h"

/* Searches that count by integers have loads as fractions of M in parts of this, rounded down: they
 * choose, and what they come to is added up exactly. fraction: 0 to 1. */
#define COPSE_WHOLE_LOAD ((int64_t)1 << 32)
static inline int64_t copse_load_part(struct copse_q fraction) {
  return (int64_t)((__int128)fraction.num * COPSE_WHOLE_LOAD / fraction.den);
}

/* Sets loads[n_links]: of all trees and flows, the images in a compact schedule too, whose
 * rotations are known to be automorphisms. COPSE_OVERFLOW, COPSE_NOMEM. */
copse_status copse_schedule_loads(const struct copse_topology *topology,
                                  const struct copse_schedule *schedule, struct copse_q *loads,
                                  struct copse_err *err) COPSE_CHECKED;
/* Computes time_per_GB: the largest of them over bandwidth. */
copse_status copse_loads_time(const struct copse_topology *topology,
                              const struct copse_schedule *schedule, struct copse_q *time,
                              struct copse_err *err) COPSE_CHECKED;
/* Computes that of broadcast trees of 1/k of a rank's data each: trees [n_links] says how many
 * cross a link; a reduction's, one of the same trees turned around, load the links back. */
copse_status copse_whole_trees_time(const struct copse_topology *topology,
                                    copse_collective collective, const int64_t *trees, int64_t k,
                                    int n_ranks, struct copse_q *time,
                                    struct copse_err *err) COPSE_CHECKED;
/* Computes the time of trees or flows that are no schedule yet. */
copse_status copse_tree_time(const struct copse_topology *topology,
                             const struct copse_schedule_tree *trees, size_t n_trees,
                             struct copse_q *time, struct copse_err *err) COPSE_CHECKED;
copse_status copse_flow_time(const struct copse_topology *topology,
                             const struct copse_schedule_flow *flows, int n_flows,
                             struct copse_q *time, struct copse_err *err) COPSE_CHECKED;

/*
 * Finds the switches that copy or add: *counts: with a copy for each that a switch sends on to,
 * the time would be longer than `time`. copies, adds [n_nodes]: the switches into (out of) which
 * some tree crosses a link several times, counted once.
 */
copse_status copse_tree_switches(const struct copse_topology *topology,
                                 const struct copse_schedule_tree *trees, size_t n_trees,
                                 struct copse_q time, bool *copies, bool *adds, bool *counts,
                                 struct copse_err *err) COPSE_CHECKED;

/* ==== guessed links =========================================================================== */

/*
 * Whether the bound of a schedule rests on bandwidths that nobody has stated or measured: links of
 * its cut (or, of an alltoall, links that have a length in its certificate) that are marked as
 * guesses in the topology. A bound whose cut has none holds whatever the guessed links really have.
 */

struct copse_guessed {
  int n;
  const int *links; /* [n] of the topology, in its order */
};

/* Finds the guesses that a bound rests on. The schedule's nodes are the topology's. The list is in
 * the arena. COPSE_NOMEM. */
copse_status copse_guessed_find(const struct copse_topology *topology,
                                const struct copse_schedule *schedule, struct copse_arena *arena,
                                struct copse_guessed *out, struct copse_err *err) COPSE_CHECKED;

/* Adds "cpu@0 -> cpu@1 and 1 like it, 16 GB/s: NCCL's constant for such CPUs. To measure it: ..", a
 * line for each kind of guess, which begins with `before`. */
void copse_guessed_text(const struct copse_topology *topology, const struct copse_guessed *guessed,
                        const char *before, struct copse_text *text);
/* Adds a JSON list of {"src", "dst", "bandwidth_GBps", "reason", "remedy"}. */
void copse_guessed_json(const struct copse_topology *topology, const struct copse_guessed *guessed,
                        struct copse_text *text);
