/*
 * Calls that NCCL's Inspector (NVIDIA/nccl plugins/profiler/inspector) and PyTorch's flight
 * recorder (pytorch/pytorch torch/csrc/distributed/c10d/FlightRecorder) wrote. A record of one rank
 * names communicator, number and size of a call; the slowest rank's time is the call's.
 */
#include "nccl/calls.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/graph.h"
#include "base/json.h"
#include "base/text.h"
#include "base/types.h"

#define MAX_RANKS (1 << 22)

struct copse_calls_reader {
  struct copse_index_map by_call;
  struct copse_names names;
};

void copse_calls_free(struct copse_calls *calls) {
  struct copse_calls_reader *r = calls->reader;
  if (r) {
    copse_index_map_free(&r->by_call);
    copse_names_free(&r->names);
    free(r);
  }
  free(calls->calls);
  free(calls->flights);
  copse_arena_free(&calls->arena);
  *calls = (struct copse_calls){0};
}

/* Keeps each text once: equal ones have one address. */
static copse_status intern(struct copse_calls *calls, const char *text, const char **out,
                           struct copse_err *err) {
  return copse_names_keep(&calls->reader->names, &calls->arena, text, out, err);
}

static bool same_call(const struct copse_recorded_call *a, const struct copse_recorded_call *b) {
  return a->comm == b->comm && a->number == b->number && a->collective == b->collective &&
         a->choice == b->choice && a->bytes == b->bytes && a->n_ranks == b->n_ranks;
}

/* Adds a rank's record to the call that it is of, or as a new one. Texts are interned. */
static copse_status join_call(struct copse_calls *calls, const struct copse_recorded_call *call,
                              struct copse_err *err) {
  uint64_t key = copse_key_text(call->comm) ^ copse_scatter((uint64_t)call->number) ^
                 copse_scatter((uint64_t)call->bytes << 1);
  size_t cursor = 0;
  for (int i; (i = copse_index_map_next(&calls->reader->by_call, key, &cursor)) >= 0;) {
    struct copse_recorded_call *known = &calls->calls[i];
    if (!same_call(known, call)) continue;
    int seen = known->n_seen + 1;
    if (copse_q_cmp(call->time_us, known->time_us) > 0) *known = *call;
    known->n_seen = seen;
    return COPSE_OK;
  }
  COPSE_DO(copse_index_map_add(&calls->reader->by_call, key, calls->n_calls, err));
  return COPSE_PUSH(calls->calls, calls->n_calls, calls->call_capacity, err, *call);
}

/* ---- Inspector: an object a line ------------------------------------------------------------- */

static bool amount(const struct copse_json *json, const cJSON *object, const char *key,
                   struct copse_q *out) {
  *out = (struct copse_q){-1, 1};
  return copse_json_get_amount_or(json, object, key, false, out, NULL) == COPSE_OK && out->num >= 0;
}

static copse_status read_record(struct copse_calls *calls, const struct copse_json *json,
                                bool *good, struct copse_err *err) {
  struct copse_recorded_call call = {.n_seen = 1};
  const cJSON *header = copse_json_get(json->root, "header");
  const cJSON *perf = copse_json_get(json->root, "coll_perf");
  *good = copse_json_get(json->root, "p2p_perf") != NULL; /* one pair's: nothing to join */
  if (!header || !perf) return COPSE_OK;
  const char *comm = copse_json_text_or(header, "id", NULL);
  const char *collective = copse_json_text_or(perf, "coll", NULL);
  call.n_ranks = (int)copse_smaller(copse_json_int_or(json, header, "n_ranks", -1), MAX_RANKS);
  call.number = copse_json_int_or(json, perf, "coll_sn", -1);
  call.bytes = copse_json_int_or(json, perf, "coll_msg_size_bytes", -1);
  *good = comm && collective && amount(json, perf, "coll_exec_time_us", &call.time_us) &&
          amount(json, perf, "coll_busbw_gbs", &call.busbw) && call.n_ranks > 0 &&
          call.number >= 0 && call.bytes >= 0;
  if (!*good) return COPSE_OK;
  COPSE_DO(intern(calls, comm, &call.comm, err));
  COPSE_DO(intern(calls, collective, &call.collective, err));
  COPSE_DO(intern(calls, "", &call.choice, err));
  return join_call(calls, &call, err);
}

/* Reads one record. A line that is no JSON counts as damaged. */
static copse_status read_json_line(struct copse_calls *calls, struct copse_scan line,
                                   struct copse_err *err) {
  COPSE_AT_END(copse_json_free) struct copse_json json = {0};
  struct copse_err ignored = COPSE_ERR_INIT;
  bool good = false;
  copse_status status =
      copse_json_parse("", line.at, (size_t)(line.end - line.at), &json, &ignored);
  if (status == COPSE_NOMEM) return copse_fail_nomem(err);
  if (status == COPSE_OK && copse_json_is_object(json.root))
    COPSE_DO(read_record(calls, &json, &good, err));
  calls->n_damaged += !good;
  return COPSE_OK;
}

/* ---- Inspector: Prometheus ------------------------------------------------------------------- */

#define BUSBW "nccl_bus_bandwidth_gbs{"
#define TIME "nccl_collective_exec_time_microseconds{"

/* Reads the value of a label of a sample, such as collective="AllReduce". */
static bool label(struct copse_scan labels, const char *key, struct copse_scan *value) {
  size_t n = strlen(key);
  while (copse_scan_to(&labels, key)) {
    bool whole = labels.at[-1 - (ptrdiff_t)n] == ',' || labels.at[-1 - (ptrdiff_t)n] == '{';
    *value = labels;
    if (!whole || !copse_scan_literal(value, "=\"")) continue;
    struct copse_scan end = *value;
    if (!copse_scan_to(&end, "\"")) return false;
    value->end = end.at - 1;
    return true;
  }
  return false;
}

/* Reads "4-5MB" as the least of it; "0B". */
static bool read_size(struct copse_scan s, int64_t *bytes) {
  static const char *const units[] = {"B", "KB", "MB", "GB", "TB"};
  int64_t upper;
  if (!copse_scan_int(&s, false, bytes) || *bytes > 1024) return false;
  if (copse_scan_literal(&s, "-") && !copse_scan_int(&s, false, &upper)) return false;
  for (size_t i = 0; i < sizeof units / sizeof *units; i++)
    if (copse_scan_is(&s, units[i])) {
      *bytes <<= 10 * i;
      return true;
    }
  return false;
}

/* Reads a sample's labels: of which calls it is the mean. */
static copse_status read_labels(struct copse_calls *calls, struct copse_scan labels,
                                struct copse_recorded_call *call, bool *good,
                                struct copse_err *err) {
  struct copse_scan comm, collective, size, ranks, choice;
  *call =
      (struct copse_recorded_call){.number = -1, .n_seen = 1, .busbw = {-1, 1}, .time_us = {0, 1}};
  *good = label(labels, "comm_name", &comm) && label(labels, "collective", &collective) &&
          label(labels, "message_size", &size) && read_size(size, &call->bytes) &&
          label(labels, "nranks", &ranks) && copse_scan_index(&ranks, &call->n_ranks) &&
          call->n_ranks > 0 && call->n_ranks <= MAX_RANKS && label(labels, "algo_proto", &choice);
  if (!*good) return COPSE_OK;
  const struct {
    struct copse_scan *piece;
    const char **text;
  } texts[] = {{&comm, &call->comm}, {&collective, &call->collective}, {&choice, &call->choice}};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    const char *text;
    COPSE_DO(copse_scan_text(&calls->arena, texts[i].piece, &text, err));
    COPSE_DO(intern(calls, text, texts[i].text, err));
  }
  return COPSE_OK;
}

/* Reads a sample. Bandwidth and mean time of the same labels stand in lines of their own, in this
 * order. */
static copse_status read_sample(struct copse_calls *calls, struct copse_scan line,
                                struct copse_recorded_call *last, struct copse_err *err) {
  struct copse_scan labels = line, value = line;
  struct copse_recorded_call call;
  struct copse_q number;
  bool is_time = copse_scan_begins(&line, TIME), good;
  if (!is_time && !copse_scan_begins(&line, BUSBW)) return COPSE_OK; /* sends, percentiles */
  copse_scan_to(&labels, "{");
  labels.at--;
  good = copse_scan_to(&value, "} ") && copse_scan_number(&value, &number) && number.num >= 0;
  if (good) COPSE_DO(read_labels(calls, labels, &call, &good, err));
  calls->n_damaged += !good;
  if (!good) return COPSE_OK;
  if (!is_time) {
    *last = call;
    last->busbw = number;
    return COPSE_OK;
  }
  bool goes_on = last->comm && same_call(last, &call);
  call.busbw = goes_on ? last->busbw : (struct copse_q){-1, 1};
  call.time_us = number;
  last->comm = NULL;
  return join_call(calls, &call, err);
}

/* ---- PyTorch's flight recorder --------------------------------------------------------------- */

static bool is_type(const char *name, const char *const *names) {
  for (; *names; names++)
    if (strncmp(name, *names, strlen(*names)) == 0) return true;
  return false;
}

/* Returns the bytes of an element by the name of its type; 0: not known. */
static int64_t width_of(const char *type) {
  static const char *const one[] = {"Byte", "Char", "Bool", "Float8", NULL};
  static const char *const two[] = {"Half", "BFloat16", "Short", "UInt16", NULL};
  static const char *const eight[] = {"Double", "Long", "UInt64", "ComplexFloat", NULL};
  static const char *const four[] = {"Float", "Int", "UInt32", NULL};
  return is_type(type, one)     ? 1
         : is_type(type, two)   ? 2
         : is_type(type, eight) ? 8
         : is_type(type, four)  ? 4
                                : 0;
}

/* Counts the bytes of the tensors [[2, 3], ..] of the first one's type; 0: not known. */
static int64_t tensors_bytes(const struct copse_json *json, const cJSON *entry, const char *sizes,
                             const char *types) {
  const cJSON *type = copse_json_get(entry, types), *all = copse_json_get(entry, sizes);
  const cJSON *first = type && copse_json_is_array(type) ? copse_json_first(type) : NULL;
  int64_t total = 0,
          width = first && copse_json_is_string(first) ? width_of(first->valuestring) : 0;
  if (!all || !copse_json_is_array(all)) return 0;
  COPSE_JSON_EACH (tensor, all) {
    int64_t bytes = width, n;
    if (!copse_json_is_array(tensor)) return 0;
    COPSE_JSON_EACH (dimension, tensor)
      if (copse_json_int(json, dimension, tensor, "", 0, INT64_MAX, &n, NULL) != COPSE_OK ||
          __builtin_mul_overflow(bytes, n, &bytes))
        return 0;
    if (__builtin_add_overflow(total, bytes, &total)) return 0;
  }
  return total;
}

/* Returns the size as nccl-tests counts it: of the whole buffer, which of an allgather is the
 * output. */
static int64_t entry_bytes(const struct copse_json *json, const cJSON *entry, const char *name) {
  int64_t in = tensors_bytes(json, entry, "input_sizes", "input_dtypes");
  int64_t out = tensors_bytes(json, entry, "output_sizes", "output_dtypes");
  return strcmp(name, "all_gather") == 0 ? out : in;
}

/* Names the collective: "nccl:_all_gather_base" is an all_gather; sends and others have names of
 * their own. */
static const char *collective_of(const char *name) {
  static const char *const known[] = {"all_gather", "reduce_scatter", "all_reduce", "all_to_all",
                                      "broadcast",  "reduce",         "gather",     "scatter"};
  const char *colon = strrchr(name, ':');
  const char *rest = colon ? colon + 1 : name;
  while (*rest == '_') rest++;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strncmp(rest, known[i], strlen(known[i])) == 0) return known[i];
  return rest;
}

/* Counts the ranks of a group, which the file has as a text: "[0, 1, 2, 3]". */
static int group_ranks(const cJSON *root, const char *group) {
  const cJSON *config = copse_json_get(root, "pg_config");
  const cJSON *of = config && copse_json_is_object(config) ? copse_json_get(config, group) : NULL;
  const char *ranks = of && copse_json_is_object(of) ? copse_json_text_or(of, "ranks", "") : "";
  int n = *ranks ? 1 : 0;
  for (; *ranks && n < MAX_RANKS; ranks++) n += *ranks == ',';
  return n;
}

static struct copse_flight *find_flight(struct copse_calls *calls, const char *file,
                                        const char *group) {
  for (int i = calls->n_flights - 1; i >= 0 && calls->flights[i].file == file; i--)
    if (calls->flights[i].group == group) return &calls->flights[i];
  return NULL;
}

#define MAX_GROUPS 4096 /* of a file: they are looked through for each entry */

static copse_status need_flight(struct copse_calls *calls, const cJSON *root, const char *file,
                                const char *group, int *n_groups, struct copse_flight **out,
                                struct copse_err *err) {
  size_t n = (size_t)calls->n_flights;
  *out = find_flight(calls, file, group);
  if (*out || *n_groups == MAX_GROUPS) return COPSE_OK;
  COPSE_DO(COPSE_GROW(calls->flights, calls->flight_capacity, n + 1, err));
  *out = &calls->flights[calls->n_flights++];
  **out = (struct copse_flight){file, group, group_ranks(root, group), -1, -1, "", "", 0};
  ++*n_groups;
  return COPSE_OK;
}

/* Computes bus bandwidth as nccl-tests count it; negative where it can't be. */
static struct copse_q busbw_of(const struct copse_recorded_call *call) {
  struct copse_q GBps = {-1, 1};
  copse_collective collective;
  if (!copse_collective_from_name(call->collective, &collective) || call->bytes == 0 ||
      call->time_us.num == 0 || call->n_ranks < 1)
    return GBps;
  double seconds = copse_q_to_double(call->time_us) / 1e6;
  double value =
      (double)call->bytes / 1e9 / seconds * copse_collective_bus_factor(collective, call->n_ranks);
  return copse_q_from_double(value, &GBps, NULL) == COPSE_OK ? GBps : (struct copse_q){-1, 1};
}

/* Takes an entry: one with a duration is a call; one that is not completed says where the process
 * is. */
static copse_status take_entry(struct copse_calls *calls, const struct copse_json *json,
                               const cJSON *entry, struct copse_flight *flight,
                               struct copse_err *err) {
  struct copse_recorded_call call = {
      .comm = flight->group, .n_ranks = flight->n_ranks, .n_seen = 1};
  const char *state = copse_json_text_or(entry, "state", "");
  const char *name = collective_of(copse_json_text_or(entry, "profiling_name", ""));
  struct copse_q ms = {-1, 1};
  call.number = copse_json_int_or(json, entry, "collective_seq_id", -1);
  call.bytes = entry_bytes(json, entry, name);
  if (call.number > flight->enqueued) flight->enqueued = call.number;
  bool done = strcmp(state, "completed") == 0;
  if (done && call.number > flight->done) flight->done = call.number;
  if (!done && !flight->waits[0]) {
    COPSE_DO(intern(calls, name, &flight->waits, err));
    COPSE_DO(intern(calls, state, &flight->state, err));
    flight->waits_bytes = call.bytes;
  }
  if (!done || !amount(json, entry, "duration_ms", &ms) || ms.num == 0) return COPSE_OK;
  if (copse_q_mul(ms, (struct copse_q){1000, 1}, &call.time_us, NULL) != COPSE_OK) return COPSE_OK;
  COPSE_DO(intern(calls, name, &call.collective, err));
  COPSE_DO(intern(calls, "", &call.choice, err));
  call.busbw = busbw_of(&call);
  return join_call(calls, &call, err);
}

static copse_status read_entry(struct copse_calls *calls, const struct copse_json *json,
                               const cJSON *entry, const char *file, int *n_groups,
                               struct copse_err *err) {
  struct copse_flight *flight;
  const char *group = "?";
  const cJSON *names = copse_json_is_object(entry) ? copse_json_get(entry, "process_group") : NULL;
  const cJSON *first = names && copse_json_is_array(names) ? copse_json_first(names) : NULL;
  if (!first || !copse_json_is_string(first) ||
      copse_json_int_or(json, entry, "collective_seq_id", -1) < 0) {
    calls->n_damaged++;
    return COPSE_OK;
  }
  const cJSON *p2p = copse_json_get(entry, "is_p2p");
  if (p2p && cJSON_IsTrue(p2p)) return COPSE_OK;
  COPSE_DO(intern(calls, first->valuestring, &group, err));
  COPSE_DO(need_flight(calls, json->root, file, group, n_groups, &flight, err));
  if (!flight) return COPSE_OK;
  return take_entry(calls, json, entry, flight, err);
}

static copse_status read_flight(struct copse_calls *calls, const char *name, const char *data,
                                size_t size, struct copse_err *err) {
  COPSE_AT_END(copse_json_free) struct copse_json json = {0};
  const char *file;
  int n_groups = 0;
  COPSE_DO(copse_json_parse(name, data, size, &json, err));
  COPSE_DO(copse_arena_text(&calls->arena, name, &file, err));
  const cJSON *entries =
      copse_json_is_object(json.root) ? copse_json_get(json.root, "entries") : NULL;
  if (entries && copse_json_is_array(entries))
    COPSE_JSON_EACH (entry, entries)
      COPSE_DO(read_entry(calls, &json, entry, file, &n_groups, err));
  return COPSE_OK;
}

/* ---- all ------------------------------------------------------------------------------------- */

static bool has(const char *data, size_t size, const char *text) {
  return memmem(data, size, text, strlen(text)) != NULL;
}

static bool is_pickle(const char *data, size_t size) {
  return size > 2 && (unsigned char)data[0] == 0x80 && data[1] >= 2 && data[1] <= 5;
}

static bool is_flight(const char *data, size_t size) {
  return (is_pickle(data, size) || memchr(data, '{', size)) && has(data, size, "pg_config") &&
         (has(data, size, "comm_lib_version") || has(data, size, "pg_status") ||
          has(data, size, "entries"));
}

bool copse_calls_are(const char *data, size_t size) {
  return has(data, size, "\"coll_perf\"") || has(data, size, "\"p2p_perf\"") ||
         has(data, size, BUSBW) || has(data, size, "nccl_p2p_bus_bandwidth_gbs{") ||
         is_flight(data, size);
}

static copse_status read_pickle(struct copse_calls *calls, const char *name, const char *data,
                                size_t size, struct copse_err *err) {
  COPSE_AT_END(copse_free_at) char *text = NULL;
  size_t text_size;
  COPSE_DO(copse_pickle_to_json(name, data, size, &text, &text_size, err));
  return read_flight(calls, name, text, text_size, err);
}

static copse_status read_lines(struct copse_calls *calls, const char *data, size_t size,
                               struct copse_err *err) {
  struct copse_scan text = {data, data + size}, line;
  struct copse_recorded_call last = {0};
  while (copse_scan_line(&text, &line)) {
    copse_scan_blanks(&line);
    if (copse_scan_is_empty(&line) || copse_scan_begins(&line, "#")) continue;
    COPSE_DO(copse_scan_begins(&line, "nccl_") ? read_sample(calls, line, &last, err)
                                               : read_json_line(calls, line, err));
  }
  return COPSE_OK;
}

copse_status copse_calls_add(struct copse_calls *calls, const char *label, const char *data,
                             size_t size, struct copse_err *err) {
  int before = calls->n_calls, flights = calls->n_flights;
  int64_t seen = 0, was_seen = 0;
  if (!calls->reader) COPSE_DO(copse_calloc(1, sizeof *calls->reader, &calls->reader, err));
  for (int i = 0; i < before; i++) was_seen += calls->calls[i].n_seen;
  COPSE_DO(is_pickle(data, size)   ? read_pickle(calls, label, data, size, err)
           : is_flight(data, size) ? read_flight(calls, label, data, size, err)
                                   : read_lines(calls, data, size, err));
  for (int i = 0; i < calls->n_calls; i++) seen += calls->calls[i].n_seen;
  if (seen > was_seen || calls->n_flights > flights) return COPSE_OK;
  return copse_fail_at(err, COPSE_BAD_INPUT, label, 0,
                       "no call of a collective in these records of NCCL's Inspector or of "
                       "PyTorch's flight recorder");
}

COPSE_ORDER(by_comm_and_number, struct copse_recorded_call,
            strcmp(a->comm, b->comm) ?: COPSE_UP(number) ?: strcmp(a->collective, b->collective) ?:
            COPSE_UP(bytes))

COPSE_ORDER(by_group, struct copse_flight, strcmp(a->group, b->group) ?: strcmp(a->file, b->file))

void copse_calls_finish(struct copse_calls *calls) {
  COPSE_SORT(calls->calls, calls->n_calls, by_comm_and_number);
  COPSE_SORT(calls->flights, calls->n_flights, by_group);
}

/*
 * ---- pickles ---------------------------------------------------------------------------------
 *
 * Python's (protocols 2 to 5) without anything that runs code: a stack machine whose values are
 * JSON texts. A container is an object that may be stored and fetched before it is complete.
 */

/* Values have a depth of about 6: each byte is copied so often, and not much oftener. */
#define GROWTH 16
#define GROWTH_FREE (1 << 20)
/* A value of one byte takes some 100 here. */
#define LARGEST ((size_t)64 << 20)

enum kind { KIND_MARK, KIND_PLAIN, KIND_TEXT, KIND_LIST, KIND_DICT };

struct object {
  enum kind kind;
  struct copse_text text; /* of containers: what is between the brackets */
  struct object *next;    /* of all */
};

struct machine {
  const char *label;
  const unsigned char *at, *start, *end;
  struct object **stack, **memo;
  size_t n_stack, n_memo, stack_capacity, memo_capacity, copied;
  struct object *all;
  struct copse_err *err;
};

static void release(struct machine *m) {
  while (m->all) {
    struct object *next = m->all->next;
    copse_text_free(&m->all->text);
    free(m->all);
    m->all = next;
  }
  free(m->stack);
  free(m->memo);
}

static copse_status refuse(const struct machine *m, const char *why) {
  return copse_fail_at(m->err, COPSE_BAD_INPUT, m->label, 0,
                       "no flight recorder's pickle: %s at byte %zu", why,
                       (size_t)(m->at - m->start));
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static copse_status take(struct machine *m, uint64_t n, const unsigned char **bytes) {
  *bytes = m->at;
  if (n > (uint64_t)(m->end - m->at)) return refuse(m, "it ends within a value");
  m->at += n;
  return COPSE_OK;
}

/* Takes a little-endian number without a sign. */
static copse_status take_number(struct machine *m, int n, uint64_t *out) {
  const unsigned char *bytes;
  COPSE_DO(take(m, (uint64_t)n, &bytes));
  *out = 0;
  for (int i = n - 1; i >= 0; i--) *out = *out << 8 | bytes[i];
  return COPSE_OK;
}

/* ---- values ---------------------------------------------------------------------------------- */

static copse_status push(struct machine *m, struct object *object) {
  return COPSE_PUSH(m->stack, m->n_stack, m->stack_capacity, m->err, object);
}

static copse_status make(struct machine *m, enum kind kind, struct object **out) {
  COPSE_DO(copse_calloc(1, sizeof **out, out, m->err));
  (*out)->kind = kind;
  (*out)->next = m->all;
  m->all = *out;
  return push(m, *out);
}

static copse_status push_plain(struct machine *m, const char *text) {
  struct object *object;
  COPSE_DO(make(m, KIND_PLAIN, &object));
  copse_text_add(&object->text, "%s", text);
  return copse_text_status(&object->text, m->err);
}

static copse_status push_int(struct machine *m, int64_t value) {
  char text[32];
  snprintf(text, sizeof text, "%" PRId64, value);
  return push_plain(m, text);
}

/* Pushes an integer in two's complement, of at most 8 bytes. */
static copse_status push_long(struct machine *m, uint64_t n) {
  uint64_t value = 0;
  if (n > 8) return refuse(m, "an integer of more than 64 bits");
  if (n > 0) COPSE_DO(take_number(m, (int)n, &value));
  if (n > 0 && n < 8 && value >> (8 * n - 1)) value |= ~UINT64_C(0) << 8 * n;
  return push_int(m, (int64_t)value);
}

static copse_status push_double(struct machine *m) {
  const unsigned char *bytes;
  uint64_t bits = 0;
  double value;
  char text[40];
  COPSE_DO(take(m, 8, &bytes));
  for (int i = 0; i < 8; i++) bits = bits << 8 | bytes[i];
  memcpy(&value, &bits, sizeof value);
  snprintf(text, sizeof text, "%.9g", value);
  return push_plain(m, isfinite(value) ? text : "null");
}

static copse_status push_text(struct machine *m, int width) {
  const unsigned char *bytes;
  uint64_t n;
  struct object *object;
  COPSE_DO(take_number(m, width, &n));
  COPSE_DO(take(m, n, &bytes));
  COPSE_AT_END(copse_free_at) char *text = NULL;
  COPSE_DO(copse_calloc(n + 1, 1, &text, m->err));
  for (uint64_t i = 0; i < n; i++) text[i] = bytes[i] ? (char)bytes[i] : '?';
  COPSE_DO(make(m, KIND_TEXT, &object));
  copse_text_add_json_string(&object->text, text);
  return copse_text_status(&object->text, m->err);
}

/* ---- containers ------------------------------------------------------------------------------ */

static copse_status copy(struct machine *m, struct object *to, const struct object *from) {
  const char *text = from->text.data ? from->text.data : "";
  bool list = from->kind == KIND_LIST, dict = from->kind == KIND_DICT;
  if (from == to || from->kind == KIND_MARK) return refuse(m, "a value within itself");
  m->copied += from->text.size + 8;
  if (m->copied > GROWTH * (size_t)(m->end - m->start) + GROWTH_FREE)
    return refuse(m, "values that grow out of proportion");
  copse_text_add(&to->text, "%s", list ? "[" : dict ? "{" : "");
  copse_text_append(&to->text, text, from->text.size);
  copse_text_add(&to->text, "%s", list ? "]" : dict ? "}" : "");
  return copse_text_status(&to->text, m->err);
}

static copse_status add_item(struct machine *m, struct object *list, const struct object *item) {
  if (list->text.size > 0) copse_text_add(&list->text, ",");
  return copy(m, list, item);
}

static copse_status add_pair(struct machine *m, struct object *dict, const struct object *key,
                             const struct object *value) {
  bool text = key->kind == KIND_TEXT;
  if (!text && key->kind != KIND_PLAIN) return refuse(m, "a key that is no text");
  if (dict->text.size > 0) copse_text_add(&dict->text, ",");
  copse_text_add(&dict->text, "%s", text ? "" : "\"");
  COPSE_DO(copy(m, dict, key));
  copse_text_add(&dict->text, "%s:", text ? "" : "\"");
  if (!text || strcmp(key->text.data, "\"frames\"") != 0) return copy(m, dict, value);
  copse_text_add(&dict->text, "null");
  return copse_text_status(&dict->text, m->err);
}

/* Puts what is on the stack above `from` into the container below; all of it then goes. */
static copse_status fill(struct machine *m, size_t from, bool pairs) {
  struct object *to = from > 0 ? m->stack[from - 1] : NULL;
  size_t n = m->n_stack - from, first = n > 0 && m->stack[from]->kind == KIND_MARK;
  enum kind kind = pairs ? KIND_DICT : KIND_LIST;
  if (!to || to->kind != kind || (pairs && (n - first) % 2 != 0))
    return refuse(m, "items without a container");
  for (size_t i = from + first; i < m->n_stack; i += 1 + (size_t)pairs)
    COPSE_DO(pairs ? add_pair(m, to, m->stack[i], m->stack[i + 1]) : add_item(m, to, m->stack[i]));
  m->n_stack = from;
  return COPSE_OK;
}

static copse_status find_mark(struct machine *m, size_t *mark) {
  *mark = m->n_stack;
  while (*mark > 0 && m->stack[*mark - 1]->kind != KIND_MARK) --*mark;
  return (*mark)-- > 0 ? COPSE_OK : refuse(m, "no mark");
}

/* Puts the topmost n values as a list in their place. */
static copse_status make_tuple(struct machine *m, size_t n) {
  struct object *tuple = NULL;
  if (n > m->n_stack) return refuse(m, "too few values");
  size_t from = m->n_stack - n;
  COPSE_DO(make(m, KIND_LIST, &tuple));
  memmove(m->stack + from + 1, m->stack + from, n * sizeof *m->stack);
  m->stack[from] = tuple;
  return fill(m, from + 1, false);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static copse_status put(struct machine *m, uint64_t index) {
  if (m->n_stack == 0 || index > (uint64_t)(m->end - m->start))
    return refuse(m, "a number that no value has");
  if (index >= m->n_memo) {
    COPSE_DO(COPSE_GROW(m->memo, m->memo_capacity, index + 1, m->err));
    memset(m->memo + m->n_memo, 0, (index + 1 - m->n_memo) * sizeof *m->memo);
    m->n_memo = index + 1;
  }
  m->memo[index] = m->stack[m->n_stack - 1];
  return COPSE_OK;
}

static copse_status get(struct machine *m, uint64_t index) {
  if (index >= m->n_memo || !m->memo[index]) return refuse(m, "a number that no value has");
  return push(m, m->memo[index]);
}

/* ---- codes ----------------------------------------------------------------------------------- */

/* Returns how many bytes the number behind a code has. */
static int code_width(unsigned char code) {
  switch (code) {
    case 0x80:
    case 'K':
    case 'h':
    case 'q':
    case 0x8a: return 1;
    case 'M': return 2;
    case 'J':
    case 'j':
    case 'r': return 4;
    case 0x95: return 8;
    default: return 0;
  }
}

static copse_status do_numbered(struct machine *m, unsigned char code, uint64_t number) {
  switch (code) {
    case 'K':
    case 'M': return push_int(m, (int64_t)number);
    case 'J': return push_int(m, (int32_t)number);
    case 0x8a: return push_long(m, number);
    case 'h':
    case 'j': return get(m, number);
    case 'q':
    case 'r': return put(m, number);
    default: return COPSE_OK; /* protocol, frame */
  }
}

static copse_status do_marked(struct machine *m, unsigned char code) {
  size_t mark;
  COPSE_DO(find_mark(m, &mark));
  if (code != 't') return fill(m, mark, code == 'u');
  memmove(m->stack + mark, m->stack + mark + 1, (m->n_stack - mark - 1) * sizeof *m->stack);
  m->n_stack--;
  return make_tuple(m, m->n_stack - mark);
}

static copse_status do_code(struct machine *m, unsigned char code) {
  struct object *made;
  switch (code) {
    case '(': return make(m, KIND_MARK, &made);
    case '}': return make(m, KIND_DICT, &made);
    case ']':
    case ')': return make(m, KIND_LIST, &made);
    case 'N': return push_plain(m, "null");
    case 0x88: return push_plain(m, "true");
    case 0x89: return push_plain(m, "false");
    case 'G': return push_double(m);
    case 'X': return push_text(m, 4);
    case 0x8c: return push_text(m, 1);
    case 0x8d: return push_text(m, 8);
    case 0x85:
    case 0x86:
    case 0x87: return make_tuple(m, code - 0x84u);
    case 0x94: return put(m, m->n_memo);
    case 'a': return m->n_stack < 2 ? refuse(m, "no list") : fill(m, m->n_stack - 1, false);
    case 's': return m->n_stack < 3 ? refuse(m, "no dict") : fill(m, m->n_stack - 2, true);
    case 'u':
    case 'e':
    case 't': return do_marked(m, code);
    default: return refuse(m, "a code that is not of plain data");
  }
}

copse_status copse_pickle_to_json(const char *label, const char *data, size_t size, char **text,
                                  size_t *text_size, struct copse_err *err) {
  COPSE_AT_END(release)
  struct machine m = {.label = label, .at = (const unsigned char *)data, .err = err};
  struct object *whole;
  m.start = m.at;
  m.end = m.at + size;
  *text = NULL;
  if (size > LARGEST) return refuse(&m, "more than 64 MiB");
  for (unsigned char code; m.at < m.end && *m.at != '.';) {
    uint64_t number;
    code = *m.at++;
    int width = code_width(code);
    if (width > 0) COPSE_DO(take_number(&m, width, &number));
    COPSE_DO(width > 0 ? do_numbered(&m, code, number) : do_code(&m, code));
  }
  if (m.at == m.end || m.n_stack != 1) return refuse(&m, "it is cut");
  struct object *last = m.stack[0];
  COPSE_DO(make(&m, KIND_PLAIN, &whole));
  COPSE_DO(copy(&m, whole, last));
  return copse_text_take(&whole->text, text, text_size, err);
}
