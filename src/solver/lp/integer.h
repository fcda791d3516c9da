/*
 * Linear programmes of which some columns are 0 or 1: GLPK's branch and cut. In floating point:
 * what it finds is to be counted again, and what it proves to be trusted for a little less.
 */
#ifndef COPSE_SOLVER_LP_INTEGER_H
#define COPSE_SOLVER_LP_INTEGER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Minimise cost * (sum of the columns that are not binary, which are >= 0). */
struct copse_integer;

/* The caller frees *out in every case. */
copse_status copse_integer_new(int n_binaries, int n_others, double cost,
                               struct copse_integer **out, struct copse_err *err) COPSE_CHECKED;
void copse_integer_free(struct copse_integer *integer);

/* A row is written term by term, each column once, then closed. */
enum copse_integer_sense { COPSE_AT_MOST, COPSE_EXACTLY, COPSE_AT_LEAST };
void copse_integer_put(struct copse_integer *integer, int column, double value);
void copse_integer_add_row(struct copse_integer *integer, enum copse_integer_sense sense,
                           double bound);

struct copse_integer_result {
  bool relaxed;  /* else GLPK gave up before the search, and nothing is known */
  bool found;    /* a solution: copse_integer_is_one */
  bool optimal;  /* which is the best */
  double lower;  /* the objective is no less */
  int64_t nodes; /* searched */
};
/* start [columns]: a solution to begin with. seconds: at most, 0: any. stop(ctx, nodes) is asked
 * between nodes of the search. */
void copse_integer_solve(struct copse_integer *integer, const double *start, double seconds,
                         bool (*stop)(void *ctx, int64_t nodes), void *ctx,
                         struct copse_integer_result *result);
bool copse_integer_is_one(const struct copse_integer *integer, int column);

#endif
