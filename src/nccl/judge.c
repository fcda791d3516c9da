/*
 * Loads of NCCL's algorithms on the links of a topology, in units of a channel's data, as
 * rationals:
 *
 *   joined channels --an edge at a time, by the machine's routes--> load of each link --> time
 *
 * An edge between hosts goes from the GPU to its NIC (over the GPU beside it, where NCCL relays),
 * over the network, and from the NIC to the GPU. Sources: NVIDIA/nccl src/graph/connect.cc,
 * trees.cc and tuning.cc, and src/device.
 */
#include "nccl/judge.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/types.h"
#include "nccl/model.h"

/* ==== joining ============================================================================= */

/*
 * Joins hosts as NCCL does: connectRings, connectTrees and ncclGetDtree of NVIDIA/nccl
 * (src/graph/connect.cc, trees.cc), with the choice of NICs of ncclTopoGetNetDev. The trees are
 * those of Sanders, Speck and Traeff (Parallel Computing 35(12), 2009), by bits of host numbers:
 *
 *   4 hosts:   0 -> 2 -> {1, 3}   and   3 -> 1 -> {0, 2}
 */

void copse_nccl_joined_free(struct copse_nccl_joined *joined) {
  copse_arena_free(&joined->arena);
  *joined = (struct copse_nccl_joined){0};
}

/* ---- trees of hosts -------------------------------------------------------------------------- */

static struct copse_nccl_tree_place plain_tree(int n, int host) {
  struct copse_nccl_tree_place place = {-1, {-1, -1}, 0};
  int bit = 1;
  while (bit < n && !(bit & host)) bit <<= 1;
  if (host == 0) {
    place.down[1] = n > 1 ? bit >> 1 : -1;
    return place;
  }
  place.up = (host ^ bit) | bit << 1;
  if (place.up >= n) place.up = host ^ bit;
  place.child = host < place.up ? 0 : 1;
  int low = bit >> 1;
  place.down[0] = low == 0 ? -1 : host - low;
  while (low > 0 && host + low >= n) low >>= 1;
  place.down[1] = low == 0 ? -1 : host + low;
  return place;
}

/* Returns the host that stands in the second tree where `host` stands in the first. */
static int in_second(int n, int host) {
  if (host < 0) return -1;
  return n % 2 == 1 ? (host + 1) % n : n - 1 - host;
}

void copse_nccl_double_tree(int n, int host, struct copse_nccl_tree_place trees[2]) {
  trees[0] = plain_tree(n, host);
  struct copse_nccl_tree_place p = plain_tree(n, n % 2 == 1 ? (host + n - 1) % n : n - 1 - host);
  trees[1] = (struct copse_nccl_tree_place){
      in_second(n, p.up), {in_second(n, p.down[0]), in_second(n, p.down[1])}, p.child};
}

/* ---- lists of ranks -------------------------------------------------------------------------- */

struct joiner {
  const char *label;
  const struct copse_nccl_machine *m;
  struct copse_nccl_joined *out;
  int n, places; /* channels of a graph; GPUs of the largest host */
  struct copse_arena scratch;
  struct copse_err *err;
};

/* One graph in each host: the list of host h and channel c is rank[(h * n + c) * places ...]. */
struct lists {
  const struct copse_nccl_graph_search **graph; /* [n_hosts]; NULL: no such graph */
  int *rank;
};

static int places_of(const struct joiner *j, int host) {
  return j->m->first[host + 1] - j->m->first[host];
}

static struct copse_nccl_role *role(const struct joiner *j, int channel, int rank) {
  return &j->out->roles[(size_t)channel * (size_t)j->out->n_ranks + (size_t)rank];
}

static int *list_of(const struct joiner *j, const struct lists *l, int host, int channel) {
  return l->rank + ((size_t)host * (size_t)j->n + (size_t)channel) * (size_t)j->places;
}

static copse_status read_list(struct joiner *j, const struct lists *l, int host, int channel,
                              bool *used) {
  const struct copse_nccl_channel *from = &l->graph[host]->channels[channel];
  const char *kind = l->graph[host]->id == COPSE_NCCL_RING ? "ring" : "tree";
  int *list = list_of(j, l, host, channel), places = places_of(j, host);
  if (from->n_gpus != places)
    return copse_fail_at(j->err, COPSE_BAD_INPUT, j->label, 0,
                         "channel %d of the %s has %d GPUs and host %d of the topology %d; it "
                         "must have each once",
                         channel, kind, from->n_gpus, host, places);
  for (int i = 0; i < places; i++) {
    int rank = copse_nccl_find_rank(j->m, host, from->devs[i]);
    if (rank < 0)
      return copse_fail_at(j->err, COPSE_BAD_INPUT, j->label, 0,
                           "channel %d of the %s names GPU 0x%" PRIx64
                           ", which host %d of the topology lacks",
                           channel, kind, from->devs[i], host);
    list[i] = rank;
    if (used[rank])
      return copse_fail_at(j->err, COPSE_BAD_INPUT, j->label, 0,
                           "channel %d of the %s names GPU 0x%" PRIx64
                           " twice; it must have each once",
                           channel, kind, from->devs[i]);
    used[rank] = true;
  }
  for (int i = 0; i < places; i++) used[list[i]] = false;
  return COPSE_OK;
}

static copse_status read_lists(struct joiner *j, struct lists *l) {
  size_t n = (size_t)j->m->n_hosts * (size_t)j->n * (size_t)j->places;
  bool *used;
  COPSE_DO(COPSE_ARRAY(&j->scratch, n, l->rank, j->err));
  COPSE_DO(COPSE_ARRAY(&j->scratch, (size_t)j->out->n_ranks, used, j->err));
  for (int h = 0; h < j->m->n_hosts; h++)
    for (int c = 0; c < j->n; c++) COPSE_DO(read_list(j, l, h, c, used));
  return COPSE_OK;
}

/* Finds the port that a rank uses in a channel: the first NIC where it is the first GPU of its own
 * list, else the second. A file without NICs means NIC 0 to NCCL. */
static copse_status port_of(const struct joiner *j, const struct lists *l, int channel, int rank,
                            int *port) {
  int host = j->m->host_of_rank[rank], c = channel % j->n;
  int side = list_of(j, l, host, c)[0] == rank ? 0 : 1;
  uint64_t net = l->graph[host]->channels[c].nets[side];
  *port = copse_nccl_find_port(j->m, host, net);
  if (*port >= 0 || j->m->first_port[host] == j->m->first_port[host + 1]) return COPSE_OK;
  return copse_fail_at(j->err, COPSE_BAD_INPUT, j->label, 0,
                       "channel %d of the %s names NIC 0x%" PRIx64
                       ", which host %d of the topology lacks",
                       c, l->graph[host]->id == COPSE_NCCL_RING ? "ring" : "tree", net, host);
}

/* ---- rings ----------------------------------------------------------------------------------- */

/* Returns the list that a host runs in a channel: with crossnic 2 odd hosts that of the other of
 * two. */
static const int *ring_list(const struct joiner *j, const struct lists *l, int host, int c) {
  bool swaps = l->graph[host]->crossnic == 2 && j->n % 2 == 0 && host % 2 == 1;
  return list_of(j, l, host, swaps ? c ^ 1 : c);
}

static copse_status join_ring(struct joiner *j, const struct lists *l, int channel) {
  int hosts = j->m->n_hosts, c = channel % j->n;
  for (int h = 0; h < hosts; h++) {
    int last = places_of(j, h) - 1;
    const int *list = ring_list(j, l, h, c), *after = ring_list(j, l, (h + 1) % hosts, c);
    for (int i = 0; i < last; i++) role(j, channel, list[i])->next = list[i + 1];
    role(j, channel, list[last])->next = after[0];
    if (hosts == 1) continue;
    COPSE_DO(port_of(j, l, channel, list[last], &role(j, channel, list[last])->send_port));
    COPSE_DO(port_of(j, l, channel, after[0], &role(j, channel, after[0])->receive_port));
  }
  return COPSE_OK;
}

/* ---- trees ----------------------------------------------------------------------------------- */

/* Which GPUs of a host's list link to the host above and to those below it. */
struct tree_ports {
  int up, child[2];
};

static struct tree_ports tree_ports(const struct joiner *j, const struct lists *l, int host) {
  int second = places_of(j, host) > 1 ? 1 : 0, pattern = l->graph[host]->pattern;
  return (struct tree_ports){0,
                             {pattern == COPSE_NCCL_PATTERN_TREE ? 0 : second,
                              pattern == COPSE_NCCL_PATTERN_SPLIT_TREE ? second : 0}};
}

static copse_status add_down(const struct joiner *j, const struct lists *l, int channel, int rank,
                             int below) {
  struct copse_nccl_role *s = role(j, channel, rank);
  int at = 0;
  while (at + 1 < COPSE_NCCL_DOWNS && s->down[at] >= 0) at++;
  s->down[at] = below;
  if (j->m->host_of_rank[rank] == j->m->host_of_rank[below]) return COPSE_OK;
  return port_of(j, l, channel, rank, &s->down_port[at]);
}

/* Joins a host's chain, and its links to other hosts. */
static copse_status join_tree(struct joiner *j, const struct lists *l, int channel, int host) {
  struct tree_ports ports = tree_ports(j, l, host), above;
  struct copse_nccl_tree_place trees[2];
  int c = channel % j->n;
  const int *list = list_of(j, l, host, c);
  copse_nccl_double_tree(j->m->n_hosts, host, trees);
  const struct copse_nccl_tree_place *place = &trees[channel / j->n % 2];
  for (int i = 0; i + 1 < places_of(j, host); i++) {
    role(j, channel, list[i + 1])->up = list[i];
    COPSE_DO(add_down(j, l, channel, list[i], list[i + 1]));
  }
  if (place->up >= 0) {
    struct copse_nccl_role *s = role(j, channel, list[ports.up]);
    above = tree_ports(j, l, place->up);
    s->up = list_of(j, l, place->up, c)[above.child[place->child]];
    COPSE_DO(port_of(j, l, channel, list[ports.up], &s->up_port));
  }
  for (int d = 0; d < 2; d++)
    if (place->down[d] >= 0)
      COPSE_DO(add_down(j, l, channel, list[ports.child[d]],
                        list_of(j, l, place->down[d], c)[ports.up]));
  return COPSE_OK;
}

/* ---- channels -------------------------------------------------------------------------------- */

/* Whether channels double once more, as from 2.25 on; sm_90 alone had it before. */
static bool doubles_again(const struct joiner *j, const struct lists *ring) {
  const struct copse_topology *t = j->m->topology;
  if (j->m->n_hosts < 2 || !ring->graph) return false;
  for (int h = 0; h < j->m->n_hosts; h++)
    if (copse_q_cmp(ring->graph[h]->speed_intra, (struct copse_q){45, 1}) <= 0) return false;
  for (int r = 0; r < t->n_ranks; r++)
    if (t->nodes[t->rank_nodes[r]].sm < 90) return false;
  return 2 * j->n < 16;
}

/* Finds a graph in each host, where all have it. Hosts agree on the fewest channels. */
static copse_status find_graph(struct joiner *j, const struct copse_nccl_graphs *const *graphs,
                               int n_graphs, enum copse_nccl_graph_id id, struct lists *l) {
  const struct copse_nccl_graph_search **found;
  COPSE_DO(COPSE_ARRAY(&j->scratch, (size_t)j->m->n_hosts, found, j->err));
  for (int h = 0; h < j->m->n_hosts; h++) {
    found[h] = copse_nccl_graph(graphs[n_graphs > 1 ? h : 0], id);
    if (!found[h]) return COPSE_OK;
  }
  for (int h = 0; h < j->m->n_hosts; h++) {
    if (j->n == 0 || found[h]->n_channels < j->n) j->n = found[h]->n_channels;
    if (places_of(j, h) > j->places) j->places = places_of(j, h);
  }
  l->graph = found;
  return COPSE_OK;
}

static copse_status start(struct joiner *j, const struct lists *ring, const struct lists *tree) {
  struct copse_nccl_joined *out = j->out;
  const struct copse_nccl_machine *m = j->m;
  if (!ring->graph && !tree->graph)
    return copse_fail_at(j->err, COPSE_BAD_INPUT, j->label, 0,
                         "neither a ring (graph 0) nor a tree (graph 1) with channels");
  out->n_ranks = m->topology->n_ranks;
  out->n_hosts = m->n_hosts;
  out->has_ring = ring->graph != NULL;
  out->has_tree = tree->graph != NULL;
  out->n_graph_channels = j->n;
  out->n_channels = 2 * j->n * (doubles_again(j, ring) ? 2 : 1);
  size_t n = (size_t)out->n_channels * (size_t)out->n_ranks;
  COPSE_DO(COPSE_ARRAY(&out->arena, n, out->roles, j->err));
  for (size_t i = 0; i < n; i++)
    out->roles[i] = (struct copse_nccl_role){-1, -1, -1, -1, {-1, -1, -1}, -1, {-1, -1, -1}};
  return COPSE_OK;
}

static void free_scratch(struct joiner *j) { copse_arena_free(&j->scratch); }

copse_status copse_nccl_join(const char *label, const struct copse_nccl_graphs *const *graphs,
                             int n_graphs, const struct copse_nccl_machine *machine,
                             struct copse_nccl_joined *out, struct copse_err *err) {
  COPSE_AT_END(free_scratch)
  struct joiner joiner = {.label = label, .m = machine, .out = out, .err = err};
  struct joiner *j = &joiner;
  struct lists ring = {0}, tree = {0};
  *out = (struct copse_nccl_joined){0};
  COPSE_DO(find_graph(j, graphs, n_graphs, COPSE_NCCL_RING, &ring));
  COPSE_DO(find_graph(j, graphs, n_graphs, COPSE_NCCL_TREE, &tree));
  COPSE_DO(start(j, &ring, &tree));
  if (ring.graph) COPSE_DO(read_lists(j, &ring));
  if (tree.graph) COPSE_DO(read_lists(j, &tree));
  for (int c = 0; c < out->n_channels; c++) {
    if (ring.graph) COPSE_DO(join_ring(j, &ring, c));
    for (int h = 0; tree.graph && h < out->n_hosts; h++) COPSE_DO(join_tree(j, &tree, c, h));
  }
  return COPSE_OK;
}

const char *copse_nccl_algorithm_name(enum copse_nccl_graph_id algorithm) {
  static const char *const names[COPSE_NCCL_GRAPHS] = {"Ring", "Tree", "CollNetChain", "NVLS",
                                                       "CollNetDirect"};
  return names[algorithm];
}

static void level(struct copse_nccl_graph_search *all, const struct copse_nccl_graph_search *g) {
  if (g->n_channels < all->n_channels) all->n_channels = g->n_channels;
  if (copse_q_cmp(g->speed_intra, all->speed_intra) < 0) all->speed_intra = g->speed_intra;
  if (copse_q_cmp(g->speed_inter, all->speed_inter) < 0) all->speed_inter = g->speed_inter;
  if (copse_q_cmp(g->latency_inter, all->latency_inter) > 0) all->latency_inter = g->latency_inter;
  if (g->type_intra > all->type_intra) all->type_intra = g->type_intra;
  if (g->type_inter > all->type_inter) all->type_inter = g->type_inter;
  all->same_channels = all->same_channels && g->same_channels;
}

copse_status copse_nccl_judge_open(const char *label, const struct copse_nccl_graphs *const *graphs,
                                   int n_graphs, struct copse_nccl_machine *machine,
                                   struct copse_nccl_judge *out, struct copse_err *err) {
  struct copse_nccl_graphs *all;
  *out = (struct copse_nccl_judge){
      .machine = machine, .label = label, .graphs = graphs[0], .each = graphs, .n_each = n_graphs};
  if (n_graphs > 1) {
    COPSE_DO(COPSE_ARRAY(&out->arena, 1, all, err));
    *all = *graphs[0];
    out->graphs = all;
    for (int h = 1; h < n_graphs; h++)
      for (int id = 0; id < COPSE_NCCL_GRAPHS; id++) {
        all->present[id] = all->present[id] && graphs[h]->present[id];
        if (all->present[id]) level(&all->graph[id], &graphs[h]->graph[id]);
      }
  }
  return copse_nccl_join(label, graphs, n_graphs, machine, &out->joined, err);
}

/* Returns the graph of one host, or NULL. */
static const struct copse_nccl_graph_search *graph_of(const struct copse_nccl_judge *judge,
                                                      enum copse_nccl_graph_id id, int host) {
  return copse_nccl_graph(judge->n_each > 1 ? judge->each[host] : judge->graphs, id);
}

void copse_nccl_judge_close(struct copse_nccl_judge *judge) {
  copse_nccl_joined_free(&judge->joined);
  copse_arena_free(&judge->arena);
  *judge = (struct copse_nccl_judge){0};
}

/* ---- loads ----------------------------------------------------------------------------------- */

struct loader {
  struct copse_nccl_judge *judge;
  struct copse_nccl_machine *m;
  struct copse_q *load; /* [n_links] */
  struct copse_err *err;
};

static copse_status add_route(struct loader *l, const struct copse_nccl_route *route,
                              struct copse_q amount) {
  for (int i = 0; route && i < route->n_hops; i++) {
    struct copse_q *load = &l->load[route->hops[i].link], part;
    COPSE_DO(copse_q_mul(route->hops[i].share, amount, &part, l->err));
    COPSE_DO(copse_q_add(*load, part, load, l->err));
  }
  return COPSE_OK;
}

static copse_status add_way(struct loader *l, int from, int to, struct copse_q amount) {
  const struct copse_nccl_route *route;
  COPSE_DO(copse_nccl_find_route(l->m, from, to, &route, l->err));
  return add_route(l, route, amount);
}

static copse_status add_way_out(struct loader *l, int rank, int port, struct copse_q amount) {
  const struct copse_nccl_route *first, *last;
  int relay;
  COPSE_DO(copse_nccl_find_way_out(l->m, rank, port, &relay, &first, &last, l->err));
  COPSE_DO(add_route(l, first, amount));
  return add_route(l, last, amount);
}

/* Adds data of one rank to another over these ports; without ports straight. */
static copse_status add_edge(struct loader *l, int from, int to, int send, int receive,
                             struct copse_q amount) {
  const int *nodes = l->m->topology->rank_nodes;
  if (from == to) return COPSE_OK;
  if (send < 0 || receive < 0) return add_way(l, nodes[from], nodes[to], amount);
  int out = l->m->ports[send].node, in = l->m->ports[receive].node;
  COPSE_DO(add_way_out(l, from, send, amount));
  COPSE_DO(add_way(l, out, in, amount));
  return add_way(l, in, nodes[to], amount);
}

/* ---- rings and trees ------------------------------------------------------------------------- */

static copse_status add_ring(struct loader *l, copse_collective collective, int root) {
  const struct copse_nccl_joined *j = &l->judge->joined;
  int64_t n = j->n_ranks, channels = j->n_channels;
  struct copse_q amount = {1, channels};
  if (collective == COPSE_ALLREDUCE)
    COPSE_DO(copse_q_make(2 * (n - 1), n * channels, &amount, l->err));
  else if (!copse_collective_rooted(collective))
    COPSE_DO(copse_q_make(n - 1, n * channels, &amount, l->err));
  for (int c = 0; c < j->n_channels; c++)
    for (int r = 0; r < j->n_ranks; r++) {
      const struct copse_nccl_role *s = copse_nccl_role_of(j, c, r);
      bool idle = (collective == COPSE_BROADCAST && s->next == root) ||
                  (collective == COPSE_REDUCE && r == root);
      if (idle) continue;
      COPSE_DO(add_edge(l, r, s->next, s->send_port,
                        copse_nccl_role_of(j, c, s->next)->receive_port, amount));
    }
  return COPSE_OK;
}

/* Returns the port at which `rank` takes data from the rank below it. */
static int port_below(const struct copse_nccl_role *s, int below) {
  for (int d = 0; d < COPSE_NCCL_DOWNS; d++)
    if (s->down[d] == below) return s->down_port[d];
  return -1;
}

static copse_status add_tree(struct loader *l) {
  const struct copse_nccl_joined *j = &l->judge->joined;
  struct copse_q amount = {1, j->n_channels};
  for (int c = 0; c < j->n_channels; c++)
    for (int r = 0; r < j->n_ranks; r++) {
      const struct copse_nccl_role *s = copse_nccl_role_of(j, c, r);
      if (s->up < 0) continue;
      int above = port_below(copse_nccl_role_of(j, c, s->up), r);
      COPSE_DO(add_edge(l, r, s->up, s->up_port, above, amount));
      COPSE_DO(add_edge(l, s->up, r, above, s->up_port, amount));
    }
  return COPSE_OK;
}

/* ---- sums in switches ------------------------------------------------------------------------ */

/* The heads of a graph in one host, each once, with their NICs. */
struct heads {
  int n;
  int *rank, *port; /* [n] */
};

static copse_status find_heads(struct loader *l, const struct copse_nccl_graph_search *graph,
                               int host, struct copse_arena *scratch, struct heads *heads) {
  size_t n = (size_t)graph->n_channels;
  heads->n = 0;
  COPSE_DO(COPSE_ARRAYS(scratch, n, int, l->err, &heads->rank, &heads->port));
  for (int c = 0; c < graph->n_channels; c++) {
    const struct copse_nccl_channel *channel = &graph->channels[c];
    int rank = copse_nccl_find_rank(l->m, host, channel->devs[0]), i = 0;
    if (rank < 0)
      return copse_fail_at(
          l->err, COPSE_BAD_INPUT, l->judge->label, 0,
          "channel %d of %s names GPU 0x%" PRIx64 ", which host %d of the topology lacks", c,
          copse_nccl_algorithm_name((enum copse_nccl_graph_id)graph->id), channel->devs[0], host);
    while (i < heads->n && heads->rank[i] != rank) i++;
    if (i < heads->n) continue;
    heads->rank[heads->n] = rank;
    heads->port[heads->n++] = copse_nccl_find_port(l->m, host, channel->nets[0]);
  }
  return COPSE_OK;
}

/* Adds data of a GPU to the NVSwitches it has links to, or back; all of them share alike. */
static copse_status add_switch(struct loader *l, int rank, bool out, struct copse_q amount) {
  const struct copse_topology *t = l->m->topology;
  int gpu = t->rank_nodes[rank], n = 0;
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < t->n_links; i++) {
      const struct copse_link *link = &t->links[i];
      int sw = out ? link->dst : link->src;
      if ((out ? link->src : link->dst) != gpu || strcmp(t->nodes[sw].type, "nvswitch") != 0)
        continue;
      struct copse_q part;
      if (pass == 0) {
        n++;
        continue;
      }
      COPSE_DO(copse_q_div(amount, (struct copse_q){n, 1}, &part, l->err));
      COPSE_DO(copse_q_add(l->load[i], part, &l->load[i], l->err));
    }
  if (n > 0) return COPSE_OK;
  return copse_fail_at(l->err, COPSE_BAD_INPUT, l->judge->label, 0,
                       "it has NVLS, which sums in an NVSwitch, and %s of the topology has no link "
                       "to one: give files of one machine",
                       t->nodes[gpu].id);
}

/* Adds one host: the switch takes every GPU's data once and gives every GPU the sum once; beside
 * it, a head gets and sends its part of the sum. */
static copse_status add_nvls_host(struct loader *l, const struct heads *heads, int host) {
  struct copse_q part = {1, heads->n};
  for (int i = l->m->first[host]; i < l->m->first[host + 1]; i++) {
    COPSE_DO(add_switch(l, l->m->members[i], true, COPSE_Q_ONE));
    COPSE_DO(add_switch(l, l->m->members[i], false, COPSE_Q_ONE));
  }
  for (int i = 0; i < heads->n; i++) {
    COPSE_DO(add_switch(l, heads->rank[i], true, part));
    COPSE_DO(add_switch(l, heads->rank[i], false, part));
  }
  return COPSE_OK;
}

/* Adds heads of the same number in double trees over the hosts: half of a head's data over each. */
static copse_status add_nvls_trees(struct loader *l, const struct heads *heads, int host) {
  struct copse_nccl_tree_place trees[2];
  copse_nccl_double_tree(l->m->n_hosts, host, trees);
  for (int tree = 0; tree < 2; tree++) {
    int up = trees[tree].up;
    int n = up >= 0 && heads[up].n < heads[host].n ? heads[up].n : heads[host].n;
    struct copse_q half = {1, 2 * (int64_t)n};
    for (int i = 0; up >= 0 && i < n; i++) {
      const struct heads *a = &heads[host], *b = &heads[up];
      COPSE_DO(add_edge(l, a->rank[i], b->rank[i], a->port[i], b->port[i], half));
      COPSE_DO(add_edge(l, b->rank[i], a->rank[i], b->port[i], a->port[i], half));
    }
  }
  return COPSE_OK;
}

/* Adds a head's part to the switch of the network and back; what that does with it isn't judged. */
static copse_status add_collnet_heads(struct loader *l, const struct heads *heads) {
  struct copse_q part = {1, heads->n};
  for (int i = 0; i < heads->n; i++) {
    if (heads->port[i] < 0) continue;
    int gpu = l->m->topology->rank_nodes[heads->rank[i]];
    COPSE_DO(add_way_out(l, heads->rank[i], heads->port[i], part));
    COPSE_DO(add_way(l, l->m->ports[heads->port[i]].node, gpu, part));
  }
  return COPSE_OK;
}

static copse_status add_collnet_direct(struct loader *l, const struct heads *heads, int host) {
  struct copse_q part = {1, heads->n};
  for (int i = l->m->first[host]; i < l->m->first[host + 1]; i++)
    for (int h = 0; h < heads->n; h++) {
      COPSE_DO(add_edge(l, l->m->members[i], heads->rank[h], -1, -1, part));
      COPSE_DO(add_edge(l, heads->rank[h], l->m->members[i], -1, -1, part));
    }
  return COPSE_OK;
}

static copse_status add_collnet_chain(struct loader *l, const struct copse_nccl_graph_search *graph,
                                      int host) {
  struct copse_q part = {1, graph->n_channels};
  for (int c = 0; c < graph->n_channels; c++) {
    const struct copse_nccl_channel *channel = &graph->channels[c];
    for (int i = 0; i + 1 < channel->n_gpus; i++) {
      int a = copse_nccl_find_rank(l->m, host, channel->devs[i]);
      int b = copse_nccl_find_rank(l->m, host, channel->devs[i + 1]);
      if (a < 0 || b < 0)
        return copse_fail_at(l->err, COPSE_BAD_INPUT, l->judge->label, 0,
                             "channel %d of CollNetChain names a GPU that host %d of the topology "
                             "lacks",
                             c, host);
      COPSE_DO(add_edge(l, a, b, -1, -1, part));
      COPSE_DO(add_edge(l, b, a, -1, -1, part));
    }
  }
  return COPSE_OK;
}

static copse_status add_in_network(struct loader *l, enum copse_nccl_graph_id id) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct heads *heads;
  int hosts = l->m->n_hosts;
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)hosts, heads, l->err));
  for (int h = 0; h < hosts; h++)
    COPSE_DO(find_heads(l, graph_of(l->judge, id, h), h, &scratch, &heads[h]));
  for (int h = 0; h < hosts; h++) {
    if (id == COPSE_NCCL_NVLS) {
      COPSE_DO(add_nvls_host(l, &heads[h], h));
      COPSE_DO(add_nvls_trees(l, heads, h));
      continue;
    }
    COPSE_DO(id == COPSE_NCCL_COLLNET_DIRECT ? add_collnet_direct(l, &heads[h], h)
                                             : add_collnet_chain(l, graph_of(l->judge, id, h), h));
    COPSE_DO(add_collnet_heads(l, &heads[h]));
  }
  return COPSE_OK;
}

/* ---- verdicts -------------------------------------------------------------------------------- */

/* Finds the GB/s of one channel by NCCL's own model: a tree carries its data twice, and up to two
 * hosts its speed in the host counts; heads of NVLS are in trees too from three hosts on. */
static copse_status find_speed(const struct loader *l, const struct copse_nccl_graph_search *graph,
                               struct copse_q *out) {
  int hosts = l->m->n_hosts;
  bool tree = graph->id == COPSE_NCCL_TREE, nvls = graph->id == COPSE_NCCL_NVLS;
  struct copse_q inter = graph->speed_inter;
  *out = hosts > (tree ? 2 : 1) ? inter : graph->speed_intra;
  if (tree) return copse_q_div(*out, (struct copse_q){2, 1}, out, l->err);
  if (nvls && hosts > 2) COPSE_DO(copse_q_div(inter, (struct copse_q){2, 1}, &inter, l->err));
  if (nvls && hosts > 1)
    *out = copse_q_cmp(graph->speed_intra, inter) < 0 ? graph->speed_intra : inter;
  return COPSE_OK;
}

/* Finds the time that a graph states. Of ring and tree, which are joined together, the fewer
 * channels count. A ring's speed is bus bandwidth. */
static copse_status find_stated(const struct loader *l, const struct copse_nccl_graph_search *graph,
                                copse_collective collective, struct copse_q *out) {
  int64_t n = l->m->topology->n_ranks;
  bool ring = graph->id == COPSE_NCCL_RING;
  bool joined = ring || graph->id == COPSE_NCCL_TREE;
  int channels = joined ? l->judge->joined.n_graph_channels : graph->n_channels;
  struct copse_q speed, factor = COPSE_Q_ONE;
  *out = COPSE_Q_ZERO;
  COPSE_DO(find_speed(l, graph, &speed));
  if (speed.num <= 0 || n < 2) return COPSE_OK;
  if (ring && !copse_collective_rooted(collective))
    COPSE_DO(copse_q_make((n - 1) * (collective == COPSE_ALLREDUCE ? 2 : 1), n, &factor, l->err));
  COPSE_DO(copse_q_mul(speed, (struct copse_q){channels, 1}, &speed, l->err));
  return copse_q_div(factor, speed, out, l->err);
}

static copse_status find_time(const struct loader *l, struct copse_nccl_verdict *out) {
  const struct copse_topology *t = l->m->topology;
  out->link = -1;
  out->links_time = COPSE_Q_ZERO;
  for (int i = 0; i < t->n_links; i++) {
    struct copse_q time;
    COPSE_DO(copse_q_div(l->load[i], t->links[i].bandwidth, &time, l->err));
    if (copse_q_cmp(time, out->links_time) <= 0) continue;
    out->links_time = time;
    out->link = i;
  }
  return COPSE_OK;
}

bool copse_nccl_judge_has(const struct copse_nccl_judge *judge, enum copse_nccl_graph_id algorithm,
                          copse_collective collective) {
  if (collective == COPSE_ALLTOALL || !copse_nccl_graph(judge->graphs, algorithm)) return false;
  return algorithm == COPSE_NCCL_RING || collective == COPSE_ALLREDUCE;
}

copse_status copse_nccl_judge(struct copse_nccl_judge *judge, enum copse_nccl_graph_id algorithm,
                              copse_collective collective, int root, struct copse_nccl_verdict *out,
                              struct copse_err *err) {
  const struct copse_nccl_graph_search *graph = copse_nccl_graph(judge->graphs, algorithm);
  const struct copse_topology *t = judge->machine->topology;
  struct loader loader = {.judge = judge, .m = judge->machine, .err = err}, *l = &loader;
  *out = (struct copse_nccl_verdict){.algorithm = algorithm, .collective = collective};
  if (!copse_nccl_judge_has(judge, algorithm, collective))
    return copse_fail(err, COPSE_INVALID, "%s: no graph of %s for %s", judge->label,
                      copse_nccl_algorithm_name(algorithm), copse_collective_name(collective));
  COPSE_DO(COPSE_ARRAY(&judge->arena, (size_t)t->n_links, l->load, err));
  for (int i = 0; i < t->n_links; i++) l->load[i] = COPSE_Q_ZERO;
  out->load = l->load;
  COPSE_DO(algorithm == COPSE_NCCL_RING   ? add_ring(l, collective, root)
           : algorithm == COPSE_NCCL_TREE ? add_tree(l)
                                          : add_in_network(l, algorithm));
  COPSE_DO(find_stated(l, graph, collective, &out->stated_time));
  return find_time(l, out);
}

static struct copse_nccl_model model_of(const struct copse_nccl_judge *judge) {
  const struct copse_topology *t = judge->machine->topology;
  struct copse_nccl_model model = {.graphs = judge->graphs,
                                   .nodes = judge->machine->n_hosts,
                                   .ranks = t->n_ranks,
                                   .sm = INT_MAX,
                                   .channels = judge->joined.n_channels};
  for (int r = 0; r < t->n_ranks; r++) {
    int sm = t->nodes[t->rank_nodes[r]].sm;
    if (sm < model.sm) model.sm = sm;
  }
  return model;
}

copse_status copse_nccl_judge_model(struct copse_nccl_judge *judge, struct copse_nccl_model *out,
                                    struct copse_err *err) {
  static const enum copse_nccl_graph_id known[] = {COPSE_NCCL_RING, COPSE_NCCL_TREE,
                                                   COPSE_NCCL_NVLS};
  double n = judge->machine->topology->n_ranks;
  const double factors[] = {2 * (n - 1) / n, 2, 1};
  *out = model_of(judge);
  for (int i = 0; i < 3; i++) {
    struct copse_nccl_verdict v;
    if (!copse_nccl_judge_has(judge, known[i], COPSE_ALLREDUCE)) continue;
    COPSE_DO(copse_nccl_judge(judge, known[i], COPSE_ALLREDUCE, 0, &v, err));
    if (v.links_time.num > 0) out->links[known[i]] = factors[i] / copse_q_to_double(v.links_time);
  }
  return COPSE_OK;
}

/* Returns the GB/s of an algorithm, by the numbers of tuner_table.h, for a long allreduce as NCCL's
 * model has it; 0: none. */
static double modelled(const struct copse_nccl_judge *judge, int algorithm) {
  const struct copse_nccl_model model = model_of(judge);
  return copse_nccl_model_cost(&model, COPSE_TUNER_ALLREDUCE, algorithm, COPSE_TUNER_SIMPLE).GBps;
}

bool copse_nccl_judge_prefers_nvls(const struct copse_nccl_judge *judge) {
  double others = fmax(modelled(judge, COPSE_TUNER_RING), modelled(judge, COPSE_TUNER_TREE));
  return fmax(modelled(judge, COPSE_TUNER_NVLS), modelled(judge, COPSE_TUNER_NVLS_TREE)) > others;
}

copse_status copse_nccl_judge_choice(struct copse_nccl_judge *judge, copse_collective collective,
                                     struct copse_nccl_verdict *out, struct copse_err *err) {
  struct copse_nccl_verdict tree;
  bool has_tree = copse_nccl_judge_has(judge, COPSE_NCCL_TREE, collective);
  if (!copse_nccl_judge_has(judge, COPSE_NCCL_RING, collective))
    return copse_nccl_judge(judge, COPSE_NCCL_TREE, collective, 0, out, err);
  COPSE_DO(copse_nccl_judge(judge, COPSE_NCCL_RING, collective, 0, out, err));
  if (!has_tree) return COPSE_OK;
  COPSE_DO(copse_nccl_judge(judge, COPSE_NCCL_TREE, collective, 0, &tree, err));
  double ring_GBps = out->stated_time.num > 0 ? modelled(judge, COPSE_TUNER_RING) : 0;
  double tree_GBps = tree.stated_time.num > 0 ? modelled(judge, COPSE_TUNER_TREE) : 0;
  if (tree_GBps > ring_GBps) *out = tree;
  return COPSE_OK;
}
