/*
 * Every threshold of src/solver/alltoall, with its reason. Where the search gives up, what was
 * found stands and its gap is stated.
 */
#ifndef COPSE_SOLVER_ALLTOALL_POLICY_H
#define COPSE_SOLVER_ALLTOALL_POLICY_H

/* Rounds of master and pricing, far more than any fabric takes; and such in which neither side
 * moves: degenerate steps, and rounding noise at the optimum. */
#define COPSE_MAX_ROUNDS 20000
#define COPSE_STALLED_ROUNDS 500

/* A column of less weight in the master is noise of the simplex method, not part of a solution; an
 * orbit is full where less than this part of its capacity is left. */
#define COPSE_LEAST_WEIGHT 1e-9
#define COPSE_FULL_SLACK 1e-8

/* Equations for exact weights: elimination is cubic, in rationals that grow. */
#define COPSE_WEIGHT_EQUATIONS 400

#endif
