/* What the parts of copse_verify_schedule share. */
#ifndef COPSE_VERIFY_INTERNAL_H
#define COPSE_VERIFY_INTERNAL_H

#include <gmp.h>

#include "base/err.h"
#include "base/rational.h"
#include "verify/verify.h"

/* COPSE_REFUTED with "LABEL: TEXT". */
copse_status copse_verify_refute(struct copse_err *err, const char *label, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The same for a checker c, whichever: it has a label and an err. */
#define refute(c, ...) copse_verify_refute((c)->err, (c)->label, __VA_ARGS__)

/* `from` is in lowest terms, as every copse_q, and so is `to`. */
static inline void set_q(mpq_t to, struct copse_q from) {
  mpz_set_si(mpq_numref(to), from.num);
  mpz_set_si(mpq_denref(to), from.den);
}

/* n zeros, NULL when memory ran out; _free accepts NULL. */
mpq_t *copse_verify_rationals(int n);
void copse_verify_rationals_free(mpq_t *q, int n);

/* A switch that copies or adds, the relay itself or one beside it; NULL if there is none. Only then
 * do a relay's loads balance: no link of it counts once for several copies. */
const struct copse_node *copse_verify_switch_at(const struct copse_topology *topology, int relay);

/* copse_verify_schedule, which adds each link's load to loads [n_links of the topology]: zeros. */
copse_status copse_verify_schedule_loads(const struct copse_schedule *schedule,
                                         const struct copse_topology *topology, const char *label,
                                         struct copse_verify_report *report, mpq_t *loads,
                                         struct copse_err *err) COPSE_CHECKED;

/* The largest load over bandwidth of loads [n_links], and the first link that has it; nodes -1
 * where nothing moves. */
struct copse_verify_busiest {
  int src, dst, links; /* nodes; how many links are that loaded */
};
copse_status copse_verify_most_loaded(const struct copse_topology *topology, mpq_t *loads,
                                      const char *label, struct copse_q *time_per_GB,
                                      struct copse_verify_busiest *busiest,
                                      struct copse_err *err) COPSE_CHECKED;

/* COPSE_REFUTED where the bound is not what the file claims, or above the time. */
copse_status copse_verify_compare_bound(const char *label, struct copse_q claim,
                                        struct copse_q bound, struct copse_q time,
                                        struct copse_err *err) COPSE_CHECKED;

/* A number that a report can carry; COPSE_OVERFLOW beyond. */
copse_status copse_verify_get_q(const mpq_t from, const char *label, struct copse_q *to,
                                struct copse_err *err) COPSE_CHECKED;

/* ---- alltoalls: flows.c ---- */

/*
 * Checks that the flows (with their images, in the compact form) carry the demand exactly,
 * over links that exist, and adds up the load of every link into loads [n_links]. node_of
 * [schedule->n_nodes] are the topology's nodes, -1 for unknown ones. COPSE_REFUTED.
 */
copse_status copse_verify_flows(const struct copse_schedule *schedule,
                                const struct copse_topology *topology, const int *node_of,
                                const char *label, mpq_t *loads,
                                struct copse_err *err) COPSE_CHECKED;

/*
 * What the schedule's lengths (or its cut) prove about an alltoall: sum of share *
 * distance over sum of bandwidth * length, in GMP rationals over integer distances.
 */
copse_status copse_verify_flow_bound(const struct copse_schedule *schedule,
                                     const struct copse_topology *topology, const int *node_of,
                                     const char *label, mpq_t bound,
                                     struct copse_err *err) COPSE_CHECKED;

/*
 * The bound for a size, which the schedule has, after its other bound: COPSE_REFUTED where the
 * times of nodes don't add up to what must move.
 */
copse_status copse_verify_bound_at(const struct copse_schedule *schedule,
                                   const struct copse_topology *topology, const int *node_of,
                                   const char *label, struct copse_err *err) COPSE_CHECKED;

/* ---- compact schedules: flows.c ---- */

/* The rotations of a schedule on the topology's own numbers. */
struct copse_verify_symmetry {
  int n;
  int orders[COPSE_SCHEDULE_MAX_ROTATIONS];
  int *nodes[COPSE_SCHEDULE_MAX_ROTATIONS]; /* [n_nodes] images */
  int *links[COPSE_SCHEDULE_MAX_ROTATIONS]; /* [n_links] */
  int *ranks[COPSE_SCHEDULE_MAX_ROTATIONS]; /* [n_ranks] */
  struct copse_arena arena;
};

/*
 * Checks, exactly, that every rotation is an automorphism of the topology: each node the image of
 * one; ranks to ranks; switches that copy or reduce to such; every link to a link of the same
 * bandwidth. So an image of a tree is a tree, over links that there are. node_of
 * [schedule->n_nodes]: topology nodes, -1 for unknown ids. COPSE_REFUTED, COPSE_NOMEM. Freed with
 * copse_verify_symmetry_free in every case.
 */
copse_status copse_verify_symmetry_make(const struct copse_schedule *schedule,
                                        const struct copse_topology *topology, const int *node_of,
                                        const char *label, struct copse_verify_symmetry *out,
                                        struct copse_err *err) COPSE_CHECKED;
void copse_verify_symmetry_free(struct copse_verify_symmetry *symmetry);

/*
 * values [n] on links (or ranks, by `images`) of what is listed: becomes the sum over all images.
 * Under the powers 0 .. order-1 of a rotation, what lies on a cycle of length l comes by each of
 * its members order / l times; COPSE_REFUTED where that is no integer.
 */
copse_status copse_verify_spread(const struct copse_verify_symmetry *symmetry, int *const *images,
                                 int n, mpq_t *values, const char *label,
                                 struct copse_err *err) COPSE_CHECKED;

#endif
