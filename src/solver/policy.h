/*
 * Every threshold of the solver: what is tried in which order and how long a search goes on. None
 * of them decides whether a result is exact: trees prove themselves or are proved by flows. They
 * decide what is tried first, how long it takes and how high trees are.
 *
 * What a number was measured by is said; "not measured": nothing is on record. Commands that
 * measure: scripts/bench_scale (clusters of 64 to 16,384 ranks) and `make quality`
 * (schedules/quality.txt).
 */
#pragma once

#include <limits.h>
#include <stdint.h>

/* ---- which maker of trees (trees/solve.c) -------------------------------------------------- */

/*
 * From so many terminals on relays are split off, and from so many roots on trees are packed, by
 * trust in known cuts: many guesses under one proof. Trees over physical links are tried before
 * that. Smaller networks go relay by relay and root by root, whose trees are often lower.
 * Measured: schedules/quality.txt, where 129 changed nine rows by at most 2 %. Tests pass others
 * (copse_forest_options.trust_from): 1 is always, INT_MAX never.
 */
#define COPSE_TRUST_FROM 129
/* Returns what an option means: 0 is the default. */
static inline int copse_trust_from(int option) { return option > 0 ? option : COPSE_TRUST_FROM; }

/* Trees grown side by side replace packed ones only where packing has at least one tree for so
 * many units, since grown trees are one for each unit, where some packed tree has this height at
 * least, and where they are at most so many per cent more. Not measured. */
#define COPSE_FOREST_UNITS_PER_TREE 4
#define COPSE_FOREST_LEAST_HEIGHT 3
#define COPSE_FOREST_MORE_TREES_PERCENT 25
/* Where the number of trees is not limited they replace packed ones only if they are lower by one
 * part in so many, rounded up: many trees for little height cost chunks. Not measured. */
#define COPSE_FOREST_LOWER_PART 4

/* At the optimum: forests of fewer trees per root that are made, and terminals times links asked
 * whether those reach it: a second or two. Of the catalogue's the first one is mostly as low as the
 * exact one; azure-ndv5-x8's fifth is. */
#define COPSE_FOREST_FEWER_MADE 6
#define COPSE_FOREST_FEWER_WORK (1 << 26)
/* Trees times terminals, among many ranks, from which on capacities are rounded before trees are
 * made, and not after. Measured: 1,024 GPUs on a random fabric of odd bandwidths, whose exact trees
 * took 15 GB. */
#define COPSE_FOREST_FINE (1 << 21)
/* Ways of packing the same trees, and trees times terminals in all of them, of which one takes some
 * 10 us: half a second. Two A100 boxes: 49 trees in one way, 42 in the best of 20. */
#define COPSE_FOREST_VARIANTS 20
#define COPSE_FOREST_VARIANTS_WORK 20000

/* ---- flows to all sinks (network/flow.c) ----------------------------------- */

/* Threads at most, the calling one included. Not measured beyond 16 processors. */
#define COPSE_SINKS_THREADS 16
/* Sinks times links: less work is done before a thread has started. Not measured. */
#define COPSE_SINKS_WORK_FOR_THREADS (1 << 18)
/* Sinks that a thread takes at once, so that each flow goes on from a neighbour's. Not measured. */
#define COPSE_SINKS_AT_ONCE 8
/* Arcs for each node that a flow lists as changed; where there are more, residuals are
 * put back by a walk over all arcs. Not measured. */
#define COPSE_FLOW_TOUCHED_PER_NODE 16

/* ---- known cuts (network/cuts.c) ------------------------------------------------------------ */

/* Known cuts of a search at most: enough for every host of a cluster and every pair of
 * neighbours in a mid-sized fabric. A step looks at all of them. Not measured. */
#define COPSE_CUTS_MOST 1024
/* Different capacities, from the largest, by which nested sets are looked for: beyond so many,
 * sets hold nearly everything. Not measured. */
#define COPSE_NESTED_CAPACITIES 64

/* ---- edge splitting (trees/split.c) --------------------------------------------------------- */

/* Broken cuts learned from one proof that failed: most of them are alike. Not measured. */
#define COPSE_SPLIT_CUTS_PER_ATTEMPT 16
/* Attempts at one relay within known cuts, each with the cuts that the last one broke, before
 * parts of the guess and pairs are proved one by one. Not measured. */
#define COPSE_SPLIT_ATTEMPTS 24
/* Attempts at the same number of relays under one proof before half as many are tried. Not
 * measured on record. */
#define COPSE_SPLIT_TRIES 4
/* Pairs under one proof at first where roots have unequal weights; twice as many after one that
 * held. Measured: solving again after a failure on small clusters; no row of schedules/quality.txt
 * changed. */
#define COPSE_SPLIT_PAIRS_AT_ONCE 8

/* ---- packing (trees/pack.c) ----------------------------------------------------------------- */

/* Broken cuts learned from one proof that failed: most of them are alike. Not measured. */
#define COPSE_PACK_MOST_BROKEN 32
/* Roots of a small network tried at once at first. A batch that holds makes the trees of the
 * careful way, which takes as much at every step as is safe: all steps were. Measured: no row of
 * schedules/quality.txt changed. */
#define COPSE_PACK_FIRST_BATCH 8
/* Attempts at the same roots while each teaches new cuts. Not measured. */
#define COPSE_PACK_TRIES 3

/* ---- trees of one root (trees/grow.c) ------------------------------------------------------ */

/* Families that the trees of the root are grown in, at most: more are lower where hosts have
 * several ways out, and take longer. Not measured. */
#define COPSE_SINGLE_PARTS 64
/* A set is entered once by a tree, as long as there are other ways, if its links can let in less
 * than so many times the trees. Measured on 31 sets of dead parts of eight fabrics, 256 to 1,024
 * ranks, and five clusters of the catalogue, which are as before: with 2 the one tree of a dead
 * NVSwitch enters hosts by each of eight NICs and is 64 or 84 instead of 7 or 8 hops high; five of
 * the others are 1 to 3 hops higher, three are one lower. With 16 those are the same, and DGX-2 on
 * a fat tree without an NVSwitch is 32 instead of 8 hops high. */
#define COPSE_SINGLE_NARROW_TIMES 64

/* ---- orbit trees (trees/grow.c) ------------------------------------------------------------- */

/* Attempts, each avoiding the orbits that ran out in those before a little more. Not measured. */
#define COPSE_ORBIT_LEVELS 8
/* The largest factor on k that makes the shares of links integers: more trees are no use. Not
 * measured. */
#define COPSE_ORBIT_MOST_TIMES 4096
/* Base roots times terminals: a symmetry that leaves more saves little and takes memory (about
 * 40 bytes for each). Not measured. */
#define COPSE_ORBIT_MOST_TO_GROW (1 << 24)
/* Nodes in all images of one cut: 128 MiB. Cuts of more are left out, since they only guide. Not
 * measured. */
#define COPSE_ORBIT_MOST_MEMBERS (1 << 25)

/* From this height on those that grow side by side are tried too. Measured: 256 to 1,024 GCDs of
 * MI250 on rails, of which one is dead, are 8 instead of 12 to 15 hops high. */
#define COPSE_ORBIT_HIGH 9

/* ---- trees side by side (trees/levels.c) ---------------------------------------------------- */

/* Trees times terminals, of about 40 bytes each. Not measured. */
#define COPSE_LEVELS_MOST (1 << 23)
/* Terminals remembered for each node as having a free way to it; more count as many. Not
 * measured on record. */
#define COPSE_LEVELS_SOURCES 6
/* Exchanges in a row. Not measured. */
#define COPSE_LEVELS_CHAIN 3
/* Ways over full links that are tried for a terminal, the shortest. Not measured. */
#define COPSE_LEVELS_MOST_WAYS 24
/* Steps of exchanges: candidates looked at and links walked back. For one repair; not measured. */
#define COPSE_LEVELS_REPAIR_STEPS 2000000
/* In all, for each terminal that a tree lacks, and bounds on their number. Measured
 * (scripts/bench_scale): where exchanges finish the trees that takes up to 4,500 for each; where
 * they can't, there is no end: a star of 64 GPUs of mixed bandwidths walked 3e9 links, 30 s in all.
 */
#define COPSE_LEVELS_STEPS_EACH 6000
#define COPSE_LEVELS_LEAST_STEPS 2000000
#define COPSE_LEVELS_MOST_STEPS 300000000
/* Trees that lack more than one terminal in so many are not finished by exchanges. Measured
 * (scripts/bench_scale). */
#define COPSE_LEVELS_LEAST_GROWN 2

/* ---- lower trees (trees/shorten.c) ---------------------------------------------------------- */

/* Candidates for swaps looked at in all: a second or two. Not measured. */
#define COPSE_SHORTEN_CANDIDATES 100000000
/* By so many per cent trees that are cut in two may add to the number of trees. Not measured. */
#define COPSE_SHORTEN_GROWTH_PERCENT 25
/* Words of 64 bits for which terminal's ways pass which node: 32 MiB; else that is not kept. Not
 * measured. */
#define COPSE_SHORTEN_WORDS ((size_t)1 << 22)
/* Vertices of a branch that is tried in another tree: larger ones rarely fit. Not measured. */
#define COPSE_SHORTEN_BRANCH 64
/* A tree of more than so many times the mean height is cut short from its top down, which brings
 * up much at once. Not measured. */
#define COPSE_SHORTEN_HIGH_TIMES 3

/* ---- linear programmes (lp/) ---------------------------------------------------------------- */

/* Below GLPK's 1e-7, so that its last basis is the optimal one in rationals. */
#define COPSE_LP_TOLERANCE 1e-10
/* A multiplier that is less is rounding. */
#define COPSE_LP_GAIN 1e-9
/* Steps of one solution of a programme of rows: what takes more cycles. */
#define COPSE_LP_STEPS 200000

/* Of a mixture: the first for small ones that wander, the second for large ones; what takes more
 * cycles in rounding noise. Counted, not timed: by the clock the schedule would depend on what else
 * the machine does. Measured: of the catalogue's 53 all-to-alls of up to 128 ranks and of 64 to
 * 1,024 ranks by demand none took more than 2.5 steps a row (hypercube-6: 1,083 of 448 rows, about
 * 1.5 ms each; mi250-ring-64 by demand: 1,504 of 640 rows; h100-x128 by demand: 6,807 of 2,864,
 * about 6 ms of processor time each, where a limit of 30 s had ended the search with a gap of 49%).
 */
#define COPSE_LP_MIXTURE_STEPS 5000
#define COPSE_LP_MIXTURE_STEPS_PER_ROW 10
/* What a step looks at, in entries for a row; and work in all of an all-to-all's masters, about 3
 * ns each. */
#define COPSE_LP_MIXTURE_ROW_WORK 100
#define COPSE_LP_MIXTURE_WORK ((int64_t)1200000000)
/* More rows are added as they bind: with all from the start, 1,024 ranks by demand have no solution
 * in 150 s. With fewer there is nothing to gain, and optima of many vertices come out simpler. */
#define COPSE_LP_MIXTURE_WHOLE 1024
/* Rows that GLPK gets at once, besides a fourth of the rows that it has; and by how much the
 * fullest row that it doesn't have may be fuller. Measured on all-to-alls of 256 and 1,024 ranks by
 * demand. */
#define COPSE_LP_MIXTURE_ROWS 64
#define COPSE_LP_MIXTURE_SLACK 1e-10
/* Halvings of the distance to the fullest row, for few rows above the cut. Not measured. */
#define COPSE_LP_MIXTURE_HALVINGS 20

/* Steps of an integer programme's relaxation. */
#define COPSE_LP_INTEGER_STEPS 100000

/* ---- joint optima (joint/) ------------------------------------------------------------------ */

/* None of them changes an optimum: they say how it is searched for and where the search gives up,
 * which the outcome says. */

/* Cutting planes take some tens of rounds; beyond this GLPK runs in circles. */
#define COPSE_JOINT_ROUNDS 400
/* In the rounded solution a cut may be violated by this part of the rate without telling. */
#define COPSE_JOINT_SLACK_PART ((int64_t)1 << 28)
/* Cuts around one terminal in a round: several at once save rounds. With one column for two phases
 * little room is left around a solution: rounds are few, and more rows only make them slower. */
#define COPSE_JOINT_CUTS_AT_ONCE 6
#define COPSE_WHOLE_CUTS_AT_ONCE 1
/* Halvings of the way on which cuts are looked for where groups share links; one alone takes 1. 8
 * groups on a torus 4x4x4, allgather, take 19,700 steps of the simplex method with 1, 14,900 with
 * 2, 13,600 with 3 and 12,900 with 4, which makes more rows and takes as long. */
#define COPSE_JOINT_HALVINGS 3
/* The rate alone has many solutions, whose cuts are found one after the other; once it has stood
 * still for so many rounds, short ways lead to the end sooner. */
#define COPSE_JOINT_IDLE_ROUNDS 5
/* Links off the shortest ways are left out at first where they are at least this part of the
 * columns. Fewer save nothing, and cost many steps once they are let in: of several groups without
 * paths 16 on tori 8x8 and 4x4x4, where 48 and 43 % are off them, take 14 and 26 instead of 30 and
 * 35 CPU seconds. On hosts with switches it is 53 to 90 %. */
#define COPSE_JOINT_CLOSED_PART 5
#define COPSE_JOINT_GROUPS_CLOSED_PART 2
/* Units by which two rates may differ before rationals are asked. */
#define COPSE_JOINT_SAME_RATE (COPSE_LP_UNITS >> 26)
/* A unit of the rate is worth this times the number of columns in units of links: more than the
 * last unit costs, or the second search goes for the rate alone. With 64, 8 groups on tori still
 * left 1e-8 of it. One group alone needs no more than 16. */
#define COPSE_JOINT_RATE_WORTH 16
#define COPSE_JOINT_GROUPS_WORTH 512
/* Equations of a basis that are solved in rationals. Of whole links the coefficients of more are
 * fractions so long that it takes a minute (320 ranks, 1 slow NIC). */
#define COPSE_JOINT_EQUATIONS 20000
#define COPSE_WHOLE_EQUATIONS 1000
/* Rounds with limits on shares: those that are there have been found by then. */
#define COPSE_WHOLE_LIMITED_ROUNDS 60
/* And rows for each column: slow links among fast ones leave so many solutions that cuts go on and
 * on (a ring of 64 of 0.09 to 1000 GB/s: over 6,000 rows of 192 columns, for six limits in turn,
 * after the optimum was proved). */
#define COPSE_WHOLE_LIMITED_ROWS 8
/* The part by which GLPK's objective may be off. */
#define COPSE_WHOLE_ROUNDING 1e-9

/* Groups by paths: members of one, and sets of members of all phases, a row each; paths; what the
 * dearest link's length is; bits of a way's price, above those of its hops. */
#define COPSE_PATHS_MEMBERS 12
#define COPSE_PATHS_SETS (1 << 13)
#define COPSE_PATHS_MOST 50000
#define COPSE_PATHS_LENGTH ((int64_t)1 << 34)
#define COPSE_PATHS_DISTANCE_BITS 48
/* Pairs of sets that cross, one after the other, in a phase. Not measured. */
#define COPSE_PATHS_UNCROSSINGS 100000

/* Links of use, summed over phases: what symmetries may make small. */
#define COPSE_JOINT_PLACES 16000000
/* Nodes and links, summed over phases: a few arrays of 1 GiB. */
#define COPSE_JOINT_CELLS (1 << 28)

/* Rounded parts: about what every group's roots have in all, so that a link's load is off by 1e-10
 * or so; bits of the rate's fraction, where there is room; bits of a multiplier. */
#define COPSE_JOINT_WHOLE ((int64_t)1 << 42)
#define COPSE_JOINT_RATE_BITS 20
#define COPSE_JOINT_MULTIPLIER_BITS 30

/* ---- all-to-all (alltoall/) ----------------------------------------------------------------- */

/* Where the search gives up, what was found stands and its gap is stated. */

/* Rounds of master and pricing, far more than any fabric takes; and such in which neither side
 * moves: degenerate steps, and rounding noise at the optimum. */
#define COPSE_MAX_ROUNDS 20000
#define COPSE_STALLED_ROUNDS 500
/* Where the master is large: sources times links, in all rounds together. 1,024 ranks on rails: 31
 * rounds, of 0.35 s each. */
#define COPSE_PRICING_WORK ((int64_t)200000000)
/* The part that a master's own prices have in those that are smoothed with the best so far
 * (Wentges, 1997). Where the master is large and its time falls by less than the tolerance over
 * COPSE_PRICE_STILL in a round, its own prices alone may prove it. Not measured. */
#define COPSE_PRICE_OWN 0.5
#define COPSE_PRICE_STILL 8

/* A column of less weight in the master is noise of the simplex method, not part of a solution; an
 * orbit is full where less than this part of its capacity is left. */
#define COPSE_LEAST_WEIGHT 1e-9
/* What rounding leaves of a double's 1e-16: the least tolerance; by how much a path must be shorter
 * to join, relative; and what counts as a shorter time. Not measured. */
#define COPSE_LEAST_TOLERANCE 1e-11
#define COPSE_PATH_GAIN 1e-9
#define COPSE_ROUND_GAIN 1e-12
/* Common denominators looked for among prices and among weights, and how near all values must be
 * to their multiples. Not measured. */
#define COPSE_PRICE_DENOMINATOR 1000000
#define COPSE_WEIGHT_DENOMINATOR 10000000
#define COPSE_NEAR 1e-6
#define COPSE_FULL_SLACK 1e-8

/* Ways for all pairs (paths.c), where the master is large: trees of each source; parts of a pair of
 * more than one such part of the most that a rank sends; how steep prices are at first, as an
 * exponent of 2 at the fullest link, and by how much more in each round; and by which exponent a
 * price may fall short of the highest and count as the same in the bound. Measured on 1,024 ranks
 * on rails: odd bytes for every pair, 1.547 times the bound by shortest ways, are within 1 % of a
 * bound after 6 rounds, of about 1 s each; a tenth of the pairs after 5; Zipf's law exactly. */
#define COPSE_BALANCE_TREES 8
#define COPSE_BALANCE_PARTS 32
#define COPSE_BALANCE_GRAIN 256
#define COPSE_BALANCE_SHARP 16
#define COPSE_BALANCE_STEEPER 2.5
#define COPSE_BALANCE_ROUNDS 8
#define COPSE_BALANCE_ALIKE 1

/* Equations for exact weights, whose elimination is cubic, and bits of their fractions. */
#define COPSE_WEIGHT_EQUATIONS 400
#define COPSE_WEIGHT_BITS 48

/* ---- placement of experts (placement/) ------------------------------------------------------ */

/* None changes what is proved: a bound is worked out in integers whatever they are. All work is
 * counted, not timed, so that results do not depend on the machine. */

/* Local search (place.c): late acceptance over COPSE_PLACE_HISTORY steps, in exchanges times steps
 * looked at; at most COPSE_PLACE_ANNEAL_SWEEPS times all exchanges there are. Then descent to a
 * local optimum. */
#define COPSE_PLACE_ANNEAL_WORK ((int64_t)60000000)
#define COPSE_PLACE_ANNEAL_SWEEPS 400
#define COPSE_PLACE_DESCENT_WORK ((int64_t)120000000)
#define COPSE_PLACE_HISTORY 2000

/* The relaxation's bound (bound.c): rounds of mirror ascent, fewer where COPSE_PLACE_BOUND_WORK
 * operations are less; the weights are rounded to multiples of 2^-COPSE_PLACE_WEIGHT_BITS, so that
 * 128 bits hold all sums. */
#define COPSE_PLACE_BOUND_ROUNDS 1500
#define COPSE_PLACE_BOUND_WORK ((int64_t)3000000000)
#define COPSE_PLACE_WEIGHT_BITS 30
/* Of the ascent to the bound: the first step; the step's part that is left where so many steps in
 * turn gain nothing, counted anew after a gain of this part; the step that is too small to go on;
 * and rounds at least, whatever the work. Not measured. */
#define COPSE_PLACE_FIRST_STEP 4
#define COPSE_PLACE_STEP_PART 0.6
#define COPSE_PLACE_VAIN_STEPS 15
#define COPSE_PLACE_STEP_GAIN 1e-5
#define COPSE_PLACE_LEAST_STEP 1e-3
#define COPSE_PLACE_LEAST_ROUNDS 30
/* Logarithms of weights, from the largest: smaller ones are raised to the first, and count as
 * weight 0 below the second. Not measured. */
#define COPSE_PLACE_LEAST_LOG (-40)
#define COPSE_PLACE_LOG_OF_NOTHING (-20)

/* Branch and cut (bound.c): beyond these it would not get far in the time that anybody waits. */
#define COPSE_PLACE_MAX_BINARIES 1200
#define COPSE_PLACE_MAX_NONZEROS 400000
/* Steps of the simplex method times entries: 20 to 30 s of processor time (48 experts on 24 ranks,
 * 8 steps: 1 ms a step and 0.35 s a node). */
#define COPSE_PLACE_ILP_WORK ((int64_t)1000000000)

/* GLPK solves relaxations to 1e-7; what they are trusted for is a little less. */
#define COPSE_PLACE_TRUST 1e-6

/* ---- alltoallv at run time (online/) -------------------------------------------------------- */

/* The trade is the same in each: more pieces pipeline better and cost more per message. */

/* Defaults of copse_online_options: steps to aim for, and bytes on a NIC below which steps are not
 * cut, and one to one between hosts is not worth a step: 5 us at 25 GB/s, about what a hop between
 * hosts takes to start. `make bench` (bench_online) measures what they give. */
#define COPSE_ONLINE_DEFAULT_STEPS 128
#define COPSE_ONLINE_DEFAULT_MIN_MESSAGE 131072

/* In combined steps a pair's bytes are cut into slices of a message over this, or not at all. */
#define COPSE_ONLINE_SLICES 8

/* No stage is shorter than half of what an even matrix has in each, nor than a message over this,
 * but may be from two messages on: shorter ones cost time to plan, and steps, and gain nothing over
 * combined steps. */
#define COPSE_ONLINE_LEAST_STAGE 4

/* Hosts don't wait for each other's steps, but for what a NIC has under way: of what they would
 * lose step by step, about this part remains (0.28 of it in simulations of 64 and 320 ranks). */
#define COPSE_ONLINE_UNEVENNESS 4

/* Workers of a rank that send messages side by side: half of what plans have. */
#define COPSE_ONLINE_WORKERS 16

/* h^2 + 2 h stages always suffice for h hosts, as every stage empties an entry or uses up a slack.
 * More than some thousands only shred messages: then combined steps begin earlier. */
#define COPSE_ONLINE_STAGES_PER_HOST 16
#define COPSE_ONLINE_STAGES_FEWEST 8192

/* Steps that may be asked for. */
#define COPSE_ONLINE_MAX_STEPS (1 << 16)

/* ---- rings (rings/) -------------------------------------------------------------------------- */

/* Rounds of column generation at most, and where orders are not found by dynamic programming. Where
 * they end it, the bound is that of the best round. */
#define COPSE_RINGS_ROUNDS 400
#define COPSE_RINGS_LONG_ROUNDS 40
/* An order is worth a column if it is shorter than those there are by this part, as rounding of
 * GLPK goes. Not measured. */
#define COPSE_RINGS_GAIN 1e-9
/* Prices that are fractions with a denominator up to this are taken for such, which makes bounds
 * equal to what is reached. Not measured. */
#define COPSE_RINGS_DENOMINATOR 20000
/* Improving a long order that is found without the dynamic programme: GPUs in a segment that is
 * kicked elsewhere, comparisons in all, and kicks in a row that bring nothing. A torus of 8 x 8:
 * rings at the bound, 400 GB/s, in place of 200; of 4 x 4 x 4 480 of 600, in
 * place of 300. */
#define COPSE_RINGS_SEGMENT 10
#define COPSE_RINGS_EFFORT ((int64_t)1 << 22)
#define COPSE_RINGS_STALLED 12
/* Hamiltonian decompositions: links of a GPU at most; tries; exchanges in each, times the square of
 * the number of GPUs; GPUs looked at in all; and of how many exchanges that make two cycles more
 * one is taken. Tori of 8 x 8, 4 x 4 x 4, 3 x 3 x 3, 4 x 8 x 8, 16 x 16 and hypercubes of 16 to 256
 * fall apart within a second. */
#define COPSE_RINGS_MAX_DEGREE 16
#define COPSE_RINGS_TRIES 64
#define COPSE_RINGS_EXCHANGES 64
#define COPSE_RINGS_EXCHANGE_WORK ((int64_t)1 << 28)
#define COPSE_RINGS_UPHILL 800
/* Packing channels by negotiated congestion: lengths of the bound's longest row, of a channel too
 * many on a row, of each round with one, and the noise that decides between equal ones, tried so
 * often, four times as much each time; searches for each number of channels; steps of searches for
 * all; and speeds tried below the bound. Not measured beyond the machines of schedules/nccl.txt. */
#define COPSE_RINGS_BASE_LENGTH 65536
#define COPSE_RINGS_CROWDED 65536
#define COPSE_RINGS_HISTORY 8192
#define COPSE_RINGS_NOISE 4096
#define COPSE_RINGS_NOISES 3
#define COPSE_RINGS_REROUTES 400
#define COPSE_RINGS_LONG_REROUTES 100 /* beyond COPSE_RINGS_EXACT_GPUS */
#define COPSE_RINGS_STEPS ((int64_t)1 << 28)
#define COPSE_RINGS_BISECTIONS 4
/* Beyond so many GPUs a search for a channel that comes back to its NIC has one NIC, the nearest,
 * not all. 16 GPUs with 16 NICs: chains 315 in place of 197 GB/s. */
#define COPSE_RINGS_PORT_GPUS 10
