/*
 * Processes of a host that share memory: a barrier of locks on a file (of open file descriptions,
 * fcntl(2)), which the kernel frees when a process ends; descriptors over a socket (SCM_RIGHTS,
 * unix(7)).
 */
#include "runtime/gpu/peer_barrier.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
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

static copse_status draw(uint64_t random[2], struct copse_err *err) {
  const ssize_t bytes = 2 * sizeof *random;
  if (getrandom(random, (size_t)bytes, 0) == bytes) return COPSE_OK;
  return copse_fail(err, COPSE_IO, "no random numbers: %s", strerror(errno));
}

copse_status copse_peer_shared_new(char name[COPSE_PEER_BARRIER_NAME], int *file,
                                   struct copse_err *err) {
  uint64_t random[2];
  *file = -1;
  name[0] = '\0';
  COPSE_DO(draw(random, err));
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

/* ---- open files ------------------------------------------------------------------------------ */

/* A message's bytes; its descriptors are beside them. */
struct files_head {
  uint64_t secret; /* the secret of the receiver */
  uint32_t from, n_files;
};

union files_room {
  struct cmsghdr header;
  char bytes[CMSG_SPACE(COPSE_PEER_FILES * sizeof(int))];
};

static socklen_t socket_address(uint64_t name, struct sockaddr_un *at) {
  memset(at, 0, sizeof *at);
  at->sun_family = AF_UNIX;
  const int n =
      snprintf(at->sun_path + 1, sizeof at->sun_path - 1, "copse-%016llx", /* "\0...": abstract */
               (unsigned long long)name);
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

copse_status copse_peer_socket_new(struct copse_peer_address *address, int *out,
                                   struct copse_err *err) {
  struct sockaddr_un at;
  uint64_t random[2];
  *out = -1;
  COPSE_DO(draw(random, err));
  address->name = random[0];
  address->secret = random[1];
  const socklen_t bytes = socket_address(address->name, &at);
  const int it = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (it >= 0 && bind(it, (const struct sockaddr *)&at, bytes) == 0) {
    *out = it;
    return COPSE_OK;
  }
  const copse_status status = copse_fail(err, COPSE_IO, "a socket: %s", strerror(errno));
  if (it >= 0) close(it);
  return status;
}

/* Sends files; *sent: false where the receiver has no room now. */
static copse_status send_files(int socket, const struct copse_peer_address *to, uint32_t rank,
                               uint32_t own, const int mine[COPSE_PEER_FILES], bool *sent,
                               struct copse_err *err) {
  struct sockaddr_un at;
  union files_room room;
  struct files_head head = {to->secret, own, 0};
  struct iovec text = {&head, sizeof head};
  struct msghdr message = {.msg_name = &at, .msg_iov = &text, .msg_iovlen = 1};
  int files[COPSE_PEER_FILES];
  message.msg_namelen = socket_address(to->name, &at);
  for (int i = 0; i < COPSE_PEER_FILES; i++)
    if (mine[i] >= 0) files[head.n_files++] = mine[i];
  const size_t bytes = head.n_files * sizeof *files;
  memset(&room, 0, sizeof room);
  if (bytes > 0) {
    message.msg_control = &room;
    message.msg_controllen = CMSG_SPACE(bytes);
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    *rights = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(bytes), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(rights), files, bytes);
  }
  *sent = sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)sizeof head;
  /* ETOOMANYREFS: of descriptors under way, until others are taken */
  if (*sent || errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ETOOMANYREFS)
    return COPSE_OK;
  return copse_fail(err, COPSE_IO, "sending rank %u a descriptor: %s%s", rank, strerror(errno),
                    errno == ECONNREFUSED ? " (in another network namespace?)" : "");
}

/* Takes one message, if there is one: *taken. Others than the n processes' are thrown away. */
static copse_status take_files(int socket, const struct copse_peer_address *all, uint32_t n,
                               uint32_t own, int (*theirs)[COPSE_PEER_FILES], bool *got,
                               bool *taken, struct copse_err *err) {
  union files_room room;
  struct files_head head = {0, 0, 0};
  struct iovec text = {&head, sizeof head};
  struct msghdr message = {
      .msg_iov = &text, .msg_iovlen = 1, .msg_control = &room, .msg_controllen = sizeof room};
  int files[COPSE_PEER_FILES];
  const ssize_t bytes = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  *taken = bytes >= 0;
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return COPSE_OK;
  if (bytes < 0) return copse_fail(err, COPSE_IO, "receiving descriptors: %s", strerror(errno));
  const struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
  const size_t n_files = rights && rights->cmsg_type == SCM_RIGHTS
                             ? (rights->cmsg_len - CMSG_LEN(0)) / sizeof *files
                             : 0;
  if (n_files > 0) memcpy(files, CMSG_DATA(rights), n_files * sizeof *files);
  const uint32_t from = head.from;
  const bool known = bytes == (ssize_t)sizeof head && head.secret == all[own].secret && from < n &&
                     from != own && !got[from];
  for (size_t i = 0; i < n_files; i++) {
    if (known)
      theirs[from][i] = files[i];
    else
      close(files[i]);
  }
  if (!known) return COPSE_OK;
  got[from] = true;
  if (n_files == head.n_files) return COPSE_OK;
  return copse_fail(err, COPSE_IO, "descriptors of rank %u are lost: too many open files?", from);
}

copse_status copse_peer_files_swap(int socket, const struct copse_peer_address *all, uint32_t n,
                                   uint32_t own, const int mine[COPSE_PEER_FILES],
                                   int (*theirs)[COPSE_PEER_FILES], double seconds,
                                   struct copse_err *err) {
  const double since = copse_clock_seconds();
  bool got[COPSE_PEER_MOST] = {false};
  /* the next rank to send to; how many have come, its own included */
  uint32_t n_sent = 0, n_got = 1;
  for (uint32_t r = 0; r < n; r++)
    for (int i = 0; i < COPSE_PEER_FILES; i++) theirs[r][i] = -1;
  while (n_sent < n || n_got < n) {
    bool sent = n_sent == own, taken = false;
    if (n_sent < n && !sent)
      COPSE_DO(send_files(socket, &all[n_sent], n_sent, own, mine, &sent, err));
    n_sent += sent;
    COPSE_DO(take_files(socket, all, n, own, theirs, got, &taken, err));
    n_got = 1;
    for (uint32_t r = 0; r < n; r++) n_got += got[r];
    if (sent || taken) continue;
    if (copse_clock_seconds() - since > seconds)
      return copse_fail(err, COPSE_IO, "descriptors of %u ranks didn't come within %g s", n - n_got,
                        seconds);
    struct pollfd wait = {socket, POLLIN, 0};
    (void)poll(&wait, 1, 1);
  }
  return COPSE_OK;
}
