/*
 * Schedules: rates, units and sums over cycles; their JSON; the demand of an alltoall.
 * docs/formats.md, "Schedule" and "Demand".
 */
#include "schedule/schedule.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/graph.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/types.h"
#include "schedule/chunks.h"
#include "schedule/demand.h"

void copse_schedule_free(struct copse_schedule *schedule) {
  if (!schedule) return;
  copse_arena_free(&schedule->arena);
  free(schedule);
}

static bool is_same_tree(const struct copse_schedule_tree *a, const struct copse_schedule_tree *b) {
  bool same = a->root == b->root && a->phase == b->phase && copse_q_eq(a->weight, b->weight) &&
              a->n_edges == b->n_edges;
  for (int e = 0; e < a->n_edges && same; e++) {
    const struct copse_schedule_edge *x = &a->edges[e], *y = &b->edges[e];
    same = x->n_path == y->n_path && memcmp(x->path, y->path, (size_t)x->n_path * sizeof(int)) == 0;
  }
  return same;
}

bool copse_schedule_same_trees(const struct copse_schedule *a, const struct copse_schedule *b) {
  bool same = a->n_trees > 0 && a->n_trees == b->n_trees;
  for (int t = 0; t < a->n_trees && same; t++) same = is_same_tree(&a->trees[t], &b->trees[t]);
  return same;
}

int64_t copse_schedule_unit_k(const struct copse_schedule *schedule) {
  int64_t whole = 1;
  for (int t = 0; t < schedule->n_trees; t++)
    if (copse_lcm(whole, schedule->trees[t].weight.den, &whole, NULL) != COPSE_OK) return 0;
  if (copse_collective_rooted(schedule->collective)) return whole;
  return whole / copse_gcd(whole, schedule->n_ranks);
}

/* Marks a place that is done in `done`: its cycle's least place comes first. */
copse_status copse_sum_cycles(int order, const int *image, int n, struct copse_q *values,
                              struct copse_err *err) {
  COPSE_AT_END(copse_free_at) char *done = NULL;
  COPSE_DO(copse_calloc((size_t)n, 1, &done, err));
  for (int first = 0; first < n; first++) {
    struct copse_q sum = COPSE_Q_ZERO;
    int length = 0, at = first;
    if (done[first]) continue;
    do {
      COPSE_DO(copse_q_add(sum, values[at], &sum, err));
      at = image[at];
      length++;
    } while (at != first);
    if (order % length != 0) {
      return copse_fail(err, COPSE_INVALID, "a cycle does not divide the order");
    }
    COPSE_DO(copse_q_mul(sum, (struct copse_q){order / length, 1}, &sum, err));
    do {
      values[at] = sum;
      done[at] = 1;
      at = image[at];
    } while (at != first);
  }
  return COPSE_OK;
}

int copse_schedule_paths(const struct copse_schedule *schedule) {
  int n = 0;
  for (int f = 0; f < schedule->n_flows; f++) n += schedule->flows[f].n_paths;
  return n;
}

double copse_schedule_algbw(const struct copse_schedule *schedule) {
  struct copse_q t = schedule->time_per_GB;
  return t.num == 0 ? (double)INFINITY : (double)t.den / (double)t.num;
}

struct copse_schedule_cut copse_bound_main_cut(const struct copse_bound *bound) {
  bool one = bound->kind != COPSE_BOUND_FORESTS;
  struct copse_schedule_cut most = {.nodes = bound->cut, .n_nodes = one ? bound->n_cut : 0};
  for (int i = 0; i < bound->n_cuts; i++)
    if (i == 0 || copse_q_cmp(bound->cuts[i].weight, most.weight) > 0) most = bound->cuts[i];
  return most;
}

int64_t copse_schedule_chunk_bytes(const struct copse_schedule *s) {
  struct copse_q most = COPSE_Q_ZERO;
  for (int t = 0; t < s->n_trees; t++)
    if (copse_q_cmp(s->trees[t].weight, most) > 0) most = s->trees[t].weight;
  for (int f = 0; f < s->n_flows; f++)
    for (int p = 0; p < s->flows[f].n_paths; p++)
      if (copse_q_cmp(s->flows[f].paths[p].weight, most) > 0) most = s->flows[f].paths[p].weight;
  /* up to a unit more for each end of a piece, which falls on a multiple of 16 bytes */
  __int128 whole = (__int128)s->objective.bytes * most.num, part = (__int128)most.den;
  int64_t bytes = (int64_t)(whole / (part * s->objective.chunks)) + 2 * COPSE_LEAST_CHUNK_BYTES;
  return bytes > COPSE_CHUNK_BYTES ? bytes : COPSE_CHUNK_BYTES;
}

int64_t copse_schedule_images(const struct copse_schedule *schedule) {
  int64_t images = 1;
  for (int i = 0; i < schedule->n_rotations; i++)
    if (__builtin_mul_overflow(images, schedule->rotations[i].order, &images)) return INT64_MAX;
  return images;
}

/* ==== JSON ==================================================================================== */

/* Writes "copse-schedule/1"; read.c reads it. */

/* Adds the nodes' ids; nodes NULL: the first n of all. */
static void add_nodes(struct copse_text *text, const struct copse_schedule *schedule,
                      const int *nodes, int n) {
  copse_text_append(text, "[", 1);
  for (int i = 0; i < n; i++) {
    if (i > 0) copse_text_append(text, ",", 1);
    copse_text_add_json_string(text, schedule->nodes[nodes ? nodes[i] : i]);
  }
  copse_text_append(text, "]", 1);
}

static const char *phase_name(enum copse_phase phase) {
  return phase == COPSE_PHASE_REDUCE ? "reduce" : "broadcast";
}

/* Adds "src>dst": length, integers as numbers. */
static void add_lengths(struct copse_text *text, const struct copse_schedule *schedule,
                        const struct copse_schedule_length *lengths, int n) {
  copse_text_add(text, ",\n  \"lengths\": {");
  for (int i = 0; i < n; i++) {
    const struct copse_schedule_length *l = &lengths[i];
    struct copse_text key = {0};
    copse_text_add(&key, "%s>%s", schedule->nodes[l->src], schedule->nodes[l->dst]);
    if (key.failed) text->failed = true;
    copse_text_add(text, "%s\n   ", i > 0 ? "," : "");
    if (!key.failed) copse_text_add_json_string(text, key.data);
    copse_text_add(text, ": ");
    if (l->length.den == 1)
      copse_text_add(text, "%" PRId64, l->length.num);
    else
      copse_text_add(text, "\"%s\"", COPSE_Q_STRING(l->length));
    copse_text_free(&key);
  }
  copse_text_add(text, "}");
}

/* Adds the certificate over all forests with common shares: cuts with weights, and potentials. */
static void add_cuts(struct copse_text *text, const struct copse_schedule *schedule) {
  const struct copse_bound *bound = &schedule->bound;
  copse_text_add(text, ", \"kind\": \"forests\",\n  \"cuts\": [");
  for (int i = 0; i < bound->n_cuts; i++) {
    const struct copse_schedule_cut *cut = &bound->cuts[i];
    copse_text_add(text,
                   "%s\n   {\"phase\": \"%s\", \"weight\": \"%s\", \"cut\": ", i > 0 ? "," : "",
                   phase_name(cut->phase), COPSE_Q_STRING(cut->weight));
    add_nodes(text, schedule, cut->nodes, cut->n_nodes);
    copse_text_add(text, "}");
  }
  copse_text_add(text, "],\n  \"potentials\": [");
  for (int i = 0; i < bound->n_potentials; i++) {
    copse_text_add(text, "%s\n   {\"node\": ", i > 0 ? "," : "");
    copse_text_add_json_string(text, schedule->nodes[bound->potentials[i].node]);
    copse_text_add(text, ", \"value\": \"%s\"}", COPSE_Q_STRING(bound->potentials[i].value));
  }
  copse_text_add(text, "]");
}

static void add_bound(struct copse_text *text, const struct copse_schedule *schedule) {
  const struct copse_bound *bound = &schedule->bound;
  copse_text_add(text, " \"bound\": {\"time_per_GB\": \"%s\"", COPSE_Q_STRING(bound->time_per_GB));
  if (bound->kind != COPSE_BOUND_LENGTHS &&
      (bound->kind != COPSE_BOUND_FORESTS || bound->n_cut > 0)) {
    copse_text_add(text, ", \"cut\": ");
    add_nodes(text, schedule, bound->cut, bound->n_cut);
  }
  if (bound->kind == COPSE_BOUND_PHASES) {
    copse_text_add(text, ",\n  \"kind\": \"phases\", \"reduce_cut\": ");
    add_nodes(text, schedule, bound->reduce_cut, bound->n_reduce_cut);
  }
  if (bound->kind == COPSE_BOUND_LENGTHS)
    add_lengths(text, schedule, bound->lengths, bound->n_lengths);
  if (bound->kind == COPSE_BOUND_FORESTS) add_cuts(text, schedule);
  copse_text_add(text, "},\n");
}

static void add_routes(struct copse_text *text, const struct copse_schedule *schedule) {
  const struct copse_schedule_routes *routes = schedule->routes;
  copse_text_add(text, " \"routes\": {\"time_per_GB\": \"%s\"",
                 COPSE_Q_STRING(routes->time_per_GB));
  add_lengths(text, schedule, routes->lengths, routes->n_lengths);
  copse_text_add(text, "},\n");
}

static void add_objective(struct copse_text *text, const struct copse_schedule_objective *o) {
  if (o->bytes == 0) return;
  copse_text_add(text, " \"objective\": {\"bytes\": %" PRId64 ", \"chunks\": %d", o->bytes,
                 o->chunks);
  if (o->fifo > 0) copse_text_add(text, ", \"fifo\": %d", o->fifo);
  copse_text_add(text, ", \"alpha_us\": \"%s\"%s%s},\n", COPSE_Q_STRING(o->alpha_us),
                 o->alpha_occupies ? ", \"alpha_occupies\": true" : "",
                 o->far_first ? ", \"far_first\": true" : "");
}

static void add_parts(struct copse_text *text, const struct copse_schedule *schedule,
                      const struct copse_schedule_part *parts, int n, bool timed) {
  copse_text_add(text, "[");
  for (int i = 0; i < n; i++) {
    copse_text_add(text, "%s\n   {", i > 0 ? "," : "");
    if (timed) copse_text_add(text, "\"us\": \"%s\", ", COPSE_Q_STRING(parts[i].us));
    copse_text_add(text, "\"nodes\": ");
    add_nodes(text, schedule, parts[i].nodes, parts[i].n_nodes);
    copse_text_add(text, "}");
  }
  copse_text_add(text, "]");
}

static void add_bound_at(struct copse_text *text, const struct copse_schedule *schedule) {
  static const char *const kinds[] = {"cut", "volume", "lengths", "rounds", "nested"};
  const struct copse_bound_at *at = schedule->bound_at;
  copse_text_add(text,
                 " \"bound_at\": {\"bytes\": %" PRId64
                 ", \"alpha_us\": \"%s\", \"us\": \"%s\", \"kind\": \"%s\"",
                 at->bytes, COPSE_Q_STRING(at->alpha_us), COPSE_Q_STRING(at->us), kinds[at->kind]);
  if (at->rank >= 0) copse_text_add(text, ", \"rank\": %d", at->rank);
  if (at->reversed) copse_text_add(text, ", \"reversed\": true");
  if (at->part_ranks > 1) copse_text_add(text, ", \"part_ranks\": %d", at->part_ranks);
  if (at->n_parts > 0) {
    copse_text_add(text, ",\n  \"parts\": ");
    add_parts(text, schedule, at->parts, at->n_parts, false);
  }
  if (at->times.n > 0) {
    copse_text_add(text, ",\n  \"times\": ");
    add_parts(text, schedule, at->times.parts, at->times.n, true);
  }
  for (int i = 0; i < at->n_later; i++) {
    copse_text_add(text, i == 0 ? ",\n  \"later\": [" : ",\n  ");
    add_parts(text, schedule, at->later[i].parts, at->later[i].n, true);
  }
  if (at->n_later > 0) copse_text_add(text, "]");
  copse_text_add(text, "},\n");
}

static void add_edge(struct copse_text *text, const struct copse_schedule *schedule,
                     const struct copse_schedule_edge *edge) {
  copse_text_add(text, "{\"src\": %d, \"dst\": %d, \"path\": ", edge->src, edge->dst);
  add_nodes(text, schedule, edge->path, edge->n_path);
  copse_text_append(text, "}", 1);
}

static void add_tree(struct copse_text *text, const struct copse_schedule *schedule,
                     const struct copse_schedule_tree *tree) {
  copse_text_add(text, "  {\"root\": %d, \"phase\": \"%s\", \"weight\": \"%s\"", tree->root,
                 phase_name(tree->phase), COPSE_Q_STRING(tree->weight));
  if (tree->stage > 0)
    copse_text_add(text, ", \"piece\": %d, \"stage\": %d", tree->piece, tree->stage);
  copse_text_add(text, ", \"edges\": [");
  for (int i = 0; i < tree->n_edges; i++) {
    copse_text_add(text, "%s\n   ", i > 0 ? "," : "");
    add_edge(text, schedule, &tree->edges[i]);
  }
  copse_text_add(text, "]}");
}

/* Edges of changes, each once. */
struct shared_edges {
  struct copse_index_map by_path;
  const struct copse_schedule_edge **list;
  size_t n, capacity;
};

static void free_shared(struct shared_edges *shared) {
  copse_index_map_free(&shared->by_path);
  free(shared->list);
}

/* Finds an edge's number, which is the last where it is new. */
static copse_status number_edge(struct shared_edges *shared, const struct copse_schedule_edge *edge,
                                int *number) {
  uint64_t key = COPSE_HASH;
  size_t cursor = 0, bytes = (size_t)edge->n_path * sizeof *edge->path;
  for (int i = 0; i < edge->n_path; i++) key = copse_hash(key, (uint64_t)edge->path[i]);
  while ((*number = copse_index_map_next(&shared->by_path, key, &cursor)) >= 0) {
    const struct copse_schedule_edge *other = shared->list[*number];
    if (other->n_path == edge->n_path && memcmp(other->path, edge->path, bytes) == 0)
      return COPSE_OK;
  }
  COPSE_DO(COPSE_GROW(shared->list, shared->capacity, shared->n + 1, NULL));
  *number = (int)shared->n;
  shared->list[shared->n++] = edge;
  return copse_index_map_add(&shared->by_path, key, *number, NULL);
}

/* Adds edges of changes, then the changes, which have their numbers. */
static void add_changes(struct copse_text *text, const struct copse_schedule *s) {
  COPSE_AT_END(free_shared) struct shared_edges shared = {0};
  int number = 0;
  copse_text_add(text, "\n ],\n \"edges\": [");
  for (const struct copse_schedule_change *c = s->changes; c < s->changes + s->n_changes; c++)
    for (int e = 0; e < c->n_edges && !text->failed; e++) {
      size_t before = shared.n;
      text->failed = number_edge(&shared, &c->edges[e], &number) != COPSE_OK;
      if (shared.n == before) continue;
      copse_text_add(text, before > 0 ? ",\n  " : "\n  ");
      add_edge(text, s, &c->edges[e]);
    }
  copse_text_add(text, "\n ],\n \"changes\": [");
  for (const struct copse_schedule_change *c = s->changes; c < s->changes + s->n_changes; c++) {
    copse_text_add(text,
                   "%s\n  {\"tree\": %d, \"image\": %" PRId64 ", \"weight\": \"%s\", \"edges\": [",
                   c > s->changes ? "," : "", c->tree, c->image, COPSE_Q_STRING(c->weight));
    for (int e = 0; e < c->n_edges && !text->failed; e++) {
      text->failed = number_edge(&shared, &c->edges[e], &number) != COPSE_OK;
      copse_text_add(text, "%s%d", e > 0 ? "," : "", number);
    }
    copse_text_add(text, "]}");
  }
}

static void add_flow(struct copse_text *text, const struct copse_schedule *schedule,
                     const struct copse_schedule_flow *flow) {
  copse_text_add(text, "  {\"src\": %d, \"dst\": %d, \"paths\": [", flow->src, flow->dst);
  for (int i = 0; i < flow->n_paths; i++) {
    copse_text_add(text, "%s\n   {\"path\": ", i > 0 ? "," : "");
    add_nodes(text, schedule, flow->paths[i].nodes, flow->paths[i].n_nodes);
    copse_text_add(text, ", \"weight\": \"%s\"}", COPSE_Q_STRING(flow->paths[i].weight));
  }
  copse_text_add(text, "]}");
}

static void add_demand(struct copse_text *text, const struct copse_schedule *schedule) {
  int n = schedule->n_ranks;
  copse_text_add(text, " \"demand\": [");
  for (int i = 0; i < n; i++) {
    copse_text_add(text, "%s\n  [", i > 0 ? "," : "");
    for (int j = 0; j < n; j++)
      copse_text_add(text, "%s%" PRId64, j > 0 ? "," : "",
                     schedule->demand[(size_t)i * (size_t)n + (size_t)j]);
    copse_text_add(text, "]");
  }
  copse_text_add(text, "],\n");
}

/* Adds the compact form's permutation: a list of nodes and the list of their images. */
static void add_rotation(struct copse_text *text, const struct copse_schedule *schedule) {
  const struct copse_permutation *rotation = &schedule->rotations[0];
  copse_text_add(text, " \"rotation\": {\"order\": %d,\n  \"nodes\": ", rotation->order);
  add_nodes(text, schedule, NULL, schedule->n_nodes);
  copse_text_add(text, ",\n  \"images\": ");
  add_nodes(text, schedule, rotation->image, schedule->n_nodes);
  copse_text_add(text, "},\n");
}

static void add_symmetry(struct copse_text *text, const struct copse_schedule *schedule) {
  copse_text_add(text, " \"symmetry\": {\"nodes\": ");
  add_nodes(text, schedule, NULL, schedule->n_nodes);
  if (schedule->n_absent > 0) {
    copse_text_add(text, ",\n  \"absent\": ");
    add_nodes(text, schedule, schedule->rank_nodes + schedule->n_ranks, schedule->n_absent);
  }
  copse_text_add(text, ",\n  \"generators\": [");
  for (int i = 0; i < schedule->n_rotations; i++) {
    copse_text_add(text, "%s\n   {\"order\": %d, \"images\": ", i > 0 ? "," : "",
                   schedule->rotations[i].order);
    add_nodes(text, schedule, schedule->rotations[i].image, schedule->n_nodes);
    copse_text_add(text, "}");
  }
  copse_text_add(text, "]},\n");
}

static void add_flows(struct copse_text *text, const struct copse_schedule *schedule) {
  if (schedule->demand) add_demand(text, schedule);
  if (schedule->no_forward) copse_text_add(text, " \"forward\": false,\n");
  if (schedule->n_rotations > 0) add_rotation(text, schedule);
  copse_text_add(text, " \"flows\": [");
  for (int i = 0; i < schedule->n_flows; i++) {
    copse_text_add(text, "%s\n", i > 0 ? "," : "");
    add_flow(text, schedule, &schedule->flows[i]);
  }
  copse_text_add(text, "\n ]}\n");
}

static void add_switches(struct copse_text *text, const struct copse_schedule *schedule) {
  copse_text_add(text, ",\n \"in_network\": {\"multicast\": ");
  add_nodes(text, schedule, schedule->copying, schedule->n_copying);
  copse_text_add(text, ", \"aggregation\": ");
  add_nodes(text, schedule, schedule->adding, schedule->n_adding);
  copse_text_add(text, "}");
}

static void add_trees(struct copse_text *text, const struct copse_schedule *schedule) {
  if (schedule->n_rotations > 0) add_symmetry(text, schedule);
  copse_text_add(text, " \"trees\": [");
  for (int i = 0; i < schedule->n_trees; i++) {
    copse_text_add(text, "%s\n", i > 0 ? "," : "");
    add_tree(text, schedule, &schedule->trees[i]);
  }
  if (schedule->excepted) add_changes(text, schedule);
  copse_text_add(text, "\n ]}\n");
}

void copse_schedule_print(const void *thing, struct copse_text *text) {
  const struct copse_schedule *schedule = thing;
  copse_text_add(text, COPSE_JSON_HEAD("schedule") ", \"collective\": \"%s\",",
                 copse_collective_name(schedule->collective));
  if (schedule->root >= 0) copse_text_add(text, " \"root\": %d,", schedule->root);
  copse_text_add(text, "\n \"topology\": {\"name\": ");
  copse_text_add_json_string(text, schedule->topology_name);
  copse_text_add(text, ", \"sha256\": \"%s\"},\n \"ranks\": ", schedule->topology_sha256);
  add_nodes(text, schedule, schedule->rank_nodes, schedule->n_ranks);
  if (schedule->others_excluded) copse_text_add(text, ", \"others\": \"exclude\"");
  if (schedule->n_copying + schedule->n_adding > 0) add_switches(text, schedule);
  if (schedule->collective != COPSE_ALLTOALL)
    copse_text_add(text, ", \"k\": %" PRId64, schedule->k);
  copse_text_add(
      text, ",\n \"time_per_GB\": \"%s\", \"algbw_GBps\": ", COPSE_Q_STRING(schedule->time_per_GB));
  copse_text_add_json_number(text, copse_schedule_algbw(schedule));
  copse_text_add(text, ",\n");
  add_objective(text, &schedule->objective);
  add_bound(text, schedule);
  if (schedule->bound_at) add_bound_at(text, schedule);
  if (schedule->routes) add_routes(text, schedule);
  if (schedule->collective == COPSE_ALLTOALL)
    add_flows(text, schedule);
  else
    add_trees(text, schedule);
}

copse_status copse_schedule_to_json(const struct copse_schedule *schedule, char **out, size_t *size,
                                    struct copse_err *err) {
  struct copse_text text = {0};
  copse_schedule_print(schedule, &text);
  return copse_text_take(&text, out, size, err);
}

/* ==== demand ================================================================================== */

/* Reads "copse-demand/1"; fractions of M. */

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
  COPSE_AT_END(copse_json_free_at) struct copse_json json = {0};
  COPSE_AT_END(copse_free_at) int64_t *made = NULL;
  *bytes = NULL;
  COPSE_DO(copse_json_parse(label, data, size, &json, err));
  COPSE_DO(copse_calloc((size_t)n_ranks * (size_t)n_ranks, sizeof *made, &made, err));
  COPSE_DO(read_matrix(&json, n_ranks, made, err));
  *bytes = made;
  made = NULL;
  return COPSE_OK;
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

/* ---- changed copies ---- */

copse_status copse_schedule_borrow(const struct copse_schedule *from, struct copse_schedule **out,
                                   struct copse_err *err) {
  COPSE_DO(copse_calloc(1, sizeof **out, out, err));
  **out = *from;
  (*out)->arena = (struct copse_arena){NULL};
  return COPSE_OK;
}

static copse_status change_trees(struct copse_schedule *s, copse_change_way *change, void *context,
                                 struct copse_err *err) {
  struct copse_schedule_tree *trees;
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)s->n_trees, trees, err));
  for (int t = 0; t < s->n_trees; t++) {
    struct copse_schedule_edge *edges;
    trees[t] = s->trees[t];
    COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)trees[t].n_edges, edges, err));
    for (int e = 0; e < trees[t].n_edges; e++) {
      edges[e] = trees[t].edges[e];
      COPSE_DO(change(context, &s->arena, edges[e].src, edges[e].dst, &edges[e].path,
                      &edges[e].n_path, err));
    }
    trees[t].edges = edges;
  }
  s->trees = trees;
  return COPSE_OK;
}

copse_status copse_schedule_change_ways(struct copse_schedule *s, copse_change_way *change,
                                        void *context, struct copse_err *err) {
  struct copse_schedule_flow *flows;
  COPSE_DO(change_trees(s, change, context, err));
  COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)s->n_flows, flows, err));
  for (int f = 0; f < s->n_flows; f++) {
    struct copse_schedule_path *paths;
    flows[f] = s->flows[f];
    COPSE_DO(COPSE_ARRAY(&s->arena, (size_t)flows[f].n_paths, paths, err));
    for (int p = 0; p < flows[f].n_paths; p++) {
      paths[p] = flows[f].paths[p];
      COPSE_DO(change(context, &s->arena, flows[f].src, flows[f].dst, &paths[p].nodes,
                      &paths[p].n_nodes, err));
    }
    flows[f].paths = paths;
  }
  s->flows = flows;
  return COPSE_OK;
}

copse_status copse_tree_copy(const struct copse_schedule_tree *from, struct copse_q part,
                             struct copse_arena *arena, struct copse_schedule_tree *to,
                             struct copse_err *err) {
  struct copse_schedule_edge *edges;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)from->n_edges, edges, err));
  *to = *from;
  to->edges = edges;
  for (int e = 0; e < from->n_edges; e++) {
    int *path;
    edges[e] = from->edges[e];
    COPSE_DO(COPSE_ARRAY(arena, (size_t)edges[e].n_path, path, err));
    memcpy(path, edges[e].path, (size_t)edges[e].n_path * sizeof *path);
    edges[e].path = path;
  }
  return copse_q_mul(from->weight, part, &to->weight, err);
}
