#include "cli/quality_measure.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/solve_checked.h"
#include "predict/simulate.h"

/* How many times the limit of processor time a process may take by the clock. */
#define PATIENCE 30

/* ---- one measurement, in a process of its own ---------------------------------------------- */

static int count_paths(const struct copse_schedule *s) {
  int n = 0;
  for (int f = 0; f < s->n_flows; f++) n += s->flows[f].n_paths;
  return n;
}

static copse_status predict(const struct copse_topology *topology, struct copse_schedule *schedule,
                            struct copse_quality_result *result, struct copse_err *err) {
  struct copse_sim_dag dag = {0};
  copse_status status;
  COPSE_TRY(copse_schedule_expand(schedule, err));
  result->trees =
      schedule->collective == COPSE_ALLTOALL ? count_paths(schedule) : schedule->n_trees;
  COPSE_TRY(copse_sim_dag_of_schedule(schedule, topology, &dag, err));
  for (int i = 0; i < COPSE_QUALITY_SIZES; i++) {
    struct copse_sim_result simulated;
    COPSE_TRY(copse_simulate(topology, &dag, &copse_sim_defaults, (double)copse_quality_sizes[i],
                             &simulated, NULL, err));
    result->us[i] = simulated.us;
  }
out:
  copse_sim_dag_free(&dag);
  return status;
}

static enum copse_quality_outcome outcome_of(copse_status status) {
  switch (status) {
    case COPSE_OK: return COPSE_QUALITY_OK;
    case COPSE_BAD_INPUT:
    case COPSE_UNSUPPORTED: return COPSE_QUALITY_REFUSED;
    case COPSE_INFEASIBLE: return COPSE_QUALITY_INFEASIBLE;
    case COPSE_OVERFLOW: return COPSE_QUALITY_OVERFLOW;
    default: return COPSE_QUALITY_FAILED;
  }
}

static void measure(const struct copse_topology *topology, const char *label,
                    copse_collective collective, struct copse_quality_result *result) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_schedule *schedule = NULL;
  struct copse_solve_seconds seconds;
  struct copse_solve_options options = {
      .collective = collective,
      .root = copse_collective_rooted(collective) ? 0 : -1,
      .tolerance = COPSE_Q_ZERO,
      .label = label,
  };
  copse_status status;
  double start = copse_clock_seconds(), verify = 0;
  COPSE_TRY(copse_cli_solve_checked(topology, &options, false, &schedule, &seconds, &verify, &err));
  result->seconds = copse_clock_seconds() - start - verify;
  result->bound = schedule->bound.time_per_GB;
  result->achieved = schedule->time_per_GB;
  result->k = schedule->k;
  result->height = copse_schedule_height(schedule);
  COPSE_TRY(predict(topology, schedule, result, &err));
out:
  result->outcome = outcome_of(status);
  if (status != COPSE_OK) snprintf(result->reason, sizeof result->reason, "%.250s", err.text);
  copse_schedule_release(schedule);
}

/* ---- the processes ------------------------------------------------------------------------- */

struct worker {
  pid_t pid; /* 0: this place is free */
  int from;  /* the end of a pipe to read the result from */
  double deadline;
  char *topology;
  struct copse_quality_row row;
};

struct copse_quality_pool {
  struct copse_quality_limits limits;
  struct worker *workers; /* [limits.jobs] */
  struct pollfd *polled;  /* [limits.jobs] */
};

copse_status copse_quality_pool_new(const struct copse_quality_limits *limits,
                                    struct copse_quality_pool **out, struct copse_err *err) {
  struct copse_quality_pool *pool = NULL;
  size_t n = (size_t)limits->jobs;
  copse_status status;
  COPSE_TRY(copse_calloc(1, sizeof *pool, &pool, err));
  pool->limits = *limits;
  COPSE_TRY(copse_calloc(n, sizeof *pool->workers, &pool->workers, err));
  COPSE_TRY(copse_calloc(n, sizeof *pool->polled, &pool->polled, err));
  *out = pool;
  pool = NULL;
out:
  copse_quality_pool_free(pool);
  return status;
}

static void end_worker(struct worker *w, int *status) {
  kill(w->pid, SIGKILL); /* without effect on one that has left */
  while (waitpid(w->pid, status, 0) < 0 && errno == EINTR) continue;
  close(w->from);
  *w = (struct worker){0};
}

void copse_quality_pool_free(struct copse_quality_pool *pool) {
  int ignored;
  if (!pool) return;
  for (int i = 0; pool->workers && i < pool->limits.jobs; i++)
    if (pool->workers[i].pid > 0) {
      free(pool->workers[i].topology);
      end_worker(&pool->workers[i], &ignored);
    }
  free(pool->workers);
  free(pool->polled);
  free(pool);
}

/* The row of a worker that has spoken, left or run out of time. */
static copse_status collect(const struct copse_quality_pool *pool, struct worker *w,
                            struct copse_quality_table *table, struct copse_err *err) {
  struct copse_quality_row row = w->row;
  struct copse_quality_result received;
  bool late = copse_clock_seconds() >= w->deadline;
  char *name = w->topology;
  int left = 0;
  struct pollfd ready = {.fd = w->from, .events = POLLIN};
  /* a pipe hands so few bytes on whole */
  ssize_t n = poll(&ready, 1, 0) > 0 ? read(w->from, &received, sizeof received) : -1;
  end_worker(w, &left);
  row.topology = name;
  if (n == (ssize_t)sizeof received) {
    row.result = received;
  } else if ((WIFSIGNALED(left) && WTERMSIG(left) == SIGXCPU) || (late && n < 0)) {
    row.result.outcome = COPSE_QUALITY_TIMEOUT;
    snprintf(row.result.reason, sizeof row.result.reason, "no schedule within %d s",
             pool->limits.seconds);
  } else {
    row.result.outcome = COPSE_QUALITY_FAILED;
    snprintf(row.result.reason, sizeof row.result.reason,
             "the solving process ended without a result");
  }
  copse_status status = copse_quality_table_add(table, &row, err);
  free(name);
  return status;
}

/* Waits for one result, or for one to run out of time. */
static copse_status collect_one(struct copse_quality_pool *pool, struct copse_quality_table *table,
                                struct copse_err *err) {
  for (;;) {
    double now = copse_clock_seconds(), next = now + 3600;
    for (int i = 0; i < pool->limits.jobs; i++) {
      struct worker *w = &pool->workers[i];
      pool->polled[i] = (struct pollfd){.fd = w->pid > 0 ? w->from : -1, .events = POLLIN};
      if (w->pid > 0 && w->deadline < next) next = w->deadline;
    }
    int wait_ms = next > now ? (int)(1000 * (next - now)) + 1 : 0;
    int n = poll(pool->polled, (nfds_t)pool->limits.jobs, wait_ms);
    if (n < 0 && errno != EINTR)
      return copse_fail(err, COPSE_IO, "cannot wait for a process: %s", strerror(errno));
    now = copse_clock_seconds();
    for (int i = 0; i < pool->limits.jobs; i++) {
      struct worker *w = &pool->workers[i];
      if (w->pid > 0 && ((n > 0 && pool->polled[i].revents) || now >= w->deadline))
        return collect(pool, w, table, err);
    }
  }
}

static int running(const struct copse_quality_pool *pool) {
  int n = 0;
  for (int i = 0; i < pool->limits.jobs; i++) n += pool->workers[i].pid > 0;
  return n;
}

copse_status copse_quality_pool_finish(struct copse_quality_pool *pool,
                                       struct copse_quality_table *table, struct copse_err *err) {
  while (running(pool) > 0) {
    copse_status status = collect_one(pool, table, err);
    if (status != COPSE_OK) return status;
  }
  return COPSE_OK;
}

/* In the child: measures, hands the result on, and leaves without the parent's exit handlers.
 * The limit is on processor time, so that a busy machine makes no difference. */
static void work(int to, const struct copse_topology *topology, const char *label,
                 copse_collective collective, int seconds) {
  struct copse_quality_result result;
  struct rlimit limit = {(rlim_t)seconds, (rlim_t)seconds + 1};
  setrlimit(RLIMIT_CPU, &limit);
  memset(&result, 0, sizeof result); /* padding too, for it goes through a pipe */
  result.bound = result.achieved = COPSE_Q_ZERO;
  measure(topology, label, collective, &result);
  ssize_t n = write(to, &result, sizeof result);
  _exit(n == (ssize_t)sizeof result ? 0 : 1);
}

static copse_status start(struct copse_quality_pool *pool, const struct copse_topology *topology,
                          const char *label, const struct copse_quality_row *row,
                          struct copse_err *err) {
  struct worker *w = pool->workers;
  int ends[2];
  while (w->pid > 0) w++;
  char *name = strdup(row->topology);
  if (!name) return copse_fail_nomem(err);
  if (pipe(ends) != 0) {
    free(name);
    return copse_fail(err, COPSE_IO, "cannot make a pipe: %s", strerror(errno));
  }
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    work(ends[1], topology, label, (copse_collective)row->collective, pool->limits.seconds);
  }
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    free(name);
    return copse_fail(err, COPSE_IO, "cannot start a process: %s", strerror(errno));
  }
  *w = (struct worker){.pid = pid,
                       .from = ends[0],
                       .deadline = copse_clock_seconds() + PATIENCE * (double)pool->limits.seconds,
                       .topology = name,
                       .row = *row};
  return COPSE_OK;
}

/* ---- a file -------------------------------------------------------------------------------- */

static copse_status add_unreadable(const char *name, const char *reason,
                                   struct copse_quality_table *table, struct copse_err *err) {
  struct copse_quality_row row = {.topology = name, .collective = COPSE_QUALITY_NO_COLLECTIVE};
  row.result.outcome = COPSE_QUALITY_UNREADABLE;
  snprintf(row.result.reason, sizeof row.result.reason, "%.250s", reason);
  return copse_quality_table_add(table, &row, err);
}

static copse_status add_collective(struct copse_quality_pool *pool,
                                   const struct copse_topology *topology, const char *label,
                                   struct copse_quality_row *row, struct copse_quality_table *table,
                                   struct copse_err *err) {
  copse_status status;
  if (topology->n_ranks > pool->limits.max_ranks) {
    row->result.outcome = COPSE_QUALITY_SKIPPED;
    snprintf(row->result.reason, sizeof row->result.reason, "%d ranks, more than --max-ranks %d",
             topology->n_ranks, pool->limits.max_ranks);
    return copse_quality_table_add(table, row, err);
  }
  while (running(pool) == pool->limits.jobs) COPSE_TRY(collect_one(pool, table, err));
  status = start(pool, topology, label, row, err);
out:
  return status;
}

copse_status copse_quality_pool_add(struct copse_quality_pool *pool, const char *path,
                                    const char *name, const struct copse_cli_topology *read,
                                    struct copse_quality_table *table, struct copse_err *err) {
  struct copse_cli_topology file = *read;
  struct copse_err refused = COPSE_ERR_INIT;
  struct copse_topology *topology = NULL;
  char sha256[COPSE_SHA256_HEX];
  file.path = path;
  copse_status status = copse_cli_load_topology(&file, &topology, &refused);
  if (status == COPSE_NOMEM) return copse_fail_nomem(err);
  if (status != COPSE_OK) return add_unreadable(name, refused.text, table, err);
  COPSE_TRY(copse_topology_sha256(topology, sha256, err));
  for (int c = 0; c < COPSE_N_COLLECTIVES; c++) {
    struct copse_quality_row row = {.topology = name, .collective = c, .ranks = topology->n_ranks};
    if (!pool->limits.collectives[c]) continue;
    memcpy(row.sha256, sha256, COPSE_QUALITY_SHA - 1);
    COPSE_TRY(add_collective(pool, topology, path, &row, table, err));
  }
out:
  copse_topology_release(topology);
  return status;
}
