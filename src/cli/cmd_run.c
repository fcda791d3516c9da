/* `copse run`: executes a plan and verifies the result. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/run_job.h"
#include "cli/run_memory.h"
#include "cli/run_options.h"
#include "cli/run_table.h"
#include "runtime/comm/executor.h"
#include "runtime/plan/layout.h"
#include "runtime/plan/plan.h"
#include "runtime/interpreter/expected.h"

/* All that a row needs. */
struct bench {
  const struct copse_run_options *options;
  const struct copse_plan *plan;
  struct copse_exec *exec;
  struct copse_buffers buffers;
  struct copse_run_report *report; /* NULL: another process prints */
  struct copse_job job;
  uint64_t wrong; /* elements so far */
  uint64_t seed;  /* other data in every check */
};

/* Where somebody watches but doesn't see the rows come. */
static void show_progress(const struct bench *bench, const struct copse_run_row *row) {
  if (!bench->report) return;
  bool rows_are_seen = !bench->options->json && isatty(STDOUT_FILENO);
  if (isatty(STDERR_FILENO) && !rows_are_seen)
    fprintf(stderr, "\rcopse run: %llu bytes, %s %s \033[K", (unsigned long long)row->size,
            copse_type_name(row->type), copse_redop_name(row->redop));
}

static void end_progress(const struct bench *bench) {
  if (!bench->report) return;
  if (isatty(STDERR_FILENO) && (bench->options->json || !isatty(STDOUT_FILENO)))
    fprintf(stderr, "\r\033[K");
}

static void fill(struct bench *bench, const struct copse_run_row *row, bool in_place) {
  const struct copse_plan_header *h = &bench->plan->header;
  const struct copse_data data = {.collective = (copse_collective)h->collective,
                                  .n_ranks = h->n_ranks,
                                  .root = h->root,
                                  .count = row->count,
                                  .type = row->type,
                                  .redop = row->redop,
                                  .extents = h->n_extents > 0 ? bench->plan->extents : NULL,
                                  .seed = bench->seed++};
  copse_buffers_fill(&bench->buffers, &data, in_place);
}

/* On what is loaded, to the end. */
static copse_status launch(struct bench *bench, const struct copse_launch *it, uint32_t times,
                           struct copse_err *err) {
  copse_status status = COPSE_OK;
  for (uint32_t i = 0; i < times && status == COPSE_OK; i++)
    status = copse_exec_start(bench->exec, it, err);
  return status == COPSE_OK ? copse_exec_finish(bench->exec, err) : status;
}

static struct copse_launch launch_of(const struct bench *bench, const struct copse_run_row *row) {
  return (struct copse_launch){
      row->count, row->type, row->redop, bench->buffers.inputs, bench->buffers.outputs, NULL};
}

/* One half of a row: warm up, time, then check on fresh data. */
static copse_status measure(struct bench *bench, const struct copse_run_row *row, bool in_place,
                            struct copse_run_result *result, struct copse_err *err) {
  const struct copse_run_options *o = bench->options;
  copse_status status;
  fill(bench, row, in_place);
  struct copse_launch it = launch_of(bench, row);
  COPSE_TRY(copse_exec_load(bench->exec, &it, err));
  COPSE_TRY(launch(bench, &it, o->warmup_iters, err));
  COPSE_TRY(copse_job_meet(&bench->job, err));
  double start = copse_clock_seconds();
  COPSE_TRY(launch(bench, &it, o->iters, err));
  result->us = 1e6 * (copse_clock_seconds() - start) / o->iters;
  for (uint32_t i = 0; i < o->checks && result->wrong == 0; i++) {
    fill(bench, row, in_place);
    it = launch_of(bench, row);
    COPSE_TRY(copse_exec_run(bench->exec, &it, err));
    result->wrong += copse_buffers_count_wrong(&bench->buffers);
  }
  result->was_run = true;
  COPSE_TRY(copse_job_combine(&bench->job, result, err));
out:
  return status;
}

static copse_status run_row(struct bench *bench, uint64_t bytes, enum copse_type type,
                            enum copse_redop redop, struct copse_err *err) {
  copse_collective collective = (copse_collective)bench->plan->header.collective;
  struct copse_run_row row = {.type = type, .redop = redop};
  copse_status status = COPSE_OK;
  row.count = copse_plan_block_bytes(bench->plan, bytes) / copse_type_bytes(type);
  row.size = copse_plan_message_bytes(bench->plan, row.count * copse_type_bytes(type));
  show_progress(bench, &row);
  if (bench->options->out_of_place) COPSE_TRY(measure(bench, &row, false, &row.out_of_place, err));
  if (bench->options->in_place && copse_buffers_has_in_place(collective))
    COPSE_TRY(measure(bench, &row, true, &row.in_place, err));
  bench->wrong += row.out_of_place.wrong + row.in_place.wrong;
  if (bench->report) copse_run_report_add(bench->report, &row);
out:
  return status;
}

/* As nccl-tests does: all sizes for a type and an operation, then the next. */
static copse_status run_all(struct bench *bench, struct copse_err *err) {
  const struct copse_run_options *o = bench->options;
  bool reduces = copse_collective_reduces((copse_collective)bench->plan->header.collective);
  for (int type = 0; type < COPSE_N_TYPES; type++)
    for (int redop = 0; redop < (reduces ? COPSE_N_REDOPS : 1); redop++) {
      if (!o->types[type] || (reduces && !o->redops[redop])) continue;
      for (uint64_t size = o->min_bytes; size <= o->max_bytes;
           size = copse_run_next_size(o, size)) {
        copse_status status =
            run_row(bench, size, (enum copse_type)type, (enum copse_redop)redop, err);
        if (status != COPSE_OK) return status;
      }
    }
  return COPSE_OK;
}

/* A low-latency plan's packets hold messages up to a limit. */
static void fit_range(struct copse_run_options *options, const struct copse_plan *plan) {
  const struct copse_plan_header *h = &plan->header;
  bool limited = h->protocol == COPSE_PROTOCOL_LOW_LATENCY && options->max_is_default;
  if (limited && options->max_bytes > h->max_bytes && options->min_bytes <= h->max_bytes)
    options->max_bytes = h->max_bytes;
}

static copse_status new_exec(struct bench *bench, struct copse_err *err) {
  copse_status status =
      bench->job.transport ? copse_exec_new_transport(bench->plan, bench->job.transport, &bench->exec, err)
                      : copse_exec_new(bench->plan, bench->options->backend, &bench->exec, err);
  if (status == COPSE_OK && bench->options->timeout > 0)
    copse_exec_set_stall_seconds(bench->exec, bench->options->timeout);
  return status;
}

/* What may fail at one rank of a job alone. */
static copse_status prepare(struct bench *bench, struct copse_run_options *options,
                            struct copse_err *err) {
  const struct copse_plan *plan = bench->plan;
  const struct copse_job *job = &bench->job;
  uint32_t n = plan->header.n_ranks, first = job->transport ? job->rank : 0;
  copse_status status;
  if (job->transport && copse_transport_size(job->transport) != n)
    return copse_fail(err, COPSE_INVALID,
                      "the plan is for %u ranks and the job has %u processes; start it with "
                      "mpirun -n %u",
                      n, copse_transport_size(job->transport), n);
  fit_range(options, plan);
  status = copse_run_check_memory(options, plan, copse_job_ranks_here(job, n), err);
  COPSE_TRY(copse_job_agree(job, status, plan, err));
  COPSE_TRY(new_exec(bench, err));
  uint64_t block = copse_plan_block_bytes(plan, options->max_bytes);
  COPSE_TRY(copse_buffers_new_some(n, first, job->transport ? 1 : n, plan->header.input_blocks * block,
                                   plan->header.output_blocks * block, &bench->buffers, err));
  if (first == 0) COPSE_TRY(copse_run_report_new(options, plan, &bench->report, err));
out:
  return status;
}

static copse_status run_bench(struct copse_run_options *options, uint64_t *wrong,
                              struct copse_err *err) {
  struct bench bench = {.options = options};
  struct copse_plan *plan = NULL;
  copse_status status;
  if (options->backend == COPSE_BACKEND_MPI)
    COPSE_TRY(copse_job_start(&bench.job, copse_run_timeout(options), err));
  status = copse_plan_open(options->plan, &plan, err);
  bench.plan = plan;
  COPSE_TRY(copse_job_agree(&bench.job, status, plan, err));
  COPSE_TRY(copse_job_agree(&bench.job, prepare(&bench, options, err), plan, err));
  COPSE_TRY(run_all(&bench, err));
  end_progress(&bench);
  *wrong = bench.wrong;
  if (bench.report) COPSE_TRY(copse_run_report_end(bench.report, wrong, err));
out:
  if (status != COPSE_OK) end_progress(&bench);
  if (status == COPSE_REFUTED && options->json && (!bench.job.transport || bench.job.rank == 0))
    copse_cli_print_refuted("finished", err);
  if (status != COPSE_OK) copse_job_fail(&bench.job, err);
  copse_exec_free(bench.exec);
  copse_job_end(&bench.job); /* before the rest: messages may still be on their way to it */
  copse_run_report_free(bench.report);
  copse_buffers_free(&bench.buffers);
  copse_plan_release(plan);
  return status;
}

int copse_cmd_run(int argc, char **argv) {
  struct copse_run_options options;
  struct copse_err err = COPSE_ERR_INIT;
  int exit_status;
  uint64_t wrong = 0;
  if (copse_run_options_parse(argc, argv, &options, &exit_status) == COPSE_RUN_LEAVE)
    return exit_status;
  if (run_bench(&options, &wrong, &err) != COPSE_OK) {
    exit_status = copse_cli_fail(&err);
    if (options.backend == COPSE_BACKEND_MPI) copse_job_linger();
    return exit_status;
  }
  return wrong ? 1 : 0;
}
