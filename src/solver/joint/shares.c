#include "solver/joint/shares.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "solver/network/flow.h"
#include "solver/joint/shares_internal.h"

/* Cutting planes take some tens of rounds; beyond this GLPK runs in circles. */
#define MAX_ROUNDS 400
/* In the rounded solution a cut may be violated by this part of the rate without telling. */
#define SLACK_PART ((int64_t)1 << 28)

int copse_shares_coefficient(const struct copse_shares_search *s, int row, int column) {
  const struct copse_network *network = s->network;
  const struct copse_net_link *link =
      column < network->n_terminals ? NULL : &network->links[column - network->n_terminals];
  if (row < s->n_relays)
    return link ? (link->dst == s->relays[row]) - (link->src == s->relays[row]) : 0;
  const struct copse_shares_row *cut = &s->rows[row - s->n_relays];
  if (!link) return cut->inside[network->terminals[column]];
  if (cut->reduce) return !cut->inside[link->src] && cut->inside[link->dst];
  return cut->inside[link->src] && !cut->inside[link->dst] ? -1 : 0;
}

copse_status copse_shares_right_side(const struct copse_shares_search *s, int row, int64_t *value,
                                     struct copse_err *err) {
  *value = 0;
  if (row < s->n_relays || !s->rows[row - s->n_relays].reduce) return COPSE_OK;
  for (int e = 0; e < s->network->n_links; e++) {
    if (copse_shares_coefficient(s, row, s->network->n_terminals + e) == 0) continue;
    if (copse_add_overflows(*value, s->network->links[e].capacity, value) ||
        *value > COPSE_FLOW_MAX)
      return copse_fail(err, COPSE_OVERFLOW,
                        "the bandwidths need more than 61 bits once brought to a common "
                        "denominator; use fewer digits");
  }
  return COPSE_OK;
}

/* ---- cuts ------------------------------------------------------------------------------ */

static bool same_row(const struct copse_shares_search *s, const struct copse_shares_row *a,
                     const struct copse_shares_row *b) {
  return a->reduce == b->reduce &&
         memcmp(a->inside, b->inside, (size_t)s->network->n_nodes * sizeof *a->inside) == 0;
}

/* Takes over `inside` in every case; a row of this round twice is dropped. */
static copse_status add_row(struct copse_shares_search *s, bool reduce, bool *inside, size_t first,
                            struct copse_err *err) {
  struct copse_shares_row row = {reduce, inside};
  copse_status status = COPSE_OK;
  for (size_t i = first; i < s->n_rows; i++)
    if (same_row(s, &row, &s->rows[i])) goto out;
  COPSE_TRY(copse_grow(&s->rows, &s->rows_capacity, s->n_rows + 1, sizeof *s->rows, err));
  s->rows[s->n_rows++] = row;
  return COPSE_OK;
out:
  free(inside);
  return status;
}

/* All but one terminal: what it must receive (send), which is often what binds. */
static copse_status add_first_rows(struct copse_shares_search *s, struct copse_err *err) {
  copse_status status = COPSE_OK;
  for (int i = 0; i < s->network->n_terminals; i++) {
    for (int reduce = 0; reduce < 2; reduce++) {
      bool *inside = NULL;
      COPSE_TRY(copse_calloc((size_t)s->network->n_nodes, sizeof *inside, &inside, err));
      for (int v = 0; v < s->network->n_nodes; v++) inside[v] = v != s->network->terminals[i];
      COPSE_TRY(add_row(s, reduce, inside, 0, err));
    }
  }
out:
  return status;
}

/* A candidate solution in integers, whichever its units. */
struct solution {
  const int64_t *x, *a, *b;
};

/* The graph of a phase: node n_nodes feeds every terminal its share. */
static copse_status phase_graph(const struct copse_shares_search *s, struct solution y, bool reduce,
                                struct copse_flow **out, struct copse_err *err) {
  const struct copse_network *network = s->network;
  struct copse_flow *flow = NULL;
  copse_status status;
  COPSE_TRY(copse_flow_new(network->n_nodes + 1, &flow, err));
  for (int i = 0; i < network->n_terminals; i++)
    if (y.x[i] > 0)
      COPSE_TRY(copse_flow_change(flow, network->n_nodes, network->terminals[i], y.x[i], err));
  for (int e = 0; e < network->n_links; e++) {
    const struct copse_net_link *link = &network->links[e];
    int64_t capacity = reduce ? y.b[e] - y.a[e] : y.a[e];
    if (capacity == 0) continue;
    COPSE_TRY(copse_flow_change(flow, reduce ? link->dst : link->src,
                                reduce ? link->src : link->dst, capacity, err));
  }
  *out = flow;
  return COPSE_OK;
out:
  copse_flow_free(flow);
  return status;
}

/* Adds the cuts of one phase that the solution violates by more than `slack`. */
static copse_status separate_phase(struct copse_shares_search *s, struct solution y, bool reduce,
                                   int64_t slack, struct copse_err *err) {
  const struct copse_network *network = s->network;
  struct copse_flow *flow = NULL;
  size_t first = s->n_rows;
  int64_t sum = 0;
  copse_status status;
  for (int i = 0; i < network->n_terminals; i++) sum += y.x[i];
  COPSE_TRY(phase_graph(s, y, reduce, &flow, err));
  for (int i = 0; i < network->n_terminals; i++) {
    if (copse_flow_max(flow, network->n_nodes, network->terminals[i], sum) >= sum - slack) continue;
    bool *inside = NULL;
    COPSE_TRY(copse_calloc((size_t)network->n_nodes, sizeof *inside, &inside, err));
    for (int v = 0; v < network->n_nodes; v++) inside[v] = copse_flow_on_source_side(flow, v);
    COPSE_TRY(add_row(s, reduce, inside, first, err));
  }
out:
  copse_flow_free(flow);
  return status;
}

static copse_status separate(struct copse_shares_search *s, struct solution y, int64_t slack,
                             struct copse_err *err) {
  copse_status status = separate_phase(s, y, false, slack, err);
  return status == COPSE_OK ? separate_phase(s, y, true, slack, err) : status;
}

/* ---- rounds ---------------------------------------------------------------------------- */

static int64_t slack_of(const struct copse_shares_search *s) {
  int64_t sum = 0;
  for (int i = 0; i < s->network->n_terminals; i++) sum += s->x[i];
  return sum / SLACK_PART;
}

/* The exact solution of the basis at hand: proved, or violating cuts that are added. */
static copse_status try_exact(struct copse_shares_search *s, struct copse_shares *out, bool *done,
                              struct copse_err *err) {
  copse_status status;
  bool found;
  int64_t *whole_b = NULL;
  size_t before = s->n_rows;
  *done = true;
  out->outcome = COPSE_SHARES_UNPROVED;
  COPSE_TRY(copse_shares_exact(s, out, &found, err));
  if (!found) goto out;
  COPSE_TRY(copse_calloc((size_t)s->network->n_links, sizeof *whole_b, &whole_b, err));
  for (int e = 0; e < s->network->n_links; e++) whole_b[e] = out->broadcast[e] + out->reduce[e];
  COPSE_TRY(separate(s, (struct solution){out->weights, out->broadcast, whole_b}, 0, err));
  *done = s->n_rows == before;
  if (*done) out->outcome = COPSE_SHARES_PROVED;
out:
  free(whole_b);
  return status;
}

/*
 * Cuts for the solution at hand. They are looked for half way to a point that is known to be
 * good first: such cuts are tight near the optimum, where those of the corners that the simplex
 * method wanders through are not, and far fewer are needed. Ben-Ameur and Neto, "Acceleration of
 * cutting-plane and column generation algorithms", Networks 49 (2007).
 */
static copse_status add_cuts(struct copse_shares_search *s, struct copse_err *err) {
  const struct copse_network *network = s->network;
  size_t before = s->n_rows;
  copse_status status;
  for (int i = 0; i < network->n_terminals; i++)
    s->middle_x[i] = s->inner_x[i] + (s->x[i] - s->inner_x[i]) / 2;
  for (int e = 0; e < network->n_links; e++)
    s->middle_a[e] = s->inner_a[e] + (s->a[e] - s->inner_a[e]) / 2;
  COPSE_TRY(separate(s, (struct solution){s->middle_x, s->middle_a, s->b}, slack_of(s), err));
  if (s->n_rows > before) return COPSE_OK;
  memcpy(s->inner_x, s->middle_x, (size_t)network->n_terminals * sizeof *s->x);
  memcpy(s->inner_a, s->middle_a, (size_t)network->n_links * sizeof *s->a);
  COPSE_TRY(separate(s, (struct solution){s->x, s->a, s->b}, slack_of(s), err));
out:
  return status;
}

/* ---- evenness -------------------------------------------------------------------------- */

#define MAX_CAPPED_ROUNDS 60

/* The rate in *out with no share above s->cap: its solution into *out, if there is one. */
static copse_status try_capped(struct copse_shares_search *s, struct copse_shares *out, bool *done,
                               struct copse_err *err) {
  copse_status status = COPSE_OK;
  struct copse_shares before = *out;
  size_t taken = s->n_rows;
  bool found = false;
  *done = false;
  copse_shares_master_cap(s->master, s);
  for (int round = 0; round < MAX_CAPPED_ROUNDS; round++) {
    if (!copse_shares_master_solve(s->master, s)) break;
    if (!copse_shares_master_reaches(s->master, out->rate)) break;
    COPSE_TRY(add_cuts(s, err));
    if (s->n_rows == taken) {
      COPSE_TRY(try_exact(s, out, &found, err));
      *done = found && out->outcome == COPSE_SHARES_PROVED;
      if (found) break;
    }
    COPSE_TRY(copse_shares_master_add(s->master, s, taken, err));
    taken = s->n_rows;
  }
out:
  if (!*done) { /* memory stays with the arena, which has grown */
    out->whole = before.whole;
    out->weights = before.weights;
    out->broadcast = before.broadcast;
    out->reduce = before.reduce;
  }
  out->outcome = COPSE_SHARES_PROVED;
  return status;
}

/*
 * The corner of the optimal shares that the simplex method stops at has few roots with much each,
 * so few trees that share every link, and high ones. As even shares as the optimum allows, by
 * powers of two of 1/n, make lower trees.
 */
static copse_status even_out(struct copse_shares_search *s, struct copse_shares *out,
                             struct copse_err *err) {
  copse_status status = COPSE_OK;
  struct copse_q part;
  bool done = false;
  int n = s->network->n_terminals;
  for (int64_t most = 1; most < n && !done; most *= 2) {
    if (copse_q_make(most, n, &part, err) != COPSE_OK ||
        copse_q_mul(out->rate, part, &s->cap, NULL) != COPSE_OK)
      break;
    COPSE_TRY(try_capped(s, out, &done, err));
  }
out:
  return status;
}

static copse_status run_rounds(struct copse_shares_search *s,
                               const struct copse_shares_options *options, struct copse_shares *out,
                               struct copse_err *err) {
  copse_status status = COPSE_OK;
  size_t taken = 0;
  out->outcome = COPSE_SHARES_TOO_LARGE;
  for (out->rounds = 1; out->rounds <= MAX_ROUNDS; out->rounds++) {
    COPSE_TRY(copse_shares_master_add(s->master, s, taken, err));
    taken = s->n_rows;
    if (!copse_shares_master_solve(s->master, s)) {
      out->outcome = COPSE_SHARES_UNPROVED;
      break;
    }
    if (!copse_shares_master_above(s->master, options->at_least)) {
      out->outcome = COPSE_SHARES_NOT_BETTER;
      break;
    }
    copse_progress_report(options->progress, "shares", out->rounds, 0);
    if (out->rounds == 1) /* without shares, any division of the links will do */
      for (int e = 0; e < s->network->n_links; e++) s->inner_a[e] = s->b[e] / 2;
    COPSE_TRY(add_cuts(s, err));
    if (s->n_rows > taken) continue;
    bool done;
    COPSE_TRY(try_exact(s, out, &done, err));
    if (done) break;
    out->outcome = COPSE_SHARES_TOO_LARGE;
  }
out:
  return status;
}

static copse_status prepare(struct copse_shares_search *s, struct copse_err *err) {
  const struct copse_network *network = s->network;
  bool *terminal = NULL;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)network->n_nodes, sizeof *terminal, &terminal, err));
  COPSE_TRY(copse_calloc((size_t)network->n_nodes, sizeof(int), &s->relays, err));
  COPSE_TRY(copse_calloc((size_t)network->n_terminals, sizeof *s->x, &s->x, err));
  COPSE_TRY(copse_calloc((size_t)network->n_links, sizeof *s->a, &s->a, err));
  COPSE_TRY(copse_calloc((size_t)network->n_links, sizeof *s->b, &s->b, err));
  COPSE_TRY(copse_calloc((size_t)network->n_terminals, sizeof *s->x, &s->inner_x, err));
  COPSE_TRY(copse_calloc((size_t)network->n_links, sizeof *s->a, &s->inner_a, err));
  COPSE_TRY(copse_calloc((size_t)network->n_terminals, sizeof *s->x, &s->middle_x, err));
  COPSE_TRY(copse_calloc((size_t)network->n_links, sizeof *s->a, &s->middle_a, err));
  for (int i = 0; i < network->n_terminals; i++) terminal[network->terminals[i]] = true;
  for (int v = 0; v < network->n_nodes; v++)
    if (!terminal[v]) s->relays[s->n_relays++] = v;
  COPSE_TRY(add_first_rows(s, err));
  COPSE_TRY(copse_shares_master_new(s, &s->master, err));
out:
  free(terminal);
  return status;
}

static void release(struct copse_shares_search *s) {
  copse_shares_master_free(s->master);
  for (size_t i = 0; i < s->n_rows; i++) free(s->rows[i].inside);
  free(s->rows);
  free(s->relays);
  free(s->x);
  free(s->a);
  free(s->b);
  free(s->inner_x);
  free(s->inner_a);
  free(s->middle_x);
  free(s->middle_a);
}

copse_status copse_shares_search(const struct copse_network *network,
                                 const struct copse_shares_options *options,
                                 struct copse_shares *out, struct copse_err *err) {
  struct copse_shares_search s = {.network = network, .cap = COPSE_Q_ZERO};
  copse_status status;
  *out = (struct copse_shares){.outcome = COPSE_SHARES_TOO_LARGE, .rate = COPSE_Q_ZERO};
  if (network->n_terminals + network->n_links > options->max_columns) return COPSE_OK;
  COPSE_TRY(prepare(&s, err));
  COPSE_TRY(run_rounds(&s, options, out, err));
  if (out->outcome == COPSE_SHARES_PROVED) COPSE_TRY(even_out(&s, out, err));
out:
  release(&s);
  return status;
}

void copse_shares_free(struct copse_shares *shares) { copse_arena_free(&shares->arena); }
