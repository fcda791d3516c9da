/*
 * NCCL's and RCCL's topology XML. The meaning of elements follows NCCL's src/graph/topo.cc,
 * as far as CONTRACT section 2 says.
 *
 *   <system version>                      one file: one or more hosts
 *     <cpu numaid host_hash arch ..>      a NUMA node; host_hash tells hosts apart
 *       <nic><net/></nic>                 a NIC without a PCI device
 *       <pci busid class link_speed ..>   a bridge of further <pci>, or a device:
 *         <gpu rank sm gcn>               a GPU
 *           <nvlink target count tclass/> its links; RCCL says <xgmi>
 *           <c2c bw count/>             to its CPU (Grace); bw is MB/s of one
 *         <nic><net name speed/></nic>    a NIC and its ports
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "topology/input/nccl_reader.h"
#include "topology/builder.h"

/* Links between all of a host's CPUs are many; no machine has as many NUMA nodes. */
#define MAX_CPUS_PER_HOST 1024

/* Where a <pci> or <nic> hangs. */
struct place {
  int parent, cpu_node, host;
};

copse_status copse_nccl_refuse(const struct copse_nccl_reader *r, const xmlNode *element,
                               const char *text) {
  return copse_fail_at(r->err, COPSE_BAD_INPUT, r->xml.file, copse_xml_line(element), "%s", text);
}

static void note_unknown(struct copse_nccl_reader *r, const xmlNode *element) {
  copse_nccl_note(&r->graph, copse_xml_line(element), "<%.40s> in <%.40s> is left out",
                  copse_xml_name(element), copse_xml_name(element->parent));
}

copse_status copse_nccl_pass_over(struct copse_nccl_reader *r, const xmlNode *element) {
  static const char *const known[] = {"system", "cpu", "pci",    "gpu", "nic",
                                      "net",    "c2c", "nvlink", "xgmi"};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (copse_xml_is(element, known[i]))
      return copse_fail_at(r->err, COPSE_BAD_INPUT, r->xml.file, copse_xml_line(element),
                           "<%s> inside of <%s>, where NCCL has none", known[i],
                           copse_xml_name(element->parent));
  note_unknown(r, element);
  return COPSE_OK;
}

/* ---- bus ids ------------------------------------------------------------------------ */

bool copse_nccl_parse_bus_id(const char *text, uint64_t *bus) {
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

/* A <pci>'s own bus id, lower-cased into the graph's arena. */
static copse_status read_bus_id(struct copse_nccl_reader *r, const xmlNode *pci, const char **text,
                                uint64_t *bus) {
  const char *raw = copse_xml_attribute(pci, "busid");
  if (!raw) return copse_nccl_refuse(r, pci, "a <pci> without busid");
  if (!copse_nccl_parse_bus_id(raw, bus))
    return copse_fail_at(r->err, COPSE_BAD_INPUT, r->xml.file, copse_xml_line(pci),
                         "busid=\"%.40s\" is not a PCI bus id such as \"0000:c1:00.0\"", raw);
  char *lower = copse_arena_strdup(&r->graph.arena, raw);
  if (!lower) return copse_fail_nomem(r->err);
  for (char *p = lower; *p; p++)
    if (*p >= 'A' && *p <= 'Z') *p = (char)(*p + 32);
  *text = lower;
  return COPSE_OK;
}

/* ---- nodes -------------------------------------------------------------------------- */

copse_status copse_nccl_xml_node(struct copse_nccl_reader *r, const xmlNode *element,
                                 struct copse_nccl_node node, const char *what, const char *name,
                                 int *index) {
  size_t bytes = strlen(what) + strlen(name) + 2;
  char *id = copse_arena_alloc(&r->graph.arena, bytes, 1);
  if (!id) return copse_fail_nomem(r->err);
  snprintf(id, bytes, "%s%s%s", what, name[0] ? "@" : "", name);
  node.id = id;
  node.line = copse_xml_line(element);
  return copse_nccl_add_node(&r->graph, r->hosts[node.host].prefix, &node, index, r->err);
}

/* A GPU or NIC: another device of the same host with its bus id is an error. */
static copse_status add_device(struct copse_nccl_reader *r, const xmlNode *pci,
                               struct copse_nccl_node node, const char *what, int *index) {
  const char *text = NULL;
  uint64_t bus = 0;
  size_t cursor = 0;
  copse_status status;
  COPSE_TRY(read_bus_id(r, pci, &text, &bus));
  for (;;) {
    int twin = copse_index_map_next(&r->devices, bus, &cursor);
    if (twin < 0) break;
    if (r->graph.nodes[twin].host != node.host) continue;
    return copse_fail_at(r->err, COPSE_BAD_INPUT, r->xml.file, copse_xml_line(pci),
                         "bus id %.40s twice (first on line %ld); each device needs its own", text,
                         r->graph.nodes[twin].line);
  }
  COPSE_TRY(copse_nccl_xml_node(r, pci, node, what, text, index));
  status = copse_index_map_add(&r->devices, bus, *index, r->err);
out:
  return status;
}

/* The PCIe link of a <pci> to what it hangs below. */
static copse_status join_parent(struct copse_nccl_reader *r, const xmlNode *pci, int node,
                                int parent) {
  const struct copse_xml_int width = {"link_width", 0, 0, 1 << 20};
  struct copse_nccl_link link = {COPSE_NCCL_PCI,      node, parent, COPSE_Q_ZERO,
                                 copse_xml_line(pci), false};
  int64_t lanes = 0;
  copse_status status;
  COPSE_TRY(copse_xml_get_int(&r->xml, pci, width, &lanes, NULL, r->err));
  COPSE_TRY(copse_nccl_pci(lanes, copse_xml_attribute(pci, "link_speed"), &link.bandwidth, r->err));
  link.bandwidth = copse_profile_rate(r->options->profile, COPSE_RATE_PCIE, link.bandwidth);
  status = copse_nccl_add_duplex(&r->graph, &link, r->err);
out:
  return status;
}

/* ---- NICs and their ports ----------------------------------------------------------- */

static copse_status read_net(struct copse_nccl_reader *r, const xmlNode *net, int nic) {
  const struct copse_xml_int speed = {"speed", 0, INT32_MIN, INT32_MAX};
  struct copse_nccl_node node = {
      .kind = COPSE_NCCL_NET_PORT, .host = r->graph.nodes[nic].host, .rank = -1};
  struct copse_nccl_link link = {.kind = COPSE_NCCL_NET, .src = nic, .line = copse_xml_line(net)};
  const char *name = copse_xml_attribute(net, "name");
  int64_t mbps = 0;
  copse_status status;
  if (!name || !name[0]) name = copse_xml_attribute(net, "dev");
  if (!name || !name[0]) name = "unnamed";
  COPSE_TRY(copse_xml_get_int(&r->xml, net, speed, &mbps, NULL, r->err));
  COPSE_TRY(copse_nccl_net(mbps, &link.bandwidth, r->err));
  link.bandwidth = copse_profile_rate(r->options->profile, COPSE_RATE_NET, link.bandwidth);
  COPSE_TRY(copse_nccl_xml_node(r, net, node, "net", name, &link.dst));
  COPSE_TRY(copse_nccl_add_duplex(&r->graph, &link, r->err));
  for (const xmlNode *child = copse_xml_first(net); child; child = copse_xml_next(child))
    COPSE_TRY(copse_nccl_pass_over(r, child));
out:
  return status;
}

static copse_status read_nets(struct copse_nccl_reader *r, const xmlNode *nic_element, int nic) {
  copse_status status = COPSE_OK;
  for (const xmlNode *e = copse_xml_first(nic_element); e; e = copse_xml_next(e))
    COPSE_TRY(copse_xml_is(e, "net") ? read_net(r, e, nic) : copse_nccl_pass_over(r, e));
out:
  return status;
}

static copse_status read_pci_nic(struct copse_nccl_reader *r, const xmlNode *pci,
                                 const struct place *at) {
  struct copse_nccl_node node = {.kind = COPSE_NCCL_NIC, .host = at->host, .rank = -1};
  int nic = -1;
  copse_status status;
  COPSE_TRY(add_device(r, pci, node, "nic", &nic));
  COPSE_TRY(join_parent(r, pci, nic, at->parent));
  for (const xmlNode *e = copse_xml_first(pci); e; e = copse_xml_next(e))
    COPSE_TRY(copse_xml_is(e, "nic") ? read_nets(r, e, nic) : copse_nccl_pass_over(r, e));
out:
  return status;
}

/* A virtual NIC, or one whose PCI device the host doesn't show. */
static copse_status read_cpu_nic(struct copse_nccl_reader *r, const xmlNode *element,
                                 const struct copse_nccl_cpu_element *cpu) {
  int host = r->graph.nodes[cpu->node].host;
  struct copse_nccl_node node = {.kind = COPSE_NCCL_NIC, .host = host, .rank = -1};
  struct copse_nccl_link link = {.kind = COPSE_NCCL_PCI,
                                 .dst = cpu->node,
                                 .bandwidth = COPSE_NCCL_LOCAL,
                                 .line = copse_xml_line(element)};
  char name[32];
  copse_status status;
  snprintf(name, sizeof name, "cpu%lld", (long long)cpu->numaid);
  COPSE_TRY(copse_nccl_xml_node(r, element, node, "nic", name, &link.src));
  COPSE_TRY(copse_nccl_add_duplex(&r->graph, &link, r->err));
  status = read_nets(r, element, link.src);
out:
  return status;
}

/* ---- GPUs and bridges --------------------------------------------------------------- */

static copse_status read_gpu(struct copse_nccl_reader *r, const xmlNode *pci,
                             const xmlNode *element, const struct place *at) {
  const struct copse_xml_int rank_attribute = {"rank", -1, INT32_MIN, INT32_MAX};
  struct copse_nccl_node node = {.kind = COPSE_NCCL_GPU, .host = at->host};
  struct copse_nccl_gpu_element gpu = {.cpu_node = at->cpu_node, .element = element};
  const char *text = NULL;
  int64_t rank = -1;
  copse_status status;
  size_t n = (size_t)r->n_gpus;
  for (const xmlNode *e = copse_xml_first(pci); e; e = copse_xml_next(e)) {
    if (copse_xml_is(e, "gpu") && e != element)
      return copse_nccl_refuse(r, e,
                               "a second <gpu> in one <pci>; each GPU has a bus id of its own");
    if (e != element) COPSE_TRY(copse_nccl_pass_over(r, e));
  }
  if (element) COPSE_TRY(copse_xml_get_int(&r->xml, element, rank_attribute, &rank, NULL, r->err));
  node.rank = rank < 0 ? -1 : (int)rank;
  COPSE_TRY(add_device(r, pci, node, "gpu", &gpu.node));
  COPSE_TRY(join_parent(r, pci, gpu.node, at->parent));
  COPSE_TRY(read_bus_id(r, pci, &text, &gpu.bus));
  COPSE_TRY(copse_grow(&r->gpus, &r->gpu_capacity, n + 1, sizeof *r->gpus, r->err));
  r->gpus[r->n_gpus++] = gpu;
  status = copse_index_map_add(&r->gpu_buses, gpu.bus, (int)n, r->err);
out:
  return status;
}

static copse_status read_pci(struct copse_nccl_reader *r, const xmlNode *pci,
                             const struct place *at);

/* Some real dumps give the bridges below a switch all the same bus id: each is one. */
static copse_status read_bridge(struct copse_nccl_reader *r, const xmlNode *pci,
                                const struct place *at) {
  struct copse_nccl_node node = {.kind = COPSE_NCCL_BRIDGE, .host = at->host, .rank = -1};
  struct place below = *at;
  const char *text = NULL;
  uint64_t bus = 0;
  copse_status status;
  COPSE_TRY(read_bus_id(r, pci, &text, &bus));
  COPSE_TRY(copse_nccl_xml_node(r, pci, node, "pcie", text, &below.parent));
  COPSE_TRY(join_parent(r, pci, below.parent, at->parent));
  for (const xmlNode *e = copse_xml_first(pci); e; e = copse_xml_next(e))
    COPSE_TRY(copse_xml_is(e, "pci") ? read_pci(r, e, &below) : copse_nccl_pass_over(r, e));
out:
  return status;
}

static bool has_class(const xmlNode *pci, const char *start) {
  const char *text = copse_xml_attribute(pci, "class");
  return text && strncasecmp(text, start, strlen(start)) == 0;
}

/* What an element holds says more than its class: an MI300X is no display controller. */
static copse_status read_pci(struct copse_nccl_reader *r, const xmlNode *pci,
                             const struct place *at) {
  const xmlNode *gpu = copse_xml_child(pci, "gpu");
  const xmlNode *nic = copse_xml_child(pci, "nic");
  if (gpu && nic)
    return copse_nccl_refuse(r, pci, "a <pci> with both a <gpu> and a <nic>; it is one device");
  if (gpu) return read_gpu(r, pci, gpu, at);
  if (nic) return read_pci_nic(r, pci, at);
  if (has_class(pci, "0x0604")) return read_bridge(r, pci, at);
  if (r->by_class && (has_class(pci, "0x03") || has_class(pci, "0x12")))
    return read_gpu(r, pci, NULL, at);
  if (r->by_class && has_class(pci, "0x02")) return read_pci_nic(r, pci, at);
  if (copse_xml_child(pci, "pci")) return read_bridge(r, pci, at);
  const char *class = copse_xml_attribute(pci, "class");
  copse_nccl_note(&r->graph, copse_xml_line(pci),
                  "a PCI device of class \"%.20s\" that is no GPU, NIC or bridge is left out",
                  class ? class : "");
  return COPSE_OK;
}

/* ---- CPUs and hosts ----------------------------------------------------------------- */

static const char *host_hash(const xmlNode *cpu) {
  const char *hash = copse_xml_attribute(cpu, "host_hash");
  return hash ? hash : "";
}

static int find_host(const struct copse_nccl_reader *r, const char *hash) {
  size_t cursor = 0;
  uint64_t key = copse_key_text(hash);
  for (;;) {
    int h = copse_index_map_next(&r->host_hashes, key, &cursor);
    if (h < 0 || strcmp(r->hosts[h].hash, hash) == 0) return h;
  }
}

static copse_status find_hosts(struct copse_nccl_reader *r, const xmlNode *root) {
  copse_status status = COPSE_OK;
  for (const xmlNode *e = copse_xml_first(root); e; e = copse_xml_next(e)) {
    if (!copse_xml_is(e, "cpu") || find_host(r, host_hash(e)) >= 0) continue;
    int n = r->graph.n_hosts;
    COPSE_TRY(copse_grow(&r->hosts, &r->host_capacity, (size_t)n + 1, sizeof *r->hosts, r->err));
    r->hosts[n] = (struct copse_nccl_host){.hash = host_hash(e), .nvswitch = -1, .first_cpu = -1};
    COPSE_TRY(copse_index_map_add(&r->host_hashes, copse_key_text(host_hash(e)), n, r->err));
    r->graph.n_hosts++;
  }
  for (int h = 0; r->graph.n_hosts > 1 && h < r->graph.n_hosts; h++)
    snprintf(r->hosts[h].prefix, sizeof r->hosts[h].prefix, "h%d.", h);
out:
  return status;
}

static copse_status read_cpu_attributes(struct copse_nccl_reader *r, const xmlNode *element,
                                        struct copse_nccl_cpu_element *cpu) {
  const struct copse_xml_int numaid = {"numaid", 0, INT32_MIN, INT32_MAX};
  const struct copse_xml_int family = {"familyid", -1, INT32_MIN, INT32_MAX};
  const struct copse_xml_int model = {"modelid", -1, INT32_MIN, INT32_MAX};
  bool present = false;
  copse_status status;
  COPSE_TRY(copse_xml_get_int(&r->xml, element, numaid, &cpu->numaid, &present, r->err));
  if (!present) return copse_nccl_refuse(r, element, "a <cpu> without numaid");
  cpu->line = copse_xml_line(element);
  cpu->model.arch = copse_xml_attribute(element, "arch");
  cpu->model.vendor = copse_xml_attribute(element, "vendor");
  COPSE_TRY(copse_xml_get_int(&r->xml, element, family, &cpu->model.family, NULL, r->err));
  status = copse_xml_get_int(&r->xml, element, model, &cpu->model.model, NULL, r->err);
out:
  return status;
}

/* Puts a CPU into its host's list, where each numaid occurs once. */
static copse_status add_cpu(struct copse_nccl_reader *r, const xmlNode *element,
                            struct copse_nccl_cpu_element *cpu, int host) {
  struct copse_nccl_node node = {.kind = COPSE_NCCL_CPU, .host = host, .rank = -1};
  size_t n = (size_t)r->n_cpus;
  char name[32];
  copse_status status;
  for (int i = r->hosts[host].first_cpu; i >= 0; i = r->cpus[i].next)
    if (r->cpus[i].numaid == cpu->numaid)
      return copse_fail_at(r->err, COPSE_BAD_INPUT, r->xml.file, cpu->line,
                           "numaid %lld twice in a host (first on line %ld); each <cpu> needs "
                           "its own",
                           (long long)cpu->numaid, r->cpus[i].line);
  if (r->hosts[host].n_cpus == MAX_CPUS_PER_HOST)
    return copse_nccl_refuse(r, element, "more than 1024 <cpu> in a host");
  snprintf(name, sizeof name, "%lld", (long long)cpu->numaid);
  COPSE_TRY(copse_nccl_xml_node(r, element, node, "cpu", name, &cpu->node));
  COPSE_TRY(copse_grow(&r->cpus, &r->cpu_capacity, n + 1, sizeof *r->cpus, r->err));
  cpu->next = r->hosts[host].first_cpu;
  r->hosts[host].first_cpu = (int)n;
  r->hosts[host].n_cpus++;
  r->cpus[r->n_cpus++] = *cpu;
out:
  return status;
}

static copse_status read_cpu(struct copse_nccl_reader *r, const xmlNode *element) {
  struct copse_nccl_cpu_element cpu = {.next = -1};
  int host = find_host(r, host_hash(element));
  copse_status status;
  COPSE_TRY(read_cpu_attributes(r, element, &cpu));
  COPSE_TRY(add_cpu(r, element, &cpu, host));
  struct place at = {cpu.node, cpu.node, host};
  for (const xmlNode *e = copse_xml_first(element); e; e = copse_xml_next(e)) {
    if (copse_xml_is(e, "pci"))
      COPSE_TRY(read_pci(r, e, &at));
    else if (copse_xml_is(e, "nic"))
      COPSE_TRY(read_cpu_nic(r, e, &cpu));
    else
      COPSE_TRY(copse_nccl_pass_over(r, e));
  }
out:
  return status;
}

/* Every CPU to every other one of its host, each direction as its source's kind has it. */
static copse_status join_cpus(struct copse_nccl_reader *r) {
  copse_status status = COPSE_OK;
  for (int a = 0; a < r->n_cpus; a++) {
    const struct copse_nccl_cpu_element *from = &r->cpus[a];
    int host = r->graph.nodes[from->node].host;
    for (int b = r->hosts[host].first_cpu; b >= 0; b = r->cpus[b].next) {
      struct copse_q bandwidth = copse_profile_rate(r->options->profile, COPSE_RATE_INTER_CPU,
                                                    copse_nccl_inter_cpu(&from->model));
      struct copse_nccl_link link = {COPSE_NCCL_SYS, from->node, r->cpus[b].node,
                                     bandwidth,      from->line, false};
      if (a != b) COPSE_TRY(copse_nccl_add_link(&r->graph, &link, r->err));
    }
  }
out:
  return status;
}

/* ---- the file ----------------------------------------------------------------------- */

static copse_status check_root(const struct copse_nccl_reader *r, const xmlNode *root) {
  const char *version = copse_xml_attribute(root, "version");
  if (!copse_xml_is(root, "system"))
    return copse_fail_at(r->err, COPSE_BAD_INPUT, r->xml.file, copse_xml_line(root),
                         "the root element is <%.40s>; an NCCL topology has <system>",
                         copse_xml_name(root));
  if (version && strcmp(version, "1") != 0 && strcmp(version, "2") != 0)
    return copse_fail_at(r->err, COPSE_BAD_INPUT, r->xml.file, copse_xml_line(root),
                         "unknown version \"%.20s\" of <system>; 1 and 2 are known", version);
  return COPSE_OK;
}

/* Recursion is bounded by libxml2's limit on nesting (256). */
static bool names_devices(const xmlNode *element) {
  for (const xmlNode *e = copse_xml_first(element); e; e = copse_xml_next(e))
    if (copse_xml_is(e, "gpu") || copse_xml_is(e, "nic") || names_devices(e)) return true;
  return false;
}

/* A file may say what it is in a comment before its root: "description: ..", "source: ..". */
static copse_status read_remark(struct copse_nccl_reader *r, const char *key, const char **out) {
  size_t n = 0;
  const char *text = copse_xml_remark(&r->xml, key, &n);
  if (!text) return COPSE_OK;
  char *copy = copse_arena_alloc(&r->graph.arena, n + 1, 1);
  if (!copy) return copse_fail_nomem(r->err);
  memcpy(copy, text, n);
  *out = copy;
  return COPSE_OK;
}

static copse_status read_system(struct copse_nccl_reader *r) {
  const xmlNode *root = copse_xml_root(&r->xml);
  copse_status status;
  COPSE_TRY(check_root(r, root));
  COPSE_TRY(read_remark(r, "description", &r->graph.description));
  COPSE_TRY(read_remark(r, "source", &r->graph.source));
  r->by_class = !names_devices(root);
  COPSE_TRY(find_hosts(r, root));
  for (const xmlNode *e = copse_xml_first(root); e; e = copse_xml_next(e))
    COPSE_TRY(copse_xml_is(e, "cpu") ? read_cpu(r, e) : copse_nccl_pass_over(r, e));
  if (r->n_gpus == 0)
    return copse_nccl_refuse(r, root, "no GPU; a topology needs at least one rank");
  COPSE_TRY(join_cpus(r));
  COPSE_TRY(copse_nccl_read_links(r));
  status = copse_nccl_add_switches(r);
out:
  return status;
}

copse_status copse_read_nccl_xml(const char *label, const char *data, size_t size,
                                 const struct copse_topology_options *options,
                                 struct copse_topology **out, struct copse_err *err) {
  struct copse_nccl_reader r = {
      .err = err, .options = options, .graph = {.file = label, .notes = options->notes}};
  copse_status status;
  *out = NULL;
  COPSE_TRY(copse_xml_parse(label, data, size, &r.xml, err));
  COPSE_TRY(read_system(&r));
  copse_note_unheeded(label, "XML", COPSE_HEEDS_LINKS | COPSE_HEEDS_NVLINK_SWITCH, options);
  COPSE_TRY(copse_nccl_select(&r.graph, options->links, err));
  status = copse_nccl_build(&r.graph, out, err);
out:
  copse_xml_free(&r.xml);
  copse_nccl_graph_free(&r.graph);
  copse_index_map_free(&r.host_hashes);
  copse_index_map_free(&r.devices);
  copse_index_map_free(&r.gpu_buses);
  free(r.hosts);
  free(r.cpus);
  free(r.gpus);
  return status;
}
