/*
 * Random fabrics for property tests, made as topology JSON and read by the reader. Every
 * fabric is connected both ways and every relay balanced. Repeatable: the same state
 * gives the same text.
 */
#ifndef COPSE_TESTS_RANDOM_TOPOLOGY_H
#define COPSE_TESTS_RANDOM_TOPOLOGY_H

#include <stdbool.h>
#include <stdint.h>

#include "topology/topology.h"

struct copse_test_random_options {
  int min_ranks, max_ranks;
  int max_relays;
  bool asymmetric; /* one-way links between ranks, one-way walks through relays */
  bool rational;   /* bandwidths such as "7/3" and 12.5 as well */
};

/* At most 9 ranks and 6 relays, asymmetric, rational: small enough for every cut. */
extern const struct copse_test_random_options copse_test_random_small;

/*
 * One of three shapes by chance: a mesh of ranks and relays; hosts with a switch each and
 * rails or one switch between them, with or without NICs; two halves joined by a chain of
 * relays, with leaves. The caller frees the text.
 */
char *copse_test_random_json(uint64_t *state, const struct copse_test_random_options *options);

/* The same, read; fails the running test on an error. The caller releases it. */
struct copse_topology *copse_test_random_topology(uint64_t *state,
                                                  const struct copse_test_random_options *options);

#endif
