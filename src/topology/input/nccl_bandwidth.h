/*
 * Inside src/topology only: the bandwidths that NCCL and RCCL take links to have, as exact
 * rationals in GB/s. Source: NVIDIA/nccl src/graph/topo.h and topo.cc (2.20 and later, with
 * Blackwell's NVLink from 2.26), ROCm/rccl src/graph/topo.h.
 */
#ifndef COPSE_TOPOLOGY_INPUT_NCCL_BANDWIDTH_H
#define COPSE_TOPOLOGY_INPUT_NCCL_BANDWIDTH_H

#include <stdint.h>

#include "base/rational.h"

/* One NVLink of a GPU of this compute capability (80: sm_80). */
struct copse_q copse_nccl_nvlink(int64_t sm);

/* One xGMI link by gcn: "906", "910", "gfx90a", "gfx942:sramecc+"; NULL like an unknown one. */
struct copse_q copse_nccl_xgmi(const char *gcn);

/* A PCIe link: `width` lanes (0 means 16) of link_speed "16.0 GT/s PCIe" (NULL: unknown). */
copse_status copse_nccl_pci(int64_t width, const char *link_speed, struct copse_q *out,
                            struct copse_err *err) COPSE_CHECKED;

/* A network port of `mbps` Mb/s; 0 and less (unknown) mean 10000. */
copse_status copse_nccl_net(int64_t mbps, struct copse_q *out, struct copse_err *err) COPSE_CHECKED;

/* What the <cpu> element says of itself; texts may be NULL, numbers -1 where unknown. */
struct copse_nccl_cpu {
  const char *arch, *vendor;
  int64_t family, model;
};

/* From this CPU (NUMA node) to another of its host. */
struct copse_q copse_nccl_inter_cpu(const struct copse_nccl_cpu *cpu);

/* What joins a NIC without a PCI device to its CPU: no limit to speak of. */
#define COPSE_NCCL_LOCAL ((struct copse_q){5000, 1})

#endif
