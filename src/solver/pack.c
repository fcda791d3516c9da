#include "solver/pack.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "solver/cuts.h"
#include "solver/sinks.h"

struct link {
  int dst;
  int64_t left;    /* capacity not yet used by trees */
  int64_t in_flow; /* what the flow graph believes of it */
  int blocked_for; /* the family that can't use it any more; a tight cut stays tight */
};

/* A family of equal trees of one root, finished up to `n_edges`. */
struct family {
  int64_t multiplicity;
  int n_edges;
  struct copse_packed_edge *edges; /* [n_terminals - 1] */
};

struct packer {
  const struct copse_network *network;
  int64_t k;
  struct copse_flow *flow; /* node `hub`: where the other families' needs hang */
  int hub;
  struct copse_packing *out;
  struct link *links;     /* by source: links[first_link[v]] .. */
  int *first_link;        /* [n_nodes + 1] */
  int64_t others;         /* sum of multiplicities of all unfinished families but the current */
  int64_t unbounded;      /* that of all families: no flow asked for is larger */
  struct family *waiting; /* copies split off the current root's families */
  int n_waiting;
  struct family current;
  int root, family_id;
  int *order;              /* [n_terminals] vertices of the tree in the order they joined */
  int n_order, first_open; /* vertices before first_open have no usable link left */
  bool *in_tree;           /* [n_nodes] */
  int64_t *need;           /* [n_nodes] of roots not begun yet: the capacity of hub -> root */
  struct copse_cuts cuts;
  struct copse_sinks sinks;
  unsigned char *touched; /* [cuts.most] whether the current family is in the cut already */
  unsigned char *inside;  /* [n_nodes] scratch: one cut */
  bool trusting;          /* only the known cuts are asked, and the flow graph is not kept */
  bool stuck;             /* a tree could not be finished by trust */
  int64_t *saved_left;    /* [n_links] at the beginning of a batch */
};

static copse_status list_links(struct packer *p, struct copse_flow *graph, struct copse_err *err) {
  copse_status status = COPSE_OK;
  size_t n = 0, capacity = 0;
  for (int v = 0; v < p->network->n_nodes; v++) {
    struct copse_flow_neighbours leaving = copse_flow_leaving(graph, v);
    p->first_link[v] = (int)n;
    COPSE_TRY(copse_grow(&p->links, &capacity, n + (size_t)leaving.n, sizeof *p->links, err));
    for (int i = 0; i < leaving.n; i++)
      p->links[n++] =
          (struct link){leaving.nodes[i], leaving.capacities[i], leaving.capacities[i], 0};
  }
  p->first_link[p->network->n_nodes] = (int)n;
out:
  return status;
}

static copse_status build_graph(struct packer *p, struct copse_err *err) {
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

static copse_status prepare(struct packer *p, struct copse_flow *graph, struct copse_err *err) {
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

static void release(struct packer *p) {
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

/*
 * What the known cuts leave for x -> y: a cut that the current family is in already must be
 * entered no more, except for what it can spare.
 */
static int64_t spared_by_cuts(const struct packer *p, int x, int y, int64_t want) {
  const unsigned char *of_x = copse_cuts_of(&p->cuts, x);
  const int *entered = copse_cuts_holding(&p->cuts, y);
  for (int i = 0; i < p->cuts.n_holding[y]; i++) {
    int c = entered[i];
    if (p->touched[c] && !of_x[c] && p->cuts.slack[c] < want) want = p->cuts.slack[c];
  }
  return want;
}

/* The same after x -> y was taken. */
static void enter_cuts(struct packer *p, int x, int y, int64_t amount) {
  const unsigned char *of_x = copse_cuts_of(&p->cuts, x);
  const int *entered = copse_cuts_holding(&p->cuts, y);
  for (int i = 0; i < p->cuts.n_holding[y]; i++) {
    int c = entered[i];
    if (p->touched[c] && !of_x[c]) p->cuts.slack[c] -= amount;
    p->touched[c] = true;
  }
}

/* After a flow that fell short: its cut can spare `slack`, and the current family is in it. */
static void learn_from_flow(struct packer *p, int64_t slack) {
  for (int v = 0; v < p->network->n_nodes; v++)
    p->inside[v] = !copse_flow_on_source_side(p->flow, v);
  int c = copse_cuts_add(&p->cuts, p->inside, slack);
  if (c >= 0) p->touched[c] = true;
}

/*
 * What certainly flows from x to y: over the link itself, and for every other family over
 * hub -> root -> y. These ways share no link. On complete graphs (a switch) this is all there
 * is to know, and no search is needed.
 */
static int64_t evident_flow(struct packer *p, int x, int y) {
  struct copse_flow_neighbours in = copse_flow_entering(p->flow, y);
  int64_t sum = 0;
  for (int i = 0; i < in.n; i++) {
    int v = in.nodes[i];
    if (v == x || v == p->hub)
      sum += in.capacities[i];
    else if (v < p->network->n_nodes)
      sum += in.capacities[i] < p->need[v] ? in.capacities[i] : p->need[v];
  }
  return sum;
}

/* How much of `want` the current family may be extended over x -> y (see the header). */
static copse_status safe_amount(struct packer *p, int x, const struct link *link, int64_t want,
                                int64_t *safe, struct copse_err *err) {
  copse_status status;
  if (link->left < want) want = link->left;
  want = spared_by_cuts(p, x, link->dst, want);
  *safe = want;
  if (want == 0 || p->trusting) return COPSE_OK;
  if (evident_flow(p, x, link->dst) >= p->others + want) return COPSE_OK;
  COPSE_TRY(copse_flow_change(p->flow, x, p->hub, p->unbounded, err));
  int64_t value = copse_flow_max(p->flow, x, link->dst, p->others + want);
  if (value < p->others + want) learn_from_flow(p, value - p->others);
  COPSE_TRY(copse_flow_change(p->flow, x, p->hub, -p->unbounded, err));
  *safe = value - p->others;
  if (*safe < 0)
    return copse_fail(err, COPSE_INTERNAL, "tree packing: the graph doesn't carry its trees");
out:
  return status;
}

/* The auxiliary node through which waiting family `slot` receives what it still needs. */
static int waiting_node(const struct packer *p, int slot) { return p->hub + 1 + slot; }

/* Ties (sign = 1) or unties (-1) a waiting family to all vertices that it has. */
static copse_status tie_waiting(struct packer *p, int slot, int64_t sign, struct copse_err *err) {
  const struct family *family = &p->waiting[slot];
  int node = waiting_node(p, slot);
  copse_status status;
  if (p->trusting) return COPSE_OK;
  COPSE_TRY(copse_flow_change(p->flow, p->hub, node, sign * family->multiplicity, err));
  COPSE_TRY(copse_flow_change(p->flow, node, p->root, sign * p->unbounded, err));
  for (int i = 0; i < family->n_edges; i++)
    COPSE_TRY(copse_flow_change(p->flow, node, family->edges[i].dst, sign * p->unbounded, err));
  p->others += sign * family->multiplicity;
out:
  return status;
}

/* The current family goes on with `amount`; the rest waits as a copy of what it is now. */
static copse_status split_family(struct packer *p, int64_t amount, struct copse_err *err) {
  struct family *copy = &p->waiting[p->n_waiting];
  copy->multiplicity = p->current.multiplicity - amount;
  copy->n_edges = p->current.n_edges;
  memcpy(copy->edges, p->current.edges, (size_t)copy->n_edges * sizeof *copy->edges);
  p->current.multiplicity = amount;
  return tie_waiting(p, p->n_waiting++, 1, err);
}

static copse_status extend(struct packer *p, int x, struct link *link, int64_t amount,
                           struct copse_err *err) {
  copse_status status = COPSE_OK;
  if (amount < p->current.multiplicity) COPSE_TRY(split_family(p, amount, err));
  if (!p->trusting) {
    COPSE_TRY(copse_flow_change(p->flow, x, link->dst, -amount, err));
    link->in_flow -= amount;
  }
  link->left -= amount;
  enter_cuts(p, x, link->dst, amount);
  p->current.edges[p->current.n_edges++] = (struct copse_packed_edge){x, link->dst};
  p->in_tree[link->dst] = true;
  p->order[p->n_order++] = link->dst;
out:
  return status;
}

/*
 * The best extension from x: the whole family over one link if that is safe, else the
 * largest part found. NULL: x has no usable link any more.
 */
static copse_status best_extension(struct packer *p, int x, struct link **best, int64_t *amount,
                                   struct copse_err *err) {
  copse_status status = COPSE_OK;
  *best = NULL;
  *amount = 0;
  for (int i = p->first_link[x]; i < p->first_link[x + 1]; i++) {
    struct link *link = &p->links[i];
    if (link->left == 0 || p->in_tree[link->dst] || link->blocked_for == p->family_id) continue;
    if (link->left <= *amount) continue;
    int64_t safe;
    COPSE_TRY(safe_amount(p, x, link, p->current.multiplicity, &safe, err));
    if (safe == 0) link->blocked_for = p->family_id;
    if (safe <= *amount) continue;
    *best = link;
    *amount = safe;
    if (safe == p->current.multiplicity) break;
  }
out:
  return status;
}

static copse_status grow_current(struct packer *p, struct copse_err *err) {
  copse_status status = COPSE_OK;
  int target = p->network->n_terminals - 1;
  p->first_open = 0;
  p->family_id++;
  while (p->current.n_edges < target) {
    struct link *best;
    int64_t amount;
    if (p->first_open == p->n_order && p->trusting) {
      p->stuck = true;
      return COPSE_OK;
    }
    if (p->first_open == p->n_order)
      return copse_fail(err, COPSE_INTERNAL, "tree packing: a tree can't be finished");
    int x = p->order[p->first_open];
    COPSE_TRY(best_extension(p, x, &best, &amount, err));
    if (best)
      COPSE_TRY(extend(p, x, best, amount, err));
    else
      p->first_open++;
  }
out:
  return status;
}

static copse_status emit_current(struct packer *p, struct copse_err *err) {
  struct copse_packing *out = p->out;
  size_t n = (size_t)p->current.n_edges;
  copse_status status;
  COPSE_TRY(
      copse_grow(&out->trees, &out->trees_capacity, out->n_trees + 1, sizeof *out->trees, err));
  COPSE_TRY(
      copse_grow(&out->edges, &out->edges_capacity, out->n_edges + n, sizeof *out->edges, err));
  out->trees[out->n_trees++] =
      (struct copse_packed_tree){p->root, p->current.multiplicity, out->n_edges};
  memcpy(out->edges + out->n_edges, p->current.edges, n * sizeof *out->edges);
  out->n_edges += n;
out:
  return status;
}

/* Makes the vertex set that the current family's edges imply. */
static void restart_vertices(struct packer *p) {
  memset(p->in_tree, 0, (size_t)p->network->n_nodes);
  p->n_order = 0;
  p->order[p->n_order++] = p->root;
  p->in_tree[p->root] = true;
  memcpy(p->touched, copse_cuts_of(&p->cuts, p->root), (size_t)p->cuts.n);
  for (int i = 0; i < p->current.n_edges; i++) {
    p->order[p->n_order++] = p->current.edges[i].dst;
    p->in_tree[p->current.edges[i].dst] = true;
    const int *entered = copse_cuts_holding(&p->cuts, p->current.edges[i].dst);
    for (int j = 0; j < p->cuts.n_holding[p->current.edges[i].dst]; j++)
      p->touched[entered[j]] = true;
  }
}

/* All trees of one root: the family, then every copy that was split off on the way. */
static copse_status pack_root(struct packer *p, const struct copse_net_root *root,
                              struct copse_err *err) {
  copse_status status;
  int64_t need = root->weight * p->k;
  p->root = root->node;
  p->current.multiplicity = need;
  p->current.n_edges = 0;
  p->n_waiting = 0;
  COPSE_TRY(copse_flow_change(p->flow, p->hub, root->node, -need, err));
  p->need[root->node] = 0;
  p->others -= need;
  for (;;) {
    restart_vertices(p);
    COPSE_TRY(grow_current(p, err));
    if (p->stuck) break;
    COPSE_TRY(emit_current(p, err));
    if (p->n_waiting == 0) break;
    COPSE_TRY(tie_waiting(p, --p->n_waiting, -1, err));
    const struct family *next = &p->waiting[p->n_waiting];
    p->current.multiplicity = next->multiplicity;
    p->current.n_edges = next->n_edges;
    memcpy(p->current.edges, next->edges, (size_t)next->n_edges * sizeof *next->edges);
  }
  if (!p->trusting) copse_flow_compact(p->flow);
out:
  return status;
}

/* Tells the flow graph what was taken by trust. */
static copse_status sync_flow(struct packer *p, struct copse_err *err) {
  copse_status status = COPSE_OK;
  for (int v = 0; v < p->network->n_nodes; v++) {
    for (int i = p->first_link[v]; i < p->first_link[v + 1]; i++) {
      struct link *link = &p->links[i];
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

/*
 * Whether the links left carry all trees of the roots not begun (Edmonds): one flow per
 * terminal. The cuts nearest to the terminals are remembered, narrow or broken.
 */
static copse_status check_rest(struct packer *p, bool *carried, struct copse_err *err) {
  const struct copse_network *network = p->network;
  copse_status status;
  struct copse_sink_question question = {.source = p->hub,
                                         .demand = p->others,
                                         .sinks = network->terminals,
                                         .n_sinks = network->n_terminals,
                                         .most = MOST_BROKEN,
                                         .tight = true};
  COPSE_TRY(sync_flow(p, err));
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

/* What every known cut can spare, between two roots: links into it less trees into it. */
static void measure_cuts(struct packer *p) {
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

/* With the same batch again where new cuts promise more, at most this often. */
#define MOST_TRIES 3

static copse_status restore(struct packer *p, const struct trust *trust, size_t n_trees,
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
static copse_status pack_batch(struct packer *p, struct trust *trust, struct copse_err *err) {
  int n_links = p->first_link[p->network->n_nodes], finished = 0, known = p->cuts.n;
  size_t n_trees = p->out->n_trees, n_edges = p->out->n_edges;
  bool carried = false;
  copse_status status = COPSE_OK;
  if (trust->batch > p->network->n_roots - trust->done)
    trust->batch = p->network->n_roots - trust->done;
  for (int i = 0; i < n_links; i++) p->saved_left[i] = p->links[i].left;
  p->trusting = true;
  while (finished < trust->batch && !p->stuck) {
    COPSE_TRY(pack_root(p, &p->network->roots[trust->done + finished], err));
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
  struct packer p = {.network = network, .k = k, .out = out};
  struct trust trust = {.batch = network->n_roots, .penalty = 1};
  if (network->n_roots < copse_trust_from) trust.careful = network->n_roots;
  bool carried;
  copse_status status;
  *out = (struct copse_packing){0};
  COPSE_TRY(prepare(&p, flow, err));
  COPSE_TRY(check_rest(&p, &carried, err));
  measure_cuts(&p);
  while (trust.done < network->n_roots) {
    if (trust.careful == 0) {
      COPSE_TRY(pack_batch(&p, &trust, err));
    } else {
      COPSE_TRY(pack_root(&p, &network->roots[trust.done++], err));
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
