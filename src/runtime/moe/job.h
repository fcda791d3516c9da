/*
 * One rank's part of a Mixture-of-Experts layer as its steps see it, and what the steps need of a
 * backend. In the common subset of C11, C++17 and CUDA C++.
 *
 *   dispatch   LOCATE   allgather   PLAN   PACK    alltoallv   UNPACK
 *              tokens   of taken           -> near  near->far  -> rows by expert
 *   combine    COLLECT  alltoallv   REDUCE
 *              -> far   far->near   -> tokens
 *
 * Where messages must be exact the counts travel to the host while PACK runs.
 */
#pragma once

#include "base/err.h"
#include "copse/moe.h"
#include "runtime/plan/plan_math.h"

enum copse_moe_step {
  COPSE_MOE_LOCATE,  /* each choice's place within its expert; this rank's row of `taken` */
  COPSE_MOE_PLAN,    /* from every rank's `taken`: pairs, and where each expert's rows begin */
  COPSE_MOE_PACK,    /* tokens -> near */
  COPSE_MOE_UNPACK,  /* far -> rows */
  COPSE_MOE_COLLECT, /* rows -> far */
  COPSE_MOE_REDUCE   /* near -> tokens */
};

/* No row, or no limit: see the members that may have this value. */
#define COPSE_MOE_NONE UINT32_MAX

/* Plain data, passed to kernels by value. A source is a rank whose tokens come here. A place is a
 * pair (expert of this rank, source), expert major: n_places = n_local * n_ranks. */
struct copse_moe_job {
  /* The layer. */
  uint32_t n_ranks, rank, n_experts, top_k;
  uint32_t first_expert, n_local, n_places;
  uint32_t capacity;   /* rows of an expert from one source; COPSE_MOE_NONE: unlimited */
  uint32_t padded;     /* places are `capacity` rows apart */
  uint32_t block_rows; /* of a block of near or far */
  uint64_t dispatched_elements, combined_elements;

  /* Its memory. */
  uint32_t *location;       /* [max_tokens * top_k] among the choices of the same bin */
  uint32_t *slot;           /* [max_tokens * top_k] row of near, or COPSE_MOE_NONE */
  uint32_t *chosen;         /* [n_experts + 2] choices of each bin: experts, -1, invalid */
  uint32_t *taken;          /* [n_ranks][n_experts] */
  uint32_t *send_first;     /* [n_experts] its first row in the block to its rank */
  uint32_t *expert_counts;  /* [n_local] */
  uint32_t *expert_offsets; /* [n_local + 1] */
  uint32_t *place_row;      /* [n_places + 1] a place's first row, and the end of the last */
  uint32_t *place_from;     /* [n_places] its first row in far */
  uint64_t *pairs;          /* [n_ranks][n_ranks] elements from rank to rank */
  uint64_t *pairs_back;     /* the transpose, in elements of a combined row */
  unsigned char *near_rows; /* [n_ranks][block_rows] by destination */
  unsigned char *far_rows;  /* [n_ranks][block_rows] by source; one rank: the same memory */

  /* The call. */
  uint32_t n_tokens;
  uint32_t type; /* enum copse_type */
  uint32_t unit; /* bytes that rows are moved in, 1, 2, 4, 8 or 16: all rows are aligned to it */
  uint64_t row_bytes;
  const int32_t *expert_ids, *order;
  const void *weights; /* PACK: scales; REDUCE: weights; or NULL */
  const unsigned char *tokens_in;
  unsigned char *tokens_out, *rows;
};

/* Returns the first expert of a rank. */
COPSE_HD static inline uint32_t copse_moe_first_of(uint32_t rank, uint32_t n_ranks,
                                                   uint32_t n_experts) {
  return (uint32_t)((uint64_t)rank * n_experts / n_ranks);
}

/* The host's copy of the counts that a GPU computed, by which it sizes messages between hosts.
 * [n_ranks][n_ranks] each as in the job, in page-locked memory. */
struct copse_moe_counts {
  const uint64_t *pairs, *pairs_back;
  void *memory, *there; /* the backend's: what holds them, and an event after the copy */
};

struct copse_moe_counts_ops {
  copse_status (*take)(int device, uint32_t n_ranks, struct copse_moe_counts *counts,
                       struct copse_err *err);
  void (*give_back)(int device, struct copse_moe_counts *counts); /* takes zeroed counts */
  /* Enqueues the copy, after PLAN. */
  copse_status (*fetch)(int device, const struct copse_moe_job *job,
                        const struct copse_moe_counts *counts, copse_stream stream,
                        struct copse_err *err);
  /* Waits for the copy, not for what was enqueued behind it. */
  copse_status (*wait)(int device, const struct copse_moe_counts *counts, struct copse_err *err);
  bool (*is_captured)(int device, copse_stream stream);
};

/* A backend that steps run on. */
struct copse_moe_ops {
  /* Zeroed, aligned to 256 bytes. */
  copse_status (*take)(int device, size_t bytes, void **memory, struct copse_err *err);
  void (*give_back)(int device, void *memory); /* takes NULL */
  /* Runs (CPU) or enqueues (GPU). */
  copse_status (*run)(int device, enum copse_moe_step step, const struct copse_moe_job *job,
                      copse_stream stream, struct copse_err *err);
  const struct copse_moe_counts_ops *counts; /* NULL: the host reads the job's own */
};

extern const struct copse_moe_ops copse_moe_cpu;
extern const struct copse_moe_ops copse_moe_cuda; /* only in builds with CUDA: runtime/gpu/gpu.h */

/* ---- a layer's memory: layer.c ------------------------------------------------------ */

/* Checks the configuration and computes the shape, without memory. */
copse_status copse_moe_shape(const struct copse_moe_config *config, uint32_t n_ranks, uint32_t rank,
                             struct copse_moe_job *job, struct copse_err *err) COPSE_CHECKED;

/* Returns the most rows that this rank can get. */
uint64_t copse_moe_rows_at_most(const struct copse_moe_job *job);

/* Returns the row of a combination. */
struct copse_moe_row copse_moe_combined_row(const struct copse_moe_config *config);

/* Takes one piece of the device's memory for all arrays of a job whose shape is known. */
copse_status copse_moe_furnish(struct copse_moe_job *job, const struct copse_moe_config *config,
                               const struct copse_moe_ops *ops, int device, void **memory,
                               struct copse_err *err) COPSE_CHECKED;

/* Sets what a call moves: rows, and the unit to which both pointers and rows are aligned. */
void copse_moe_set_row(struct copse_moe_job *job, const struct copse_moe_row *row,
                       const void *tokens, const void *rows);
