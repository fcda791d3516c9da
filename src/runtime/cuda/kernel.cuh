/*
 * Inside src/runtime/cuda only: the interpreter on a GPU. A thread block is one of the plan's
 * workers and runs its operations in order, chunk after chunk, as exec_step.c does on a CPU;
 * what an operation means comes from runtime/view.h and runtime/element_move.h, the same code.
 * All blocks of a launch must be resident at once.
 *
 * Within a block: thread 0 waits and signals for all. Waits are passed on to the other
 * threads, and what they stored is collected before a signal, by __syncthreads; the kernel
 * meets there only where that is needed.
 */
#ifndef COPSE_RUNTIME_CUDA_KERNEL_CUH
#define COPSE_RUNTIME_CUDA_KERNEL_CUH

#include <cooperative_groups.h>

#include "runtime/cuda/launch.h"
#include "runtime/cuda/order.cuh"
#include "runtime/cuda/patience.cuh"
#include "runtime/view.h"

/* A block's shared memory. The places of two MOVEs: while one is under way by slower threads,
 * faster ones find those of the next. */
struct copse_block {
  struct copse_rank_memory ranks[COPSE_CUDA_MAX_RANKS];
  struct copse_place places[2][2 * COPSE_MOVE_MAX_OPERANDS];
};

/* A thread's own. */
struct copse_thread {
  struct copse_view view;
  struct copse_patience patience;
  struct copse_block *block;
  uint32_t epoch;
  bool left; /* this thread, as a rule the first, has lost patience; the others hear of it when they meet */
  bool wrote; /* since the threads last met */
  uint32_t turn;      /* of copse_block.places */
};

/* A rank of another host has left, or blocks of this one: so does this block. */
__device__ static inline void copse_follow(const struct copse_device_plan &plan,
                                           struct copse_thread *self, uint32_t rank) {
  self->left = true;
  if (rank != plan.own_word) copse_word_claim(&plan.control->leave, COPSE_LEAVE_PEER + rank);
}

__device__ static inline void copse_thread_enter(const struct copse_launch_args &args,
                                                 struct copse_block *block, uint32_t worker,
                                                 struct copse_thread *self) {
  const struct copse_device_plan &plan = args.plan;
  for (uint32_t r = threadIdx.x; r < plan.n_ranks; r += blockDim.x)
    block->ranks[r] = copse_rank_memory{args.buffers[r].input, args.buffers[r].output,
                                        plan.arenas[r].scratch, plan.arenas[r].packets};
  self->view.ops = plan.ops;
  self->view.operands = plan.operands;
  self->view.pieces = plan.pieces;
  self->view.extents = plan.extents;
  self->view.places = plan.places;
  self->view.ranks = block->ranks;
  self->view.pair_counts = args.pair_counts;
  self->view.pair_first = args.pair_first;
  self->view.packets_copy = plan.packets_copy;
  self->view.shape = args.shape;
  self->view.n_ranks = plan.n_ranks;
  self->view.type = (copse_type)args.type;
  self->view.redop = (copse_redop)args.redop;
  self->patience.control = plan.control;
  self->patience.limit_ns = args.limit_ns;
  self->patience.plan = plan.number;
  self->patience.worker = worker;
  self->block = block;
  self->epoch = copse_next_epoch(plan.epochs[worker]);
  self->left = self->wrote = false;
  self->turn = 0;
  for (uint32_t r = threadIdx.x; plan.words && r < plan.n_ranks; r += blockDim.x)
    if (copse_word_load(&plan.words[r])) copse_follow(plan, self, r);
}

/* All threads of the block; false when the block is to leave. */
__device__ static inline bool copse_meet(struct copse_thread *self) {
  self->wrote = false;
  return __syncthreads_or(self->left) == 0;
}

/* Thread 0: a launch that has lost patience waits and signals no more. */
__device__ static inline void copse_wait_for(const struct copse_device_plan &plan,
                                             struct copse_thread *self, uint32_t channel) {
  const struct copse_channel_place place = plan.channels[channel];
  uint64_t *signal = &plan.arenas[place.rank].signals[place.ordinal];
  uint64_t needed = plan.taken[channel] + 1;
  struct copse_wait wait = {0, 0};
  while (!self->left && copse_signal_load(signal, plan.system != 0) < needed)
    self->left = !copse_keep_waiting(&self->patience, &wait);
  plan.taken[channel] = needed;
}

__device__ static inline void copse_raise(const struct copse_device_plan &plan,
                                          const struct copse_thread *self, uint32_t channel) {
  if (self->left) return;
  const struct copse_channel_place place = plan.channels[channel];
  uint64_t sent = plan.sent[channel] + 1;
  plan.sent[channel] = sent;
  copse_signal_store(&plan.arenas[place.rank].signals[place.ordinal], sent, plan.system != 0);
}

/* False when the block is to leave. MOVER: of elements of one type, or of none for copies. */
template <typename MOVER>
__device__ static inline bool copse_do_move(struct copse_thread *self,
                                            const struct copse_plan_op &op, uint32_t c) {
  struct copse_span chunk = copse_view_chunk(&self->view, op.piece, c);
  if (chunk.count == 0) return true;
  struct copse_place *places = self->block->places[self->turn];
  self->turn ^= 1;
  bool packets = false;
  for (uint32_t k = threadIdx.x; k < (uint32_t)op.n_src + op.n_dst; k += blockDim.x)
    places[k] = copse_view_operand(&self->view, &self->view.operands[op.operand + k], chunk, c,
                                   self->epoch);
  if (!copse_meet(self)) return false;
  for (uint32_t k = 0; k < op.n_src; k++) packets = packets || places[k].epoch != 0;
  const struct copse_move move = {self->view.type,
                                  self->view.redop,
                                  op.n_src,
                                  op.n_dst,
                                  copse_view_divisor(&self->view, &op),
                                  chunk.count,
                                  places,
                                  places + op.n_src,
                                  &self->patience};
  bool ok = MOVER::run(&move);
  self->wrote = true;
  if (!packets) return true;
  /* any thread may have lost patience: all hear of it before anybody waits again */
  self->left = !ok;
  return copse_meet(self);
}

/* False when the block is to leave. */
template <typename MOVER>
__device__ static inline bool copse_do(const struct copse_device_plan &plan,
                                       struct copse_thread *self, const struct copse_plan_op &op,
                                       uint32_t c) {
  if (op.kind == COPSE_OP_MOVE) return copse_do_move<MOVER>(self, op, c);
  if (op.flags & COPSE_SYNC_IN_DATA) return true; /* the packets themselves tell */
  if (op.kind == COPSE_OP_WAIT) {
    if (threadIdx.x == 0) copse_wait_for(plan, self, op.channel);
    return true;
  }
  /* A signal speaks for all threads of the block. */
  if (self->wrote && !copse_meet(self)) return false;
  if (threadIdx.x == 0) copse_raise(plan, self, op.channel);
  return true;
}

/* See copse_epoch_is_last: once all blocks of this device are through, each rank's copy. All
 * blocks come here, also those that leave before their end. */
__device__ static inline void copse_clear_packets(const struct copse_device_plan &plan,
                                                  uint32_t rank, uint32_t epoch) {
  cooperative_groups::this_grid().sync();
  uint64_t *packets =
      reinterpret_cast<uint64_t *>(plan.arenas[rank].packets + (epoch & 1) * plan.packets_copy);
  for (uint64_t i = threadIdx.x; i < plan.packets_copy / sizeof(uint64_t); i += blockDim.x)
    copse_packet_store(&packets[i], 0);
}

/* From one cursor to another, all threads of the block; false when the block is to leave. */
template <typename MOVER>
__device__ static inline bool copse_run_range(const struct copse_launch_args &args,
                                              struct copse_thread *self, uint32_t w,
                                              struct copse_cursor from, struct copse_cursor to) {
  const struct copse_device_plan &plan = args.plan;
  const struct copse_plan_worker worker = plan.workers[w];
  if (!copse_meet(self)) return false; /* block->ranks is there */
  for (uint32_t c = from.chunk; c <= to.chunk; c++) {
    const uint32_t end = c < to.chunk ? worker.n_ops : to.op;
    for (uint32_t i = c == from.chunk ? from.op : 0; i < end; i++) {
      const struct copse_plan_op op = plan.ops[worker.first_op + i];
      if (!copse_op_runs(op.when, c, args.shape.n_chunks, plan.fifo)) continue;
      self->patience.op = i;
      self->patience.chunk = c;
      if (!copse_do<MOVER>(plan, self, op, c)) return false;
    }
  }
  return true;
}

template <typename MOVER>
__device__ static inline void copse_run_worker(const struct copse_launch_args &args,
                                               struct copse_block *block) {
  const struct copse_device_plan &plan = args.plan;
  const uint32_t w = plan.worker_of_block[blockIdx.x];
  struct copse_thread self;
  struct copse_cursor from = {0, 0}, to = {args.shape.n_chunks, 0};
  if (args.from) {
    from = args.from[blockIdx.x];
    to = args.to[blockIdx.x];
  }
  copse_thread_enter(args, block, w, &self);
  bool done = copse_run_range<MOVER>(args, &self, w, from, to);
  if (!done && plan.words && threadIdx.x == 0)
    copse_word_release(&plan.words[plan.own_word], 1);
  if (threadIdx.x == 0) plan.epochs[w] = self.epoch;
  if (plan.low_latency && copse_epoch_is_last(self.epoch))
    copse_clear_packets(plan, plan.workers[w].rank, self.epoch);
}

#endif
