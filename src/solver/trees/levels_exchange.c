#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "solver/trees/levels_internal.h"

/* ---- what is left for whom --------------------------------------------------------------- */

/* Adds a terminal to those from which a node is reached; false where nothing changes. */
static bool add_source(struct copse_levels *g, int node, int from) {
  struct copse_levels_sources *s = &g->sources[node];
  if (s->n > COPSE_LEVELS_SOURCES) return false;
  for (int i = 0; i < s->n; i++)
    if (s->terminals[i] == from) return false;
  if (s->n < COPSE_LEVELS_SOURCES) s->terminals[s->n] = from;
  s->n++;
  return true;
}

/* For relays, from where there is a way over links that have something left; for terminals only
 * over a single link, since what lies on both sides of a relay is told by the relay. */
static void find_sources(struct copse_levels *g) {
  int *queue = g->search[0].queue;
  memset(g->sources, 0, (size_t)g->network->n_nodes * sizeof *g->sources);
  for (int x = 0; x < g->n; x++) {
    int head = 0, tail = 0;
    queue[tail++] = g->network->terminals[x];
    while (head < tail) {
      int a = queue[head++];
      for (int i = g->first_out[a]; i < g->first_out[a + 1]; i++) {
        int e = g->by_src[i], b = g->network->links[e].dst;
        if (g->left[e] == 0 || (g->number[b] >= 0 && g->number[a] < 0)) continue;
        if (add_source(g, b, x) && g->number[b] < 0) queue[tail++] = b;
      }
    }
  }
}

/* Whether x is in the tree and does not hang below v. */
static bool is_above(const struct copse_levels_tree *tree, int x, int v) {
  if (tree->depth[x] < 0) return false;
  while (x != v && tree->ways[x].src >= 0) x = tree->ways[x].src;
  return x == tree->root;
}

/* Whether a way, once it is free from link `taken` on, can be come upon from another vertex: a
 * quick look at what search_back would find. */
static bool has_source(const struct copse_levels *g, struct copse_levels_user user, int taken) {
  const struct copse_levels_tree *tree = &g->trees[user.tree];
  const struct copse_levels_way *way = &tree->ways[user.vertex];
  for (int i = way->n - 1; i >= 0; i--) {
    int e = g->path[way->first + (size_t)i];
    const struct copse_levels_sources *s = &g->sources[g->network->links[e].dst];
    if (s->n > COPSE_LEVELS_SOURCES) return true;
    for (int j = 0; j < s->n; j++)
      if (is_above(tree, s->terminals[j], user.vertex)) return true;
    if (e == taken) return false;
  }
  return false;
}

/* ---- who uses a link --------------------------------------------------------------------- */

static copse_status list_users(struct copse_levels *g) {
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)g->network->n_links, sizeof *g->users, &g->users, g->err));
  for (int t = 0; t < g->n_trees; t++)
    for (int v = 0; v < g->n; v++) {
      const struct copse_levels_way *way = &g->trees[t].ways[v];
      for (int i = 0; way->src >= 0 && i < way->n; i++) {
        struct copse_levels_users *users = &g->users[g->path[way->first + (size_t)i]];
        COPSE_TRY(
            copse_grow(&users->list, &users->capacity, users->n + 1, sizeof *users->list, g->err));
        users->list[users->n++] = (struct copse_levels_user){t, v};
      }
    }
out:
  return status;
}

/* Whether the way still uses all links that a search found to be full. */
static bool uses_all(const struct copse_levels *g, struct copse_levels_user user, const int *full,
                     int n_full) {
  const struct copse_levels_way *way = &g->trees[user.tree].ways[user.vertex];
  if (way->src < 0) return false;
  for (int i = 0; i < n_full; i++) {
    int j = 0;
    while (j < way->n && g->path[way->first + (size_t)j] != full[i]) j++;
    if (j == way->n) return false;
  }
  return true;
}

/* ---- searching --------------------------------------------------------------------------- */

/* The way from the node `at` to terminal v, as the search went backwards. */
static void collect_way(const struct copse_levels *g, struct copse_levels_search *s, int at,
                        int v) {
  int n_links = g->network->n_links, n_nodes = g->network->n_nodes;
  s->n_links = 0;
  do {
    int e = s->via[at] % n_links, layer = s->via[at] / n_links;
    s->links[s->n_links++] = e;
    at = g->network->links[e].dst + layer * n_nodes;
  } while (at != g->network->terminals[v]);
}

/*
 * Backwards from v, which hangs nowhere, to vertices of the tree that do not hang below it:
 * s->ends, the nearest first. With `full`, one stretch of the way is over links that have nothing
 * left (layer 1; layer 2 is beyond), else none.
 */
static void search_back(struct copse_levels *g, int t, int v, struct copse_levels_search *s,
                        bool full) {
  const struct copse_levels_tree *tree = &g->trees[t];
  int n_nodes = g->network->n_nodes, head = 0, tail = 0;
  s->n++;
  s->n_ends = 0;
  s->queue[tail++] = g->network->terminals[v];
  while (head < tail) {
    int b = s->queue[head] % n_nodes, layer = s->queue[head] / n_nodes;
    head++;
    for (int i = g->first_in[b]; i < g->first_in[b + 1]; i++) {
      int e = g->by_dst[i], a = g->network->links[e].src, u = g->number[a];
      if (g->left[e] == 0 && (!full || layer == 2)) continue;
      int a_layer = g->left[e] == 0 ? 1 : layer == 0 ? 0 : 2, to = a + a_layer * n_nodes;
      if (s->stamp[to] == s->n) continue;
      s->stamp[to] = s->n;
      s->via[to] = e + layer * g->network->n_links;
      if (u < 0)
        s->queue[tail++] = to;
      else if ((a_layer > 0 || !full) && is_above(tree, u, v))
        s->ends[s->n_ends++] = to;
    }
  }
}

/* ---- exchanging -------------------------------------------------------------------------- */

/* So many ways over full links are tried for a terminal, the shortest. */
#define MOST_WAYS 24
/* Candidates that are looked at for one repair. */
#define MOST_CANDIDATES 1000000

static void give_back(struct copse_levels *g, const struct copse_levels_way *way, int sign) {
  for (int i = 0; i < way->n; i++) g->left[g->path[way->first + (size_t)i]] += sign;
}

static void measure(const struct copse_levels *g, struct copse_levels_tree *tree) {
  for (int v = 0; v < g->n; v++) {
    if (tree->depth[v] < 0) continue;
    tree->depth[v] = 0;
    for (int u = v; tree->ways[u].src >= 0; u = tree->ways[u].src) tree->depth[v]++;
  }
}

/* Takes back the last thing that was done: v joined the tree. */
static void leave(struct copse_levels *g, int t, int v) {
  struct copse_levels_way *way = &g->trees[t].ways[v];
  give_back(g, way, 1);
  for (int i = 0; i < way->n; i++) g->users[g->path[way->first + (size_t)i]].n--;
  g->n_path = way->first;
  way->src = -1;
}

static copse_status attach(struct copse_levels *g, int t, int v, int chain, int *patience,
                           bool *done);

/* v joins its tree at x by the way of the search, at the cost of another tree's way; or nothing
 * changes. */
static copse_status exchange(struct copse_levels *g, int t, int v, int x,
                             const struct copse_levels_search *search,
                             struct copse_levels_user user, int chain, int *patience, bool *done) {
  struct copse_levels_way *way = &g->trees[user.tree].ways[user.vertex], old = *way;
  copse_status status;
  give_back(g, &old, 1);
  way->src = -1;
  COPSE_TRY(copse_levels_join(g, t, x, v, search));
  COPSE_TRY(attach(g, user.tree, user.vertex, chain - 1, patience, done));
  if (*done) {
    measure(g, &g->trees[user.tree]);
  } else {
    leave(g, t, v);
    give_back(g, &old, -1);
    *way = old;
  }
out:
  return status;
}

/* The next way, from *i downwards, that may use full links with these bits: nearly all that is
 * looked at is turned away here. Each costs patience; false: no more, or none left. */
static bool next_user(const struct copse_levels *g, int link, uint64_t bits, int t, size_t *i,
                      int *patience) {
  const struct copse_levels_user *list = g->users[link].list;
  const struct copse_levels_way *ways = g->ways;
  size_t n = (size_t)g->n, at = *i;
  int left = *patience;
  bool found = false;
  while (!found && at-- > 0 && --left > 0) {
    int tree = list[at].tree;
    found = (ways[(size_t)tree * n + (size_t)list[at].vertex].bits & bits) == bits && tree != t;
  }
  *i = at;
  *patience = left;
  return found;
}

/* The same with all ways that use what the search found to be full, until one serves. */
static copse_status exchange_any(struct copse_levels *g, int t, int v, int x,
                                 const struct copse_levels_search *search, int *full, int chain,
                                 int *patience, bool *done) {
  int n_full = 0;
  uint64_t bits = 0;
  copse_status status = COPSE_OK;
  for (int i = 0; i < search->n_links; i++) {
    if (g->left[search->links[i]] != 0) continue;
    full[n_full++] = search->links[i];
    bits |= copse_levels_bit(search->links[i]);
  }
  for (size_t i = g->users[full[0]].n; !*done && next_user(g, full[0], bits, t, &i, patience);) {
    struct copse_levels_user user = g->users[full[0]].list[i];
    if (!uses_all(g, user, full, n_full)) continue;
    if (chain == 1 && !has_source(g, user, full[0])) continue;
    COPSE_TRY(exchange(g, t, v, x, search, user, chain, patience, done));
  }
out:
  return status;
}

/* Over free links, from the shallowest vertex that has such a way; false: there is none. */
static bool find_place(struct copse_levels *g, int t, int v, struct copse_levels_search *s,
                       int *x) {
  const int *depth = g->trees[t].depth;
  int best = -1;
  search_back(g, t, v, s, false);
  for (int i = 0; i < s->n_ends; i++) {
    int u = g->number[s->ends[i]];
    if (best >= 0 && depth[u] >= depth[*x]) continue;
    *x = u;
    best = s->ends[i];
  }
  if (best >= 0) collect_way(g, s, best, v);
  return best >= 0;
}

/* Finds v, which hangs nowhere, a place in the tree: over free links, else by an exchange. */
static copse_status attach(struct copse_levels *g, int t, int v, int chain, int *patience,
                           bool *done) {
  struct copse_levels_search *s = &g->search[chain];
  int x, *full = NULL;
  copse_status status = COPSE_OK;
  *done = find_place(g, t, v, s, &x);
  if (*done) return copse_levels_join(g, t, x, v, s);
  if (chain == 0) return COPSE_OK;
  COPSE_TRY(copse_calloc((size_t)g->network->n_nodes, sizeof *full, &full, g->err));
  search_back(g, t, v, s, true);
  for (int i = 0; i < s->n_ends && i < MOST_WAYS && !*done && *patience > 0; i++) {
    collect_way(g, s, s->ends[i], v);
    x = g->number[s->ends[i] % g->network->n_nodes];
    COPSE_TRY(exchange_any(g, t, v, x, s, full, chain, patience, done));
  }
out:
  free(full);
  return status;
}

copse_status copse_levels_repair(struct copse_levels *g, int t, int chain, bool *repaired) {
  struct copse_levels_tree *tree = &g->trees[t];
  int most = g->patience < MOST_CANDIDATES ? (int)g->patience : MOST_CANDIDATES, patience = most;
  copse_status status = COPSE_OK;
  if (!g->users) COPSE_TRY(list_users(g));
  *repaired = false;
  find_sources(g);
  for (int v = 0; v < g->n && !*repaired && patience > 0; v++) {
    if (tree->depth[v] >= 0) continue;
    COPSE_TRY(attach(g, t, v, chain, &patience, repaired));
    if (!*repaired) continue;
    tree->depth[v] = 0;
    tree->order[tree->n_order++] = v;
    measure(g, tree);
    tree->open = 0; /* room may have grown */
  }
  g->patience -= most - patience;
out:
  return status;
}
