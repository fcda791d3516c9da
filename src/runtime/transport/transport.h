/*
 * Inside src/runtime: the processes of a job, one rank each, joined by a wire (copse/wire.h).
 * The transport keeps messages in order, keeps launches apart, and keeps time, so that what runs on
 * it never hangs:
 *
 *   who differs    Whoever sends to a rank in a launch first says what launch it is in: number,
 *                  plan, call. The receiver holds what belongs to a later one and refuses what
 *                  belongs to another call.
 *   who is gone    A rank that has stood still for a while asks all others how they are. After the
 *                  time limit it follows who waits for whom to a rank that doesn't answer, and
 *                  names it; where all answer and none moves, it's a standstill.
 *   who knows      All ranks are notified of the first reason; every rank ends with it.
 *
 * One thread at a time. Progress is made in copse_transport_step alone.
 */
#ifndef COPSE_RUNTIME_TRANSPORT_TRANSPORT_H
#define COPSE_RUNTIME_TRANSPORT_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "copse/wire.h"
#include "runtime/backend/backend.h"
#include "runtime/interpreter/interpreter.h"

struct copse_transport;

/* One rank here, the others behind the transport, which is the engine's context and that of the
 * bootstrap. */
extern const struct copse_engine copse_transport_engine;

#define COPSE_TRANSPORT_NOBODY UINT32_MAX
/* Tags below are the transport's own. */
#define COPSE_TRANSPORT_FIRST_TAG 8u
#define COPSE_TRANSPORT_DIGEST_BYTES 32

/* Checks that all run this version. Takes the wire over, also when it fails. timeout 0: 600 s. */
copse_status copse_transport_new(const copse_wire *wire, double timeout_seconds,
                                 struct copse_transport **out, struct copse_err *err) COPSE_CHECKED;
void copse_transport_free(struct copse_transport *transport);

uint32_t copse_transport_rank(const struct copse_transport *transport);
uint32_t copse_transport_size(const struct copse_transport *transport);
unsigned copse_transport_most_tag(const struct copse_transport *transport);
void copse_transport_set_timeout(struct copse_transport *transport, double seconds);
/* Why it is of no use any more, or COPSE_OK. */
copse_status copse_transport_status(const struct copse_transport *transport, struct copse_err *err);
/* From any thread: what runs ends with COPSE_ABORTED at its next step. */
void copse_transport_abort(struct copse_transport *transport);
/* Breaks it and tells all others. The first reason stays; returns its status. */
copse_status copse_transport_fail(struct copse_transport *transport, const struct copse_err *why);

/* copse_bootstrap's all_gather; `transport` is the context. */
copse_status copse_transport_all_gather(void *transport, const void *mine, void *all, size_t bytes);

/* The shape of a communicator of one rank here and the others behind the transport. */
void copse_transport_shape(struct copse_transport *transport, copse_bootstrap *bootstrap,
                           struct copse_comm_shape *shape);

/* ---- a launch --------------------------------------------------------------------------- */

/* What must be the same at all who take part. Compared as bytes: no holes. */
struct copse_transport_call {
  uint64_t launch; /* the transport's */
  uint8_t plan[COPSE_TRANSPORT_DIGEST_BYTES];
  uint64_t count;
  uint32_t type, redop;
  uint64_t pair_counts; /* a digest of them; 0: full blocks */
};

/* Whoever runs the launch. */
struct copse_transport_reader {
  void *context;
  /* Memory for a message's n bytes. */
  copse_status (*place)(void *context, uint32_t from, unsigned tag, size_t n, void **bytes,
                        struct copse_err *err);
  /* It is there, and so is all that its sender sent before. */
  void (*arrived)(void *context, uint32_t from, unsigned tag);
  /* The rank that this one waits for, or COPSE_TRANSPORT_NOBODY; where and why, if text isn't NULL.
   */
  uint32_t (*waits_for)(void *context, char *text, size_t size);
};

copse_status copse_transport_begin(struct copse_transport *transport,
                                   const struct copse_transport_call *call,
                                   const struct copse_transport_reader *reader,
                                   struct copse_err *err) COPSE_CHECKED;
/* When nothing is left to do and copse_transport_is_sent, or after an error. COPSE_REFUTED where
 * somebody is still sending. */
copse_status copse_transport_end(struct copse_transport *transport, struct copse_err *err);

/* Bytes on their way to one or more ranks. */
struct copse_payload;
/* NULL: so much is on its way that it should wait, or the transport is broken. */
struct copse_payload *copse_transport_new_payload(struct copse_transport *transport, size_t n);
unsigned char *copse_payload_bytes(struct copse_payload *payload);
void copse_transport_send(struct copse_transport *transport, uint32_t to, unsigned tag,
                          struct copse_payload *payload);
/* Who made it is done with it. */
void copse_transport_drop(struct copse_transport *transport, struct copse_payload *payload);
bool copse_transport_is_sent(const struct copse_transport *transport);
/* The rank that the oldest unfinished message is for, or COPSE_TRANSPORT_NOBODY. */
uint32_t copse_transport_sends_to(const struct copse_transport *transport);

/* Progress. `moved`: whether the caller has got on since the last step. */
copse_status copse_transport_step(struct copse_transport *transport, bool moved,
                                  struct copse_err *err) COPSE_CHECKED;

#endif
