/* copse run PLAN: executes a plan and compares every element with an independent reference, row by
 * row as nccl-tests does: warm up, time, then check on fresh data. --write-profile: fits the costs
 * of predictions to the times. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/topology_args.h"
#include "runtime/comm/gather.h"
#include "runtime/comm/executor.h"
#include "runtime/interpreter/expected.h"
#include "runtime/plan/layout.h"
#include "runtime/plan/plan.h"
#include "runtime/transport/transport.h"
#include "runtime/ucx/rendezvous.h"

#define DEFAULT_MIN_BYTES 8u
#define DEFAULT_MAX_BYTES ((uint64_t)32 << 20)
#define MAX_BYTES ((uint64_t)1 << 48)
#define MAX_ITERS 1000000000u
#define MAX_TIMEOUT 1e6
#define DEFAULT_JOB_TIMEOUT 60.0

static const char *const backend_names[] = {"cpu", "threads", "cuda", "mpi", "ucx", NULL};

struct options {
  const char *plan; /* path or "-" */
  uint64_t min_bytes, max_bytes;
  uint64_t step_bytes; /* 0: by the factor */
  int64_t step_factor;
  uint32_t iters, warmup_iters, checks;
  const char *min_given, *max_given, *step_given, *factor_given; /* options, or NULL */
  bool types[COPSE_N_TYPES];
  bool redops[COPSE_N_REDOPS];
  enum copse_backend backend;
  const char *rendezvous; /* --backend ucx: where the processes meet, and which this one is */
  int64_t rank;
  bool out_of_place, in_place;
  bool json, trace;
  double timeout;      /* seconds without progress; 0: the backend's own */
  uint64_t max_memory; /* bytes; 0: what the machine has available */
  struct copse_cli_profile profile;
};

/* One half of a row. */
struct result {
  bool was_run; /* else the half is N/A: asked so, or alltoall in place */
  double us;    /* per launch */
  uint64_t wrong;
};

struct row {
  uint64_t size;  /* bytes of the whole message */
  uint64_t count; /* elements: of a block, as in the library call */
  enum copse_type type;
  enum copse_redop redop;
  struct result out_of_place, in_place;
};

/* Whether the ranks are processes. */
static bool is_job(const struct options *options) {
  return options->backend == COPSE_BACKEND_MPI || options->backend == COPSE_BACKEND_UCX;
}

/* Returns the timeout in seconds, also where none was given: for backends whose ranks are
 * processes. */
static double timeout_of(const struct options *options) {
  return options->timeout > 0 ? options->timeout : DEFAULT_JOB_TIMEOUT;
}

/* Returns the size after `size`; beyond max_bytes when there is none. */
static uint64_t next_size(const struct options *options, uint64_t size) {
  if (options->step_bytes) return size + options->step_bytes;
  if (size == 0) return DEFAULT_MIN_BYTES;
  return size > MAX_BYTES / (uint64_t)options->step_factor ? UINT64_MAX
                                                           : size * (uint64_t)options->step_factor;
}

/* ---- memory --------------------------------------------------------------------------------- */

/* Computes the memory of inputs, outputs and scratch for messages of `bytes`, with the type that
 * takes most. */
static copse_status needed_memory(const struct options *options, const struct copse_plan *plan,
                                  uint32_t ranks_here, uint64_t bytes, uint64_t *needed,
                                  struct copse_err *err) {
  const struct copse_plan_header *h = &plan->header;
  uint64_t block = copse_plan_block_bytes(plan, bytes), most = 0;
  for (int t = 0; t < COPSE_N_TYPES; t++) {
    uint64_t scratch;
    if (!options->types[t]) continue;
    COPSE_DO(copse_exec_scratch_bytes(plan, block / copse_type_bytes((enum copse_type)t),
                                      (enum copse_type)t, &scratch, err));
    if (scratch > most) most = scratch;
  }
  *needed = (uint64_t)((unsigned __int128)most * ranks_here / h->n_ranks) +
            copse_buffers_bytes(ranks_here, h->input_blocks * block, h->output_blocks * block);
  return COPSE_OK;
}

static double gib(uint64_t bytes) { return (double)bytes / (1 << 30); }

/* Fails with COPSE_NOMEM, naming a size that fits, where the largest size would need more memory
 * than --max-memory or than the machine has available. Called before anything is allocated. */
static copse_status check_memory(const struct options *options, const struct copse_plan *plan,
                                 uint32_t ranks_here, struct copse_err *err) {
  uint64_t limit = options->max_memory ? options->max_memory : copse_memory_available(), needed;
  COPSE_DO(needed_memory(options, plan, ranks_here, options->max_bytes, &needed, err));
  if (needed <= limit) return COPSE_OK;
  uint64_t fits = options->max_bytes, bytes = needed;
  while (bytes > limit && fits > 0) {
    fits /= 2;
    COPSE_DO(needed_memory(options, plan, ranks_here, fits, &bytes, err));
  }
  char advice[64] = "";
  if (fits > 0) snprintf(advice, sizeof advice, "; -e %llu fits", (unsigned long long)fits);
  return copse_fail(err, COPSE_NOMEM,
                    "-e %llu needs %.3g GiB of memory (inputs, outputs and scratch of %u ranks), "
                    "%.3g GiB are %s%s",
                    (unsigned long long)options->max_bytes, gib(needed), ranks_here, gib(limit),
                    options->max_memory ? "allowed" : "available", advice);
}

/* ---- --backend mpi and ucx: this process as a rank of a job ---------------------------------- */

struct job {
  struct copse_transport *transport; /* NULL: all ranks are in this process */
  uint32_t rank;
};

static void add_rank(const struct job *job, struct copse_err *err) {
  struct copse_err text = COPSE_ERR_INIT;
  (void)copse_fail(&text, err->status, "rank %u: %s", job->rank, err->text);
  *err = text;
}

/* Finds the library (beside the program) and the other processes. COPSE_UNSUPPORTED where there is
 * none. */
static copse_status join_job(struct job *job, const struct options *options,
                             const struct copse_plan *plan, struct copse_err *err) {
  const struct copse_meeting meeting = {.where = options->rendezvous,
                                        .n_ranks = plan ? (int)plan->header.n_ranks : 0,
                                        .rank = (int)options->rank,
                                        .timeout_seconds = timeout_of(options)};
  copse_wire wire;
  char text[300] = "";
  bool ucx = options->backend == COPSE_BACKEND_UCX;
  if (ucx && options->rank >= meeting.n_ranks)
    return copse_fail(err, COPSE_INVALID, "the plan is for %d ranks: --rank is 0 to %d",
                      meeting.n_ranks, meeting.n_ranks - 1);
  copse_status status = copse_cli_start_wire(timeout_of(options), ucx ? &meeting : NULL, &wire,
                                             text, sizeof text, err);
  if (status != COPSE_OK && text[0])
    return copse_fail(err, status, "backend %s: %s", backend_names[options->backend], text);
  if (status != COPSE_OK) return status;
  job->rank = (uint32_t)wire.rank;
  status = copse_transport_new(&wire, timeout_of(options), &job->transport, err);
  if (status != COPSE_OK) add_rank(job, err);
  return status;
}

/* Ends the other ranks too after an error; its text then says which rank this is. */
static void fail_job(const struct job *job, struct copse_err *err) {
  if (!job->transport) return;
  (void)copse_transport_fail(job->transport, err);
  add_rank(job, err);
}

/* Waits a second between an error message and the end of this process, so that the others get to
 * say theirs: mpirun ends a job with the first process that fails. */
static void linger(void) {
  static const struct timespec while_others_speak = {1, 0};
  nanosleep(&while_others_speak, NULL);
}

/* Agrees with the other ranks on how it went so far, and that all have the same plan. Fails alike
 * at all ranks. */
static copse_status agree(const struct job *job, copse_status mine, const struct copse_plan *plan,
                          struct copse_err *err) {
  if (!job->transport) return mine;
  copse_bootstrap bootstrap;
  struct copse_comm_shape shape;
  copse_transport_shape(job->transport, &bootstrap, &shape);
  return copse_agree(&shape, mine, &plan, plan ? 1 : 0, err);
}

/* Combines a half of a row over all ranks: the longest time, all wrong elements. */
static copse_status combine(const struct job *job, struct result *result, struct copse_err *err) {
  COPSE_AT_END(copse_free_at) struct result *all = NULL;
  if (!job->transport) return COPSE_OK;
  uint32_t n = copse_transport_size(job->transport);
  COPSE_DO(copse_calloc(n, sizeof *all, &all, err));
  if (copse_transport_all_gather(job->transport, result, all, sizeof *all) != COPSE_OK)
    return copse_transport_status(job->transport, err);
  for (uint32_t r = 0; r < n; r++) {
    if (r == job->rank) continue;
    if (all[r].us > result->us) result->us = all[r].us;
    result->wrong += all[r].wrong;
  }
  return COPSE_OK;
}

/* Waits until all ranks have come here. */
static copse_status meet(const struct job *job, struct copse_err *err) {
  struct result nothing = {0};
  return combine(job, &nothing, err);
}

/* Counts the ranks whose memory comes from this host. Open MPI says how many of its processes share
 * a host; others: as if all did. */
static uint32_t ranks_here(const struct job *job, uint32_t n_ranks) {
  const char *text = job->transport ? getenv("OMPI_COMM_WORLD_LOCAL_SIZE") : NULL;
  long n = text ? strtol(text, NULL, 10) : 0;
  return n > 0 && n < (long)n_ranks ? (uint32_t)n : n_ranks;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* All that a row needs. */
struct bench {
  struct options *options;
  const struct copse_plan *plan;
  struct copse_exec *exec;
  struct copse_buffers buffers;
  struct job job;
  uint64_t seed;  /* other data in every check */
  bool prints;    /* else another process does */
  uint64_t wrong; /* elements so far */
  double busbw_sum;
  uint64_t n_busbw, n_rows;
  struct copse_text json;
};

/* ---- nccl-tests' table, or JSON ----------------------------------------------------------- */

/* Returns GB/s with GB = 1e9; a launch that took no measurable time has none. */
static double algbw(const struct row *row, const struct result *result) {
  return result->us > 0 ? (double)row->size / 1e3 / result->us : 0;
}

static double bus_factor(const struct copse_plan *plan) {
  return copse_collective_bus_factor((copse_collective)plan->header.collective,
                                     plan->header.n_ranks);
}

static const char *redop_name(const struct bench *bench, enum copse_redop redop) {
  bool reduces = copse_collective_reduces((copse_collective)bench->plan->header.collective);
  return reduces ? copse_redop_name(redop) : "none";
}

static void begin_report(struct bench *bench) {
  const struct copse_plan_header *h = &bench->plan->header;
  const struct options *o = bench->options;
  if (o->json) {
    copse_text_add(&bench->json,
                   "{\"collective\": \"%s\", \"nranks\": %u, \"topology\": %s, "
                   "\"backend\": \"%s\", \"workers\": %u, \"results\": [",
                   copse_collective_name((copse_collective)h->collective), h->n_ranks,
                   copse_cli_quoted(bench->plan->name), backend_names[o->backend], h->n_workers);
    return;
  }
  printf("# copse run: %s, %u rank%s, %u worker%s, topology ",
         copse_collective_name((copse_collective)h->collective), h->n_ranks, COPSE_S(h->n_ranks),
         h->n_workers, COPSE_S(h->n_workers));
  for (const char *p = bench->plan->name; *p; p++) putchar((unsigned char)*p < ' ' ? '?' : *p);
  printf(", backend %s\n", backend_names[o->backend]);
  printf("# minBytes %" PRIu64 " maxBytes %" PRIu64 " step: %" PRIu64
         "(%s) warmup iters: %u iters: %u validation: %u\n#\n",
         o->min_bytes, o->max_bytes, o->step_bytes ? o->step_bytes : (uint64_t)o->step_factor,
         o->step_bytes ? "bytes" : "factor", o->warmup_iters, o->iters, o->checks);
  printf("# %10s  %12s  %8s  %6s  %6s           out-of-place                       in-place\n", "",
         "", "", "", "");
  printf("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s\n", "size", "count",
         "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw",
         "#wrong");
  printf("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s\n", "(B)",
         "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "");
  fflush(stdout);
}

/* Writes as many decimals, up to two, as the width has room for. */
static const char *fit(double value, int width, char text[32]) {
  for (int decimals = 2; decimals >= 0; decimals--)
    if (snprintf(text, 32, "%*.*f", width, decimals, value) <= width) return text;
  snprintf(text, 32, width >= 7 ? "%*.1e" : "%*.0e", width, value);
  return text;
}

static void print_result(const struct bench *bench, const struct row *row,
                         const struct result *result) {
  char us[32], alg[32], bus[32];
  if (!result->was_run) {
    printf("  %7s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A");
    return;
  }
  double bandwidth = algbw(row, result);
  printf("  %7s  %6s  %6s", fit(result->us, 7, us), fit(bandwidth, 6, alg),
         fit(bandwidth * bus_factor(bench->plan), 6, bus));
  if (bench->options->checks > 0)
    printf("  %6g", (double)result->wrong);
  else
    printf("  %6s", "N/A");
}

static void print_row(const struct bench *bench, const struct row *row) {
  printf("%12" PRIu64 "  %12" PRIu64 "  %8s  %6s  %6d", row->size, row->count,
         copse_type_name(row->type), redop_name(bench, row->redop), bench->plan->header.root);
  print_result(bench, row, &row->out_of_place);
  print_result(bench, row, &row->in_place);
  printf("\n");
  fflush(stdout); /* rows are watched, and kept when a later one fails */
}

static void add_json_result(struct bench *bench, const char *key, const struct row *row,
                            const struct result *result) {
  struct copse_text *json = &bench->json;
  if (!result->was_run) {
    copse_text_add(json, ", \"%s\": null", key);
    return;
  }
  double bandwidth = algbw(row, result);
  copse_text_add(json, ", \"%s\": {\"time_us\": %s, \"algbw_GBps\": %s, \"busbw_GBps\": %s", key,
                 COPSE_CLI_NUMBER(result->us), COPSE_CLI_NUMBER(bandwidth),
                 COPSE_CLI_NUMBER(bandwidth * bus_factor(bench->plan)));
  if (bench->options->checks > 0)
    copse_text_add(json, ", \"wrong\": %" PRIu64 "}", result->wrong);
  else
    copse_text_add(json, ", \"wrong\": null}");
}

static void add_json_row(struct bench *bench, const struct row *row) {
  struct copse_text *json = &bench->json;
  copse_text_add(json,
                 "%s\n  {\"size\": %" PRIu64 ", \"count\": %" PRIu64
                 ", \"type\": \"%s\", \"redop\": \"%s\", \"root\": %d",
                 bench->n_rows++ > 0 ? "," : "", row->size, row->count, copse_type_name(row->type),
                 redop_name(bench, row->redop), bench->plan->header.root);
  add_json_result(bench, "out_of_place", row, &row->out_of_place);
  add_json_result(bench, "in_place", row, &row->in_place);
  copse_text_add(json, "}");
}

static void add_row(struct bench *bench, const struct row *row) {
  const struct result *halves[] = {&row->out_of_place, &row->in_place};
  for (int i = 0; i < 2; i++) {
    if (!halves[i]->was_run) continue;
    bench->wrong += halves[i]->wrong;
    bench->busbw_sum += algbw(row, halves[i]) * bus_factor(bench->plan);
    bench->n_busbw++;
  }
  if (!bench->prints) return;
  if (bench->options->profile.write)
    copse_cli_profile_add(&bench->options->profile, row->size,
                          (row->out_of_place.was_run ? row->out_of_place : row->in_place).us);
  if (bench->options->json)
    add_json_row(bench, row);
  else
    print_row(bench, row);
}

/* Writes the profile that the times make. */
static copse_status make_profile(struct bench *bench, struct copse_err *err) {
  const struct options *o = bench->options;
  char device[COPSE_EXEC_DEVICE_TEXT], by[COPSE_EXEC_DEVICE_TEXT + 32];
  if (!o->profile.write) return COPSE_OK;
  if (bench->wrong > 0)
    return copse_fail(err, COPSE_REFUTED, "elements were wrong: their times make no profile");
  copse_exec_device(o->backend, device);
  snprintf(by, sizeof by, "backend %s%s%s", backend_names[o->backend], device[0] ? ", " : "",
           device);
  return copse_cli_profile_write(&o->profile, o->plan, bench->plan, by,
                                 o->json ? &bench->json : NULL, err);
}

static copse_status end_report(struct bench *bench, struct copse_err *err) {
  bool json = bench->options->json;
  double busbw = bench->n_busbw ? bench->busbw_sum / (double)bench->n_busbw : 0;
  if (json)
    copse_text_add(&bench->json, "],\n \"out_of_bounds\": %" PRIu64 ", \"avg_busbw_GBps\": %s",
                   bench->wrong, COPSE_CLI_NUMBER(busbw));
  else
    printf("# Out of bounds values : %" PRIu64 " %s\n# Avg bus bandwidth    : %g\n#\n",
           bench->wrong, bench->wrong ? "FAILED" : "OK", busbw);
  COPSE_DO(make_profile(bench, err));
  copse_text_add(&bench->json, "}\n");
  COPSE_DO(copse_text_status(&bench->json, err));
  if (json) fputs(bench->json.data, stdout);
  if (fflush(stdout) != 0 || ferror(stdout))
    return copse_fail(err, COPSE_IO, "cannot write to standard output");
  return COPSE_OK;
}

/* ---- measuring ---------------------------------------------------------------------------- */

/* Shows progress while a row is measured; --trace prints all the time. */
static void show_progress(const struct bench *bench, const struct row *row) {
  char phase[24];
  if (!bench->prints || bench->options->trace) return;
  (void)copse_cli_progress_start();
  bool reduces = copse_collective_reduces((copse_collective)bench->plan->header.collective);
  snprintf(phase, sizeof phase, "%.4g MiB %s %s", (double)row->size / 1048576,
           copse_type_name(row->type), reduces ? copse_redop_name(row->redop) : "");
  copse_cli_phase(phase);
}

static void fill(struct bench *bench, const struct row *row, bool in_place) {
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

/* Launches on what is loaded, and waits for the end. */
static copse_status launch(struct bench *bench, const struct copse_launch *it, uint32_t times,
                           struct copse_err *err) {
  for (uint32_t i = 0; i < times; i++) COPSE_DO(copse_exec_start(bench->exec, it, err));
  return copse_exec_finish(bench->exec, err);
}

static struct copse_launch launch_of(const struct bench *bench, const struct row *row) {
  return (struct copse_launch){
      row->count, row->type, row->redop, bench->buffers.inputs, bench->buffers.outputs, NULL};
}

/* Measures one half of a row: warm up, time, then check on fresh data. */
static copse_status measure(struct bench *bench, const struct row *row, bool in_place,
                            struct result *result, struct copse_err *err) {
  const struct options *o = bench->options;
  fill(bench, row, in_place);
  struct copse_launch it = launch_of(bench, row);
  COPSE_DO(copse_exec_load(bench->exec, &it, err));
  COPSE_DO(launch(bench, &it, o->warmup_iters, err));
  COPSE_DO(meet(&bench->job, err));
  double start = copse_clock_seconds();
  COPSE_DO(launch(bench, &it, o->iters, err));
  result->us = 1e6 * (copse_clock_seconds() - start) / o->iters;
  for (uint32_t i = 0; i < o->checks && result->wrong == 0; i++) {
    fill(bench, row, in_place);
    it = launch_of(bench, row);
    COPSE_DO(copse_exec_run(bench->exec, &it, err));
    result->wrong += copse_buffers_count_wrong(&bench->buffers);
  }
  result->was_run = true;
  return combine(&bench->job, result, err);
}

static copse_status run_row(struct bench *bench, uint64_t bytes, enum copse_type type,
                            enum copse_redop redop, struct copse_err *err) {
  copse_collective collective = (copse_collective)bench->plan->header.collective;
  struct row row = {.type = type, .redop = redop};
  row.count = copse_plan_block_bytes(bench->plan, bytes) / copse_type_bytes(type);
  row.size = copse_plan_message_bytes(bench->plan, row.count * copse_type_bytes(type));
  show_progress(bench, &row);
  if (bench->options->out_of_place) COPSE_DO(measure(bench, &row, false, &row.out_of_place, err));
  if (bench->options->in_place && copse_buffers_has_in_place(collective))
    COPSE_DO(measure(bench, &row, true, &row.in_place, err));
  copse_cli_progress_end();
  add_row(bench, &row);
  return COPSE_OK;
}

/* Runs all sizes for a type and an operation, then the next, as nccl-tests does. */
static copse_status run_all(struct bench *bench, struct copse_err *err) {
  const struct options *o = bench->options;
  bool reduces = copse_collective_reduces((copse_collective)bench->plan->header.collective);
  for (int type = 0; type < COPSE_N_TYPES; type++)
    for (int redop = 0; redop < (reduces ? COPSE_N_REDOPS : 1); redop++) {
      if (!o->types[type] || (reduces && !o->redops[redop])) continue;
      for (uint64_t size = o->min_bytes; size <= o->max_bytes; size = next_size(o, size))
        COPSE_DO(run_row(bench, size, (enum copse_type)type, (enum copse_redop)redop, err));
    }
  return COPSE_OK;
}

/* Fits the range of sizes to the plan's. A low-latency plan's packets hold messages up to a
 * limit. */
static void fit_range(struct options *options, const struct copse_plan *plan) {
  const struct copse_plan_header *h = &plan->header;
  bool limited = h->protocol == COPSE_PROTOCOL_LOW_LATENCY && !options->max_given;
  if (limited && options->max_bytes > h->max_bytes && options->min_bytes <= h->max_bytes)
    options->max_bytes = h->max_bytes;
  if (options->min_bytes < h->min_bytes || options->max_bytes > h->max_bytes)
    copse_note(&copse_cli_notes,
               "%s was made for messages of %s: of other sizes it is right, but others may be "
               "faster",
               copse_file_label(options->plan), COPSE_CLI_RANGE(h->min_bytes, h->max_bytes));
}

static void print_operand(const struct copse_plan_operand *it, uint32_t rank) {
  static const char *const buffers[] = {"input", "output", "scratch", "packets"};
  if (it->rank != rank) printf("rank %u's ", it->rank);
  printf("%s[%u]", buffers[it->buffer], it->index);
}

/* Prints an operation: "rank 0 worker 0, chunk 0: signal rank 1". */
static void print_operation(const void *context, uint32_t worker, const struct copse_plan_op *op,
                            uint32_t chunk) {
  const struct copse_plan *plan = context;
  uint32_t rank = plan->workers[worker].rank;
  printf("rank %u worker %u, chunk %u: ", rank, worker - plan->ranks[rank].first_worker, chunk);
  if (op->kind == COPSE_OP_MOVE) {
    for (uint32_t i = 0; i < (uint32_t)op->n_src + op->n_dst; i++) {
      printf("%s", i == 0 ? "move " : i < op->n_src ? " + " : i == op->n_src ? " to " : ", ");
      print_operand(&plan->operands[op->operand + i], rank);
    }
    putchar('\n');
    return;
  }
  const struct copse_plan_channel *channel = &plan->channels[op->channel];
  bool signal = op->kind == COPSE_OP_SIGNAL;
  printf("%s rank %u\n", signal ? "signal" : "wait for",
         plan->workers[signal ? channel->dst_worker : channel->src_worker].rank);
}

static copse_status new_exec(struct bench *bench, struct copse_err *err) {
  copse_status status =
      bench->job.transport
          ? copse_exec_new_transport(bench->plan, bench->job.transport, &bench->exec, err)
          : copse_exec_new(bench->plan, bench->options->backend, &bench->exec, err);
  if (status == COPSE_OK && bench->options->timeout > 0)
    copse_exec_set_stall_seconds(bench->exec, bench->options->timeout);
  if (status == COPSE_OK && bench->options->trace) {
    struct copse_interpreter *interpreter = copse_exec_interpreter(bench->exec);
    interpreter->trace = print_operation;
    interpreter->trace_context = bench->plan;
  }
  return status;
}

/* Prepares what may fail at one rank of a job alone. */
static copse_status prepare(struct bench *bench, struct options *options, struct copse_err *err) {
  const struct copse_plan *plan = bench->plan;
  const struct job *job = &bench->job;
  uint32_t n = plan->header.n_ranks, first = job->transport ? job->rank : 0;
  if (job->transport && copse_transport_size(job->transport) != n)
    return copse_fail(err, COPSE_INVALID,
                      "the plan is for %u ranks and the job has %u processes; start it with "
                      "mpirun -n %u",
                      n, copse_transport_size(job->transport), n);
  fit_range(options, plan);
  copse_status mine = check_memory(options, plan, ranks_here(job, n), err);
  if (mine == COPSE_OK && options->profile.write && first == 0)
    mine = copse_cli_profile_begin(&options->profile, options->plan, plan, err);
  COPSE_DO(agree(job, mine, plan, err));
  COPSE_DO(new_exec(bench, err));
  uint64_t block = copse_plan_block_bytes(plan, options->max_bytes);
  COPSE_DO(copse_buffers_new_some(n, first, job->transport ? 1 : n,
                                  plan->header.input_blocks * block,
                                  plan->header.output_blocks * block, &bench->buffers, err));
  bench->prints = first == 0;
  if (bench->prints) begin_report(bench);
  return COPSE_OK;
}

static copse_status run_bench(struct options *options, uint64_t *wrong, struct copse_err *err) {
  struct bench bench = {.options = options};
  struct copse_plan *plan = NULL;
  copse_status opened = copse_plan_open(options->plan, &plan, err), status = opened;
  bench.plan = plan;
  if (options->backend == COPSE_BACKEND_UCX) COPSE_TRY(opened); /* it says how many meet */
  if (is_job(options)) COPSE_TRY(join_job(&bench.job, options, plan, err));
  COPSE_TRY(agree(&bench.job, opened, plan, err));
  COPSE_TRY(agree(&bench.job, prepare(&bench, options, err), plan, err));
  COPSE_TRY(run_all(&bench, err));
  *wrong = bench.wrong;
out:
  copse_cli_progress_end();
  copse_cli_asked.refuted = "finished";
  if (bench.job.transport && bench.job.rank != 0) copse_cli_asked.json = false; /* rank 0 says it */
  if (status != COPSE_OK) fail_job(&bench.job, err);
  copse_exec_free(bench.exec);
  /* before the rest: messages may still be on their way to it, and a fit takes long */
  copse_transport_free(bench.job.transport);
  if (status == COPSE_OK && bench.prints) status = end_report(&bench, err);
  copse_text_free(&bench.json);
  copse_buffers_free(&bench.buffers);
  copse_cli_profile_end(&options->profile);
  copse_plan_free(plan);
  return status;
}

/* ---- options --------------------------------------------------------------------------------- */

/* Checks what a profile is measured with. */
static int settle_profile(const struct options *o) {
  int n = 0, types = 0, redops = 0;
  bool writes = o->profile.write != NULL, named = copse_cli_has_topology(&o->profile.topology);
  for (uint64_t size = o->min_bytes; size <= o->max_bytes && n <= COPSE_CALIBRATED_SIZES; n++)
    size = next_size(o, size);
  for (int i = 0; i < COPSE_N_TYPES; i++) types += o->types[i];
  for (int i = 0; i < COPSE_N_REDOPS; i++) redops += o->redops[i];
  const struct copse_cli_rule rules[] = {
      {writes != named, "--write-profile and the plan's --topology go together"},
      {o->profile.topology.profile, "--write-profile measures what --profile says: give one"},
      {writes && o->backend == COPSE_BACKEND_CPU,
       "--write-profile is not of backend cpu, which "
       "has one thread for all ranks"},
      {writes && types * redops != 1, "--write-profile is of one -d and one -o"},
      {writes && n < 2,
       "--write-profile: one size does not tell hops from links: -b a small one, -e a large one"},
      {writes && n > COPSE_CALIBRATED_SIZES, "--write-profile is of 2 to 64 sizes: a larger -f"},
      {copse_cli_is_stdout(o->profile.write), "--write-profile takes a file"}};
  return COPSE_CLI_CHECK("run", rules);
}

/* Settles options that exclude each other, and defaults that depend on others. */
static int settle(struct options *o) {
  if (o->step_given && o->factor_given) return copse_cli_usage("run", "give -i or -f, not both");
  if (!o->max_given && o->min_bytes > o->max_bytes) o->max_bytes = o->min_bytes;
  if (!o->min_given && o->min_bytes > o->max_bytes) o->min_bytes = o->max_bytes;
  if (o->min_bytes > o->max_bytes)
    return copse_cli_usage("run", "-b %llu is larger than -e %llu",
                           (unsigned long long)o->min_bytes, (unsigned long long)o->max_bytes);
  if (!o->in_place && !o->out_of_place) o->in_place = o->out_of_place = true;
  if ((o->backend == COPSE_BACKEND_UCX) != (o->rendezvous && o->rank >= 0))
    return copse_cli_usage("run",
                           "--backend ucx needs --rendezvous and --rank, others take neither");
  if (o->trace && (o->json || o->backend != COPSE_BACKEND_CPU))
    return copse_cli_usage("run", "--trace is for backend cpu, without --json");
  return settle_profile(o);
}

static int run(void *arguments, int n_left, char **left) {
  struct options *options = arguments;
  struct copse_err err = COPSE_ERR_INIT;
  uint64_t wrong = 0;
  int exit = settle(options);
  if (exit != COPSE_EXIT_DONE) return exit;
  if (n_left != 1)
    return copse_cli_usage("run", n_left == 0 ? "no plan given" : "more than one plan given");
  options->plan = left[0];
  if (run_bench(options, &wrong, &err) != COPSE_OK) {
    exit = copse_cli_fail(&err);
    if (is_job(options)) linger();
    return exit;
  }
  return wrong ? COPSE_EXIT_REFUTED : COPSE_EXIT_DONE;
}

static int refuse(const char *name, const char *value, const char *right) {
  return copse_cli_usage("run", "%s '%s' must be %s", name, value, right);
}

/* In the order of their enumerations; "all" after the last. */
static const char *const types[] = {"int8",   "uint8",  "int32", "uint32", "int64",
                                    "uint64", "half",   "float", "double", "bfloat16",
                                    "f8e4m3", "f8e5m2", "all",   NULL};
static const char *const redops[] = {"sum", "prod", "max", "min", "avg", "all", NULL};

_Static_assert(sizeof types / sizeof *types == COPSE_N_TYPES + 2 &&
                   sizeof redops / sizeof *redops == COPSE_N_REDOPS + 2,
               "a word for each, \"all\" and NULL");

/* Takes one of the words, or all, into set [n]. */
static int take_word(const char *const *words, bool *set, int n, const char *name,
                     const char *value, const char *right) {
  int found = 0;
  while (found <= n && strcmp(words[found], value) != 0) found++;
  if (found > n) return refuse(name, value, right);
  for (int i = 0; i < n; i++) set[i] = i == found || found == n;
  return COPSE_EXIT_DONE;
}

static int take_type(void *options, const char *command, char *value) {
  (void)command;
  return take_word(types, ((struct options *)options)->types, COPSE_N_TYPES, "-d", value,
                   "all, int8, uint8, int32, uint32, int64, uint64, half, float, double, "
                   "bfloat16, f8e4m3 or f8e5m2");
}

static int take_redop(void *options, const char *command, char *value) {
  (void)command;
  return take_word(redops, ((struct options *)options)->redops, COPSE_N_REDOPS, "-o", value,
                   "all, sum, prod, max, min or avg");
}

static int take_backend(void *options, const char *command, char *value) {
  struct options *o = options;
  for (int b = 0; backend_names[b]; b++)
    if (strcmp(value, backend_names[b]) == 0) {
      o->backend = (enum copse_backend)b;
      return COPSE_EXIT_DONE;
    }
  return copse_cli_usage(command, "no backend '%s'; there are cpu, threads, cuda, mpi and ucx",
                         value);
}

static int take_timeout(void *options, const char *command, char *value) {
  double *timeout = &((struct options *)options)->timeout;
  char *end;
  (void)command;
  *timeout = strtod(value, &end);
  if (*value && !*end && *timeout >= 0.1 && *timeout <= MAX_TIMEOUT) return COPSE_EXIT_DONE;
  return refuse("--timeout", value, "seconds, from 0.1 to 1000000");
}

#define TO(member) COPSE_OPTION_TO(struct options, member)
#define MARK(member) COPSE_OPTION_MARK(struct options, member)
#define SIZE_TO(member, least, most) TO(member), COPSE_OPTION_RANGE(least, most), .bytes = true
#define COUNT_TO(member, least) \
  TO(member), COPSE_OPTION_RANGE(least, MAX_ITERS), .must = "an integer of at least " #least

static const struct copse_option own[] = {
    {"--minbytes", 'b', "N", "smallest size (default 8); K, M, G: times 1024, ...",
     SIZE_TO(min_bytes, 0, MAX_BYTES), .must = "a number of bytes, such as 1000, 64K or 1G",
     .spelled = "-b", MARK(min_given), .common = true},
    {"--maxbytes", 'e', "N", "largest size (default 32M, or what a low-latency plan takes)",
     SIZE_TO(max_bytes, 0, MAX_BYTES), .must = "a number of bytes, such as 1000, 64K or 1G",
     .spelled = "-e", MARK(max_given), .common = true},
    {"--stepfactor", 'f', "F", "next size = size * F (default 2); after 0 comes 8", TO(step_factor),
     COPSE_OPTION_RANGE(2, MAX_BYTES), .must = "an integer of at least 2", .spelled = "-f",
     MARK(factor_given), .common = true},
    {"--stepbytes", 'i', "N", "next size = size + N instead", SIZE_TO(step_bytes, 1, MAX_BYTES),
     .must = "a number of bytes of at least 1", .spelled = "-i", MARK(step_given)},
    {"--iters", 'n', "N", "timed launches per row (default 5)", COUNT_TO(iters, 1),
     .spelled = "-n"},
    {"--warmup_iters", 'w', "N", "launches before them (default 1)", COUNT_TO(warmup_iters, 0),
     .spelled = "-w"},
    {"--check", 'c', "N", "checked launches per row (default 1; 0: no check)", COUNT_TO(checks, 0),
     .spelled = "-c"},
    {"--datatype", 'd', "T",
     "int8 uint8 int32 uint32 int64 uint64 half float double\n"
     "bfloat16 f8e4m3 f8e5m2, or all (default float)",
     .words = types, .take = take_type},
    {"--op", 'o', "OP", "sum prod max min avg, or all (default sum)", .words = redops,
     .take = take_redop},
    {"--backend", 0, "B",
     "cpu: one thread steps all ranks, reports a deadlock (default); threads:\n"
     "a thread for every worker; cuda: the GPUs of this machine, ranks beyond\n"
     "their number share; mpi: a process for each rank, under mpirun -n RANKS;\n"
     "ucx: the same without MPI, each started with --rendezvous and --rank",
     .words = backend_names, .take = take_backend, .common = true},
    {"--rendezvous", 0, "WHERE",
     "backend ucx: where the processes meet: HOST:PORT, at which rank 0 listens,\n"
     "or a file that all see",
     TO(rendezvous), .must = "HOST:PORT or a file"},
    {"--rank", 0, "R", "backend ucx: the rank of this process, from 0", TO(rank),
     COPSE_OPTION_RANGE(0, INT_MAX), .must = "a rank, from 0"},
    {"--out-of-place", 0, NULL, "only out of place", TO(out_of_place)},
    {"--in-place", 0, NULL, "only in place", TO(in_place)},
    {"--trace", 0, NULL, "print every operation as it is done (backend cpu)", TO(trace)},
    {"--timeout", 0, "S", "give up after S seconds without progress (default 20; mpi, ucx: 60)",
     .take = take_timeout},
    {"--max-memory", 0, "N", "refuse to take more (default: what is available)",
     SIZE_TO(max_memory, 1, UINT64_MAX), .must = "a number of bytes of at least 1, such as 4G"},
    {"--json", 'j', NULL, "one JSON object instead of the table", TO(json), .common = true},
    {0}};

static void begin(void *options) {
  *(struct options *)options = (struct options){.min_bytes = DEFAULT_MIN_BYTES,
                                                .max_bytes = DEFAULT_MAX_BYTES,
                                                .step_factor = 2,
                                                .rank = -1,
                                                .iters = 5,
                                                .warmup_iters = 1,
                                                .checks = 1,
                                                .types = {[COPSE_FLOAT] = true},
                                                .redops = {[COPSE_SUM] = true}};
}

static const char sizes[] =
    "The size is that of the whole message: for allgather the gathered buffer, for\n"
    "reduce_scatter and alltoall a rank's input. Exit status 1: an element was wrong, or\n"
    "the plan came to a standstill.\n";

const struct copse_command copse_cmd_run = {
    .name = "run",
    .does = "execute a plan and compare every element",
    .usage =
        "usage: copse run [options] PLAN\n\n"
        "Executes a plan on test data, checks every element of the result bit for bit, and\n"
        "prints the table of nccl-tests. PLAN is a file that 'copse lower' wrote, or -.\n\n",
    .example =
        "example: copse run -b 1K -e 16M -f 4 -d half -o avg allreduce.plan\n"
        "         copse run -b 1K -e 1G -f 8 --backend cuda allreduce.plan \\\n"
        "           --topology dgx-h100 --write-profile node7.json\n",
    .quotes_values = true,
    .sections = {{.title = "As nccl-tests (letters mean here what they mean there)",
                  .options = own,
                  .after = sizes},
                 COPSE_CLI_PROFILE_SECTIONS(struct options, profile)},
    .takes = COPSE_KIND_PLAN,
    .size = sizeof(struct options),
    .begin = begin,
    .run = run};
