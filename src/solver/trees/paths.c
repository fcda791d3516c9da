/*
 * Bundles of pieces by pair of nodes; the paths of all pieces share what they have
 * in common. Splitting w off by the pair u -> w, w -> t:
 *
 *      before    u --- 5:p ---> w --- 3:q, 2:r ---> t       amount:path
 *      after     u ------- 3:(p q), 2:(p r) ------> t       (p q) is p, then q
 *
 * At the end packed trees are laid on physical links: a tree whose edge needs several pieces
 * becomes several trees.
 */
#include "solver/trees/general.h"

#include <stdlib.h>
#include <string.h>

#include "base/graph.h"
#include "base/memory.h"

/* A physical link (left < 0: `right` is its index) or the concatenation of two paths. */
struct path {
  int left, right;
};

struct copse_paths {
  const struct copse_network *network;
  struct path *paths;
  size_t n_paths, paths_capacity;
  struct copse_index_map by_ends; /* bundles */
  struct copse_pieces *bundles;
  size_t n_bundles, bundles_capacity;
  int *stack; /* expansion of paths */
  size_t stack_capacity;
  int *seen_at; /* [n_nodes] position in the path being expanded, -1 elsewhere */
};

/* The number of the bundle of src -> dst, made empty if it isn't there. */
static copse_status get_bundle(struct copse_paths *paths, int src, int dst, int *bundle,
                               struct copse_err *err) {
  size_t cursor = 0;
  *bundle = copse_index_map_next(&paths->by_ends, copse_key_pair(src, dst), &cursor);
  if (*bundle >= 0) return COPSE_OK;
  *bundle = (int)paths->n_bundles;
  COPSE_DO(COPSE_GROW(paths->bundles, paths->bundles_capacity, paths->n_bundles + 1, err));
  COPSE_DO(copse_index_map_add(&paths->by_ends, copse_key_pair(src, dst), *bundle, err));
  paths->bundles[paths->n_bundles++] = (struct copse_pieces){0};
  return COPSE_OK;
}

static copse_status add_path(struct copse_paths *paths, int left, int right, int *index,
                             struct copse_err *err) {
  COPSE_DO(COPSE_GROW(paths->paths, paths->paths_capacity, paths->n_paths + 1, err));
  *index = (int)paths->n_paths;
  paths->paths[paths->n_paths++] = (struct path){left, right};
  return COPSE_OK;
}

static copse_status add_piece(struct copse_pieces *pieces, struct copse_piece piece,
                              struct copse_err *err) {
  copse_status status = COPSE_GROW(pieces->list, pieces->capacity, pieces->n + 1, err);
  if (status == COPSE_OK) pieces->list[pieces->n++] = piece;
  return status;
}

copse_status copse_paths_new(const struct copse_network *network, const int64_t *capacities,
                             struct copse_paths **out, struct copse_err *err) {
  *out = NULL;
  COPSE_DO(copse_calloc(1, sizeof **out, out, err));
  struct copse_paths *paths = *out;
  paths->network = network;
  COPSE_DO(copse_calloc((size_t)network->n_nodes, sizeof(int), &paths->seen_at, err));
  for (int i = 0; i < network->n_nodes; i++) paths->seen_at[i] = -1;
  for (int i = 0; i < network->n_links; i++) {
    int bundle;
    struct copse_piece piece = {.amount = capacities[i]};
    if (capacities[i] == 0) continue;
    COPSE_DO(add_path(paths, -1, i, &piece.path, err));
    COPSE_DO(get_bundle(paths, network->links[i].src, network->links[i].dst, &bundle, err));
    COPSE_DO(add_piece(&paths->bundles[bundle], piece, err));
  }
  return COPSE_OK;
}

void copse_paths_free(struct copse_paths *paths) {
  if (!paths) return;
  for (size_t i = 0; i < paths->n_bundles; i++) free(paths->bundles[i].list);
  free(paths->bundles);
  copse_index_map_free(&paths->by_ends);
  free(paths->paths);
  free(paths->stack);
  free(paths->seen_at);
  free(paths);
}

/* Takes up to `most` off the last piece. */
static struct copse_piece take_last(struct copse_pieces *bundle, int64_t most) {
  struct copse_piece *last = &bundle->list[bundle->n - 1];
  struct copse_piece taken = {last->amount < most ? last->amount : most, last->path};
  last->amount -= taken.amount;
  if (last->amount == 0) bundle->n--;
  return taken;
}

/* The concatenation of two paths; splitting often makes the same one again at once. */
static copse_status join(struct copse_paths *paths, int left, int right, int *index,
                         struct copse_err *err) {
  const struct path *last = &paths->paths[paths->n_paths - 1];
  if (last->left == left && last->right == right) {
    *index = (int)paths->n_paths - 1;
    return COPSE_OK;
  }
  return add_path(paths, left, right, index, err);
}

copse_status copse_paths_split(struct copse_paths *paths, int u, int w, int t, int64_t amount,
                               struct copse_err *err) {
  int of_in, of_out, of_direct = -1;
  COPSE_DO(get_bundle(paths, u, w, &of_in, err));
  COPSE_DO(get_bundle(paths, w, t, &of_out, err));
  if (u != t) COPSE_DO(get_bundle(paths, u, t, &of_direct, err));
  struct copse_pieces *in = &paths->bundles[of_in], *out_of = &paths->bundles[of_out];
  struct copse_pieces *direct = of_direct >= 0 ? &paths->bundles[of_direct] : NULL;
  while (amount > 0) {
    if (in->n == 0 || out_of->n == 0)
      return copse_fail(err, COPSE_INTERNAL, "edge splitting lost track of a path");
    int64_t most = amount < in->list[in->n - 1].amount ? amount : in->list[in->n - 1].amount;
    struct copse_piece second = take_last(out_of, most);
    struct copse_piece first = take_last(in, second.amount);
    amount -= first.amount;
    if (!direct) continue;
    struct copse_piece piece = {first.amount, 0};
    COPSE_DO(join(paths, first.path, second.path, &piece.path, err));
    COPSE_DO(add_piece(direct, piece, err));
  }
  return COPSE_OK;
}

/* The smallest piece that is large enough, else the largest. */
static size_t best_piece(const struct copse_pieces *bundle, int64_t amount) {
  size_t best = 0;
  for (size_t i = 1; i < bundle->n; i++) {
    int64_t a = bundle->list[i].amount, b = bundle->list[best].amount;
    if (b < amount ? a > b : (a >= amount && a < b)) best = i;
  }
  return best;
}

copse_status copse_paths_take(struct copse_paths *paths, int src, int dst, int64_t amount,
                              struct copse_pieces *out, struct copse_err *err) {
  int number;
  copse_status status = get_bundle(paths, src, dst, &number, err);
  while (status == COPSE_OK && amount > 0) {
    struct copse_pieces *bundle = &paths->bundles[number];
    if (bundle->n == 0) return copse_fail(err, COPSE_INTERNAL, "a tree uses more than a link has");
    struct copse_piece *best = &bundle->list[best_piece(bundle, amount)], taken = *best;
    if (taken.amount > amount) taken.amount = amount;
    best->amount -= taken.amount;
    if (best->amount == 0) *best = bundle->list[--bundle->n];
    amount -= taken.amount;
    status = add_piece(out, taken, err);
  }
  return status;
}

/* Appends a node; coming back to one cuts out the loop in between. */
static int append_node(struct copse_paths *paths, int *nodes, int n, int node) {
  if (paths->seen_at[node] >= 0) {
    for (int i = paths->seen_at[node] + 1; i < n; i++) paths->seen_at[nodes[i]] = -1;
    return paths->seen_at[node] + 1;
  }
  paths->seen_at[node] = n;
  nodes[n] = node;
  return n + 1;
}

int copse_paths_expand(struct copse_paths *paths, int path, int *nodes) {
  int n = 0;
  size_t depth = 0;
  for (;;) {
    if (copse_grow(&paths->stack, &paths->stack_capacity, depth + 2, sizeof(int), NULL) != COPSE_OK)
      return 0;
    const struct path *p = &paths->paths[path];
    if (p->left >= 0) { /* left part first, the right part waits */
      paths->stack[depth++] = p->right;
      path = p->left;
      continue;
    }
    const struct copse_net_link *link = &paths->network->links[p->right];
    if (n == 0) n = append_node(paths, nodes, n, link->src);
    n = append_node(paths, nodes, n, link->dst);
    if (depth == 0) break;
    path = paths->stack[--depth];
  }
  for (int i = 0; i < n; i++) paths->seen_at[nodes[i]] = -1;
  return n;
}

/* ---- packed trees on physical paths ------------------------------------------------------- */

struct layer {
  const struct copse_network *network;
  struct copse_paths *paths;
  struct copse_forest *forest;
  struct copse_pieces pieces; /* of all edges of the tree at hand, edge by edge */
  size_t *cursor;             /* [n_terminals] piece that each edge is at */
  size_t *last;               /* [n_terminals] one past the edge's pieces */
  int *nodes;                 /* [n_nodes + 1] path under expansion */
  int *depth;                 /* [n_nodes + 1] */
  struct copse_arena scratch; /* the four arrays above */
};

static void release(struct layer *l) {
  free(l->pieces.list);
  copse_arena_free(&l->scratch);
}

static copse_status fill_edge(struct layer *l, struct copse_packed_edge edge, int path,
                              struct copse_forest_edge *out, struct copse_err *err) {
  int n = copse_paths_expand(l->paths, path, l->nodes);
  int *copy = n > 0 ? copse_arena_alloc(&l->forest->arena, (size_t)n, sizeof *copy) : NULL;
  if (!copy) return copse_fail_nomem(err);
  memcpy(copy, l->nodes, (size_t)n * sizeof *copy);
  *out = (struct copse_forest_edge){edge.src, edge.dst, copy, n};
  return COPSE_OK;
}

/* One tree with the piece that each edge is at. */
static copse_status add_tree(struct layer *l, int root, const struct copse_packed_edge *edges,
                             int64_t multiplicity, struct copse_err *err) {
  size_t n = (size_t)l->network->n_terminals - 1;
  struct copse_forest_tree tree = {.root = root, .multiplicity = multiplicity};
  struct copse_forest_edge *copy;
  COPSE_DO(COPSE_ARRAY(&l->forest->arena, n, copy, err));
  for (size_t i = 0; i < n; i++)
    COPSE_DO(fill_edge(l, edges[i], l->pieces.list[l->cursor[i]].path, &copy[i], err));
  tree.edges = copy;
  return copse_forest_add(l->forest, tree, (int)n, l->depth, err);
}

/* A family whose edges lie on several paths becomes several trees: cut where one ends. */
static copse_status lay_tree(struct layer *l, const struct copse_packed_tree *tree,
                             const struct copse_packed_edge *edges, struct copse_err *err) {
  size_t n = (size_t)l->network->n_terminals - 1;
  l->pieces.n = 0;
  for (size_t i = 0; i < n; i++) {
    l->cursor[i] = l->pieces.n;
    COPSE_DO(copse_paths_take(l->paths, edges[i].src, edges[i].dst, tree->multiplicity, &l->pieces,
                              err));
    l->last[i] = l->pieces.n;
  }
  for (int64_t left = tree->multiplicity; left > 0;) {
    int64_t amount = left;
    for (size_t i = 0; i < n; i++)
      if (l->pieces.list[l->cursor[i]].amount < amount)
        amount = l->pieces.list[l->cursor[i]].amount;
    COPSE_DO(add_tree(l, tree->root, edges, amount, err));
    left -= amount;
    for (size_t i = 0; i < n; i++) {
      struct copse_piece *piece = &l->pieces.list[l->cursor[i]];
      piece->amount -= amount;
      if (piece->amount == 0 && l->cursor[i] + 1 < l->last[i]) l->cursor[i]++;
    }
  }
  return COPSE_OK;
}

copse_status copse_paths_lay(struct copse_paths *paths, const struct copse_packing *packing,
                             struct copse_forest *forest, struct copse_err *err) {
  const struct copse_network *network = paths->network;
  COPSE_AT_END(release)
  struct layer l = {.network = network, .paths = paths, .forest = forest};
  size_t nodes = (size_t)network->n_nodes, terminals = (size_t)network->n_terminals;
  COPSE_DO(COPSE_ARRAYS(&l.scratch, terminals, size_t, err, &l.cursor, &l.last));
  COPSE_DO(COPSE_ARRAYS(&l.scratch, nodes + 1, int, err, &l.nodes, &l.depth));
  for (size_t i = 0; i < packing->n_trees; i++)
    COPSE_DO(lay_tree(&l, &packing->trees[i], packing->edges + packing->trees[i].first_edge, err));
  return COPSE_OK;
}
