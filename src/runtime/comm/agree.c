/* Agreement of all processes of a communicator: an all-gather of status and checksums of plans,
 * from which every rank draws the same conclusion. */
#include "runtime/comm/agree.h"

#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "runtime/comm/call.h"

/* What a rank tells the others. All processes run on hosts of one kind. */
struct vote {
  uint32_t status; /* copse_status */
  uint32_t n_plans;
  uint8_t digest[COPSE_SHA256_BYTES]; /* of the plans' own checksums */
};

static copse_status digest_plans(const struct copse_plan *const *plans, size_t n,
                                 uint8_t digest[COPSE_SHA256_BYTES], struct copse_err *err) {
  COPSE_AT_END(copse_free_at) uint8_t *checksums = NULL;
  COPSE_DO(copse_calloc(n, COPSE_SHA256_BYTES, &checksums, err));
  for (size_t i = 0; i < n; i++)
    COPSE_DO(copse_plan_checksum(plans[i], checksums + i * COPSE_SHA256_BYTES, err));
  copse_sha256(checksums, n * COPSE_SHA256_BYTES, digest);
  return COPSE_OK;
}

static bool has_failed(const void *context, uint32_t r) {
  const struct vote *votes = context;
  return votes[r].status != COPSE_OK;
}

static bool differs(const void *context, uint32_t r) {
  const struct vote *votes = context;
  return memcmp(&votes[r], &votes[0], sizeof *votes) != 0;
}

/* Of as many ranks as GPUs have, so that there no memory is needed: a rank that has none left must
 * still say so. */
#define FEW_RANKS 128

static copse_status judge(const struct vote *votes, uint32_t n_ranks, struct copse_err *err) {
  char ranks[COPSE_RANKS_TEXT];
  for (uint32_t r = 0; r < n_ranks; r++) {
    if (!has_failed(votes, r)) continue;
    copse_ranks_describe(has_failed, votes, 0, n_ranks, ranks);
    return copse_fail(err, COPSE_REFUTED, "stopped on all ranks because %s failed (rank %u: %s)",
                      ranks, r, copse_status_string((copse_status)votes[r].status));
  }
  for (uint32_t r = 1; r < n_ranks; r++) {
    if (!differs(votes, r)) continue;
    copse_ranks_describe(differs, votes, 0, n_ranks, ranks);
    return copse_fail(err, COPSE_REFUTED,
                      "no plan is added: %s has not the %u plans that rank 0 has (by checksum)",
                      ranks, votes[0].n_plans);
  }
  return COPSE_OK;
}

copse_status copse_agree(const struct copse_comm_shape *shape, copse_status mine,
                         const struct copse_plan *const *plans, size_t n, struct copse_err *err) {
  COPSE_AT_END(copse_free_at) struct vote *many = NULL;
  struct vote vote, few[FEW_RANKS], *votes = few;
  if (!shape->bootstrap) return mine;
  memset(&vote, 0, sizeof vote);
  vote.n_plans = (uint32_t)n;
  if (mine == COPSE_OK) mine = digest_plans(plans, n, vote.digest, err);
  vote.status = (uint32_t)mine;
  if (shape->n_ranks > FEW_RANKS) {
    COPSE_DO(copse_calloc(shape->n_ranks, sizeof *many, &many, err));
    votes = many;
  }
  const copse_status status =
      shape->bootstrap->all_gather(shape->bootstrap->context, &vote, votes, sizeof vote);
  if (status != COPSE_OK) {
    if (shape->bootstrap_error) (void)shape->bootstrap_error(shape->bootstrap->context, err);
    return copse_fail(err, status, "the bootstrap's all_gather failed");
  }
  return mine != COPSE_OK ? mine : judge(votes, shape->n_ranks, err);
}
