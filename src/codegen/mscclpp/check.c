/*
 * The proof of an MSCCL++ plan (docs/theory.md, "src/codegen/check/"). It runs launches on names: a
 * cell is a chunk, or a slice of one (check/cells.c). A block goes on until it has to wait.
 *
 * Threads, as far as order goes:
 *
 *   [0, n_blocks)           blocks: groups whose members are ordered only where they meet
 *   first_entry + rank      the rank's entry
 *   first_proxy + end       the proxy of a port
 *   first_end + rank        the rank's end
 *   first_packet + ...      of every op with packets: its reads, its writes, what a packet carries
 *
 * - What a block does comes before its next actions only once its threads have met (`nop`,
 *   barriers).
 * - The proxy of a port is a thread of its own. A signal through that port comes after what the
 *   proxy did; a signal through memory does not.
 * - A relaxed signal says that the rank has entered; it orders no accesses to memory.
 * - A packet comes after what was read to make it, element by element; it orders nothing else.
 * - Peers' memory may be used once the peer is known to have entered, and everything done to a
 *   rank's memory must be known to it when it leaves.
 * - What a port reads may outlast the launch:
 *
 *     launch e       proxy reads x ........................ still reading
 *     launch e + 1                      who first writes x must know of the entry of a rank
 *                                       that had left launch e knowing of the read
 *
 *   A second run refutes a writer that need not know.
 * - Signals and semaphores must end as they began.
 * - Pipelines run 1, 2 and 3 times on slices of chunks.
 * - Not followed, and said so: packets through ports, semaphores with several acquirers, channels
 *   that several blocks signal on.
 *
 * Mutants that are no defects, besides those of MSCCL (msccl/check.c): a `nop` before what does not
 * touch what stands before it.
 */
#include "codegen/mscclpp/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/rational.h"
#include "codegen/mscclpp/file.h"

#define MAX_SLICES 64

/* ---- the state of a launch ------------------------------------------------------------------ */

/* Threads of an op with packets. */
enum { PACKET_READS, PACKET_WRITES, PACKET_CARRIES, PACKET_THREADS };

/* Histories, the oldest first. */
struct histories {
  struct received {
    struct copse_history *history;
    struct received *next;
  } * first, **end;
};

struct state {
  int op;
  int round, rounds, loop;    /* within the pipeline op `loop`, -1: in none */
  struct copse_pj_ints op_of; /* the op of each action */
  struct histories learned;   /* by waits since the threads met last */
  bool arrived;               /* has come to its barrier */
};

struct end_state {
  struct histories in;        /* signals on their way to this end */
  int waiter, signaller;      /* 1 + the only block that may; 0: none yet */
  struct copse_pj_ints op_of; /* block and op of each action of the port's proxy */
};

struct semaphore {
  int64_t value;
  int acquirer, n_acquired; /* 1 + the only block that may; 0: none yet */
  struct histories released;
};

/* A chunk's slice in packet form. */
struct packet {
  struct copse_value value;
  struct copse_history *history; /* of the reads that it is made from; NULL: it has not come */
};

/* The first defect is kept in `status`; after it functions do nothing of consequence. */
struct launch {
  const struct copse_pj_file *f;
  struct copse_cells *cells;
  struct copse_threads *threads; /* the cells' */
  struct state *states;
  struct end_state *ends;
  struct semaphore *semaphores;
  struct packet **packets; /* [n_ranks][scratch * slices], where a rank has any */
  int first_entry, first_proxy, first_end, first_packet;
  int slices;
  int64_t chunk_bytes;
  uint64_t *actions;
  struct copse_arena arena;
  copse_status status;
  struct copse_err *err;
};

/* ---- actions of blocks ------------------------------------------------------------------- */

/* Returns the op at which the block stands, numbered over all blocks. */
static int op_number(const struct launch *r, int block) {
  return block * COPSE_PJ_MAX_OPS + r->states[block].op;
}

static long name_op(const struct launch *r, int number, char text[64]) {
  const struct copse_pj_block *b = &r->f->blocks[number / COPSE_PJ_MAX_OPS];
  int op = number % COPSE_PJ_MAX_OPS;
  snprintf(text, 64, "gpu %d tb %d op %d", b->rank, b->id, op);
  return b->ops[op].line;
}

static long name_action(const void *ctx, struct copse_action action, char text[64]) {
  const struct launch *r = ctx;
  int thread = action.thread;
  if (thread < r->f->n_blocks) return name_op(r, r->states[thread].op_of.v[action.time - 1], text);
  if (thread >= r->first_packet)
    return name_op(r, (thread - r->first_packet) / PACKET_THREADS, text);
  if (thread >= r->first_proxy && thread < r->first_end)
    return name_op(r, r->ends[thread - r->first_proxy].op_of.v[action.time - 1], text);
  snprintf(text, 64, "gpu %d itself", thread - r->first_entry);
  return 0;
}

/* COPSE_REFUTED: what the op at which the block stands does. */
__attribute__((format(printf, 3, 4))) static void refute(struct launch *r, int block,
                                                         const char *what, ...) {
  char place[64], text[160];
  const struct copse_pj_op *op = &r->f->blocks[block].ops[r->states[block].op];
  long line = name_op(r, op_number(r, block), place);
  va_list args;
  va_start(args, what);
  vsnprintf(text, sizeof text, what, args);
  va_end(args);
  COPSE_KEEP(r, copse_fail_at(r->err, COPSE_REFUTED, r->f->label, line, "%s (%s) %s", place,
                              op->type->name, text));
}

static void not_followed(struct launch *r, long line, const char *what) {
  COPSE_KEEP(r, copse_fail_at(r->err, COPSE_UNSUPPORTED, r->f->label, line,
                              "%s, which this checker does not follow", what));
}

/* ---- what blocks know of each other ------------------------------------------------------ */

/* Takes what the thread knows by now; NULL after a defect. */
static struct copse_history *take(struct launch *r, int thread) {
  struct copse_history *h = NULL;
  COPSE_KEEP(r, copse_history_take(r->threads, thread, &h, r->err));
  return h;
}

static void learn(struct launch *r, int thread, struct copse_history *h) {
  COPSE_KEEP(r, copse_history_learn(r->threads, thread, h, r->err));
}

static void append(struct histories *list, struct received *it) {
  if (!list->first) list->end = &list->first;
  it->next = NULL;
  *list->end = it;
  list->end = &it->next;
}

/* Notes what the thread knows by now, at the end of the list. */
static void note(struct launch *r, struct histories *list, int thread) {
  struct received *it = NULL;
  COPSE_KEEP(r, COPSE_ARRAY(&r->arena, 1, it, r->err));
  if (r->status != COPSE_OK) return;
  it->history = take(r, thread);
  append(list, it);
}

/* Receives the oldest of a list, to another one. */
static void receive(struct histories *from, struct histories *to) {
  struct received *it = from->first;
  from->first = it->next;
  append(to, it);
}

static void drop_all(struct histories *list) {
  for (; list->first; list->first = list->first->next) copse_history_drop(list->first->history);
}

/* Passes what one thread knows on to another. */
static void pass_on(struct launch *r, int from, int to) {
  struct copse_history *h = take(r, from);
  learn(r, to, h);
  copse_history_drop(h);
}

static void learn_all(struct launch *r, int thread, const struct histories *list) {
  for (const struct received *it = list->first; it; it = it->next) learn(r, thread, it->history);
}

/* Lets the block's threads meet: each knows what any did and learned. */
static void meet(struct launch *r, int block) {
  copse_threads_meet(r->threads, block);
  learn_all(r, block, &r->states[block].learned);
  drop_all(&r->states[block].learned);
}

static struct copse_action act(struct launch *r, int block) {
  COPSE_KEEP(r, copse_pj_ints_add(&r->arena, &r->states[block].op_of, op_number(r, block), r->err));
  return copse_threads_act(r->threads, block);
}

/* Lets the proxy of a port act, after all that the block has done before it last met. */
static struct copse_action act_through(struct launch *r, int block, int end) {
  pass_on(r, block, r->first_proxy + end);
  COPSE_KEEP(r, copse_pj_ints_add(&r->arena, &r->ends[end].op_of, op_number(r, block), r->err));
  return copse_threads_act(r->threads, r->first_proxy + end);
}

/* ---- signals --------------------------------------------------------------------------- */

/* Whether the block holds it; takes it where nobody does. */
static bool claim(int *holder, int block) {
  if (*holder == 0) *holder = block + 1;
  return *holder == block + 1;
}

static bool is_named_before(const struct copse_pj_op *op, int i) {
  for (int k = 0; k < i; k++)
    if (op->ends[k] == op->ends[i]) return true;
  return false;
}

/* Sends what the block knows, or, relaxed, only that its rank has entered. */
static void signal_through(struct launch *r, int block, int end, bool relaxed) {
  const struct copse_pj_end *e = &r->f->ends[end];
  int from = block;
  char what[80];
  if (e->partner < 0) {
    refute(r, block, "signals a peer that has no such channel back");
    return;
  }
  snprintf(what, sizeof what, "two blocks of gpu %d signal on one channel", e->rank);
  if (!claim(&r->ends[end].signaller, block)) not_followed(r, 0, what);
  if (e->type == COPSE_PJ_PORT) { /* after what went through this port before */
    from = r->first_proxy + end;
    pass_on(r, block, from);
  }
  note(r, &r->ends[e->partner].in, relaxed ? r->first_entry + e->rank : from);
}

/* Tries a signal or wait; those that try return whether they could. */
static bool try_sync(struct launch *r, int block, const struct copse_pj_op *op) {
  bool port = op->channel == COPSE_PJ_PORT;
  if (!port && op->channel != COPSE_PJ_MEMORY) return true; /* the kernel does nothing then */
  for (int i = 0; i < op->n_ends && !op->type->waits; i++)
    signal_through(r, block, op->ends[i], op->type->relaxed && !port);
  if (!op->type->waits) return true;
  bool done = true;
  for (int i = 0; i < op->n_ends; i++) {
    struct end_state *e = &r->ends[op->ends[i]];
    if (!claim(&e->waiter, block))
      refute(r, block, "waits on a channel on which another block of its gpu waits too");
    if (is_named_before(op, i)) refute(r, block, "names a channel twice");
    if (!e->in.first) done = false;
  }
  for (int i = 0; i < op->n_ends && done && r->status == COPSE_OK; i++)
    receive(&r->ends[op->ends[i]].in, &r->states[block].learned);
  return done;
}

/* ---- within a gpu ---------------------------------------------------------------------- */

static bool stands_at(const struct launch *r, int block, int barrier) {
  const struct state *s = &r->states[block];
  return s->arrived && r->f->blocks[block].ops[s->op].barrier == barrier;
}

/* Lets everyone at the barrier learn what the others did, and moves the others on. */
static void pass_barrier(struct launch *r, int block, const struct copse_pj_op *op) {
  int rank = r->f->blocks[block].rank;
  struct histories all = {0};
  for (int b = r->f->first_block[rank]; b < r->f->first_block[rank + 1]; b++)
    if (stands_at(r, b, op->barrier)) note(r, &all, b);
  for (int b = r->f->first_block[rank]; b < r->f->first_block[rank + 1]; b++) {
    if (!stands_at(r, b, op->barrier)) continue;
    learn_all(r, b, &all);
    r->states[b].arrived = false;
    if (b != block) r->states[b].op++;
  }
  drop_all(&all);
}

static bool try_barrier(struct launch *r, int block, const struct copse_pj_op *op) {
  int rank = r->f->blocks[block].rank, n = 0;
  if (r->states[block].loop >= 0) not_followed(r, op->line, "a barrier in a pipeline");
  if (!r->states[block].arrived) meet(r, block);
  r->states[block].arrived = true;
  for (int b = r->f->first_block[rank]; b < r->f->first_block[rank + 1]; b++) {
    if (!stands_at(r, b, op->barrier)) continue;
    if (r->f->blocks[b].ops[r->states[b].op].barrier_blocks != op->barrier_blocks)
      refute(r, block, "and another block give their barrier different counts");
    n++;
  }
  if (n < op->barrier_blocks || r->status != COPSE_OK) return false;
  pass_barrier(r, block, op);
  return true;
}

/* Lets the one acquirer of a semaphore learn of the release that it needed: for sure if one block
 * releases, or if it was the last of all. */
static bool try_acquire(struct launch *r, int block, const struct copse_pj_op *op) {
  bool done = true;
  for (int i = 0; i < op->n_ends; i++) {
    struct semaphore *s = &r->semaphores[op->ends[i]];
    if (!claim(&s->acquirer, block)) not_followed(r, op->line, "two blocks acquire one semaphore");
    if (is_named_before(op, i)) refute(r, block, "names a semaphore twice");
    if (s->value < 1) done = false;
  }
  for (int i = 0; i < op->n_ends && done && r->status == COPSE_OK; i++) {
    struct semaphore *s = &r->semaphores[op->ends[i]];
    s->value--;
    /* the n-th acquire beyond the initial value needed the n-th release */
    if (s->n_acquired++ < r->f->semaphores[op->ends[i]]) continue;
    receive(&s->released, &r->states[block].learned);
  }
  return done;
}

static void release(struct launch *r, int block, const struct copse_pj_op *op) {
  for (int i = 0; i < op->n_ends; i++) {
    struct semaphore *s = &r->semaphores[op->ends[i]];
    note(r, &s->released, block);
    s->value++;
  }
}

/* Waits for what went through a port, if the flush names as many destinations. */
static void flush(struct launch *r, int block, const struct copse_pj_op *op) {
  for (int i = 0; i < op->n_ends && i < op->n_dst; i++)
    note(r, &r->states[block].learned, r->first_proxy + op->ends[i]);
}

/* ---- places of an op ----------------------------------------------------------------------- */

struct slices {
  int from, to;
};

/* Returns the slices of a place that this op works on now. */
static struct slices slices_of(const struct launch *r, int block, const struct copse_pj_op *op,
                               int size) {
  const struct state *s = &r->states[block];
  bool rounds = s->loop >= 0;
  int parts = rounds ? s->rounds : op->parts, part = rounds ? s->round : op->part;
  int64_t n = (int64_t)size * r->slices; /* 64 bits: they are multiplied by a part */
  return (struct slices){(int)(n * part / parts), (int)(n * (part + 1) / parts)};
}

static void check_place(struct launch *r, int block, const struct copse_pj_place *at) {
  static const char letters[] = "ios";
  int n = at->rank < 0 ? at->n_members : 1;
  for (int i = 0; i < n; i++) {
    int rank = at->rank < 0 ? at->members[i] : at->rank;
    int chunks = copse_cells_size(r->cells, rank, at->letter) / r->slices;
    if (at->size >= 1 && at->index + at->size <= chunks) continue;
    refute(r, block, "uses %d chunks from %c[%d] of gpu %d on, which has %d of them", at->size,
           letters[at->letter], at->index, rank, chunks);
  }
}

/* Checks that the block knows that a peer, whose memory it uses, has entered this launch. */
static void check_entered(struct launch *r, int block, int rank, int thread) {
  struct copse_action entry = {r->first_entry + rank, 1};
  if (rank == r->f->blocks[block].rank) return;
  if (copse_threads_before(r->threads, entry, thread)) return;
  refute(r, block,
         "uses memory of gpu %d, which may not have entered the launch: no signal of it has been "
         "waited for",
         rank);
}

static struct copse_cell_at cell_of(const struct launch *r, const struct copse_pj_place *at,
                                    int rank, int slice) {
  return (struct copse_cell_at){rank, at->letter, at->index * r->slices + slice};
}

static struct packet *packet_of(struct launch *r, const struct copse_pj_place *at, int slice) {
  return &r->packets[at->rank][at->index * r->slices + slice];
}

/* Returns one of the threads of the op at which the block stands. */
static int packet_thread(const struct launch *r, int block, int which) {
  return r->first_packet + op_number(r, block) * PACKET_THREADS + which;
}

/* Whether entry i of an op is in packet form; sums start with a plain one of their own. */
static bool in_packets(const struct copse_pj_op *op, bool pkt, int i) {
  bool plain_first = op->type->kind == COPSE_PJ_SUM && strcmp(op->type->name, "rppkt") != 0;
  return pkt && (i > 0 || !plain_first);
}

static void check_packet(struct launch *r, int block, const struct copse_pj_place *at) {
  if (at->letter != COPSE_LETTER_S) refute(r, block, "has packets outside scratch");
  if (!r->f->low_latency)
    refute(r, block, "uses packets, for which scratch is too small unless \"protocol\" is \"LL\"");
  if (r->status != COPSE_OK || r->packets[at->rank]) return;
  r->status = copse_arena_array(&r->arena, (size_t)r->f->scratch[at->rank] * (size_t)r->slices,
                                sizeof **r->packets, &r->packets[at->rank], r->err);
}

/* Checks sizes, bounds, packets; what an op may do at all. */
static void check_data(struct launch *r, int block, const struct copse_pj_op *op) {
  const struct state *s = &r->states[block];
  bool moves = op->type->kind == COPSE_PJ_MOVE, sums = op->type->kind == COPSE_PJ_SUM;
  bool port = op->channel == COPSE_PJ_PORT;
  int size = op->n_src > 0 ? op->src[0].size : 0;
  if (op->n_src == 0 || op->n_dst == 0) refute(r, block, "lacks a source or destination");
  if (moves && op->n_src != op->n_dst) refute(r, block, "has not as many sources as destinations");
  if (s->loop >= 0 && (op->parts > 1 || size != r->f->blocks[block].ops[s->loop].unit_chunks))
    refute(r, block, "is not of the num_chunks of its pipeline");
  for (int side = 0; side < 2; side++) {
    const struct copse_pj_place *at = side ? op->dst : op->src;
    bool pkt = side ? op->type->pkt_dst : op->type->pkt_src;
    for (int i = 0; i < (side ? op->n_dst : op->n_src) && r->status == COPSE_OK; i++) {
      if (at[i].size != size) refute(r, block, "has entries of different sizes");
      if (at[i].rank < 0 && op->type->kind != COPSE_PJ_MULTIMEM)
        refute(r, block, "can't go through a switch channel");
      check_place(r, block, &at[i]);
      if (in_packets(op, pkt, i)) check_packet(r, block, &at[i]);
    }
  }
  if (op->type->gets && moves && op->src[0].index != op->dst[0].index)
    refute(r, block, "gets to another index than it gets from, which the kernel mixes up");
  if (port && sums && !op->type->pkt_dst) refute(r, block, "can't go through a port");
  if (port && moves && op->n_ends < op->n_dst)
    refute(r, block, "needs a channel id for every destination");
}

static bool packets_there(struct launch *r, int block, const struct copse_pj_op *op) {
  for (int i = 0; i < op->n_src; i++) {
    if (!in_packets(op, op->type->pkt_src, i)) continue;
    struct slices at = slices_of(r, block, op, op->src[i].size);
    for (int j = at.from; j < at.to; j++)
      if (!packet_of(r, &op->src[i], j)->history) return false;
  }
  return true;
}

static struct copse_value read_cell(struct launch *r, int block, const struct copse_pj_place *at,
                                    int rank, int slice, struct copse_action action) {
  struct copse_value v = {COPSE_SET_UNDEFINED, 0, {0, 0}};
  check_entered(r, block, rank, action.thread);
  COPSE_KEEP(r, copse_cells_read(r->cells, action, cell_of(r, at, rank, slice), &v, r->err));
  return v;
}

static struct copse_value read_slice(struct launch *r, int block, const struct copse_pj_op *op,
                                     int i, int slice, struct copse_action action) {
  const struct copse_pj_place *at = &op->src[i];
  if (in_packets(op, op->type->pkt_src, i)) return packet_of(r, at, slice)->value;
  return read_cell(r, block, at, at->rank, slice, action);
}

static void write_slice(struct launch *r, int block, const struct copse_pj_op *op, int i, int slice,
                        struct copse_action action, struct copse_value v) {
  const struct copse_pj_place *at = &op->dst[i];
  bool packets = in_packets(op, op->type->pkt_dst, i);
  if (!packets || !r->f->double_scratch) check_entered(r, block, at->rank, action.thread);
  if (!packets && at->letter == COPSE_LETTER_I && !r->f->in_place)
    refute(r, block, "writes an input, and the plan is for calls out of place");
  if (!packets) {
    struct copse_cell_at cell = cell_of(r, at, at->rank, slice);
    COPSE_KEEP(r, copse_cells_write(r->cells, action, cell, v, r->err));
    return;
  }
  struct packet *p = packet_of(r, at, slice);
  if (p->history) refute(r, block, "writes packets that are there already");
  p->value = v;
  p->history = take(r, packet_thread(r, block, PACKET_CARRIES));
}

/* Adds the i-th term of a sum. */
static void add_term(struct launch *r, struct copse_action action, struct copse_value *sum, int i,
                     struct copse_value v) {
  if (i == 0)
    *sum = v;
  else
    COPSE_KEEP(r, copse_cells_add(r->cells, action, sum, v, r->err));
}

/* ---- ops with packets ------------------------------------------------------------------ */

/* Takes what a slice's packets carry, to the op's reads and on to the packets that it makes. */
static void take_packets(struct launch *r, int block, const struct copse_pj_op *op, int slice) {
  int reads = packet_thread(r, block, PACKET_READS);
  int carries = packet_thread(r, block, PACKET_CARRIES);
  for (int i = 0; i < op->n_src; i++) {
    if (!in_packets(op, op->type->pkt_src, i)) continue;
    struct copse_history *h = packet_of(r, &op->src[i], slice)->history;
    learn(r, reads, h);
    learn(r, carries, h);
  }
}

static void do_packet_slice(struct launch *r, int block, const struct copse_pj_op *op, int slice) {
  int reads = packet_thread(r, block, PACKET_READS);
  int writes = packet_thread(r, block, PACKET_WRITES);
  int carries = packet_thread(r, block, PACKET_CARRIES);
  bool moves = op->type->kind == COPSE_PJ_MOVE;
  struct copse_value sum = {0};
  take_packets(r, block, op, slice);
  for (int i = 0; i < op->n_src && r->status == COPSE_OK; i++) {
    struct copse_action action = copse_threads_act(r->threads, reads);
    struct copse_value v = read_slice(r, block, op, i, slice, action);
    COPSE_KEEP(r, copse_history_learn_action(r->threads, carries, action, r->err));
    add_term(r, action, &sum, moves ? 0 : i, v);
    if (!moves) continue;
    pass_on(r, reads, writes);
    write_slice(r, block, op, i, slice, copse_threads_act(r->threads, writes), v);
  }
  pass_on(r, reads, writes);
  for (int i = 0; i < op->n_dst && !moves && r->status == COPSE_OK; i++)
    write_slice(r, block, op, i, slice, copse_threads_act(r->threads, writes), sum);
}

static void do_packets(struct launch *r, int block, const struct copse_pj_op *op) {
  struct slices at = slices_of(r, block, op, op->src[0].size);
  if (op->channel == COPSE_PJ_PORT) not_followed(r, op->line, "packets through a port");
  pass_on(r, block, packet_thread(r, block, PACKET_READS));
  for (int j = at.from; j < at.to && r->status == COPSE_OK; j++) do_packet_slice(r, block, op, j);
  note(r, &r->states[block].learned, packet_thread(r, block, PACKET_WRITES));
}

/* ---- other ops with data --------------------------------------------------------------- */

/* Moves dst[i] = src[i], by the block or, through a port, by the proxy of its channel. */
static void do_move(struct launch *r, int block, const struct copse_pj_op *op) {
  bool port = op->channel == COPSE_PJ_PORT;
  struct copse_action action = {0, 0};
  if (!port) action = act(r, block);
  for (int i = 0; i < op->n_dst; i++) {
    struct slices at = slices_of(r, block, op, op->src[i].size);
    if (port) action = act_through(r, block, op->ends[i]);
    for (int j = at.from; j < at.to && r->status == COPSE_OK; j++)
      write_slice(r, block, op, i, j, action, read_slice(r, block, op, i, j, action));
  }
}

static void do_sum(struct launch *r, int block, const struct copse_pj_op *op) {
  struct copse_action action = act(r, block);
  struct slices at = slices_of(r, block, op, op->src[0].size);
  for (int j = at.from; j < at.to && r->status == COPSE_OK; j++) {
    struct copse_value sum = {0};
    for (int i = 0; i < op->n_src; i++)
      add_term(r, action, &sum, i, read_slice(r, block, op, i, j, action));
    for (int i = 0; i < op->n_dst; i++) write_slice(r, block, op, i, j, action, sum);
  }
}

/* Does gstore: one's own chunk to all members; or glres: the sum over all members to all. */
static void do_multimem(struct launch *r, int block, const struct copse_pj_op *op) {
  const struct copse_pj_place *src = &op->src[0], *dst = &op->dst[0];
  int own = r->f->blocks[block].rank, n = src->rank >= 0 ? 1 : src->n_members;
  if (dst->rank >= 0 || (src->rank >= 0 && src->rank != own)) {
    refute(r, block, "needs a switch channel as destination");
    return;
  }
  struct copse_action action = act(r, block);
  struct slices slices = slices_of(r, block, op, src->size);
  for (int j = slices.from; j < slices.to && r->status == COPSE_OK; j++) {
    struct copse_value sum = {0};
    for (int i = 0; i < n; i++) {
      int rank = src->rank >= 0 ? own : src->members[i];
      add_term(r, action, &sum, i, read_cell(r, block, src, rank, j, action));
    }
    for (int i = 0; i < dst->n_members; i++) {
      struct copse_cell_at at = cell_of(r, dst, dst->members[i], j);
      check_entered(r, block, at.rank, block);
      COPSE_KEEP(r, copse_cells_write(r->cells, action, at, sum, r->err));
    }
  }
}

/* Does an operation on data; false while its packets have not come. */
static bool do_data(struct launch *r, int block, const struct copse_pj_op *op) {
  check_data(r, block, op);
  if (r->status != COPSE_OK || !packets_there(r, block, op)) return false;
  if (op->type->pkt_src || op->type->pkt_dst)
    do_packets(r, block, op);
  else if (op->type->kind == COPSE_PJ_MOVE)
    do_move(r, block, op);
  else
    (op->type->kind == COPSE_PJ_SUM ? do_sum : do_multimem)(r, block, op);
  if (op->type->signals && op->channel == COPSE_PJ_PORT)
    for (int i = 0; i < op->n_ends; i++) signal_through(r, block, op->ends[i], false);
  if (strcmp(op->type->name, "pwsf") == 0) flush(r, block, op);
  return true;
}

/* ---- one block ------------------------------------------------------------------------- */

static int rounds_of(const struct launch *r, const struct copse_pj_op *op) {
  int64_t n = (op->unit_chunks * r->chunk_bytes + op->unit - 1) / op->unit;
  return n > 0 ? (int)n : 1;
}

/* Does the op at which the block stands: whether it is done. A barrier's other blocks may move
 * too. */
static bool do_op(struct launch *r, int block, const struct copse_pj_op *op) {
  struct state *s = &r->states[block];
  switch (op->type->kind) {
    case COPSE_PJ_NOP: meet(r, block); return true;
    case COPSE_PJ_SYNC: return try_sync(r, block, op);
    case COPSE_PJ_FLUSH: flush(r, block, op); return true;
    case COPSE_PJ_BARRIER: return try_barrier(r, block, op);
    case COPSE_PJ_ACQUIRE: return try_acquire(r, block, op);
    case COPSE_PJ_RELEASE: release(r, block, op); return true;
    case COPSE_PJ_PIPELINE:
      s->loop = s->op;
      s->round = 0;
      s->rounds = rounds_of(r, op);
      return true;
    default: return do_data(r, block, op);
  }
}

/* Runs as far as the block gets; whether that is anywhere. */
static bool advance(struct launch *r, int block) {
  const struct copse_pj_block *b = &r->f->blocks[block];
  struct state *s = &r->states[block];
  bool progress = false;
  while (s->op < b->n_ops || s->loop >= 0) {
    if (s->loop >= 0 && s->op == s->loop + b->ops[s->loop].n_inner + 1) {
      bool again = ++s->round < s->rounds;
      if (again) s->op = s->loop + 1;
      if (!again) s->loop = -1;
      continue;
    }
    if (!do_op(r, block, &b->ops[s->op]) || r->status != COPSE_OK) break;
    s->op++;
    progress = true;
    ++*r->actions;
  }
  return progress;
}

/* ---- all together ---------------------------------------------------------------------- */

/* Chooses chunks so large that the shortest pipeline runs `rounds` times, cut where any op cuts. */
static copse_status choose_slices(struct launch *r, int rounds) {
  const struct copse_pj_file *f = r->f;
  int64_t slices = 1;
  r->chunk_bytes = f->unit_bytes * rounds;
  for (int b = 0; b < f->n_blocks; b++) {
    int end = -1, loops = 1;
    for (int o = 0; o < f->blocks[b].n_ops; o++) {
      const struct copse_pj_op *op = &f->blocks[b].ops[o];
      if (op->type->kind == COPSE_PJ_PIPELINE) {
        end = o + op->n_inner;
        loops = rounds_of(r, op);
      }
      int cut = o <= end ? loops : op->parts, size = op->n_src > 0 ? op->src[0].size : 0;
      if (size == 0) continue;
      COPSE_DO(copse_lcm(slices, cut / copse_gcd(cut, size), &slices, r->err));
      if (slices > MAX_SLICES)
        return copse_fail_at(r->err, COPSE_UNSUPPORTED, f->label, op->line,
                             "chunks are cut in more ways than this checker follows");
    }
  }
  r->slices = (int)slices;
  return COPSE_OK;
}

static copse_status make_cells(struct launch *r) {
  const struct copse_pj_file *f = r->f;
  r->first_entry = f->n_blocks;
  r->first_proxy = r->first_entry + f->n_ranks;
  r->first_end = r->first_proxy + f->n_ends;
  r->first_packet = r->first_end + f->n_ranks;
  struct copse_cells_of of = {
      .n_ranks = f->n_ranks,
      .n_threads = r->first_packet + f->n_blocks * COPSE_PJ_MAX_OPS * PACKET_THREADS,
      .n_groups = f->n_blocks,
      .slices = r->slices,
      .collective = f->collective,
      .block = f->block,
      .in_place = f->in_place,
      .scratch = f->scratch,
      .label = f->label,
      .name = name_action,
      .ctx = r};
  return copse_cells_new(&r->arena, &of, &r->cells, &r->threads, r->err);
}

/* Lets every block know that its own rank has entered. */
static void enter(struct launch *r) {
  for (int g = 0; g < r->f->n_ranks; g++) {
    copse_threads_act(r->threads, r->first_entry + g);
    for (int b = r->f->first_block[g]; b < r->f->first_block[g + 1]; b++)
      pass_on(r, r->first_entry + g, b);
  }
}

/* Lets a rank's end come after all that its blocks did and learned. */
static void leave(struct launch *r) {
  for (int b = 0; b < r->f->n_blocks; b++) {
    meet(r, b);
    pass_on(r, b, r->first_end + r->f->blocks[b].rank);
  }
  COPSE_KEEP(r, copse_cells_check_left(r->cells, r->first_end, r->first_proxy, r->err));
}

/* Checks that nothing is left over, which would be taken by the next launch for its own. */
static copse_status check_balance(const struct launch *r) {
  for (int e = 0; e < r->f->n_ends; e++) {
    int left = 0;
    for (const struct received *it = r->ends[e].in.first; it; it = it->next) left++;
    if (left == 0) continue;
    int from = r->ends[r->f->ends[e].partner].signaller - 1;
    return copse_fail_at(r->err, COPSE_REFUTED, r->f->label, 0,
                         "gpu %d tb %d signals gpu %d %d times more than that waits: the next "
                         "launch starts too early",
                         r->f->ends[e].peer, r->f->blocks[from].id, r->f->ends[e].rank, left);
  }
  for (int s = 0; s < r->f->n_semaphores; s++)
    if (r->semaphores[s].value != r->f->semaphores[s])
      return copse_fail_at(r->err, COPSE_REFUTED, r->f->label, 0,
                           "a semaphore ends at %lld and starts at %d: the next launch differs",
                           (long long)r->semaphores[s].value, r->f->semaphores[s]);
  return COPSE_OK;
}

static copse_status make_states(struct launch *r) {
  const struct copse_pj_file *f = r->f;
  struct copse_arena *arena = &r->arena;
  size_t n_semaphores = (size_t)f->n_semaphores;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)f->n_blocks, r->states, r->err));
  COPSE_DO(COPSE_ARRAY(arena, (size_t)f->n_ends, r->ends, r->err));
  COPSE_DO(COPSE_ARRAY(arena, n_semaphores, r->semaphores, r->err));
  COPSE_DO(COPSE_ARRAY(arena, (size_t)f->n_ranks, r->packets, r->err));
  for (int b = 0; b < f->n_blocks; b++) r->states[b].loop = -1;
  for (int s = 0; s < f->n_semaphores; s++) r->semaphores[s].value = f->semaphores[s];
  return COPSE_OK;
}

static void end_launch(struct launch *r) {
  copse_cells_free(r->cells);
  copse_arena_free(&r->arena);
}

/* Runs one launch. `rounds`: how often the shortest pipeline runs; the others run by their sizes.
 * `before`: reads that the launch before may have left going on; `after`: this one's. */
static copse_status launch(const struct copse_pj_file *file, int rounds, uint64_t *actions,
                           const struct copse_late_reads *before, struct copse_late_reads *after,
                           struct copse_err *err) {
  COPSE_AT_END(end_launch) struct launch r = {.f = file, .actions = actions, .err = err};
  bool progress = true;
  COPSE_DO(make_states(&r));
  COPSE_DO(choose_slices(&r, rounds));
  COPSE_DO(make_cells(&r));
  copse_cells_guard(r.cells, before, r.first_entry);
  enter(&r);
  while (progress && r.status == COPSE_OK) {
    progress = false;
    for (int b = 0; b < file->n_blocks && r.status == COPSE_OK; b++)
      if (advance(&r, b)) progress = true;
  }
  for (int b = 0; b < file->n_blocks; b++)
    if (r.states[b].op < file->blocks[b].n_ops) refute(&r, b, "waits forever: a deadlock");
  leave(&r);
  COPSE_DO(r.status);
  COPSE_DO(copse_cells_check_result(r.cells, err));
  COPSE_DO(check_balance(&r));
  if (!after) return COPSE_OK;
  return copse_late_reads_take(r.cells, r.first_proxy, r.first_end, after, err);
}

static void end_file(struct copse_pj_file *file) { copse_arena_free(&file->arena); }
static void end_late_reads(struct copse_late_reads *late) { copse_arena_free(&late->arena); }

copse_status copse_check_mscclpp(const char *label, const char *data, size_t size,
                                 struct copse_check_mscclpp_report *report, struct copse_err *err) {
  COPSE_AT_END(end_file) struct copse_pj_file file;
  COPSE_DO(copse_pj_parse(label, data, size, &file, err));
  *report = (struct copse_check_mscclpp_report){.collective = file.collective,
                                                .n_ranks = file.n_ranks,
                                                .n_blocks = file.n_blocks,
                                                .n_ops = file.n_ops,
                                                .chunks = file.chunks,
                                                .in_place = file.in_place};
  snprintf(report->name, sizeof report->name, "%s", file.name);
  int most = file.unit_bytes > 0 ? 3 : 1;
  for (int rounds = 1; rounds <= most; rounds++) {
    COPSE_AT_END(end_late_reads) struct copse_late_reads late = {0};
    uint64_t again = 0;
    COPSE_DO(launch(&file, rounds, &report->actions, NULL, &late, err));
    if (late.first) COPSE_DO(launch(&file, rounds, &again, &late, NULL, err));
  }
  return COPSE_OK;
}
