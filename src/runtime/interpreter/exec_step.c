/* The interpreter: what one worker does, on every CPU backend. */
#include "runtime/interpreter/element_move.h"
#include "runtime/interpreter/element_tile_cpu.h"
#include "runtime/interpreter/exec_internal.h"

/* Where an operation finds its data, on the stack of the worker that does it. */
struct places {
  struct copse_place src[COPSE_MOVE_MAX_OPERANDS], dst[COPSE_MOVE_MAX_OPERANDS];
};

/* What it stores at other ranks goes to a place of their own, from which it is sent. */
static uint32_t n_away(const struct copse_exec *exec, const struct copse_plan_op *op) {
  uint32_t n = 0;
  if (!exec->mesh) return 0;
  const struct copse_plan_operand *operand = &exec->view.operands[op->operand + op->n_src];
  for (uint32_t k = 0; k < op->n_dst; k++)
    if (!copse_exec_is_here(exec, operand[k].rank)) n++;
  return n;
}

/* The number of destinations here. */
static uint32_t find_places(const struct copse_exec *exec, const struct copse_plan_op *op,
                            struct copse_span chunk, uint32_t c, struct places *places) {
  const struct copse_plan_operand *operand = &exec->view.operands[op->operand];
  uint32_t n_dst = 0;
  for (uint32_t k = 0; k < op->n_src; k++)
    places->src[k] = copse_view_operand(&exec->view, operand++, chunk, c, exec->epoch);
  for (uint32_t k = 0; k < op->n_dst; k++, operand++)
    if (!exec->mesh || copse_exec_is_here(exec, operand->rank))
      places->dst[n_dst++] = copse_view_operand(&exec->view, operand, chunk, c, exec->epoch);
  return n_dst;
}

/* False when packets that it reads aren't there yet, or too much is on its way to other ranks; then
 * nothing was done. */
static bool run_move(const struct copse_exec *exec, const struct copse_plan_op *op, uint32_t c) {
  const struct copse_view *view = &exec->view;
  struct copse_span chunk = copse_view_chunk(view, op->piece, c);
  if (chunk.count == 0) return true;
  struct places places;
  uint32_t n_dst = find_places(exec, op, chunk, c, &places), away = n_away(exec, op);
  for (uint32_t k = 0; k < op->n_src; k++)
    if (places.src[k].epoch &&
        !copse_packets_are_there(&places.src[k], chunk.count * view->shape.element_bytes))
      return false;
  if (away > 0) {
    unsigned char *stage =
        copse_exec_mesh_stage(exec, (size_t)chunk.count * view->shape.element_bytes);
    if (!stage) return false;
    places.dst[n_dst++] = (struct copse_place){stage, 0};
  }
  const struct copse_move move = {.type = view->type,
                                  .redop = view->redop,
                                  .n_src = op->n_src,
                                  .n_dst = n_dst,
                                  .divisor = copse_view_divisor(view, op),
                                  .count = chunk.count,
                                  .src = places.src,
                                  .dst = places.dst};
  bool moved = copse_move_run(&move, 0, 1);
  if (away > 0) copse_exec_mesh_send(exec, op);
  return moved;
}

/* The worker is the only writer of the counter, so no read-modify-write is needed. */
static void raise_signal(struct copse_exec_channel *channel) {
  uint64_t signals = atomic_load_explicit(&channel->signals, memory_order_relaxed);
  atomic_store_explicit(&channel->signals, signals + 1, memory_order_release);
}

enum copse_exec_step copse_exec_advance(struct copse_exec *exec, uint32_t w, uint32_t *channel) {
  const struct copse_plan_worker *worker = &exec->plan->workers[w];
  const struct copse_plan_op *ops = &exec->plan->ops[worker->first_op];
  const uint32_t n_chunks = exec->view.shape.n_chunks, fifo = exec->view.shape.fifo;
  const bool looks = exec->backend != COPSE_BACKEND_CPU;
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
        if (!run_move(exec, op, at->chunk)) return COPSE_STEP_LOOKS;
        at->op++;
        continue;
      }
      if (looks && (op->flags & COPSE_SYNC_IN_DATA)) { /* the packets themselves tell */
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
