/*
 * Builds a topology from the contents of an NCCL dump or a connection matrix: a graph of typed
 * nodes and links, of which a link mode keeps a part.
 *
 *   nvlink    NVLink and xGMI; the GPUs, the NVSwitch, CPUs that have such a link
 *   all       everything
 *   default   per host: if NVLink joins its GPUs, nvlink plus the PCIe links on shortest paths
 *             from a NIC to its nearest GPUs, and the ports of those NICs; else all
 */
#include "topology/input/nccl_graph.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/graph.h"
#include "base/text.h"

#define MAX_NOTES 16

void copse_nccl_graph_free(struct copse_nccl_graph *graph) {
  free(graph->nodes);
  free(graph->links);
  copse_index_map_free(&graph->ids);
  copse_arena_free(&graph->arena);
}

void copse_nccl_note(struct copse_nccl_graph *graph, long line, const char *fmt, ...) {
  if (++graph->n_notes > MAX_NOTES) return;
  char text[256];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  if (line > 0)
    copse_note(graph->notes, "%s:%ld: %s", graph->file, line, text);
  else
    copse_note(graph->notes, "%s: %s", graph->file, text);
}

static int find_id(const struct copse_nccl_graph *graph, const char *id) {
  return copse_index_map_find(&graph->ids, id, graph->nodes, sizeof *graph->nodes,
                              offsetof(struct copse_nccl_node, id));
}

/* Numbers the nodes that want one id. Counts on from the last number given: linear time. */
static copse_status make_id(struct copse_nccl_graph *graph, const char *wish, const char **out,
                            struct copse_err *err) {
  char *id = copse_arena_strdup(&graph->arena, wish);
  int twin = id ? find_id(graph, id) : -1;
  while (id && twin >= 0 && find_id(graph, id) >= 0)
    id = copse_arena_printf(&graph->arena, "%s.%d", wish, ++graph->nodes[twin].repeats);
  *out = id;
  return id ? COPSE_OK : copse_fail_nomem(err);
}

copse_status copse_nccl_add_node(struct copse_nccl_graph *graph, enum copse_nccl_node_kind kind,
                                 int host, const char *id, long line, int *index,
                                 struct copse_err *err) {
  struct copse_nccl_node node = {.kind = kind, .host = host, .rank = -1, .line = line};
  size_t n = (size_t)graph->n_nodes;
  if (graph->n_nodes >= COPSE_TOPOLOGY_MAX_NODES)
    return copse_fail_at(err, COPSE_BAD_INPUT, graph->file, line,
                         "more than %d nodes, the most a topology can have",
                         COPSE_TOPOLOGY_MAX_NODES);
  COPSE_DO(make_id(graph, id, &node.id, err));
  COPSE_DO(copse_grow(&graph->nodes, &graph->node_capacity, n + 1, sizeof node, err));
  COPSE_DO(copse_index_map_add(&graph->ids, copse_key_text(node.id), (int)n, err));
  graph->nodes[n] = node;
  *index = graph->n_nodes++;
  return COPSE_OK;
}

copse_status copse_nccl_add_link(struct copse_nccl_graph *graph, enum copse_nccl_link_kind kind,
                                 int src, int dst, struct copse_q bandwidth, long line,
                                 struct copse_err *err) {
  struct copse_nccl_link link = {kind, src, dst, bandwidth, line, false, COPSE_GUESS_NONE};
  size_t n = (size_t)graph->n_links;
  if (graph->n_links >= COPSE_TOPOLOGY_MAX_LINKS)
    return copse_fail_at(err, COPSE_BAD_INPUT, graph->file, line,
                         "more than %d links, the most a topology can have",
                         COPSE_TOPOLOGY_MAX_LINKS);
  COPSE_DO(copse_grow(&graph->links, &graph->link_capacity, n + 1, sizeof link, err));
  graph->links[graph->n_links++] = link;
  return COPSE_OK;
}

copse_status copse_nccl_add_duplex(struct copse_nccl_graph *graph, enum copse_nccl_link_kind kind,
                                   int a, int b, struct copse_q bandwidth, long line,
                                   struct copse_err *err) {
  COPSE_DO(copse_nccl_add_link(graph, kind, a, b, bandwidth, line, err));
  return copse_nccl_add_link(graph, kind, b, a, bandwidth, line, err);
}

void copse_nccl_guess(struct copse_nccl_graph *graph, int n, enum copse_guess guess) {
  for (int i = 0; i < n; i++) graph->links[graph->n_links - 1 - i].guess = guess;
}

/* ---- ranks and the topology --------------------------------------------------------- */

/* A GPU and its rank in the file. Ranks are closed up: 8..15, the second host of a job, become
 * 0..7. */
struct ranked {
  int rank, node;
};

COPSE_ORDER(by_rank, struct ranked, COPSE_UP(rank) ?: COPSE_UP(node))

static copse_status check_ranks(const struct copse_nccl_graph *graph, const struct ranked *gpus,
                                int n, struct copse_err *err) {
  for (int i = 1; i < n; i++) {
    const struct copse_nccl_node *a = &graph->nodes[gpus[i - 1].node];
    const struct copse_nccl_node *b = &graph->nodes[gpus[i].node];
    if (a->rank == b->rank)
      return copse_fail_at(err, COPSE_BAD_INPUT, graph->file, b->line,
                           "rank %d twice: %s (line %ld) and %s; each gpu needs its own", a->rank,
                           a->id, a->line, b->id);
  }
  return COPSE_OK;
}

/* Numbers GPUs by the ranks of the file, or by order of appearance unless all have a rank. */
static copse_status number_ranks(struct copse_nccl_graph *graph, struct copse_err *err) {
  struct ranked *gpus;
  int n = 0, n_gpus = 0;
  COPSE_DO(COPSE_ARRAY(&graph->arena, (size_t)graph->n_nodes, gpus, err));
  for (int i = 0; i < graph->n_nodes; i++) {
    n_gpus += graph->nodes[i].kind == COPSE_NCCL_GPU;
    if (graph->nodes[i].rank >= 0) gpus[n++] = (struct ranked){graph->nodes[i].rank, i};
  }
  COPSE_SORT(gpus, n, by_rank);
  COPSE_DO(check_ranks(graph, gpus, n, err));
  for (int r = 0; r < n; r++) graph->nodes[gpus[r].node].rank = n < n_gpus ? -1 : r;
  if (n > 0 && n < n_gpus)
    copse_nccl_note(graph, 0, "%d of %d gpus have no rank: all are numbered in order of appearance",
                    n_gpus - n, n_gpus);
  return COPSE_OK;
}

const char *copse_nccl_type_name(enum copse_nccl_node_kind kind) {
  static const char *const names[] = {
      [COPSE_NCCL_GPU] = "gpu", [COPSE_NCCL_NVSWITCH] = "nvswitch", [COPSE_NCCL_BRIDGE] = "pcie",
      [COPSE_NCCL_CPU] = "cpu", [COPSE_NCCL_NIC] = "nic",           [COPSE_NCCL_NET_PORT] = "net"};
  return names[kind];
}

static copse_status add_kept(const struct copse_nccl_graph *graph, int *index_of,
                             struct copse_topology_builder *builder, struct copse_err *err) {
  for (int i = 0; i < graph->n_nodes; i++) {
    const struct copse_nccl_node *from = &graph->nodes[i];
    if (!from->keep) continue;
    struct copse_node node = {.id = from->id,
                              .type = copse_nccl_type_name(from->kind),
                              .rank = from->rank,
                              .has_dev = from->has_dev,
                              .dev = from->dev,
                              .sm = from->sm,
                              .no_gdr = from->no_gdr};
    COPSE_DO(copse_builder_add_node(builder, from->line, &node, &index_of[i], err));
  }
  for (int i = 0; i < graph->n_links; i++) {
    const struct copse_nccl_link *link = &graph->links[i];
    if (!link->keep) continue;
    COPSE_DO(copse_builder_add_link(builder, link->line, index_of[link->src], index_of[link->dst],
                                    link->bandwidth, COPSE_Q_ZERO, err));
    copse_builder_set_guess(builder, index_of[link->src], index_of[link->dst], link->guess);
  }
  return COPSE_OK;
}

/* ---- what a mode keeps --------------------------------------------------------------- */

struct selection {
  struct copse_nccl_graph *graph;
  struct copse_adjacency out, in; /* links by their source, and by their destination */
  int *distance; /* [n_nodes] hops to the nearest GPU over PCIe and CPUs; -1: none */
  struct copse_queue queue;
  bool *visited; /* [n_nodes] */
  bool *joined;  /* [n_hosts] NVLink connects the host's GPUs */
  struct copse_arena *scratch;
};

static bool is_pcie(const struct copse_nccl_link *link) {
  return link->kind == COPSE_NCCL_PCI || link->kind == COPSE_NCCL_SYS;
}

/* ---- does NVLink join a host's GPUs? ------------------------------------------------ */

static bool carries_nvlink(const struct copse_nccl_node *node, int host) {
  if (node->host == COPSE_NCCL_ALL_HOSTS) return true;
  return node->host == host && (node->kind == COPSE_NCCL_GPU || node->kind == COPSE_NCCL_NVSWITCH);
}

/* Counts the GPUs of `first`'s host that it reaches by NVLink over rows `out`, or that reach it
 * (`in`). CPUs do not relay. */
static int count_reached(struct selection *s, const struct copse_adjacency *rows, int first) {
  const struct copse_nccl_graph *graph = s->graph;
  int host = graph->nodes[first].host, gpus = 0;
  copse_queue_reset(&s->queue);
  copse_queue_push(&s->queue, first);
  s->visited[first] = true;
  while (!copse_queue_is_empty(&s->queue)) {
    int v = copse_queue_pop(&s->queue);
    gpus += graph->nodes[v].kind == COPSE_NCCL_GPU;
    for (int i = rows->first[v]; i < rows->first[v + 1]; i++) {
      const struct copse_nccl_link *link = &graph->links[rows->item[i]];
      int w = rows == &s->out ? link->dst : link->src;
      if (link->kind != COPSE_NCCL_NVLINK || s->visited[w]) continue;
      if (!carries_nvlink(&graph->nodes[w], host)) continue;
      s->visited[w] = true;
      copse_queue_push(&s->queue, w);
    }
  }
  for (int i = 0; i < s->queue.tail; i++) s->visited[s->queue.items[i]] = false;
  return gpus;
}

static copse_status find_joined_hosts(struct selection *s, struct copse_err *err) {
  const struct copse_nccl_graph *graph = s->graph;
  size_t n = (size_t)graph->n_hosts;
  int *gpus, *first;
  COPSE_DO(COPSE_ARRAYS(s->scratch, n, int, err, &gpus, &first));
  for (int v = graph->n_nodes - 1; v >= 0; v--) {
    if (graph->nodes[v].kind != COPSE_NCCL_GPU) continue;
    gpus[graph->nodes[v].host]++;
    first[graph->nodes[v].host] = v;
  }
  for (int h = 0; h < graph->n_hosts; h++)
    s->joined[h] = gpus[h] > 0 && count_reached(s, &s->out, first[h]) == gpus[h] &&
                   count_reached(s, &s->in, first[h]) == gpus[h];
  return COPSE_OK;
}

/* ---- shortest paths from NICs to their nearest GPUs --------------------------------- */

/*
 * Measures hops breadth first, from all GPUs at once: no shortest path passes through a GPU.
 * PCIe and CPU links come in both directions; a NIC has one PCIe link.
 */
static void measure_distances(struct selection *s) {
  const struct copse_nccl_graph *graph = s->graph;
  copse_queue_reset(&s->queue);
  for (int v = 0; v < graph->n_nodes; v++) {
    bool gpu = graph->nodes[v].kind == COPSE_NCCL_GPU;
    s->distance[v] = gpu ? 0 : -1;
    if (gpu) copse_queue_push(&s->queue, v);
  }
  while (!copse_queue_is_empty(&s->queue)) {
    int v = copse_queue_pop(&s->queue);
    for (int i = s->out.first[v]; i < s->out.first[v + 1]; i++) {
      const struct copse_nccl_link *link = &graph->links[s->out.item[i]];
      if (!is_pcie(link) || s->distance[link->dst] >= 0) continue;
      s->distance[link->dst] = s->distance[v] + 1;
      copse_queue_push(&s->queue, link->dst);
    }
  }
}

/* Marks in `visited` the nodes on shortest paths: from each NIC, each hop is one closer to a GPU.
 */
static void walk_from_nics(struct selection *s) {
  const struct copse_nccl_graph *graph = s->graph;
  copse_queue_reset(&s->queue);
  for (int v = 0; v < graph->n_nodes; v++) {
    const struct copse_nccl_node *node = &graph->nodes[v];
    if (node->kind != COPSE_NCCL_NIC || s->distance[v] < 0 || !s->joined[node->host]) continue;
    s->visited[v] = true;
    copse_queue_push(&s->queue, v);
  }
  while (!copse_queue_is_empty(&s->queue)) {
    int v = copse_queue_pop(&s->queue);
    for (int i = s->out.first[v]; i < s->out.first[v + 1]; i++) {
      const struct copse_nccl_link *link = &graph->links[s->out.item[i]];
      int w = link->dst;
      if (!is_pcie(link) || s->visited[w] || s->distance[w] + 1 != s->distance[v]) continue;
      s->visited[w] = true;
      copse_queue_push(&s->queue, w);
    }
  }
}

/* Whether a link is a hop of such a path, in either direction. */
static bool on_path(const struct selection *s, const struct copse_nccl_link *link) {
  int a = link->src, b = link->dst;
  if (!s->visited[a] || !s->visited[b]) return false;
  return s->distance[a] + 1 == s->distance[b] || s->distance[b] + 1 == s->distance[a];
}

static bool keeps_link(const struct selection *s, const struct copse_nccl_link *link) {
  const struct copse_nccl_node *src = &s->graph->nodes[link->src];
  if (link->kind == COPSE_NCCL_NVLINK || !s->joined[src->host]) return true;
  if (link->kind == COPSE_NCCL_NET) return s->visited[link->src] || s->visited[link->dst];
  return on_path(s, link);
}

/* ---- the modes ---------------------------------------------------------------------- */

static copse_status select_default(struct copse_nccl_graph *graph, struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena arena = {0};
  struct selection selection = {.graph = graph, .scratch = &arena}, *s = &selection;
  size_t n = (size_t)graph->n_nodes;
  static const struct copse_nccl_link none;
  const struct copse_nccl_link *links = graph->n_links ? graph->links : &none;
  struct copse_arena *scratch = s->scratch;
  int m = graph->n_links;
  COPSE_DO(
      copse_adjacency_by(scratch, (int)n, m, COPSE_KEYS(links, src), sizeof *links, &s->out, err));
  COPSE_DO(
      copse_adjacency_by(scratch, (int)n, m, COPSE_KEYS(links, dst), sizeof *links, &s->in, err));
  COPSE_DO(COPSE_ARRAYS(scratch, n, int, err, &s->distance, &s->queue.items));
  COPSE_DO(COPSE_ARRAY(scratch, n, s->visited, err));
  COPSE_DO(COPSE_ARRAY(scratch, (size_t)graph->n_hosts, s->joined, err));
  COPSE_DO(find_joined_hosts(s, err));
  measure_distances(s);
  walk_from_nics(s);
  for (int i = 0; i < graph->n_links; i++) graph->links[i].keep = keeps_link(s, &graph->links[i]);
  for (int v = 0; v < graph->n_nodes; v++)
    graph->nodes[v].keep = graph->nodes[v].host >= 0 && !s->joined[graph->nodes[v].host];
  return COPSE_OK;
}

/* Keeps the ends of kept links, and every GPU: a solver names one that has no links. */
static void keep_ends(struct copse_nccl_graph *graph) {
  for (int i = 0; i < graph->n_links; i++) {
    if (!graph->links[i].keep) continue;
    graph->nodes[graph->links[i].src].keep = true;
    graph->nodes[graph->links[i].dst].keep = true;
  }
  for (int v = 0; v < graph->n_nodes; v++)
    if (graph->nodes[v].kind == COPSE_NCCL_GPU) graph->nodes[v].keep = true;
}

static copse_status select_parts(struct copse_nccl_graph *graph, enum copse_link_mode mode,
                                 struct copse_err *err) {
  if (mode == COPSE_LINKS_DEFAULT) COPSE_DO(select_default(graph, err));
  for (int i = 0; mode != COPSE_LINKS_DEFAULT && i < graph->n_links; i++)
    graph->links[i].keep = mode == COPSE_LINKS_ALL || graph->links[i].kind == COPSE_NCCL_NVLINK;
  for (int v = 0; mode == COPSE_LINKS_ALL && v < graph->n_nodes; v++) graph->nodes[v].keep = true;
  keep_ends(graph);
  return COPSE_OK;
}

copse_status copse_nccl_build(struct copse_nccl_graph *graph, enum copse_link_mode mode,
                              struct copse_topology **out, struct copse_err *err) {
  COPSE_AT_END(copse_builder_free_at) struct copse_topology_builder *builder = NULL;
  int *index_of;
  COPSE_DO(select_parts(graph, mode, err));
  COPSE_DO(number_ranks(graph, err));
  COPSE_DO(copse_builder_new(graph->file, &builder, err));
  COPSE_DO(copse_builder_set_about(builder, graph->description, graph->source, err));
  COPSE_DO(COPSE_ARRAY(&graph->arena, (size_t)graph->n_nodes, index_of, err));
  COPSE_DO(add_kept(graph, index_of, builder, err));
  if (graph->n_notes > MAX_NOTES)
    copse_note(graph->notes, "%s: and %d more remarks like these", graph->file,
               graph->n_notes - MAX_NOTES);
  return copse_builder_finish(builder, out, err);
}
