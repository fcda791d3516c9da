/* Node ids of a schedule file: each is kept once and named by a number. */
#include <stdlib.h>
#include <string.h>

#include "schedule/read_internal.h"

copse_status copse_reader_refuse(struct copse_schedule_reader *r, const cJSON *item,
                                 const cJSON *parent, const char *what) {
  return copse_fail_at(r->err, COPSE_BAD_INPUT, r->json.file, copse_json_line(item, parent), "%s",
                       what);
}

copse_status copse_reader_refute(struct copse_schedule_reader *r, const cJSON *item,
                                 const cJSON *parent, const char *what) {
  return copse_fail_at(r->err, r->untrue, r->json.file, copse_json_line(item, parent), "%s", what);
}

static uint64_t hash_text(const char *s) {
  uint64_t h = 0xcbf29ce484222325u;
  for (; *s; s++) h = (h ^ (unsigned char)*s) * 0x100000001b3u;
  return h ^ (h >> 29);
}

static size_t slot_of(const struct copse_schedule_reader *r, const char *id) {
  size_t i = hash_text(id) & (r->table_size - 1);
  while (r->table[i] && strcmp(r->nodes[r->table[i] - 1], id) != 0)
    i = (i + 1) & (r->table_size - 1);
  return i;
}

static copse_status grow_table(struct copse_schedule_reader *r) {
  size_t size = r->table_size ? 2 * r->table_size : 256;
  int *table;
  copse_status status = copse_calloc(size, sizeof *table, &table, r->err);
  if (status != COPSE_OK) return status;
  free(r->table);
  r->table = table;
  r->table_size = size;
  for (size_t i = 0; i < r->n_nodes; i++) table[slot_of(r, r->nodes[i])] = (int)i + 1;
  return COPSE_OK;
}

copse_status copse_reader_intern(struct copse_schedule_reader *r, const char *id, int *index) {
  copse_status status = COPSE_OK;
  if (2 * (r->n_nodes + 1) > r->table_size) COPSE_TRY(grow_table(r));
  size_t slot = slot_of(r, id);
  if (r->table[slot] == 0) {
    char *copy = copse_arena_strdup(&r->schedule->arena, id);
    if (!copy) return copse_fail_nomem(r->err);
    COPSE_TRY(copse_grow(&r->nodes, &r->nodes_capacity, r->n_nodes + 1, sizeof *r->nodes, r->err));
    r->nodes[r->n_nodes++] = copy;
    r->table[slot] = (int)r->n_nodes;
  }
  *index = r->table[slot] - 1;
out:
  return status;
}

void *copse_reader_take(struct copse_schedule_reader *r, size_t n, size_t size) {
  return copse_arena_alloc(&r->schedule->arena, n ? n : 1, size);
}

copse_status copse_reader_nodes(struct copse_schedule_reader *r, const cJSON *array,
                                const cJSON *parent, const char *what, const int **out, int *n) {
  copse_status status = COPSE_OK;
  int *nodes = NULL;
  *n = 0;
  if (!array || !copse_json_is_array(array)) return copse_reader_refuse(r, array, parent, what);
  nodes = copse_reader_take(r, (size_t)cJSON_GetArraySize(array), sizeof *nodes);
  if (!nodes) return copse_fail_nomem(r->err);
  COPSE_JSON_EACH (item, array) {
    if (!copse_json_is_string(item)) return copse_reader_refuse(r, item, parent, what);
    COPSE_TRY(copse_reader_intern(r, item->valuestring, &nodes[(*n)++]));
  }
  *out = nodes;
out:
  return status;
}

int copse_reader_known(const struct copse_schedule_reader *r, const char *id) {
  return r->table_size == 0 ? -1 : r->table[slot_of(r, id)] - 1;
}
