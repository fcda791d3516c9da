/*
 * The engine over a transport: this process runs the workers of its rank. A MOVE to another rank
 * is a message per destination, a SIGNAL to another rank's worker an empty one; messages of two
 * ranks keep their order, so a signal never overtakes the data that it releases. Nothing blocks:
 * data that comes in goes to its place whatever the workers wait for. A signal right behind long
 * data is no message of its own: the tag of the data names both. Data is sent from where it lies.
 *
 * Which operand or channel a message is for, its tag says: both ends number, for each pair of
 * ranks, what goes from one to the other in the plan's order. Which chunk: the next one that isn't
 * empty. Packets travel as plain data and become packets where they arrive; since their readers
 * look at them, signals IN_DATA aren't sent.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/graph.h"
#include "base/memory.h"
#include "base/types.h"
#include "runtime/interpreter/interpreter.h"
#include "runtime/transport/internal.h"

/* A plan for one size may have any number of chunks, since its costs don't count that all workers
 * of a rank share a thread here, and ranks often a core. An allreduce of 4 MiB of four ranks on two
 * cores took 173 ms of CPU time in chunks of 8 KiB, 81 in chunks of 32 KiB. */
#define LEAST_CHUNK_BYTES (32u << 10)

/* The messages from one rank that have one tag. */
struct stream {
  const struct copse_plan_op *op;           /* of data, else NULL */
  const struct copse_plan_operand *operand; /* its destination here */
  uint32_t channel;                         /* of signals */
  uint32_t chunk;                           /* the next */
  unsigned char *packed;                    /* data to become packets */
};

/* A rank, as one from which messages come. */
struct source {
  struct stream *streams;
  uint32_t n;
};

struct endpoint {
  struct copse_arena memory; /* of all arrays */
  struct copse_transport *transport;
  uint8_t digest[COPSE_SHA256_BYTES]; /* of the plan */
  struct source *sources;             /* [n_ranks] */
  uint32_t *operand_tags;             /* [n_operands] of destinations elsewhere */
  uint32_t *channel_tags;             /* [n_channels] of channels that end elsewhere */
  uint32_t *n_tags;                   /* [n_ranks] to each rank */
  struct copse_payload *stage;        /* of the MOVE that is being done */
};

static struct endpoint *endpoint_of(const struct copse_interpreter *exec) { return exec->own; }

/* ---- numbering ------------------------------------------------------------------------------- */

/* One pass over all that goes from rank to rank. `n_from` and `n_to`, [n_ranks]: how many things
 * come from and go to each rank so far. Streams are filled in where there are any. */
struct numbering {
  struct copse_interpreter *exec;
  uint32_t *n_from, *n_to;
};

/* Numbers what goes from one rank to another; *tag gets its number if it starts here. */
static void number(struct numbering *it, uint32_t from, uint32_t to, uint32_t *tag,
                   struct stream stream) {
  struct endpoint *end = it->exec->own;
  if (from == to) return;
  if (from == it->exec->rank) *tag = COPSE_TRANSPORT_FIRST_TAG + it->n_to[to]++;
  if (to != it->exec->rank) return;
  struct source *source = &end->sources[from];
  if (source->streams) source->streams[it->n_from[from]] = stream;
  it->n_from[from]++;
}

static void number_all(struct numbering *it) {
  const struct copse_plan *plan = it->exec->plan;
  struct endpoint *end = it->exec->own;
  memset(it->n_from, 0, plan->header.n_ranks * sizeof *it->n_from);
  memset(it->n_to, 0, plan->header.n_ranks * sizeof *it->n_to);
  for (uint32_t w = 0; w < plan->header.n_workers; w++) {
    const struct copse_plan_worker *worker = &plan->workers[w];
    for (uint32_t i = 0; i < worker->n_ops; i++) {
      const struct copse_plan_op *op = &plan->ops[worker->first_op + i];
      if (op->kind != COPSE_OP_MOVE) continue;
      for (uint32_t k = op->operand + op->n_src; k < op->operand + op->n_src + op->n_dst; k++)
        number(it, worker->rank, plan->operands[k].rank, &end->operand_tags[k],
               (struct stream){.op = op, .operand = &plan->operands[k]});
    }
  }
  for (uint32_t c = 0; c < plan->header.n_channels; c++) {
    const struct copse_plan_channel *channel = &plan->channels[c];
    number(it, plan->workers[channel->src_worker].rank, plan->workers[channel->dst_worker].rank,
           &end->channel_tags[c], (struct stream){.channel = c});
  }
}

static copse_status make_streams(struct copse_interpreter *exec, struct copse_err *err) {
  struct endpoint *end = exec->own;
  const uint32_t n = exec->plan->header.n_ranks;
  const uint32_t n_tags = end->transport->wire.most_tag - COPSE_TRANSPORT_FIRST_TAG;
  struct numbering it = {.exec = exec};
  COPSE_DO(COPSE_ARRAYS(&end->memory, n, uint32_t, err, &it.n_from, &it.n_to));
  end->n_tags = it.n_to;
  number_all(&it);
  for (uint32_t r = 0; r < n; r++) {
    struct source *source = &end->sources[r];
    uint32_t most = it.n_from[r] > it.n_to[r] ? it.n_from[r] : it.n_to[r];
    if (most > n_tags)
      return copse_fail(err, COPSE_UNSUPPORTED,
                        "the plan has %u transfers between ranks %u and %u; the transport can "
                        "tell %u apart",
                        most, exec->rank, r, n_tags);
    source->n = it.n_from[r];
    COPSE_DO(COPSE_ARRAY(&end->memory, source->n, source->streams, err));
  }
  number_all(&it);
  return COPSE_OK;
}

/* ---- receiving ------------------------------------------------------------------------ */

static copse_status surprise(uint32_t from, unsigned tag, size_t n, struct copse_err *err) {
  return copse_fail(err, COPSE_REFUTED,
                    "rank %u sends %zu bytes as %u, which the plan doesn't have here", from, n,
                    tag - COPSE_TRANSPORT_FIRST_TAG);
}

/* Returns the next chunk of a stream of data, from stream->chunk on, of which anything is sent. */
static struct copse_span next_chunk(const struct copse_view *view, struct stream *stream) {
  struct copse_span chunk = {0, 0};
  for (; stream->chunk < view->shape.n_chunks; stream->chunk++) {
    if (!copse_op_runs(stream->op->when, stream->chunk, view->shape.n_chunks, view->shape.fifo))
      continue;
    chunk = copse_view_chunk(view, stream->op->piece, stream->chunk);
    if (chunk.count > 0) break;
  }
  return chunk;
}

/* Finds the stream of the signal behind data; else NULL. *s becomes the first one's. */
static struct stream *find_second(const struct source *source, uint32_t *s) {
  uint32_t second = source->n > 0 ? *s / source->n : 0;
  if (second == 0 || second > source->n) return NULL;
  *s %= source->n;
  return &source->streams[second - 1];
}

static bool overlaps(const struct copse_payload *it, const unsigned char *at, size_t n) {
  return it->at < at + n && at < it->at + it->n;
}

/* Whether bytes of the rank's memory are still to be sent: they stay there until they have left. A
 * plan knows nothing of that: it may use the memory again as soon as the receiver, or another rank
 * in the meantime, says so. Nothing waits in a circle: what may overwrite a message's bytes was
 * sent later than that message. */
static bool is_sent_from(const struct copse_interpreter *exec, const unsigned char *at, size_t n) {
  const struct copse_transport *transport = endpoint_of(exec)->transport;
  for (uint32_t r = 0; r < transport->n; r++) {
    const struct copse_peer *peer = &transport->peers[r];
    if (peer->held && overlaps(peer->held, at, n)) return true;
    for (const struct copse_outgoing *it = peer->sent; it; it = it->next)
      if (overlaps(it->payload, at, n)) return true;
  }
  return false;
}

copse_status copse_engine_place(struct copse_interpreter *exec, uint32_t from, unsigned tag,
                                size_t n, void **bytes, struct copse_err *err) {
  const struct source *source = &endpoint_of(exec)->sources[from];
  const struct copse_view *view = &exec->view;
  uint32_t s = tag - COPSE_TRANSPORT_FIRST_TAG;
  *bytes = NULL;
  const struct stream *second = find_second(source, &s);
  if (tag < COPSE_TRANSPORT_FIRST_TAG || s >= source->n || (second && second->op))
    return surprise(from, tag, n, err);
  struct stream *stream = &source->streams[s];
  if (!stream->op) return n == 0 && !second ? COPSE_OK : surprise(from, tag, n, err);
  struct copse_span chunk = next_chunk(view, stream);
  if (n == 0 || chunk.count * view->shape.element_bytes != n) return surprise(from, tag, n, err);
  struct copse_place there =
      copse_view_operand(view, stream->operand, chunk, stream->chunk, exec->epoch);
  if (!there.epoch && is_sent_from(exec, there.at, n)) return COPSE_OK;
  stream->chunk++;
  if (!there.epoch) {
    *bytes = there.at;
    return COPSE_OK;
  }
  if (stream->packed) return surprise(from, tag, n, err); /* packets have one chunk */
  copse_status status = copse_calloc(n, 1, &stream->packed, err);
  *bytes = stream->packed;
  return status;
}

/* Unpacks as one MOVE would have stored them. */
static void unpack(const struct copse_interpreter *exec, struct stream *stream) {
  struct copse_span chunk = copse_view_chunk(&exec->view, stream->op->piece, stream->chunk - 1);
  const struct copse_place from = {stream->packed, 0};
  const struct copse_place to =
      copse_view_operand(&exec->view, stream->operand, chunk, stream->chunk - 1, exec->epoch);
  const struct copse_move move = {.type = exec->view.type,
                                  .redop = exec->view.redop,
                                  .n_src = 1,
                                  .n_dst = 1,
                                  .divisor = 1,
                                  .count = chunk.count,
                                  .src = &from,
                                  .dst = &to};
  (void)copse_move_run(&move, 0, 1);
  free(stream->packed);
  stream->packed = NULL;
}

static void take_signal(struct copse_interpreter *exec, const struct stream *stream) {
  atomic_fetch_add_explicit(&exec->channels[stream->channel].signals, 1, memory_order_relaxed);
}

void copse_engine_arrived(struct copse_interpreter *exec, uint32_t from, unsigned tag) {
  const struct source *source = &endpoint_of(exec)->sources[from];
  uint32_t s = tag - COPSE_TRANSPORT_FIRST_TAG;
  const struct stream *second = find_second(source, &s);
  struct stream *stream = &source->streams[s];
  if (!stream->op)
    take_signal(exec, stream);
  else if (stream->packed)
    unpack(exec, stream);
  if (second) take_signal(exec, second);
}

/* ---- sending -------------------------------------------------------------------------- */

static unsigned char *stage(const struct copse_interpreter *exec, size_t bytes,
                            unsigned char *ready) {
  struct endpoint *end = exec->own;
  end->stage = copse_transport_new_payload(end->transport, bytes, ready);
  return end->stage ? end->stage->at : NULL;
}

static void send(const struct copse_interpreter *exec, const struct copse_plan_op *op) {
  struct endpoint *end = exec->own;
  uint32_t first = op->operand + op->n_src;
  for (uint32_t k = first; k < first + op->n_dst; k++)
    if (exec->plan->operands[k].rank != exec->rank)
      copse_transport_send(end->transport, exec->plan->operands[k].rank, end->operand_tags[k],
                           end->stage);
  copse_transport_drop(end->transport, end->stage);
}

/* Sends a signal. Sent counts as taken: the balance of the channel is the other rank's to check. */
static void send_signal(struct copse_interpreter *exec, uint32_t c) {
  uint32_t to = exec->plan->workers[exec->plan->channels[c].dst_worker].rank;
  if (to == exec->rank) return;
  struct endpoint *end = endpoint_of(exec);
  uint64_t behind =
      (uint64_t)(end->channel_tags[c] - COPSE_TRANSPORT_FIRST_TAG + 1) * end->n_tags[to];
  copse_transport_signal(end->transport, to, end->channel_tags[c], behind);
  exec->channels[c].waits++;
}

/* ---- running -------------------------------------------------------------------------- */

/* Runs a worker as far as it goes. Whether it has moved. */
static bool run_worker(struct copse_interpreter *exec, uint32_t w, bool *finished) {
  struct copse_exec_worker before = exec->workers[w];
  enum copse_exec_step step = COPSE_STEP_SIGNALLED;
  while (step == COPSE_STEP_SIGNALLED) {
    uint32_t channel;
    step = copse_exec_advance(exec, w, &channel);
    if (step == COPSE_STEP_SIGNALLED) send_signal(exec, channel);
  }
  *finished = step == COPSE_STEP_FINISHED;
  return *finished || before.chunk != exec->workers[w].chunk || before.op != exec->workers[w].op;
}

/* Returns the channel that worker w waits at; false where it waits for messages to leave. */
static bool stands_at(const struct copse_interpreter *exec, uint32_t w, uint32_t *channel) {
  const struct copse_plan_op *op =
      &exec->plan->ops[exec->plan->workers[w].first_op + exec->workers[w].op];
  bool reads = false;
  if (op->kind == COPSE_OP_MOVE)
    for (uint32_t k = 0; k < op->n_src; k++)
      reads = reads || exec->plan->operands[op->operand + k].buffer == COPSE_BUFFER_PACKETS;
  if (op->kind != COPSE_OP_WAIT && !reads) return false;
  *channel = copse_exec_waited_channel(exec, w);
  return true;
}

/* Returns the rank that the oldest unfinished message is for, or COPSE_TRANSPORT_NOBODY. */
static uint32_t sends_to(const struct copse_transport *transport) {
  for (uint32_t r = 0; r < transport->n; r++)
    if (transport->peers[r].sent) return r;
  return COPSE_TRANSPORT_NOBODY;
}

uint32_t copse_engine_waits_for(const struct copse_interpreter *exec, char *text, size_t size) {
  const struct copse_plan *plan = exec->plan;
  const struct copse_plan_rank *rank = &plan->ranks[exec->rank];
  for (uint32_t i = 0; i < rank->n_workers; i++) {
    uint32_t w = rank->first_worker + i, channel;
    if (exec->workers[w].finished || !stands_at(exec, w, &channel)) continue;
    uint32_t other = plan->channels[channel].src_worker, from = plan->workers[other].rank;
    if (from == exec->rank) continue; /* that worker has a line of its own */
    if (text)
      snprintf(text, size, "rank %u worker %u waits for rank %u worker %u (channel %u, chunk %u)",
               exec->rank, i, from, other - plan->ranks[from].first_worker, channel,
               exec->workers[w].chunk);
    return from;
  }
  uint32_t to = sends_to(endpoint_of(exec)->transport);
  if (text && to != COPSE_TRANSPORT_NOBODY)
    snprintf(text, size, "rank %u can't send to rank %u", exec->rank, to);
  else if (text)
    snprintf(text, size, "the workers of rank %u wait for each other", exec->rank);
  return to;
}

/* Digests what is given as counts of pairs, if any; never 0 then. */
static uint64_t digest_counts(const uint64_t *counts, uint64_t n) {
  uint64_t digest = COPSE_HASH;
  if (!counts) return 0;
  for (uint64_t i = 0; i < n; i++)
    for (int b = 0; b < 64; b += 8) digest = copse_hash(digest, counts[i] >> b & 0xff);
  return digest ? digest : 1;
}

static const char *type_name(uint32_t type) {
  return type < COPSE_N_TYPES ? copse_type_name((enum copse_type)type) : "?";
}
static const char *redop_name(uint32_t redop) {
  return redop < COPSE_N_REDOPS ? copse_redop_name((enum copse_redop)redop) : "?";
}

copse_status copse_engine_compare_calls(const struct copse_transport *transport, uint32_t from,
                                        struct copse_err *err) {
  const struct copse_transport_call *mine = &transport->call, *other = &transport->peers[from].call;
  const char *what = memcmp(mine->plan, other->plan, sizeof mine->plan) != 0 ? "run different plans"
                     : mine->pair_counts != other->pair_counts ? "have different pair_counts"
                                                               : NULL;
  if (memcmp(mine, other, sizeof *mine) == 0) return COPSE_OK;
  if (what)
    return copse_fail(err, COPSE_REFUTED, "rank %u and rank %u %s", transport->me, from, what);
  return copse_fail(err, COPSE_REFUTED,
                    "rank %u calls with %" PRIu64 " elements of %s, %s, and rank %u with %" PRIu64
                    " of %s, %s",
                    transport->me, mine->count, type_name(mine->type), redop_name(mine->redop),
                    from, other->count, type_name(other->type), redop_name(other->redop));
}

/* What all ranks compare before they exchange anything else. */
struct hello {
  char version[32];
  uint32_t call_bytes, pong_bytes;
};

copse_status copse_engine_compare_versions(struct copse_transport *transport,
                                           struct copse_err *err) {
  COPSE_AT_END(copse_free_at) struct hello *all = NULL;
  struct hello mine;
  memset(&mine, 0, sizeof mine);
  strncpy(mine.version, COPSE_VERSION_STRING, sizeof mine.version - 1);
  mine.call_bytes = sizeof(struct copse_transport_call);
  mine.pong_bytes = sizeof(struct copse_transport_pong);
  COPSE_DO(copse_calloc(transport->n, sizeof *all, &all, err));
  if (copse_transport_all_gather(transport, &mine, all, sizeof mine) != COPSE_OK)
    return copse_transport_status(transport, err);
  for (uint32_t r = 0; r < transport->n; r++) {
    all[r].version[sizeof all[r].version - 1] = '\0';
    if (memcmp(&all[r], &mine, sizeof mine) == 0) continue;
    return copse_fail(err, COPSE_REFUTED,
                      "rank %u runs copse %s and rank %u copse %s; must be the same", r,
                      all[r].version, transport->me, mine.version);
  }
  return COPSE_OK;
}

static copse_status begin(struct copse_interpreter *exec, struct copse_err *err) {
  struct endpoint *end = exec->own;
  const struct copse_view *view = &exec->view;
  struct copse_transport_call call = {
      .count = view->shape.count,
      .type = (uint32_t)view->type,
      .redop = (uint32_t)view->redop,
      .pair_counts = digest_counts(view->pair_counts, (uint64_t)view->n_ranks * view->n_ranks)};
  memcpy(call.plan, end->digest, sizeof call.plan);
  for (uint32_t r = 0; r < view->n_ranks; r++)
    for (uint32_t s = 0; s < end->sources[r].n; s++) end->sources[r].streams[s].chunk = 0;
  return copse_transport_begin(end->transport, &call, exec, err);
}

static copse_status run_workers(struct copse_interpreter *exec, struct copse_err *err) {
  const struct copse_plan_rank *rank = &exec->plan->ranks[exec->rank];
  struct copse_transport *transport = endpoint_of(exec)->transport;
  uint32_t left = rank->n_workers;
  copse_status status = COPSE_OK;
  while (status == COPSE_OK && (left > 0 || !copse_transport_all_left(transport))) {
    bool moved = false, finished;
    for (uint32_t w = rank->first_worker; w < rank->first_worker + rank->n_workers; w++) {
      if (exec->workers[w].finished) continue;
      moved = run_worker(exec, w, &finished) || moved;
      if (finished) left--;
    }
    status = copse_transport_step(transport, moved, err);
  }
  return status;
}

static copse_status run(struct copse_interpreter *exec, struct copse_err *err) {
  struct copse_err late = COPSE_ERR_INIT;
  copse_status status = begin(exec, err);
  if (status == COPSE_OK) status = run_workers(exec, err);
  copse_status ended = copse_transport_end(endpoint_of(exec)->transport, &late);
  if (status != COPSE_OK || ended == COPSE_OK) return status;
  return copse_fail(err, ended, "%s", late.text);
}

/* ---- life ----------------------------------------------------------------------------- */

static copse_status open_engine(struct copse_interpreter *exec, void *context,
                                struct copse_err *err) {
  struct copse_transport *transport = context;
  const struct copse_plan_header *h = &exec->plan->header;
  struct endpoint *it;
  if (h->n_ranks != transport->n)
    return copse_fail(err, COPSE_INVALID, "the plan is for %u ranks, and there are %u processes",
                      h->n_ranks, transport->n);
  if (copse_plan_has_groups(exec->plan))
    return copse_fail(
        err, COPSE_UNSUPPORTED,
        "the plan is multicast, for ranks that share memory: lower a schedule that was "
        "solved without --in-network");
  COPSE_DO(copse_calloc(1, sizeof *it, &it, err));
  exec->own = it;
  exec->one_rank = true;
  exec->rank = transport->me;
  exec->layout.flat = false; /* a chunk is a message, and short ones suit wires */
  if (exec->layout.min_chunk_bytes < LEAST_CHUNK_BYTES)
    exec->layout.min_chunk_bytes = LEAST_CHUNK_BYTES;
  it->transport = transport;
  COPSE_DO(copse_plan_checksum(exec->plan, it->digest, err));
  struct copse_arena *memory = &it->memory;
  COPSE_DO(COPSE_ARRAY(memory, h->n_ranks, it->sources, err));
  COPSE_DO(COPSE_ARRAY(memory, h->n_operands, it->operand_tags, err));
  COPSE_DO(COPSE_ARRAY(memory, h->n_channels, it->channel_tags, err));
  return make_streams(exec, err);
}

static void close_engine(struct copse_interpreter *exec) {
  struct endpoint *it = exec->own;
  for (uint32_t r = 0; it->sources && r < exec->plan->header.n_ranks; r++)
    for (uint32_t s = 0; it->sources[r].streams && s < it->sources[r].n; s++)
      free(it->sources[r].streams[s].packed);
  copse_arena_free(&it->memory);
  free(it);
}

const struct copse_engine copse_transport_engine = {.looks_at_packets = true,
                                                    .open = open_engine,
                                                    .close = close_engine,
                                                    .run = run,
                                                    .stage = stage,
                                                    .sends = is_sent_from,
                                                    .send = send};

static copse_status why(void *transport, struct copse_err *err) {
  return copse_transport_status(transport, err);
}

void copse_transport_shape(struct copse_transport *transport, copse_bootstrap *bootstrap,
                           struct copse_comm_shape *shape) {
  static const int cpu = COPSE_DEVICE_CPU;
  *bootstrap = (copse_bootstrap){copse_transport_all_gather, transport};
  *shape = (struct copse_comm_shape){.n_ranks = transport->n,
                                     .first_local = transport->me,
                                     .n_local = 1,
                                     .devices = &cpu,
                                     .bootstrap = bootstrap,
                                     .bootstrap_error = why,
                                     .engine = &copse_transport_engine};
}
