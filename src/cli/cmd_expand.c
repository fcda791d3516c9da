/* copse expand SCHEDULE -o FILE: the compact form of a schedule, written out. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cli/cli.h"
#include "schedule/schedule.h"

static const char help[] =
    "usage: copse expand SCHEDULE -o FILE [--json]\n\n"
    "Lists every tree or flow of a schedule in compact form (the template of base ranks and\n"
    "the symmetries that move it). verify reads the compact form as it is; lower and simulate\n"
    "expand it themselves. A schedule that is not compact is written again as it is.\n\n"
    "  -o, --output FILE   where to write it (- for standard output)\n"
    "  -j, --json          what was written as one JSON object on standard output\n\n"
    "example: copse expand h100-x128.compact.json -o h100-x128.json\n";

static int run(const char *input, const char *output, bool json) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_schedule *schedule = NULL;
  char *text = NULL;
  size_t size;
  copse_status status;
  COPSE_TRY(copse_schedule_load(input, &schedule, &err));
  long long listed = schedule->n_trees + schedule->n_flows;
  COPSE_TRY(copse_schedule_expand(schedule, &err));
  COPSE_TRY(copse_schedule_to_json(schedule, &text, &size, &err));
  COPSE_TRY(copse_file_write(output, text, size, &err));
  if (json)
    printf("{\"listed\": %lld, \"trees\": %d, \"flows\": %d, \"bytes\": %zu}\n", listed,
           schedule->n_trees, schedule->n_flows, size);
  else if (strcmp(output, "-") != 0)
    printf("%lld %s of base ranks became %d, %zu bytes\n", listed,
           schedule->n_flows > 0 ? "flows" : "trees", schedule->n_trees + schedule->n_flows, size);
out:
  free(text);
  copse_schedule_release(schedule);
  return status == COPSE_OK ? COPSE_EXIT_DONE : copse_cli_fail_in(copse_file_label(input), &err);
}

int copse_cmd_expand(int argc, char **argv) {
  static const struct option longs[] = {{"output", required_argument, NULL, 'o'},
                                        {"json", no_argument, NULL, 'j'},
                                        {"help", no_argument, NULL, 'h'},
                                        {NULL, 0, NULL, 0}};
  const char *output = NULL;
  bool json = false;
  opterr = 0;
  for (int c; (c = getopt_long(argc, argv, ":o:jh", longs, NULL)) != -1;) {
    switch (c) {
      case 'o': output = optarg; break;
      case 'j': json = true; break;
      case 'h': fputs(help, stdout); return COPSE_EXIT_DONE;
      default: return copse_cli_bad_option("expand", argv, c);
    }
  }
  if (argc - optind != 1) return copse_cli_usage("expand", "give one schedule file");
  if (!output) return copse_cli_usage("expand", "say where to write it with -o");
  if (json && strcmp(output, "-") == 0)
    return copse_cli_usage("expand", "of --json and -o - only one can have standard output");
  return run(argv[optind], output, json);
}
