/*
 * Topology XML of a topology: a tree of PCIe below CPUs, with the NVLinks of each GPU.
 *
 *   cpu0 -- cpu1          <cpu numaid="0"> <pci (switch)> <pci> <gpu> <nvlink/> </gpu> </pci>
 *    |        |                                           <pci> <nic> <net/> </nic> </pci> ...
 *   pcie0   pcie1    =>   <cpu numaid="1"> ...
 *   /  \    /  \
 * gpu0 nic gpu1 nic       (gpu0 == nvswitch == gpu1: an <nvlink> in each)
 *
 * What elements and numbers mean: NVIDIA/nccl src/graph/topo.cc and topo.h, 2.18 to 2.31. What is
 * written is read back by the reader of src/topology/input, and a remark names each link that comes
 * out with another bandwidth.
 */
#include "nccl/tune/topo_write.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/graph.h"
#include "base/text.h"
#include "nccl/machine.h"
#include "topology/input/nccl_bandwidth.h"

#define MAX_ELEMENTS 256 /* of a host, since 2.21 */
#define MAX_NAME 100     /* of a port; NCCL has room for 254 */

enum kind { OTHER, GPU, NVSWITCH, PCIE, CPU, NIC, PORT };

/* A node of the host in the file. */
struct part {
  enum kind kind;
  int node;           /* of the topology; -1: made up */
  int parent;         /* part above; -1: none */
  int number;         /* of its kind */
  struct copse_q up;  /* GB/s to the parent; 0: made up */
  struct copse_q c2c; /* GB/s of a GPU's C2C link to its CPU; 0: none */
  char bus[24];
  int sm;
};

struct writer {
  const struct copse_topology *t;
  const struct copse_nccl_topo_options *options;
  struct copse_nccl_machine machine; /* for NCCL's numbers */
  struct copse_adjacency out;        /* links by source */
  int host;                          /* -1: no node names one */
  struct part *parts;                /* [n_parts], those of nodes first */
  int *part_of;                      /* [n_nodes], -1: not in the file */
  int n_parts;
  int n_cpus, n_nics, n_ports, n_elements;
  int sm;       /* the newest of the GPUs: PCIe that is made up goes by it */
  bool made_up; /* PCIe or CPUs */
  bool grace;   /* some GPU has C2C to its CPU */
  struct copse_queue queue;
  struct copse_arena arena;
  struct copse_text text;
  struct copse_err *err;
};

static const char *id_of(const struct writer *w, int node) { return w->t->nodes[node].id; }

static const struct copse_link *link_of(const struct writer *w, int src, int dst) {
  int link = copse_topology_find_link(w->t, src, dst);
  return link < 0 ? NULL : &w->t->links[link];
}

/* ---- the parts of the host
 * ----------------------------------------------------------------------- */

static bool in_host(const struct writer *w, int node) {
  int host = -1;
  size_t prefix = copse_host_prefix(id_of(w, node), &host);
  return w->host < 0 ? true : prefix > 0 && host == w->host;
}

/* Whether a switch joins nothing but GPUs: it is an NVSwitch to NCCL. */
static bool joins_gpus(const struct writer *w, int node) {
  for (int i = w->out.first[node]; i < w->out.first[node + 1]; i++)
    if (strcmp(w->t->nodes[w->t->links[w->out.item[i]].dst].type, "gpu") != 0) return false;
  return w->out.first[node] < w->out.first[node + 1];
}

static enum kind kind_of(const struct writer *w, int node) {
  static const struct {
    const char *type;
    enum kind kind;
  } known[] = {{"gpu", GPU}, {"nvswitch", NVSWITCH}, {"pcie", PCIE},
               {"cpu", CPU}, {"nic", NIC},           {"net", PORT}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strcmp(w->t->nodes[node].type, known[i].type) == 0) return known[i].kind;
  return joins_gpus(w, node) ? NVSWITCH : OTHER;
}

static void add_part(struct writer *w, enum kind kind, int node, int parent) {
  struct part *part = &w->parts[w->n_parts++];
  *part = (struct part){
      .kind = kind, .node = node, .parent = parent, .up = COPSE_Q_ZERO, .c2c = COPSE_Q_ZERO};
  part->number = kind == CPU ? w->n_cpus++ : kind == NIC ? w->n_nics++ : 0;
  w->made_up = w->made_up || node < 0;
}

/* Whether a switch joins NICs: that is the fabric, which NCCL's file has none of. */
static bool is_fabric(const struct writer *w, int node) {
  for (int i = w->out.first[node]; i < w->out.first[node + 1]; i++) {
    enum kind kind = kind_of(w, w->t->links[w->out.item[i]].dst);
    if (kind != NIC && kind != PORT && kind != OTHER) return false;
  }
  return w->host < 0;
}

static copse_status add_parts(struct writer *w) {
  int switches = 0;
  for (int v = 0; v < w->t->n_nodes; v++) {
    w->part_of[v] = -1;
    if (!in_host(w, v)) continue;
    enum kind kind = kind_of(w, v);
    if (kind == OTHER && is_fabric(w, v)) continue;
    if (kind == OTHER)
      return copse_fail(w->err, COPSE_UNSUPPORTED, "%s: NCCL has no %s in a host", id_of(w, v),
                        w->t->nodes[v].type);
    switches += kind == NVSWITCH;
    if (switches > 1)
      return copse_fail(w->err, COPSE_UNSUPPORTED,
                        "%s: NCCL takes all NVSwitches of a host for one", id_of(w, v));
    w->part_of[v] = w->n_parts;
    add_part(w, kind, v, -1);
  }
  return COPSE_OK;
}

/* ---- PCIe as NCCL states it
 * ----------------------------------------------------------------------- */

struct pcie_form {
  const char *speed;
  int lanes, rate; /* GB/s of 80 lanes */
};
static const struct pcie_form pcie_speeds[] = {
    {"64.0 GT/s PCIe", 16, 480}, {"32.0 GT/s PCIe", 16, 240}, {"16.0 GT/s PCIe", 16, 120},
    {"8.0 GT/s PCIe", 16, 60},   {"5.0 GT/s PCIe", 16, 30},   {"2.5 GT/s PCIe", 16, 15}};
enum { N_PCIE_SPEEDS = sizeof pcie_speeds / sizeof *pcie_speeds };

/* Finds the form that is exactly the bandwidth as NCCL counts, with as many lanes as can be. */
static bool exact_pcie(struct copse_q bandwidth, struct pcie_form *out) {
  static const int lanes[] = {16, 32, 12, 8, 4, 2, 1};
  for (size_t l = 0; l < sizeof lanes / sizeof *lanes; l++)
    for (int s = 0; s < N_PCIE_SPEEDS; s++) {
      *out = pcie_speeds[s];
      out->lanes = lanes[l];
      struct copse_q is;
      if (copse_q_make(lanes[l] * out->rate, 80, &is, NULL) == COPSE_OK &&
          copse_q_eq(is, bandwidth))
        return true;
    }
  return false;
}

/* ---- the tree of PCIe
 * ---------------------------------------------------------------------------- */

static enum kind kind_at(const struct writer *w, int node) {
  return w->part_of[node] < 0 ? OTHER : w->parts[w->part_of[node]].kind;
}

static bool is_pcie(enum kind a, enum kind b) {
  bool up = a == CPU || a == PCIE;
  return up ? b == PCIE || b == GPU || b == NIC : (a == GPU || a == NIC) && (b == CPU || b == PCIE);
}

static copse_status check_two_ways(const struct writer *w, const struct copse_link *link) {
  const struct copse_link *back = link_of(w, link->dst, link->src);
  if (back && copse_q_eq(back->bandwidth, link->bandwidth)) return COPSE_OK;
  return copse_fail(w->err, COPSE_UNSUPPORTED, "%s and %s: NCCL has links of equal directions",
                    id_of(w, link->src), id_of(w, link->dst));
}

/* Finds whether a GPU has C2C: it has PCIe and a link to a CPU too. */
static void find_c2c(struct writer *w, int gpu) {
  struct copse_q to_cpu = COPSE_Q_ZERO;
  bool pcie = false;
  for (int i = w->out.first[gpu]; i < w->out.first[gpu + 1]; i++) {
    const struct copse_link *link = &w->t->links[w->out.item[i]];
    if (kind_at(w, link->dst) == CPU) to_cpu = link->bandwidth;
    pcie = pcie || kind_at(w, link->dst) == PCIE;
  }
  if (pcie) w->parts[w->part_of[gpu]].c2c = to_cpu;
}

static bool is_c2c(const struct writer *w, const struct copse_link *link) {
  const struct part *a = &w->parts[w->part_of[link->src]], *b = &w->parts[w->part_of[link->dst]];
  return (a->kind == CPU && b->c2c.num > 0) || (b->kind == CPU && a->c2c.num > 0);
}

/* Splits a GPU at a CPU with more than PCIe can have: 48 GB/s of PCIe, the rest C2C; readers add
 * them up. */
static copse_status split_c2c(const struct writer *w, struct part *part) {
  const struct copse_q most = {96, 1}, pcie = {48, 1};
  struct pcie_form form;
  if (part->kind != GPU || part->parent < 0 || w->parts[part->parent].kind != CPU ||
      copse_q_cmp(part->up, most) <= 0 || exact_pcie(part->up, &form))
    return COPSE_OK;
  COPSE_DO(copse_q_sub(part->up, pcie, &part->c2c, w->err));
  part->up = pcie;
  return COPSE_OK;
}

/* Hangs devices below the parts in the queue, level by level. */
static copse_status descend(struct writer *w) {
  while (!copse_queue_is_empty(&w->queue)) {
    int v = copse_queue_pop(&w->queue);
    for (int i = w->out.first[v]; i < w->out.first[v + 1]; i++) {
      const struct copse_link *link = &w->t->links[w->out.item[i]];
      enum kind kind = kind_at(w, link->dst);
      if (!is_pcie(kind_at(w, v), kind) || is_c2c(w, link)) continue;
      struct part *below = &w->parts[w->part_of[link->dst]];
      if (w->part_of[link->dst] == w->parts[w->part_of[v]].parent) continue;
      if (kind_at(w, v) == GPU || kind_at(w, v) == NIC || kind == CPU || below->parent >= 0)
        return copse_fail(w->err, COPSE_UNSUPPORTED, "%s has two ways up; PCIe is a tree to NCCL",
                          id_of(w, link->dst));
      COPSE_DO(check_two_ways(w, link));
      below->parent = w->part_of[v];
      below->up = link->bandwidth;
      copse_queue_push(&w->queue, link->dst);
    }
  }
  return COPSE_OK;
}

/* Hangs PCIe below the CPUs, then below PCIe switches that have no CPU: one is made up for them. */
static copse_status hang_pcie(struct writer *w) {
  copse_queue_reset(&w->queue);
  for (int v = 0; v < w->t->n_nodes; v++) {
    if (kind_at(w, v) == CPU) copse_queue_push(&w->queue, v);
    if (kind_at(w, v) == GPU) find_c2c(w, v);
  }
  COPSE_DO(descend(w));
  for (int v = 0, made = -1; v < w->t->n_nodes; v++) {
    if (kind_at(w, v) != PCIE || w->parts[w->part_of[v]].parent >= 0) continue;
    if (made < 0) made = w->n_parts, add_part(w, CPU, -1, -1);
    w->parts[w->part_of[v]].parent = made;
    copse_queue_reset(&w->queue);
    copse_queue_push(&w->queue, v);
    COPSE_DO(descend(w));
  }
  return COPSE_OK;
}

/* Returns a CPU for GPUs and NICs without PCIe: the first. */
static int some_cpu(struct writer *w) {
  for (int p = 0; p < w->n_parts; p++)
    if (w->parts[p].kind == CPU) return p;
  add_part(w, CPU, -1, -1);
  return w->n_parts - 1;
}

/* Returns the first GPU that a NIC is joined to without PCIe between, as in abstract hosts; -1:
 * none. */
static int gpu_beside(const struct writer *w, int nic) {
  for (int i = w->out.first[nic]; i < w->out.first[nic + 1]; i++)
    if (kind_at(w, w->t->links[w->out.item[i]].dst) == GPU)
      return w->part_of[w->t->links[w->out.item[i]].dst];
  return -1;
}

/* Makes up a PCIe switch for a GPU without PCIe and a NIC beside it, or hangs the NIC where the GPU
 * is. */
static void hang_nic(struct writer *w, int nic) {
  struct part *part = &w->parts[w->part_of[nic]];
  int gpu = gpu_beside(w, nic);
  if (part->parent >= 0) return;
  if (gpu < 0) {
    part->parent = some_cpu(w);
    w->made_up = true;
    return;
  }
  if (w->parts[gpu].parent < 0) {
    int cpu = some_cpu(w);
    w->parts[gpu].parent = w->n_parts;
    add_part(w, PCIE, -1, cpu);
  }
  part->parent = w->parts[gpu].parent;
  w->made_up = true;
}

/* Hangs a port at its NIC; a NIC without gets one when it is written. */
static copse_status hang_port(struct writer *w, int port) {
  struct part *part = &w->parts[w->part_of[port]];
  for (int i = w->out.first[port]; i < w->out.first[port + 1]; i++) {
    const struct copse_link *link = &w->t->links[w->out.item[i]];
    if (kind_at(w, link->dst) != NIC) continue;
    COPSE_DO(check_two_ways(w, link));
    part->parent = w->part_of[link->dst];
    part->up = link->bandwidth;
    return COPSE_OK;
  }
  return copse_fail(w->err, COPSE_UNSUPPORTED, "%s: a port without a NIC", id_of(w, port));
}

static copse_status hang_all(struct writer *w) {
  COPSE_DO(hang_pcie(w));
  for (int v = 0; v < w->t->n_nodes; v++)
    if (kind_at(w, v) == NIC) hang_nic(w, v);
  for (int v = 0; v < w->t->n_nodes; v++) {
    if (kind_at(w, v) == PORT) COPSE_DO(hang_port(w, v));
    if (kind_at(w, v) != GPU || w->parts[w->part_of[v]].parent >= 0) continue;
    w->parts[w->part_of[v]].parent = some_cpu(w);
    w->made_up = true;
  }
  return COPSE_OK;
}

/* ---- names
 * --------------------------------------------------------------------------------------- */

/* Whether the text is such as "0000:c1:00.0", in lower case. */
static bool is_bus_id(const char *text) {
  static const char shape[] = "xxxx:xx:xx.x";
  for (size_t i = 0; i < sizeof shape; i++)
    if (shape[i] == 'x' ? !isxdigit((unsigned char)text[i]) || isupper((unsigned char)text[i])
                        : text[i] != shape[i])
      return false;
  return true;
}

static bool is_taken(const struct writer *w, const char *bus) {
  for (int p = 0; p < w->n_parts; p++)
    if (strcmp(w->parts[p].bus, bus) == 0) return true;
  return false;
}

/* Names parts by the bus id that a node's id holds, else by one that no other part has. */
static void name_parts(struct writer *w) {
  unsigned made = 0;
  for (int p = 0; p < w->n_parts; p++) {
    const char *id = w->parts[p].node < 0 ? "" : id_of(w, w->parts[p].node), *at = strchr(id, '@');
    if (at && is_bus_id(at + 1) && !is_taken(w, at + 1)) strcpy(w->parts[p].bus, at + 1);
  }
  for (int p = 0; p < w->n_parts; p++) {
    struct part *part = &w->parts[p];
    if (part->bus[0] || (part->kind != GPU && part->kind != PCIE && part->kind != NIC)) continue;
    char bus[sizeof part->bus];
    do {
      unsigned n = ++made;
      snprintf(bus, sizeof bus, "%04x:%02x:00.0", n / 255 & 0xffff, n % 255 + 1);
    } while (is_taken(w, bus));
    strcpy(part->bus, bus);
  }
}

/* ---- compute capability
 * -------------------------------------------------------------------------- */

/* NVLink of one link: NCCL's count comes from nccl_bandwidth.h, the data sheets' is here. */
static const struct generation {
  int sm, max_links;
  double nominal;
} generations[] = {{90, 18, 25}, {100, 18, 50}, {80, 12, 25},
                   {70, 6, 25},  {60, 4, 20},   {86, 4, 14.0625}};

static double links_in(const struct copse_q bandwidth, const struct generation *g, bool nominal) {
  double one = nominal ? g->nominal : copse_q_to_double(copse_nccl_nvlink(g->sm, COPSE_NCCL_USUAL));
  return copse_q_to_double(bandwidth) / one;
}

static bool is_nvlink(const struct writer *w, const struct copse_link *link) {
  enum kind kind = kind_at(w, link->dst);
  return kind_at(w, link->src) == GPU && (kind == GPU || kind == NVSWITCH);
}

/* Whether the NVLinks of every GPU are whole numbers of this generation's, all of them in use by
 * some GPU if `full`. */
static bool fits(const struct writer *w, const struct generation *g, bool nominal, bool full) {
  double most = 0;
  bool any = false;
  for (int v = 0; v < w->t->n_nodes; v++) {
    double sum = 0;
    for (int i = w->out.first[v]; i < w->out.first[v + 1]; i++) {
      const struct copse_link *link = &w->t->links[w->out.item[i]];
      if (!is_nvlink(w, link)) continue;
      double n = links_in(link->bandwidth, g, nominal);
      if (fabs(n - round(n)) > 1e-6 || round(n) < 1) return false;
      sum += n;
      any = true;
    }
    most = fmax(most, sum);
  }
  return any && (full ? fabs(most - g->max_links) < 1e-6 : most < g->max_links + 1e-6);
}

static int guess_sm(const struct writer *w) {
  for (int full = 1; full >= 0; full--)
    for (int nominal = 0; nominal < 2; nominal++)
      for (size_t i = 0; i < sizeof generations / sizeof *generations; i++)
        if (fits(w, &generations[i], nominal, full)) return generations[i].sm;
  return 80;
}

static void set_generations(struct writer *w) {
  int sm = w->options->sm;
  for (int p = 0; p < w->n_parts; p++) {
    struct part *part = &w->parts[p];
    if (part->kind != GPU) continue;
    part->sm = w->t->nodes[part->node].sm;
    if (part->sm > 0) continue;
    if (sm <= 0) {
      sm = guess_sm(w);
      copse_note(w->options->notes,
                 "the topology doesn't say what GPUs it has: topo.xml takes them for sm_%d", sm);
    }
    part->sm = sm;
  }
  for (int p = 0; p < w->n_parts; p++)
    if (w->parts[p].sm > w->sm) w->sm = w->parts[p].sm;
}

/* ---- numbers as NCCL states them
 * ----------------------------------------------------------------- */

/* Finds the form nearest to a bandwidth. NCCL counts three quarters of a data sheet's GB/s: 24 of
 * 32, the 16 lanes of generation 4. */
static struct pcie_form pcie_of(struct copse_q bandwidth, int sm) {
  struct pcie_form form, best = pcie_speeds[sm >= 90 ? 1 : sm >= 80 ? 2 : 3];
  if (bandwidth.num == 0 || exact_pcie(bandwidth, &form)) return bandwidth.num == 0 ? best : form;
  double wanted = 0.75 * copse_q_to_double(bandwidth), least = INFINITY;
  for (int lanes = 16; lanes >= 1; lanes /= 2)
    for (int s = 0; s < N_PCIE_SPEEDS; s++) {
      double off = fabs(log(lanes * pcie_speeds[s].rate / 80.0 / wanted));
      if (off > least - 1e-9) continue;
      least = off;
      best = pcie_speeds[s];
      best.lanes = lanes;
    }
  return best;
}

/* Chooses the CPU's model by the socket link: the nearest of those whose constant no version
 * changed. */
static const char *cpu_model(const struct writer *w, const struct part *part) {
  static const struct {
    double bandwidth;
    const char *model;
  } known[] = {{16, "arch=\"x86_64\" vendor=\"AuthenticAMD\" familyid=\"143\" modelid=\"49\""},
               {6, "arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"79\""},
               {10, "arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"85\""},
               {22, "arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"143\""},
               {40, "arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"207\""}};
  double wanted = 16, least = INFINITY;
  const char *best = known[0].model;
  if (w->grace) return "arch=\"arm64\"";
  for (int i = part->node < 0 ? 0 : w->out.first[part->node];
       part->node >= 0 && i < w->out.first[part->node + 1]; i++)
    if (kind_at(w, w->t->links[w->out.item[i]].dst) == CPU)
      wanted = copse_q_to_double(w->t->links[w->out.item[i]].bandwidth);
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (fabs(log(known[i].bandwidth / wanted)) < least - 1e-9) {
      least = fabs(log(known[i].bandwidth / wanted));
      best = known[i].model;
    }
  return best;
}

/* Counts whole links of the GPU's generation: as NCCL counts them, or as the data sheets do. */
static int count_links(struct copse_q bandwidth, int sm) {
  struct generation g = {.sm = sm, .nominal = 25};
  for (size_t i = 0; i < sizeof generations / sizeof *generations; i++)
    if (generations[i].sm == sm) g = generations[i];
  if (sm > 100) g.nominal = 50;
  double exact = links_in(bandwidth, &g, false), nominal = links_in(bandwidth, &g, true);
  double n = fabs(exact - round(exact)) < 1e-6 ? round(exact) : round(nominal);
  return n < 1 ? 1 : (int)fmin(n, 1 << 20);
}

/* ---- the text
 * ------------------------------------------------------------------------------------ */

static void add_line(struct writer *w, int depth, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void add_line(struct writer *w, int depth, const char *fmt, ...) {
  char line[512];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(line, sizeof line, fmt, ap);
  va_end(ap);
  w->n_elements += line[1] != '/';
  copse_text_add(&w->text, "%*s%s\n", 2 * depth, "", line);
}

static void write_nvlinks(struct writer *w, const struct part *gpu, int depth) {
  for (int i = w->out.first[gpu->node]; i < w->out.first[gpu->node + 1]; i++) {
    const struct copse_link *link = &w->t->links[w->out.item[i]];
    if (!is_nvlink(w, link)) continue;
    const struct part *to = &w->parts[w->part_of[link->dst]];
    add_line(w, depth, "<nvlink target=\"%s\" count=\"%d\" tclass=\"%s\"/>",
             to->kind == GPU ? to->bus : "fffffff:ffff:ff", count_links(link->bandwidth, gpu->sm),
             to->kind == GPU ? "0x030200" : "0x068000");
  }
  if (gpu->c2c.num > 0)
    add_line(w, depth, "<c2c bw=\"%.0f\" count=\"1\"/>", copse_q_to_double(gpu->c2c) * 1000);
}

/* Counts the host's GPUs from 0, as the file's ranks do. */
static int rank_in_host(const struct writer *w, int node) {
  int rank = 0;
  for (int r = 0; r < w->t->nodes[node].rank; r++) rank += w->part_of[w->t->rank_nodes[r]] >= 0;
  return rank;
}

/* Returns the number by which graphs name a node: the index of a GPU, of a port or of a NIC without
 * ports. */
static int dev_of(const struct writer *w, int node) {
  int rank = w->t->nodes[node].rank;
  if (rank >= 0) return (int)copse_nccl_dev_index(w->machine.devs[rank]);
  for (int i = 0; i < w->machine.n_ports; i++)
    if (w->machine.ports[i].node == node) return (int)copse_nccl_dev_index(w->machine.ports[i].dev);
  return w->machine.n_ports + node; /* a NIC that no graph names */
}

static void write_gpu(struct writer *w, const struct part *gpu, int depth) {
  int rank = rank_in_host(w, gpu->node);
  add_line(w, depth, "<gpu dev=\"%d\" sm=\"%d\" rank=\"%d\" gdr=\"%d\">", dev_of(w, gpu->node),
           gpu->sm, rank, !w->t->nodes[gpu->node].no_gdr);
  write_nvlinks(w, gpu, depth + 1);
  add_line(w, depth, "</gpu>");
}

/* Returns the GB/s of what a NIC has on the fabric, or else of its PCIe. */
static struct copse_q port_speed(const struct writer *w, const struct part *nic) {
  for (int i = w->out.first[nic->node]; i < w->out.first[nic->node + 1]; i++) {
    const struct copse_link *link = &w->t->links[w->out.item[i]];
    if (kind_at(w, link->dst) == OTHER || kind_at(w, link->dst) == GPU) return link->bandwidth;
  }
  return nic->up;
}

/* Writes a port; `node`: the port's, or the NIC's where it has none. */
static void write_port(struct writer *w, const struct part *nic, const char *name, int node,
                       struct copse_q speed, int depth) {
  add_line(w, depth,
           "<net name=\"%s\" dev=\"%d\" speed=\"%.0f\" port=\"1\" latency=\"0\" guid=\"0x%x\" "
           "maxconn=\"131072\" gdr=\"%d\" coll=\"0\"/>",
           name, dev_of(w, node), copse_q_to_double(speed) * 8000, nic->number + 1,
           !w->t->nodes[node].no_gdr);
  w->n_ports++;
}

/* Finds the name in the id "net@mlx5_0", if NCCL reads it: it has no entities of XML. */
static void name_port(const struct writer *w, const struct part *port, char name[MAX_NAME + 1]) {
  const char *id = port ? id_of(w, port->node) : "", *at = strchr(id, '@');
  size_t n = 0;
  while (at && (isalnum((unsigned char)at[1 + n]) || strchr("_.:-", at[1 + n])) && at[1 + n]) n++;
  if (n > 0 && n <= MAX_NAME && at[1 + n] == '\0')
    strcpy(name, at + 1);
  else
    snprintf(name, MAX_NAME + 1, "net%d", w->n_ports);
}

static void write_nic(struct writer *w, int at, int depth) {
  const struct part *nic = &w->parts[at];
  char name[MAX_NAME + 1];
  bool any = false;
  add_line(w, depth, "<nic>");
  for (int p = 0; p < w->n_parts; p++) {
    if (w->parts[p].kind != PORT || w->parts[p].parent != at) continue;
    name_port(w, &w->parts[p], name);
    write_port(w, nic, name, w->parts[p].node, w->parts[p].up, depth + 1);
    any = true;
  }
  name_port(w, NULL, name);
  if (!any) write_port(w, nic, name, nic->node, port_speed(w, nic), depth + 1);
  add_line(w, depth, "</nic>");
}

/* Writes a part with all below it. PCIe is no deeper than the parts are many, which limits
 * recursion too. */
static void write_pci(struct writer *w, int at, int depth) {
  const struct part *part = &w->parts[at];
  static const char *const classes[] = {
      [GPU] = "0x030200", [PCIE] = "0x060400", [NIC] = "0x020000"};
  struct pcie_form form = pcie_of(part->up, w->sm);
  add_line(w, depth, "<pci busid=\"%s\" class=\"%s\" link_speed=\"%s\" link_width=\"%d\">",
           part->bus, classes[part->kind], form.speed, form.lanes);
  if (part->kind == GPU) write_gpu(w, part, depth + 1);
  if (part->kind == NIC) write_nic(w, at, depth + 1);
  for (int p = 0; part->kind == PCIE && p < w->n_parts; p++)
    if (w->parts[p].parent == at && w->parts[p].kind != PORT) write_pci(w, p, depth + 1);
  add_line(w, depth, "</pci>");
}

static void write_system(struct writer *w) {
  add_line(w, 0, "<system version=\"1\">");
  for (int c = 0; c < w->n_parts; c++) {
    const struct part *cpu = &w->parts[c];
    if (cpu->kind != CPU) continue;
    add_line(w, 1, "<cpu host_hash=\"0x1\" numaid=\"%d\" %s>", cpu->number, cpu_model(w, cpu));
    for (int p = 0; p < w->n_parts; p++)
      if (w->parts[p].parent == c) write_pci(w, p, 2);
    add_line(w, 1, "</cpu>");
  }
  add_line(w, 0, "</system>");
}

/* ---- as it reads back
 * ---------------------------------------------------------------------------- */

/* Finds the node of the file as the reader names it. */
static int find_back(const struct writer *w, const struct copse_topology *back, int part) {
  static const char *const types[] = {[GPU] = "gpu", [PCIE] = "pcie", [NIC] = "nic"};
  const struct part *p = &w->parts[part];
  char id[64];
  if (p->kind == NVSWITCH)
    snprintf(id, sizeof id, "nvswitch");
  else if (p->kind == CPU)
    snprintf(id, sizeof id, "cpu@%d", p->number);
  else
    snprintf(id, sizeof id, "%s@%s", types[p->kind], p->bus);
  return copse_topology_find(back, id);
}

/* Reports the link whose bandwidth NCCL counts otherwise by the largest factor. */
static copse_status compare_links(const struct writer *w, const struct copse_topology *back) {
  const struct copse_link *worst = NULL;
  double most = 0, counted = 0;
  int n = 0;
  for (int i = 0; i < w->t->n_links; i++) {
    const struct copse_link *link = &w->t->links[i];
    enum kind a = kind_at(w, link->src), b = kind_at(w, link->dst);
    if (a == OTHER || b == OTHER || a == PORT || b == PORT) continue;
    if ((a == GPU && b == NIC) || (a == NIC && b == GPU)) continue; /* over PCIe that is made up */
    int src = find_back(w, back, w->part_of[link->src]);
    int dst = find_back(w, back, w->part_of[link->dst]);
    int there = src < 0 || dst < 0 ? -1 : copse_topology_find_link(back, src, dst);
    if (there < 0)
      return copse_fail(w->err, COPSE_UNSUPPORTED, "%s and %s: NCCL has no such link",
                        id_of(w, link->src), id_of(w, link->dst));
    if (copse_q_eq(back->links[there].bandwidth, link->bandwidth)) continue;
    double is = copse_q_to_double(back->links[there].bandwidth);
    double off = fabs(log(is / copse_q_to_double(link->bandwidth)));
    n++;
    if (off <= most) continue;
    most = off;
    worst = link;
    counted = is;
  }
  if (worst)
    copse_note(
        w->options->notes,
        "topo.xml: %d links are not what NCCL counts them as; %s>%s of %s GB/s is %.10g to it", n,
        id_of(w, worst->src), id_of(w, worst->dst), COPSE_Q_STRING(worst->bandwidth), counted);
  return COPSE_OK;
}

static copse_status check_text(struct writer *w) {
  COPSE_AT_END(copse_topology_free_at) struct copse_topology *back = NULL;
  const struct copse_topology_options all = {.links = COPSE_LINKS_ALL};
  COPSE_DO(copse_text_status(&w->text, w->err));
  if (w->n_elements > MAX_ELEMENTS)
    return copse_fail(w->err, COPSE_UNSUPPORTED,
                      "%d elements; NCCL reads at most %d of a host's topology", w->n_elements,
                      MAX_ELEMENTS);
  COPSE_DO(copse_topology_parse("topo.xml", w->text.data, w->text.size, &all, &back, w->err));
  COPSE_DO(compare_links(w, back));
  if (w->made_up)
    copse_note(w->options->notes,
               "topo.xml: PCIe switches or CPUs that the topology leaves out are made up");
  return COPSE_OK;
}

/* ---- all of it
 * ----------------------------------------------------------------------------------- */

static int first_host(const struct copse_topology *t) {
  int least = -1, host = -1;
  for (int v = 0; v < t->n_nodes; v++)
    if (copse_host_prefix(t->nodes[v].id, &host) > 0 && host >= 0 && (least < 0 || host < least))
      least = host;
  return least;
}

static copse_status find_parts(struct writer *w) {
  const struct copse_topology *t = w->t;
  size_t n = (size_t)t->n_nodes;
  COPSE_DO(copse_adjacency_by(&w->arena, t->n_nodes, t->n_links, COPSE_KEYS(t->links, src),
                              sizeof *t->links, &w->out, w->err));
  COPSE_DO(COPSE_ARRAYS(&w->arena, n, int, w->err, &w->part_of, &w->queue.items));
  COPSE_DO(COPSE_ARRAY(&w->arena, n + (size_t)t->n_ranks + 1, w->parts, w->err));
  w->host = first_host(t);
  return add_parts(w);
}

static copse_status prepare(struct writer *w) {
  COPSE_DO(copse_nccl_machine_open(w->t, &w->machine, w->err));
  COPSE_DO(find_parts(w));
  if (w->n_parts > MAX_ELEMENTS)
    return copse_fail(w->err, COPSE_UNSUPPORTED,
                      "%d nodes; NCCL reads at most %d elements of a host's topology", w->n_parts,
                      MAX_ELEMENTS);
  COPSE_DO(hang_all(w));
  for (int p = 0; p < w->n_parts; p++) {
    COPSE_DO(split_c2c(w, &w->parts[p]));
    w->grace = w->grace || w->parts[p].c2c.num > 0;
  }
  name_parts(w);
  set_generations(w);
  return COPSE_OK;
}

copse_status copse_nccl_topo_write(const struct copse_topology *topology,
                                   const struct copse_nccl_topo_options *options, char **text,
                                   size_t *size, struct copse_err *err) {
  struct writer w = {.t = topology, .options = options, .err = err};
  *text = NULL;
  copse_status status = prepare(&w);
  if (status == COPSE_OK) {
    write_system(&w);
    status = check_text(&w);
  }
  if (status == COPSE_OK) status = copse_text_take(&w.text, text, size, err);
  copse_text_free(&w.text);
  copse_nccl_machine_free(&w.machine);
  copse_arena_free(&w.arena);
  return status;
}

int copse_nccl_topo_sm(const struct copse_topology *topology) {
  struct writer w = {.t = topology};
  int least = 0;
  for (int r = 0; r < topology->n_ranks; r++) {
    int sm = topology->nodes[topology->rank_nodes[r]].sm;
    least = r == 0 || sm < least ? sm : least;
  }
  if (least > 0) return least;
  least = find_parts(&w) == COPSE_OK ? guess_sm(&w) : 80;
  copse_arena_free(&w.arena);
  return least;
}
