/* What is lost to broken parts: the same collective on the healthy fabric. */
#ifndef COPSE_CLI_SOLVE_HEALTHY_H
#define COPSE_CLI_SOLVE_HEALTHY_H

#include "base/text.h"
#include "schedule/solve/solve.h"

struct copse_cli_healthy {
  bool known;      /* false: not asked for, or `why` */
  const char *why; /* NULL, or why there is nothing to compare with */
  int n_ranks;
  struct copse_q time_per_GB;
  double slowdown; /* time of what is left over this; less than 1 where ranks were lost */
};

/*
 * Solves the same on `healthy`, which may have ranks that `broken` lost; a root is the same GPU.
 * A demand for fewer ranks than `healthy` has is not comparable, nor one with no solution there.
 */
copse_status copse_cli_compare_healthy(const struct copse_topology *healthy,
                                       const struct copse_topology *broken,
                                       const struct copse_solve_options *options,
                                       bool has_tolerance, struct copse_q time_per_GB,
                                       struct copse_cli_healthy *out,
                                       struct copse_err *err) COPSE_CHECKED;

/* One line of text; members of a JSON object, each with a comma before it. */
void copse_cli_print_healthy(const struct copse_cli_healthy *healthy);
void copse_cli_add_healthy(struct copse_text *text, const struct copse_cli_healthy *healthy);

#endif
