/*
 * Joins hosts as NCCL does: connectRings, connectTrees and ncclGetDtree of NVIDIA/nccl
 * (src/graph/connect.cc, trees.cc), with the choice of NICs of ncclTopoGetNetDev. The trees are
 * those of Sanders, Speck and Traeff (Parallel Computing 35(12), 2009), by bits of host numbers:
 *
 *   4 hosts:   0 -> 2 -> {1, 3}   and   3 -> 1 -> {0, 2}
 */
#include "nccl/join.h"

#include <inttypes.h>

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

/* The host that stands in the second tree where `host` stands in the first. */
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

static struct copse_nccl_seat *seat(const struct joiner *j, int channel, int rank) {
  return &j->out->seats[(size_t)channel * (size_t)j->out->n_ranks + (size_t)rank];
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

/* The port that a rank uses in a channel: the first NIC where it is the first GPU of its own list,
 * else the second. A file without NICs means NIC 0 to NCCL. */
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

/* The list that a host runs in a channel: with crossnic 2 odd hosts that of the other of two. */
static const int *ring_list(const struct joiner *j, const struct lists *l, int host, int c) {
  bool swaps = l->graph[host]->crossnic == 2 && j->n % 2 == 0 && host % 2 == 1;
  return list_of(j, l, host, swaps ? c ^ 1 : c);
}

static copse_status join_ring(struct joiner *j, const struct lists *l, int channel) {
  int hosts = j->m->n_hosts, c = channel % j->n;
  for (int h = 0; h < hosts; h++) {
    int last = places_of(j, h) - 1;
    const int *list = ring_list(j, l, h, c), *after = ring_list(j, l, (h + 1) % hosts, c);
    for (int i = 0; i < last; i++) seat(j, channel, list[i])->next = list[i + 1];
    seat(j, channel, list[last])->next = after[0];
    if (hosts == 1) continue;
    COPSE_DO(port_of(j, l, channel, list[last], &seat(j, channel, list[last])->send_port));
    COPSE_DO(port_of(j, l, channel, after[0], &seat(j, channel, after[0])->receive_port));
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
  struct copse_nccl_seat *s = seat(j, channel, rank);
  int at = 0;
  while (at + 1 < COPSE_NCCL_DOWNS && s->down[at] >= 0) at++;
  s->down[at] = below;
  if (j->m->host_of_rank[rank] == j->m->host_of_rank[below]) return COPSE_OK;
  return port_of(j, l, channel, rank, &s->down_port[at]);
}

/* A host's chain, and its links to other hosts. */
static copse_status join_tree(struct joiner *j, const struct lists *l, int channel, int host) {
  struct tree_ports ports = tree_ports(j, l, host), above;
  struct copse_nccl_tree_place trees[2];
  int c = channel % j->n;
  const int *list = list_of(j, l, host, c);
  copse_nccl_double_tree(j->m->n_hosts, host, trees);
  const struct copse_nccl_tree_place *place = &trees[channel / j->n % 2];
  for (int i = 0; i + 1 < places_of(j, host); i++) {
    seat(j, channel, list[i + 1])->up = list[i];
    COPSE_DO(add_down(j, l, channel, list[i], list[i + 1]));
  }
  if (place->up >= 0) {
    struct copse_nccl_seat *s = seat(j, channel, list[ports.up]);
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

/* From 2.25 on; sm_90 alone had it before. */
static bool doubles_again(const struct joiner *j, const struct lists *ring) {
  const struct copse_topology *t = j->m->topology;
  if (j->m->n_hosts < 2 || !ring->graph) return false;
  for (int h = 0; h < j->m->n_hosts; h++)
    if (copse_q_cmp(ring->graph[h]->speed_intra, (struct copse_q){45, 1}) <= 0) return false;
  for (int r = 0; r < t->n_ranks; r++)
    if (t->nodes[t->rank_nodes[r]].sm < 90) return false;
  return 2 * j->n < 16;
}

/* A graph in each host, where all have it. Hosts agree on the fewest channels. */
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
  COPSE_DO(COPSE_ARRAY(&out->arena, n, out->seats, j->err));
  for (size_t i = 0; i < n; i++)
    out->seats[i] = (struct copse_nccl_seat){-1, -1, -1, -1, {-1, -1, -1}, -1, {-1, -1, -1}};
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
