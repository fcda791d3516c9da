/* Which nodes of a topology are alike: orbits under automorphisms that are known. */
#ifndef COPSE_TOPOLOGY_SYMMETRY_ORBITS_H
#define COPSE_TOPOLOGY_SYMMETRY_ORBITS_H

#include "topology/symmetry/symmetry.h"

/* Automorphisms [n], each a permutation [n_nodes] of the topology's nodes. */
struct copse_automorphisms {
  int n;
  int **images;
};

/*
 * Those of copse_topology_symmetry, generators and others, each checked on every link; more can be
 * added with copse_automorphisms_add. Not all that there are: what is apart here may be alike.
 * Free with copse_automorphisms_free in every case.
 */
copse_status copse_automorphisms_find(const struct copse_topology *topology,
                                      struct copse_automorphisms *out,
                                      struct copse_err *err) COPSE_CHECKED;
/* Takes over `image`, which must be one and be freed with free(), also where it fails. */
copse_status copse_automorphisms_add(struct copse_automorphisms *automorphisms, int *image,
                                     struct copse_err *err) COPSE_CHECKED;
void copse_automorphisms_free(struct copse_automorphisms *automorphisms);

/* The nodes [n] that products of automorphisms take members[0] to, itself first, and such
 * products: images[i] takes members[0] to members[i]. */
struct copse_orbit {
  int n;
  int *members;
  int **images; /* [n] each [n_nodes] */
};

/* Breadth first: the same automorphisms give the same orbit. COPSE_NOMEM. Free with
 * copse_orbit_free in every case. O(nodes * members * automorphisms) */
copse_status copse_orbit_find(const struct copse_automorphisms *automorphisms, int n_nodes,
                              int node, struct copse_orbit *out,
                              struct copse_err *err) COPSE_CHECKED;
void copse_orbit_free(struct copse_orbit *orbit);

#endif
