/*
 * What `copse audit` says: what a fabric can do, what NCCL's graphs can do on it, what was
 * measured, and the causes of the gaps, each with its evidence and what mends it. Nothing without a
 * number.
 */
#pragma once

#include <math.h>

#include "base/types.h"
#include "nccl/best.h"
#include "nccl/calls.h"
#include "nccl/from_log.h"
#include "nccl/judge.h"
#include "nccl/log.h"
#include "nccl/reports.h"
#include "topology/input/profile.h"

/* What no schedule beats, as copse_solve_schedule proves it. */
struct copse_audit_bound {
  copse_collective collective;
  const struct copse_topology *topology; /* the cut's, of the same ranks */
  struct copse_q time;                   /* s/GB */
  const int *cut; /* [n_cut] nodes of the topology; of n_cuts the one of most weight */
  int n_cut, n_cuts;
  bool into; /* what must get into the cut counts, not what must get out */
  const int *guessed; /* [n_guessed] links of the cut whose bandwidth nobody stated or measured */
  int n_guessed;
};

/* What could not be judged, and the command that makes the file. */
struct copse_audit_gap {
  const char *what, *command;
};

struct copse_audit_input {
  const char *topology_path; /* as commands name it */
  const char *tune;          /* the command that makes files for these hosts, graphs, version */
  int nccl_version;          /* 22203 for 2.22.3, whose forms of variables mends have */
  const struct copse_topology *topology; /* the machine's, with all links that NCCL sees */
  struct copse_nccl_machine *machine;
  struct copse_nccl_judge *judge;     /* NULL: no graph is known */
  const struct copse_nccl_best *best; /* what NCCL could run at best here; NULL: not found */
  const char *const *remarks;         /* [n_remarks] of readers on what NCCL misreads */
  int n_remarks;
  const struct copse_audit_bound *bounds;
  int n_bounds;
  const struct copse_nccl_log *log;  /* this and the pointers below: NULL where there is none */
  const struct copse_log_comm *comm; /* the log's communicator of these ranks */
  int channels_differ;               /* channels whose rings in the log differ from the graphs' */
  const struct copse_tests *tests;   /* [n_tests] */
  int n_tests;
  const struct copse_calls *calls;
  const struct copse_ras *ras;
  const struct copse_nvbandwidth *nvbandwidth;
  const struct copse_audit_gap *doubts; /* [n_doubts] about the files */
  int n_doubts;
  bool repeated; /* the topology is of one host, repeated on a network without a bottleneck */
};

/* One collective; figures are bus bandwidth in GB/s, NAN where not known. */
struct copse_audit_row {
  copse_collective collective;
  double bound, nccl, measured;
  int64_t bytes;                      /* of the message that was measured fastest */
  double links, stated;               /* what makes `nccl`: NAN where not known */
  enum copse_nccl_graph_id algorithm; /* of `nccl` */
  const char *cut;                    /* of `bound` in words, or NULL */
  const char *how;                    /* of `nccl` in words, or NULL */
};

/* The step between bound and measurement that a finding explains. Findings of one step are causes
 * of one loss, which counts once:
 *
 *   bound |- BOUND -| best rings, trees |- LINKS -| links of NCCL's |- STATED -| NCCL |- MEASURED
 * -|
 */
enum copse_audit_step {
  COPSE_STEP_OWN, /* each finding's loss is its own, or it has none */
  COPSE_STEP_BOUND,
  COPSE_STEP_LINKS,
  COPSE_STEP_STATED,
  COPSE_STEP_MEASURED
};

struct copse_audit_finding {
  const char *what, *evidence, *mend;
  enum copse_audit_step step;
  double share; /* of the bound that it costs, 0 to 1: findings are in falling order */
  double cost;  /* the same as bus bandwidth, GB/s */
  int within;   /* an earlier finding that explains the same loss; -1: none */
};

struct copse_audit {
  const char *headline; /* "pcie-8-2s-skl: 8 GPUs on 1 host, 4 NICs" */
  int n_rows, n_findings, n_gaps, n_notes;
  struct copse_audit_row rows[COPSE_ALLTOALL];
  struct copse_audit_finding *findings;
  struct copse_audit_gap *gaps;
  const char **notes; /* what else is known of the first row */
  size_t finding_capacity, gap_capacity, note_capacity;
  struct copse_arena arena;
};

/* Makes an audit; the caller frees *out with copse_audit_free, whatever the outcome.
 * COPSE_OVERFLOW, COPSE_NOMEM, and what copse_nccl_judge returns. */
copse_status copse_audit_make(const struct copse_audit_input *input, struct copse_audit *out,
                              struct copse_err *err) COPSE_CHECKED;
static inline void copse_audit_free(struct copse_audit *audit) {
  copse_arena_free(&audit->arena);
  *audit = (struct copse_audit){0};
}

/* ---- for those who look for causes ------------------------------------------------------- */

/* Returns the bus bandwidth in GB/s of a time in s/GB; NAN where there is none. */
static inline double copse_audit_busbw(const struct copse_topology *t, copse_collective collective,
                                       struct copse_q time) {
  if (time.num <= 0) return NAN;
  return copse_collective_bus_factor(collective, t->n_ranks) / copse_q_to_double(time);
}

/* Adds a finding; the texts are in the audit's arena (NULL: memory ran out). */
copse_status copse_audit_add(struct copse_audit *audit, enum copse_audit_step step, double share,
                             const char *what, const char *evidence, const char *mend,
                             struct copse_err *err) COPSE_CHECKED;
/* Returns copse_link_words, and what its bandwidth rests on where that is a guess; NULL: memory ran
 * out. */
const char *copse_audit_link(const struct copse_audit_input *input, struct copse_audit *audit,
                             int link);

/* Finds the causes that logs and measurements show (causes_measured.c). */
copse_status copse_audit_measured_causes(const struct copse_audit_input *input,
                                         struct copse_audit *audit,
                                         struct copse_err *err) COPSE_CHECKED;
