/*
 * The table of schedule quality: reading and writing. The format: docs/formats.md, "Quality table".
 */
#include "cli/quality/quality_table.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
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

copse_status copse_quality_table_add(struct copse_quality_table *table,
                                     const struct copse_quality_row *row, struct copse_err *err) {
  const char *name;
  COPSE_DO(COPSE_GROW(table->rows, table->capacity, table->n_rows + 1, err));
  COPSE_DO(copse_arena_text(&table->arena, row->topology, &name, err));
  table->rows[table->n_rows] = *row;
  table->rows[table->n_rows++].topology = name;
  return COPSE_OK;
}

COPSE_ORDER(compare, struct copse_quality_row,
            strcmp(a->topology, b->topology) ?: COPSE_UP(collective))

const struct copse_quality_row *copse_quality_table_sort(struct copse_quality_table *table) {
  COPSE_SORT(table->rows, table->n_rows, compare);
  for (size_t i = 1; i < table->n_rows; i++)
    if (compare(&table->rows[i - 1], &table->rows[i]) == 0) return &table->rows[i - 1];
  return NULL;
}

const struct copse_quality_row *copse_quality_table_find(const struct copse_quality_table *table,
                                                         const struct copse_quality_row *like) {
  if (table->n_rows == 0) return NULL;
  return bsearch(like, table->rows, table->n_rows, sizeof *table->rows, compare);
}

COPSE_ORDER(by_ratio, double, COPSE_COMPARE(*a, *b))

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
  COPSE_SORT(all, n, by_ratio);
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

/* Finds an outcome among those that tables have. */
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

/* ---- comparison ----------------------------------------------------------------------------- */

/* Comparing a row of schedule quality with the table's: what became worse, what better. */

const char *const copse_quality_verdicts[] = {"same", "not compared", "better", "new",
                                              "gone", "changed",      "LOSS"};

/* Relative; predictions are doubles that the table has six digits of. */
#define SAME_PREDICTION 1e-4
/* Of ratios: searches are cut short, and less than this is too small for a model to tell. */
#define SAME_RATIO 1e-2
/* Linear programmes may end in another vertex with another library. */
#define SAME_ALLTOALL 1e-6

struct comparison {
  struct copse_text *text;
  bool
      another; /* topology: a longer bound is one that can do less, not one that is proved better */
  bool worse, better;
};

static void note(struct comparison *c, bool worse, const char *what, const char *was,
                 const char *now, const char *remark) {
  *(worse ? &c->worse : &c->better) = true;
  copse_text_add(c->text, "        %-8s %s %s -> %s%s\n", worse ? "worse" : "better", what, was,
                 now, remark);
}

/* Compares: -1, 0, 1 as memcmp; `slack` relative. */
static int order_of(double now, double was, double slack) {
  if (now > was * (1 + slack)) return 1;
  return now < was * (1 - slack) ? -1 : 0;
}

static void compare_time(struct comparison *c, const char *what, struct copse_q now,
                         struct copse_q was, double slack, bool less_is_worse) {
  char remark[48] = "";
  double x = copse_q_to_double(now), y = copse_q_to_double(was);
  int difference = slack > 0 ? order_of(x, y, slack) : copse_q_cmp(now, was);
  if (difference == 0) return;
  if (y > 0) snprintf(remark, sizeof remark, " s/GB (%+.4g %%)", 100 * (x / y - 1));
  bool shown = strcmp(COPSE_CLI_Q(was), COPSE_CLI_Q(now)) != 0; /* with 6 digits */
  note(c, less_is_worse ? difference < 0 : difference > 0, what,
       shown ? COPSE_CLI_Q(was) : COPSE_Q_STRING(was),
       shown ? COPSE_CLI_Q(now) : COPSE_Q_STRING(now), remark);
}

static void compare_count(struct comparison *c, const char *what, int64_t now, int64_t was) {
  char a[24], b[24];
  if (now == was) return;
  snprintf(a, sizeof a, "%" PRId64, was);
  snprintf(b, sizeof b, "%" PRId64, now);
  note(c, now > was, what, a, b, "");
}

static void compare_prediction(struct comparison *c, const char *size, double now, double was) {
  char what[32], a[32], b[32], remark[48];
  int difference = order_of(now, was, SAME_PREDICTION);
  if (difference == 0) return;
  snprintf(what, sizeof what, "time at %s", size);
  snprintf(a, sizeof a, "%.6g", was);
  snprintf(b, sizeof b, "%.6g", now);
  snprintf(remark, sizeof remark, " us (%+.3g %%)", was > 0 ? 100 * (now / was - 1) : 0.0);
  note(c, difference > 0, what, a, b, remark);
}

/* Compares ratios where both have one: runs without --sizes don't, nor do older tables. */
static void compare_ratio(struct comparison *c, const char *size, double now, double was) {
  char what[32], a[32], b[32];
  int difference = now > 0 && was > 0 ? order_of(now, was, SAME_RATIO) : 0;
  if (difference == 0) return;
  snprintf(what, sizeof what, "over the bound at %s", size);
  snprintf(a, sizeof a, "%.3f", was);
  snprintf(b, sizeof b, "%.3f", now);
  note(c, difference > 0, what, a, b, "");
}

static void compare_schedules(struct comparison *c, const struct copse_quality_row *now,
                              const struct copse_quality_row *was) {
  const struct copse_quality_result *n = &now->result, *w = &was->result;
  double slack = now->collective == COPSE_ALLTOALL ? SAME_ALLTOALL : 0;
  compare_time(c, "achieved", n->achieved, w->achieved, slack, false);
  compare_time(c, "bound", n->bound, w->bound, slack, !c->another);
  compare_count(c, "k", n->k, w->k);
  compare_count(c, now->collective == COPSE_ALLTOALL ? "paths" : "trees", n->trees, w->trees);
  compare_count(c, "height", n->height, w->height);
  for (int i = 0; i < COPSE_QUALITY_SIZES; i++)
    compare_prediction(c, copse_quality_size_names[i], n->us[i], w->us[i]);
  for (int i = 0; i < COPSE_QUALITY_RATIOS; i++)
    compare_ratio(c, copse_quality_ratio_names[i], n->ratios[i], w->ratios[i]);
}

/* Returns the rank of an outcome: a schedule is better than none, any other outcome than that copse
 * broke. */
static int rank_of(enum copse_quality_outcome outcome) {
  if (outcome == COPSE_QUALITY_OK) return 0;
  return outcome == COPSE_QUALITY_TIMEOUT || outcome == COPSE_QUALITY_FAILED ? 2 : 1;
}

static void compare_outcomes(struct comparison *c, const struct copse_quality_row *now,
                             const struct copse_quality_row *was) {
  enum copse_quality_outcome n = now->result.outcome, w = was->result.outcome;
  char remark[sizeof now->result.reason + 4] = "";
  if (now->result.reason[0]) snprintf(remark, sizeof remark, ": %s", now->result.reason);
  note(c, rank_of(n) >= rank_of(w), "outcome", copse_quality_outcome_name(w),
       copse_quality_outcome_name(n), remark);
}

static const char another_topology[] =
    "        another topology than when the table was written\n";

enum copse_quality_verdict copse_quality_compare(const struct copse_quality_row *now,
                                                 const struct copse_quality_row *was,
                                                 struct copse_text *text) {
  struct comparison c = {.text = text};
  c.another = was && strcmp(now->sha256, was->sha256) != 0;
  enum copse_quality_outcome outcome = now->result.outcome;
  if (outcome == COPSE_QUALITY_SKIPPED || (outcome == COPSE_QUALITY_TIMEOUT && !was)) {
    if (c.another) copse_text_add(text, "%s", another_topology);
    copse_text_add(text, "        %s\n", now->result.reason);
    return c.another ? COPSE_QUALITY_CHANGED : COPSE_QUALITY_UNCOMPARED;
  }
  bool unread = outcome == COPSE_QUALITY_UNREADABLE; /* also where an older table took that */
  if (outcome == COPSE_QUALITY_FAILED || unread || (outcome != COPSE_QUALITY_OK && !was)) {
    copse_text_add(text, "        %s: %s\n", copse_quality_outcome_name(outcome),
                   now->result.reason);
    return outcome == COPSE_QUALITY_FAILED || unread ? COPSE_QUALITY_LOSS : COPSE_QUALITY_NEW;
  }
  if (!was) return COPSE_QUALITY_NEW;
  if (c.another) copse_text_add(text, "%s", another_topology); /* the cause first */
  if (outcome != was->result.outcome)
    compare_outcomes(&c, now, was);
  else if (outcome == COPSE_QUALITY_OK)
    compare_schedules(&c, now, was);
  if (c.another) return COPSE_QUALITY_CHANGED;
  if (c.worse) return COPSE_QUALITY_LOSS;
  return c.better ? COPSE_QUALITY_GAIN : COPSE_QUALITY_SAME;
}

/* ---- reports for other programs ------------------------------------------------------------- */

static bool fails(const struct copse_quality_case *it) { return it->verdict >= COPSE_QUALITY_NEW; }

/* Returns the text without the blanks that the table of a terminal has. */
static const char *text_of(const struct copse_quality_case *it) {
  return it->text ? it->text + strspn(it->text, " ") : "";
}

const char *copse_quality_reason(const struct copse_quality_case *it, struct copse_arena *arena) {
  COPSE_AT_END(copse_text_free) struct copse_text line = {0};
  for (const char *p = text_of(it); *p && !line.failed; p++) {
    bool blank = *p == ' ' && (p[1] == ' ' || p[1] == '\n' || line.size == 0 ||
                               line.data[line.size - 1] == ' ');
    if (*p == '\n' && p[1])
      copse_text_append(&line, "; ", 2);
    else if (*p != '\n' && !blank)
      copse_text_append(&line, p, 1);
  }
  return line.size > 0 && !line.failed ? copse_arena_strdup(arena, line.data) : NULL;
}

void copse_quality_count(const int n[COPSE_QUALITY_LOSS + 1], int n_files,
                         struct copse_text *out) {
  int all = 0;
  for (int v = 0; v <= COPSE_QUALITY_LOSS; v++) all += v == COPSE_QUALITY_GONE ? 0 : n[v];
  copse_text_add(
      out,
      "%s: %d file%s, %d result%s: %d as before, %d better, %d lost, %d changed, %d new, %d gone, "
      "%d not compared",
      copse_quality_failures(n) > 0 ? "NOT OK" : "ok", n_files, COPSE_S(n_files), all, COPSE_S(all),
      n[COPSE_QUALITY_SAME], n[COPSE_QUALITY_GAIN], n[COPSE_QUALITY_LOSS], n[COPSE_QUALITY_CHANGED],
      n[COPSE_QUALITY_NEW], n[COPSE_QUALITY_GONE], n[COPSE_QUALITY_UNCOMPARED]);
}

static void add_junit_case(const struct copse_quality_case *it, struct copse_text *out) {
  copse_text_add(out, "  <testcase classname=\"");
  copse_text_add_xml(out, it->topology);
  copse_text_add(out, "\" name=\"%s\" file=\"", it->collective);
  copse_text_add_xml(out, it->file);
  copse_text_add(out, "\" time=\"%.3f\"", it->seconds);
  if (fails(it)) {
    copse_text_add(out, "><failure type=\"%s\" message=\"%s of ",
                   copse_quality_verdicts[it->verdict], it->collective);
    copse_text_add_xml(out, it->topology);
    copse_text_add(out, ": %s\">", copse_quality_verdicts[it->verdict]);
    copse_text_add_xml(out, text_of(it));
    copse_text_add(out, "</failure></testcase>\n");
  } else if (it->verdict == COPSE_QUALITY_UNCOMPARED) {
    copse_text_add(out, "><skipped message=\"");
    copse_text_add_xml(out, text_of(it));
    copse_text_add(out, "\"/></testcase>\n");
  } else {
    copse_text_add(out, "/>\n");
  }
}

void copse_quality_to_junit(const struct copse_quality_case *cases, size_t n,
                            struct copse_text *out) {
  size_t failed = 0, skipped = 0;
  double seconds = 0;
  for (size_t i = 0; i < n; i++) {
    failed += fails(&cases[i]);
    skipped += cases[i].verdict == COPSE_QUALITY_UNCOMPARED;
    seconds += cases[i].seconds;
  }
  copse_text_add(out,
                 "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n <testsuite "
                 "name=\"copse quality\" tests=\"%zu\" failures=\"%zu\" errors=\"0\" "
                 "skipped=\"%zu\" time=\"%.3f\">\n",
                 n, failed, skipped, seconds);
  for (size_t i = 0; i < n; i++) add_junit_case(&cases[i], out);
  copse_text_add(out, " </testsuite>\n</testsuites>\n");
}

/* Adds text with the escapes that GitHub's runner knows; in properties ':' and ',' are escaped too.
 */
static void add_escaped(struct copse_text *out, const char *text, bool property) {
  for (const char *p = text; *p; p++)
    if (strchr("%\r\n", *p) || (property && strchr(":,", *p)))
      copse_text_add(out, "%%%02X", (unsigned char)*p);
    else
      copse_text_append(out, p, 1);
}

static bool is_noted(const struct copse_quality_case *it) {
  return fails(it) || it->verdict == COPSE_QUALITY_GAIN;
}

/* Adds "allgather: worse  height 3 -> 4" of a case, in as many lines as its text has. */
static void add_annotated(struct copse_text *out, const struct copse_quality_case *it) {
  COPSE_AT_END(copse_text_free) struct copse_text text = {0};
  size_t length = strlen(text_of(it));
  while (length > 0 && text_of(it)[length - 1] == '\n') length--;
  copse_text_append(&text, text_of(it), length);
  copse_text_add(out, "%s: ", it->collective);
  if (text.data && length > 0)
    add_escaped(out, text.data, false);
  else
    copse_text_add(out, "%s", copse_quality_verdicts[it->verdict]);
}

/* Annotates all of a topology that differs, from case `first` on, which is one. */
static void annotate(const struct copse_quality_case *cases, size_t first, size_t n,
                     struct copse_text *out) {
  const struct copse_quality_case *worst = &cases[first];
  bool more = false;
  for (size_t i = first; i < n; i++)
    if (strcmp(cases[i].topology, worst->topology) == 0 && cases[i].verdict > worst->verdict)
      worst = &cases[i];
  copse_text_add(out, "::%s file=", fails(worst) ? "error" : "notice");
  add_escaped(out, worst->file, true);
  copse_text_add(out, ",title=copse quality%%3A %s::", copse_quality_verdicts[worst->verdict]);
  add_escaped(out, worst->topology, false);
  copse_text_add(out, "%%0A");
  for (size_t i = first; i < n; i++) {
    if (!is_noted(&cases[i]) || strcmp(cases[i].topology, worst->topology) != 0) continue;
    copse_text_add(out, "%s", more ? "%0A" : "");
    add_annotated(out, &cases[i]);
    more = true;
  }
  copse_text_add(out, "\n");
}

void copse_quality_annotate(const char *level, const char *message, struct copse_text *out) {
  copse_text_add(out, "::%s title=copse quality::", level);
  add_escaped(out, message, false);
  copse_text_add(out, "\n");
}

void copse_quality_to_annotations(const struct copse_quality_case *cases, size_t n,
                                  const char *summary, struct copse_text *out) {
  size_t failed = 0;
  for (size_t i = 0; i < n; i++) {
    bool first = is_noted(&cases[i]);
    failed += fails(&cases[i]);
    for (size_t j = 0; first && j < i; j++)
      first = !is_noted(&cases[j]) || strcmp(cases[i].topology, cases[j].topology) != 0;
    if (first) annotate(cases, i, n, out);
  }
  copse_quality_annotate(failed > 0 ? "error" : "notice", summary, out);
}
