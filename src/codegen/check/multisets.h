/* Inside src/codegen: multisets of contributing ranks, each kept once and named by a number from 0
 * on, so that values compare in one step. */
#pragma once

#include "base/err.h"

struct copse_multisets;

/* Makes a store; the caller frees *out in every case. */
copse_status copse_multisets_new(int n_ranks, struct copse_multisets **out,
                                 struct copse_err *err) COPSE_CHECKED;
void copse_multisets_free(struct copse_multisets *sets);

/* Finds the multiset {rank}. */
copse_status copse_multisets_single(struct copse_multisets *sets, int rank, int *set,
                                    struct copse_err *err) COPSE_CHECKED;
/* Finds the multiset of all ranks, each once. */
copse_status copse_multisets_everyone(struct copse_multisets *sets, int *set,
                                      struct copse_err *err) COPSE_CHECKED;
/* Finds the sum of n multisets, counts saturating at 255. O(n * ranks), of the same terms again
 * O(n). */
copse_status copse_multisets_sum(struct copse_multisets *sets, const int *terms, int n, int *set,
                                 struct copse_err *err) COPSE_CHECKED;

/* Whether the rank is in the multiset. */
bool copse_multisets_has(const struct copse_multisets *sets, int set, int rank);

/* Returns "ranks 0-3, 5 (2 times)", for messages; valid until the next call. */
const char *copse_multisets_text(struct copse_multisets *sets, int set);
