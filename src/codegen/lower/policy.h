/* Every number that lowering to native plans chooses by, with its reason. The sizes of chunks and
 * the depth of FIFOs are in schedule/chunks.h, as schedules' predicted times depend on them too. */
#pragma once

#include <stdint.h>

/* Workers of a rank: on a GPU thread blocks, all resident at once (an H100 has 132
 * multiprocessors). */
#define COPSE_POLICY_WORKERS 32

/* The largest message of a low-latency plan, by default and at most: its packets take twice the
 * bytes, in two copies, and all of a message must fit in them at once. */
#define COPSE_POLICY_LOW_LATENCY_BYTES ((int64_t)256 << 10)
#define COPSE_POLICY_LOW_LATENCY_MOST ((int64_t)16 << 20)

/* One hop sends N - 1 times the message: the largest message by default, and the least that is
 * worth a worker of its own. */
#define COPSE_POLICY_ONE_HOP_BYTES ((int64_t)16 << 10)
#define COPSE_POLICY_ONE_HOP_PART_BYTES ((int64_t)512)

/* Bytes that a link takes in a microsecond, to tell which messages keep a worker longer (trees.c).
 * Of NVLink to one GPU and of NICs some 25 to 900 thousand. */
#define COPSE_POLICY_DEALT_RATE 1e5
/* Of the time that links need, what messages that are passed on take when they are dealt. With 1/8
 * a broadcast of 256 KiB on a100-x8-spine took 10.2 us, with 1/2 11.4, as if they were not; an
 * allgather of that on torus-a100-x4 5.3 with both, 6.2 without. */
#define COPSE_POLICY_DEALT_PART 0.125

/* The work of a role that only waits, where one that reads or writes its piece once has 1. */
#define COPSE_POLICY_WAIT 0.02

/*
 * Workers that are busy for this part of the time are balanced well enough. Where each has many
 * roles already, each of which costs a signal and a wait, a fair balance is. And a plan with too
 * many roles would cost more than it gains. A larger number of instances must balance better by
 * so much.
 */
#define COPSE_POLICY_ENOUGH_BALANCE 0.92
#define COPSE_POLICY_FAIR_BALANCE 0.7
#define COPSE_POLICY_MANY_ROLES 8
#define COPSE_POLICY_ENOUGH_ROLES (1 << 18)
#define COPSE_POLICY_BETTER_BALANCE 1.01

/* Ranks times stages times pieces, and ranks times trees, of an allreduce in stages: room for one
 * stage of 255 ranks in 256 parts eight times over, in 1 GB of memory. */
#define COPSE_POLICY_MOST_STAGES (1u << 27)

/* MSCCL's executors serve only counts that are multiples of the chunks; usual counts are of powers
 * of two, which may add so much more for that. Chunks of a block, at most, and candidates. Round
 * numbers, not measured. */
#define COPSE_POLICY_USUAL_SIZES_WORTH 0.01
#define COPSE_POLICY_MOST_ROUNDED 1024
#define COPSE_POLICY_MOST_CANDIDATES 64
