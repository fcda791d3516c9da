/* Tree packing in parts: the trees of one root (pack_root.c), the order of the whole, with its
 * proof (pack.c). */
#ifndef COPSE_SOLVER_TREES_PACK_INTERNAL_H
#define COPSE_SOLVER_TREES_PACK_INTERNAL_H

#include "solver/network/cuts.h"
#include "solver/trees/pack.h"
#include "solver/network/sinks.h"

struct copse_pack_link {
  int dst;
  int64_t left;    /* capacity not yet used by trees */
  int64_t in_flow; /* what the flow graph believes of it */
  int blocked_for; /* the family that can't use it any more; a tight cut stays tight */
};

/* A family of equal trees of one root, finished up to `n_edges`. */
struct copse_pack_family {
  int64_t multiplicity;
  int n_edges;
  struct copse_packed_edge *edges; /* [n_terminals - 1] */
};

struct copse_packer {
  const struct copse_network *network;
  int64_t k;
  struct copse_flow *flow; /* node `hub`: where the other families' needs hang */
  int hub;
  struct copse_packing *out;
  struct copse_pack_link *links; /* by source: links[first_link[v]] .. */
  int *first_link;               /* [n_nodes + 1] */
  int64_t others;    /* sum of multiplicities of all unfinished families but the current */
  int64_t unbounded; /* that of all families: no flow asked for is larger */
  struct copse_pack_family *waiting; /* copies split off the current root's families */
  int n_waiting;
  struct copse_pack_family current;
  int root, family_id;
  int *order; /* [n_terminals] vertices of the tree in the order they joined */
  int n_order;
  bool enters_once;  /* a tree enters a known cut again only where nothing else is left */
  bool once;         /* only links that don't are looked at now */
  int first_open[2]; /* with `once`, without: vertices before it have no usable link left */
  bool *in_tree;     /* [n_nodes] */
  int64_t *need;     /* [n_nodes] of roots not begun yet: the capacity of hub -> root */
  struct copse_cuts cuts;
  struct copse_sinks sinks;
  unsigned char *touched; /* [cuts.most] whether the current family is in the cut already */
  unsigned char *inside;  /* [n_nodes] scratch: one cut */
  bool trusting;          /* only the known cuts are asked, and the flow graph is not kept */
  bool stuck;             /* a tree could not be finished by trust */
  int64_t *saved_left;    /* [n_links] at the beginning of a batch */
};

/*
 * All trees of one root: the family, then every copy that was split off on the way. p->stuck: one
 * could not be finished by trust.
 */
copse_status copse_packer_root(struct copse_packer *p, const struct copse_net_root *root,
                               struct copse_err *err) COPSE_CHECKED;

#endif
