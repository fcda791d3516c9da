/* All-gathers by which the ranks of a new NCCL communicator agree. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "dropin/abi.h"

struct copse_nccl_gather {
  ncclComm_t comm;
  int device, n_ranks;
  const void *mine; /* [bytes] */
  void *all;        /* [n_ranks * bytes] */
  size_t bytes;
};

/* Memory and stream of one gathering on the device. Zero-initialise. */
struct copse_nccl_scratch {
  int device;
  void *context;
  cudaStream_t stream; /* own, not ordered with the default stream */
  void *memory;
  bool on_host; /* it is the host's, page-locked */
};

/*
 * Gathers all of them at once, so that one thread can be several ranks of a communicator, and
 * ranks may name communicators in different orders. scratch: [n], zeros, and so at the end. Takes
 * no memory of the host. Not inside a group. COPSE_DEVICE: then this rank is lost to the others,
 * and what is in `all` is undefined. seconds: how long to wait for peers, where above 0. After
 * them COPSE_TIMEOUT: the communicators are NCCL's no more (ncclCommAbort).
 */
copse_status copse_nccl_gather_all(const struct copse_nccl_gather *items,
                                   struct copse_nccl_scratch *scratch, size_t n, double seconds,
                                   struct copse_err *err) COPSE_CHECKED;
static inline copse_status copse_nccl_gather_one(const struct copse_nccl_gather *item,
                                                 double seconds, struct copse_err *err) {
  struct copse_nccl_scratch scratch = {0};
  return copse_nccl_gather_all(item, &scratch, 1, seconds, err);
}

/* Gathers one of them, on a thread of its own: the calling thread's NCCL group stays what it is. */
copse_status copse_nccl_gather_apart(const struct copse_nccl_gather *item, double seconds,
                                     struct copse_err *err) COPSE_CHECKED;

/*
 * Whether to try once more, after the try-th time; pauses before. A rank that stays away from an
 * all-gather leaves the others waiting until their time limit, and has no other way to notify
 * them. So what fails before one is tried again: memory may be there a moment later.
 */
bool copse_nccl_tries_again(copse_status status, int try);

/* Sets the capture mode so that calls of this thread don't end the capture of a graph by another
 * thread. Returns what to give to the next call, which undoes it. */
int copse_nccl_capture_mode(int mode);
#define COPSE_NCCL_CAPTURE_RELAXED 2
