/* How every command takes its topology: a file or name, or a synthetic line, and how to read it;
 * and the costs of predictions, given or measured. */
#pragma once

#include "cli/cli.h"
#include "cli/options.h"
#include "topology/modify.h"
#include "topology/input/profile.h"
#include "predict/calibrate.h"
#include "predict/predict.h"

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

/* The tables of how it is read and of what may be changed of it, and the same as the last sections
 * of a command that has a struct copse_cli_topology as `member`. */
extern const struct copse_option copse_cli_topology_options[], copse_cli_choice_options[],
    copse_cli_fault_options[];
extern const char copse_cli_topology_intro[], copse_cli_choice_intro[];
#define COPSE_CLI_TOPOLOGY_SECTION(struct_type, member)                                           \
  {                                                                                               \
    .title = "Topology options", .about = copse_cli_topology_intro, .shared = true,               \
    .of_inputs = true, .options = copse_cli_topology_options, .at = offsetof(struct_type, member) \
  }
#define COPSE_CLI_FAULT_SECTION(struct_type, member)                                          \
  {                                                                                           \
    .title = "Parts down or slower", .shared = true, .of_inputs = true,                       \
    .options = copse_cli_fault_options, .at = offsetof(struct_type, member)                   \
  }
/* All three, and that of ranks. A command with a --ranks of its own has the others alone. */
#define COPSE_CLI_TOPOLOGY_SECTIONS(struct_type, member)                                    \
  COPSE_CLI_TOPOLOGY_SECTION(struct_type, member),                                          \
      {                                                                                     \
    .title = "Ranks of the topology", .about = copse_cli_choice_intro, .shared = true,      \
    .of_inputs = true, .options = copse_cli_choice_options, .at = offsetof(struct_type, member) \
  },                                                                                        \
      COPSE_CLI_FAULT_SECTION(struct_type, member)

/* What predictions count beside links. */
struct copse_cli_costs {
  double alpha_us, message_us, reduce_GBps, duplex; /* < 0: not given */
  bool alpha_occupies;
};
#define COPSE_CLI_COSTS_INIT \
  { -1, -1, -1, -1, false }
extern const struct copse_option copse_cli_costs_options[];
extern const char copse_cli_costs_intro[];
#define COPSE_CLI_COSTS_SECTION(struct_type, member)                                 \
  {                                                                                  \
    .title = "Costs of predictions", .about = copse_cli_costs_intro, .shared = true, \
    .options = copse_cli_costs_options, .at = offsetof(struct_type, member)          \
  }

/* Sets costs: the defaults, then those of the profile, then those of options. */
copse_status copse_cli_costs(const struct copse_cli_topology *args,
                             const struct copse_cli_costs *costs, struct copse_predict_options *out,
                             struct copse_err *err) COPSE_CHECKED;

/* ---- a profile from measured times ---- */

/* --write-profile: where to, the topology of the plan, and what was measured. */
struct copse_cli_profile {
  const char *write; /* NULL: none is written */
  struct copse_cli_topology topology;
  struct copse_topology *read, *whole;
  double bytes[COPSE_CALIBRATED_SIZES], us[COPSE_CALIBRATED_SIZES];
  int n;
};
extern const struct copse_option copse_cli_profile_options[];
extern const char copse_cli_profile_after[];
#define COPSE_CLI_PROFILE_SECTIONS(struct_type, member) \
  {.title = "A profile of the machine",                 \
   .options = copse_cli_profile_options,                \
   .after = copse_cli_profile_after,                    \
   .at = offsetof(struct_type, member)},                \
      COPSE_CLI_TOPOLOGY_SECTIONS(struct_type, member.topology)

/* Reads the topology, before anything is measured, and notes where the plan of `path` was made for
 * another. COPSE_INVALID for one of other ranks. */
copse_status copse_cli_profile_begin(struct copse_cli_profile *profile, const char *path,
                                     const struct copse_plan *plan,
                                     struct copse_err *err) COPSE_CHECKED;
/* Adds a measured time; sizes in ascending order, COPSE_CALIBRATED_SIZES at most. */
void copse_cli_profile_add(struct copse_cli_profile *profile, uint64_t bytes, double us);
/* Fits the costs, writes the profile and says how well it does: on standard output, or as a member
 * of `json`. by: "backend cuda, 8 NVIDIA H200". Errors as copse_calibrate, and COPSE_IO. */
copse_status copse_cli_profile_write(const struct copse_cli_profile *profile, const char *path,
                                     const struct copse_plan *plan, const char *by,
                                     struct copse_text *json, struct copse_err *err) COPSE_CHECKED;
void copse_cli_profile_end(struct copse_cli_profile *profile);

/* Graph dumps of NCCL, one for all hosts or one for each kind of them: --nccl, once or more. */
#define COPSE_CLI_MAX_NCCL 64
struct copse_cli_nccl {
  const char *paths[COPSE_CLI_MAX_NCCL];
  int n;
};
int copse_cli_take_nccl(struct copse_cli_nccl *nccl, const char *command, const char *path);

struct copse_cli_nccl_graphs {
  struct copse_nccl_graphs of[COPSE_CLI_MAX_NCCL];
  int n;
  const char *label; /* of the files, in messages */
};
void copse_cli_nccl_free(struct copse_cli_nccl_graphs *graphs);

/* Reads them; `predict` (or NULL) then has their rings as the baseline "nccl". The caller frees
 * *graphs, which must stay as long as the options, whatever the outcome. */
copse_status copse_cli_load_nccl(const struct copse_cli_nccl *nccl,
                                 struct copse_cli_nccl_graphs *graphs,
                                 struct copse_predict_options *predict,
                                 struct copse_err *err) COPSE_CHECKED;

/* Makes of *topology, which has one host, so many like it on a network without bottlenecks:
 * --hosts. 0, or as many as it has: as it is. COPSE_INVALID where it has several. */
copse_status copse_cli_repeat_host(struct copse_topology **topology, int hosts,
                                   struct copse_err *err) COPSE_CHECKED;

/* Parses "1%", "0.5 %", "333/10%" or a fraction "0.01"; not negative. */
bool copse_cli_parse_part(const char *text, struct copse_q *out);

/* Whether a topology is given, as a path or a line; both is COPSE_INVALID. */
bool copse_cli_has_topology(const struct copse_cli_topology *args);

/* Takes the topology from the arguments left, where it stands alone. Returns 0, or the exit status
 * after the error was printed. */
int copse_cli_take_topology(struct copse_cli_topology *args, const char *command, int n_left,
                            char *const *left);

/* Adds the arguments with which another command reads the same topology, as a shell takes them:
 * file or line, --links, --nvlink-switch, --gpu, --profile, and --nccl-version. */
void copse_cli_topology_words(const struct copse_cli_topology *args, struct copse_text *text);

/* Returns how messages name the topology. */
const char *copse_cli_topology_label(const struct copse_cli_topology *args);

/*
 * Loads the topology: reads it, applies the faults, then chooses the ranks, which are named by
 * their numbers before the faults. With faults *healthy is the topology without them (same choice
 * of ranks), else NULL. Notes go to copse_cli_notes. The caller releases both, whatever the
 * outcome.
 */
copse_status copse_cli_load_topology(const struct copse_cli_topology *args,
                                     struct copse_topology **out, struct copse_topology **healthy,
                                     struct copse_err *err) COPSE_CHECKED;
/* Loads it for w->schedule, which was read from `file`, with its ranks; a note says what use is
 * made of it where it is another than the schedule's. */
copse_status copse_cli_load_for(const struct copse_cli_topology *args, const char *file,
                                const char *use, struct copse_cli_work *w) COPSE_CHECKED;
/* Loads the one that w->schedule names, with its ranks, and the parts down or slower that the name
 * says. w->topology stays NULL where there are more ranks than `most`, or it isn't known;
 * w->unnamed says why. */
void copse_cli_load_named(int most, struct copse_cli_work *w);

/* Finds what the messages of w->plan, or of the MSCCL++ program w->made, load on the fabric's own
 * routes, which they take, as w->columns[0], w->n_columns 1; and notes by how much that is more
 * than the schedule does, with `more` added ("" or "; .."), or that there is no topology to compare
 * it on, and why. */
copse_status copse_cli_compare_routes(const struct copse_cli_topology *args, const char *file,
                                      const char *more, struct copse_cli_work *w) COPSE_CHECKED;
/* Notes it of columns that are there. */
void copse_cli_note_routes(const struct copse_cli_work *w, const char *more);
/* Adds a member `"routes": {..}` of a JSON object with the factor and the link, null where it was
 * not compared. */
void copse_cli_add_routes(struct copse_cli_work *w);

/* Does one of the two steps of it: loads the topology as the file has it; copse_cli_change_topology
 * makes the choice of ranks from `whole` after these faults (the arguments' own are not looked at).
 * The caller releases *out. */
copse_status copse_cli_load_whole(const struct copse_cli_topology *args,
                                  struct copse_topology **out, struct copse_err *err) COPSE_CHECKED;
copse_status copse_cli_change_topology(const struct copse_cli_topology *args,
                                       const struct copse_topology *whole,
                                       const struct copse_fault *faults, int n_faults,
                                       struct copse_topology **out,
                                       struct copse_err *err) COPSE_CHECKED;

/*
 * Adds the options that make the topology `made_for` of the one called `given`, where its name
 * says that (modify.c): "a100-x2 without h0.nic3, with h1.nic0 at 50%" is a100-x2 with --down
 * h0.nic3 and --derate h1.nic0=50%. Adds nothing where the name is another, or NULL.
 */
void copse_cli_faults_between(const char *made_for, const char *given, struct copse_text *out);

/* What a note says of a file that was made for another topology than the one given: the options
 * that are missing or too many, or the name or what --profile changes, if that is all; made_for:
 * the name that the file has, or NULL, and sha256 its checksum. */
#define COPSE_CLI_OTHER_TEXT 1024
const char *copse_cli_other_topology(const struct copse_cli_topology *args, const char *file,
                                     const char *made_for, const char *sha256,
                                     const struct copse_topology *given,
                                     char text[COPSE_CLI_OTHER_TEXT]);

/* Fails with COPSE_BAD_INPUT for a schedule that was made for another cluster: neither for `whole`
 * nor for it with parts down. */
copse_status copse_cli_check_made_for(const struct copse_topology *whole, const char *file,
                                      const struct copse_schedule *s,
                                      struct copse_err *err) COPSE_CHECKED;

/*
 * Returns the catalogue's folders, NULL-terminated: $COPSE_TOPOLOGIES alone if it is set; else
 * share/copse/topologies where copse is installed, and topologies/ of the source where it was
 * built. Owned by the function; found once.
 */
const char *const *copse_cli_catalogue(void);
