/*
 * Unequal shares of a schedule's trees, and switches that copy and add: both by the joint
 * programme. docs/theory.md, "Unequal shares" and "src/schedule/".
 */
#include "schedule/solve/switches.h"

#include <string.h>

#include "base/clock.h"
#include "base/graph.h"
#include "base/memory.h"
#include "schedule/loads.h"
#include "schedule/solve/policy.h"
#include "schedule/solve/trees.h"

/* ==== unequal shares ========================================================================== */

/*
 * Unequal shares of an allreduce, from the programme of solver/joint/joint.h with one group of all
 * ranks, and the proof for a schedule's file.
 *
 * A fabric with symmetries has a programme with one column for all that they map to each other,
 * small where few kinds of ranks and links are left, as with one slow NIC among a thousand. A cut
 * of it stands for the mean over its images:
 *
 *   programme:  {h0}, weight w          file:  {h0}, {h1}, {h2}, {h3}, weight w/4 each
 *
 * Without symmetries each link has one column for both phases, and each cut is its only image.
 */

struct shares_job {
  const struct copse_network *network;
  const struct copse_symmetry *symmetries; /* NULL: ranks and links count one by one */
  const bool *unbalanced;
  struct copse_q at_least;
  int max_columns;
  const struct copse_progress *progress;
  struct copse_shares *out;
  struct copse_index_map images; /* of the cut at hand, by their sets */
  bool *image;                   /* [n_nodes] */
  bool fits;                     /* 64 bits, and COPSE_SHARES_CUTS */
  struct copse_arena scratch;
  struct copse_err *err;
};

static int n_symmetries(const struct shares_job *j) {
  return j->symmetries ? j->symmetries->n_others : 0;
}

static const int *symmetry(const struct shares_job *j, int i) {
  return j->symmetries->generators[i].image;
}

/* Solves with no share above `most` of the rate; 0/1: any. */
static copse_status solve(struct shares_job *j, struct copse_q most, struct copse_joint *out) {
  struct copse_joint_group all = {.n_members = j->network->n_terminals,
                                  .members = j->network->terminals,
                                  .broadcasts = true,
                                  .reduces = true,
                                  .root = -1,
                                  .unbalanced = j->unbalanced};
  struct copse_joint_options options = {
      .max_columns = j->max_columns,
      .n_symmetries = n_symmetries(j),
      .symmetries = j->symmetries ? j->symmetries->generators : NULL,
      .most = most,
      .whole_links = !j->symmetries && !j->unbalanced,
      .at_least = j->at_least,
      .progress = j->progress};
  return copse_joint_find(j->network, &all, 1, &options, out, j->err);
}

/* ---- images of cuts ------------------------------------------------------------------------ */

static uint64_t hash_of(const bool *set, int n) {
  uint64_t h = COPSE_HASH;
  for (int v = 0; v < n; v++) h = copse_hash(h, set[v]);
  return h;
}

static copse_status add_image(struct shares_job *j, const struct copse_joint_cut *from,
                              const bool *set) {
  size_t nodes = (size_t)j->network->n_nodes;
  uint64_t key = hash_of(set, j->network->n_nodes);
  struct copse_joint_cut image = *from;
  size_t cursor = 0;
  bool *inside;
  for (int c; (c = copse_index_map_next(&j->images, key, &cursor)) >= 0;)
    if (memcmp(j->out->cuts[c].inside, set, nodes) == 0) return COPSE_OK;
  j->fits = j->out->n_cuts < COPSE_SHARES_CUTS;
  if (!j->fits) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(&j->out->arena, nodes, inside, j->err));
  image.inside = memcpy(inside, set, nodes);
  j->out->cuts[j->out->n_cuts] = image;
  return copse_index_map_add(&j->images, key, j->out->n_cuts++, j->err);
}

/* Adds a cut's images: a cut of the joint optimum stands for the mean over all of them. */
static copse_status add_images(struct shares_job *j, const struct copse_joint_cut *cut) {
  int first = j->out->n_cuts;
  copse_index_map_free(&j->images);
  COPSE_DO(add_image(j, cut, cut->inside));
  for (int c = first; c < j->out->n_cuts && j->fits; c++)
    for (int i = 0; i < n_symmetries(j) && j->fits; i++) {
      for (int v = 0; v < j->network->n_nodes; v++)
        j->image[symmetry(j, i)[v]] = j->out->cuts[c].inside[v];
      COPSE_DO(add_image(j, cut, j->image));
    }
  struct copse_q n = {j->out->n_cuts - first, 1};
  for (int c = first; c < j->out->n_cuts && j->fits; c++)
    j->fits = copse_q_div(cut->weight, n, &j->out->cuts[c].weight, NULL) == COPSE_OK;
  return COPSE_OK;
}

/* ---- the proof ----------------------------------------------------------------------------- */

/*
 * Sets the potentials. A schedule has those of its broadcast alone. Those of the reduction, r, are
 * the same as -r there: relays have as much bandwidth in as out, so that r[dst] - r[src] over all
 * links, times their bandwidths, comes to nothing.
 */
static copse_status set_potentials(struct shares_job *j) {
  const struct copse_joint_part *part = &j->out->joint.parts[0];
  struct copse_q *to = j->out->potentials;
  size_t nodes = (size_t)j->network->n_nodes;
  int n_nodes = j->network->n_nodes, *orbit, *size;
  COPSE_DO(COPSE_ARRAYS(&j->scratch, nodes, int, j->err, &orbit, &size));
  copse_sets_init(orbit, n_nodes);
  for (int i = 0; i < n_symmetries(j); i++)
    for (int v = 0; v < n_nodes; v++) copse_sets_unite(orbit, v, symmetry(j, i)[v]);
  for (int v = 0; v < n_nodes; v++) to[v] = COPSE_Q_ZERO;
  for (int v = 0; v < n_nodes && j->fits; v++) {
    struct copse_q *sum = &to[copse_sets_find(orbit, v)], gain;
    size[copse_sets_find(orbit, v)]++;
    gain = part->broadcast_potentials[v];
    if (part->reduce_potentials)
      j->fits = copse_q_sub(gain, part->reduce_potentials[v], &gain, NULL) == COPSE_OK;
    j->fits = j->fits && copse_q_add(*sum, gain, sum, NULL) == COPSE_OK;
  }
  for (int v = 0; v < n_nodes && j->fits; v++) {
    int first = copse_sets_find(orbit, v); /* comes before v */
    to[v] = to[first];
    if (first == v)
      j->fits = copse_q_div(to[v], (struct copse_q){size[v], 1}, &to[v], NULL) == COPSE_OK;
  }
  return COPSE_OK;
}

/* Scales so that the least weight around a terminal is 1. */
static bool norm(struct shares_job *j) {
  struct copse_q *potentials = j->out->potentials;
  struct copse_q least = COPSE_Q_ZERO;
  bool fits = true;
  for (int i = 0; i < j->network->n_terminals && fits; i++) {
    struct copse_q around = COPSE_Q_ZERO;
    for (int c = 0; c < j->out->n_cuts && fits; c++)
      if (j->out->cuts[c].inside[j->network->terminals[i]])
        fits = copse_q_add(around, j->out->cuts[c].weight, &around, NULL) == COPSE_OK;
    if (i == 0 || copse_q_cmp(around, least) < 0) least = around;
  }
  fits = fits && least.num > 0;
  for (int c = 0; c < j->out->n_cuts && fits; c++)
    fits = copse_q_div(j->out->cuts[c].weight, least, &j->out->cuts[c].weight, NULL) == COPSE_OK;
  for (int v = 0; v < j->network->n_nodes && fits; v++)
    fits = copse_q_div(potentials[v], least, &potentials[v], NULL) == COPSE_OK;
  return fits;
}

static copse_status set_proof(struct shares_job *j) {
  struct copse_shares *out = j->out;
  size_t nodes = (size_t)j->network->n_nodes;
  struct copse_arena *arena = &out->arena;
  COPSE_DO(COPSE_ARRAY(arena, nodes, out->potentials, j->err));
  COPSE_DO(COPSE_ARRAY(arena, COPSE_SHARES_CUTS, out->cuts, j->err));
  COPSE_DO(COPSE_ARRAY(&j->scratch, nodes, j->image, j->err));
  for (int c = 0; c < out->joint.n_cuts && j->fits; c++)
    COPSE_DO(add_images(j, &out->joint.cuts[c]));
  if (j->fits) COPSE_DO(set_potentials(j));
  j->fits = j->fits && norm(j);
  return COPSE_OK;
}

/* ---- the shares ---------------------------------------------------------------------------- */

static bool keeps_rate(const struct shares_job *j, const struct copse_joint *joint) {
  return joint->outcome == COPSE_JOINT_PROVED && copse_q_eq(joint->rate, j->out->rate);
}

/* Chooses even shares. Whole links have them already; a programme by symmetries has them by
 * limits. */
static copse_status choose_part(struct shares_job *j) {
  struct copse_shares *out = j->out;
  int n = j->network->n_terminals;
  out->part = &out->joint.parts[0];
  for (int64_t most = 1; most < n && j->symmetries; most *= 2) {
    copse_joint_free(&out->even);
    struct copse_q limit = {most, n};
    COPSE_DO(solve(j, limit, &out->even));
    if (!keeps_rate(j, &out->even)) continue;
    out->part = &out->even.parts[0];
    break;
  }
  return COPSE_OK;
}

static copse_status find_shares(struct shares_job *j) {
  struct copse_shares *out = j->out;
  COPSE_DO(solve(j, COPSE_Q_ZERO, &out->joint));
  out->outcome =
      out->joint.outcome == COPSE_JOINT_CLOSE ? COPSE_JOINT_UNPROVED : out->joint.outcome;
  out->rate = out->joint.rate;
  if (out->outcome == COPSE_JOINT_PROVED && copse_q_cmp(out->rate, j->at_least) <= 0)
    out->outcome = COPSE_JOINT_NOT_BETTER;
  if (out->outcome != COPSE_JOINT_PROVED) return COPSE_OK;
  j->fits = true;
  if (!j->unbalanced) COPSE_DO(choose_part(j));
  COPSE_DO(set_proof(j));
  if (!j->fits) out->outcome = COPSE_JOINT_UNPROVED;
  return COPSE_OK;
}

static bool is_open(const struct copse_shares *shares) {
  return shares->outcome == COPSE_JOINT_TOO_LARGE || shares->outcome == COPSE_JOINT_STUCK ||
         shares->outcome == COPSE_JOINT_UNPROVED;
}

/* Tries by symmetries or without; COPSE_JOINT_TOO_LARGE where there are none. */
static copse_status try(const struct copse_topology *topology, bool by_symmetries,
                        struct shares_job *j) {
  COPSE_AT_END(copse_symmetry_free) struct copse_symmetry found = {0};
  *j->out = (struct copse_shares){.outcome = COPSE_JOINT_TOO_LARGE, .rate = COPSE_Q_ZERO};
  if (by_symmetries) COPSE_DO(copse_fabric_symmetries(topology, &found, j->err));
  j->symmetries = by_symmetries ? &found : NULL;
  if (by_symmetries && found.n_others == 0) return COPSE_OK;
  copse_status status = find_shares(j);
  copse_index_map_free(&j->images);
  copse_arena_free(&j->scratch);
  return status;
}

/*
 * Finds the best shares by a linear programme (solver/joint/joint.h): by symmetries if there are
 * any, which make one of ranks and links that they map to each other (their shares are the same
 * then), else one by one. Of all optimal ones it takes those of which the largest is within a
 * factor of two of the least possible, where the simplex method finds them: they make more, but
 * lower trees.
 * `instance` is the topology's, all ranks roots. at_least: a rate that is known to be possible;
 * 0/1: none. unbalanced: NULL, or [n_nodes] relays that need not be balanced, as
 * copse_mark_unbalanced has them; then the rate and its proof are all there is of the result.
 *
 * COPSE_JOINT_TOO_LARGE beyond the columns of policy.h, and of images of cuts. The caller frees
 * *out in every case. COPSE_NOMEM; COPSE_OVERFLOW where capacities leave 61 bits.
 */
static copse_status shares_find(const struct copse_topology *topology,
                                const struct copse_solve_options *options,
                                const struct copse_instance *instance, struct copse_q at_least,
                                const bool *unbalanced, struct copse_shares *out,
                                struct copse_err *err) {
  struct shares_job j = {.network = &instance->network,
                         .unbalanced = unbalanced,
                         .at_least = at_least,
                         .progress = options->progress,
                         .out = out,
                         .err = err};
  *out = (struct copse_shares){.outcome = COPSE_JOINT_TOO_LARGE};
  j.max_columns = unbalanced ? COPSE_SWITCH_COLUMNS : COPSE_SHARES_KINDS;
  if (!options->no_symmetry && topology->n_ranks <= COPSE_SYMMETRY_RANKS)
    COPSE_DO(try(topology, true, &j));
  if (!is_open(out)) return COPSE_OK;
  copse_shares_free(out);
  j.max_columns = unbalanced ? COPSE_SWITCH_COLUMNS : COPSE_SHARES_COLUMNS;
  return try(topology, false, &j);
}

/* ---- in a schedule ------------------------------------------------------------------------- */

copse_status copse_shares_find_time(const struct copse_topology *topology,
                                    const struct copse_solve_options *options,
                                    const struct copse_instance *instance, struct copse_q at_most,
                                    bool only_faster, struct copse_shares *shares,
                                    struct copse_q *time, struct copse_err *err) {
  struct copse_q scale = {instance->scale, 1}, at_least = COPSE_Q_ZERO;
  *shares = (struct copse_shares){.outcome = COPSE_JOINT_NOT_BETTER};
  if (topology->n_ranks == 1) return COPSE_OK;
  if (only_faster) COPSE_DO(copse_q_div(scale, at_most, &at_least, err));
  shares->outcome = COPSE_JOINT_TOO_LARGE;
  if (topology->n_ranks <= COPSE_SYMMETRY_RANKS)
    COPSE_DO(shares_find(topology, options, instance, at_least, NULL, shares, err));
  if (shares->outcome == COPSE_JOINT_PROVED && copse_q_div(scale, shares->rate, time, NULL))
    shares->outcome = COPSE_JOINT_UNPROVED;
  if (is_open(shares))
    copse_note(options->notes, "%s: unequal shares, which may be faster, were not %s: %s",
               options->label, shares->outcome == COPSE_JOINT_TOO_LARGE ? "tried" : "found",
               shares->outcome == COPSE_JOINT_UNPROVED ? "their fractions don't fit 64 bits"
               : shares->outcome == COPSE_JOINT_STUCK
                   ? "the simplex method does not come to an end in floating point"
               : topology->n_ranks > COPSE_SYMMETRY_RANKS
                   ? "there are too many ranks"
                   : "too many ranks and links are of different kinds");
  return COPSE_OK;
}

static copse_status copy_cut(const struct copse_topology *topology,
                             const struct copse_joint_cut *from, struct copse_arena *arena,
                             struct copse_schedule_cut *to, struct copse_err *err) {
  int *nodes;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)topology->n_nodes, nodes, err));
  to->phase = from->reduce ? COPSE_PHASE_REDUCE : COPSE_PHASE_BROADCAST;
  to->weight = from->weight;
  to->nodes = nodes;
  for (int v = 0; v < topology->n_nodes; v++)
    if (from->inside[v]) nodes[to->n_nodes++] = v;
  return COPSE_OK;
}

static copse_status set_forests_bound(const struct copse_topology *topology,
                                      const struct copse_shares *shares, struct copse_q time,
                                      struct copse_schedule *schedule, struct copse_err *err) {
  struct copse_arena *arena = &schedule->arena;
  struct copse_schedule_cut *cuts;
  struct copse_schedule_potential *potentials;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)shares->n_cuts, cuts, err));
  COPSE_DO(COPSE_ARRAY(arena, (size_t)topology->n_nodes, potentials, err));
  schedule->bound = (struct copse_bound){
      .kind = COPSE_BOUND_FORESTS, .time_per_GB = time, .cuts = cuts, .potentials = potentials};
  for (int i = 0; i < shares->n_cuts; i++)
    COPSE_DO(copy_cut(topology, &shares->cuts[i], arena, &cuts[schedule->bound.n_cuts++], err));
  for (int v = 0; v < topology->n_nodes; v++)
    if (shares->potentials[v].num != 0)
      potentials[schedule->bound.n_potentials++] =
          (struct copse_schedule_potential){v, shares->potentials[v]};
  return COPSE_OK;
}

copse_status copse_shares_bound(const struct copse_topology *topology,
                                const struct copse_solve_options *options,
                                const struct copse_shares *shares, struct copse_q time,
                                struct copse_schedule *schedule, struct copse_err *err) {
  struct copse_bound forests;
  COPSE_DO(set_forests_bound(topology, shares, time, schedule, err));
  forests = schedule->bound;
  COPSE_DO(copse_narrowest_bound(topology, options, schedule, err));
  if (copse_q_cmp(schedule->bound.time_per_GB, time) >= 0) return COPSE_OK;
  forests.cut = schedule->bound.cut;
  forests.n_cut = schedule->bound.n_cut;
  schedule->bound = forests;
  return COPSE_OK;
}

/* Finds what must leave rank 0, or `reversed` come to it: the time, and what lies on its side of
 * the narrowest cut, from where data leave. */
static copse_status root_bound(const struct copse_topology *topology,
                               const struct copse_solve_options *options, bool reversed,
                               struct copse_schedule *schedule, struct copse_bound *bound,
                               struct copse_err *err) {
  COPSE_AT_END(copse_instance_free) struct copse_instance instance = {0};
  COPSE_AT_END(copse_optimum_free) struct copse_optimum optimum = {.x = COPSE_Q_ZERO};
  int *nodes;
  *bound = (struct copse_bound){.kind = COPSE_BOUND_CUT, .time_per_GB = COPSE_Q_ZERO};
  COPSE_DO(copse_instance_make(topology, options->label, 0, reversed, &instance, err));
  instance.network.threads = options->threads;
  COPSE_DO(copse_optimum_find(&instance.network, options->progress, &optimum, err));
  COPSE_DO(COPSE_ARRAY(&schedule->arena, (size_t)topology->n_nodes, nodes, err));
  bound->cut = nodes;
  for (int v = 0; v < topology->n_nodes; v++)
    if (optimum.in_cut[v] != reversed) nodes[bound->n_cut++] = v;
  if (optimum.x.num == 0) return COPSE_OK; /* a single rank */
  return copse_q_div((struct copse_q){instance.scale, 1}, optimum.x, &bound->time_per_GB, err);
}

copse_status copse_solve_best_time(const struct copse_topology *topology,
                                   const struct copse_solve_options *options, struct copse_q *time,
                                   struct copse_schedule **made, struct copse_err *err) {
  struct copse_solve_options exact = *options;
  struct copse_schedule *best = NULL;
  struct copse_solve_seconds ignored;
  *made = NULL;
  exact.k = 0;
  exact.tolerance = COPSE_Q_ZERO;
  exact.bound_only = !copse_has_clever_switch(topology);
  COPSE_DO(copse_solve_schedule(topology, &exact, &best, &ignored, err));
  *time = best->time_per_GB;
  if (exact.bound_only)
    copse_schedule_free(best);
  else
    *made = best;
  return COPSE_OK;
}

copse_status copse_narrowest_bound(const struct copse_topology *topology,
                                   const struct copse_solve_options *options,
                                   struct copse_schedule *schedule, struct copse_err *err) {
  struct copse_bound out_of, into;
  COPSE_DO(root_bound(topology, options, false, schedule, &out_of, err));
  COPSE_DO(root_bound(topology, options, true, schedule, &into, err));
  schedule->bound = copse_q_cmp(out_of.time_per_GB, into.time_per_GB) >= 0 ? out_of : into;
  return COPSE_OK;
}

/* ==== switches that copy and add ============================================================== */

/*
 * Switches that copy or add for an allreduce: which sets of them to try, the programme that divides
 * links and shares between the sets, and its trees; then a bound for any trees that use them. The
 * reasons are in switches.h.
 */

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

/* Finds the way before n that a permutation of the nodes (NULL: the identity) takes this one to, or
 * -1. */
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

/* Adds a way in which the switches of `copying` copy and the switches of `adding` add, as far as
 * they can. */
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

/* Adds the way in which these switches copy and add: switches next to ranks if `locals`, all others
 * if `others`, and the switch `one`. */
static copse_status add_tiers(struct job *j, bool *set, bool locals, bool others, int one) {
  for (int v = 0; v < j->topology->n_nodes; v++)
    set[v] = v == one || (j->local[v] ? locals : others);
  return add_way(j, set, set);
}

/* Adds, of one or two switches, every set of them for copying with every set for adding. */
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

/* Lists ways; with `all`, every set, if there are few switches: *done then, or where there are
 * more. */
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

/* Keeps the fabric's symmetries that take every way to a way. */
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

/* Tries a few sets first; all, if these don't come to the bound. */
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

static void end_job(struct job *j) {
  forget_ways(j);
  copse_arena_free(&j->scratch);
}

copse_status copse_solve_with_switches(const struct copse_topology *topology,
                                       const struct copse_solve_options *options,
                                       const struct copse_instance *instance,
                                       struct copse_q at_most, struct copse_schedule *schedule,
                                       struct copse_solve_seconds *seconds, bool *faster,
                                       struct copse_err *err) {
  COPSE_AT_END(end_job)
  struct job j = {.topology = topology,
                  .options = options,
                  .instance = instance,
                  .schedule = schedule,
                  .seconds = seconds,
                  .err = err};
  struct copse_q time;
  bool found;
  *faster = false;
  COPSE_DO(find_switches(&j));
  COPSE_DO(choose_ways(&j, &time, &found));
  *faster = found && copse_q_cmp(time, at_most) < 0;
  if (*faster && options->bound_only) schedule->time_per_GB = time;
  const struct copse_tree_parts parts = {j.joint.parts, j.n_ways, j.joint.rate, j.ways};
  if (*faster && !options->bound_only)
    COPSE_DO(
        copse_solve_trees_in_parts(topology, options, instance, &parts, schedule, seconds, err));
  return COPSE_OK;
}

copse_status copse_list_switches(const struct copse_topology *topology, struct copse_schedule *s,
                                 struct copse_err *err) {
  int *copying, *adding, n = topology->n_nodes;
  bool *copies, *adds, counts;
  COPSE_DO(COPSE_ARRAYS(&s->arena, (size_t)n, int, err, &copying, &adding));
  COPSE_DO(COPSE_ARRAYS(&s->arena, (size_t)n, bool, err, &copies, &adds));
  COPSE_DO(copse_tree_switches(topology, s->trees, (size_t)s->n_trees, s->time_per_GB, copies, adds,
                               &counts, err));
  for (int v = 0; v < n && counts; v++) {
    if (copies[v]) copying[s->n_copying++] = v;
    if (adds[v]) adding[s->n_adding++] = v;
  }
  s->copying = copying;
  s->adding = adding;
  return COPSE_OK;
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
  COPSE_DO(shares_find(topology, options, instance, COPSE_Q_ZERO, unbalanced, &proof, err));
  seconds->optimum += copse_clock_seconds() - start;
  if (proof.outcome != COPSE_JOINT_PROVED || copse_q_div(scale, proof.rate, &time, NULL))
    return COPSE_OK;
  if (copse_q_cmp(time, schedule->bound.time_per_GB) <= 0) return COPSE_OK;
  return set_forests_bound(topology, &proof, time, schedule, err);
}
