/* The verifier's part about compact schedules: what their rotations must be, and what they add up
 * to. */
#ifndef COPSE_VERIFY_SYMMETRY_H
#define COPSE_VERIFY_SYMMETRY_H

#include <gmp.h>

#include "schedule/schedule.h"
#include "topology/topology.h"

/* The rotations of a schedule on the topology's own numbers. */
struct copse_verify_symmetry {
  int n;
  int orders[COPSE_SCHEDULE_MAX_ROTATIONS];
  int *nodes[COPSE_SCHEDULE_MAX_ROTATIONS]; /* [n_nodes] images */
  int *links[COPSE_SCHEDULE_MAX_ROTATIONS]; /* [n_links] */
  int *ranks[COPSE_SCHEDULE_MAX_ROTATIONS]; /* [n_ranks] */
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
