/* NVLink, xGMI and C2C of the GPUs in NCCL's and RCCL's topology XML. */
#include <string.h>
#include <strings.h>

#include "topology/input/nccl_reader.h"

/* The GPU with this bus id, in the same host if there is one; -1 if none. */
static int find_target(const struct copse_nccl_reader *r, const char *target, int host) {
  uint64_t bus;
  size_t cursor = 0;
  int other = -1;
  if (!copse_nccl_parse_bus_id(target, &bus)) return -1;
  for (;;) {
    int i = copse_index_map_next(&r->gpu_buses, bus, &cursor);
    if (i < 0) return other;
    int node = r->gpus[i].node;
    if (r->graph.nodes[node].host == host) return node;
    if (other < 0) other = node;
  }
}

static copse_status find_nvswitch(struct copse_nccl_reader *r, const xmlNode *element, int host,
                                  int *node) {
  struct copse_nccl_host *h = &r->hosts[host];
  const struct copse_nccl_node nvswitch = {.kind = COPSE_NCCL_NVSWITCH, .host = host, .rank = -1};
  copse_status status = COPSE_OK;
  if (h->nvswitch < 0)
    status = copse_nccl_xml_node(r, element, nvswitch, "nvswitch", "", &h->nvswitch);
  *node = h->nvswitch;
  return status;
}

/* All links of one element together, by the GPU's generation. */
static copse_status read_link_bandwidth(struct copse_nccl_reader *r, const xmlNode *element,
                                        struct copse_q *out) {
  const struct copse_xml_int count_attribute = {"count", 0, 1, 1 << 20};
  const struct copse_xml_int sm_attribute = {"sm", 0, 1, 1 << 20};
  const xmlNode *gpu = element->parent;
  bool present = false;
  int64_t count = 0, sm = 0;
  struct copse_q one;
  copse_status status;
  COPSE_TRY(copse_xml_get_int(&r->xml, element, count_attribute, &count, &present, r->err));
  if (!present) return copse_nccl_refuse(r, element, "a link without count");
  if (copse_xml_is(element, "xgmi")) {
    one = copse_nccl_xgmi(copse_xml_attribute(gpu, "gcn"));
    one = copse_profile_rate(r->options->profile, COPSE_RATE_XGMI, one);
  } else {
    COPSE_TRY(copse_xml_get_int(&r->xml, gpu, sm_attribute, &sm, &present, r->err));
    if (!present)
      return copse_nccl_refuse(r, gpu,
                               "a <gpu> without sm, by which the bandwidth of its nvlinks goes");
    one = copse_profile_rate(r->options->profile, COPSE_RATE_NVLINK, copse_nccl_nvlink(sm));
  }
  status = copse_q_mul(one, (struct copse_q){count, 1}, out, r->err);
out:
  return status;
}

static copse_status read_nvlink(struct copse_nccl_reader *r, const xmlNode *element,
                                const struct copse_nccl_gpu_element *gpu) {
  int host = r->graph.nodes[gpu->node].host;
  const char *target = copse_xml_attribute(element, "target");
  const char *tclass = copse_xml_attribute(element, "tclass");
  struct copse_nccl_link link = {
      .kind = COPSE_NCCL_NVLINK, .src = gpu->node, .line = copse_xml_line(element)};
  copse_status status;
  COPSE_TRY(read_link_bandwidth(r, element, &link.bandwidth));
  link.dst = target ? find_target(r, target, host) : -1;
  if (link.dst == gpu->node) { /* virtual machines of one NVLink domain report it */
    copse_nccl_note(&r->graph, link.line, "a link from a GPU to itself is left out");
    return COPSE_OK;
  }
  r->hosts[host].has_links = true;
  if (link.dst >= 0) return copse_nccl_add_link(&r->graph, &link, r->err);
  if (tclass && strcasecmp(tclass, "0x068000") == 0) {
    COPSE_TRY(find_nvswitch(r, element, host, &link.dst));
  } else if (tclass && strcasecmp(tclass, "0x068001") == 0) {
    link.dst = gpu->cpu_node;
  } else {
    copse_nccl_note(&r->graph, link.line,
                    "a link to %.40s, which is no GPU of this file, is left out",
                    target ? target : "nothing");
    return COPSE_OK;
  }
  status = copse_nccl_add_duplex(&r->graph, &link, r->err);
out:
  return status;
}

/* Counted with PCIe: it leads to the CPU, and NVLink alone says whether GPUs are joined. */
static copse_status read_c2c(struct copse_nccl_reader *r, const xmlNode *element,
                             const struct copse_nccl_gpu_element *gpu) {
  const struct copse_xml_int count_attribute = {"count", 0, 1, 1 << 20};
  const struct copse_xml_int bw_attribute = {"bw", 0, 1, INT32_MAX};
  struct copse_nccl_link link = {.kind = COPSE_NCCL_PCI,
                                 .src = gpu->node,
                                 .dst = gpu->cpu_node,
                                 .line = copse_xml_line(element)};
  bool has_count = false, has_bw = false;
  int64_t count = 0, bw = 0;
  copse_status status;
  COPSE_TRY(copse_xml_get_int(&r->xml, element, count_attribute, &count, &has_count, r->err));
  COPSE_TRY(copse_xml_get_int(&r->xml, element, bw_attribute, &bw, &has_bw, r->err));
  if (!has_count || !has_bw)
    return copse_nccl_refuse(r, element, "a <c2c> without count and bw (MB/s)");
  COPSE_TRY(copse_q_make(count * bw, 1000, &link.bandwidth, r->err));
  status = copse_nccl_add_duplex(&r->graph, &link, r->err);
out:
  return status;
}

copse_status copse_nccl_read_links(struct copse_nccl_reader *r) {
  copse_status status = COPSE_OK;
  for (int i = 0; i < r->n_gpus; i++) {
    const struct copse_nccl_gpu_element gpu = r->gpus[i];
    const xmlNode *e = gpu.element ? copse_xml_first(gpu.element) : NULL;
    for (; e; e = copse_xml_next(e)) {
      bool is_link = copse_xml_is(e, "nvlink") || copse_xml_is(e, "xgmi");
      COPSE_TRY(is_link                  ? read_nvlink(r, e, &gpu)
                : copse_xml_is(e, "c2c") ? read_c2c(r, e, &gpu)
                                         : copse_nccl_pass_over(r, e));
    }
  }
out:
  return status;
}

copse_status copse_nccl_add_switches(struct copse_nccl_reader *r) {
  struct copse_nccl_link link = {.kind = COPSE_NCCL_NVLINK, .bandwidth = r->options->nvlink_switch};
  bool added = false;
  copse_status status = COPSE_OK;
  for (int i = 0; link.bandwidth.num > 0 && i < r->n_gpus; i++) {
    const struct copse_nccl_node *gpu = &r->graph.nodes[r->gpus[i].node];
    const struct copse_nccl_node nvswitch = {
        .kind = COPSE_NCCL_NVSWITCH, .host = gpu->host, .rank = -1};
    struct copse_nccl_host *host = &r->hosts[gpu->host];
    if (host->has_links) continue;
    if (host->nvswitch < 0)
      COPSE_TRY(copse_nccl_xml_node(r, copse_xml_root(&r->xml), nvswitch, "nvswitch", "",
                                    &host->nvswitch));
    link.src = r->gpus[i].node;
    link.dst = host->nvswitch;
    COPSE_TRY(copse_nccl_add_duplex(&r->graph, &link, r->err));
    added = true;
  }
  if (link.bandwidth.num > 0 && !added)
    status = copse_fail_at(r->err, COPSE_BAD_INPUT, r->xml.file, 0,
                           "an NVLink switch was asked for, and the file has NVLinks of its own; "
                           "leave --nvlink-switch out");
out:
  return status;
}
