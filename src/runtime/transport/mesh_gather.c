/* The mesh: all_gather, every rank to every other. For what is said once a plan or a row. */
#include <stdlib.h>
#include <string.h>

#include "runtime/transport/mesh_internal.h"

/* The first part of a rank, if it has come. */
static bool take_part(struct copse_mesh *mesh, uint32_t r, void *part, size_t bytes) {
  struct copse_letters *gathered = &mesh->peers[r].gathered;
  struct copse_letter *it = gathered->head;
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
                     r, mesh->me, it->n, bytes);
    (void)copse_mesh_fail(mesh, &why);
  }
  free(it->own);
  free(it);
  return true;
}

copse_status copse_mesh_all_gather(void *context, const void *mine, void *all, size_t bytes) {
  struct copse_mesh *mesh = context;
  if (mesh->broken.status != COPSE_OK) return mesh->broken.status;
  memcpy((char *)all + mesh->me * bytes, mine, bytes);
  copse_mesh_watch(mesh, true);
  for (uint32_t i = 1; i < mesh->n && mesh->broken.status == COPSE_OK; i++)
    copse_mesh_send_own(mesh, (mesh->me + i) % mesh->n, COPSE_MESH_GATHER, mine, bytes);
  for (uint32_t r = 0; r < mesh->n && mesh->broken.status == COPSE_OK; r++) {
    if (r == mesh->me) continue;
    mesh->gather_waits_for = r;
    while (mesh->broken.status == COPSE_OK && !take_part(mesh, r, (char *)all + r * bytes, bytes))
      (void)!copse_mesh_step(mesh, false, NULL);
  }
  mesh->gather_waits_for = COPSE_MESH_NOBODY;
  while (mesh->broken.status == COPSE_OK && !copse_mesh_is_sent(mesh))
    (void)!copse_mesh_step(mesh, false, NULL);
  return mesh->broken.status;
}
