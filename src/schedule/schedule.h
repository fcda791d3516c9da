/*
 * A schedule: weighted spanning trees over physical paths, with the bound that shows how
 * good they are. What solve makes, verify proves and lower turns into a plan.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/graph.h"
#include "base/memory.h"
#include "base/rational.h"
#include "base/text.h"

enum copse_phase { COPSE_PHASE_BROADCAST, COPSE_PHASE_REDUCE };

struct copse_schedule_edge {
  int src, dst;    /* ranks */
  const int *path; /* [n_path] indices into `nodes`, from src's to dst's */
  int n_path;
};

/*
 * Broadcast: edges lead away from the root, each src reached before. Reduce: edges lead
 * to the root, each src after all of its children. Both span all ranks.
 *
 * An allreduce in stages (recursive doubling) has trees that are each of a stage, and not over all
 * ranks. M is cut into pieces. For each piece the ranks begin with their own input as their sum; in
 * every stage broadcast trees bring the sums of their roots, as they were before the stage, to the
 * ranks that they reach, which add them to theirs in the order of the roots. Reduce trees add up
 * their ranks' sums at the root; the others then have none, until one is brought to them. A piece's
 * stage has trees of one phase, and a rank in one reduce tree at most. After the stages every rank
 * has each input once. Trees are listed by piece, stage and root.
 */
struct copse_schedule_tree {
  int root; /* rank */
  enum copse_phase phase;
  struct copse_q weight; /* fraction of M, > 0; in stages that of its piece */
  int n_edges;           /* n_ranks - 1; in stages from 0 on */
  const struct copse_schedule_edge *edges;
  int stage; /* from 1; 0: no stages */
  int piece; /* from 0 */
};

/* One way of a flow: weight is the fraction of M that takes it, > 0. */
struct copse_schedule_path {
  const int *nodes; /* [n_nodes] indices into the schedule's nodes, from src's to dst's;
                       ranks in between forward (store and forward) */
  int n_nodes;
  struct copse_q weight;
};

/* All that rank src sends to rank dst in an alltoall; at most one flow per pair. */
struct copse_schedule_flow {
  int src, dst; /* ranks, src != dst */
  int n_paths;
  const struct copse_schedule_path *paths;
};

/* A length of an alltoall's dual certificate: of the link between two nodes, > 0. */
struct copse_schedule_length {
  int src, dst; /* indices into the schedule's nodes */
  struct copse_q length;
};

/* One node set S of an allreduce's certificate, with its multiplier. */
struct copse_schedule_cut {
  enum copse_phase phase; /* broadcast: counts what leaves S; reduce: what enters S */
  struct copse_q weight;  /* > 0 */
  const int *nodes;       /* [n_nodes] indices into the schedule's nodes */
  int n_nodes;
};

/* Nodes of one time; or nodes that count as one, with us 0. */
struct copse_schedule_part {
  struct copse_q us;
  const int *nodes; /* [n_nodes] indices into the schedule's nodes */
  int n_nodes;
};

/* A relay's potential in that certificate, of any sign. Relays that are not listed have 0. */
struct copse_schedule_potential {
  int node; /* index into the schedule's nodes */
  struct copse_q value;
};

/*
 * COPSE_BOUND_CUT: one cut; for an allreduce it holds for any algorithm.
 * COPSE_BOUND_PHASES: an allreduce's two phases, each at its own optimum, one after the
 * other, with equal shares: the sum of two cut bounds.
 * COPSE_BOUND_LENGTHS: an alltoall, by linear programming duality (docs/theory.md): for
 * any link lengths l >= 0, T/M >= sum_ij demand(i,j)/M * dist_l(i,j) / sum_e b_e l_e.
 * COPSE_BOUND_FORESTS: an allreduce by a reduce and a broadcast forest with the same shares per
 * root, whichever shares and trees, run together. Let Y_e (Z_e) be the weight of the broadcast
 * (reduce) cuts that link e leaves (enters), p the potentials; the weights of the cuts around
 * every rank add up to 1 or more, and every cut misses a rank. A tree of root v crosses each
 * cut around v, and along its paths from rank to rank the differences of p add up to 0, so
 *   T/M >= 1 / sum_e b_e max(Z_e, Y_e - (p[dst] - p[src])).
 * Of other algorithms it says nothing. Where a switch is multicast or aggregates, loads of its
 * links are not all counted, and p must be 0 at it and beside it.
 */
enum copse_bound_kind {
  COPSE_BOUND_CUT,
  COPSE_BOUND_PHASES,
  COPSE_BOUND_LENGTHS,
  COPSE_BOUND_FORESTS
};

/*
 * Node sets S, as indices into `nodes`. `cut` bounds what must leave S in a broadcast
 * phase, `reduce_cut` what must enter S in a reduce phase; a collective of one phase
 * has the one that fits it, in `cut` (that is how files carry it). COPSE_BOUND_FORESTS:
 * one that bounds any allreduce, for what it is worth; it may be missing, n_cut 0.
 */
struct copse_bound {
  enum copse_bound_kind kind;
  struct copse_q time_per_GB;
  const int *cut;
  int n_cut;
  const int *reduce_cut; /* COPSE_BOUND_PHASES only */
  int n_reduce_cut;
  const struct copse_schedule_length *lengths; /* COPSE_BOUND_LENGTHS only */
  int n_lengths;
  const struct copse_schedule_cut *cuts; /* COPSE_BOUND_FORESTS only */
  int n_cuts;
  const struct copse_schedule_potential *potentials; /* COPSE_BOUND_FORESTS only */
  int n_potentials;
};

/* Returns the cut that bounds: of COPSE_BOUND_FORESTS that of most weight, else the first; n_nodes
 * 0: none. */
struct copse_schedule_cut copse_bound_main_cut(const struct copse_bound *bound);

/*
 * What no schedule beats for a message of some bytes, latencies counted (docs/theory.md, "Every
 * size"): a link e takes its latency, and alpha where it leads to a rank. `times` p of nodes, from
 * 0 to T = us, are a cut that moves: what is sent before p(v) comes too late at v to count. With
 * `reversed` all links are taken turned around, and who sends receives. Every statement is an
 * equation between a sum over links, of what can cross in T, and the bytes that must.
 *
 * COPSE_BOUND_AT_CUT: sum of b_e max(0, p[dst] - p[src] - latency_e) is what must go from ranks of
 * time 0 to ranks of time T.
 * COPSE_BOUND_AT_VOLUME: messages that must come from parts of the nodes into others: a link out of
 * a part opens when data may be there, one into a part closes when nothing of it reaches a rank in
 * time, and p stands for relays outside. Parts have s = part_ranks ranks or more, c is the least
 * that a message takes. Then ((s-1) A(T-c) + A(T)) / s is (k - 1) M among k parts; of an allreduce
 * ((s-1)^2 A(T-2c) + 2 (s-1) A(T-c) + A(T)) / s^2 is 2 (k - 1) M. A(T - x) is that sum over links
 * with parts that open x later. `times` are those of A(T), `later` of the others.
 * COPSE_BOUND_AT_ROUNDS: of an allreduce. With d, the least of a message from part to part: that
 * left side and (k - 1) ((s-1) A(T-d-c) + A(T-d)) / s is k (k - 1) M.
 * COPSE_BOUND_AT_NESTED: what must come into a set of nodes, which are those without a time. Its
 * ranks are in parts, outside those of an allreduce too. x is c + d, of an allreduce twice that; c
 * is 0 where part_ranks is 1. Within T - x the links into the set can carry, by `times`, what is
 * due but for what each part can get otherwise (docs/theory.md, "Parts in parts").
 * COPSE_BOUND_AT_LENGTHS: an alltoall, by the lengths l of its COPSE_BOUND_LENGTHS; sum of
 * l_e b_e max(0, T - latency_e - before_e - after_e) is the sum of demand(i,j) * dist_l(i,j);
 * before_e and after_e: the least latency from a rank to the link and from it to a rank.
 */
enum copse_bound_at_kind {
  COPSE_BOUND_AT_CUT,
  COPSE_BOUND_AT_VOLUME,
  COPSE_BOUND_AT_LENGTHS,
  COPSE_BOUND_AT_ROUNDS,
  COPSE_BOUND_AT_NESTED
};

/* Of nodes before the end, which all others have. */
struct copse_schedule_times {
  const struct copse_schedule_part *parts;
  int n;
};

struct copse_bound_at {
  int64_t bytes; /* M */
  struct copse_q alpha_us;
  struct copse_q us; /* T */
  enum copse_bound_at_kind kind;
  bool reversed;
  int rank; /* COPSE_BOUND_AT_CUT: the rank that receives all (`reversed`: sends); -1: none */
  struct copse_schedule_times times;
  const struct copse_schedule_times *later; /* _VOLUME, _ROUNDS: of A(T - x), x rising */
  int n_later, part_ranks;
  const struct copse_schedule_part *parts; /* of _VOLUME, _ROUNDS, _NESTED; none: ranks are */
  int n_parts;
};

/*
 * All edges take routes that hardware takes of itself (topology/route.h), and no forest of such
 * edges, with a copy for each receiver, has less time. For lengths l >= 0 of links let a_r be the
 * least length of a tree of root r, each edge over a shortest of the pair's routes; then
 *   T/M >= sum_r share_r a_r / sum_e b_e l_e,
 * of an allreduce with both trees of a root in a_r, and for any shares: the least a_r.
 */
struct copse_schedule_routes {
  struct copse_q time_per_GB;
  const struct copse_schedule_length *lengths;
  int n_lengths;
};

#define COPSE_SCHEDULE_MAX_ROTATIONS 32
#define COPSE_SCHEDULE_MAX_CHUNKS 4096

/*
 * The message that a schedule was made for: then the order of trees and of their edges counts (what
 * asks for a link at the same moment takes it in that order), and every tree or path is cut into
 * `chunks` at this size and up to where they exceed COPSE_CHUNK_BYTES.
 */
struct copse_schedule_objective {
  int64_t bytes; /* M; 0: it is for long messages, cut as schedule/chunks.h says */
  int chunks;
  int fifo; /* slots of a plan's buffers, 1 to COPSE_MOST_FIFO; 0: one for each chunk,
               as far as there can be so many */
  struct copse_q alpha_us; /* the software cost of a hop that was reckoned with */
  bool alpha_occupies;     /* and latencies keep links busy (predict/simulate.h) */
  bool far_first;          /* trees: of what asks for a link at the same moment first goes what has
                              the most hops behind that one, of as many that of the first tree */
};

/*
 * Of the compact form: a part of the weight of one image of a base tree goes another way. Each edge
 * replaces the one into its dst (in a reduce tree, out of its src). Both ends are ranks of the
 * image, not of the base tree.
 */
struct copse_schedule_change {
  int tree;              /* of the listed ones */
  int64_t image;         /* number of the image, in the order of schedule/images.h */
  struct copse_q weight; /* > 0 */
  int n_edges;
  const struct copse_schedule_edge *edges;
};

struct copse_schedule {
  copse_collective collective;
  int root; /* broadcast, reduce; else -1 */
  const char *topology_name;
  const char *topology_sha256; /* "" if the file has none */
  int n_ranks;
  const int *rank_nodes; /* [n_ranks + n_absent] index into nodes */
  int n_nodes;
  const char *const *nodes;   /* ids */
  int64_t k;                  /* trees per root (of weight 1/(N k) each); of an allreduce with
                                 unequal shares only the unit 1/(N k); 0 if not stated */
  struct copse_q time_per_GB; /* seconds per GB; 0 for a single rank */
  struct copse_bound bound;
  const struct copse_bound_at *bound_at; /* for the size it was made for; NULL: none is stated */

  const struct copse_schedule_routes *routes; /* NULL: edges take any paths */

  struct copse_schedule_objective objective;
  int n_trees;
  const struct copse_schedule_tree *trees;
  int n_flows; /* alltoall: instead of trees; pairs without demand have none */
  const struct copse_schedule_flow *flows;
  const int64_t *demand; /* alltoall: [n_ranks * n_ranks] bytes, row = sender; NULL: uniform,
                            M/N from every rank to every rank (its own block stays) */
  /* Compact form: the trees or flows in the file are those of base ranks. The others are their
   * images under the powers 1 .. order-1 of a permutation of the nodes; with several permutations,
   * all those of the first one are moved by the second, and so on. An alltoall has at most one. */
  int n_rotations; /* 0: all trees or flows are listed */
  const struct copse_permutation *rotations;
  /* Symmetric except for changes, as a broken cluster is. Symmetries then map more nodes than there
   * are, and trees have more ranks: those behind n_ranks are absent. Images leave them out, with
   * the edge to them, and images of trees with such a root; nothing may hang below one. Loads are
   * counted with a copy for each receiver. */
  bool excepted;
  int n_absent, n_changes;
  const struct copse_schedule_change *changes; /* by tree, then by image */
  bool no_forward; /* alltoall: ranks do not relay; the bound holds under that rule */
  /* Switches whose copying (multicast) or adding (aggregation) the time counts on: with a copy for
   * each receiver it would be longer. Indices into nodes. */
  int n_copying, n_adding;
  const int *copying, *adding;
  bool others_excluded; /* GPUs that are no ranks, and their links, are left out, and the bound
                           holds without them; else they relay */
  struct copse_arena arena;
};

/* Whether it is an allreduce in stages. */
static inline bool copse_schedule_doubles(const struct copse_schedule *schedule) {
  return schedule->n_trees > 0 && schedule->trees[0].stage > 0;
}

/* Returns the smallest k for which all trees' weights are multiples of 1/(N k), with a root of 1/k;
 * 0 where that has more than 63 bits. */
int64_t copse_schedule_unit_k(const struct copse_schedule *schedule);
/* Whether both have trees, as many, in one order of the same roots, phases, weights and edges over
 * the same paths. */
bool copse_schedule_same_trees(const struct copse_schedule *a, const struct copse_schedule *b);

/*
 * Replaces values [n] by those under all powers of a permutation: each cycle's sum, so often as
 * the powers go around it. COPSE_INVALID where a cycle's length does not divide the order;
 * COPSE_OVERFLOW.
 */
copse_status copse_sum_cycles(int order, const int *image, int n, struct copse_q *values,
                              struct copse_err *err) COPSE_CHECKED;

/* Returns the largest chunk of a schedule with an objective: COPSE_CHUNK_BYTES, or what its largest
 * transfer is cut into at its size. */
int64_t copse_schedule_chunk_bytes(const struct copse_schedule *schedule);

/* Copies a tree into the arena, with a part of its weight. COPSE_NOMEM, COPSE_OVERFLOW. */
copse_status copse_tree_copy(const struct copse_schedule_tree *from, struct copse_q part,
                             struct copse_arena *arena, struct copse_schedule_tree *to,
                             struct copse_err *err) COPSE_CHECKED;

/* Counts the images of a compact schedule's trees or flows, themselves included; 1 for others. */
int64_t copse_schedule_images(const struct copse_schedule *schedule);

/*
 * Lists all trees or flows of a compact schedule, in place: n_rotations becomes 0. Nothing to do
 * for others. COPSE_NOMEM also for what would take more than 8 GiB, with how much it is. After a
 * failure the schedule is as it was.
 */
copse_status copse_schedule_expand(struct copse_schedule *schedule,
                                   struct copse_err *err) COPSE_CHECKED;

/* Counts the trees, or flows, that it lists, without that: an image whose root is absent is none,
 * and a change is one beside what it leaves of its image. -1 where memory runs out. */
int64_t copse_schedule_count_all(const struct copse_schedule *schedule);

/* Counts the paths of all flows that are listed. */
int copse_schedule_paths(const struct copse_schedule *schedule);

/* Counts the edges of all trees. */
int64_t copse_schedule_edges(const struct copse_schedule *schedule);

/* Returns the longest way in hops between ranks: from a root over all trees, or over all flows'
 * paths. */
int copse_schedule_height(const struct copse_schedule *schedule);

/* Returns the trees' heights on average, each by its weight; 0 without trees. */
double copse_schedule_mean_height(const struct copse_schedule *schedule);

/* Returns M / T in GB/s; infinity for a single rank. For reports. */
double copse_schedule_algbw(const struct copse_schedule *schedule);

/* Makes a copy that borrows what it was copied from, to be changed; the caller releases it
 * first. */
copse_status copse_schedule_borrow(const struct copse_schedule *from, struct copse_schedule **out,
                                   struct copse_err *err) COPSE_CHECKED;

/* Another way from rank to rank in place of *nodes [*n_nodes], in the arena; or the same. */
typedef copse_status copse_change_way(void *context, struct copse_arena *arena, int src, int dst,
                                      const int **nodes, int *n_nodes, struct copse_err *err);
/* Changes all ways of the trees' edges and of the flows, each in turn; the schedule's own trees and
 * flows, which others may have borrowed, stay as they were. */
copse_status copse_schedule_change_ways(struct copse_schedule *schedule, copse_change_way *change,
                                        void *context, struct copse_err *err) COPSE_CHECKED;

static inline void copse_schedule_free_at(struct copse_schedule **schedule) {
  copse_schedule_free(*schedule);
}

/* Schedule JSON, "copse-schedule/1": prints the struct copse_schedule. */
copse_text_printer copse_schedule_print;
/* Writes it in memory; the caller frees *text. */
copse_status copse_schedule_to_json(const struct copse_schedule *schedule, char **text,
                                    size_t *size, struct copse_err *err) COPSE_CHECKED;

/*
 * Reads schedule JSON and checks all that needs no topology: known keys, ids, spanning
 * trees in order, weights that add up to the shares. COPSE_BAD_INPUT with the line.
 */
copse_status copse_schedule_parse(const char *label, const char *data, size_t size,
                                  struct copse_schedule **out, struct copse_err *err) COPSE_CHECKED;
copse_status copse_schedule_load(const char *path, struct copse_schedule **out,
                                 struct copse_err *err) COPSE_CHECKED;
/*
 * Reads the same for a verifier, to whom a wrong schedule is a result: COPSE_REFUTED, not
 * COPSE_BAD_INPUT, for trees, paths, shares, k and algbw that are well formed but wrong.
 */
copse_status copse_schedule_load_claim(const char *path, struct copse_schedule **out,
                                       struct copse_err *err) COPSE_CHECKED;
