/* copse lower SCHEDULE --to FORMAT -o FILE: code generation. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "base/text.h"
#include "cli/cli.h"
#include "codegen/lower/lower.h"
#include "codegen/msccl/lower.h"
#include "codegen/mscclpp/lower.h"

static const char help[] =
    "usage: copse lower SCHEDULE --to FORMAT -o FILE [options]\n\n"
    "Turns a schedule into a plan that 'copse run' and the library execute, or into a program\n"
    "for another executor (allgather, reduce_scatter, allreduce, alltoall).\n\n"
    "  -t, --to FORMAT         plan (the native format), msccl (algorithm XML for MSCCL, its NCCL\n"
    "                          executor and RCCL) or mscclpp (execution plan JSON for MSCCL++)\n"
    "  -o, --output FILE       where to write it (- for standard output)\n"
    "  -w, --workers N         at most N workers per rank: thread blocks on a GPU, which all\n"
    "                          must be resident at once (an H100 has 132 SMs); default 32,\n"
    "                          msccl: 64, or 108 with --executor nccl\n"
    "  -I, --instances N       cut each tree, or an alltoall's path, into N parts, for more\n"
    "                          workers; default 1, plan: auto, the fewest with which all workers\n"
    "                          have about as much to move\n"
    "      --min-bytes N       smallest message that it is for (K, M, G: times 1024, ...)\n"
    "      --max-bytes N       largest; default: any; msccl, mscclpp: as far as the executor\n"
    "                          goes; with --low-latency 256K, at most 16M\n"
    "  -j, --json              what was made as one JSON object on standard output\n\n"
    "plan:\n"
    "      --text              JSON for people instead of the binary file\n"
    "  -F, --fifo N            slots of a staged edge; default 4\n"
    "  -C, --chunk BYTES       largest chunk; default 524288\n"
    "      --min-chunk BYTES   smallest chunk for the sake of pipelining; default 131072\n"
    "      --pipeline-chunks N chunks to aim for on shorter messages; default 4 for each hop "
    "after\n"
    "                          the first\n"
    "  -L, --low-latency       packets, 4 bytes and a flag each, instead of chunks and signals:\n"
    "                          for small messages; larger ones than --max-bytes are refused, and\n"
    "                          --chunk, --fifo and the like have no effect\n"
    "      --one-hop           with -L, an allreduce in one hop: every rank sends all it has to\n"
    "                          every other and adds for itself; --max-bytes is 16K if not given,\n"
    "                          --instances the parts of the message\n"
    "The library picks among plans by the message's size: the narrowest range that holds it.\n\n"
    "msccl and mscclpp:\n"
    "      --chunks N          chunks of a rank's block (allreduce: of the message); shares are\n"
    "                          rounded to them; default: as many as the shares need exactly\n"
    "      --layout L          calls that it serves: in-place, out-of-place or (msccl) both;\n"
    "                          default both, mscclpp: in-place; an alltoall is out-of-place\n\n"
    "msccl:\n"
    "  -E, --executor E        any: steps that RCCL has as well (s, r, cpy, re, nop); nccl: also\n"
    "                          rcs, rrs, rrc, which receive and send at once; default any\n"
    "      --channels N        at most N channels, 1 to 32; default 32\n"
    "      --protocol P        Simple, LL or LL128; default Simple\n\n"
    "mscclpp:\n"
    "      --ranks-per-host N  ranks of one host write to each other's memory, others go through\n"
    "                          ports; default: by the ids, h3.gpu0 being on host h3\n"
    "      --pipeline BYTES    pass data on in pieces of so many bytes, a multiple of 16, such as\n"
    "                          512K: worth it where ranks forward; default: whole chunks\n\n"
    "example: copse lower a100-x2.allreduce.json --to plan -o a100-x2.allreduce.plan\n"
    "         copse lower mi300x.allgather.json --to msccl -o msccl-algorithms/allgather.xml\n";

struct options {
  const char *input, *output, *to;
  struct copse_lower_options lower;
  struct copse_msccl_options msccl; /* mscclpp takes what it has of these */
  int ranks_per_host;
  int64_t pipeline_bytes;
  bool text, layout, json;
  /* an option was given that only this format has, or both foreign ones */
  bool for_plan, for_msccl, for_mscclpp, for_foreign;
};

static uint32_t most_workers(const struct copse_plan *plan) {
  uint32_t most = 0;
  for (uint32_t r = 0; r < plan->header.n_ranks; r++)
    if (plan->ranks[r].n_workers > most) most = plan->ranks[r].n_workers;
  return most;
}

/* What has been made, as --json has it; the rest of the object follows. */
static void begin_json(struct copse_text *said, const char *format, copse_collective collective,
                       const char *topology, int n_ranks) {
  copse_text_add(said, "{\"format\": \"%s\", \"collective\": \"%s\", \"topology\": ", format,
                 copse_collective_name(collective));
  copse_text_add_json_string(said, topology);
  copse_text_add(said, ", \"nranks\": %d", n_ranks);
}

static void say_plan(const struct options *o, const struct copse_plan *plan, size_t size,
                     struct copse_text *said) {
  const struct copse_plan_header *h = &plan->header;
  copse_collective collective = (copse_collective)h->collective;
  if (!o->json) {
    copse_text_add(said,
                   "%s of %s: %u ranks, %u workers each, %u operations, %u channels, %zu bytes\n",
                   copse_collective_name(collective), plan->name, h->n_ranks, most_workers(plan),
                   h->n_ops, h->n_channels, size);
    return;
  }
  begin_json(said, "plan", collective, plan->name, (int)h->n_ranks);
  copse_text_add(said, ", \"workers\": %u, \"operations\": %u, \"channels\": %u, \"bytes\": %zu}\n",
                 most_workers(plan), h->n_ops, h->n_channels, size);
}

static copse_status to_plan(const struct options *o, const struct copse_schedule *schedule,
                            char **bytes, size_t *size, struct copse_text *said,
                            struct copse_err *err) {
  struct copse_lower_options options = o->lower;
  struct copse_plan *plan = NULL;
  copse_status status;
  options.min_bytes = o->msccl.min_bytes;
  options.max_bytes = o->msccl.max_bytes;
  if (options.instances == 0) options.instances = COPSE_LOWER_AUTO;
  COPSE_TRY(copse_lower_schedule(schedule, &options, &plan, err));
  if (o->text)
    COPSE_TRY(copse_plan_to_text(plan, bytes, size, err));
  else
    COPSE_TRY(copse_plan_encode(plan, bytes, size, err));
  say_plan(o, plan, *size, said);
out:
  copse_plan_release(plan);
  return status;
}

static copse_status to_msccl(const struct options *o, const struct copse_schedule *schedule,
                             char **bytes, size_t *size, struct copse_text *said,
                             struct copse_err *err) {
  struct copse_msccl_options options = o->msccl;
  struct copse_msccl_summary sum;
  options.max_blocks = o->lower.max_workers;
  options.instances = o->lower.instances;
  copse_status status = copse_lower_msccl(schedule, &options, bytes, size, &sum, err);
  if (status != COPSE_OK) return status;
  if (o->json) {
    begin_json(said, "msccl", schedule->collective, schedule->topology_name, schedule->n_ranks);
    copse_text_add(said,
                   ", \"thread_blocks\": %d, \"channels\": %d, \"chunks\": %d, \"scratch\": %d, "
                   "\"elements_multiple\": %d, \"bytes\": %zu}\n",
                   sum.blocks, sum.channels, sum.chunks, sum.scratch, sum.multiple, *size);
  } else {
    copse_text_add(said,
                   "%s of %s: %d ranks, up to %d thread blocks each, %d channels, %d chunks "
                   "(%d of scratch), %zu bytes\n",
                   copse_collective_name(schedule->collective), schedule->topology_name,
                   schedule->n_ranks, sum.blocks, sum.channels, sum.chunks, sum.scratch, *size);
  }
  if (sum.multiple & (sum.multiple - 1))
    copse_note(&copse_cli_notes,
               "the executor takes this file only for element counts that are multiples of %d; "
               "--chunks with a power of two, or a schedule with another --k, serves the usual "
               "sizes",
               sum.multiple);
  return COPSE_OK;
}

static copse_status to_mscclpp(const struct options *o, const struct copse_schedule *schedule,
                               char **bytes, size_t *size, struct copse_text *said,
                               struct copse_err *err) {
  struct copse_mscclpp_options options = {
      .out_of_place = o->msccl.layout == COPSE_MSCCL_OUT_OF_PLACE,
      .max_blocks = o->lower.max_workers,
      .instances = o->lower.instances,
      .chunks = o->msccl.chunks,
      .ranks_per_host = o->ranks_per_host,
      .pipeline_bytes = o->pipeline_bytes,
      .min_bytes = o->msccl.min_bytes,
      .max_bytes = o->msccl.max_bytes};
  struct copse_mscclpp_summary sum;
  copse_status status = copse_lower_mscclpp(schedule, &options, bytes, size, &sum, err);
  if (status != COPSE_OK) return status;
  if (o->json) {
    begin_json(said, "mscclpp", schedule->collective, schedule->topology_name, schedule->n_ranks);
    copse_text_add(said,
                   ", \"hosts\": %d, \"thread_blocks\": %d, \"operations\": %d, \"chunks\": %d, "
                   "\"scratch\": %d, \"bytes_multiple\": %lld, \"bytes\": %zu}\n",
                   sum.hosts, sum.blocks, sum.ops, sum.chunks, sum.scratch, (long long)sum.multiple,
                   *size);
    return COPSE_OK;
  }
  copse_text_add(said,
                 "%s of %s: %d ranks on %d host%s, %d thread blocks each, at most %d operations, "
                 "%d chunks (%d of scratch), %zu bytes\n",
                 copse_collective_name(schedule->collective), schedule->topology_name,
                 schedule->n_ranks, sum.hosts, sum.hosts == 1 ? "" : "s", sum.blocks, sum.ops,
                 sum.chunks, sum.scratch, *size);
  copse_note(&copse_cli_notes,
             "the executor takes this plan only for messages that are multiples of %lld bytes",
             (long long)sum.multiple);
  return COPSE_OK;
}

static int run(const struct options *o) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_schedule *schedule = NULL;
  struct copse_text said = {0};
  char *bytes = NULL;
  size_t size;
  copse_status status;
  COPSE_TRY(copse_schedule_load(o->input, &schedule, &err));
  /* a compact schedule is written out, as long as the plan stays of a size to run */
  if (schedule->n_trees > 0 || copse_schedule_images(schedule) * schedule->n_flows <= 1 << 18)
    COPSE_TRY(copse_schedule_expand(schedule, &err));
  if (strcmp(o->to, "msccl") == 0)
    COPSE_TRY(to_msccl(o, schedule, &bytes, &size, &said, &err));
  else if (strcmp(o->to, "mscclpp") == 0)
    COPSE_TRY(to_mscclpp(o, schedule, &bytes, &size, &said, &err));
  else
    COPSE_TRY(to_plan(o, schedule, &bytes, &size, &said, &err));
  COPSE_TRY(copse_text_status(&said, &err));
  COPSE_TRY(copse_file_write(o->output, bytes, size, &err));
  if (strcmp(o->output, "-") != 0) fputs(said.data, stdout);
out:
  free(bytes);
  copse_text_free(&said);
  copse_schedule_release(schedule);
  return status == COPSE_OK ? COPSE_EXIT_DONE : copse_cli_fail_in(copse_file_label(o->input), &err);
}

static int number(const char *name, int64_t min, int64_t max, int64_t *out) {
  if (copse_cli_parse_int(optarg, min, max, out)) return COPSE_EXIT_DONE;
  return copse_cli_usage("lower", "--%s must be from %lld to %lld", name, (long long)min,
                         (long long)max);
}

/* The index of `optarg` among `names` (NULL-terminated), or -1. */
static int one_of(const char *const names[]) {
  for (int i = 0; names[i]; i++)
    if (strcmp(optarg, names[i]) == 0) return i;
  return -1;
}

static int bytes_option(const char *name, int64_t *out) {
  uint64_t v;
  if (!copse_cli_parse_size(optarg, INT64_MAX, &v))
    return copse_cli_usage("lower", "--%s must be a number of bytes, such as 1000, 64K or 1G",
                           name);
  *out = (int64_t)v;
  return COPSE_EXIT_DONE;
}

static int chunk_option(const char *name, int64_t *out) {
  int bad = bytes_option(name, out);
  if (bad || (*out >= COPSE_PLAN_ALIGN_BYTES && *out <= 1LL << 40)) return bad;
  return copse_cli_usage("lower", "--%s must be from %u to %lld bytes", name,
                         COPSE_PLAN_ALIGN_BYTES, 1LL << 40);
}

/* Options of the foreign formats, and the range of sizes that all have. */
static int parse_foreign(int c, struct options *all) {
  struct copse_msccl_options *o = &all->msccl;
  static const char *const executors[] = {"any", "nccl", NULL};
  static const char *const protocols[] = {"Simple", "LL", "LL128", NULL};
  static const char *const layouts[] = {"both", "in-place", "out-of-place", NULL};
  int64_t v = 0;
  int i, bad = COPSE_EXIT_DONE;
  switch (c) {
    case 'E':
      if ((i = one_of(executors)) < 0)
        return copse_cli_usage("lower", "--executor must be any or nccl");
      o->executor = (enum copse_msccl_executor)i;
      break;
    case 'c':
      bad = number("channels", 1, 32, &v);
      o->channels = (int)v;
      break;
    case 'k':
      bad = number("chunks", 1, 32767, &v);
      o->chunks = (int)v;
      break;
    case 'P':
      if ((i = one_of(protocols)) < 0)
        return copse_cli_usage("lower", "--protocol must be Simple, LL or LL128");
      o->protocol = (enum copse_msccl_protocol)i;
      break;
    case 'Y':
      if ((i = one_of(layouts)) < 0)
        return copse_cli_usage("lower", "--layout must be both, in-place or out-of-place");
      o->layout = (enum copse_msccl_layout)i;
      all->layout = true;
      break;
    case 'H':
      bad = number("ranks-per-host", 1, 1 << 20, &v);
      all->ranks_per_host = (int)v;
      break;
    case 'q': bad = bytes_option("pipeline", &all->pipeline_bytes); break;
    case 'b': bad = bytes_option("min-bytes", &o->min_bytes); break;
    case 'e': bad = bytes_option("max-bytes", &o->max_bytes); break;
  }
  return bad;
}

static int parse_option(int c, struct options *o) {
  int64_t v = 0;
  int bad = COPSE_EXIT_DONE;
  if (strchr("xFCmpL1", c)) o->for_plan = true;
  if (strchr("EcP", c)) o->for_msccl = true;
  if (strchr("Hq", c)) o->for_mscclpp = true;
  if (strchr("kY", c)) o->for_foreign = true;
  if (strchr("EcPHqkYbe", c)) return parse_foreign(c, o);
  switch (c) {
    case 't': o->to = optarg; break;
    case 'o': o->output = optarg; break;
    case 'x': o->text = true; break;
    case 'j': o->json = true; break;
    case 'L': o->lower.low_latency = true; break;
    case '1': o->lower.one_hop = true; break;
    case 'w':
      bad = number("workers", 1, 1024, &v);
      o->lower.max_workers = (int)v;
      break;
    case 'I':
      o->lower.instances = COPSE_LOWER_AUTO;
      if (strcmp(optarg, "auto") == 0) {
        o->for_plan = true;
        break;
      }
      bad = number("instances", 1, COPSE_LOWER_MOST_INSTANCES, &v);
      o->lower.instances = (int)v;
      break;
    case 'F':
      bad = number("fifo", 1, 64, &v);
      o->lower.fifo = (int)v;
      break;
    case 'C': bad = chunk_option("chunk", &o->lower.chunk_bytes); break;
    case 'm': bad = chunk_option("min-chunk", &o->lower.min_chunk_bytes); break;
    case 'p':
      bad = number("pipeline-chunks", 1, 1 << 20, &v);
      o->lower.pipeline_chunks = (int)v;
      break;
  }
  return bad;
}

static int check(const struct options *o) {
  if (!o->to)
    return copse_cli_usage("lower", "name the format with --to plan, --to msccl or --to mscclpp");
  bool plan = strcmp(o->to, "plan") == 0, msccl = strcmp(o->to, "msccl") == 0;
  bool mscclpp = strcmp(o->to, "mscclpp") == 0;
  if (!plan && !msccl && !mscclpp)
    return copse_cli_usage("lower", "unknown format '%.40s'; plan, msccl and mscclpp are there",
                           o->to);
  if (o->for_plan && !plan)
    return copse_cli_usage("lower",
                           "--text, --fifo, --chunk, --min-chunk, --pipeline-chunks, "
                           "--low-latency and --one-hop are for --to plan");
  if (o->lower.one_hop && !o->lower.low_latency)
    return copse_cli_usage("lower", "--one-hop is for --low-latency");
  if (o->for_msccl && !msccl)
    return copse_cli_usage("lower", "--executor, --channels and --protocol are for --to msccl");
  if (o->for_mscclpp && !mscclpp)
    return copse_cli_usage("lower", "--ranks-per-host and --pipeline are for --to mscclpp");
  if (o->for_foreign && plan)
    return copse_cli_usage("lower", "--chunks and --layout are for --to msccl and --to mscclpp");
  if (mscclpp && o->layout && o->msccl.layout == COPSE_MSCCL_BOTH)
    return copse_cli_usage("lower", "an MSCCL++ plan has one --layout, in-place or out-of-place");
  if (!o->output) return copse_cli_usage("lower", "name the output with -o");
  if (o->json && strcmp(o->output, "-") == 0)
    return copse_cli_usage("lower", "of --json and -o - only one can have standard output");
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
                                        {"executor", required_argument, NULL, 'E'},
                                        {"channels", required_argument, NULL, 'c'},
                                        {"chunks", required_argument, NULL, 'k'},
                                        {"protocol", required_argument, NULL, 'P'},
                                        {"layout", required_argument, NULL, 'Y'},
                                        {"ranks-per-host", required_argument, NULL, 'H'},
                                        {"pipeline", required_argument, NULL, 'q'},
                                        {"min-bytes", required_argument, NULL, 'b'},
                                        {"max-bytes", required_argument, NULL, 'e'},
                                        {"low-latency", no_argument, NULL, 'L'},
                                        {"one-hop", no_argument, NULL, '1'},
                                        {"json", no_argument, NULL, 'j'},
                                        {"help", no_argument, NULL, 'h'},
                                        {NULL, 0, NULL, 0}};
  struct options o = {0};
  opterr = 0;
  for (int c; (c = getopt_long(argc, argv, ":t:o:w:I:F:C:E:Ljh", longs, NULL)) != -1;) {
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
