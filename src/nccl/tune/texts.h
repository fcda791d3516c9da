/* The texts of the folder that copse tune writes: what a job sources, and what a reader reads. */
#pragma once

#include <stdbool.h>

#include "base/text.h"
#include "nccl/judge.h"
#include "nccl/model.h"

/* An allreduce of large messages, busbw in GB/s by the loads of links; 0: not known. */
struct copse_tune_figure {
  const char *collective;
  const char *algorithm; /* of ours */
  double ours, bound;    /* bound: proved of the kind of channels that ours are */
  const char *theirs_algorithm;
  double theirs;
};

/* What NCCL's model takes for an allreduce of so many bytes, with the graphs that are written. */
struct copse_tune_time {
  uint64_t bytes;
  const char *algorithm, *protocol; /* the table's words */
  double us;
};

struct copse_tune_facts {
  const char *topology, *folder; /* the folder's own path, absolute */
  const char *version_text;      /* of copse */
  bool rccl;
  long version;                  /* the oldest NCCL that reads graph.xml: 23007 */
  int hosts, gpus, channels;     /* GPUs of a host, of the first kind */
  int n_groups;                  /* hosts of so many kinds; each has a graph */
  const int *group_of;           /* [hosts] */
  bool even, same_nics;          /* all hosts have as many GPUs; as many NICs */
  int joined;                    /* channels of a communicator of all hosts */
  double ring_busbw, tree_busbw; /* of an allreduce, by links */
  const struct copse_tune_figure *figures;
  int n_figures;
  const struct copse_tune_time *times;
  int n_times; /* 0: of RCCL, or the model has none */
  bool has_theirs; /* NCCL's own graph was given */
  /* files */
  bool has_topo, topo_is_real, has_plugin, has_table, has_hostfile, domain;
  const char *calls;              /* of the table: "allreduce, broadcast" */
  const char *no_topo, *no_table; /* why not */
  int64_t hops_given, hops_best;  /* of the hostfile */
  const char *const *rings;       /* [n_groups] RCCL's; NULL: none */
  const char *trees;              /* and for all */
};

/* The file with a group's graph: graph.xml, graph-1.xml, .. */
#define COPSE_TUNE_NAME 24
void copse_tune_graph_name(int group, char name[COPSE_TUNE_NAME]);

/* Adds the figures as items of a JSON list. */
void copse_tune_write_figures_json(const struct copse_tune_facts *facts, struct copse_text *out);

/* For 1 KiB to 1 GiB in steps of four; how many the model has. */
#define COPSE_TUNE_TIMES 11
int copse_tune_find_times(const struct copse_nccl_model *model,
                          struct copse_tune_time times[COPSE_TUNE_TIMES]);
/* Adds them, nothing where there are none. */
enum copse_tune_times_form {
  COPSE_TUNE_TIMES_TABLE,
  COPSE_TUNE_TIMES_MARKDOWN,
  COPSE_TUNE_TIMES_JSON
};
void copse_tune_write_times(const struct copse_tune_facts *facts, enum copse_tune_times_form form,
                            struct copse_text *out);

/* Writes env.sh, for any POSIX shell. */
void copse_tune_write_env(const struct copse_tune_facts *facts, struct copse_text *out);
/* Writes README, in Markdown. */
void copse_tune_write_readme(const struct copse_tune_facts *facts, struct copse_text *out);

/* ---- RCCL's own variables (ROCm/rccl src/graph/rome_models.cc, 2.21 to 2.30) ---- */

/*
 * Writes "N0 0 2 3 1 N1|N1 1 3 2 0 N0": a ring of GPUs for each channel, by their indexes, between
 * the NICs where there are several hosts. Odd hosts run a list backwards. COPSE_UNSUPPORTED where
 * graphs have no rings, or GPUs or NICs of several systems.
 */
copse_status copse_rccl_rings(const struct copse_nccl_graphs *graphs, int hosts,
                              struct copse_text *out, struct copse_err *err) COPSE_CHECKED;

/*
 * Writes "(0(1(2))(3))|..": a tree of the communicator's ranks for each channel, the first
 * `channels` of `joined`. COPSE_UNSUPPORTED where they have no trees or are deeper than 4,096.
 */
copse_status copse_rccl_trees(const struct copse_nccl_joined *joined, int channels,
                              struct copse_text *out, struct copse_err *err) COPSE_CHECKED;
