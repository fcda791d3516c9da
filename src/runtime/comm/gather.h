/*
 * Inside src/runtime: bringing together the calls of a communicator's ranks in this process.
 *
 * Every rank has a queue of calls. When no queue is empty, the heads are a batch, which the
 * thread that completed it launches, with the batches behind it that are complete too, in order.
 * All others wait for the end of their calls. A group queues all its calls before it runs or waits
 * for any, so that a thread may hold many ranks, and ranks of many communicators.
 *
 *   what happens                               the batch               afterwards
 *   ----------------------------------------   ---------------------   ------------------
 *   calls differ, no plan, refused arguments   fails at all its ranks   usable
 *   nobody calls within the time limit         all waiting calls fail   broken, TIMEOUT
 *   abort                                      all waiting calls fail   broken, ABORTED
 *   the backend fails                          fails at all its ranks   broken, its status
 *   a rank destroys its communicator           all waiting calls fail   only to be destroyed
 */
#pragma once

#include <pthread.h>

#include "runtime/backend/backend.h"

/* ---- one rank's call, as arguments and in words ---------------------------------------------- */

#define COPSE_CALL_TEXT 96

/* Describes a call: "all_reduce of 100 float sum", "broadcast of 7 int32, root 2". */
void copse_call_describe(const struct copse_call *call, char text[COPSE_CALL_TEXT]);

/*
 * Checks everything about a call that its rank can see by itself; COPSE_INVALID names the
 * argument. Types and reductions must exist, the root be a rank, sizes fit, buffers be there (but
 * those that NCCL ignores: a broadcast's input and a reduce's output but at the root), aligned to
 * their elements, and either apart or in place exactly as NCCL has it: output == input, for
 * all_gather input == output + rank * count, for reduce_scatter output == input + rank * count,
 * all_to_all never.
 */
copse_status copse_call_check(const struct copse_call *call, uint32_t n_ranks, uint32_t rank,
                              struct copse_err *err) COPSE_CHECKED;

/* A call on its way; the caller's, until copse_gather_wait has returned. */
struct copse_pending {
  struct copse_call call;
  struct copse_err result; /* status and text */
  bool done;
  struct copse_pending *next;
};

struct copse_gather_queue {
  struct copse_pending *head, *tail;
  struct copse_pending *runs; /* the first in the batches that run */
};

/* Rounds that run in one launch, at most. */
#define COPSE_GATHER_MOST 16u

struct copse_gather_batch {
  const struct copse_call *calls; /* [n] */
  struct copse_err result;        /* one that is refused already isn't launched */
};

struct copse_gather {
  pthread_mutex_t lock;              /* of all below; never held during a launch */
  pthread_cond_t changed;            /* on CLOCK_MONOTONIC */
  uint32_t first_rank, n;            /* the ranks of this process */
  uint32_t n_waiting;                /* queues that are not empty */
  struct copse_gather_queue *queues; /* [n] */
  struct copse_call *calls;          /* [COPSE_GATHER_MOST][n] of the batches that run */
  struct copse_gather_batch batches[COPSE_GATHER_MOST];
  bool running;
  uint64_t n_batches;
  double timeout_seconds;
  struct copse_err broken; /* COPSE_OK: it isn't */
  struct copse_err left;   /* names the rank that has destroyed its communicator */

  /* Runs n batches; called without the lock, by one thread at a time. *breaks: why no later batch
   * may run. */
  void (*launch)(void *context, struct copse_gather_batch *batches, uint32_t n,
                 struct copse_err *breaks);
  void *context;
};

/* Prepares `gather`, which is zeroed but for launch and context. */
copse_status copse_gather_init(struct copse_gather *gather, uint32_t first_rank, uint32_t n,
                               struct copse_err *err) COPSE_CHECKED;
void copse_gather_destroy(struct copse_gather *gather);

/* Queues a call of a rank (counted from first_rank). */
void copse_gather_queue(struct copse_gather *gather, uint32_t local_rank,
                        struct copse_pending *pending);
/* Runs all batches that are complete. */
void copse_gather_run(struct copse_gather *gather);
/* Waits until the call is done; its result is in pending->result. */
void copse_gather_wait(struct copse_gather *gather, struct copse_pending *pending);

/* Ends all waiting calls, and refuses all later ones, with `why`. The first reason stays. */
void copse_gather_break(struct copse_gather *gather, const struct copse_err *why);
/* Returns why it is broken, or COPSE_OK. */
copse_status copse_gather_broken(struct copse_gather *gather, struct copse_err *err);

/* Ends the rank's part: it makes no more calls. */
void copse_gather_leave(struct copse_gather *gather, uint32_t local_rank);

void copse_gather_set_timeout(struct copse_gather *gather, double seconds);

/* ---- agreement of processes ------------------------------------------------------------------ */

/*
 * Whether all processes of a communicator go on alike. Collective over the bootstrap; without one
 * it only returns `mine`. `mine` is how this rank has fared so far (err then has the text): if
 * anywhere it is not COPSE_OK, no rank goes on. `plans` (n may be 0) are those that this rank is
 * about to add: all ranks must have the same. COPSE_REFUTED names the ranks that have failed, or
 * whose plans differ from rank 0's.
 */
copse_status copse_agree(const struct copse_comm_shape *shape, copse_status mine,
                         const struct copse_plan *const *plans, size_t n,
                         struct copse_err *err) COPSE_CHECKED;

/* Computes the size of a message as nccl-tests counts it: of the larger of a rank's buffers.
 * `count` elements are a block. COPSE_INVALID where buffers would be too large for any plan. */
copse_status copse_message_bytes(copse_collective collective, uint32_t n_ranks, uint64_t count,
                                 copse_type type, uint64_t *bytes,
                                 struct copse_err *err) COPSE_CHECKED;
