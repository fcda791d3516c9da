/*
 * copse COMMAND [options] [files]: finds the command and hands it the rest. And what the commands
 * share: exit statuses, one-line messages, notes, progress, numbers.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/topology_args.h"
#include "schedule/schedule.h"
#include "view/arrangement.h"

static const struct copse_command *const commands[] = {
    &copse_cmd_topo,  &copse_cmd_solve,  &copse_cmd_verify,  &copse_cmd_expand,
    &copse_cmd_lower, &copse_cmd_plans,  &copse_cmd_check,   &copse_cmd_simulate,
    &copse_cmd_place, &copse_cmd_report, &copse_cmd_quality, &copse_cmd_audit,
    &copse_cmd_rings, &copse_cmd_tune,   &copse_cmd_run,     NULL};
enum { N_COMMANDS = sizeof commands / sizeof *commands - 1 };

static int exit_of(copse_status status) {
  switch (status) {
    case COPSE_OK: return COPSE_EXIT_DONE;
    case COPSE_REFUTED: return COPSE_EXIT_REFUTED;
    case COPSE_INVALID:
    case COPSE_BAD_INPUT:
    case COPSE_IO:
    case COPSE_UNSUPPORTED: return COPSE_EXIT_USAGE;
    case COPSE_INFEASIBLE: return COPSE_EXIT_INFEASIBLE;
    case COPSE_OVERFLOW:
    case COPSE_NOMEM:
    case COPSE_DEVICE:
    case COPSE_TIMEOUT:
    case COPSE_ABORTED:
    case COPSE_INTERNAL: return COPSE_EXIT_INTERNAL;
  }
  return COPSE_EXIT_INTERNAL;
}

/* Prints a failure as an object too with --json, unless one has been printed. */
static void print_failure(const char *text, int exit) {
  const char *refuted = exit == COPSE_EXIT_REFUTED ? copse_cli_asked.refuted : NULL;
  if (!copse_cli_asked.json) return;
  copse_cli_asked.json = false;
  printf("{");
  if (refuted) printf("\"%s\": false, \"reason\": %s, ", refuted, copse_cli_quoted(text));
  printf("\"error\": %s, \"exit\": %d}\n", copse_cli_quoted(text), exit);
}

static int say_failure(const struct copse_err *err) {
  copse_cli_progress_end();
  print_failure(err->text[0] ? err->text : copse_status_string(err->status), exit_of(err->status));
  fflush(stdout);
  fprintf(stderr, "copse: %s\n", err->text[0] ? err->text : copse_status_string(err->status));
  return exit_of(err->status);
}

/* Says where an input is of another kind than its place takes. */
static int say_misplaced(const struct copse_cli_misplaced *it) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_line line = {.used = 0};
  copse_cli_kinds_add_names(&line, it->kind);
  copse_commands_add_takers(commands, it->kind, &line);
  copse_line_add(&line, "; %s%s takes ", it->option ? "" : "copse ",
                 it->option ? it->option : copse_cli_asked.command);
  copse_cli_kinds_add_names(&line, it->expected);
  (void)copse_fail(&err, COPSE_BAD_INPUT, "%s: %s", copse_file_label(it->path), line.text);
  return say_failure(&err);
}

/* Prints the error that a path is a folder and no file, with files in it that may be meant. */
static int say_folder(const struct copse_cli_misplaced *it, const char *inside) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_line line = {.used = 0};
  copse_cli_kinds_add_names(&line, it->expected);
  (void)copse_fail(&err, COPSE_IO, "%s is a folder; %s%s takes a file: %s%s%s%s%s", it->path,
                   it->option ? "" : "copse ", it->option ? it->option : copse_cli_asked.command,
                   line.text, *inside ? ", such as " : "", *inside ? it->path : "",
                   *inside ? "/" : "", inside);
  return say_failure(&err);
}

int copse_cli_fail(const struct copse_err *err) {
  struct copse_cli_misplaced misplaced;
  char inside[256];
  if (err->status == COPSE_IO && copse_cli_kinds_find_folder(&misplaced, inside))
    return say_folder(&misplaced, inside);
  bool input = err->status == COPSE_BAD_INPUT || err->status == COPSE_UNSUPPORTED ||
               err->status == COPSE_INVALID || err->status == COPSE_REFUTED;
  if (input && copse_cli_kinds_find_misplaced(&misplaced)) return say_misplaced(&misplaced);
  return say_failure(err);
}

/* As copse_cli_fail, of a text. */
__attribute__((format(printf, 2, 3))) static int fail_with(copse_status status, const char *fmt,
                                                           ...) {
  char text[500];
  struct copse_err err = COPSE_ERR_INIT; /* copse_fail replaces what does not print */
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  (void)copse_fail(&err, status, "%s", text);
  return say_failure(&err);
}

int copse_cli_usage(const char *command, const char *fmt, ...) {
  char text[400];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  return fail_with(COPSE_INVALID, "%s: %s (see 'copse %s --help')", command, text, command);
}

int copse_cli_check(const char *command, const struct copse_cli_rule *rules, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (rules[i].broken) return copse_cli_usage(command, "%s", rules[i].text);
  return COPSE_EXIT_DONE;
}

copse_status copse_cli_own(copse_status checked, const char *what, const struct copse_err *why,
                           struct copse_err *err) {
  if (checked == COPSE_OK) return COPSE_OK;
  return copse_fail(err, checked == COPSE_REFUTED ? COPSE_INTERNAL : checked, "%s: %s", what,
                    why->text);
}

bool copse_cli_parse_int(const char *text, int64_t min, int64_t max, int64_t *out) {
  char *end;
  errno = 0;
  if (!(text[0] == '-' || (text[0] >= '0' && text[0] <= '9'))) return false;
  int64_t v = strtoimax(text, &end, 10);
  if (errno != 0 || *end || end == text || v < min || v > max) return false;
  *out = v;
  return true;
}

bool copse_cli_parse_size(const char *text, uint64_t most, uint64_t *out) {
  uint64_t v = 0;
  const char *p = text;
  for (; *p >= '0' && *p <= '9'; p++)
    if (__builtin_mul_overflow(v, 10u, &v) || __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
      return false;
  if (p == text) return false;
  if (*p) {
    const char *letters = "kKmMgGtT", *found = strchr(letters, *p);
    if (!found) return false;
    unsigned shift = 10 * ((unsigned)(found - letters) / 2 + 1);
    if (v > UINT64_MAX >> shift) return false;
    v <<= shift;
    p++;
  }
  if (*p || v > most) return false;
  *out = v;
  return true;
}

/* What copse_cli_quoted has made. */
static struct {
  struct copse_arena arena;
  bool failed;
} quoted;

bool copse_cli_library(const char *name, char *path, size_t size) {
  /* "..": a build under ASan or TSan, beside the plain one */
  static const char *const beside[] = {"", "../lib/", "../", NULL};
  char program[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
  while (n > 0 && program[n - 1] != '/') n--;
  for (const char *const *place = beside; n > 0 && *place; place++) {
    snprintf(path, size, "%.*s%s%s", (int)n, program, *place, name);
    if (access(path, R_OK) == 0) return true;
  }
  snprintf(path, size, "%s/%s", COPSE_LIBDIR, name);
  return access(path, R_OK) == 0;
}

const char *copse_cli_quoted(const char *text) {
  struct copse_text made = {0};
  copse_text_add_json_string(&made, text);
  const char *kept = made.failed ? NULL : copse_arena_strdup(&quoted.arena, made.data);
  copse_text_free(&made);
  quoted.failed = quoted.failed || !kept;
  return kept ? kept : "null";
}

const char *copse_cli_q(struct copse_q q, char buffer[COPSE_Q_TEXT]) {
  if (copse_cli_asked.exact) return copse_q_text(q, buffer);
  snprintf(buffer, COPSE_Q_TEXT, "%.6g", copse_q_to_double(q));
  return buffer;
}

const char *copse_cli_rates(struct copse_q time_per_GB, copse_collective collective, int n_ranks,
                            char buffer[COPSE_CLI_RATES_TEXT]) {
  if (time_per_GB.num == 0) return "0 s/GB, nothing to send";
  double algbw = 1 / copse_q_to_double(time_per_GB);
  snprintf(buffer, COPSE_CLI_RATES_TEXT, "algbw %.6g GB/s, busbw %.6g GB/s (%s s/GB)", algbw,
           algbw * copse_collective_bus_factor(collective, n_ranks), COPSE_CLI_Q(time_per_GB));
  return buffer;
}

const char *copse_cli_number(double v, char buffer[32]) {
  if (!isfinite(v)) return "null";
  snprintf(buffer, 32, "%.10g", v);
  return buffer;
}

const char *copse_cli_range(uint64_t min_bytes, uint64_t max_bytes, char buffer[64]) {
  if (max_bytes >= INT64_MAX)
    snprintf(buffer, 64, "%" PRIu64 " bytes or more", min_bytes);
  else
    snprintf(buffer, 64, "%" PRIu64 " to %" PRIu64 " bytes", min_bytes, max_bytes);
  return buffer;
}

double copse_cli_gap_percent(struct copse_q time, struct copse_q bound) {
  if (bound.num == 0 || copse_q_eq(time, bound)) return 0;
  return 100 * (copse_q_to_double(time) / copse_q_to_double(bound) - 1);
}

const char *copse_cli_bound(double us, double bound_us, char buffer[96]) {
  const bool known = bound_us > 0;
  snprintf(buffer, 96, "\"bound_us\": %s, \"gap_percent\": %s",
           COPSE_CLI_NUMBER(known ? bound_us : NAN),
           COPSE_CLI_NUMBER(known ? fmax(0, 100 * (us / bound_us - 1)) : NAN));
  return buffer;
}

bool copse_cli_is_stdout(const char *path) { return path && strcmp(path, "-") == 0; }

bool copse_cli_may_be(const char *path, const char *kind) {
  static const char *const kinds[] = {".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf", ".ps",
                                      ".eps", ".dot", ".gv",   ".svg", ".html"};
  const char *dot = path ? strrchr(path, '.') : NULL;
  if (!dot || strcasecmp(dot, kind) == 0) return true;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strcasecmp(dot, kinds[i]) == 0) return false;
  return true;
}

const char *const copse_cli_collectives[] = {
    "allgather", "reduce_scatter", "allreduce", "broadcast", "reduce", "alltoall", NULL};

/* Finds a collective, also as NCCL spells it: ncclAllReduce, bcast. */
static bool find_collective(const char *value, copse_collective *out) {
  if (strncasecmp(value, "nccl", 4) == 0) value += 4;
  return copse_collective_from_name(strcasecmp(value, "bcast") == 0 ? "broadcast" : value, out);
}

int copse_cli_take_collective(const char *command, const char *value, copse_collective *out) {
  if (find_collective(value, out)) return COPSE_EXIT_DONE;
  if (strchr(value, ','))
    return copse_cli_usage(
        command, "-c '%.60s': one collective is wanted; 'copse plans' takes a list", value);
  struct copse_near_name near = {.given = value};
  for (int i = 0; copse_cli_collectives[i]; i++)
    copse_near_name_consider(&near, copse_cli_collectives[i]);
  if (near.name)
    return copse_cli_usage(command, "unknown collective '%.40s'; did you mean %s?", value,
                           near.name);
  return copse_cli_usage(command,
                         "unknown collective '%.40s': allgather, reduce_scatter, allreduce, "
                         "broadcast, reduce or alltoall",
                         value);
}

int copse_cli_take_collectives(const char *command, char *value, bool *wanted) {
  int exit = COPSE_EXIT_DONE;
  for (char *next; exit == COPSE_EXIT_DONE && (next = strsep(&value, ",")) != NULL;) {
    copse_collective collective;
    exit = copse_cli_take_collective(command, next, &collective);
    if (exit == COPSE_EXIT_DONE) wanted[collective] = true;
  }
  return exit;
}

/* Notes wait until the command has succeeded: an error is one line and no more. */
#define MAX_NOTES 32
static char *notes[MAX_NOTES];
static int n_notes;

static void keep_note(void *ctx, const char *text) {
  (void)ctx;
  if (n_notes < MAX_NOTES) notes[n_notes] = strdup(text);
  n_notes++;
}

const struct copse_notes copse_cli_notes = {keep_note, NULL};

void copse_cli_print_notes_json(void) {
  for (int i = 0; i < n_notes && i < MAX_NOTES; i++)
    printf("%s%s", i == 0 ? ",\n \"notes\": [" : ", ", copse_cli_quoted(notes[i] ? notes[i] : ""));
  if (n_notes > 0) printf("]");
}

static void print_notes(void) {
  for (int i = 0; i < n_notes && i < MAX_NOTES; i++) {
    if (notes[i]) fprintf(stderr, "copse: note: %s\n", notes[i]);
    free(notes[i]);
  }
  if (n_notes > MAX_NOTES) fprintf(stderr, "copse: note: and %d more\n", n_notes - MAX_NOTES);
}

/* ---- the work of a command ------------------------------------------------------------------- */

/* Whether the error names the file; also where there is no file to name. */
static bool is_named(const struct copse_err *err, const char *file) {
  return !file || strncmp(err->text, file, strlen(file)) == 0;
}

/* Adds the parts that are down to the error that a rank can't be reached. */
static void add_faults(struct copse_cli_work *w) {
  COPSE_AT_END(copse_text_free) struct copse_text faults = {0};
  struct copse_err whole = COPSE_ERR_INIT;
  copse_cli_faults_between(w->topology->name, w->whole->name, &faults);
  if (faults.size == 0 || faults.failed) return;
  (void)copse_fail(&whole, w->err.status, "%s; what is down:%s", w->err.text, faults.data);
  w->err = whole;
}

/* Fails; where the failure comes from too deep inside to name what it is about, names it. */
static int fail(struct copse_cli_work *w) {
  const struct copse_err *err = &w->err;
  struct copse_err placed = COPSE_ERR_INIT;
  bool overflow = err->status == COPSE_OVERFLOW, unreached = err->status == COPSE_INFEASIBLE;
  if (unreached && w->topology && w->whole) add_faults(w);
  bool elsewhere = overflow || unreached || err->status == COPSE_UNSUPPORTED;
  if (!is_named(err, w->place) && elsewhere) {
    (void)copse_fail_at(&placed, err->status, w->place, 0, "%s", err->text);
  } else if (!is_named(err, w->solved) && unreached) {
    (void)copse_fail_at(&placed, err->status, w->solved, 0, "%s", err->text);
  } else if (w->solved && overflow) {
    bool advises = strstr(err->text, "fewer digits") || strstr(err->text, "tolerance");
    (void)copse_fail_at(&placed, err->status, w->solved, 0, "%s%s", err->text,
                        advises ? "" : "; bandwidths and demands of fewer digits would fit");
  }
  return copse_cli_fail(placed.status == COPSE_OK ? err : &placed);
}

int copse_cli_do(copse_status (*command)(void *options, struct copse_cli_work *work),
                 void *options) {
  struct copse_cli_work w = {.err = COPSE_ERR_INIT};
  w.progress = copse_cli_progress_start();
  w.progress.ctx = &w;
  copse_status status = command(options, &w);
  copse_cli_progress_end();
  copse_cli_asked.refuted = w.refuted;
  int exit = status == COPSE_OK ? w.exit : fail(&w);
  copse_predictions_free(w.columns, w.n_columns);
  copse_arrangement_free(w.arrangement);
  copse_schedule_free(w.schedule);
  copse_topology_free(w.topology);
  copse_topology_free(w.whole);
  copse_plan_free(w.plan);
  copse_text_free(&w.text);
  copse_arena_free(&w.arena);
  free(w.demand);
  free(w.data);
  free(w.made);
  return exit;
}

copse_status copse_cli_write(const char *path, const void *data, size_t size,
                             struct copse_err *err) {
  if (copse_cli_is_stdout(path)) copse_cli_progress_end();
  return copse_file_write(path, data, size, err);
}

/* ---- the program --------------------------------------------------------------------------- */

static void print_help(void) {
  printf(
      "usage: copse COMMAND [options] [files]\n\n"
      "copse compiles collective communication: from a cluster's topology to provably\n"
      "optimal schedules, to plans that run.\n\ncommands:\n");
  for (int i = 0; i < N_COMMANDS; i++) printf("  %-8s %s\n", commands[i]->name, commands[i]->does);
  printf(
      "\n'copse COMMAND --help', or 'copse help COMMAND', shows a command's options and\n"
      "an example; 'copse help inputs' what can be given as a topology, and what can be\n"
      "changed of it. 'copse --version' says which this is.\n"
      "A file named - is standard input or output.\n"
      "exit status: 0 done, 1 a check failed, 2 bad usage or input, 3 no solution,\n"
      "4 out of resources or an internal error\n");
}

/* Prints what Makefile asks for when it installs: argv[2] is --man or --completion. */
static int print_for_install(char **argv) {
  const char *shell = argv[3] ? argv[3] : "bash";
  if (strcmp(argv[2], "--man") == 0 && !argv[3]) {
    copse_commands_print_manual(commands, N_COMMANDS);
    return COPSE_EXIT_DONE;
  }
  if (strcmp(argv[2], "--completion") == 0 && !(argv[3] && argv[4]) &&
      copse_commands_print_completion(shell, commands, N_COMMANDS))
    return COPSE_EXIT_DONE;
  return fail_with(COPSE_INVALID,
                   "help takes a command, inputs, --man or --completion bash, zsh or fish");
}

static int refuse_command(const char *name, bool of_help) {
  struct copse_near_name nearest = {.given = name};
  copse_near_name_consider(&nearest, of_help ? "inputs" : "help");
  for (int i = 0; i < N_COMMANDS; i++) copse_near_name_consider(&nearest, commands[i]->name);
  if (!nearest.name)
    return fail_with(COPSE_INVALID, "unknown command '%.60s' (see 'copse --help')", name);
  return fail_with(COPSE_INVALID, "unknown command '%.60s'; did you mean %s? (see 'copse --help')",
                   name, nearest.name);
}

static int run_command(int argc, char **argv) {
  const char *name = argv[1];
  bool help = strcmp(name, "help") == 0, of_command = help && argc == 3;
  if (help && argc > 2 && strncmp(argv[2], "--", 2) == 0) return print_for_install(argv);
  if (of_command && strcmp(argv[2], "inputs") == 0) {
    copse_command_print_inputs(&copse_cmd_topo);
    return COPSE_EXIT_DONE;
  }
  if (of_command) {
    name = argv[2];
  } else if (help || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
    print_help();
    return COPSE_EXIT_DONE;
  }
  if (strcmp(name, "--version") == 0) {
    printf("copse %s\n", copse_version());
    return COPSE_EXIT_DONE;
  }
  for (int i = 0; i < N_COMMANDS; i++) {
    if (strcmp(name, commands[i]->name) != 0) continue;
    if (!of_command) return copse_command_run(commands[i], argc - 1, argv + 1);
    copse_command_print_help(commands[i]);
    return COPSE_EXIT_DONE;
  }
  return refuse_command(name, of_command);
}

int main(int argc, char **argv) {
  copse_file_begin();
  if (argc < 2) {
    fprintf(stderr, "copse: a command is missing (see 'copse --help')\n");
    return COPSE_EXIT_USAGE;
  }
  int status = run_command(argc, argv);
  copse_arena_free(&quoted.arena);
  if (quoted.failed && status <= COPSE_EXIT_REFUTED) {
    struct copse_err err = COPSE_ERR_INIT;
    copse_fail_nomem(&err);
    return copse_cli_fail(&err);
  }
  bool lost = fflush(stdout) != 0 || ferror(stdout);
  if (lost && status <= COPSE_EXIT_REFUTED) { /* else a line has been printed already */
    fprintf(stderr, "copse: <stdout>: cannot write\n");
    return COPSE_EXIT_INTERNAL;
  }
  if (status <= COPSE_EXIT_REFUTED) print_notes();
  return status;
}

/* ==== progress ============================================================================ */

/*
 * Progress on standard error, of every command: from the second second on one line that a thread
 * writes anew, five times a second, and that is cleared before any other line. And what --verbose
 * says.
 *
 *   command --report(phase, part)--> bar --thread--> "\rpack      42 %   12 s"
 *   results, errors, --verbose ----> the line is cleared first
 */

#define SILENT_SECONDS 1.0
#define EVERY_NS 200000000L

struct copse_cli_asked copse_cli_asked;

static struct {
  pthread_mutex_t lock; /* guards all members below */
  pthread_cond_t stop;
  pthread_t thread;
  bool runs, ends, shown;
  double start, phase_begun; /* phase_begun 0: nothing has been reported */
  char phase[24];
  int percent; /* < 0: not known */
} bar = {.lock = PTHREAD_MUTEX_INITIALIZER, .stop = PTHREAD_COND_INITIALIZER};

/* Prints by write(): the thread of a forked process must find no lock of stdio taken. */
static void put(const char *text, int n) {
  ssize_t written = write(STDERR_FILENO, text, (size_t)n);
  (void)written; /* a failure to report has no other place to go */
}

static void clear_line(void) {
  if (bar.shown) put("\r\033[K", 4);
  bar.shown = false;
}

static void show(double seconds) {
  char line[80], part[16] = "";
  if (bar.percent >= 0) snprintf(part, sizeof part, "%3d %%", bar.percent);
  int n = snprintf(line, sizeof line, "\r\033[K%-10s %5s %4.0f s", bar.phase, part, seconds);
  put(line, n);
  bar.shown = true;
}

static void *show_again_and_again(void *unused) {
  (void)unused;
  pthread_mutex_lock(&bar.lock);
  while (!bar.ends) {
    struct timespec next;
    clock_gettime(CLOCK_REALTIME, &next);
    next.tv_nsec += EVERY_NS;
    next.tv_sec += next.tv_nsec / 1000000000L;
    next.tv_nsec %= 1000000000L;
    pthread_cond_timedwait(&bar.stop, &bar.lock, &next);
    double seconds = copse_clock_seconds() - bar.start;
    if (!bar.ends && seconds >= SILENT_SECONDS) show(seconds);
  }
  clear_line();
  pthread_mutex_unlock(&bar.lock);
  return NULL;
}

/* Begins a phase; with --verbose says the one that has ended with its time. */
static void begin_phase(const char *phase) {
  double now = copse_clock_seconds();
  if (copse_cli_asked.verbose && bar.phase_begun > 0) {
    clear_line();
    fprintf(stderr, "copse: %s: %.3f s\n", bar.phase, now - bar.phase_begun);
  }
  bar.phase_begun = now;
  snprintf(bar.phase, sizeof bar.phase, "%s", phase);
}

static void report(void *ctx, const char *phase, int64_t done, int64_t total) {
  (void)ctx;
  pthread_mutex_lock(&bar.lock);
  if (strncmp(bar.phase, phase, sizeof bar.phase - 1) != 0) begin_phase(phase);
  bar.percent = total > 0 ? (int)(100 * (done < total ? done : total) / total) : -1;
  pthread_mutex_unlock(&bar.lock);
}

void copse_cli_phase(const char *phase) { report(NULL, phase, 0, 0); }

static void tried(void *ctx, const char *text) {
  (void)ctx;
  copse_cli_say("tried %s", text);
}

struct copse_progress copse_cli_progress_start(void) {
  bool shows = copse_cli_asked.progress || isatty(STDERR_FILENO);
  bar.start = copse_clock_seconds();
  bar.percent = -1;
  bar.ends = false;
  snprintf(bar.phase, sizeof bar.phase, "%s",
           copse_cli_asked.command ? copse_cli_asked.command : "");
  sigset_t all, before; /* signals go to the main thread, which knows what it is changing */
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  if (shows && !bar.runs)
    bar.runs = pthread_create(&bar.thread, NULL, show_again_and_again, NULL) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  /* what is printed before the end comes after it, else it would meet the line */
  if (bar.runs && isatty(STDOUT_FILENO)) {
    fflush(stdout);
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
  }
  return (struct copse_progress){.report = bar.runs || copse_cli_asked.verbose ? report : NULL,
                                 .tried = copse_cli_asked.verbose ? tried : NULL};
}

void copse_cli_progress_end(void) {
  if (copse_cli_asked.verbose && bar.phase_begun > 0) begin_phase("");
  bar.phase_begun = 0;
  if (!bar.runs) return;
  pthread_mutex_lock(&bar.lock);
  bar.ends = true;
  pthread_cond_signal(&bar.stop);
  pthread_mutex_unlock(&bar.lock);
  pthread_join(bar.thread, NULL);
  bar.runs = false;
}

void copse_cli_say(const char *fmt, ...) {
  char text[600];
  va_list ap;
  if (!copse_cli_asked.verbose) return;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  pthread_mutex_lock(&bar.lock);
  clear_line();
  fprintf(stderr, "copse: %s\n", text);
  pthread_mutex_unlock(&bar.lock);
}
