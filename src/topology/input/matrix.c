/*
 * From a connection matrix to the graph of a host. Nearness makes classes of devices, those make
 * PCIe switches and CPUs; links make NVLinks, or an NVSwitch where a GPU has fewer than are shown.
 *
 *        GPU0 GPU1 NIC0            cpu0
 *   GPU0  X   NV12 PIX               |
 *   GPU1 NV12  X   SYS     =>      pcie0      cpu1       GPU0 == GPU1 by NVLink
 *   NIC0 PIX  SYS   X              /   \       |
 *                               GPU0  NIC0   GPU1
 *
 * PIX and PXB make PCIe switches, PHB and NODE (and equal NUMA affinity, where NVLink hides the
 * rest) a CPU, SYS links between CPUs. NICs have no network speed there; it comes from a cluster's
 * fabric.
 */
#include "topology/input/matrix.h"

#include <stdio.h>
#include <string.h>

#include "base/graph.h"
#include "topology/input/readers.h"

struct build {
  const struct copse_matrix *m;
  const struct copse_matrix_rates *rates;
  struct copse_err *err;
  struct copse_nccl_graph graph;
  int *pix, *pxb, *cpu, *hive; /* [n] the first device of each device's class */
  int *node;                   /* [n] of a device */
  int *above;                  /* [n] of a CPU's first device: the CPU's node */
};

static const struct copse_matrix_cell *cell(const struct copse_matrix *m, int i, int j) {
  return &m->cells[(size_t)i * (size_t)m->n + (size_t)j];
}

/* How many links a device has; *widest gets its cell with the most. */
static int count_row(const struct copse_matrix *m, int i, const struct copse_matrix_cell **widest) {
  int sum = 0;
  *widest = cell(m, i, 0);
  for (int j = 0; j < m->n; j++) {
    sum += cell(m, i, j)->links;
    if (cell(m, i, j)->links > (*widest)->links) *widest = cell(m, i, j);
  }
  return sum;
}

void copse_matrix_count_links(const struct copse_matrix *m, int *sum, int *pair) {
  const struct copse_matrix_cell *widest;
  *sum = *pair = 0;
  for (int i = 0; i < m->n; i++) {
    int row = count_row(m, i, &widest);
    if (widest->links > *pair) *pair = widest->links;
    if (row > *sum) *sum = row;
  }
}

/* ---- classes of devices -------------------------------------------------------------------- */

static bool same_affinity(const struct copse_matrix_device *a,
                          const struct copse_matrix_device *b) {
  return a->affinity && b->affinity && strcmp(a->affinity, b->affinity) == 0;
}

static void classify(struct build *b) {
  const struct copse_matrix *m = b->m;
  for (int i = 0; i < m->n; i++) b->pix[i] = b->pxb[i] = b->cpu[i] = b->hive[i] = i;
  for (int i = 0; i < m->n; i++)
    for (int j = 0; j < i; j++) {
      enum copse_near near = cell(m, i, j)->near;
      if (near == COPSE_NEAR_PIX) copse_sets_unite(b->pix, i, j);
      if (near == COPSE_NEAR_PIX || near == COPSE_NEAR_PXB) copse_sets_unite(b->pxb, i, j);
      if (near != COPSE_NEAR_UNKNOWN && near != COPSE_NEAR_SYS) copse_sets_unite(b->cpu, i, j);
      if (cell(m, i, j)->links > 0) copse_sets_unite(b->hive, i, j);
    }
}

/*
 * Equal affinity puts devices at one CPU where NVLink hides what lies between them; but not what
 * others show to be apart: virtual machines give all their GPUs the same affinity.
 */
static copse_status unite_by_affinity(struct build *b) {
  const struct copse_matrix *m = b->m;
  size_t n = (size_t)m->n;
  bool *apart; /* [n * n] by the classes' first devices */
  COPSE_DO(copse_arena_array(&b->graph.arena, n * n, sizeof *apart, &apart, b->err));
  for (int i = 0; i < m->n; i++)
    for (int j = 0; j < m->n; j++)
      if (cell(m, i, j)->near == COPSE_NEAR_SYS)
        apart[(size_t)copse_sets_find(b->cpu, i) * n + (size_t)copse_sets_find(b->cpu, j)] = true;
  for (int i = 0; i < m->n; i++)
    for (int j = 0; j < i; j++) {
      size_t p = (size_t)copse_sets_find(b->cpu, i), q = (size_t)copse_sets_find(b->cpu, j);
      bool hidden = cell(m, i, j)->near == COPSE_NEAR_UNKNOWN;
      if (!hidden || p == q || apart[p * n + q] || !same_affinity(&m->devices[i], &m->devices[j]))
        continue;
      copse_sets_unite(b->cpu, i, j);
      size_t stays = p < q ? p : q, goes = p < q ? q : p;
      for (size_t k = 0; k < n; k++) {
        apart[stays * n + k] |= apart[goes * n + k];
        apart[k * n + stays] |= apart[k * n + goes];
      }
    }
  return COPSE_OK;
}

static void name_classes(struct build *b) {
  int *const classes[] = {b->pix, b->pxb, b->cpu, b->hive};
  for (int c = 0; c < 4; c++)
    for (int i = 0; i < b->m->n; i++) classes[c][i] = copse_sets_find(classes[c], i);
}

/* Notes pairs said to be at different CPUs that third devices put at one. */
static void note_contradictions(struct build *b) {
  const struct copse_matrix *m = b->m;
  int pairs = 0, first = -1, second = -1;
  for (int i = 0; i < m->n; i++)
    for (int j = 0; j < i; j++)
      if (cell(m, i, j)->near == COPSE_NEAR_SYS && b->cpu[i] == b->cpu[j] && pairs++ == 0)
        first = j, second = i;
  if (pairs > 0)
    copse_nccl_note(&b->graph, m->devices[second].line,
                    "%s and %s (and %d pairs more) are said to be at different CPUs, and by other "
                    "devices at one; taken for one",
                    m->devices[first].id, m->devices[second].id, pairs - 1);
}

/* ---- nodes and links ----------------------------------------------------------------------- */

static copse_status add_node(struct build *b, enum copse_nccl_node_kind kind, const char *id,
                             long line, int *index) {
  struct copse_nccl_node node = {.kind = kind, .id = id, .rank = -1, .line = line};
  return copse_nccl_add_node(&b->graph, "", &node, index, b->err);
}

static copse_status add_link(struct build *b, enum copse_nccl_link_kind kind, int src, int dst,
                             struct copse_q bandwidth) {
  struct copse_nccl_link link = {kind, src, dst, bandwidth, 0, false};
  return copse_nccl_add_duplex(&b->graph, &link, b->err);
}

static copse_status add_devices(struct build *b) {
  for (int i = 0; i < b->m->n; i++) {
    const struct copse_matrix_device *device = &b->m->devices[i];
    COPSE_DO(add_node(b, device->gpu ? COPSE_NCCL_GPU : COPSE_NCCL_NIC, device->id, device->line,
                      &b->node[i]));
  }
  return COPSE_OK;
}

static copse_status add_cpus(struct build *b) {
  char id[24];
  int n = 0;
  for (int i = 0; i < b->m->n; i++) {
    if (b->cpu[i] != i) continue;
    snprintf(id, sizeof id, "cpu%d", n++);
    COPSE_DO(add_node(b, COPSE_NCCL_CPU, id, 0, &b->above[i]));
    for (int j = 0; j < i; j++)
      if (b->cpu[j] == j)
        COPSE_DO(add_link(b, COPSE_NCCL_SYS, b->above[j], b->above[i], b->rates->inter_cpu));
  }
  return COPSE_OK;
}

static int members(const int *class, int n, int first) {
  int count = 0;
  for (int i = 0; i < n; i++) count += class[i] == first;
  return count;
}

static copse_status add_bridge(struct build *b, int *n, int parent, int *index) {
  char id[24];
  snprintf(id, sizeof id, "pcie%d", (*n)++);
  COPSE_DO(add_node(b, COPSE_NCCL_BRIDGE, id, 0, index));
  return add_link(b, COPSE_NCCL_PCI, *index, parent, b->rates->pcie);
}

/* Adds a bridge below the CPU for every PXB class of several devices, and below that for PIX. */
static copse_status add_pcie(struct build *b) {
  int n = b->m->n, n_bridges = 0;
  for (int i = 0; i < n; i++) {
    int outer = b->pxb[i], inner = b->pix[i], cpu = b->above[b->cpu[i]];
    bool only = members(b->pix, n, inner) == members(b->pxb, n, outer);
    int top = cpu;
    if (members(b->pxb, n, outer) > 1) {
      if (i == outer) COPSE_DO(add_bridge(b, &n_bridges, cpu, &b->node[n + i]));
      top = b->node[n + outer];
    }
    int parent = top;
    if (!only && members(b->pix, n, inner) > 1) {
      if (i == inner) COPSE_DO(add_bridge(b, &n_bridges, top, &b->node[2 * n + i]));
      parent = b->node[2 * n + inner];
    }
    COPSE_DO(add_link(b, COPSE_NCCL_PCI, b->node[i], parent, b->rates->pcie));
  }
  return COPSE_OK;
}

static copse_status bandwidth_of(struct build *b, const struct copse_matrix_cell *at,
                                 struct copse_q *out) {
  *out = at->bandwidth;
  if (out->num > 0) return COPSE_OK;
  return copse_q_mul(b->rates->link, (struct copse_q){at->links, 1}, out, b->err);
}

/* A matrix shows a switch as links between every two GPUs, more than a GPU has. */
static copse_status add_hive(struct build *b, int hive, int *n_switches) {
  const struct copse_matrix *m = b->m;
  const struct copse_matrix_cell *widest;
  struct copse_q bandwidth;
  char id[24] = "nvswitch";
  int hub = -1;
  bool switched = false;
  for (int i = hive; i < m->n; i++)
    switched |= b->hive[i] == hive && count_row(m, i, &widest) > b->rates->max_links;
  if (switched && ++*n_switches > 1) snprintf(id, sizeof id, "nvswitch%d", *n_switches - 1);
  if (switched) COPSE_DO(add_node(b, COPSE_NCCL_NVSWITCH, id, 0, &hub));
  for (int i = hive; i < m->n; i++) {
    if (b->hive[i] != hive) continue;
    if (switched) {
      (void)count_row(m, i, &widest);
      COPSE_DO(bandwidth_of(b, widest, &bandwidth));
      COPSE_DO(add_link(b, COPSE_NCCL_NVLINK, b->node[i], hub, bandwidth));
    }
    for (int j = 0; !switched && j < i; j++) {
      if (cell(m, i, j)->links == 0) continue;
      COPSE_DO(bandwidth_of(b, cell(m, i, j), &bandwidth));
      COPSE_DO(add_link(b, COPSE_NCCL_NVLINK, b->node[j], b->node[i], bandwidth));
    }
  }
  return COPSE_OK;
}

static copse_status add_all(struct build *b) {
  const struct copse_matrix *m = b->m;
  int n_switches = 0;
  COPSE_DO(add_devices(b));
  COPSE_DO(add_cpus(b));
  COPSE_DO(add_pcie(b));
  for (int i = 0; i < m->n; i++)
    if (b->hive[i] == i && members(b->hive, m->n, i) > 1) COPSE_DO(add_hive(b, i, &n_switches));
  return COPSE_OK;
}

copse_status copse_matrix_build(const struct copse_matrix *matrix,
                                const struct copse_matrix_rates *rates,
                                const struct copse_topology_options *options,
                                struct copse_topology **out, struct copse_err *err) {
  struct build b = {.m = matrix,
                    .rates = rates,
                    .err = err,
                    .graph = {.file = matrix->file, .notes = options->notes, .n_hosts = 1}};
  size_t n = (size_t)matrix->n;
  int *ints;
  copse_status status;
  *out = NULL;
  COPSE_TRY(copse_arena_array(&b.graph.arena, 8 * n, sizeof *ints, &ints, err));
  b.pix = ints;
  b.pxb = ints + n;
  b.cpu = ints + 2 * n;
  b.hive = ints + 3 * n;
  b.above = ints + 4 * n;
  b.node = ints + 5 * n; /* devices, outer bridges, inner bridges */
  classify(&b);
  COPSE_TRY(unite_by_affinity(&b));
  name_classes(&b);
  note_contradictions(&b);
  COPSE_TRY(add_all(&b));
  copse_note_unused_options(matrix->file, "a matrix", COPSE_USES_LINKS | COPSE_USES_GPU, options);
  COPSE_TRY(copse_nccl_select(&b.graph, options->links, err));
  status = copse_nccl_build(&b.graph, out, err);
out:
  copse_nccl_graph_free(&b.graph);
  return status;
}
