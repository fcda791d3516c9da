/* copse check FILE: the symbolic proof of a plan, native or foreign. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/kinds.h"
#include "cli/options.h"
#include "codegen/msccl/check.h"
#include "codegen/mscclpp/check.h"
#include "codegen/check/proof.h"

static void print_report(const struct copse_plan *plan, const struct copse_proof_report *report,
                         bool json) {
  const char *name = copse_collective_name((copse_collective)plan->header.collective);
  if (json)
    printf(
        "{\"proved\": true, \"format\": \"plan\", \"topology\": %s, \"collective\": \"%s\", "
        "\"nranks\": %u, \"workers\": %u, "
        "\"operations\": %u, \"channels\": %u, \"runs\": %d, \"symbolic_operations\": %" PRIu64
        "}\n",
        copse_cli_quoted(plan->name), name, plan->header.n_ranks, plan->header.n_workers,
        plan->header.n_ops, plan->header.n_channels, report->runs, report->operations);
  else
    printf(
        "%s of %s: proved for %u rank%s, %s: result, no deadlock, no race\n"
        "%u operations of %u workers over %u channels, %" PRIu64 " steps followed\n",
        name, plan->name, plan->header.n_ranks, COPSE_S(plan->header.n_ranks),
        plan->header.collective == COPSE_ALLTOALL ? "out of place" : "in place and out of place",
        plan->header.n_ops, plan->header.n_workers, plan->header.n_channels, report->operations);
}

static copse_status check_plan(const char *label, bool json, struct copse_cli_work *w) {
  struct copse_proof_report report;
  COPSE_DO(copse_plan_decode(label, w->data, w->size, &w->plan, &w->err));
  COPSE_DO(copse_prove_plan(w->plan, label, &report, &w->err));
  print_report(w->plan, &report, json);
  return COPSE_OK;
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
  printf("%s (MSCCL XML): proved for %d rank%s, %s: result, no deadlock, no race\n",
         copse_collective_name(r->collective), r->n_ranks, COPSE_S(r->n_ranks), layout);
  printf(
      "%d steps of %d thread blocks over %d channels; runs on %s\n", r->n_steps, r->n_tbs,
      r->n_channels,
      r->on_rccl ? "MSCCL, its NCCL executor and RCCL" : "MSCCL and its NCCL executor, not RCCL");
}

static copse_status check_msccl(const char *label, bool json, struct copse_cli_work *w) {
  struct copse_check_msccl_report report;
  COPSE_DO(copse_check_msccl(label, w->data, w->size, &report, &w->err));
  if (report.missing)
    copse_note(
        &copse_cli_notes,
        "%s: today's executors refuse it for want of %s=\"...\", which MSCCL once did without",
        label, report.missing);
  print_msccl(&report, json);
  return COPSE_OK;
}

static copse_status check_mscclpp(const char *label, bool json, struct copse_cli_work *w) {
  struct copse_check_mscclpp_report r;
  COPSE_DO(copse_check_mscclpp(label, w->data, w->size, &r, &w->err));
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
        "%s (MSCCL++ JSON): proved for %d rank%s, %s: result, no deadlock, no race\n"
        "%d operations of %d thread blocks\n",
        name, r.n_ranks, COPSE_S(r.n_ranks), r.in_place ? "in place" : "out of place", r.n_ops, r.n_blocks);
  return COPSE_OK;
}

struct options {
  const char *file;
  bool json;
};

static copse_status check(void *options, struct copse_cli_work *w) {
  const struct options *o = options;
  const char *label = copse_file_label(o->file);
  w->refuted = o->json ? "proved" : NULL;
  copse_cli_phase("prove");
  COPSE_DO(copse_file_read(o->file, &w->data, &w->size, &w->err));
  switch (copse_cli_kind_of(w->data, w->size)) {
    case COPSE_KIND_MSCCL: return check_msccl(label, o->json, w);
    case COPSE_KIND_MSCCLPP: return check_mscclpp(label, o->json, w);
    default: break;
  }
  switch (w->data[strspn(w->data, " \t\r\n")]) { /* a damaged one, perhaps */
    case '<': return check_msccl(label, o->json, w);
    case '{': return check_mscclpp(label, o->json, w);
    default: return check_plan(label, o->json, w);
  }
}

static int run(void *options, int n_left, char **left) {
  if (n_left != 1) return copse_cli_usage("check", "give one file");
  ((struct options *)options)->file = left[0];
  return copse_cli_do(check, options);
}

static const struct copse_option own[] = {{"--json", 'j', NULL, "the report as one JSON object",
                                           COPSE_OPTION_TO(struct options, json), .common = true},
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
        "example: copse check a100-x2.allreduce.plan\n"
        "         copse check msccl-algorithms/allreduce.xml\n",
    .sections = {{.title = "More options", .options = own}},
    .takes = COPSE_KIND_PLAN | COPSE_KIND_MSCCL | COPSE_KIND_MSCCLPP,
    .size = sizeof(struct options),
    .run = run};
