/* Cluster JSON (copse-cluster/1): identical hosts on a fabric. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "topology/topology_builder.h"

/* A host may itself be a cluster, so many levels deep; a file that names itself is not one. */
#define MAX_DEPTH 4

enum fabric_type { FABRIC_FLAT, FABRIC_RAILS };

struct fabric {
  enum fabric_type type;
  struct copse_q bandwidth, latency;
  struct copse_q spine_bandwidth; /* zero: no spine */
  long line;
};

struct composer {
  const struct copse_json *json;
  struct copse_err *err;
  struct copse_topology *host;
  int hosts;
  struct fabric fabric;
  int *nics; /* [n_nics] nodes of a host that attach to the fabric */
  int n_nics;
  struct copse_topology_builder *builder;
};

static copse_status refuse(const struct composer *c, long line, const char *text) {
  return copse_fail_at(c->err, COPSE_BAD_INPUT, c->json->file, line, "%s", text);
}

/* ---- the fabric's description ------------------------------------------------------- */

static copse_status read_fabric_type(struct composer *c, const cJSON *item) {
  const char *type = NULL;
  copse_status status = copse_json_get_string(c->json, item, "type", &type, c->err);
  if (status != COPSE_OK) return status;
  if (strcmp(type, "flat") == 0) {
    c->fabric.type = FABRIC_FLAT;
    return COPSE_OK;
  }
  if (strcmp(type, "rails") == 0) {
    c->fabric.type = FABRIC_RAILS;
    return COPSE_OK;
  }
  if (strcmp(type, "clos") == 0)
    return refuse(c, c->fabric.line,
                  "fabric type \"clos\" is not supported yet; \"flat\" and \"rails\" are");
  return copse_fail_at(c->err, COPSE_BAD_INPUT, c->json->file, c->fabric.line,
                       "unknown fabric type \"%.60s\"; \"flat\" and \"rails\" are known", type);
}

static copse_status read_rational_or_zero(const struct composer *c, const cJSON *item,
                                          const char *key, struct copse_q *out) {
  *out = COPSE_Q_ZERO;
  if (!copse_json_get(item, key)) return COPSE_OK;
  copse_status status = copse_json_get_rational(c->json, item, key, out, c->err);
  if (status != COPSE_OK || out->num >= 0) return status;
  return copse_fail_at(c->err, COPSE_BAD_INPUT, c->json->file,
                       copse_json_line(copse_json_get(item, key), item),
                       "\"%s\" must not be negative", key);
}

static copse_status read_fabric(struct composer *c, const cJSON *root) {
  static const char *const flat_keys[] = {"type", "bandwidth", "latency", NULL};
  static const char *const rails_keys[] = {"type", "bandwidth", "latency", "spine_bandwidth", NULL};
  const cJSON *item = copse_json_get(root, "fabric");
  copse_status status;
  if (!item) return refuse(c, copse_json_line(root, NULL), "\"fabric\" is missing");
  c->fabric.line = copse_json_line(item, root);
  if (!copse_json_is_object(item)) return refuse(c, c->fabric.line, "\"fabric\" must be an object");
  COPSE_TRY(read_fabric_type(c, item));
  bool rails = c->fabric.type == FABRIC_RAILS;
  COPSE_TRY(copse_json_expect_object(c->json, item, root,
                                     rails ? "a rails fabric" : "a flat fabric",
                                     rails ? rails_keys : flat_keys, c->err));
  COPSE_TRY(copse_json_get_rational(c->json, item, "bandwidth", &c->fabric.bandwidth, c->err));
  COPSE_TRY(read_rational_or_zero(c, item, "latency", &c->fabric.latency));
  COPSE_TRY(read_rational_or_zero(c, item, "spine_bandwidth", &c->fabric.spine_bandwidth));
  if (c->fabric.bandwidth.num <= 0)
    status = refuse(c, copse_json_line(copse_json_get(item, "bandwidth"), item),
                    "the fabric's \"bandwidth\" must be positive");
out:
  return status;
}

/* ---- the host ----------------------------------------------------------------------- */

static copse_status load_host(struct composer *c, const cJSON *root,
                              const struct copse_topology_options *options, int depth) {
  const char *name = NULL;
  char *path = NULL;
  copse_status status;
  COPSE_TRY(copse_json_get_string(c->json, root, "host", &name, c->err));
  if (depth >= MAX_DEPTH) {
    status = refuse(c, copse_json_line(root, NULL),
                    "clusters within clusters more than 4 levels deep; does a host name the "
                    "cluster it is part of?");
    goto out;
  }
  if (strcmp(name, "-") == 0) name = "./-"; /* a file of that name, not standard input */
  COPSE_TRY(copse_file_beside(c->json->file, name, &path, c->err));
  COPSE_TRY(copse_topology_load_at(path, options, depth + 1, &c->host, c->err));
out:
  free(path);
  return status;
}

static int count_type(const struct copse_topology *host, const char *type) {
  int n = 0;
  for (int i = 0; i < host->n_nodes; i++) n += strcmp(host->nodes[i].type, type) == 0;
  return n;
}

/* An NCCL dump has a net port behind each NIC, which is what the cable is in; else the NIC is. */
static copse_status find_nics(struct composer *c, const cJSON *root) {
  const char *type = count_type(c->host, "net") > 0 ? "net" : "nic";
  int n = count_type(c->host, type);
  if (n == 0)
    return copse_fail_at(c->err, COPSE_BAD_INPUT, c->json->file, copse_json_line(root, NULL),
                         "host \"%.80s\" has no node of type \"nic\" or \"net\" (--links nvlink "
                         "leaves them out) and can't join a fabric",
                         c->host->name);
  copse_status status = copse_calloc((size_t)n, sizeof *c->nics, &c->nics, c->err);
  if (status != COPSE_OK) return status;
  for (int i = 0; i < c->host->n_nodes; i++)
    if (strcmp(c->host->nodes[i].type, type) == 0) c->nics[c->n_nics++] = i;
  return COPSE_OK;
}

/* Before anything of that size is allocated. */
static copse_status check_size(const struct composer *c, const cJSON *root) {
  int64_t nodes = (int64_t)c->hosts * c->host->n_nodes + c->n_nics + 1;
  int64_t links = (int64_t)c->hosts * (c->host->n_links + 2 * c->n_nics) + 2 * c->n_nics;
  if (nodes <= COPSE_TOPOLOGY_MAX_NODES && links <= COPSE_TOPOLOGY_MAX_LINKS) return COPSE_OK;
  return copse_fail_at(
      c->err, COPSE_BAD_INPUT, c->json->file, copse_json_line(copse_json_get(root, "hosts"), root),
      "%d hosts make %" PRId64 " nodes and %" PRId64 " links; at most %d and %d are possible",
      c->hosts, nodes, links, COPSE_TOPOLOGY_MAX_NODES, COPSE_TOPOLOGY_MAX_LINKS);
}

/* ---- composition -------------------------------------------------------------------- */

static copse_status add_host_nodes(const struct composer *c, int h) {
  const struct copse_topology *host = c->host;
  char prefix[16];
  int n = snprintf(prefix, sizeof prefix, "h%d.", h);
  copse_status status = COPSE_OK;
  char *id = NULL;
  for (int i = 0; i < host->n_nodes; i++) {
    struct copse_node node = host->nodes[i];
    size_t bytes = strlen(node.id) + (size_t)n + 1;
    COPSE_TRY(copse_calloc(bytes, 1, &id, c->err));
    snprintf(id, bytes, "%s%s", prefix, node.id);
    node.id = id;
    if (node.rank >= 0) node.rank += h * host->n_ranks;
    COPSE_TRY(copse_builder_add_node(c->builder, 0, &node, NULL, c->err));
    free(id);
    id = NULL;
  }
out:
  free(id);
  return status;
}

static copse_status add_host_links(const struct composer *c, int h) {
  const struct copse_topology *host = c->host;
  int first = h * host->n_nodes;
  copse_status status = COPSE_OK;
  for (int i = 0; i < host->n_links && status == COPSE_OK; i++) {
    const struct copse_link *link = &host->links[i];
    status = copse_builder_add_link(c->builder, 0, first + link->src, first + link->dst,
                                    link->bandwidth, link->latency, c->err);
  }
  return status;
}

static copse_status add_duplex(const struct composer *c, int a, int b, struct copse_q bandwidth) {
  struct copse_q latency = c->fabric.latency;
  long line = c->fabric.line;
  copse_status status = copse_builder_add_link(c->builder, line, a, b, bandwidth, latency, c->err);
  if (status != COPSE_OK) return status;
  return copse_builder_add_link(c->builder, line, b, a, bandwidth, latency, c->err);
}

static copse_status add_switch(const struct composer *c, const char *id, int *index) {
  struct copse_node node = {.id = id, .type = "switch", .rank = -1};
  return copse_builder_add_node(c->builder, c->fabric.line, &node, index, c->err);
}

/* One switch for every NIC (flat), or for the i-th NIC of every host (rails). */
static copse_status add_fabric_nodes(const struct composer *c, int *first_switch, int *spine) {
  bool flat = c->fabric.type == FABRIC_FLAT;
  copse_status status;
  *spine = -1;
  COPSE_TRY(add_switch(c, flat ? "fabric" : "rail0", first_switch));
  for (int i = 1; !flat && i < c->n_nics; i++) {
    char id[24];
    snprintf(id, sizeof id, "rail%d", i);
    COPSE_TRY(add_switch(c, id, NULL));
  }
  if (c->fabric.spine_bandwidth.num > 0) status = add_switch(c, "spine", spine);
out:
  return status;
}

static copse_status add_fabric_links(const struct composer *c, int first_switch, int spine) {
  bool flat = c->fabric.type == FABRIC_FLAT;
  copse_status status = COPSE_OK;
  for (int h = 0; h < c->hosts; h++)
    for (int i = 0; i < c->n_nics; i++)
      COPSE_TRY(add_duplex(c, h * c->host->n_nodes + c->nics[i], first_switch + (flat ? 0 : i),
                           c->fabric.bandwidth));
  for (int i = 0; spine >= 0 && i < c->n_nics; i++)
    COPSE_TRY(add_duplex(c, first_switch + i, spine, c->fabric.spine_bandwidth));
out:
  return status;
}

static copse_status compose(const struct composer *c) {
  int first_switch = -1, spine = -1;
  copse_status status = COPSE_OK;
  for (int h = 0; h < c->hosts; h++) COPSE_TRY(add_host_nodes(c, h));
  COPSE_TRY(add_fabric_nodes(c, &first_switch, &spine));
  for (int h = 0; h < c->hosts; h++) COPSE_TRY(add_host_links(c, h));
  status = add_fabric_links(c, first_switch, spine);
out:
  return status;
}

static copse_status read_parts(struct composer *c, const struct copse_topology_options *options,
                               int depth) {
  static const char *const keys[] = {"format", "name", "host", "hosts", "fabric", NULL};
  const cJSON *root = c->json->root;
  const char *name = NULL;
  int64_t hosts = 0;
  copse_status status;
  COPSE_TRY(copse_json_expect_object(c->json, root, NULL, "a cluster", keys, c->err));
  if (copse_json_get(root, "name")) {
    COPSE_TRY(copse_json_get_string(c->json, root, "name", &name, c->err));
    COPSE_TRY(copse_builder_set_name(c->builder, name, c->err));
  }
  COPSE_TRY(
      copse_json_get_int(c->json, root, "hosts", 1, COPSE_TOPOLOGY_MAX_NODES, &hosts, c->err));
  c->hosts = (int)hosts;
  COPSE_TRY(read_fabric(c, root));
  COPSE_TRY(load_host(c, root, options, depth));
  COPSE_TRY(find_nics(c, root));
  status = check_size(c, root);
out:
  return status;
}

copse_status copse_read_cluster(const struct copse_json *json,
                                const struct copse_topology_options *options, int depth,
                                struct copse_topology **out, struct copse_err *err) {
  struct composer c = {.json = json, .err = err};
  *out = NULL;
  copse_status status;
  COPSE_TRY(copse_builder_new(json->file, &c.builder, err));
  COPSE_TRY(read_parts(&c, options, depth));
  COPSE_TRY(compose(&c));
  status = copse_builder_finish(c.builder, out, err);
out:
  copse_builder_free(c.builder);
  copse_topology_release(c.host);
  free(c.nics);
  return status;
}
