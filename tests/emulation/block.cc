/* The device side: barriers, warps, fences, time, and the turns of a block's threads. */
#include <linux/futex.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <vector>

#include "block.h"
#include "fiber.h"

__thread uint3 threadIdx, blockIdx;
__thread dim3 blockDim, gridDim;

namespace copse_emulation {

namespace {

/* Nanoseconds that __nanosleep sleeps at least: the first time, and at most, in a wait that goes
 * on. Every look costs a switch of threads. */
constexpr uint64_t doze = 100000, longest_doze = 1600000;

/* A thread of a block. What it waits for it writes, and who runs the block reads: atomics without
 * an order, so that ThreadSanitizer takes the threads' turns for nothing. */
struct Thread {
  Block *block;
  Warp *warp;
  unsigned lane;
  uint3 index;
  void (*body)(void *);
  void *argument;
  std::atomic<Barrier *> barrier{nullptr}; /* that it waits at, for another generation */
  std::atomic<uint32_t> generation{0};
  std::atomic<uint64_t> wakes_at{0}; /* asleep until then; 0: not */
  uint64_t woke_at = 0, slept = 0;   /* of __nanosleep */
};
thread_local std::atomic<Thread *> current{nullptr};

Thread *own_thread() { return current.load(std::memory_order_relaxed); }

[[noreturn]] void give_up(const char *why) {
  fprintf(stderr, "emulated CUDA: block %u, thread %u: %s\n", blockIdx.x, threadIdx.x, why);
  abort();
}

Thread &own() {
  Thread *self = own_thread();
  if (!self) give_up("not in a kernel");
  return *self;
}
Block &own_block() { return *own().block; }

Warp &own_warp(unsigned mask) {
  Warp &warp = *own().warp;
  unsigned all = warp.n_threads == 32 ? 0xffffffffu : (1u << warp.n_threads) - 1;
  if ((mask & all) != all) give_up("a mask that leaves threads of the warp out is not emulated");
  return warp;
}

struct timespec time_of(uint64_t nanoseconds) {
  return {(time_t)(nanoseconds / 1000000000), (long)(nanoseconds % 1000000000)};
}

long futex(std::atomic<uint32_t> *word, int operation, uint32_t value,
           const struct timespec *time) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t *>(word), operation, value, time, nullptr, 0);
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
  if (sleepers_.load()) futex(&generation_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr);
}

void Barrier::sleep(uint32_t generation, uint64_t nanoseconds) {
  struct timespec time = time_of(nanoseconds);
  sleepers_.fetch_add(1);
  if (generation_.load() == generation)
    futex(&generation_, FUTEX_WAIT_PRIVATE, generation, nanoseconds ? &time : nullptr);
  sleepers_.fetch_sub(1);
}

unsigned Barrier::meet(unsigned number) {
  uint32_t now = generation_.load(std::memory_order_relaxed);
  std::atomic<unsigned> &sum = sums_[now & 1];
  sum.fetch_add(number, std::memory_order_relaxed);
  if (arrive(1)) {
    open();
    return sum.load(std::memory_order_relaxed);
  }
  Thread &self = own();
  self.generation.store(now, std::memory_order_relaxed);
  self.barrier.store(this, std::memory_order_relaxed);
  while (generation_.load() == now) Fiber::suspend();
  self.barrier.store(nullptr, std::memory_order_relaxed);
  return sum.load(std::memory_order_relaxed);
}

void Barrier::leave() {
  if (arrive(-((uint64_t)1 << 32))) open();
}

Block::Block(int n_threads) : warps(new Warp[(size_t)(n_threads + 31) / 32]), left(n_threads) {
  barrier.start((unsigned)n_threads);
  for (int first = 0; first < n_threads; first += 32) {
    Warp &warp = warps[(size_t)first / 32];
    warp.n_threads = n_threads - first < 32 ? (unsigned)(n_threads - first) : 32;
    warp.barrier.start(warp.n_threads);
  }
}

/* A GPU's grid waits for threads that have left, for ever. */
static void check_grid(bool is_wrong) {
  if (is_wrong) give_up("the grid is synchronised by some threads only, a GPU would hang");
}

static void leave_block(Thread *self) {
  self->warp->barrier.leave();
  self->block->barrier.leave();
  if (self->block->grid) {
    check_grid(self->block->grid->has_waiting());
    self->block->grid->leave();
  }
}

/* ---- turns ------------------------------------------------------------------------------------
 */

/* Not instrumented: threads of a block read these in the same place, each its own. */
__attribute__((noinline, no_sanitize("thread"))) static void set_indices(Thread *thread) {
  threadIdx = thread->index;
  current.store(thread, std::memory_order_relaxed);
}
__attribute__((noinline, no_sanitize("thread"))) static void set_shapes(uint3 index, dim3 block,
                                                                        dim3 grid) {
  blockIdx = index;
  blockDim = block;
  gridDim = grid;
}

static bool is_ready(const Thread &thread, uint64_t now) {
  const Barrier *barrier = thread.barrier.load(std::memory_order_relaxed);
  if (barrier) return barrier->generation() != thread.generation.load(std::memory_order_relaxed);
  return thread.wakes_at.load(std::memory_order_relaxed) <= now;
}

namespace {

/* The threads of a block that runs, and who of them can get on. */
class Turns {
 public:
  Turns(Block *block, dim3 shape, void (*body)(void *), void *argument)
      : block_(block),
        n_(shape.x * shape.y * shape.z),
        threads_(new Thread[n_]),
        fibers_(take_fibers(n_)),
        is_running_(n_, true) {
    for (unsigned i = 0; i < n_; i++) {
      Thread &thread = threads_[i];
      thread.block = block;
      thread.warp = &block->warps[i / 32];
      thread.lane = i % 32;
      thread.index = {i % shape.x, i / shape.x % shape.y, i / shape.x / shape.y};
      thread.body = body;
      thread.argument = argument;
    }
    /* all before the first runs: none comes after another's first turn */
    for (unsigned i = 0; i < n_; i++) fibers_[i]->start(run_thread, &threads_[i]);
  }
  ~Turns() { give_back_fibers(std::move(fibers_)); }

  /* The first of a round is another one each time: threads have no order. */
  void run() {
    for (unsigned first = 0, n_running = n_; n_running > 0; first = (first + 1) % n_) {
      uint64_t now = copse_emulated_globaltimer();
      bool some = false;
      for (unsigned k = 0; k < n_; k++) {
        unsigned i = (first + k) % n_;
        if (!is_running_[i] || !is_ready(threads_[i], now)) continue;
        some = true;
        set_indices(&threads_[i]);
        is_running_[i] = fibers_[i]->resume();
        n_running -= !is_running_[i];
      }
      if (!some) wait();
    }
    current.store(nullptr, std::memory_order_relaxed);
    (void)block_->left.load(std::memory_order_acquire); /* after all that they did */
  }

 private:
  /* For the grid, or for the first that wakes. */
  void wait() {
    uint64_t now = copse_emulated_globaltimer(), until = UINT64_MAX;
    const Thread *at_grid = nullptr;
    for (unsigned i = 0; i < n_; i++) {
      if (!is_running_[i]) continue;
      const Barrier *barrier = threads_[i].barrier.load(std::memory_order_relaxed);
      uint64_t wakes_at = threads_[i].wakes_at.load(std::memory_order_relaxed);
      if (barrier && barrier == block_->grid) at_grid = &threads_[i];
      if (!barrier && wakes_at < until) until = wakes_at;
    }
    if (!at_grid && until == UINT64_MAX)
      give_up("threads wait for each other at different barriers, a GPU would hang");
    if (until <= now) return;
    uint64_t nanoseconds = until == UINT64_MAX ? 0 : until - now;
    if (at_grid) {
      block_->grid->sleep(at_grid->generation.load(std::memory_order_relaxed), nanoseconds);
      return;
    }
    struct timespec time = time_of(nanoseconds);
    nanosleep(&time, nullptr);
  }
  static void run_thread(void *argument) {
    Thread *self = static_cast<Thread *>(argument);
    Block *block = self->block;
    self->body(self->argument);
    leave_block(self);
    block->left.fetch_sub(1);
  }

  Block *block_;
  unsigned n_;
  std::unique_ptr<Thread[]> threads_;
  Fibers fibers_;
  std::vector<char> is_running_;
};

}  // namespace

void run_threads(Block *block, dim3 block_shape, dim3 grid_shape, void (*body)(void *),
                 void *argument) {
  set_shapes(block->index, block_shape, grid_shape);
  Turns(block, block_shape, body, argument).run();
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
  return own_warp(mask).barrier.meet(predicate ? 1u << own().lane : 0);
}
int __all_sync(unsigned mask, int predicate) {
  return own_warp(mask).barrier.meet(predicate == 0) == 0;
}
unsigned copse_emulated_lane(void) { return own().lane; }

bool copse_emulated_shuffle(unsigned mask, unsigned lane, unsigned long long *value) {
  Warp &warp = own_warp(mask);
  warp.values[own().lane] = *value;
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
  if (!own_thread()) { /* a test's, on the host */
    struct timespec time = time_of(nanoseconds);
    nanosleep(&time, nullptr);
    return;
  }
  Thread &self = own();
  uint64_t now = copse_emulated_globaltimer();
  bool goes_on = now - self.woke_at < doze;
  self.slept = !goes_on ? doze : 2 * self.slept < longest_doze ? 2 * self.slept : longest_doze;
  self.wakes_at.store(now + (nanoseconds > self.slept ? nanoseconds : self.slept),
                      std::memory_order_relaxed);
  Fiber::suspend();
  self.wakes_at.store(0, std::memory_order_relaxed);
  self.woke_at = copse_emulated_globaltimer();
}

unsigned long long copse_emulated_globaltimer(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (unsigned long long)t.tv_sec * 1000000000u + (unsigned long long)t.tv_nsec;
}

void __trap(void) { give_up("__trap"); }
