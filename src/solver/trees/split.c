#include "solver/trees/split.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/rational.h"
#include "solver/trees/split_internal.h"

static int compare_int(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* The distinct neighbours of w, in or out, sorted; in s->members. */
static int collect_neighbours(struct copse_splitter *s, int w) {
  int n = copse_splitter_copy_neighbours(copse_flow_entering(s->flow, w), s->members);
  struct copse_flow_neighbours leaving = copse_flow_leaving(s->flow, w);
  for (int i = 0; i < leaving.n; i++)
    if (copse_flow_capacity(s->flow, leaving.nodes[i], w) == 0) s->members[n++] = leaving.nodes[i];
  qsort(s->members, (size_t)n, sizeof *s->members, compare_int);
  return n;
}

/* The most that is left for u -> w -> t, by trust; within the known cuts where asked. */
static copse_status take_all(struct copse_splitter *s, int u, int w, int t, bool within_cuts,
                             struct copse_err *err) {
  struct copse_split_step step = {
      u, t, copse_smaller(copse_flow_capacity(s->flow, u, w), copse_flow_capacity(s->flow, w, t))};
  if (step.amount > 0 && within_cuts) step.amount = copse_splitter_spared(s, w, &step);
  return copse_splitter_take(s, w, step, err);
}

/*
 * A balanced relay with at most two neighbours: passing through is all it is good for,
 * and every cut keeps its value, so no flow is asked.
 */
static copse_status contract(struct copse_splitter *s, int w, int n, struct copse_err *err) {
  copse_status status = COPSE_OK;
  int a = s->members[0], b = s->members[n - 1];
  if (n == 2) {
    COPSE_TRY(take_all(s, a, w, b, false, err));
    COPSE_TRY(take_all(s, b, w, a, false, err));
  }
  COPSE_TRY(take_all(s, a, w, a, false, err));
  if (n == 2) COPSE_TRY(take_all(s, b, w, b, false, err));
out:
  return status;
}

/* Contracting one relay can leave the next with two neighbours, hence the repetition. */
static copse_status contract_chains(struct copse_splitter *s, struct copse_err *err) {
  copse_status status = COPSE_OK;
  for (bool again = true; again;) {
    again = false;
    for (int w = 0; w < s->network->n_nodes; w++) {
      if (s->is_terminal[w]) continue;
      int n = collect_neighbours(s, w);
      if (n == 0 || n > 2) continue;
      COPSE_TRY(contract(s, w, n, err));
      COPSE_TRY(copse_splitter_commit(s, err));
      again = true;
    }
  }
  copse_flow_compact(s->flow);
out:
  return status;
}

/* The guess as far as the known cuts allow, then any pairs; unproved. */
static copse_status take_within_cuts(struct copse_splitter *s, int w, struct copse_err *err) {
  copse_status status = COPSE_OK;
  for (size_t i = 0; i < s->n_steps; i++) {
    struct copse_split_step step = s->steps[i];
    step.amount = copse_splitter_spared(s, w, &step);
    COPSE_TRY(copse_splitter_take(s, w, step, err));
  }
  int n_in = copse_splitter_copy_neighbours(copse_flow_entering(s->flow, w), s->entering);
  int n_out = copse_splitter_copy_neighbours(copse_flow_leaving(s->flow, w), s->leaving);
  for (int loops = 0; loops < 2; loops++)
    for (int i = 0; i < n_in; i++)
      for (int j = 0; j < n_out; j++) {
        int u = s->entering[i], t = s->leaving[(i + n_out / 2 + j) % n_out];
        if ((u == t) == (loops == 1)) COPSE_TRY(take_all(s, u, w, t, true, err));
      }
out:
  return status;
}

/* So many broken cuts are learned from one attempt, and so many attempts made for a relay. */
#define CUTS_PER_ATTEMPT 16
#define MOST_ATTEMPTS 24

/* Whether all terminals are served with relay w gone; the cuts that are broken are learned. */
static copse_status check_and_learn(struct copse_splitter *s, int w, bool *served,
                                    struct copse_err *err) {
  copse_status status;
  COPSE_TRY(copse_splitter_ask(s, 0, CUTS_PER_ATTEMPT, false, err));
  for (int i = 0; i < s->sinks.n_cuts; i++) {
    copse_splitter_learn(s, &s->sinks.cuts[i], w);
    copse_splitter_to_front(s, s->sinks.cuts[i].place);
  }
  *served = s->sinks.n_cuts == 0;
out:
  return status;
}

/* The tight cuts nearest to the terminals: hosts, as a rule. Nothing is split yet, or all
 * that is has been proved. */
static copse_status learn_tight(struct copse_splitter *s, struct copse_err *err) {
  copse_status status;
  COPSE_TRY(copse_splitter_ask(s, 0, s->network->n_terminals, true, err));
  for (int i = 0; i < s->sinks.n_cuts; i++) copse_splitter_learn(s, &s->sinks.cuts[i], -1);
out:
  return status;
}

/*
 * The whole relay at once within the known cuts, proved; again with the cuts that the proof
 * found broken. Leaves the relay as it was where that does not get there.
 */
static copse_status split_by_cuts(struct copse_splitter *s, int w, bool *done,
                                  struct copse_err *err) {
  copse_status status = COPSE_OK;
  *done = false;
  for (int attempt = 0; attempt < MOST_ATTEMPTS; attempt++) {
    COPSE_TRY(take_within_cuts(s, w, err));
    bool empty = copse_splitter_is_empty(s, w), served;
    COPSE_TRY(check_and_learn(s, empty ? w : -1, &served, err));
    *done = served; /* proved, though perhaps not all of the relay */
    if (served) return copse_splitter_commit(s, err);
    COPSE_TRY(copse_splitter_undo(s, 0, err));
  }
out:
  return status;
}

static copse_status split_relay(struct copse_splitter *s, int w, struct copse_err *err) {
  copse_status status = COPSE_OK;
  int n = collect_neighbours(s, w);
  bool done = false;
  if (n == 0) return COPSE_OK;
  if (n > 2) {
    COPSE_TRY(copse_splitter_guess(s, w, n, err));
    if (s->trusts) COPSE_TRY(split_by_cuts(s, w, &done, err));
    if (!done) COPSE_TRY(copse_splitter_try(s, w, 0, s->n_steps, err));
    COPSE_TRY(copse_splitter_pairwise(s, w, err));
  } else {
    COPSE_TRY(contract(s, w, n, err));
    COPSE_TRY(copse_splitter_commit(s, err));
  }
  copse_flow_compact(s->flow);
out:
  return status;
}

/* Slowest first: a network switch is split while its hosts still are small stars. */
static int slowest_relay(struct copse_splitter *s) {
  int slowest = -1;
  int64_t least = 0;
  for (int w = 0; w < s->network->n_nodes; w++) {
    if (s->is_terminal[w] || copse_flow_entering(s->flow, w).n == 0) continue;
    int64_t fastest = copse_splitter_fastest_link(s, w);
    if (slowest >= 0 && fastest >= least) continue;
    slowest = w;
    least = fastest;
  }
  return slowest;
}

/* Numbers relays of equally many links. */
static copse_status take_turns(struct copse_splitter *s, struct copse_err *err) {
  const struct copse_network *network = s->network;
  int *links = NULL, *seen = NULL;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)network->n_nodes, sizeof *links, &links, err));
  COPSE_TRY(copse_calloc((size_t)network->n_links + 1, sizeof *seen, &seen, err));
  for (int i = 0; i < network->n_links; i++) links[network->links[i].dst]++;
  for (int v = 0; v < network->n_nodes; v++)
    if (!s->is_terminal[v]) s->turn[v] = seen[links[v]]++;
out:
  free(links);
  free(seen);
  return status;
}

static copse_status prepare(struct copse_splitter *s, const int64_t *capacities, int64_t k,
                            struct copse_err *err) {
  const struct copse_network *network = s->network;
  size_t n = (size_t)network->n_nodes;
  copse_status status;
  COPSE_TRY(copse_flow_new(network->n_nodes + 1, &s->flow, err));
  COPSE_TRY(copse_calloc((size_t)network->n_terminals, sizeof(int), &s->order, err));
  COPSE_TRY(copse_calloc(n, 1, &s->is_terminal, err));
  COPSE_TRY(copse_calloc(n, sizeof(int), &s->entering, err));
  COPSE_TRY(copse_calloc(n, sizeof(int), &s->leaving, err));
  COPSE_TRY(copse_calloc(n, sizeof(int), &s->group, err));
  COPSE_TRY(copse_calloc(n, sizeof(int), &s->turn, err));
  COPSE_TRY(copse_calloc(n, sizeof(int), &s->members, err));
  COPSE_TRY(copse_calloc(n + 1, sizeof(int), &s->group_start, err));
  COPSE_TRY(copse_cuts_new(network->n_nodes, &s->cuts, err));
  for (int i = 0; i < network->n_terminals; i++) {
    s->order[i] = network->terminals[i];
    s->is_terminal[network->terminals[i]] = true;
  }
  COPSE_TRY(take_turns(s, err));
  for (int i = 0; i < network->n_links; i++)
    if (capacities[i] > 0)
      COPSE_TRY(copse_flow_change(s->flow, network->links[i].src, network->links[i].dst,
                                  capacities[i], err));
  for (int i = 0; i < network->n_roots; i++) {
    int64_t amount;
    if (copse_mul_overflows(network->roots[i].weight, k, &amount) ||
        copse_add_overflows(s->demand, amount, &s->demand))
      return copse_fail(err, COPSE_OVERFLOW, "the number of trees needs more than 63 bits");
    COPSE_TRY(copse_flow_change(s->flow, network->n_nodes, network->roots[i].node, amount, err));
  }
out:
  return status;
}

static void release(struct copse_splitter *s) {
  copse_flow_free(s->flow);
  free(s->order);
  free(s->is_terminal);
  free(s->steps);
  free(s->entering);
  free(s->leaving);
  free(s->group);
  free(s->turn);
  free(s->members);
  free(s->group_start);
  free(s->taken);
  copse_cuts_free(&s->cuts);
  copse_sinks_free(&s->sinks);
}

/* A relay by its guess, or within the known cuts; unproved. */
static copse_status take_relay(struct copse_splitter *s, int w, bool within_cuts,
                               struct copse_err *err) {
  copse_status status = COPSE_OK;
  int n = collect_neighbours(s, w);
  if (n <= 2) return contract(s, w, n, err);
  COPSE_TRY(copse_splitter_guess(s, w, n, err));
  if (within_cuts) return take_within_cuts(s, w, err);
  for (size_t i = 0; i < s->n_steps; i++) COPSE_TRY(copse_splitter_take(s, w, s->steps[i], err));
out:
  return status;
}

/* All relays by their guesses and one proof for all; or nothing is changed. */
static copse_status split_all(struct copse_splitter *s, struct copse_err *err) {
  copse_status status = COPSE_OK;
  bool complete = true, served = false;
  for (int w; complete && (w = slowest_relay(s)) >= 0;) {
    COPSE_TRY(take_relay(s, w, false, err));
    complete = copse_splitter_is_empty(s, w);
    copse_flow_compact(s->flow);
  }
  if (complete) COPSE_TRY(copse_splitter_all_served(s, &served, err));
  if (served) return copse_splitter_commit(s, err);
  COPSE_TRY(copse_splitter_undo(s, 0, err));
  copse_flow_compact(s->flow);
out:
  return status;
}

static void report(const struct copse_splitter *s, const struct copse_progress *progress,
                   int done) {
  copse_progress_report(progress, "split", done, s->network->n_nodes - s->network->n_terminals);
}

/*
 * A cut that was found broken has the relays that are gone outside. While they were there, each
 * made it narrowest on the side where the steps lose least by it; that cut must be known too.
 */
static void put_relays_where_narrow(const struct copse_splitter *s, unsigned char *inside) {
  for (size_t end = s->n_taken, first; end > 0; end = first) {
    int w = s->taken[end - 1].w;
    int64_t lost_outside = 0, lost_inside = 0;
    for (first = end; first > 0 && s->taken[first - 1].w == w; first--) {
      const struct copse_split_step *step = &s->taken[first - 1].step;
      if (inside[step->u] != inside[step->t]) continue;
      *(inside[step->u] ? &lost_outside : &lost_inside) += step->amount;
    }
    inside[w] = lost_inside < lost_outside;
  }
}

/* The cuts that the batch at hand breaks. */
static void learn_from_batch(struct copse_splitter *s) {
  for (int i = 0; i < s->sinks.n_cuts; i++) {
    const struct copse_sink_cut *cut = &s->sinks.cuts[i];
    copse_splitter_learn(s, cut, -1);
    put_relays_where_narrow(s, cut->inside);
    copse_splitter_learn(s, cut, -1);
    copse_splitter_to_front(s, cut->place);
  }
}

/* Takes relays within the known cuts, up to `most`; stops before one of which something is left.
 * So many are taken, unproved. */
static copse_status take_batch(struct copse_splitter *s, int most, int *n, struct copse_err *err) {
  copse_status status = COPSE_OK;
  *n = 0;
  for (int w; *n < most && (w = slowest_relay(s)) >= 0; ++*n) {
    size_t before = s->n_taken;
    COPSE_TRY(take_relay(s, w, true, err));
    copse_flow_compact(s->flow);
    if (copse_splitter_is_empty(s, w)) continue;
    COPSE_TRY(copse_splitter_undo(s, before, err));
    break;
  }
out:
  return status;
}

/* How often the same number of relays is tried again, with the cuts found broken. */
#define MOST_TRIES 4

/*
 * Many relays under one proof. Where that fails the cuts found broken join, and at last fewer
 * relays are tried at once; one that does not go is left to split_relay.
 */
static copse_status split_batches(struct copse_splitter *s, const struct copse_progress *progress,
                                  struct copse_err *err) {
  copse_status status = COPSE_OK;
  int batch = s->network->n_nodes, tries = 0, done = 0, taken;
  for (int w; (w = slowest_relay(s)) >= 0;) {
    COPSE_TRY(take_batch(s, batch, &taken, err));
    if (taken > 0) COPSE_TRY(copse_splitter_ask(s, 0, CUTS_PER_ATTEMPT, false, err));
    if (taken > 0 && s->sinks.n_cuts == 0) {
      COPSE_TRY(copse_splitter_commit(s, err));
      batch = 2 * taken;
      tries = 0;
    } else if (taken > 1 || (taken > 0 && tries < MOST_TRIES)) {
      learn_from_batch(s);
      COPSE_TRY(copse_splitter_undo(s, 0, err));
      copse_flow_compact(s->flow);
      batch = tries++ < MOST_TRIES ? taken : (taken + 1) / 2;
      continue;
    } else {
      COPSE_TRY(copse_splitter_undo(s, 0, err));
      COPSE_TRY(split_relay(s, w, err));
      taken = 1;
    }
    done += taken;
    report(s, progress, done);
  }
out:
  return status;
}

/* The roots' source has done its work: what is left is the relay-free graph alone. */
static copse_status drop_source(struct copse_splitter *s, int64_t k, struct copse_err *err) {
  copse_status status = COPSE_OK;
  for (int i = 0; i < s->network->n_roots; i++)
    COPSE_TRY(copse_flow_change(s->flow, s->network->n_nodes, s->network->roots[i].node,
                                -s->network->roots[i].weight * k, err));
  copse_flow_compact(s->flow);
out:
  return status;
}

/* Shares that were found by a linear programme: capacities that no guess fits. */
static bool has_unequal_roots(const struct copse_network *network) {
  for (int i = 1; i < network->n_roots; i++)
    if (network->roots[i].weight != network->roots[0].weight) return true;
  return false;
}

copse_status copse_split_relays(const struct copse_network *network, const int64_t *capacities,
                                int64_t k, struct copse_paths *paths,
                                const struct copse_progress *progress, struct copse_flow **flow,
                                struct copse_err *err) {
  struct copse_splitter s = {
      .network = network, .paths = paths, .trusts = network->n_terminals >= copse_trust_from};
  copse_status status;
  s.many_pairs = !s.trusts && has_unequal_roots(network);
  *flow = NULL;
  COPSE_TRY(prepare(&s, capacities, k, err));
  COPSE_TRY(contract_chains(&s, err));
  if (s.trusts) COPSE_TRY(split_all(&s, err));
  if (s.trusts && slowest_relay(&s) >= 0) {
    COPSE_TRY(learn_tight(&s, err));
    COPSE_TRY(split_batches(&s, progress, err));
  }
  if (s.many_pairs && slowest_relay(&s) >= 0) COPSE_TRY(learn_tight(&s, err));
  for (int w, done = 0; (w = slowest_relay(&s)) >= 0;) {
    COPSE_TRY(split_relay(&s, w, err));
    report(&s, progress, ++done);
  }
  COPSE_TRY(drop_source(&s, k, err));
  *flow = s.flow;
  s.flow = NULL;
out:
  release(&s);
  return status;
}
