/*
 * The events of a simulation, earliest first, those of one moment by
 * their keys: a total order, so that what comes out doesn't depend on how it went in.
 *
 * A radix heap (Ahuja, Mehlhorn, Orlin, Tarjan, Faster algorithms for the shortest path problem,
 * J. ACM 37, 1990): time only grows, so events are kept by the highest bit in which their time
 * differs from now, in plain lists, and a list is dealt out when its turn comes. Where many
 * events share a moment, as on symmetric fabrics they do, each is moved once or twice, from front
 * to back, and the keys are mostly in order already.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/err.h"

struct copse_sim_event {
  uint64_t time; /* the bits of a double >= 0, which order as the doubles do */
  uint64_t key;
};

struct copse_sim_events {
  struct copse_sim_event *items; /* [n] */
  size_t n, capacity;
};

/* Zero-initialise to start, at time 0; free with copse_sim_queue_free. */
struct copse_sim_queue {
  uint64_t now;                      /* time of the last event taken */
  struct copse_sim_events later[64]; /* [b]: time differs from now in bit b and none above */
  uint64_t filled;                   /* bit b: later[b] is not empty */
  struct copse_sim_events batch;     /* time now, by key; those from `next` on are still there */
  size_t next;
  struct copse_sim_events heap; /* time now, come while the batch was under way; least first */
  struct copse_sim_events spare;
  /* NULL, or called for events that are dealt out from few (they come soon: of `next` very soon),
     so that it can fetch what they look at into the cache. */
  void (*comes)(const void *context, uint64_t key, bool next);
  const void *context;
};

void copse_sim_queue_free(struct copse_sim_queue *queue);
/* Resets the queue to time 0 and empty, whatever is in it; keeps its memory. */
void copse_sim_queue_reset(struct copse_sim_queue *queue);

static inline double copse_sim_event_us(const struct copse_sim_event *event) {
  double us;
  memcpy(&us, &event->time, sizeof us);
  return us;
}

/* Grows the list; private, as all that the inline functions below leave to the file. */
copse_status copse_sim_events_grow(struct copse_sim_events *events,
                                   struct copse_err *err) COPSE_CHECKED;
copse_status copse_sim_queue_push_now(struct copse_sim_queue *queue, uint64_t key,
                                      struct copse_err *err) COPSE_CHECKED;
copse_status copse_sim_queue_advance(struct copse_sim_queue *queue,
                                     struct copse_err *err) COPSE_CHECKED;
void copse_sim_queue_pop_heap(struct copse_sim_queue *queue, struct copse_sim_event *out);

static inline copse_status copse_sim_events_add(struct copse_sim_events *events,
                                                struct copse_sim_event event,
                                                struct copse_err *err) {
  if (events->n == events->capacity) {
    copse_status status = copse_sim_events_grow(events, err);
    if (status != COPSE_OK) return status;
  }
  events->items[events->n++] = event;
  return COPSE_OK;
}

/* Adds an event at a time that is not before that of the last one taken. COPSE_NOMEM. */
static inline copse_status copse_sim_queue_push(struct copse_sim_queue *queue, double us,
                                                uint64_t key, struct copse_err *err) {
  struct copse_sim_event event = {.key = key};
  memcpy(&event.time, &us, sizeof us);
  if (event.time == queue->now) return copse_sim_queue_push_now(queue, key, err);
  int bit = 63 - __builtin_clzll(event.time ^ queue->now);
  queue->filled |= (uint64_t)1 << bit;
  return copse_sim_events_add(&queue->later[bit], event, err);
}

static inline bool copse_sim_queue_is_empty(const struct copse_sim_queue *queue) {
  return queue->next == queue->batch.n && queue->heap.n == 0 && queue->filled == 0;
}

/* Takes the first event of a queue that isn't empty. COPSE_NOMEM. */
static inline copse_status copse_sim_queue_pop(struct copse_sim_queue *queue,
                                               struct copse_sim_event *out, struct copse_err *err) {
  if (queue->next == queue->batch.n && queue->heap.n == 0) {
    copse_status status = copse_sim_queue_advance(queue, err);
    if (status != COPSE_OK) return status;
  }
  if (queue->heap.n > 0 && (queue->next == queue->batch.n ||
                            queue->heap.items[0].key < queue->batch.items[queue->next].key))
    copse_sim_queue_pop_heap(queue, out);
  else
    *out = queue->batch.items[queue->next++];
  return COPSE_OK;
}
