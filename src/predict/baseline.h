/*
 * What today's libraries do, as schedules of our own kind: to be verified, simulated and
 * beaten on the same topology and demand.
 *
 *   pairwise     alltoall in rounds: a rank exchanges with one partner at a time (rank XOR
 *                round for a power of two, else it sends to rank + round and receives from
 *                rank - round), and goes on when its own send and receive are done (MPI)
 *   spread-out   alltoall, all sends at once, each rank starting with its neighbour (NCCL)
 *   2dh          Tutel's two-dimensional hierarchical alltoall (arXiv 2206.03382): a rank
 *                hands each neighbour in the host all that goes to ranks of that neighbour's
 *                place in other hosts; when a rank has sent and received all of that, ranks
 *                of equal places in different hosts exchange
 *   birkhoff     after FAST (arXiv 2505.09764): ranks of a host even out what they have for
 *                each other host; then, step by step, each host sends to one host and
 *                receives from one (Birkhoff's decomposition of the host-to-host matrix),
 *                ranks of equal place to each other, and what arrives is handed on inside
 *                the host. For a uniform demand: hosts - 1 rotations
 *   best-rings   chains around the best packing of rings that NCCL could run (nccl/best.h); with a
 *                graph dump around NCCL's own, as it joins them over hosts: then it is "nccl".
 *                Where parts of some hosts are down or slow, of what all hosts have
 *   tree         double binary trees (Sanders, Speck, Träff 2009; NCCL): two trees with half
 *                the data each, inner ranks of one being leaves of the other, as far as the
 *                root allows; a collective with a root at every rank has such a pair for each.
 *                They come in the faster of two ways: once; and, where hosts are equally large,
 *                once for each place in a host with its part of the data (NCCL's channels), host
 *                by host, the order of the ranks inside turned on by one each time, so that every
 *                NIC is used
 *   direct       every root to every rank over a shortest path (and back for a reduction)
 *   scatter      a broadcast's scatter and allgather (van de Geijn 1994; MPICH), a chunk at a time,
 *                or a reduction backwards: each rank but the root passes its part on to all others.
 *                Of several hosts the root's own scatter to ranks of their place in all others,
 *                which exchange what came, and all pass on inside the host. It is
 *                a candidate of `--objective` and `plans`, and no baseline to compare with
 *   hosts        of a collective with a root at every rank: each sends to the rank of its place in
 *                every other host, and all pass on inside the host, so that there are two hops,
 *                and each NIC sends once what its ranks have (two-level forms: Karonis et al.,
 *                Exploiting hierarchy in parallel computer networks, 2000). A candidate as scatter
 *
 * Routes: fewest links, among those the widest bottleneck, among those such that the
 * sum of squared link uses is small (each pair routed once, then three times anew). Between ranks
 * of one host inside the host, where that is possible. Ranks on a route forward. Where 2dh or
 * birkhoff come through a node twice (a PCIe switch on the way to a neighbour and back), the
 * schedule's path, which may not, leaves out the loop; the transfers keep it. A host is a set of
 * ranks whose ids begin with the same "hN.", if all ranks have one; else there is one host. 2dh and
 * birkhoff need at least two hosts, of equally many ranks.
 */
#pragma once

#include "nccl/best.h"
#include "topology/route.h"
#include "predict/simulate.h"
#include "schedule/schedule.h"
#include "topology/topology.h"

enum copse_baseline {
  COPSE_BASELINE_PAIRWISE,
  COPSE_BASELINE_SPREAD_OUT,
  COPSE_BASELINE_2DH,
  COPSE_BASELINE_BIRKHOFF,
  COPSE_BASELINE_RINGS,
  COPSE_BASELINE_TREE,
  COPSE_BASELINE_DIRECT,
  COPSE_N_BASELINES,
  COPSE_BASELINE_SCATTER = COPSE_N_BASELINES, /* this and the next of searches alone */
  COPSE_BASELINE_HOSTS,
  COPSE_N_ARRANGEMENTS
};

/* Returns "pairwise", "spread-out", ... */
const char *copse_baseline_name(enum copse_baseline kind);

/* Whether there is such a baseline of this collective, whatever the topology. */
bool copse_baseline_exists(enum copse_baseline kind, copse_collective collective);

/* What baselines, and plans, of one topology have in common and is found once; zero-initialise to
 * start, free with copse_baseline_shared_free. For one thread at a time. */
struct copse_baseline_shared {
  struct copse_hosts hosts;
  struct copse_routes routes;       /* of baselines */
  struct copse_routes plans_routes; /* copse_predict_routes */
  struct copse_nccl_best rings; /* no groups: not found yet */
};

void copse_baseline_shared_free(struct copse_baseline_shared *shared);

struct copse_baseline_options {
  copse_collective collective;
  int root;                             /* broadcast, reduce; else -1 */
  const int64_t *demand;                /* alltoall: [n_ranks * n_ranks] bytes; NULL: uniform */
  const struct copse_schedule *like;    /* may be NULL: a schedule of the same collective, root
                                           and demand on this topology, whose bound is taken over
                                           where it binds the baseline too */
  struct copse_baseline_shared *shared; /* may be NULL: of this topology alone */
  const struct copse_nccl_graphs *nccl; /* a graph dump for the topology's hosts, or n_nccl > 1, one
                                           for each kind of them; NULL: none */
  int n_nccl;
  const char *nccl_label;               /* name of its file for messages */
  const struct copse_notes *notes;      /* what else is to be said of a baseline; may be NULL */
  bool quick;                           /* rings: nccl/best.h, and kept so in `shared` */
  bool pass_on;                         /* rings: GPUs between a GPU and its NIC pass on alone, as
                                           NCCL's do; no tree, so the schedule does not verify.
                                           Else they keep what comes by, which is faster */
};

/*
 * Makes a baseline, both as a schedule that verifies and as transfers in amounts of M with the
 * order of its steps. Without options.like, or where its bound is for schedules of another
 * kind (no forwarding, two phases), the bound is the best of the cuts around one rank or host.
 * The caller releases *schedule and frees *dag; either may be NULL if it isn't wanted. On
 * failure *schedule is NULL and *dag empty.
 * COPSE_UNSUPPORTED, with the reason, where it doesn't apply to the topology or collective;
 * COPSE_INFEASIBLE naming two ranks that it would join and no links do; COPSE_INVALID for a demand
 * that is all zero or negative; COPSE_OVERFLOW; COPSE_NOMEM. Deterministic.
 */
copse_status copse_baseline_make(const struct copse_topology *topology, enum copse_baseline kind,
                                 const struct copse_baseline_options *options,
                                 struct copse_schedule **schedule, struct copse_sim_dag *dag,
                                 struct copse_err *err) COPSE_CHECKED;

/* Copies the bound of `like` into a schedule whose nodes are the topology's, by their names.
 * COPSE_INVALID for a node that the topology lacks; COPSE_NOMEM. */
copse_status copse_baseline_copy_bound(const struct copse_topology *topology,
                                       const struct copse_schedule *like,
                                       struct copse_schedule *schedule,
                                       struct copse_err *err) COPSE_CHECKED;
