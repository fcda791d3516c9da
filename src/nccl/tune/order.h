/*
 * The order of hosts, which is the order of ranks: NCCL's rings go from host to host in it, and its
 * trees join hosts by their numbers.
 */
#pragma once

#include "nccl/machine.h"

#define COPSE_NCCL_ORDER_MAX_HOSTS 2048

struct copse_nccl_order {
  bool matters;        /* some hosts are further apart than others */
  int *hosts;          /* [n_hosts] the machine's, in an order of few hops */
  int64_t given, best; /* links from host to host and back, as the topology has them; in `hosts` */
};

/*
 * Finds a short way through all hosts and back, by links between them: from each to the nearest
 * that is left, then parts turned round while that helps (2-opt; Croes 1958). Not proved the
 * shortest. Beyond COPSE_NCCL_ORDER_MAX_HOSTS, and where hosts aren't joined, the order is the
 * topology's. The arena owns hosts. COPSE_NOMEM. O(hosts * links).
 */
copse_status copse_nccl_order_hosts(const struct copse_nccl_machine *machine,
                                    struct copse_arena *arena, struct copse_nccl_order *out,
                                    struct copse_err *err) COPSE_CHECKED;
