/* The texts of the folder that copse tune writes: what a job sources, and what a reader is told. */
#ifndef COPSE_NCCL_TUNE_TEXTS_H
#define COPSE_NCCL_TUNE_TEXTS_H

#include <stdbool.h>

#include "base/text.h"

/* An allreduce of large messages, busbw in GB/s by the loads of links; 0: not known. */
struct copse_tune_figure {
  const char *collective;
  const char *algorithm; /* of ours */
  double ours, bound;    /* bound: proved of the kind of channels that ours are */
  const char *theirs_algorithm;
  double theirs;
};

struct copse_tune_facts {
  const char *topology, *folder; /* the folder's own path, absolute */
  const char *version_text;      /* of copse */
  bool rccl;
  long version; /* of NCCL: 23007 */
  int hosts, gpus, channels;
  double ring_busbw, tree_busbw; /* of an allreduce, by links */
  const struct copse_tune_figure *figures;
  int n_figures;
  bool has_theirs; /* NCCL's own graph was given */
  /* files */
  bool has_topo, topo_is_real, has_plugin, has_table, has_hostfile, domain;
  const char *no_topo, *no_table; /* why not */
  int64_t hops_given, hops_best;  /* of the hostfile */
  const char *rings, *trees;      /* RCCL's */
};

/* env.sh, for any POSIX shell. */
void copse_tune_write_env(const struct copse_tune_facts *facts, struct copse_text *out);
/* README, in Markdown. */
void copse_tune_write_readme(const struct copse_tune_facts *facts, struct copse_text *out);

#endif
