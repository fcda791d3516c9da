/*
 * Inside src/runtime/cuda only: the interpreter on a GPU. A thread block is one of the plan's
 * workers and runs its operations in order, chunk after chunk, as exec_step.c does on a CPU;
 * what an operation means comes from runtime/view.h and runtime/element_move.h, the same code.
 * All blocks of a launch must be resident at once.
 *
 * Within a block: the first warp waits and signals for all. Waits are passed on to the other
 * threads, and what they stored is collected before a signal, by __syncthreads; the kernel
 * meets there only where that is needed.
 */
#ifndef COPSE_RUNTIME_GPU_KERNEL_CUH
#define COPSE_RUNTIME_GPU_KERNEL_CUH

#include <cooperative_groups.h>

#include "runtime/gpu/launch.h"
#include "runtime/gpu/order.cuh"
#include "runtime/gpu/patience.cuh"
#include "runtime/interpreter/view.h"

/* Operations that a block keeps at hand; longer lists it reads where they are. */
#define COPSE_KEPT_OPS 96u
/* And operands: what of their places no chunk changes. */
#define COPSE_KEPT_OPERANDS 256u
/* Places of two MOVEs: while one is under way by slower threads, faster ones find those of the
 * next. Or, where no place changes because the launch is one chunk, those of all of them. */
#define COPSE_TURN_PLACES (2u * COPSE_MOVE_MAX_OPERANDS)

struct copse_kept_op {
  struct copse_plan_op op;
  uint32_t run; /* SIGNAL, WAIT: so many from here on are done at once */
  union {
    struct copse_span piece; /* MOVE */
    uint64_t *signal;        /* SIGNAL, WAIT: the counter, NULL for one on another host */
  };
};

/* A block's shared memory. */
struct copse_block {
  struct copse_rank_memory ranks[COPSE_CUDA_MAX_RANKS];
  struct copse_kept_op ops[COPSE_KEPT_OPS];
  struct copse_base bases[COPSE_KEPT_OPERANDS];
  uint8_t op_of_operand[COPSE_KEPT_OPERANDS];
  struct copse_place places[2u * COPSE_TURN_PLACES];
};

/* A thread's own. */
struct copse_thread {
  struct copse_view view;
  struct copse_patience patience;
  struct copse_block *block;
  struct copse_block_work work;
  uint32_t epoch;
  bool left; /* this thread, as a rule of the first warp, has lost patience; the others hear of it when they meet */
  bool waited, wrote; /* since the threads last met */
  bool based;         /* the bases of all places are kept */
  bool kept;          /* and the places too */
  uint32_t turn;      /* of copse_block.places */
};

/* A rank of another host has left, or blocks of this one: so does this block. */
__device__ static inline void copse_follow(const struct copse_device_plan &plan,
                                           struct copse_thread *self, uint32_t rank) {
  self->left = true;
  if (rank != plan.own_word) copse_word_claim(&plan.control->leave, COPSE_LEAVE_PEER + rank);
}

__device__ static inline void copse_thread_enter(const struct copse_launch_args &args,
                                                 struct copse_block *block,
                                                 struct copse_thread *self) {
  const struct copse_device_plan &plan = args.plan;
  self->work = plan.works[blockIdx.x];
  for (uint32_t r = threadIdx.x; r < plan.n_ranks; r += blockDim.x)
    block->ranks[r] = copse_rank_memory{args.buffers[r].input, args.buffers[r].output,
                                        plan.arenas[r].scratch, plan.arenas[r].packets};
  self->view.ops = plan.ops + self->work.first_op;
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
  self->patience.worker = self->work.worker;
  self->block = block;
  /* A launch's rounds have one number, counted where the worker is through. */
  self->epoch = plan.epochs[self->work.worker];
  if (!args.from || args.from[blockIdx.x].chunk < args.shape.n_chunks)
    self->epoch = copse_next_epoch(self->epoch);
  self->left = self->waited = self->wrote = false;
  self->based = self->work.n_operands <= COPSE_KEPT_OPERANDS;
  self->kept = self->based && args.shape.of_chunks == 1 && self->work.n_ops <= COPSE_KEPT_OPS;
  self->turn = 0;
  for (uint32_t r = threadIdx.x; plan.words && r < plan.n_ranks; r += blockDim.x)
    if (copse_word_load(&plan.words[r])) copse_follow(plan, self, r);
}

/* All threads of the block; false when the block is to leave. */
__device__ static inline bool copse_meet(struct copse_thread *self) {
  self->waited = self->wrote = false;
  return __syncthreads_or(self->left) == 0;
}

/* ---- what is kept at hand ------------------------------------------------------------------- */

/* Signals in a row, or waits, are done by a lane each; on channels that differ (they go up, or
 * down), so that no two count on the same counter. */
__device__ static inline uint32_t copse_run_of(const struct copse_block *block, uint32_t i,
                                               uint32_t end) {
  const struct copse_plan_op *op = &block->ops[i].op;
  const uint32_t lanes = blockDim.x < warpSize ? blockDim.x : warpSize;
  uint32_t n = 1;
  if (op->kind == COPSE_OP_MOVE || i + 1 >= end) return 1;
  const bool up = op->channel < block->ops[i + 1].op.channel;
  for (; i + n < end && n < lanes && block->ops[i + n].op.kind == op->kind; n++) {
    uint32_t last = block->ops[i + n - 1].op.channel, next = block->ops[i + n].op.channel;
    if (last == next || (last < next) != up) break;
  }
  return n;
}

/* Found once: two loads, one after the other, that no chunk need wait for again. */
__device__ static inline uint64_t *copse_counter_of(const struct copse_device_plan &plan,
                                                    uint32_t channel) {
  const struct copse_channel_place place = plan.channels[channel];
  uint64_t *signals = plan.arenas[place.rank].signals;
  return signals ? signals + place.ordinal : NULL;
}

/* Each thread an operation and an operand: their loads don't wait for each other, and after them
 * nothing is left to load but data. */
__device__ static inline bool copse_keep(const struct copse_device_plan &plan,
                                         struct copse_thread *self) {
  struct copse_block *block = self->block;
  const struct copse_block_work &work = self->work;
  const uint32_t n = work.n_ops < COPSE_KEPT_OPS ? work.n_ops : COPSE_KEPT_OPS;
  if (!copse_meet(self)) return false; /* block->ranks are there */
  for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) {
    const struct copse_plan_op op = self->view.ops[i];
    block->ops[i].op = op;
    if (op.kind != COPSE_OP_MOVE) {
      block->ops[i].signal = copse_counter_of(plan, op.channel);
      continue;
    }
    block->ops[i].piece = copse_view_piece(&self->view, op.piece);
    for (uint32_t k = 0; k < (uint32_t)op.n_src + op.n_dst && self->kept; k++)
      block->op_of_operand[op.operand - work.first_operand + k] = (uint8_t)i;
  }
  /* from the last thread on: those that have no operation first */
  for (uint32_t k = blockDim.x - 1 - threadIdx.x; k < work.n_operands && self->based;
       k += blockDim.x)
    block->bases[k] =
        copse_view_base(&self->view, &self->view.operands[work.first_operand + k], self->epoch);
  if (!copse_meet(self)) return false;
  for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
    block->ops[i].run = copse_run_of(block, i, n);
  for (uint32_t k = threadIdx.x; k < work.n_operands && self->kept; k += blockDim.x)
    block->places[k] = copse_base_place(&self->view, &block->bases[k],
                                        block->ops[block->op_of_operand[k]].piece, 0);
  return copse_meet(self);
}

__device__ static inline struct copse_kept_op copse_op_at(const struct copse_device_plan &plan,
                                                          const struct copse_thread *self,
                                                          uint32_t i) {
  if (i < COPSE_KEPT_OPS) return self->block->ops[i];
  struct copse_kept_op it;
  it.op = self->view.ops[i];
  it.run = 1;
  it.piece = copse_span{0, 0};
  if (it.op.kind == COPSE_OP_MOVE)
    it.piece = copse_view_piece(&self->view, it.op.piece);
  else
    it.signal = copse_counter_of(plan, it.op.channel);
  return it;
}

/* ---- operations ------------------------------------------------------------------------------ */

/* One thread: a launch that has lost patience waits and signals no more. */
__device__ static inline void copse_wait_for(const struct copse_device_plan &plan,
                                             struct copse_thread *self, uint32_t channel,
                                             uint64_t *signal) {
  uint64_t needed = plan.taken[channel] + 1;
  struct copse_wait wait = {0, 0};
  while (!self->left && copse_signal_load(signal, plan.system != 0) < needed)
    self->left = !copse_keep_waiting(&self->patience, &wait);
  plan.taken[channel] = needed;
}

__device__ static inline void copse_raise(const struct copse_device_plan &plan,
                                          const struct copse_thread *self, uint32_t channel,
                                          uint64_t *signal) {
  if (self->left) return;
  uint64_t sent = plan.sent[channel] + 1;
  plan.sent[channel] = sent;
  copse_signal_store(signal, sent, plan.system != 0);
}

/* `n` signals or waits from operation i on, a lane of the first warp each. False when the block is
 * to leave. */
__device__ static inline bool copse_do_syncs(const struct copse_launch_args &args,
                                             struct copse_thread *self, uint8_t kind, uint32_t i,
                                             uint32_t n, uint32_t c) {
  /* A signal speaks for all threads of the block. */
  if (kind == COPSE_OP_SIGNAL && self->wrote && !copse_meet(self)) return false;
  if (kind == COPSE_OP_WAIT) self->waited = true;
  if (threadIdx.x >= warpSize) return true;
  if (threadIdx.x < n) {
    const struct copse_kept_op it = copse_op_at(args.plan, self, i + threadIdx.x);
    const struct copse_plan_op &op = it.op;
    bool runs = copse_op_runs(op.when, c, args.shape.n_chunks, args.plan.fifo);
    self->patience.op = i + threadIdx.x;
    if (!runs || (op.flags & COPSE_SYNC_IN_DATA)) { /* packets tell themselves */
    } else if (kind == COPSE_OP_WAIT) {
      copse_wait_for(args.plan, self, op.channel, it.signal);
    } else {
      copse_raise(args.plan, self, op.channel, it.signal);
    }
  }
  __syncwarp(); /* what one lane has waited for, another one's signal tells of */
  self->left = __any_sync(0xffffffffu, self->left);
  return true;
}

/* The places of a MOVE's operands, or NULL when the block is to leave. */
__device__ static inline const struct copse_place *copse_places_of(struct copse_thread *self,
                                                                   const struct copse_plan_op &op,
                                                                   struct copse_span chunk,
                                                                   uint32_t c) {
  if (self->kept) {
    if ((self->waited || self->wrote) && !copse_meet(self)) return NULL;
    return self->block->places + (op.operand - self->work.first_operand);
  }
  struct copse_place *places = self->block->places + self->turn * COPSE_TURN_PLACES;
  self->turn ^= 1;
  const struct copse_base *bases = self->block->bases + (op.operand - self->work.first_operand);
  for (uint32_t k = threadIdx.x; k < (uint32_t)op.n_src + op.n_dst; k += blockDim.x)
    places[k] = self->based ? copse_base_place(&self->view, &bases[k], chunk, c)
                            : copse_view_operand(&self->view, &self->view.operands[op.operand + k],
                                                 chunk, c, self->epoch);
  return copse_meet(self) ? places : NULL;
}

/* False when the block is to leave. MOVER: of elements of one type, or of none for copies. */
template <typename MOVER>
__device__ static inline bool copse_do_move(struct copse_thread *self,
                                            const struct copse_kept_op &it, uint32_t c) {
  const struct copse_plan_op &op = it.op;
  struct copse_span chunk = copse_shape_chunk(&self->view.shape, it.piece, c);
  if (chunk.count == 0) return true;
  const struct copse_place *places = copse_places_of(self, op, chunk, c);
  if (!places) return false;
  bool packets = false;
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

/* See copse_epoch_is_last: once all blocks of this device are through, each rank's copy. All
 * blocks come here, also those that leave before their end. */
__device__ static inline void copse_clear_packets(const struct copse_device_plan &plan,
                                                  uint32_t rank, uint32_t epoch) {
  cooperative_groups::this_grid().sync();
  uint64_t *packets =
      reinterpret_cast<uint64_t *>(plan.arenas[rank].packets + (epoch & 1) * plan.packets_copy);
  for (uint64_t i = 2 * threadIdx.x; i < plan.packets_copy / sizeof(uint64_t); i += 2 * blockDim.x)
    copse_packets_store(&packets[i], copse_packets{{0, 0}});
}

/* From one cursor to another, all threads of the block; false when the block is to leave. */
template <typename MOVER>
__device__ static inline bool copse_run_range(const struct copse_launch_args &args,
                                              struct copse_thread *self, struct copse_cursor from,
                                              struct copse_cursor to) {
  if (!copse_keep(args.plan, self)) return false;
  for (uint32_t c = from.chunk; c <= to.chunk; c++) {
    const uint32_t end = c < to.chunk ? self->work.n_ops : to.op;
    for (uint32_t i = c == from.chunk ? from.op : 0, n; i < end; i += n) {
      const struct copse_kept_op it = copse_op_at(args.plan, self, i);
      self->patience.op = i;
      self->patience.chunk = c;
      n = it.run < end - i ? it.run : end - i;
      if (it.op.kind == COPSE_OP_MOVE) {
        if (copse_op_runs(it.op.when, c, args.shape.n_chunks, args.plan.fifo) &&
            !copse_do_move<MOVER>(self, it, c))
          return false;
      } else if (!copse_do_syncs(args, self, it.op.kind, i, n, c)) {
        return false;
      }
    }
  }
  return true;
}

template <typename MOVER>
__device__ static inline void copse_run_worker(const struct copse_launch_args &args,
                                               struct copse_block *block) {
  const struct copse_device_plan &plan = args.plan;
  struct copse_thread self;
  struct copse_cursor from = {0, 0}, to = {args.shape.n_chunks, 0};
  if (args.from) {
    from = args.from[blockIdx.x];
    to = args.to[blockIdx.x];
  }
  copse_thread_enter(args, block, &self);
  if (plan.words && blockIdx.x == 0 && threadIdx.x == 0)
    copse_signal_store(&plan.control->moved, copse_device_clock(), true);
  bool done = copse_run_range<MOVER>(args, &self, from, to);
  if ((!done || self.left) && plan.words && threadIdx.x == 0)
    copse_word_release(&plan.words[plan.own_word], 1);
  if (threadIdx.x == 0 && to.chunk == args.shape.n_chunks)
    plan.epochs[self.work.worker] = self.epoch;
  if (plan.low_latency && args.ends && copse_epoch_is_last(self.epoch))
    copse_clear_packets(plan, self.work.rank, self.epoch);
}

#endif
