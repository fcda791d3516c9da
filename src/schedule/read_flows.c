/* The alltoall part of schedule JSON: flows, demand, the compact form, lengths. */
#include <stdlib.h>
#include <string.h>

#include "schedule/read_internal.h"

/* "src>dst"; ids may hold '>' themselves, so every one of them is tried. */
static copse_status split_key(struct copse_schedule_reader *r, const cJSON *item,
                              const cJSON *parent, struct copse_schedule_length *out) {
  char *copy = copse_reader_take(r, strlen(item->string) + 1, 1);
  copse_status status = COPSE_OK;
  if (!copy) return copse_fail_nomem(r->err);
  strcpy(copy, item->string);
  char *first = strchr(copy, '>'), *at = first;
  for (; at; at = strchr(at + 1, '>')) {
    *at = '\0';
    int src = copse_reader_known(r, copy), dst = copse_reader_known(r, at + 1);
    if (src >= 0 && dst >= 0) {
      out->src = src;
      out->dst = dst;
      return COPSE_OK;
    }
    *at = '>';
  }
  /* nodes that no path has named yet: then the first '>' parts the ids */
  if (!first || first == copy || !first[1])
    return copse_reader_refuse(r, item, parent, "a key of \"lengths\" must be \"src>dst\"");
  *first = '\0';
  COPSE_TRY(copse_reader_intern(r, copy, &out->src));
  COPSE_TRY(copse_reader_intern(r, first + 1, &out->dst));
out:
  return status;
}

copse_status copse_reader_lengths(struct copse_schedule_reader *r, const cJSON *bound) {
  struct copse_bound *b = &r->schedule->bound;
  const cJSON *object = copse_json_get(bound, "lengths");
  copse_status status = COPSE_OK;
  if (!copse_json_is_object(object))
    return copse_reader_refuse(r, object, bound, "\"lengths\" must be an object");
  struct copse_schedule_length *lengths =
      copse_reader_take(r, (size_t)cJSON_GetArraySize(object), sizeof *lengths);
  if (!lengths) return copse_fail_nomem(r->err);
  COPSE_JSON_EACH (item, object) {
    struct copse_schedule_length *l = &lengths[b->n_lengths++];
    COPSE_TRY(split_key(r, item, object, l));
    COPSE_TRY(copse_json_rational(&r->json, item, object, "a length", &l->length, r->err));
    if (l->length.num < 0)
      return copse_reader_refuse(r, item, object, "a length must not be negative");
  }
  b->kind = COPSE_BOUND_LENGTHS;
  b->lengths = lengths;
out:
  return status;
}

static copse_status read_path(struct copse_schedule_reader *r, const cJSON *item,
                              const cJSON *parent, const struct copse_schedule_flow *flow,
                              struct copse_schedule_path *path) {
  static const char *const keys[] = {"path", "weight", NULL};
  const struct copse_schedule *s = r->schedule;
  copse_status status;
  COPSE_TRY(copse_json_expect_object(&r->json, item, parent, "a path", keys, r->err));
  COPSE_TRY(copse_reader_nodes(r, copse_json_get(item, "path"), item,
                               "\"path\" must be an array of node ids", &path->nodes,
                               &path->n_nodes));
  COPSE_TRY(copse_json_get_rational(&r->json, item, "weight", &path->weight, r->err));
  if (path->weight.num <= 0)
    return copse_reader_refuse(r, item, NULL, "\"weight\" must be positive");
  if (path->n_nodes < 2 || path->nodes[0] != s->rank_nodes[flow->src] ||
      path->nodes[path->n_nodes - 1] != s->rank_nodes[flow->dst])
    status = copse_reader_refute(r, item, NULL,
                                 "\"path\" must lead from the node of src to the node of dst");
out:
  return status;
}

static copse_status read_flow(struct copse_schedule_reader *r, const cJSON *item,
                              struct copse_schedule_flow *flow) {
  static const char *const keys[] = {"src", "dst", "paths", NULL};
  int64_t src, dst;
  const cJSON *paths;
  copse_status status;
  COPSE_TRY(copse_json_expect_object(&r->json, item, r->json.root, "a flow", keys, r->err));
  COPSE_TRY(copse_json_get_int(&r->json, item, "src", 0, r->schedule->n_ranks - 1, &src, r->err));
  COPSE_TRY(copse_json_get_int(&r->json, item, "dst", 0, r->schedule->n_ranks - 1, &dst, r->err));
  COPSE_TRY(copse_json_get_array(&r->json, item, "paths", &paths, r->err));
  if (src == dst) return copse_reader_refuse(r, item, NULL, "a flow from a rank to itself");
  flow->src = (int)src;
  flow->dst = (int)dst;
  struct copse_schedule_path *out =
      copse_reader_take(r, (size_t)cJSON_GetArraySize(paths), sizeof *out);
  if (!out) return copse_fail_nomem(r->err);
  COPSE_JSON_EACH (path, paths) COPSE_TRY(read_path(r, path, item, flow, &out[flow->n_paths++]));
  flow->paths = out;
out:
  return status;
}

static copse_status read_demand(struct copse_schedule_reader *r, const cJSON *rows) {
  int n = r->schedule->n_ranks;
  copse_status status = COPSE_OK;
  size_t at = 0;
  if (!copse_json_is_array(rows) || cJSON_GetArraySize(rows) != n)
    return copse_reader_refuse(r, rows, r->json.root, "\"demand\" must have a row per rank");
  int64_t *bytes = copse_reader_take(r, (size_t)n * (size_t)n, sizeof *bytes);
  if (!bytes) return copse_fail_nomem(r->err);
  COPSE_JSON_EACH (row, rows) {
    if (!copse_json_is_array(row) || cJSON_GetArraySize(row) != n)
      return copse_reader_refuse(r, row, r->json.root,
                                 "a row of \"demand\" must have a number per rank");
    COPSE_JSON_EACH (item, row)
      COPSE_TRY(copse_json_int(&r->json, item, r->json.root, "an entry of \"demand\"", 0,
                               (int64_t)1 << 42, &bytes[at++], r->err));
  }
  r->schedule->demand = bytes;
out:
  return status;
}

copse_status copse_reader_flows(struct copse_schedule_reader *r) {
  struct copse_schedule *s = r->schedule;
  const cJSON *flows, *root = r->json.root;
  bool forward;
  copse_status status;
  COPSE_TRY(copse_json_get_array(&r->json, root, "flows", &flows, r->err));
  COPSE_TRY(copse_json_get_bool_or(&r->json, root, "forward", true, &forward, r->err));
  s->no_forward = !forward;
  struct copse_schedule_flow *out =
      copse_reader_take(r, (size_t)cJSON_GetArraySize(flows), sizeof *out);
  if (!out) return copse_fail_nomem(r->err);
  COPSE_JSON_EACH (flow, flows) COPSE_TRY(read_flow(r, flow, &out[s->n_flows++]));
  s->flows = out;
  if (copse_json_get(root, "demand")) COPSE_TRY(read_demand(r, copse_json_get(root, "demand")));
  if (copse_json_get(root, "rotation"))
    COPSE_TRY(copse_reader_rotation(r, copse_json_get(root, "rotation")));
out:
  return status;
}
