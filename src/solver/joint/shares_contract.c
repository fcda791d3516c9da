/* The search in a network without relays that never bind, and its result in the whole one. */
#include <stdlib.h>

#include "solver/network/contract.h"
#include "solver/joint/shares_internal.h"

struct small {
  const struct copse_network *network;
  struct copse_contraction contraction;
  int *terminals; /* [n_terminals] of what is left */
  struct copse_shares *out;
  struct copse_err *err;
};

static copse_status contract(struct small *m) {
  const struct copse_network *network = m->network;
  bool *terminal = NULL, *apart = NULL;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)network->n_nodes, sizeof *terminal, &terminal, m->err));
  COPSE_TRY(copse_calloc((size_t)network->n_nodes, sizeof *apart, &apart, m->err));
  COPSE_TRY(copse_calloc((size_t)network->n_terminals, sizeof(int), &m->terminals, m->err));
  for (int i = 0; i < network->n_terminals; i++) terminal[network->terminals[i]] = true;
  COPSE_TRY(copse_contract(network, terminal, apart, &m->contraction, m->err));
  for (int i = 0; i < network->n_terminals; i++)
    m->terminals[i] = m->contraction.node[network->terminals[i]];
  m->contraction.network.terminals = m->terminals;
  m->contraction.network.n_terminals = network->n_terminals;
out:
  free(terminal);
  free(apart);
  return status;
}

static copse_status lift_amounts(struct small *m, const int64_t **amounts) {
  int64_t *to = copse_arena_alloc(&m->out->arena, (size_t)m->network->n_links, sizeof *to);
  if (!to) return copse_fail_nomem(m->err);
  copse_contraction_lift(&m->contraction, *amounts, to, m->network->n_links);
  *amounts = to;
  return COPSE_OK;
}

/* Nodes that are one lie on the same side and have the same potential. */
static copse_status lift_proof(struct small *m) {
  struct copse_shares *out = m->out;
  size_t nodes = (size_t)m->network->n_nodes;
  struct copse_q *potentials = copse_arena_alloc(&out->arena, nodes, sizeof *potentials);
  struct copse_shares_cut *cuts = copse_arena_alloc(&out->arena, (size_t)out->n_cuts, sizeof *cuts);
  if (!potentials || !cuts) return copse_fail_nomem(m->err);
  for (size_t v = 0; v < nodes; v++) potentials[v] = out->potentials[m->contraction.node[v]];
  for (int c = 0; c < out->n_cuts; c++) {
    bool *inside = copse_arena_alloc(&out->arena, nodes, sizeof *inside);
    if (!inside) return copse_fail_nomem(m->err);
    for (size_t v = 0; v < nodes; v++) inside[v] = out->cuts[c].inside[m->contraction.node[v]];
    cuts[c] = out->cuts[c];
    cuts[c].inside = inside;
  }
  out->potentials = potentials;
  out->cuts = cuts;
  return COPSE_OK;
}

copse_status copse_shares_find(const struct copse_network *network,
                               const struct copse_shares_options *options, struct copse_shares *out,
                               struct copse_err *err) {
  struct small m = {.network = network, .out = out, .err = err};
  copse_status status;
  *out = (struct copse_shares){.outcome = COPSE_SHARES_TOO_LARGE, .rate = COPSE_Q_ZERO};
  COPSE_TRY(contract(&m));
  COPSE_TRY(copse_shares_search(&m.contraction.network, options, out, err));
  if (out->outcome != COPSE_SHARES_PROVED) goto out;
  COPSE_TRY(lift_amounts(&m, &out->broadcast));
  COPSE_TRY(lift_amounts(&m, &out->reduce));
  status = lift_proof(&m);
out:
  free(m.terminals);
  copse_contraction_free(&m.contraction);
  return status;
}
