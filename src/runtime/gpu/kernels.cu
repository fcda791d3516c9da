/*
 * The interpreter on a GPU, and the kernels: one that copies, one per element type that reduces.
 *
 * A thread block is one of the plan's workers. It runs that worker's operations in order, chunk
 * after chunk, as interpreter.c does on a CPU. What an operation means comes from the same code,
 * runtime/interpreter/view.h and element_move.h. All blocks of a launch must be resident at once,
 * since they wait for each other. A launch may be several calls: between two of them all blocks
 * meet, so that to other ranks it looks like a launch for each.
 *
 *   thread_enter     where the launch's memory is
 *   load_ops         all threads: operations, counters and places, loaded once, in parallel
 *   run_range        for each chunk, for each operation:
 *     do_syncs         SIGNALs or WAITs in a row: a lane of the first warp each
 *     do_move          MOVE: all threads, through tile.cuh
 *
 * The first warp waits and signals for the block. A __syncthreads makes what it has waited for
 * visible to the other threads, and makes their stores visible before a signal. The block meets
 * only where data changes hands, and so also finds there that one of its threads has timed out.
 *
 * A thread that waits for too long, or sees that the host wants kernels to leave, writes down where
 * it was (copse_keep_waiting) and the block leaves. The communicator is broken then.
 *
 * What a store promises to other GPUs: PTX ISA, "Memory Consistency Model" (sync.cuh).
 */
#include "runtime/gpu/kernels.h"

#include "runtime/gpu/tile.cuh"
#include "runtime/interpreter/view.h"

/* Operations that a block loads into shared memory. It reads those beyond where they are. */
#define LOADED_OPS 96u
/* Operands likewise: the part of their places that no chunk changes. */
#define LOADED_OPERANDS 256u
/* Places of two MOVEs in turn: faster threads find those of the next MOVE while slower ones still
 * use those of the last. Where the launch is one chunk, so that no place changes, and each operand
 * is one MOVE's, whose piece decides where it is: those of all. */
#define TURN_PLACES (2u * COPSE_MOVE_MAX_OPERANDS)

struct loaded_op {
  struct copse_plan_op op;
  uint32_t run; /* SIGNAL, WAIT: how many from here on are done at once */
  union {
    struct copse_span piece; /* MOVE */
    uint64_t *signal;        /* SIGNAL, WAIT: the counter, NULL for one on another host */
  };
};

/* A MOVE as all threads of a block do it. */
struct block_move {
  struct copse_move it;
  struct copse_timeout timeout;
};

/* A block's shared memory. What is the same for all threads is here and not in each one's state:
 * whose address would be taken, and which so would lie on its stack. */
struct block_state {
  struct copse_call_args call;
  uint32_t number; /* of the call in the launch */
  struct copse_view view;
  struct copse_limit limit;
  struct copse_block_work work;
  struct copse_cursor from, to; /* of this round */
  uint32_t epoch;
  bool based; /* bases are all loaded */
  bool kept;  /* and the places are too, since they don't change */
  struct copse_rank_memory ranks[COPSE_CUDA_MAX_RANKS];
  struct loaded_op ops[LOADED_OPS];
  struct copse_base bases[LOADED_OPERANDS];
  uint8_t op_of_operand[LOADED_OPERANDS];
  struct copse_place places[2u * TURN_PLACES];
  struct block_move moves[2]; /* in turn, as places */
};

/* Each thread's own state. */
struct thread_state {
  struct block_state *block;
  bool left; /* this thread has timed out or the host ends kernels; most often a thread of the first
                warp. The block leaves where its threads next meet */
  bool wrote;    /* since the last meet() */
  bool aliased;  /* a switch has stored for this block, and no fence came since */
  uint32_t turn; /* which half of block_state.moves and .places comes next */
};

/* Leaves because a rank of another host has left, or blocks of this one have. */
__device__ static inline void leave_with(const struct copse_device_plan &plan,
                                         struct thread_state *self, uint32_t rank) {
  self->left = true;
  if (rank != plan.own_word) copse_word_claim(&plan.control->leave, COPSE_LEAVE_PEER + rank);
}

__device__ static inline void thread_enter(const struct copse_call_args &args,
                                           struct block_state *block, struct thread_state *self) {
  const struct copse_device_plan &plan = args.plan;
  const struct copse_block_work work = plan.works[blockIdx.x];
  const uint64_t *words = reinterpret_cast<const uint64_t *>(&args);
  for (uint32_t i = threadIdx.x; i < sizeof args / sizeof *words; i += blockDim.x)
    reinterpret_cast<uint64_t *>(&block->call)[i] = words[i];
  const struct copse_rank_buffers *buffers =
      reinterpret_cast<const struct copse_rank_buffers *>(&args + 1);
  for (uint32_t r = threadIdx.x; r < plan.n_segments; r += blockDim.x) {
    const bool mirror = r >= plan.n_ranks;
    block->ranks[r] =
        copse_rank_memory{mirror ? NULL : buffers[r].input, mirror ? NULL : buffers[r].output,
                          plan.segments[r].scratch, plan.segments[r].packets};
  }
  if (threadIdx.x == 0) {
    block->view = copse_view{plan.ops + work.first_op,
                             plan.operands,
                             plan.pieces,
                             plan.extents,
                             plan.places,
                             block->ranks,
                             args.pair_counts,
                             args.pair_first,
                             plan.packets_copy,
                             args.shape,
                             plan.n_ranks,
                             (copse_type)args.type,
                             (copse_redop)args.redop};
    block->work = work;
    block->limit = copse_limit{plan.control, args.limit_ns, plan.number, work.worker};
    block->from = args.from ? args.from[blockIdx.x] : copse_cursor{0, 0};
    block->to = args.from ? args.to[blockIdx.x] : copse_cursor{args.shape.n_chunks, 0};
    /* All rounds of a launch have one epoch, counted when the worker finishes the launch. */
    const uint32_t epoch = plan.epochs[work.worker];
    block->epoch = block->from.chunk < args.shape.n_chunks ? copse_next_epoch(epoch) : epoch;
    block->based = work.n_operands <= LOADED_OPERANDS;
    block->kept =
        block->based && !work.shared && args.shape.n_chunks == 1 && work.n_ops <= LOADED_OPS;
  }
  self->block = block;
  self->left = self->wrote = self->aliased = false;
  self->turn = 0;
  for (uint32_t r = threadIdx.x; plan.words && r < plan.n_ranks; r += blockDim.x)
    if (copse_word_load(&plan.words[r])) leave_with(plan, self, r);
  /* An abort also ends the messages before this kernel, whose data never came. The watch sets
   * `leave` before it aborts, so it is seen here, also by a block that waits for nobody. */
  if (plan.words && threadIdx.x == 0 && copse_word_load(&plan.control->leave)) self->left = true;
}

/* Meets the block's other threads: all call it; false where the block must leave. */
__device__ static inline bool meet(struct thread_state *self) {
  self->wrote = false;
  return __syncthreads_or(self->left) == 0;
}

/* ---- loading ------------------------------------------------------------------------------ */

/* Counts how many SIGNALs in a row, or WAITs, are done at once, a lane each. Their channels ascend
 * or descend strictly, so that no two lanes use the same counter. */
__device__ static inline uint32_t run_length(const struct block_state *block, uint32_t i,
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

/* Returns the counter of a channel. Found once, since it takes two loads that depend on each
 * other. */
__device__ static inline uint64_t *counter_of(const struct copse_device_plan &plan,
                                              uint32_t channel) {
  const struct copse_channel_place place = plan.channels[channel];
  uint64_t *signals = plan.segments[place.rank].signals;
  return signals ? signals + place.ordinal : NULL;
}

/* Loads the block's operations and operands, each thread one of each, so that loads that would
 * follow each other are done in parallel, once, and not again in every chunk. */
__device__ static inline bool load_ops(const struct copse_device_plan &plan,
                                       struct thread_state *self) {
  struct block_state *block = self->block;
  const struct copse_block_work &work = block->work;
  const uint32_t n = work.n_ops < LOADED_OPS ? work.n_ops : LOADED_OPS;
  for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) {
    const struct copse_plan_op op = self->block->view.ops[i];
    block->ops[i].op = op;
    if (op.kind != COPSE_OP_MOVE) {
      block->ops[i].signal = counter_of(plan, op.channel);
      continue;
    }
    block->ops[i].piece = copse_view_piece(&self->block->view, op.piece);
    for (uint32_t k = 0; k < (uint32_t)op.n_src + op.n_dst && self->block->kept; k++)
      block->op_of_operand[op.operand - work.first_operand + k] = (uint8_t)i;
  }
  /* from the last thread down, since the last ones have no operation to load */
  for (uint32_t k = blockDim.x - 1 - threadIdx.x; k < work.n_operands && self->block->based;
       k += blockDim.x)
    block->bases[k] =
        copse_view_base(&self->block->view, &self->block->view.operands[work.first_operand + k],
                        self->block->epoch);
  if (!meet(self)) return false;
  for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
    block->ops[i].run = run_length(block, i, n);
  for (uint32_t k = threadIdx.x; k < work.n_operands && self->block->kept; k += blockDim.x)
    block->places[k] = copse_base_place(&self->block->view, &block->bases[k],
                                        block->ops[block->op_of_operand[k]].piece, 0);
  return meet(self);
}

__device__ static inline struct loaded_op op_at(const struct copse_device_plan &plan,
                                                const struct thread_state *self, uint32_t i) {
  if (i < LOADED_OPS) return self->block->ops[i];
  struct loaded_op it;
  it.op = self->block->view.ops[i];
  it.run = 1;
  it.piece = copse_span{0, 0};
  if (it.op.kind == COPSE_OP_MOVE)
    it.piece = copse_view_piece(&self->block->view, it.op.piece);
  else
    it.signal = counter_of(plan, it.op.channel);
  return it;
}

/* ---- operations ------------------------------------------------------------------------------ */

/* Waits for a signal; called by one thread. After a timeout it neither waits nor signals any
 * more. */
__device__ static inline void wait_for(const struct copse_device_plan &plan,
                                       struct thread_state *self, uint32_t channel,
                                       uint64_t *signal, uint32_t op, uint32_t c) {
  const struct copse_timeout timeout = {&self->block->limit, op, c};
  uint64_t needed = plan.taken[channel] + 1;
  struct copse_wait wait = {0, 0};
  const bool system = plan.system != 0;
  if (!self->left && copse_signal_load(signal, system) < needed) { /* mostly the signal has come */
    do
      self->left = !copse_keep_waiting(&timeout, &wait);
    while (!self->left && copse_signal_look(signal, system) < needed);
    (void)copse_signal_load(signal, system);
  }
  plan.taken[channel] = needed;
}

__device__ static inline void raise_signal(const struct copse_device_plan &plan,
                                           const struct thread_state *self, uint32_t channel,
                                           uint64_t *signal) {
  if (self->left) return;
  uint64_t sent = plan.sent[channel] + 1;
  plan.sent[channel] = sent;
  copse_signal_store(signal, sent, plan.system != 0);
}

/* Does n SIGNALs or WAITs from operation i on, a lane of the first warp each. False where the block
 * must leave. */
__device__ static inline bool do_syncs(const struct copse_call_args &args,
                                       struct thread_state *self, uint8_t kind, uint32_t i,
                                       uint32_t n, uint32_t c) {
  /* a signal covers what all threads of the block wrote */
  if (kind == COPSE_OP_SIGNAL && self->wrote && !meet(self)) return false;
  if (kind == COPSE_OP_SIGNAL && self->aliased) {
    self->aliased = false;
    if (threadIdx.x < warpSize) copse_group_fence(); /* each lane before its own signal */
  }
  if (threadIdx.x >= warpSize) return true;
  if (threadIdx.x < n) {
    const struct loaded_op it = op_at(args.plan, self, i + threadIdx.x);
    const struct copse_plan_op &op = it.op;
    bool runs = copse_op_runs(op.when, c, args.shape.n_chunks, args.plan.fifo);
    if (!runs || (op.flags & COPSE_SYNC_IN_DATA)) { /* packets carry their own flags */
    } else if (kind == COPSE_OP_WAIT) {
      wait_for(args.plan, self, op.channel, it.signal, i + threadIdx.x, c);
    } else {
      raise_signal(args.plan, self, op.channel, it.signal);
    }
  }
  __syncwarp(); /* a lane's signal covers what the other lanes have waited for */
  self->left = __any_sync(0xffffffffu, self->left);
  return true;
}

/* Returns a MOVE with the places of its operands, or NULL where the block must leave. */
__device__ static inline const struct copse_move *move_of(struct thread_state *self,
                                                          const struct copse_plan_op &op,
                                                          struct copse_span chunk, uint32_t i,
                                                          uint32_t c) {
  struct block_state *block = self->block;
  if (self->aliased) { /* its own slots may be the next sources */
    if (!meet(self)) return NULL;
    if (threadIdx.x == 0) copse_group_fence();
    self->aliased = false;
  }
  const struct copse_view *view = &block->view;
  const uint32_t first = op.operand - block->work.first_operand;
  struct block_move *move = &block->moves[self->turn];
  struct copse_place *places =
      block->places + (self->block->kept ? first : self->turn * TURN_PLACES);
  self->turn ^= 1;
  if (threadIdx.x == 0) {
    move->timeout = copse_timeout{&block->limit, i, c};
    move->it = copse_move{
        view->type,  view->redop, op.n_src,          op.n_dst,      copse_view_divisor(view, &op),
        chunk.count, places,      places + op.n_src, &move->timeout};
  }
  for (uint32_t k = threadIdx.x; k < (uint32_t)op.n_src + op.n_dst && !self->block->kept;
       k += blockDim.x)
    places[k] = self->block->based ? copse_base_place(view, &block->bases[first + k], chunk, c)
                            : copse_view_operand(view, &view->operands[op.operand + k], chunk, c,
                                                 self->block->epoch);
  return meet(self) ? &move->it : NULL;
}

/* Lets the switch do a MOVE whose sources and destinations are both slots of all ranks. False where
 * it can't: then the block reads and writes every rank's slot itself. */
template <typename MOVER>
__device__ static inline bool moved_by_switch(const struct copse_device_plan &plan,
                                              struct thread_state *self,
                                              const struct copse_plan_op &op,
                                              const struct copse_move *move) {
  const uint8_t both = COPSE_MOVE_REDUCE_LOAD | COPSE_MOVE_GROUP_STORE;
  if (!plan.group || (op.flags & both) != both) return false;
  const unsigned char *first = self->block->ranks[0].scratch; /* the first operand is rank 0's */
  self->aliased = copse_move_group<MOVER::type>(
      move, plan.group + (move->src[0].at - first), plan.group + (move->dst[0].at - first),
      threadIdx.x, blockDim.x);
  return self->aliased;
}

/* Does one MOVE; false where the block must leave. MOVER moves elements of one type, or copies. */
template <typename MOVER>
__device__ static inline bool do_move(const struct copse_device_plan &plan,
                                      struct thread_state *self, const struct loaded_op &it,
                                      uint32_t &i, uint32_t &c) {
  const struct copse_plan_op &op = it.op;
  struct copse_span chunk = copse_shape_chunk(&self->block->view.shape, it.piece, c);
  if (chunk.count == 0) return true;
  const struct copse_move *move = move_of(self, op, chunk, i, c);
  if (!move) return false;
  self->wrote = true;
  if (moved_by_switch<MOVER>(plan, self, op, move)) return true;
  const bool ok = MOVER::run(move);
  /* from shared memory, or known, so that they take no registers meanwhile */
  i = move->timeout->op;
  c = move->timeout->chunk;
  self->turn = move == &self->block->moves[0].it;
  self->left = false; /* nobody has left, or move_of had given NULL */
  if (!plan.low_latency) return true;
  /* any thread may have timed out waiting for a packet: all learn it here, before the next wait */
  self->left = !ok;
  return meet(self);
}

/* Zeroes a rank's packets once all blocks of this device are done with them (copse_epoch_is_last).
 * All blocks of the plan call this, since they wait for each other; also blocks that leave early.
 */
__device__ static inline void clear_packets(const struct copse_device_plan &plan, uint32_t rank,
                                            uint32_t epoch) {
  copse_blocks_meet(&plan.met[0], plan.n_blocks);
  for (uint32_t r = rank; r < plan.n_segments; r += plan.n_ranks) { /* and its mirror */
    uint64_t *packets =
        reinterpret_cast<uint64_t *>(plan.segments[r].packets + (epoch & 1) * plan.packets_copy);
    for (uint64_t i = 2 * threadIdx.x; i < plan.packets_copy / sizeof(uint64_t);
         i += 2 * blockDim.x)
      copse_packets_store(&packets[i], copse_packets{{0, 0}});
  }
}

/* Runs this round's part; all threads of the block. False where the block must leave. */
template <typename MOVER>
__device__ static inline bool run_range(const struct copse_call_args &args,
                                        struct thread_state *self) {
  const struct copse_cursor &from = self->block->from, &to = self->block->to;
  if (!load_ops(args.plan, self)) return false;
  for (uint32_t c = from.chunk; c <= to.chunk; c++) {
    for (uint32_t i = c == from.chunk ? from.op : 0, n = 1;; i += n) {
      const uint32_t end = c < to.chunk ? self->block->work.n_ops : to.op;
      if (i >= end) break;
      const struct loaded_op it = op_at(args.plan, self, i);
      if (it.op.kind == COPSE_OP_MOVE) {
        n = 1;
        if (copse_op_runs(it.op.when, c, args.shape.n_chunks, args.plan.fifo) &&
            !do_move<MOVER>(args.plan, self, it, i, c))
          return false;
        continue;
      }
      n = it.run < end - i ? it.run : end - i;
      if (!do_syncs(args, self, it.op.kind, i, n, c)) return false;
    }
  }
  return true;
}

template <typename MOVER>
__device__ static inline void run_worker(const struct copse_call_args &args,
                                         struct block_state *block) {
  const struct copse_call_args &call = block->call; /* the same, once the block has met */
  struct thread_state self;
  thread_enter(args, block, &self);
  if (args.plan.words && blockIdx.x == 0 && threadIdx.x == 0)
    copse_signal_store(&args.plan.control->moved, copse_device_clock(), true);
  bool done = meet(&self) /* call, view, work and ranks are written */ &&
              run_range<MOVER>(call, &self);
  if ((!done || self.left) && call.plan.words && threadIdx.x == 0)
    copse_word_release(&call.plan.words[call.plan.own_word], 1);
  if (threadIdx.x == 0 && block->to.chunk == call.shape.n_chunks)
    call.plan.epochs[block->work.worker] = block->epoch;
  if (call.plan.low_latency && call.ends && copse_epoch_is_last(block->epoch))
    clear_packets(call.plan, block->work.rank, block->epoch);
}

__device__ static inline const struct copse_call_args &call_of(const struct copse_kernel_args &all,
                                                               uint32_t i) {
  const unsigned char *calls = reinterpret_cast<const unsigned char *>(all.calls);
  return *reinterpret_cast<const struct copse_call_args *>(calls + i * all.call_bytes);
}

/* Runs the calls one after another. What a kernel's end and the next one's start are to other ranks
 * is here a meeting of all blocks, those without work included. */
template <typename MOVER>
__device__ static inline void run_calls(const struct copse_kernel_args &all,
                                        struct block_state *block) {
  for (uint32_t i = 0;;) {
    const struct copse_call_args &args = call_of(all, i);
    if (blockIdx.x < args.plan.n_blocks) {
      if (threadIdx.x == 0) block->number = i;
      run_worker<MOVER>(args, block);
      i = block->number;
    }
    if (++i == all.n_calls) return;
    const bool grouped = args.plan.group || call_of(all, i).plan.group;
    if (grouped) copse_group_fence();
    copse_blocks_meet(&call_of(all, 0).plan.met[1], gridDim.x);
    if (grouped) copse_group_fence();
  }
}

/* ---- kernels ------------------------------------------------------------------------------ */

/* More needs cudaFuncSetAttribute, and for arguments newer GPUs. */
static_assert(sizeof(struct block_state) <= 48u << 10, "a block's shared memory");
static_assert(sizeof(struct copse_kernel_args) <= 4096, "a kernel's arguments");
static_assert(sizeof(struct copse_call_args) % sizeof(uint64_t) == 0,
              "buffers behind it are aligned");

/* For collectives that only move data: copies the bits. */
struct copier {
  static constexpr copse_type type = COPSE_UINT8; /* of which a switch has no sums */
  __device__ static bool run(const struct copse_move *move) {
    return copse_move_copy(move, copse_type_bytes(move->type), threadIdx.x, blockDim.x);
  }
};

__global__ void __launch_bounds__(COPSE_CUDA_MAX_THREADS, 1)
    copse_kernel_copy(const COPSE_GRID_CONSTANT struct copse_kernel_args args) {
  COPSE_SHARED_MEMORY(struct block_state, block);
  run_calls<copier>(args, block);
}

#define DEFINE_KERNEL(NAME, TYPE, T, A)                                              \
  struct mover_##NAME {                                                              \
    static constexpr copse_type type = TYPE;                                         \
    /* not inlined into the kernel, so that all registers are free for the data */   \
    __device__ static COPSE_NOINLINE bool run(const struct copse_move *move) {       \
      if (move->n_src == 1 && move->divisor == 1) return copier::run(move);          \
      return copse_##NAME##_move(move, threadIdx.x, blockDim.x);                     \
    }                                                                                \
  };                                                                                 \
  __global__ void __launch_bounds__(COPSE_CUDA_MAX_THREADS, 1)                       \
      copse_kernel_##NAME(const COPSE_GRID_CONSTANT struct copse_kernel_args args) { \
    COPSE_SHARED_MEMORY(struct block_state, block);                                  \
    run_calls<mover_##NAME>(args, block);                                            \
  }
COPSE_ELEMENT_TYPES(DEFINE_KERNEL)

copse_kernel copse_kernel_of(copse_type type, bool reduces) {
  if (!reduces) return copse_kernel_copy;
#define KERNEL_OF(NAME, TYPE, T, A) \
  case TYPE: return copse_kernel_##NAME;
  switch (type) {
    COPSE_ELEMENT_TYPES(KERNEL_OF)
    default: return NULL;
  }
}

bool copse_kernel_switches(copse_type type, copse_redop redop) {
#define COPSE_SWITCHES(NAME, TYPE, T, FOLD, REDOP, FORM, INSTRUCTION) \
  if (type == TYPE && redop == REDOP) return true;
  COPSE_GROUP_FOLDS(COPSE_SWITCHES)
  return false;
}

__global__ void __launch_bounds__(COPSE_CUDA_MAX_THREADS)
    copse_kernel_unstage(const COPSE_GRID_CONSTANT struct copse_unstage_args args) {
  uint64_t there = args.pair_counts[(uint64_t)blockIdx.x * args.n_ranks + args.rank];
  struct copse_place from = {args.from + blockIdx.x * args.count * args.element_bytes, 0};
  struct copse_place to = {args.to + (blockIdx.x * args.whole + args.first) * args.element_bytes,
                           0};
  struct copse_move move;
  memset(&move, 0, sizeof move);
  move.n_src = move.n_dst = 1;
  move.count = copse_part_of(there, args.first, args.count);
  move.src = &from;
  move.dst = &to;
  copse_move_copy(&move, args.element_bytes, threadIdx.x, blockDim.x);
}

__global__ void __launch_bounds__(COPSE_CUDA_MAX_THREADS)
    copse_kernel_unpack(const COPSE_GRID_CONSTANT struct copse_unpack_args args) {
  const struct copse_unpack_item item = args.items[blockIdx.x];
  struct copse_view view;
  memset(&view, 0, sizeof view);
  view.pieces = args.pieces;
  view.pair_counts = args.pair_counts;
  view.pair_first = args.pair_first;
  view.shape = args.shape;
  view.n_ranks = args.n_ranks;
  const struct copse_span chunk = copse_view_chunk(&view, item.piece, item.chunk);
  const uint64_t to_element = copse_block_offset(item.block, args.shape.output_stride, chunk);
  struct copse_place from = {
      args.scratch + copse_view_slot(&args.shape, &args.places[item.region], item.chunk), 0};
  struct copse_place to = {args.output + to_element * args.shape.element_bytes, 0};
  struct copse_move move;
  memset(&move, 0, sizeof move);
  move.n_src = move.n_dst = 1;
  move.count = chunk.count;
  move.src = &from;
  move.dst = &to;
  copse_move_copy(&move, args.shape.element_bytes, threadIdx.x, blockDim.x);
}

__global__ void copse_kernel_mark(uint64_t *underway, uint64_t value) {
  copse_signal_store(underway, value, true);
}

copse_mark_kernel_type copse_mark_kernel(void) { return copse_kernel_mark; }

copse_unpack_kernel_type copse_unpack_kernel(void) { return copse_kernel_unpack; }

copse_unstage_kernel_type copse_unstage_kernel(void) { return copse_kernel_unstage; }

size_t copse_kernel_shared_bytes(void) { return sizeof(struct block_state); }
