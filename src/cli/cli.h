/*
 * What the commands share: exit statuses, one-line diagnostics, progress, options.
 */
#ifndef COPSE_CLI_CLI_H
#define COPSE_CLI_CLI_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "solver/network/network.h"
#include "topology/topology.h"

/* CONTRACT section 1. */
enum copse_exit {
  COPSE_EXIT_DONE = 0,
  COPSE_EXIT_REFUTED = 1,
  COPSE_EXIT_USAGE = 2,
  COPSE_EXIT_INFEASIBLE = 3,
  COPSE_EXIT_INTERNAL = 4
};

/* Prints "copse: TEXT" to standard error; returns the exit status for err's code. */
int copse_cli_fail(const struct copse_err *err);

/* The same; what can't be done with a file, and comes from too deep inside to name it, gets
 * `label`, the file, as its place. */
int copse_cli_fail_in(const char *label, const struct copse_err *err);

/* Standard output under --json where a proof failed: {"KEY": false, "reason": TEXT}. */
void copse_cli_print_refuted(const char *key, const struct copse_err *err);

/* Prints "copse: COMMAND: TEXT (see 'copse COMMAND --help')"; returns COPSE_EXIT_USAGE. */
int copse_cli_usage(const char *command, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* After getopt_long returned '?' or ':' with opterr = 0: says what was wrong. */
int copse_cli_bad_option(const char *command, char **argv, int option);

/* A whole number in [min, max]; false for anything else. */
bool copse_cli_parse_int(const char *text, int64_t min, int64_t max, int64_t *out);

/* Digits with an optional K, M, G or T (times 1024, ...), small or capital; false for anything
 * else and beyond `most`. */
bool copse_cli_parse_size(const char *text, uint64_t most, uint64_t *out);

/* Notes of readers; main prints them as "copse: note: TEXT" once the command succeeded. */
extern const struct copse_notes copse_cli_notes;
void copse_cli_print_notes(void);

/* Progress on standard error: on a terminal, or when the user asks for it. */
struct copse_cli_progress {
  bool enabled, shown;
  double last;
};
struct copse_progress copse_cli_progress_start(struct copse_cli_progress *state, bool asked);
void copse_cli_progress_end(struct copse_cli_progress *state);

int copse_cmd_topo(int argc, char **argv);
int copse_cmd_solve(int argc, char **argv);
int copse_cmd_verify(int argc, char **argv);
int copse_cmd_expand(int argc, char **argv);
int copse_cmd_lower(int argc, char **argv);
int copse_cmd_plans(int argc, char **argv);
int copse_cmd_check(int argc, char **argv);
int copse_cmd_run(int argc, char **argv);
int copse_cmd_simulate(int argc, char **argv);
int copse_cmd_place(int argc, char **argv);
int copse_cmd_quality(int argc, char **argv);
int copse_cmd_report(int argc, char **argv);

#endif
