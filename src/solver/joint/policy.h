/*
 * Every threshold of src/solver/joint, with its reason. None of them changes an optimum: they say
 * how it is searched for and where the search gives up, which the outcome says.
 */
#ifndef COPSE_SOLVER_JOINT_POLICY_H
#define COPSE_SOLVER_JOINT_POLICY_H

#include "solver/lp/linear_programme.h"

/* Cutting planes take some tens of rounds; beyond this GLPK runs in circles. */
#define COPSE_JOINT_ROUNDS 400
/* In the rounded solution a cut may be violated by this part of the rate without telling. */
#define COPSE_JOINT_SLACK_PART ((int64_t)1 << 28)
/* Cuts around one terminal in a round: several at once save rounds. With one column for two phases
 * little room is left around a solution: rounds are few, and more rows only make them slower. */
#define COPSE_JOINT_CUTS_AT_ONCE 6
#define COPSE_WHOLE_CUTS_AT_ONCE 1
/* The rate alone has many solutions, whose cuts are found one after the other; once it has stood
 * still for so many rounds, short ways lead to the end sooner. */
#define COPSE_JOINT_IDLE_ROUNDS 5
/* Units by which two rates may differ before rationals are asked. */
#define COPSE_JOINT_SAME_RATE (COPSE_LP_UNITS >> 26)
/* A unit of the rate is worth this times the number of columns in units of links: more than the
 * last unit costs, or the second search goes for the rate alone. */
#define COPSE_JOINT_RATE_WORTH 16
/* Equations of a basis that are solved in rationals. Of whole links the coefficients of more are
 * fractions so long that it takes a minute (320 ranks, 1 slow NIC). */
#define COPSE_JOINT_EQUATIONS 20000
#define COPSE_WHOLE_EQUATIONS 1000
/* Rounds with limits on shares: those that are there have been found by then. */
#define COPSE_WHOLE_LIMITED_ROUNDS 60
/* The part by which GLPK's objective may be off. */
#define COPSE_WHOLE_ROUNDING 1e-9

/* Links of use, summed over phases: what symmetries may make small. */
#define COPSE_JOINT_PLACES 16000000
/* Nodes and links, summed over phases: a few arrays of 1 GiB. */
#define COPSE_JOINT_CELLS (1 << 28)

/* Rounded parts: about what every group's roots have in all, so that a link's load is off by 1e-10
 * or so; bits of the rate's fraction, where there is room; bits of a multiplier. */
#define COPSE_JOINT_WHOLE ((int64_t)1 << 42)
#define COPSE_JOINT_RATE_BITS 20
#define COPSE_JOINT_MULTIPLIER_BITS 30

#endif
