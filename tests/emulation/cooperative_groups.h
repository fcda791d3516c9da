/* The block and the grid of a cooperative launch, of CUDA's cooperative groups. */
#ifndef COPSE_EMULATED_COOPERATIVE_GROUPS_H
#define COPSE_EMULATED_COOPERATIVE_GROUPS_H

#include "device_language.h"

namespace cooperative_groups {
struct thread_block {
  void sync() const { __syncthreads(); }
  unsigned thread_rank() const {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  }
  unsigned size() const { return blockDim.x * blockDim.y * blockDim.z; }
};
static inline thread_block this_thread_block() { return {}; }

struct grid_group {
  void sync() const { copse_emulated_grid_sync(); }
  unsigned long long block_rank() const {
    return blockIdx.x + gridDim.x * (blockIdx.y + (unsigned long long)gridDim.y * blockIdx.z);
  }
  unsigned long long thread_rank() const {
    return block_rank() * thread_block().size() + thread_block().thread_rank();
  }
  unsigned long long size() const {
    return (unsigned long long)gridDim.x * gridDim.y * gridDim.z * thread_block().size();
  }
};
static inline grid_group this_grid() { return {}; }
}  // namespace cooperative_groups

#endif
