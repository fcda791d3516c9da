/* What the readers of schedule JSON share: read.c, read_bound.c. */
#pragma once

#include "base/graph.h"
#include "base/json.h"
#include "schedule/keys.h"
#include "schedule/schedule.h"

struct copse_reader {
  struct copse_json json;
  struct copse_schedule *schedule;
  const char **nodes; /* [n_nodes] ids seen so far, in the schedule's arena */
  size_t n_nodes, nodes_capacity;
  struct copse_index_map index; /* of nodes by id */
  char *seen;                   /* [n_ranks] per tree */
  struct copse_schedule_edge *edges; /* that changes share */
  int n_edges;
  struct copse_arena scratch;
  size_t n_rotation_nodes; /* nodes that the rotation maps, 0 without one */
  copse_status untrue;     /* for what is well formed and wrong: COPSE_BAD_INPUT or COPSE_REFUTED */
  struct copse_err *err;
};

/* Fails with COPSE_BAD_INPUT at the item's line, or its parent's. */
static inline copse_status copse_reader_refuse(struct copse_reader *r, const cJSON *item,
                                               const cJSON *parent, const char *what) {
  return copse_fail_at(r->err, COPSE_BAD_INPUT, r->json.file, copse_json_line(item, parent), "%s",
                       what);
}

/* Returns the index of an id seen before, -1 for others. */
static inline int copse_reader_known(const struct copse_reader *r, const char *id) {
  return copse_index_map_find(&r->index, id, r->nodes, sizeof *r->nodes, 0);
}

/* Finds the index of a node id, new ones appended. */
copse_status copse_reader_intern(struct copse_reader *r, const char *id, int *index) COPSE_CHECKED;
/* Takes zeroed memory of the schedule, at *out_pointer. */
static inline copse_status copse_reader_take(struct copse_reader *r, size_t n, size_t size,
                                             void *out_pointer) {
  return copse_arena_array(&r->schedule->arena, n, size, out_pointer, r->err);
}

/* Reads the member `key`: an array of node ids. */
copse_status copse_reader_nodes(struct copse_reader *r, const cJSON *object, const char *key,
                                const int **out, int *n) COPSE_CHECKED;
/* Takes the member `key`, an array, and zeroed memory of the schedule for its items at
 * *out_pointer. */
static inline copse_status copse_reader_take_list(struct copse_reader *r, const cJSON *object,
                                                  const char *key, size_t size, const cJSON **array,
                                                  void *out_pointer) {
  COPSE_DO(copse_json_get_array(&r->json, object, key, array, r->err));
  return copse_reader_take(r, (size_t)cJSON_GetArraySize(*array), size, out_pointer);
}

/* Does the same for a list that is still text, by its name in copse_json_parse_lists. */
copse_status copse_reader_take_items(struct copse_reader *r, const cJSON *object, const char *name,
                                     size_t size, const struct copse_json_list **list,
                                     void *out_pointer) COPSE_CHECKED;

/* Reads the bound; that for a size; that of trees on the fabric's own routes. */
copse_status copse_reader_bound(struct copse_reader *r) COPSE_CHECKED;
copse_status copse_reader_bound_at(struct copse_reader *r, const cJSON *item) COPSE_CHECKED;
copse_status copse_reader_routes(struct copse_reader *r, const cJSON *item) COPSE_CHECKED;
