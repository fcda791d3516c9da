/*
 * A topology as the solver sees it: integer capacities, terminals, roots; and what is alike in it
 * (topology/symmetry/symmetry.h) for groups at work on it.
 */
#pragma once

#include "base/memory.h"
#include "schedule/groups.h"
#include "solver/network/network.h"
#include "solver/network/quickest.h"
#include "topology/route.h"
#include "topology/symmetry/symmetry.h"

/*
 * Node and link numbers are the topology's. `reversed` turns every link around: a reduce
 * phase is a broadcast phase on the reversed graph (docs/theory.md, "src/schedule").
 */
struct copse_instance {
  struct copse_network network;
  int64_t scale; /* capacity = bandwidth * scale: the LCM of the denominators */
  struct copse_net_link *links;
  struct copse_net_root *roots;
  /* [network.n_links] or NULL: links stand for routes (routes.h); NULL for the rest of one */
  const struct copse_way **ways;
  struct copse_arena arena;
};

/*
 * Makes an instance; root < 0: every rank is a root of weight 1. Refuses relays that are not
 * balanced, naming the relay and both sums (COPSE_BAD_INPUT with `label` as the place), and
 * bandwidths whose common denominator overflows (COPSE_OVERFLOW). The topology is borrowed. *out
 * is to be freed in every case.
 */
copse_status copse_instance_make(const struct copse_topology *topology, const char *label, int root,
                                 bool reversed, struct copse_instance *out,
                                 struct copse_err *err) COPSE_CHECKED;
/* Makes the same for flows, which need no balanced relays: every rank a terminal, no roots. */
copse_status copse_instance_scale(const struct copse_topology *topology, struct copse_instance *out,
                                  struct copse_err *err) COPSE_CHECKED;
void copse_instance_free(struct copse_instance *instance);

/* Whether every link has an opposite of the same bandwidth, and switches' multicast and
 * aggregation go together: then the reversed problem is the same problem. */
bool copse_is_symmetric(const struct copse_topology *topology);

/*
 * Finds symmetries of the topology that take each group to one of the same collective, ranks to
 * its ranks, root to root: all are `others`, with `groups` [n]. As many orbits of ranks become one
 * as a search without backtracking finds. The caller frees *out with copse_symmetry_free.
 */
copse_status copse_groups_symmetries(const struct copse_topology *topology,
                                     const struct copse_group *groups, int n,
                                     struct copse_symmetry *out,
                                     struct copse_err *err) COPSE_CHECKED;
/* Finds the same with all ranks as one group. */
copse_status copse_fabric_symmetries(const struct copse_topology *topology,
                                     struct copse_symmetry *out,
                                     struct copse_err *err) COPSE_CHECKED;

/* The same, or turned around, with links that take time. */
struct copse_timed_instance {
  const struct copse_topology *topology;
  struct copse_instance instance;
  int64_t delay_scale;               /* delay = (latency, and alpha into a rank) * delay_scale */
  struct copse_quickest_link *links; /* [n_links] capacities are the instance's */
  int64_t *delay;                    /* [n_links] the links' */
  int64_t *nearest;                  /* [n_nodes] least delay from a rank, INT64_MAX: none */
  struct copse_quickest *quickest;
  struct copse_shortest shortest;
  struct copse_arena arena;
};
/* Makes an instance with delays. COPSE_OVERFLOW where bandwidths or latencies have no common
 * denominator in 63 (36) bits. *out is to be freed also after a failure. */
copse_status copse_timed_instance_make(const struct copse_topology *topology,
                                       struct copse_q alpha_us, bool reversed,
                                       struct copse_timed_instance *out,
                                       struct copse_err *err) COPSE_CHECKED;
void copse_timed_instance_free(struct copse_timed_instance *instance);

/* Finds the least delay from the root (-1: any rank) to each node, INT64_MAX: no way; in its
 * arena. */
copse_status copse_timed_nearest(struct copse_timed_instance *instance, int root, int64_t **out,
                                 struct copse_err *err) COPSE_CHECKED;

/*
 * Finds the least delay of a message from a rank to a rank, and (at least) from one in a part to
 * one in another; part: [n_nodes] its name, -1: in none. `turned` is the same turned around.
 * COPSE_DELAY_MAX: there is none.
 */
void copse_timed_messages(const struct copse_timed_instance *instance,
                          const struct copse_timed_instance *turned, const int *part, int64_t *any,
                          int64_t *cross);

/*
 * Lists partitions of the nodes into parts, each part named by its least node: for each bandwidth,
 * nodes joined by links at least as fast; for each delay, nodes joined by links of at most that
 * delay; of either kind the `most` partitions after which bandwidths drop, or delays rise, the most
 * until they change. A partition counts where it has several parts, and fewer than the one before
 * or other relays in them. levels [*n] of [n_nodes] are in its arena.
 */
copse_status copse_timed_parts(struct copse_timed_instance *instance, int most, int ***levels,
                               int *n, struct copse_err *err) COPSE_CHECKED;
