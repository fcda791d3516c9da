#include "codegen/check/clock.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* Clocks on their way: a queue of snapshots, each as long as the component. */
struct queue {
  uint32_t **clocks;
  size_t head, n, capacity;
};

struct copse_clocks {
  const struct copse_plan *plan;
  uint32_t *component;  /* [n_workers] its root in the union-find */
  uint32_t *local;      /* [n_workers] index within the component */
  uint32_t *size;       /* [n_workers] of the component, at its root */
  uint32_t **now;       /* [n_workers] */
  struct queue *queues; /* [n_channels] */
};

static uint32_t find_root(uint32_t *parent, uint32_t w) {
  while (parent[w] != w) w = parent[w] = parent[parent[w]];
  return w;
}

static void find_components(struct copse_clocks *c) {
  const struct copse_plan *plan = c->plan;
  for (uint32_t w = 0; w < plan->header.n_workers; w++) c->component[w] = w;
  for (uint32_t i = 0; i < plan->header.n_channels; i++) {
    uint32_t a = find_root(c->component, plan->channels[i].src_worker);
    uint32_t b = find_root(c->component, plan->channels[i].dst_worker);
    c->component[a < b ? b : a] = a < b ? a : b;
  }
  for (uint32_t w = 0; w < plan->header.n_workers; w++) {
    c->component[w] = find_root(c->component, w);
    c->local[w] = c->size[c->component[w]]++;
  }
}

static uint32_t length(const struct copse_clocks *c, uint32_t worker) {
  return c->size[c->component[worker]];
}

copse_status copse_clocks_new(const struct copse_plan *plan, struct copse_clocks **out,
                              struct copse_err *err) {
  size_t workers = plan->header.n_workers;
  struct copse_clocks *c = NULL;
  copse_status status;
  *out = NULL;
  COPSE_TRY(copse_calloc(1, sizeof *c, &c, err));
  c->plan = plan;
  COPSE_TRY(copse_calloc(workers, sizeof(uint32_t), &c->component, err));
  COPSE_TRY(copse_calloc(workers, sizeof(uint32_t), &c->local, err));
  COPSE_TRY(copse_calloc(workers, sizeof(uint32_t), &c->size, err));
  COPSE_TRY(copse_calloc(workers, sizeof(uint32_t *), &c->now, err));
  COPSE_TRY(copse_calloc(plan->header.n_channels, sizeof *c->queues, &c->queues, err));
  find_components(c);
  for (uint32_t w = 0; w < workers; w++)
    COPSE_TRY(copse_calloc(length(c, w), sizeof(uint32_t), &c->now[w], err));
  *out = c;
  return COPSE_OK;
out:
  copse_clocks_free(c);
  return status;
}

static void clear_queue(struct queue *q) {
  for (size_t i = q->head; i < q->head + q->n; i++) free(q->clocks[i]);
  q->head = q->n = 0;
}

void copse_clocks_free(struct copse_clocks *c) {
  if (!c) return;
  for (uint32_t w = 0; c->now && w < c->plan->header.n_workers; w++) free(c->now[w]);
  for (uint32_t i = 0; c->queues && i < c->plan->header.n_channels; i++) {
    clear_queue(&c->queues[i]);
    free(c->queues[i].clocks);
  }
  free(c->component);
  free(c->local);
  free(c->size);
  free(c->now);
  free(c->queues);
  free(c);
}

void copse_clocks_reset(struct copse_clocks *c) {
  for (uint32_t w = 0; w < c->plan->header.n_workers; w++)
    memset(c->now[w], 0, length(c, w) * sizeof(uint32_t));
  for (uint32_t i = 0; i < c->plan->header.n_channels; i++) clear_queue(&c->queues[i]);
}

struct copse_event copse_clocks_tick(struct copse_clocks *c, uint32_t worker) {
  return (struct copse_event){worker, ++c->now[worker][c->local[worker]]};
}

copse_status copse_clocks_signal(struct copse_clocks *c, uint32_t channel, struct copse_err *err) {
  uint32_t src = c->plan->channels[channel].src_worker;
  struct queue *q = &c->queues[channel];
  uint32_t *snapshot;
  copse_status status;
  if (q->n == 0) q->head = 0;
  COPSE_TRY(copse_grow(&q->clocks, &q->capacity, q->head + q->n + 1, sizeof *q->clocks, err));
  COPSE_TRY(copse_calloc(length(c, src), sizeof *snapshot, &snapshot, err));
  memcpy(snapshot, c->now[src], length(c, src) * sizeof *snapshot);
  q->clocks[q->head + q->n++] = snapshot;
out:
  return status;
}

bool copse_clocks_pending(const struct copse_clocks *c, uint32_t channel) {
  return c->queues[channel].n > 0;
}

uint32_t copse_clocks_unclaimed(const struct copse_clocks *c, uint32_t channel) {
  return (uint32_t)c->queues[channel].n;
}

void copse_clocks_wait(struct copse_clocks *c, uint32_t channel) {
  uint32_t dst = c->plan->channels[channel].dst_worker, n = length(c, dst), *now = c->now[dst];
  struct queue *q = &c->queues[channel];
  uint32_t *snapshot = q->clocks[q->head++];
  q->n--;
  for (uint32_t i = 0; i < n; i++) now[i] = snapshot[i] > now[i] ? snapshot[i] : now[i];
  free(snapshot);
}

void copse_clocks_drop(struct copse_clocks *c, uint32_t channel) {
  struct queue *q = &c->queues[channel];
  free(q->clocks[q->head++]);
  q->n--;
}

bool copse_clocks_before(const struct copse_clocks *c, struct copse_event event, uint32_t worker) {
  if (event.time == 0 || event.worker == worker) return true;
  return c->component[event.worker] == c->component[worker] &&
         c->now[worker][c->local[event.worker]] >= event.time;
}

bool copse_clocks_entered(const struct copse_clocks *c, uint32_t worker, uint32_t rank) {
  const struct copse_plan_rank *r = &c->plan->ranks[rank];
  for (uint32_t w = r->first_worker; w < r->first_worker + r->n_workers; w++)
    if (copse_clocks_before(c, (struct copse_event){w, 1}, worker)) return true;
  return false;
}

bool copse_clocks_known_at(const struct copse_clocks *c, struct copse_event event, uint32_t rank) {
  const struct copse_plan_rank *r = &c->plan->ranks[rank];
  for (uint32_t w = r->first_worker; w < r->first_worker + r->n_workers; w++)
    if (copse_clocks_before(c, event, w)) return true;
  return false;
}
