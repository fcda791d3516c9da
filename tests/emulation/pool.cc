/* Threads, kept from one piece of work to the next, and completions. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "internal.h"

namespace copse_emulation {

namespace {

constexpr size_t stack_bytes = (size_t)1 << 20;

struct Worker {
  std::mutex lock;
  std::condition_variable wake;
  Work work;
  size_t list; /* of the pool's idle ones */
};

/* Threads that meet often are kept on one core, where they wake each other for a fraction of what
 * it costs over cores; the first list is of those that run on any. */
constexpr size_t anywhere = 0;

/* Never destroyed: workers outlive main(). */
struct Pool {
  std::mutex lock;
  std::vector<int> cores; /* by list; none of the first */
  std::vector<std::vector<Worker *>> idle;
  size_t turn = 0; /* of the cores */
  Pool() : cores(1, -1) {
    cpu_set_t mine;
    if (sched_getaffinity(0, sizeof mine, &mine) == 0 && CPU_COUNT(&mine) > 1)
      for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &mine)) cores.push_back(core);
    idle.resize(cores.size());
  }
  size_t next_core() { return cores.size() == 1 ? anywhere : 1 + turn++ % (cores.size() - 1); }
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
    pool().idle[self->list].push_back(self);
  }
  return nullptr;
}

bool new_worker(size_t list) {
  Worker *worker = new Worker;
  worker->list = list;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, stack_bytes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  if (list != anywhere) {
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(pool().cores[list], &core);
    pthread_attr_setaffinity_np(&attributes, sizeof core, &core);
  }
  pthread_t id;
  bool is_started = pthread_create(&id, &attributes, worker_main, worker) == 0;
  pthread_attr_destroy(&attributes);
  if (is_started)
    pool().idle[list].push_back(worker);
  else
    delete worker;
  return is_started;
}

}  // namespace

/* Moves n idle workers, or new ones, to the team; false where the system has no more. */
static bool take_workers(size_t list, size_t n, std::vector<Worker *> *team) {
  std::vector<Worker *> &idle = pool().idle[list];
  while (idle.size() < n)
    if (!new_worker(list)) return false;
  team->insert(team->end(), idle.end() - (ptrdiff_t)n, idle.end());
  idle.resize(idle.size() - n);
  return true;
}

bool start_threads(std::vector<Work> work, size_t together) {
  std::vector<Worker *> team;
  {
    std::lock_guard<std::mutex> hold(pool().lock);
    bool is_whole = true;
    while (is_whole && team.size() < work.size())
      is_whole = together == 1 ? take_workers(anywhere, 1, &team)
                               : take_workers(pool().next_core(), together, &team);
    if (!is_whole) {
      for (Worker *worker : team) pool().idle[worker->list].push_back(worker);
      return false;
    }
  }
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
  if (start_threads(std::move(one), 1)) return;
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
