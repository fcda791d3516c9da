/* The bounds that stand beside the times of baselines. */
#include <stdlib.h>
#include <string.h>

#include "base/collective.h"
#include "predict/baseline_work.h"

/* ---- the bound of another schedule ----------------------------------------------------- */

static bool flows_forward(const struct copse_baseline_work *w) {
  const struct copse_schedule *s = w->schedule;
  for (int f = 0; f < s->n_flows; f++)
    for (int p = 0; p < s->flows[f].n_paths; p++)
      for (int i = 1; i + 1 < s->flows[f].paths[p].n_nodes; i++)
        if (w->topology->nodes[s->flows[f].paths[p].nodes[i]].rank >= 0) return true;
  return false;
}

static copse_status copy_nodes(struct copse_baseline_work *w, const struct copse_schedule *like,
                               const int *from, int n, const int **to, int *n_to) {
  int *nodes = copse_arena_alloc(&w->schedule->arena, n > 0 ? (size_t)n : 1, sizeof *nodes);
  if (!nodes) return copse_fail_nomem(w->err);
  for (int i = 0; i < n; i++) {
    nodes[i] = copse_topology_find(w->topology, like->nodes[from[i]]);
    if (nodes[i] < 0)
      return copse_fail(w->err, COPSE_INVALID, "the bound's node '%s' is not in the topology",
                        like->nodes[from[i]]);
  }
  *to = nodes;
  *n_to = n;
  return COPSE_OK;
}

static copse_status copy_bound(struct copse_baseline_work *w, const struct copse_schedule *like) {
  struct copse_bound *to = &w->schedule->bound;
  const struct copse_bound *from = &like->bound;
  size_t n = from->n_lengths > 0 ? (size_t)from->n_lengths : 1;
  struct copse_schedule_length *lengths = NULL;
  copse_status status;
  to->kind = from->kind;
  to->time_per_GB = from->time_per_GB;
  COPSE_TRY(copy_nodes(w, like, from->cut, from->n_cut, &to->cut, &to->n_cut));
  COPSE_TRY(copy_nodes(w, like, from->reduce_cut, from->n_reduce_cut, &to->reduce_cut,
                       &to->n_reduce_cut));
  lengths = copse_arena_alloc(&w->schedule->arena, n, sizeof *lengths);
  if (!lengths) return copse_fail_nomem(w->err);
  for (int i = 0; i < from->n_lengths; i++) {
    lengths[i] = from->lengths[i];
    lengths[i].src = copse_topology_find(w->topology, like->nodes[from->lengths[i].src]);
    lengths[i].dst = copse_topology_find(w->topology, like->nodes[from->lengths[i].dst]);
  }
  to->lengths = lengths;
  to->n_lengths = from->n_lengths;
out:
  return status;
}

/* Whether the other schedule's bound binds this one; sets no_forward where that is why. */
static bool take_over(struct copse_baseline_work *w, const struct copse_schedule *like) {
  if (!like || like->collective != w->options->collective) return false;
  if (like->bound.kind == COPSE_BOUND_FORESTS) return false; /* baselines may be none */
  /* what no two phases one after the other can beat, two at the same time may */
  if (copse_q_cmp(w->schedule->time_per_GB, like->bound.time_per_GB) < 0) return false;
  if (like->no_forward && flows_forward(w)) return false;
  w->schedule->no_forward = like->no_forward;
  return true;
}

/* ---- cuts around one rank or host ------------------------------------------------------ */

struct cut {
  struct copse_baseline_work *w;
  char *inside; /* [n_nodes] the set under test */
  char *best;   /* [n_nodes] */
  struct copse_q best_time;
  bool found;
};

/* The bandwidth over the set's edge, outwards, or inwards for a reduction. */
static copse_status cut_bandwidth(const struct cut *c, bool entering, struct copse_q *sum) {
  const struct copse_topology *t = c->w->topology;
  *sum = COPSE_Q_ZERO;
  for (int i = 0; i < t->n_links; i++) {
    const struct copse_link *l = &t->links[i];
    if (c->inside[entering ? l->dst : l->src] && !c->inside[entering ? l->src : l->dst]) {
      copse_status status = copse_q_add(*sum, l->bandwidth, sum, NULL);
      if (status != COPSE_OK) return status;
    }
  }
  return COPSE_OK;
}

static copse_status demand_across(const struct cut *c, struct copse_q *share) {
  const struct copse_topology *t = c->w->topology;
  int64_t sum = 0;
  for (int i = 0; i < t->n_ranks; i++)
    for (int j = 0; j < t->n_ranks; j++)
      if (c->inside[t->rank_nodes[i]] && !c->inside[t->rank_nodes[j]] &&
          copse_add_overflows(sum, copse_baseline_units(c->w, i, j), &sum))
        return COPSE_OVERFLOW;
  return copse_q_make(sum, c->w->m, share, NULL);
}

/* The fraction of M that must cross, 0 where the set separates nothing that matters. */
static copse_status data_across(const struct cut *c, struct copse_q *share) {
  const struct copse_topology *t = c->w->topology;
  const struct copse_baseline_options *o = c->w->options;
  int ranks = 0;
  bool rooted = copse_collective_rooted(o->collective);
  *share = COPSE_Q_ZERO;
  if (o->collective == COPSE_ALLTOALL) return demand_across(c, share);
  for (int r = 0; r < t->n_ranks; r++) ranks += c->inside[t->rank_nodes[r]];
  if (ranks == 0 || ranks == t->n_ranks) return COPSE_OK;
  if (rooted && !c->inside[t->rank_nodes[o->root]]) return COPSE_OK;
  if (rooted || o->collective == COPSE_ALLREDUCE)
    *share = COPSE_Q_ONE;
  else
    return copse_q_make(ranks, t->n_ranks, share, NULL);
  return COPSE_OK;
}

/* A set whose sums leave 64 bits is passed over: any cut will do, the best is not needed. */
static void try_cut(struct cut *c) {
  bool reduces = copse_collective_reduces(c->w->options->collective) &&
                 c->w->options->collective != COPSE_ALLREDUCE;
  struct copse_q share, bandwidth, time;
  if (data_across(c, &share) != COPSE_OK || share.num == 0) return;
  if (cut_bandwidth(c, reduces, &bandwidth) != COPSE_OK || bandwidth.num == 0) return;
  if (copse_q_div(share, bandwidth, &time, NULL) != COPSE_OK) return;
  if (c->found && copse_q_cmp(time, c->best_time) <= 0) return;
  c->found = true;
  c->best_time = time;
  memcpy(c->best, c->inside, (size_t)c->w->topology->n_nodes);
}

static void try_cut_and_rest(struct cut *c) {
  try_cut(c);
  for (int v = 0; v < c->w->topology->n_nodes; v++) c->inside[v] = !c->inside[v];
  try_cut(c);
}

static copse_status set_cut(struct cut *c) {
  const struct copse_topology *t = c->w->topology;
  struct copse_bound *bound = &c->w->schedule->bound;
  int *cut = copse_arena_alloc(&c->w->schedule->arena, (size_t)t->n_nodes, sizeof *cut);
  if (!cut) return copse_fail_nomem(c->w->err);
  bound->kind = COPSE_BOUND_CUT;
  bound->time_per_GB = c->best_time;
  for (int v = 0; v < t->n_nodes; v++)
    if (c->best[v]) cut[bound->n_cut++] = v;
  bound->cut = cut;
  return COPSE_OK;
}

static copse_status bound_by_cuts(struct copse_baseline_work *w) {
  const struct copse_topology *t = w->topology;
  struct cut c = {.w = w, .best_time = COPSE_Q_ZERO};
  size_t n = (size_t)t->n_nodes;
  copse_status status;
  COPSE_TRY(copse_calloc(n, 1, &c.inside, w->err));
  COPSE_TRY(copse_calloc(n, 1, &c.best, w->err));
  c.best[t->rank_nodes[0]] = 1; /* proves 0, where nothing has to move */
  for (int r = 0; r < t->n_ranks; r++) {
    memset(c.inside, 0, n);
    c.inside[t->rank_nodes[r]] = 1;
    try_cut_and_rest(&c);
  }
  for (int h = 0; w->hosts.n_hosts > 1 && h < w->hosts.n_hosts; h++) {
    for (int v = 0; v < t->n_nodes; v++) c.inside[v] = w->hosts.of_node[v] == h;
    try_cut_and_rest(&c);
  }
  status = set_cut(&c);
out:
  free(c.inside);
  free(c.best);
  return status;
}

copse_status copse_baseline_bound(struct copse_baseline_work *w) {
  const struct copse_schedule *like = w->options->like;
  return take_over(w, like) ? copy_bound(w, like) : bound_by_cuts(w);
}
