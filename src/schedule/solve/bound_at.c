/*
 * Bounds for every size (docs/theory.md, "Every size"): quickest flows from sets of ranks to others
 * (L. Ford, D. Fulkerson 1958; solver/network/quickest.h), what must come into every rank or part,
 * and an alltoall's lengths within the time in which a link can be of use. Which sets are asked for
 * is a heuristic; each answer is a proof.
 */
#include "schedule/solve/bound_at.h"

#include <stdlib.h>
#include <string.h>

#include "base/graph.h"
#include "base/memory.h"
#include "base/types.h"
#include "schedule/demand.h"
#include "schedule/solve/instance.h"
#include "schedule/solve/policy.h"
#include "solver/network/flow.h"

/* Networks in which messages flow from part to part, one behind the other: links leave a part's
 * node at that + n_nodes and come to it at itself, as relays outside are. */
struct volume {
  const int *part;         /* [n_nodes] index of a node's part; -1: in none */
  int n_parts, part_ranks; /* part_ranks: of the part that has the fewest */
  bool of_ranks, rounds;   /* of_ranks: every rank alone is a part */
  int64_t due;             /* what must flow, in parts of M */
  struct copse_quickest_link *links;
  int n_links, n_copies;
  struct copse_quickest *quickest;
  struct copse_quickest_end *from, *to;
  int n_from, n_to;
};

struct copse_bounds {
  const struct copse_topology *topology;
  copse_collective collective;
  int root;
  struct copse_q alpha_us;
  struct copse_timed_instance sides[2]; /* 1: turned around */
  int **levels, n_levels, n_by_hops;    /* [n_nodes] parts by name: hosts, boards, pods */
  struct copse_timed_nested nested[COPSE_BOUND_NESTED];
  int n_nested;
  struct volume volumes[2 + 4 * COPSE_BOUND_LEVELS]; /* levels of two kinds, each also in rounds */
  int n_volumes;
  int *asked, n_asked;         /* nodes of the ranks that stand for all */
  int64_t *demand, m;          /* alltoall; NULL: even */
  int64_t *length;             /* [n_links] alltoall: of the schedule's bound; NULL: none */
  struct copse_q length_time;  /* s/GB that they prove without latencies */
  struct copse_windows windows;
  struct copse_arena arena;
};

/* ---- what is the same for all sizes ---------------------------------------------------------- */

/* Whether what must leave ranks bounds it, not what must come. */
static bool sends_last(const struct copse_bounds *b) {
  return b->collective == COPSE_REDUCE || b->collective == COPSE_REDUCE_SCATTER;
}

/* Whether whole messages can be counted: every rank needs one of its own (of a reduction, sends
 * one), and no switch copies or adds. */
static bool counts_messages(const struct copse_bounds *b) {
  bool copies = false, adds = false;
  for (int v = 0; v < b->topology->n_nodes; v++) {
    copies = copies || b->topology->nodes[v].multicast;
    adds = adds || b->topology->nodes[v].aggregation;
  }
  bool reduces = sends_last(b), both = b->collective == COPSE_ALLREDUCE;
  return b->collective != COPSE_ALLTOALL && !(copies && !reduces) && !(adds && (reduces || both));
}

/* A network of a volume: what flows counts `times`, and parts send `later`. */
struct copy {
  int64_t times, later;
};

#define MAX_COPIES 5

/* Lists the copies (docs/theory.md, "Parts of many ranks" and "Rounds"); verify/flows.c has the
 * same order. */
static int list_copies(const struct copse_bounds *b, struct volume *v, struct copy *copies) {
  bool both = b->collective == COPSE_ALLREDUCE;
  int64_t k = v->n_parts, s = v->part_ranks, any, cross;
  int64_t late[3] = {1, both ? 2 * (s - 1) : s - 1, both ? (s - 1) * (s - 1) : 0};
  int64_t sent_on[2] = {v->rounds ? (k - 1) * s : 0, v->rounds ? (k - 1) * s * (s - 1) : 0};
  int n = 0;
  copse_timed_messages(&b->sides[b->collective == COPSE_REDUCE],
                       &b->sides[b->collective != COPSE_REDUCE], v->part, &any, &cross);
  if (cross < any) cross = any; /* it is of a rank that leaves, another enters */
  for (int i = 0; i < 3; i++)
    if (late[i] > 0) copies[n++] = (struct copy){late[i], i * any};
  for (int i = 0; i < 2; i++)
    if (sent_on[i] > 0) copies[n++] = (struct copy){sent_on[i], cross + i * any};
  v->due = (v->rounds ? k : both ? 2 : 1) * (k - 1) * s * (both ? s : 1);
  return n;
}

/* Adds a copy; *fits: the capacities do. */
static void add_copy(const struct copse_bounds *b, const int64_t *release, const struct copy *copy,
                     struct volume *v, bool *fits) {
  const struct copse_topology *t = b->topology;
  bool reversed = b->collective == COPSE_REDUCE;
  const int64_t *after = b->sides[!reversed].nearest;
  int n = t->n_nodes, shift = 2 * n * v->n_copies++;
  int root = b->root < 0 ? -1 : v->part[t->rank_nodes[b->root]];
  for (int e = 0; e < t->n_links; e++) {
    struct copse_quickest_link l = b->sides[reversed].links[e];
    int from = v->part[l.src];
    if (from >= 0 && from == v->part[l.dst]) continue;
    *fits = *fits && !copse_mul_overflows(l.capacity, copy->times, &l.capacity);
    l.src += shift + (from >= 0 ? n : 0);
    l.dst += shift;
    v->links[v->n_links++] = l;
  }
  for (int u = 0; u < n; u++) {
    if (v->part[u] < 0) continue;
    if (release[u] < COPSE_DELAY_MAX)
      v->from[v->n_from++] = (struct copse_quickest_end){shift + n + u, release[u] + copy->later};
    if (v->part[u] != root && after[u] < COPSE_DELAY_MAX)
      v->to[v->n_to++] = (struct copse_quickest_end){shift + u, after[u]};
  }
}

/* Finds parts of a level that have ranks (NULL: the ranks), named by their least node. */
static copse_status find_parts(struct copse_bounds *b, const int *level, struct volume *v,
                               struct copse_err *err) {
  const struct copse_topology *t = b->topology;
  int *part, *n_ranks;
  COPSE_DO(COPSE_ARRAYS(&b->arena, (size_t)t->n_nodes, int, err, &part, &n_ranks));
  for (int r = 0; r < t->n_ranks; r++)
    n_ranks[level ? level[t->rank_nodes[r]] : t->rank_nodes[r]]++;
  v->part_ranks = t->n_ranks;
  for (int u = 0; u < t->n_nodes; u++) {
    part[u] = level ? level[u] : n_ranks[u] > 0 ? u : -1;
    if (n_ranks[u] == 0) continue;
    v->n_parts++;
    v->part_ranks = copse_smaller(v->part_ranks, n_ranks[u]);
  }
  v->part = part;
  return COPSE_OK;
}

/* Makes the networks of the parts in v, of which nothing else is made. */
static copse_status make_volume(struct copse_bounds *b, struct volume v, const int64_t *release,
                                struct copse_err *err) {
  const struct copse_topology *t = b->topology;
  struct copy copies[MAX_COPIES];
  bool fits = true;
  if (v.n_parts < (v.rounds ? 3 : 2)) return COPSE_OK; /* of two, rounds say no more */
  int n = list_copies(b, &v, copies);
  size_t n_ends = (size_t)n * (size_t)t->n_nodes;
  COPSE_DO(COPSE_ARRAY(&b->arena, (size_t)n * (size_t)t->n_links, v.links, err));
  COPSE_DO(COPSE_ARRAYS(&b->arena, n_ends, struct copse_quickest_end, err, &v.from, &v.to));
  for (int i = 0; i < n; i++) add_copy(b, release, &copies[i], &v, &fits);
  if (!fits) return COPSE_OK;
  b->volumes[b->n_volumes] = v;
  return copse_quickest_new(2 * n * t->n_nodes, v.links, v.n_links,
                            &b->volumes[b->n_volumes++].quickest, err);
}

static copse_status make_volumes(struct copse_bounds *b, struct copse_err *err) {
  int64_t *release;
  if (b->collective != COPSE_ALLREDUCE && !copse_collective_rooted(b->collective)) return COPSE_OK;
  COPSE_DO(copse_timed_nearest(&b->sides[b->collective == COPSE_REDUCE], b->root, &release, err));
  for (int l = -1; l < b->n_levels - b->n_by_hops; l++) {
    struct volume v = {.of_ranks = l < 0};
    COPSE_DO(find_parts(b, l < 0 ? NULL : b->levels[l], &v, err));
    COPSE_DO(make_volume(b, v, release, err));
    v.rounds = b->collective == COPSE_ALLREDUCE;
    if (v.rounds) COPSE_DO(make_volume(b, v, release, err));
  }
  return COPSE_OK;
}

/* Lists what a part of a level, or the rest, may be asked for, with each level of parts in it. */
static copse_status list_nested_in(struct copse_bounds *b, int level, int name, bool rest,
                                   struct copse_err *err) {
  struct copse_timed_instance *side = &b->sides[sends_last(b)];
  const struct copse_timed_instance *turned = &b->sides[!sends_last(b)];
  for (int i = -1; i < b->n_levels; i++)
    for (int whole = 0; whole < 2; whole++) {
      struct copse_timed_nested n;
      bool fits;
      if (i == level || (i < 0 && !whole)) continue;
      COPSE_DO(copse_timed_nested(side, turned, b->levels[level], name, rest,
                                  i < 0 ? NULL : b->levels[i], whole,
                                  b->collective == COPSE_ALLREDUCE, &n, &fits, err));
      if (fits && b->n_nested < COPSE_BOUND_NESTED) b->nested[b->n_nested++] = n;
    }
  return COPSE_OK;
}

/* Lists parts with parts in them: those of ranks that are asked for, or with a root those of some
 * at even distances, and the rest beside the root's. */
static copse_status list_nested(struct copse_bounds *b, struct copse_err *err) {
  const struct copse_topology *t = b->topology;
  int most = b->root < 0 ? b->n_asked : COPSE_BOUND_NESTED_PARTS, *before;
  COPSE_DO(COPSE_ARRAY(&b->arena, (size_t)t->n_nodes, before, err));
  for (int l = b->n_levels - 1; l >= 0; l--)
    for (int i = 0; i < most; i++) {
      int at = b->root < 0 ? b->asked[i] : t->rank_nodes[(int64_t)i * t->n_ranks / most];
      int name = b->levels[l][at];
      if (before[name] == l + 1) continue;
      before[name] = l + 1;
      bool rest = b->root >= 0 && b->levels[l][t->rank_nodes[b->root]] == name;
      COPSE_DO(list_nested_in(b, l, name, rest, err));
    }
  return COPSE_OK;
}

/* Copies an alltoall's demand, and the lengths of its bound on the topology's links. */
static copse_status copy_schedule(struct copse_bounds *b, const struct copse_schedule *s,
                                  struct copse_err *err) {
  const struct copse_topology *t = b->topology;
  size_t n = (size_t)t->n_ranks;
  int64_t scale = 1;
  char sha256[COPSE_SHA256_HEX];
  if (s->demand) {
    COPSE_DO(COPSE_ARRAY(&b->arena, n * n, b->demand, err));
    memcpy(b->demand, s->demand, n * n * sizeof *b->demand);
    COPSE_DO(copse_demand_total(s->demand, t->n_ranks, &b->m, err));
  }
  COPSE_DO(copse_topology_sha256(t, sha256, err));
  if (s->bound.kind != COPSE_BOUND_LENGTHS || strcmp(sha256, s->topology_sha256) != 0)
    return COPSE_OK; /* only the bound of this very topology has the lengths */
  COPSE_DO(COPSE_ARRAY(&b->arena, (size_t)t->n_links, b->length, err));
  for (int i = 0; i < s->bound.n_lengths; i++)
    COPSE_DO(copse_lcm(scale, s->bound.lengths[i].length.den, &scale, err));
  for (int i = 0; i < s->bound.n_lengths; i++) {
    const struct copse_schedule_length *l = &s->bound.lengths[i];
    int src = copse_topology_find(t, s->nodes[l->src]),
        dst = copse_topology_find(t, s->nodes[l->dst]);
    int link = src < 0 || dst < 0 ? -1 : copse_topology_find_link(t, src, dst);
    if (link < 0) { /* of another topology */
      b->length = NULL;
      return COPSE_OK;
    }
    if (copse_mul_overflows(l->length.num, scale / l->length.den, &b->length[link]))
      return copse_fail(err, COPSE_OVERFLOW, "the lengths need more than 63 bits");
  }
  b->length_time = s->bound.time_per_GB;
  return COPSE_OK;
}

static copse_status make(struct copse_bounds *b, const struct copse_schedule *schedule,
                         struct copse_err *err) {
  for (int i = 0; i < 2; i++)
    COPSE_DO(copse_timed_instance_make(b->topology, b->alpha_us, i == 1, &b->sides[i], err));
  COPSE_DO(copse_timed_parts(&b->sides[0], COPSE_BOUND_LEVELS, &b->levels, &b->n_levels,
                             &b->n_by_hops, err));
  COPSE_DO(copse_timed_asked(&b->sides[0], &b->asked, &b->n_asked, err));
  if (counts_messages(b)) {
    COPSE_DO(make_volumes(b, err));
    COPSE_DO(list_nested(b, err));
  }
  if (schedule && b->collective == COPSE_ALLTOALL) COPSE_DO(copy_schedule(b, schedule, err));
  if (b->length)
    COPSE_DO(copse_windows_make(&b->sides[0], &b->sides[1], b->length, &b->windows, err));
  return COPSE_OK;
}

copse_status copse_bounds_new(const struct copse_topology *topology, copse_collective collective,
                              int root, struct copse_q alpha_us,
                              const struct copse_schedule *schedule, struct copse_bounds **out,
                              struct copse_err *err) {
  *out = NULL;
  COPSE_AT_END(copse_bounds_free_at) struct copse_bounds *b = NULL;
  COPSE_DO(copse_calloc(1, sizeof *b, &b, err));
  b->topology = topology;
  b->collective = collective;
  b->root = root;
  b->alpha_us = alpha_us;
  COPSE_DO(make(b, schedule, err));
  *out = b;
  b = NULL;
  return COPSE_OK;
}

void copse_bounds_free(struct copse_bounds *b) {
  if (!b) return;
  for (int i = 0; i < b->n_volumes; i++) copse_quickest_free(b->volumes[i].quickest);
  for (int i = 0; i < 2; i++) copse_timed_instance_free(&b->sides[i]);
  copse_arena_free(&b->arena);
  free(b);
}

/* ---- one size -------------------------------------------------------------------------------- */

struct asking {
  struct copse_bounds *b;
  const struct volume *volume; /* of the best */
  const struct copse_timed_nested *nested;
  int64_t bytes;
  struct copse_q time;                  /* of the best so far, in units of delay */
  struct copse_q *times, *fresh; /* [2 MAX_COPIES n_nodes] of the best and of the run at hand */
  struct copse_bound_at best;           /* its kind and what it is about */
  struct copse_quickest_end *from, *to; /* [n_ranks] of the run at hand */
  int n_from, n_to;
  int64_t *distance;    /* [2 n_ranks] scratch */
  struct copse_q floor; /* what an answer must exceed */
  bool *sends;          /* [n_ranks] the senders of the last one that did */
  struct copse_arena arena;
  struct copse_err *err;
};

/* Keeps what a run found as the best. */
static void keep(struct asking *a, struct copse_q time, struct copse_bound_at about) {
  struct copse_q *times = a->times;
  a->times = a->fresh;
  a->fresh = times;
  a->time = a->floor = time;
  a->best = about;
}

/* Computes `count` / `of` of M in units of capacity and delay. */
static copse_status get_amount(const struct asking *a, int64_t count, int64_t of,
                               struct copse_q *out, struct copse_err *err) {
  struct copse_q part;
  COPSE_DO(copse_q_make(a->bytes, 1000, out, err));
  COPSE_DO(copse_q_make(count, of, &part, err));
  COPSE_DO(copse_q_mul(*out, part, out, err));
  COPSE_DO(copse_q_mul(*out, (struct copse_q){a->b->sides[0].instance.scale, 1}, out, err));
  return copse_q_mul(*out, (struct copse_q){a->b->sides[0].delay_scale, 1}, out, err);
}

/* Asks for count / of M from the ranks of `from` to those of `to`; left out beyond 64 bits. */
static copse_status ask(struct asking *a, bool reversed, int rank, int64_t count, int64_t of) {
  struct copse_bound_at about = {.kind = COPSE_BOUND_AT_CUT, .reversed = reversed, .rank = rank};
  struct copse_quickest_question question = {a->from, a->to, a->n_from, a->n_to,
                                             .give_up = &a->floor};
  struct copse_q time;
  if (count == 0) return COPSE_OK;
  copse_status status = get_amount(a, count, of, &question.amount, NULL);
  if (status == COPSE_OK)
    status = copse_quickest_run(a->b->sides[reversed].quickest, &question, &time, a->fresh, NULL);
  if (status == COPSE_OVERFLOW) return COPSE_OK;
  if (status == COPSE_INFEASIBLE)
    return copse_fail(a->err, status, "rank %d and another can't reach each other", rank);
  if (status != COPSE_OK || time.num == 0) return status;
  a->floor = time;
  for (int r = 0; r < a->b->topology->n_ranks; r++) a->sends[r] = false;
  for (int i = 0; i < a->n_from; i++) a->sends[a->b->topology->nodes[a->from[i].node].rank] = true;
  if (copse_q_cmp(time, a->time) > 0) keep(a, time, about);
  return COPSE_OK;
}

/* Returns what a rank has for the one node in `to`: M / N, or its part of the demand. */
static int64_t sender_count(const struct asking *a, bool reversed, int rank) {
  const struct copse_topology *t = a->b->topology;
  int64_t sink = t->nodes[a->to[0].node].rank, n = t->n_ranks;
  if (rank == sink) return 0;
  if (!a->b->demand) return 1;
  return a->b->demand[reversed ? sink * n + rank : rank * n + sink];
}

/* Asks for what must come from the senders in `from` to the one node in `to`. */
static copse_status ask_gather(struct asking *a, bool reversed) {
  const struct copse_topology *t = a->b->topology;
  int64_t count = 0;
  for (int i = 0; i < a->n_from; i++)
    count += sender_count(a, reversed, t->nodes[a->from[i].node].rank);
  return ask(a, reversed, t->nodes[a->to[0].node].rank, count, a->b->demand ? a->b->m : t->n_ranks);
}

COPSE_ORDER(compare_distances, int64_t, COPSE_COMPARE(*a, *b))

/* Finds ranks' distances to a node (with `reversed`, from it), -1 where there is no way. */
static void find_distances(struct asking *a, bool reversed, int node, int64_t *distance) {
  const struct copse_topology *t = a->b->topology;
  struct copse_shortest *shortest = &a->b->sides[!reversed].shortest;
  copse_shortest_run(shortest, node, a->b->sides[0].delay, NULL);
  for (int r = 0; r < t->n_ranks; r++)
    distance[r] = copse_shortest_length(shortest, t->rank_nodes[r]);
}

/* Asks for senders at least so far away, from the furthest inwards. */
static copse_status ask_balls(struct asking *a, bool reversed) {
  const struct copse_topology *t = a->b->topology;
  int64_t *distance = a->distance, *sorted = distance + t->n_ranks;
  int n = 0;
  find_distances(a, reversed, a->to[0].node, distance);
  memcpy(sorted, distance, (size_t)t->n_ranks * sizeof *sorted);
  COPSE_SORT(sorted, t->n_ranks, compare_distances);
  for (int i = 0; i < t->n_ranks; i++)
    if (i == 0 || sorted[i] != sorted[n - 1]) sorted[n++] = sorted[i];
  int balls = n < COPSE_BOUND_BALLS ? n : COPSE_BOUND_BALLS;
  for (int i = 0; i < balls; i++) {
    int64_t from = sorted[n - 1 - (int64_t)i * n / balls];
    a->n_from = 0;
    for (int r = 0; r < t->n_ranks; r++)
      if (t->rank_nodes[r] != a->to[0].node && distance[r] >= from)
        a->from[a->n_from++] = (struct copse_quickest_end){t->rank_nodes[r], 0};
    COPSE_DO(ask_gather(a, reversed));
  }
  return COPSE_OK;
}

__extension__ typedef __int128 wide;

/* Returns what can go through in parts of `unit`, at most `most` of them, in 50 bits of which
 * `most` takes all. */
static int64_t in_parts(wide amount, wide unit, int64_t most, int shift) {
  if (amount <= 0) return 0;
  if (amount / unit >= most) return most << shift;
  return (int64_t)((amount << shift) / unit);
}

/*
 * Finds senders that can't deliver all of their data in the time of the best bound so far; they
 * become `from`. A link carries what it can between the earliest time at which data reach it and
 * the latest at which they are still of use. A minimum cut of these amounts names the senders.
 * *found: there are such.
 */
static copse_status find_short(struct asking *a, bool reversed, bool *found) {
  struct copse_bounds *b = a->b;
  const struct copse_timed_instance *side = &b->sides[reversed];
  const struct copse_topology *t = b->topology;
  int sink = a->to[0].node, n = t->n_nodes, shift = 0;
  struct copse_q one;
  COPSE_AT_END(copse_flow_free_at) struct copse_flow *flow = NULL;
  int64_t total = 0;
  *found = false;
  copse_shortest_run(&b->sides[!reversed].shortest, sink, b->sides[0].delay, NULL);
  COPSE_DO(get_amount(a, 1, b->demand ? b->m : t->n_ranks, &one, a->err));
  for (int r = 0; r < t->n_ranks; r++) total += sender_count(a, reversed, r);
  if (total == 0) return COPSE_OK;
  while (total << (shift + 1) < (int64_t)1 << 50) shift++;
  COPSE_DO(copse_flow_new(n + 1, &flow, a->err));
  for (int r = 0; r < t->n_ranks; r++)
    if (sender_count(a, reversed, r) > 0)
      COPSE_DO(copse_flow_change(flow, n, t->rank_nodes[r], sender_count(a, reversed, r) << shift,
                                 a->err));
  for (int e = 0; e < t->n_links; e++) {
    const struct copse_quickest_link *l = &side->links[e];
    int64_t left = copse_shortest_length(&b->sides[!reversed].shortest, l->dst),
            opens = side->nearest[l->src];
    wide open = a->floor.num - (wide)(opens + l->delay + left) * a->floor.den, room;
    if (left < 0 || opens == INT64_MAX || open <= 0 ||
        __builtin_mul_overflow(open * l->capacity, (wide)one.den, &room))
      continue;
    COPSE_DO(copse_flow_change(flow, l->src, l->dst,
                               in_parts(room, (wide)a->floor.den * one.num, total, shift), a->err));
  }
  if (copse_flow_max(flow, n, sink, total << shift) == total << shift) return COPSE_OK;
  a->n_from = 0;
  for (int r = 0; r < t->n_ranks; r++)
    if (t->rank_nodes[r] != sink && copse_flow_on_source_side(flow, t->rank_nodes[r]))
      a->from[a->n_from++] = (struct copse_quickest_end){t->rank_nodes[r], 0};
  *found = a->n_from > 0;
  return COPSE_OK;
}

/* Tries the best senders so far with one more or one less, as long as that is better. */
static copse_status polish(struct asking *a, bool reversed) {
  const struct copse_topology *t = a->b->topology;
  for (int i = 0, since = 0; since < t->n_ranks; i = (i + 1) % t->n_ranks, since++) {
    struct copse_q before = a->floor;
    a->n_from = 0;
    for (int r = 0; r < t->n_ranks; r++)
      if (t->rank_nodes[r] != a->to[0].node && (r == i ? !a->sends[r] : a->sends[r]))
        a->from[a->n_from++] = (struct copse_quickest_end){t->rank_nodes[r], 0};
    if (a->n_from > 0) COPSE_DO(ask_gather(a, reversed));
    if (!copse_q_eq(before, a->floor)) since = 0;
  }
  return COPSE_OK;
}

/*
 * Asks how long the data of other ranks for this one take: of all senders together, then of senders
 * that are far, then of senders that are short of time (find_short). With few ranks the best set
 * for each rank is looked for, with more only sets that improve on the bound so far.
 */
static copse_status ask_sink(struct asking *a, bool reversed, int node) {
  const struct copse_topology *t = a->b->topology;
  bool few = t->n_ranks <= COPSE_BOUND_ALL_RANKS;
  if (few) a->floor = COPSE_Q_ZERO;
  a->to[0] = (struct copse_quickest_end){node, 0};
  a->n_from = 0;
  a->n_to = 1;
  for (int r = 0; r < t->n_ranks; r++)
    if (t->rank_nodes[r] != node)
      a->from[a->n_from++] = (struct copse_quickest_end){t->rank_nodes[r], 0};
  COPSE_DO(ask_gather(a, reversed));
  COPSE_DO(ask_balls(a, reversed));
  for (int i = 0; i < COPSE_BOUND_STEPS; i++) {
    struct copse_q before = a->floor;
    bool found;
    COPSE_DO(find_short(a, reversed, &found));
    if (found) COPSE_DO(ask_gather(a, reversed));
    if (copse_q_eq(before, a->floor)) break;
  }
  if (few) COPSE_DO(polish(a, reversed));
  a->floor = a->time;
  return COPSE_OK;
}

struct partner {
  int node;
  int64_t distance, width; /* from the one asked for; of links */
};

COPSE_ORDER(farther, struct partner, COPSE_DOWN(distance) ?: COPSE_UP(width) ?: COPSE_UP(node))

COPSE_ORDER(narrower, struct partner, COPSE_UP(width) ?: COPSE_DOWN(distance) ?: COPSE_UP(node))

/* Asks for all of M from one rank to each of the others: to those that are far, and to those that
 * little leads to. */
static copse_status ask_source(struct asking *a, bool reversed, int node, int most) {
  const struct copse_topology *t = a->b->topology;
  const struct copse_timed_instance *side = &a->b->sides[reversed];
  struct partner *partners;
  int64_t *distance, *width;
  int n = 0;
  COPSE_DO(COPSE_ARRAY(&a->arena, (size_t)t->n_ranks, partners, a->err));
  COPSE_DO(COPSE_ARRAY(&a->arena, (size_t)t->n_ranks, distance, a->err));
  COPSE_DO(COPSE_ARRAY(&a->arena, (size_t)t->n_nodes, width, a->err));
  find_distances(a, !reversed, node, distance);
  for (int e = 0; e < t->n_links; e++)
    if (copse_add_overflows(width[side->links[e].dst], side->links[e].capacity,
                            &width[side->links[e].dst]))
      width[side->links[e].dst] = INT64_MAX;
  for (int r = 0; r < t->n_ranks; r++)
    if (t->rank_nodes[r] != node)
      partners[n++] = (struct partner){t->rank_nodes[r], distance[r], width[t->rank_nodes[r]]};
  a->from[0] = (struct copse_quickest_end){node, 0};
  a->n_from = a->n_to = 1;
  COPSE_SORT(partners, n, narrower);
  for (int way = 0; way < 2; way++) {
    for (int i = 0; i < n && i < most; i++) {
      a->to[0] = (struct copse_quickest_end){partners[i].node, 0};
      COPSE_DO(ask(a, reversed, t->nodes[partners[i].node].rank, 1, 1));
    }
    if (n <= most) return COPSE_OK;
    COPSE_SORT(partners, n, farther);
  }
  return COPSE_OK;
}

/* Asks for what goes from the ranks outside of a part into it, all pairs' of an alltoall. */
static copse_status ask_part(struct asking *a, bool reversed, const int *part, int name) {
  const struct copse_topology *t = a->b->topology;
  int n = t->n_ranks;
  a->n_from = a->n_to = 0;
  for (int r = 0; r < n; r++) {
    struct copse_quickest_end end = {t->rank_nodes[r], 0};
    if (part[end.node] == name)
      a->to[a->n_to++] = end;
    else
      a->from[a->n_from++] = end;
  }
  int64_t count = (int64_t)a->n_from * a->n_to, of = n;
  if (a->b->demand) {
    count = 0;
    of = a->b->m;
    for (int i = 0; i < a->n_from; i++)
      for (int j = 0; j < a->n_to; j++) {
        int src = t->nodes[a->from[i].node].rank, dst = t->nodes[a->to[j].node].rank;
        count += a->b->demand[reversed ? dst * n + src : src * n + dst];
      }
  }
  return ask(a, reversed, -1, count, of);
}

/* Asks for the parts of ranks that are asked for, each once. */
static copse_status ask_parts(struct asking *a, bool reversed) {
  const struct copse_bounds *b = a->b;
  for (int l = 0; l < b->n_levels; l++)
    for (int i = 0; i < b->n_asked; i++) {
      int name = b->levels[l][b->asked[i]];
      bool before = false;
      for (int j = 0; j < i && !before; j++) before = b->levels[l][b->asked[j]] == name;
      if (!before) COPSE_DO(ask_part(a, reversed, b->levels[l], name));
    }
  return COPSE_OK;
}

/* Asks for what must come into parts. */
static copse_status ask_volume(struct asking *a, const struct volume *v) {
  struct copse_bound_at about = {.kind = v->rounds ? COPSE_BOUND_AT_ROUNDS : COPSE_BOUND_AT_VOLUME,
                                 .reversed = a->b->collective == COPSE_REDUCE,
                                 .part_ranks = v->part_ranks,
                                 .rank = -1};
  struct copse_quickest_question question = {v->from, v->to, v->n_from, v->n_to,
                                             .give_up = &a->time};
  struct copse_q time;
  copse_status status = get_amount(a, v->due, 1, &question.amount, NULL);
  if (status == COPSE_OK)
    status = copse_quickest_run(v->quickest, &question, &time, a->fresh, NULL);
  if (status != COPSE_OK || time.num == 0) return status == COPSE_NOMEM ? status : COPSE_OK;
  keep(a, time, about);
  a->volume = v;
  return COPSE_OK;
}

/* Asks how long what must come into a part takes beside what can come otherwise, and adds the time
 * that parts in it take. */
static copse_status ask_nested(struct asking *a, const struct copse_timed_nested *n) {
  const struct copse_bounds *b = a->b;
  const struct copse_topology *t = b->topology;
  bool reversed = sends_last(b), both = b->collective == COPSE_ALLREDUCE;
  bool shares = b->root < 0 && !both;
  const struct copse_bound_at about = {
      .kind = COPSE_BOUND_AT_NESTED, .reversed = reversed, .part_ranks = n->part_ranks, .rank = -1};
  struct copse_q time, later = {n->later, 1}, before = COPSE_Q_ZERO;
  a->n_from = a->n_to = 0;
  for (int v = 0; v < t->n_nodes; v++) {
    int64_t after = b->sides[!reversed].nearest[v], opens = b->sides[reversed].nearest[v];
    bool is_rank = t->nodes[v].rank >= 0,
         sends = b->root < 0 ? is_rank : t->nodes[v].rank == b->root;
    if (n->inside[v] && after < COPSE_DELAY_MAX)
      a->to[a->n_to++] = (struct copse_quickest_end){v, after};
    if (!n->inside[v] && (both ? opens < COPSE_DELAY_MAX : sends))
      a->from[a->n_from++] = (struct copse_quickest_end){v, both ? opens : 0};
  }
  struct copse_quickest_question question = {a->from, a->to, a->n_from, a->n_to,
                                             .give_up = &before};
  copse_status status =
      get_amount(a, shares ? a->n_from : 1, shares ? t->n_ranks : 1, &question.amount, NULL);
  if (status == COPSE_OK)
    status = copse_q_sub(question.amount, n->otherwise, &question.amount, NULL);
  if (status == COPSE_OK && copse_q_cmp(a->time, later) > 0)
    status = copse_q_sub(a->time, later, &before, NULL);
  if (status != COPSE_OK || question.amount.num <= 0) return COPSE_OK;
  status = copse_quickest_run(b->sides[reversed].quickest, &question, &time, a->fresh, NULL);
  if (status == COPSE_NOMEM) return status;
  if (status != COPSE_OK || time.num == 0 || copse_q_add(time, later, &time, NULL) != COPSE_OK)
    return COPSE_OK;
  keep(a, time, about);
  a->nested = n;
  return COPSE_OK;
}

static copse_status ask_lengths(struct asking *a) {
  struct copse_bounds *b = a->b;
  struct copse_bound_at about = {.kind = COPSE_BOUND_AT_LENGTHS, .rank = -1};
  struct copse_q time;
  if (b->windows.sum == 0) return COPSE_OK;
  copse_status status = copse_q_mul(b->length_time, (struct copse_q){a->bytes, 1}, &time, NULL);
  if (status == COPSE_OK)
    status = copse_q_mul(time, (struct copse_q){b->sides[0].delay_scale, 1000}, &time, NULL);
  if (status == COPSE_OK) status = copse_windows_fill(&b->windows, time, &time);
  if (status == COPSE_OK && copse_q_cmp(time, a->time) > 0) keep(a, time, about);
  return COPSE_OK;
}

static copse_status ask_all(struct asking *a) {
  struct copse_bounds *b = a->b;
  copse_collective c = b->collective;
  for (int i = 0; i < b->n_volumes; i++) COPSE_DO(ask_volume(a, &b->volumes[i]));
  COPSE_DO(ask_lengths(a));
  bool out = c == COPSE_ALLTOALL || c == COPSE_REDUCE_SCATTER,
       in = c == COPSE_ALLTOALL || c == COPSE_ALLGATHER;
  if (copse_collective_rooted(c))
    return ask_source(a, c == COPSE_REDUCE, b->topology->rank_nodes[b->root], COPSE_BOUND_PARTNERS);
  for (int i = 0; i < b->n_asked; i++) {
    if (in) COPSE_DO(ask_sink(a, false, b->asked[i]));
    if (out) COPSE_DO(ask_sink(a, true, b->asked[i]));
    if (c != COPSE_ALLREDUCE) continue;
    int most = 1 + COPSE_BOUND_PARTNERS / b->n_asked;
    COPSE_DO(ask_source(a, false, b->asked[i], most));
    COPSE_DO(ask_source(a, true, b->asked[i], most));
  }
  if (c == COPSE_ALLTOALL) {
    COPSE_DO(ask_parts(a, false));
    COPSE_DO(ask_parts(a, true));
  }
  return COPSE_OK;
}

/* ---- the best bound -------------------------------------------------------------------------- */

/* Writes parts with more than a rank; none where every rank is one. */
static copse_status write_parts(const struct asking *a, const int *part, struct copse_arena *arena,
                                struct copse_bound_at *out) {
  int n = a->b->topology->n_nodes, *place, *nodes;
  struct copse_schedule_part *parts;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)n, parts, a->err));
  COPSE_DO(COPSE_ARRAY(arena, (size_t)n, place, a->err));
  COPSE_DO(COPSE_ARRAY(arena, (size_t)n, nodes, a->err));
  for (int u = 0; u < n; u++) {
    if (part[u] == u) place[u] = out->n_parts++;
    if (part[u] >= 0) parts[place[part[u]]].n_nodes++;
  }
  for (int i = 0, *next = nodes; i < out->n_parts; next += parts[i++].n_nodes) {
    parts[i].nodes = next;
    int *at = next;
    for (int u = 0; u < n; u++)
      if (part[u] >= 0 && place[part[u]] == i) *at++ = u;
  }
  out->parts = parts;
  return COPSE_OK;
}

struct timed {
  struct copse_q time;
  int node;
};

COPSE_ORDER(by_time, struct timed, copse_q_cmp(a->time, b->time) ?: COPSE_UP(node))

/* Writes nodes by their times in us, those before the end; the times stand from `first` on. */
static copse_status write_times(const struct asking *a, int first, struct copse_arena *arena,
                                struct copse_schedule_times *out) {
  int n_nodes = a->b->topology->n_nodes, n = 0, *nodes;
  const struct copse_q *at = a->times + first;
  struct timed *sorted;
  struct copse_schedule_part *times;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)n_nodes, sorted, a->err));
  COPSE_DO(COPSE_ARRAY(arena, (size_t)n_nodes, times, a->err));
  COPSE_DO(COPSE_ARRAY(arena, (size_t)n_nodes, nodes, a->err));
  for (int v = 0; v < n_nodes; v++)
    if (a->best.kind == COPSE_BOUND_AT_NESTED
            ? !a->nested->inside[v]
            : !copse_q_eq(at[v], a->time) &&
                  !(a->best.kind != COPSE_BOUND_AT_CUT && a->volume->part[v] >= 0))
      sorted[n++] = (struct timed){at[v], v};
  COPSE_SORT(sorted, n, by_time);
  for (int i = 0; i < n; i++) {
    struct copse_schedule_part *part = &times[out->n - 1];
    if (i == 0 || !copse_q_eq(sorted[i].time, sorted[i - 1].time)) {
      part = &times[out->n++];
      part->nodes = &nodes[i];
      COPSE_DO(copse_q_div(sorted[i].time, (struct copse_q){a->b->sides[0].delay_scale, 1},
                           &part->us, a->err));
    }
    nodes[i] = sorted[i].node;
    part->n_nodes++;
  }
  out->parts = times;
  return COPSE_OK;
}

static copse_status write_copies(const struct asking *a, struct copse_arena *arena,
                                 struct copse_bound_at *out) {
  struct copse_schedule_times *later;
  int n = a->volume->n_copies - 1;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)n, later, a->err));
  for (int i = 0; i < n; i++)
    COPSE_DO(write_times(a, 2 * (i + 1) * a->b->topology->n_nodes, arena, &later[i]));
  out->later = later;
  out->n_later = n;
  return COPSE_OK;
}

static void end_asking(struct asking *a) { copse_arena_free(&a->arena); }

copse_status copse_bounds_at(struct copse_bounds *b, int64_t bytes, struct copse_arena *arena,
                             struct copse_bound_at *out, struct copse_err *err) {
  COPSE_AT_END(end_asking)
  struct asking a = {
      .b = b, .bytes = bytes, .time = COPSE_Q_ZERO, .floor = COPSE_Q_ZERO, .err = err};
  size_t n_nodes = (size_t)b->topology->n_nodes, n_ranks = (size_t)b->topology->n_ranks;
  *out = (struct copse_bound_at){
      .bytes = bytes, .alpha_us = b->alpha_us, .us = COPSE_Q_ZERO, .rank = -1};
  if (n_ranks == 1 || bytes == 0) return COPSE_OK;
  COPSE_DO(
      COPSE_ARRAYS(&a.arena, 2 * MAX_COPIES * n_nodes, struct copse_q, err, &a.times, &a.fresh));
  COPSE_DO(COPSE_ARRAYS(&a.arena, n_nodes, struct copse_quickest_end, err, &a.from, &a.to));
  COPSE_DO(COPSE_ARRAY(&a.arena, n_ranks, a.sends, err));
  COPSE_DO(COPSE_ARRAY(&a.arena, 2 * n_ranks, a.distance, err));
  COPSE_DO(ask_all(&a)); /* the better the first bounds, the fewer sets of senders are tried */
  for (int i = 0; i < b->n_nested; i++) COPSE_DO(ask_nested(&a, &b->nested[i]));
  if (a.time.num == 0) return copse_fail(err, COPSE_OVERFLOW, "no bound fits into 64 bits");
  out->kind = a.best.kind;
  out->reversed = a.best.reversed;
  out->rank = a.best.rank;
  COPSE_DO(copse_q_div(a.time, (struct copse_q){b->sides[0].delay_scale, 1}, &out->us, err));
  if (out->kind == COPSE_BOUND_AT_LENGTHS) return COPSE_OK;
  bool nested = out->kind == COPSE_BOUND_AT_NESTED;
  if (out->kind != COPSE_BOUND_AT_CUT) {
    out->part_ranks = a.best.part_ranks;
    if (nested ? !a.nested->of_ranks : !a.volume->of_ranks)
      COPSE_DO(write_parts(&a, nested ? a.nested->part : a.volume->part, arena, out));
    if (!nested) COPSE_DO(write_copies(&a, arena, out));
  }
  return write_times(&a, 0, arena, &out->times);
}

copse_status copse_bound_at(const struct copse_topology *topology, copse_collective collective,
                            int root, int64_t bytes, struct copse_q alpha_us,
                            struct copse_arena *arena, struct copse_bound_at *out,
                            struct copse_err *err) {
  COPSE_AT_END(copse_bounds_free_at) struct copse_bounds *bounds = NULL;
  COPSE_DO(copse_bounds_new(topology, collective, root, alpha_us, NULL, &bounds, err));
  return copse_bounds_at(bounds, bytes, arena, out, err);
}
