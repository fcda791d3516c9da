/*
 * Reads nccl-tests and rccl-tests: the table, whose columns go by its header line (they differ with
 * versions and options), nccl-tests' JSON (-J), and rccl-tests' CSV and JSON (-Z).
 */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "nccl/reports.h"

/* ---- parts of a report ----------------------------------------------------------------------- */

#define MAX_ROWS (1 << 20)
#define MAX_RANKS (1 << 22)

static copse_status add_row(struct copse_tests *out, const struct copse_tests_row *row,
                            struct copse_err *err) {
  if (out->n_rows >= MAX_ROWS) return COPSE_OK;
  return COPSE_PUSH(out->rows, out->n_rows, out->row_capacity, err, *row);
}

static copse_status add_device(struct copse_tests *out, const struct copse_tests_device *device,
                               struct copse_err *err) {
  if (device->rank < 0 || device->rank >= MAX_RANKS || out->n_devices >= MAX_ROWS) {
    out->n_damaged++;
    return COPSE_OK;
  }
  return COPSE_PUSH(out->devices, out->n_devices, out->device_capacity, err, *device);
}

/* Returns the command line's name of a collective: that of "all_reduce_perf", "AllReduce" or a
 * path. */
static const char *collective_of(struct copse_scan name) {
  static const struct {
    const char *tests, *calls, *ours;
  } known[] = {{"all_reduce", "AllReduce", "allreduce"},
               {"all_gather", "AllGather", "allgather"},
               {"reduce_scatter", "ReduceScatter", "reduce_scatter"},
               {"broadcast", "Broadcast", "broadcast"},
               {"reduce", "Reduce", "reduce"},
               {"alltoall", "AlltoAll", "alltoall"},
               {"sendrecv", "SendRecv", "sendrecv"},
               {"gather", "Gather", "gather"},
               {"scatter", "Scatter", "scatter"},
               {"hypercube", "HyperCube", "hypercube"}};
  struct copse_scan slash = name;
  while (copse_scan_to(&slash, "/")) name.at = slash.at;
  if (name.end - name.at > 5 && memcmp(name.end - 5, "_perf", 5) == 0) name.end -= 5;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (copse_scan_is(&name, known[i].tests) || copse_scan_is(&name, known[i].calls))
      return known[i].ours;
  return "";
}

/*
 * Names the collective of tables that don't (before nccl-tests 2.17.1) where busbw tells: it is
 * algbw * 2 (n - 1) / n for an allreduce only, and with a reduction (n - 1) / n for a
 * reduce_scatter only. The numbers are rounded: the row of the largest bandwidth decides, to 2 %.
 */
static const char *guess_collective(const struct copse_tests *t) {
  const struct copse_tests_row *best = NULL;
  int64_t n = t->n_ranks;
  for (int i = 0; i < t->n_rows; i++) {
    const struct copse_tests_row *row = &t->rows[i];
    if (row->out.present && (!best || copse_q_cmp(row->out.algbw, best->out.algbw) > 0)) best = row;
  }
  if (!best || n < 3 || best->out.algbw.num <= 0 || best->root >= 0) return "";
  double ratio = copse_q_to_double(best->out.busbw) / copse_q_to_double(best->out.algbw);
  double once = (double)(n - 1) / (double)n;
  bool reduces = strcmp(best->redop, "none") != 0;
  if (reduces && ratio > 1.96 * once && ratio < 2.04 * once) return "allreduce";
  if (reduces && ratio > 0.98 * once && ratio < 1.02 * once) return "reduce_scatter";
  return "";
}

/* ---- the table ------------------------------------------------------------------------------- */

enum column {
  COLUMN_SIZE,
  COLUMN_COUNT,
  COLUMN_TYPE,
  COLUMN_REDOP,
  COLUMN_ROOT,
  COLUMN_TIME,
  COLUMN_ALGBW,
  COLUMN_BUSBW,
  COLUMN_WRONG,
  COLUMN_OTHER
};
#define MAX_COLUMNS 40

struct table {
  struct copse_tests *out;
  const char *collective;
  enum column columns[MAX_COLUMNS];
  int n_columns, n_front, n_group; /* before the first "time"; of a block */
  bool begun;                      /* the tool's head was seen */
  bool in_place_only;
  struct copse_err *err;
};

/* Finds a column by its name in a table's header. */
static enum column column_of(const struct copse_scan *word) {
  static const struct {
    const char *name;
    enum column column;
  } known[] = {{"size", COLUMN_SIZE},   {"count", COLUMN_COUNT},
               {"type", COLUMN_TYPE},   {"redop", COLUMN_REDOP},
               {"root", COLUMN_ROOT},   {"time", COLUMN_TIME},
               {"algbw", COLUMN_ALGBW}, {"busbw", COLUMN_BUSBW},
               {"#wrong", COLUMN_WRONG}
               /* "error" of old tables is a difference, not a number of wrong elements */};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (copse_scan_is(word, known[i].name)) return known[i].column;
  return COLUMN_OTHER;
}

static void read_header(struct table *t, struct copse_scan s) {
  struct copse_scan word;
  int n = 0, first = -1, second = -1;
  while (n < MAX_COLUMNS && copse_scan_word(&s, &word)) {
    t->columns[n] = column_of(&word);
    if (t->columns[n] == COLUMN_TIME && first >= 0 && second < 0) second = n;
    if (t->columns[n] == COLUMN_TIME && first < 0) first = n;
    n++;
  }
  t->n_columns = n;
  t->n_front = first;
  t->n_group = (second < 0 ? n : second) - first;
}

/* Assumes what nccl-tests prints without options, for a table whose header is lost. */
static void assume_header(struct table *t) {
  static const char text[] =
      "size count type redop root time algbw busbw #wrong time algbw busbw #wrong";
  read_header(t, (struct copse_scan){text, text + sizeof text - 1});
}

/* Reads the count of wrong elements; rccl-tests marks what is beyond its threshold: "5*". */
static bool read_wrong(struct copse_scan word, int64_t *out) {
  struct copse_q value;
  *out = -1;
  if (copse_scan_is(&word, "N/A")) return true;
  if (word.end > word.at && word.end[-1] == '*') word.end--;
  if (!copse_scan_decimal(&word, &value) || value.num < 0 || value.den != 1) return false;
  *out = value.num;
  return true;
}

static bool read_cell(enum column column, struct copse_scan word, struct copse_tests_time *time) {
  switch (column) {
    case COLUMN_TIME: return copse_scan_decimal(&word, &time->time_us) && time->time_us.num >= 0;
    case COLUMN_ALGBW: return copse_scan_decimal(&word, &time->algbw) && time->algbw.num >= 0;
    case COLUMN_BUSBW: return copse_scan_decimal(&word, &time->busbw) && time->busbw.num >= 0;
    case COLUMN_WRONG: return read_wrong(word, &time->wrong);
    default: return true;
  }
}

static bool read_block(const struct table *t, const struct copse_scan *words, int first,
                       struct copse_tests_time *time) {
  for (int i = 0; i < t->n_group; i++)
    if (!read_cell(t->columns[first + i], words[i], time)) return false;
  return time->present = true;
}

static bool read_front(struct table *t, const struct copse_scan *words, struct copse_tests_row *row,
                       struct copse_scan *type, struct copse_scan *redop) {
  for (int i = 0; i < t->n_front; i++) {
    struct copse_scan word = words[i];
    bool good = true;
    if (t->columns[i] == COLUMN_SIZE) good = copse_scan_int(&word, false, &row->bytes);
    if (t->columns[i] == COLUMN_COUNT) good = copse_scan_int(&word, false, &row->count);
    if (t->columns[i] == COLUMN_ROOT) good = copse_scan_index(&word, &row->root);
    if (t->columns[i] == COLUMN_TYPE) *type = word;
    if (t->columns[i] == COLUMN_REDOP) *redop = word;
    if (!good || (t->columns[i] <= COLUMN_ROOT && t->columns[i] != COLUMN_TYPE &&
                  t->columns[i] != COLUMN_REDOP && word.at != word.end))
      return false;
  }
  return true;
}

/* Reads a row: the front, then a block or two. Where there is one of two, the first was left
 * blank. */
static copse_status read_row(struct table *t, struct copse_scan line) {
  struct copse_scan words[MAX_COLUMNS], s = line, type = {0}, redop = {0};
  struct copse_tests_row row = {.collective = t->collective, .root = -1, .redop = "none"};
  row.out.wrong = row.in.wrong = -1;
  int n = 0;
  while (n < MAX_COLUMNS && copse_scan_word(&s, &words[n])) n++;
  if (t->n_columns == 0) assume_header(t);
  int blocks =
      t->n_front + 2 * t->n_group <= t->n_columns && n >= t->n_front + 2 * t->n_group ? 2 : 1;
  bool good =
      t->n_front > 0 && n >= t->n_front + t->n_group && read_front(t, words, &row, &type, &redop);
  if (good && blocks == 2)
    good = read_block(t, words + t->n_front, t->n_front, &row.out) &&
           read_block(t, words + t->n_front + t->n_group, t->n_front + t->n_group, &row.in);
  else if (good && t->n_columns < t->n_front + 2 * t->n_group && !t->in_place_only)
    good = read_block(t, words + t->n_front, t->n_front, &row.out);
  else if (good)
    good = read_block(t, words + t->n_front, t->n_front, &row.in);
  if (!good || !type.at) {
    t->out->n_damaged++;
    return COPSE_OK;
  }
  COPSE_DO(copse_scan_text(&t->out->arena, &type, &row.type, t->err));
  if (redop.at) COPSE_DO(copse_scan_text(&t->out->arena, &redop, &row.redop, t->err));
  return add_row(t->out, &row, t->err);
}

/* Reads "  Rank  0 Group  0 Pid  52817 on     node-a device  0 [0000:1b:00] NVIDIA H100 80GB
 * HBM3". */
static copse_status read_device(struct table *t, struct copse_scan s) {
  struct copse_tests_device device = {.bus = ""};
  struct copse_scan host, bus, rest = s;
  bool good;
  copse_scan_blanks(&s);
  good = copse_scan_index(&s, &device.rank) && copse_scan_to(&s, "Pid ");
  copse_scan_blanks(&s);
  good = good && copse_scan_int(&s, false, &device.pid) && copse_scan_literal(&s, " on ") &&
         copse_scan_word(&s, &host) && copse_scan_to(&s, "device ");
  copse_scan_blanks(&s);
  good = good && copse_scan_index(&s, &device.device) && copse_scan_to(&s, "[");
  bus.at = s.at;
  good = good && copse_scan_to(&s, "]");
  if (!good) {
    t->out->n_damaged++;
    return COPSE_OK;
  }
  bus.end = s.at - 1;
  copse_scan_blanks(&s);
  rest.at = s.at;
  COPSE_DO(copse_scan_text(&t->out->arena, &host, &device.host, t->err));
  COPSE_DO(copse_scan_text(&t->out->arena, &bus, &device.bus, t->err));
  COPSE_DO(copse_scan_text(&t->out->arena, &rest, &device.name, t->err));
  if (device.rank >= t->out->n_ranks && device.rank < MAX_RANKS) t->out->n_ranks = device.rank + 1;
  return add_device(t->out, &device, t->err);
}

/* Reads a line that begins with '#'. */
static copse_status read_remark(struct table *t, struct copse_scan s) {
  struct copse_scan all = s, header = s, word;
  copse_scan_blanks(&s);
  if (copse_scan_literal(&s, "nccl-tests version ") ||
      copse_scan_literal(&s, "rccl-tests version "))
    return copse_scan_word(&s, &word)
               ? copse_scan_text(&t->out->arena, &word, &t->out->version, t->err)
               : COPSE_OK;
  if (copse_scan_literal(&s, "Collective test starting:")) {
    t->collective = copse_scan_word(&s, &word) ? collective_of(word) : "";
    return COPSE_OK;
  }
  t->begun = t->begun || copse_scan_begins(&s, "Using devices");
  if (copse_scan_literal(&s, "Rank ")) return read_device(t, s);
  if (copse_scan_literal(&s, "Out of bounds values :")) {
    copse_scan_blanks(&s);
    if (!copse_scan_int(&s, false, &t->out->n_wrong)) t->out->n_damaged++;
    return COPSE_OK;
  }
  if (copse_scan_literal(&s, "Avg bus bandwidth")) {
    if (!copse_scan_to(&s, ":") || !copse_scan_number(&s, &t->out->average_busbw))
      t->out->n_damaged++;
    return COPSE_OK;
  }
  if (copse_scan_to(&all, "in-place") && copse_scan_is_empty(&all)) {
    t->in_place_only = !copse_scan_to(&s, "out-of-place");
    return COPSE_OK;
  }
  if (copse_scan_word(&header, &word) && copse_scan_is(&word, "size")) {
    copse_scan_blanks(&s);
    read_header(t, s);
  }
  return COPSE_OK;
}

/* Whether the line is a table's row, which begins with two numbers and a word; others' lines may
 * stand between. */
static bool is_row(struct copse_scan s) {
  struct copse_scan word;
  int64_t number;
  copse_scan_blanks(&s);
  if (!copse_scan_int(&s, false, &number) || !copse_scan_begins(&s, " ")) return false;
  copse_scan_blanks(&s);
  if (!copse_scan_int(&s, false, &number) || !copse_scan_begins(&s, " ")) return false;
  return copse_scan_word(&s, &word) && word.at[0] >= 'a' && word.at[0] <= 'z';
}

/* Passes over the mark that mpirun and srun may put before each line: "[1,0]<stdout>:", "0: ". */
static void pass_launcher(struct copse_scan *s) {
  struct copse_scan rest = *s;
  int64_t number;
  bool mpirun = copse_scan_literal(&rest, "[") && copse_scan_int(&rest, false, &number) &&
                copse_scan_literal(&rest, ",") && copse_scan_int(&rest, false, &number) &&
                copse_scan_literal(&rest, "]<std") && copse_scan_to(&rest, ">:");
  if (!mpirun) rest = *s;
  if (!mpirun) copse_scan_blanks(&rest);
  if (mpirun || (copse_scan_int(&rest, false, &number) && copse_scan_literal(&rest, ": ")))
    *s = rest;
}

/* ---- rccl-tests' CSV ------------------------------------------------------------------------- */

static bool next_field(struct copse_scan *s, struct copse_scan *field) {
  if (s->at > s->end) return false;
  field->at = s->at;
  while (s->at < s->end && *s->at != ',') s->at++;
  field->end = s->at++;
  if (field->end - field->at >= 2 && field->at[0] == '"' && field->end[-1] == '"') {
    field->at++;
    field->end--;
  }
  return true;
}

struct csv {
  char names[24][24];
  int n;
};

static void read_csv_header(struct csv *csv, struct copse_scan s) {
  struct copse_scan field;
  for (csv->n = 0; csv->n < 24 && next_field(&s, &field); csv->n++) {
    size_t n = (size_t)(field.end - field.at);
    if (n > 23) n = 23;
    memcpy(csv->names[csv->n], field.at, n);
    csv->names[csv->n][n] = '\0';
  }
}

/* Takes a value of a row of rccl-tests, of CSV or JSON (whose names differ in capitals only). */
static bool take_rccl(struct copse_tests *out, const char *name, struct copse_scan value,
                      struct copse_tests_row *row, struct copse_tests_time *time, bool *in_place,
                      struct copse_scan *type, struct copse_scan *redop) {
  int64_t number;
  struct copse_scan copy = value;
  if (strcmp(name, "size") == 0) return copse_scan_int(&copy, false, &row->bytes);
  if (strcmp(name, "collective") == 0 || strcmp(name, "name") == 0)
    row->collective = collective_of(value);
  if (strcmp(name, "ranks") == 0 || strcmp(name, "gpus") == 0) {
    if (!copse_scan_int(&copy, false, &number) || number > MAX_RANKS) return false;
    out->n_ranks = (int)number;
  }
  if (strcmp(name, "type") == 0) *type = value;
  if (strcmp(name, "redop") == 0) *redop = value;
  if (strcasecmp(name, "inplace") == 0)
    *in_place = copse_scan_is(&value, "1") || copse_scan_is(&value, "true");
  if (strcmp(name, "time") == 0) return read_cell(COLUMN_TIME, value, time);
  if (strcasecmp(name, "algbw") == 0) return read_cell(COLUMN_ALGBW, value, time);
  if (strcasecmp(name, "busbw") == 0) return read_cell(COLUMN_BUSBW, value, time);
  if (strcmp(name, "#wrong") == 0 || strcmp(name, "wrong") == 0)
    return read_cell(COLUMN_WRONG, value, time);
  return true;
}

struct rccl_row {
  struct copse_tests_row row;
  struct copse_tests_time time;
  struct copse_scan type, redop;
  bool in_place, good;
};

static const struct rccl_row new_rccl_row = {
    .row = {.collective = "", .root = -1, .redop = "none"}, .time = {.wrong = -1}, .good = true};

/* Adds a row. Placements of one size stand in rows of their own, one behind the other. */
static copse_status add_rccl_row(struct copse_tests *out, struct rccl_row *r,
                                 struct copse_err *err) {
  if (!r->good || !r->type.at || r->time.time_us.den == 0) {
    out->n_damaged++;
    return COPSE_OK;
  }
  r->time.present = true;
  *(r->in_place ? &r->row.in : &r->row.out) = r->time;
  COPSE_DO(copse_scan_text(&out->arena, &r->type, &r->row.type, err));
  if (r->redop.at) COPSE_DO(copse_scan_text(&out->arena, &r->redop, &r->row.redop, err));
  return add_row(out, &r->row, err);
}

static copse_status read_csv_row(struct copse_tests *out, const struct csv *csv,
                                 struct copse_scan s, struct copse_err *err) {
  struct rccl_row r = new_rccl_row;
  struct copse_scan field;
  int i = 0;
  for (; i < csv->n && next_field(&s, &field); i++)
    r.good =
        take_rccl(out, csv->names[i], field, &r.row, &r.time, &r.in_place, &r.type, &r.redop) &&
        r.good;
  r.good = r.good && i == csv->n;
  return add_rccl_row(out, &r, err);
}

/* ---- text ------------------------------------------------------------------------------------ */

static copse_status parse_text(const char *data, size_t size, struct copse_tests *out,
                               struct copse_err *err) {
  struct table t = {.out = out, .collective = "", .err = err};
  struct copse_scan text = {data, data + size}, line;
  struct csv csv = {.n = 0};
  while (copse_scan_line(&text, &line)) {
    pass_launcher(&line);
    struct copse_scan s = line;
    copse_scan_blanks(&s);
    if (copse_scan_begins(&s, "numCycle,")) {
      read_csv_header(&csv, s);
    } else if (csv.n > 0 && memchr(s.at, ',', (size_t)(s.end - s.at))) {
      COPSE_DO(read_csv_row(out, &csv, s, err));
    } else if (copse_scan_literal(&s, "#")) {
      COPSE_DO(read_remark(&t, s));
    } else if (is_row(line)) {
      COPSE_DO(read_row(&t, line));
    }
  }
  out->is_cut = t.begun && out->n_wrong < 0 && out->average_busbw.num < 0;
  const char *guess = guess_collective(out);
  for (int i = 0; i < out->n_rows; i++)
    if (!out->rows[i].collective[0]) out->rows[i].collective = guess;
  return COPSE_OK;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Reads a number, or a string that holds one; "nan" is none. */
static bool json_number(const struct copse_json *json, const cJSON *object, const char *key,
                        struct copse_q *out) {
  const cJSON *item = copse_json_get(object, key);
  if (!item || !(copse_json_is_number(item) || copse_json_is_string(item))) return false;
  if (copse_json_is_number(item))
    return copse_json_rational(json, item, object, key, out, NULL) == COPSE_OK;
  return copse_scan_decimal(
      &(struct copse_scan){item->valuestring, item->valuestring + strlen(item->valuestring)}, out);
}

static bool json_int(const struct copse_json *json, const cJSON *object, const char *key,
                     int64_t *out) {
  struct copse_q value;
  if (!json_number(json, object, key, &value) || value.den != 1) return false;
  *out = value.num;
  return true;
}

/* Returns the member's text, "" where there is none. */
static struct copse_scan json_text(const cJSON *object, const char *key) {
  const char *text = copse_json_text_or(object, key, "");
  return (struct copse_scan){text, text + strlen(text)};
}

/* Reads {"time", "alg_bw", "bus_bw", "nwrong"}; with -T "cpu_time". */
static bool read_json_time(const struct copse_json *json, const cJSON *item,
                           struct copse_tests_time *time) {
  time->wrong = -1;
  if (!copse_json_is_object(item)) return false;
  time->present = (json_number(json, item, "time", &time->time_us) ||
                   json_number(json, item, "cpu_time", &time->time_us)) &&
                  json_number(json, item, "alg_bw", &time->algbw) &&
                  json_number(json, item, "bus_bw", &time->busbw);
  if (time->present && !json_int(json, item, "nwrong", &time->wrong)) time->wrong = -1;
  return time->present;
}

static copse_status finish_row(struct copse_tests *out, struct copse_tests_row *row,
                               struct copse_scan type, struct copse_scan redop,
                               struct copse_err *err) {
  COPSE_DO(copse_scan_text(&out->arena, &type, &row->type, err));
  COPSE_DO(copse_scan_text(&out->arena, &redop, &row->redop, err));
  return add_row(out, row, err);
}

static copse_status read_json_row(const struct copse_json *json, const cJSON *item,
                                  const char *collective, struct copse_tests *out,
                                  struct copse_err *err) {
  struct copse_tests_row row = {.collective = collective, .root = -1};
  struct copse_scan root = json_text(item, "root");
  int64_t number = -1;
  bool good = copse_json_is_object(item) && json_int(json, item, "size", &row.bytes) &&
              json_int(json, item, "count", &row.count);
  good = good && (int)read_json_time(json, copse_json_get(item, "out_of_place"), &row.out) +
                         (int)read_json_time(json, copse_json_get(item, "in_place"), &row.in) >
                     0;
  copse_scan_blanks(&root);
  if (!copse_scan_index(&root, &row.root) && json_int(json, item, "root", &number) &&
      number >= -1 && number < MAX_RANKS)
    row.root = (int)number;
  if (good) return finish_row(out, &row, json_text(item, "type"), json_text(item, "redop"), err);
  out->n_damaged++;
  return COPSE_OK;
}

static copse_status read_json_device(const struct copse_json *json, const cJSON *item,
                                     struct copse_tests *out, struct copse_err *err) {
  struct copse_tests_device device = {0};
  struct copse_scan host = json_text(item, "hostname"), name = json_text(item, "device_info");
  struct copse_scan bus = json_text(item, "device_hex");
  int64_t rank = -1, number = -1;
  if (!json_int(json, item, "rank", &rank) || rank < 0 || rank >= MAX_RANKS ||
      !json_int(json, item, "device", &number) || number < 0 || number >= MAX_RANKS) {
    out->n_damaged++;
    return COPSE_OK;
  }
  device.rank = (int)rank;
  device.device = (int)number;
  if (!json_int(json, item, "pid", &device.pid)) device.pid = -1;
  COPSE_DO(copse_scan_text(&out->arena, &host, &device.host, err));
  COPSE_DO(copse_scan_text(&out->arena, &bus, &device.bus, err));
  COPSE_DO(copse_scan_text(&out->arena, &name, &device.name, err));
  return add_device(out, &device, err);
}

/* Reads the collective from the program's name, which is its first argument. */
static const char *json_collective(const cJSON *root) {
  const cJSON *args = copse_json_get(root, "args");
  const cJSON *first = args && copse_json_is_array(args) ? copse_json_first(args) : NULL;
  const char *text = first && copse_json_is_string(first) ? first->valuestring : "";
  return collective_of((struct copse_scan){text, text + strlen(text)});
}

/* Reads what nccl-tests writes, an object. Its devices are the first of each process, so the
 * number of ranks is not there. */
static copse_status read_nccl_json(const struct copse_json *json, struct copse_tests *out,
                                   struct copse_err *err) {
  const cJSON *root = json->root, *results, *config = copse_json_get(root, "config");
  const cJSON *devices = config ? copse_json_get(config, "devices") : NULL;
  const cJSON *bad = copse_json_get(root, "out_of_bounds");
  const cJSON *average = copse_json_get(root, "average_bus_bandwidth");
  const char *collective = json_collective(root);
  COPSE_DO(copse_json_get_array(json, root, "results", &results, err));
  COPSE_JSON_EACH (row, results) COPSE_DO(read_json_row(json, row, collective, out, err));
  if (devices && copse_json_is_array(devices))
    COPSE_JSON_EACH (device, devices) COPSE_DO(read_json_device(json, device, out, err));
  if (!bad || !json_int(json, bad, "count", &out->n_wrong)) out->n_wrong = -1;
  if (!average || !json_number(json, average, "bandwidth", &out->average_busbw))
    out->average_busbw = (struct copse_q){-1, 1};
  return COPSE_OK;
}

/* Reads the JSON of rccl-tests: a list of rows, each with all names. */
static copse_status read_rccl_json(const struct copse_json *json, struct copse_tests *out,
                                   struct copse_err *err) {
  COPSE_JSON_EACH (item, json->root) {
    struct copse_tests_row row = {.root = -1};
    struct copse_tests_time time = {.present = true, .wrong = -1};
    struct copse_scan in_place = json_text(item, "inPlace");
    const cJSON *flag = copse_json_get(item, "inPlace");
    int64_t ranks = 0, number = 0;
    bool good = copse_json_is_object(item) && json_int(json, item, "size", &row.bytes) &&
                json_number(json, item, "time", &time.time_us) &&
                json_number(json, item, "algBw", &time.algbw) &&
                json_number(json, item, "busBw", &time.busbw);
    if (!good) {
      out->n_damaged++;
      continue;
    }
    if (!json_int(json, item, "wrong", &time.wrong)) time.wrong = -1;
    if (!json_int(json, item, "ranks", &ranks)) (void)json_int(json, item, "gpus", &ranks);
    if (ranks > 0 && ranks < MAX_RANKS) out->n_ranks = (int)ranks;
    bool in = copse_scan_is(&in_place, "true") || copse_scan_is(&in_place, "1") ||
              cJSON_IsTrue(flag) || (json_int(json, item, "inPlace", &number) && number == 1);
    *(in ? &row.in : &row.out) = time;
    row.collective = collective_of(json_text(item, "name"));
    COPSE_DO(finish_row(out, &row, json_text(item, "type"), json_text(item, "redop"), err));
  }
  return COPSE_OK;
}

static copse_status parse_json(const char *label, const char *data, size_t size,
                               struct copse_tests *out, struct copse_err *err) {
  COPSE_AT_END(copse_json_free) struct copse_json json = {0};
  COPSE_DO(copse_json_parse(label, data, size, &json, err));
  return copse_json_is_array(json.root) ? read_rccl_json(&json, out, err)
                                        : read_nccl_json(&json, out, err);
}

/* Whether the text is a JSON list; "[1,0]<stdout>:" begins a line that a launcher has marked. */
static bool is_list(struct copse_scan s) {
  if (!copse_scan_literal(&s, "[")) return false;
  while (s.at < s.end && *s.at && strchr(" \t\r\n", *s.at)) s.at++;
  return copse_scan_begins(&s, "{");
}

copse_status copse_tests_parse(const char *label, const char *data, size_t size,
                               struct copse_tests *out, struct copse_err *err) {
  size_t at = 0;
  *out = (struct copse_tests){.version = "", .n_wrong = -1, .average_busbw = {-1, 1}};
  while (at < size && data[at] && strchr(" \t\r\n", data[at])) at++;
  struct copse_scan json = {data + at, data + size};
  bool is_json = copse_scan_begins(&json, "{") || is_list(json);
  COPSE_DO(is_json ? parse_json(label, data, size, out, err) : parse_text(data, size, out, err));
  if (out->n_rows > 0) return COPSE_OK;
  return copse_fail_at(err, COPSE_BAD_INPUT, label, 0,
                       "no row of an nccl-tests table: \"size count type redop root time ..\"");
}
