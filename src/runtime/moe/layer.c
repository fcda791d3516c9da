/* A Mixture-of-Experts layer's shape and memory on any backend, and its steps on the CPU, one
 * thread a rank. Dispatch and combine are those of Tutel (Hwang et al., arXiv 2206.03382). */
#include <stdlib.h>

#include "base/memory.h"
#include "base/types.h"
#include "runtime/moe/steps.h"

struct copse_moe_row copse_moe_combined_row(const struct copse_moe_config *config) {
  return config->combined.elements != 0 ? config->combined : config->row;
}

static copse_status check_row(const struct copse_moe_row *row, const char *name,
                              struct copse_err *err) {
  if ((int)row->type < 0 || row->type >= COPSE_N_TYPES)
    return copse_fail(err, COPSE_INVALID, "%s.type is %d, not a copse_type", name, (int)row->type);
  if (row->elements < 1 || row->elements > INT32_MAX / 8)
    return copse_fail(err, COPSE_INVALID, "%s.elements is %lld, must be 1 to %d", name,
                      (long long)row->elements, INT32_MAX / 8);
  return COPSE_OK;
}

static copse_status check_config(const struct copse_moe_config *config, struct copse_err *err) {
  COPSE_DO(check_row(&config->row, "row", err));
  if (config->combined.elements != 0) COPSE_DO(check_row(&config->combined, "combined", err));
  if (config->n_experts < 1)
    return copse_fail(err, COPSE_INVALID, "n_experts is %d, must be at least 1", config->n_experts);
  if (config->top_k < 1 || config->top_k > COPSE_MOE_MAX_TOP_K)
    return copse_fail(err, COPSE_INVALID, "top_k is %d, must be 1 to %d", config->top_k,
                      COPSE_MOE_MAX_TOP_K);
  if (config->max_tokens < 0)
    return copse_fail(err, COPSE_INVALID, "max_tokens is %lld, must not be negative",
                      (long long)config->max_tokens);
  if (config->capacity < COPSE_MOE_EXACT)
    return copse_fail(err, COPSE_INVALID,
                      "capacity is %lld, must not be negative (or COPSE_MOE_EXACT)",
                      (long long)config->capacity);
  if (config->padded && config->capacity == COPSE_MOE_EXACT)
    return copse_fail(err, COPSE_INVALID, "padded rows need a capacity");
  return COPSE_OK;
}

/* Bounds the rows between two ranks and of one rank; both must fit int32. */
static copse_status bound_rows(const struct copse_moe_config *config, struct copse_moe_job *job,
                               struct copse_err *err) {
  unsigned __int128 choices = (unsigned __int128)config->max_tokens * job->top_k;
  /* a rank owns this many experts or one fewer */
  uint32_t most = (job->n_experts + job->n_ranks - 1) / job->n_ranks;
  unsigned __int128 block = choices, padded = 0;
  if (config->capacity != COPSE_MOE_EXACT) {
    unsigned __int128 cut = (unsigned __int128)config->capacity * most;
    if (cut < block) block = cut;
    if (config->padded) padded = cut * job->n_ranks;
  }
  if (choices > INT32_MAX || block * job->n_ranks > INT32_MAX || padded > INT32_MAX)
    return copse_fail(err, COPSE_OVERFLOW,
                      "%lld tokens with %u choices on %u ranks: a rank could get more than "
                      "2^31 - 1 rows; lower max_tokens or capacity",
                      (long long)config->max_tokens, job->top_k, job->n_ranks);
  job->block_rows = (uint32_t)block;
  job->capacity = COPSE_MOE_NONE;
  if (config->capacity != COPSE_MOE_EXACT && config->capacity < INT32_MAX)
    job->capacity = (uint32_t)config->capacity;
  job->padded = config->padded != 0;
  return COPSE_OK;
}

copse_status copse_moe_shape(const struct copse_moe_config *config, uint32_t n_ranks, uint32_t rank,
                             struct copse_moe_job *job, struct copse_err *err) {
  *job = (struct copse_moe_job){0};
  COPSE_DO(check_config(config, err));
  job->n_ranks = n_ranks;
  job->rank = rank;
  job->n_experts = (uint32_t)config->n_experts;
  job->top_k = (uint32_t)config->top_k;
  job->first_expert = copse_moe_first_of(rank, n_ranks, job->n_experts);
  job->n_local = copse_moe_first_of(rank + 1, n_ranks, job->n_experts) - job->first_expert;
  if ((uint64_t)job->n_experts * n_ranks > INT32_MAX)
    return copse_fail(err, COPSE_OVERFLOW, "%d experts on %u ranks are too many", config->n_experts,
                      n_ranks);
  job->n_places = job->n_local * n_ranks;
  job->dispatched_elements = (uint64_t)config->row.elements;
  job->combined_elements = (uint64_t)copse_moe_combined_row(config).elements;
  return bound_rows(config, job, err);
}

uint64_t copse_moe_rows_at_most(const struct copse_moe_job *job) {
  const uint64_t cut = (uint64_t)job->n_places * job->capacity;
  /* a rank may own one expert fewer than blocks have room for */
  const uint64_t most = job->n_local ? (uint64_t)job->n_ranks * job->block_rows : 0;
  return job->padded || cut < most ? cut : most;
}

/* ---- memory ------------------------------------------------------------------------------ */

#define ALIGNMENT 256u

/* Cuts one piece of memory into arrays; without memory it only measures. The sum stays below 2^64:
 * at most 2^31 rows of 2^31 bytes twice, and smaller arrays. */
struct carver {
  unsigned char *memory;
  uint64_t used;
};

static void *carve(struct carver *carver, uint64_t n, uint64_t size) {
  void *part = carver->memory ? carver->memory + carver->used : NULL;
  carver->used = copse_round_up(carver->used + n * size, ALIGNMENT);
  return part;
}

static uint64_t row_bytes(const struct copse_moe_row *row) {
  return (uint64_t)row->elements * copse_type_bytes(row->type);
}

static void carve_job(struct carver *carver, struct copse_moe_job *job,
                      const struct copse_moe_config *config) {
  const uint64_t choices = (uint64_t)config->max_tokens * job->top_k, word = sizeof(uint32_t);
  const uint64_t n = job->n_ranks, n_pairs = n * n;
  const struct copse_moe_row back = copse_moe_combined_row(config);
  uint64_t widest = row_bytes(&config->row);
  if (row_bytes(&back) > widest) widest = row_bytes(&back);
  job->location = carve(carver, choices, word);
  job->slot = carve(carver, choices, word);
  job->chosen = carve(carver, (uint64_t)job->n_experts + 2, word);
  job->taken = carve(carver, n * job->n_experts, word);
  job->send_first = carve(carver, job->n_experts, word);
  job->expert_counts = carve(carver, job->n_local, word);
  job->expert_offsets = carve(carver, (uint64_t)job->n_local + 1, word);
  job->place_row = carve(carver, (uint64_t)job->n_places + 1, word);
  job->place_from = carve(carver, job->n_places, word);
  job->pairs = carve(carver, n_pairs, sizeof(uint64_t));
  job->pairs_back = carve(carver, n_pairs, sizeof(uint64_t));
  job->near_rows = carve(carver, n * job->block_rows, widest);
  job->far_rows = n == 1 ? job->near_rows : carve(carver, n * job->block_rows, widest);
}

copse_status copse_moe_furnish(struct copse_moe_job *job, const struct copse_moe_config *config,
                               const struct copse_moe_ops *ops, int device, void **memory,
                               struct copse_err *err) {
  struct carver carver = {NULL, 0};
  *memory = NULL;
  carve_job(&carver, job, config);
  COPSE_DO(ops->take(device, (size_t)carver.used, memory, err));
  carver = (struct carver){*memory, 0};
  carve_job(&carver, job, config);
  return COPSE_OK;
}

void copse_moe_set_row(struct copse_moe_job *job, const struct copse_moe_row *row,
                       const void *tokens, const void *rows) {
  job->type = (uint32_t)row->type;
  job->row_bytes = row_bytes(row);
  job->unit = 16;
  uint64_t places = job->row_bytes | (uint64_t)(uintptr_t)tokens | (uint64_t)(uintptr_t)rows;
  while (places % job->unit != 0) job->unit /= 2;
}

/* ---- the steps on the CPU ------------------------------------------------------------------ */

static copse_status take(int device, size_t bytes, void **memory, struct copse_err *err) {
  (void)device;
  *memory = NULL;
  return copse_calloc_aligned(ALIGNMENT, bytes, 1, memory, err);
}

static void give_back(int device, void *memory) {
  (void)device;
  free(memory);
}

static copse_status run(int device, enum copse_moe_step step, const struct copse_moe_job *job,
                        copse_stream stream, struct copse_err *err) {
  static const struct copse_moe_lane alone = {0, 1, 0, 1};
  (void)device;
  (void)stream;
  switch (step) {
    case COPSE_MOE_LOCATE: copse_moe_locate_alone(job); return COPSE_OK;
    case COPSE_MOE_PLAN:
      copse_moe_plan_pairs(job, 0, 1);
      copse_moe_plan_offsets(job, 0, 1);
      copse_moe_plan_places(job, 0, 1);
      return COPSE_OK;
    case COPSE_MOE_PACK: copse_moe_pack(job, alone); return COPSE_OK;
    case COPSE_MOE_UNPACK: copse_moe_unpack(job, alone); return COPSE_OK;
    case COPSE_MOE_COLLECT: copse_moe_collect(job, alone); return COPSE_OK;
    case COPSE_MOE_REDUCE: copse_moe_reduce(job, alone); return COPSE_OK;
  }
  return copse_fail(err, COPSE_INTERNAL, "no such step of a layer: %d", (int)step);
}

const struct copse_moe_ops copse_moe_cpu = {take, give_back, run, NULL};
