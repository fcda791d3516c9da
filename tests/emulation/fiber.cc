#include "fiber.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif
#if !defined(__x86_64__) || defined(COPSE_FIBERS_BY_UCONTEXT)
#define COPSE_UCONTEXT 1
#include <ucontext.h>
#endif

#include <mutex>

namespace copse_emulation {

namespace {

constexpr size_t stack_bytes = (size_t)512 << 10, guard_bytes = (size_t)64 << 10;

/* Atomic, as all that a thread and its fibers both use: else ThreadSanitizer would see races. */
thread_local std::atomic<Fiber *> running{nullptr};

[[noreturn]] void no_memory() {
  perror("emulated CUDA: no stack for a fiber");
  abort();
}

}  // namespace

/* ---- switching ------------------------------------------------------------------------------ */

#if !defined(COPSE_UCONTEXT)
/* Saves what a call must keep on the stack of `from`, and takes it from that of `to`. swapcontext
 * does as much, with two calls of the system each time. */
extern "C" void copse_fiber_switch(void **from, void *to);
__asm__(
    ".text\n"
    ".p2align 4\n"
    ".type copse_fiber_switch,@function\n"
    "copse_fiber_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n"
    ".size copse_fiber_switch, .-copse_fiber_switch\n");

/* As if `entry` had been called from nowhere, and what it must keep were zero. */
static void *first_frame(char *stack, void (*entry)()) {
  void **top = reinterpret_cast<void **>(stack + stack_bytes);
  top[-1] = nullptr;
  top[-2] = reinterpret_cast<void *>(entry);
  for (int i = 3; i <= 8; i++) top[-i] = nullptr;
  return top - 8;
}
static void free_frame(void *) {}
static inline void switch_stacks(Fiber::Side *from, Fiber::Side *to) {
  copse_fiber_switch(&from->stack_pointer, to->stack_pointer);
}
#else
static void *first_frame(char *stack, void (*entry)()) {
  ucontext_t *context = new ucontext_t;
  if (getcontext(context) != 0) no_memory();
  context->uc_stack.ss_sp = stack;
  context->uc_stack.ss_size = stack_bytes;
  context->uc_link = nullptr;
  makecontext(context, entry, 0);
  return context;
}
static void free_frame(void *context) { delete static_cast<ucontext_t *>(context); }
static inline void switch_stacks(Fiber::Side *from, Fiber::Side *to) {
  if (!from->stack_pointer) from->stack_pointer = new ucontext_t; /* a thread's, kept */
  swapcontext(static_cast<ucontext_t *>(from->stack_pointer),
              static_cast<ucontext_t *>(to->stack_pointer));
}
#endif

/* Not instrumented, since both sides touch these. Returns when something changes to `from` again,
 * with the stack that it came from, if AddressSanitizer is there to know it. */
struct Stack {
  const void *bottom;
  size_t bytes;
};
__attribute__((noinline, no_sanitize("thread"))) static Stack change(Fiber::Side *from,
                                                                     Fiber::Side *to) {
  Stack came = {nullptr, 0};
#if defined(__SANITIZE_THREAD__)
  from->thread = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(to->thread, __tsan_switch_to_fiber_no_sync);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from->fake_stack, to->bottom, to->bytes);
#endif
  switch_stacks(from, to);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(from->fake_stack, &came.bottom, &came.bytes);
#endif
  return came;
}

/* ---- a fiber -------------------------------------------------------------------------------- */

__attribute__((no_sanitize("thread"))) Fiber::Fiber() {
  char *memory =
      static_cast<char *>(mmap(nullptr, guard_bytes + stack_bytes, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (memory == MAP_FAILED || mprotect(memory, guard_bytes, PROT_NONE) != 0) no_memory();
  own_.bottom = memory + guard_bytes;
  own_.bytes = stack_bytes;
  own_.stack_pointer = first_frame(memory + guard_bytes, enter);
#if defined(__SANITIZE_THREAD__)
  own_.thread = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(own_.thread);
#endif
  free_frame(own_.stack_pointer);
  munmap(static_cast<char *>(const_cast<void *>(own_.bottom)) - guard_bytes,
         guard_bytes + stack_bytes);
}

void Fiber::start(void (*body)(void *), void *argument) {
  argument_.store(argument, std::memory_order_relaxed);
  body_.store(body, std::memory_order_release);
}

bool Fiber::resume() {
  static thread_local Side thread;
  is_running_.store(true, std::memory_order_relaxed);
  home_.store(&thread, std::memory_order_relaxed);
  running.store(this, std::memory_order_relaxed);
  (void)change(&thread, &own_);
  running.store(nullptr, std::memory_order_relaxed);
  /* relaxed: or whatever is started later would come after all of this body */
  return is_running_.load(std::memory_order_relaxed);
}

/* Where a thread's own stack is becomes known when it is left. */
void Fiber::came_from(const void *bottom, size_t bytes) {
  Side *home = home_.load(std::memory_order_relaxed);
  home->bottom = bottom;
  home->bytes = bytes;
}

/* Never inlined: the next body may run on another thread, which has other thread-local variables.
 */
__attribute__((noinline)) void Fiber::suspend() {
  Fiber *self = running.load(std::memory_order_relaxed);
  Stack thread = change(&self->own_, self->home_.load(std::memory_order_relaxed));
  if (thread.bottom) self->came_from(thread.bottom, thread.bytes);
}

void Fiber::enter() {
  Fiber *self = running.load(std::memory_order_relaxed);
#if defined(__SANITIZE_ADDRESS__)
  Stack thread;
  __sanitizer_finish_switch_fiber(nullptr, &thread.bottom, &thread.bytes);
  self->came_from(thread.bottom, thread.bytes);
#endif
  self->run();
}

void Fiber::run() {
  for (;;) {
    void (*body)(void *) = body_.load(std::memory_order_acquire);
    body(argument_.load(std::memory_order_relaxed));
    is_running_.store(false, std::memory_order_relaxed);
    suspend();
  }
}

/* ---- those that are kept ----------------------------------------------------------------------
 */

/* Never destroyed: threads outlive main(). */
struct Kept {
  std::mutex lock;
  Fibers fibers;
};
static Kept &kept() {
  static Kept *k = new Kept;
  return *k;
}

Fibers take_fibers(size_t n) {
  Fibers taken;
  std::lock_guard<std::mutex> hold(kept().lock);
  Fibers &all = kept().fibers;
  while (taken.size() < n && !all.empty()) {
    taken.push_back(std::move(all.back()));
    all.pop_back();
  }
  while (taken.size() < n) taken.emplace_back(new Fiber);
  return taken;
}

void give_back_fibers(Fibers fibers) {
  std::lock_guard<std::mutex> hold(kept().lock);
  for (std::unique_ptr<Fiber> &fiber : fibers) kept().fibers.push_back(std::move(fiber));
}

}  // namespace copse_emulation
