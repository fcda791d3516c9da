/*
 * Edge splitting: relays are taken out of the network, link by link, without lowering what any
 * terminal can receive (docs/theory.md, "Edge splitting").
 */
#ifndef COPSE_SOLVER_TREES_SPLIT_H
#define COPSE_SOLVER_TREES_SPLIT_H

#include "solver/network/flow.h"
#include "solver/trees/maker.h"
#include "solver/trees/paths.h"

/*
 * Takes every relay out of a balanced network with capacities that carry k trees per unit of
 * root weight. *flow receives the relay-free graph on the
 * same node numbers (the caller frees it); `paths` follows every step.
 *
 * First exact contractions (relays with one or two neighbours). Then, slowest relay first, a
 * guess that spreads each relay's links over groups of neighbours, for all relays together,
 * proved by flows to all terminals (network/sinks.h). If that fails, the same within the tight
 * cuts around the terminals (network/cuts.h), for as many relays under one proof as go, tried again
 * with the cuts that the proof found broken, then for fewer; then one relay, likewise; then parts
 * of the guess; what is left goes pair by pair, each by the largest safe amount. By Bang-Jensen,
 * Frank and Jackson some pair is always splittable at a balanced relay, and a pair that is not
 * stays so, hence one pass over the pairs suffices.
 *
 * COPSE_INTERNAL if a relay can't be emptied (the network was not balanced or did not
 * carry the trees).
 */
copse_status copse_split_relays(const struct copse_tree_problem *problem, struct copse_paths *paths,
                                struct copse_flow **flow, struct copse_err *err) COPSE_CHECKED;

#endif
