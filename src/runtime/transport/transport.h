/*
 * Inside src/runtime: the processes of a job, one rank each, joined by a wire (copse/wire.h).
 * The transport keeps messages in order, keeps launches apart, and keeps time, so that what runs on
 * it never hangs:
 *
 *   who differs    Whoever sends to a rank in a launch first says what launch it is in: number,
 *                  plan, call. The receiver holds what belongs to a later one and refuses what
 *                  belongs to another call.
 *   who is gone    A rank that has stood still for a while sends all others a ping. After the
 *                  time limit it follows who waits for whom to a rank that doesn't answer, and
 *                  names it; where all answer and none moves, it's a standstill.
 *   who knows      All ranks are notified of the first reason; every rank ends with it.
 *
 * One thread at a time. Progress is made in copse_transport_step alone.
 */
#pragma once

#include "base/err.h"
#include "copse/wire.h"
#include "runtime/backend/backend.h"
#include "runtime/interpreter/interpreter.h"

struct copse_transport;

/* One rank here, the others behind the transport, which is the engine's context and that of the
 * bootstrap. */
extern const struct copse_engine copse_transport_engine;

/* Checks that all run this version. Takes the wire over, also when it fails. timeout 0: 600 s. */
copse_status copse_transport_new(const copse_wire *wire, double timeout_seconds,
                                 struct copse_transport **out, struct copse_err *err) COPSE_CHECKED;
void copse_transport_free(struct copse_transport *transport);

uint32_t copse_transport_size(const struct copse_transport *transport);
void copse_transport_set_timeout(struct copse_transport *transport, double seconds);
/* Returns why it is of no use any more, or COPSE_OK. */
copse_status copse_transport_status(const struct copse_transport *transport, struct copse_err *err);
/* Aborts from any thread: what runs ends with COPSE_ABORTED at its next step. */
void copse_transport_abort(struct copse_transport *transport);
/* Breaks the transport and notifies all other ranks. The first reason stays; returns its status. */
copse_status copse_transport_fail(struct copse_transport *transport, const struct copse_err *why);
copse_status copse_transport_out_of_memory(struct copse_transport *transport);

/* Gathers as copse_bootstrap's all_gather; `transport` is the context. */
copse_status copse_transport_all_gather(void *transport, const void *mine, void *all, size_t bytes);

/* Describes a communicator of one rank here and the others behind the transport. */
void copse_transport_shape(struct copse_transport *transport, copse_bootstrap *bootstrap,
                           struct copse_comm_shape *shape);
