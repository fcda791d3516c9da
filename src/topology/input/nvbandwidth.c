/*
 * nvbandwidth's text and JSON. The text has for each test a line of what is measured, which ends in
 * "(GB/s)" or "(ns)", one of column numbers, rows, an empty line, and "SUM NAME VALUE", which names
 * the matrix (a bidirectional test prints three). The form follows nvbandwidth's testcase.cpp,
 * output.cpp and json_output.cpp.
 */
#include "topology/input/nvbandwidth.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"

#define MAX_DEVICES 1024
#define MAX_TESTS 4096

void copse_nvbandwidth_free(struct copse_nvbandwidth *report) {
  free(report->devices);
  free(report->tests);
  copse_arena_free(&report->arena);
  *report = (struct copse_nvbandwidth){0};
}

bool copse_nvbandwidth_is(const char *data, size_t size) {
  struct copse_scan text = {data, data + size}, json = text, version = text;
  if (copse_scan_to(&version, "nvbandwidth Version:")) return true;
  return copse_scan_to(&json, "\"nvbandwidth\"") && copse_scan_to(&json, "\"testcases\"");
}

/* ---- devices --------------------------------------------------------------------------------- */

/* "(00000000:1B:00)" becomes "0000:1b:00", as topologies have it. */
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
  COPSE_DO(COPSE_GROW(out->devices, out->device_capacity, (size_t)index + 1, err));
  for (; out->n_devices <= index; out->n_devices++)
    out->devices[out->n_devices] = (struct copse_nvbandwidth_device){"", ""};
  return COPSE_OK;
}

/* "0: NVIDIA H100 80GB HBM3 (00000000:1b:00)" */
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
  COPSE_DO(COPSE_GROW(out->tests, out->test_capacity, (size_t)out->n_tests + 1, err));
  out->tests[out->n_tests++] = test;
  return COPSE_OK;
}

static copse_status add_column(struct matrix *m, int column, struct copse_err *err) {
  COPSE_DO(COPSE_GROW(m->columns, m->column_capacity, (size_t)m->n_columns + 1, err));
  m->columns[m->n_columns++] = column;
  return COPSE_OK;
}

/* One row's cells: all columns', or the row isn't one. */
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

/* The line of column numbers; a matrix without it can't be read. */
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

/* "SUM NAME 123.4", "&&&& PERF NAME 123.4 +GB/s" */
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

/* The three matrices of a bidirectional test stand in one, below each other: they are parted, and
 * named as in the text. */
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
