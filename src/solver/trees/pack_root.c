#include <string.h>

#include "base/memory.h"
#include "solver/trees/pack_internal.h"

/*
 * What the known cuts leave for x -> y: a cut that the current family is in already must be
 * entered no more, except for what it can spare.
 */
static int64_t spared_by_cuts(const struct copse_packer *p, int x, int y, int64_t want) {
  const unsigned char *of_x = copse_cuts_of(&p->cuts, x);
  const int *entered = copse_cuts_holding(&p->cuts, y);
  for (int i = 0; i < p->cuts.n_holding[y]; i++) {
    int c = entered[i];
    if (p->touched[c] && !of_x[c] && p->cuts.slack[c] < want) want = p->cuts.slack[c];
  }
  return want;
}

/* Whether x -> y enters a cut that the current family is in already. */
static bool enters_again(const struct copse_packer *p, int x, int y) {
  const unsigned char *of_x = copse_cuts_of(&p->cuts, x);
  const int *entered = copse_cuts_holding(&p->cuts, y);
  for (int i = 0; i < p->cuts.n_holding[y]; i++)
    if (p->touched[entered[i]] && !of_x[entered[i]]) return true;
  return false;
}

/* The same after x -> y was taken. */
static void enter_cuts(struct copse_packer *p, int x, int y, int64_t amount) {
  const unsigned char *of_x = copse_cuts_of(&p->cuts, x);
  const int *entered = copse_cuts_holding(&p->cuts, y);
  for (int i = 0; i < p->cuts.n_holding[y]; i++) {
    int c = entered[i];
    if (p->touched[c] && !of_x[c]) p->cuts.slack[c] -= amount;
    p->touched[c] = true;
  }
}

/* After a flow that fell short: its cut can spare `slack`, and the current family is in it. */
static void learn_from_flow(struct copse_packer *p, int64_t slack) {
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
static int64_t evident_flow(struct copse_packer *p, int x, int y) {
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
static copse_status safe_amount(struct copse_packer *p, int x, const struct copse_pack_link *link,
                                int64_t want, int64_t *safe, struct copse_err *err) {
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
static int waiting_node(const struct copse_packer *p, int slot) { return p->hub + 1 + slot; }

/* Ties (sign = 1) or unties (-1) a waiting family to all vertices that it has. */
static copse_status tie_waiting(struct copse_packer *p, int slot, int64_t sign,
                                struct copse_err *err) {
  const struct copse_pack_family *family = &p->waiting[slot];
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
static copse_status split_family(struct copse_packer *p, int64_t amount, struct copse_err *err) {
  struct copse_pack_family *copy = &p->waiting[p->n_waiting];
  copy->multiplicity = p->current.multiplicity - amount;
  copy->n_edges = p->current.n_edges;
  memcpy(copy->edges, p->current.edges, (size_t)copy->n_edges * sizeof *copy->edges);
  p->current.multiplicity = amount;
  return tie_waiting(p, p->n_waiting++, 1, err);
}

static copse_status extend(struct copse_packer *p, int x, struct copse_pack_link *link,
                           int64_t amount, struct copse_err *err) {
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
static copse_status best_extension(struct copse_packer *p, int x, struct copse_pack_link **best,
                                   int64_t *amount, struct copse_err *err) {
  copse_status status = COPSE_OK;
  *best = NULL;
  *amount = 0;
  for (int i = p->first_link[x]; i < p->first_link[x + 1]; i++) {
    struct copse_pack_link *link = &p->links[i];
    if (link->left == 0 || p->in_tree[link->dst] || link->blocked_for == p->family_id) continue;
    if (link->left <= *amount) continue;
    if (p->once && enters_again(p, x, link->dst)) continue;
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

static copse_status grow_current(struct copse_packer *p, struct copse_err *err) {
  copse_status status = COPSE_OK;
  int target = p->network->n_terminals - 1;
  p->first_open[0] = p->first_open[1] = 0;
  p->family_id++;
  p->once = p->enters_once;
  while (p->current.n_edges < target) {
    struct copse_pack_link *best;
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
      return copse_fail(err, COPSE_INTERNAL, "tree packing: a tree can't be finished");
    COPSE_TRY(best_extension(p, p->order[*open], &best, &amount, err));
    if (best) {
      COPSE_TRY(extend(p, p->order[*open], best, amount, err));
      p->once = p->enters_once;
    } else {
      ++*open;
    }
  }
out:
  return status;
}

static copse_status emit_current(struct copse_packer *p, struct copse_err *err) {
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
static void restart_vertices(struct copse_packer *p) {
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

copse_status copse_packer_root(struct copse_packer *p, const struct copse_net_root *root,
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
    const struct copse_pack_family *next = &p->waiting[p->n_waiting];
    p->current.multiplicity = next->multiplicity;
    p->current.n_edges = next->n_edges;
    memcpy(p->current.edges, next->edges, (size_t)next->n_edges * sizeof *next->edges);
  }
  if (!p->trusting) copse_flow_compact(p->flow);
out:
  return status;
}
