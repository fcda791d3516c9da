/*
 * Inside src/runtime/cuda only: what host and kernel hand each other. Plain data; C11 and
 * CUDA C++.
 */
#ifndef COPSE_RUNTIME_CUDA_LAUNCH_H
#define COPSE_RUNTIME_CUDA_LAUNCH_H

#include "runtime/view.h"

/* Why a kernel leaves before its end. */
enum copse_leave { COPSE_LEAVE_NOT = 0, COPSE_LEAVE_ABORT = 1, COPSE_LEAVE_TIMEOUT = 2 };

/*
 * In pinned host memory that the GPU sees: one per clique and process. The host sets `leave` to
 * end all kernels; a worker that has waited too long claims the report, fills it in and sets
 * it too.
 */
struct copse_control {
  uint32_t leave; /* enum copse_leave */
  uint32_t claimed;
  uint32_t worker, op, chunk; /* of the plan that runs: where it waited */
};

/* A channel: its counter lies where it is waited on. */
struct copse_channel_place {
  uint32_t rank;    /* of the waiting worker */
  uint32_t ordinal; /* of the counter among the rank's */
};

/* A launch, passed by value. All pointers are this device's. */
struct copse_launch_args {
  struct copse_view view;
  const struct copse_plan_worker *workers;    /* [n_workers] of the plan */
  const uint32_t *worker_of_block;            /* [gridDim.x] */
  const struct copse_channel_place *channels; /* [n_channels] */
  uint64_t *const *signals; /* [n_ranks] counters of the channels waited on there */
  uint64_t *sent;           /* [n_channels] how often each was raised: this device's workers */
  uint64_t *taken;          /* [n_channels] how often each was waited for */
  uint32_t *epochs;         /* [n_workers] launches so far */
  struct copse_control *control;
  uint64_t limit_ns;
  uint32_t system;      /* some rank is on another device */
  uint32_t low_latency; /* packets tell of themselves */
  /* Inputs and outputs of this device's ranks change from launch to launch: */
  uint32_t n_local;
  struct copse_local_rank {
    uint32_t rank;
    unsigned char *input, *output;
  } local[64];
};

#endif
