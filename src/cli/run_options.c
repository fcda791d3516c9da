#include "cli/run_options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

#define DEFAULT_MIN_BYTES 8u
#define DEFAULT_MAX_BYTES ((uint64_t)32 << 20)
#define MAX_BYTES ((uint64_t)1 << 48)
#define MAX_ITERS 1000000000u
#define MAX_TIMEOUT 1e6
#define DEFAULT_JOB_TIMEOUT 60.0

static const char help[] =
    "usage: copse run [options] PLAN\n"
    "\n"
    "Executes a plan on test data, checks every element of the result bit for bit, and\n"
    "prints the table of nccl-tests. PLAN is a file that 'copse lower' wrote, or -.\n"
    "\n"
    "  -b, --minbytes N       smallest size (default 8); K, M, G: times 1024, ...\n"
    "  -e, --maxbytes N       largest size (default 32M, or what a low-latency plan takes)\n"
    "  -f, --stepfactor F     next size = size * F (default 2); after 0 comes 8\n"
    "  -i, --stepbytes N      next size = size + N instead\n"
    "  -n, --iters N          timed launches per row (default 5)\n"
    "  -w, --warmup_iters N   launches before them (default 1)\n"
    "  -c, --check N          checked launches per row (default 1; 0: no check)\n"
    "  -d, --datatype T       int8 uint8 int32 uint32 int64 uint64 half float double\n"
    "                         bfloat16 f8e4m3 f8e5m2, or all (default float)\n"
    "  -o, --op OP            sum prod max min avg, or all (default sum)\n"
    "      --backend B        cpu: one thread steps all ranks, reports a deadlock (default)\n"
    "                         threads: a thread for every worker\n"
    "                         cuda: the GPUs of this machine; ranks beyond their number share\n"
    "                         mpi: a process for each rank, under mpirun -n RANKS\n"
    "      --out-of-place     only out of place\n"
    "      --in-place         only in place\n"
    "      --timeout S        give up after S seconds without progress (default 20; mpi: 60)\n"
    "      --max-memory N     refuse to take more (default: what is available)\n"
    "  -j, --json             one JSON object instead of the table\n"
    "  -h, --help             this text\n"
    "\n"
    "The size is that of the whole message: for allgather the gathered buffer, for\n"
    "reduce_scatter and alltoall a rank's input. Exit status 1: an element was wrong, or\n"
    "the plan came to a standstill.\n"
    "\n"
    "example: copse run -b 1K -e 16M -f 4 -d half -o avg --backend threads allreduce.plan\n";

enum {
  OPT_BACKEND = 256,
  OPT_IN_PLACE,
  OPT_OUT_OF_PLACE,
  OPT_MAX_MEMORY,
  OPT_TIMEOUT
};

static const struct option long_options[] = {
    {"minbytes", required_argument, NULL, 'b'},
    {"maxbytes", required_argument, NULL, 'e'},
    {"stepbytes", required_argument, NULL, 'i'},
    {"stepfactor", required_argument, NULL, 'f'},
    {"iters", required_argument, NULL, 'n'},
    {"warmup_iters", required_argument, NULL, 'w'},
    {"check", required_argument, NULL, 'c'},
    {"datatype", required_argument, NULL, 'd'},
    {"op", required_argument, NULL, 'o'},
    {"backend", required_argument, NULL, OPT_BACKEND},
    {"in-place", no_argument, NULL, OPT_IN_PLACE},
    {"out-of-place", no_argument, NULL, OPT_OUT_OF_PLACE},
    {"max-memory", required_argument, NULL, OPT_MAX_MEMORY},
    {"timeout", required_argument, NULL, OPT_TIMEOUT},
    {"json", no_argument, NULL, 'j'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0}};

static const char *const backend_names[] = {"cpu", "threads", "cuda", "mpi"};

const char *copse_run_backend_name(enum copse_backend backend) { return backend_names[backend]; }

double copse_run_timeout(const struct copse_run_options *options) {
  return options->timeout > 0 ? options->timeout : DEFAULT_JOB_TIMEOUT;
}

uint64_t copse_run_next_size(const struct copse_run_options *options, uint64_t size) {
  if (options->step_bytes) return size + options->step_bytes;
  if (size == 0) return DEFAULT_MIN_BYTES;
  return size > MAX_BYTES / options->step_factor ? UINT64_MAX : size * options->step_factor;
}

/* Digits alone; false for anything else and beyond `most`. */
static bool parse_number(const char *text, uint64_t most, uint64_t *out) {
  return text[strspn(text, "0123456789")] == '\0' && copse_cli_parse_size(text, most, out);
}

/* What parsing needs beside the result. */
struct parser {
  struct copse_run_options *options;
  bool has_min, has_max, has_step, has_factor;
};

static int bad_value(const char *name, const char *text, const char *right) {
  return copse_cli_usage("run", "%s '%s' must be %s", name, text, right);
}

static int parse_size(const char *name, const char *text, uint64_t *out) {
  if (copse_cli_parse_size(text, MAX_BYTES, out)) return 0;
  return bad_value(name, text, "a number of bytes, such as 1000, 64K or 1G");
}

static int parse_count(const char *name, const char *text, uint32_t least, uint32_t *out) {
  uint64_t v;
  if (!parse_number(text, MAX_ITERS, &v) || v < least)
    return bad_value(name, text, least ? "an integer of at least 1" : "an integer of at least 0");
  *out = (uint32_t)v;
  return 0;
}

static int parse_type(const char *text, struct copse_run_options *options) {
  enum copse_type type;
  bool all = strcmp(text, "all") == 0;
  if (!all && !copse_type_from_name(text, &type))
    return bad_value("-d", text,
                     "all, int8, uint8, int32, uint32, int64, uint64, half, float, double, "
                     "bfloat16, f8e4m3 or f8e5m2");
  for (int t = 0; t < COPSE_N_TYPES; t++) options->types[t] = all || t == (int)type;
  return 0;
}

static int parse_redop(const char *text, struct copse_run_options *options) {
  enum copse_redop redop;
  bool all = strcmp(text, "all") == 0;
  if (!all && !copse_redop_from_name(text, &redop))
    return bad_value("-o", text, "all, sum, prod, max, min or avg");
  for (int r = 0; r < COPSE_N_REDOPS; r++) options->redops[r] = all || r == (int)redop;
  return 0;
}

static int parse_backend(const char *text, struct copse_run_options *options) {
  for (size_t b = 0; b < sizeof backend_names / sizeof *backend_names; b++)
    if (strcmp(text, backend_names[b]) == 0) {
      options->backend = (enum copse_backend)b;
      return 0;
    }
  return copse_cli_usage("run", "no backend '%s'; there are cpu, threads, cuda and mpi", text);
}

static int parse_timeout(const char *text, struct copse_run_options *options) {
  char *end;
  options->timeout = strtod(text, &end);
  if (*text && !*end && options->timeout >= 0.1 && options->timeout <= MAX_TIMEOUT) return 0;
  return bad_value("--timeout", text, "seconds, from 0.1 to 1000000");
}

static int parse_one(struct parser *parser, int option, const char *text) {
  struct copse_run_options *o = parser->options;
  switch (option) {
    case 'b': parser->has_min = true; return parse_size("-b", text, &o->min_bytes);
    case 'e': parser->has_max = true; return parse_size("-e", text, &o->max_bytes);
    case 'i':
      parser->has_step = true;
      if (copse_cli_parse_size(text, MAX_BYTES, &o->step_bytes) && o->step_bytes > 0) return 0;
      return bad_value("-i", text, "a number of bytes of at least 1");
    case 'f':
      parser->has_factor = true;
      if (parse_number(text, MAX_BYTES, &o->step_factor) && o->step_factor >= 2) return 0;
      return bad_value("-f", text, "an integer of at least 2");
    case 'n': return parse_count("-n", text, 1, &o->iters);
    case 'w': return parse_count("-w", text, 0, &o->warmup_iters);
    case 'c': return parse_count("-c", text, 0, &o->checks);
    case 'd': return parse_type(text, o);
    case 'o': return parse_redop(text, o);
    case OPT_BACKEND: return parse_backend(text, o);
    case OPT_IN_PLACE: o->in_place = true; return 0;
    case OPT_OUT_OF_PLACE: o->out_of_place = true; return 0;
    case OPT_MAX_MEMORY:
      if (copse_cli_parse_size(text, UINT64_MAX, &o->max_memory) && o->max_memory > 0) return 0;
      return bad_value("--max-memory", text, "a number of bytes of at least 1, such as 4G");
    case OPT_TIMEOUT: return parse_timeout(text, o);
    default: o->json = true; return 0;
  }
}

/* Options that exclude each other, and defaults that depend on others. */
static int settle(struct parser *parser) {
  struct copse_run_options *o = parser->options;
  if (parser->has_step && parser->has_factor)
    return copse_cli_usage("run", "give -i or -f, not both");
  o->max_is_default = !parser->has_max;
  if (!parser->has_max && o->min_bytes > o->max_bytes) o->max_bytes = o->min_bytes;
  if (!parser->has_min && o->min_bytes > o->max_bytes) o->min_bytes = o->max_bytes;
  if (o->min_bytes > o->max_bytes)
    return copse_cli_usage("run", "-b %llu is larger than -e %llu",
                           (unsigned long long)o->min_bytes, (unsigned long long)o->max_bytes);
  if (!o->in_place && !o->out_of_place) o->in_place = o->out_of_place = true;
  return 0;
}

static void set_defaults(struct copse_run_options *options) {
  memset(options, 0, sizeof *options);
  options->min_bytes = DEFAULT_MIN_BYTES;
  options->max_bytes = DEFAULT_MAX_BYTES;
  options->step_factor = 2;
  options->iters = 5;
  options->warmup_iters = 1;
  options->checks = 1;
  options->types[COPSE_FLOAT] = true;
  options->redops[COPSE_SUM] = true;
}

enum copse_run_parse copse_run_options_parse(int argc, char **argv,
                                             struct copse_run_options *options, int *status) {
  struct parser parser = {.options = options};
  set_defaults(options);
  optind = 0; /* GNU: start over, main() may have used getopt */
  opterr = 0;
  for (;;) {
    int option = getopt_long(argc, argv, ":b:e:i:f:n:w:c:d:o:jh", long_options, NULL);
    if (option == -1) break;
    if (option == 'h') {
      fputs(help, stdout);
      *status = 0;
      return COPSE_RUN_LEAVE;
    }
    if (option == '?' || option == ':')
      *status = copse_cli_bad_option("run", argv, option);
    else
      *status = parse_one(&parser, option, optarg);
    if (*status != 0) return COPSE_RUN_LEAVE;
  }
  *status = settle(&parser);
  if (*status == 0 && argc - optind != 1)
    *status = copse_cli_usage("run", argc == optind ? "no plan given" : "more than one plan given");
  if (*status != 0) return COPSE_RUN_LEAVE;
  options->plan = argv[optind];
  return COPSE_RUN_GO;
}
