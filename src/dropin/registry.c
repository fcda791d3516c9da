#include <pthread.h>
#include <stdlib.h>

#include "base/parallel.h"
#include "dropin/comm.h"
#include "dropin/real.h"
#include "dropin/tally.h"

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct copse_nccl_comm *comms;

void copse_nccl_register(struct copse_nccl_comm *comm) {
  atomic_init(&comm->users, 1);
  pthread_rwlock_wrlock(&lock);
  comm->next = comms;
  comms = comm;
  pthread_rwlock_unlock(&lock);
}

void copse_nccl_use(struct copse_nccl_comm *comm) { atomic_fetch_add(&comm->users, 1); }

struct copse_nccl_comm *copse_nccl_acquire(ncclComm_t nccl) {
  if (!nccl) return NULL;
  pthread_rwlock_rdlock(&lock);
  struct copse_nccl_comm *it = comms;
  while (it && it->nccl != nccl) it = it->next;
  if (it) copse_nccl_use(it);
  pthread_rwlock_unlock(&lock);
  return it;
}

copse_status copse_nccl_release(struct copse_nccl_comm *comm) {
  if (!comm || atomic_fetch_sub(&comm->users, 1) > 1) return COPSE_OK;
  copse_nccl_enter();
  copse_status status = copse_comm_destroy(comm->copse);
  copse_nccl_leave();
  free(comm);
  return status;
}

static void release(void *comm) { (void)copse_nccl_release(comm); }

/* Mostly it takes milliseconds, with messages of other hosts under way 5 s (cuda/watch.cu), and it is
 * good to know that it is over. */
#define RELEASE_SECONDS 10.0

void copse_nccl_release_aside(struct copse_nccl_comm *comm) {
  if (comm && comm->copse)
    (void)copse_run_detached(release, comm, RELEASE_SECONDS);
  else
    release(comm);
}

struct copse_nccl_comm *copse_nccl_forget(ncclComm_t nccl) {
  if (!nccl) return NULL;
  pthread_rwlock_wrlock(&lock);
  struct copse_nccl_comm **at = &comms;
  while (*at && (*at)->nccl != nccl) at = &(*at)->next;
  struct copse_nccl_comm *it = *at;
  if (it) *at = it->next;
  pthread_rwlock_unlock(&lock);
  if (it) copse_nccl_tally_say(it);
  return it;
}
