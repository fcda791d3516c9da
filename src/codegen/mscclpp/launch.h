/*
 * Inside codegen/mscclpp: the state of one symbolic launch of an MSCCL++ plan: who did what, who
 * knows of it, and what waits for what. The first defect is kept in `status`; after it functions do
 * nothing of consequence.
 */
#ifndef COPSE_CODEGEN_MSCCLPP_LAUNCH_H
#define COPSE_CODEGEN_MSCCLPP_LAUNCH_H

#include "codegen/mscclpp/file.h"

enum { COPSE_PJ_MAX_OPS = 64 };

/* Threads of an op with packets. */
enum {
  COPSE_PJ_PACKET_READS,
  COPSE_PJ_PACKET_WRITES,
  COPSE_PJ_PACKET_CARRIES,
  COPSE_PJ_PACKET_THREADS
};

struct copse_pj_histories {
  struct copse_history **v;
  size_t first, n, capacity; /* [first, n) are there */
};

struct copse_pj_state {
  int op;
  int round, rounds, loop; /* within the pipeline op `loop`, -1: in none */
  int *op_of;              /* [times] the op of each action */
  size_t n_times, times_capacity;
  struct copse_pj_histories learned; /* by waits since the threads met last */
  bool arrived;                      /* at the barrier that it stands at */
};

struct copse_pj_end_state {
  struct copse_pj_histories in; /* signals on their way to this end */
  int waiter, signaller;        /* the one block that does, -1: none yet */
  int *op_of;                   /* [n_times] block and op of each action of the port's proxy */
  size_t n_times, times_capacity;
};

struct copse_pj_semaphore {
  int64_t value;
  int acquirer, n_acquired;
  struct copse_pj_histories released;
};

/* A chunk's slice in packet form. */
struct copse_pj_packet {
  struct copse_value value;
  struct copse_history *history; /* of the reads that it is made from; NULL: not there */
};

struct copse_pj_launch {
  const struct copse_pj_file *f;
  struct copse_cells *cells;
  struct copse_threads *threads; /* the cells' */
  struct copse_pj_state *states;
  struct copse_pj_end_state *ends;
  struct copse_pj_semaphore *semaphores;
  struct copse_pj_packet **packets; /* [n_ranks][scratch * slices], where a rank has any */
  int first_entry, first_proxy, first_end, first_packet;
  int slices;
  int64_t chunk_bytes;
  uint64_t *actions;
  struct copse_arena arena;
  copse_status status;
  struct copse_err *err;
};

/* ---- who did what, and who knows of it ----------------------------------------------------- */

/* For copse_cells_of: what an action is called; its line, or 0. */
long copse_pj_name_action(const void *run, struct copse_action action, char text[64]);

/* COPSE_REFUTED: the op at which the block stands `what`. */
void copse_pj_refute(struct copse_pj_launch *r, int block, const char *what);
/* COPSE_UNSUPPORTED: `what`, which this checker does not follow. */
void copse_pj_not_followed(struct copse_pj_launch *r, long line, const char *what);

/* What the thread knows by now; NULL after a defect. */
struct copse_history *copse_pj_take(struct copse_pj_launch *r, int thread);
/* Takes h over. */
void copse_pj_append(struct copse_pj_launch *r, struct copse_pj_histories *list,
                     struct copse_history *h);
void copse_pj_drop_all(struct copse_pj_histories *list);

/* What one thread knows, to another. */
void copse_pj_pass_on(struct copse_pj_launch *r, int from, int to);
/* The block's threads meet: each knows what any did and learned. */
void copse_pj_meet(struct copse_pj_launch *r, int block);

struct copse_action copse_pj_act(struct copse_pj_launch *r, int block);
/* The proxy of a port acts, after all that the block has done before it last met. */
struct copse_action copse_pj_act_through(struct copse_pj_launch *r, int block, int end);

/* ---- what an op does that waits or signals; tries: whether it could -------------------------- */

bool copse_pj_try_sync(struct copse_pj_launch *r, int block, const struct copse_pj_op *op);
/* Sends what the block knows, or, relaxed, only that its rank has entered. */
void copse_pj_signal(struct copse_pj_launch *r, int block, int end, bool relaxed);
/* A flush of a port waits for what went through it, if it names as many destinations. */
void copse_pj_flush(struct copse_pj_launch *r, int block, const struct copse_pj_op *op);
/* A barrier's other blocks are moved as well. */
bool copse_pj_try_barrier(struct copse_pj_launch *r, int block, const struct copse_pj_op *op);
/* The one acquirer of a semaphore learns of the release that it needed: for sure if one block
 * releases, or if it was the last of all. */
bool copse_pj_try_acquire(struct copse_pj_launch *r, int block, const struct copse_pj_op *op);
void copse_pj_release(struct copse_pj_launch *r, int block, const struct copse_pj_op *op);

#endif
