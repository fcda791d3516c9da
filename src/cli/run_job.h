/* `copse run --backend mpi`: this process as a rank of a job. */
#ifndef COPSE_CLI_RUN_JOB_H
#define COPSE_CLI_RUN_JOB_H

#include <stdbool.h>

#include "cli/run_table.h"
#include "runtime/transport/transport.h"

struct copse_job {
  struct copse_transport *transport; /* NULL: all ranks are in this process */
  uint32_t rank;
};

/* Finds MPI (libcopse-mpi.so, beside the program) and the other processes. COPSE_UNSUPPORTED where
 * there is no MPI. */
copse_status copse_job_start(struct copse_job *job, double timeout_seconds,
                             struct copse_err *err) COPSE_CHECKED;
/* After an error: the other ranks end with it too, and its text says which rank this is. */
void copse_job_fail(const struct copse_job *job, struct copse_err *err);
/* Also without a job. */
void copse_job_end(struct copse_job *job);
/* mpirun ends a job with the first process that fails. Between an error message and the end of
 * this process: so that the others get to say theirs. */
void copse_job_linger(void);

/* How it went here so far; the same plan everywhere. Fails alike at all ranks. */
copse_status copse_job_agree(const struct copse_job *job, copse_status mine,
                             const struct copse_plan *plan, struct copse_err *err) COPSE_CHECKED;
/* All have come here. */
copse_status copse_job_meet(const struct copse_job *job, struct copse_err *err) COPSE_CHECKED;
/* A half of a row over all ranks: the longest time, all wrong elements. */
copse_status copse_job_combine(const struct copse_job *job, struct copse_run_result *result,
                               struct copse_err *err) COPSE_CHECKED;

/* Ranks whose memory comes from this host. */
uint32_t copse_job_ranks_here(const struct copse_job *job, uint32_t n_ranks);

#endif
