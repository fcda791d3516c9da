/* Rank 0 is the middle of a star of TCP connections: every all_gather goes to it and back. */
#include "runtime/ucx/rendezvous.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define MAGIC "copse rendezvous " COPSE_VERSION_STRING
/* Between two attempts to reach rank 0. */
#define RETRY_NANOSECONDS 20000000

/* What a rank says first. */
struct hello {
  char magic[32];
  int32_t n_ranks, rank;
};

struct copse_rendezvous {
  struct copse_meeting meeting;
  int listener;     /* rank 0's, else -1 */
  int *sockets;     /* [n_ranks], -1 where there is none; others than rank 0 use [0] */
  double end;       /* when the time for what goes on is over */
  const char *file; /* made by this process, to be removed */
  char *text;
  size_t size;
};

__attribute__((format(printf, 3, 4))) static copse_status refuse(struct copse_rendezvous *it,
                                                                 copse_status status,
                                                                 const char *fmt, ...) {
  va_list list;
  va_start(list, fmt);
  (void)vsnprintf(it->text, it->size, fmt, list);
  va_end(list);
  return status;
}

/* "nothing has come from ranks 1, 3 within 60 s" */
static copse_status tell_missing(struct copse_rendezvous *it) {
  char list[160];
  size_t used = 0;
  int missing = 0;
  list[0] = '\0';
  for (int r = 1; r < it->meeting.n_ranks && it->meeting.rank == 0; r++) {
    if (it->sockets[r] >= 0) continue;
    if (used + 20 > sizeof list) {
      used += (size_t)snprintf(list + used, sizeof list - used, " and more");
      break;
    }
    used += (size_t)snprintf(list + used, sizeof list - used, "%s%d", missing++ ? ", " : " ", r);
  }
  if (missing == 0) snprintf(list, sizeof list, " 0"); /* who waits for all */
  return refuse(it, COPSE_TIMEOUT, "%s: nothing has come from rank%s%s within %.3g s",
                it->meeting.where, missing > 1 ? "s" : "", list, it->meeting.timeout_seconds);
}

/* ---- bytes, within the time ------------------------------------------------------------------ */

static bool ready(const struct copse_rendezvous *it, int fd, short events) {
  struct pollfd wanted = {.fd = fd, .events = events};
  for (;;) {
    double left = it->end - copse_clock_seconds();
    if (left <= 0) return false;
    int n = poll(&wanted, 1, left > 1000 ? 1000000 : (int)(left * 1000) + 1);
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return false;
  }
}

/* All n bytes; false where the other has gone or the time is over. */
static bool take(const struct copse_rendezvous *it, int fd, void *bytes, size_t n) {
  for (size_t had = 0; had < n;) {
    if (!ready(it, fd, POLLIN)) return false;
    ssize_t got = recv(fd, (char *)bytes + had, n - had, 0);
    if (got > 0) had += (size_t)got;
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) return false;
  }
  return true;
}

static bool give(const struct copse_rendezvous *it, int fd, const void *bytes, size_t n) {
  for (size_t gone = 0; gone < n;) {
    if (!ready(it, fd, POLLOUT)) return false;
    ssize_t sent = send(fd, (const char *)bytes + gone, n - gone, MSG_NOSIGNAL);
    if (sent > 0) gone += (size_t)sent;
    if (sent < 0 && errno != EINTR && errno != EAGAIN) return false;
  }
  return true;
}

/* ---- addresses ------------------------------------------------------------------------------- */

/* "HOST:PORT", the host in [] or not; false for what is a file. */
static bool is_address(const char *where) {
  const char *colon = strrchr(where, ':');
  return colon && colon[1] && strspn(colon + 1, "0123456789") == strlen(colon + 1) &&
         !strchr(where, '/');
}

static copse_status find_address(struct copse_rendezvous *it, const char *where,
                                 struct addrinfo **found) {
  const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  char host[256];
  const char *colon = strrchr(where, ':');
  size_t n = (size_t)(colon - where);
  bool bracketed = n >= 2 && where[0] == '[' && colon[-1] == ']';
  snprintf(host, sizeof host, "%.*s", (int)(bracketed ? n - 2 : n), where + (bracketed ? 1 : 0));
  int code = getaddrinfo(host, colon + 1, &hints, found);
  if (code == 0) return COPSE_OK;
  return refuse(it, COPSE_IO, "%s: %s", where, gai_strerror(code));
}

/* Where the ranks of other hosts reach this one: the name of the host and the port. */
static copse_status publish(struct copse_rendezvous *it) {
  struct sockaddr_storage own;
  socklen_t n = sizeof own;
  char host[256] = "", port[16], path[4096];
  if (getsockname(it->listener, (struct sockaddr *)&own, &n) != 0 ||
      getnameinfo((struct sockaddr *)&own, n, NULL, 0, port, sizeof port, NI_NUMERICSERV) != 0 ||
      gethostname(host, sizeof host - 1) != 0)
    return refuse(it, COPSE_IO, "rendezvous: %s", strerror(errno));
  snprintf(path, sizeof path, "%s.%ld", it->meeting.where, (long)getpid());
  FILE *out = fopen(path, "we");
  bool written = out && fprintf(out, "%s:%s\n", host, port) > 0;
  if (out && fclose(out) != 0) written = false;
  if (!written || rename(path, it->meeting.where) != 0) {
    int code = errno;
    (void)unlink(path);
    return refuse(it, COPSE_IO, "%s: cannot write: %s", it->meeting.where, strerror(code));
  }
  it->file = it->meeting.where;
  return COPSE_OK;
}

/* ---- rank 0 ---------------------------------------------------------------------------------- */

static copse_status listen_at(struct copse_rendezvous *it) {
  static const int on = 1;
  struct addrinfo *found = NULL;
  bool given = is_address(it->meeting.where);
  copse_status status = given ? find_address(it, it->meeting.where, &found) : COPSE_OK;
  if (status != COPSE_OK) return status;
  it->listener = socket(given ? found->ai_family : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (it->listener >= 0 && given) {
    (void)setsockopt(it->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(it->listener, found->ai_addr, found->ai_addrlen) != 0)
      status = refuse(it, COPSE_IO, "%s: cannot listen: %s", it->meeting.where, strerror(errno));
  }
  if (given) freeaddrinfo(found);
  if (status != COPSE_OK) return status;
  if (it->listener < 0 || listen(it->listener, it->meeting.n_ranks) != 0)
    return refuse(it, COPSE_IO, "%s: cannot listen: %s", it->meeting.where, strerror(errno));
  return given ? COPSE_OK : publish(it);
}

/* Who speaks another language is not of this job, and is left alone. */
static copse_status welcome(struct copse_rendezvous *it, int fd, int *n_here) {
  struct hello hello;
  if (!take(it, fd, &hello, sizeof hello) || memcmp(hello.magic, MAGIC, sizeof MAGIC) != 0) {
    close(fd);
    return COPSE_OK;
  }
  const char *wrong = hello.n_ranks != it->meeting.n_ranks
                          ? "has a plan for another number of ranks"
                      : hello.rank < 1 || hello.rank >= hello.n_ranks ? "is no rank of the plan"
                      : it->sockets[hello.rank] >= 0                  ? "comes twice"
                                                                      : NULL;
  if (wrong) {
    close(fd);
    return refuse(it, COPSE_INVALID, "%s: rank %d %s", it->meeting.where, (int)hello.rank, wrong);
  }
  it->sockets[hello.rank] = fd;
  (*n_here)++;
  return COPSE_OK;
}

static copse_status receive_all(struct copse_rendezvous *it) {
  copse_status status = listen_at(it);
  for (int n_here = 1; status == COPSE_OK && n_here < it->meeting.n_ranks;) {
    if (!ready(it, it->listener, POLLIN)) return tell_missing(it);
    int fd = accept4(it->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0) status = welcome(it, fd, &n_here);
  }
  return status;
}

/* ---- the other ranks ------------------------------------------------------------------------- */

/* The address in the file; false while there is none. */
static bool read_file(const char *path, char *where, size_t size) {
  FILE *in = fopen(path, "re");
  if (!in) return false;
  bool whole = fgets(where, (int)size, in) && strchr(where, '\n');
  fclose(in);
  if (whole) *strchr(where, '\n') = '\0';
  return whole && is_address(where);
}

/* One attempt; a file that a former job left leads nowhere, so that the next is read again. */
static int try_to_reach(struct copse_rendezvous *it) {
  char where[300];
  struct addrinfo *found;
  int fd = -1;
  if (is_address(it->meeting.where))
    snprintf(where, sizeof where, "%s", it->meeting.where);
  else if (!read_file(it->meeting.where, where, sizeof where))
    return -1;
  if (find_address(it, where, &found) != COPSE_OK) return -1;
  for (struct addrinfo *a = found; a && fd < 0; a = a->ai_next) {
    fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, a->ai_addr, a->ai_addrlen) == 0) continue;
    close(fd);
    fd = -1;
  }
  freeaddrinfo(found);
  return fd;
}

static copse_status reach(struct copse_rendezvous *it) {
  static const struct timespec nap = {0, RETRY_NANOSECONDS};
  struct hello hello = {.n_ranks = it->meeting.n_ranks, .rank = it->meeting.rank};
  snprintf(hello.magic, sizeof hello.magic, "%s", MAGIC);
  while (copse_clock_seconds() < it->end) {
    it->sockets[0] = try_to_reach(it);
    if (it->sockets[0] >= 0 && give(it, it->sockets[0], &hello, sizeof hello)) {
      it->text[0] = '\0';
      return COPSE_OK;
    }
    if (it->sockets[0] >= 0) close(it->sockets[0]);
    it->sockets[0] = -1;
    nanosleep(&nap, NULL);
  }
  return tell_missing(it);
}

/* ---- the face -------------------------------------------------------------------------------- */

copse_status copse_rendezvous_new(const struct copse_meeting *meeting,
                                  struct copse_rendezvous **out, char *text, size_t size) {
  struct copse_rendezvous *it = calloc(1, sizeof *it);
  int *sockets = calloc((size_t)meeting->n_ranks, sizeof *sockets);
  *out = NULL;
  text[0] = '\0';
  if (!it || !sockets) {
    free(it);
    free(sockets);
    snprintf(text, size, "out of memory");
    return COPSE_NOMEM;
  }
  *it = (struct copse_rendezvous){.meeting = *meeting,
                                  .listener = -1,
                                  .sockets = sockets,
                                  .end = copse_clock_seconds() + meeting->timeout_seconds,
                                  .text = text,
                                  .size = size};
  for (int r = 0; r < meeting->n_ranks; r++) sockets[r] = -1;
  copse_status status = meeting->rank == 0 ? receive_all(it) : reach(it);
  if (status == COPSE_OK)
    *out = it;
  else
    copse_rendezvous_free(it);
  return status;
}

/* At rank 0: all parts in, then all of them out. */
static copse_status gather_here(struct copse_rendezvous *it, const void *mine, char *all,
                                size_t bytes) {
  int n = it->meeting.n_ranks;
  memcpy(all, mine, bytes);
  for (int r = 1; r < n; r++)
    if (!take(it, it->sockets[r], all + (size_t)r * bytes, bytes))
      return refuse(it, COPSE_TIMEOUT, "%s: rank %d has left before the job began",
                    it->meeting.where, r);
  for (int r = 1; r < n; r++)
    if (!give(it, it->sockets[r], all, (size_t)n * bytes))
      return refuse(it, COPSE_TIMEOUT, "%s: rank %d has left before the job began",
                    it->meeting.where, r);
  return COPSE_OK;
}

copse_status copse_rendezvous_all_gather(void *rendezvous, const void *mine, void *all,
                                         size_t bytes) {
  struct copse_rendezvous *it = rendezvous;
  it->end = copse_clock_seconds() + it->meeting.timeout_seconds;
  if (it->meeting.rank == 0) return gather_here(it, mine, all, bytes);
  if (give(it, it->sockets[0], mine, bytes) &&
      take(it, it->sockets[0], all, (size_t)it->meeting.n_ranks * bytes))
    return COPSE_OK;
  return refuse(it, COPSE_TIMEOUT,
                "%s: rank 0 has left before the job began, or another rank has not come",
                it->meeting.where);
}

void copse_rendezvous_free(struct copse_rendezvous *it) {
  if (!it) return;
  for (int r = 0; r < it->meeting.n_ranks; r++)
    if (it->sockets[r] >= 0) close(it->sockets[r]);
  if (it->listener >= 0) close(it->listener);
  if (it->file) (void)unlink(it->file);
  free(it->sockets);
  free(it);
}
