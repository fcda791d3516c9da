/* What to solve: options that solve and report have, what goes together, and solving with a check.
 */
#include "cli/solve_args.h"
#include "cli/options.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "predict/predict.h"
#include "predict/simulate_programs.h"
#include "schedule/demand.h"
#include "topology/modify.h"
#include "topology/words.h"
#include "verify/verify.h"

/* ---- options ------------------------------------------------------------------------------- */

static int take_collective(void *options, const char *command, char *value) {
  struct copse_cli_solve *a = options;
  copse_collective before = a->solve.collective;
  int exit = copse_cli_take_collective(command, value, &a->solve.collective);
  if (exit == COPSE_EXIT_DONE && a->has_collective && a->solve.collective != before)
    return copse_cli_usage(command, "takes one collective at a time, not %s and %s",
                           copse_collective_name(before),
                           copse_collective_name(a->solve.collective));
  a->has_collective = exit == COPSE_EXIT_DONE;
  return exit;
}

static int take_tolerance(void *options, const char *command, char *value) {
  struct copse_cli_solve *a = options;
  a->has_tolerance = copse_cli_parse_part(value, &a->solve.tolerance);
  if (!a->has_tolerance)
    return copse_cli_usage(command, "--tolerance must be a part such as 1%% or 0.01");
  if (!strchr(value, '%') && copse_q_cmp(a->solve.tolerance, COPSE_Q_ONE) >= 0)
    return copse_cli_usage(command,
                           "--tolerance %.20s: a bare number is a part of 1 and must be below it, "
                           "such as 0.01; for per cent write %.20s%%",
                           value, value);
  return COPSE_EXIT_DONE;
}

/* Takes a rank, or an id that is looked for when the topology is known. */
static int take_root(void *options, const char *command, char *value) {
  struct copse_cli_solve *a = options;
  int64_t rank = 0;
  bool number = strspn(value, "+-0123456789") == strlen(value);
  if (number && !copse_cli_parse_int(value, 0, INT32_MAX, &rank))
    return copse_cli_usage(command, "--root must be a rank, or the id of a GPU");
  a->solve.root = (int)rank;
  a->root = number ? NULL : value;
  return COPSE_EXIT_DONE;
}

#define TO(member) COPSE_OPTION_TO(struct copse_cli_solve, member)
static const char *const routes[] = {"any", "fabric", NULL};
const struct copse_option copse_cli_solve_options[] = {
    {"--collective", 'c', "C",
     "allgather, reduce_scatter, allreduce, broadcast, reduce or\n"
     "alltoall",
     .words = copse_cli_collectives, .take = take_collective, .common = true},
    {"--root", 'r', "R", "the root of a broadcast or reduce, a rank or the id of a GPU",
     .take = take_root, .common = true},
    {"--k", 'k', "K", "exactly K trees per root (the optimum may need many)", TO(solve.k),
     COPSE_OPTION_RANGE(1, 1 << 20)},
    {"--demand", 'd', "FILE", "what each rank sends to each, for alltoall; default: all the same",
     TO(demand), .takes = COPSE_KIND_DEMAND},
    {"--no-forward", 0, NULL, "ranks do not relay what is not theirs (alltoall)",
     TO(solve.no_forward)},
    {"--no-symmetry", 0, NULL,
     "do not look for symmetries of the cluster, which make solving faster", TO(solve.no_symmetry)},
    {"--compact", 0, NULL,
     "write the trees of one rank of each orbit and the symmetries that move\n"
     "them, of equal shares, where such reach the optimum; beyond 1024\n"
     "ranks always",
     TO(solve.compact)},
    {"--equal-shares", 0, NULL,
     "allreduce: a reduce_scatter and an allgather with equal shares per root\n"
     "also where other shares, or links shared out otherwise, are faster;\n"
     "its trees are lower, and short messages often faster",
     TO(solve.equal_shares)},
    {"--in-network", 0, NULL,
     "allreduce: switches that are marked copy (multicast) and add\n"
     "(aggregation), as NVLink SHARP and SHARP do; plans only where each tree\n"
     "is one hop by such a switch",
     TO(solve.in_network)},
    {"--routes", 0, "WHOSE",
     "any (default): trees take the best paths, which a plan's messages do\n"
     "not where the fabric's own routes differ; fabric: the best trees whose\n"
     "edges keep to those (fewest links, of these the widest), of up to 64\n"
     "ranks; beside them stands the bound of any paths",
     TO(routes), .words = routes},
    {"--tolerance", 0, "P%",
     "trees: the fewest per root within P per cent of the bound (0%, the\n"
     "default: the fewest at the optimum); alltoall: stop within P per cent\n"
     "(default: as exact as 64-bit fractions allow, beyond 64 ranks 1%).\n"
     "'copse solve --objective SIZE' also takes fewer trees, of no more\n"
     "hops, within P per cent of the fastest (default 1%; with -a 0 the\n"
     "fastest), and fewer hops within 3 %.\n"
     "0.01 is 1%; bare numbers are below 1",
     .take = take_tolerance, .common = true},
    {0},
};

int copse_cli_solve_check(struct copse_cli_solve *a, const char *command, int n_left,
                          char *const *left) {
  copse_collective collective = a->solve.collective;
  int bad = copse_cli_take_topology(&a->topology, command, n_left, left);
  if (bad) return bad;
  if (!a->has_collective) return copse_cli_usage(command, "name a collective with -c");
  if (copse_collective_rooted(collective) && a->solve.root < 0)
    return copse_cli_usage(command, "%s needs --root", copse_collective_name(collective));
  if (!copse_collective_rooted(collective) && a->solve.root >= 0)
    return copse_cli_usage(command, "--root is for broadcast and reduce");
  a->solve.on_routes = a->routes == 1;
  static const int64_t some; /* the file is read when the ranks are known */
  struct copse_solve_options asked = a->solve;
  asked.demand = a->demand ? &some : NULL;
  const char *clash = copse_solve_clash(&asked, a->has_tolerance, a->for_size);
  return clash ? copse_cli_usage(command, "%s", clash) : 0;
}

/* Notes where most of M crosses no link: rates that count it say little of the links. */
static copse_status note_diagonal(const char *label, const int64_t *bytes, int n,
                                  struct copse_err *err) {
  int64_t m;
  COPSE_DO(copse_demand_total(bytes, n, &m, err));
  for (int r = 0; r < n; r++) {
    int64_t own = bytes[(size_t)r * (size_t)n + (size_t)r];
    if (n < 2 || own < m - m / 2) continue;
    copse_note(&copse_cli_notes,
               "%s: rank %d sends itself %" PRId64
               " bytes, and M, which algbw and busbw count, is %" PRId64
               ": with zeros on the diagonal they are those of what crosses links",
               label, r, own, m);
    break;
  }
  return COPSE_OK;
}

copse_status copse_cli_load_demand(const struct copse_cli_solve *a,
                                   struct copse_solve_options *options, struct copse_cli_work *w) {
  if (!a->demand) return COPSE_OK;
  COPSE_DO(copse_file_read(a->demand, &w->data, &w->size, &w->err));
  COPSE_DO(copse_demand_parse(copse_file_label(a->demand), w->data, w->size, w->topology->n_ranks,
                              &w->demand, &w->err));
  options->demand = w->demand;
  return note_diagonal(copse_file_label(a->demand), w->demand, w->topology->n_ranks, &w->err);
}

copse_status copse_cli_find_root(const struct copse_cli_solve *a,
                                 const struct copse_topology *topology,
                                 struct copse_solve_options *options, struct copse_err *err) {
  if (!a->root) return COPSE_OK;
  int node = copse_topology_find(topology, a->root);
  if (node < 0 && strchr(a->root, ','))
    return copse_fail(err, COPSE_INVALID,
                      "--root %.80s: one root is wanted; 'copse plans' takes lists", a->root);
  if (node < 0 || topology->nodes[node].rank < 0)
    return copse_fail_at(err, COPSE_BAD_INPUT, copse_cli_topology_label(&a->topology), 0,
                         "no GPU \"%.80s\" for --root%s", a->root,
                         node < 0 ? COPSE_NEAR_ID(topology, a->root) : ": it is no rank");
  options->root = topology->nodes[node].rank;
  return COPSE_OK;
}

static void note_unmarked(const struct copse_topology *t, const struct copse_solve_options *solve) {
  for (int v = 0; v < t->n_nodes; v++)
    if (t->nodes[v].multicast || t->nodes[v].aggregation) return;
  copse_note(
      solve->notes,
      "%s: no switch is marked \"multicast\" or \"aggregation\": --in-network changes nothing",
      solve->label);
}

copse_status copse_cli_begin_solve(struct copse_cli_solve *a, struct copse_cli_work *w) {
  struct copse_solve_options *solve = &a->solve;
  w->solved = solve->label = copse_cli_topology_label(&a->topology);
  solve->progress = &w->progress;
  solve->notes = &copse_cli_notes;
  COPSE_DO(copse_cli_load_topology(&a->topology, &w->topology, &w->whole, &w->err));
  solve->healthy = w->whole;
  if (solve->in_network) note_unmarked(w->topology, solve);
  COPSE_DO(copse_cli_find_root(a, w->topology, solve, &w->err));
  return copse_cli_load_demand(a, solve, w);
}

/* ---- solving -------------------------------------------------------------------------------- */

/* Beyond this the exact optimum of an alltoall is often out of reach, and 1 % is what users ask
 * for. */
#define EXACT_ALLTOALL_RANKS 64

const char *const copse_cli_bound_kinds[] = {"cut", "phases", "lengths", "forests"};

void copse_cli_print_rates_json(const struct copse_schedule *s) {
  double algbw = copse_schedule_algbw(s);
  printf(
      " \"time_per_GB\": \"%s\", \"algbw_GBps\": %s, \"busbw_GBps\": %s, "
      "\"bound_time_per_GB\": \"%s\", \"bound_kind\": \"%s\",\n",
      COPSE_Q_STRING(s->time_per_GB), COPSE_CLI_NUMBER(algbw),
      COPSE_CLI_NUMBER(algbw * copse_collective_bus_factor(s->collective, s->n_ranks)),
      COPSE_Q_STRING(s->bound.time_per_GB), copse_cli_bound_kinds[s->bound.kind]);
  bool equal = copse_q_eq(s->time_per_GB, s->bound.time_per_GB);
  bool phases = s->bound.kind == COPSE_BOUND_PHASES, forests = s->bound.kind == COPSE_BOUND_FORESTS;
  printf(
      " \"optimal\": %s, \"phases_optimal\": %s, \"forests_optimal\": %s, \"gap_percent\": %s,\n",
      COPSE_CLI_BOOL(equal && !phases && !forests), COPSE_CLI_BOOL(equal && phases),
      COPSE_CLI_BOOL(equal && forests),
      COPSE_CLI_NUMBER(copse_cli_gap_percent(s->time_per_GB, s->bound.time_per_GB)));
}

static void print_nodes_json(const char *key, const struct copse_schedule *s, const int *cut,
                             int n) {
  printf(" \"%s\": [", key);
  for (int i = 0; i < n; i++) printf("%s%s", i > 0 ? ", " : "", copse_cli_quoted(s->nodes[cut[i]]));
  printf("]");
}

void copse_cli_print_cut_json(const struct copse_schedule *s) {
  print_nodes_json("cut", s, s->bound.cut, s->bound.n_cut);
  if (s->bound.kind != COPSE_BOUND_PHASES) return;
  printf(",\n");
  print_nodes_json("reduce_cut", s, s->bound.reduce_cut, s->bound.n_reduce_cut);
}

/* Names what limits the schedule; a bound that it doesn't reach says nothing of that. */
static const char *what_limits(const struct copse_schedule *s) {
  return copse_q_cmp(s->time_per_GB, s->bound.time_per_GB) > 0 ? "bound, not reached"
                                                               : "bottleneck";
}

/* Prints the links that bound an alltoall: those of the greatest length. */
static void print_busy_lengths(const struct copse_topology *t, const struct copse_schedule *s) {
  COPSE_AT_END(copse_arena_free) struct copse_arena arena = {0};
  struct copse_q most = COPSE_Q_ZERO;
  int n = 0, first = -1;
  for (int i = 0; i < s->bound.n_lengths; i++)
    if (copse_q_cmp(s->bound.lengths[i].length, most) > 0) most = s->bound.lengths[i].length;
  for (int i = 0; i < s->bound.n_lengths; i++) {
    const struct copse_schedule_length *l = &s->bound.lengths[i];
    if (copse_q_eq(l->length, most) && n++ == 0)
      first = copse_topology_find_link(t, copse_topology_find(t, s->nodes[l->src]),
                                       copse_topology_find(t, s->nodes[l->dst]));
  }
  const char *words = first < 0 ? NULL : copse_link_words(t, first, &arena);
  if (!words) return;
  printf("%s: %s", what_limits(s), words);
  if (n > 1) printf(" and %d links like it", n - 1);
  printf(" (%d of %d links count in the bound)\n", s->bound.n_lengths, t->n_links);
}

/* Describes a set of the schedule's nodes; NULL where there is none, or no memory. */
static const char *cut_words(const struct copse_topology *t, const struct copse_schedule *s,
                             const int *nodes, int n, bool reduces, struct copse_arena *arena) {
  int *own;
  if (n == 0 || COPSE_ARRAY(arena, (size_t)n, own, NULL) != COPSE_OK) return NULL;
  for (int i = 0; i < n; i++)
    if ((own[i] = copse_topology_find(t, s->nodes[nodes[i]])) < 0) return NULL;
  return copse_cut_words(t, own, n, reduces, arena);
}

void copse_cli_print_bottleneck(const struct copse_topology *t, const struct copse_schedule *s) {
  COPSE_AT_END(copse_arena_free) struct copse_arena arena = {0};
  const struct copse_bound *bound = &s->bound;
  bool reduces = copse_collective_reduces(s->collective) && s->collective != COPSE_ALLREDUCE;
  if (bound->n_lengths > 0) {
    print_busy_lengths(t, s);
    return;
  }
  if (bound->kind != COPSE_BOUND_FORESTS) {
    const char *words = cut_words(t, s, bound->cut, bound->n_cut, reduces, &arena);
    if (words) printf("%s: %s\n", what_limits(s), words);
    return;
  }
  const struct copse_schedule_cut most = copse_bound_main_cut(bound);
  const char *words =
      cut_words(t, s, most.nodes, most.n_nodes, most.phase == COPSE_PHASE_REDUCE, &arena);
  bool alike = true;
  for (int i = 0; i < bound->n_cuts; i++)
    alike = alike && copse_q_cmp(bound->cuts[i].weight, most.weight) == 0;
  if (words)
    printf("%s: %d cuts, of both phases; %s: %s\n", what_limits(s), bound->n_cuts,
           alike ? "of equal weight, the first" : "of most weight", words);
}

void copse_cli_print_gap(const struct copse_schedule *s, const struct copse_topology *t,
                         double us) {
  const struct copse_bound_at *at = s->bound_at;
  char gap[COPSE_GAP_TEXT];
  double bound = copse_q_to_double(at->us);
  printf("%s above the bound of %.6g us at %" PRId64 " bytes, which any %s takes at least",
         copse_gap_text(us, bound, gap), bound, at->bytes, copse_collective_name(s->collective));
  if (at->kind == COPSE_BOUND_AT_CUT && at->rank >= 0)
    printf(": what must go %s %s\n", at->reversed ? "out of" : "into",
           t->nodes[t->rank_nodes[at->rank]].id);
  else
    printf(": %s\n", at->kind == COPSE_BOUND_AT_LENGTHS ? "how far all bytes must go"
                     : at->kind == COPSE_BOUND_AT_CUT   ? "what must cross from part to part"
                                                        : "how many messages there must be");
  if (s->bound.kind == COPSE_BOUND_PHASES || s->bound.kind == COPSE_BOUND_FORESTS)
    printf("%s at least %.6g us, by bandwidth alone\n",
           s->bound.kind == COPSE_BOUND_PHASES
               ? "reduce_scatter and allgather in turn take"
               : "reduce and broadcast forests with common shares take",
           1e-3 * copse_q_to_double(s->bound.time_per_GB) * (double)at->bytes);
}

void copse_cli_set_default_tolerance(const struct copse_topology *topology,
                                     struct copse_solve_options *options) {
  if (options->collective != COPSE_ALLTOALL || topology->n_ranks <= EXACT_ALLTOALL_RANKS) return;
  options->tolerance = (struct copse_q){1, 100};
  options->may_miss = true;
}

/* Verifies what was computed: a schedule that its own verifier refuses must never reach a file. */
static copse_status self_check(const struct copse_schedule *schedule,
                               const struct copse_topology *topology, struct copse_err *err) {
  struct copse_verify_report report;
  struct copse_err why = COPSE_ERR_INIT;
  return copse_cli_own(copse_verify_schedule(schedule, topology, "schedule", &report, &why),
                       "the computed schedule fails verification", &why, err);
}

/* Notes trees that are farther from their bound than the tolerance that was asked for: repaired
 * ones may be. */
static void note_missed(const struct copse_solve_options *options, const struct copse_schedule *s) {
  const double percent = copse_cli_gap_percent(s->time_per_GB, s->bound.time_per_GB),
               asked = 100 * copse_q_to_double(options->tolerance);
  if (s->n_trees > 0 && percent > asked + 1e-9)
    copse_note(options->notes,
               "--tolerance %g%%: no such trees were found; these take %.3g %% more than the bound",
               asked, percent);
}

copse_status copse_cli_solve_checked(const struct copse_topology *topology,
                                     const struct copse_solve_options *options, bool has_tolerance,
                                     struct copse_schedule **out,
                                     struct copse_solve_seconds *seconds, double *verify_seconds,
                                     struct copse_err *err) {
  struct copse_solve_options chosen = *options;
  *out = NULL;
  if (!has_tolerance) copse_cli_set_default_tolerance(topology, &chosen);
  COPSE_DO(copse_solve_schedule(topology, &chosen, out, seconds, err));
  double mark = copse_clock_seconds();
  copse_status status = chosen.bound_only ? COPSE_OK : self_check(*out, topology, err);
  if (verify_seconds) *verify_seconds = copse_clock_seconds() - mark;
  if (status == COPSE_OK && has_tolerance && !chosen.bound_only) note_missed(options, *out);
  if (status == COPSE_OK) return COPSE_OK;
  copse_schedule_free(*out);
  *out = NULL;
  return status;
}

copse_status copse_cli_solve_bound(const struct copse_topology *topology,
                                   copse_collective collective, int root, const char *label,
                                   struct copse_schedule **out, struct copse_err *err) {
  COPSE_AT_END(copse_topology_free_at) struct copse_topology *plain = NULL;
  const struct copse_solve_options options = {.collective = collective,
                                              .root = root,
                                              .bound_only = true,
                                              .label = label,
                                              .notes = &copse_cli_notes};
  struct copse_solve_seconds seconds;
  COPSE_DO(copse_topology_unmark(topology, &plain, err));
  return copse_cli_solve_checked(plain, &options, false, out, &seconds, NULL, err);
}

#define MANY_BYTES 250000000 /* the size of a file is announced from here on */
/* Bytes of what stands around the ids of an edge or a path, and of a tree or a flow, at most. */
enum { EDGE_BYTES = 96, TREE_BYTES = 256 };

/* Whether a schedule's JSON takes at most MANY_BYTES for sure, by its ids and edges. Printing it to
 * measure it takes as long as writing it: a quarter of solving 1,024 GPUs. */
static bool is_short(const struct copse_schedule *s) {
  size_t id = 0; /* bytes of an id with quotes and a comma, at most */
  double ids = (4.0 + s->n_rotations + s->bound.n_cuts) * s->n_nodes + 2.0 * s->bound.n_lengths;
  double items = (double)s->n_trees + s->n_flows + s->bound.n_cuts + s->bound.n_potentials +
                 s->bound.n_lengths + s->n_rotations + 16;
  double edges = 0;
  if (s->routes || s->demand || s->bound_at || s->n_changes > 0) return false;
  for (int v = 0; v < s->n_nodes; v++) {
    size_t n = 3;
    for (const char *at = s->nodes[v]; *at; at++)
      n += (unsigned char)*at < 0x20 ? 6 : *at == '"' || *at == '\\' ? 2 : 1;
    if (n > id) id = n;
  }
  for (int t = 0; t < s->n_trees; t++) {
    edges += s->trees[t].n_edges;
    for (int e = 0; e < s->trees[t].n_edges; e++) ids += s->trees[t].edges[e].n_path;
  }
  for (int f = 0; f < s->n_flows; f++) {
    edges += s->flows[f].n_paths;
    for (int i = 0; i < s->flows[f].n_paths; i++) ids += s->flows[f].paths[i].n_nodes;
  }
  return ids * (double)id + edges * EDGE_BYTES + items * TREE_BYTES <= MANY_BYTES;
}

/* A schedule, and where the bytes that its text takes are added up. */
struct counted {
  const struct copse_schedule *schedule;
  struct copse_text *to;
  size_t *size;
};

static bool pass_on(void *to, const char *data, size_t size) {
  const struct counted *counted = to;
  *counted->size += size;
  copse_text_append(counted->to, data, size);
  return !counted->to->failed;
}

static void print_counted(const void *thing, struct copse_text *to) {
  struct counted counted = *(const struct counted *)thing;
  COPSE_AT_END(copse_text_free) struct copse_text text = {.pass = pass_on, .to = &counted};
  counted.to = to;
  *counted.size = 0;
  copse_schedule_print(counted.schedule, &text);
  copse_text_end(&text);
  if (text.failed) to->failed = true;
}

copse_status copse_cli_announce(const char *path, size_t size, const char *instead,
                                struct copse_err *err) {
  const bool readable = size <= COPSE_FILE_MAX_BYTES;
  const double gigabytes = (double)size / 1e9;
  if (instead && !readable)
    return copse_fail(err, COPSE_NOMEM, "%s: would have %.1f GB, more than copse reads (1 GiB); %s",
                      path, gigabytes, instead);
  if (size <= MANY_BYTES) return COPSE_OK;
  copse_cli_progress_end();
  fprintf(stderr, "copse: note: %s: %.2f GB are written%s%s\n", path, gigabytes,
          strstr(path, ".gz") ? " before they are packed" : "; as FILE.gz a sixth or less",
          readable ? "" : "; more than copse reads (1 GiB)");
  return COPSE_OK;
}

copse_status copse_cli_write_schedule(const char *path, const struct copse_schedule *schedule,
                                      const char *instead, size_t *size,
                                      struct copse_err *err) {
  const struct counted counted = {.schedule = schedule, .size = size};
  *size = is_short(schedule) ? 0 : copse_text_measure(copse_schedule_print, schedule);
  COPSE_DO(copse_cli_announce(path, *size, instead, err));
  if (copse_cli_is_stdout(path)) copse_cli_progress_end();
  return copse_file_print(path, print_counted, &counted, err);
}
