/* How every command takes its topology: a file or name, or a synthetic line, and how to read it. */
#ifndef COPSE_CLI_TOPOLOGY_ARGS_H
#define COPSE_CLI_TOPOLOGY_ARGS_H

#include "cli/cli.h"
#include "topology/modify.h"
#include "topology/input/profile.h"

#define COPSE_CLI_MAX_FAULTS 64

struct copse_cli_topology {
  const char *path; /* a file, "-" or a name of the catalogue; or NULL */
  const char *synthetic;
  const char *profile;
  struct copse_topology_options options;
  struct copse_fault faults[COPSE_CLI_MAX_FAULTS]; /* --down, --derate, in the order given */
  int n_faults;
  const char *ranks; /* a list, or NULL: all */
  bool exclude_others, has_others;
  bool has_groups; /* a command that reads ranks elsewhere: others are no error without them */
};

/* For the long options of a command; -l is --links. Values no command has of its own. */
enum {
  COPSE_CLI_SYNTHETIC = 0x10000,
  COPSE_CLI_PROFILE,
  COPSE_CLI_NVLINK_SWITCH,
  COPSE_CLI_GPU,
  COPSE_CLI_RANKS,
  COPSE_CLI_OTHERS,
  COPSE_CLI_DOWN,
  COPSE_CLI_DERATE
};
#define COPSE_CLI_TOPOLOGY_OPTIONS                                                       \
  {"links", required_argument, NULL, 'l'},                                               \
      {"synthetic", required_argument, NULL, COPSE_CLI_SYNTHETIC},                       \
      {"profile", required_argument, NULL, COPSE_CLI_PROFILE},                           \
      {"nvlink-switch", required_argument, NULL, COPSE_CLI_NVLINK_SWITCH}, {             \
    "gpu", required_argument, NULL, COPSE_CLI_GPU                                        \
  }
/* For commands where it may be changed as well: other ranks, broken parts. */
#define COPSE_CLI_CHANGE_OPTIONS                             \
  {"ranks", required_argument, NULL, COPSE_CLI_RANKS},       \
      {"others", required_argument, NULL, COPSE_CLI_OTHERS}, \
      {"down", required_argument, NULL, COPSE_CLI_DOWN}, {   \
    "derate", required_argument, NULL, COPSE_CLI_DERATE      \
  }
extern const char copse_cli_topology_help[], copse_cli_change_help[];

/*
 * Takes an option that a command has none of its own for: 0, or the exit status after what was
 * wrong with it has been said.
 */
int copse_cli_topology_option(struct copse_cli_topology *args, const char *command, char **argv,
                              int option);

/* "1%", "0.5 %" or a fraction "0.01"; not negative. */
bool copse_cli_parse_part(const char *text, struct copse_q *out);

/* Whether a topology is given, as a path or a line; both is COPSE_INVALID. */
bool copse_cli_has_topology(const struct copse_cli_topology *args);

/* As messages name it. */
const char *copse_cli_topology_label(const struct copse_cli_topology *args);

/*
 * Reads it, breaks what is down, then chooses the ranks, whose numbers are those before anything
 * broke. Notes go to copse_cli_notes. The caller releases *out.
 */
copse_status copse_cli_load_topology(const struct copse_cli_topology *args,
                                     struct copse_topology **out,
                                     struct copse_err *err) COPSE_CHECKED;
/* The same, and with faults given the topology before they are applied (same choice of ranks) as
 * *healthy, else NULL. */
copse_status copse_cli_load_topologies(const struct copse_cli_topology *args,
                                       struct copse_topology **out,
                                       struct copse_topology **healthy,
                                       struct copse_err *err) COPSE_CHECKED;

/* The two steps of it: as the file has it; and the choice of ranks from `whole` after these faults
 * (the arguments' own are not looked at). The caller releases *out. */
copse_status copse_cli_load_whole(const struct copse_cli_topology *args,
                                  struct copse_topology **out, struct copse_err *err) COPSE_CHECKED;
copse_status copse_cli_change_topology(const struct copse_cli_topology *args,
                                       const struct copse_topology *whole,
                                       const struct copse_fault *faults, int n_faults,
                                       struct copse_topology **out,
                                       struct copse_err *err) COPSE_CHECKED;

/*
 * The catalogue's folders, NULL-terminated: $COPSE_TOPOLOGIES alone if it is set; else
 * share/copse/topologies where copse is installed, and topologies/ of the source where it was
 * built. Owned by the function; found once.
 */
const char *const *copse_cli_catalogue(void);

#endif
