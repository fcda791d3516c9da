/*
 * Expert placement on a topology: routing traces (read, written, made up), and the placement that
 * solver/placement finds for a trace over the topology's cuts. docs/formats.md, "Trace";
 * docs/theory.md, "src/solver/placement/".
 */
#include "schedule/placement/place.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/graph.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "schedule/solve/instance.h"
#include "solver/network/flow.h"
#include "topology/route.h"

/* Far beyond any trace, and 2^20 of them still add up in 64 bits. */
#define MAX_TOKENS ((int64_t)1 << 40)

/* ---- reading ------------------------------------------------------------------------------- */

struct reader {
  struct copse_json
      json; /* without the steps: each is parsed by itself, as all take 30 times as much */
  const struct copse_json_list *steps;
  struct copse_trace *trace;
  struct copse_err *err;
};

static copse_status refuse(const struct reader *r, const cJSON *where, const char *what) {
  return copse_fail_at(r->err, COPSE_BAD_INPUT, r->json.file, copse_json_line(where, r->json.root),
                       "%s", what);
}

/* Returns the line of an array, which has none itself; its first element may. */
static long line_of_row(const cJSON *row, const cJSON *step) {
  const cJSON *first = cJSON_IsArray(row) ? copse_json_first(row) : NULL;
  return copse_json_line(first, step);
}

static copse_status read_row(struct reader *r, const cJSON *row, const cJSON *step, int64_t *out) {
  int n = r->trace->n_experts, i = 0;
  if (!copse_json_is_array(row) || cJSON_GetArraySize(row) != n)
    return copse_fail_at(r->err, COPSE_BAD_INPUT, r->json.file, line_of_row(row, step),
                         "each row of \"counts\" must have %d numbers, one per expert", n);
  COPSE_JSON_EACH (item, row) {
    COPSE_DO(copse_json_int(&r->json, item, step, "an entry of \"counts\"", 0, MAX_TOKENS,
                            &out[i++], r->err));
  }
  return COPSE_OK;
}

static copse_status get_rows(struct reader *r, const cJSON *step, const cJSON **rows) {
  static const struct copse_json_key keys[] = {
      {"counts", COPSE_JSON_NEEDED | COPSE_JSON_ARRAY,
       "tokens of each rank (a row) for each expert, such as [[3, 1], [0, 4]]"},
      {"comment", COPSE_JSON_STRING, "a text for readers"},
      {0}};
  COPSE_DO(copse_json_expect_object(&r->json, step, r->json.root, "a step", keys, r->err));
  return copse_json_get_array(&r->json, step, "counts", rows, r->err);
}

static copse_status expect_rows(const struct reader *r, const cJSON *rows, const cJSON *step) {
  if (cJSON_GetArraySize(rows) == r->trace->n_ranks && r->trace->n_ranks > 0) return COPSE_OK;
  if (r->trace->n_ranks == 0) return refuse(r, step, "\"counts\" has no row; give one per rank");
  return copse_fail_at(r->err, COPSE_BAD_INPUT, r->json.file, copse_json_line(step, NULL),
                       "\"counts\" must have %d rows, one per rank", r->trace->n_ranks);
}

/* Reads how many ranks and experts there are from the first step, where the caller doesn't say. */
static copse_status read_sizes(struct reader *r, int n_ranks, int n_experts) {
  COPSE_AT_END(copse_json_free_at) struct copse_json first = {0};
  const cJSON *rows = NULL, *step, *said;
  struct copse_trace *t = r->trace;
  int64_t entries, experts;
  if (r->steps->n == 0)
    return refuse(r, r->json.root, "\"steps\" is empty; a trace has at least one step");
  COPSE_DO(copse_json_item(&r->json, r->steps, 0, &first, r->err));
  step = first.root;
  COPSE_DO(get_rows(r, step, &rows));
  t->n_steps = r->steps->n > INT_MAX ? INT_MAX : (int)r->steps->n;
  t->n_ranks = n_ranks ? n_ranks : cJSON_GetArraySize(rows);
  COPSE_DO(expect_rows(r, rows, step));
  const cJSON *row = copse_json_first(rows);
  t->n_experts = copse_json_is_array(row) ? cJSON_GetArraySize(row) : 0;
  said = copse_json_get(r->json.root, "experts");
  if (said) {
    COPSE_DO(copse_json_get_int(&r->json, r->json.root, "experts", 1, INT32_MAX, &experts, r->err));
    t->n_experts = (int)experts;
  }
  if (n_experts && t->n_experts != n_experts)
    return copse_fail_at(r->err, COPSE_BAD_INPUT, r->json.file, line_of_row(row, step),
                         "the trace has %d experts, not %d", t->n_experts, n_experts);
  if (t->n_experts == 0) return refuse(r, step, "\"counts\" must have rows of numbers");
  if (copse_mul_overflows(t->n_steps, t->n_ranks, &entries) ||
      copse_mul_overflows(entries, t->n_experts, &entries) || entries > COPSE_PLACE_MAX_COUNTS)
    return copse_fail_at(r->err, COPSE_BAD_INPUT, r->json.file, copse_json_line(step, NULL),
                         "%d steps of %d ranks and %d experts are too many; at most %lld counts",
                         t->n_steps, t->n_ranks, t->n_experts, (long long)COPSE_PLACE_MAX_COUNTS);
  return COPSE_OK;
}

static copse_status read_steps(struct reader *r) {
  struct copse_trace *t = r->trace;
  size_t row_at = 0, all = (size_t)t->n_steps * (size_t)t->n_ranks * (size_t)t->n_experts;
  bool any = false;
  COPSE_DO(copse_calloc(all, sizeof *t->counts, &t->counts, r->err));
  for (size_t i = 0; i < r->steps->n; i++) {
    COPSE_AT_END(copse_json_free_at) struct copse_json step;
    const cJSON *rows = NULL;
    COPSE_DO(copse_json_item(&r->json, r->steps, i, &step, r->err));
    COPSE_DO(get_rows(r, step.root, &rows));
    COPSE_DO(expect_rows(r, rows, step.root));
    COPSE_JSON_EACH (row, rows)
      COPSE_DO(read_row(r, row, step.root, &t->counts[row_at++ * (size_t)t->n_experts]));
  }
  for (size_t i = 0; i < all; i++) any = any || t->counts[i] > 0;
  if (!any) return refuse(r, r->json.root, "all counts are zero: no token is to be sent");
  return COPSE_OK;
}

static copse_status read_trace(struct reader *r, int n_ranks, int n_experts) {
  static const struct copse_json_key keys[] = {
      {"format", COPSE_JSON_NEEDED | COPSE_JSON_STRING, "\"copse-trace/1\""},
      {"token_bytes", COPSE_JSON_NEEDED | COPSE_JSON_COUNT, "bytes of a token, such as 8192"},
      {"experts", COPSE_JSON_COUNT, "how many there are, such as 64"},
      {"steps", COPSE_JSON_NEEDED | COPSE_JSON_ARRAY,
       "what each step sends, such as [{\"counts\": [[3, 1], [0, 4]]}]"},
      {"comment", COPSE_JSON_STRING, "a text for readers"},
      {0}};
  COPSE_DO(copse_json_expect_format(&r->json, "copse-trace/1", r->err));
  COPSE_DO(copse_json_expect_object(&r->json, r->json.root, NULL, "a trace", keys, r->err));
  COPSE_DO(copse_json_get_int(&r->json, r->json.root, "token_bytes", 1, MAX_TOKENS,
                              &r->trace->token_bytes, r->err));
  r->steps = copse_json_list(&r->json, "steps");
  COPSE_DO(read_sizes(r, n_ranks, n_experts));
  return read_steps(r);
}

static void release(struct reader *r) { copse_json_free(&r->json); }

copse_status copse_trace_parse(const char *label, const char *data, size_t size, int n_ranks,
                               int n_experts, struct copse_trace *out, struct copse_err *err) {
  COPSE_AT_END(release) struct reader r = {.trace = out, .err = err};
  *out = (struct copse_trace){0};
  static const char *const lists[COPSE_JSON_LISTS] = {"steps", NULL};
  COPSE_DO(copse_json_parse_lists(label, data, size, lists, &r.json, err));
  copse_status status = read_trace(&r, n_ranks, n_experts);
  if (status != COPSE_OK) copse_trace_free(out);
  return status;
}

/* ---- writing ------------------------------------------------------------------------------- */

copse_status copse_trace_to_json(const struct copse_trace *t, char **out, size_t *size,
                                 struct copse_err *err) {
  struct copse_text text = {0};
  const int64_t *next = t->counts;
  *out = NULL;
  copse_text_add(&text,
                 COPSE_JSON_HEAD("trace") ", \"token_bytes\": %lld, \"experts\": %d,\n"
                 " \"steps\": [",
                 (long long)t->token_bytes, t->n_experts);
  for (int s = 0; s < t->n_steps; s++) {
    copse_text_add(&text, "%s\n  {\"counts\": [", s > 0 ? "," : "");
    for (int r = 0; r < t->n_ranks; r++) {
      copse_text_add(&text, "%s\n   [", r > 0 ? "," : "");
      for (int e = 0; e < t->n_experts; e++)
        copse_text_add(&text, "%s%lld", e > 0 ? ", " : "", (long long)*next++);
      copse_text_add(&text, "]");
    }
    copse_text_add(&text, "]}");
  }
  copse_text_add(&text, "]}\n");
  return copse_text_take(&text, out, size, err);
}

/* ---- making up ----------------------------------------------------------------------------- */

struct maker {
  const struct copse_trace_spec *spec;
  uint64_t *below; /* [n_experts + 1] sum of the weights before a place in the order */
  int *popular;    /* [n_experts] experts, most popular first */
  int *chosen;     /* [n_experts] the token that chose it last, counted from 1 */
  int token;
  uint64_t state;
  struct copse_arena scratch;
};

static int random_below(struct maker *m, int n) {
  return (int)(copse_place_random(&m->state) % (uint64_t)n);
}

/* Draws a place in the order of popularity, by weight. */
static int draw_place(struct maker *m) {
  int low = 0, high = m->spec->n_experts - 1;
  uint64_t x = copse_place_random(&m->state) % m->below[m->spec->n_experts];
  while (low < high) {
    int middle = low + (high - low + 1) / 2;
    if (m->below[middle] <= x)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

/* Draws another expert than the token has: by weight, and after many misses the next free one. */
static int draw_expert(struct maker *m, int turn) {
  int n = m->spec->n_experts, place = 0;
  for (int tries = 0; tries < 32; tries++) {
    place = (draw_place(m) + turn) % n;
    if (m->chosen[m->popular[place]] != m->token) return m->popular[place];
  }
  while (m->chosen[m->popular[place]] == m->token) place = (place + 1) % n;
  return m->popular[place];
}

static void make_row(struct maker *m, int rank, int64_t *row) {
  const struct copse_trace_spec *spec = m->spec;
  int own_turn = (int)((int64_t)rank * spec->n_experts / spec->n_ranks);
  for (int t = 0; t < spec->tokens; t++) {
    int turn = random_below(m, 100) < spec->locality ? own_turn : 0;
    if (m->token == INT32_MAX) {
      memset(m->chosen, 0, (size_t)spec->n_experts * sizeof *m->chosen);
      m->token = 0;
    }
    m->token++;
    for (int k = 0; k < spec->top_k; k++) {
      int e = draw_expert(m, turn);
      m->chosen[e] = m->token;
      row[e]++;
    }
  }
}

static void exchange_popular(struct maker *m, int i, int j) {
  int held = m->popular[i];
  m->popular[i] = m->popular[j];
  m->popular[j] = held;
}

static copse_status maker_new(struct maker *m, struct copse_err *err) {
  int n = m->spec->n_experts;
  m->state = m->spec->seed;
  COPSE_DO(COPSE_ARRAY(&m->scratch, (size_t)n + 1, m->below, err));
  COPSE_DO(COPSE_ARRAYS(&m->scratch, (size_t)n, int, err, &m->popular, &m->chosen));
  for (int i = 0; i < n; i++) {
    uint64_t weight = (uint64_t)(4294967296.0 * pow(i + 1, -m->spec->zipf));
    m->below[i + 1] = m->below[i] + (weight > 0 ? weight : 1);
    m->popular[i] = i;
  }
  for (int i = n - 1; i > 0; i--) exchange_popular(m, i, random_below(m, i + 1));
  return COPSE_OK;
}

static copse_status check_spec(const struct copse_trace_spec *s, struct copse_err *err) {
  int64_t entries;
  if (s->n_ranks <= 0 || s->n_experts <= 0 || s->n_steps <= 0 || s->tokens <= 0)
    return copse_fail(err, COPSE_INVALID, "ranks, experts, steps and tokens must be positive");
  if (s->top_k < 1 || s->top_k > s->n_experts)
    return copse_fail(err, COPSE_INVALID, "a token goes to 1 up to %d experts, not %d",
                      s->n_experts, s->top_k);
  if (!(s->zipf >= 0 && s->zipf <= 8) || s->locality < 0 || s->locality > 100 || s->drift < 0 ||
      s->drift > 100)
    return copse_fail(err, COPSE_INVALID,
                      "the Zipf exponent must be 0 to 8, locality and drift 0 to 100 percent");
  if (s->token_bytes < 1 || s->token_bytes > MAX_TOKENS)
    return copse_fail(err, COPSE_INVALID, "the bytes of a token must be 1 to 2^40");
  if (copse_mul_overflows(s->n_ranks, s->n_experts, &entries) ||
      copse_mul_overflows(entries, s->n_steps, &entries) || entries > COPSE_PLACE_MAX_COUNTS)
    return copse_fail(err, COPSE_INVALID,
                      "%d steps of %d ranks and %d experts are too many; at most %lld counts",
                      s->n_steps, s->n_ranks, s->n_experts, (long long)COPSE_PLACE_MAX_COUNTS);
  return COPSE_OK;
}

copse_status copse_trace_generate(const struct copse_trace_spec *spec, struct copse_trace *out,
                                  struct copse_err *err) {
  struct maker m = {.spec = spec};
  size_t n_e, row_at = 0;
  copse_status status;
  *out = (struct copse_trace){0};
  COPSE_TRY(check_spec(spec, err));
  n_e = (size_t)spec->n_experts;
  *out = (struct copse_trace){.n_steps = spec->n_steps,
                              .n_ranks = spec->n_ranks,
                              .n_experts = spec->n_experts,
                              .token_bytes = spec->token_bytes};
  COPSE_TRY(copse_calloc((size_t)spec->n_steps * (size_t)spec->n_ranks * n_e, sizeof *out->counts,
                         &out->counts, err));
  COPSE_TRY(maker_new(&m, err));
  for (int s = 0; s < spec->n_steps; s++) {
    for (int r = 0; r < spec->n_ranks; r++) make_row(&m, r, &out->counts[row_at++ * n_e]);
    int changes = (int)((int64_t)spec->drift * spec->n_experts / 100);
    for (int i = 0; i < changes; i++)
      exchange_popular(&m, random_below(&m, spec->n_experts), random_below(&m, spec->n_experts));
  }
out:
  copse_arena_free(&m.scratch);
  if (status != COPSE_OK) copse_trace_free(out);
  return status;
}

static copse_status count_tokens(const struct copse_trace *t, int64_t *sum, struct copse_err *err) {
  size_t n = (size_t)t->n_steps * (size_t)t->n_ranks * (size_t)t->n_experts;
  *sum = 0;
  for (size_t i = 0; i < n; i++)
    if (copse_add_overflows(*sum, t->counts[i], sum))
      return copse_fail(err, COPSE_OVERFLOW, "the trace's tokens add up to over 63 bits");
  return COPSE_OK;
}

copse_status copse_place_experts(const struct copse_topology *topology,
                                 const struct copse_trace *trace,
                                 const struct copse_place_options *options,
                                 struct copse_place_report *out, struct copse_err *err) {
  COPSE_AT_END(copse_place_cuts_free) struct copse_place_cuts cuts = {0};
  double unit_us = 0;
  int least = (int)(((int64_t)trace->n_experts + trace->n_ranks - 1) / trace->n_ranks);
  *out = (struct copse_place_report){.n_ranks = trace->n_ranks,
                                     .n_experts = trace->n_experts,
                                     .n_steps = trace->n_steps,
                                     .capacity = options->capacity ? options->capacity : least};
  if (trace->n_ranks != topology->n_ranks)
    return copse_fail(err, COPSE_INVALID, "the trace has %d ranks, the topology %d", trace->n_ranks,
                      topology->n_ranks);
  if (out->capacity < least)
    return copse_fail(err, COPSE_INVALID,
                      "%d experts on %d ranks need a capacity of at least %d, not %d",
                      trace->n_experts, trace->n_ranks, least, out->capacity);
  COPSE_DO(count_tokens(trace, &out->tokens, err));
  COPSE_DO(copse_place_cuts_find(topology, out->tokens, &cuts, &unit_us, err));
  out->n_cuts = cuts.n_cuts;
  struct copse_place_problem problem = {.n_ranks = trace->n_ranks,
                                        .n_experts = trace->n_experts,
                                        .n_steps = trace->n_steps,
                                        .capacity = out->capacity,
                                        .counts = trace->counts,
                                        .n_groups = cuts.n_cuts,
                                        .groups = cuts.groups,
                                        .progress = options->progress};
  COPSE_DO(copse_place_solve(&problem, &out->placement, err));
  unit_us *= (double)trace->token_bytes;
  out->default_us = unit_us * (double)out->placement.default_time;
  out->time_us = unit_us * (double)out->placement.time;
  out->bound_us = unit_us * (double)out->placement.bound;
  return COPSE_OK;
}

const char *copse_place_proof_name(enum copse_place_proof proof) {
  static const char *const names[] = {[COPSE_PLACE_GAP] = "none",
                                      [COPSE_PLACE_CERTIFIED] = "certificate",
                                      [COPSE_PLACE_ILP] = "branch and cut"};
  return names[proof];
}

static void add_number(struct copse_text *text, const char *key, double v) {
  copse_text_add(text, " \"%s\": ", key);
  copse_text_add_json_number(text, v);
  copse_text_add(text, ",\n");
}

copse_status copse_place_report_to_json(const struct copse_place_report *r,
                                        const struct copse_topology *topology, char **out,
                                        size_t *size, struct copse_err *err) {
  COPSE_AT_END(copse_text_free) struct copse_text text = {0};
  char sha[COPSE_SHA256_HEX];
  *out = NULL;
  COPSE_DO(copse_topology_sha256(topology, sha, err));
  copse_text_add(&text, COPSE_JSON_HEAD("placement") ",\n \"topology\": {\"name\": ");
  copse_text_add_json_string(&text, topology->name);
  copse_text_add(&text, ", \"sha256\": \"%s\"},\n \"experts\": %d, \"capacity\": %d,\n", sha,
                 r->n_experts, r->capacity);
  add_number(&text, "time_us", r->time_us);
  add_number(&text, "default_time_us", r->default_us);
  add_number(&text, "bound_us", r->bound_us);
  copse_text_add(&text, " \"proof\": \"%s\",\n \"rank_of\": [",
                 copse_place_proof_name(r->placement.proof));
  for (int e = 0; e < r->n_experts; e++)
    copse_text_add(&text, "%s%d", e > 0 ? ", " : "", r->placement.rank_of[e]);
  copse_text_add(&text, "],\n \"experts_of\": {");
  for (int rank = 0; rank < r->n_ranks; rank++) {
    bool comma = false;
    copse_text_add(&text, "%s\n  ", rank > 0 ? "," : "");
    copse_text_add_json_string(&text, topology->nodes[topology->rank_nodes[rank]].id);
    copse_text_add(&text, ": [");
    for (int e = 0; e < r->n_experts; e++)
      if (r->placement.rank_of[e] == rank) {
        copse_text_add(&text, "%s%d", comma ? ", " : "", e);
        comma = true;
      }
    copse_text_add(&text, "]");
  }
  copse_text_add(&text, "}}\n");
  return copse_text_take(&text, out, size, err);
}

/* ---- cuts ----------------------------------------------------------------------------------- */

/*
 * The cuts of a topology that bound an all-to-all: around each rank, each host, and what wide links
 * hold together (links put in widest first, class by class), with the max-flow bandwidth over each.
 */

/* Where costs have no common denominator they get about so many bits. */
#define ROUNDED_COST ((int64_t)1 << 30)
#define MAX_TIME ((int64_t)1 << 58)

/* What sets are found with. */
struct sets {
  const struct copse_topology *t;
  struct copse_place_cuts *cuts; /* sets found so far: `groups` grows, members are in its arena */
  size_t capacity;
  int *depth;  /* [n_ranks] sets that a rank is in */
  int *parent; /* [n_nodes] disjoint sets */
  int *stamps; /* [n_nodes] */
  int stamp;
  struct copse_arena *scratch;
  struct copse_err *err;
};

/* ---- which sets ---------------------------------------------------------------------------- */

static bool is_known(const struct copse_place_cuts *cuts, const int *members, int n) {
  for (int i = 0; i < cuts->n_cuts; i++)
    if (cuts->groups[i].n_members == n &&
        memcmp(cuts->groups[i].members, members, (size_t)n * sizeof *members) == 0)
      return true;
  return false;
}

/* Adds the ranks r with label[r] == which. Sets of all ranks bound nothing; so would empty
 * ones. A rank that is in enough sets already takes no more. */
static copse_status add_set(struct sets *s, const int *label, int which) {
  struct copse_place_cuts *cuts = s->cuts;
  int *members, n = 0;
  for (int r = 0; r < s->t->n_ranks; r++) {
    if (label[r] == which && s->depth[r] >= COPSE_PLACE_MAX_DEPTH) return COPSE_OK;
    n += label[r] == which;
  }
  if (n == 0 || n == s->t->n_ranks) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(&cuts->arena, (size_t)n, members, s->err));
  for (int r = 0, at = 0; r < s->t->n_ranks; r++)
    if (label[r] == which) members[at++] = r;
  if (is_known(cuts, members, n)) return COPSE_OK;
  COPSE_DO(
      COPSE_GROW_IN(&cuts->arena, cuts->groups, s->capacity, (size_t)cuts->n_cuts + 1, s->err));
  cuts->groups[cuts->n_cuts++] = (struct copse_place_group){.members = members, .n_members = n};
  for (int i = 0; i < n; i++) s->depth[members[i]]++;
  return COPSE_OK;
}

/* Adds one set for each label that at least one rank carries first. */
static copse_status add_labels(struct sets *s, const int *label) {
  char *seen = NULL;
  COPSE_DO(COPSE_ARRAY(s->scratch, (size_t)s->t->n_nodes, seen, s->err));
  for (int r = 0; r < s->t->n_ranks; r++) {
    if (label[r] < 0 || seen[label[r]]) continue;
    seen[label[r]] = 1;
    COPSE_DO(add_set(s, label, label[r]));
  }
  return COPSE_OK;
}

/* Adds hosts. A rank outside of hosts is a set of its own, which there is already. */
static copse_status add_hosts(struct sets *s) {
  int *of_node = NULL, *label = NULL;
  bool all;
  COPSE_DO(COPSE_ARRAY(s->scratch, (size_t)s->t->n_nodes, of_node, s->err));
  COPSE_DO(COPSE_ARRAY(s->scratch, (size_t)s->t->n_ranks, label, s->err));
  COPSE_DO(copse_hosts_label(s->t, of_node, &all, s->err));
  for (int r = 0; r < s->t->n_ranks; r++) label[r] = of_node[s->t->rank_nodes[r]];
  return add_labels(s, label);
}

/* Widest first. */
COPSE_ORDER(by_bandwidth, struct copse_link,
            copse_q_cmp(b->bandwidth, a->bandwidth) ?: COPSE_UP(src) ?: COPSE_UP(dst))

/* Labels ranks by the set that joins them so far; returns the number of sets. */
static int label_islands(struct sets *s, int *label) {
  int n = 0;
  for (int r = 0; r < s->t->n_ranks; r++) {
    label[r] = copse_sets_find(s->parent, s->t->rank_nodes[r]);
    if (s->stamps[label[r]] != s->stamp) n++;
    s->stamps[label[r]] = s->stamp;
  }
  s->stamp++;
  return n;
}

/* Adds what wide links hold together: links are put in widest first, class by class. */
static copse_status add_islands(struct sets *s) {
  const struct copse_topology *t = s->t;
  struct copse_link *links = NULL;
  int *label = NULL, islands = t->n_ranks;
  COPSE_DO(COPSE_ARRAY(s->scratch, (size_t)t->n_links, links, s->err));
  COPSE_DO(COPSE_ARRAY(s->scratch, (size_t)t->n_ranks, label, s->err));
  if (t->n_links > 0) memcpy(links, t->links, (size_t)t->n_links * sizeof *links);
  COPSE_SORT(links, t->n_links, by_bandwidth);
  copse_sets_init(s->parent, t->n_nodes);
  for (int i = 0; i < t->n_links;) {
    struct copse_q bandwidth = links[i].bandwidth;
    for (; i < t->n_links && copse_q_eq(links[i].bandwidth, bandwidth); i++)
      (void)copse_sets_unite(s->parent, links[i].src, links[i].dst);
    int now = label_islands(s, label);
    if (now < islands) COPSE_DO(add_labels(s, label));
    islands = now;
  }
  return COPSE_OK;
}

static copse_status find_sets(struct sets *s) {
  int *label = NULL;
  COPSE_DO(COPSE_ARRAYS(s->scratch, (size_t)s->t->n_ranks, int, s->err, &s->depth, &label));
  COPSE_DO(COPSE_ARRAYS(s->scratch, (size_t)s->t->n_nodes, int, s->err, &s->parent, &s->stamps));
  s->stamp = 1;
  for (int r = 0; r < s->t->n_ranks; r++) label[r] = r;
  COPSE_DO(add_labels(s, label));
  COPSE_DO(add_hosts(s));
  return add_islands(s);
}

/* ---- how much goes over them ----------------------------------------------------------------- */

struct meter {
  const struct copse_topology *t;
  struct copse_err *err;
  struct copse_instance instance;
  struct copse_flow *flow;
  int64_t all; /* the sum of all capacities: more than any flow */
};

/* Joins the set's ranks to `source` and the others to `sink`, or (amount < 0) undoes it. */
static copse_status join(struct meter *m, const struct copse_place_group *set, bool leaving,
                         int64_t amount) {
  const struct copse_topology *t = m->t;
  int next = 0;
  int ends[2] = {t->n_nodes, t->n_nodes + 1};
  for (int r = 0; r < t->n_ranks; r++) {
    bool inside = next < set->n_members && set->members[next] == r;
    next += inside;
    if (inside == leaving)
      COPSE_DO(copse_flow_change(m->flow, ends[0], t->rank_nodes[r], amount, m->err));
    else
      COPSE_DO(copse_flow_change(m->flow, t->rank_nodes[r], ends[1], amount, m->err));
  }
  return COPSE_OK;
}

static copse_status measure(struct meter *m, const struct copse_place_group *set, bool leaving,
                            struct copse_q *bandwidth) {
  const struct copse_topology *t = m->t;
  int64_t value;
  COPSE_DO(join(m, set, leaving, m->all));
  value = copse_flow_max(m->flow, t->n_nodes, t->n_nodes + 1, m->all);
  COPSE_DO(join(m, set, leaving, -m->all));
  if (value == 0)
    return copse_fail(m->err, COPSE_INFEASIBLE,
                      leaving ? "rank '%s' can't reach the ranks outside of its group"
                              : "rank '%s' can't be reached from outside of its group",
                      t->nodes[t->rank_nodes[set->members[0]]].id);
  return copse_q_make(value, m->instance.scale, bandwidth, m->err);
}

static copse_status meter_new(struct meter *m) {
  const struct copse_topology *t = m->t;
  struct copse_err *err = m->err;
  COPSE_DO(copse_instance_scale(t, &m->instance, err));
  COPSE_DO(copse_flow_new(t->n_nodes + 2, &m->flow, err));
  for (int i = 0; i < t->n_links; i++) {
    const struct copse_net_link *l = &m->instance.links[i];
    if (copse_add_overflows(m->all, l->capacity, &m->all) ||
        m->all >= COPSE_FLOW_MAX / (t->n_ranks + 2))
      return copse_fail(err, COPSE_OVERFLOW,
                        "the bandwidths are too fine to add up in 64 bits; use fewer digits");
    COPSE_DO(copse_flow_change(m->flow, l->src, l->dst, l->capacity, err));
  }
  return COPSE_OK;
}

static void meter_free(struct meter *m) {
  copse_flow_free(m->flow);
  copse_instance_free(&m->instance);
}

static copse_status measure_all(const struct copse_topology *t, struct copse_place_cuts *out,
                                struct copse_err *err) {
  COPSE_AT_END(meter_free) struct meter m = {.t = t, .err = err};
  COPSE_DO(
      COPSE_ARRAYS(&out->arena, (size_t)out->n_cuts, struct copse_q, err, &out->out, &out->in));
  COPSE_DO(meter_new(&m));
  for (int i = 0; i < out->n_cuts; i++) {
    COPSE_DO(measure(&m, &out->groups[i], true, &out->out[i]));
    COPSE_DO(measure(&m, &out->groups[i], false, &out->in[i]));
  }
  return COPSE_OK;
}

/* ---- costs ----------------------------------------------------------------------------------- */

/* Computes unit / bandwidth as whole numbers; false where they are too large. */
static bool exact_costs(struct copse_place_cuts *c, int64_t tokens, double *unit_us) {
  int64_t unit = 1, most = 1, time;
  for (int i = 0; i < c->n_cuts; i++)
    if (copse_lcm(unit, c->out[i].num, &unit, NULL) != COPSE_OK ||
        copse_lcm(unit, c->in[i].num, &unit, NULL) != COPSE_OK)
      return false;
  for (int i = 0; i < c->n_cuts; i++) {
    struct copse_place_group *g = &c->groups[i];
    if (copse_mul_overflows(unit / c->out[i].num, c->out[i].den, &g->out_cost) ||
        copse_mul_overflows(unit / c->in[i].num, c->in[i].den, &g->in_cost))
      return false;
    if (g->out_cost > most) most = g->out_cost;
    if (g->in_cost > most) most = g->in_cost;
  }
  *unit_us = 1e-3 / (double)unit; /* a byte over 1 GB/s takes a nanosecond */
  return !copse_mul_overflows(most, tokens, &time) && time <= MAX_TIME;
}

/* Returns floor(most * least / bandwidth): the narrowest cut costs `most`. */
static int64_t rounded_cost(struct copse_q least, struct copse_q bandwidth, int64_t most) {
  __int128 a = (__int128)least.num * bandwidth.den, b = (__int128)bandwidth.num * least.den;
  while (a > INT64_MAX || b > INT64_MAX) {
    a /= 2;
    b = b / 2 + 1; /* down in all: the cost must not come out above the true one */
  }
  return (int64_t)(a * most / b);
}

static copse_status rounded_costs(struct copse_place_cuts *c, int64_t tokens, double *unit_us,
                                  struct copse_err *err) {
  struct copse_q least = c->out[0];
  int64_t most = MAX_TIME / tokens < ROUNDED_COST ? MAX_TIME / tokens : ROUNDED_COST;
  if (most < 1000)
    return copse_fail(err, COPSE_OVERFLOW, "the trace has too many tokens to count times exactly");
  for (int i = 0; i < c->n_cuts; i++) {
    if (copse_q_cmp(c->out[i], least) < 0) least = c->out[i];
    if (copse_q_cmp(c->in[i], least) < 0) least = c->in[i];
  }
  for (int i = 0; i < c->n_cuts; i++) {
    c->groups[i].out_cost = rounded_cost(least, c->out[i], most);
    c->groups[i].in_cost = rounded_cost(least, c->in[i], most);
  }
  *unit_us = 1e-3 / (copse_q_to_double(least) * (double)most);
  return COPSE_OK;
}

/* ---- all together ---------------------------------------------------------------------------- */

copse_status copse_place_cuts_find(const struct copse_topology *topology, int64_t tokens,
                                   struct copse_place_cuts *out, double *unit_us,
                                   struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct sets s = {.t = topology, .cuts = out, .scratch = &scratch, .err = err};
  *out = (struct copse_place_cuts){0};
  *unit_us = 1;
  COPSE_DO(find_sets(&s));
  COPSE_DO(measure_all(topology, out, err));
  if (tokens < 1) tokens = 1;
  if (out->n_cuts == 0 || exact_costs(out, tokens, unit_us)) return COPSE_OK;
  return rounded_costs(out, tokens, unit_us, err);
}

void copse_place_cuts_free(struct copse_place_cuts *cuts) { copse_arena_free(&cuts->arena); }
