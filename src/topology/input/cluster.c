/*
 * Cluster JSON (copse-cluster/1), and the maps of a fabric that Slurm has. docs/formats.md,
 * "Cluster"; Slurm's topology.conf(5).
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/graph.h"
#include "base/memory.h"
#include "base/text.h"
#include "topology/fabric/fabric.h"
#include "topology/input/readers.h"
#include "topology/topology.h"

/* ==== Slurm =================================================================================== */

/*
 * Reads the topology.conf of Slurm's plugin topology/tree (slurm.schedmd.com/topology.conf.html),
 * and Slurm's host lists, such as "a1,b[01-03,7]c[0-1]":
 *
 *     SwitchName=leaf1 Nodes=node[01-16]
 *     SwitchName=spine Switches=leaf[1-4]   # LinkSpeed= is accepted and ignored
 */

#define MAX_NAME 255
#define MAX_BRACKETS 8

struct list {
  const char *file, *text;
  long line;
  int limit, n;
  copse_status (*each)(void *ctx, const char *name);
  void *ctx;
  struct copse_err *err;
  char name[MAX_NAME + 1];
};

static copse_status refuse_list(const struct list *l, const char *what) {
  return copse_fail_at(l->err, COPSE_BAD_INPUT, l->file, l->line,
                       "host list \"%.80s\": %s; it is such as \"node[01-04],login1\"", l->text,
                       what);
}

static copse_status expand(struct list *l, const char *p, size_t used, int brackets);

/* Appends one number of a range, padded with zeros to the width of the range's first number. */
static copse_status with_number(struct list *l, int64_t v, int width, const char *rest, size_t used,
                                int brackets) {
  int n = snprintf(l->name + used, sizeof l->name - used, "%0*" PRId64, width, v);
  if (n < 0 || (size_t)n >= sizeof l->name - used)
    return refuse_list(l, "a name of over 255 letters");
  return expand(l, rest, used + (size_t)n, brackets + 1);
}

static copse_status with_bracket(struct list *l, const char *p, size_t used, int brackets) {
  const char *end = strchr(p, ']');
  if (!end) return refuse_list(l, "a [ without ]");
  if (brackets == MAX_BRACKETS) return refuse_list(l, "more than 8 brackets in a name");
  for (;;) {
    const char *first = p;
    int64_t low, high;
    if (!copse_text_number(&p, 9, &low)) return refuse_list(l, "a range without a number");
    int width = (int)(p - first);
    high = low;
    if (*p == '-' && (p++, !copse_text_number(&p, 9, &high)))
      return refuse_list(l, "a range without an end");
    if (high < low) return refuse_list(l, "a range that ends before it begins");
    if (high - low >= l->limit - l->n) return refuse_list(l, "too many hosts");
    for (int64_t v = low; v <= high; v++)
      COPSE_DO(with_number(l, v, width, end + 1, used, brackets));
    if (p == end) break;
    if (*p++ != ',') return refuse_list(l, "something else than numbers in brackets");
  }
  return COPSE_OK;
}

/* Expands the rest of one name, from p to the next comma outside of brackets. l->name has `used`
 * letters so far. */
static copse_status expand(struct list *l, const char *p, size_t used, int brackets) {
  size_t n = strcspn(p, "[,");
  if (memchr(p, ']', n)) return refuse_list(l, "a ] without [");
  if (used + n > MAX_NAME) return refuse_list(l, "a name of over 255 letters");
  memcpy(l->name + used, p, n);
  if (p[n] == '[') return with_bracket(l, p + n + 1, used + n, brackets);
  l->name[used + n] = '\0';
  if (used + n == 0) return refuse_list(l, "an empty name");
  if (++l->n > l->limit) return refuse_list(l, "too many hosts");
  return l->each(l->ctx, l->name);
}

copse_status copse_hostlist(const char *file, long line, const char *text, int limit,
                            copse_status (*each)(void *ctx, const char *name), void *ctx,
                            struct copse_err *err) {
  struct list l = {file, text, line, limit, 0, each, ctx, err, ""};
  for (const char *p = text;; p++) {
    COPSE_DO(expand(&l, p, 0, 0));
    bool inside = false;
    for (; *p && (inside || *p != ','); p++) inside = *p == '[' || (inside && *p != ']');
    if (!*p) break;
  }
  return COPSE_OK;
}

#define MAX_WORDS 64

struct slurm_reader {
  const char *file;
  struct copse_err *err;
  struct copse_fabric_map *map;
  struct copse_index_map *ids;
  int current; /* the switch that the line defines */
  long line;
  struct copse_lines *lines;
};

static copse_status refuse_slurm(const struct slurm_reader *r, const char *name, const char *text) {
  return copse_fail_at(r->err, COPSE_BAD_INPUT, r->file, r->line, "%.80s %s", name, text);
}

/* Finds the switch of this name, or adds it. */
static copse_status intern(struct slurm_reader *r, const char *name, int *out) {
  struct copse_fabric_map *map = r->map;
  size_t n = (size_t)map->n_switches;
  *out = copse_index_map_find(r->ids, name, map->switches, sizeof *map->switches,
                              offsetof(struct copse_map_switch, id));
  if (*out >= 0) return COPSE_OK;
  if (n >= COPSE_TOPOLOGY_MAX_NODES) return refuse_slurm(r, name, "is one switch too many");
  COPSE_DO(COPSE_GROW_IN(&map->arena, map->switches, map->switch_capacity, n + 1, r->err));
  map->switches[n] = (struct copse_map_switch){.line = r->line};
  COPSE_DO(copse_arena_text(&map->arena, name, &map->switches[n].id, r->err));
  COPSE_DO(copse_index_map_add(r->ids, copse_key_text(name), (int)n, r->err));
  *out = map->n_switches++;
  return COPSE_OK;
}

static copse_status add_host(void *ctx, const char *name) {
  struct slurm_reader *r = ctx;
  struct copse_map_port port = {
      .device = "", .sw = r->current, .bandwidth = COPSE_Q_ZERO, .line = r->line};
  if (r->map->n_ports >= COPSE_TOPOLOGY_MAX_NODES)
    return refuse_slurm(r, name, "is one host too many");
  COPSE_DO(copse_arena_text(&r->map->arena, name, &port.host, r->err));
  return copse_fabric_map_add_port(r->map, port, r->err);
}

static copse_status add_child(void *ctx, const char *name) {
  struct slurm_reader *r = ctx;
  int child = -1;
  COPSE_DO(intern(r, name, &child));
  if (child == r->current) return refuse_slurm(r, name, "is a switch below itself");
  if (r->map->switches[child].child)
    return refuse_slurm(r, name, "is below two switches; the tree plugin has one above each");
  r->map->switches[child].child = true;
  struct copse_map_cable cable = {child, r->current, COPSE_Q_ZERO};
  return copse_fabric_map_add_cable(r->map, cable, r->err);
}

static copse_status read_slurm_list(struct slurm_reader *r, const char *list,
                                    copse_status (*each)(void *ctx, const char *name)) {
  return copse_hostlist(r->file, r->line, list, COPSE_TOPOLOGY_MAX_NODES, each, r, r->err);
}

static copse_status read_switch(struct slurm_reader *r, char **words, int n) {
  char *nodes = NULL, *switches = NULL;
  for (int i = 1; i < n; i++) {
    if (strncasecmp(words[i], "Nodes=", 6) == 0)
      nodes = words[i] + 6;
    else if (strncasecmp(words[i], "Switches=", 9) == 0)
      switches = words[i] + 9;
    else if (strncasecmp(words[i], "LinkSpeed=", 10) != 0)
      return refuse_slurm(r, words[i], "isn't known; Nodes=, Switches= and LinkSpeed= are");
  }
  if (!nodes == !switches)
    return refuse_slurm(r, words[0], "needs Nodes= or Switches=, one of them");
  COPSE_DO(intern(r, words[0] + 11, &r->current));
  if (r->map->switches[r->current].defined) return refuse_slurm(r, words[0], "twice");
  r->map->switches[r->current].defined = true;
  return nodes ? read_slurm_list(r, nodes, add_host) : read_slurm_list(r, switches, add_child);
}

/* Refuses switches without a line of their own, and switches that are above themselves. */
static copse_status check_tree(struct slurm_reader *r) {
  const struct copse_fabric_map *map = r->map;
  size_t n = (size_t)map->n_switches;
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  int *above, *mark;
  COPSE_DO(COPSE_ARRAYS(&scratch, n, int, r->err, &above, &mark));
  for (int i = 0; i < map->n_cables; i++) above[map->cables[i].a] = map->cables[i].b + 1;
  for (int i = 0; i < map->n_switches; i++) {
    r->line = map->switches[i].line;
    if (!map->switches[i].defined)
      return refuse_slurm(r, map->switches[i].id,
                          "is named and has no line SwitchName= of its own");
    int at = i;
    for (; at >= 0 && !mark[at]; at = above[at] - 1) mark[at] = i + 1;
    if (at >= 0 && mark[at] == i + 1)
      return refuse_slurm(r, map->switches[i].id, "is below itself, by way of others");
  }
  return COPSE_OK;
}

/* Reads a line and those that continue it after a backslash. All of them are adjacent in the
 * text: blanks in place of their ends join them. */
static char *next_line(struct slurm_reader *r) {
  char *line = copse_lines_next(r->lines), *tail = line;
  r->line = r->lines->line;
  for (size_t n; tail && (n = strlen(tail)) > 0 && tail[n - 1] == '\\';) {
    char *more = copse_lines_next(r->lines);
    tail[n - 1] = ' ';
    for (char *p = tail + n; more && p < more; p++) *p = ' ';
    tail = more;
  }
  return line;
}

static copse_status read_lines(struct slurm_reader *r) {
  char *words[MAX_WORDS];
  for (char *line; (line = next_line(r));) {
    line[strcspn(line, "#")] = '\0';
    int n = copse_split_words(line, words, MAX_WORDS);
    if (n == 0) continue;
    if (n > MAX_WORDS || strncasecmp(words[0], "SwitchName=", 11) != 0 || !words[0][11])
      return refuse_slurm(r, words[0], "where SwitchName=NAME was expected");
    COPSE_DO(read_switch(r, words, n));
  }
  if (r->map->n_switches > 0) return COPSE_OK;
  return copse_fail_at(r->err, COPSE_BAD_INPUT, r->file, 0, "no SwitchName= in it");
}

copse_status copse_read_slurm(const char *file, const char *data, size_t size,
                              const struct copse_notes *notes, struct copse_fabric_map *map,
                              struct copse_err *err) {
  COPSE_AT_END(copse_lines_free) struct copse_lines lines = {0};
  COPSE_AT_END(copse_index_map_free) struct copse_index_map ids = {0};
  struct slurm_reader r = {.file = file, .err = err, .map = map, .ids = &ids, .lines = &lines};
  COPSE_DO(copse_lines_open(file, data, size, &lines, err));
  COPSE_DO(read_lines(&r));
  COPSE_DO(check_tree(&r));
  copse_note(notes,
             "%s: topology.conf has no speeds; a switch's way up carries what the file's hosts "
             "below it can send, divided by the oversubscription",
             file);
  return COPSE_OK;
}

/* ==== cluster JSON ============================================================================ */

/*
 * Cluster JSON (copse-cluster/1): kinds of hosts, each a file or a name of the catalogue, and the
 * fabric that joins them, by a type and that type's keys (a table below).
 *
 *   {"format": "copse-cluster/1", "host": "dgx-a100", "hosts": 4,
 *    "fabric": {"type": "clos", "bandwidth": 25, "leaf_hosts": 2, "oversubscription": 2}}
 */

/* How deep clusters may be nested as hosts; stops a file that names itself. */
#define MAX_DEPTH 4

/* A file that several entries name is read once. */
struct loaded {
  const char *path;
  struct copse_topology_options options;
  struct copse_topology *host;
};

struct reader {
  const struct copse_input *in;
  const struct copse_json *json;
  struct copse_err *err;
  struct copse_fabric fabric;
  struct copse_fabric_map map;
  struct copse_host_group *groups; /* a kind of hosts each */
  struct loaded *loaded;           /* at most as many */
  int n_groups, n_loaded;
  struct copse_arena arena; /* those, and names of hosts */
};

#define refuse(r, line, ...) \
  copse_fail_at((r)->err, COPSE_BAD_INPUT, (r)->json->file, line, __VA_ARGS__)

/* ---- files that a document names ------------------------------------------------------------ */

/* Reads a path, relative to the document; "-" is a file of that name. */
static copse_status read_path(struct reader *r, const cJSON *object, const char *key,
                              const char **out) {
  COPSE_AT_END(copse_free_at) char *path = NULL;
  const char *name = NULL;
  COPSE_DO(copse_json_get_string(r->json, object, key, &name, r->err));
  COPSE_DO(copse_file_beside(r->json->file, strcmp(name, "-") == 0 ? "./-" : name, &path, r->err));
  return copse_arena_text(&r->arena, path, out, r->err);
}

/* Passes on what came of reading the file that `key` names: where it can't be read, the error says
 * first who names it; other errors have their place in that file. */
static copse_status check_read(const struct reader *r, const cJSON *object, const char *key,
                               copse_status status, const struct copse_err *why) {
  long line = copse_json_line(copse_json_get(object, key), object);
  if (status == COPSE_OK) return status;
  if (status != COPSE_IO) return copse_fail(r->err, status, "%s", why->text);
  return copse_fail_at(r->err, status, r->json->file, line, "\"%s\": %s", key, why->text);
}

/* ---- the fabric -------------------------------------------------------------------------- */

static copse_status read_dims(struct reader *r, const cJSON *item) {
  const cJSON *dims = NULL;
  int64_t n = 0;
  COPSE_DO(copse_json_get_array(r->json, item, "dims", &dims, r->err));
  COPSE_JSON_EACH (dim, dims) {
    if (r->fabric.n_dims == COPSE_MAX_DIMENSIONS)
      return refuse(r, r->fabric.line, "\"dims\" has more than 8 dimensions");
    COPSE_DO(
        copse_json_int(r->json, dim, item, "a dimension", 1, COPSE_TOPOLOGY_MAX_NODES, &n, r->err));
    r->fabric.dims[r->fabric.n_dims++] = (int)n;
  }
  if (r->fabric.n_dims == 0) return refuse(r, r->fabric.line, "\"dims\" is empty");
  return COPSE_OK;
}

static copse_status read_map(struct reader *r, const cJSON *item, bool slurm) {
  struct copse_err why = COPSE_ERR_INIT;
  COPSE_AT_END(copse_free_at) char *data = NULL;
  const char *path = NULL;
  size_t size = 0;
  COPSE_DO(read_path(r, item, "file", &path));
  copse_status status = copse_file_read(path, &data, &size, &why);
  COPSE_DO(check_read(r, item, "file", status, &why));
  COPSE_DO(slurm ? copse_read_slurm(path, data, size, r->in->options->notes, &r->map, r->err)
                 : copse_read_ibnetdiscover(path, data, size, &r->map, r->err));
  copse_fabric_map_sort(&r->map);
  r->fabric.map = &r->map;
  return COPSE_OK;
}

/* Kinds of fabrics, as the table of keys has them. */
enum { FLAT = 1, RAILS = 2, CLOS = 4, DRAGONFLY = 8, TORUS = 16, IB = 32, SLURM = 64, NOT_IB = 95 };

static const struct kind {
  const char *name, *what;
  enum copse_fabric_type type;
  unsigned is;
} kinds[] = {{"flat", "a flat fabric", COPSE_FABRIC_FLAT, FLAT},
             {"rails", "a rails fabric", COPSE_FABRIC_RAILS, RAILS},
             {"clos", "a clos fabric", COPSE_FABRIC_CLOS, CLOS},
             {"dragonfly", "a dragonfly fabric", COPSE_FABRIC_DRAGONFLY, DRAGONFLY},
             {"torus", "a torus fabric", COPSE_FABRIC_TORUS, TORUS},
             {"ibnetdiscover", "an ibnetdiscover fabric", COPSE_FABRIC_MAP, IB},
             {"slurm", "a slurm fabric", COPSE_FABRIC_MAP, SLURM}};

#define AT(member) offsetof(struct copse_fabric, member)

/* What kinds of fabrics have beside their type, each read where it is there. */
static const struct key {
  const char *name;
  unsigned kind;
  const char *is;
  size_t at;
  int most; /* of a count */
} fabric_keys[] = {
    {"bandwidth", COPSE_JSON_NEEDED | COPSE_JSON_POSITIVE | COPSE_JSON_OF(NOT_IB),
     "GB/s per NIC and direction, such as 50", AT(bandwidth), 0},
    {"bandwidth", COPSE_JSON_POSITIVE | COPSE_JSON_OF(IB), "GB/s per NIC and direction, such as 50",
     AT(bandwidth), 0},
    {"latency", COPSE_JSON_NOT_NEGATIVE, "us per cable, such as 0.5", AT(latency), 0},
    {"spine_bandwidth", COPSE_JSON_NOT_NEGATIVE | COPSE_JSON_OF(RAILS),
     "GB/s of each rail's link to a spine, such as 100; 0 for no spine", AT(spine_bandwidth), 0},
    {"leaf_hosts", COPSE_JSON_NEEDED | COPSE_JSON_COUNT | COPSE_JSON_OF(CLOS),
     "how many hosts a leaf joins, such as 4", AT(leaf_hosts), COPSE_TOPOLOGY_MAX_NODES},
    {"oversubscription", COPSE_JSON_POSITIVE | COPSE_JSON_OF(CLOS | SLURM),
     "what a switch takes in over what it sends up, such as 2", AT(oversubscription), 0},
    {"spines", COPSE_JSON_COUNT | COPSE_JSON_OF(CLOS),
     "how many spines share what the leaves send up, such as 4", AT(spines), 1 << 16},
    {"rails", COPSE_JSON_BOOL | COPSE_JSON_OF(CLOS), "true for a leaf for each NIC's place",
     AT(leaf_rails), 0},
    {"router_hosts", COPSE_JSON_COUNT | COPSE_JSON_OF(DRAGONFLY | TORUS),
     "how many hosts a router joins, such as 1", AT(router_hosts), COPSE_TOPOLOGY_MAX_NODES},
    {"group_routers", COPSE_JSON_NEEDED | COPSE_JSON_COUNT | COPSE_JSON_OF(DRAGONFLY),
     "how many routers a group has, such as 4", AT(group_routers), COPSE_TOPOLOGY_MAX_NODES},
    {"local_bandwidth", COPSE_JSON_NEEDED | COPSE_JSON_POSITIVE | COPSE_JSON_OF(DRAGONFLY),
     "GB/s of a link inside a group, such as 50", AT(local_bandwidth), 0},
    {"global_bandwidth", COPSE_JSON_NEEDED | COPSE_JSON_POSITIVE | COPSE_JSON_OF(DRAGONFLY),
     "GB/s of a link between groups, such as 100", AT(global_bandwidth), 0},
    {"global_links", COPSE_JSON_COUNT | COPSE_JSON_OF(DRAGONFLY),
     "how many links join two groups, such as 2", AT(global_links), 1 << 16},
    {"link_bandwidth", COPSE_JSON_NEEDED | COPSE_JSON_POSITIVE | COPSE_JSON_OF(TORUS),
     "GB/s of a link between routers, such as 50", AT(link_bandwidth), 0},
    {"dims", COPSE_JSON_NEEDED | COPSE_JSON_ARRAY | COPSE_JSON_OF(TORUS),
     "how many routers each dimension has, such as [4, 4, 2]", AT(dims), 0},
    {"file", COPSE_JSON_NEEDED | COPSE_JSON_STRING | COPSE_JSON_OF(IB | SLURM),
     "what the tool printed, a file beside this one, such as \"fabric.txt\"", AT(map), 0}};
#define N_KEYS (sizeof fabric_keys / sizeof *fabric_keys)

static copse_status read_key(struct reader *r, const struct kind *kind, const struct key *key,
                             const cJSON *item) {
  void *to = (char *)&r->fabric + key->at;
  const char *name = key->name;
  if (!copse_json_get(item, name)) return COPSE_OK;
  switch (COPSE_JSON_KIND(key->kind)) {
    case COPSE_JSON_COUNT:
      return copse_json_get_count_or(r->json, item, name, key->most, to, r->err);
    case COPSE_JSON_BOOL: return copse_json_get_bool_or(r->json, item, name, false, to, r->err);
    case COPSE_JSON_ARRAY: return read_dims(r, item);
    case COPSE_JSON_STRING: return read_map(r, item, kind->is == SLURM);
    default:
      return copse_json_get_amount_or(
          r->json, item, name, COPSE_JSON_KIND(key->kind) == COPSE_JSON_POSITIVE, to, r->err);
  }
}

static copse_status read_keys(struct reader *r, const struct kind *kind, const cJSON *item,
                              const cJSON *root) {
  struct copse_json_key keys[N_KEYS + 2] = {
      {"type", COPSE_JSON_NEEDED | COPSE_JSON_STRING, kind->name}};
  for (size_t i = 0; i < N_KEYS; i++)
    keys[i + 1] =
        (struct copse_json_key){fabric_keys[i].name, fabric_keys[i].kind, fabric_keys[i].is};
  COPSE_DO(copse_json_expect_variant(r->json, item, root, kind->what, keys, kind->is, r->err));
  for (size_t i = 0; i < N_KEYS; i++) COPSE_DO(read_key(r, kind, &fabric_keys[i], item));
  return COPSE_OK;
}

static const struct kind *find_kind(const char *name) {
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strcmp(kinds[i].name, name) == 0) return &kinds[i];
  return NULL;
}

static copse_status read_fabric(struct reader *r, const cJSON *root) {
  const cJSON *item = copse_json_get(root, "fabric");
  const char *type = NULL;
  struct copse_fabric *f = &r->fabric;
  *f = (struct copse_fabric){.line = copse_json_line(item, root), COPSE_FABRIC_DEFAULTS};
  if (!copse_json_get(item, "type"))
    return refuse(r, f->line,
                  "\"fabric\" needs \"type\": flat, rails, clos, dragonfly, torus, ibnetdiscover "
                  "or slurm");
  COPSE_DO(copse_json_get_string(r->json, item, "type", &type, r->err));
  const struct kind *kind = find_kind(type);
  if (!kind)
    return refuse(r, f->line,
                  "unknown fabric type \"%.60s\"; flat, rails, clos, dragonfly, torus, "
                  "ibnetdiscover and slurm are known",
                  type);
  f->type = kind->type;
  return read_keys(r, kind, item, root);
}

/* ---- the hosts -------------------------------------------------------------------------- */

struct naming {
  struct reader *r;
  const char **names; /* NULL: they are only counted */
  int n;
};

static copse_status take_name(void *ctx, const char *name) {
  struct naming *naming = ctx;
  int i = naming->n++;
  if (!naming->names) return COPSE_OK;
  return copse_arena_text(&naming->r->arena, name, &naming->names[i], naming->r->err);
}

static copse_status read_list(struct reader *r, const char *list, long line, struct naming *out) {
  out->n = 0;
  return copse_hostlist(r->json->file, line, list, COPSE_TOPOLOGY_MAX_NODES, take_name, out,
                        r->err);
}

/* Reads "names", a Slurm host list: as many as hosts; without "count" they say how many. */
static copse_status read_names(struct reader *r, const cJSON *item, const char *count_key,
                               struct copse_host_group *group) {
  const char *list = NULL;
  struct naming naming = {.r = r};
  if (!copse_json_get(item, "names")) {
    if (r->fabric.type != COPSE_FABRIC_MAP) return COPSE_OK;
    return refuse(r, group->line,
                  "the fabric's file names hosts: give their \"names\", such as "
                  "\"node[01-04]\"");
  }
  COPSE_DO(copse_json_get_string(r->json, item, "names", &list, r->err));
  COPSE_DO(read_list(r, list, group->line, &naming));
  if (!copse_json_get(item, count_key)) group->count = naming.n;
  if (naming.n != group->count)
    return refuse(r, group->line, "\"names\" are %d and \"%s\" is %d; they must agree", naming.n,
                  count_key, group->count);
  COPSE_DO(COPSE_ARRAY(&r->arena, (size_t)naming.n, naming.names, r->err));
  group->names = naming.names;
  return read_list(r, list, group->line, &naming);
}

/* Reads the options that a host has for itself. */
static copse_status read_host_options(const struct reader *r, const cJSON *item,
                                      struct copse_topology_options *options) {
  const char *links = NULL;
  if (copse_json_get(item, "links")) {
    COPSE_DO(copse_json_get_string(r->json, item, "links", &links, r->err));
    if (!copse_link_mode_from_name(links, &options->links))
      return refuse(r, copse_json_line(item, NULL),
                    "\"links\" must be \"nvlink\", \"all\" or \"default\"");
  }
  if (copse_json_get(item, "gpu"))
    COPSE_DO(copse_json_get_string(r->json, item, "gpu", &options->gpu, r->err));
  return copse_json_get_amount_or(r->json, item, "nvlink_switch", true, &options->nvlink_switch,
                                  r->err);
}

static bool same_options(const struct copse_topology_options *a,
                         const struct copse_topology_options *b) {
  bool same_gpu = a->gpu == b->gpu || (a->gpu && b->gpu && strcmp(a->gpu, b->gpu) == 0);
  return same_gpu && a->links == b->links && copse_q_eq(a->nvlink_switch, b->nvlink_switch);
}

/* Finds a host's file, which lies beside the document, or is one of the catalogue where it is a
 * bare name. */
static copse_status read_host_path(struct reader *r, const cJSON *item, const char **out) {
  COPSE_AT_END(copse_free_at) char *entry = NULL;
  COPSE_DO(read_path(r, item, "host", out));
  if (access(*out, F_OK) == 0) return COPSE_OK;
  const char *name = copse_json_get(item, "host")->valuestring;
  COPSE_DO(copse_catalogue_path(name, r->in->options->catalogue, &entry, r->err));
  return entry ? copse_arena_text(&r->arena, entry, out, r->err) : COPSE_OK;
}

static copse_status load_host(struct reader *r, const cJSON *item,
                              const struct copse_topology_options *options,
                              struct copse_topology **out) {
  struct loaded new = {NULL, *options, NULL};
  struct copse_err why = COPSE_ERR_INIT;
  COPSE_DO(read_host_path(r, item, &new.path));
  for (int i = 0; i < r->n_loaded; i++) {
    if (strcmp(r->loaded[i].path, new.path) != 0) continue;
    if (!same_options(&r->loaded[i].options, options)) continue;
    *out = r->loaded[i].host;
    return COPSE_OK;
  }
  copse_status status =
      copse_topology_load_at(new.path, options, r->in->depth + 1, &new.host, &why);
  COPSE_DO(check_read(r, item, "host", status, &why));
  r->loaded[r->n_loaded++] = new;
  *out = new.host;
  return COPSE_OK;
}

/* Reads hosts that are alike; `item` is the root for equal hosts, else an entry of "hosts". */
static copse_status read_group(struct reader *r, const cJSON *item, const cJSON *parent,
                               const char *count_key) {
  struct copse_topology_options options = *r->in->options;
  struct copse_host_group group = {
      .count = 1, .bandwidth = COPSE_Q_ZERO, .line = copse_json_line(item, parent)};
  if (copse_json_get(item, count_key))
    group.line = copse_json_line(copse_json_get(item, count_key), item);
  if (r->in->depth >= MAX_DEPTH)
    return refuse(r, group.line,
                  "clusters within clusters more than 4 levels deep; does a host name the "
                  "cluster it is part of?");
  COPSE_DO(copse_json_get_count_or(r->json, item, count_key, COPSE_TOPOLOGY_MAX_NODES, &group.count,
                                   r->err));
  COPSE_DO(read_names(r, item, count_key, &group));
  COPSE_DO(copse_json_get_amount_or(r->json, item, "bandwidth", true, &group.bandwidth, r->err));
  COPSE_DO(read_host_options(r, item, &options));
  if (copse_json_get(item, "nics"))
    COPSE_DO(copse_json_get_string(r->json, item, "nics", &group.nics, r->err));
  COPSE_DO(load_host(r, item, &options, &group.host));
  r->groups[r->n_groups++] = group;
  return COPSE_OK;
}

#define HOST_IS "a file beside this one or a name of the catalogue, such as \"dgx-a100\""
#define HOSTS_ARE                                                                                \
  "how many there are, such as 4 (or their \"names\"), or a list of kinds, such as [{\"host\": " \
  "\"dgx-a100\", "                                                                               \
  "\"count\": 4}]"

/* Of a kind of hosts, and of a cluster of one kind. */
#define KEYS_OF_A_HOST \
  {"names", COPSE_JSON_STRING,                                                \
   "the names of the hosts, a Slurm host list such as \"node[01-04]\""},      \
  {"nics", COPSE_JSON_STRING,                                                 \
   "a pattern of the ids of NICs on the fabric, such as \"nic@mlx5_[0-7]\""}, \
  {"links", COPSE_JSON_STRING,                                                \
   "what to keep of XML or a matrix: \"nvlink\", \"all\" or \"default\""},    \
  {"gpu", COPSE_JSON_STRING, "the GPUs of a matrix, such as \"a100\""},       \
  {"nvlink_switch", COPSE_JSON_POSITIVE,                                      \
   "GB/s per GPU and direction to an NVSwitch, such as 450"}

static copse_status read_hosts(struct reader *r, const cJSON *root) {
  static const struct copse_json_key keys[] = {
      {"host", COPSE_JSON_NEEDED | COPSE_JSON_STRING, HOST_IS},
      {"count", COPSE_JSON_COUNT, "how many of this kind there are, such as 2"},
      {"bandwidth", COPSE_JSON_POSITIVE, "GB/s per NIC and direction, such as 25"},
      KEYS_OF_A_HOST,
      {0}};
  const cJSON *hosts = copse_json_get(root, "hosts");
  int64_t n = 0;
  size_t kinds_of_hosts = 1;
  if (copse_json_is_array(hosts))
    COPSE_JSON_EACH (item, hosts) kinds_of_hosts++;
  COPSE_DO(COPSE_ARRAY(&r->arena, kinds_of_hosts, r->groups, r->err));
  COPSE_DO(COPSE_ARRAY(&r->arena, kinds_of_hosts, r->loaded, r->err));
  if (!copse_json_is_array(hosts)) {
    if (hosts ? !copse_json_is_number(hosts) : !copse_json_get(root, "names"))
      return refuse(r, copse_json_line(root, NULL), "a cluster needs \"hosts\": " HOSTS_ARE);
    if (hosts)
      COPSE_DO(copse_json_get_int(r->json, root, "hosts", 1, COPSE_TOPOLOGY_MAX_NODES, &n, r->err));
    if (!copse_json_get(root, "host"))
      return refuse(r, copse_json_line(root, NULL), "a cluster needs \"host\": " HOST_IS);
    return read_group(r, root, NULL, "hosts");
  }
  static const char *const own[] = {"host", "names", "nics", "links", "gpu", "nvlink_switch"};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++)
    if (copse_json_get(root, own[i]))
      return refuse(r, copse_json_line(root, NULL),
                    "\"%s\" beside a list of \"hosts\"; each of its entries has its own", own[i]);
  COPSE_JSON_EACH (item, hosts) {
    COPSE_DO(copse_json_expect_object(r->json, item, root, "a kind of hosts", keys, r->err));
    COPSE_DO(read_group(r, item, root, "count"));
  }
  if (r->n_groups == 0) return refuse(r, copse_json_line(root, NULL), "\"hosts\" is empty");
  return COPSE_OK;
}

static copse_status read_parts(struct reader *r, struct copse_topology_builder *builder) {
  static const struct copse_json_key keys[] = {
      {"format", COPSE_JSON_NEEDED | COPSE_JSON_STRING, "\"copse-cluster/1\""},
      {"name", COPSE_JSON_STRING, "the name in reports, such as \"rack-7\""},
      {"description", COPSE_JSON_STRING, "one line about it, shown by copse topo --list"},
      {"source", COPSE_JSON_STRING, "where the numbers come from, one line"},
      {"host", COPSE_JSON_STRING, HOST_IS},
      {"hosts", COPSE_JSON_ANY, HOSTS_ARE},
      KEYS_OF_A_HOST,
      {"fabric", COPSE_JSON_NEEDED | COPSE_JSON_OBJECT,
       "what joins the NICs of the hosts, such as {\"type\": \"flat\", \"bandwidth\": 50}"},
      {0}};
  const cJSON *root = r->json->root;
  COPSE_DO(copse_json_expect_object(r->json, root, NULL, "a cluster", keys, r->err));
  COPSE_DO(copse_read_about(r->json, builder, r->err));
  COPSE_DO(read_fabric(r, root));
  return read_hosts(r, root);
}

copse_status copse_read_cluster(const struct copse_input *in, const struct copse_json *json,
                                struct copse_topology_builder *builder, struct copse_err *err) {
  struct reader r = {.in = in, .json = json, .err = err};
  copse_status status = read_parts(&r, builder);
  r.fabric.notes = in->options->notes;
  if (status == COPSE_OK)
    status = copse_compose(builder, json->file, &r.fabric, r.groups, r.n_groups, err);
  for (int i = 0; i < r.n_loaded; i++) copse_topology_free(r.loaded[i].host);
  copse_fabric_map_free(&r.map);
  copse_arena_free(&r.arena);
  return status;
}
