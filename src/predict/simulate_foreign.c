#include "predict/simulate_foreign.h"

#include <stdlib.h>

#include "base/memory.h"

copse_status copse_foreign_sim_start(struct copse_foreign_sim *sim, const char *label, int n_ranks,
                                     int chunks, const struct copse_topology *topology,
                                     struct copse_sim_dag *dag, struct copse_err *err) {
  struct copse_hosts hosts = {0};
  copse_status status;
  *sim = (struct copse_foreign_sim){.topology = topology, .dag = dag, .chunks = chunks, .err = err};
  if (n_ranks != topology->n_ranks)
    return copse_fail_at(err, COPSE_BAD_INPUT, label, 0,
                         "the file is for %d ranks, the topology has %d", n_ranks,
                         topology->n_ranks);
  COPSE_TRY(copse_hosts_find(topology, &hosts, err));
  COPSE_TRY(copse_routes_find(topology, &hosts, &sim->routes, err));
  COPSE_TRY(copse_calloc((size_t)topology->n_links, sizeof *sim->load, &sim->load, err));
out:
  copse_hosts_free(&hosts);
  return status;
}

void copse_foreign_sim_free(struct copse_foreign_sim *sim) {
  copse_routes_free(&sim->routes);
  free(sim->load);
  sim->load = NULL;
}

copse_status copse_foreign_sim_move(struct copse_foreign_sim *sim, int src, int dst, int64_t count,
                                    const struct copse_sim_transfer *transfer, int *arrival) {
  const struct copse_topology *t = sim->topology;
  int n;
  const int *nodes = copse_route(&sim->routes, src, dst, &n);
  for (int i = 0; i + 1 < n; i++)
    sim->load[copse_topology_find_link(t, nodes[i], nodes[i + 1])] += count;
  return copse_sim_dag_add_path(sim->dag, t, nodes, n, transfer, arrival, sim->err);
}

copse_status copse_foreign_sim_time(const struct copse_foreign_sim *sim, struct copse_q *time) {
  copse_status status = COPSE_OK;
  *time = COPSE_Q_ZERO;
  for (int l = 0; l < sim->topology->n_links; l++) {
    struct copse_q share, t;
    COPSE_TRY(copse_q_make(sim->load[l], sim->chunks, &share, sim->err));
    COPSE_TRY(copse_q_div(share, sim->topology->links[l].bandwidth, &t, sim->err));
    if (copse_q_cmp(t, *time) > 0) *time = t;
  }
out:
  return status;
}
