/*
 * The search for the joint optimum by cutting planes: solve the programme of the cuts found so far,
 * look for cuts that its solution violates by maximum flows, add them, and so on.
 *
 *   R and short ways -> parts, exact -> R alone, over all columns -> proof
 *         ^ better                                  |
 *         +-----------------------------------------+
 *
 * Of whole links it is R alone from the start, then limits on shares that make them even. The
 * search is made in a network without relays that never bind; its result is lifted to the whole
 * one. docs/theory.md, "Unequal shares".
 */
#include <stdlib.h>
#include <string.h>

#include "solver/joint/internal.h"
#include "solver/policy.h"
#include "solver/network/network.h"
#include "solver/network/flow.h"

/* ---- cuts -------------------------------------------------------------------------------- */

/* Makes the graph of a phase: node n_nodes feeds every root its share. */
static copse_status phase_graph(const struct copse_joint_search *s, bool reduce,
                                struct copse_flow **out) {
  const struct copse_network *network = s->network;
  COPSE_DO(copse_flow_new(network->n_nodes + 1, out, s->err));
  for (int v = 0; v < network->n_nodes; v++)
    if (s->shares[v] > 0)
      COPSE_DO(copse_flow_change(*out, network->n_nodes, v, s->shares[v], s->err));
  for (int e = 0; e < network->n_links; e++) {
    const struct copse_net_link *link = &network->links[e];
    if (s->capacities[e] > 0)
      COPSE_DO(copse_flow_change(*out, reduce ? link->dst : link->src,
                                 reduce ? link->src : link->dst, s->capacities[e], s->err));
  }
  return COPSE_OK;
}

/* Whether the flow must reach terminal i, and i is not the image of a terminal that is asked for.
 */
static bool is_asked(const struct copse_joint_search *s, const struct copse_joint_phase *q, int i) {
  return (q->sink < 0 || q->sink == i) && copse_joint_leads(q, copse_joint_terminal(s, q, i));
}

/* Adds to all links of the phase across a cut, or takes away again. */
static copse_status widen(const struct copse_joint_search *s, const struct copse_joint_phase *q,
                          struct copse_flow *flow, const bool *inside, int64_t amount) {
  for (int e = 0; e < s->network->n_links; e++) {
    const struct copse_net_link *link = &s->network->links[e];
    int from = q->reduce ? link->dst : link->src, to = q->reduce ? link->src : link->dst;
    if (q->column[e] >= 0 && inside[from] && !inside[to])
      COPSE_DO(copse_flow_change(flow, from, to, amount, s->err));
  }
  return COPSE_OK;
}

/* Finds cuts around one terminal: with each wide enough, what is the next? Several at once save
 * rounds. */
static copse_status separate_terminal(struct copse_joint_search *s, int phase,
                                      struct copse_flow *flow, int terminal, int64_t sum,
                                      int64_t enough, size_t first) {
  const struct copse_joint_phase *q = &s->phases[phase];
  int n_nodes = s->network->n_nodes, n = 0,
      most = s->whole ? COPSE_WHOLE_CUTS_AT_ONCE : COPSE_JOINT_CUTS_AT_ONCE;
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  bool *sides[COPSE_JOINT_CUTS_AT_ONCE];
  while (n < most && copse_flow_max(flow, n_nodes, terminal, sum) < enough) {
    COPSE_DO(COPSE_ARRAY(&scratch, (size_t)n_nodes, sides[n], s->err));
    for (int v = 0; v < n_nodes; v++) sides[n][v] = copse_flow_on_source_side(flow, v);
    if (most > 1) COPSE_DO(widen(s, q, flow, sides[n], sum));
    COPSE_DO(copse_joint_add_cut(s, phase, sides[n++], first));
  }
  for (int i = 0; i < n && most > 1; i++) COPSE_DO(widen(s, q, flow, sides[i], -sum));
  return COPSE_OK;
}

/* Adds the cuts that s->shares and capacities violate by more than the slack. */
static copse_status separate_phase(struct copse_joint_search *s, int phase, bool exact) {
  const struct copse_network *network = s->network;
  const struct copse_joint_phase *q = &s->phases[phase];
  COPSE_AT_END(copse_flow_free_at) struct copse_flow *flow = NULL;
  size_t first = s->n_cuts;
  int64_t sum = 0;
  int i = 0;
  for (int v = 0; v < network->n_nodes; v++) sum += s->shares[v];
  while (i < copse_joint_terminals(s, q) && !is_asked(s, q, i)) i++;
  if (i == copse_joint_terminals(s, q)) return COPSE_OK; /* all are images of another phase's */
  COPSE_DO(phase_graph(s, q->reduce, &flow));
  int64_t enough = exact ? sum : sum - sum / COPSE_JOINT_SLACK_PART;
  for (; i < copse_joint_terminals(s, q); i++)
    if (is_asked(s, q, i))
      COPSE_DO(
          separate_terminal(s, phase, flow, copse_joint_terminal(s, q, i), sum, enough, first));
  return COPSE_OK;
}

/* Returns what a phase has of a link at a point in units. */
static int64_t amount_of(const struct copse_joint_search *s, const struct copse_joint_phase *q,
                         int link, const int64_t *point) {
  if (q->column[link] < 0) return 0;
  return q->rest ? s->units[link] - point[q->column[link]] : point[q->column[link]];
}

/* Finds the cuts that a point in units violates. */
static copse_status separate(struct copse_joint_search *s, const int64_t *point) {
  for (int q = 0; q < s->n_phases; q++) {
    int group = s->phases[q].group, roots = copse_joint_roots(s, group);
    if (s->phases[q].sink >= 0) continue; /* its rows are those of a flow */
    memset(s->shares, 0, (size_t)s->network->n_nodes * sizeof *s->shares);
    for (int i = 0; i < s->groups[group].n_members; i++)
      if (copse_joint_is_root(&s->groups[group], i))
        s->shares[s->groups[group].members[i]] =
            roots > 0 ? point[copse_joint_rate_column(s, group)] / roots
                      : point[s->share[group][i]];
    for (int e = 0; e < s->network->n_links; e++)
      s->capacities[e] = amount_of(s, &s->phases[q], e, point);
    COPSE_DO(separate_phase(s, q, false));
  }
  return COPSE_OK;
}

copse_status copse_joint_separate_parts(struct copse_joint_search *s,
                                        const struct copse_joint *found) {
  for (int q = 0; q < s->n_phases; q++) {
    const struct copse_joint_group *group = &s->groups[s->phases[q].group];
    const struct copse_joint_part *part = &found->parts[s->phases[q].group];
    memset(s->shares, 0, (size_t)s->network->n_nodes * sizeof *s->shares);
    for (int i = 0; i < group->n_members; i++) s->shares[group->members[i]] = part->weights[i];
    memcpy(s->capacities, copse_joint_amounts(&s->phases[q], part),
           (size_t)s->network->n_links * sizeof *s->capacities);
    COPSE_DO(separate_phase(s, q, true));
  }
  return COPSE_OK;
}

/*
 * Adds cuts for the solution at hand. They are looked for between it and a point that is known to
 * be good first: such cuts are tight near the optimum, where those of the corners that the simplex
 * method wanders through are not, and far fewer are needed. Ben-Ameur and Neto, "Acceleration of
 * cutting-plane and column generation algorithms", Networks 49 (2007). The way between the two is
 * halved some times, since flows cost far less than the simplex method.
 */
static copse_status add_cuts(struct copse_joint_search *s) {
  size_t before = s->n_cuts, size = (size_t)s->n_columns * sizeof *s->inner;
  memcpy(s->end, s->value, size);
  for (int i = 0; i < (s->n_groups > 1 ? COPSE_JOINT_HALVINGS : 1); i++) {
    size_t n = s->n_cuts;
    for (int j = 0; j < s->n_columns; j++)
      s->middle[j] = s->inner[j] + (s->end[j] - s->inner[j]) / 2;
    COPSE_DO(separate(s, s->middle));
    memcpy(s->n_cuts > n ? s->end : s->inner, s->middle, size);
  }
  return s->n_cuts > before ? COPSE_OK : separate(s, s->value);
}

/* ---- rounds ------------------------------------------------------------------------------ */

/* Returns over how many links what limits this one is shared at most. */
static int crowd_of(const struct copse_joint_limits *limits, const int *crowd, int link) {
  int most = 1;
  for (int i = limits->first[link]; i < limits->first[link + 1]; i++)
    if (crowd[limits->of[i]] > most) most = crowd[limits->of[i]];
  return most;
}

static copse_status share_limits(struct copse_joint_search *s) {
  const struct copse_joint_limits *limits = s->limits;
  COPSE_AT_END(copse_free_at) int *crowd = NULL;
  COPSE_DO(copse_calloc((size_t)limits->n, sizeof *crowd, &crowd, s->err));
  for (int i = 0; i < limits->first[s->network->n_links]; i++) crowd[limits->of[i]]++;
  for (int e = 0; e < s->network->n_links; e++)
    for (int q = 0; q < s->n_phases; q++)
      if (s->phases[q].column[e] >= 0)
        s->inner[s->phases[q].column[e]] /= crowd_of(limits, crowd, e);
  return COPSE_OK;
}

/* Divides the links evenly: without anything to send, any division of them will do. */
static void set_inner(struct copse_joint_search *s) {
  for (int e = 0; e < s->network->n_links; e++) {
    int users = 0;
    for (int q = 0; q < s->n_phases; q++) users += s->phases[q].column[e] >= 0;
    for (int q = 0; q < s->n_phases; q++)
      if (s->phases[q].column[e] >= 0) s->inner[s->phases[q].column[e]] = s->units[e] / users;
  }
}

/* What the exact solution of a basis comes to. */
struct trial {
  mpq_t *solution, *multipliers; /* [columns], [rows] */
  size_t rows;
  struct copse_lp_proof proof;
};

static void trial_free(struct trial *t) {
  copse_rationals_free(&t->solution);
  copse_rationals_free(&t->multipliers);
  *t = (struct trial){0};
}

static copse_status try_basis(const struct copse_joint_search *s, struct trial *t) {
  trial_free(t);
  t->rows = (size_t)copse_lp_rows(s->lp);
  COPSE_DO(copse_rationals_new((size_t)s->n_columns, &t->solution, s->err));
  COPSE_DO(copse_rationals_new(t->rows, &t->multipliers, s->err));
  return copse_lp_exact(s->lp, s->whole ? COPSE_WHOLE_EQUATIONS : COPSE_JOINT_EQUATIONS,
                        t->solution, t->multipliers, &t->proof, s->err);
}

/* Tries parts from the basis at hand. *done: they hold and are in *out, or there are none. Else
 * cuts were added that they violate. */
static copse_status try_parts(struct copse_joint_search *s, struct copse_joint *out, bool *found,
                              bool *done) {
  COPSE_AT_END(trial_free) struct trial trial = {0};
  size_t before = s->n_cuts;
  *found = false;
  *done = true;
  COPSE_DO(try_basis(s, &trial));
  if (trial.proof.feasible) COPSE_DO(copse_joint_parts(s, trial.solution, out, found));
  s->rounded = trial.proof.feasible && !*found;
  if (s->rounded) COPSE_DO(copse_joint_round(s, trial.solution, out, found));
  if (*found) COPSE_DO(copse_joint_separate_parts(s, out));
  *done = s->n_cuts == before;
  *found = *found && *done;
  return COPSE_OK;
}

static void take_values(struct copse_joint_search *s) {
  for (int j = 0; j < s->n_columns; j++) s->value[j] = copse_lp_units(s->lp, j);
  for (int e = 0; s->whole && e < s->network->n_links; e++) {
    int column = s->phases[0].column[e];
    if (column >= 0 && s->value[column] > s->units[e]) s->value[column] = s->units[e];
  }
}

/* Goes on until the optimum of the cuts so far violates none, in rationals. Columns are opened, if
 * at all, only where no cut is missing, else the programme finds ways around those that are not
 * there. */
static copse_status find_parts(struct copse_joint_search *s, bool open,
                               const struct copse_progress *progress, struct copse_joint *out,
                               bool *found) {
  bool done = false;
  *found = false;
  while (!done && out->rounds < COPSE_JOINT_ROUNDS) {
    out->rounds++;
    if (!copse_lp_solve(s->lp)) return COPSE_OK;
    copse_progress_report(progress, "groups", out->rounds, 0);
    take_values(s);
    size_t before = s->n_cuts;
    COPSE_DO(add_cuts(s));
    if (s->n_cuts == before && (!open || copse_lp_open_gaining(s->lp) == 0))
      COPSE_DO(try_parts(s, out, found, &done));
  }
  if (!done) out->outcome = COPSE_JOINT_STUCK;
  return COPSE_OK;
}

static bool has_rate(const struct copse_joint_search *s, mpq_t *solution, struct copse_q rate) {
  COPSE_MPQ(sum);
  COPSE_MPQ(q);
  for (int g = 0; g < s->n_rates; g++) {
    mpq_set_ui(q, 0, 1);
    copse_joint_rate(s, g, solution, q);
    mpq_add(sum, sum, q);
  }
  copse_mpq_set(q, rate);
  return mpq_equal(sum, q);
}

static int64_t sum_rates(const struct copse_joint_search *s) {
  int64_t sum = 0;
  for (int g = 0; g < s->n_rates; g++) sum += s->value[copse_joint_rate_column(s, g)];
  return sum;
}

/* Solves over all columns. */
static bool solve_all_columns(struct copse_joint_search *s) {
  do {
    if (!copse_lp_solve(s->lp)) return false;
  } while (copse_lp_open_gaining(s->lp) > 0);
  return true;
}

static copse_status hand_over_proof(struct copse_joint_search *s, struct trial *trial,
                                    struct copse_joint *out, bool *fits) {
  copse_status status = copse_joint_proof(s, trial->multipliers, out, fits);
  if (status != COPSE_OK || *fits || s->n_rates > 1) return status;
  s->rounded = out->rounded_proof = true;
  copse_joint_round_multipliers(trial->multipliers, trial->rows);
  return copse_joint_proof(s, trial->multipliers, out, fits);
}

/* Finds a proof over all columns that no rate is above the parts', whose values are at hand, with
 * cuts that its solutions ask for. *better: it found none, since there is a better one, or seems
 * to be: the rate has not come down for so many rounds. */
static copse_status find_proof(struct copse_joint_search *s, int most_idle,
                               const struct copse_progress *progress, struct copse_joint *out,
                               bool *proved, bool *better) {
  COPSE_AT_END(trial_free) struct trial trial = {0};
  int64_t reached = sum_rates(s), least = INT64_MAX;
  int idle = 0;
  size_t before;
  *proved = *better = false;
  do {
    if (out->rounds++ >= COPSE_JOINT_ROUNDS || !solve_all_columns(s)) return COPSE_OK;
    copse_progress_report(progress, "groups", out->rounds, 0);
    take_values(s);
    if (sum_rates(s) - reached < COPSE_JOINT_SAME_RATE) {
      COPSE_DO(try_basis(s, &trial));
      *proved = trial.proof.optimal && (s->rounded || has_rate(s, trial.solution, out->rate));
    }
    if (*proved) return hand_over_proof(s, &trial, out, proved);
    idle = least - sum_rates(s) > COPSE_JOINT_SAME_RATE ? 0 : idle + 1;
    least = sum_rates(s);
    before = s->n_cuts;
    COPSE_DO(add_cuts(s));
  } while (s->n_cuts > before && idle < most_idle);
  *better = true;
  return COPSE_OK;
}

/* Returns of how many groups a rate's column is; 1 where all have the same. */
static int rate_uses(const struct copse_joint_search *s, int column) {
  int n = 0;
  for (int g = 0; g < s->n_groups; g++) n += s->twin[g] == column;
  return s->n_rates > 1 ? n : 1;
}

/* Sets the objective to R, and less of the links where R does not suffer. */
static void want_lean(struct copse_joint_search *s) {
  int64_t worth = s->n_groups > 1 ? COPSE_JOINT_GROUPS_WORTH : COPSE_JOINT_RATE_WORTH;
  for (int j = 0; j < s->n_rates; j++)
    copse_lp_set_objective(s->lp, j, rate_uses(s, j) * worth * (s->n_places + s->n_columns));
  for (int j = s->n_rates; j < s->n_columns; j++) copse_lp_set_objective(s->lp, j, -s->uses[j]);
}

static void want_rate(struct copse_joint_search *s) {
  for (int j = 0; j < s->n_columns; j++)
    copse_lp_set_objective(s->lp, j, j < s->n_rates ? rate_uses(s, j) : 0);
}

static copse_status search(struct copse_joint_search *s, const struct copse_progress *progress,
                           struct copse_joint *out) {
  bool found, proved = false, better = true;
  struct copse_q before = COPSE_Q_ZERO;
  int most_idle = COPSE_JOINT_IDLE_ROUNDS;
  out->outcome = COPSE_JOINT_UNPROVED;
  while (better) {
    want_lean(s);
    COPSE_DO(find_parts(s, false, progress, out, &found));
    bool gained = found && copse_q_cmp(out->rate, before) > 0;
    if (!found || (!gained && most_idle > COPSE_JOINT_IDLE_ROUNDS)) break;
    most_idle = gained ? COPSE_JOINT_IDLE_ROUNDS : COPSE_JOINT_ROUNDS;
    before = out->rate;
    want_rate(s);
    COPSE_DO(find_proof(s, most_idle, progress, out, &proved, &better));
  }
  if (!proved && out->outcome == COPSE_JOINT_UNPROVED) {
    want_rate(s);
    COPSE_DO(find_parts(s, true, progress, out, &found));
    if (found) COPSE_DO(find_proof(s, COPSE_JOINT_ROUNDS, progress, out, &proved, &better));
  }
  if (proved) out->outcome = s->rounded ? COPSE_JOINT_CLOSE : COPSE_JOINT_PROVED;
  return COPSE_OK;
}

/* ---- whole links ------------------------------------------------------------------------- */

/* Tries the exact solution of the basis at hand: proved, or violating cuts that are added. With
 * limits on shares it is not proved, and only taken if it has the rate that *out has. */
static copse_status try_whole(struct copse_joint_search *s, bool limited, struct copse_joint *out,
                              bool *done) {
  const struct copse_q rate = out->rate;
  COPSE_AT_END(trial_free) struct trial trial = {0};
  size_t before = s->n_cuts;
  bool found;
  *done = true;
  out->outcome = COPSE_JOINT_UNPROVED;
  COPSE_DO(try_basis(s, &trial));
  found = limited ? trial.proof.feasible && has_rate(s, trial.solution, rate) : trial.proof.optimal;
  if (!found) out->outcome = COPSE_JOINT_STUCK;
  if (found) COPSE_DO(copse_joint_parts(s, trial.solution, out, &found));
  if (found) COPSE_DO(copse_joint_separate_parts(s, out));
  *done = s->n_cuts == before;
  if (!found || !*done) return COPSE_OK;
  if (!limited) COPSE_DO(copse_joint_proof(s, trial.multipliers, out, &found));
  if (found) out->outcome = COPSE_JOINT_PROVED;
  return COPSE_OK;
}

/* Tries the same rate with no share above s's limits, into *out if there is such a solution. */
static copse_status try_limit(struct copse_joint_search *s, struct copse_joint *out, bool *done) {
  struct copse_joint_part *before = out->parts;
  const struct copse_q rate = out->rate;
  *done = false;
  for (int round = 0; round < COPSE_WHOLE_LIMITED_ROUNDS; round++) {
    if (copse_lp_rows(s->lp) > COPSE_WHOLE_LIMITED_ROWS * s->n_columns) break;
    if (!copse_lp_solve(s->lp)) break;
    if (copse_lp_objective(s->lp) < copse_q_to_double(rate) * (1 - COPSE_WHOLE_ROUNDING)) break;
    take_values(s);
    size_t n_cuts = s->n_cuts;
    COPSE_DO(add_cuts(s));
    if (s->n_cuts > n_cuts) continue;
    COPSE_DO(try_whole(s, true, out, done));
    if (*done) break;
  }
  *done = *done && out->outcome == COPSE_JOINT_PROVED;
  if (!*done) out->parts = before;
  out->rate = rate;
  out->parts[0].broadcast_potentials = before[0].broadcast_potentials;
  out->parts[0].reduce_potentials = before[0].reduce_potentials;
  out->outcome = COPSE_JOINT_PROVED;
  return COPSE_OK;
}

/* Makes shares as even as the optimum allows, by powers of two of 1/n, which make lower trees: the
 * corner of the optimal shares that the simplex method stops at has few roots with much each, so
 * few trees that share every link, and high ones. */
static copse_status even_out(struct copse_joint_search *s, struct copse_joint *out) {
  struct copse_q limit;
  bool done = false;
  int n = s->groups[0].n_members;
  for (int64_t most = 1; most < n && !done; most *= 2) {
    if (copse_q_make(most, n, &limit, s->err) != COPSE_OK ||
        copse_q_mul(out->rate, limit, &limit, NULL) != COPSE_OK)
      break;
    for (int i = 0; i < n; i++) copse_lp_set_upper(s->lp, s->share[0][i], limit);
    COPSE_DO(try_limit(s, out, &done));
  }
  return COPSE_OK;
}

static copse_status search_whole(struct copse_joint_search *s,
                                 const struct copse_joint_options *options,
                                 struct copse_joint *out) {
  const struct copse_q known = options->at_least;
  double enough = known.num > 0 ? copse_q_to_double(known) * (1 + COPSE_WHOLE_ROUNDING) : 0;
  bool done = false;
  for (int i = 0; i < s->groups[0].n_members; i++) copse_lp_set_objective(s->lp, s->share[0][i], 1);
  while (!done && out->rounds++ < COPSE_JOINT_ROUNDS) {
    out->outcome = COPSE_JOINT_STUCK;
    if (!copse_lp_solve(s->lp)) return COPSE_OK;
    out->outcome = COPSE_JOINT_NOT_BETTER;
    if (!(copse_lp_objective(s->lp) > enough)) return COPSE_OK;
    out->outcome = COPSE_JOINT_STUCK;
    copse_progress_report(options->progress, "shares", out->rounds, 0);
    take_values(s);
    size_t before = s->n_cuts;
    COPSE_DO(add_cuts(s));
    if (s->n_cuts > before) continue;
    COPSE_DO(try_whole(s, false, out, &done));
    if (!done) out->outcome = COPSE_JOINT_STUCK;
  }
  if (out->outcome == COPSE_JOINT_PROVED) return even_out(s, out);
  return COPSE_OK;
}

static void release_search(struct copse_joint_search *s) {
  copse_lp_free(s->lp);
  free(s->cuts);
  copse_arena_free(&s->arena);
}

static copse_status search_in(const struct copse_network *network,
                              const struct copse_joint_group *groups, int n_groups,
                              const struct copse_joint_options *options, struct copse_joint *out,
                              struct copse_err *err) {
  COPSE_AT_END(release_search)
  struct copse_joint_search s = {
      .network = network,
      .groups = groups,
      .n_groups = n_groups,
      .n_rates = options->separate ? n_groups : 1,
      .whole = options->whole_links,
      .limits = options->limits,
      .max_whole = options->max_whole > 0 ? options->max_whole : INT64_MAX,
      .err = err};
  bool small, done;
  *out = (struct copse_joint){.outcome = COPSE_JOINT_TOO_LARGE, .rate = COPSE_Q_ZERO};
  COPSE_DO(copse_joint_model(&s, options, &small));
  out->columns = s.n_columns;
  if (!small) return COPSE_OK;
  COPSE_DO(copse_joint_by_paths(&s, options, out, &done));
  if (done) return COPSE_OK;
  set_inner(&s);
  if (s.limits) COPSE_DO(share_limits(&s));
  return s.whole ? search_whole(&s, options, out) : search(&s, options->progress, out);
}

/* ---- in the contracted network ------------------------------------------------------------ */

/* The same groups there. */
struct small {
  const struct copse_network *network;
  struct copse_network bounded; /* *network, no link of which has more than can ever be used */
  const struct copse_joint_group *groups;
  int n_groups;
  struct copse_contraction contraction;
  struct copse_joint_group *small_groups; /* [n_groups] */
  struct copse_joint_options options;
  struct copse_arena arena;
  struct copse_joint *out;
  struct copse_err *err;
};

/* ---- into it ------------------------------------------------------------------------------- */

/* Bounds the rate: what goes round is sent to every member or by it, so that no rate is above the
 * capacity of the links into one member or out of it. */
static copse_status most_rate(struct small *m, __int128 *most) {
  const struct copse_joint_group *group = &m->groups[0];
  __int128 *in, *out;
  COPSE_DO(COPSE_ARRAYS(&m->arena, (size_t)m->network->n_nodes, __int128, m->err, &in, &out));
  for (int e = 0; e < m->network->n_links; e++) {
    in[m->network->links[e].dst] += m->network->links[e].capacity;
    out[m->network->links[e].src] += m->network->links[e].capacity;
  }
  *most = in[group->members[0]];
  for (int i = 0; i < group->n_members; i++) {
    if (in[group->members[i]] < *most) *most = in[group->members[i]];
    if (out[group->members[i]] < *most) *most = out[group->members[i]];
  }
  return COPSE_OK;
}

/* Whether relays have as much bandwidth in as out. */
static copse_status is_balanced(struct small *m, const struct copse_net_link *links, bool *yes) {
  __int128 *excess;
  bool *member;
  COPSE_DO(COPSE_ARRAY(&m->arena, (size_t)m->network->n_nodes, excess, m->err));
  COPSE_DO(COPSE_ARRAY(&m->arena, (size_t)m->network->n_nodes, member, m->err));
  for (int e = 0; e < m->network->n_links; e++) {
    excess[links[e].dst] += links[e].capacity;
    excess[links[e].src] -= links[e].capacity;
  }
  for (int i = 0; i < m->groups[0].n_members; i++) member[m->groups[0].members[i]] = true;
  *yes = true;
  for (int v = 0; v < m->network->n_nodes; v++) *yes = *yes && (member[v] || excess[v] == 0);
  return COPSE_OK;
}

/*
 * Cuts links to what the optimum can use. The simplex method computes in floating point, relative
 * to the largest capacity: a link of 1000 beside a rate of 0.2 costs it all digits. A tree crosses
 * a link once for each of its n - 1 edges at most, so trees of rate R in both phases load no link
 * by more than 2 (n - 1) R. Links are cut to twice that. The optimum stays the same, and leaves
 * room on those links. So every proof of it has no price for them (complementary slackness), and
 * holds for the whole network. Where relays would lose their balance, links stay as they are.
 */
static copse_status bound_links(struct small *m) {
  const struct copse_joint_group *group = &m->groups[0];
  struct copse_net_link *links;
  __int128 most;
  bool free_shares = m->n_groups == 1 && group->broadcasts && group->reduces;
  bool balanced, cut = false;
  if (!free_shares || group->closed || group->unbalanced || group->n_extra[0] || group->n_extra[1])
    return COPSE_OK;
  COPSE_DO(most_rate(m, &most));
  if (most == 0 || most > INT64_MAX) return COPSE_OK;
  most *= 4 * (__int128)group->n_members;
  COPSE_DO(COPSE_ARRAY(&m->arena, (size_t)m->network->n_links, links, m->err));
  for (int e = 0; e < m->network->n_links; e++) {
    links[e] = m->network->links[e];
    if (links[e].capacity <= most) continue;
    links[e].capacity = (int64_t)most;
    cut = true;
  }
  COPSE_DO(is_balanced(m, links, &balanced));
  if (!cut || !balanced) return COPSE_OK;
  m->bounded = *m->network;
  m->bounded.links = links;
  m->network = &m->bounded;
  return COPSE_OK;
}

static copse_status contract(struct small *m) {
  size_t nodes = (size_t)m->network->n_nodes;
  bool *fixed, *apart;
  COPSE_DO(COPSE_ARRAYS(&m->arena, nodes, bool, m->err, &fixed, &apart));
  for (int g = 0; g < m->n_groups; g++) {
    const struct copse_joint_group *group = &m->groups[g];
    for (int i = 0; i < group->n_members; i++) fixed[group->members[i]] = true;
    for (int i = 0; i < 2; i++)
      for (int k = 0; k < group->n_extra[i]; k++) fixed[group->extra[i][k]] = true;
    for (size_t v = 0; v < nodes; v++) {
      if (group->unbalanced && group->unbalanced[v]) fixed[v] = true;
      if (group->closed && group->closed[v]) apart[v] = true;
    }
  }
  return copse_contract(m->network, fixed, apart, &m->contraction, m->err);
}

static copse_status map_nodes(struct small *m, const int **nodes, int n) {
  const int *from = *nodes;
  int *to;
  COPSE_DO(COPSE_ARRAY(&m->arena, (size_t)n, to, m->err));
  for (int i = 0; i < n; i++) to[i] = m->contraction.node[from[i]];
  *nodes = to;
  return COPSE_OK;
}

static copse_status map_marks(struct small *m, const bool **marks) {
  const bool *from = *marks;
  bool *to;
  if (!from) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(&m->arena, (size_t)m->contraction.network.n_nodes, to, m->err));
  for (int v = 0; v < m->network->n_nodes; v++)
    if (from[v]) to[m->contraction.node[v]] = true;
  *marks = to;
  return COPSE_OK;
}

static copse_status map_group(struct small *m, const struct copse_joint_group *from,
                              struct copse_joint_group *to) {
  *to = *from;
  COPSE_DO(map_nodes(m, &to->members, from->n_members));
  for (int i = 0; i < 2; i++) COPSE_DO(map_nodes(m, &to->extra[i], from->n_extra[i]));
  if (from->root >= 0) to->root = m->contraction.node[from->root];
  COPSE_DO(map_marks(m, &to->closed));
  return map_marks(m, &to->unbalanced);
}

/* Maps symmetries to the contracted network; *fits: it has all of them. */
static copse_status map_symmetries(struct small *m, const struct copse_joint_options *from,
                                   bool *fits) {
  struct copse_permutation *to;
  int *image, *nodes;
  COPSE_DO(COPSE_ARRAY(&m->arena, (size_t)from->n_symmetries, to, m->err));
  *fits = true;
  m->options = *from;
  m->options.symmetries = to;
  for (int i = 0; i < from->n_symmetries && *fits; i++) {
    COPSE_DO(COPSE_ARRAY(&m->arena, (size_t)m->contraction.network.n_nodes, nodes, m->err));
    /* a permutation may be a symmetry of the contracted network alone */
    COPSE_DO(copse_links_image(m->network, &from->symmetries[i], &m->arena, &image, m->err));
    *fits = copse_contraction_map(&m->contraction, from->symmetries[i].image, nodes,
                                  m->network->n_nodes);
    to[i] = (struct copse_permutation){.image = nodes, .groups = from->symmetries[i].groups};
  }
  return COPSE_OK;
}

/* ---- out of it ----------------------------------------------------------------------------- */

static copse_status lift_amounts(struct small *m, const int64_t *from, const int64_t **out) {
  int64_t *to;
  if (!from) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(&m->out->arena, (size_t)m->network->n_links, to, m->err));
  copse_contraction_lift(&m->contraction, from, to, m->network->n_links);
  *out = to;
  return COPSE_OK;
}

static copse_status lift_potentials(struct small *m, const struct copse_q **potentials) {
  const struct copse_q *from = *potentials;
  struct copse_q *to;
  if (!from) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(&m->out->arena, (size_t)m->network->n_nodes, to, m->err));
  for (int v = 0; v < m->network->n_nodes; v++) to[v] = from[m->contraction.node[v]];
  *potentials = to;
  return COPSE_OK;
}

static copse_status lift_part(struct small *m, const struct copse_joint_group *group,
                              struct copse_joint_part *part) {
  const int64_t **exchange;
  COPSE_DO(lift_amounts(m, part->broadcast, &part->broadcast));
  COPSE_DO(lift_amounts(m, part->reduce, &part->reduce));
  COPSE_DO(lift_potentials(m, &part->broadcast_potentials));
  COPSE_DO(lift_potentials(m, &part->reduce_potentials));
  if (!part->exchange) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(&m->out->arena, (size_t)group->n_members, exchange, m->err));
  for (int i = 0; i < group->n_members; i++)
    COPSE_DO(lift_amounts(m, part->exchange[i], &exchange[i]));
  part->exchange = exchange;
  return COPSE_OK;
}

/* Lifts cuts: nodes that are one lie on the same side. */
static copse_status lift_cuts(struct small *m) {
  struct copse_joint_cut *cuts;
  COPSE_DO(COPSE_ARRAY(&m->out->arena, (size_t)m->out->n_cuts, cuts, m->err));
  for (int c = 0; c < m->out->n_cuts; c++) {
    bool *inside;
    COPSE_DO(COPSE_ARRAY(&m->out->arena, (size_t)m->network->n_nodes, inside, m->err));
    cuts[c] = m->out->cuts[c];
    for (int v = 0; v < m->network->n_nodes; v++)
      inside[v] = cuts[c].inside[m->contraction.node[v]];
    cuts[c].inside = inside;
  }
  m->out->cuts = cuts;
  return COPSE_OK;
}

static copse_status lift(struct small *m) {
  for (int g = 0; m->out->parts && g < m->n_groups; g++)
    COPSE_DO(lift_part(m, &m->groups[g], &m->out->parts[g]));
  if (m->out->n_cuts > 0) return lift_cuts(m);
  return COPSE_OK;
}

static void release(struct small *m) {
  copse_arena_free(&m->arena);
  copse_contraction_free(&m->contraction);
}

copse_status copse_joint_find(const struct copse_network *network,
                              const struct copse_joint_group *groups, int n_groups,
                              const struct copse_joint_options *options, struct copse_joint *out,
                              struct copse_err *err) {
  COPSE_AT_END(release)
  struct small m = {
      .network = network, .groups = groups, .n_groups = n_groups, .out = out, .err = err};
  bool fits;
  *out = (struct copse_joint){.outcome = COPSE_JOINT_TOO_LARGE, .rate = COPSE_Q_ZERO};
  if (options->limits) return search_in(network, groups, n_groups, options, out, err);
  COPSE_DO(bound_links(&m));
  COPSE_DO(contract(&m));
  COPSE_DO(map_symmetries(&m, options, &fits));
  if (!fits || m.contraction.n_merges == 0)
    return search_in(m.network, groups, n_groups, options, out, err);
  COPSE_DO(COPSE_ARRAY(&m.arena, (size_t)n_groups, m.small_groups, err));
  for (int g = 0; g < n_groups; g++) COPSE_DO(map_group(&m, &groups[g], &m.small_groups[g]));
  COPSE_DO(search_in(&m.contraction.network, m.small_groups, n_groups, &m.options, out, err));
  return lift(&m);
}

void copse_joint_free(struct copse_joint *joint) { copse_arena_free(&joint->arena); }
