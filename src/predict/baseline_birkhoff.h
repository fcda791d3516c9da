/* Birkhoff's decomposition of a matrix into permutations. */
#ifndef COPSE_PREDICT_BASELINE_BIRKHOFF_H
#define COPSE_PREDICT_BASELINE_BIRKHOFF_H

#include <stdint.h>

#include "base/err.h"

/* n_steps permutations: in step s, row i sends sent[s n + i] to column to[s n + i]. */
struct copse_birkhoff {
  int n, n_steps;
  int64_t *amounts; /* [n_steps] > 0: the longest that a row may send in the step */
  int *to;          /* [n_steps * n] */
  int64_t *sent;    /* [n_steps * n] 0 ... the step's amount */
};

/*
 * Decomposes the n x n matrix (entries >= 0): what is sent adds up to the matrix, and the
 * amounts to its largest row or column sum, so that no order of one-to-one steps is shorter.
 * Where sums are smaller the row pauses. Large steps come first, so that there are few: at
 * most n^2 - 2 n + 2. A matrix of equal entries off its diagonal gives n - 1 rotations.
 * COPSE_INVALID for a negative entry, COPSE_OVERFLOW, COPSE_NOMEM. O(n^3) per step.
 * Source: G. Birkhoff, Tres observaciones sobre el algebra lineal (1946).
 */
copse_status copse_birkhoff_decompose(const int64_t *matrix, int n, struct copse_birkhoff *out,
                                      struct copse_err *err) COPSE_CHECKED;
void copse_birkhoff_free(struct copse_birkhoff *b);

#endif
