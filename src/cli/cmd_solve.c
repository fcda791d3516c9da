/* copse solve TOPO -c COLLECTIVE -o SCHEDULE: the exact optimum and a schedule that reaches it. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/solve_args.h"
#include "cli/solve_checked.h"
#include "cli/solve_failures.h"
#include "cli/solve_groups.h"
#include "cli/solve_pareto.h"
#include "cli/solve_report.h"
#include "schedule/demand.h"
#include "view/draw_schedule.h"

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
    "      --groups FILE   schedules for groups of ranks that run at the same time, a list of ranks\n"
    "                      a line; with -o FOLDER group-0.json ..., index.json\n"
    "      --objective O   throughput (the default), latency or a message size such as 64K: what\n"
    "                      is fastest there by 'copse simulate' among the optimum, the best of 1,\n"
    "                      2, 4 and 8 trees per root, ring, double binary tree and direct exchange\n"
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

/* Solves, and writes what was found. The schedule stays as it was written. */
static copse_status solve_and_write(struct options *o, const struct copse_topology *topology,
                                    struct copse_schedule **out,
                                    struct copse_cli_solve_seconds *sec, struct copse_err *err) {
  const struct copse_solve_options *solve = &o->what.solve;
  char *text = NULL;
  size_t size;
  copse_status status;
  if (o->objective.bytes > 0)
    COPSE_TRY(copse_cli_objective_solve(topology, solve, &o->objective, out, &sec->solve, err));
  else
    COPSE_TRY(copse_cli_solve_checked(topology, solve, o->what.has_tolerance, out, &sec->solve,
                                      &sec->verify, err));
  COPSE_TRY(copse_cli_note_equal_shares(topology, solve, err));
  double mark = copse_clock_seconds();
  if (o->output) {
    COPSE_TRY(copse_schedule_to_json(*out, &text, &size, err));
    COPSE_TRY(copse_file_write(o->output, text, size, err));
  }
  sec->write = copse_clock_seconds() - mark;
  if (solve->compact && (*out)->n_rotations == 0)
    copse_note(&copse_cli_notes,
               "no trees of base ranks were found that reach the optimum under the symmetries of "
               "%s; all trees are listed",
               solve->label);
out:
  free(text);
  return status;
}

static copse_status tell(const struct options *o, const struct copse_cli_solve_report *report,
                         struct copse_err *err) {
  if (o->json) return copse_cli_solve_print_json(report, err);
  if (!to_stdout(o->output) && !to_stdout(o->draw)) copse_cli_solve_print_text(report);
  return COPSE_OK;
}

static int run(struct options *o) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *topology = NULL, *whole = NULL;
  struct copse_schedule *schedule = NULL;
  struct copse_arrangement *arrangement = NULL;
  struct copse_solve_options *solve = &o->what.solve;
  struct copse_cli_solve_report report = {.objective = &o->objective,
                                          .bound_only = solve->bound_only};
  struct copse_cli_progress bar;
  struct copse_progress progress = copse_cli_progress_start(&bar, o->progress);
  int64_t *demand = NULL;
  copse_status status;
  double start = copse_clock_seconds(), mark;
  solve->label = copse_cli_topology_label(&o->what.topology);
  solve->progress = &progress;
  solve->notes = &copse_cli_notes;
  COPSE_TRY(copse_cli_load_topologies(&o->what.topology, &topology, &whole, &err));
  if (o->what.demand)
    COPSE_TRY(copse_demand_load(o->what.demand, topology->n_ranks, &demand, &err));
  solve->demand = demand;
  mark = copse_clock_seconds();
  report.seconds.read = mark - start;
  if (o->draw) COPSE_TRY(copse_arrangement_make(topology, &arrangement, &err));
  start += copse_clock_seconds() - mark; /* a picture is no part of solving */
  COPSE_TRY(solve_and_write(o, topology, &schedule, &report.seconds, &err));
  report.seconds.total = copse_clock_seconds() - start;
  if (whole)
    COPSE_TRY(copse_cli_compare_healthy(whole, topology, solve, o->what.has_tolerance,
                                        schedule->time_per_GB, &report.healthy, &err));
  copse_cli_progress_end(&bar);
  struct copse_schedule as_written = *schedule; /* what is told of; its lists stay as they are */
  report.topology = topology;
  report.schedule = &as_written;
  if (o->predict) {
    COPSE_TRY(copse_schedule_expand(schedule, &err));
    COPSE_TRY(copse_cli_predict(schedule, topology, &report.prediction, &err));
  }
  if (o->draw) COPSE_TRY(draw(o, topology, arrangement, schedule, &err));
  status = tell(o, &report, &err);
out:
  copse_cli_prediction_free(&report.prediction);
  if (status != COPSE_OK) copse_cli_progress_end(&bar);
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
                           "--objective and --predict are for trees that no switch copies for, as "
                           "plans have them: leave out --in-network");
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
