/*
 * Hosts, names and ways as NCCL sees them (NVIDIA/nccl src/graph/topo.cc and paths.cc).
 *
 *   prefixes "h3." --NVLink between them--> hosts      breadth first from a node --> its ways
 *
 * NCCL keeps one path a pair. Equal ways (several NVSwitches, spines of a network) share the data,
 * as hardware spreads it; so no figure hangs on the order of nodes in a file.
 */
#include "nccl/machine.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "topology/fabric/fabric.h"
#include "topology/route.h"

/* The widest way of a GPU to a port of its host, and the best kind of links of these. */
struct nearest {
  bool known;
  struct copse_q width;
  enum copse_nccl_path kind;
};

/* Breadth first search from one node, and the routes it found. */
struct copse_nccl_finder {
  struct copse_adjacency out, in; /* links by source, by destination */
  unsigned char *types;           /* [n_links] a way over the link has this path type or worse */
  int *distance;                  /* [n_nodes] from the source; only of nodes in the queue */
  int *relays;                    /* [n_nodes] GPUs on the way to it */
  struct copse_q *width;          /* [n_nodes] */
  struct copse_q *part;           /* [n_nodes] of the data, going back */
  bool *seen;                     /* [n_nodes] */
  struct copse_queue queue;
  int **relays_of;              /* [n_hosts] NULL: not yet known */
  struct nearest *nearest;      /* [n_ranks] */
  struct copse_index_map found; /* by pair of nodes */
  struct copse_nccl_route **routes;
  size_t capacity;
  int n_routes;
};

static bool is_type(const struct copse_nccl_machine *m, int node, const char *type) {
  return strcmp(m->topology->nodes[node].type, type) == 0;
}

/* ---- hosts ----------------------------------------------------------------------------------- */

/* Whether NVLink makes one host of what a link joins. */
static bool joins_domain(const struct copse_nccl_machine *m, const struct copse_link *link) {
  bool gpu_src = m->topology->nodes[link->src].rank >= 0 || is_type(m, link->src, "gpu");
  bool gpu_dst = m->topology->nodes[link->dst].rank >= 0 || is_type(m, link->dst, "gpu");
  return (gpu_src && (gpu_dst || is_type(m, link->dst, "nvswitch"))) ||
         (gpu_dst && is_type(m, link->src, "nvswitch"));
}

/* Sets of nodes that are one host: those of one prefix, and what NVLink joins. */
static copse_status unite_nodes(struct copse_nccl_machine *m, int *set, struct copse_err *err) {
  const struct copse_topology *t = m->topology;
  bool several;
  COPSE_DO(copse_hosts_label(t, set, &several, err));
  for (int v = 0; v < t->n_nodes && !several; v++) set[v] = 0;
  for (int i = 0; i < t->n_links; i++)
    if (joins_domain(m, &t->links[i]))
      (void)copse_sets_unite(set, t->links[i].src, t->links[i].dst);
  return COPSE_OK;
}

static copse_status find_hosts(struct copse_nccl_machine *m, struct copse_err *err) {
  const struct copse_topology *t = m->topology;
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct copse_adjacency by_host;
  size_t nodes = (size_t)t->n_nodes;
  int *set, *number;
  COPSE_DO(COPSE_ARRAYS(&scratch, nodes, int, err, &set, &number));
  COPSE_DO(COPSE_ARRAY(&m->arena, nodes, m->host_of_node, err));
  COPSE_DO(COPSE_ARRAY(&m->arena, (size_t)t->n_ranks, m->host_of_rank, err));
  COPSE_DO(unite_nodes(m, set, err));
  for (int v = 0; v < t->n_nodes; v++) number[v] = -1;
  for (int r = 0; r < t->n_ranks; r++) {
    int root = copse_sets_find(set, t->rank_nodes[r]);
    if (number[root] < 0) number[root] = m->n_hosts++;
    m->host_of_rank[r] = number[root];
  }
  for (int v = 0; v < t->n_nodes; v++) m->host_of_node[v] = number[copse_sets_find(set, v)];
  COPSE_DO(copse_adjacency_by(&m->arena, m->n_hosts, t->n_ranks, m->host_of_rank,
                              sizeof *m->host_of_rank, &by_host, err));
  m->first = by_host.first;
  m->members = by_host.item;
  m->even = true;
  for (int h = 0; h < m->n_hosts; h++)
    m->even = m->even && m->first[h + 1] - m->first[h] == m->first[1];
  return COPSE_OK;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Numbers GPUs from 0 where NCCL's XML has not named all of a host. */
static void name_gpus(struct copse_nccl_machine *m) {
  const struct copse_topology *t = m->topology;
  for (int h = 0; h < m->n_hosts; h++) {
    bool named = true;
    for (int i = m->first[h]; i < m->first[h + 1]; i++)
      named = named && t->nodes[t->rank_nodes[m->members[i]]].has_dev;
    for (int i = m->first[h]; i < m->first[h + 1]; i++)
      m->devs[m->members[i]] = named ? t->nodes[t->rank_nodes[m->members[i]]].dev
                                     : copse_nccl_dev(0, (uint64_t)(i - m->first[h]));
  }
}

/* Finds nodes with links to and from what is outside of their host. */
static void find_cables(const struct copse_nccl_machine *m, unsigned char *cables) {
  for (int i = 0; i < m->topology->n_links; i++) {
    const struct copse_link *l = &m->topology->links[i];
    if (m->host_of_node[l->src] == m->host_of_node[l->dst]) continue;
    cables[l->src] |= 1;
    cables[l->dst] |= 2;
  }
}

/* Whether data go on from a node: not from GPUs, CPUs and NICs, of hosts without ranks either. */
static bool passes_on(const struct copse_nccl_machine *m, int node) {
  return m->host_of_node[node] < 0 && !is_type(m, node, "nic") && !is_type(m, node, "net") &&
         !is_type(m, node, "gpu") && !is_type(m, node, "cpu");
}

static bool leads_to(const struct copse_nccl_machine *m, int from, int to) {
  const struct copse_adjacency *out = &m->finder->out;
  for (int i = out->first[from]; i < out->first[from + 1]; i++)
    if (m->topology->links[out->item[i]].dst == to) return true;
  return false;
}

/* Whether a cable joins ports of two hosts. */
static bool is_cabled(const struct copse_nccl_machine *m, int p, int q) {
  int a = m->ports[p].node, b = m->ports[q].node;
  return m->ports[p].host != m->ports[q].host && leads_to(m, a, b) && leads_to(m, b, a);
}

/* Returns the rail of a port that is on no switch but cabled to other ports: the first rail to all
 * of whose ports it is cabled, else a rail of its own; -1: its cables lead to too few ports for a
 * rail of all hosts. */
static int cabled_rail(const struct copse_nccl_machine *m, int p) {
  int degree = 0;
  for (int q = 0; q < m->n_ports; q++) degree += is_cabled(m, p, q);
  if (degree < m->n_hosts - 1) return -1;
  for (int q = 0; q < m->n_ports; q++) {
    int rail = m->ports[q].rail;
    bool all = rail >= 0 && is_cabled(m, p, q);
    for (int o = 0; all && o < m->n_ports; o++)
      all = m->ports[o].rail != rail || is_cabled(m, p, o);
    if (all) return rail;
  }
  return m->ports[p].node;
}

/* Puts each port on one set of switches: that of most ports, of equals the first. */
static void join_switches(struct copse_nccl_machine *m, int *set, int *ports_on) {
  const struct copse_adjacency *out = &m->finder->out;
  for (int pass = 0; pass < 2; pass++) /* counts, chooses */
    for (int p = 0; p < m->n_ports; p++) {
      struct copse_nccl_port *port = &m->ports[p];
      port->rail = port->leaf = -1;
      for (int i = out->first[port->node]; i < out->first[port->node + 1]; i++) {
        int to = m->topology->links[out->item[i]].dst, best = port->rail;
        if (!passes_on(m, to)) continue;
        int at = copse_sets_find(set, to);
        ports_on[at] += pass == 0;
        bool more = best < 0 || ports_on[at] > ports_on[best];
        if (more || (ports_on[at] == ports_on[best] && at < best)) port->rail = at;
        port->leaf = to;
      }
    }
}

/* Finds the rails. A rail is what switches join, or cables from each of its ports to each: NICs
 * pass nothing on. */
static copse_status find_rails(struct copse_nccl_machine *m, int *set, struct copse_arena *scratch,
                               struct copse_err *err) {
  const struct copse_topology *t = m->topology;
  int *ports_on, *hosts, *last; /* [n_nodes] of a rail: how many hosts have it, the last of them */
  COPSE_DO(COPSE_ARRAYS(scratch, (size_t)t->n_nodes, int, err, &ports_on, &hosts, &last));
  copse_sets_init(set, t->n_nodes);
  for (int i = 0; i < t->n_links; i++)
    if (passes_on(m, t->links[i].src) && passes_on(m, t->links[i].dst))
      (void)copse_sets_unite(set, t->links[i].src, t->links[i].dst);
  join_switches(m, set, ports_on);
  for (int p = 0; p < m->n_ports; p++)
    if (m->ports[p].rail < 0) m->ports[p].rail = cabled_rail(m, p);
  for (int p = 0; p < m->n_ports; p++) {
    struct copse_nccl_port *port = &m->ports[p];
    if (port->rail < 0) port->rail = port->node;
    if (last[port->rail] != port->host + 1) hosts[port->rail]++;
    last[port->rail] = port->host + 1;
  }
  for (int p = 0; p < m->n_ports; p++)
    m->ports[p].shared = m->n_hosts == 1 || hosts[m->ports[p].rail] == m->n_hosts;
  return COPSE_OK;
}

/* Finds the ports. NCCL lists no NIC whose cable is down; where no NIC has one the topology has no
 * network. */
static copse_status find_ports(struct copse_nccl_machine *m, struct copse_err *err) {
  const struct copse_topology *t = m->topology;
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  int *key; /* [n_nodes] the host of a port */
  bool *nets, *unnamed, cabled = false;
  unsigned char *cables; /* [n_nodes] 1: out, 2: in */
  struct copse_adjacency ports;
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)t->n_nodes, key, err));
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)t->n_nodes, cables, err));
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)m->n_hosts, nets, err));
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)m->n_hosts, unnamed, err));
  find_cables(m, cables);
  for (int v = 0; v < t->n_nodes; v++)
    if (m->host_of_node[v] >= 0 && is_type(m, v, "net")) nets[m->host_of_node[v]] = true;
  for (int v = 0; v < t->n_nodes; v++) {
    int h = m->host_of_node[v];
    key[v] = h >= 0 && is_type(m, v, nets[h] ? "net" : "nic") ? h : -1;
    cabled = cabled || (key[v] >= 0 && cables[v] == 3);
  }
  for (int v = 0; v < t->n_nodes; v++) {
    int h = key[v];
    bool port = h >= 0 && (!cabled || cables[v] == 3);
    if (!port) key[v] = -1;
    if (port && !t->nodes[v].has_dev) unnamed[h] = true;
  }
  COPSE_DO(copse_adjacency_by(&scratch, m->n_hosts, t->n_nodes, key, sizeof *key, &ports, err));
  m->n_ports = ports.first[m->n_hosts];
  COPSE_DO(COPSE_ARRAY(&m->arena, (size_t)m->n_ports, m->ports, err));
  COPSE_DO(COPSE_ARRAY(&m->arena, (size_t)m->n_hosts + 1, m->first_port, err));
  memcpy(m->first_port, ports.first, ((size_t)m->n_hosts + 1) * sizeof *m->first_port);
  for (int i = 0; i < m->n_ports; i++) {
    int node = ports.item[i], h = key[node];
    uint64_t place = copse_nccl_dev(0, (uint64_t)(i - m->first_port[h]));
    m->ports[i].node = node;
    m->ports[i].host = h;
    m->ports[i].dev = unnamed[h] ? place : t->nodes[node].dev;
  }
  m->same_nics = true;
  for (int h = 0; h < m->n_hosts; h++)
    m->same_nics = m->same_nics && m->first_port[h + 1] - m->first_port[h] == m->first_port[1];
  return find_rails(m, key, &scratch, err);
}

static bool is_port(const struct copse_nccl_machine *m, int node) {
  int host = m->host_of_node[node];
  for (int p = m->first_port[host]; p < m->first_port[host + 1]; p++)
    if (m->ports[p].node == node) return true;
  return false;
}

int copse_nccl_find_rank(const struct copse_nccl_machine *m, int host, uint64_t dev) {
  for (int i = m->first[host]; i < m->first[host + 1]; i++)
    if (m->devs[m->members[i]] == dev) return m->members[i];
  return -1;
}

int copse_nccl_find_port(const struct copse_nccl_machine *m, int host, uint64_t dev) {
  for (int i = m->first_port[host]; i < m->first_port[host + 1]; i++)
    if (m->ports[i].dev == dev) return i;
  return -1;
}

/* A GPU on a root port has so much at most; C2C has more. */
static const struct copse_q most_pcie = {96, 1};

/* Returns a link's type, of which NCCL makes a path's (ncclTopoSetPaths). */
static unsigned char type_of_link(const struct copse_nccl_machine *m, const struct copse_link *l) {
  int cpus = is_type(m, l->src, "cpu") + is_type(m, l->dst, "cpu");
  int bridges = is_type(m, l->src, "pcie") + is_type(m, l->dst, "pcie");
  bool gpu = m->topology->nodes[l->src].rank >= 0 || m->topology->nodes[l->dst].rank >= 0;
  if (cpus == 2) return COPSE_NCCL_PATH_SYS;
  if (cpus == 1)
    return gpu && copse_q_cmp(l->bandwidth, most_pcie) > 0 ? COPSE_NCCL_PATH_C2C
                                                           : COPSE_NCCL_PATH_PHB;
  if (bridges == 2) return COPSE_NCCL_PATH_PXB;
  return bridges == 1 ? COPSE_NCCL_PATH_PIX : COPSE_NCCL_PATH_NVL;
}

copse_status copse_nccl_machine_open(const struct copse_topology *topology,
                                     struct copse_nccl_machine *out, struct copse_err *err) {
  struct copse_nccl_machine *m = out;
  size_t nodes = (size_t)topology->n_nodes;
  *m = (struct copse_nccl_machine){.topology = topology};
  COPSE_DO(COPSE_ARRAY(&m->arena, 1, m->finder, err));
  COPSE_DO(find_hosts(m, err));
  COPSE_DO(COPSE_ARRAY(&m->arena, (size_t)topology->n_ranks, m->devs, err));
  name_gpus(m);
  struct copse_nccl_finder *f = m->finder;
  COPSE_DO(copse_adjacency_by(&m->arena, topology->n_nodes, topology->n_links,
                              COPSE_KEYS(topology->links, src), sizeof *topology->links, &f->out,
                              err));
  COPSE_DO(find_ports(m, err));
  COPSE_DO(COPSE_ARRAY(&m->arena, (size_t)m->n_hosts, f->relays_of, err));
  COPSE_DO(COPSE_ARRAY(&m->arena, (size_t)topology->n_ranks, f->nearest, err));
  COPSE_DO(COPSE_ARRAYS(&m->arena, nodes, int, err, &f->distance, &f->relays, &f->queue.items));
  COPSE_DO(COPSE_ARRAYS(&m->arena, nodes, struct copse_q, err, &f->width, &f->part));
  COPSE_DO(COPSE_ARRAY(&m->arena, nodes, f->seen, err));
  COPSE_DO(COPSE_ARRAY(&m->arena, (size_t)topology->n_links, f->types, err));
  for (int i = 0; i < topology->n_links; i++) f->types[i] = type_of_link(m, &topology->links[i]);
  return copse_adjacency_by(&m->arena, topology->n_nodes, topology->n_links,
                            COPSE_KEYS(topology->links, dst), sizeof *topology->links, &f->in, err);
}

void copse_nccl_machine_free(struct copse_nccl_machine *machine) {
  if (machine->finder) {
    free(machine->finder->routes);
    copse_index_map_free(&machine->finder->found);
  }
  copse_arena_free(&machine->arena);
  *machine = (struct copse_nccl_machine){0};
}

copse_status copse_nccl_repeat_host(const struct copse_topology *host, int n,
                                    struct copse_topology **out, struct copse_err *err) {
  COPSE_AT_END(copse_builder_free_at) struct copse_topology_builder *builder = NULL;
  struct copse_q fastest = COPSE_Q_ONE; /* of the cables: no slower than any NIC */
  *out = NULL;
  for (int i = 0; i < host->n_links; i++)
    if (copse_q_cmp(host->links[i].bandwidth, fastest) > 0) fastest = host->links[i].bandwidth;
  struct copse_fabric fabric = {COPSE_FABRIC_DEFAULTS, .type = COPSE_FABRIC_FLAT};
  struct copse_host_group group = {.host = (struct copse_topology *)(uintptr_t)host, .count = n};
  fabric.bandwidth = fastest;
  COPSE_DO(copse_builder_new(host->name, &builder, err));
  COPSE_DO(copse_compose(builder, host->name, &fabric, &group, 1, err));
  return copse_builder_finish(builder, out, err);
}

/* ---- ways ------------------------------------------------------------------------------------ */

/* What a search may pass. */
struct search {
  struct copse_nccl_machine *m;
  int from, to, host;         /* host >= 0: only its nodes */
  enum copse_nccl_path worst; /* of a link; over one GPU from NVB on */
  bool any_gpu;               /* GPUs relay */
};

/* Whether a way may go over a link. NVLink over one GPU (NVB): the relay is a neighbour of the
 * source, and so is the destination. */
static bool may_pass(const struct search *s, int link) {
  const struct copse_topology *t = s->m->topology;
  int at = t->links[link].src, next = t->links[link].dst, host = s->m->host_of_node[next];
  if (s->m->finder->types[link] > s->worst) return false;
  bool inside = s->host >= 0 ? host == s->host
                             : host < 0 || host == s->m->host_of_node[s->from] ||
                                   host == s->m->host_of_node[s->to];
  if (!inside) return false;
  if (at == s->from || t->nodes[at].rank < 0 || s->any_gpu) return true;
  return s->worst >= COPSE_NCCL_PATH_NVB && s->m->finder->distance[at] == 1 &&
         t->nodes[s->from].rank >= 0 && t->nodes[next].rank >= 0;
}

static struct copse_q narrower(struct copse_q a, struct copse_q b) {
  return copse_q_cmp(a, b) < 0 ? a : b;
}

/* Finds distance and width of every node that may lie on a way, until the destination's turn comes:
 * all that leads there has been seen then. */
static bool search_ways(const struct search *s) {
  struct copse_nccl_finder *f = s->m->finder;
  const struct copse_topology *t = s->m->topology;
  for (int i = 0; i < f->queue.tail; i++) f->seen[f->queue.items[i]] = false;
  copse_queue_reset(&f->queue);
  copse_queue_push(&f->queue, s->from);
  f->seen[s->from] = true;
  f->distance[s->from] = 0;
  f->width[s->from] = (struct copse_q){INT64_MAX, 1};
  while (!copse_queue_is_empty(&f->queue)) {
    int u = copse_queue_pop(&f->queue);
    if (u == s->to) return true;
    for (int i = f->out.first[u]; i < f->out.first[u + 1]; i++) {
      const struct copse_link *link = &t->links[f->out.item[i]];
      int v = link->dst;
      if (!may_pass(s, f->out.item[i])) continue;
      struct copse_q width = narrower(f->width[u], link->bandwidth);
      if (!f->seen[v]) {
        f->seen[v] = true;
        f->distance[v] = f->distance[u] + 1;
        f->width[v] = width;
        copse_queue_push(&f->queue, v);
      } else if (f->distance[v] == f->distance[u] + 1 && copse_q_cmp(width, f->width[v]) > 0) {
        f->width[v] = width;
      }
    }
  }
  return false;
}

/* Whether a link is the end of a widest shortest way to its destination. */
static bool is_best(const struct search *s, int link) {
  const struct copse_nccl_finder *f = s->m->finder;
  const struct copse_link *l = &s->m->topology->links[link];
  return f->seen[l->src] && f->distance[l->src] + 1 == f->distance[l->dst] &&
         may_pass(s, link) &&
         copse_q_eq(narrower(f->width[l->src], l->bandwidth), f->width[l->dst]);
}

/* Chooses among GPUs that may relay to v as NCCL does, by v's links to them: the widest, of these
 * the first; `link` is of any. */
static int find_relay(const struct search *s, int v, int link) {
  const struct copse_nccl_finder *f = s->m->finder;
  const struct copse_link *links = s->m->topology->links;
  struct copse_q most = COPSE_Q_ZERO;
  for (int i = f->out.first[v]; i < f->out.first[v + 1]; i++) {
    const struct copse_link *back = &links[f->out.item[i]];
    for (int k = f->in.first[v]; k < f->in.first[v + 1]; k++) {
      int into = f->in.item[k];
      if (links[into].src != back->dst || s->m->topology->nodes[back->dst].rank < 0 ||
          back->dst == s->from || !is_best(s, into) || copse_q_cmp(back->bandwidth, most) <= 0)
        continue;
      most = back->bandwidth;
      link = into;
    }
  }
  return link;
}

/* Adds the hops into v, each with an equal part of what v gets, or all over one GPU. */
static copse_status add_hops(const struct search *s, int v, struct copse_nccl_route *route,
                             struct copse_err *err) {
  struct copse_nccl_finder *f = s->m->finder;
  const struct copse_topology *t = s->m->topology;
  int n = 0, relay = -1;
  for (int i = f->in.first[v]; i < f->in.first[v + 1]; i++) {
    if (!is_best(s, f->in.item[i])) continue;
    int u = t->links[f->in.item[i]].src;
    if (relay < 0 && u != s->from && t->nodes[u].rank >= 0) relay = f->in.item[i];
    n++;
  }
  struct copse_q share = f->part[v];
  if (relay >= 0) relay = find_relay(s, v, relay);
  if (relay < 0) COPSE_DO(copse_q_div(share, (struct copse_q){n, 1}, &share, err));
  for (int i = f->in.first[v]; i < f->in.first[v + 1]; i++) {
    int link = f->in.item[i], u = t->links[link].src;
    if (relay >= 0 ? link != relay : !is_best(s, link)) continue;
    route->hops[route->n_hops++] = (struct copse_nccl_hop){link, share};
    COPSE_DO(copse_q_add(f->part[u], share, &f->part[u], err));
  }
  return COPSE_OK;
}

/* Returns the kind of the way by the nodes that the hops pass. */
static enum copse_nccl_path classify(const struct search *s, const struct copse_nccl_route *route) {
  const struct copse_topology *t = s->m->topology;
  int cpus = 0, bridges = 0, gpus = 0, at = s->to;
  bool c2c = false;
  if (s->m->host_of_node[s->from] != s->m->host_of_node[s->to]) return COPSE_NCCL_PATH_NET;
  for (int i = 0; i < route->n_hops; i++) { /* one of the ways, back from the destination */
    const struct copse_link *l = &t->links[route->hops[i].link];
    if (l->dst != at) continue;
    bool cpu = is_type(s->m, l->src, "cpu");
    bool at_gpu = (cpu && t->nodes[l->dst].rank >= 0) ||
                  (is_type(s->m, l->dst, "cpu") && t->nodes[l->src].rank >= 0);
    c2c = c2c || (at_gpu && copse_q_cmp(l->bandwidth, most_pcie) > 0);
    at = l->src;
    if (at == s->from) break;
    cpus += cpu;
    bridges += is_type(s->m, at, "pcie");
    gpus += t->nodes[at].rank >= 0;
  }
  bool to_gpu = t->nodes[s->to].rank >= 0 && t->nodes[s->from].rank >= 0;
  if (cpus > 1) return COPSE_NCCL_PATH_SYS;
  if (cpus == 1) return c2c && !to_gpu ? COPSE_NCCL_PATH_P2C : COPSE_NCCL_PATH_PHB;
  if (to_gpu && bridges == 0) return gpus > 0 ? COPSE_NCCL_PATH_NVB : COPSE_NCCL_PATH_NVL;
  if (gpus > 0) return COPSE_NCCL_PATH_PXN;
  return bridges > 1 ? COPSE_NCCL_PATH_PXB : COPSE_NCCL_PATH_PIX;
}

/* Lists the hops of what the search found, from the destination back. */
static copse_status lay_out(const struct search *s, struct copse_nccl_route *route,
                            struct copse_err *err) {
  struct copse_nccl_finder *f = s->m->finder;
  int past = f->queue.tail, most = 0;
  for (int i = 0; i < past; i++) {
    int v = f->queue.items[i];
    f->part[v] = COPSE_Q_ZERO;
    most += f->in.first[v + 1] - f->in.first[v];
  }
  f->part[s->to] = COPSE_Q_ONE;
  route->width = f->width[s->to];
  COPSE_AT_END(copse_free_at) struct copse_nccl_hop *hops = NULL;
  COPSE_DO(copse_calloc((size_t)most, sizeof *hops, &hops, err));
  route->hops = hops;
  for (int i = past - 1; i >= 0; i--) /* in falling distance */
    if (f->part[f->queue.items[i]].num > 0 && f->queue.items[i] != s->from)
      COPSE_DO(add_hops(s, f->queue.items[i], route, err));
  COPSE_DO(COPSE_ARRAY(&s->m->arena, (size_t)route->n_hops, route->hops, err));
  memcpy(route->hops, hops, (size_t)route->n_hops * sizeof *hops);
  route->type = classify(s, route);
  return COPSE_OK;
}

/* Finds the CPU to which a GPU has the widest way, of these the shortest; -1: none. */
static copse_status find_local_cpu(struct copse_nccl_machine *m, int gpu,
                                   const struct copse_nccl_route **out, int *cpu,
                                   struct copse_err *err) {
  *out = NULL;
  *cpu = -1;
  for (int v = 0; v < m->topology->n_nodes; v++) {
    const struct copse_nccl_route *route;
    if (m->host_of_node[v] != m->host_of_node[gpu] || !is_type(m, v, "cpu")) continue;
    COPSE_DO(copse_nccl_find_route(m, gpu, v, &route, err));
    int wider = *out ? copse_q_cmp(route->width, (*out)->width) : 1;
    if (wider < 0 ||
        (wider == 0 && (route->type > (*out)->type || route->n_hops >= (*out)->n_hops)))
      continue;
    *out = route;
    *cpu = v;
  }
  return COPSE_OK;
}

/* Leads data between a GPU and a NIC over the memory of the GPU's CPU, as without GPUDirect
 * RDMA. */
static copse_status pass_memory(struct copse_nccl_machine *m, int from, int to,
                                struct copse_nccl_route *route, struct copse_err *err) {
  const struct copse_node *nodes = m->topology->nodes;
  bool out = nodes[from].rank >= 0;
  int gpu = out ? from : to, nic = out ? to : from, cpu;
  const struct copse_nccl_route *at_gpu, *at_nic, *first, *last;
  if (nodes[gpu].rank < 0 || nodes[nic].rank >= 0 || !is_port(m, nic) ||
      !(nodes[gpu].no_gdr || nodes[nic].no_gdr) || route->type >= COPSE_NCCL_PATH_PHB)
    return COPSE_OK;
  COPSE_DO(find_local_cpu(m, gpu, &at_gpu, &cpu, err));
  if (cpu < 0) return COPSE_OK;
  if (!out) COPSE_DO(copse_nccl_find_route(m, cpu, gpu, &at_gpu, err));
  COPSE_DO(copse_nccl_find_route(m, out ? cpu : nic, out ? nic : cpu, &at_nic, err));
  first = out ? at_gpu : at_nic;
  last = out ? at_nic : at_gpu;
  route->n_first = first->n_hops;
  route->n_hops = first->n_hops + last->n_hops;
  COPSE_DO(COPSE_ARRAY(&m->arena, (size_t)route->n_hops, route->hops, err));
  memcpy(route->hops, first->hops, (size_t)first->n_hops * sizeof *route->hops);
  memcpy(route->hops + first->n_hops, last->hops, (size_t)last->n_hops * sizeof *route->hops);
  route->width = narrower(first->width, last->width);
  route->type = copse_q_cmp(at_gpu->width, most_pcie) > 0 ? COPSE_NCCL_PATH_P2C
                                                          : COPSE_NCCL_PATH_PHB;
  return COPSE_OK;
}

/* Searches by the best kind of links that leads there; false: none does. */
static bool search_by_kind(struct search *s) {
  s->worst = s->host >= 0 ? COPSE_NCCL_PATH_NVL : COPSE_NCCL_PATH_SYS;
  for (; s->worst <= COPSE_NCCL_PATH_SYS; s->worst++)
    if (search_ways(s)) return true;
  return false;
}

static const struct nearest *find_nearest(struct copse_nccl_machine *m, int gpu, int host) {
  struct nearest *n = &m->finder->nearest[m->topology->nodes[gpu].rank];
  if (n->known) return n;
  *n = (struct nearest){true, COPSE_Q_ZERO, COPSE_NCCL_PATH_SYS};
  for (int p = m->first_port[host]; p < m->first_port[host + 1]; p++) {
    struct search s = {m, gpu, m->ports[p].node, host, COPSE_NCCL_PATH_SYS, false};
    if (!search_by_kind(&s)) continue;
    int order = copse_q_cmp(m->finder->width[s.to], n->width);
    if (order < 0 || (order == 0 && s.worst >= n->kind)) continue;
    n->width = m->finder->width[s.to];
    n->kind = s.worst;
  }
  return n;
}

/* Changes P2C to PHB but between a GPU and the ports nearest to it; to others of its CPU the way is
 * PHB. */
static void limit_p2c(const struct search *found, struct copse_nccl_route *route) {
  struct copse_nccl_machine *m = found->m;
  bool out = m->topology->nodes[found->from].rank >= 0;
  int gpu = out ? found->from : found->to, nic = out ? found->to : found->from;
  struct search own = {m, gpu, nic, found->host, COPSE_NCCL_PATH_SYS, false};
  if (route->type != COPSE_NCCL_PATH_P2C || m->topology->nodes[gpu].rank < 0 || !is_port(m, nic))
    return;
  const struct nearest *nearest = find_nearest(m, gpu, found->host);
  if (search_by_kind(&own) &&
      (!copse_q_eq(m->finder->width[nic], nearest->width) || own.worst != nearest->kind))
    route->type = COPSE_NCCL_PATH_PHB;
}

static copse_status make_route(struct copse_nccl_machine *m, int from, int to,
                               struct copse_nccl_route *route, struct copse_err *err) {
  int host = m->host_of_node[from] == m->host_of_node[to] ? m->host_of_node[from] : -1;
  *route = (struct copse_nccl_route){COPSE_NCCL_PATH_LOC, {INT64_MAX, 1}, 0, 0, NULL};
  if (from == to) return COPSE_OK;
  struct search s = {m, from, to, host, COPSE_NCCL_PATH_SYS, false};
  if (search_by_kind(&s)) {
    COPSE_DO(lay_out(&s, route, err));
    limit_p2c(&s, route);
    return pass_memory(m, from, to, route, err);
  }
  s.worst = COPSE_NCCL_PATH_SYS;
  s.any_gpu = true;
  if (search_ways(&s)) return lay_out(&s, route, err);
  return copse_topology_refuse_unreached(m->topology, NULL, from, to,
                                         host >= 0 ? " inside of their host" : "", err);
}

copse_status copse_nccl_find_route(struct copse_nccl_machine *m, int from, int to,
                                   const struct copse_nccl_route **out, struct copse_err *err) {
  struct copse_nccl_finder *f = m->finder;
  struct copse_nccl_route *route;
  size_t cursor = 0;
  int at = copse_index_map_next(&f->found, copse_key_pair(from, to), &cursor);
  *out = at >= 0 ? f->routes[at] : NULL;
  if (*out) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(&m->arena, 1, route, err));
  COPSE_DO(make_route(m, from, to, route, err));
  COPSE_DO(COPSE_GROW(f->routes, f->capacity, (size_t)f->n_routes + 1, err));
  COPSE_DO(copse_index_map_add(&f->found, copse_key_pair(from, to), f->n_routes, err));
  f->routes[f->n_routes++] = route;
  *out = route;
  return COPSE_OK;
}

/* ---- GPUs beside NICs ------------------------------------------------------------------------ */

/* Widths and types of ways between a host's GPUs and ports, as NCCL has them while it looks for
 * relays (ncclTopoComputePaths), port after port: those over a relay count for the next. */
struct reach {
  const struct copse_nccl_machine *m;
  int host, n, n_ports;
  struct copse_q *out_width, *in_width; /* [n * n_ports], [n_ports * n] */
  enum copse_nccl_path *out_type, *in_type;
  int *gpus, *n_gpus; /* [n_ports * n] [n_ports] nearest to each port */
  int *own, *n_own;   /* [n * n_ports] [n] ports nearest to each GPU */
};

/* Lists the widest, and of these the best type. */
static int list_nearest(const struct copse_q *width, const enum copse_nccl_path *type, int n,
                        int *list) {
  int count = 0;
  for (int i = 0; i < n; i++) {
    int order = count > 0 ? copse_q_cmp(width[i], width[list[0]]) : width[i].num > 0;
    if (count > 0 && order == 0) order = (int)type[list[0]] - (int)type[i];
    if (order > 0) count = 0;
    if (order >= 0 && width[i].num > 0) list[count++] = i;
  }
  return count;
}

static void list_own(struct reach *r, int i) {
  int at = i * r->n_ports;
  r->n_own[i] = list_nearest(r->out_width + at, r->out_type + at, r->n_ports, r->own + at);
}

static int mirror_bits(int value, int power) {
  int mirrored = 0;
  for (int bit = 1, other = power / 2; bit < power; bit *= 2, other /= 2)
    if (value & bit) mirrored |= other;
  return mirrored;
}

/* Returns the port that GPU i takes for channel c of those nearest to it (ncclTopoGetLocalNet);
 * -1: none. */
static int own_port(const struct reach *r, int i, int c) {
  const struct copse_nccl_machine *m = r->m;
  int n = r->n_own[i], sharing = n > 0 ? r->n_gpus[r->own[i * r->n_ports]] : 0;
  if (sharing == 0) return -1;
  int dev = (int)(copse_nccl_dev_index(m->devs[m->members[m->first[r->host] + i]]) & INT32_MAX);
  int at = dev % sharing, each = (n + sharing - 1) / sharing;
  if ((n & (n - 1)) == 0) at = mirror_bits(at, n);
  return r->own[i * r->n_ports + (at + c % each) % n];
}

/* Returns the GPU nearest to port p that takes it first for a channel (ncclTopoGetLocalGpu); -1:
 * none. A GPU begins again with its ports after at most all. */
static int own_gpu(const struct reach *r, int p) {
  for (int c = 0; c < 2 * COPSE_NCCL_MAX_CHANNELS && c < r->n_ports; c++)
    for (int k = 0; k < r->n_gpus[p]; k++)
      if (own_port(r, r->gpus[p * r->n + k], c) == p) return r->gpus[p * r->n + k];
  return -1;
}

/* Measures a way; 0 and the worst type where there is none. */
static copse_status measure(struct copse_nccl_machine *m, int from, int to, struct copse_q *width,
                            enum copse_nccl_path *type, struct copse_err *err) {
  const struct copse_nccl_route *route;
  struct copse_err none = COPSE_ERR_INIT;
  copse_status status = copse_nccl_find_route(m, from, to, &route, &none);
  *width = status == COPSE_OK ? route->width : COPSE_Q_ZERO;
  *type = status == COPSE_OK ? route->type : COPSE_NCCL_PATH_SYS;
  return status == COPSE_OK || status == COPSE_INFEASIBLE
             ? COPSE_OK
             : copse_fail(err, status, "%s", none.text);
}

/* Whether NCCL sends from GPU i by way of GPU `peer`, which is beside port p; then notes it. */
static copse_status try_relay(struct copse_nccl_machine *m, struct reach *r, int p, int i, int peer,
                              int *relay, struct copse_err *err) {
  const int *members = m->members + m->first[r->host], *nodes = m->topology->rank_nodes;
  const struct copse_node *of = m->topology->nodes;
  int port = m->ports[m->first_port[r->host] + p].node, at = i * r->n_ports + p;
  int peer_at = peer * r->n_ports + p, gpu = nodes[members[i]], other = nodes[members[peer]];
  struct copse_q there, back;
  enum copse_nccl_path type, back_type;
  if (of[port].no_gdr || of[other].no_gdr || r->out_type[peer_at] > COPSE_NCCL_PATH_P2C ||
      m->devs[members[i]] >> 56 != m->devs[members[peer]] >> 56)
    return COPSE_OK;
  COPSE_DO(measure(m, gpu, other, &there, &type, err));
  COPSE_DO(measure(m, other, gpu, &back, &back_type, err));
  bool wider = copse_q_cmp(r->out_width[peer_at], r->out_width[at]) > 0;
  if (there.num == 0 || back.num == 0 || back_type > COPSE_NCCL_PATH_NVL ||
      !(wider || r->out_type[at] > COPSE_NCCL_PATH_PXN))
    return COPSE_OK;
  r->out_width[at] = narrower(there, r->out_width[peer_at]);
  r->out_type[at] = COPSE_NCCL_PATH_PXN;
  list_own(r, i);
  *relay = peer;
  return COPSE_OK;
}

/* Fills in the host's relays, [n * n_ports] and then each port's own GPU; -1: none. */
static copse_status find_relays(struct copse_nccl_machine *m, int host, struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct reach r = {.m = m,
                    .host = host,
                    .n = m->first[host + 1] - m->first[host],
                    .n_ports = m->first_port[host + 1] - m->first_port[host]};
  size_t pairs = (size_t)r.n * (size_t)r.n_ports;
  const int *nodes = m->topology->rank_nodes;
  int *relays;
  COPSE_DO(COPSE_ARRAYS(&scratch, pairs, struct copse_q, err, &r.out_width, &r.in_width));
  COPSE_DO(COPSE_ARRAYS(&scratch, pairs, enum copse_nccl_path, err, &r.out_type, &r.in_type));
  COPSE_DO(COPSE_ARRAYS(&scratch, pairs, int, err, &r.gpus, &r.own));
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)r.n_ports, r.n_gpus, err));
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)r.n, r.n_own, err));
  COPSE_DO(COPSE_ARRAY(&m->arena, pairs + (size_t)r.n_ports, relays, err));
  for (int i = 0; i < r.n; i++)
    for (int p = 0; p < r.n_ports; p++) {
      int gpu = nodes[m->members[m->first[host] + i]], out = i * r.n_ports + p, in = p * r.n + i;
      int port = m->ports[m->first_port[host] + p].node;
      COPSE_DO(measure(m, gpu, port, &r.out_width[out], &r.out_type[out], err));
      COPSE_DO(measure(m, port, gpu, &r.in_width[in], &r.in_type[in], err));
    }
  for (int i = 0; i < r.n; i++) list_own(&r, i);
  for (int p = 0; p < r.n_ports; p++) {
    int at = p * r.n;
    r.n_gpus[p] = list_nearest(r.in_width + at, r.in_type + at, r.n, r.gpus + at);
  }
  for (int p = 0; p < r.n_ports; p++)
    for (int i = 0, peer = -1; i < r.n; i++) {
      if (i == 0 || relays[(i - 1) * r.n_ports + p] >= 0) peer = own_gpu(&r, p); /* has changed */
      relays[i * r.n_ports + p] = -1;
      if (peer >= 0 && peer != i)
        COPSE_DO(try_relay(m, &r, p, i, peer, &relays[i * r.n_ports + p], err));
    }
  for (int p = 0; p < r.n_ports; p++) relays[pairs + (size_t)p] = own_gpu(&r, p);
  m->finder->relays_of[host] = relays;
  return COPSE_OK;
}

copse_status copse_nccl_find_own_gpu(struct copse_nccl_machine *m, int port, int *rank,
                                     struct copse_err *err) {
  int host = m->ports[port].host, n = m->first[host + 1] - m->first[host];
  int n_ports = m->first_port[host + 1] - m->first_port[host];
  if (!m->finder->relays_of[host]) COPSE_DO(find_relays(m, host, err));
  int own = m->finder->relays_of[host][n * n_ports + port - m->first_port[host]];
  *rank = own >= 0 ? m->members[m->first[host] + own] : -1;
  return COPSE_OK;
}

copse_status copse_nccl_find_way_out(struct copse_nccl_machine *m, int rank, int port, int *relay,
                                     const struct copse_nccl_route **first,
                                     const struct copse_nccl_route **last, struct copse_err *err) {
  const int *nodes = m->topology->rank_nodes;
  int host = m->ports[port].host, i = 0;
  int n_ports = m->first_port[host + 1] - m->first_port[host];
  *first = NULL;
  *relay = -1;
  COPSE_DO(copse_nccl_find_route(m, nodes[rank], m->ports[port].node, last, err));
  if (m->host_of_rank[rank] != host) return COPSE_OK;
  if (!m->finder->relays_of[host]) COPSE_DO(find_relays(m, host, err));
  while (m->members[m->first[host] + i] != rank) i++;
  int peer = m->finder->relays_of[host][i * n_ports + port - m->first_port[host]];
  if (peer < 0) return COPSE_OK;
  *relay = m->members[m->first[host] + peer];
  COPSE_DO(copse_nccl_find_route(m, nodes[rank], nodes[*relay], first, err));
  return copse_nccl_find_route(m, nodes[*relay], m->ports[port].node, last, err);
}
