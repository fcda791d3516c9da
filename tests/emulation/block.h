/* What the threads of a running block share, and how they take turns: a block is a thread of the
 * CPU, its threads are fibers. */
#ifndef COPSE_EMULATION_BLOCK_H
#define COPSE_EMULATION_BLOCK_H

#include <atomic>
#include <memory>

#include "device_language.h"

namespace copse_emulation {

/* Threads meet, over and over; each brings a number and gets the sum of this meeting. A thread
 * that has left isn't waited for. */
class Barrier {
 public:
  void start(unsigned threads) { state_ = (uint64_t)(threads_ = threads) << 32; }
  unsigned meet(unsigned number);
  void leave();
  bool has_waiting() const { return (uint32_t)state_.load() != 0; }
  bool has_left() const { return state_.load() >> 32 != threads_; }
  /* Another one after each meeting. Says nothing of what came before: meet() does. */
  uint32_t generation() const { return generation_.load(std::memory_order_relaxed); }
  /* Until there is another generation, or for so many nanoseconds (0: any time). */
  void sleep(uint32_t generation, uint64_t nanoseconds);

 private:
  bool arrive(uint64_t change); /* true: this was the last one */
  void open();
  unsigned threads_ = 0;
  std::atomic<uint64_t> state_{0}; /* expected in the upper half, arrived in the lower */
  std::atomic<uint32_t> generation_{0};
  std::atomic<unsigned> sleepers_{0};
  std::atomic<unsigned> sums_[2] = {{0}, {0}}; /* of this meeting and of the next */
};

struct Warp {
  Barrier barrier;
  unsigned n_threads;
  unsigned long long values[32];
};

struct Block {
  uint3 index;
  void *shared = nullptr;
  Barrier barrier;
  Barrier *grid = nullptr; /* of a cooperative launch */
  std::unique_ptr<Warp[]> warps;
  std::atomic<int> left; /* threads that have not */
  explicit Block(int n_threads);
};

/* Runs body(argument) as each thread of the block (blockDim and gridDim are given) until all have
 * left. */
void run_threads(Block *block, dim3 block_shape, dim3 grid_shape, void (*body)(void *),
                 void *argument);

}  // namespace copse_emulation

#endif
