/*
 * The native plan: what code generation writes and every executor interprets. This
 * header is a leaf (fixed-width types only) and compiles as C11, C++17 and CUDA C++.
 *
 *   rank 0   worker 0:  SIGNAL first | WAIT | MOVE input -> rank 1's output | SIGNAL ...   for each
 *            worker 1:  ...                                                                 chunk c
 *   rank 1   worker 2:  ...                                                              = 0 .. n-1
 *
 * - Each rank has **workers**; on a GPU a worker is a thread block, and all workers of a rank must
 *   be resident at once. A worker is a list of **operations** that it runs in order, once for every
 *   **chunk** c = 0 .. n_chunks-1 of the message. There are no loops, jumps or sizes in a plan:
 *   n_chunks follows from the message's size at launch, so one plan serves every size and element
 *   type.
 * - MOVE folds its sources (in the order given) and stores the result in every destination (own
 *   rank or a peer). One source and a local destination: a copy. A peer's destination: a put.
 *   Several sources: a reduction. Each source is read once, whatever the number of destinations;
 *   half, bfloat16 and fp8 are summed in float and rounded once per MOVE. Operations are
 *   one-sided and every source lies at the worker's own rank (but for multicast), so an executor
 *   needs nothing but stores to peers' memory and counters.
 * - **Multicast** (NVLink SHARP: multimem.ld_reduce and multimem.st) is a MOVE with a mark. Marked
 *   REDUCE_LOAD its sources are slots of all ranks of a group, its own rank's too, which the switch
 *   adds up on the way; marked GROUP_STORE its destinations are, which the switch copies to. The
 *   ranks ascend, and their slots lie at the same place in each rank's scratch: in a plan with
 * marks all ranks have the same regions in the same order. Executors on shared memory need not know
 * the marks: a MOVE folds in the order of its operands, so in that of the ranks. A switch adds
 * floats in an order of its own, and has only some reductions: gpu/tile.cuh.
 * - A **channel** is a counter that one worker raises (SIGNAL) and one worker waits on (WAIT: the
 *   j-th wait needs the j-th signal). Signals release what the worker wrote before, waits acquire
 *   it. One worker at each end makes proofs finite: whether a wait can pass never depends on the
 *   interleaving.
 * - Each operation has a **when** (enum copse_plan_when): with them every launch leaves every
 *   channel as it found it, for any number of chunks.
 * - A **piece** is a fraction [lo, hi) of a block, exact. At launch a cut falls on floor(count *
 *   fraction), rounded down to 16 bytes within the block (512 where pieces are large); the last cut
 *   is the end. So any count works, pieces may be empty, and every piece is within one unit of its
 *   share. Chunk c of n of a piece is cut the same way.
 * - A **block** is `count` elements of a buffer: an allgather's output and a reduce_scatter's input
 *   have one per rank, an alltoall's input and output both, all other buffers have one. An alltoall
 *   by demand states each block's **extent**, the part of it that there is: blocks are as large as
 *   the largest pair's, and pieces are fractions of the extent.
 * - A **region** is scratch at one rank: `fifo` slots, each as large as a chunk of its piece; chunk
 *   c uses slot c mod fifo. Credits to the writer are ordinary channels. Or it is packets:
 * - The low-latency protocol sends a message as one chunk in packets: 8-byte words of 4 bytes
 *   of data and a 4-byte flag, the number of the launch, stored at once. A reader needs no
 *   signal: it looks until the flag is the present launch's. The SIGNAL and WAIT that belong
 *   to packets stay in the plan, marked IN_DATA: they prove that nobody waits in vain, and
 *   executors that look at flags skip them. A packet region has two copies, used by even and
 *   odd launches (codegen/check/proof.c says why two are enough).
 */
#pragma once

#include <stdint.h>

#define COPSE_PLAN_VERSION 2u
/* Cuts are multiples of this within a block; of the second where the pieces are so large that it
 * makes no difference to their shares: a GPU writes whole lines of memory faster. */
#define COPSE_PLAN_ALIGN_BYTES 16u
#define COPSE_PLAN_WIDE_ALIGN_BYTES 512u
#define COPSE_PLAN_WIDE_PIECE_BYTES (64u << 10)

enum copse_plan_protocol {
  COPSE_PROTOCOL_BANDWIDTH = 0,  /* chunks, stored and then signalled */
  COPSE_PROTOCOL_LOW_LATENCY = 1 /* one chunk; between ranks all data goes in packets */
};

enum copse_plan_op_kind { COPSE_OP_MOVE = 0, COPSE_OP_SIGNAL = 1, COPSE_OP_WAIT = 2 };

/* For which chunks c of n an operation runs; f is the plan's fifo depth. */
enum copse_plan_when {
  COPSE_WHEN_ALWAYS = 0,
  COPSE_WHEN_FIRST = 1,       /* c == 0: the handshake */
  COPSE_WHEN_AFTER_FIFO = 2,  /* c >= f: a slot is used again */
  COPSE_WHEN_BEFORE_FIFO = 3, /* c + f < n: the slot will be used again */
  COPSE_WHEN_LAST = 4         /* c + 1 == n: the last chunk */
};

enum copse_plan_buffer {
  COPSE_BUFFER_INPUT = 0,  /* index: block */
  COPSE_BUFFER_OUTPUT = 1, /* index: block */
  COPSE_BUFFER_SCRATCH = 2, /* index: region of slots */
  COPSE_BUFFER_PACKETS = 3  /* index: region of packets */
};

enum copse_plan_region_kind { COPSE_REGION_SLOTS = 0, COPSE_REGION_PACKETS = 1 };

/* The value is complete after this MOVE: avg divides by the number of ranks here. */
#define COPSE_MOVE_FINAL 1u
/* The sources are slots of a group of ranks; the destinations are. Not in the low-latency protocol.
 */
#define COPSE_MOVE_REDUCE_LOAD 2u
#define COPSE_MOVE_GROUP_STORE 4u
/* SIGNAL, WAIT of the low-latency protocol: the packets themselves show that they came. */
#define COPSE_SYNC_IN_DATA 1u

#define COPSE_MOVE_MAX_OPERANDS 255u /* sources, and likewise destinations */

struct copse_plan_op {
  uint8_t kind;  /* enum copse_plan_op_kind */
  uint8_t when;  /* enum copse_plan_when */
  uint8_t flags; /* MOVE: COPSE_MOVE_*; SIGNAL, WAIT: COPSE_SYNC_IN_DATA */
  uint8_t n_src; /* MOVE: >= 1 */
  uint8_t n_dst; /* MOVE: >= 1 */
  uint8_t zero[3];
  uint32_t piece;   /* MOVE: the piece that all operands are a chunk of */
  uint32_t operand; /* MOVE: first operand: the sources, then the destinations */
  uint32_t channel; /* SIGNAL, WAIT */
};

struct copse_plan_operand {
  uint32_t rank;   /* whose memory; a source is the worker's own rank, but in a REDUCE_LOAD */
  uint32_t buffer; /* enum copse_plan_buffer */
  uint32_t index;  /* block or region */
};

/* [lo, hi) as fractions of what a block holds: 0 <= lo <= hi <= 1, denominators > 0. */
struct copse_plan_piece {
  int64_t lo_num, lo_den;
  int64_t hi_num, hi_den;
  uint32_t pair; /* alltoall: 1 + i * n_ranks + j, a piece of the block from i to j; else 0 */
  uint32_t zero;
};

/* An alltoall by demand: how much of the block from rank i to rank j there is, extent i *
 * n_ranks + j, as a fraction of `count`: its first floor(count * num / den) elements. The
 * rest of the block is neither read nor written. (Counts given at launch do the same.) */
struct copse_plan_extent {
  int64_t num, den;
};

struct copse_plan_region {
  uint32_t rank;
  uint32_t piece;
  uint32_t kind; /* enum copse_plan_region_kind */
};

/* Workers are numbered over the whole plan. */
struct copse_plan_channel {
  uint32_t src_worker; /* the only worker that signals */
  uint32_t dst_worker; /* the only worker that waits */
};

struct copse_plan_worker {
  uint32_t rank;
  uint32_t first_op, n_ops;
};

struct copse_plan_rank {
  uint32_t first_worker, n_workers;
};

/* The file: this header, the tables in the order of the counts, the name, and the
 * SHA-256 of all bytes before it. Little-endian, no padding between tables. */
struct copse_plan_header {
  char magic[8];                        /* "COPSEPLN" */
  uint32_t version;                     /* COPSE_PLAN_VERSION */
  uint32_t header_bytes;                /* sizeof(struct copse_plan_header) */
  uint64_t file_bytes;                  /* with the checksum */
  uint32_t collective;                  /* copse_collective */
  int32_t root;                         /* broadcast, reduce; else -1 */
  uint32_t input_blocks, output_blocks; /* blocks of `count` elements */
  uint32_t fifo;                        /* slots of a region, 1..64 */
  uint32_t pipeline_chunks;             /* chunks to aim for where the message is long enough */
  uint64_t chunk_bytes;                 /* largest chunk of a piece */
  uint64_t min_chunk_bytes;             /* no smaller for the sake of pipelining */
  uint64_t min_bytes, max_bytes;        /* sizes of messages that the plan is for, inclusive */
  uint32_t n_ranks, n_workers, n_ops, n_operands, n_pieces, n_regions, n_channels;
  uint32_t name_bytes; /* the topology's name, no NUL */
  uint32_t n_extents;  /* 0, or for an alltoall n_ranks * n_ranks */
  uint32_t protocol;   /* enum copse_plan_protocol */
  uint8_t topology_sha256[32];
};
