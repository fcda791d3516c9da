/* The transport: keeping time, and finding out who is at fault. */
#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "runtime/transport/internal.h"

/* Steps without progress before a process gives its core away, and before it sleeps: many may
 * share a core. */
#define SPINS 64u
#define YIELDS 4096u
#define NAP_NANOSECONDS 50000
/* Looking at the clock takes longer than a step. */
#define STEPS_A_LOOK 32u
/* Parts of the time limit: when a rank that stands still begins to ask, and again after as long;
 * and for how long one that is asked must be silent to be at fault. Many ranks may share a core, so
 * that a living one takes its time. */
#define ASK_AFTER 0.125
#define SILENT_FOR 0.75

static void rest(struct copse_transport *transport) {
  static const struct timespec nap = {0, NAP_NANOSECONDS};
  if (transport->idle > YIELDS)
    nanosleep(&nap, NULL);
  else if (transport->idle > SPINS)
    sched_yield();
}

uint32_t copse_transport_waits_for(const struct copse_transport *transport, char *text,
                                   size_t size) {
  if (transport->reader)
    return transport->reader->waits_for(transport->reader->context, text, size);
  if (text)
    snprintf(text, size, "rank %u waits for rank %u to come", transport->me,
             transport->gather_waits_for);
  return transport->gather_waits_for;
}

void copse_transport_heard_pong(struct copse_transport *transport, uint32_t from,
                                const struct copse_transport_pong *pong) {
  struct copse_peer *peer = &transport->peers[from];
  if (pong->moves != peer->pong.moves) peer->moved = copse_clock_seconds();
  peer->pong = *pong;
}

static void ask_all(struct copse_transport *transport, double now) {
  transport->last_asked = now;
  for (uint32_t r = 0; r < transport->n && transport->broken.status == COPSE_OK; r++)
    if (r != transport->me) copse_transport_send_own(transport, r, COPSE_TRANSPORT_PING, NULL, 0);
}

/* "; nor does rank 3" and so on: the one that a rank waits for may itself hang over a dead one. */
static void add_others(const struct copse_transport *transport, uint32_t rank, double recent,
                       char *text, size_t size) {
  uint32_t n = 0;
  size_t used = 0;
  text[0] = '\0';
  for (uint32_t r = 0; r < transport->n && used + 20 < size; r++) {
    if (r == transport->me || r == rank || transport->peers[r].heard >= recent) continue;
    used += (size_t)snprintf(text + used, size - used, n++ ? ", %u" : "; nor does rank %u", r);
  }
}

static void blame_silent(struct copse_transport *transport, uint32_t rank, double now,
                         double recent) {
  struct copse_err why = COPSE_ERR_INIT;
  double heard = transport->peers[rank].heard;
  char since[64] = "nothing was ever heard of it", others[80];
  if (heard > 0) snprintf(since, sizeof since, "last heard of %.1f s ago", now - heard);
  add_others(transport, rank, recent, others, sizeof others);
  (void)copse_fail(&why, COPSE_TIMEOUT,
                   "rank %u does not answer (%s; the time limit is %.3g s): dead, stopped, or not "
                   "in the same call%s",
                   rank, since, transport->timeout, others);
  (void)copse_transport_fail(transport, &why);
}

static void blame_standstill(struct copse_transport *transport) {
  struct copse_err why = COPSE_ERR_INIT;
  char text[200] = "";
  (void)copse_transport_waits_for(transport, text, sizeof text);
  (void)copse_fail(&why, COPSE_REFUTED,
                   "standstill: all ranks answer and none has moved for %.3g s; %s",
                   transport->timeout, text);
  (void)copse_transport_fail(transport, &why);
}

/* The rank that has been silent for longest, if since before `recent`; else COPSE_TRANSPORT_NOBODY.
 */
static uint32_t find_silent(const struct copse_transport *transport, double recent) {
  uint32_t found = COPSE_TRANSPORT_NOBODY;
  for (uint32_t r = 0; r < transport->n; r++) {
    if (r == transport->me || transport->peers[r].heard >= recent) continue;
    if (found == COPSE_TRANSPORT_NOBODY ||
        transport->peers[r].heard < transport->peers[found].heard)
      found = r;
  }
  return found;
}

/* Whether one gets on that may still send to this rank: it has not left for a later launch. */
static bool any_moves(const struct copse_transport *transport, double recent) {
  for (uint32_t r = 0; r < transport->n; r++) {
    const struct copse_peer *peer = &transport->peers[r];
    bool is_later = (int32_t)(peer->pong.launch - (uint32_t)transport->call.launch) > 0;
    if (r != transport->me && !is_later && peer->moved > recent) return true;
  }
  return false;
}

/*
 * From who this rank waits for to who that one waits for: a rank that doesn't answer is at fault;
 * where one still moves there is hope. A rank's workers may wait for several others, of which it
 * tells one: where the way leads nowhere, what all ranks do decides.
 */
static void judge(struct copse_transport *transport, double now) {
  uint32_t rank = copse_transport_waits_for(transport, NULL, 0);
  double recent = now - SILENT_FOR * transport->timeout;
  for (uint32_t i = 0; i < transport->n && rank < transport->n && rank != transport->me; i++) {
    const struct copse_peer *peer = &transport->peers[rank];
    if (peer->heard < recent) {
      blame_silent(transport, rank, now, recent);
      return;
    }
    if (peer->moved > recent) {
      transport->last_move = recent;
      return;
    }
    rank = peer->pong.waits_for;
  }
  rank = find_silent(transport, recent);
  if (rank != COPSE_TRANSPORT_NOBODY)
    blame_silent(transport, rank, now, recent);
  else if (any_moves(transport, recent))
    transport->last_move = recent;
  else
    blame_standstill(transport);
}

void copse_transport_watch(struct copse_transport *transport, bool moved) {
  if (moved) {
    transport->idle = 0;
    transport->moves++;
    return;
  }
  if (transport->idle == 0) transport->last_move = copse_clock_seconds();
  transport->idle++;
  rest(transport);
  if (transport->idle % STEPS_A_LOOK != 0) return;
  double now = copse_clock_seconds(), quiet = now - transport->last_move;
  if (quiet >= transport->timeout)
    judge(transport, now);
  else if (quiet >= ASK_AFTER * transport->timeout &&
           now - transport->last_asked >= ASK_AFTER * transport->timeout)
    ask_all(transport, now);
}
