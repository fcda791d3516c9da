/*
 * Sets of transfers for the simulator, and those of a schedule.
 *
 *   broadcast tree   an edge streams from the one that reached its source
 *   reduce tree      an edge streams from all that reached its source (its children's sums)
 *   allreduce        both trees of a root laid end to end and cut where either ends:
 *
 *     reduce     |-- tree 0 --|----- tree 1 -----|
 *     broadcast  |----- tree 0 -----|-- tree 1 --|      pieces: [0,0] [1,0] [1,1]
 *
 *     each piece is reduced, joined at the root and broadcast
 *   flow             every path by itself, cut at the ranks that forward
 *
 * The simulator's model and its sources: simulate.h.
 */
#include "predict/simulate_dag.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "codegen/lower/policy.h"

void copse_sim_dag_free(struct copse_sim_dag *dag) {
  free(dag->items);
  free(dag->ints);
  *dag = (struct copse_sim_dag){0};
}

static bool items_equal(const struct copse_sim_item *a, const struct copse_sim_item *b) {
  return a->first == b->first && a->n_links == b->n_links && a->n_copies == b->n_copies &&
         a->n_after == b->n_after && a->n_streams == b->n_streams && a->order == b->order &&
         a->adder == b->adder && a->worker == b->worker && a->reduces == b->reduces &&
         a->amount == b->amount && a->delay_us == b->delay_us;
}

bool copse_sim_dags_equal(const struct copse_sim_dag *a, const struct copse_sim_dag *b) {
  bool equal = a->n_transfers == b->n_transfers && a->n_copies == b->n_copies &&
               a->n_workers == b->n_workers && a->n_ints == b->n_ints;
  for (int t = 0; t < a->n_transfers && equal; t++) equal = items_equal(&a->items[t], &b->items[t]);
  return equal && (a->n_ints == 0 || memcmp(a->ints, b->ints, a->n_ints * sizeof *a->ints) == 0);
}

static bool all_before(const int *list, int n, int limit) {
  for (int i = 0; i < n; i++)
    if (list[i] < 0 || list[i] >= limit) return false;
  return true;
}

static copse_status check(const struct copse_sim_dag *dag, const struct copse_sim_transfer *t,
                          struct copse_err *err) {
  if (!all_before(t->after, t->n_after, dag->n_transfers) ||
      !all_before(t->streams, t->n_streams, dag->n_transfers))
    return copse_fail(err, COPSE_INVALID, "a transfer waits for one that was not added before it");
  if (t->worker < 0 || t->worker >= COPSE_SIM_MAX_WORKERS)
    return copse_fail(err, COPSE_INVALID, "a transfer's worker must be from 0 to %d",
                      COPSE_SIM_MAX_WORKERS - 1);
  if (!(t->amount >= 0) || !isfinite(t->amount) || !(t->delay_us >= 0) || !isfinite(t->delay_us))
    return copse_fail(err, COPSE_INVALID, "a transfer's amount and delay must be 0 or more");
  if (dag->n_transfers == INT_MAX)
    return copse_fail(err, COPSE_OVERFLOW, "too many transfers to simulate");
  return COPSE_OK;
}

static void append(struct copse_sim_dag *dag, const int *list, int n) {
  if (n > 0) memcpy(dag->ints + dag->n_ints, list, (size_t)n * sizeof *list);
  dag->n_ints += (size_t)n;
}

copse_status copse_sim_dag_add(struct copse_sim_dag *dag, const struct copse_sim_transfer *t,
                               int *id, struct copse_err *err) {
  int n_copies = t->copies ? t->n_links : 0;
  size_t n = (size_t)t->n_links + (size_t)n_copies + (size_t)t->n_after + (size_t)t->n_streams;
  COPSE_DO(check(dag, t, err));
  COPSE_DO(copse_grow(&dag->ints, &dag->ints_capacity, dag->n_ints + n, sizeof *dag->ints, err));
  COPSE_DO(copse_grow(&dag->items, &dag->items_capacity, (size_t)dag->n_transfers + 1,
                      sizeof *dag->items, err));
  dag->items[dag->n_transfers] = (struct copse_sim_item){.first = dag->n_ints,
                                                         .n_links = t->n_links,
                                                         .n_copies = n_copies,
                                                         .n_after = t->n_after,
                                                         .n_streams = t->n_streams,
                                                         .order = t->order,
                                                         .adder = t->adder,
                                                         .worker = t->worker,
                                                         .reduces = t->reduces,
                                                         .amount = t->amount,
                                                         .delay_us = t->delay_us};
  append(dag, t->links, t->n_links);
  append(dag, t->copies, n_copies);
  append(dag, t->after, t->n_after);
  append(dag, t->streams, t->n_streams);
  for (int i = 0; i < n_copies; i++)
    if (t->copies[i] >= dag->n_copies) dag->n_copies = t->copies[i] + 1;
  if (t->worker >= dag->n_workers) dag->n_workers = t->worker + 1;
  if (id) *id = dag->n_transfers;
  dag->n_transfers++;
  return COPSE_OK;
}

copse_status copse_sim_dag_add_path(struct copse_sim_dag *dag,
                                    const struct copse_topology *topology, const int *nodes,
                                    int n_nodes, const struct copse_sim_transfer *transfer,
                                    int *last, struct copse_err *err) {
  struct copse_sim_transfer hop = *transfer;
  COPSE_AT_END(copse_free_at) int *links = NULL;
  int n = 0, id = -1;
  if (n_nodes < 2) return copse_fail(err, COPSE_INVALID, "a path must have two nodes");
  COPSE_DO(copse_calloc((size_t)n_nodes, sizeof *links, &links, err));
  hop.copies = NULL;
  hop.links = links;
  for (int i = 0; i + 1 < n_nodes; i++) {
    links[n] = copse_topology_find_link(topology, nodes[i], nodes[i + 1]);
    if (links[n] < 0)
      return copse_fail(err, COPSE_INVALID, "the topology has no link '%s' -> '%s'",
                        topology->nodes[nodes[i]].id, topology->nodes[nodes[i + 1]].id);
    hop.n_links = ++n;
    hop.reduces = transfer->reduces && i + 2 == n_nodes; /* ranks on the way pass it on as it is */
    if (topology->nodes[nodes[i + 1]].rank < 0 && i + 2 < n_nodes) continue;
    COPSE_DO(copse_sim_dag_add(dag, &hop, &id, err));
    hop.n_after = 0;
    hop.streams = &id;
    hop.n_streams = 1;
    hop.delay_us = 0;
    n = 0;
  }
  if (last) *last = id;
  return COPSE_OK;
}

copse_status copse_sim_dag_far_first(struct copse_sim_dag *dag, struct copse_err *err) {
  COPSE_AT_END(copse_free_at) int *after = NULL; /* [n_transfers] over links, in a row */
  int most = 0, orders = 1;
  COPSE_DO(copse_calloc((size_t)dag->n_transfers + 1, sizeof *after, &after, err));
  for (int t = dag->n_transfers - 1; t >= 0; t--) {
    const int *streams = copse_sim_streams(dag, t);
    int here = after[t] + (dag->items[t].n_links > 0);
    for (int i = 0; i < dag->items[t].n_streams; i++)
      if (here > after[streams[i]]) after[streams[i]] = here;
    if (after[t] > most) most = after[t];
    if (dag->items[t].order >= orders) orders = dag->items[t].order + 1;
  }
  if (most > INT_MAX / orders - 1) most = INT_MAX / orders - 1;
  for (int t = 0; t < dag->n_transfers; t++)
    dag->items[t].order += (after[t] < most ? most - after[t] : 0) * orders;
  return COPSE_OK;
}

/* What the transfers of one schedule are made with. */
struct maker {
  const struct copse_schedule *schedule;
  const struct copse_topology *topology;
  struct copse_sim_dag *dag;
  int *node_of;   /* [schedule->n_nodes] topology node, -1 unknown */
  int *arrival;   /* [n_ranks] the transfer that brings a broadcast tree's data, -1: none */
  int *children;  /* [n_ranks] last transfer that brings a child's sum, -1: none */
  int *sibling;   /* [n_ranks] by sender: the one before it */
  int *next_tree; /* [n_trees] the next tree of the same phase and root */
  int *list;      /* [n_ranks] scratch: what a transfer streams from */
  int *links, *copies, *path; /* [topology->n_nodes + schedule's longest path] scratch */
  int *copy_of, *stamps;      /* [topology->n_links] the copy of this tree, the tree's stamp */
  int stamp;
  bool turns;
  struct copse_arena scratch;
  struct copse_err *err;
};

static int longest_path(const struct copse_schedule *s) {
  int most = 1;
  for (int t = 0; t < s->n_trees; t++)
    for (int e = 0; e < s->trees[t].n_edges; e++)
      if (s->trees[t].edges[e].n_path > most) most = s->trees[t].edges[e].n_path;
  for (int f = 0; f < s->n_flows; f++)
    for (int p = 0; p < s->flows[f].n_paths; p++)
      if (s->flows[f].paths[p].n_nodes > most) most = s->flows[f].paths[p].n_nodes;
  return most;
}

/* Maps the path to the topology's nodes. */
static copse_status map_path(struct maker *m, const int *nodes, int n) {
  for (int i = 0; i < n; i++) {
    m->path[i] = m->node_of[nodes[i]];
    if (m->path[i] < 0)
      return copse_fail(m->err, COPSE_INVALID, "the schedule's node '%s' is not in the topology",
                        m->schedule->nodes[nodes[i]]);
  }
  return COPSE_OK;
}

/* Returns which copy of the tree's data crosses a link, where a switch copies or combines; else
 * -1. */
static int copy_on(struct maker *m, enum copse_phase phase, int link) {
  const struct copse_link *l = &m->topology->links[link];
  bool once = phase == COPSE_PHASE_BROADCAST ? m->topology->nodes[l->dst].multicast
                                             : m->topology->nodes[l->src].aggregation;
  if (!once) return -1;
  if (m->stamps[link] != m->stamp) {
    m->stamps[link] = m->stamp;
    m->copy_of[link] = m->dag->n_copies++;
  }
  return m->copy_of[link];
}

/* Adds one edge's transfer, streaming from the first n of m->list. */
static copse_status add_edge(struct maker *m, const struct copse_schedule_tree *tree, int e,
                             struct copse_q amount, int n, int *id) {
  const struct copse_schedule_edge *edge = &tree->edges[e];
  struct copse_sim_transfer transfer = {.links = m->links,
                                        .n_links = edge->n_path - 1,
                                        .streams = m->list,
                                        .n_streams = n,
                                        .copies = m->copies,
                                        .reduces = tree->phase == COPSE_PHASE_REDUCE,
                                        .amount = copse_q_to_double(amount)};
  if (m->turns) {
    transfer.order = (tree->root - edge->src + m->schedule->n_ranks) % m->schedule->n_ranks;
    transfer.worker = (int)(tree - m->schedule->trees) % COPSE_POLICY_WORKERS;
  }
  COPSE_DO(map_path(m, edge->path, edge->n_path));
  for (int i = 0; i + 1 < edge->n_path; i++) {
    m->links[i] = copse_topology_find_link(m->topology, m->path[i], m->path[i + 1]);
    if (m->links[i] < 0)
      return copse_fail(m->err, COPSE_INVALID, "the topology has no link '%s' -> '%s'",
                        m->topology->nodes[m->path[i]].id, m->topology->nodes[m->path[i + 1]].id);
    m->copies[i] = copy_on(m, tree->phase, m->links[i]);
  }
  return copse_sim_dag_add(m->dag, &transfer, id, m->err);
}

/* Lists the transfers that bring the children's sums to `rank`. */
static int list_children(struct maker *m, int rank) {
  int n = 0;
  for (int sender = m->children[rank]; sender >= 0; sender = m->sibling[sender])
    m->list[n++] = m->arrival[sender];
  return n;
}

static copse_status add_reduction(struct maker *m, const struct copse_schedule_tree *tree,
                                  struct copse_q amount) {
  m->stamp++;
  for (int r = 0; r < m->schedule->n_ranks; r++) m->children[r] = -1;
  for (int e = 0; e < tree->n_edges; e++) {
    const struct copse_schedule_edge *edge = &tree->edges[e];
    int n = list_children(m, edge->src);
    COPSE_DO(add_edge(m, tree, e, amount, n, &m->arrival[edge->src]));
    m->sibling[edge->src] = m->children[edge->dst];
    m->children[edge->dst] = edge->src;
  }
  return COPSE_OK;
}

/* Adds a broadcast. The root has the data at once, or, with `reduced`, from the reduction added
 * just before. */
static copse_status add_broadcast(struct maker *m, const struct copse_schedule_tree *tree,
                                  struct copse_q amount, bool reduced) {
  int joined = -1;
  if (reduced) { /* one junction: the reduction's numbers are overwritten below */
    int n = list_children(m, tree->root);
    struct copse_sim_transfer junction = {
        .streams = m->list, .n_streams = n, .amount = copse_q_to_double(amount)};
    COPSE_DO(copse_sim_dag_add(m->dag, &junction, &joined, m->err));
  }
  m->stamp++;
  m->arrival[tree->root] = joined;
  for (int e = 0; e < tree->n_edges; e++) {
    const struct copse_schedule_edge *edge = &tree->edges[e];
    m->list[0] = m->arrival[edge->src];
    COPSE_DO(add_edge(m, tree, e, amount, m->list[0] >= 0, &m->arrival[edge->dst]));
  }
  return COPSE_OK;
}

/*
 * Chains the trees of both phases. An allreduce's root has the same share in both, maybe cut
 * differently: the trees of both, laid end to end, give pieces that one tree reduces and one
 * broadcasts.
 */
static copse_status add_chained(struct maker *m, int reduce, int broadcast) {
  const struct copse_schedule_tree *trees = m->schedule->trees;
  struct copse_q left = reduce >= 0 ? trees[reduce].weight : COPSE_Q_ZERO;
  struct copse_q right = broadcast >= 0 ? trees[broadcast].weight : COPSE_Q_ZERO;
  while (reduce >= 0 && broadcast >= 0) {
    struct copse_q piece = copse_q_cmp(left, right) < 0 ? left : right;
    COPSE_DO(add_reduction(m, &trees[reduce], piece));
    COPSE_DO(add_broadcast(m, &trees[broadcast], piece, true));
    COPSE_DO(copse_q_sub(left, piece, &left, m->err));
    COPSE_DO(copse_q_sub(right, piece, &right, m->err));
    if (left.num == 0 && (reduce = m->next_tree[reduce]) >= 0) left = trees[reduce].weight;
    if (right.num == 0 && (broadcast = m->next_tree[broadcast]) >= 0)
      right = trees[broadcast].weight;
  }
  return COPSE_OK;
}

static copse_status add_allreduce(struct maker *m) {
  const struct copse_schedule *s = m->schedule;
  int *first = NULL; /* [2 * n_ranks] first tree of each phase and root */
  size_t n = (size_t)s->n_ranks;
  COPSE_DO(copse_arena_array(&m->scratch, 2 * n, sizeof *first, &first, m->err));
  for (size_t i = 0; i < 2 * n; i++) first[i] = -1;
  for (int t = s->n_trees - 1; t >= 0; t--) {
    size_t list = (size_t)s->trees[t].root + (s->trees[t].phase == COPSE_PHASE_REDUCE ? 0 : n);
    m->next_tree[t] = first[list];
    first[list] = t;
  }
  for (size_t r = 0; r < n; r++) COPSE_DO(add_chained(m, first[r], first[n + r]));
  return COPSE_OK;
}

static copse_status add_trees(struct maker *m) {
  const struct copse_schedule *s = m->schedule;
  for (int t = 0; t < s->n_trees; t++) {
    const struct copse_schedule_tree *tree = &s->trees[t];
    if (tree->phase == COPSE_PHASE_REDUCE)
      COPSE_DO(add_reduction(m, tree, tree->weight));
    else
      COPSE_DO(add_broadcast(m, tree, tree->weight, false));
  }
  return COPSE_OK;
}

/* Adds every path by itself; each rank serves its right-hand neighbour first, so that not all begin
 * with rank 0. Those of a schedule for one size take turns as they are listed. */
static copse_status add_flow(struct maker *m, const struct copse_schedule_flow *flow) {
  int n_ranks = m->schedule->n_ranks;
  for (int p = 0; p < flow->n_paths; p++) {
    const struct copse_schedule_path *path = &flow->paths[p];
    struct copse_sim_transfer transfer = {
        .amount = copse_q_to_double(path->weight),
        .order =
            m->schedule->objective.bytes > 0 ? 0 : (flow->dst - flow->src + n_ranks) % n_ranks};
    if (m->turns) transfer.worker = transfer.order % COPSE_POLICY_WORKERS;
    COPSE_DO(map_path(m, path->nodes, path->n_nodes));
    COPSE_DO(copse_sim_dag_add_path(m->dag, m->topology, m->path, path->n_nodes, &transfer, NULL,
                                    m->err));
  }
  return COPSE_OK;
}

static copse_status set_up(struct maker *m) {
  const struct copse_schedule *s = m->schedule;
  size_t ranks = (size_t)s->n_ranks, links = (size_t)m->topology->n_links;
  size_t longest = (size_t)longest_path(s);
  COPSE_DO(copse_arena_array(&m->scratch, (size_t)s->n_nodes, sizeof(int), &m->node_of, m->err));
  COPSE_DO(COPSE_ARRAYS(&m->scratch, ranks, int, m->err, &m->arrival, &m->children, &m->sibling,
                        &m->list));
  COPSE_DO(copse_arena_array(&m->scratch, (size_t)s->n_trees, sizeof(int), &m->next_tree, m->err));
  COPSE_DO(COPSE_ARRAYS(&m->scratch, longest, int, m->err, &m->links, &m->copies, &m->path));
  COPSE_DO(COPSE_ARRAYS(&m->scratch, links, int, m->err, &m->copy_of, &m->stamps));
  for (int i = 0; i < s->n_nodes; i++)
    m->node_of[i] = copse_topology_find(m->topology, s->nodes[i]);
  return COPSE_OK;
}

static void end_maker(struct maker *m) { copse_arena_free(&m->scratch); }

copse_status copse_sim_dag_of_schedule(const struct copse_schedule *schedule,
                                       const struct copse_topology *topology, bool turns,
                                       struct copse_sim_dag *dag, struct copse_err *err) {
  COPSE_AT_END(end_maker)
  struct maker m = {
      .schedule = schedule, .topology = topology, .turns = turns, .dag = dag, .err = err};
  if (schedule->n_rotations > 0)
    return copse_fail(err, COPSE_INVALID, "a compact schedule must be expanded to be simulated");
  if (copse_schedule_doubles(schedule))
    return copse_fail(err, COPSE_UNSUPPORTED, "an allreduce in stages is simulated as its plan");
  COPSE_DO(set_up(&m));
  if (schedule->collective == COPSE_ALLREDUCE)
    COPSE_DO(add_allreduce(&m));
  else
    COPSE_DO(add_trees(&m));
  if (schedule->objective.far_first) COPSE_DO(copse_sim_dag_far_first(dag, err));
  for (int f = 0; f < schedule->n_flows; f++) COPSE_DO(add_flow(&m, &schedule->flows[f]));
  return COPSE_OK;
}

/* ---- what a plan's pieces are of a message ---------------------------------------------- */

/* Finds the demand of an alltoall: what each pair has, in parts of a common denominator; M is the
 * largest row. */
static copse_status demand_of(const char *label, const struct copse_plan *plan, int64_t **demand,
                              int64_t *most, struct copse_err *err) {
  int64_t n = plan->header.n_ranks, whole = 1;
  *most = 0;
  COPSE_DO(copse_calloc((size_t)(n * n), sizeof **demand, demand, err));
  for (int64_t i = 0; i < n * n; i++)
    COPSE_DO(copse_lcm(whole, plan->extents[i].den, &whole, err));
  for (int64_t r = 0; r < n; r++) {
    int64_t row = 0;
    for (int64_t i = r * n; i < (r + 1) * n; i++)
      if (copse_mul_overflows(plan->extents[i].num, whole / plan->extents[i].den, *demand + i) ||
          copse_add_overflows(row, (*demand)[i], &row))
        return copse_fail_at(err, COPSE_OVERFLOW, label, 0,
                             "the plan's demand doesn't fit 64 bits");
    if (row > *most) *most = row;
  }
  return COPSE_OK;
}

/* Computes the part of M that a piece is. */
static copse_status share_of(const struct copse_plan *plan, uint32_t p, const int64_t *demand,
                             int64_t most, struct copse_q *out, struct copse_err *err) {
  const struct copse_plan_piece *piece = &plan->pieces[p];
  const struct copse_plan_header *h = &plan->header;
  struct copse_q lo, hi, block = {1, 1};
  COPSE_DO(copse_q_make(piece->lo_num, piece->lo_den, &lo, err));
  COPSE_DO(copse_q_make(piece->hi_num, piece->hi_den, &hi, err));
  COPSE_DO(copse_q_sub(hi, lo, out, err));
  if (demand && piece->pair > 0)
    COPSE_DO(
        copse_q_make(most > 0 ? demand[piece->pair - 1] : 0, most > 0 ? most : 1, &block, err));
  else if (h->input_blocks > 1 || h->output_blocks > 1)
    block.den = h->n_ranks;
  return copse_q_mul(*out, block, out, err);
}

/* Returns the most that amounts may be counted in, so that those of all operands add up within 64
 * bits. */
static int64_t most_whole(const struct copse_plan *plan) {
  return INT64_MAX / 2 / ((int64_t)plan->header.n_operands + 1);
}

/* Computes the shares of all pieces over their least common denominator; 0: it does not fit. */
static int64_t common_whole(const struct copse_plan *plan, const int64_t *demand, int64_t most,
                            struct copse_q *shares) {
  struct copse_err none = COPSE_ERR_INIT;
  int64_t whole = 1;
  for (uint32_t p = 0; p < plan->header.n_pieces; p++)
    if (share_of(plan, p, demand, most, &shares[p], &none) != COPSE_OK ||
        copse_lcm(whole, shares[p].den, &whole, &none) != COPSE_OK || whole > most_whole(plan))
      return 0;
  return whole;
}

/*
 * Rounds amounts to the nearest of a power of two: the pieces of a demand in odd bytes have no
 * denominator in common that fits. Each is off by half a part at most, so that a link's load is
 * off by less than n_operands^2 / 2^61 of M: 5e-7 for a million operands. Only predictions count
 * in these parts.
 */
static void round_amounts(const struct copse_plan *plan, const int64_t *demand, int64_t most,
                          int64_t *amounts, int64_t *whole) {
  const struct copse_plan_header *h = &plan->header;
  for (*whole = 1; *whole <= most_whole(plan) / 2;) *whole *= 2;
  for (uint32_t p = 0; p < h->n_pieces; p++) {
    const struct copse_plan_piece *piece = &plan->pieces[p];
    long double part = (long double)piece->hi_num / piece->hi_den -
                       (long double)piece->lo_num / piece->lo_den;
    if (demand && piece->pair > 0)
      part *= most > 0 ? (long double)demand[piece->pair - 1] / most : 0;
    else if (h->input_blocks > 1 || h->output_blocks > 1)
      part /= h->n_ranks;
    amounts[p] = llroundl(part * *whole);
  }
}

copse_status copse_sim_amounts_of_plan(const char *label, const struct copse_plan *plan,
                                       struct copse_arena *arena, int64_t **amounts, int64_t *whole,
                                       int64_t **demand, struct copse_err *err) {
  const size_t n = plan->header.n_pieces;
  struct copse_q *shares = NULL;
  int64_t most = 0;
  *whole = 1;
  if (plan->header.n_extents > 0) COPSE_DO(demand_of(label, plan, demand, &most, err));
  COPSE_DO(COPSE_ARRAY(arena, n + 1, shares, err));
  COPSE_DO(COPSE_ARRAY(arena, n + 1, *amounts, err));
  *whole = common_whole(plan, *demand, most, shares);
  if (*whole > 0)
    for (uint32_t p = 0; p < n; p++) (*amounts)[p] = shares[p].num * (*whole / shares[p].den);
  else
    round_amounts(plan, *demand, most, *amounts, whole);
  return COPSE_OK;
}

/* ---- groups of ranks behind a switch ------------------------------------------------------- */

/* Finds the links from a rank to a switch and back. */
static bool find_links(const struct copse_topology *topology, int node, int rank, int *up,
                       int *down) {
  *up = copse_topology_find_link(topology, topology->rank_nodes[rank], node);
  *down = copse_topology_find_link(topology, node, topology->rank_nodes[rank]);
  return *up >= 0 && *down >= 0;
}

/* Finds a switch that copies and adds and joins all of them; of several the one whose link from the
 * hub has least to carry. -1: none. */
static int find_switch(const struct copse_topology *topology, int hub, const int *ranks, int n,
                       const int64_t *load) {
  int best = -1, best_up = -1;
  for (int node = 0; node < topology->n_nodes; node++) {
    int up, down, k = 0, hub_up;
    if (!topology->nodes[node].multicast || !topology->nodes[node].aggregation) continue;
    while (k < n && find_links(topology, node, ranks[k], &up, &down)) k++;
    if (k < n || !find_links(topology, node, hub, &hub_up, &down)) continue;
    if (best >= 0 && load[hub_up] >= load[best_up]) continue;
    best = node;
    best_up = hub_up;
  }
  return best;
}

copse_status copse_sim_dag_add_multicast(struct copse_sim_dag *dag,
                                         const struct copse_sim_multicast *m, int *ids,
                                         struct copse_err *err) {
  const int node = find_switch(m->topology, m->hub, m->ranks, m->n, m->load);
  const int copy = dag->n_copies;
  struct copse_sim_transfer t = *m->transfer;
  int hub_up, hub_down;
  if (node < 0)
    return copse_fail(err, COPSE_INFEASIBLE,
                      "the plan is multicast, and no switch of the topology that copies and adds "
                      "(\"multicast\", \"aggregation\") joins its ranks");
  (void)find_links(m->topology, node, m->hub, &hub_up, &hub_down);
  m->load[m->gathers ? hub_down : hub_up] += m->count;
  for (int k = 0; k < m->n; k++) {
    int up, down;
    (void)find_links(m->topology, node, m->ranks[k], &up, &down);
    const int links[] = {m->gathers ? up : hub_up, m->gathers ? hub_down : down};
    const int copies[] = {m->gathers ? -1 : copy, m->gathers ? copy : -1};
    t.links = links;
    t.copies = copies;
    t.n_links = 2;
    t.streams = &ids[k];
    t.n_streams = ids[k] >= 0;
    m->load[links[m->gathers ? 0 : 1]] += m->count;
    COPSE_DO(copse_sim_dag_add(dag, &t, &ids[k], err));
  }
  return COPSE_OK;
}

/* ---- shapes ------------------------------------------------------------------------------ */

/* Counts how many transfers over links lead to t by streams, t included, all of which reduce as t
 * does. */
static int level_of(const struct copse_sim_dag *dag, int t, const int *levels) {
  const struct copse_sim_item *item = &dag->items[t];
  const int *streams = copse_sim_streams(dag, t);
  int level = 0;
  for (int i = 0; i < item->n_streams; i++)
    if (dag->items[streams[i]].reduces == item->reduces && levels[streams[i]] > level)
      level = levels[streams[i]];
  return level + (item->n_links > 0);
}

copse_status copse_sim_dag_shape(const struct copse_sim_dag *dag, struct copse_sim_shape *shape,
                                 struct copse_err *err) {
  COPSE_AT_END(copse_free_at) int *levels = NULL;
  int phases[2] = {0, 0};
  *shape = (struct copse_sim_shape){0};
  COPSE_DO(copse_calloc((size_t)dag->n_transfers, sizeof *levels, &levels, err));
  for (int t = 0; t < dag->n_transfers; t++) {
    const struct copse_sim_item *item = &dag->items[t];
    int *phase = &phases[item->reduces];
    levels[t] = level_of(dag, t, levels);
    if (levels[t] > *phase) *phase = levels[t];
    shape->n_links += item->n_links;
    if (item->n_links > shape->longest) shape->longest = item->n_links;
    if (item->amount > shape->largest) shape->largest = item->amount;
  }
  shape->levels = phases[0] + phases[1];
  return COPSE_OK;
}
