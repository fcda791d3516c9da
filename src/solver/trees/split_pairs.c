#include "solver/trees/split_internal.h"

/* The pairs of links into w and out of it, each once: those that lead back last. */
struct pairs {
  int w, n_in, n_out; /* in s->entering, s->leaving */
  int n;
};

static struct copse_split_step step_of_pair(const struct copse_splitter *s,
                                            const struct pairs *pairs, int at) {
  int i = at / pairs->n_out % pairs->n_in, j = at % pairs->n_out;
  int u = s->entering[i], t = s->leaving[(i + pairs->n_out / 2 + j) % pairs->n_out];
  struct copse_split_step step = {u, t, 0};
  if ((u == t) == (at >= pairs->n_in * pairs->n_out))
    step.amount = copse_smaller(copse_flow_capacity(s->flow, u, pairs->w),
                                copse_flow_capacity(s->flow, pairs->w, t));
  return step;
}

/*
 * As much of each pair as the known cuts spare, and one proof for all. Where it holds, each alone
 * would have been safe, for splitting never widens a cut; else nothing is changed.
 */
static copse_status try_pairs(struct copse_splitter *s, const struct pairs *pairs, int from, int to,
                              bool *served, struct copse_err *err) {
  copse_status status = COPSE_OK;
  *served = true;
  for (int at = from; at < to; at++) {
    struct copse_split_step step = step_of_pair(s, pairs, at);
    if (step.amount > 0) step.amount = copse_splitter_spared(s, pairs->w, &step);
    COPSE_TRY(copse_splitter_take(s, pairs->w, step, err));
  }
  if (s->n_taken == 0) return COPSE_OK;
  COPSE_TRY(copse_splitter_all_served(s, served, err));
  if (*served) return copse_splitter_commit(s, err);
  status = copse_splitter_undo(s, 0, err);
out:
  return status;
}

/* So many pairs under one proof; twice as many after one that held. */
#define PAIRS_AT_ONCE 8

copse_status copse_splitter_pairwise(struct copse_splitter *s, int w, struct copse_err *err) {
  copse_status status = COPSE_OK;
  struct pairs pairs = {.w = w};
  pairs.n_in = copse_splitter_copy_neighbours(copse_flow_entering(s->flow, w), s->entering);
  pairs.n_out = copse_splitter_copy_neighbours(copse_flow_leaving(s->flow, w), s->leaving);
  pairs.n = 2 * pairs.n_in * pairs.n_out;
  for (int at = 0, many = s->many_pairs ? PAIRS_AT_ONCE : 1; at < pairs.n;) {
    int to = pairs.n - at > many ? at + many : pairs.n;
    bool served = false;
    if (s->many_pairs) COPSE_TRY(try_pairs(s, &pairs, at, to, &served, err));
    if (!served && to - at > 1) {
      many = (to - at) / 2;
      continue;
    }
    if (!served) COPSE_TRY(copse_splitter_take_largest(s, w, step_of_pair(s, &pairs, at), err));
    if (s->many_pairs) many = served ? 2 * (to - at) : PAIRS_AT_ONCE;
    at = to;
  }
  if (!copse_splitter_is_empty(s, w))
    return copse_fail(err, COPSE_INTERNAL, "edge splitting: relay %d keeps links", w);
out:
  return status;
}
