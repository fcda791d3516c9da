/*
 * Writes graph XML that NCCL reads as it is meant. NCCL's reader (NVIDIA/nccl src/graph/xml.cc,
 * ncclTopoGetGraphFromXml in search.cc, 2.18 to 2.31) is no XML parser and checks little: a tab is
 * an error, a type that it doesn't know is the best one, a tree without a GPU hangs, more channels
 * than it has room for overwrite its memory. So all of that is checked here.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "nccl/graph.h"

struct limits {
  int channels; /* joining doubles them: half of MAXCHANNELS */
  int children; /* of an element */
  int elements; /* of the file */
};

/* Since 2.21 larger tables, since 2.25 64 channels, since 2.29.7 the tables of NVL576. */
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

/* Lists of all GPUs in the order of the data; of NVLS a channel has its head only. */
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

/* Odd hosts run channel c of an exchanged pair by the list of channel c ^ 1 and with c's NICs. */
static bool exchanges(const struct copse_nccl_channel *a, const struct copse_nccl_channel *b) {
  return a->nets[0] == b->nets[1] && a->nets[1] == b->nets[0] && a->n_gpus == b->n_gpus &&
         a->devs[0] == b->devs[b->n_gpus - 1] && a->devs[a->n_gpus - 1] == b->devs[0];
}

/* A ring leaves a host by the NIC that it enters the next one by, or in exchanged pairs. */
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
 * The word of a type that this version reads. A type without one is written as the next worse that
 * has one, and is the same in all that NCCL compares types with (NVB, PXB, and PXN from sm_90 on).
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

/* Hexadecimal: up to 2.20 "10" is ten, later sixteen; "0x10" is the same to all. */
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
