/*
 * What the commands decide by: sizes that are compared, what is worth saying or trying, limits of
 * work. What a number was measured by is said; "not measured": nothing is on record.
 */
#pragma once

#include <stdint.h>

/* ---- lower (cmd_lower.c) --------------------------------------------------------------------- */

/* Ranks up to which a file is laid on the routes of the topology that its schedule names; beyond,
 * only on one that is named: routes of all pairs take longer than lowering. Of 1,024 ranks they
 * took 0.2 CPU seconds at a switch, 1.9 on rails (a plan itself 0.2 to 9.3), of 2,048 in a torus of
 * hosts 23 and 1 GiB (2026-11-30). */
#define MOST_ROUTED_RANKS 1024
/* The same for programs of MSCCL and MSCCL++, in whose place another schedule may be looked for:
 * 129 ranks at a switch took 13 CPU seconds and 1 GiB, 144 of gb200-nvl72-x2 8 to 18; an allgather
 * of 256 at a switch took more than 1.6 GiB, an allreduce of 256 on rails more than 18 s
 * (2026-11-30). */
#define MOST_PROGRAMMED_RANKS 160
/* By how much an MSCCL program may take longer than a schedule's links and be no detour. Not
 * measured. */
#define NEAR_COST 0.01
/* When another schedule than a rounded one is looked for, and when none that is faster: a
 * simulation of 1 GiB has 1 to 2 % of latencies. What a replacement must save, so that it is not
 * for digits of the simulation. */
#define ROUNDING_SHOWS 0.02
#define ENOUGH_COST 0.02
#define WORTH_REPLACING 0.01
/* ENOUGH_COST of flows, whose programs have rounding alone above the links. */
#define ENOUGH_COST_OF_FLOWS 1e-9
/* How much longer a quick simulation of 1 GiB says than all steps, at most: 1.17 of 307 programs
 * of 8 to 64 ranks (2026-11-30). How many are simulated by all steps, 0.2 s each at 32 ranks, 1
 * at 64. */
#define QUICK_ERROR 1.2
#define MOST_FINALISTS 4
/* Bytes of programs, after which no more are made, once one fits: with 24 MiB an allreduce of 64
 * ranks took 9.7 CPU seconds and found none other, with 16 MiB 7.6 (2026-11-30); those of 32 ranks
 * are some 16. */
#define MOST_MADE ((size_t)16 << 20)

/* ---- plans (cmd_plans.c) --------------------------------------------------------------------- */

/* Sizes at which candidates are compared, as NCCL's tests have them, and up to which there are
 * packets: beyond, they move twice the bytes for a latency that no longer counts. Not measured. */
#define SMALLEST ((uint64_t)1 << 10)
#define LARGEST ((uint64_t)1 << 30)
#define LARGEST_PACKETS ((uint64_t)256 << 10)
/* What is slower than the fastest by no more is in the index alone: for the sake of few plans. A
 * predicted time is itself 3 % off (predict/policy.h, MODEL_ERROR). */
#define WORTH_SAYING 0.01
/* Sizes of a range: its first and last, of those that are compared, and powers of two between. */
#define MOST_OF_RANGE 24

/* ---- solve (cmd_solve.c) --------------------------------------------------------------------- */

/* Ranks up to which a schedule is compared with its plan's routes where nobody asked: the
 * comparison must cost little beside the solving. Not measured. */
#define MOST_DETOUR_RANKS 64

/* ---- quality (quality/cmd_quality.c) --------------------------------------------------------- */

/* Work of the search for one size (predict/sizes.h), less than that of --objective, which what is
 * high is searched again with: a row in some seconds. Not measured. */
#define SEARCH_WORK 5e6
/* How many times its limit of processor time a process may take by the clock: it may share the
 * machine with others, and is stopped where it hangs. Not measured. */
#define CLOCK_LIMIT 30
