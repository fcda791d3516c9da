/*
 * Inside codegen/msccl: an MSCCL program while it grows. A program is a list of thread
 * blocks, each with one peer to send to, one to receive from and a list of steps. Connections
 * (source, destination, channel) are queues without tags. The first failure is kept in `status`;
 * what is added after it is lost.
 *
 * Why nothing can deadlock. Steps are added in one global order: run by run, and within one edge by
 * edge, the receive right after its send. Every step needs only steps added before it: its own
 * block's, those it waits for, the sends it receives. A send that finds its queue full waits for
 * receives that stand before it. So the order itself is a schedule that goes through, whatever the
 * blocks are: sharing blocks, merging a send with a receive, or changing channels never has to be
 * thought through again. Fused steps (`rcs`, `rrs`) form a chain that is added without a gap.
 */
#pragma once

#include "codegen/lower/work.h"

/* What the executors take; formats of both, the smaller where they differ. */
enum {
  COPSE_MSCCL_MAX_CHANNELS = 32,
  COPSE_MSCCL_MAX_STEPS = 64,       /* of a thread block, nops included */
  COPSE_MSCCL_MAX_COUNT = 71,       /* chunks of a step */
  COPSE_MSCCL_MAX_CHUNKS = 32767,   /* of a buffer: offsets are int16 */
  COPSE_MSCCL_MAX_CONNECTIONS = 32, /* of a channel, rank and direction */
  COPSE_MSCCL_MAX_NODES = 4095,     /* of a rank: 1 + ngpus + its blocks + its steps */
  COPSE_MSCCL_MAX_DEP_BLOCK = 127,  /* block ids in depid are int8 */
  COPSE_MSCCL_MAX_FUSED = 15        /* re steps that are fused into one */
};

enum copse_msccl_op {
  COPSE_MSCCL_S,
  COPSE_MSCCL_R,
  COPSE_MSCCL_RCS,
  COPSE_MSCCL_RRS,
  COPSE_MSCCL_RRC,
  COPSE_MSCCL_CPY,
  COPSE_MSCCL_RE,
  COPSE_MSCCL_NOP
};

/* A step of a block; block -1: none. */
struct copse_msccl_ref {
  int block, step;
};

/* Chunks of a rank's memory: 'i', 'o' or 's'. */
struct copse_msccl_place {
  char buffer;
  int offset;
};

struct copse_msccl_step {
  enum copse_msccl_op op;
  struct copse_msccl_place src, dst;
  int count;
  struct copse_msccl_ref after; /* of the same rank, another block */
  bool awaited;
};

struct copse_msccl_block {
  int rank, send, recv, channel; /* peers: -1 for none */
  int id;                        /* among the rank's */
  struct copse_msccl_step *steps;
  int n_steps;
  size_t capacity;
};

/* How a program saves blocks, from the fastest to the most sparing way. */
enum copse_msccl_sharing {
  COPSE_MSCCL_SHARE_NONE,     /* sends and receives run at once, in blocks of their own */
  COPSE_MSCCL_SHARE_CHANNELS, /* two ranks use fewer channels the less goes between them */
  COPSE_MSCCL_SHARE_BLOCKS,   /* and a send and a receive of one channel share a block */
  COPSE_MSCCL_SHARE_ALL       /* and two ranks have one connection, if channels have room */
};

/* A limit that a program breaks: what, at which rank, how much it needs (0: more than the limit)
 * and the limit. */
struct copse_msccl_misfit {
  const char *what; /* NULL: none */
  int rank, need, limit;
};

struct copse_msccl_program {
  int n_ranks;
  int first_channel, end_channel; /* the channels to choose from */
  enum copse_msccl_sharing sharing;
  int *shares[2]; /* [n_ranks * n_ranks] from, to: how many channels may be used by sums that go on
                     channels of their own, and by all else */
  int kind;       /* which of the two is being added */
  int max_blocks; /* of a rank */
  struct copse_msccl_misfit misfit; /* the limit at which it ended */
  int n_channels;                   /* in use, once they are renumbered */
  struct copse_msccl_block *blocks;
  int n_blocks;
  size_t capacity;
  struct rank_blocks {
    int *ids; /* indices into blocks */
    int n;
    size_t capacity;
    int scratch; /* chunks taken */
    int connections[2][COPSE_MSCCL_MAX_CHANNELS]; /* receiving, sending blocks */
  } * ranks;     /* [n_ranks] */
  struct copse_arena arena;
  int *load;           /* [n_ranks * n_ranks * COPSE_MSCCL_MAX_CHANNELS] chunks by connection */
  copse_status status; /* of the first failure; COPSE_UNSUPPORTED: a limit of the executors */
  struct copse_err *err;
};

copse_status copse_msccl_program_start(struct copse_msccl_program *p, int n_ranks, int max_blocks,
                                       struct copse_err *err) COPSE_CHECKED;
static inline void copse_msccl_program_free(struct copse_msccl_program *p) {
  copse_arena_free(&p->arena);
  *p = (struct copse_msccl_program){0};
}

/* Finishes when all steps are there: a block for every rank, channels 0, 1, ... without gaps. */
copse_status copse_msccl_finish(struct copse_msccl_program *p) COPSE_CHECKED;

struct copse_msccl_style {
  bool fused;     /* may use rcs, rrs, rrc */
  bool skip_copy; /* in place only: what is its own lies in the output already */
};

/* Adds the steps of all runs of chunks, of at most COPSE_MSCCL_MAX_COUNT each, in one global order
 * (see above); p->status says whether it could. O(runs * ranks * blocks of a rank). */
void copse_msccl_emit(const struct copse_whole_chunks *cut, struct copse_msccl_style style,
                      struct copse_msccl_program *p);
