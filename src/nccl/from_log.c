/*
 * From a log to graphs and joined channels: ranks are found on the machine by host and bus id, and
 * then every GPU of a line is one of the topology's.
 *
 *   Pattern 4 ..  0 : NET/0 GPU/0-22000 .. --> graphs      Ring / Channel / Trees --> roles
 *   via NET/IB/2 --> ports
 *
 * Source of the lines: NVIDIA/nccl src/graph and src/transport (log.h).
 */
#include "nccl/from_log.h"

#include <stdlib.h>
#include <string.h>

/* ---- ranks on the machine -------------------------------------------------------------------- */

/* Reads "0000:1b:00.0" as logs count it, also without its function; 0: no bus id. */
static uint64_t read_bus(const char *text) {
  uint64_t bus = 0;
  bool function = false;
  for (const char *p = text; *p; p++) {
    int digit = *p >= '0' && *p <= '9'   ? *p - '0'
                : *p >= 'a' && *p <= 'f' ? *p - 'a' + 10
                : *p >= 'A' && *p <= 'F' ? *p - 'A' + 10
                                         : -1;
    if (digit < 0 && *p != ':' && *p != '.') return 0;
    function = function || *p == '.';
    if (digit >= 0) bus = bus << 4 | (uint64_t)digit;
  }
  return function ? bus : bus << 4;
}

/* Returns the bus id with which a GPU's id ends, "gpu@0000:1b:00.0"; 0: none. */
static uint64_t bus_of(const struct copse_nccl_machine *m, int rank) {
  const char *id = m->topology->nodes[m->topology->rank_nodes[rank]].id, *at = strchr(id, '@');
  return read_bus(at ? at + 1 : "");
}

int copse_nccl_rank_of_bus(const struct copse_nccl_machine *machine, const char *bus) {
  uint64_t wanted = read_bus(bus);
  for (int r = 0; wanted && r < machine->topology->n_ranks; r++)
    if (bus_of(machine, r) == wanted) return r;
  return -1;
}

bool copse_nccl_has_buses(const struct copse_nccl_machine *machine) {
  for (int r = 0; r < machine->topology->n_ranks; r++)
    if (bus_of(machine, r)) return true;
  return false;
}

static int find_bus(const struct copse_nccl_machine *m, int host, uint64_t bus) {
  for (int i = m->first[host]; bus && i < m->first[host + 1]; i++)
    if (bus_of(m, m->members[i]) == bus) return m->members[i];
  return -1;
}

/* Numbers the hosts of the log in order of their first ranks: host [n_ranks]; false where there are
 * others than the machine's, or ranks are missing. */
static bool number_hosts(const struct copse_log_comm *comm, const struct copse_nccl_machine *m,
                         int *host) {
  int hosts = 0;
  if (comm->n_known != comm->n_ranks) return false;
  for (int r = 0; r < comm->n_ranks; r++) {
    int like = r - 1;
    if (comm->ranks[r].rank != r) return false;
    while (like >= 0 && strcmp(comm->ranks[like].host, comm->ranks[r].host) != 0) like--;
    host[r] = like >= 0 ? host[like] : hosts++;
    if (hosts > m->n_hosts) return false;
  }
  return hosts == m->n_hosts;
}

copse_status copse_nccl_place_ranks(const struct copse_log_comm *comm,
                                    const struct copse_nccl_machine *m, int *place, bool *by_bus,
                                    struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  int n = comm->n_ranks, *host;
  bool *taken;
  if (n != m->topology->n_ranks)
    return copse_fail(err, COPSE_INVALID, "the log's communicator has %d ranks, the topology %d", n,
                      m->topology->n_ranks);
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)n, host, err));
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)n, taken, err));
  bool hosts = number_hosts(comm, m, host);
  *by_bus = hosts;
  for (int r = 0; hosts && r < n && *by_bus; r++) {
    place[r] = find_bus(m, host[r], comm->ranks[r].bus);
    *by_bus = place[r] >= 0 && !taken[place[r]];
    if (*by_bus) taken[place[r]] = true;
  }
  if (*by_bus) return COPSE_OK;
  memset(taken, 0, (size_t)n * sizeof *taken);
  bool by_index = hosts;
  for (int r = 0; by_index && r < n; r++) {
    place[r] = copse_nccl_find_rank(m, host[r], (uint64_t)(int64_t)comm->ranks[r].nvml_dev);
    by_index = place[r] >= 0 && !taken[place[r]];
    if (by_index) taken[place[r]] = true;
  }
  for (int r = 0; !by_index && r < n; r++) place[r] = r;
  return COPSE_OK;
}

/* ---- graphs ---------------------------------------------------------------------------------- */

/* Returns which graph a printed pattern is: trees first, then CollNet's chain. */
static int id_of(const struct copse_nccl_graphs *graphs, int pattern) {
  switch (pattern) {
    case COPSE_NCCL_PATTERN_RING: return COPSE_NCCL_RING;
    case COPSE_NCCL_PATTERN_NVLS: return COPSE_NCCL_NVLS;
    case COPSE_NCCL_PATTERN_COLLNET_DIRECT: return COPSE_NCCL_COLLNET_DIRECT;
    default: return graphs->present[COPSE_NCCL_TREE] ? COPSE_NCCL_COLLNET_CHAIN : COPSE_NCCL_TREE;
  }
}

static copse_status read_channel(const struct copse_nccl_machine *m, const int *place,
                                 const struct copse_log_hop *hops, int n, struct copse_arena *arena,
                                 struct copse_nccl_channel *out, bool *good,
                                 struct copse_err *err) {
  COPSE_DO(COPSE_ARRAY(arena, (size_t)n, out->devs, err));
  for (int i = 0; i < n; i++) {
    const struct copse_log_hop *hop = &hops[i];
    int rank = -1;
    if (hop->is_net) {
      uint64_t system = hop->system > 0 ? (uint64_t)hop->system : 0;
      if (out->n_nets < 2) out->nets[out->n_nets++] = copse_nccl_dev(system, hop->id);
      continue;
    }
    if (hop->system >= 0)
      for (int h = 0; h < m->n_hosts && rank < 0; h++) rank = find_bus(m, h, hop->id);
    else if (hop->id < (uint64_t)m->topology->n_ranks)
      rank = place[hop->id];
    *good = *good && rank >= 0;
    if (rank >= 0) out->devs[out->n_gpus++] = m->devs[rank];
  }
  *good = *good && out->n_gpus > 0;
  return COPSE_OK;
}

static copse_status read_graph(const struct copse_nccl_machine *m, const int *place,
                               const struct copse_log_graph *from, struct copse_nccl_graphs *out,
                               struct copse_err *err) {
  int id = id_of(out, from->pattern);
  struct copse_nccl_graph_search graph = {.id = id,
                                          .pattern = from->pattern,
                                          .crossnic = from->crossnic,
                                          .n_channels = from->n_channels,
                                          .speed_intra = from->bw_intra,
                                          .speed_inter = from->bw_inter,
                                          .latency_inter = COPSE_Q_ZERO,
                                          .same_channels = from->same_channels};
  bool good = from->n_listed == from->n_channels;
  (void)copse_nccl_path_from_name(from->type_intra, &graph.type_intra);
  (void)copse_nccl_path_from_name(from->type_inter, &graph.type_inter);
  COPSE_DO(COPSE_ARRAY(&out->arena, (size_t)(good ? from->n_listed : 0), graph.channels, err));
  for (int c = 0; good && c < from->n_listed; c++)
    COPSE_DO(read_channel(m, place, from->channels[c], from->n_hops[c], &out->arena,
                          &graph.channels[c], &good, err));
  if (!good) graph.n_channels = 0;
  out->present[id] = true;
  out->graph[id] = graph;
  return COPSE_OK;
}

copse_status copse_nccl_graphs_of_log(const struct copse_log_comm *comm,
                                      const struct copse_nccl_machine *machine, const int *place,
                                      int host, struct copse_nccl_graphs *out,
                                      struct copse_err *err) {
  *out = (struct copse_nccl_graphs){0};
  int rank = -1;
  for (int i = 0; i < comm->n_graphs && rank < 0; i++) {
    int own = comm->graphs[i].rank;
    bool is = own >= 0 && own < comm->n_ranks;
    if (host < 0 || (is && machine->host_of_rank[place[own]] == host)) rank = own;
  }
  for (int i = 0; i < comm->n_graphs; i++)
    if (rank >= 0 && comm->graphs[i].rank == rank)
      COPSE_DO(read_graph(machine, place, &comm->graphs[i], out, err));
  return COPSE_OK;
}

/* ---- channels -------------------------------------------------------------------------------- */

static struct copse_nccl_role *role(const struct copse_nccl_joined *j, int channel, int rank) {
  return &j->roles[(size_t)channel * (size_t)j->n_ranks + (size_t)rank];
}

/* Counts the rings if all channels 0 to n - 1 have whole ones; else 0. */
static int count_rings(const struct copse_log_comm *comm) {
  for (int i = 0; i < comm->n_rings; i++)
    if (comm->rings[i].channel != i || !comm->rings[i].order) return 0;
  return comm->n_channels > 0 && comm->n_channels != comm->n_rings ? 0 : comm->n_rings;
}

static void read_trees(const struct copse_log_comm *comm, const int *place,
                       struct copse_nccl_joined *j) {
  j->has_tree = comm->n_trees == j->n_channels * j->n_ranks;
  for (int i = 0; j->has_tree && i < comm->n_trees; i++) {
    const struct copse_log_tree *t = &comm->trees[i];
    j->has_tree = t->rank >= 0 && t->rank < j->n_ranks; /* else a damaged line is among them */
    if (!j->has_tree || t->channel < 0 || t->channel >= j->n_channels) continue;
    struct copse_nccl_role *s = role(j, t->channel, place[t->rank]);
    s->up = t->up >= 0 && t->up < j->n_ranks ? place[t->up] : -1;
    for (int d = 0; d < COPSE_NCCL_DOWNS; d++)
      s->down[d] = t->down[d] >= 0 && t->down[d] < j->n_ranks ? place[t->down[d]] : -1;
  }
}

/* Whether it was not set. */
static bool set_port(int *port, int found) {
  bool unset = *port < 0;
  if (unset) *port = found;
  return unset;
}

/* Reads the ports that lines "via NET" name: of a sender towards a receiver, or the other way.
 * Devices of "Socket" are interfaces of the system, not the topology's NICs. */
static void read_ports(const struct copse_log_comm *comm, const struct copse_nccl_machine *m,
                       const int *place, struct copse_nccl_joined *j) {
  for (int i = 0; i < comm->n_edges; i++) {
    const struct copse_log_edge *e = &comm->edges[i];
    bool known = e->via == COPSE_VIA_NET && e->connection <= 0 && e->net_dev >= 0 &&
                 strcmp(e->net, "Socket") != 0 && e->channel >= 0 && e->channel < j->n_channels &&
                 e->src >= 0 && e->dst >= 0 && e->src < j->n_ranks && e->dst < j->n_ranks;
    if (!known) continue;
    int own = place[e->receive ? e->dst : e->src], other = place[e->receive ? e->src : e->dst];
    int port = copse_nccl_find_port(m, m->host_of_rank[own], (uint64_t)e->net_dev);
    struct copse_nccl_role *s = role(j, e->channel, own);
    if (!e->receive && s->next == other) set_port(&s->send_port, port);
    if (e->receive && role(j, e->channel, other)->next == own) set_port(&s->receive_port, port);
    if (s->up == other) set_port(&s->up_port, port);
    for (int d = 0; d < COPSE_NCCL_DOWNS; d++)
      if (s->down[d] == other) set_port(&s->down_port[d], port);
  }
}

/* The ports nearest to a GPU. */
struct near {
  int n, *ports; /* [n] */
};

static copse_status find_near_ports(struct copse_nccl_machine *m, int rank,
                                    struct copse_arena *arena, struct near *near,
                                    struct copse_err *err) {
  const struct copse_nccl_route *route;
  int host = m->host_of_rank[rank], first = m->first_port[host], end = m->first_port[host + 1];
  enum copse_nccl_path best = COPSE_NCCL_PATH_DIS;
  near->n = 0;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)(end - first), near->ports, err));
  for (int p = first; p < end; p++) {
    COPSE_DO(
        copse_nccl_find_route(m, m->topology->rank_nodes[rank], m->ports[p].node, &route, err));
    if (near->n > 0 && route->type > best) continue;
    if (route->type < best) near->n = 0;
    best = route->type;
    near->ports[near->n++] = p;
  }
  return COPSE_OK;
}

static int near_port(const struct near *near, int channel) {
  return near->n > 0 ? near->ports[channel % near->n] : -1;
}

/* Fills in ends of links between hosts without a port: as the graphs have it, else of the nearest
 * [n_ranks]. Returns how many are none of the graphs'. */
static int fill_ports(const struct copse_nccl_machine *m, const struct copse_nccl_joined *graphs,
                      const struct near *near, struct copse_nccl_joined *j) {
  int guessed = 0;
  for (int c = 0; c < j->n_channels; c++)
    for (int r = 0; r < j->n_ranks; r++) {
      struct copse_nccl_role *s = role(j, c, r), *to = role(j, c, s->next);
      int like = graphs->n_channels > 0 ? c % graphs->n_channels : -1, host = m->host_of_rank[r];
      const struct copse_nccl_role *g = like >= 0 ? role(graphs, like, r) : NULL;
      if (m->host_of_rank[s->next] != host) {
        bool same = g && g->next == s->next;
        guessed += set_port(&s->send_port, same ? g->send_port : near_port(&near[r], c)) && !same;
        guessed += set_port(&to->receive_port, same ? role(graphs, like, s->next)->receive_port
                                                    : near_port(&near[s->next], c)) &&
                   !same;
      }
      if (s->up >= 0 && m->host_of_rank[s->up] != host)
        set_port(&s->up_port, g && g->up == s->up ? g->up_port : near_port(&near[r], c));
      for (int d = 0; d < COPSE_NCCL_DOWNS; d++)
        if (s->down[d] >= 0 && m->host_of_rank[s->down[d]] != host)
          set_port(&s->down_port[d],
                   g && g->down[d] == s->down[d] ? g->down_port[d] : near_port(&near[r], c));
    }
  return guessed;
}

/* Reads rings of the log as roles; false where one is no ring of all ranks. */
static bool read_rings(const struct copse_log_comm *comm, const int *place,
                       struct copse_nccl_joined *j) {
  for (int c = 0; c < j->n_channels; c++) {
    const int *order = comm->rings[c].order;
    for (int i = 0; i < j->n_ranks; i++) {
      int from = order[i], to = order[(i + 1) % j->n_ranks];
      if (from < 0 || to < 0 || from >= j->n_ranks || to >= j->n_ranks) return false;
      if (role(j, c, place[from])->next >= 0) return false;
      role(j, c, place[from])->next = place[to];
    }
  }
  return true;
}

static int count_unlike(const struct copse_nccl_joined *a, const struct copse_nccl_joined *b) {
  int unlike = 0;
  for (int c = 0; c < a->n_channels && b->n_channels > 0; c++) {
    bool same = c < b->n_channels;
    for (int r = 0; same && r < a->n_ranks; r++) same = role(a, c, r)->next == role(b, c, r)->next;
    unlike += !same;
  }
  return unlike;
}

/* Makes the graphs of a judge that has none: rings and trees without a speed. */
static copse_status name_graphs(struct copse_nccl_judge *judge, const struct copse_nccl_joined *j,
                                struct copse_err *err) {
  struct copse_nccl_graphs *graphs;
  if (judge->graphs) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(&judge->arena, 1, graphs, err));
  for (int id = COPSE_NCCL_RING; id <= COPSE_NCCL_TREE; id++) {
    graphs->present[id] = id == COPSE_NCCL_RING || j->has_tree;
    graphs->graph[id] = (struct copse_nccl_graph_search){.id = id,
                                                         .n_channels = j->n_channels,
                                                         .speed_intra = COPSE_Q_ZERO,
                                                         .speed_inter = COPSE_Q_ZERO,
                                                         .latency_inter = COPSE_Q_ZERO};
  }
  judge->graphs = graphs;
  return COPSE_OK;
}

copse_status copse_nccl_judge_log(struct copse_nccl_judge *judge, const struct copse_log_comm *comm,
                                  const int *place, bool *used,
                                  struct copse_nccl_log_unlike *unlike, struct copse_err *err) {
  struct copse_nccl_joined j = {.n_ranks = comm->n_ranks,
                                .n_hosts = judge->machine->n_hosts,
                                .n_channels = count_rings(comm),
                                .has_ring = true};
  struct near *near;
  *used = j.n_channels > 0;
  *unlike = (struct copse_nccl_log_unlike){0};
  if (!*used) return COPSE_OK;
  size_t n = (size_t)j.n_channels * (size_t)j.n_ranks;
  COPSE_DO(COPSE_ARRAY(&judge->arena, n, j.roles, err));
  COPSE_DO(COPSE_ARRAY(&judge->arena, (size_t)j.n_ranks, near, err));
  for (int r = 0; r < j.n_ranks; r++)
    COPSE_DO(find_near_ports(judge->machine, r, &judge->arena, &near[r], err));
  for (size_t i = 0; i < n; i++)
    j.roles[i] = (struct copse_nccl_role){-1, -1, -1, -1, {-1, -1, -1}, -1, {-1, -1, -1}};
  *used = read_rings(comm, place, &j);
  if (!*used) return COPSE_OK;
  read_trees(comm, place, &j);
  read_ports(comm, judge->machine, place, &j);
  unlike->guessed = fill_ports(judge->machine, &judge->joined, near, &j);
  unlike->channels = count_unlike(&j, &judge->joined);
  j.n_graph_channels =
      judge->joined.n_graph_channels > 0 ? judge->joined.n_graph_channels : j.n_channels;
  COPSE_DO(name_graphs(judge, &j, err));
  copse_nccl_joined_free(&judge->joined);
  judge->joined = j; /* its roles are the judge's */
  return COPSE_OK;
}
