/*
 * A topology, and the builder that every reader makes one with. The builder collects nodes and
 * links with their lines and checks them the same way for all formats; what it has filled becomes
 * an immutable graph:
 *
 *   reader --add_node, add_link--> builder --finish--> struct box { view | nodes, links | indices }
 *                                                                   ^ what everybody sees
 *
 * Links are found by (src, dst) in a list sorted by both, nodes by their ids in a hash map.
 */
#include "topology/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/graph.h"
#include "base/text.h"

/* `view` comes first: a pointer to it is a pointer to the whole. */
struct box {
  struct copse_topology view;
  struct copse_node *nodes;
  struct copse_link *links;
  struct copse_stated_route *routes;
  struct copse_adjacency out; /* links by their source, then by their destination */
  int *dsts;                  /* [n_links] where those go */
  struct copse_index_map ids;
  struct copse_arena arena; /* strings, indices, rank_nodes */
};

static inline const struct box *box_of(const struct copse_topology *topology) {
  return (const struct box *)topology;
}

void copse_topology_free(struct copse_topology *topology) {
  if (!topology) return;
  struct box *box = (struct box *)topology;
  free(box->nodes);
  free(box->links);
  free(box->routes);
  copse_index_map_free(&box->ids);
  copse_arena_free(&box->arena);
  free(box);
}

int copse_topology_find(const struct copse_topology *topology, const char *id) {
  const struct box *box = box_of(topology);
  return copse_index_map_find(&box->ids, id, box->nodes, sizeof *box->nodes,
                              offsetof(struct copse_node, id));
}

bool copse_topology_has_ranks_of(const struct copse_topology *topology,
                                 const struct copse_topology *other) {
  const struct copse_topology *t = topology;
  bool same = t->n_ranks == other->n_ranks;
  for (int r = 0; r < t->n_ranks && same; r++)
    same = strcmp(t->nodes[t->rank_nodes[r]].id, other->nodes[other->rank_nodes[r]].id) == 0;
  return same;
}

size_t copse_host_prefix(const char *id, int *host) {
  int64_t number = 0;
  size_t n = 1;
  for (; id[0] == 'h' && id[n] >= '0' && id[n] <= '9'; n++)
    if (number <= COPSE_TOPOLOGY_MAX_NODES) number = number * 10 + (id[n] - '0');
  bool good = n > 1 && id[n] == '.';
  if (host) *host = good && number <= COPSE_TOPOLOGY_MAX_NODES ? (int)number : -1;
  return good ? n + 1 : 0;
}

int copse_topology_find_link(const struct copse_topology *topology, int src, int dst) {
  const struct box *box = box_of(topology);
  if (src < 0 || src >= topology->n_nodes) return -1;
  int low = box->out.first[src], high = box->out.first[src + 1] - 1;
  while (low <= high) {
    int middle = low + (high - low) / 2, at = box->dsts[middle];
    if (at == dst) return box->out.item[middle];
    if (at < dst)
      low = middle + 1;
    else
      high = middle - 1;
  }
  return -1;
}

COPSE_ORDER(by_ends, struct copse_stated_route, COPSE_UP(src) ?: COPSE_UP(dst))

const struct copse_stated_route *copse_topology_route(const struct copse_topology *topology,
                                                      int src, int dst) {
  const struct copse_stated_route key = {.src = src, .dst = dst};
  if (topology->n_routes == 0) return NULL;
  return bsearch(&key, topology->routes, (size_t)topology->n_routes, sizeof key, by_ends);
}

/* Names a node: "rank 1 (b)"; one that is no rank by its name alone. */
static const char *name_end(const struct copse_topology *topology, int node, char *text,
                            size_t size) {
  const struct copse_node *n = &topology->nodes[node];
  if (n->rank < 0) return n->id;
  snprintf(text, size, "rank %d (%.100s)", n->rank, n->id);
  return text;
}

copse_status copse_topology_refuse_unreached(const struct copse_topology *topology,
                                             const char *label, int from, int to, const char *how,
                                             struct copse_err *err) {
  char ends[2][128];
  return copse_fail_at(err, COPSE_INFEASIBLE, label, 0,
                       "%s can't be reached from %s%s: add links that lead there, or leave one of "
                       "them out",
                       name_end(topology, to, ends[0], sizeof ends[0]),
                       name_end(topology, from, ends[1], sizeof ends[1]), how);
}

copse_status copse_topology_find_unbalanced(const struct copse_topology *topology, int *node,
                                            struct copse_q *in, struct copse_q *out,
                                            struct copse_err *err) {
  struct sums {
    struct copse_q in, out;
  };
  COPSE_AT_END(copse_free_at) struct sums *sums = NULL;
  int n = topology->n_nodes;
  *node = -1;
  COPSE_DO(copse_calloc((size_t)n, sizeof *sums, &sums, err));
  for (int i = 0; i < n; i++) sums[i] = (struct sums){COPSE_Q_ZERO, COPSE_Q_ZERO};
  for (int i = 0; i < topology->n_links; i++) {
    const struct copse_link *link = &topology->links[i];
    struct copse_q *out_of = &sums[link->src].out, *into = &sums[link->dst].in;
    COPSE_DO(copse_q_add(*out_of, link->bandwidth, out_of, err));
    COPSE_DO(copse_q_add(*into, link->bandwidth, into, err));
  }
  for (int i = 0; i < n && *node < 0; i++) {
    if (topology->nodes[i].rank >= 0 || copse_q_eq(sums[i].in, sums[i].out)) continue;
    *node = i;
    if (in) *in = sums[i].in;
    if (out) *out = sums[i].out;
  }
  return COPSE_OK;
}

const char *copse_guess_reason(enum copse_guess guess) {
  static const char *const reasons[] = {
      [COPSE_GUESS_NONE] = "stated",
      [COPSE_GUESS_SOCKETS] = "NCCL's constant for such CPUs",
      [COPSE_GUESS_SPEED] = "PCIe Gen3, as the file names no speed that is known",
      [COPSE_GUESS_PORT] = "10 Gb/s, as the file names no speed of the port",
      [COPSE_GUESS_CLASS] = "the usual one of hosts with such GPUs"};
  return reasons[guess];
}

const char *copse_guess_remedy(enum copse_guess guess) {
  static const char *const remedies[] = {
      [COPSE_GUESS_NONE] = "",
      [COPSE_GUESS_SOCKETS] =
          "sendrecv_perf of nccl-tests between GPUs of both sockets, all pairs at once; \"rates\": "
          "{\"inter_cpu\": GB/s} of a --profile",
      [COPSE_GUESS_SPEED] = "lspci -vv (LnkSta); link_speed in the file",
      [COPSE_GUESS_PORT] = "ibstat or ethtool; speed=\"Mb/s\" in the file",
      [COPSE_GUESS_CLASS] = "nvbandwidth; --profile with its output, or --gpu CLASS"};
  return remedies[guess];
}

#define refuse(builder, line, ...) \
  copse_fail_at(err, COPSE_BAD_INPUT, (builder)->file, line, __VA_ARGS__)

struct copse_topology_builder {
  const char *file;
  struct box *box;  /* nodes with ranks as stated, -1 if not; name NULL: the file's stem */
  long *node_lines; /* [n_nodes] */
  size_t node_capacity, line_capacity, link_capacity, route_capacity;
  struct copse_index_map pairs;
};

copse_status copse_builder_new(const char *file, struct copse_topology_builder **out,
                               struct copse_err *err) {
  *out = NULL;
  COPSE_DO(copse_calloc(1, sizeof **out, out, err));
  (*out)->file = file;
  return copse_calloc(1, sizeof *(*out)->box, &(*out)->box, err);
}

void copse_builder_free(struct copse_topology_builder *builder) {
  if (!builder) return;
  copse_topology_free((struct copse_topology *)builder->box);
  free(builder->node_lines);
  copse_index_map_free(&builder->pairs);
  free(builder);
}

copse_status copse_builder_set_name(struct copse_topology_builder *builder, const char *name,
                                    struct copse_err *err) {
  struct box *box = builder->box;
  if (!copse_text_prints(name))
    return refuse(builder, 0,
                  "the name \"%.80s\" holds a control character or is no UTF-8; it could "
                  "not be read back",
                  name);
  return copse_arena_text(&box->arena, name, &box->view.name, err);
}

static copse_status keep_line(struct copse_topology_builder *builder, const char *text,
                              const char **out, struct copse_err *err) {
  if (!text) return COPSE_OK;
  char *copy = copse_arena_strdup(&builder->box->arena, text);
  if (!copy) return copse_fail_nomem(err);
  for (char *p = copy; *p; p++)
    if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = ' ';
  *out = copy;
  return COPSE_OK;
}

copse_status copse_builder_set_about(struct copse_topology_builder *builder,
                                     const char *description, const char *source,
                                     struct copse_err *err) {
  COPSE_DO(keep_line(builder, description, &builder->box->view.description, err));
  return keep_line(builder, source, &builder->box->view.source, err);
}

/* Names the topology after its file: "dir/dgx-a100.xml" is "dgx-a100". Control characters could not
 * be read back. */
static copse_status name_after_file(struct copse_topology_builder *builder, struct copse_err *err) {
  const char *slash = strrchr(builder->file, '/');
  char *stem = copse_arena_strdup(&builder->box->arena, slash ? slash + 1 : builder->file);
  if (!stem) return copse_fail_nomem(err);
  char *dot = strrchr(stem, '.');
  if (dot && dot != stem) *dot = '\0';
  for (char *p = stem; !copse_text_prints(stem) && *p; p++)
    if ((unsigned char)*p < 0x20 || (unsigned char)*p >= 0x7f) *p = '_';
  builder->box->view.name = strcmp(stem, "<stdin>") == 0 ? "stdin" : stem;
  return COPSE_OK;
}

int copse_builder_find(const struct copse_topology_builder *builder, const char *id) {
  return copse_topology_find(&builder->box->view, id);
}

static copse_status check_node(const struct copse_topology_builder *builder, long line,
                               const struct copse_node *node, struct copse_err *err) {
  if (!node->id[0]) return refuse(builder, line, "a node's id is empty; each needs one of its own");
  if (!node->type[0])
    return refuse(builder, line,
                  "the type of node \"%.80s\" is empty; \"gpu\" is a rank, others relay", node->id);
  if (!copse_text_prints(node->id) || !copse_text_prints(node->type))
    return refuse(builder, line,
                  "the id \"%.80s\" or its type holds a control character or is no UTF-8; "
                  "it could not be read back",
                  node->id);
  int twin = copse_builder_find(builder, node->id);
  if (twin >= 0)
    return refuse(builder, line, "node id \"%.80s\" twice (first on line %ld); ids must be unique",
                  node->id, builder->node_lines[twin]);
  if (node->rank >= 0 && strcmp(node->type, "gpu") != 0)
    return refuse(builder, line, "node \"%.80s\" of type \"%.40s\" has a rank; only a gpu can",
                  node->id, node->type);
  if (builder->box->view.n_nodes >= COPSE_TOPOLOGY_MAX_NODES)
    return refuse(builder, line, "more than %d nodes, the most a topology can have",
                  COPSE_TOPOLOGY_MAX_NODES);
  return COPSE_OK;
}

/* Copies a type; the few that are usual are shared, so that a large cluster doesn't hold one per
 * node. */
static const char *copy_type(struct copse_arena *arena, const char *type) {
  static const char *const usual[] = {"gpu", "nvswitch", "pcie", "cpu", "nic", "switch", "net"};
  for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
    if (strcmp(usual[i], type) == 0) return usual[i];
  return copse_arena_strdup(arena, type);
}

copse_status copse_builder_add_node(struct copse_topology_builder *builder, long line,
                                    const struct copse_node *node, int *index,
                                    struct copse_err *err) {
  struct box *box = builder->box;
  size_t n = (size_t)box->view.n_nodes;
  COPSE_DO(check_node(builder, line, node, err));
  COPSE_DO(COPSE_GROW(box->nodes, builder->node_capacity, n + 1, err));
  COPSE_DO(COPSE_GROW(builder->node_lines, builder->line_capacity, n + 1, err));
  struct copse_node copy = *node;
  copy.id = copse_arena_strdup(&box->arena, node->id);
  copy.type = copy_type(&box->arena, node->type);
  if (!copy.id || !copy.type) return copse_fail_nomem(err);
  if (copy.rank < 0) copy.rank = -1;
  COPSE_DO(copse_index_map_add(&box->ids, copse_key_text(copy.id), (int)n, err));
  box->nodes[n] = copy;
  builder->node_lines[n] = line;
  box->view.n_nodes++;
  if (index) *index = (int)n;
  return COPSE_OK;
}

static copse_status check_link(const struct copse_topology_builder *builder, long line,
                               const struct copse_link *link, struct copse_err *err) {
  char text[COPSE_Q_TEXT];
  const char *src = builder->box->nodes[link->src].id;
  const char *dst = builder->box->nodes[link->dst].id;
  if (link->src == link->dst)
    return refuse(builder, line, "a link from \"%.80s\" to itself; its ends must differ", src);
  if (link->bandwidth.num <= 0)
    return refuse(builder, line,
                  "the bandwidth from \"%.80s\" to \"%.80s\" is %s; it must be positive", src, dst,
                  copse_q_text(link->bandwidth, text));
  if (link->latency.num < 0)
    return refuse(builder, line,
                  "the latency from \"%.80s\" to \"%.80s\" is %s; it can't be negative", src, dst,
                  copse_q_text(link->latency, text));
  return COPSE_OK;
}

/* Merges parallel links into one link of their total bandwidth and their largest latency. */
static copse_status merge_link(const struct copse_topology_builder *builder, long line,
                               struct copse_link *into, const struct copse_link *link,
                               struct copse_err *err) {
  struct copse_err local = COPSE_ERR_INIT;
  if (copse_q_add(into->bandwidth, link->bandwidth, &into->bandwidth, &local) != COPSE_OK)
    return copse_fail_at(err, COPSE_OVERFLOW, builder->file, line,
                         "the sum of the parallel links from \"%.80s\" to \"%.80s\": %s",
                         builder->box->nodes[link->src].id, builder->box->nodes[link->dst].id,
                         local.text);
  if (copse_q_cmp(link->latency, into->latency) > 0) into->latency = link->latency;
  return COPSE_OK;
}

copse_status copse_builder_add_link(struct copse_topology_builder *builder, long line, int src,
                                    int dst, struct copse_q bandwidth, struct copse_q latency,
                                    struct copse_err *err) {
  struct box *box = builder->box;
  struct copse_link link = {src, dst, bandwidth, latency, COPSE_GUESS_NONE};
  COPSE_DO(check_link(builder, line, &link, err));
  size_t cursor = 0;
  uint64_t key = copse_key_pair(src, dst);
  int twin = copse_index_map_next(&builder->pairs, key, &cursor);
  if (twin >= 0) return merge_link(builder, line, &box->links[twin], &link, err);
  if (box->view.n_links >= COPSE_TOPOLOGY_MAX_LINKS)
    return refuse(builder, line, "more than %d links, the most a topology can have",
                  COPSE_TOPOLOGY_MAX_LINKS);
  size_t n = (size_t)box->view.n_links;
  COPSE_DO(COPSE_GROW(box->links, builder->link_capacity, n + 1, err));
  COPSE_DO(copse_index_map_add(&builder->pairs, key, (int)n, err));
  box->links[n] = link;
  box->view.n_links++;
  return COPSE_OK;
}

void copse_builder_set_guess(struct copse_topology_builder *builder, int src, int dst,
                             enum copse_guess guess) {
  size_t cursor = 0;
  if (guess == COPSE_GUESS_NONE) return;
  int link = copse_index_map_next(&builder->pairs, copse_key_pair(src, dst), &cursor);
  if (link >= 0) builder->box->links[link].guess = guess;
}

copse_status copse_builder_add_duplex(struct copse_topology_builder *builder, long line, int a,
                                      int b, struct copse_q bandwidth, struct copse_q latency,
                                      struct copse_err *err) {
  COPSE_DO(copse_builder_add_link(builder, line, a, b, bandwidth, latency, err));
  return copse_builder_add_link(builder, line, b, a, bandwidth, latency, err);
}

/* Keeps the route's line in `src` until all is there. */
copse_status copse_builder_add_route(struct copse_topology_builder *builder, long line,
                                     const int *nodes, int n, struct copse_err *err) {
  struct box *box = builder->box;
  size_t at = (size_t)box->view.n_routes;
  int *copy;
  if (box->view.n_routes >= COPSE_TOPOLOGY_MAX_LINKS)
    return refuse(builder, line, "more than %d routes, the most a topology can have",
                  COPSE_TOPOLOGY_MAX_LINKS);
  COPSE_DO(COPSE_GROW(box->routes, builder->route_capacity, at + 1, err));
  COPSE_DO(COPSE_ARRAY(&box->arena, (size_t)n, copy, err));
  if (n > 0) memcpy(copy, nodes, (size_t)n * sizeof *copy);
  box->routes[at] = (struct copse_stated_route){(int)line, -1, n, copy};
  box->view.n_routes++;
  return COPSE_OK;
}

/* ---- ranks ------------------------------------------------------------------------ */

static bool is_gpu(const struct copse_node *node) { return strcmp(node->type, "gpu") == 0; }

static void rank_by_appearance(struct copse_topology_builder *builder, int *rank_nodes) {
  struct box *box = builder->box;
  int next = 0;
  for (int i = 0; i < box->view.n_nodes; i++) {
    if (!is_gpu(&box->nodes[i])) continue;
    box->nodes[i].rank = next;
    rank_nodes[next++] = i;
  }
}

static copse_status rank_as_stated(const struct copse_topology_builder *builder, int n_ranks,
                                   int *rank_nodes, struct copse_err *err) {
  struct box *box = builder->box;
  for (int r = 0; r < n_ranks; r++) rank_nodes[r] = -1;
  for (int i = 0; i < box->view.n_nodes; i++) {
    const struct copse_node *node = &box->nodes[i];
    if (!is_gpu(node)) continue;
    if (node->rank >= n_ranks)
      return refuse(builder, builder->node_lines[i],
                    "gpu \"%.80s\" has rank %d; the ranks of %d gpus must be 0 to %d", node->id,
                    node->rank, n_ranks, n_ranks - 1);
    int twin = rank_nodes[node->rank];
    if (twin >= 0)
      return refuse(builder, builder->node_lines[i],
                    "rank %d twice: \"%.80s\" (line %ld) and \"%.80s\"; each gpu needs its "
                    "own",
                    node->rank, box->nodes[twin].id, builder->node_lines[twin], node->id);
    rank_nodes[node->rank] = i;
  }
  return COPSE_OK;
}

static copse_status number_ranks(struct copse_topology_builder *builder, struct copse_err *err) {
  struct box *box = builder->box;
  int n_ranks = 0, stated = 0;
  for (int i = 0; i < box->view.n_nodes; i++) {
    n_ranks += is_gpu(&box->nodes[i]);
    stated += box->nodes[i].rank >= 0;
  }
  if (n_ranks == 0)
    return refuse(builder, 0,
                  "no node of type \"gpu\" (in small letters); a topology needs at least one rank");
  int *rank_nodes;
  COPSE_DO(COPSE_ARRAY(&box->arena, (size_t)n_ranks, rank_nodes, err));
  box->view.n_ranks = n_ranks;
  box->view.rank_nodes = rank_nodes;
  if (stated == n_ranks) return rank_as_stated(builder, n_ranks, rank_nodes, err);
  rank_by_appearance(builder, rank_nodes);
  return COPSE_OK;
}

/* ---- the finished object ------------------------------------------------------------ */

static int by_dst(const void *a, const void *b, void *links) {
  const struct copse_link *all = links;
  int x = all[*(const int *)a].dst, y = all[*(const int *)b].dst;
  return (x > y) - (x < y);
}

static copse_status sort_links(struct box *box, struct copse_err *err) {
  static struct copse_link none;
  int n = box->view.n_links;
  struct copse_link *links = n > 0 ? box->links : &none;
  COPSE_DO(copse_adjacency_by(&box->arena, box->view.n_nodes, n, COPSE_KEYS(links, src),
                              sizeof *links, &box->out, err));
  COPSE_DO(COPSE_ARRAY(&box->arena, (size_t)n, box->dsts, err));
  for (int v = 0; v < box->view.n_nodes; v++) {
    int first = box->out.first[v], past = box->out.first[v + 1];
    qsort_r(box->out.item + first, (size_t)(past - first), sizeof(int), by_dst, links);
  }
  for (int i = 0; i < n; i++) box->dsts[i] = links[box->out.item[i]].dst;
  return COPSE_OK;
}

/* ---- routes -------------------------------------------------------------------------- */

/* Returns what is wrong with the i-th step of a route, NULL: nothing. seen [n_nodes]: the route
 * that came by last, from 1. */
static const char *step_fault(const struct box *box, const struct copse_stated_route *route, int i,
                              int number, int *seen) {
  int v = route->nodes[i];
  bool end = i == 0 || i == route->n_nodes - 1;
  if (end != (box->nodes[v].rank >= 0))
    return end ? "is no gpu, but a route's end" : "is a gpu in the middle of a route";
  if (seen[v] == number) return "comes twice in a route";
  if (i > 0 && copse_topology_find_link(&box->view, route->nodes[i - 1], v) < 0)
    return "has no link from the node before it in a route";
  seen[v] = number;
  return NULL;
}

static copse_status check_routes(const struct copse_topology_builder *builder,
                                 struct copse_err *err) {
  struct box *box = builder->box;
  COPSE_AT_END(copse_free_at) int *seen = NULL;
  COPSE_DO(copse_calloc((size_t)box->view.n_nodes, sizeof *seen, &seen, err));
  for (int r = 0; r < box->view.n_routes; r++) {
    struct copse_stated_route *route = &box->routes[r];
    long line = route->src;
    if (route->n_nodes < 2)
      return refuse(builder, line, "a route of %d nodes; it needs two gpus and what lies between",
                    route->n_nodes);
    for (int i = 0; i < route->n_nodes; i++) {
      const char *fault = step_fault(box, route, i, r + 1, seen);
      if (fault)
        return refuse(builder, line, "\"%.80s\" %s", box->nodes[route->nodes[i]].id, fault);
    }
    route->src = box->nodes[route->nodes[0]].rank;
    route->dst = box->nodes[route->nodes[route->n_nodes - 1]].rank;
  }
  COPSE_SORT(box->routes, box->view.n_routes, by_ends);
  for (int r = 1; r < box->view.n_routes; r++)
    if (by_ends(&box->routes[r - 1], &box->routes[r]) == 0)
      return refuse(builder, 0,
                    "two routes from \"%.80s\" to \"%.80s\"; a route is of both directions unless "
                    "it says \"duplex\": false",
                    box->nodes[box->routes[r].nodes[0]].id,
                    box->nodes[box->view.rank_nodes[box->routes[r].dst]].id);
  box->view.routes = box->routes;
  return COPSE_OK;
}

copse_status copse_builder_finish(struct copse_topology_builder *builder,
                                  struct copse_topology **out, struct copse_err *err) {
  struct box *box = builder->box;
  *out = NULL;
  if (!box->view.name) COPSE_DO(name_after_file(builder, err));
  COPSE_DO(number_ranks(builder, err));
  COPSE_DO(sort_links(box, err));
  COPSE_DO(check_routes(builder, err));
  box->view.nodes = box->nodes;
  box->view.links = box->links;
  *out = &box->view;
  builder->box = NULL;
  return COPSE_OK;
}

/* ---- a copy -------------------------------------------------------------------------- */

/* Copies a route's nodes; all links have come to the copy's builder. False where the copy has lost
 * one. */
static bool copy_route(const struct copse_topology_builder *builder, const int *number,
                       const struct copse_stated_route *route, int *nodes) {
  const struct copse_node *all = builder->box->nodes;
  int last = route->n_nodes - 1;
  for (int i = 0; i <= last; i++) {
    size_t cursor = 0;
    if ((nodes[i] = number[route->nodes[i]]) < 0) return false;
    if (i > 0 &&
        copse_index_map_next(&builder->pairs, copse_key_pair(nodes[i - 1], nodes[i]), &cursor) < 0)
      return false;
  }
  return all[nodes[0]].rank >= 0 && all[nodes[last]].rank >= 0;
}

static copse_status copy_routes(const struct copse_topology *from, const int *number,
                                struct copse_topology_builder *builder, struct copse_err *err) {
  COPSE_AT_END(copse_free_at) int *nodes = NULL;
  if (from->n_routes == 0) return COPSE_OK;
  COPSE_DO(copse_calloc((size_t)from->n_nodes, sizeof *nodes, &nodes, err));
  for (int r = 0; r < from->n_routes; r++) {
    if (copy_route(builder, number, &from->routes[r], nodes))
      COPSE_DO(copse_builder_add_route(builder, 0, nodes, from->routes[r].n_nodes, err));
  }
  return COPSE_OK;
}

static copse_status copy_parts(const struct copse_topology *from, int *number,
                               struct copse_topology_builder *builder, struct copse_err *err) {
  for (int i = 0; i < from->n_nodes; i++) {
    number[i] = -1;
    if (from->nodes[i].id)
      COPSE_DO(copse_builder_add_node(builder, 0, &from->nodes[i], &number[i], err));
  }
  for (int i = 0; i < from->n_links; i++) {
    const struct copse_link *l = &from->links[i];
    int src = number[l->src], dst = number[l->dst];
    if (l->bandwidth.num == 0 || src < 0 || dst < 0) continue;
    COPSE_DO(copse_builder_add_link(builder, 0, src, dst, l->bandwidth, l->latency, err));
    copse_builder_set_guess(builder, src, dst, l->guess);
  }
  return copy_routes(from, number, builder, err);
}

copse_status copse_topology_copy(const struct copse_topology *from, const char *file,
                                 struct copse_topology **out, struct copse_err *err) {
  COPSE_AT_END(copse_builder_free_at) struct copse_topology_builder *builder = NULL;
  COPSE_AT_END(copse_free_at) int *number = NULL; /* [n_nodes] in the copy, -1: left out */
  *out = NULL;
  COPSE_DO(copse_calloc((size_t)from->n_nodes, sizeof *number, &number, err));
  COPSE_DO(copse_builder_new(file, &builder, err));
  COPSE_DO(copse_builder_set_name(builder, from->name, err));
  COPSE_DO(copse_builder_set_about(builder, from->description, from->source, err));
  struct box *box = builder->box;
  box->view.others_excluded = from->others_excluded;
  if (from->chosen_from)
    COPSE_DO(copse_arena_text(&box->arena, from->chosen_from, &box->view.chosen_from, err));
  COPSE_DO(copy_parts(from, number, builder, err));
  return copse_builder_finish(builder, out, err);
}
