/*
 * Fabrics with symmetries, and any fabric under other names and in another order, for property
 * tests. Repeatable: the same state gives the same fabric. The caller releases what it gets.
 */
#ifndef COPSE_TESTS_SYMMETRIC_TOPOLOGY_H
#define COPSE_TESTS_SYMMETRIC_TOPOLOGY_H

#include <stdbool.h>
#include <stdint.h>

#include "topology/topology.h"

/*
 * One of these by chance, of at most max_nodes >= 12 nodes: a product of cycles, each with a
 * bandwidth of its own, or perhaps a common one; a circulant of one-way links; boxes of boxes of
 * GPUs around switches, up to three deep, with a few parallel switches on top or none.
 */
struct copse_topology *copse_test_symmetric_topology(uint64_t *state, int max_nodes);

/* The same with nodes and links in a random order, under random ids. With `slower` a random link
 * is less wide than before, in both directions; one without its like the other way stays. */
struct copse_topology *copse_test_shuffled(const struct copse_topology *topology, uint64_t *state,
                                           bool slower);

#endif
