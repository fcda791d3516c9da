/* What a plan under proof has in memory, and what is before what. docs/theory.md,
 * "src/codegen/check/". */
#include "codegen/check/memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/rational.h"

static int compare_fractions(int64_t an, int64_t ad, int64_t bn, int64_t bd) {
  __int128 l = (__int128)an * bd, r = (__int128)bn * ad;
  return (l > r) - (l < r);
}

static bool same_piece(const struct copse_plan_piece *a, const struct copse_plan_piece *b) {
  return a->pair == b->pair && compare_fractions(a->lo_num, a->lo_den, b->lo_num, b->lo_den) == 0 &&
         compare_fractions(a->hi_num, a->hi_den, b->hi_num, b->hi_den) == 0;
}

/* Hashes a fraction in lowest terms, as it may come unreduced. */
static uint64_t hash_fraction(uint64_t h, int64_t num, int64_t den) {
  int64_t g = copse_gcd(num, den);
  return copse_hash(copse_hash(h, (uint64_t)(num / g)), (uint64_t)(den / g));
}

/* Gives equal pieces one class. */
static copse_status classify_pieces(struct copse_memory *m, struct copse_err *err) {
  const struct copse_plan *plan = m->plan;
  uint32_t n = plan->header.n_pieces;
  COPSE_AT_END(copse_index_map_free) struct copse_index_map by_piece = {0};
  COPSE_DO(COPSE_ARRAY(&m->tables, n, m->piece_class, err));
  for (uint32_t i = 0; i < n; i++) {
    const struct copse_plan_piece *p = &plan->pieces[i];
    uint64_t h = hash_fraction(hash_fraction(p->pair, p->lo_num, p->lo_den), p->hi_num, p->hi_den);
    size_t cursor = 0;
    int same;
    do same = copse_index_map_next(&by_piece, h, &cursor);
    while (same >= 0 && !same_piece(&plan->pieces[same], p));
    m->piece_class[i] = same < 0 ? i : (uint32_t)same;
    if (same < 0) COPSE_DO(copse_index_map_add(&by_piece, h, (int)i, err));
  }
  return COPSE_OK;
}

/* Returns the data block behind an operand: what an allgather's input is to its output. */
static uint32_t data_block(const struct copse_plan *plan, const struct copse_plan_operand *o) {
  const struct copse_plan_header *h = &plan->header;
  if (h->collective == COPSE_ALLTOALL) /* a block per sender and receiver */
    return o->buffer == COPSE_BUFFER_INPUT ? o->rank * h->n_ranks + o->index
                                           : o->index * h->n_ranks + o->rank;
  bool one_of_many = (o->buffer == COPSE_BUFFER_INPUT && h->input_blocks < h->output_blocks) ||
                     (o->buffer == COPSE_BUFFER_OUTPUT && h->output_blocks < h->input_blocks);
  return one_of_many ? o->rank : o->index;
}

static uint64_t key_of(const struct copse_memory_place *p) {
  uint64_t h = copse_hash(copse_key_pair((int)p->rank, (int)p->buffer), p->block);
  return copse_hash(h, p->piece);
}

/* Returns the number of the place, or -1. */
static int find_place(const struct copse_memory *m, const struct copse_memory_place *p) {
  uint64_t key = key_of(p);
  size_t cursor = 0;
  int i;
  while ((i = copse_index_map_next(&m->by_place, key, &cursor)) >= 0) {
    const struct copse_memory_place *q = &m->places[i];
    if (q->rank == p->rank && q->buffer == p->buffer && q->block == p->block &&
        q->piece == p->piece)
      break;
  }
  return i;
}

static copse_status place_of(struct copse_memory *m, const struct copse_plan_operand *o,
                             uint32_t piece, uint32_t *index, struct copse_err *err) {
  struct copse_memory_place place = {o->rank, m->in_place ? COPSE_BUFFER_OUTPUT : o->buffer,
                                     data_block(m->plan, o), m->piece_class[piece]};
  int found = find_place(m, &place);
  if (found < 0) {
    found = (int)m->n_places;
    COPSE_DO(copse_index_map_add(&m->by_place, key_of(&place), found, err));
    m->places[m->n_places++] = place;
  }
  *index = (uint32_t)found;
  return COPSE_OK;
}

/* Whether an operand's buffer is given: NCCL gives a broadcast's input and a reduce's output only
 * at the root. */
static bool is_given(const struct copse_plan *plan, const struct copse_plan_operand *o) {
  if (plan->header.collective == COPSE_BROADCAST && o->buffer == COPSE_BUFFER_INPUT)
    return (int32_t)o->rank == plan->header.root;
  if (plan->header.collective == COPSE_REDUCE && o->buffer == COPSE_BUFFER_OUTPUT)
    return (int32_t)o->rank == plan->header.root;
  return true;
}

static copse_status map_op(struct copse_memory *m, uint32_t op, uint32_t *places, const char *label,
                           struct copse_err *err) {
  const struct copse_plan_op *o = &m->plan->ops[op];
  for (uint32_t i = 0; i < (uint32_t)o->n_src + o->n_dst; i++) {
    const struct copse_plan_operand *operand = &m->plan->operands[o->operand + i];
    places[i] = COPSE_NO_PLACE;
    if (!is_given(m->plan, operand))
      return copse_fail_at(
          err, COPSE_REFUTED, label, 0, "op %u uses the %s of rank %u, which only the root gives",
          op, operand->buffer == COPSE_BUFFER_INPUT ? "input" : "output", operand->rank);
    if (operand->buffer == COPSE_BUFFER_INPUT || operand->buffer == COPSE_BUFFER_OUTPUT)
      COPSE_DO(place_of(m, operand, o->piece, &places[i], err));
  }
  return COPSE_OK;
}

/* One row per (block, piece class) in use anywhere, to see how they lie in the block. */
struct row {
  uint32_t block;
  const struct copse_plan_piece *piece;
};

static int compare_pieces(const struct copse_plan_piece *a, const struct copse_plan_piece *b) {
  return compare_fractions(a->lo_num, a->lo_den, b->lo_num, b->lo_den)
             ?: compare_fractions(a->hi_num, a->hi_den, b->hi_num, b->hi_den);
}

COPSE_ORDER(compare_rows, struct row, COPSE_UP(block) ?: compare_pieces(a->piece, b->piece))

/* Checks that within a block pieces are the same or apart, and leave no gap from 0 to 1. */
static copse_status check_tiling(const struct copse_memory *m, const char *label,
                                 struct copse_err *err) {
  COPSE_AT_END(copse_free_at) struct row *rows = NULL;
  uint32_t n = m->n_places;
  const char *defect = NULL;
  COPSE_DO(copse_calloc(n, sizeof *rows, &rows, err));
  for (uint32_t i = 0; i < n; i++)
    rows[i] = (struct row){m->places[i].block, &m->plan->pieces[m->places[i].piece]};
  COPSE_SORT(rows, n, compare_rows);
  for (uint32_t i = 0, next; i < n; i = next) { /* rows [i, next) are the same */
    const struct copse_plan_piece *p = rows[i].piece;
    bool first = i == 0 || rows[i - 1].block != rows[i].block;
    int64_t end_num = first ? 0 : rows[i - 1].piece->hi_num;
    int64_t end_den = first ? 1 : rows[i - 1].piece->hi_den;
    int order = compare_fractions(p->lo_num, p->lo_den, end_num, end_den);
    next = i + 1;
    while (next < n && rows[next].block == rows[i].block && same_piece(rows[next].piece, p)) next++;
    bool last = next == n || rows[next].block != rows[i].block;
    if (order < 0)
      defect = "overlap";
    else if (order > 0 || (last && compare_fractions(p->hi_num, p->hi_den, 1, 1) != 0))
      defect = "leave a gap";
    if (defect)
      return copse_fail_at(err, COPSE_REFUTED, label, 0, "block %u: its pieces %s", rows[i].block,
                           defect);
  }
  return COPSE_OK;
}

copse_status copse_memory_map(struct copse_memory *m, const struct copse_plan *plan, bool in_place,
                              const char *label, struct copse_err *err) {
  const struct copse_plan_header *h = &plan->header;
  size_t n = 0;
  *m = (struct copse_memory){.plan = plan, .in_place = in_place};
  COPSE_DO(classify_pieces(m, err));
  COPSE_DO(COPSE_ARRAY(&m->tables, h->n_ops, m->op_first, err));
  for (uint32_t op = 0; op < h->n_ops; op++) {
    m->op_first[op] = (uint32_t)n;
    n += (size_t)plan->ops[op].n_src + plan->ops[op].n_dst; /* of a SIGNAL or WAIT: none */
  }
  COPSE_DO(COPSE_ARRAY(&m->tables, n, m->op_places, err));
  COPSE_DO(COPSE_ARRAY(&m->tables, n, m->places, err));
  for (uint32_t op = 0; op < h->n_ops; op++)
    COPSE_DO(map_op(m, op, m->op_places + m->op_first[op], label, err));
  COPSE_DO(COPSE_ARRAY(&m->tables, m->n_places, m->cells, err));
  COPSE_DO(COPSE_ARRAY(&m->tables, m->n_places, m->unsettled, err));
  COPSE_DO(COPSE_ARRAY(&m->tables, (size_t)h->n_regions * h->fifo, m->slots, err));
  return check_tiling(m, label, err);
}

/* Whether a place holds its rank's own contribution: an input does; so does, in place, the output
 * it shares. */
static bool starts_with_input(const struct copse_memory *m, const struct copse_memory_place *p) {
  const struct copse_plan_header *h = &m->plan->header;
  if (p->buffer == COPSE_BUFFER_INPUT) return true;
  if (!m->in_place) return false;
  if (h->collective == COPSE_BROADCAST) return (int32_t)p->rank == h->root;
  return h->input_blocks >= h->output_blocks || p->block == p->rank;
}

void copse_memory_start(struct copse_memory *m) {
  size_t slots = (size_t)m->plan->header.n_regions * m->plan->header.fifo;
  copse_arena_free(&m->launch);
  m->late = NULL;
  memset(m->unsettled, 0, m->n_places * sizeof *m->unsettled);
  for (size_t i = 0; i < slots; i++) m->slots[i] = (struct copse_cell){.content.set = -1};
}

void copse_memory_start_chunk(struct copse_memory *m, uint32_t c, const int *singles) {
  for (uint32_t p = 0; p < m->n_places; p++) {
    const struct copse_memory_place *place = &m->places[p];
    m->cells[p] =
        (struct copse_cell){.content = {starts_with_input(m, place) ? singles[place->rank] : -1,
                                        place->block, place->piece, c & INT32_MAX, false}};
  }
}

uint32_t copse_memory_output(const struct copse_memory *m, uint32_t rank, uint32_t block,
                             uint32_t piece) {
  struct copse_memory_place place = {rank, COPSE_BUFFER_OUTPUT, block, piece};
  int found = find_place(m, &place);
  return found < 0 ? COPSE_NO_PLACE : (uint32_t)found;
}

/* ==== order =================================================================================== */

/* The order of a plan's operations: see memory.h. */

/* Channels by receiving rank, sender, then receiver: those between two workers, or to a rank, stand
 * together, and what a rank's workers wait for and ask about lies near. Half a line of the cache.
 */
struct channel {
  uint32_t src, dst;
  uint32_t seen[2]; /* when the last signal taken in was sent: of those that order; of all */
  uint32_t pending; /* under way; the oldest was sent at `time`, */
  uint32_t time;
  uint32_t first, last; /* the others are in the pool */
};

struct signal {
  uint32_t time, next;
};

/* A worker has waited: what it did next, from `after` on, comes after the sender's `time`. */
struct notice {
  uint32_t after, time;
  uint32_t src : 31, orders : 1;
};

struct worker {
  uint32_t time;
  struct notice *notices; /* in the order of time */
  uint32_t n_notices;
  /* of a search: valid where `search` is the present one's number */
  uint32_t search, reach, looked;
  bool queued;
};

struct copse_order {
  const struct copse_plan *plan;
  uint32_t *position;       /* [n_channels] in `channels` */
  struct channel *channels; /* [n_channels] */
  uint32_t *first_channel;  /* [n_ranks + 1] that the rank's workers wait on */
  struct worker *workers;   /* [n_workers] */
  uint64_t *entered;        /* [n_workers][n_words] ranks that each knows to have entered */
  size_t n_words;
  struct signal *pool;
  size_t n_pool, pool_room;
  uint32_t spare;  /* first free signal of the pool, linked by next; or NONE */
  uint32_t *stack; /* [n_workers] of a search */
  uint32_t n_stack, search;
  struct copse_arena *arena;
  struct copse_arena launch; /* notices of this launch */
};
#define NONE UINT32_MAX

enum { RECENT = 4 }; /* signals that a worker took in last */

/* Does one pass of a sort by counting: `order` by the key of each, in the order of `by` where keys
 * are the same. `first` [n_keys + 1]: where each key begins. */
static void sort_by(const uint32_t *by, size_t n, const uint32_t *key, uint32_t n_keys,
                    uint32_t *first, uint32_t *order) {
  memset(first, 0, ((size_t)n_keys + 1) * sizeof *first);
  for (size_t i = 0; i < n; i++) first[key[i] + 1]++;
  for (uint32_t k = 0; k < n_keys; k++) first[k + 1] += first[k];
  for (size_t i = 0; i < n; i++) order[first[key[by[i]]]++] = by[i];
  memmove(first + 1, first, n_keys * sizeof *first);
  first[0] = 0;
}

static copse_status sort_channels(struct copse_order *o, struct copse_err *err) {
  const struct copse_plan_header *h = &o->plan->header;
  const struct copse_plan_channel *ends = o->plan->channels;
  struct copse_arena scratch COPSE_AT_END(copse_arena_free) = {0};
  uint32_t *by, *order, *key, *first, n = h->n_channels;
  COPSE_DO(COPSE_ARRAY(&scratch, n, by, err));
  COPSE_DO(COPSE_ARRAY(&scratch, n, order, err));
  COPSE_DO(COPSE_ARRAY(&scratch, n, key, err));
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)h->n_workers + 1, first, err));
  for (uint32_t i = 0; i < n; i++) by[i] = i, key[i] = ends[i].dst_worker;
  sort_by(by, n, key, h->n_workers, first, order);
  for (uint32_t i = 0; i < n; i++) key[i] = ends[i].src_worker;
  sort_by(order, n, key, h->n_workers, first, by);
  for (uint32_t i = 0; i < n; i++) key[i] = o->plan->workers[ends[i].dst_worker].rank;
  sort_by(by, n, key, h->n_ranks, o->first_channel, order);
  for (uint32_t i = 0; i < n; i++) {
    const struct copse_plan_channel *c = &ends[order[i]];
    o->position[order[i]] = i;
    o->channels[i] = (struct channel){.src = c->src_worker, .dst = c->dst_worker};
  }
  return COPSE_OK;
}

copse_status copse_order_new(struct copse_arena *arena, const struct copse_plan *plan,
                             struct copse_order **out, struct copse_err *err) {
  const struct copse_plan_header *h = &plan->header;
  struct copse_order *o;
  COPSE_DO(COPSE_ARRAY(arena, 1, o, err));
  *out = o;
  o->plan = plan;
  o->arena = arena;
  o->n_words = (h->n_ranks + 63) / 64;
  COPSE_DO(COPSE_ARRAY(arena, h->n_channels, o->position, err));
  COPSE_DO(COPSE_ARRAY(arena, h->n_channels, o->channels, err));
  COPSE_DO(COPSE_ARRAY(arena, (size_t)h->n_ranks + 1, o->first_channel, err));
  COPSE_DO(COPSE_ARRAY(arena, h->n_workers, o->workers, err));
  COPSE_DO(COPSE_ARRAY(arena, h->n_workers, o->stack, err));
  COPSE_DO(
      copse_arena_array(arena, h->n_workers, o->n_words * sizeof *o->entered, &o->entered, err));
  return sort_channels(o, err);
}

void copse_order_free(struct copse_order *o) {
  if (o) copse_arena_free(&o->launch);
}

/* Returns how often an operation runs in a launch. */
static uint32_t times_of(uint8_t when, uint32_t chunks, uint32_t fifo) {
  if (when == COPSE_WHEN_ALWAYS) return chunks;
  if (when == COPSE_WHEN_FIRST || when == COPSE_WHEN_LAST) return 1;
  return chunks > fifo ? chunks - fifo : 0;
}

copse_status copse_order_reset(struct copse_order *o, uint32_t chunks, struct copse_err *err) {
  const struct copse_plan *plan = o->plan;
  const struct copse_plan_header *h = &plan->header;
  copse_arena_free(&o->launch);
  o->pool = NULL;
  o->n_pool = o->pool_room = 0;
  o->spare = NONE;
  memset(o->entered, 0, h->n_workers * o->n_words * sizeof *o->entered);
  for (uint32_t w = 0; w < h->n_workers; w++) {
    struct worker *worker = &o->workers[w];
    size_t waits = 0;
    for (uint32_t i = 0; i < plan->workers[w].n_ops; i++) {
      const struct copse_plan_op *op = &plan->ops[plan->workers[w].first_op + i];
      if (op->kind == COPSE_OP_WAIT) waits += times_of(op->when, chunks, h->fifo);
    }
    worker->time = worker->n_notices = 0;
    COPSE_DO(COPSE_ARRAY(&o->launch, waits, worker->notices, err));
  }
  for (uint32_t i = 0; i < h->n_channels; i++)
    o->channels[i] = (struct channel){.src = o->channels[i].src, .dst = o->channels[i].dst};
  return COPSE_OK;
}

struct copse_event copse_order_tick(struct copse_order *o, uint32_t worker) {
  return (struct copse_event){worker, ++o->workers[worker].time};
}

copse_status copse_order_send(struct copse_order *o, uint32_t channel, struct copse_err *err) {
  struct channel *c = &o->channels[o->position[channel]];
  uint32_t at = o->spare, now = o->workers[c->src].time;
  if (c->pending++ == 0) {
    c->time = now;
    return COPSE_OK;
  }
  if (at == NONE) {
    COPSE_DO(COPSE_GROW_IN(&o->launch, o->pool, o->pool_room, o->n_pool + 1, err));
    at = (uint32_t)o->n_pool++;
  } else {
    o->spare = o->pool[at].next;
  }
  o->pool[at] = (struct signal){now, NONE};
  *(c->pending > 2 ? &o->pool[c->last].next : &c->first) = at;
  c->last = at;
  return COPSE_OK;
}

void copse_order_expect(const struct copse_order *o, uint32_t channel) {
  __builtin_prefetch(&o->channels[o->position[channel]], 1);
}

uint32_t copse_order_pending(const struct copse_order *o, uint32_t channel) {
  return o->channels[o->position[channel]].pending;
}

/* Notes that the worker knows that the rank has entered this launch. */
static void note_entered(struct copse_order *o, uint32_t worker, uint32_t rank) {
  o->entered[worker * o->n_words + rank / 64] |= (uint64_t)1 << (rank % 64);
}

void copse_order_receive(struct copse_order *o, uint32_t channel, bool orders) {
  struct channel *c = &o->channels[o->position[channel]];
  uint32_t at = c->first, time = c->time;
  struct worker *dst = &o->workers[c->dst];
  if (--c->pending > 0) {
    c->time = o->pool[at].time;
    c->first = o->pool[at].next;
    o->pool[at].next = o->spare;
    o->spare = at;
  }
  c->seen[1] = time; /* a sender's times only grow */
  if (orders) c->seen[0] = time;
  if (orders) note_entered(o, c->dst, o->plan->workers[c->src].rank);
  dst->notices[dst->n_notices++] = (struct notice){dst->time, time, c->src & INT32_MAX, orders};
}

/* ---- questions ------------------------------------------------------------------------------- */

/* Whether one of the channels from a worker to the workers of one rank from `dst` to before `end`
 * has brought a signal that was sent at `time` or later. */
static bool was_told(const struct copse_order *o, struct copse_event event, uint32_t dst,
                     uint32_t end, bool announced) {
  uint32_t rank = o->plan->workers[dst].rank;
  uint32_t low = o->first_channel[rank], stop = o->first_channel[rank + 1];
  for (uint32_t high = stop; low < high;) {
    uint32_t middle = low + (high - low) / 2;
    const struct channel *c = &o->channels[middle];
    if (c->src < event.worker || (c->src == event.worker && c->dst < dst))
      low = middle + 1;
    else
      high = middle;
  }
  for (; low < stop && o->channels[low].src == event.worker && o->channels[low].dst < end; low++)
    if (o->channels[low].seen[announced] >= event.time) return true;
  return false;
}

/* Whether one of the last signals that the worker took in shows the order. For most reads one does,
 * since a worker waits for data just before it reads them. */
static bool has_just_taken_in(const struct copse_order *o, struct copse_event event,
                              uint32_t worker, bool announced) {
  const struct worker *w = &o->workers[worker];
  uint32_t first = w->n_notices > RECENT ? w->n_notices - RECENT : 0;
  for (uint32_t i = w->n_notices; i-- > first;) {
    const struct notice *h = &w->notices[i];
    if (h->src == event.worker && h->time >= event.time && (h->orders || announced)) return true;
  }
  return false;
}

/* Notes that the worker's past up to `time` is before what the search asks about. */
static void reach(struct copse_order *o, uint32_t worker, uint32_t time) {
  struct worker *w = &o->workers[worker];
  if (w->search != o->search) {
    w->search = o->search;
    w->reach = w->looked = 0;
    w->queued = false;
  }
  if (time <= w->reach) return;
  w->reach = time;
  if (w->queued) return;
  w->queued = true;
  o->stack[o->n_stack++] = worker;
}

/* Goes back from the present of the workers from `by` to before `by_end` until a worker from `of`
 * to before `of_end` is reached at `time` or later. Each notice is looked at once. O(waits
 * so far). */
static bool search_back(struct copse_order *o, uint32_t by, uint32_t by_end, uint32_t of,
                        uint32_t of_end, uint32_t time, bool announced) {
  o->search++;
  o->n_stack = 0;
  for (uint32_t w = by; w < by_end; w++) reach(o, w, o->workers[w].time);
  while (o->n_stack > 0) {
    uint32_t worker = o->stack[--o->n_stack];
    struct worker *w = &o->workers[worker];
    w->queued = false;
    if (worker >= of && worker < of_end && w->reach >= time) return true;
    for (; w->looked < w->n_notices && w->notices[w->looked].after <= w->reach; w->looked++)
      if (announced || w->notices[w->looked].orders)
        reach(o, w->notices[w->looked].src, w->notices[w->looked].time);
  }
  return false;
}

bool copse_order_before(struct copse_order *o, struct copse_event event, uint32_t worker,
                        bool announced) {
  if (event.time == 0 || event.worker == worker) return true;
  return has_just_taken_in(o, event, worker, announced) ||
         was_told(o, event, worker, worker + 1, announced) ||
         search_back(o, worker, worker + 1, event.worker, event.worker + 1, event.time, announced);
}

bool copse_order_knows_entered(struct copse_order *o, uint32_t worker, uint32_t rank) {
  const struct copse_plan_rank *r = &o->plan->ranks[rank];
  if (o->entered[worker * o->n_words + rank / 64] >> (rank % 64) & 1) return true;
  if (!search_back(o, worker, worker + 1, r->first_worker, r->first_worker + r->n_workers, 1,
                   false))
    return false;
  note_entered(o, worker, rank);
  return true;
}

bool copse_order_known_at(struct copse_order *o, struct copse_event event, uint32_t rank) {
  const struct copse_plan_rank *r = &o->plan->ranks[rank];
  uint32_t end = r->first_worker + r->n_workers;
  if (event.time == 0 || (event.worker >= r->first_worker && event.worker < end)) return true;
  return was_told(o, event, r->first_worker, end, false) ||
         search_back(o, r->first_worker, end, event.worker, event.worker + 1, event.time, false);
}
