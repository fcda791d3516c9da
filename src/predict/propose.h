/*
 * Schedules of one collective to choose among, made and verified one after the other: the one that
 * is asked for, those of fewer trees, and what today's libraries do (baseline.h).
 */
#pragma once

#include "predict/baseline.h"
#include "predict/doubling.h"
#include "schedule/solve/solve.h"

/* Of candidates and of what a search finds too, whose names tell what was done with proposals:
 * "healthy: k=4 and rings, far first x4, exchanged, mended, packets". */
#define COPSE_PROPOSAL_NAME 208
#define COPSE_NEAR_NAME "within 1 %"

struct copse_proposal {
  char name[COPSE_PROPOSAL_NAME];
  struct copse_schedule *schedule; /* verified, expanded */
};

/* Where a schedule comes from. */
enum copse_proposal_kind {
  COPSE_PROPOSAL_SOLVED,   /* the solver's trees or flows, with any options, on any routes */
  COPSE_PROPOSAL_BASELINE, /* what today's libraries do */
  COPSE_PROPOSAL_SCATTER,  /* trees and flows of searches that have a baseline's form */
  COPSE_PROPOSAL_STAGES
};

/* Who chooses. */
struct copse_proposer {
  const struct copse_topology *topology;
  const struct copse_solve_options *solve; /* the first proposal's */
  const struct copse_schedule *solved;     /* the first, expanded, borrowed; NULL: it is made */
  const struct copse_routes *routes;    /* of plans; NULL: none on routes, none in stages */
  struct copse_baseline_shared *shared; /* NULL, or of the topology, for several collectives */
  int most_k; /* > 0: every number of trees up to that, instead of 1, 2, 3, 4, 6, 8, 12 and 16 */
  void *context;
  /* Asked before each but the first is made whether to make it; NULL: all are. */
  bool (*wants)(void *context, enum copse_proposal_kind kind, const char *name);
  double least_gain; /* trees on the fabric's own routes are made where the first one's edges load a
                        link there by more than that, in s per GB, than its paths do: what a hop
                        takes of a message; 0: of any size */
  /* Takes a schedule, expanded and verified, also where it fails. The first must last until the
   * others are made. */
  copse_status (*take)(void *context, struct copse_schedule *schedule, const char *name,
                       struct copse_err *err);
};

/*
 * Proposes in order: "optimal" (with a k or tolerance that is asked for "k=4"), and the fewest
 * trees "within 1 %" of it (COPSE_NEAR_OPTIMUM); of an allreduce with unequal shares "equal
 * shares"; "routes", trees on the fabric's own routes, where those load links more than the first
 * one's paths do: the best ones, or where pairs have too many routes (policy.h) the first one's,
 * hung there (schedule/solve/routes.h), and "routes x4", four copies of each of those; the best
 * trees of 1 per root, "k=1"; the baselines' trees, copse_proposal_name; the best of 2, 3, 4, 6,
 * 8, 12 and 16 trees where those are fewer; of a broadcast or reduction the scattered trees,
 * "scatter, balanced", hung on those routes so that the busiest link has less to carry, and where
 * that helps "scatter, balanced, 1 higher"; allreduces in stages (doubling.h), and in 2 and 4
 * copies of each piece where links then carry less. An alltoall has the
 * first, the fastest in one hop, "direct", where the first takes more, and the baselines. Where
 * relays let out less than they take in, links are narrowed to solve. A kind that doesn't apply to
 * the topology, or isn't exact in 64 bits, is left out. `seconds` are the first one's. Errors as of
 * copse_solve_schedule, and COPSE_INTERNAL for a schedule that fails verification.
 */
copse_status copse_propose(const struct copse_proposer *proposer,
                           struct copse_solve_seconds *seconds,
                           struct copse_err *err) COPSE_CHECKED;

/*
 * Proposes trees in which a GPU has few peers at a switch that joins many, such as an NVSwitch:
 * at most `most`, then fewer, the best ones and those with k = 1 ("18 peers at a switch, k=1"),
 * each where it is wanted. They load links as little and are higher (copse_topology_sparse). None
 * of an alltoall.
 */
copse_status copse_propose_sparse(const struct copse_proposer *proposer, int most,
                                  struct copse_err *err) COPSE_CHECKED;

/* Makes the allreduce by switches that copy and add, where all ranks are at such ones; NULL
 * elsewhere. */
copse_status copse_propose_switch(const struct copse_topology *topology,
                                  const struct copse_solve_options *options,
                                  struct copse_schedule **out, struct copse_err *err) COPSE_CHECKED;

/* Names a schedule of ours with a baseline's trees: "rings", whose messages and chunks are a
 * plan's, are not "best-rings", which are what NCCL does; the others have the baseline's name. */
static inline const char *copse_proposal_name(enum copse_baseline kind) {
  return kind == COPSE_BASELINE_RINGS ? "rings" : copse_baseline_name(kind);
}

/* Writes a name; one that is too long ends with a whole word and " ..". */
void copse_proposal_name_print(char *name, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Adds to a name, at the cost of its end if need be, what was done with the schedule, once, and in
 * how many parts each tree is: "k=1, far first x4, exchanged". */
void copse_proposal_name_add(char *name, size_t size, const char *done, int copies);
/* Returns "k=1, far first" of "1M: k=1, far first", which a search began with. */
const char *copse_proposal_without_size(const char *name);

/* Counts the hops from the first send to the last, those of both phases of an allreduce. */
int copse_proposal_hops(const struct copse_schedule *schedule);
/* Whether b has more than so many edges, and a fewer, takes no longer in the long run, and is no
 * higher. */
bool copse_proposal_beats(const struct copse_schedule *a, const struct copse_schedule *b,
                          int64_t most_edges);

/* How a given schedule becomes one of this topology: unchanged; over the fabric's own routes where
 * it crosses missing parts; with its trees mended. */
enum copse_proposal_way {
  COPSE_PROPOSAL_AS_IT_IS,
  COPSE_PROPOSAL_REROUTED,
  COPSE_PROPOSAL_MENDED,
  COPSE_PROPOSAL_WAYS
};
/*
 * Makes an expanded schedule of another topology with the same ranks, such as the healthy one, one
 * of `topology`, of which `like` is a schedule of the collective; verified. Its bound is like's
 * where that holds for it, else one of any schedule. COPSE_UNSUPPORTED where it can't be that way,
 * and for a topology without a direct exchange.
 */
copse_status copse_proposal_adopt(const struct copse_topology *topology,
                                  enum copse_proposal_way way, const struct copse_routes *routes,
                                  const struct copse_schedule *like,
                                  struct copse_schedule *schedule,
                                  struct copse_err *err) COPSE_CHECKED;

/* Solves for trees that rotations make, and expands and verifies them; *out NULL: there are none.
 * The caller frees *out. Errors as of copse_solve_schedule and copse_proposal_check. */
copse_status copse_propose_compact(const struct copse_topology *topology,
                                   const struct copse_solve_options *options,
                                   struct copse_schedule **out,
                                   struct copse_err *err) COPSE_CHECKED;

/* Verifies a schedule of ours: COPSE_INTERNAL where it is refuted, COPSE_OVERFLOW. */
copse_status copse_proposal_check(const struct copse_topology *topology,
                                  const struct copse_schedule *schedule, const char *name,
                                  struct copse_err *err) COPSE_CHECKED;
