/*
 * The store of known cuts. A cut is the set of nodes that must be entered, with what the links into
 * it can spare beyond what must enter. A search that stays within the narrow cuts that are known
 * rarely breaks another one, so it can run ahead of the proof: one maximum flow per terminal for
 * many steps in place of some for each. Edge splitting, packing and the growing of trees over
 * physical links all keep their cuts here.
 */
#pragma once

#include "base/graph.h"
#include "solver/network/network.h"

/* The cuts that hold a node. */
struct copse_cuts_of_node {
  int *cuts; /* [n] */
  int n, capacity;
};

struct copse_cuts {
  int n_nodes, n;
  int most;                      /* cuts at most; 0: any number, and no flags */
  int64_t *slack;                /* [n] by how much the links into the set exceed what must enter */
  uint64_t *hash;                /* [n] of the set */
  struct copse_cuts_of_node *of; /* [n_nodes] */
  unsigned char *flags;          /* [n_nodes * most] by node: whether it is in each cut; or NULL */
  struct copse_index_map by_hash;
  int *scratch; /* [n_nodes] */
  int *block;   /* all lists, once they are in one block */
  size_t slack_capacity, hash_capacity;
};

/* Makes an empty store. With `most` > 0 a test of membership is one look at n_nodes * most bytes,
 * and when all places are taken a new cut replaces the one that can spare most; else it searches
 * the node's list. COPSE_NOMEM. Free it in every case. */
copse_status copse_cuts_new(int n_nodes, int most, struct copse_cuts *out,
                            struct copse_err *err) COPSE_CHECKED;
void copse_cuts_free(struct copse_cuts *cuts);

/*
 * Adds the set of `nodes` [n], or that given by flags `inside` [n_nodes], unless it is known.
 * *place (may be NULL): where, -1 if it was known. Sets are compared by hashes of 64 bits: an equal
 * hash of another set would lose a hint, never a proof. COPSE_NOMEM. Complexity: O(n), for flags
 * and where a cut is replaced O(n_nodes).
 */
copse_status copse_cuts_add(struct copse_cuts *cuts, const int *nodes, int n, int64_t slack,
                            int *place, struct copse_err *err) COPSE_CHECKED;
copse_status copse_cuts_add_flags(struct copse_cuts *cuts, const unsigned char *inside,
                                  int64_t slack, int *place, struct copse_err *err) COPSE_CHECKED;

/* Puts, after the last cut, all lists in one block, node by node, for searches that go from one to
 * the next (8 % of a broadcast among 16,384 ranks). COPSE_NOMEM. */
copse_status copse_cuts_join_lists(struct copse_cuts *cuts, struct copse_err *err) COPSE_CHECKED;

/* Whether `node` is in a cut. */
static inline bool copse_cuts_hold(const struct copse_cuts *cuts, int cut, int node) {
  if (cuts->flags) return cuts->flags[(size_t)node * (size_t)cuts->most + (size_t)cut];
  for (int i = 0; i < cuts->of[node].n; i++)
    if (cuts->of[node].cuts[i] == cut) return true;
  return false;
}

/* Returns, with `most` > 0, which cuts hold `node`, as flags [n]. */
static inline const unsigned char *copse_cuts_flags(const struct copse_cuts *cuts, int node) {
  return cuts->flags + (size_t)node * (size_t)cuts->most;
}

/*
 * Makes a store with flags of the tight cuts nearest to `sinks`, as wide as what must enter them
 * for k trees per unit of root weight, of more than one and fewer than all terminals: hosts, as a
 * rule. slack is 0. COPSE_NOMEM, COPSE_OVERFLOW. Complexity: a maximum flow per sink
 * (network/flow.h).
 */
copse_status copse_cuts_tight(const struct copse_network *network, const int64_t *capacities,
                              int64_t k, const int *sinks, int n_sinks, struct copse_cuts *out,
                              struct copse_err *err) COPSE_CHECKED;

/*
 * Makes a store of nested sets: for every capacity (the largest COPSE_NESTED_CAPACITIES of them)
 * the sets of nodes that links of more than it join: hosts, boards, pods, one within the other.
 *
 *     [ (gpu gpu) (gpu gpu) ]--- rail ---[ (gpu gpu) (gpu gpu) ]      ( ) boards   [ ] hosts
 *
 * Listed are those that are entered over less than `narrow`, of more than one and fewer than all
 * terminals; of a set that holds `root` what is around it. No flow is asked: they guide, and prove
 * nothing. slack is 0. COPSE_NOMEM. Complexity: O((links + nodes) * sets that hold a node).
 */
copse_status copse_cuts_nested(const struct copse_network *network, const int64_t *capacities,
                               int root, int64_t narrow, struct copse_cuts *out,
                               struct copse_err *err) COPSE_CHECKED;
