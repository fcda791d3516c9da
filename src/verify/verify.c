/*
 * The independent check of a schedule: trees, paths, shares, loads, permutations of the compact
 * form, which must keep the topology, and the bound from its cut, its cuts and potentials, or its
 * phases, all in GMP rationals from the file and the topology alone. No code is shared with what
 * made the schedule. docs/theory.md, "src/verify/".
 */
#include "verify/verify.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/types.h"
#include "verify/internal.h"

copse_status copse_verify_refute(struct copse_err *err, const char *label, const char *fmt, ...) {
  char text[400];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  return copse_fail_at(err, COPSE_REFUTED, label, 0, "%s", text);
}

copse_status copse_verify_get_q(const mpq_t from, const char *label, struct copse_q *to,
                                struct copse_err *err) {
  if (copse_mpq_get(from, to)) return COPSE_OK;
  return copse_fail(err, COPSE_OVERFLOW, "%s: an exact time needs more than 64 bits", label);
}

static const char *node_id(const struct copse_verify_checker *c, int schedule_node) {
  return c->schedule->nodes[schedule_node];
}

static copse_status check_ranks(struct copse_verify_checker *c) {
  const struct copse_schedule *s = c->schedule;
  for (int i = 0; i < s->n_nodes; i++)
    c->node_of[i] = copse_topology_find(c->topology, s->nodes[i]);
  if (s->n_ranks != c->topology->n_ranks)
    return refute(c, "the schedule has %d ranks, the topology %d", s->n_ranks,
                  c->topology->n_ranks);
  for (int r = 0; r < s->n_ranks; r++)
    if (c->node_of[s->rank_nodes[r]] != c->topology->rank_nodes[r])
      return refute(c, "rank %d is '%s' in the schedule and '%s' in the topology", r,
                    node_id(c, s->rank_nodes[r]),
                    c->topology->nodes[c->topology->rank_nodes[r]].id);
  return COPSE_OK;
}

/* Checks that the switches that the schedule names can copy or add as it says. */
static copse_status check_switches(struct copse_verify_checker *c) {
  const struct copse_schedule *s = c->schedule;
  for (int i = 0; i < s->n_copying + s->n_adding; i++) {
    bool copies = i < s->n_copying;
    int at = copies ? s->copying[i] : s->adding[i - s->n_copying], node = c->node_of[at];
    if (node < 0 ||
        !(copies ? c->topology->nodes[node].multicast : c->topology->nodes[node].aggregation))
      return refute(c, "\"in_network\" names '%s', which the topology doesn't have for %s",
                    node_id(c, at), copies ? "multicast" : "aggregation");
  }
  return COPSE_OK;
}

/* Whether this hop's load was counted for this tree already, in a switch that copies. */
static bool counted_once(struct copse_verify_checker *c, enum copse_phase phase, int src, int dst,
                         int link, int tree) {
  bool once = phase == COPSE_PHASE_BROADCAST ? c->topology->nodes[dst].multicast
                                             : c->topology->nodes[src].aggregation;
  bool before = c->last_tree[link] == tree + 1;
  c->last_tree[link] = tree + 1;
  return once && before;
}

/* Walks a path: from the source's node to the destination's, over links, through relays. */
static copse_status walk_path(struct copse_verify_checker *c, int tree, int e) {
  const struct copse_schedule *s = c->schedule;
  const struct copse_schedule_edge *edge = &s->trees[tree].edges[e];
  COPSE_MPQ(weight);
  copse_mpq_set(weight, s->trees[tree].weight);
  if (edge->n_path < 2 || edge->path[0] != s->rank_nodes[edge->src] ||
      edge->path[edge->n_path - 1] != s->rank_nodes[edge->dst])
    return refute(c, "tree %d, edge %d: the path doesn't lead from rank %d to rank %d", tree, e,
                  edge->src, edge->dst);
  for (int i = 0; i + 1 < edge->n_path; i++) {
    int src = c->node_of[edge->path[i]], dst = c->node_of[edge->path[i + 1]];
    int link = copse_topology_find_link(c->topology, src, dst);
    if (link < 0)
      return refute(c, "tree %d, edge %d: the topology has no link '%s' -> '%s'", tree, e,
                    node_id(c, edge->path[i]), node_id(c, edge->path[i + 1]));
    if (i > 0 && c->topology->nodes[src].rank >= 0)
      return refute(c, "tree %d, edge %d: the path passes through rank %d ('%s'), not a relay",
                    tree, e, c->topology->nodes[src].rank, node_id(c, edge->path[i]));
    if (!counted_once(c, s->trees[tree].phase, src, dst, link, tree))
      mpq_add(c->loads[link], c->loads[link], weight);
  }
  return COPSE_OK;
}

static copse_status check_tree(struct copse_verify_checker *c, int t) {
  const struct copse_schedule_tree *tree = &c->schedule->trees[t];
  bool broadcast = tree->phase == COPSE_PHASE_BROADCAST;
  memset(c->reached, 0, (size_t)c->schedule->n_ranks);
  c->reached[tree->root] = 1;
  if (tree->weight.num <= 0) return refute(c, "tree %d: its weight is not positive", t);
  for (int i = 0; i < tree->n_edges; i++) { /* from the root on */
    int e = broadcast ? i : tree->n_edges - 1 - i;
    const struct copse_schedule_edge *edge = &tree->edges[e];
    int parent = broadcast ? edge->src : edge->dst, child = broadcast ? edge->dst : edge->src;
    if (!c->reached[parent] || c->reached[child])
      return refute(c, "tree %d, edge %d: out of order or not a tree", t, e);
    c->reached[child] = 1;
    COPSE_DO(walk_path(c, t, e));
  }
  for (int r = 0; r < c->schedule->n_ranks && !copse_schedule_doubles(c->schedule); r++)
    if (!c->reached[r]) return refute(c, "tree %d: rank %d is left out", t, r);
  return COPSE_OK;
}

/* ---- symmetries of compact schedules --------------------------------------------------------- */

struct copse_verify_defect copse_verify_automorphism(const struct copse_topology *t,
                                                     const int *image, char *hit, int *link_image) {
  for (int v = 0; v < t->n_nodes; v++) {
    if (image[v] < 0 || hit[image[v]]++)
      return (struct copse_verify_defect){COPSE_NOT_ONE_TO_ONE, v};
    const struct copse_node *a = &t->nodes[v], *b = &t->nodes[image[v]];
    if ((a->rank >= 0) != (b->rank >= 0) || a->multicast != b->multicast ||
        a->aggregation != b->aggregation)
      return (struct copse_verify_defect){COPSE_OTHER_NODE, v};
  }
  for (int e = 0; e < t->n_links; e++) {
    const struct copse_link *l = &t->links[e];
    int f = copse_topology_find_link(t, image[l->src], image[l->dst]);
    if (f < 0 || !copse_q_eq(t->links[f].bandwidth, l->bandwidth))
      return (struct copse_verify_defect){COPSE_OTHER_LINK, e};
    link_image[e] = f;
  }
  return (struct copse_verify_defect){COPSE_KEPT, -1};
}

/* Maps a permutation to the topology's nodes. */
static copse_status map_nodes(struct copse_verify_checker *c, const int *from, int *image) {
  const struct copse_schedule *s = c->schedule;
  const struct copse_topology *t = c->topology;
  if (s->n_nodes != t->n_nodes) return refute(c, "a rotation must map every node of the topology");
  for (int v = 0; v < t->n_nodes; v++) image[v] = -1;
  for (int v = 0; v < s->n_nodes; v++) {
    if (c->node_of[v] < 0) return refute(c, "a rotation names '%s', which is unknown", s->nodes[v]);
    image[c->node_of[v]] = c->node_of[from[v]];
  }
  return COPSE_OK;
}

static copse_status refute_rotation(struct copse_verify_checker *c, const int *image,
                                    struct copse_verify_defect defect) {
  const struct copse_topology *t = c->topology;
  const struct copse_node *nodes = t->nodes;
  if (defect.what == COPSE_OTHER_LINK)
    return refute(c, "a rotation maps the link '%s' -> '%s' to none like it",
                  nodes[t->links[defect.at].src].id, nodes[t->links[defect.at].dst].id);
  if (defect.what == COPSE_NOT_ONE_TO_ONE)
    return refute(c, "a rotation does not map the nodes one to one: see '%s'", nodes[defect.at].id);
  return refute(c, "a rotation maps '%s' to '%s'", nodes[defect.at].id, nodes[image[defect.at]].id);
}

/* Makes c->symmetry of the schedule's rotations, each an automorphism: an image of a tree is a
 * tree, over links that there are. COPSE_REFUTED, COPSE_NOMEM. */
static copse_status make_symmetry(struct copse_verify_checker *c) {
  const struct copse_topology *t = c->topology;
  struct copse_verify_symmetry *out = &c->symmetry;
  size_t nodes = (size_t)t->n_nodes, links = (size_t)t->n_links, ranks = (size_t)t->n_ranks;
  if (c->schedule->n_rotations > COPSE_SCHEDULE_MAX_ROTATIONS)
    return refute(c, "more than %d rotations", COPSE_SCHEDULE_MAX_ROTATIONS);
  for (int i = 0; i < c->schedule->n_rotations; i++) {
    char *hit;
    COPSE_DO(COPSE_ARRAY(&c->scratch.arena, nodes, out->nodes[i], c->err));
    COPSE_DO(COPSE_ARRAY(&c->scratch.arena, links, out->links[i], c->err));
    COPSE_DO(COPSE_ARRAY(&c->scratch.arena, ranks, out->ranks[i], c->err));
    COPSE_DO(COPSE_ARRAY(&c->scratch.arena, nodes, hit, c->err));
    const int *image = out->nodes[i];
    COPSE_DO(map_nodes(c, c->schedule->rotations[i].image, out->nodes[i]));
    struct copse_verify_defect defect = copse_verify_automorphism(t, image, hit, out->links[i]);
    if (defect.what != COPSE_KEPT) return refute_rotation(c, image, defect);
    for (int r = 0; r < t->n_ranks; r++) out->ranks[i][r] = t->nodes[image[t->rank_nodes[r]]].rank;
    out->orders[out->n++] = c->schedule->rotations[i].order;
  }
  return COPSE_OK;
}

static copse_status spread_one(struct copse_verify_checker *c, int order, const int *image, int n,
                               mpq_t *values, char *done) {
  COPSE_MPQ(sum);
  COPSE_MPQ(times);
  for (int i = 0; i < n; i++) {
    int length = 0, j = i;
    if (done[i]) continue;
    mpq_set_ui(sum, 0, 1);
    do {
      mpq_add(sum, sum, values[j]);
      j = image[j];
      length++;
    } while (j != i);
    if (order % length != 0) return refute(c, "the order of a rotation is not %d", order);
    mpq_set_ui(times, (unsigned long)(order / length), 1);
    mpq_mul(sum, sum, times);
    do {
      mpq_set(values[j], sum);
      done[j] = 1;
      j = image[j];
    } while (j != i);
  }
  return COPSE_OK;
}

/* Replaces values [n] on links (or ranks, by `images`) of what is listed by the sum over all
 * images. Under the powers 0 .. order-1 of a rotation, what lies on a cycle of length l comes by
 * each of its members order / l times; COPSE_REFUTED where that is no integer. */
static copse_status spread(struct copse_verify_checker *c, int *const *images, int n,
                           mpq_t *values) {
  for (int i = 0; i < c->symmetry.n; i++) {
    char *done;
    COPSE_DO(COPSE_ARRAY(&c->scratch.arena, (size_t)n, done, c->err));
    COPSE_DO(spread_one(c, c->symmetry.orders[i], images[i], n, values, done));
  }
  return COPSE_OK;
}

/* ---- shares ---------------------------------------------------------------------------------- */

/* Adds up the shares of a phase, zeros before. */
static copse_status add_shares(struct copse_verify_checker *c, enum copse_phase phase,
                               mpq_t *shares) {
  const struct copse_schedule *s = c->schedule;
  COPSE_MPQ(value);
  for (int t = 0; t < s->n_trees; t++) {
    if (s->trees[t].phase != phase) continue;
    copse_mpq_set(value, s->trees[t].weight);
    mpq_add(shares[s->trees[t].root], shares[s->trees[t].root], value);
  }
  return spread(c, c->symmetry.ranks, s->n_ranks, shares);
}

/* Checks that each root has its share. */
static copse_status check_shares(struct copse_verify_checker *c, mpq_t *shares) {
  const struct copse_schedule *s = c->schedule;
  COPSE_MPQ(sum);
  COPSE_MPQ(value);
  for (int r = 0; r < s->n_ranks; r++) {
    mpq_add(sum, sum, shares[r]);
    if (s->collective == COPSE_ALLREDUCE) continue;
    if (copse_collective_rooted(s->collective))
      mpq_set_ui(value, r == s->root, 1);
    else
      mpq_set_ui(value, 1, (unsigned long)s->n_ranks);
    if (!mpq_equal(shares[r], value))
      return refute(c, "the weights of root %d don't add up to its share", r);
  }
  if (mpq_cmp_ui(sum, 1, 1) != 0) return refute(c, "the weights of a phase don't add up to 1");
  return COPSE_OK;
}

/* Whose inputs are in each rank's sum, a bit each: before the stage at hand, and with it. */
struct sums {
  size_t n_words;
  uint64_t *before, *now; /* [n_ranks * n_words] */
};

static copse_status add_sum(struct copse_verify_checker *c, const struct sums *s, int t, int rank,
                            int to) {
  const uint64_t *from = s->before + (size_t)rank * s->n_words;
  uint64_t *sum = s->now + (size_t)to * s->n_words;
  for (size_t i = 0; i < s->n_words; i++) {
    if (sum[i] & from[i])
      return refute(c, "tree %d: rank %d adds the input of rank %d a second time", t, to,
                    (int)(64 * i) + __builtin_ctzll(sum[i] & from[i]));
    sum[i] |= from[i];
  }
  return COPSE_OK;
}

/* Adds what a tree does in its stage; of a reduce tree, whose ranks are in no other, all but the
 * root have no sum then. */
static copse_status add_sums(struct copse_verify_checker *c, const struct sums *s, int t) {
  const struct copse_schedule_tree *tree = &c->schedule->trees[t];
  bool reduce = tree->phase == COPSE_PHASE_REDUCE;
  if (reduce && c->reached[tree->root]++)
    return refute(c, "tree %d: rank %d is in two reduce trees of a stage", t, tree->root);
  for (int e = 0; e < tree->n_edges; e++) {
    int src = tree->edges[e].src;
    COPSE_DO(add_sum(c, s, t, reduce ? src : tree->root, reduce ? tree->root : tree->edges[e].dst));
    if (!reduce) continue;
    if (c->reached[src]++)
      return refute(c, "tree %d: rank %d is in two reduce trees of a stage", t, src);
    memset(s->now + (size_t)src * s->n_words, 0, s->n_words * sizeof *s->now);
  }
  return COPSE_OK;
}

/* Checks that each sum has the input of every rank. */
static copse_status check_sums(struct copse_verify_checker *c, const struct sums *s, int piece) {
  int n = c->schedule->n_ranks;
  for (int r = 0; r < n; r++)
    for (int i = 0; i < n; i++)
      if (!(s->now[(size_t)r * s->n_words + (size_t)i / 64] >> i % 64 & 1))
        return refute(c, "piece %d: rank %d never adds the input of rank %d", piece, r, i);
  return COPSE_OK;
}

static void begin_sums(const struct copse_verify_checker *c, struct sums *s) {
  memset(s->now, 0, (size_t)c->schedule->n_ranks * s->n_words * sizeof *s->now);
  for (int r = 0; r < c->schedule->n_ranks; r++)
    s->now[(size_t)r * s->n_words + (size_t)r / 64] = (uint64_t)1 << r % 64;
}

/* Checks pieces one after the other, each stage by stage: trees of a stage bring what was there
 * before. */
static copse_status check_stages(struct copse_verify_checker *c) {
  const struct copse_schedule *s = c->schedule;
  struct sums sums = {.n_words = ((size_t)s->n_ranks + 63) / 64};
  size_t words = (size_t)s->n_ranks * sums.n_words;
  COPSE_MPQ(whole);
  COPSE_MPQ(weight);
  COPSE_DO(COPSE_ARRAYS(&c->scratch.arena, words, uint64_t, c->err, &sums.before, &sums.now));
  for (int t = 0; t < s->n_trees; t++) {
    const struct copse_schedule_tree *tree = &s->trees[t], *last = t > 0 ? tree - 1 : NULL;
    bool begins = !last || tree->piece != last->piece;
    if (tree->stage < 1 || tree->piece != (last ? last->piece + begins : 0) ||
        (!begins && (tree->stage < last->stage || !copse_q_eq(tree->weight, last->weight) ||
                     (tree->stage == last->stage && tree->phase != last->phase))))
      return refute(c,
                    "tree %d: trees in stages come by piece and stage, those of a piece with "
                    "one weight, of a stage of one phase",
                    t);
    if (begins && last) COPSE_DO(check_sums(c, &sums, last->piece));
    if (begins) begin_sums(c, &sums);
    if (begins || tree->stage > last->stage) {
      memcpy(sums.before, sums.now, words * sizeof *sums.now);
      memset(c->reached, 0, (size_t)s->n_ranks);
    }
    COPSE_DO(add_sums(c, &sums, t));
    copse_mpq_set(weight, tree->weight);
    if (begins) mpq_add(whole, whole, weight);
  }
  COPSE_DO(check_sums(c, &sums, s->trees[s->n_trees - 1].piece));
  return mpq_cmp_ui(whole, 1, 1) == 0 ? COPSE_OK
                                      : refute(c, "the weights of the pieces don't add up to 1");
}

copse_status copse_verify_mark(const char *label, int cut, const char *id, int node, char *inside,
                               struct copse_err *err) {
  if (node < 0)
    return copse_verify_refute(err, label,
                               "cut %d of the bound names '%s', which the topology lacks", cut, id);
  if (inside[node]++)
    return copse_verify_refute(err, label, "cut %d of the bound names '%s' twice", cut, id);
  return COPSE_OK;
}

copse_status copse_verify_potential(const struct copse_topology *t, const char *label, int relay,
                                    struct copse_err *err) {
  const struct copse_node *marked = NULL;
  for (int e = 0; e < t->n_links && !marked; e++) {
    const struct copse_node *src = &t->nodes[t->links[e].src], *dst = &t->nodes[t->links[e].dst];
    if (t->links[e].src != relay && t->links[e].dst != relay) continue;
    marked = src->multicast || src->aggregation   ? src
             : dst->multicast || dst->aggregation ? dst
                                                  : NULL;
  }
  if (!marked) return COPSE_OK;
  return copse_verify_refute(err, label,
                             "the bound has a potential of '%s', which proves nothing at or beside "
                             "'%s', a switch that copies or adds",
                             t->nodes[relay].id, marked->id);
}

copse_status copse_verify_rationals(struct copse_verify_scratch *scratch, int n, mpq_t **out,
                                    struct copse_err *err) {
  struct copse_verify_block *block;
  COPSE_DO(COPSE_ARRAY(&scratch->arena, 1, block, err));
  COPSE_DO(COPSE_ARRAY(&scratch->arena, (size_t)n, *out, err));
  for (int i = 0; i < n; i++) mpq_init((*out)[i]);
  *block = (struct copse_verify_block){scratch->blocks, *out, n};
  scratch->blocks = block;
  return COPSE_OK;
}

void copse_verify_scratch_free(struct copse_verify_scratch *scratch) {
  for (const struct copse_verify_block *b = scratch->blocks; b; b = b->next)
    for (int i = 0; i < b->n; i++) mpq_clear(b->rationals[i]);
  copse_arena_free(&scratch->arena);
}

static copse_status check_all_shares(struct copse_verify_checker *c) {
  const struct copse_schedule *s = c->schedule;
  mpq_t *out_shares, *in_shares;
  bool out = copse_collective_broadcasts(s->collective);
  bool in = copse_collective_reduces(s->collective);
  if (copse_schedule_doubles(s)) return check_stages(c);
  COPSE_DO(copse_verify_rationals(&c->scratch, s->n_ranks, &out_shares, c->err));
  COPSE_DO(copse_verify_rationals(&c->scratch, s->n_ranks, &in_shares, c->err));
  if (s->excepted) {
    COPSE_DO(copse_verify_changes(c, out_shares, in_shares));
  } else {
    COPSE_DO(add_shares(c, COPSE_PHASE_BROADCAST, out_shares));
    COPSE_DO(add_shares(c, COPSE_PHASE_REDUCE, in_shares));
  }
  if (out) COPSE_DO(check_shares(c, out_shares));
  if (in) COPSE_DO(check_shares(c, in_shares));
  for (int r = 0; r < s->n_ranks && in && out; r++)
    if (!mpq_equal(out_shares[r], in_shares[r]))
      return refute(c, "the share of root %d differs between the two phases", r);
  return COPSE_OK;
}

copse_status copse_verify_most_loaded(const struct copse_topology *t, mpq_t *loads,
                                      const char *label, struct copse_q *time_per_GB,
                                      struct copse_verify_busiest *busiest, struct copse_err *err) {
  COPSE_MPQ(most);
  COPSE_MPQ(time);
  COPSE_MPQ(bandwidth);
  *busiest = (struct copse_verify_busiest){-1, -1, 0};
  for (int i = 0; i < t->n_links; i++) {
    copse_mpq_set(bandwidth, t->links[i].bandwidth);
    mpq_div(time, loads[i], bandwidth);
    int order = mpq_cmp(time, most);
    if (order < 0 || mpq_sgn(time) == 0) continue;
    busiest->links++;
    if (order == 0) continue;
    mpq_set(most, time);
    *busiest = (struct copse_verify_busiest){t->links[i].src, t->links[i].dst, 1};
  }
  return copse_verify_get_q(most, label, time_per_GB, err);
}

copse_status copse_verify_compare_bound(const char *label, struct copse_q claim,
                                        struct copse_q bound, struct copse_q time,
                                        struct copse_err *err) {
  char a[COPSE_Q_TEXT], b[COPSE_Q_TEXT];
  if (!copse_q_eq(bound, claim))
    return copse_verify_refute(err, label, "the bound is %s, its certificate proves %s",
                               copse_q_text(claim, a), copse_q_text(bound, b));
  if (copse_q_cmp(time, bound) < 0)
    return copse_verify_refute(err, label, "the time %s is below the bound %s",
                               copse_q_text(time, a), copse_q_text(bound, b));
  return COPSE_OK;
}

static copse_status check_time(struct copse_verify_checker *c, struct copse_verify_report *report) {
  char claimed[COPSE_Q_TEXT], found[COPSE_Q_TEXT];
  struct copse_verify_busiest busiest;
  COPSE_DO(copse_verify_most_loaded(c->topology, c->loads, c->label, &report->time_per_GB, &busiest,
                                    c->err));
  report->busiest_src = busiest.src;
  report->busiest_dst = busiest.dst;
  report->busiest_links = busiest.links;
  if (!copse_q_eq(report->time_per_GB, c->schedule->time_per_GB))
    return refute(c, "time_per_GB is %s, the most loaded link gives %s",
                  copse_q_text(c->schedule->time_per_GB, claimed),
                  copse_q_text(report->time_per_GB, found));
  return COPSE_OK;
}

void copse_verify_cut_bandwidth(const struct copse_topology *t, const char *inside, bool entering,
                                mpq_t sum) {
  COPSE_MPQ(bandwidth);
  for (int e = 0; e < t->n_links; e++) {
    const struct copse_link *link = &t->links[e];
    int from = entering ? link->dst : link->src, to = entering ? link->src : link->dst;
    if (!inside[from] || inside[to]) continue;
    copse_mpq_set(bandwidth, link->bandwidth);
    mpq_add(sum, sum, bandwidth);
  }
}

static copse_status mark_bound_cut(struct copse_verify_checker *c, const int *cut, int n,
                                   char *inside) {
  for (int i = 0; i < n; i++) {
    int node = c->node_of[cut[i]];
    if (node < 0)
      return refute(c, "the cut names '%s', which the topology lacks", node_id(c, cut[i]));
    if (inside[node]++) return refute(c, "the cut names '%s' twice", node_id(c, cut[i]));
  }
  return COPSE_OK;
}

/* Finds the time that one cut S proves for one phase: data over the bandwidth that leaves S
 * (enters it, for a reduction); `any`: for an allreduce of any kind. */
static copse_status cut_time(struct copse_verify_checker *c, const int *cut, int n, bool entering,
                             bool any, mpq_t time) {
  const struct copse_schedule *s = c->schedule;
  const int *rank_nodes = c->topology->rank_nodes;
  bool rooted = copse_collective_rooted(s->collective);
  int held = 0;
  char *inside;
  COPSE_MPQ(bandwidth);
  COPSE_DO(COPSE_ARRAY(&c->scratch.arena, (size_t)c->topology->n_nodes, inside, c->err));
  COPSE_DO(mark_bound_cut(c, cut, n, inside));
  if (s->n_ranks == 1) return COPSE_OK; /* nothing has to move */
  for (int r = 0; r < s->n_ranks; r++) held += inside[rank_nodes[r]];
  if (held == 0 || held == s->n_ranks || (rooted && !inside[rank_nodes[s->root]]))
    return refute(c, "the bound's cut separates nothing: it must hold %s and miss a rank",
                  rooted ? "the root" : "a rank");
  copse_verify_cut_bandwidth(c->topology, inside, entering, bandwidth);
  if (mpq_sgn(bandwidth) == 0) return refute(c, "nothing leaves the bound's cut");
  if (rooted || any)
    mpq_set_ui(time, 1, 1);
  else
    mpq_set_ui(time, (unsigned long)held, (unsigned long)s->n_ranks);
  mpq_canonicalize(time);
  mpq_div(time, time, bandwidth);
  return COPSE_OK;
}

/* The sums of a COPSE_BOUND_FORESTS. */
struct forest_bound {
  char *inside;              /* [n_nodes] of the cut at hand */
  mpq_t *leaving, *entering; /* [n_links] weights of the cuts that the link crosses */
  mpq_t *around;             /* [n_ranks] weights of the cuts that hold the rank */
  mpq_t *potential;          /* [n_nodes] */
};

static copse_status add_cut(struct copse_verify_checker *c, struct forest_bound *f, int index) {
  const struct copse_schedule_cut *cut = &c->schedule->bound.cuts[index];
  const struct copse_topology *t = c->topology;
  mpq_t *crossed = cut->phase == COPSE_PHASE_REDUCE ? f->entering : f->leaving;
  int ranks_inside = 0;
  memset(f->inside, 0, (size_t)t->n_nodes);
  for (int i = 0; i < cut->n_nodes; i++)
    COPSE_DO(copse_verify_mark(c->label, index, node_id(c, cut->nodes[i]),
                               c->node_of[cut->nodes[i]], f->inside, c->err));
  if (cut->weight.num <= 0)
    return refute(c, "cut %d of the bound: its weight is not positive", index);
  COPSE_MPQ(weight);
  copse_mpq_set(weight, cut->weight);
  for (int r = 0; r < c->topology->n_ranks; r++) {
    if (!f->inside[t->rank_nodes[r]]) continue;
    ranks_inside++;
    mpq_add(f->around[r], f->around[r], weight);
  }
  for (int e = 0; e < c->topology->n_links; e++) {
    bool src = f->inside[t->links[e].src], dst = f->inside[t->links[e].dst];
    if (cut->phase == COPSE_PHASE_REDUCE ? !src && dst : src && !dst)
      mpq_add(crossed[e], crossed[e], weight);
  }
  if (ranks_inside == 0 || ranks_inside == c->topology->n_ranks)
    return refute(c, "cut %d of the bound separates nothing: it must hold a rank and miss one",
                  index);
  return COPSE_OK;
}

static copse_status set_potentials(struct copse_verify_checker *c, struct forest_bound *f) {
  const struct copse_bound *bound = &c->schedule->bound;
  const struct copse_topology *t = c->topology;
  for (int i = 0; i < bound->n_potentials; i++) {
    const char *id = c->schedule->nodes[bound->potentials[i].node];
    int node = c->node_of[bound->potentials[i].node];
    if (node < 0) return refute(c, "a potential names '%s', which the topology lacks", id);
    if (t->nodes[node].rank >= 0) return refute(c, "a potential names '%s', which is a rank", id);
    if (mpq_sgn(f->potential[node]) != 0) return refute(c, "'%s' has two potentials", id);
    COPSE_DO(copse_verify_potential(t, c->label, node, c->err));
    copse_mpq_set(f->potential[node], bound->potentials[i].value);
  }
  return COPSE_OK;
}

/* Computes sum_e b_e max(Z_e, Y_e - (p[dst] - p[src])). */
static void add_up(const struct copse_verify_checker *c, const struct forest_bound *f, mpq_t sum) {
  COPSE_MPQ(q);
  COPSE_MPQ(bandwidth);
  for (int e = 0; e < c->topology->n_links; e++) {
    const struct copse_link *link = &c->topology->links[e];
    mpq_sub(q, f->potential[link->src], f->potential[link->dst]);
    mpq_add(q, q, f->leaving[e]);
    if (mpq_cmp(q, f->entering[e]) < 0) mpq_set(q, f->entering[e]);
    copse_mpq_set(bandwidth, link->bandwidth);
    mpq_mul(q, q, bandwidth);
    mpq_add(sum, sum, q);
  }
}

/*
 * Computes the time that a COPSE_BOUND_FORESTS proves in this topology, by the formula of
 * schedule.h, worked out from the certificate's cuts and potentials alone. COPSE_REFUTED where a
 * cut names a node twice or one that is not there, holds no rank or misses none, where the weights
 * around a rank add up to less than 1, or a potential is not a relay's, stands twice, or is there
 * at or beside a switch that copies or adds.
 */
static copse_status forests_time(struct copse_verify_checker *c, mpq_t time) {
  const struct copse_topology *t = c->topology;
  struct forest_bound f;
  COPSE_DO(COPSE_ARRAY(&c->scratch.arena, (size_t)t->n_nodes, f.inside, c->err));
  COPSE_DO(copse_verify_rationals(&c->scratch, t->n_links, &f.leaving, c->err));
  COPSE_DO(copse_verify_rationals(&c->scratch, t->n_links, &f.entering, c->err));
  COPSE_DO(copse_verify_rationals(&c->scratch, t->n_ranks, &f.around, c->err));
  COPSE_DO(copse_verify_rationals(&c->scratch, t->n_nodes, &f.potential, c->err));
  for (int i = 0; i < c->schedule->bound.n_cuts; i++) COPSE_DO(add_cut(c, &f, i));
  for (int r = 0; r < t->n_ranks; r++)
    if (mpq_cmp_ui(f.around[r], 1, 1) < 0)
      return refute(c, "the weights of the bound's cuts around rank %d add up to less than 1", r);
  COPSE_DO(set_potentials(c, &f));
  add_up(c, &f, time);
  if (mpq_sgn(time) == 0) return refute(c, "nothing crosses the bound's cuts");
  mpq_inv(time, time);
  return COPSE_OK;
}

static copse_status check_bound(struct copse_verify_checker *c,
                                struct copse_verify_report *report) {
  const struct copse_bound *bound = &c->schedule->bound;
  bool allreduce = c->schedule->collective == COPSE_ALLREDUCE;
  bool phases = bound->kind == COPSE_BOUND_PHASES, forests = bound->kind == COPSE_BOUND_FORESTS;
  bool entering = !allreduce && copse_collective_reduces(c->schedule->collective);
  mpq_t *times; /* of the bound, and of a second cut */
  if ((phases || forests) && copse_schedule_doubles(c->schedule))
    return refute(c, "a bound of reduce and broadcast forests says nothing of stages");
  COPSE_DO(copse_verify_rationals(&c->scratch, 2, &times, c->err));
  if (c->schedule->collective == COPSE_ALLTOALL)
    COPSE_DO(copse_verify_flow_bound(c, times[0]));
  else if (forests)
    COPSE_DO(forests_time(c, times[0]));
  else
    COPSE_DO(cut_time(c, bound->cut, bound->n_cut, entering, allreduce && !phases, times[0]));
  if (forests && bound->n_cut > 0) /* says less, but must be a cut */
    COPSE_DO(cut_time(c, bound->cut, bound->n_cut, false, true, times[1]));
  if (phases) {
    COPSE_DO(cut_time(c, bound->reduce_cut, bound->n_reduce_cut, true, false, times[1]));
    mpq_add(times[0], times[0], times[1]);
  }
  COPSE_DO(copse_verify_get_q(times[0], c->label, &report->bound, c->err));
  bool equal = copse_q_eq(report->time_per_GB, report->bound);
  report->phases_optimal = equal && phases;
  report->forests_optimal = equal && forests;
  report->optimal = equal && !phases && !forests;
  return copse_verify_compare_bound(c->label, bound->time_per_GB, report->bound,
                                    report->time_per_GB, c->err);
}

static copse_status check(struct copse_verify_checker *c, struct copse_verify_report *report) {
  const struct copse_schedule *s = c->schedule;
  const struct copse_topology *t = c->topology;
  struct copse_arena *arena = &c->scratch.arena;
  bool flows = s->collective == COPSE_ALLTOALL;
  char sha256[COPSE_SHA256_HEX];
  COPSE_DO(COPSE_ARRAY(arena, (size_t)s->n_nodes, c->node_of, c->err));
  COPSE_DO(COPSE_ARRAY(arena, (size_t)t->n_links, c->last_tree, c->err));
  COPSE_DO(COPSE_ARRAY(arena, (size_t)s->n_ranks, c->reached, c->err));
  COPSE_DO(copse_topology_sha256(t, sha256, c->err));
  report->same_topology = strcmp(sha256, s->topology_sha256) == 0;
  COPSE_DO(check_ranks(c));
  COPSE_DO(check_switches(c));
  if (flows && s->n_rotations > 1) return refute(c, "an alltoall has at most one rotation");
  if (s->excepted && (flows || s->n_copying + s->n_adding > 0 || copse_schedule_doubles(s)))
    return refute(c, "changes are for trees without stages and without switches that copy or add");
  if (!s->excepted) COPSE_DO(make_symmetry(c));
  for (int i = 0; i < s->n_trees && !s->excepted; i++) COPSE_DO(check_tree(c, i));
  COPSE_DO(flows ? copse_verify_flows(c) : check_all_shares(c));
  COPSE_DO(spread(c, c->symmetry.links, t->n_links, c->loads));
  COPSE_DO(check_time(c, report));
  COPSE_DO(check_bound(c, report));
  if (s->routes) COPSE_DO(copse_verify_routes(c, report));
  return s->bound_at ? copse_verify_bound_at(c) : COPSE_OK;
}

static void release(struct copse_verify_checker *c) { copse_verify_scratch_free(&c->scratch); }

copse_status copse_verify_schedule_loads(const struct copse_schedule *schedule,
                                         const struct copse_topology *topology, const char *label,
                                         struct copse_verify_report *report, mpq_t *loads,
                                         struct copse_err *err) {
  COPSE_AT_END(release)
  struct copse_verify_checker c = {
      .schedule = schedule, .topology = topology, .label = label, .loads = loads, .err = err};
  *report = (struct copse_verify_report){0};
  return check(&c, report);
}

copse_status copse_verify_schedule(const struct copse_schedule *schedule,
                                   const struct copse_topology *topology, const char *label,
                                   struct copse_verify_report *report, struct copse_err *err) {
  COPSE_AT_END(copse_verify_scratch_free) struct copse_verify_scratch scratch = {0};
  mpq_t *loads;
  COPSE_DO(copse_verify_rationals(&scratch, topology->n_links, &loads, err));
  return copse_verify_schedule_loads(schedule, topology, label, report, loads, err);
}
