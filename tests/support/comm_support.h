/* Communicators on the CPU with plans built by hand, and calls on exact test data. */
#ifndef COPSE_TESTS_COMM_SUPPORT_H
#define COPSE_TESTS_COMM_SUPPORT_H

#include <stdbool.h>

#include "copse/copse.h"
#include "runtime/interpreter/expected.h"

#define COMM_MAX_RANKS 8
#define COMM_MAX_PLANS 8

/* A call that must succeed; fails the test with copse_last_error(). */
#define COMM_OK(call)                                                         \
  do {                                                                        \
    copse_status comm_ok_ = (call);                                           \
    ck_assert_msg(comm_ok_ == COPSE_OK, "%s: %s", #call, copse_last_error()); \
  } while (0)

/* A call that must fail with `expected` and a text that contains `part`. */
#define COMM_FAILS(call, expected, part)                                             \
  do {                                                                               \
    copse_status comm_fails_ = (call);                                               \
    ck_assert_msg(comm_fails_ == (expected), "%s: got %s (%s), expected %s", #call,  \
                  copse_status_string(comm_fails_), copse_last_error(),              \
                  copse_status_string(expected));                                    \
    ck_assert_msg(strstr(copse_last_error(), (part)) != NULL, "\"%s\" lacks \"%s\"", \
                  copse_last_error(), (part));                                       \
  } while (0)

struct comm_job {
  int n;
  copse_comm *comms[COMM_MAX_RANKS];
  struct copse_plan *plans[COMM_MAX_PLANS];
  int n_plans;
};

/* The root of comm_job's broadcasts and reduces. */
int comm_job_root(copse_collective collective, int n);

/* n ranks on the CPU; with a plan for each collective, or without any. */
void comm_job_new(struct comm_job *job, int n, bool with_plans);
/* The plan is the job's from now on. */
void comm_job_add(struct comm_job *job, struct copse_plan *plan);
/* Destroys what is left of the communicators, then the plans. */
void comm_job_free(struct comm_job *job);

/* One rank's public call for data->collective; all_to_all_v where it has pair_counts. */
copse_status comm_call(copse_comm *comm, const struct copse_data *data, const void *send,
                       void *recv);

/* Fresh buffers, the call on all ranks within a group or from a thread each, and the number of
 * wrong elements; fails the test unless every rank's call succeeds. */
uint64_t comm_run_group(struct comm_job *job, const struct copse_data *data, bool in_place);
uint64_t comm_run_threads(struct comm_job *job, const struct copse_data *data, bool in_place);

/* Runs every type, every reduction that applies, counts 1, 17 and 1000, in and out of place;
 * fails the test on a wrong element. */
void comm_check_all(struct comm_job *job, copse_collective collective,
                    uint64_t (*run)(struct comm_job *job, const struct copse_data *data,
                                    bool in_place));

#endif
