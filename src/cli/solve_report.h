/* What copse solve says of one schedule. */
#ifndef COPSE_CLI_SOLVE_REPORT_H
#define COPSE_CLI_SOLVE_REPORT_H

#include "cli/solve_healthy.h"
#include "cli/solve_objective.h"
#include "cli/solve_predict.h"

struct copse_cli_solve_seconds {
  double read, verify, write, total;
  struct copse_solve_seconds solve;
};

struct copse_cli_solve_report {
  const struct copse_topology *topology;
  const struct copse_schedule *schedule; /* as it is written: a compact one is not expanded */
  struct copse_cli_healthy healthy;
  struct copse_cli_prediction prediction;
  const struct copse_cli_objective *objective;
  bool bound_only;
  struct copse_cli_solve_seconds seconds;
};

void copse_cli_solve_print_text(const struct copse_cli_solve_report *report);
/* One object. COPSE_NOMEM. */
copse_status copse_cli_solve_print_json(const struct copse_cli_solve_report *report,
                                        struct copse_err *err) COPSE_CHECKED;

#endif
