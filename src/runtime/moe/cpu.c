/* The steps of a Mixture-of-Experts layer on the CPU: one thread a rank. */
#include <stdlib.h>
#include <string.h>

#include "runtime/moe/steps.h"

static copse_status take(int device, uint64_t bytes, void **memory, struct copse_err *err) {
  (void)device;
  *memory = NULL;
  if (bytes > SIZE_MAX / 2) return copse_fail_nomem(err);
  /* a multiple of the alignment, as C11 wants it, and never empty */
  size_t size = ((size_t)bytes + 256) / 256 * 256;
  *memory = aligned_alloc(256, size);
  if (!*memory) return copse_fail_nomem(err);
  memset(*memory, 0, size);
  return COPSE_OK;
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
