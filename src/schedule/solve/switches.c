/*
 * Switches that copy or add for an allreduce: which sets of them to try, the programme that divides
 * links and shares between the sets, and its trees; then a bound for any trees that use them. The
 * reasons are in switches.h.
 */
#include "schedule/solve/switches.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "schedule/solve/policy.h"
#include "schedule/solve/shares.h"
#include "schedule/solve/trees.h"

struct job {
  const struct copse_topology *topology;
  const struct copse_solve_options *options;
  const struct copse_instance *instance;
  struct copse_schedule *schedule;
  bool *usable[2]; /* [n_nodes] counted once all the way from the ranks (to them) */
  bool *branches;  /* [n_nodes] with three neighbours or more */
  bool *local;     /* [n_nodes] with a rank for a neighbour */
  /* sets of switches that are tried: all ranks, and what trees reach besides */
  struct copse_joint_group ways[COPSE_SWITCH_WAYS];
  int n_ways;
  struct copse_joint joint;
  struct copse_solve_seconds *seconds;
  struct copse_arena scratch;
  struct copse_err *err;
};

bool copse_has_clever_switch(const struct copse_topology *topology) {
  for (int v = 0; v < topology->n_nodes; v++)
    if (topology->nodes[v].multicast || topology->nodes[v].aggregation) return true;
  return false;
}

/* ---- which switches ------------------------------------------------------------------------ */

/* Takes out switches with a way in (for those that add: out) that counts more than once, until
 * none is left. */
static void drop_beyond_relays(const struct copse_topology *t, bool adds, bool *usable) {
  for (bool again = true; again;) {
    again = false;
    for (int e = 0; e < t->n_links; e++) {
      int near = adds ? t->links[e].src : t->links[e].dst;
      int far = adds ? t->links[e].dst : t->links[e].src;
      if (!usable[near] || usable[far] || t->nodes[far].rank >= 0) continue;
      usable[near] = false;
      again = true;
    }
  }
}

static void find_neighbours(struct job *j, int *one, int *other) {
  const struct copse_topology *t = j->topology;
  for (int v = 0; v < t->n_nodes; v++) one[v] = other[v] = -1;
  for (int e = 0; e < t->n_links; e++)
    for (int i = 0; i < 2; i++) {
      int v = i ? t->links[e].dst : t->links[e].src, w = i ? t->links[e].src : t->links[e].dst;
      if (t->nodes[w].rank >= 0) j->local[v] = true;
      if (one[v] < 0 || one[v] == w)
        one[v] = w;
      else if (other[v] < 0 || other[v] == w)
        other[v] = w;
      else
        j->branches[v] = true;
    }
}

static copse_status find_switches(struct job *j) {
  const struct copse_topology *t = j->topology;
  size_t nodes = (size_t)t->n_nodes;
  int *one, *other;
  COPSE_DO(COPSE_ARRAYS(&j->scratch, nodes, bool, j->err, &j->usable[0], &j->usable[1],
                        &j->branches, &j->local));
  COPSE_DO(COPSE_ARRAYS(&j->scratch, nodes, int, j->err, &one, &other));
  for (int v = 0; v < t->n_nodes; v++) {
    j->usable[0][v] = t->nodes[v].rank < 0 && t->nodes[v].multicast;
    j->usable[1][v] = t->nodes[v].rank < 0 && t->nodes[v].aggregation;
  }
  drop_beyond_relays(t, false, j->usable[0]);
  drop_beyond_relays(t, true, j->usable[1]);
  find_neighbours(j, one, other);
  return COPSE_OK;
}

static bool in_way(const struct copse_joint_group *way, int i, int node) {
  int k = 0;
  while (k < way->n_extra[i] && way->extra[i][k] != node) k++;
  return k < way->n_extra[i];
}

/* The way before n that a permutation of the nodes (NULL: the identity) takes this one to, or -1.
 */
static int way_image(const struct job *j, int n, const int *image,
                     const struct copse_joint_group *from) {
  for (int w = 0; w < n; w++) {
    const struct copse_joint_group *to = &j->ways[w];
    bool same = true;
    for (int i = 0; i < 2; i++) {
      same = same && from->n_extra[i] == to->n_extra[i];
      for (int k = 0; k < from->n_extra[i] && same; k++) {
        int node = from->extra[i][k];
        same = in_way(to, i, image ? image[node] : node);
      }
    }
    if (same) return w;
  }
  return -1;
}

/* A way in which those of `copying` copy and those of `adding` add, as far as they can. */
static copse_status add_way(struct job *j, const bool *copying, const bool *adding) {
  const struct copse_topology *t = j->topology;
  const bool *wanted[2] = {copying, adding};
  struct copse_joint_group *way = &j->ways[j->n_ways];
  if (j->n_ways == COPSE_SWITCH_WAYS) return COPSE_OK;
  *way = (struct copse_joint_group){.n_members = t->n_ranks,
                                    .members = t->rank_nodes,
                                    .broadcasts = true,
                                    .reduces = true,
                                    .root = -1};
  for (int i = 0; i < 2; i++) {
    int *nodes;
    COPSE_DO(COPSE_ARRAY(&j->scratch, (size_t)t->n_nodes, nodes, j->err));
    for (int v = 0; v < t->n_nodes; v++)
      if (wanted[i][v] && j->usable[i][v] && j->branches[v]) nodes[way->n_extra[i]++] = v;
    way->extra[i] = nodes;
  }
  j->n_ways += way_image(j, j->n_ways, NULL, way) < 0; /* each once */
  return COPSE_OK;
}

/* The switches next to ranks if `locals`, the others if `others`, and `one` in any case. */
static copse_status add_tiers(struct job *j, bool *set, bool locals, bool others, int one) {
  for (int v = 0; v < j->topology->n_nodes; v++)
    set[v] = v == one || (j->local[v] ? locals : others);
  return add_way(j, set, set);
}

/* One or two switches: every set of them for copying with every set for adding. */
static copse_status add_all_sets(struct job *j, const int *nodes, int n, bool *copying,
                                 bool *adding) {
  for (int sets = 0; sets < 1 << 2 * n; sets++) {
    for (int i = 0; i < n; i++) {
      copying[nodes[i]] = sets >> 2 * i & 1;
      adding[nodes[i]] = sets >> 2 * i & 2;
    }
    COPSE_DO(add_way(j, copying, adding));
  }
  return COPSE_OK;
}

/* With `all`, every set, if there are few switches: *done then, or where there are more. */
static copse_status list_ways(struct job *j, bool all, bool *done) {
  size_t nodes = (size_t)j->topology->n_nodes;
  bool *copying, *adding;
  int *found, n = 0;
  COPSE_DO(COPSE_ARRAYS(&j->scratch, nodes, bool, j->err, &copying, &adding));
  COPSE_DO(COPSE_ARRAY(&j->scratch, nodes, found, j->err));
  for (int v = 0; v < j->topology->n_nodes; v++)
    if (j->branches[v] && (j->usable[0][v] || j->usable[1][v])) found[n++] = v;
  *done = all || n > COPSE_SWITCH_FEW;
  if (all) return add_all_sets(j, found, n, copying, adding);
  COPSE_DO(add_tiers(j, copying, false, false, -1));
  COPSE_DO(add_tiers(j, copying, true, false, -1));
  COPSE_DO(add_tiers(j, copying, true, true, -1));
  for (int i = 0; i < n; i++)
    if (!j->local[found[i]]) COPSE_DO(add_tiers(j, copying, true, false, found[i]));
  return COPSE_OK;
}

/* ---- the programme ------------------------------------------------------------------------- */

/* Those of the fabric's symmetries that take every way to one. */
static copse_status keep_symmetries(struct job *j, const struct copse_symmetry *found,
                                    struct copse_joint_options *options) {
  struct copse_permutation *kept;
  size_t n = (size_t)found->n_others;
  int *groups;
  COPSE_DO(COPSE_ARRAY(&j->scratch, n, kept, j->err));
  options->symmetries = kept;
  COPSE_DO(COPSE_ARRAY(&j->scratch, n * COPSE_SWITCH_WAYS, groups, j->err));
  for (size_t i = 0; i < n; i++) {
    const int *image = found->generators[i].image;
    int *images = groups + (ptrdiff_t)options->n_symmetries * COPSE_SWITCH_WAYS;
    bool good = true;
    for (int w = 0; w < j->n_ways; w++) {
      images[w] = way_image(j, j->n_ways, image, &j->ways[w]);
      good = good && images[w] >= 0;
    }
    if (good)
      kept[options->n_symmetries++] = (struct copse_permutation){.image = image, .groups = images};
  }
  return COPSE_OK;
}

static copse_status divide(struct job *j) {
  const struct copse_topology *t = j->topology;
  COPSE_AT_END(copse_symmetry_free) struct copse_symmetry found = {0};
  struct copse_joint_options options = {
      .max_columns = COPSE_SWITCH_COLUMNS, .separate = true, .progress = j->options->progress};
  double start = copse_clock_seconds();
  if (!j->options->no_symmetry && t->n_ranks <= COPSE_SYMMETRY_RANKS)
    COPSE_DO(copse_fabric_symmetries(t, &found, j->err));
  COPSE_DO(keep_symmetries(j, &found, &options));
  COPSE_DO(
      copse_joint_find(&j->instance->network, j->ways, j->n_ways, &options, &j->joint, j->err));
  j->seconds->optimum += copse_clock_seconds() - start;
  return COPSE_OK;
}

static void forget_ways(struct job *j) {
  j->n_ways = 0;
  copse_joint_free(&j->joint);
  j->joint = (struct copse_joint){0};
}

/* A few sets first; all, if these don't come to the bound. */
static copse_status choose_ways(struct job *j, struct copse_q *time, bool *found) {
  struct copse_q scale = {j->instance->scale, 1};
  bool all = false, done = false;
  *found = false;
  while (!done) {
    forget_ways(j);
    COPSE_DO(list_ways(j, all, &done));
    if (j->n_ways == 1) { /* none */
      copse_note(j->options->notes,
                 "%s: no switch is of use: one that copies or adds must be marked, and so must all "
                 "relays between it and the ranks",
                 j->options->label);
      return COPSE_OK;
    }
    COPSE_DO(divide(j));
    *found = j->joint.outcome == COPSE_JOINT_PROVED &&
             copse_q_div(scale, j->joint.rate, time, NULL) == COPSE_OK;
    done = done || (*found && copse_q_eq(*time, j->schedule->bound.time_per_GB));
    all = true;
  }
  if (!*found)
    copse_note(j->options->notes, "%s: switches that copy or add are not made use of: %s",
               j->options->label,
               j->joint.outcome == COPSE_JOINT_TOO_LARGE ? "there are too many links"
               : j->joint.outcome == COPSE_JOINT_STUCK
                   ? "the simplex method does not come to an end"
                   : "the fractions don't fit 64 bits");
  return COPSE_OK;
}

copse_status copse_solve_with_switches(const struct copse_topology *topology,
                                       const struct copse_solve_options *options,
                                       const struct copse_instance *instance,
                                       struct copse_q at_most, struct copse_schedule *schedule,
                                       struct copse_solve_seconds *seconds, bool *faster,
                                       struct copse_err *err) {
  struct job j = {.topology = topology,
                  .options = options,
                  .instance = instance,
                  .schedule = schedule,
                  .seconds = seconds,
                  .err = err};
  struct copse_q time;
  bool found;
  copse_status status;
  *faster = false;
  COPSE_TRY(find_switches(&j));
  COPSE_TRY(choose_ways(&j, &time, &found));
  *faster = found && copse_q_cmp(time, at_most) < 0;
  if (*faster && options->bound_only) schedule->time_per_GB = time;
  if (*faster && !options->bound_only)
    COPSE_TRY(copse_solve_trees_in_parts(topology, options, instance, j.joint.parts, j.ways,
                                         j.n_ways, j.joint.rate, schedule, seconds, err));
out:
  forget_ways(&j);
  copse_arena_free(&j.scratch);
  return status;
}

/* ---- the bound ----------------------------------------------------------------------------- */

void copse_mark_unbalanced(const struct copse_topology *t, bool *unbalanced) {
  for (int v = 0; v < t->n_nodes; v++)
    unbalanced[v] = t->nodes[v].multicast || t->nodes[v].aggregation;
  for (int e = 0; e < t->n_links; e++) {
    const struct copse_node *src = &t->nodes[t->links[e].src], *dst = &t->nodes[t->links[e].dst];
    if (src->multicast || src->aggregation) unbalanced[t->links[e].dst] = true;
    if (dst->multicast || dst->aggregation) unbalanced[t->links[e].src] = true;
  }
}

copse_status copse_bound_with_switches(const struct copse_topology *topology,
                                       const struct copse_solve_options *options,
                                       const struct copse_instance *instance,
                                       struct copse_schedule *schedule,
                                       struct copse_solve_seconds *seconds, struct copse_err *err) {
  COPSE_AT_END(copse_shares_free) struct copse_shares proof = {.outcome = COPSE_JOINT_UNPROVED};
  struct copse_q time, scale = {instance->scale, 1};
  COPSE_AT_END(copse_free_at) bool *unbalanced = NULL;
  double start = copse_clock_seconds();
  COPSE_DO(copse_calloc((size_t)topology->n_nodes, sizeof *unbalanced, &unbalanced, err));
  copse_mark_unbalanced(topology, unbalanced);
  COPSE_DO(copse_shares_find(topology, options, instance, COPSE_Q_ZERO, unbalanced, &proof, err));
  seconds->optimum += copse_clock_seconds() - start;
  if (proof.outcome != COPSE_JOINT_PROVED || copse_q_div(scale, proof.rate, &time, NULL))
    return COPSE_OK;
  if (copse_q_cmp(time, schedule->bound.time_per_GB) <= 0) return COPSE_OK;
  return copse_shares_bound(topology, &proof, time, schedule, err);
}
