/*
 * NCCL's and RCCL's topology XML. The meaning of elements follows NCCL's src/graph/topo.cc.
 *
 *   <system version>                      one file: one or more hosts
 *     <cpu numaid host_hash arch ..>      a NUMA node; host_hash tells hosts apart
 *       <nic><net/></nic>                 a NIC without a PCI device
 *       <pci busid class link_speed ..>   a bridge of further <pci>, or a device:
 *         <gpu rank sm gcn>               a GPU
 *           <nvlink target count tclass/> its links; RCCL says <xgmi>
 *           <c2c bw count/>             to its CPU (Grace); bw is MB/s of one
 *         <nic><net name speed/></nic>    a NIC and its ports
 *
 * A C2C link joins a GPU to its CPU beside PCIe and counts as PCIe for --links; NVLink to CPUs
 * (class 0x068001) counts as NVLink. All NVSwitches of a file are one: NCCL fuses the files of
 * several hosts into one only where they are trays of one NVLink domain. Where GPUs are only known
 * by their class, or a host shows no NVLink, --nvlink-switch BW gives every GPU of it BW GB/s to a
 * switch of its host. A GPU's link to itself and links to devices that the file lacks are left out
 * with a note.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "base/xml.h"
#include "topology/input/readers.h"
#include "topology/input/nccl_bandwidth.h"
#include "topology/input/nccl_graph.h"
#include "topology/input/profile.h"

struct host {
  const char *hash;
  char prefix[16]; /* of node ids; empty in a file of one host */
  int nvswitch;    /* node that --nvlink-switch adds, or -1 */
  bool has_links;  /* NVLink or xGMI between its GPUs */
  int first_cpu, n_cpus;
};

struct cpu_element {
  int node, next; /* the next CPU of the host, or -1 */
  int64_t numaid;
  long line;
  struct copse_nccl_cpu model;
};

/* A GPU with its element, for the second pass that reads the links. */
struct gpu_element {
  int node, cpu_node;
  const xmlNode *element; /* NULL: known by its class only */
};

struct reader {
  struct copse_xml *xml;
  struct copse_err *err;
  struct copse_nccl_graph *graph;
  const struct copse_topology_options *options;
  bool by_class; /* no gpu or nic elements (a cloud's image): PCI classes tell what devices are */
  struct host *hosts; /* in the graph's arena, as the CPUs */
  struct cpu_element *cpus;
  struct gpu_element *gpus;
  size_t gpu_capacity;
  int n_cpus, n_gpus;
  int nvswitch; /* of all hosts; node or -1 */
  struct remark {
    const xmlNode *first;
    int n;
  } slower, speedless,
      portless; /* elements of which NCCL makes something else, or a guess is made */
  struct copse_index_map *host_hashes;
  struct copse_index_map *devices; /* by bus id: nodes of GPUs and NICs */
};

/* Links between all of a host's CPUs are many; no machine has as many NUMA nodes. */
#define MAX_CPUS_PER_HOST 1024

/* What a <pci> or <nic> is below. */
struct place {
  int parent, cpu_node, host;
};

#define refuse(r, element, ...) \
  copse_fail_at((r)->err, COPSE_BAD_INPUT, (r)->xml->file, copse_xml_line(element), __VA_ARGS__)

/*
 * Passes over an element that isn't read here. One that is known, only elsewhere, is misplaced: to
 * pass over a whole GPU in silence would give a wrong answer.
 */
static copse_status pass_over(struct reader *r, const xmlNode *element) {
  static const char *const known[] = {"system", "cpu", "pci",    "gpu", "nic",
                                      "net",    "c2c", "nvlink", "xgmi"};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (copse_xml_is(element, known[i]))
      return refuse(r, element, "<%s> inside of <%s>, where NCCL has none", known[i],
                    copse_xml_name(element->parent));
  copse_nccl_note(r->graph, copse_xml_line(element), "<%.40s> in <%.40s> is left out",
                  copse_xml_name(element), copse_xml_name(element->parent));
  return COPSE_OK;
}

/* ---- bus ids ------------------------------------------------------------------------ */

static bool parse_bus_id(const char *text, uint64_t *bus) {
  int digits = 0;
  *bus = 0;
  for (; *text; text++) {
    char c = *text;
    if (c == ':' || c == '.') continue;
    int v = c >= '0' && c <= '9'                 ? c - '0'
            : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                 : -1;
    if (v < 0 || ++digits > 16) return false;
    *bus = *bus << 4 | (uint64_t)v;
  }
  return digits > 0;
}

/* Reads a <pci>'s own bus id, lower-cased into the graph's arena. */
static copse_status read_bus_id(struct reader *r, const xmlNode *pci, const char **text,
                                uint64_t *bus) {
  const char *raw = copse_xml_attribute(pci, "busid");
  if (!raw) return refuse(r, pci, "a <pci> without busid");
  if (!parse_bus_id(raw, bus))
    return refuse(r, pci, "busid=\"%.40s\" is not a PCI bus id such as \"0000:c1:00.0\"", raw);
  char *lower = copse_arena_strdup(&r->graph->arena, raw);
  if (!lower) return copse_fail_nomem(r->err);
  for (char *p = lower; *p; p++)
    if (*p >= 'A' && *p <= 'Z') *p = (char)(*p + 32);
  *text = lower;
  return COPSE_OK;
}

/* ---- nodes -------------------------------------------------------------------------- */

/* Adds a node whose id is the type, and "@name" where there is a name. */
static copse_status add_node(struct reader *r, const xmlNode *element,
                             enum copse_nccl_node_kind kind, int host, const char *name,
                             int *index) {
  const char *id = copse_arena_printf(&r->graph->arena, "%s%s%s%s", r->hosts[host].prefix,
                                      copse_nccl_type_name(kind), name[0] ? "@" : "", name);
  if (!id) return copse_fail_nomem(r->err);
  return copse_nccl_add_node(r->graph, kind, host, id, copse_xml_line(element), index, r->err);
}

/* Adds a GPU or NIC: another device of the same host with its bus id is an error. */
static copse_status add_device(struct reader *r, const xmlNode *pci, enum copse_nccl_node_kind kind,
                               int host, int *index) {
  const char *text = NULL;
  uint64_t bus = 0;
  size_t cursor = 0;
  COPSE_DO(read_bus_id(r, pci, &text, &bus));
  for (int twin; (twin = copse_index_map_next(r->devices, bus, &cursor)) >= 0;)
    if (r->graph->nodes[twin].host == host)
      return refuse(r, pci, "bus id %.40s twice (first on line %ld); each device needs its own",
                    text, r->graph->nodes[twin].line);
  COPSE_DO(add_node(r, pci, kind, host, text, index));
  return copse_index_map_add(r->devices, bus, *index, r->err);
}

static copse_status add_duplex(struct reader *r, const xmlNode *element,
                               enum copse_nccl_link_kind kind, int a, int b,
                               struct copse_q bandwidth) {
  long line = copse_xml_line(element);
  return copse_nccl_add_duplex(r->graph, kind, a, b, bandwidth, line, r->err);
}

/* Returns the profile's rate, or the nominal one. */
static struct copse_q rate(const struct reader *r, enum copse_rate which, struct copse_q nominal) {
  return copse_profile_rate(r->options->profile, which, nominal);
}

static bool is_given(const struct reader *r, enum copse_rate which) {
  return rate(r, which, COPSE_Q_ZERO).num > 0;
}

static void remember(struct remark *remark, const xmlNode *element) {
  if (remark->n++ == 0) remark->first = element;
}

/* Adds the PCIe link between a <pci> and its parent. */
static copse_status join_parent(struct reader *r, const xmlNode *pci, int node, int parent) {
  const struct copse_xml_int width = {"link_width", 0, 0, 1 << 20};
  struct copse_q bandwidth;
  int64_t lanes = 0;
  const char *speed = copse_xml_attribute(pci, "link_speed");
  COPSE_DO(copse_xml_get_int(r->xml, pci, width, &lanes, NULL, r->err));
  COPSE_DO(copse_nccl_pci(lanes, speed, &bandwidth, r->err));
  COPSE_DO(add_duplex(r, pci, COPSE_NCCL_PCI, node, parent, rate(r, COPSE_RATE_PCIE, bandwidth)));
  if (copse_nccl_reads_slower(speed)) remember(&r->slower, pci);
  if (copse_nccl_knows_speed(speed) || is_given(r, COPSE_RATE_PCIE)) return COPSE_OK;
  copse_nccl_guess(r->graph, 2, COPSE_GUESS_SPEED);
  remember(&r->speedless, pci);
  return COPSE_OK;
}

/* Reads what NCCL knows a GPU or a port by: its number in its host's system, the generation, and
 * whether it has GPUDirect RDMA (where nothing is said NCCL asks the machine). A garbled attribute
 * is none. */
static void read_names(struct reader *r, const xmlNode *element, int node) {
  const struct copse_xml_int dev = {"dev", -1, 0, INT32_MAX}, sm = {"sm", 0, 0, 1 << 20};
  const struct copse_xml_int gdr = {"gdr", 1, INT32_MIN, INT32_MAX};
  struct copse_nccl_node *to = &r->graph->nodes[node];
  int64_t index = -1, generation = 0, direct = 1;
  if (copse_xml_get_int(r->xml, element, gdr, &direct, NULL, NULL) == COPSE_OK)
    to->no_gdr = direct == 0;
  if (copse_xml_get_int(r->xml, element, sm, &generation, NULL, NULL) == COPSE_OK)
    to->sm = (int)generation;
  if (copse_xml_get_int(r->xml, element, dev, &index, NULL, NULL) != COPSE_OK || index < 0) return;
  to->has_dev = true;
  to->dev = (uint64_t)to->host << 56 | (uint64_t)index;
}

/* ---- NICs and their ports ----------------------------------------------------------- */

static copse_status read_net(struct reader *r, const xmlNode *net, int nic) {
  const struct copse_xml_int speed = {"speed", 0, INT32_MIN, INT32_MAX};
  const char *name = copse_xml_attribute(net, "name");
  struct copse_q bandwidth;
  int64_t mbps = 0;
  int port = -1;
  if (!name || !name[0]) name = copse_xml_attribute(net, "dev");
  if (!name || !name[0]) name = "unnamed";
  COPSE_DO(copse_xml_get_int(r->xml, net, speed, &mbps, NULL, r->err));
  COPSE_DO(copse_nccl_net(mbps, &bandwidth, r->err));
  COPSE_DO(add_node(r, net, COPSE_NCCL_NET_PORT, r->graph->nodes[nic].host, name, &port));
  read_names(r, net, port);
  COPSE_DO(add_duplex(r, net, COPSE_NCCL_NET, nic, port, rate(r, COPSE_RATE_NET, bandwidth)));
  if (mbps <= 0 && !is_given(r, COPSE_RATE_NET)) {
    copse_nccl_guess(r->graph, 2, COPSE_GUESS_PORT);
    remember(&r->portless, net);
  }
  for (const xmlNode *child = copse_xml_first(net); child; child = copse_xml_next(child))
    COPSE_DO(pass_over(r, child));
  return COPSE_OK;
}

static copse_status read_nets(struct reader *r, const xmlNode *nic_element, int nic) {
  for (const xmlNode *e = copse_xml_first(nic_element); e; e = copse_xml_next(e))
    COPSE_DO(copse_xml_is(e, "net") ? read_net(r, e, nic) : pass_over(r, e));
  return COPSE_OK;
}

static copse_status read_pci_nic(struct reader *r, const xmlNode *pci, const struct place *at) {
  int nic = -1;
  COPSE_DO(add_device(r, pci, COPSE_NCCL_NIC, at->host, &nic));
  COPSE_DO(join_parent(r, pci, nic, at->parent));
  for (const xmlNode *e = copse_xml_first(pci); e; e = copse_xml_next(e))
    COPSE_DO(copse_xml_is(e, "nic") ? read_nets(r, e, nic) : pass_over(r, e));
  return COPSE_OK;
}

/* Reads a virtual NIC, or one whose PCI device the host doesn't show. */
static copse_status read_cpu_nic(struct reader *r, const xmlNode *element,
                                 const struct cpu_element *cpu) {
  int host = r->graph->nodes[cpu->node].host, nic = -1;
  char name[32];
  snprintf(name, sizeof name, "cpu%lld", (long long)cpu->numaid);
  COPSE_DO(add_node(r, element, COPSE_NCCL_NIC, host, name, &nic));
  COPSE_DO(add_duplex(r, element, COPSE_NCCL_PCI, nic, cpu->node, COPSE_NCCL_LOCAL));
  return read_nets(r, element, nic);
}

/* ---- GPUs and bridges --------------------------------------------------------------- */

static copse_status read_gpu(struct reader *r, const xmlNode *pci, const xmlNode *element,
                             const struct place *at) {
  const struct copse_xml_int rank_attribute = {"rank", -1, INT32_MIN, INT32_MAX};
  struct gpu_element gpu = {.cpu_node = at->cpu_node, .element = element};
  int64_t rank = -1;
  size_t n = (size_t)r->n_gpus;
  for (const xmlNode *e = copse_xml_first(pci); e; e = copse_xml_next(e)) {
    if (copse_xml_is(e, "gpu") && e != element)
      return refuse(r, e, "a second <gpu> in one <pci>; each GPU has a bus id of its own");
    if (e != element) COPSE_DO(pass_over(r, e));
  }
  if (element) COPSE_DO(copse_xml_get_int(r->xml, element, rank_attribute, &rank, NULL, r->err));
  COPSE_DO(add_device(r, pci, COPSE_NCCL_GPU, at->host, &gpu.node));
  r->graph->nodes[gpu.node].rank = rank < 0 ? -1 : (int)rank;
  if (element) read_names(r, element, gpu.node);
  COPSE_DO(join_parent(r, pci, gpu.node, at->parent));
  COPSE_DO(COPSE_GROW(r->gpus, r->gpu_capacity, n + 1, r->err));
  r->gpus[r->n_gpus++] = gpu;
  return COPSE_OK;
}

static copse_status read_pci(struct reader *r, const xmlNode *pci, const struct place *at);

/* Reads a bridge. Some real dumps give the bridges below a switch all the same bus id: each is
 * one. */
static copse_status read_bridge(struct reader *r, const xmlNode *pci, const struct place *at) {
  struct place below = *at;
  const char *text = NULL;
  uint64_t bus = 0;
  COPSE_DO(read_bus_id(r, pci, &text, &bus));
  COPSE_DO(add_node(r, pci, COPSE_NCCL_BRIDGE, at->host, text, &below.parent));
  COPSE_DO(join_parent(r, pci, below.parent, at->parent));
  for (const xmlNode *e = copse_xml_first(pci); e; e = copse_xml_next(e))
    COPSE_DO(copse_xml_is(e, "pci") ? read_pci(r, e, &below) : pass_over(r, e));
  return COPSE_OK;
}

static bool has_class(const xmlNode *pci, const char *start) {
  const char *text = copse_xml_attribute(pci, "class");
  return text && strncasecmp(text, start, strlen(start)) == 0;
}

/* Reads a <pci>. Contents count before the class: an MI300X is not of the class that other GPUs
 * have. */
static copse_status read_pci(struct reader *r, const xmlNode *pci, const struct place *at) {
  const xmlNode *gpu = copse_xml_child(pci, "gpu");
  const xmlNode *nic = copse_xml_child(pci, "nic");
  if (gpu && nic) return refuse(r, pci, "a <pci> with both a <gpu> and a <nic>; it is one device");
  if (gpu) return read_gpu(r, pci, gpu, at);
  if (nic) return read_pci_nic(r, pci, at);
  if (has_class(pci, "0x0604")) return read_bridge(r, pci, at);
  if (r->by_class && (has_class(pci, "0x03") || has_class(pci, "0x12")))
    return read_gpu(r, pci, NULL, at);
  if (r->by_class && has_class(pci, "0x02")) return read_pci_nic(r, pci, at);
  if (copse_xml_child(pci, "pci")) return read_bridge(r, pci, at);
  const char *class = copse_xml_attribute(pci, "class");
  copse_nccl_note(r->graph, copse_xml_line(pci),
                  "a PCI device of class \"%.20s\" that is no GPU, NIC or bridge is left out",
                  class ? class : "");
  return COPSE_OK;
}

/* ---- CPUs and hosts ----------------------------------------------------------------- */

static const char *host_hash(const xmlNode *cpu) {
  const char *hash = copse_xml_attribute(cpu, "host_hash");
  return hash ? hash : "";
}

static int find_host(const struct reader *r, const char *hash) {
  return copse_index_map_find(r->host_hashes, hash, r->hosts, sizeof *r->hosts,
                              offsetof(struct host, hash));
}

static copse_status find_hosts(struct reader *r, const xmlNode *root) {
  size_t n_cpus = 0;
  for (const xmlNode *e = copse_xml_first(root); e; e = copse_xml_next(e))
    n_cpus += copse_xml_is(e, "cpu");
  COPSE_DO(COPSE_ARRAY(&r->graph->arena, n_cpus, r->hosts, r->err));
  COPSE_DO(COPSE_ARRAY(&r->graph->arena, n_cpus, r->cpus, r->err));
  for (const xmlNode *e = copse_xml_first(root); e; e = copse_xml_next(e)) {
    if (!copse_xml_is(e, "cpu") || find_host(r, host_hash(e)) >= 0) continue;
    int n = r->graph->n_hosts;
    r->hosts[n] = (struct host){.hash = host_hash(e), .nvswitch = -1, .first_cpu = -1};
    COPSE_DO(copse_index_map_add(r->host_hashes, copse_key_text(host_hash(e)), n, r->err));
    r->graph->n_hosts++;
  }
  for (int h = 0; r->graph->n_hosts > 1 && h < r->graph->n_hosts; h++)
    snprintf(r->hosts[h].prefix, sizeof r->hosts[h].prefix, "h%d.", h);
  return COPSE_OK;
}

static copse_status read_cpu_attributes(struct reader *r, const xmlNode *element,
                                        struct cpu_element *cpu) {
  const struct copse_xml_int numaid = {"numaid", 0, INT32_MIN, INT32_MAX};
  const struct copse_xml_int family = {"familyid", -1, INT32_MIN, INT32_MAX};
  const struct copse_xml_int model = {"modelid", -1, INT32_MIN, INT32_MAX};
  bool present = false;
  COPSE_DO(copse_xml_get_int(r->xml, element, numaid, &cpu->numaid, &present, r->err));
  if (!present) return refuse(r, element, "a <cpu> without numaid");
  cpu->line = copse_xml_line(element);
  cpu->model.arch = copse_xml_attribute(element, "arch");
  cpu->model.vendor = copse_xml_attribute(element, "vendor");
  COPSE_DO(copse_xml_get_int(r->xml, element, family, &cpu->model.family, NULL, r->err));
  return copse_xml_get_int(r->xml, element, model, &cpu->model.model, NULL, r->err);
}

/* Puts a CPU into its host's list, where each numaid occurs once. */
static copse_status add_cpu(struct reader *r, const xmlNode *element, struct cpu_element *cpu,
                            int host) {
  char name[32];
  for (int i = r->hosts[host].first_cpu; i >= 0; i = r->cpus[i].next)
    if (r->cpus[i].numaid == cpu->numaid)
      return copse_fail_at(r->err, COPSE_BAD_INPUT, r->xml->file, cpu->line,
                           "numaid %lld twice in a host (first on line %ld); each <cpu> needs "
                           "its own",
                           (long long)cpu->numaid, r->cpus[i].line);
  if (r->hosts[host].n_cpus == MAX_CPUS_PER_HOST)
    return refuse(r, element, "more than 1024 <cpu> in a host");
  snprintf(name, sizeof name, "%lld", (long long)cpu->numaid);
  COPSE_DO(add_node(r, element, COPSE_NCCL_CPU, host, name, &cpu->node));
  cpu->next = r->hosts[host].first_cpu;
  r->hosts[host].first_cpu = r->n_cpus;
  r->hosts[host].n_cpus++;
  r->cpus[r->n_cpus++] = *cpu;
  return COPSE_OK;
}

static copse_status read_cpu(struct reader *r, const xmlNode *element) {
  struct cpu_element cpu = {.next = -1};
  int host = find_host(r, host_hash(element));
  COPSE_DO(read_cpu_attributes(r, element, &cpu));
  COPSE_DO(add_cpu(r, element, &cpu, host));
  struct place at = {cpu.node, cpu.node, host};
  for (const xmlNode *e = copse_xml_first(element); e; e = copse_xml_next(e)) {
    if (copse_xml_is(e, "pci"))
      COPSE_DO(read_pci(r, e, &at));
    else if (copse_xml_is(e, "nic"))
      COPSE_DO(read_cpu_nic(r, e, &cpu));
    else
      COPSE_DO(pass_over(r, e));
  }
  return COPSE_OK;
}

/* Notes where NCCL makes something else of a host's CPUs, in all versions or in some. */
static void note_sockets(struct reader *r, const struct cpu_element *cpu, struct copse_q here) {
  struct copse_q old = copse_nccl_inter_cpu(&cpu->model, COPSE_NCCL_USUAL);
  struct copse_q new = copse_nccl_inter_cpu(&cpu->model, 23100);
  const char *arch = cpu->model.arch, *vendor = cpu->model.vendor;
  if (arch && strncmp(arch, "aarch64", 7) == 0)
    copse_nccl_note(r->graph, cpu->line,
                    "arch=\"aarch64\" is none that it knows: NCCL takes 5000 GB/s between CPUs "
                    "where \"arm64\" has %s, as here",
                    COPSE_Q_STRING(here));
  else if (copse_q_eq(here, COPSE_NCCL_LOCAL))
    copse_nccl_note(r->graph, cpu->line,
                    "5000 GB/s between CPUs, as in NCCL: it has no number for arch=\"%.20s\", "
                    "vendor=\"%.20s\"",
                    arch ? arch : "", vendor ? vendor : "");
  else if (!copse_q_eq(old, new) && r->options->nccl_version == 0)
    copse_nccl_note(r->graph, cpu->line,
                    "%s GB/s between such CPUs, as in NCCL up to 2.30; 2.31 has %s "
                    "(--nccl-version 2.31)",
                    COPSE_Q_STRING(old), COPSE_Q_STRING(new));
}

/* Joins every CPU to every other one of its host, each direction as its source's kind has it. */
static copse_status join_cpus(struct reader *r) {
  bool noted = false;
  for (int a = 0; a < r->n_cpus; a++) {
    const struct cpu_element *from = &r->cpus[a];
    int host = r->graph->nodes[from->node].host;
    struct copse_q nominal = copse_nccl_inter_cpu(&from->model, copse_nccl_version(r->options));
    struct copse_q bandwidth = rate(r, COPSE_RATE_INTER_CPU, nominal);
    bool given = is_given(r, COPSE_RATE_INTER_CPU);
    for (int b = r->hosts[host].first_cpu; b >= 0; b = r->cpus[b].next) {
      if (a == b) continue;
      COPSE_DO(copse_nccl_add_link(r->graph, COPSE_NCCL_SYS, from->node, r->cpus[b].node, bandwidth,
                                   from->line, r->err));
      copse_nccl_guess(r->graph, 1, given ? COPSE_GUESS_NONE : COPSE_GUESS_SOCKETS);
    }
    if (r->hosts[host].n_cpus > 1 && !given && !noted) note_sockets(r, from, nominal);
    noted |= r->hosts[host].n_cpus > 1;
  }
  return COPSE_OK;
}

/* ---- links of GPUs: NVLink, xGMI and C2C --------------------------------------------------- */

/* Finds the GPU with this bus id, in the same host if there is one; -1 if none. */
static int find_target(const struct reader *r, const char *target, int host) {
  uint64_t bus;
  size_t cursor = 0;
  int other = -1;
  if (!parse_bus_id(target, &bus)) return -1;
  for (int node; (node = copse_index_map_next(r->devices, bus, &cursor)) >= 0;) {
    const struct copse_nccl_node *device = &r->graph->nodes[node];
    if (device->kind != COPSE_NCCL_GPU) continue;
    if (device->host == host) return node;
    if (other < 0) other = node;
  }
  return other;
}

static copse_status find_nvswitch(struct reader *r, const xmlNode *element, int *node) {
  const char *id = copse_nccl_type_name(COPSE_NCCL_NVSWITCH);
  int host = r->graph->n_hosts > 1 ? COPSE_NCCL_ALL_HOSTS : 0;
  if (r->nvswitch < 0)
    COPSE_DO(copse_nccl_add_node(r->graph, COPSE_NCCL_NVSWITCH, host, id, copse_xml_line(element),
                                 &r->nvswitch, r->err));
  *node = r->nvswitch;
  return COPSE_OK;
}

/* Reads all links of one element together, by the GPU's generation. */
static copse_status read_link_bandwidth(struct reader *r, const xmlNode *element,
                                        struct copse_q *out) {
  const struct copse_xml_int count_attribute = {"count", 0, 1, 1 << 20};
  const struct copse_xml_int sm_attribute = {"sm", 0, 1, 1 << 20};
  const xmlNode *gpu = element->parent;
  bool present = false;
  int64_t count = 0, sm = 0;
  struct copse_q one;
  COPSE_DO(copse_xml_get_int(r->xml, element, count_attribute, &count, &present, r->err));
  if (!present) return refuse(r, element, "a link without count");
  if (copse_xml_is(element, "xgmi")) {
    one = copse_nccl_xgmi(copse_xml_attribute(gpu, "gcn"));
    one = rate(r, COPSE_RATE_XGMI, one);
  } else {
    COPSE_DO(copse_xml_get_int(r->xml, gpu, sm_attribute, &sm, &present, r->err));
    if (!present)
      return refuse(r, gpu, "a <gpu> without sm, by which the bandwidth of its nvlinks goes");
    one = rate(r, COPSE_RATE_NVLINK, copse_nccl_nvlink(sm, copse_nccl_version(r->options)));
  }
  return copse_q_mul(one, (struct copse_q){count, 1}, out, r->err);
}

static copse_status read_nvlink(struct reader *r, const xmlNode *element,
                                const struct gpu_element *gpu) {
  int host = r->graph->nodes[gpu->node].host;
  const char *target = copse_xml_attribute(element, "target");
  const char *tclass = copse_xml_attribute(element, "tclass");
  long line = copse_xml_line(element);
  int to = target ? find_target(r, target, host) : -1;
  struct copse_q bandwidth;
  COPSE_DO(read_link_bandwidth(r, element, &bandwidth));
  if (to == gpu->node) { /* virtual machines of one NVLink domain report it */
    copse_nccl_note(r->graph, line, "a link from a GPU to itself is left out");
    return COPSE_OK;
  }
  r->hosts[host].has_links = true;
  if (to >= 0)
    return copse_nccl_add_link(r->graph, COPSE_NCCL_NVLINK, gpu->node, to, bandwidth, line, r->err);
  if (tclass && strcasecmp(tclass, "0x068000") == 0) {
    COPSE_DO(find_nvswitch(r, element, &to));
  } else if (tclass && strcasecmp(tclass, "0x068001") == 0) {
    to = gpu->cpu_node;
  } else {
    copse_nccl_note(r->graph, line, "a link to %.40s, which is no GPU of this file, is left out",
                    target ? target : "nothing");
    return COPSE_OK;
  }
  return add_duplex(r, element, COPSE_NCCL_NVLINK, gpu->node, to, bandwidth);
}

/* Reads a <c2c>, counted with PCIe: it leads to the CPU, and NVLink alone says whether GPUs are
 * joined. */
static copse_status read_c2c(struct reader *r, const xmlNode *element,
                             const struct gpu_element *gpu) {
  const struct copse_xml_int count_attribute = {"count", 0, 1, 1 << 20};
  const struct copse_xml_int bw_attribute = {"bw", 0, 1, INT32_MAX};
  struct copse_q bandwidth;
  bool has_count = false, has_bw = false;
  int64_t count = 0, bw = 0;
  COPSE_DO(copse_xml_get_int(r->xml, element, count_attribute, &count, &has_count, r->err));
  COPSE_DO(copse_xml_get_int(r->xml, element, bw_attribute, &bw, &has_bw, r->err));
  if (!has_count || !has_bw) return refuse(r, element, "a <c2c> without count and bw (MB/s)");
  COPSE_DO(copse_q_make(count * bw, 1000, &bandwidth, r->err));
  return add_duplex(r, element, COPSE_NCCL_PCI, gpu->node, gpu->cpu_node, bandwidth);
}

/* Reads the links of all GPUs that were found: NVLink, xGMI and C2C. */
static copse_status read_links(struct reader *r) {
  for (int i = 0; i < r->n_gpus; i++) {
    const struct gpu_element gpu = r->gpus[i];
    const xmlNode *e = gpu.element ? copse_xml_first(gpu.element) : NULL;
    for (; e; e = copse_xml_next(e)) {
      bool is_link = copse_xml_is(e, "nvlink") || copse_xml_is(e, "xgmi");
      COPSE_DO(is_link                  ? read_nvlink(r, e, &gpu)
               : copse_xml_is(e, "c2c") ? read_c2c(r, e, &gpu)
                                        : pass_over(r, e));
    }
  }
  return COPSE_OK;
}

/* Adds --nvlink-switch to hosts whose file shows no NVLink, as in a cloud's images. */
static copse_status add_switches(struct reader *r) {
  struct copse_q bandwidth = r->options->nvlink_switch;
  bool added = false;
  for (int i = 0; bandwidth.num > 0 && i < r->n_gpus; i++) {
    int gpu = r->gpus[i].node, host = r->graph->nodes[gpu].host;
    struct host *h = &r->hosts[host];
    if (h->has_links) continue;
    if (h->nvswitch < 0)
      COPSE_DO(add_node(r, copse_xml_root(r->xml), COPSE_NCCL_NVSWITCH, host, "", &h->nvswitch));
    COPSE_DO(
        copse_nccl_add_duplex(r->graph, COPSE_NCCL_NVLINK, gpu, h->nvswitch, bandwidth, 0, r->err));
    added = true;
  }
  if (bandwidth.num <= 0 || added) return COPSE_OK;
  return copse_fail_at(r->err, COPSE_BAD_INPUT, r->xml->file, 0,
                       "an NVLink switch was asked for, and the file has NVLinks of its own; "
                       "leave --nvlink-switch out");
}

/* Says one remark of a kind for the file. */
static void say(struct reader *r, const struct remark *remark, const char *key, const char *what) {
  char more[40] = "";
  const char *value = remark->n > 0 ? copse_xml_attribute(remark->first, key) : NULL;
  if (remark->n == 0) return;
  if (remark->n > 1) snprintf(more, sizeof more, " (and %d more)", remark->n - 1);
  copse_nccl_note(r->graph, copse_xml_line(remark->first), "%s=\"%.30s\"%s: %s", key,
                  value ? value : "", more, what);
}

static void say_remarks(struct reader *r) {
  say(r, &r->slower, "link_speed",
      "NCCL takes it for Gen3, half or less; it reads \"16 GT/s\" and \"16.0 GT/s PCIe\"");
  say(r, &r->speedless, "link_speed", "no speed that is known; Gen3 is assumed, as in NCCL");
  say(r, &r->portless, "speed", "a port of unknown speed; 10 Gb/s are assumed, as in NCCL");
}

/* ---- the file ----------------------------------------------------------------------- */

static copse_status check_root(const struct reader *r, const xmlNode *root) {
  const char *version = copse_xml_attribute(root, "version");
  if (!copse_xml_is(root, "system"))
    return refuse(r, root, "the root element is <%.40s>; an NCCL topology has <system>",
                  copse_xml_name(root));
  if (version && strcmp(version, "1") != 0 && strcmp(version, "2") != 0)
    return refuse(r, root, "unknown version \"%.20s\" of <system>; 1 and 2 are known", version);
  return COPSE_OK;
}

/* Whether a GPU or NIC stands within the element. Recursion is bounded by libxml2's limit on
 * nesting (256). */
static bool names_devices(const xmlNode *element) {
  for (const xmlNode *e = copse_xml_first(element); e; e = copse_xml_next(e))
    if (copse_xml_is(e, "gpu") || copse_xml_is(e, "nic") || names_devices(e)) return true;
  return false;
}

/* Reads what a file says of itself in a comment before its root: "description: ..", "source:
 * ..". */
static copse_status read_remark(struct reader *r, const char *key, const char **out) {
  size_t n = 0;
  const char *text = copse_xml_remark(r->xml, key, &n);
  if (!text) return COPSE_OK;
  *out = copse_arena_printf(&r->graph->arena, "%.*s", (int)n, text);
  return *out ? COPSE_OK : copse_fail_nomem(r->err);
}

static copse_status read_system(struct reader *r) {
  const xmlNode *root = copse_xml_root(r->xml);
  COPSE_DO(check_root(r, root));
  COPSE_DO(read_remark(r, "description", &r->graph->description));
  COPSE_DO(read_remark(r, "source", &r->graph->source));
  r->by_class = !names_devices(root);
  COPSE_DO(find_hosts(r, root));
  for (const xmlNode *e = copse_xml_first(root); e; e = copse_xml_next(e))
    COPSE_DO(copse_xml_is(e, "cpu") ? read_cpu(r, e) : pass_over(r, e));
  if (r->n_gpus == 0) return refuse(r, root, "no GPU; a topology needs at least one rank");
  COPSE_DO(join_cpus(r));
  COPSE_DO(read_links(r));
  say_remarks(r);
  return add_switches(r);
}

copse_status copse_read_nccl_xml(const struct copse_input *in, struct copse_topology **out,
                                 struct copse_err *err) {
  const struct copse_topology_options *options = in->options;
  COPSE_AT_END(copse_xml_free) struct copse_xml xml = {0};
  COPSE_AT_END(copse_index_map_free) struct copse_index_map host_hashes = {0}, devices = {0};
  COPSE_AT_END(copse_nccl_graph_free)
  struct copse_nccl_graph graph = {.file = in->label, .notes = options->notes};
  struct reader r = {.err = err,
                     .options = options,
                     .xml = &xml,
                     .graph = &graph,
                     .nvswitch = -1,
                     .host_hashes = &host_hashes,
                     .devices = &devices};
  *out = NULL;
  COPSE_DO(copse_xml_parse(in->label, in->data, in->size, &xml, err));
  copse_status status = read_system(&r);
  free(r.gpus);
  COPSE_DO(status);
  copse_note_unused_options(in, "XML", COPSE_USES_LINKS | COPSE_USES_NVLINK_SWITCH);
  return copse_nccl_build(&graph, options->links, out, err);
}
