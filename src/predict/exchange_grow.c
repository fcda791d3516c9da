/*
 * List scheduling of trees (R. L. Graham, Bounds on multiprocessing timing anomalies, 1969). Each
 * tree reaches out from the ranks that it has come to; of all ways of all trees the one that ends
 * first is taken, of equal ones that which has waited longest, as links serve them, of these one
 * drawn. A link that was taken puts off the other ways over it.
 *
 *   offer: (tree, hop to a rank that the tree lacks), in a queue by when it would end
 *
 * A tree goes whole. Where links are alike these are rounds in which no link rests that has
 * something to bring: 59 trees come over six links to each GPU of a 3x4x5 torus in ten. A reduction
 * grows from its root too, against the data: its time runs backwards.
 */
#include <math.h>
#include <stdlib.h>

#include "predict/exchange_internal.h"
#include "predict/policy.h"

/* In a queue's key: when a tree came to where the offer is from, a drawn number, and which it is.
 */
#define OFFER_BITS 24
#define DRAWN_BITS 20

struct offer {
  int tree, hop;
};

struct growth {
  struct copse_exchange_search *s; /* trees, hops, links */
  int first, n;                    /* trees */
  bool reduce;
  double *come_us; /* [n * n_ranks] INFINITY: the tree is not there */
  struct offer *offers;
  size_t n_offers, offers_capacity;
  int missing;   /* places that trees have not come to */
  uint64_t turn; /* moments at which trees have come somewhere */
  double now_us;
  uint64_t random;
  struct copse_arena arena;
  struct copse_err *err;
};

/* Returns when a tree has gone a way that it may go from `us` on; with `take` links are busy. Rules
 * as in simulate.h: on a faster link it starts as much later. */
static double pass(struct growth *g, double bytes, const struct copse_hop *hop, double us,
                   bool take) {
  struct copse_exchange_search *s = g->s;
  double end = us;
  for (int i = 0; i < hop->n; i++) {
    int link = s->hop_links[hop->first + (g->reduce ? hop->n - 1 - i : i)];
    double taken = bytes * s->us_per_byte[link];
    double start = fmax(fmax(us, end - taken), s->free_us[link]);
    if (take) s->free_us[link] = start + taken + s->held_us[link];
    us = start + s->latency_us[link];
    end = us + taken;
  }
  return end + s->x->alpha_us;
}

/* Returns when the last of all images has gone. */
static double pass_all(struct growth *g, int tree, int hop, double us, bool take) {
  const struct copse_exchange_search *s = g->s;
  double last = 0;
  for (int i = 0; i < s->n_images; i++) {
    int image = s->hop_image[(size_t)i * s->n_hops + (size_t)hop];
    last = fmax(last, pass(g, s->trees[g->first + tree].bytes, &s->hops[image], us, take));
  }
  return last;
}

static copse_status offer(struct growth *g, uint64_t turn, size_t i, double us) {
  uint64_t drawn = copse_random(&g->random) >> (32 - DRAWN_BITS);
  uint64_t key = turn << (OFFER_BITS + DRAWN_BITS) | drawn << OFFER_BITS | i;
  return copse_sim_queue_push(&g->s->queue, us, key, g->err);
}

/* Notes that a tree has come to a rank. */
static copse_status reach(struct growth *g, int tree, int rank, double us) {
  const struct copse_exchange_search *s = g->s;
  g->come_us[tree * s->n + rank] = us;
  g->missing--;
  size_t before = g->n_offers;
  for (int v = 0; v < s->n; v++) {
    int hop = s->between[g->reduce ? v * s->n + rank : rank * s->n + v];
    if (hop < 0 || g->come_us[tree * s->n + v] < INFINITY) continue;
    if (g->n_offers >> OFFER_BITS || g->turn >> (64 - OFFER_BITS - DRAWN_BITS))
      return copse_fail(g->err, COPSE_UNSUPPORTED, "too many ways to grow");
    COPSE_DO(COPSE_GROW(g->offers, g->offers_capacity, g->n_offers + 1, g->err));
    g->offers[g->n_offers] = (struct offer){tree, hop};
    COPSE_DO(offer(g, g->turn, g->n_offers++, pass_all(g, tree, hop, us, false)));
  }
  g->s->work += STEPS_OF_OFFER((int64_t)s->n_trees * s->n_images * s->n) *
                (double)(g->n_offers - before) * s->n_images;
  return COPSE_OK;
}

/* Takes the offer that ends first, unless the tree has come there, or links were taken. */
static copse_status take_next(struct growth *g) {
  struct copse_exchange_search *s = g->s;
  struct copse_sim_event e;
  COPSE_DO(copse_sim_queue_pop(&s->queue, &e, g->err));
  size_t i = e.key & ((1u << OFFER_BITS) - 1);
  int tree = g->offers[i].tree, hop = g->offers[i].hop;
  int near = g->reduce ? s->hops[hop].to : s->hops[hop].from;
  int far = g->reduce ? s->hops[hop].from : s->hops[hop].to;
  double us = copse_sim_event_us(&e), from = g->come_us[tree * s->n + near];
  s->work += s->n_images;
  if (g->come_us[tree * s->n + far] < INFINITY) return COPSE_OK;
  double then = pass_all(g, tree, hop, from, false);
  if (then > us) return offer(g, e.key >> (OFFER_BITS + DRAWN_BITS), i, then);
  pass_all(g, tree, hop, from, true);
  s->trees[g->first + tree].parent[far] = hop;
  g->turn += us > g->now_us;
  g->now_us = us;
  return reach(g, tree, far, us);
}

static void release(struct growth *g) {
  free(g->offers);
  copse_arena_free(&g->arena);
}

copse_status copse_exchange_grow(struct copse_exchange_search *s, int first, int n, uint64_t random,
                                 struct copse_err *err) {
  COPSE_AT_END(release)
  struct growth g = {.s = s,
                     .first = first,
                     .n = n,
                     .reduce = s->trees[first].reduce,
                     .missing = n * s->n,
                     .random = random,
                     .err = err};
  COPSE_DO(COPSE_ARRAY(&g.arena, (size_t)g.missing, g.come_us, err));
  for (int i = 0; i < g.missing; i++) g.come_us[i] = INFINITY;
  for (int l = 0; l < s->topology->n_links; l++) s->free_us[l] = 0;
  copse_sim_queue_reset(&s->queue);
  for (int t = 0; t < n; t++) COPSE_DO(reach(&g, t, s->trees[first + t].root, 0));
  while (g.missing > 0) {
    if (copse_sim_queue_is_empty(&s->queue))
      return copse_fail(err, COPSE_UNSUPPORTED, "a tree does not come to all ranks");
    COPSE_DO(take_next(&g));
  }
  return COPSE_OK;
}
