/*
 * From a topology to an optimal schedule.
 */
#pragma once

#include "schedule/groups.h"
#include "schedule/schedule.h"
#include "solver/joint/joint.h"
#include "topology/topology.h"

struct copse_solve_options {
  copse_collective collective;
  int root;                 /* broadcast, reduce; else -1 */
  int64_t k;                /* 0: exact; else exactly this many trees per root */
  bool bound_only;          /* no trees or flows; time_per_GB is the optimum */
  const int64_t *demand;    /* alltoall: [n_ranks * n_ranks] bytes, NULL: uniform */
  bool no_forward;          /* alltoall: ranks do not relay */
  bool no_symmetry;         /* do not look for symmetries, in an alltoall for a rotation */
  bool equal_shares;        /* allreduce: 1/N per root also where unequal shares are faster */
  bool in_network;          /* allreduce: make use of switches that copy or add */
  bool on_routes;           /* trees: every edge takes a route that the fabric would (routes.h) */
  bool compact;             /* trees: those of base roots, of equal shares, and the symmetries that
                               move them, where such trees reach the optimum. Beyond
                               COPSE_COMPACT_RANKS ranks always */
  struct copse_q tolerance; /* trees: the fewest per root within this of the optimum, of an
                               allreduce with equal shares if they can be; alltoall: stop within
                               this of the bound; 0: exact, in the fewest trees that are found */
  bool may_miss;            /* alltoall: flows further from the bound than the tolerance are made */
  /* The topology with nothing broken, or NULL. From COPSE_TRUST_FROM ranks on its schedule is
   * repaired where that reaches the optimum (repair.h); of an allreduce whose phases run together
   * where it comes within COPSE_NEAR_OPTIMUM of it, or a tolerance that is less; what comes of it
   * is compact. */
  const struct copse_topology *healthy;
  const struct copse_schedule *from; /* that schedule, or NULL: it is solved for */
  const char *label;                 /* names the topology's file in messages */
  const struct copse_notes *notes;   /* says where unequal shares or switches are not made use of;
                                        may be NULL */
  const struct copse_progress *progress;
  int trust_from; /* from so many ranks on known cuts are trusted (solver/policy.h); 0: default */
  int threads;    /* of one flow per rank; 0: one per processor */
};

/* Returns what of the options does not go together, in one line with the names of the command's
 * options ("--in-network is for allreduce"); NULL: all does. has_tolerance: one was asked for;
 * for_size: the schedule is chosen for a size of message. */
const char *copse_solve_clash(const struct copse_solve_options *options, bool has_tolerance,
                              bool for_size);

/* By how much trees may be above the optimum where nobody asks for the optimum itself: bandwidths
 * that were measured and differ by a few per cent else make many trees, and high ones. */
#define COPSE_NEAR_OPTIMUM ((struct copse_q){1, 100})

/* Trees of more ranks are not listed one by one: they take space by the square, 20 GB for
 * 16,384. */
#define COPSE_LISTED_RANKS 4096
/* Trees of more ranks are compact where symmetries allow it: 83 MB or 0.2 for 1,024. */
#define COPSE_COMPACT_RANKS 1024

/* What it took: time by phase, and for trees of all ranks how many orbits of ranks had to be asked
 * for a flow each (0: symmetries were not looked for). */
struct copse_solve_seconds {
  double optimum, split, pack;
  int orbits;
};

/* Does the alltoall part of copse_solve_schedule: flows instead of trees. `schedule` is named and
 * empty. */
copse_status copse_solve_alltoall(const struct copse_topology *topology,
                                  const struct copse_solve_options *options,
                                  struct copse_schedule *schedule,
                                  struct copse_solve_seconds *seconds,
                                  struct copse_err *err) COPSE_CHECKED;

/* Takes over a schedule, also where this fails. The schedule borrows from the one it was made from.
 */
typedef copse_status copse_take_thinned(void *context, struct copse_schedule *schedule, int peers,
                                        struct copse_err *err);
/*
 * Makes schedules of an alltoall, whose flows are listed and in the topology's numbers, in which
 * each rank sends to, and receives from, ever fewer others straight: what went there goes by
 * another rank, over whose links that takes the least. `take` gets those of at most `most` peers,
 * one for each number that is reached, the largest first; they are the same for any `most`. Their
 * time is set, the bound stands. COPSE_NOMEM, COPSE_OVERFLOW. O(pairs * ranks * (ranks + links of a
 * way))
 */
copse_status copse_alltoall_thin(const struct copse_schedule *schedule,
                                 const struct copse_topology *topology, int most,
                                 copse_take_thinned *take, void *context,
                                 struct copse_err *err) COPSE_CHECKED;

/*
 * Computes the exactly optimal schedule (with options.k: the best of k trees per root) and
 * the cut that proves the optimum. An allreduce is a reduce_scatter and an allgather with
 * equal shares, each optimal; its time_per_GB is the most loaded link's with both loads
 * added, so at most the sum of the two. Where unequal shares are faster, the roots have those of
 * the best pair of forests with common shares (switches.h), unless k, equal_shares or compact
 * say otherwise, and with a tolerance only if equal ones are outside it, rounded so that trees are
 * fewer; up to how many ranks they are looked for says policy.h, and options->notes says where
 * they are not. With in_network, without k and tolerance, marked switches may copy and add for it
 * (switches.h), and the schedule says which. With on_routes, without k, equal_shares, compact and
 * in_network, trees are the best of those whose edges take the fabric's own routes, and the bound
 * that of any (routes.h). An alltoall is a maximum concurrent flow, exact where
 * the solver's numbers turn out to be fractions, else with a stated tiny gap. Symmetries
 * (topology/symmetry/symmetry.h) save maximum flows: one for each orbit of ranks; the optimum is
 * the same without. For a compact schedule, and from COPSE_TRUST_FROM ranks on (solver/policy.h),
 * trees of base ranks that reach it (solver/trees/grow.c) are taken where they are found; they are
 * listed with all their images unless the schedule is a compact one. The caller frees *out.
 * COPSE_INFEASIBLE naming two ranks; COPSE_BAD_INPUT for an unbalanced relay; COPSE_INVALID for a
 * root out of range; COPSE_OVERFLOW; COPSE_NOMEM. Deterministic: the same topology gives the same
 * bytes.
 */
copse_status copse_solve_schedule(const struct copse_topology *topology,
                                  const struct copse_solve_options *options,
                                  struct copse_schedule **out, struct copse_solve_seconds *seconds,
                                  struct copse_err *err) COPSE_CHECKED;

/*
 * Finds the time T/M of the best schedule whatever the options' k and tolerance. *made: that
 * schedule, to be released by the caller, where its trees had to be made to know (marked switches:
 * no bound by unequal shares is known for those), else NULL. Errors as of copse_solve_schedule.
 */
copse_status copse_solve_best_time(const struct copse_topology *topology,
                                   const struct copse_solve_options *options, struct copse_q *time,
                                   struct copse_schedule **made,
                                   struct copse_err *err) COPSE_CHECKED;

/*
 * Makes a schedule within a part of the links, on the topology's own numbers. Its time is what its
 * own loads make on the whole links, its bound a cut that holds for any schedule of the ranks that
 * has the fabric to itself. Without a part the bound alone, as its time. Otherwise as
 * copse_solve_schedule; adds to *seconds.
 */
copse_status copse_solve_in_part(const struct copse_topology *topology,
                                 const struct copse_solve_options *options,
                                 const struct copse_joint_part *part, struct copse_schedule **out,
                                 struct copse_solve_seconds *seconds,
                                 struct copse_err *err) COPSE_CHECKED;

/* Does the alltoall part of that. With a part *out is NULL, or what was made without one: its bound
 * stays. */
copse_status copse_solve_exchange_in_part(const struct copse_topology *topology,
                                          const struct copse_solve_options *options,
                                          const struct copse_joint_part *part,
                                          struct copse_schedule **out,
                                          struct copse_solve_seconds *seconds,
                                          struct copse_err *err) COPSE_CHECKED;

/* ---- groups of ranks on one fabric, at the same time ----------------------------------------- */

struct copse_solve_groups_options {
  bool exclude;    /* GPUs that are not of a group, and their links, are not used for it; else
                      they relay */
  bool bound_only; /* the rate and its proof; each schedule is the bound of its group alone */
  bool no_symmetry;
  const char *label, *groups_label; /* name the files in messages */
  const struct copse_progress *progress;
};

/*
 * Makes the schedules of all groups for the largest common rate (solver/joint/joint.h), and the
 * proof of it. Groups may overlap. The caller releases *out. COPSE_INFEASIBLE naming the group's
 * line and two of its ranks; COPSE_BAD_INPUT for a relay that is not balanced; COPSE_UNSUPPORTED
 * for more groups and links than the programme can take; COPSE_NOMEM where it takes too many
 * steps. Deterministic.
 *
 * The time is the bound, unless the optimum's fractions don't fit 64 bits, which leaves a gap of
 * about 1e-9, or some switches copy or add: no use is made of those, but what they save counts
 * (loads.h), and the bound allows for more.
 */
copse_status copse_solve_groups(const struct copse_topology *topology,
                                const struct copse_group *groups, int n,
                                const struct copse_solve_groups_options *options,
                                struct copse_groups **out, struct copse_solve_seconds *seconds,
                                struct copse_err *err) COPSE_CHECKED;
