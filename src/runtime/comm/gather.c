/*
 * Calls of ranks, and what brings them together. Gathering: one queue of calls for each rank of
 * this process. A batch is the heads of all queues.
 *
 *   rank 0:  AR AG --          rank 0:     AG --
 *   rank 1:  AR -- --    =>    rank 1:     -- --      AR has run as a batch of all three ranks;
 *   rank 2:  AR AG --          rank 2:     AG --      AG waits for rank 1
 */
#include "runtime/comm/gather.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/text.h"
#include "base/types.h"
#include "runtime/backend/nccl_source.h"
#include "runtime/plan/layout.h"

/* ---- one rank's call: the checks of its arguments, its text, whether several are the same ---- */

static const char *name_of(const struct copse_call *call) {
  switch (call->collective) {
    case COPSE_ALLGATHER: return "all_gather";
    case COPSE_REDUCE_SCATTER: return "reduce_scatter";
    case COPSE_ALLREDUCE: return "all_reduce";
    case COPSE_BROADCAST: return "broadcast";
    case COPSE_REDUCE: return "reduce";
    case COPSE_ALLTOALL: return call->pair_counts ? "all_to_all_v" : "all_to_all";
  }
  return "unknown";
}

void copse_call_describe(const struct copse_call *call, char text[COPSE_CALL_TEXT]) {
  char root[24] = "";
  bool reduces = copse_collective_reduces(call->collective);
  if (copse_collective_rooted(call->collective))
    snprintf(root, sizeof root, ", root %d", call->root);
  snprintf(text, COPSE_CALL_TEXT, "%s of %llu %s%s%s%s", name_of(call),
           (unsigned long long)call->count, copse_type_name(call->type), reduces ? " " : "",
           reduces ? copse_redop_name(call->redop) : "", root);
}

/* A rank's buffers, as far as the call uses them. */
struct extents {
  const char *send, *recv;
  uint64_t send_bytes, recv_bytes; /* 0: not used */
  uint64_t block_bytes;
};

static struct extents extents_of(const struct copse_call *call, uint32_t n_ranks, uint32_t rank) {
  uint64_t block = call->count * copse_type_bytes(call->type);
  struct extents e = {call->send, call->recv, block, block, block};
  bool is_root = (uint32_t)call->root == rank;
  switch (call->collective) {
    case COPSE_ALLGATHER: e.recv_bytes = n_ranks * block; break;
    case COPSE_REDUCE_SCATTER: e.send_bytes = n_ranks * block; break;
    case COPSE_ALLTOALL: e.send_bytes = e.recv_bytes = n_ranks * block; break;
    case COPSE_BROADCAST:
      if (!is_root) e.send_bytes = 0;
      break;
    case COPSE_REDUCE:
      if (!is_root) e.recv_bytes = 0;
      break;
    default: break;
  }
  return e;
}

static copse_status check_buffer(const char *what, const void *buffer, uint64_t bytes,
                                 copse_type type, struct copse_err *err) {
  if (bytes == 0) return COPSE_OK;
  if (!buffer) return copse_fail(err, COPSE_INVALID, "%s is NULL", what);
  if ((uintptr_t)buffer % copse_type_bytes(type) != 0)
    return copse_fail(err, COPSE_INVALID, "%s %p is not aligned to a %s of %zu bytes", what, buffer,
                      copse_type_name(type), copse_type_bytes(type));
  return COPSE_OK;
}

static bool overlap(const struct extents *e) {
  if (e->send_bytes == 0 || e->recv_bytes == 0) return false;
  uintptr_t send = (uintptr_t)e->send, recv = (uintptr_t)e->recv;
  return send < recv ? recv - send < e->send_bytes : send - recv < e->recv_bytes;
}

static copse_status check_place(const struct copse_call *call, uint32_t rank,
                                const struct extents *e, struct copse_err *err) {
  if (!overlap(e)) return COPSE_OK;
  uintptr_t send = (uintptr_t)e->send, recv = (uintptr_t)e->recv, own = rank * e->block_bytes;
  bool in_place = send == recv;
  const char *rule = "recvbuff == sendbuff";
  if (call->collective == COPSE_ALLTOALL)
    return copse_fail(err, COPSE_INVALID, "sendbuff and recvbuff overlap: %s is not done in place",
                      name_of(call));
  if (call->collective == COPSE_ALLGATHER) {
    in_place = send == recv + own;
    rule = "sendbuff == recvbuff + rank * sendcount";
  } else if (call->collective == COPSE_REDUCE_SCATTER) {
    in_place = recv == send + own;
    rule = "recvbuff == sendbuff + rank * recvcount";
  }
  if (in_place) return COPSE_OK;
  return copse_fail(err, COPSE_INVALID, "sendbuff and recvbuff overlap; in place means %s", rule);
}

copse_status copse_message_bytes(copse_collective collective, uint32_t n_ranks, uint64_t count,
                                 copse_type type, uint64_t *bytes, struct copse_err *err) {
  bool per_rank = collective == COPSE_ALLGATHER || collective == COPSE_REDUCE_SCATTER ||
                  collective == COPSE_ALLTOALL;
  uint64_t blocks = per_rank ? n_ranks : 1;
  if (__builtin_mul_overflow(count, copse_type_bytes(type), bytes) ||
      __builtin_mul_overflow(*bytes, blocks, bytes) || *bytes > COPSE_BUFFER_MAX_BYTES)
    return copse_fail(err, COPSE_INVALID,
                      "%llu blocks of %llu %s: a buffer may have up to 2^48 bytes",
                      (unsigned long long)blocks, (unsigned long long)count, copse_type_name(type));
  return COPSE_OK;
}

copse_status copse_call_check(const struct copse_call *call, uint32_t n_ranks, uint32_t rank,
                              struct copse_err *err) {
  uint64_t bytes;
  if ((unsigned)call->type >= COPSE_N_TYPES)
    return copse_fail(err, COPSE_INVALID, "%d is no copse_type", (int)call->type);
  if (copse_collective_reduces(call->collective) && (unsigned)call->redop >= COPSE_N_REDOPS)
    return copse_fail(err, COPSE_INVALID, "%d is no copse_redop", (int)call->redop);
  if (copse_collective_rooted(call->collective) &&
      (call->root < 0 || (uint32_t)call->root >= n_ranks))
    return copse_fail(err, COPSE_INVALID, "root %d is no rank of 0..%u", call->root, n_ranks - 1);
  COPSE_DO(copse_message_bytes(call->collective, n_ranks, call->count, call->type, &bytes, err));
  struct extents e = extents_of(call, n_ranks, rank);
  COPSE_DO(check_buffer("sendbuff", e.send, e.send_bytes, call->type, err));
  COPSE_DO(check_buffer("recvbuff", e.recv, e.recv_bytes, call->type, err));
  return check_place(call, rank, &e, err);
}

static bool is_same(const struct copse_call *a, const struct copse_call *b) {
  return a->collective == b->collective && a->root == b->root && a->count == b->count &&
         a->type == b->type && a->redop == b->redop && !a->pair_counts == !b->pair_counts;
}

/* Whether calls[0 .. n-1] of the ranks from first_rank on are the same call: all but buffers and
 * stream. COPSE_INVALID names two ranks that differ and what they call. */
static copse_status match_calls(const struct copse_call *calls, uint32_t n, uint32_t first_rank,
                                struct copse_err *err) {
  for (uint32_t i = 1; i < n; i++) {
    if (is_same(&calls[0], &calls[i])) continue;
    char first[COPSE_CALL_TEXT], other[COPSE_CALL_TEXT];
    copse_call_describe(&calls[0], first);
    copse_call_describe(&calls[i], other);
    return copse_fail(err, COPSE_INVALID, "rank %u calls %s where rank %u calls %s", first_rank + i,
                      other, first_rank, first);
  }
  return COPSE_OK;
}

#define MAX_NAMED_RANKS 8
#define RANKS_TEXT 160

/* Lists "rank 3, 5 and 9 more": those of first_rank .. first_rank + n - 1 whose offset `holds`. */
static void describe_ranks(bool (*holds)(const void *context, uint32_t i), const void *context,
                           uint32_t first_rank, uint32_t n, char text[RANKS_TEXT]) {
  struct copse_line line = {.text = "rank", .used = 4};
  uint32_t named = 0;
  for (uint32_t i = 0; i < n; i++)
    if (holds(context, i) && named++ < MAX_NAMED_RANKS)
      copse_line_add(&line, "%s %u", named > 1 ? "," : "", first_rank + i);
  if (named > MAX_NAMED_RANKS) copse_line_add(&line, " and %u more", named - MAX_NAMED_RANKS);
  memcpy(text, line.text, line.used + 1);
}

/* ---- batches --------------------------------------------------------------------------------- */

#define DEFAULT_TIMEOUT_SECONDS 600.0

copse_status copse_gather_init(struct copse_gather *gather, uint32_t first_rank, uint32_t n,
                               struct copse_err *err) {
  gather->first_rank = first_rank;
  gather->n = n;
  gather->timeout_seconds = DEFAULT_TIMEOUT_SECONDS;
  pthread_mutex_init(&gather->lock, NULL);
  copse_clock_condition(&gather->changed);
  COPSE_DO(copse_calloc(n, sizeof *gather->queues, &gather->queues, err));
  return copse_calloc((size_t)n * COPSE_GATHER_MOST, sizeof *gather->calls, &gather->calls, err);
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

/* Takes the next batch out of the queues, as the k-th of those that run. */
static void take_batch(struct copse_gather *gather, uint32_t k) {
  struct copse_call *calls = gather->calls + (size_t)k * gather->n;
  for (uint32_t r = 0; r < gather->n; r++) {
    struct copse_pending *first = pop(gather, r);
    if (k == 0) gather->queues[r].runs = first;
    calls[r] = first->call;
  }
  gather->batches[k] = (struct copse_gather_batch){.calls = calls};
}

/* Runs the batches that are complete, as many as there is room for; without the lock in between. */
static void run_batches(struct copse_gather *gather) {
  struct copse_err breaks = COPSE_ERR_INIT;
  uint32_t n = 0;
  while (n < COPSE_GATHER_MOST && gather->n_waiting == gather->n) take_batch(gather, n++);
  gather->running = true;
  pthread_mutex_unlock(&gather->lock);
  for (uint32_t k = 0; k < n; k++) {
    struct copse_err *result = &gather->batches[k].result;
    result->status = match_calls(gather->batches[k].calls, gather->n, gather->first_rank, result);
  }
  gather->launch(gather->context, gather->batches, n, &breaks);
  pthread_mutex_lock(&gather->lock);
  gather->running = false;
  gather->n_batches += n;
  if (breaks.status != COPSE_OK) break_locked(gather, &breaks);
  /* an abort while they ran: what they did is unknown to their callers' peers */
  const struct copse_err *broken = gather->broken.status != COPSE_OK ? &gather->broken : NULL;
  for (uint32_t r = 0; r < gather->n; r++)
    for (uint32_t k = 0; k < n; k++) {
      struct copse_pending *next = gather->queues[r].runs->next;
      end(gather->queues[r].runs, broken ? broken : &gather->batches[k].result);
      gather->queues[r].runs = next;
    }
  pthread_cond_broadcast(&gather->changed);
}

/* ---- without ------------------------------------------------------------------------------ */

void copse_gather_queue(struct copse_gather *gather, uint32_t local_rank,
                        struct copse_pending *pending) {
  COPSE_HOLD(&gather->lock);
  if (gather->broken.status != COPSE_OK)
    end(pending, &gather->broken);
  else if (gather->left.status != COPSE_OK)
    end(pending, &gather->left);
  else
    push(gather, local_rank, pending);
}

void copse_gather_run(struct copse_gather *gather) {
  COPSE_HOLD(&gather->lock);
  /* whoever runs batches goes on with those that have become complete meanwhile */
  while (!gather->running && gather->n_waiting == gather->n) run_batches(gather);
}

static bool is_missing(const void *context, uint32_t i) {
  const struct copse_gather *gather = context;
  return !gather->queues[i].head;
}

static void break_timeout(struct copse_gather *gather) {
  struct copse_err why = COPSE_ERR_INIT;
  char missing[RANKS_TEXT], call[COPSE_CALL_TEXT];
  uint32_t first = 0;
  while (!gather->queues[first].head) first++;
  describe_ranks(is_missing, gather, gather->first_rank, gather->n, missing);
  copse_call_describe(&gather->queues[first].head->call, call);
  (void)copse_fail(&why, COPSE_TIMEOUT, "rank %u has called %s and waited %g s for the call of %s",
                   gather->first_rank + first, call, gather->timeout_seconds, missing);
  break_locked(gather, &why);
}

void copse_gather_wait(struct copse_gather *gather, struct copse_pending *pending) {
  COPSE_HOLD(&gather->lock);
  uint64_t seen = gather->n_batches;
  double since = copse_clock_seconds();
  while (!pending->done) {
    double now = copse_clock_seconds();
    /* a rank is late only while nothing goes on */
    if (gather->running || gather->n_batches != seen) since = now;
    seen = gather->n_batches;
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

/* ---- agreement ------------------------------------------------------------------------------ */

/* Agreement of all processes of a communicator: an all-gather of status and checksums of plans,
 * from which every rank draws the same conclusion. */

/* A rank's vote, sent as it lies in memory: all processes run on hosts of one kind. */
struct vote {
  uint32_t status; /* copse_status */
  uint32_t n_plans;
  uint8_t digest[COPSE_SHA256_BYTES]; /* of the plans' own checksums */
};

static copse_status digest_plans(const struct copse_plan *const *plans, size_t n,
                                 uint8_t digest[COPSE_SHA256_BYTES], struct copse_err *err) {
  COPSE_AT_END(copse_free_at) uint8_t *checksums = NULL;
  COPSE_DO(copse_calloc(n, COPSE_SHA256_BYTES, &checksums, err));
  for (size_t i = 0; i < n; i++)
    COPSE_DO(copse_plan_checksum(plans[i], checksums + i * COPSE_SHA256_BYTES, err));
  copse_sha256(checksums, n * COPSE_SHA256_BYTES, digest);
  return COPSE_OK;
}

static bool has_failed(const void *context, uint32_t r) {
  const struct vote *votes = context;
  return votes[r].status != COPSE_OK;
}

static bool differs(const void *context, uint32_t r) {
  const struct vote *votes = context;
  return memcmp(&votes[r], &votes[0], sizeof *votes) != 0;
}

/* Up to so many ranks votes need no memory: a rank that has none left must still say so. */
#define FEW_RANKS 128

static copse_status judge(const struct vote *votes, uint32_t n_ranks, struct copse_err *err) {
  char ranks[RANKS_TEXT];
  for (uint32_t r = 0; r < n_ranks; r++) {
    if (!has_failed(votes, r)) continue;
    describe_ranks(has_failed, votes, 0, n_ranks, ranks);
    return copse_fail(err, COPSE_REFUTED, "stopped on all ranks because %s failed (rank %u: %s)",
                      ranks, r, copse_status_string((copse_status)votes[r].status));
  }
  for (uint32_t r = 1; r < n_ranks; r++) {
    if (!differs(votes, r)) continue;
    describe_ranks(differs, votes, 0, n_ranks, ranks);
    return copse_fail(err, COPSE_REFUTED,
                      "no plan is added: %s has not the %u plans that rank 0 has (by checksum)",
                      ranks, votes[0].n_plans);
  }
  return COPSE_OK;
}

copse_status copse_agree(const struct copse_comm_shape *shape, copse_status mine,
                         const struct copse_plan *const *plans, size_t n, struct copse_err *err) {
  COPSE_AT_END(copse_free_at) struct vote *many = NULL;
  struct vote vote, few[FEW_RANKS], *votes = few;
  if (!shape->bootstrap) return mine;
  memset(&vote, 0, sizeof vote);
  vote.n_plans = (uint32_t)n;
  if (mine == COPSE_OK) mine = digest_plans(plans, n, vote.digest, err);
  vote.status = (uint32_t)mine;
  if (shape->n_ranks > FEW_RANKS) {
    COPSE_DO(copse_calloc(shape->n_ranks, sizeof *many, &many, err));
    votes = many;
  }
  const copse_status status =
      shape->bootstrap->all_gather(shape->bootstrap->context, &vote, votes, sizeof vote);
  if (status != COPSE_OK) {
    if (shape->bootstrap_error) (void)shape->bootstrap_error(shape->bootstrap->context, err);
    return copse_fail(err, status, "the bootstrap's all_gather failed");
  }
  return mine != COPSE_OK ? mine : judge(votes, shape->n_ranks, err);
}

/* ---- a bootstrap's NCCL ------------------------------------------------------------------- */

static _Atomic(copse_nccl_source_type) source_of; /* that the drop-in has set, for all threads */

void copse_nccl_source_set(copse_nccl_source_type source) { atomic_store(&source_of, source); }

copse_nccl_find_type copse_nccl_source_of(const copse_bootstrap *bootstrap) {
  copse_nccl_source_type source = atomic_load(&source_of);
  return source ? source(bootstrap) : NULL;
}
