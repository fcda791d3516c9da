/* Test data with exactly known results: values of every element as a function of seed, element and
 * rank, chosen so that sums are exact in every order (as in nccl-tests' verifiable data), and
 * buffers that hold them. */
#include "runtime/interpreter/expected.h"

#include <string.h>

#include "base/graph.h"
#include "runtime/plan/plan_math.h"

/* ---- random bits: a function of (seed, element, rank) --------------------------------- */

static uint64_t element_bits(const struct copse_data *data, uint64_t element) {
  return copse_mix(data->seed ^ copse_mix(element));
}

static uint64_t rank_bits(uint64_t element_hash, uint32_t rank) {
  return copse_mix(element_hash + rank * 0xd1342543de82ef95u);
}

/* Returns a number 0..n-1, from the upper bits. */
static uint64_t below(uint64_t bits, uint64_t n) {
  return (uint64_t)((unsigned __int128)bits * n >> 64);
}

/* ---- types ------------------------------------------------------------------------------ */

enum kind { KIND_SIGNED, KIND_UNSIGNED, KIND_FLOAT };

static const struct type_info {
  enum kind kind;
  int bytes;
  int64_t exact; /* floats: all integers up to here are exact */
} types[COPSE_N_TYPES] = {
    [COPSE_INT8] = {KIND_SIGNED, 1, 0},
    [COPSE_UINT8] = {KIND_UNSIGNED, 1, 0},
    [COPSE_INT32] = {KIND_SIGNED, 4, 0},
    [COPSE_UINT32] = {KIND_UNSIGNED, 4, 0},
    [COPSE_INT64] = {KIND_SIGNED, 8, 0},
    [COPSE_UINT64] = {KIND_UNSIGNED, 8, 0},
    [COPSE_HALF] = {KIND_FLOAT, 2, (int64_t)1 << 11},
    [COPSE_FLOAT] = {KIND_FLOAT, 4, (int64_t)1 << 24},
    [COPSE_DOUBLE] = {KIND_FLOAT, 8, (int64_t)1 << 53},
    [COPSE_BFLOAT16] = {KIND_FLOAT, 2, (int64_t)1 << 8},
    [COPSE_FLOAT8_E4M3] = {KIND_FLOAT, 1, 1 << 4},
    [COPSE_FLOAT8_E5M2] = {KIND_FLOAT, 1, 1 << 3},
};

/* Returns the bits of v as a float with so many bits of exponent and mantissa, rounded to nearest
 * even. Works on the double's own bits; v is finite and within the type's range. */
static uint64_t narrow_bits(double v, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  uint64_t bits;
  memcpy(&bits, &v, sizeof bits);
  uint64_t sign = bits >> 63 << (exponent_bits + mantissa_bits);
  int exponent = (int)(bits >> 52 & 0x7ff) - 1023 + bias;
  uint64_t mantissa = bits & (((uint64_t)1 << 52) - 1);
  int drop = 52 - mantissa_bits;
  if (exponent <= 0) { /* subnormal: the leading 1 becomes explicit and moves right */
    mantissa |= (uint64_t)1 << 52;
    drop += 1 - exponent;
    exponent = 0;
    if (drop > 54) return sign;
  }
  uint64_t kept = ((uint64_t)exponent << mantissa_bits) + (mantissa >> drop);
  uint64_t rest = mantissa & (((uint64_t)1 << drop) - 1), tie = (uint64_t)1 << (drop - 1);
  if (rest > tie || (rest == tie && (kept & 1))) kept++;
  return sign | kept;
}

/* Returns the type's bits for a value that it holds exactly (or, for avg, rounds to). */
static uint64_t float_bits(enum copse_type type, double v) {
  uint64_t bits = 0;
  float f = (float)v;
  switch (type) {
    case COPSE_HALF: return narrow_bits(v, 5, 10);
    case COPSE_BFLOAT16: return narrow_bits(v, 8, 7);
    case COPSE_FLOAT8_E4M3: return narrow_bits(v, 4, 3);
    case COPSE_FLOAT8_E5M2: return narrow_bits(v, 5, 2);
    case COPSE_FLOAT: memcpy(&bits, &f, sizeof f); return bits;
    default: memcpy(&bits, &v, sizeof v); return bits;
  }
}

static void put(void *out, uint64_t i, int bytes, uint64_t bits) {
  switch (bytes) {
    case 1: ((uint8_t *)out)[i] = (uint8_t)bits; break;
    case 2: ((uint16_t *)out)[i] = (uint16_t)bits; break;
    case 4: ((uint32_t *)out)[i] = (uint32_t)bits; break;
    default: ((uint64_t *)out)[i] = bits; break;
  }
}

/* Returns the value of an integer type, from its bits. */
static int64_t sign_extend(uint64_t bits, int bytes) {
  switch (bytes) {
    case 1: return (int8_t)bits;
    case 4: return (int32_t)bits;
    default: return (int64_t)bits;
  }
}

static uint64_t zero_extend(uint64_t bits, int bytes) {
  return bytes == 8 ? bits : bits & (((uint64_t)1 << 8 * bytes) - 1);
}

/* ---- one rank's contribution -------------------------------------------------------- */

/* What a rank's element is made from its random bits. */
enum rule {
  RULE_BITS,   /* they themselves */
  RULE_ODD,    /* integers of a product */
  RULE_TERM,   /* floats of a sum */
  RULE_FACTOR, /* floats of a product */
  RULE_EXTREME /* floats of a minimum or maximum */
};

/* Only `active` of the ranks contribute to an element's sum (or powers of two to its
 * product): those from a starting point on that differs from element to element. */
struct pattern {
  enum rule rule;
  bool reduces;
  uint32_t active;
  int64_t bound; /* sum: magnitudes; active * bound <= exact */
};

#define PROD_ACTIVE 8u /* 2^-8 .. 2^8: within every type's range (e4m3: 2^-9 .. 448) */

static enum rule rule_of(const struct copse_data *data) {
  if (!copse_collective_reduces(data->collective)) return RULE_BITS;
  bool is_float = types[data->type].kind == KIND_FLOAT;
  if (data->redop == COPSE_PROD) return is_float ? RULE_FACTOR : RULE_ODD;
  if (!is_float) return RULE_BITS;
  return data->redop == COPSE_MIN || data->redop == COPSE_MAX ? RULE_EXTREME : RULE_TERM;
}

static struct pattern pattern_of(const struct copse_data *data) {
  struct pattern p = {rule_of(data), copse_collective_reduces(data->collective), data->n_ranks, 0};
  int64_t exact = types[data->type].exact;
  if (data->redop == COPSE_PROD) {
    if (p.active > PROD_ACTIVE) p.active = PROD_ACTIVE;
  } else if (exact > 0) {
    if (p.active > exact / 4) p.active = (uint32_t)(exact / 4);
    p.bound = exact / p.active;
    if (p.bound > (int64_t)1 << 40) p.bound = (int64_t)1 << 40;
  }
  return p;
}

/* Returns the first active rank for an element. */
static uint32_t first_active(const struct copse_data *data, const struct pattern *p,
                             uint64_t element_hash) {
  if (p->active == data->n_ranks) return 0;
  return (uint32_t)below(copse_mix(~element_hash), data->n_ranks);
}

static bool is_active(const struct copse_data *data, const struct pattern *p, uint64_t element_hash,
                      uint32_t rank) {
  uint32_t first = first_active(data, p, element_hash);
  uint32_t ahead = rank >= first ? rank - first : rank + (data->n_ranks - first);
  return ahead < p->active;
}

/* Returns a float's contribution to a sum, if its rank is active. */
static int64_t sum_term(const struct pattern *p, uint64_t bits) {
  return (int64_t)below(bits, 2 * (uint64_t)p->bound + 1) - p->bound;
}

/* Returns the size of a float's contribution to a product, if its rank is active. */
static double prod_factor(uint64_t bits) {
  static const double factors[3] = {0.5, 1, 2};
  return factors[bits % 3];
}

/* Returns a float for min and max: so few significant bits that it is exact in the type. */
static double extreme_value(enum copse_type type, uint64_t bits) {
  static const double scale[8] = {0.125, 0.25, 0.5, 1, 2, 4, 8, 16};
  int64_t most = types[type].exact < 128 ? types[type].exact : 128;
  return (double)((int64_t)(bits >> 8) % (2 * most) - (most - 1)) * scale[bits & 7];
}

/* Returns what a rank contributes to a float's reduction, from its random bits. */
static inline double contribution(const struct copse_data *data, const struct pattern *p,
                                  uint64_t hash, uint32_t rank, uint64_t bits) {
  if (p->rule == RULE_EXTREME) return extreme_value(data->type, bits);
  const bool active = is_active(data, p, hash, rank);
  if (p->rule == RULE_TERM) return active ? (double)sum_term(p, bits) : 0;
  const double factor = active ? prod_factor(bits) : 1;
  return bits >> 63 ? -factor : factor;
}

/* Returns the bits of `rank`'s input at an element whose hash is given. */
static inline uint64_t input_bits(const struct copse_data *data, const struct pattern *p,
                                  uint64_t hash, uint32_t rank) {
  const uint64_t bits = rank_bits(hash, rank);
  if (p->rule == RULE_BITS) return bits;
  if (p->rule == RULE_ODD) return bits | 1;
  return float_bits(data->type, contribution(data, p, hash, rank, bits));
}

void copse_data_input(const struct copse_data *data, uint32_t rank, uint64_t first, uint64_t n,
                      void *out) {
  const struct pattern p = pattern_of(data);
  const int bytes = types[data->type].bytes;
  for (uint64_t i = 0; i < n; i++)
    put(out, i, bytes, input_bits(data, &p, element_bits(data, first + i), rank));
}

/* ---- the reductions ------------------------------------------------------------------- */

/* Reduces floats in double, exact at every step. */
static uint64_t reduced_float(const struct copse_data *data, const struct pattern *p,
                              uint64_t hash) {
  const bool sums = p->rule == RULE_TERM;
  uint32_t rank = sums ? first_active(data, p, hash) : 0;
  double total = contribution(data, p, hash, rank, rank_bits(hash, rank));
  for (uint32_t k = 1; k < (sums ? p->active : data->n_ranks); k++) {
    if (++rank == data->n_ranks) rank = 0;
    const double v = contribution(data, p, hash, rank, rank_bits(hash, rank));
    if (sums)
      total += v;
    else if (p->rule == RULE_FACTOR)
      total *= v;
    else if (data->redop == COPSE_MIN ? v < total : v > total)
      total = v;
  }
  if (data->redop != COPSE_AVG) return float_bits(data->type, total);
  if (data->type == COPSE_DOUBLE) return float_bits(data->type, total / data->n_ranks);
  return float_bits(data->type, (float)total / (float)data->n_ranks);
}

/* Reduces integers in 64 bits modulo 2^64, of which the type keeps the lower ones. */
static uint64_t reduced_integer(const struct copse_data *data, uint64_t hash) {
  const struct type_info *type = &types[data->type];
  uint64_t total = data->redop == COPSE_PROD ? 1 : 0;
  for (uint32_t rank = 0; rank < data->n_ranks; rank++) {
    uint64_t bits = rank_bits(hash, rank);
    if (data->redop == COPSE_PROD) {
      total *= bits | 1;
    } else if (data->redop == COPSE_SUM || data->redop == COPSE_AVG) {
      total += bits;
    } else {
      bool is_less = type->kind == KIND_SIGNED
                         ? sign_extend(bits, type->bytes) < sign_extend(total, type->bytes)
                         : zero_extend(bits, type->bytes) < zero_extend(total, type->bytes);
      bool is_equal = zero_extend(bits, type->bytes) == zero_extend(total, type->bytes);
      bool better = data->redop == COPSE_MIN ? is_less : !is_less && !is_equal;
      if (rank == 0 || better) total = bits;
    }
  }
  if (data->redop != COPSE_AVG) return total;
  if (type->kind == KIND_UNSIGNED) return zero_extend(total, type->bytes) / data->n_ranks;
  return (uint64_t)(sign_extend(total, type->bytes) / (int64_t)data->n_ranks);
}

static inline uint64_t reduced_bits(const struct copse_data *data, const struct pattern *p,
                                    uint64_t hash) {
  return p->rule == RULE_BITS || p->rule == RULE_ODD ? reduced_integer(data, hash)
                                                     : reduced_float(data, p, hash);
}

/* ---- outputs -------------------------------------------------------------------------- */

bool copse_data_is_promised(const struct copse_data *data, uint32_t rank) {
  return data->collective != COPSE_REDUCE || rank == (uint32_t)data->root;
}

/* Whether all ranks (that are promised anything) get the same output. */
static bool data_is_common(const struct copse_data *data) {
  return data->collective != COPSE_REDUCE_SCATTER && data->collective != COPSE_ALLTOALL;
}

/* Finds where output comes from: element `within` of a block of the output is element *from of rank
 * *source's input, or the reduction of all ranks' elements *from; so are those that follow in the
 * block. */
static void origin(const struct copse_data *data, uint32_t rank, uint64_t block, uint64_t within,
                   uint32_t *source, uint64_t *from) {
  *source = data->collective == COPSE_BROADCAST ? (uint32_t)data->root : (uint32_t)block;
  *from = within;
  if (data->collective == COPSE_ALLTOALL || data->collective == COPSE_REDUCE_SCATTER)
    *from = rank * data->count + within;
}

void copse_data_output(const struct copse_data *data, uint32_t rank, uint64_t first, uint64_t n,
                       void *out) {
  const struct pattern p = pattern_of(data);
  const int bytes = types[data->type].bytes;
  for (uint64_t i = 0, end; i < n; i = end) {
    uint32_t source;
    uint64_t from, within = (first + i) % data->count;
    origin(data, rank, (first + i) / data->count, within, &source, &from);
    end = n - i < data->count - within ? n : i + data->count - within;
    for (uint64_t k = i; k < end; k++, from++) {
      uint64_t hash = element_bits(data, from);
      put(out, k, bytes,
          p.reduces ? reduced_bits(data, &p, hash) : input_bits(data, &p, hash, source));
    }
  }
}

#define GUARD_BYTE 0xa7
#define STALE_BYTE 0xff      /* as a float a NaN, which no reduction here gives */
#define SLICE_ELEMENTS 2048u /* the reference is computed slice by slice */

copse_status copse_buffers_new(uint32_t n_ranks, uint64_t input_bytes, uint64_t output_bytes,
                               struct copse_buffers *buffers, struct copse_err *err) {
  return copse_buffers_new_some(n_ranks, 0, n_ranks, input_bytes, output_bytes, buffers, err);
}

copse_status copse_buffers_new_some(uint32_t n_ranks, uint32_t first, uint32_t n_here,
                                    uint64_t input_bytes, uint64_t output_bytes,
                                    struct copse_buffers *buffers, struct copse_err *err) {
  const uint64_t guards = 2 * (uint64_t)COPSE_GUARD_BYTES;
  *buffers = (struct copse_buffers){.n_ranks = n_ranks,
                                    .first = first,
                                    .end = first + n_here,
                                    .input_capacity = input_bytes,
                                    .output_capacity = output_bytes};
  struct copse_arena *arena = &buffers->arena;
  COPSE_DO(COPSE_ARRAYS(arena, n_ranks, unsigned char *, err, &buffers->input_memory,
                        &buffers->output_memory));
  COPSE_DO(COPSE_ARRAYS(arena, n_ranks, void *, err, &buffers->inputs, &buffers->outputs));
  for (uint32_t r = first; r < buffers->end; r++) {
    COPSE_DO(COPSE_ARRAY(arena, input_bytes + guards, buffers->input_memory[r], err));
    COPSE_DO(COPSE_ARRAY(arena, output_bytes + guards, buffers->output_memory[r], err));
  }
  return COPSE_OK;
}

static uint64_t element_bytes(const struct copse_buffers *buffers) {
  return copse_type_bytes(buffers->data.type);
}

/* Counts the elements of a whole input (output_elements: of a whole output). */
static uint64_t input_elements(const struct copse_data *data) {
  return (uint64_t)copse_collective_inputs(data->collective, (int)data->n_ranks) * data->count;
}

static uint64_t output_elements(const struct copse_data *data) {
  return (uint64_t)copse_collective_outputs(data->collective, (int)data->n_ranks) * data->count;
}

/* Places input and output; in place both are in the larger of the two memories. */
static void place(struct copse_buffers *buffers, uint32_t r) {
  unsigned char *input = buffers->input_memory[r] + COPSE_GUARD_BYTES;
  unsigned char *output = buffers->output_memory[r] + COPSE_GUARD_BYTES;
  uint64_t own = r * buffers->data.count * element_bytes(buffers);
  if (buffers->in_place && buffers->data.collective == COPSE_REDUCE_SCATTER)
    output = input + own;
  else if (buffers->in_place && buffers->data.collective == COPSE_ALLGATHER)
    input = output + own;
  else if (buffers->in_place)
    input = output;
  buffers->inputs[r] = input;
  buffers->outputs[r] = output;
}

static void fill_guarded(unsigned char *memory, uint64_t bytes) {
  memset(memory, GUARD_BYTE, COPSE_GUARD_BYTES);
  memset(memory + COPSE_GUARD_BYTES, STALE_BYTE, bytes);
  memset(memory + COPSE_GUARD_BYTES + bytes, GUARD_BYTE, COPSE_GUARD_BYTES);
}

void copse_buffers_fill(struct copse_buffers *buffers, const struct copse_data *data,
                        bool in_place) {
  buffers->data = *data;
  buffers->in_place = in_place;
  for (uint32_t r = buffers->first; r < buffers->end; r++) {
    place(buffers, r);
    fill_guarded(buffers->input_memory[r], input_elements(data) * element_bytes(buffers));
    fill_guarded(buffers->output_memory[r], output_elements(data) * element_bytes(buffers));
    copse_data_input(data, r, 0, input_elements(data), buffers->inputs[r]);
  }
}

/* ---- checking ---------------------------------------------------------------------------- */

static uint64_t count_different(const void *a, const void *b, uint64_t n, uint64_t bytes) {
  uint64_t different = 0;
  if (memcmp(a, b, n * bytes) == 0) return 0;
  for (uint64_t i = 0; i < n; i++)
    if (memcmp((const char *)a + i * bytes, (const char *)b + i * bytes, bytes) != 0) different++;
  return different;
}

static uint64_t count_not(const unsigned char *bytes, uint64_t n, unsigned char value) {
  uint64_t different = 0;
  for (uint64_t i = 0; i < n; i++)
    if (bytes[i] != value) different++;
  return different;
}

/* Counts, of elements [first, first + n) of rank r's output, within one block, those that there
 * are. */
static uint64_t valid_part(const struct copse_data *data, uint32_t r, uint64_t first, uint64_t n) {
  if (!data->extents && !data->pair_counts) return n;
  uint64_t pair = first / data->count * data->n_ranks + r, at = first % data->count;
  uint64_t there = data->pair_counts ? data->pair_counts[pair]
                                     : copse_fraction_of(data->count, data->extents[pair].num,
                                                         data->extents[pair].den);
  return there <= at ? 0 : there - at < n ? there - at : n;
}

/* Checks elements [first, first + n) of all outputs; beyond a block's extent nothing may be
 * written. Where all ranks' are the same the reference is computed once. */
static uint64_t check_outputs(const struct copse_buffers *buffers, uint64_t first, uint64_t n,
                              void *reference) {
  const struct copse_data *data = &buffers->data;
  uint64_t bytes = element_bytes(buffers), wrong = 0;
  bool have = false;
  for (uint32_t r = buffers->first; r < buffers->end; r++) {
    if (!copse_data_is_promised(data, r)) continue;
    if (!have) copse_data_output(data, r, first, n, reference);
    have = data_is_common(data);
    uint64_t valid = valid_part(data, r, first, n);
    unsigned char *output = (unsigned char *)buffers->outputs[r] + first * bytes;
    wrong += count_different(output, reference, valid, bytes);
    wrong += count_not(output + valid * bytes, (n - valid) * bytes, STALE_BYTE);
  }
  return wrong;
}

/* Whether elements [first, ...) of the input, a whole number of blocks or a part of one,
 * share their memory with the output. */
static bool is_overwritten(const struct copse_buffers *buffers, uint32_t r, uint64_t element) {
  if (!buffers->in_place) return false;
  if (buffers->data.collective != COPSE_REDUCE_SCATTER) return true;
  return element / buffers->data.count == r;
}

/* Checks elements [first, first + n) of all inputs, which lie within one block. */
static uint64_t check_inputs(const struct copse_buffers *buffers, uint64_t first, uint64_t n,
                             void *reference) {
  uint64_t bytes = element_bytes(buffers), wrong = 0;
  for (uint32_t r = buffers->first; r < buffers->end; r++) {
    if (is_overwritten(buffers, r, first)) continue;
    copse_data_input(&buffers->data, r, first, n, reference);
    wrong += count_different((char *)buffers->inputs[r] + first * bytes, reference, n, bytes);
  }
  return wrong;
}

static uint64_t check_guards(const struct copse_buffers *buffers, unsigned char *const *memory,
                             uint64_t bytes) {
  uint64_t wrong = 0;
  for (uint32_t r = buffers->first; r < buffers->end; r++) {
    wrong += count_not(memory[r], COPSE_GUARD_BYTES, GUARD_BYTE);
    wrong += count_not(memory[r] + COPSE_GUARD_BYTES + bytes, COPSE_GUARD_BYTES, GUARD_BYTE);
  }
  return wrong;
}

/* Returns the length of the slice at `first`, which doesn't reach into the next block. */
static uint64_t slice(uint64_t first, uint64_t count) {
  uint64_t left = count - first % count;
  return left < SLICE_ELEMENTS ? left : SLICE_ELEMENTS;
}

uint64_t copse_buffers_count_wrong(const struct copse_buffers *buffers) {
  const struct copse_data *data = &buffers->data;
  uint64_t reference[SLICE_ELEMENTS], wrong = 0, n;
  for (uint64_t at = 0; at < output_elements(data); at += n) {
    n = slice(at, data->count);
    wrong += check_outputs(buffers, at, n, reference);
  }
  for (uint64_t at = 0; at < input_elements(data); at += n) {
    n = slice(at, data->count);
    wrong += check_inputs(buffers, at, n, reference);
  }
  uint64_t bytes = element_bytes(buffers);
  return wrong + check_guards(buffers, buffers->input_memory, input_elements(data) * bytes) +
         check_guards(buffers, buffers->output_memory, output_elements(data) * bytes);
}
