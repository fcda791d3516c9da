/* The fabric of cluster JSON: an object "fabric" with a type and what that type has. */
#include <stdlib.h>
#include <string.h>

#include "topology/fabric/fabric.h"

struct reader {
  const struct copse_json *json;
  const struct copse_notes *notes;
  struct copse_err *err;
  struct copse_fabric *fabric;
  struct copse_fabric_map *map;
};

static copse_status refuse(const struct reader *r, long line, const char *text) {
  return copse_fail_at(r->err, COPSE_BAD_INPUT, r->json->file, line, "%s", text);
}

/* ---- typed members ---------------------------------------------------------------------- */

static copse_status read_rational(const struct reader *r, const cJSON *item, const char *key,
                                  bool positive, struct copse_q *out) {
  return copse_json_get_amount_or(r->json, item, key, positive, out, r->err);
}

static copse_status require_bandwidth(const struct reader *r, const cJSON *item, const char *key,
                                      struct copse_q *out) {
  copse_status status = copse_json_get_rational(r->json, item, key, out, r->err);
  return status == COPSE_OK ? read_rational(r, item, key, true, out) : status;
}

static copse_status read_count(const struct reader *r, const cJSON *item, const char *key, int most,
                               int *out) {
  return copse_json_get_count_or(r->json, item, key, most, out, r->err);
}

static copse_status require_count(const struct reader *r, const cJSON *item, const char *key,
                                  int *out) {
  int64_t n = 0;
  copse_status status =
      copse_json_get_int(r->json, item, key, 1, COPSE_TOPOLOGY_MAX_NODES, &n, r->err);
  if (status == COPSE_OK) *out = (int)n;
  return status;
}

static copse_status read_dims(struct reader *r, const cJSON *item) {
  const cJSON *dims = NULL;
  int64_t n = 0;
  copse_status status;
  COPSE_TRY(copse_json_get_array(r->json, item, "dims", &dims, r->err));
  COPSE_JSON_EACH (dim, dims) {
    if (r->fabric->n_dims == COPSE_MAX_DIMENSIONS)
      return refuse(r, r->fabric->line, "\"dims\" has more than 8 dimensions");
    COPSE_TRY(
        copse_json_int(r->json, dim, item, "a dimension", 1, COPSE_TOPOLOGY_MAX_NODES, &n, r->err));
    r->fabric->dims[r->fabric->n_dims++] = (int)n;
  }
  if (r->fabric->n_dims == 0) status = refuse(r, r->fabric->line, "\"dims\" is empty");
out:
  return status;
}

static copse_status read_map(struct reader *r, const cJSON *item, bool slurm) {
  struct copse_err why = COPSE_ERR_INIT;
  char *path = NULL, *data = NULL;
  size_t size = 0;
  copse_status status;
  COPSE_TRY(copse_read_path(r->json, item, "file", &path, r->err));
  status = copse_file_read(path, &data, &size, &why);
  COPSE_TRY(copse_read_named(r->json, item, "file", status, &why, r->err));
  COPSE_TRY(slurm ? copse_read_slurm(path, data, size, r->notes, r->map, r->err)
                  : copse_read_ibnetdiscover(path, data, size, r->map, r->err));
  copse_fabric_map_sort(r->map);
  r->fabric->map = r->map;
out:
  free(path);
  free(data);
  return status;
}

static copse_status read_rails(struct reader *r, const cJSON *item) {
  return read_rational(r, item, "spine_bandwidth", false, &r->fabric->spine_bandwidth);
}

static copse_status read_clos(struct reader *r, const cJSON *item) {
  struct copse_fabric *f = r->fabric;
  copse_status status;
  COPSE_TRY(require_count(r, item, "leaf_hosts", &f->leaf_hosts));
  COPSE_TRY(read_rational(r, item, "oversubscription", true, &f->oversubscription));
  COPSE_TRY(read_count(r, item, "spines", 1 << 16, &f->spines));
  status = copse_json_get_bool_or(r->json, item, "rails", false, &f->leaf_rails, r->err);
out:
  return status;
}

static copse_status read_dragonfly(struct reader *r, const cJSON *item) {
  struct copse_fabric *f = r->fabric;
  copse_status status;
  COPSE_TRY(read_count(r, item, "router_hosts", COPSE_TOPOLOGY_MAX_NODES, &f->router_hosts));
  COPSE_TRY(require_count(r, item, "group_routers", &f->group_routers));
  COPSE_TRY(require_bandwidth(r, item, "local_bandwidth", &f->local_bandwidth));
  COPSE_TRY(require_bandwidth(r, item, "global_bandwidth", &f->global_bandwidth));
  status = read_count(r, item, "global_links", 1 << 16, &f->global_links);
out:
  return status;
}

static copse_status read_torus(struct reader *r, const cJSON *item) {
  struct copse_fabric *f = r->fabric;
  copse_status status;
  COPSE_TRY(read_count(r, item, "router_hosts", COPSE_TOPOLOGY_MAX_NODES, &f->router_hosts));
  COPSE_TRY(require_bandwidth(r, item, "link_bandwidth", &f->link_bandwidth));
  status = read_dims(r, item);
out:
  return status;
}

static copse_status read_ibnetdiscover(struct reader *r, const cJSON *item) {
  return read_map(r, item, false);
}

static copse_status read_slurm(struct reader *r, const cJSON *item) {
  copse_status status =
      read_rational(r, item, "oversubscription", true, &r->fabric->oversubscription);
  return status == COPSE_OK ? read_map(r, item, true) : status;
}

static copse_status read_nothing_more(struct reader *r, const cJSON *item) {
  (void)r;
  (void)item;
  return COPSE_OK;
}

static const struct kind {
  const char *name, *what;
  enum copse_fabric_type type;
  const char *const *keys;
  copse_status (*read)(struct reader *r, const cJSON *item);
} kinds[] = {
    {"flat", "a flat fabric", COPSE_FABRIC_FLAT,
     (const char *const[]){"type", "bandwidth", "latency", NULL}, read_nothing_more},
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
  struct copse_fabric *f = r->fabric;
  copse_status status;
  if (!item) return refuse(r, copse_json_line(root, NULL), "\"fabric\" is missing");
  *f = (struct copse_fabric){.line = copse_json_line(item, root),
                             .latency = COPSE_Q_ZERO,
                             .bandwidth = COPSE_Q_ZERO,
                             .spine_bandwidth = COPSE_Q_ZERO,
                             .oversubscription = COPSE_Q_ONE,
                             .spines = 1,
                             .router_hosts = 1,
                             .global_links = 1};
  if (!copse_json_is_object(item)) return refuse(r, f->line, "\"fabric\" must be an object");
  COPSE_TRY(copse_json_get_string(r->json, item, "type", &type, r->err));
  const struct kind *kind = find_kind(type);
  if (!kind)
    return copse_fail_at(r->err, COPSE_BAD_INPUT, r->json->file, f->line,
                         "unknown fabric type \"%.60s\"; flat, rails, clos, dragonfly, torus, "
                         "ibnetdiscover and slurm are known",
                         type);
  f->type = kind->type;
  COPSE_TRY(copse_json_expect_object(r->json, item, root, kind->what, kind->keys, r->err));
  COPSE_TRY(kind->read == read_ibnetdiscover
                ? read_rational(r, item, "bandwidth", true, &f->bandwidth)
                : require_bandwidth(r, item, "bandwidth", &f->bandwidth));
  COPSE_TRY(read_rational(r, item, "latency", false, &f->latency));
  status = kind->read(r, item);
out:
  return status;
}

copse_status copse_read_fabric(const struct copse_json *json, const cJSON *root,
                               const struct copse_notes *notes, struct copse_fabric *fabric,
                               struct copse_fabric_map *map, struct copse_err *err) {
  struct reader r = {json, notes, err, fabric, map};
  return read_fabric(&r, root);
}
