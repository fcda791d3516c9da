#include "schedule/solve/shares.h"

#include "base/memory.h"
#include "schedule/solve/shares_symmetry.h"

/* Kinds of ranks and links, or where there are no symmetries ranks and links that may bind: beyond,
 * the simplex method takes minutes. */
#define MOST_KINDS 3000
#define MOST_COLUMNS 2600

/* By symmetries if there are any: shares that are alike make fewer and lower trees. */
static copse_status find(const struct copse_topology *topology,
                         const struct copse_solve_options *options,
                         const struct copse_instance *instance, struct copse_q at_least,
                         struct copse_shares *shares, struct copse_err *err) {
  struct copse_shares_options search = {
      .at_least = at_least, .max_columns = MOST_KINDS, .progress = options->progress};
  copse_status status;
  shares->outcome = COPSE_SHARES_TOO_LARGE;
  if (!options->no_symmetry)
    COPSE_TRY(copse_free_shares_by_symmetry(topology, instance, &search, NULL, shares, err));
  if (shares->outcome != COPSE_SHARES_TOO_LARGE && shares->outcome != COPSE_SHARES_UNPROVED)
    goto out;
  copse_shares_free(shares);
  search.max_columns = MOST_COLUMNS;
  status = copse_shares_find(&instance->network, &search, shares, err);
out:
  return status;
}

copse_status copse_free_shares_find(const struct copse_topology *topology,
                                    const struct copse_solve_options *options,
                                    const struct copse_instance *instance, struct copse_q at_most,
                                    bool only_faster, struct copse_shares *shares,
                                    struct copse_q *time, struct copse_err *err) {
  struct copse_q scale = {instance->scale, 1}, at_least = COPSE_Q_ZERO;
  copse_status status;
  *shares = (struct copse_shares){.outcome = COPSE_SHARES_NOT_BETTER};
  if (topology->n_ranks == 1) return COPSE_OK;
  if (only_faster) COPSE_TRY(copse_q_div(scale, at_most, &at_least, err));
  shares->outcome = COPSE_SHARES_TOO_LARGE;
  if (topology->n_ranks <= COPSE_SYMMETRY_RANKS)
    COPSE_TRY(find(topology, options, instance, at_least, shares, err));
  if (shares->outcome == COPSE_SHARES_PROVED && copse_q_div(scale, shares->rate, time, NULL))
    shares->outcome = COPSE_SHARES_UNPROVED;
  if (shares->outcome == COPSE_SHARES_TOO_LARGE || shares->outcome == COPSE_SHARES_UNPROVED)
    copse_note(options->notes, "%s: unequal shares, which may be faster, were not tried: %s",
               options->label,
               shares->outcome == COPSE_SHARES_UNPROVED ? "their fractions don't fit 64 bits"
               : topology->n_ranks > COPSE_SYMMETRY_RANKS
                   ? "there are too many ranks"
                   : "too many ranks and links are of different kinds");
out:
  return status;
}

void copse_free_shares_note(const struct copse_solve_options *options, struct copse_q time) {
  char text[COPSE_Q_TEXT];
  copse_note(
      options->notes,
      "%s: unequal shares would take %s s/GB, but their trees are made for at most %d ranks; "
      "these have equal shares",
      options->label, copse_q_text(time, text), COPSE_FREE_SHARES_RANKS);
}

copse_status copse_free_shares_instance(const struct copse_instance *instance,
                                        const int64_t *weights, const int64_t *capacities,
                                        bool reduce, struct copse_instance *out,
                                        struct copse_err *err) {
  const struct copse_network *from = &instance->network;
  copse_status status;
  *out = (struct copse_instance){.network = *from, .scale = 1};
  out->network.n_links = out->network.n_roots = out->network.n_sinks = 0;
  out->network.sinks = NULL; /* equal weights only make ranks of an orbit alike */
  COPSE_TRY(copse_calloc((size_t)from->n_links, sizeof *out->links, &out->links, err));
  COPSE_TRY(copse_calloc((size_t)from->n_terminals, sizeof *out->roots, &out->roots, err));
  out->network.links = out->links;
  out->network.roots = out->roots;
  for (int e = 0; e < from->n_links; e++) {
    const struct copse_net_link *link = &from->links[e];
    if (capacities[e] > 0)
      out->links[out->network.n_links++] = (struct copse_net_link){
          reduce ? link->dst : link->src, reduce ? link->src : link->dst, capacities[e]};
  }
  for (int i = 0; i < from->n_terminals; i++)
    if (weights[i] > 0)
      out->roots[out->network.n_roots++] = (struct copse_net_root){from->terminals[i], weights[i]};
out:
  return status;
}

static copse_status copy_cut(const struct copse_topology *topology,
                             const struct copse_shares_cut *from, struct copse_schedule *schedule,
                             struct copse_schedule_cut *to, struct copse_err *err) {
  int *nodes = copse_arena_alloc(&schedule->arena, (size_t)topology->n_nodes, sizeof *nodes);
  if (!nodes) return copse_fail_nomem(err);
  to->phase = from->reduce ? COPSE_PHASE_REDUCE : COPSE_PHASE_BROADCAST;
  to->weight = from->weight;
  to->nodes = nodes;
  for (int v = 0; v < topology->n_nodes; v++)
    if (from->inside[v]) nodes[to->n_nodes++] = v;
  return COPSE_OK;
}

copse_status copse_free_shares_bound(const struct copse_topology *topology,
                                     const struct copse_shares *shares, struct copse_q time,
                                     struct copse_schedule *schedule, struct copse_err *err) {
  copse_status status = COPSE_OK;
  struct copse_schedule_cut *cuts =
      copse_arena_alloc(&schedule->arena, (size_t)shares->n_cuts, sizeof *cuts);
  struct copse_schedule_potential *potentials =
      copse_arena_alloc(&schedule->arena, (size_t)topology->n_nodes, sizeof *potentials);
  if (!cuts || !potentials) return copse_fail_nomem(err);
  schedule->bound = (struct copse_bound){
      .kind = COPSE_BOUND_FORESTS, .time_per_GB = time, .cuts = cuts, .potentials = potentials};
  for (int i = 0; i < shares->n_cuts; i++)
    COPSE_TRY(copy_cut(topology, &shares->cuts[i], schedule, &cuts[schedule->bound.n_cuts++], err));
  for (int v = 0; v < topology->n_nodes; v++)
    if (shares->potentials[v].num != 0)
      potentials[schedule->bound.n_potentials++] =
          (struct copse_schedule_potential){v, shares->potentials[v]};
out:
  return status;
}
