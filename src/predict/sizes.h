/*
 * The schedule for messages of one size: among the solver's forests of few and many trees, on the
 * network as it is and as a short message sees it, and the baselines, each in several orders of its
 * trees and numbers of chunks, the one that the simulator finds fastest.
 */
#pragma once

#include "predict/predict.h"
#include "predict/propose.h"

/* Work for a search that somebody waits for: ten seconds at most for 64 ranks; of fewer than 8 in
 * proportion, which gain nothing by more. */
#define COPSE_SIZES_WORK(n_ranks) (1.2e8 * ((n_ranks) < 8 ? (n_ranks) / 8.0 : 1))

struct copse_size_question {
  const struct copse_solve_options
      *solve; /* what for; its k and tolerance are the first candidate's */
  const struct copse_schedule *solved; /* that candidate, expanded, borrowed; NULL: it is made */
  const struct copse_predict_options *predict; /* the costs */
  double bytes;                                /* M, as simulate.h has it */
  const struct copse_proposal *from; /* [n_from] to begin with, borrowed also by what is found, the
                                        first as `solve` says; NULL: those of copse_propose */
  int n_from;
  struct copse_q tolerance; /* where hops cost something: by how much the fastest must be faster
                               than one of fewer trees and as many hops; than one of fewer hops by
                               MODEL_ERROR (policy.h); than one of fewer of both by the larger */
  double work; /* to stop after, in steps of the simulator: chunks times links, 15 million a second
                  or more */
};

struct copse_size_answer {
  struct copse_schedule *schedule; /* verified, its `objective` set; released by the caller */
  char name[COPSE_PROPOSAL_NAME];  /* of the candidate that it comes from: "k=4, far first" */
  int chunks;                      /* 0: as by default (schedule/chunks.h) */
  double us;
  int hops;          /* copse_proposal_hops */
  double fastest_us; /* of what was found, and its hops and trees: more of one of them */
  int fastest_hops, fastest_trees;
  double least_us; /* of what has as few hops as the answer: less is the price of fewer trees */
  double bound_us; /* no schedule is faster; 0: none is known */
  double first_us; /* of the schedule that the solver makes without a size, cut as by default */
  int n_tried;
  double work; /* done */
};

/* Searches the schedule for a size. Errors as of copse_solve_schedule, and COPSE_INTERNAL for a
 * schedule that fails verification. */
copse_status copse_solve_for_size(const struct copse_topology *topology,
                                  const struct copse_size_question *question,
                                  struct copse_size_answer *answer,
                                  struct copse_solve_seconds *seconds,
                                  struct copse_err *err) COPSE_CHECKED;
