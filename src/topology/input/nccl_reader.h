/*
 * Inside src/topology only: what the two parts of the reader of NCCL's XML share, the one that
 * finds devices and the one that reads the links of GPUs.
 */
#ifndef COPSE_TOPOLOGY_INPUT_NCCL_READER_H
#define COPSE_TOPOLOGY_INPUT_NCCL_READER_H

#include "topology/input/nccl_bandwidth.h"
#include "topology/input/nccl_graph.h"
#include "topology/input/profile.h"
#include "base/xml.h"

struct copse_nccl_host {
  const char *hash;
  char prefix[16]; /* of node ids; empty in a file of one host */
  int nvswitch;    /* node or -1 */
  bool has_links;  /* NVLink or xGMI between its GPUs */
  int first_cpu, n_cpus;
};

struct copse_nccl_cpu_element {
  int node, next; /* the next CPU of the host, or -1 */
  int64_t numaid;
  long line;
  struct copse_nccl_cpu model;
};

/* A GPU with its element, for the second pass that reads the links. */
struct copse_nccl_gpu_element {
  int node, cpu_node;
  uint64_t bus;
  const xmlNode *element; /* NULL: known by its class only */
};

struct copse_nccl_reader {
  struct copse_xml xml;
  struct copse_err *err;
  struct copse_nccl_graph graph;
  const struct copse_topology_options *options;
  bool by_class; /* a cloud image's file: no gpu or nic elements, the class tells */
  struct copse_nccl_host *hosts;
  struct copse_nccl_cpu_element *cpus;
  struct copse_nccl_gpu_element *gpus;
  size_t host_capacity, cpu_capacity, gpu_capacity;
  int n_cpus, n_gpus;
  struct copse_index_map host_hashes;
  struct copse_index_map devices;   /* by bus id: nodes */
  struct copse_index_map gpu_buses; /* by bus id: indices into gpus */
};

/* Fails with the element's line. */
copse_status copse_nccl_refuse(const struct copse_nccl_reader *r, const xmlNode *element,
                               const char *text) COPSE_CHECKED;

/*
 * An element that isn't read here. One that is known, only elsewhere, is misplaced: to pass
 * over a whole GPU in silence would give a wrong answer.
 */
copse_status copse_nccl_pass_over(struct copse_nccl_reader *r,
                                  const xmlNode *element) COPSE_CHECKED;

/*
 * "0000:C1:00.0" as a number, as NCCL compares them: case and leading zeros of the domain
 * don't matter. False for anything but hexadecimal digits, ':' and '.'.
 */
bool copse_nccl_parse_bus_id(const char *text, uint64_t *bus);

/* Adds a node called "<what>@<name>" (or just `what`) to a host. */
copse_status copse_nccl_xml_node(struct copse_nccl_reader *r, const xmlNode *element,
                                 struct copse_nccl_node node, const char *what, const char *name,
                                 int *index) COPSE_CHECKED;

/* The links of all GPUs that were found: NVLink, xGMI and C2C. */
copse_status copse_nccl_read_links(struct copse_nccl_reader *r) COPSE_CHECKED;

/* The user's word for hosts whose file shows no NVLink, as in a cloud's images. */
copse_status copse_nccl_add_switches(struct copse_nccl_reader *r) COPSE_CHECKED;

#endif
