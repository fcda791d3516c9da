/*
 * Hosts on a fabric: the hosts' nodes and links with "h0.", "h1." .. before their ids, then the
 * fabric's switches, then a cable from every NIC ("net" ports in NCCL dumps) to its switch.
 *
 *        spine                 clos: a leaf's way up is what it takes in / oversubscription
 *       /     \
 *   leaf0     leaf1            dragonfly: groups of routers, all joined; torus: a closed grid;
 *    / \       / \             map: switches and cables as ibnetdiscover or Slurm has them
 *   h0  h1    h2  h3
 *
 * Dragonfly: Kim, Dally, Scott, Abts: Technology-Driven, Highly-Scalable Dragonfly Topology (2008).
 */
#include "topology/fabric/fabric.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/graph.h"
#include "base/text.h"

/* A NIC that is on the fabric. */
struct port {
  int node, host;
  int place; /* number among the NICs of its host */
  struct copse_q bandwidth;
  const char *id; /* in its host */
};

struct composer {
  struct copse_topology_builder *builder;
  const char *file;
  const struct copse_fabric *fabric;
  const struct copse_host_group *groups;
  struct copse_err *err;
  int n_groups, n_hosts;
  struct port *ports;    /* [n_ports] by host, then place */
  int n_ports, n_places; /* places: the most NICs of a host */
  /* of a map */
  const struct copse_fabric_map *map;
  int *first_port; /* [n_hosts + 1] into ports */
  bool *taken;     /* [n_ports] of the map */
  int first_switch;
  struct copse_arena *scratch;
};

/* ---- what the kinds of fabrics are built with ----------------------------------------- */

static copse_status add_switch(const struct composer *c, int *index, const char *fmt, ...) {
  char id[160];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(id, sizeof id, fmt, ap);
  va_end(ap);
  struct copse_node node = {.id = id, .type = "switch", .rank = -1};
  return copse_builder_add_node(c->builder, c->fabric->line, &node, index, c->err);
}

static copse_status join(const struct composer *c, int a, int b, struct copse_q bandwidth) {
  return copse_builder_add_duplex(c->builder, c->fabric->line, a, b, bandwidth, c->fabric->latency,
                                  c->err);
}

/* Joins a port to a switch. */
static copse_status plug(const struct composer *c, const struct port *port, int to) {
  return join(c, port->node, to, port->bandwidth);
}

/* Refuses more than the limits of a topology, before anything of that size is made. */
static copse_status check_size(const struct composer *c, long line, int64_t nodes, int64_t links) {
  if (nodes <= COPSE_TOPOLOGY_MAX_NODES && links <= COPSE_TOPOLOGY_MAX_LINKS) return COPSE_OK;
  return copse_fail_at(
      c->err, COPSE_BAD_INPUT, c->file, line,
      "%d hosts make %" PRId64 " nodes and %" PRId64 " links; at most %d and %d are possible",
      c->n_hosts, nodes, links, COPSE_TOPOLOGY_MAX_NODES, COPSE_TOPOLOGY_MAX_LINKS);
}

/* ---- hosts ---------------------------------------------------------------------------- */

/* Returns the type of the nodes in which cables end: the net ports that an NCCL dump has behind
 * each NIC; without those, the NICs. */
static const char *port_type(const struct copse_topology *host) {
  for (int i = 0; i < host->n_nodes; i++)
    if (strcmp(host->nodes[i].type, "net") == 0) return "net";
  return "nic";
}

static bool is_port(const struct copse_host_group *group, const char *type, int node) {
  const struct copse_node *n = &group->host->nodes[node];
  return strcmp(n->type, type) == 0 && (!group->nics || fnmatch(group->nics, n->id, 0) == 0);
}

static int count_ports(const struct copse_host_group *group) {
  const char *type = port_type(group->host);
  int n = 0;
  for (int i = 0; i < group->host->n_nodes; i++) n += is_port(group, type, i);
  return n;
}

/* Refuses a host without ports, which can't join; also one whose "NIC" is in capitals, a relay as
 * any unknown type. */
static copse_status refuse_host(const struct composer *c, const struct copse_host_group *group) {
  char likely[160] = "";
  for (int i = 0; i < group->host->n_nodes && !*likely; i++) {
    const struct copse_node *n = &group->host->nodes[i];
    if (strcasecmp(n->type, "nic") == 0 && strcmp(n->type, "nic") != 0)
      snprintf(likely, sizeof likely, "; \"%.80s\" has type \"%.8s\": write \"nic\"", n->id,
               n->type);
  }
  return copse_fail_at(c->err, COPSE_BAD_INPUT, c->file, group->line,
                       "host \"%.80s\" has no node of type \"nic\" or \"net\"%s%.80s and can't "
                       "join a fabric%s",
                       group->host->name, group->nics ? " with an id like " : "",
                       group->nics ? group->nics
                       : *likely   ? ""
                                   : " (--links nvlink leaves them out)",
                       likely);
}

static copse_status measure(struct composer *c) {
  int64_t nodes = 0, links = 0, hosts = 0, ports = 0;
  for (int g = 0; g < c->n_groups; g++) {
    const struct copse_host_group *group = &c->groups[g];
    int n = count_ports(group);
    if (n == 0) return refuse_host(c, group);
    if (n > c->n_places) c->n_places = n;
    hosts += group->count;
    ports += (int64_t)group->count * n;
    nodes += (int64_t)group->count * group->host->n_nodes;
    links += (int64_t)group->count * group->host->n_links;
  }
  c->n_hosts = hosts > COPSE_TOPOLOGY_MAX_NODES ? COPSE_TOPOLOGY_MAX_NODES : (int)hosts;
  COPSE_DO(check_size(c, c->groups[0].line, nodes + 1, links + 2 * ports));
  c->n_hosts = (int)hosts;
  return COPSE_ARRAY(c->scratch, (size_t)ports, c->ports, c->err);
}

static copse_status add_host_nodes(struct composer *c, const struct copse_host_group *group, int h,
                                   int first, int first_rank) {
  const struct copse_topology *host = group->host;
  const char *type = port_type(host);
  struct copse_q bandwidth = group->bandwidth.num ? group->bandwidth : c->fabric->bandwidth;
  COPSE_AT_END(copse_text_free) struct copse_text id = {0};
  int place = 0;
  for (int i = 0; i < host->n_nodes; i++) {
    struct copse_node node = host->nodes[i];
    id.size = 0;
    copse_text_add(&id, "h%d.%s", h, node.id);
    COPSE_DO(copse_text_status(&id, c->err));
    node.id = id.data;
    if (node.rank >= 0) node.rank += first_rank;
    COPSE_DO(copse_builder_add_node(c->builder, 0, &node, NULL, c->err));
    if (is_port(group, type, i))
      c->ports[c->n_ports++] = (struct port){first + i, h, place++, bandwidth, host->nodes[i].id};
  }
  return COPSE_OK;
}

static copse_status add_host_links(const struct composer *c, const struct copse_topology *host,
                                   int first) {
  for (int i = 0; i < host->n_links; i++) {
    const struct copse_link *link = &host->links[i];
    COPSE_DO(copse_builder_add_link(c->builder, 0, first + link->src, first + link->dst,
                                    link->bandwidth, link->latency, c->err));
    copse_builder_set_guess(c->builder, first + link->src, first + link->dst, link->guess);
  }
  for (int r = 0; r < host->n_routes; r++) {
    const struct copse_stated_route *route = &host->routes[r];
    int *nodes;
    COPSE_DO(COPSE_ARRAY(c->scratch, (size_t)route->n_nodes, nodes, c->err));
    for (int i = 0; i < route->n_nodes; i++) nodes[i] = first + route->nodes[i];
    COPSE_DO(copse_builder_add_route(c->builder, 0, nodes, route->n_nodes, c->err));
  }
  return COPSE_OK;
}

static copse_status add_hosts(struct composer *c) {
  int h = 0, first = 0, rank = 0;
  for (int g = 0; g < c->n_groups; g++) {
    const struct copse_host_group *group = &c->groups[g];
    for (int i = 0; i < group->count; i++) {
      COPSE_DO(add_host_nodes(c, group, h++, first, rank));
      COPSE_DO(add_host_links(c, group->host, first));
      first += group->host->n_nodes;
      rank += group->host->n_ranks;
    }
  }
  return COPSE_OK;
}

/* ---- flat, rails ----------------------------------------------------------------------- */

static int stride_of(const int *dims, int n_dims, int d) {
  int stride = 1;
  for (int i = d + 1; i < n_dims; i++) stride *= dims[i];
  return stride;
}

int copse_torus_next(const int *dims, int n_dims, int at, int d) {
  int stride = stride_of(dims, n_dims, d), size = dims[d], x = at / stride % size;
  if (x + 1 < size) return at + stride;
  return size > 1 ? at - x * stride : -1;
}

void copse_torus_coordinates(const int *dims, int n_dims, int at, char *text, size_t size) {
  size_t used = 0;
  for (int d = 0; d < n_dims && used < size; d++)
    used += (size_t)snprintf(text + used, size - used, "%s%d", d ? "_" : "",
                             at / stride_of(dims, n_dims, d) % dims[d]);
}

static int parts(int n, int size) { return n / size + (n % size != 0); }

static copse_status add_flat(struct composer *c) {
  int hub = -1;
  COPSE_DO(add_switch(c, &hub, "fabric"));
  for (int p = 0; p < c->n_ports; p++) COPSE_DO(plug(c, &c->ports[p], hub));
  return COPSE_OK;
}

static copse_status add_rails(struct composer *c) {
  int first = -1, spine = -1;
  COPSE_DO(add_switch(c, &first, "rail0"));
  for (int i = 1; i < c->n_places; i++) COPSE_DO(add_switch(c, NULL, "rail%d", i));
  if (c->fabric->spine_bandwidth.num > 0) COPSE_DO(add_switch(c, &spine, "spine"));
  for (int p = 0; p < c->n_ports; p++) COPSE_DO(plug(c, &c->ports[p], first + c->ports[p].place));
  for (int i = 0; spine >= 0 && i < c->n_places; i++)
    COPSE_DO(join(c, first + i, spine, c->fabric->spine_bandwidth));
  return COPSE_OK;
}

/* ---- clos ----------------------------------------------------------------------------- */

struct leaf {
  int node; /* -1 until something is plugged in */
  struct copse_q down;
};

static copse_status plug_leaves(const struct composer *c, struct leaf *leaves) {
  const struct copse_fabric *fabric = c->fabric;
  int rails = fabric->leaf_rails ? c->n_places : 1;
  for (int p = 0; p < c->n_ports; p++) {
    const struct port *port = &c->ports[p];
    int pod = port->host / fabric->leaf_hosts, rail = fabric->leaf_rails ? port->place : 0;
    struct leaf *leaf = &leaves[(int64_t)pod * rails + rail];
    if (leaf->down.num == 0 && fabric->leaf_rails)
      COPSE_DO(add_switch(c, &leaf->node, "leaf%d.rail%d", pod, rail));
    else if (leaf->down.num == 0)
      COPSE_DO(add_switch(c, &leaf->node, "leaf%d", pod));
    COPSE_DO(copse_q_add(leaf->down, port->bandwidth, &leaf->down, c->err));
    COPSE_DO(plug(c, port, leaf->node));
  }
  return COPSE_OK;
}

static copse_status join_spines(const struct composer *c, const struct leaf *leaves, int n_leaves) {
  const struct copse_fabric *fabric = c->fabric;
  struct copse_q divisor, up;
  int first = -1;
  for (int s = 0; s < fabric->spines; s++) {
    int *index = s == 0 ? &first : NULL;
    COPSE_DO(fabric->spines == 1 ? add_switch(c, index, "spine")
                                 : add_switch(c, index, "spine%d", s));
  }
  COPSE_DO(
      copse_q_mul(fabric->oversubscription, (struct copse_q){fabric->spines, 1}, &divisor, c->err));
  for (int i = 0; i < n_leaves; i++) {
    if (leaves[i].down.num == 0) continue;
    COPSE_DO(copse_q_div(leaves[i].down, divisor, &up, c->err));
    for (int s = 0; s < fabric->spines; s++) COPSE_DO(join(c, leaves[i].node, first + s, up));
  }
  return COPSE_OK;
}

/* Notes what may be turned round or miscounted. */
static void note_leaves(const struct composer *c, int pods) {
  const struct copse_fabric *fabric = c->fabric;
  int last = c->n_hosts - (pods - 1) * fabric->leaf_hosts;
  if (pods > 1 && copse_q_cmp(fabric->oversubscription, COPSE_Q_ONE) < 0)
    copse_note(
        fabric->notes,
        "%s: oversubscription %.4g: leaves send up more than they take in; 2:1, half as much "
        "up, is 2",
        c->file, copse_q_to_double(fabric->oversubscription));
  if (last < fabric->leaf_hosts)
    copse_note(fabric->notes,
               "%s: %d hosts on leaves of %d: the last leaf joins %d, and its way up is as much "
               "narrower",
               c->file, c->n_hosts, fabric->leaf_hosts, last);
}

static copse_status add_clos(struct composer *c) {
  const struct copse_fabric *fabric = c->fabric;
  int64_t pods = parts(c->n_hosts, fabric->leaf_hosts);
  int64_t n_leaves = pods * (fabric->leaf_rails ? c->n_places : 1);
  struct leaf *leaves;
  COPSE_DO(
      check_size(c, c->fabric->line, n_leaves + fabric->spines, 2 * n_leaves * fabric->spines));
  COPSE_DO(COPSE_ARRAY(c->scratch, (size_t)n_leaves, leaves, c->err));
  for (int64_t i = 0; i < n_leaves; i++) leaves[i] = (struct leaf){-1, COPSE_Q_ZERO};
  if (fabric->leaf_hosts > c->n_hosts)
    copse_note(fabric->notes,
               "%s: a leaf joins %d hosts, and there are %d: all are on one leaf, without a spine",
               c->file, fabric->leaf_hosts, c->n_hosts);
  else
    note_leaves(c, (int)pods);
  COPSE_DO(plug_leaves(c, leaves));
  return n_leaves > 1 ? join_spines(c, leaves, (int)n_leaves) : COPSE_OK;
}

/* ---- dragonfly ------------------------------------------------------------------------ */

/* Chooses the router of a cable: a group's cables to the others leave from its routers in turn, the
 * nearest group's first, so that every router has the same number of them, or one more. */
static int cable_router(const struct copse_fabric *fabric, int groups, int from, int to, int i) {
  int64_t all = (int64_t)fabric->global_links * (groups - 1);
  int64_t which = (int64_t)((to - from + groups) % groups - 1) * fabric->global_links + i;
  return from * fabric->group_routers + (int)(which * fabric->group_routers / all);
}

static copse_status join_routers(const struct composer *c, int first, int groups) {
  const struct copse_fabric *fabric = c->fabric;
  int size = fabric->group_routers;
  for (int g = 0; g < groups; g++)
    for (int a = g * size; a < (g + 1) * size; a++)
      for (int b = a + 1; b < (g + 1) * size; b++)
        COPSE_DO(join(c, first + a, first + b, fabric->local_bandwidth));
  for (int g = 0; g < groups; g++)
    for (int h = g + 1; h < groups; h++)
      for (int i = 0; i < fabric->global_links; i++)
        COPSE_DO(join(c, first + cable_router(fabric, groups, g, h, i),
                      first + cable_router(fabric, groups, h, g, i), fabric->global_bandwidth));
  return COPSE_OK;
}

static copse_status plug_routers(const struct composer *c, int first) {
  for (int p = 0; p < c->n_ports; p++)
    COPSE_DO(plug(c, &c->ports[p], first + c->ports[p].host / c->fabric->router_hosts));
  return COPSE_OK;
}

static copse_status add_dragonfly(struct composer *c) {
  const struct copse_fabric *fabric = c->fabric;
  int64_t size = fabric->group_routers;
  int64_t groups = parts(parts(c->n_hosts, fabric->router_hosts), fabric->group_routers);
  int first = -1;
  /* checks each quadratic term before another factor could make it overflow */
  COPSE_DO(check_size(c, c->fabric->line, groups * size, groups * groups));
  COPSE_DO(check_size(c, c->fabric->line, 0,
                      groups * size * (size - 1) + groups * (groups - 1) * fabric->global_links));
  for (int g = 0; g < groups; g++)
    for (int r = 0; r < size; r++)
      COPSE_DO(add_switch(c, g + r == 0 ? &first : NULL, "group%d.router%d", g, r));
  COPSE_DO(plug_routers(c, first));
  return join_routers(c, first, (int)groups);
}

/* ---- torus ---------------------------------------------------------------------------- */

static copse_status name_router(const struct composer *c, int at, int *index) {
  const struct copse_fabric *fabric = c->fabric;
  char name[COPSE_MAX_DIMENSIONS * 12] = "";
  copse_torus_coordinates(fabric->dims, fabric->n_dims, at, name, sizeof name);
  return add_switch(c, index, "router%s", name);
}

static copse_status add_torus(struct composer *c) {
  const struct copse_fabric *fabric = c->fabric;
  int64_t n = 1;
  int first = -1, routers = parts(c->n_hosts, fabric->router_hosts);
  for (int d = 0; d < fabric->n_dims && n <= routers; d++) n *= fabric->dims[d];
  if (n != routers)
    return copse_fail_at(c->err, COPSE_BAD_INPUT, c->file, fabric->line,
                         "%d hosts, %d on a router, need a torus of %d routers; \"dims\" multiply "
                         "to %s%" PRId64,
                         c->n_hosts, fabric->router_hosts, routers, n > routers ? "at least " : "",
                         n);
  COPSE_DO(check_size(c, c->fabric->line, n, n * 2 * fabric->n_dims));
  for (int i = 0; i < n; i++) COPSE_DO(name_router(c, i, i == 0 ? &first : NULL));
  COPSE_DO(plug_routers(c, first));
  for (int i = 0; i < n; i++)
    for (int d = 0; d < fabric->n_dims; d++) {
      int next = copse_torus_next(fabric->dims, fabric->n_dims, i, d);
      if (next >= 0) COPSE_DO(join(c, first + i, first + next, fabric->link_bandwidth));
    }
  return COPSE_OK;
}

/* ---- map: a fabric as a file has it --------------------------------------------------------- */

copse_status copse_fabric_map_add_port(struct copse_fabric_map *map, struct copse_map_port port,
                                       struct copse_err *err) {
  return COPSE_PUSH_IN(&map->arena, map->ports, map->n_ports, map->port_capacity, err, port);
}

copse_status copse_fabric_map_add_cable(struct copse_fabric_map *map, struct copse_map_cable cable,
                                        struct copse_err *err) {
  return COPSE_PUSH_IN(&map->arena, map->cables, map->n_cables, map->cable_capacity, err, cable);
}

/* A host's ports in the sorted map. */
struct rows {
  int first, n;
};

/* Compares names so that "mlx5_10" comes behind "mlx5_9". */
static int natural_order(const char *a, const char *b) {
  while (*a && *b) {
    size_t m = strspn(a, "0123456789"), n = strspn(b, "0123456789");
    if (m > 0 && n > 0) {
      if (m != n) return m < n ? -1 : 1;
      int order = memcmp(a, b, m);
      if (order != 0) return order;
      a += m;
      b += n;
    } else if (*a != *b) {
      break;
    } else {
      a++;
      b++;
    }
  }
  return (unsigned char)*a - (unsigned char)*b;
}

COPSE_ORDER(compare_ports, struct copse_map_port,
            strcmp(a->host, b->host) ?: natural_order(a->device, b->device) ?: COPSE_UP(line))

void copse_fabric_map_sort(struct copse_fabric_map *map) {
  COPSE_SORT(map->ports, map->n_ports, compare_ports);
}

static struct rows find_rows(const struct copse_fabric_map *map, const char *host) {
  int low = 0, high = map->n_ports;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (strcmp(map->ports[middle].host, host) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  struct rows rows = {low, 0};
  while (low + rows.n < map->n_ports && strcmp(map->ports[low + rows.n].host, host) == 0) rows.n++;
  return rows;
}

/* Finds the row of a device; NULL: the next free row. -1: none. */
static int find_row(const struct composer *c, struct rows rows, const char *device) {
  for (int i = rows.first; i < rows.first + rows.n; i++)
    if (!c->taken[i] && (!device || strcmp(c->map->ports[i].device, device) == 0)) return i;
  return -1;
}

static copse_status plug_row(struct composer *c, struct port *port, int row) {
  const struct copse_map_port *end = &c->map->ports[row];
  if (end->bandwidth.num > 0) port->bandwidth = end->bandwidth;
  c->taken[row] = end->device[0] != '\0'; /* a row of a whole host serves all of its NICs */
  return plug(c, port, c->first_switch + end->sw);
}

/* Returns "mlx5_0" of "net@mlx5_0". */
static const char *device_of(const struct port *port) {
  const char *at = strrchr(port->id, '@');
  return at ? at + 1 : port->id;
}

/* Matches NICs with rows by device name if the map has all of them, else in order. */
static copse_status plug_host(struct composer *c, int h, const char *name, long line) {
  struct port *ports = c->ports + c->first_port[h];
  int n = c->first_port[h + 1] - c->first_port[h];
  struct rows rows = find_rows(c->map, name);
  bool named = true;
  if (rows.n == 0 || c->taken[rows.first])
    return copse_fail_at(c->err, COPSE_BAD_INPUT, c->file, line, "host \"%.80s\" is %s", name,
                         rows.n ? "named twice" : "not in the fabric's file");
  for (int i = 0; i < n && named; i++) named = find_row(c, rows, device_of(&ports[i])) >= 0;
  bool whole = c->map->ports[rows.first].device[0] == '\0';
  if (!named && !whole && rows.n != n)
    return copse_fail_at(c->err, COPSE_BAD_INPUT, c->file, line,
                         "host \"%.80s\" has %d ports in the fabric's file and %d NICs in its "
                         "topology, whose ids don't name the devices; they can't be told apart",
                         name, rows.n, n);
  for (int i = 0; i < n; i++) {
    int row = find_row(c, rows, named ? device_of(&ports[i]) : NULL);
    if (row < 0) row = rows.first; /* two ports of the host have one name */
    COPSE_DO(plug_row(c, &ports[i], row));
  }
  c->taken[rows.first] = true;
  return COPSE_OK;
}

static copse_status plug_hosts(struct composer *c) {
  int h = 0;
  for (int g = 0; g < c->n_groups; g++)
    for (int i = 0; i < c->groups[g].count; i++, h++)
      COPSE_DO(plug_host(c, h, c->groups[g].names[i], c->groups[g].line));
  return COPSE_OK;
}

/* ---- cables between switches -------------------------------------------------------------- */

/* Computes the speeds of a tree without any: what is plugged in below a switch, by the whole file
 * (a job's hosts may be few of them), divided by the oversubscription, goes up. Switches whose
 * children are all done come next; the file's cables make a forest, so that every one comes. */
static copse_status size_tree(const struct composer *c, struct copse_q *up) {
  const struct copse_fabric_map *map = c->map;
  const struct copse_fabric *fabric = c->fabric;
  struct copse_err *err = c->err;
  struct copse_queue queue = {0};
  int *parent, *waiting;
  size_t n = (size_t)map->n_switches;
  struct copse_q host;
  COPSE_DO(COPSE_ARRAYS(c->scratch, n, int, err, &parent, &waiting, &queue.items));
  COPSE_DO(copse_q_mul(fabric->bandwidth, (struct copse_q){c->n_places, 1}, &host, err));
  for (size_t i = 0; i < n; i++) parent[i] = -1, up[i] = COPSE_Q_ZERO;
  for (int i = 0; i < map->n_cables; i++) {
    parent[map->cables[i].a] = map->cables[i].b;
    waiting[map->cables[i].b]++;
  }
  for (int i = 0; i < map->n_ports; i++)
    COPSE_DO(copse_q_add(up[map->ports[i].sw], host, &up[map->ports[i].sw], err));
  for (int i = 0; i < map->n_switches; i++)
    if (waiting[i] == 0) copse_queue_push(&queue, i);
  while (!copse_queue_is_empty(&queue)) {
    int i = copse_queue_pop(&queue), above = parent[i];
    COPSE_DO(copse_q_div(up[i], fabric->oversubscription, &up[i], err));
    if (above < 0) continue;
    COPSE_DO(copse_q_add(up[above], up[i], &up[above], err));
    if (--waiting[above] == 0) copse_queue_push(&queue, above);
  }
  return COPSE_OK;
}

static copse_status join_switches(const struct composer *c) {
  const struct copse_fabric_map *map = c->map;
  struct copse_q *up = NULL;
  bool sized = map->n_cables > 0 && map->cables[0].bandwidth.num > 0;
  if (!sized) {
    COPSE_DO(COPSE_ARRAY(c->scratch, (size_t)map->n_switches, up, c->err));
    COPSE_DO(size_tree(c, up));
  }
  for (int i = 0; i < map->n_cables; i++) {
    const struct copse_map_cable *cable = &map->cables[i];
    struct copse_q bandwidth = sized ? cable->bandwidth : up[cable->a];
    if (bandwidth.num == 0) continue; /* a branch of the tree without hosts */
    COPSE_DO(join(c, c->first_switch + cable->a, c->first_switch + cable->b, bandwidth));
  }
  return COPSE_OK;
}

static copse_status add_map(struct composer *c) {
  size_t hosts = (size_t)c->n_hosts, rows = (size_t)c->map->n_ports;
  COPSE_DO(COPSE_ARRAY(c->scratch, hosts + 1, c->first_port, c->err));
  COPSE_DO(COPSE_ARRAY(c->scratch, rows, c->taken, c->err));
  for (int i = 0; i < c->n_ports; i++) c->first_port[c->ports[i].host + 1] = i + 1;
  for (int i = 0; i < c->map->n_switches; i++)
    COPSE_DO(add_switch(c, i == 0 ? &c->first_switch : NULL, "%s", c->map->switches[i].id));
  COPSE_DO(plug_hosts(c));
  return join_switches(c);
}

/* ---- together ------------------------------------------------------------------------- */

copse_status copse_compose(struct copse_topology_builder *builder, const char *file,
                           const struct copse_fabric *fabric, const struct copse_host_group *groups,
                           int n_groups, struct copse_err *err) {
  static copse_status (*const add_fabric[])(struct composer *) = {
      [COPSE_FABRIC_FLAT] = add_flat,   [COPSE_FABRIC_RAILS] = add_rails,
      [COPSE_FABRIC_CLOS] = add_clos,   [COPSE_FABRIC_DRAGONFLY] = add_dragonfly,
      [COPSE_FABRIC_TORUS] = add_torus, [COPSE_FABRIC_MAP] = add_map};
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct composer c = {.builder = builder,
                       .file = file,
                       .fabric = fabric,
                       .map = fabric->map,
                       .scratch = &scratch,
                       .groups = groups,
                       .n_groups = n_groups,
                       .err = err};
  COPSE_DO(measure(&c));
  COPSE_DO(add_hosts(&c));
  return add_fabric[fabric->type](&c);
}
