/* Registration of user buffers. A machine that has no use for it leaves only the handle. */
#include <stdlib.h>

#include "base/memory.h"
#include "runtime/comm/clique.h"

copse_status copse_clique_register(struct copse_comm *comm, void *buffer, size_t bytes,
                                   void **handle, struct copse_err *err) {
  struct copse_clique *clique = comm->clique;
  struct copse_registration *it = NULL;
  copse_status status;
  *handle = NULL;
  COPSE_TRY(copse_gather_broken(&clique->gather, err));
  COPSE_TRY(copse_calloc(1, sizeof *it, &it, err));
  it->rank = comm->rank;
  pthread_mutex_lock(&clique->machine_lock);
  if (clique->ops->add_buffer)
    status = clique->ops->add_buffer(clique->machine, comm->rank - clique->shape.first_local,
                                     buffer, bytes, &it->machine_handle, err);
  if (status == COPSE_OK) {
    it->next = clique->registrations;
    clique->registrations = it;
    *handle = it;
  }
  pthread_mutex_unlock(&clique->machine_lock);
  if (status == COPSE_OK) return COPSE_OK;
out:
  free(it);
  return status;
}

copse_status copse_clique_deregister(struct copse_comm *comm, void *handle, struct copse_err *err) {
  struct copse_clique *clique = comm->clique;
  copse_status status = COPSE_OK;
  pthread_mutex_lock(&clique->machine_lock);
  struct copse_registration **at = &clique->registrations;
  while (*at && (*at != handle || (*at)->rank != comm->rank)) at = &(*at)->next;
  struct copse_registration *it = *at;
  if (!it) {
    status =
        copse_fail(err, COPSE_INVALID, "no registration of rank %u has this handle", comm->rank);
  } else {
    *at = it->next;
    if (clique->ops->remove_buffer)
      status = clique->ops->remove_buffer(clique->machine, comm->rank - clique->shape.first_local,
                                          it->machine_handle, err);
  }
  pthread_mutex_unlock(&clique->machine_lock);
  free(it);
  return status;
}
