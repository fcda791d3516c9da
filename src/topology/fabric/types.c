/* The kinds of fabrics, each with its switches and cables. */
#include <inttypes.h>
#include <stdlib.h>

#include "topology/fabric/fabric.h"
#include "topology/fabric/torus.h"

static int parts(int n, int size) { return n / size + (n % size != 0); }

copse_status copse_fabric_add_flat(const struct copse_composer *c) {
  int hub = -1;
  copse_status status;
  COPSE_TRY(copse_fabric_add_switch(c, &hub, "fabric"));
  for (int p = 0; p < c->n_ports; p++) COPSE_TRY(copse_fabric_plug(c, &c->ports[p], hub));
out:
  return status;
}

copse_status copse_fabric_add_rails(const struct copse_composer *c) {
  int first = -1, spine = -1;
  copse_status status;
  COPSE_TRY(copse_fabric_add_switch(c, &first, "rail0"));
  for (int i = 1; i < c->n_places; i++) COPSE_TRY(copse_fabric_add_switch(c, NULL, "rail%d", i));
  if (c->fabric->spine_bandwidth.num > 0) COPSE_TRY(copse_fabric_add_switch(c, &spine, "spine"));
  for (int p = 0; p < c->n_ports; p++)
    COPSE_TRY(copse_fabric_plug(c, &c->ports[p], first + c->ports[p].place));
  for (int i = 0; spine >= 0 && i < c->n_places; i++)
    COPSE_TRY(copse_fabric_join(c, first + i, spine, c->fabric->spine_bandwidth));
out:
  return status;
}

/* ---- clos ----------------------------------------------------------------------------- */

struct leaf {
  int node; /* -1 until something is plugged in */
  struct copse_q down;
};

static copse_status plug_leaves(const struct copse_composer *c, struct leaf *leaves) {
  const struct copse_fabric *fabric = c->fabric;
  int rails = fabric->leaf_rails ? c->n_places : 1;
  copse_status status = COPSE_OK;
  for (int p = 0; p < c->n_ports; p++) {
    const struct copse_port *port = &c->ports[p];
    int pod = port->host / fabric->leaf_hosts, rail = fabric->leaf_rails ? port->place : 0;
    struct leaf *leaf = &leaves[(int64_t)pod * rails + rail];
    if (leaf->down.num == 0 && fabric->leaf_rails)
      COPSE_TRY(copse_fabric_add_switch(c, &leaf->node, "leaf%d.rail%d", pod, rail));
    else if (leaf->down.num == 0)
      COPSE_TRY(copse_fabric_add_switch(c, &leaf->node, "leaf%d", pod));
    COPSE_TRY(copse_q_add(leaf->down, port->bandwidth, &leaf->down, c->err));
    COPSE_TRY(copse_fabric_plug(c, port, leaf->node));
  }
out:
  return status;
}

static copse_status join_spines(const struct copse_composer *c, const struct leaf *leaves,
                                int n_leaves) {
  const struct copse_fabric *fabric = c->fabric;
  struct copse_q divisor, up;
  int first = -1;
  copse_status status;
  for (int s = 0; s < fabric->spines; s++) {
    int *index = s == 0 ? &first : NULL;
    COPSE_TRY(fabric->spines == 1 ? copse_fabric_add_switch(c, index, "spine")
                                  : copse_fabric_add_switch(c, index, "spine%d", s));
  }
  COPSE_TRY(
      copse_q_mul(fabric->oversubscription, (struct copse_q){fabric->spines, 1}, &divisor, c->err));
  for (int i = 0; i < n_leaves; i++) {
    if (leaves[i].down.num == 0) continue;
    COPSE_TRY(copse_q_div(leaves[i].down, divisor, &up, c->err));
    for (int s = 0; s < fabric->spines; s++)
      COPSE_TRY(copse_fabric_join(c, leaves[i].node, first + s, up));
  }
out:
  return status;
}

copse_status copse_fabric_add_clos(const struct copse_composer *c) {
  const struct copse_fabric *fabric = c->fabric;
  int64_t pods = parts(c->n_hosts, fabric->leaf_hosts);
  int64_t n_leaves = pods * (fabric->leaf_rails ? c->n_places : 1);
  struct leaf *leaves = NULL;
  copse_status status;
  COPSE_TRY(copse_fabric_check_size(c, n_leaves + fabric->spines, 2 * n_leaves * fabric->spines));
  COPSE_TRY(copse_calloc((size_t)n_leaves, sizeof *leaves, &leaves, c->err));
  for (int64_t i = 0; i < n_leaves; i++) leaves[i] = (struct leaf){-1, COPSE_Q_ZERO};
  COPSE_TRY(plug_leaves(c, leaves));
  if (n_leaves > 1) status = join_spines(c, leaves, (int)n_leaves);
out:
  free(leaves);
  return status;
}

/* ---- dragonfly ------------------------------------------------------------------------ */

/*
 * A group's cables to the others leave from its routers in turn, the nearest group's first, so
 * that every router has the same number of them, or one more.
 */
static int cable_router(const struct copse_fabric *fabric, int groups, int from, int to, int i) {
  int64_t all = (int64_t)fabric->global_links * (groups - 1);
  int64_t which = (int64_t)((to - from + groups) % groups - 1) * fabric->global_links + i;
  return from * fabric->group_routers + (int)(which * fabric->group_routers / all);
}

static copse_status join_routers(const struct copse_composer *c, int first, int groups) {
  const struct copse_fabric *fabric = c->fabric;
  int size = fabric->group_routers;
  copse_status status = COPSE_OK;
  for (int g = 0; g < groups; g++)
    for (int a = g * size; a < (g + 1) * size; a++)
      for (int b = a + 1; b < (g + 1) * size; b++)
        COPSE_TRY(copse_fabric_join(c, first + a, first + b, fabric->local_bandwidth));
  for (int g = 0; g < groups; g++)
    for (int h = g + 1; h < groups; h++)
      for (int i = 0; i < fabric->global_links; i++)
        COPSE_TRY(copse_fabric_join(c, first + cable_router(fabric, groups, g, h, i),
                                    first + cable_router(fabric, groups, h, g, i),
                                    fabric->global_bandwidth));
out:
  return status;
}

static copse_status plug_routers(const struct copse_composer *c, int first) {
  copse_status status = COPSE_OK;
  for (int p = 0; p < c->n_ports && status == COPSE_OK; p++)
    status = copse_fabric_plug(c, &c->ports[p], first + c->ports[p].host / c->fabric->router_hosts);
  return status;
}

copse_status copse_fabric_add_dragonfly(const struct copse_composer *c) {
  const struct copse_fabric *fabric = c->fabric;
  int64_t size = fabric->group_routers;
  int64_t groups = parts(parts(c->n_hosts, fabric->router_hosts), fabric->group_routers);
  int first = -1;
  copse_status status;
  /* of the quadratic terms each is held small before it meets another factor */
  COPSE_TRY(copse_fabric_check_size(c, groups * size, groups * groups));
  COPSE_TRY(copse_fabric_check_size(
      c, 0, groups * size * (size - 1) + groups * (groups - 1) * fabric->global_links));
  for (int g = 0; g < groups; g++)
    for (int r = 0; r < size; r++)
      COPSE_TRY(copse_fabric_add_switch(c, g + r == 0 ? &first : NULL, "group%d.router%d", g, r));
  COPSE_TRY(plug_routers(c, first));
  status = join_routers(c, first, (int)groups);
out:
  return status;
}

/* ---- torus ---------------------------------------------------------------------------- */

static copse_status name_router(const struct copse_composer *c, int at, int *index) {
  const struct copse_fabric *fabric = c->fabric;
  char name[COPSE_MAX_DIMENSIONS * 12] = "";
  copse_torus_coordinates(fabric->dims, fabric->n_dims, at, name, sizeof name);
  return copse_fabric_add_switch(c, index, "router%s", name);
}

copse_status copse_fabric_add_torus(const struct copse_composer *c) {
  const struct copse_fabric *fabric = c->fabric;
  int64_t n = 1;
  int first = -1, routers = parts(c->n_hosts, fabric->router_hosts);
  copse_status status;
  for (int d = 0; d < fabric->n_dims && n <= routers; d++) n *= fabric->dims[d];
  if (n != routers)
    return copse_fail_at(c->err, COPSE_BAD_INPUT, c->file, fabric->line,
                         "%d hosts, %d on a router, need a torus of %d routers; \"dims\" multiply "
                         "to %s%" PRId64,
                         c->n_hosts, fabric->router_hosts, routers, n > routers ? "at least " : "",
                         n);
  COPSE_TRY(copse_fabric_check_size(c, n, n * 2 * fabric->n_dims));
  for (int i = 0; i < n; i++) COPSE_TRY(name_router(c, i, i == 0 ? &first : NULL));
  COPSE_TRY(plug_routers(c, first));
  for (int i = 0; i < n; i++)
    for (int d = 0; d < fabric->n_dims; d++) {
      int next = copse_torus_next(fabric->dims, fabric->n_dims, i, d);
      if (next >= 0)
        COPSE_TRY(copse_fabric_join(c, first + i, first + next, fabric->link_bandwidth));
    }
out:
  return status;
}
