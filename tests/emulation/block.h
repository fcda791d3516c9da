/* What the threads of a running block share. */
#ifndef COPSE_EMULATION_BLOCK_H
#define COPSE_EMULATION_BLOCK_H

#include <atomic>
#include <memory>

#include "device_language.h"

namespace copse_emulation {

/* Threads meet, over and over; each brings a number and gets the sum of this meeting. A thread
 * that has left isn't waited for. Sleeps soon: there are more threads than cores. */
class Barrier {
 public:
  void start(unsigned threads) { state_ = (uint64_t)(threads_ = threads) << 32; }
  unsigned meet(unsigned number);
  void leave();
  bool has_waiting() const { return (uint32_t)state_.load() != 0; }
  bool has_left() const { return state_.load() >> 32 != threads_; }

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
  explicit Block(int n_threads);
};

/* The calling thread becomes number `index` of the block, and stops to be. */
void enter_block(Block *block, unsigned index);
void leave_block();

}  // namespace copse_emulation

#endif
