/*
 * Repair (repair.h) where an allreduce's phases run together and nearly all links are full. A way
 * may take a link that is full, at a price that grows exponentially with the part of the capacity
 * that is used. Ranks are moved off links with too much as long as that is cheaper, so that what is
 * too much anywhere spreads over all links that have a little room, and no two trees push each
 * other to and fro: each move makes the sum of all prices less. One move is
 *
 *   u > v      to      w > v           or, where v is in a host over which a kid comes in as well,
 *   u > v > k  to      w > k > v
 *
 * and no rank comes to hang too deep.
 *
 * docs/theory.md, "src/schedule/".
 */
#include <stdlib.h>
#include <string.h>

#include "schedule/loads.h"
#include "schedule/solve/policy.h"
#include "schedule/solve/repair_internal.h"

/* The way to a rank that has moved, listed at a link that it crossed when it was made. */
struct listed_way {
  int variant, rank, next; /* at the same link, -1: none */
};

struct prices {
  struct repairing *r;
  int most;        /* depth of a rank */
  int steep;       /* how fast prices grow */
  int64_t n_looks; /* at nodes */
  struct copse_nearest near;
  int *way, *kid_way; /* [n_nodes] links of ways that are left */
  struct listed_way *ways;
  size_t n_ways, ways_capacity;
  int *last_way; /* [n_links] the last one listed there, -1: none */
};

static void free_prices(struct prices *p) { free(p->ways); }

static bool is_tired(const struct prices *p) {
  return p->n_looks > (int64_t)p->r->from->looks * p->r->base.n_ranks;
}

/* Returns what a rank of the base tree hangs on, -1: nowhere, or it is the root. */
static int up_of(struct repairing *r, int index, int rank) {
  const struct variant *v = &r->variants[index];
  int at = find_move(r, index, rank);
  return at < 0 ? r->trees[v->tree].up[rank] : v->moves[at].up;
}

/* Finds the links of the way to a rank that hangs somewhere; returns how many. */
static int way_to(struct repairing *r, int index, int rank, int *way) {
  const struct variant *v = &r->variants[index];
  struct copse_image image = copse_image_of(&r->images, v->image);
  const struct copse_schedule_edge *edge =
      &r->base.trees[v->tree].edges[r->trees[v->tree].edge[rank]];
  int at = find_move(r, index, rank), n_path = at < 0 ? edge->n_path : v->places[at].n_path;
  for (int last = -1, i = 0; i < n_path; i++) {
    int node = at < 0 ? copse_image_node(&r->images, &image, edge->path[i]) : v->places[at].path[i];
    if (i > 0) way[i - 1] = broken_link(r, last, node);
    last = node;
  }
  return n_path - 1;
}

static void load_way(struct repairing *r, const int *way, int n, int64_t trees) {
  for (int i = 0; i < n; i++) r->load[way[i]] += trees;
}

/* Returns what so many more trees on a link cost, -1: it carries none. With y for the part of its
 * capacity by which it is over that with half of them, the price is trees / capacity 2^(steep y),
 * where powers are linear between whole exponents. */
static int64_t price(const struct prices *p, int link, int64_t trees) {
  const int64_t one = COPSE_REPAIR_ONE, middle = COPSE_REPAIR_MOST_POWER * one;
  int64_t capacity = copse_smaller(p->r->capacity[link], COPSE_REPAIR_MOST_CAPACITY);
  if (capacity <= 0) return -1;
  int64_t over = copse_smaller(trees / 2 - room(p->r, link), capacity);
  int64_t power = middle + copse_larger(over, -capacity) * p->steep * one / capacity;
  power = copse_larger(0, copse_smaller(power, 2 * middle));
  __int128 cost = (__int128)((one + power % one) << (power / one)) * trees / capacity;
  return cost < COPSE_REPAIR_MOST_PRICE ? 1 + (int64_t)cost : COPSE_REPAIR_MOST_PRICE;
}

static int64_t price_of_way(const struct prices *p, const int *way, int n, int64_t trees) {
  int64_t sum = 0;
  for (int i = 0; i < n; i++) sum += price(p, way[i], trees);
  return sum;
}

/* Returns the depth of a rank; -1: it hangs nowhere, or is `above` or below that one. */
static int depth_beside(struct repairing *r, int index, int rank, int above) {
  int depth = 0, root = r->trees[r->variants[index].tree].root;
  for (; rank != root; depth++) {
    if (rank < 0 || rank == above) return -1;
    rank = up_of(r, index, rank);
  }
  return depth;
}

/* Returns how far down it goes from a rank, but not over `without`, which hangs on it; or -1. */
static int height_below(struct repairing *r, int index, int rank, int without) {
  const struct variant *v = &r->variants[index];
  const struct copse_base_tree *tree = &r->trees[v->tree];
  mark(r, index);
  bool hide = without >= 0 && r->move_at[without] == 0;
  if (hide) r->move_at[without] = -1;
  int most = copse_moved_below(tree, r->move_at, rank);
  for (int i = 0; i < v->n; i++) {
    int up = v->moves[i].rank, hops = 0;
    for (; up >= 0 && up != rank && up != without && up != tree->root; hops++)
      up = r->move_at[up] == 0 ? tree->up[up] : v->moves[r->move_at[up] - 1].up;
    if (up != rank || hops == 0) continue;
    hops += copse_moved_below(tree, r->move_at, v->moves[i].rank);
    if (hops > most) most = hops;
  }
  if (hide) r->move_at[without] = 0;
  return most;
}

/* What a search is for: ways to `rank` for so many trees, cheaper than `limit`, from a rank at most
 * `deepest` in the tree that is not `above` or below that one; or from `only`, if that is not -1.
 */
struct wanted {
  int index, rank, above, deepest, only;
  int64_t trees, limit;
};

/* A rank that hangs on the one that a search is for, and what a way from it costs. */
struct kid {
  int rank;
  int64_t cost;
};

/* Returns the link into a relay that a search from node `to` goes back over, where there is but
 * one, as of a NIC; else -1. A switch has hundreds of such: to queue what is beyond takes half as
 * long. */
static int only_way_on(const struct repairing *r, int relay, int to) {
  int first = r->entering.first[relay], n = r->entering.first[relay + 1] - first;
  if (r->numbers.rank_of[relay] >= 0 || n != 2) return -1;
  int one = r->entering.item[first], other = r->entering.item[first + 1];
  bool back = r->from->network->links[one].src == to;
  if (back == (r->from->network->links[other].src == to)) return -1;
  return back ? other : one;
}

/* Searches backwards through relays, the cheapest way first: the node of the rank found, or -1.
 * kids [COPSE_REPAIR_KIDS] or NULL: the nearest. */
static int search_by_price(struct prices *p, const struct wanted *w, struct kid *kids, int *n_kids,
                           int64_t *cost) {
  struct repairing *r = p->r;
  const struct copse_net_link *links = r->from->network->links;
  const struct variant *v = &r->variants[w->index];
  struct copse_image image = copse_image_of(&r->images, v->image);
  int start = copse_image_node(&r->images, &image, r->base.rank_nodes[w->rank]);
  copse_nearest_reset(&p->near);
  (void)copse_nearest_offer(&p->near, start, 0);
  while (p->near.n > 0) {
    int b = copse_nearest_take(&p->near);
    *cost = p->near.distance[b];
    p->n_looks++;
    if (*cost >= w->limit) break;
    if (b != start && r->numbers.rank_of[b] >= 0) {
      int rank = copse_image_rank(&r->images, v->image, b, r->seen);
      int depth = w->only < 0 ? depth_beside(r, w->index, rank, w->above) : 0;
      if (kids && *n_kids < COPSE_REPAIR_KIDS && up_of(r, w->index, rank) == w->rank)
        kids[(*n_kids)++] = (struct kid){rank, *cost};
      if (w->only < 0 ? depth >= 0 && depth <= w->deepest : rank == w->only) return b;
      continue;
    }
    for (int i = r->entering.first[b]; i < r->entering.first[b + 1]; i++) {
      int e = r->entering.item[i], a = links[e].src, on = only_way_on(r, a, b);
      int64_t more = price(p, e, w->trees),
              beyond = on < 0 || more < 0 ? 0 : price(p, on, w->trees);
      int to = on < 0 ? a : links[on].src;
      if (more < 0 || beyond < 0 || !copse_nearest_offer(&p->near, to, *cost + more + beyond))
        continue;
      r->via[a] = e;
      if (on >= 0) r->via[to] = on;
    }
  }
  return -1;
}

/* A place for a rank: on one at most so deep; or that is the place of `kid`, which hangs on the
 * rank, and the rank's is on it. */
struct found {
  bool any;
  int kid, deepest; /* kid -1: none */
  int64_t cost;
};

/* Finds the cheapest place for a rank, whose own way is not loaded meanwhile. */
static void find_place(struct prices *p, int index, int rank, int64_t trees, int64_t limit,
                       struct found *best) {
  struct repairing *r = p->r;
  struct kid kids[COPSE_REPAIR_KIDS];
  struct wanted w = {index, rank, rank, 0, -1, trees, limit};
  int n_kids = 0;
  int64_t cost;
  w.deepest = p->most - 1 - height_below(r, index, rank, -1);
  *best = (struct found){false, -1, w.deepest, limit};
  best->any = search_by_price(p, &w, kids, &n_kids, &cost) >= 0;
  if (best->any) best->cost = cost;
  for (const struct kid *kid = kids; kid < kids + n_kids; kid++) {
    int n = way_to(r, index, kid->rank, p->kid_way);
    int below = height_below(r, index, kid->rank, -1);
    int beside = height_below(r, index, rank, kid->rank) + 1;
    load_way(r, p->kid_way, n, -trees);
    int64_t other = kid->cost - price_of_way(p, p->kid_way, n, trees);
    w.rank = kid->rank;
    w.deepest = p->most - 1 - (below > beside ? below : beside);
    w.limit = best->cost - other;
    if (search_by_price(p, &w, NULL, NULL, &cost) >= 0)
      *best = (struct found){true, kid->rank, w.deepest, cost + other};
    load_way(r, p->kid_way, n, trees);
  }
}

/* Lists the way to a rank that has moved at its links. */
static copse_status list_way(struct prices *p, int index, int at) {
  const struct place *place = &p->r->variants[index].places[at];
  int rank = p->r->variants[index].moves[at].rank;
  for (int i = 0; i + 1 < place->n_path; i++) {
    int link = broken_link(p->r, place->path[i], place->path[i + 1]);
    COPSE_DO(COPSE_GROW(p->ways, p->ways_capacity, p->n_ways + 1, p->r->err));
    p->ways[p->n_ways] = (struct listed_way){index, rank, p->last_way[link]};
    p->last_way[link] = (int)p->n_ways++;
  }
  return COPSE_OK;
}

/* Hangs a rank that hangs nowhere where a search finds. */
static copse_status hang(struct prices *p, const struct wanted *w) {
  struct repairing *r = p->r;
  const struct copse_net_link *links = r->from->network->links;
  int64_t cost;
  int at = find_move(r, w->index, w->rank), n = 0, *path;
  struct variant *v = &r->variants[w->index];
  int end = search_by_price(p, w, NULL, NULL, &cost), node = r->base.rank_nodes[v->places[at].rank];
  if (end < 0) return copse_fail(r->err, COPSE_INTERNAL, "a place that was found is gone");
  for (int a = end; a != node; a = links[r->via[a]].dst) n++;
  COPSE_DO(COPSE_ARRAY(r->arena, (size_t)n + 1, path, r->err));
  v->places[at].path = path;
  v->places[at].n_path = n + 1;
  for (int a = end; a != node; a = links[r->via[a]].dst) {
    *path++ = a;
    r->load[r->via[a]] += w->trees;
  }
  *path = node;
  v->moves[at].up = copse_image_rank(&r->images, v->image, end, r->seen);
  return list_way(p, w->index, at);
}

/* Moves a rank of so many of a variant's trees to a cheaper place, or if it hangs nowhere to any;
 * the others of these trees stay as they are. */
static copse_status move_rank(struct prices *p, int index, int rank, int64_t trees, bool *done) {
  struct repairing *r = p->r;
  bool hangs = up_of(r, index, rank) >= 0;
  int n = hangs ? way_to(r, index, rank, p->way) : 0, at, rest;
  struct found to;
  load_way(r, p->way, n, -trees);
  find_place(p, index, rank, trees, hangs ? price_of_way(p, p->way, n, trees) : INT64_MAX / 4, &to);
  load_way(r, p->way, n, trees);
  *done = to.any;
  if (!*done) return COPSE_OK;
  if (trees < r->variants[index].trees) {
    COPSE_DO(copse_repair_split(r, index, trees, &rest));
    for (int i = 0; i < r->variants[rest].n; i++) COPSE_DO(list_way(p, rest, i));
  }
  if (hangs) COPSE_DO(copse_repair_detach(r, index, rank, &at));
  if (to.kid >= 0) COPSE_DO(copse_repair_detach(r, index, to.kid, &at));
  struct wanted w = {index, to.kid < 0 ? rank : to.kid, rank, to.deepest, -1, trees, INT64_MAX};
  COPSE_DO(hang(p, &w));
  if (to.kid < 0) return COPSE_OK;
  w.rank = rank, w.only = to.kid;
  return hang(p, &w);
}

/* Moves ranks that have moved before off a link that has too much. */
static copse_status drain_moved(struct prices *p, int link) {
  struct repairing *r = p->r;
  for (int c = p->last_way[link], next; c >= 0 && room(r, link) < 0 && !is_tired(p); c = next) {
    struct listed_way way = p->ways[c];
    const struct variant *v = &r->variants[way.variant];
    const struct place *place = &v->places[find_move(r, way.variant, way.rank)];
    bool crosses = false, done;
    next = way.next;
    for (int i = 0; i + 1 < place->n_path && !crosses; i++)
      crosses = broken_link(r, place->path[i], place->path[i + 1]) == link;
    int64_t trees = copse_smaller(v->trees, -room(r, link));
    if (crosses) COPSE_DO(move_rank(p, way.variant, way.rank, trees, &done));
  }
  return COPSE_OK;
}

/* Does the same with ranks that hang as in the healthy schedule. The image of before is looked at
 * first: neighbouring images cross neighbouring links. */
static copse_status drain_healthy(struct prices *p, int link) {
  struct repairing *r = p->r;
  struct copse_image_users *all = &r->left[link];
  int start = 0;
  COPSE_DO(list_users(r, link));
  while (start < all->n && all->item[start].image < r->last_image) start++;
  for (int i = 0; i < all->n && room(r, link) < 0 && !is_tired(p); i++) {
    struct copse_image_user at = all->item[(start + i) % all->n];
    struct copse_image image = copse_image_of(&r->images, at.image);
    struct copse_tree_user user = r->users[at.user];
    int first;
    if (is_gone(r, &image, r->base.trees[user.tree].root) || is_gone(r, &image, user.rank))
      continue;
    COPSE_DO(copse_repair_variants(r, user.tree, at.image, &first));
    for (int v = first; v >= 0 && room(r, link) < 0; v = r->variants[v].next) {
      bool done;
      if (find_move(r, v, user.rank) >= 0) continue;
      int64_t trees = copse_smaller(r->variants[v].trees, -room(r, link));
      COPSE_DO(move_rank(p, v, user.rank, trees, &done));
      if (done) r->last_image = at.image;
    }
  }
  return COPSE_OK;
}

/* Detaches what leaves ranks by links with too much: what comes to them can't be less. */
static copse_status detach_leaving(struct prices *p) {
  struct repairing *r = p->r;
  for (int e = 0; e < r->t->n_links; e++) {
    const struct copse_link *of = &r->t->links[e];
    struct copse_image_users *all = &r->left[e];
    if (r->numbers.rank_of[of->src] < 0 || room(r, e) >= 0) continue;
    COPSE_DO(list_users(r, e));
    for (int i = 0; i < all->n && room(r, e) < 0; i++) {
      struct copse_image image = copse_image_of(&r->images, all->item[i].image);
      struct copse_tree_user user = r->users[all->item[i].user];
      int first, rest, at;
      if (is_gone(r, &image, r->base.trees[user.tree].root) || is_gone(r, &image, user.rank))
        continue;
      COPSE_DO(copse_repair_variants(r, user.tree, all->item[i].image, &first));
      if (find_move(r, first, user.rank) >= 0) continue;
      if (-room(r, e) < r->variants[first].trees)
        COPSE_DO(copse_repair_split(r, first, -room(r, e), &rest));
      COPSE_DO(copse_repair_detach(r, first, user.rank, &at));
    }
  }
  return COPSE_OK;
}

/* Finds places for all that hangs nowhere, for some trees at a time; *hangs: some have none. */
static copse_status place_detached(struct prices *p, bool *hangs) {
  struct repairing *r = p->r;
  for (bool moving = true; moving && !is_tired(p);) {
    moving = *hangs = false;
    for (int v = 0; v < (int)r->n_variants; v++)
      for (int i = 0; i < r->variants[v].n && !is_tired(p); i++) {
        bool done;
        if (r->variants[v].moves[i].up != COPSE_HANGS_NOWHERE) continue;
        int64_t piece = copse_smaller(r->variants[v].trees, 1 + r->k / COPSE_REPAIR_CUT);
        COPSE_DO(move_rank(p, v, r->variants[v].moves[i].rank, piece, &done));
        moving = moving || done;
        *hangs = *hangs || !done;
      }
  }
  return COPSE_OK;
}

/* Finds places, then goes through all links with too much, with steeper prices where that has not
 * become much less. */
static copse_status settle_by_prices(struct prices *p, bool *settled) {
  const struct repairing *r = p->r;
  int64_t before = INT64_MAX, over = 1;
  bool hangs = true;
  p->steep = COPSE_REPAIR_STEEP;
  if (r->from->leaving) COPSE_DO(detach_leaving(p));
  COPSE_DO(place_detached(p, &hangs));
  while (!hangs && over > 0 && p->steep <= COPSE_REPAIR_STEEPEST && !is_tired(p)) {
    over = 0;
    for (int e = 0; e < r->t->n_links; e++) over += copse_larger(0, -room(r, e));
    if (over > before - before / COPSE_REPAIR_MUCH) p->steep *= 2;
    before = over;
    for (int e = 0; e < r->t->n_links; e++) {
      if (room(r, e) < 0) COPSE_DO(drain_moved(p, e));
      if (room(r, e) < 0) COPSE_DO(drain_healthy(p, e));
    }
  }
  *settled = over == 0;
  return COPSE_OK;
}

copse_status copse_repair_by_prices(struct repairing *detached, struct copse_schedule *schedule,
                                    bool *made) {
  COPSE_AT_END(copse_arena_free) struct copse_arena arena = {0};
  COPSE_AT_END(copse_repair_release) struct repairing r = {0};
  COPSE_AT_END(free_prices) struct prices p = {.r = &r, .most = detached->height};
  COPSE_DO(copse_repair_copy(detached, &arena, &r));
  p.most += COPSE_REPAIR_HIGHEST;
  COPSE_DO(copse_nearest_prepare(r.arena, r.t->n_nodes, &p.near, r.err));
  COPSE_DO(COPSE_ARRAYS(r.arena, (size_t)r.t->n_nodes, int, r.err, &p.way, &p.kid_way));
  COPSE_DO(COPSE_ARRAY(r.arena, (size_t)r.t->n_links, p.last_way, r.err));
  for (int e = 0; e < r.t->n_links; e++) p.last_way[e] = -1;
  COPSE_DO(settle_by_prices(&p, made));
  return *made ? copse_repair_keep(&r, schedule) : COPSE_OK;
}
