#include "codegen/simulate_msccl.h"

#include <stdlib.h>

#include "codegen/check_msccl_run.h"
#include "schedule/baseline_route.h"

/* Transfers under way in a connection, first in, first out. */
struct arrivals {
  int *nodes;
  size_t first, n, capacity;
};

struct work {
  const struct copse_topology *topology;
  struct copse_mx_program program;
  struct copse_routes routes;
  struct copse_sim_dag *dag;
  struct arrivals *arrivals; /* [connections] */
  int **done;                /* [tb][op] the transfer or join that ends it */
  int *next;                 /* [tb] op */
  int *streams;              /* [longest list of waits + 2] */
  int64_t *load;             /* [links] chunks */
  struct copse_err *err;
};

/* Chunks from one rank to another over the pair's route, once all of `streams` have come. */
static copse_status transfer(struct work *w, int src, int dst, int count, int after, int order,
                             int *arrival) {
  int n;
  const int *nodes = copse_route(&w->routes, src, dst, &n);
  struct copse_sim_transfer t = {.streams = &after,
                                 .n_streams = 1,
                                 .amount = (double)count / w->program.file->chunks,
                                 .order = order};
  for (int i = 0; i + 1 < n; i++)
    for (int l = 0; l < w->topology->n_links; l++)
      if (w->topology->links[l].src == nodes[i] && w->topology->links[l].dst == nodes[i + 1])
        w->load[l] += count;
  return copse_sim_dag_add_path(w->dag, w->topology, nodes, n, &t, arrival, w->err);
}

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
                                    .amount = (double)op->step->count / w->program.file->chunks};
  COPSE_TRY(copse_sim_dag_add(w->dag, &join, done, w->err));
  if (type->sends) {
    struct arrivals *out = &w->arrivals[tb->out];
    COPSE_TRY(transfer(w, tb->gpu, tb->tb->send, op->step->count, *done, op->first, &arrival));
    COPSE_TRY(copse_grow(&out->nodes, &out->capacity, out->n + 1, sizeof(int), w->err));
    out->nodes[out->n++] = arrival;
  }
  w->next[t]++;
out:
  return status;
}

static copse_status place_all(struct work *w) {
  const struct copse_mx_program *p = &w->program;
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
  const struct copse_mx_program *p = &w->program;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)p->n_connections, sizeof *w->arrivals, &w->arrivals, w->err));
  COPSE_TRY(copse_calloc((size_t)p->n_tbs, sizeof *w->done, &w->done, w->err));
  COPSE_TRY(copse_calloc((size_t)p->n_tbs, sizeof *w->next, &w->next, w->err));
  COPSE_TRY(copse_calloc(64 + 2, sizeof *w->streams, &w->streams, w->err)); /* steps of a block */
  COPSE_TRY(copse_calloc((size_t)w->topology->n_links, sizeof *w->load, &w->load, w->err));
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
  free(w->load);
  copse_routes_free(&w->routes);
}

/* The busiest link's share of M over its bandwidth. */
static copse_status find_time(const struct work *w, struct copse_q *time) {
  copse_status status = COPSE_OK;
  *time = COPSE_Q_ZERO;
  for (int l = 0; l < w->topology->n_links; l++) {
    struct copse_q share, t;
    COPSE_TRY(copse_q_make(w->load[l], w->program.file->chunks, &share, w->err));
    COPSE_TRY(copse_q_div(share, w->topology->links[l].bandwidth, &t, w->err));
    if (copse_q_cmp(t, *time) > 0) *time = t;
  }
out:
  return status;
}

static copse_status of_program(struct work *w, struct copse_foreign *foreign) {
  struct copse_hosts hosts = {0};
  copse_status status;
  COPSE_TRY(copse_hosts_find(w->topology, &hosts, w->err));
  COPSE_TRY(copse_routes_find(w->topology, &hosts, &w->routes, w->err));
  COPSE_TRY(make_work(w));
  COPSE_TRY(place_all(w));
  COPSE_TRY(find_time(w, &foreign->time_per_GB));
out:
  copse_hosts_free(&hosts);
  return status;
}

copse_status copse_sim_dag_of_msccl(const char *label, const char *data, size_t size,
                                    const struct copse_topology *topology,
                                    struct copse_sim_dag *dag, struct copse_foreign *foreign,
                                    struct copse_err *err) {
  struct work w = {.topology = topology, .dag = dag, .err = err};
  struct copse_mx_file file;
  copse_status status = copse_mx_parse(label, data, size, &file, err);
  if (status != COPSE_OK) return status;
  foreign->collective = file.collective;
  foreign->root = copse_collective_rooted(file.collective) ? 0 : -1;
  if (file.n_ranks != topology->n_ranks) {
    status = copse_fail_at(err, COPSE_BAD_INPUT, label, file.line,
                           "the file is for %d ranks, the topology has %d", file.n_ranks,
                           topology->n_ranks);
    goto out;
  }
  COPSE_TRY(copse_mx_program_make(&file, &w.program, err));
  status = of_program(&w, foreign);
  free_work(&w);
  copse_mx_program_free(&w.program);
out:
  copse_mx_free(&file);
  return status;
}
