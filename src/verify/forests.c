#include "verify/forests.h"

#include <stdlib.h>
#include <string.h>

#include "verify/internal.h"

struct checker {
  const struct copse_schedule *schedule;
  const struct copse_topology *topology;
  const int *node_of;
  const char *label;
  char *inside;              /* [n_nodes] of the cut at hand */
  mpq_t *leaving, *entering; /* [n_links] weights of the cuts that the link crosses */
  mpq_t *around;             /* [n_ranks] weights of the cuts that hold the rank */
  mpq_t *potential;          /* [n_nodes] */
  int n_links, n_ranks, n_nodes;
  struct copse_err *err;
};

static copse_status mark_cut(struct checker *c, int index, const struct copse_schedule_cut *cut) {
  memset(c->inside, 0, (size_t)c->n_nodes);
  for (int i = 0; i < cut->n_nodes; i++) {
    int node = c->node_of[cut->nodes[i]];
    if (node < 0)
      return refute(c, "cut %d of the bound names '%s', which the topology lacks", index,
                    c->schedule->nodes[cut->nodes[i]]);
    if (c->inside[node])
      return refute(c, "cut %d of the bound names '%s' twice", index,
                    c->schedule->nodes[cut->nodes[i]]);
    c->inside[node] = 1;
  }
  return COPSE_OK;
}

static copse_status add_cut(struct checker *c, int index) {
  const struct copse_schedule_cut *cut = &c->schedule->bound.cuts[index];
  const struct copse_topology *t = c->topology;
  mpq_t *crossed = cut->phase == COPSE_PHASE_REDUCE ? c->entering : c->leaving;
  int ranks_inside = 0;
  copse_status status = mark_cut(c, index, cut);
  if (status != COPSE_OK) return status;
  if (cut->weight.num <= 0)
    return refute(c, "cut %d of the bound: its weight is not positive", index);
  mpq_t weight;
  mpq_init(weight);
  set_q(weight, cut->weight);
  for (int r = 0; r < c->n_ranks; r++) {
    if (!c->inside[t->rank_nodes[r]]) continue;
    ranks_inside++;
    mpq_add(c->around[r], c->around[r], weight);
  }
  for (int e = 0; e < c->n_links; e++) {
    bool src = c->inside[t->links[e].src], dst = c->inside[t->links[e].dst];
    if (cut->phase == COPSE_PHASE_REDUCE ? !src && dst : src && !dst)
      mpq_add(crossed[e], crossed[e], weight);
  }
  mpq_clear(weight);
  if (ranks_inside == 0 || ranks_inside == c->n_ranks)
    return refute(c, "cut %d of the bound separates nothing: it must hold a rank and miss one",
                  index);
  return COPSE_OK;
}

static copse_status set_potentials(struct checker *c) {
  const struct copse_bound *bound = &c->schedule->bound;
  const struct copse_topology *t = c->topology;
  for (int i = 0; i < bound->n_potentials; i++) {
    const char *id = c->schedule->nodes[bound->potentials[i].node];
    int node = c->node_of[bound->potentials[i].node];
    if (node < 0) return refute(c, "a potential names '%s', which the topology lacks", id);
    if (t->nodes[node].rank >= 0) return refute(c, "a potential names '%s', which is a rank", id);
    if (mpq_sgn(c->potential[node]) != 0) return refute(c, "'%s' has two potentials", id);
    const struct copse_node *clever = copse_verify_switch_at(c->topology, node);
    if (clever)
      return refute(c,
                    "the bound has a potential of '%s', which proves nothing at or beside '%s', a "
                    "switch that copies or adds",
                    id, clever->id);
    set_q(c->potential[node], bound->potentials[i].value);
  }
  return COPSE_OK;
}

/* sum_e b_e max(Z_e, Y_e - (p[dst] - p[src])) */
static void add_up(struct checker *c, mpq_t sum) {
  mpq_t q, bandwidth;
  mpq_inits(q, bandwidth, NULL);
  for (int e = 0; e < c->n_links; e++) {
    const struct copse_link *link = &c->topology->links[e];
    mpq_sub(q, c->potential[link->src], c->potential[link->dst]);
    mpq_add(q, q, c->leaving[e]);
    if (mpq_cmp(q, c->entering[e]) < 0) mpq_set(q, c->entering[e]);
    set_q(bandwidth, link->bandwidth);
    mpq_mul(q, q, bandwidth);
    mpq_add(sum, sum, q);
  }
  mpq_clears(q, bandwidth, NULL);
}

static copse_status prove(struct checker *c, mpq_t time) {
  copse_status status = COPSE_OK;
  for (int i = 0; i < c->schedule->bound.n_cuts; i++) COPSE_TRY(add_cut(c, i));
  for (int r = 0; r < c->n_ranks; r++)
    if (mpq_cmp_ui(c->around[r], 1, 1) < 0)
      return refute(c, "the weights of the bound's cuts around rank %d add up to less than 1", r);
  COPSE_TRY(set_potentials(c));
  mpq_set_ui(time, 0, 1);
  add_up(c, time);
  if (mpq_sgn(time) == 0) return refute(c, "nothing crosses the bound's cuts");
  mpq_inv(time, time);
out:
  return status;
}

copse_status copse_verify_forest_bound(const struct copse_schedule *schedule,
                                       const struct copse_topology *topology, const int *node_of,
                                       const char *label, mpq_t time, struct copse_err *err) {
  struct checker c = {.schedule = schedule,
                      .topology = topology,
                      .node_of = node_of,
                      .label = label,
                      .n_links = topology->n_links,
                      .n_ranks = topology->n_ranks,
                      .n_nodes = topology->n_nodes,
                      .err = err};
  copse_status status;
  c.inside = calloc((size_t)c.n_nodes, 1);
  c.leaving = copse_verify_rationals(c.n_links);
  c.entering = copse_verify_rationals(c.n_links);
  c.around = copse_verify_rationals(c.n_ranks);
  c.potential = copse_verify_rationals(c.n_nodes);
  if (c.inside && c.leaving && c.entering && c.around && c.potential)
    status = prove(&c, time);
  else
    status = copse_fail_nomem(err);
  free(c.inside);
  copse_verify_rationals_free(c.leaving, c.n_links);
  copse_verify_rationals_free(c.entering, c.n_links);
  copse_verify_rationals_free(c.around, c.n_ranks);
  copse_verify_rationals_free(c.potential, c.n_nodes);
  return status;
}
