/*
 * Lower trees at the same loads: the edges of packed trees change places. Where the way of u -> t
 * in one tree and that of u' -> t' in another meet, at w or at t = t', they swap what lies before:
 *
 *      tree 1   u  ---.   .---> t              u  > w > t'    in tree 2
 *                      \ /            =>
 *                       w                      u' > w > t     in tree 1, and t is higher up
 *                      / \                                     if u' is
 *      tree 2   u' ---'   '---> t'             every link carries what it carried
 *
 * In this file: the trees at hand, swaps of single edges, swaps of whole branches, the order of
 * all. docs/theory.md, "Heuristics that prove themselves".
 */
#include "solver/trees/forest.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "solver/policy.h"

/* An edge into a vertex of a tree. `src` is a terminal's number, or -1 at the root. */
struct way {
  const int *path; /* nodes */
  int n_path, src;
  int slot; /* where the list of the ways out of src has it */
};

/* All arrays [n] by the terminal's number. */
struct tree {
  int root;
  int64_t multiplicity;
  struct way *ways; /* to the vertex */
  int *depth;
  int *below; /* height of what hangs below the vertex */
  int height;
  int64_t failed_at;                     /* s->n_changes when no swap was found for it */
  const struct copse_forest_edge *edges; /* as they came, NULL once one of them has changed */
};

/* A way out of a terminal as its list has it, so that most need not be looked up. */
struct entry {
  uint64_t nodes; /* a bit, not of its own, for each node of the path but the first */
  int tree, vertex;
};

struct way_list {
  struct entry *ways;
  size_t n, capacity;
};

struct shortener {
  const struct copse_network *network;
  struct copse_forest *forest;
  int n;         /* terminals */
  int *terminal; /* [n_nodes] its number */
  struct tree *trees;
  size_t n_trees, trees_capacity, most_trees;
  struct way_list *lists; /* [n] */
  uint64_t *passed; /* [n * n_words] by terminal, a bit for each node that some way out of it passes
                       or has passed; NULL: not kept, there are too many */
  size_t n_words;
  int *order;      /* [n] vertices of the tree at hand by depth */
  int *count;      /* [n + 2] scratch */
  int *place;      /* [n_nodes] 1 + where the way at hand is at this node; 0: isn't */
  bool *joined;    /* [n_nodes] scratch: a way that is tried */
  int *chain;      /* [n] from a deepest vertex up */
  int *branch;     /* [n] what hangs below a vertex of the tree at hand */
  bool *in_branch; /* [n] */
  int n_branch;
  int mean_height;   /* of the trees as they came */
  int64_t left;      /* candidates that may still be looked at */
  int64_t n_changes; /* 1 + swaps so far: until the next a tree that failed will fail again */
  struct copse_arena arena; /* owns all arrays but the growing ones */
  struct copse_err *err;
};

/* ---- the trees at hand --------------------------------------------------------------------- */

/* Measures depths by walking up to where one is known. */
static void measure_depths(struct shortener *s, struct tree *tree) {
  int n = s->n;
  for (int v = 0; v < n; v++) tree->depth[v] = -1;
  tree->depth[tree->root] = tree->height = 0;
  for (int v = 0; v < n; v++) {
    int hops = 0, u = v;
    while (tree->depth[u] == -1) {
      hops++;
      u = tree->ways[u].src;
    }
    int depth = tree->depth[u] + hops;
    for (u = v; tree->depth[u] == -1; u = tree->ways[u].src) tree->depth[u] = depth--;
    if (tree->depth[v] > tree->height) tree->height = tree->depth[v];
  }
}

static void sort_by_depth(struct shortener *s, const struct tree *tree) {
  memset(s->count, 0, ((size_t)tree->height + 2) * sizeof *s->count);
  for (int v = 0; v < s->n; v++) s->count[tree->depth[v] + 1]++;
  for (int d = 0; d < tree->height; d++) s->count[d + 1] += s->count[d];
  for (int v = 0; v < s->n; v++) s->order[s->count[tree->depth[v]]++] = v;
}

/* Measures depths and heights of a tree whose ways have changed; its vertices by depth in
 * s->order. */
static void measure(struct shortener *s, struct tree *tree) {
  measure_depths(s, tree);
  sort_by_depth(s, tree);
  memset(tree->below, 0, (size_t)s->n * sizeof *tree->below);
  for (int i = s->n - 1; i > 0; i--) {
    int v = s->order[i], u = tree->ways[v].src;
    if (tree->below[u] < tree->below[v] + 1) tree->below[u] = tree->below[v] + 1;
  }
}

/* Returns the bits of a way's nodes: two ways without a common one don't meet. */
static uint64_t nodes_of(const struct way *way) {
  uint64_t nodes = 0;
  for (int i = 1; i < way->n_path; i++) nodes |= UINT64_C(1) << (way->path[i] & 63);
  return nodes;
}

/* Puts a tree's way to a vertex in its slot in its source's list, in place of another's. */
static void relist(struct shortener *s, int tree, int vertex) {
  const struct way *way = &s->trees[tree].ways[vertex];
  s->lists[way->src].ways[way->slot] = (struct entry){nodes_of(way), tree, vertex};
  for (int i = 1; s->passed && i < way->n_path; i++)
    s->passed[(size_t)way->src * s->n_words + (size_t)way->path[i] / 64] |= UINT64_C(1)
                                                                            << (way->path[i] & 63);
}

/* Gives a tree's way to a vertex a slot in its source's list. */
static copse_status enlist(struct shortener *s, int tree, int vertex) {
  struct way *way = &s->trees[tree].ways[vertex];
  struct way_list *list = &s->lists[way->src];
  COPSE_DO(COPSE_GROW(list->ways, list->capacity, list->n + 1, s->err));
  way->slot = (int)list->n++;
  relist(s, tree, vertex);
  return COPSE_OK;
}

/* Adds one more tree, empty; may move s->trees. */
static copse_status new_tree(struct shortener *s, struct tree **out) {
  size_t n = (size_t)s->n;
  COPSE_DO(COPSE_GROW(s->trees, s->trees_capacity, s->n_trees + 1, s->err));
  struct tree *tree = &s->trees[s->n_trees];
  *tree = (struct tree){0};
  COPSE_DO(COPSE_ARRAY(&s->arena, n, tree->ways, s->err));
  COPSE_DO(COPSE_ARRAYS(&s->arena, n, int, s->err, &tree->depth, &tree->below));
  s->n_trees++;
  *out = tree;
  return COPSE_OK;
}

/* Leaves `amount` of a tree where it is; the rest becomes a tree like it. */
static copse_status cut(struct shortener *s, int from, int64_t amount) {
  struct tree *copy;
  COPSE_DO(new_tree(s, &copy));
  struct tree *tree = &s->trees[from];
  size_t n = (size_t)s->n;
  copy->root = tree->root;
  copy->height = tree->height;
  copy->edges = tree->edges;
  copy->multiplicity = tree->multiplicity - amount;
  tree->multiplicity = amount;
  memcpy(copy->ways, tree->ways, n * sizeof *copy->ways);
  memcpy(copy->depth, tree->depth, n * sizeof *copy->depth);
  memcpy(copy->below, tree->below, n * sizeof *copy->below);
  for (int v = 0; v < s->n; v++)
    if (v != copy->root) COPSE_DO(enlist(s, (int)s->n_trees - 1, v));
  return COPSE_OK;
}

/* Cuts the larger of two trees that are about to swap; may move s->trees. */
static copse_status even_out(struct shortener *s, int tree, int other) {
  int64_t a = s->trees[tree].multiplicity, b = s->trees[other].multiplicity;
  if (a > b) return cut(s, tree, b);
  if (a < b) return cut(s, other, a);
  return COPSE_OK;
}

/* ---- swaps of edges ------------------------------------------------------------------------ */

/* Two ways that could swap what lies before they meet. */
struct swap {
  int tree, vertex, at; /* path[at] is where they meet */
  int other_tree, other_vertex, other_at;
};

/* Whether v hangs below `above`, or is it. */
static bool hangs_below(const struct tree *tree, int v, int above) {
  while (tree->depth[v] > tree->depth[above]) v = tree->ways[v].src;
  return v == above;
}

/* Joins the first `n_head` nodes of one way, then what follows `at` on another; NULL: no memory. */
static int *join(struct shortener *s, const struct way *head, int n_head, const struct way *tail,
                 int at, int *n) {
  int n_tail = tail->n_path - at - 1;
  int *path = copse_arena_alloc(&s->forest->arena, (size_t)(n_head + n_tail), sizeof *path);
  if (!path) return NULL;
  memcpy(path, head->path, (size_t)n_head * sizeof *path);
  memcpy(path + n_head, tail->path + at + 1, (size_t)n_tail * sizeof *path);
  *n = n_head + n_tail;
  return path;
}

/* Carries out a swap of two whole trees' ways. */
static copse_status apply(struct shortener *s, const struct swap *swap) {
  struct tree *tree = &s->trees[swap->tree], *other = &s->trees[swap->other_tree];
  struct way *a = &tree->ways[swap->vertex], *b = &other->ways[swap->other_vertex], old = *a;
  int n_a, n_b;
  int *path_a = join(s, b, swap->other_at + 1, a, swap->at, &n_a);
  int *path_b = join(s, a, swap->at + 1, b, swap->other_at, &n_b);
  if (!path_a || !path_b) return copse_fail_nomem(s->err);
  *a = (struct way){path_a, n_a, b->src, b->slot};
  *b = (struct way){path_b, n_b, old.src, old.slot};
  relist(s, swap->tree, swap->vertex);
  relist(s, swap->other_tree, swap->other_vertex);
  tree->edges = other->edges = NULL;
  measure(s, tree);
  measure(s, other);
  return COPSE_OK;
}

/* Whether a way stays simple with its first part up to `at` replaced by another's. */
static bool is_simple(struct shortener *s, const struct way *head, int head_at,
                      const struct way *tail, int at) {
  bool simple = true;
  for (int i = 0; i <= head_at; i++) s->joined[head->path[i]] = 1;
  for (int i = at + 1; i < tail->n_path; i++) simple = simple && !s->joined[tail->path[i]];
  for (int i = 0; i <= head_at; i++) s->joined[head->path[i]] = 0;
  return simple;
}

/* Finds where the way at hand (in s->place) meets another such that both stay simple. */
static bool find_meeting(struct shortener *s, struct swap *swap) {
  const struct way *way = &s->trees[swap->tree].ways[swap->vertex];
  const struct way *other = &s->trees[swap->other_tree].ways[swap->other_vertex];
  for (int i = other->n_path - 1; i > 0; i--) {
    int at = s->place[other->path[i]] - 1;
    if (at <= 0) continue;
    if (!is_simple(s, other, i, way, at) || !is_simple(s, way, at, other, i)) continue;
    swap->at = at;
    swap->other_at = i;
    return true;
  }
  return false;
}

/*
 * Whether another way's tree can take part: what it gets stays higher up than `height`, and,
 * unless `uneven`, neither tree must be cut in two.
 */
static bool suits(const struct shortener *s, const struct swap *swap, int height, bool uneven) {
  const struct tree *tree = &s->trees[swap->tree], *other = &s->trees[swap->other_tree];
  if (!uneven && tree->multiplicity != other->multiplicity) return false;
  int parent = tree->ways[swap->vertex].src;
  if (swap->other_tree == swap->tree || parent == swap->other_vertex) return false;
  return other->depth[parent] + 1 + other->below[swap->other_vertex] < height;
}

/* Whether no way out of the source, now or before, has a node of this one. */
static bool never_meets(const struct shortener *s, int source, const struct way *way) {
  const uint64_t *passed = s->passed ? s->passed + (size_t)source * s->n_words : NULL;
  for (int i = 1; i < way->n_path; i++)
    if (!passed || passed[way->path[i] / 64] >> (way->path[i] & 63) & 1) return false;
  return true;
}

/* Finds a swap that gives the vertex a parent of less depth than it has. */
static bool find_swap(struct shortener *s, int index, int vertex, bool uneven, struct swap *swap) {
  const struct tree *tree = &s->trees[index];
  const struct way *way = &tree->ways[vertex];
  uint64_t nodes = nodes_of(way);
  bool found = false;
  for (int i = 0; i < way->n_path; i++) s->place[way->path[i]] = i + 1;
  for (int o = 0; o < s->n && !found && s->left > 0; o++) {
    int source = s->order[o];
    if (tree->depth[source] + 1 >= tree->depth[vertex]) break;
    const struct way_list *list = &s->lists[source];
    if (never_meets(s, source, way)) {
      s->left -= (int64_t)list->n; /* as if they had been looked at */
      continue;
    }
    for (size_t i = 0; i < list->n && !found; i++) {
      s->left--;
      if (!(list->ways[i].nodes & nodes)) continue;
      *swap = (struct swap){index, vertex, 0, list->ways[i].tree, list->ways[i].vertex, 0};
      found = suits(s, swap, tree->height, uneven) && find_meeting(s, swap) &&
              !hangs_below(&s->trees[swap->other_tree], way->src, swap->other_vertex);
    }
  }
  for (int i = 0; i < way->n_path; i++) s->place[way->path[i]] = 0;
  return found;
}

/*
 * Tries the two ways to bring up `vertex` of a tree: itself or a vertex that it hangs below (the
 * tree is sorted). `uneven`: also with trees of another multiplicity. *lifted says whether it was
 * done; after that the number of vertices as deep as the tree was high is lower, over both trees.
 */
static copse_status lift_by_edge(struct shortener *s, int tree, int vertex, bool uneven,
                                 bool *lifted) {
  struct swap swap = {0};
  int root = s->trees[tree].root;
  *lifted = false;
  int n_chain = 0;
  bool from_top = s->trees[tree].height >
                  COPSE_SHORTEN_HIGH_TIMES * s->mean_height; /* brings up much at once */
  for (int v = vertex; v != root; v = s->trees[tree].ways[v].src) s->chain[n_chain++] = v;
  for (int i = 0; i < n_chain && !*lifted; i++)
    *lifted = find_swap(s, tree, s->chain[from_top ? n_chain - 1 - i : i], uneven, &swap);
  if (!*lifted) return COPSE_OK;
  COPSE_DO(even_out(s, swap.tree, swap.other_tree));
  return apply(s, &swap);
}

/* ---- swaps of branches --------------------------------------------------------------------- */

/* Collects the vertices of a tree that hang below `top`, with it, in s->branch. */
static void collect_branch(struct shortener *s, const struct tree *tree, int top) {
  s->n_branch = 0;
  for (int o = 0; o < s->n; o++) {
    int v = s->order[o];
    s->in_branch[v] = v == top || (v != tree->root && s->in_branch[tree->ways[v].src]);
    if (s->in_branch[v]) s->branch[s->n_branch++] = v;
  }
}

/* Whether the branch, hung into the tree as it is in another, is nowhere as deep as that is. */
static bool branch_fits(struct shortener *s, const struct tree *tree, const struct tree *other) {
  for (int i = 0; i < s->n_branch; i++) {
    int hops = 1, v;
    for (v = other->ways[s->branch[i]].src; s->in_branch[v]; v = other->ways[v].src) hops++;
    s->left--;
    if (tree->depth[v] + hops >= tree->height) return false;
  }
  return true;
}

static void swap_ways(struct shortener *s, int index, int other_index, int v) {
  struct way *a = &s->trees[index].ways[v], *b = &s->trees[other_index].ways[v], old = *a;
  *a = *b;
  *b = old;
  relist(s, index, v);
  relist(s, other_index, v);
}

static void swap_branch(struct shortener *s, int index, int other) {
  for (int i = 0; i < s->n_branch; i++) swap_ways(s, index, other, s->branch[i]);
  s->trees[index].edges = s->trees[other].edges = NULL;
}

static void measure_both(struct shortener *s, int tree, int other) {
  measure(s, &s->trees[other]);
  measure(s, &s->trees[tree]); /* measured last, since the order by depth is kept of one tree */
}

/* Counts how many vertices are at least so deep. */
static int count_deep(const struct shortener *s, const struct tree *tree, int depth) {
  int n = 0;
  for (int v = 0; tree->height >= depth && v < s->n; v++) n += tree->depth[v] >= depth;
  return n;
}

/* Whether what is cheap to find of a swap holds: the branch goes up, and the other tree stays a
 * tree. */
static bool is_promising(struct shortener *s, int index, int top, int other_index) {
  const struct tree *tree = &s->trees[index], *other = &s->trees[other_index];
  int parent = tree->ways[top].src;
  if (s->in_branch[other->root]) return false;
  if (other->depth[parent] + 1 + tree->below[top] >= tree->height) return false;
  if (!branch_fits(s, tree, other)) return false;
  for (int v = parent; v != other->root; v = other->ways[v].src)
    if (s->in_branch[v]) return false;
  return true;
}

/* Swaps the branch with the other tree's ways to its vertices, if that puts nothing as deep. */
static copse_status try_branch(struct shortener *s, int tree, int top, int other, bool *lifted) {
  if (!is_promising(s, tree, top, other)) return COPSE_OK;
  int height = s->trees[tree].height, deep = count_deep(s, &s->trees[other], height);
  bool uneven = s->trees[tree].multiplicity != s->trees[other].multiplicity;
  swap_branch(s, tree, other);
  measure_both(s, tree, other);
  *lifted = count_deep(s, &s->trees[other], height) <= deep;
  if (*lifted && !uneven) return COPSE_OK;
  swap_branch(s, tree, other);
  measure_both(s, tree, other);
  if (!*lifted) return COPSE_OK;
  COPSE_DO(even_out(s, tree, other));
  swap_branch(s, tree, other);
  measure_both(s, tree, other);
  return COPSE_OK;
}

static copse_status lift_by_branch(struct shortener *s, int tree, int vertex, bool uneven,
                                   bool *lifted) {
  int root = s->trees[tree].root;
  *lifted = false;
  for (int top = vertex; top != root && !*lifted; top = s->trees[tree].ways[top].src) {
    collect_branch(s, &s->trees[tree], top);
    if (s->n_branch > COPSE_SHORTEN_BRANCH) break;
    for (int t = 0; t < (int)s->n_trees && !*lifted && s->left > 0; t++) {
      s->left--;
      if (t == tree) continue;
      if (!uneven && s->trees[t].multiplicity != s->trees[tree].multiplicity) continue;
      COPSE_DO(try_branch(s, tree, top, t, lifted));
    }
  }
  return COPSE_OK;
}

/* ---- the order of all ---------------------------------------------------------------------- */

/* Brings up one deepest vertex of a tree: for no more trees, if that is possible. */
static copse_status lift_one(struct shortener *s, int tree, bool *lifted) {
  *lifted = false;
  sort_by_depth(s, &s->trees[tree]);
  int deepest = s->order[s->n - 1];
  for (int uneven = 0; uneven < 2 && !*lifted; uneven++) {
    if (uneven && s->n_trees >= s->most_trees) break;
    COPSE_DO(lift_by_edge(s, tree, deepest, uneven, lifted));
    if (!*lifted) COPSE_DO(lift_by_branch(s, tree, deepest, uneven, lifted));
  }
  return COPSE_OK;
}

/* Lowers trees of one height; returns whether one has become lower. */
static copse_status lower_trees(struct shortener *s, int height, bool *lowered) {
  *lowered = false;
  for (size_t t = 0; t < s->n_trees && s->left > 0; t++) {
    if (s->trees[t].height != height || s->trees[t].failed_at == s->n_changes) continue;
    for (bool lifted = true; lifted && s->trees[t].height == height; s->n_changes += lifted)
      COPSE_DO(lift_one(s, (int)t, &lifted));
    if (s->trees[t].height == height) s->trees[t].failed_at = s->n_changes;
    if (s->trees[t].height < height) *lowered = true;
  }
  return COPSE_OK;
}

static copse_status lower_all(struct shortener *s) {
  int height = 0;
  int64_t sum = 0;
  for (size_t t = 0; t < s->n_trees; t++) {
    if (s->trees[t].height > height) height = s->trees[t].height;
    sum += s->trees[t].height;
  }
  s->mean_height = (int)(sum / (int64_t)s->n_trees);
  for (; height > 1 && s->left > 0; height--)
    for (bool lowered = true; lowered && s->left > 0;) COPSE_DO(lower_trees(s, height, &lowered));
  return COPSE_OK;
}

static copse_status load_tree(struct shortener *s, const struct copse_forest_tree *from) {
  struct tree *tree;
  COPSE_DO(new_tree(s, &tree));
  tree->root = s->terminal[from->root];
  tree->multiplicity = from->multiplicity;
  tree->edges = from->edges;
  tree->ways[tree->root].src = -1;
  for (int i = 0; i < s->n - 1; i++) {
    const struct copse_forest_edge *edge = &from->edges[i];
    int v = s->terminal[edge->dst];
    tree->ways[v] = (struct way){edge->path, edge->n_path, s->terminal[edge->src], 0};
    COPSE_DO(enlist(s, (int)s->n_trees - 1, v));
  }
  measure(s, tree);
  return COPSE_OK;
}

static copse_status load(struct shortener *s) {
  size_t n = (size_t)s->n, nodes = (size_t)s->network->n_nodes;
  COPSE_DO(COPSE_ARRAYS(&s->arena, nodes, int, s->err, &s->terminal, &s->place));
  COPSE_DO(COPSE_ARRAY(&s->arena, n, s->lists, s->err));
  COPSE_DO(COPSE_ARRAYS(&s->arena, n, int, s->err, &s->order, &s->chain, &s->branch));
  COPSE_DO(COPSE_ARRAY(&s->arena, n + 2, s->count, s->err));
  COPSE_DO(COPSE_ARRAY(&s->arena, nodes, s->joined, s->err));
  COPSE_DO(COPSE_ARRAY(&s->arena, n, s->in_branch, s->err));
  s->n_words = (nodes + 63) / 64;
  if (n <= COPSE_SHORTEN_WORDS / s->n_words)
    COPSE_DO(COPSE_ARRAY(&s->arena, n * s->n_words, s->passed, s->err));
  for (int i = 0; i < s->n; i++) s->terminal[s->network->terminals[i]] = i;
  for (int t = 0; t < s->forest->n_trees; t++) COPSE_DO(load_tree(s, &s->forest->trees[t]));
  return COPSE_OK;
}

/*
 * Lists edges by depth, and at each depth turned on by the root: roots that send to all others
 * begin with their neighbour, not all with the same terminal.
 */
static copse_status list_edges(struct shortener *s, const struct tree *from,
                               const struct copse_forest_edge **out) {
  const int *terminals = s->network->terminals;
  int n = 0;
  struct copse_forest_edge *edges;
  COPSE_DO(COPSE_ARRAY(&s->forest->arena, (size_t)s->n, edges, s->err));
  sort_by_depth(s, from);
  for (int i = 1, end; i < s->n; i = end) {
    int depth = from->depth[s->order[i]], turned = i;
    for (end = i; end < s->n && from->depth[s->order[end]] == depth; end++)
      if (s->order[end] < from->root) turned = end + 1;
    for (int j = i; j < end; j++) {
      int at = j + turned - i, v = s->order[at < end ? at : at - end + i];
      const struct way *way = &from->ways[v];
      edges[n++] =
          (struct copse_forest_edge){terminals[way->src], terminals[v], way->path, way->n_path};
    }
  }
  *out = edges;
  return COPSE_OK;
}

static copse_status store_tree(struct shortener *s, const struct tree *from,
                               struct copse_forest_tree *to) {
  *to = (struct copse_forest_tree){s->network->terminals[from->root], from->multiplicity,
                                   from->edges, from->height};
  return from->edges ? COPSE_OK : list_edges(s, from, &to->edges);
}

static bool same_trees(const struct shortener *s, const struct tree *a, const struct tree *b) {
  if (a->root != b->root || a->height != b->height) return false;
  for (int v = 0; v < s->n; v++) {
    const struct way *x = &a->ways[v], *y = &b->ways[v];
    if (v == a->root) continue;
    if (x->src != y->src || x->n_path != y->n_path) return false;
    if (memcmp(x->path, y->path, (size_t)x->n_path * sizeof *x->path) != 0) return false;
  }
  return true;
}

/* Adds a tree's weight to an earlier, equal tree, which then stands for both. */
static void merge(struct shortener *s, size_t t) {
  for (size_t i = 0; i < t; i++) {
    if (s->trees[i].multiplicity == 0 || !same_trees(s, &s->trees[i], &s->trees[t])) continue;
    s->trees[i].multiplicity += s->trees[t].multiplicity;
    s->trees[t].multiplicity = 0;
    return;
  }
}

static copse_status store(struct shortener *s) {
  int kept = 0;
  struct copse_forest_tree *trees;
  COPSE_DO(COPSE_ARRAY(&s->forest->arena, s->n_trees, trees, s->err));
  for (size_t t = 0; t < s->n_trees; t++) merge(s, t);
  for (size_t t = 0; t < s->n_trees; t++)
    if (s->trees[t].multiplicity > 0) COPSE_DO(store_tree(s, &s->trees[t], &trees[kept++]));
  s->forest->trees = trees;
  s->forest->n_trees = s->forest->trees_capacity = kept;
  return COPSE_OK;
}

static void release(struct shortener *s) {
  for (int i = 0; s->lists && i < s->n; i++) free(s->lists[i].ways);
  free(s->trees);
  copse_arena_free(&s->arena);
}

copse_status copse_forest_shorten(const struct copse_network *network, struct copse_forest *forest,
                                  struct copse_err *err) {
  COPSE_AT_END(release)
  struct shortener s = {.network = network,
                        .forest = forest,
                        .n = network->n_terminals,
                        .left = COPSE_SHORTEN_CANDIDATES,
                        .err = err,
                        .n_changes = 1};
  s.most_trees =
      (size_t)forest->n_trees + (size_t)forest->n_trees * COPSE_SHORTEN_GROWTH_PERCENT / 100;
  if (s.most_trees > (size_t)(INT_MAX / s.n)) return COPSE_OK; /* ways are numbered by int */
  COPSE_DO(load(&s));
  COPSE_DO(lower_all(&s));
  return store(&s);
}
