/*
 * Builds a topology from the contents of an NCCL dump, a log of NCCL (below) or a connection
 * matrix: a graph of typed nodes and links, of which a link mode keeps a part.
 *
 *   nvlink    NVLink and xGMI; the GPUs, the NVSwitch, CPUs that have such a link
 *   all       everything
 *   default   per host: if NVLink joins its GPUs, nvlink plus the PCIe links on shortest paths
 *             from a NIC to its nearest GPUs, and the ports of those NICs; else all
 *
 * docs/formats.md, "NCCL and RCCL topology: XML".
 */
#include "topology/input/nccl_graph.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/graph.h"
#include "base/text.h"
#include "topology/input/readers.h"

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

/* Numbers the nodes that share one id. Counts on from the last number given: linear time. */
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
  if (graph->n_links >= COPSE_TOPOLOGY_MAX_LINKS)
    return copse_fail_at(err, COPSE_BAD_INPUT, graph->file, line,
                         "more than %d links, the most a topology can have",
                         COPSE_TOPOLOGY_MAX_LINKS);
  return COPSE_PUSH(graph->links, graph->n_links, graph->link_capacity, err, link);
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

/* Marks in `visited` the nodes on shortest paths: from each NIC, each hop is one closer to a
 * GPU. */
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

/* ==== NCCL's log ========================================================================== */

/*
 * The topology that NCCL prints with NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=GRAPH: a tree below each
 * CPU (ncclTopoPrintRec of NVIDIA/nccl src/graph/topo.cc, 2.18 to 2.31), of one rank's host.
 *
 *   === System : maxBw 370.8 totalBw 370.8 ===
 *   CPU/0-0 (1/1/3)                                       a NUMA node
 *   + PCI[48.0] - PCI/0-10000 (1000c0301000a064)          a child stands under its parent's word
 *                 + PCI[48.0] - GPU/0-12000 (0)           up to 2.29; then DEV with + LOC - GPU
 *                               + NVL[370.8] - NVS/0-0    links by other than PCI: names alone
 *                 + PCI[48.0] - NIC/0-14000
 *                               + NET[50.0] - NET/0-0 (0/10000/1/50.000000)
 *   + SYS[22.0] - CPU/0-1
 *   ==========================================
 *
 * Lines of other ranks may stand between: those of one thread ("host:pid:tid [dev]") belong
 * together. Bandwidths are NCCL's own, to 0.1 GB/s.
 */

#define INFO "NCCL INFO "
#define BEGIN "=== System "
#define MOST_LINES (1 << 14) /* what GPUs are looked for in all of them */
#define MOST_SYSTEMS 256

enum word { LOC, NVL, C2C, PCI, SYS, NET, ROOT, N_WORDS = ROOT };

struct entry {
  enum word link; /* the link from its parent */
  struct copse_q bandwidth;
  enum copse_nccl_node_kind kind;
  uint64_t system, id;
  int parent, node; /* an entry, or -1; of the graph */
  int column;       /* the text column where its children begin */
  long line;
};

struct tree {
  const struct copse_input *in;
  struct copse_nccl_graph *graph;
  struct entry *entries;
  size_t capacity;
  int n;
  bool several;                 /* systems */
  struct copse_index_map nodes; /* by kind, system, id */
  struct copse_err *err;
};

#define refuse(t, line, ...) \
  copse_fail_at((t)->err, COPSE_BAD_INPUT, (t)->in->label, line, __VA_ARGS__)

/* ---- lines ----------------------------------------------------------------------------------- */

/* A line of a log: who says it, the two words before "NCCL INFO", and what. */
struct line {
  struct copse_scan who, text;
};

static bool split(const struct copse_scan *whole, struct line *out) {
  out->text = *whole;
  if (!copse_scan_to(&out->text, INFO)) return false;
  const char *end = out->text.at - strlen(INFO), *who = end;
  for (int words = 0; words < 2; words++) {
    while (who > whole->at && who[-1] == ' ') who--;
    while (who > whole->at && who[-1] != ' ') who--;
  }
  out->who = (struct copse_scan){who, end};
  return true;
}

static bool same_thread(const struct line *a, const struct line *b) {
  size_t n = (size_t)(a->who.end - a->who.at);
  return (size_t)(b->who.end - b->who.at) == n && memcmp(a->who.at, b->who.at, n) == 0;
}

/* Reads "370.8", up to one of `ends`: GB/s above 0. */
static bool read_rate(struct copse_scan *s, const char *ends, struct copse_q *out) {
  struct copse_scan piece = *s;
  while (s->at < s->end && !strchr(ends, *s->at)) s->at++;
  piece.end = s->at;
  return copse_scan_decimal(&piece, out) && out->num > 0;
}

/* Reads "GPU/0-12000", of one system "GPU/12000". */
static bool read_name(struct copse_scan *s, struct entry *e) {
  static const struct {
    const char *name;
    enum copse_nccl_node_kind kind;
  } kinds[] = {{"GPU/", COPSE_NCCL_GPU},      {"DEV/", COPSE_NCCL_BRIDGE},
               {"PCI/", COPSE_NCCL_BRIDGE},   {"CPU/", COPSE_NCCL_CPU},
               {"NVS/", COPSE_NCCL_NVSWITCH}, {"NIC/", COPSE_NCCL_NIC},
               {"NET/", COPSE_NCCL_NET_PORT}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (!copse_scan_literal(s, kinds[i].name)) continue;
    e->kind = kinds[i].kind;
    if (!copse_scan_hex(s, &e->id)) return false;
    if (!copse_scan_literal(s, "-")) return true;
    e->system = e->id;
    return e->system < MOST_SYSTEMS && copse_scan_hex(s, &e->id);
  }
  return false;
}

/* Reads "+ NVL[370.8] - NVS/0-0 (..)" or "CPU/0-0 (..)"; false: another line. */
static bool read_entry(const struct copse_scan *text, struct entry *e, int *plus) {
  static const char *const words[N_WORDS] = {"LOC[", "NVL[", "C2C[", "PCI[", "SYS[", "NET["};
  struct copse_scan s = *text;
  while (copse_scan_literal(&s, " ")) continue;
  *plus = (int)(s.at - text->at);
  e->link = ROOT;
  if (copse_scan_literal(&s, "+ ")) {
    for (int w = 0; w < N_WORDS && e->link == ROOT; w++)
      if (copse_scan_literal(&s, words[w])) e->link = (enum word)w;
    if (e->link == ROOT || !read_rate(&s, "]", &e->bandwidth) || !copse_scan_literal(&s, "] - "))
      return false;
  } else if (*plus > 0) {
    return false;
  }
  e->column = (int)(s.at - text->at);
  if (!read_name(&s, e) || (e->link == ROOT && e->kind != COPSE_NCCL_CPU)) return false;
  const char *rate = memrchr(s.at, '/', (size_t)(s.end - s.at)); /* of a port, in full */
  if (e->kind == COPSE_NCCL_NET_PORT && rate) {
    struct copse_q full;
    s.at = rate + 1;
    if (read_rate(&s, ")", &full)) e->bandwidth = full;
  }
  return true;
}

/* Returns the entry above that a line at this column is a child of, or -1. */
static int parent_of(const struct tree *t, int plus) {
  for (int i = t->n - 1; i >= 0; i--)
    if (t->entries[i].column == plus &&
        (t->entries[i].link == PCI || t->entries[i].link == ROOT || t->entries[i].link == NET))
      return i;
    else if (t->entries[i].column < plus)
      return -1;
  return -1;
}

/* Reads the tree below a line, as its thread says it; *whole: it ends. */
static copse_status read_tree(struct tree *t, const struct line *first, struct copse_scan rest,
                              long number, bool *whole) {
  struct copse_scan next;
  struct line l;
  t->n = 0;
  while (number++, copse_scan_line(&rest, &next)) {
    struct entry e = {.parent = -1, .node = -1, .line = number};
    int plus;
    if (!split(&next, &l) || !same_thread(first, &l)) continue;
    *whole = t->n > 0 && copse_scan_begins(&l.text, "====");
    if (*whole || !read_entry(&l.text, &e, &plus) || t->n == MOST_LINES) return COPSE_OK;
    if (e.link != ROOT) e.parent = parent_of(t, plus);
    if (e.link != ROOT && e.parent < 0) return COPSE_OK;
    COPSE_DO(COPSE_PUSH(t->entries, t->n, t->capacity, t->err, e));
  }
  return COPSE_OK;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static uint64_t key_of(const struct entry *e) {
  return copse_mix(copse_mix(e->id) + e->system * 8 + (uint64_t)e->kind);
}

static int find_node(const struct tree *t, const struct entry *e) {
  size_t cursor = 0;
  return copse_index_map_next(&t->nodes, key_of(e), &cursor);
}

static copse_status name_node(struct tree *t, const struct entry *e, const char **id) {
  char prefix[16] = "", name[64];
  unsigned long long n = e->id;
  bool device =
      e->kind == COPSE_NCCL_GPU || e->kind == COPSE_NCCL_BRIDGE || e->kind == COPSE_NCCL_NIC;
  if (t->several && e->kind != COPSE_NCCL_NVSWITCH)
    snprintf(prefix, sizeof prefix, "h%d.", (int)e->system);
  if (device)
    snprintf(name, sizeof name, "@%04llx:%02llx:%02llx.%llx", n >> 20, n >> 12 & 255, n >> 4 & 255,
             n & 15);
  else if (e->kind == COPSE_NCCL_NVSWITCH)
    name[0] = '\0';
  else
    snprintf(name, sizeof name, "@%llu", n);
  *id = copse_arena_printf(&t->graph->arena, "%s%s%s", prefix, copse_nccl_type_name(e->kind), name);
  return *id ? COPSE_OK : copse_fail_nomem(t->err);
}

static copse_status make_node(struct tree *t, struct entry *e) {
  const char *id;
  e->node = find_node(t, e);
  if (e->node >= 0) return COPSE_OK;
  bool all = e->kind == COPSE_NCCL_NVSWITCH && t->several;
  COPSE_DO(name_node(t, e, &id));
  COPSE_DO(copse_nccl_add_node(t->graph, e->kind, all ? COPSE_NCCL_ALL_HOSTS : (int)e->system, id,
                               e->line, &e->node, t->err));
  if (e->kind == COPSE_NCCL_NET_PORT) {
    t->graph->nodes[e->node].has_dev = true;
    t->graph->nodes[e->node].dev = e->system << 56 | e->id;
  }
  return copse_index_map_add(&t->nodes, key_of(e), e->node, t->err);
}

static int by_bus(const void *a, const void *b) {
  const struct entry *x = *(const struct entry *const *)a, *y = *(const struct entry *const *)b;
  return COPSE_COMPARE(x->system, y->system) ?: COPSE_COMPARE(x->id, y->id);
}

/* Makes the GPUs first, in order of their bus ids, as NVML numbers them. */
static copse_status make_gpus(struct tree *t) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct entry **gpus;
  int n = 0, index = 0;
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)t->n, gpus, t->err));
  for (int i = 0; i < t->n; i++)
    if (t->entries[i].kind == COPSE_NCCL_GPU) gpus[n++] = &t->entries[i];
  COPSE_SORT(gpus, n, by_bus);
  for (int i = 0; i < n; i++) {
    int before = t->graph->n_nodes;
    if (i > 0 && gpus[i]->system != gpus[i - 1]->system) index = 0;
    COPSE_DO(make_node(t, gpus[i]));
    if (t->graph->n_nodes == before) continue;
    t->graph->nodes[gpus[i]->node].has_dev = true;
    t->graph->nodes[gpus[i]->node].dev = gpus[i]->system << 56 | (uint64_t)index++;
  }
  return COPSE_OK;
}

/* Merges GPUs with their devices: from 2.30 on a GPU stands under its device, whose links are its
 * own, and which others name. */
static void merge_devices(struct tree *t) {
  for (int i = 0; i < t->n; i++) {
    const struct entry *gpu = &t->entries[i];
    if (gpu->kind != COPSE_NCCL_GPU || gpu->link != LOC) continue;
    const struct entry device = t->entries[gpu->parent];
    for (int k = 0; k < t->n; k++) {
      struct entry *e = &t->entries[k];
      if (e->kind != device.kind || e->system != device.system || e->id != device.id) continue;
      e->kind = COPSE_NCCL_GPU;
      e->id = gpu->id;
    }
  }
}

/* ---- links ----------------------------------------------------------------------------------- */

/* Makes an entry's link. PCIe, ports and NVSwitches stand once, others at each of their ends. */
static copse_status make_link(struct tree *t, const struct entry *e) {
  static const enum copse_nccl_link_kind kinds[N_WORDS] = {[NVL] = COPSE_NCCL_NVLINK,
                                                           [C2C] = COPSE_NCCL_PCI,
                                                           [PCI] = COPSE_NCCL_PCI,
                                                           [SYS] = COPSE_NCCL_SYS,
                                                           [NET] = COPSE_NCCL_NET};
  int from = e->parent >= 0 ? t->entries[e->parent].node : -1;
  if (e->link == ROOT || from == e->node) return COPSE_OK;
  bool once = e->link == PCI || e->link == NET || e->kind == COPSE_NCCL_NVSWITCH;
  if (once)
    return copse_nccl_add_duplex(t->graph, kinds[e->link], from, e->node, e->bandwidth, e->line,
                                 t->err);
  COPSE_DO(
      copse_nccl_add_link(t->graph, kinds[e->link], from, e->node, e->bandwidth, e->line, t->err));
  if (e->link == SYS) copse_nccl_guess(t->graph, 1, COPSE_GUESS_SOCKETS);
  return COPSE_OK;
}

static copse_status make_graph(struct tree *t) {
  int systems = 0;
  for (int i = 0; i < t->n; i++)
    if ((int)t->entries[i].system >= systems) systems = (int)t->entries[i].system + 1;
  t->several = systems > 1;
  t->graph->n_hosts = systems;
  merge_devices(t);
  COPSE_DO(make_gpus(t));
  if (t->graph->n_nodes == 0)
    return refuse(t, t->entries[0].line, "its tree has no GPU; a topology needs at least one");
  for (int i = 0; i < t->n; i++) COPSE_DO(make_node(t, &t->entries[i]));
  for (int i = 0; i < t->n; i++) COPSE_DO(make_link(t, &t->entries[i]));
  return COPSE_OK;
}

/* ---- the log --------------------------------------------------------------------------------- */

/* Reads the first whole tree. */
static copse_status read_log(struct tree *t) {
  struct copse_scan text = {t->in->data, t->in->data + t->in->size}, next;
  struct line l;
  for (long number = 1; copse_scan_line(&text, &next); number++) {
    bool whole = false;
    if (!split(&next, &l) || !copse_scan_begins(&l.text, BEGIN)) continue;
    COPSE_DO(read_tree(t, &l, text, number, &whole));
    if (!whole) continue;
    copse_note(t->graph->notes,
               "%s: the topology is the tree on line %ld, of one rank's host with the GPUs of its "
               "communicator",
               t->in->label, number);
    return make_graph(t);
  }
  return refuse(t, 1,
                "a log without a whole tree of NCCL's topology (\"=== System\" to \"===\"): "
                "NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=GRAPH print it");
}

bool copse_is_nccl_tree(const struct copse_input *in) {
  static const char begin[] = INFO BEGIN;
  return memmem(in->data, in->size, begin, strlen(begin)) != NULL;
}

copse_status copse_read_nccl_tree(const struct copse_input *in, struct copse_topology **out,
                                  struct copse_err *err) {
  COPSE_AT_END(copse_nccl_graph_free)
  struct copse_nccl_graph graph = {.file = in->label, .notes = in->options->notes};
  struct tree t = {.in = in, .graph = &graph, .err = err};
  *out = NULL;
  copse_status status = read_log(&t);
  free(t.entries);
  copse_index_map_free(&t.nodes);
  COPSE_DO(status);
  copse_note_unused_options(in, "NCCL's log", COPSE_USES_LINKS);
  return copse_nccl_build(&graph, in->options->links, out, err);
}
