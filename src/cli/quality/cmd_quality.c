/*
 * copse quality: are the schedules as good as they were? Every topology and collective is solved in
 * a process of its own, so that whatever happens there is a row of the table:
 *
 *   files --> [fork: solve, verify, predict] x jobs --pipe--> rows --> compare or --update
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
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
#include "cli/policy.h"
#include "cli/quality/quality_table.h"
#include "cli/solve_args.h"
#include "predict/baseline.h"
#include "predict/sizes.h"

struct options {
  char *const *inputs;
  int n_inputs;
  const char *table, *junit;
  struct copse_cli_topology read;
  bool collectives[COPSE_N_COLLECTIVES]; /* which to solve */
  int max_ranks;                         /* larger topologies are skipped */
  int seconds;                           /* of a processor, for each topology and collective */
  int jobs;                              /* at the same time */
  bool update, quiet, json, some_collectives;
  bool github; /* annotations */
  bool sizes;  /* searches for each size as well */
  bool nccl;   /* finds the best rings as well */
};

/* A topology and collective that a process is at work on. */
struct worker {
  pid_t pid; /* 0: this place is free */
  int from;  /* the end of a pipe to read the result from */
  struct copse_quality_row row;
};

struct job {
  const struct options *o;
  struct copse_predict_options predict; /* by the profile */
  struct worker *workers;               /* [o->jobs] */
  int n_running;
  struct copse_quality_table was, now;
  bool has_table, whole; /* whole: folders were given, so every file that exists is met */
  int n_files;
  int counts[COPSE_QUALITY_LOSS + 1];
  enum copse_quality_verdict *verdicts; /* [now.n_rows] */
  struct copse_text differences;
  struct copse_quality_case *cases; /* [n_cases], of the arena */
  size_t n_cases, case_capacity;
  const char **paths; /* [n_files] of the topologies */
  size_t path_capacity;
  struct copse_cli_work *work;
  struct copse_arena *arena;
  struct copse_err *err;
};

static const char *collective_of(const struct copse_quality_row *row) {
  return row->collective == COPSE_QUALITY_NO_COLLECTIVE
             ? "-"
             : copse_collective_name((copse_collective)row->collective);
}

/* ---- one measurement, in a process of its own ---------------------------------------------- */

static copse_status predict(const struct copse_topology *topology, struct copse_schedule *schedule,
                            const struct copse_predict_options *options,
                            struct copse_quality_result *result, struct copse_err *err) {
  double bytes[COPSE_QUALITY_SIZES];
  for (int i = 0; i < COPSE_QUALITY_SIZES; i++) bytes[i] = (double)copse_quality_sizes[i];
  COPSE_DO(copse_schedule_expand(schedule, err));
  result->trees =
      schedule->collective == COPSE_ALLTOALL ? copse_schedule_paths(schedule) : schedule->n_trees;
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

/* Measures, for each size, the time of the schedule made for it over the bound for that size. */
static copse_status measure_sizes(const struct copse_topology *topology,
                                  const struct copse_solve_options *options,
                                  const struct copse_schedule *solved,
                                  const struct copse_predict_options *predicted,
                                  struct copse_quality_result *result, struct copse_err *err) {
  for (int n = 0; n < 2 * COPSE_QUALITY_RATIOS; n++) { /* each size once more where it is high */
    int i = n / 2;
    const struct copse_size_question question = {
        .solve = options, .solved = solved,
        .predict = predicted, .bytes = copse_quality_ratio_bytes(i),
        .work = n % 2 == 0 ? SEARCH_WORK : COPSE_SIZES_WORK(topology->n_ranks)};
    struct copse_size_answer answer;
    struct copse_solve_seconds ignored;
    if (n % 2 == 1 && i < COPSE_QUALITY_FROM_1M) continue;
    if (n % 2 == 1 && result->ratios[i] <= COPSE_QUALITY_HIGH) continue;
    copse_status status = copse_solve_for_size(topology, &question, &answer, &ignored, err);
    if (status == COPSE_UNSUPPORTED || status == COPSE_OVERFLOW) continue; /* no such ratio */
    COPSE_DO(status);
    double ratio = answer.bound_us > 0 ? answer.us / answer.bound_us : 0;
    if (n % 2 == 0 || (ratio > 0 && ratio < result->ratios[i])) result->ratios[i] = ratio;
    copse_schedule_free(answer.schedule);
  }
  return COPSE_OK;
}

/* Measures the baseline of unmodified libraries; where no rings are found there is none. */
static copse_status measure_nccl(const struct copse_topology *topology,
                                 const struct copse_solve_options *options,
                                 struct copse_quality_result *result, struct copse_err *err) {
  COPSE_AT_END(copse_schedule_free_at) struct copse_schedule *rings = NULL;
  const struct copse_baseline_options like = {
      .collective = options->collective, .root = options->root, .pass_on = true};
  struct copse_err why = COPSE_ERR_INIT;
  if (!copse_baseline_exists(COPSE_BASELINE_RINGS, options->collective)) return COPSE_OK;
  copse_status status =
      copse_baseline_make(topology, COPSE_BASELINE_RINGS, &like, &rings, NULL, &why);
  if (status == COPSE_NOMEM) return copse_fail_nomem(err);
  if (status == COPSE_OK) result->nccl = rings->time_per_GB;
  return COPSE_OK;
}

static void solve_and_predict(const struct copse_topology *topology, const char *label,
                              copse_collective collective, const struct options *o,
                              const struct copse_predict_options *predicted,
                              struct copse_quality_result *result) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_schedule *schedule = NULL;
  struct copse_solve_seconds seconds;
  struct copse_solve_options options = {.collective = collective,
                                        .root = copse_collective_rooted(collective) ? 0 : -1,
                                        .tolerance = COPSE_Q_ZERO,
                                        .label = label};
  copse_status status;
  double start = copse_clock_seconds(), verify = 0;
  COPSE_TRY(copse_cli_solve_checked(topology, &options, false, &schedule, &seconds, &verify, &err));
  result->seconds = copse_clock_seconds() - start - verify;
  result->bound = schedule->bound.time_per_GB;
  result->achieved = schedule->time_per_GB;
  result->k = schedule->k;
  result->height = copse_schedule_height(schedule);
  COPSE_TRY(predict(topology, schedule, predicted, result, &err));
  if (o->nccl) COPSE_TRY(measure_nccl(topology, &options, result, &err));
  if (o->sizes) COPSE_TRY(measure_sizes(topology, &options, schedule, predicted, result, &err));
out:
  result->outcome = outcome_of(status);
  if (status != COPSE_OK) snprintf(result->reason, sizeof result->reason, "%.250s", err.text);
  copse_schedule_free(schedule);
}

/* ---- the processes ------------------------------------------------------------------------- */

/* Collects the row of a process that has ended, as waitpid says in `how`. */
static copse_status collect(struct job *job, struct worker *w, int how) {
  struct copse_quality_result *result = &w->row.result, received;
  int ended_by = WIFSIGNALED(how) ? WTERMSIG(how) : 0;
  ssize_t n = read(w->from, &received, sizeof received); /* a pipe hands so few bytes on whole */
  if (n == (ssize_t)sizeof received) {
    *result = received;
  } else if (ended_by == SIGXCPU || ended_by == SIGALRM) {
    result->outcome = COPSE_QUALITY_TIMEOUT;
    snprintf(result->reason, sizeof result->reason, "no schedule within %d s", job->o->seconds);
  } else {
    result->outcome = COPSE_QUALITY_FAILED;
    snprintf(result->reason, sizeof result->reason, "the solving process ended without a result");
  }
  close(w->from);
  w->pid = 0;
  job->n_running--;
  copse_progress_report(&job->work->progress, w->row.topology, 0, 0);
  copse_cli_say("%s %s: %s in %.3f s", w->row.topology, collective_of(&w->row),
                copse_quality_outcome_name(result->outcome), result->seconds);
  return copse_quality_table_add(&job->now, &w->row, job->err);
}

/* Waits until a process ends. Others than the workers may be children of this process as well. */
static copse_status collect_one(struct job *job) {
  for (;;) {
    int how = 0;
    pid_t pid = waitpid(-1, &how, 0);
    if (pid < 0 && errno != EINTR)
      return copse_fail(job->err, COPSE_IO, "cannot wait for a process: %s", strerror(errno));
    for (int i = 0; i < job->o->jobs && pid > 0; i++)
      if (job->workers[i].pid == pid) return collect(job, &job->workers[i], how);
  }
}

static void end_workers(struct job *job) {
  for (int i = 0; job->workers && i < job->o->jobs; i++) {
    if (job->workers[i].pid == 0) continue;
    kill(job->workers[i].pid, SIGKILL);
    while (waitpid(job->workers[i].pid, NULL, 0) < 0 && errno == EINTR) continue;
    close(job->workers[i].from);
  }
}

/* Measures in the child, hands the result on, and leaves without the parent's exit handlers. The
 * limit is on processor time, so that a busy machine makes no difference. */
static void work(int to, const struct copse_topology *topology, const char *label,
                 copse_collective collective, const struct job *job) {
  struct copse_quality_result result;
  int seconds = job->o->seconds * (job->o->sizes ? 1 + COPSE_QUALITY_RATIOS : 1);
  struct rlimit limit = {(rlim_t)seconds, (rlim_t)seconds + 1};
  setrlimit(RLIMIT_CPU, &limit);
  alarm(CLOCK_LIMIT * (unsigned)seconds);
  memset(&result, 0, sizeof result); /* padding too, for it goes through a pipe */
  result.bound = result.achieved = result.nccl = COPSE_Q_ZERO;
  solve_and_predict(topology, label, collective, job->o, &job->predict, &result);
  ssize_t n = write(to, &result, sizeof result);
  _exit(n == (ssize_t)sizeof result ? 0 : 1);
}

/* Starts a worker in a place that is free. */
static copse_status start(struct job *job, const struct copse_topology *topology, const char *label,
                          const struct copse_quality_row *row) {
  struct worker *w = job->workers;
  int ends[2];
  while (w->pid > 0) w++;
  if (pipe(ends) != 0)
    return copse_fail(job->err, COPSE_IO, "cannot make a pipe: %s", strerror(errno));
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    work(ends[1], topology, label, (copse_collective)row->collective, job);
  }
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return copse_fail(job->err, COPSE_IO, "cannot start a process: %s", strerror(errno));
  }
  *w = (struct worker){.pid = pid, .from = ends[0], .row = *row};
  job->n_running++;
  return COPSE_OK;
}

/* ---- a file -------------------------------------------------------------------------------- */

static copse_status add_unreadable(struct job *job, const char *name, const char *reason) {
  struct copse_quality_row row = {.topology = name, .collective = COPSE_QUALITY_NO_COLLECTIVE};
  row.result.outcome = COPSE_QUALITY_UNREADABLE;
  snprintf(row.result.reason, sizeof row.result.reason, "%.250s", reason);
  return copse_quality_table_add(&job->now, &row, job->err);
}

static copse_status add_collective(struct job *job, const struct copse_topology *topology,
                                   const char *label, struct copse_quality_row *row) {
  if (topology->n_ranks > job->o->max_ranks) {
    row->result.outcome = COPSE_QUALITY_SKIPPED;
    snprintf(row->result.reason, sizeof row->result.reason, "%d ranks, more than --max-ranks %d",
             topology->n_ranks, job->o->max_ranks);
    return copse_quality_table_add(&job->now, row, job->err);
  }
  while (job->n_running == job->o->jobs) COPSE_DO(collect_one(job));
  return start(job, topology, label, row);
}

/*
 * Reads the file and starts to solve each collective, waiting for a free place. Rows are added to
 * the table under `name` as results come in; a file that can't be read is a row too. Whatever
 * happens in the solving process (out of memory, a crash, too long) is a row. Errors are
 * COPSE_NOMEM and COPSE_IO of this process.
 */
static copse_status add_file(struct job *job, const char *path, const char *file_name) {
  struct copse_cli_topology file = job->o->read;
  struct copse_err refused = COPSE_ERR_INIT;
  COPSE_AT_END(copse_topology_free_at) struct copse_topology *topology = NULL, *healthy = NULL;
  const char *name;
  char sha256[COPSE_SHA256_HEX];
  COPSE_DO(COPSE_GROW_IN(job->arena, job->paths, job->path_capacity, (size_t)job->n_files + 1,
                         job->err));
  COPSE_DO(copse_arena_text(job->arena, path, &job->paths[job->n_files++], job->err));
  file.path = path;
  COPSE_DO(copse_arena_text(job->arena, file_name, &name, job->err));
  copse_status status = copse_cli_load_topology(&file, &topology, &healthy, &refused);
  if (status == COPSE_NOMEM) return copse_fail_nomem(job->err);
  if (status != COPSE_OK) return add_unreadable(job, name, refused.text);
  COPSE_DO(copse_topology_sha256(topology, sha256, job->err));
  for (int c = 0; c < COPSE_N_COLLECTIVES; c++) {
    struct copse_quality_row row = {.topology = name, .collective = c, .ranks = topology->n_ranks};
    if (!job->o->collectives[c]) continue;
    memcpy(row.sha256, sha256, COPSE_QUALITY_SHA - 1);
    COPSE_DO(add_collective(job, topology, path, &row));
  }
  return COPSE_OK;
}

/* ---- the files -------------------------------------------------------------------------- */

static int is_wanted(const struct dirent *entry) {
  const char *name = entry->d_name;
  bool is_json = copse_file_ends_with(name, ".json") || copse_file_ends_with(name, ".json.gz");
  bool is_xml = copse_file_ends_with(name, ".xml") || copse_file_ends_with(name, ".xml.gz");
  return name[0] != '.' && (is_json || is_xml);
}

static int by_name(const struct dirent **a, const struct dirent **b) {
  return strcmp((*a)->d_name, (*b)->d_name);
}

static copse_status add_folder(struct job *job, const char *path) {
  struct dirent **entries = NULL;
  copse_status status = COPSE_OK;
  int n = scandir(path, &entries, is_wanted, by_name);
  if (n < 0) return copse_fail(job->err, COPSE_IO, "%s: cannot read this folder", path);
  if (n == 0)
    status = copse_fail(job->err, COPSE_BAD_INPUT,
                        "%s: no *.json or *.xml file in it, nor *.gz of such", path);
  for (int i = 0; i < n; i++) {
    const char *file = copse_arena_printf(job->arena, "%s/%s", path, entries[i]->d_name);
    if (status == COPSE_OK)
      status = file ? add_file(job, file, entries[i]->d_name) : copse_fail_nomem(job->err);
    free(entries[i]);
  }
  free(entries);
  return status;
}

static copse_status add_input(struct job *job, const char *path) {
  struct stat st;
  if (stat(path, &st) != 0)
    return copse_fail(job->err, COPSE_IO, "%s: no such file or folder of topologies", path);
  if (S_ISDIR(st.st_mode)) return add_folder(job, path);
  const char *slash = strrchr(path, '/');
  job->whole = false;
  return add_file(job, path, slash ? slash + 1 : path);
}

static copse_status measure(struct job *job) {
  const struct options *o = job->o;
  job->whole = true;
  job->predict = copse_predict_defaults;
  COPSE_DO(copse_cli_costs(&o->read, &(struct copse_cli_costs)COPSE_CLI_COSTS_INIT, &job->predict,
                           job->err));
  COPSE_DO(copse_arena_array(job->arena, (size_t)o->jobs, sizeof *job->workers, &job->workers,
                             job->err));
  for (int i = 0; i < o->n_inputs; i++) COPSE_DO(add_input(job, o->inputs[i]));
  if (o->n_inputs == 0) COPSE_DO(add_input(job, "topologies"));
  while (job->n_running > 0) COPSE_DO(collect_one(job));
  const struct copse_quality_row *twice = copse_quality_table_sort(&job->now);
  if (!twice) return COPSE_OK;
  return copse_fail(job->err, COPSE_INVALID,
                    "two files are named %s, and the table goes by the name", twice->topology);
}

/* ---- the report ---------------------------------------------------------------------------- */

static void print_head(bool sizes, bool nccl) {
  printf("# %-26s %-14s %5s  %-16s %-16s %10s %10s %5s %6s %6s %8s", "topology", "collective",
         "ranks", "bound", "achieved", "algbw", "busbw", "k", "trees", "height", "solve");
  for (int i = 0; i < COPSE_QUALITY_SIZES; i++) printf(" %8s", copse_quality_size_names[i]);
  for (int i = 0; i < COPSE_QUALITY_RATIOS && sizes; i++)
    printf(" %6s", copse_quality_ratio_names[i]);
  if (nccl) printf(" %10s", "best-rings");
  printf("\n# %-26s %-14s %5s  %-16s %-16s %10s %10s %5s %6s %6s %8s", "", "", "", "(s/GB)",
         "(s/GB)", "(GB/s)", "(GB/s)", "", "", "", "(s)");
  for (int i = 0; i < COPSE_QUALITY_SIZES; i++) printf(" %8s", "(us)");
  if (nccl) printf("%*s %10s", sizes ? 7 * COPSE_QUALITY_RATIOS : 0, "", "(busbw)");
  printf("\n");
}

/* Returns the GB/s of the best rings. */
static double nccl_busbw(const struct copse_quality_row *row) {
  return copse_collective_bus_factor((copse_collective)row->collective, row->ranks) /
         copse_q_to_double(row->result.nccl);
}

static void print_row(const struct copse_quality_row *row, bool sizes) {
  const struct copse_quality_result *r = &row->result;
  char k[24] = "-";
  bool skipped = r->outcome == COPSE_QUALITY_SKIPPED;
  printf("  %-26s %-14s %5d  ", row->topology, skipped ? "(all)" : collective_of(row), row->ranks);
  if (r->outcome != COPSE_QUALITY_OK) {
    printf("%s%s%s\n", copse_quality_outcome_name(r->outcome), r->reason[0] ? ": " : "", r->reason);
    return;
  }
  if (r->k > 0) snprintf(k, sizeof k, "%" PRId64, r->k);
  printf("%-16s %-16s %10.5g %10.5g %5s %6d %6d %8.3f", COPSE_CLI_Q(r->bound),
         COPSE_CLI_Q(r->achieved), copse_quality_algbw(row), copse_quality_busbw(row), k, r->trees,
         r->height, r->seconds);
  for (int i = 0; i < COPSE_QUALITY_SIZES; i++)
    printf(r->us[i] < 1e5 ? " %8.1f" : " %8.0f", r->us[i]);
  for (int i = 0; i < COPSE_QUALITY_RATIOS && sizes; i++) printf(" %6.3f", r->ratios[i]);
  if (r->nccl.num > 0) printf(" %10.5g", nccl_busbw(row));
  printf("\n");
}

/* Whether a line has said it: a topology that is skipped is skipped for every collective. */
static bool is_said(const struct copse_quality_row *row, const struct copse_quality_row *before) {
  return row->result.outcome == COPSE_QUALITY_SKIPPED &&
         before->result.outcome == COPSE_QUALITY_SKIPPED &&
         strcmp(row->topology, before->topology) == 0;
}

static void print_rows(const struct copse_quality_table *table, bool sizes, bool nccl) {
  print_head(sizes, nccl);
  for (size_t i = 0; i < table->n_rows; i++)
    if (i == 0 || !is_said(&table->rows[i], &table->rows[i - 1])) print_row(&table->rows[i], sizes);
}

static void print_json_row(const struct copse_quality_row *row, enum copse_quality_verdict verdict,
                           const char *reason, bool first) {
  const struct copse_quality_result *r = &row->result;
  printf(
      "%s\n {\"topology\": %s, \"collective\": \"%s\", \"ranks\": %d, "
      "\"outcome\": \"%s\", \"verdict\": \"%s\"",
      first ? "" : ",", copse_cli_quoted(row->topology), collective_of(row), row->ranks,
      copse_quality_outcome_name(r->outcome), copse_quality_verdicts[verdict]);
  if (r->outcome == COPSE_QUALITY_OK) {
    printf(", \"bound_time_per_GB\": \"%s\", \"time_per_GB\": \"%s\"", COPSE_Q_STRING(r->bound),
           COPSE_Q_STRING(r->achieved));
    printf(", \"algbw_GBps\": %s, \"busbw_GBps\": %s, \"k\": ",
           COPSE_CLI_NUMBER(copse_quality_algbw(row)), COPSE_CLI_NUMBER(copse_quality_busbw(row)));
    printf(r->k > 0 ? "%" PRId64 : "null", r->k);
    printf(", \"trees\": %d, \"max_height\": %d, \"solve_seconds\": %s", r->trees, r->height,
           COPSE_CLI_NUMBER(r->seconds));
    if (r->nccl.num > 0) printf(", \"nccl_busbw_GBps\": %s", COPSE_CLI_NUMBER(nccl_busbw(row)));
    for (int i = 0; i < COPSE_QUALITY_SIZES; i++)
      printf("%s\"%" PRIu64 "\": %s", i > 0 ? ", " : ", \"predicted_us\": {",
             copse_quality_sizes[i], COPSE_CLI_NUMBER(r->us[i]));
    for (int i = 0; i < COPSE_QUALITY_RATIOS && r->ratios[0] > 0; i++)
      printf("%s\"%.0f\": %s", i > 0 ? ", " : "}, \"over_bound\": {", copse_quality_ratio_bytes(i),
             COPSE_CLI_NUMBER(r->ratios[i]));
    printf("}");
  }
  if (r->reason[0]) reason = r->reason;
  if (reason) printf(", \"reason\": %s", copse_cli_quoted(reason));
  printf("}");
}

/* ---- comparing all --------------------------------------------------------------------------- */

static void add_difference(struct job *job, const struct copse_quality_row *row,
                           enum copse_quality_verdict verdict, const char *text) {
  job->counts[verdict]++;
  if (verdict == COPSE_QUALITY_SAME || verdict == COPSE_QUALITY_UNCOMPARED) return;
  copse_text_add(&job->differences, "%-7s %s %s\n%s", copse_quality_verdicts[verdict],
                 row->topology, collective_of(row), text ? text : "");
}

/* Returns the path of a topology by its name; the table's where it has gone. */
static const char *path_of(const struct job *job, const char *name) {
  size_t n = strlen(name);
  for (int i = 0; i < job->n_files; i++) {
    size_t m = strlen(job->paths[i]);
    bool ends = m >= n && strcmp(job->paths[i] + m - n, name) == 0;
    if (ends && (m == n || job->paths[i][m - n - 1] == '/')) return job->paths[i];
  }
  return job->o->table;
}

/* Adds a case for reports; text may be NULL. */
static copse_status add_case(struct job *job, const struct copse_quality_row *row,
                             enum copse_quality_verdict verdict, const char *text) {
  COPSE_DO(COPSE_GROW_IN(job->arena, job->cases, job->case_capacity, job->n_cases + 1, job->err));
  struct copse_quality_case *it = &job->cases[job->n_cases++];
  *it = (struct copse_quality_case){
      row->topology,
      row->collective == COPSE_QUALITY_NO_COLLECTIVE ? "reading" : collective_of(row),
      path_of(job, row->topology),
      NULL,
      verdict,
      verdict == COPSE_QUALITY_GONE ? 0 : row->result.seconds};
  return text ? copse_arena_text(job->arena, text, &it->text, job->err) : COPSE_OK;
}

/* Finds a row of the topology's file, which was met in this run; NULL: it was not. */
static const struct copse_quality_row *find_met(const struct job *job, const char *topology) {
  for (size_t i = 0; i < job->now.n_rows; i++)
    if (strcmp(job->now.rows[i].topology, topology) == 0) return &job->now.rows[i];
  return NULL;
}

/* Whether this run should have met the row, had its file still been there and readable. */
static bool was_in_reach(const struct job *job, const struct copse_quality_row *row) {
  const struct copse_quality_row *met = find_met(job, row->topology);
  if (row->collective != COPSE_QUALITY_NO_COLLECTIVE && !job->o->collectives[row->collective])
    return false;
  return (met ? met->result.outcome == COPSE_QUALITY_UNREADABLE : job->whole) &&
         !copse_quality_table_find(&job->now, row);
}

/* Whether the table has results of a file that can't be read. They stay until it can. */
static bool had_results(const struct job *job, const struct copse_quality_row *row) {
  if (row->result.outcome != COPSE_QUALITY_UNREADABLE) return false;
  for (size_t i = 0; i < job->was.n_rows; i++)
    if (job->was.rows[i].result.outcome != COPSE_QUALITY_UNREADABLE &&
        strcmp(job->was.rows[i].topology, row->topology) == 0)
      return true;
  return false;
}

static copse_status compare_all(struct job *job) {
  COPSE_DO(copse_arena_array(job->arena, job->now.n_rows, sizeof *job->verdicts, &job->verdicts,
                             job->err));
  for (size_t i = 0; i < job->now.n_rows; i++) {
    const struct copse_quality_row *row = &job->now.rows[i];
    struct copse_text text = {0};
    const struct copse_quality_row *was =
        job->has_table ? copse_quality_table_find(&job->was, row) : NULL;
    enum copse_quality_verdict verdict = copse_quality_compare(row, was, &text);
    if (text.failed) job->differences.failed = true;
    if (!job->o->update || verdict == COPSE_QUALITY_LOSS)
      add_difference(job, row, verdict, text.data);
    job->verdicts[i] = verdict;
    copse_status added = add_case(job, row, verdict, text.data);
    copse_text_free(&text);
    COPSE_DO(added);
  }
  for (size_t i = 0; i < job->was.n_rows && !job->o->update; i++)
    if (was_in_reach(job, &job->was.rows[i])) {
      const char *why =
          find_met(job, job->was.rows[i].topology) ? "        its file can't be read\n" : NULL;
      add_difference(job, &job->was.rows[i], COPSE_QUALITY_GONE, why);
      COPSE_DO(add_case(job, &job->was.rows[i], COPSE_QUALITY_GONE, why));
    }
  return copse_text_status(&job->differences, job->err);
}

/* ---- updating ------------------------------------------------------------------------------ */

static bool belongs_in_table(const struct copse_quality_row *row) {
  return row->result.outcome < COPSE_QUALITY_UNREADABLE;
}

/* Writes what was measured, and old rows that were skipped, out of time or not asked for. */
static copse_status update(struct job *job) {
  COPSE_AT_END(copse_quality_table_free) struct copse_quality_table table = {0};
  COPSE_AT_END(copse_text_free) struct copse_text text = {0};
  for (size_t i = 0; i < job->now.n_rows; i++) {
    struct copse_quality_row *row = &job->now.rows[i];
    const struct copse_quality_row *old = copse_quality_table_find(&job->was, row);
    if (!belongs_in_table(row)) continue;
    if (old && !job->o->sizes && strcmp(row->sha256, old->sha256) == 0)
      memcpy(row->result.ratios, old->result.ratios, sizeof row->result.ratios);
    COPSE_DO(copse_quality_table_add(&table, row, job->err));
  }
  for (size_t i = 0; i < job->was.n_rows; i++) {
    const struct copse_quality_row *old = &job->was.rows[i];
    const struct copse_quality_row *now = copse_quality_table_find(&job->now, old);
    if (now ? belongs_in_table(now) : job->whole && !find_met(job, old->topology)) continue;
    if (now && strcmp(now->sha256, old->sha256) != 0) continue;
    if (old->result.outcome == COPSE_QUALITY_UNREADABLE) continue; /* older tables have such */
    COPSE_DO(copse_quality_table_add(&table, old, job->err));
  }
  (void)copse_quality_table_sort(&table);
  copse_quality_table_write(&table, &text);
  COPSE_DO(copse_text_status(&text, job->err));
  return copse_file_write(job->o->table, text.data, text.size, job->err);
}

static copse_status read_table(struct job *job) {
  COPSE_AT_END(copse_free_at) char *data = NULL;
  size_t size;
  job->has_table = access(job->o->table, F_OK) == 0;
  if (!job->has_table && job->o->update) return COPSE_OK;
  if (!job->has_table)
    return copse_fail(job->err, COPSE_IO,
                      "%s: no such table to compare with; 'copse quality --update' makes it",
                      job->o->table);
  COPSE_DO(copse_file_read(job->o->table, &data, &size, job->err));
  return copse_quality_table_parse(job->o->table, data, size, &job->was, job->err);
}

/* ---- all together -------------------------------------------------------------------------- */

static int failures(const struct job *job) { return copse_quality_failures(job->counts); }

static void print_text(const struct job *job) {
  const struct options *o = job->o;
  COPSE_AT_END(copse_text_free) struct copse_text counts = {0};
  if (!o->quiet) print_rows(&job->now, o->sizes, o->nccl);
  if (job->differences.data) fputs(job->differences.data, stdout);
  if (o->update) {
    for (size_t i = 0; i < job->now.n_rows; i++)
      if (job->now.rows[i].result.outcome == COPSE_QUALITY_UNREADABLE)
        printf("%s: %s the table until it can be read, or is removed\n", job->now.rows[i].topology,
               had_results(job, &job->now.rows[i]) ? "its rows stay in" : "not in");
    printf("%s: written, %zu result%s of %d file%s\n", o->table, job->now.n_rows,
           COPSE_S(job->now.n_rows), job->n_files, COPSE_S(job->n_files));
    return;
  }
  copse_quality_count(job->counts, job->n_files, &counts);
  printf("%s\n", counts.data ? counts.data : "");
  if (failures(job) > 0 || job->counts[COPSE_QUALITY_GAIN] > 0)
    printf("to take these results as the new measure: copse quality ... --table %s --update\n",
           o->table);
}

/* Sums up the table that was written, or what was measured. */
static copse_status print_summary(const struct job *job) {
  struct copse_quality_summary sum;
  COPSE_DO(copse_quality_table_sum_up(&job->now, &sum, job->err));
  if (sum.n > 0)
    printf("from 1 MiB on, times over bounds: median %.3f, most %.3f, %zu of %zu above %g\n",
           sum.median, sum.most, sum.high, sum.n, COPSE_QUALITY_HIGH);
  return COPSE_OK;
}

static void print_json(const struct job *job) {
  printf(
      "{\"ok\": %s, \"files\": %d, \"losses\": %d, \"changed\": %d, \"new\": %d, \"gone\": %d, "
      "\"better\": %d, \"same\": %d, \"not_compared\": %d, \"rows\": [",
      failures(job) > 0 ? "false" : "true", job->n_files, job->counts[COPSE_QUALITY_LOSS],
      job->counts[COPSE_QUALITY_CHANGED], job->counts[COPSE_QUALITY_NEW],
      job->counts[COPSE_QUALITY_GONE], job->counts[COPSE_QUALITY_GAIN],
      job->counts[COPSE_QUALITY_SAME], job->counts[COPSE_QUALITY_UNCOMPARED]);
  for (size_t i = 0; i < job->now.n_rows; i++)
    print_json_row(&job->now.rows[i], job->verdicts[i],
                   copse_quality_reason(&job->cases[i], job->arena), i == 0);
  printf("\n], \"missing\": [");
  for (size_t i = job->now.n_rows; i < job->n_cases; i++)
    printf("%s\n {\"topology\": %s, \"collective\": %s}", i > job->now.n_rows ? "," : "",
           copse_cli_quoted(job->cases[i].topology), copse_cli_quoted(job->cases[i].collective));
  printf("]}\n");
}

/* Whether there is something that --update can't take for the new measure. */
static bool any_failed(const struct job *job) {
  for (size_t i = 0; i < job->now.n_rows; i++) {
    enum copse_quality_outcome it = job->now.rows[i].result.outcome;
    if (it == COPSE_QUALITY_FAILED || it == COPSE_QUALITY_UNREADABLE) return true;
  }
  return false;
}

static void release(struct job *job) {
  end_workers(job);
  copse_text_free(&job->differences);
  copse_quality_table_free(&job->was);
  copse_quality_table_free(&job->now);
}

static copse_status write_junit(const struct job *job) {
  COPSE_AT_END(copse_text_free) struct copse_text text = {0};
  if (!job->o->junit) return COPSE_OK;
  copse_quality_to_junit(job->cases, job->n_cases, &text);
  COPSE_DO(copse_text_status(&text, job->err));
  return copse_file_write(job->o->junit, text.data, text.size, job->err);
}

static copse_status print_annotations(const struct job *job) {
  COPSE_AT_END(copse_text_free) struct copse_text text = {0}, counts = {0};
  copse_quality_count(job->counts, job->n_files, &counts);
  COPSE_DO(copse_text_status(&counts, job->err));
  copse_quality_to_annotations(job->cases, job->n_cases, counts.data, &text);
  COPSE_DO(copse_text_status(&text, job->err));
  if (text.data) fputs(text.data, stdout);
  return COPSE_OK;
}

static copse_status compare_all_or_update(void *options, struct copse_cli_work *w) {
  const struct options *o = options;
  COPSE_AT_END(release) struct job job = {.o = o, .work = w, .arena = &w->arena, .err = &w->err};
  COPSE_DO(read_table(&job));
  COPSE_DO(measure(&job));
  COPSE_DO(compare_all(&job));
  if (o->update) COPSE_DO(update(&job));
  COPSE_DO(write_junit(&job));
  copse_cli_progress_end();
  (o->json ? print_json : print_text)(&job);
  if (o->github) COPSE_DO(print_annotations(&job));
  if (!o->json) COPSE_DO(print_summary(&job));
  if (o->update ? any_failed(&job) : failures(&job) > 0) w->exit = COPSE_EXIT_REFUTED;
  return COPSE_OK;
}

/* Annotates also the failure that ends the whole run. */
static copse_status compare_or_update(void *options, struct copse_cli_work *w) {
  COPSE_AT_END(copse_text_free) struct copse_text text = {0};
  copse_status status = compare_all_or_update(options, w);
  if (status == COPSE_OK || !((const struct options *)options)->github) return status;
  copse_quality_annotate("error", w->err.text, &text);
  if (text.data) fputs(text.data, stdout);
  return status;
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
  if (o->jobs == 0) o->jobs = processors();
  for (int c = 0; c < COPSE_N_COLLECTIVES && !o->some_collectives; c++) o->collectives[c] = true;
  if (o->read.synthetic)
    return copse_cli_usage("quality", "--synthetic is no file to watch: make one by copse topo -o");
  const struct copse_cli_rule rules[] = {
      {copse_cli_is_stdout(o->table), "--table must be a file, not '-'"},
      {(o->junit || o->github) && o->update,
       "--junit and --github tell what differs from the table: leave out --update"},
      {o->github && o->json, "--github prints lines beside the table: leave out --json"},
      {copse_cli_is_stdout(o->junit), "--junit must be a file, not '-'"}};
  int bad = COPSE_CLI_CHECK("quality", rules);
  return bad ? bad : copse_cli_do(compare_or_update, o);
}

static int take_collective(void *options, const char *command, char *value) {
  struct options *o = options;
  copse_collective collective;
  int exit = copse_cli_take_collective(command, value, &collective);
  if (exit == COPSE_EXIT_DONE) o->some_collectives = o->collectives[collective] = true;
  return exit;
}

#define TO(member) COPSE_OPTION_TO(struct options, member)
static const struct copse_option own[] = {
    {"--table", 0, "FILE", "the table (default schedules/quality.txt)", TO(table),
     .takes = COPSE_KIND_QUALITY, .common = true},
    {"--update", 'u', NULL,
     "write what is found into the table instead of comparing; rows that\n"
     "were not measured stay, so do those of a file that can't be read (exit\n"
     "status 1); those of files that have gone go",
     TO(update), .common = true},
    {"--collective", 'c', "C", "only this one; may be given several times",
     .words = copse_cli_collectives, .take = take_collective, .common = true},
    {"--max-ranks", 0, "N", "skip topologies of more ranks, and say so (default 128)",
     TO(max_ranks), COPSE_OPTION_RANGE(1, INT32_MAX)},
    {"--time-limit", 'T', "S", "of processor time, for each topology and collective (default 60 s)",
     TO(seconds), COPSE_OPTION_RANGE(1, 86400)},
    {"--jobs", 'J', "N", "so many at the same time (default: one per processor)", TO(jobs),
     COPSE_OPTION_RANGE(1, 1024)},
    {"--sizes", 's', NULL,
     "also search for each size from 1 KiB to 1 GiB, as --objective does in\n"
     "shorter time, and compare how far that is above what nothing beats",
     TO(sizes)},
    {"--nccl", 0, NULL,
     "beside each the bus bandwidth of the best rings that NCCL can run; they\n"
     "are compared by scripts/nccl_table with schedules/nccl.txt",
     TO(nccl)},
    {"--junit", 0, "FILE",
     "also as JUnit XML, which CI systems show: a test case for each topology\n"
     "and collective",
     TO(junit), .writes = true},
    {"--github", 0, NULL,
     "also as annotations of GitHub Actions: an ::error for each topology of\n"
     "which something is lost, a ::notice where all is better, and the counts",
     TO(github)},
    {"--quiet", 'q', NULL, "only what differs", TO(quiet), .common = true},
    {"--json", 'j', NULL, "one JSON object", TO(json), .common = true},
    {0}};

static void begin(void *options) {
  *(struct options *)options =
      (struct options){.table = "schedules/quality.txt", .max_ranks = 128, .seconds = 60};
}

static const char usage[] =
    "usage: copse quality [FOLDER|FILE ...] [--table FILE] [options]\n\n"
    "Solves every topology (*.json, *.xml, also .gz; default: those in topologies/) for every\n"
    "collective (broadcast and reduce: root 0) and compares with the table of an earlier time:\n"
    "exit status 1 for any loss. A loss is a longer time, a bound that proves less, more or\n"
    "higher trees, a larger k, a longer predicted time, no schedule where there was one; also a\n"
    "topology that has changed (even for the better), has gone, can't be read, or is not in the\n"
    "table. How long solving took is shown, never compared.\n\n";
static const char in_ci[] =
    "In a CI of your own: run 'copse quality FOLDER --table FILE --update' once, commit FILE,\n"
    "and run 'copse quality FOLDER --table FILE' from then on (an example for GitHub Actions:\n"
    "quality.yml in share/doc/copse/examples). Updating without a change leaves FILE as it is.\n";

const struct copse_command copse_cmd_quality = {
    .name = "quality",
    .does = "compare the schedules of many topologies with a table",
    .usage = usage,
    .example = "example: copse quality topologies --table schedules/quality.txt\n",
    .sections = {{.title = "More options", .options = own, .after = in_ci},
                 COPSE_CLI_TOPOLOGY_SECTION(struct options, read)},
    .size = sizeof(struct options),
    .begin = begin,
    .run = run};
