/* Jobs of NCCL ranks, a thread each, for tests of the drop-in; plans; what the log said. */
#ifndef COPSE_TESTS_NCCL_SUPPORT_H
#define COPSE_TESTS_NCCL_SUPPORT_H

#include "nccl/fake_nccl.h"
#include "support/support.h"

#define N 4
#define NCCL_INT8 0u
#define NCCL_INT32 2u
#define NCCL_FLOAT 7u
#define NCCL_SUM 0u

/* NCCL calls succeed. */
#define NCCL_OK(call)                                                                              \
  do {                                                                                             \
    ncclResult_t nccl_ok_ = (call);                                                                \
    ck_assert_msg(nccl_ok_ == ncclSuccess, "%s: %d, %s", #call, nccl_ok_, ncclGetLastError(NULL)); \
  } while (0)

struct nccl_rank {
  int rank, n;
  ncclComm_t comm;
  void *context;
};

/* A rank each on n threads with a communicator; it is destroyed at the end unless it is NULL. */
void nccl_run(int n, void (*work)(struct nccl_rank *), void *context);
/* The same with ranks that make their communicator themselves from `id`. */
void nccl_run_bare(int n, void (*work)(struct nccl_rank *), void *context);

/*
 * For each test: COPSE_DEBUG=INFO into a file, and COPSE_PLAN_DIR a new folder with plans of all
 * collectives for N ranks (roots 0; all sizes, but allreduce and alltoall up to 1 MiB), and for 2.
 */
void nccl_setup(void);
void nccl_teardown(void);
const char *nccl_plan_folder(void);

/* How many lines of the log so far contain both. */
int nccl_logged(const char *part, const char *other);

#endif
