/* What to solve, as `copse solve` and `copse report` take it, and how every command solves: checked
 * before anybody sees it. */
#pragma once

#include "cli/topology_args.h"
#include "schedule/solve/solve.h"

struct copse_cli_solve {
  struct copse_cli_topology topology;
  const char *demand; /* file */
  const char *root;   /* an id, whose rank solve.root becomes with the topology; or NULL */
  struct copse_solve_options solve;
  int routes; /* 0: any, 1: the fabric's own */
  bool has_collective, has_tolerance;
  bool for_size; /* the command chooses a schedule for a size of message */
};
#define COPSE_CLI_SOLVE_INIT                          \
  {                                                   \
    .solve = {.root = -1, .tolerance = COPSE_Q_ZERO } \
  }

/* The table of what is solved, of a command that has a struct copse_cli_solve as `member`. */
extern const struct copse_option copse_cli_solve_options[];
#define COPSE_CLI_SOLVE_SECTION(struct_type, member)                                               \
  {                                                                                                \
    .title = "What is solved (solve, report)", .shared = true, .options = copse_cli_solve_options, \
    .at = offsetof(struct_type, member)                                                            \
  }

/* Takes the topology from what is left of the arguments, and checks that all goes together: 0, or
 * the exit status after what was wrong has been said. */
int copse_cli_solve_check(struct copse_cli_solve *args, const char *command, int n_left,
                          char *const *left);

/* Reads the file of --demand, if there is one, to work->demand and the options of solving. */
copse_status copse_cli_load_demand(const struct copse_cli_solve *args,
                                   struct copse_solve_options *options,
                                   struct copse_cli_work *work) COPSE_CHECKED;

/* Says at once, and not with the notes at the end, how much is to be written, where it is much.
 * COPSE_NOMEM where copse could not read it; `instead` says what would do. NULL: it is written all
 * the same. */
copse_status copse_cli_announce(const char *path, size_t size, const char *instead,
                                struct copse_err *err) COPSE_CHECKED;

/* Writes the schedule after that. *size: its bytes before they are packed. */
copse_status copse_cli_write_schedule(const char *path, const struct copse_schedule *schedule,
                                      const char *instead, size_t *size,
                                      struct copse_err *err) COPSE_CHECKED;

/* Finds the rank of --root, where it is an id of the topology. COPSE_BAD_INPUT. */
copse_status copse_cli_find_root(const struct copse_cli_solve *args,
                                 const struct copse_topology *topology,
                                 struct copse_solve_options *options,
                                 struct copse_err *err) COPSE_CHECKED;

/* Reads topology and demand into `work`: w->whole is the topology before
 * faults, if there are any. */
copse_status copse_cli_begin_solve(struct copse_cli_solve *args,
                                   struct copse_cli_work *work) COPSE_CHECKED;

/* Members of a JSON object: " "time_per_GB": .., .. "gap_percent": ..,\n" with bandwidths, bound
 * and its kind; and " "cut": [ids]", of an allreduce in phases "reduce_cut" too. */
extern const char *const copse_cli_bound_kinds[];
void copse_cli_print_rates_json(const struct copse_schedule *s);
void copse_cli_print_cut_json(const struct copse_schedule *s);

/* Prints "bottleneck: into GPU 0 of h0: ..": the cut, or of several that which counts most, or the
 * links of the greatest length; nothing where the bound has none. */
void copse_cli_print_bottleneck(const struct copse_topology *t, const struct copse_schedule *s);

/* Prints how far a time is above the bound for a size that the schedule has, and what proves the
 * bound. */
void copse_cli_print_gap(const struct copse_schedule *s, const struct copse_topology *t, double us);

/* Sets how near its bound an alltoall should come where nobody says: up to 64 ranks exactly, of
 * more 1 %, and what is further from it is made all the same. */
void copse_cli_set_default_tolerance(const struct copse_topology *topology,
                                     struct copse_solve_options *options);

/* Finds the bound of all schedules in which GPUs alone copy and add, as NCCL's rings and trees do:
 * also where switches are marked. root: of broadcast and reduce, else -1. The caller releases *out,
 * whose nodes are the topology's. */
copse_status copse_cli_solve_bound(const struct copse_topology *topology,
                                   copse_collective collective, int root, const char *label,
                                   struct copse_schedule **out,
                                   struct copse_err *err) COPSE_CHECKED;

/*
 * Solves by copse_solve_schedule, then (but for bound_only) verifies by copse_verify_schedule: a
 * schedule that its own verifier refuses is COPSE_INTERNAL. Without has_tolerance an alltoall of
 * many ranks gets 1 %; with it trees that miss it are noted. verify_seconds may be NULL. The caller
 * releases *out.
 */
copse_status copse_cli_solve_checked(const struct copse_topology *topology,
                                     const struct copse_solve_options *options, bool has_tolerance,
                                     struct copse_schedule **out,
                                     struct copse_solve_seconds *seconds, double *verify_seconds,
                                     struct copse_err *err) COPSE_CHECKED;
