/*
 * Predicted times of schedules, plans and baselines, all by one model of costs.
 *
 *   schedule --lower--> plan --routes of its messages--> transfers --simulate.h--> us
 *
 * A schedule is predicted as the plan that it lowers to: its workers, parts of trees, chunks, slots
 * and order of sends, each message over the fabric's own route between the two ranks
 * (simulate_programs.h), which need not be the schedule's path. Where there is no such plan, or it
 * would be too large to be made for a prediction, the schedule's own transfers are simulated, and
 * the prediction says why. With `links` they are in any case: the model of pure links.
 */
#pragma once

#include "codegen/lower/options.h"
#include "predict/baseline.h"
#include "predict/simulate.h"
#include "predict/simulate_programs.h"

struct copse_predict_options {
  struct copse_sim_options sim;      /* costs; chunks and slots are those of what has no plan */
  struct copse_lower_options lower;  /* of the plan; all 0: as 'copse lower' makes it */
  const struct copse_routes *routes; /* of the topology; NULL: found for each prediction */
  double chunk_bytes;                /* > 0: chunks of so many bytes, whatever the plan says */
  int fifo;                          /* >= 0: so many slots, whatever the plan says; -1: its own */
  const struct copse_nccl_graphs *nccl; /* NULL, or a dump whose rings are the baseline "nccl"; */
  int n_nccl;                           /* > 1: one for each kind of hosts (nccl/best.h) */
  const char *nccl_label;               /* name of its file for messages */
  struct copse_baseline_shared *shared; /* NULL, or of the topology, for several collectives */
  bool links; /* no plan: the schedule's transfers over its own paths, in its own order */
};

/* alpha_us 2 and message_us 0.18 (policy.h, schedule/chunks.h), plans as 'copse lower' makes them.
 * For pure links: `links`, and sim as copse_sim_defaults, which has no message_us. */
extern const struct copse_predict_options copse_predict_defaults;

/* Sets alpha_us, of which message_us is a part: 0 is both. */
void copse_predict_alpha(struct copse_predict_options *options, double alpha_us);

/* Finds the routes for many predictions on a topology, where plans are made for them: once in
 * options->shared, or else in `routes`, zero-initialised, which the caller frees in every case.
 * They are then the options'. */
copse_status copse_predict_routes(const struct copse_topology *topology,
                                  struct copse_routes *routes,
                                  struct copse_predict_options *options,
                                  struct copse_err *err) COPSE_CHECKED;

/*
 * Predicts the time of an expanded schedule for messages of bytes [n]: us [n]. options NULL: the
 * defaults. COPSE_INVALID for a compact schedule or one of another topology, COPSE_NOMEM. The same
 * input gives the same bits, on any number of threads.
 */
copse_status copse_predict(const struct copse_topology *topology,
                           const struct copse_schedule *schedule,
                           const struct copse_predict_options *options, const double *bytes, int n,
                           double *us, struct copse_err *err) COPSE_CHECKED;

/* Sets how a schedule with an objective is cut; nothing for another. */
void copse_sim_options_of_schedule(const struct copse_schedule *schedule,
                                   struct copse_sim_options *sim);

/* Sets chunks and slots that are given, over the plan's. */
void copse_predict_cut(const struct copse_predict_options *options, struct copse_sim_options *sim);

/* ---- several of them, for tables ---- */

#define COPSE_MAX_PREDICTIONS (1 + COPSE_N_BASELINES)

/* One algorithm, ready to be timed; free with copse_predictions_free. */
struct copse_prediction {
  const char *name;
  struct copse_sim_dag dag;
  struct copse_sim_options sim;
  struct copse_q time_per_GB; /* as the schedule says; of a plan as its routes have it */
  struct copse_q runs_per_GB; /* over the routes that its messages take */
  int worst_link;             /* the link whose load takes that long */
  bool multicast;             /* as a plan whose switch copies and adds */
  int slots; /* > 0: of a baseline, which is timed in the number of chunks that is best for each
                size, with so many slots; 0: cut as `sim` has it */
  char instead[160];    /* "": predicted as a plan; else why it isn't */
  char note[160];       /* a remark for reports, or "" */
  struct copse_err why; /* COPSE_OK: a prediction exists; else why there is none */
};

/* Whether it is not as a plan, which would be too large (policy.h), and of as many transfers. */
bool copse_prediction_is_coarse(const struct copse_prediction *prediction);

static inline bool copse_prediction_exists(const struct copse_prediction *p) {
  return p->why.status == COPSE_OK;
}

/* Whether the busiest link takes longer over the routes of the plan's messages than over the
 * schedule's paths, by 1 % or more; then `text` has which link, and how much longer. */
#define COPSE_DETOUR_TEXT 512
bool copse_prediction_detour(const struct copse_prediction *p,
                             const struct copse_topology *topology, char text[COPSE_DETOUR_TEXT]);

/* Prepares what copse_predict does, to be timed later. */
copse_status copse_predict_schedule(const struct copse_topology *topology,
                                    const struct copse_schedule *schedule,
                                    const struct copse_predict_options *options,
                                    struct copse_prediction *out,
                                    struct copse_err *err) COPSE_CHECKED;
/* Prepares a native plan; *what as copse_sim_dag_of_plan, whose errors these are. */
copse_status copse_predict_plan(const char *label, const struct copse_topology *topology,
                                const struct copse_plan *plan,
                                const struct copse_predict_options *options,
                                struct copse_prediction *out, struct copse_foreign *what,
                                struct copse_err *err) COPSE_CHECKED;
/* Appends every baseline of like->collective to the *n that are there, those that don't apply to
 * the topology with the reason: those of trees as plans, those of an alltoall in steps of their
 * own. COPSE_INFEASIBLE where there is no schedule like->like and none of them for ranks that can't
 * be reached. */
copse_status copse_predict_baselines(const struct copse_baseline_options *like,
                                     const struct copse_topology *topology,
                                     const struct copse_predict_options *options,
                                     struct copse_prediction predictions[COPSE_MAX_PREDICTIONS],
                                     int *n, struct copse_err *err) COPSE_CHECKED;
/* Prepares an MSCCL++ program, of a multicast plan with what that loads. */
copse_status copse_predict_mscclpp(const char *label, const char *text, size_t size,
                                   const struct copse_topology *topology,
                                   struct copse_prediction *out,
                                   struct copse_err *err) COPSE_CHECKED;
/* Times an MSCCL program for messages of bytes[n_sizes]: us[n_sizes], as copse_predictions_time;
 * and sets *out's busiest link on the fabric's own routes and what it takes per GB. */
copse_status copse_predict_msccl(const char *text, size_t size,
                                 const struct copse_topology *topology, const double *bytes,
                                 int n_sizes, bool quick, struct copse_prediction *out, double *us,
                                 struct copse_err *err) COPSE_CHECKED;
/* Prepares the schedule as "copse" and all baselines of it. */
copse_status copse_predict_all(const struct copse_topology *topology,
                               const struct copse_schedule *schedule,
                               const struct copse_predict_options *options,
                               struct copse_prediction predictions[COPSE_MAX_PREDICTIONS], int *n,
                               struct copse_err *err) COPSE_CHECKED;

/* Whether two are the same transfers at the same costs, so that they take equally long; also of one
 * with itself. */
bool copse_predictions_alike(const struct copse_prediction *a, const struct copse_prediction *b);

/* Finds the least size above `from` and at most `to` from which on one of two predictions is cut
 * into another number of chunks than at `from`, so that its time may jump; to + 1: none is. Of
 * quick simulations (policy.h). */
copse_status copse_predictions_jump(const struct copse_prediction *a,
                                    const struct copse_prediction *b, double from, double to,
                                    double *jump, struct copse_err *err) COPSE_CHECKED;

/* Computes times of predictions [n] for bytes [n_sizes], by several threads: us [n * n_sizes], 0
 * for one that isn't there; of a baseline in the number of chunks that is the fastest of those
 * tried, to some 0.1 %. With `quick` in chunks enough to tell them apart, an eighth of the work. */
copse_status copse_predictions_time(const struct copse_topology *topology,
                                    const struct copse_prediction *predictions, int n,
                                    const double *bytes, int n_sizes, bool quick, double *us,
                                    struct copse_err *err) COPSE_CHECKED;
void copse_predictions_free(struct copse_prediction *predictions, int n);
static inline void copse_prediction_free(struct copse_prediction *prediction) {
  copse_predictions_free(prediction, 1);
}

/* ---- times of several predictions, each simulated once a size ---- */

#define COPSE_MAX_TIMED 128

/* Of a prediction at a size: its time, or if it is `more` a bound of that. */
struct copse_known {
  double us;
  bool more, any;
};
struct copse_known_row {
  double bytes;
  struct copse_known of[COPSE_MAX_TIMED];
  int best; /* the caller's own; -1 at first */
};
/* Zero-initialise; the caller frees the rows. */
struct copse_known_times {
  struct copse_known_row *rows;
  size_t n, capacity;
  double work; /* done so far, in steps of the simulator */
};

/* Returns the row of a size, made where there is none; NULL without memory. */
struct copse_known_row *copse_known_row(struct copse_known_times *times, double bytes,
                                        struct copse_err *err) COPSE_CHECKED;

/* Whether its time is known, or known to be more than most_us. */
static inline bool copse_is_known(const struct copse_known *known, double most_us) {
  return known->any && (!known->more || most_us <= known->us);
}

/* A time that is asked for, unless it is more than most_us. */
struct copse_wish {
  int prediction;
  double bytes, most_us;
};

/* Simulates, by several threads, as quick predictions (policy.h), what of the wishes [*n] is not
 * known yet: *n of them. Those about one prediction best follow each other. */
copse_status copse_predictions_ask(const struct copse_topology *topology,
                                   const struct copse_prediction *predictions,
                                   struct copse_known_times *times, struct copse_wish *wishes,
                                   int *n, struct copse_err *err) COPSE_CHECKED;

/* ---- what nothing beats at a message size, and how far a time is above it ----------------------
 */

struct copse_solve_options;

/* Which bounds are asked for: root as in a schedule; schedule (may be NULL) as for
 * copse_bounds_new. */
struct copse_bounds_question {
  copse_collective collective;
  int root;
  const struct copse_schedule *schedule;
  double alpha_us;
};

/*
 * Returns, where latencies keep links busy (alpha_occupies), the number of equal pieces of a share
 * to try `turn`-th, of 1 to MOST_WHOLE_PIECES. The first to try is the number with which every rank
 * can receive soonest all that isn't its own; only those are tried, again and again, with which
 * that takes less than beat_us, if there are any. root: of a rooted collective, else -1.
 */
int copse_pieces_at_turn(const struct copse_topology *topology, int root, double bytes,
                         double alpha_us, double beat_us, int turn);

/* Computes what nothing beats (schedule/solve/bound_at.h) for messages of so many bytes [n]: us
 * [n], 0 where none is known that fits into 64 bits. Of an alltoall without a schedule the lengths
 * are found. */
copse_status copse_bounds_predict(const struct copse_topology *topology,
                                  const struct copse_bounds_question *question, const double *bytes,
                                  int n, double *us, struct copse_err *err) COPSE_CHECKED;

/*
 * Takes the cut that bounds any allreduce instead of the bound of phases in turn, which says
 * nothing of trees that the search has moved: together they may be faster.
 */
copse_status copse_bound_mend(const struct copse_topology *topology,
                              const struct copse_solve_options *options,
                              struct copse_schedule *schedule, struct copse_err *err) COPSE_CHECKED;

/* Writes the bound for that many bytes into the schedule, with its proof; none where none is known
 * that fits into 64 bits. */
copse_status copse_bound_state(const struct copse_topology *topology,
                               struct copse_schedule *schedule, double bytes, double alpha_us,
                               struct copse_err *err) COPSE_CHECKED;

/*
 * Finds the bound of trees on the fabric's own routes, which the messages of plans take, where it
 * is more than the schedule's: in s per GB, verified; else 0, and where none is known: of
 * alltoalls and stages, of switches that copy or add, of too many routes (policy.h). runs_per_GB:
 * a prediction's of the schedule. Bounds of sizes (bound_at.h) are of any routes.
 */
copse_status copse_bound_on_routes(const struct copse_topology *topology,
                                   const struct copse_schedule *schedule,
                                   struct copse_q runs_per_GB, struct copse_q *time_per_GB,
                                   struct copse_err *err) COPSE_CHECKED;

/* "3.1 %", by how much a time is above its bound; "-" without one. */
#define COPSE_GAP_TEXT 24
const char *copse_gap_text(double us, double bound_us, char buffer[COPSE_GAP_TEXT]);
