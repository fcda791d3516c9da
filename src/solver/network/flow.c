/*
 * Dinic's algorithm on residual arcs, levels counted from the sink, so that a run that fell short
 * has the minimum cut nearest to the sink in its levels.
 *
 *     s ---> a ---> b ---> t        levels  3 2 1 0: a blocking flow takes paths that go down by
 *      \---> c ------------^                2 1 0     one at each arc, until none is left
 *
 * The layout is its own, not base/graph.h's: arcs come and go while trees are made, and searches
 * read little but where arcs lead to. Between runs residuals are put back arc by arc as they were
 * touched.
 */
#include "solver/network/flow.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
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

int copse_flow_nodes(const struct copse_flow *flow) { return flow->n_nodes; }

int64_t copse_flow_links(const struct copse_flow *flow) {
  int64_t ends = 0;
  for (int i = 0; i < flow->n_nodes; i++) ends += flow->nodes[i].n_arcs;
  return ends / 2;
}

copse_status copse_flow_copy(const struct copse_flow *flow, struct copse_flow **copy,
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

/* Between runs every residual is the capacity. */
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

/* Levels from the sink backwards; stops at the source's level (s < 0: at none). False: no way
 * is left. */
static bool find_levels(struct copse_flow *flow, int s, int t) {
  int *level = flow->level, head = 0, tail = 0;
  forget_levels(flow);
  const int sink_level = flow->sink_level;
  flow->queue[tail++] = t;
  level[t] = sink_level;
  while (head < tail && (s < 0 || level[s] < sink_level)) {
    int v = flow->queue[head++];
    const int *to = flow->nodes[v].to;
    for (int i = 0; i < flow->nodes[v].n_arcs; i++) {
      int u = to[i];
      if (level[u] >= sink_level || twin_of(flow, v, i)->residual == 0) continue;
      level[u] = level[v] + 1;
      flow->current[u] = 0;
      flow->queue[tail++] = u;
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

/* The next arc of `node` that goes one level down, or -1. */
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

/* A blocking flow in the level graph, cut off at limit. */
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

int64_t copse_flow_move(struct copse_flow *flow, int from, int to, int64_t limit) {
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

bool copse_flow_take_back(struct copse_flow *flow) {
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
  return copse_flow_move(flow, s, t, limit);
}

void copse_flow_find_sides(struct copse_flow *flow, int t) { find_levels(flow, -1, t); }

bool copse_flow_on_source_side(const struct copse_flow *flow, int node) {
  return flow->level[node] < flow->sink_level;
}
