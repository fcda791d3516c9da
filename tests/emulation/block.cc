/* The device side: barriers, warps, fences, time. */
#include <linux/futex.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "block.h"

__thread uint3 threadIdx, blockIdx;
__thread dim3 blockDim, gridDim;

namespace copse_emulation {

namespace {

/* Nanoseconds that __nanosleep sleeps at least: the first time, and at most, in a wait that goes
 * on. Every look costs a switch of threads. */
constexpr uint64_t doze = 20000, longest_doze = 320000;

struct Self {
  Block *block;
  Warp *warp;
  unsigned lane;
};
thread_local Self self;

[[noreturn]] void give_up(const char *why) {
  fprintf(stderr, "emulated CUDA: block %u, thread %u: %s\n", blockIdx.x, threadIdx.x, why);
  abort();
}

Block &own_block() {
  if (!self.block) give_up("not in a kernel");
  return *self.block;
}

Warp &own_warp(unsigned mask) {
  own_block();
  unsigned all = self.warp->n_threads == 32 ? 0xffffffffu : (1u << self.warp->n_threads) - 1;
  if ((mask & all) != all) give_up("a mask that leaves threads of the warp out is not emulated");
  return *self.warp;
}

long futex(std::atomic<uint32_t> *word, int operation, uint32_t value) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t *>(word), operation, value, nullptr, nullptr,
                 0);
}

void sleep_for(long nanoseconds) {
  struct timespec t = {nanoseconds / 1000000000, nanoseconds % 1000000000};
  nanosleep(&t, nullptr);
}

}  // namespace

bool Barrier::arrive(uint64_t change) {
  uint64_t old = state_.load(std::memory_order_relaxed), next;
  bool is_last;
  do {
    next = old + change;
    uint64_t expected = next >> 32;
    is_last = expected > 0 && (next & 0xffffffffu) == expected;
    if (is_last) next = expected << 32;
  } while (!state_.compare_exchange_weak(old, next, std::memory_order_acq_rel));
  return is_last;
}

void Barrier::open() {
  sums_[(generation_.load(std::memory_order_relaxed) + 1) & 1].store(0, std::memory_order_relaxed);
  generation_.fetch_add(1);
  if (sleepers_.load()) futex(&generation_, FUTEX_WAKE_PRIVATE, INT_MAX);
}

unsigned Barrier::meet(unsigned number) {
  uint32_t now = generation_.load(std::memory_order_relaxed);
  std::atomic<unsigned> &sum = sums_[now & 1];
  sum.fetch_add(number, std::memory_order_relaxed);
  if (arrive(1)) {
    open();
    return sum.load(std::memory_order_relaxed);
  }
  /* No spinning, and no yielding: on a busy machine a yield costs a time slice. */
  sleepers_.fetch_add(1);
  while (generation_.load() == now) futex(&generation_, FUTEX_WAIT_PRIVATE, now);
  sleepers_.fetch_sub(1);
  return sum.load(std::memory_order_relaxed);
}

void Barrier::leave() {
  if (arrive(-((uint64_t)1 << 32))) open();
}

Block::Block(int n_threads) : warps(new Warp[(size_t)(n_threads + 31) / 32]) {
  barrier.start((unsigned)n_threads);
  for (int first = 0; first < n_threads; first += 32) {
    Warp &warp = warps[(size_t)first / 32];
    warp.n_threads = n_threads - first < 32 ? (unsigned)(n_threads - first) : 32;
    warp.barrier.start(warp.n_threads);
  }
}

void enter_block(Block *block, unsigned index) {
  self = {block, &block->warps[index / 32], index % 32};
}

/* A GPU's grid waits for threads that have left, for ever. */
static void check_grid(bool is_wrong) {
  if (is_wrong) give_up("the grid is synchronised by some threads only, a GPU would hang");
}

void leave_block() {
  self.warp->barrier.leave();
  self.block->barrier.leave();
  if (self.block->grid) {
    check_grid(self.block->grid->has_waiting());
    self.block->grid->leave();
  }
  self = {nullptr, nullptr, 0};
}

}  // namespace copse_emulation

using namespace copse_emulation;

void *copse_emulated_shared(void) { return own_block().shared; }

void __syncthreads(void) { own_block().barrier.meet(0); }
int __syncthreads_or(int predicate) { return own_block().barrier.meet(predicate != 0) != 0; }
int __syncthreads_and(int predicate) { return own_block().barrier.meet(predicate == 0) == 0; }
int __syncthreads_count(int predicate) { return (int)own_block().barrier.meet(predicate != 0); }

void __syncwarp(unsigned mask) { own_warp(mask).barrier.meet(0); }
unsigned __ballot_sync(unsigned mask, int predicate) {
  return own_warp(mask).barrier.meet(predicate ? 1u << self.lane : 0);
}
int __all_sync(unsigned mask, int predicate) {
  return own_warp(mask).barrier.meet(predicate == 0) == 0;
}
unsigned copse_emulated_lane(void) { return own_block(), self.lane; }

bool copse_emulated_shuffle(unsigned mask, unsigned lane, unsigned long long *value) {
  Warp &warp = own_warp(mask);
  warp.values[self.lane] = *value;
  warp.barrier.meet(0);
  bool exists = lane < warp.n_threads;
  if (exists) *value = warp.values[lane];
  warp.barrier.meet(0);
  return exists;
}

void copse_emulated_grid_sync(void) {
  Barrier *grid = own_block().grid;
  if (!grid) give_up("the grid can't be synchronised: the launch is not cooperative");
  check_grid(grid->has_left());
  grid->meet(0);
}

void copse_emulated_fence(void) {
  /* ThreadSanitizer knows no fences, but it knows that these follow one another. */
  static std::atomic<int> all{0};
  all.fetch_add(1);
#if !defined(__SANITIZE_THREAD__)
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

/* A thread that comes again at once is still waiting for the same. */
void __nanosleep(unsigned nanoseconds) {
  static thread_local uint64_t woke_at, slept;
  bool goes_on = copse_emulated_globaltimer() - woke_at < doze;
  slept = !goes_on ? doze : 2 * slept < longest_doze ? 2 * slept : longest_doze;
  sleep_for((long)(nanoseconds > slept ? nanoseconds : slept));
  woke_at = copse_emulated_globaltimer();
}

unsigned long long copse_emulated_globaltimer(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (unsigned long long)t.tv_sec * 1000000000u + (unsigned long long)t.tv_nsec;
}

void __trap(void) { give_up("__trap"); }
