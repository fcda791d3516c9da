/* How the processes of `copse run --backend ucx` find each other without a launcher: over TCP, at
 * an address that rank 0 listens at, or by a file that it writes the address into. */
#pragma once

#include "copse/comm.h"

struct copse_meeting {
  const char *where; /* HOST:PORT, or a file that all see */
  int n_ranks, rank;
  double timeout_seconds; /* for all to come, and for each all_gather */
};

struct copse_rendezvous;

/* Waits for all ranks. On an error `text` gets one line: who has not come (COPSE_TIMEOUT), who has
 * another number of ranks or comes twice (COPSE_INVALID), what the system says (COPSE_IO). The text
 * is kept for later errors too. */
copse_status copse_rendezvous_new(const struct copse_meeting *meeting,
                                  struct copse_rendezvous **out, char *text,
                                  size_t size) COPSE_CHECKED;
/* copse_bootstrap's; `rendezvous` is the context. */
copse_status copse_rendezvous_all_gather(void *rendezvous, const void *mine, void *all,
                                         size_t bytes);
void copse_rendezvous_free(struct copse_rendezvous *rendezvous);
