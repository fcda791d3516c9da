/* copse lower SCHEDULE --to plan -o FILE: code generation. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "codegen/lower.h"

static const char help[] =
    "usage: copse lower SCHEDULE --to plan -o FILE [options]\n\n"
    "Turns a schedule into a plan that 'copse run' and the library execute.\n\n"
    "  -t, --to FORMAT         plan (the native format)\n"
    "  -o, --output FILE       where to write it (- for standard output)\n"
    "      --text              JSON for people instead of the binary file\n"
    "  -w, --workers N         at most N workers per rank: thread blocks on a GPU, which all\n"
    "                          must be resident at once (an H100 has 132 SMs); default 32\n"
    "  -I, --instances N       cut each tree into N parts, each with a worker; default 1\n"
    "  -F, --fifo N            slots of a staged edge; default 4\n"
    "  -C, --chunk BYTES       largest chunk; default 524288\n"
    "      --min-chunk BYTES   smallest chunk for the sake of pipelining; default 16384\n"
    "      --pipeline-chunks N chunks to aim for on shorter messages; default 16\n"
    "  -L, --low-latency       packets, each with its flag, instead of chunks and signals: for\n"
    "                          small messages\n"
    "      --min-size BYTES    smallest message that the plan is meant for; default 0\n"
    "      --max-size BYTES    largest; default: any, with --low-latency 262144\n\n"
    "The library picks among plans by the message's size: the narrowest range that holds it.\n\n"
    "example: copse lower a100-x2.allreduce.json --to plan -o a100-x2.allreduce.plan\n";

struct options {
  const char *input, *output, *to;
  struct copse_lower_options lower;
  bool text;
};

static int run(const struct options *o) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_schedule *schedule = NULL;
  struct copse_plan *plan = NULL;
  char *bytes = NULL;
  size_t size;
  copse_status status;
  COPSE_TRY(copse_schedule_load(o->input, &schedule, &err));
  /* a compact schedule is written out, as long as the plan stays of a size to run */
  if ((int64_t)schedule->rotation.order * schedule->n_flows <= 1 << 18)
    COPSE_TRY(copse_schedule_expand(schedule, &err));
  COPSE_TRY(copse_lower_schedule(schedule, &o->lower, &plan, &err));
  if (o->text)
    COPSE_TRY(copse_plan_to_text(plan, &bytes, &size, &err));
  else
    COPSE_TRY(copse_plan_encode(plan, &bytes, &size, &err));
  COPSE_TRY(copse_file_write(o->output, bytes, size, &err));
  if (strcmp(o->output, "-") != 0)
    printf("%s of %s: %u ranks, %u workers each, %u operations, %u channels, %zu bytes\n",
           copse_collective_name((copse_collective)plan->header.collective), plan->name,
           plan->header.n_ranks, plan->header.n_workers / plan->header.n_ranks, plan->header.n_ops,
           plan->header.n_channels, size);
out:
  free(bytes);
  copse_plan_release(plan);
  copse_schedule_release(schedule);
  return status == COPSE_OK ? COPSE_EXIT_DONE : copse_cli_fail(&err);
}

static int number(const char *name, int64_t min, int64_t max, int64_t *out) {
  if (copse_cli_parse_int(optarg, min, max, out)) return COPSE_EXIT_DONE;
  return copse_cli_usage("lower", "--%s must be from %lld to %lld", name, (long long)min,
                         (long long)max);
}

static int parse_option(int c, struct options *o) {
  int64_t v = 0;
  int bad = COPSE_EXIT_DONE;
  switch (c) {
    case 't': o->to = optarg; break;
    case 'o': o->output = optarg; break;
    case 'x': o->text = true; break;
    case 'w':
      bad = number("workers", 1, 1024, &v);
      o->lower.max_workers = (int)v;
      break;
    case 'I':
      bad = number("instances", 1, 64, &v);
      o->lower.instances = (int)v;
      break;
    case 'F':
      bad = number("fifo", 1, 64, &v);
      o->lower.fifo = (int)v;
      break;
    case 'C':
      bad = number("chunk", COPSE_PLAN_ALIGN_BYTES, 1LL << 40, &o->lower.chunk_bytes);
      break;
    case 'm':
      bad = number("min-chunk", COPSE_PLAN_ALIGN_BYTES, 1LL << 40, &o->lower.min_chunk_bytes);
      break;
    case 'L': o->lower.low_latency = true; break;
    case 'a': bad = number("min-size", 0, INT64_MAX, &o->lower.min_bytes); break;
    case 'z': bad = number("max-size", 1, INT64_MAX, &o->lower.max_bytes); break;
    case 'p':
      bad = number("pipeline-chunks", 1, 1 << 20, &v);
      o->lower.pipeline_chunks = (int)v;
      break;
  }
  return bad;
}

static int check(const struct options *o) {
  if (!o->to) return copse_cli_usage("lower", "name the format with --to plan");
  if (strcmp(o->to, "msccl") == 0 || strcmp(o->to, "mscclpp") == 0)
    return copse_cli_usage("lower", "--to %s is not in this version; --to plan is", o->to);
  if (strcmp(o->to, "plan") != 0)
    return copse_cli_usage("lower", "unknown format '%.40s'; --to plan is there", o->to);
  if (!o->output) return copse_cli_usage("lower", "name the output with -o");
  return COPSE_EXIT_DONE;
}

int copse_cmd_lower(int argc, char **argv) {
  static const struct option longs[] = {{"to", required_argument, NULL, 't'},
                                        {"output", required_argument, NULL, 'o'},
                                        {"text", no_argument, NULL, 'x'},
                                        {"workers", required_argument, NULL, 'w'},
                                        {"instances", required_argument, NULL, 'I'},
                                        {"fifo", required_argument, NULL, 'F'},
                                        {"chunk", required_argument, NULL, 'C'},
                                        {"min-chunk", required_argument, NULL, 'm'},
                                        {"pipeline-chunks", required_argument, NULL, 'p'},
                                        {"low-latency", no_argument, NULL, 'L'},
                                        {"min-size", required_argument, NULL, 'a'},
                                        {"max-size", required_argument, NULL, 'z'},
                                        {"help", no_argument, NULL, 'h'},
                                        {NULL, 0, NULL, 0}};
  struct options o = {0};
  opterr = 0;
  for (int c; (c = getopt_long(argc, argv, ":t:o:w:I:F:C:Lh", longs, NULL)) != -1;) {
    if (c == 'h') {
      fputs(help, stdout);
      return COPSE_EXIT_DONE;
    }
    int bad = c == '?' || c == ':' ? copse_cli_bad_option("lower", argv, c) : parse_option(c, &o);
    if (bad) return bad;
  }
  if (argc - optind != 1) return copse_cli_usage("lower", "give one schedule file");
  o.input = argv[optind];
  int bad = check(&o);
  return bad ? bad : run(&o);
}
