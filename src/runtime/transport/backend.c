/*
 * CPUs in several processes as a backend: one rank here, the others behind a transport. Plans are
 * prepared collectively: if memory runs out at one rank, all refuse the plan.
 */
#include <stdlib.h>

#include "base/memory.h"
#include "runtime/cpu/cpu.h"
#include "runtime/transport/transport.h"

struct transport_backend {
  struct copse_transport *transport; /* the communicator's, which ends it */
  struct copse_host host;
};

/* Of a broken transport, messages may still be on their way into an executor's memory: it stays. */
static void destroy(void *context) {
  struct transport_backend *backend = context;
  if (!backend) return;
  copse_host_free(&backend->host, copse_transport_status(backend->transport, NULL) == COPSE_OK);
  free(backend);
}

static copse_status create(const struct copse_comm_shape *shape, void **out,
                           struct copse_err *err) {
  struct transport_backend *backend = NULL;
  copse_status status;
  *out = NULL;
  COPSE_TRY(copse_calloc(1, sizeof *backend, &backend, err));
  backend->transport = shape->bootstrap->context;
  COPSE_TRY(copse_host_init(&backend->host, shape, &copse_transport_engine, err));
  *out = backend;
  return COPSE_OK;
out:
  destroy(backend);
  return status;
}

/* Notifies all ranks where preparing failed at one. */
static copse_status agree(struct transport_backend *backend, copse_status mine,
                          struct copse_err *err) {
  struct copse_err why = COPSE_ERR_INIT;
  uint32_t status = (uint32_t)mine, *all;
  if (copse_calloc(backend->host.n_ranks, sizeof *all, &all, err) != COPSE_OK) {
    (void)copse_fail(&why, COPSE_NOMEM, "rank %u: out of memory", backend->host.first_local);
    return copse_transport_fail(backend->transport, &why);
  }
  if (copse_transport_all_gather(backend->transport, &status, all, sizeof status) != COPSE_OK)
    mine = copse_transport_status(backend->transport, err);
  for (uint32_t r = 0; mine == COPSE_OK && r < backend->host.n_ranks; r++)
    if (all[r] != COPSE_OK)
      mine = copse_fail(err, COPSE_REFUTED, "the plan can't be used: rank %u: %s", r,
                        copse_status_string((copse_status)all[r]));
  free(all);
  return mine;
}

static copse_status prepare(void *context, const struct copse_plan *plan, void **out,
                            struct copse_err *err) {
  struct transport_backend *backend = context;
  struct copse_host_plan *prepared = NULL;
  *out = NULL;
  copse_status status =
      copse_host_new_plan(&backend->host, plan, backend->transport, &prepared, err);
  status = agree(backend, status, err);
  if (status != COPSE_OK) {
    copse_host_free_plan(prepared);
    return status;
  }
  copse_host_keep(&backend->host, prepared);
  *out = prepared;
  return COPSE_OK;
}

/* The transport compares the matrices of the ranks. */
static copse_status launch(void *context, void *prepared, const struct copse_call *call,
                           struct copse_err *err) {
  struct transport_backend *backend = context;
  struct copse_err why = COPSE_ERR_INIT;
  copse_status status =
      copse_host_check_pair_counts(&backend->host, backend->host.first_local, call, err);
  if (status != COPSE_OK) return status;
  status = copse_host_launch(&backend->host, prepared, call, &why);
  if (status == COPSE_OK) return COPSE_OK;
  (void)copse_transport_fail(backend->transport, &why); /* others may be in the midst of it */
  return copse_fail(err, status, "%s", why.text);
}

/* A launch has ended when it returns. */
static copse_status finish(void *backend, struct copse_err *err) {
  (void)backend, (void)err;
  return COPSE_OK;
}

static copse_status poll(void *backend, struct copse_err *err) {
  return copse_transport_status(((struct transport_backend *)backend)->transport, err);
}

static void abort_backend(void *backend) {
  copse_transport_abort(((struct transport_backend *)backend)->transport);
}

static void set_timeout(void *backend, double seconds) {
  copse_transport_set_timeout(((struct transport_backend *)backend)->transport, seconds);
}

const struct copse_backend_ops copse_transport_backend = {.create = create,
                                                          .destroy = destroy,
                                                          .prepare = prepare,
                                                          .launch = launch,
                                                          .finish = finish,
                                                          .poll = poll,
                                                          .abort = abort_backend,
                                                          .set_timeout = set_timeout};

static copse_status why(void *transport, struct copse_err *err) {
  return copse_transport_status(transport, err);
}

void copse_transport_shape(struct copse_transport *transport, copse_bootstrap *bootstrap,
                           struct copse_comm_shape *shape) {
  static const int cpu = COPSE_DEVICE_CPU;
  *bootstrap = (copse_bootstrap){copse_transport_all_gather, transport};
  *shape = (struct copse_comm_shape){.n_ranks = copse_transport_size(transport),
                                     .first_local = copse_transport_rank(transport),
                                     .n_local = 1,
                                     .devices = &cpu,
                                     .bootstrap = bootstrap,
                                     .bootstrap_error = why};
}
