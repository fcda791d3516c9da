/*
 * Alltoallv planned at run time on a topology: two tiers by solver/online/planner.h, any other
 * shape by re-scaling the paths of an offline schedule.
 *
 *   question                                       function
 *   --------------------------------------------   ------------------------------------
 *   is this two tiers, and of which figures?       copse_two_tier_find
 *   make a planner for a topology                  copse_planner_create, _release
 *   plan a demand                                  copse_planner_plan
 *   how fast can any schedule be? how fast is it?  copse_planner_bound, _predicted_seconds
 *   what does a rank send and receive?             copse_planner_transfers
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "schedule/schedule.h"
#include "solver/online/planner.h"
#include "topology/topology.h"

/*
 * Two tiers: ranks come host by host (node ids "h0.", "h1.", ...; without such ids all nodes
 * are one host), equally many each; in a host one switch joins all ranks, and nothing else
 * joins two of them directly; with several hosts each rank has a way of its own through relays
 * of its host to a switch outside, the same switch for all ranks of equal index, and no
 * bandwidth leaves a host but by these. All ranks alike in bandwidth, NICs alike both ways.
 */
struct copse_two_tier {
  bool found;
  char why_not[160]; /* if not found: one line */
  bool flat;         /* one switch joins all NICs; else one for each index (rails) */
  struct copse_online_model model;
  int *hub;      /* [hosts] node of each host's switch; -1 with one rank per host */
  int *up;       /* nodes of the ways out, rank first, switch of the fabric last */
  int *up_start; /* [ranks + 1] into `up`; empty ways with one host */
};

/* Finds whether a topology is two tiers. In the arena; COPSE_OK whether found or not; COPSE_NOMEM,
 * COPSE_OVERFLOW. */
copse_status copse_two_tier_find(const struct copse_topology *topology, struct copse_arena *arena,
                                 struct copse_two_tier *tier, struct copse_err *err) COPSE_CHECKED;

struct copse_planner;

/*
 * Makes a planner for `topology`, which it borrows. offline: an alltoall schedule on this
 * topology, used (and copied) where the topology is not two tiers; may be NULL where it is. All
 * memory is taken here. COPSE_UNSUPPORTED where neither way is open; the text says what keeps it
 * from being two tiers. COPSE_INVALID for an offline schedule of another topology.
 */
copse_status copse_planner_create(const struct copse_topology *topology,
                                  const struct copse_schedule *offline, struct copse_planner **out,
                                  struct copse_err *err) COPSE_CHECKED;
void copse_planner_release(struct copse_planner *planner);

/* Returns the two-tier planner inside, or NULL where offline paths are used. Borrowed. */
struct copse_online *copse_planner_two_tier(struct copse_planner *planner);

/*
 * Plans bytes[src * ranks + dst], borrowed until the next plan. No allocation, deterministic, one
 * thread at a time. Errors as copse_online_plan; COPSE_INFEASIBLE for bytes between two
 * ranks that the offline schedule has no path for.
 * Offline paths: the bytes of each pair are cut at p * bytes / total weight, rounded down, for
 * the sum p of the weights of the paths before; or go whole by its path of least latency, where
 * that is predicted to be faster for the whole demand, as it is where all are small.
 */
copse_status copse_planner_plan(struct copse_planner *planner, const int64_t *bytes,
                                struct copse_err *err) COPSE_CHECKED;

/* Computes a lower bound for any schedule of this demand: the worst of the cuts around each rank
 * and host, both ways, and the cut of the offline schedule's own bound, if it has one.
 * with_latency: of two tiers docs/theory.md has the argument; else a hop more. */
void copse_planner_bound(const struct copse_planner *planner, struct copse_online_bound *bound);

/* Returns the bytes of the busiest NIC or link over its bandwidth, and latencies that nothing
 * hides: what the form of the plan was chosen by. The simulator says more exactly. */
double copse_planner_predicted_seconds(const struct copse_planner *planner);

/* Returns for how many seconds the busiest NIC (two tiers) or link (offline paths) of the plan is
 * taken. */
double copse_planner_busiest_seconds(const struct copse_planner *planner);

/*
 * Lists what copse_online_transfers does. On offline paths: hops from rank to rank of kind
 * COPSE_ONLINE_ROUTE, and COPSE_ONLINE_SELF; piece.step numbers the paths of a pair, via_src and
 * via_dst are -1.
 */
copse_status copse_planner_transfers(struct copse_planner *planner, int rank, int which,
                                     struct copse_online_transfer *out, int64_t capacity,
                                     int64_t *n, struct copse_err *err) COPSE_CHECKED;
