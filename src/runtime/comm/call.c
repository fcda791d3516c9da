/* One rank's call of a collective: the checks of its arguments, its text in messages, and whether
 * the calls of several ranks are the same. */
#include "runtime/comm/call.h"

#include <stdio.h>
#include <string.h>

#include "runtime/comm/plans.h"
#include "base/text.h"
#include "base/types.h"

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

copse_status copse_calls_match(const struct copse_call *calls, uint32_t n, uint32_t first_rank,
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

void copse_ranks_describe(bool (*holds)(const void *context, uint32_t i), const void *context,
                          uint32_t first_rank, uint32_t n, char text[COPSE_RANKS_TEXT]) {
  struct copse_line line = {.text = "rank", .used = 4};
  uint32_t named = 0;
  for (uint32_t i = 0; i < n; i++)
    if (holds(context, i) && named++ < MAX_NAMED_RANKS)
      copse_line_add(&line, "%s %u", named > 1 ? "," : "", first_rank + i);
  if (named > MAX_NAMED_RANKS) copse_line_add(&line, " and %u more", named - MAX_NAMED_RANKS);
  memcpy(text, line.text, line.used + 1);
}
