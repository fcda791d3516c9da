/*
 * The numbers that steer the two-tier planner; all but the first three are limits. The trade is the
 * same in each: more pieces pipeline better and cost more per message.
 */
#ifndef COPSE_SOLVER_ONLINE_POLICY_H
#define COPSE_SOLVER_ONLINE_POLICY_H

/* Defaults of copse_online_options: steps to aim for, bytes on a NIC below which
 * steps are not cut, and the part of the time, 1 over this, that greedy colouring takes after the
 * exact stages; `make bench` (bench_online) measures what they give. */
#define DEFAULT_STEPS 128
#define DEFAULT_MIN_MESSAGE 131072
#define DEFAULT_TAIL_DIVISOR 4096

/* h^2 + 2 h stages always suffice for h hosts, as every stage empties an entry or uses up a slack.
 * More than some thousands only shred messages: then the tail begins earlier. */
#define STAGES_PER_HOST 16
#define STAGES_FEWEST 8192

/* Steps that may be asked for. */
#define MAX_STEPS (1 << 16)

#endif
