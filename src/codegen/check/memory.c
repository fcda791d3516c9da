/* A plan's memory on names. Pieces that are equal fractions are one class, whatever their numbers;
 * two pieces of a block are the same or apart, so a cell per (rank, block, class, chunk) stands for
 * its bytes. In place, input and output share bytes and so cells. */
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

static uint64_t mix(uint64_t h, uint64_t v) {
  h = (h ^ v) * 0x9e3779b97f4a7c15u;
  return h ^ (h >> 31);
}

/* Fractions are hashed in lowest terms, as they may come unreduced. */
static uint64_t hash_fraction(uint64_t h, int64_t num, int64_t den) {
  int64_t g = copse_gcd(num, den);
  return mix(mix(h, (uint64_t)(num / g)), (uint64_t)(den / g));
}

/* Equal pieces get one class. */
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

/* The data block behind an operand: what an allgather's input is to its output. */
static uint32_t data_block(const struct copse_plan *plan, const struct copse_plan_operand *o) {
  const struct copse_plan_header *h = &plan->header;
  if (h->collective == COPSE_ALLTOALL) /* a block per sender and receiver */
    return o->buffer == COPSE_BUFFER_INPUT ? o->rank * h->n_ranks + o->index
                                           : o->index * h->n_ranks + o->rank;
  bool one_of_many = (o->buffer == COPSE_BUFFER_INPUT && h->input_blocks < h->output_blocks) ||
                     (o->buffer == COPSE_BUFFER_OUTPUT && h->output_blocks < h->input_blocks);
  return one_of_many ? o->rank : o->index;
}

uint32_t copse_memory_blocks(const struct copse_plan *plan) {
  const struct copse_plan_header *h = &plan->header;
  if (h->collective == COPSE_ALLTOALL) return h->n_ranks * h->n_ranks;
  return h->input_blocks > h->output_blocks ? h->input_blocks : h->output_blocks;
}

static uint64_t key_of(const struct copse_place *p) {
  return mix(mix(copse_key_pair((int)p->rank, (int)p->buffer), p->block), p->piece);
}

/* The number of the place, or -1. */
static int find_place(const struct copse_memory *m, const struct copse_place *p) {
  uint64_t key = key_of(p);
  size_t cursor = 0;
  int i;
  while ((i = copse_index_map_next(&m->by_place, key, &cursor)) >= 0) {
    const struct copse_place *q = &m->places[i];
    if (q->rank == p->rank && q->buffer == p->buffer && q->block == p->block &&
        q->piece == p->piece)
      break;
  }
  return i;
}

static copse_status place_of(struct copse_memory *m, const struct copse_plan_operand *o,
                             uint32_t piece, uint32_t *index, struct copse_err *err) {
  struct copse_place place = {o->rank, m->in_place ? COPSE_BUFFER_OUTPUT : o->buffer,
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

/* NCCL gives a broadcast's input and a reduce's output only at the root. */
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

static int compare_rows(const void *a, const void *b) {
  const struct row *x = a, *y = b;
  if (x->block != y->block) return x->block < y->block ? -1 : 1;
  int lo =
      compare_fractions(x->piece->lo_num, x->piece->lo_den, y->piece->lo_num, y->piece->lo_den);
  if (lo) return lo;
  return compare_fractions(x->piece->hi_num, x->piece->hi_den, y->piece->hi_num, y->piece->hi_den);
}

/* Within a block pieces must be the same or apart, and leave no gap from 0 to 1. */
static copse_status check_tiling(const struct copse_memory *m, const char *label,
                                 struct copse_err *err) {
  COPSE_AT_END(copse_free_at) struct row *rows = NULL;
  uint32_t n = m->n_places;
  const char *defect = NULL;
  COPSE_DO(copse_calloc(n, sizeof *rows, &rows, err));
  for (uint32_t i = 0; i < n; i++)
    rows[i] = (struct row){m->places[i].block, &m->plan->pieces[m->places[i].piece]};
  qsort(rows, n, sizeof *rows, compare_rows);
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

void copse_memory_free(struct copse_memory *m) {
  copse_index_map_free(&m->by_place);
  copse_arena_free(&m->tables);
  copse_arena_free(&m->launch);
}

/* An input holds its rank's own contribution; so does, in place, the output it shares. */
static bool starts_with_input(const struct copse_memory *m, const struct copse_place *p) {
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
    const struct copse_place *place = &m->places[p];
    m->cells[p] =
        (struct copse_cell){.content = {starts_with_input(m, place) ? singles[place->rank] : -1,
                                        place->block, place->piece, c & INT32_MAX, false}};
  }
}

uint32_t copse_memory_output(const struct copse_memory *m, uint32_t rank, uint32_t block,
                             uint32_t piece) {
  struct copse_place place = {rank, COPSE_BUFFER_OUTPUT, block, piece};
  int found = find_place(m, &place);
  return found < 0 ? COPSE_NO_PLACE : (uint32_t)found;
}

struct copse_cell *copse_memory_cell(struct copse_memory *m, uint32_t op, uint32_t i, uint32_t c) {
  uint32_t place = m->op_places[m->op_first[op] + i];
  if (place != COPSE_NO_PLACE) return &m->cells[place];
  uint32_t region = m->plan->operands[m->plan->ops[op].operand + i].index;
  uint32_t fifo = m->plan->header.fifo;
  return &m->slots[(size_t)region * fifo + c % fifo];
}
