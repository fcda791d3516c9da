/* copse quality: are the schedules as good as they were? */
#include <dirent.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/types.h"
#include "base/memory.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/quality_compare.h"
#include "cli/quality_measure.h"

static const char help[] =
    "usage: copse quality [FOLDER|FILE ...] [--table FILE] [options]\n\n"
    "Solves every topology (*.json, *.xml; default: those in topologies/) for every collective\n"
    "(broadcast and reduce: root 0) and compares with the table of an earlier time: exit status\n"
    "1 for any loss. A loss is a longer time, a lower bound, more or higher trees, a larger k, a\n"
    "longer predicted time, no schedule where there was one; also a topology that has changed,\n"
    "has gone, or is not in the table. How long solving took is shown, never compared.\n\n"
    "  -t, --table FILE      the table (default schedules/quality.txt)\n"
    "  -u, --update          write what is found into the table instead of comparing; rows that\n"
    "                        were not measured stay, those of files that have gone go\n"
    "  -c, --collective C    only this one; may be given several times\n"
    "  -n, --max-ranks N     skip topologies of more ranks, and say so (default 128)\n"
    "  -T, --time-limit S    of processor time, for each topology and collective (default 60 s)\n"
    "  -J, --jobs N          so many at the same time (default: one per processor)\n"
    "  -q, --quiet           only what differs\n"
    "  -j, --json            one JSON object\n\n"
    "In a CI of your own: run 'copse quality FOLDER --table FILE --update' once, commit FILE,\n"
    "and run 'copse quality FOLDER --table FILE' from then on (an example for GitHub Actions:\n"
    ".github/workflows/quality.yml). Updating without a change leaves FILE as it is.\n\n"
    "example: copse quality topologies --table schedules/quality.txt\n";

struct options {
  char *const *inputs;
  int n_inputs;
  const char *table;
  struct copse_cli_topology read;
  struct copse_quality_limits limits;
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

/* ---- measuring ----------------------------------------------------------------------------- */

static bool has_topology_suffix(const char *name) {
  const char *dot = strrchr(name, '.');
  return dot && dot != name && (strcmp(dot, ".json") == 0 || strcmp(dot, ".xml") == 0);
}

static int is_wanted(const struct dirent *entry) {
  return entry->d_name[0] != '.' && has_topology_suffix(entry->d_name);
}

static copse_status add_file(struct job *job, struct copse_quality_pool *pool, const char *path,
                             const char *name) {
  job->n_files++;
  return copse_quality_pool_add(pool, path, name, &job->o->read, &job->now, job->err);
}

static int by_name(const struct dirent **a, const struct dirent **b) {
  return strcmp((*a)->d_name, (*b)->d_name);
}

static copse_status add_folder(struct job *job, struct copse_quality_pool *pool, const char *path) {
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

static copse_status add_input(struct job *job, struct copse_quality_pool *pool, const char *path) {
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
  struct copse_quality_pool *pool = NULL;
  copse_status status;
  job->whole = !o->some_collectives;
  COPSE_TRY(copse_quality_pool_new(&o->limits, &pool, job->err));
  for (int i = 0; i < o->n_inputs; i++) COPSE_TRY(add_input(job, pool, o->inputs[i]));
  if (o->n_inputs == 0) COPSE_TRY(add_input(job, pool, "topologies"));
  COPSE_TRY(copse_quality_pool_finish(pool, &job->now, job->err));
  copse_quality_table_sort(&job->now);
  status = refuse_doubles(job);
out:
  copse_quality_pool_free(pool);
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
  char bound[COPSE_Q_TEXT], achieved[COPSE_Q_TEXT], k[24] = "-";
  bool skipped = r->outcome == COPSE_QUALITY_SKIPPED;
  printf("  %-26s %-14s %5d  ", row->topology, skipped ? "(all)" : collective_of(row), row->ranks);
  if (r->outcome != COPSE_QUALITY_OK) {
    printf("%s%s%s\n", copse_quality_outcome_name(r->outcome), r->reason[0] ? ": " : "", r->reason);
    return;
  }
  if (r->k > 0) snprintf(k, sizeof k, "%" PRId64, r->k);
  printf("%-16s %-16s %10.5g %5s %6d %6d %8.3f", copse_q_text(r->bound, bound),
         copse_q_text(r->achieved, achieved),
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
  char q[COPSE_Q_TEXT];
  copse_text_add(text, "%s\n {\"topology\": ", first ? "" : ",");
  copse_text_add_json_string(text, row->topology);
  copse_text_add(text, ", \"collective\": \"%s\", \"ranks\": %d, \"outcome\": \"%s\"",
                 collective_of(row), row->ranks, copse_quality_outcome_name(r->outcome));
  copse_text_add(text, ", \"verdict\": \"%s\"", copse_quality_verdict_name(verdict));
  if (r->outcome == COPSE_QUALITY_OK) {
    copse_text_add(text, ", \"bound_time_per_GB\": \"%s\"", copse_q_text(r->bound, q));
    copse_text_add(text, ", \"time_per_GB\": \"%s\", \"k\": ", copse_q_text(r->achieved, q));
    copse_text_add(text, r->k > 0 ? "%" PRId64 : "null", r->k);
    copse_text_add(text, ", \"trees\": %d, \"max_height\": %d, \"solve_seconds\": ", r->trees,
                   r->height);
    copse_text_add_json_number(text, r->seconds);
    for (int i = 0; i < COPSE_QUALITY_SIZES; i++) {
      copse_text_add(text, "%s\"%" PRIu64 "\": ", i > 0 ? ", " : ", \"predicted_us\": {",
                     copse_quality_sizes[i]);
      copse_text_add_json_number(text, r->us[i]);
    }
    copse_text_add(text, "}");
  } else if (r->reason[0]) {
    copse_text_add(text, ", \"reason\": ");
    copse_text_add_json_string(text, r->reason);
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
  copse_status status = COPSE_OK;
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
  COPSE_TRY(copse_text_status(&job->differences, job->err));
  status = copse_text_status(&job->json, job->err);
out:
  return status;
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

static int run(const struct options *o) {
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

static int parse_collective(struct options *o) {
  copse_collective collective;
  if (!copse_collective_from_name(optarg, &collective))
    return copse_cli_usage("quality",
                           "unknown collective '%.40s': allgather, reduce_scatter, allreduce, "
                           "broadcast, reduce or alltoall",
                           optarg);
  if (!o->some_collectives) memset(o->limits.collectives, 0, sizeof o->limits.collectives);
  o->some_collectives = true;
  o->limits.collectives[collective] = true;
  return COPSE_EXIT_DONE;
}

static int parse_number(const char *what, int most, int *out) {
  int64_t value;
  if (!copse_cli_parse_int(optarg, 1, most, &value))
    return copse_cli_usage("quality", "%s must be from 1 to %d", what, most);
  *out = (int)value;
  return COPSE_EXIT_DONE;
}

static int parse_option(struct options *o, int c, char **argv) {
  switch (c) {
    case 't': o->table = optarg; return COPSE_EXIT_DONE;
    case 'u': o->update = true; return COPSE_EXIT_DONE;
    case 'c': return parse_collective(o);
    case 'n': return parse_number("--max-ranks", INT32_MAX, &o->limits.max_ranks);
    case 'T': return parse_number("--time-limit", 86400, &o->limits.seconds);
    case 'J': return parse_number("--jobs", 1024, &o->limits.jobs);
    case 'q': o->quiet = true; return COPSE_EXIT_DONE;
    case 'j': o->json = true; return COPSE_EXIT_DONE;
    default: return copse_cli_topology_option(&o->read, "quality", argv, c);
  }
}

static int processors(void) {
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n < 1 ? 1 : n > 64 ? 64 : (int)n;
}

int copse_cmd_quality(int argc, char **argv) {
  static const struct option longs[] = {{"table", required_argument, NULL, 't'},
                                        {"update", no_argument, NULL, 'u'},
                                        {"collective", required_argument, NULL, 'c'},
                                        {"max-ranks", required_argument, NULL, 'n'},
                                        {"time-limit", required_argument, NULL, 'T'},
                                        {"jobs", required_argument, NULL, 'J'},
                                        COPSE_CLI_TOPOLOGY_OPTIONS,
                                        {"quiet", no_argument, NULL, 'q'},
                                        {"json", no_argument, NULL, 'j'},
                                        {"help", no_argument, NULL, 'h'},
                                        {NULL, 0, NULL, 0}};
  struct options o = {.table = "schedules/quality.txt",
                      .limits = {.max_ranks = 128, .seconds = 60, .jobs = processors()}};
  for (int c = 0; c < COPSE_N_COLLECTIVES; c++) o.limits.collectives[c] = true;
  opterr = 0;
  for (int c; (c = getopt_long(argc, argv, ":t:uc:n:T:J:l:qjh", longs, NULL)) != -1;) {
    if (c == 'h') {
      fputs(help, stdout);
      fputs(copse_cli_topology_help, stdout);
      return COPSE_EXIT_DONE;
    }
    int bad = parse_option(&o, c, argv);
    if (bad) return bad;
  }
  o.inputs = argv + optind;
  o.n_inputs = argc - optind;
  if (o.read.synthetic) return copse_cli_usage("quality", "--synthetic is no file to watch");
  if (strcmp(o.table, "-") == 0)
    return copse_cli_usage("quality", "--table must be a file, not '-'");
  return run(&o);
}
