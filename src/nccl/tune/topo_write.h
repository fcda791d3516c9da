/*
 * Topology XML that NCCL reads (NCCL_TOPO_FILE) as it is meant: of a topology of ours, or of XML
 * that is there, with what NCCL would misread mended.
 */
#pragma once

#include "base/err.h"
#include "topology/topology.h"

struct copse_nccl_topo_options {
  int sm;                          /* of the GPUs where their nodes say none; 0: by their NVLinks */
  const struct copse_notes *notes; /* what NCCL takes for something else; may be NULL */
};

/*
 * Writes the XML of one host: the nodes whose ids begin with "h0.", or, where no id names a host,
 * all. NCCL knows links by kind: NVLinks by count and compute capability, PCIe by generation and
 * lanes, CPUs by model. Each link is stated by what NCCL counts as the same, or the nearest;
 * bandwidths that NCCL counts otherwise are a remark. PCIe and CPUs that the topology leaves out
 * (--links nvlink) are made up, and so are bus ids where the nodes' ids hold none: such a file is
 * for NCCL's search elsewhere, on the machine NCCL drops what it does not find.
 *
 * Refuses, naming the node, what NCCL has no words for: a second way up in PCIe, several
 * NVSwitches, links that differ in their directions other than between GPUs, more than 256
 * elements. COPSE_UNSUPPORTED, COPSE_NOMEM. The caller frees *text with free().
 */
copse_status copse_nccl_topo_write(const struct copse_topology *topology,
                                   const struct copse_nccl_topo_options *options, char **text,
                                   size_t *size, struct copse_err *err) COPSE_CHECKED;

/* Returns the least compute capability of the GPUs: what the nodes say, else by their NVLinks, else
 * 80. */
int copse_nccl_topo_sm(const struct copse_topology *topology);

/*
 * Writes NCCL's or RCCL's topology XML as it stands, in NCCL's syntax (no comments, tabs, other
 * encodings) and mends what NCCL misreads, each with a remark: link speeds that it takes for Gen3,
 * "aarch64", a bus id in capitals, elements marked "keep" that keep devices which are not there.
 * COPSE_BAD_INPUT for XML that is none, COPSE_UNSUPPORTED for several hosts, or beyond NCCL's
 * limits. The caller frees *text.
 */
copse_status copse_nccl_topo_mend(const char *label, const char *data, size_t size,
                                  const struct copse_notes *notes, char **text, size_t *out_size,
                                  struct copse_err *err) COPSE_CHECKED;
