/* What to solve, as `copse solve` and `copse report` take it. */
#ifndef COPSE_CLI_SOLVE_ARGS_H
#define COPSE_CLI_SOLVE_ARGS_H

#include "cli/topology_args.h"
#include "schedule/solve/solve.h"

struct copse_cli_solve {
  struct copse_cli_topology topology;
  const char *demand; /* file */
  struct copse_solve_options solve;
  bool has_collective, has_tolerance;
};
#define COPSE_CLI_SOLVE_INIT                          \
  {                                                   \
    .solve = {.root = -1, .tolerance = COPSE_Q_ZERO } \
  }

/* For a command's options; the topology's are among them. */
enum {
  COPSE_CLI_NO_FORWARD = 0x20000,
  COPSE_CLI_NO_SYMMETRY,
  COPSE_CLI_COMPACT,
  COPSE_CLI_EQUAL_SHARES,
  COPSE_CLI_IN_NETWORK
};
#define COPSE_CLI_SOLVE_OPTIONS                                                         \
  {"collective", required_argument, NULL, 'c'}, {"root", required_argument, NULL, 'r'}, \
      {"k", required_argument, NULL, 'k'}, {"demand", required_argument, NULL, 'd'},    \
      {"no-forward", no_argument, NULL, COPSE_CLI_NO_FORWARD},                          \
      {"no-symmetry", no_argument, NULL, COPSE_CLI_NO_SYMMETRY},                        \
      {"compact", no_argument, NULL, COPSE_CLI_COMPACT},                                \
      {"equal-shares", no_argument, NULL, COPSE_CLI_EQUAL_SHARES},                      \
      {"in-network", no_argument, NULL, COPSE_CLI_IN_NETWORK},                          \
      {"tolerance", required_argument, NULL, 'e'}, COPSE_CLI_TOPOLOGY_OPTIONS,          \
      COPSE_CLI_CHANGE_OPTIONS
#define COPSE_CLI_SOLVE_SHORTS "c:r:k:d:e:l:"
extern const char copse_cli_solve_help[];

/* 0, or the exit status after what was wrong has been said, also of an unknown option. */
int copse_cli_solve_option(struct copse_cli_solve *args, const char *command, char **argv,
                           int option);

/* Takes the topology from what is left of the arguments, and checks that all goes together. */
int copse_cli_solve_check(struct copse_cli_solve *args, const char *command, int n_left,
                          char *const *left);

/* copse_cli_fail; an overflow, which comes from deep inside, gets the topology as its place. */
int copse_cli_solve_fail(const struct copse_cli_solve *args, const struct copse_err *err);

#endif
