/*
 * Every threshold of src/schedule/solve, with its reason. None of them changes what is claimed of a
 * schedule: they say what is tried, and a note says where something was not.
 */
#pragma once

/* Of more ranks it takes more than a second or two to find the symmetries of a fabric. */
#define COPSE_SYMMETRY_RANKS 2048

/* Trees of unequal shares are made one by one, without symmetries: more ranks take minutes (256
 * ranks in uneven hosts: 4 minutes, of which the shares themselves take 3 s). */
#define COPSE_FREE_SHARES_RANKS 256

/* Unequal shares: kinds of ranks and links, or where there are no symmetries ranks and links that
 * may bind. Beyond, the simplex method takes minutes. */
#define COPSE_SHARES_KINDS 3000
#define COPSE_SHARES_COLUMNS 2600

/* Images of the cuts that prove unequal shares: a file has each with its nodes. */
#define COPSE_SHARES_CUTS 8192

/* Switches that copy or add: sets of them that are tried, each with links of its own in one
 * programme, of how many links in all; and of how many switches every set can be tried. */
#define COPSE_SWITCH_WAYS 64
#define COPSE_SWITCH_COLUMNS 8000
#define COPSE_SWITCH_FEW 2

/* Unequal shares within a tolerance: units for each rank on average that they are rounded to, at
 * most. Each number is two flows to every rank. */
#define COPSE_ROUNDED_SHARES 64

/* A tolerance: more trees than this per root are as good as the exact number, and slow to try. */
#define COPSE_TRIED_K 4096

/* All-to-all: up to this many ranks all flows are listed; beyond, a known rotation keeps them few.
 */
#define COPSE_LISTED_FLOWS_RANKS 128
/* Of a group's all-to-all an exact bound is often out of reach with more ranks; it is reported, not
 * built on. */
#define COPSE_EXACT_EXCHANGE_RANKS 64
/* How far from the optimum it may then be. Not measured. */
#define COPSE_EXCHANGE_TOLERANCE ((struct copse_q){1, 100})

/* A bound alone, without symmetry and of no more ranks: work (solver/lp/linear_programme.h, about
 * 3 ns each) before the joint programme of one group takes over. Measured on 4 to 61 random GPUs of
 * tori, a ring and hosts (2026-11-30, 2-core Debian 12): hosts, rings and 16 GPUs of tori are done
 * before, in at most 0.2 CPU seconds; 24 or more of tori take 0.5 to 3.6, and by the joint
 * programme 0.3 to 1.2. */
#define COPSE_EXCHANGE_WORK ((int64_t)1 << 26)

/* Groups at the same time: links that may serve a phase, summed over phases. Beyond, the simplex
 * method takes hours. */
#define COPSE_GROUPS_COLUMNS 100000

/* Bounds for a size, parts in parts: questions at most, each a minimum-cost flow; and ranks at even
 * distances whose parts are asked for where there is a root. Of the catalogue 64 GPUs have up to 12
 * questions, and all bounds of it take 2 % longer. */
#define COPSE_BOUND_NESTED 64
#define COPSE_BOUND_NESTED_PARTS 8

/* Bounds for a size: up to ALL_RANKS each is asked for, with single senders added and dropped; of
 * more, one of each kind, at most RANKS (beyond COPSE_SYMMETRY_RANKS so many of them all); how many
 * partners of a rank, of how many distances the ranks beyond, how often those that are short, and
 * by how many bandwidths and latencies parts are told apart. Each question is a minimum-cost flow:
 * 32 ranks take 0.05 s, 1,024 of which no two are alike 1.2 s. */
#define COPSE_BOUND_ALL_RANKS 32
#define COPSE_BOUND_RANKS 64
#define COPSE_BOUND_RANKS_OF_MANY 8
#define COPSE_BOUND_PARTNERS 64
#define COPSE_BOUND_BALLS 24
#define COPSE_BOUND_STEPS 8
#define COPSE_BOUND_LEVELS 8

/* Trees on the fabric's own routes: ranks; routes in the programme, of both phases; rounds in which
 * pairs get more of them (of the catalogue no entry took more than 5); and the largest length of
 * its proof (verify takes 50 bits for the sum of all). */
#define COPSE_ROUTES_RANKS 64
#define COPSE_ROUTES_COLUMNS 100000
#define COPSE_ROUTES_ROUNDS 12
#define COPSE_ROUTES_LONGEST ((int64_t)1 << 36)

/* Trees hung on routes: the price of a link's load is exp(STEEP load / target), twice as steep in
 * each round up to STEEPEST; rounds; pairs of ranks that are looked at, each 0.06 us, and trees
 * times ranks; copies of each tree, up to so many; what counts as equal. Measured on 64 GPUs of
 * Perlmutter: an allgather's 64 trees are within the bound after two rounds and 0.4 ms. */
#define COPSE_ROUTES_STEEP 4
#define COPSE_ROUTES_STEEPEST 256
#define COPSE_ROUTES_LATE_ROUNDS 12
#define COPSE_ROUTES_HANG_ROUNDS 18
#define COPSE_ROUTES_WORK 4000000
#define COPSE_ROUTES_VERTICES (1 << 17)
#define COPSE_ROUTES_COPIES 8
#define COPSE_ROUTES_ROUNDING 1e-9

/* Repair of a compact schedule: ranks hanging on the root that a search for a place looks at, at
 * first, and where those hang too low, at most; and how many that hang below it may go first.
 * Measured: 1,024 to 16,384 ranks with up to 3 dead parts. */
#define COPSE_REPAIR_ENDS_AT_FIRST 32
#define COPSE_REPAIR_ENDS 2048
#define COPSE_REPAIR_BELOW 32
/* Links of a way that leads into no other host, as a rule: over a switch inside, or a NIC of two
 * GPUs. */
#define COPSE_REPAIR_NEAR 2
/* Ranks of a tree that have moved, up to which near places for what hangs below are sought again
 * after each way from afar. Without a limit 16,384 ranks without a host of eight take 95 instead of
 * 22 CPU seconds; without seeking again 1,024 GCDs of MI250 on rails with a slow NIC are 12 instead
 * of 11 hops high. */
#define COPSE_REPAIR_FEW 64
/* Trees times ranks of a healthy schedule that is repaired, of about 100 bytes each; of 1,024 ranks
 * a tree for each where no symmetries serve. */
#define COPSE_REPAIR_MOST_VERTICES (1 << 22)
/* By so many hops a repaired tree may be higher than the highest healthy one where another place
 * would be found, at first; one more each time where some tree then finds none, since for its
 * height another has entered a host twice that has room for once: two of five such sets of dead
 * parts need 3, one 4. */
#define COPSE_REPAIR_HIGHER 2
#define COPSE_REPAIR_HIGHEST 4
/* How often what finds no room takes a full link, which another tree then leaves. Of 165 sets of
 * dead parts of 144 to 256 ranks those that get through take up to some 100; 2,000 in vain take 1
 * to 2 CPU seconds there. */
#define COPSE_REPAIR_TURNS 2000
/* How often a tree that must not be too high, and finds no place for some rank, is made anew. Of
 * 1,024 ranks on rails without three NICs, and without two and two GPUs, trees are 6 hops high
 * since; 7 and 8 before. */
#define COPSE_REPAIR_AGAIN 3
/* How often the trees of what was made that are too high are made anew, beginning with the first
 * time. Of 26 sets of one to five dead parts of 96 to 1,024 ranks on rails eight were 7 to 14 hops
 * high without, seven of which are 6 since. */
#define COPSE_REPAIR_ROUNDS 3
/* Of trees from which at least so many ranks were cut off: pieces that find places each on their
 * own, so that a rank that lost all its ways out sends into several hosts, which have other ways
 * each. Of 1,024 ranks on rails without a NIC trees in 1, 4, 8 pieces are 11, 6, 6 hops high; on
 * two pods without three parts none, 6 and none are found. */
#define COPSE_REPAIR_MANY 3
#define COPSE_REPAIR_CUT 4
/* Where phases run together: prices of links begin at this steepness, which doubles where a pass
 * leaves more than a part of what is too much, up to the steepest. Of prices only the ratio
 * matters; their limits keep sums in 63 bits. Kids: ranks that hang on one that is moved, and may
 * come in before it. */
#define COPSE_REPAIR_STEEP 24
#define COPSE_REPAIR_STEEPEST 768
#define COPSE_REPAIR_MUCH 8
#define COPSE_REPAIR_ONE ((int64_t)1 << 16)
#define COPSE_REPAIR_MOST_POWER 20
#define COPSE_REPAIR_MOST_CAPACITY ((int64_t)1 << 34)
#define COPSE_REPAIR_MOST_PRICE ((int64_t)1 << 54)
#define COPSE_REPAIR_KIDS 8
/* There: by which part of it the rate is below the optimum, how many nodes a try looks at for each
 * rank, and whether what leaves ranks by links with too much is detached before. Of 1,024 ranks
 * without three parts on rails, a fat tree, two pods, a dragonfly, what gets through takes 1,400 to
 * 5,400 nodes; 10,000 in vain take up to 4 CPU seconds on the last. With 4,000 at 0.1 % that takes
 * 7.3 in all (4.8), and rails are at 0.1 % (0.5 %). 12 hosts with two slow GPUs are
 * at the optimum with that detached, else none are found; six hosts without a NIC and a GPU, with
 * a slow NIC, are found only without. */
#define COPSE_REPAIR_RATES                                                  \
  {                                                                         \
    {{0, 1}, 1000, true}, {{1, 1000}, 2000, true}, {{1, 200}, 10000, true}, \
        {{1, 100}, 10000, true}, {                                          \
      {1, 100}, 10000, false                                                \
    }                                                                       \
  }
/* From so many ranks on they are looked for first: trees of unequal shares, made one by one, take a
 * second for 64 ranks and up to nine for 128. Of fewer they are where those are high. */
#define COPSE_REPAIR_SHARES_FROM 65
/* What healthy trees are cut into at rates below the optimum, so that what is left of links is a
 * small part of each. */
#define COPSE_REPAIR_PIECES 120
/* Base roots times ranks: up to so many trees are made by symmetries before a repair is tried, and
 * with one rotation less where those of fewer base roots are not found. */
#define COPSE_MOST_BASES (1 << 17)
