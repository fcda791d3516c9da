/*
 * copse quality: are the schedules as good as they were? Every topology and collective is solved in
 * a process of its own, so that whatever happens there is a row of the table:
 *
 *   files --> [fork: solve, verify, predict] x jobs --pipe--> rows --> compare or --update
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/quality_table.h"
#include "cli/solve_args.h"
#include "predict/predict.h"

struct limits {
  bool collectives[COPSE_N_COLLECTIVES]; /* which to solve */
  int max_ranks;                         /* larger topologies are skipped */
  int seconds;                           /* of a processor, for each topology and collective */
  int jobs;                              /* at the same time */
  struct copse_predict_options predict;
};

/* How many times the limit of processor time a process may take by the clock. */
#define CLOCK_LIMIT 30

/* ---- one measurement, in a process of its own ---------------------------------------------- */

static int count_paths(const struct copse_schedule *s) {
  int n = 0;
  for (int f = 0; f < s->n_flows; f++) n += s->flows[f].n_paths;
  return n;
}

static copse_status predict(const struct copse_topology *topology, struct copse_schedule *schedule,
                            const struct copse_predict_options *options,
                            struct copse_quality_result *result, struct copse_err *err) {
  double bytes[COPSE_QUALITY_SIZES];
  for (int i = 0; i < COPSE_QUALITY_SIZES; i++) bytes[i] = (double)copse_quality_sizes[i];
  COPSE_DO(copse_schedule_expand(schedule, err));
  result->trees =
      schedule->collective == COPSE_ALLTOALL ? count_paths(schedule) : schedule->n_trees;
  return copse_predict(topology, schedule, options, bytes, COPSE_QUALITY_SIZES, result->us, err);
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

static void solve_and_predict(const struct copse_topology *topology, const char *label,
                              copse_collective collective,
                              const struct copse_predict_options *predicted,
                              struct copse_quality_result *result) {
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
  COPSE_TRY(predict(topology, schedule, predicted, result, &err));
out:
  result->outcome = outcome_of(status);
  if (status != COPSE_OK) snprintf(result->reason, sizeof result->reason, "%.250s", err.text);
  copse_schedule_free(schedule);
}

/* ---- the processes ------------------------------------------------------------------------- */

struct worker {
  pid_t pid; /* 0: this place is free */
  int from;  /* the end of a pipe to read the result from */
  double deadline;
  char *topology;
  struct copse_quality_row row;
};

struct pool {
  struct limits limits;
  struct worker *workers; /* [limits.jobs] */
  struct pollfd *polled;  /* [limits.jobs] */
};

static void end_worker(struct worker *w, int *status) {
  kill(w->pid, SIGKILL); /* without effect on one that has left */
  while (waitpid(w->pid, status, 0) < 0 && errno == EINTR) continue;
  close(w->from);
  *w = (struct worker){0};
}

static void free_pool(struct pool *pool) {
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

static copse_status new_pool(const struct limits *limits, struct pool **out,
                             struct copse_err *err) {
  struct pool *pool = NULL;
  size_t n = (size_t)limits->jobs;
  copse_status status;
  COPSE_TRY(copse_calloc(1, sizeof *pool, &pool, err));
  pool->limits = *limits;
  COPSE_TRY(copse_calloc(n, sizeof *pool->workers, &pool->workers, err));
  COPSE_TRY(copse_calloc(n, sizeof *pool->polled, &pool->polled, err));
  *out = pool;
  pool = NULL;
out:
  free_pool(pool);
  return status;
}

/* The row of a worker that has spoken, left or run out of time. */
static copse_status collect(const struct pool *pool, struct worker *w,
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
static copse_status collect_one(struct pool *pool, struct copse_quality_table *table,
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

static int running(const struct pool *pool) {
  int n = 0;
  for (int i = 0; i < pool->limits.jobs; i++) n += pool->workers[i].pid > 0;
  return n;
}

static copse_status finish_pool(struct pool *pool, struct copse_quality_table *table,
                                struct copse_err *err) {
  while (running(pool) > 0) {
    COPSE_DO(collect_one(pool, table, err));
  }
  return COPSE_OK;
}

/* In the child: measures, hands the result on, and leaves without the parent's exit handlers.
 * The limit is on processor time, so that a busy machine makes no difference. */
static void work(int to, const struct copse_topology *topology, const char *label,
                 copse_collective collective, const struct limits *limits) {
  struct copse_quality_result result;
  struct rlimit limit = {(rlim_t)limits->seconds, (rlim_t)limits->seconds + 1};
  setrlimit(RLIMIT_CPU, &limit);
  memset(&result, 0, sizeof result); /* padding too, for it goes through a pipe */
  result.bound = result.achieved = COPSE_Q_ZERO;
  solve_and_predict(topology, label, collective, &limits->predict, &result);
  ssize_t n = write(to, &result, sizeof result);
  _exit(n == (ssize_t)sizeof result ? 0 : 1);
}

static copse_status start(struct pool *pool, const struct copse_topology *topology,
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
    work(ends[1], topology, label, (copse_collective)row->collective, &pool->limits);
  }
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    free(name);
    return copse_fail(err, COPSE_IO, "cannot start a process: %s", strerror(errno));
  }
  *w = (struct worker){
      .pid = pid,
      .from = ends[0],
      .deadline = copse_clock_seconds() + CLOCK_LIMIT * (double)pool->limits.seconds,
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

static copse_status add_collective(struct pool *pool, const struct copse_topology *topology,
                                   const char *label, struct copse_quality_row *row,
                                   struct copse_quality_table *table, struct copse_err *err) {
  if (topology->n_ranks > pool->limits.max_ranks) {
    row->result.outcome = COPSE_QUALITY_SKIPPED;
    snprintf(row->result.reason, sizeof row->result.reason, "%d ranks, more than --max-ranks %d",
             topology->n_ranks, pool->limits.max_ranks);
    return copse_quality_table_add(table, row, err);
  }
  while (running(pool) == pool->limits.jobs) COPSE_DO(collect_one(pool, table, err));
  return start(pool, topology, label, row, err);
}

/*
 * Reads the file (as `read` says, whose path doesn't matter) and starts to solve each collective,
 * waiting for a free place. Rows are added to `table` under `name` as results come in; a file that
 * can't be read is a row too. Whatever happens in the solving process (out of memory, a crash, too
 * long) is a row. Errors are COPSE_NOMEM and COPSE_IO of this process.
 */
static copse_status add_topology(struct pool *pool, const char *path, const char *name,
                                 const struct copse_cli_topology *read,
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
  copse_topology_free(topology);
  return status;
}

struct options {
  char *const *inputs;
  int n_inputs;
  const char *table;
  struct copse_cli_topology read;
  struct limits limits;
  bool update, quiet, json, some_collectives;
};

struct job {
  const struct options *o;
  struct copse_quality_table was, now;
  bool has_table, whole; /* whole: all files of the folders, all collectives */
  int n_files;
  int counts[COPSE_QUALITY_LOSS + 1];
  struct copse_text differences, json;
  struct copse_err *err;
};

/* ---- the files -------------------------------------------------------------------------- */

static bool has_topology_suffix(const char *name) {
  const char *dot = strrchr(name, '.');
  return dot && dot != name && (strcmp(dot, ".json") == 0 || strcmp(dot, ".xml") == 0);
}

static int is_wanted(const struct dirent *entry) {
  return entry->d_name[0] != '.' && has_topology_suffix(entry->d_name);
}

static copse_status add_file(struct job *job, struct pool *pool, const char *path,
                             const char *name) {
  job->n_files++;
  return add_topology(pool, path, name, &job->o->read, &job->now, job->err);
}

static int by_name(const struct dirent **a, const struct dirent **b) {
  return strcmp((*a)->d_name, (*b)->d_name);
}

static copse_status add_folder(struct job *job, struct pool *pool, const char *path) {
  struct dirent **entries = NULL;
  copse_status status = COPSE_OK;
  int n = scandir(path, &entries, is_wanted, by_name);
  if (n < 0) return copse_fail(job->err, COPSE_IO, "%s: cannot read this folder", path);
  if (n == 0)
    status = copse_fail(job->err, COPSE_BAD_INPUT, "%s: no *.json or *.xml file in it", path);
  for (int i = 0; i < n; i++) {
    struct copse_text file = {0};
    copse_text_add(&file, "%s/%s", path, entries[i]->d_name);
    if (status == COPSE_OK) status = copse_text_status(&file, job->err);
    if (status == COPSE_OK) status = add_file(job, pool, file.data, entries[i]->d_name);
    copse_text_free(&file);
    free(entries[i]);
  }
  free(entries);
  return status;
}

static copse_status add_input(struct job *job, struct pool *pool, const char *path) {
  struct stat st;
  if (stat(path, &st) != 0)
    return copse_fail(job->err, COPSE_IO, "%s: no such file or folder of topologies", path);
  if (S_ISDIR(st.st_mode)) return add_folder(job, pool, path);
  const char *slash = strrchr(path, '/');
  job->whole = false;
  return add_file(job, pool, path, slash ? slash + 1 : path);
}

static copse_status refuse_doubles(const struct job *job) {
  for (size_t i = 1; i < job->now.n_rows; i++)
    if (copse_quality_row_order(&job->now.rows[i - 1], &job->now.rows[i]) == 0)
      return copse_fail(job->err, COPSE_INVALID,
                        "two files are named %s, and the table goes by the name",
                        job->now.rows[i].topology);
  return COPSE_OK;
}

static copse_status measure(struct job *job) {
  const struct options *o = job->o;
  struct pool *pool = NULL;
  copse_status status;
  struct limits limits = o->limits;
  job->whole = !o->some_collectives;
  COPSE_TRY(copse_cli_costs(&o->read, &(struct copse_cli_costs)COPSE_CLI_COSTS_INIT,
                            &limits.predict, job->err));
  COPSE_TRY(new_pool(&limits, &pool, job->err));
  for (int i = 0; i < o->n_inputs; i++) COPSE_TRY(add_input(job, pool, o->inputs[i]));
  if (o->n_inputs == 0) COPSE_TRY(add_input(job, pool, "topologies"));
  COPSE_TRY(finish_pool(pool, &job->now, job->err));
  copse_quality_table_sort(&job->now);
  status = refuse_doubles(job);
out:
  free_pool(pool);
  return status;
}

/* ---- the report ---------------------------------------------------------------------------- */

static const char *collective_of(const struct copse_quality_row *row) {
  return row->collective == COPSE_QUALITY_NO_COLLECTIVE
             ? "-"
             : copse_collective_name((copse_collective)row->collective);
}

static void print_head(void) {
  printf("# %-26s %-14s %5s  %-16s %-16s %10s %5s %6s %6s %8s", "topology", "collective", "ranks",
         "bound", "achieved", "algbw", "k", "trees", "height", "solve");
  for (int i = 0; i < COPSE_QUALITY_SIZES; i++) printf(" %8s", copse_quality_size_names[i]);
  printf("\n# %-26s %-14s %5s  %-16s %-16s %10s %5s %6s %6s %8s", "", "", "", "(s/GB)", "(s/GB)",
         "(GB/s)", "", "", "", "(s)");
  for (int i = 0; i < COPSE_QUALITY_SIZES; i++) printf(" %8s", "(us)");
  printf("\n");
}

static void print_row(const struct copse_quality_row *row) {
  const struct copse_quality_result *r = &row->result;
  char k[24] = "-";
  bool skipped = r->outcome == COPSE_QUALITY_SKIPPED;
  printf("  %-26s %-14s %5d  ", row->topology, skipped ? "(all)" : collective_of(row), row->ranks);
  if (r->outcome != COPSE_QUALITY_OK) {
    printf("%s%s%s\n", copse_quality_outcome_name(r->outcome), r->reason[0] ? ": " : "", r->reason);
    return;
  }
  if (r->k > 0) snprintf(k, sizeof k, "%" PRId64, r->k);
  printf("%-16s %-16s %10.5g %5s %6d %6d %8.3f", COPSE_CLI_FRACTION(r->bound),
         COPSE_CLI_FRACTION(r->achieved),
         r->achieved.num > 0 ? 1 / copse_q_to_double(r->achieved) : 0.0, k, r->trees, r->height,
         r->seconds);
  for (int i = 0; i < COPSE_QUALITY_SIZES; i++)
    printf(r->us[i] < 1e5 ? " %8.1f" : " %8.0f", r->us[i]);
  printf("\n");
}

/* A topology that is skipped is skipped for every collective: one line says it. */
static bool is_said(const struct copse_quality_row *row, const struct copse_quality_row *before) {
  return row->result.outcome == COPSE_QUALITY_SKIPPED &&
         before->result.outcome == COPSE_QUALITY_SKIPPED &&
         strcmp(row->topology, before->topology) == 0;
}

static void print_rows(const struct copse_quality_table *table) {
  print_head();
  for (size_t i = 0; i < table->n_rows; i++)
    if (i == 0 || !is_said(&table->rows[i], &table->rows[i - 1])) print_row(&table->rows[i]);
}

static void add_json_row(struct copse_text *text, const struct copse_quality_row *row,
                         enum copse_quality_verdict verdict, bool first) {
  const struct copse_quality_result *r = &row->result;
  copse_text_add(text, "%s\n {\"topology\": ", first ? "" : ",");
  copse_text_add_json_string(text, row->topology);
  copse_text_add(text, ", \"collective\": \"%s\", \"ranks\": %d, \"outcome\": \"%s\"",
                 collective_of(row), row->ranks, copse_quality_outcome_name(r->outcome));
  copse_text_add(text, ", \"verdict\": \"%s\"", copse_quality_verdict_name(verdict));
  if (r->outcome == COPSE_QUALITY_OK) {
    copse_text_add(text, ", \"bound_time_per_GB\": \"%s\", \"time_per_GB\": \"%s\", \"k\": ",
                   COPSE_CLI_FRACTION(r->bound), COPSE_CLI_FRACTION(r->achieved));
    copse_text_add(text, r->k > 0 ? "%" PRId64 : "null", r->k);
    copse_text_add(text, ", \"trees\": %d, \"max_height\": %d, \"solve_seconds\": %s", r->trees,
                   r->height, COPSE_CLI_NUMBER(r->seconds));
    for (int i = 0; i < COPSE_QUALITY_SIZES; i++)
      copse_text_add(text, "%s\"%" PRIu64 "\": %s", i > 0 ? ", " : ", \"predicted_us\": {",
                     copse_quality_sizes[i], COPSE_CLI_NUMBER(r->us[i]));
    copse_text_add(text, "}");
  } else if (r->reason[0]) {
    copse_cli_add_string(text, ", \"reason\": ", r->reason);
  }
  copse_text_add(text, "}");
}

/* ---- comparing ----------------------------------------------------------------------------- */

static void add_difference(struct job *job, const struct copse_quality_row *row,
                           enum copse_quality_verdict verdict, const char *text) {
  job->counts[verdict]++;
  if (verdict == COPSE_QUALITY_SAME || verdict == COPSE_QUALITY_UNCOMPARED) return;
  copse_text_add(&job->differences, "%-7s %s %s\n%s", copse_quality_verdict_name(verdict),
                 row->topology, collective_of(row), text ? text : "");
}

/* Whether this run should have met the row, had its topology still been there. */
static bool was_in_reach(const struct job *job, const struct copse_quality_row *row) {
  return job->whole && !copse_quality_table_find(&job->now, row);
}

static copse_status compare_all(struct job *job) {
  for (size_t i = 0; i < job->now.n_rows; i++) {
    const struct copse_quality_row *row = &job->now.rows[i];
    struct copse_text text = {0};
    const struct copse_quality_row *was =
        job->has_table ? copse_quality_table_find(&job->was, row) : NULL;
    enum copse_quality_verdict verdict = copse_quality_compare(row, was, &text);
    if (text.failed) job->differences.failed = true;
    if (!job->o->update || verdict == COPSE_QUALITY_LOSS)
      add_difference(job, row, verdict, text.data);
    add_json_row(&job->json, row, verdict, i == 0);
    copse_text_free(&text);
  }
  for (size_t i = 0; i < job->was.n_rows && !job->o->update; i++)
    if (was_in_reach(job, &job->was.rows[i]))
      add_difference(job, &job->was.rows[i], COPSE_QUALITY_GONE, NULL);
  COPSE_DO(copse_text_status(&job->differences, job->err));
  return copse_text_status(&job->json, job->err);
}

/* ---- updating ------------------------------------------------------------------------------ */

static bool belongs_in_table(const struct copse_quality_row *row) {
  return row->result.outcome <= COPSE_QUALITY_UNREADABLE;
}

/* What was measured, and of the old table what was not: skipped, out of time, not asked for. */
static copse_status update(struct job *job) {
  struct copse_quality_table table = {0};
  struct copse_text text = {0};
  copse_status status = COPSE_OK;
  for (size_t i = 0; i < job->now.n_rows; i++)
    if (belongs_in_table(&job->now.rows[i]))
      COPSE_TRY(copse_quality_table_add(&table, &job->now.rows[i], job->err));
  for (size_t i = 0; i < job->was.n_rows; i++) {
    const struct copse_quality_row *old = &job->was.rows[i];
    const struct copse_quality_row *now = copse_quality_table_find(&job->now, old);
    if (now ? belongs_in_table(now) : job->whole) continue;
    if (now && strcmp(now->sha256, old->sha256) != 0) continue;
    COPSE_TRY(copse_quality_table_add(&table, old, job->err));
  }
  copse_quality_table_sort(&table);
  copse_quality_table_write(&table, &text);
  COPSE_TRY(copse_text_status(&text, job->err));
  status = copse_file_write(job->o->table, text.data, text.size, job->err);
out:
  copse_text_free(&text);
  copse_quality_table_free(&table);
  return status;
}

static copse_status read_table(struct job *job) {
  char *data = NULL;
  size_t size;
  copse_status status;
  job->has_table = access(job->o->table, F_OK) == 0;
  if (!job->has_table && job->o->update) return COPSE_OK;
  if (!job->has_table)
    return copse_fail(job->err, COPSE_IO,
                      "%s: no such table to compare with; 'copse quality --update' makes it",
                      job->o->table);
  COPSE_TRY(copse_file_read(job->o->table, &data, &size, job->err));
  status = copse_quality_table_parse(job->o->table, data, size, &job->was, job->err);
out:
  free(data);
  return status;
}

/* ---- all together -------------------------------------------------------------------------- */

static int failures(const struct job *job) {
  int n = 0;
  for (int v = COPSE_QUALITY_NEW; v <= COPSE_QUALITY_LOSS; v++) n += job->counts[v];
  return n;
}

static void print_text(const struct job *job) {
  const struct options *o = job->o;
  const int *n = job->counts;
  if (!o->quiet) print_rows(&job->now);
  if (job->differences.data) fputs(job->differences.data, stdout);
  if (o->update) {
    printf("%s: written, %zu results of %d files\n", o->table, job->now.n_rows, job->n_files);
    return;
  }
  printf(
      "%s: %d files, %zu results: %d as before, %d better, %d lost, %d changed, %d new, %d gone, "
      "%d not compared\n",
      failures(job) > 0 ? "NOT OK" : "ok", job->n_files, job->now.n_rows, n[COPSE_QUALITY_SAME],
      n[COPSE_QUALITY_GAIN], n[COPSE_QUALITY_LOSS], n[COPSE_QUALITY_CHANGED], n[COPSE_QUALITY_NEW],
      n[COPSE_QUALITY_GONE], n[COPSE_QUALITY_UNCOMPARED]);
  if (failures(job) > 0 || n[COPSE_QUALITY_GAIN] > 0)
    printf("to take these results as the new measure: copse quality ... --table %s --update\n",
           o->table);
}

static void print_json(const struct job *job) {
  printf(
      "{\"ok\": %s, \"files\": %d, \"losses\": %d, \"changed\": %d, \"new\": %d, \"gone\": %d, "
      "\"better\": %d, \"same\": %d, \"not_compared\": %d, \"rows\": [%s\n]}\n",
      failures(job) > 0 ? "false" : "true", job->n_files, job->counts[COPSE_QUALITY_LOSS],
      job->counts[COPSE_QUALITY_CHANGED], job->counts[COPSE_QUALITY_NEW],
      job->counts[COPSE_QUALITY_GONE], job->counts[COPSE_QUALITY_GAIN],
      job->counts[COPSE_QUALITY_SAME], job->counts[COPSE_QUALITY_UNCOMPARED],
      job->json.data ? job->json.data : "");
}

static bool any_failed(const struct job *job) {
  for (size_t i = 0; i < job->now.n_rows; i++)
    if (job->now.rows[i].result.outcome == COPSE_QUALITY_FAILED) return true;
  return false;
}

static int compare_or_update(const struct options *o) {
  struct copse_err err = COPSE_ERR_INIT;
  struct job job = {.o = o, .err = &err};
  copse_status status;
  COPSE_TRY(read_table(&job));
  COPSE_TRY(measure(&job));
  COPSE_TRY(compare_all(&job));
  if (o->update) COPSE_TRY(update(&job));
  if (o->json)
    print_json(&job);
  else
    print_text(&job);
out:
  copse_text_free(&job.differences);
  copse_text_free(&job.json);
  bool failed = o->update ? any_failed(&job) : failures(&job) > 0;
  copse_quality_table_free(&job.was);
  copse_quality_table_free(&job.now);
  if (status != COPSE_OK) return copse_cli_fail(&err);
  return failed ? COPSE_EXIT_REFUTED : COPSE_EXIT_DONE;
}

/* ---- options ------------------------------------------------------------------------------- */

static int processors(void) {
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n < 1 ? 1 : n > 64 ? 64 : (int)n;
}

static int run(void *arguments, int n_left, char **left) {
  struct options *o = arguments;
  o->inputs = left;
  o->n_inputs = n_left;
  if (o->limits.jobs == 0) o->limits.jobs = processors();
  for (int c = 0; c < COPSE_N_COLLECTIVES && !o->some_collectives; c++)
    o->limits.collectives[c] = true;
  if (o->read.synthetic) return copse_cli_usage("quality", "--synthetic is no file to watch");
  if (copse_cli_is_stdout(o->table))
    return copse_cli_usage("quality", "--table must be a file, not '-'");
  return compare_or_update(o);
}

static int take_collective(void *options, const char *command, char *value) {
  struct options *o = options;
  copse_collective collective;
  int exit = copse_cli_take_collective(command, value, &collective);
  if (exit == COPSE_EXIT_DONE) o->some_collectives = o->limits.collectives[collective] = true;
  return exit;
}

#define TO(member) COPSE_OPTION_TO(struct options, member)
static const struct copse_option own[] = {
    {"--table", 't', "FILE", "the table (default schedules/quality.txt)", TO(table)},
    {"--update", 'u', NULL,
     "write what is found into the table instead of comparing; rows that\n"
     "were not measured stay, those of files that have gone go",
     TO(update)},
    {"--collective", 'c', "C", "only this one; may be given several times",
     .words = copse_cli_collectives, .take = take_collective},
    {"--max-ranks", 'n', "N", "skip topologies of more ranks, and say so (default 128)",
     TO(limits.max_ranks), COPSE_OPTION_RANGE(1, INT32_MAX)},
    {"--time-limit", 'T', "S", "of processor time, for each topology and collective (default 60 s)",
     TO(limits.seconds), COPSE_OPTION_RANGE(1, 86400)},
    {"--jobs", 'J', "N", "so many at the same time (default: one per processor)", TO(limits.jobs),
     COPSE_OPTION_RANGE(1, 1024)},
    {"--quiet", 'q', NULL, "only what differs", TO(quiet)},
    {"--json", 'j', NULL, "one JSON object", TO(json)},
    {0}};

static void begin(void *options) {
  *(struct options *)options = (struct options){
      .table = "schedules/quality.txt",
      .limits = {.max_ranks = 128, .seconds = 60, .predict = copse_predict_defaults}};
}

static const char usage[] =
    "usage: copse quality [FOLDER|FILE ...] [--table FILE] [options]\n\n"
    "Solves every topology (*.json, *.xml; default: those in topologies/) for every collective\n"
    "(broadcast and reduce: root 0) and compares with the table of an earlier time: exit status\n"
    "1 for any loss. A loss is a longer time, a lower bound, more or higher trees, a larger k, a\n"
    "longer predicted time, no schedule where there was one; also a topology that has changed,\n"
    "has gone, or is not in the table. How long solving took is shown, never compared.\n\n";
static const char in_ci[] =
    "\nIn a CI of your own: run 'copse quality FOLDER --table FILE --update' once, commit FILE,\n"
    "and run 'copse quality FOLDER --table FILE' from then on (an example for GitHub Actions:\n"
    ".github/workflows/quality.yml). Updating without a change leaves FILE as it is.\n";

const struct copse_command copse_cmd_quality = {
    .name = "quality",
    .does = "compare the schedules of many topologies with a table",
    .usage = usage,
    .example = "\nexample: copse quality topologies --table schedules/quality.txt\n",
    .sections = {{.column = 24, .options = own, .after = in_ci},
                 COPSE_CLI_TOPOLOGY_SECTION(struct options, read)},
    .size = sizeof(struct options),
    .begin = begin,
    .run = run};
