/* The interpreter: what one worker does, on every CPU backend. */
#include "runtime/element_move.h"
#include "runtime/exec_internal.h"

static void *operand_address(const struct copse_exec *exec,
                             const struct copse_plan_operand *operand, struct copse_span chunk,
                             uint32_t c) {
  void *base;
  switch (operand->buffer) {
    case COPSE_BUFFER_INPUT: base = exec->launch.inputs[operand->rank]; break;
    case COPSE_BUFFER_OUTPUT: base = exec->launch.outputs[operand->rank]; break;
    default: base = exec->scratch[operand->rank]; break;
  }
  return (char *)base + copse_layout_offset(&exec->layout, operand, chunk, c);
}

static void run_move(const struct copse_exec *exec, const struct copse_plan_op *op, uint32_t c) {
  struct copse_span chunk = copse_layout_chunk(&exec->layout, op->piece, c);
  if (chunk.count == 0) return;
  const void *src[COPSE_MOVE_MAX_OPERANDS];
  void *dst[COPSE_MOVE_MAX_OPERANDS];
  const struct copse_plan_operand *operand = &exec->plan->operands[op->operand];
  for (uint32_t k = 0; k < op->n_src; k++) src[k] = operand_address(exec, operand++, chunk, c);
  for (uint32_t k = 0; k < op->n_dst; k++) dst[k] = operand_address(exec, operand++, chunk, c);
  bool divides = exec->launch.redop == COPSE_AVG && (op->flags & COPSE_MOVE_FINAL);
  const struct copse_move move = {.type = exec->launch.type,
                                  .redop = exec->launch.redop,
                                  .n_src = op->n_src,
                                  .n_dst = op->n_dst,
                                  .divisor = divides ? exec->plan->header.n_ranks : 1,
                                  .count = chunk.count,
                                  .src = src,
                                  .dst = dst};
  copse_move_run(&move, 0, 1);
}

/* The worker is the only writer of the counter, so no read-modify-write is needed. */
static void raise_signal(struct copse_exec_channel *channel) {
  uint64_t signals = atomic_load_explicit(&channel->signals, memory_order_relaxed);
  atomic_store_explicit(&channel->signals, signals + 1, memory_order_release);
}

enum copse_exec_step copse_exec_advance(struct copse_exec *exec, uint32_t w, uint32_t *channel) {
  const struct copse_plan_worker *worker = &exec->plan->workers[w];
  const struct copse_plan_op *ops = &exec->plan->ops[worker->first_op];
  const uint32_t n_chunks = exec->layout.n_chunks, fifo = exec->plan->header.fifo;
  struct copse_exec_worker *at = &exec->workers[w];
  if (worker->n_ops == 0) at->chunk = n_chunks;
  for (; at->chunk < n_chunks; at->chunk++, at->op = 0)
    while (at->op < worker->n_ops) {
      const struct copse_plan_op *op = &ops[at->op];
      if (!copse_op_runs(op->when, at->chunk, n_chunks, fifo)) {
        at->op++;
        continue;
      }
      if (op->kind == COPSE_OP_MOVE) {
        run_move(exec, op, at->chunk);
        at->op++;
        continue;
      }
      *channel = op->channel;
      if (op->kind == COPSE_OP_WAIT) {
        if (!copse_exec_is_signalled(&exec->channels[op->channel])) return COPSE_STEP_WAITS;
        exec->channels[op->channel].waits++;
        at->op++;
        continue;
      }
      at->op++;
      raise_signal(&exec->channels[op->channel]);
      return COPSE_STEP_SIGNALLED;
    }
  at->finished = true;
  return COPSE_STEP_FINISHED;
}
