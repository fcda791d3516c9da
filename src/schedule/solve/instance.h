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
 * delay; and, the last *n_by_hops of them, for each number of links from the nearest rank, nodes
 * joined by links that are no farther: hosts, pods. Of each kind the `most` partitions after which
 * bandwidths drop, or delays or hops rise, the most until they change. A partition counts where it
 * has several parts, and fewer than the one before or other relays in them. levels [*n] of
 * [n_nodes] are in its arena.
 */
copse_status copse_timed_parts(struct copse_timed_instance *instance, int most, int ***levels,
                               int *n, int *n_by_hops, struct copse_err *err) COPSE_CHECKED;

/* Chooses ranks of which one stands for those like it; of few all, so that latencies, which
 * symmetries may change, are not missed; of too many half the narrowest, half at even distances.
 * Nodes, in its arena. */
copse_status copse_timed_asked(struct copse_timed_instance *instance, int **asked, int *n_asked,
                               struct copse_err *err) COPSE_CHECKED;

/* Links of an alltoall's lengths, by the latency before, on and after, outside of which they are of
 * no use. */
struct copse_windows {
  struct copse_window {
    int64_t key, weight; /* length times capacity */
  } * list;
  int n;
  int64_t sum; /* of weights; 0: lengths are zero, or do not fit */
};
/* Makes them, in the instance's arena, of lengths [n_links]. */
copse_status copse_windows_make(struct copse_timed_instance *instance,
                                const struct copse_timed_instance *turned, const int64_t *length,
                                struct copse_windows *out, struct copse_err *err) COPSE_CHECKED;
/* Finds the least T with sum of weight max(0, T - key) = time * sum of weights. */
copse_status copse_windows_fill(const struct copse_windows *windows, struct copse_q time,
                                struct copse_q *out) COPSE_CHECKED;

/* A set of nodes whose ranks are in parts, and what that adds to the time in which data come into
 * it (docs/theory.md, "Parts in parts"). */
struct copse_timed_nested {
  const int *part;    /* [n_nodes] each part's name, a node of it; -1: in none */
  const char *inside; /* [n_nodes] */
  bool of_ranks;      /* each rank is a part */
  int part_ranks;     /* of the smallest part; 1: what comes to a part counts at once */
  int64_t later;      /* what does not come in so much before the end must come to each part */
  struct copse_q otherwise; /* how much can, of capacity times delay */
};

/*
 * Finds these for the part `name` of a level (copse_timed_parts), or all the rest, and the parts of
 * another level in it (NULL: its ranks); in the instance's arena. whole: what comes to a part
 * counts at once; else what comes so late that it goes no farther counts for one of its ranks.
 * both: of an allreduce, in which parts outside must send. *fits: there are several parts, whole in
 * it, and it fits into 64 bits.
 */
copse_status copse_timed_nested(struct copse_timed_instance *instance,
                                const struct copse_timed_instance *turned, const int *level,
                                int name, bool rest, const int *inner, bool whole, bool both,
                                struct copse_timed_nested *nested, bool *fits,
                                struct copse_err *err) COPSE_CHECKED;
