/*
 * Inside internode/: a communicator whose ranks are on several hosts. What the rest of the backend
 * calls is declared in runtime/gpu/cuda_backend.h.
 *
 *   rounds.c           how a plan is split and cut into rounds, and why it stays right
 *   messages.cu        the rounds of a launch: cursors on the GPU, messages over NCCL; messages
 *                      that never come; which rank is on which host; streams that NCCL can use
 *   nccl_bootstrap.cu  NCCL's functions, found at run time
 */
#pragma once

#include "runtime/gpu/cuda_backend.h"
#include "runtime/internode/nccl_bootstrap.h"

extern "C" {
#include "runtime/internode/rounds.h"
}

struct copse_watch; /* messages.cu */

/* The part of copse_cuda that there is where ranks are on several hosts. */
struct copse_internode {
  struct copse_nccl_links links;
  struct copse_watch *watch;
};

/* The rounds of a plan for one number of chunks: on the device their cursors, and what of an
 * alltoall comes to an inbox of this rank, in round r items [first_item[r], first_item[r + 1]). */
struct copse_cuda_rounds {
  struct copse_cuda_rounds *next;
  struct copse_rounds *rounds;
  unsigned char *memory; /* of cursors and items */
  struct copse_cursor *cursors;
  struct copse_unpack_item *items;
  uint32_t *first_item; /* [n_rounds + 1] on the host; NULL where there are no inboxes */
};

/* ---- the watch -------------------------------------------------------------------------- */

/* Joins the ranks by a communicator of the backend's own and starts a thread that watches it.
 * `mine`: how all before it went here. Collective. */
copse_status copse_watch_open(struct copse_cuda *cuda, copse_status mine, struct copse_err *err);
void copse_watch_close(struct copse_cuda *cuda);
/* Begins calls of NCCL on the communicator. Fails, and nothing is to be ended, where it was
 * aborted. A test calls it in the place of a thread that is in the midst of a call. */
copse_status copse_watch_begin(struct copse_cuda *cuda, struct copse_err *err);
