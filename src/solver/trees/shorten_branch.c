#include "solver/trees/shorten_internal.h"

/* The vertices of a tree that hang below `top`, with it, in s->branch. */
static void collect_branch(struct copse_shortener *s, const struct copse_shorten_tree *tree,
                           int top) {
  s->n_branch = 0;
  for (int o = 0; o < s->n; o++) {
    int v = s->order[o];
    s->in_branch[v] = v == top || (v != tree->root && s->in_branch[tree->ways[v].src]);
    if (s->in_branch[v]) s->branch[s->n_branch++] = v;
  }
}

/* Whether the branch, hung into the tree as it is in another, is nowhere as deep as that is. */
static bool branch_fits(struct copse_shortener *s, const struct copse_shorten_tree *tree,
                        const struct copse_shorten_tree *other) {
  for (int i = 0; i < s->n_branch; i++) {
    int hops = 1, v;
    for (v = other->ways[s->branch[i]].src; s->in_branch[v]; v = other->ways[v].src) hops++;
    s->left--;
    if (tree->depth[v] + hops >= tree->height) return false;
  }
  return true;
}

static void swap_ways(struct copse_shortener *s, int index, int other_index, int v) {
  struct copse_shorten_way *a = &s->trees[index].ways[v], *b = &s->trees[other_index].ways[v],
                           old = *a;
  *a = *b;
  *b = old;
  copse_shorten_relist(s, index, v);
  copse_shorten_relist(s, other_index, v);
}

static void swap_branch(struct copse_shortener *s, int index, int other) {
  for (int i = 0; i < s->n_branch; i++) swap_ways(s, index, other, s->branch[i]);
  s->trees[index].edges = s->trees[other].edges = NULL;
}

static void measure_both(struct copse_shortener *s, int tree, int other) {
  copse_shorten_measure(s, &s->trees[other]);
  copse_shorten_measure(s, &s->trees[tree]); /* last, so that it is the sorted one */
}

/* How many vertices are at least so deep. */
static int count_deep(const struct copse_shortener *s, const struct copse_shorten_tree *tree,
                      int depth) {
  int n = 0;
  for (int v = 0; tree->height >= depth && v < s->n; v++) n += tree->depth[v] >= depth;
  return n;
}

/* What is cheap to know of a swap: the branch goes up, and the other tree stays a tree. */
static bool is_promising(struct copse_shortener *s, int index, int top, int other_index) {
  const struct copse_shorten_tree *tree = &s->trees[index], *other = &s->trees[other_index];
  int parent = tree->ways[top].src;
  if (s->in_branch[other->root]) return false;
  if (other->depth[parent] + 1 + tree->below[top] >= tree->height) return false;
  if (!branch_fits(s, tree, other)) return false;
  for (int v = parent; v != other->root; v = other->ways[v].src)
    if (s->in_branch[v]) return false;
  return true;
}

/* Swaps the branch with the other tree's ways to its vertices, if that puts nothing as deep. */
static copse_status try_branch(struct copse_shortener *s, int tree, int top, int other,
                               bool *lifted, struct copse_err *err) {
  copse_status status = COPSE_OK;
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
  COPSE_TRY(copse_shorten_even_out(s, tree, other, err));
  swap_branch(s, tree, other);
  measure_both(s, tree, other);
out:
  return status;
}

/* Branches are tried up to this size: what is larger rarely fits another tree. */
#define LARGEST_BRANCH 64

copse_status copse_shorten_by_branch(struct copse_shortener *s, int tree, int vertex, bool uneven,
                                     bool *lifted, struct copse_err *err) {
  copse_status status = COPSE_OK;
  int root = s->trees[tree].root;
  *lifted = false;
  for (int top = vertex; top != root && !*lifted; top = s->trees[tree].ways[top].src) {
    collect_branch(s, &s->trees[tree], top);
    if (s->n_branch > LARGEST_BRANCH) break;
    for (int t = 0; t < (int)s->n_trees && !*lifted && s->left > 0; t++) {
      s->left--;
      if (t == tree) continue;
      if (!uneven && s->trees[t].multiplicity != s->trees[tree].multiplicity) continue;
      COPSE_TRY(try_branch(s, tree, top, t, lifted, err));
    }
  }
out:
  return status;
}
