#include "solver/template.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/rational.h"
#include "solver/template_cuts.h"

/* So often orbits that ran out are avoided a little more, and all is tried again. */
#define MOST_LEVELS 8

struct edge {
  int src, dst;
  size_t first; /* its path: grower.path[first] .. */
  int n_path;
};

/* `multiplicity` equal trees, grown so far. */
struct family {
  int64_t multiplicity;
  int n_edges;
  struct edge *edges; /* [n_terminals - 1] */
};

struct grower {
  const struct copse_network *network;
  int n_orbits;
  int *orbit;               /* [n_links] */
  int64_t *left;            /* [n_orbits] what the base trees may still use */
  int *avoid;               /* [n_orbits] 0: taken at once; others as a later resort, by number */
  int *first_link, *by_src; /* links by source: by_src[first_link[v]] .. */
  struct copse_template_cuts cuts;
  bool *is_terminal, *in_tree; /* [n_nodes] */
  unsigned char *touched;      /* [cuts.n] the tree is in the cut already */
  int root;
  int *order; /* [n_terminals] the tree's, as they joined */
  int n_order;
  int level, top_level;  /* orbits to be avoided more than `level` are not taken now */
  int open[MOST_LEVELS]; /* by level: vertices of `order` before it have no way left */
  struct family current;
  struct family *waiting; /* split off, to be finished later */
  size_t n_waiting, waiting_capacity;
  int *path; /* all edges' paths */
  size_t n_path, path_capacity;
  int *via;   /* [n_nodes] the link by which the search came to a relay */
  int *stamp; /* [n_nodes] the search that saw it last */
  int n_searches;
  int *queue;  /* [n_nodes] */
  int *chosen; /* [n_nodes] links of the path at hand, last first */
  struct copse_forest *forest;
  struct copse_forest_tree *trees;
  size_t n_trees, trees_capacity;
  int *depth; /* [n_nodes] */
  struct copse_err *err;
};

/* ---- orbits --------------------------------------------------------------------------------- */

static int find_set(int *parent, int i) {
  while (parent[i] != i) i = parent[i] = parent[parent[i]];
  return i;
}

static void join_sets(int *parent, int a, int b) {
  a = find_set(parent, a);
  b = find_set(parent, b);
  if (a < b) parent[b] = a;
  if (b < a) parent[a] = b;
}

/* Parents of a union-find over links: links that some product exchanges are in one set. */
static copse_status join_links(const struct grower *g,
                               const struct copse_network_symmetry *symmetry, int *parent) {
  copse_status status = COPSE_OK;
  int *image = NULL;
  for (int e = 0; e < g->network->n_links; e++) parent[e] = e;
  for (int i = 0; i < symmetry->n; i++) {
    COPSE_TRY(copse_links_image(g->network, &symmetry->generators[i], &image, g->err));
    for (int e = 0; e < g->network->n_links; e++) join_sets(parent, e, image[e]);
    free(image);
    image = NULL;
  }
out:
  free(image);
  return status;
}

/*
 * Orbits, and what their links may carry of base trees: c * |O| / |H| (see the header), rounded
 * down. *times is the least multiple of everything without rounding.
 */
static copse_status make_orbits(struct grower *g, const int64_t *capacities,
                                const struct copse_network_symmetry *symmetry, int64_t times_now,
                                int64_t *times) {
  int n = g->network->n_links, n_products = 1;
  int *parent = NULL, *size = NULL;
  copse_status status;
  *times = 1;
  COPSE_TRY(copse_calloc((size_t)n, sizeof *parent, &parent, g->err));
  COPSE_TRY(copse_calloc((size_t)n, sizeof *size, &size, g->err));
  for (int i = 0; i < symmetry->n; i++) n_products *= symmetry->generators[i].order;
  COPSE_TRY(join_links(g, symmetry, parent));
  for (int e = 0; e < n; e++) size[find_set(parent, e)]++;
  g->n_orbits = 0;
  for (int e = 0; e < n; e++) { /* a set's first link is its parent */
    int set = find_set(parent, e);
    int64_t capacity, staying = n_products / size[set];
    if (copse_mul_overflows(capacities[e], times_now, &capacity)) capacity = INT64_MAX;
    if (set == e) g->left[g->n_orbits++] = INT64_MAX;
    g->orbit[e] = set == e ? g->n_orbits - 1 : g->orbit[set];
    /* capacities for a fixed k may differ within an orbit: the least holds */
    int64_t *left = &g->left[g->orbit[e]];
    if (capacity / staying < *left) *left = capacity / staying;
    COPSE_TRY(copse_lcm(*times, staying / copse_gcd(staying, capacities[e]), times, g->err));
  }
out:
  free(parent);
  free(size);
  return status;
}

/* The first root of every orbit. */
static copse_status find_bases(const struct grower *g,
                               const struct copse_network_symmetry *symmetry, int *bases,
                               int *n_bases) {
  int n = g->network->n_nodes;
  int *parent = NULL;
  bool *taken = NULL;
  copse_status status;
  *n_bases = 0;
  COPSE_TRY(copse_calloc((size_t)n, sizeof *parent, &parent, g->err));
  COPSE_TRY(copse_calloc((size_t)n, 1, &taken, g->err));
  for (int v = 0; v < n; v++) parent[v] = v;
  for (int i = 0; i < symmetry->n; i++)
    for (int v = 0; v < n; v++) join_sets(parent, v, symmetry->generators[i].image[v]);
  for (int i = 0; i < g->network->n_roots; i++) {
    int set = find_set(parent, g->network->roots[i].node);
    if (!taken[set]) bases[(*n_bases)++] = i;
    taken[set] = true;
  }
out:
  free(parent);
  free(taken);
  return status;
}

/* ---- growing -------------------------------------------------------------------------------- */

/* Whether the tree may cross into every cut that the link enters: each only once. */
static bool may_enter(const struct grower *g, const struct copse_net_link *link) {
  const struct copse_template_cuts *cuts = &g->cuts;
  for (int i = cuts->first[link->dst]; i < cuts->first[link->dst + 1]; i++)
    if (g->touched[cuts->cuts[i]] && !copse_template_cuts_hold(cuts, cuts->cuts[i], link->src))
      return false;
  return true;
}

/* A path that enters a cut must end in it: else the tree would have to enter once more. */
static bool ends_inside(const struct grower *g, const struct copse_net_link *link, int end) {
  const struct copse_template_cuts *cuts = &g->cuts;
  for (int i = cuts->first[link->dst]; i < cuts->first[link->dst + 1]; i++)
    if (!copse_template_cuts_hold(cuts, cuts->cuts[i], link->src) &&
        !copse_template_cuts_hold(cuts, cuts->cuts[i], end))
      return false;
  return true;
}

/* The links from x to the end of `last`, last first, into g->chosen; returns how many. */
static int collect_path(struct grower *g, int x, int last) {
  int n = 0;
  for (int e = last;; e = g->via[g->network->links[e].src]) {
    g->chosen[n++] = e;
    if (g->network->links[e].src == x) return n;
  }
}

/* How many of `want` the path can carry; 0 where the rule of cuts forbids it. */
static int64_t path_amount(const struct grower *g, int n, int64_t want) {
  int end = g->network->links[g->chosen[0]].dst;
  for (int i = 0; i < n && want > 0; i++) {
    int64_t uses = 1, left = g->left[g->orbit[g->chosen[i]]];
    for (int j = 0; j < i; j++) uses += g->orbit[g->chosen[j]] == g->orbit[g->chosen[i]];
    if (left / uses < want) want = left / uses;
    const struct copse_net_link *link = &g->network->links[g->chosen[i]];
    if (!may_enter(g, link) || !ends_inside(g, link, end)) return 0;
  }
  return want;
}

static copse_status split_family(struct grower *g, int64_t amount) {
  copse_status status;
  COPSE_TRY(
      copse_grow(&g->waiting, &g->waiting_capacity, g->n_waiting + 1, sizeof *g->waiting, g->err));
  struct family *copy = &g->waiting[g->n_waiting];
  *copy = (struct family){g->current.multiplicity - amount, g->current.n_edges, NULL};
  COPSE_TRY(copse_calloc((size_t)copy->n_edges, sizeof *copy->edges, &copy->edges, g->err));
  memcpy(copy->edges, g->current.edges, (size_t)copy->n_edges * sizeof *copy->edges);
  g->n_waiting++;
  g->current.multiplicity = amount;
out:
  return status;
}

static void join_tree(struct grower *g, int node) {
  g->in_tree[node] = true;
  g->order[g->n_order++] = node;
  for (int i = g->cuts.first[node]; i < g->cuts.first[node + 1]; i++)
    g->touched[g->cuts.cuts[i]] = 1;
}

/* The current family takes the path of g->chosen. */
static copse_status extend(struct grower *g, int n, int64_t amount) {
  const struct copse_net_link *links = g->network->links;
  copse_status status = COPSE_OK;
  if (amount < g->current.multiplicity) COPSE_TRY(split_family(g, amount));
  COPSE_TRY(
      copse_grow(&g->path, &g->path_capacity, g->n_path + (size_t)n + 1, sizeof *g->path, g->err));
  struct edge edge = {links[g->chosen[n - 1]].src, links[g->chosen[0]].dst, g->n_path, n + 1};
  g->path[g->n_path++] = edge.src;
  for (int i = n - 1; i >= 0; i--) {
    g->path[g->n_path++] = links[g->chosen[i]].dst;
    g->left[g->orbit[g->chosen[i]]] -= amount;
  }
  g->current.edges[g->current.n_edges++] = edge;
  join_tree(g, edge.dst);
out:
  return status;
}

/*
 * From x over relays to terminals that are not in the tree, nearest first. With `part` false,
 * takes the ways that carry the whole family: all of them at level 0, else one. With `part`, only
 * finds the way that carries most of it.
 */
static copse_status search(struct grower *g, int x, bool part, int64_t *most, int *most_end) {
  int head = 0, tail = 0;
  int64_t whole = g->current.multiplicity;
  copse_status status = COPSE_OK;
  *most = 0;
  g->n_searches++;
  g->queue[tail++] = x;
  while (head < tail) {
    int a = g->queue[head++];
    for (int i = g->first_link[a]; i < g->first_link[a + 1]; i++) {
      int e = g->by_src[i], b = g->network->links[e].dst;
      bool terminal = g->is_terminal[b];
      if (terminal ? g->in_tree[b] : g->stamp[b] == g->n_searches) continue;
      if (g->left[g->orbit[e]] < (part ? 1 : whole) || g->avoid[g->orbit[e]] > g->level) continue;
      if (!terminal) {
        if (!may_enter(g, &g->network->links[e])) continue;
        g->stamp[b] = g->n_searches;
        g->via[b] = e;
        g->queue[tail++] = b;
        continue;
      }
      int n = collect_path(g, x, e);
      int64_t amount = path_amount(g, n, whole);
      if (!part && amount == whole) {
        COPSE_TRY(extend(g, n, whole));
        if (g->level > 0) {
          *most = whole;
          return COPSE_OK;
        }
      }
      if (amount > *most) {
        *most = amount;
        *most_end = e;
      }
    }
  }
out:
  return status;
}

/* Splits the family where no way carries the whole of it. *stuck: no way at all. */
static copse_status grow_part(struct grower *g, bool *stuck) {
  copse_status status = COPSE_OK;
  *stuck = true;
  for (int i = 0; i < g->n_order && *stuck; i++) {
    int64_t amount;
    int end;
    COPSE_TRY(search(g, g->order[i], true, &amount, &end));
    if (amount == 0) continue;
    *stuck = false;
    int n = collect_path(g, g->order[i], end);
    COPSE_TRY(extend(g, n, amount));
    memset(g->open, 0, sizeof g->open); /* fewer go where more did not */
  }
out:
  return status;
}

/* At each step the lowest level that has a way. What has none stays so: room only shrinks, and
 * the tree only grows. */
static copse_status grow_current(struct grower *g, bool *stuck) {
  int target = g->network->n_terminals - 1, ignored;
  int64_t amount;
  copse_status status = COPSE_OK;
  *stuck = false;
  g->level = 0;
  memset(g->open, 0, sizeof g->open);
  while (g->current.n_edges < target && !*stuck) {
    int *open = &g->open[g->level];
    if (*open < g->n_order) {
      COPSE_TRY(search(g, g->order[*open], false, &amount, &ignored));
      if (g->level > 0 && amount == g->current.multiplicity)
        g->level = 0;
      else
        ++*open;
    } else if (g->level < g->top_level) {
      g->level++;
    } else {
      COPSE_TRY(grow_part(g, stuck));
      g->level = 0;
    }
  }
out:
  return status;
}

/* The vertices that the current family's edges imply. */
static void restart(struct grower *g) {
  memset(g->in_tree, 0, (size_t)g->network->n_nodes);
  memset(g->touched, 0, (size_t)g->cuts.n);
  g->n_order = 0;
  join_tree(g, g->root);
  for (int i = 0; i < g->current.n_edges; i++) join_tree(g, g->current.edges[i].dst);
}

/* The current family is a tree. */
static copse_status emit(struct grower *g) {
  int n = g->current.n_edges;
  struct copse_forest_tree tree = {.root = g->root, .multiplicity = g->current.multiplicity};
  struct copse_forest_edge *edges =
      copse_arena_alloc(&g->forest->arena, n ? (size_t)n : 1, sizeof *edges);
  copse_status status = COPSE_OK;
  if (!edges) return copse_fail_nomem(g->err);
  g->depth[g->root] = 0;
  for (int i = 0; i < n; i++) {
    const struct edge *from = &g->current.edges[i];
    size_t bytes = (size_t)from->n_path * sizeof(int);
    int *path = copse_arena_alloc(&g->forest->arena, (size_t)from->n_path, sizeof *path);
    if (!path) return copse_fail_nomem(g->err);
    memcpy(path, g->path + from->first, bytes);
    edges[i] = (struct copse_forest_edge){from->src, from->dst, path, from->n_path};
    int depth = g->depth[from->dst] = g->depth[from->src] + 1;
    if (depth > tree.height) tree.height = depth;
  }
  tree.edges = edges;
  COPSE_TRY(copse_grow(&g->trees, &g->trees_capacity, g->n_trees + 1, sizeof *g->trees, g->err));
  g->trees[g->n_trees++] = tree;
out:
  return status;
}

static copse_status grow_root(struct grower *g, int root, int64_t multiplicity, bool *stuck) {
  copse_status status = COPSE_OK;
  g->root = root;
  g->current.multiplicity = multiplicity;
  g->current.n_edges = 0;
  g->n_path = 0;
  for (;;) {
    restart(g);
    COPSE_TRY(grow_current(g, stuck));
    if (*stuck) break;
    COPSE_TRY(emit(g));
    if (g->n_waiting == 0) break;
    struct family *next = &g->waiting[--g->n_waiting];
    g->current.multiplicity = next->multiplicity;
    g->current.n_edges = next->n_edges;
    memcpy(g->current.edges, next->edges, (size_t)next->n_edges * sizeof *next->edges);
    free(next->edges);
  }
out:
  return status;
}

/* ---- all together ---------------------------------------------------------------------------- */

static copse_status list_links(struct grower *g) {
  const struct copse_network *network = g->network;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)network->n_nodes + 2, sizeof(int), &g->first_link, g->err));
  COPSE_TRY(copse_calloc((size_t)network->n_links, sizeof(int), &g->by_src, g->err));
  for (int e = 0; e < network->n_links; e++) g->first_link[network->links[e].src + 2]++;
  for (int v = 0; v < network->n_nodes; v++) g->first_link[v + 2] += g->first_link[v + 1];
  for (int e = 0; e < network->n_links; e++)
    g->by_src[g->first_link[network->links[e].src + 1]++] = e;
out:
  return status;
}

static copse_status prepare(struct grower *g) {
  size_t n = (size_t)g->network->n_nodes, m = (size_t)g->network->n_links;
  size_t terminals = (size_t)g->network->n_terminals;
  copse_status status;
  COPSE_TRY(list_links(g));
  COPSE_TRY(copse_calloc(m, sizeof(int), &g->orbit, g->err));
  COPSE_TRY(copse_calloc(m, sizeof(int64_t), &g->left, g->err));
  COPSE_TRY(copse_calloc(m, sizeof(int), &g->avoid, g->err));
  COPSE_TRY(copse_calloc(n, 1, &g->is_terminal, g->err));
  COPSE_TRY(copse_calloc(n, 1, &g->in_tree, g->err));
  COPSE_TRY(copse_calloc(terminals, sizeof(int), &g->order, g->err));
  COPSE_TRY(copse_calloc(terminals, sizeof *g->current.edges, &g->current.edges, g->err));
  COPSE_TRY(copse_calloc(n, sizeof(int), &g->via, g->err));
  COPSE_TRY(copse_calloc(n, sizeof(int), &g->stamp, g->err));
  COPSE_TRY(copse_calloc(n, sizeof(int), &g->queue, g->err));
  COPSE_TRY(copse_calloc(n, sizeof(int), &g->chosen, g->err));
  COPSE_TRY(copse_calloc(n, sizeof(int), &g->depth, g->err));
  for (int i = 0; i < g->network->n_terminals; i++) g->is_terminal[g->network->terminals[i]] = true;
out:
  return status;
}

static void release(struct grower *g) {
  while (g->n_waiting > 0) free(g->waiting[--g->n_waiting].edges);
  free(g->waiting);
  free(g->orbit);
  free(g->left);
  free(g->avoid);
  free(g->first_link);
  free(g->by_src);
  copse_template_cuts_free(&g->cuts);
  free(g->is_terminal);
  free(g->in_tree);
  free(g->touched);
  free(g->order);
  free(g->current.edges);
  free(g->path);
  free(g->via);
  free(g->stamp);
  free(g->queue);
  free(g->chosen);
  free(g->depth);
  free(g->trees);
}

/* k trees of every base root, within what is left. */
static copse_status grow_once(struct grower *g, int64_t k, const int *bases, int n_bases,
                              const struct copse_progress *progress, bool *packed) {
  copse_status status = COPSE_OK;
  bool stuck = false;
  int64_t multiplicity;
  g->n_trees = 0;
  for (int i = 0; i < n_bases && !stuck; i++) {
    const struct copse_net_root *root = &g->network->roots[bases[i]];
    if (copse_mul_overflows(root->weight, k, &multiplicity))
      return copse_fail(g->err, COPSE_OVERFLOW, "the number of trees needs more than 63 bits");
    COPSE_TRY(grow_root(g, root->node, multiplicity, &stuck));
    copse_progress_report(progress, "pack", i + 1, n_bases);
  }
  while (g->n_waiting > 0) free(g->waiting[--g->n_waiting].edges);
  *packed = !stuck;
out:
  return status;
}

/*
 * The trees; again where they got stuck, with more care for the orbits that ran out first: what
 * else there is is used before them.
 */
static copse_status grow_all(struct grower *g, int64_t k, const int *bases, int n_bases,
                             const struct copse_progress *progress, bool *packed) {
  size_t bytes = (size_t)g->n_orbits * sizeof *g->left;
  int64_t *all = NULL;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)g->n_orbits, sizeof *all, &all, g->err));
  memcpy(all, g->left, bytes);
  memset(g->avoid, 0, (size_t)g->n_orbits * sizeof *g->avoid);
  for (g->top_level = 0;; g->top_level++) {
    COPSE_TRY(grow_once(g, k, bases, n_bases, progress, packed));
    if (*packed) break;
    copse_arena_free(&g->forest->arena); /* nothing else is in it yet */
    if (g->top_level + 1 == MOST_LEVELS) break;
    for (int o = 0; o < g->n_orbits; o++) g->avoid[o] += g->left[o] < g->current.multiplicity;
    memcpy(g->left, all, bytes);
  }
out:
  free(all);
  return status;
}

/* Beyond, the numbers of trees are no use to anybody. */
#define MOST_TIMES 4096
/* Base roots times terminals: symmetry that leaves more is not worth much, and takes memory. */
#define MOST_TO_GROW (1 << 24)

static copse_status keep_trees(struct grower *g) {
  struct copse_forest_tree *trees = copse_arena_alloc(&g->forest->arena, g->n_trees, sizeof *trees);
  if (!trees) return copse_fail_nomem(g->err);
  memcpy(trees, g->trees, g->n_trees * sizeof *trees);
  g->forest->trees = trees;
  g->forest->n_trees = (int)g->n_trees;
  return COPSE_OK;
}

copse_status copse_template_pack(const struct copse_network *network, const int64_t *capacities,
                                 int64_t k, const struct copse_network_symmetry *symmetry,
                                 bool multiple, const struct copse_progress *progress,
                                 struct copse_forest *forest, bool *packed, struct copse_err *err) {
  struct grower g = {.network = network, .forest = forest, .err = err};
  int *bases = NULL, *sinks = NULL, n_bases;
  int64_t whole;
  copse_status status;
  *packed = false;
  COPSE_TRY(copse_calloc((size_t)network->n_roots, sizeof(int), &bases, err));
  COPSE_TRY(copse_calloc((size_t)network->n_roots, sizeof(int), &sinks, err));
  COPSE_TRY(prepare(&g));
  COPSE_TRY(find_bases(&g, symmetry, bases, &n_bases));
  if ((int64_t)n_bases * network->n_terminals > MOST_TO_GROW) goto out;
  for (int i = 0; i < n_bases; i++) sinks[i] = network->roots[bases[i]].node;
  COPSE_TRY(
      copse_template_cuts_find(network, capacities, k, symmetry, sinks, n_bases, &g.cuts, err));
  COPSE_TRY(copse_calloc((size_t)g.cuts.n, 1, &g.touched, err));
  COPSE_TRY(make_orbits(&g, capacities, symmetry, 1, &whole));
  COPSE_TRY(grow_all(&g, k, bases, n_bases, progress, packed));
  if (!*packed && multiple && whole > 1 && whole <= MOST_TIMES &&
      !copse_mul_overflows(k, whole, &k)) {
    COPSE_TRY(make_orbits(&g, capacities, symmetry, whole, &whole));
    COPSE_TRY(grow_all(&g, k, bases, n_bases, progress, packed));
  }
  if (!*packed) goto out;
  forest->k = k;
  status = keep_trees(&g);
out:
  release(&g);
  free(bases);
  free(sinks);
  return status;
}
