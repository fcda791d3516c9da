#include <string.h>

#include "solver/trees/shorten_internal.h"

/* Two ways that could swap what lies before they meet. */
struct swap {
  int tree, vertex, at; /* path[at] is where they meet */
  int other_tree, other_vertex, other_at;
};

/* Whether v hangs below `above`, or is it. */
static bool hangs_below(const struct copse_shorten_tree *tree, int v, int above) {
  while (tree->depth[v] > tree->depth[above]) v = tree->ways[v].src;
  return v == above;
}

/* The first `n_head` nodes of one way, then what follows `at` on another; NULL: no memory. */
static int *join(struct copse_shortener *s, const struct copse_shorten_way *head, int n_head,
                 const struct copse_shorten_way *tail, int at, int *n) {
  int n_tail = tail->n_path - at - 1;
  int *path = copse_arena_alloc(&s->forest->arena, (size_t)(n_head + n_tail), sizeof *path);
  if (!path) return NULL;
  memcpy(path, head->path, (size_t)n_head * sizeof *path);
  memcpy(path + n_head, tail->path + at + 1, (size_t)n_tail * sizeof *path);
  *n = n_head + n_tail;
  return path;
}

/* Carries out a swap of two whole trees' ways. */
static copse_status apply(struct copse_shortener *s, const struct swap *swap,
                          struct copse_err *err) {
  struct copse_shorten_tree *tree = &s->trees[swap->tree], *other = &s->trees[swap->other_tree];
  struct copse_shorten_way *a = &tree->ways[swap->vertex], *b = &other->ways[swap->other_vertex],
                           old = *a;
  int n_a, n_b;
  int *path_a = join(s, b, swap->other_at + 1, a, swap->at, &n_a);
  int *path_b = join(s, a, swap->at + 1, b, swap->other_at, &n_b);
  if (!path_a || !path_b) return copse_fail_nomem(err);
  *a = (struct copse_shorten_way){path_a, n_a, b->src, b->slot};
  *b = (struct copse_shorten_way){path_b, n_b, old.src, old.slot};
  copse_shorten_relist(s, swap->tree, swap->vertex);
  copse_shorten_relist(s, swap->other_tree, swap->other_vertex);
  tree->edges = other->edges = NULL;
  copse_shorten_measure(s, tree);
  copse_shorten_measure(s, other);
  return COPSE_OK;
}

/* Whether a way stays simple with its first part up to `at` replaced by another's. */
static bool is_simple(struct copse_shortener *s, const struct copse_shorten_way *head, int head_at,
                      const struct copse_shorten_way *tail, int at) {
  bool simple = true;
  for (int i = 0; i <= head_at; i++) s->joined[head->path[i]] = 1;
  for (int i = at + 1; i < tail->n_path; i++) simple = simple && !s->joined[tail->path[i]];
  for (int i = 0; i <= head_at; i++) s->joined[head->path[i]] = 0;
  return simple;
}

/* Where the way at hand (in s->place) meets another such that both stay simple. */
static bool find_meeting(struct copse_shortener *s, struct swap *swap) {
  const struct copse_shorten_way *way = &s->trees[swap->tree].ways[swap->vertex];
  const struct copse_shorten_way *other = &s->trees[swap->other_tree].ways[swap->other_vertex];
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
static bool suits(const struct copse_shortener *s, const struct swap *swap, int height,
                  bool uneven) {
  const struct copse_shorten_tree *tree = &s->trees[swap->tree],
                                  *other = &s->trees[swap->other_tree];
  if (!uneven && tree->multiplicity != other->multiplicity) return false;
  int parent = tree->ways[swap->vertex].src;
  if (swap->other_tree == swap->tree || parent == swap->other_vertex) return false;
  return other->depth[parent] + 1 + other->below[swap->other_vertex] < height;
}

/* Whether no way out of the source, now or before, has a node of this one. */
static bool never_meets(const struct copse_shortener *s, int source,
                        const struct copse_shorten_way *way) {
  const uint64_t *passed = s->passed ? s->passed + (size_t)source * s->n_words : NULL;
  for (int i = 1; i < way->n_path; i++)
    if (!passed || passed[way->path[i] / 64] >> (way->path[i] & 63) & 1) return false;
  return true;
}

/* A swap that gives the vertex a parent of less depth than it has. */
static bool find_swap(struct copse_shortener *s, int index, int vertex, bool uneven,
                      struct swap *swap) {
  const struct copse_shorten_tree *tree = &s->trees[index];
  const struct copse_shorten_way *way = &tree->ways[vertex];
  uint64_t nodes = copse_shorten_nodes(way);
  bool found = false;
  for (int i = 0; i < way->n_path; i++) s->place[way->path[i]] = i + 1;
  for (int o = 0; o < s->n && !found && s->left > 0; o++) {
    int source = s->order[o];
    if (tree->depth[source] + 1 >= tree->depth[vertex]) break;
    const struct copse_shorten_list *list = &s->lists[source];
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

copse_status copse_shorten_by_edge(struct copse_shortener *s, int tree, int vertex, bool uneven,
                                   bool *lifted, struct copse_err *err) {
  struct swap swap = {0};
  copse_status status = COPSE_OK;
  int root = s->trees[tree].root;
  *lifted = false;
  int n_chain = 0;
  bool from_top = s->trees[tree].height > 3 * s->mean_height; /* brings up much at once */
  for (int v = vertex; v != root; v = s->trees[tree].ways[v].src) s->chain[n_chain++] = v;
  for (int i = 0; i < n_chain && !*lifted; i++)
    *lifted = find_swap(s, tree, s->chain[from_top ? n_chain - 1 - i : i], uneven, &swap);
  if (!*lifted) return COPSE_OK;
  COPSE_TRY(copse_shorten_even_out(s, swap.tree, swap.other_tree, err));
  COPSE_TRY(apply(s, &swap, err));
out:
  return status;
}
