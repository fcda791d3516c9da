/*
 * Trees that grow side by side, one terminal each in turn, over physical links:
 *
 *      round 1   a > b         b > c         c > a          each tree takes the nearest terminal
 *      round 2   a > b, a > c  b > c, b > a  c > a, c > b   from its shallowest open vertex
 *
 * A tree t that is stuck before v is helped by an exchange: t takes the links (=) of another tree's
 * way to y, if y finds another place in its own tree, over free links or by one more exchange:
 *
 *      x ...===...> v           x in t; the way x' ...===...> y of the other tree gives = up,
 *      x'...===...> y           and y joins from z instead
 *      z ........> y
 *
 * With symmetries the trees are those of base roots, and what counts is what is left of each orbit
 * of links (trees/grow.c).
 *
 * In this file: growing, exchanges, preparation, the whole.
 * docs/theory.md, "Heuristics that prove themselves".
 */
#include "solver/trees/maker.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/rational.h"
#include "solver/network/cuts.h"
#include "solver/policy.h"

/* How a tree comes to a terminal: over links g->path[first] .. [first + n - 1]. */
struct way {
  int src; /* number of the terminal it comes from; -1: the root, or not reached */
  int n;
  size_t first;
  uint64_t bits; /* bit_of of each of its links' orbits */
};

/* Returns an orbit's bit; orbits share 64: a way without an orbit's bit does not use it. */
static inline uint64_t bit_of(int orbit) { return (uint64_t)1 << (orbit & 63); }

/* Terminals go by their number here, 0 .. n - 1. */
struct tree {
  int root;
  struct way *ways; /* [n] of g->ways */
  int *depth;       /* [n] -1: not reached */
  int *order;       /* [n_order] as they joined */
  int n_order;
  int open;               /* vertices of `order` before it have no way left to another terminal */
  unsigned char *entered; /* [n_cuts] */
};

/* A way that uses a link of an orbit, or used it once. */
struct user {
  int tree, vertex;
};

struct users {
  struct user *list;
  size_t n, capacity;
};

/* Terminals from which there is a way over links that all have something left. */
struct sources {
  int n; /* more than there is room for: many */
  int terminals[COPSE_LEVELS_SOURCES];
};

/* A breadth-first search; a node in layer l is number node + l * n_nodes. Layers: before a full
 * link, at its end, beyond. */
#define LAYERS 3

struct search {
  int *via;   /* [layers * n_nodes] the link and the layer it was come by */
  int *stamp; /* [layers * n_nodes] the search that saw it last */
  int *queue; /* [layers * n_nodes] */
  int n;      /* searches so far */
  int *ends;  /* [layers * n_nodes] n_ends of them */
  int n_ends;
  int *links; /* [n_nodes] of a way that was found, n_links of them */
  int n_links;
  int *full; /* [n_nodes] orbits of those links that are full */
};

/* A link that leaves a node, as growing reads them, one after the other. */
struct step {
  int link, orbit, dst, number; /* of dst as a terminal; -1: a relay */
};

struct grower {
  const struct copse_network *network;
  struct copse_forest *forest;
  int n;                                    /* terminals */
  int *number;                              /* [n_nodes] of a terminal; -1: a relay */
  struct copse_orbits orbits;               /* what is left of each orbit of links */
  struct copse_adjacency leaving, entering; /* links by source, by destination */
  struct step *steps_of;                    /* [n_links] in the order of leaving.item */
  struct copse_cuts cuts;                   /* tight: every tree may enter them once */
  int *first_cut, *entered; /* by link: the cuts that it enters, entered[first_cut[e]] .. */
  struct tree *trees;
  int n_trees, n_made;
  struct way *ways; /* [n_trees * n] of all trees, where exchanges look for users */
  int *path;        /* links of all ways */
  size_t n_path, path_capacity;
  struct users *users;     /* [orbits.n], NULL before the first exchange */
  struct sources *sources; /* [n_nodes], as the last repair found them */
  struct search search[COPSE_LEVELS_CHAIN + 1];
  int64_t steps; /* of exchanges that are left: candidates looked at, links walked back */
  int allowed;   /* of them, for the repair at hand */
  struct copse_arena arena;
  struct copse_err *err;
};

static inline int64_t left_of(const struct grower *g, int link) {
  return g->orbits.left[g->orbits.of[link]];
}

/* Whether enough is left for a way, which may use several links of an orbit. */
static bool has_room(const struct grower *g, const int *links, int n) {
  const int *of = g->orbits.of;
  for (int i = 0; i < n; i++) {
    int64_t uses = 1;
    for (int j = 0; j < i; j++) uses += of[links[j]] == of[links[i]];
    if (left_of(g, links[i]) < uses) return false;
  }
  return true;
}

/* Whether the tree may use a link on a way to node `end` (-1: it is not known yet): what is
 * entered already is not entered again, and nothing only to pass through it. */
static bool may_enter(const struct grower *g, const struct tree *tree, int link, int end) {
  for (int i = g->first_cut[link]; i < g->first_cut[link + 1]; i++)
    if (tree->entered[g->entered[i]] ||
        (end >= 0 && !copse_cuts_hold(&g->cuts, g->entered[i], end)))
      return false;
  return true;
}

static copse_status note_user(struct grower *g, int link, int tree, int vertex) {
  struct users *users = &g->users[g->orbits.of[link]];
  return COPSE_PUSH(users->list, users->n, users->capacity, g->err, (struct user){tree, vertex});
}

/* Takes the way of `search` from x to terminal y, which the tree did not have. */
static copse_status join(struct grower *g, int index, int x, int y, const struct search *search) {
  struct tree *tree = &g->trees[index];
  struct way *way = &tree->ways[y];
  int end = g->network->terminals[y];
  COPSE_DO(COPSE_GROW(g->path, g->path_capacity, g->n_path + (size_t)search->n_links, g->err));
  *way = (struct way){x, search->n_links, g->n_path, 0};
  for (int i = 0; i < search->n_links; i++) {
    int e = search->links[i];
    g->path[g->n_path++] = e;
    way->bits |= bit_of(g->orbits.of[e]);
    g->orbits.left[g->orbits.of[e]]--;
    for (int j = g->first_cut[e]; j < g->first_cut[e + 1]; j++)
      if (copse_cuts_hold(&g->cuts, g->entered[j], end)) tree->entered[g->entered[j]] = 1;
    if (g->users) COPSE_DO(note_user(g, e, index, y));
  }
  return COPSE_OK;
}

/* Collects the way of the search from `start` that ends with `link`; whether the tree may take
 * it. */
static bool collect_way(struct grower *g, const struct tree *tree, int start, int link,
                        struct search *search) {
  const struct copse_net_link *links = g->network->links;
  int n = 1, end = links[link].dst;
  for (int e = link; links[e].src != start; e = search->via[links[e].src]) n++;
  search->n_links = n;
  for (int e = link; n > 0; e = search->via[links[e].src]) {
    if (!may_enter(g, tree, e, end)) return false;
    search->links[--n] = e;
  }
  return has_room(g, search->links, search->n_links);
}

static copse_status add_vertex(struct grower *g, int index, int x, int y,
                               const struct search *search) {
  struct tree *tree = &g->trees[index];
  tree->depth[y] = tree->depth[x] + 1;
  tree->order[tree->n_order++] = y;
  return join(g, index, x, y, search);
}

/*
 * Searches from vertex x over relays to at most `most` terminals that the tree has not, nearest
 * first. Where a relay leads to many, roots begin at different ones, and every turn at the next.
 */
static copse_status search_from(struct grower *g, int index, int x, int most, int *taken) {
  struct tree *tree = &g->trees[index];
  struct search *s = &g->search[0];
  struct copse_queue queue = {.items = s->queue};
  int start = g->network->terminals[x];
  *taken = 0;
  s->n++;
  copse_queue_push(&queue, start);
  while (!copse_queue_is_empty(&queue)) {
    int a = copse_queue_pop(&queue), first = g->leaving.first[a],
        degree = g->leaving.first[a + 1] - first;
    int turn = (int)(((int64_t)x * degree / g->n + tree->n_order) % (degree ? degree : 1));
    for (int i = 0, at = turn; i < degree; i++, at = at + 1 < degree ? at + 1 : 0) {
      const struct step *step = &g->steps_of[first + at];
      int e = step->link, b = step->dst, y = step->number;
      if (y >= 0 ? tree->depth[y] >= 0 : s->stamp[b] == s->n) continue;
      if (g->orbits.left[step->orbit] == 0) continue;
      if (y >= 0) {
        if (!collect_way(g, tree, start, e, s)) continue;
        COPSE_DO(add_vertex(g, index, x, y, s));
        if (++*taken == most) return COPSE_OK;
      } else if (may_enter(g, tree, e, -1)) {
        s->stamp[b] = s->n;
        s->via[b] = e;
        copse_queue_push(&queue, b);
      }
    }
  }
  return COPSE_OK;
}

/* Brings at most `most` more terminals into a tree; *taken of them. */
static copse_status grow(struct grower *g, int index, int most, int *taken) {
  struct tree *tree = &g->trees[index];
  *taken = 0;
  while (tree->open < tree->n_order && *taken < most && tree->n_order < g->n) {
    int more;
    COPSE_DO(search_from(g, index, tree->order[tree->open], most - *taken, &more));
    *taken += more;
    if (*taken < most) tree->open++; /* room only shrinks, and the tree only grows */
  }
  return COPSE_OK;
}

/* ---- terminals that still reach a node --------------------------------------------------- */

/* Adds a terminal to those from which a node is reached; false where nothing changes. */
static bool add_source(struct grower *g, int node, int from) {
  struct sources *s = &g->sources[node];
  if (s->n > COPSE_LEVELS_SOURCES) return false;
  for (int i = 0; i < s->n; i++)
    if (s->terminals[i] == from) return false;
  if (s->n < COPSE_LEVELS_SOURCES) s->terminals[s->n] = from;
  s->n++;
  return true;
}

/* Finds, for relays, from where there is a way over links that have something left; for terminals
 * only over a single link, since what lies on both sides of a relay is found at the relay. */
static void find_sources(struct grower *g) {
  struct copse_queue queue = {.items = g->search[0].queue};
  memset(g->sources, 0, (size_t)g->network->n_nodes * sizeof *g->sources);
  for (int x = 0; x < g->n; x++) {
    copse_queue_reset(&queue);
    copse_queue_push(&queue, g->network->terminals[x]);
    while (!copse_queue_is_empty(&queue)) {
      int a = copse_queue_pop(&queue);
      for (int i = g->leaving.first[a]; i < g->leaving.first[a + 1]; i++) {
        int e = g->leaving.item[i], b = g->network->links[e].dst;
        if (left_of(g, e) == 0 || (g->number[b] >= 0 && g->number[a] < 0)) continue;
        if (add_source(g, b, x) && g->number[b] < 0) copse_queue_push(&queue, b);
      }
    }
  }
}

/* Whether x is in the tree and does not hang below v. */
static bool is_above(const struct tree *tree, int x, int v) {
  if (tree->depth[x] < 0) return false;
  while (x != v && tree->ways[x].src >= 0) x = tree->ways[x].src;
  return x == tree->root;
}

/* Whether a way, once it is free from orbit `taken` on, can be come upon from another vertex: a
 * quick look at what search_back would find. */
static bool has_source(const struct grower *g, struct user user, int taken) {
  const struct tree *tree = &g->trees[user.tree];
  const struct way *way = &tree->ways[user.vertex];
  for (int i = way->n - 1; i >= 0; i--) {
    int e = g->path[way->first + (size_t)i];
    const struct sources *s = &g->sources[g->network->links[e].dst];
    if (s->n > COPSE_LEVELS_SOURCES) return true;
    for (int j = 0; j < s->n; j++)
      if (is_above(tree, s->terminals[j], user.vertex)) return true;
    if (g->orbits.of[e] == taken) return false;
  }
  return false;
}

/* ---- users of a link --------------------------------------------------------------------- */

static copse_status list_users(struct grower *g) {
  COPSE_DO(COPSE_ARRAY(&g->arena, (size_t)g->orbits.n, g->users, g->err));
  for (int t = 0; t < g->n_trees; t++)
    for (int v = 0; v < g->n; v++) {
      const struct way *way = &g->trees[t].ways[v];
      for (int i = 0; way->src >= 0 && i < way->n; i++)
        COPSE_DO(note_user(g, g->path[way->first + (size_t)i], t, v));
    }
  return COPSE_OK;
}

/* Whether the way still uses all orbits that a search found to be full. */
static bool uses_all(const struct grower *g, struct user user, const int *full, int n_full) {
  const struct way *way = &g->trees[user.tree].ways[user.vertex];
  if (way->src < 0) return false;
  for (int i = 0; i < n_full; i++) {
    int j = 0;
    while (j < way->n && g->orbits.of[g->path[way->first + (size_t)j]] != full[i]) j++;
    if (j == way->n) return false;
  }
  return true;
}

/* ---- searching --------------------------------------------------------------------------- */

/* Collects the way from the node `at` to terminal v, as the search went backwards. */
static void collect_back(const struct grower *g, struct search *s, int at, int v) {
  int n_links = g->network->n_links, n_nodes = g->network->n_nodes;
  s->n_links = 0;
  do {
    int e = s->via[at] % n_links, layer = s->via[at] / n_links;
    s->links[s->n_links++] = e;
    at = g->network->links[e].dst + layer * n_nodes;
  } while (at != g->network->terminals[v]);
}

/*
 * Searches backwards from v, which hangs nowhere, to vertices of the tree that do not hang below
 * it: s->ends, the nearest first. With `full`, one stretch of the way is over links that have
 * nothing left (layer 1; layer 2 is beyond), else none. Each link counts against g->allowed.
 */
static void search_back(struct grower *g, int t, int v, struct search *s, bool full) {
  const struct tree *tree = &g->trees[t];
  struct copse_queue queue = {.items = s->queue};
  int n_nodes = g->network->n_nodes;
  s->n++;
  s->n_ends = 0;
  copse_queue_push(&queue, g->network->terminals[v]);
  while (!copse_queue_is_empty(&queue)) {
    int at = copse_queue_pop(&queue), b = at % n_nodes, layer = at / n_nodes;
    g->allowed -= g->entering.first[b + 1] - g->entering.first[b];
    for (int i = g->entering.first[b]; i < g->entering.first[b + 1]; i++) {
      int e = g->entering.item[i], a = g->network->links[e].src, u = g->number[a];
      bool is_full = left_of(g, e) == 0;
      if (is_full && (!full || layer == 2)) continue;
      int a_layer = is_full ? 1 : layer == 0 ? 0 : 2, to = a + a_layer * n_nodes;
      if (s->stamp[to] == s->n) continue;
      s->stamp[to] = s->n;
      s->via[to] = e + layer * g->network->n_links;
      if (u < 0)
        copse_queue_push(&queue, to);
      else if ((a_layer > 0 || !full) && is_above(tree, u, v))
        s->ends[s->n_ends++] = to;
    }
  }
}

/* ---- exchanging -------------------------------------------------------------------------- */

static void give_back(struct grower *g, const struct way *way, int sign) {
  for (int i = 0; i < way->n; i++)
    g->orbits.left[g->orbits.of[g->path[way->first + (size_t)i]]] += sign;
}

static void measure(const struct grower *g, struct tree *tree) {
  for (int v = 0; v < g->n; v++) {
    if (tree->depth[v] < 0) continue;
    tree->depth[v] = 0;
    for (int u = v; tree->ways[u].src >= 0; u = tree->ways[u].src) tree->depth[v]++;
  }
}

/* Takes back the last thing that was done: v joined the tree. */
static void leave(struct grower *g, int t, int v) {
  struct way *way = &g->trees[t].ways[v];
  give_back(g, way, 1);
  for (int i = 0; i < way->n; i++) g->users[g->orbits.of[g->path[way->first + (size_t)i]]].n--;
  g->n_path = way->first;
  way->src = -1;
}

static copse_status attach(struct grower *g, int t, int v, int chain, bool *done);

/* Joins v to its tree at x by the way of the search, at the cost of another tree's way; or nothing
 * changes. */
static copse_status exchange(struct grower *g, int t, int v, int x, const struct search *search,
                             struct user user, int chain, bool *done) {
  struct way *way = &g->trees[user.tree].ways[user.vertex], old = *way;
  give_back(g, &old, 1);
  if (has_room(g, search->links, search->n_links)) {
    way->src = -1;
    COPSE_DO(join(g, t, x, v, search));
    COPSE_DO(attach(g, user.tree, user.vertex, chain - 1, done));
    if (*done) {
      measure(g, &g->trees[user.tree]);
      return COPSE_OK;
    }
    leave(g, t, v);
    *way = old;
  }
  give_back(g, &old, -1);
  return COPSE_OK;
}

/* Returns the next way, from *i downwards, that may use full orbits with these bits: nearly all
 * that is looked at is turned away here. Each counts against g->allowed; false: no more, or none
 * allowed. */
static bool next_user(struct grower *g, int orbit, uint64_t bits, int t, size_t *i) {
  const struct user *list = g->users[orbit].list;
  const struct way *ways = g->ways;
  size_t n = (size_t)g->n, at = *i;
  int left = g->allowed;
  bool found = false;
  while (!found && at-- > 0 && --left > 0) {
    int tree = list[at].tree;
    found = (ways[(size_t)tree * n + (size_t)list[at].vertex].bits & bits) == bits && tree != t;
  }
  *i = at;
  g->allowed = left;
  return found;
}

/* Tries an exchange with each way that uses all the links that the search found to be full, until
 * one serves. */
static copse_status exchange_any(struct grower *g, int t, int v, int x, const struct search *search,
                                 int chain, bool *done) {
  int n_full = 0, *full = search->full;
  uint64_t bits = 0;
  for (int i = 0; i < search->n_links; i++) {
    if (left_of(g, search->links[i]) != 0) continue;
    full[n_full++] = g->orbits.of[search->links[i]];
    bits |= bit_of(g->orbits.of[search->links[i]]);
  }
  for (size_t i = g->users[full[0]].n; !*done && next_user(g, full[0], bits, t, &i);) {
    struct user user = g->users[full[0]].list[i];
    if (!uses_all(g, user, full, n_full)) continue;
    if (chain == 1 && !has_source(g, user, full[0])) continue;
    COPSE_DO(exchange(g, t, v, x, search, user, chain, done));
  }
  return COPSE_OK;
}

/* Finds a way over free links, from the shallowest vertex that has one; false: there is none. */
static bool find_place(struct grower *g, int t, int v, struct search *s, int *x) {
  const int *depth = g->trees[t].depth;
  int best = -1;
  search_back(g, t, v, s, false);
  for (int i = 0; i < s->n_ends; i++) {
    int u = g->number[s->ends[i]];
    if (best >= 0 && depth[u] >= depth[*x]) continue;
    *x = u;
    best = s->ends[i];
  }
  if (best >= 0) collect_back(g, s, best, v);
  return best >= 0 && has_room(g, s->links, s->n_links);
}

/* Finds v, which hangs nowhere, a place in the tree: over free links, else by an exchange. */
static copse_status attach(struct grower *g, int t, int v, int chain, bool *done) {
  struct search *s = &g->search[chain];
  int x;
  *done = find_place(g, t, v, s, &x);
  if (*done) return join(g, t, x, v, s);
  if (chain == 0) return COPSE_OK;
  search_back(g, t, v, s, true);
  for (int i = 0; i < s->n_ends && i < COPSE_LEVELS_MOST_WAYS && !*done && g->allowed > 0; i++) {
    collect_back(g, s, s->ends[i], v);
    x = g->number[s->ends[i] % g->network->n_nodes];
    COPSE_DO(exchange_any(g, t, v, x, s, chain, done));
  }
  return COPSE_OK;
}

/* Repairs one more terminal for a tree that is stuck, by at most `chain` exchanges in a row. */
static copse_status repair(struct grower *g, int t, int chain, bool *repaired) {
  struct tree *tree = &g->trees[t];
  int most = (int)copse_smaller(g->steps, COPSE_LEVELS_REPAIR_STEPS);
  if (!g->users) COPSE_DO(list_users(g));
  *repaired = false;
  g->allowed = most;
  find_sources(g);
  for (int v = 0; v < g->n && !*repaired && g->allowed > 0; v++) {
    if (tree->depth[v] >= 0) continue;
    COPSE_DO(attach(g, t, v, chain, repaired));
    if (!*repaired) continue;
    tree->depth[v] = 0;
    tree->order[tree->n_order++] = v;
    measure(g, tree);
    tree->open = 0; /* room may have grown */
  }
  g->steps -= most - g->allowed;
  return COPSE_OK;
}

/* ---- preparation --------------------------------------------------------------------------- */

static copse_status list_cuts_by_link(struct grower *g) {
  const struct copse_network *network = g->network;
  size_t n = 0, capacity = 0;
  COPSE_DO(COPSE_ARRAY(&g->arena, (size_t)network->n_links + 1, g->first_cut, g->err));
  for (int e = 0; e < network->n_links; e++) {
    const struct copse_net_link *link = &network->links[e];
    const struct copse_cuts_of_node *of = &g->cuts.of[link->dst];
    g->first_cut[e] = (int)n;
    for (int i = 0; i < of->n; i++) {
      if (copse_cuts_hold(&g->cuts, of->cuts[i], link->src)) continue;
      COPSE_DO(COPSE_PUSH(g->entered, n, capacity, g->err, of->cuts[i]));
    }
  }
  g->first_cut[network->n_links] = (int)n;
  return COPSE_OK;
}

static copse_status make_searches(struct grower *g) {
  size_t n = (size_t)g->network->n_nodes;
  for (int i = 0; i <= COPSE_LEVELS_CHAIN; i++) {
    struct search *s = &g->search[i];
    COPSE_DO(
        COPSE_ARRAYS(&g->arena, LAYERS * n, int, g->err, &s->via, &s->stamp, &s->queue, &s->ends));
    COPSE_DO(COPSE_ARRAYS(&g->arena, n, int, g->err, &s->links, &s->full));
  }
  return COPSE_OK;
}

/* ---- the trees --------------------------------------------------------------------------- */

static copse_status make_tree(struct grower *g, int root) {
  size_t n = (size_t)g->n;
  struct tree *tree = &g->trees[g->n_made];
  tree->ways = g->ways + (size_t)g->n_made++ * n;
  COPSE_DO(COPSE_ARRAYS(&g->arena, n, int, g->err, &tree->depth, &tree->order));
  COPSE_DO(COPSE_ARRAY(&g->arena, (size_t)g->cuts.n, tree->entered, g->err));
  for (int v = 0; v < g->n; v++) {
    tree->ways[v].src = -1;
    tree->depth[v] = -1;
  }
  tree->root = root;
  tree->depth[root] = 0;
  tree->order[tree->n_order++] = root;
  memcpy(tree->entered, copse_cuts_flags(&g->cuts, g->network->terminals[root]), (size_t)g->cuts.n);
  return COPSE_OK;
}

/* Counts how many trees there are; false where they are too many. */
static bool count_trees(struct grower *g, int64_t k) {
  int64_t n = 0, more;
  for (int i = 0; i < g->orbits.n_roots; i++)
    if (copse_mul_overflows(g->network->roots[g->orbits.roots[i]].weight, k, &more) ||
        copse_add_overflows(n, more, &n) || n > COPSE_LEVELS_MOST / g->n)
      return false;
  g->n_trees = (int)n;
  return true;
}

static copse_status prepare(struct grower *g, const struct copse_tree_problem *problem,
                            int64_t k) {
  const struct copse_network *network = g->network;
  size_t nodes = (size_t)network->n_nodes, links = (size_t)network->n_links;
  COPSE_DO(COPSE_ARRAY(&g->arena, nodes, g->number, g->err));
  COPSE_DO(COPSE_ARRAY(&g->arena, nodes, g->sources, g->err));
  for (int v = 0; v < network->n_nodes; v++) g->number[v] = -1;
  for (int i = 0; i < g->n; i++) g->number[network->terminals[i]] = i;
  COPSE_DO(copse_links_by_source(network, &g->arena, &g->leaving, g->err));
  COPSE_DO(copse_links_by_destination(network, &g->arena, &g->entering, g->err));
  COPSE_DO(COPSE_ARRAY(&g->arena, links, g->steps_of, g->err));
  for (int i = 0; i < network->n_links; i++) {
    int e = g->leaving.item[i], b = network->links[e].dst;
    g->steps_of[i] = (struct step){e, g->orbits.of[e], b, g->number[b]};
  }
  COPSE_DO(copse_cuts_tight(network, problem->capacities, problem->k, network->terminals, g->n,
                            &g->cuts, g->err));
  COPSE_DO(list_cuts_by_link(g));
  COPSE_DO(make_searches(g));
  COPSE_DO(COPSE_ARRAY(&g->arena, (size_t)g->n_trees, g->trees, g->err));
  COPSE_DO(COPSE_ARRAY(&g->arena, (size_t)g->n_trees * (size_t)g->n, g->ways, g->err));
  for (int i = 0; i < g->orbits.n_roots; i++) {
    const struct copse_net_root *root = &network->roots[g->orbits.roots[i]];
    for (int64_t j = 0; j < root->weight * k; j++)
      COPSE_DO(make_tree(g, g->number[root->node]));
  }
  return COPSE_OK;
}

static void release(struct grower *g) {
  for (int e = 0; g->users && e < g->orbits.n; e++) free(g->users[e].list);
  copse_cuts_free(&g->cuts);
  free(g->entered);
  free(g->path);
  copse_arena_free(&g->arena);
}

/* ---- the whole --------------------------------------------------------------------------- */

/* Grows all trees in turns, one terminal each, until none finds another. */
static copse_status grow_all(struct grower *g, const struct copse_progress *progress) {
  int round = 0;
  for (bool grown = true; grown; round++) {
    grown = false;
    for (int t = 0; t < g->n_trees; t++) {
      int taken;
      COPSE_DO(grow(g, t, 1, &taken));
      grown = grown || taken > 0;
    }
    copse_progress_report(progress, "pack", round < g->n ? round : g->n, g->n);
  }
  return COPSE_OK;
}

/* Repairs stuck trees as far as possible. */
static copse_status repair_all(struct grower *g, int chain, bool *any, bool *complete) {
  *any = false;
  *complete = true;
  for (int t = 0; t < g->n_trees; t++) {
    bool repaired = true;
    while (g->trees[t].n_order < g->n && repaired) {
      int taken;
      COPSE_DO(repair(g, t, chain, &repaired));
      if (repaired) COPSE_DO(grow(g, t, g->n, &taken));
      *any = *any || repaired;
    }
    *complete = *complete && g->trees[t].n_order == g->n;
  }
  return COPSE_OK;
}

/* Finishes what is stuck, by ever longer chains of exchanges. */
static copse_status finish(struct grower *g, bool *complete) {
  bool any;
  *complete = false;
  for (int chain = 0; chain <= COPSE_LEVELS_CHAIN && !*complete; chain++) do {
      COPSE_DO(repair_all(g, chain, &any, complete));
    } while (any && !*complete && g->steps > 0);
  return COPSE_OK;
}

static copse_status keep_edge(struct grower *g, const struct tree *tree, int v,
                              struct copse_forest_edge *out) {
  const struct way *way = &tree->ways[v];
  const struct copse_network *network = g->network;
  int *nodes;
  COPSE_DO(COPSE_ARRAY(&g->forest->arena, (size_t)way->n + 1, nodes, g->err));
  for (int i = 0; i < way->n; i++) {
    const struct copse_net_link *link = &network->links[g->path[way->first + (size_t)i]];
    nodes[i] = link->src;
    nodes[i + 1] = link->dst;
  }
  *out = (struct copse_forest_edge){network->terminals[way->src], network->terminals[v], nodes,
                                    way->n + 1};
  return COPSE_OK;
}

/* Keeps a tree, its edges by depth: every src has the data. At each depth they begin behind the
 * root's number, so that roots that send to all others do not all begin with the same. */
static copse_status keep_tree(struct grower *g, const struct tree *tree) {
  struct copse_forest_edge *edges;
  COPSE_DO(COPSE_ARRAY(&g->forest->arena, (size_t)g->n, edges, g->err));
  for (int n = 0, depth = 1; n < g->n - 1; depth++)
    for (int i = 0, v = tree->root; i < g->n; i++, v = v + 1 < g->n ? v + 1 : 0)
      if (tree->depth[v] == depth) COPSE_DO(keep_edge(g, tree, v, &edges[n++]));
  struct copse_forest_tree kept = {
      .root = g->network->terminals[tree->root], .multiplicity = 1, .edges = edges};
  return copse_forest_add(g->forest, kept, g->n - 1, g->search->queue, g->err);
}

/* Sets how many steps exchanges may take; false where they can't finish the trees. */
static bool is_worth_finishing(struct grower *g) {
  int64_t all = (int64_t)g->n_trees * g->n, missing = all;
  for (int t = 0; t < g->n_trees; t++) missing -= g->trees[t].n_order;
  g->steps = COPSE_LEVELS_LEAST_STEPS + COPSE_LEVELS_STEPS_EACH * missing;
  if (g->steps > COPSE_LEVELS_MOST_STEPS) g->steps = COPSE_LEVELS_MOST_STEPS;
  return missing <= all / COPSE_LEVELS_LEAST_GROWN;
}

/* Makes `times` as many trees. */
static copse_status attempt(const struct copse_tree_problem *problem, int64_t times,
                            struct copse_forest *forest, int64_t *whole, bool *made,
                            struct copse_err *err) {
  COPSE_AT_END(release)
  struct grower g = {.network = problem->network,
                     .forest = forest,
                     .n = problem->network->n_terminals,
                     .err = err};
  int64_t k;
  *made = false;
  COPSE_DO(copse_orbits_make(problem, times, &g.arena, &g.orbits, err));
  *whole = g.orbits.times;
  if (copse_mul_overflows(problem->k, times, &k) || !count_trees(&g, k)) return COPSE_OK;
  COPSE_DO(prepare(&g, problem, k));
  COPSE_DO(grow_all(&g, problem->progress));
  if (is_worth_finishing(&g)) COPSE_DO(finish(&g, made));
  for (int t = 0; *made && t < g.n_trees; t++) COPSE_DO(keep_tree(&g, &g.trees[t]));
  if (!*made || !copse_has_symmetry(problem)) return COPSE_OK;
  forest->k = k;
  forest->base_only = true;
  return COPSE_OK;
}

copse_status copse_make_levels(const struct copse_tree_problem *problem,
                               struct copse_forest *forest, bool *made, struct copse_err *err) {
  int64_t whole;
  *made = false;
  if (copse_has_symmetry(problem) && !copse_network_equal_weights(problem->network))
    return COPSE_OK;
  COPSE_DO(attempt(problem, 1, forest, &whole, made, err));
  if (!*made && problem->multiple && whole > 1 && whole <= COPSE_ORBIT_MOST_TIMES)
    COPSE_DO(attempt(problem, whole, forest, &whole, made, err));
  return *made ? copse_forest_shorten(problem->network, forest, err) : COPSE_OK;
}
