/*
 * Trees grown one after the other over physical links: in this file the growing, then the makers of
 * trees of one root and of those of one root of each orbit (trees/maker.h).
 *
 * A tree grows breadth-first: from the first vertex that has a way left over relays to the nearest
 * terminals that the tree lacks. A cut that the tree is in is not entered again unless it can spare
 * that, and a path that enters a cut ends in it. Once the tree is in all cuts, and has all
 * terminals that no cut holds, level 0 looks at no relay outside of them:
 *
 *      x > leaf > [ nic > gpu ]       taken: enters host [ ] once and ends there
 *      x > leaf > [ nic > nic' ] > y  not taken: passes through
 *
 * Ways are taken at once at level 0; at higher levels those that draw on orbits that ran out
 * before, or that enter a cut again. Where no way carries the whole family, part of it goes on, and
 * a copy of the rest waits. docs/theory.md, "Heuristics that prove themselves".
 */
#include <stdlib.h>
#include <string.h>

#include "base/rational.h"
#include "solver/network/cuts.h"
#include "solver/policy.h"
#include "solver/trees/maker.h"

struct grown_edge {
  int src, dst;
  size_t first; /* its path: grower.path[first] .. */
  int n_path;
};

/* `multiplicity` equal trees, grown so far. */
struct grown_family {
  int64_t multiplicity;
  int n_edges;
  struct grown_edge *edges; /* [n_terminals - 1] */
};

struct grower {
  const struct copse_network *network;
  struct copse_orbits orbits;
  int *avoid; /* [orbits.n] 0: taken at once; others as a later resort, by number */
  struct copse_adjacency leaving; /* links by source */
  struct copse_cuts cuts;         /* slack: how much may enter again, as a later resort */
  bool *is_terminal, *in_tree;    /* [n_nodes] */
  unsigned char *touched;         /* [cuts.n] the tree is in the cut already */
  int64_t *exits; /* [cuts.n] what is left of the links out of it: cuts with more are entered
                     first. NULL: in the order in which they are found */
  int root;
  int *order; /* [n_terminals] the tree's, as they joined */
  int n_order;
  int level, top_level;         /* orbits to be avoided more than `level` are not taken now */
  int open[COPSE_ORBIT_LEVELS]; /* by level: vertices of `order` before it have no way left */
  struct grown_family current;
  struct grown_family *waiting; /* split off, to be finished later */
  size_t n_waiting, waiting_capacity;
  int *path; /* all edges' paths */
  size_t n_path, path_capacity;
  int *via;   /* [n_nodes] the link by which the search came to a relay */
  int *stamp; /* [n_nodes] the last search that reached a node */
  int n_searches;
  int *queue;  /* [n_nodes] */
  int *chosen; /* [n_nodes] links of the path at hand, last first */
  struct copse_forest *forest;
  int *depth;               /* [n_nodes] */
  struct copse_arena arena; /* owns all arrays but the growing ones */
  struct copse_err *err;
};

/* Returns how much of `want` may cross the link: a cut that the tree is in is entered again only
 * where it can spare that, and as a later resort. */
static int64_t spared_by_cuts(const struct grower *g, const struct copse_net_link *link,
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

/* Whether a path that enters a cut ends in it: else the tree would have to enter once more. */
static bool ends_inside(const struct grower *g, const struct copse_net_link *link, int end) {
  const struct copse_cuts_of_node *of = &g->cuts.of[link->dst];
  for (int i = 0; i < of->n; i++)
    if (!copse_cuts_hold(&g->cuts, of->cuts[i], link->src) &&
        !copse_cuts_hold(&g->cuts, of->cuts[i], end))
      return false;
  return true;
}

/* Collects the links from x to the end of `last`, last first, into g->chosen; returns how many. */
static int collect_path(struct grower *g, int x, int last) {
  int n = 0;
  for (int e = last;; e = g->via[g->network->links[e].src]) {
    g->chosen[n++] = e;
    if (g->network->links[e].src == x) return n;
  }
}

/* Returns how many of `want` the path can carry; 0 where the rule of cuts forbids it. */
static int64_t path_amount(const struct grower *g, int n, int64_t want) {
  int end = g->network->links[g->chosen[0]].dst;
  for (int i = 0; i < n && want > 0; i++) {
    int64_t uses = 1, left = g->orbits.left[g->orbits.of[g->chosen[i]]];
    for (int j = 0; j < i; j++) uses += g->orbits.of[g->chosen[j]] == g->orbits.of[g->chosen[i]];
    if (left / uses < want) want = left / uses;
    const struct copse_net_link *link = &g->network->links[g->chosen[i]];
    want = spared_by_cuts(g, link, want);
    if (!ends_inside(g, link, end)) return 0;
  }
  return want;
}

/* Returns how much can leave the cuts that the path enters; -1: it enters none. */
static int64_t exits_of_path(const struct grower *g, int n) {
  int end = g->network->links[g->chosen[0]].dst, from = g->network->links[g->chosen[n - 1]].src;
  const struct copse_cuts_of_node *of = &g->cuts.of[end];
  int64_t sum = -1;
  for (int i = 0; i < of->n; i++)
    if (!copse_cuts_hold(&g->cuts, of->cuts[i], from))
      sum = (sum < 0 ? 0 : sum) + g->exits[of->cuts[i]];
  return sum;
}

/* Notes that a link was used: the cuts that it leads out of have that much less to spare, and so
 * has a cut that it enters again. */
static void use_cuts(struct grower *g, const struct copse_net_link *link, int64_t amount) {
  const struct copse_cuts_of_node *of = &g->cuts.of[link->src];
  for (int i = 0; i < of->n; i++)
    if (!copse_cuts_hold(&g->cuts, of->cuts[i], link->dst)) g->exits[of->cuts[i]] -= amount;
  of = &g->cuts.of[link->dst];
  for (int i = 0; i < of->n; i++)
    if (g->touched[of->cuts[i]] && !copse_cuts_hold(&g->cuts, of->cuts[i], link->src))
      g->cuts.slack[of->cuts[i]] -= amount;
}

static copse_status split_family(struct grower *g, int64_t amount) {
  COPSE_DO(COPSE_GROW(g->waiting, g->waiting_capacity, g->n_waiting + 1, g->err));
  struct grown_family *copy = &g->waiting[g->n_waiting];
  *copy = (struct grown_family){g->current.multiplicity - amount, g->current.n_edges, NULL};
  COPSE_DO(copse_calloc((size_t)copy->n_edges, sizeof *copy->edges, &copy->edges, g->err));
  memcpy(copy->edges, g->current.edges, (size_t)copy->n_edges * sizeof *copy->edges);
  g->n_waiting++;
  g->current.multiplicity = amount;
  return COPSE_OK;
}

static void join_tree(struct grower *g, int node) {
  g->in_tree[node] = true;
  g->order[g->n_order++] = node;
  for (int i = 0; i < g->cuts.of[node].n; i++) g->touched[g->cuts.of[node].cuts[i]] = 1;
}

/* Extends the current family by the path of g->chosen. */
static copse_status extend(struct grower *g, int n, int64_t amount) {
  const struct copse_net_link *links = g->network->links;
  if (amount < g->current.multiplicity) COPSE_DO(split_family(g, amount));
  COPSE_DO(COPSE_GROW(g->path, g->path_capacity, g->n_path + (size_t)n + 1, g->err));
  struct grown_edge edge = {links[g->chosen[n - 1]].src, links[g->chosen[0]].dst, g->n_path, n + 1};
  g->path[g->n_path++] = edge.src;
  for (int i = n - 1; i >= 0; i--) {
    g->path[g->n_path++] = links[g->chosen[i]].dst;
    g->orbits.left[g->orbits.of[g->chosen[i]]] -= amount;
    if (g->exits) use_cuts(g, &links[g->chosen[i]], amount);
  }
  g->current.edges[g->current.n_edges++] = edge;
  join_tree(g, edge.dst);
  return COPSE_OK;
}

/* A search over relays for the best way into the tree at hand. */
struct search {
  bool part;     /* looks for the way that carries most, not for one that carries the family */
  bool inside;   /* looks at no relay in no cut */
  int64_t most;  /* what the best way carries, */
  int64_t exits; /* how much can leave what it enters (-1: it enters no cut), */
  int end;       /* and its last link */
  bool taken;    /* some way was taken that is as good as any */
};

/* Weighs a way from x that ends with link e: taken at once where nothing could be better. */
static copse_status weigh(struct grower *g, int x, int e, struct search *search) {
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

/* Returns the first link that a tree tries. It differs from the link of the tree before, so that
 * the capacity left in hosts with few trees is spread over all links. */
static int first_turn(const struct grower *g, int degree) {
  return g->exits && degree > 0 ? g->forest->n_trees % degree : 0;
}

static bool is_reached(const struct grower *g, int node) {
  const struct copse_cuts_of_node *of = &g->cuts.of[node];
  bool reached = !g->is_terminal[node] || g->in_tree[node];
  for (int i = 0; i < of->n && !reached; i++) reached = g->touched[of->cuts[i]];
  return reached;
}

/* Whether relays in no cut lead nowhere: all terminals are in the tree or in cuts that it is in,
 * which level 0 does not enter again. n_reached: nodes before it are known to be; 0 for a new tree.
 * In steps that add up to one look at each node a tree. */
static bool stays_inside(const struct grower *g, int *n_reached) {
  while (*n_reached < g->network->n_nodes && is_reached(g, *n_reached)) ++*n_reached;
  return g->level == 0 && *n_reached == g->network->n_nodes;
}

/* Walks from x over relays to terminals that are not in the tree, nearest first. Ends after the
 * first way taken where orbits are avoided: the next may do without. */
static copse_status walk(struct grower *g, int x, struct search *search) {
  struct copse_queue queue = {.items = g->queue};
  int64_t least = search->part ? 1 : g->current.multiplicity;
  g->n_searches++;
  copse_queue_push(&queue, x);
  while (!copse_queue_is_empty(&queue)) {
    int a = copse_queue_pop(&queue), first = g->leaving.first[a];
    int degree = g->leaving.first[a + 1] - first;
    int turn = first_turn(g, degree);
    g->forest->n_looks += degree;
    for (int j = 0; j < degree; j++) {
      int e = g->leaving.item[first + (j + turn < degree ? j + turn : j + turn - degree)];
      int b = g->network->links[e].dst;
      if (g->is_terminal[b] ? g->in_tree[b] : g->stamp[b] == g->n_searches) continue;
      if (g->orbits.left[g->orbits.of[e]] < least || g->avoid[g->orbits.of[e]] > g->level) continue;
      if (g->is_terminal[b]) {
        COPSE_DO(weigh(g, x, e, search));
        if (search->taken && g->level > 0) return COPSE_OK;
      } else if (!(search->inside && g->cuts.of[b].n == 0) &&
                 spared_by_cuts(g, &g->network->links[e], 1) > 0) {
        g->stamp[b] = g->n_searches;
        g->via[b] = e;
        copse_queue_push(&queue, b);
      }
    }
  }
  return COPSE_OK;
}

/*
 * Extends the whole family from x. At level 0 it takes all ways that carry the family, else one.
 * Where exits of cuts count it takes a way into the cut with the most. *more: there may be more.
 */
static copse_status extend_from(struct grower *g, int x, int *n_reached, bool *more) {
  struct search search = {.inside = stays_inside(g, n_reached), .exits = -1};
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
static copse_status grow_part(struct grower *g, int *n_reached, bool *stuck) {
  *stuck = true;
  for (int i = 0; i < g->n_order && *stuck; i++) {
    struct search search = {.part = true, .inside = stays_inside(g, n_reached), .exits = -1};
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
static copse_status grow_any_part(struct grower *g, int *n_reached, bool *stuck) {
  *stuck = true;
  for (g->level = g->exits ? 0 : g->top_level; g->level <= g->top_level && *stuck; g->level++)
    COPSE_DO(grow_part(g, n_reached, stuck));
  return COPSE_OK;
}

/* Grows at each step from the lowest level that has a way. What has none stays so: room only
 * shrinks, and the tree only grows. */
static copse_status grow_current(struct grower *g, bool *stuck) {
  int target = g->network->n_terminals - 1, n_reached = 0;
  bool more;
  *stuck = false;
  g->level = 0;
  memset(g->open, 0, sizeof g->open);
  while (g->current.n_edges < target && !*stuck) {
    int *open = &g->open[g->level];
    if (*open < g->n_order) {
      COPSE_DO(extend_from(g, g->order[*open], &n_reached, &more));
      if (more)
        g->level = 0;
      else
        ++*open;
    } else if (g->level < g->top_level) {
      g->level++;
    } else {
      COPSE_DO(grow_any_part(g, &n_reached, stuck));
      g->level = 0;
    }
  }
  return COPSE_OK;
}

/* Sets the vertices that the current family's edges imply. */
static void restart(struct grower *g) {
  memset(g->in_tree, 0, (size_t)g->network->n_nodes);
  memset(g->touched, 0, (size_t)g->cuts.n);
  g->n_order = 0;
  join_tree(g, g->root);
  for (int i = 0; i < g->current.n_edges; i++) join_tree(g, g->current.edges[i].dst);
}

/* Adds the current family, which is a tree. */
static copse_status emit(struct grower *g) {
  int n = g->current.n_edges;
  struct copse_forest_tree tree = {.root = g->root, .multiplicity = g->current.multiplicity};
  struct copse_forest_edge *edges;
  COPSE_DO(COPSE_ARRAY(&g->forest->arena, (size_t)n, edges, g->err));
  for (int i = 0; i < n; i++) {
    const struct grown_edge *from = &g->current.edges[i];
    size_t n_path = (size_t)from->n_path;
    int *path;
    COPSE_DO(COPSE_ARRAY(&g->forest->arena, n_path, path, g->err));
    memcpy(path, g->path + from->first, n_path * sizeof *path);
    edges[i] = (struct copse_forest_edge){from->src, from->dst, path, from->n_path};
  }
  tree.edges = edges;
  return copse_forest_add(g->forest, tree, n, g->depth, g->err);
}

static copse_status grow_root(struct grower *g, int root, int64_t multiplicity, bool *stuck) {
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
    struct grown_family *next = &g->waiting[--g->n_waiting];
    g->current.multiplicity = next->multiplicity;
    g->current.n_edges = next->n_edges;
    memcpy(g->current.edges, next->edges, (size_t)next->n_edges * sizeof *next->edges);
    free(next->edges);
  }
  return COPSE_OK;
}

static copse_status prepare(struct grower *g) {
  size_t n = (size_t)g->network->n_nodes, m = (size_t)g->network->n_links;
  size_t terminals = (size_t)g->network->n_terminals;
  struct copse_arena *arena = &g->arena;
  COPSE_DO(copse_links_by_source(g->network, arena, &g->leaving, g->err));
  COPSE_DO(COPSE_ARRAY(arena, m, g->avoid, g->err));
  COPSE_DO(copse_network_terminals(g->network, arena, &g->is_terminal, g->err));
  COPSE_DO(COPSE_ARRAY(arena, n, g->in_tree, g->err));
  COPSE_DO(COPSE_ARRAY(arena, terminals, g->order, g->err));
  COPSE_DO(COPSE_ARRAY(arena, terminals, g->current.edges, g->err));
  return COPSE_ARRAYS(arena, n, int, g->err, &g->via, &g->stamp, &g->queue, &g->chosen, &g->depth);
}

static copse_status prepare_cuts(struct grower *g, bool exits) {
  size_t n = (size_t)g->cuts.n;
  COPSE_DO(copse_cuts_join_lists(&g->cuts, g->err));
  COPSE_DO(COPSE_ARRAY(&g->arena, n, g->touched, g->err));
  if (exits) COPSE_DO(copse_arena_array(&g->arena, n, sizeof *g->exits, &g->exits, g->err));
  return COPSE_OK;
}

static void drop_waiting(struct grower *g) {
  while (g->n_waiting > 0) free(g->waiting[--g->n_waiting].edges);
}

static void release(struct grower *g) {
  drop_waiting(g);
  free(g->waiting);
  free(g->path);
  copse_cuts_free(&g->cuts);
  copse_arena_free(&g->arena);
}

/* ---- trees of one root --------------------------------------------------------------------- */

/*
 * Trees of one root, by the grower of trees/grow.c with every link for itself. Hosts, and other
 * nodes joined by fast links, are cuts that a tree enters once. It enters first the cut whose links
 * out have the most capacity left:
 *
 *      root's host ---> h1 ---> h3        tree 1 goes on from h1, tree 2 from h2, and so on, so
 *               \-----> h2 ---> h4        that no host's links out are used up early
 *
 * Trees are grown in two ways, in few large families and in more small ones; the lower are taken.
 */

/* More than this is as good as any; sums of some stay numbers. */
#define MOST_EXITS (INT64_MAX / 256)

static int64_t add_capped(int64_t a, int64_t b, int64_t most) {
  int64_t sum;
  return copse_add_overflows(a, b, &sum) || sum > most ? most : sum;
}

/* Measures what can leave each cut, and by how much more than the trees can enter it. */
static void measure_cuts(struct grower *g, int64_t trees) {
  struct copse_cuts *cuts = &g->cuts;
  for (int c = 0; c < cuts->n; c++) cuts->slack[c] = -trees;
  for (int e = 0; e < g->network->n_links; e++) {
    const struct copse_net_link *link = &g->network->links[e];
    const struct copse_cuts_of_node *of = &cuts->of[link->src];
    for (int i = 0; i < of->n; i++)
      if (!copse_cuts_hold(cuts, of->cuts[i], link->dst))
        g->exits[of->cuts[i]] = add_capped(g->exits[of->cuts[i]], g->orbits.left[e], MOST_EXITS);
    of = &cuts->of[link->dst];
    for (int i = 0; i < of->n; i++)
      if (!copse_cuts_hold(cuts, of->cuts[i], link->src))
        cuts->slack[of->cuts[i]] += g->orbits.left[e];
  }
}

/* Returns what a set may let in at most to be entered once. */
static int64_t narrow(int64_t trees) {
  int64_t most;
  return copse_mul_overflows(trees, COPSE_SINGLE_NARROW_TIMES, &most) ? INT64_MAX : most;
}

/* Returns the narrowest link's worth: of a larger family a part would have to wait there. */
static int64_t narrowest_link(const struct copse_network *network, const int64_t *capacities,
                              int64_t most) {
  for (int e = 0; e < network->n_links; e++)
    if (capacities[e] > 0) most = copse_smaller(most, capacities[e]);
  return most;
}

/* Grows all trees, at_once of them as one family. */
static copse_status grow_families(struct grower *g, int64_t trees, int64_t at_once, bool *made,
                                  const struct copse_progress *progress) {
  bool stuck = false;
  for (int64_t done = 0; done < trees && !stuck; done += at_once) {
    copse_progress_report(progress, "pack", done, trees);
    COPSE_DO(grow_root(g, g->network->roots[0].node, copse_smaller(at_once, trees - done), &stuck));
  }
  *made = !stuck;
  return COPSE_OK;
}

/* Makes trees in families of at most `at_once`, as low as they get; none where they got stuck. */
static copse_status attempt(const struct copse_tree_problem *problem, int64_t trees,
                            int64_t at_once, struct copse_forest *forest, struct copse_err *err) {
  const struct copse_network *network = problem->network;
  COPSE_AT_END(release)
  struct grower g = {.network = network, .forest = forest, .err = err};
  bool made = false;
  COPSE_DO(prepare(&g));
  COPSE_DO(copse_orbits_make(problem, 1, &g.arena, &g.orbits, err));
  COPSE_DO(copse_cuts_nested(network, problem->capacities, network->roots[0].node, narrow(trees),
                             &g.cuts, err));
  COPSE_DO(prepare_cuts(&g, true));
  measure_cuts(&g, trees);
  g.top_level = 1; /* cuts are entered again as a later resort */
  COPSE_DO(grow_families(&g, trees, at_once, &made, problem->progress));
  if (made) return copse_forest_shorten(network, forest, err);
  copse_forest_clear(forest);
  return COPSE_OK;
}

static __int128 total_height(const struct copse_forest *forest) {
  __int128 sum = 0;
  for (int t = 0; t < forest->n_trees; t++)
    sum += (__int128)forest->trees[t].multiplicity * forest->trees[t].height;
  return sum;
}

copse_status copse_make_single(const struct copse_tree_problem *problem,
                               struct copse_forest *forest, bool *made, struct copse_err *err) {
  const struct copse_network *network = problem->network;
  COPSE_AT_END(copse_forest_free) struct copse_forest coarse = {0};
  COPSE_AT_END(copse_forest_free) struct copse_forest fine = {0};
  int64_t trees;
  *made = false;
  if (copse_mul_overflows(network->roots[0].weight, problem->k, &trees)) return COPSE_OK;
  int64_t least = (trees + COPSE_SINGLE_PARTS - 1) / COPSE_SINGLE_PARTS;
  int64_t at_once = narrowest_link(network, problem->capacities, trees);
  if (at_once < least) at_once = least;
  COPSE_DO(attempt(problem, trees, at_once, &coarse, err));
  if (least < at_once) /* more ways for each tree out of a host */
    COPSE_DO(attempt(problem, trees, least, &fine, err));
  bool finer =
      coarse.n_trees == 0 || (fine.n_trees > 0 && total_height(&fine) < total_height(&coarse));
  copse_forest_take_trees(forest, finer ? &fine : &coarse);
  *made = forest->n_trees > 0;
  return COPSE_OK;
}

/* ---- orbit trees ---------------------------------------------------------------------------- */

/*
 * Orbit trees: those of one root of each orbit, of which all other roots' trees are images.
 *
 * Let H be the products of the generators: a commutative group, under which an orbit of links O
 * has |O| members, all of one capacity c, and each of them stays where it is under |H| / |O|
 * products. Base trees that use the links of O together L times put, moved by all of H, a load
 * of L * |H| / |O| on every one of them. So the whole forest respects the capacities if and only if
 *
 *   L <= c * |O| / |H|   for every orbit of links,
 *
 * and that is all that the base trees must respect. They span all terminals, and so do their
 * images. The products move no root onto itself, but for the one that moves nothing: so k trees of
 * every base root are k trees of every root. That the rate is the optimum's follows from k and
 * the capacities, as it does for the trees of trees/general.h.
 *
 *      ring of 4, turned by one:  a > b > c > d      base tree of root a
 *                                 b > c > d > a      its images are those of b, c and d: every
 *                                 ...                link is loaded 3 times, |H| / |O| = 1
 */

/* ---- cuts and their images ----------------------------------------------------------------- */

struct finder {
  const struct copse_network *network;
  const struct copse_network_symmetry *symmetry;
  int *levels; /* [(n generators + 1) * n_nodes] the set at hand under the powers chosen so far */
  int n_inside;
  struct copse_cuts *out;
  struct copse_err *err;
};

/* Adds all images of the set at level g under the generators from g on. */
static copse_status add_images(struct finder *f, int g) {
  int *nodes = f->levels + (size_t)g * (size_t)f->network->n_nodes;
  int *next = nodes + f->network->n_nodes;
  if (g == f->symmetry->n) return copse_cuts_add(f->out, nodes, f->n_inside, 0, NULL, f->err);
  memcpy(next, nodes, (size_t)f->n_inside * sizeof *next);
  const struct copse_permutation *generator = &f->symmetry->generators[g];
  for (int power = 0; power < generator->order; power++) {
    COPSE_DO(add_images(f, g + 1));
    for (int i = 0; i < f->n_inside; i++) nodes[i] = generator->image[nodes[i]];
    memcpy(next, nodes, (size_t)f->n_inside * sizeof *next);
  }
  return COPSE_OK;
}

/* Finds the tight cuts nearest to `sinks` with their images. Those with too many nodes for all
 * images to be listed are left out: the cuts guide, they prove nothing. */
static copse_status find_cuts(const struct copse_tree_problem *problem, const int *sinks,
                              int n_sinks, struct copse_cuts *out, struct copse_err *err) {
  const struct copse_network *network = problem->network;
  const struct copse_network_symmetry *symmetry = problem->symmetry;
  struct finder f = {.network = network, .symmetry = symmetry, .out = out, .err = err};
  COPSE_AT_END(copse_cuts_free) struct copse_cuts tight = {0};
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  size_t n = (size_t)network->n_nodes;
  int64_t n_products = 1;
  for (int g = 0; g < symmetry->n; g++) n_products *= symmetry->generators[g].order;
  COPSE_DO(copse_cuts_new(network->n_nodes, 0, out, err));
  COPSE_DO(copse_cuts_tight(network, problem->capacities, problem->k, sinks, n_sinks, &tight, err));
  COPSE_DO(COPSE_ARRAY(&scratch, ((size_t)symmetry->n + 1) * n, f.levels, err));
  for (int c = 0; c < tight.n; c++) {
    f.n_inside = 0;
    for (int v = 0; v < network->n_nodes; v++)
      if (copse_cuts_hold(&tight, c, v)) f.levels[f.n_inside++] = v;
    if (f.n_inside <= COPSE_ORBIT_MOST_MEMBERS / n_products) COPSE_DO(add_images(&f, 0));
  }
  return COPSE_OK;
}

/* ---- orbits --------------------------------------------------------------------------------- */

/* Makes orbits of each link for itself, all roots. */
static copse_status each_alone(const struct copse_tree_problem *problem, struct copse_arena *arena,
                               struct copse_orbits *out, struct copse_err *err) {
  out->n = problem->network->n_links;
  out->n_roots = problem->network->n_roots;
  out->times = 1;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)out->n, out->of, err));
  COPSE_DO(COPSE_ARRAY(arena, (size_t)out->n, out->left, err));
  COPSE_DO(COPSE_ARRAY(arena, (size_t)out->n_roots, out->roots, err));
  for (int e = 0; e < out->n; e++) {
    out->of[e] = e;
    out->left[e] = problem->capacities[e];
  }
  for (int i = 0; i < out->n_roots; i++) out->roots[i] = i;
  return COPSE_OK;
}

/* Computes what links of an orbit may carry of base trees: c * |O| / |H| (see above), rounded
 * down. */
static copse_status measure_orbits(const struct copse_tree_problem *problem, int64_t times,
                                   struct copse_arena *arena, struct copse_orbits *out,
                                   struct copse_err *err) {
  const struct copse_network_symmetry *symmetry = problem->symmetry;
  int n = problem->network->n_links, n_products = 1;
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  int *first, *size;
  out->times = 1;
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)n, size, err));
  COPSE_DO(COPSE_ARRAY(arena, (size_t)n, out->of, err));
  COPSE_DO(COPSE_ARRAY(arena, (size_t)n, out->left, err));
  for (int i = 0; i < symmetry->n; i++) n_products *= symmetry->generators[i].order;
  COPSE_DO(copse_links_orbits(problem->network, symmetry->generators, symmetry->n, &scratch, &first,
                              err));
  for (int e = 0; e < n; e++) size[first[e]]++;
  out->n = 0;
  for (int e = 0; e < n; e++) {
    int64_t capacity, staying = n_products / size[first[e]];
    if (copse_mul_overflows(problem->capacities[e], times, &capacity)) capacity = INT64_MAX;
    if (first[e] == e) out->left[out->n++] = INT64_MAX;
    out->of[e] = first[e] == e ? out->n - 1 : out->of[first[e]];
    /* capacities for a fixed k may differ within an orbit: the least holds */
    int64_t *left = &out->left[out->of[e]];
    if (capacity / staying < *left) *left = capacity / staying;
    COPSE_DO(copse_lcm(out->times, staying / copse_gcd(staying, problem->capacities[e]),
                       &out->times, err));
  }
  return COPSE_OK;
}

/* Finds the first root of every orbit. */
static copse_status find_bases(const struct copse_tree_problem *problem, struct copse_arena *arena,
                               struct copse_orbits *out, struct copse_err *err) {
  const struct copse_network *network = problem->network;
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  int *first;
  bool *taken;
  out->n_roots = 0;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)network->n_roots, out->roots, err));
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)network->n_nodes, taken, err));
  COPSE_DO(copse_nodes_orbits(network, problem->symmetry->generators, problem->symmetry->n,
                              &scratch, &first, err));
  for (int i = 0; i < network->n_roots; i++) {
    bool *known = &taken[first[network->roots[i].node]];
    if (!*known) out->roots[out->n_roots++] = i;
    *known = true;
  }
  return COPSE_OK;
}

copse_status copse_orbits_make(const struct copse_tree_problem *problem, int64_t times,
                               struct copse_arena *arena, struct copse_orbits *out,
                               struct copse_err *err) {
  if (!copse_has_symmetry(problem)) return each_alone(problem, arena, out, err);
  COPSE_DO(measure_orbits(problem, times, arena, out, err));
  return find_bases(problem, arena, out, err);
}

/* Grows k trees of every base root, within what is left. */
static copse_status grow_once(struct grower *g, int64_t k, const struct copse_progress *progress,
                              bool *packed) {
  bool stuck = false;
  int64_t multiplicity;
  for (int i = 0; i < g->orbits.n_roots && !stuck; i++) {
    const struct copse_net_root *root = &g->network->roots[g->orbits.roots[i]];
    if (copse_mul_overflows(root->weight, k, &multiplicity))
      return copse_fail(g->err, COPSE_OVERFLOW, "the number of trees needs more than 63 bits");
    COPSE_DO(grow_root(g, root->node, multiplicity, &stuck));
    copse_progress_report(progress, "pack", i + 1, g->orbits.n_roots);
  }
  drop_waiting(g);
  *packed = !stuck;
  return COPSE_OK;
}

/*
 * Grows the trees; again where they got stuck, with the orbits that ran out first spared more: what
 * else there is is used before them.
 */
static copse_status grow_orbits(struct grower *g, int64_t k, const struct copse_progress *progress,
                                bool *packed) {
  size_t bytes = (size_t)g->orbits.n * sizeof *g->orbits.left;
  int64_t *all;
  COPSE_DO(COPSE_ARRAY(&g->arena, (size_t)g->orbits.n, all, g->err));
  memcpy(all, g->orbits.left, bytes);
  memset(g->avoid, 0, (size_t)g->orbits.n * sizeof *g->avoid);
  for (g->top_level = 0;; g->top_level++) {
    COPSE_DO(grow_once(g, k, progress, packed));
    if (*packed) break;
    copse_forest_clear(g->forest);
    if (g->top_level + 1 == COPSE_ORBIT_LEVELS) break;
    for (int o = 0; o < g->orbits.n; o++)
      g->avoid[o] += g->orbits.left[o] < g->current.multiplicity;
    memcpy(g->orbits.left, all, bytes);
  }
  return COPSE_OK;
}

copse_status copse_make_orbit_trees(const struct copse_tree_problem *problem,
                                    struct copse_forest *forest, bool *made,
                                    struct copse_err *err) {
  const struct copse_network *network = problem->network;
  COPSE_AT_END(release)
  struct grower g = {.network = network, .forest = forest, .err = err};
  int *sinks;
  int64_t k = problem->k;
  *made = false;
  COPSE_DO(copse_orbits_make(problem, 1, &g.arena, &g.orbits, err));
  int n_bases = g.orbits.n_roots;
  if ((int64_t)n_bases * network->n_terminals > COPSE_ORBIT_MOST_TO_GROW) return COPSE_OK;
  if (!copse_network_equal_weights(network))
    return COPSE_OK; /* no tree's image is of another weight */
  COPSE_DO(prepare(&g));
  COPSE_DO(COPSE_ARRAY(&g.arena, (size_t)n_bases, sinks, err));
  for (int i = 0; i < n_bases; i++) sinks[i] = network->roots[g.orbits.roots[i]].node;
  COPSE_DO(find_cuts(problem, sinks, n_bases, &g.cuts, err));
  COPSE_DO(prepare_cuts(&g, false));
  COPSE_DO(grow_orbits(&g, k, problem->progress, made));
  int64_t whole = g.orbits.times;
  if (!*made && problem->multiple && whole > 1 && whole <= COPSE_ORBIT_MOST_TIMES &&
      !copse_mul_overflows(k, whole, &k)) {
    COPSE_DO(copse_orbits_make(problem, whole, &g.arena, &g.orbits, err));
    COPSE_DO(grow_orbits(&g, k, problem->progress, made));
  }
  if (!*made) return COPSE_OK;
  forest->k = k;
  forest->base_only = true;
  return COPSE_OK;
}
