/* CPUs in several processes as a machine: one rank here, the others over a mesh. */
#include <stdlib.h>

#include "base/memory.h"
#include "runtime/cpu/comm_host.h"
#include "runtime/transport/mesh.h"

struct mesh_machine {
  struct copse_mesh *mesh; /* the clique's, which ends it */
  struct copse_host host;
};

/* Of a broken mesh, messages may still be on their way into an executor's memory: it stays. */
static void free_machine(void *context) {
  struct mesh_machine *machine = context;
  if (!machine) return;
  copse_host_free(&machine->host, copse_mesh_tell(machine->mesh, NULL) == COPSE_OK);
  free(machine);
}

static copse_status new_machine(const struct copse_clique_shape *shape, void **out,
                                struct copse_err *err) {
  struct mesh_machine *machine = NULL;
  copse_status status;
  *out = NULL;
  COPSE_TRY(copse_calloc(1, sizeof *machine, &machine, err));
  machine->mesh = shape->bootstrap->context;
  COPSE_TRY(copse_host_init(&machine->host, shape, err));
  *out = machine;
  return COPSE_OK;
out:
  free_machine(machine);
  return status;
}

/* Memory may run out at one rank alone: all must hear of it. */
static copse_status agree(struct mesh_machine *machine, copse_status mine, struct copse_err *err) {
  struct copse_err why = COPSE_ERR_INIT;
  uint32_t status = (uint32_t)mine, *all;
  if (copse_calloc(machine->host.n_ranks, sizeof *all, &all, err) != COPSE_OK) {
    (void)copse_fail(&why, COPSE_NOMEM, "rank %u: out of memory", machine->host.first_local);
    return copse_mesh_fail(machine->mesh, &why);
  }
  if (copse_mesh_all_gather(machine->mesh, &status, all, sizeof status) != COPSE_OK)
    mine = copse_mesh_tell(machine->mesh, err);
  for (uint32_t r = 0; mine == COPSE_OK && r < machine->host.n_ranks; r++)
    if (all[r] != COPSE_OK)
      mine = copse_fail(err, COPSE_REFUTED, "the plan can't be used: rank %u: %s", r,
                        copse_status_string((copse_status)all[r]));
  free(all);
  return mine;
}

static copse_status prepare(void *context, const struct copse_plan *plan, void **out,
                            struct copse_err *err) {
  struct mesh_machine *machine = context;
  struct copse_host_plan *prepared = NULL;
  *out = NULL;
  copse_status status = copse_host_new_plan(&prepared, err);
  if (status == COPSE_OK) status = copse_exec_new_mesh(plan, machine->mesh, &prepared->exec, err);
  status = agree(machine, status, err);
  if (status != COPSE_OK) {
    if (prepared) copse_exec_free(prepared->exec);
    free(prepared);
    return status;
  }
  copse_host_keep(&machine->host, prepared);
  *out = prepared;
  return COPSE_OK;
}

/* That the matrix is the same everywhere the mesh finds out. */
static copse_status launch(void *context, void *prepared, const struct copse_call *call,
                           struct copse_err *err) {
  struct mesh_machine *machine = context;
  struct copse_err why = COPSE_ERR_INIT;
  copse_status status =
      copse_host_check_pair_counts(&machine->host, machine->host.first_local, call, err);
  if (status != COPSE_OK) return status;
  status = copse_host_launch(&machine->host, prepared, call, &why);
  if (status == COPSE_OK) return COPSE_OK;
  (void)copse_mesh_fail(machine->mesh, &why); /* others may be in the midst of it */
  return copse_fail(err, status, "%s", why.text);
}

/* A launch has ended when it returns. */
static copse_status finish(void *machine, struct copse_err *err) {
  (void)machine, (void)err;
  return COPSE_OK;
}

static copse_status poll_machine(void *machine, struct copse_err *err) {
  return copse_mesh_tell(((struct mesh_machine *)machine)->mesh, err);
}

static void abort_machine(void *machine) {
  copse_mesh_abort(((struct mesh_machine *)machine)->mesh);
}

static void set_timeout(void *machine, double seconds) {
  copse_mesh_set_timeout(((struct mesh_machine *)machine)->mesh, seconds);
}

const struct copse_machine_ops copse_mesh_machine = {.new_machine = new_machine,
                                                     .free_machine = free_machine,
                                                     .prepare = prepare,
                                                     .launch = launch,
                                                     .finish = finish,
                                                     .poll = poll_machine,
                                                     .abort = abort_machine,
                                                     .set_timeout = set_timeout};
