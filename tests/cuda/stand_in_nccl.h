/*
 * An NCCL for programs of one rank per process on emulated GPUs; copse finds it as it would find
 * the job's. Messages are work of their stream and go through memory that the processes share, a
 * few kilobytes at a time.
 */
#ifndef COPSE_TESTS_STAND_IN_NCCL_H
#define COPSE_TESTS_STAND_IN_NCCL_H

#include <thread>

#include "cuda/process_case.h"

/* An ncclComm_t of the ranks that meet. */
struct stand_in_comm {
  struct meeting *meeting;
  bool aborted; /* atomically */
  bool blocks;
  int result;          /* of the last call where it doesn't block; atomically */
  std::thread goes_on; /* the last call, likewise, if in a thread */
  unsigned n_groups = 0;
  bool is_late = false; /* it is over, but hasn't been said to be in progress */
  explicit stand_in_comm(struct meeting *m) : meeting(m), aborted(false), blocks(true), result(0) {}
};

/* Who meets in communicators that are made by a unique id, from now on. */
void stand_in_meet(struct meeting *meeting);
/* Communicators that were made so, and not yet destroyed or aborted; how many were aborted. */
int stand_in_alive(void);
int stand_in_aborted(void);
/* As long as graphs hold a communicator: aborts take effect, but don't return. */
void stand_in_hold_aborts(bool hold);
/* As long as the host's other ranks don't end theirs: no end returns. */
void stand_in_hold_ends(bool hold);
/* The other side of a connection isn't there: groups of messages wait for it, for ever if need be. */
void stand_in_hold_connections(bool hold);
/* Communicators that don't block never get ready, from now on. */
void stand_in_hold_readiness(void);
/* ncclGetVersion's answer, 22809 at first. Before 22703 communicators that don't block aren't asked for. */
void stand_in_set_version(int version);
/* As with NCCL_COMM_BLOCKING=1: communicators block, whatever is asked for. */
void stand_in_always_block(void);
/* From now on calls on communicators that block end with ncclInProgress too */
void stand_in_be_slow(void);
/* From now on communicators report this failure. */
void stand_in_report(int failure);

/* Messages take so many blocks, each of a whole multiprocessor, instead of no room at all. */
void stand_in_take_blocks(unsigned blocks);

/* Bytes that this rank was asked to send; of them those in messages that aren't as long as one
 * of copse's words. */
uint64_t stand_in_sent(void);
uint64_t stand_in_sent_data(void);

/* Frees what graphs may have held. */
void stand_in_free(void);

#endif
