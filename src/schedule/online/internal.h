/* What the two kinds of planner behind schedule/online/online.h share. */
#pragma once

#include "schedule/online/online.h"

/* Returns the host of an id: "h12.gpu3" is host 12; -1 for an id without such a beginning. */
static inline int copse_online_host_of(const char *id) {
  int host;
  (void)copse_host_prefix(id, &host);
  return host;
}

/* Returns what a hop from rank to rank costs beside its links: as predictions have it by
 * default. */
int64_t copse_online_hop_ns(void);

/* Converts the bandwidths of all links to integers, `scale` of them to the GB/s. The arena owns
 * *units. COPSE_OVERFLOW. */
copse_status copse_online_link_units(const struct copse_topology *topology,
                                     struct copse_arena *arena, int64_t **units, int64_t *scale,
                                     struct copse_err *err) COPSE_CHECKED;
