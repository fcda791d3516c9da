/* From rationals to what is handed out: a solution of the programme becomes parts in whole
 * numbers, its multipliers cuts and potentials. Where the fractions leave 64 bits, both are
 * rounded so that they still hold. docs/theory.md, "src/solver/lp/". */
#include <string.h>

#include "base/graph.h"
#include "solver/joint/internal.h"
#include "solver/policy.h"
#include "solver/network/flow.h"

/* Computes value * factor / divisor, whole by the choice of the factor; false beyond the flows'
 * range. */
static bool scale(const mpq_t value, const mpz_t factor, unsigned long divisor, mpz_t t,
                  int64_t *out) {
  mpz_divexact(t, factor, mpq_denref(value));
  mpz_mul(t, t, mpq_numref(value));
  mpz_divexact_ui(t, t, divisor);
  if (mpz_sizeinbase(t, 2) > 58) return false;
  *out = mpz_get_si(t);
  return true;
}

static void common_denominator(const struct copse_joint_search *s, int group, mpq_t *solution,
                               mpz_t factor) {
  int members = s->groups[group].n_members;
  mpz_set(factor, mpq_denref(solution[copse_joint_rate_column(s, group)]));
  for (int i = 0; s->share[group] && i < members; i++)
    mpz_lcm(factor, factor, mpq_denref(solution[s->share[group][i]]));
  for (int q = 0; q < s->n_phases; q++)
    for (int e = 0; s->phases[q].group == group && e < s->network->n_links; e++)
      if (s->phases[q].column[e] >= 0)
        mpz_lcm(factor, factor, mpq_denref(solution[s->phases[q].column[e]]));
  if (copse_joint_roots(s, group) > 1)
    mpz_mul_ui(factor, factor, (unsigned long)copse_joint_roots(s, group));
}

static void reduce_by(int64_t *values, size_t n, int64_t g) {
  for (size_t i = 0; values && i < n; i++) values[i] /= g;
}

static int64_t gcd_of(const int64_t *values, size_t n, int64_t g) {
  for (size_t i = 0; values && i < n; i++) g = copse_gcd(g, values[i]);
  return g;
}

/* Returns where a phase's amounts stand: the broadcast's, the reduction's, then those to each
 * member. */
static int slot_of(const struct copse_joint_phase *phase) {
  return phase->sink >= 0 ? 2 + phase->sink : phase->reduce;
}

/* Takes the capacity in whole numbers less the amount. */
static bool take_rest(int64_t capacity, const mpz_t factor, mpz_t t, int64_t *amount) {
  mpz_mul_si(t, factor, capacity);
  if (mpz_sizeinbase(t, 2) > 58) return false;
  *amount = mpz_get_si(t) - *amount;
  return true;
}

static copse_status set_amounts(const struct copse_joint_search *s, int group, mpq_t *solution,
                                const mpz_t factor, struct copse_joint *out, int64_t **slots,
                                bool *fits) {
  size_t links = (size_t)s->network->n_links;
  int64_t *amounts, sum = 0; /* of all links: more than goes through any node */
  COPSE_MPZ(t);
  for (int q = 0; q < s->n_phases && *fits; q++) {
    const struct copse_joint_phase *phase = &s->phases[q];
    if (phase->group != group) continue;
    COPSE_DO(COPSE_ARRAY(&out->arena, links, amounts, s->err));
    for (size_t e = 0; e < links && *fits; e++) {
      if (phase->column[e] < 0) continue;
      *fits = scale(solution[phase->column[e]], factor, 1, t, &amounts[e]) &&
              (!phase->rest || take_rest(s->network->links[e].capacity, factor, t, &amounts[e])) &&
              !copse_add_overflows(sum, amounts[e], &sum) && sum < COPSE_FLOW_MAX / 2;
    }
    slots[slot_of(phase)] = amounts;
  }
  return COPSE_OK;
}

static void set_weights(const struct copse_joint_search *s, int group, mpq_t *solution,
                        const mpz_t factor, int64_t *weights, int64_t *whole, bool *fits) {
  const struct copse_joint_group *g = &s->groups[group];
  int roots = copse_joint_roots(s, group);
  COPSE_MPZ(t);
  for (int i = 0; i < g->n_members && *fits; i++) {
    int column = roots > 0 ? copse_joint_rate_column(s, group) : s->share[group][i];
    if (!copse_joint_is_root(g, i)) continue;
    *fits = scale(solution[column], factor, roots > 0 ? (unsigned long)roots : 1, t, &weights[i]);
    *whole += weights[i];
  }
}

static bool set_rate(const struct copse_joint_search *s, int group, mpq_t *solution,
                     struct copse_q *rate) {
  COPSE_MPQ(sum);
  copse_joint_rate(s, group, solution, sum);
  return copse_mpq_get(sum, rate);
}

/* Sets the rational solution times a common denominator, less what all have in common. */
static copse_status set_part(const struct copse_joint_search *s, int group, mpq_t *solution,
                             struct copse_joint *out, struct copse_joint_part *part, bool *fits) {
  const struct copse_joint_group *g = &s->groups[group];
  size_t members = (size_t)g->n_members, links = (size_t)s->network->n_links;
  size_t n_slots = 2 + (g->exchanges ? members : 0);
  int64_t *weights, **slots, common;
  COPSE_MPZ(factor);
  COPSE_DO(COPSE_ARRAY(&out->arena, members, weights, s->err));
  COPSE_DO(COPSE_ARRAY(&out->arena, n_slots, slots, s->err));
  *fits = set_rate(s, group, solution, &part->rate);
  common_denominator(s, group, solution, factor);
  set_weights(s, group, solution, factor, weights, &part->whole, fits);
  COPSE_DO(set_amounts(s, group, solution, factor, out, slots, fits));
  if (!*fits) return COPSE_OK;
  common = gcd_of(weights, members, part->whole);
  for (size_t i = 0; i < n_slots; i++) common = gcd_of(slots[i], links, common);
  if (common > 1) {
    reduce_by(weights, members, common);
    for (size_t i = 0; i < n_slots; i++) reduce_by(slots[i], links, common);
    part->whole /= common;
  }
  *fits = part->whole <= s->max_whole;
  part->weights = weights;
  part->broadcast = slots[0];
  part->reduce = slots[1];
  part->exchange = g->exchanges ? (const int64_t *const *)slots + 2 : NULL;
  return COPSE_OK;
}

copse_status copse_joint_parts(const struct copse_joint_search *s, mpq_t *solution,
                               struct copse_joint *out, bool *fits) {
  struct copse_joint_part *parts;
  COPSE_DO(COPSE_ARRAY(&out->arena, (size_t)s->n_groups, parts, s->err));
  out->rate = COPSE_Q_ZERO;
  *fits = true;
  for (int g = 0; g < s->n_groups && *fits; g++)
    COPSE_DO(set_part(s, g, solution, out, &parts[g], fits));
  for (int g = 0; g < s->n_rates && *fits; g++)
    *fits = copse_q_add(out->rate, parts[g].rate, &out->rate, NULL) == COPSE_OK;
  if (!*fits) return COPSE_OK;
  out->parts = parts;
  return COPSE_OK;
}

/* ---- rounded parts -------------------------------------------------------------------------- */

/* Amounts are rounded up and shares down, so that no cut is broken; then the balance at relays is
 * made good along ways to members and from them, which only adds to links. */
struct rounding {
  const struct copse_joint_search *s;
  mpq_t *solution;
  struct copse_joint *out;
  struct copse_joint_part *parts;
  int64_t whole; /* of every group, a multiple of all numbers of roots */
  int *last;     /* [n_nodes] link by which the search came there, -1: not yet, -2: from here */
  struct copse_queue queue;
};

/* Computes solution * whole / rate, rounded up or down; false beyond the flows' range. */
static bool scale_rounded(const struct rounding *r, int column, bool up, int64_t *to) {
  COPSE_MPQ(q);
  COPSE_MPZ(z);
  mpq_set_si(q, r->whole, 1);
  mpq_mul(q, q, r->solution[column]);
  mpq_div(q, q, r->solution[0]);
  (up ? mpz_cdiv_q : mpz_fdiv_q)(z, mpq_numref(q), mpq_denref(q));
  bool fits = mpz_sizeinbase(z, 2) <= 56;
  *to = fits ? mpz_get_si(z) : 0;
  return fits;
}

static int64_t *slot(const struct copse_joint_phase *phase, struct copse_joint_part *part) {
  return (int64_t *)copse_joint_amounts(phase, part);
}

/* ---- ways ---------------------------------------------------------------------------------- */

/* Adds to a way over links of use from a node to a member, or else the other way round; to the
 * member given, or if -1 to the nearest. */
static void add_way(struct rounding *r, const struct copse_joint_phase *phase, int node, bool away,
                    int to, int64_t amount, int64_t *amounts) {
  const struct copse_network *network = r->s->network;
  const struct copse_joint_group *group = &r->s->groups[phase->group];
  int end = -1;
  for (int v = 0; v < network->n_nodes; v++) r->last[v] = -1;
  r->last[node] = -2;
  copse_queue_reset(&r->queue);
  copse_queue_push(&r->queue, node);
  while (!copse_queue_is_empty(&r->queue) && end < 0) {
    int v = copse_queue_pop(&r->queue);
    for (int i = 0; i < group->n_members && v != node; i++)
      if (group->members[i] == v && (to < 0 || to == v)) end = v;
    for (int e = 0; e < network->n_links && end < 0; e++) {
      int from = away ? network->links[e].src : network->links[e].dst;
      int next = away ? network->links[e].dst : network->links[e].src;
      if (from != v || phase->column[e] < 0 || r->last[next] != -1) continue;
      r->last[next] = e;
      copse_queue_push(&r->queue, next);
    }
  }
  for (int v = end; v >= 0 && r->last[v] >= 0;) {
    const struct copse_net_link *link = &network->links[r->last[v]];
    amounts[r->last[v]] += amount;
    v = away ? link->src : link->dst;
  }
}

static void balance(struct rounding *r, const struct copse_joint_phase *phase, int64_t *amounts) {
  const struct copse_network *network = r->s->network;
  for (int w = 0; w < network->n_nodes; w++) {
    int64_t gain = 0;
    for (int e = 0; e < network->n_links && !phase->terminal[w]; e++) {
      if (network->links[e].dst == w) gain += amounts[e];
      if (network->links[e].src == w) gain -= amounts[e];
    }
    if (gain != 0) add_way(r, phase, w, gain > 0, -1, gain > 0 ? gain : -gain, amounts);
  }
}

/* ---- parts --------------------------------------------------------------------------------- */

/* Gives one root the rest that rounding free shares down has left, with ways to all others. */
static bool round_weights(struct rounding *r, int g, int64_t *weights) {
  const struct copse_joint_group *group = &r->s->groups[g];
  int roots = copse_joint_roots(r->s, g), largest = 0;
  int64_t rest = r->whole;
  for (int i = 0; i < group->n_members; i++) {
    if (!copse_joint_is_root(group, i)) continue;
    if (roots > 0)
      weights[i] = r->whole / roots;
    else if (!scale_rounded(r, r->s->share[g][i], false, &weights[i]))
      return false;
    rest -= weights[i];
    if (weights[i] > weights[largest]) largest = i;
  }
  weights[largest] += rest;
  for (int q = 0; q < r->s->n_phases && rest > 0; q++) {
    const struct copse_joint_phase *phase = &r->s->phases[q];
    for (int i = 0; phase->group == g && i < group->n_members; i++)
      if (i != largest)
        add_way(r, phase, group->members[largest], !phase->reduce, group->members[i], rest,
                slot(phase, &r->parts[g]));
  }
  return true;
}

static copse_status round_part(struct rounding *r, int g, bool *fits) {
  const struct copse_joint_search *s = r->s;
  size_t members = (size_t)s->groups[g].n_members, links = (size_t)s->network->n_links;
  struct copse_joint_part *part = &r->parts[g];
  int64_t *weights, **exchange;
  COPSE_DO(COPSE_ARRAY(&r->out->arena, members, weights, r->s->err));
  COPSE_DO(COPSE_ARRAY(&r->out->arena, members, exchange, r->s->err));
  *part = (struct copse_joint_part){.rate = r->out->rate, .whole = r->whole, .weights = weights};
  if (s->groups[g].exchanges) part->exchange = (const int64_t *const *)exchange;
  for (int q = 0; q < s->n_phases; q++) {
    const struct copse_joint_phase *phase = &s->phases[q];
    if (phase->group != g) continue;
    int64_t *amounts, sum = 0;
    COPSE_DO(COPSE_ARRAY(&r->out->arena, links, amounts, r->s->err));
    for (size_t e = 0; e < links && *fits; e++) {
      if (phase->column[e] >= 0) *fits = scale_rounded(r, phase->column[e], true, &amounts[e]);
      *fits = *fits && !copse_add_overflows(sum, amounts[e], &sum) && sum < COPSE_FLOW_MAX / 4;
    }
    if (!*fits) return COPSE_OK;
    if (phase->sink >= 0)
      exchange[phase->sink] = amounts;
    else if (phase->reduce)
      part->reduce = amounts;
    else
      part->broadcast = amounts;
    if (phase->sink < 0) balance(r, phase, amounts);
  }
  *fits = *fits && round_weights(r, g, weights);
  return COPSE_OK;
}

/* Brings the rate down to 64 bits. */
static bool round_rate(struct rounding *r) {
  COPSE_MPQ(q);
  mpz_tdiv_q(mpq_numref(q), mpq_numref(r->solution[0]), mpq_denref(r->solution[0]));
  size_t used = mpz_sizeinbase(mpq_numref(q), 2);
  mp_bitcnt_t bits = used + COPSE_JOINT_RATE_BITS <= 62 ? COPSE_JOINT_RATE_BITS
                     : used < 62                        ? 62 - used
                                                        : 0;
  mpz_mul_2exp(mpq_numref(q), mpq_numref(r->solution[0]), bits);
  mpz_fdiv_q(mpq_numref(q), mpq_numref(q), mpq_denref(r->solution[0]));
  mpz_set_ui(mpq_denref(q), 1);
  mpz_mul_2exp(mpq_denref(q), mpq_denref(q), bits);
  mpq_canonicalize(q);
  return mpq_sgn(q) > 0 && copse_mpq_get(q, &r->out->rate);
}

/* Chooses a common denominator for the loads of all groups. */
static bool choose_whole(struct rounding *r) {
  int64_t multiple = 1,
          whole = COPSE_JOINT_WHOLE < r->s->max_whole ? COPSE_JOINT_WHOLE : r->s->max_whole;
  for (int g = 0; g < r->s->n_groups; g++) {
    int64_t roots = copse_joint_roots(r->s, g);
    if (roots == 0) continue;
    multiple *= roots / copse_gcd(multiple, roots);
    if (multiple > whole >> 10) return false;
  }
  r->whole = whole / multiple * multiple;
  return true;
}

copse_status copse_joint_round(const struct copse_joint_search *s, mpq_t *solution,
                               struct copse_joint *out, bool *fits) {
  struct rounding r = {.s = s, .solution = solution, .out = out};
  size_t nodes = (size_t)s->network->n_nodes;
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  COPSE_DO(COPSE_ARRAYS(&scratch, nodes, int, s->err, &r.last, &r.queue.items));
  COPSE_DO(COPSE_ARRAY(&out->arena, (size_t)s->n_groups, r.parts, s->err));
  *fits = s->n_rates == 1 && round_rate(&r) && choose_whole(&r);
  for (int g = 0; g < s->n_groups && *fits; g++) COPSE_DO(round_part(&r, g, fits));
  out->parts = r.parts;
  return COPSE_OK;
}

void copse_joint_round_multipliers(mpq_t *multipliers, size_t n) {
  COPSE_MPQ(most);
  COPSE_MPQ(q);
  for (size_t i = 0; i < n; i++) {
    mpq_abs(q, multipliers[i]);
    if (mpq_cmp(q, most) > 0) mpq_set(most, q);
  }
  for (size_t i = 0; i < n && mpq_sgn(most) > 0; i++) {
    mpq_div(q, multipliers[i], most);
    mpz_mul_2exp(mpq_numref(q), mpq_numref(q), COPSE_JOINT_MULTIPLIER_BITS);
    mpz_fdiv_q(mpq_numref(multipliers[i]), mpq_numref(q), mpq_denref(q));
    mpz_set_ui(mpq_denref(multipliers[i]), 1);
  }
}

struct proof {
  const struct copse_joint_search *s;
  mpq_t *multipliers;
  struct copse_joint *out;
  struct copse_joint_cut *cuts;
  size_t n_cuts, capacity;
  bool fits;
};

static copse_status add_cut(struct proof *p, const struct copse_joint_phase *phase,
                            const bool *inside, const mpq_t weight) {
  size_t nodes = (size_t)p->s->network->n_nodes;
  struct copse_joint_cut cut = {
      .group = phase->group, .reduce = phase->reduce, .sink = phase->sink};
  bool *copy;
  COPSE_DO(COPSE_ARRAY(&p->out->arena, nodes, copy, p->s->err));
  memcpy(copy, inside, nodes * sizeof *copy);
  cut.inside = copy;
  p->fits = p->fits && copse_mpq_get(weight, &cut.weight);
  COPSE_DO(COPSE_GROW_IN(&p->out->arena, p->cuts, p->capacity, p->n_cuts + 1, p->s->err));
  p->cuts[p->n_cuts++] = cut;
  return COPSE_OK;
}

/* Adds rows' cuts. Turned, a row is of both phases of its group, and half of it of each. */
static copse_status add_row_cuts(struct proof *p) {
  COPSE_MPQ(weight); /* of a link in the row */
  COPSE_MPQ(roots);
  for (size_t i = 0; i < p->s->n_cuts && p->fits; i++) {
    const struct copse_joint_row *row = &p->s->cuts[i];
    const struct copse_joint_phase *phase = &p->s->phases[row->phase];
    int n_roots = copse_joint_roots(p->s, phase->group);
    if (mpq_sgn(p->multipliers[row->row]) == 0) continue;
    mpq_set_si(roots, n_roots > 0 ? n_roots : 1, 1);
    mpq_mul(weight, p->multipliers[row->row], roots);
    if (p->s->turned) {
      mpq_div_2exp(weight, weight, 1);
      COPSE_DO(add_cut(p, phase + 1, row->inside, weight));
    }
    COPSE_DO(add_cut(p, phase, row->inside, weight));
  }
  return COPSE_OK;
}

/* ---- flows to one member ------------------------------------------------------------------- */

/* Sets distances to the sink, which the multipliers of a flow's rows are; a row's is that of all
 * images together: here those of this phase, which also stands for all of its images. 0 at the sink
 * and where there is no row. */
static void set_distances(const struct proof *p, const struct copse_joint_phase *phase, int *images,
                          mpq_t *distance) {
  int n_nodes = p->s->network->n_nodes, roots = copse_joint_roots(p->s, phase->group);
  COPSE_MPQ(q);
  memset(images, 0, (size_t)n_nodes * sizeof *images);
  for (int v = 0; v < n_nodes; v++) images[phase->leader[v]]++;
  for (int v = 0; v < n_nodes; v++) {
    int leader = phase->leader[copse_joint_anchor(phase, v)], row = phase->relay_row[leader];
    mpq_set_ui(distance[v], 0, 1);
    if (row < 0) continue;
    mpq_set_si(q, -roots, (unsigned long)images[leader]);
    mpq_canonicalize(q);
    mpq_mul(distance[v], p->multipliers[row], q);
  }
}

/* Finds the least distance above a given one, where some member is farther than that; false: there
 * is none. */
static bool next_distance(const struct proof *p, const struct copse_joint_phase *phase,
                          mpq_t *distance, const mpq_t above, mpq_t next) {
  const struct copse_joint_group *group = &p->s->groups[phase->group];
  bool member = false, found = false;
  for (int i = 0; i < group->n_members; i++)
    member = member || mpq_cmp(distance[group->members[i]], above) > 0;
  for (int v = 0; v < p->s->network->n_nodes && member; v++) {
    if (mpq_cmp(distance[v], above) <= 0 || (found && mpq_cmp(distance[v], next) >= 0)) continue;
    mpq_set(next, distance[v]);
    found = true;
  }
  return found;
}

/* Adds a cut between every two distances, of the weight of what lies between them. */
static copse_status add_flow_cuts(struct proof *p, const struct copse_joint_phase *phase) {
  size_t n_nodes = (size_t)p->s->network->n_nodes;
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  COPSE_AT_END(copse_rationals_free) mpq_t *distance = NULL;
  COPSE_MPQ(last);
  COPSE_MPQ(next);
  COPSE_MPQ(weight);
  bool *inside;
  int *images;
  COPSE_DO(COPSE_ARRAY(&scratch, n_nodes, inside, p->s->err));
  COPSE_DO(COPSE_ARRAY(&scratch, n_nodes, images, p->s->err));
  COPSE_DO(copse_rationals_new(n_nodes, &distance, p->s->err));
  set_distances(p, phase, images, distance);
  while (next_distance(p, phase, distance, last, next)) {
    for (size_t v = 0; v < n_nodes; v++) inside[v] = mpq_cmp(distance[v], next) >= 0;
    mpq_sub(weight, next, last);
    COPSE_DO(add_cut(p, phase, inside, weight));
    mpq_set(last, next);
  }
  return COPSE_OK;
}

/* ---- potentials ---------------------------------------------------------------------------- */

static copse_status set_potentials(struct proof *p, const struct copse_joint_phase *phase) {
  struct copse_joint_part *part = &p->out->parts[phase->group];
  int n_nodes = p->s->network->n_nodes;
  struct copse_q *potentials;
  bool turned = p->s->turned && phase->reduce; /* what enters a node then leaves it */
  COPSE_MPQ(value);
  COPSE_DO(COPSE_ARRAY(&p->out->arena, (size_t)n_nodes, potentials, p->s->err));
  for (int v = 0; v < n_nodes && p->fits; v++) {
    int row = (turned ? phase - 1 : phase)->relay_row[copse_joint_anchor(phase, v)];
    potentials[v] = COPSE_Q_ZERO;
    if (row < 0) continue;
    mpq_set(value, p->multipliers[row]);
    if (p->s->turned) mpq_div_2exp(value, value, 1);
    if (turned) mpq_neg(value, value);
    p->fits = copse_mpq_get(value, &potentials[v]);
  }
  *(phase->reduce ? &part->reduce_potentials : &part->broadcast_potentials) = potentials;
  return COPSE_OK;
}

/* Sets, with limits, the multipliers of their rows. */
static copse_status set_prices(struct proof *p) {
  const struct copse_joint_search *s = p->s;
  struct copse_q *prices;
  COPSE_DO(COPSE_ARRAY(&p->out->arena, (size_t)s->limits->n, prices, s->err));
  for (int i = 0; i < s->limits->n && p->fits; i++) {
    prices[i] = COPSE_Q_ZERO;
    if (s->limit_row[i] >= 0) p->fits = copse_mpq_get(p->multipliers[s->limit_row[i]], &prices[i]);
  }
  p->out->prices = prices;
  return COPSE_OK;
}

copse_status copse_joint_proof(const struct copse_joint_search *s, mpq_t *multipliers,
                               struct copse_joint *out, bool *fits) {
  struct proof p = {.s = s, .multipliers = multipliers, .out = out, .fits = true};
  if (s->limits) {
    COPSE_DO(set_prices(&p));
    *fits = p.fits;
    return COPSE_OK;
  }
  COPSE_DO(add_row_cuts(&p));
  for (int q = 0; q < s->n_phases && p.fits; q++) {
    const struct copse_joint_phase *phase = &s->phases[q];
    if (phase->sink < 0)
      COPSE_DO(set_potentials(&p, phase));
    else if (copse_joint_leads(phase, copse_joint_terminal(s, phase, phase->sink)))
      COPSE_DO(add_flow_cuts(&p, phase));
  }
  out->cuts = p.cuts;
  out->n_cuts = (int)p.n_cuts;
  *fits = p.fits;
  return COPSE_OK;
}
