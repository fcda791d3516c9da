/* The independent check of a schedule against a topology. It shares no code with the
 * solver: structure, loads and bound are worked out again, in GMP rationals. */
#pragma once

#include "schedule/schedule.h"
#include "topology/topology.h"

struct copse_verify_report {
  bool same_topology;           /* the schedule's sha256 is this topology's */
  struct copse_q time_per_GB;   /* recomputed from the loads */
  struct copse_q bound;         /* recomputed from the cut */
  bool optimal;                 /* the two are equal, and the bound holds for any algorithm */
  bool phases_optimal;          /* allreduce: equal to its phases' bounds, one after the other */
  bool forests_optimal;         /* allreduce: equal, and the bound holds for every pair of a reduce
                                   and a broadcast forest with common shares, run together */
  bool on_routes;               /* every edge takes a route that the fabric would take */
  struct copse_q routes_bound;  /* then: recomputed from the lengths, for all such forests */
  bool routes_optimal;          /* and the time is no more */
  int busiest_src, busiest_dst; /* nodes of a most loaded link; -1 without links */
  int busiest_links;            /* how many links are that loaded */
};

/*
 * Checks, exactly:
 * - the schedule's ranks are the topology's, in order;
 * - every tree spans all ranks, edges in order, paths over existing links and relays;
 * - in the compact form, the rotations are automorphisms, so that what holds of the trees listed
 *   holds of their images; shares and loads below are sums over all images;
 * - per phase, each root's weights add up to its share, all shares to 1;
 * - time_per_GB is the largest load / bandwidth over all links (a link into a multicast
 *   switch counts once per broadcast tree, one out of an aggregation switch once per
 *   reduce tree);
 * - the bound follows from its cut in this topology, and the time is not below it.
 * Returns COPSE_REFUTED with the first defect ("tree 5, edge 3: ..."), COPSE_NOMEM,
 * COPSE_OVERFLOW where an exact result leaves 64 bits.
 */
copse_status copse_verify_schedule(const struct copse_schedule *schedule,
                                   const struct copse_topology *topology, const char *label,
                                   struct copse_verify_report *report,
                                   struct copse_err *err) COPSE_CHECKED;

/* Computes what the lengths of a schedule's "routes" prove for all forests on the fabric's own
 * routes: its collective, root and ranks are asked for, not its trees. COPSE_REFUTED where they
 * prove nothing; COPSE_UNSUPPORTED where routes are not listed (topology/route.h). */
copse_status copse_verify_routes_bound(const struct copse_schedule *schedule,
                                       const struct copse_topology *topology, const char *label,
                                       struct copse_q *time, struct copse_err *err) COPSE_CHECKED;
