/*
 * Tree packing: k out-trees of every root on a graph without relays. A tree, or a family of equal
 * ones, takes x -> y if what is left still carries all others; by Edmonds' theorem that is a flow:
 *
 *      hub --need--> roots not begun         the hub gives what all other families still need;
 *       |  \-------> families that wait      x is tied to it, for x has the data already; what
 *       x  ~~ what is left ~~> y             flows to y beyond the others' needs is safe to take
 *
 * In this file: the trees of one root, then the order of the whole, by trust and with its proof.
 * J. Edmonds, "Edge-disjoint branchings", 1973; safe amounts after R. Tarjan 1974, with capacities
 * K. Bérczi and A. Frank 2010. docs/theory.md, "Packing".
 */
#include "solver/trees/general.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/rational.h"
#include "solver/network/cuts.h"
#include "solver/network/flow.h"
#include "solver/policy.h"

struct link {
  int dst;
  int64_t left;    /* capacity not yet used by trees */
  int64_t in_flow; /* its capacity in the flow graph */
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
  bool best_fit; /* of links that take a whole family the one of which least is left */
  bool whole;    /* prefers vertices that can feed a whole family to those that would split it */
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
  int *order; /* [n_terminals] vertices of the tree in the order they joined */
  int n_order;
  bool enters_once;  /* a tree enters a known cut again only where nothing else is left */
  bool once;         /* only links that don't are looked at now */
  int first_open[2]; /* with `once`, without: vertices before it have no usable link left */
  bool *in_tree;     /* [n_nodes] */
  int64_t *need;     /* [n_nodes] of roots not begun yet: the capacity of hub -> root */
  struct copse_cuts cuts;
  struct copse_sinks sinks;
  unsigned char *touched; /* [COPSE_CUTS_MOST] whether the current family is in the cut already */
  unsigned char *inside;  /* [n_nodes] scratch: one cut */
  bool trusting;          /* only the known cuts are asked, and the flow graph is not kept */
  bool stuck;             /* a tree could not be finished by trust */
  int64_t *saved_left;    /* [n_links] at the beginning of a batch */
  struct copse_arena arena;
  struct copse_err *err;
};

/* ---- the trees of one root ----------------------------------------------------------------- */

/*
 * Returns what the known cuts leave for x -> y: a cut that the current family is in already must be
 * entered no more, except for what it can spare.
 */
static int64_t spared_by_cuts(const struct packer *p, int x, int y, int64_t want) {
  const unsigned char *of_x = copse_cuts_flags(&p->cuts, x);
  const struct copse_cuts_of_node *of_y = &p->cuts.of[y];
  for (int i = 0; i < of_y->n; i++) {
    int c = of_y->cuts[i];
    if (p->touched[c] && !of_x[c] && p->cuts.slack[c] < want) want = p->cuts.slack[c];
  }
  return want;
}

/* Whether x -> y enters a cut that the current family is in already. */
static bool enters_again(const struct packer *p, int x, int y) {
  const unsigned char *of_x = copse_cuts_flags(&p->cuts, x);
  const struct copse_cuts_of_node *of_y = &p->cuts.of[y];
  for (int i = 0; i < of_y->n; i++)
    if (p->touched[of_y->cuts[i]] && !of_x[of_y->cuts[i]]) return true;
  return false;
}

/* Does the same after x -> y was taken. */
static void enter_cuts(struct packer *p, int x, int y, int64_t amount) {
  const unsigned char *of_x = copse_cuts_flags(&p->cuts, x);
  const struct copse_cuts_of_node *of_y = &p->cuts.of[y];
  for (int i = 0; i < of_y->n; i++) {
    int c = of_y->cuts[i];
    if (p->touched[c] && !of_x[c]) p->cuts.slack[c] -= amount;
    p->touched[c] = true;
  }
}

/* Learns from a flow that fell short: its cut can spare `slack`, and the current family is in
 * it. */
static copse_status learn_from_flow(struct packer *p, int64_t slack) {
  int c;
  for (int v = 0; v < p->network->n_nodes; v++)
    p->inside[v] = !copse_flow_on_source_side(p->flow, v);
  COPSE_DO(copse_cuts_add_flags(&p->cuts, p->inside, slack, &c, p->err));
  if (c >= 0) p->touched[c] = true;
  return COPSE_OK;
}

/*
 * Returns what certainly flows from x to y: over the link itself, and for every other family over
 * hub -> root -> y. These ways share no link. On complete graphs (a switch) this decides, and no
 * search is needed.
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

/* Finds how much of `want` the current family may be extended over x -> y (see above). */
static copse_status safe_amount(struct packer *p, int x, const struct link *link, int64_t want,
                                int64_t *safe) {
  if (link->left < want) want = link->left;
  want = spared_by_cuts(p, x, link->dst, want);
  *safe = want;
  if (want == 0 || p->trusting) return COPSE_OK;
  if (evident_flow(p, x, link->dst) >= p->others + want) return COPSE_OK;
  COPSE_DO(copse_flow_change(p->flow, x, p->hub, p->unbounded, p->err));
  int64_t value = copse_flow_max(p->flow, x, link->dst, p->others + want);
  if (value < p->others + want) COPSE_DO(learn_from_flow(p, value - p->others));
  COPSE_DO(copse_flow_change(p->flow, x, p->hub, -p->unbounded, p->err));
  *safe = value - p->others;
  if (*safe < 0)
    return copse_fail(p->err, COPSE_INTERNAL, "tree packing: the graph doesn't carry its trees");
  return COPSE_OK;
}

/* Returns the auxiliary node through which the waiting family `slot` receives its flow. */
static int waiting_node(const struct packer *p, int slot) { return p->hub + 1 + slot; }

/* Ties (sign = 1) or unties (-1) a waiting family to all vertices that it has. */
static copse_status tie_waiting(struct packer *p, int slot, int64_t sign) {
  const struct family *family = &p->waiting[slot];
  int node = waiting_node(p, slot);
  if (p->trusting) return COPSE_OK;
  COPSE_DO(copse_flow_change(p->flow, p->hub, node, sign * family->multiplicity, p->err));
  COPSE_DO(copse_flow_change(p->flow, node, p->root, sign * p->unbounded, p->err));
  for (int i = 0; i < family->n_edges; i++)
    COPSE_DO(copse_flow_change(p->flow, node, family->edges[i].dst, sign * p->unbounded, p->err));
  p->others += sign * family->multiplicity;
  return COPSE_OK;
}

/* Splits the current family: it goes on with `amount`; the rest waits as a copy of what it is
 * now. */
static copse_status split_family(struct packer *p, int64_t amount) {
  struct family *copy = &p->waiting[p->n_waiting];
  copy->multiplicity = p->current.multiplicity - amount;
  copy->n_edges = p->current.n_edges;
  memcpy(copy->edges, p->current.edges, (size_t)copy->n_edges * sizeof *copy->edges);
  p->current.multiplicity = amount;
  return tie_waiting(p, p->n_waiting++, 1);
}

static copse_status extend(struct packer *p, int x, struct link *link, int64_t amount) {
  if (amount < p->current.multiplicity) COPSE_DO(split_family(p, amount));
  if (!p->trusting) {
    COPSE_DO(copse_flow_change(p->flow, x, link->dst, -amount, p->err));
    link->in_flow -= amount;
  }
  link->left -= amount;
  enter_cuts(p, x, link->dst, amount);
  p->current.edges[p->current.n_edges++] = (struct copse_packed_edge){x, link->dst};
  p->in_tree[link->dst] = true;
  p->order[p->n_order++] = link->dst;
  return COPSE_OK;
}

/* Whether it is worth asking for a link beside the best one so far. */
static bool may_be_better(const struct packer *p, const struct link *link, const struct link *best,
                          int64_t amount) {
  if (amount < p->current.multiplicity) return link->left > amount;
  return p->best_fit && link->left >= amount && link->left < best->left;
}

/*
 * Finds the best extension from x: the whole family over one link if that is safe, else the
 * largest part found. NULL: x has no usable link any more.
 */
static copse_status best_extension(struct packer *p, int x, struct link **best, int64_t *amount) {
  *best = NULL;
  *amount = 0;
  for (int i = p->first_link[x]; i < p->first_link[x + 1]; i++) {
    struct link *link = &p->links[i];
    if (link->left == 0 || p->in_tree[link->dst] || link->blocked_for == p->family_id) continue;
    if (!may_be_better(p, link, *best, *amount)) continue;
    if (p->once && enters_again(p, x, link->dst)) continue;
    int64_t safe;
    COPSE_DO(safe_amount(p, x, link, p->current.multiplicity, &safe));
    if (safe == 0) link->blocked_for = p->family_id;
    if (safe <= *amount && safe < p->current.multiplicity) continue;
    *best = link;
    *amount = safe;
    if (safe == p->current.multiplicity && (!p->best_fit || link->left == safe)) break;
  }
  return COPSE_OK;
}

/* Finds the first vertex after place `from` of the order that can give to the whole family; x stays
 * as it is where there is none. */
static copse_status whole_extension(struct packer *p, int from, int *x, struct link **best,
                                    int64_t *amount) {
  for (int i = from + 1; i < p->n_order; i++) {
    struct link *link;
    int64_t safe;
    COPSE_DO(best_extension(p, p->order[i], &link, &safe));
    if (safe < p->current.multiplicity) continue;
    *x = p->order[i];
    *best = link;
    *amount = safe;
    break;
  }
  return COPSE_OK;
}

static copse_status grow_current(struct packer *p) {
  int target = p->network->n_terminals - 1;
  p->first_open[0] = p->first_open[1] = 0;
  p->family_id++;
  p->once = p->enters_once;
  while (p->current.n_edges < target) {
    struct link *best;
    int64_t amount;
    int *open = &p->first_open[!p->once];
    if (*open == p->n_order && p->once) {
      p->once = false;
      continue;
    }
    if (*open == p->n_order && p->trusting) {
      p->stuck = true;
      return COPSE_OK;
    }
    if (*open == p->n_order)
      return copse_fail(p->err, COPSE_INTERNAL, "tree packing: a tree can't be finished");
    int x = p->order[*open];
    COPSE_DO(best_extension(p, x, &best, &amount));
    if (best) {
      if (p->whole && amount < p->current.multiplicity)
        COPSE_DO(whole_extension(p, *open, &x, &best, &amount));
      COPSE_DO(extend(p, x, best, amount));
      p->once = p->enters_once;
    } else {
      ++*open;
    }
  }
  return COPSE_OK;
}

static copse_status emit_current(struct packer *p) {
  struct copse_packing *out = p->out;
  size_t n = (size_t)p->current.n_edges;
  COPSE_DO(COPSE_GROW(out->trees, out->trees_capacity, out->n_trees + 1, p->err));
  COPSE_DO(COPSE_GROW(out->edges, out->edges_capacity, out->n_edges + n, p->err));
  out->trees[out->n_trees++] =
      (struct copse_packed_tree){p->root, p->current.multiplicity, out->n_edges};
  memcpy(out->edges + out->n_edges, p->current.edges, n * sizeof *out->edges);
  out->n_edges += n;
  return COPSE_OK;
}

/* Makes the vertex set that the current family's edges imply. */
static void restart_vertices(struct packer *p) {
  memset(p->in_tree, 0, (size_t)p->network->n_nodes);
  p->n_order = 0;
  p->order[p->n_order++] = p->root;
  p->in_tree[p->root] = true;
  memcpy(p->touched, copse_cuts_flags(&p->cuts, p->root), (size_t)p->cuts.n);
  for (int i = 0; i < p->current.n_edges; i++) {
    int v = p->current.edges[i].dst;
    p->order[p->n_order++] = v;
    p->in_tree[v] = true;
    for (int j = 0; j < p->cuts.of[v].n; j++) p->touched[p->cuts.of[v].cuts[j]] = true;
  }
}

/*
 * Packs all trees of one root: the family, then every copy that was split off on the way. p->stuck:
 * one could not be finished by trust.
 */
static copse_status pack_root(struct packer *p, const struct copse_net_root *root) {
  int64_t need = root->weight * p->k;
  p->root = root->node;
  p->current.multiplicity = need;
  p->current.n_edges = 0;
  p->n_waiting = 0;
  COPSE_DO(copse_flow_change(p->flow, p->hub, root->node, -need, p->err));
  p->need[root->node] = 0;
  p->others -= need;
  for (;;) {
    restart_vertices(p);
    COPSE_DO(grow_current(p));
    if (p->stuck) break;
    COPSE_DO(emit_current(p));
    if (p->n_waiting == 0) break;
    COPSE_DO(tie_waiting(p, --p->n_waiting, -1));
    const struct family *next = &p->waiting[p->n_waiting];
    p->current.multiplicity = next->multiplicity;
    p->current.n_edges = next->n_edges;
    memcpy(p->current.edges, next->edges, (size_t)next->n_edges * sizeof *next->edges);
  }
  if (!p->trusting) copse_flow_compact(p->flow);
  return COPSE_OK;
}

/* ---- the graph ----------------------------------------------------------------------------- */

static copse_status list_links(struct packer *p, struct copse_flow *graph) {
  size_t n = 0, most = 2 * (size_t)copse_flow_links(graph); /* both ways of each pair */
  COPSE_DO(COPSE_ARRAY(&p->arena, most, p->links, p->err));
  for (int v = 0; v < p->network->n_nodes; v++) {
    struct copse_flow_neighbours leaving = copse_flow_leaving(graph, v);
    p->first_link[v] = (int)n;
    for (int i = 0; i < leaving.n; i++)
      p->links[n++] =
          (struct link){leaving.nodes[i], leaving.capacities[i], leaving.capacities[i], 0};
  }
  p->first_link[p->network->n_nodes] = (int)n;
  return COPSE_OK;
}

static copse_status build_graph(struct packer *p) {
  const struct copse_network *network = p->network;
  COPSE_DO(copse_flow_new(network->n_nodes + 1 + network->n_terminals, &p->flow, p->err));
  for (int v = 0; v < network->n_nodes; v++)
    for (int i = p->first_link[v]; i < p->first_link[v + 1]; i++)
      COPSE_DO(copse_flow_change(p->flow, v, p->links[i].dst, p->links[i].left, p->err));
  for (int i = 0; i < network->n_roots; i++) {
    int64_t need = network->roots[i].weight * p->k;
    COPSE_DO(copse_flow_change(p->flow, p->hub, network->roots[i].node, need, p->err));
    p->need[network->roots[i].node] = need;
    p->others += need;
  }
  p->unbounded = p->others;
  return COPSE_OK;
}

static copse_status prepare(struct packer *p, struct copse_flow *graph) {
  size_t nodes = (size_t)p->network->n_nodes, terminals = (size_t)p->network->n_terminals;
  struct copse_arena *arena = &p->arena;
  p->hub = p->network->n_nodes;
  COPSE_DO(COPSE_ARRAY(arena, nodes + 1, p->first_link, p->err));
  COPSE_DO(COPSE_ARRAY(arena, terminals + 1, p->waiting, p->err));
  COPSE_DO(COPSE_ARRAY(arena, terminals, p->order, p->err));
  COPSE_DO(COPSE_ARRAY(arena, nodes, p->in_tree, p->err));
  COPSE_DO(COPSE_ARRAY(arena, nodes, p->need, p->err));
  for (size_t i = 0; i <= terminals + 1; i++) {
    struct family *family = i <= terminals ? &p->waiting[i] : &p->current;
    COPSE_DO(COPSE_ARRAY(arena, terminals, family->edges, p->err));
  }
  COPSE_DO(COPSE_ARRAY(arena, nodes, p->inside, p->err));
  COPSE_DO(copse_cuts_new(p->network->n_nodes, COPSE_CUTS_MOST, &p->cuts, p->err));
  COPSE_DO(COPSE_ARRAY(arena, COPSE_CUTS_MOST, p->touched, p->err));
  COPSE_DO(list_links(p, graph));
  COPSE_DO(COPSE_ARRAY(arena, (size_t)p->first_link[nodes], p->saved_left, p->err));
  return build_graph(p);
}

static void release(struct packer *p) {
  copse_flow_free(p->flow);
  copse_cuts_free(&p->cuts);
  copse_sinks_free(&p->sinks);
  copse_arena_free(&p->arena);
}

/* Brings the flow graph up to what was taken by trust. */
static copse_status sync_flow(struct packer *p) {
  for (int v = 0; v < p->network->n_nodes; v++) {
    for (int i = p->first_link[v]; i < p->first_link[v + 1]; i++) {
      struct link *link = &p->links[i];
      if (link->left == link->in_flow) continue;
      COPSE_DO(copse_flow_change(p->flow, v, link->dst, link->left - link->in_flow, p->err));
      link->in_flow = link->left;
    }
  }
  return COPSE_OK;
}

/* ---- proofs -------------------------------------------------------------------------------- */

/* Asks one flow per terminal. Remembers the cuts nearest to the terminals, narrow or broken, until
 * `most` broken ones were found. */
static copse_status ask_terminals(struct packer *p, int most, bool *carried) {
  const struct copse_network *network = p->network;
  struct copse_sink_question question = {.source = p->hub,
                                         .demand = p->others,
                                         .sinks = network->terminals,
                                         .n_sinks = network->n_terminals,
                                         .most = most,
                                         .tight = true,
                                         .threads = network->threads};
  COPSE_DO(copse_sinks_ask(&p->sinks, p->flow, &question, p->err));
  *carried = true;
  for (int i = 0; i < p->sinks.n_cuts; i++) {
    const struct copse_sink_cut *cut = &p->sinks.cuts[i];
    int n = 0;
    if (cut->flows < p->others) *carried = false;
    for (int u = 0; u < network->n_nodes; u++) n += cut->inside[u];
    if (n > 1) COPSE_DO(copse_cuts_add_flags(&p->cuts, cut->inside, 0, NULL, p->err));
  }
  return COPSE_OK;
}

/* Whether the links left carry all trees of the roots not begun (Edmonds). */
static copse_status check_rest(struct packer *p, bool *carried) {
  COPSE_DO(sync_flow(p));
  return ask_terminals(p, COPSE_PACK_MOST_BROKEN, carried);
}

/* Raises what all roots need by `by` trees more for every unit of their weights. */
static copse_status raise_needs(struct packer *p, int64_t by) {
  for (int i = 0; i < p->network->n_roots; i++) {
    const struct copse_net_root *root = &p->network->roots[i];
    COPSE_DO(copse_flow_change(p->flow, p->hub, root->node, root->weight * by, p->err));
    p->others += root->weight * by;
  }
  return COPSE_OK;
}

/*
 * Learns before the first root also the cuts that would be broken by twice the trees. Where one
 * host has lost a NIC its own cut is tight and the cuts of other hosts have room. Trees that enter
 * those hosts by every NIC would use that room up at once.
 */
static copse_status learn_wider(struct packer *p) {
  bool ignored;
  if (p->others > COPSE_FLOW_MAX / 4) return COPSE_OK; /* a hint, not worth an overflow */
  COPSE_DO(raise_needs(p, p->k));
  COPSE_DO(ask_terminals(p, p->network->n_terminals, &ignored));
  return raise_needs(p, -p->k);
}

/* Measures what every known cut can spare, between two roots: links into it less trees into it. */
static void measure_cuts(struct packer *p) {
  const struct copse_network *network = p->network;
  int64_t *slack = p->cuts.slack;
  for (int c = 0; c < p->cuts.n; c++) slack[c] = -p->others;
  for (int v = 0; v < network->n_nodes; v++) {
    const unsigned char *of_v = copse_cuts_flags(&p->cuts, v);
    for (int c = 0; c < p->cuts.n; c++) slack[c] += of_v[c] ? p->need[v] : 0;
    for (int i = p->first_link[v]; i < p->first_link[v + 1]; i++) {
      const struct copse_cuts_of_node *entered = &p->cuts.of[p->links[i].dst];
      for (int j = 0; j < entered->n; j++)
        if (!of_v[entered->cuts[j]]) slack[entered->cuts[j]] += p->links[i].left;
    }
  }
}

/* ---- by trust ------------------------------------------------------------------------------ */

/* How far trust has been found to carry. */
struct trust {
  int done;             /* roots that are packed for good */
  int batch;            /* roots to try at once */
  int tries;            /* tries of this batch that found new cuts */
  int careful, penalty; /* roots to pack by flows before trusting again; grows with failures */
};

static copse_status restore(struct packer *p, const struct trust *trust, size_t n_trees,
                            size_t n_edges) {
  int n_links = p->first_link[p->network->n_nodes];
  for (int i = 0; i < n_links; i++) p->links[i].left = p->saved_left[i];
  p->out->n_trees = n_trees;
  p->out->n_edges = n_edges;
  p->stuck = false;
  for (int i = 0; i < trust->batch; i++) {
    const struct copse_net_root *root = &p->network->roots[trust->done + i];
    int64_t need = root->weight * p->k, missing = need - p->need[root->node];
    COPSE_DO(copse_flow_change(p->flow, p->hub, root->node, missing, p->err));
    p->need[root->node] = need;
    p->others += missing;
  }
  COPSE_DO(sync_flow(p));
  measure_cuts(p);
  return COPSE_OK;
}

/* Chooses what to try instead of a batch that did not hold. `finished` of its roots got their
 * trees. */
static void lower_trust(struct trust *trust, int finished, bool learned) {
  if (learned && trust->tries++ < COPSE_PACK_TRIES) return;
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
static copse_status pack_batch(struct packer *p, struct trust *trust) {
  int n_links = p->first_link[p->network->n_nodes], finished = 0, known = p->cuts.n;
  size_t n_trees = p->out->n_trees, n_edges = p->out->n_edges;
  if (trust->batch > p->network->n_roots - trust->done)
    trust->batch = p->network->n_roots - trust->done;
  for (int i = 0; i < n_links; i++) p->saved_left[i] = p->links[i].left;
  p->trusting = true;
  while (finished < trust->batch && !p->stuck) {
    COPSE_DO(pack_root(p, &p->network->roots[trust->done + finished]));
    if (!p->stuck) finished++;
  }
  p->trusting = false;
  bool carried = finished == trust->batch;
  if (carried && p->others > 0) COPSE_DO(check_rest(p, &carried));
  if (carried) {
    trust->done += trust->batch;
    trust->batch *= 2;
    trust->tries = 0;
    return COPSE_OK;
  }
  COPSE_DO(restore(p, trust, n_trees, n_edges));
  lower_trust(trust, finished, p->cuts.n > known);
  return COPSE_OK;
}

copse_status copse_pack_trees(const struct copse_tree_problem *problem, struct copse_flow *flow,
                              struct copse_packing *out, struct copse_err *err) {
  const struct copse_network *network = problem->network;
  COPSE_AT_END(copse_packing_free) struct copse_packing packed = {0};
  COPSE_AT_END(release)
  struct packer p = {.network = network,
                     .k = problem->k,
                     .best_fit = problem->packing >= COPSE_PACK_BEST_FIT,
                     .whole = problem->packing == COPSE_PACK_WHOLE,
                     .out = &packed,
                     .enters_once = network->n_roots >= problem->trust_from,
                     .err = err};
  struct trust trust = {.batch = network->n_roots, .penalty = 1};
  if (!p.enters_once) trust.batch = (int)copse_smaller(network->n_roots, COPSE_PACK_FIRST_BATCH);
  bool carried;
  *out = (struct copse_packing){0};
  COPSE_DO(prepare(&p, flow));
  COPSE_DO(check_rest(&p, &carried));
  if (p.enters_once) COPSE_DO(learn_wider(&p));
  measure_cuts(&p);
  while (trust.done < network->n_roots) {
    if (trust.careful == 0) {
      COPSE_DO(pack_batch(&p, &trust));
    } else {
      COPSE_DO(pack_root(&p, &network->roots[trust.done++]));
      trust.careful--;
    }
    copse_progress_report(problem->progress, "pack", trust.done, network->n_roots);
  }
  *out = packed;
  packed = (struct copse_packing){0};
  return COPSE_OK;
}
