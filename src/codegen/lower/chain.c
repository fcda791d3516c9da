#include "codegen/lower/chain.h"

#include <stdlib.h>
#include <string.h>

struct maker {
  const struct copse_schedule *schedule;
  struct copse_chains *out;
  int instances;
  int *rank_of;               /* [schedule->n_nodes] -1 for relays */
  struct copse_chain *chains; /* whole ones */
  size_t n, capacity;
  struct copse_err *err;
};

static copse_status add(struct maker *m, const struct copse_chain *chain) {
  copse_status status = copse_grow(&m->chains, &m->capacity, m->n + 1, sizeof *m->chains, m->err);
  if (status == COPSE_OK) m->chains[m->n++] = *chain;
  return status;
}

static copse_status ranks_of(struct maker *m, const int *nodes, int n_nodes,
                             struct copse_chain *chain) {
  int *ranks = copse_arena_alloc(&m->out->arena, (size_t)n_nodes, sizeof *ranks);
  if (!ranks) return copse_fail_nomem(m->err);
  for (int i = 0; i < n_nodes; i++)
    if (m->rank_of[nodes[i]] >= 0) ranks[chain->n++] = m->rank_of[nodes[i]];
  chain->ranks = ranks;
  return COPSE_OK;
}

static bool same_ranks(const struct copse_chain *a, const struct copse_chain *b) {
  return a->n == b->n && memcmp(a->ranks, b->ranks, (size_t)a->n * sizeof *a->ranks) == 0;
}

/* Weights are parts of M, of which each pair has 1/n. */
static copse_status add_flow(struct maker *m, const struct copse_schedule_flow *flow) {
  struct copse_q n = {m->schedule->n_ranks, 1}, at = COPSE_Q_ZERO, width;
  size_t first = m->n;
  copse_status status = COPSE_OK;
  for (int p = 0; p < flow->n_paths; p++) { /* widths first, in hi */
    struct copse_chain chain = {.n = 0};
    size_t i = first;
    COPSE_TRY(ranks_of(m, flow->paths[p].nodes, flow->paths[p].n_nodes, &chain));
    COPSE_TRY(copse_q_mul(flow->paths[p].weight, n, &chain.hi, m->err));
    while (i < m->n && !same_ranks(&m->chains[i], &chain)) i++;
    if (i < m->n)
      COPSE_TRY(copse_q_add(m->chains[i].hi, chain.hi, &m->chains[i].hi, m->err));
    else
      COPSE_TRY(add(m, &chain));
  }
  for (size_t i = first; i < m->n; i++) {
    width = m->chains[i].hi;
    m->chains[i].lo = at;
    COPSE_TRY(copse_q_add(at, width, &at, m->err));
    m->chains[i].hi = at;
  }
out:
  return status;
}

static copse_status add_own(struct maker *m, int rank) {
  struct copse_chain chain = {.n = 0, .lo = COPSE_Q_ZERO, .hi = COPSE_Q_ONE};
  copse_status status;
  COPSE_TRY(ranks_of(m, &m->schedule->rank_nodes[rank], 1, &chain));
  COPSE_TRY(add(m, &chain));
out:
  return status;
}

static int distance(const struct maker *m, const struct copse_chain *c) {
  int n = m->schedule->n_ranks;
  return (c->ranks[c->n - 1] - c->ranks[0] + n) % n;
}

/* At any moment the ranks send to different ranks, so none is flooded. */
static int compare(const void *a, const void *b, void *ctx) {
  const struct copse_chain *x = a, *y = b;
  int dx = distance(ctx, x), dy = distance(ctx, y);
  if (dx != dy) return dx - dy;
  if (x->ranks[0] != y->ranks[0]) return x->ranks[0] - y->ranks[0];
  return copse_q_cmp(x->lo, y->lo);
}

/* The sorted chains in equal parts; a rank's own block stays whole. */
static copse_status cut(struct maker *m) {
  struct copse_q parts = {m->instances, 1}, step;
  struct copse_chains *out = m->out;
  copse_status status = COPSE_OK;
  out->chains =
      copse_arena_alloc(&out->arena, m->n * (size_t)m->instances + 1, sizeof *out->chains);
  if (!out->chains) return copse_fail_nomem(m->err);
  for (size_t i = 0; i < m->n; i++) {
    struct copse_chain part = m->chains[i];
    int n = part.n == 1 ? 1 : m->instances;
    COPSE_TRY(copse_q_sub(part.hi, part.lo, &step, m->err));
    COPSE_TRY(copse_q_div(step, parts, &step, m->err));
    for (int j = 0; j < n; j++) {
      if (j == n - 1)
        part.hi = m->chains[i].hi;
      else
        COPSE_TRY(copse_q_add(part.lo, step, &part.hi, m->err));
      out->chains[out->n_chains++] = part;
      part.lo = part.hi;
    }
  }
out:
  return status;
}

copse_status copse_chains_make(const struct copse_schedule *schedule, int instances,
                               struct copse_chains *out, struct copse_err *err) {
  struct maker m = {.schedule = schedule, .out = out, .instances = instances, .err = err};
  copse_status status = COPSE_OK;
  *out = (struct copse_chains){0};
  if (schedule->demand)
    return copse_fail(err, COPSE_UNSUPPORTED,
                      "an alltoall by demand has blocks of different sizes, which only a native "
                      "plan (--to plan) can move");
  if (schedule->n_rotations > 0)
    return copse_fail(err, COPSE_UNSUPPORTED,
                      "a compact schedule must be expanded before it is lowered");
  COPSE_TRY(copse_calloc((size_t)schedule->n_nodes, sizeof(int), &m.rank_of, err));
  for (int v = 0; v < schedule->n_nodes; v++) m.rank_of[v] = -1;
  for (int r = 0; r < schedule->n_ranks; r++) m.rank_of[schedule->rank_nodes[r]] = r;
  for (int r = 0; r < schedule->n_ranks; r++) COPSE_TRY(add_own(&m, r));
  for (int f = 0; f < schedule->n_flows; f++) COPSE_TRY(add_flow(&m, &schedule->flows[f]));
  qsort_r(m.chains, m.n, sizeof *m.chains, compare, &m);
  COPSE_TRY(cut(&m));
out:
  free(m.rank_of);
  free(m.chains);
  if (status != COPSE_OK) copse_chains_free(out);
  return status;
}

void copse_chains_free(struct copse_chains *chains) {
  copse_arena_free(&chains->arena);
  chains->n_chains = 0;
}
