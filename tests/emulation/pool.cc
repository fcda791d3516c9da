/* Threads, kept from one piece of work to the next, and completions. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "internal.h"

namespace copse_emulation {

namespace {

constexpr size_t thread_stack_bytes = (size_t)256 << 10; /* kernels have stacks of their own: fiber.cc */

struct Worker {
  std::mutex lock;
  std::condition_variable wake;
  Work work;
};

/* Never destroyed: workers outlive main(). */
struct Pool {
  std::mutex lock;
  std::vector<Worker *> idle;
};
Pool &pool() {
  static Pool *p = new Pool;
  return *p;
}

void *worker_main(void *argument) {
  Worker *self = static_cast<Worker *>(argument);
  prctl(PR_SET_TIMERSLACK, 1000); /* nanoseconds: kernels that wait sleep briefly */
  for (;;) {
    Work work;
    {
      std::unique_lock<std::mutex> hold(self->lock);
      self->wake.wait(hold, [self] { return (bool)self->work; });
      work.swap(self->work);
    }
    work();
    work = nullptr;
    std::lock_guard<std::mutex> hold(pool().lock);
    pool().idle.push_back(self);
  }
  return nullptr;
}

bool new_worker() {
  Worker *worker = new Worker;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, thread_stack_bytes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t id;
  bool is_started = pthread_create(&id, &attributes, worker_main, worker) == 0;
  pthread_attr_destroy(&attributes);
  if (is_started)
    pool().idle.push_back(worker);
  else
    delete worker;
  return is_started;
}

}  // namespace

/* Takes n idle workers, or new ones, of the pool; false where the system has no more. */
static bool take_workers(size_t n, std::vector<Worker *> *team) {
  std::lock_guard<std::mutex> hold(pool().lock);
  std::vector<Worker *> &idle = pool().idle;
  while (idle.size() < n)
    if (!new_worker()) return false;
  team->assign(idle.end() - (ptrdiff_t)n, idle.end());
  idle.resize(idle.size() - n);
  return true;
}

bool start_threads(std::vector<Work> work) {
  std::vector<Worker *> team;
  if (!take_workers(work.size(), &team)) return false;
  for (size_t i = 0; i < work.size(); i++) {
    {
      std::lock_guard<std::mutex> hold(team[i]->lock);
      team[i]->work = std::move(work[i]);
    }
    team[i]->wake.notify_one();
  }
  return true;
}

void start_thread(Work work) {
  std::vector<Work> one;
  one.push_back(std::move(work));
  if (start_threads(std::move(one))) return;
  fprintf(stderr, "emulated CUDA: the system has no more threads\n");
  abort();
}

void Completion::finish() {
  std::lock_guard<std::mutex> hold(lock_);
  finished_ = true;
  when_ = Clock::now();
  changed_.notify_all();
}

void Completion::wait() {
  std::unique_lock<std::mutex> hold(lock_);
  changed_.wait(hold, [this] { return finished_; });
}

bool Completion::is_finished() {
  std::lock_guard<std::mutex> hold(lock_);
  return finished_;
}

Clock::time_point Completion::when() {
  std::lock_guard<std::mutex> hold(lock_);
  return when_;
}

}  // namespace copse_emulation
