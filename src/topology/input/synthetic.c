/*
 * Synthetic topologies from one line:
 *
 *   KIND:SIZE@GBPS      ring, line, full, switch: a number of GPUs; hypercube: dimensions;
 *                       torus, mesh: sizes such as 4x4x2 (a ring of two has two links)
 *   [hosts:H] gpus:G@GBPS [nics:N@GBPS] [FABRIC]
 *                       G GPUs on an NVSwitch, N NICs, GPU i at NIC i (or its share of them)
 *   FABRIC              flat | rails | clos:LEAF_HOSTS[/OVERSUBSCRIPTION] | torus:4x4@GBPS |
 *                       dragonfly:GROUP_ROUTERS@LOCAL_GBPS/GLOBAL_GBPS, and spine@GBPS for rails
 *
 * GBPS: GB/s per direction, a decimal or p/q.
 *
 * docs/formats.md, "Synthetic line".
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "topology/fabric/fabric.h"
#include "topology/input/readers.h"

#define MAX_SPEC 512
#define MAX_WORDS 8

/* "torus:4x4@100": a word of the line, cut into its parts; NULL where it has none. */
struct word {
  char *key, *value, *speed;
};

struct line {
  struct copse_topology_builder *builder;
  const char *label, *spec;
  long at;
  const struct copse_notes *notes;
  struct copse_err *err;
  char text[MAX_SPEC + 1];
  struct word words[MAX_WORDS];
  int n_words;
};

static copse_status refuse(const struct line *l, const char *what, const char *right) {
  return copse_fail_at(l->err, COPSE_BAD_INPUT, l->label, l->at, "\"%.80s\": %s; %s", l->spec, what,
                       right);
}

/* ---- words ------------------------------------------------------------------------------ */

static copse_status cut(struct line *l) {
  char *save = NULL;
  if (strlen(l->spec) > MAX_SPEC) return refuse(l, "too long", "512 characters are the most");
  strcpy(l->text, l->spec);
  for (char *p = strtok_r(l->text, " \t\r\n", &save); p; p = strtok_r(NULL, " \t\r\n", &save)) {
    struct word word = {.key = p};
    if (l->n_words == MAX_WORDS) return refuse(l, "too many words", "8 are the most");
    word.speed = strchr(p, '@');
    if (word.speed) *word.speed++ = '\0';
    word.value = strchr(p, ':');
    if (word.value) *word.value++ = '\0';
    l->words[l->n_words++] = word;
  }
  if (l->n_words == 0) return refuse(l, "empty", "a synthetic topology is such as ring:8@50");
  return COPSE_OK;
}

static copse_status parse_speed(const struct line *l, const char *text, struct copse_q *out) {
  struct copse_err local = COPSE_ERR_INIT;
  bool fraction = text && strchr(text, '/');
  copse_status status = !text      ? COPSE_BAD_INPUT
                        : fraction ? copse_q_parse_fraction(text, out, &local)
                                   : copse_q_parse_decimal(text, out, &local);
  if (status == COPSE_OK && out->num > 0) return COPSE_OK;
  return refuse(l, text ? "a bandwidth that is no positive number" : "a bandwidth is missing",
                "write @ and GB/s behind it, such as @50, @12.5 or @25/2");
}

static copse_status parse_count(const struct line *l, const char *text, int least, int *out) {
  char *end = NULL;
  long v = text && text[0] >= '0' && text[0] <= '9' ? strtol(text, &end, 10) : -1;
  char right[80];
  if (v >= least && v <= COPSE_TOPOLOGY_MAX_NODES && *end == '\0') {
    *out = (int)v;
    return COPSE_OK;
  }
  snprintf(right, sizeof right, "it must be a whole number from %d to %d", least,
           COPSE_TOPOLOGY_MAX_NODES);
  return refuse(l, text ? "a size that makes no sense" : "a size is missing", right);
}

/* Parses "4x4x2"; *nodes gets the product. */
static copse_status parse_dims(const struct line *l, const char *text, int *dims, int *n_dims,
                               int64_t *nodes) {
  char copy[MAX_SPEC + 1], *save = NULL;
  *n_dims = 0;
  *nodes = 1;
  snprintf(copy, sizeof copy, "%s", text ? text : "");
  size_t n = strlen(copy);
  if (n == 0 || copy[0] == 'x' || copy[n - 1] == 'x' || strstr(copy, "xx"))
    return refuse(l, "sizes that make no sense", "they must be such as 4x4x2");
  for (char *p = strtok_r(copy, "x", &save); p; p = strtok_r(NULL, "x", &save)) {
    if (*n_dims == COPSE_MAX_DIMENSIONS) return refuse(l, "too many dimensions", "8 are the most");
    COPSE_DO(parse_count(l, p, 1, &dims[*n_dims]));
    *nodes *= dims[(*n_dims)++];
    if (*nodes > COPSE_TOPOLOGY_MAX_NODES)
      return refuse(l, "too many nodes", "4194304 are the most of a topology");
  }
  return COPSE_OK;
}

static copse_status check_links(const struct line *l, int64_t links) {
  if (links <= COPSE_TOPOLOGY_MAX_LINKS) return COPSE_OK;
  return refuse(l, "too many links", "16777216 are the most of a topology");
}

/* ---- regular graphs of GPUs --------------------------------------------------------------- */

/* Adds gpu0, gpu1 ..; *first, if it is asked for and there is one, gets the number of the first. */
static copse_status add_numbered(const struct line *l, const char *type, int n, int *first) {
  char id[24];
  struct copse_node node = {.id = id, .type = type, .rank = -1};
  for (int i = 0; i < n; i++) {
    snprintf(id, sizeof id, "%s%d", type, i);
    COPSE_DO(copse_builder_add_node(l->builder, l->at, &node, i == 0 ? first : NULL, l->err));
  }
  return COPSE_OK;
}

static copse_status add_hub(const struct line *l, const char *name, int *index) {
  const struct copse_node hub = {.id = name, .type = name, .rank = -1};
  return copse_builder_add_node(l->builder, l->at, &hub, index, l->err);
}

static copse_status join(const struct line *l, int a, int b, struct copse_q bandwidth) {
  return copse_builder_add_duplex(l->builder, l->at, a, b, bandwidth, COPSE_Q_ZERO, l->err);
}

static copse_status build_ring(const struct line *l, int n, struct copse_q bandwidth, bool closed) {
  COPSE_DO(add_numbered(l, "gpu", n, NULL));
  for (int i = 0; i + 1 < n; i++) COPSE_DO(join(l, i, i + 1, bandwidth));
  return closed && n > 1 ? join(l, n - 1, 0, bandwidth) : COPSE_OK;
}

static copse_status build_full(const struct line *l, int n, struct copse_q bandwidth) {
  COPSE_DO(check_links(l, (int64_t)n * (n - 1)));
  COPSE_DO(add_numbered(l, "gpu", n, NULL));
  for (int i = 0; i < n; i++)
    for (int j = i + 1; j < n; j++) COPSE_DO(join(l, i, j, bandwidth));
  return COPSE_OK;
}

static copse_status build_switch(const struct line *l, int n, struct copse_q bandwidth) {
  COPSE_DO(add_numbered(l, "gpu", n, NULL));
  COPSE_DO(add_hub(l, "switch", NULL));
  for (int i = 0; i < n; i++) COPSE_DO(join(l, i, n, bandwidth));
  return COPSE_OK;
}

static copse_status build_hypercube(const struct line *l, int d, struct copse_q bandwidth) {
  if (d > 22) return refuse(l, "too many nodes", "22 dimensions are the most");
  COPSE_DO(check_links(l, (int64_t)d << d));
  COPSE_DO(add_numbered(l, "gpu", 1 << d, NULL));
  for (int i = 0; i < 1 << d; i++)
    for (int bit = 0; bit < d; bit++)
      if (!(i >> bit & 1)) COPSE_DO(join(l, i, i | 1 << bit, bandwidth));
  return COPSE_OK;
}

static copse_status build_torus(const struct line *l, const char *sizes, struct copse_q bandwidth,
                                bool closed) {
  int dims[COPSE_MAX_DIMENSIONS], n_dims = 0;
  int64_t n = 1;
  char id[COPSE_MAX_DIMENSIONS * 12] = "gpu";
  struct copse_node node = {.id = id, .type = "gpu", .rank = -1};
  COPSE_DO(parse_dims(l, sizes, dims, &n_dims, &n));
  COPSE_DO(check_links(l, n * 2 * n_dims));
  for (int i = 0; i < n; i++) {
    copse_torus_coordinates(dims, n_dims, i, id + 3, sizeof id - 3);
    COPSE_DO(copse_builder_add_node(l->builder, l->at, &node, NULL, l->err));
  }
  for (int i = 0; i < n; i++)
    for (int d = 0; d < n_dims; d++) {
      int next = copse_torus_next(dims, n_dims, i, d);
      if (next > i || (closed && next >= 0)) COPSE_DO(join(l, i, next, bandwidth));
    }
  return COPSE_OK;
}

static bool is_regular(const char *key) {
  static const char *const kinds[] = {"ring",      "line",  "full", "switch",
                                      "hypercube", "torus", "mesh"};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strcmp(key, kinds[i]) == 0) return true;
  return false;
}

static copse_status build_regular(const struct line *l) {
  const struct word *word = &l->words[0];
  struct copse_q bandwidth;
  bool ring = strcmp(word->key, "ring") == 0, torus = strcmp(word->key, "torus") == 0;
  int n = 0;
  if (!is_regular(word->key))
    return refuse(l, "an unknown kind",
                  "ring, line, full, switch, hypercube, torus, mesh and hosts are known");
  if (l->n_words > 1)
    return refuse(l, "more than one word", "this kind has one, such as ring:8@50");
  COPSE_DO(parse_speed(l, word->speed, &bandwidth));
  if (torus || strcmp(word->key, "mesh") == 0) return build_torus(l, word->value, bandwidth, torus);
  COPSE_DO(parse_count(l, word->value, 1, &n));
  if (ring || strcmp(word->key, "line") == 0) return build_ring(l, n, bandwidth, ring);
  if (strcmp(word->key, "full") == 0) return build_full(l, n, bandwidth);
  if (strcmp(word->key, "switch") == 0) return build_switch(l, n, bandwidth);
  return build_hypercube(l, n, bandwidth);
}

/* ---- hosts on a fabric --------------------------------------------------------------------- */

struct cluster {
  int hosts, gpus, nics;
  struct copse_q gpu_speed, nic_speed;
  struct copse_fabric fabric;
  bool has_fabric;
};

static copse_status parse_clos(const struct line *l, const struct word *word, struct cluster *c) {
  char *ratio = word->value ? strchr(word->value, '/') : NULL;
  c->fabric.type = COPSE_FABRIC_CLOS;
  if (ratio) *ratio++ = '\0';
  COPSE_DO(parse_count(l, word->value, 1, &c->fabric.leaf_hosts));
  return ratio ? parse_speed(l, ratio, &c->fabric.oversubscription) : COPSE_OK;
}

static copse_status parse_dragonfly(const struct line *l, const struct word *word,
                                    struct cluster *c) {
  char *global = word->speed ? strchr(word->speed, '/') : NULL;
  c->fabric.type = COPSE_FABRIC_DRAGONFLY;
  if (global) *global++ = '\0';
  COPSE_DO(parse_count(l, word->value, 1, &c->fabric.group_routers));
  COPSE_DO(parse_speed(l, word->speed, &c->fabric.local_bandwidth));
  return parse_speed(l, global, &c->fabric.global_bandwidth);
}

static copse_status parse_torus(const struct line *l, const struct word *word, struct cluster *c) {
  int64_t nodes;
  c->fabric.type = COPSE_FABRIC_TORUS;
  COPSE_DO(parse_dims(l, word->value, c->fabric.dims, &c->fabric.n_dims, &nodes));
  return parse_speed(l, word->speed, &c->fabric.link_bandwidth);
}

static copse_status parse_fabric(const struct line *l, const struct word *word, struct cluster *c) {
  bool bare = !word->value && !word->speed;
  if (c->has_fabric) return refuse(l, "two fabrics", "there is one between the hosts");
  c->has_fabric = true;
  if (strcmp(word->key, "clos") == 0 && !word->speed) return parse_clos(l, word, c);
  if (strcmp(word->key, "dragonfly") == 0) return parse_dragonfly(l, word, c);
  if (strcmp(word->key, "torus") == 0) return parse_torus(l, word, c);
  c->fabric.type = strcmp(word->key, "rails") == 0 ? COPSE_FABRIC_RAILS : COPSE_FABRIC_FLAT;
  if (bare && (c->fabric.type == COPSE_FABRIC_RAILS || strcmp(word->key, "flat") == 0))
    return COPSE_OK;
  return copse_fail_at(l->err, COPSE_BAD_INPUT, l->label, l->at,
                       "\"%.80s\": the word \"%.40s\"; hosts:, gpus:, nics:, spine@ and a fabric "
                       "(flat, rails, clos:, torus:, dragonfly:) are known",
                       l->spec, word->key);
}

static bool said_before(const struct line *l, int word) {
  for (int i = 0; i < word; i++)
    if (strcmp(l->words[i].key, l->words[word].key) == 0) return true;
  return false;
}

static copse_status parse_cluster(const struct line *l, struct cluster *c) {
  bool spine = false;
  for (int i = 0; i < l->n_words; i++) {
    const struct word *word = &l->words[i];
    if (said_before(l, i))
      return refuse(l, "a word that stands there twice", "each says one thing: hosts:2 gpus:8@300");
    if (strcmp(word->key, "hosts") == 0 && !word->speed) {
      COPSE_DO(parse_count(l, word->value, 1, &c->hosts));
    } else if (strcmp(word->key, "gpus") == 0) {
      COPSE_DO(parse_count(l, word->value, 1, &c->gpus));
      COPSE_DO(parse_speed(l, word->speed, &c->gpu_speed));
    } else if (strcmp(word->key, "nics") == 0) {
      COPSE_DO(parse_count(l, word->value, 1, &c->nics));
      COPSE_DO(parse_speed(l, word->speed, &c->nic_speed));
    } else if (strcmp(word->key, "spine") == 0 && !word->value) {
      COPSE_DO(parse_speed(l, word->speed, &c->fabric.spine_bandwidth));
      spine = true;
    } else {
      COPSE_DO(parse_fabric(l, word, c));
    }
  }
  if (c->gpus == 0) return refuse(l, "gpus: is missing", "such as hosts:4 gpus:8@300 nics:8@25");
  if (c->nics == 0 && (c->hosts > 1 || c->has_fabric))
    return refuse(l, "hosts without NICs can't reach each other", "say how many: nics:8@25");
  if (spine && c->fabric.type != COPSE_FABRIC_RAILS)
    return refuse(l, "a spine without rails", "it joins the rails: rails spine@100");
  return COPSE_OK;
}

/* Adds a host: GPUs on an NVSwitch; the GPUs and NICs pair off in order, several of the more
 * numerous to one. */
static copse_status add_host(const struct line *l, const struct cluster *c) {
  int nvswitch = -1, nic = -1, gpu = -1, pairs = c->gpus > c->nics ? c->gpus : c->nics;
  COPSE_DO(add_numbered(l, "gpu", c->gpus, &gpu));
  COPSE_DO(add_hub(l, "nvswitch", &nvswitch));
  COPSE_DO(add_numbered(l, "nic", c->nics, &nic));
  for (int i = 0; i < c->gpus; i++) COPSE_DO(join(l, gpu + i, nvswitch, c->gpu_speed));
  for (int i = 0; c->nics > 0 && i < pairs; i++)
    COPSE_DO(join(l, gpu + (int)((int64_t)i * c->gpus / pairs),
                  nic + (int)((int64_t)i * c->nics / pairs), c->nic_speed));
  return COPSE_OK;
}

static copse_status build_cluster(const struct line *l) {
  struct cluster c = {.hosts = 1,
                      .fabric = {.line = l->at, .notes = l->notes, COPSE_FABRIC_DEFAULTS}};
  struct line host = *l;
  COPSE_AT_END(copse_builder_free_at) struct copse_topology_builder *builder = NULL;
  COPSE_AT_END(copse_topology_free_at) struct copse_topology *topology = NULL;
  COPSE_DO(parse_cluster(l, &c));
  if (!c.has_fabric && c.hosts == 1) return add_host(l, &c);
  COPSE_DO(copse_builder_new(l->label, &builder, l->err));
  host.builder = builder;
  COPSE_DO(add_host(&host, &c));
  COPSE_DO(copse_builder_finish(builder, &topology, l->err));
  struct copse_host_group group = {
      .host = topology, .count = c.hosts, .bandwidth = COPSE_Q_ZERO, .line = l->at};
  c.fabric.bandwidth = c.nic_speed;
  return copse_compose(l->builder, l->label, &c.fabric, &group, 1, l->err);
}

copse_status copse_build_synthetic(struct copse_topology_builder *builder, const char *label,
                                   long line, const char *spec, const struct copse_notes *notes,
                                   struct copse_err *err) {
  struct line l = {
      .builder = builder, .label = label, .spec = spec, .at = line, .notes = notes, .err = err};
  COPSE_DO(cut(&l));
  bool cluster = strcmp(l.words[0].key, "hosts") == 0 || strcmp(l.words[0].key, "gpus") == 0;
  return cluster ? build_cluster(&l) : build_regular(&l);
}
