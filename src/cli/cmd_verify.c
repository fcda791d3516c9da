/* copse verify SCHEDULE -t TOPO: an independent exact check. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/types.h"
#include "base/clock.h"
#include "cli/cli.h"
#include "cli/topology_args.h"
#include "cli/verify_groups.h"
#include "schedule/adapt.h"
#include "verify/verify.h"

static const char help[] =
    "usage: copse verify SCHEDULE -t TOPO [--links MODE] [--json]\n\n"
    "Checks a schedule exactly and independently of the solver: trees, order, paths,\n"
    "shares, loads, time, and the bound from its cut. Exit status 1 if anything is wrong.\n"
    "Of an index.json of 'copse solve --groups' all schedules, and what they load together.\n\n"
    "  -t, --topology FILE  the topology, in any input format\n"
    "  -j, --json           the report as one JSON object\n\n"
    "example: copse verify a100-x2.allreduce.json -t topologies/a100-x2.json\n";

struct options {
  const char *schedule;
  struct copse_cli_topology topology;
  bool json;
};

/* Of how many GPUs, where the schedule is not for all of them. */
static void print_ranks(const struct copse_topology *t, int n_gpus) {
  if (t->n_ranks == n_gpus)
    printf("%d ranks%s\n", n_gpus, t->chosen_from ? ", in an order of their own" : "");
  else
    printf("%d of %d GPUs, the others %s\n", t->n_ranks, n_gpus,
           t->others_excluded ? "left out" : "relays");
}

static void print_report(const struct copse_schedule *s, const struct copse_topology *t, int n_gpus,
                         const struct copse_verify_report *r) {
  char time[COPSE_Q_TEXT], bound[COPSE_Q_TEXT], rate[COPSE_RATE_TEXT];
  bool flows = s->collective == COPSE_ALLTOALL;
  printf("%s of %s: verified, %" PRId64 " %s on ", copse_collective_name(s->collective), t->name,
         (flows ? s->n_flows : s->n_trees) * copse_schedule_images(s), flows ? "flows" : "trees");
  print_ranks(t, n_gpus);
  printf("time %s s/GB (%s), ", copse_q_text(r->time_per_GB, time),
         copse_rate_text(s->time_per_GB, 10, rate));
  if (s->bound.kind == COPSE_BOUND_PHASES)
    printf("reduce_scatter and allgather in turn at least %s s/GB: ",
           copse_q_text(r->bound, bound));
  else
    printf("bound %s s/GB: ", copse_q_text(r->bound, bound));
  if (r->optimal)
    printf("optimal\n");
  else if (r->phases_optimal)
    printf("both phases optimal\n");
  else if (r->forests_optimal)
    printf("optimal among all reduce and broadcast forests with common shares, run together\n");
  else
    printf("above it by %.3g %%\n",
           100 * (copse_q_to_double(r->time_per_GB) / copse_q_to_double(r->bound) - 1));
  if (r->busiest_links > 0)
    printf("most loaded: %s -> %s%s\n", t->nodes[r->busiest_src].id, t->nodes[r->busiest_dst].id,
           r->busiest_links > 1 ? " and others alike" : "");
}

static void print_json(const struct copse_schedule *s, int n_gpus,
                       const struct copse_verify_report *r) {
  char time[COPSE_Q_TEXT], bound[COPSE_Q_TEXT];
  printf(
      "{\"verified\": true, \"collective\": \"%s\", \"nranks\": %d, \"gpus\": %d, \"trees\": "
      "%" PRId64
      ", "
      "\"flows\": %" PRId64
      ", "
      "\"time_per_GB\": \"%s\", \"bound_time_per_GB\": \"%s\", \"optimal\": %s, "
      "\"phases_optimal\": %s, \"forests_optimal\": %s, \"same_topology\": %s, \"peak_MiB\": "
      "%ld}\n",
      copse_collective_name(s->collective), s->n_ranks, n_gpus,
      s->n_trees * copse_schedule_images(s), s->n_flows * copse_schedule_images(s),
      copse_q_text(r->time_per_GB, time), copse_q_text(r->bound, bound),
      r->optimal ? "true" : "false", r->phases_optimal ? "true" : "false",
      r->forests_optimal ? "true" : "false", r->same_topology ? "true" : "false", copse_peak_mib());
}

/* With --json also a refutation is exactly one object on standard output. */
static int run(const struct options *o) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *topology = NULL;
  struct copse_schedule *schedule = NULL;
  struct copse_verify_report report;
  int n_gpus;
  copse_status status;
  COPSE_TRY(copse_schedule_load_claim(o->schedule, &schedule, &err));
  COPSE_TRY(copse_cli_load_topology(&o->topology, &topology, &err));
  n_gpus = topology->n_ranks;
  COPSE_TRY(copse_schedule_choose_ranks(schedule, &topology, &err));
  COPSE_TRY(
      copse_verify_schedule(schedule, topology, copse_file_label(o->schedule), &report, &err));
  if (!report.same_topology)
    copse_note(&copse_cli_notes,
               "%s was made for another topology than %s, or names none; it is "
               "checked against the one given",
               copse_file_label(o->schedule), copse_cli_topology_label(&o->topology));
  if (o->json)
    print_json(schedule, n_gpus, &report);
  else
    print_report(schedule, topology, n_gpus, &report);
out:
  if (o->json && status == COPSE_REFUTED) copse_cli_print_refuted("verified", &err);
  copse_schedule_release(schedule);
  copse_topology_release(topology);
  return status == COPSE_OK ? COPSE_EXIT_DONE : copse_cli_fail(&err);
}

int copse_cmd_verify(int argc, char **argv) {
  static const struct option longs[] = {{"topology", required_argument, NULL, 't'},
                                        COPSE_CLI_TOPOLOGY_OPTIONS,
                                        COPSE_CLI_CHANGE_OPTIONS,
                                        {"json", no_argument, NULL, 'j'},
                                        {"help", no_argument, NULL, 'h'},
                                        {NULL, 0, NULL, 0}};
  struct options o = {0};
  opterr = 0;
  for (int c; (c = getopt_long(argc, argv, ":t:l:jh", longs, NULL)) != -1;) {
    switch (c) {
      case 't': o.topology.path = optarg; break;
      case 'j': o.json = true; break;
      case 'h':
        fputs(help, stdout);
        fputs(copse_cli_topology_help, stdout);
        fputs(copse_cli_change_help, stdout);
        return COPSE_EXIT_DONE;
      default: {
        int exit = copse_cli_topology_option(&o.topology, "verify", argv, c);
        if (exit != 0) return exit;
      }
    }
  }
  if (argc - optind != 1) return copse_cli_usage("verify", "give one schedule file");
  if (!copse_cli_has_topology(&o.topology))
    return copse_cli_usage("verify", "name the topology with -t or --synthetic");
  o.schedule = argv[optind];
  return copse_cli_is_groups(o.schedule) ? copse_cli_verify_groups(o.schedule, &o.topology, o.json)
                                         : run(&o);
}
