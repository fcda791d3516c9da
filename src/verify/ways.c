/*
 * Hosts and ways of a topology, step by step as docs/nccl-rings.md says them: nodes of one prefix
 * are a host, and what NVLink joins; a way grows link by link from its source, and its data are
 * followed back from the destination. Written apart from solver/rings, which it checks.
 */
#include "verify/ways.h"

#include <string.h>

#include "base/graph.h"
#include "topology/route.h"

/* NCCL's path types in its order, those that a host has; ANY: over any GPUs. */
enum type { LOC, NVL, NVB, C2C, PIX, PXB, P2C, PXN, PHB, SYS, ANY, N_TYPES };
/* A GPU at a CPU by more than PCIe has, GB/s, is on C2C. */
#define MOST_PCIE 96

/* All ways from one node, by the places of its host's nodes. */
struct copse_verify_source {
  int *distance[N_TYPES];         /* over this type or better; -1: none. NULL: not computed yet */
  struct copse_q *width[N_TYPES]; /* of the ways that exist */
  struct copse_verify_way **ways; /* the ways asked for so far */
};

static bool is_gpu(const struct copse_topology *t, int node) { return t->nodes[node].rank >= 0; }

static bool is(const struct copse_topology *t, int node, const char *type) {
  return strcmp(t->nodes[node].type, type) == 0;
}

/* ---- hosts ----------------------------------------------------------------------------------- */

static bool is_nvlink(const struct copse_topology *t, const struct copse_link *l) {
  bool a = is_gpu(t, l->src) || is(t, l->src, "gpu"), b = is_gpu(t, l->dst) || is(t, l->dst, "gpu");
  return (a && b) || (a && is(t, l->dst, "nvswitch")) || (b && is(t, l->src, "nvswitch"));
}

/* Labels each node by the first one of its set. */
static void label_sets(int *label, int n) {
  for (int v = 0; v < n; v++) label[v] = copse_sets_find(label, v);
}

/* Sets of nodes: of one prefix, where all GPUs have one, and what NVLink joins. */
static copse_status label_hosts(const struct copse_topology *t, int *label, struct copse_err *err) {
  bool prefixed;
  COPSE_DO(copse_hosts_label(t, label, &prefixed, err));
  for (int v = 0; v < t->n_nodes && !prefixed; v++) label[v] = 0;
  for (int i = 0; i < t->n_links; i++)
    if (is_nvlink(t, &t->links[i])) (void)copse_sets_unite(label, t->links[i].src, t->links[i].dst);
  label_sets(label, t->n_nodes);
  return COPSE_OK;
}

/* Numbers hosts in order of their first ranks, and lists their GPUs. */
static copse_status find_hosts(struct copse_verify_ways *w, int *label, struct copse_err *err) {
  const struct copse_topology *t = w->topology;
  int n = 0;
  for (int v = 0; v < t->n_nodes; v++) w->host[v] = -1;
  for (int r = 0; r < t->n_ranks; r++) {
    int set = label[t->rank_nodes[r]];
    if (w->host[t->rank_nodes[r]] >= 0) continue;
    for (int v = 0; v < t->n_nodes; v++)
      if (label[v] == set) w->host[v] = w->n_hosts;
    w->n_hosts++;
  }
  COPSE_DO(COPSE_ARRAY(&w->arena, (size_t)w->n_hosts + 1, w->first_gpu, err));
  for (int h = 0; h < w->n_hosts; h++) {
    w->first_gpu[h] = n;
    for (int r = 0; r < t->n_ranks; r++)
      if (w->host[t->rank_nodes[r]] == h) w->gpus[n++] = t->rank_nodes[r];
  }
  w->first_gpu[w->n_hosts] = n;
  return COPSE_OK;
}

/* Whether a node is a port of its host: of type "net", in a host without any of type "nic". */
static bool is_port(const struct copse_verify_ways *w, int node, const bool *has_nets) {
  int h = w->host[node];
  return h >= 0 && is(w->topology, node, has_nets[h] ? "net" : "nic");
}

/* Lists NICs with a cable both ways; all of them where no NIC has any, as in one host. */
static copse_status find_nics(struct copse_verify_ways *w, struct copse_arena *scratch,
                              struct copse_err *err) {
  const struct copse_topology *t = w->topology;
  bool *nets, *out, *in, cabled = false;
  int n = 0;
  COPSE_DO(COPSE_ARRAY(scratch, (size_t)w->n_hosts + 1, nets, err));
  COPSE_DO(COPSE_ARRAYS(scratch, (size_t)t->n_nodes, bool, err, &out, &in));
  for (int v = 0; v < t->n_nodes; v++)
    if (w->host[v] >= 0 && is(t, v, "net")) nets[w->host[v]] = true;
  for (int i = 0; i < t->n_links; i++) {
    const struct copse_link *l = &t->links[i];
    if (w->host[l->src] != w->host[l->dst]) out[l->src] = in[l->dst] = true;
  }
  for (int v = 0; v < t->n_nodes; v++) cabled = cabled || (is_port(w, v, nets) && out[v] && in[v]);
  COPSE_DO(COPSE_ARRAY(&w->arena, (size_t)w->n_hosts + 1, w->first_nic, err));
  for (int h = 0; h < w->n_hosts; h++) {
    w->first_nic[h] = n;
    for (int v = 0; v < t->n_nodes; v++)
      if (w->host[v] == h && is_port(w, v, nets) && (!cabled || (out[v] && in[v])))
        w->nics[n++] = v;
  }
  w->first_nic[w->n_hosts] = n;
  return COPSE_OK;
}

/* Whether a node forwards data, as switches do. */
static bool forwards(const struct copse_verify_ways *w, int v) {
  static const char *const ends[] = {"gpu", "cpu", "nic", "net"};
  bool does = w->host[v] < 0;
  for (int i = 0; i < 4; i++) does = does && !is(w->topology, v, ends[i]);
  return does;
}

/* Gives NICs without a switch a rail where cables join them to NICs of all hosts: the first one all
 * of whose NICs they are cabled to, both ways. bad [n_nodes] by rail is all 0. */
static void label_cabled(const struct copse_verify_ways *w, const struct copse_index_map *cables,
                         int *bad) {
  int n = w->first_nic[w->n_hosts];
  for (int i = 0; i < n; i++) {
    int joined = 0, best = w->nics[i];
    if (w->rail[i] >= 0) continue;
    for (int j = 0; j < n; j++) {
      size_t out = 0, in = 0;
      bool both = copse_index_map_next(cables, copse_key_pair(w->nics[i], w->nics[j]), &out) >= 0 &&
                  copse_index_map_next(cables, copse_key_pair(w->nics[j], w->nics[i]), &in) >= 0;
      joined += both;
      if (w->rail[j] >= 0 && !both) bad[w->rail[j]] = i + 1;
    }
    for (int j = n - 1; j >= 0; j--)
      if (w->rail[j] >= 0 && bad[w->rail[j]] != i + 1) best = w->rail[j];
    if (joined >= w->n_hosts - 1) w->rail[i] = best;
  }
}

/* Finds the rails. A rail is of NICs that reach each other without passing a host: on the same
 * switches, of those with most links of NICs, or cabled to each other. */
static copse_status find_rails(struct copse_verify_ways *w, int *label, struct copse_arena *scratch,
                               struct copse_err *err) {
  COPSE_AT_END(copse_index_map_free) struct copse_index_map cables = {0};
  const struct copse_topology *t = w->topology;
  int nics = w->first_nic[w->n_hosts], *place, *on, *bad, *hosts, *last; /* [n_nodes], by rail */
  COPSE_DO(COPSE_ARRAYS(scratch, (size_t)t->n_nodes, int, err, &place, &on, &bad, &hosts, &last));
  COPSE_DO(COPSE_ARRAY(&w->arena, (size_t)nics, w->shared, err));
  COPSE_DO(COPSE_ARRAY(&w->arena, (size_t)nics, w->rail, err));
  copse_sets_init(label, t->n_nodes);
  for (int i = 0; i < nics; i++) {
    w->rail[i] = -1;
    place[w->nics[i]] = i + 1;
  }
  for (int i = 0; i < t->n_links; i++) {
    int a = t->links[i].src, b = t->links[i].dst;
    if (forwards(w, a) && forwards(w, b)) (void)copse_sets_unite(label, a, b);
    if (w->host[a] != w->host[b])
      COPSE_DO(copse_index_map_add(&cables, copse_key_pair(a, b), i, err));
  }
  label_sets(label, t->n_nodes);
  for (int i = 0; i < t->n_links; i++)
    if (place[t->links[i].src] && forwards(w, t->links[i].dst)) on[label[t->links[i].dst]]++;
  for (int i = 0; i < t->n_links; i++) {
    int k = place[t->links[i].src] - 1, set = label[t->links[i].dst];
    if (k < 0 || !forwards(w, t->links[i].dst)) continue;
    int least = w->rail[k] < 0 ? 0 : on[w->rail[k]] + (set > w->rail[k]);
    if (on[set] >= least) w->rail[k] = set;
  }
  label_cabled(w, &cables, bad);
  for (int i = 0; i < nics; i++) {
    int host = w->host[w->nics[i]] + 1;
    if (w->rail[i] < 0) w->rail[i] = w->nics[i];
    if (last[w->rail[i]] != host) hosts[w->rail[i]]++;
    last[w->rail[i]] = host;
  }
  for (int i = 0; i < nics; i++) w->shared[i] = w->n_hosts == 1 || hosts[w->rail[i]] == w->n_hosts;
  return COPSE_OK;
}

/* Numbers nodes in their hosts, and lists the links inside of each. */
static copse_status find_insides(struct copse_verify_ways *w, struct copse_arena *scratch,
                                 struct copse_err *err) {
  const struct copse_topology *t = w->topology;
  int *host; /* [n_links] */
  COPSE_DO(COPSE_ARRAY(scratch, (size_t)t->n_links, host, err));
  COPSE_DO(COPSE_ARRAY(&w->arena, (size_t)w->n_hosts, w->n_local, err));
  for (int v = 0; v < t->n_nodes; v++)
    if (w->host[v] >= 0) w->local[v] = w->n_local[w->host[v]]++;
  for (int i = 0; i < t->n_links; i++) {
    int a = w->host[t->links[i].src], b = w->host[t->links[i].dst];
    host[i] = a == b ? a : -1;
  }
  return copse_adjacency_by(&w->arena, w->n_hosts, t->n_links, host, sizeof *host, &w->inside, err);
}

copse_status copse_verify_ways_open(const struct copse_topology *topology,
                                    struct copse_verify_ways *out, struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  size_t nodes = (size_t)topology->n_nodes;
  int *label;
  *out = (struct copse_verify_ways){.topology = topology};
  COPSE_DO(COPSE_ARRAY(&scratch, nodes, label, err));
  COPSE_DO(
      COPSE_ARRAYS(&out->arena, nodes, int, err, &out->host, &out->gpus, &out->nics, &out->local));
  COPSE_DO(COPSE_ARRAY(&out->arena, nodes, out->sources, err));
  COPSE_DO(label_hosts(topology, label, err));
  COPSE_DO(find_hosts(out, label, err));
  COPSE_DO(COPSE_ARRAY(&out->arena, (size_t)out->n_hosts, out->relays, err));
  COPSE_DO(find_nics(out, &scratch, err));
  COPSE_DO(find_rails(out, label, &scratch, err));
  return find_insides(out, &scratch, err);
}

/* ---- ways from one node ---------------------------------------------------------------------- */

/* Returns the type of a way over this link alone: by what is at its ends. */
static int type_of_link(const struct copse_topology *t, const struct copse_link *l) {
  if (is(t, l->src, "cpu") && is(t, l->dst, "cpu")) return SYS;
  if (is(t, l->src, "cpu") || is(t, l->dst, "cpu")) {
    bool wide = copse_q_cmp(l->bandwidth, (struct copse_q){MOST_PCIE, 1}) > 0;
    return wide && (is_gpu(t, l->src) || is_gpu(t, l->dst)) ? C2C : PHB;
  }
  if (is(t, l->src, "pcie") && is(t, l->dst, "pcie")) return PXB;
  return is(t, l->src, "pcie") || is(t, l->dst, "pcie") ? PIX : NVL;
}

/* Whether a way from `from` may go on over a link, so far away, by links of a type or better: over
 * GPUs only in NVLink and over one, unless any may relay. */
static bool may_go(const struct copse_topology *t, int from, const struct copse_link *l,
                   int distance, int type) {
  if (type_of_link(t, l) > type) return false;
  if (l->src == from || !is_gpu(t, l->src) || type == ANY) return true;
  return type >= NVB && distance == 1 && is_gpu(t, from) && is_gpu(t, l->dst);
}

static struct copse_q least(struct copse_q a, struct copse_q b) {
  return copse_q_cmp(b, a) < 0 ? b : a;
}

/* Spreads from the source over the host's links, one link further in every round. */
static void spread(const struct copse_verify_ways *w, int from, int type, int *distance,
                   struct copse_q *width) {
  const struct copse_topology *t = w->topology;
  int host = w->host[from];
  for (int v = 0; v < w->n_local[host]; v++) distance[v] = -1;
  distance[w->local[from]] = 0;
  width[w->local[from]] = (struct copse_q){INT64_MAX, 1};
  bool more = true;
  for (int d = 0; more; d++) {
    more = false;
    for (int i = w->inside.first[host]; i < w->inside.first[host + 1]; i++) {
      const struct copse_link *l = &t->links[w->inside.item[i]];
      int a = w->local[l->src], b = w->local[l->dst];
      bool there = distance[b] >= 0 && distance[b] <= d;
      if (distance[a] != d || there || !may_go(t, from, l, d, type)) continue;
      struct copse_q wide = least(width[a], l->bandwidth);
      if (distance[b] < 0 || copse_q_cmp(wide, width[b]) > 0) width[b] = wide;
      distance[b] = d + 1;
      more = true;
    }
  }
}

static copse_status find_source(struct copse_verify_ways *w, int from,
                                struct copse_verify_source **out, struct copse_err *err) {
  size_t nodes = (size_t)w->n_local[w->host[from]];
  struct copse_verify_source *s = w->sources[from];
  *out = s;
  if (s) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(&w->arena, 1, s, err));
  COPSE_DO(COPSE_ARRAY(&w->arena, nodes, s->ways, err));
  *out = w->sources[from] = s;
  return COPSE_OK;
}

/* Finds the best type of a way from the source to a place of its host; N_TYPES: there is none. */
static copse_status find_type(struct copse_verify_ways *w, int from, int place,
                              struct copse_verify_source *s, int *type, struct copse_err *err) {
  size_t nodes = (size_t)w->n_local[w->host[from]];
  for (*type = LOC; *type < N_TYPES; ++*type) {
    if (!s->distance[*type]) {
      COPSE_DO(COPSE_ARRAY(&w->arena, nodes, s->width[*type], err));
      COPSE_DO(COPSE_ARRAY(&w->arena, nodes, s->distance[*type], err));
      spread(w, from, *type, s->distance[*type], s->width[*type]);
    }
    if (s->distance[*type][place] >= 0) break;
  }
  return COPSE_OK;
}

/* ---- one way --------------------------------------------------------------------------------- */

struct trace {
  const struct copse_verify_ways *w;
  const struct copse_verify_source *source;
  int from, to, type;
  struct copse_verify_way *way;
};

/* Whether a link is the last one of a best way to its end. */
static bool is_last(const struct trace *r, int link) {
  const struct copse_topology *t = r->w->topology;
  const struct copse_link *l = &t->links[link];
  const int *distance = r->source->distance[r->type];
  const struct copse_q *width = r->source->width[r->type];
  int a = r->w->local[l->src], b = r->w->local[l->dst];
  return distance[a] >= 0 && distance[a] + 1 == distance[b] &&
         may_go(t, r->from, l, distance[a], r->type) &&
         copse_q_eq(least(width[a], l->bandwidth), width[b]);
}

/* Whether a GPU that relays is taken before another: by the link to it from where the way ends,
 * which is wider, or as wide and comes first. */
static bool is_before(const struct trace *r, int link, int other) {
  const struct copse_link *links = r->w->topology->links;
  struct copse_q widest[2] = {COPSE_Q_ZERO, COPSE_Q_ZERO};
  int at[2] = {-1, -1};
  for (int i = 0; i < r->w->topology->n_links; i++)
    for (int k = 0; k < 2; k++) {
      const struct copse_link *into = &links[k == 0 ? link : other];
      if (links[i].src != into->dst || links[i].dst != into->src ||
          copse_q_cmp(links[i].bandwidth, widest[k]) <= 0)
        continue;
      widest[k] = links[i].bandwidth;
      at[k] = i;
    }
  int order = copse_q_cmp(widest[0], widest[1]);
  return order > 0 || (order == 0 && at[0] < at[1]);
}

/* Follows the links by which a node's part comes: all the best alike, or over one GPU alone. */
static copse_status follow_back(const struct trace *r, int place, struct copse_q *part,
                                struct copse_err *err) {
  const struct copse_topology *t = r->w->topology;
  const struct copse_adjacency *inside = &r->w->inside;
  struct copse_verify_way *way = r->way;
  int first = way->n, relay = -1, host = r->w->host[r->from];
  for (int k = inside->first[host]; k < inside->first[host + 1]; k++) {
    int i = inside->item[k], source = t->links[i].src;
    if (r->w->local[t->links[i].dst] != place || !is_last(r, i)) continue;
    if (source != r->from && is_gpu(t, source) && (relay < 0 || is_before(r, i, relay))) relay = i;
    way->links[way->n++] = i;
  }
  if (relay >= 0) {
    way->links[first] = relay;
    way->n = first + 1;
  }
  struct copse_q each;
  COPSE_DO(copse_q_div(part[place], (struct copse_q){way->n - first, 1}, &each, err));
  for (int i = first; i < way->n; i++) {
    struct copse_q *source = &part[r->w->local[t->links[way->links[i]].src]];
    way->parts[i] = each;
    COPSE_DO(copse_q_add(*source, each, source, err));
  }
  return COPSE_OK;
}

/* Finds the type by the nodes between the ends, along the first links. */
static int type_of(const struct trace *r) {
  const struct copse_topology *t = r->w->topology;
  int cpus = 0, bridges = 0, gpus = 0, node = r->to;
  bool c2c = false, between_gpus = is_gpu(t, r->from) && is_gpu(t, r->to);
  for (int i = 0; i < r->way->n && node != r->from; i++) {
    const struct copse_link *l = &t->links[r->way->links[i]];
    if (l->dst != node) continue;
    bool at_cpu =
        (is(t, l->src, "cpu") && is_gpu(t, l->dst)) || (is(t, l->dst, "cpu") && is_gpu(t, l->src));
    c2c = c2c || (at_cpu && copse_q_cmp(l->bandwidth, (struct copse_q){MOST_PCIE, 1}) > 0);
    node = l->src;
    if (node == r->from) break;
    cpus += is(t, node, "cpu");
    bridges += is(t, node, "pcie");
    gpus += is_gpu(t, node);
  }
  if (cpus > 1) return SYS;
  if (cpus == 1) return c2c && !between_gpus ? P2C : PHB;
  if (between_gpus && bridges == 0) return gpus > 0 ? NVB : NVL;
  if (gpus > 0) return PXN;
  return bridges > 1 ? PXB : PIX;
}

static copse_status trace(struct copse_verify_ways *w, const struct trace *r,
                          struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct copse_verify_way *way = r->way, found;
  const int *distance = r->source->distance[r->type];
  int host = w->host[r->from], nodes = w->n_local[host], to = w->local[r->to];
  size_t links = (size_t)(w->inside.first[host + 1] - w->inside.first[host]);
  struct copse_q *part;
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)nodes, part, err));
  COPSE_DO(COPSE_ARRAY(&scratch, links, way->links, err));
  COPSE_DO(COPSE_ARRAY(&scratch, links, way->parts, err));
  for (int v = 0; v < nodes; v++) part[v] = COPSE_Q_ZERO;
  part[to] = COPSE_Q_ONE;
  for (int d = distance[to]; d > 0; d--)
    for (int v = 0; v < nodes; v++)
      if (distance[v] == d && part[v].num > 0) COPSE_DO(follow_back(r, v, part, err));
  way->type = type_of(r);
  way->width = r->source->width[r->type][to];
  found = *way;
  COPSE_DO(COPSE_ARRAY(&w->arena, (size_t)way->n, way->links, err));
  COPSE_DO(COPSE_ARRAY(&w->arena, (size_t)way->n, way->parts, err));
  memcpy(way->links, found.links, (size_t)way->n * sizeof *way->links);
  memcpy(way->parts, found.parts, (size_t)way->n * sizeof *way->parts);
  return COPSE_OK;
}

static bool is_nic(const struct copse_verify_ways *w, int node) {
  int host = w->host[node];
  for (int i = w->first_nic[host]; i < w->first_nic[host + 1]; i++)
    if (w->nics[i] == node) return true;
  return false;
}

/* Whether a GPU's data must pass the memory of its CPU, as its NIC or itself has no GPUDirect. */
static bool is_staged(const struct copse_verify_ways *w, int gpu, int nic, int type) {
  const struct copse_node *nodes = w->topology->nodes;
  return type < PHB && is_gpu(w->topology, gpu) && is_nic(w, nic) &&
         (nodes[gpu].no_gdr || nodes[nic].no_gdr);
}

/* Finds the CPU that a GPU gets most data to, of these the nearest and first. */
static copse_status find_own_cpu(struct copse_verify_ways *w, int gpu, int *cpu,
                                 struct copse_err *err) {
  const struct copse_verify_way *best = NULL;
  *cpu = -1;
  for (int v = 0; v < w->topology->n_nodes; v++) {
    const struct copse_verify_way *way;
    if (w->host[v] != w->host[gpu] || !is(w->topology, v, "cpu")) continue;
    COPSE_DO(copse_verify_find_way(w, gpu, v, &way, err));
    bool wide = best && copse_q_eq(way->width, best->width);
    if (best && !wide && copse_q_cmp(way->width, best->width) < 0) continue;
    if (wide && (way->type > best->type || way->n >= best->n)) continue;
    best = way;
    *cpu = v;
  }
  return COPSE_OK;
}

/* Lays a way over the memory: one part to the GPU's CPU and one from it. */
static copse_status stage(struct copse_verify_ways *w, int from, int to,
                          struct copse_verify_way *way, struct copse_err *err) {
  const struct copse_verify_way *part[2];
  int cpu, gpu_end = is_gpu(w->topology, from) ? 0 : 1, n = 0;
  COPSE_DO(find_own_cpu(w, gpu_end == 0 ? from : to, &cpu, err));
  if (cpu < 0) return COPSE_OK;
  COPSE_DO(copse_verify_find_way(w, from, cpu, &part[0], err));
  COPSE_DO(copse_verify_find_way(w, cpu, to, &part[1], err));
  way->n = part[0]->n + part[1]->n;
  COPSE_DO(COPSE_ARRAY(&w->arena, (size_t)way->n, way->links, err));
  COPSE_DO(COPSE_ARRAY(&w->arena, (size_t)way->n, way->parts, err));
  for (int k = 0; k < 2; k++)
    for (int i = 0; i < part[k]->n; i++, n++) {
      way->links[n] = part[k]->links[i];
      way->parts[n] = part[k]->parts[i];
    }
  way->width = least(part[0]->width, part[1]->width);
  bool c2c = copse_q_cmp(part[gpu_end]->width, (struct copse_q){MOST_PCIE, 1}) > 0;
  way->type = c2c ? P2C : PHB;
  return COPSE_OK;
}

/* Changes P2C where a GPU has a nearer NIC. P2C is only for a NIC where the GPU has no other that
 * is wider, or as wide over better links. */
static copse_status doubt_p2c(struct copse_verify_ways *w, int gpu, int nic,
                              struct copse_verify_way *way, struct copse_err *err) {
  int host = w->host[gpu], type, own;
  struct copse_verify_source *s;
  if (way->type != P2C || !is_gpu(w->topology, gpu) || !is_nic(w, nic)) return COPSE_OK;
  COPSE_DO(find_source(w, gpu, &s, err));
  COPSE_DO(find_type(w, gpu, w->local[nic], s, &own, err));
  for (int i = w->first_nic[host]; own < ANY && i < w->first_nic[host + 1]; i++) {
    int at = w->local[w->nics[i]];
    COPSE_DO(find_type(w, gpu, at, s, &type, err));
    if (type >= ANY) continue;
    int order = copse_q_cmp(s->width[type][at], s->width[own][w->local[nic]]);
    if (order > 0 || (order == 0 && type < own)) way->type = PHB;
  }
  return COPSE_OK;
}

copse_status copse_verify_find_way(struct copse_verify_ways *w, int from, int to,
                                   const struct copse_verify_way **out, struct copse_err *err) {
  struct copse_verify_source *s;
  int at = w->local[to], type;
  COPSE_DO(find_source(w, from, &s, err));
  *out = s->ways[at];
  if (*out) return COPSE_OK;
  COPSE_DO(find_type(w, from, at, s, &type, err));
  if (type == N_TYPES)
    return copse_fail(err, COPSE_REFUTED, "%s: no way from %s to %s inside of their host",
                      w->topology->name, w->topology->nodes[from].id, w->topology->nodes[to].id);
  struct copse_verify_way *way;
  COPSE_DO(COPSE_ARRAY(&w->arena, 1, way, err));
  *way = (struct copse_verify_way){.type = LOC, .width = {INT64_MAX, 1}};
  const struct trace r = {w, s, from, to, type, way};
  if (from != to) COPSE_DO(trace(w, &r, err));
  if (type < ANY) {
    COPSE_DO(doubt_p2c(w, from, to, way, err));
    COPSE_DO(doubt_p2c(w, to, from, way, err));
  }
  if (is_staged(w, from, to, way->type) || is_staged(w, to, from, way->type))
    COPSE_DO(stage(w, from, to, way, err));
  *out = s->ways[at] = way;
  return COPSE_OK;
}

/* ---- out over another GPU -------------------------------------------------------------------- */

/* The type of a way as NCCL sees it when it looks for relays; one worse than all types: no way. */
struct glance {
  struct copse_q width;
  int type;
};

/* A host's ways between GPUs (g of n) and NICs (k of nics), at g * nics + k. */
struct view {
  struct copse_verify_ways *w;
  int host, n, nics;
  struct glance *out, *in;
  struct glance *best_out, *best_in; /* [n], [nics] the nearest of each */
};

static copse_status look(struct copse_verify_ways *w, int from, int to, struct glance *glance,
                         struct copse_err *err) {
  const struct copse_verify_way *way;
  struct copse_err none = COPSE_ERR_INIT;
  copse_status status = copse_verify_find_way(w, from, to, &way, &none);
  *glance = (struct glance){COPSE_Q_ZERO, N_TYPES};
  if (status == COPSE_OK) *glance = (struct glance){way->width, way->type};
  if (status == COPSE_OK || status == COPSE_REFUTED) return COPSE_OK;
  return copse_fail(err, status, "%s", none.text);
}

/* Whether a is more local than b: wider, or as wide and of a better type. */
static bool is_nearer(struct glance a, struct glance b) {
  int order = copse_q_cmp(a.width, b.width);
  return order > 0 || (order == 0 && a.type < b.type);
}

/* Whether no NIC is nearer to a GPU than this one; and no GPU to a NIC. */
static bool is_nic_local(const struct view *v, int g, int k) {
  struct glance own = v->out[g * v->nics + k];
  return own.type < N_TYPES && !is_nearer(v->best_out[g], own);
}

static bool is_gpu_local(const struct view *v, int g, int k) {
  struct glance own = v->in[g * v->nics + k];
  return own.type < N_TYPES && !is_nearer(v->best_in[k], own);
}

/* Returns NVML's index, as NCCL's XML has it; where one GPU of the host has none, its place. */
static int index_of(const struct view *v, int g) {
  const struct copse_verify_ways *w = v->w;
  const int *gpus = w->gpus + w->first_gpu[v->host];
  bool all = true;
  for (int i = 0; i < v->n; i++) all = all && w->topology->nodes[gpus[i]].has_dev;
  return all ? (int)(w->topology->nodes[gpus[g]].dev & INT32_MAX) : g;
}

/* Returns the NIC of a GPU's n-th channel: GPUs that share NICs start at different ones (bits
 * mirrored where the NICs are a power of two), and go through as many as each has. -1: it has
 * none. */
static int nic_of(const struct view *v, int g, int channel) {
  int mine = 0, first = -1, sharers = 0;
  for (int k = v->nics - 1; k >= 0; k--)
    if (is_nic_local(v, g, k)) mine++, first = k;
  for (int i = 0; first >= 0 && i < v->n; i++) sharers += is_gpu_local(v, i, first);
  if (sharers == 0) return -1;
  int start = index_of(v, g) % sharers, bits = 0;
  while (1 << bits < mine) bits++;
  if (1 << bits == mine) {
    int turned = 0;
    for (int b = 0; b < bits; b++) turned |= (start >> b & 1) << (bits - 1 - b);
    start = turned;
  }
  int skip = (start + channel % ((mine + sharers - 1) / sharers)) % mine;
  for (int k = first; k < v->nics; k++)
    if (is_nic_local(v, g, k) && skip-- == 0) return k;
  return -1;
}

/* Returns the GPU to which a NIC belongs: the nearest that has it in its first channels, of 64;
 * NICs repeat. */
static int owner_of(const struct view *v, int k) {
  for (int channel = 0; channel < 64 && channel < v->nics; channel++)
    for (int g = 0; g < v->n; g++)
      if (is_gpu_local(v, g, k) && nic_of(v, g, channel) == k) return g;
  return -1;
}

/* Whether GPU g reaches NIC k by way of GPU o, and then how well. */
static copse_status may_relay(struct view *v, int g, int o, int k, bool *may,
                              struct copse_err *err) {
  struct copse_verify_ways *w = v->w;
  const struct copse_node *nodes = w->topology->nodes;
  int from = w->gpus[w->first_gpu[v->host] + g], over = w->gpus[w->first_gpu[v->host] + o];
  struct glance there, back, *own = &v->out[g * v->nics + k], last = v->out[o * v->nics + k];
  bool direct = !nodes[over].no_gdr && !nodes[w->nics[w->first_nic[v->host] + k]].no_gdr;
  COPSE_DO(look(w, from, over, &there, err));
  COPSE_DO(look(w, over, from, &back, err));
  *may = direct && there.type < N_TYPES && back.type <= NVL && last.type <= P2C &&
         copse_verify_tray(w, from) == copse_verify_tray(w, over) &&
         (own->type > PXN || copse_q_cmp(last.width, own->width) > 0);
  if (!*may) return COPSE_OK;
  *own = (struct glance){least(there.width, last.width), PXN};
  v->best_out[g] = v->out[g * v->nics];
  for (int i = 0; i < v->nics; i++)
    if (is_nearer(v->out[g * v->nics + i], v->best_out[g]))
      v->best_out[g] = v->out[g * v->nics + i];
  return COPSE_OK;
}

/* Finds relays NIC after NIC, GPU after GPU: what is found counts for the next. */
static copse_status find_relays(struct copse_verify_ways *w, int host, struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct view v = {w, host, w->first_gpu[host + 1] - w->first_gpu[host],
                   w->first_nic[host + 1] - w->first_nic[host], NULL, NULL, NULL, NULL};
  size_t pairs = (size_t)v.n * (size_t)v.nics;
  int *relay;
  COPSE_DO(COPSE_ARRAYS(&scratch, pairs, struct glance, err, &v.out, &v.in));
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)v.n, v.best_out, err));
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)v.nics, v.best_in, err));
  COPSE_DO(COPSE_ARRAY(&w->arena, pairs, relay, err));
  for (int i = 0; i < (int)pairs; i++) {
    int gpu = w->gpus[w->first_gpu[host] + i / v.nics],
        nic = w->nics[w->first_nic[host] + i % v.nics];
    COPSE_DO(look(w, gpu, nic, &v.out[i], err));
    COPSE_DO(look(w, nic, gpu, &v.in[i], err));
    struct glance *row = &v.best_out[i / v.nics], *column = &v.best_in[i % v.nics];
    if (i % v.nics == 0 || is_nearer(v.out[i], *row)) *row = v.out[i];
    if (i / v.nics == 0 || is_nearer(v.in[i], *column)) *column = v.in[i];
  }
  for (int k = 0; k < v.nics; k++)
    for (int g = 0, owner = -1; g < v.n; g++) {
      bool may = g > 0 && relay[(g - 1) * v.nics + k] < 0; /* then nothing has changed */
      if (!may) owner = owner_of(&v, k);
      may = false;
      if (owner >= 0 && owner != g) COPSE_DO(may_relay(&v, g, owner, k, &may, err));
      relay[g * v.nics + k] = may ? w->gpus[w->first_gpu[host] + owner] : -1;
    }
  w->relays[host] = relay;
  return COPSE_OK;
}

copse_status copse_verify_find_way_out(struct copse_verify_ways *w, int gpu, int nic,
                                       const struct copse_verify_way **first,
                                       const struct copse_verify_way **last,
                                       struct copse_err *err) {
  int host = w->host[nic], g = w->first_gpu[host], k = w->first_nic[host];
  *first = NULL;
  COPSE_DO(copse_verify_find_way(w, gpu, nic, last, err));
  if (!w->relays[host]) COPSE_DO(find_relays(w, host, err));
  while (w->gpus[g] != gpu) g++;
  while (w->nics[k] != nic) k++;
  g -= w->first_gpu[host];
  int over =
      w->relays[host][g * (w->first_nic[host + 1] - w->first_nic[host]) + k - w->first_nic[host]];
  if (over < 0) return COPSE_OK;
  COPSE_DO(copse_verify_find_way(w, gpu, over, first, err));
  return copse_verify_find_way(w, over, nic, last, err);
}
