/* The solver's forests as trees of a schedule. */
#include "base/collective.h"
#include "schedule/solve/internal.h"

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
  copse_status status;
  int64_t whole = 0;
  struct copse_schedule_edge *edges = copse_solving_take(b, n, sizeof *edges);
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

copse_status copse_solving_trees(struct copse_solving *b, struct copse_err *err) {
  const struct copse_solved_phase *reduce = b->mirrored ? &b->broadcast : &b->reduce;
  bool reduces = copse_collective_reduces(b->options->collective);
  bool broadcasts = copse_collective_broadcasts(b->options->collective);
  int n_reduce = reduces ? reduce->forest.n_trees : 0;
  int n_broadcast = broadcasts ? b->broadcast.forest.n_trees : 0;
  copse_status status = COPSE_OK;
  struct copse_schedule_tree *trees = copse_solving_take(b, n_reduce + n_broadcast, sizeof *trees);
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
