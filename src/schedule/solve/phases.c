/* The phases of a collective as broadcast forests, exactly optimal each. */
#include "base/clock.h"
#include "base/collective.h"
#include "schedule/solve/internal.h"
#include "solver/policy.h"

void copse_solving_free_phases(struct copse_solving *b) {
  copse_forest_free(&b->broadcast.forest);
  copse_forest_free(&b->reduce.forest);
  copse_instance_free(&b->broadcast.instance);
  copse_instance_free(&b->reduce.instance);
  b->broadcast = b->reduce = (struct copse_solved_phase){0};
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

copse_status copse_solving_phase(struct copse_solving *b, bool reversed,
                                 struct copse_solved_phase *phase,
                                 struct copse_solve_seconds *seconds, struct copse_err *err) {
  const struct copse_solve_options *o = b->options;
  struct copse_forest_options options = {.k = o->k,
                                         .bound_only = o->bound_only,
                                         .progress = o->progress,
                                         .trust_from = o->trust_from,
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

static bool all_templates(const struct copse_solving *b) {
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
  copse_status status;
  COPSE_TRY(check_listed(b, err));
  if (copse_collective_broadcasts(collective) || b->mirrored)
    COPSE_TRY(copse_solving_phase(b, false, &b->broadcast, seconds, err));
  if (reduces && !b->mirrored) COPSE_TRY(copse_solving_phase(b, true, &b->reduce, seconds, err));
out:
  return status;
}

copse_status copse_solving_phases(struct copse_solving *b, struct copse_solve_seconds *seconds,
                                  struct copse_err *err) {
  copse_collective collective = b->options->collective;
  copse_status status = COPSE_OK;
  bool reduces = copse_collective_reduces(collective);
  b->mirrored = reduces && copse_instance_is_symmetric(b->topology);
  if (b->options->tolerance.num > 0 && b->options->k == 0 && !b->options->bound_only) {
    bool reversed = !copse_collective_broadcasts(collective) && !b->mirrored;
    b->chosen = *b->options;
    COPSE_TRY(copse_solving_smallest_k(b, reversed, &b->chosen.k, err));
    b->options = &b->chosen;
  }
  double start = copse_clock_seconds();
  if (!b->options->no_symmetry && b->options->root < 0)
    COPSE_TRY(copse_solve_symmetry_find(b->topology, &b->symmetry, err));
  seconds->orbits = b->symmetry.n_sinks;
  seconds->optimum += copse_clock_seconds() - start;
  b->templates =
      b->symmetry.found.n > 0 && !b->options->bound_only && !b->options->in_network &&
      (b->options->compact || b->topology->n_ranks >= copse_trust_from(b->options->trust_from));
  b->compact = b->templates && (b->options->compact || b->topology->n_ranks > COPSE_LISTED_RANKS);
  COPSE_TRY(solve_used_phases(b, seconds, err));
  if (b->templates && !all_templates(b)) { /* all phases have base roots, or none has */
    b->templates = b->compact = false;
    copse_solving_free_phases(b);
    COPSE_TRY(solve_used_phases(b, seconds, err));
  }
  const struct copse_solved_phase *any = b->broadcast.used ? &b->broadcast : &b->reduce;
  b->schedule->k = any->forest.k;
out:
  return status;
}
