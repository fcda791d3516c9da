/*
 * Local exchange of tree edges. A forest's trees go whole, as one chunk each, so a schedule is
 * nothing but trees in an order; a transfer that is late, or one that it had to wait for, gets
 * another parent, and what the simulation says decides. Where the forest is the image of a part of
 * its trees under symmetries, a move is made in all images at once.
 *
 *   base tree b, image g          transfer ((b G + g) n + place), place in breadth-first order:
 *   places 0 (root) .. n - 1      children of a place follow each other
 *
 * Local search with a threshold that falls to 0 (Dueck and Scheuer, Threshold accepting, 1990).
 *
 * "A run" below is a simulator of its own, since a search makes thousands of runs, which stop where
 * they become worse, and asks of each what a late transfer waited for. Its rules and ties are those
 * of simulate.h for trees of one chunk: FIFO links, relays that cut through, alpha_us,
 * alpha_occupies (held_us). What it has not: chunks, slots (fifo), message_us, duplex, sums that
 * take time. tests/schedule/test_sizes.c, exchange_simulates_as_the_simulator_does, holds both
 * equal.
 */
#include "predict/exchange.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "predict/exchange_internal.h"
#include "predict/policy.h"

static int n_transfers(const struct copse_exchange_search *s) {
  return s->n_trees * s->n_images * s->n;
}

/* ---- hops ------------------------------------------------------------------------------------ */

static copse_status find_hop(struct copse_exchange_search *s, const int *nodes, int n, int *out) {
  const struct copse_topology *t = s->topology;
  uint64_t key = COPSE_HASH;
  size_t cursor = 0;
  int at;
  for (int i = 0; i < n; i++) key = copse_hash(key, (uint64_t)nodes[i]);
  while ((at = copse_index_map_next(&s->hop_index, key, &cursor)) >= 0) {
    struct copse_hop *h = &s->hops[at];
    if (h->n == n - 1 && memcmp(s->hop_nodes + h->first, nodes, (size_t)n * sizeof *nodes) == 0)
      break;
  }
  if ((*out = at) >= 0) return COPSE_OK;
  struct copse_hop hop = {.from = t->nodes[nodes[0]].rank,
                          .to = t->nodes[nodes[n - 1]].rank,
                          .first = (int)s->n_hop_links,
                          .n = n - 1,
                          .latency_us = s->x->alpha_us};
  size_t need = s->n_hop_links + (size_t)n;
  COPSE_DO(COPSE_GROW(s->hop_links, s->hop_links_capacity, need, s->err));
  COPSE_DO(COPSE_GROW(s->hop_nodes, s->hop_nodes_capacity, need, s->err));
  for (int i = 0; i < n; i++) {
    s->hop_nodes[hop.first + i] = nodes[i];
    if (i + 1 == n) break;
    int link = copse_topology_find_link(t, nodes[i], nodes[i + 1]);
    if (link < 0) return copse_fail(s->err, COPSE_INTERNAL, "a path without a link");
    s->hop_links[hop.first + i] = link;
    hop.latency_us += s->latency_us[link];
  }
  s->n_hop_links = need;
  COPSE_DO(COPSE_GROW(s->hops, s->hops_capacity, s->n_hops + 1, s->err));
  COPSE_DO(copse_index_map_add(&s->hop_index, key, (int)s->n_hops, s->err));
  s->hops[ *out = (int)s->n_hops++] = hop;
  return COPSE_OK;
}

/* Finds the hops from every rank to those that it reaches over relays alone, by the fabric's own
 * routes. */
static copse_status find_neighbours(struct copse_exchange_search *s) {
  for (int i = 0, n; i < s->n * s->n; i++) {
    const int *nodes = copse_route(s->x->routes, i / s->n, i % s->n, &n);
    if (s->between[i] < 0 && copse_route_is_hop(s->topology, nodes, n))
      COPSE_DO(find_hop(s, nodes, n, &s->between[i]));
  }
  return COPSE_OK;
}

/* ---- trees by places ------------------------------------------------------------------------- */

struct child {
  double reach;
  int rank;
};

COPSE_ORDER(farther, struct child, COPSE_DOWN(reach) ?: COPSE_UP(rank))

static int end_above(const struct copse_exchange_search *s, const struct copse_grown_tree *t,
                     int hop) {
  return t->reduce ? s->hops[hop].to : s->hops[hop].from;
}

/* Places transfers by their parents: breadth first, of the children of one place those first with
 * the most latency below. False where the parents have a ring. */
static bool place(const struct copse_exchange_search *s, struct copse_grown_tree *t) {
  int n = s->n, first[MOST_RANKS], next[MOST_RANKS], filled = 1;
  double reach[MOST_RANKS];
  struct child list[MOST_RANKS];
  for (int v = 0; v < n; v++) first[v] = -1;
  for (int v = 0; v < n; v++) {
    if (v == t->root) continue;
    int above = end_above(s, t, t->parent[v]);
    next[v] = first[above];
    first[above] = v;
  }
  t->rank[0] = t->root;
  t->up[0] = -1;
  for (int i = 0; i < filled; i++) /* any breadth-first order, for the reaches */
    for (int v = first[t->rank[i]]; v >= 0; v = next[v]) t->rank[filled++] = v;
  if (filled < n) return false;
  for (int v = 0; v < n; v++) reach[v] = 0;
  for (int i = n - 1; i > 0; i--) {
    int v = t->rank[i], above = end_above(s, t, t->parent[v]);
    reach[v] += s->hops[t->parent[v]].latency_us;
    if (reach[v] > reach[above]) reach[above] = reach[v];
  }
  filled = 1;
  for (int i = 0; i < n; i++) {
    int m = 0;
    for (int v = first[t->rank[i]]; v >= 0; v = next[v]) list[m++] = (struct child){reach[v], v};
    COPSE_SORT(list, m, farther);
    t->first_child[i] = filled;
    t->n_children[i] = m;
    t->place_of[t->rank[i]] = i;
    for (int c = 0; c < m; c++) {
      t->up[filled] = i;
      t->rank[filled++] = list[c].rank;
    }
  }
  for (int i = 0; i < n; i++) t->to_go[i] = t->reduce && i > 0 ? t->to_go[t->up[i]] + 1 : 0;
  for (int i = n - 1; i > 0 && !t->reduce; i--)
    if (t->to_go[i] >= t->to_go[t->up[i]]) t->to_go[t->up[i]] = t->to_go[i] + 1;
  return true;
}

/* ---- a run ----------------------------------------------------------------------------------- */

static int tree_of(const struct copse_exchange_search *s, int transfer) {
  return transfer / s->n / s->n_images;
}

static int image_of_rank(const struct copse_exchange_search *s, int g, int rank) {
  const struct copse_topology *t = s->topology;
  return t->nodes[s->image[(size_t)g * (size_t)t->n_nodes + (size_t)t->rank_nodes[rank]]].rank;
}

/* Numbers trees in the order that they stand in; of an allreduce root by root, as simulate_dag.h
 * lists them, each that reduces before the one that goes on from it. */
static void number_trees(struct copse_exchange_search *s) {
  int all = s->n_trees * s->n_images, at = 0;
  for (int r = 0; r < s->n && s->n_pieces > 0; r++)
    for (int b = 0; b < s->n_pieces; b++)
      for (int g = 0; g < s->n_images; g++) {
        if (image_of_rank(s, g, s->trees[b].root) != r) continue;
        s->number[b * s->n_images + g] = at++;
        s->number[(b + s->n_pieces) * s->n_images + g] = at++;
      }
  for (int f = 0; f < all; f++) {
    if (s->n_pieces == 0) s->number[f] = f;
    s->tree_at[s->number[f]] = f;
  }
}

/* An event: with far_first the hops that are to go, from the most on; the tree's number, the
 * transfer's turn in it (its place, of a reduction from the last one on), the link of its hop or,
 * when it has arrived, ARRIVED; what happens at one moment happens in this order. */
#define FAR_BITS 12
#define TREE_BITS 20
#define TURN_BITS 8
#define ARRIVED 255

static inline copse_status ask(struct copse_exchange_search *s, const struct copse_grown_tree *t,
                               int f, int place, double now) {
  int turn = t->reduce ? s->n - 1 - place : place;
  s->next.asked[f * s->n + place] = now;
  int to_go = t->to_go[place]; /* of an allreduce up and down again */
  if (t->reduce && s->n_pieces > 0) to_go += t[s->n_pieces].to_go[0];
  uint64_t key = s->x->far_first ? (uint64_t)(2 * MOST_RANKS - to_go) << (64 - FAR_BITS) : 0;
  key |= (uint64_t)s->number[f] << TREE_BITS | (uint64_t)turn << TURN_BITS;
  return copse_sim_queue_push(&s->queue, now, key, s->err);
}

static copse_status ask_children(struct copse_exchange_search *s, const struct copse_grown_tree *t,
                                 int f, int place, double now) {
  for (int c = 0; c < t->n_children[place]; c++)
    COPSE_DO(ask(s, t, f, t->first_child[place] + c, now));
  return COPSE_OK;
}

static copse_status arrived(struct copse_exchange_search *s, const struct copse_grown_tree *t,
                            int f, int place, double now) {
  if (!t->reduce) return ask_children(s, t, f, place, now);
  int up = t->up[place];
  if (--s->missing[f * s->n + up] > 0) return COPSE_OK;
  if (up > 0) return ask(s, t, f, up, now);
  if (s->n_pieces == 0) return COPSE_OK;
  return ask_children(s, t + s->n_pieces, f + s->n_pieces * s->n_images, 0, now);
}

static copse_status serve(struct copse_exchange_search *s, const struct copse_grown_tree *t, int f,
                          int place, int i, double now, uint64_t key) {
  struct copse_exchange_run *run = &s->next;
  int transfer = f * s->n + place;
  const struct copse_hop *hop = &s->hops[s->hop_image[(size_t)s->image_at[f] * s->n_hops +
                                                      (size_t)t->parent[t->rank[place]]]];
  const int *links = s->hop_links + hop->first + i;
  int link = links[0];
  double taken = t->bytes * s->us_per_byte[link], start = now;
  if (i == 0) run->blocker[transfer] = -1;
  if (s->free_us[link] > now) {
    start = s->free_us[link];
    run->blocker[transfer] = s->last_user[link];
  }
  s->free_us[link] = start + taken + s->held_us[link];
  s->last_user[link] = transfer;
  if (i + 1 < hop->n) { /* on a faster link it starts as much later */
    double lag = taken - t->bytes * s->us_per_byte[links[1]];
    return copse_sim_queue_push(&s->queue, start + s->latency_us[link] + (lag > 0 ? lag : 0),
                                key + 1, s->err);
  }
  double then = start + taken + s->latency_us[link] + s->x->alpha_us;
  run->arrival[transfer] = then;
  if (then > run->us) run->us = then;
  if (then > s->soft) {
    run->f += (then - s->soft) * (then - s->soft);
    run->late[run->n_late++] = transfer;
  }
  if (!t->reduce && t->n_children[place] == 0) return COPSE_OK;
  return copse_sim_queue_push(&s->queue, then, key | ARRIVED, s->err);
}

/* Starts all transfers that wait for none. */
static copse_status begin(struct copse_exchange_search *s) {
  for (int f = 0; f < s->n_trees * s->n_images; f++) {
    const struct copse_grown_tree *t = &s->trees[s->base_at[f]];
    int *missing = s->missing + f * s->n;
    if (!t->reduce && s->n_pieces == 0) COPSE_DO(ask_children(s, t, f, 0, 0));
    for (int i = s->n - 1; i >= 0 && t->reduce; i--) {
      missing[i] = t->n_children[i];
      if (missing[i] == 0 && i > 0) COPSE_DO(ask(s, t, f, i, 0));
    }
  }
  return COPSE_OK;
}

/* Stops where f exceeds `most`. */
static copse_status simulate(struct copse_exchange_search *s, double most) {
  struct copse_exchange_run *run = &s->next;
  copse_sim_queue_reset(&s->queue);
  run->f = run->us = run->n_late = 0;
  for (int l = 0; l < s->topology->n_links; l++) s->free_us[l] = 0;
  COPSE_DO(begin(s));
  double steps = STEPS_OF_EVENT(n_transfers(s), s->x->counts_more);
  while (!copse_sim_queue_is_empty(&s->queue)) {
    struct copse_sim_event e;
    s->work += steps;
    COPSE_DO(copse_sim_queue_pop(&s->queue, &e, s->err));
    int f = s->tree_at[e.key << FAR_BITS >> FAR_BITS >> TREE_BITS], i = (int)(e.key & ARRIVED);
    int turn = (int)(e.key % (1 << TREE_BITS) >> TURN_BITS);
    const struct copse_grown_tree *t = &s->trees[s->base_at[f]];
    int place = t->reduce ? s->n - 1 - turn : turn;
    double now = copse_sim_event_us(&e);
    if (i == ARRIVED)
      COPSE_DO(arrived(s, t, f, place, now));
    else
      COPSE_DO(serve(s, t, f, place, i, now, e.key));
    if (run->f > most) break;
  }
  return COPSE_OK;
}

/* ---- moves ----------------------------------------------------------------------------------- */

struct move {
  int tree, rank, other; /* rank < 0: the trees `tree` and `other` change places */
  int parent;            /* the hop that was */
};

static bool is_below(const struct copse_grown_tree *t, int rank, int above) {
  for (int p = t->place_of[rank]; p >= 0; p = t->up[p])
    if (t->rank[p] == above) return true;
  return false;
}

/* Chooses another parent for a rank: of some drawn, the one that it would come from first, it
 * seems. */
static bool choose_parent(struct copse_exchange_search *s, int transfer, struct move *m, int *hop) {
  int b = tree_of(s, transfer), base = transfer - transfer % s->n;
  const struct copse_grown_tree *t = &s->trees[b];
  int rank = t->rank[transfer % s->n];
  double best = INFINITY;
  *hop = -1;
  for (int i = 0; i < s->n; i++) {
    int h = s->between[t->reduce ? rank * s->n + i : i * s->n + rank];
    if (h < 0 || h == t->parent[rank] || copse_random_below(&s->random, 3) == 0 ||
        is_below(t, i, rank))
      continue;
    int p = t->place_of[i];
    double then = p == 0 || t->reduce ? 0 : s->now.arrival[base + p];
    then += s->hops[h].latency_us * (1 + HOP_SPREAD * copse_random_below(&s->random, 4));
    if (t->reduce) then -= p == 0 ? 1e9 : s->now.asked[base + p];
    if (then >= best) continue;
    best = then;
    *hop = h;
  }
  *m = (struct move){.tree = b, .rank = rank, .parent = t->parent[rank]};
  return *hop >= 0;
}

/* Chooses a transfer to move: one of the late ones, a transfer above it in its tree, or the
 * transfer that one of these waited for. */
static int choose_transfer(struct copse_exchange_search *s) {
  int t = s->now.late[copse_random_below(&s->random, s->now.n_late)];
  for (int steps = copse_random_below(&s->random, 8); steps > 0; steps--) {
    const struct copse_grown_tree *tree = &s->trees[tree_of(s, t)];
    int place = t % s->n;
    if (s->now.blocker[t] >= 0 && copse_random_below(&s->random, 2) == 0) {
      t = s->now.blocker[t];
      continue;
    }
    if (!tree->reduce && tree->up[place] > 0) {
      t += tree->up[place] - place;
      continue;
    }
    if (!tree->reduce && s->n_pieces == 0) break;
    if (!tree->reduce) { /* from the broadcast's root to the reduction's */
      tree -= s->n_pieces;
      t -= s->n_pieces * s->n_images * s->n + place;
      place = 0;
    }
    if (tree->n_children[place] == 0) break;
    t += tree->first_child[place] + copse_random_below(&s->random, tree->n_children[place]) - place;
  }
  return t;
}

static bool apply(struct copse_exchange_search *s, const struct move *m, int hop) {
  if (m->rank < 0) {
    for (int at = 0; at<s->n_trees; at += s->n_pieces> 0 ? s->n_pieces : s->n_trees) {
      struct copse_grown_tree t = s->trees[m->tree + at];
      s->trees[m->tree + at] = s->trees[m->other + at];
      s->trees[m->other + at] = t;
    }
    number_trees(s);
    return true;
  }
  s->trees[m->tree].parent[m->rank] = hop;
  return place(s, &s->trees[m->tree]);
}

static bool choose(struct copse_exchange_search *s, struct move *m, int *hop) {
  int t = choose_transfer(s);
  if (s->n_trees > 1 && copse_random_below(&s->random, 10) == 0) {
    int other = s->now.blocker[t] >= 0 ? tree_of(s, s->now.blocker[t])
                                       : copse_random_below(&s->random, s->n_trees);
    int pieces = s->n_pieces > 0 ? s->n_pieces : s->n_trees;
    *m = (struct move){.tree = tree_of(s, t) % pieces, .rank = -1, .other = other % pieces};
    return m->other != m->tree;
  }
  return choose_parent(s, t, m, hop);
}

/* ---- setting up ------------------------------------------------------------------------------ */

static copse_status new_tree(struct copse_exchange_search *s, struct copse_grown_tree *t) {
  return COPSE_ARRAYS(&s->arena, (size_t)s->n, int, s->err, &t->parent, &t->rank, &t->up,
                      &t->first_child, &t->n_children, &t->place_of, &t->to_go);
}

static copse_status copy_tree(struct copse_exchange_search *s, const struct copse_grown_tree *from,
                              struct copse_grown_tree *to) {
  *to = *from;
  COPSE_DO(new_tree(s, to));
  memcpy(to->parent, from->parent, (size_t)s->n * sizeof(int));
  return place(s, to) ? COPSE_OK : copse_fail(s->err, COPSE_INTERNAL, "a tree with a ring");
}

/* Whether a rank's trees are those that others' are images of. */
static bool is_base(const struct copse_exchange_search *s, int rank) {
  for (int g = 1; g < s->all_images; g++)
    if (image_of_rank(s, g, rank) < rank) return false;
  return true;
}

static copse_status add_tree(struct copse_exchange_search *s,
                             const struct copse_schedule_tree *from, struct copse_q weight,
                             struct copse_grown_tree *t) {
  *t = (struct copse_grown_tree){
      .root = from->root, .reduce = from->phase == COPSE_PHASE_REDUCE, .weight = weight};
  COPSE_DO(new_tree(s, t));
  for (int e = 0; e < from->n_edges; e++) {
    const struct copse_schedule_edge *edge = &from->edges[e];
    int *hop = &s->between[edge->src * s->n + edge->dst], found;
    COPSE_DO(find_hop(s, edge->path, edge->n_path, &found));
    if (*hop < 0) *hop = found;
    t->parent[t->reduce ? edge->src : edge->dst] = found;
  }
  t->parent[t->root] = -1;
  return COPSE_OK;
}

/* Returns the next tree of a root and phase from i on; n_trees if there is none. */
static int next_tree(const struct copse_exchange *x, int i, int root, enum copse_phase phase) {
  while (i < x->n_trees && (x->trees[i].root != root || x->trees[i].phase != phase)) i++;
  return i;
}

/* Adds an allreduce's root: what its trees of both phases, laid end to end, have in common. */
static copse_status add_pieces(struct copse_exchange_search *s, int root,
                               struct copse_grown_tree *reduce, struct copse_grown_tree *broadcast,
                               int *n) {
  const struct copse_exchange *x = s->x;
  int at[2] = {next_tree(x, 0, root, COPSE_PHASE_REDUCE),
               next_tree(x, 0, root, COPSE_PHASE_BROADCAST)};
  struct copse_q left[2];
  for (int i = 0; i < 2 && at[i] < x->n_trees; i++) left[i] = x->trees[at[i]].weight;
  while (at[0] < x->n_trees && at[1] < x->n_trees) {
    struct copse_q piece = copse_q_cmp(left[0], left[1]) < 0 ? left[0] : left[1];
    COPSE_DO(add_tree(s, &x->trees[at[0]], piece, &reduce[*n]));
    COPSE_DO(add_tree(s, &x->trees[at[1]], piece, &broadcast[*n]));
    ++*n;
    for (int i = 0; i < 2; i++) {
      COPSE_DO(copse_q_sub(left[i], piece, &left[i], s->err));
      if (left[i].num > 0) continue;
      at[i] = next_tree(x, at[i] + 1, root, x->trees[at[i]].phase);
      if (at[i] < x->n_trees) left[i] = x->trees[at[i]].weight;
    }
  }
  return COPSE_OK;
}

/* Copies the trees of base roots. Those of a phase weigh 1 with all images, or that is refused. */
static copse_status copy_trees(struct copse_exchange_search *s) {
  const struct copse_exchange *x = s->x;
  struct copse_q sum = COPSE_Q_ZERO, image = {1, s->all_images};
  struct copse_grown_tree *broadcast;
  bool reduces = false, broadcasts = false;
  int n = 0, all = 2 * x->n_trees;
  for (int i = 0; i < x->n_trees; i++)
    *(x->trees[i].phase == COPSE_PHASE_REDUCE ? &reduces : &broadcasts) = true;
  COPSE_DO(COPSE_ARRAY(&s->arena, 2 * (size_t)all, s->trees, s->err));
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)all, broadcast, s->err));
  for (int r = 0; r < s->n && reduces && broadcasts; r++)
    if (is_base(s, r)) COPSE_DO(add_pieces(s, r, s->trees, broadcast, &n));
  for (int i = 0; i < x->n_trees && !(reduces && broadcasts); i++)
    if (is_base(s, x->trees[i].root))
      COPSE_DO(add_tree(s, &x->trees[i], x->trees[i].weight, &s->trees[n++]));
  s->n_trees = n;
  for (int i = 0; i < n; i++) COPSE_DO(copse_q_add(sum, s->trees[i].weight, &sum, s->err));
  if (!copse_q_eq(sum, image)) return copse_fail(s->err, COPSE_UNSUPPORTED, "unlike shares");
  if (!reduces || !broadcasts) return COPSE_OK;
  memcpy(s->trees + n, broadcast, (size_t)n * sizeof *broadcast);
  s->n_pieces = n;
  s->n_trees = 2 * n;
  return COPSE_OK;
}

/* Takes memory for runs of so many trees. */
static copse_status make_runs(struct copse_exchange_search *s) {
  size_t n = (size_t)n_transfers(s);
  COPSE_DO(COPSE_ARRAYS(&s->arena, n, double, s->err, &s->now.arrival, &s->now.asked,
                        &s->next.arrival, &s->next.asked));
  COPSE_DO(COPSE_ARRAYS(&s->arena, n, int, s->err, &s->now.blocker, &s->now.late, &s->next.blocker,
                        &s->next.late, &s->number, &s->tree_at, &s->base_at, &s->image_at,
                        &s->missing));
  for (int f = 0; f < s->n_trees * s->n_images; f++) {
    s->base_at[f] = f / s->n_images;
    s->image_at[f] = f % s->n_images;
  }
  number_trees(s);
  return COPSE_OK;
}

/* Cuts every tree into so many equal ones, which may go apart. */
static copse_status cut(struct copse_exchange_search *s, int copies) {
  const struct copse_grown_tree *from = s->trees;
  int n = s->n_trees;
  s->n_trees *= copies;
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)s->n_trees, s->trees, s->err));
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)s->n_trees, s->best, s->err));
  int pieces = s->n_pieces > 0 ? s->n_pieces : n; /* copies of all of these follow each other */
  for (int i = 0; i < n * copies; i++) {
    struct copse_grown_tree *t = &s->trees[i];
    COPSE_DO(copy_tree(s, &from[i / (pieces * copies) * pieces + i % pieces], t));
    COPSE_DO(copse_q_div(t->weight, (struct copse_q){copies, 1}, &t->weight, s->err));
    t->bytes = copse_q_to_double(t->weight) * s->x->bytes;
    COPSE_DO(copy_tree(s, t, &s->best[i]));
  }
  s->n_pieces *= copies;
  return make_runs(s);
}

static copse_status image_of_hop(struct copse_exchange_search *s, size_t h, int g, int *out) {
  int path[MOST_PATH], n = s->hops[h].n + 1;
  const int *image = s->image + (size_t)g * (size_t)s->topology->n_nodes;
  if (n > MOST_PATH)
    return copse_fail(s->err, COPSE_UNSUPPORTED, "a path of more than %d nodes", MOST_PATH);
  for (int i = 0; i < n; i++) path[i] = image[s->hop_nodes[s->hops[h].first + i]];
  return find_hop(s, path, n, out);
}

/* Maps all hops to their images. */
static copse_status map_hops(struct copse_exchange_search *s) {
  for (size_t h = 0; h < s->n_hops; h++)
    for (int g = 0, found; g < s->all_images; g++) COPSE_DO(image_of_hop(s, h, g, &found));
  size_t n = s->n_hops;
  if (n * (size_t)s->all_images > MOST_IMAGES)
    return copse_fail(s->err, COPSE_UNSUPPORTED, "too many ways under too many symmetries");
  COPSE_DO(COPSE_ARRAY(&s->arena, n * (size_t)s->all_images, s->hop_image, s->err));
  for (size_t h = 0; h < n; h++)
    for (int g = 0; g < s->all_images; g++)
      COPSE_DO(image_of_hop(s, h, g, &s->hop_image[(size_t)g * n + h]));
  return COPSE_OK;
}

/*
 * Replaces links by orbits and simulates one image: where symmetries move every link, and
 * latencies are alike, what happens to a base tree happens to all of its images: on a link of each
 * orbit, at one time. Only the turns differ that images of one tree take at one moment.
 */
static copse_status fold_links(struct copse_exchange_search *s) {
  const struct copse_topology *t = s->topology;
  int *orbit;
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)t->n_links, orbit, s->err));
  for (int l = 0; l < t->n_links; l++) {
    orbit[l] = l;
    for (int g = 1; g < s->all_images; g++) {
      const int *image = s->image + (size_t)g * (size_t)t->n_nodes;
      int at = copse_topology_find_link(t, image[t->links[l].src], image[t->links[l].dst]);
      if (at < 0 || at == l || !copse_q_eq(t->links[at].latency, t->links[l].latency))
        return COPSE_OK;
      if (at < orbit[l]) orbit[l] = at;
    }
  }
  for (size_t h = 0; h < s->n_hops; h++)
    for (int i = 0; i < s->hops[h].n; i++)
      s->hop_links[s->hops[h].first + i] = orbit[s->hop_links[s->hops[h].first + i]];
  s->n_images = 1;
  return COPSE_OK;
}

static copse_status set_up(struct copse_exchange_search *s) {
  const struct copse_topology *t = s->topology;
  size_t links = (size_t)t->n_links, pairs = (size_t)s->n * (size_t)s->n;
  COPSE_DO(COPSE_ARRAYS(&s->arena, links, double, s->err, &s->us_per_byte, &s->latency_us,
                        &s->held_us, &s->free_us));
  COPSE_DO(COPSE_ARRAY(&s->arena, links, s->last_user, s->err));
  COPSE_DO(COPSE_ARRAY(&s->arena, pairs, s->between, s->err));
  for (size_t i = 0; i < pairs; i++) s->between[i] = -1;
  for (size_t l = 0; l < links; l++) {
    s->us_per_byte[l] = 1e-3 / copse_q_to_double(t->links[l].bandwidth);
    s->latency_us[l] = copse_q_to_double(t->links[l].latency);
    if (!s->x->alpha_occupies) continue;
    bool ends_hop = t->nodes[t->links[l].dst].rank >= 0;
    s->held_us[l] = s->latency_us[l] + (ends_hop ? s->x->alpha_us : 0);
  }
  s->all_images = s->x->symmetry ? s->x->symmetry->n_products : 1;
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)t->n_nodes * (size_t)s->all_images, s->image, s->err));
  copse_symmetry_products(s->x->symmetry, t->n_nodes, s->image);
  COPSE_DO(copy_trees(s));
  COPSE_DO(find_neighbours(s));
  COPSE_DO(map_hops(s));
  s->n_images = s->all_images;
  return s->x->fold && s->n_pieces == 0 ? fold_links(s) : COPSE_OK;
}

/* ---- the result ------------------------------------------------------------------------------ */

static copse_status take_trees(const struct copse_exchange_search *s, struct copse_arena *arena,
                               const struct copse_schedule_tree **out, int *n_out) {
  size_t all = (size_t)s->n_trees * (size_t)s->all_images, at = 0,
         nodes = (size_t)s->topology->n_nodes;
  struct copse_schedule_tree *trees;
  COPSE_DO(COPSE_ARRAY(arena, all, trees, s->err));
  for (int b = 0; b < s->n_trees; b++)
    for (int g = 0; g < s->all_images; g++) {
      const struct copse_grown_tree *t = &s->best[b];
      struct copse_schedule_edge *edges;
      int root = s->image[(size_t)g * nodes + (size_t)s->topology->rank_nodes[t->root]];
      COPSE_DO(COPSE_ARRAY(arena, (size_t)s->n, edges, s->err));
      for (int p = 1; p < s->n; p++) {
        int from = s->hop_image[(size_t)g * s->n_hops + (size_t)t->parent[t->rank[p]]], *path;
        const struct copse_hop *hop = &s->hops[from];
        COPSE_DO(COPSE_ARRAY(arena, (size_t)hop->n + 1, path, s->err));
        memcpy(path, s->hop_nodes + hop->first, ((size_t)hop->n + 1) * sizeof *path);
        edges[t->reduce ? s->n - 1 - p : p - 1] =
            (struct copse_schedule_edge){hop->from, hop->to, path, hop->n + 1};
      }
      trees[at++] = (struct copse_schedule_tree){
          .root = s->topology->nodes[root].rank,
          .phase = t->reduce ? COPSE_PHASE_REDUCE : COPSE_PHASE_BROADCAST,
          .weight = t->weight,
          .n_edges = s->n - 1,
          .edges = edges};
    }
  *out = trees;
  *n_out = (int)all;
  return COPSE_OK;
}

/* Returns for how long a tree keeps a link busy, on average. */
static double mean_taken(const struct copse_exchange_search *s) {
  double bytes = 0, all = 0;
  for (int b = 0; b < s->n_trees; b++) bytes += s->trees[b].bytes / s->n_trees;
  for (int l = 0; l < s->topology->n_links; l++) all += bytes * s->us_per_byte[l] + s->held_us[l];
  return all / s->topology->n_links;
}

/* Returns a time than which no run of so many trees is shorter, however they are cut into chunks:
 * into each rank (of reductions out of it) goes a chunk of every tree but its own, and keeps a link
 * busy. */
static double least_possible(const struct copse_exchange_search *s) {
  const struct copse_topology *t = s->topology;
  double rate[MOST_RANKS] = {0}, bytes = INFINITY, least = 0;
  int others[MOST_RANKS], n_trees = s->n_pieces > 0 ? s->n_pieces : s->n_trees;
  for (int v = 0; v < s->n; v++) others[v] = n_trees * s->all_images;
  for (int b = 0; b < n_trees; b++) {
    bytes = fmin(bytes, s->trees[b].bytes);
    for (int g = 0; g < s->all_images; g++) others[image_of_rank(s, g, s->trees[b].root)]--;
  }
  for (int l = 0; l < t->n_links; l++) {
    int rank = t->nodes[s->trees[0].reduce ? t->links[l].src : t->links[l].dst].rank;
    if (rank >= 0) rate[rank] += 1 / (bytes * s->us_per_byte[l] + s->held_us[l]);
  }
  for (int v = 0; v < s->n; v++) least = fmax(least, others[v] / rate[v]);
  return least;
}

static void take_run(struct copse_exchange_search *s) {
  struct copse_exchange_run before = s->now;
  s->now = s->next, s->next = before;
}

/* Counts the late transfers anew after the moment has changed from which on they are late. */
static void count_late(struct copse_exchange_search *s) {
  s->now.f = 0;
  s->now.n_late = 0;
  for (int t = 0; t < n_transfers(s); t++) {
    double by = t % s->n == 0 ? 0 : s->now.arrival[t] - s->soft;
    if (by <= 0) continue;
    s->now.f += by * by;
    s->now.late[s->now.n_late++] = t;
  }
}

static void keep_best(struct copse_exchange_search *s) {
  s->least = s->now.us;
  for (int b = 0; b < s->n_trees; b++) {
    struct copse_grown_tree *best = &s->best[b], *t = &s->trees[b];
    memcpy(best->parent, t->parent, (size_t)s->n * sizeof *t->parent);
    best->root = t->root, best->weight = t->weight, best->bytes = t->bytes;
    (void)place(s, best);
  }
}

/* Improves the best until the time is over or nothing has come of many trials. */
static copse_status improve(struct copse_exchange_search *s, double end) {
  double window = LATE_PIECES * mean_taken(s), begin = s->work;
  int64_t tried = 0, last = 0, most = MOST_VAIN_MOVES((int64_t)s->n_trees * s->n);
  double heat = HEAT;
  s->soft = INFINITY;
  COPSE_DO(simulate(s, INFINITY));
  take_run(s);
  if (!(s->now.us > s->least)) keep_best(s);
  s->soft = s->now.us - window;
  count_late(s);
  while (s->least > s->x->enough_us && tried - last < most) {
    struct move m;
    int hop = -1;
    if (s->work >= end) break;
    heat = HEAT * (end - s->work) / (end - begin);
    tried++;
    s->work += 3 * s->n; /* the tree's places, a parent among all */
    if (!choose(s, &m, &hop)) continue;
    bool good = apply(s, &m, hop);
    if (good) COPSE_DO(simulate(s, s->now.f * (1 + heat)));
    if (!good || s->next.f > s->now.f * (1 + heat)) {
      (void)apply(s, &m, m.parent);
      continue;
    }
    take_run(s);
    if (s->now.us < s->least * (1 - 1e-9)) {
      keep_best(s);
      last = tried;
    }
    if (s->now.us > s->soft + window / 2) continue;
    s->soft = s->now.us - window;
    count_late(s);
  }
  return COPSE_OK;
}

/* Grows all trees anew some times; the fastest are kept. */
static copse_status grow(struct copse_exchange_search *s) {
  int pieces = s->n_pieces > 0 ? s->n_pieces : s->n_trees;
  double end = s->work + s->x->grow;
  s->soft = INFINITY;
  for (uint64_t i = 0; i < GROWN_TIMES && s->least > s->x->enough_us; i++) {
    if (i > 0 && s->work >= end) break;
    for (int first = 0; first < s->n_trees; first += pieces)
      COPSE_DO(copse_exchange_grow(s, first, pieces, s->x->seed * GROWN_TIMES + i, s->err));
    for (int b = 0; b < s->n_trees; b++)
      if (!place(s, &s->trees[b])) return copse_fail(s->err, COPSE_INTERNAL, "no tree has grown");
    COPSE_DO(simulate(s, INFINITY));
    take_run(s);
    if (s->now.us < s->least) keep_best(s);
  }
  for (int b = 0; b < s->n_trees; b++) COPSE_DO(copy_tree(s, &s->best[b], &s->trees[b]));
  return COPSE_OK;
}

static copse_status improve_levels(struct copse_exchange_search *s) {
  int roots = 0, pieces = s->n_pieces > 0 ? s->n_pieces : s->n_trees;
  for (int r = 0; r < s->n; r++) roots += is_base(s, r);
  if (s->x->root >= 0) roots = 1;
  int copies = (s->x->pieces * roots + pieces - 1) / pieces;
  s->least = INFINITY;
  for (;; copies = 2) {
    double least = s->least;
    struct copse_grown_tree *before = s->best;
    int n_before = s->n_trees, pieces_before = s->n_pieces;
    COPSE_DO(cut(s, copies));
    bool more = n_transfers(s) * 2 <= s->x->most_transfers && mean_taken(s) / 2 >= s->x->message_us;
    if (least_possible(s) < fmin(least, s->x->beat_us)) {
      if (s->x->grow > 0 && least == INFINITY) COPSE_DO(grow(s));
      COPSE_DO(improve(s, more ? s->work + (s->x->work - s->work) / 3 : s->x->work));
    }
    if (s->least >= least) {
      s->best = before;
      s->n_trees = n_before;
      s->n_pieces = pieces_before;
      break;
    }
    double to_come = least - s->least; /* each level gains half of what the one before it did */
    if (!more || s->least > least * (1 - LEVEL_GAIN) || s->work >= s->x->work ||
        s->least <= s->x->enough_us || s->least - LEVEL_HOPE * to_come > s->x->beat_us)
      break;
    s->trees = s->best;
  }
  return COPSE_OK;
}

static void release(struct copse_exchange_search *s) {
  free(s->hops);
  free(s->hop_links);
  free(s->hop_nodes);
  copse_index_map_free(&s->hop_index);
  copse_sim_queue_free(&s->queue);
  copse_arena_free(&s->arena);
}

copse_status copse_exchange_edges(const struct copse_exchange *x, struct copse_arena *arena,
                                  const struct copse_schedule_tree **trees, int *n, double *us,
                                  double *work, struct copse_err *err) {
  COPSE_AT_END(release)
  struct copse_exchange_search s = {
      .x = x, .topology = x->topology, .n = x->topology->n_ranks, .random = x->seed, .err = err};
  if (s.n > MOST_RANKS)
    return copse_fail(err, COPSE_UNSUPPORTED, "exchange is for at most %d ranks", MOST_RANKS);
  copse_status status = set_up(&s);
  if (status == COPSE_OK) status = improve_levels(&s);
  *work += s.work;
  *us = s.least;
  return status == COPSE_OK && s.least < INFINITY ? take_trees(&s, arena, trees, n) : status;
}
