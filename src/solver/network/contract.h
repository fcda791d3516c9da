/* A network without the relays that never bind, and the way back: smaller programmes. */
#pragma once

#include "base/memory.h"
#include "solver/network/network.h"

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
 * merged, and with every cut as large as the one left that it is nearest to. The other way round,
 * a solution of the whole is one of what is left. And a dual solution of what is left (cuts,
 * potentials of nodes) is one of the whole if all nodes that are one stand where it stands: the
 * links inside then count nothing.
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
void copse_contraction_free(struct copse_contraction *contraction);

/* Amounts on the links left, `from`, on all links, `to` [n_links of the whole]. */
void copse_contraction_lift(const struct copse_contraction *contraction, const int64_t *from,
                            int64_t *to, int n_links);

/* What a permutation of all nodes is to those left, `to` [n_nodes left]; false where it takes nodes
 * that are one to such as are not. */
bool copse_contraction_map(const struct copse_contraction *contraction, const int *from, int *to,
                           int n_nodes);
