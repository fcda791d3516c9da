/*
 * Ford and Fulkerson's maximal flows over time ("Constructing maximal dynamic flows from static
 * flows", Operations Research 6, 1958): a minimum-cost flow by the primal-dual method, which
 * augments along all shortest paths of one length at once.
 *
 *     length    what is added        least time, for amount D
 *       c1         F1                 (D + F1 c1) / F1
 *       c2         F2                 (D + F1 c1 + F2 c2) / (F1 + F2)      falls, until the next
 *       ...                                                                length is no less than
 * it
 *
 * Lengths never fall (Busacker and Gowen 1961), so these are the breakpoints of what can flow as a
 * function of time. Shortest paths by Dijkstra on lengths reduced by the distances before (Edmonds
 * and Karp 1972; Tomizawa 1971); flows along them by Dinic's levels.
 */
#include "solver/network/quickest.h"

#include <stdlib.h>
#include <string.h>

#include "base/graph.h"
#include "base/memory.h"
#include "solver/network/flow.h"

/* Arc 2i is link i with what it can still carry, arc 2i + 1 goes back along its flow. */
struct copse_quickest {
  int n_nodes, n_links;
  const struct copse_quickest_link *links;
  struct copse_adjacency leaving; /* arcs by where they start */
  int *tail;                      /* [2 n_links] where an arc starts */
  int64_t *residual;              /* [2 n_links] */
  int64_t *potential;             /* [n_nodes] distance from the sources, at most the sinks' */
  struct copse_nearest nearest;   /* by reduced distance, of the run at hand */
  int64_t *release, *due;         /* [n_nodes] delays of sources and sinks, -1: none */
  int *level, *current;           /* [n_nodes] of the search at hand */
  struct copse_queue queue;       /* [n_nodes] */
  int *path;                      /* [n_nodes] arcs */
  int64_t length;                 /* of the shortest way to a sink, beyond COPSE_DELAY_MAX: none */
  struct copse_arena arena;
};

copse_status copse_quickest_new(int n_nodes, const struct copse_quickest_link *links, int n_links,
                                struct copse_quickest **out, struct copse_err *err) {
  size_t n = (size_t)n_nodes, m = 2 * (size_t)n_links;
  *out = NULL;
  COPSE_DO(copse_calloc(1, sizeof **out, out, err));
  struct copse_quickest *q = *out;
  struct copse_arena *arena = &q->arena;
  q->n_nodes = n_nodes;
  q->n_links = n_links;
  q->links = links;
  COPSE_DO(COPSE_ARRAY(arena, m, q->tail, err));
  COPSE_DO(COPSE_ARRAY(arena, m, q->residual, err));
  COPSE_DO(COPSE_ARRAYS(arena, n, int64_t, err, &q->potential, &q->release, &q->due));
  COPSE_DO(COPSE_ARRAYS(arena, n, int, err, &q->level, &q->current, &q->queue.items, &q->path));
  COPSE_DO(copse_nearest_prepare(arena, n_nodes, &q->nearest, err));
  for (int i = 0; i < n_links; i++) {
    q->tail[2 * i] = links[i].src;
    q->tail[2 * i + 1] = links[i].dst;
  }
  return copse_adjacency_by(arena, n_nodes, 2 * n_links, q->tail, sizeof(int), &q->leaving, err);
}

void copse_quickest_free(struct copse_quickest *q) {
  if (!q) return;
  copse_arena_free(&q->arena);
  free(q);
}

static int head(const struct copse_quickest *q, int arc) { return q->tail[arc ^ 1]; }

static int64_t reduced(const struct copse_quickest *q, int arc) {
  int64_t delay = q->links[arc / 2].delay;
  return (arc & 1 ? -delay : delay) + q->potential[q->tail[arc]] - q->potential[head(q, arc)];
}

/* ---- shortest ways -------------------------------------------------------------------- */

/* Runs Dijkstra's algorithm from what has been offered, until nothing nearer than the sinks is
 * left. */
static int64_t settle(struct copse_quickest *q, bool until_sinks) {
  int64_t sinks = INT64_MAX;
  struct copse_nearest *nearest = &q->nearest;
  while (nearest->n > 0 && nearest->distance[nearest->heap[0]] < sinks) {
    int v = copse_nearest_take(nearest);
    if (until_sinks && q->due[v] >= 0) {
      int64_t by_here = nearest->distance[v] + q->potential[v] + q->due[v] - q->length;
      if (by_here < sinks) sinks = by_here;
    }
    for (int i = q->leaving.first[v]; i < q->leaving.first[v + 1]; i++) {
      int arc = q->leaving.item[i];
      if (q->residual[arc] > 0)
        copse_nearest_offer(nearest, head(q, arc), nearest->distance[v] + reduced(q, arc));
    }
  }
  return sinks;
}

/* Makes potentials the distances from the sources, of nodes further than the sinks the sinks' (so
 * arcs with a residual keep a length that is not negative), and of what can't be reached more than
 * COPSE_DELAY_MAX. false: no sink can be. */
static bool find_distances(struct copse_quickest *q) {
  copse_nearest_reset(&q->nearest);
  for (int v = 0; v < q->n_nodes; v++)
    if (q->release[v] >= 0) copse_nearest_offer(&q->nearest, v, q->release[v] - q->potential[v]);
  int64_t sinks = settle(q, true), most = sinks < INT64_MAX ? sinks : COPSE_DELAY_MAX;
  for (int v = 0; v < q->n_nodes; v++)
    q->potential[v] += copse_smaller(q->nearest.distance[v], most);
  q->length += most;
  return sinks < INT64_MAX;
}

/* ---- flows along shortest ways -------------------------------------------------------- */

static bool is_tight(const struct copse_quickest *q, int arc) {
  return q->residual[arc] > 0 && reduced(q, arc) == 0;
}

static bool ends_at(const struct copse_quickest *q, int node) {
  return q->due[node] >= 0 && q->potential[node] + q->due[node] == q->length;
}

/* Finds levels from the sources; whether a sink has one. */
static bool find_levels(struct copse_quickest *q) {
  bool found = false;
  copse_queue_reset(&q->queue);
  for (int v = 0; v < q->n_nodes; v++) {
    q->level[v] = q->release[v] >= 0 && q->release[v] == q->potential[v] ? 0 : -1;
    q->current[v] = q->leaving.first[v];
    if (q->level[v] == 0) copse_queue_push(&q->queue, v);
  }
  while (!copse_queue_is_empty(&q->queue)) {
    int v = copse_queue_pop(&q->queue);
    if (ends_at(q, v)) {
      found = true;
      continue;
    }
    for (int i = q->leaving.first[v]; i < q->leaving.first[v + 1]; i++) {
      int arc = q->leaving.item[i], to = head(q, arc);
      if (q->level[to] >= 0 || !is_tight(q, arc)) continue;
      q->level[to] = q->level[v] + 1;
      copse_queue_push(&q->queue, to);
    }
  }
  return found;
}

/* Returns the next arc of a node that leads one level down, or -1. */
static int next_arc(struct copse_quickest *q, int node) {
  for (; q->current[node] < q->leaving.first[node + 1]; q->current[node]++) {
    int arc = q->leaving.item[q->current[node]];
    if (q->level[head(q, arc)] == q->level[node] + 1 && is_tight(q, arc)) return arc;
  }
  return -1;
}

/* Augments along one path from a source, as much as fits; 0: there is none any more. */
static int64_t augment(struct copse_quickest *q, int source) {
  int n = 0, at = source;
  while (!ends_at(q, at)) {
    int arc = next_arc(q, at);
    if (arc >= 0) {
      q->path[n++] = arc;
      at = head(q, arc);
    } else if (n == 0) {
      return 0;
    } else {
      at = q->tail[q->path[--n]];
      q->current[at]++;
    }
  }
  int64_t amount = INT64_MAX;
  for (int i = 0; i < n; i++)
    if (q->residual[q->path[i]] < amount) amount = q->residual[q->path[i]];
  for (int i = 0; i < n; i++) {
    q->residual[q->path[i]] -= amount;
    q->residual[q->path[i] ^ 1] += amount;
  }
  return amount;
}

/* Sends all that fits along paths of the length at hand. */
static copse_status saturate(struct copse_quickest *q, int64_t *flow, struct copse_err *err) {
  while (find_levels(q))
    for (int v = 0; v < q->n_nodes; v++)
      for (int64_t more = 1; q->level[v] == 0 && more > 0;) {
        more = augment(q, v);
        if (copse_add_overflows(*flow, more, flow) || *flow >= COPSE_FLOW_MAX)
          return copse_fail(err, COPSE_OVERFLOW, "what flows needs more than 61 bits");
      }
  return COPSE_OK;
}

/* ---- the least time ------------------------------------------------------------------- */

static copse_status begin(struct copse_quickest *q, const struct copse_quickest_question *question,
                          struct copse_err *err) {
  const struct copse_quickest_end *sources = question->sources, *sinks = question->sinks;
  size_t n = (size_t)q->n_nodes;
  memset(q->potential, 0, n * sizeof *q->potential);
  memset(q->release, 0xff, n * sizeof *q->release);
  memset(q->due, 0xff, n * sizeof *q->due);
  for (int i = 0; i < question->n_sources; i++) q->release[sources[i].node] = sources[i].delay;
  for (int i = 0; i < question->n_sinks; i++) {
    if (q->release[sinks[i].node] >= 0)
      return copse_fail(err, COPSE_INTERNAL, "a source that is a sink");
    q->due[sinks[i].node] = sinks[i].delay;
  }
  for (int i = 0; i < q->n_links; i++) {
    q->residual[2 * i] = q->links[i].capacity;
    q->residual[2 * i + 1] = 0;
  }
  q->length = 0;
  return COPSE_OK;
}

__extension__ typedef __int128 wide;

/* Flow of value F and cost C: time (amount + C) / F, and how it compares with others. */
struct span {
  wide above, below;
};

static copse_status get_span(struct copse_q amount, int64_t flow, wide cost, struct span *out,
                             struct copse_err *err) {
  wide whole;
  if (__builtin_mul_overflow(cost, (wide)amount.den, &whole) ||
      __builtin_add_overflow(whole, (wide)amount.num, &out->above))
    return copse_fail(err, COPSE_OVERFLOW, "a least time needs more than 127 bits");
  out->below = (wide)flow * amount.den;
  wide common = copse_gcd_wide(out->above, out->below);
  out->above /= common;
  out->below /= common;
  return COPSE_OK;
}

static bool at_most(const struct span *span, int64_t limit) {
  wide whole;
  return __builtin_mul_overflow(span->below, (wide)limit, &whole) || span->above <= whole;
}

static copse_status get_time(const struct span *span, struct copse_q *out, struct copse_err *err) {
  if (span->above > INT64_MAX || span->below > INT64_MAX || !at_most(span, COPSE_DELAY_MAX))
    return copse_fail(err, COPSE_OVERFLOW, "a least time needs more than 63 bits");
  *out = (struct copse_q){(int64_t)span->above, (int64_t)span->below};
  return COPSE_OK;
}

/* Returns, of the last run's static flow, what leaves a node less what enters it. */
static int64_t quickest_surplus(const struct copse_quickest *q, int node) {
  int64_t surplus = 0;
  for (int i = q->leaving.first[node]; i < q->leaving.first[node + 1]; i++) {
    int arc = q->leaving.item[i], link = arc / 2;
    surplus += arc & 1 ? -q->residual[2 * link + 1] : q->residual[2 * link + 1];
  }
  return surplus;
}

/* Finds the dual solution for time T, at most the next length: potentials for which every arc with
 * a residual has a length that is not negative, the sinks' T too. That is the least of those at
 * hand and of T and the distance from the sinks, against the flow that comes to them. */
static copse_status find_times(struct copse_quickest *q, struct copse_q time, struct copse_q *times,
                               struct copse_err *err) {
  copse_nearest_reset(&q->nearest);
  for (int v = 0; v < q->n_nodes; v++)
    if (q->due[v] >= 0 && quickest_surplus(q, v) < 0)
      copse_nearest_offer(&q->nearest, v, q->length - q->due[v] - q->potential[v]);
  settle(q, false);
  for (int v = 0; v < q->n_nodes; v++) {
    times[v] = copse_q_cmp((struct copse_q){q->potential[v], 1}, time) < 0
                   ? (struct copse_q){q->potential[v], 1}
                   : time;
    if (q->nearest.distance[v] == INT64_MAX) continue;
    int64_t from_end = q->nearest.distance[v] + q->potential[v] - q->length;
    struct copse_q at;
    COPSE_DO(copse_q_add(time, (struct copse_q){from_end, 1}, &at, err));
    if (copse_q_cmp(at, times[v]) < 0) times[v] = at;
    if (times[v].num < 0) times[v] = COPSE_Q_ZERO;
  }
  return COPSE_OK;
}

copse_status copse_quickest_run(struct copse_quickest *q,
                                const struct copse_quickest_question *question,
                                struct copse_q *time, struct copse_q *times,
                                struct copse_err *err) {
  const struct copse_q *give_up = question->give_up;
  struct span span = {1, 0};
  int64_t flow = 0;
  wide cost = 0;
  *time = COPSE_Q_ZERO;
  COPSE_DO(begin(q, question, err));
  while (find_distances(q) && (flow == 0 || !at_most(&span, q->length))) {
    int64_t before = flow;
    wide more;
    COPSE_DO(saturate(q, &flow, err));
    if (__builtin_mul_overflow((wide)(flow - before), (wide)q->length, &more) ||
        __builtin_add_overflow(cost, more, &cost))
      return copse_fail(err, COPSE_OVERFLOW, "the cost of a flow needs more than 127 bits");
    COPSE_DO(get_span(question->amount, flow, cost, &span, err));
    if (give_up && get_time(&span, time, NULL) == COPSE_OK && copse_q_cmp(*time, *give_up) <= 0) {
      *time = COPSE_Q_ZERO;
      return COPSE_OK;
    }
  }
  *time = COPSE_Q_ZERO;
  if (flow == 0) return COPSE_INFEASIBLE;
  COPSE_DO(get_time(&span, time, err));
  return times ? find_times(q, *time, times, err) : COPSE_OK;
}
