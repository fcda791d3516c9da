/* The mesh: keeping time, and finding out who is at fault. */
#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "runtime/mesh_internal.h"

/* Steps without progress before a process gives its core away, and before it sleeps: many may
 * share a core. */
#define SPINS 64u
#define YIELDS 4096u
#define NAP_NANOSECONDS 50000
/* Looking at the clock takes longer than a step. */
#define STEPS_A_LOOK 32u

static void rest(struct copse_mesh *mesh) {
  static const struct timespec nap = {0, NAP_NANOSECONDS};
  if (mesh->idle > YIELDS)
    nanosleep(&nap, NULL);
  else if (mesh->idle > SPINS)
    sched_yield();
}

uint32_t copse_mesh_waits_for(const struct copse_mesh *mesh, char *text, size_t size) {
  if (mesh->reader) return mesh->reader->waits_for(mesh->reader->context, text, size);
  if (text)
    snprintf(text, size, "rank %u waits for rank %u to come", mesh->me, mesh->gather_waits_for);
  return mesh->gather_waits_for;
}

void copse_mesh_heard_pong(struct copse_mesh *mesh, uint32_t from,
                           const struct copse_mesh_pong *pong) {
  struct copse_peer *peer = &mesh->peers[from];
  if (pong->moves != peer->pong.moves) peer->moved = copse_clock_seconds();
  peer->pong = *pong;
}

static void ask_all(struct copse_mesh *mesh, double now) {
  mesh->last_asked = now;
  for (uint32_t r = 0; r < mesh->n && mesh->broken.status == COPSE_OK; r++)
    if (r != mesh->me) copse_mesh_send_own(mesh, r, COPSE_MESH_PING, NULL, 0);
}

static void blame_silent(struct copse_mesh *mesh, uint32_t rank, double now) {
  struct copse_err why = COPSE_ERR_INIT;
  double heard = mesh->peers[rank].heard;
  char since[64] = "nothing was ever heard of it";
  if (heard > 0) snprintf(since, sizeof since, "last heard of %.1f s ago", now - heard);
  (void)copse_fail(&why, COPSE_TIMEOUT,
                   "rank %u does not answer (%s; the time limit is %.3g s): dead, stopped, or not "
                   "in the same call",
                   rank, since, mesh->timeout);
  (void)copse_mesh_fail(mesh, &why);
}

static void blame_standstill(struct copse_mesh *mesh) {
  struct copse_err why = COPSE_ERR_INIT;
  char text[200] = "";
  (void)copse_mesh_waits_for(mesh, text, sizeof text);
  (void)copse_fail(&why, COPSE_REFUTED,
                   "standstill: all ranks answer and none has moved for %.3g s; %s", mesh->timeout,
                   text);
  (void)copse_mesh_fail(mesh, &why);
}

/*
 * From who this rank waits for to who that one waits for: a rank that doesn't answer is at fault;
 * where one still moves there is hope. Others have asked for half the time limit, in which a rank
 * that makes progress answers.
 */
static void judge(struct copse_mesh *mesh, double now) {
  uint32_t rank = copse_mesh_waits_for(mesh, NULL, 0);
  double recent = now - mesh->timeout / 2;
  for (uint32_t i = 0; i < mesh->n && rank < mesh->n && rank != mesh->me; i++) {
    const struct copse_peer *peer = &mesh->peers[rank];
    if (peer->heard < recent) {
      blame_silent(mesh, rank, now);
      return;
    }
    if (peer->moved > recent) {
      mesh->last_move = recent;
      return;
    }
    rank = peer->pong.waits_for;
  }
  blame_standstill(mesh);
}

void copse_mesh_watch(struct copse_mesh *mesh, bool moved) {
  if (moved) {
    mesh->idle = 0;
    mesh->moves++;
    return;
  }
  if (mesh->idle == 0) mesh->last_move = copse_clock_seconds();
  mesh->idle++;
  rest(mesh);
  if (mesh->idle % STEPS_A_LOOK != 0) return;
  double now = copse_clock_seconds(), quiet = now - mesh->last_move;
  if (quiet >= mesh->timeout)
    judge(mesh, now);
  else if (quiet >= mesh->timeout / 4 && now - mesh->last_asked >= mesh->timeout / 8)
    ask_all(mesh, now);
}
