#include "solver/sinks.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/rational.h"

int copse_solver_threads = 0;

#define MOST_THREADS 16
/* Sinks times links: less work than this is done before a thread has started. */
#define WORK_FOR_THREADS (1 << 20)

struct job {
  const struct copse_sink_check *check;
  int start;
  atomic_int next;  /* to be asked, counted from start */
  atomic_int first; /* the first that is known to fail; n_sinks: none */
};

struct worker {
  struct job *job;
  struct copse_flow *flow;
  pthread_t thread;
};

static int64_t capped_product(int64_t a, int64_t b) {
  int64_t product;
  return copse_mul_overflows(a, b, &product) ? INT64_MAX : product;
}

copse_status copse_sinks_graph(const struct copse_sink_check *check, struct copse_flow **out,
                               struct copse_err *err) {
  const struct copse_network *network = check->network;
  struct copse_flow *flow = NULL;
  copse_status status;
  *out = NULL;
  COPSE_TRY(copse_flow_new(network->n_nodes + 1, &flow, err));
  for (int i = 0; i < network->n_links; i++) {
    const struct copse_net_link *link = &network->links[i];
    int64_t capacity = check->capacities ? check->capacities[i] : link->capacity;
    capacity = capped_product(capacity, check->scale);
    if (capacity > 0) COPSE_TRY(copse_flow_change(flow, link->src, link->dst, capacity, err));
  }
  for (int i = 0; i < network->n_roots; i++)
    COPSE_TRY(copse_flow_change(flow, network->n_nodes, network->roots[i].node,
                                capped_product(network->roots[i].weight, check->rate), err));
  *out = flow;
  return COPSE_OK;
out:
  copse_flow_free(flow);
  return status;
}

static int sink_at(const struct job *job, int i) {
  return job->check->sinks[(job->start + i) % job->check->n_sinks];
}

/* Over the link from u to v and over one node in between: these ways share no link. */
static bool evidently_flows(struct copse_flow *flow, int u, int v, int64_t demand) {
  struct copse_flow_neighbours leaving = copse_flow_leaving(flow, u);
  int64_t sum = 0;
  for (int i = 0; i < leaving.n && sum < demand; i++) {
    int64_t first = leaving.capacities[i];
    int64_t second = leaving.nodes[i] == v ? first : copse_flow_capacity(flow, leaving.nodes[i], v);
    sum += first < second ? first : second;
  }
  return sum >= demand;
}

/* Asks for sink i. A neighbour passes on the word of the one before, which is asked as well: that
 * counts only if none before fails. */
static bool passes(const struct job *job, struct copse_flow *flow, int i) {
  const struct copse_sink_check *check = job->check;
  int v = sink_at(job, i);
  if (i > 0 && evidently_flows(flow, sink_at(job, i - 1), v, check->demand)) return true;
  return copse_flow_max(flow, check->network->n_nodes, v, check->demand) >= check->demand;
}

static void ask_sinks(struct job *job, struct copse_flow *flow) {
  for (;;) {
    int i = atomic_fetch_add(&job->next, 1), first = atomic_load(&job->first);
    if (i >= first) return; /* what comes later does not matter any more */
    if (passes(job, flow, i)) continue;
    while (i < first && !atomic_compare_exchange_weak(&job->first, &first, i)) {
    }
  }
}

static void *run_worker(void *arg) {
  struct worker *worker = arg;
  ask_sinks(worker->job, worker->flow);
  return NULL;
}

static int count_threads(const struct copse_sink_check *check) {
  long n = copse_solver_threads;
  if (n <= 0) {
    if ((int64_t)check->n_sinks * check->network->n_links < WORK_FOR_THREADS) return 1;
    n = sysconf(_SC_NPROCESSORS_ONLN);
  }
  return n < 1 ? 1 : n > MOST_THREADS ? MOST_THREADS : (int)n;
}

/* The workers beside this thread; where one can't be had the others do its part. */
static int start_workers(struct job *job, struct worker *workers, int n) {
  struct copse_err ignored = COPSE_ERR_INIT;
  int started = 0;
  for (int i = 0; i < n; i++) {
    struct worker *worker = &workers[started];
    worker->job = job;
    if (copse_sinks_graph(job->check, &worker->flow, &ignored) != COPSE_OK) break;
    if (pthread_create(&worker->thread, NULL, run_worker, worker) != 0) {
      copse_flow_free(worker->flow);
      break;
    }
    started++;
  }
  return started;
}

int copse_sinks_check(const struct copse_sink_check *check, struct copse_flow *flow, int start) {
  struct job job = {.check = check, .start = start};
  struct worker workers[MOST_THREADS];
  atomic_init(&job.next, 1);
  atomic_init(&job.first, check->n_sinks);
  if (check->n_sinks == 0) return -1;
  if (!passes(&job, flow, 0)) return start; /* as a rule the one that failed at the last rate */
  int n = start_workers(&job, workers, count_threads(check) - 1);
  ask_sinks(&job, flow);
  for (int i = 0; i < n; i++) {
    pthread_join(workers[i].thread, NULL);
    copse_flow_free(workers[i].flow);
  }
  int first = atomic_load(&job.first), failed = (start + first) % check->n_sinks;
  if (first == check->n_sinks) return -1;
  copse_flow_max(flow, check->network->n_nodes, check->sinks[failed], check->demand);
  return failed;
}
