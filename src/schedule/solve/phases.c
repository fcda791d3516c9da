/*
 * A schedule of trees while it is being made: what it begins and ends with, each phase as the
 * solver's forest, exactly optimal, the forests as trees of the schedule, the optimum with its
 * certificate, and trees within a given part of the links.
 *
 *   topology -> instance (a network per phase) -> forest -> trees, time | cuts, bound
 *
 * A reduce phase is a broadcast on the network with links turned around.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/types.h"
#include "schedule/loads.h"
#include "schedule/solve/phases.h"
#include "schedule/solve/policy.h"
#include "schedule/solve/shares.h"
#include "solver/policy.h"
#include "solver/trees/optimum.h"

static void free_phases(struct copse_solving *b) {
  copse_forest_free(&b->broadcast.forest);
  copse_forest_free(&b->reduce.forest);
  copse_instance_free(&b->broadcast.instance);
  copse_instance_free(&b->reduce.instance);
  b->broadcast = b->reduce = (struct copse_solved_phase){0};
}

void *copse_solving_take(struct copse_solving *b, int n, size_t size) {
  return copse_arena_alloc(&b->schedule->arena, n > 0 ? (size_t)n : 1, size);
}

/* Of what topology, and whose ranks. */
static copse_status describe(struct copse_solving *b, struct copse_err *err) {
  struct copse_schedule *schedule = b->schedule;
  const struct copse_topology *topology = b->topology;
  char sha256[COPSE_SHA256_HEX];
  const char **ids = copse_solving_take(b, topology->n_nodes, sizeof *ids);
  int *ranks = copse_solving_take(b, topology->n_ranks, sizeof *ranks);
  COPSE_DO(copse_topology_sha256(topology, sha256, err));
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

copse_status copse_solving_start(struct copse_solving *b, struct copse_err *err) {
  COPSE_DO(check_options(b->topology, b->options, err));
  COPSE_DO(copse_calloc(1, sizeof *b->schedule, &b->schedule, err));
  return describe(b, err);
}

struct copse_schedule *copse_solving_finish(struct copse_solving *b) {
  struct copse_schedule *schedule = b->schedule;
  b->schedule = NULL;
  return schedule;
}

void copse_solving_free(struct copse_solving *b) {
  free_phases(b);
  copse_solve_symmetry_free(&b->symmetry);
  copse_schedule_free(b->schedule);
  b->schedule = NULL;
}

static copse_status refuse_unreached(const struct copse_solving *b,
                                     const struct copse_solved_phase *phase, bool reversed,
                                     struct copse_err *err) {
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

/* One of them. `reversed`: links turned around. */
static copse_status solve_phase(struct copse_solving *b, bool reversed,
                                struct copse_solved_phase *phase,
                                struct copse_solve_seconds *seconds, struct copse_err *err) {
  const struct copse_solve_options *o = b->options;
  struct copse_forest_options options = {.k = o->k,
                                         .bound_only = o->bound_only,
                                         .progress = o->progress,
                                         .trust_from = o->trust_from,
                                         .symmetry = b->orbit_trees ? &b->symmetry.network : NULL,
                                         .multiple = b->compact};
  phase->used = true;
  COPSE_DO(copse_instance_make(b->topology, o->label, o->root, reversed, &phase->instance, err));
  phase->instance.network.threads = o->threads;
  phase->instance.network.sinks = b->symmetry.sinks;
  phase->instance.network.n_sinks = b->symmetry.n_sinks;
  COPSE_DO(copse_forest_solve(&phase->instance.network, &options, &phase->forest, err));
  seconds->optimum += phase->forest.seconds_optimum;
  seconds->split += phase->forest.seconds_split;
  seconds->pack += phase->forest.seconds_pack;
  if (phase->forest.optimum.x.num == 0 && b->topology->n_ranks > 1)
    return refuse_unreached(b, phase, reversed, err);
  return COPSE_OK;
}

static bool all_orbit_trees(const struct copse_solving *b) {
  return (!b->broadcast.used || b->broadcast.forest.base_only) &&
         (!b->reduce.used || b->reduce.forest.base_only);
}

/* Listed trees of so many ranks don't fit any memory: better said than tried. */
static copse_status check_listed(const struct copse_solving *b, struct copse_err *err) {
  if (b->compact || b->options->bound_only || b->options->root >= 0 ||
      b->topology->n_ranks <= COPSE_LISTED_RANKS)
    return COPSE_OK;
  return copse_fail(err, COPSE_NOMEM,
                    "no symmetric trees are known for these %d ranks, and more than %d are not "
                    "listed one by one; --bound-only has the optimum and its proof",
                    b->topology->n_ranks, COPSE_LISTED_RANKS);
}

static copse_status solve_used_phases(struct copse_solving *b, struct copse_solve_seconds *seconds,
                                      struct copse_err *err) {
  copse_collective collective = b->options->collective;
  bool reduces = copse_collective_reduces(collective);
  COPSE_DO(check_listed(b, err));
  if (copse_collective_broadcasts(collective) || b->mirrored)
    COPSE_DO(solve_phase(b, false, &b->broadcast, seconds, err));
  if (reduces && !b->mirrored) COPSE_DO(solve_phase(b, true, &b->reduce, seconds, err));
  return COPSE_OK;
}

/* The smallest k whose best phase is within the options' tolerance; 0 (exact) if none is. */
static copse_status smallest_k(const struct copse_solving *b, bool reversed, int64_t *k,
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
  for (int64_t tried = 1; tried < exact.k && tried <= COPSE_TRIED_K && *k == 0; tried++) {
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

copse_status copse_solving_phases(struct copse_solving *b, struct copse_solve_seconds *seconds,
                                  struct copse_err *err) {
  copse_collective collective = b->options->collective;
  bool reduces = copse_collective_reduces(collective);
  b->mirrored = reduces && copse_instance_is_symmetric(b->topology);
  if (b->options->tolerance.num > 0 && b->options->k == 0 && !b->options->bound_only) {
    bool reversed = !copse_collective_broadcasts(collective) && !b->mirrored;
    b->chosen = *b->options;
    COPSE_DO(smallest_k(b, reversed, &b->chosen.k, err));
    b->options = &b->chosen;
  }
  double start = copse_clock_seconds();
  if (!b->options->no_symmetry && b->options->root < 0)
    COPSE_DO(copse_solve_symmetry_find(b->topology, &b->symmetry, err));
  seconds->orbits = b->symmetry.n_sinks;
  seconds->optimum += copse_clock_seconds() - start;
  b->orbit_trees =
      b->symmetry.found.n > 0 && !b->options->bound_only && !b->options->in_network &&
      (b->options->compact || b->topology->n_ranks >= copse_trust_from(b->options->trust_from));
  b->compact = b->orbit_trees && (b->options->compact || b->topology->n_ranks > COPSE_LISTED_RANKS);
  COPSE_DO(solve_used_phases(b, seconds, err));
  if (b->orbit_trees && !all_orbit_trees(b)) { /* all phases have base roots, or none has */
    b->orbit_trees = b->compact = false;
    free_phases(b);
    COPSE_DO(solve_used_phases(b, seconds, err));
  }
  const struct copse_solved_phase *any = b->broadcast.used ? &b->broadcast : &b->reduce;
  b->schedule->k = any->forest.k;
  return COPSE_OK;
}

/* A forest edge as a schedule edge; turned around for a reduce phase. */
static copse_status convert_edge(struct copse_solving *b, const struct copse_forest_edge *from,
                                 bool turn, struct copse_schedule_edge *to, struct copse_err *err) {
  const struct copse_node *nodes = b->topology->nodes;
  int *path = copse_solving_take(b, from->n_path, sizeof *path);
  if (!path) return copse_fail_nomem(err);
  for (int i = 0; i < from->n_path; i++) path[turn ? from->n_path - 1 - i : i] = from->path[i];
  to->src = nodes[turn ? from->dst : from->src].rank;
  to->dst = nodes[turn ? from->src : from->dst].rank;
  to->path = path;
  to->n_path = from->n_path;
  return COPSE_OK;
}

static copse_status convert_tree(struct copse_solving *b, const struct copse_solved_phase *phase,
                                 const struct copse_forest_tree *from, bool turn,
                                 struct copse_schedule_tree *to, struct copse_err *err) {
  int n = b->topology->n_ranks - 1;
  int64_t whole = 0;
  struct copse_schedule_edge *edges = copse_solving_take(b, n, sizeof *edges);
  if (!edges) return copse_fail_nomem(err);
  for (int i = 0; i < n; i++)
    COPSE_DO(convert_edge(b, &from->edges[i], turn, &edges[turn ? n - 1 - i : i], err));
  for (int i = 0; i < phase->instance.network.n_roots; i++)
    whole += phase->instance.network.roots[i].weight; /* the solver's sums fit */
  if (copse_mul_overflows(phase->forest.k, whole, &whole))
    return copse_fail(err, COPSE_OVERFLOW, "the number of trees needs more than 63 bits");
  COPSE_DO(copse_q_make(from->multiplicity, whole, &to->weight, err));
  to->root = b->topology->nodes[from->root].rank;
  to->phase = turn ? COPSE_PHASE_REDUCE : COPSE_PHASE_BROADCAST;
  to->n_edges = n;
  to->edges = edges;
  return COPSE_OK;
}

copse_status copse_solving_trees(struct copse_solving *b, struct copse_err *err) {
  const struct copse_solved_phase *reduce = b->mirrored ? &b->broadcast : &b->reduce;
  bool reduces = copse_collective_reduces(b->options->collective);
  bool broadcasts = copse_collective_broadcasts(b->options->collective);
  int n_reduce = reduces ? reduce->forest.n_trees : 0;
  int n_broadcast = broadcasts ? b->broadcast.forest.n_trees : 0;
  struct copse_schedule_tree *trees = copse_solving_take(b, n_reduce + n_broadcast, sizeof *trees);
  if (!trees) return copse_fail_nomem(err);
  for (int i = 0; i < n_reduce; i++)
    COPSE_DO(convert_tree(b, reduce, &reduce->forest.trees[i], true, &trees[i], err));
  for (int i = 0; i < n_broadcast; i++)
    COPSE_DO(convert_tree(b, &b->broadcast, &b->broadcast.forest.trees[i], false,
                          &trees[n_reduce + i], err));
  b->schedule->trees = trees;
  b->schedule->n_trees = n_reduce + n_broadcast;
  return COPSE_OK;
}

/* T/M at the optimum: 1 / (W x), with x in units of the instance's scale. */
static copse_status phase_time(const struct copse_solved_phase *phase, struct copse_q *time,
                               struct copse_err *err) {
  struct copse_q x = phase->forest.optimum.x, scale, total;
  *time = COPSE_Q_ZERO;
  if (x.num == 0) return COPSE_OK; /* a single rank */
  COPSE_DO(copse_q_make(phase->instance.scale, 1, &scale, err));
  COPSE_DO(copse_q_make(phase->instance.network.n_roots, 1, &total, err));
  COPSE_DO(copse_q_mul(x, total, &total, err));
  return copse_q_div(scale, total, time, err);
}

static copse_status phase_cut(struct copse_solving *b, const struct copse_solved_phase *phase,
                              const int **cut, int *n, struct copse_err *err) {
  int *nodes = copse_solving_take(b, b->topology->n_nodes, sizeof *nodes);
  if (!nodes) return copse_fail_nomem(err);
  *n = 0;
  for (int i = 0; i < b->topology->n_nodes; i++)
    if (phase->forest.optimum.in_cut[i]) nodes[(*n)++] = i;
  *cut = nodes;
  return COPSE_OK;
}

copse_status copse_solving_narrowest_bound(struct copse_solving *b, struct copse_err *err) {
  struct copse_bound *bound = &b->schedule->bound;
  struct copse_solve_seconds ignored = {0};
  struct copse_solve_options options = *b->options;
  struct copse_solving narrow = {
      .topology = b->topology, .options = &options, .schedule = b->schedule};
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
    COPSE_TRY(phase_cut(&narrow, &narrow.broadcast, &bound->cut, &bound->n_cut, err));
  } else { /* what must enter S leaves the rest: turn S around */
    bound->time_per_GB = into;
    for (int i = 0; i < b->topology->n_nodes; i++)
      narrow.reduce.forest.optimum.in_cut[i] = !narrow.reduce.forest.optimum.in_cut[i];
    COPSE_TRY(phase_cut(&narrow, &narrow.reduce, &bound->cut, &bound->n_cut, err));
  }
out:
  free_phases(&narrow);
  return status;
}

copse_status copse_solving_bound(struct copse_solving *b, struct copse_err *err) {
  struct copse_bound *bound = &b->schedule->bound;
  const struct copse_solved_phase *reduce = b->mirrored ? &b->broadcast : &b->reduce;
  struct copse_q time;
  if (b->options->collective != COPSE_ALLREDUCE) {
    const struct copse_solved_phase *only = b->broadcast.used ? &b->broadcast : &b->reduce;
    COPSE_DO(phase_time(only, &bound->time_per_GB, err));
    COPSE_DO(phase_cut(b, only, &bound->cut, &bound->n_cut, err));
    return COPSE_OK;
  }
  bound->kind = COPSE_BOUND_PHASES;
  COPSE_DO(phase_time(&b->broadcast, &bound->time_per_GB, err));
  COPSE_DO(phase_time(reduce, &time, err));
  COPSE_DO(copse_q_add(bound->time_per_GB, time, &bound->time_per_GB, err));
  COPSE_DO(phase_cut(b, &b->broadcast, &bound->cut, &bound->n_cut, err));
  return phase_cut(b, reduce, &bound->reduce_cut, &bound->n_reduce_cut, err);
}

static copse_status pack_part(struct copse_solving *b, bool reduce,
                              const struct copse_instance *instance,
                              const struct copse_solve_part *part, struct copse_solved_phase *phase,
                              struct copse_solve_seconds *seconds, struct copse_err *err) {
  const int64_t *capacities = reduce ? part->reduce : part->broadcast;
  struct copse_forest_options options = {
      .as_given = true, .progress = b->options->progress, .trust_from = b->options->trust_from};
  if (!capacities) return COPSE_OK;
  phase->used = true;
  COPSE_DO(copse_free_shares_instance(instance, part->weights, capacities, reduce, &phase->instance,
                                      err));
  COPSE_DO(copse_forest_solve(&phase->instance.network, &options, &phase->forest, err));
  seconds->split += phase->forest.seconds_split;
  seconds->pack += phase->forest.seconds_pack;
  return COPSE_OK;
}

copse_status copse_solving_part(struct copse_solving *b, const struct copse_instance *instance,
                                const struct copse_solve_part *part,
                                struct copse_solve_seconds *seconds, struct copse_err *err) {
  struct copse_solving given = {
      .topology = b->topology, .options = b->options, .schedule = b->schedule};
  struct copse_schedule *schedule = b->schedule;
  copse_status status;
  COPSE_TRY(pack_part(b, false, instance, part, &given.broadcast, seconds, err));
  COPSE_TRY(pack_part(b, true, instance, part, &given.reduce, seconds, err));
  COPSE_TRY(copse_solving_trees(&given, err));
  schedule->n_rotations = 0; /* roots of one orbit may have unequal shares */
  COPSE_TRY(copse_tree_time(b->topology, schedule->trees, (size_t)schedule->n_trees,
                            &schedule->time_per_GB, err));
  schedule->k = copse_schedule_unit_k(schedule);
out:
  free_phases(&given);
  return status;
}

copse_status copse_solve_in_part(const struct copse_topology *topology,
                                 const struct copse_solve_options *options,
                                 const struct copse_solve_part *part, struct copse_schedule **out,
                                 struct copse_solve_seconds *seconds, struct copse_err *err) {
  if (options->collective == COPSE_ALLTOALL)
    return copse_solve_exchange_in_part(topology, options, part, out, seconds, err);
  struct copse_solve_options bound_only = *options;
  struct copse_solving b = {.topology = topology, .options = &bound_only};
  struct copse_instance instance = {0};
  copse_status status;
  *out = NULL;
  bound_only.bound_only = true;
  COPSE_TRY(copse_solving_start(&b, err));
  COPSE_TRY(copse_solving_phases(&b, seconds, err));
  COPSE_TRY(copse_solving_bound(&b, err));
  if (options->collective == COPSE_ALLREDUCE) COPSE_TRY(copse_solving_narrowest_bound(&b, err));
  b.schedule->time_per_GB = b.schedule->bound.time_per_GB;
  if (part) {
    COPSE_TRY(copse_instance_make(topology, options->label, -1, false, &instance, err));
    COPSE_TRY(copse_solving_part(&b, &instance, part, seconds, err));
  }
  *out = copse_solving_finish(&b);
out:
  copse_solving_free(&b);
  copse_instance_free(&instance);
  return status;
}
