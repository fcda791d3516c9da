#include "schedule/solve.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/collective.h"
#include "schedule/instance.h"
#include "schedule/loads.h"
#include "schedule/solve_shares.h"
#include "schedule/solve_symmetry.h"
#include "schedule/solve_switches.h"
#include "solver/cuts.h"
#include "solver/forest.h"

/* One phase as solved: a broadcast forest, on the reversed graph for a reduce phase. */
struct phase {
  struct copse_instance instance;
  struct copse_forest forest;
  bool used;
};

struct build {
  const struct copse_topology *topology;
  const struct copse_solve_options *options;
  struct copse_schedule *schedule;
  struct phase broadcast, reduce;
  struct copse_solve_symmetry symmetry; /* none for one root */
  bool templates;                       /* trees of base roots are made, */
  bool compact;                         /* and all that is listed in the end */
  struct copse_solve_options chosen;    /* options with the k that a tolerance leads to */
  bool mirrored;                        /* the reduce phase is the broadcast phase turned around */
};

static void free_phases(struct build *b) {
  copse_forest_free(&b->broadcast.forest);
  copse_forest_free(&b->reduce.forest);
  copse_instance_free(&b->broadcast.instance);
  copse_instance_free(&b->reduce.instance);
  b->broadcast = b->reduce = (struct phase){0};
}

static copse_status refuse_unreached(const struct build *b, const struct phase *phase,
                                     bool reversed, struct copse_err *err) {
  const struct copse_topology *topology = b->topology;
  const struct copse_optimum *optimum = &phase->forest.optimum;
  int from = -1, to = topology->nodes[optimum->unreached].rank;
  for (int i = 0; i < phase->instance.network.n_roots && from < 0; i++) {
    int node = phase->instance.network.roots[i].node;
    if (optimum->in_cut[node]) from = topology->nodes[node].rank;
  }
  if (reversed) {
    int t = from;
    from = to;
    to = t;
  }
  return copse_fail_at(err, COPSE_INFEASIBLE, b->options->label, 0,
                       "rank %d (%s) can't be reached from rank %d (%s)", to,
                       topology->nodes[topology->rank_nodes[to]].id, from,
                       topology->nodes[topology->rank_nodes[from]].id);
}

static copse_status solve_phase(struct build *b, bool reversed, struct phase *phase,
                                struct copse_solve_seconds *seconds, struct copse_err *err) {
  const struct copse_solve_options *o = b->options;
  struct copse_forest_options options = {.k = o->k,
                                         .bound_only = o->bound_only,
                                         .progress = o->progress,
                                         .symmetry = b->templates ? &b->symmetry.network : NULL,
                                         .multiple = b->compact};
  copse_status status;
  phase->used = true;
  COPSE_TRY(copse_instance_make(b->topology, o->label, o->root, reversed, &phase->instance, err));
  phase->instance.network.sinks = b->symmetry.sinks;
  phase->instance.network.n_sinks = b->symmetry.n_sinks;
  COPSE_TRY(copse_forest_solve(&phase->instance.network, &options, &phase->forest, err));
  seconds->optimum += phase->forest.seconds_optimum;
  seconds->split += phase->forest.seconds_split;
  seconds->pack += phase->forest.seconds_pack;
  if (phase->forest.optimum.x.num == 0 && b->topology->n_ranks > 1)
    status = refuse_unreached(b, phase, reversed, err);
out:
  return status;
}

/* T/M at the optimum: 1 / (W x), with x in units of the instance's scale. */
static copse_status phase_time(const struct phase *phase, struct copse_q *time,
                               struct copse_err *err) {
  struct copse_q x = phase->forest.optimum.x, scale, total;
  copse_status status;
  *time = COPSE_Q_ZERO;
  if (x.num == 0) return COPSE_OK; /* a single rank */
  COPSE_TRY(copse_q_make(phase->instance.scale, 1, &scale, err));
  COPSE_TRY(copse_q_make(phase->instance.network.n_roots, 1, &total, err));
  COPSE_TRY(copse_q_mul(x, total, &total, err));
  COPSE_TRY(copse_q_div(scale, total, time, err));
out:
  return status;
}

static void *take(struct copse_schedule *schedule, int n, size_t size) {
  return copse_arena_alloc(&schedule->arena, n > 0 ? (size_t)n : 1, size);
}

static copse_status copy_cut(struct build *b, const struct phase *phase, const int **cut, int *n,
                             struct copse_err *err) {
  int *nodes = take(b->schedule, b->topology->n_nodes, sizeof *nodes);
  if (!nodes) return copse_fail_nomem(err);
  *n = 0;
  for (int i = 0; i < b->topology->n_nodes; i++)
    if (phase->forest.optimum.in_cut[i]) nodes[(*n)++] = i;
  *cut = nodes;
  return COPSE_OK;
}

/* A forest edge as a schedule edge; turned around for a reduce phase. */
static copse_status convert_edge(struct build *b, const struct copse_forest_edge *from, bool turn,
                                 struct copse_schedule_edge *to, struct copse_err *err) {
  const struct copse_node *nodes = b->topology->nodes;
  int *path = take(b->schedule, from->n_path, sizeof *path);
  if (!path) return copse_fail_nomem(err);
  for (int i = 0; i < from->n_path; i++) path[turn ? from->n_path - 1 - i : i] = from->path[i];
  to->src = nodes[turn ? from->dst : from->src].rank;
  to->dst = nodes[turn ? from->src : from->dst].rank;
  to->path = path;
  to->n_path = from->n_path;
  return COPSE_OK;
}

static copse_status convert_tree(struct build *b, const struct phase *phase,
                                 const struct copse_forest_tree *from, bool turn,
                                 struct copse_schedule_tree *to, struct copse_err *err) {
  int n = b->topology->n_ranks - 1;
  copse_status status;
  int64_t whole = 0;
  struct copse_schedule_edge *edges = take(b->schedule, n, sizeof *edges);
  if (!edges) return copse_fail_nomem(err);
  for (int i = 0; i < n; i++)
    COPSE_TRY(convert_edge(b, &from->edges[i], turn, &edges[turn ? n - 1 - i : i], err));
  for (int i = 0; i < phase->instance.network.n_roots; i++)
    whole += phase->instance.network.roots[i].weight; /* the solver's sums fit */
  if (copse_mul_overflows(phase->forest.k, whole, &whole))
    return copse_fail(err, COPSE_OVERFLOW, "the number of trees needs more than 63 bits");
  COPSE_TRY(copse_q_make(from->multiplicity, whole, &to->weight, err));
  to->root = b->topology->nodes[from->root].rank;
  to->phase = turn ? COPSE_PHASE_REDUCE : COPSE_PHASE_BROADCAST;
  to->n_edges = n;
  to->edges = edges;
out:
  return status;
}

static copse_status convert_trees(struct build *b, struct copse_err *err) {
  const struct phase *reduce = b->mirrored ? &b->broadcast : &b->reduce;
  bool reduces = copse_collective_reduces(b->options->collective);
  bool broadcasts = copse_collective_broadcasts(b->options->collective);
  int n_reduce = reduces ? reduce->forest.n_trees : 0;
  int n_broadcast = broadcasts ? b->broadcast.forest.n_trees : 0;
  copse_status status = COPSE_OK;
  struct copse_schedule_tree *trees = take(b->schedule, n_reduce + n_broadcast, sizeof *trees);
  if (!trees) return copse_fail_nomem(err);
  for (int i = 0; i < n_reduce; i++)
    COPSE_TRY(convert_tree(b, reduce, &reduce->forest.trees[i], true, &trees[i], err));
  for (int i = 0; i < n_broadcast; i++)
    COPSE_TRY(convert_tree(b, &b->broadcast, &b->broadcast.forest.trees[i], false,
                           &trees[n_reduce + i], err));
  b->schedule->trees = trees;
  b->schedule->n_trees = n_reduce + n_broadcast;
out:
  return status;
}

/* Any allreduce: M must leave every set that separates ranks; the narrowest one. */
static copse_status bound_by_narrowest_cut(struct build *b, struct copse_err *err) {
  struct copse_bound *bound = &b->schedule->bound;
  struct copse_solve_seconds ignored = {0};
  struct copse_solve_options options = *b->options;
  struct build narrow = {.topology = b->topology, .options = &options, .schedule = b->schedule};
  struct copse_q out_of, into;
  copse_status status;
  options.root = 0;
  options.bound_only = true;
  COPSE_TRY(solve_phase(&narrow, false, &narrow.broadcast, &ignored, err));
  COPSE_TRY(solve_phase(&narrow, true, &narrow.reduce, &ignored, err));
  COPSE_TRY(phase_time(&narrow.broadcast, &out_of, err));
  COPSE_TRY(phase_time(&narrow.reduce, &into, err));
  bound->kind = COPSE_BOUND_CUT;
  if (copse_q_cmp(out_of, into) >= 0) {
    bound->time_per_GB = out_of;
    COPSE_TRY(copy_cut(&narrow, &narrow.broadcast, &bound->cut, &bound->n_cut, err));
  } else { /* what must enter S leaves the rest: turn S around */
    bound->time_per_GB = into;
    for (int i = 0; i < b->topology->n_nodes; i++)
      narrow.reduce.forest.optimum.in_cut[i] = !narrow.reduce.forest.optimum.in_cut[i];
    COPSE_TRY(copy_cut(&narrow, &narrow.reduce, &bound->cut, &bound->n_cut, err));
  }
out:
  free_phases(&narrow);
  return status;
}

/* The optimum and its certificate; an allreduce adds up its phases. */
static copse_status set_bound(struct build *b, struct copse_err *err) {
  struct copse_bound *bound = &b->schedule->bound;
  const struct phase *reduce = b->mirrored ? &b->broadcast : &b->reduce;
  copse_status status;
  struct copse_q time;
  if (b->options->collective != COPSE_ALLREDUCE) {
    const struct phase *only = b->broadcast.used ? &b->broadcast : &b->reduce;
    COPSE_TRY(phase_time(only, &bound->time_per_GB, err));
    COPSE_TRY(copy_cut(b, only, &bound->cut, &bound->n_cut, err));
    return COPSE_OK;
  }
  bound->kind = COPSE_BOUND_PHASES;
  COPSE_TRY(phase_time(&b->broadcast, &bound->time_per_GB, err));
  COPSE_TRY(phase_time(reduce, &time, err));
  COPSE_TRY(copse_q_add(bound->time_per_GB, time, &bound->time_per_GB, err));
  COPSE_TRY(copy_cut(b, &b->broadcast, &bound->cut, &bound->n_cut, err));
  COPSE_TRY(copy_cut(b, reduce, &bound->reduce_cut, &bound->n_reduce_cut, err));
out:
  return status;
}

static copse_status describe(struct build *b, struct copse_err *err) {
  struct copse_schedule *schedule = b->schedule;
  const struct copse_topology *topology = b->topology;
  char sha256[COPSE_SHA256_HEX];
  const char **ids = take(schedule, topology->n_nodes, sizeof *ids);
  int *ranks = take(schedule, topology->n_ranks, sizeof *ranks);
  copse_status status = copse_topology_sha256(topology, sha256, err);
  if (status != COPSE_OK) return status;
  schedule->collective = b->options->collective;
  schedule->root = b->options->root;
  schedule->topology_name = copse_arena_strdup(&schedule->arena, topology->name);
  schedule->topology_sha256 = copse_arena_strdup(&schedule->arena, sha256);
  if (!ids || !ranks || !schedule->topology_name || !schedule->topology_sha256)
    return copse_fail_nomem(err);
  for (int i = 0; i < topology->n_nodes; i++)
    if (!(ids[i] = copse_arena_strdup(&schedule->arena, topology->nodes[i].id)))
      return copse_fail_nomem(err);
  memcpy(ranks, topology->rank_nodes, (size_t)topology->n_ranks * sizeof *ranks);
  schedule->nodes = ids;
  schedule->n_nodes = topology->n_nodes;
  schedule->rank_nodes = ranks;
  schedule->n_ranks = topology->n_ranks;
  schedule->others_excluded = topology->others_excluded;
  return COPSE_OK;
}

/* More trees than this per root are as good as the exact number, and slow to try. */
#define MAX_TRIED_K 4096

/* The smallest k whose best schedule is within the tolerance; 0 (exact) if none is. */
static copse_status smallest_k(const struct build *b, bool reversed, int64_t *k,
                               struct copse_err *err) {
  const struct copse_solve_options *o = b->options;
  struct copse_instance instance = {0};
  struct copse_optimum optimum = {.x = COPSE_Q_ZERO};
  struct copse_scale exact;
  struct copse_q limit, loss, u, inverse;
  int64_t *capacities = NULL;
  copse_status status;
  *k = 0;
  COPSE_TRY(copse_instance_make(b->topology, o->label, o->root, reversed, &instance, err));
  COPSE_TRY(copse_calloc((size_t)b->topology->n_links, sizeof *capacities, &capacities, err));
  COPSE_TRY(copse_optimum_find(&instance.network, o->progress, &optimum, err));
  if (optimum.x.num == 0) goto out; /* the phase itself says who can't be reached */
  COPSE_TRY(copse_optimum_scale(&instance.network, optimum.x, &exact, err));
  COPSE_TRY(copse_q_add(COPSE_Q_ONE, o->tolerance, &limit, err));
  for (int64_t tried = 1; tried < exact.k && tried <= MAX_TRIED_K && *k == 0; tried++) {
    COPSE_TRY(copse_optimum_fixed_k(&instance.network, optimum.x, tried, &u, capacities, err));
    COPSE_TRY(copse_q_make(1, tried, &inverse, err));
    COPSE_TRY(copse_q_mul(u, optimum.x, &loss, err)); /* time over the optimum: U x / k */
    COPSE_TRY(copse_q_mul(loss, inverse, &loss, err));
    if (copse_q_cmp(loss, limit) <= 0) *k = tried;
    copse_progress_report(o->progress, "k", tried, exact.k);
  }
out:
  free(capacities);
  copse_optimum_free(&optimum);
  copse_instance_free(&instance);
  return status;
}

static bool all_templates(const struct build *b) {
  return (!b->broadcast.used || b->broadcast.forest.is_template) &&
         (!b->reduce.used || b->reduce.forest.is_template);
}

/* Listed trees of so many ranks don't fit any memory: better said than tried. */
static copse_status check_listed(const struct build *b, struct copse_err *err) {
  if (b->compact || b->options->bound_only || b->options->root >= 0 ||
      b->topology->n_ranks <= COPSE_LISTED_RANKS)
    return COPSE_OK;
  return copse_fail(err, COPSE_NOMEM,
                    "no symmetric trees are known for these %d ranks, and more than %d are not "
                    "listed one by one; --bound-only has the optimum and its proof",
                    b->topology->n_ranks, COPSE_LISTED_RANKS);
}

static copse_status solve_used_phases(struct build *b, struct copse_solve_seconds *seconds,
                                      struct copse_err *err) {
  copse_collective collective = b->options->collective;
  bool reduces = copse_collective_reduces(collective);
  copse_status status;
  COPSE_TRY(check_listed(b, err));
  if (copse_collective_broadcasts(collective) || b->mirrored)
    COPSE_TRY(solve_phase(b, false, &b->broadcast, seconds, err));
  if (reduces && !b->mirrored) COPSE_TRY(solve_phase(b, true, &b->reduce, seconds, err));
out:
  return status;
}

static copse_status solve_phases(struct build *b, struct copse_solve_seconds *seconds,
                                 struct copse_err *err) {
  copse_collective collective = b->options->collective;
  copse_status status = COPSE_OK;
  bool reduces = copse_collective_reduces(collective);
  b->mirrored = reduces && copse_instance_is_symmetric(b->topology);
  if (b->options->tolerance.num > 0 && b->options->k == 0 && !b->options->bound_only) {
    bool reversed = !copse_collective_broadcasts(collective) && !b->mirrored;
    b->chosen = *b->options;
    COPSE_TRY(smallest_k(b, reversed, &b->chosen.k, err));
    b->options = &b->chosen;
  }
  double start = copse_clock_seconds();
  if (!b->options->no_symmetry && b->options->root < 0)
    COPSE_TRY(copse_solve_symmetry_find(b->topology, &b->symmetry, err));
  seconds->orbits = b->symmetry.n_sinks;
  seconds->optimum += copse_clock_seconds() - start;
  b->templates = b->symmetry.found.n > 0 && !b->options->bound_only && !b->options->in_network &&
                 (b->options->compact || b->topology->n_ranks >= copse_trust_from);
  b->compact = b->templates && (b->options->compact || b->topology->n_ranks > COPSE_LISTED_RANKS);
  COPSE_TRY(solve_used_phases(b, seconds, err));
  if (b->templates && !all_templates(b)) { /* all phases have base roots, or none has */
    b->templates = b->compact = false;
    free_phases(b);
    COPSE_TRY(solve_used_phases(b, seconds, err));
  }
  const struct phase *any = b->broadcast.used ? &b->broadcast : &b->reduce;
  b->schedule->k = any->forest.k;
out:
  return status;
}

static copse_status check_options(const struct copse_topology *topology,
                                  const struct copse_solve_options *options,
                                  struct copse_err *err) {
  const char *name = copse_collective_name(options->collective);
  if (options->collective == COPSE_ALLTOALL && options->k > 0)
    return copse_fail(err, COPSE_INVALID, "an alltoall has flows, not k trees");
  if (options->collective != COPSE_ALLTOALL && (options->demand || options->no_forward))
    return copse_fail(err, COPSE_INVALID, "a demand or no-forward is for alltoall");
  if (copse_collective_rooted(options->collective)) {
    if (options->root < 0 || options->root >= topology->n_ranks)
      return copse_fail(err, COPSE_INVALID, "%s needs a root from 0 to %d", name,
                        topology->n_ranks - 1);
  } else if (options->root >= 0) {
    return copse_fail(err, COPSE_INVALID, "%s has no root", name);
  }
  if (options->k < 0 || options->k > (1 << 20))
    return copse_fail(err, COPSE_INVALID, "k must be from 1 to %d", 1 << 20);
  return COPSE_OK;
}

static copse_status pack_part(struct build *b, bool reduce, const struct copse_instance *instance,
                              const struct copse_solve_part *part, struct phase *phase,
                              struct copse_solve_seconds *seconds, struct copse_err *err) {
  const int64_t *capacities = reduce ? part->reduce : part->broadcast;
  struct copse_forest_options options = {.as_given = true, .progress = b->options->progress};
  copse_status status = COPSE_OK;
  if (!capacities) return COPSE_OK;
  phase->used = true;
  COPSE_TRY(copse_free_shares_instance(instance, part->weights, capacities, reduce,
                                       &phase->instance, err));
  COPSE_TRY(copse_forest_solve(&phase->instance.network, &options, &phase->forest, err));
  seconds->split += phase->forest.seconds_split;
  seconds->pack += phase->forest.seconds_pack;
out:
  return status;
}

/* Trees with given shares within a given part of the links, in the place of any others. */
static copse_status take_part(struct build *b, const struct copse_instance *instance,
                              const struct copse_solve_part *part,
                              struct copse_solve_seconds *seconds, struct copse_err *err) {
  struct build given = {.topology = b->topology, .options = b->options, .schedule = b->schedule};
  struct copse_schedule *schedule = b->schedule;
  copse_status status;
  COPSE_TRY(pack_part(b, false, instance, part, &given.broadcast, seconds, err));
  COPSE_TRY(pack_part(b, true, instance, part, &given.reduce, seconds, err));
  COPSE_TRY(convert_trees(&given, err));
  schedule->n_rotations = 0; /* roots of one orbit may have unequal shares */
  COPSE_TRY(copse_tree_time(b->topology, schedule->trees, (size_t)schedule->n_trees,
                            &schedule->time_per_GB, err));
  /* the smallest k for which 1/(N k) is a unit of all weights */
  schedule->k = part->whole;
  if (!copse_collective_rooted(schedule->collective))
    schedule->k /= copse_gcd(part->whole, schedule->n_ranks);
out:
  free_phases(&given);
  return status;
}

/*
 * Unequal shares where they are faster. Also where they are not, but today's bound leaves open
 * whether anything is: then only the bound changes. Where switches are marked the programme, which
 * counts every copy, has trees but no bound.
 */
static copse_status try_free_shares(struct build *b, struct copse_solve_seconds *seconds,
                                    struct copse_err *err) {
  struct copse_schedule *schedule = b->schedule;
  struct copse_shares shares = {0};
  struct copse_bound forests;
  struct copse_q time;
  copse_status status;
  double start = copse_clock_seconds();
  bool open = copse_q_cmp(schedule->bound.time_per_GB, schedule->time_per_GB) < 0;
  bool marked = copse_has_clever_switch(b->topology);
  if (schedule->bound.kind == COPSE_BOUND_CUT && !open) return COPSE_OK;
  if (marked && (b->options->in_network || b->options->bound_only)) return COPSE_OK;
  COPSE_TRY(copse_free_shares_find(b->topology, b->options, &b->broadcast.instance,
                                   schedule->time_per_GB, marked || !open, &shares, &time, err));
  seconds->optimum += copse_clock_seconds() - start;
  if (shares.outcome != COPSE_SHARES_PROVED) goto out;
  int order = copse_q_cmp(time, schedule->time_per_GB);
  if (order < 0 && !b->options->bound_only && b->topology->n_ranks > COPSE_FREE_SHARES_RANKS) {
    copse_free_shares_note(b->options, time);
    goto out;
  }
  if (order < 0 && b->options->bound_only) schedule->time_per_GB = time;
  if (order < 0 && !b->options->bound_only) {
    struct copse_solve_part part = {shares.whole, shares.weights, shares.broadcast, shares.reduce,
                                    NULL};
    COPSE_TRY(take_part(b, &b->broadcast.instance, &part, seconds, err));
  }
  if (marked) {
    if (order < 0) COPSE_TRY(bound_by_narrowest_cut(b, err));
    goto out;
  }
  COPSE_TRY(copse_free_shares_bound(b->topology, &shares, time, schedule, err));
  forests = schedule->bound;
  COPSE_TRY(bound_by_narrowest_cut(b, err)); /* one that holds for any allreduce says more */
  if (copse_q_cmp(schedule->bound.time_per_GB, time) < 0) {
    forests.cut = schedule->bound.cut;
    forests.n_cut = schedule->bound.n_cut;
    schedule->bound = forests;
  }
out:
  copse_shares_free(&shares);
  return status;
}

/* One copy into switches that copy, one out of those that add, where that is faster. The bound is
 * one that holds for any allreduce, or for any trees; if neither is reached without such switches,
 * what was said before stands. */
static copse_status try_switches(struct build *b, struct copse_solve_seconds *seconds,
                                 struct copse_err *err) {
  struct copse_schedule *schedule = b->schedule;
  struct copse_bound before = schedule->bound;
  bool faster = false;
  copse_status status;
  COPSE_TRY(bound_by_narrowest_cut(b, err));
  bool open = copse_q_cmp(schedule->bound.time_per_GB, schedule->time_per_GB) < 0;
  if (open)
    COPSE_TRY(copse_bound_with_switches(b->topology, b->options, &b->broadcast.instance, schedule,
                                        seconds, err));
  if (open && copse_q_cmp(schedule->bound.time_per_GB, schedule->time_per_GB) < 0)
    COPSE_TRY(copse_solve_with_switches(b->topology, b->options, &b->broadcast.instance,
                                        schedule->time_per_GB, schedule, seconds, &faster, err));
  if (!faster && copse_q_cmp(schedule->bound.time_per_GB, schedule->time_per_GB) < 0)
    schedule->bound = before;
out:
  return status;
}

/* Which switches the trees' time counts on, if any. */
static copse_status list_switches(struct build *b, struct copse_err *err) {
  struct copse_schedule *s = b->schedule;
  int *copying = take(s, b->topology->n_nodes, sizeof *copying);
  int *adding = take(s, b->topology->n_nodes, sizeof *adding);
  bool *copies = NULL, *adds = NULL, counts;
  copse_status status;
  if (!copying || !adding) return copse_fail_nomem(err);
  COPSE_TRY(copse_calloc((size_t)b->topology->n_nodes, sizeof *copies, &copies, err));
  COPSE_TRY(copse_calloc((size_t)b->topology->n_nodes, sizeof *adds, &adds, err));
  COPSE_TRY(copse_tree_switches(b->topology, s->trees, (size_t)s->n_trees, s->time_per_GB, copies,
                                adds, &counts, err));
  for (int v = 0; v < b->topology->n_nodes && counts; v++) {
    if (copies[v]) copying[s->n_copying++] = v;
    if (adds[v]) adding[s->n_adding++] = v;
  }
  s->copying = copying;
  s->adding = adding;
out:
  free(copies);
  free(adds);
  return status;
}

/* Trees, their time, and the bound that belongs to it. */
static copse_status fill(struct build *b, struct copse_solve_seconds *seconds,
                         struct copse_err *err) {
  const struct copse_solve_options *o = b->options;
  struct copse_schedule *schedule = b->schedule;
  bool exact = o->collective == COPSE_ALLREDUCE && o->k == 0 && o->tolerance.num == 0;
  bool may_differ = exact && !o->equal_shares && !o->compact;
  copse_status status;
  COPSE_TRY(set_bound(b, err));
  schedule->time_per_GB = schedule->bound.time_per_GB;
  if (o->bound_only) {
    if (may_differ) COPSE_TRY(try_free_shares(b, seconds, err));
    if (exact && o->in_network) COPSE_TRY(try_switches(b, seconds, err));
    return COPSE_OK;
  }
  COPSE_TRY(convert_trees(b, err));
  if (b->templates)
    COPSE_TRY(copse_solve_symmetry_set(b->topology, &b->symmetry, schedule, err));
  else
    COPSE_TRY(copse_tree_time(b->topology, schedule->trees, (size_t)schedule->n_trees,
                              &schedule->time_per_GB, err));
  /* The phases of an allreduce may load different links: then together they are faster
   * than one after the other, and only a bound for any allreduce is one. */
  if (copse_q_cmp(schedule->time_per_GB, schedule->bound.time_per_GB) < 0)
    COPSE_TRY(bound_by_narrowest_cut(b, err));
  if (may_differ) COPSE_TRY(try_free_shares(b, seconds, err));
  if (exact && o->in_network) COPSE_TRY(try_switches(b, seconds, err));
  if (o->in_network) COPSE_TRY(list_switches(b, err));
  if (!b->compact) COPSE_TRY(copse_schedule_expand(schedule, err));
out:
  return status;
}

static bool may_miss_tolerance(const struct copse_solve_options *o) {
  return o->collective == COPSE_ALLREDUCE && o->tolerance.num > 0 && o->k == 0 &&
         !o->equal_shares && !o->compact && !o->bound_only;
}

/* A tolerance chooses among equal shares. Where unequal ones are so much faster that those are
 * outside it, the exact schedule takes their place. */
static copse_status meet_tolerance(const struct copse_topology *topology,
                                   const struct copse_solve_options *options,
                                   struct copse_schedule **schedule, struct copse_err *err) {
  struct copse_solve_options exact = *options;
  struct copse_schedule *best = NULL;
  struct copse_solve_seconds ignored;
  struct copse_q limit;
  copse_status status;
  exact.tolerance = COPSE_Q_ZERO;
  exact.bound_only = !copse_has_clever_switch(topology); /* which has no bound by unequal shares */
  COPSE_TRY(copse_solve_schedule(topology, &exact, &best, &ignored, err));
  COPSE_TRY(copse_q_add(COPSE_Q_ONE, options->tolerance, &limit, err));
  COPSE_TRY(copse_q_mul(limit, best->time_per_GB, &limit, err));
  if (copse_q_cmp((*schedule)->time_per_GB, limit) <= 0) goto out;
  if (exact.bound_only) {
    copse_schedule_release(best);
    best = NULL;
    exact.bound_only = false;
    COPSE_TRY(copse_solve_schedule(topology, &exact, &best, &ignored, err));
  }
  struct copse_schedule *few = *schedule;
  *schedule = best;
  best = few;
out:
  copse_schedule_release(best);
  return status;
}

copse_status copse_solve_schedule(const struct copse_topology *topology,
                                  const struct copse_solve_options *options,
                                  struct copse_schedule **out, struct copse_solve_seconds *seconds,
                                  struct copse_err *err) {
  struct build b = {.topology = topology, .options = options};
  copse_status status;
  *out = NULL;
  *seconds = (struct copse_solve_seconds){0};
  COPSE_TRY(check_options(topology, options, err));
  COPSE_TRY(copse_calloc(1, sizeof *b.schedule, &b.schedule, err));
  COPSE_TRY(describe(&b, err));
  if (options->collective == COPSE_ALLTOALL) {
    COPSE_TRY(copse_solve_alltoall(topology, options, b.schedule, seconds, err));
  } else {
    COPSE_TRY(solve_phases(&b, seconds, err));
    COPSE_TRY(fill(&b, seconds, err));
    if (may_miss_tolerance(options)) COPSE_TRY(meet_tolerance(topology, options, &b.schedule, err));
  }
  *out = b.schedule;
  b.schedule = NULL;
out:
  free_phases(&b);
  copse_solve_symmetry_free(&b.symmetry);
  copse_schedule_release(b.schedule);
  return status;
}

copse_status copse_solve_in_part(const struct copse_topology *topology,
                                 const struct copse_solve_options *options,
                                 const struct copse_solve_part *part, struct copse_schedule **out,
                                 struct copse_solve_seconds *seconds, struct copse_err *err) {
  if (options->collective == COPSE_ALLTOALL)
    return copse_solve_exchange_in_part(topology, options, part, out, seconds, err);
  struct copse_solve_options bound_only = *options;
  struct build b = {.topology = topology, .options = &bound_only};
  struct copse_instance instance = {0};
  copse_status status;
  *out = NULL;
  bound_only.bound_only = true;
  COPSE_TRY(check_options(topology, options, err));
  COPSE_TRY(copse_calloc(1, sizeof *b.schedule, &b.schedule, err));
  COPSE_TRY(describe(&b, err));
  COPSE_TRY(solve_phases(&b, seconds, err));
  COPSE_TRY(set_bound(&b, err));
  if (options->collective == COPSE_ALLREDUCE) COPSE_TRY(bound_by_narrowest_cut(&b, err));
  b.schedule->time_per_GB = b.schedule->bound.time_per_GB;
  if (part) {
    COPSE_TRY(copse_instance_make(topology, options->label, -1, false, &instance, err));
    COPSE_TRY(take_part(&b, &instance, part, seconds, err));
  }
  *out = b.schedule;
  b.schedule = NULL;
out:
  free_phases(&b);
  copse_solve_symmetry_free(&b.symmetry);
  copse_instance_free(&instance);
  copse_schedule_release(b.schedule);
  return status;
}
