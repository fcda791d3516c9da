/*
 * The blocking all-gather by which ranks agree: over the NCCL communicator, before the caller can
 * use it.
 */
#ifndef COPSE_DROPIN_GATHER_H
#define COPSE_DROPIN_GATHER_H

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

/*
 * All of them at once, so that one thread can be several ranks of a communicator, and ranks may
 * name communicators in different orders. Not inside a group. COPSE_DEVICE, COPSE_NOMEM; then
 * what is in `all` is undefined.
 */
copse_status copse_nccl_gather_all(const struct copse_nccl_gather *items, size_t n,
                                   struct copse_err *err) COPSE_CHECKED;

/* One of them, on a thread of its own: the calling thread's NCCL group stays what it is. */
copse_status copse_nccl_gather_apart(const struct copse_nccl_gather *item,
                                     struct copse_err *err) COPSE_CHECKED;

/* Some other thread may be capturing a graph; what this thread calls shall not end that.
 * Returns what to give to the next call, which undoes it. */
int copse_nccl_capture_mode(int mode);
#define COPSE_NCCL_CAPTURE_RELAXED 2

#endif
