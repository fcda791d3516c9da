#include "schedule/ranks.h"

#include <stdlib.h>

#include "base/memory.h"
#include "topology/modify.h"

copse_status copse_schedule_choose_ranks(const struct copse_schedule *schedule,
                                         struct copse_topology **topology, struct copse_err *err) {
  const struct copse_topology *t = *topology;
  struct copse_topology *chosen = NULL;
  bool same = schedule->n_ranks == t->n_ranks, known = !t->chosen_from;
  int *nodes = NULL;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)schedule->n_ranks, sizeof *nodes, &nodes, err));
  for (int r = 0; r < schedule->n_ranks && known; r++) {
    nodes[r] = copse_topology_find(t, schedule->nodes[schedule->rank_nodes[r]]);
    known = nodes[r] >= 0 && t->nodes[nodes[r]].rank >= 0;
    same = same && known && t->rank_nodes[r] == nodes[r];
  }
  if (same || !known) goto out;
  COPSE_TRY(copse_topology_choose_ranks(t, nodes, schedule->n_ranks, schedule->others_excluded,
                                        &chosen, err));
  copse_topology_release(*topology);
  *topology = chosen;
out:
  free(nodes);
  return status;
}
