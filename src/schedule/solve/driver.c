/*
 * From options to a schedule. Trees: each phase as the solver's forest, exactly optimal, the
 * optimum with its certificate, then what may be faster for an allreduce: unequal shares, and
 * switches that copy or add; and where a tolerance is given, whether the trees are within it. An
 * alltoall has its flows (alltoall.c).
 *
 *   topology -> instance (a network per phase) -> forest -> trees, time | cuts, bound
 *
 * A reduce phase is a broadcast on the network with links turned around. docs/theory.md,
 * "src/schedule/".
 */
#include <string.h>

#include "base/clock.h"
#include "base/graph.h"
#include "base/types.h"
#include "schedule/loads.h"
#include "schedule/solve/instance.h"
#include "schedule/solve/policy.h"
#include "schedule/solve/repair.h"
#include "schedule/solve/routes.h"
#include "schedule/solve/solve.h"
#include "schedule/solve/switches.h"
#include "schedule/solve/trees.h"
#include "solver/policy.h"
#include "solver/trees/forest.h"

/* One phase as solved: a broadcast forest, on the reversed graph for a reduce phase. */
struct phase {
  struct copse_instance instance;
  struct copse_forest forest;
  bool used;
};

struct solving {
  const struct copse_topology *topology;
  const struct copse_solve_options *options;
  struct copse_schedule *schedule;
  struct phase broadcast, reduce;
  struct copse_symmetry symmetry;    /* none for one root */
  int *sinks, n_sinks;               /* of it: the first rank's node of each orbit */
  bool orbit_trees;                  /* trees of base roots are made, */
  bool compact;                      /* and all that is listed in the end */
  bool alike_only;                   /* no others are made where those are not found */
  struct copse_solve_options chosen; /* options with the k that a tolerance leads to */
  struct copse_q shares_within;      /* unequal shares are rounded within this of theirs */
  struct copse_q near;               /* the optimum, by which part repaired shares may be slower */
  int listed;                        /* height of listed trees that a repair is to lower, or 0 */
  bool mirrored;                     /* the reduce phase is the broadcast phase turned around */
  struct copse_solve_seconds *seconds;
  struct copse_arena scratch;
  struct copse_err *err;
};

/* ---- beginning and end --------------------------------------------------------------------- */

static void free_phases(struct solving *b) {
  copse_forest_free(&b->broadcast.forest);
  copse_forest_free(&b->reduce.forest);
  copse_instance_free(&b->broadcast.instance);
  copse_instance_free(&b->reduce.instance);
  b->broadcast = b->reduce = (struct phase){0};
}

static void release(struct solving *b) {
  free_phases(b);
  copse_symmetry_free(&b->symmetry);
  copse_arena_free(&b->scratch);
  copse_schedule_free(b->schedule);
}

/* Describes of what topology the schedule is, and whose ranks. */
static copse_status describe(struct solving *b) {
  struct copse_schedule *schedule = b->schedule;
  const struct copse_topology *topology = b->topology;
  char sha256[COPSE_SHA256_HEX];
  const char **ids;
  int *ranks;
  COPSE_DO(copse_topology_sha256(topology, sha256, b->err));
  COPSE_DO(COPSE_ARRAY(&schedule->arena, (size_t)topology->n_nodes, ids, b->err));
  COPSE_DO(COPSE_ARRAY(&schedule->arena, (size_t)topology->n_ranks, ranks, b->err));
  COPSE_DO(copse_arena_text(&schedule->arena, topology->name, &schedule->topology_name, b->err));
  COPSE_DO(copse_arena_text(&schedule->arena, sha256, &schedule->topology_sha256, b->err));
  for (int i = 0; i < topology->n_nodes; i++)
    COPSE_DO(copse_arena_text(&schedule->arena, topology->nodes[i].id, &ids[i], b->err));
  memcpy(ranks, topology->rank_nodes, (size_t)topology->n_ranks * sizeof *ranks);
  schedule->collective = b->options->collective;
  schedule->root = b->options->root;
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

/* Checks the options and makes the schedule, named and otherwise empty. */
static copse_status start(struct solving *b) {
  COPSE_DO(check_options(b->topology, b->options, b->err));
  COPSE_DO(copse_calloc(1, sizeof *b->schedule, &b->schedule, b->err));
  return describe(b);
}

/* ---- phases of equal shares ---------------------------------------------------------------- */

static copse_status refuse_unreached(const struct solving *b, const struct phase *phase,
                                     bool reversed) {
  const struct copse_topology *topology = b->topology;
  const struct copse_optimum *optimum = &phase->forest.optimum;
  int from = -1, to = optimum->unreached;
  for (int i = 0; i < phase->instance.network.n_roots && from < 0; i++) {
    int node = phase->instance.network.roots[i].node;
    if (optimum->in_cut[node]) from = node;
  }
  return copse_topology_refuse_unreached(topology, b->options->label, reversed ? to : from,
                                         reversed ? from : to, "", b->err);
}

/* Finds symmetries, where every rank is a root of the same weight: one flow for each orbit of
 * ranks. */
static copse_status find_symmetry(struct solving *b) {
  const struct copse_topology *t = b->topology;
  const struct copse_symmetry *found = &b->symmetry;
  size_t n = (size_t)t->n_ranks;
  int *orbit;
  COPSE_DO(copse_topology_symmetry(t, &b->symmetry, b->err));
  COPSE_DO(COPSE_ARRAYS(&b->scratch, n, int, b->err, &orbit, &b->sinks));
  copse_sets_init(orbit, t->n_ranks);
  for (int g = 0; g < found->n + found->n_others; g++)
    for (int r = 0; r < t->n_ranks; r++)
      copse_sets_unite(orbit, r, t->nodes[found->generators[g].image[t->rank_nodes[r]]].rank);
  for (int r = 0; r < t->n_ranks; r++)
    if (orbit[r] == r) b->sinks[b->n_sinks++] = t->rank_nodes[r];
  return COPSE_OK;
}

/* Solves one of them. `reversed`: links turned around. */
static copse_status solve_phase(struct solving *b, bool reversed, struct phase *phase) {
  const struct copse_solve_options *o = b->options;
  const struct copse_network_symmetry symmetry = {b->symmetry.n, b->symmetry.generators};
  struct copse_forest_options options = {.k = o->k,
                                         .fewest = o->k == 0 || o->tolerance.num > 0,
                                         .bound_only = o->bound_only,
                                         .progress = o->progress,
                                         .trust_from = o->trust_from,
                                         .symmetry = b->orbit_trees ? &symmetry : NULL,
                                         .multiple = b->compact};
  phase->used = true;
  COPSE_DO(copse_instance_make(b->topology, o->label, o->root, reversed, &phase->instance, b->err));
  phase->instance.network.threads = o->threads;
  phase->instance.network.sinks = b->sinks;
  phase->instance.network.n_sinks = b->n_sinks;
  COPSE_DO(copse_forest_solve(&phase->instance.network, &options, &phase->forest, b->err));
  b->seconds->optimum += phase->forest.seconds_optimum;
  b->seconds->split += phase->forest.seconds_split;
  b->seconds->pack += phase->forest.seconds_pack;
  if (phase->forest.optimum.x.num == 0 && b->topology->n_ranks > 1)
    return refuse_unreached(b, phase, reversed);
  return COPSE_OK;
}

static bool all_orbit_trees(const struct solving *b) {
  return (!b->broadcast.used || b->broadcast.forest.base_only) &&
         (!b->reduce.used || b->reduce.forest.base_only);
}

/* Refuses listed trees of so many ranks, which don't fit any memory: better said than tried. */
static copse_status check_listed(const struct solving *b) {
  if (b->compact || b->options->bound_only || b->options->root >= 0 ||
      b->topology->n_ranks <= COPSE_LISTED_RANKS)
    return COPSE_OK;
  return copse_fail(b->err, COPSE_NOMEM,
                    "no symmetric trees are known for these %d ranks, and more than %d are not "
                    "listed one by one; --bound-only has the optimum and its proof",
                    b->topology->n_ranks, COPSE_LISTED_RANKS);
}

static copse_status solve_used_phases(struct solving *b) {
  copse_collective collective = b->options->collective;
  COPSE_DO(check_listed(b));
  if (copse_collective_broadcasts(collective) || b->mirrored)
    COPSE_DO(solve_phase(b, false, &b->broadcast));
  if (copse_collective_reduces(collective) && !b->mirrored)
    COPSE_DO(solve_phase(b, true, &b->reduce));
  return COPSE_OK;
}

static copse_status solve_phases(struct solving *b) {
  copse_collective collective = b->options->collective;
  b->mirrored = copse_collective_reduces(collective) && copse_is_symmetric(b->topology);
  if (b->options->tolerance.num > 0 && b->options->k == 0 && !b->options->bound_only) {
    bool reversed = !copse_collective_broadcasts(collective) && !b->mirrored;
    b->chosen = *b->options;
    COPSE_DO(copse_smallest_k(b->topology, b->options, reversed, &b->chosen.k, b->err));
    b->options = &b->chosen;
  }
  double start = copse_clock_seconds();
  if (!b->options->no_symmetry && b->options->root < 0) COPSE_DO(find_symmetry(b));
  b->seconds->orbits = b->n_sinks;
  b->seconds->optimum += copse_clock_seconds() - start;
  b->orbit_trees =
      b->symmetry.n > 0 && !b->options->bound_only && !b->options->in_network &&
      (b->options->compact || b->topology->n_ranks >= copse_trust_from(b->options->trust_from));
  b->compact = b->orbit_trees && (b->options->compact || b->alike_only ||
                                  b->topology->n_ranks > COPSE_COMPACT_RANKS);
  COPSE_DO(solve_used_phases(b));
  while (b->orbit_trees && !all_orbit_trees(b)) { /* all phases have base roots, or none has */
    if (!copse_symmetry_drop(&b->symmetry, b->topology->n_ranks, COPSE_MOST_BASES))
      b->orbit_trees = b->compact = false;
    free_phases(b);
    if (b->alike_only && !b->orbit_trees) return COPSE_OK;
    COPSE_DO(solve_used_phases(b));
  }
  b->schedule->k = (b->broadcast.used ? &b->broadcast : &b->reduce)->forest.k;
  return COPSE_OK;
}

/* ---- trees and bound ----------------------------------------------------------------------- */

/* Computes what one tree carries of the data: 1 / (k * weights of the roots). */
static copse_status tree_unit(const struct phase *phase, struct copse_q *unit,
                              struct copse_err *err) {
  int64_t whole = 0;
  for (int i = 0; i < phase->instance.network.n_roots; i++)
    whole += phase->instance.network.roots[i].weight; /* the solver's sums fit */
  if (copse_mul_overflows(phase->forest.k, whole, &whole))
    return copse_fail(err, COPSE_OVERFLOW, "the number of trees needs more than 63 bits");
  *unit = (struct copse_q){1, whole};
  return COPSE_OK;
}

static copse_status make_trees(struct solving *b) {
  copse_collective collective = b->options->collective;
  for (int turn = 1; turn >= 0; turn--) {
    const struct phase *phase = turn && !b->mirrored ? &b->reduce : &b->broadcast;
    struct copse_q unit;
    if (!(turn ? copse_collective_reduces(collective) : copse_collective_broadcasts(collective)))
      continue;
    COPSE_DO(tree_unit(phase, &unit, b->err));
    COPSE_DO(copse_add_trees(b->topology, &phase->forest, b->topology->n_ranks, turn, unit,
                             b->schedule, b->err));
  }
  return COPSE_OK;
}

/* Makes the schedule a compact one, of trees that are those of base roots: its time_per_GB becomes
 * that of all images. */
static copse_status set_rotations(struct solving *b) {
  struct copse_schedule *schedule = b->schedule;
  const struct copse_symmetry *from = &b->symmetry;
  struct copse_permutation *rotations;
  COPSE_DO(COPSE_ARRAY(&schedule->arena, (size_t)from->n, rotations, b->err));
  for (int g = 0; g < from->n; g++)
    COPSE_DO(copse_permutation_copy(&schedule->arena, from->generators[g], b->topology->n_nodes, 0,
                                    &rotations[g], b->err));
  schedule->rotations = rotations;
  schedule->n_rotations = from->n;
  return copse_loads_time(b->topology, schedule, &schedule->time_per_GB, b->err);
}

/* Computes T/M at the optimum: 1 / (W x), with x in units of the instance's scale. */
static copse_status phase_time(const struct phase *phase, struct copse_q *time,
                               struct copse_err *err) {
  struct copse_q x = phase->forest.optimum.x, scale = {phase->instance.scale, 1};
  struct copse_q total = {phase->instance.network.n_roots, 1};
  *time = COPSE_Q_ZERO;
  if (x.num == 0) return COPSE_OK; /* a single rank */
  COPSE_DO(copse_q_mul(x, total, &total, err));
  return copse_q_div(scale, total, time, err);
}

static copse_status phase_cut(struct solving *b, const struct phase *phase, const int **cut,
                              int *n) {
  int *nodes;
  COPSE_DO(COPSE_ARRAY(&b->schedule->arena, (size_t)b->topology->n_nodes, nodes, b->err));
  *n = 0;
  for (int i = 0; i < b->topology->n_nodes; i++)
    if (phase->forest.optimum.in_cut[i]) nodes[(*n)++] = i;
  *cut = nodes;
  return COPSE_OK;
}

static copse_status set_bound(struct solving *b) {
  struct copse_bound *bound = &b->schedule->bound;
  const struct phase *reduce = b->mirrored ? &b->broadcast : &b->reduce;
  struct copse_q time;
  if (b->options->collective != COPSE_ALLREDUCE) {
    const struct phase *only = b->broadcast.used ? &b->broadcast : &b->reduce;
    COPSE_DO(phase_time(only, &bound->time_per_GB, b->err));
    COPSE_DO(phase_cut(b, only, &bound->cut, &bound->n_cut));
    return COPSE_OK;
  }
  bound->kind = COPSE_BOUND_PHASES;
  COPSE_DO(phase_time(&b->broadcast, &bound->time_per_GB, b->err));
  COPSE_DO(phase_time(reduce, &time, b->err));
  COPSE_DO(copse_q_add(bound->time_per_GB, time, &bound->time_per_GB, b->err));
  COPSE_DO(phase_cut(b, &b->broadcast, &bound->cut, &bound->n_cut));
  return phase_cut(b, reduce, &bound->reduce_cut, &bound->n_reduce_cut);
}

/* Whether shares other than equal ones may be faster, and that is not known yet. */
static bool may_differ(const struct solving *b) {
  const struct copse_solve_options *o = b->options;
  return o->collective == COPSE_ALLREDUCE && o->k == 0 && o->tolerance.num == 0 &&
         !o->equal_shares && !b->alike_only;
}

/* Whether trees of unequal shares are made. */
static bool lists_shares(const struct solving *b) {
  return b->topology->n_ranks <= COPSE_FREE_SHARES_RANKS && !b->options->compact;
}

static void note_shares(const struct solving *b, struct copse_q time, const char *why) {
  char text[COPSE_Q_TEXT];
  copse_note(b->options->notes,
             "%s: unequal shares would take %s s/GB, but %s; these have equal shares",
             b->options->label, copse_q_text(time, text), why);
}

/*
 * Takes unequal shares where they are faster. Also where they are not, but the bound so far leaves
 * open whether anything is: then only the bound changes. Where switches are marked the programme,
 * which counts every copy, has trees but no bound.
 */
static copse_status try_free_shares(struct solving *b) {
  struct copse_schedule *schedule = b->schedule;
  COPSE_AT_END(copse_shares_free) struct copse_shares shares = {0};
  struct copse_q time;
  double start = copse_clock_seconds();
  bool open = copse_q_cmp(schedule->bound.time_per_GB, schedule->time_per_GB) < 0;
  bool marked = copse_has_clever_switch(b->topology);
  if (schedule->bound.kind == COPSE_BOUND_CUT && !open) return COPSE_OK;
  if (marked && b->options->bound_only) return COPSE_OK;
  COPSE_DO(copse_shares_find_time(b->topology, b->options, &b->broadcast.instance,
                                  schedule->time_per_GB, marked || !open, &shares, &time, b->err));
  b->seconds->optimum += copse_clock_seconds() - start;
  if (shares.outcome != COPSE_JOINT_PROVED) return COPSE_OK;
  int order = copse_q_cmp(time, schedule->time_per_GB);
  if (order < 0 && !b->options->bound_only && !lists_shares(b)) {
    note_shares(b, time,
                b->options->compact ? "trees of them are not compact"
                                    : "trees of them are not listed for so many ranks");
    return marked ? COPSE_OK
                  : copse_shares_bound(b->topology, b->options, &shares, time, schedule, b->err);
  }
  if (order < 0 && b->options->bound_only) schedule->time_per_GB = time;
  if (order < 0 && !b->options->bound_only) {
    struct copse_joint_part rounded;
    bool found = false;
    if (b->shares_within.num > 0)
      COPSE_DO(copse_round_part(&b->broadcast.instance, shares.part, b->shares_within, &b->scratch,
                                &rounded, &found, b->err));
    const struct copse_tree_parts parts = {found ? &rounded : shares.part, 1, shares.rate, NULL};
    COPSE_DO(copse_solve_trees_in_parts(b->topology, b->options, &b->broadcast.instance, &parts,
                                        schedule, b->seconds, b->err));
  }
  if (marked && order >= 0) return COPSE_OK;
  if (marked) return copse_narrowest_bound(b->topology, b->options, schedule, b->err);
  return copse_shares_bound(b->topology, b->options, &shares, time, schedule, b->err);
}

/* Lets switches copy and add where that is faster: one copy goes into a switch that copies, one
 * comes out of a switch that adds. The bound is one that holds for any allreduce, or for any trees;
 * if neither is reached without such switches, the bound of before stands. */
static copse_status try_switches(struct solving *b) {
  struct copse_schedule *schedule = b->schedule;
  struct copse_bound before = schedule->bound;
  bool faster = false;
  COPSE_DO(copse_narrowest_bound(b->topology, b->options, b->schedule, b->err));
  bool open = copse_q_cmp(schedule->bound.time_per_GB, schedule->time_per_GB) < 0;
  if (open)
    COPSE_DO(copse_bound_with_switches(b->topology, b->options, &b->broadcast.instance, schedule,
                                       b->seconds, b->err));
  if (open && copse_q_cmp(schedule->bound.time_per_GB, schedule->time_per_GB) < 0)
    COPSE_DO(copse_solve_with_switches(b->topology, b->options, &b->broadcast.instance,
                                       schedule->time_per_GB, schedule, b->seconds, &faster,
                                       b->err));
  if (!faster && copse_q_cmp(schedule->bound.time_per_GB, schedule->time_per_GB) < 0)
    schedule->bound = before;
  return COPSE_OK;
}

/* Counts equal trees as one: as many of each are fewer per root. */
static void take_fewest(struct copse_schedule *schedule) {
  int64_t k = copse_schedule_unit_k(schedule);
  if (k > 0 && schedule->k % k == 0) schedule->k = k;
}

/* Fills in trees, their time, and the bound that belongs to it. */
static copse_status fill(struct solving *b) {
  const struct copse_solve_options *o = b->options;
  struct copse_schedule *schedule = b->schedule;
  bool exact = o->collective == COPSE_ALLREDUCE && o->k == 0 && o->tolerance.num == 0;
  COPSE_DO(set_bound(b));
  schedule->time_per_GB = schedule->bound.time_per_GB;
  if (o->bound_only) {
    if (may_differ(b)) COPSE_DO(try_free_shares(b));
    if (exact && o->in_network) COPSE_DO(try_switches(b));
    return COPSE_OK;
  }
  COPSE_DO(make_trees(b));
  if (b->orbit_trees)
    COPSE_DO(set_rotations(b));
  else
    COPSE_DO(copse_tree_time(b->topology, schedule->trees, (size_t)schedule->n_trees,
                             &schedule->time_per_GB, b->err));
  /* The phases of an allreduce may load different links. Then they are faster together than one
   * after the other, and only a bound for any allreduce holds. */
  if (copse_q_cmp(schedule->time_per_GB, schedule->bound.time_per_GB) < 0)
    COPSE_DO(copse_narrowest_bound(b->topology, b->options, b->schedule, b->err));
  if (may_differ(b)) COPSE_DO(try_free_shares(b));
  if (exact && o->in_network) COPSE_DO(try_switches(b));
  if (o->in_network) COPSE_DO(copse_list_switches(b->topology, schedule, b->err));
  if (!b->compact) COPSE_DO(copse_schedule_expand(schedule, b->err));
  if (o->k == 0) take_fewest(schedule);
  return COPSE_OK;
}

/* ---- a schedule within a part of the links -------------------------------------------------- */

/* Finds the bound of the ranks with the fabric to themselves; then the trees of the part, if
 * any. */
static copse_status fill_part(struct solving *b, const struct copse_joint_part *part) {
  COPSE_AT_END(copse_instance_free) struct copse_instance instance = {0};
  COPSE_DO(solve_phases(b));
  COPSE_DO(set_bound(b));
  if (b->options->collective == COPSE_ALLREDUCE)
    COPSE_DO(copse_narrowest_bound(b->topology, b->options, b->schedule, b->err));
  b->schedule->time_per_GB = b->schedule->bound.time_per_GB;
  if (!part) return COPSE_OK;
  COPSE_DO(copse_instance_make(b->topology, b->options->label, -1, false, &instance, b->err));
  const struct copse_tree_parts parts = {part, 1, part->rate, NULL};
  return copse_solve_trees_in_parts(b->topology, b->options, &instance, &parts, b->schedule,
                                    b->seconds, b->err);
}

copse_status copse_solve_in_part(const struct copse_topology *topology,
                                 const struct copse_solve_options *options,
                                 const struct copse_joint_part *part, struct copse_schedule **out,
                                 struct copse_solve_seconds *seconds, struct copse_err *err) {
  if (options->collective == COPSE_ALLTOALL)
    return copse_solve_exchange_in_part(topology, options, part, out, seconds, err);
  struct copse_solve_options bound_only = *options;
  COPSE_AT_END(release)
  struct solving b = {.topology = topology, .options = &bound_only, .seconds = seconds, .err = err};
  *out = NULL;
  bound_only.bound_only = true;
  COPSE_DO(start(&b));
  COPSE_DO(fill_part(&b, part));
  *out = b.schedule;
  b.schedule = NULL;
  return COPSE_OK;
}

/* ---- together ------------------------------------------------------------------------------ */

/* Solves the whole for trees, without regard to whether a tolerance is met. */
static copse_status solve_trees(struct solving *b) {
  COPSE_DO(start(b));
  COPSE_DO(solve_phases(b));
  return fill(b);
}

/* Solves anew with other options; the schedule is taken if its time is at most the limit. */
static copse_status try_instead(struct solving *b, const struct copse_solve_options *options,
                                struct copse_q shares_within, struct copse_q limit, bool *met) {
  struct copse_solve_seconds ignored = {0};
  COPSE_AT_END(release)
  struct solving other = {.topology = b->topology,
                          .options = options,
                          .shares_within = shares_within,
                          .seconds = &ignored,
                          .err = b->err};
  COPSE_DO(solve_trees(&other));
  *met = copse_q_cmp(other.schedule->time_per_GB, limit) <= 0;
  if (!*met) return COPSE_OK;
  struct copse_schedule *before = b->schedule;
  b->schedule = other.schedule;
  other.schedule = before;
  return COPSE_OK;
}

/*
 * Makes a schedule within the tolerance, which chooses k for equal shares by their own optimum.
 * Where unequal ones are so much faster that it is outside, it is one of these, the first that is
 * within: equal shares of more trees, unequal shares that are rounded, or those as they are.
 * `options`: as they were given.
 */
static copse_status meet_tolerance(struct solving *b, const struct copse_solve_options *options) {
  struct copse_solve_options exact = *options, equal = *options;
  struct copse_schedule *best = NULL;
  struct copse_q limit, time, equal_shares;
  bool met = false;
  if (options->collective != COPSE_ALLREDUCE || options->tolerance.num == 0 || options->k > 0 ||
      options->equal_shares || options->compact || options->bound_only)
    return COPSE_OK;
  COPSE_DO(copse_solve_best_time(b->topology, options, &time, &best, b->err));
  copse_schedule_free(best);
  COPSE_DO(copse_q_add(COPSE_Q_ONE, options->tolerance, &limit, b->err));
  COPSE_DO(copse_q_mul(limit, time, &limit, b->err));
  if (copse_q_cmp(b->schedule->time_per_GB, limit) <= 0) return COPSE_OK;
  COPSE_DO(phase_time(&b->broadcast, &equal_shares, b->err));
  COPSE_DO(phase_time(b->mirrored ? &b->broadcast : &b->reduce, &time, b->err));
  COPSE_DO(copse_q_add(equal_shares, time, &equal_shares, b->err));
  COPSE_DO(copse_q_div(limit, equal_shares, &equal.tolerance, b->err));
  COPSE_DO(copse_q_sub(equal.tolerance, COPSE_Q_ONE, &equal.tolerance, b->err));
  equal.equal_shares = true;
  if (equal.tolerance.num > 0) COPSE_DO(try_instead(b, &equal, COPSE_Q_ZERO, limit, &met));
  exact.tolerance = COPSE_Q_ZERO;
  if (!met) COPSE_DO(try_instead(b, &exact, options->tolerance, limit, &met));
  return met ? COPSE_OK : try_instead(b, &exact, COPSE_Q_ZERO, limit, &met);
}

/* Finds the bound of any trees, then the best on the fabric's own routes. */
static copse_status solve_on_routes(struct solving *b, const struct copse_solve_options *options) {
  struct copse_solve_options bound_only = *options;
  bound_only.bound_only = true;
  bound_only.tolerance = COPSE_Q_ZERO;
  b->options = &bound_only;
  COPSE_DO(solve_trees(b));
  /* where switches are marked that bound is of equal shares, and the routes' may be unequal */
  if (options->collective == COPSE_ALLREDUCE && copse_has_clever_switch(b->topology))
    COPSE_DO(copse_narrowest_bound(b->topology, b->options, b->schedule, b->err));
  b->options = options;
  return copse_solve_on_routes(b->topology, options, b->schedule, b->seconds, b->err);
}

/* ---- repair -------------------------------------------------------------------------------- */

/* Whether the schedule may be a repaired one: of equal shares, at the optimum. */
static bool may_repair(const struct solving *b) {
  const struct copse_solve_options *o = b->options;
  int from = copse_trust_from(o->trust_from);
  if (may_differ(b) && from > COPSE_REPAIR_SHARES_FROM) from = COPSE_REPAIR_SHARES_FROM;
  return o->healthy && o->collective != COPSE_ALLTOALL && !o->on_routes && o->root < 0 &&
         o->k == 0 && o->tolerance.num == 0 && !o->bound_only && !o->in_network &&
         !o->no_symmetry && !(may_differ(b) && copse_has_clever_switch(b->topology)) &&
         (o->compact || b->listed > 0 || b->topology->n_ranks >= from) &&
         (!copse_collective_reduces(o->collective) || copse_is_symmetric(b->topology));
}

/* Solves for the healthy schedule's trees. NULL: none, or too many. */
static copse_status solve_healthy(const struct solving *b, struct copse_schedule **out) {
  struct copse_solve_options like = *b->options;
  struct copse_solve_seconds ignored;
  struct copse_err local = COPSE_ERR_INIT;
  like.collective = COPSE_ALLGATHER;
  like.compact = true;
  like.healthy = NULL;
  *out = NULL;
  copse_status status = copse_solve_schedule(b->options->healthy, &like, out, &ignored, &local);
  if (status == COPSE_NOMEM) return copse_fail(b->err, status, "%s", local.text);
  if (status == COPSE_OK &&
      (int64_t)(*out)->n_trees * (*out)->n_ranks <= COPSE_REPAIR_MOST_VERTICES)
    return COPSE_OK;
  if (status == COPSE_OK) copse_schedule_free(*out);
  *out = NULL;
  return COPSE_OK; /* what is broken may be solved all the same */
}

/* Finds the optimum of what is broken. */
static copse_status solve_bound(struct solving *b) {
  const struct copse_solve_options *o = b->options;
  struct copse_solve_options bound_only = *o;
  bound_only.bound_only = true;
  b->options = &bound_only;
  COPSE_DO(solve_phases(b));
  COPSE_DO(set_bound(b));
  b->options = o;
  return COPSE_OK;
}

/* Repairs the healthy trees at it. */
static copse_status repair(struct solving *b, const struct copse_schedule *from, bool *made) {
  double start = copse_clock_seconds();
  const struct phase *phase = b->broadcast.used ? &b->broadcast : &b->reduce;
  const struct copse_optimum *optimum = &phase->forest.optimum;
  struct copse_repair of = {b->topology, b->options->healthy, from, &phase->instance.network,
                            .x = optimum->x};
  of.k = copse_optimum_step(of.network, optimum); /* its cut is not rounded */
  COPSE_DO(copse_repair_trees(&of, b->schedule, made, b->err));
  b->seconds->pack += copse_clock_seconds() - start;
  if (!*made || copse_q_cmp(b->schedule->time_per_GB, b->schedule->bound.time_per_GB) >= 0)
    return COPSE_OK; /* else an allreduce's phases together, as in fill */
  return copse_narrowest_bound(b->topology, b->options, b->schedule, b->err);
}

/* Takes the schedule made in place of *out, if that is none, or higher. */
static void take_lower(struct solving *b, struct copse_schedule **out) {
  if (*out && copse_schedule_height(*out) <= copse_schedule_height(b->schedule)) return;
  copse_schedule_free(*out);
  *out = b->schedule;
  b->schedule = NULL;
}

/* Tries trees of the rate at which an allreduce's phases run together; where none are found, of
 * rates within b->near of it, as near and as low as they are found. *out: trees, if any. */
static copse_status try_shares(struct solving *b, const struct copse_repair *at,
                               const struct copse_shares *shares, struct copse_q time,
                               struct copse_schedule **out) {
  static const struct {
    struct copse_q part;
    int looks;
    bool leaving;
  } tries[] = COPSE_REPAIR_RATES;
  for (size_t i = 0; i < sizeof tries / sizeof *tries && !*out; i++) {
    struct copse_repair of = *at;
    struct copse_q part = tries[i].part, slack;
    struct copse_scale exact;
    bool made;
    if (copse_q_cmp(part, b->near) > 0) continue;
    COPSE_DO(copse_q_add(COPSE_Q_ONE, part, &slack, b->err));
    COPSE_DO(copse_q_div(of.x, slack, &of.x, b->err));
    COPSE_DO(copse_optimum_scale(of.network, of.x, &exact, b->err));
    of.k = part.num > 0 ? COPSE_REPAIR_PIECES : exact.k;
    of.looks = tries[i].looks, of.leaving = tries[i].leaving;
    COPSE_DO(start(b));
    COPSE_DO(copse_repair_trees(&of, b->schedule, &made, b->err));
    if (made) {
      COPSE_DO(copse_shares_bound(b->topology, b->options, shares, time, b->schedule, b->err));
      *out = b->schedule;
    } else {
      copse_schedule_free(b->schedule);
    }
    b->schedule = NULL;
  }
  return COPSE_OK;
}

/* What an allreduce's phases reach that run together. */
struct together {
  struct copse_shares shares;
  struct copse_q time;
};

static void free_together(struct together *t) { copse_shares_free(&t->shares); }

/* Repairs an allreduce whose phases run together, with equal shares, which may do where the best
 * ones found are not.
 * `together`: the best shares and their time, if known. *faster: than phase after phase, or that is
 * not known. */
static copse_status repair_together(const struct solving *like, const struct solving *bound,
                                    const struct copse_schedule *from, struct copse_schedule **out,
                                    struct together *together, bool *faster) {
  COPSE_AT_END(release) struct solving b = *like;
  struct copse_shares *shares = &together->shares;
  struct copse_solve_options options = *b.options;
  struct copse_q n = {b.topology->n_ranks, 1};
  if (lists_shares(&b)) options.notes = NULL; /* what is made then has notes of its own */
  double begun = copse_clock_seconds();
  COPSE_DO(copse_shares_find_time(b.topology, &options, &bound->broadcast.instance,
                                  bound->schedule->bound.time_per_GB, true, shares, &together->time,
                                  b.err));
  b.seconds->optimum += copse_clock_seconds() - begun;
  *faster = shares->outcome != COPSE_JOINT_NOT_BETTER;
  if (shares->outcome != COPSE_JOINT_PROVED) return COPSE_OK;
  struct copse_repair of = {b.topology, options.healthy, from, &bound->broadcast.instance.network,
                            .together = true};
  COPSE_DO(copse_q_div(shares->rate, n, &of.x, b.err));
  begun = copse_clock_seconds();
  COPSE_DO(try_shares(&b, &of, shares, together->time, out));
  b.seconds->pack += copse_clock_seconds() - begun;
  if (!lists_shares(&b) && !*out) /* of fewer ranks they are listed */
    note_shares(&b, together->time, "trees of them were not found near the healthy ones");
  return COPSE_OK;
}

/* Tries, where hosts are broken alike, as without the switch of a rail, trees of base roots, there
 * sooner than repaired ones, and lower. `bound`: whose symmetries are known. */
static copse_status try_alike(const struct solving *like, const struct solving *bound,
                              struct copse_schedule **out, bool *made) {
  COPSE_AT_END(release) struct solving b = *like;
  int64_t n = b.topology->n_ranks, n_bases = n / bound->symmetry.n_products;
  if (bound->symmetry.n == 0 || n_bases > COPSE_MOST_BASES / n) return COPSE_OK;
  b.alike_only = true;
  COPSE_DO(start(&b));
  COPSE_DO(solve_phases(&b));
  *made = b.orbit_trees;
  if (*made) COPSE_DO(fill(&b));
  if (*made) take_lower(&b, out);
  return COPSE_OK;
}

/* Tries symmetries, then repair where that is higher than *asked, which it sets; a schedule that
 * was given is repaired first, since ranks then go on with most of their plans. *high: it is
 * higher, of so few ranks that all trees can be listed, and not made by symmetries. */
static copse_status try_repair(const struct solving *like, struct copse_schedule **out, bool *high,
                               int *asked) {
  COPSE_AT_END(release) struct solving b = *like;
  COPSE_AT_END(copse_schedule_free_at) struct copse_schedule *healthy = NULL;
  COPSE_AT_END(free_together) struct together together = {.shares.outcome = COPSE_JOINT_NOT_BETTER};
  bool alike = false, faster = false;
  if (!b.options->from) COPSE_DO(solve_healthy(&b, &healthy));
  const struct copse_schedule *from = healthy ? healthy : b.options->from;
  if (!from) return COPSE_OK;
  int most = *asked = copse_schedule_height(from) + COPSE_REPAIR_HIGHEST;
  if (b.listed > 0 && b.listed <= most) return COPSE_OK;
  COPSE_DO(start(&b));
  COPSE_DO(solve_bound(&b));
  if (may_differ(&b)) COPSE_DO(repair_together(like, &b, from, out, &together, &faster));
  /* of more ranks packing takes long, and is not lower */
  *high = *out && copse_schedule_height(*out) > most && lists_shares(&b) &&
          b.topology->n_ranks < copse_trust_from(b.options->trust_from);
  if (*out || (faster && lists_shares(&b))) return COPSE_OK;
  for (int turn = 0; turn < 2 && (!*out || copse_schedule_height(*out) > most); turn++) {
    bool repairs = (turn == 1) == (from == healthy), made = false;
    if (!repairs) COPSE_DO(try_alike(like, &b, out, &alike));
    if (repairs) COPSE_DO(repair(&b, from, &made));
    if (made) take_lower(&b, out);
  }
  if (*out && together.shares.outcome == COPSE_JOINT_PROVED)
    COPSE_DO(
        copse_shares_bound(b.topology, b.options, &together.shares, together.time, *out, b.err));
  *high = *out && !alike && copse_schedule_height(*out) > most && !b.options->compact &&
          b.topology->n_ranks <= COPSE_COMPACT_RANKS;
  return COPSE_OK;
}

/* Hands a schedule over; a note says where its trees are higher than is asked of a repair, and
 * whether there are lower ones, which are slower. */
static void hand_over(const struct copse_solve_options *options, int asked, bool lower,
                      struct copse_schedule **made, struct copse_schedule **out) {
  int height = asked > 0 ? copse_schedule_height(*made) : 0, more = COPSE_REPAIR_HIGHEST;
  if (height > asked)
    copse_note(options->notes,
               "%s: trees are %d hops high, %d more than the healthy fabric's can be; those of at "
               "most %d more that were found %s",
               options->label, height, height - asked + more, more,
               lower ? "are up to 1 % slower (--tolerance 1%)" : "are none");
  *out = *made;
  *made = NULL;
}

copse_status copse_solve_schedule(const struct copse_topology *topology,
                                  const struct copse_solve_options *options,
                                  struct copse_schedule **out, struct copse_solve_seconds *seconds,
                                  struct copse_err *err) {
  COPSE_AT_END(release)
  struct solving b = {.topology = topology, .options = options, .seconds = seconds, .err = err};
  struct copse_solve_options near = *options; /* repairs of allreduces are as near as they can be */
  struct solving like = b;
  like.options = &near, like.near = COPSE_NEAR_OPTIMUM;
  if (options->tolerance.num > 0 && copse_q_cmp(options->tolerance, like.near) < 0)
    like.near = options->tolerance;
  if (options->collective == COPSE_ALLREDUCE) near.tolerance = COPSE_Q_ZERO;
  COPSE_AT_END(copse_schedule_free_at) struct copse_schedule *repaired = NULL;
  bool high = false, early = may_repair(&like);
  int asked = 0; /* how high a repaired one may be, 0: that is not known */
  *out = NULL, *seconds = (struct copse_solve_seconds){0};
  if (early) COPSE_DO(try_repair(&like, &repaired, &high, &asked));
  if (repaired && !high) {
    hand_over(options, asked, false, &repaired, out);
    return COPSE_OK;
  }
  if (options->collective == COPSE_ALLTOALL) {
    COPSE_DO(start(&b));
    COPSE_DO(copse_solve_alltoall(topology, options, b.schedule, seconds, err));
  } else if (options->on_routes && topology->n_ranks > 1) { /* one rank sends nothing */
    COPSE_DO(solve_on_routes(&b, options));
  } else {
    COPSE_DO(solve_trees(&b));
    COPSE_DO(meet_tolerance(&b, options));
    like.listed = copse_schedule_height(b.schedule);
    if (!early && may_repair(&like)) COPSE_DO(try_repair(&like, &repaired, &high, &asked));
  }
  struct copse_schedule **best = &b.schedule;
  bool near_by = repaired && options->tolerance.num == 0 &&
                 copse_q_cmp(repaired->time_per_GB, b.schedule->time_per_GB) > 0;
  int worth = near_by ? COPSE_REPAIR_HIGHEST : 0; /* hops that it must save then */
  if (repaired && copse_schedule_height(repaired) + worth <= copse_schedule_height(b.schedule))
    best = &repaired;
  hand_over(options, asked, near_by && !high, best, out);
  return COPSE_OK;
}
