#include "cli/solve_objective.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

/* What a message is that only latency matters to. */
#define LATENCY_BYTES 1024
/* As far as `copse simulate` goes. */
#define MOST_BYTES ((uint64_t)1 << 48)

bool copse_cli_objective_parse(const char *text, struct copse_cli_objective *out) {
  *out = (struct copse_cli_objective){0};
  if (strcmp(text, "throughput") == 0) return true;
  if (strcmp(text, "latency") == 0) {
    out->bytes = LATENCY_BYTES;
    return true;
  }
  return copse_cli_parse_size(text, MOST_BYTES, &out->bytes) && out->bytes > 0;
}

copse_status copse_cli_objective_solve(const struct copse_topology *topology,
                                       const struct copse_solve_options *options,
                                       struct copse_cli_objective *objective,
                                       struct copse_schedule **out,
                                       struct copse_solve_seconds *seconds, struct copse_err *err) {
  struct copse_candidates candidates = {0};
  double bytes = (double)objective->bytes;
  double us[1][COPSE_MAX_CANDIDATES];
  copse_status status;
  *out = NULL;
  COPSE_TRY(copse_candidates_make(topology, options, &candidates, seconds, err));
  COPSE_TRY(copse_candidates_time(&candidates, &bytes, 1, false, us, err));
  objective->chosen = copse_candidates_best(&candidates, us[0]);
  objective->n = candidates.n;
  memcpy(objective->us, us[0], sizeof objective->us);
  for (int i = 0; i < candidates.n; i++)
    memcpy(objective->names[i], candidates.list[i].name, sizeof objective->names[i]);
  *out = candidates.list[objective->chosen].schedule;
  candidates.list[objective->chosen].schedule = NULL;
out:
  copse_candidates_free(&candidates);
  return status;
}

void copse_cli_print_objective(const struct copse_cli_objective *objective) {
  if (objective->n == 0) return;
  printf("fastest of %d at %" PRIu64 " bytes: %s, predicted %.6g us", objective->n,
         objective->bytes, objective->names[objective->chosen], objective->us[objective->chosen]);
  for (int i = 0; i < objective->n; i++)
    if (i != objective->chosen) printf(", %s %.6g", objective->names[i], objective->us[i]);
  printf("\n");
}

void copse_cli_add_objective(struct copse_text *text, const struct copse_cli_objective *objective) {
  if (objective->n == 0) return;
  copse_text_add(text,
                 ",\n \"objective\": {\"bytes\": %" PRIu64 ", \"chosen\": ", objective->bytes);
  copse_text_add_json_string(text, objective->names[objective->chosen]);
  copse_text_add(text, ", \"predicted_us\": {");
  for (int i = 0; i < objective->n; i++) {
    copse_text_add(text, "%s", i > 0 ? ", " : "");
    copse_text_add_json_string(text, objective->names[i]);
    copse_text_add(text, ": ");
    copse_text_add_json_number(text, objective->us[i]);
  }
  copse_text_add(text, "}}");
}
