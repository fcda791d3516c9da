/*
 * Ways to run one collective on one topology, schedules and what they are lowered to, and which of
 * them the simulator finds fastest for a message of some size: the best for 64 KiB is rarely the
 * best for 1 GiB.
 */
#pragma once

#include "predict/predict.h"
#include "predict/propose.h"

struct copse_candidate {
  char name[COPSE_PROPOSAL_NAME];  /* "optimal", "k=2", "ring", "k=2, packets", ... */
  struct copse_schedule *schedule; /* expanded */
  bool owned;                      /* else another candidate's */
  struct copse_lower_options lower;
  int hops; /* copse_proposal_hops */
  int like; /* the first whose prediction is this one's too: the same plan, but for its schedule */
  uint64_t most_bytes; /* packets: for no larger messages; else 0 */
  bool kept;     /* taken before others that are faster by less than KEPT_WORTH: ranks have it */
  bool left_out; /* of the healthy topology: not one of the broken one in any way */
};

#define COPSE_MAX_CANDIDATES COPSE_MAX_TIMED

/* Limits on work: of policy.h by copse_candidates_begin, where their reasons are. */
struct copse_candidates_limits {
  int64_t edges_alike; /* of a forest beside a smaller one that is as good, and of what is found */
  double stepped;      /* transfers up to which sizes between powers of two are compared */
  double in_twos;      /* and up to which all powers of two */
  double border_work;  /* steps of the simulator, for borders between ranges */
  double search_work;  /* as COPSE_SIZES_WORK, for each size that is searched; 0: none is */
  double more_work;    /* for all searches of copse_candidates_search_more */
};

struct copse_candidates {
  const struct copse_topology *topology; /* borrowed */
  int n;
  struct copse_candidate list[COPSE_MAX_CANDIDATES];
  struct copse_prediction predictions[COPSE_MAX_CANDIDATES]; /* of each, by `options` and its own */
  struct copse_predict_options options;                      /* with routes of the list's own */
  struct copse_routes routes;
  const struct copse_progress *progress; /* NULL, or who looks on while they are compared */
  struct copse_candidate_times *times;   /* what was simulated so far: nothing is simulated twice */
  struct copse_candidates_limits limits;
};

/*
 * Makes all proposals of propose.h, which `solve --objective` begins with too, but for large
 * forests that a smaller one beats (copse_proposal_beats); equal shares where they are slower in
 * the long run. Times are predicted as `predict` says; NULL: the defaults. Errors are those of
 * copse_propose. Free with copse_candidates_free in every case.
 */
copse_status copse_candidates_make(const struct copse_topology *topology,
                                   const struct copse_solve_options *options,
                                   const struct copse_predict_options *predict,
                                   struct copse_candidates *out,
                                   struct copse_solve_seconds *seconds,
                                   struct copse_err *err) COPSE_CHECKED;

/* Does the first of two steps of it: makes candidates without any, also for copse_candidates_add;
 * copse_candidates_propose adds all proposals. */
copse_status copse_candidates_begin(const struct copse_topology *topology,
                                    const struct copse_predict_options *predict,
                                    struct copse_candidates *out,
                                    struct copse_err *err) COPSE_CHECKED;
copse_status copse_candidates_propose(struct copse_candidates *candidates,
                                      const struct copse_solve_options *options,
                                      struct copse_solve_seconds *seconds,
                                      struct copse_err *err) COPSE_CHECKED;
/* Adds a candidate: a schedule, expanded, and how it is lowered. The schedule is taken over also
 * after a failure. COPSE_UNSUPPORTED where the list is full. */
copse_status copse_candidates_add(struct copse_candidates *candidates,
                                  struct copse_schedule *schedule, const char *name,
                                  const struct copse_lower_options *lower,
                                  struct copse_err *err) COPSE_CHECKED;

/*
 * Adds the candidates of the topology with nothing broken, whose ranks are the same. A candidate
 * that crosses a part that is down is laid on the fabric's own routes, or else its trees are mended
 * (schedule/adapt.h). Named "healthy: k=4", in chunks: they may be better than candidates found for
 * the broken topology, which is less symmetric. With `keep` they are lowered as they are, both
 * ways, "x", "x, rerouted", "x, mended", and kept. A candidate that can't be adopted is left out,
 * and marked in `healthy`.
 */
copse_status copse_candidates_adopt(struct copse_candidates *candidates,
                                    struct copse_candidates *healthy, bool keep,
                                    struct copse_err *err) COPSE_CHECKED;

/* Adds images of the schedules of candidates `taken` [like->n] of another root, by an automorphism
 * `image` [n_nodes] that takes that root to this one, under their names, in chunks; those that are
 * schedules of this root. They are as good where latencies and the fabric's routes are alike too.
 * `like` must last longer. */
copse_status copse_candidates_adopt_images(struct copse_candidates *candidates,
                                           const struct copse_candidates *like, const bool *taken,
                                           const int *image, struct copse_err *err) COPSE_CHECKED;

/* Adds (in searches.c) what the search for one size (sizes.h) finds for some sizes from 4 KiB to
 * 256 MiB, starting from the candidates so far, as "64K: k=4". Sizes up to most_packets are
 * searched with the cost of a hop of packets. `healthy` (NULL: none) are the candidates of the
 * topology with nothing broken; with them a search takes half the work, and there is none for a
 * size at which a candidate so far takes at most MODEL_ERROR more than the fastest of `healthy`, or
 * than the bound. Adds nothing where the first candidate is predicted coarsely: one schedule takes
 * more than all of a search. */
copse_status copse_candidates_search(struct copse_candidates *candidates,
                                     const struct copse_candidates *healthy,
                                     const struct copse_solve_options *options,
                                     uint64_t most_packets, struct copse_err *err) COPSE_CHECKED;

/*
 * Adds what more searches find that begin with all candidates so far, packets too: at powers of two
 * from 1 KiB to 256 MiB, next where most may be gained. That is what the fastest takes above the
 * bound (or the fastest of `like`, those of a root that is alike; NULL: none), and less after
 * searches there or beside it that gained little. Ends where nowhere LEAST_HOPE may be gained, or
 * all work is done. Adds nothing where the first candidate is predicted coarsely.
 */
copse_status copse_candidates_search_more(struct copse_candidates *candidates,
                                          const struct copse_candidates *like,
                                          const struct copse_solve_options *options,
                                          uint64_t most_packets,
                                          struct copse_err *err) COPSE_CHECKED;

/* Adds candidate `of` once more, as packets for messages of at most so many bytes, or an allreduce
 * in one hop of them; nothing if its schedule can't be that. */
copse_status copse_candidates_add_packets(struct copse_candidates *candidates, int of,
                                          uint64_t most_bytes, bool one_hop,
                                          struct copse_err *err) COPSE_CHECKED;

/* Adds the candidates in chunks also in packets, for messages of at most so many bytes, and an
 * allreduce in one hop. Leaves out schedules that can't be packets. Adds nothing where the first
 * candidate is predicted coarsely: only plans tell packets from chunks. */
copse_status copse_candidates_packets(struct copse_candidates *candidates, uint64_t most_bytes,
                                      struct copse_err *err) COPSE_CHECKED;

void copse_candidates_free(struct copse_candidates *candidates);

/* Predicts the time of every candidate for messages of so many bytes, by several threads: us
 * [n_sizes]. In an eighth of the work where chunks need not be larger than a plan's for it.
 * Infinite beyond a candidate's sizes, and for a candidate that is too slow to be the fastest, to
 * be taken, or to be close to the one taken (copse_candidates_best, _lasting): that is known before
 * its simulation ends. */
copse_status copse_candidates_time(const struct copse_candidates *candidates, const double *bytes,
                                   int n_sizes, double (*us)[COPSE_MAX_CANDIDATES],
                                   struct copse_err *err) COPSE_CHECKED;

/* Predicts the same, but also how long candidates take that are slower than the fastest by up to
 * `reach` times. */
copse_status copse_candidates_time_near(const struct copse_candidates *candidates,
                                        const double *bytes, int n_sizes, double reach,
                                        double (*us)[COPSE_MAX_CANDIDATES],
                                        struct copse_err *err) COPSE_CHECKED;

/* Predicts the same of one candidate, however slow it is: us [n_sizes]. */
copse_status copse_candidates_time_of(const struct copse_candidates *candidates, int which,
                                      const double *bytes, int n_sizes, double *us,
                                      struct copse_err *err) COPSE_CHECKED;

/*
 * Returns the one of times [n] to take: among candidates within MODEL_ERROR (policy.h) of the
 * fastest, those with fewest hops; of these the fastest; of candidates within SAME_TIME of each
 * other the list's first. Times of kept candidates count as shorter by KEPT_WORTH here and in
 * copse_candidates_lasting, but not in a range's losses.
 */
int copse_candidates_best(const struct copse_candidates *candidates, const double *us);

/* Returns the candidate that is within CLOSE_TIME of the best (as above), within MODEL_ERROR of the
 * fastest, with no more hops than the best, for the most sizes from the first on; of equals the
 * list's first. *n_close: for how many sizes, at least 1. */
int copse_candidates_lasting(const struct copse_candidates *candidates,
                             double (*us)[COPSE_MAX_CANDIDATES], int n_sizes, int *n_close);

/* Message sizes that one candidate is for, both included, and what it costs to have no other: of
 * the sizes compared, and those where ranges meet, the one where it is farthest above the fastest
 * candidate. */
struct copse_candidate_range {
  uint64_t min_bytes, max_bytes;
  int candidate;
  double loss; /* there: its time over the fastest's, less 1; 0: the fastest everywhere */
  uint64_t loss_bytes;
  int fastest;    /* there: the fastest candidate */
  int fewer_hops; /* that the one taken has than that; negative: more */
};

#define COPSE_MAX_RANGES 320 /* as many as sizes that are compared */

/*
 * Chooses candidates for all message sizes, compared at the powers of two from `smallest` to
 * `largest` (powers of two themselves, smallest < largest), at three sizes between them where that
 * is little to simulate (fewer where it is much: policy.h), and a byte beyond where candidates
 * end: each range has one that is the best at those sizes or within CLOSE_TIME of it, in as few
 * ranges as there can be, since a range more is a plan more to load, and the times are a model's.
 * Between two sizes a range begins where its candidate becomes faster than the one before it, or
 * with more hops faster by MODEL_ERROR, or a third one so. Sizes beside such borders are compared
 * too, and where the number of chunks of a range's candidate changes by a large part (policy.h), so
 * that at no size compared another one is faster by more than MODEL_ERROR, and BORDER_LOSS more
 * beside borders. Borders are looked for by so much work at most (policy.h), those first where most
 * is lost; without more they are where the next candidate is known to be ahead. The first range
 * begins at 0, the last ends at INT64_MAX; neighbours have different candidates.
 */
copse_status copse_candidates_ranges(const struct copse_candidates *candidates, uint64_t smallest,
                                     uint64_t largest,
                                     struct copse_candidate_range ranges[COPSE_MAX_RANGES], int *n,
                                     struct copse_err *err) COPSE_CHECKED;

/*
 * Adds, last, the allreduce by switches that copy and add, where all ranks are at such ones and a
 * plan can ask it of them: "by the switch"; and ranges of it where it is faster, at powers of two
 * from `smallest` to `largest`: within the ranges [*n] of the others, which serve jobs that can't
 * use the switch. There must be room for twice as many.
 */
copse_status copse_candidates_switch(struct copse_candidates *candidates,
                                     const struct copse_solve_options *options, uint64_t smallest,
                                     uint64_t largest, struct copse_candidate_range *ranges, int *n,
                                     struct copse_err *err) COPSE_CHECKED;
