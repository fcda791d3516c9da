/* How the processes of `copse run --backend ucx` find each other without a launcher: over TCP, at
 * an address that rank 0 listens at, or by a file that it writes the address into. */
#pragma once

#include "copse/comm.h"

struct copse_meeting {
  const char *where; /* HOST:PORT, or a file that all see */
  int n_ranks, rank;
  double timeout_seconds; /* for all to come, and for each all_gather */
};
