/*
 * Foreign programs in the simulator: MSCCL algorithms (XML) and MSCCL++ plans (JSON). Each is run
 * once, as a message of one chunk, in any order that its waits allow; every step leaves a transfer
 * or a junction that streams from, or comes after, those that brought what it reads. Sources: the
 * formats' own readers, codegen/msccl and codegen/mscclpp.
 */
#include <stdlib.h>

#include "base/memory.h"
#include "codegen/msccl/operations.h"
#include "codegen/mscclpp/file.h"
#include "predict/simulate_programs.h"

copse_status copse_foreign_sim_start(struct copse_foreign_sim *sim, const char *label, int n_ranks,
                                     int chunks, const struct copse_topology *topology,
                                     struct copse_sim_dag *dag, struct copse_err *err) {
  struct copse_hosts hosts = {0};
  copse_status status;
  *sim = (struct copse_foreign_sim){.topology = topology, .dag = dag, .chunks = chunks, .err = err};
  if (n_ranks != topology->n_ranks)
    return copse_fail_at(err, COPSE_BAD_INPUT, label, 0,
                         "the file is for %d ranks, the topology has %d", n_ranks,
                         topology->n_ranks);
  COPSE_TRY(copse_hosts_find(topology, &hosts, err));
  COPSE_TRY(copse_routes_find(topology, &hosts, &sim->routes, err));
  COPSE_TRY(copse_arena_array(&sim->scratch, (size_t)topology->n_links, sizeof *sim->load,
                              &sim->load, err));
out:
  copse_hosts_free(&hosts);
  return status;
}

void copse_foreign_sim_free(struct copse_foreign_sim *sim) {
  copse_routes_free(&sim->routes);
  copse_arena_free(&sim->scratch);
}

copse_status copse_foreign_sim_move(struct copse_foreign_sim *sim, int src, int dst, int64_t count,
                                    const struct copse_sim_transfer *transfer, int *arrival) {
  const struct copse_topology *t = sim->topology;
  int n;
  const int *nodes = copse_route(&sim->routes, src, dst, &n);
  for (int i = 0; i + 1 < n; i++)
    sim->load[copse_topology_find_link(t, nodes[i], nodes[i + 1])] += count;
  return copse_sim_dag_add_path(sim->dag, t, nodes, n, transfer, arrival, sim->err);
}

copse_status copse_foreign_sim_time(const struct copse_foreign_sim *sim, struct copse_q *time) {
  *time = COPSE_Q_ZERO;
  for (int l = 0; l < sim->topology->n_links; l++) {
    struct copse_q share, t;
    COPSE_DO(copse_q_make(sim->load[l], sim->chunks, &share, sim->err));
    COPSE_DO(copse_q_div(share, sim->topology->links[l].bandwidth, &t, sim->err));
    if (copse_q_cmp(t, *time) > 0) *time = t;
  }
  return COPSE_OK;
}

/* Transfers and junctions, first in, first out: those under way in a connection, and what signals,
 * packets or releases stand for. */
struct nodes {
  int *v;
  size_t first, n, capacity;
};

static copse_status push(struct nodes *list, int node, struct copse_err *err) {
  copse_status status = copse_grow(&list->v, &list->capacity, list->n + 1, sizeof *list->v, err);
  if (status == COPSE_OK) list->v[list->n++] = node;
  return status;
}

/* ---- MSCCL ---- */

struct msccl {
  struct copse_mx_operations program;
  struct copse_foreign_sim sim;
  struct nodes *arrivals; /* [connections] */
  int **done;             /* [tb][op] the transfer or join that ends it */
  int *next;              /* [tb] op */
  int *streams;           /* [longest list of waits + 2] */
  struct copse_err *err;
};

static bool can_start(const struct msccl *w, const struct copse_mx_run_tb *tb,
                      const struct copse_mx_run_op *op) {
  for (int i = 0; i < op->n_waits; i++)
    if (w->next[op->waits[i].tb] <= op->waits[i].op) return false;
  if (!copse_mx_types[op->step->op].receives) return true;
  const struct nodes *in = &w->arrivals[tb->in];
  return in->first < in->n;
}

/* One step: it joins what it waits for, and what it sends goes on from there. */
static copse_status place_step(struct msccl *w, int t, const struct copse_mx_run_op *op) {
  const struct copse_mx_run_tb *tb = &w->program.tbs[t];
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
                                    .amount = (double)op->step->count / w->program.file->chunks,
                                    .reduces = type->adds,
                                    .adder = tb->gpu};
  COPSE_DO(copse_sim_dag_add(w->sim.dag, &join, done, w->err));
  for (int i = 1; i < op->n_steps; i++) { /* sums that are one operation */
    join.streams = done;
    join.n_streams = 1;
    COPSE_DO(copse_sim_dag_add(w->sim.dag, &join, done, w->err));
  }
  if (type->sends) {
    struct nodes *out = &w->arrivals[tb->out];
    struct copse_sim_transfer sent = {
        .streams = done, .n_streams = 1, .amount = join.amount, .order = op->first};
    COPSE_DO(
        copse_foreign_sim_move(&w->sim, tb->gpu, tb->tb->send, op->step->count, &sent, &arrival));
    COPSE_DO(push(out, arrival, w->err));
  }
  w->next[t]++;
  return COPSE_OK;
}

static copse_status run_blocks(struct msccl *w) {
  const struct copse_mx_operations *p = &w->program;
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
      return copse_fail_at(w->err, COPSE_REFUTED, p->file->label,
                           p->tbs[t].ops[w->next[t]].step->line,
                           "gpu %d tb %d step %d waits forever; 'copse check' says more",
                           p->tbs[t].gpu, p->tbs[t].id, p->tbs[t].ops[w->next[t]].first);
  return COPSE_OK;
}

static copse_status start_msccl(struct msccl *w) {
  const struct copse_mx_operations *p = &w->program;
  COPSE_DO(copse_arena_array(&w->sim.scratch, (size_t)p->n_connections, sizeof *w->arrivals,
                             &w->arrivals, w->err));
  COPSE_DO(copse_arena_array(&w->sim.scratch, (size_t)p->n_tbs, sizeof *w->done, &w->done, w->err));
  COPSE_DO(copse_arena_array(&w->sim.scratch, (size_t)p->n_tbs, sizeof *w->next, &w->next, w->err));
  COPSE_DO(copse_arena_array(&w->sim.scratch, 64 + 2, sizeof *w->streams, &w->streams,
                             w->err)); /* steps of a block */
  for (int t = 0; t < p->n_tbs; t++)
    COPSE_DO(copse_arena_array(&w->sim.scratch, (size_t)p->tbs[t].n_ops, sizeof(int), &w->done[t],
                               w->err));
  return COPSE_OK;
}

static void free_msccl(struct msccl *w) {
  for (int i = 0; w->arrivals && i < w->program.n_connections; i++) free(w->arrivals[i].v);
  copse_foreign_sim_free(&w->sim);
}

copse_status copse_sim_dag_of_msccl(const char *label, const char *data, size_t size,
                                    const struct copse_topology *topology,
                                    struct copse_sim_dag *dag, struct copse_foreign *foreign,
                                    struct copse_err *err) {
  struct msccl w = {.err = err};
  struct copse_mx_file file;
  copse_status status = copse_mx_parse(label, data, size, &file, err);
  if (status != COPSE_OK) return status;
  foreign->collective = file.collective;
  foreign->root = copse_collective_rooted(file.collective) ? 0 : -1;
  COPSE_TRY(copse_foreign_sim_start(&w.sim, label, file.n_ranks, file.chunks, topology, dag, err));
  COPSE_TRY(copse_mx_operations_make(&file, &w.program, err));
  COPSE_TRY(start_msccl(&w));
  COPSE_TRY(run_blocks(&w));
  COPSE_TRY(copse_foreign_sim_time(&w.sim, &foreign->time_per_GB));
out:
  free_msccl(&w);
  copse_mx_operations_free(&w.program);
  copse_mx_free(&file);
  return status;
}

/* ---- MSCCL++ ---- */

struct mscclpp {
  struct copse_pj_file file;
  struct copse_foreign_sim sim;
  int *next;              /* [blocks] op */
  int *last;              /* [blocks] the node that ends the op before, -1: none */
  int *stream_end;        /* [blocks] ops before this one run part by part */
  struct nodes *signals;  /* [ends] */
  int *port_last;         /* [ends] what went through the port last, -1: nothing */
  struct nodes *released; /* [semaphores] */
  int *acquired;          /* [semaphores] */
  int **packets;          /* [ranks][scratch chunks] who wrote them, -1: nobody yet */
  struct nodes needs;     /* of the op at hand */
  struct copse_err *err;
};

static copse_status need(struct mscclpp *w, int node) {
  return node < 0 ? COPSE_OK : push(&w->needs, node, w->err);
}

/* What the op at hand adds to the graph: after, or part by part with, all that it needs. */
static struct copse_sim_transfer transfer(const struct mscclpp *w, int block, double amount) {
  bool streams = w->next[block] < w->stream_end[block];
  int n = (int)w->needs.n;
  return (struct copse_sim_transfer){.after = w->needs.v,
                                     .n_after = streams ? 0 : n,
                                     .streams = w->needs.v,
                                     .n_streams = streams ? n : 0,
                                     .amount = amount,
                                     .order = w->next[block]};
}

static copse_status join_all(struct mscclpp *w, int block, double amount, bool adds) {
  struct copse_sim_transfer t = transfer(w, block, amount);
  t.reduces = adds;
  t.adder = w->file.blocks[block].rank;
  copse_status status = copse_sim_dag_add(w->sim.dag, &t, &w->last[block], w->err);
  w->needs.n = 0;
  return status;
}

static copse_status join(struct mscclpp *w, int block, double amount) {
  return join_all(w, block, amount, false);
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

/* What the checker would refute, and what would lead astray here. */
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

/* How often an op names the i-th of its channels or semaphores before. */
static int named_before(const struct copse_pj_op *op, int i) {
  int n = 0;
  for (int k = 0; k < i; k++) n += op->ends[k] == op->ends[i];
  return n;
}

/* To or from another rank, after what the op needs so far. */
static copse_status carry(struct mscclpp *w, int block, const struct copse_pj_op *op, int src,
                          int dst, int size, int *arrival) {
  struct copse_sim_transfer t =
      transfer(w, block, (double)size / op->parts / (double)w->sim.chunks);
  return copse_foreign_sim_move(&w->sim, src, dst, size, &t, arrival);
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
    COPSE_DO(join_all(w, block, (double)op->src[0].size / op->parts / (double)w->sim.chunks, adds));
    COPSE_DO(need(w, w->last[block]));
  }
  return COPSE_OK;
}

static copse_status do_data(struct mscclpp *w, int block, const struct copse_pj_op *op) {
  int own = w->file.blocks[block].rank, arrivals[COPSE_PJ_MAX_PLACES], n = 0, arrival;
  bool port = op->channel == COPSE_PJ_PORT;
  copse_status status;
  COPSE_TRY(need(w, w->last[block]));
  COPSE_TRY(read_sources(w, block, op));
  for (int i = 0; i < op->n_dst; i++) {
    const struct copse_pj_place *at = &op->dst[i];
    arrival = w->last[block];
    if (at->rank != own) {
      COPSE_TRY(carry(w, block, op, own, at->rank, at->size, &arrival));
      if (!port) arrivals[n++] = arrival;
      if (port && i < op->n_ends) w->port_last[op->ends[i]] = arrival;
    }
    if (!is_packet(op, op->type->pkt_dst, i)) continue;
    if (arrival < 0) { /* the rank's own packets, made at once */
      COPSE_TRY(join(w, block, 0));
      arrival = w->last[block];
    }
    for (int j = 0; j < at->size && at->index + j < w->file.scratch[at->rank]; j++)
      w->packets[at->rank][at->index + j] = arrival;
  }
  for (int i = 0; i < n && !op->type->pkt_dst; i++) COPSE_TRY(need(w, arrivals[i]));
  if (n > 0 && !op->type->pkt_dst)
    COPSE_TRY(join(w, block, (double)op->dst[0].size / op->parts / (double)w->sim.chunks));
  for (int i = 0; i < op->n_ends && op->type->signals && port; i++)
    COPSE_TRY(
        push(&w->signals[w->file.ends[op->ends[i]].partner], w->port_last[op->ends[i]], w->err));
out:
  w->needs.n = 0;
  return status;
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
    if (partner >= 0) COPSE_DO(push(&w->signals[partner], node, w->err));
  }
  if (op->type->waits && w->needs.n > 0) COPSE_DO(join(w, block, 1.0 / (double)w->sim.chunks));
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
      COPSE_DO(push(r, w->last[block], w->err));
      continue;
    }
    int taken = w->acquired[op->ends[i]]++ - w->file.semaphores[op->ends[i]];
    if (taken >= 0) COPSE_DO(need(w, r->v[taken]));
  }
  if (acquires && w->needs.n > 0) COPSE_DO(join(w, block, 1.0 / (double)w->sim.chunks));
  return COPSE_OK;
}

/* The last to come joins all and moves them on. */
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
  if (w->needs.n > 0) COPSE_DO(join(w, block, 0));
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
    case COPSE_PJ_MULTIMEM:
      return copse_fail_at(w->err, COPSE_UNSUPPORTED, w->file.label, op->line,
                           "switch channels are not simulated");
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
  const struct copse_pj_file *f = &w->file;
  size_t n = (size_t)f->n_blocks;
  COPSE_DO(copse_arena_array(&w->sim.scratch, n, sizeof(int), &w->next, w->err));
  COPSE_DO(copse_arena_array(&w->sim.scratch, n, sizeof(int), &w->last, w->err));
  COPSE_DO(copse_arena_array(&w->sim.scratch, n, sizeof(int), &w->stream_end, w->err));
  COPSE_DO(copse_arena_array(&w->sim.scratch, (size_t)f->n_ends, sizeof *w->signals, &w->signals,
                             w->err));
  COPSE_DO(
      copse_arena_array(&w->sim.scratch, (size_t)f->n_ends, sizeof(int), &w->port_last, w->err));
  COPSE_DO(copse_arena_array(&w->sim.scratch, (size_t)f->n_semaphores, sizeof *w->released,
                             &w->released, w->err));
  COPSE_DO(copse_arena_array(&w->sim.scratch, (size_t)f->n_semaphores, sizeof(int), &w->acquired,
                             w->err));
  COPSE_DO(copse_arena_array(&w->sim.scratch, (size_t)f->n_ranks, sizeof *w->packets, &w->packets,
                             w->err));
  for (int b = 0; b < f->n_blocks; b++) w->last[b] = -1;
  for (int e = 0; e < f->n_ends; e++) w->port_last[e] = -1;
  for (int r = 0; r < f->n_ranks; r++) {
    COPSE_DO(copse_arena_array(&w->sim.scratch, (size_t)f->scratch[r] + 1, sizeof(int),
                               &w->packets[r], w->err));
    for (int i = 0; i < f->scratch[r]; i++) w->packets[r][i] = -1;
  }
  return COPSE_OK;
}

static void free_mscclpp(struct mscclpp *w) {
  for (int e = 0; w->signals && e < w->file.n_ends; e++) free(w->signals[e].v);
  for (int s = 0; w->released && s < w->file.n_semaphores; s++) free(w->released[s].v);
  free(w->needs.v);
  copse_foreign_sim_free(&w->sim);
}

copse_status copse_sim_dag_of_mscclpp(const char *label, const char *data, size_t size,
                                      const struct copse_topology *topology,
                                      struct copse_sim_dag *dag, struct copse_foreign *foreign,
                                      struct copse_err *err) {
  struct mscclpp w = {.err = err};
  copse_status status = copse_pj_parse(label, data, size, &w.file, err);
  if (status != COPSE_OK) return status;
  foreign->collective = w.file.collective;
  foreign->root = -1;
  COPSE_TRY(
      copse_foreign_sim_start(&w.sim, label, w.file.n_ranks, w.file.chunks, topology, dag, err));
  COPSE_TRY(start_mscclpp(&w));
  COPSE_TRY(run_plan(&w));
  COPSE_TRY(copse_foreign_sim_time(&w.sim, &foreign->time_per_GB));
out:
  free_mscclpp(&w);
  copse_pj_free(&w.file);
  return status;
}
