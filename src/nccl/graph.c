/*
 * Reads NCCL's graph XML. The rules are those of NCCL's own reader (NVIDIA/nccl
 * src/graph/xml.cc and search.cc, 2.18 to 2.31), which is no XML parser and reads `dev` in base 16:
 *
 *   text --what NCCL's reader refuses--> libxml2 --<graph> by <graph>--> struct copse_nccl_graphs
 *
 * What it reads wrongly is a remark: the file goes on being read as NCCL would.
 */
#include "nccl/graph.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/text.h"
#include "base/xml.h"

#define MAX_ATTRIBUTES 16
#define MAX_VALUE 254
#define MAX_REMARKS 32
#define MANY_CHILDREN 128 /* up to 2.29.2 */

static const char *const path_names[COPSE_NCCL_PATHS] = {"LOC", "NVL", "NVB", "C2C", "PIX", "PXB",
                                                         "P2C", "PXN", "PHB", "SYS", "NET", "DIS"};

const char *copse_nccl_path_name(enum copse_nccl_path path) { return path_names[path]; }

bool copse_nccl_path_from_name(const char *name, enum copse_nccl_path *out) {
  for (int i = 0; i < COPSE_NCCL_PATHS; i++) {
    bool unreadable =
        i == COPSE_NCCL_PATH_C2C || i == COPSE_NCCL_PATH_NET || i == COPSE_NCCL_PATH_DIS;
    if (unreadable || strncmp(name, path_names[i], strlen(path_names[i])) != 0) continue;
    *out = (enum copse_nccl_path)i;
    return true;
  }
  return false;
}

void copse_nccl_graphs_free(struct copse_nccl_graphs *graphs) {
  copse_arena_free(&graphs->arena);
  *graphs = (struct copse_nccl_graphs){0};
}

struct reader {
  const struct copse_xml *xml;
  const struct copse_notes *notes;
  struct copse_nccl_graphs *out;
  int n_remarks;
  struct copse_err *err;
};

#define refuse(r, element, ...) \
  copse_fail_at((r)->err, COPSE_BAD_INPUT, (r)->xml->file, copse_xml_line(element), __VA_ARGS__)

static void remark(struct reader *r, const xmlNode *element, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void remark(struct reader *r, const xmlNode *element, const char *fmt, ...) {
  char text[256];
  va_list ap;
  if (++r->n_remarks > MAX_REMARKS) return;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  copse_note(r->notes, "%s:%ld: %s", r->xml->file, copse_xml_line(element), text);
}

/* ---- what NCCL's reader refuses -------------------------------------------------------------- */

/* Where a byte stands. */
enum place { BETWEEN, TAG, VALUE };

/* Returns what is wrong with a byte between or in elements, or NULL. */
static const char *wrong_byte(enum place place, const char *p, const char *tag) {
  if (place == BETWEEN && *p == '\t') return "a tab between elements; use blanks";
  if (place == BETWEEN && *p != '<' && !strchr(" \r\n", *p))
    return "text between elements; there may be none";
  if (place == TAG && strchr("\t\r\n", *p)) return "a line end or tab inside of a tag; use a blank";
  if (place == TAG && *p == '>' && tag[1] == '/' && p[-1] == ' ')
    return "a blank in a closing tag; leave it out";
  return NULL;
}

static copse_status check_bytes(const char *label, const char *data, size_t size,
                                struct copse_err *err) {
  enum place place = BETWEEN;
  const char *end = data + size, *tag = data;
  char quote = 0;
  long line = 1;
  for (const char *p = data; p < end; p++) {
    const char *wrong = *p ? wrong_byte(place, p, tag) : "a NUL byte; the file is damaged";
    if (place == BETWEEN && *p == '<' && end - p >= 4 && memcmp(p, "<!--", 4) == 0) {
      const char *close = memmem(p, (size_t)(end - p), "-->", 3);
      for (; p < (close ? close + 2 : end - 1); p++) line += *p == '\n';
      continue;
    }
    if (place == BETWEEN && *p == '<' && end - p >= 2 && (p[1] == '?' || p[1] == '!'))
      wrong = "an XML declaration or DOCTYPE; remove it";
    if (wrong) return copse_fail_at(err, COPSE_BAD_INPUT, label, line, "NCCL refuses %s", wrong);
    line += *p == '\n';
    if (place == BETWEEN && *p == '<') {
      place = TAG;
      tag = p;
    } else if (place == TAG && (*p == '"' || *p == '\'')) {
      place = VALUE;
      quote = *p;
    } else if (place == VALUE && *p == quote) {
      place = TAG;
    } else if (place == TAG && *p == '>') {
      place = BETWEEN;
    }
  }
  return COPSE_OK;
}

static copse_status check_element(struct reader *r, const xmlNode *element) {
  int n = 0;
  for (const xmlAttr *a = element->properties; a; a = a->next) {
    const char *name = (const char *)a->name, *value = copse_xml_attribute(element, name);
    if (++n > MAX_ATTRIBUTES)
      return refuse(r, element, "more than %d attributes, NCCL's limit", MAX_ATTRIBUTES);
    if (strlen(name) > MAX_VALUE || strlen(value) > MAX_VALUE)
      return refuse(r, element, "an attribute of more than %d characters, NCCL's limit", MAX_VALUE);
  }
  return COPSE_OK;
}

/* ---- attributes ------------------------------------------------------------------------------ */

static copse_status get_text(struct reader *r, const xmlNode *element, const char *name,
                             const char **out) {
  *out = copse_xml_attribute(element, name);
  if (*out) return COPSE_OK;
  return refuse(r, element, "a <%.20s> without %s, which NCCL needs", copse_xml_name(element),
                name);
}

/* Gets a number of 64 bits without a sign in this base; 0: as in C. */
static copse_status get_number(struct reader *r, const xmlNode *element, const char *name, int base,
                               uint64_t *out) {
  const char *text;
  char *end;
  COPSE_DO(get_text(r, element, name, &text));
  errno = 0;
  *out = strtoull(text, &end, base);
  if (strchr("+- \t", *text) || end == text || *end || errno)
    return refuse(r, element, "%s=\"%.40s\" is no %s number", name, text,
                  base == 16 ? "hexadecimal" : "whole");
  return COPSE_OK;
}

static copse_status get_small(struct reader *r, const xmlNode *element, const char *name,
                              int *out) {
  uint64_t value;
  COPSE_DO(get_number(r, element, name, 0, &value));
  if (value > INT32_MAX) return refuse(r, element, "%s=%" PRIu64 " is out of range", name, value);
  *out = (int)value;
  return COPSE_OK;
}

static copse_status get_decimal(struct reader *r, const xmlNode *element, const char *name,
                                struct copse_q *out) {
  const char *text;
  struct copse_err local = COPSE_ERR_INIT;
  COPSE_DO(get_text(r, element, name, &text));
  copse_status status = copse_q_parse_decimal(text, out, &local);
  if (status == COPSE_OVERFLOW)
    return copse_fail_at(r->err, status, r->xml->file, copse_xml_line(element), "%s=\"%.40s\": %s",
                         name, text, local.text);
  if (status != COPSE_OK || out->num < 0)
    return refuse(r, element, "%s=\"%.40s\" is no number from 0 on", name, text);
  return COPSE_OK;
}

static copse_status get_path(struct reader *r, const xmlNode *element, const char *name,
                             enum copse_nccl_path *out) {
  const char *text = copse_xml_attribute(element, name);
  if (!text) return refuse(r, element, "a <graph> without %s, on which NCCL crashes", name);
  if (copse_nccl_path_from_name(text, out)) return COPSE_OK;
  *out = COPSE_NCCL_PATH_LOC;
  remark(r, element, "%s=\"%.40s\" is a word that NCCL can't read; it takes it for LOC", name,
         text);
  return COPSE_OK;
}

/* Gets the name of a GPU or NIC. NCCL reads base 16 from 2.21 on, base 0 before. */
static copse_status get_dev(struct reader *r, const xmlNode *element, uint64_t *out) {
  const char *text = copse_xml_attribute(element, "dev");
  COPSE_DO(get_number(r, element, "dev", 16, out));
  if (*out > 9 && strncasecmp(text, "0x", 2) != 0)
    remark(r, element,
           "dev=\"%.20s\" is hexadecimal to NCCL from 2.21 on, %" PRIu64 "; write it with 0x", text,
           *out);
  return COPSE_OK;
}

/* ---- channels -------------------------------------------------------------------------------- */

static copse_status read_gpu(struct reader *r, const xmlNode *element,
                             struct copse_nccl_channel *channel, bool *has_rank) {
  int at = channel->n_gpus++;
  channel->ranks[at] = -1;
  if (copse_xml_attribute(element, "rank")) {
    *has_rank = true;
    COPSE_DO(get_small(r, element, "rank", &channel->ranks[at]));
  }
  return get_dev(r, element, &channel->devs[at]);
}

static copse_status read_channel(struct reader *r, const xmlNode *element,
                                 struct copse_nccl_channel *channel) {
  size_t n = 0;
  bool has_rank = false;
  for (const xmlNode *e = copse_xml_first(element); e; e = copse_xml_next(e)) n++;
  if (n > COPSE_NCCL_MAX_CHILDREN)
    return refuse(r, element, "a channel of more than %d elements, NCCL's limit",
                  COPSE_NCCL_MAX_CHILDREN);
  if (n > MANY_CHILDREN)
    remark(r, element, "a channel of %zu elements; NCCL before 2.29.7 refuses more than %d", n,
           MANY_CHILDREN);
  COPSE_DO(COPSE_ARRAY(&r->out->arena, n, channel->devs, r->err));
  COPSE_DO(COPSE_ARRAY(&r->out->arena, n, channel->ranks, r->err));
  for (const xmlNode *e = copse_xml_first(element); e; e = copse_xml_next(e)) {
    COPSE_DO(check_element(r, e));
    if (copse_xml_is(e, "gpu")) {
      COPSE_DO(read_gpu(r, e, channel, &has_rank));
    } else if (copse_xml_is(e, "net")) {
      uint64_t net;
      COPSE_DO(get_dev(r, e, &net));
      if (channel->n_nets < 2) channel->nets[channel->n_nets++] = net;
    } else {
      remark(r, e, "<%.40s> in a channel is nothing to NCCL", copse_xml_name(e));
    }
  }
  if (channel->n_gpus == 0) return refuse(r, element, "a channel without a <gpu>");
  if (channel->n_nets == 1)
    remark(r, element, "one <net>; on several hosts NCCL sends over NIC 0 then");
  if (!has_rank) channel->ranks = NULL;
  return COPSE_OK;
}

COPSE_ORDER(by_dev, uint64_t, COPSE_COMPARE(*a, *b))

static copse_status sorted_devs(struct reader *r, const struct copse_nccl_channel *channel,
                                uint64_t **out) {
  size_t n = (size_t)channel->n_gpus;
  COPSE_DO(COPSE_ARRAY(&r->out->arena, n, *out, r->err));
  memcpy(*out, channel->devs, n * sizeof **out);
  COPSE_SORT(*out, n, by_dev);
  return COPSE_OK;
}

/* Checks that rings and chains hold every GPU once. NCCL sees to it in rings only, when they are
 * joined. */
static copse_status check_orders(struct reader *r, const xmlNode *element,
                                 const struct copse_nccl_graph_search *graph) {
  uint64_t *first = NULL;
  bool whole = graph->id == COPSE_NCCL_RING || graph->id == COPSE_NCCL_TREE ||
               graph->id == COPSE_NCCL_COLLNET_CHAIN;
  for (int c = 0; whole && c < graph->n_channels; c++) {
    const struct copse_nccl_channel *channel = &graph->channels[c];
    int n = channel->n_gpus;
    uint64_t *devs;
    COPSE_DO(sorted_devs(r, channel, &devs));
    if (c == 0) first = devs;
    bool same =
        n == graph->channels[0].n_gpus && memcmp(devs, first, (size_t)n * sizeof *devs) == 0;
    if (!same)
      remark(r, element, "channel %d has other GPUs than channel 0; NCCL %s", c,
             graph->id == COPSE_NCCL_RING ? "fails when it joins the ring"
                                          : "joins such a tree in silence, and it hangs");
    for (int i = 1; i < n; i++)
      if (devs[i] == devs[i - 1]) {
        remark(r, element, "channel %d names GPU 0x%" PRIx64 " twice", c, devs[i]);
        break;
      }
  }
  return COPSE_OK;
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static copse_status read_numbers(struct reader *r, const xmlNode *element,
                                 struct copse_nccl_graph_search *graph) {
  int same = 0;
  COPSE_DO(get_small(r, element, "pattern", &graph->pattern));
  COPSE_DO(get_small(r, element, "crossnic", &graph->crossnic));
  COPSE_DO(get_small(r, element, "nchannels", &graph->n_channels));
  COPSE_DO(get_decimal(r, element, "speedintra", &graph->speed_intra));
  COPSE_DO(get_decimal(r, element, "speedinter", &graph->speed_inter));
  if (copse_xml_attribute(element, "latencyinter"))
    COPSE_DO(get_decimal(r, element, "latencyinter", &graph->latency_inter));
  COPSE_DO(get_path(r, element, "typeintra", &graph->type_intra));
  COPSE_DO(get_path(r, element, "typeinter", &graph->type_inter));
  COPSE_DO(get_small(r, element, "samechannels", &same));
  graph->same_channels = same != 0;
  if (graph->pattern < COPSE_NCCL_PATTERN_BALANCED_TREE ||
      graph->pattern > COPSE_NCCL_PATTERN_COLLNET_DIRECT)
    remark(r, element, "pattern %d is none that NCCL has (1 to 6); it takes it for 1",
           graph->pattern);
  return COPSE_OK;
}

static copse_status read_channels(struct reader *r, const xmlNode *element,
                                  struct copse_nccl_graph_search *graph) {
  int found = 0, at = 0, n = graph->n_channels;
  for (const xmlNode *e = copse_xml_first(element); e; e = copse_xml_next(e))
    found += copse_xml_is(e, "channel");
  if (found > COPSE_NCCL_MAX_CHILDREN)
    return refuse(r, element, "%d channels; NCCL's reader takes %d", found,
                  COPSE_NCCL_MAX_CHILDREN);
  if (n > found)
    return refuse(r, element,
                  "nchannels is %d and there are %d <channel>; the rest is GPU 0 alone "
                  "to NCCL",
                  n, found);
  if (n < found) remark(r, element, "%d <channel>, of which nchannels lets count %d", found, n);
  if (n > COPSE_NCCL_MAX_CHANNELS)
    remark(r, element, "%d channels; more than %d overrun NCCL's memory", n,
           COPSE_NCCL_MAX_CHANNELS);
  COPSE_DO(COPSE_ARRAY(&r->out->arena, (size_t)n, graph->channels, r->err));
  for (const xmlNode *e = copse_xml_first(element); e; e = copse_xml_next(e)) {
    COPSE_DO(check_element(r, e));
    if (!copse_xml_is(e, "channel"))
      remark(r, e, "<%.40s> in a graph is nothing to NCCL", copse_xml_name(e));
    else if (at < n)
      COPSE_DO(read_channel(r, e, &graph->channels[at++]));
  }
  return check_orders(r, element, graph);
}

static copse_status read_graph(struct reader *r, const xmlNode *element) {
  struct copse_nccl_graph_search graph = {.latency_inter = COPSE_Q_ZERO};
  COPSE_DO(check_element(r, element));
  COPSE_DO(get_small(r, element, "id", &graph.id));
  COPSE_DO(read_numbers(r, element, &graph));
  COPSE_DO(read_channels(r, element, &graph));
  if (graph.id >= COPSE_NCCL_GRAPHS) {
    remark(r, element, "graph %d is none that NCCL asks for (0 to 4)", graph.id);
    return COPSE_OK;
  }
  if (r->out->present[graph.id])
    remark(r, element, "a second graph %d; the last one counts", graph.id);
  r->out->present[graph.id] = true;
  r->out->graph[graph.id] = graph;
  return COPSE_OK;
}

static copse_status read_graphs(struct reader *r) {
  const xmlNode *root = copse_xml_root(r->xml);
  const char *version = copse_xml_attribute(root, "version");
  if (!copse_xml_is(root, "graphs"))
    return refuse(r, root, "the root element is <%.40s>; NCCL's graphs are in <graphs>",
                  copse_xml_name(root));
  if (!version || strtol(version, NULL, 0) != 1)
    return refuse(r, root, "version \"%.20s\" of <graphs>; NCCL takes 1", version ? version : "");
  for (const xmlNode *e = copse_xml_first(root); e; e = copse_xml_next(e)) {
    if (copse_xml_is(e, "graph"))
      COPSE_DO(read_graph(r, e));
    else
      remark(r, e, "<%.40s> in <graphs> is nothing to NCCL", copse_xml_name(e));
  }
  const struct copse_nccl_graph_search *ring = copse_nccl_graph(r->out, COPSE_NCCL_RING);
  const struct copse_nccl_graph_search *tree = copse_nccl_graph(r->out, COPSE_NCCL_TREE);
  if (ring && tree && ring->n_channels != tree->n_channels)
    remark(r, root, "the ring has %d channels and the tree %d; NCCL uses the fewer of both",
           ring->n_channels, tree->n_channels);
  return COPSE_OK;
}

copse_status copse_nccl_graphs_parse(const char *label, const char *data, size_t size,
                                     const struct copse_notes *notes, struct copse_nccl_graphs *out,
                                     struct copse_err *err) {
  COPSE_AT_END(copse_xml_free) struct copse_xml xml = {0};
  struct reader r = {.xml = &xml, .notes = notes, .out = out, .err = err};
  *out = (struct copse_nccl_graphs){0};
  COPSE_DO(check_bytes(label, data, size, err));
  COPSE_DO(copse_xml_parse(label, data, size, &xml, err));
  copse_status status = read_graphs(&r);
  if (r.n_remarks > MAX_REMARKS)
    copse_note(notes, "%s: and %d more remarks like these", label, r.n_remarks - MAX_REMARKS);
  return status;
}

copse_status copse_nccl_graphs_load(const char *path, const struct copse_notes *notes,
                                    struct copse_nccl_graphs *out, struct copse_err *err) {
  COPSE_AT_END(copse_free_at) char *data = NULL;
  size_t size = 0;
  *out = (struct copse_nccl_graphs){0};
  COPSE_DO(copse_file_read(path, &data, &size, err));
  return copse_nccl_graphs_parse(copse_file_label(path), data, size, notes, out, err);
}

bool copse_nccl_is_graphs(const char *data, size_t size) {
  const char *end = data + size, *p = data;
  while (p < end) {
    while (p < end && strchr(" \t\r\n", *p) && *p) p++;
    if (end - p < 7) return false;
    const char *close = memcmp(p, "<!--", 4) == 0 ? memmem(p, (size_t)(end - p), "-->", 3)
                        : memcmp(p, "<?", 2) == 0 ? memmem(p, (size_t)(end - p), "?>", 2)
                                                  : NULL;
    if (!close) return memcmp(p, "<graphs", 7) == 0;
    p = close + (close[0] == '-' ? 3 : 2);
  }
  return false;
}

/* ==== writing ============================================================================= */

/*
 * Writes graph XML that NCCL reads as it is meant. NCCL's reader (NVIDIA/nccl src/graph/xml.cc,
 * ncclTopoGetGraphFromXml in search.cc, 2.18 to 2.31) is no XML parser and checks little: a tab is
 * an error, a type that it doesn't know is the best one, a tree without a GPU hangs, more channels
 * than it has room for overwrite its memory. So all of that is checked here.
 */

struct limits {
  int channels; /* joining doubles them: half of MAXCHANNELS */
  int children; /* of an element */
  int elements; /* of the file */
};

/* Returns a version's limits: since 2.21 larger tables, since 2.25 64 channels, since 2.29.7 the
 * tables of NVL576. */
static struct limits limits_of(long version) {
  return (struct limits){.channels = version < 22500 ? 16 : COPSE_NCCL_MAX_CHANNELS,
                         .children = version < 22100   ? 32
                                     : version < 22907 ? 128
                                                       : COPSE_NCCL_MAX_CHILDREN,
                         .elements = version < 22100   ? 1024
                                     : version < 22907 ? 4096
                                                       : 65536};
}

struct writer {
  const struct copse_nccl_graphs *graphs;
  int hosts;
  long version;
  struct limits limits;
  uint64_t *all, *some; /* [n_gpus] the GPUs of the ring's first channel, of another, sorted */
  int n_gpus;
  struct copse_err *err;
};

#define REFUSE(w, ...) copse_fail((w)->err, COPSE_INVALID, "NCCL's graph: " __VA_ARGS__)

/* Whether a graph's lists have all GPUs in the order of the data; of NVLS a channel has its head
 * only. */
static bool lists_gpus(int id) { return id != COPSE_NCCL_NVLS; }

/* ---- checks ---------------------------------------------------------------------------------- */

COPSE_ORDER(by_value, uint64_t, COPSE_COMPARE(*a, *b))

static void sort_devs(const struct copse_nccl_channel *channel, uint64_t *out) {
  memcpy(out, channel->devs, (size_t)channel->n_gpus * sizeof *out);
  COPSE_SORT(out, channel->n_gpus, by_value);
}

static copse_status check_gpus(const struct writer *w, int id, int c,
                               const struct copse_nccl_channel *channel) {
  if (channel->n_gpus != w->n_gpus)
    return REFUSE(w, "channel %d of graph %d has %d GPUs, the ring %d: each needs every GPU once",
                  c, id, channel->n_gpus, w->n_gpus);
  sort_devs(channel, w->some);
  for (int i = 0; i < w->n_gpus; i++)
    if (w->some[i] != w->all[i])
      return REFUSE(w, "channel %d of graph %d lacks GPU %#" PRIx64 ": each needs every GPU once",
                    c, id, w->all[i]);
  return COPSE_OK;
}

static copse_status check_channel(const struct writer *w, int id, int c,
                                  const struct copse_nccl_channel *channel) {
  int nets = w->hosts > 1 ? 2 : 0;
  if (lists_gpus(id)) COPSE_DO(check_gpus(w, id, c, channel));
  if (channel->n_gpus < 1) return REFUSE(w, "channel %d of graph %d has no GPU", c, id);
  if (nets > channel->n_nets)
    return REFUSE(w, "channel %d of graph %d has %d NICs; %d hosts need one for each end", c, id,
                  channel->n_nets, w->hosts);
  if (channel->n_gpus + nets > w->limits.children)
    return REFUSE(w, "%d GPUs and NICs in a channel, NCCL %ld.%ld reads %d", channel->n_gpus + nets,
                  w->version / 10000, w->version / 100 % 100, w->limits.children);
  for (int i = 0; i < channel->n_gpus && w->version < 22100; i++)
    if (copse_nccl_dev_system(channel->devs[i]) != 0)
      return REFUSE(w, "NVLink domains of several hosts need NCCL 2.21");
  return COPSE_OK;
}

/* Whether two channels are an exchanged pair: odd hosts run channel c of it by the list of channel
 * c ^ 1 and with c's NICs. */
static bool exchanges(const struct copse_nccl_channel *a, const struct copse_nccl_channel *b) {
  return a->nets[0] == b->nets[1] && a->nets[1] == b->nets[0] && a->n_gpus == b->n_gpus &&
         a->devs[0] == b->devs[b->n_gpus - 1] && a->devs[a->n_gpus - 1] == b->devs[0];
}

/* Checks that a ring leaves a host by the NIC that it enters the next one by, or in exchanged
 * pairs. */
static copse_status check_crossnic(const struct writer *w,
                                   const struct copse_nccl_graph_search *g) {
  bool ring = g->id == COPSE_NCCL_RING;
  for (int c = 0; ring && g->crossnic == 0 && c < g->n_channels; c++)
    if (g->channels[c].nets[0] != g->channels[c].nets[1])
      return REFUSE(w, "channel %d of graph %d has two NICs and crossnic 0", c, g->id);
  if (g->crossnic == 0) return COPSE_OK;
  if (g->crossnic != 2)
    return REFUSE(w,
                  "graph %d has crossnic %d, which NCCL runs only where NCCL_CROSS_NIC allows it",
                  g->id, g->crossnic);
  if (w->version < 22000)
    return REFUSE(w, "graph %d exchanges NICs between hosts, which needs NCCL 2.20", g->id);
  for (int c = 0; c < g->n_channels; c += 2)
    if (c + 1 == g->n_channels || !exchanges(&g->channels[c], &g->channels[c + 1]))
      return REFUSE(w, "graph %d has crossnic 2 and channel %d is not the one before mirrored",
                    g->id, c + 1);
  return COPSE_OK;
}

static bool pattern_fits(int id, int pattern) {
  switch (id) {
    case COPSE_NCCL_RING: return pattern == COPSE_NCCL_PATTERN_RING;
    case COPSE_NCCL_NVLS: return pattern == COPSE_NCCL_PATTERN_NVLS;
    case COPSE_NCCL_COLLNET_DIRECT: return pattern == COPSE_NCCL_PATTERN_COLLNET_DIRECT;
    default:
      return pattern >= COPSE_NCCL_PATTERN_BALANCED_TREE && pattern <= COPSE_NCCL_PATTERN_TREE;
  }
}

static copse_status check_graph(const struct writer *w, const struct copse_nccl_graph_search *g) {
  if (g->n_channels > w->limits.channels)
    return REFUSE(w, "%d channels in graph %d; NCCL %ld.%ld has room for %d", g->n_channels, g->id,
                  w->version / 10000, w->version / 100 % 100, w->limits.channels);
  if (!pattern_fits(g->id, g->pattern))
    return REFUSE(w, "graph %d has pattern %d", g->id, g->pattern);
  if (g->speed_intra.num <= 0 || g->speed_inter.num <= 0 || g->latency_inter.num < 0)
    return REFUSE(w, "graph %d has a speed that isn't above 0, or a latency below", g->id);
  for (int c = 0; c < g->n_channels; c++) COPSE_DO(check_channel(w, g->id, c, &g->channels[c]));
  return w->hosts > 1 ? check_crossnic(w, g) : COPSE_OK;
}

static copse_status check_elements(const struct writer *w) {
  int n = 1;
  for (int id = 0; id < COPSE_NCCL_GRAPHS; id++) {
    const struct copse_nccl_graph_search *g = copse_nccl_graph(w->graphs, id);
    for (int c = 0; g && c < g->n_channels; c++) n += 3 + g->channels[c].n_gpus;
    n++;
  }
  if (n <= w->limits.elements) return COPSE_OK;
  return REFUSE(w, "%d elements; NCCL %ld.%ld reads %d", n, w->version / 10000,
                w->version / 100 % 100, w->limits.elements);
}

static copse_status check_graphs(struct writer *w, struct copse_arena *arena) {
  const struct copse_nccl_graph_search *ring = copse_nccl_graph(w->graphs, COPSE_NCCL_RING);
  const struct copse_nccl_graph_search *tree = copse_nccl_graph(w->graphs, COPSE_NCCL_TREE);
  if (!ring || !tree) return REFUSE(w, "no %s; NCCL needs rings and trees", ring ? "tree" : "ring");
  if (ring->n_channels != tree->n_channels)
    return REFUSE(w, "%d rings and %d trees; NCCL takes the smaller number of both",
                  ring->n_channels, tree->n_channels);
  w->n_gpus = ring->channels[0].n_gpus;
  COPSE_DO(COPSE_ARRAYS(arena, (size_t)w->n_gpus, uint64_t, w->err, &w->all, &w->some));
  sort_devs(&ring->channels[0], w->all);
  for (int i = 1; i < w->n_gpus; i++)
    if (w->all[i] == w->all[i - 1])
      return REFUSE(w, "GPU %#" PRIx64 " twice in a ring: each needs every GPU once", w->all[i]);
  for (int id = 0; id < COPSE_NCCL_GRAPHS; id++)
    if (copse_nccl_graph(w->graphs, id)) COPSE_DO(check_graph(w, &w->graphs->graph[id]));
  return check_elements(w);
}

/* ---- the text -------------------------------------------------------------------------------- */

/*
 * Returns the word of a type that this version reads. A type without one is written as the next
 * worse that has one, and is the same in all that NCCL compares types with (NVB, PXB, and PXN from
 * sm_90 on).
 */
static const char *word_of(enum copse_nccl_path type, long version) {
  switch (type) {
    case COPSE_NCCL_PATH_C2C: return copse_nccl_path_name(COPSE_NCCL_PATH_PIX);
    case COPSE_NCCL_PATH_P2C:
      return copse_nccl_path_name(version < 22700 ? COPSE_NCCL_PATH_PXN : type);
    case COPSE_NCCL_PATH_NET:
    case COPSE_NCCL_PATH_DIS: return copse_nccl_path_name(COPSE_NCCL_PATH_SYS);
    default: return copse_nccl_path_name(type);
  }
}

static void add_number(struct copse_text *out, const char *name, struct copse_q value) {
  copse_text_add(out, " %s=\"%.9g\"", name, copse_q_to_double(value));
}

/* Adds a device in hexadecimal: up to 2.20 "10" is ten, later sixteen; "0x10" is the same to
 * all. */
static void add_dev(struct copse_text *out, const char *element, uint64_t dev) {
  copse_text_add(out, "      <%s dev=\"%#" PRIx64 "\"/>\n", element, dev);
}

static void add_channel(struct copse_text *out, const struct copse_nccl_channel *channel,
                        int n_gpus, bool nets) {
  copse_text_add(out, "    <channel>\n");
  if (nets) add_dev(out, "net", channel->nets[0]);
  for (int i = 0; i < n_gpus; i++) add_dev(out, "gpu", channel->devs[i]);
  if (nets) add_dev(out, "net", channel->nets[1]);
  copse_text_add(out, "    </channel>\n");
}

static void add_graph(const struct writer *w, struct copse_text *out,
                      const struct copse_nccl_graph_search *g) {
  bool nets = w->hosts > 1;
  copse_text_add(out, "  <graph id=\"%d\" pattern=\"%d\" crossnic=\"%d\" nchannels=\"%d\"", g->id,
                 g->pattern, nets ? g->crossnic : 0, g->n_channels);
  add_number(out, "speedintra", g->speed_intra);
  add_number(out, "speedinter", g->speed_inter);
  add_number(out, "latencyinter", g->latency_inter);
  copse_text_add(out, " typeintra=\"%s\" typeinter=\"%s\" samechannels=\"%d\">\n",
                 word_of(g->type_intra, w->version), word_of(g->type_inter, w->version),
                 g->same_channels ? 1 : 0);
  for (int c = 0; c < g->n_channels; c++)
    add_channel(out, &g->channels[c], lists_gpus(g->id) ? g->channels[c].n_gpus : 1, nets);
  copse_text_add(out, "  </graph>\n");
}

copse_status copse_nccl_graphs_write(const struct copse_nccl_graphs *graphs, int hosts,
                                     long version, char **text, size_t *size,
                                     struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena arena = {0};
  struct copse_text out = {0};
  struct writer w = {.graphs = graphs,
                     .hosts = hosts,
                     .version = version,
                     .limits = limits_of(version),
                     .err = err};
  *text = NULL;
  COPSE_DO(check_graphs(&w, &arena));
  copse_text_add(&out, "<graphs version=\"1\"");
  if (graphs->set) copse_text_add(&out, " set=\"%s\"", graphs->set);
  copse_text_add(&out, ">\n");
  for (int id = 0; id < COPSE_NCCL_GRAPHS; id++)
    if (copse_nccl_graph(graphs, id)) add_graph(&w, &out, &graphs->graph[id]);
  copse_text_add(&out, "</graphs>\n");
  return copse_text_take(&out, text, size, err);
}
