/* What the solver works on: a directed graph with integer capacities, nothing of GPUs.
 * Terminals must all receive every root's data; other nodes are relays that only forward. */
#pragma once

#include <stdio.h>
#include <string.h>

#include "base/graph.h"

struct copse_net_link {
  int src, dst;
  int64_t capacity; /* > 0 */
};

/* A root and its share of the data, relative to the sum over roots. */
struct copse_net_root {
  int node;
  int64_t weight; /* > 0 */
};

/*
 * Symmetry, if it is known: `sinks` are terminals, at least one of every orbit under permutations
 * of the nodes that keep links, capacities, terminals and the roots' weights. Such a permutation p
 * takes a flow from all roots to v, each root giving in proportion to its weight, to one of the
 * same value to p(v), and p's inverse takes it back; so what is proved by a flow to each sink is
 * proved for all terminals.
 */
struct copse_network {
  int n_nodes, n_links, n_terminals, n_roots;
  const struct copse_net_link *links; /* [n_links], at most one per ordered pair */
  const int *terminals;               /* [n_terminals] node indices */
  const struct copse_net_root *roots; /* [n_roots] terminals, each at most once */
  int n_sinks;                        /* 0: every terminal counts for itself */
  const int *sinks;                   /* [n_sinks] */
  int threads;                        /* at most, for flows to all sinks; 0: one per processor */
};

/*
 * Known symmetries: permutations of the nodes that map links to links of equal capacity, terminals
 * to terminals and roots to roots of equal weight. What was found for base nodes holds for their
 * images. The generators commute, and their products move no root onto itself unless they move
 * nothing.
 */
struct copse_network_symmetry {
  int n;
  const struct copse_permutation *generators; /* [n], orders >= 2 */
};

/* Finds the image of each link; COPSE_INTERNAL if the rotation maps one to no link of equal
 * capacity. COPSE_NOMEM; the arena owns *image. */
copse_status copse_links_image(const struct copse_network *network,
                               const struct copse_permutation *rotation, struct copse_arena *arena,
                               int **image, struct copse_err *err) COPSE_CHECKED;
/* Finds orbits under the products of n generators: first[e] [n_links] is the first link that they
 * take e to. The arena owns *first. COPSE_NOMEM, COPSE_INTERNAL as above. */
copse_status copse_links_orbits(const struct copse_network *network,
                                const struct copse_permutation *generators, int n,
                                struct copse_arena *arena, int **first,
                                struct copse_err *err) COPSE_CHECKED;
/* Finds the orbits of nodes in the same way: first[v] [n_nodes]. */
copse_status copse_nodes_orbits(const struct copse_network *network,
                                const struct copse_permutation *generators, int n,
                                struct copse_arena *arena, int **first,
                                struct copse_err *err) COPSE_CHECKED;

/* Lists links by their source (copse_links_by_destination: by where they lead to). COPSE_NOMEM; the
 * arena owns the arrays. */
copse_status copse_links_by_source(const struct copse_network *network, struct copse_arena *arena,
                                   struct copse_adjacency *out,
                                   struct copse_err *err) COPSE_CHECKED;
copse_status copse_links_by_destination(const struct copse_network *network,
                                        struct copse_arena *arena, struct copse_adjacency *out,
                                        struct copse_err *err) COPSE_CHECKED;

/* Whether all roots have the same share. */
bool copse_network_equal_weights(const struct copse_network *network);

/* Finds which nodes are terminals: *flags [n_nodes]. COPSE_NOMEM; the arena owns them. */
copse_status copse_network_terminals(const struct copse_network *network, struct copse_arena *arena,
                                     bool **flags, struct copse_err *err) COPSE_CHECKED;

/* Called now and then during long work; without a function nothing is reported. */
struct copse_progress {
  void (*report)(void *ctx, const char *phase, int64_t done, int64_t total);
  void *ctx;
  /* For people who look on: a graph on the way from the network to trees, links [n] in units of one
   * tree, of k trees per unit of root weight. NULL: nobody looks on. */
  void (*stage)(void *ctx, const char *graph, int64_t k, const struct copse_net_link *links, int n);
  /* The same: a candidate, and what it came to, as a line of text. */
  void (*tried)(void *ctx, const char *text);
};
static inline void copse_progress_report(const struct copse_progress *progress, const char *phase,
                                         int64_t done, int64_t total) {
  if (progress && progress->report) progress->report(progress->ctx, phase, done, total);
}

/* Parts of like work [n], of which part i is at work, as one phase for people who look on: of a
 * part's own phases the one that is named. */
struct copse_progress_parts {
  const struct copse_progress *all;
  const char *of;
  char phase[40];
  int64_t i, n;
};
static inline void copse_progress_report_part(void *ctx, const char *phase, int64_t done,
                                              int64_t total) {
  const struct copse_progress_parts *p = (const struct copse_progress_parts *)ctx;
  if (strcmp(phase, p->of) != 0 || total <= 0) return;
  copse_progress_report(p->all, p->phase, p->i * total + (done < total ? done : total),
                        p->n * total);
}
static inline void copse_progress_tell_part(void *ctx, const char *text) {
  const struct copse_progress_parts *p = (const struct copse_progress_parts *)ctx;
  p->all->tried(p->all->ctx, text);
}
/* Returns what a part reports to, as "NAME OF". */
static inline struct copse_progress copse_progress_begin_parts(struct copse_progress_parts *parts,
                                                               const struct copse_progress *all,
                                                               const char *name, const char *of,
                                                               int64_t n) {
  *parts = (struct copse_progress_parts){.all = all, .of = of, .n = n};
  snprintf(parts->phase, sizeof parts->phase, "%s %s", name, of);
  return (struct copse_progress){.report = copse_progress_report_part,
                                 .ctx = parts,
                                 .tried = all && all->tried ? copse_progress_tell_part : NULL};
}

/* ---- shortest ways from one node, exact in integers, fewest hops among equals --------------- */

/* Lengths may be up to this, or more where no way is longer than 4096 times that; a path has less
 * than 4096 links. */
#define COPSE_LENGTH_MAX ((int64_t)1 << 36)

struct copse_shortest {
  const struct copse_network *network;
  struct copse_adjacency leaving; /* links by source */
  struct copse_nearest nearest;   /* hops in the low bits of distances */
  /* of the last run: */
  int *via;   /* [n_nodes] the link by which a node is reached, -1 at the source and unreached */
  int *order; /* [n_order] the nodes that were reached, nearest first */
  int n_order;
};

/* Takes the arrays from the arena, which owns them. COPSE_NOMEM. */
copse_status copse_shortest_prepare(const struct copse_network *network, struct copse_arena *arena,
                                    struct copse_shortest *out,
                                    struct copse_err *err) COPSE_CHECKED;

/*
 * Runs Dijkstra's algorithm from `source` with lengths [n_links], 0..COPSE_LENGTH_MAX. blocked
 * (may be NULL, [n_nodes]): nodes that can be reached and not passed. Ties go to fewer hops, then
 * to the link that comes first, so the tree is deterministic. Complexity: (links + nodes) log
 * nodes.
 */
void copse_shortest_run(struct copse_shortest *shortest, int source, const int64_t *lengths,
                        const bool *blocked);

/* Returns, of the last run, the length of the way to a node, -1 where there is none. */
int64_t copse_shortest_length(const struct copse_shortest *shortest, int node);

/* A network without the relays that never bind, and the way back: smaller programmes. */

struct copse_contraction {
  struct copse_network network; /* nodes and links that are left; no terminals, roots, sinks */
  const int *node;              /* [n_nodes of the whole] the node left that it is part of */
  const int *link;              /* [n_links of the whole] the link left that it is; -1: inside */
  int n_merges;
  const struct copse_merge *merges; /* [n_merges] in the order in which they were made */
  struct copse_arena arena;
};

/*
 * Merges relays, again and again, into a neighbour to which they have as much room as all of their
 * other links together, both ways: what comes in by these can always go there and come back, so
 * that nothing between the two ever binds. A NIC is one with its switch, a leaf that is not
 * oversubscribed with its spine.
 *
 * Whatever goes round in what is left, in balance at relays, goes round in the whole network as
 * copse_contraction_lift has it: no more on any link than its capacity, in balance at every relay
 * merged, and with every cut as large as the one left that it is nearest to. Conversely, a solution
 * of the whole network is one of the contracted network. And a dual solution of the contracted
 * network (cuts, potentials of nodes) is one of the whole network if all merged nodes get the value
 * of the node that they are part of: links between them then count nothing.
 *
 * fixed, apart: [n_nodes] nodes that stay (but others may become part of them); nodes that nothing
 * becomes part of, and that stay. No two links left join the same nodes: a merge that would make
 * such is not made. Deterministic; network->terminals, roots and sinks are not looked at.
 * COPSE_NOMEM. The caller frees *out in every case. Complexity: sweeps (few) times the
 * squares of the relays' numbers of links.
 */
copse_status copse_contract(const struct copse_network *network, const bool *fixed,
                            const bool *apart, struct copse_contraction *out,
                            struct copse_err *err) COPSE_CHECKED;
static inline void copse_contraction_free(struct copse_contraction *contraction) {
  copse_arena_free(&contraction->arena);
}

/* Converts amounts on the links left, `from`, to those on all links, `to` [n_links of the
 * whole]. */
void copse_contraction_lift(const struct copse_contraction *contraction, const int64_t *from,
                            int64_t *to, int n_links);

/* Converts a permutation of all nodes to one of the contracted network's, `to` [n_nodes left];
 * false where it separates nodes that were merged. */
bool copse_contraction_map(const struct copse_contraction *contraction, const int *from, int *to,
                           int n_nodes);
