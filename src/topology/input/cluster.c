/*
 * Cluster JSON (copse-cluster/1): kinds of hosts, each a file or a name of the catalogue, and the
 * fabric that joins them, by a type and that type's keys (a table below).
 *
 *   {"format": "copse-cluster/1", "host": "dgx-a100", "hosts": 4,
 *    "fabric": {"type": "clos", "bandwidth": 25, "leaf_hosts": 2, "oversubscription": 2}}
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "topology/fabric/fabric.h"
#include "topology/input/readers.h"

/* How deep clusters may be nested as hosts; stops a file that names itself. */
#define MAX_DEPTH 4

/* A file that several entries name is read once. */
struct loaded {
  char *path;
  struct copse_topology_options options;
  struct copse_topology *host;
};

struct reader {
  const struct copse_json *json;
  const struct copse_topology_options *options;
  int depth;
  struct copse_err *err;
  struct copse_fabric fabric;
  struct copse_fabric_map map;
  struct copse_host_group *groups;
  struct loaded *loaded;
  size_t group_capacity, loaded_capacity;
  int n_groups, n_loaded;
  struct copse_arena arena; /* names of hosts */
};

#define refuse(r, line, ...) \
  copse_fail_at((r)->err, COPSE_BAD_INPUT, (r)->json->file, line, __VA_ARGS__)

/* ---- the fabric: typed members -------------------------------------------------------------- */

static copse_status read_rational(const struct reader *r, const cJSON *item, const char *key,
                                  bool positive, struct copse_q *out) {
  return copse_json_get_amount_or(r->json, item, key, positive, out, r->err);
}

static copse_status require_bandwidth(const struct reader *r, const cJSON *item, const char *key,
                                      struct copse_q *out) {
  COPSE_DO(copse_json_get_rational(r->json, item, key, out, r->err));
  return read_rational(r, item, key, true, out);
}

static copse_status read_int(const struct reader *r, const cJSON *item, const char *key, int most,
                             int *out) {
  return copse_json_get_count_or(r->json, item, key, most, out, r->err);
}

static copse_status require_count(const struct reader *r, const cJSON *item, const char *key,
                                  int *out) {
  int64_t n = 0;
  COPSE_DO(copse_json_get_int(r->json, item, key, 1, COPSE_TOPOLOGY_MAX_NODES, &n, r->err));
  *out = (int)n;
  return COPSE_OK;
}

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
  char *path = NULL, *data = NULL;
  size_t size = 0;
  copse_status status;
  COPSE_TRY(copse_read_path(r->json, item, "file", &path, r->err));
  status = copse_file_read(path, &data, &size, &why);
  COPSE_TRY(copse_read_named(r->json, item, "file", status, &why, r->err));
  COPSE_TRY(slurm ? copse_read_slurm(path, data, size, r->options->notes, &r->map, r->err)
                  : copse_read_ibnetdiscover(path, data, size, &r->map, r->err));
  copse_fabric_map_sort(&r->map);
  r->fabric.map = &r->map;
out:
  free(path);
  free(data);
  return status;
}

static copse_status read_rails(struct reader *r, const cJSON *item) {
  return read_rational(r, item, "spine_bandwidth", false, &r->fabric.spine_bandwidth);
}

static copse_status read_clos(struct reader *r, const cJSON *item) {
  struct copse_fabric *f = &r->fabric;
  COPSE_DO(require_count(r, item, "leaf_hosts", &f->leaf_hosts));
  COPSE_DO(read_rational(r, item, "oversubscription", true, &f->oversubscription));
  COPSE_DO(read_int(r, item, "spines", 1 << 16, &f->spines));
  return copse_json_get_bool_or(r->json, item, "rails", false, &f->leaf_rails, r->err);
}

static copse_status read_dragonfly(struct reader *r, const cJSON *item) {
  struct copse_fabric *f = &r->fabric;
  COPSE_DO(read_int(r, item, "router_hosts", COPSE_TOPOLOGY_MAX_NODES, &f->router_hosts));
  COPSE_DO(require_count(r, item, "group_routers", &f->group_routers));
  COPSE_DO(require_bandwidth(r, item, "local_bandwidth", &f->local_bandwidth));
  COPSE_DO(require_bandwidth(r, item, "global_bandwidth", &f->global_bandwidth));
  return read_int(r, item, "global_links", 1 << 16, &f->global_links);
}

static copse_status read_torus(struct reader *r, const cJSON *item) {
  struct copse_fabric *f = &r->fabric;
  COPSE_DO(read_int(r, item, "router_hosts", COPSE_TOPOLOGY_MAX_NODES, &f->router_hosts));
  COPSE_DO(require_bandwidth(r, item, "link_bandwidth", &f->link_bandwidth));
  return read_dims(r, item);
}

static copse_status read_ibnetdiscover(struct reader *r, const cJSON *item) {
  return read_map(r, item, false);
}

static copse_status read_slurm(struct reader *r, const cJSON *item) {
  COPSE_DO(read_rational(r, item, "oversubscription", true, &r->fabric.oversubscription));
  return read_map(r, item, true);
}

static const struct kind {
  const char *name, *what;
  enum copse_fabric_type type;
  const char *const *keys;
  copse_status (*read)(struct reader *r, const cJSON *item); /* the rest; NULL: none */
} kinds[] = {
    {"flat", "a flat fabric", COPSE_FABRIC_FLAT,
     (const char *const[]){"type", "bandwidth", "latency", NULL}, NULL},
    {"rails", "a rails fabric", COPSE_FABRIC_RAILS,
     (const char *const[]){"type", "bandwidth", "latency", "spine_bandwidth", NULL}, read_rails},
    {"clos", "a clos fabric", COPSE_FABRIC_CLOS,
     (const char *const[]){"type", "bandwidth", "latency", "leaf_hosts", "oversubscription",
                           "spines", "rails", NULL},
     read_clos},
    {"dragonfly", "a dragonfly fabric", COPSE_FABRIC_DRAGONFLY,
     (const char *const[]){"type", "bandwidth", "latency", "router_hosts", "group_routers",
                           "local_bandwidth", "global_bandwidth", "global_links", NULL},
     read_dragonfly},
    {"torus", "a torus fabric", COPSE_FABRIC_TORUS,
     (const char *const[]){"type", "bandwidth", "latency", "router_hosts", "link_bandwidth", "dims",
                           NULL},
     read_torus},
    {"ibnetdiscover", "an ibnetdiscover fabric", COPSE_FABRIC_MAP,
     (const char *const[]){"type", "bandwidth", "latency", "file", NULL}, read_ibnetdiscover},
    {"slurm", "a slurm fabric", COPSE_FABRIC_MAP,
     (const char *const[]){"type", "bandwidth", "latency", "file", "oversubscription", NULL},
     read_slurm}};

static const struct kind *find_kind(const char *name) {
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strcmp(kinds[i].name, name) == 0) return &kinds[i];
  return NULL;
}

static copse_status read_fabric(struct reader *r, const cJSON *root) {
  const cJSON *item = copse_json_get(root, "fabric");
  const char *type = NULL;
  struct copse_fabric *f = &r->fabric;
  if (!item) return refuse(r, copse_json_line(root, NULL), "\"fabric\" is missing");
  *f = (struct copse_fabric){.line = copse_json_line(item, root), COPSE_FABRIC_DEFAULTS};
  if (!copse_json_is_object(item)) return refuse(r, f->line, "\"fabric\" must be an object");
  COPSE_DO(copse_json_get_string(r->json, item, "type", &type, r->err));
  const struct kind *kind = find_kind(type);
  if (!kind)
    return refuse(r, f->line,
                  "unknown fabric type \"%.60s\"; flat, rails, clos, dragonfly, torus, "
                  "ibnetdiscover and slurm are known",
                  type);
  f->type = kind->type;
  COPSE_DO(copse_json_expect_object(r->json, item, root, kind->what, kind->keys, r->err));
  COPSE_DO(kind->read == read_ibnetdiscover
               ? read_rational(r, item, "bandwidth", true, &f->bandwidth)
               : require_bandwidth(r, item, "bandwidth", &f->bandwidth));
  COPSE_DO(read_rational(r, item, "latency", false, &f->latency));
  return kind->read ? kind->read(r, item) : COPSE_OK;
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

/* "names": a Slurm host list. As many as hosts; without "count" they say how many. */
static copse_status read_names(struct reader *r, const cJSON *item, const char *count_key,
                               struct copse_host_group *group) {
  const char *list = NULL;
  struct naming naming = {.r = r};
  if (!copse_json_get(item, "names")) {
    if (r->fabric.type != COPSE_FABRIC_MAP) return COPSE_OK;
    return refuse(r, group->line,
                  "the fabric's file knows hosts by name: give their \"names\", such as "
                  "\"node[01-04]\"");
  }
  COPSE_DO(copse_json_get_string(r->json, item, "names", &list, r->err));
  COPSE_DO(read_list(r, list, group->line, &naming));
  if (!copse_json_get(item, count_key)) group->count = naming.n;
  if (naming.n != group->count)
    return refuse(r, group->line, "\"names\" are %d and \"%s\" is %d; they must agree", naming.n,
                  count_key, group->count);
  COPSE_DO(
      copse_arena_array(&r->arena, (size_t)naming.n, sizeof *naming.names, &naming.names, r->err));
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

static copse_status load_host(struct reader *r, const cJSON *item,
                              const struct copse_topology_options *options,
                              struct copse_topology **out) {
  struct loaded new = {NULL, *options, NULL};
  struct copse_err why = COPSE_ERR_INIT;
  size_t n = (size_t)r->n_loaded;
  copse_status status;
  COPSE_TRY(copse_read_path(r->json, item, "host", &new.path, r->err));
  for (size_t i = 0; i < n; i++) {
    if (strcmp(r->loaded[i].path, new.path) != 0) continue;
    if (!same_options(&r->loaded[i].options, options)) continue;
    *out = r->loaded[i].host;
    goto out;
  }
  COPSE_TRY(copse_grow(&r->loaded, &r->loaded_capacity, n + 1, sizeof new, r->err));
  status = copse_topology_load_at(new.path, options, r->depth + 1, &new.host, &why);
  COPSE_TRY(copse_read_named(r->json, item, "host", status, &why, r->err));
  r->loaded[r->n_loaded++] = new;
  *out = new.host;
  return COPSE_OK;
out:
  free(new.path);
  return status;
}

/* `item` is the root for equal hosts, else an entry of "hosts". */
static copse_status read_group(struct reader *r, const cJSON *item, const cJSON *parent,
                               const char *count_key) {
  struct copse_topology_options options = *r->options;
  struct copse_host_group group = {
      .count = 1, .bandwidth = COPSE_Q_ZERO, .line = copse_json_line(item, parent)};
  if (copse_json_get(item, count_key))
    group.line = copse_json_line(copse_json_get(item, count_key), item);
  if (r->depth >= MAX_DEPTH)
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
  COPSE_DO(
      copse_grow(&r->groups, &r->group_capacity, (size_t)r->n_groups + 1, sizeof group, r->err));
  COPSE_DO(load_host(r, item, &options, &group.host));
  r->groups[r->n_groups++] = group;
  return COPSE_OK;
}

static copse_status read_hosts(struct reader *r, const cJSON *root) {
  static const char *const keys[] = {"host",  "count", "bandwidth",     "names", "nics",
                                     "links", "gpu",   "nvlink_switch", NULL};
  const cJSON *hosts = copse_json_get(root, "hosts");
  int64_t n = 0;
  if (!copse_json_is_array(hosts)) {
    if (hosts || !copse_json_get(root, "names"))
      COPSE_DO(copse_json_get_int(r->json, root, "hosts", 1, COPSE_TOPOLOGY_MAX_NODES, &n, r->err));
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
  static const char *const keys[] = {"format",        "name",   "description", "source", "host",
                                     "hosts",         "names",  "nics",        "links",  "gpu",
                                     "nvlink_switch", "fabric", NULL};
  const cJSON *root = r->json->root;
  COPSE_DO(copse_json_expect_object(r->json, root, NULL, "a cluster", keys, r->err));
  COPSE_DO(copse_read_about(r->json, builder, r->err));
  COPSE_DO(read_fabric(r, root));
  return read_hosts(r, root);
}

copse_status copse_read_cluster(const struct copse_json *json,
                                const struct copse_topology_options *options, int depth,
                                struct copse_topology_builder *builder, struct copse_err *err) {
  struct reader r = {.json = json, .options = options, .depth = depth, .err = err};
  copse_status status;
  COPSE_TRY(read_parts(&r, builder));
  status = copse_compose(builder, json->file, &r.fabric, r.groups, r.n_groups, err);
out:
  for (int i = 0; i < r.n_loaded; i++) {
    copse_topology_free(r.loaded[i].host);
    free(r.loaded[i].path);
  }
  free(r.loaded);
  free(r.groups);
  copse_fabric_map_free(&r.map);
  copse_arena_free(&r.arena);
  return status;
}
