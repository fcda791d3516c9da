/*
 * Inside src/codegen only: an MSCCL XML file as its executors' parsers see it. It shares
 * nothing with what writes such files.
 */
#ifndef COPSE_CODEGEN_MSCCL_FILE_H
#define COPSE_CODEGEN_MSCCL_FILE_H

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

struct copse_mx_tb {
  int send, recv, channel; /* peers: -1 for none */
  struct copse_mx_step *steps;
  int n_steps;
  long line;
};

struct copse_mx_gpu {
  int declared[COPSE_N_LETTERS]; /* i_chunks, o_chunks, s_chunks */
  struct copse_mx_tb *tbs;       /* [n_tbs] by id */
  int n_tbs;
  long line;
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
  struct copse_arena arena;
};

/*
 * Reads and checks what the executors' parsers check, and what they should: COPSE_BAD_INPUT for
 * a file that is no such XML, COPSE_REFUTED for numbers out of range of what they name.
 */
copse_status copse_mx_parse(const char *label, const char *data, size_t size,
                            struct copse_mx_file *out, struct copse_err *err) COPSE_CHECKED;
void copse_mx_free(struct copse_mx_file *file);

#endif
