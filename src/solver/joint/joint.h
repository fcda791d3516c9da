/* Several groups of terminals, each with a collective of its own, that share one network at the
 * same time: the largest rate that all of them have together. */
#pragma once

#include "base/memory.h"
#include "base/rational.h"
#include "solver/network/network.h"

struct copse_joint_group {
  int n_members;      /* at least 2 */
  const int *members; /* [n_members] nodes, each once; all other nodes relay for it */
  /* Its phases: out of the roots, into the roots. Where it has both, the roots' shares are common
   * to both and free; else each root has the same. */
  bool broadcasts, reduces;
  /* Or it has neither: every member sends each member as much, an alltoall, with a phase for what
   * goes to each. Members pass on what is not theirs. The root is -1. */
  bool exchanges;
  int root;           /* its only root, a node; -1: every member is one */
  const bool *closed; /* [n_nodes] nodes it may not use, or NULL */
  /* [n_nodes] relays that need not be balanced for it, or NULL: then the rate and its proof are a
   * bound, and its part may not carry trees. */
  const bool *unbalanced;
  /* Nodes that every tree of the phase must reach besides the members, [0] of the broadcast, [1] of
   * the reduction: switches that copy, or add. They need not be balanced. */
  int n_extra[2];
  const int *extra[2];
};

/* A node set S of the proof, for one phase of one group. */
struct copse_joint_cut {
  int group;
  bool reduce;           /* counts what enters S in the reduction; else what leaves S */
  int sink;              /* of an alltoall's phase: a member's place, outside of S; else -1 */
  struct copse_q weight; /* > 0 */
  const bool *inside;    /* [n_nodes] */
};

/* A group's part, in whole units: while `whole` of them go round, member i is the root of
 * weights[i], and link e may take broadcast[e] + reduce[e]. Both are balanced at relays, and carry
 * the trees of the phase. */
struct copse_joint_part {
  struct copse_q rate;               /* the group's */
  int64_t whole;                     /* 0 without a rate */
  const int64_t *weights;            /* [n_members] */
  const int64_t *broadcast, *reduce; /* [n_links], NULL without the phase */
  const int64_t *const *exchange; /* [n_members] of an alltoall: at least a flow to each; or NULL */
  /* [n_nodes] of the proof, 0 for members; NULL without the phase */
  const struct copse_q *broadcast_potentials, *reduce_potentials;
};

enum copse_joint_outcome {
  COPSE_JOINT_PROVED,
  /* The optimum's fractions leave 64 bits, or max_whole: parts that load links by about 1e-10 more
   * (a hundred or so over the whole), a rate that is rounded down, and a proof in rounded numbers,
   * whose bound is yet to be added up. Not of separate rates. */
  COPSE_JOINT_CLOSE,
  COPSE_JOINT_NOT_BETTER, /* than options.at_least: found before the optimum was */
  COPSE_JOINT_TOO_LARGE,  /* beyond options.max_columns */
  COPSE_JOINT_STUCK,      /* the rounds ran out, or, of whole links, the simplex method fails */
  COPSE_JOINT_UNPROVED    /* fractions leave 64 bits; where links are not whole also: the simplex
                             method fails */
};

/* What limits links in place of their own capacities: sums over some of them. */
struct copse_joint_limits {
  int n;
  const int64_t *capacities; /* [n] > 0 */
  const int *first, *of;     /* link e counts in of[first[e]] ... of[first[e + 1] - 1], each once */
};

struct copse_joint_options {
  int max_columns; /* sum over phases of links that may serve it, those counted once that symmetries
                      map to each other */
  int64_t max_whole; /* of a part, or its fractions count as too fine; 0: as 64 bits allow */
  int n_symmetries;  /* permutations of nodes that keep links and capacities and take groups to
                        groups  of the same kind: members to members, root to root, closed and extra
                        nodes  to such */
  const struct copse_permutation *symmetries; /* [n_symmetries] */
  bool separate; /* each group has a rate of its own, and the sum is what counts: ways to do one
                    and the same thing. There is no proof to hand on. */
  struct copse_q
      most; /* of its group's rate that a root of free share may have; 0/1: any. What
               there is of a proof is then none: it is of a programme with these limits */
  /* One group that broadcasts and reduces, without symmetries, closed, extra or unbalanced nodes:
   * what the broadcast leaves of a link is the reduction's, so that one column says both. Found in
   * about half the time or less; loads are not the least. The shares are as even as the
   * optimum allows: the largest is within a factor of two of the least possible, where the simplex
   * method finds such, which makes more, but lower trees. */
  bool whole_links;
  struct copse_q at_least; /* of whole links: a rate that is known to be possible; 0/1: none */
  /* NULL: none. No symmetries then, no alltoalls and no whole links; capacities of links only say
   * how large numbers are. The proof is the prices. */
  const struct copse_joint_limits *limits;
  const struct copse_progress *progress;
};

struct copse_joint {
  enum copse_joint_outcome outcome;
  struct copse_q rate;            /* of every group: what its roots send in all; or the sum */
  struct copse_joint_part *parts; /* [n_groups] */
  int n_cuts;
  const struct copse_joint_cut *cuts;
  bool rounded_proof;           /* CLOSE: and its cuts prove less than the optimum, by little */
  const struct copse_q *prices; /* [limits->n] with limits: the multipliers of their rows, >= 0 */
  int columns, rounds;
  struct copse_arena arena;
};

/*
 * Solves the linear programme
 *
 *   maximise R   over R, x_g[v] >= 0 and, for each phase q of a group g, 0 <= a_q[e]
 *   on every link e:                   sum_q a_q[e] <= capacity[e]
 *   for relays w, each q:              a_q(entering w) = a_q(leaving w)
 *   for S that misses a member of g:   x_g(S) <= a_q(leaving S), a broadcast
 *                                      x_g(S) <= a_q(entering S), a reduction
 *   for each g:                        sum_v x_g[v] = R, and x_g[v] = R / roots unless free
 *
 * (of an alltoall a phase is what goes to one member, and a_q is the flow itself: every other
 * member adds its share to it, x_g[v]) is the problem: the loads of trees over paths are such an a,
 * and by Edmonds' theorem, with edge splitting at the relays, which are balanced, every such a
 * carries such trees; the groups meet only in the first row. It is solved by cutting planes: the
 * cuts found so far, and maximum flows per phase and member for those that its solution violates,
 * several around each member. The multipliers of an alltoall's rows are distances to the member;
 * the proof has them as cuts, one between every two. With one group that reduces and broadcasts
 * this is an allreduce with free shares (with edge flows in place of cuts: Basu et al., arXiv
 * 2309.13541).
 *
 * With limits the second row is sum_q a_q[e], over the links e that count in it, <= its capacity,
 * for each limit. Prices of limits make lengths of links: every tree of the root v is as long as
 * the shortest one, and all limits together have sum capacity * price. So R is at most that over
 * the mean (with free shares the least) length of a shortest tree of a root.
 *
 * What is left of the links when R is as large as it can be allows many solutions; one that takes
 * the least of them makes short trees and is found in few rounds, over the links of shortest ways
 * at first. So the objective is a large number times R less the sum of a; then R alone, over all
 * links, for the proof, which says what links and cuts are missing if there is none yet.
 *
 * Rationals show that R is the optimum of the cuts so far (solver/lp/linear_programme.h), maximum
 * flows over integers that the solution violates no cut. The proof to hand on: for any weights
 * y >= 0 of cuts and any potentials p of relays
 *
 *   R * D <= sum_e capacity[e] * max(0, max_q W_q[e] - (p_q[dst] - p_q[src]))
 *
 * where W_q[e] is the weight of those of q's cuts that e crosses, and D adds up, over the groups,
 * the least that the cuts ask for: with free shares the smallest weight around a member (of the
 * group's cuts that hold it), else the mean over its roots of the weight around each. For a tree of
 * root v crosses each cut that holds v, and its load is balanced at relays. PROVED means that both
 * sides are equal.
 *
 * With symmetries there is one optimum that is alike under all of them: the mean over the images of
 * any. So the programme has one column and one row for all that they map to each other, and the
 * proof a cut or potential that stands for the mean over its images: W_q[e], the potential of a
 * node in a phase and the weight around a member each become the mean over what the symmetries map
 * them to. They are checked: COPSE_INTERNAL for one that is none.
 *
 * Where several groups broadcast and reduce, and each link has a link back of the same capacity, a
 * reduction has of a link what its group's broadcast has of the link back: half as many columns and
 * rows. The proof has each cut for both phases, with half the weight. Not with limits, extra nodes
 * or separate rates.
 *
 * Several groups of few members are tried by paths from member to member first, in a much smaller
 * programme (paths.c): not with symmetries, limits, separate rates, extra or unbalanced nodes or
 * alltoalls.
 *
 * network->terminals and ->roots are not used. COPSE_OK with the outcome in *out, which the caller
 * frees in every case; R = 0 where some member can't be reached. COPSE_NOMEM. Deterministic.
 * Complexity: rounds (some tens) * (phases * members * max flow + simplex).
 */
copse_status copse_joint_find(const struct copse_network *network,
                              const struct copse_joint_group *groups, int n_groups,
                              const struct copse_joint_options *options, struct copse_joint *out,
                              struct copse_err *err) COPSE_CHECKED;
void copse_joint_free(struct copse_joint *joint);
