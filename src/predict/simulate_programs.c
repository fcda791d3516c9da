/*
 * Programs in the simulator: native plans, MSCCL algorithms (XML) and MSCCL++ plans (JSON). Each is
 * run once, as a message of one chunk, in any order that its waits allow, with numbers of transfers
 * in place of data; every step leaves a transfer or a junction that goes on from what it reads.
 * Any order will do, since one decides for all (G. Kahn 1974): docs/theory.md,
 * "src/codegen/check/".
 */
#include "predict/simulate_programs.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "codegen/msccl/file.h"
#include "codegen/mscclpp/file.h"
#include "runtime/plan/plan_math.h"
#include "schedule/chunks.h"

/* Routes and loads while transfers are added. */
struct builder {
  const struct copse_topology *topology;
  const struct copse_routes *routes;
  struct copse_routes own; /* routes where the caller gives none */
  struct copse_sim_dag *dag;
  int64_t chunks;             /* of the message */
  int64_t *load;              /* [links] chunks */
  int n_passed, passed_by;    /* as in copse_foreign */
  struct copse_arena scratch; /* ends with builder_free */
  struct copse_err *err;
};

static copse_status builder_start(struct builder *sim, const char *label, int n_ranks, int chunks,
                                  const struct copse_topology *topology,
                                  const struct copse_routes *routes, struct copse_sim_dag *dag,
                                  struct copse_err *err) {
  *sim = (struct builder){
      .topology = topology, .routes = routes, .dag = dag, .chunks = chunks, .err = err};
  if (n_ranks != topology->n_ranks)
    return copse_fail_at(err, COPSE_BAD_INPUT, label, 0,
                         "the file is for %d ranks, the topology has %d", n_ranks,
                         topology->n_ranks);
  if (!routes) {
    COPSE_DO(copse_plan_routes_find(topology, &sim->own, err));
    sim->routes = &sim->own;
  }
  COPSE_DO(copse_arena_array(&sim->scratch, (size_t)topology->n_links, sizeof *sim->load,
                             &sim->load, err));
  return COPSE_OK;
}

static void builder_free(struct builder *sim) {
  copse_routes_free(&sim->own);
  copse_arena_free(&sim->scratch);
}

/* Adds `count` chunks from one rank to another, over a route of the pair. */
static copse_status builder_move(struct builder *sim, int src, int dst, int64_t count,
                                 const struct copse_sim_transfer *transfer, int *arrival) {
  int n;
  const int *nodes = copse_route_take(sim->topology, sim->routes, src, dst, count, sim->load, &n);
  bool passed = false;
  COPSE_DO(copse_route_require(sim->topology, src, dst, n, sim->err));
  for (int i = n - 2; i > 0; i--)
    if (sim->topology->nodes[nodes[i]].rank >= 0) sim->passed_by = nodes[i], passed = true;
  sim->n_passed += passed;
  return copse_sim_dag_add_path(sim->dag, sim->topology, nodes, n, transfer, arrival, sim->err);
}

/* Computes the busiest link's share of M over its bandwidth. */
static copse_status builder_time(const struct builder *sim, struct copse_foreign *foreign) {
  struct copse_q *time = &foreign->time_per_GB;
  foreign->n_passed = sim->n_passed;
  foreign->passed_by = sim->passed_by;
  *time = COPSE_Q_ZERO;
  for (int l = 0; l < sim->topology->n_links; l++) {
    struct copse_q share, t;
    COPSE_DO(copse_q_make(sim->load[l], sim->chunks, &share, sim->err));
    COPSE_DO(copse_q_div(share, sim->topology->links[l].bandwidth, &t, sim->err));
    if (copse_q_cmp(t, *time) <= 0) continue;
    *time = t;
    foreign->worst_link = l;
  }
  return COPSE_OK;
}

/* Memory until builder_free for n and one more. */
#define TAKE(n, array) \
  COPSE_DO(copse_arena_array(arena, (size_t)(n) + 1, sizeof *(array), &(array), w->err))

/* ---- native plans ---- */

/* A piece of an output block at a rank, which some MOVE writes. */
struct cell {
  uint32_t rank, block, piece;
  int arrival; /* the transfer that brings the data; -1: they were there from the start */
  bool written;
};

struct native {
  const struct copse_plan *plan;
  const char *label;
  struct builder sim;
  int64_t *amount;    /* [n_pieces] of M, in parts of sim.chunks */
  struct cell *cells; /* sorted, for operands in outputs */
  size_t n_cells;
  int *region;         /* [n_regions] the transfer that filled a region last; -1: none */
  bool *region_filled; /* [n_regions] */
  bool *summed;        /* [n_regions] what is in it is added to something */
  uint32_t *next;      /* [n_workers] op of its list */
  uint64_t *raised;    /* [n_channels] signals less waits */
  uint32_t *ready;     /* [n_workers] a stack of workers that may get on */
  bool *is_ready;      /* [n_workers] */
  uint32_t n_ready;
  int needs[COPSE_MOVE_MAX_OPERANDS + 1], n_needs;
  struct copse_err *err;
};

/* ---- where data lies ------------------------------------------------------------------- */

COPSE_ORDER(compare_cells, struct cell, COPSE_UP(rank) ?: COPSE_UP(block) ?: COPSE_UP(piece))

static struct cell *find_cell(const struct native *w, const struct copse_plan_operand *at,
                              uint32_t piece) {
  struct cell key = {.rank = at->rank, .block = at->index, .piece = piece};
  return bsearch(&key, w->cells, w->n_cells, sizeof key, compare_cells);
}

static bool is_region(const struct copse_plan_operand *at) {
  return at->buffer == COPSE_BUFFER_SCRATCH || at->buffer == COPSE_BUFFER_PACKETS;
}

static copse_status list_cells(struct native *w) {
  const struct copse_plan *plan = w->plan;
  COPSE_DO(copse_arena_array(&w->sim.scratch, (size_t)plan->header.n_operands + 1, sizeof *w->cells,
                             &w->cells, w->err));
  for (uint32_t i = 0; i < plan->header.n_ops; i++) {
    const struct copse_plan_op *op = &plan->ops[i];
    if (op->kind != COPSE_OP_MOVE) continue;
    const struct copse_plan_operand *at = &w->plan->operands[op->operand];
    for (uint32_t k = 0; k < op->n_src; k++)
      if (op->n_src > 1 && is_region(&at[k])) w->summed[at[k].index] = true;
    for (uint32_t k = op->n_src; k < (uint32_t)op->n_src + op->n_dst; k++)
      if (at[k].buffer == COPSE_BUFFER_OUTPUT)
        w->cells[w->n_cells++] = (struct cell){at[k].rank, at[k].index, op->piece, -1, false};
  }
  COPSE_SORT(w->cells, w->n_cells, compare_cells);
  return COPSE_OK;
}

/* ---- operations ------------------------------------------------------------------------ */

/* Adds where a source's data come from; false where nobody has written them. */
static bool add_need(struct native *w, const struct copse_plan_operand *at, uint32_t piece) {
  int arrival = -1;
  if (at->buffer == COPSE_BUFFER_OUTPUT) {
    const struct cell *cell = find_cell(w, at, piece);
    if (!cell || !cell->written) return false;
    arrival = cell->arrival;
  } else if (is_region(at)) {
    if (!w->region_filled[at->index]) return false;
    arrival = w->region[at->index];
  }
  for (int i = 0; i < w->n_needs; i++)
    if (w->needs[i] == arrival) return true;
  if (arrival >= 0) w->needs[w->n_needs++] = arrival;
  return true;
}

static void note_written(struct native *w, const struct copse_plan_operand *at, uint32_t piece,
                         int arrival) {
  if (is_region(at)) {
    w->region[at->index] = arrival;
    w->region_filled[at->index] = true;
    return;
  }
  struct cell *cell = find_cell(w, at, piece);
  cell->arrival = arrival;
  cell->written = true;
}

/* Makes the transfer of an operation. At one moment pieces in an order keep it; else a rank's
 * right-hand neighbour is served first. */
static struct copse_sim_transfer plan_transfer(const struct native *w, uint32_t op,
                                               const struct copse_plan_worker *list, uint32_t dst,
                                               int64_t parts) {
  uint32_t worker = (uint32_t)(list - w->plan->workers), n = w->plan->header.n_ranks;
  bool in_order = copse_chunks_in_order(w->plan->header.min_chunk_bytes);
  return (struct copse_sim_transfer){
      .streams = w->needs,
      .n_streams = w->n_needs,
      .amount = (double)parts / (double)w->sim.chunks,
      .order = (int)(in_order ? w->plan->ops[op].piece
                              : (op - list->first_op) * n + (dst + n - list->rank) % n),
      .worker = (int)(worker - w->plan->ranks[list->rank].first_worker)};
}

/* Joins the sources of data that the rank itself keeps into one node: the data are there when all
 * sources are. */
static copse_status join_needs(struct native *w, uint32_t op,
                               const struct copse_plan_worker *list) {
  struct copse_sim_transfer t =
      plan_transfer(w, op, list, list->rank, w->amount[w->plan->ops[op].piece]);
  if (w->n_needs < 2) return COPSE_OK;
  w->n_needs = 1;
  return copse_sim_dag_add(w->sim.dag, &t, &w->needs[0], w->err);
}

/* Adds the sources of a reduce-load: all come through the switch, which sums them. */
static copse_status load_group(struct native *w, const struct copse_plan_worker *list, uint32_t i) {
  const struct copse_plan_op *op = &w->plan->ops[i];
  const struct copse_plan_operand *at = &w->plan->operands[op->operand];
  struct copse_sim_transfer t = plan_transfer(w, i, list, list->rank, w->amount[op->piece]);
  int ranks[COPSE_MOVE_MAX_OPERANDS], ids[COPSE_MOVE_MAX_OPERANDS];
  for (uint32_t k = 0; k < op->n_src; k++) {
    ranks[k] = (int)at[k].rank;
    ids[k] = w->region[at[k].index];
  }
  const struct copse_sim_multicast gather = {
      w->sim.topology,      &t,         ranks, op->n_src, (int)list->rank, true,
      w->amount[op->piece], w->sim.load};
  COPSE_DO(copse_sim_dag_add_multicast(w->sim.dag, &gather, ids, w->err));
  memcpy(w->needs, ids, op->n_src * sizeof *ids);
  w->n_needs = op->n_src;
  return join_needs(w, i, list);
}

/* Adds the destinations of a group store, which the switch copies to. */
static copse_status store_group(struct native *w, const struct copse_plan_worker *list,
                                uint32_t i) {
  const struct copse_plan_op *op = &w->plan->ops[i];
  const struct copse_plan_operand *dst = &w->plan->operands[op->operand] + op->n_src;
  struct copse_sim_transfer t = plan_transfer(w, i, list, list->rank, w->amount[op->piece]);
  int ranks[COPSE_MOVE_MAX_OPERANDS], ids[COPSE_MOVE_MAX_OPERANDS];
  for (uint32_t k = 0; k < op->n_dst; k++) {
    ranks[k] = (int)dst[k].rank;
    ids[k] = w->n_needs > 0 ? w->needs[0] : -1;
  }
  const struct copse_sim_multicast store = {
      w->sim.topology,      &t,         ranks, op->n_dst, (int)list->rank, false,
      w->amount[op->piece], w->sim.load};
  COPSE_DO(copse_sim_dag_add_multicast(w->sim.dag, &store, ids, w->err));
  for (uint32_t k = 0; k < op->n_dst; k++) note_written(w, &dst[k], op->piece, ids[k]);
  return COPSE_OK;
}

static copse_status do_move(struct native *w, const struct copse_plan_worker *list, uint32_t i) {
  uint32_t rank = list->rank;
  const struct copse_plan_op *op = &w->plan->ops[i];
  const struct copse_plan_operand *at = &w->plan->operands[op->operand], *dst = at + op->n_src;
  bool keeps = false;
  w->n_needs = 0;
  for (uint32_t k = 0; k < op->n_src; k++)
    if (!add_need(w, &at[k], op->piece))
      return copse_fail_at(w->err, COPSE_REFUTED, w->label, 0,
                           "operation %u reads what none has written; 'copse check' says more", i);
  if (op->flags & COPSE_MOVE_REDUCE_LOAD) COPSE_DO(load_group(w, list, i));
  if (op->flags & COPSE_MOVE_GROUP_STORE) return store_group(w, list, i);
  for (uint32_t k = 0; k < op->n_dst; k++) keeps = keeps || dst[k].rank == rank;
  if (keeps) COPSE_DO(join_needs(w, i, list));
  for (uint32_t k = 0; k < op->n_dst; k++) {
    int arrival = w->n_needs > 0 ? w->needs[0] : -1;
    int64_t parts = w->amount[op->piece] * (dst[k].buffer == COPSE_BUFFER_PACKETS ? 2 : 1);
    struct copse_sim_transfer t = plan_transfer(w, i, list, dst[k].rank, parts);
    t.reduces = is_region(&dst[k]) && w->summed[dst[k].index];
    if (dst[k].rank != rank)
      COPSE_DO(builder_move(&w->sim, (int)rank, (int)dst[k].rank, parts, &t, &arrival));
    note_written(w, &dst[k], op->piece, arrival);
  }
  return COPSE_OK;
}

static void wake(struct native *w, uint32_t worker) {
  if (!w->is_ready[worker]) w->ready[w->n_ready++] = worker;
  w->is_ready[worker] = true;
}

/* Runs one worker until it has to wait. */
static copse_status run_worker(struct native *w, uint32_t worker) {
  const struct copse_plan_worker *list = &w->plan->workers[worker];
  for (; w->next[worker] < list->n_ops; w->next[worker]++) {
    uint32_t i = list->first_op + w->next[worker];
    const struct copse_plan_op *op = &w->plan->ops[i];
    if (!copse_op_runs(op->when, 0, 1, w->plan->header.fifo)) continue;
    if (op->kind == COPSE_OP_WAIT && w->raised[op->channel] == 0) return COPSE_OK;
    if (op->kind == COPSE_OP_WAIT) w->raised[op->channel]--;
    if (op->kind == COPSE_OP_SIGNAL) {
      w->raised[op->channel]++;
      wake(w, w->plan->channels[op->channel].dst_worker);
    }
    if (op->kind == COPSE_OP_MOVE) COPSE_DO(do_move(w, list, i));
  }
  return COPSE_OK;
}

/* Runs as a message of one chunk does; the simulator cuts the transfers. */
static copse_status run_all(struct native *w) {
  uint32_t n = w->plan->header.n_workers;
  for (uint32_t i = n; i > 0; i--) wake(w, i - 1);
  while (w->n_ready > 0) {
    uint32_t worker = w->ready[--w->n_ready];
    w->is_ready[worker] = false;
    COPSE_DO(run_worker(w, worker));
  }
  for (uint32_t i = 0; i < n; i++)
    if (w->next[i] < w->plan->workers[i].n_ops)
      return copse_fail_at(w->err, COPSE_REFUTED, w->label, 0,
                           "operation %u waits forever; 'copse check' says more",
                           w->plan->workers[i].first_op + w->next[i]);
  return COPSE_OK;
}

static copse_status start_native(struct native *w) {
  struct copse_arena *arena = &w->sim.scratch;
  const struct copse_plan_header *h = &w->plan->header;
  TAKE(h->n_regions, w->region);
  TAKE(h->n_regions, w->region_filled);
  TAKE(h->n_regions, w->summed);
  TAKE(h->n_workers, w->next);
  TAKE(h->n_workers, w->ready);
  TAKE(h->n_workers, w->is_ready);
  TAKE(h->n_channels, w->raised);
  return list_cells(w);
}

copse_status copse_sim_dag_of_plan(const char *label, const struct copse_plan *plan,
                                   const struct copse_topology *topology,
                                   const struct copse_routes *routes, struct copse_sim_dag *dag,
                                   struct copse_foreign *foreign, struct copse_err *err) {
  struct native w = {.plan = plan, .label = label, .err = err};
  copse_status status;
  foreign->collective = (copse_collective)plan->header.collective;
  foreign->root = plan->header.root;
  COPSE_TRY(builder_start(&w.sim, label, (int)plan->header.n_ranks, 1, topology, routes, dag, err));
  COPSE_TRY(copse_sim_amounts_of_plan(label, plan, &w.sim.scratch, &w.amount, &w.sim.chunks,
                                      &foreign->demand, err));
  COPSE_TRY(start_native(&w));
  COPSE_TRY(run_all(&w));
  if (plan->header.min_chunk_bytes == COPSE_FAR_FIRST_CHUNK_BYTES)
    COPSE_TRY(copse_sim_dag_far_first(dag, err));
  COPSE_TRY(builder_time(&w.sim, foreign));
out:
  builder_free(&w.sim);
  return status;
}

/* Transfers and junctions, first in, first out: those under way in a connection, and what signals,
 * packets or releases stand for. */
struct nodes {
  int *v;
  size_t first, n, capacity;
};

static copse_status push(struct builder *b, struct nodes *list, int node) {
  return COPSE_PUSH_IN(&b->scratch, list->v, list->n, list->capacity, b->err, node);
}

/* ---- MSCCL ---- */

struct msccl {
  struct copse_mx_file file;
  struct builder sim;
  struct nodes *arrivals; /* [connections] */
  int **done;             /* [tb][op] the transfer or join that ends it */
  int *next;              /* [tb] op */
  int *streams;           /* [longest list of waits + 2] */
  struct copse_err *err;
};

static bool can_start(const struct msccl *w, const struct copse_mx_tb *tb,
                      const struct copse_mx_run_op *op) {
  for (int i = 0; i < op->n_waits; i++)
    if (w->next[op->waits[i].tb] <= op->waits[i].op) return false;
  if (!copse_mx_types[op->step->op].receives) return true;
  const struct nodes *in = &w->arrivals[tb->in];
  return in->first < in->n;
}

/* Places one step: joins the transfers that the step waits for, and lets its own transfer stream
 * from them. */
static copse_status place_step(struct msccl *w, int t, const struct copse_mx_run_op *op) {
  const struct copse_mx_tb *tb = &w->file.tbs[t];
  const struct copse_mx_type *type = &copse_mx_types[op->step->op];
  int n = 0, *done = &w->done[t][w->next[t]], arrival;
  if (w->next[t] > 0) w->streams[n++] = done[-1];
  for (int i = 0; i < op->n_waits; i++) w->streams[n++] = w->done[op->waits[i].tb][op->waits[i].op];
  if (type->receives) {
    struct nodes *in = &w->arrivals[tb->in];
    w->streams[n++] = in->v[in->first++];
  }
  struct copse_sim_transfer join = {.streams = w->streams,
                                    .n_streams = n,
                                    .amount = (double)op->step->count / w->file.chunks,
                                    .reduces = type->adds,
                                    .adder = tb->gpu};
  COPSE_DO(copse_sim_dag_add(w->sim.dag, &join, done, w->err));
  for (int i = 1; i < op->n_steps; i++) { /* adds that one operation makes, one after the other */
    join.streams = done;
    join.n_streams = 1;
    COPSE_DO(copse_sim_dag_add(w->sim.dag, &join, done, w->err));
  }
  if (type->sends) {
    struct nodes *out = &w->arrivals[tb->out];
    struct copse_sim_transfer sent = {.streams = done,
                                      .n_streams = 1,
                                      .amount = join.amount,
                                      .order = op->first,
                                      .worker = tb->id % COPSE_SIM_MAX_WORKERS};
    COPSE_DO(builder_move(&w->sim, tb->gpu, tb->send, op->step->count, &sent, &arrival));
    COPSE_DO(push(&w->sim, out, arrival));
  }
  w->next[t]++;
  return COPSE_OK;
}

static copse_status run_blocks(struct msccl *w) {
  const struct copse_mx_file *p = &w->file;
  bool progress = true;
  while (progress) {
    progress = false;
    for (int t = 0; t < p->n_tbs; t++)
      while (w->next[t] < p->tbs[t].n_ops && can_start(w, &p->tbs[t], &p->tbs[t].ops[w->next[t]])) {
        COPSE_DO(place_step(w, t, &p->tbs[t].ops[w->next[t]]));
        progress = true;
      }
  }
  for (int t = 0; t < p->n_tbs; t++)
    if (w->next[t] < p->tbs[t].n_ops)
      return copse_fail_at(w->err, COPSE_REFUTED, p->label, p->tbs[t].ops[w->next[t]].step->line,
                           "gpu %d tb %d step %d waits forever; 'copse check' says more",
                           p->tbs[t].gpu, p->tbs[t].id, p->tbs[t].ops[w->next[t]].first);
  return COPSE_OK;
}

static copse_status start_msccl(struct msccl *w) {
  struct copse_arena *arena = &w->sim.scratch;
  const struct copse_mx_file *p = &w->file;
  TAKE(p->n_connections, w->arrivals);
  TAKE(p->n_tbs, w->done);
  TAKE(p->n_tbs, w->next);
  TAKE(64 + 2, w->streams); /* steps of a block */
  for (int t = 0; t < p->n_tbs; t++)
    COPSE_DO(copse_arena_array(arena, (size_t)p->tbs[t].n_ops, sizeof(int), &w->done[t], w->err));
  return COPSE_OK;
}

copse_status copse_sim_dag_of_msccl(const char *label, const char *data, size_t size,
                                    const struct copse_topology *topology,
                                    struct copse_sim_dag *dag, struct copse_foreign *foreign,
                                    struct copse_err *err) {
  struct msccl w = {.err = err};
  copse_status status;
  COPSE_TRY(copse_mx_parse(label, data, size, &w.file, err));
  foreign->collective = w.file.collective;
  foreign->root = copse_collective_rooted(w.file.collective) ? 0 : -1;
  COPSE_TRY(builder_start(&w.sim, label, w.file.n_ranks, w.file.chunks, topology, NULL, dag, err));
  COPSE_TRY(copse_mx_fold(&w.file, err));
  COPSE_TRY(start_msccl(&w));
  COPSE_TRY(run_blocks(&w));
  COPSE_TRY(builder_time(&w.sim, foreign));
out:
  builder_free(&w.sim);
  copse_arena_free(&w.file.arena);
  return status;
}

/* ---- MSCCL++ ---- */

struct mscclpp {
  struct copse_pj_file file;
  struct builder sim;
  int *next;              /* [blocks] op */
  int *last;              /* [blocks] the node that ends the op before, -1: none */
  int *stream_end;        /* [blocks] ops before this one run part by part */
  struct nodes *signals;  /* [ends] */
  int *port_last;         /* [ends] what went through the port last, -1: nothing */
  struct nodes *released; /* [semaphores] */
  int *acquired;          /* [semaphores] */
  int **packets; /* [ranks][scratch chunks] the transfer that wrote a chunk; -1: none yet */
  struct nodes needs;     /* of the op at hand */
  struct copse_err *err;
};

static copse_status need(struct mscclpp *w, int node) {
  return node < 0 ? COPSE_OK : push(&w->sim, &w->needs, node);
}

/* Returns what the op at hand adds to the graph: after, or part by part with, all that it needs. */
static struct copse_sim_transfer transfer(const struct mscclpp *w, int block, double amount) {
  bool streams = w->next[block] < w->stream_end[block];
  int n = (int)w->needs.n;
  return (struct copse_sim_transfer){.after = w->needs.v,
                                     .n_after = streams ? 0 : n,
                                     .streams = w->needs.v,
                                     .n_streams = streams ? n : 0,
                                     .amount = amount,
                                     .order = w->next[block],
                                     .worker = w->file.blocks[block].id % COPSE_SIM_MAX_WORKERS};
}

static copse_status join(struct mscclpp *w, int block, double amount, bool adds) {
  struct copse_sim_transfer t = transfer(w, block, amount);
  t.reduces = adds;
  t.adder = w->file.blocks[block].rank;
  copse_status status = copse_sim_dag_add(w->sim.dag, &t, &w->last[block], w->err);
  w->needs.n = 0;
  return status;
}

/* ---- data ------------------------------------------------------------------------------ */

static bool is_packet(const struct copse_pj_op *op, bool pkt, int i) {
  return pkt && (i > 0 || op->type->kind == COPSE_PJ_MOVE || op->n_src == 1);
}

static bool packets_there(const struct mscclpp *w, const struct copse_pj_op *op) {
  for (int i = 0; i < op->n_src; i++)
    for (int j = 0; is_packet(op, op->type->pkt_src, i) && j < op->src[i].size; j++)
      if (w->packets[op->src[i].rank][op->src[i].index + j] < 0) return false;
  return true;
}

/* Checks what the checker would refute, and what would lead astray here. */
static copse_status check_op(const struct mscclpp *w, int block, const struct copse_pj_op *op) {
  const char *what = op->n_src == 0 || op->n_dst == 0 ? "lacks a source or destination" : NULL;
  int own = w->file.blocks[block].rank;
  for (int i = 0; i < op->n_src + op->n_dst; i++) {
    bool dst = i >= op->n_src;
    const struct copse_pj_place *at = dst ? &op->dst[i - op->n_src] : &op->src[i];
    bool packet =
        dst ? is_packet(op, op->type->pkt_dst, i - op->n_src) : is_packet(op, op->type->pkt_src, i);
    if (at->rank < 0) what = "can't go through a switch channel";
    if (packet && at->rank >= 0 &&
        (at->index + at->size > w->file.scratch[at->rank] || (!dst && at->rank != own)))
      what = "uses packets that are not in scratch";
  }
  for (int i = 0; i < op->n_ends; i++)
    if (op->type->signals && w->file.ends[op->ends[i]].partner < 0)
      what = "signals a peer that has no such channel back";
  if (!what) return COPSE_OK;
  return copse_fail_at(w->err, COPSE_REFUTED, w->file.label, op->line, "gpu %d tb %d op %d (%s) %s",
                       own, w->file.blocks[block].id, w->next[block], op->type->name, what);
}

/* Returns how often an op names the i-th of its channels or semaphores before. */
static int named_before(const struct copse_pj_op *op, int i) {
  int n = 0;
  for (int k = 0; k < i; k++) n += op->ends[k] == op->ends[i];
  return n;
}

/* Carries to or from another rank, after what the op needs so far. */
static copse_status carry(struct mscclpp *w, int block, const struct copse_pj_op *op, int src,
                          int dst, int size, int *arrival) {
  struct copse_sim_transfer t =
      transfer(w, block, (double)size / op->parts / (double)w->sim.chunks);
  return builder_move(&w->sim, src, dst, size, &t, arrival);
}

static copse_status read_sources(struct mscclpp *w, int block, const struct copse_pj_op *op) {
  int own = w->file.blocks[block].rank, arrival, count = (int)w->needs.n;
  int arrivals[COPSE_PJ_MAX_PLACES], n = 0;
  for (int i = 0; i < op->n_src; i++) {
    for (int j = 0; is_packet(op, op->type->pkt_src, i) && j < op->src[i].size; j++)
      COPSE_DO(need(w, w->packets[own][op->src[i].index + j]));
    if (op->src[i].rank == own) continue;
    COPSE_DO(carry(w, block, op, op->src[i].rank, own, op->src[i].size, &arrival));
    arrivals[n++] = arrival;
  }
  for (int i = 0; i < n; i++) COPSE_DO(need(w, arrivals[i]));
  bool adds = op->type->kind == COPSE_PJ_SUM;
  int joins = adds ? op->n_src - 1 : (int)w->needs.n > count;
  for (int i = 0; i < joins; i++) { /* what is written comes after what was read and added */
    COPSE_DO(join(w, block, (double)op->src[0].size / op->parts / (double)w->sim.chunks, adds));
    COPSE_DO(need(w, w->last[block]));
  }
  return COPSE_OK;
}

static copse_status do_data(struct mscclpp *w, int block, const struct copse_pj_op *op) {
  int own = w->file.blocks[block].rank, arrivals[COPSE_PJ_MAX_PLACES], n = 0, arrival;
  bool port = op->channel == COPSE_PJ_PORT;
  COPSE_DO(need(w, w->last[block]));
  COPSE_DO(read_sources(w, block, op));
  for (int i = 0; i < op->n_dst; i++) {
    const struct copse_pj_place *at = &op->dst[i];
    arrival = w->last[block];
    if (at->rank != own) {
      const int twice = is_packet(op, op->type->pkt_dst, i) ? 2 : 1; /* as many flags as data */
      COPSE_DO(carry(w, block, op, own, at->rank, twice * at->size, &arrival));
      if (!port) arrivals[n++] = arrival;
      if (port && i < op->n_ends) w->port_last[op->ends[i]] = arrival;
    }
    if (!is_packet(op, op->type->pkt_dst, i)) continue;
    if (arrival < 0) { /* the rank's own packets, made at once */
      COPSE_DO(join(w, block, 0, false));
      arrival = w->last[block];
    }
    for (int j = 0; j < at->size && at->index + j < w->file.scratch[at->rank]; j++)
      w->packets[at->rank][at->index + j] = arrival;
  }
  for (int i = 0; i < n && !op->type->pkt_dst; i++) COPSE_DO(need(w, arrivals[i]));
  if (n > 0 && !op->type->pkt_dst)
    COPSE_DO(join(w, block, (double)op->dst[0].size / op->parts / (double)w->sim.chunks, false));
  for (int i = 0; i < op->n_ends && op->type->signals && port; i++)
    COPSE_DO(
        push(&w->sim, &w->signals[w->file.ends[op->ends[i]].partner], w->port_last[op->ends[i]]));
  w->needs.n = 0;
  return COPSE_OK;
}

/* Does glres, the switch's sum over its members stored to all of them, or gstore, a rank's own
 * chunk stored to all. */
static copse_status do_multimem(struct mscclpp *w, int block, const struct copse_pj_op *op) {
  const struct copse_pj_place *src = &op->src[0], *dst = &op->dst[0];
  const int own = w->file.blocks[block].rank, n = dst->n_members;
  int *ids = NULL;
  COPSE_DO(need(w, w->last[block]));
  if (op->n_src == 0 || op->n_dst == 0 || dst->rank >= 0 || (src->rank < 0 && src->n_members != n))
    return copse_fail_at(w->err, COPSE_REFUTED, w->file.label, op->line,
                         "%s needs a switch channel as destination", op->type->name);
  struct copse_sim_transfer t =
      transfer(w, block, (double)dst->size / op->parts / (double)w->sim.chunks);
  if (w->needs.n > 0) COPSE_DO(join(w, block, t.amount, false));
  t.n_after = 0;
  COPSE_DO(copse_arena_array(&w->sim.scratch, (size_t)n, sizeof *ids, &ids, w->err));
  for (int stores = src->rank >= 0; stores < 2; stores++) {
    for (int k = 0; k < n; k++) ids[k] = w->last[block];
    const struct copse_sim_multicast multicast = {w->sim.topology, &t,        dst->members, n, own,
                                                  !stores,         dst->size, w->sim.load};
    COPSE_DO(copse_sim_dag_add_multicast(w->sim.dag, &multicast, ids, w->err));
    t.streams = ids;
    t.n_streams = n;
    t.n_links = 0;
    COPSE_DO(copse_sim_dag_add(w->sim.dag, &t, &w->last[block], w->err));
  }
  return COPSE_OK;
}

/* ---- waiting --------------------------------------------------------------------------- */

static copse_status do_sync(struct mscclpp *w, int block, const struct copse_pj_op *op,
                            bool *done) {
  *done = true;
  for (int i = 0; i < op->n_ends && op->type->waits; i++) {
    const struct nodes *in = &w->signals[op->ends[i]];
    if (in->first + (size_t)named_before(op, i) >= in->n) *done = false;
  }
  if (!*done) return COPSE_OK;
  if (op->type->waits) COPSE_DO(need(w, w->last[block]));
  for (int i = 0; i < op->n_ends; i++) {
    struct nodes *in = &w->signals[op->ends[i]];
    int partner = w->file.ends[op->ends[i]].partner, node = w->last[block];
    if (op->type->waits) {
      COPSE_DO(need(w, in->v[in->first++]));
      continue;
    }
    if (op->channel == COPSE_PJ_PORT && w->port_last[op->ends[i]] > node)
      node = w->port_last[op->ends[i]];
    if (partner >= 0) COPSE_DO(push(&w->sim, &w->signals[partner], node));
  }
  if (op->type->waits && w->needs.n > 0)
    COPSE_DO(join(w, block, 1.0 / (double)w->sim.chunks, false));
  return COPSE_OK;
}

static copse_status do_semaphores(struct mscclpp *w, int block, const struct copse_pj_op *op,
                                  bool *done) {
  bool acquires = op->type->kind == COPSE_PJ_ACQUIRE;
  *done = true;
  for (int i = 0; i < op->n_ends && acquires; i++)
    if (w->acquired[op->ends[i]] + named_before(op, i) >=
        w->file.semaphores[op->ends[i]] + (int)w->released[op->ends[i]].n)
      *done = false;
  if (!*done) return COPSE_OK;
  if (acquires) COPSE_DO(need(w, w->last[block]));
  for (int i = 0; i < op->n_ends; i++) {
    struct nodes *r = &w->released[op->ends[i]];
    if (!acquires) {
      COPSE_DO(push(&w->sim, r, w->last[block]));
      continue;
    }
    int taken = w->acquired[op->ends[i]]++ - w->file.semaphores[op->ends[i]];
    if (taken >= 0) COPSE_DO(need(w, r->v[taken]));
  }
  if (acquires && w->needs.n > 0) COPSE_DO(join(w, block, 1.0 / (double)w->sim.chunks, false));
  return COPSE_OK;
}

/* Does a barrier: the last to come joins all and moves them on. */
static copse_status do_barrier(struct mscclpp *w, int block, const struct copse_pj_op *op,
                               bool *done) {
  int rank = w->file.blocks[block].rank, n = 0;
  for (int pass = 0; pass < 2; pass++)
    for (int b = w->file.first_block[rank]; b < w->file.first_block[rank + 1]; b++) {
      const struct copse_pj_block *other = &w->file.blocks[b];
      if (w->next[b] >= other->n_ops) continue;
      const struct copse_pj_op *at = &other->ops[w->next[b]];
      if (at->type->kind != COPSE_PJ_BARRIER || at->barrier != op->barrier) continue;
      n += pass == 0;
      if (pass == 0 || n < op->barrier_blocks) continue;
      COPSE_DO(need(w, w->last[b]));
    }
  *done = n >= op->barrier_blocks;
  if (!*done) return COPSE_OK;
  if (w->needs.n > 0) COPSE_DO(join(w, block, 0, false));
  for (int b = w->file.first_block[rank]; b < w->file.first_block[rank + 1]; b++) {
    const struct copse_pj_block *other = &w->file.blocks[b];
    if (b == block || w->next[b] >= other->n_ops) continue;
    const struct copse_pj_op *at = &other->ops[w->next[b]];
    if (at->type->kind != COPSE_PJ_BARRIER || at->barrier != op->barrier) continue;
    w->last[b] = w->last[block];
    w->next[b]++;
  }
  return COPSE_OK;
}

/* ---- all together ---------------------------------------------------------------------- */

static copse_status place_op(struct mscclpp *w, int block, const struct copse_pj_op *op,
                             bool *done) {
  *done = true;
  switch (op->type->kind) {
    case COPSE_PJ_NOP:
    case COPSE_PJ_FLUSH: return COPSE_OK;
    case COPSE_PJ_PIPELINE:
      w->stream_end[block] = w->next[block] + 1 + op->n_inner;
      return COPSE_OK;
    case COPSE_PJ_SYNC: return do_sync(w, block, op, done);
    case COPSE_PJ_BARRIER: return do_barrier(w, block, op, done);
    case COPSE_PJ_ACQUIRE:
    case COPSE_PJ_RELEASE: return do_semaphores(w, block, op, done);
    case COPSE_PJ_MULTIMEM: return do_multimem(w, block, op);
    default: break;
  }
  COPSE_DO(check_op(w, block, op));
  *done = packets_there(w, op);
  return *done ? do_data(w, block, op) : COPSE_OK;
}

static copse_status run_plan(struct mscclpp *w) {
  bool progress = true;
  while (progress) {
    progress = false;
    for (int b = 0; b < w->file.n_blocks; b++)
      for (bool done = true; done && w->next[b] < w->file.blocks[b].n_ops;) {
        COPSE_DO(place_op(w, b, &w->file.blocks[b].ops[w->next[b]], &done));
        w->next[b] += done;
        progress = progress || done;
      }
  }
  for (int b = 0; b < w->file.n_blocks; b++)
    if (w->next[b] < w->file.blocks[b].n_ops)
      return copse_fail_at(w->err, COPSE_REFUTED, w->file.label,
                           w->file.blocks[b].ops[w->next[b]].line,
                           "gpu %d tb %d op %d waits forever; 'copse check' says more",
                           w->file.blocks[b].rank, w->file.blocks[b].id, w->next[b]);
  return COPSE_OK;
}

static copse_status start_mscclpp(struct mscclpp *w) {
  struct copse_arena *arena = &w->sim.scratch;
  const struct copse_pj_file *f = &w->file;
  size_t n = (size_t)f->n_blocks;
  TAKE(n, w->next);
  TAKE(n, w->last);
  TAKE(n, w->stream_end);
  TAKE(f->n_ends, w->signals);
  TAKE(f->n_ends, w->port_last);
  TAKE(f->n_semaphores, w->released);
  TAKE(f->n_semaphores, w->acquired);
  TAKE(f->n_ranks, w->packets);
  for (int b = 0; b < f->n_blocks; b++) w->last[b] = -1;
  for (int e = 0; e < f->n_ends; e++) w->port_last[e] = -1;
  for (int r = 0; r < f->n_ranks; r++) {
    COPSE_DO(
        copse_arena_array(arena, (size_t)f->scratch[r] + 1, sizeof(int), &w->packets[r], w->err));
    for (int i = 0; i < f->scratch[r]; i++) w->packets[r][i] = -1;
  }
  return COPSE_OK;
}

copse_status copse_sim_dag_of_mscclpp(const char *label, const char *data, size_t size,
                                      const struct copse_topology *topology,
                                      struct copse_sim_dag *dag, struct copse_foreign *foreign,
                                      struct copse_err *err) {
  struct mscclpp w = {.err = err};
  copse_status status;
  COPSE_TRY(copse_pj_parse(label, data, size, &w.file, err));
  foreign->collective = w.file.collective;
  foreign->root = -1;
  COPSE_TRY(builder_start(&w.sim, label, w.file.n_ranks, w.file.chunks, topology, NULL, dag, err));
  COPSE_TRY(start_mscclpp(&w));
  COPSE_TRY(run_plan(&w));
  COPSE_TRY(builder_time(&w.sim, foreign));
out:
  builder_free(&w.sim);
  copse_arena_free(&w.file.arena);
  return status;
}
