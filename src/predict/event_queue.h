/*
 * The events of a simulation, earliest first, those of one moment by
 * their keys: a total order, so that what comes out doesn't depend on how it went in.
 *
 * A radix heap (Ahuja, Mehlhorn, Orlin, Tarjan, Faster algorithms for the shortest path problem,
 * J. ACM 37, 1990): time only grows, so events are kept by the highest digit in which their time
 * differs from now, and by that digit, in plain lists, and a list is dealt out when its turn comes.
 * Where many events share a moment, as on symmetric fabrics they do, each is moved once or twice,
 * from front to back, and the keys are mostly in order already; where times differ, once for each
 * digit that still tells events apart.
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

/* Bits of a digit of times. With 1, 3 and 6 simulations of 64 A100 whose links all differ took 7, 5
 * and 9 % longer. */
#define COPSE_SIM_DIGIT 4
#define COPSE_SIM_DIGITS (64 / COPSE_SIM_DIGIT)

/* Zero-initialise to start, at time 0; free with copse_sim_queue_free. */
struct copse_sim_queue {
  uint64_t now; /* time of the last event taken */
  /* [p][d]: time has digit d at place p, now another, and places above are now's */
  struct copse_sim_events later[COPSE_SIM_DIGITS][1 << COPSE_SIM_DIGIT];
  uint32_t filled[COPSE_SIM_DIGITS]; /* [p] bit d: later[p][d] is not empty */
  uint32_t places;                   /* bit p: filled[p] is not 0 */
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

/* Returns the list of a later time, which is then not empty. */
static inline struct copse_sim_events *copse_sim_queue_list(struct copse_sim_queue *queue,
                                                            uint64_t time) {
  int place = (63 - __builtin_clzll(time ^ queue->now)) / COPSE_SIM_DIGIT;
  int digit = (int)(time >> place * COPSE_SIM_DIGIT) & ((1 << COPSE_SIM_DIGIT) - 1);
  queue->filled[place] |= 1u << digit;
  queue->places |= 1u << place;
  return &queue->later[place][digit];
}

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
  return copse_sim_events_add(copse_sim_queue_list(queue, event.time), event, err);
}

static inline bool copse_sim_queue_is_empty(const struct copse_sim_queue *queue) {
  return queue->next == queue->batch.n && queue->heap.n == 0 && queue->places == 0;
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
