/*
 * Bandwidth profiles (copse-profile/1): rates in place of constants, rules over finished links.
 * What nvbandwidth (NVIDIA/nvbandwidth v0.4 to v0.8) prints is a profile too, of the links of GPUs.
 * docs/formats.md, "Profile".
 */
#include "topology/input/profile.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "topology/input/readers.h"

/* ==== what nvbandwidth prints ============================================================= */

/*
 * nvbandwidth's text and JSON. The text has for each test: a line that says what is measured and
 * ends in "(GB/s)" or "(ns)"; a line of column numbers; rows; an empty line; and "SUM NAME VALUE",
 * which names the matrix (a bidirectional test prints three). The form follows nvbandwidth's
 * testcase.cpp, output.cpp and json_output.cpp.
 */

#define MAX_DEVICES 1024
#define MAX_TESTS 4096

bool copse_nvbandwidth_is(const char *data, size_t size) {
  struct copse_scan text = {data, data + size}, json = text, version = text;
  if (copse_scan_to(&version, "nvbandwidth Version:")) return true;
  return copse_scan_to(&json, "\"nvbandwidth\"") && copse_scan_to(&json, "\"testcases\"");
}

/* ---- devices --------------------------------------------------------------------------------- */

/* Reads "(00000000:1B:00)" as "0000:1b:00", as topologies have it. */
static copse_status read_bus(struct copse_nvbandwidth *out, struct copse_scan s, const char **bus,
                             struct copse_err *err) {
  uint64_t domain, number, device;
  while (copse_scan_to(&s, "(")) {
    struct copse_scan rest = s;
    if (!copse_scan_hex(&rest, &domain) || !copse_scan_literal(&rest, ":") ||
        !copse_scan_hex(&rest, &number) || !copse_scan_literal(&rest, ":") ||
        !copse_scan_hex(&rest, &device))
      continue;
    *bus = copse_arena_printf(&out->arena, "%04llx:%02llx:%02llx", (unsigned long long)domain,
                              (unsigned long long)number, (unsigned long long)device);
    return *bus ? COPSE_OK : copse_fail_nomem(err);
  }
  return COPSE_OK;
}

static copse_status need_device(struct copse_nvbandwidth *out, int index, struct copse_err *err) {
  COPSE_DO(COPSE_GROW_IN(&out->arena, out->devices, out->device_capacity, (size_t)index + 1, err));
  for (; out->n_devices <= index; out->n_devices++)
    out->devices[out->n_devices] = (struct copse_nvbandwidth_device){"", ""};
  return COPSE_OK;
}

/* Reads "0: NVIDIA H100 80GB HBM3 (00000000:1b:00)". */
static copse_status read_device(struct copse_nvbandwidth *out, struct copse_scan s,
                                struct copse_err *err) {
  struct copse_nvbandwidth_device device = {"", ""};
  struct copse_scan name;
  int index;
  copse_scan_blanks(&s);
  if (!copse_scan_index(&s, &index) || index < 0 || index >= MAX_DEVICES ||
      !copse_scan_literal(&s, ":"))
    return COPSE_OK;
  copse_scan_blanks(&s);
  name = s;
  if (copse_scan_to(&name, " ("))
    name = (struct copse_scan){s.at, name.at - 2};
  else
    name = s;
  COPSE_DO(copse_scan_text(&out->arena, &name, &device.name, err));
  COPSE_DO(read_bus(out, s, &device.bus, err));
  COPSE_DO(need_device(out, index, err));
  out->devices[index] = device;
  return COPSE_OK;
}

/* ---- matrices -------------------------------------------------------------------------------- */

/* A matrix in the making. */
struct matrix {
  bool open, is_latency;
  int *columns, *rows;
  struct copse_q *cells;
  size_t column_capacity, row_capacity, cell_capacity;
  int n_columns, n_rows;
};

static void free_matrix(struct matrix *m) {
  free(m->columns);
  free(m->rows);
  free(m->cells);
}

static copse_status keep(struct copse_nvbandwidth *out, const struct matrix *m, int first_row,
                         int n_rows, const char *name, struct copse_err *err) {
  size_t width = (size_t)m->n_columns, height = (size_t)n_rows;
  struct copse_nvbandwidth_test test = {
      .name = name, .is_latency = m->is_latency, .n_rows = n_rows, .n_columns = m->n_columns};
  int *rows, *columns;
  struct copse_q *cells;
  if (n_rows < 1 || m->n_columns < 1 || out->n_tests >= MAX_TESTS) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(&out->arena, height, rows, err));
  COPSE_DO(COPSE_ARRAY(&out->arena, width, columns, err));
  COPSE_DO(COPSE_ARRAY(&out->arena, width * height, cells, err));
  for (int i = 0; i < n_rows; i++) COPSE_DO(need_device(out, m->rows[first_row + i], err));
  for (int i = 0; i < m->n_columns; i++) COPSE_DO(need_device(out, m->columns[i], err));
  memcpy(rows, m->rows + first_row, height * sizeof *rows);
  memcpy(columns, m->columns, width * sizeof *columns);
  memcpy(cells, m->cells + (size_t)first_row * width, width * height * sizeof *cells);
  test.rows = rows;
  test.columns = columns;
  test.cells = cells;
  return COPSE_PUSH_IN(&out->arena, out->tests, out->n_tests, out->test_capacity, err, test);
}

static copse_status add_column(struct matrix *m, int column, struct copse_err *err) {
  return COPSE_PUSH(m->columns, m->n_columns, m->column_capacity, err, column);
}

/* Adds a row's cells; a row without a cell for each column is none. */
static copse_status add_row(struct matrix *m, int row, struct copse_scan s, bool *good,
                            struct copse_err *err) {
  struct copse_scan word;
  size_t at = (size_t)m->n_rows * (size_t)m->n_columns;
  *good = false;
  COPSE_DO(COPSE_GROW(m->rows, m->row_capacity, (size_t)m->n_rows + 1, err));
  COPSE_DO(COPSE_GROW(m->cells, m->cell_capacity, at + (size_t)m->n_columns, err));
  for (int i = 0; i < m->n_columns; i++) {
    struct copse_q *cell = &m->cells[at + (size_t)i];
    if (!copse_scan_word(&s, &word)) return COPSE_OK;
    if (copse_scan_is(&word, "N/A"))
      *cell = (struct copse_q){-1, 1};
    else if (!copse_scan_decimal(&word, cell) || cell->num < 0)
      return COPSE_OK;
  }
  *good = copse_scan_is_empty(&s);
  if (*good) m->rows[m->n_rows++] = row;
  return COPSE_OK;
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Reads the line of column numbers; a matrix without it can't be read. */
static copse_status open_matrix(struct matrix *m, struct copse_scan s, struct copse_err *err) {
  int column;
  m->n_columns = m->n_rows = 0;
  for (copse_scan_blanks(&s); copse_scan_index(&s, &column); copse_scan_blanks(&s)) {
    if (column < 0 || column >= MAX_DEVICES || m->n_columns >= MAX_DEVICES) return COPSE_OK;
    COPSE_DO(add_column(m, column, err));
  }
  m->open = m->n_columns > 0 && copse_scan_is_empty(&s);
  return COPSE_OK;
}

/* Whether the line is "SUM NAME 123.4" or "&&&& PERF NAME 123.4 +GB/s". */
static bool is_sum(struct copse_scan s, struct copse_scan *name) {
  return (copse_scan_literal(&s, "SUM ") || copse_scan_literal(&s, "&&&& PERF ")) &&
         copse_scan_word(&s, name);
}

static bool is_heading(const struct copse_scan *line, bool *is_latency) {
  struct copse_scan s = *line, t = *line;
  *is_latency = copse_scan_to(&t, "(ns)") && copse_scan_is_empty(&t);
  return *is_latency || (copse_scan_to(&s, "(GB/s)") && copse_scan_is_empty(&s));
}

struct text_reader {
  struct copse_nvbandwidth *out;
  struct matrix matrix;
  bool expects_columns;
  int damaged;
};

static void free_reader(struct text_reader *r) { free_matrix(&r->matrix); }

static copse_status read_line(struct text_reader *r, struct copse_scan line,
                              struct copse_err *err) {
  struct matrix *m = &r->matrix;
  struct copse_scan s = line, name;
  const char *text;
  int row;
  bool good, is_latency;
  if (copse_scan_literal(&s, "Device ") && s.at < s.end && *s.at >= '0' && *s.at <= '9')
    return read_device(r->out, s, err);
  s = line;
  if (is_sum(line, &name)) {
    COPSE_DO(copse_scan_text(&r->out->arena, &name, &text, err));
    COPSE_DO(keep(r->out, m, 0, m->n_rows, text, err));
    m->n_rows = 0;
    m->open = false;
    return COPSE_OK;
  }
  if (is_heading(&line, &is_latency)) {
    r->damaged += m->n_rows > 0; /* a matrix without its SUM has no name */
    m->n_rows = 0;
    m->open = false;
    m->is_latency = is_latency;
    r->expects_columns = true;
    return COPSE_OK;
  }
  if (r->expects_columns) {
    r->expects_columns = false;
    COPSE_DO(open_matrix(m, line, err));
    r->damaged += !m->open;
    return COPSE_OK;
  }
  if (!m->open) return COPSE_OK;
  copse_scan_blanks(&s);
  if (s.at == s.end) {
    m->open = false;
    return COPSE_OK;
  }
  good = copse_scan_index(&s, &row) && row >= 0 && row < MAX_DEVICES;
  if (good) COPSE_DO(add_row(m, row, s, &good, err));
  r->damaged += !good;
  return COPSE_OK;
}

static copse_status parse_text(const char *data, size_t size, struct copse_nvbandwidth *out,
                               struct copse_err *err) {
  COPSE_AT_END(free_reader) struct text_reader r = {.out = out};
  struct copse_scan text = {data, data + size}, line;
  copse_status status = COPSE_OK;
  while (status == COPSE_OK && copse_scan_line(&text, &line)) status = read_line(&r, line, err);
  r.damaged += r.matrix.n_rows > 0;
  out->n_damaged += r.damaged;
  return status;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static copse_status read_json_row(struct matrix *m, const cJSON *row, bool *good,
                                  struct copse_err *err) {
  COPSE_AT_END(copse_text_free) struct copse_text text = {0};
  int n = 0;
  COPSE_JSON_EACH (cell, row) {
    if (m->n_rows == 0 && n < MAX_DEVICES) COPSE_DO(add_column(m, n, err));
    n++;
    copse_text_add(&text, " %s", copse_json_is_string(cell) ? cell->valuestring : "?");
  }
  COPSE_DO(copse_text_status(&text, err));
  *good = n > 0 && n == m->n_columns && m->n_rows < 3 * MAX_DEVICES;
  if (!*good) return COPSE_OK;
  struct copse_scan s = {text.data, text.data + text.size};
  return add_row(m, m->n_rows, s, good, err);
}

/* Keeps a test's matrices. The three of a bidirectional test stand in one, below each other: they
 * are parted, and named as in the text. */
static copse_status keep_json(struct copse_nvbandwidth *out, struct matrix *m, const char *name,
                              struct copse_err *err) {
  static const char *const parts[] = {"1", "2", "_total"};
  bool three = strstr(name, "device_to_device_bidirectional") && m->n_rows == 3 * m->n_columns;
  if (!three && m->n_rows > MAX_DEVICES) return COPSE_OK;
  const char *kind = strstr(name, "read") ? "_read" : "_write";
  if (!three) return keep(out, m, 0, m->n_rows, name, err);
  for (int i = 0; i < 3; i++) {
    const char *part = copse_arena_printf(&out->arena, "%s%s%s", name, i < 2 ? kind : "", parts[i]);
    if (!part) return copse_fail_nomem(err);
    for (int row = 0; row < m->n_columns; row++) m->rows[i * m->n_columns + row] = row;
    COPSE_DO(keep(out, m, i * m->n_columns, m->n_columns, part, err));
  }
  return COPSE_OK;
}

static copse_status read_testcase(const struct copse_json *json, const cJSON *item,
                                  struct copse_nvbandwidth *out, struct copse_err *err) {
  COPSE_AT_END(free_matrix) struct matrix m = {0};
  const cJSON *matrix =
      copse_json_is_object(item) ? copse_json_get(item, "bandwidth_matrix") : NULL;
  const char *name, *kept;
  bool good = true;
  if (!matrix) return COPSE_OK; /* waived, or failed */
  COPSE_DO(copse_json_get_string(json, item, "name", &name, err));
  COPSE_DO(copse_arena_text(&out->arena, name, &kept, err));
  m.is_latency = strstr(name, "latency") != NULL;
  if (copse_json_is_array(matrix))
    COPSE_JSON_EACH (row, matrix)
      if (good && copse_json_is_array(row)) COPSE_DO(read_json_row(&m, row, &good, err));
  out->n_damaged += !good;
  return good ? keep_json(out, &m, kept, err) : COPSE_OK;
}

static copse_status parse_json(const char *label, const char *data, size_t size,
                               struct copse_nvbandwidth *out, struct copse_err *err) {
  COPSE_AT_END(copse_json_free) struct copse_json json = {0};
  const cJSON *tests, *devices;
  COPSE_DO(copse_json_parse(label, data, size, &json, err));
  const cJSON *root =
      copse_json_is_object(json.root) ? copse_json_get(json.root, "nvbandwidth") : NULL;
  if (!copse_json_is_object(root))
    return copse_fail_at(err, COPSE_BAD_INPUT, label, 1, "no object \"nvbandwidth\"");
  devices = copse_json_get(root, "GPU Device list");
  if (copse_json_is_array(devices))
    COPSE_JSON_EACH (device, devices)
      if (copse_json_is_string(device)) {
        const char *text = device->valuestring;
        COPSE_DO(read_device(out, (struct copse_scan){text, text + strlen(text)}, err));
      }
  COPSE_DO(copse_json_get_array(&json, root, "testcases", &tests, err));
  COPSE_JSON_EACH (test, tests) COPSE_DO(read_testcase(&json, test, out, err));
  return COPSE_OK;
}

copse_status copse_nvbandwidth_parse(const char *label, const char *data, size_t size,
                                     struct copse_nvbandwidth *out, struct copse_err *err) {
  struct copse_scan text = {data, data + size};
  *out = (struct copse_nvbandwidth){0};
  while (text.at < text.end && strchr(" \t\r\n", *text.at)) text.at++;
  COPSE_DO(copse_scan_begins(&text, "{") ? parse_json(label, data, size, out, err)
                                         : parse_text(data, size, out, err));
  if (out->n_tests > 0) return COPSE_OK;
  return copse_fail_at(err, COPSE_BAD_INPUT, label, 0,
                       "no whole matrix of nvbandwidth; run \"nvbandwidth -t "
                       "device_to_device_memcpy_write_ce\" to its end");
}

/* ---- what was measured ----------------------------------------------------------------------- */

static void take_best(struct copse_q cell, struct copse_q *best) {
  if (copse_q_cmp(cell, *best) > 0) *best = cell;
}

static bool begins(const char *text, const char *start) {
  return strncmp(text, start, strlen(start)) == 0;
}

void copse_nvbandwidth_pairs(const struct copse_nvbandwidth *report, struct copse_q *pairs) {
  int n = report->n_devices;
  for (int i = 0; i < n * n; i++) pairs[i] = (struct copse_q){-1, 1};
  for (int t = 0; t < report->n_tests; t++) {
    const struct copse_nvbandwidth_test *test = &report->tests[t];
    bool write = begins(test->name, "device_to_device_memcpy_write_");
    if (!write && !begins(test->name, "device_to_device_memcpy_read_")) continue;
    for (int r = 0; r < test->n_rows; r++)
      for (int c = 0; c < test->n_columns; c++) {
        int row = test->rows[r], column = test->columns[c];
        take_best(test->cells[r * test->n_columns + c],
                  &pairs[write ? row * n + column : column * n + row]);
      }
  }
}

void copse_nvbandwidth_hosts(const struct copse_nvbandwidth *report, struct copse_q *to_gpu,
                             struct copse_q *to_host) {
  for (int i = 0; i < report->n_devices; i++) to_gpu[i] = to_host[i] = (struct copse_q){-1, 1};
  for (int t = 0; t < report->n_tests; t++) {
    const struct copse_nvbandwidth_test *test = &report->tests[t];
    bool back = begins(test->name, "device_to_host_memcpy_");
    if (!back && !begins(test->name, "host_to_device_memcpy_")) continue;
    for (int c = 0; c < test->n_columns; c++) /* the host is one row */
      take_best(test->cells[c], &(back ? to_host : to_gpu)[test->columns[c]]);
  }
}

struct rule {
  const char *src, *dst, *src_type, *dst_type; /* NULL: any */
  struct copse_q bandwidth, scale, latency;    /* num < 0: not given */
  bool duplex;
  long line;
};

struct copse_profile {
  const char *file;
  struct copse_q rates[COPSE_N_RATES]; /* zero: not given */
  struct copse_q costs[COPSE_N_COSTS]; /* num < 0: not given */
  struct rule *rules;                  /* [n_rules] */
  int n_rules;
  struct copse_nvbandwidth measured; /* rates in place of the above; no tests: none */
  struct copse_arena arena;          /* rules and texts */
};

/* Bounds the time, since every pattern is tried on every link. */
#define MAX_RULES 4096

/* By enum copse_rate and enum copse_cost. */
static const struct copse_json_key rate_keys[] = {
    {"nvlink", COPSE_JSON_POSITIVE, "GB/s of one NVLink and direction, such as 22.5"},
    {"xgmi", COPSE_JSON_POSITIVE, "GB/s of one xGMI link and direction, such as 45"},
    {"pcie", COPSE_JSON_POSITIVE, "GB/s of a PCIe link and direction, such as 24.1"},
    {"inter_cpu", COPSE_JSON_POSITIVE, "GB/s between two CPUs and direction, such as 20"},
    {"net", COPSE_JSON_POSITIVE, "GB/s of a NIC's port and direction, such as 24.1"},
    {0}};

static const struct copse_json_key cost_keys[] = {
    {"hop_us", COPSE_JSON_NOT_NEGATIVE, "us of a hop from rank to rank, such as 2"},
    {"message_us", COPSE_JSON_NOT_NEGATIVE, "us of it that keep the sender busy, such as 0.18"},
    {"reduce_GBps", COPSE_JSON_POSITIVE, "GB/s at which a rank adds, such as 400"},
    {"duplex", COPSE_JSON_NOT_NEGATIVE, "what both ways at once take over one, such as 1.6"},
    {0}};

void copse_profile_free(struct copse_profile *profile) {
  if (!profile) return;
  copse_nvbandwidth_free(&profile->measured);
  copse_arena_free(&profile->arena);
  free(profile);
}

#define refuse(json, line, ...) copse_fail_at(err, COPSE_BAD_INPUT, (json)->file, line, __VA_ARGS__)

static copse_status read_text(const struct copse_json *json, const cJSON *item, const char *key,
                              struct copse_profile *profile, const char **out,
                              struct copse_err *err) {
  const char *text = NULL;
  if (!copse_json_get(item, key)) return COPSE_OK;
  COPSE_DO(copse_json_get_string(json, item, key, &text, err));
  return copse_arena_text(&profile->arena, text, out, err);
}

static copse_status read_rule(const struct copse_json *json, const cJSON *item, const cJSON *parent,
                              struct copse_profile *profile, struct copse_err *err) {
  static const struct copse_json_key keys[] = {
      {"src", COPSE_JSON_STRING, "a pattern of node ids, such as \"h*.gpu*\""},
      {"dst", COPSE_JSON_STRING, "a pattern of node ids, such as \"h*.nvswitch\""},
      {"src_type", COPSE_JSON_STRING, "the type of nodes, such as \"nic\""},
      {"dst_type", COPSE_JSON_STRING, "the type of nodes, such as \"switch\""},
      {"bandwidth", COPSE_JSON_POSITIVE, "GB/s per direction, such as 270"},
      {"scale", COPSE_JSON_POSITIVE, "what the bandwidth is multiplied by, such as 0.95"},
      {"latency", COPSE_JSON_NOT_NEGATIVE, "us, such as 0.9"},
      {"duplex", COPSE_JSON_BOOL, "false for links from src to dst only"},
      {0}};
  const struct copse_q none = {-1, 1};
  struct rule rule = {.bandwidth = none, .scale = none, .latency = none, .duplex = true};
  COPSE_DO(copse_json_expect_object(json, item, parent, "a rule", keys, err));
  rule.line = copse_json_line(item, parent);
  COPSE_DO(read_text(json, item, "src", profile, &rule.src, err));
  COPSE_DO(read_text(json, item, "dst", profile, &rule.dst, err));
  COPSE_DO(read_text(json, item, "src_type", profile, &rule.src_type, err));
  COPSE_DO(read_text(json, item, "dst_type", profile, &rule.dst_type, err));
  COPSE_DO(copse_json_get_amount_or(json, item, "bandwidth", true, &rule.bandwidth, err));
  COPSE_DO(copse_json_get_amount_or(json, item, "scale", true, &rule.scale, err));
  COPSE_DO(copse_json_get_amount_or(json, item, "latency", false, &rule.latency, err));
  COPSE_DO(copse_json_get_bool_or(json, item, "duplex", true, &rule.duplex, err));
  if (rule.bandwidth.num > 0 && rule.scale.num > 0)
    return refuse(json, rule.line, "a rule with both \"bandwidth\" and \"scale\"; give one");
  if (rule.bandwidth.num < 0 && rule.scale.num < 0 && rule.latency.num < 0)
    return refuse(json, rule.line,
                  "a rule without \"bandwidth\", \"scale\" or \"latency\" changes nothing");
  if (profile->n_rules == MAX_RULES)
    return refuse(json, rule.line, "more than %d rules", MAX_RULES);
  profile->rules[profile->n_rules++] = rule;
  return COPSE_OK;
}

static copse_status read_costs(const struct copse_json *json, struct copse_profile *profile,
                               struct copse_err *err) {
  const cJSON *costs = copse_json_get(json->root, "costs");
  if (!costs) return COPSE_OK;
  COPSE_DO(copse_json_expect_object(json, costs, json->root, "\"costs\"", cost_keys, err));
  for (int i = 0; i < COPSE_N_COSTS; i++)
    COPSE_DO(copse_json_get_amount_or(json, costs, cost_keys[i].name, i == COPSE_COST_REDUCE,
                                      &profile->costs[i], err));
  if (profile->costs[COPSE_COST_DUPLEX].num >= 0 &&
      copse_q_cmp(profile->costs[COPSE_COST_DUPLEX], COPSE_Q_ONE) < 0)
    return copse_fail_at(err, COPSE_BAD_INPUT, json->file, copse_json_line(costs, json->root),
                         "\"duplex\" must be at least 1");
  return COPSE_OK;
}

static copse_status read_parts(const struct copse_json *json, struct copse_profile *profile,
                               struct copse_err *err) {
  static const struct copse_json_key keys[] = {
      {"format", COPSE_JSON_NEEDED | COPSE_JSON_STRING, "\"copse-profile/1\""},
      {"name", COPSE_JSON_STRING, "the name in reports, such as \"rack-7\""},
      {"description", COPSE_JSON_STRING, "one line about it, shown by copse topo --list"},
      {"source", COPSE_JSON_STRING, "where the numbers come from, one line"},
      {"rates", COPSE_JSON_OBJECT,
       "GB/s in place of constants, such as {\"nvlink\": 22.5, \"net\": 24.1}"},
      {"links", COPSE_JSON_ARRAY,
       "rules for links, such as [{\"src_type\": \"nic\", \"scale\": 0.95}]"},
      {"costs", COPSE_JSON_OBJECT, "what counts beside links, such as {\"hop_us\": 2}"},
      {0}};
  const cJSON *root = json->root, *rates = NULL, *links = NULL;
  COPSE_DO(copse_json_expect_format(json, "copse-profile/1", err));
  COPSE_DO(copse_json_expect_object(json, root, NULL, "a profile", keys, err));
  rates = copse_json_get(root, "rates");
  if (rates) {
    COPSE_DO(copse_json_expect_object(json, rates, root, "\"rates\"", rate_keys, err));
    for (int i = 0; i < COPSE_N_RATES; i++)
      COPSE_DO(
          copse_json_get_amount_or(json, rates, rate_keys[i].name, true, &profile->rates[i], err));
  }
  COPSE_DO(read_costs(json, profile, err));
  if (copse_json_get(root, "links")) {
    COPSE_DO(copse_json_get_array(json, root, "links", &links, err));
    size_t n = 0;
    COPSE_JSON_EACH (item, links) n++;
    COPSE_DO(COPSE_ARRAY(&profile->arena, n, profile->rules, err));
    COPSE_JSON_EACH (item, links) COPSE_DO(read_rule(json, item, root, profile, err));
  }
  return COPSE_OK;
}

static copse_status read_json(const char *label, const char *data, size_t size,
                              struct copse_profile *profile, struct copse_err *err) {
  COPSE_AT_END(copse_json_free) struct copse_json json = {0};
  COPSE_DO(copse_json_parse(label, data, size, &json, err));
  return read_parts(&json, profile, err);
}

copse_status copse_profile_parse(const char *label, const char *data, size_t size,
                                 struct copse_profile **out, struct copse_err *err) {
  *out = NULL;
  COPSE_DO(copse_calloc(1, sizeof **out, out, err));
  struct copse_profile *profile = *out;
  for (int i = 0; i < COPSE_N_COSTS; i++) profile->costs[i] = (struct copse_q){-1, 1};
  copse_status status = copse_arena_text(&profile->arena, label, &profile->file, err);
  if (status == COPSE_OK)
    status = copse_nvbandwidth_is(data, size)
                 ? copse_nvbandwidth_parse(label, data, size, &profile->measured, err)
                 : read_json(label, data, size, profile, err);
  if (status == COPSE_OK) return COPSE_OK;
  copse_profile_free(*out);
  *out = NULL;
  return status;
}

struct copse_q copse_profile_rate(const struct copse_profile *profile, enum copse_rate rate,
                                  struct copse_q nominal) {
  return profile && profile->rates[rate].num > 0 ? profile->rates[rate] : nominal;
}

struct copse_q copse_profile_cost(const struct copse_profile *profile, enum copse_cost cost) {
  return profile->costs[cost];
}

/* ---- what nvbandwidth measured ------------------------------------------------------------- */

struct measured {
  int n;
  struct copse_q *pairs;           /* [n * n] from GPU to GPU */
  struct copse_q *to_any, *to_cpu; /* [n] a GPU's best with another GPU, and with the host: the less
                                      of both ways, so that switches take in what they give out */
  int *device;                     /* [n_nodes] a GPU's number; -1: not measured */
};

static struct copse_q less(struct copse_q a, struct copse_q b) {
  return copse_q_cmp(a, b) < 0 ? a : b;
}

/* Finds the device of a node: "h1.gpu@0000:1b:00.0" by its bus id, "h1.gpu3" by its number. */
static int find_device(const struct copse_nvbandwidth *report, const struct copse_node *node) {
  const char *id = node->id + copse_host_prefix(node->id, NULL), *at = strchr(id, '@');
  int number = copse_numbered(id, "gpu");
  if (strcmp(node->type, "gpu") != 0) return -1;
  for (int i = 0; at && i < report->n_devices; i++) {
    const char *bus = report->devices[i].bus;
    if (bus[0] && strncmp(at + 1, bus, strlen(bus)) == 0) return i;
  }
  return number < report->n_devices ? number : -1;
}

static copse_status measure(const struct copse_nvbandwidth *report, const struct copse_topology *t,
                            struct copse_arena *scratch, struct measured *m,
                            struct copse_err *err) {
  size_t n = (size_t)report->n_devices;
  struct copse_q *from_any, *from_cpu;
  m->n = report->n_devices;
  COPSE_DO(COPSE_ARRAY(scratch, n * n, m->pairs, err));
  COPSE_DO(
      COPSE_ARRAYS(scratch, n, struct copse_q, err, &m->to_any, &m->to_cpu, &from_any, &from_cpu));
  COPSE_DO(COPSE_ARRAY(scratch, (size_t)t->n_nodes, m->device, err));
  copse_nvbandwidth_pairs(report, m->pairs);
  copse_nvbandwidth_hosts(report, from_cpu, m->to_cpu);
  for (int i = 0; i < m->n; i++) {
    m->to_any[i] = from_any[i] = (struct copse_q){-1, 1};
    for (int j = 0; j < m->n; j++) {
      struct copse_q out = m->pairs[i * m->n + j], in = m->pairs[j * m->n + i];
      if (i != j && copse_q_cmp(out, m->to_any[i]) > 0) m->to_any[i] = out;
      if (i != j && copse_q_cmp(in, from_any[i]) > 0) from_any[i] = in;
    }
    m->to_any[i] = less(m->to_any[i], from_any[i]);
    m->to_cpu[i] = less(m->to_cpu[i], from_cpu[i]);
  }
  for (int v = 0; v < t->n_nodes; v++) m->device[v] = find_device(report, &t->nodes[v]);
  return COPSE_OK;
}

/* Returns a link's bandwidth as measured; num <= 0: it isn't. */
static struct copse_q measured_bandwidth(const struct measured *m, const struct copse_topology *t,
                                         const struct copse_link *link) {
  int src = m->device[link->src], dst = m->device[link->dst];
  int gpu = src >= 0 ? src : dst;
  const char *other = t->nodes[src >= 0 ? link->dst : link->src].type;
  if (src >= 0 && dst >= 0) return m->pairs[src * m->n + dst];
  if (gpu >= 0 && strcmp(other, "nvswitch") == 0) return m->to_any[gpu];
  if (gpu >= 0 && (strcmp(other, "pcie") == 0 || strcmp(other, "cpu") == 0)) return m->to_cpu[gpu];
  return (struct copse_q){-1, 1};
}

static copse_status put_measured(const struct copse_profile *profile,
                                 const struct copse_notes *notes, const struct copse_topology *t,
                                 struct copse_link *links, struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct measured m = {0};
  int n = 0;
  COPSE_DO(measure(&profile->measured, t, &scratch, &m, err));
  for (int i = 0; i < t->n_links; i++) {
    struct copse_q bandwidth = measured_bandwidth(&m, t, &links[i]);
    if (bandwidth.num <= 0) continue;
    links[i].bandwidth = bandwidth;
    links[i].guess = COPSE_GUESS_NONE;
    n++;
  }
  copse_note(notes, "%s: nvbandwidth measured %d of the %d links of %s%s", profile->file, n,
             t->n_links, t->name,
             n > 0 ? "" : "; GPUs go by bus id, and by number where the topology has no bus ids");
  if (profile->measured.n_damaged > 0)
    copse_note(notes, "%s: %d lines or matrices of nvbandwidth are cut or damaged, and left out",
               profile->file, profile->measured.n_damaged);
  return COPSE_OK;
}

/* ---- rules ------------------------------------------------------------------------------ */

static bool fits(const char *pattern, const char *type, const struct copse_node *node) {
  if (type && strcmp(type, node->type) != 0) return false;
  return !pattern || fnmatch(pattern, node->id, 0) == 0;
}

static bool matches(const struct rule *rule, const struct copse_node *src,
                    const struct copse_node *dst) {
  if (fits(rule->src, rule->src_type, src) && fits(rule->dst, rule->dst_type, dst)) return true;
  return rule->duplex && fits(rule->src, rule->src_type, dst) &&
         fits(rule->dst, rule->dst_type, src);
}

/* Finds the last rule that matches, or -1. */
static int find_rule(const struct copse_profile *profile, const struct copse_topology *t,
                     const struct copse_link *link) {
  for (int i = profile->n_rules - 1; i >= 0; i--)
    if (matches(&profile->rules[i], &t->nodes[link->src], &t->nodes[link->dst])) return i;
  return -1;
}

static copse_status change(const struct rule *rule, struct copse_link *link,
                           struct copse_err *err) {
  if (rule->latency.num >= 0) link->latency = rule->latency;
  if (rule->bandwidth.num > 0) link->bandwidth = rule->bandwidth;
  if (rule->bandwidth.num > 0 || rule->scale.num > 0) link->guess = COPSE_GUESS_NONE;
  if (rule->scale.num <= 0) return COPSE_OK;
  return copse_q_mul(link->bandwidth, rule->scale, &link->bandwidth, err);
}

static copse_status change_links(const struct copse_profile *profile,
                                 const struct copse_topology *t, bool *used,
                                 struct copse_link *links, struct copse_err *err) {
  for (int i = 0; i < t->n_links; i++) {
    int rule = find_rule(profile, t, &t->links[i]);
    links[i] = t->links[i];
    if (rule < 0) continue;
    used[rule] = true;
    COPSE_DO(change(&profile->rules[rule], &links[i], err));
  }
  return COPSE_OK;
}

copse_status copse_profile_apply(const struct copse_profile *profile,
                                 const struct copse_notes *notes, struct copse_topology **topology,
                                 struct copse_err *err) {
  struct copse_topology draft = **topology, *changed;
  size_t n_links = (size_t)draft.n_links, n_rules = (size_t)profile->n_rules;
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct copse_link *links;
  bool *used;
  if (n_rules == 0 && profile->measured.n_tests == 0) return COPSE_OK;
  COPSE_DO(COPSE_ARRAY(&scratch, n_rules, used, err));
  COPSE_DO(COPSE_ARRAY(&scratch, n_links, links, err));
  COPSE_DO(change_links(profile, *topology, used, links, err));
  if (profile->measured.n_tests > 0) COPSE_DO(put_measured(profile, notes, *topology, links, err));
  draft.links = links;
  COPSE_DO(copse_topology_copy(&draft, profile->file, &changed, err));
  for (int i = 0; i < profile->n_rules; i++)
    if (!used[i])
      copse_note(notes, "%s:%ld: the rule changes no link of %s", profile->file,
                 profile->rules[i].line, (*topology)->name);
  copse_topology_free(*topology);
  *topology = changed;
  return COPSE_OK;
}
