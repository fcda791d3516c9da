/*
 * Groups of ranks that share a fabric: the list that a user writes, and the index "copse-groups/1"
 * with the joint bound, read and written. docs/formats.md, "Groups" and "Index of groups".
 */
#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "schedule/groups.h"
#include "topology/modify.h"

#define FORMAT "copse-groups/1"

void copse_groups_release(struct copse_groups *groups) {
  if (!groups) return;
  for (int g = 0; groups->members && g < groups->n; g++)
    copse_schedule_free(groups->members[g].schedule);
  copse_arena_free(&groups->arena);
  free(groups);
}

/* ---- writing ------------------------------------------------------------------------------- */

static void add_ids(struct copse_text *text, const char *key, const char *const *ids, int n) {
  copse_text_add(text, "\"%s\": [", key);
  for (int i = 0; i < n; i++) {
    if (i > 0) copse_text_add(text, ",");
    copse_text_add_json_string(text, ids[i]);
  }
  copse_text_add(text, "]");
}

static const char *phase_name(enum copse_phase phase) {
  return phase == COPSE_PHASE_REDUCE ? "reduce" : "broadcast";
}

static void add_symmetry(struct copse_text *text, const struct copse_groups *groups) {
  copse_text_add(text, ",\n  \"symmetry\": {");
  add_ids(text, "nodes", groups->symmetry_nodes, groups->n_symmetry_nodes);
  copse_text_add(text, ",\n   \"generators\": [");
  for (int i = 0; i < groups->n_generators; i++) {
    copse_text_add(text, "%s\n    {\"groups\": [", i > 0 ? "," : "");
    for (int g = 0; g < groups->n; g++)
      copse_text_add(text, "%s%d", g > 0 ? "," : "", groups->generators[i].groups[g]);
    copse_text_add(text, "],\n     ");
    add_ids(text, "images", groups->generators[i].images, groups->n_symmetry_nodes);
    copse_text_add(text, "}");
  }
  copse_text_add(text, "]}");
}

static void add_bound(struct copse_text *text, const struct copse_groups *groups) {
  copse_text_add(text, " \"bound\": {\"time_per_GB\": \"%s\",\n  \"cuts\": [",
                 COPSE_Q_STRING(groups->bound_time_per_GB));
  for (int c = 0; c < groups->n_cuts; c++) {
    const struct copse_groups_cut *cut = &groups->cuts[c];
    copse_text_add(text, "%s\n   {\"group\": %d, ", c > 0 ? "," : "", cut->group);
    if (cut->sink >= 0)
      copse_text_add(text, "\"sink\": %d, ", cut->sink);
    else
      copse_text_add(text, "\"phase\": \"%s\", ", phase_name(cut->phase));
    copse_text_add(text, "\"weight\": \"%s\", ", COPSE_Q_STRING(cut->weight));
    add_ids(text, "cut", cut->nodes, cut->n_nodes);
    copse_text_add(text, "}");
  }
  copse_text_add(text, "],\n  \"potentials\": [");
  for (int i = 0; i < groups->n_potentials; i++) {
    const struct copse_groups_potential *p = &groups->potentials[i];
    copse_text_add(text, "%s\n   {\"group\": %d, \"phase\": \"%s\", \"node\": ", i > 0 ? "," : "",
                   p->group, phase_name(p->phase));
    copse_text_add_json_string(text, p->node);
    copse_text_add(text, ", \"value\": \"%s\"}", COPSE_Q_STRING(p->value));
  }
  copse_text_add(text, "]");
  if (groups->n_generators > 0) add_symmetry(text, groups);
  copse_text_add(text, "},\n");
}

copse_status copse_groups_to_json(const struct copse_groups *groups, char **out, size_t *size,
                                  struct copse_err *err) {
  struct copse_text text = {0};
  copse_text_add(&text, COPSE_JSON_HEAD("groups") ",\n \"topology\": {\"name\": ");
  copse_text_add_json_string(&text, groups->topology_name);
  copse_text_add(&text, ", \"sha256\": \"%s\"},\n \"time_per_GB\": \"%s\",\n",
                 groups->topology_sha256, COPSE_Q_STRING(groups->time_per_GB));
  add_bound(&text, groups);
  copse_text_add(&text, " \"groups\": [");
  for (int g = 0; g < groups->n; g++) {
    const struct copse_groups_member *member = &groups->members[g];
    copse_text_add(&text, "%s\n  {\"file\": ", g > 0 ? "," : "");
    copse_text_add_json_string(&text, member->file);
    copse_text_add(&text, ", \"collective\": \"%s\", ", copse_collective_name(member->collective));
    add_ids(&text, "ranks", member->ranks, member->n_ranks);
    copse_text_add(&text, "}");
  }
  copse_text_add(&text, "\n ]}\n");
  return copse_text_take(&text, out, size, err);
}

/* ---- reading ------------------------------------------------------------------------------- */

struct reader {
  const char *path;
  struct copse_json json;
  struct copse_groups *groups;
  struct copse_err *err;
};

static copse_status refuse(const struct reader *r, const cJSON *item, const cJSON *parent,
                           const char *what) {
  return copse_fail_at(r->err, COPSE_BAD_INPUT, r->json.file, copse_json_line(item, parent), "%s",
                       what);
}

/* Takes the member `key`, an array, and zeroed memory for its items at *out_pointer. */
static copse_status take_list(const struct reader *r, const cJSON *object, const char *key,
                              size_t size, const cJSON **array, void *out_pointer) {
  COPSE_DO(copse_json_get_array(&r->json, object, key, array, r->err));
  return copse_arena_array(&r->groups->arena, (size_t)cJSON_GetArraySize(*array), size, out_pointer,
                           r->err);
}

static copse_status copy_string(const struct reader *r, const cJSON *object, const char *key,
                                const char **out) {
  const char *value;
  COPSE_DO(copse_json_get_string(&r->json, object, key, &value, r->err));
  return copse_arena_text(&r->groups->arena, value, out, r->err);
}

static copse_status read_ids(const struct reader *r, const cJSON *object, const char *key,
                             const char *const **out, int *n) {
  const cJSON *array;
  const char **ids;
  COPSE_DO(take_list(r, object, key, sizeof *ids, &array, &ids));
  *n = 0;
  COPSE_JSON_EACH (item, array) {
    if (!copse_json_is_string(item))
      return refuse(r, item, object, "\"cut\" and \"ranks\" must be arrays of node ids");
    COPSE_DO(copse_arena_text(&r->groups->arena, item->valuestring, &ids[(*n)++], r->err));
  }
  *out = ids;
  return COPSE_OK;
}

/* Reads a group's number; the groups are known by then. */
static copse_status read_group(const struct reader *r, const cJSON *item, int *group) {
  return copse_json_get_index(&r->json, item, "group", r->groups->n, group, r->err);
}

static copse_status read_phase(const struct reader *r, const cJSON *item, enum copse_phase *phase) {
  const char *name;
  COPSE_DO(copse_json_get_string(&r->json, item, "phase", &name, r->err));
  *phase = strcmp(name, "reduce") == 0 ? COPSE_PHASE_REDUCE : COPSE_PHASE_BROADCAST;
  if (*phase == COPSE_PHASE_BROADCAST && strcmp(name, "broadcast") != 0)
    return refuse(r, item, NULL, "\"phase\" must be broadcast or reduce");
  return COPSE_OK;
}

/* Reads the rank that all goes to, which an alltoall's cuts name, or the phase, which others'
 * do. */
static copse_status read_phase_or_sink(const struct reader *r, const cJSON *item,
                                       struct copse_groups_cut *cut) {
  const struct copse_groups_member *member = &r->groups->members[cut->group];
  cut->sink = -1;
  if (member->collective != COPSE_ALLTOALL) return read_phase(r, item, &cut->phase);
  return copse_json_get_index(&r->json, item, "sink", member->n_ranks, &cut->sink, r->err);
}

static copse_status read_cuts(const struct reader *r, const cJSON *bound) {
  static const struct copse_json_key keys[] = {
      {"group", COPSE_JSON_NEEDED | COPSE_JSON_INDEX, "a place in \"groups\", from 0"},
      {"phase", COPSE_JSON_STRING, "\"broadcast\" or \"reduce\""},
      {"sink", COPSE_JSON_INDEX, "of an alltoall, the rank that all goes to"},
      {"weight", COPSE_JSON_NEEDED | COPSE_JSON_NUMBER,
       "its part of the certificate, such as \"1/2\""},
      {"cut", COPSE_JSON_NEEDED | COPSE_JSON_ARRAY, "ids of nodes, such as [\"gpu0\", \"gpu1\"]"},
      {0}};
  const cJSON *array;
  struct copse_groups_cut *cuts;
  COPSE_DO(take_list(r, bound, "cuts", sizeof *cuts, &array, &cuts));
  COPSE_JSON_EACH (item, array) {
    struct copse_groups_cut *cut = &cuts[r->groups->n_cuts++];
    COPSE_DO(copse_json_expect_object(&r->json, item, bound, "a cut", keys, r->err));
    COPSE_DO(read_group(r, item, &cut->group));
    COPSE_DO(read_phase_or_sink(r, item, cut));
    COPSE_DO(copse_json_get_rational(&r->json, item, "weight", &cut->weight, r->err));
    COPSE_DO(read_ids(r, item, "cut", &cut->nodes, &cut->n_nodes));
  }
  r->groups->cuts = cuts;
  return COPSE_OK;
}

static copse_status read_potentials(const struct reader *r, const cJSON *bound) {
  static const struct copse_json_key keys[] = {
      {"group", COPSE_JSON_NEEDED | COPSE_JSON_INDEX, "a place in \"groups\", from 0"},
      {"phase", COPSE_JSON_NEEDED | COPSE_JSON_STRING, "\"broadcast\" or \"reduce\""},
      {"node", COPSE_JSON_NEEDED | COPSE_JSON_STRING, "the id of a node"},
      {"value", COPSE_JSON_NEEDED | COPSE_JSON_NUMBER, "its potential, such as \"-1/2\""},
      {0}};
  const cJSON *array;
  struct copse_groups_potential *potentials;
  COPSE_DO(take_list(r, bound, "potentials", sizeof *potentials, &array, &potentials));
  COPSE_JSON_EACH (item, array) {
    struct copse_groups_potential *p = &potentials[r->groups->n_potentials++];
    COPSE_DO(copse_json_expect_object(&r->json, item, bound, "a potential", keys, r->err));
    COPSE_DO(read_group(r, item, &p->group));
    COPSE_DO(read_phase(r, item, &p->phase));
    COPSE_DO(copy_string(r, item, "node", &p->node));
    COPSE_DO(copse_json_get_rational(&r->json, item, "value", &p->value, r->err));
  }
  r->groups->potentials = potentials;
  return COPSE_OK;
}

static copse_status read_generator(const struct reader *r, const cJSON *item, const cJSON *parent,
                                   struct copse_groups_generator *generator) {
  static const struct copse_json_key keys[] = {
      {"groups", COPSE_JSON_NEEDED | COPSE_JSON_ARRAY,
       "the group that each is mapped to, such as [1, 0]"},
      {"images", COPSE_JSON_NEEDED | COPSE_JSON_ARRAY, "the ids that \"nodes\" are mapped to"},
      {0}};
  const cJSON *array;
  int *groups, n;
  COPSE_DO(copse_json_expect_object(&r->json, item, parent, "a generator", keys, r->err));
  COPSE_DO(take_list(r, item, "groups", sizeof *groups, &array, &groups));
  n = 0;
  COPSE_JSON_EACH (number, array) {
    int64_t group;
    COPSE_DO(copse_json_int(&r->json, number, item, "an entry of \"groups\"", 0, r->groups->n - 1,
                            &group, r->err));
    groups[n++] = (int)group;
  }
  generator->groups = groups;
  if (n != r->groups->n)
    return refuse(r, array, item, "\"groups\" must have an entry for every group");
  COPSE_DO(read_ids(r, item, "images", &generator->images, &n));
  if (n != r->groups->n_symmetry_nodes)
    return refuse(r, item, NULL, "\"images\" must have an entry for every one of \"nodes\"");
  return COPSE_OK;
}

static copse_status read_symmetry(const struct reader *r, const cJSON *bound) {
  static const struct copse_json_key keys[] = {
      {"nodes", COPSE_JSON_NEEDED | COPSE_JSON_ARRAY, "ids of nodes, such as [\"gpu0\", \"gpu1\"]"},
      {"generators", COPSE_JSON_NEEDED | COPSE_JSON_ARRAY,
       "such as [{\"groups\": [1, 0], \"images\": [\"gpu1\", \"gpu0\"]}]"},
      {0}};
  const cJSON *symmetry = copse_json_get(bound, "symmetry"), *array;
  struct copse_groups_generator *generators;
  if (!symmetry) return COPSE_OK;
  COPSE_DO(copse_json_expect_object(&r->json, symmetry, bound, "\"symmetry\"", keys, r->err));
  COPSE_DO(
      read_ids(r, symmetry, "nodes", &r->groups->symmetry_nodes, &r->groups->n_symmetry_nodes));
  COPSE_DO(take_list(r, symmetry, "generators", sizeof *generators, &array, &generators));
  r->groups->generators = generators;
  COPSE_JSON_EACH (item, array)
    COPSE_DO(read_generator(r, item, symmetry, &generators[r->groups->n_generators++]));
  return COPSE_OK;
}

static copse_status read_member(const struct reader *r, const cJSON *item, const cJSON *parent,
                                struct copse_groups_member *member) {
  static const struct copse_json_key keys[] = {
      {"file", COPSE_JSON_NEEDED | COPSE_JSON_STRING,
       "its schedule, a file beside this one, such as \"group-0.json\""},
      {"collective", COPSE_JSON_NEEDED | COPSE_JSON_STRING, "such as \"allreduce\""},
      {"ranks", COPSE_JSON_NEEDED | COPSE_JSON_ARRAY, "ids of nodes, such as [\"gpu0\", \"gpu1\"]"},
      {0}};
  const char *collective;
  COPSE_AT_END(copse_free_at) char *path = NULL;
  COPSE_DO(copse_json_expect_object(&r->json, item, parent, "a group", keys, r->err));
  COPSE_DO(copy_string(r, item, "file", &member->file));
  if (strchr(member->file, '/') || !*member->file)
    return refuse(r, item, NULL, "\"file\" must be the name of a file beside this one");
  COPSE_DO(copse_json_get_string(&r->json, item, "collective", &collective, r->err));
  if (!copse_collective_from_name(collective, &member->collective))
    return refuse(r, item, NULL, "\"collective\" is none that there is");
  COPSE_DO(read_ids(r, item, "ranks", &member->ranks, &member->n_ranks));
  COPSE_DO(copse_file_beside(r->path, member->file, &path, r->err));
  return copse_schedule_load_claim(path, &member->schedule, r->err);
}

static copse_status read_members(const struct reader *r) {
  const cJSON *array;
  int n = 0;
  COPSE_DO(take_list(r, r->json.root, "groups", sizeof *r->groups->members, &array,
                     &r->groups->members));
  r->groups->n = cJSON_GetArraySize(array);
  if (r->groups->n == 0) return refuse(r, array, r->json.root, "\"groups\" is empty");
  COPSE_JSON_EACH (item, array)
    COPSE_DO(read_member(r, item, r->json.root, &r->groups->members[n++]));
  return COPSE_OK;
}

static copse_status read_index(const struct reader *r) {
  static const struct copse_json_key keys[] = {
      {"format", COPSE_JSON_NEEDED | COPSE_JSON_STRING, "\"copse-groups/1\""},
      {"topology", COPSE_JSON_NEEDED | COPSE_JSON_OBJECT,
       "such as {\"name\": \"a100-x2\", \"sha256\": \"..\"}"},
      {"time_per_GB", COPSE_JSON_NEEDED | COPSE_JSON_NUMBER, "seconds per GB, such as \"1/600\""},
      {"bound", COPSE_JSON_NEEDED | COPSE_JSON_OBJECT,
       "the joint bound with its cuts and potentials"},
      {"groups", COPSE_JSON_NEEDED | COPSE_JSON_ARRAY,
       "such as [{\"file\": \"group-0.json\", \"collective\": \"allreduce\", \"ranks\": []}]"},
      {0}};
  static const struct copse_json_key topology_keys[] = {
      {"name", COPSE_JSON_NEEDED | COPSE_JSON_STRING, "the name of the topology"},
      {"sha256", COPSE_JSON_NEEDED | COPSE_JSON_STRING,
       "of the canonical topology JSON, 64 hexadecimal digits"},
      {0}};
  static const struct copse_json_key bound_keys[] = {
      {"time_per_GB", COPSE_JSON_NEEDED | COPSE_JSON_NUMBER, "seconds per GB, such as \"1/600\""},
      {"cuts", COPSE_JSON_NEEDED | COPSE_JSON_ARRAY,
       "such as [{\"group\": 0, \"phase\": \"reduce\", \"weight\": \"1/2\", \"cut\": [\"gpu0\"]}]"},
      {"potentials", COPSE_JSON_NEEDED | COPSE_JSON_ARRAY,
       "such as [{\"group\": 0, \"phase\": \"reduce\", \"node\": \"gpu0\", \"value\": \"1/2\"}]"},
      {"symmetry", COPSE_JSON_OBJECT, "permutations of nodes"},
      {0}};
  const cJSON *root = r->json.root;
  struct copse_groups *g = r->groups;
  COPSE_DO(copse_json_expect_object(&r->json, root, NULL, "an index of groups", keys, r->err));
  const cJSON *topology = copse_json_get(root, "topology"), *bound = copse_json_get(root, "bound");
  COPSE_DO(
      copse_json_expect_object(&r->json, topology, root, "\"topology\"", topology_keys, r->err));
  COPSE_DO(copy_string(r, topology, "name", &g->topology_name));
  COPSE_DO(copy_string(r, topology, "sha256", &g->topology_sha256));
  COPSE_DO(copse_json_get_rational(&r->json, root, "time_per_GB", &g->time_per_GB, r->err));
  COPSE_DO(read_members(r));
  COPSE_DO(copse_json_expect_object(&r->json, bound, root, "\"bound\"", bound_keys, r->err));
  COPSE_DO(copse_json_get_rational(&r->json, bound, "time_per_GB", &g->bound_time_per_GB, r->err));
  COPSE_DO(read_cuts(r, bound));
  COPSE_DO(read_potentials(r, bound));
  return read_symmetry(r, bound);
}

static bool has_format(const struct copse_json *json) {
  const cJSON *format =
      copse_json_is_object(json->root) ? copse_json_get(json->root, "format") : NULL;
  return format && copse_json_is_string(format) && strcmp(format->valuestring, FORMAT) == 0;
}

static void release_reader(struct reader *r) {
  copse_json_free(&r->json);
  copse_groups_release(r->groups);
}

copse_status copse_groups_load(const char *path, struct copse_groups **out, struct copse_err *err) {
  COPSE_AT_END(copse_free_at) char *data = NULL;
  COPSE_AT_END(release_reader) struct reader r = {.path = path, .err = err};
  size_t size;
  *out = NULL;
  COPSE_DO(copse_file_read(path, &data, &size, err));
  COPSE_DO(copse_json_parse(copse_file_label(path), data, size, &r.json, err));
  COPSE_DO(copse_calloc(1, sizeof *r.groups, &r.groups, err));
  if (!has_format(&r.json))
    return refuse(&r, r.json.root, NULL, "\"format\" must be \"" FORMAT "\"");
  COPSE_DO(read_index(&r));
  *out = r.groups;
  r.groups = NULL;
  return COPSE_OK;
}

struct list_reader {
  const char *file;
  long line;
  const struct copse_topology *topology;
  struct copse_group *groups;
  size_t n, capacity;
  struct copse_err *err;
};

static copse_status refuse_line(const struct list_reader *r, const char *what) {
  return copse_fail_at(r->err, COPSE_BAD_INPUT, r->file, r->line, "%s", what);
}

/* Reads "allreduce" or "broadcast:3". */
static copse_status read_collective(const struct list_reader *r, char *word,
                                    struct copse_group *group) {
  char *colon = strchr(word, ':');
  if (colon) *colon = '\0';
  if (!copse_collective_from_name(word, &group->collective))
    return copse_fail_at(r->err, COPSE_BAD_INPUT, r->file, r->line,
                         "'%.40s' is no collective; a line is a list of ranks, such as 0-3,8, or a "
                         "collective and a list",
                         word);
  if (!copse_collective_rooted(group->collective)) {
    if (colon) return refuse_line(r, "a root (':') is for broadcast and reduce");
    group->root = -1;
  } else if (colon) {
    size_t digits = strspn(colon + 1, "0123456789");
    if (digits < 1 || digits > 9 || colon[1 + digits])
      return refuse_line(
          r, "a root must be a place in the list of ranks, from 0, such as broadcast:0");
    group->root = atoi(colon + 1);
  }
  return COPSE_OK;
}

static copse_status read_ranks(struct list_reader *r, const char *list, struct copse_group *group) {
  COPSE_AT_END(copse_text_free) struct copse_text place = {0};
  copse_text_add(&place, "%s:%ld", r->file, r->line);
  COPSE_DO(copse_text_status(&place, r->err));
  COPSE_DO(
      copse_topology_parse_ranks(r->topology, place.data, list, &group->nodes, &group->n, r->err));
  if (group->n < 2) return refuse_line(r, "a group of one rank sends nothing; leave the line out");
  if (copse_collective_rooted(group->collective) && (group->root < 0 || group->root >= group->n))
    return copse_fail_at(r->err, COPSE_BAD_INPUT, r->file, r->line,
                         "%s needs a root from 0 to %d, a place in the list of ranks",
                         copse_collective_name(group->collective), group->n - 1);
  return COPSE_OK;
}

static void free_nodes(struct copse_group *group) { free(group->nodes); }

static copse_status read_line(struct list_reader *r, char *line, copse_collective collective,
                              int root) {
  COPSE_AT_END(free_nodes)
  struct copse_group group = {.collective = collective, .root = root, .line = r->line};
  char *words[3], *rest = line, *word;
  int n = 0;
  line[strcspn(line, "#")] = '\0';
  while ((word = strsep(&rest, " \t\r"))) {
    if (!*word) continue;
    if (n == 2)
      return refuse_line(r, "more than a collective and a list of ranks; a list has no blanks");
    words[n++] = word;
  }
  if (n == 0) return COPSE_OK;
  if (n == 2) COPSE_DO(read_collective(r, words[0], &group));
  COPSE_DO(read_ranks(r, words[n - 1], &group));
  COPSE_DO(COPSE_PUSH(r->groups, r->n, r->capacity, r->err, group));
  group.nodes = NULL;
  return COPSE_OK;
}

static void free_read(struct list_reader *r) { copse_group_list_free(r->groups, (int)r->n); }

copse_status copse_group_list_parse(const char *file, const char *data, size_t size,
                                    const struct copse_topology *topology,
                                    copse_collective collective, int root, struct copse_group **out,
                                    int *n, struct copse_err *err) {
  COPSE_AT_END(free_read) struct list_reader r = {.file = file, .topology = topology, .err = err};
  COPSE_AT_END(copse_free_at) char *text = NULL;
  char *rest, *line;
  *out = NULL;
  *n = 0;
  if (memchr(data, '\0', size))
    return copse_fail_at(err, COPSE_BAD_INPUT, file, 0,
                         "NUL bytes; a file of groups is text, a list of ranks a line");
  COPSE_DO(copse_calloc(size + 1, 1, &text, err));
  memcpy(text, data, size);
  rest = text;
  while ((line = strsep(&rest, "\n"))) {
    r.line++;
    COPSE_DO(read_line(&r, line, collective, root));
  }
  if (r.n == 0)
    return copse_fail_at(err, COPSE_BAD_INPUT, file, 0,
                         "no group; give a list of ranks a line, such as 0-7");
  *out = r.groups;
  *n = (int)r.n;
  r.groups = NULL;
  return COPSE_OK;
}
