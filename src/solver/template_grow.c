#include "solver/template_grow.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* Whether the tree may cross into every cut that the link enters: each only once. */
static bool may_enter(const struct copse_grower *g, const struct copse_net_link *link) {
  const struct copse_template_cuts *cuts = &g->cuts;
  for (int i = cuts->first[link->dst]; i < cuts->first[link->dst + 1]; i++)
    if (g->touched[cuts->cuts[i]] && !copse_template_cuts_hold(cuts, cuts->cuts[i], link->src))
      return false;
  return true;
}

/* A path that enters a cut must end in it: else the tree would have to enter once more. */
static bool ends_inside(const struct copse_grower *g, const struct copse_net_link *link, int end) {
  const struct copse_template_cuts *cuts = &g->cuts;
  for (int i = cuts->first[link->dst]; i < cuts->first[link->dst + 1]; i++)
    if (!copse_template_cuts_hold(cuts, cuts->cuts[i], link->src) &&
        !copse_template_cuts_hold(cuts, cuts->cuts[i], end))
      return false;
  return true;
}

/* The links from x to the end of `last`, last first, into g->chosen; returns how many. */
static int collect_path(struct copse_grower *g, int x, int last) {
  int n = 0;
  for (int e = last;; e = g->via[g->network->links[e].src]) {
    g->chosen[n++] = e;
    if (g->network->links[e].src == x) return n;
  }
}

/* How many of `want` the path can carry; 0 where the rule of cuts forbids it. */
static int64_t path_amount(const struct copse_grower *g, int n, int64_t want) {
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

static copse_status split_family(struct copse_grower *g, int64_t amount) {
  copse_status status;
  COPSE_TRY(
      copse_grow(&g->waiting, &g->waiting_capacity, g->n_waiting + 1, sizeof *g->waiting, g->err));
  struct copse_template_family *copy = &g->waiting[g->n_waiting];
  *copy =
      (struct copse_template_family){g->current.multiplicity - amount, g->current.n_edges, NULL};
  COPSE_TRY(copse_calloc((size_t)copy->n_edges, sizeof *copy->edges, &copy->edges, g->err));
  memcpy(copy->edges, g->current.edges, (size_t)copy->n_edges * sizeof *copy->edges);
  g->n_waiting++;
  g->current.multiplicity = amount;
out:
  return status;
}

static void join_tree(struct copse_grower *g, int node) {
  g->in_tree[node] = true;
  g->order[g->n_order++] = node;
  for (int i = g->cuts.first[node]; i < g->cuts.first[node + 1]; i++)
    g->touched[g->cuts.cuts[i]] = 1;
}

/* The current family takes the path of g->chosen. */
static copse_status extend(struct copse_grower *g, int n, int64_t amount) {
  const struct copse_net_link *links = g->network->links;
  copse_status status = COPSE_OK;
  if (amount < g->current.multiplicity) COPSE_TRY(split_family(g, amount));
  COPSE_TRY(
      copse_grow(&g->path, &g->path_capacity, g->n_path + (size_t)n + 1, sizeof *g->path, g->err));
  struct copse_template_edge edge = {links[g->chosen[n - 1]].src, links[g->chosen[0]].dst,
                                     g->n_path, n + 1};
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
static copse_status search(struct copse_grower *g, int x, bool part, int64_t *most, int *most_end) {
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
static copse_status grow_part(struct copse_grower *g, bool *stuck) {
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
static copse_status grow_current(struct copse_grower *g, bool *stuck) {
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
static void restart(struct copse_grower *g) {
  memset(g->in_tree, 0, (size_t)g->network->n_nodes);
  memset(g->touched, 0, (size_t)g->cuts.n);
  g->n_order = 0;
  join_tree(g, g->root);
  for (int i = 0; i < g->current.n_edges; i++) join_tree(g, g->current.edges[i].dst);
}

/* The current family is a tree. */
static copse_status emit(struct copse_grower *g) {
  int n = g->current.n_edges;
  struct copse_forest_tree tree = {.root = g->root, .multiplicity = g->current.multiplicity};
  struct copse_forest_edge *edges =
      copse_arena_alloc(&g->forest->arena, n ? (size_t)n : 1, sizeof *edges);
  copse_status status = COPSE_OK;
  if (!edges) return copse_fail_nomem(g->err);
  g->depth[g->root] = 0;
  for (int i = 0; i < n; i++) {
    const struct copse_template_edge *from = &g->current.edges[i];
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

copse_status copse_grower_root(struct copse_grower *g, int root, int64_t multiplicity,
                               bool *stuck) {
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
    struct copse_template_family *next = &g->waiting[--g->n_waiting];
    g->current.multiplicity = next->multiplicity;
    g->current.n_edges = next->n_edges;
    memcpy(g->current.edges, next->edges, (size_t)next->n_edges * sizeof *next->edges);
    free(next->edges);
  }
out:
  return status;
}

static copse_status list_links(struct copse_grower *g) {
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

copse_status copse_grower_prepare(struct copse_grower *g) {
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

void copse_grower_drop_waiting(struct copse_grower *g) {
  while (g->n_waiting > 0) free(g->waiting[--g->n_waiting].edges);
}

void copse_grower_free(struct copse_grower *g) {
  copse_grower_drop_waiting(g);
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
