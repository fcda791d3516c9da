/*
 * Inside codegen/mscclpp: an MSCCL++ plan while it grows: blocks of operations, and the channels
 * and remote buffers that they name. The first failure is kept in `status`; what is added after it
 * is lost.
 */
#ifndef COPSE_CODEGEN_MSCCLPP_PLAN_H
#define COPSE_CODEGEN_MSCCLPP_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"

/* What the executor takes. */
enum {
  COPSE_PP_MAX_OPS = 64,
  COPSE_PP_MAX_IDS = 8,      /* channels of an op, remote places of an op */
  COPSE_PP_MAX_SOURCES = 10, /* of an op */
  COPSE_PP_MAX_CHANNELS = 16,
  COPSE_PP_MAX_REMOTES = 16
};

/* Chunks of a rank's memory: 'i', 'o' or 's'. */
struct copse_pp_place {
  int rank;
  char buffer;
  int index;
};

/* A peer's buffer that a block addresses. */
struct copse_pp_remote {
  int peer;
  char buffer;
};

struct copse_pp_block {
  int *peers; /* [n_peers] one channel each */
  int n_peers;
  size_t peers_capacity;
  struct copse_pp_remote *remotes;
  int n_remotes;
  size_t remotes_capacity;
  struct copse_text ops;
  int n_ops;
  bool met;        /* the last op was a nop: all threads have met since any data op */
  bool listed;     /* the list at hand, of the block or of a pipeline, has an op */
  int loop_chunks; /* of a pipeline that starts with the next op, 0: none does */
  int64_t loop_bytes;
  bool in_loop;
};

struct copse_pp_plan {
  int n_ranks, n_blocks;         /* blocks of each rank */
  const int *host;               /* [n_ranks] */
  struct copse_pp_block *blocks; /* [n_ranks * n_blocks] */
  int *scratch;                  /* [n_ranks] chunks taken */
  copse_status status;           /* of the first failure */
  struct copse_err *err;
};

copse_status copse_pp_start(struct copse_pp_plan *p, int n_ranks, int n_blocks, const int *host,
                            struct copse_err *err) COPSE_CHECKED;
void copse_pp_free(struct copse_pp_plan *p);

/* Ranks a and b have a channel in their blocks of that number. */
void copse_pp_link(struct copse_pp_plan *p, int block, int a, int b);

bool copse_pp_same_host(const struct copse_pp_plan *p, int a, int b);
struct copse_pp_place copse_pp_scratch(struct copse_pp_plan *p, int rank, int count);

/* What is added until the end runs once for every `bytes` of `chunks` chunks. */
void copse_pp_loop(struct copse_pp_plan *p, int rank, int block, int64_t bytes, int chunks);
void copse_pp_end_loop(struct copse_pp_plan *p, int rank, int block);

/* Each adds to a rank's block; `count` chunks. */
void copse_pp_meet(struct copse_pp_plan *p, int rank, int block); /* a nop, where none is yet */
/* signal, wait, rlxsignal or rlxwait with peers, by the kind of their channels. */
void copse_pp_sync(struct copse_pp_plan *p, int rank, int block, const char *name, const int *peers,
                   int n_peers);
/* copy, put, pws, re or res: the first destination of `res` is the rank's own. */
void copse_pp_data(struct copse_pp_plan *p, int rank, int block, const char *name,
                   const struct copse_pp_place *src, int n_src, const struct copse_pp_place *dst,
                   int n_dst, int count);

/* COPSE_NOMEM if anything added failed. */
copse_status copse_pp_status(const struct copse_pp_plan *p) COPSE_CHECKED;

/* The members "channels", "remote_buffers" and "threadblocks" of a rank. */
void copse_pp_write_rank(const struct copse_pp_plan *p, int rank, struct copse_text *text);

#endif
