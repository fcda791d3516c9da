/* Inside src/topology only: the arithmetic of a torus; the last dimension runs fastest. */
#ifndef COPSE_TOPOLOGY_FABRIC_TORUS_H
#define COPSE_TOPOLOGY_FABRIC_TORUS_H

#include <stddef.h>

/*
 * The neighbour one step up in dimension d, so that every link is named by one of its ends; -1 in
 * a dimension of one. In a dimension of two the steps up and down are two links beside each other.
 */
int copse_torus_next(const int *dims, int n_dims, int at, int d);

/* "0_3_1". */
void copse_torus_coordinates(const int *dims, int n_dims, int at, char *text, size_t size);

#endif
