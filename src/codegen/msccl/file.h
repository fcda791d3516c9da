/* Inside src/codegen and the simulator: an MSCCL XML file as its executors' parsers see it, and the
 * operations that they run. It shares nothing with what writes such files. */
#pragma once

#include "base/types.h"
#include "base/memory.h"
#include "codegen/check/cells.h"

enum copse_mx_op {
  COPSE_MX_S,
  COPSE_MX_R,
  COPSE_MX_RCS,
  COPSE_MX_RRS,
  COPSE_MX_RRC,
  COPSE_MX_RRCS,
  COPSE_MX_CPY,
  COPSE_MX_RE,
  COPSE_MX_NOP,
  COPSE_N_MX_OPS
};

/* What each type does and which of its offsets it uses. */
struct copse_mx_type {
  const char *name;
  bool sends, receives, reads_src, writes_dst;
  bool adds;    /* what is received (or in dst) and src */
  bool on_rccl; /* RCCL has a kernel for it */
};
extern const struct copse_mx_type copse_mx_types[COPSE_N_MX_OPS];

struct copse_mx_place {
  enum copse_buffer_letter letter;
  int offset;
};

struct copse_mx_step {
  enum copse_mx_op op;
  struct copse_mx_place src, dst;
  int count;
  int dep_tb, dep_step; /* -1: none */
  bool published;
  long line;
};

/* Another thread block's operation that must have been published. */
struct copse_mx_wait {
  int tb, op; /* index into the file's tbs, of the op there */
  int step;   /* the step that asks, for messages */
};

/* A real step with the waits of the nops before it, or several `re` that run as one. */
struct copse_mx_run_op {
  const struct copse_mx_step *step; /* [n_steps] consecutive */
  int n_steps, first;               /* first: number of `step` in the file */
  int number;                       /* what is published when it is done */
  bool published;
  struct copse_mx_wait *waits;
  int n_waits;
  int waiters; /* ops that wait for this one */
};

struct copse_mx_tb {
  int gpu, id;
  int send, recv, channel; /* peers: -1 for none */
  struct copse_mx_step *steps;
  int n_steps;
  long line;
  struct copse_mx_run_op *ops; /* these by copse_mx_fold */
  int n_ops;
  int in, out; /* connections, -1: none */
};

struct copse_mx_gpu {
  int declared[COPSE_N_LETTERS]; /* i_chunks, o_chunks, s_chunks */
  struct copse_mx_tb *tbs;       /* [n_tbs] by id */
  int n_tbs;
  long line;
};

struct copse_mx_connection {
  int sender, receiver; /* indices into the file's tbs */
};

enum copse_mx_protocol { COPSE_MX_SIMPLE, COPSE_MX_LL, COPSE_MX_LL128 };

struct copse_mx_file {
  const char *label;
  const char *name;
  copse_collective collective;
  enum copse_mx_protocol protocol;
  int n_channels, chunks, n_ranks;
  int block; /* chunks of a rank's part: chunks / n_ranks, or chunks where there are no parts */
  bool in_place, out_of_place;
  int64_t min_bytes, max_bytes; /* max 0: no bound */
  const char *missing;          /* a required attribute that only older MSCCL went without */
  struct copse_mx_gpu *gpus;    /* [n_ranks] by id */
  long line;
  struct copse_mx_tb *tbs; /* [n_tbs] of all GPUs; set by copse_mx_fold, as are the members below */
  int n_tbs;
  struct copse_mx_connection *connections;
  int n_connections;
  bool on_rccl;
  struct copse_arena arena;
};

/* Reads and checks what the executors' parsers check, and what they should: COPSE_BAD_INPUT for
 * a file that is no such XML, COPSE_REFUTED for numbers out of range of what they name. The file
 * ends with its arena, also after a failure. */
copse_status copse_mx_parse(const char *label, const char *data, size_t size,
                            struct copse_mx_file *out, struct copse_err *err) COPSE_CHECKED;

/* Turns steps into operations: folds, fuses, resolves waits, pairs connections; COPSE_REFUTED for
 * what can't be run. O(steps^2 of a block). */
copse_status copse_mx_fold(struct copse_mx_file *file, struct copse_err *err) COPSE_CHECKED;

/* Returns COPSE_REFUTED: "gpu 3 tb 1 step 7 (rrc) ...". */
copse_status copse_mx_refute(const struct copse_mx_file *file, const struct copse_mx_tb *tb,
                             int step, struct copse_err *err, const char *what, ...)
    __attribute__((format(printf, 5, 6)));
