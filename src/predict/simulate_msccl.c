#include "predict/simulate_foreign.h"

#include <stdlib.h>

#include "codegen/msccl/operations.h"

/* Transfers under way in a connection, first in, first out. */
struct arrivals {
  int *nodes;
  size_t first, n, capacity;
};

struct work {
  struct copse_mx_operations program;
  struct copse_foreign_sim sim;
  struct arrivals *arrivals; /* [connections] */
  int **done;                /* [tb][op] the transfer or join that ends it */
  int *next;                 /* [tb] op */
  int *streams;              /* [longest list of waits + 2] */
  struct copse_err *err;
};

static bool can_start(const struct work *w, const struct copse_mx_run_tb *tb,
                      const struct copse_mx_run_op *op) {
  for (int i = 0; i < op->n_waits; i++)
    if (w->next[op->waits[i].tb] <= op->waits[i].op) return false;
  if (!copse_mx_types[op->step->op].receives) return true;
  const struct arrivals *in = &w->arrivals[tb->in];
  return in->first < in->n;
}

/* One step: it joins what it waits for, and what it sends goes on from there. */
static copse_status place(struct work *w, int t, const struct copse_mx_run_op *op) {
  const struct copse_mx_run_tb *tb = &w->program.tbs[t];
  const struct copse_mx_type *type = &copse_mx_types[op->step->op];
  int n = 0, *done = &w->done[t][w->next[t]], arrival;
  copse_status status;
  if (w->next[t] > 0) w->streams[n++] = done[-1];
  for (int i = 0; i < op->n_waits; i++) w->streams[n++] = w->done[op->waits[i].tb][op->waits[i].op];
  if (type->receives) {
    struct arrivals *in = &w->arrivals[tb->in];
    w->streams[n++] = in->nodes[in->first++];
  }
  struct copse_sim_transfer join = {.streams = w->streams,
                                    .n_streams = n,
                                    .amount = (double)op->step->count / w->program.file->chunks,
                                    .reduces = type->adds,
                                    .adder = tb->gpu};
  COPSE_TRY(copse_sim_dag_add(w->sim.dag, &join, done, w->err));
  for (int i = 1; i < op->n_steps; i++) { /* sums that are one operation */
    join.streams = done;
    join.n_streams = 1;
    COPSE_TRY(copse_sim_dag_add(w->sim.dag, &join, done, w->err));
  }
  if (type->sends) {
    struct arrivals *out = &w->arrivals[tb->out];
    struct copse_sim_transfer sent = {
        .streams = done, .n_streams = 1, .amount = join.amount, .order = op->first};
    COPSE_TRY(
        copse_foreign_sim_move(&w->sim, tb->gpu, tb->tb->send, op->step->count, &sent, &arrival));
    COPSE_TRY(copse_grow(&out->nodes, &out->capacity, out->n + 1, sizeof(int), w->err));
    out->nodes[out->n++] = arrival;
  }
  w->next[t]++;
out:
  return status;
}

static copse_status place_all(struct work *w) {
  const struct copse_mx_operations *p = &w->program;
  bool progress = true;
  copse_status status = COPSE_OK;
  while (progress) {
    progress = false;
    for (int t = 0; t < p->n_tbs; t++)
      while (w->next[t] < p->tbs[t].n_ops && can_start(w, &p->tbs[t], &p->tbs[t].ops[w->next[t]])) {
        COPSE_TRY(place(w, t, &p->tbs[t].ops[w->next[t]]));
        progress = true;
      }
  }
  for (int t = 0; t < p->n_tbs; t++)
    if (w->next[t] < p->tbs[t].n_ops)
      return copse_fail_at(w->err, COPSE_REFUTED, p->file->label,
                           p->tbs[t].ops[w->next[t]].step->line,
                           "gpu %d tb %d step %d waits forever; 'copse check' says more",
                           p->tbs[t].gpu, p->tbs[t].id, p->tbs[t].ops[w->next[t]].first);
out:
  return status;
}

static copse_status make_work(struct work *w) {
  const struct copse_mx_operations *p = &w->program;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)p->n_connections, sizeof *w->arrivals, &w->arrivals, w->err));
  COPSE_TRY(copse_calloc((size_t)p->n_tbs, sizeof *w->done, &w->done, w->err));
  COPSE_TRY(copse_calloc((size_t)p->n_tbs, sizeof *w->next, &w->next, w->err));
  COPSE_TRY(copse_calloc(64 + 2, sizeof *w->streams, &w->streams, w->err)); /* steps of a block */
  for (int t = 0; t < p->n_tbs; t++)
    COPSE_TRY(copse_calloc((size_t)p->tbs[t].n_ops, sizeof(int), &w->done[t], w->err));
out:
  return status;
}

static void free_work(struct work *w) {
  for (int i = 0; w->arrivals && i < w->program.n_connections; i++) free(w->arrivals[i].nodes);
  for (int t = 0; w->done && t < w->program.n_tbs; t++) free(w->done[t]);
  free(w->arrivals);
  free(w->done);
  free(w->next);
  free(w->streams);
  copse_foreign_sim_free(&w->sim);
}

copse_status copse_sim_dag_of_msccl(const char *label, const char *data, size_t size,
                                    const struct copse_topology *topology,
                                    struct copse_sim_dag *dag, struct copse_foreign *foreign,
                                    struct copse_err *err) {
  struct work w = {.err = err};
  struct copse_mx_file file;
  copse_status status = copse_mx_parse(label, data, size, &file, err);
  if (status != COPSE_OK) return status;
  foreign->collective = file.collective;
  foreign->root = copse_collective_rooted(file.collective) ? 0 : -1;
  COPSE_TRY(copse_foreign_sim_start(&w.sim, label, file.n_ranks, file.chunks, topology, dag, err));
  COPSE_TRY(copse_mx_operations_make(&file, &w.program, err));
  COPSE_TRY(make_work(&w));
  COPSE_TRY(place_all(&w));
  COPSE_TRY(copse_foreign_sim_time(&w.sim, &foreign->time_per_GB));
out:
  free_work(&w);
  copse_mx_operations_free(&w.program);
  copse_mx_free(&file);
  return status;
}
