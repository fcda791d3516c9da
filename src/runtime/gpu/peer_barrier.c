#include "runtime/gpu/peer_barrier.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/memory.h"

struct copse_peer_barrier {
  int file;
};

/* Locks the first byte. Locks are those of an open file description (fcntl(2)), so that threads of
 * one process may hold one each. */
static int lock(int file, int call, struct flock *it) {
  it->l_whence = SEEK_SET;
  it->l_start = 0;
  it->l_len = 1;
  it->l_pid = 0;
  return fcntl(file, call, it);
}

static copse_status hold(int file, const char *name, struct copse_peer_barrier **out,
                         struct copse_err *err) {
  struct flock reads = {.l_type = F_RDLCK};
  if (file < 0 || lock(file, F_OFD_SETLK, &reads) != 0)
    return copse_fail(err, COPSE_IO, "shared memory %s: %s", name, strerror(errno));
  copse_status status = copse_calloc(1, sizeof **out, out, err);
  if (status == COPSE_OK) (*out)->file = file;
  return status;
}

copse_status copse_peer_shared_new(char name[COPSE_PEER_BARRIER_NAME], int *file,
                                   struct copse_err *err) {
  uint64_t random[2];
  *file = -1;
  name[0] = '\0';
  if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
    return copse_fail(err, COPSE_IO, "no random numbers: %s", strerror(errno));
  snprintf(name, COPSE_PEER_BARRIER_NAME, "/copse-%016llx%016llx", (unsigned long long)random[0],
           (unsigned long long)random[1]);
  *file = shm_open(name, O_CREAT | O_EXCL | O_RDWR, 0600);
  if (*file >= 0) return COPSE_OK;
  const copse_status status =
      copse_fail(err, COPSE_IO, "shared memory %s: %s", name, strerror(errno));
  name[0] = '\0';
  return status;
}

copse_status copse_peer_barrier_new(char name[COPSE_PEER_BARRIER_NAME],
                                    struct copse_peer_barrier **out, struct copse_err *err) {
  int file;
  *out = NULL;
  COPSE_DO(copse_peer_shared_new(name, &file, err));
  copse_status status = hold(file, name, out, err);
  if (status == COPSE_OK) return COPSE_OK;
  copse_peer_barrier_unlink(name);
  close(file);
  name[0] = '\0';
  return status;
}

copse_status copse_peer_barrier_open(const char *name, struct copse_peer_barrier **out,
                                     struct copse_err *err) {
  *out = NULL;
  int file = shm_open(name, O_RDWR, 0);
  copse_status status = hold(file, name, out, err);
  if (status != COPSE_OK && file >= 0) close(file);
  return status;
}

void copse_peer_barrier_unlink(const char *name) { (void)shm_unlink(name); }

/* Unlocks. Closing the file would not do, since a forked child may have it open too. */
void copse_peer_barrier_arrive(struct copse_peer_barrier *it) {
  struct flock nothing = {.l_type = F_UNLCK};
  (void)lock(it->file, F_OFD_SETLK, &nothing);
}

bool copse_peer_barrier_all_arrived(const struct copse_peer_barrier *it) {
  struct flock writes = {.l_type = F_WRLCK};
  return lock(it->file, F_OFD_GETLK, &writes) == 0 && writes.l_type == F_UNLCK;
}

void copse_peer_barrier_free(struct copse_peer_barrier *it) {
  if (!it) return;
  copse_peer_barrier_arrive(it);
  close(it->file);
  free(it);
}
