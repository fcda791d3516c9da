/*
 * The numbers that steer predictions: the model's defaults, and limits on work. The model's own
 * parameters of a machine (links, latencies) are the topology's.
 */
#pragma once

#include "schedule/chunks.h"

/* What a hop of packets costs of one of chunks and signals: NCCL's tables for NVLink have 0.6 us
 * (LL) and 3.4 us (Simple) a step of a ring (src/graph/tuning.cc, hwLat), an H200 some 2 and 8 us
 * (an allreduce of 1 KiB with 2 ranks, tests/gpu/results/2026-11-20-h200.txt). */
#define PACKET_HOP 0.25

/* Software cost of a hop from rank to rank, in us: put, signal, wait. A round default, not
 * measured; `copse simulate --alpha` takes a measured one. */
#define ALPHA_US 2

/* Chunks times links of a simulation: fewer chunks where it would be more, to bound the simulator's
 * own time. Predictions that only rank schedules (`quick`) do 1 / QUICK_PART of it. */
#define MAX_STEPS 4000000
#define QUICK_PART 8

/* Of the simulator: the machine's costs but for a worker's with each message, plans' default cuts.
 */
#define COPSE_SIM_DEFAULTS(message)                                                 \
  {                                                                                 \
    .alpha_us = ALPHA_US, .message_us = (message), .duplex = 1,                     \
    .min_chunk_bytes = COPSE_MIN_CHUNK_BYTES, .max_chunk_bytes = COPSE_CHUNK_BYTES, \
    .fifo = COPSE_FIFO, .max_steps = MAX_STEPS                                      \
  }

/* Trees of few peers at a switch: numbers of peers that are tried, each half of the one before, or
 * less by one up to SPARSE_FEW. With two boxes of 72 (54, 18, 9 peers) the first fits MSCCL's 64
 * thread blocks best, with boxes of 8 and 8 thread blocks two peers (2026-11-30). */
#define SPARSE_TRIES 4
#define SPARSE_FEW 8

/* Baselines are timed at their best number of chunks for each size, with the slots of NCCL's
 * buffers (NCCL_STEPS, NVIDIA/nccl src/include/device.h). The numbers grow by half until two in a
 * row gain less than this each. */
#define BASELINE_SLOTS 8
#define CUT_GAIN 0.001

/* Edges of a schedule's trees, or flows, and pairs of ranks up to which it is lowered to be
 * predicted: a plan has some ten operations for each edge, 300 bytes and 1 us to make, and each
 * pair needs routes. Up to 700 ranks with a tree for each. */
#define MOST_LOWERED (1 << 19)

/* Several simulations of fewer links than this are over before threads have started. */
#define STEPS_FOR_THREADS 50000

/* Relative differences of predicted times: equal but for rounding; and too small for a model to
 * tell, where changing costs something (a plan more to load). */
#define SAME_TIME 1e-9
#define CLOSE_TIME 0.01

/* By how much a schedule must be faster to be worth more hops: the model's own error where it was
 * compared with measurements at large messages (docs/measurements.md, "Between processes":
 * allgathers of MPI's algorithms, 1 to 5 %). Each hop is one more rank that can be late. */
#define MODEL_ERROR 0.03

/* By how much slower a plan that ranks have already may be than a new one and still be kept. Where
 * something is down a mended plan of a tree over NVSwitches is loaded by all ranks, so that nothing
 * is kept but the time to search: `copse plans` without --keep. A round number. */
#define KEPT_WORTH 0.1

/* Routes of all pairs, up to which the best trees on them are proposed: with one for each of 64
 * ranks the programme takes a second, with four (Perlmutter's NICs) 13 to 20 s. Copies of trees
 * that are hung on routes, beside one: 64 GPUs of Perlmutter broadcast 16 MiB in 199 us with 4, 212
 * with 1, and 16 MiB of an allgather take 184 and 178. And parts of M in which loads are counted.
 */
#define MOST_ROUTED_WAYS 6000
#define ROUTED_COPIES 4
/* By how many hops scattered trees may become higher where links are too full. 4 MiB broadcast
 * among 64 GPUs of h100-x8-clos2 take 27.8 us as they are, with 0, 1 and 2 hops more 28.5, 25.3 and
 * 26.7; the links of h100-x8-clos7 10, 9.5, 5.4 and 4.7 ms/GB. */
#define MOST_HIGHER 2
#define ROUTED_WHOLE 1e12

/* Candidates that are simulated at once, all by what those before them took. And up to how many
 * times the fastest one's time a search begins with the fastest, not in the list's order. Round
 * numbers: the results do not depend on the first, and hardly on the second. */
#define TIMED_TOGETHER 8
#define SEARCHED_REACH 1.5

/* Trees of a baseline with more edges are not tried: the simulator's time, and the reader's. */
#define MOST_EDGES 2000000

/* Lengths for the bound of an alltoall's plan, which has none of its own, are found to 1 in so
 * many: to 1 in 100 an 8x8 torus takes 6 s, to 1 in 20 1.4 s, and the lengths are those of the
 * optimum. */
#define LENGTHS_WITHIN 20

/* Ranks up to which allreduces in stages are looked for, and of a group: an operation adds no more
 * (COPSE_MOVE_MAX_OPERANDS). */
#define MOST_DOUBLED 512
#define MOST_GROUP 255
/* Pieces of one whose first digits are scattered, or that are copied: a plan's workers, by default,
 * of which each does one after the other. */
#define MOST_SCATTERED 32

/* Sizes that `copse plans` searches for first, and the work for each, by ranks: 60 s in all for
 * three collectives of 64 ranks, of which a third are proofs. Without 4 MiB an allreduce of two
 * A100 hosts took 30 % longer there than what `--objective 4M` finds. Up to where plans are packets
 * a hop costs what one of packets does: of 30 times of a DGX-1 and a MI100 host at 1 to 256 KiB 12
 * are shorter by that, by up to 25 %, and one is longer, by 7 %. */
#define PLAN_SIZES \
  { 4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20, 256 << 20 }
/* Up to so many ranks, more sizes: without them plans of 16 or 256 KiB took up to 30 % longer on
 * ten random fabrics of 4 to 9 ranks than what `--objective` finds there; one and a half seconds
 * become a tenth more. */
#define FEW_RANKS 16
#define PLAN_SIZES_OF_FEW \
  { 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 256 << 20 }
/* By how much a message just before a range's border may take longer than with the next range's
 * candidate: little beside CLOSE_TIME. And how often sizes where ranges meet are compared like the
 * others. Without that 16 GPUs of four Perlmutter nodes took 8.6 % longer beside a border than with
 * a third candidate. */
#define BORDER_LOSS 0.0025
#define MOST_LOSS ((1 + MODEL_ERROR) * (1 + BORDER_LOSS) - 1)
#define BORDER_ROUNDS 6
/* Within a range, changes of its plan's number of chunks that are compared like its ends: those
 * that are so far from the one before, as a part of the size, and so many. An allreduce of 1.8 MB
 * on two A100 hosts took 17 % longer than another way, between powers of two. With 1 / 32 its
 * ranges took 3.6 CPU seconds in place of 1.4, and were the same. */
#define LEAST_JUMP (1.0 / 16)
#define MOST_JUMPS 32
/* Work after which borders are looked for no more closely, where most is lost first; and after
 * which, beyond all comparisons of the first round, no more sizes beside them are compared: some 13
 * s each. 64 A100 whose links differ by up to 3 % spent it on comparisons and lost 26 % at borders.
 */
#define BORDER_WORK 2e8
/* Edges of trees from which on `copse plans` leaves a schedule out beside one of fewer edges that
 * is as fast in the long run and no higher, and what a search finds that is not faster by
 * CLOSE_TIME than what was there. An allreduce of azure-ndv5-x8 without a NIC took 166 CPU seconds
 * with all of them and no limit for borders, 48 since. */
#define MOST_EDGES_ALIKE (1 << 14)
/* Sizes that are compared from a power of two to before the next, where all candidates together
 * have at most so many transfers: numbers of chunks change between powers of two, and times jump.
 * An allreduce of 2.8 MB on a random fabric took 9 % longer than another way; 'plans' takes a third
 * longer (8 GPUs of dgx-h100 2.3 -> 3.0 CPU seconds, mi250-16 9.0 -> 11.4). Larger fabrics have
 * more transfers. */
#define STEPS_A_POWER 4
#define MOST_STEPPED 1e5
/* With more transfers powers of two are compared up to here alone, then powers of four: a
 * simulation of 154,000 transfers takes 1.5 s from 256 MiB on. */
#define MOST_IN_TWOS 5e5
#define LONG_FROM (16 << 20)
#define MOST_SIZES (64 + 64 * STEPS_A_POWER) /* as many ends of candidates too */
/* Where predictions are coarse (more than MOST_LOWERED transfers), sizes are so many times the one
 * before: a simulation takes a second. 1,024 GPUs on rails have two ranges, with each power of two
 * as with these. */
#define COARSE_POWER 16
/* How near a border comes to where a time jumps, as a part of the size, unless both candidates lose
 * more than BORDER_LOSS beyond it. To the byte took 24 sizes of 6 s each where the first 12 come
 * within 1/1024: an allreduce of azure-ndv5-x8 without a NIC, at 200 MB. */
#define BORDER_WIDTH (1.0 / 256)
#define PLAN_WORK(n_ranks) (2.5e5 * fmin((n_ranks), 64))
/* Work of all further searches for one collective: that of one search of --objective, some 8 s; for
 * more than 16 ranks less, since with 64 `copse plans` takes 60 s without them. Of 24 plans at
 * sizes between those above 14 took over 3 % longer than what --objective finds, by up to 27 %,
 * with them 5, by up to 6 % (docs/measurements.md). */
#define PLAN_MORE_WORK(n_ranks) (1.2e8 * fmax(0, fmin(1, (64 - (n_ranks)) / 48.0)))
/* How many times as much work as PLAN_WORK the first of them takes at a size; each next one there
 * twice as much. An allgather of 512 KiB and a reduce_scatter of 2 MiB on 5 GPUs ended 1.7 and 7.0
 * % above --objective with 2, 1.0 and 7.0 with 4, 2.9 and 2.6 with 8, all for 1.2e8. */
#define MORE_TIMES 8
/* What is faster by less is not added, and gained little. What may be gained after a search is at
 * most this part of before, or as much as it gained. Searches end where nowhere so much may be.
 * The first and last are small beside MODEL_ERROR; with a quarter hope left the reduce_scatter was
 * 7.0 % above. MOST_HOPES: powers of two from 1 KiB to 256 MiB fit. */
#define MORE_GAIN 0.002
#define HOPE_LEFT 0.5
#define LEAST_HOPE 0.01
#define MOST_HOPES 19

/* Events of so short a list come soon, and very soon (event_queue.c): what they look at, fetched
 * then, is still in a cache of 2 MiB, and of 32 KiB. Measured: a simulation of 154,000 transfers
 * takes 12 to 35 % less. */
#define EVENTS_SOON 256
#define EVENTS_NEXT 16

/* ---- fits of costs to measured times (calibrate.c) ---- */

/* Of logarithms: how far a cost is moved to see what depends on it, the longest step, what the
 * squares must gain for another turn, and the damping to begin with and its factor. Turns and
 * trials at most: a fit of exact times takes 4 to 10 turns (tests/schedule/test_predict.c). */
#define FIT_STEP 0.01
#define FIT_STRIDE 3
#define FIT_GAIN 0.01
#define FIT_DAMPING 1e-3
#define FIT_FACTOR 10
#define FIT_TURNS 40
#define FIT_TRIES 4
/* An average this small is that of rounding; else, up to so many transfers, fits begin again from
 * four places beside: a second for 100 of them. Round numbers. */
#define FIT_CLOSE 5e-4
#define MOST_FITTED_AGAIN 20000
/* Else a fit begins again from the best of a grid of so many values of each cost, two of larger
 * plans: from the most that it may be down by half a decade each. With 1 KiB in 48 ms and 4 MiB in
 * 346 ms of a DGX-1's plan the descent from the defaults ended with hops alone, 74 % over and 67 %
 * below; from the grid's best both costs are 6 % off at most. */
#define FIT_GRID 6
#define FIT_GRID_STEP 1.15
/* Of a simulated time over or below the measured one: beyond it a note says so. A round number: of
 * times on threads 5 to 80 % were seen (2-core Debian 12), of simulated ones 2 %. */
#define FIT_FAR 0.5
/* The error of a cost over that of a time, beyond which the times do not tell it: launches that
 * differ by 3 % would give it within 30 %. And by how much worse on average its default may do. */
#define FIT_BLUR 10
#define FIT_LOSS 0.01
/* Least and largest us of a hop; the largest scale, and 1 over the least one. */
#define LEAST_FITTED 1e-6
#define MOST_FITTED 1e6
/* A larger message's time below this part of a smaller one's is no noise of a mean of launches. */
#define LEAST_FALL 0.5
/* Digits of a fitted cost: times are measured to a per cent at best. */
#define PROFILE_DIGITS 4

/* ---- the search for one size (sizes.c, exchange.c) ---- */

/* Of more chunks, by how much they are slower when yet more are not tried. */
#define CHUNKS_WORSE 0.1

/* What is slower than the best by more is not tried with few slots. A round number, not measured.
 */
#define FEW_SLOTS_REACH 1.25

/* As close to the bound nothing more is looked for. */
#define ENOUGH 0.0005

/* Of the work: for one forest, and for exchanges of those that came out best; of these for all of
 * them, the rest being for the best one, of MOST_STARTS and the best. Tried on the topologies of
 * docs/measurements.md, "Finite sizes". */
#define FOREST_PART 0.06
#define EXCHANGE_PART 0.7
#define STARTS_PART 0.6
#define MOST_STARTS 3
/* Where latencies keep links busy, pieces of a share that exchange begins with: of more, each costs
 * a latency more. TACOS, whose model that is, was best with 1 to 8 on grids and tori. */
#define MOST_WHOLE_PIECES 8
#define MOST_ROUNDS 64
/* Rounds that gain nothing after which there are no more: together they begin with all the numbers
 * of pieces but one. On the topologies of docs/measurements.md nothing came of more. */
#define VAIN_ROUNDS 2
/* Up to so many ranks every other round lets links serve first what has the most hops to go: with 8
 * it came closer to the bound (docs/measurements.md, "Finite sizes"), with 64 the time lacks. And
 * by how much that must be faster: others' simulators of the same trees may have only their order.
 */
#define MOST_FAR_RANKS 32
#define FAR_GAIN 0.01
/* Where trees take this many times as long as stages, exchange is not tried: it keeps both phases
 * of an allreduce, each as wide as the fabric. A round number, not measured. */
#define EXCHANGE_REACH 1.5
#define MOST_HEIGHT 128
/* Numbers of trees that are told apart: 1, 2, 4 ... */
#define TREE_STEPS 24

/* Ranks beyond which a run takes so long that few moves are made. */
#define MOST_EXCHANGED 144
/* Of a schedule made by exchange: as many edges in its file, and operations in its plan. */
#define MOST_TRANSFERS (1 << 16)
/* Trees of a mixture: of one root they are cut finer. */
#define MOST_MIXED 1024

/* A doubling of trees, and so of a plan, must gain so much. */
#define DOUBLING_GAIN 0.0003

/* What a transfer takes from schedule to plan to simulation, in steps of the simulator; the numbers
 * of a plan's simulation, for each chunk, and an event of the exchange: of what fits a processor's
 * cache, and of others. 12 to 16 million numbers a second up to 2^14 of them, 2 to 6 million
 * beyond. */
#define STEPS_OF_LOWERING 20
#define STEPS_OF_PLAN(ints) ((double)(ints) * ((ints) < 1 << 14 ? 1 : 3))
/* Of few transfers 0.6, with which the work of searches was measured; of one root and for one size
 * 0.8, since a broadcast of 64 ranks took 11 s under load in place of 8. */
#define STEPS_OF_EVENT(transfers, more)         \
  ((transfers) < 1 << 13   ? (more) ? 0.8 : 0.6 \
   : (transfers) < 1 << 14 ? 1.1                \
   : (transfers) < 1 << 16 ? 1.3                \
                           : 1.8)
/* The same of an offer of a tree that grows, beside that it is taken: a way is gone, and queued. 64
 * A100 whose links differ grew for 3.7 CPU seconds of 11.6 at 64 KiB without. Few transfers as the
 * work of searches was measured. */
#define STEPS_OF_OFFER(transfers) ((transfers) < 1 << 13 ? 0 : 3)

/* The same for an alltoall: every pair has paths over every other rank. A run's dag is made anew,
 * and costs so much for each number in it. Paths of a flow to begin with, at most. */
#define MOST_PATH_RANKS 32
#define STEPS_OF_PATH 1.2
#define MOST_PATHS 64
#define HOP_US 1e-9 /* where a hop costs nothing */
#define DEAL_ROUNDS 4
#define MOST_PIECES 16

/* Lateness counts for the last so many times that a tree takes a link on average. A trial is taken
 * that is worse by so much, in the beginning. Of a grid of 0, 0.03, 0.1 and 2, 4, 8, 16 on six
 * topologies of two seconds each these are the best on average, by little. */
#define LATE_PIECES 8
#define HEAT 0.03
/* A level that gained less than this part is the last. */
#define LEVEL_GAIN 0.001
/* How many times as much as the last level gained all further ones may: of halves the sum is once
 * as much. */
#define LEVEL_HOPE 2
/* How often trees are grown before exchange begins with the fastest: of 100 that grow on a 3x4x5
 * torus 70 come in ten rounds, which are the fewest, the others in eleven. */
#define GROWN_TIMES 8
/* Numbers of pieces in which trees that grow are tried before mixtures, and the part of the work
 * that they may take there: without a limit they took nine tenths of it for 64 GPUs of Perlmutter,
 * and an allgather of 256 KiB was 18 % longer. */
#define GROWN_ROUNDS 3
/* Pieces of a share that an allreduce's trees grow in, of which each is added up and handed on: of
 * 22 times of 15 machines at 256 KiB to 4 MiB 6 are 1 to 3 % shorter with these than with 1, 2, 4,
 * none longer. Of other collectives as many are longer as shorter. */
#define GROWN_OF_BOTH \
  { 2, 3, 5 }
#define GROWN_PART 0.1
/* Moves without a gain after which exchange ends. Round numbers, not measured. */
#define MOST_VAIN_MOVES(transfers) (2000 + 30 * (int64_t)(transfers))
/* A new parent is drawn as if a hop took longer by up to three times this. Not measured. */
#define HOP_SPREAD 0.3

/* Chunks of a transfer, at most; and how near to the best a variant must be for numbers of chunks
 * beside its best one to be tried. Round numbers, not measured. */
#define MOST_CHUNKS 512
#define BESIDE_REACH 1.05
/* Copies that trees, or ways of an all-to-all, are cut into: 1, 2, 4 .. 16; trees no finer once
 * that takes this many times as long as the best. Copies of mixtures, in steps of 4; and how near
 * to the best one must be to be exchanged. Round numbers, not measured. */
#define MOST_COPIES 16
#define COPIES_REACH 1.2
#define MIXED_COPIES 64
#define MIXTURE_REACH 1.1
/* Searches of an all-to-all's paths, each for as long, from another seed. A round number. */
#define PATH_SEARCHES 16

/* What the exchange keeps in tables: ranks, links of a path, images under symmetries. */
#define MOST_RANKS 1024
#define MOST_PATH 64
#define MOST_IMAGES (1 << 24)
