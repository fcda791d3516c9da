/*
 * What a link mode keeps of an NCCL dump.
 *
 *   nvlink    NVLink and xGMI; the GPUs, the NVSwitch, CPUs that have such a link
 *   all       everything
 *   default   per host: if NVLink joins its GPUs, nvlink plus the PCIe links on shortest ways
 *             between a NIC and its nearest GPUs, and the ports of those NICs; else all
 */
#include <stdlib.h>

#include "topology/input/nccl_graph.h"

/* Links by their source (or, reversed, by their destination): row v is first[v]..first[v+1]. */
struct adjacency {
  int *first, *links;
};

struct selection {
  struct copse_nccl_graph *graph;
  struct adjacency out, in;
  int *distance; /* [n_nodes] hops to the nearest GPU over PCIe and CPUs; -1: none */
  int *queue;    /* [n_nodes] */
  bool *visited; /* [n_nodes] */
  bool *joined;  /* [n_hosts] NVLink connects the host's GPUs */
};

static copse_status make_adjacency(const struct copse_nccl_graph *graph, bool reversed,
                                   struct adjacency *out, struct copse_err *err) {
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)graph->n_nodes + 2, sizeof *out->first, &out->first, err));
  COPSE_TRY(copse_calloc((size_t)graph->n_links, sizeof *out->links, &out->links, err));
  int *fill = out->first + 1; /* counts first, then the place of a row's next link */
  for (int i = 0; i < graph->n_links; i++)
    fill[(reversed ? graph->links[i].dst : graph->links[i].src) + 1]++;
  for (int v = 1; v <= graph->n_nodes; v++) fill[v] += fill[v - 1];
  for (int i = 0; i < graph->n_links; i++)
    out->links[fill[reversed ? graph->links[i].dst : graph->links[i].src]++] = i;
out:
  return status;
}

static bool is_pcie(const struct copse_nccl_link *link) {
  return link->kind == COPSE_NCCL_PCI || link->kind == COPSE_NCCL_SYS;
}

/* ---- does NVLink join a host's GPUs? ------------------------------------------------ */

static bool carries_nvlink(const struct copse_nccl_node *node, int host) {
  return node->host == host && (node->kind == COPSE_NCCL_GPU || node->kind == COPSE_NCCL_NVSWITCH);
}

/* How many GPUs of `first`'s host are reached from it (or reach it) by NVLink, CPUs aside. */
static int count_reached(struct selection *s, const struct adjacency *rows, int first) {
  const struct copse_nccl_graph *graph = s->graph;
  int host = graph->nodes[first].host, head = 0, tail = 0, gpus = 0;
  s->queue[tail++] = first;
  s->visited[first] = true;
  while (head < tail) {
    int v = s->queue[head++];
    gpus += graph->nodes[v].kind == COPSE_NCCL_GPU;
    for (int i = rows->first[v]; i < rows->first[v + 1]; i++) {
      const struct copse_nccl_link *link = &graph->links[rows->links[i]];
      int w = rows == &s->out ? link->dst : link->src;
      if (link->kind != COPSE_NCCL_NVLINK || s->visited[w]) continue;
      if (!carries_nvlink(&graph->nodes[w], host)) continue;
      s->visited[w] = true;
      s->queue[tail++] = w;
    }
  }
  for (int i = 0; i < tail; i++) s->visited[s->queue[i]] = false;
  return gpus;
}

static copse_status find_joined_hosts(struct selection *s, struct copse_err *err) {
  const struct copse_nccl_graph *graph = s->graph;
  int *gpus = NULL, *first = NULL;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)graph->n_hosts, sizeof *gpus, &gpus, err));
  COPSE_TRY(copse_calloc((size_t)graph->n_hosts, sizeof *first, &first, err));
  for (int v = graph->n_nodes - 1; v >= 0; v--) {
    if (graph->nodes[v].kind != COPSE_NCCL_GPU) continue;
    gpus[graph->nodes[v].host]++;
    first[graph->nodes[v].host] = v;
  }
  for (int h = 0; h < graph->n_hosts; h++)
    s->joined[h] = gpus[h] > 0 && count_reached(s, &s->out, first[h]) == gpus[h] &&
                   count_reached(s, &s->in, first[h]) == gpus[h];
out:
  free(gpus);
  free(first);
  return status;
}

/* ---- the ways between NICs and their nearest GPUs ----------------------------------- */

/*
 * Breadth first from all GPUs at once, so that no shortest way leads through one; NICs have
 * one PCIe link each. PCIe and CPU links come in both directions.
 */
static void measure_distances(struct selection *s) {
  const struct copse_nccl_graph *graph = s->graph;
  int head = 0, tail = 0;
  for (int v = 0; v < graph->n_nodes; v++) {
    bool gpu = graph->nodes[v].kind == COPSE_NCCL_GPU;
    s->distance[v] = gpu ? 0 : -1;
    if (gpu) s->queue[tail++] = v;
  }
  while (head < tail) {
    int v = s->queue[head++];
    for (int i = s->out.first[v]; i < s->out.first[v + 1]; i++) {
      const struct copse_nccl_link *link = &graph->links[s->out.links[i]];
      if (!is_pcie(link) || s->distance[link->dst] >= 0) continue;
      s->distance[link->dst] = s->distance[v] + 1;
      s->queue[tail++] = link->dst;
    }
  }
}

/* Marks in `visited` what lies on a shortest way: from every NIC, always one hop closer. */
static void walk_from_nics(struct selection *s) {
  const struct copse_nccl_graph *graph = s->graph;
  int head = 0, tail = 0;
  for (int v = 0; v < graph->n_nodes; v++) {
    const struct copse_nccl_node *node = &graph->nodes[v];
    if (node->kind != COPSE_NCCL_NIC || s->distance[v] < 0 || !s->joined[node->host]) continue;
    s->visited[v] = true;
    s->queue[tail++] = v;
  }
  while (head < tail) {
    int v = s->queue[head++];
    for (int i = s->out.first[v]; i < s->out.first[v + 1]; i++) {
      const struct copse_nccl_link *link = &graph->links[s->out.links[i]];
      int w = link->dst;
      if (!is_pcie(link) || s->visited[w] || s->distance[w] + 1 != s->distance[v]) continue;
      s->visited[w] = true;
      s->queue[tail++] = w;
    }
  }
}

/* Is a link, in one of its directions, a step of such a way? */
static bool on_way(const struct selection *s, const struct copse_nccl_link *link) {
  int a = link->src, b = link->dst;
  if (!s->visited[a] || !s->visited[b]) return false;
  return s->distance[a] + 1 == s->distance[b] || s->distance[b] + 1 == s->distance[a];
}

static bool keeps_link(const struct selection *s, const struct copse_nccl_link *link) {
  const struct copse_nccl_node *src = &s->graph->nodes[link->src];
  if (link->kind == COPSE_NCCL_NVLINK || !s->joined[src->host]) return true;
  if (link->kind == COPSE_NCCL_NET) return s->visited[link->src] || s->visited[link->dst];
  return on_way(s, link);
}

/* ---- the modes ---------------------------------------------------------------------- */

static copse_status select_default(struct selection *s, struct copse_err *err) {
  struct copse_nccl_graph *graph = s->graph;
  size_t n = (size_t)graph->n_nodes;
  copse_status status;
  COPSE_TRY(make_adjacency(graph, false, &s->out, err));
  COPSE_TRY(make_adjacency(graph, true, &s->in, err));
  COPSE_TRY(copse_calloc(n, sizeof *s->distance, &s->distance, err));
  COPSE_TRY(copse_calloc(n, sizeof *s->queue, &s->queue, err));
  COPSE_TRY(copse_calloc(n, sizeof *s->visited, &s->visited, err));
  COPSE_TRY(copse_calloc((size_t)graph->n_hosts, sizeof *s->joined, &s->joined, err));
  COPSE_TRY(find_joined_hosts(s, err));
  measure_distances(s);
  walk_from_nics(s);
  for (int i = 0; i < graph->n_links; i++) graph->links[i].keep = keeps_link(s, &graph->links[i]);
  for (int v = 0; v < graph->n_nodes; v++) graph->nodes[v].keep = !s->joined[graph->nodes[v].host];
out:
  return status;
}

static void selection_free(struct selection *s) {
  free(s->out.first);
  free(s->out.links);
  free(s->in.first);
  free(s->in.links);
  free(s->distance);
  free(s->queue);
  free(s->visited);
  free(s->joined);
}

/* A link keeps its ends; a GPU stays even without a link, so that it is missed loudly. */
static void keep_ends(struct copse_nccl_graph *graph) {
  for (int i = 0; i < graph->n_links; i++) {
    if (!graph->links[i].keep) continue;
    graph->nodes[graph->links[i].src].keep = true;
    graph->nodes[graph->links[i].dst].keep = true;
  }
  for (int v = 0; v < graph->n_nodes; v++)
    if (graph->nodes[v].kind == COPSE_NCCL_GPU) graph->nodes[v].keep = true;
}

copse_status copse_nccl_select(struct copse_nccl_graph *graph, enum copse_link_mode mode,
                               struct copse_err *err) {
  struct selection s = {.graph = graph};
  copse_status status = COPSE_OK;
  if (mode == COPSE_LINKS_DEFAULT) COPSE_TRY(select_default(&s, err));
  for (int i = 0; mode != COPSE_LINKS_DEFAULT && i < graph->n_links; i++)
    graph->links[i].keep = mode == COPSE_LINKS_ALL || graph->links[i].kind == COPSE_NCCL_NVLINK;
  for (int v = 0; mode == COPSE_LINKS_ALL && v < graph->n_nodes; v++) graph->nodes[v].keep = true;
  keep_ends(graph);
out:
  selection_free(&s);
  return status;
}
