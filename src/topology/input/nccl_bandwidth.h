/*
 * Inside src/topology only: the bandwidths that NCCL and RCCL take links to have, as exact
 * rationals in GB/s. Source: NVIDIA/nccl src/graph/topo.h and topo.cc (2.18 to 2.31: where versions
 * differ, --nccl-version says which), ROCm/rccl src/graph/topo.h. Connection matrices name kinds of
 * connections, not speeds: those go by the class of GPU and the same constants, or by a profile.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/rational.h"
#include "topology/input/nccl_graph.h"
#include "topology/input/profile.h"

/* 2.30.7, whose constants count where no version is named. */
#define COPSE_NCCL_USUAL 23007
/* Returns the version that the options name (22705 is 2.27.5), else the usual one. */
int copse_nccl_version(const struct copse_topology_options *options);

/* Returns the GB/s of one NVLink of a GPU of this compute capability (80: sm_80). */
struct copse_q copse_nccl_nvlink(int64_t sm, int version);

/* Returns the GB/s of one xGMI link by gcn: "906", "910", "gfx90a", "gfx942:sramecc+"; NULL like an
 * unknown one. */
struct copse_q copse_nccl_xgmi(const char *gcn);

/* Computes the GB/s of a PCIe link: `width` lanes (0 means 16) of link_speed "16.0 GT/s PCIe"
 * (NULL: unknown). */
copse_status copse_nccl_pci(int64_t width, const char *link_speed, struct copse_q *out,
                            struct copse_err *err) COPSE_CHECKED;

/* Whether NCCL takes such a speed for Gen3 although it is more: it knows "16 GT/s" and "16.0 GT/s
 * PCIe", not "16.0 GT/s". */
bool copse_nccl_reads_slower(const char *link_speed);
/* Whether this is the speed of a generation; else Gen3 is assumed. */
bool copse_nccl_knows_speed(const char *link_speed);

/* Computes the GB/s of a network port of `mbps` Mb/s; 0 and less (unknown) mean 10000. */
static inline copse_status copse_nccl_net(int64_t mbps, struct copse_q *out,
                                          struct copse_err *err) {
  return copse_q_make(mbps <= 0 ? 10000 : mbps, 8000, out, err);
}

/* Attributes of a <cpu>; texts may be NULL, numbers are -1 where unknown. */
struct copse_nccl_cpu {
  const char *arch, *vendor;
  int64_t family, model;
};

/* Returns the GB/s from this CPU (NUMA node) to another of its host. */
struct copse_q copse_nccl_inter_cpu(const struct copse_nccl_cpu *cpu, int version);

/* Between a NIC without a PCI device and its CPU: more than any link has. */
#define COPSE_NCCL_LOCAL ((struct copse_q){5000, 1})

/* The speeds for one matrix, and a note of what was assumed. */
struct copse_matrix_rates {
  struct copse_q link, pcie, inter_cpu;
  enum copse_guess guess[COPSE_NCCL_LINK_KINDS]; /* by kind of link */
  int max_links;
};

/*
 * Finds the rates of the class that the options name, else of `guess`; over it the profile.
 * Refuses an unknown name and one of the other vendor. Notes what no file or option has said;
 * own_links: the file says what its links carry.
 */
copse_status copse_matrix_rates(const char *file, const struct copse_topology_options *options,
                                bool amd, bool own_links, const char *guess,
                                struct copse_matrix_rates *out,
                                struct copse_err *err) COPSE_CHECKED;
