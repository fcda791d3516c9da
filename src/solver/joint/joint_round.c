#include <gmp.h>
#include <stdlib.h>
#include <string.h>

#include "solver/network/flow.h"
#include "solver/joint/joint_internal.h"
#include "solver/joint/policy.h"

/* Amounts are rounded up and shares down, so that no cut is broken; then the balance at relays is
 * made good along ways to members and from them, which only adds to links. */
struct rounding {
  const struct copse_joint_search *s;
  mpq_t *solution;
  struct copse_joint *out;
  struct copse_joint_part *parts;
  int64_t whole; /* of every group, a multiple of all numbers of roots */
  int *last;     /* [n_nodes] link by which the search came there, -1: not yet, -2: from here */
  int *queue;    /* [n_nodes] */
  struct copse_err *err;
};

/* solution * whole / rate, rounded up or down; false beyond the flows' range. */
static bool scale(const struct rounding *r, int column, bool up, int64_t *to) {
  mpq_t q;
  mpz_t z;
  mpq_init(q);
  mpz_init(z);
  mpq_set_si(q, r->whole, 1);
  mpq_mul(q, q, r->solution[column]);
  mpq_div(q, q, r->solution[0]);
  (up ? mpz_cdiv_q : mpz_fdiv_q)(z, mpq_numref(q), mpq_denref(q));
  bool fits = mpz_sizeinbase(z, 2) <= 56;
  *to = fits ? mpz_get_si(z) : 0;
  mpq_clear(q);
  mpz_clear(z);
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
  int head = 0, tail = 0, end = -1;
  for (int v = 0; v < network->n_nodes; v++) r->last[v] = -1;
  r->last[node] = -2;
  r->queue[tail++] = node;
  while (head < tail && end < 0) {
    int v = r->queue[head++];
    for (int i = 0; i < group->n_members && v != node; i++)
      if (group->members[i] == v && (to < 0 || to == v)) end = v;
    for (int e = 0; e < network->n_links && end < 0; e++) {
      int from = away ? network->links[e].src : network->links[e].dst;
      int next = away ? network->links[e].dst : network->links[e].src;
      if (from != v || phase->column[e] < 0 || r->last[next] != -1) continue;
      r->last[next] = e;
      r->queue[tail++] = next;
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
    bool terminal = false;
    for (int i = 0; i < copse_joint_terminals(r->s, phase); i++)
      terminal = terminal || copse_joint_terminal(r->s, phase, i) == w;
    for (int e = 0; e < network->n_links && !terminal; e++) {
      if (network->links[e].dst == w) gain += amounts[e];
      if (network->links[e].src == w) gain -= amounts[e];
    }
    if (gain != 0) add_way(r, phase, w, gain > 0, -1, gain > 0 ? gain : -gain, amounts);
  }
}

/* ---- parts --------------------------------------------------------------------------------- */

/* What rounding down left of free shares goes to one root, with ways to all others for it. */
static bool set_weights(struct rounding *r, int g, int64_t *weights) {
  const struct copse_joint_group *group = &r->s->groups[g];
  int roots = copse_joint_roots(r->s, g), largest = 0;
  int64_t rest = r->whole;
  for (int i = 0; i < group->n_members; i++) {
    if (!copse_joint_is_root(group, i)) continue;
    if (roots > 0)
      weights[i] = r->whole / roots;
    else if (!scale(r, r->s->share[g][i], false, &weights[i]))
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

static copse_status set_part(struct rounding *r, int g, bool *fits) {
  const struct copse_joint_search *s = r->s;
  size_t members = (size_t)s->groups[g].n_members, links = (size_t)s->network->n_links;
  struct copse_joint_part *part = &r->parts[g];
  int64_t *weights = copse_arena_alloc(&r->out->arena, members, sizeof *weights);
  int64_t **exchange = copse_arena_alloc(&r->out->arena, members, sizeof *exchange);
  if (!weights || !exchange) return copse_fail_nomem(r->err);
  *part = (struct copse_joint_part){.rate = r->out->rate, .whole = r->whole, .weights = weights};
  if (s->groups[g].exchanges) part->exchange = (const int64_t *const *)exchange;
  for (int q = 0; q < s->n_phases; q++) {
    const struct copse_joint_phase *phase = &s->phases[q];
    if (phase->group != g) continue;
    int64_t *amounts = copse_arena_alloc(&r->out->arena, links, sizeof *amounts), sum = 0;
    if (!amounts) return copse_fail_nomem(r->err);
    for (size_t e = 0; e < links && *fits; e++) {
      if (phase->column[e] >= 0) *fits = scale(r, phase->column[e], true, &amounts[e]);
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
  *fits = *fits && set_weights(r, g, weights);
  return COPSE_OK;
}

/* Down to 64 bits. */
static bool set_rate(struct rounding *r) {
  mpq_t q;
  mpq_init(q);
  mpz_tdiv_q(mpq_numref(q), mpq_numref(r->solution[0]), mpq_denref(r->solution[0]));
  size_t used = mpz_sizeinbase(mpq_numref(q), 2);
  mp_bitcnt_t bits = used + COPSE_JOINT_RATE_BITS <= 62 ? COPSE_JOINT_RATE_BITS : used < 62 ? 62 - used : 0;
  mpz_mul_2exp(mpq_numref(q), mpq_numref(r->solution[0]), bits);
  mpz_fdiv_q(mpq_numref(q), mpq_numref(q), mpq_denref(r->solution[0]));
  mpz_set_ui(mpq_denref(q), 1);
  mpz_mul_2exp(mpq_denref(q), mpq_denref(q), bits);
  mpq_canonicalize(q);
  bool fits = mpq_sgn(q) > 0 && copse_joint_q(q, &r->out->rate);
  mpq_clear(q);
  return fits;
}

/* A common whole, so that loads of all groups have one denominator. */
static bool set_whole(struct rounding *r) {
  int64_t multiple = 1, whole = COPSE_JOINT_WHOLE < r->s->max_whole ? COPSE_JOINT_WHOLE : r->s->max_whole;
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
                               struct copse_joint *out, bool *fits, struct copse_err *err) {
  struct rounding r = {.s = s, .solution = solution, .out = out, .err = err};
  size_t nodes = (size_t)s->network->n_nodes;
  copse_status status;
  COPSE_TRY(copse_calloc(nodes, sizeof *r.last, &r.last, err));
  COPSE_TRY(copse_calloc(nodes, sizeof *r.queue, &r.queue, err));
  r.parts = copse_arena_alloc(&out->arena, (size_t)s->n_groups, sizeof *r.parts);
  if (!r.parts) {
    status = copse_fail_nomem(err);
    goto out;
  }
  *fits = s->n_rates == 1 && set_rate(&r) && set_whole(&r);
  for (int g = 0; g < s->n_groups && *fits; g++) COPSE_TRY(set_part(&r, g, fits));
  out->parts = r.parts;
out:
  free(r.last);
  free(r.queue);
  return status;
}

void copse_joint_round_multipliers(mpq_t *multipliers, size_t n) {
  mpq_t most, q;
  mpq_inits(most, q, NULL);
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
  mpq_clears(most, q, NULL);
}
