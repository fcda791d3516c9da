/* What went wrong, in one line: who waits for whom, which channel is out of balance. */
#include <stdio.h>
#include <string.h>

#include "runtime/interpreter/exec_internal.h"

/* As many links of a chain as fit a line that people read. */
#define MAX_LINKS 5

/* "rank 3 worker 1": the worker's number within its rank. */
static void add_worker(const struct copse_exec *exec, uint32_t w, char *text, size_t size) {
  const struct copse_plan *plan = exec->plan;
  uint32_t rank = plan->workers[w].rank;
  size_t used = strlen(text);
  snprintf(text + used, size - used, "rank %u worker %u", rank, w - plan->ranks[rank].first_worker);
}

/*
 * The channel that an unfinished worker stands at: its current operation is a WAIT, or a MOVE of
 * packets. Those were announced before it (a valid plan has a WAIT there), and of the senders
 * one that isn't through is the better guess.
 */
uint32_t copse_exec_waited_channel(const struct copse_exec *exec, uint32_t w) {
  const struct copse_plan_op *first = &exec->plan->ops[exec->plan->workers[w].first_op];
  const struct copse_plan_op *op = first + exec->workers[w].op, *guess = NULL;
  if (op->kind == COPSE_OP_WAIT) return op->channel;
  while (op-- > first && !(guess && op->kind == COPSE_OP_MOVE)) {
    if (op->kind != COPSE_OP_WAIT) continue;
    bool in_data = op->flags & COPSE_SYNC_IN_DATA;
    if (in_data && !exec->workers[exec->plan->channels[op->channel].src_worker].finished)
      return op->channel;
    if (!guess || (in_data && !(guess->flags & COPSE_SYNC_IN_DATA))) guess = op;
  }
  return guess->channel;
}

static uint32_t waits_for(const struct copse_exec *exec, uint32_t w) {
  return exec->plan->channels[copse_exec_waited_channel(exec, w)].src_worker;
}

/*
 * Where to start telling: the lowest worker of the cycle that the lowest unfinished
 * worker leads into, or that worker itself where its chain ends at a finished one.
 */
static uint32_t find_start(const struct copse_exec *exec) {
  uint32_t n = exec->plan->header.n_workers, first = 0;
  while (exec->workers[first].finished) first++;
  uint32_t w = first;
  for (uint32_t i = 0; i < n; i++) { /* after n steps it is within the cycle, if any */
    w = waits_for(exec, w);
    if (exec->workers[w].finished) return first;
  }
  uint32_t lowest = w;
  for (uint32_t it = waits_for(exec, w); it != w; it = waits_for(exec, it))
    if (it < lowest) lowest = it;
  return lowest;
}

/* Links of the chain from `start` up to a finished worker or back to `start`. */
static uint32_t chain_length(const struct copse_exec *exec, uint32_t start) {
  uint32_t length = 0, w = start;
  do {
    w = waits_for(exec, w);
    length++;
  } while (w != start && !exec->workers[w].finished);
  return length;
}

copse_status copse_exec_report_standstill(const struct copse_exec *exec, const char *what,
                                          struct copse_err *err) {
  char text[480];
  uint32_t start = find_start(exec), w = start;
  uint32_t length = chain_length(exec, start);
  snprintf(text, sizeof text, "%s: ", what);
  add_worker(exec, w, text, sizeof text);
  for (uint32_t i = 0; i < length; i++) {
    uint32_t next = waits_for(exec, w);
    if (i < MAX_LINKS || i + 1 == length) {
      size_t used = strlen(text);
      snprintf(text + used, sizeof text - used, "%s waits for ", i ? ", which" : "");
      add_worker(exec, next, text, sizeof text);
      used = strlen(text);
      snprintf(text + used, sizeof text - used, " (channel %u, chunk %u)",
               copse_exec_waited_channel(exec, w), exec->workers[w].chunk);
    } else if (i == MAX_LINKS) {
      size_t used = strlen(text);
      snprintf(text + used, sizeof text - used, ", and so on over %u more", length - MAX_LINKS - 1);
    }
    w = next;
  }
  const char *end = exec->workers[w].finished ? ", which has finished" : "";
  return copse_fail(err, COPSE_REFUTED, "%s%s", text, end);
}

copse_status copse_exec_check_balance(const struct copse_exec *exec, struct copse_err *err) {
  for (uint32_t c = 0; c < exec->plan->header.n_channels; c++) {
    const struct copse_exec_channel *channel = &exec->channels[c];
    uint64_t signals = atomic_load_explicit(&channel->signals, memory_order_acquire);
    if (signals == channel->waits) continue;
    char from[64] = "", to[64] = "";
    add_worker(exec, exec->plan->channels[c].src_worker, from, sizeof from);
    add_worker(exec, exec->plan->channels[c].dst_worker, to, sizeof to);
    return copse_fail(err, COPSE_REFUTED,
                      "channel %u from %s to %s is unbalanced: %llu more signals than waits", c,
                      from, to, (unsigned long long)(signals - channel->waits));
  }
  return COPSE_OK;
}
