/*
 * Tells apart what tools around NCCL print, and reads what NCCL's RAS service reports (ncclras, as
 * text or with -f json, and what its monitor prints). Source: NVIDIA/nccl
 * src/ras/client_support.cc.
 */
#include "nccl/reports.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "nccl/calls.h"
#include "nccl/graph.h"
#include "nccl/log.h"
#include "topology/input/profile.h"

/* ---- telling texts apart --------------------------------------------------------------------- */

static bool has(const char *data, size_t size, const char *text) {
  return memmem(data, size, text, strlen(text)) != NULL;
}

static unsigned detect_json(const char *data, size_t size) {
  if (copse_nvbandwidth_is(data, size)) return COPSE_NCCL_IS_NVBANDWIDTH;
  if (has(data, size, "\"copse-profile/")) return COPSE_NCCL_IS_PROFILE;
  if (has(data, size, "\"copse-topology/") || has(data, size, "\"copse-cluster/") ||
      has(data, size, "\"copse-synthetic/"))
    return COPSE_NCCL_IS_TOPOLOGY;
  if (copse_calls_are(data, size)) return COPSE_NCCL_IS_CALLS;
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
  if (copse_calls_are(data, size)) return COPSE_NCCL_IS_CALLS;
  if (has(data, size, "] PEER_DEAD") || has(data, size, "] PEER_NEW")) return COPSE_NCCL_IS_RAS;
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
                                      "records of NCCL's Inspector or PyTorch's flight recorder",
                                      "a profile"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (kinds & 1u << i) return names[i];
  return "nothing that is known";
}

/* ---- RAS ------------------------------------------------------------------------------------- */

#define MAX_LINES 65536

static copse_status add_comm(struct copse_ras *out, const struct copse_ras_comm *comm,
                             struct copse_err *err) {
  return COPSE_PUSH_IN(&out->arena, out->comms, out->n_comms, out->comm_capacity, err, *comm);
}

static copse_status add_line(struct copse_ras *out, const char *text, struct copse_err *err) {
  if (out->n_lines >= MAX_LINES) return COPSE_OK;
  if (!text) return copse_fail_nomem(err);
  return COPSE_PUSH_IN(&out->arena, out->lines, out->n_lines, out->line_capacity, err, text);
}

/* Reads "    0         1         2         8        16        16   RUNNING      OK": group,
 * communicators in it, nodes and ranks of a node, ranks of a communicator and of the group, status,
 * errors. */
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

/* Whether the line is the monitor's "[2026-01-02 03:04:05] PEER_DEAD: rank 3 .."; others than
 * deaths are no trouble. */
static bool is_event(struct copse_scan s) {
  return copse_scan_literal(&s, "[") && copse_scan_to(&s, "] PEER_");
}

static copse_status read_event(struct copse_ras *out, struct copse_scan line,
                               struct copse_err *err) {
  const char *text;
  out->n_events++;
  if (!copse_scan_to(&(struct copse_scan){line.at, line.end}, "] PEER_DEAD")) return COPSE_OK;
  COPSE_DO(copse_scan_text(&out->arena, &line, &text, err));
  return add_line(out, text, err);
}

enum section { SECTION_OTHER, SECTION_COMMS, SECTION_PROBLEMS };

static copse_status read_ras_line(struct copse_ras *out, struct copse_scan line,
                                  enum section *section, struct copse_err *err) {
  struct copse_scan s = line, word;
  const char *text;
  bool is_row = false;
  if (copse_scan_is_empty(&line) || copse_scan_begins(&line, "==")) return COPSE_OK;
  if (is_event(line)) return read_event(out, line, err);
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

/* Reads a missing rank as "rank 3 on node-b, process 77: unresponsive". */
static copse_status read_missing(const struct copse_json *json, const cJSON *rank, const char *id,
                                 struct copse_ras *out, struct copse_err *err) {
  const cJSON *status = copse_json_get(rank, "status");
  bool dead = status && cJSON_IsTrue(copse_json_get(status, "considered_dead"));
  return add_line(out,
                  copse_arena_printf(&out->arena, "%s: rank %lld on %.100s, process %lld, is %s",
                                     id, (long long)copse_json_int_or(json, rank, "rank", -1),
                                     copse_json_text_or(rank, "host", "?"),
                                     (long long)copse_json_int_or(json, rank, "pid", -1),
                                     dead ? "considered dead" : "missing"),
                  err);
}

/* Reads what ranks say of themselves: the worst of them counts. */
static copse_status read_states(const struct copse_json *json, const cJSON *ranks,
                                struct copse_ras *out, struct copse_ras_comm *comm,
                                struct copse_err *err) {
  COPSE_JSON_EACH (rank, ranks) {
    const cJSON *status = copse_json_get(rank, "status");
    const cJSON *abort = status ? copse_json_get(status, "abort_flag") : NULL;
    int64_t error = status ? copse_json_int_or(json, status, "async_error", 0) : 0;
    if (abort && (cJSON_IsTrue(abort) || copse_json_int_or(json, status, "abort_flag", 0) > 0))
      comm->status = "ABORT";
    if (error == 0) continue;
    comm->errors = "ERROR";
    COPSE_DO(add_line(
        out,
        copse_arena_printf(&out->arena, "%s: rank %lld has async error %lld", comm->id,
                           (long long)copse_json_int_or(json, rank, "rank", -1), (long long)error),
        err));
  }
  return COPSE_OK;
}

static copse_status read_ras_comm(const struct copse_json *json, const cJSON *item,
                                  struct copse_ras *out, struct copse_err *err) {
  struct copse_ras_comm comm = {.times = 1, .status = "RUNNING", .errors = "OK"};
  const cJSON *missing = copse_json_get(item, "missing_ranks");
  const cJSON *ranks = copse_json_get(item, "ranks");
  comm.n_ranks = copse_json_int_or(json, item, "size", -1);
  if (comm.n_ranks < 0) {
    out->n_damaged++;
    return COPSE_OK;
  }
  comm.n_missing = copse_json_int_or(json, item, "missing_ranks_count", 0);
  COPSE_DO(copse_arena_text(&out->arena, copse_json_text_or(item, "hash", "?"), &comm.id, err));
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
  COPSE_DO(copse_arena_text(&out->arena, copse_json_text_or(json.root, "nccl_version", ""),
                            &out->version, err));
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
  if (out->n_comms > 0 || out->n_events > 0) return COPSE_OK;
  return copse_fail_at(err, COPSE_BAD_INPUT, label, 0,
                       "no communicator and no event in this report of NCCL's RAS service");
}
