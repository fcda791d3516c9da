/*
 * Inside src/codegen only: multisets of contributing ranks, each kept once and named by
 * a number, so that values compare in one step.
 */
#ifndef COPSE_CODEGEN_CHECK_SETS_H
#define COPSE_CODEGEN_CHECK_SETS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct copse_sets;

copse_status copse_sets_new(int n_ranks, struct copse_sets **out,
                            struct copse_err *err) COPSE_CHECKED;
void copse_sets_free(struct copse_sets *sets);

/* {rank}. */
copse_status copse_sets_single(struct copse_sets *sets, int rank, int *set,
                               struct copse_err *err) COPSE_CHECKED;
/* All ranks, each once. */
copse_status copse_sets_everyone(struct copse_sets *sets, int *set,
                                 struct copse_err *err) COPSE_CHECKED;
/* The sum of n multisets, counts saturating at 255. */
copse_status copse_sets_sum(struct copse_sets *sets, const int *terms, int n, int *set,
                            struct copse_err *err) COPSE_CHECKED;

/* Whether some rank is in the multiset more than once. */
bool copse_sets_repeats(const struct copse_sets *sets, int set);

/* "ranks 0-3, 5 (twice)", for messages; valid until the next call. */
const char *copse_sets_text(struct copse_sets *sets, int set);

#endif
