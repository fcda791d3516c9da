/*
 * The events of a simulation in a radix heap (R. Ahuja, K. Mehlhorn, J. Orlin, R. Tarjan, Faster
 * algorithms for the shortest path problem, J. ACM 37, 1990); the header says how it works.
 */
#include "predict/event_queue.h"

#include <stdlib.h>

#include "base/memory.h"
#include "predict/policy.h"

void copse_sim_queue_free(struct copse_sim_queue *queue) {
  for (int p = 0; p < COPSE_SIM_DIGITS; p++)
    for (int d = 0; d < 1 << COPSE_SIM_DIGIT; d++) free(queue->later[p][d].items);
  free(queue->batch.items);
  free(queue->heap.items);
  free(queue->spare.items);
  *queue = (struct copse_sim_queue){0};
}

void copse_sim_queue_reset(struct copse_sim_queue *queue) {
  for (int p = 0; p < COPSE_SIM_DIGITS; p++) {
    for (int d = 0; d < 1 << COPSE_SIM_DIGIT; d++) queue->later[p][d].n = 0;
    queue->filled[p] = 0;
  }
  queue->batch.n = queue->heap.n = queue->spare.n = queue->next = 0;
  queue->now = queue->places = 0;
}

copse_status copse_sim_events_grow(struct copse_sim_events *events, struct copse_err *err) {
  return copse_grow(&events->items, &events->capacity, events->n + 1, sizeof *events->items, err);
}

/* ---- events of the present time ---------------------------------------------------------- */

/* Puts an event behind the batch if that keeps it in order, as it mostly does; else into the
 * heap. */
copse_status copse_sim_queue_push_now(struct copse_sim_queue *queue, uint64_t key,
                                      struct copse_err *err) {
  struct copse_sim_events *batch = &queue->batch, *heap = &queue->heap;
  struct copse_sim_event event = {queue->now, key};
  if (queue->next == batch->n) queue->next = batch->n = 0;
  if (batch->n == 0 || key > batch->items[batch->n - 1].key)
    return copse_sim_events_add(batch, event, err);
  COPSE_DO(copse_sim_events_add(heap, event, err));
  size_t i = heap->n - 1;
  for (; i > 0 && key < heap->items[(i - 1) / 2].key; i = (i - 1) / 2)
    heap->items[i] = heap->items[(i - 1) / 2];
  heap->items[i] = event;
  return COPSE_OK;
}

void copse_sim_queue_pop_heap(struct copse_sim_queue *queue, struct copse_sim_event *out) {
  struct copse_sim_event *heap = queue->heap.items, last;
  size_t n = --queue->heap.n, i = 0;
  *out = heap[0];
  last = heap[n];
  for (size_t child; (child = 2 * i + 1) < n; i = child) {
    if (child + 1 < n && heap[child + 1].key < heap[child].key) child++;
    if (heap[child].key >= last.key) break;
    heap[i] = heap[child];
  }
  heap[i] = last;
}

/* ---- the next time ----------------------------------------------------------------------- */

static void swap(struct copse_sim_events *a, struct copse_sim_events *b) {
  struct copse_sim_events c = *a;
  *a = *b;
  *b = c;
}

/* Returns where the ascending run that starts at `first` ends. */
static size_t end_of_run(const struct copse_sim_events *events, size_t first) {
  size_t end = first + 1;
  while (end < events->n && events->items[end - 1].key < events->items[end].key) end++;
  return end;
}

/* Merges neighbouring runs, two by two, into `to`; how many there were. */
static size_t merge_runs(const struct copse_sim_events *from, struct copse_sim_events *to) {
  size_t runs = 0, first = 0;
  const struct copse_sim_event *items = from->items;
  to->n = 0;
  while (first < from->n) {
    size_t middle = end_of_run(from, first);
    size_t end = middle < from->n ? end_of_run(from, middle) : middle;
    size_t a = first, b = middle;
    while (a < middle && b < end)
      to->items[to->n++] = items[items[a].key < items[b].key ? a++ : b++];
    while (a < middle) to->items[to->n++] = items[a++];
    while (b < end) to->items[to->n++] = items[b++];
    runs += 1 + (end > middle);
    first = end;
  }
  return runs;
}

static copse_status sort_batch(struct copse_sim_queue *queue, struct copse_err *err) {
  if (end_of_run(&queue->batch, 0) == queue->batch.n) return COPSE_OK;
  COPSE_DO(copse_grow(&queue->spare.items, &queue->spare.capacity, queue->batch.n,
                      sizeof *queue->spare.items, err));
  for (size_t runs = 3; runs > 2;) {
    runs = merge_runs(&queue->batch, &queue->spare);
    swap(&queue->batch, &queue->spare);
  }
  return COPSE_OK;
}

copse_status copse_sim_queue_advance(struct copse_sim_queue *queue, struct copse_err *err) {
  int place = __builtin_ctz(queue->places);
  struct copse_sim_events *list = &queue->later[place][__builtin_ctz(queue->filled[place])];
  uint64_t least = list->items[0].time, most = least;
  queue->filled[place] &= queue->filled[place] - 1;
  if (queue->filled[place] == 0) queue->places &= queue->places - 1;
  if (list->n == 1) { /* as mostly where times differ */
    queue->now = least;
    queue->next = queue->batch.n = list->n = 0;
    return copse_sim_events_add(&queue->batch, list->items[0], err);
  }
  for (size_t i = 1; i < list->n; i++) {
    if (list->items[i].time < least) least = list->items[i].time;
    if (list->items[i].time > most) most = list->items[i].time;
  }
  queue->now = least;
  queue->next = queue->batch.n = 0;
  for (size_t i = 0; i < list->n && list->n <= EVENTS_SOON && queue->comes; i++)
    queue->comes(queue->context, list->items[i].key, list->n <= EVENTS_NEXT);
  if (least == most) {
    swap(&queue->batch, list);
  } else {
    /* All agree down to this place, so they go to lists of places below. */
    for (size_t i = 0; i < list->n; i++) {
      const struct copse_sim_event *event = &list->items[i];
      struct copse_sim_events *to = &queue->batch;
      if (event->time != least) to = copse_sim_queue_list(queue, event->time);
      COPSE_DO(copse_sim_events_add(to, *event, err));
    }
  }
  list->n = 0;
  return sort_batch(queue, err);
}
