/*
 * Gathering: one queue of calls for each rank of this process. A round is the heads of all queues.
 *
 *   rank 0:  AR AG --          rank 0:     AG --
 *   rank 1:  AR -- --    =>    rank 1:     -- --      AR has run as a round of all three ranks;
 *   rank 2:  AR AG --          rank 2:     AG --      AG waits for rank 1
 */
#include "runtime/comm/gather.h"

#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/parallel.h"
#include "runtime/comm/call.h"

#define DEFAULT_TIMEOUT_SECONDS 600.0

copse_status copse_gather_init(struct copse_gather *gather, uint32_t first_rank, uint32_t n,
                               struct copse_err *err) {
  gather->first_rank = first_rank;
  gather->n = n;
  gather->timeout_seconds = DEFAULT_TIMEOUT_SECONDS;
  pthread_mutex_init(&gather->lock, NULL);
  copse_clock_condition(&gather->changed);
  COPSE_DO(copse_calloc(n, sizeof *gather->queues, &gather->queues, err));
  return copse_calloc(n, sizeof *gather->calls, &gather->calls, err);
}

void copse_gather_destroy(struct copse_gather *gather) {
  free(gather->queues);
  free(gather->calls);
  pthread_cond_destroy(&gather->changed);
  pthread_mutex_destroy(&gather->lock);
}

/* ---- with the lock held ------------------------------------------------------------------ */

static void end(struct copse_pending *pending, const struct copse_err *result) {
  pending->result = *result;
  pending->done = true;
}

static void push(struct copse_gather *gather, uint32_t r, struct copse_pending *pending) {
  struct copse_gather_queue *queue = &gather->queues[r];
  pending->next = NULL;
  if (queue->head) {
    queue->tail->next = pending;
  } else {
    queue->head = pending;
    gather->n_waiting++;
  }
  queue->tail = pending;
}

static struct copse_pending *pop(struct copse_gather *gather, uint32_t r) {
  struct copse_gather_queue *queue = &gather->queues[r];
  struct copse_pending *first = queue->head;
  queue->head = first->next;
  if (!queue->head) gather->n_waiting--;
  return first;
}

static void end_waiting(struct copse_gather *gather, const struct copse_err *result) {
  for (uint32_t r = 0; r < gather->n; r++)
    while (gather->queues[r].head) end(pop(gather, r), result);
  pthread_cond_broadcast(&gather->changed);
}

static void break_locked(struct copse_gather *gather, const struct copse_err *why) {
  if (gather->broken.status == COPSE_OK) gather->broken = *why;
  end_waiting(gather, &gather->broken);
}

/* Runs the round of all queues' heads; without the lock in between. */
static void run_round(struct copse_gather *gather) {
  struct copse_err err = COPSE_ERR_INIT;
  bool breaks = false;
  for (uint32_t r = 0; r < gather->n; r++) {
    gather->queues[r].runs = pop(gather, r);
    gather->calls[r] = gather->queues[r].runs->call;
  }
  gather->running = true;
  pthread_mutex_unlock(&gather->lock);
  copse_status status = copse_calls_match(gather->calls, gather->n, gather->first_rank, &err);
  if (status == COPSE_OK) status = gather->launch(gather->context, gather->calls, &breaks, &err);
  err.status = status; /* also where a launch gave no text */
  pthread_mutex_lock(&gather->lock);
  gather->running = false;
  gather->n_rounds++;
  if (breaks) break_locked(gather, &err);
  /* an abort while it ran: what it did is unknown to its callers' peers */
  const struct copse_err *result = gather->broken.status != COPSE_OK ? &gather->broken : &err;
  for (uint32_t r = 0; r < gather->n; r++) end(gather->queues[r].runs, result);
  pthread_cond_broadcast(&gather->changed);
}

/* ---- without ------------------------------------------------------------------------------ */

void copse_gather_submit(struct copse_gather *gather, uint32_t local_rank,
                         struct copse_pending *pending) {
  COPSE_HOLD(&gather->lock);
  if (gather->broken.status != COPSE_OK)
    end(pending, &gather->broken);
  else if (gather->left.status != COPSE_OK)
    end(pending, &gather->left);
  else
    push(gather, local_rank, pending);
  /* whoever runs a round goes on with those that have become complete meanwhile */
  while (!gather->running && gather->n_waiting == gather->n) run_round(gather);
}

static bool is_missing(const void *context, uint32_t i) {
  const struct copse_gather *gather = context;
  return !gather->queues[i].head;
}

static void break_timeout(struct copse_gather *gather) {
  struct copse_err why = COPSE_ERR_INIT;
  char missing[COPSE_RANKS_TEXT], call[COPSE_CALL_TEXT];
  uint32_t first = 0;
  while (!gather->queues[first].head) first++;
  copse_ranks_describe(is_missing, gather, gather->first_rank, gather->n, missing);
  copse_call_describe(&gather->queues[first].head->call, call);
  (void)copse_fail(&why, COPSE_TIMEOUT, "rank %u has called %s and waited %g s for the call of %s",
                   gather->first_rank + first, call, gather->timeout_seconds, missing);
  break_locked(gather, &why);
}

void copse_gather_wait(struct copse_gather *gather, struct copse_pending *pending) {
  COPSE_HOLD(&gather->lock);
  uint64_t seen = gather->n_rounds;
  double since = copse_clock_seconds();
  while (!pending->done) {
    double now = copse_clock_seconds();
    /* a rank is late only while nothing goes on */
    if (gather->running || gather->n_rounds != seen) since = now;
    seen = gather->n_rounds;
    if (now - since >= gather->timeout_seconds) {
      break_timeout(gather);
      continue;
    }
    struct timespec until = copse_clock_at(since + gather->timeout_seconds);
    (void)pthread_cond_timedwait(&gather->changed, &gather->lock, &until);
  }
}

void copse_gather_break(struct copse_gather *gather, const struct copse_err *why) {
  COPSE_HOLD(&gather->lock);
  break_locked(gather, why);
}

copse_status copse_gather_broken(struct copse_gather *gather, struct copse_err *err) {
  COPSE_HOLD(&gather->lock);
  if (gather->broken.status == COPSE_OK) return COPSE_OK;
  return copse_fail(err, gather->broken.status, "%s", gather->broken.text);
}

void copse_gather_leave(struct copse_gather *gather, uint32_t local_rank) {
  COPSE_HOLD(&gather->lock);
  (void)copse_fail(&gather->left, COPSE_INVALID, "rank %u has destroyed its communicator",
                   gather->first_rank + local_rank);
  end_waiting(gather, &gather->left);
}

void copse_gather_set_timeout(struct copse_gather *gather, double seconds) {
  COPSE_HOLD(&gather->lock);
  gather->timeout_seconds = seconds;
  pthread_cond_broadcast(&gather->changed);
}
