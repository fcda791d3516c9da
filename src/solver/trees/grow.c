/*
 * A breadth-first tree: from the first vertex that has a way left over relays to the nearest
 * terminals that the tree lacks. A cut that the tree is in is not entered again unless it can spare
 * that, and a path that enters a cut ends in it:
 *
 *      x > leaf > [ nic > gpu ]       taken: enters host [ ] once and ends there
 *      x > leaf > [ nic > nic' ] > y  not taken: passes through
 *
 * Ways are taken at once at level 0; at higher levels those that draw on orbits that ran out
 * before, or that enter a cut again. Where no way carries the whole family, part of it goes on, and
 * a copy of the rest waits.
 */
#include "solver/trees/grow.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* How much of `want` may cross the link: a cut that the tree is in is entered again only where it
 * can spare that, and as a later resort. */
static int64_t spared_by_cuts(const struct copse_grower *g, const struct copse_net_link *link,
                              int64_t want) {
  const struct copse_cuts_of_node *of = &g->cuts.of[link->dst];
  for (int i = 0; i < of->n && want > 0; i++) {
    int c = of->cuts[i];
    if (!g->touched[c] || copse_cuts_hold(&g->cuts, c, link->src)) continue;
    int64_t slack = g->level > 0 ? g->cuts.slack[c] : 0;
    if (slack < want) want = slack;
  }
  return want;
}

/* A path that enters a cut must end in it: else the tree would have to enter once more. */
static bool ends_inside(const struct copse_grower *g, const struct copse_net_link *link, int end) {
  const struct copse_cuts_of_node *of = &g->cuts.of[link->dst];
  for (int i = 0; i < of->n; i++)
    if (!copse_cuts_hold(&g->cuts, of->cuts[i], link->src) &&
        !copse_cuts_hold(&g->cuts, of->cuts[i], end))
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
    want = spared_by_cuts(g, link, want);
    if (!ends_inside(g, link, end)) return 0;
  }
  return want;
}

/* How much can leave the cuts that the path enters; -1: it enters none. */
static int64_t exits_of_path(const struct copse_grower *g, int n) {
  int end = g->network->links[g->chosen[0]].dst, from = g->network->links[g->chosen[n - 1]].src;
  const struct copse_cuts_of_node *of = &g->cuts.of[end];
  int64_t sum = -1;
  for (int i = 0; i < of->n; i++)
    if (!copse_cuts_hold(&g->cuts, of->cuts[i], from))
      sum = (sum < 0 ? 0 : sum) + g->exits[of->cuts[i]];
  return sum;
}

/* A link was used: so much less can leave the cuts that it leads out of, and where it enters one
 * again that can spare so much less. */
static void use_cuts(struct copse_grower *g, const struct copse_net_link *link, int64_t amount) {
  const struct copse_cuts_of_node *of = &g->cuts.of[link->src];
  for (int i = 0; i < of->n; i++)
    if (!copse_cuts_hold(&g->cuts, of->cuts[i], link->dst)) g->exits[of->cuts[i]] -= amount;
  of = &g->cuts.of[link->dst];
  for (int i = 0; i < of->n; i++)
    if (g->touched[of->cuts[i]] && !copse_cuts_hold(&g->cuts, of->cuts[i], link->src))
      g->cuts.slack[of->cuts[i]] -= amount;
}

static copse_status split_family(struct copse_grower *g, int64_t amount) {
  COPSE_DO(
      copse_grow(&g->waiting, &g->waiting_capacity, g->n_waiting + 1, sizeof *g->waiting, g->err));
  struct copse_grown_family *copy = &g->waiting[g->n_waiting];
  *copy = (struct copse_grown_family){g->current.multiplicity - amount, g->current.n_edges, NULL};
  COPSE_DO(copse_calloc((size_t)copy->n_edges, sizeof *copy->edges, &copy->edges, g->err));
  memcpy(copy->edges, g->current.edges, (size_t)copy->n_edges * sizeof *copy->edges);
  g->n_waiting++;
  g->current.multiplicity = amount;
  return COPSE_OK;
}

static void join_tree(struct copse_grower *g, int node) {
  g->in_tree[node] = true;
  g->order[g->n_order++] = node;
  for (int i = 0; i < g->cuts.of[node].n; i++) g->touched[g->cuts.of[node].cuts[i]] = 1;
}

/* The current family takes the path of g->chosen. */
static copse_status extend(struct copse_grower *g, int n, int64_t amount) {
  const struct copse_net_link *links = g->network->links;
  if (amount < g->current.multiplicity) COPSE_DO(split_family(g, amount));
  COPSE_DO(
      copse_grow(&g->path, &g->path_capacity, g->n_path + (size_t)n + 1, sizeof *g->path, g->err));
  struct copse_grown_edge edge = {links[g->chosen[n - 1]].src, links[g->chosen[0]].dst, g->n_path,
                                  n + 1};
  g->path[g->n_path++] = edge.src;
  for (int i = n - 1; i >= 0; i--) {
    g->path[g->n_path++] = links[g->chosen[i]].dst;
    g->left[g->orbit[g->chosen[i]]] -= amount;
    if (g->exits) use_cuts(g, &links[g->chosen[i]], amount);
  }
  g->current.edges[g->current.n_edges++] = edge;
  join_tree(g, edge.dst);
  return COPSE_OK;
}

/* A search over relays for the best way into the tree at hand. */
struct search {
  bool part;     /* looks for the way that carries most, else for one that carries all */
  int64_t most;  /* what the best way carries, */
  int64_t exits; /* how much can leave what it enters (-1: it enters no cut), */
  int end;       /* and its last link */
  bool taken;    /* some way was taken that is as good as any */
};

/* A way from x that ends with link e: taken at once where nothing could be better. */
static copse_status weigh(struct copse_grower *g, int x, int e, struct search *search) {
  int64_t whole = g->current.multiplicity;
  int n = collect_path(g, x, e);
  int64_t amount = path_amount(g, n, whole), exits = g->exits ? exits_of_path(g, n) : -1;
  if (amount < search->most || (amount == search->most && exits <= search->exits)) return COPSE_OK;
  if (!search->part && amount == whole && exits < 0) {
    search->taken = true;
    return extend(g, n, whole);
  }
  search->most = amount;
  search->exits = exits;
  search->end = e;
  return COPSE_OK;
}

/* A tree begins with other links than the one before, so that what is left of hosts that have few
 * trees is not of the same links everywhere. */
static int first_turn(const struct copse_grower *g, int degree) {
  return g->exits && degree > 0 ? g->forest->n_trees % degree : 0;
}

/* From x over relays to terminals that are not in the tree, nearest first. Ends after the first
 * way taken where orbits are avoided: the next may do without. */
static copse_status walk(struct copse_grower *g, int x, struct search *search) {
  struct copse_queue queue = {.items = g->queue};
  int64_t least = search->part ? 1 : g->current.multiplicity;
  g->n_searches++;
  copse_queue_push(&queue, x);
  while (!copse_queue_is_empty(&queue)) {
    int a = copse_queue_pop(&queue), first = g->leaving.first[a];
    int degree = g->leaving.first[a + 1] - first;
    int turn = first_turn(g, degree);
    for (int j = 0; j < degree; j++) {
      int e = g->leaving.item[first + (j + turn < degree ? j + turn : j + turn - degree)];
      int b = g->network->links[e].dst;
      if (g->is_terminal[b] ? g->in_tree[b] : g->stamp[b] == g->n_searches) continue;
      if (g->left[g->orbit[e]] < least || g->avoid[g->orbit[e]] > g->level) continue;
      if (g->is_terminal[b]) {
        COPSE_DO(weigh(g, x, e, search));
        if (search->taken && g->level > 0) return COPSE_OK;
      } else if (spared_by_cuts(g, &g->network->links[e], 1) > 0) {
        g->stamp[b] = g->n_searches;
        g->via[b] = e;
        copse_queue_push(&queue, b);
      }
    }
  }
  return COPSE_OK;
}

/*
 * Extends the whole family from x. At level 0 by all ways that carry it, else by one; of those into
 * cuts whose exits count by one, into those with the most. *more: there may be more.
 */
static copse_status extend_from(struct copse_grower *g, int x, bool *more) {
  struct search search = {.exits = -1};
  COPSE_DO(walk(g, x, &search));
  *more = search.taken && g->level > 0;
  if (search.most < g->current.multiplicity) return COPSE_OK;
  *more = true;
  int n = collect_path(g, x, search.end);
  if (path_amount(g, n, search.most) ==
      search.most) /* not where ways taken since share its links */
    return extend(g, n, search.most);
  return COPSE_OK;
}

/* Splits the family where no way carries the whole of it. *stuck: no way at all. */
static copse_status grow_part(struct copse_grower *g, bool *stuck) {
  *stuck = true;
  for (int i = 0; i < g->n_order && *stuck; i++) {
    struct search search = {.part = true, .exits = -1};
    COPSE_DO(walk(g, g->order[i], &search));
    if (search.most == 0) continue;
    *stuck = false;
    COPSE_DO(extend(g, collect_path(g, g->order[i], search.end), search.most));
    memset(g->open, 0, sizeof g->open); /* fewer go where more did not */
  }
  return COPSE_OK;
}

/* Splits the family where not even the last resort carries the whole of it; with cuts that can be
 * entered again, rather where they need not be. */
static copse_status grow_any_part(struct copse_grower *g, bool *stuck) {
  *stuck = true;
  for (g->level = g->exits ? 0 : g->top_level; g->level <= g->top_level && *stuck; g->level++)
    COPSE_DO(grow_part(g, stuck));
  return COPSE_OK;
}

/* At each step the lowest level that has a way. What has none stays so: room only shrinks, and
 * the tree only grows. */
static copse_status grow_current(struct copse_grower *g, bool *stuck) {
  int target = g->network->n_terminals - 1;
  bool more;
  *stuck = false;
  g->level = 0;
  memset(g->open, 0, sizeof g->open);
  while (g->current.n_edges < target && !*stuck) {
    int *open = &g->open[g->level];
    if (*open < g->n_order) {
      COPSE_DO(extend_from(g, g->order[*open], &more));
      if (more)
        g->level = 0;
      else
        ++*open;
    } else if (g->level < g->top_level) {
      g->level++;
    } else {
      COPSE_DO(grow_any_part(g, stuck));
      g->level = 0;
    }
  }
  return COPSE_OK;
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
  struct copse_forest_edge *edges;
  COPSE_DO(COPSE_ARRAY(&g->forest->arena, (size_t)n, edges, g->err));
  for (int i = 0; i < n; i++) {
    const struct copse_grown_edge *from = &g->current.edges[i];
    size_t n_path = (size_t)from->n_path;
    int *path;
    COPSE_DO(COPSE_ARRAY(&g->forest->arena, n_path, path, g->err));
    memcpy(path, g->path + from->first, n_path * sizeof *path);
    edges[i] = (struct copse_forest_edge){from->src, from->dst, path, from->n_path};
  }
  tree.edges = edges;
  return copse_forest_add(g->forest, tree, n, g->depth, g->err);
}

copse_status copse_grower_root(struct copse_grower *g, int root, int64_t multiplicity,
                               bool *stuck) {
  g->root = root;
  g->current.multiplicity = multiplicity;
  g->current.n_edges = 0;
  g->n_path = 0;
  for (;;) {
    restart(g);
    COPSE_DO(grow_current(g, stuck));
    if (*stuck) break;
    COPSE_DO(emit(g));
    if (g->n_waiting == 0) break;
    struct copse_grown_family *next = &g->waiting[--g->n_waiting];
    g->current.multiplicity = next->multiplicity;
    g->current.n_edges = next->n_edges;
    memcpy(g->current.edges, next->edges, (size_t)next->n_edges * sizeof *next->edges);
    free(next->edges);
  }
  return COPSE_OK;
}

copse_status copse_grower_prepare(struct copse_grower *g) {
  size_t n = (size_t)g->network->n_nodes, m = (size_t)g->network->n_links;
  size_t terminals = (size_t)g->network->n_terminals;
  struct copse_arena *arena = &g->arena;
  COPSE_DO(copse_links_by_source(g->network, arena, &g->leaving, g->err));
  COPSE_DO(COPSE_ARRAYS(arena, m, int, g->err, &g->orbit, &g->avoid));
  COPSE_DO(COPSE_ARRAY(arena, m, g->left, g->err));
  COPSE_DO(copse_network_terminals(g->network, arena, &g->is_terminal, g->err));
  COPSE_DO(COPSE_ARRAY(arena, n, g->in_tree, g->err));
  COPSE_DO(COPSE_ARRAY(arena, terminals, g->order, g->err));
  COPSE_DO(COPSE_ARRAY(arena, terminals, g->current.edges, g->err));
  return COPSE_ARRAYS(arena, n, int, g->err, &g->via, &g->stamp, &g->queue, &g->chosen, &g->depth);
}

copse_status copse_grower_prepare_cuts(struct copse_grower *g, bool exits) {
  size_t n = (size_t)g->cuts.n;
  COPSE_DO(copse_cuts_join_lists(&g->cuts, g->err));
  COPSE_DO(COPSE_ARRAY(&g->arena, n, g->touched, g->err));
  if (exits) COPSE_DO(copse_arena_array(&g->arena, n, sizeof *g->exits, &g->exits, g->err));
  return COPSE_OK;
}

void copse_grower_drop_waiting(struct copse_grower *g) {
  while (g->n_waiting > 0) free(g->waiting[--g->n_waiting].edges);
}

void copse_grower_free(struct copse_grower *g) {
  copse_grower_drop_waiting(g);
  free(g->waiting);
  free(g->path);
  copse_cuts_free(&g->cuts);
  copse_arena_free(&g->arena);
}
