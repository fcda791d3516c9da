/* copse solve TOPO -c COLLECTIVE -o SCHEDULE: the exact optimum and a schedule that reaches it. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/collective.h"
#include "base/peak.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/solve_args.h"
#include "cli/solve_checked.h"
#include "cli/solve_failures.h"
#include "cli/solve_groups.h"
#include "cli/solve_healthy.h"
#include "cli/solve_objective.h"
#include "cli/solve_pareto.h"
#include "cli/solve_predict.h"
#include "schedule/demand.h"
#include "schedule/draw_schedule.h"

static const char help[] =
    "usage: copse solve TOPO -c COLLECTIVE [-o SCHEDULE.json] [options]\n\n"
    "Computes an exactly optimal schedule and the cut that proves the optimum. The\n"
    "schedule is verified before it is written.\n\n";
static const char more_help[] =
    "  -b, --bound-only    the optimum and its cut, no trees\n"
    "      --pareto        a table instead of a schedule: the best time of k trees per root, for\n"
    "                      each k up to the optimum's, at most 64 or --k K\n"
    "      --each-failure TYPE\n"
    "                      solve also for the failure of each single node of a type: nic, switch\n"
    "                      ...; with -o FOLDER healthy.json, down-ID.json, index.json\n"
    "      --groups FILE   schedules for groups of ranks that run at the same time, a list of "
    "ranks\n"
    "                      a line; with -o FOLDER group-0.json ..., index.json\n"
    "      --objective O   throughput (the default), latency or a message size such as 64K: what\n"
    "                      is fastest there by 'copse simulate' among the optimum, the best of 1,\n"
    "                      2, 4 and 8 trees per root, ring, double binary tree and direct "
    "exchange\n"
    "      --predict       also the predicted times of 64 KiB, 1 MiB, 64 MiB and 1 GiB, beside\n"
    "                      ring, double binary tree and direct exchange (see 'copse simulate')\n"
    "  -o, --output FILE   where to write the schedule (- for standard output)\n"
    "      --draw FILE     a picture of the links' loads as SVG: the bottleneck, the cut; laid\n"
    "                      out by Graphviz (the program 'dot'), at most 2500 nodes\n"
    "      --tree I        draw tree I (from 0) instead, of an alltoall what rank I sends\n"
    "  -j, --json          the report as one JSON object\n"
    "      --progress      show progress even where standard error is no terminal\n\n"
    "example: copse solve topologies/a100-x2.json -c allreduce -o a100-x2.allreduce.json\n";

struct options {
  struct copse_cli_solve what;
  const char *output, *draw, *each_failure, *groups;
  struct copse_cli_objective objective;
  int tree; /* to draw; -1: the loads */
  bool json, progress, pareto, predict;
};

struct seconds {
  double read, verify, write, total;
  struct copse_solve_seconds solve;
};

static void add_cut(struct copse_text *text, const struct copse_schedule *s, const int *cut,
                    int n) {
  copse_text_add(text, "[");
  for (int i = 0; i < n; i++) {
    if (i > 0) copse_text_add(text, ", ");
    copse_text_add_json_string(text, s->nodes[cut[i]]);
  }
  copse_text_add(text, "]");
}

static const char *const bound_kinds[] = {"cut", "phases", "lengths", "forests"};

static int count_paths(const struct copse_schedule *s) {
  int n = 0;
  for (int f = 0; f < s->n_flows; f++) n += s->flows[f].n_paths;
  return n;
}

static copse_status print_json(const struct copse_topology *t, const struct copse_schedule *s,
                               const struct copse_cli_healthy *healthy,
                               const struct copse_cli_prediction *prediction,
                               const struct copse_cli_objective *objective, bool bound_only,
                               const struct seconds *sec, struct copse_err *err) {
  struct copse_text text = {0};
  char time[COPSE_Q_TEXT], bound[COPSE_Q_TEXT];
  copse_text_add(&text, "{\"collective\": \"%s\", \"nranks\": %d, \"nodes\": %d, \"links\": %d,\n",
                 copse_collective_name(s->collective), t->n_ranks, t->n_nodes, t->n_links);
  copse_text_add(&text,
                 " \"time_per_GB\": \"%s\", \"algbw_GBps\": ", copse_q_text(s->time_per_GB, time));
  copse_text_add_json_number(&text, copse_schedule_algbw(s));
  copse_text_add(&text, ", \"bound_time_per_GB\": \"%s\", \"bound_kind\": \"%s\",\n",
                 copse_q_text(s->bound.time_per_GB, bound), bound_kinds[s->bound.kind]);
  if (bound_only)
    copse_text_add(&text, " \"k\": null, \"trees\": null, \"max_height\": null,\n");
  else if (s->collective == COPSE_ALLTOALL)
    copse_text_add(&text,
                   " \"k\": null, \"trees\": null, \"flows\": %d, \"images\": %" PRId64
                   ", \"paths\": %d, "
                   "\"max_height\": %d,\n",
                   s->n_flows, copse_schedule_images(s), count_paths(s), copse_schedule_height(s));
  else
    copse_text_add(&text,
                   " \"k\": %" PRId64 ", \"trees\": %d, \"images\": %" PRId64
                   ", \"max_height\": %d, \"mean_height\": %.6g,\n",
                   s->k, s->n_trees, copse_schedule_images(s), copse_schedule_height(s),
                   copse_schedule_mean_height(s));
  if (sec->solve.orbits > 0) copse_text_add(&text, " \"orbits\": %d,\n", sec->solve.orbits);
  copse_text_add(&text, " \"cut\": ");
  add_cut(&text, s, s->bound.cut, s->bound.n_cut);
  if (s->bound.kind == COPSE_BOUND_PHASES) {
    copse_text_add(&text, ",\n \"reduce_cut\": ");
    add_cut(&text, s, s->bound.reduce_cut, s->bound.n_reduce_cut);
  }
  copse_cli_add_healthy(&text, healthy);
  copse_cli_add_objective(&text, objective);
  copse_cli_add_prediction(&text, prediction);
  copse_text_add(
      &text,
      ",\n \"seconds\": {\"read\": %.6f, \"optimum\": %.6f, \"split\": %.6f, \"pack\": "
      "%.6f, \"verify\": %.6f, \"write\": %.6f, \"total\": %.6f},\n \"peak_MiB\": %ld}\n",
      sec->read, sec->solve.optimum, sec->solve.split, sec->solve.pack, sec->verify, sec->write,
      sec->total, copse_peak_mib());
  copse_status status = copse_text_status(&text, err);
  if (status == COPSE_OK) fputs(text.data, stdout);
  copse_text_free(&text);
  return status;
}

/* The smaller side of the cut, by ranks: what a reader looks for on the machine. */
static void print_cut(const struct copse_topology *t, const struct copse_schedule *s) {
  char *inside = calloc((size_t)t->n_nodes, 1);
  int ranks_inside = 0, shown = 0;
  if (!inside) return;
  for (int i = 0; i < s->bound.n_cut; i++) inside[s->bound.cut[i]] = 1;
  for (int r = 0; r < t->n_ranks; r++) ranks_inside += inside[t->rank_nodes[r]];
  bool show_inside = 2 * ranks_inside <= t->n_ranks;
  int ranks = show_inside ? ranks_inside : t->n_ranks - ranks_inside;
  bool reduces = copse_collective_reduces(s->collective) && s->collective != COPSE_ALLREDUCE;
  struct copse_q through = COPSE_Q_ZERO;
  bool exact = true;
  for (int i = 0; i < t->n_links; i++) {
    const struct copse_link *l = &t->links[i];
    bool crosses = reduces ? !inside[l->src] && inside[l->dst] : inside[l->src] && !inside[l->dst];
    if (crosses && copse_q_add(through, l->bandwidth, &through, NULL) != COPSE_OK) exact = false;
  }
  printf("bottleneck: the links %s", show_inside == reduces ? "into" : "out of");
  for (int r = 0; r < t->n_ranks; r++) {
    if ((bool)inside[t->rank_nodes[r]] != show_inside) continue;
    if (shown < 8) printf("%s%s", shown ? ", " : " ", t->nodes[t->rank_nodes[r]].id);
    shown++;
  }
  if (shown > 8) printf(", ... (%d ranks)", ranks);
  if (exact) printf(": %.10g GB/s", copse_q_to_double(through));
  printf("\n");
  free(inside);
}

/* The links that bound an alltoall: those of the greatest length. */
static void print_busy_lengths(const struct copse_topology *t, const struct copse_schedule *s) {
  struct copse_q most = COPSE_Q_ZERO;
  int n = 0, first = -1;
  for (int i = 0; i < s->bound.n_lengths; i++)
    if (copse_q_cmp(s->bound.lengths[i].length, most) > 0) most = s->bound.lengths[i].length;
  for (int i = 0; i < s->bound.n_lengths; i++) {
    if (!copse_q_eq(s->bound.lengths[i].length, most)) continue;
    if (n++ == 0) first = i;
  }
  if (first < 0) return;
  printf("bottleneck: %s -> %s", s->nodes[s->bound.lengths[first].src],
         s->nodes[s->bound.lengths[first].dst]);
  if (n > 1) printf(" and %d links like it", n - 1);
  printf(" (%d of %d links count in the bound)\n", s->bound.n_lengths, t->n_links);
}

/* How good it is, and by which bound. */
static void print_standing(const struct copse_schedule *s, bool bound_only) {
  char bound[COPSE_Q_TEXT];
  bool equal = copse_q_eq(s->time_per_GB, s->bound.time_per_GB);
  copse_q_text(s->bound.time_per_GB, bound);
  if (s->bound.kind == COPSE_BOUND_PHASES && equal)
    printf("reduce_scatter and allgather, equal shares, each at its bound%s\n",
           bound_only ? "; overlapped they may be faster" : "");
  else if (s->bound.kind == COPSE_BOUND_FORESTS && equal)
    printf("optimal among all reduce and broadcast forests with common shares, run together\n");
  else if (equal)
    printf("optimal: equal to the bound\n");
  else if (s->collective == COPSE_ALLREDUCE && s->bound.kind == COPSE_BOUND_CUT)
    printf(
        "reduce_scatter and allgather load different links, so they are faster than in turn;\n"
        "no allreduce is faster than %s s/GB\n",
        bound);
  else
    printf("bound: %s s/GB; this is %.3g %% above it\n", bound,
           100 * (copse_q_to_double(s->time_per_GB) / copse_q_to_double(s->bound.time_per_GB) - 1));
}

static void print_text(const struct copse_topology *t, const struct copse_schedule *s,
                       const struct copse_cli_healthy *healthy, bool bound_only,
                       const struct seconds *sec) {
  char time[COPSE_Q_TEXT], rate[COPSE_RATE_TEXT];
  printf("%s of %s: %s s/GB, %s\n", copse_collective_name(s->collective), t->name,
         copse_q_text(s->time_per_GB, time), copse_rate_text(s->time_per_GB, 10, rate));
  if (t->n_ranks == 1) {
    printf("a single rank: nothing moves\n");
    return;
  }
  print_standing(s, bound_only);
  copse_cli_print_healthy(healthy);
  if (s->collective == COPSE_ALLTOALL) {
    print_busy_lengths(t, s);
    if (!bound_only)
      printf("%d flows%s over %d paths, at most %d hops\n", s->n_flows,
             s->n_rotations > 0 ? " of base ranks" : "", count_paths(s), copse_schedule_height(s));
    if (!bound_only && s->n_rotations > 0)
      printf("the others are their images under a rotation of order %d\n", s->rotations[0].order);
    printf("seconds: flow %.3f, paths %.3f, verify %.3f, total %.3f\n", sec->solve.optimum,
           sec->solve.pack, sec->verify, sec->total);
    return;
  }
  if (s->bound.kind == COPSE_BOUND_FORESTS)
    printf("bottleneck: %d cuts, of both phases\n", s->bound.n_cuts);
  else
    print_cut(t, s);
  if (sec->solve.orbits > 0 && sec->solve.orbits < t->n_ranks)
    printf("symmetry: the %d ranks are of %d kind%s\n", t->n_ranks, sec->solve.orbits,
           sec->solve.orbits == 1 ? "" : "s");
  if (!bound_only)
    printf("k = %" PRId64 ", %d trees%s, at most %d hops high, %.3g on average\n", s->k, s->n_trees,
           s->n_rotations > 0 ? " of base ranks" : "", copse_schedule_height(s),
           copse_schedule_mean_height(s));
  if (!bound_only && s->n_rotations > 0)
    printf("the others are their images under %d symmetr%s: %" PRId64 " trees in all\n",
           s->n_rotations, s->n_rotations == 1 ? "y" : "ies",
           s->n_trees * copse_schedule_images(s));
  if (s->n_copying + s->n_adding > 0)
    printf("the time counts on %d switches to copy, on %d to add, which no plan can ask of them\n",
           s->n_copying, s->n_adding);
  printf("seconds: optimum %.3f, split %.3f, pack %.3f, verify %.3f, total %.3f\n",
         sec->solve.optimum, sec->solve.split, sec->solve.pack, sec->verify, sec->total);
}

/* Expands a compact schedule. */
static copse_status draw(const struct options *o, const struct copse_topology *topology,
                         const struct copse_arrangement *arrangement,
                         struct copse_schedule *schedule, struct copse_err *err) {
  struct copse_text text = {0};
  copse_status status;
  COPSE_TRY(copse_schedule_expand(schedule, err));
  if (o->tree >= 0)
    COPSE_TRY(
        copse_schedule_draw_part(schedule, topology, arrangement, o->tree, false, &text, err));
  else
    COPSE_TRY(copse_schedule_draw_load(schedule, topology, arrangement, false, &text, err));
  status = copse_file_write(o->draw, text.data, text.size, err);
out:
  copse_text_free(&text);
  return status;
}

static bool to_stdout(const char *path) { return path && strcmp(path, "-") == 0; }

static int run(struct options *o) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *topology = NULL, *whole = NULL;
  struct copse_schedule *schedule = NULL;
  struct copse_arrangement *arrangement = NULL;
  struct copse_cli_healthy healthy = {0};
  struct copse_cli_prediction prediction = {0};
  struct copse_cli_progress bar;
  struct copse_progress progress = copse_cli_progress_start(&bar, o->progress);
  struct seconds sec = {0};
  char *text = NULL;
  int64_t *demand = NULL;
  size_t size;
  copse_status status;
  double start = copse_clock_seconds(), mark = start;
  struct copse_solve_options *solve = &o->what.solve;
  solve->label = copse_cli_topology_label(&o->what.topology);
  solve->progress = &progress;
  solve->notes = &copse_cli_notes;
  COPSE_TRY(copse_cli_load_topologies(&o->what.topology, &topology, &whole, &err));
  if (o->what.demand)
    COPSE_TRY(copse_demand_load(o->what.demand, topology->n_ranks, &demand, &err));
  solve->demand = demand;
  sec.read = copse_clock_seconds() - mark;
  mark = copse_clock_seconds();
  if (o->draw) COPSE_TRY(copse_arrangement_make(topology, &arrangement, &err));
  start += copse_clock_seconds() - mark; /* a picture is no part of solving */
  if (o->objective.bytes > 0)
    COPSE_TRY(
        copse_cli_objective_solve(topology, solve, &o->objective, &schedule, &sec.solve, &err));
  else
    COPSE_TRY(copse_cli_solve_checked(topology, solve, o->what.has_tolerance, &schedule, &sec.solve,
                                      &sec.verify, &err));
  COPSE_TRY(copse_cli_note_equal_shares(topology, solve, &err));
  mark = copse_clock_seconds();
  if (o->output) {
    COPSE_TRY(copse_schedule_to_json(schedule, &text, &size, &err));
    COPSE_TRY(copse_file_write(o->output, text, size, &err));
  }
  sec.write = copse_clock_seconds() - mark;
  if (solve->compact && schedule->n_rotations == 0)
    copse_note(&copse_cli_notes,
               "no trees of base ranks were found that reach the optimum under the symmetries of "
               "%s; all trees are listed",
               solve->label);
  sec.total = copse_clock_seconds() - start;
  if (whole)
    COPSE_TRY(copse_cli_compare_healthy(whole, topology, solve, o->what.has_tolerance,
                                        schedule->time_per_GB, &healthy, &err));
  copse_cli_progress_end(&bar);
  struct copse_schedule as_written = *schedule; /* what is told of; its lists stay as they are */
  if (o->predict) {
    COPSE_TRY(copse_schedule_expand(schedule, &err));
    COPSE_TRY(copse_cli_predict(schedule, topology, &prediction, &err));
  }
  if (o->draw) COPSE_TRY(draw(o, topology, arrangement, schedule, &err));
  if (o->json)
    status = print_json(topology, &as_written, &healthy, &prediction, &o->objective,
                        solve->bound_only, &sec, &err);
  else if (!to_stdout(o->output) && !to_stdout(o->draw)) {
    print_text(topology, &as_written, &healthy, solve->bound_only, &sec);
    copse_cli_print_objective(&o->objective);
    copse_cli_print_prediction(&prediction);
  }
out:
  copse_cli_prediction_free(&prediction);
  if (status != COPSE_OK) copse_cli_progress_end(&bar);
  free(text);
  free(demand);
  copse_arrangement_free(arrangement);
  copse_schedule_release(schedule);
  copse_topology_release(topology);
  copse_topology_release(whole);
  return status == COPSE_OK ? COPSE_EXIT_DONE : copse_cli_solve_fail(&o->what, &err);
}

static int check_failures(const struct options *o) {
  const struct copse_cli_solve *what = &o->what;
  if (o->draw || o->pareto || o->predict || o->objective.bytes > 0 || to_stdout(o->output))
    return copse_cli_usage("solve",
                           "--each-failure makes many schedules: leave out --draw, --objective, "
                           "--predict and --pareto, and give a folder to -o");
  if (strcmp(o->each_failure, "gpu") == 0 &&
      (what->topology.ranks || what->demand || what->solve.root >= 0))
    return copse_cli_usage("solve",
                           "the failure of a gpu moves ranks: leave out --ranks, --demand and "
                           "--root");
  return COPSE_EXIT_DONE;
}

static int check_groups(const struct options *o) {
  const struct copse_cli_solve *what = &o->what;
  const struct copse_solve_options *solve = &what->solve;
  bool other = o->draw || o->pareto || o->each_failure || what->topology.ranks || what->demand ||
               o->predict || o->objective.bytes > 0;
  if (other || to_stdout(o->output) || what->has_tolerance || solve->k > 0 || solve->no_forward ||
      solve->in_network || solve->compact)
    return copse_cli_usage("solve",
                           "--groups makes a schedule for each: leave out --ranks, --k, "
                           "--tolerance, --demand, --no-forward, --in-network, --compact, --draw, "
                           "--objective, --predict, --pareto and --each-failure, and give a "
                           "folder to -o");
  if (what->solve.bound_only && o->output)
    return copse_cli_usage("solve", "--bound-only makes no schedules: leave out -o");
  return COPSE_EXIT_DONE;
}

static int check(const struct options *o) {
  if (o->groups) return check_groups(o);
  if (o->each_failure) return check_failures(o);
  if (o->pareto && (o->what.solve.collective == COPSE_ALLTOALL || o->what.has_tolerance ||
                    o->what.solve.bound_only || o->output || o->draw))
    return copse_cli_usage("solve",
                           "--pareto makes a table about trees: leave out alltoall, --tolerance, "
                           "--bound-only, -o and --draw");
  if (o->pareto && (o->what.solve.in_network || o->what.solve.compact))
    return copse_cli_usage("solve",
                           "--pareto counts the trees of each rank, and no switch copies for them: "
                           "leave out --in-network and --compact");
  if (o->what.solve.bound_only && (o->output || o->draw || o->predict || o->what.solve.k > 0))
    return copse_cli_usage(
        "solve", "--bound-only makes no schedule: leave out -o, --draw, --predict and --k");
  if (o->pareto && (o->predict || o->objective.bytes > 0))
    return copse_cli_usage("solve",
                           "--predict and --objective are for one schedule: leave out --pareto");
  if (o->objective.bytes > 0 &&
      (o->what.solve.collective == COPSE_ALLTOALL || o->what.solve.bound_only))
    return copse_cli_usage("solve",
                           "--objective chooses among trees: leave out alltoall and --bound-only");
  if (o->objective.bytes > 0 && o->what.solve.compact)
    return copse_cli_usage("solve", "--objective lists all trees: leave out --compact");
  if ((o->objective.bytes > 0 || o->predict) && o->what.solve.in_network)
    return copse_cli_usage("solve",
                           "--objective and --predict simulate plain switches: leave out "
                           "--in-network");
  if (o->tree >= 0 && !o->draw) return copse_cli_usage("solve", "--tree is for --draw");
  if (o->json + to_stdout(o->output) + to_stdout(o->draw) > 1)
    return copse_cli_usage("solve",
                           "of --json, -o - and --draw - only one can have standard output");
  return COPSE_EXIT_DONE;
}

static int parse_option(int c, struct options *o, char **argv) {
  int64_t value;
  switch (c) {
    case 'b': o->what.solve.bound_only = true; break;
    case 'o': o->output = optarg; break;
    case 'j': o->json = true; break;
    case 'p': o->progress = true; break;
    case 'D': o->draw = optarg; break;
    case 'P': o->pareto = true; break;
    case 'T': o->predict = true; break;
    case 'O':
      if (!copse_cli_objective_parse(optarg, &o->objective))
        return copse_cli_usage("solve",
                               "--objective must be throughput, latency or a size such as 64K");
      break;
    case 'F': o->each_failure = optarg; break;
    case 'G': o->groups = optarg; break;
    case 't':
      if (!copse_cli_parse_int(optarg, 0, INT32_MAX, &value))
        return copse_cli_usage("solve", "--tree must be a tree's number, from 0");
      o->tree = (int)value;
      break;
    default: return copse_cli_solve_option(&o->what, "solve", argv, c);
  }
  return COPSE_EXIT_DONE;
}

int copse_cmd_solve(int argc, char **argv) {
  static const struct option longs[] = {COPSE_CLI_SOLVE_OPTIONS,
                                        {"bound-only", no_argument, NULL, 'b'},
                                        {"output", required_argument, NULL, 'o'},
                                        {"draw", required_argument, NULL, 'D'},
                                        {"pareto", no_argument, NULL, 'P'},
                                        {"objective", required_argument, NULL, 'O'},
                                        {"predict", no_argument, NULL, 'T'},
                                        {"each-failure", required_argument, NULL, 'F'},
                                        {"groups", required_argument, NULL, 'G'},
                                        {"tree", required_argument, NULL, 't'},
                                        {"json", no_argument, NULL, 'j'},
                                        {"progress", no_argument, NULL, 'p'},
                                        {"help", no_argument, NULL, 'h'},
                                        {NULL, 0, NULL, 0}};
  struct options o = {.what = COPSE_CLI_SOLVE_INIT, .tree = -1};
  opterr = 0;
  for (int c;
       (c = getopt_long(argc, argv, ":" COPSE_CLI_SOLVE_SHORTS "bo:jh", longs, NULL)) != -1;) {
    if (c == 'h') {
      fputs(help, stdout);
      fputs(copse_cli_solve_help, stdout);
      fputs(more_help, stdout);
      fputs(copse_cli_topology_help, stdout);
      fputs(copse_cli_change_help, stdout);
      return COPSE_EXIT_DONE;
    }
    int bad = parse_option(c, &o, argv);
    if (bad) return bad;
  }
  int bad = copse_cli_solve_check(&o.what, "solve", argc - optind, argv + optind);
  if (!bad) bad = check(&o);
  if (bad) return bad;
  if (o.each_failure) {
    const struct copse_cli_failures failures = {o.each_failure, o.output, o.json, o.progress};
    return copse_cli_solve_failures(&o.what, &failures);
  }
  if (o.groups) {
    const struct copse_cli_groups groups = {o.groups, o.output, o.json, o.progress};
    return copse_cli_solve_groups(&o.what, &groups);
  }
  return o.pareto ? copse_cli_solve_pareto(&o.what, o.json, o.progress) : run(&o);
}
