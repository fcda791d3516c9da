/* copse expand SCHEDULE -o FILE: every tree or flow of a schedule in compact form, written out. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/solve_args.h"
#include "schedule/schedule.h"

struct options {
  const char *input, *output;
  bool json;
};

static copse_status expand(void *options, struct copse_cli_work *w) {
  const struct options *o = options;
  w->place = copse_file_label(o->input);
  COPSE_DO(copse_schedule_load(o->input, &w->schedule, &w->err));
  struct copse_schedule *s = w->schedule;
  long long listed = s->n_trees + s->n_flows;
  COPSE_DO(copse_schedule_expand(s, &w->err));
  COPSE_DO(copse_cli_write_schedule(o->output, s, NULL, &w->made_size, &w->err));
  if (o->json)
    printf(
        "{\"topology\": %s, \"collective\": \"%s\", \"nranks\": %d, \"listed\": %lld, \"trees\": "
        "%d, \"flows\": %d, \"bytes\": %zu}\n",
        copse_cli_quoted(s->topology_name ? s->topology_name : ""),
        copse_collective_name(s->collective), s->n_ranks, listed, s->n_trees, s->n_flows,
        w->made_size);
  else if (!copse_cli_is_stdout(o->output))
    printf("%lld %s of base ranks became %d, %zu bytes\n", listed,
           s->n_flows > 0 ? "flows" : "trees", s->n_trees + s->n_flows, w->made_size);
  return COPSE_OK;
}

static int run(void *arguments, int n_left, char **left) {
  struct options *o = arguments;
  if (n_left != 1) return copse_cli_usage("expand", "give one schedule file");
  if (!o->output) return copse_cli_usage("expand", "say where to write it with -o");
  if (o->json && copse_cli_is_stdout(o->output))
    return copse_cli_usage("expand", "of --json and -o - only one can have standard output");
  o->input = left[0];
  return copse_cli_do(expand, o);
}

#define TO(member) COPSE_OPTION_TO(struct options, member)
static const struct copse_option own[] = {
    {"--output", 'o', "FILE", "where to write it (- for standard output)", TO(output),
     .writes = true, .common = true},
    {"--json", 'j', NULL, "what was written as one JSON object on standard output", TO(json),
     .common = true},
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
    .example = "example: copse expand h100-x128.compact.json -o h100-x128.json\n",
    .sections = {{.title = "More options", .options = own}},
    .takes = COPSE_KIND_SCHEDULE,
    .size = sizeof(struct options),
    .run = run};
