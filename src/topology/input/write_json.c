/* Canonical topology JSON and its checksum. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "topology/topology.h"

/* Decimals of up to this many places are written as numbers, other fractions as "p/q". */
#define MAX_PLACES 9

/* The decimal places of q exactly, or -1 where more than MAX_PLACES would be needed. */
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
  copse_text_add(text, "}");
}

/* The other direction of a link if it is just like it, else -1. */
static int equal_reverse(const struct copse_topology *topology, int i) {
  const struct copse_link *link = &topology->links[i];
  int reverse = copse_topology_find_link(topology, link->dst, link->src);
  if (reverse < 0) return -1;
  const struct copse_link *other = &topology->links[reverse];
  bool equal =
      copse_q_eq(link->bandwidth, other->bandwidth) && copse_q_eq(link->latency, other->latency);
  return equal ? reverse : -1;
}

/* A duplex link stands where the first of its directions does. */
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
  copse_text_add(&text, "]}\n");
  return copse_text_take(&text, out, size, err);
}

copse_status copse_topology_sha256(const struct copse_topology *topology,
                                   char hex[COPSE_SHA256_HEX], struct copse_err *err) {
  char *text = NULL;
  size_t size = 0;
  if (topology->chosen_from) {
    memcpy(hex, topology->chosen_from, COPSE_SHA256_HEX);
    return COPSE_OK;
  }
  copse_status status = copse_topology_to_json(topology, &text, &size, err);
  if (status == COPSE_OK) copse_sha256_hex(text, size, hex);
  free(text);
  return status;
}
