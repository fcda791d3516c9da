#include "support/moe_case.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/interpreter/element.h"
#include "runtime/comm/executor.h"
#include "support/random.h"

void moe_fail(const char *fmt, ...) {
  va_list arguments;
  va_start(arguments, fmt);
  vfprintf(stderr, fmt, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  abort();
}

static void *allocate(size_t bytes) {
  void *p = calloc(bytes ? bytes : 1, 1);
  if (!p) abort();
  return p;
}

/* ---- single elements --------------------------------------------------------------------- */

/* Every type's value is a double exactly; floats of all widths but double fit float. */
static double get(const unsigned char *at, copse_type type) {
  float f;
  double d;
  uint16_t h;
  memcpy(&h, at, type == COPSE_HALF || type == COPSE_BFLOAT16 ? sizeof h : 0);
  switch (type) {
    case COPSE_FLOAT: memcpy(&f, at, sizeof f); return (double)f;
    case COPSE_DOUBLE: memcpy(&d, at, sizeof d); return d;
    case COPSE_HALF: return (double)copse_half_load(h);
    case COPSE_BFLOAT16: return (double)copse_bfloat16_load(h);
    case COPSE_FLOAT8_E4M3: return (double)copse_float8_e4m3_load(*at);
    case COPSE_FLOAT8_E5M2: return (double)copse_float8_e5m2_load(*at);
    default: moe_fail("no float");
  }
}

/* v is a value of the accumulator's type. */
static void put(unsigned char *at, copse_type type, double v) {
  float f = (float)v;
  uint16_t h = 0;
  switch (type) {
    case COPSE_FLOAT: memcpy(at, &f, sizeof f); break;
    case COPSE_DOUBLE: memcpy(at, &v, sizeof v); break;
    case COPSE_HALF:
    case COPSE_BFLOAT16:
      h = type == COPSE_HALF ? copse_half_store(f) : copse_bfloat16_store(f);
      memcpy(at, &h, sizeof h);
      break;
    case COPSE_FLOAT8_E4M3: *at = copse_float8_e4m3_store(f); break;
    case COPSE_FLOAT8_E5M2: *at = copse_float8_e5m2_store(f); break;
    default: moe_fail("no float");
  }
}

static bool is_float(copse_type type) { return type >= COPSE_HALF; }

/* A value of the middle of the type's range, whose products and sums round; or a zero. */
static void put_rough(unsigned char *at, copse_type type, uint64_t *state) {
  uint64_t bits = copse_test_random(state);
  if (is_float(type) && bits >> 60 == 0) {
    put(at, type, bits & 1 ? 0.0 : -0.0);
    return;
  }
  double v = (double)copse_test_random_int(state, -1000000, 1000000) / 12345.0;
  float f = (float)v;
  uint16_t half = (uint16_t)((bits & 0x8fff) + 0x3000),
           bfloat = (uint16_t)((bits & 0x81ff) + 0x3e80);
  uint8_t e4m3 = (uint8_t)((bits & 0x9f) + 0x20), e5m2 = (uint8_t)((bits & 0x9f) + 0x30);
  switch (type) {
    case COPSE_FLOAT: memcpy(at, &f, sizeof f); break;
    case COPSE_DOUBLE: memcpy(at, &v, sizeof v); break;
    case COPSE_HALF: memcpy(at, &half, sizeof half); break;
    case COPSE_BFLOAT16: memcpy(at, &bfloat, sizeof bfloat); break;
    case COPSE_FLOAT8_E4M3: *at = e4m3; break;
    case COPSE_FLOAT8_E5M2: *at = e5m2; break;
    default: memcpy(at, &bits, copse_type_bytes(type));
  }
}

/* Rounded to the accumulator's type: a float's product in double is exact, its sum (of floats)
 * rounds to the same float as a float addition would (53 >= 2 * 24 + 2 bits). */
static double rounded(double v, copse_type type) {
  return type == COPSE_DOUBLE ? v : (double)(float)v;
}

static double weight_at(const void *weights, int64_t choice, copse_type type) {
  if (type == COPSE_DOUBLE) return ((const double *)weights)[choice];
  return (double)((const float *)weights)[choice];
}

static void set_weight(void *weights, int64_t choice, copse_type type, double v) {
  if (type == COPSE_DOUBLE)
    ((double *)weights)[choice] = v;
  else
    ((float *)weights)[choice] = (float)v;
}

/* ---- what ranks give --------------------------------------------------------------------- */

static int32_t random_id(const struct moe_options *o, uint64_t *state) {
  const int n = o->config.n_experts;
  switch (o->routing) {
    case MOE_ZIPF: return (n / copse_test_random_int(state, 1, n) - 1 + 3) % n;
    case MOE_ONE: return n - 1;
    case MOE_NONE: return -1;
    case MOE_DROPPED: {
      static const int32_t wrong[] = {-1, -1, -2, INT32_MIN, INT32_MAX};
      int i = copse_test_random_int(state, 0, 11);
      if (i < 5) return wrong[i];
      if (i == 5) return n;
    } /* fall through */
    default: return copse_test_random_int(state, 0, n - 1);
  }
}

static int32_t *random_permutation(int64_t n, uint64_t *state) {
  int32_t *order = allocate((size_t)n * sizeof *order);
  for (int64_t i = 0; i < n; i++) {
    int64_t j = copse_test_random_int(state, 0, (int)i);
    order[i] = order[j];
    order[j] = (int32_t)i;
  }
  return order;
}

static void *random_weights(int64_t n, copse_type type, uint64_t *state) {
  void *weights = allocate((size_t)n * sizeof(double));
  for (int64_t i = 0; i < n; i++)
    set_weight(weights, i, type, copse_test_random_int(state, 1, 100000) / 77777.0);
  return weights;
}

static void fill_integers(unsigned char *rows, int64_t n, const copse_moe_row *row,
                          uint64_t *state) {
  for (int64_t i = 0; i < n * row->elements; i++)
    put(rows + (size_t)i * copse_type_bytes(row->type), row->type,
        copse_test_random_int(state, -8, 8) / 2);
}

static void fill_rows(unsigned char *rows, int64_t n, const copse_moe_row *row, uint64_t *state) {
  for (int64_t i = 0; i < n * row->elements; i++)
    put_rough(rows + (size_t)i * copse_type_bytes(row->type), row->type, state);
}

static void give(const struct moe_case *c, uint32_t rank, uint64_t *state) {
  const struct moe_options *o = &c->options;
  struct moe_rank *r = &c->ranks[rank];
  bool idle = o->idle && rank != 0 && copse_test_random_int(state, 0, 1);
  r->n_tokens = idle ? 0 : copse_test_random_int(state, 0, (int)o->config.max_tokens);
  if (rank == 0 || o->full) r->n_tokens = o->config.max_tokens;
  const int64_t choices = r->n_tokens * o->config.top_k;
  r->expert_ids = allocate((size_t)choices * sizeof(int32_t));
  for (int64_t i = 0; i < choices; i++) r->expert_ids[i] = random_id(o, state);
  r->tokens = allocate((size_t)r->n_tokens * c->row_bytes);
  if (o->identity)
    fill_integers(r->tokens, r->n_tokens, &o->config.row, state);
  else
    fill_rows(r->tokens, r->n_tokens, &o->config.row, state);
  if (o->order) r->order = random_permutation(r->n_tokens, state);
  if (o->scales) r->scales = random_weights(choices, o->config.row.type, state);
  if (o->weights || o->identity) r->weights = random_weights(choices, c->combined_row.type, state);
  for (int64_t i = 0; o->identity && i < choices; i++)
    set_weight(r->weights, i, c->combined_row.type, 1.0 / o->config.top_k);
}

/* ---- what must come of it ---------------------------------------------------------------- */

/* For each choice of rank `source`, in the order in which experts take them. */
static int64_t choice_at(const struct moe_case *c, uint32_t source, int64_t i) {
  const struct moe_rank *r = &c->ranks[source];
  int64_t k = i / r->n_tokens, position = i % r->n_tokens;
  return (r->order ? r->order[position] : position) * c->options.config.top_k + k;
}

static void expect_row(const struct moe_case *c, const struct moe_rank *source, int64_t choice,
                       unsigned char *to) {
  const copse_moe_row *row = &c->options.config.row;
  const size_t element = copse_type_bytes(row->type);
  const unsigned char *from =
      source->tokens + (size_t)(choice / c->options.config.top_k) * c->row_bytes;
  if (!source->scales) {
    memcpy(to, from, c->row_bytes);
    return;
  }
  double scale = weight_at(source->scales, choice, row->type);
  for (int64_t i = 0; i < row->elements; i++)
    put(to + (size_t)i * element, row->type,
        rounded(scale * get(from + (size_t)i * element, row->type), row->type));
}

/* Where a choice's row went. */
struct place {
  int64_t rank, row; /* rank -1: dropped */
};

static void expect_expert(struct moe_case *c, uint32_t owner, int32_t expert,
                          struct place *const *places) {
  const copse_moe_config *config = &c->options.config;
  struct moe_rank *r = &c->ranks[owner];
  int64_t local = expert - (int64_t)r->first_expert;
  r->expert_offsets[local] = (int32_t)r->n_rows;
  for (uint32_t s = 0; s < c->options.n_ranks; s++) {
    const struct moe_rank *source = &c->ranks[s];
    int32_t *taken = &c->taken[s * (uint32_t)config->n_experts + (uint32_t)expert];
    int64_t start = r->n_rows;
    for (int64_t i = 0; i < source->n_tokens * config->top_k; i++) {
      int64_t choice = choice_at(c, s, i);
      if (source->expert_ids[choice] != expert) continue;
      if (config->capacity != COPSE_MOE_EXACT && *taken == config->capacity) continue;
      expect_row(c, source, choice, r->rows + (size_t)r->n_rows * c->row_bytes);
      places[s][choice] = (struct place){owner, r->n_rows};
      r->n_rows++;
      ++*taken;
    }
    r->expert_counts[local] += *taken;
    if (config->padded) r->n_rows = start + config->capacity;
  }
}

static void expect_chosen(const struct moe_case *c, struct moe_rank *r) {
  const int32_t n = c->options.config.n_experts;
  for (int64_t i = 0; i < r->n_tokens * c->options.config.top_k; i++) {
    int32_t id = r->expert_ids[i];
    r->chosen[id >= 0 && id < n ? id : id == -1 ? n : n + 1]++;
  }
}

static void expect_combined(const struct moe_case *c, struct moe_rank *r,
                            const struct place *places) {
  const int64_t top_k = c->options.config.top_k;
  const copse_moe_row *row = &c->combined_row;
  const size_t element = copse_type_bytes(row->type);
  for (int64_t t = 0; t < r->n_tokens; t++)
    for (int64_t i = 0; i < row->elements; i++) {
      double total = 0;
      bool first = true;
      for (int64_t choice = t * top_k; choice < (t + 1) * top_k; choice++) {
        const struct place *p = &places[choice];
        if (p->rank < 0) continue;
        const unsigned char *answer = c->ranks[p->rank].answers;
        volatile double term =
            get(answer + (size_t)p->row * c->combined_bytes + (size_t)i * element, row->type);
        if (r->weights) term = rounded(weight_at(r->weights, choice, row->type) * term, row->type);
        total = first ? term : rounded(total + term, row->type);
        first = false;
      }
      put(r->combined + (size_t)t * c->combined_bytes + (size_t)i * element, row->type, total);
    }
}

static struct place **find_rows(struct moe_case *c) {
  const struct moe_options *o = &c->options;
  const uint64_t n_experts = (uint64_t)o->config.n_experts;
  struct place **places = allocate(o->n_ranks * sizeof *places);
  int64_t all = 0;
  for (uint32_t s = 0; s < o->n_ranks; s++) {
    int64_t choices = c->ranks[s].n_tokens * o->config.top_k;
    places[s] = allocate((size_t)choices * sizeof **places);
    for (int64_t i = 0; i < choices; i++) places[s][i].rank = -1;
    all += choices;
  }
  for (uint32_t d = 0; d < o->n_ranks; d++) {
    struct moe_rank *r = &c->ranks[d];
    r->first_expert = (uint32_t)(d * n_experts / o->n_ranks);
    r->n_local = (uint32_t)((d + 1) * n_experts / o->n_ranks) - r->first_expert;
    r->expert_counts = allocate(r->n_local * sizeof(int32_t));
    r->expert_offsets = allocate((r->n_local + 1) * sizeof(int32_t));
    r->chosen = allocate((n_experts + 2) * sizeof(int32_t));
    int64_t most = o->config.padded ? r->n_local * o->n_ranks * o->config.capacity : all;
    r->rows = allocate((size_t)most * c->row_bytes);
    for (uint32_t e = 0; e < r->n_local; e++)
      expect_expert(c, d, (int32_t)(r->first_expert + e), places);
    r->expert_offsets[r->n_local] = (int32_t)r->n_rows;
    expect_chosen(c, r);
  }
  return places;
}

static void answer(struct moe_case *c, struct place *const *places, uint64_t *state) {
  for (uint32_t d = 0; d < c->options.n_ranks; d++) {
    struct moe_rank *r = &c->ranks[d];
    r->answers = allocate((size_t)r->n_rows * c->combined_bytes);
    if (c->options.identity || c->options.echo)
      memcpy(r->answers, r->rows, (size_t)r->n_rows * c->row_bytes);
    else
      fill_rows(r->answers, r->n_rows, &c->combined_row, state);
  }
  for (uint32_t s = 0; s < c->options.n_ranks; s++) {
    struct moe_rank *r = &c->ranks[s];
    r->combined = allocate((size_t)r->n_tokens * c->combined_bytes);
    if (is_float(c->combined_row.type)) expect_combined(c, r, places[s]);
  }
}

static void free_places(const struct moe_case *c, struct place **places) {
  for (uint32_t s = 0; s < c->options.n_ranks; s++) free(places[s]);
  free(places);
}

struct moe_case *moe_case_new(const struct moe_options *options, uint64_t *state) {
  struct moe_case *c = allocate(sizeof *c);
  const copse_moe_config *config = &options->config;
  c->options = *options;
  c->combined_row = config->combined.elements ? config->combined : config->row;
  c->row_bytes = (size_t)config->row.elements * copse_type_bytes(config->row.type);
  c->combined_bytes = (size_t)c->combined_row.elements * copse_type_bytes(c->combined_row.type);
  c->ranks = allocate(options->n_ranks * sizeof *c->ranks);
  c->taken = allocate(options->n_ranks * (size_t)config->n_experts * sizeof(int32_t));
  for (uint32_t r = 0; r < options->n_ranks; r++) give(c, r, state);
  struct place **places = find_rows(c);
  answer(c, places, state);
  free_places(c, places);
  return c;
}

void moe_case_free(struct moe_case *c) {
  for (uint32_t i = 0; i < c->options.n_ranks; i++) {
    struct moe_rank *r = &c->ranks[i];
    free(r->expert_counts);
    free(r->expert_offsets);
    free(r->chosen);
    free(r->rows);
    free(r->expert_ids);
    free(r->order);
    free(r->tokens);
    free(r->scales);
    free(r->weights);
    free(r->answers);
    free(r->combined);
  }
  free(c->ranks);
  free(c->taken);
  free(c);
}

static copse_moe_row random_row(uint64_t *state, int lowest_type) {
  static const int64_t elements[] = {1, 3, 7, 8, 16, 24, 33, 64, 100};
  return (copse_moe_row){elements[copse_test_random_int(state, 0, 8)],
                         (copse_type)copse_test_random_int(state, lowest_type, COPSE_N_TYPES - 1)};
}

struct moe_options moe_options_random(uint64_t *state) {
  struct moe_options o = {.n_ranks = (uint32_t)copse_test_random_int(state, 1, 8)};
  copse_moe_config *config = &o.config;
  o.routing = (enum moe_routing)copse_test_random_int(state, 0, MOE_N_ROUTINGS - 1);
  config->n_experts = (int)o.n_ranks * copse_test_random_int(state, 1, 4);
  if (copse_test_random_int(state, 0, 3) == 0)
    config->n_experts = copse_test_random_int(state, 1, 4 * (int)o.n_ranks); /* uneven */
  config->top_k = copse_test_random_int(state, 1, 4);
  config->max_tokens = copse_test_random_int(state, 0, 40);
  config->capacity = COPSE_MOE_EXACT;
  if (copse_test_random_int(state, 0, 1)) {
    /* from nothing to more than anybody needs */
    config->capacity = copse_test_random_int(state, 0, 3) == 0
                           ? copse_test_random_int(state, 0, 1)
                           : copse_test_random_int(state, 0, 50);
    config->padded = copse_test_random_int(state, 0, 1);
  }
  config->row = random_row(state, COPSE_INT8);
  o.scales = is_float(config->row.type) && copse_test_random_int(state, 0, 3) == 0;
  if (!is_float(config->row.type) || copse_test_random_int(state, 0, 2) == 0)
    config->combined = random_row(state, COPSE_HALF);
  o.weights = copse_test_random_int(state, 0, 3) != 0;
  o.order = copse_test_random_int(state, 0, 3) == 0;
  o.idle = copse_test_random_int(state, 0, 2) == 0;
  return o;
}

/* ---- checks ------------------------------------------------------------------------------ */

static void check_numbers(const char *what, uint32_t rank, const int32_t *got, const int32_t *want,
                          int64_t n) {
  for (int64_t i = 0; i < n; i++)
    if (got[i] != want[i])
      moe_fail("rank %u: %s %lld is %d, should be %d", rank, what, (long long)i, got[i], want[i]);
}

void moe_check_counts(const struct moe_case *c, uint32_t rank, const int32_t *expert_counts,
                      const int32_t *expert_offsets, const int32_t *taken, const int32_t *chosen) {
  const struct moe_rank *r = &c->ranks[rank];
  const int64_t n_experts = c->options.config.n_experts;
  check_numbers("the count of expert", rank, expert_counts, r->expert_counts, r->n_local);
  check_numbers("the offset of expert", rank, expert_offsets, r->expert_offsets, r->n_local + 1);
  check_numbers("taken", rank, taken, c->taken, c->options.n_ranks * n_experts);
  check_numbers("chosen", rank, chosen, r->chosen, n_experts + 2);
}

static void check_bytes(const char *what, uint32_t rank, const unsigned char *got,
                        const unsigned char *want, int64_t n, size_t bytes) {
  for (int64_t i = 0; i < n; i++)
    if (memcmp(got + (size_t)i * bytes, want + (size_t)i * bytes, bytes) != 0)
      moe_fail("rank %u: %s %lld of %lld differs", rank, what, (long long)i, (long long)n);
}

void moe_check_rows(const struct moe_case *c, uint32_t rank, const unsigned char *rows, int64_t n) {
  const struct moe_rank *r = &c->ranks[rank];
  if (n < r->n_rows)
    moe_fail("rank %u: %lld rows at most, but there are %lld", rank, (long long)n,
             (long long)r->n_rows);
  check_bytes("row", rank, rows, r->rows, r->n_rows, c->row_bytes);
  for (size_t i = (size_t)r->n_rows * c->row_bytes; i < (size_t)n * c->row_bytes; i++)
    if (rows[i] != MOE_POISON) moe_fail("rank %u: something lies beyond the rows", rank);
}

void moe_check_combined(const struct moe_case *c, uint32_t rank, const unsigned char *tokens) {
  const struct moe_rank *r = &c->ranks[rank];
  check_bytes("token", rank, tokens, r->combined, r->n_tokens, c->combined_bytes);
}
