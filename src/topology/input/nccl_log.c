/*
 * The topology that NCCL prints with NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=GRAPH: a tree below each
 * CPU (ncclTopoPrintRec of NVIDIA/nccl src/graph/topo.cc, 2.18 to 2.31), of one rank's host.
 *
 *   === System : maxBw 370.8 totalBw 370.8 ===
 *   CPU/0-0 (1/1/3)                                       a NUMA node
 *   + PCI[48.0] - PCI/0-10000 (1000c0301000a064)          a child stands under its parent's word
 *                 + PCI[48.0] - GPU/0-12000 (0)           up to 2.29; then DEV with + LOC - GPU
 *                               + NVL[370.8] - NVS/0-0    links by other than PCI: names alone
 *                 + PCI[48.0] - NIC/0-14000
 *                               + NET[50.0] - NET/0-0 (0/10000/1/50.000000)
 *   + SYS[22.0] - CPU/0-1
 *   ==========================================
 *
 * Lines of other ranks may stand between: those of one thread ("host:pid:tid [dev]") belong
 * together. Bandwidths are NCCL's own, to 0.1 GB/s.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "topology/input/nccl_graph.h"
#include "topology/input/readers.h"

#define INFO "NCCL INFO "
#define BEGIN "=== System "
#define MOST_LINES (1 << 14) /* what GPUs are looked for in all of them */
#define MOST_SYSTEMS 256

enum word { LOC, NVL, C2C, PCI, SYS, NET, ROOT, N_WORDS = ROOT };

struct entry {
  enum word link; /* to it from its parent */
  struct copse_q bandwidth;
  enum copse_nccl_node_kind kind;
  uint64_t system, id;
  int parent, node; /* an entry, or -1; of the graph */
  int column;       /* where its children stand */
  long line;
};

struct tree {
  const struct copse_input *in;
  struct copse_nccl_graph *graph;
  struct entry *entries;
  size_t capacity;
  int n;
  bool several;                 /* systems */
  struct copse_index_map nodes; /* by kind, system, id */
  struct copse_err *err;
};

#define refuse(t, line, ...) \
  copse_fail_at((t)->err, COPSE_BAD_INPUT, (t)->in->label, line, __VA_ARGS__)

/* ---- lines ----------------------------------------------------------------------------------- */

/* A line of a log: who says it, the two words before "NCCL INFO", and what. */
struct line {
  struct copse_scan who, text;
};

static bool split(const struct copse_scan *whole, struct line *out) {
  out->text = *whole;
  if (!copse_scan_to(&out->text, INFO)) return false;
  const char *end = out->text.at - strlen(INFO), *who = end;
  for (int words = 0; words < 2; words++) {
    while (who > whole->at && who[-1] == ' ') who--;
    while (who > whole->at && who[-1] != ' ') who--;
  }
  out->who = (struct copse_scan){who, end};
  return true;
}

static bool same_thread(const struct line *a, const struct line *b) {
  size_t n = (size_t)(a->who.end - a->who.at);
  return (size_t)(b->who.end - b->who.at) == n && memcmp(a->who.at, b->who.at, n) == 0;
}

/* "370.8", up to one of `ends`: GB/s above 0. */
static bool read_rate(struct copse_scan *s, const char *ends, struct copse_q *out) {
  struct copse_scan piece = *s;
  while (s->at < s->end && !strchr(ends, *s->at)) s->at++;
  piece.end = s->at;
  return copse_scan_decimal(&piece, out) && out->num > 0;
}

/* "GPU/0-12000", of one system "GPU/12000". */
static bool read_name(struct copse_scan *s, struct entry *e) {
  static const struct {
    const char *name;
    enum copse_nccl_node_kind kind;
  } kinds[] = {{"GPU/", COPSE_NCCL_GPU},      {"DEV/", COPSE_NCCL_BRIDGE},
               {"PCI/", COPSE_NCCL_BRIDGE},   {"CPU/", COPSE_NCCL_CPU},
               {"NVS/", COPSE_NCCL_NVSWITCH}, {"NIC/", COPSE_NCCL_NIC},
               {"NET/", COPSE_NCCL_NET_PORT}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (!copse_scan_literal(s, kinds[i].name)) continue;
    e->kind = kinds[i].kind;
    if (!copse_scan_hex(s, &e->id)) return false;
    if (!copse_scan_literal(s, "-")) return true;
    e->system = e->id;
    return e->system < MOST_SYSTEMS && copse_scan_hex(s, &e->id);
  }
  return false;
}

/* "+ NVL[370.8] - NVS/0-0 (..)" or "CPU/0-0 (..)"; false: another line. */
static bool read_entry(const struct copse_scan *text, struct entry *e, int *plus) {
  static const char *const words[N_WORDS] = {"LOC[", "NVL[", "C2C[", "PCI[", "SYS[", "NET["};
  struct copse_scan s = *text;
  while (copse_scan_literal(&s, " ")) continue;
  *plus = (int)(s.at - text->at);
  e->link = ROOT;
  if (copse_scan_literal(&s, "+ ")) {
    for (int w = 0; w < N_WORDS && e->link == ROOT; w++)
      if (copse_scan_literal(&s, words[w])) e->link = (enum word)w;
    if (e->link == ROOT || !read_rate(&s, "]", &e->bandwidth) || !copse_scan_literal(&s, "] - "))
      return false;
  } else if (*plus > 0) {
    return false;
  }
  e->column = (int)(s.at - text->at);
  if (!read_name(&s, e) || (e->link == ROOT && e->kind != COPSE_NCCL_CPU)) return false;
  const char *rate = memrchr(s.at, '/', (size_t)(s.end - s.at)); /* of a port, in full */
  if (e->kind == COPSE_NCCL_NET_PORT && rate) {
    struct copse_q full;
    s.at = rate + 1;
    if (read_rate(&s, ")", &full)) e->bandwidth = full;
  }
  return true;
}

/* The entry above that a line at this column is a child of, or -1. */
static int parent_of(const struct tree *t, int plus) {
  for (int i = t->n - 1; i >= 0; i--)
    if (t->entries[i].column == plus &&
        (t->entries[i].link == PCI || t->entries[i].link == ROOT || t->entries[i].link == NET))
      return i;
    else if (t->entries[i].column < plus)
      return -1;
  return -1;
}

/* The tree below a line, as its thread says it; *whole: it ends. */
static copse_status read_tree(struct tree *t, const struct line *first, struct copse_scan rest,
                              long number, bool *whole) {
  struct copse_scan next;
  struct line l;
  t->n = 0;
  while (number++, copse_scan_line(&rest, &next)) {
    struct entry e = {.parent = -1, .node = -1, .line = number};
    int plus;
    if (!split(&next, &l) || !same_thread(first, &l)) continue;
    *whole = t->n > 0 && copse_scan_begins(&l.text, "====");
    if (*whole || !read_entry(&l.text, &e, &plus) || t->n == MOST_LINES) return COPSE_OK;
    if (e.link != ROOT) e.parent = parent_of(t, plus);
    if (e.link != ROOT && e.parent < 0) return COPSE_OK;
    COPSE_DO(COPSE_GROW(t->entries, t->capacity, (size_t)t->n + 1, t->err));
    t->entries[t->n++] = e;
  }
  return COPSE_OK;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static uint64_t key_of(const struct entry *e) {
  return copse_mix(copse_mix(e->id) + e->system * 8 + (uint64_t)e->kind);
}

static int find_node(const struct tree *t, const struct entry *e) {
  size_t cursor = 0;
  return copse_index_map_next(&t->nodes, key_of(e), &cursor);
}

static copse_status name_node(struct tree *t, const struct entry *e, const char **id) {
  char prefix[16] = "", name[64];
  unsigned long long n = e->id;
  bool device =
      e->kind == COPSE_NCCL_GPU || e->kind == COPSE_NCCL_BRIDGE || e->kind == COPSE_NCCL_NIC;
  if (t->several && e->kind != COPSE_NCCL_NVSWITCH)
    snprintf(prefix, sizeof prefix, "h%d.", (int)e->system);
  if (device)
    snprintf(name, sizeof name, "@%04llx:%02llx:%02llx.%llx", n >> 20, n >> 12 & 255, n >> 4 & 255,
             n & 15);
  else if (e->kind == COPSE_NCCL_NVSWITCH)
    name[0] = '\0';
  else
    snprintf(name, sizeof name, "@%llu", n);
  *id = copse_arena_printf(&t->graph->arena, "%s%s%s", prefix, copse_nccl_type_name(e->kind), name);
  return *id ? COPSE_OK : copse_fail_nomem(t->err);
}

static copse_status make_node(struct tree *t, struct entry *e) {
  const char *id;
  e->node = find_node(t, e);
  if (e->node >= 0) return COPSE_OK;
  bool all = e->kind == COPSE_NCCL_NVSWITCH && t->several;
  COPSE_DO(name_node(t, e, &id));
  COPSE_DO(copse_nccl_add_node(t->graph, e->kind, all ? COPSE_NCCL_ALL_HOSTS : (int)e->system, id,
                               e->line, &e->node, t->err));
  if (e->kind == COPSE_NCCL_NET_PORT) {
    t->graph->nodes[e->node].has_dev = true;
    t->graph->nodes[e->node].dev = e->system << 56 | e->id;
  }
  return copse_index_map_add(&t->nodes, key_of(e), e->node, t->err);
}

static int by_bus(const void *a, const void *b) {
  const struct entry *x = *(const struct entry *const *)a, *y = *(const struct entry *const *)b;
  return COPSE_COMPARE(x->system, y->system) ?: COPSE_COMPARE(x->id, y->id);
}

/* GPUs first, in order of their bus ids, as NVML numbers them. */
static copse_status make_gpus(struct tree *t) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct entry **gpus;
  int n = 0, index = 0;
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)t->n, gpus, t->err));
  for (int i = 0; i < t->n; i++)
    if (t->entries[i].kind == COPSE_NCCL_GPU) gpus[n++] = &t->entries[i];
  COPSE_SORT(gpus, n, by_bus);
  for (int i = 0; i < n; i++) {
    int before = t->graph->n_nodes;
    if (i > 0 && gpus[i]->system != gpus[i - 1]->system) index = 0;
    COPSE_DO(make_node(t, gpus[i]));
    if (t->graph->n_nodes == before) continue;
    t->graph->nodes[gpus[i]->node].has_dev = true;
    t->graph->nodes[gpus[i]->node].dev = gpus[i]->system << 56 | (uint64_t)index++;
  }
  return COPSE_OK;
}

/* From 2.30 on a GPU stands under its device, whose links are its own, and which others name. */
static void merge_devices(struct tree *t) {
  for (int i = 0; i < t->n; i++) {
    const struct entry *gpu = &t->entries[i];
    if (gpu->kind != COPSE_NCCL_GPU || gpu->link != LOC) continue;
    const struct entry device = t->entries[gpu->parent];
    for (int k = 0; k < t->n; k++) {
      struct entry *e = &t->entries[k];
      if (e->kind != device.kind || e->system != device.system || e->id != device.id) continue;
      e->kind = COPSE_NCCL_GPU;
      e->id = gpu->id;
    }
  }
}

/* ---- links ----------------------------------------------------------------------------------- */

/* PCIe, ports and NVSwitches stand once, others at each of their ends. */
static copse_status make_link(struct tree *t, const struct entry *e) {
  static const enum copse_nccl_link_kind kinds[N_WORDS] = {[NVL] = COPSE_NCCL_NVLINK,
                                                           [C2C] = COPSE_NCCL_PCI,
                                                           [PCI] = COPSE_NCCL_PCI,
                                                           [SYS] = COPSE_NCCL_SYS,
                                                           [NET] = COPSE_NCCL_NET};
  int from = e->parent >= 0 ? t->entries[e->parent].node : -1;
  if (e->link == ROOT || from == e->node) return COPSE_OK;
  bool once = e->link == PCI || e->link == NET || e->kind == COPSE_NCCL_NVSWITCH;
  if (once)
    return copse_nccl_add_duplex(t->graph, kinds[e->link], from, e->node, e->bandwidth, e->line,
                                 t->err);
  COPSE_DO(
      copse_nccl_add_link(t->graph, kinds[e->link], from, e->node, e->bandwidth, e->line, t->err));
  if (e->link == SYS) copse_nccl_guess(t->graph, 1, COPSE_GUESS_SOCKETS);
  return COPSE_OK;
}

static copse_status make_graph(struct tree *t) {
  int systems = 0;
  for (int i = 0; i < t->n; i++)
    if ((int)t->entries[i].system >= systems) systems = (int)t->entries[i].system + 1;
  t->several = systems > 1;
  t->graph->n_hosts = systems;
  merge_devices(t);
  COPSE_DO(make_gpus(t));
  if (t->graph->n_nodes == 0)
    return refuse(t, t->entries[0].line, "its tree has no GPU; a topology needs at least one");
  for (int i = 0; i < t->n; i++) COPSE_DO(make_node(t, &t->entries[i]));
  for (int i = 0; i < t->n; i++) COPSE_DO(make_link(t, &t->entries[i]));
  return COPSE_OK;
}

/* ---- the log --------------------------------------------------------------------------------- */

/* The first whole tree. */
static copse_status read_log(struct tree *t) {
  struct copse_scan text = {t->in->data, t->in->data + t->in->size}, next;
  struct line l;
  for (long number = 1; copse_scan_line(&text, &next); number++) {
    bool whole = false;
    if (!split(&next, &l) || !copse_scan_begins(&l.text, BEGIN)) continue;
    COPSE_DO(read_tree(t, &l, text, number, &whole));
    if (!whole) continue;
    copse_note(t->graph->notes,
               "%s: the topology is the tree on line %ld, of one rank's host with the GPUs of its "
               "communicator",
               t->in->label, number);
    return make_graph(t);
  }
  return refuse(t, 1,
                "a log without a whole tree of NCCL's topology (\"=== System\" to \"===\"): "
                "NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=GRAPH print it");
}

bool copse_is_nccl_tree(const struct copse_input *in) {
  static const char begin[] = INFO BEGIN;
  return memmem(in->data, in->size, begin, strlen(begin)) != NULL;
}

copse_status copse_read_nccl_tree(const struct copse_input *in, struct copse_topology **out,
                                  struct copse_err *err) {
  COPSE_AT_END(copse_nccl_graph_free)
  struct copse_nccl_graph graph = {.file = in->label, .notes = in->options->notes};
  struct tree t = {.in = in, .graph = &graph, .err = err};
  *out = NULL;
  copse_status status = read_log(&t);
  free(t.entries);
  copse_index_map_free(&t.nodes);
  COPSE_DO(status);
  copse_note_unused_options(in, "NCCL's log", COPSE_USES_LINKS);
  return copse_nccl_build(&graph, in->options->links, out, err);
}
