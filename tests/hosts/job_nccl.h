/*
 * A "real NCCL" for jobs of one rank per process on emulated GPUs: a libnccl.so.2 of its own, which
 * the drop-in in the test program finds as it finds the real one. What is enqueued is work of its
 * stream, also in graphs, and moves through memory that the processes share. Communicators,
 * splits by color and key, groups, sends and receives, and collectives worked out from everybody's
 * input, so that calls that the drop-in passes have right results too.
 *
 * What is enqueued on a stream by one group moves at once; else it is in order.
 */
#ifndef COPSE_TESTS_JOB_NCCL_H
#define COPSE_TESTS_JOB_NCCL_H

#include <stdint.h>

extern "C" {
#include "dropin/functions.h"

#define JOB_EXPORT __attribute__((visibility("default"), used))

/* The functions of nccl.h that tests call. */
#define JOB_DECLARE(type, missing, name, params, args) type nccl##name params;
COPSE_NCCL_SERVED(JOB_DECLARE)
COPSE_NCCL_CONFIGURED(JOB_DECLARE)
COPSE_NCCL_FORWARDED(JOB_DECLARE)
#undef JOB_DECLARE

/* The memory that the processes share: before they start, in their parent. They find it by the
 * environment. */
JOB_EXPORT void job_nccl_begin(void);
JOB_EXPORT void job_nccl_end(void);

/* How often a function ("AllReduce") of this library has been called in this process. */
JOB_EXPORT int job_nccl_calls(const char *name);
/* The nth call from now of the function (1: the next; 0: every one) fails with ncclInternalError.
 * NULL takes all orders back. */
JOB_EXPORT void job_nccl_fail(const char *name, int nth);
/* Communicators of this process that were neither destroyed nor aborted. */
JOB_EXPORT int job_nccl_alive(void);
/* What is enqueued takes so many blocks, each of a whole multiprocessor, instead of no room. */
JOB_EXPORT void job_nccl_take_blocks(unsigned blocks);
/* Ends the process's part: frees what graphs may have held. */
JOB_EXPORT void job_nccl_free(void);
}

#endif
