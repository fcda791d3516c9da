#include "solver/trees/split_internal.h"

#include <string.h>

#include "base/memory.h"

int copse_splitter_copy_neighbours(struct copse_flow_neighbours list, int *nodes) {
  memcpy(nodes, list.nodes, (size_t)list.n * sizeof *nodes);
  return list.n;
}

bool copse_splitter_is_empty(struct copse_splitter *s, int w) {
  return copse_flow_entering(s->flow, w).n == 0 && copse_flow_leaving(s->flow, w).n == 0;
}

/* Changes the flow graph by +-amount of a step; loops (u = t) just vanish. A cut loses the
 * amount if it has w on one side, u and t on the other. */
static copse_status change(struct copse_splitter *s, int w, const struct copse_split_step *step,
                           int64_t amount, struct copse_err *err) {
  copse_status status;
  COPSE_TRY(copse_flow_change(s->flow, step->u, w, -amount, err));
  COPSE_TRY(copse_flow_change(s->flow, w, step->t, -amount, err));
  if (step->u != step->t) COPSE_TRY(copse_flow_change(s->flow, step->u, step->t, amount, err));
  const unsigned char *of_u = copse_cuts_of(&s->cuts, step->u), *of_w = copse_cuts_of(&s->cuts, w),
                      *of_t = copse_cuts_of(&s->cuts, step->t);
  for (int c = 0; c < s->cuts.n; c++)
    if ((of_u[c] ^ of_w[c]) & (of_t[c] ^ of_w[c])) s->cuts.slack[c] -= amount;
out:
  return status;
}

int64_t copse_splitter_spared(const struct copse_splitter *s, int w,
                              const struct copse_split_step *step) {
  const unsigned char *of_u = copse_cuts_of(&s->cuts, step->u), *of_w = copse_cuts_of(&s->cuts, w),
                      *of_t = copse_cuts_of(&s->cuts, step->t);
  int64_t amount = step->amount;
  for (int c = 0; c < s->cuts.n; c++)
    if (((of_u[c] ^ of_w[c]) & (of_t[c] ^ of_w[c])) && s->cuts.slack[c] < amount)
      amount = s->cuts.slack[c];
  return amount > 0 ? amount : 0;
}

copse_status copse_splitter_take(struct copse_splitter *s, int w, struct copse_split_step step,
                                 struct copse_err *err) {
  copse_status status = COPSE_OK;
  if (step.amount == 0) return COPSE_OK;
  COPSE_TRY(change(s, w, &step, step.amount, err));
  COPSE_TRY(copse_grow(&s->taken, &s->taken_capacity, s->n_taken + 1, sizeof *s->taken, err));
  s->taken[s->n_taken++] = (struct copse_split_taken){w, step};
out:
  return status;
}

copse_status copse_splitter_commit(struct copse_splitter *s, struct copse_err *err) {
  copse_status status = COPSE_OK;
  for (size_t i = 0; i < s->n_taken; i++) {
    const struct copse_split_taken *taken = &s->taken[i];
    COPSE_TRY(copse_paths_split(s->paths, taken->step.u, taken->w, taken->step.t,
                                taken->step.amount, err));
  }
  s->n_taken = 0;
out:
  return status;
}

copse_status copse_splitter_undo(struct copse_splitter *s, size_t keep, struct copse_err *err) {
  copse_status status = COPSE_OK;
  while (s->n_taken > keep) {
    const struct copse_split_taken *taken = &s->taken[--s->n_taken];
    COPSE_TRY(change(s, taken->w, &taken->step, -taken->step.amount, err));
  }
out:
  return status;
}

void copse_splitter_learn(struct copse_splitter *s, const struct copse_sink_cut *cut, int w) {
  int64_t slack = cut->flows - s->demand;
  copse_cuts_add(&s->cuts, cut->inside, slack);
  if (w < 0) return;
  cut->inside[w] = !cut->inside[w];
  copse_cuts_add(&s->cuts, cut->inside, slack);
}

void copse_splitter_to_front(struct copse_splitter *s, int i) {
  int terminal = s->order[i];
  memmove(s->order + 1, s->order, (size_t)i * sizeof *s->order);
  s->order[0] = terminal;
}

copse_status copse_splitter_ask(struct copse_splitter *s, int from, int most, bool tight,
                                struct copse_err *err) {
  struct copse_sink_question question = {.source = s->network->n_nodes,
                                         .demand = s->demand,
                                         .sinks = s->order + from,
                                         .n_sinks = s->network->n_terminals - from,
                                         .most = most,
                                         .tight = tight};
  return copse_sinks_ask(&s->sinks, s->flow, &question, err);
}

copse_status copse_splitter_all_served(struct copse_splitter *s, bool *served,
                                       struct copse_err *err) {
  copse_status status;
  COPSE_TRY(copse_splitter_ask(s, 0, 1, false, err));
  *served = s->sinks.n_cuts == 0;
  if (!*served) {
    if (s->many_pairs) copse_splitter_learn(s, &s->sinks.cuts[0], -1);
    copse_splitter_to_front(s, s->sinks.cuts[0].place);
  }
out:
  return status;
}

copse_status copse_splitter_take_largest(struct copse_splitter *s, int w,
                                         struct copse_split_step step, struct copse_err *err) {
  copse_status status;
  step.amount = copse_splitter_spared(s, w, &step);
  if (step.amount == 0) return COPSE_OK;
  COPSE_TRY(change(s, w, &step, step.amount, err));
  for (int from = 0; from < s->network->n_terminals && step.amount > 0;) {
    COPSE_TRY(copse_splitter_ask(s, from, 1, false, err));
    if (s->sinks.n_cuts == 0) break;
    const struct copse_sink_cut *cut = &s->sinks.cuts[0];
    int64_t less = s->demand - cut->flows;
    copse_splitter_learn(s, cut, -1);
    if (less > step.amount)
      return copse_fail(err, COPSE_INTERNAL, "edge splitting: the network can't carry its trees");
    COPSE_TRY(change(s, w, &step, -less, err));
    step.amount -= less;
    copse_splitter_to_front(s, from + cut->place);
    from += cut->place + 1;
  }
  if (step.amount > 0) COPSE_TRY(copse_paths_split(s->paths, step.u, w, step.t, step.amount, err));
out:
  return status;
}

/* No flow need be asked where that is known. */
static bool breaks_known_cut(const struct copse_splitter *s) {
  for (int c = 0; c < s->cuts.n; c++)
    if (s->cuts.slack[c] < 0) return true;
  return false;
}

copse_status copse_splitter_try(struct copse_splitter *s, int w, size_t from, size_t to,
                                struct copse_err *err) {
  copse_status status = COPSE_OK;
  bool served;
  if (from == to) return COPSE_OK;
  for (size_t i = from; i < to; i++) COPSE_TRY(change(s, w, &s->steps[i], s->steps[i].amount, err));
  served = !breaks_known_cut(s);
  if (served) COPSE_TRY(copse_splitter_all_served(s, &served, err));
  if (served) {
    for (size_t i = from; i < to; i++)
      COPSE_TRY(
          copse_paths_split(s->paths, s->steps[i].u, w, s->steps[i].t, s->steps[i].amount, err));
    return COPSE_OK;
  }
  for (size_t i = from; i < to; i++)
    COPSE_TRY(change(s, w, &s->steps[i], -s->steps[i].amount, err));
  if (to - from == 1) return COPSE_OK; /* left for the pairwise rule */
  COPSE_TRY(copse_splitter_try(s, w, from, from + (to - from) / 2, err));
  COPSE_TRY(copse_splitter_try(s, w, from + (to - from) / 2, to, err));
out:
  return status;
}
