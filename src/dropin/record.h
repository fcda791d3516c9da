/* What a rank sends all others when a communicator is made. Sent between ranks as it is: 128 bytes
 * in every version, which begin with it. */
#pragma once

#include <stdint.h>

struct copse_nccl_record {
  uint32_t version;
  uint32_t trouble;    /* enum copse_nccl_trouble */
  uint64_t process[2]; /* the same for the ranks of one process, else different */
  uint64_t number;     /* a random number; rank 0's names the communicator */
  int32_t device;
  uint32_t n_plans;   /* in the folder, for this number of ranks */
  uint32_t exchanges; /* COPSE_NCCL_ALLTOALL=1 */
  uint32_t zero[3];
  uint8_t folder[32];              /* a checksum of the names and contents of its plans */
  uint64_t host;                   /* the same for all processes of a host; for the log */
  uint64_t graph;                  /* a checksum of NCCL's graph file (join.h); 0: none */
  uint32_t graph_gpus, graph_nets; /* GPUs of a host in it; whether it has NICs */
  uint8_t unused[16];
};
