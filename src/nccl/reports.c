/*
 * Tells apart what tools around NCCL print, and reads what NCCL's RAS service reports (ncclras, as
 * text or with -f json) and the records of the Inspector plugin.
 */
#include "nccl/reports.h"

#include <stdlib.h>
#include <string.h>

#include "base/index_map.h"
#include "base/json.h"
#include "base/scan.h"
#include "base/text.h"
#include "nccl/graph.h"
#include "nccl/log.h"
#include "topology/input/nvbandwidth.h"

/* ---- what a text is -------------------------------------------------------------------------- */

static bool has(const char *data, size_t size, const char *text) {
  return memmem(data, size, text, strlen(text)) != NULL;
}

static unsigned detect_json(const char *data, size_t size) {
  if (copse_nvbandwidth_is(data, size)) return COPSE_NCCL_IS_NVBANDWIDTH;
  if (has(data, size, "\"copse-profile/")) return COPSE_NCCL_IS_PROFILE;
  if (has(data, size, "\"copse-topology/") || has(data, size, "\"copse-cluster/") ||
      has(data, size, "\"copse-synthetic/"))
    return COPSE_NCCL_IS_TOPOLOGY;
  if (has(data, size, "\"coll_perf\"") || has(data, size, "\"p2p_perf\""))
    return COPSE_NCCL_IS_INSPECTOR;
  if (has(data, size, "\"communicators_count\"")) return COPSE_NCCL_IS_RAS;
  if (has(data, size, "\"out_of_place\"") || has(data, size, "\"in_place\"") ||
      (has(data, size, "\"algBw\"") && has(data, size, "\"busBw\"")))
    return COPSE_NCCL_IS_TESTS;
  return 0;
}

static unsigned detect_text(const char *data, size_t size) {
  bool table = has(data, size, "busbw") && has(data, size, "algbw");
  unsigned kinds = 0;
  if (copse_nvbandwidth_is(data, size)) return COPSE_NCCL_IS_NVBANDWIDTH;
  if (copse_nccl_log_has(data, size)) kinds |= COPSE_NCCL_IS_LOG;
  if (table || has(data, size, "# Avg bus bandwidth")) kinds |= COPSE_NCCL_IS_TESTS;
  if (kinds) return kinds;
  if (has(data, size, "Job summary") && has(data, size, "Communicators..."))
    return COPSE_NCCL_IS_RAS;
  if (has(data, size, "between two GPUs") || has(data, size, "CPU Affinity"))
    return COPSE_NCCL_IS_TOPOLOGY;
  return 0;
}

unsigned copse_nccl_detect(const char *data, size_t size) {
  size_t at = size >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
  while (at < size && data[at] && strchr(" \t\r\n", data[at])) at++;
  char first = at < size ? data[at] : '\0';
  if (first == '<')
    return copse_nccl_is_graphs(data, size) ? COPSE_NCCL_IS_GRAPHS
           : has(data, size, "<system")     ? COPSE_NCCL_IS_TOPOLOGY
                                            : detect_text(data, size);
  if (first == '{' || first == '[') {
    unsigned kinds = detect_json(data, size);
    if (kinds) return kinds; /* "[1,0]<stdout>:node-a.." is a launcher's */
  }
  return detect_text(data, size);
}

const char *copse_nccl_kind_name(unsigned kinds) {
  static const char *const names[] = {"a topology",
                                      "a graph dump of NCCL",
                                      "a log of NCCL",
                                      "output of nccl-tests",
                                      "output of nvbandwidth",
                                      "a report of NCCL's RAS",
                                      "records of NCCL's Inspector",
                                      "a profile"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (kinds & 1u << i) return names[i];
  return "nothing that is known";
}

/* ---- RAS ------------------------------------------------------------------------------------- */

#define MAX_LINES 65536

void copse_ras_free(struct copse_ras *ras) {
  free(ras->comms);
  free(ras->lines);
  copse_arena_free(&ras->arena);
  *ras = (struct copse_ras){0};
}

static copse_status add_comm(struct copse_ras *out, const struct copse_ras_comm *comm,
                             struct copse_err *err) {
  COPSE_DO(COPSE_GROW(out->comms, out->comm_capacity, (size_t)out->n_comms + 1, err));
  out->comms[out->n_comms++] = *comm;
  return COPSE_OK;
}

static copse_status add_line(struct copse_ras *out, const char *text, struct copse_err *err) {
  if (out->n_lines >= MAX_LINES) return COPSE_OK;
  if (!text) return copse_fail_nomem(err);
  COPSE_DO(COPSE_GROW(out->lines, out->line_capacity, (size_t)out->n_lines + 1, err));
  out->lines[out->n_lines++] = text;
  return COPSE_OK;
}

/* "    0         1         2         8        16        16   RUNNING      OK": group, communicators
 * in it, nodes and ranks of a node, ranks of a communicator and of the group, status, errors */
static copse_status read_group(struct copse_ras *out, struct copse_scan s, bool *is_row,
                               struct copse_err *err) {
  struct copse_ras_comm comm = {0};
  struct copse_scan word;
  int64_t number[4], in_group;
  for (int i = 0; i < 4; i++) { /* "4-8" where communicators of a group differ */
    *is_row = copse_scan_word(&s, &word) && copse_scan_int(&word, false, &number[i]);
    if (!*is_row) return COPSE_OK;
  }
  *is_row = copse_scan_word(&s, &word) && copse_scan_int(&word, false, &comm.n_ranks) &&
            copse_scan_word(&s, &word) && copse_scan_int(&word, false, &in_group) &&
            copse_scan_word(&s, &word);
  if (!*is_row) return COPSE_OK;
  comm.times = number[1];
  comm.id = copse_arena_printf(&out->arena, "group %lld", (long long)number[0]);
  if (!comm.id) return copse_fail_nomem(err);
  COPSE_DO(copse_scan_text(&out->arena, &word, &comm.status, err));
  copse_scan_blanks(&s);
  while (s.end > s.at && s.end[-1] == ' ') s.end--;
  COPSE_DO(copse_scan_text(&out->arena, &s, &comm.errors, err));
  return add_comm(out, &comm, err);
}

enum section { SECTION_OTHER, SECTION_COMMS, SECTION_PROBLEMS };

static copse_status read_ras_line(struct copse_ras *out, struct copse_scan line,
                                  enum section *section, struct copse_err *err) {
  struct copse_scan s = line, word;
  const char *text;
  bool is_row = false;
  if (copse_scan_is_empty(&line) || copse_scan_begins(&line, "==")) return COPSE_OK;
  if (copse_scan_literal(&s, "NCCL version ") && copse_scan_word(&s, &word))
    return copse_scan_text(&out->arena, &word, &out->version, err);
  if (copse_scan_begins(&line, "Communicators..."))
    *section = SECTION_COMMS;
  else if (copse_scan_is(&line, "Errors") || copse_scan_is(&line, "Warnings"))
    *section = SECTION_PROBLEMS;
  else if (copse_scan_is(&line, "Job summary"))
    *section = SECTION_OTHER;
  else if (*section == SECTION_COMMS) {
    copse_scan_blanks(&s);
    bool number = s.at < s.end && *s.at >= '0' && *s.at <= '9';
    COPSE_DO(read_group(out, line, &is_row, err));
    out->n_damaged += number && !is_row;
  } else if (*section == SECTION_PROBLEMS) {
    COPSE_DO(copse_scan_text(&out->arena, &line, &text, err));
    return add_line(out, text, err);
  }
  return COPSE_OK;
}

/* An integer member, or `otherwise`. */
static int64_t json_int_or(const struct copse_json *json, const cJSON *object, const char *key,
                           int64_t otherwise) {
  int64_t value;
  const cJSON *item = copse_json_get(object, key);
  if (!item || copse_json_int(json, item, object, key, 0, INT64_MAX, &value, NULL) != COPSE_OK)
    return otherwise;
  return value;
}

static copse_status json_text_or(struct copse_arena *arena, const cJSON *object, const char *key,
                                 const char *otherwise, const char **out, struct copse_err *err) {
  const cJSON *item = copse_json_get(object, key);
  return copse_arena_text(arena, item && copse_json_is_string(item) ? item->valuestring : otherwise,
                          out, err);
}

/* "rank 3 on node-b, process 77: unresponsive" */
static copse_status read_missing(const struct copse_json *json, const cJSON *rank, const char *id,
                                 struct copse_ras *out, struct copse_err *err) {
  const cJSON *status = copse_json_get(rank, "status");
  const char *host;
  bool dead = status && cJSON_IsTrue(copse_json_get(status, "considered_dead"));
  COPSE_DO(json_text_or(&out->arena, rank, "host", "?", &host, err));
  return add_line(out,
                  copse_arena_printf(&out->arena, "%s: rank %lld on %.100s, process %lld, is %s",
                                     id, (long long)json_int_or(json, rank, "rank", -1), host,
                                     (long long)json_int_or(json, rank, "pid", -1),
                                     dead ? "considered dead" : "missing"),
                  err);
}

/* What ranks say of themselves: the worst of them counts. */
static copse_status read_states(const struct copse_json *json, const cJSON *ranks,
                                struct copse_ras *out, struct copse_ras_comm *comm,
                                struct copse_err *err) {
  COPSE_JSON_EACH (rank, ranks) {
    const cJSON *status = copse_json_get(rank, "status");
    const cJSON *abort = status ? copse_json_get(status, "abort_flag") : NULL;
    int64_t error = status ? json_int_or(json, status, "async_error", 0) : 0;
    if (abort && (cJSON_IsTrue(abort) || json_int_or(json, status, "abort_flag", 0) > 0))
      comm->status = "ABORT";
    if (error == 0) continue;
    comm->errors = "ERROR";
    COPSE_DO(add_line(
        out,
        copse_arena_printf(&out->arena, "%s: rank %lld has async error %lld", comm->id,
                           (long long)json_int_or(json, rank, "rank", -1), (long long)error),
        err));
  }
  return COPSE_OK;
}

static copse_status read_ras_comm(const struct copse_json *json, const cJSON *item,
                                  struct copse_ras *out, struct copse_err *err) {
  struct copse_ras_comm comm = {.times = 1, .status = "RUNNING", .errors = "OK"};
  const cJSON *missing = copse_json_get(item, "missing_ranks");
  const cJSON *ranks = copse_json_get(item, "ranks");
  comm.n_ranks = json_int_or(json, item, "size", -1);
  if (comm.n_ranks < 0) {
    out->n_damaged++;
    return COPSE_OK;
  }
  comm.n_missing = json_int_or(json, item, "missing_ranks_count", 0);
  COPSE_DO(json_text_or(&out->arena, item, "hash", "?", &comm.id, err));
  if (ranks && copse_json_is_array(ranks)) COPSE_DO(read_states(json, ranks, out, &comm, err));
  if (comm.n_missing > 0) comm.errors = "INCOMPLETE";
  if (missing && copse_json_is_array(missing))
    COPSE_JSON_EACH (rank, missing) COPSE_DO(read_missing(json, rank, comm.id, out, err));
  return add_comm(out, &comm, err);
}

static copse_status parse_ras_json(const char *label, const char *data, size_t size,
                                   struct copse_ras *out, struct copse_err *err) {
  COPSE_AT_END(copse_json_free) struct copse_json json = {0};
  const cJSON *comms;
  COPSE_DO(copse_json_parse(label, data, size, &json, err));
  COPSE_DO(json_text_or(&out->arena, json.root, "nccl_version", "", &out->version, err));
  COPSE_DO(copse_json_get_array(&json, json.root, "communicators", &comms, err));
  COPSE_JSON_EACH (comm, comms) COPSE_DO(read_ras_comm(&json, comm, out, err));
  return COPSE_OK;
}

copse_status copse_ras_parse(const char *label, const char *data, size_t size,
                             struct copse_ras *out, struct copse_err *err) {
  struct copse_scan text = {data, data + size}, line;
  enum section section = SECTION_OTHER;
  *out = (struct copse_ras){.version = ""};
  while (text.at < text.end && *text.at && strchr(" \t\r\n", *text.at)) text.at++;
  if (copse_scan_begins(&text, "{")) {
    COPSE_DO(parse_ras_json(label, data, size, out, err));
  } else {
    while (copse_scan_line(&text, &line)) COPSE_DO(read_ras_line(out, line, &section, err));
  }
  if (out->n_comms > 0) return COPSE_OK;
  return copse_fail_at(err, COPSE_BAD_INPUT, label, 0,
                       "no communicator in this report of NCCL's RAS service");
}

/* ---- Inspector ------------------------------------------------------------------------------- */

void copse_inspector_free(struct copse_inspector *inspector) {
  free(inspector->calls);
  copse_arena_free(&inspector->arena);
  *inspector = (struct copse_inspector){0};
}

struct inspector {
  struct copse_inspector *out;
  struct copse_index_map by_call, by_name;
  const char **names;
  size_t name_capacity;
  int n_names;
};

static void free_inspector(struct inspector *i) {
  copse_index_map_free(&i->by_call);
  copse_index_map_free(&i->by_name);
  free(i->names);
}

static copse_status intern(struct inspector *in, const char *text, const char **out,
                           struct copse_err *err) {
  int i = copse_index_map_find(&in->by_name, text, in->names, sizeof *in->names, 0);
  if (i < 0) {
    i = in->n_names;
    COPSE_DO(COPSE_GROW(in->names, in->name_capacity, (size_t)i + 1, err));
    COPSE_DO(copse_arena_text(&in->out->arena, text, &in->names[i], err));
    COPSE_DO(copse_index_map_add(&in->by_name, copse_key_text(text), i, err));
    in->n_names++;
  }
  *out = in->names[i];
  return COPSE_OK;
}

/* The call that a rank's record is of; the slowest rank's time counts. */
static copse_status join_call(struct inspector *in, const struct copse_inspector_call *call,
                              struct copse_err *err) {
  struct copse_inspector *out = in->out;
  uint64_t key = copse_key_text(call->comm) ^ copse_scatter((uint64_t)call->number);
  size_t cursor = 0;
  for (int i; (i = copse_index_map_next(&in->by_call, key, &cursor)) >= 0;) {
    struct copse_inspector_call *known = &out->calls[i];
    if (known->comm != call->comm || known->number != call->number ||
        known->collective != call->collective)
      continue;
    int seen = known->n_seen + 1;
    if (copse_q_cmp(call->time_us, known->time_us) > 0) *known = *call;
    known->n_seen = seen;
    return COPSE_OK;
  }
  COPSE_DO(copse_index_map_add(&in->by_call, key, out->n_calls, err));
  COPSE_DO(COPSE_GROW(out->calls, out->call_capacity, (size_t)out->n_calls + 1, err));
  out->calls[out->n_calls++] = *call;
  return COPSE_OK;
}

static bool amount(const struct copse_json *json, const cJSON *object, const char *key,
                   struct copse_q *out) {
  *out = (struct copse_q){-1, 1};
  return copse_json_get_amount_or(json, object, key, false, out, NULL) == COPSE_OK && out->num >= 0;
}

static copse_status read_record(struct inspector *in, const struct copse_json *json, bool *good,
                                struct copse_err *err) {
  struct copse_inspector_call call = {.n_seen = 1};
  const cJSON *header = copse_json_get(json->root, "header");
  const cJSON *perf = copse_json_get(json->root, "coll_perf");
  const char *comm, *collective;
  *good = copse_json_get(json->root, "p2p_perf") != NULL; /* one pair's: nothing to join */
  if (!header || !perf) return COPSE_OK;
  call.n_ranks = (int)copse_smaller(json_int_or(json, header, "n_ranks", -1), 1 << 22);
  call.number = json_int_or(json, perf, "coll_sn", -1);
  call.bytes = json_int_or(json, perf, "coll_msg_size_bytes", -1);
  *good = copse_json_get_string(json, header, "id", &comm, NULL) == COPSE_OK &&
          copse_json_get_string(json, perf, "coll", &collective, NULL) == COPSE_OK &&
          amount(json, perf, "coll_exec_time_us", &call.time_us) &&
          amount(json, perf, "coll_algobw_gbs", &call.algbw) &&
          amount(json, perf, "coll_busbw_gbs", &call.busbw) && call.n_ranks > 0 &&
          call.number >= 0 && call.bytes >= 0;
  if (!*good) return COPSE_OK;
  COPSE_DO(intern(in, comm, &call.comm, err));
  COPSE_DO(intern(in, collective, &call.collective, err));
  return join_call(in, &call, err);
}

static int by_comm_and_number(const void *a, const void *b) {
  const struct copse_inspector_call *x = a, *y = b;
  int d = strcmp(x->comm, y->comm);
  return d != 0 ? d : (x->number > y->number) - (x->number < y->number);
}

/* A record that is no JSON was cut; running out of memory is what it is. */
static copse_status read_inspector_line(struct inspector *in, struct copse_scan line,
                                        struct copse_err *err) {
  COPSE_AT_END(copse_json_free) struct copse_json json = {0};
  struct copse_err ignored = COPSE_ERR_INIT;
  bool good = false;
  copse_status status =
      copse_json_parse("", line.at, (size_t)(line.end - line.at), &json, &ignored);
  if (status == COPSE_NOMEM) return copse_fail_nomem(err);
  if (status == COPSE_OK && copse_json_is_object(json.root))
    COPSE_DO(read_record(in, &json, &good, err));
  in->out->n_damaged += !good;
  return COPSE_OK;
}

copse_status copse_inspector_parse(const char *label, const char *data, size_t size,
                                   struct copse_inspector *out, struct copse_err *err) {
  COPSE_AT_END(free_inspector) struct inspector in = {.out = out};
  struct copse_scan text = {data, data + size}, line;
  *out = (struct copse_inspector){0};
  while (copse_scan_line(&text, &line))
    if (!copse_scan_is_empty(&line)) COPSE_DO(read_inspector_line(&in, line, err));
  if (out->n_calls == 0)
    return copse_fail_at(err, COPSE_BAD_INPUT, label, 0,
                         "no call in these records of NCCL's Inspector");
  qsort(out->calls, (size_t)out->n_calls, sizeof *out->calls, by_comm_and_number);
  return COPSE_OK;
}
