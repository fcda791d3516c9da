/* copse solve --predict: times by message size, beside today's algorithms. */
#ifndef COPSE_CLI_SOLVE_PREDICT_H
#define COPSE_CLI_SOLVE_PREDICT_H

#include "base/text.h"
#include "predict/baseline.h"

#define COPSE_SOLVE_SIZES 4 /* 64 KiB, 1 MiB, 64 MiB, 1 GiB */

struct copse_cli_prediction {
  int n; /* 0: nothing was asked for */
  struct copse_prediction columns[COPSE_MAX_PREDICTIONS];
  double us[COPSE_MAX_PREDICTIONS][COPSE_SOLVE_SIZES];
};

/* Of an expanded schedule and all baselines of its collective. Free with _prediction_free. */
copse_status copse_cli_predict(const struct copse_schedule *schedule,
                               const struct copse_topology *topology,
                               struct copse_cli_prediction *out,
                               struct copse_err *err) COPSE_CHECKED;
void copse_cli_prediction_free(struct copse_cli_prediction *prediction);

/* A table, and `, "predicted_us": {..}`; neither where nothing was asked for. */
void copse_cli_print_prediction(const struct copse_cli_prediction *prediction);
void copse_cli_add_prediction(struct copse_text *text,
                              const struct copse_cli_prediction *prediction);

#endif
