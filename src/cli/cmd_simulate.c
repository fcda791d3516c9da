/* copse simulate SCHEDULE|PLAN -t TOPO: predicted times, beside today's algorithms. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "base/memory.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/topology_args.h"
#include "predict/baseline.h"
#include "cli/simulate_overlap.h"
#include "predict/simulate_programs.h"
#include "schedule/adapt.h"
#include "predict/simulate.h"

#define MAX_BYTES ((uint64_t)1 << 48)

static const char help[] =
    "usage: copse simulate SCHEDULE|PLAN -t TOPO [options]\n\n"
    "Predicts the time of a schedule or plan over message sizes, beside ring, double binary tree\n"
    "and direct exchange, or for an alltoall pairwise, spread-out, 2dh (Tutel) and birkhoff "
    "(FAST),\n"
    "on the same topology and demand. An alpha-beta model with a queue at every link: each link\n"
    "costs its latency and bytes / bandwidth, each hop from rank to rank alpha. Incast, memory\n"
    "and, without --reduce, arithmetic cost nothing. The file, or -, is what 'copse solve' wrote,\n"
    "what 'copse lower' wrote, or MSCCL XML or an MSCCL++ plan of any origin. A plan's ranks are\n"
    "the topology's, each pair on its shortest route, where a schedule says the way.\n\n"
    "  -t, --topology FILE    the topology, in any input format\n"
    "  -b, --minbytes N       smallest size (default 1K); K, M, G: times 1024, ...\n"
    "  -e, --maxbytes N       largest size (default 10G)\n"
    "  -f, --stepfactor F     next size = size * F (default 4)\n"
    "  -a, --alpha US         software cost of a hop from rank to rank (default 2 us)\n"
    "      --chunk N          bytes of a chunk, all of them (default: as plans are cut, 128K to\n"
    "                         512K, see 'copse lower --chunk'; a plan as it says itself)\n"
    "      --fifo N           chunks of a transfer that may be on their way over links, as slots of\n"
    "                         a plan's buffers (default 4, a plan's own; 0: any number)\n"
    "      --duplex D         what goes both ways between two ranks at once takes D times as long\n"
    "                         as one way alone (default 1; measure it, see 'make bench-mpi')\n"
    "      --reduce GBPS      at which a rank adds what comes in, one byte after the other\n"
    "                         (default: free)\n"
    "      --no-baselines     the schedule alone\n"
    "  -j, --json             one JSON object instead of the table\n\n"
    "The size is M: for an allgather the gathered buffer, for an alltoall what a rank sends\n"
    "(with a demand, the rank that sends most). algbw is M / time.\n\n"
    "example: copse simulate a100-x2.allreduce.json -t topologies/a100-x2.json -b 64K -e 1G\n";

struct options {
  const char *schedule, *overlap;
  struct copse_cli_topology topology;
  uint64_t min_bytes, max_bytes, factor;
  struct copse_sim_options sim;
  bool no_baselines, json, chunk, fifo;
  bool of_table; /* an option was given that says what the table has */
};

struct job {
  const struct options *o;
  struct copse_topology *topology;
  struct copse_schedule *schedule; /* NULL: a plan */
  struct copse_foreign what;       /* of either: what it does */
  struct copse_sim_options own;    /* of the first column: a native plan has chunks of its own */
  struct copse_prediction columns[COPSE_MAX_PREDICTIONS];
  int n_columns;
  struct copse_text text; /* the JSON object, written when it is whole */
  int overlap_status;     /* exit status of --overlap, which prints for itself */
  struct copse_err *err;
};

static copse_status check_ranks(const struct job *job) {
  const struct copse_schedule *s = job->schedule;
  const struct copse_topology *t = job->topology;
  if (s->n_ranks != t->n_ranks)
    return copse_fail_at(job->err, COPSE_BAD_INPUT, copse_file_label(job->o->schedule), 0,
                         "the schedule has %d ranks, the topology %d", s->n_ranks, t->n_ranks);
  for (int r = 0; r < s->n_ranks; r++)
    if (strcmp(s->nodes[s->rank_nodes[r]], t->nodes[t->rank_nodes[r]].id) != 0)
      return copse_fail_at(job->err, COPSE_BAD_INPUT, copse_file_label(job->o->schedule), 0,
                           "rank %d is '%s' in the schedule and '%s' in the topology", r,
                           s->nodes[s->rank_nodes[r]], t->nodes[t->rank_nodes[r]].id);
  return COPSE_OK;
}

/* A schedule may well be asked what it does on another fabric, a degraded one, say: but not
 * unnoticed. */
static copse_status note_other_topology(const struct job *job, const char *made_for) {
  char sha256[COPSE_SHA256_HEX];
  copse_status status = copse_topology_sha256(job->topology, sha256, job->err);
  if (status == COPSE_OK && strcmp(sha256, made_for) != 0)
    copse_note(
        &copse_cli_notes,
        "%s was made for another topology than %s, or names none; it is simulated on the one given",
        copse_file_label(job->o->schedule), copse_cli_topology_label(&job->o->topology));
  return status;
}

/* ---- the table ------------------------------------------------------------------------- */

static void print_cell(const char *what) { printf("  %18s", what); }

static void print_head(const struct job *job) {
  const struct options *o = job->o;
  printf("# copse simulate: %s, %d ranks, topology %s\n",
         copse_collective_name(job->what.collective), job->topology->n_ranks, job->topology->name);
  printf("# minBytes %" PRIu64 " maxBytes %" PRIu64 " step: %" PRIu64 "(factor) alpha: %g us",
         o->min_bytes, o->max_bytes, o->factor, o->sim.alpha_us);
  if (o->sim.fifo != copse_sim_defaults.fifo) printf(" fifo: %d", o->sim.fifo);
  if (o->sim.duplex > 1) printf(" duplex: %g", o->sim.duplex);
  if (o->sim.reduce_us_per_byte > 0) printf(" reduce: %g GB/s", 1e-3 / o->sim.reduce_us_per_byte);
  printf("; a model, not a measurement\n");
  for (int i = 0; i < job->n_columns; i++) {
    char time[COPSE_Q_TEXT], rate[COPSE_RATE_TEXT];
    const struct copse_prediction *c = &job->columns[i];
    if (copse_prediction_exists(c))
      printf("# %-10s %s s/GB, %s%s\n", c->name, copse_q_text(c->time_per_GB, time),
             copse_rate_text(c->time_per_GB, 10, rate), c->time_per_GB.num ? " at most" : "");
    else
      printf("# %-10s not applicable: %s\n", c->name, c->why.text);
  }
  printf("#\n# %12s", "size");
  for (int i = 0; i < job->n_columns; i++)
    if (copse_prediction_exists(&job->columns[i])) print_cell(job->columns[i].name);
  printf("  %7.7s to\n# %12s", job->columns[0].name, "");
  for (int i = 0; i < job->n_columns; i++)
    if (copse_prediction_exists(&job->columns[i])) print_cell("time      algbw");
  printf("  %10s\n# %12s", "the best", "(B)");
  for (int i = 0; i < job->n_columns; i++)
    if (copse_prediction_exists(&job->columns[i])) print_cell("(us)     (GB/s)");
  printf("  %10s\n", "other");
}

/* The shortest time of the baselines, 0 if there is none. */
static double best_other(const struct job *job, const double *us) {
  double best = 0;
  for (int i = 1; i < job->n_columns; i++)
    if (copse_prediction_exists(&job->columns[i]) && (best == 0 || us[i] < best)) best = us[i];
  return best;
}

static void print_row(const struct job *job, uint64_t size, const double *us) {
  double best = best_other(job, us);
  printf("  %12" PRIu64, size);
  for (int i = 0; i < job->n_columns; i++)
    if (copse_prediction_exists(&job->columns[i]))
      printf("  %10.*f %7.2f", us[i] < 1e5 ? 2 : 0, us[i],
             us[i] > 0 ? 1e-3 * (double)size / us[i] : 0.0);
  if (best > 0)
    printf("  %10.3f\n", us[0] / best);
  else
    printf("  %10s\n", "-");
}

/* ---- JSON ------------------------------------------------------------------------------ */

static void add_json_head(struct job *job) {
  struct copse_text *text = &job->text;
  copse_text_add(text, "{\"collective\": \"%s\", \"nranks\": %d, \"topology\": ",
                 copse_collective_name(job->what.collective), job->topology->n_ranks);
  copse_text_add_json_string(text, job->topology->name);
  copse_text_add(text, ", \"alpha_us\": ");
  copse_text_add_json_number(text, job->o->sim.alpha_us);
  copse_text_add(text, ", \"fifo\": %d", job->o->sim.fifo);
  copse_text_add(text, ", \"duplex\": ");
  copse_text_add_json_number(text, job->o->sim.duplex);
  if (job->o->sim.reduce_us_per_byte > 0) {
    copse_text_add(text, ", \"reduce_GBps\": ");
    copse_text_add_json_number(text, 1e-3 / job->o->sim.reduce_us_per_byte);
  }
  copse_text_add(text, ", \"algorithms\": [");
  for (int i = 0; i < job->n_columns; i++) {
    const struct copse_prediction *c = &job->columns[i];
    char time[COPSE_Q_TEXT];
    copse_text_add(text, "%s{\"name\": \"%s\", ", i > 0 ? ", " : "", c->name);
    if (copse_prediction_exists(c)) {
      copse_text_add(text, "\"time_per_GB\": \"%s\"}", copse_q_text(c->time_per_GB, time));
    } else {
      copse_text_add(text, "\"not_applicable\": ");
      copse_text_add_json_string(text, c->why.text);
      copse_text_add(text, "}");
    }
  }
  copse_text_add(text, "], \"unit\": {\"time\": \"us\", \"algbw\": \"GB/s\"}, \"rows\": [");
}

static void add_json_row(struct job *job, uint64_t size, const double *us, bool first) {
  struct copse_text *text = &job->text;
  double best = best_other(job, us);
  bool comma = false;
  copse_text_add(text, "%s\n {\"size\": %" PRIu64 ", \"times\": {", first ? "" : ",", size);
  for (int i = 0; i < job->n_columns; i++) {
    if (!copse_prediction_exists(&job->columns[i])) continue;
    copse_text_add(text, "%s\"%s\": {\"time\": ", comma ? ", " : "", job->columns[i].name);
    copse_text_add_json_number(text, us[i]);
    copse_text_add(text, ", \"algbw\": ");
    copse_text_add_json_number(text, us[i] > 0 ? 1e-3 * (double)size / us[i] : 0);
    copse_text_add(text, "}");
    comma = true;
  }
  copse_text_add(text, "}, \"to_best_other\": ");
  if (best > 0)
    copse_text_add_json_number(text, us[0] / best);
  else
    copse_text_add(text, "null");
  copse_text_add(text, "}");
}

/* ---- all together ---------------------------------------------------------------------- */

/* -b, times -f, up to -e: no more than there are powers of two. */
static int list_sizes(const struct options *o, uint64_t sizes[64]) {
  int n = 0;
  for (uint64_t size = o->min_bytes; size <= o->max_bytes && n < 64; size *= o->factor) {
    sizes[n++] = size;
    if (size > o->max_bytes / o->factor) break;
  }
  return n;
}

/* Every size of a column after the other: they have much in common. */
static copse_status run_sizes(struct job *job) {
  struct copse_sim_question *questions = NULL;
  uint64_t sizes[64];
  int n_sizes = list_sizes(job->o, sizes), n = 0;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)job->n_columns * (size_t)n_sizes, sizeof *questions, &questions,
                         job->err));
  for (int c = 0; c < job->n_columns; c++)
    for (int i = 0; i < n_sizes && copse_prediction_exists(&job->columns[c]); i++)
      questions[n++] = (struct copse_sim_question){.dag = &job->columns[c].dag,
                                                   .options = c == 0 ? &job->own : &job->o->sim,
                                                   .unit_bytes = (double)sizes[i]};
  COPSE_TRY(copse_simulate_all(job->topology, questions, n, job->err));
  for (int i = 0; i < n_sizes; i++) {
    double us[COPSE_MAX_PREDICTIONS] = {0};
    for (int c = 0, column = 0; c < job->n_columns; c++)
      if (copse_prediction_exists(&job->columns[c]))
        us[c] = questions[column++ * n_sizes + i].result.us;
    if (job->o->json)
      add_json_row(job, sizes[i], us, i == 0);
    else
      print_row(job, sizes[i], us);
  }
out:
  free(questions);
  return status;
}

/* What a file is: a native plan says so in its first bytes, MSCCL is XML and so starts with a tag,
 * MSCCL++ JSON that speaks of blocks. */
enum kind { KIND_SCHEDULE, KIND_PLAN, KIND_MSCCL, KIND_MSCCLPP };
static const char *const kind_names[] = {"copse", "plan", "msccl", "mscclpp"};

static enum kind kind_of(const char *data, size_t size) {
  if (size >= 8 && memcmp(data, "COPSEPLN", 8) == 0) return KIND_PLAN;
  size_t blanks = strspn(data, " \t\r\n");
  if (blanks < size && data[blanks] == '<') return KIND_MSCCL;
  return strstr(data, "\"threadblocks\"") ? KIND_MSCCLPP : KIND_SCHEDULE;
}

/* Cut as it will run, if nothing else was asked for. */
static void take_chunks(struct job *job, const struct copse_plan_header *header) {
  struct copse_sim_options given = job->own;
  copse_sim_options_of_plan(header, &job->own);
  if (job->o->fifo) job->own.fifo = given.fifo;
  if (!job->o->chunk) return;
  job->own.max_chunk_bytes = given.max_chunk_bytes;
  job->own.min_chunk_bytes = given.min_chunk_bytes;
  job->own.pipeline_chunks = given.pipeline_chunks;
}

static copse_status add_plan(struct job *job, const char *data, size_t size) {
  const char *label = copse_file_label(job->o->schedule);
  struct copse_plan *plan = NULL;
  char sha256[COPSE_SHA256_HEX];
  copse_status status;
  COPSE_TRY(copse_plan_decode(label, data, size, &plan, job->err));
  COPSE_TRY(copse_sim_dag_of_plan(label, plan, job->topology, &job->columns[0].dag, &job->what,
                                  job->err));
  take_chunks(job, &plan->header);
  for (size_t i = 0; i < sizeof plan->header.topology_sha256; i++)
    snprintf(sha256 + 2 * i, 3, "%02x", plan->header.topology_sha256[i]);
  COPSE_TRY(note_other_topology(job, sha256));
  if (job->o->min_bytes < plan->header.min_bytes || job->o->max_bytes > plan->header.max_bytes)
    copse_note(&copse_cli_notes,
               "%s is for messages of %" PRIu64 " to %" PRIu64
               " bytes; predictions of others are "
               "of what it would do",
               label, plan->header.min_bytes, plan->header.max_bytes);
out:
  copse_plan_release(plan);
  return status;
}

static copse_status add_any_plan(struct job *job, enum kind kind, const char *data, size_t size) {
  struct copse_prediction *c = &job->columns[job->n_columns++];
  const char *label = copse_file_label(job->o->schedule);
  copse_status status;
  c->name = kind_names[kind];
  if (job->o->overlap)
    return copse_fail_at(job->err, COPSE_UNSUPPORTED, label, 0,
                         "--overlap needs a schedule, not a plan");
  if (kind == KIND_PLAN)
    COPSE_TRY(add_plan(job, data, size));
  else if (kind == KIND_MSCCL)
    COPSE_TRY(
        copse_sim_dag_of_msccl(label, data, size, job->topology, &c->dag, &job->what, job->err));
  else
    COPSE_TRY(
        copse_sim_dag_of_mscclpp(label, data, size, job->topology, &c->dag, &job->what, job->err));
  c->time_per_GB = job->what.time_per_GB;
out:
  return status;
}

static copse_status load_schedule(struct job *job, const char *data, size_t size) {
  const char *label = copse_file_label(job->o->schedule);
  copse_status status = copse_schedule_parse(label, data, size, &job->schedule, job->err);
  if (status == COPSE_OK)
    job->what = (struct copse_foreign){job->schedule->collective, job->schedule->root,
                                       job->schedule->time_per_GB, NULL};
  return status;
}

/* The first column, of whatever the file is. */
static copse_status add_first(struct job *job) {
  const struct options *o = job->o;
  char *data = NULL;
  size_t size;
  copse_status status;
  COPSE_TRY(copse_file_read(o->schedule, &data, &size, job->err));
  enum kind kind = kind_of(data, size);
  if (kind == KIND_SCHEDULE) COPSE_TRY(load_schedule(job, data, size));
  COPSE_TRY(copse_cli_load_topology(&o->topology, &job->topology, job->err));
  if (kind != KIND_SCHEDULE) {
    COPSE_TRY(add_any_plan(job, kind, data, size));
    goto out;
  }
  COPSE_TRY(copse_schedule_choose_ranks(job->schedule, &job->topology, job->err));
  COPSE_TRY(check_ranks(job));
  COPSE_TRY(note_other_topology(job, job->schedule->topology_sha256));
  if (o->overlap) goto out;
  COPSE_TRY(copse_schedule_expand(job->schedule, job->err));
  COPSE_TRY(
      copse_predict(job->schedule, job->topology, false, job->columns, &job->n_columns, job->err));
out:
  free(data);
  return status;
}

static copse_status simulate(struct job *job) {
  const struct options *o = job->o;
  copse_status status;
  COPSE_TRY(add_first(job));
  if (o->overlap) {
    job->overlap_status =
        copse_cli_overlap(o->overlap, job->schedule, job->topology, &o->sim, o->json);
    goto out;
  }
  const struct copse_baseline_options like = {
      .collective = job->what.collective,
      .root = job->what.root,
      .demand = job->schedule ? job->schedule->demand : job->what.demand,
      .like = job->schedule};
  if (!o->no_baselines)
    COPSE_TRY(
        copse_predict_baselines(&like, job->topology, job->columns, &job->n_columns, job->err));
  if (o->json)
    add_json_head(job);
  else
    print_head(job);
  COPSE_TRY(run_sizes(job));
  if (!o->json) goto out;
  copse_text_add(&job->text, "\n]}\n");
  COPSE_TRY(copse_text_status(&job->text, job->err));
  fwrite(job->text.data, 1, job->text.size, stdout);
out:
  return status;
}

static int run(const struct options *o) {
  struct copse_err err = COPSE_ERR_INIT;
  struct job job = {.o = o, .own = o->sim, .err = &err};
  copse_status status = simulate(&job);
  copse_predictions_free(job.columns, job.n_columns);
  copse_text_free(&job.text);
  free(job.what.demand);
  copse_schedule_release(job.schedule);
  copse_topology_release(job.topology);
  return status == COPSE_OK ? job.overlap_status : copse_cli_fail(&err);
}

/* ---- options --------------------------------------------------------------------------- */

/* At most 19 digits, zeros in front included. */
static bool parse_size(const char *text, uint64_t *out) {
  return strspn(text, "0123456789") < 20 && copse_cli_parse_size(text, MAX_BYTES, out);
}

static bool parse_alpha(const char *text, double *out) {
  struct copse_q q;
  if (copse_q_parse_decimal(text, &q, NULL) != COPSE_OK || q.num < 0) return false;
  *out = copse_q_to_double(q);
  return true;
}

static bool parse_duplex(const char *text, double *out) {
  return parse_alpha(text, out) && *out >= 1;
}

static bool parse_chunk(const char *text, struct copse_sim_options *sim) {
  uint64_t bytes;
  if (!parse_size(text, &bytes) || bytes == 0) return false;
  sim->min_chunk_bytes = sim->max_chunk_bytes = (double)bytes;
  return true;
}

static bool parse_reduce(const char *text, struct copse_sim_options *sim) {
  double gbps;
  if (!parse_alpha(text, &gbps) || gbps == 0) return false;
  sim->reduce_us_per_byte = 1e-3 / gbps;
  return true;
}

/* 0, or the exit status after what was wrong has been said. */
static int parse_one(struct options *o, int c, char **argv) {
  int64_t number;
  if (strchr("befn", c)) o->of_table = true;
  switch (c) {
    case 't': o->topology.path = optarg; return 0;
    case 'b':
      if (parse_size(optarg, &o->min_bytes)) return 0;
      return copse_cli_usage("simulate", "-b must be a number of bytes, such as 1000, 64K or 1G");
    case 'e':
      if (parse_size(optarg, &o->max_bytes)) return 0;
      return copse_cli_usage("simulate", "-e must be a number of bytes, such as 1000, 64K or 1G");
    case 'f':
      if (!copse_cli_parse_int(optarg, 2, INT32_MAX, &number))
        return copse_cli_usage("simulate", "-f must be an integer of at least 2");
      o->factor = (uint64_t)number;
      return 0;
    case 'a':
      if (parse_alpha(optarg, &o->sim.alpha_us)) return 0;
      return copse_cli_usage("simulate", "--alpha must be microseconds, 0 or more");
    case 'C':
      o->chunk = true;
      if (parse_chunk(optarg, &o->sim)) return 0;
      return copse_cli_usage("simulate", "--chunk must be a number of bytes, such as 64K");
    case 'F':
      if (!copse_cli_parse_int(optarg, 0, COPSE_SIM_MAX_FIFO, &number))
        return copse_cli_usage("simulate", "--fifo must be an integer from 0 to 1024");
      o->sim.fifo = (int)number;
      o->fifo = true;
      return 0;
    case 'D':
      if (parse_duplex(optarg, &o->sim.duplex)) return 0;
      return copse_cli_usage("simulate", "--duplex must be a number from 1, such as 1.9");
    case 'R':
      if (parse_reduce(optarg, &o->sim)) return 0;
      return copse_cli_usage("simulate", "--reduce must be GB/s, more than 0");
    case 'n': o->no_baselines = true; return 0;
    case 'O': o->overlap = optarg; return 0;
    case 'j': o->json = true; return 0;
    default: return copse_cli_topology_option(&o->topology, "simulate", argv, c);
  }
}

int copse_cmd_simulate(int argc, char **argv) {
  static const struct option longs[] = {{"topology", required_argument, NULL, 't'},
                                        COPSE_CLI_TOPOLOGY_OPTIONS,
                                        COPSE_CLI_CHANGE_OPTIONS,
                                        {"minbytes", required_argument, NULL, 'b'},
                                        {"maxbytes", required_argument, NULL, 'e'},
                                        {"stepfactor", required_argument, NULL, 'f'},
                                        {"alpha", required_argument, NULL, 'a'},
                                        {"chunk", required_argument, NULL, 'C'},
                                        {"fifo", required_argument, NULL, 'F'},
                                        {"duplex", required_argument, NULL, 'D'},
                                        {"reduce", required_argument, NULL, 'R'},
                                        {"no-baselines", no_argument, NULL, 'n'},
                                        {"overlap", required_argument, NULL, 'O'},
                                        {"json", no_argument, NULL, 'j'},
                                        {"help", no_argument, NULL, 'h'},
                                        {NULL, 0, NULL, 0}};
  struct options o = {
      .min_bytes = 1024, .max_bytes = (uint64_t)10 << 30, .factor = 4, .sim = copse_sim_defaults};
  opterr = 0;
  for (int c; (c = getopt_long(argc, argv, ":t:l:b:e:f:a:jh", longs, NULL)) != -1;) {
    if (c == 'h') {
      fputs(help, stdout);
      fputs(copse_cli_overlap_help, stdout);
      fputs(copse_cli_topology_help, stdout);
      fputs(copse_cli_change_help, stdout);
      return COPSE_EXIT_DONE;
    }
    int exit = parse_one(&o, c, argv);
    if (exit != 0) return exit;
  }
  if (argc - optind != 1) return copse_cli_usage("simulate", "give one schedule or plan");
  if (!copse_cli_has_topology(&o.topology))
    return copse_cli_usage("simulate", "name the topology with -t or --synthetic");
  if (o.min_bytes < 1 || o.min_bytes > o.max_bytes)
    return copse_cli_usage("simulate", "-b must be at least 1 and not more than -e");
  if (o.overlap && o.of_table)
    return copse_cli_usage("simulate",
                           "--overlap prints no table of sizes: leave out -b, -e, -f and "
                           "--no-baselines");
  o.schedule = argv[optind];
  return run(&o);
}
