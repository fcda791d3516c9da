/* Inside src/codegen only: an MSCCL++ execution plan as its loader sees it, all names resolved
 * to what they stand for. It shares nothing with what writes such files. */
#pragma once

#include "base/types.h"
#include "base/memory.h"
#include "codegen/check/cells.h"

enum { COPSE_PJ_MAX_IDS = 16, COPSE_PJ_MAX_PLACES = 10, COPSE_PJ_MAX_OPS = 64 };

enum copse_pj_kind {
  COPSE_PJ_NOP,
  COPSE_PJ_SYNC, /* signal, wait and their relaxed forms */
  COPSE_PJ_FLUSH,
  COPSE_PJ_BARRIER,
  COPSE_PJ_ACQUIRE,
  COPSE_PJ_RELEASE,
  COPSE_PJ_PIPELINE,
  COPSE_PJ_MOVE,    /* dst[i] = src[i] */
  COPSE_PJ_SUM,     /* all dst = the sum of all src */
  COPSE_PJ_MULTIMEM /* the sum over a switch's members, or one chunk, to all of them */
};

enum copse_pj_channel { COPSE_PJ_MEMORY, COPSE_PJ_PORT, COPSE_PJ_SWITCH, COPSE_PJ_NONE };

/* What an op's name means. */
struct copse_pj_type {
  const char *name;
  enum copse_pj_kind kind;
  bool waits, relaxed;   /* of a sync */
  bool pkt_src, pkt_dst; /* all sources but the first of several, destinations ... */
  bool signals;          /* after a put through a port */
  bool gets;             /* reads a peer's */
};

/* Chunks of one rank's memory, or of all members of a switch channel. */
struct copse_pj_place {
  int rank; /* -1: of the members */
  const int *members;
  int n_members;
  enum copse_buffer_letter letter;
  int index, size;
};

struct copse_pj_op {
  const struct copse_pj_type *type;
  enum copse_pj_channel channel;
  int ends[COPSE_PJ_MAX_IDS]; /* channel ends; of acquire and release: semaphores */
  int n_ends;
  struct copse_pj_place src[COPSE_PJ_MAX_PLACES], dst[COPSE_PJ_MAX_PLACES];
  int n_src, n_dst;
  int part, parts; /* tbg_info; 0 of 1 */
  int barrier, barrier_blocks;
  int64_t unit; /* pipeline: bytes, chunks, and how many of the next ops it runs */
  int unit_chunks, n_inner;
  long line;
};

struct copse_pj_block {
  int rank, id;
  struct copse_pj_op *ops;
  int n_ops;
};

/* One rank's end of a channel; the partner may be an end that nobody declared (-1). */
struct copse_pj_end {
  int rank, peer, partner;
  enum copse_pj_channel type;
};

struct copse_pj_file {
  const char *label;
  char name[64];
  copse_collective collective;
  bool in_place, low_latency, double_scratch;
  int n_ranks, chunks, block;
  int64_t
      unit_bytes; /* the smallest chunk of which some pipeline's unit is a whole; 0: no pipelines */
  int *scratch;   /* [n_ranks] */
  int n_blocks, *first_block; /* [n_ranks + 1] */
  struct copse_pj_block *blocks;
  int n_ends;
  struct copse_pj_end *ends;
  int n_semaphores, *semaphores; /* initial values, of all ranks */
  int n_ops;
  struct copse_arena arena;
};

/* A list of numbers that grows in an arena. */
struct copse_pj_ints {
  int *v, n;
  size_t capacity;
};
static inline copse_status copse_pj_ints_add(struct copse_arena *arena, struct copse_pj_ints *list,
                                             int v, struct copse_err *err) {
  return COPSE_PUSH_IN(arena, list->v, list->n, list->capacity, err, v);
}

/* Parses a plan. COPSE_BAD_INPUT for a file that is no such plan, COPSE_REFUTED for a plan that the
 * executor can't run or that names parts that it lacks, COPSE_UNSUPPORTED for collectives without a
 * known result. The plan ends with its arena, also after a failure. */
copse_status copse_pj_parse(const char *label, const char *data, size_t size,
                            struct copse_pj_file *out, struct copse_err *err) COPSE_CHECKED;
