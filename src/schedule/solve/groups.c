/*
 * Groups of ranks at the same time: the bound of each alone, the joint optimum of all
 * (solver/joint/joint.h), and for each group the trees or flows of its part.
 * docs/theory.md, "Groups at the same time".
 */
#include "schedule/solve/solve.h"

#include <string.h>

#include "base/clock.h"
#include "base/types.h"
#include "base/memory.h"
#include "schedule/solve/instance.h"
#include "schedule/solve/policy.h"
#include "schedule/solve/switches.h"
#include "verify/groups.h"
#include "solver/joint/joint.h"
#include "topology/modify.h"

struct job {
  const struct copse_topology *topology;
  const struct copse_group *groups;
  int n;
  const struct copse_solve_groups_options *options;
  struct copse_groups *result;
  const char **ids;               /* [n_nodes] in the result's arena */
  struct copse_topology **chosen; /* [n] the fabric with a group's ranks */
  struct copse_joint_group *joint_groups;
  struct copse_symmetry symmetries;
  struct copse_instance instance;
  struct copse_joint joint, unbalanced; /* the other: relays at switches that copy or add are */
  const struct copse_joint *proof;      /* one of these */
  bool inexact;                         /* the time may be above the bound */
  struct copse_solve_seconds *seconds;
  struct copse_arena scratch;
  struct copse_err *err;
};

static struct copse_solve_options options_of(const struct job *j, int g) {
  return (struct copse_solve_options){.collective = j->groups[g].collective,
                                      .root = j->groups[g].root,
                                      .label = j->options->label,
                                      .progress = j->options->progress};
}

static copse_status fail_in_group(struct job *j, int g, const struct copse_err *why) {
  return copse_fail_at(j->err, why->status, j->options->groups_label, j->groups[g].line, "%s",
                       why->text);
}

/* ---- each group alone ---------------------------------------------------------------------- */

static copse_status describe_group(struct job *j, int g) {
  const struct copse_group *group = &j->groups[g];
  struct copse_groups_member *member = &j->result->members[g];
  const char **ids;
  COPSE_DO(COPSE_ARRAY(&j->result->arena, (size_t)group->n, ids, j->err));
  member->collective = group->collective;
  member->n_ranks = group->n;
  member->ranks = ids;
  for (int r = 0; r < group->n; r++) ids[r] = j->ids[group->nodes[r]];
  return COPSE_OK;
}

/* Finds the group's bound alone, which also shows that its ranks reach each other. */
static copse_status start_group(struct job *j, int g) {
  const struct copse_group *group = &j->groups[g];
  struct copse_joint_group *to = &j->joint_groups[g];
  struct copse_solve_options options = options_of(j, g);
  struct copse_err why = COPSE_ERR_INIT;
  bool *closed = NULL;
  COPSE_DO(describe_group(j, g));
  COPSE_DO(copse_topology_choose_ranks(j->topology, group->nodes, group->n, j->options->exclude,
                                       &j->chosen[g], j->err));
  copse_status status = copse_solve_in_part(j->chosen[g], &options, NULL,
                                            &j->result->members[g].schedule, j->seconds, &why);
  if (status != COPSE_OK) return fail_in_group(j, g, &why);
  if (j->options->exclude) {
    COPSE_DO(COPSE_ARRAY(&j->scratch, (size_t)j->topology->n_nodes, closed, j->err));
    for (int v = 0; v < j->topology->n_nodes; v++) closed[v] = j->topology->nodes[v].rank >= 0;
    for (int r = 0; r < group->n; r++) closed[group->nodes[r]] = false;
  }
  *to = (struct copse_joint_group){
      .n_members = group->n,
      .members = group->nodes,
      .broadcasts = copse_collective_broadcasts(group->collective),
      .reduces = copse_collective_reduces(group->collective),
      .exchanges = group->collective == COPSE_ALLTOALL,
      .root = group->root >= 0 ? group->nodes[group->root] : -1,
      .closed = closed,
  };
  return COPSE_OK;
}

/* ---- the groups' schedules ----------------------------------------------------------------- */

static copse_status refuse_outcome(const struct job *j, const struct copse_joint *joint) {
  if (joint->outcome == COPSE_JOINT_STUCK)
    return copse_fail_at(j->err, COPSE_NOMEM, j->options->groups_label, 0,
                         "the joint optimum of %d groups on %d links (%d variables) takes too many "
                         "steps; fewer groups, or --others exclude, would do",
                         j->n, j->topology->n_links, joint->columns);
  if (joint->outcome == COPSE_JOINT_TOO_LARGE)
    return copse_fail_at(j->err, COPSE_UNSUPPORTED, j->options->groups_label, 0,
                         "%d groups on %d links are too much for the joint optimum (%d variables; "
                         "at most %d); fewer groups, or --others exclude, would do",
                         j->n, j->topology->n_links, joint->columns, COPSE_GROUPS_COLUMNS);
  return copse_fail_at(j->err, COPSE_NOMEM, j->options->groups_label, 0,
                       "the simplex method finds no basis of the groups' joint optimum that "
                       "rationals confirm; --others exclude, or bandwidths of fewer digits, would "
                       "do");
}

/* Returns parts so coarse that a load over a bandwidth fits 64 bits. */
static int64_t coarsest_whole(const struct copse_topology *t) {
  int64_t largest = 1;
  for (int e = 0; e < t->n_links; e++)
    if (t->links[e].bandwidth.num > largest) largest = t->links[e].bandwidth.num;
  return ((int64_t)1 << 61) / largest;
}

static copse_status run_joint(struct job *j, int64_t max_whole, struct copse_joint *out) {
  const struct copse_joint_options options = {.max_columns = COPSE_GROUPS_COLUMNS,
                                              .max_whole = max_whole,
                                              .n_symmetries = j->symmetries.n_others,
                                              .symmetries = j->symmetries.generators,
                                              .progress = j->options->progress};
  return copse_joint_find(&j->instance.network, j->joint_groups, j->n, &options, out, j->err);
}

static bool is_good(const struct copse_joint *joint) {
  return joint->outcome == COPSE_JOINT_PROVED || joint->outcome == COPSE_JOINT_CLOSE;
}

/* Finds the bound without potentials at relays that are not in balance as loads are counted, since
 * a tree loads a link into a switch that copies once; it may be lower. */
static copse_status find_unbalanced_bound(struct job *j) {
  bool *unbalanced;
  COPSE_DO(COPSE_ARRAY(&j->scratch, (size_t)j->topology->n_nodes, unbalanced, j->err));
  copse_mark_unbalanced(j->topology, unbalanced);
  for (int g = 0; g < j->n; g++) j->joint_groups[g].unbalanced = unbalanced;
  copse_status status = run_joint(j, 0, &j->unbalanced);
  for (int g = 0; g < j->n; g++)
    j->joint_groups[g].unbalanced = NULL; /* parts are to be balanced */
  if (status != COPSE_OK) return status;
  j->proof = &j->unbalanced;
  j->inexact = true;
  return is_good(j->proof) ? COPSE_OK : refuse_outcome(j, j->proof);
}

static copse_status find_joint(struct job *j) {
  double start = copse_clock_seconds();
  struct copse_q scale;
  bool trees = false;
  for (int g = 0; g < j->n; g++) trees = trees || j->groups[g].collective != COPSE_ALLTOALL;
  copse_status status =
      trees ? copse_instance_make(j->topology, j->options->label, -1, false, &j->instance, j->err)
            : copse_instance_scale(j->topology, &j->instance, j->err);
  if (status != COPSE_OK) return status;
  if (!j->options->no_symmetry)
    COPSE_DO(copse_groups_symmetries(j->topology, j->groups, j->n, &j->symmetries, j->err));
  COPSE_DO(run_joint(j, 0, &j->joint));
  if (!is_good(&j->joint)) return refuse_outcome(j, &j->joint);
  j->proof = &j->joint;
  j->inexact = j->joint.outcome == COPSE_JOINT_CLOSE;
  if (trees && copse_has_clever_switch(j->topology)) COPSE_DO(find_unbalanced_bound(j));
  j->seconds->optimum += copse_clock_seconds() - start;
  scale = (struct copse_q){j->instance.scale, 1};
  COPSE_DO(copse_q_div(scale, j->joint.rate, &j->result->bound_time_per_GB, j->err));
  j->result->time_per_GB = j->result->bound_time_per_GB;
  return COPSE_OK;
}

/* Moves the links' amounts into the numbering of the group's own topology. */
static copse_status move_links(const struct job *j, int g, const int64_t *from,
                               struct copse_arena *arena, const int64_t **out) {
  const struct copse_topology *t = j->topology, *to = j->chosen[g];
  int64_t *moved;
  *out = NULL;
  if (!from) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)to->n_links, moved, j->err));
  for (int e = 0; e < t->n_links; e++) {
    if (from[e] == 0) continue;
    int link = copse_topology_find_link(to, copse_topology_find(to, t->nodes[t->links[e].src].id),
                                        copse_topology_find(to, t->nodes[t->links[e].dst].id));
    moved[link] = from[e];
  }
  *out = moved;
  return COPSE_OK;
}

static copse_status move_part(const struct job *j, int g, struct copse_arena *arena,
                              struct copse_joint_part *part) {
  const struct copse_joint_part *from = &j->joint.parts[g];
  const int64_t **exchange;
  *part = *from;
  COPSE_DO(move_links(j, g, from->broadcast, arena, &part->broadcast));
  COPSE_DO(move_links(j, g, from->reduce, arena, &part->reduce));
  if (!from->exchange) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)j->groups[g].n, exchange, j->err));
  for (int r = 0; r < j->groups[g].n; r++)
    COPSE_DO(move_links(j, g, from->exchange[r], arena, &exchange[r]));
  part->exchange = exchange;
  return COPSE_OK;
}

static copse_status pack_group(struct job *j, int g, struct copse_err *err) {
  struct copse_solve_options options = options_of(j, g);
  struct copse_schedule *schedule = NULL, **alone = &j->result->members[g].schedule;
  struct copse_joint_part part;
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  COPSE_DO(move_part(j, g, &scratch, &part));
  if (options.collective == COPSE_ALLTOALL) { /* its bound is not found twice */
    schedule = *alone;
    *alone = NULL;
  }
  COPSE_DO(copse_solve_in_part(j->chosen[g], &options, &part, &schedule, j->seconds, err));
  copse_schedule_free(*alone);
  *alone = schedule;
  return COPSE_OK;
}

/* ---- the proof ----------------------------------------------------------------------------- */

static copse_status copy_cuts(struct job *j) {
  struct copse_groups_cut *cuts;
  COPSE_DO(COPSE_ARRAY(&j->result->arena, (size_t)j->proof->n_cuts, cuts, j->err));
  j->result->cuts = cuts;
  for (int c = 0; c < j->proof->n_cuts; c++) {
    const struct copse_joint_cut *from = &j->proof->cuts[c];
    struct copse_groups_cut *to = &cuts[j->result->n_cuts++];
    const char **ids;
    COPSE_DO(COPSE_ARRAY(&j->result->arena, (size_t)j->topology->n_nodes, ids, j->err));
    to->group = from->group;
    to->phase = from->reduce ? COPSE_PHASE_REDUCE : COPSE_PHASE_BROADCAST;
    to->sink = from->sink;
    to->weight = from->weight;
    to->nodes = ids;
    for (int v = 0; v < j->topology->n_nodes; v++)
      if (from->inside[v]) ids[to->n_nodes++] = j->ids[v];
  }
  return COPSE_OK;
}

static const struct copse_q *potentials_of(const struct job *j, int g, int reduce) {
  const struct copse_joint_part *part = &j->proof->parts[g];
  return reduce ? part->reduce_potentials : part->broadcast_potentials;
}

static int count_potentials(const struct job *j) {
  int n = 0;
  for (int g = 0; g < j->n; g++)
    for (int reduce = 0; reduce < 2; reduce++) {
      const struct copse_q *from = potentials_of(j, g, reduce);
      for (int v = 0; from && v < j->topology->n_nodes; v++) n += from[v].num != 0;
    }
  return n;
}

static copse_status copy_potentials(struct job *j) {
  struct copse_groups_potential *all;
  COPSE_DO(COPSE_ARRAY(&j->result->arena, (size_t)count_potentials(j), all, j->err));
  j->result->potentials = all;
  for (int g = 0; g < j->n; g++)
    for (int reduce = 0; reduce < 2; reduce++) {
      const struct copse_q *from = potentials_of(j, g, reduce);
      for (int v = 0; from && v < j->topology->n_nodes; v++) {
        if (from[v].num == 0) continue;
        all[j->result->n_potentials++] = (struct copse_groups_potential){
            .group = g,
            .phase = reduce ? COPSE_PHASE_REDUCE : COPSE_PHASE_BROADCAST,
            .node = j->ids[v],
            .value = from[v]};
      }
    }
  return COPSE_OK;
}

/* Copies the symmetries: the programme's cuts and potentials stand for their images too. */
static copse_status copy_symmetries(struct job *j) {
  int n_nodes = j->topology->n_nodes, n = j->symmetries.n_others;
  struct copse_groups_generator *generators;
  COPSE_DO(COPSE_ARRAY(&j->result->arena, (size_t)n, generators, j->err));
  for (int i = 0; i < n; i++) {
    const struct copse_permutation *from = &j->symmetries.generators[i];
    const char **images;
    int *groups;
    COPSE_DO(COPSE_ARRAY(&j->result->arena, (size_t)n_nodes, images, j->err));
    COPSE_DO(COPSE_ARRAY(&j->result->arena, (size_t)j->n, groups, j->err));
    memcpy(groups, from->groups, (size_t)j->n * sizeof *groups);
    for (int v = 0; v < n_nodes; v++) images[v] = j->ids[from->image[v]];
    generators[i] = (struct copse_groups_generator){images, groups};
  }
  j->result->symmetry_nodes = j->ids;
  j->result->n_symmetry_nodes = n_nodes;
  j->result->generators = generators;
  j->result->n_generators = n;
  return COPSE_OK;
}

static copse_status copy_names(struct job *j) {
  const struct copse_topology *t = j->topology;
  struct copse_groups *r = j->result;
  char sha256[COPSE_SHA256_HEX];
  COPSE_DO(copse_topology_sha256(j->topology, sha256, j->err));
  COPSE_DO(copse_arena_text(&r->arena, t->name, &r->topology_name, j->err));
  COPSE_DO(COPSE_ARRAY(&j->result->arena, (size_t)t->n_nodes, j->ids, j->err));
  for (int v = 0; v < t->n_nodes; v++)
    COPSE_DO(copse_arena_text(&r->arena, t->nodes[v].id, &j->ids[v], j->err));
  return copse_arena_text(&r->arena, sha256, &r->topology_sha256, j->err);
}

/* Sets the bound and the time to what the verifier finds of the parts. */
static copse_status set_time(struct job *j) {
  COPSE_DO(copse_verify_groups_bound(j->result, j->topology, j->options->groups_label,
                                     &j->result->bound_time_per_GB, j->err));
  if (!j->options->bound_only)
    return copse_verify_groups_time(j->result, j->topology, j->options->groups_label,
                                    &j->result->time_per_GB, j->err);
  else if (copse_q_cmp(j->result->time_per_GB, j->result->bound_time_per_GB) < 0)
    j->result->time_per_GB = j->result->bound_time_per_GB;
  return COPSE_OK;
}

static copse_status pack_groups(struct job *j, struct copse_err *err) {
  for (int g = 0; g < j->n; g++) {
    COPSE_DO(pack_group(j, g, err));
    copse_progress_report(j->options->progress, "pack", g + 1, j->n);
  }
  return COPSE_OK;
}

/* Packs once more with parts less fine where loads of exact parts over bandwidths leave 64 bits. */
static copse_status pack_all(struct job *j) {
  struct copse_err first = COPSE_ERR_INIT;
  copse_status status = pack_groups(j, &first);
  if (status == COPSE_OK) return COPSE_OK;
  if (status != COPSE_OVERFLOW) return copse_fail(j->err, status, "%s", first.text);
  j->inexact = true;
  copse_joint_free(&j->joint);
  j->joint = (struct copse_joint){0};
  COPSE_DO(run_joint(j, coarsest_whole(j->topology), &j->joint));
  return is_good(&j->joint) ? pack_groups(j, j->err) : refuse_outcome(j, &j->joint);
}

static copse_status solve_all(struct job *j) {
  size_t n = (size_t)j->n;
  if (j->n > COPSE_GROUPS_COLUMNS) { /* each has a link or two */
    j->joint = (struct copse_joint){.outcome = COPSE_JOINT_TOO_LARGE, .columns = j->n};
    return refuse_outcome(j, &j->joint);
  }
  COPSE_DO(copy_names(j));
  COPSE_DO(COPSE_ARRAY(&j->result->arena, n, j->result->members, j->err));
  j->result->n = j->n;
  COPSE_DO(COPSE_ARRAY(&j->scratch, n, j->chosen, j->err));
  COPSE_DO(COPSE_ARRAY(&j->scratch, n, j->joint_groups, j->err));
  for (int g = 0; g < j->n; g++) COPSE_DO(start_group(j, g));
  COPSE_DO(find_joint(j));
  COPSE_DO(copy_cuts(j));
  COPSE_DO(copy_potentials(j));
  COPSE_DO(copy_symmetries(j));
  if (!j->options->bound_only) COPSE_DO(pack_all(j));
  if (j->inexact) return set_time(j);
  return COPSE_OK;
}

copse_status copse_solve_groups(const struct copse_topology *topology,
                                const struct copse_group *groups, int n,
                                const struct copse_solve_groups_options *options,
                                struct copse_groups **out, struct copse_solve_seconds *seconds,
                                struct copse_err *err) {
  struct job j = {.topology = topology,
                  .groups = groups,
                  .n = n,
                  .options = options,
                  .seconds = seconds,
                  .err = err};
  copse_status status;
  *out = NULL;
  *seconds = (struct copse_solve_seconds){0};
  COPSE_TRY(copse_calloc(1, sizeof *j.result, &j.result, err));
  COPSE_TRY(solve_all(&j));
  *out = j.result;
  j.result = NULL;
out:
  for (int g = 0; j.chosen && g < n; g++) copse_topology_free(j.chosen[g]);
  copse_arena_free(&j.scratch);
  copse_symmetry_free(&j.symmetries);
  copse_instance_free(&j.instance);
  copse_joint_free(&j.joint);
  copse_joint_free(&j.unbalanced);
  copse_groups_release(j.result);
  return status;
}
