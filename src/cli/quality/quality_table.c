/* The table of schedule quality: reading and writing. */
#include "cli/quality/quality_table.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

#define FORMAT "# copse-quality/1"
#define N_BEFORE_RATIOS (10 + COPSE_QUALITY_SIZES)
#define N_FIELDS (N_BEFORE_RATIOS + COPSE_QUALITY_RATIOS)

const uint64_t copse_quality_sizes[COPSE_QUALITY_SIZES] = {(uint64_t)1 << 16, (uint64_t)1 << 20,
                                                           (uint64_t)1 << 26, (uint64_t)1 << 30};
const char *const copse_quality_size_names[COPSE_QUALITY_SIZES] = {"64K", "1M", "64M", "1G"};
const char *const copse_quality_ratio_names[COPSE_QUALITY_RATIOS] = {
    "1K", "4K", "16K", "64K", "256K", "1M", "4M", "16M", "64M", "256M", "1G"};

static const char *const outcomes[] = {"ok",         "refused", "infeasible", "overflow",
                                       "unreadable", "skipped", "timeout",    "failed"};

const char *copse_quality_outcome_name(enum copse_quality_outcome outcome) {
  return outcomes[outcome];
}

void copse_quality_table_free(struct copse_quality_table *table) {
  free(table->rows);
  copse_arena_free(&table->arena);
  *table = (struct copse_quality_table){0};
}

copse_status copse_quality_table_add(struct copse_quality_table *table,
                                     const struct copse_quality_row *row, struct copse_err *err) {
  const char *name;
  COPSE_DO(COPSE_GROW(table->rows, table->capacity, table->n_rows + 1, err));
  COPSE_DO(copse_arena_text(&table->arena, row->topology, &name, err));
  table->rows[table->n_rows] = *row;
  table->rows[table->n_rows++].topology = name;
  return COPSE_OK;
}

static int compare(const void *a, const void *b) {
  const struct copse_quality_row *x = a, *y = b;
  int order = strcmp(x->topology, y->topology);
  return order != 0 ? order : (x->collective > y->collective) - (x->collective < y->collective);
}

const struct copse_quality_row *copse_quality_table_sort(struct copse_quality_table *table) {
  if (table->n_rows > 1) qsort(table->rows, table->n_rows, sizeof *table->rows, compare);
  for (size_t i = 1; i < table->n_rows; i++)
    if (compare(&table->rows[i - 1], &table->rows[i]) == 0) return &table->rows[i - 1];
  return NULL;
}

double copse_quality_algbw(const struct copse_quality_row *row) {
  return row->result.achieved.num > 0 ? 1 / copse_q_to_double(row->result.achieved) : 0;
}

double copse_quality_busbw(const struct copse_quality_row *row) {
  return copse_quality_algbw(row) *
         copse_collective_bus_factor((copse_collective)row->collective, row->ranks);
}

const struct copse_quality_row *copse_quality_table_find(const struct copse_quality_table *table,
                                                         const struct copse_quality_row *like) {
  if (table->n_rows == 0) return NULL;
  return bsearch(like, table->rows, table->n_rows, sizeof *table->rows, compare);
}

static int by_ratio(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

copse_status copse_quality_table_sum_up(const struct copse_quality_table *table,
                                        struct copse_quality_summary *out, struct copse_err *err) {
  COPSE_AT_END(copse_free_at) double *all = NULL;
  size_t n = 0;
  *out = (struct copse_quality_summary){0};
  COPSE_DO(copse_calloc(table->n_rows * COPSE_QUALITY_RATIOS, sizeof *all, &all, err));
  for (size_t r = 0; r < table->n_rows; r++)
    for (int i = COPSE_QUALITY_FROM_1M; i < COPSE_QUALITY_RATIOS; i++)
      if (table->rows[r].result.ratios[i] > 0) all[n++] = table->rows[r].result.ratios[i];
  if (n == 0) return COPSE_OK;
  qsort(all, n, sizeof *all, by_ratio);
  out->n = n;
  out->median = all[(n - 1) / 2];
  out->most = all[n - 1];
  while (out->high < n && all[n - 1 - out->high] > COPSE_QUALITY_HIGH) out->high++;
  return COPSE_OK;
}

/* ---- reading --------------------------------------------------------------------------- */

struct reader {
  const char *label;
  long line;
  struct copse_err *err;
};

static copse_status refuse(const struct reader *r, const char *what, const char *text,
                           const char *right) {
  return copse_fail_at(r->err, COPSE_BAD_INPUT, r->label, r->line, "%s '%.60s': must be %s", what,
                       text, right);
}

static int hex_digit(char c) {
  const char *digits = "0123456789ABCDEF", *found = c ? strchr(digits, c) : NULL;
  return found ? (int)(found - digits) : -1;
}

/* Undoes %XX in place. */
static copse_status unescape(const struct reader *r, char *text) {
  char *to = text;
  for (const char *from = text; *from; from++) {
    bool escaped = *from == '%';
    int high = escaped ? hex_digit(from[1]) : 0;
    int low = escaped && high >= 0 ? hex_digit(from[2]) : 0;
    if (high < 0 || low < 0 || (escaped && high + low == 0))
      return refuse(r, "topology", text, "a name with %XX for blanks, '#' and '%'");
    *to++ = (char)(escaped ? 16 * high + low : *from); /* never ahead of what is read */
    if (escaped) from += 2;
  }
  *to = '\0';
  return COPSE_OK;
}

static copse_status read_int(const struct reader *r, const char *what, const char *text,
                             int64_t least, int64_t most, int64_t *out) {
  char *end;
  errno = 0;
  *out = strtoimax(text, &end, 10);
  if (text[0] >= '0' && text[0] <= '9' && !*end && errno == 0 && *out >= least && *out <= most)
    return COPSE_OK;
  return refuse(r, what, text, "a whole number");
}

static copse_status read_time(const struct reader *r, const char *what, const char *text,
                              struct copse_q *out) {
  if (copse_q_parse_fraction(text, out, NULL) == COPSE_OK && out->num >= 0) return COPSE_OK;
  return refuse(r, what, text, "an exact fraction of seconds per GB, such as 3/1040");
}

static copse_status read_us(const struct reader *r, const char *text, double *out) {
  char *end = NULL;
  if (text[0] >= '0' && text[0] <= '9' && strspn(text, "0123456789.e+-") == strlen(text))
    *out = strtod(text, &end);
  if (end && !*end && isfinite(*out)) return COPSE_OK;
  return refuse(r, "predicted time", text, "microseconds");
}

static copse_status read_ratio(const struct reader *r, const char *text, double *out) {
  char *end = NULL;
  if (strcmp(text, "-") == 0) return COPSE_OK;
  if (strspn(text, "0123456789.") == strlen(text)) *out = strtod(text, &end);
  if (end && !*end && isfinite(*out) && *out > 0) return COPSE_OK;
  return refuse(r, "ratio", text, "a time over its bound, such as 1.050, or '-'");
}

static copse_status read_values(const struct reader *r, char *const *field,
                                struct copse_quality_result *result) {
  int64_t k = 0, trees, height;
  if (result->outcome != COPSE_QUALITY_OK) {
    for (int i = 5; i < N_FIELDS; i++)
      if (strcmp(field[i], "-") != 0) return refuse(r, "value", field[i], "'-' without a schedule");
    return COPSE_OK;
  }
  COPSE_DO(read_time(r, "bound", field[5], &result->bound));
  COPSE_DO(read_time(r, "achieved", field[6], &result->achieved));
  if (strcmp(field[7], "-") != 0) COPSE_DO(read_int(r, "k", field[7], 1, INT64_MAX, &k));
  COPSE_DO(read_int(r, "trees", field[8], 0, INT32_MAX, &trees));
  COPSE_DO(read_int(r, "height", field[9], 0, INT32_MAX, &height));
  for (int i = 0; i < COPSE_QUALITY_SIZES; i++) COPSE_DO(read_us(r, field[10 + i], &result->us[i]));
  for (int i = 0; i < COPSE_QUALITY_RATIOS; i++)
    COPSE_DO(read_ratio(r, field[N_BEFORE_RATIOS + i], &result->ratios[i]));
  result->k = k;
  result->trees = (int)trees;
  result->height = (int)height;
  return COPSE_OK;
}

/* Of the outcomes that tables have. */
static bool find_outcome(const char *text, enum copse_quality_outcome *out) {
  for (int i = 0; i <= COPSE_QUALITY_UNREADABLE; i++) {
    if (strcmp(text, outcomes[i]) != 0) continue;
    *out = (enum copse_quality_outcome)i;
    return true;
  }
  return false;
}

static copse_status read_row(const struct reader *r, char *const *field,
                             struct copse_quality_row *row) {
  copse_collective collective;
  int64_t ranks = 0;
  COPSE_DO(unescape(r, field[0]));
  row->topology = field[0];
  if (!find_outcome(field[4], &row->result.outcome))
    return refuse(r, "outcome", field[4], "ok, refused, infeasible, overflow or unreadable");
  if (row->result.outcome == COPSE_QUALITY_UNREADABLE) {
    row->collective = COPSE_QUALITY_NO_COLLECTIVE;
    for (int i = 1; i < 4; i++)
      if (strcmp(field[i], "-") != 0) return refuse(r, "value", field[i], "'-' without a topology");
  } else {
    if (strlen(field[1]) != COPSE_QUALITY_SHA - 1 ||
        strspn(field[1], "0123456789abcdef") != COPSE_QUALITY_SHA - 1)
      return refuse(r, "sha256", field[1], "16 hex digits");
    memcpy(row->sha256, field[1], COPSE_QUALITY_SHA);
    if (!copse_collective_from_name(field[2], &collective))
      return refuse(r, "collective", field[2],
                    "allgather, reduce_scatter, allreduce, broadcast, reduce or alltoall");
    row->collective = (int)collective;
    COPSE_DO(read_int(r, "ranks", field[3], 0, INT32_MAX, &ranks));
  }
  row->ranks = (int)ranks;
  row->line = r->line;
  return read_values(r, field, &row->result);
}

static copse_status read_line(const struct reader *r, char *line,
                              struct copse_quality_table *table) {
  struct copse_quality_row row = {0};
  char *field[N_FIELDS], *rest = NULL, none[] = "-";
  int n = 0;
  for (char *f = strtok_r(line, " \t\r", &rest); f; f = strtok_r(NULL, " \t\r", &rest)) {
    if (n < N_FIELDS) field[n] = f;
    n++;
  }
  if (n == 0 || field[0][0] == '#') return COPSE_OK;
  if (n == N_BEFORE_RATIOS)
    while (n < N_FIELDS) field[n++] = none;
  if (n != N_FIELDS)
    return copse_fail_at(r->err, COPSE_BAD_INPUT, r->label, r->line,
                         "%d fields, where a row has %d", n, N_FIELDS);
  copse_status status = read_row(r, field, &row);
  return status == COPSE_OK ? copse_quality_table_add(table, &row, r->err) : status;
}

copse_status copse_quality_table_parse(const char *label, char *data, size_t size,
                                       struct copse_quality_table *table, struct copse_err *err) {
  struct reader r = {label, 1, err};
  if (strncmp(data, FORMAT "\n", sizeof FORMAT) != 0)
    return copse_fail_at(err, COPSE_BAD_INPUT, label, 1, "the first line must be '" FORMAT "'");
  if (strlen(data) != size)
    return copse_fail_at(err, COPSE_BAD_INPUT, label, 0, "a NUL byte, where a table is text");
  for (char *line = data; line; r.line++) {
    char *end = strchr(line, '\n');
    if (end) *end = '\0';
    COPSE_DO(read_line(&r, line, table));
    line = end ? end + 1 : NULL;
  }
  const struct copse_quality_row *twice = copse_quality_table_sort(table);
  if (!twice) return COPSE_OK;
  long first = twice[0].line < twice[1].line ? twice[0].line : twice[1].line;
  return copse_fail_at(err, COPSE_BAD_INPUT, label, twice[0].line + twice[1].line - first,
                       "a second row for this topology and collective; the first is in line %ld",
                       first);
}

/* ---- writing --------------------------------------------------------------------------- */

static void write_name(struct copse_text *text, const char *name) {
  size_t from = text->size;
  for (const char *p = name; *p; p++) {
    unsigned char c = (unsigned char)*p;
    if (c <= ' ' || c == 0x7f || c == '%' || c == '#')
      copse_text_add(text, "%%%02X", c);
    else
      copse_text_append(text, p, 1);
  }
  if (text->size - from < 28) copse_text_add(text, "%*s", (int)(28 - (text->size - from)), "");
}

static void write_row(struct copse_text *text, const struct copse_quality_row *row) {
  const struct copse_quality_result *result = &row->result;
  char k[24] = "-";
  bool unreadable = result->outcome == COPSE_QUALITY_UNREADABLE;
  write_name(text, row->topology);
  if (unreadable)
    copse_text_add(text, " %-16s %-14s %5s", "-", "-", "-");
  else
    copse_text_add(text, " %-16s %-14s %5d", row->sha256,
                   copse_collective_name((copse_collective)row->collective), row->ranks);
  copse_text_add(text, " %-10s", copse_quality_outcome_name(result->outcome));
  if (result->outcome == COPSE_QUALITY_OK) {
    if (result->k > 0) snprintf(k, sizeof k, "%" PRId64, result->k);
    copse_text_add(text, " %-16s %-16s %5s %6d %6d", COPSE_Q_STRING(result->bound),
                   COPSE_Q_STRING(result->achieved), k, result->trees, result->height);
    for (int i = 0; i < COPSE_QUALITY_SIZES; i++) copse_text_add(text, " %10.6g", result->us[i]);
  } else {
    copse_text_add(text, " %-16s %-16s %5s %6s %6s", "-", "-", "-", "-", "-");
    for (int i = 0; i < COPSE_QUALITY_SIZES; i++) copse_text_add(text, " %10s", "-");
  }
  for (int i = 0; i < COPSE_QUALITY_RATIOS; i++)
    if (result->outcome == COPSE_QUALITY_OK && result->ratios[i] > 0)
      copse_text_add(text, " %6.3f", result->ratios[i]);
    else
      copse_text_add(text, " %6s", "-");
  copse_text_add(text, "\n");
}

void copse_quality_table_write(const struct copse_quality_table *table, struct copse_text *text) {
  copse_text_add(
      text,
      FORMAT
      "\n"
      "# Written by 'copse quality --update'; 'copse quality' compares with it.\n"
      "# bound and achieved: seconds per GB; us: predicted microseconds by message size;\n"
      "# then for the schedule made for a size its predicted time over the bound at that size\n"
      "# %-26s %-16s %-14s %5s %-10s %-16s %-16s %5s %6s %6s",
      "topology", "sha256", "collective", "ranks", "outcome", "bound", "achieved", "k", "trees",
      "height");
  for (int i = 0; i < COPSE_QUALITY_SIZES; i++)
    copse_text_add(text, " %7s@%s", "us", copse_quality_size_names[i]);
  for (int i = 0; i < COPSE_QUALITY_RATIOS; i++)
    copse_text_add(text, " %6s", copse_quality_ratio_names[i]);
  copse_text_add(text, "\n");
  for (size_t i = 0; i < table->n_rows; i++) write_row(text, &table->rows[i]);
}
