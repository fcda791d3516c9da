#include "cli/solve_predict.h"

#include <stdio.h>

static const double sizes[COPSE_SOLVE_SIZES] = {65536, 1048576, 67108864, 1073741824};
static const char *const size_names[COPSE_SOLVE_SIZES] = {"64 KiB", "1 MiB", "64 MiB", "1 GiB"};

copse_status copse_cli_predict(const struct copse_schedule *schedule,
                               const struct copse_topology *topology,
                               struct copse_cli_prediction *out, struct copse_err *err) {
  struct copse_sim_question questions[COPSE_MAX_PREDICTIONS * COPSE_SOLVE_SIZES];
  int n = 0;
  copse_status status;
  COPSE_TRY(copse_predict(schedule, topology, true, out->columns, &out->n, err));
  for (int c = 0; c < out->n; c++)
    for (int i = 0; i < COPSE_SOLVE_SIZES && copse_prediction_exists(&out->columns[c]); i++)
      questions[n++] =
          (struct copse_sim_question){.dag = &out->columns[c].dag, .unit_bytes = sizes[i]};
  COPSE_TRY(copse_simulate_all(topology, questions, n, err));
  n = 0;
  for (int c = 0; c < out->n; c++)
    for (int i = 0; i < COPSE_SOLVE_SIZES && copse_prediction_exists(&out->columns[c]); i++)
      out->us[c][i] = questions[n++].result.us;
out:
  return status;
}

void copse_cli_prediction_free(struct copse_cli_prediction *prediction) {
  copse_predictions_free(prediction->columns, prediction->n);
}

void copse_cli_print_prediction(const struct copse_cli_prediction *prediction) {
  if (prediction->n == 0) return;
  printf("predicted us");
  for (int c = 0; c < prediction->n; c++)
    if (copse_prediction_exists(&prediction->columns[c]))
      printf("%14s", prediction->columns[c].name);
  printf("\n");
  for (int i = 0; i < COPSE_SOLVE_SIZES; i++) {
    printf("%12s", size_names[i]);
    for (int c = 0; c < prediction->n; c++)
      if (copse_prediction_exists(&prediction->columns[c]))
        printf("%14.*f", prediction->us[c][i] < 1e5 ? 2 : 0, prediction->us[c][i]);
    printf("\n");
  }
}

void copse_cli_add_prediction(struct copse_text *text,
                              const struct copse_cli_prediction *prediction) {
  bool first = true;
  if (prediction->n == 0) return;
  copse_text_add(text, ",\n \"predicted_us\": {");
  for (int c = 0; c < prediction->n; c++) {
    if (!copse_prediction_exists(&prediction->columns[c])) continue;
    copse_text_add(text, "%s\n  \"%s\": {", first ? "" : ",", prediction->columns[c].name);
    first = false;
    for (int i = 0; i < COPSE_SOLVE_SIZES; i++) {
      copse_text_add(text, "%s\"%.0f\": ", i > 0 ? ", " : "", sizes[i]);
      copse_text_add_json_number(text, prediction->us[c][i]);
    }
    copse_text_add(text, "}");
  }
  copse_text_add(text, "}");
}
