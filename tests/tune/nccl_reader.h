/*
 * XML and graphs as NCCL's own reader takes them, for tests: written from the description of that
 * reader, not from copse's. It is no XML parser. What NCCL refuses fails the test; so does what it
 * accepts and misreads.
 */
#ifndef COPSE_TESTS_TUNE_NCCL_READER_H
#define COPSE_TESTS_TUNE_NCCL_READER_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/support.h"

enum { READER_ATTRIBUTES = 16, READER_TEXT = 254 };

struct reader_node {
  char name[READER_TEXT + 1];
  char keys[READER_ATTRIBUTES][READER_TEXT + 1], values[READER_ATTRIBUTES][READER_TEXT + 1];
  int n_attributes, parent, n_children;
  bool closed;
};

struct reader_xml {
  struct reader_node *nodes; /* in the file's order; 0 is the root */
  int n, max_nodes, max_children;
};

static inline void reader_free(struct reader_xml *xml) { free(xml->nodes); }

static inline const char *reader_get(const struct reader_xml *xml, int node, const char *key) {
  const struct reader_node *n = &xml->nodes[node];
  for (int i = 0; i < n->n_attributes; i++)
    if (strcmp(n->keys[i], key) == 0) return n->values[i];
  return NULL;
}

static inline const char *reader_need(const struct reader_xml *xml, int node, const char *key) {
  const char *value = reader_get(xml, node, key);
  ck_assert_msg(value != NULL, "<%s> without %s", xml->nodes[node].name, key);
  return value;
}

/* Blanks, CR and LF between elements, and comments; a tab is an error. */
static inline const char *reader_skip(const char *p) {
  for (;;) {
    while (*p == ' ' || *p == '\n' || *p == '\r') p++;
    if (strncmp(p, "<!--", 4) != 0) return p;
    p = strstr(p, "-->");
    ck_assert_ptr_nonnull(p);
    p += 3;
  }
}

static inline const char *reader_word(const char *p, const char *ends, char *out) {
  size_t n = strcspn(p, ends);
  ck_assert_msg(n > 0 && n <= READER_TEXT, "a word of %zu characters at: %.30s", n, p);
  memcpy(out, p, n);
  out[n] = '\0';
  return p + n;
}

/* One blank between attributes, quotes, no line end inside a tag. */
static inline const char *reader_attributes(const char *p, struct reader_node *node) {
  while (*p == ' ') {
    ck_assert_int_lt(node->n_attributes, READER_ATTRIBUTES);
    p = reader_word(p + 1, "= />\t\r\n", node->keys[node->n_attributes]);
    ck_assert_msg(p[0] == '=' && p[1] == '"', "no value at: %.30s", p);
    char *value = node->values[node->n_attributes++];
    if (p[2] == '"') {
      value[0] = '\0';
      p += 3;
      continue;
    }
    p = reader_word(p + 2, "\"\t\r\n", value);
    ck_assert_msg(*p == '"', "a value that does not end at: %.30s", p);
    p++;
  }
  return p;
}

static inline const char *reader_element(struct reader_xml *xml, const char *p, int parent) {
  ck_assert_int_lt(xml->n, xml->max_nodes);
  struct reader_node *node = &xml->nodes[xml->n++];
  memset(node, 0, sizeof *node);
  node->parent = parent;
  if (parent >= 0) ck_assert_int_lt(xml->nodes[parent].n_children++, xml->max_children);
  p = reader_word(p + 1, " />\t\r\n", node->name);
  p = reader_attributes(p, node);
  node->closed = *p == '/';
  if (node->closed) p++;
  ck_assert_msg(*p == '>', "no end of <%s> at: %.30s", node->name, p);
  return p + 1;
}

/* The whole file, within NCCL's limits of children and elements. */
static inline struct reader_xml reader_parse(const char *text, int max_children, int max_nodes) {
  struct reader_xml xml = {.max_children = max_children, .max_nodes = max_nodes};
  int open = -1;
  const char *p = reader_skip(text);
  size_t n = 1;
  for (const char *q = text; *q; q++) n += *q == '<';
  xml.nodes = malloc(n * sizeof *xml.nodes);
  ck_assert_ptr_nonnull(xml.nodes);
  while (*p) {
    ck_assert_msg(*p == '<' && p[1] != '?' && p[1] != '!', "not an element: %.30s", p);
    if (p[1] != '/') {
      int at = xml.n;
      ck_assert_msg(open >= 0 || at == 0, "two roots");
      p = reader_element(&xml, p, open);
      if (!xml.nodes[at].closed) open = at;
    } else {
      ck_assert_int_ge(open, 0);
      size_t length = strlen(xml.nodes[open].name);
      ck_assert_msg(strncmp(p + 2, xml.nodes[open].name, length) == 0 && p[2 + length] == '>',
                    "not the end of <%s>: %.30s", xml.nodes[open].name, p);
      p += length + 3;
      open = xml.nodes[open].parent;
    }
    p = reader_skip(p);
  }
  ck_assert_int_eq(open, -1);
  ck_assert_int_gt(xml.n, 0);
  return xml;
}

/* ---- graphs
 * -------------------------------------------------------------------------------------- */

struct read_graph {
  bool there;
  int pattern, crossnic, n_channels, n_gpus;
  float speed_intra, speed_inter;
  char type_intra[8], type_inter[8];
  unsigned long devs[64][640];
  unsigned long nets[64][2];
  int n_nets;
};

/* By prefix, in this order, as NCCL matches them. */
static inline void reader_type(const char *word, long version, char out[8]) {
  static const char *const known[] = {"LOC", "NVL", "NVB", "PIX", "PXB",
                                      "PXN", "P2C", "PHB", "SYS"};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (strncmp(word, known[i], 3) != 0 || (strcmp(known[i], "P2C") == 0 && version < 22700))
      continue;
    strcpy(out, known[i]);
    return;
  }
  ck_abort_msg("NCCL takes the type %s for LOC", word);
}

static inline int reader_int(const struct reader_xml *xml, int node, const char *key) {
  return (int)strtol(reader_need(xml, node, key), NULL, 0);
}

static inline void reader_channel(const struct reader_xml *xml, int channel, long version, int c,
                                  struct read_graph *g) {
  int gpus = 0, nets = 0;
  for (int i = channel + 1; i < xml->n && xml->nodes[i].parent >= channel; i++) {
    if (xml->nodes[i].parent != channel) continue;
    bool gpu = strcmp(xml->nodes[i].name, "gpu") == 0;
    ck_assert_msg(gpu || strcmp(xml->nodes[i].name, "net") == 0, "<%s>", xml->nodes[i].name);
    ck_assert_msg(!reader_get(xml, i, "rank"), "NCCL would take the rank and not the dev");
    unsigned long dev = strtoul(reader_need(xml, i, "dev"), NULL, version < 22100 ? 0 : 16);
    if (gpu)
      g->devs[c][gpus++] = dev;
    else if (nets < 2)
      g->nets[c][nets++] = dev;
  }
  if (c > 0) ck_assert_int_eq(gpus, g->n_gpus);
  g->n_gpus = gpus;
  g->n_nets = nets;
}

static inline void reader_graph(const struct reader_xml *xml, int at, long version,
                                struct read_graph *g) {
  int channels = 0;
  g->there = true;
  g->pattern = reader_int(xml, at, "pattern");
  g->crossnic = reader_int(xml, at, "crossnic");
  g->n_channels = reader_int(xml, at, "nchannels");
  (void)reader_int(xml, at, "samechannels");
  g->speed_intra = strtof(reader_need(xml, at, "speedintra"), NULL);
  g->speed_inter = strtof(reader_need(xml, at, "speedinter"), NULL);
  reader_need(xml, at, "latencyinter");
  reader_type(reader_need(xml, at, "typeintra"), version, g->type_intra);
  reader_type(reader_need(xml, at, "typeinter"), version, g->type_inter);
  ck_assert_int_le(g->n_channels, version < 22500 ? 16 : 32);
  for (int i = at + 1; i < xml->n && xml->nodes[i].parent >= at; i++) {
    if (xml->nodes[i].parent != at) continue;
    ck_assert_str_eq(xml->nodes[i].name, "channel");
    ck_assert_int_lt(channels, g->n_channels);
    reader_channel(xml, i, version, channels++, g);
  }
  ck_assert_int_eq(channels, g->n_channels);
}

/* graphs[5] by id, of the text as NCCL of this version reads it. */
static inline void reader_graphs(const char *text, long version, struct read_graph *graphs) {
  int children = version < 22100 ? 32 : version < 22907 ? 128 : 640;
  int nodes = version < 22100 ? 1024 : version < 22907 ? 4096 : 65536;
  struct reader_xml xml = reader_parse(text, children, nodes);
  memset(graphs, 0, 5 * sizeof *graphs);
  ck_assert_str_eq(xml.nodes[0].name, "graphs");
  ck_assert_str_eq(reader_need(&xml, 0, "version"), "1");
  for (int i = 1; i < xml.n; i++) {
    if (xml.nodes[i].parent != 0) continue;
    ck_assert_str_eq(xml.nodes[i].name, "graph");
    int id = reader_int(&xml, i, "id");
    ck_assert(id >= 0 && id < 5);
    reader_graph(&xml, i, version, &graphs[id]);
  }
  reader_free(&xml);
}

#endif
