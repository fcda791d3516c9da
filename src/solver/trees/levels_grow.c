#include <string.h>

#include "base/memory.h"
#include "solver/trees/levels_internal.h"

static bool holds(const struct copse_levels *g, int cut, int node) {
  return g->inside[(size_t)cut * (size_t)g->network->n_nodes + (size_t)node];
}

/* Whether the tree may use a link on a way to node `end` (-1: it is not known yet): what is
 * entered already is not entered again, and nothing only to pass through it. */
static bool may_enter(const struct copse_levels *g, const struct copse_levels_tree *tree, int link,
                      int end) {
  for (int i = g->first_cut[link]; i < g->first_cut[link + 1]; i++)
    if (tree->entered[g->cuts[i]] || (end >= 0 && !holds(g, g->cuts[i], end))) return false;
  return true;
}

static copse_status note_user(struct copse_levels *g, int link, int tree, int vertex) {
  struct copse_levels_users *users = &g->users[link];
  copse_status status =
      copse_grow(&users->list, &users->capacity, users->n + 1, sizeof *users->list, g->err);
  if (status == COPSE_OK) users->list[users->n++] = (struct copse_levels_user){tree, vertex};
  return status;
}

copse_status copse_levels_join(struct copse_levels *g, int index, int x, int y,
                               const struct copse_levels_search *search) {
  struct copse_levels_tree *tree = &g->trees[index];
  struct copse_levels_way *way = &tree->ways[y];
  int end = g->network->terminals[y];
  copse_status status;
  COPSE_TRY(copse_grow(&g->path, &g->path_capacity, g->n_path + (size_t)search->n_links,
                       sizeof *g->path, g->err));
  *way = (struct copse_levels_way){x, search->n_links, g->n_path, 0};
  for (int i = 0; i < search->n_links; i++) {
    int e = search->links[i];
    g->path[g->n_path++] = e;
    way->bits |= copse_levels_bit(e);
    g->left[e]--;
    for (int j = g->first_cut[e]; j < g->first_cut[e + 1]; j++)
      if (holds(g, g->cuts[j], end)) tree->entered[g->cuts[j]] = 1;
    if (g->users) COPSE_TRY(note_user(g, e, index, y));
  }
out:
  return status;
}

/* The way of the search from `start` that ends with `link`; whether the tree may take it. */
static bool collect_way(struct copse_levels *g, const struct copse_levels_tree *tree, int start,
                        int link, struct copse_levels_search *search) {
  const struct copse_net_link *links = g->network->links;
  int n = 1, end = links[link].dst;
  for (int e = link; links[e].src != start; e = search->via[links[e].src]) n++;
  search->n_links = n;
  for (int e = link; n > 0; e = search->via[links[e].src]) {
    if (g->left[e] == 0 || !may_enter(g, tree, e, end)) return false;
    search->links[--n] = e;
  }
  return true;
}

static copse_status add_vertex(struct copse_levels *g, int index, int x, int y,
                               const struct copse_levels_search *search) {
  struct copse_levels_tree *tree = &g->trees[index];
  tree->depth[y] = tree->depth[x] + 1;
  tree->order[tree->n_order++] = y;
  return copse_levels_join(g, index, x, y, search);
}

/*
 * From vertex x over relays to at most `most` terminals that the tree has not, nearest first.
 * Where a relay leads to many, roots begin at different ones, and every turn at the next.
 */
static copse_status search_from(struct copse_levels *g, int index, int x, int most, int *taken) {
  struct copse_levels_tree *tree = &g->trees[index];
  struct copse_levels_search *s = &g->search[0];
  int start = g->network->terminals[x], head = 0, tail = 0;
  copse_status status = COPSE_OK;
  *taken = 0;
  s->n++;
  s->queue[tail++] = start;
  while (head < tail) {
    int a = s->queue[head++], first = g->first_out[a], degree = g->first_out[a + 1] - first;
    int turn = (int)(((int64_t)x * degree / g->n + tree->n_order) % (degree ? degree : 1));
    for (int i = 0; i < degree; i++) {
      int e = g->by_src[first + (i + turn) % degree], b = g->network->links[e].dst;
      int y = g->number[b];
      if (y >= 0 ? tree->depth[y] >= 0 : s->stamp[b] == s->n) continue;
      if (g->left[e] == 0) continue;
      if (y >= 0) {
        if (!collect_way(g, tree, start, e, s)) continue;
        COPSE_TRY(add_vertex(g, index, x, y, s));
        if (++*taken == most) return COPSE_OK;
      } else if (may_enter(g, tree, e, -1)) {
        s->stamp[b] = s->n;
        s->via[b] = e;
        s->queue[tail++] = b;
      }
    }
  }
out:
  return status;
}

copse_status copse_levels_grow(struct copse_levels *g, int index, int most, int *taken) {
  struct copse_levels_tree *tree = &g->trees[index];
  copse_status status = COPSE_OK;
  *taken = 0;
  while (tree->open < tree->n_order && *taken < most) {
    int more;
    COPSE_TRY(search_from(g, index, tree->order[tree->open], most - *taken, &more));
    *taken += more;
    if (*taken < most) tree->open++; /* room only shrinks, and the tree only grows */
  }
out:
  return status;
}
