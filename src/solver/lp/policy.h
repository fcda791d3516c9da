/*
 * Every threshold of src/solver/lp, with its reason: where GLPK's simplex method is told to give
 * up, and what counts as rounding.
 */
#ifndef COPSE_SOLVER_LP_POLICY_H
#define COPSE_SOLVER_LP_POLICY_H

/* Below GLPK's 1e-7, so that its last basis is the optimal one in rationals. */
#define COPSE_LP_TOLERANCE 1e-10
/* A multiplier that is less is rounding. */
#define COPSE_LP_GAIN 1e-9
/* Steps of one solution of a programme of rows: what takes more cycles. */
#define COPSE_LP_STEPS 200000

/* Of a mixture: the first is enough for small ones that wander, the second for large ones; and the
 * time, which only what cycles gets to. */
#define COPSE_LP_MIXTURE_STEPS 20000
#define COPSE_LP_MIXTURE_STEPS_PER_ROW 50
#define COPSE_LP_MIXTURE_MILLISECONDS 30000

/* Steps of an integer programme's relaxation. */
#define COPSE_LP_INTEGER_STEPS 100000

#endif
