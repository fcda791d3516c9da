/*
 * Dinic's algorithm on residual arcs, levels counted from the sink, so that a run that fell short
 * has the minimum cut nearest to the sink in its levels.
 *
 *     s ---> a ---> b ---> t        levels  3 2 1 0: a blocking flow takes paths that go down by
 *      \---> c ------------^                2 1 0     one at each arc, until none is left
 *
 * The layout is its own, not base/graph.h's: arcs come and go while trees are made, and searches
 * read little but where arcs lead to. Between runs residuals are put back arc by arc as they were
 * touched. docs/theory.md, "src/solver/network/".
 */
#include "solver/network/flow.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/graph.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/rational.h"
#include "solver/policy.h"

/* One entry at each end of an unordered pair of nodes; the pair's other entry holds the
 * opposite direction. Antiparallel links, the common case, thus share their residuals. Where
 * entries lead to is a list apart: a search reads little else. */
struct arc {
  int twin; /* index of the other entry among those of the node it leads to */
  int64_t capacity;
  int64_t residual;
};

struct node {
  int *to;          /* [n_arcs] */
  struct arc *arcs; /* [n_arcs] */
  size_t to_capacity, capacity;
  int n_arcs;
};

/* An arc whose flow grew; the twin's residual changed with it. */
struct touched {
  int node, arc;
  int64_t amount;
};

struct copse_flow {
  int n_nodes;
  struct touched *touched; /* [n_touched], to put residuals back without a walk over all arcs */
  int n_touched, touched_capacity;
  int first_of_move; /* into touched: the last move's; -1: there was no room for them */
  bool lost_track;   /* more were touched than there is room for */
  struct node *nodes;
  struct arc *block; /* of a copy: all its arcs, node by node, and where they lead to */
  int *to_block;
  size_t block_capacity, to_capacity;
  int *level; /* [n_nodes] `sink_level` and hops to the sink in the residual graph; less: no way */
  int *current;   /* [n_nodes] next arc to look at in this sweep, where there is a level */
  int sink_level; /* grows with every search, so that levels need not be cleared */
  int *queue;     /* [n_nodes] breadth-first search */
  int *path_node; /* [n_nodes] augmenting path: nodes and the arc taken from each */
  int *path_arc;
  int *list_nodes; /* [n_nodes] what the neighbour queries return */
  int64_t *list_capacities;
  struct copse_arena arena; /* of all arrays [n_nodes] */
};

copse_status copse_flow_new(int n_nodes, struct copse_flow **out, struct copse_err *err) {
  size_t n = (size_t)n_nodes;
  *out = NULL;
  COPSE_DO(copse_calloc(1, sizeof **out, out, err));
  struct copse_flow *flow = *out;
  struct copse_arena *arena = &flow->arena;
  flow->n_nodes = n_nodes;
  flow->touched_capacity = COPSE_FLOW_TOUCHED_PER_NODE * n_nodes;
  COPSE_DO(COPSE_ARRAY(arena, n, flow->nodes, err));
  COPSE_DO(COPSE_ARRAYS(arena, n, int, err, &flow->level, &flow->current, &flow->queue,
                        &flow->path_node, &flow->path_arc, &flow->list_nodes));
  COPSE_DO(COPSE_ARRAY(arena, n, flow->list_capacities, err));
  return COPSE_ARRAY(arena, (size_t)flow->touched_capacity, flow->touched, err);
}

void copse_flow_free(struct copse_flow *flow) {
  if (!flow) return;
  for (int i = 0; flow->nodes && !flow->block && i < flow->n_nodes; i++) {
    free(flow->nodes[i].to);
    free(flow->nodes[i].arcs);
  }
  free(flow->block);
  free(flow->to_block);
  copse_arena_free(&flow->arena);
  free(flow);
}

static int flow_nodes(const struct copse_flow *flow) { return flow->n_nodes; }

int64_t copse_flow_links(const struct copse_flow *flow) {
  int64_t ends = 0;
  for (int i = 0; i < flow->n_nodes; i++) ends += flow->nodes[i].n_arcs;
  return ends / 2;
}

/* Copies the graph, to be run beside it but not changed; *copy is NULL or an older copy of a graph
 * with as many nodes, whose memory is used again. The caller frees it. */
static copse_status flow_copy(const struct copse_flow *flow, struct copse_flow **copy,
                              struct copse_err *err) {
  size_t n_arcs = 2 * (size_t)copse_flow_links(flow) + 1; /* a copy always has its block */
  if (!*copy) COPSE_DO(copse_flow_new(flow->n_nodes, copy, err));
  struct copse_flow *to = *copy;
  COPSE_DO(COPSE_GROW(to->block, to->block_capacity, n_arcs, err));
  COPSE_DO(COPSE_GROW(to->to_block, to->to_capacity, n_arcs, err));
  to->n_touched = 0;
  to->lost_track = false;
  for (int i = 0, next = 0; i < flow->n_nodes; i++) {
    const struct node *node = &flow->nodes[i];
    to->nodes[i] =
        (struct node){.to = to->to_block + next, .arcs = to->block + next, .n_arcs = node->n_arcs};
    for (int j = 0; j < node->n_arcs; j++, next++) {
      to->to_block[next] = node->to[j];
      to->block[next] = node->arcs[j];
      to->block[next].residual = node->arcs[j].capacity;
    }
  }
  return COPSE_OK;
}

static struct arc *find_arc(const struct copse_flow *flow, int src, int dst) {
  const struct node *a = &flow->nodes[src], *b = &flow->nodes[dst];
  if (a->n_arcs <= b->n_arcs) {
    for (int i = 0; i < a->n_arcs; i++)
      if (a->to[i] == dst) return &a->arcs[i];
    return NULL;
  }
  for (int i = 0; i < b->n_arcs; i++)
    if (b->to[i] == src) return &a->arcs[b->arcs[i].twin];
  return NULL;
}

static copse_status add_room(struct node *v, struct copse_err *err) {
  size_t need = (size_t)v->n_arcs + 1;
  COPSE_DO(COPSE_GROW(v->to, v->to_capacity, need, err));
  return COPSE_GROW(v->arcs, v->capacity, need, err);
}

static copse_status add_pair(struct copse_flow *flow, int src, int dst, struct copse_err *err) {
  struct node *a = &flow->nodes[src], *b = &flow->nodes[dst];
  COPSE_DO(add_room(a, err));
  COPSE_DO(add_room(b, err));
  a->to[a->n_arcs] = dst;
  b->to[b->n_arcs] = src;
  a->arcs[a->n_arcs] = (struct arc){.twin = b->n_arcs};
  b->arcs[b->n_arcs] = (struct arc){.twin = a->n_arcs};
  a->n_arcs++;
  b->n_arcs++;
  return COPSE_OK;
}

static struct arc *twin_of(const struct copse_flow *flow, int node, int i) {
  const struct node *v = &flow->nodes[node];
  return &flow->nodes[v->to[i]].arcs[v->arcs[i].twin];
}

/* Resets every residual to the capacity, as between runs. */
static void reset_residuals(struct copse_flow *flow) {
  for (int node = 0; flow->lost_track && node < flow->n_nodes; node++) {
    struct node *v = &flow->nodes[node];
    for (int i = 0; i < v->n_arcs; i++) v->arcs[i].residual = v->arcs[i].capacity;
  }
  for (int i = 0; i < flow->n_touched; i++) {
    struct arc *arc = &flow->nodes[flow->touched[i].node].arcs[flow->touched[i].arc];
    struct arc *twin = twin_of(flow, flow->touched[i].node, flow->touched[i].arc);
    arc->residual = arc->capacity;
    twin->residual = twin->capacity;
  }
  flow->n_touched = 0;
  flow->lost_track = false;
}

copse_status copse_flow_change(struct copse_flow *flow, int src, int dst, int64_t amount,
                               struct copse_err *err) {
  reset_residuals(flow);
  struct arc *arc = find_arc(flow, src, dst);
  if (!arc && flow->block) return copse_fail(err, COPSE_INTERNAL, "a copied graph gets a link");
  if (!arc) {
    COPSE_DO(add_pair(flow, src, dst, err));
    arc = &flow->nodes[src].arcs[flow->nodes[src].n_arcs - 1];
  }
  int64_t sum;
  bool wrapped = copse_add_overflows(arc->capacity, amount, &sum);
  if (wrapped || sum > COPSE_FLOW_MAX || sum < 0)
    return copse_fail(err, !wrapped && sum < 0 ? COPSE_INTERNAL : COPSE_OVERFLOW,
                      "a link's capacity leaves the range of exact flows");
  arc->capacity = arc->residual = sum;
  return COPSE_OK;
}

int64_t copse_flow_capacity(const struct copse_flow *flow, int src, int dst) {
  const struct arc *arc = find_arc(flow, src, dst);
  return arc ? arc->capacity : 0;
}

static struct copse_flow_neighbours neighbours(struct copse_flow *flow, int node, bool leaving) {
  int n = 0;
  for (int i = 0; i < flow->nodes[node].n_arcs; i++) {
    const struct arc *arc = &flow->nodes[node].arcs[i];
    int64_t capacity = leaving ? arc->capacity : twin_of(flow, node, i)->capacity;
    if (capacity == 0) continue;
    flow->list_nodes[n] = flow->nodes[node].to[i];
    flow->list_capacities[n++] = capacity;
  }
  return (struct copse_flow_neighbours){n, flow->list_nodes, flow->list_capacities};
}

struct copse_flow_neighbours copse_flow_leaving(struct copse_flow *flow, int node) {
  return neighbours(flow, node, true);
}

struct copse_flow_neighbours copse_flow_entering(struct copse_flow *flow, int node) {
  return neighbours(flow, node, false);
}

/* Moves the last arc of a node into slot i; its twin points there. */
static void drop_arc(struct copse_flow *flow, int node, int i) {
  struct node *v = &flow->nodes[node];
  v->n_arcs--;
  if (i == v->n_arcs) return;
  v->to[i] = v->to[v->n_arcs];
  v->arcs[i] = v->arcs[v->n_arcs];
  twin_of(flow, node, i)->twin = i;
}

void copse_flow_compact(struct copse_flow *flow) {
  reset_residuals(flow);
  for (int node = 0; node < flow->n_nodes; node++) {
    for (int i = flow->nodes[node].n_arcs - 1; i >= 0; i--) {
      struct arc *arc = &flow->nodes[node].arcs[i];
      if (arc->capacity != 0 || twin_of(flow, node, i)->capacity != 0) continue;
      int other = flow->nodes[node].to[i], twin = arc->twin;
      drop_arc(flow, node, i);
      drop_arc(flow, other, twin);
    }
  }
}

/* Makes all levels of the search before invalid. */
static void forget_levels(struct copse_flow *flow) {
  if (flow->sink_level > INT_MAX - 2 * (flow->n_nodes + 1)) {
    memset(flow->level, 0, (size_t)flow->n_nodes * sizeof *flow->level);
    flow->sink_level = 0;
  }
  flow->sink_level += flow->n_nodes + 1;
}

/* Finds levels from the sink backwards; stops at the source's level (s < 0: at none). False: no way
 * is left. */
static bool find_levels(struct copse_flow *flow, int s, int t) {
  struct copse_queue queue = {.items = flow->queue};
  int *level = flow->level;
  forget_levels(flow);
  const int sink_level = flow->sink_level;
  copse_queue_push(&queue, t);
  level[t] = sink_level;
  while (!copse_queue_is_empty(&queue) && (s < 0 || level[s] < sink_level)) {
    int v = copse_queue_pop(&queue);
    const int *to = flow->nodes[v].to;
    for (int i = 0; i < flow->nodes[v].n_arcs; i++) {
      int u = to[i];
      if (level[u] >= sink_level || twin_of(flow, v, i)->residual == 0) continue;
      level[u] = level[v] + 1;
      flow->current[u] = 0;
      copse_queue_push(&queue, u);
    }
  }
  return s >= 0 && level[s] >= sink_level;
}

static void note_touched(struct copse_flow *flow, int node, int arc, int64_t amount) {
  if (flow->n_touched == flow->touched_capacity) {
    flow->lost_track = true;
    flow->first_of_move = -1;
  } else {
    flow->touched[flow->n_touched++] = (struct touched){node, arc, amount};
  }
}

/* Sends what fits along the path of `length` arcs; returns how much of it stays valid. */
static int push_path(struct copse_flow *flow, int length, int64_t limit, int64_t *pushed) {
  int64_t amount = limit;
  for (int i = 0; i < length; i++) {
    const struct arc *arc = &flow->nodes[flow->path_node[i]].arcs[flow->path_arc[i]];
    if (arc->residual < amount) amount = arc->residual;
  }
  int keep = length;
  for (int i = length - 1; i >= 0; i--) {
    struct arc *arc = &flow->nodes[flow->path_node[i]].arcs[flow->path_arc[i]];
    arc->residual -= amount;
    twin_of(flow, flow->path_node[i], flow->path_arc[i])->residual += amount;
    if (arc->residual == 0) keep = i;
    note_touched(flow, flow->path_node[i], flow->path_arc[i], amount);
  }
  *pushed = amount;
  return keep;
}

/* Returns the next arc of `node` that goes one level down, or -1. */
static int next_arc(struct copse_flow *flow, int node) {
  const struct node *v = &flow->nodes[node];
  int below = flow->level[node] - 1;
  for (int i = flow->current[node]; i < v->n_arcs; i++) {
    if (flow->level[v->to[i]] != below || v->arcs[i].residual == 0) continue;
    flow->current[node] = i;
    return i;
  }
  return -1;
}

/* Returns a blocking flow in the level graph, cut off at limit. */
static int64_t blocking_flow(struct copse_flow *flow, int s, int t, int64_t limit) {
  int64_t total = 0;
  int length = 0, node = s;
  while (total < limit) {
    if (node == t) {
      int64_t pushed;
      length = push_path(flow, length, limit - total, &pushed);
      total += pushed;
      node = flow->path_node[length];
      continue;
    }
    int i = next_arc(flow, node);
    if (i >= 0) {
      flow->path_node[length] = node;
      flow->path_arc[length++] = i;
      node = flow->nodes[node].to[i];
    } else if (length == 0) {
      break;
    } else {
      flow->level[node] = 0; /* a dead end for this sweep */
      node = flow->path_node[--length];
      flow->current[node]++;
    }
  }
  return total;
}

/*
 * Goes on from the run before, whose flow ended at `from`: moves up to `limit` of it on to
 * `to` and returns how much that is. Where all that can leave s flows to `from`, this is all of it
 * exactly when as much can flow to `to`, and the minimum cut nearest to `to` is that of a run from
 * s: neighbours need few paths where a run from s takes one for every root.
 */
static int64_t move_flow(struct copse_flow *flow, int from, int to, int64_t limit) {
  int64_t total = 0;
  if (flow->n_touched > flow->touched_capacity / 2) { /* makes room for what this move touches */
    flow->n_touched = 0;
    flow->lost_track = true;
  }
  flow->first_of_move = flow->n_touched;
  while (total < limit && find_levels(flow, from, to))
    total += blocking_flow(flow, from, to, limit - total);
  return total;
}

/* Makes the last move undone, once; false where too much would have had to be remembered for it. */
static bool flow_take_back(struct copse_flow *flow) {
  if (flow->first_of_move < 0) return false;
  while (flow->n_touched > flow->first_of_move) {
    const struct touched *touched = &flow->touched[--flow->n_touched];
    flow->nodes[touched->node].arcs[touched->arc].residual += touched->amount;
    twin_of(flow, touched->node, touched->arc)->residual -= touched->amount;
  }
  return true;
}

int64_t copse_flow_max(struct copse_flow *flow, int s, int t, int64_t limit) {
  reset_residuals(flow);
  return move_flow(flow, s, t, limit);
}

void copse_flow_find_sides(struct copse_flow *flow, int t) { find_levels(flow, -1, t); }

bool copse_flow_on_source_side(const struct copse_flow *flow, int node) {
  return flow->level[node] < flow->sink_level;
}

/* ==== one flow per sink ======================================================================= */

/*
 * One maximum flow per sink, shared by threads, each on its copy of the graph. Neighbours differ
 * little, so the flow to a sink is made from that to the one before by moving where it ends:
 *
 *     source ==> roots ==> ... ==> u - - -> v        what flowed to u goes on to v
 *
 * and a sink v to which all that reaches u evidently goes on, and back, is not asked at all.
 */

/* ---- the graph --------------------------------------------------------------------------- */

static int64_t capped_product(int64_t a, int64_t b) {
  int64_t product;
  return copse_mul_overflows(a, b, &product) ? INT64_MAX : product;
}

copse_status copse_sinks_graph(const struct copse_network *network, const int64_t *capacities,
                               int64_t scale, int64_t rate, struct copse_flow **out,
                               int64_t *demand, struct copse_err *err) {
  *demand = 0;
  COPSE_DO(copse_flow_new(network->n_nodes + 1, out, err));
  for (int i = 0; i < network->n_links; i++) {
    const struct copse_net_link *link = &network->links[i];
    int64_t capacity = capped_product(capacities ? capacities[i] : link->capacity, scale);
    if (capacity > 0) COPSE_DO(copse_flow_change(*out, link->src, link->dst, capacity, err));
  }
  for (int i = 0; i < network->n_roots; i++) {
    int64_t amount = capped_product(network->roots[i].weight, rate);
    if (copse_add_overflows(*demand, amount, demand) || *demand > COPSE_FLOW_MAX)
      return copse_fail(err, COPSE_OVERFLOW,
                        "the bandwidths need more than 61 bits once brought to a common "
                        "denominator; use fewer digits");
    COPSE_DO(copse_flow_change(*out, network->n_nodes, network->roots[i].node, amount, err));
  }
  return COPSE_OK;
}

/* ---- threads ----------------------------------------------------------------------------- */

struct worker {
  struct sinks_state *state;
  struct copse_flow *flow; /* the first one's is the graph itself */
  int at;                  /* the sink that the demand flows to; -1: none */
};

struct sinks_state {
  int n_nodes;
  const struct copse_sink_question *question;
  int *asked; /* [n_asked] places of the sinks that stand for all */
  int n_asked;
  int64_t *leaving, *entering; /* [n_nodes] capacities of the sink that stands for the next ones */
  size_t asked_capacity, cuts_capacity, flags_capacity;
  struct copse_sink_cut *cuts; /* [n_cuts] by place; room for one more */
  unsigned char *flags;        /* what the cuts' `inside` lie in */
  pthread_mutex_t mutex;       /* guards the cuts */
  int n_cuts, n_short, most;
  atomic_int next;  /* into `asked` */
  atomic_int bound; /* into `asked`: from here on nothing matters any more */
  struct copse_flow *copies[COPSE_SINKS_THREADS];
  struct copse_arena arena; /* of the arrays [n_nodes] */
};

static copse_status make_state(struct copse_sinks *sinks, int n_nodes, struct copse_err *err) {
  struct sinks_state *state = NULL;
  if (sinks->state && sinks->state->n_nodes == n_nodes) return COPSE_OK;
  copse_sinks_free(sinks);
  COPSE_DO(copse_calloc(1, sizeof *state, &state, err));
  state->n_nodes = n_nodes;
  pthread_mutex_init(&state->mutex, NULL);
  sinks->state = state;
  return COPSE_ARRAYS(&state->arena, (size_t)n_nodes, int64_t, err, &state->leaving,
                      &state->entering);
}

void copse_sinks_free(struct copse_sinks *sinks) {
  struct sinks_state *state = sinks->state;
  *sinks = (struct copse_sinks){0};
  if (!state) return;
  for (int i = 0; i < COPSE_SINKS_THREADS; i++) copse_flow_free(state->copies[i]);
  pthread_mutex_destroy(&state->mutex);
  free(state->asked);
  copse_arena_free(&state->arena);
  free(state->cuts);
  free(state->flags);
  free(state);
}

/* ---- sinks that stand for others --------------------------------------------------------- */

/* Notes (sign 1) or forgets (0) what leaves and enters u. */
static void note_links(struct sinks_state *state, struct copse_flow *flow, int u, int sign) {
  struct copse_flow_neighbours list = copse_flow_leaving(flow, u);
  for (int i = 0; i < list.n; i++) state->leaving[list.nodes[i]] = sign * list.capacities[i];
  list = copse_flow_entering(flow, u);
  for (int i = 0; i < list.n; i++) state->entering[list.nodes[i]] = sign * list.capacities[i];
}

/* Whether it flows over the link from u to v, or back, and over one node in between: these ways
 * share no link. `noted` are the links of u, `list` those of v. */
static bool evidently_flows(const int64_t *noted, struct copse_flow_neighbours list, int u,
                            int64_t amount) {
  for (int i = 0; i < list.n && amount > 0; i++) {
    int64_t over = noted[list.nodes[i]];
    amount -= list.nodes[i] == u || list.capacities[i] < over ? list.capacities[i] : over;
  }
  return amount <= 0;
}

static copse_status choose_sinks(struct sinks_state *state, struct copse_flow *flow,
                                 struct copse_err *err) {
  const struct copse_sink_question *q = state->question;
  int64_t amount = q->demand + (q->tight ? 1 : 0);
  int last = -1;
  COPSE_DO(COPSE_GROW(state->asked, state->asked_capacity, (size_t)q->n_sinks, err));
  state->n_asked = 0;
  for (int i = 0; i < q->n_sinks; i++) {
    int place = (q->start + i) % q->n_sinks, v = q->sinks[place];
    if (last >= 0 && evidently_flows(state->leaving, copse_flow_entering(flow, v), last, amount) &&
        evidently_flows(state->entering, copse_flow_leaving(flow, v), last, amount))
      continue;
    if (last >= 0) note_links(state, flow, last, 0);
    note_links(state, flow, v, 1);
    last = v;
    state->asked[state->n_asked++] = place;
  }
  if (last >= 0) note_links(state, flow, last, 0);
  return COPSE_OK;
}

/* ---- asking ------------------------------------------------------------------------------ */

/* Makes room for all cuts of the answer, and for one that then turns out not to be among them. */
static copse_status make_room(struct sinks_state *state, struct copse_err *err) {
  const struct copse_sink_question *q = state->question;
  state->most = q->most < state->n_asked ? q->most : state->n_asked;
  size_t n = (size_t)(q->tight ? state->n_asked : state->most) + 1,
         n_nodes = (size_t)state->n_nodes;
  COPSE_DO(COPSE_GROW(state->cuts, state->cuts_capacity, n, err));
  COPSE_DO(copse_grow(&state->flags, &state->flags_capacity, n * n_nodes, 1, err));
  for (size_t i = 0; i < n; i++) state->cuts[i].inside = state->flags + i * n_nodes;
  state->n_cuts = state->n_short = 0;
  return COPSE_OK;
}

/* Finds where a cut goes in the answer; its place is one in `asked` until the answer is whole. */
static struct copse_sink_cut *insert_cut(struct sinks_state *state, int place) {
  int at = state->n_cuts++;
  struct copse_sink_cut cut = state->cuts[at];
  for (; at > 0 && state->cuts[at - 1].place > place; at--) state->cuts[at] = state->cuts[at - 1];
  state->cuts[at] = cut;
  state->cuts[at].place = place;
  return &state->cuts[at];
}

/* Drops, once `most` sinks have fallen short, what comes after the last of them: it does not
 * matter. */
static void drop_rest(struct sinks_state *state) {
  if (state->n_short < state->most) return;
  while (state->n_short > state->most ||
         state->cuts[state->n_cuts - 1].flows == state->question->demand)
    state->n_short -= state->cuts[--state->n_cuts].flows < state->question->demand;
  atomic_store(&state->bound, state->cuts[state->n_cuts - 1].place + 1);
}

static void record_cut(const struct worker *worker, int i, int64_t flows) {
  struct sinks_state *state = worker->state;
  COPSE_HOLD(&state->mutex);
  if (i >= atomic_load(&state->bound)) return;
  struct copse_sink_cut *cut = insert_cut(state, i);
  cut->flows = flows;
  for (int v = 0; v < state->n_nodes; v++)
    cut->inside[v] = !copse_flow_on_source_side(worker->flow, v);
  state->n_short += flows < state->question->demand;
  drop_rest(state);
}

/* Asks for one sink; the flow then ends there, or where it ended before. */
static void ask_sink(struct worker *worker, int i) {
  const struct copse_sink_question *q = worker->state->question;
  int v = q->sinks[worker->state->asked[i]];
  int64_t flows = worker->at >= 0 ? move_flow(worker->flow, worker->at, v, q->demand)
                                  : copse_flow_max(worker->flow, q->source, v, q->demand);
  bool falls_short = flows < q->demand;
  if (!falls_short && q->tight) copse_flow_find_sides(worker->flow, v);
  if (falls_short || q->tight) record_cut(worker, i, flows);
  if (!falls_short)
    worker->at = v;
  else if (worker->at >= 0 && !flow_take_back(worker->flow))
    worker->at = -1;
}

/* Does the work of worker i; where fewer threads can be had than workers, the last find nothing
 * left. */
static copse_status ask_sinks(void *workers, int i, struct copse_err *err) {
  struct worker *worker = (struct worker *)workers + i;
  struct sinks_state *state = worker->state;
  (void)err;
  for (;;) {
    int first = atomic_fetch_add(&state->next, COPSE_SINKS_AT_ONCE);
    for (int at = first; at < first + COPSE_SINKS_AT_ONCE; at++) {
      if (at >= atomic_load(&state->bound)) return COPSE_OK;
      ask_sink(worker, at);
    }
  }
}

static int count_threads(const struct sinks_state *state, struct copse_flow *flow) {
  int n = state->question->threads;
  if (n <= 0) {
    if ((int64_t)state->n_asked * copse_flow_links(flow) < COPSE_SINKS_WORK_FOR_THREADS) return 1;
    n = copse_processors();
  }
  return n > COPSE_SINKS_THREADS ? COPSE_SINKS_THREADS : n;
}

/* Makes the workers beside the first one, each with a copy of the graph, as far as memory goes. */
static int make_workers(struct sinks_state *state, struct copse_flow *flow, struct worker *workers,
                        int n) {
  struct copse_err ignored = COPSE_ERR_INIT;
  for (int i = 1; i < n; i++) {
    if (flow_copy(flow, &state->copies[i], &ignored) != COPSE_OK) return i;
    workers[i] = (struct worker){.state = state, .flow = state->copies[i], .at = -1};
  }
  return n;
}

copse_status copse_sinks_ask(struct copse_sinks *sinks, struct copse_flow *flow,
                             const struct copse_sink_question *question, struct copse_err *err) {
  sinks->n_cuts = 0;
  COPSE_DO(make_state(sinks, flow_nodes(flow), err));
  struct sinks_state *state = sinks->state;
  struct worker workers[COPSE_SINKS_THREADS] = {{.state = state, .flow = flow, .at = -1}};
  state->question = question;
  COPSE_DO(choose_sinks(state, flow, err));
  COPSE_DO(make_room(state, err));
  atomic_init(&state->next, 1);
  atomic_init(&state->bound, state->n_asked);
  if (state->n_asked > 0) ask_sink(workers, 0); /* as a rule the one that fell short last time */
  if (atomic_load(&state->bound) > 1) {
    int n = make_workers(state, flow, workers, count_threads(state, flow));
    COPSE_DO(copse_parallel(n, n, ask_sinks, workers, err));
  }
  for (int i = 0; i < state->n_cuts; i++) state->cuts[i].place = state->asked[state->cuts[i].place];
  sinks->n_cuts = state->n_cuts;
  sinks->cuts = state->cuts;
  return COPSE_OK;
}
