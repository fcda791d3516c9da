/* The kernels: one that copies, and one per element type that reduces. */
#include "runtime/gpu/kernels.h"

#include "runtime/gpu/kernel.cuh"

/* More than these is there only for who asks: cudaFuncSetAttribute, newer GPUs. */
static_assert(sizeof(struct copse_block) <= 48u << 10, "a block's shared memory");
static_assert(sizeof(struct copse_launch_args) <= 4096, "a kernel's arguments");

/* Collectives that only move data: the bits as they are. */
struct copse_copier {
  __device__ static bool run(const struct copse_move *move) {
    return copse_move_copy(move, copse_type_bytes(move->type), threadIdx.x, blockDim.x);
  }
};

__global__ void __launch_bounds__(COPSE_CUDA_MAX_THREADS, 1)
    copse_kernel_copy(const COPSE_GRID_CONSTANT struct copse_launch_args args) {
  COPSE_SHARED_MEMORY(struct copse_block, block);
  copse_run_worker<copse_copier>(args, block);
}

#define COPSE_KERNEL(NAME)                                                                     \
  struct copse_mover_##NAME {                                                                  \
    /* no part of the kernel: its registers are for the data alone */                          \
    __device__ static COPSE_NOINLINE bool run(const struct copse_move *move) {                 \
      if (move->n_src == 1 && move->divisor == 1) return copse_copier::run(move);              \
      return copse_##NAME##_move(move, threadIdx.x, blockDim.x);                               \
    }                                                                                          \
  };                                                                                           \
  __global__ void __launch_bounds__(COPSE_CUDA_MAX_THREADS, 1)                                 \
      copse_kernel_##NAME(const COPSE_GRID_CONSTANT struct copse_launch_args args) {           \
    COPSE_SHARED_MEMORY(struct copse_block, block);                                            \
    copse_run_worker<copse_mover_##NAME>(args, block);                                         \
  }

COPSE_KERNEL(int8)
COPSE_KERNEL(uint8)
COPSE_KERNEL(int32)
COPSE_KERNEL(uint32)
COPSE_KERNEL(int64)
COPSE_KERNEL(uint64)
COPSE_KERNEL(half)
COPSE_KERNEL(float)
COPSE_KERNEL(double)
COPSE_KERNEL(bfloat16)
COPSE_KERNEL(float8_e4m3)
COPSE_KERNEL(float8_e5m2)

copse_kernel copse_kernel_of(copse_type type, bool reduces) {
  if (!reduces) return copse_kernel_copy;
  switch (type) {
    case COPSE_INT8: return copse_kernel_int8;
    case COPSE_UINT8: return copse_kernel_uint8;
    case COPSE_INT32: return copse_kernel_int32;
    case COPSE_UINT32: return copse_kernel_uint32;
    case COPSE_INT64: return copse_kernel_int64;
    case COPSE_UINT64: return copse_kernel_uint64;
    case COPSE_HALF: return copse_kernel_half;
    case COPSE_FLOAT: return copse_kernel_float;
    case COPSE_DOUBLE: return copse_kernel_double;
    case COPSE_BFLOAT16: return copse_kernel_bfloat16;
    case COPSE_FLOAT8_E4M3: return copse_kernel_float8_e4m3;
    default: return copse_kernel_float8_e5m2;
  }
}

__global__ void __launch_bounds__(COPSE_CUDA_MAX_THREADS)
    copse_kernel_unstage(const COPSE_GRID_CONSTANT struct copse_unstage_args args) {
  uint64_t there = args.pair_counts[(uint64_t)blockIdx.x * args.n_ranks + args.rank];
  struct copse_place from = {args.from + blockIdx.x * args.count * args.element_bytes, 0};
  struct copse_place to = {
      args.to + (blockIdx.x * args.whole + args.first) * args.element_bytes, 0};
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

size_t copse_kernel_shared_bytes(void) { return sizeof(struct copse_block); }
