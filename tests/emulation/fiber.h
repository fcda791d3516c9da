/* Fibers: functions with stacks of their own that take turns on threads of the CPU. */
#ifndef COPSE_EMULATION_FIBER_H
#define COPSE_EMULATION_FIBER_H

#include <stddef.h>

#include <atomic>
#include <memory>
#include <vector>

namespace copse_emulation {

/*
 * Runs bodies, one after the other, each on whichever thread resumes it; not on two at once. For
 * ThreadSanitizer a fiber is a thread: what orders two fibers are the atomics that they use, never
 * that they take turns. A body starts after what came before start().
 */
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber &) = delete;
  Fiber &operator=(const Fiber &) = delete;

  /* The next body, to be entered by the first resume(). */
  void start(void (*body)(void *), void *argument);
  /* Goes on until the body suspends, or ends: then false. */
  bool resume();
  /* In a body: back to who resumed it. */
  static void suspend();

  /* What a switch leaves and enters; public for the switch alone. */
  struct Side {
    void *stack_pointer = nullptr;
    void *thread = nullptr;       /* ThreadSanitizer's */
    void *fake_stack = nullptr;   /* AddressSanitizer's */
    const void *bottom = nullptr; /* of the stack, for AddressSanitizer */
    size_t bytes = 0;
  };

 private:
  static void enter();
  void came_from(const void *bottom, size_t bytes);
  void run();
  Side own_;
  std::atomic<Side *> home_{nullptr}; /* of the thread that resumed it last */
  std::atomic<bool> is_running_{false};
  std::atomic<void *> argument_{nullptr};
  std::atomic<void (*)(void *)> body_{nullptr};
};

/* Fibers that are kept for later, so that few are made. */
typedef std::vector<std::unique_ptr<Fiber>> Fibers;
Fibers take_fibers(size_t n);
void give_back_fibers(Fibers fibers);

}  // namespace copse_emulation

#endif
