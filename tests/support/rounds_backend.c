#include "support/rounds_backend.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/plan/layout.h"
#include "runtime/interpreter/expected.h"
#include "runtime/interpreter/element_tile_cpu.h"
#include "runtime/interpreter/view.h"
#include "support/support.h"

/* A message underway. */
struct sent {
  struct sent *next;
  uint32_t launch;
  struct copse_message message;
  size_t bytes;
  unsigned char data[];
};

struct queue {
  struct sent *first, **end;
};

struct rank {
  uint32_t launch, round;
  bool in_messages; /* it has sent this round's, and waits for those to it */
  uint32_t weight;  /* how readily it moves */
};

struct simulation {
  const struct copse_plan *plan;
  const struct rounds_case *it;
  struct copse_split *split;
  struct copse_rounds *rounds;
  struct copse_layout layout;
  struct copse_view view;
  struct copse_rank_memory *memory;
  struct copse_buffers live, *launches;
  struct rank *ranks;
  struct copse_cursor *at; /* [n_workers] */
  uint64_t *signals, *waits;
  struct queue *queues; /* [n_ranks * n_ranks] */
  uint64_t random;
};

static uint32_t draw(struct simulation *m, uint32_t n) {
  return (uint32_t)copse_test_random_int(&m->random, 0, (int)n - 1);
}

/* ---- entering and leaving -------------------------------------------------------------------- */

/* What a launch's buffers hold of a rank, to or from where it works. */
static void exchange(struct simulation *m, uint32_t r, bool enter) {
  struct copse_buffers *given = &m->launches[m->ranks[r].launch];
  size_t in = (size_t)given->input_capacity + 2 * COPSE_GUARD_BYTES;
  size_t out = (size_t)given->output_capacity + 2 * COPSE_GUARD_BYTES;
  memcpy((enter ? &m->live : given)->input_memory[r], (enter ? given : &m->live)->input_memory[r],
         in);
  memcpy((enter ? &m->live : given)->output_memory[r], (enter ? given : &m->live)->output_memory[r],
         out);
  if (enter) return;
  memset(m->live.input_memory[r], 0x5a, in);
  memset(m->live.output_memory[r], 0x5a, out);
}

static void enter(struct simulation *m, uint32_t r) {
  for (uint32_t i = 0; i < m->plan->ranks[r].n_workers; i++)
    m->at[m->plan->ranks[r].first_worker + i] = (struct copse_cursor){0, 0};
  m->ranks[r].round = 0;
  m->ranks[r].in_messages = false;
  if (m->ranks[r].launch < m->it->n_launches) exchange(m, r, true);
}

static void leave(struct simulation *m, uint32_t r) {
  exchange(m, r, false);
  m->ranks[r].launch++;
  enter(m, r);
}

/* ---- workers -----------------------------------------------------------------------------------
 */

/* False where packets that it reads aren't there yet. */
static bool run_move(struct simulation *m, uint32_t r, const struct copse_plan_op *op, uint32_t c) {
  struct copse_place places[2 * COPSE_MOVE_MAX_OPERANDS];
  struct copse_span chunk = copse_view_chunk(&m->view, op->piece, c);
  if (chunk.count == 0) return true;
  for (uint32_t k = 0; k < (uint32_t)op->n_src + op->n_dst; k++)
    places[k] = copse_view_operand(&m->view, &m->split->local.operands[op->operand + k], chunk, c,
                                   m->ranks[r].launch + 1);
  for (uint32_t k = 0; k < op->n_src; k++)
    if (places[k].epoch &&
        !copse_packets_are_there(&places[k], chunk.count * m->view.shape.element_bytes))
      return false;
  const struct copse_move move = {.type = m->view.type,
                                  .redop = m->view.redop,
                                  .n_src = op->n_src,
                                  .n_dst = op->n_dst,
                                  .divisor = copse_view_divisor(&m->view, op),
                                  .count = chunk.count,
                                  .src = places,
                                  .dst = places + op->n_src};
  ck_assert(copse_move_run(&move, 0, 1));
  return true;
}

/* One operation; false where the worker stands at the round's end or waits. */
static bool step(struct simulation *m, uint32_t w) {
  const struct copse_plan_worker *worker = &m->plan->workers[w];
  struct copse_cursor *at = &m->at[w];
  uint32_t n = m->rounds->n_chunks;
  size_t row = (size_t)(m->ranks[worker->rank].round + 1) * m->rounds->n_workers;
  const struct copse_cursor *end = &m->rounds->cursors[row + w];
  if (worker->n_ops == 0) *at = *end;
  if (at->chunk == end->chunk && at->op == end->op) return false;
  const struct copse_plan_op *op = &m->split->local.ops[worker->first_op + at->op];
  if (copse_op_runs(op->when, at->chunk, n, m->view.shape.fifo) &&
      !(op->kind != COPSE_OP_MOVE && (op->flags & COPSE_SYNC_IN_DATA))) {
    if (op->kind == COPSE_OP_WAIT && m->waits[op->channel] == m->signals[op->channel]) return false;
    if (op->kind == COPSE_OP_WAIT) m->waits[op->channel]++;
    if (op->kind == COPSE_OP_SIGNAL) m->signals[op->channel]++;
    if (op->kind == COPSE_OP_MOVE && !run_move(m, worker->rank, op, at->chunk)) return false;
  }
  if (++at->op == worker->n_ops) *at = (struct copse_cursor){at->chunk + 1, 0};
  return true;
}

static bool at_end(const struct simulation *m, uint32_t r) {
  const struct copse_plan_rank *rank = &m->plan->ranks[r];
  size_t row = (size_t)(m->ranks[r].round + 1) * m->rounds->n_workers;
  return memcmp(&m->at[rank->first_worker], &m->rounds->cursors[row + rank->first_worker],
                rank->n_workers * sizeof *m->at) == 0;
}

/* ---- messages ----------------------------------------------------------------------------------
 */

static bool has_inbox(const struct simulation *m, const struct copse_message *message) {
  return m->split->inboxes && m->split->inboxes[message->operand] != COPSE_NO_INBOX;
}

static struct copse_place place_of(const struct simulation *m, const struct copse_message *message,
                                   bool landing, size_t *bytes) {
  const struct copse_shape *shape = &m->view.shape;
  struct copse_plan_operand operand =
      (landing ? m->split->lands : m->split->local.operands)[message->operand];
  struct copse_span chunk = copse_view_chunk(&m->view, message->piece, message->chunk);
  *bytes = (size_t)(chunk.count * shape->element_bytes);
  if (m->it->pair_counts && landing && has_inbox(m, message))
    operand = (struct copse_plan_operand){operand.rank, COPSE_BUFFER_SCRATCH,
                                          m->split->inboxes[message->operand]};
  if (m->it->pair_counts)
    *bytes = copse_slot_elements(shape, &m->layout.places[operand.index]) * shape->element_bytes;
  return copse_view_operand(&m->view, &operand, chunk, message->chunk, 1);
}

/* What has come to an inbox, to its place in the output. */
static void unpack(const struct simulation *m, const struct copse_message *message,
                   struct copse_place from) {
  struct copse_span chunk = copse_view_chunk(&m->view, message->piece, message->chunk);
  struct copse_place to =
      copse_view_operand(&m->view, &m->split->lands[message->operand], chunk, message->chunk, 1);
  memcpy(to.at, from.at, (size_t)(chunk.count * m->view.shape.element_bytes));
}

static bool is_sent(const struct simulation *m, const struct copse_message *message) {
  return m->it->words || message->operand != COPSE_NO_OPERAND;
}

static void send(struct simulation *m, uint32_t r) {
  const size_t *range = &m->rounds->first_message[m->ranks[r].round];
  for (size_t i = range[0]; i < range[1]; i++) {
    const struct copse_message *message = &m->rounds->messages[i];
    struct copse_place from = {0};
    size_t bytes = 0;
    if (message->src != r || !is_sent(m, message)) continue;
    if (message->operand != COPSE_NO_OPERAND) from = place_of(m, message, false, &bytes);
    else /* one status word of a pair in a round, behind its data */
      ck_assert(i == range[0] || message[-1].src != r || message[-1].dst != message->dst ||
                message[-1].operand != COPSE_NO_OPERAND);
    struct sent *sent = calloc(1, sizeof *sent + bytes);
    sent->launch = m->ranks[r].launch;
    sent->message = *message;
    sent->bytes = bytes;
    if (bytes) memcpy(sent->data, from.at, bytes);
    struct queue *queue = &m->queues[message->src * m->plan->header.n_ranks + message->dst];
    *(queue->first ? queue->end : &queue->first) = sent;
    queue->end = &sent->next;
  }
  m->ranks[r].in_messages = true;
}

/* All messages to the rank, or none of them. */
static bool receive(struct simulation *m, uint32_t r) {
  const size_t *range = &m->rounds->first_message[m->ranks[r].round];
  uint32_t n = m->plan->header.n_ranks;
  for (int take = 0; take < 2; take++) {
    const struct sent *next = NULL;
    uint32_t src = n;
    for (size_t i = range[0]; i < range[1]; i++) {
      const struct copse_message *message = &m->rounds->messages[i];
      if (message->dst != r || !is_sent(m, message)) continue;
      struct queue *queue = &m->queues[message->src * n + r];
      if (!take) {
        next = message->src == src && next ? next->next : queue->first;
        src = message->src;
        if (!next) return false;
        continue;
      }
      struct sent *sent = queue->first;
      size_t bytes = 0;
      struct copse_place to = {0};
      if (message->operand != COPSE_NO_OPERAND) to = place_of(m, message, true, &bytes);
      ck_assert_uint_eq(sent->launch, m->ranks[r].launch);
      ck_assert_mem_eq(&sent->message, message, sizeof *message);
      ck_assert_uint_eq(sent->bytes, bytes);
      if (bytes) memcpy(to.at, sent->data, bytes);
      if (bytes && m->it->pair_counts && has_inbox(m, message)) unpack(m, message, to);
      queue->first = sent->next;
      free(sent);
    }
  }
  return true;
}

/* ---- running --------------------------------------------------------------------------------- */

static bool move_rank(struct simulation *m, uint32_t r) {
  struct rank *rank = &m->ranks[r];
  const struct copse_plan_rank *workers = &m->plan->ranks[r];
  if (rank->launch == m->it->n_launches) return false;
  if (rank->in_messages) {
    if (!receive(m, r)) return false;
    rank->in_messages = false;
    if (++rank->round == m->rounds->n_rounds) leave(m, r);
    return true;
  }
  bool moved = false;
  for (uint32_t i = 0, first = workers->n_workers ? draw(m, workers->n_workers) : 0;
       i < workers->n_workers && !moved; i++)
    moved = step(m, workers->first_worker + (first + i) % workers->n_workers);
  if (moved) return true;
  if (!at_end(m, r)) return false;
  send(m, r);
  return true;
}

static void run(struct simulation *m) {
  uint32_t n = m->plan->header.n_ranks;
  for (uint32_t r = 0; r < n; r++) {
    m->ranks[r].weight = 1u << draw(m, 8);
    enter(m, r);
  }
  for (;;) {
    uint32_t r = draw(m, n);
    if (draw(m, 128) < m->ranks[r].weight && move_rank(m, r)) continue;
    bool moved = false, done = true;
    for (uint32_t i = 0; i < n; i++) done = done && m->ranks[i].launch == m->it->n_launches;
    if (done) return;
    if (draw(m, 16)) continue;
    for (uint32_t i = 0; i < n && !moved; i++) moved = move_rank(m, (r + i) % n);
    ck_assert_msg(moved, "nothing moves");
  }
}

static void make_buffers(struct simulation *m, struct copse_buffers *buffers, uint32_t launch) {
  const struct copse_plan_header *h = &m->plan->header;
  const struct exec_case it = m->it->it;
  const struct copse_data data = {.collective = (copse_collective)h->collective,
                                  .n_ranks = h->n_ranks,
                                  .root = h->root,
                                  .count = it.count,
                                  .type = it.type,
                                  .redop = it.redop,
                                  .extents = h->n_extents ? m->plan->extents : NULL,
                                  .pair_counts = m->it->pair_counts,
                                  .seed = m->it->seed * 31 + launch};
  struct copse_err err = COPSE_ERR_INIT;
  uint64_t bytes = it.count * copse_type_bytes(it.type);
  ASSERT_OK(copse_buffers_new(h->n_ranks, h->input_blocks * bytes, h->output_blocks * bytes,
                              buffers, &err),
            &err);
  copse_buffers_fill(buffers, &data, it.in_place);
}

/* Bytes of one of a rank's two copies. */
static uint64_t most_packets(const struct simulation *m) {
  uint64_t most = 0;
  for (uint32_t r = 0; r < m->plan->header.n_ranks; r++) {
    uint64_t bytes = copse_round_up(copse_layout_most_packet_bytes(&m->layout, r), 64);
    if (bytes > most) most = bytes;
  }
  return most;
}

static void make_view(struct simulation *m) {
  const struct copse_plan *plan = &m->split->local;
  const struct exec_case it = m->it->it;
  struct copse_err err = COPSE_ERR_INIT;
  bool reduces = copse_collective_reduces((copse_collective)plan->header.collective);
  ASSERT_OK(copse_layout_new(plan, &m->layout, &err), &err);
  m->view = (struct copse_view){.pieces = plan->pieces,
                                .extents = plan->header.n_extents ? plan->extents : NULL,
                                .places = m->layout.places,
                                .ranks = m->memory,
                                .pair_counts = m->it->pair_counts,
                                .n_ranks = plan->header.n_ranks,
                                .packets_copy = most_packets(m),
                                .type = it.type,
                                .redop = reduces ? it.redop : COPSE_SUM};
  ASSERT_OK(copse_layout_shape(&m->layout, it.count, (uint32_t)copse_type_bytes(it.type),
                               &m->view.shape, &err),
            &err);
  copse_rounds_shape(&m->view.shape);
  ASSERT_OK(copse_rounds_new(m->split, m->view.shape.n_chunks, COPSE_ALL_RANKS, &m->rounds, &err),
            &err);
  for (uint32_t r = 0; r < plan->header.n_ranks; r++) {
    size_t bytes = (size_t)copse_layout_slot_bytes(&m->layout, &m->view.shape, r);
    ck_assert_uint_le(bytes, copse_layout_most_slot_bytes(&m->layout, r));
    m->memory[r].scratch = malloc(bytes + 1);
    memset(m->memory[r].scratch, 0xcc, bytes);
    m->memory[r].packets = calloc(2, (size_t)m->view.packets_copy + 1);
    m->memory[r].input = m->live.inputs[r];
    m->memory[r].output = m->live.outputs[r];
  }
}

uint64_t rounds_backend_run(const struct copse_plan *plan, const struct rounds_case *it) {
  const struct copse_plan_header *h = &plan->header;
  struct copse_err err = COPSE_ERR_INIT;
  struct simulation m = {.plan = plan, .it = it, .random = it->seed};
  uint64_t wrong = 0;
  ASSERT_OK(copse_split_new(plan, it->host_of, &m.split, &err), &err);
  m.memory = calloc(h->n_ranks, sizeof *m.memory);
  m.ranks = calloc(h->n_ranks, sizeof *m.ranks);
  m.at = calloc(h->n_workers + 1, sizeof *m.at);
  m.signals = calloc(h->n_channels + 1, sizeof *m.signals);
  m.waits = calloc(h->n_channels + 1, sizeof *m.waits);
  m.queues = calloc((size_t)h->n_ranks * h->n_ranks, sizeof *m.queues);
  m.launches = calloc(it->n_launches, sizeof *m.launches);
  make_buffers(&m, &m.live, 0);
  for (uint32_t l = 0; l < it->n_launches; l++) make_buffers(&m, &m.launches[l], l);
  make_view(&m);
  run(&m);
  for (uint32_t l = 0; l < it->n_launches; l++) {
    wrong += copse_buffers_count_wrong(&m.launches[l]);
    copse_buffers_free(&m.launches[l]);
  }
  for (uint32_t c = 0; c < h->n_channels; c++) ck_assert_uint_eq(m.signals[c], m.waits[c]);
  for (uint32_t r = 0; r < h->n_ranks; r++) {
    free(m.memory[r].scratch);
    free(m.memory[r].packets);
  }
  copse_buffers_free(&m.live);
  copse_layout_free(&m.layout);
  copse_rounds_free(m.rounds);
  copse_split_free(m.split);
  free(m.memory);
  free(m.ranks);
  free(m.at);
  free(m.signals);
  free(m.waits);
  free(m.queues);
  free(m.launches);
  return wrong;
}
