/*
 * Inside src/topology only: what a connection matrix leaves out. `nvidia-smi topo -m` and
 * `rocm-smi --showtopo` name kinds of connections, not speeds; those go by the class of GPU
 * and NCCL's constants for it (nccl_bandwidth.h), or by a profile.
 */
#ifndef COPSE_TOPOLOGY_INPUT_GPU_CLASS_H
#define COPSE_TOPOLOGY_INPUT_GPU_CLASS_H

#include <stdbool.h>

#include "base/rational.h"
#include "topology/input/profile.h"

struct copse_gpu_class {
  const char *name;
  bool amd;
  int max_links;           /* NVLinks or xGMI links of one GPU; 0: none */
  struct copse_q link;     /* GB/s of one of them */
  struct copse_q pcie;     /* its PCIe link, x16 */
  struct copse_q inter_cpu; /* between the sockets of the hosts it usually is in */
};

/* By a name such as "a100" or "NVIDIA A100-SXM4-80GB"; false for an unknown one. */
bool copse_gpu_class_find(const char *name, struct copse_gpu_class *out);
/* "p100, v100, ..." */
const char *copse_gpu_class_names(bool amd);

/* The speeds for one matrix, and a note of what was assumed. */
struct copse_matrix_rates {
  struct copse_q link, pcie, inter_cpu;
  int max_links;
};

/*
 * The class that the options name, else `guess`; over it the profile. Refuses an unknown
 * name and one of the other vendor. Notes what no file or option has said; own_links: the
 * file says what its links carry.
 */
copse_status copse_matrix_rates(const char *file, const struct copse_topology_options *options,
                                bool amd, bool own_links, const char *guess,
                                struct copse_matrix_rates *out,
                                struct copse_err *err) COPSE_CHECKED;

#endif
