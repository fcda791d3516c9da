/* copse check FILE: the symbolic proof of a plan. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "codegen/check_plan.h"

static const char help[] =
    "usage: copse check PLAN [--json]\n\n"
    "Proves a plan for every message size and interleaving, in place and out of place:\n"
    "right result at every rank, no deadlock, no race, channels balanced. Exit status 1\n"
    "with the place of the first defect otherwise.\n\n"
    "  -j, --json  the report as one JSON object\n\n"
    "example: copse check a100-x2.allreduce.plan\n";

static void print_report(const struct copse_plan *plan, const struct copse_check_report *report,
                         bool json) {
  const char *name = copse_collective_name((copse_collective)plan->header.collective);
  if (json)
    printf(
        "{\"proved\": true, \"collective\": \"%s\", \"nranks\": %u, \"workers\": %u, "
        "\"operations\": %u, \"channels\": %u, \"runs\": %d, \"symbolic_operations\": %" PRIu64
        "}\n",
        name, plan->header.n_ranks, plan->header.n_workers, plan->header.n_ops,
        plan->header.n_channels, report->runs, report->operations);
  else
    printf(
        "%s of %s: proved for %u ranks, %s: result, no deadlock, no race\n"
        "%u operations of %u workers over %u channels, %" PRIu64 " steps followed\n",
        name, plan->name, plan->header.n_ranks,
        plan->header.collective == COPSE_ALLTOALL ? "out of place" : "in place and out of place",
        plan->header.n_ops, plan->header.n_workers, plan->header.n_channels, report->operations);
}

/* Foreign formats are told apart by their first character, as they will be read later. */
static copse_status refuse_foreign(const char *label, const char *data, size_t size,
                                   struct copse_err *err) {
  size_t i = 0;
  while (i < size && strchr(" \t\r\n", data[i]) && data[i]) i++;
  if (i < size && data[i] == '<')
    return copse_fail_at(err, COPSE_UNSUPPORTED, label, 0,
                         "MSCCL XML is not read by this version; give a native plan");
  if (i < size && data[i] == '{')
    return copse_fail_at(err, COPSE_UNSUPPORTED, label, 0,
                         "JSON is not read by this version; give a native plan");
  return COPSE_OK;
}

static int run(const char *path, bool json) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_plan *plan = NULL;
  struct copse_check_report report;
  char *data = NULL;
  size_t size;
  copse_status status;
  COPSE_TRY(copse_file_read(path, &data, &size, &err));
  COPSE_TRY(refuse_foreign(copse_file_label(path), data, size, &err));
  COPSE_TRY(copse_plan_decode(copse_file_label(path), data, size, &plan, &err));
  COPSE_TRY(copse_check_plan(plan, copse_file_label(path), &report, &err));
  print_report(plan, &report, json);
out:
  if (json && status == COPSE_REFUTED) copse_cli_print_refuted("proved", &err);
  copse_plan_release(plan);
  free(data);
  return status == COPSE_OK ? COPSE_EXIT_DONE : copse_cli_fail(&err);
}

int copse_cmd_check(int argc, char **argv) {
  static const struct option longs[] = {
      {"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
  bool json = false;
  opterr = 0;
  for (int c; (c = getopt_long(argc, argv, ":jh", longs, NULL)) != -1;) {
    switch (c) {
      case 'j': json = true; break;
      case 'h': fputs(help, stdout); return COPSE_EXIT_DONE;
      default: return copse_cli_bad_option("check", argv, c);
    }
  }
  if (argc - optind != 1) return copse_cli_usage("check", "give one plan file");
  return run(argv[optind], json);
}
