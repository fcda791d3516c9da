/*
 * The transport of ranks that share no memory: messages that go out and come in, launches, the
 * all_gather of plans and rows, and the watch over ranks that do not answer.
 *
 * A rank that has stood still for an eighth of the timeout sends all others a ping, which they
 * answer by a pong. At the timeout it follows who waits for whom:
 *
 *   rank 0 --waits for--> rank 3 --waits for--> rank 5     (no pong for 3/4 of the timeout)
 *                                                          rank 5 is named as the failed one
 *
 * Where the chain is a circle, the rank that has been silent for longest is named. Where all answer
 * and none moves, the launch is reported as a standstill. The first reason is sent to all ranks.
 * A rank to which nothing comes may itself be cut off: it names nobody, and after the others.
 */
#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "runtime/transport/internal.h"

#define DEFAULT_TIMEOUT_SECONDS 600.0
/* How long a broken transport tries to notify the others. */
#define NOTIFY_SECONDS 0.5

/* ---- its end ------------------------------------------------------------------------------ */

/* Keeps the reason without telling other ranks. Returns the first one's status. */
static copse_status keep_reason(struct copse_transport *transport, const struct copse_err *why) {
  if (transport->broken.status == COPSE_OK) transport->broken = *why;
  return transport->broken.status;
}

/* copse_transport_fail with a text. */
__attribute__((format(printf, 3, 4))) static copse_status refuse(struct copse_transport *transport,
                                                                 copse_status status,
                                                                 const char *fmt, ...) {
  struct copse_err why = COPSE_ERR_INIT;
  char text[2 * sizeof why.text]; /* longer than copse_fail takes, which marks the cut */
  va_list list;
  va_start(list, fmt);
  (void)vsnprintf(text, sizeof text, fmt, list);
  va_end(list);
  (void)copse_fail(&why, status, "%s", text);
  return copse_transport_fail(transport, &why);
}

/* Fails after one of the wire's functions has; `what` is "sending to" and the like. */
static copse_status wire_failed(struct copse_transport *transport, const char *what, uint32_t rank,
                                copse_status status) {
  return refuse(transport, status, "rank %u, %s rank %u: %s", transport->me, what, rank,
                transport->wire.why(transport->wire.context));
}

copse_status copse_transport_out_of_memory(struct copse_transport *transport) {
  return refuse(transport, COPSE_NOMEM, "rank %u: out of memory", transport->me);
}

copse_status copse_transport_status(const struct copse_transport *transport,
                                    struct copse_err *err) {
  if (transport->broken.status == COPSE_OK) return COPSE_OK;
  return copse_fail(err, transport->broken.status, "%s", transport->broken.text);
}

/* ---- sending -------------------------------------------------------------------------------- */

/* Finds a free one that is large enough; allocating costs page faults, each time. */
static struct copse_payload *find_payload(struct copse_transport *transport, size_t n) {
  for (struct copse_payload **at = &transport->free_payloads; *at; at = &(*at)->next) {
    struct copse_payload *it = *at;
    if (it->capacity < n || it->capacity / 4 > n + 4096) continue;
    *at = it->next;
    return it;
  }
  struct copse_payload *payload = malloc(sizeof *payload + n);
  if (payload) payload->capacity = n;
  return payload;
}

static struct copse_payload *new_payload(struct copse_transport *transport, size_t n,
                                         unsigned char *at) {
  struct copse_payload *payload = find_payload(transport, at ? 0 : n);
  if (!payload) {
    (void)copse_transport_out_of_memory(transport);
    return NULL;
  }
  payload->refs = 1;
  payload->n = n;
  payload->at = at ? at : payload->bytes;
  transport->bytes_outgoing += n;
  return payload;
}

struct copse_payload *copse_transport_new_payload(struct copse_transport *transport, size_t n,
                                                  unsigned char *at) {
  if (transport->bytes_outgoing > 0 && transport->bytes_outgoing + n > MOST_OUTGOING_BYTES)
    return NULL;
  return new_payload(transport, n, at);
}

static void post(struct copse_transport *transport, uint32_t to, unsigned tag,
                 struct copse_payload *payload) {
  struct copse_peer *peer = &transport->peers[to];
  struct copse_outgoing *it = calloc(1, sizeof *it);
  if (!it) {
    (void)copse_transport_out_of_memory(transport);
    return;
  }
  copse_status status = transport->wire.send(transport->wire.context, (int)to, tag, payload->at,
                                             payload->n, &it->request);
  if (status != COPSE_OK) {
    free(it);
    (void)wire_failed(transport, "sending to", to, status);
    return;
  }
  it->counts = tag >= COPSE_TRANSPORT_GATHER;
  it->payload = payload;
  payload->refs++;
  *peer->sent_end = it;
  peer->sent_end = &it->next;
  transport->n_outgoing++;
  transport->unflushed = true;
}

/* Sends a message of the transport's own. */
static void send_own(struct copse_transport *transport, uint32_t to, unsigned tag,
                     const void *bytes, size_t n) {
  struct copse_payload *payload = new_payload(transport, n, NULL);
  if (!payload) return;
  if (n > 0) memcpy(payload->bytes, bytes, n);
  post(transport, to, tag, payload);
  copse_transport_drop(transport, payload);
}

static void send_held(struct copse_transport *transport, uint32_t to, uint64_t behind) {
  struct copse_peer *peer = &transport->peers[to];
  struct copse_payload *held = peer->held;
  if (!held) return;
  peer->held = NULL;
  post(transport, to, peer->held_tag + (unsigned)behind, held);
  copse_transport_drop(transport, held);
}

/* Sends what waits for the step's end. */
static void send_waiting(struct copse_transport *transport, uint32_t to) {
  struct copse_payload *batch = transport->peers[to].batch;
  send_held(transport, to, 0);
  if (!batch) return;
  transport->peers[to].batch = NULL;
  post(transport, to, COPSE_TRANSPORT_BATCH, batch);
  copse_transport_drop(transport, batch);
}

static void add_part(struct copse_transport *transport, uint32_t to, unsigned tag,
                     const void *bytes, size_t n) {
  struct copse_peer *peer = &transport->peers[to];
  const struct copse_transport_part part = {tag, (uint32_t)n};
  send_held(transport, to, 0);
  if (peer->batch && peer->batch->n + sizeof part + n > BATCH_BYTES) send_waiting(transport, to);
  if (!peer->batch) {
    peer->batch = new_payload(transport, BATCH_BYTES, NULL);
    if (!peer->batch) return;
    transport->bytes_outgoing -= peer->batch->n;
    peer->batch->n = 0;
  }
  struct copse_payload *batch = peer->batch;
  memcpy(batch->bytes + batch->n, &part, sizeof part);
  if (n > 0) memcpy(batch->bytes + batch->n + sizeof part, bytes, n);
  batch->n += sizeof part + n;
  transport->bytes_outgoing += sizeof part + n;
}

void copse_transport_send(struct copse_transport *transport, uint32_t to, unsigned tag,
                          struct copse_payload *payload) {
  struct copse_peer *peer = &transport->peers[to];
  if (peer->announced != transport->call.launch) {
    add_part(transport, to, COPSE_TRANSPORT_BEGIN, &transport->call, sizeof transport->call);
    peer->announced = transport->call.launch;
  }
  if (!payload || payload->n <= MOST_PART_BYTES) {
    add_part(transport, to, tag, payload ? payload->at : NULL, payload ? payload->n : 0);
    return;
  }
  send_waiting(transport, to); /* what was sent before comes before */
  peer->held = payload;
  peer->held_tag = tag;
  payload->refs++;
}

void copse_transport_signal(struct copse_transport *transport, uint32_t to, unsigned tag,
                            uint64_t behind) {
  const struct copse_peer *peer = &transport->peers[to];
  if (peer->held && peer->held_tag + behind <= transport->wire.most_tag)
    send_held(transport, to, behind);
  else
    copse_transport_send(transport, to, tag, NULL);
}

static bool pop_sent(struct copse_transport *transport, struct copse_peer *peer) {
  struct copse_outgoing *it = peer->sent;
  bool counts = it->counts;
  peer->sent = it->next;
  if (!peer->sent) peer->sent_end = &peer->sent;
  transport->n_outgoing--;
  copse_transport_drop(transport, it->payload);
  free(it);
  return counts;
}

/* Whether a message was sent. Errors are in transport->broken. */
static bool push_out(struct copse_transport *transport) {
  bool moved = false;
  for (uint32_t r = 0; r < transport->n && transport->n_outgoing > 0; r++) {
    struct copse_peer *peer = &transport->peers[r];
    while (peer->sent) {
      int done = 0;
      copse_status status =
          transport->wire.test(transport->wire.context, peer->sent->request, &done);
      if (status == COPSE_OK && !done) break;
      moved = pop_sent(transport, peer) || moved; /* also after an error the request is gone */
      if (status != COPSE_OK) {
        (void)wire_failed(transport, "sending to", r, status);
        return moved;
      }
    }
  }
  return moved;
}

/* Whether all has left: a rank that has left a call may not come back for long. */
bool copse_transport_all_left(struct copse_transport *transport) {
  int done = 1;
  if (transport->n_outgoing > 0) return false;
  if (!transport->unflushed || !transport->wire.flush) return true;
  copse_status status = transport->wire.flush(transport->wire.context, &done);
  if (status != COPSE_OK) (void)wire_failed(transport, "sending from", transport->me, status);
  transport->unflushed = !done;
  return done;
}

/* Marks the transport as broken first, so that a failure while the others are notified does not
 * enter here again. */
copse_status copse_transport_fail(struct copse_transport *transport, const struct copse_err *why) {
  if (transport->broken.status != COPSE_OK) return transport->broken.status;
  struct copse_transport_reason reason;
  memset(&reason, 0, sizeof reason);
  reason.status = (uint32_t)why->status;
  snprintf(reason.text, sizeof reason.text, "%s", why->text);
  copse_status status = keep_reason(transport, why);
  for (uint32_t r = 0; r < transport->n; r++)
    if (r != transport->me) send_own(transport, r, COPSE_TRANSPORT_ABORT, &reason, sizeof reason);
  for (double end = copse_clock_seconds() + NOTIFY_SECONDS;
       transport->n_outgoing > 0 && copse_clock_seconds() < end;)
    (void)push_out(transport);
  return status;
}

/* ---- keeping time --------------------------------------------------------------------------- */

/* Steps without progress before a process gives its core away, and before it sleeps, since many may
 * share a core; sooner by a wire that wakes it (at once: 64 KiB between hosts in 6.5 ms, not 5). */
#define SPINS 16u
#define YIELDS 4096u
#define YIELDS_TO_WAIT 48u
#define NAP_NANOSECONDS 50000
#define WAIT_MICROSECONDS 1000u
#define STEPS_A_LOOK 32u /* looking at the clock takes longer than a step */

static void rest(struct copse_transport *transport) {
  static const struct timespec nap = {0, NAP_NANOSECONDS};
  const copse_wire *wire = &transport->wire;
  if (transport->idle <= SPINS) return;
  if (transport->idle <= (wire->wait ? YIELDS_TO_WAIT : YIELDS))
    sched_yield();
  else if (wire->wait)
    wire->wait(wire->context, WAIT_MICROSECONDS);
  else
    nanosleep(&nap, NULL);
}

/* Returns the time by which ranks are judged. Between two looks at most an eighth of the limit
 * passes: a process that did not run, as on a paused machine, has received nothing. */
static double look(struct copse_transport *transport) {
  double now = copse_clock_seconds(), passed = now - transport->last_look;
  transport->last_look = now;
  transport->time += fmin(passed, ASK_AFTER * transport->timeout);
  return transport->time;
}

static uint32_t waits_for(const struct copse_transport *transport, char *text, size_t size) {
  if (transport->running) return copse_engine_waits_for(transport->running, text, size);
  if (text)
    snprintf(text, size, "rank %u waits for rank %u to come", transport->me,
             transport->gather_waits_for);
  return transport->gather_waits_for;
}

static void take_pong(struct copse_transport *transport, uint32_t from,
                      const struct copse_transport_pong *pong) {
  struct copse_peer *peer = &transport->peers[from];
  if (pong->moves != peer->pong.moves) peer->moved = transport->time;
  peer->pong = *pong;
}

static void ask_all(struct copse_transport *transport, double now) {
  transport->last_asked = now;
  for (uint32_t r = 0; r < transport->n && transport->broken.status == COPSE_OK; r++)
    if (r != transport->me) send_own(transport, r, COPSE_TRANSPORT_PING, NULL, 0);
}

/* Adds "; nor does rank 3" and so on: who a rank waits for may itself hang over a dead one. */
static void add_others(const struct copse_transport *transport, uint32_t rank, double recent,
                       char *text, size_t size) {
  uint32_t n = 0;
  size_t used = 0;
  text[0] = '\0';
  for (uint32_t r = 0; r < transport->n && used + 20 < size; r++) {
    if (r == transport->me || r == rank || transport->peers[r].last_message >= recent) continue;
    used += (size_t)snprintf(text + used, size - used, n++ ? ", %u" : "; nor does rank %u", r);
  }
}

static void report_silent(struct copse_transport *transport, uint32_t rank, double now,
                          double recent) {
  double last = transport->peers[rank].last_message;
  char since[64] = "no message has ever come from it", others[80];
  if (last > 0) snprintf(since, sizeof since, "last message %.1f s ago", now - last);
  add_others(transport, rank, recent, others, sizeof others);
  (void)refuse(transport, COPSE_TIMEOUT,
               "rank %u does not answer (%s; the time limit is %.3g s): dead, "
               "stopped, or not in the same call%s",
               rank, since, transport->timeout, others);
}

/* Finds the rank that has been silent for longest, if since before `recent`; else NOBODY. *n: how
 * many have been. */
static uint32_t find_silent(const struct copse_transport *transport, double recent, uint32_t *n) {
  uint32_t found = COPSE_TRANSPORT_NOBODY;
  *n = 0;
  for (uint32_t r = 0; r < transport->n; r++) {
    if (r == transport->me || transport->peers[r].last_message >= recent) continue;
    ++*n;
    if (found == COPSE_TRANSPORT_NOBODY ||
        transport->peers[r].last_message < transport->peers[found].last_message)
      found = r;
  }
  return found;
}

/* Whether a rank moves that may still send to this one: it has not left for a later launch. */
static bool any_moves(const struct copse_transport *transport, double recent) {
  for (uint32_t r = 0; r < transport->n; r++) {
    const struct copse_peer *peer = &transport->peers[r];
    bool is_later = (int32_t)(peer->pong.launch - (uint32_t)transport->call.launch) > 0;
    if (r != transport->me && !is_later && peer->moved > recent) return true;
  }
  return false;
}

/* Follows who waits for whom. A rank that doesn't answer is at fault; where a rank still moves the
 * wait goes on. A rank whose workers wait for several others names one of them, so the chain may
 * lead to no fault: then the state of all ranks decides. Where all have become silent, those that
 * still hear each other judge first. */
static void judge(struct copse_transport *transport, double now) {
  char text[200] = "";
  uint32_t rank = waits_for(transport, text, sizeof text), n_silent;
  double recent = now - SILENT_FOR * transport->timeout;
  const uint32_t silent = find_silent(transport, recent, &n_silent);
  if (n_silent > 1 && n_silent + 1 == transport->n && transport->peers[silent].last_message > 0) {
    if (now - transport->last_move >= CUT_OFF_AFTER * transport->timeout)
      (void)refuse(
          transport, COPSE_TIMEOUT,
          "no rank answers rank %u (the time limit is %.3g s): all are dead or stopped, or "
          "one was killed while it wrote to memory that it shares with rank %u",
          transport->me, transport->timeout, transport->me);
    return;
  }
  for (uint32_t i = 0; i < transport->n && rank < transport->n && rank != transport->me; i++) {
    const struct copse_peer *peer = &transport->peers[rank];
    if (peer->last_message < recent) {
      report_silent(transport, rank, now, recent);
      return;
    }
    if (peer->moved > recent) {
      transport->last_move = recent;
      return;
    }
    rank = peer->pong.waits_for;
  }
  if (silent != COPSE_TRANSPORT_NOBODY)
    report_silent(transport, silent, now, recent);
  else if (any_moves(transport, recent))
    transport->last_move = recent;
  else
    (void)refuse(transport, COPSE_REFUTED,
                 "standstill: all ranks answer and none has moved for %.3g s; %s",
                 transport->timeout, text);
}

static void watch(struct copse_transport *transport, bool moved) {
  if (moved) {
    transport->idle = 0;
    transport->moves++;
    return;
  }
  if (transport->idle == 0) transport->last_move = look(transport);
  transport->idle++;
  rest(transport);
  if (transport->idle % STEPS_A_LOOK != 0) return;
  double now = look(transport), quiet = now - transport->last_move;
  if (quiet >= transport->timeout)
    judge(transport, now);
  else if (quiet >= ASK_AFTER * transport->timeout &&
           now - transport->last_asked >= ASK_AFTER * transport->timeout)
    ask_all(transport, now);
}

/* ---- receiving ----------------------------------------------------------------------------- */

static void push(struct copse_messages *messages, struct copse_incoming *it) {
  it->next = NULL;
  *messages->tail = it;
  messages->tail = &it->next;
}

static struct copse_incoming *pop(struct copse_messages *messages) {
  struct copse_incoming *it = messages->head;
  messages->head = it->next;
  if (!messages->head) messages->tail = &messages->head;
  return it;
}

static void free_message(struct copse_incoming *it) {
  free(it->own);
  free(it);
}

static bool start(struct copse_transport *transport, uint32_t from, struct copse_incoming *it,
                  void *bytes) {
  copse_status status =
      transport->wire.receive(transport->wire.context, it->message, bytes, it->n, &it->request);
  it->started = true;
  transport->unflushed = true; /* the sender may wait for an answer */
  if (status == COPSE_OK) return true;
  (void)wire_failed(transport, "receiving from", from, status);
  return false;
}

/* Whether a message has come whole; asked only of the oldest of its queue. */
static bool is_there(struct copse_transport *transport, uint32_t from, struct copse_incoming *it) {
  int done = 0;
  if (!it->started || transport->broken.status != COPSE_OK) return false;
  if (it->complete) return true;
  copse_status status = transport->wire.test(transport->wire.context, it->request, &done);
  if (status != COPSE_OK) (void)wire_failed(transport, "receiving from", from, status);
  it->complete = status == COPSE_OK && done;
  return it->complete;
}

static void sort_in(struct copse_transport *transport, uint32_t from, struct copse_incoming *it) {
  struct copse_peer *peer = &transport->peers[from];
  bool of_launch = it->tag >= COPSE_TRANSPORT_BATCH;
  push(of_launch ? &peer->launches : &peer->control, it);
  if (it->tag > COPSE_TRANSPORT_BATCH) return;
  if (it->n > MOST_OWN_BYTES) {
    (void)refuse(transport, COPSE_REFUTED, "rank %u sends what copse %s doesn't know", from,
                 COPSE_VERSION_STRING);
    return;
  }
  it->own = malloc(it->n ? it->n : 1);
  if (it->own)
    (void)start(transport, from, it, it->own);
  else
    (void)copse_transport_out_of_memory(transport);
}

static void collect(struct copse_transport *transport) {
  for (int i = 0; i < MOST_AT_ONCE && transport->broken.status == COPSE_OK; i++) {
    int from = -1;
    struct copse_incoming seen = {.message = NULL};
    copse_status status =
        transport->wire.next(transport->wire.context, &from, &seen.tag, &seen.n, &seen.message);
    if (status != COPSE_OK) {
      (void)wire_failed(transport, "looking for messages at", transport->me, status);
      return;
    }
    if (!seen.message) return;
    struct copse_incoming *it = malloc(sizeof *it);
    if (!it) {
      (void)copse_transport_out_of_memory(transport);
      return;
    }
    *it = seen;
    transport->peers[from].last_message = transport->time;
    sort_in(transport, (uint32_t)from, it);
  }
}

/* ---- the transport's own -------------------------------------------------------------- */

static void take_reason(struct copse_transport *transport, uint32_t from,
                        const struct copse_incoming *it) {
  struct copse_transport_reason reason;
  struct copse_err why = COPSE_ERR_INIT;
  memset(&reason, 0, sizeof reason);
  memcpy(&reason, it->own, it->n < sizeof reason ? it->n : sizeof reason);
  reason.text[sizeof reason.text - 1] = '\0';
  bool known = reason.status > COPSE_OK && reason.status <= COPSE_ABORTED;
  (void)copse_fail(&why, known ? (copse_status)reason.status : COPSE_INTERNAL,
                   "%s (reported by rank %u)", reason.text, from);
  (void)keep_reason(transport, &why);
}

/* Takes a message of the transport's own. Whether it counts as progress. */
static bool take_own(struct copse_transport *transport, uint32_t from, struct copse_incoming *it) {
  struct copse_transport_pong pong;
  if (it->tag == COPSE_TRANSPORT_GATHER) {
    push(&transport->peers[from].gathered, it);
    return true;
  }
  if (it->tag == COPSE_TRANSPORT_PING) {
    memset(&pong, 0, sizeof pong);
    pong.moves = transport->moves;
    pong.waits_for = waits_for(transport, NULL, 0);
    pong.launch = (uint32_t)transport->call.launch;
    send_own(transport, from, COPSE_TRANSPORT_PONG, &pong, sizeof pong);
  } else if (it->tag == COPSE_TRANSPORT_PONG && it->n == sizeof pong) {
    memcpy(&pong, it->own, sizeof pong);
    take_pong(transport, from, &pong);
  } else if (it->tag == COPSE_TRANSPORT_ABORT) {
    take_reason(transport, from, it);
  }
  free_message(it);
  return false;
}

/* ---- messages of launches ------------------------------------------------------------ */
/* A peer's messages are started as soon as it is known where they go, and count in the order in
 * which they were sent. */

static void compare_calls(struct copse_transport *transport, uint32_t from) {
  struct copse_err why = COPSE_ERR_INIT;
  if (copse_engine_compare_calls(transport, from, &why) != COPSE_OK)
    (void)copse_transport_fail(transport, &why);
}

/* Refuses a peer that sends to a rank which has left the launch. */
static void refuse_late(struct copse_transport *transport, uint32_t from) {
  (void)refuse(transport, COPSE_REFUTED,
               "rank %u sends in launch %llu to rank %u, which has left it: the plan is wrong",
               from, (unsigned long long)transport->peers[from].call.launch, transport->me);
}

/* Finds where a message of the peer's launch goes. False where it waits for this rank's launch. */
static bool find_place(struct copse_transport *transport, uint32_t from, unsigned tag, size_t n,
                       void **bytes) {
  uint64_t launch = transport->peers[from].call.launch;
  struct copse_err why = COPSE_ERR_INIT;
  if (launch > transport->call.launch) return false;
  if (!transport->running || launch < transport->call.launch) {
    refuse_late(transport, from);
    return false;
  }
  if (copse_engine_place(transport->running, from, tag, n, bytes, &why) == COPSE_OK)
    return n == 0 || *bytes;
  (void)copse_transport_fail(transport, &why);
  return false;
}

/* Starts messages whose place is known: all before them has been taken, of batches, or started. */
static void start_launches(struct copse_transport *transport, uint32_t from) {
  struct copse_incoming *it = transport->peers[from].launches.head;
  for (; it && it->tag != COPSE_TRANSPORT_BATCH; it = it->next) {
    void *bytes;
    if (it->started) continue;
    if (!find_place(transport, from, it->tag, it->n, &bytes) || !start(transport, from, it, bytes))
      return;
  }
}

static bool take_part_of_launch(struct copse_transport *transport, uint32_t from,
                                const struct copse_transport_part *part, const void *bytes) {
  struct copse_peer *peer = &transport->peers[from];
  void *place;
  if (part->tag == COPSE_TRANSPORT_BEGIN && part->n == sizeof peer->call) {
    memcpy(&peer->call, bytes, sizeof peer->call);
    if (transport->running && peer->call.launch == transport->call.launch)
      compare_calls(transport, from);
    return true;
  }
  if (!find_place(transport, from, part->tag, part->n, &place)) return false;
  if (part->n > 0) memcpy(place, bytes, part->n);
  copse_engine_arrived(transport->running, from, part->tag);
  return true;
}

/* Takes the messages of a batch. False: the rest waits for this rank's own launch. */
static bool open_batch(struct copse_transport *transport, uint32_t from, struct copse_incoming *it,
                       bool *moved) {
  struct copse_transport_part part;
  while (it->opened < it->n && transport->broken.status == COPSE_OK) {
    size_t left = it->n - it->opened;
    if (left >= sizeof part) memcpy(&part, it->own + it->opened, sizeof part);
    if (left < sizeof part || left - sizeof part < part.n) {
      (void)refuse(transport, COPSE_REFUTED, "rank %u sends a batch that ends within a message",
                   from);
      return false;
    }
    if (!take_part_of_launch(transport, from, &part, it->own + it->opened + sizeof part))
      return false;
    it->opened += sizeof part + part.n;
    *moved = true;
  }
  return transport->broken.status == COPSE_OK;
}

/* Whether anything has come. */
static bool end_launches(struct copse_transport *transport, uint32_t from) {
  struct copse_peer *peer = &transport->peers[from];
  bool moved = false;
  while (peer->launches.head && is_there(transport, from, peer->launches.head)) {
    struct copse_incoming *it = peer->launches.head;
    bool is_batch = it->tag == COPSE_TRANSPORT_BATCH;
    if (is_batch && !open_batch(transport, from, it, &moved)) break;
    (void)pop(&peer->launches);
    moved = true;
    if (is_batch)
      start_launches(transport, from);
    else
      copse_engine_arrived(transport->running, from, it->tag);
    free_message(it);
  }
  return moved;
}

static bool take_in(struct copse_transport *transport) {
  bool moved = false;
  collect(transport);
  for (uint32_t r = 0; r < transport->n && transport->broken.status == COPSE_OK; r++) {
    struct copse_peer *peer = &transport->peers[r];
    while (peer->control.head && is_there(transport, r, peer->control.head))
      moved = take_own(transport, r, pop(&peer->control)) || moved;
    if (!peer->launches.head || transport->broken.status != COPSE_OK) continue;
    start_launches(transport, r);
    moved = end_launches(transport, r) || moved;
  }
  return moved;
}

/* ---- launches ------------------------------------------------------------------------------- */

copse_status copse_transport_begin(struct copse_transport *transport,
                                   const struct copse_transport_call *call,
                                   struct copse_interpreter *running, struct copse_err *err) {
  uint64_t number = transport->call.launch + 1;
  if (transport->broken.status != COPSE_OK) return copse_transport_status(transport, err);
  transport->call = *call;
  transport->call.launch = number;
  transport->running = running;
  watch(transport, true);
  for (uint32_t r = 0; r < transport->n; r++)
    if (transport->peers[r].call.launch == number) compare_calls(transport, r);
  return copse_transport_status(transport, err);
}

copse_status copse_transport_end(struct copse_transport *transport, struct copse_err *err) {
  transport->running = NULL;
  for (uint32_t r = 0; r < transport->n && transport->broken.status == COPSE_OK; r++) {
    const struct copse_incoming *it = transport->peers[r].launches.head;
    if (it && it->started && it->tag != COPSE_TRANSPORT_BATCH) refuse_late(transport, r);
  }
  return copse_transport_status(transport, err);
}

static void refuse_aborted(struct copse_transport *transport) {
  if (transport->broken.status != COPSE_OK || !atomic_load(&transport->aborted)) return;
  (void)refuse(transport, COPSE_ABORTED, "copse_comm_abort was called on rank %u", transport->me);
}

copse_status copse_transport_step(struct copse_transport *transport, bool moved,
                                  struct copse_err *err) {
  refuse_aborted(transport);
  for (uint32_t r = 0; r < transport->n && transport->broken.status == COPSE_OK; r++)
    send_waiting(transport, r);
  if (transport->broken.status == COPSE_OK) moved = take_in(transport) || moved;
  if (transport->broken.status == COPSE_OK) moved = push_out(transport) || moved;
  if (transport->broken.status == COPSE_OK) watch(transport, moved);
  return copse_transport_status(transport, err);
}

/* ---- the all_gather ------------------------------------------------------------------------ */

/* Takes the first part of a rank, if it has come. */
static bool take_part(struct copse_transport *transport, uint32_t from, void *part, size_t bytes) {
  struct copse_messages *gathered = &transport->peers[from].gathered;
  if (!gathered->head) return false;
  struct copse_incoming *it = pop(gathered);
  if (it->n == bytes)
    memcpy(part, it->own, bytes);
  else
    (void)refuse(transport, COPSE_REFUTED,
                 "rank %u agrees on something else than rank %u (%zu bytes, not %zu): "
                 "another version, or other calls",
                 from, transport->me, it->n, bytes);
  free_message(it);
  return true;
}

copse_status copse_transport_all_gather(void *context, const void *mine, void *all, size_t bytes) {
  struct copse_transport *transport = context;
  if (transport->broken.status != COPSE_OK) return transport->broken.status;
  memcpy((char *)all + transport->me * bytes, mine, bytes);
  watch(transport, true);
  for (uint32_t i = 1; i < transport->n && transport->broken.status == COPSE_OK; i++)
    send_own(transport, (transport->me + i) % transport->n, COPSE_TRANSPORT_GATHER, mine, bytes);
  for (uint32_t r = 0; r < transport->n && transport->broken.status == COPSE_OK; r++) {
    if (r == transport->me) continue;
    transport->gather_waits_for = r;
    while (transport->broken.status == COPSE_OK &&
           !take_part(transport, r, (char *)all + r * bytes, bytes))
      (void)!copse_transport_step(transport, false, NULL);
  }
  transport->gather_waits_for = COPSE_TRANSPORT_NOBODY;
  while (transport->broken.status == COPSE_OK && !copse_transport_all_left(transport))
    (void)!copse_transport_step(transport, false, NULL);
  return transport->broken.status;
}

/* ---- life -------------------------------------------------------------------------------- */

copse_status copse_transport_new(const copse_wire *wire, double timeout_seconds,
                                 struct copse_transport **out, struct copse_err *err) {
  struct copse_transport *transport = *out = NULL;
  copse_status status;
  COPSE_TRY(copse_calloc(1, sizeof *transport, &transport, err));
  transport->wire = *wire;
  transport->n = (uint32_t)wire->n_ranks;
  transport->me = (uint32_t)wire->rank;
  transport->timeout = timeout_seconds > 0 ? timeout_seconds : DEFAULT_TIMEOUT_SECONDS;
  transport->gather_waits_for = COPSE_TRANSPORT_NOBODY;
  transport->time = transport->last_look = copse_clock_seconds();
  COPSE_TRY(copse_calloc(transport->n, sizeof *transport->peers, &transport->peers, err));
  for (uint32_t r = 0; r < transport->n; r++) {
    struct copse_peer *peer = &transport->peers[r];
    peer->launches.tail = &peer->launches.head;
    peer->control.tail = &peer->control.head;
    peer->gathered.tail = &peer->gathered.head;
    peer->sent_end = &peer->sent;
  }
  COPSE_TRY(copse_engine_compare_versions(transport, err));
  *out = transport;
  return COPSE_OK;
out:
  copse_transport_free(transport);
  if (!transport) wire->end(wire->context, 0);
  return status;
}

/* Frees all but, after a failure, what the wire may still write to or read from. */
void copse_transport_free(struct copse_transport *transport) {
  if (!transport) return;
  refuse_aborted(transport); /* others still wait */
  bool orderly = transport->broken.status == COPSE_OK && transport->n_outgoing == 0;
  transport->wire.end(transport->wire.context, orderly);
  for (uint32_t r = 0; transport->peers && r < transport->n; r++) {
    struct copse_messages *all[] = {&transport->peers[r].launches, &transport->peers[r].control,
                                    &transport->peers[r].gathered};
    free(transport->peers[r].batch);
    if (transport->peers[r].held) copse_transport_drop(transport, transport->peers[r].held);
    for (int i = 0; orderly && i < 3; i++)
      while (all[i]->head) free_message(pop(all[i]));
  }
  if (orderly) free(transport->peers);
  for (struct copse_payload *next, *it = transport->free_payloads; it; it = next) {
    next = it->next;
    free(it);
  }
  free(transport);
}

uint32_t copse_transport_size(const struct copse_transport *transport) { return transport->n; }
void copse_transport_set_timeout(struct copse_transport *transport, double seconds) {
  transport->timeout = seconds;
}
void copse_transport_abort(struct copse_transport *transport) {
  atomic_store(&transport->aborted, true);
}
