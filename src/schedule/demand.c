/*
 * Demand of an alltoall: reads "copse-demand/1", and fractions of M.
 */
#include "schedule/demand.h"

#include <stdlib.h>

#include "base/json.h"
#include "base/memory.h"

/* Far beyond any buffer, and a row of a million of them still adds up in 64 bits. */
#define MAX_BYTES ((int64_t)1 << 42)

static copse_status read_row(const struct copse_json *json, const cJSON *row, const cJSON *parent,
                             int n_ranks, int64_t *out, struct copse_err *err) {
  int n = 0;
  if (!copse_json_is_array(row) || cJSON_GetArraySize(row) != n_ranks)
    return copse_fail_at(err, COPSE_BAD_INPUT, json->file, copse_json_line(parent, NULL),
                         "each row of \"bytes\" must have %d numbers, one per rank", n_ranks);
  COPSE_JSON_EACH (item, row) {
    COPSE_DO(
        copse_json_int(json, item, parent, "an entry of \"bytes\"", 0, MAX_BYTES, &out[n++], err));
  }
  return COPSE_OK;
}

static copse_status read_matrix(const struct copse_json *json, int n_ranks, int64_t *bytes,
                                struct copse_err *err) {
  static const struct copse_json_key keys[] = {
      {"format", COPSE_JSON_NEEDED | COPSE_JSON_STRING, "\"copse-demand/1\""},
      {"bytes", COPSE_JSON_NEEDED | COPSE_JSON_ARRAY,
       "bytes from each rank (a row) to each, such as [[0, 4096], [1024, 0]]"},
      {"comment", COPSE_JSON_STRING, "a text for readers"},
      {0}};
  const cJSON *rows;
  int n = 0;
  bool any = false;
  COPSE_DO(copse_json_expect_format(json, "copse-demand/1", err));
  COPSE_DO(copse_json_expect_object(json, json->root, NULL, "a demand", keys, err));
  COPSE_DO(copse_json_get_array(json, json->root, "bytes", &rows, err));
  if (cJSON_GetArraySize(rows) != n_ranks)
    return copse_fail_at(err, COPSE_BAD_INPUT, json->file, copse_json_line(json->root, NULL),
                         "\"bytes\" must have %d rows, one per rank", n_ranks);
  COPSE_JSON_EACH (row, rows)
    COPSE_DO(read_row(json, row, json->root, n_ranks, &bytes[(size_t)n_ranks * (size_t)n++], err));
  for (size_t i = 0; i < (size_t)n_ranks * (size_t)n_ranks; i++) any = any || bytes[i] > 0;
  if (!any)
    return copse_fail_at(err, COPSE_BAD_INPUT, json->file, copse_json_line(json->root, NULL),
                         "all entries of \"bytes\" are zero: nothing is to be sent");
  return COPSE_OK;
}

copse_status copse_demand_parse(const char *label, const char *data, size_t size, int n_ranks,
                                int64_t **bytes, struct copse_err *err) {
  struct copse_json json = {0};
  copse_status status;
  *bytes = NULL;
  COPSE_TRY(copse_json_parse(label, data, size, &json, err));
  COPSE_TRY(copse_calloc((size_t)n_ranks * (size_t)n_ranks, sizeof **bytes, bytes, err));
  status = read_matrix(&json, n_ranks, *bytes, err);
out:
  copse_json_free(&json);
  if (status != COPSE_OK) {
    free(*bytes);
    *bytes = NULL;
  }
  return status;
}

copse_status copse_demand_total(const int64_t *bytes, int n_ranks, int64_t *m,
                                struct copse_err *err) {
  *m = 0;
  for (int i = 0; i < n_ranks; i++) {
    int64_t row = 0;
    for (int j = 0; j < n_ranks; j++)
      if (copse_add_overflows(row, bytes[(size_t)i * (size_t)n_ranks + (size_t)j], &row))
        return copse_fail(err, COPSE_OVERFLOW, "a row of the demand adds up to over 63 bits");
    if (row > *m) *m = row;
  }
  return COPSE_OK;
}

copse_status copse_demand_share(const int64_t *bytes, int n_ranks, int64_t m, int src, int dst,
                                struct copse_q *share, struct copse_err *err) {
  if (!bytes) return copse_q_make(1, n_ranks, share, err);
  return copse_q_make(bytes[(size_t)src * (size_t)n_ranks + (size_t)dst], m, share, err);
}
