/* What the transport and the engine over it share. */
#pragma once

#include <stdatomic.h>

#include "base/file.h"
#include "runtime/transport/transport.h"

#define COPSE_TRANSPORT_NOBODY UINT32_MAX
/* Tags below are the transport's own. */
#define COPSE_TRANSPORT_FIRST_TAG 8u

/* Bytes that may be on their way before workers wait: enough for any pipeline. */
#define MOST_OUTGOING_BYTES ((size_t)64 << 20)
/* Messages of launches up to this are copied into batches: a message costs more than a copy, and
 * TCP's buffers count a short one as a page. */
#define MOST_PART_BYTES 4096u
#define BATCH_BYTES ((size_t)32 << 10)
/* Of a message of the transport's own; more is nothing that copse has sent. */
#define MOST_OWN_BYTES ((size_t)1 << 24)
/* How many messages one step looks at, so that other work gets its turn. */
#define MOST_AT_ONCE 64
/* Parts of the time limit: when a rank that stands still begins to ask, and again after as long;
 * how long one that is asked must be silent to be at fault (on a shared core it takes a while);
 * when a rank to which nothing comes, from several others, gives up. It may be cut off: where a
 * rank is killed while it writes to the queue that all of a host have at another (UCX's shared
 * memory), nothing behind in the queue is ever taken out. Others can tell who is dead, and say so
 * first. */
#define ASK_AFTER 0.125
#define SILENT_FOR 0.75
#define CUT_OFF_AFTER 1.25

/* What must be the same at all who take part in a launch. Compared as bytes: no holes. */
struct copse_transport_call {
  uint64_t launch; /* the transport's */
  uint8_t plan[COPSE_SHA256_BYTES];
  uint64_t count;
  uint32_t type, redop;
  uint64_t pair_counts; /* a digest of them; 0: full blocks */
};

/* Messages of the transport itself. All before BEGIN overtake those of launches. */
enum copse_transport_tag {
  COPSE_TRANSPORT_PING,   /* answered by a PONG */
  COPSE_TRANSPORT_PONG,   /* struct copse_transport_pong */
  COPSE_TRANSPORT_ABORT,  /* struct copse_transport_reason */
  COPSE_TRANSPORT_GATHER, /* one rank's part of an all_gather */
  COPSE_TRANSPORT_BEGIN,  /* struct copse_transport_call: what comes next belongs to this launch */
  COPSE_TRANSPORT_BATCH   /* short messages of launches, one after the other */
};

/* Before each message of a batch. */
struct copse_transport_part {
  uint32_t tag, n;
};

struct copse_transport_pong {
  uint64_t moves; /* grows with every step in which the rank moves */
  uint32_t waits_for;
  uint32_t launch; /* its last, modulo 2^32 */
};

struct copse_transport_reason {
  uint32_t status, zero;
  char text[sizeof((struct copse_err *)0)->text];
};

/* A message that has come in. */
struct copse_incoming {
  unsigned tag;
  size_t n;
  void *message; /* the wire's, until it is being received */
  void *request; /* the wire's request, until it has completed */
  bool started, complete;
  unsigned char *own; /* the transport's own messages and batches: their bytes */
  size_t opened;      /* of a batch: bytes that have been taken */
  struct copse_incoming *next;
};

struct copse_messages {
  struct copse_incoming *head, **tail;
};

/* Bytes on their way to one or more ranks. */
struct copse_payload {
  uint32_t refs;
  size_t n, capacity;
  struct copse_payload *next; /* in the list of free payloads */
  unsigned char *at;          /* its own bytes, or the rank's memory */
  unsigned char bytes[];
};

/* A message that goes out. */
struct copse_outgoing {
  struct copse_payload *payload;
  void *request;
  bool counts; /* its end is progress */
  struct copse_outgoing *next;
};

struct copse_peer {
  struct copse_messages launches;          /* batches, and what belongs to launches */
  struct copse_messages control;           /* the transport's own */
  struct copse_messages gathered;          /* parts of all_gathers, complete */
  struct copse_outgoing *sent, **sent_end; /* in order */
  struct copse_payload *batch;             /* short messages that go with the next step, or NULL */
  struct copse_payload *held; /* a long one that goes with it, or NULL: behind no batch */
  unsigned held_tag;
  struct copse_transport_call call; /* of the launch that it is in, as last announced */
  uint64_t announced;               /* the launch that it was notified of */
  double last_message;              /* when something came from it */
  double moved;                     /* when it was last known to have moved */
  struct copse_transport_pong pong; /* its last */
};

struct copse_transport {
  copse_wire wire;
  uint32_t n, me;
  struct copse_peer *peers; /* [n] */
  uint32_t n_outgoing;
  bool unflushed; /* messages were sent, or received, since the wire said that all have left */
  size_t bytes_outgoing;
  struct copse_payload *free_payloads;
  struct copse_transport_call call;  /* of the last launch */
  struct copse_interpreter *running; /* the present one's, or NULL */
  uint32_t gather_waits_for;
  double timeout;
  _Atomic bool aborted;
  struct copse_err broken;
  /* keeping time */
  uint64_t moves;
  uint32_t idle;     /* steps since the last */
  double time;       /* seconds; stands while this process does not run */
  double last_look;  /* at the clock */
  double last_move;  /* when, in `time`, as all below and of peers */
  double last_asked; /* when others were sent a PING */
};

/* ---- a launch --------------------------------------------------------------------------- */

copse_status copse_transport_begin(struct copse_transport *transport,
                                   const struct copse_transport_call *call,
                                   struct copse_interpreter *running,
                                   struct copse_err *err) COPSE_CHECKED;
/* Ends a launch when nothing is left to do or to send, or after an error. COPSE_REFUTED where
 * somebody is still sending. */
copse_status copse_transport_end(struct copse_transport *transport, struct copse_err *err);

/* Makes a message's payload; `at`: where the n bytes lie until they are sent, or NULL for room of
 * its own. NULL: so much is on its way that it should wait, or the transport is broken. */
struct copse_payload *copse_transport_new_payload(struct copse_transport *transport, size_t n,
                                                  unsigned char *at);
void copse_transport_send(struct copse_transport *transport, uint32_t to, unsigned tag,
                          struct copse_payload *payload);
/* Sends the same without bytes. Right behind a long message this is no message: that one's tag
 * grows by `behind`, where the wire's tags go so far. */
void copse_transport_signal(struct copse_transport *transport, uint32_t to, unsigned tag,
                            uint64_t behind);
/* Drops a reference: who made the payload is done with it. */
static inline void copse_transport_drop(struct copse_transport *transport,
                                        struct copse_payload *payload) {
  if (--payload->refs > 0) return;
  transport->bytes_outgoing -= payload->n;
  payload->next = transport->free_payloads;
  transport->free_payloads = payload;
}

/* Whether nothing that was sent needs more calls of this rank. Asked again after each step. */
bool copse_transport_all_left(struct copse_transport *transport);
/* Makes progress. `moved`: whether the caller has moved since the last step. */
copse_status copse_transport_step(struct copse_transport *transport, bool moved,
                                  struct copse_err *err) COPSE_CHECKED;

/* ---- engine.c, called by the transport ---------------------------------------------------- */

/* Finds memory for a message's n bytes. NULL for some bytes: it must wait for what is sent from
 * there. */
copse_status copse_engine_place(struct copse_interpreter *exec, uint32_t from, unsigned tag,
                                size_t n, void **bytes, struct copse_err *err);
/* Notes that a message has come, and with it all that its sender sent before. */
void copse_engine_arrived(struct copse_interpreter *exec, uint32_t from, unsigned tag);
/* Returns COPSE_REFUTED where another rank runs another version. Collective. */
copse_status copse_engine_compare_versions(struct copse_transport *transport,
                                           struct copse_err *err);
/* Returns COPSE_REFUTED where the launch that a peer has announced is not this rank's. */
copse_status copse_engine_compare_calls(const struct copse_transport *transport, uint32_t from,
                                        struct copse_err *err);
/* Returns the rank that this one waits for, or COPSE_TRANSPORT_NOBODY; where and why, if text isn't
 * NULL. */
uint32_t copse_engine_waits_for(const struct copse_interpreter *exec, char *text, size_t size);
