/* copse expand SCHEDULE -o FILE: the compact form of a schedule, written out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "schedule/schedule.h"

struct options {
  const char *output;
  bool json;
};

static int expand(const struct options *o, const char *input) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_schedule *schedule = NULL;
  char *text = NULL;
  size_t size;
  copse_status status;
  COPSE_TRY(copse_schedule_load(input, &schedule, &err));
  long long listed = schedule->n_trees + schedule->n_flows;
  COPSE_TRY(copse_schedule_expand(schedule, &err));
  COPSE_TRY(copse_schedule_to_json(schedule, &text, &size, &err));
  COPSE_TRY(copse_file_write(o->output, text, size, &err));
  if (o->json)
    printf("{\"listed\": %lld, \"trees\": %d, \"flows\": %d, \"bytes\": %zu}\n", listed,
           schedule->n_trees, schedule->n_flows, size);
  else if (!copse_cli_is_stdout(o->output))
    printf("%lld %s of base ranks became %d, %zu bytes\n", listed,
           schedule->n_flows > 0 ? "flows" : "trees", schedule->n_trees + schedule->n_flows, size);
out:
  free(text);
  copse_schedule_free(schedule);
  return status == COPSE_OK ? COPSE_EXIT_DONE : copse_cli_fail_in(copse_file_label(input), &err);
}

static int run(void *arguments, int n_left, char **left) {
  const struct options *o = arguments;
  if (n_left != 1) return copse_cli_usage("expand", "give one schedule file");
  if (!o->output) return copse_cli_usage("expand", "say where to write it with -o");
  if (o->json && copse_cli_is_stdout(o->output))
    return copse_cli_usage("expand", "of --json and -o - only one can have standard output");
  return expand(o, left[0]);
}

#define TO(member) COPSE_OPTION_TO(struct options, member)
static const struct copse_option own[] = {
    {"--output", 'o', "FILE", "where to write it (- for standard output)", TO(output)},
    {"--json", 'j', NULL, "what was written as one JSON object on standard output", TO(json)},
    {0}};

static const char usage[] =
    "usage: copse expand SCHEDULE -o FILE [--json]\n\n"
    "Lists every tree or flow of a schedule in compact form (the orbit trees of base ranks and\n"
    "the symmetries that move them). verify reads the compact form as it is; lower and simulate\n"
    "expand it themselves. A schedule that is not compact is written again as it is.\n\n";

const struct copse_command copse_cmd_expand = {
    .name = "expand",
    .does = "write out a compact schedule tree by tree",
    .usage = usage,
    .example = "\nexample: copse expand h100-x128.compact.json -o h100-x128.json\n",
    .sections = {{.column = 22, .options = own}},
    .size = sizeof(struct options),
    .run = run};
