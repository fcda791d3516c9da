/*
 * copse rings TOPO: the best rings and chains that NCCL's channels can be, proved, beside what no
 * schedule at all beats.
 */
#include <stdio.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/solve_args.h"
#include "cli/topology_args.h"
#include "nccl/best.h"
#include "nccl/judge.h"
#include "schedule/solve/switches.h"

struct options {
  struct copse_cli_topology topology;
  const char *output;
  int hosts, channels;
  bool json;
};

/* What there is to say of an allreduce, as bus bandwidth. */
struct figures {
  double rings, chains; /* on the topology's links, those between hosts too */
  double all;           /* that no schedule exceeds in which GPUs alone copy and add */
};

/* Returns 2 (N - 1) / N: bus bandwidth over algorithm bandwidth. */
static double bus_factor(const struct copse_nccl_best *best) {
  return 2.0 * (best->n_ranks - 1) / best->n_ranks;
}

/* Computes bus bandwidth by the loads of all links, which may be less than hosts alone would
 * allow. */
static copse_status judge(const struct copse_topology *topology, const struct copse_nccl_best *best,
                          struct figures *f, struct copse_err *err) {
  struct copse_nccl_machine machine = {0};
  struct copse_nccl_judge judge = {0};
  struct copse_nccl_verdict rings, chains;
  copse_status status = copse_nccl_machine_open(topology, &machine, err);
  if (status == COPSE_OK)
    status =
        copse_nccl_judge_open(topology->name, best->graphs, best->n_hosts, &machine, &judge, err);
  if (status == COPSE_OK)
    status = copse_nccl_judge(&judge, COPSE_NCCL_RING, COPSE_ALLREDUCE, 0, &rings, err);
  if (status == COPSE_OK)
    status = copse_nccl_judge(&judge, COPSE_NCCL_TREE, COPSE_ALLREDUCE, 0, &chains, err);
  if (status == COPSE_OK) {
    f->rings = bus_factor(best) / copse_q_to_double(rings.links_time);
    f->chains = bus_factor(best) / copse_q_to_double(chains.links_time);
  }
  copse_nccl_judge_close(&judge);
  copse_nccl_machine_free(&machine);
  return status;
}

/* Finds the figures; `topology` has all hosts. */
static copse_status find_figures(const struct options *o, const struct copse_topology *topology,
                                 const struct copse_nccl_best *best, struct figures *f,
                                 struct copse_err *err) {
  struct copse_schedule *schedule = NULL;
  COPSE_DO(judge(topology, best, f, err));
  COPSE_DO(copse_cli_solve_bound(topology, COPSE_ALLREDUCE, -1,
                                 copse_cli_topology_label(&o->topology), &schedule, err));
  f->all = bus_factor(best) / copse_q_to_double(schedule->time_per_GB);
  copse_schedule_free(schedule);
  return COPSE_OK;
}

/* Prints "16 channels of 20 GB/s: 320 GB/s, busbw 320, and no set of rings has more". */
static void print_part(const char *what, const char *such, const struct copse_nccl_optimum *p,
                       double factor, double bus) {
  double bound = copse_q_to_double(p->bound), reached = copse_q_to_double(p->GBps);
  printf("%s: %d channel%s of %s GB/s: %.10g GB/s, busbw %.10g, ", what, p->n, COPSE_S(p->n),
         COPSE_CLI_Q(p->speed), reached, factor * reached);
  if (copse_q_eq(p->GBps, p->bound))
    printf("and no set of %s has more\n", such);
  else
    printf("%.3g %% below %s, which no set of %s exceeds\n", 100 * (1 - reached / bound),
           COPSE_CLI_Q(p->bound), such);
  if (bus < factor * reached * (1 - 1e-9))
    printf("  but the network between hosts lets these have busbw %.10g\n", bus);
}

/* Prints "host 0 and 2 more like it". */
static void print_hosts(const struct copse_nccl_best *best, int group) {
  int others = -1;
  for (int h = 0; h < best->n_hosts; h++) others += best->group_of[h] == group;
  printf("  host %d", best->groups[group].host);
  if (others > 0) printf(" and %d more like it", others);
}

static void print_report(const struct copse_nccl_best *best, const struct copse_topology *t,
                         const struct figures *f) {
  /* a bound on chains of several hosts is for where their links to other hosts are */
  const char *chains = best->n_hosts == 1                            ? "chains"
                       : best->n_groups > 1                          ? "chains of these patterns"
                       : best->chain.kind == COPSE_NCCL_SPLIT_CHAINS ? "chains of pattern 1"
                                                                     : "chains of pattern 3";
  if (best->n_groups > 1)
    printf("%s: %d hosts of %d kinds, %d GPUs, allreduce\n", t->name, best->n_hosts, best->n_groups,
           best->n_ranks);
  else
    printf("%s: %d host%s of %d GPUs, allreduce\n", t->name, best->n_hosts, COPSE_S(best->n_hosts),
           best->n_ranks / best->n_hosts);
  for (int g = 0; best->n_groups > 1 && g < best->n_groups; g++) {
    print_hosts(best, g);
    printf(" alone could have rings of %s GB/s and chains of %s at most\n",
           COPSE_CLI_Q(best->groups[g].ring.bound), COPSE_CLI_Q(best->groups[g].chain.bound));
  }
  if (best->n_groups > 1)
    printf(
        "  (of chains: on rails that all hosts have, at the host's place in NCCL's trees over the "
        "hosts,\n  where some have fewer neighbours, and so more left for chains)\n");
  print_part("rings", "rings", &best->ring, 1, f->rings);
  print_part("chains", chains, &best->chain, bus_factor(best), f->chains);
  printf("all schedules%s: busbw %.10g at most; rings reach %.1f %% of it, chains %.1f %%\n",
         copse_has_clever_switch(t) ? " without the switches that copy and add" : "", f->all,
         100 * f->rings / f->all, 100 * f->chains / f->all);
  if (f->chains > copse_q_to_double(best->ring.bound) * (1 + 1e-9))
    printf("no rings are as fast as these chains\n");
}

static void print_json_part(const char *what, const struct copse_nccl_optimum *p, double bus) {
  printf(" \"%s\": {\"channels\": %d, \"speed_GBps\": \"%s\", \"GBps\": \"%s\", ", what, p->n,
         COPSE_Q_STRING(p->speed), COPSE_Q_STRING(p->GBps));
  printf("\"bound_GBps\": \"%s\", \"optimal\": %s, \"busbw_GBps\": %s},\n",
         COPSE_Q_STRING(p->bound), COPSE_CLI_BOOL(copse_q_eq(p->GBps, p->bound)),
         COPSE_CLI_NUMBER(bus));
}

/* Prints hosts that are alike; figures before are those of the first kind. */
static void print_json_groups(const struct copse_nccl_best *best) {
  printf(" \"groups\": [\n");
  for (int g = 0; g < best->n_groups; g++) {
    const struct copse_nccl_best_group *group = &best->groups[g];
    const char *comma = "";
    printf("  {\"hosts\": [");
    for (int h = 0; h < best->n_hosts; h++) {
      if (best->group_of[h] != g) continue;
      printf("%s%d", comma, h);
      comma = ", ";
    }
    printf(
        "], \"crossnic\": %d, \"pattern\": %d, \"rings_bound_GBps\": \"%s\", "
        "\"chains_bound_GBps\": \"%s\"}%s\n",
        group->graphs.graph[COPSE_NCCL_RING].crossnic, group->graphs.graph[COPSE_NCCL_TREE].pattern,
        COPSE_Q_STRING(group->ring.bound), COPSE_Q_STRING(group->chain.bound),
        g + 1 < best->n_groups ? "," : "],");
  }
}

static void print_json(const struct copse_topology *t, const struct copse_nccl_best *best,
                       const struct figures *f, double seconds) {
  printf("{\"topology\": %s, \"hosts\": %d, \"gpus\": %d, \"crossnic\": %d, \"pattern\": %d,\n",
         copse_cli_quoted(t->name), best->n_hosts,
         best->groups[0].graphs.graph[COPSE_NCCL_RING].n_channels > 0
             ? best->groups[0].graphs.graph[COPSE_NCCL_RING].channels[0].n_gpus
             : 1,
         best->graphs[0]->graph[COPSE_NCCL_RING].crossnic,
         best->graphs[0]->graph[COPSE_NCCL_TREE].pattern);
  print_json_groups(best);
  print_json_part("rings", &best->ring, f->rings);
  print_json_part("chains", &best->chain, f->chains);
  printf(" \"bound_busbw_GBps\": %s, \"seconds\": %.6f}\n", COPSE_CLI_NUMBER(f->all), seconds);
}

static copse_status find(const struct options *o, struct copse_nccl_best *best,
                         struct copse_cli_work *w) {
  const struct copse_nccl_best_options options = {.hosts = o->hosts, .max_channels = o->channels};
  struct figures figures;
  double start = copse_clock_seconds();
  w->place = w->solved = copse_cli_topology_label(&o->topology);
  COPSE_DO(copse_cli_load_topology(&o->topology, &w->topology, &w->whole, &w->err));
  copse_cli_phase("rings");
  COPSE_DO(copse_nccl_best_find(w->topology, &options, best, &w->err));
  double seconds = copse_clock_seconds() - start;
  COPSE_DO(copse_nccl_best_to_json(best, w->topology, &w->made, &w->made_size, &w->err));
  COPSE_DO(copse_cli_repeat_host(&w->topology, o->hosts, &w->err));
  COPSE_DO(find_figures(o, w->topology, best, &figures, &w->err));
  copse_cli_progress_end();
  if (o->output) COPSE_DO(copse_cli_write(o->output, w->made, w->made_size, &w->err));
  if (o->json)
    print_json(w->topology, best, &figures, seconds);
  else if (!copse_cli_is_stdout(o->output))
    print_report(best, w->topology, &figures);
  return COPSE_OK;
}

static copse_status rings(void *options, struct copse_cli_work *w) {
  struct copse_nccl_best best = {0};
  copse_status status = find(options, &best, w);
  copse_nccl_best_free(&best);
  return status;
}

static int run(void *arguments, int n_left, char **left) {
  struct options *o = arguments;
  int status = copse_cli_take_topology(&o->topology, "rings", n_left, left);
  if (status) return status;
  if (o->json && copse_cli_is_stdout(o->output))
    return copse_cli_usage("rings", "of --json and -o - only one can have standard output");
  return copse_cli_do(rings, o);
}

#define TO(member) COPSE_OPTION_TO(struct options, member)
static const struct copse_option own[] = {
    {"--output", 'o', "FILE", "write channels and proof as a certificate, for 'copse verify'",
     TO(output), .writes = true, .common = true},
    {"--hosts", 0, "N", "so many hosts of a kind, on a network taken as no limit", TO(hosts),
     COPSE_OPTION_RANGE(1, 65536), .common = true},
    {"--channels", 0, "N", "at most so many channels (default 32: NCCL from 2.25 on)", TO(channels),
     COPSE_OPTION_RANGE(1, COPSE_NCCL_MAX_CHANNELS), .common = true},
    {"--json", 'j', NULL, "the report as one JSON object", TO(json), .common = true},
    {0}};

const struct copse_command copse_cmd_rings = {
    .name = "rings",
    .does = "the best rings and chains that NCCL can run, proved",
    .usage =
        "usage: copse rings TOPO [--hosts N] [-o FILE] [--json] [options]\n\n"
        "Finds the sets of rings, and of chains for trees, that are fastest as NCCL runs them:\n"
        "up to 32 channels of one speed; of several hosts each channel with its NICs. Proves\n"
        "that none are faster, or says how much faster others may be, and what no schedule at\n"
        "all beats. 'copse tune' writes them for NCCL.\n\n",
    .example =
        "example: copse rings dgx1-v100 -o rings.json\n"
        "         copse verify rings.json -t dgx1-v100\n",
    .takes = COPSE_KIND_TOPOLOGY,
    .takes_topology = true,
    .sections = {{.title = "More options", .options = own},
                 COPSE_CLI_TOPOLOGY_SECTIONS(struct options, topology)},
    .size = sizeof(struct options),
    .run = run};
