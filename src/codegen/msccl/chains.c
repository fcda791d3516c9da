/* An alltoall's chains as MSCCL steps: from the sender's input over scratch to the output. */
#include "codegen/msccl/emit.h"

static copse_status add(const struct copse_chunk_run *span, struct copse_msccl_program *p, int block,
                        enum copse_msccl_op op, struct copse_msccl_place src,
                        struct copse_msccl_place dst, struct copse_msccl_ref *ref) {
  struct copse_msccl_step step = {.op = op, .src = src, .dst = dst, .count = span->count};
  struct copse_msccl_ref after = *ref;
  return copse_msccl_add(p, block, &step, &after, 1, ref);
}

/* The place of the span at the chain's stop `i`. */
static struct copse_msccl_place place(const struct copse_msccl_job *job,
                                      const struct copse_chunk_run *span, struct copse_msccl_program *p,
                                      int i) {
  const struct copse_chain *c = span->chain;
  int first = c->ranks[0], last = c->ranks[c->n - 1];
  if (i == c->n - 1) return (struct copse_msccl_place){'o', first * job->cut.block + span->offset};
  if (i == 0) return (struct copse_msccl_place){'i', last * job->cut.block + span->offset};
  return copse_msccl_scratch(p, c->ranks[i], span->count);
}

/* The block that takes the span at stop i and, if it can, sends it on: *both. */
static copse_status block_at(const struct copse_msccl_job *job, struct copse_msccl_program *p,
                             const struct copse_chain *c, int i, int channel, int next, int *block,
                             bool *both) {
  copse_status status = COPSE_OK;
  *block = -1;
  if (job->fused && i + 1 < c->n && next == channel)
    COPSE_TRY(copse_msccl_block_of_both(p, c->ranks[i], c->ranks[i + 1], c->ranks[i - 1], channel,
                                        block));
  *both = *block >= 0;
  if (!*both) COPSE_TRY(copse_msccl_block(p, c->ranks[i], -1, c->ranks[i - 1], channel, block));
out:
  return status;
}

static copse_status emit(const struct copse_msccl_job *job, const struct copse_chunk_run *span,
                         struct copse_msccl_program *p) {
  const struct copse_chain *c = span->chain;
  struct copse_msccl_place at = place(job, span, p, 0);
  struct copse_msccl_ref have = COPSE_MSCCL_NO_REF;
  int block, channel = -1;
  bool sent = false;
  copse_status status = COPSE_OK;
  if (c->n == 1) {
    struct copse_msccl_place own = {'i', at.offset};
    COPSE_TRY(copse_msccl_block(p, c->ranks[0], -1, -1, 0, &block));
    return add(span, p, block, COPSE_MSCCL_CPY, own, at, &have);
  }
  for (int i = 0; i < c->n; i++) {
    int next = -1;
    if (i + 1 < c->n) {
      next = copse_msccl_channel(p, c->ranks[i], c->ranks[i + 1], channel, span->count);
      if (next < 0)
        return copse_fail(p->err, COPSE_UNSUPPORTED, "no channel is left from rank %d to %d",
                          c->ranks[i], c->ranks[i + 1]);
    }
    sent = false;
    if (i > 0) {
      at = place(job, span, p, i);
      have = COPSE_MSCCL_NO_REF;
      COPSE_TRY(block_at(job, p, c, i, channel, next, &block, &sent));
      COPSE_TRY(add(span, p, block, sent ? COPSE_MSCCL_RCS : COPSE_MSCCL_R, at, at, &have));
    }
    if (next >= 0 && !sent) {
      COPSE_TRY(copse_msccl_block(p, c->ranks[i], c->ranks[i + 1], -1, next, &block));
      COPSE_TRY(add(span, p, block, COPSE_MSCCL_S, at, at, &have));
    }
    channel = next;
  }
out:
  return status;
}

copse_status copse_msccl_emit_chains(const struct copse_msccl_job *job,
                                     struct copse_msccl_program *p) {
  copse_status status = COPSE_OK;
  for (size_t i = 0; i < job->cut.n_runs; i++) COPSE_TRY(emit(job, &job->cut.runs[i], p));
out:
  return status;
}
