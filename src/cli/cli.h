/*
 * What the commands share: exit statuses, one-line messages, notes, progress, texts, numbers,
 * folders.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/types.h"
#include "base/err.h"
#include "base/text.h"
#include "copse/wire.h"
#include "predict/predict.h"
#include "solver/network/network.h"
#include "topology/topology.h"

/* What a process leaves with: README.md has the list for users. */
enum copse_exit {
  COPSE_EXIT_DONE = 0,
  COPSE_EXIT_REFUTED = 1,
  COPSE_EXIT_USAGE = 2,
  COPSE_EXIT_INFEASIBLE = 3,
  COPSE_EXIT_INTERNAL = 4
};

/* Prints "copse: TEXT" to standard error; returns the exit status for err's code. */
int copse_cli_fail(const struct copse_err *err);

/* Prints "copse: COMMAND: TEXT (see 'copse COMMAND --help')"; returns COPSE_EXIT_USAGE. */
int copse_cli_usage(const char *command, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Options that don't go together, and the message. */
struct copse_cli_rule {
  bool broken;
  const char *text;
};
/* Returns 0, or COPSE_EXIT_USAGE after it has said the first broken rule of [n]. */
int copse_cli_check(const char *command, const struct copse_cli_rule *rules, size_t n);
#define COPSE_CLI_CHECK(command, rules) \
  copse_cli_check(command, rules, sizeof(rules) / sizeof *(rules))

/* Passes on what came of checking a result of this program's own: COPSE_INTERNAL where it is
 * refuted. */
copse_status copse_cli_own(copse_status checked, const char *what, const struct copse_err *why,
                           struct copse_err *err) COPSE_CHECKED;

/* Parses a whole number in [min, max]; false for anything else. */
bool copse_cli_parse_int(const char *text, int64_t min, int64_t max, int64_t *out);

/* Parses digits with an optional K, M, G or T (times 1024, ...), small or capital; false for
 * anything else and beyond `most`. */
bool copse_cli_parse_size(const char *text, uint64_t most, uint64_t *out);

/* Finds the shared library `name` of this copse: beside the program (a build), in lib beside its
 * bin, or where `make install LIBDIR=...` put it; its size in path includes the end. False: in
 * none. */
bool copse_cli_library(const char *name, char *path, size_t size);

/* Returns the text as a JSON string, for printf; it lasts as long as the program. Where memory runs
 * out the program ends with that error. */
const char *copse_cli_quoted(const char *text);

/* Texts for printf that last as long as the block they stand in: a number as JSON has it (null if
 * it isn't finite), a truth value. Fractions: COPSE_Q_STRING. */
#define COPSE_CLI_NUMBER(v) copse_cli_number((v), (char[32]){0})
#define COPSE_CLI_BOOL(b) ((b) ? "true" : "false")
const char *copse_cli_number(double v, char buffer[32]);

/* "1024 to 4096 bytes", "1024 bytes or more" of the largest there is. */
#define COPSE_CLI_RANGE(min, max) copse_cli_range((min), (max), (char[64]){0})
const char *copse_cli_range(uint64_t min_bytes, uint64_t max_bytes, char buffer[64]);

/* Returns how much longer a time is than its bound, in per cent; 0 where nothing moves. */
double copse_cli_gap_percent(struct copse_q time, struct copse_q bound);

/* A predicted time beside what nothing beats, as members of JSON: "bound_us" and "gap_percent",
 * null where no bound is known. */
#define COPSE_CLI_BOUND(us, bound_us) copse_cli_bound((us), (bound_us), (char[96]){0})
const char *copse_cli_bound(double us, double bound_us, char buffer[96]);

/* A number as text for people has it, with 6 digits or under --exact as a fraction. */
#define COPSE_CLI_Q(q) copse_cli_q((q), (char[COPSE_Q_TEXT]){0})
const char *copse_cli_q(struct copse_q q, char buffer[COPSE_Q_TEXT]);
/* A time as both bandwidths: "algbw 173.333 GB/s, busbw 325 GB/s (0.00576923 s/GB)"; of nothing "0
 * s/GB, nothing to send". */
#define COPSE_CLI_RATES_TEXT (COPSE_Q_TEXT + 80)
#define COPSE_CLI_RATES(time, collective, n_ranks) \
  copse_cli_rates((time), (collective), (n_ranks), (char[COPSE_CLI_RATES_TEXT]){0})
const char *copse_cli_rates(struct copse_q time_per_GB, copse_collective collective, int n_ranks,
                            char buffer[COPSE_CLI_RATES_TEXT]);

/* Whether a file's name stands for standard output. NULL does not. */
bool copse_cli_is_stdout(const char *path);

/* Whether ".svg" or ".html" may be written under that name: false for that of another kind of
 * picture or page. */
bool copse_cli_may_be(const char *path, const char *kind);

/* Takes a collective's name. Returns 0, or the exit status after it has said what is wrong. */
int copse_cli_take_collective(const char *command, const char *value, copse_collective *out);
/* Takes a list of them with commas between: marks them in wanted [COPSE_ALLTOALL + 1]; writes into
 * value; the same exit statuses. */
int copse_cli_take_collectives(const char *command, char *value, bool *wanted);
/* Takes the value of --instances: a number or "auto", COPSE_LOWER_AUTO; the same exit statuses. */
int copse_cli_take_instances(const char *command, const char *value, int *out);
extern const char *const copse_cli_collectives[]; /* their names, for completion */

/* Notes of readers; main prints them as "copse: note: TEXT" once the command succeeded. */
extern const struct copse_notes copse_cli_notes;
/* Prints those so far as the key `notes` of a report, a comma before it; nothing if there are none.
 */
void copse_cli_print_notes_json(void);

/* Values of the options that every command has. */
struct copse_cli_asked {
  const char *command; /* NULL: none yet */
  char line[480];      /* with its arguments, as a shell takes it; long ones are cut */
  bool progress, verbose;
  bool exact;          /* fractions in text */
  bool json;           /* no object has been printed yet, so a failure must be one */
  const char *refuted; /* where a proof failed: what is false in that object; or NULL */
};
extern struct copse_cli_asked copse_cli_asked;

/* Starts progress on standard error: on a terminal, or when the user asks for it. It says the
 * command's name until something is reported. */
struct copse_progress copse_cli_progress_start(void);
/* Ends progress before results are printed, and, however it went, at the end; again does
 * nothing. */
void copse_cli_progress_end(void);
/* Sets what a command is doing, for progress and, when it has ended, for --verbose. */
void copse_cli_phase(const char *phase);
/* Prints a line on standard error, with --verbose. */
void copse_cli_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* What a command has in hand. All of it is released when the command has ended, however it ended.
 */
struct copse_cli_work {
  struct copse_progress progress; /* has begun */
  struct copse_topology *topology, *whole;
  const char *unnamed; /* why a schedule is compared with no topology's routes; NULL: it may be */
  struct copse_schedule *schedule;
  struct copse_arrangement *arrangement;
  struct copse_plan *plan;
  struct copse_prediction columns[COPSE_MAX_PREDICTIONS];
  int n_columns;
  int64_t *demand;
  char *data, *made; /* [size], [made_size] a file that was read, and one that is to be written */
  size_t size, made_size;
  struct copse_text text;
  struct copse_arena arena;
  struct copse_err err;
  int exit; /* exit status of a command without a failure: COPSE_EXIT_DONE, or what it sets */
  /* what is said after a failure: */
  const char *place;   /* the file that can't be worked with, where the text does not name it */
  const char *solved;  /* a topology: the place of an overflow or of a rank that can't be reached,
                          which come from deep inside */
  const char *refuted; /* where a proof failed, --json says {"REFUTED": false, "reason": ...} */
};
/* Does it; the exit status, after what was wrong has been said. */
int copse_cli_do(copse_status (*command)(void *options, struct copse_cli_work *work),
                 void *options);

/* Writes a result by copse_file_write; to standard output after the line of progress is cleared. */
copse_status copse_cli_write(const char *path, const void *data, size_t size,
                             struct copse_err *err) COPSE_CHECKED;

/* ---- folders of files ---- */

/* Makes it, unless it is there. COPSE_IO. */
copse_status copse_cli_make_folder(const char *folder, struct copse_err *err) COPSE_CHECKED;
/* A plan of a folder, and what the folder's index.json says of it (index NULL: nothing). */
struct copse_cli_listed {
  const char *name;
  struct copse_cli_indexed {
    const char *index, *topology, *collective;
    long line;
    int root;
    int64_t n_ranks;
    uint64_t min_bytes, max_bytes;
  } indexed;
};
/* Lists the *.plan in a folder, by name. COPSE_BAD_INPUT where there is none, and where index.json
 * is no valid index of plans or names one that is missing; what to do is said. */
copse_status copse_cli_list_plans(const char *folder, struct copse_arena *arena,
                                  const struct copse_cli_listed **plans, int *n,
                                  struct copse_err *err) COPSE_CHECKED;
/* Checks what the index says against the plan; COPSE_BAD_INPUT names the key. */
copse_status copse_cli_check_indexed(const struct copse_cli_listed *listed,
                                     const struct copse_plan *plan,
                                     struct copse_err *err) COPSE_CHECKED;
/* A plan that a job has. */
struct copse_cli_plan {
  const char *name, *schedule; /* its path, or NULL */
  struct copse_plan_header header;
  uint8_t (*parts)[COPSE_SHA256_BYTES]; /* [n_ranks] copse_plan_digest_parts */
};
/* Reads the plans of a folder, with the schedules beside them, a plan, or a schedule, lowered as
 * its plan would be, in the order of their sizes; the work's arena owns them. */
copse_status copse_cli_read_plans(const char *from, const struct copse_lower_options *lower,
                                  struct copse_cli_work *w, struct copse_cli_plan **plans, int *n,
                                  struct copse_err *err) COPSE_CHECKED;
/*
 * A set of files of which some without the others would do harm. They are made in another folder,
 * and put in place at the end: FOLDER.making-XXXXXX beside a new one; a folder that exists may be a
 * mount or the current one, and gets FOLDER/.making-XXXXXX, whose files are moved up. It must hold
 * no file of `suffix`: one left from another call would be taken for one of the set.
 */
struct copse_cli_set {
  const char *output;
  char *making;
  bool exists;               /* `output` does */
  struct copse_text written; /* names, each on a line */
  struct copse_arena arena;
};
copse_status copse_cli_set_begin(const char *output, const char *suffix, struct copse_cli_set *set,
                                 struct copse_err *err) COPSE_CHECKED;
copse_status copse_cli_set_add(struct copse_cli_set *set, const char *name, const void *data,
                               size_t size, struct copse_err *err) COPSE_CHECKED;
copse_status copse_cli_set_place(struct copse_cli_set *set, struct copse_err *err) COPSE_CHECKED;
/* Ends a set in every case; files that were not put in place are removed, as they are by SIGINT,
 * SIGTERM, SIGHUP. */
void copse_cli_set_end(struct copse_cli_set *set);
/* Writes a file of a folder whole or not at all, as copse_file_write. */
copse_status copse_cli_write_in(const char *folder, const char *name, const void *data, size_t size,
                                struct copse_err *err) COPSE_CHECKED;

/* ---- processes that meet ---- */

struct copse_meeting;

/* Loads copse's library over MPI or, with a meeting (runtime/ucx/rendezvous.h), over UCX, and joins
 * the other processes. Where that fails text [size] has the library's reason, or "" where it is not
 * there: COPSE_UNSUPPORTED. */
copse_status copse_cli_start_wire(double timeout_seconds, const struct copse_meeting *meeting,
                                  copse_wire *wire, char *text, size_t size,
                                  struct copse_err *err) COPSE_CHECKED;

/* ---- simulate --overlap ---- */

/*
 * Prints the table (or, with json, one object) for an alltoall schedule that has been loaded for
 * its topology; a compact one is expanded in place. spec is the value of --overlap:
 * "tokens=N,token-bytes=B,compute=FILE|ALPHA:BETA[,degrees=1:2:4][,network=one|shared]".
 */
copse_status copse_cli_simulate_overlap(const char *spec, struct copse_cli_work *w,
                                        const struct copse_predict_options *options,
                                        bool json) COPSE_CHECKED;
