#include <fnmatch.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "topology/fabric/fabric.h"

/* ---- what the kinds of fabrics are built with ----------------------------------------- */

copse_status copse_fabric_add_switch(const struct copse_composer *c, int *index, const char *fmt,
                                     ...) {
  char id[160];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(id, sizeof id, fmt, ap);
  va_end(ap);
  struct copse_node node = {.id = id, .type = "switch", .rank = -1};
  return copse_builder_add_node(c->builder, c->fabric->line, &node, index, c->err);
}

copse_status copse_fabric_join(const struct copse_composer *c, int a, int b,
                               struct copse_q bandwidth) {
  struct copse_q latency = c->fabric->latency;
  long line = c->fabric->line;
  copse_status status = copse_builder_add_link(c->builder, line, a, b, bandwidth, latency, c->err);
  if (status != COPSE_OK) return status;
  return copse_builder_add_link(c->builder, line, b, a, bandwidth, latency, c->err);
}

copse_status copse_fabric_plug(const struct copse_composer *c, const struct copse_port *port,
                               int to) {
  return copse_fabric_join(c, port->node, to, port->bandwidth);
}

static copse_status check_size(const struct copse_composer *c, long line, int64_t nodes,
                               int64_t links) {
  if (nodes <= COPSE_TOPOLOGY_MAX_NODES && links <= COPSE_TOPOLOGY_MAX_LINKS) return COPSE_OK;
  return copse_fail_at(
      c->err, COPSE_BAD_INPUT, c->file, line,
      "%d hosts make %" PRId64 " nodes and %" PRId64 " links; at most %d and %d are possible",
      c->n_hosts, nodes, links, COPSE_TOPOLOGY_MAX_NODES, COPSE_TOPOLOGY_MAX_LINKS);
}

copse_status copse_fabric_check_size(const struct copse_composer *c, int64_t nodes, int64_t links) {
  return check_size(c, c->fabric->line, nodes, links);
}

/* ---- hosts ---------------------------------------------------------------------------- */

/* An NCCL dump has a net port behind each NIC, which is what the cable is in; else the NIC is. */
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

static copse_status measure(struct copse_composer *c) {
  int64_t nodes = 0, links = 0, hosts = 0, ports = 0;
  for (int g = 0; g < c->n_groups; g++) {
    const struct copse_host_group *group = &c->groups[g];
    int n = count_ports(group);
    if (n == 0)
      return copse_fail_at(c->err, COPSE_BAD_INPUT, c->file, group->line,
                           "host \"%.80s\" has no node of type \"nic\" or \"net\"%s%.80s and can't "
                           "join a fabric",
                           group->host->name, group->nics ? " with an id like " : "",
                           group->nics ? group->nics : " (--links nvlink leaves them out)");
    if (n > c->n_places) c->n_places = n;
    hosts += group->count;
    ports += (int64_t)group->count * n;
    nodes += (int64_t)group->count * group->host->n_nodes;
    links += (int64_t)group->count * group->host->n_links;
  }
  c->n_hosts = hosts > COPSE_TOPOLOGY_MAX_NODES ? COPSE_TOPOLOGY_MAX_NODES : (int)hosts;
  copse_status status = check_size(c, c->groups[0].line, nodes + 1, links + 2 * ports);
  if (status != COPSE_OK) return status;
  c->n_hosts = (int)hosts;
  return copse_calloc((size_t)ports, sizeof *c->ports, &c->ports, c->err);
}

static copse_status add_host_nodes(struct copse_composer *c, const struct copse_host_group *group,
                                   int h, int first, int first_rank) {
  const struct copse_topology *host = group->host;
  const char *type = port_type(host);
  struct copse_q bandwidth = group->bandwidth.num ? group->bandwidth : c->fabric->bandwidth;
  char prefix[16];
  int n = snprintf(prefix, sizeof prefix, "h%d.", h), place = 0;
  copse_status status = COPSE_OK;
  char *id = NULL;
  for (int i = 0; i < host->n_nodes; i++) {
    struct copse_node node = host->nodes[i];
    size_t bytes = strlen(node.id) + (size_t)n + 1;
    COPSE_TRY(copse_calloc(bytes, 1, &id, c->err));
    snprintf(id, bytes, "%s%s", prefix, node.id);
    node.id = id;
    if (node.rank >= 0) node.rank += first_rank;
    COPSE_TRY(copse_builder_add_node(c->builder, 0, &node, NULL, c->err));
    if (is_port(group, type, i))
      c->ports[c->n_ports++] =
          (struct copse_port){first + i, h, place++, bandwidth, host->nodes[i].id};
    free(id);
    id = NULL;
  }
out:
  free(id);
  return status;
}

static copse_status add_host_links(const struct copse_composer *c,
                                   const struct copse_topology *host, int first) {
  copse_status status = COPSE_OK;
  for (int i = 0; i < host->n_links && status == COPSE_OK; i++) {
    const struct copse_link *link = &host->links[i];
    status = copse_builder_add_link(c->builder, 0, first + link->src, first + link->dst,
                                    link->bandwidth, link->latency, c->err);
  }
  return status;
}

static copse_status add_hosts(struct copse_composer *c) {
  int h = 0, first = 0, rank = 0;
  copse_status status = COPSE_OK;
  for (int g = 0; g < c->n_groups; g++) {
    const struct copse_host_group *group = &c->groups[g];
    for (int i = 0; i < group->count; i++) {
      COPSE_TRY(add_host_nodes(c, group, h++, first, rank));
      COPSE_TRY(add_host_links(c, group->host, first));
      first += group->host->n_nodes;
      rank += group->host->n_ranks;
    }
  }
out:
  return status;
}

/* ---- together ------------------------------------------------------------------------- */

static copse_status add_fabric(const struct copse_composer *c) {
  switch (c->fabric->type) {
    case COPSE_FABRIC_FLAT: return copse_fabric_add_flat(c);
    case COPSE_FABRIC_RAILS: return copse_fabric_add_rails(c);
    case COPSE_FABRIC_CLOS: return copse_fabric_add_clos(c);
    case COPSE_FABRIC_DRAGONFLY: return copse_fabric_add_dragonfly(c);
    case COPSE_FABRIC_TORUS: return copse_fabric_add_torus(c);
    case COPSE_FABRIC_MAP: return copse_fabric_add_map(c);
  }
  return copse_fail(c->err, COPSE_INTERNAL, "a fabric of no known type");
}

copse_status copse_compose(struct copse_topology_builder *builder, const char *file,
                           const struct copse_fabric *fabric, const struct copse_host_group *groups,
                           int n_groups, struct copse_err *err) {
  struct copse_composer c = {.builder = builder,
                             .file = file,
                             .fabric = fabric,
                             .groups = groups,
                             .n_groups = n_groups,
                             .err = err};
  copse_status status;
  COPSE_TRY(measure(&c));
  COPSE_TRY(add_hosts(&c));
  status = add_fabric(&c);
out:
  free(c.ports);
  return status;
}
