/* copse solve --objective: the schedule that is fastest at one message size. */
#ifndef COPSE_CLI_SOLVE_OBJECTIVE_H
#define COPSE_CLI_SOLVE_OBJECTIVE_H

#include "base/text.h"
#include "predict/candidates.h"

struct copse_cli_objective {
  uint64_t bytes; /* 0: throughput, the optimum itself */
  /* what came of it; none where bytes is 0 */
  int n, chosen;
  char names[COPSE_MAX_CANDIDATES][sizeof((struct copse_candidate *)0)->name];
  double us[COPSE_MAX_CANDIDATES];
};

/* "throughput", "latency" (1 KiB) or a size; false for anything else. */
bool copse_cli_objective_parse(const char *text, struct copse_cli_objective *out);

/* The candidate of schedule/candidates.h that is fastest, of equally fast ones the first; the caller
 * releases *out. */
copse_status copse_cli_objective_solve(const struct copse_topology *topology,
                                       const struct copse_solve_options *options,
                                       struct copse_cli_objective *objective,
                                       struct copse_schedule **out,
                                       struct copse_solve_seconds *seconds,
                                       struct copse_err *err) COPSE_CHECKED;

/* A line, and `, "objective": {..}`; neither for throughput. */
void copse_cli_print_objective(const struct copse_cli_objective *objective);
void copse_cli_add_objective(struct copse_text *text, const struct copse_cli_objective *objective);

#endif
