/*
 * The numbers that steer expert placement. None changes what is proved: a bound is worked out in
 * integers whatever they are. All work is counted, not timed, so that results do not depend on the
 * machine; a time limit of the caller is a second limit. They keep each
 * part to a few seconds on one core.
 */
#ifndef COPSE_SOLVER_PLACEMENT_POLICY_H
#define COPSE_SOLVER_PLACEMENT_POLICY_H

#include <stdint.h>

/* Local search (place.c): late acceptance over HISTORY steps, in exchanges times steps looked at;
 * at most ANNEAL_SWEEPS times all exchanges there are. Then descent to a local optimum. */
#define ANNEAL_WORK ((int64_t)60000000)
#define ANNEAL_SWEEPS 400
#define DESCENT_WORK ((int64_t)120000000)
#define HISTORY 2000

/* The relaxation's bound (bound.c): rounds of mirror ascent, fewer where BOUND_WORK operations are
 * less; the weights are rounded to multiples of 2^-WEIGHT_BITS, so that 128 bits hold all sums. */
#define BOUND_ROUNDS 1500
#define BOUND_WORK ((int64_t)3000000000)
#define WEIGHT_BITS 30

/* Branch and cut (bound.c): beyond these it would not get far in the time that anybody waits. */
#define MAX_BINARIES 1200
#define MAX_NONZEROS 400000
#define MAX_NODES 20000
#define MAX_SIMPLEX_STEPS 100000
#define ILP_WORK 2000000000.0 /* nodes times nonzeros, roughly */

/* GLPK solves relaxations to 1e-7; what they are trusted for is a little less. */
#define TRUST 1e-6

#endif
