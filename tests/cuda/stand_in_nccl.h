/*
 * An NCCL for programs of one rank per process on emulated GPUs; copse finds it as it would find the
 * job's. Messages are work of their stream and go through memory that the processes share, a few
 * kilobytes at a time.
 */
#ifndef COPSE_TESTS_STAND_IN_NCCL_H
#define COPSE_TESTS_STAND_IN_NCCL_H

#include "cuda/process_case.h"

/* An ncclComm_t of the ranks that meet. */
struct stand_in_comm {
  struct meeting *meeting;
  bool aborted; /* atomically */
};

/* As what version it presents itself: 22800 or what is set here. */
void stand_in_set_version(int version);
/* Communicators that were split off, and not yet destroyed or aborted; how many were aborted. */
int stand_in_alive(void);
int stand_in_aborted(void);
/* From now on communicators report this failure. */
void stand_in_report(int failure);

/*
 * All messages that follow move in two parts. Where the first part's send something, which a kernel
 * has just written, they wait until the second part's kernel has begun. Without overlap nothing
 * ever moves again.
 */
void stand_in_wait_for_kernels(void);
/* How many groups have waited so. */
int stand_in_waited(void);

/* Messages take so many blocks, each of a whole multiprocessor, instead of no room at all. */
void stand_in_take_blocks(unsigned blocks);

/* Bytes that this rank has been told to send. */
uint64_t stand_in_sent(void);

/* Frees what graphs may have held. */
void stand_in_free(void);

#endif
