/* copse check FILE: the symbolic proof of a plan, native or foreign. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "codegen/msccl/check.h"
#include "codegen/mscclpp/check.h"
#include "codegen/check/proof.h"

static void print_report(const struct copse_plan *plan, const struct copse_proof_report *report,
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

/* Foreign formats differ in their first character. */
static char first_character(const char *data, size_t size) {
  size_t i = 0;
  while (i < size && strchr(" \t\r\n", data[i]) && data[i]) i++;
  return i < size ? data[i] : '\0';
}

static copse_status check_plan(const char *label, const char *data, size_t size, bool json,
                               struct copse_err *err) {
  struct copse_plan *plan = NULL;
  struct copse_proof_report report;
  copse_status status;
  COPSE_TRY(copse_plan_decode(label, data, size, &plan, err));
  COPSE_TRY(copse_prove_plan(plan, label, &report, err));
  print_report(plan, &report, json);
out:
  copse_plan_free(plan);
  return status;
}

static void print_msccl(const struct copse_check_msccl_report *r, bool json) {
  const char *layout = !r->in_place      ? "out of place"
                       : r->out_of_place ? "in place and out of place"
                                         : "in place";
  if (json) {
    printf(
        "{\"proved\": true, \"format\": \"msccl\", \"collective\": \"%s\", \"nranks\": %d, "
        "\"thread_blocks\": %d, \"steps\": %d, \"channels\": %d, \"chunks\": %d, "
        "\"in_place\": %s, \"out_of_place\": %s, \"runs_on_rccl\": %s}\n",
        copse_collective_name(r->collective), r->n_ranks, r->n_tbs, r->n_steps, r->n_channels,
        r->chunks, COPSE_CLI_BOOL(r->in_place), COPSE_CLI_BOOL(r->out_of_place),
        COPSE_CLI_BOOL(r->on_rccl));
    return;
  }
  printf("%s (MSCCL XML): proved for %d ranks, %s: result, no deadlock, no race\n",
         copse_collective_name(r->collective), r->n_ranks, layout);
  printf(
      "%d steps of %d thread blocks over %d channels; runs on %s\n", r->n_steps, r->n_tbs,
      r->n_channels,
      r->on_rccl ? "MSCCL, its NCCL executor and RCCL" : "MSCCL and its NCCL executor, not RCCL");
}

static copse_status check_msccl(const char *label, const char *data, size_t size, bool json,
                                struct copse_err *err) {
  struct copse_check_msccl_report report;
  COPSE_DO(copse_check_msccl(label, data, size, &report, err));
  if (report.missing)
    copse_note(
        &copse_cli_notes,
        "%s: today's executors refuse it for want of %s=\"...\", which MSCCL once did without",
        label, report.missing);
  print_msccl(&report, json);
  return COPSE_OK;
}

static copse_status check_mscclpp(const char *label, const char *data, size_t size, bool json,
                                  struct copse_err *err) {
  struct copse_check_mscclpp_report r;
  COPSE_DO(copse_check_mscclpp(label, data, size, &r, err));
  const char *name = copse_collective_name(r.collective);
  if (json)
    printf(
        "{\"proved\": true, \"format\": \"mscclpp\", \"collective\": \"%s\", \"nranks\": %d, "
        "\"thread_blocks\": %d, \"operations\": %d, \"chunks\": %d, \"in_place\": %s, "
        "\"out_of_place\": %s}\n",
        name, r.n_ranks, r.n_blocks, r.n_ops, r.chunks, COPSE_CLI_BOOL(r.in_place),
        r.in_place ? "false" : "true");
  else
    printf(
        "%s (MSCCL++ JSON): proved for %d ranks, %s: result, no deadlock, no race\n"
        "%d operations of %d thread blocks\n",
        name, r.n_ranks, r.in_place ? "in place" : "out of place", r.n_ops, r.n_blocks);
  return COPSE_OK;
}

struct options {
  bool json;
};

static int run(void *arguments, int n_left, char **left) {
  const struct options *o = arguments;
  struct copse_err err = COPSE_ERR_INIT;
  char *data = NULL;
  size_t size;
  copse_status status;
  if (n_left != 1) return copse_cli_usage("check", "give one file");
  const char *label = copse_file_label(left[0]);
  COPSE_TRY(copse_file_read(left[0], &data, &size, &err));
  switch (first_character(data, size)) {
    case '<': status = check_msccl(label, data, size, o->json, &err); break;
    case '{': status = check_mscclpp(label, data, size, o->json, &err); break;
    default: status = check_plan(label, data, size, o->json, &err);
  }
out:
  if (o->json && status == COPSE_REFUTED) copse_cli_print_refuted("proved", &err);
  free(data);
  return status == COPSE_OK ? COPSE_EXIT_DONE : copse_cli_fail(&err);
}

static const struct copse_option own[] = {
    {"--json", 'j', NULL, "the report as one JSON object", COPSE_OPTION_TO(struct options, json)},
    {0}};

static const char usage[] =
    "usage: copse check FILE [--json]\n\n"
    "Proves a plan for every interleaving: right result at every rank, no deadlock, no race,\n"
    "channels balanced. Exit status 1 with the place of the first defect otherwise. FILE, told\n"
    "apart by content, is a native plan (proved for every message size, in place and out of\n"
    "place), MSCCL algorithm XML or an MSCCL++ execution plan (JSON), of any origin.\n\n";

const struct copse_command copse_cmd_check = {
    .name = "check",
    .does = "prove a plan: right result, no deadlock, no race",
    .usage = usage,
    .example =
        "\nexample: copse check a100-x2.allreduce.plan\n"
        "         copse check msccl-algorithms/allreduce.xml\n",
    .sections = {{.column = 14, .options = own}},
    .size = sizeof(struct options),
    .run = run};
