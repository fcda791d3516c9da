/*
 * Topology JSON (copse-topology/1): the reader, the canonical writer and its checksum. Documents of
 * the two other formats (copse-cluster/1, copse-synthetic/1) are recognised here and passed on.
 *
 *   {"format": "copse-topology/1", "name": "two",
 *    "nodes": [{"id": "a", "type": "gpu", "rank": 0}, {"id": "b", "type": "gpu", "rank": 1}],
 *    "links": [{"src": "a", "dst": "b", "bandwidth": 25, "duplex": true}]}
 *
 * docs/formats.md, "Topology".
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/graph.h"
#include "base/json.h"
#include "base/text.h"
#include "topology/input/readers.h"
#include "topology/topology.h"

struct reader {
  const struct copse_json *json;
  struct copse_topology_builder *builder;
  struct copse_err *err;
  int gpus, ranks;                 /* how many gpus, and how many of them state a rank */
  struct copse_index_map unstated; /* lines of links that don't say "duplex", by their ends */
  int *route;                      /* of the route at hand */
  size_t route_capacity;
};

static copse_status read_node(struct reader *r, const cJSON *item, const cJSON *parent) {
  static const struct copse_json_key keys[] = {
      {"id", COPSE_JSON_NEEDED | COPSE_JSON_STRING, "its name, such as \"gpu0\""},
      {"type", COPSE_JSON_NEEDED | COPSE_JSON_STRING,
       "\"gpu\" (a rank), \"nvswitch\", \"pcie\", \"cpu\", \"nic\" or \"switch\""},
      {"rank", COPSE_JSON_INDEX, "its rank among the gpus, from 0"},
      {"multicast", COPSE_JSON_BOOL, "whether the switch can copy, such as true"},
      {"aggregation", COPSE_JSON_BOOL, "whether the switch can add, such as true"},
      {"gdr", COPSE_JSON_BOOL, "false for a GPU or NIC without GPUDirect RDMA"},
      {0}};
  const struct copse_json *json = r->json;
  struct copse_node node = {.rank = -1};
  int64_t rank = -1;
  bool gdr = true;
  COPSE_DO(copse_json_expect_object(json, item, parent, "a node", keys, r->err));
  COPSE_DO(copse_json_get_string(json, item, "id", &node.id, r->err));
  COPSE_DO(copse_json_get_string(json, item, "type", &node.type, r->err));
  COPSE_DO(copse_json_get_bool_or(json, item, "multicast", false, &node.multicast, r->err));
  COPSE_DO(copse_json_get_bool_or(json, item, "aggregation", false, &node.aggregation, r->err));
  COPSE_DO(copse_json_get_bool_or(json, item, "gdr", true, &gdr, r->err));
  node.no_gdr = !gdr;
  if (copse_json_get(item, "rank"))
    COPSE_DO(copse_json_get_int(json, item, "rank", 0, COPSE_TOPOLOGY_MAX_NODES, &rank, r->err));
  node.rank = (int)rank;
  r->gpus += strcmp(node.type, "gpu") == 0;
  r->ranks += rank >= 0;
  return copse_builder_add_node(r->builder, copse_json_line(item, parent), &node, NULL, r->err);
}

static copse_status find_node(const struct reader *r, const cJSON *item, const char *key,
                              const char *id, int *out) {
  *out = copse_builder_find(r->builder, id);
  if (*out >= 0) return COPSE_OK;
  return copse_fail_at(r->err, COPSE_BAD_INPUT, r->json->file, copse_json_line(item, NULL),
                       "\"%s\" names \"%.80s\", which is no node's id", key, id);
}

static copse_status read_end(const struct reader *r, const cJSON *item, const char *key, int *out) {
  const char *id = NULL;
  COPSE_DO(copse_json_get_string(r->json, item, key, &id, r->err));
  return find_node(r, item, key, id, out);
}

/*
 * Refuses a link that doesn't say "duplex" where the way back is listed so too: it may be meant as
 * one direction each, and would count twice.
 */
static copse_status check_way_back(struct reader *r, const cJSON *item, long line, int src,
                                   int dst) {
  size_t cursor = 0;
  int first = copse_index_map_next(&r->unstated, copse_key_pair(dst, src), &cursor);
  const char *a = copse_json_get(item, "src")->valuestring;
  const char *b = copse_json_get(item, "dst")->valuestring;
  if (first >= 0)
    return copse_fail_at(
        r->err, COPSE_BAD_INPUT, r->json->file, line,
        "\"%.60s\" to \"%.60s\" has a link, and so has the way back (line %d), and "
        "neither says \"duplex\": give both \"duplex\": false for one direction "
        "each, or list the pair once for both directions",
        a, b, first);
  cursor = 0;
  if (copse_index_map_next(&r->unstated, copse_key_pair(src, dst), &cursor) >= 0) return COPSE_OK;
  return copse_index_map_add(&r->unstated, copse_key_pair(src, dst), (int)line, r->err);
}

/* Returns what a guess is called in the file. */
static const char *guess_name(enum copse_guess guess) {
  static const char *const names[] = {[COPSE_GUESS_NONE] = "none",
                                      [COPSE_GUESS_SOCKETS] = "sockets",
                                      [COPSE_GUESS_SPEED] = "speed",
                                      [COPSE_GUESS_PORT] = "port",
                                      [COPSE_GUESS_CLASS] = "class"};
  return names[guess];
}

/* Reads the mark that a link's bandwidth is a guess of the reader that wrote the file. */
static copse_status read_guess(struct reader *r, const cJSON *item, int src, int dst, bool duplex) {
  const char *name = NULL;
  if (!copse_json_get(item, "guess")) return COPSE_OK;
  COPSE_DO(copse_json_get_string(r->json, item, "guess", &name, r->err));
  for (int g = COPSE_GUESS_SOCKETS; g <= COPSE_GUESS_CLASS; g++) {
    if (strcmp(name, guess_name((enum copse_guess)g)) != 0) continue;
    copse_builder_set_guess(r->builder, src, dst, (enum copse_guess)g);
    if (duplex) copse_builder_set_guess(r->builder, dst, src, (enum copse_guess)g);
    return COPSE_OK;
  }
  return copse_fail_at(r->err, COPSE_BAD_INPUT, r->json->file,
                       copse_json_line(copse_json_get(item, "guess"), item),
                       "\"guess\" is \"%.40s\": give \"sockets\", \"speed\", \"port\" or "
                       "\"class\", or leave it out",
                       name);
}

static copse_status read_link(struct reader *r, const cJSON *item, const cJSON *parent) {
  static const struct copse_json_key keys[] = {
      {"src", COPSE_JSON_NEEDED | COPSE_JSON_STRING, "the id of a node, such as \"gpu0\""},
      {"dst", COPSE_JSON_NEEDED | COPSE_JSON_STRING, "the id of a node, such as \"switch0\""},
      {"bandwidth", COPSE_JSON_NEEDED | COPSE_JSON_POSITIVE,
       "GB/s per direction, such as 50 or \"625/2\""},
      {"latency", COPSE_JSON_NOT_NEGATIVE, "us, such as 0.5"},
      {"duplex", COPSE_JSON_BOOL, "false for the direction from src to dst only"},
      {"guess", COPSE_JSON_STRING, "what the bandwidth rests on, such as \"sockets\""},
      {0}};
  const struct copse_json *json = r->json;
  struct copse_q bandwidth, latency = COPSE_Q_ZERO;
  bool duplex = true;
  int src = -1, dst = -1;
  COPSE_DO(copse_json_expect_object(json, item, parent, "a link", keys, r->err));
  long line = copse_json_line(item, parent);
  COPSE_DO(read_end(r, item, "src", &src));
  COPSE_DO(read_end(r, item, "dst", &dst));
  COPSE_DO(copse_json_get_rational(json, item, "bandwidth", &bandwidth, r->err));
  if (copse_json_get(item, "latency"))
    COPSE_DO(copse_json_get_rational(json, item, "latency", &latency, r->err));
  COPSE_DO(copse_json_get_bool_or(json, item, "duplex", true, &duplex, r->err));
  if (!copse_json_get(item, "duplex")) COPSE_DO(check_way_back(r, item, line, src, dst));
  COPSE_DO(duplex ? copse_builder_add_duplex(r->builder, line, src, dst, bandwidth, latency, r->err)
                  : copse_builder_add_link(r->builder, line, src, dst, bandwidth, latency, r->err));
  return read_guess(r, item, src, dst, duplex);
}

/* Reads a route that the hardware takes from one GPU to another. The builder checks it when all
 * links are there. */
static copse_status read_route(struct reader *r, const cJSON *item, const cJSON *parent) {
  static const struct copse_json_key keys[] = {
      {"path", COPSE_JSON_NEEDED | COPSE_JSON_ARRAY,
       "nodes from gpu to gpu, such as [\"gpu0\", \"switch0\", \"gpu1\"]"},
      {"duplex", COPSE_JSON_BOOL, "false for that direction only"},
      {0}};
  const cJSON *path = NULL;
  bool duplex = true;
  int n = 0;
  COPSE_DO(copse_json_expect_object(r->json, item, parent, "a route", keys, r->err));
  long line = copse_json_line(item, parent);
  COPSE_DO(copse_json_get_array(r->json, item, "path", &path, r->err));
  COPSE_DO(copse_json_get_bool_or(r->json, item, "duplex", true, &duplex, r->err));
  COPSE_JSON_EACH (node, path) {
    if (!copse_json_is_string(node))
      return copse_fail_at(r->err, COPSE_BAD_INPUT, r->json->file, copse_json_line(node, item),
                           "a node of \"path\" must be an id, such as \"gpu0\"");
    COPSE_DO(COPSE_GROW(r->route, r->route_capacity, (size_t)n + 1, r->err));
    COPSE_DO(find_node(r, item, "path", node->valuestring, &r->route[n++]));
  }
  COPSE_DO(copse_builder_add_route(r->builder, line, r->route, n, r->err));
  for (int i = 0; i < n / 2; i++) {
    int node = r->route[i];
    r->route[i] = r->route[n - 1 - i];
    r->route[n - 1 - i] = node;
  }
  return duplex ? copse_builder_add_route(r->builder, line, r->route, n, r->err) : COPSE_OK;
}

static copse_status read_string_or(const struct copse_json *json, const char *key, const char **out,
                                   struct copse_err *err) {
  if (!copse_json_get(json->root, key)) return COPSE_OK;
  return copse_json_get_string(json, json->root, key, out, err);
}

copse_status copse_read_about(const struct copse_json *json, struct copse_topology_builder *builder,
                              struct copse_err *err) {
  const char *name = NULL, *description = NULL, *source = NULL;
  COPSE_DO(read_string_or(json, "name", &name, err));
  COPSE_DO(read_string_or(json, "description", &description, err));
  COPSE_DO(read_string_or(json, "source", &source, err));
  if (name) COPSE_DO(copse_builder_set_name(builder, name, err));
  return copse_builder_set_about(builder, description, source, err);
}

static void free_reader(struct reader *r) {
  copse_index_map_free(&r->unstated);
  free(r->route);
}

static copse_status read_topology(const struct copse_json *json,
                                  struct copse_topology_builder *builder,
                                  const struct copse_notes *notes, struct copse_err *err) {
  static const struct copse_json_key keys[] = {
      {"format", COPSE_JSON_NEEDED | COPSE_JSON_STRING, "\"copse-topology/1\""},
      {"name", COPSE_JSON_STRING, "the name in reports, such as \"rack-7\""},
      {"description", COPSE_JSON_STRING, "one line about it, shown by copse topo --list"},
      {"source", COPSE_JSON_STRING, "where the numbers come from, one line"},
      {"nodes", COPSE_JSON_NEEDED | COPSE_JSON_ARRAY,
       "its nodes, such as [{\"id\": \"gpu0\", \"type\": \"gpu\"}]"},
      {"links", COPSE_JSON_NEEDED | COPSE_JSON_ARRAY,
       "its links, such as [{\"src\": \"gpu0\", \"dst\": \"gpu1\", \"bandwidth\": 50}]"},
      {"routes", COPSE_JSON_ARRAY,
       "what hardware takes, such as [{\"path\": [\"gpu0\", \"switch0\", \"gpu1\"]}]"},
      {0}};
  const cJSON *root = json->root, *nodes = NULL, *links = NULL, *routes = NULL;
  COPSE_AT_END(free_reader) struct reader r = {.json = json, .builder = builder, .err = err};
  COPSE_DO(copse_json_expect_object(json, root, NULL, "a topology", keys, err));
  COPSE_DO(copse_read_about(json, builder, err));
  COPSE_DO(copse_json_get_array(json, root, "nodes", &nodes, err));
  COPSE_DO(copse_json_get_array(json, root, "links", &links, err));
  COPSE_JSON_EACH (node, nodes) COPSE_DO(read_node(&r, node, root));
  COPSE_JSON_EACH (link, links) COPSE_DO(read_link(&r, link, root));
  if (copse_json_get(root, "routes"))
    COPSE_DO(copse_json_get_array(json, root, "routes", &routes, err));
  COPSE_JSON_EACH (route, routes) COPSE_DO(read_route(&r, route, root));
  if (r.ranks > 0 && r.ranks < r.gpus)
    copse_note(notes, "%s: %d of %d gpus state no rank: all are numbered in order of appearance",
               json->file, r.gpus - r.ranks, r.gpus);
  return COPSE_OK;
}

/* Reads {"format": "copse-synthetic/1", "synthetic": "ring:8@50"}: a synthetic line with a name. */
static copse_status read_synthetic(const struct copse_json *json,
                                   struct copse_topology_builder *builder,
                                   const struct copse_notes *notes, struct copse_err *err) {
  static const struct copse_json_key keys[] = {
      {"format", COPSE_JSON_NEEDED | COPSE_JSON_STRING, "\"copse-synthetic/1\""},
      {"name", COPSE_JSON_STRING, "the name in reports, such as \"rack-7\""},
      {"description", COPSE_JSON_STRING, "one line about it, shown by copse topo --list"},
      {"source", COPSE_JSON_STRING, "where the numbers come from, one line"},
      {"synthetic", COPSE_JSON_NEEDED | COPSE_JSON_STRING,
       "a synthetic line, such as \"ring:8@50\""},
      {0}};
  const char *spec = NULL;
  COPSE_DO(copse_json_expect_object(json, json->root, NULL, "a synthetic topology", keys, err));
  COPSE_DO(copse_read_about(json, builder, err));
  COPSE_DO(copse_json_get_string(json, json->root, "synthetic", &spec, err));
  return copse_build_synthetic(builder, json->file, copse_json_line(json->root, NULL), spec, notes,
                               err);
}

/* Refuses a "format" that is unknown, or known in another version. */
static copse_status refuse_format(const struct copse_json *json, const char *format,
                                  struct copse_err *err) {
  static const char *const known[] = {"copse-topology", "copse-cluster", "copse-synthetic"};
  long line = copse_json_line(json->root, NULL);
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    size_t n = strlen(known[i]);
    if (strncmp(format, known[i], n) == 0 && (format[n] == '/' || format[n] == '\0'))
      return copse_fail_at(err, COPSE_BAD_INPUT, json->file, line,
                           "unknown version \"%.60s\" of the format; this copse reads \"%s/1\"",
                           format, known[i]);
  }
  return copse_fail_at(err, COPSE_BAD_INPUT, json->file, line,
                       "unknown format \"%.60s\"; a topology's is \"copse-topology/1\", "
                       "\"copse-cluster/1\" or \"copse-synthetic/1\"",
                       format);
}

copse_status copse_read_topology_json(const struct copse_input *in, struct copse_topology **out,
                                      struct copse_err *err) {
  COPSE_AT_END(copse_json_free) struct copse_json json = {0};
  COPSE_AT_END(copse_builder_free_at) struct copse_topology_builder *builder = NULL;
  const char *format = NULL;
  *out = NULL;
  COPSE_DO(copse_json_parse(in->label, in->data, in->size, &json, err));
  if (!copse_json_is_object(json.root))
    return copse_fail_at(err, COPSE_BAD_INPUT, in->label, 1,
                         "a topology must be a JSON object with \"format\"");
  if (!copse_json_get(json.root, "format"))
    return copse_fail_at(err, COPSE_BAD_INPUT, in->label, copse_json_line(json.root, NULL),
                         "a topology needs \"format\": \"copse-topology/1\", "
                         "\"copse-cluster/1\" or \"copse-synthetic/1\"");
  COPSE_DO(copse_json_get_string(&json, json.root, "format", &format, err));
  if (strcmp(format, "copse-cluster/1") != 0) /* whose hosts may use them */
    copse_note_unused_options(in, "topology JSON", 0);
  COPSE_DO(copse_builder_new(in->label, &builder, err));
  if (strcmp(format, "copse-topology/1") == 0)
    COPSE_DO(read_topology(&json, builder, in->options->notes, err));
  else if (strcmp(format, "copse-cluster/1") == 0)
    COPSE_DO(copse_read_cluster(in, &json, builder, err));
  else if (strcmp(format, "copse-synthetic/1") == 0)
    COPSE_DO(read_synthetic(&json, builder, in->options->notes, err));
  else
    return refuse_format(&json, format, err);
  return copse_builder_finish(builder, out, err);
}

/* Decimals of up to this many places are written as numbers, other fractions as "p/q". */
#define MAX_PLACES 9

/* Returns the decimal places of q exactly, or -1 where more than MAX_PLACES would be needed. */
static int decimal_places(struct copse_q q, int64_t *scale) {
  *scale = 1;
  for (int places = 0; places <= MAX_PLACES; places++, *scale *= 10)
    if (*scale % q.den == 0) return places;
  return -1;
}

static void add_rational(struct copse_text *text, struct copse_q q) {
  char fraction[COPSE_Q_TEXT];
  int64_t scale, scaled;
  int places = decimal_places(q, &scale);
  if (places == 0) {
    copse_text_add(text, "%" PRId64, q.num);
  } else if (places > 0 && !copse_mul_overflows(q.num, scale / q.den, &scaled)) {
    copse_text_add(text, "%" PRId64 ".%0*" PRId64, scaled / scale, places, scaled % scale);
  } else {
    copse_text_add(text, "\"%s\"", copse_q_text(q, fraction));
  }
}

static void add_node(struct copse_text *text, const struct copse_node *node) {
  copse_text_add(text, "  {\"id\": ");
  copse_text_add_json_string(text, node->id);
  copse_text_add(text, ", \"type\": ");
  copse_text_add_json_string(text, node->type);
  if (node->rank >= 0) copse_text_add(text, ", \"rank\": %d", node->rank);
  if (node->multicast) copse_text_add(text, ", \"multicast\": true");
  if (node->aggregation) copse_text_add(text, ", \"aggregation\": true");
  if (node->no_gdr) copse_text_add(text, ", \"gdr\": false");
  copse_text_add(text, "}");
}

static void add_link(struct copse_text *text, const struct copse_topology *topology,
                     const struct copse_link *link, bool duplex) {
  copse_text_add(text, "  {\"src\": ");
  copse_text_add_json_string(text, topology->nodes[link->src].id);
  copse_text_add(text, ", \"dst\": ");
  copse_text_add_json_string(text, topology->nodes[link->dst].id);
  copse_text_add(text, ", \"bandwidth\": ");
  add_rational(text, link->bandwidth);
  if (link->latency.num > 0) {
    copse_text_add(text, ", \"latency\": ");
    add_rational(text, link->latency);
  }
  if (!duplex) copse_text_add(text, ", \"duplex\": false");
  if (link->guess != COPSE_GUESS_NONE)
    copse_text_add(text, ", \"guess\": \"%s\"", guess_name(link->guess));
  copse_text_add(text, "}");
}

/* Returns the link of the other direction if it has the same figures, else -1. */
static int equal_reverse(const struct copse_topology *topology, int i) {
  const struct copse_link *link = &topology->links[i];
  int reverse = copse_topology_find_link(topology, link->dst, link->src);
  if (reverse < 0) return -1;
  const struct copse_link *other = &topology->links[reverse];
  bool equal = copse_q_eq(link->bandwidth, other->bandwidth) &&
               copse_q_eq(link->latency, other->latency) && link->guess == other->guess;
  return equal ? reverse : -1;
}

/* Adds the links; a duplex link stands where the first of its directions does. */
static void add_links(struct copse_text *text, const struct copse_topology *topology) {
  bool first = true;
  for (int i = 0; i < topology->n_links; i++) {
    int reverse = equal_reverse(topology, i);
    if (reverse >= 0 && reverse < i) continue;
    copse_text_add(text, first ? "\n" : ",\n");
    add_link(text, topology, &topology->links[i], reverse >= 0);
    first = false;
  }
}

/* Whether b is the way back of a. */
static bool is_back(const struct copse_stated_route *a, const struct copse_stated_route *b) {
  if (!b || a->n_nodes != b->n_nodes) return false;
  for (int i = 0; i < a->n_nodes; i++)
    if (a->nodes[i] != b->nodes[b->n_nodes - 1 - i]) return false;
  return true;
}

/* Adds the routes; one with its way back stands where the first of both does. */
static void add_routes(struct copse_text *text, const struct copse_topology *t) {
  const char *before = "],\n \"routes\": [\n";
  for (int r = 0; r < t->n_routes; r++) {
    const struct copse_stated_route *route = &t->routes[r];
    bool duplex = is_back(route, copse_topology_route(t, route->dst, route->src));
    if (duplex && route->dst < route->src) continue;
    copse_text_add(text, "%s  {\"path\": [", before);
    before = ",\n";
    for (int i = 0; i < route->n_nodes; i++) {
      if (i > 0) copse_text_add(text, ", ");
      copse_text_add_json_string(text, t->nodes[route->nodes[i]].id);
    }
    copse_text_add(text, duplex ? "]}" : "], \"duplex\": false}");
  }
}

copse_status copse_topology_to_json(const struct copse_topology *topology, char **out, size_t *size,
                                    struct copse_err *err) {
  struct copse_text text = {0};
  *out = NULL;
  *size = 0;
  copse_text_add(&text, "{\"format\": \"copse-topology/1\", \"name\": ");
  copse_text_add_json_string(&text, topology->name);
  copse_text_add(&text, ",\n \"nodes\": [");
  for (int i = 0; i < topology->n_nodes; i++) {
    copse_text_add(&text, i ? ",\n" : "\n");
    add_node(&text, &topology->nodes[i]);
  }
  copse_text_add(&text, "],\n \"links\": [");
  add_links(&text, topology);
  add_routes(&text, topology);
  copse_text_add(&text, "]}\n");
  return copse_text_take(&text, out, size, err);
}

copse_status copse_topology_sha256(const struct copse_topology *topology,
                                   char hex[COPSE_SHA256_HEX], struct copse_err *err) {
  COPSE_AT_END(copse_free_at) char *text = NULL;
  size_t size = 0;
  if (topology->chosen_from) {
    memcpy(hex, topology->chosen_from, COPSE_SHA256_HEX);
    return COPSE_OK;
  }
  COPSE_DO(copse_topology_to_json(topology, &text, &size, err));
  copse_sha256_hex(text, size, hex);
  return COPSE_OK;
}
