/* The transport: all_gather, every rank to every other. For what is said once a plan or a row. */
#include <stdlib.h>
#include <string.h>

#include "runtime/transport/internal.h"

/* The first part of a rank, if it has come. */
static bool take_part(struct copse_transport *transport, uint32_t r, void *part, size_t bytes) {
  struct copse_messages *gathered = &transport->peers[r].gathered;
  struct copse_message *it = gathered->head;
  if (!it) return false;
  gathered->head = it->next;
  if (!gathered->head) gathered->tail = &gathered->head;
  if (it->n == bytes) {
    memcpy(part, it->own, bytes);
  } else {
    struct copse_err why = COPSE_ERR_INIT;
    (void)copse_fail(&why, COPSE_REFUTED,
                     "rank %u agrees on something else than rank %u (%zu bytes, not %zu): another "
                     "version, or other calls",
                     r, transport->me, it->n, bytes);
    (void)copse_transport_fail(transport, &why);
  }
  free(it->own);
  free(it);
  return true;
}

copse_status copse_transport_all_gather(void *context, const void *mine, void *all, size_t bytes) {
  struct copse_transport *transport = context;
  if (transport->broken.status != COPSE_OK) return transport->broken.status;
  memcpy((char *)all + transport->me * bytes, mine, bytes);
  copse_transport_watch(transport, true);
  for (uint32_t i = 1; i < transport->n && transport->broken.status == COPSE_OK; i++)
    copse_transport_send_own(transport, (transport->me + i) % transport->n, COPSE_TRANSPORT_GATHER,
                             mine, bytes);
  for (uint32_t r = 0; r < transport->n && transport->broken.status == COPSE_OK; r++) {
    if (r == transport->me) continue;
    transport->gather_waits_for = r;
    while (transport->broken.status == COPSE_OK &&
           !take_part(transport, r, (char *)all + r * bytes, bytes))
      (void)!copse_transport_step(transport, false, NULL);
  }
  transport->gather_waits_for = COPSE_TRANSPORT_NOBODY;
  while (transport->broken.status == COPSE_OK && !copse_transport_is_sent(transport))
    (void)!copse_transport_step(transport, false, NULL);
  return transport->broken.status;
}
