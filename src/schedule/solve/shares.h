/*
 * Inside src/schedule only: the part of copse_solve_schedule that lets an allreduce's roots have
 * unequal shares.
 */
#ifndef COPSE_SCHEDULE_SOLVE_SHARES_H
#define COPSE_SCHEDULE_SOLVE_SHARES_H

#include "schedule/solve/instance.h"
#include "schedule/solve/solve.h"
#include "solver/joint/shares.h"

/* Trees of unequal shares are made one by one, without symmetries: more ranks take minutes. */
#define COPSE_FREE_SHARES_RANKS 256

/*
 * The best shares and the time T/M that they reach. `instance` is the topology's, all ranks
 * roots. at_most: a time that equal shares reach; with `only_faster` the search ends as soon as
 * nothing faster is possible. *shares is freed by the caller in every case; unless its outcome is
 * COPSE_SHARES_PROVED, *time means nothing. options->notes hears where they were not looked for or
 * can't be stated.
 */
copse_status copse_free_shares_find(const struct copse_topology *topology,
                                    const struct copse_solve_options *options,
                                    const struct copse_instance *instance, struct copse_q at_most,
                                    bool only_faster, struct copse_shares *shares,
                                    struct copse_q *time, struct copse_err *err) COPSE_CHECKED;

/* Says to options->notes that shares of this time are left alone, with more ranks than that. */
void copse_free_shares_note(const struct copse_solve_options *options, struct copse_q time);

/* What one phase has to pack: its roots with their shares, weights [n_terminals], and its part of
 * the links, capacities [n_links]. The same terminals as `instance`, whose topology is borrowed. */
copse_status copse_free_shares_instance(const struct copse_instance *instance,
                                        const int64_t *weights, const int64_t *capacities,
                                        bool reduce, struct copse_instance *out,
                                        struct copse_err *err) COPSE_CHECKED;

/* COPSE_BOUND_FORESTS, from the solver's proof. */
copse_status copse_free_shares_bound(const struct copse_topology *topology,
                                     const struct copse_shares *shares, struct copse_q time,
                                     struct copse_schedule *schedule,
                                     struct copse_err *err) COPSE_CHECKED;

#endif
