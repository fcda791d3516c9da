/* The interpreter: the state of a plan's execution, what one worker does, and what is reported
 * when the workers stand still. What an operation means: runtime/plan/plan_abi.h. Which worker goes
 * on first does not matter (G. Kahn 1974): docs/theory.md, "src/codegen/check/". */
#include "runtime/interpreter/interpreter.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "runtime/interpreter/element_move.h"
#include "runtime/interpreter/element_tile_cpu.h"

#include "runtime/interpreter/element_move_types.h" /* the loops, over the tiles above */

/* ---- one worker ---------------------------------------------------------------------------- */

/* Where an operation finds its data, on the stack of the worker that does it. */
struct places {
  struct copse_place src[COPSE_MOVE_MAX_OPERANDS], dst[COPSE_MOVE_MAX_OPERANDS];
};

/* Counts what an operation stores at other ranks: it goes to a place of its own, from which it is
 * sent. */
static uint32_t n_away(const struct copse_interpreter *exec, const struct copse_plan_op *op) {
  uint32_t n = 0;
  if (!exec->one_rank) return 0;
  const struct copse_plan_operand *operand = &exec->view.operands[op->operand + op->n_src];
  for (uint32_t k = 0; k < op->n_dst; k++)
    if (!copse_exec_is_here(exec, operand[k].rank)) n++;
  return n;
}

/* Finds the operands' places; returns the number of destinations here. */
static uint32_t find_places(const struct copse_interpreter *exec, const struct copse_plan_op *op,
                            struct copse_span chunk, uint32_t c, struct places *places) {
  const struct copse_plan_operand *operand = &exec->view.operands[op->operand];
  uint32_t n_dst = 0;
  for (uint32_t k = 0; k < op->n_src; k++)
    places->src[k] = copse_view_operand(&exec->view, operand++, chunk, c, exec->epoch);
  for (uint32_t k = 0; k < op->n_dst; k++, operand++)
    if (copse_exec_is_here(exec, operand->rank))
      places->dst[n_dst++] = copse_view_operand(&exec->view, operand, chunk, c, exec->epoch);
  return n_dst;
}

/* Returns memory here with the bytes that a MOVE stores, or NULL. */
static unsigned char *find_ready(const struct copse_move *move) {
  for (uint32_t k = 0; k < move->n_dst; k++)
    if (!move->dst[k].epoch) return move->dst[k].at;
  bool copies = move->n_src == 1 && move->divisor == 1 && !move->src[0].epoch;
  return copies ? move->src[0].at : NULL;
}

/* Whether a MOVE may run: its inputs have come, and what it overwrites has been sent. */
static bool may_move(const struct copse_interpreter *exec, const struct copse_move *move,
                     size_t bytes) {
  for (uint32_t k = 0; k < move->n_src; k++)
    if (move->src[k].epoch && !copse_packets_are_there(&move->src[k], bytes)) return false;
  for (uint32_t k = 0; k < move->n_dst && exec->one_rank; k++)
    if (exec->engine->sends(exec, move->dst[k].at, bytes)) return false;
  return true;
}

/* Runs a MOVE. False when packets that it reads aren't there yet, or too much is on its way to
 * other ranks; then nothing was done. */
static bool run_move(const struct copse_interpreter *exec, const struct copse_plan_op *op,
                     uint32_t c) {
  const struct copse_view *view = &exec->view;
  struct copse_span chunk = copse_view_chunk(view, op->piece, c);
  if (chunk.count == 0) return true;
  const size_t bytes = (size_t)chunk.count * view->shape.element_bytes;
  struct places places;
  struct copse_move move = {.type = view->type,
                            .redop = view->redop,
                            .n_src = op->n_src,
                            .n_dst = find_places(exec, op, chunk, c, &places),
                            .divisor = copse_view_divisor(view, op),
                            .count = chunk.count,
                            .src = places.src,
                            .dst = places.dst};
  if (!may_move(exec, &move, bytes)) return false;
  bool away = n_away(exec, op) > 0;
  if (away) {
    unsigned char *ready = find_ready(&move), *stage = exec->engine->stage(exec, bytes, ready);
    if (!stage) return false;
    if (stage != ready) places.dst[move.n_dst++] = (struct copse_place){stage, 0};
  }
  bool moved = move.n_dst == 0 || copse_move_run(&move, 0, 1);
  if (away) exec->engine->send(exec, op);
  return moved;
}

/* Raises the counter, of which the worker is the only writer, so no read-modify-write is needed. */
static void raise_signal(struct copse_exec_channel *channel) {
  uint64_t signals = atomic_load_explicit(&channel->signals, memory_order_relaxed);
  atomic_store_explicit(&channel->signals, signals + 1, memory_order_release);
}

/* Notes that the worker has done `op` of a chunk. */
static void done(const struct copse_interpreter *exec, uint32_t w, const struct copse_plan_op *op,
                 struct copse_exec_worker *at) {
  at->op++;
  if (exec->trace) exec->trace(exec->trace_context, w, op, at->chunk);
}

enum copse_exec_step copse_exec_advance(struct copse_interpreter *exec, uint32_t w,
                                        uint32_t *channel) {
  const struct copse_plan_worker *worker = &exec->plan->workers[w];
  const struct copse_plan_op *ops = &exec->plan->ops[worker->first_op];
  const uint32_t n_chunks = exec->view.shape.n_chunks, fifo = exec->view.shape.fifo;
  const bool looks = exec->engine->looks_at_packets;
  struct copse_exec_worker *at = &exec->workers[w];
  if (worker->n_ops == 0) at->chunk = n_chunks;
  for (; at->chunk < n_chunks; at->chunk++, at->op = 0)
    while (at->op < worker->n_ops) {
      const struct copse_plan_op *op = &ops[at->op];
      if (!copse_op_runs(op->when, at->chunk, n_chunks, fifo) ||
          (looks && op->kind != COPSE_OP_MOVE && (op->flags & COPSE_SYNC_IN_DATA))) {
        /* packets carry the signal themselves */
        at->op++;
      } else if (op->kind == COPSE_OP_MOVE) {
        if (!run_move(exec, op, at->chunk)) return COPSE_STEP_LOOKS;
        done(exec, w, op, at);
      } else if (op->kind == COPSE_OP_WAIT) {
        *channel = op->channel;
        if (!copse_exec_is_signalled(&exec->channels[op->channel])) return COPSE_STEP_WAITS;
        exec->channels[op->channel].waits++;
        done(exec, w, op, at);
      } else {
        *channel = op->channel;
        done(exec, w, op, at);
        raise_signal(&exec->channels[op->channel]);
        return COPSE_STEP_SIGNALLED;
      }
    }
  at->finished = true;
  return COPSE_STEP_FINISHED;
}

/* ---- reports: who waits for whom, which channel is unbalanced ------------------------------- */

/* As many links of a chain as fit a line that people read. */
#define MAX_LINKS 5

/* Adds "rank 3 worker 1": the worker's number within its rank. */
static void add_worker(struct copse_line *line, const struct copse_interpreter *exec, uint32_t w) {
  const struct copse_plan *plan = exec->plan;
  const uint32_t rank = plan->workers[w].rank;
  copse_line_add(line, "rank %u worker %u", rank, w - plan->ranks[rank].first_worker);
}

/* Returns the channel that an unfinished worker stands at: its current operation is a WAIT, or a
 * MOVE of packets. Those were announced before it (a valid plan has a WAIT there), and of the
 * senders one that isn't through is the better guess. */
uint32_t copse_exec_waited_channel(const struct copse_interpreter *exec, uint32_t w) {
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

static uint32_t waits_for(const struct copse_interpreter *exec, uint32_t w) {
  return exec->plan->channels[copse_exec_waited_channel(exec, w)].src_worker;
}

/* Finds the worker that a report begins with: the lowest worker of the cycle that the lowest
 * unfinished worker leads into, or that worker itself where its chain ends at a finished one. */
static uint32_t find_start(const struct copse_interpreter *exec) {
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

/* Counts links of the chain from `start` up to a finished worker or back to `start`. */
static uint32_t chain_length(const struct copse_interpreter *exec, uint32_t start) {
  uint32_t length = 0, w = start;
  do {
    w = waits_for(exec, w);
    length++;
  } while (w != start && !exec->workers[w].finished);
  return length;
}

copse_status copse_exec_report_standstill(const struct copse_interpreter *exec, const char *what,
                                          struct copse_err *err) {
  struct copse_line line = {.used = 0};
  uint32_t start = find_start(exec), w = start;
  uint32_t length = chain_length(exec, start);
  copse_line_add(&line, "%s: ", what);
  add_worker(&line, exec, w);
  for (uint32_t i = 0; i < length; i++) {
    uint32_t next = waits_for(exec, w);
    if (i < MAX_LINKS || i + 1 == length) {
      copse_line_add(&line, "%s waits for ", i ? ", which" : "");
      add_worker(&line, exec, next);
      copse_line_add(&line, " (channel %u, chunk %u)", copse_exec_waited_channel(exec, w),
                     exec->workers[w].chunk);
    } else if (i == MAX_LINKS) {
      copse_line_add(&line, ", and so on over %u more", length - MAX_LINKS - 1);
    }
    w = next;
  }
  const char *end = exec->workers[w].finished ? ", which has finished" : "";
  return copse_fail(err, COPSE_REFUTED, "%s%s", line.text, end);
}

static copse_status check_balance(const struct copse_interpreter *exec, struct copse_err *err) {
  for (uint32_t c = 0; c < exec->plan->header.n_channels; c++) {
    const struct copse_exec_channel *channel = &exec->channels[c];
    uint64_t signals = atomic_load_explicit(&channel->signals, memory_order_acquire);
    if (signals == channel->waits) continue;
    struct copse_line line = {.used = 0};
    copse_line_add(&line, "channel %u from ", c);
    add_worker(&line, exec, exec->plan->channels[c].src_worker);
    copse_line_add(&line, " to ");
    add_worker(&line, exec, exec->plan->channels[c].dst_worker);
    return copse_fail(err, COPSE_REFUTED, "%s is unbalanced: %llu more signals than waits",
                      line.text, (unsigned long long)(signals - channel->waits));
  }
  return COPSE_OK;
}

/* ---- state and launches ---------------------------------------------------------------------- */

#define DEFAULT_STALL_SECONDS 20.0

static void drop_interpreter(struct copse_interpreter **exec) { copse_interpreter_free(*exec); }

copse_status copse_interpreter_new(const struct copse_plan *plan, const struct copse_engine *engine,
                                   void *context, struct copse_interpreter **out,
                                   struct copse_err *err) {
  const struct copse_plan_header *h = &plan->header;
  COPSE_AT_END(drop_interpreter) struct copse_interpreter *exec = NULL;
  *out = NULL;
  COPSE_DO(copse_calloc(1, sizeof *exec, &exec, err));
  exec->plan = plan;
  exec->engine = engine;
  exec->stall_seconds = DEFAULT_STALL_SECONDS;
  COPSE_DO(copse_layout_new(plan, &exec->layout, err));
  COPSE_DO(COPSE_ARRAY(&exec->layout.arena, h->n_ranks, exec->memory, err));
  COPSE_DO(COPSE_ARRAY(&exec->layout.arena, h->n_ranks, exec->scratch_capacity, err));
  COPSE_DO(copse_calloc_aligned(COPSE_CACHE_LINE, h->n_workers, sizeof *exec->workers,
                                &exec->workers, err));
  COPSE_DO(copse_calloc_aligned(COPSE_CACHE_LINE, h->n_channels, sizeof *exec->channels,
                                &exec->channels, err));
  COPSE_DO(engine->open(exec, context, err));
  *out = exec;
  exec = NULL;
  return COPSE_OK;
}

void copse_interpreter_free(struct copse_interpreter *exec) {
  if (!exec) return;
  if (exec->own) exec->engine->close(exec); /* first: its threads use the rest */
  for (uint32_t r = 0; exec->memory && r < exec->plan->header.n_ranks; r++) {
    free(exec->memory[r].scratch);
    free(exec->memory[r].packets);
  }
  free(exec->workers);
  free(exec->channels);
  copse_layout_free(&exec->layout);
  free(exec);
}

/* Grows scratch, which never shrinks: launches of the same size don't allocate. Its content between
 * launches means nothing. */
static copse_status grow_scratch(struct copse_interpreter *exec, struct copse_err *err) {
  for (uint32_t r = 0; r < exec->plan->header.n_ranks; r++) {
    uint64_t bytes = copse_layout_slot_bytes(&exec->layout, &exec->view.shape, r);
    if (!copse_exec_is_here(exec, r)) continue;
    if (bytes <= exec->scratch_capacity[r]) continue;
    free(exec->memory[r].scratch);
    exec->memory[r].scratch = NULL;
    exec->scratch_capacity[r] = 0;
    COPSE_DO(copse_calloc((size_t)bytes, 1, &exec->memory[r].scratch, err));
    exec->scratch_capacity[r] = bytes;
  }
  return COPSE_OK;
}

/* Grows packets. The two copies lie at a distance that doesn't depend on the size, or the packets
 * of one launch could lie on those of the launch before. New ones have no launch's flag. */
static copse_status grow_packets(struct copse_interpreter *exec, struct copse_err *err) {
  uint32_t n = exec->plan->header.n_ranks;
  uint64_t most = 0;
  for (uint32_t r = 0; r < n; r++) {
    uint64_t bytes = copse_layout_packet_bytes(&exec->layout, &exec->view.shape, r);
    if (bytes > most) most = bytes;
  }
  most = copse_round_up(most, COPSE_CACHE_LINE);
  if (most <= exec->packets_capacity) return COPSE_OK;
  exec->packets_capacity = 0;
  for (uint32_t r = 0; r < n; r++) {
    free(exec->memory[r].packets);
    exec->memory[r].packets = NULL;
    if (exec->layout.packets[r].n == 0 || !copse_exec_is_here(exec, r)) continue;
    COPSE_DO(copse_calloc((size_t)most, 2, &exec->memory[r].packets, err));
  }
  exec->packets_capacity = most;
  return COPSE_OK;
}

static copse_status prepare(struct copse_interpreter *exec, const struct copse_call *calls,
                            struct copse_err *err) {
  const struct copse_plan *plan = exec->plan;
  struct copse_view *view = &exec->view;
  if (exec->broken)
    return copse_fail(err, COPSE_INVALID, "an earlier launch of this executor failed");
  *view = (struct copse_view){.ops = plan->ops,
                              .operands = plan->operands,
                              .pieces = plan->pieces,
                              .extents = plan->header.n_extents > 0 ? plan->extents : NULL,
                              .places = exec->layout.places,
                              .ranks = exec->memory,
                              .pair_counts = calls->pair_counts,
                              .n_ranks = plan->header.n_ranks,
                              .type = calls->type,
                              .redop = calls->redop};
  COPSE_DO(copse_layout_shape(&exec->layout, calls->count, copse_type_bytes(calls->type),
                              &view->shape, err));
  COPSE_DO(grow_scratch(exec, err));
  COPSE_DO(grow_packets(exec, err));
  view->packets_copy = exec->packets_capacity;
  for (uint32_t r = 0; r < view->n_ranks; r++) {
    if (!copse_exec_is_here(exec, r)) continue;
    exec->memory[r].input = (unsigned char *)(uintptr_t)calls->send; /* no plan writes inputs */
    exec->memory[r].output = calls++->recv;
  }
  /* Nothing is combined, hence nothing averaged either. */
  if (!copse_collective_reduces((copse_collective)plan->header.collective)) view->redop = COPSE_SUM;
  memset(exec->workers, 0, plan->header.n_workers * sizeof *exec->workers);
  return COPSE_OK;
}

/* Clears packets where numbers start again (copse_epoch_is_last). */
static void clear_packets(struct copse_interpreter *exec) {
  uint64_t bytes = exec->packets_capacity;
  for (uint32_t r = 0; r < exec->plan->header.n_ranks; r++)
    if (exec->memory[r].packets)
      memset(exec->memory[r].packets + (exec->epoch & 1) * bytes, 0, (size_t)bytes);
}

copse_status copse_interpreter_run(struct copse_interpreter *exec, const struct copse_call *calls,
                                   struct copse_err *err) {
  COPSE_DO(prepare(exec, calls, err));
  /* A launch without elements has no number: no rank would see another's. */
  if (calls->count == 0) return COPSE_OK;
  exec->epoch = copse_next_epoch(exec->epoch);
  exec->broken = true;
  COPSE_DO(exec->engine->run(exec, err));
  COPSE_DO(check_balance(exec, err));
  if (copse_epoch_is_last(exec->epoch)) clear_packets(exec);
  exec->broken = false;
  return COPSE_OK;
}

/* ==== one MOVE ================================================================================ */

/* One MOVE on a CPU: the loops of element_move_op.h, compiled here once for every type and
 * reduction, and the choice among them. */

bool copse_move_run(const struct copse_move *move, uint32_t thread, uint32_t n_threads) {
  /* One source and no division: the bits as they are, also those of a NaN. */
  if (move->n_src == 1 && move->divisor == 1)
    return copse_move_copy(move, copse_type_bytes(move->type), thread, n_threads);
#define MOVE_OF(NAME, TYPE, T, A) \
  case TYPE: return copse_##NAME##_move(move, thread, n_threads);
  switch (move->type) {
    COPSE_ELEMENT_TYPES(MOVE_OF)
    default: return false;
  }
}
