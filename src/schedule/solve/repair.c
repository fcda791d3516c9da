/* Repair of a compact schedule: docs/theory.md, "Heuristics that prove themselves". Nodes are those
 * of the broken topology, then those that are gone; ranks likewise. Trees lead away from their
 * roots; a reduction's are turned around first and last. A variant is a part of an image's trees
 * with the same ranks moved. */
#include "schedule/solve/repair.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/loads.h"
#include "schedule/solve/policy.h"
#include "schedule/solve/repair_internal.h"

/* Where places are looked for: around, from there over links with room, or also over full ones,
 * which something else then leaves. */
enum reach { NEAR, FAR, FULL };

/* WHOLE: trees as they are. IN_PIECES: trees that lost many ways are in pieces. STRICT: none is too
 * high. SPARING: ways cross one full link at most. Where
 * the links into each host are full, as on a torus, a way through another host's switch takes room
 * without which some tree can't enter that host. */
enum way { WHOLE, IN_PIECES, STRICT, SPARING };

/* ---- numbers ------------------------------------------------------------------------------- */

/* Numbers all; *fits: the schedule is one of all nodes of the healthy topology. */
static copse_status number_all(struct repairing *r, bool *fits) {
  const struct copse_schedule *s = r->from->from;
  COPSE_DO(copse_numbering_make(s, r->from->healthy, r->t, r->arena, &r->numbers, fits, r->err));
  if (!*fits) return COPSE_OK;
  r->base = r->numbers.schedule;
  COPSE_DO(copse_images_make(r->base.rotations, s->n_rotations, r->numbers.n_nodes, r->arena,
                             &r->images, r->err));
  COPSE_DO(
      copse_image_ranks_make(r->numbers.rank_of, r->numbers.n_nodes, r->arena, &r->seen, r->err));
  COPSE_DO(COPSE_ARRAY(r->arena, (size_t)r->base.n_trees, r->trees, r->err));
  for (int i = 0; i < r->base.n_trees; i++) {
    COPSE_DO(copse_base_tree_make(&r->base, i, r->arena, &r->trees[i], r->err));
    int height = copse_moved_below(&r->trees[i], r->move_at, r->trees[i].root);
    if (height > r->height) r->height = height;
  }
  return COPSE_OK;
}

/* ---- loads --------------------------------------------------------------------------------- */

static copse_status find_loads(struct repairing *r, bool *fits) {
  const struct copse_topology *healthy = r->from->healthy;
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct copse_q *loads, u;
  size_t n = (size_t)r->t->n_links;
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)healthy->n_links, loads, r->err));
  COPSE_DO(copse_numbering_loads(&r->numbers, r->each, loads, fits, r->err));
  COPSE_DO(COPSE_ARRAYS(r->arena, n, int64_t, r->err, &r->load, &r->capacity));
  COPSE_DO(COPSE_ARRAY(r->arena, n, r->back, r->err));
  COPSE_DO(copse_q_div((struct copse_q){r->k, 1}, r->from->x, &u, r->err));
  for (int e = 0; e < healthy->n_links && *fits; e++) {
    int src = r->numbers.all_of[healthy->links[e].src];
    int dst = r->numbers.all_of[healthy->links[e].dst], at = broken_link(r, src, dst);
    if (at < 0) continue;
    r->capacity[at] = in_trees(r->from->network->links[at].capacity, u);
    r->load[at] = loads[e].num;
    r->back[at] = r->from->together ? broken_link(r, dst, src) : -1;
  }
  return COPSE_OK;
}

/* Gives room for so many trees to each link of a path that is there, NULL: as it stands. */
static void give_path(struct repairing *r, const struct copse_image *image, const int *path, int n,
                      int64_t trees) {
  for (int i = 0; i + 1 < n; i++) {
    int src = image ? copse_image_node(&r->images, image, path[i]) : path[i];
    int dst = image ? copse_image_node(&r->images, image, path[i + 1]) : path[i + 1];
    int e = broken_link(r, src, dst);
    if (e >= 0) r->load[e] -= trees;
  }
}

/* Does the same for the way to a rank of a base tree, as an image has it. */
static void give_way(struct repairing *r, int tree, const struct copse_image *image, int rank,
                     int64_t trees) {
  const struct copse_schedule_edge *edge = &r->base.trees[tree].edges[r->trees[tree].edge[rank]];
  give_path(r, image, edge->path, edge->n_path, trees);
}

/* Drops images of roots that are gone: they put no load on anything. */
static void drop_roots(struct repairing *r) {
  for (int64_t i = 0; r->base.n_absent > 0 && i < r->images.n_images; i++) {
    struct copse_image image = copse_image_of(&r->images, i);
    for (int t = 0; t < r->base.n_trees; t++) {
      if (!is_gone(r, &image, r->base.trees[t].root)) continue;
      for (int v = 0; v < r->trees[t].n; v++)
        if (v != r->base.trees[t].root) give_way(r, t, &image, v, r->each[t]);
    }
  }
}

/* ---- variants ------------------------------------------------------------------------------- */

static copse_status reserve(struct repairing *r, struct variant *v, int n) {
  if (n <= v->capacity) return COPSE_OK;
  struct variant old = *v;
  v->capacity = 2 * n;
  COPSE_DO(COPSE_ARRAY(r->arena, (size_t)v->capacity, v->moves, r->err));
  COPSE_DO(COPSE_ARRAY(r->arena, (size_t)v->capacity, v->places, r->err));
  if (v->n == 0) return COPSE_OK;
  memcpy(v->moves, old.moves, (size_t)v->n * sizeof *v->moves);
  memcpy(v->places, old.places, (size_t)v->n * sizeof *v->places);
  return COPSE_OK;
}

static copse_status add_variant(struct repairing *r, struct variant like, int *out) {
  COPSE_DO(COPSE_GROW(r->variants, r->variants_capacity, r->n_variants + 1, r->err));
  *out = (int)r->n_variants++;
  r->variants[*out] = like;
  return COPSE_OK;
}

copse_status copse_repair_variants(struct repairing *r, int tree, int64_t number, int *first) {
  uint64_t key = key_of(r, tree, number);
  size_t cursor = 0;
  *first = copse_index_map_next(&r->of_image, key, &cursor);
  if (*first >= 0) return COPSE_OK;
  struct copse_image image = copse_image_of(&r->images, number);
  struct variant v = {.tree = tree, .image = number, .trees = r->each[tree], .next = -1};
  COPSE_DO(reserve(r, &v, r->base.n_absent + 2));
  for (int i = 0; i < r->base.n_absent; i++) {
    int node = r->base.rank_nodes[r->base.n_ranks + i];
    v.moves[v.n] = (struct copse_moved){
        r->numbers.rank_of[copse_image_back(&r->images, &image, node)], COPSE_IS_ABSENT};
    v.places[v.n++] = (struct place){.rank = r->base.n_ranks + i};
  }
  COPSE_DO(add_variant(r, v, first));
  return copse_index_map_add(&r->of_image, key, *first, r->err);
}

copse_status copse_repair_split(struct repairing *r, int index, int64_t trees, int *rest) {
  struct variant copy = r->variants[index];
  copy.trees -= trees;
  copy.capacity = 0;
  COPSE_DO(reserve(r, &copy, copy.n + 1));
  COPSE_DO(add_variant(r, copy, rest));
  r->variants[index].trees = trees;
  r->variants[index].next = *rest;
  return COPSE_OK;
}

static int depth_of(struct repairing *r, int index, int rank) {
  const struct variant *v = &r->variants[index];
  mark(r, index);
  return copse_moved_depth(&r->trees[v->tree], v->moves, r->move_at, rank);
}

copse_status copse_repair_detach(struct repairing *r, int index, int rank, int *at) {
  struct variant *v = &r->variants[index];
  *at = find_move(r, index, rank);
  if (*at >= 0) {
    give_path(r, NULL, v->places[*at].path, v->places[*at].n_path, v->trees);
    v->moves[*at].up = COPSE_HANGS_NOWHERE;
    v->places[*at].n_path = 0;
    return COPSE_OK;
  }
  struct copse_image image = copse_image_of(&r->images, v->image);
  give_way(r, v->tree, &image, rank, v->trees);
  COPSE_DO(reserve(r, v, v->n + 1));
  *at = v->n++;
  r->move_at[rank] = v->n;
  int node = copse_image_node(&r->images, &image, r->base.rank_nodes[rank]);
  v->moves[*at] = (struct copse_moved){rank, COPSE_HANGS_NOWHERE};
  v->places[*at] = (struct place){.rank = r->numbers.rank_of[node]};
  return COPSE_OK;
}

/* ---- finding places ------------------------------------------------------------------------ */

/* Whether a search comes back over a link, at whose end it is; FULL's go over full ones too. */
static bool may_cross(const struct repairing *r, int link, bool over_full) {
  int at = r->from->network->links[link].dst;
  if (room(r, link) <= 0 && (!over_full || r->capacity[link] == 0 || r->held[link])) return false;
  return !r->sparing || r->crossed[at] + r->was_full[link] <= 1;
}

/* Searches backwards from a node through relays over links with room, with FULL over as few full
 * ones as there are, those far away first. Finds r->ends, at most `deepest` in the tree: more of
 * them as long as all are deeper than `wanted`. What hangs nowhere does not count. */
static void search_back(struct repairing *r, int index, int node, enum reach reach, int deepest,
                        int wanted) {
  struct copse_queue queue = {.items = r->queue};
  int n_again = 0, n_last = 0; /* nodes that full links are looked for at */
  int most = COPSE_REPAIR_ENDS_AT_FIRST;
  r->n_ends = 0;
  r->n_searches++;
  r->stamp[node] = r->n_searches;
  r->away[node] = r->crossed[node] = 0;
  copse_queue_push(&queue, node);
  while (r->n_ends < most && (n_again > 0 || !copse_queue_is_empty(&queue))) {
    bool full = copse_queue_is_empty(&queue);
    int b = full ? r->queue[--n_again] : copse_queue_pop(&queue);
    for (int i = r->entering.first[b]; i < r->entering.first[b + 1] && r->n_ends < most; i++) {
      int e = r->entering.item[i], a = r->from->network->links[e].src;
      if (!may_cross(r, e, full) || r->stamp[a] == r->n_searches) continue;
      r->stamp[a] = r->n_searches;
      r->via[a] = e;
      r->away[a] = r->away[b] + 1;
      r->crossed[a] = r->crossed[b] + r->was_full[e];
      if (r->numbers.rank_of[a] < 0) {
        if (reach != NEAR || r->away[a] < COPSE_REPAIR_NEAR) copse_queue_push(&queue, a);
        continue;
      }
      int rank = copse_image_rank(&r->images, r->variants[index].image, a, r->seen);
      int depth = depth_of(r, index, rank);
      if (depth < 0 || depth > deepest) continue;
      r->ends[r->n_ends++] = (struct end){a, rank, depth, r->away[a]};
      if (depth <= wanted) wanted = INT_MAX;
      if (r->n_ends == most && wanted < INT_MAX && most < COPSE_REPAIR_ENDS) most *= 8;
    }
    if (reach == FULL && n_again == 0 && r->n_ends == 0 && copse_queue_is_empty(&queue) &&
        queue.tail > n_last)
      n_last = n_again = queue.tail;
  }
}

/* Takes the way that the search found from `end` to `node`: how many of *amount trees it has room
 * for, or with FULL all. */
static copse_status take_way(struct repairing *r, int end, int node, enum reach reach,
                             int64_t *amount, struct place *place) {
  const struct copse_net_link *links = r->from->network->links;
  int n = 1, *path;
  for (int v = end; v != node; v = links[r->via[v]].dst, n++)
    if (reach != FULL && room(r, r->via[v]) < *amount) *amount = room(r, r->via[v]);
  COPSE_DO(COPSE_ARRAY(r->arena, (size_t)n, path, r->err));
  n = 0;
  for (int v = end; v != node; v = links[r->via[v]].dst) {
    path[n++] = v;
    r->load[r->via[v]] += *amount;
  }
  path[n++] = node;
  place->path = path;
  place->n_path = n;
  return COPSE_OK;
}

/* Chooses the end with the shortest way, so that ways enter no host needlessly; of several the
 * highest in the tree; *low: all are deeper than `most`, and it is the highest. NULL: none. */
static const struct end *choose_end(const struct repairing *r, int most, bool *low) {
  const struct end *best = NULL;
  *low = true;
  for (const struct end *end = r->ends; end < r->ends + r->n_ends; end++) {
    bool fits = end->depth <= most;
    if (best && fits == *low) {
      if (!fits) continue;
    } else if (best && (fits ? end->away > best->away ||
                                   (end->away == best->away && end->depth >= best->depth)
                             : end->depth >= best->depth)) {
      continue;
    }
    best = end;
    *low = !fits;
  }
  return best;
}

/* Gives a place to a rank that has lost its parent; with NEAR only one by which the tree is not too
 * high. *rest: a variant for the trees for which there was no room, or -1. */
static copse_status attach_free(struct repairing *r, int index, int at, enum reach reach, int *rest,
                                bool *done) {
  struct variant *v = &r->variants[index];
  int node = r->base.rank_nodes[v->places[at].rank], moved = v->moves[at].rank;
  mark(r, index);
  int below = copse_moved_below(&r->trees[v->tree], r->move_at, moved);
  int deepest = r->height + r->higher - 1 - below;
  int64_t amount = v->trees;
  bool low;
  *rest = -1;
  search_back(r, index, node, reach, r->strict ? deepest : INT_MAX, deepest);
  const struct end *end = choose_end(r, deepest, &low);
  *done = end && !(reach == NEAR && low);
  if (!*done) return COPSE_OK;
  COPSE_DO(take_way(r, end->node, node, reach, &amount, &v->places[at]));
  if (amount < v->trees) {
    struct place placed = v->places[at];
    v->places[at].n_path = 0;
    COPSE_DO(copse_repair_split(r, index, amount, rest));
    v = &r->variants[index];
    v->places[at] = placed;
  }
  v->moves[at].up = end->rank;
  return COPSE_OK;
}

/* Takes a detached rank back to where it hung before. */
static void put_back(struct repairing *r, int index, int at, struct copse_moved move,
                     struct place place, bool was_moved) {
  struct variant *v = &r->variants[index];
  struct copse_image image = copse_image_of(&r->images, v->image);
  if (was_moved) {
    give_path(r, NULL, place.path, place.n_path, -v->trees);
    v->moves[at] = move;
    v->places[at] = place;
    return;
  }
  give_way(r, v->tree, &image, v->moves[at].rank, -v->trees);
  v->n--; /* it was the last */
  if (r->marked == index) r->move_at[v->moves[at].rank] = 0;
}

/* Seeks another place for a rank that hangs somewhere, or with `lower` nearer to the root, while
 * trees that there is no room for stay; *done: it has one, else nothing has changed. */
static copse_status try_moving(struct repairing *r, int index, int rank, bool lower,
                               enum reach reach, bool *done) {
  int before = find_move(r, index, rank), moved, rest;
  int depth = depth_of(r, index, rank);
  struct copse_moved move = {0};
  struct place place = {0};
  if (before >= 0) {
    move = r->variants[index].moves[before];
    place = r->variants[index].places[before];
  }
  COPSE_DO(copse_repair_detach(r, index, rank, &moved));
  COPSE_DO(attach_free(r, index, moved, reach, &rest, done));
  if (lower && rest >= 0) put_back(r, rest, moved, move, place, before >= 0);
  if (*done && (!lower || depth_of(r, index, rank) < depth)) return COPSE_OK;
  struct variant *v = &r->variants[index];
  if (*done) give_path(r, NULL, v->places[moved].path, v->places[moved].n_path, v->trees);
  put_back(r, index, moved, move, place, before >= 0);
  *done = false;
  return COPSE_OK;
}

/* Moves a rank that hangs below `at` elsewhere, the nearest that can, so that `at` can hang on it,
 * or what lies between does first. From afar comes what is near `at`. */
static copse_status attach_below(struct repairing *r, int index, int at, enum reach reach,
                                 bool *done) {
  int n = 1, below[COPSE_REPAIR_BELOW] = {r->variants[index].moves[at].rank};
  *done = false;
  for (int i = 0; i < n; i++) {
    if (i > 0) COPSE_DO(try_moving(r, index, below[i], false, reach, done));
    if (*done) return COPSE_OK;
    struct variant *v = &r->variants[index];
    struct copse_image image = copse_image_of(&r->images, v->image);
    v->moves[at].up =
        r->trees[v->tree].root; /* as if it hung there: what hangs below it does too */
    search_back(r, index, copse_image_node(&r->images, &image, r->base.rank_nodes[below[i]]),
                reach == FAR ? NEAR : reach, INT_MAX, INT_MAX);
    v->moves[at].up = COPSE_HANGS_NOWHERE;
    for (int e = 0; e < r->n_ends && n < COPSE_REPAIR_BELOW; e++) {
      int known = 0, rank = r->ends[e].rank;
      while (known < n && below[known] != rank) known++;
      if (known == n && depth_of(r, index, rank) < 0) below[n++] = rank;
    }
  }
  return COPSE_OK;
}

/* Whether a rank near a node hangs somewhere that did not before this round. */
static bool is_woken(struct repairing *r, int index, int node, int links) {
  bool woken = false;
  for (int i = r->entering.first[node]; i < r->entering.first[node + 1] && !woken; i++) {
    int a = r->from->network->links[r->entering.item[i]].src;
    if (r->numbers.rank_of[a] < 0) {
      woken = links > 1 && is_woken(r, index, a, links - 1);
      continue;
    }
    int rank = copse_image_rank(&r->images, r->variants[index].image, a, r->seen);
    int *since = &r->hung[rank];
    if (*since <= 0 && *since != -r->round)
      *since = depth_of(r, index, rank) < 0 ? -r->round : r->round;
    woken = *since == r->round;
  }
  return woken;
}

/* Wakes ranks that hang nowhere, near those that hang somewhere now and did not before. */
static void wake(struct repairing *r, int index) {
  const struct variant *v = &r->variants[index];
  r->round++;
  for (int i = r->base.n_absent; i < v->n; i++)
    if (v->moves[i].up == COPSE_HANGS_NOWHERE &&
        is_woken(r, index, r->base.rank_nodes[v->places[i].rank], COPSE_REPAIR_NEAR))
      r->awake[v->moves[i].rank] = true;
}

/* Finds places for what hangs nowhere: near ones for all, of `many` for what is awake; or one for
 * the first that has any, of `many` after the last. `turn`: what hangs below may go first. */
static copse_status settle_some(struct repairing *r, int index, enum reach reach, bool turn,
                                bool many, bool *moving, bool *settled) {
  int n = r->variants[index].n; /* what moves meanwhile hangs somewhere */
  int first = many && reach == FAR ? r->last_at : r->variants[index].first;
  *moving = false;
  *settled = true;
  for (int i = 0; i < n; i++) {
    int rest, at = (i + first) % n;
    struct copse_moved move = r->variants[index].moves[at];
    bool done = false;
    if (move.up != COPSE_HANGS_NOWHERE) continue;
    bool seek = reach == NEAR ? !many || r->awake[move.rank] : !*moving;
    if (seek) COPSE_DO(attach_free(r, index, at, reach, &rest, &done));
    if (seek && !done && turn) COPSE_DO(attach_below(r, index, at, reach, &done));
    if (seek && many && reach == NEAR) r->awake[move.rank] = done;
    if (done && reach == FAR) r->last_at = at;
    *moving = *moving || done;
    *settled = *settled && r->variants[index].moves[at].up != COPSE_HANGS_NOWHERE;
  }
  if (many && *moving) wake(r, index);
  return COPSE_OK;
}

/* Settles all of a variant that hangs nowhere; those split off come later in the list. What has
 * come into a host serves all there: another way in is another tree's. Where many ways are lost,
 * near places for what hangs below are sought before anything comes from afar, and not again. */
static copse_status settle_free(struct repairing *r, int index, bool *settled) {
  bool moving = true, near = false, first = true;
  bool many = r->variants[index].n - r->base.n_absent > COPSE_REPAIR_FEW;
  *settled = false;
  r->last_at = r->variants[index].first;
  if (many) {
    r->round = 0;
    memset(r->hung, 0, (size_t)r->from->healthy->n_ranks * sizeof *r->hung);
    memset(r->awake, false, (size_t)r->from->healthy->n_ranks);
    wake(r, index);
  }
  while (!*settled && (moving || near)) {
    near = !near || moving;
    first = first && near;
    bool turn = first || !near || r->variants[index].n <= COPSE_REPAIR_FEW;
    COPSE_DO(settle_some(r, index, near ? NEAR : FAR, turn, many, &moving, settled));
  }
  return COPSE_OK;
}

/* ---- lower --------------------------------------------------------------------------------- */

/* Returns how high a tree is where ranks have moved. */
static int moved_height(struct repairing *r, int index) {
  const struct variant *v = &r->variants[index];
  mark(r, index);
  return copse_moved_height(&r->trees[v->tree], v->moves, r->move_at, v->n, 0);
}

/* Lowers a tree while it is too high and some rank above its deepest one has room further up. */
static copse_status lower_variant(struct repairing *r, int index) {
  bool done = moved_height(r, index) > r->height + r->higher;
  while (done) {
    const struct variant *v = &r->variants[index];
    const struct copse_base_tree *tree = &r->trees[v->tree];
    int most = r->height + r->higher;
    int rank = copse_moved_deepest(tree, v->moves, v->n, r->up, r->depth, &most);
    done = false;
    if (rank < 0) break;
    while (!done && rank != tree->root) {
      COPSE_DO(try_moving(r, index, rank, true, FAR, &done));
      rank = r->up[rank];
    }
  }
  return COPSE_OK;
}

/* ---- the whole ----------------------------------------------------------------------------- */

/* Whether an image's trees lost many ways. */
static bool is_cut_off(const struct repairing *r, int tree, int64_t image) {
  size_t cursor = 0;
  int v = copse_index_map_next(&r->of_image, key_of(r, tree, image), &cursor);
  return v >= 0 && lost_many(r, &r->variants[v]);
}

/* Detaches a way of an image's trees: all of it, or so much that a link has room; *left: not all.
 */
static copse_status detach_user(struct repairing *r, struct copse_image_user at, int link,
                                bool *left) {
  struct copse_tree_user user = r->users[at.user];
  struct copse_image image = copse_image_of(&r->images, at.image);
  int first, moved, rest;
  *left = false;
  if (is_gone(r, &image, r->base.trees[user.tree].root)) return COPSE_OK;
  if (is_gone(r, &image, user.rank)) return COPSE_OK;
  COPSE_DO(copse_repair_variants(r, user.tree, at.image, &first));
  for (int v = first; v >= 0; v = r->variants[v].next) {
    if (find_move(r, v, user.rank) >= 0) continue;
    *left = link >= 0 && room(r, link) >= 0;
    if (*left) break;
    if (link >= 0 && -room(r, link) < r->variants[v].trees)
      COPSE_DO(copse_repair_split(r, v, -room(r, link), &rest));
    COPSE_DO(copse_repair_detach(r, v, user.rank, &moved));
    r->last_image = at.image;
  }
  return COPSE_OK;
}

/* Detaches what crosses a link that is gone. */
static copse_status detach_gone(struct repairing *r, int src, int dst) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct copse_image_users all;
  bool left;
  COPSE_DO(copse_numbering_image_users(&r->numbers, &r->images, &r->crossing, src, dst, &scratch,
                                       &all, r->err));
  for (int i = 0; i < all.n; i++) {
    struct copse_tree_user user = r->users[all.item[i].user];
    struct copse_image image = copse_image_of(&r->images, all.item[i].image);
    int end = r->base.rank_nodes[user.rank];
    if (is_gone(r, &image, user.rank) && !is_gone(r, &image, r->base.trees[user.tree].root) &&
        copse_image_node(&r->images, &image, end) == dst)
      give_way(r, user.tree, &image, user.rank, r->each[user.tree]);
    COPSE_DO(detach_user(r, all.item[i], -1, &left));
  }
  return COPSE_OK;
}

/* Detaches what crosses a link until it has room; of trees that lost many ways, which
 * become high, only what others don't make. The image of before is looked at first: neighbouring
 * images cross neighbouring links. */
static copse_status make_room(struct repairing *r, int link) {
  struct copse_image_users *all = &r->left[link];
  int start = 0;
  COPSE_DO(list_users(r, link));
  while (start < all->n && all->item[start].image < r->last_image) start++;
  for (int i = 0; i < 2 * all->n && room(r, link) < 0; i++) {
    struct copse_image_user *at = &all->item[(start + i) % all->n];
    bool left, of_all = i >= all->n;
    if (at->user < 0 || (!of_all && is_cut_off(r, r->users[at->user].tree, at->image))) continue;
    COPSE_DO(detach_user(r, *at, link, &left));
    if (!left) at->user = -1;
  }
  return COPSE_OK;
}

/* Pushes trees that are as in the healthy schedule off a full link, for the rank that was hung over
 * it. If none leaves, the rank is taken off again, with all that were hung after it. */
static copse_status push_out(struct repairing *r, int index) {
  for (int i = 0; i < r->variants[index].n; i++) {
    struct place place = r->variants[index].places[i];
    for (int p = 0; p + 1 < place.n_path; p++) {
      int at, e = broken_link(r, place.path[p], place.path[p + 1]);
      if (room(r, e) >= 0) continue;
      COPSE_DO(make_room(r, e));
      r->held[e] = room(r, e) < 0;
      if (!r->held[e]) continue;
      COPSE_DO(copse_repair_detach(r, index, r->variants[index].moves[i].rank, &at));
      break;
    }
  }
  return COPSE_OK;
}

/* Takes off all ranks of a variant that have moved; places are sought from another one on. */
static copse_status cut_again(struct repairing *r, int index) {
  int at;
  for (int i = r->base.n_absent; i < r->variants[index].n; i++)
    COPSE_DO(copse_repair_detach(r, index, r->variants[index].moves[i].rank, &at));
  r->variants[index].first += r->variants[index].n / 3 + 1;
  return COPSE_OK;
}

/* Settles a variant, over full links where nothing else is found: then *pushed. One that is not to
 * be too high, and so finds no place for some rank, is made anew a few times. */
static copse_status settle_variant(struct repairing *r, int index, bool *settled, bool *pushed) {
  bool moving = true, hangs;
  int left = r->strict ? COPSE_REPAIR_AGAIN : 0;
  COPSE_DO(settle_free(r, index, settled));
  while (!*settled && (moving || left-- > 0) && r->n_turns++ < COPSE_REPAIR_TURNS) {
    if (moving) {
      COPSE_DO(settle_some(r, index, FULL, true, false, &moving, &hangs));
      COPSE_DO(push_out(r, index));
    } else {
      COPSE_DO(cut_again(r, index));
      moving = true;
    }
    COPSE_DO(settle_free(r, index, settled));
    *pushed = true;
  }
  return COPSE_OK;
}

/* Settles all variants, again where one pushed something out of another; first what lost many ways
 * and must have room near roots, where a single way finds some at many places. */
static copse_status settle(struct repairing *r, bool *settled) {
  bool pushed = true;
  for (*settled = true; *settled && pushed;) {
    pushed = false;
    for (int many = 1; many >= 0; many--)
      for (size_t v = 0; v < r->n_variants && *settled; v++)
        if (!many || lost_many(r, &r->variants[v]))
          COPSE_DO(settle_variant(r, (int)v, settled, &pushed));
  }
  return COPSE_OK;
}

/* Detaches all that has lost its way. No height matters here, nor below. */
static copse_status detach_lost(struct repairing *r) {
  const struct copse_topology *healthy = r->from->healthy;
  for (int e = 0; e < healthy->n_links; e++) {
    int src = r->numbers.all_of[healthy->links[e].src],
        dst = r->numbers.all_of[healthy->links[e].dst];
    if (broken_link(r, src, dst) < 0) COPSE_DO(detach_gone(r, src, dst));
  }
  return COPSE_OK;
}

static copse_status prepare(struct repairing *r, bool *fits) {
  size_t n = (size_t)r->from->healthy->n_ranks;
  COPSE_DO(COPSE_ARRAYS(r->arena, n, int, r->err, &r->up, &r->depth, &r->move_at, &r->hung));
  COPSE_DO(COPSE_ARRAY(r->arena, n, r->awake, r->err));
  COPSE_DO(number_all(r, fits));
  if (!*fits) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(r->arena, (size_t)r->base.n_trees, r->each, r->err));
  r->k = r->from->k;
  COPSE_DO(copse_numbering_each(&r->numbers, &r->k, r->each, r->err));
  COPSE_DO(find_loads(r, fits));
  if (!*fits) return COPSE_OK;
  drop_roots(r);
  COPSE_DO(copse_numbering_users(&r->numbers, r->arena, &r->users, &r->crossing, r->err));
  COPSE_DO(COPSE_ARRAY(r->arena, (size_t)r->t->n_links, r->left, r->err));
  COPSE_DO(COPSE_ARRAY(r->arena, (size_t)r->t->n_links, r->was_full, r->err));
  for (int e = 0; e < r->t->n_links; e++) r->was_full[e] = room(r, e) <= 0;
  COPSE_DO(copse_links_by_destination(r->from->network, r->arena, &r->entering, r->err));
  COPSE_DO(COPSE_ARRAY(r->arena, COPSE_REPAIR_ENDS, r->ends, r->err));
  return COPSE_ARRAYS(r->arena, (size_t)r->t->n_nodes, int, r->err, &r->via, &r->stamp, &r->away,
                      &r->crossed, &r->queue);
}

/* ---- what was made ------------------------------------------------------------------------- */

copse_status copse_repair_keep(struct repairing *r, struct copse_schedule *s) {
  struct copse_schedule_change *changes;
  int n = 0;
  COPSE_DO(COPSE_ARRAY(r->arena, r->n_variants, changes, r->err));
  for (const struct variant *v = r->variants; v < r->variants + r->n_variants; v++) {
    struct copse_schedule_change *to = &changes[n];
    struct copse_schedule_edge *edges;
    if (v->n == r->base.n_absent) continue; /* it goes as it went */
    COPSE_DO(COPSE_ARRAY(r->arena, (size_t)v->n, edges, r->err));
    *to = (struct copse_schedule_change){.tree = v->tree, .image = v->image, .edges = edges};
    COPSE_DO(copse_q_make(v->trees, r->k, &to->weight, r->err));
    for (const struct place *p = v->places + r->base.n_absent; p < v->places + v->n; p++)
      edges[to->n_edges++] = (struct copse_schedule_edge){.path = p->path, .n_path = p->n_path};
    n++;
  }
  s->k = r->k;
  COPSE_DO(copse_numbering_keep(&r->numbers, r->each, changes, n, s, r->err));
  return copse_whole_trees_time(r->t, s->collective, r->load, r->k, r->base.n_ranks,
                                &s->time_per_GB, r->err);
}

void copse_repair_release(struct repairing *r) {
  free(r->variants);
  copse_index_map_free(&r->of_image);
}

/* Cuts trees that lost many ways into pieces, places in each being sought from other ranks on:
 * where a piece comes in first it takes the ways out of that host, and the next one has others. */
static copse_status cut_trees(struct repairing *r) {
  size_t n = r->n_variants;
  for (size_t v = 0; v < n; v++) {
    int rest, at = (int)v;
    if (!lost_many(r, &r->variants[v])) continue;
    for (int left = COPSE_REPAIR_CUT; left > 1; left--) {
      if (r->variants[at].trees < left) continue;
      COPSE_DO(copse_repair_split(r, at, r->variants[at].trees / left, &rest));
      at = rest;
      r->variants[at].first = r->variants[at].n * (COPSE_REPAIR_CUT + 1 - left) / COPSE_REPAIR_CUT;
    }
  }
  return COPSE_OK;
}

/* Settles and lowers all; *height: of what was made, else INT_MAX. */
static copse_status place_all(struct repairing *r, int *height) {
  bool made;
  COPSE_DO(settle(r, &made));
  for (size_t v = 0; v < r->n_variants && made; v++) COPSE_DO(lower_variant(r, (int)v));
  for (int e = 0; e < r->t->n_links && made; e++) made = room(r, e) >= 0;
  *height = made ? r->height : INT_MAX;
  for (size_t v = 0; v < r->n_variants && made; v++)
    *height = copse_larger(*height, moved_height(r, (int)v));
  return COPSE_OK;
}

/* Takes off all that has moved of trees that are too high, which then must not be. */
static copse_status detach_high(struct repairing *r) {
  r->strict = true, r->higher = COPSE_REPAIR_HIGHEST, r->n_turns = 0;
  for (int i = 0; i < (int)r->n_variants; i++)
    if (moved_height(r, i) > r->height + COPSE_REPAIR_HIGHEST) COPSE_DO(cut_again(r, i));
  return COPSE_OK;
}

copse_status copse_repair_copy(const struct repairing *detached, struct copse_arena *arena,
                               struct repairing *r) {
  *r = *detached;
  r->arena = arena, r->marked = -1;
  r->variants = NULL, r->n_variants = r->variants_capacity = 0;
  r->of_image = (struct copse_index_map){0};
  COPSE_DO(COPSE_ARRAY(arena, (size_t)r->t->n_links, r->load, r->err));
  COPSE_DO(COPSE_ARRAY(arena, (size_t)r->t->n_links, r->held, r->err));
  COPSE_DO(COPSE_ARRAY(arena, (size_t)r->t->n_links, r->left, r->err));
  COPSE_DO(COPSE_ARRAY(arena, (size_t)r->t->n_nodes, r->stamp, r->err)); /* searches count anew */
  COPSE_DO(COPSE_ARRAY(arena, (size_t)r->from->healthy->n_ranks, r->move_at, r->err));
  memcpy(r->load, detached->load, (size_t)r->t->n_links * sizeof *r->load);
  for (size_t i = 0; i < detached->n_variants; i++) {
    struct variant copy = detached->variants[i];
    uint64_t key = key_of(r, copy.tree, copy.image);
    size_t cursor = 0;
    int index;
    copy.capacity = 0;
    COPSE_DO(reserve(r, &copy, copy.n + 1));
    COPSE_DO(add_variant(r, copy, &index));
    if (copse_index_map_next(&r->of_image, key, &cursor) < 0)
      COPSE_DO(copse_index_map_add(&r->of_image, key, index, r->err));
  }
  return COPSE_OK;
}

/* Places all that is detached, in a copy, and remakes what is too high. What is made is kept if
 * lower than *lowest, its new height. */
static copse_status try_height(const struct repairing *detached, int higher, enum way way,
                               struct copse_schedule *schedule, int *lowest) {
  COPSE_AT_END(copse_arena_free) struct copse_arena arena = {0};
  COPSE_AT_END(copse_repair_release) struct repairing r = {0};
  int height = INT_MAX;
  COPSE_DO(copse_repair_copy(detached, &arena, &r));
  r.higher = higher, r.strict = way == STRICT, r.sparing = way == SPARING;
  if (way == IN_PIECES) COPSE_DO(cut_trees(&r));
  for (int round = 0; round < COPSE_REPAIR_ROUNDS; round++) {
    if (round > 0) COPSE_DO(detach_high(&r));
    COPSE_DO(place_all(&r, &height));
    if (height >= *lowest) break;
    *lowest = height;
    COPSE_DO(copse_repair_keep(&r, schedule));
    if (height <= r.height + COPSE_REPAIR_HIGHEST) break;
  }
  return COPSE_OK;
}

/* Tries that make trees too high only where nothing else is found; then that never do; then those
 * that spare full links; the first that is low enough, else the lowest. */
static copse_status try_all(struct repairing *r, struct copse_schedule *schedule, bool *made) {
  int lowest = INT_MAX, most = r->height + COPSE_REPAIR_HIGHEST;
  for (int e = 0; e < r->t->n_links; e++)
    if (room(r, e) < 0) COPSE_DO(make_room(r, e));
  for (enum way way = WHOLE; way <= SPARING; way++) {
    if (way == IN_PIECES && r->k == 1) continue; /* one tree of a root cannot be cut */
    for (int higher = COPSE_REPAIR_HIGHER; higher <= COPSE_REPAIR_HIGHEST && lowest > most;
         higher++)
      COPSE_DO(try_height(r, higher, way, schedule, &lowest));
  }
  *made = lowest < INT_MAX;
  return COPSE_OK;
}

copse_status copse_repair_trees(const struct copse_repair *repair, struct copse_schedule *schedule,
                                bool *made, struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena arena = {0};
  COPSE_AT_END(copse_repair_release)
  struct repairing r = {.from = repair, .t = repair->topology, .marked = -1};
  bool fits;
  r.arena = &arena, r.err = err;
  *made = false;
  COPSE_DO(prepare(&r, &fits));
  if (!fits) return COPSE_OK;
  COPSE_DO(detach_lost(&r));
  if (repair->together)
    COPSE_DO(copse_repair_by_prices(&r, schedule, made));
  else
    COPSE_DO(try_all(&r, schedule, made));
  return !*made || schedule->n_rotations > 0 ? COPSE_OK : copse_schedule_expand(schedule, err);
}
