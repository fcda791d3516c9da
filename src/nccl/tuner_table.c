/*
 * Reads, prints and searches tuner tables. Columns and words are those of NCCL's example plugin
 * (NVIDIA/nccl plugins/tuner/example, from 2.27.7 on) and of RCCL's built-in tuner (2.30).
 */
#include "nccl/tuner_table.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"

#define MAX_RULES 4096
#define MAX_LINE 255     /* NCCL's reader takes the rest for a line of its own */
#define MAX_CHANNELS 512 /* of RCCL's widest builds; NCCL: 64 */

const char *const copse_tuner_collectives[] = {"broadcast", "reduce", "allgather", "reducescatter",
                                               "allreduce"};
const char *const copse_tuner_algorithms[] = {
    "tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"};
const char *const copse_tuner_protocols[] = {"ll", "ll128", "simple"};

enum column {
  COLLTYPE,
  MIN_BYTES,
  MAX_BYTES,
  ALGORITHM,
  PROTOCOL,
  CHANNELS,
  N_NODES,
  N_RANKS,
  PIPE_OPS,
  REG_BUFF,
  N_COLUMNS,
  N_REQUIRED = PIPE_OPS
};
static const char *const column_names[] = {"colltype",   "minbytes", "maxbytes", "algorithm",
                                           "protocol",   "channels", "nNodes",   "nRanks",
                                           "numPipeOps", "regBuff"};

struct line {
  const char *label;
  long number;
  char *fields[N_COLUMNS];
  int n;
  struct copse_err *err;
};

/* ---- fields ---------------------------------------------------------------------------------- */

static copse_status read_word(const struct line *line, enum column column, const char *const *words,
                              int n_words, int *out) {
  const char *field = line->fields[column];
  char known[128] = "";
  copse_collective given, named;
  bool spelled = column == COLLTYPE && copse_collective_from_name(field, &given);
  for (*out = 0; *out < n_words; ++*out)
    if (spelled ? copse_collective_from_name(words[*out], &named) && given == named
                : strcmp(field, words[*out]) == 0)
      return COPSE_OK;
  for (int i = 0; i < n_words; i++) {
    if (i > 0) strcat(known, " ");
    strcat(known, words[i]);
  }
  return copse_fail_at(line->err, COPSE_BAD_INPUT, line->label, line->number,
                       "%s \"%.40s\" is none of: %s%s", column_names[column], field, known,
                       column == COLLTYPE ? " (a header begins with #)" : "");
}

/* Parses a decimal number without sign or blanks. */
static bool parse_bytes(const char *field, uint64_t *out) {
  *out = 0;
  for (const char *p = field; *p; p++) {
    if (*p < '0' || *p > '9' || __builtin_mul_overflow(*out, (uint64_t)10, out) ||
        __builtin_add_overflow(*out, (uint64_t)(*p - '0'), out))
      return false;
  }
  return *field != '\0';
}

static copse_status read_bytes(const struct line *line, enum column column, uint64_t *out) {
  if (parse_bytes(line->fields[column], out)) return COPSE_OK;
  return copse_fail_at(line->err, COPSE_BAD_INPUT, line->label, line->number,
                       "%s \"%.40s\" is no number of bytes of 64 bits", column_names[column],
                       line->fields[column]);
}

/* Reads a number from `least` to `most`, or -1; what lacks counts as -1. */
static copse_status read_number(const struct line *line, enum column column, uint64_t least,
                                uint64_t most, int *out) {
  uint64_t v = 0;
  const char *field = (int)column < line->n ? line->fields[column] : "-1";
  *out = COPSE_TUNER_ANY;
  if (strcmp(field, "-1") == 0) return COPSE_OK;
  if (!parse_bytes(field, &v) || v < least || v > most)
    return copse_fail_at(line->err, COPSE_BAD_INPUT, line->label, line->number,
                         "%s \"%.40s\" is no number from %" PRIu64 " to %" PRIu64 ", nor -1",
                         column_names[column], field, least, most);
  *out = (int)v;
  return COPSE_OK;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static copse_status split_fields(struct line *line, char *text) {
  line->n = 0;
  for (char *field = text; field; line->n++) {
    char *comma = strchr(field, ',');
    if (line->n == N_COLUMNS)
      return copse_fail_at(line->err, COPSE_BAD_INPUT, line->label, line->number,
                           "more than %d columns", N_COLUMNS);
    if (comma) *comma = '\0';
    if (*field == '\0')
      return copse_fail_at(line->err, COPSE_BAD_INPUT, line->label, line->number,
                           "column %d (%s) is empty; -1 stands for any", line->n + 1,
                           column_names[line->n]);
    line->fields[line->n] = field;
    field = comma ? comma + 1 : NULL;
  }
  if (line->n >= N_REQUIRED) return COPSE_OK;
  return copse_fail_at(line->err, COPSE_BAD_INPUT, line->label, line->number,
                       "%d columns; a rule has at least %d, up to %s", line->n, N_REQUIRED,
                       column_names[N_REQUIRED - 1]);
}

static copse_status read_rule(struct line *line, char *text, struct copse_tuner_rule *rule) {
  COPSE_DO(split_fields(line, text));
  COPSE_DO(read_word(line, COLLTYPE, copse_tuner_collectives, COPSE_TUNER_N_COLLECTIVES,
                     &rule->collective));
  COPSE_DO(read_bytes(line, MIN_BYTES, &rule->min_bytes));
  COPSE_DO(read_bytes(line, MAX_BYTES, &rule->max_bytes));
  COPSE_DO(read_word(line, ALGORITHM, copse_tuner_algorithms, COPSE_TUNER_N_ALGORITHMS,
                     &rule->algorithm));
  COPSE_DO(
      read_word(line, PROTOCOL, copse_tuner_protocols, COPSE_TUNER_N_PROTOCOLS, &rule->protocol));
  COPSE_DO(read_number(line, CHANNELS, 0, MAX_CHANNELS, &rule->channels));
  if (rule->channels == COPSE_TUNER_ANY) rule->channels = 0;
  COPSE_DO(read_number(line, N_NODES, 1, INT_MAX, &rule->nodes));
  COPSE_DO(read_number(line, N_RANKS, 1, INT_MAX, &rule->ranks));
  COPSE_DO(read_number(line, PIPE_OPS, 0, INT_MAX, &rule->pipe_ops));
  COPSE_DO(read_number(line, REG_BUFF, 0, 1, &rule->registered));
  if (rule->min_bytes <= rule->max_bytes) return COPSE_OK;
  return copse_fail_at(line->err, COPSE_BAD_INPUT, line->label, line->number,
                       "minbytes %" PRIu64 " is more than maxbytes %" PRIu64, rule->min_bytes,
                       rule->max_bytes);
}

copse_status copse_tuner_table_add(struct copse_tuner_table *table,
                                   const struct copse_tuner_rule *rule, struct copse_err *err) {
  return COPSE_PUSH(table->rules, table->n, table->capacity, err, *rule);
}

static copse_status read_line(struct line *line, char *text, struct copse_tuner_table *table) {
  struct copse_tuner_rule rule;
  size_t n = strlen(text);
  if (n == 0 || text[0] == '#') return COPSE_OK;
  if (n > MAX_LINE)
    return copse_fail_at(line->err, COPSE_BAD_INPUT, line->label, line->number,
                         "%zu characters; NCCL reads at most %d as one line", n, MAX_LINE);
  if (table->n == MAX_RULES)
    return copse_fail_at(line->err, COPSE_BAD_INPUT, line->label, line->number,
                         "more than %d rules", MAX_RULES);
  COPSE_DO(read_rule(line, text, &rule));
  return copse_tuner_table_add(table, &rule, line->err);
}

copse_status copse_tuner_table_parse(const char *label, const char *data, size_t size,
                                     struct copse_tuner_table *out, struct copse_err *err) {
  COPSE_AT_END(copse_lines_free) struct copse_lines lines = {0};
  struct line line = {.label = label, .err = err};
  *out = (struct copse_tuner_table){0};
  COPSE_DO(copse_lines_open(label, data, size, &lines, err));
  for (char *text; (text = copse_lines_next(&lines));) {
    line.number = lines.line;
    copse_status status = read_line(&line, text, out);
    if (status == COPSE_OK) continue;
    copse_tuner_table_free(out);
    return status;
  }
  return COPSE_OK;
}

void copse_tuner_table_free(struct copse_tuner_table *table) {
  free(table->rules);
  *table = (struct copse_tuner_table){0};
}

void copse_tuner_table_print(const struct copse_tuner_table *table, int keep,
                             struct copse_text *out) {
  copse_text_add(out, "#");
  for (int i = 0; i < N_COLUMNS; i++)
    copse_text_add(out, "%s%s", i > 0 ? "," : " ", column_names[i]);
  copse_text_add(out, "\n");
  for (size_t i = 0; i < table->n; i++) {
    const struct copse_tuner_rule *r = &table->rules[i];
    copse_text_add(out, "%s,%" PRIu64 ",%" PRIu64 ",%s,%s,%d,%d,%d,%d,%d\n",
                   copse_tuner_collectives[r->collective], r->min_bytes, r->max_bytes,
                   copse_tuner_algorithms[r->algorithm], copse_tuner_protocols[r->protocol],
                   r->channels > 0 ? r->channels : keep, r->nodes, r->ranks, r->pipe_ops,
                   r->registered);
  }
}

/* ---- calls ----------------------------------------------------------------------------------- */

static bool fits(int of_rule, int of_call) {
  return of_rule == COPSE_TUNER_ANY || of_rule == of_call;
}

const struct copse_tuner_rule *copse_tuner_table_find(const struct copse_tuner_table *table,
                                                      const struct copse_tuner_call *call,
                                                      size_t from, size_t *at) {
  for (size_t i = from; i < table->n; i++) {
    const struct copse_tuner_rule *r = &table->rules[i];
    if (r->collective != call->collective || call->bytes < r->min_bytes ||
        call->bytes > r->max_bytes || !fits(r->nodes, call->nodes) ||
        !fits(r->ranks, call->ranks) || !fits(r->pipe_ops, call->pipe_ops) ||
        !fits(r->registered, call->registered))
      continue;
    *at = i;
    return r;
  }
  return NULL;
}
