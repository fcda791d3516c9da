#include "solver/trees/pack.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/rational.h"
#include "solver/trees/pack_internal.h"

static copse_status list_links(struct copse_packer *p, struct copse_flow *graph,
                               struct copse_err *err) {
  copse_status status = COPSE_OK;
  size_t n = 0, capacity = 0;
  for (int v = 0; v < p->network->n_nodes; v++) {
    struct copse_flow_neighbours leaving = copse_flow_leaving(graph, v);
    p->first_link[v] = (int)n;
    COPSE_TRY(copse_grow(&p->links, &capacity, n + (size_t)leaving.n, sizeof *p->links, err));
    for (int i = 0; i < leaving.n; i++)
      p->links[n++] = (struct copse_pack_link){leaving.nodes[i], leaving.capacities[i],
                                               leaving.capacities[i], 0};
  }
  p->first_link[p->network->n_nodes] = (int)n;
out:
  return status;
}

static copse_status build_graph(struct copse_packer *p, struct copse_err *err) {
  const struct copse_network *network = p->network;
  copse_status status;
  COPSE_TRY(copse_flow_new(network->n_nodes + 1 + network->n_terminals, &p->flow, err));
  for (int v = 0; v < network->n_nodes; v++)
    for (int i = p->first_link[v]; i < p->first_link[v + 1]; i++)
      COPSE_TRY(copse_flow_change(p->flow, v, p->links[i].dst, p->links[i].left, err));
  for (int i = 0; i < network->n_roots; i++) {
    int64_t need = network->roots[i].weight * p->k;
    COPSE_TRY(copse_flow_change(p->flow, p->hub, network->roots[i].node, need, err));
    p->need[network->roots[i].node] = need;
    p->others += need;
  }
  p->unbounded = p->others;
out:
  return status;
}

static copse_status prepare(struct copse_packer *p, struct copse_flow *graph,
                            struct copse_err *err) {
  size_t nodes = (size_t)p->network->n_nodes, terminals = (size_t)p->network->n_terminals;
  copse_status status;
  p->hub = p->network->n_nodes;
  COPSE_TRY(copse_calloc(nodes + 1, sizeof(int), &p->first_link, err));
  COPSE_TRY(copse_calloc(terminals + 1, sizeof *p->waiting, &p->waiting, err));
  COPSE_TRY(copse_calloc(terminals, sizeof(int), &p->order, err));
  COPSE_TRY(copse_calloc(nodes, 1, &p->in_tree, err));
  COPSE_TRY(copse_calloc(nodes, sizeof *p->need, &p->need, err));
  for (size_t i = 0; i <= terminals; i++)
    COPSE_TRY(copse_calloc(terminals, sizeof(struct copse_packed_edge), &p->waiting[i].edges, err));
  COPSE_TRY(copse_calloc(terminals, sizeof(struct copse_packed_edge), &p->current.edges, err));
  COPSE_TRY(copse_calloc(nodes, 1, &p->inside, err));
  COPSE_TRY(copse_cuts_new(p->network->n_nodes, &p->cuts, err));
  COPSE_TRY(copse_calloc((size_t)p->cuts.most, 1, &p->touched, err));
  COPSE_TRY(list_links(p, graph, err));
  size_t links = (size_t)p->first_link[nodes];
  COPSE_TRY(copse_calloc(links ? links : 1, sizeof *p->saved_left, &p->saved_left, err));
  COPSE_TRY(build_graph(p, err));
out:
  return status;
}

static void release(struct copse_packer *p) {
  copse_flow_free(p->flow);
  for (int i = 0; p->waiting && i <= p->network->n_terminals; i++) free(p->waiting[i].edges);
  free(p->waiting);
  free(p->current.edges);
  free(p->links);
  free(p->first_link);
  free(p->order);
  free(p->in_tree);
  free(p->need);
  copse_cuts_free(&p->cuts);
  copse_sinks_free(&p->sinks);
  free(p->touched);
  free(p->inside);
  free(p->saved_left);
}

/* Tells the flow graph what was taken by trust. */
static copse_status sync_flow(struct copse_packer *p, struct copse_err *err) {
  copse_status status = COPSE_OK;
  for (int v = 0; v < p->network->n_nodes; v++) {
    for (int i = p->first_link[v]; i < p->first_link[v + 1]; i++) {
      struct copse_pack_link *link = &p->links[i];
      if (link->left == link->in_flow) continue;
      COPSE_TRY(copse_flow_change(p->flow, v, link->dst, link->left - link->in_flow, err));
      link->in_flow = link->left;
    }
  }
out:
  return status;
}

/* So many broken cuts are learned from one proof that fails: most are much alike. */
#define MOST_BROKEN 32

/* One flow per terminal. The cuts nearest to the terminals are remembered, narrow or broken, up to
 * the one that is the number `most` of those broken. */
static copse_status ask_terminals(struct copse_packer *p, int most, bool *carried,
                                  struct copse_err *err) {
  const struct copse_network *network = p->network;
  copse_status status;
  struct copse_sink_question question = {.source = p->hub,
                                         .demand = p->others,
                                         .sinks = network->terminals,
                                         .n_sinks = network->n_terminals,
                                         .most = most,
                                         .tight = true};
  COPSE_TRY(copse_sinks_ask(&p->sinks, p->flow, &question, err));
  *carried = true;
  for (int i = 0; i < p->sinks.n_cuts; i++) {
    const struct copse_sink_cut *cut = &p->sinks.cuts[i];
    int n = 0;
    if (cut->flows < p->others) *carried = false;
    for (int u = 0; u < network->n_nodes; u++) n += cut->inside[u];
    if (n > 1) copse_cuts_add(&p->cuts, cut->inside, 0);
  }
out:
  return status;
}

/* Whether the links left carry all trees of the roots not begun (Edmonds). */
static copse_status check_rest(struct copse_packer *p, bool *carried, struct copse_err *err) {
  copse_status status;
  COPSE_TRY(sync_flow(p, err));
  status = ask_terminals(p, MOST_BROKEN, carried, err);
out:
  return status;
}

/* All roots need `by` trees more for every unit of their weights. */
static copse_status raise_needs(struct copse_packer *p, int64_t by, struct copse_err *err) {
  copse_status status = COPSE_OK;
  for (int i = 0; i < p->network->n_roots; i++) {
    const struct copse_net_root *root = &p->network->roots[i];
    COPSE_TRY(copse_flow_change(p->flow, p->hub, root->node, root->weight * by, err));
    p->others += root->weight * by;
  }
out:
  return status;
}

/*
 * Before the first root: also the cuts that would be broken by twice the trees. Where one host has
 * lost a NIC its own cut is tight and those of the others have room, which trees that enter them
 * by every NIC use up at once.
 */
static copse_status learn_wider(struct copse_packer *p, struct copse_err *err) {
  bool ignored;
  copse_status status = COPSE_OK;
  if (p->others > COPSE_FLOW_MAX / 4) return COPSE_OK; /* a hint, not worth an overflow */
  COPSE_TRY(raise_needs(p, p->k, err));
  COPSE_TRY(ask_terminals(p, p->network->n_terminals, &ignored, err));
  COPSE_TRY(raise_needs(p, -p->k, err));
out:
  return status;
}

/* What every known cut can spare, between two roots: links into it less trees into it. */
static void measure_cuts(struct copse_packer *p) {
  const struct copse_network *network = p->network;
  int64_t *slack = p->cuts.slack;
  for (int c = 0; c < p->cuts.n; c++) slack[c] = -p->others;
  for (int v = 0; v < network->n_nodes; v++) {
    const unsigned char *of_v = copse_cuts_of(&p->cuts, v);
    for (int c = 0; c < p->cuts.n; c++) slack[c] += of_v[c] ? p->need[v] : 0;
    for (int i = p->first_link[v]; i < p->first_link[v + 1]; i++) {
      const int *entered = copse_cuts_holding(&p->cuts, p->links[i].dst);
      for (int j = 0; j < p->cuts.n_holding[p->links[i].dst]; j++)
        if (!of_v[entered[j]]) slack[entered[j]] += p->links[i].left;
    }
  }
}

/* How far trust has been found to carry. */
struct trust {
  int done;             /* roots that are packed for good */
  int batch;            /* roots to try at once */
  int tries;            /* of this batch that taught new cuts */
  int careful, penalty; /* roots to pack by flows before trusting again; grows with failures */
};

/* Roots of a small network tried at once at first. There a batch that holds is what the careful way
 * would have made, which takes as much at every step as is safe: all steps were. */
#define FIRST_BATCH 8
/* With the same batch again where new cuts promise more, at most this often. */
#define MOST_TRIES 3

static copse_status restore(struct copse_packer *p, const struct trust *trust, size_t n_trees,
                            size_t n_edges, struct copse_err *err) {
  copse_status status = COPSE_OK;
  int n_links = p->first_link[p->network->n_nodes];
  for (int i = 0; i < n_links; i++) p->links[i].left = p->saved_left[i];
  p->out->n_trees = n_trees;
  p->out->n_edges = n_edges;
  p->stuck = false;
  for (int i = 0; i < trust->batch; i++) {
    const struct copse_net_root *root = &p->network->roots[trust->done + i];
    int64_t need = root->weight * p->k, missing = need - p->need[root->node];
    COPSE_TRY(copse_flow_change(p->flow, p->hub, root->node, missing, err));
    p->need[root->node] = need;
    p->others += missing;
  }
  COPSE_TRY(sync_flow(p, err));
  measure_cuts(p);
out:
  return status;
}

/* The batch did not hold: what to try instead. `finished` of its roots got their trees. */
static void lower_trust(struct trust *trust, int finished, bool learned) {
  if (learned && trust->tries++ < MOST_TRIES) return;
  trust->tries = 0;
  if (finished < trust->batch && finished > 0) {
    trust->batch = finished;
  } else if (trust->batch > 1) {
    trust->batch /= 2;
  } else {
    trust->careful = trust->penalty;
    trust->penalty *= 2;
  }
}

/* Packs the next roots by trust; done only if what is left still carries the others. */
static copse_status pack_batch(struct copse_packer *p, struct trust *trust, struct copse_err *err) {
  int n_links = p->first_link[p->network->n_nodes], finished = 0, known = p->cuts.n;
  size_t n_trees = p->out->n_trees, n_edges = p->out->n_edges;
  bool carried = false;
  copse_status status = COPSE_OK;
  if (trust->batch > p->network->n_roots - trust->done)
    trust->batch = p->network->n_roots - trust->done;
  for (int i = 0; i < n_links; i++) p->saved_left[i] = p->links[i].left;
  p->trusting = true;
  while (finished < trust->batch && !p->stuck) {
    COPSE_TRY(copse_packer_root(p, &p->network->roots[trust->done + finished], err));
    if (!p->stuck) finished++;
  }
  p->trusting = false;
  if (finished == trust->batch && p->others > 0) COPSE_TRY(check_rest(p, &carried, err));
  if (finished == trust->batch && p->others == 0) carried = true;
  if (carried) {
    trust->done += trust->batch;
    trust->batch *= 2;
    trust->tries = 0;
    return COPSE_OK;
  }
  COPSE_TRY(restore(p, trust, n_trees, n_edges, err));
  lower_trust(trust, finished, p->cuts.n > known);
out:
  return status;
}

copse_status copse_pack_trees(const struct copse_network *network, struct copse_flow *flow,
                              int64_t k, const struct copse_progress *progress,
                              struct copse_packing *out, struct copse_err *err) {
  struct copse_packer p = {.network = network, .k = k, .out = out};
  struct trust trust = {.batch = network->n_roots, .penalty = 1};
  p.enters_once = network->n_roots >= copse_trust_from;
  if (!p.enters_once) trust.batch = (int)copse_smaller(network->n_roots, FIRST_BATCH);
  bool carried;
  copse_status status;
  *out = (struct copse_packing){0};
  COPSE_TRY(prepare(&p, flow, err));
  COPSE_TRY(check_rest(&p, &carried, err));
  if (p.enters_once) COPSE_TRY(learn_wider(&p, err));
  measure_cuts(&p);
  while (trust.done < network->n_roots) {
    if (trust.careful == 0) {
      COPSE_TRY(pack_batch(&p, &trust, err));
    } else {
      COPSE_TRY(copse_packer_root(&p, &network->roots[trust.done++], err));
      trust.careful--;
    }
    copse_progress_report(progress, "pack", trust.done, network->n_roots);
  }
out:
  release(&p);
  if (status != COPSE_OK) copse_packing_free(out);
  return status;
}

void copse_packing_free(struct copse_packing *packing) {
  free(packing->trees);
  free(packing->edges);
  *packing = (struct copse_packing){0};
}
