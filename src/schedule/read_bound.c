/*
 * Reads the bounds of schedule JSON: cuts, lengths, potentials, and those for one message size.
 * docs/formats.md, "Schedule".
 */
#include <stdio.h>
#include <string.h>

#include "schedule/read_internal.h"

/* Splits "src>dst"; ids may hold '>' themselves, so every one of them is tried. */
static copse_status split_key(struct copse_reader *r, const cJSON *item, const cJSON *parent,
                              struct copse_schedule_length *out) {
  char *copy;
  COPSE_DO(copse_reader_take(r, strlen(item->string) + 1, 1, &copy));
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
  COPSE_DO(copse_reader_intern(r, copy, &out->src));
  return copse_reader_intern(r, first + 1, &out->dst);
}

/* Reads "lengths" of a bound. */
static copse_status read_lengths(struct copse_reader *r, const cJSON *bound,
                                 const struct copse_schedule_length **out, int *n) {
  const cJSON *object = copse_json_get(bound, "lengths");
  if (!copse_json_is_object(object))
    return copse_reader_refuse(r, object, bound, "\"lengths\" must be an object");
  struct copse_schedule_length *lengths;
  COPSE_DO(copse_reader_take(r, (size_t)cJSON_GetArraySize(object), sizeof *lengths, &lengths));
  *out = lengths;
  COPSE_JSON_EACH (item, object) {
    struct copse_schedule_length *l = &lengths[(*n)++];
    COPSE_DO(split_key(r, item, object, l));
    COPSE_DO(copse_json_rational(&r->json, item, object, "a length", &l->length, r->err));
    if (l->length.num < 0)
      return copse_reader_refuse(r, item, object, "a length must not be negative");
  }
  return COPSE_OK;
}

copse_status copse_reader_routes(struct copse_reader *r, const cJSON *item) {
  struct copse_schedule_routes *routes;
  COPSE_DO(copse_reader_take(r, 1, sizeof *routes, &routes));
  COPSE_DO(
      copse_json_expect_object(&r->json, item, r->json.root, "\"routes\"", routes_keys, r->err));
  COPSE_DO(copse_json_get_rational(&r->json, item, "time_per_GB", &routes->time_per_GB, r->err));
  r->schedule->routes = routes;
  return read_lengths(r, item, &routes->lengths, &routes->n_lengths);
}

static copse_status read_cut(struct copse_reader *r, const cJSON *item, const cJSON *parent,
                             struct copse_schedule_cut *cut) {
  const char *phase;
  COPSE_DO(copse_json_expect_object(&r->json, item, parent, "a cut", cut_keys, r->err));
  COPSE_DO(copse_json_get_string(&r->json, item, "phase", &phase, r->err));
  COPSE_DO(copse_json_get_rational(&r->json, item, "weight", &cut->weight, r->err));
  COPSE_DO(copse_reader_nodes(r, item, "cut", &cut->nodes, &cut->n_nodes));
  cut->phase = strcmp(phase, "reduce") == 0 ? COPSE_PHASE_REDUCE : COPSE_PHASE_BROADCAST;
  if (cut->phase == COPSE_PHASE_BROADCAST && strcmp(phase, "broadcast") != 0)
    return copse_reader_refuse(r, item, NULL, "\"phase\" must be broadcast or reduce");
  if (cut->weight.num <= 0)
    return copse_reader_refuse(r, item, NULL, "\"weight\" must be positive");
  return COPSE_OK;
}

static copse_status read_potential(struct copse_reader *r, const cJSON *item, const cJSON *parent,
                                   struct copse_schedule_potential *potential) {
  const char *node;
  COPSE_DO(copse_json_expect_object(&r->json, item, parent, "a potential", potential_keys, r->err));
  COPSE_DO(copse_json_get_string(&r->json, item, "node", &node, r->err));
  COPSE_DO(copse_json_get_rational(&r->json, item, "value", &potential->value, r->err));
  return copse_reader_intern(r, node, &potential->node);
}

/* Reads "cuts" and "potentials" of an allreduce's. */
static copse_status read_forests(struct copse_reader *r, const cJSON *bound) {
  struct copse_bound *b = &r->schedule->bound;
  struct copse_schedule_cut *cut;
  struct copse_schedule_potential *potential;
  const struct copse_json_list *cuts;
  const cJSON *potentials;
  COPSE_DO(copse_reader_take_items(r, bound, "/cuts", sizeof *cut, &cuts, &cut));
  COPSE_DO(
      copse_reader_take_list(r, bound, "potentials", sizeof *potential, &potentials, &potential));
  for (size_t i = 0; i < cuts->n; i++) {
    COPSE_AT_END(copse_json_free_at) struct copse_json item;
    COPSE_DO(copse_json_item(&r->json, cuts, i, &item, r->err));
    COPSE_DO(read_cut(r, item.root, bound, &cut[b->n_cuts++]));
  }
  COPSE_JSON_EACH (item, potentials)
    COPSE_DO(read_potential(r, item, bound, &potential[b->n_potentials++]));
  b->kind = COPSE_BOUND_FORESTS;
  b->cuts = cut;
  b->potentials = potential;
  return COPSE_OK;
}

copse_status copse_reader_bound(struct copse_reader *r) {
  struct copse_bound *b = &r->schedule->bound;
  const cJSON *bound = copse_json_get(r->json.root, "bound");
  COPSE_DO(
      copse_json_expect_object(&r->json, bound, r->json.root, "\"bound\"", bound_keys, r->err));
  COPSE_DO(copse_json_get_rational(&r->json, bound, "time_per_GB", &b->time_per_GB, r->err));
  const char *kind = "cut";
  if (copse_json_get(bound, "kind"))
    COPSE_DO(copse_json_get_string(&r->json, bound, "kind", &kind, r->err));
  bool forests = strcmp(kind, "forests") == 0 && r->schedule->collective == COPSE_ALLREDUCE;
  if (copse_json_get(bound, "cuts") && !forests) /* they would not be looked at */
    return copse_reader_refuse(
        r, bound, NULL, "\"cuts\" are for an allreduce's bound, and need \"kind\": \"forests\"");
  if (r->schedule->collective == COPSE_ALLTOALL && copse_json_get(bound, "lengths")) {
    b->kind = COPSE_BOUND_LENGTHS;
    return read_lengths(r, bound, &b->lengths, &b->n_lengths);
  }
  if (r->schedule->collective == COPSE_ALLTOALL && !copse_json_get(bound, "cut"))
    return copse_reader_refuse(
        r, bound, NULL,
        "\"bound\" needs \"lengths\" of links, such as {\"gpu0>gpu1\": 1}, or a \"cut\"");
  if (!forests || copse_json_get(bound, "cut"))
    COPSE_DO(copse_reader_nodes(r, bound, "cut", &b->cut, &b->n_cut));
  if (forests) return read_forests(r, bound);
  if (strcmp(kind, "cut") == 0) {
    if (copse_json_get(bound, "reduce_cut"))
      return copse_reader_refuse(r, bound, NULL, "\"reduce_cut\" needs \"kind\": \"phases\"");
    return COPSE_OK;
  }
  if (strcmp(kind, "phases") != 0 || r->schedule->collective != COPSE_ALLREDUCE)
    return copse_reader_refuse(r, bound, NULL,
                               "\"kind\" must be \"cut\", or for an allreduce \"phases\" or "
                               "\"forests\"");
  b->kind = COPSE_BOUND_PHASES;
  return copse_reader_nodes(r, bound, "reduce_cut", &b->reduce_cut, &b->n_reduce_cut);
}

/* Sets of nodes, with their times if those are `timed`. */
static copse_status read_parts(struct copse_reader *r, const cJSON *array, const cJSON *parent,
                               bool timed, const struct copse_schedule_part **out, int *n) {
  struct copse_schedule_part *parts;
  if (!copse_json_is_array(array))
    return copse_reader_refuse(r, array, parent, "sets of nodes must be an array");
  COPSE_DO(copse_reader_take(r, (size_t)cJSON_GetArraySize(array), sizeof *parts, &parts));
  COPSE_JSON_EACH (one, array) {
    struct copse_schedule_part *part = &parts[(*n)++];
    COPSE_DO(copse_json_expect_object(&r->json, one, parent, "a set", part_keys + !timed, r->err));
    if (timed) COPSE_DO(copse_json_get_rational(&r->json, one, "us", &part->us, r->err));
    COPSE_DO(copse_reader_nodes(r, one, "nodes", &part->nodes, &part->n_nodes));
  }
  *out = parts;
  return COPSE_OK;
}

static copse_status read_later(struct copse_reader *r, const cJSON *item,
                               struct copse_bound_at *at) {
  const cJSON *array;
  struct copse_schedule_times *later;
  COPSE_DO(copse_reader_take_list(r, item, "later", sizeof *later, &array, &later));
  COPSE_JSON_EACH (one, array) {
    struct copse_schedule_times *times = &later[at->n_later++];
    COPSE_DO(read_parts(r, one, item, true, &times->parts, &times->n));
  }
  at->later = later;
  return COPSE_OK;
}

/* Refuses a member that no proof of the kind reads: it would look proved. */
static copse_status refuse_unread(struct copse_reader *r, const cJSON *item,
                                  enum copse_bound_at_kind kind, const char *name) {
  enum {
    CUT = 1 << COPSE_BOUND_AT_CUT,
    COUNT = 1 << COPSE_BOUND_AT_VOLUME | 1 << COPSE_BOUND_AT_ROUNDS,
    PARTS = COUNT | 1 << COPSE_BOUND_AT_NESTED
  };
  static const struct {
    const char *member;
    int kinds;
  } read[] = {{"rank", CUT},    {"reversed", CUT | PARTS}, {"times", CUT | PARTS},
              {"parts", PARTS}, {"part_ranks", PARTS},     {"later", COUNT}};
  for (size_t i = 0; i < sizeof read / sizeof *read; i++) {
    const cJSON *member = copse_json_get(item, read[i].member);
    char text[80];
    if (!member || read[i].kinds & 1 << kind) continue;
    snprintf(text, sizeof text, "\"bound_at\" of kind \"%s\" has no \"%s\"", name, read[i].member);
    return copse_reader_refuse(r, member, item, text);
  }
  return COPSE_OK;
}

copse_status copse_reader_bound_at(struct copse_reader *r, const cJSON *item) {
  static const char *const kinds[] = {"cut", "volume", "lengths", "rounds", "nested"};
  struct copse_bound_at *at;
  const char *kind;
  int64_t rank;
  COPSE_DO(copse_reader_take(r, 1, sizeof *at, &at));
  at->rank = -1;
  at->part_ranks = 1;
  COPSE_DO(copse_json_expect_object(&r->json, item, r->json.root, "\"bound_at\"", bound_at_keys,
                                    r->err));
  COPSE_DO(copse_json_get_int(&r->json, item, "bytes", 1, INT64_MAX, &at->bytes, r->err));
  COPSE_DO(copse_json_get_rational(&r->json, item, "alpha_us", &at->alpha_us, r->err));
  COPSE_DO(copse_json_get_rational(&r->json, item, "us", &at->us, r->err));
  COPSE_DO(copse_json_get_string(&r->json, item, "kind", &kind, r->err));
  while (at->kind < 5 && strcmp(kind, kinds[at->kind]) != 0) at->kind++;
  if (at->kind == 5)
    return copse_reader_refuse(r, item, NULL,
                               "\"kind\" must be \"cut\", \"volume\", \"rounds\", \"nested\" or "
                               "\"lengths\"");
  COPSE_DO(refuse_unread(r, item, at->kind, kind));
  if (at->alpha_us.num < 0 || at->us.num <= 0)
    return copse_reader_refuse(r, item, NULL, "\"us\" must be positive, \"alpha_us\" not negative");
  COPSE_DO(copse_json_get_bool_or(&r->json, item, "reversed", false, &at->reversed, r->err));
  if (copse_json_get(item, "rank")) {
    COPSE_DO(
        copse_json_get_int(&r->json, item, "rank", 0, r->schedule->n_ranks - 1, &rank, r->err));
    at->rank = (int)rank;
  }
  if (copse_json_get(item, "part_ranks")) {
    COPSE_DO(
        copse_json_get_int(&r->json, item, "part_ranks", 1, r->schedule->n_ranks, &rank, r->err));
    at->part_ranks = (int)rank;
  }
  const cJSON *parts = copse_json_get(item, "parts"), *times = copse_json_get(item, "times");
  if (parts) COPSE_DO(read_parts(r, parts, item, false, &at->parts, &at->n_parts));
  if (parts && at->n_parts == 0) return copse_reader_refuse(r, parts, item, "\"parts\" is empty");
  if (times) COPSE_DO(read_parts(r, times, item, true, &at->times.parts, &at->times.n));
  if (copse_json_get(item, "later")) COPSE_DO(read_later(r, item, at));
  r->schedule->bound_at = at;
  return COPSE_OK;
}
