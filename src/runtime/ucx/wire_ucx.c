/*
 * UCX as a wire: libcopse-ucx.so, and how its processes find each other. Nothing else in copse
 * calls UCX. Source of what UCX promises: its API's header, ucp/api/ucp.h.
 */
#include <dirent.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include "base/clock.h"
#include "copse/ucx.h"
#include "copse/wire.h"
#include "runtime/ucx/rendezvous.h"

/* ==== rendezvous ============================================================================== */

/*
 * How the processes of `copse run --backend ucx` find each other without a launcher: over TCP, at
 * an address that rank 0 listens at, or by a file that it writes the address into. Rank 0 is the
 * middle of a star of TCP connections: every all_gather goes to it and back.
 */

#define MAGIC "copse rendezvous " COPSE_VERSION_STRING
/* Between two attempts to reach rank 0. */
#define RETRY_NANOSECONDS 20000000

/* What a rank says first. */
struct hello {
  char magic[32];
  int32_t n_ranks, rank;
};

struct rendezvous {
  struct copse_meeting meeting;
  int listener;     /* rank 0's, else -1 */
  int *sockets;     /* [n_ranks], -1 where there is none; others than rank 0 use [0] */
  double end;       /* when the time for what goes on is over */
  const char *file; /* made by this process, to be removed */
  char *text;
  size_t size;
};

__attribute__((format(printf, 3, 4))) static copse_status refuse(struct rendezvous *it,
                                                                 copse_status status,
                                                                 const char *fmt, ...) {
  va_list list;
  va_start(list, fmt);
  (void)vsnprintf(it->text, it->size, fmt, list);
  va_end(list);
  return status;
}

/* Tells "nothing has come from ranks 1, 3 within 60 s". */
static copse_status tell_missing(struct rendezvous *it) {
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
  if (missing == 0) snprintf(list, sizeof list, " 0"); /* other ranks wait for rank 0 alone */
  return refuse(it, COPSE_TIMEOUT, "%s: nothing has come from rank%s%s within %.3g s",
                it->meeting.where, missing > 1 ? "s" : "", list, it->meeting.timeout_seconds);
}

/* ---- bytes, within the time ------------------------------------------------------------------ */

static bool ready(const struct rendezvous *it, int fd, short events) {
  struct pollfd wanted = {.fd = fd, .events = events};
  for (;;) {
    double left = it->end - copse_clock_seconds();
    if (left <= 0) return false;
    int n = poll(&wanted, 1, left > 1000 ? 1000000 : (int)(left * 1000) + 1);
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return false;
  }
}

/* Takes all n bytes; false where the other has gone or the time is over. */
static bool take(const struct rendezvous *it, int fd, void *bytes, size_t n) {
  for (size_t had = 0; had < n;) {
    if (!ready(it, fd, POLLIN)) return false;
    ssize_t got = recv(fd, (char *)bytes + had, n - had, 0);
    if (got > 0) had += (size_t)got;
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) return false;
  }
  return true;
}

static bool give(const struct rendezvous *it, int fd, const void *bytes, size_t n) {
  for (size_t gone = 0; gone < n;) {
    if (!ready(it, fd, POLLOUT)) return false;
    ssize_t sent = send(fd, (const char *)bytes + gone, n - gone, MSG_NOSIGNAL);
    if (sent > 0) gone += (size_t)sent;
    if (sent < 0 && errno != EINTR && errno != EAGAIN) return false;
  }
  return true;
}

/* ---- addresses ------------------------------------------------------------------------------- */

/* Whether it is "HOST:PORT", the host in [] or not; false for what is a file. */
static bool is_address(const char *where) {
  const char *colon = strrchr(where, ':');
  return colon && colon[1] && strspn(colon + 1, "0123456789") == strlen(colon + 1) &&
         !strchr(where, '/');
}

static copse_status find_address(struct rendezvous *it, const char *where,
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

/* Publishes where the ranks of other hosts reach this one: the name of the host and the port. */
static copse_status publish(struct rendezvous *it) {
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

static copse_status listen_at(struct rendezvous *it) {
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

/* Welcomes a process. Who speaks another language is not of this job, and is left alone. */
static copse_status welcome(struct rendezvous *it, int fd, int *n_here) {
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

static copse_status receive_all(struct rendezvous *it) {
  copse_status status = listen_at(it);
  for (int n_here = 1; status == COPSE_OK && n_here < it->meeting.n_ranks;) {
    if (!ready(it, it->listener, POLLIN)) return tell_missing(it);
    int fd = accept4(it->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0) status = welcome(it, fd, &n_here);
  }
  return status;
}

/* ---- the other ranks ------------------------------------------------------------------------- */

/* Reads the address in the file; false while there is none. */
static bool read_file(const char *path, char *where, size_t size) {
  FILE *in = fopen(path, "re");
  if (!in) return false;
  bool whole = fgets(where, (int)size, in) && strchr(where, '\n');
  fclose(in);
  if (whole) *strchr(where, '\n') = '\0';
  return whole && is_address(where);
}

/* Makes one attempt; a file that a former job left leads nowhere, so that the next is read
 * again. */
static int try_to_reach(struct rendezvous *it) {
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

static copse_status reach(struct rendezvous *it) {
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

static void rendezvous_free(struct rendezvous *it) {
  if (!it) return;
  for (int r = 0; r < it->meeting.n_ranks; r++)
    if (it->sockets[r] >= 0) close(it->sockets[r]);
  if (it->listener >= 0) close(it->listener);
  if (it->file) (void)unlink(it->file);
  free(it->sockets);
  free(it);
}

/* Waits for all ranks. On an error `text` gets one line: who has not come (COPSE_TIMEOUT), who has
 * another number of ranks or comes twice (COPSE_INVALID), what the system says (COPSE_IO). The text
 * is kept for later errors too. */
static copse_status rendezvous_new(const struct copse_meeting *meeting, struct rendezvous **out,
                                   char *text, size_t size) {
  struct rendezvous *it = calloc(1, sizeof *it);
  int *sockets = calloc((size_t)meeting->n_ranks, sizeof *sockets);
  *out = NULL;
  text[0] = '\0';
  if (!it || !sockets) {
    free(it);
    free(sockets);
    snprintf(text, size, "out of memory");
    return COPSE_NOMEM;
  }
  *it = (struct rendezvous){.meeting = *meeting,
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
    rendezvous_free(it);
  return status;
}

/* Gathers over rank 0, which receives all parts and sends all of them to each. */
static copse_status gather_here(struct rendezvous *it, const void *mine, char *all, size_t bytes) {
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

static copse_status rendezvous_all_gather(void *rendezvous, const void *mine, void *all,
                                          size_t bytes) {
  struct rendezvous *it = rendezvous;
  it->end = copse_clock_seconds() + it->meeting.timeout_seconds;
  if (it->meeting.rank == 0) return gather_here(it, mine, all, bytes);
  if (give(it, it->sockets[0], mine, bytes) &&
      take(it, it->sockets[0], all, (size_t)it->meeting.n_ranks * bytes))
    return COPSE_OK;
  return refuse(it, COPSE_TIMEOUT,
                "%s: rank 0 has left before the job began, or another rank has not come",
                it->meeting.where);
}

/* copse_bootstrap's; `rendezvous` is the context. */
/* ==== wire ==================================================================================== */

/*
 * UCX as a wire: libcopse-ucx.so. Nothing else in copse knows UCX.
 *
 * A message is one of UCX's tagged messages: the sender's rank in the upper half of the tag, the
 * wire's tag in the lower. UCX keeps those of one endpoint in order, and gives out unexpected ones
 * by ucp_tag_probe_nb in the order in which they came.
 *
 * UCX's posix transport gives its shared memory a name until it has filled it: a process that is
 * killed meanwhile leaves a file (seen once in some 100 kills). Segments of sysv are removed right
 * after they are attached, so that is taken, unless UCX_TLS says otherwise.
 *
 * Without RDMA a message is sent at once, however long (RNDV_THRESH inf): asking first costs a way
 * to and fro behind the data that queues on the links, TCP has no zero copy to win, and the sender
 * is done when UCX has the bytes, whatever the receiver does. Within a host a rendezvous would let
 * the receiver read the sender's memory (CMA), but UCX ends the process where the sender was
 * killed.
 *
 * So bytes within a host go through slots in shared memory. A slot that has less room than the
 * shortest chunk of a plan makes fragments of it, each with its own way through UCX. When all slots
 * are taken, nothing wakes the sender up, and it naps. UCX's defaults are 64 slots
 * of 8 KiB for what comes to a rank from all others. Many bytes of slots lie in no cache.
 */

/* Of each rank: 4 MiB, taken from the system as they are used first. A slot has room for 32 KiB and
 * UCX's header; fewer than 64 KiB, or UCX 1.13 stops. */
#define SLOTS "128"
#define SLOT_BYTES "33000"
/* How long a sender that finds no slot leaves its core to others. */
#define NAP_NANOSECONDS 50000
/* How long an orderly end waits for messages to leave. */
#define FLUSH_SECONDS 5.0
/* Tests that make no progress of their own after next_message has: over TCP each is a system call.
 */
#define TESTS_A_LOOK 64

struct wire {
  ucp_context_h context;
  ucp_worker_h worker;
  int n_ranks;
  ucp_ep_h *peers; /* [n_ranks], NULL until something is sent there */
  unsigned char *addresses;
  size_t address_bytes; /* room for one */
  uint64_t rank;
  int event_fd;   /* readable when the worker has something to do, after ucp_worker_arm */
  unsigned done;  /* what progress has done since wait_for_events was last called */
  bool busy;      /* it could not be armed, and has made no progress since */
  int tests;      /* since next_message made progress */
  void *flushing; /* the request of a flush, or NULL */
  uint64_t n_sent, n_flushed; /* messages sent; how many when the flush began */
  char text[300];
};

/* Sent at once: a request that is done. */
static char sent;

static copse_status failed(struct wire *wire, const char *call, ucs_status_t code) {
  snprintf(wire->text, sizeof wire->text, "%s: %s", call, ucs_status_string(code));
  return code == UCS_ERR_NO_MEMORY ? COPSE_NOMEM : COPSE_DEVICE;
}

static copse_status no_memory(struct wire *wire) {
  snprintf(wire->text, sizeof wire->text, "out of memory");
  return COPSE_NOMEM;
}

static void progress(struct wire *wire) { wire->done += ucp_worker_progress(wire->worker); }

static copse_status open_peer(struct wire *wire, int to) {
  const ucp_ep_params_t parameters = {
      .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
      .address = (const ucp_address_t *)(wire->addresses + (size_t)to * wire->address_bytes)};
  ucs_status_t code = ucp_ep_create(wire->worker, &parameters, &wire->peers[to]);
  return code == UCS_OK ? COPSE_OK : failed(wire, "ucp_ep_create", code);
}

static copse_status send_message(void *context, int to, unsigned tag, const void *bytes, size_t n,
                                 void **request) {
  static const ucp_request_param_t plain = {.op_attr_mask = 0};
  struct wire *wire = context;
  *request = NULL;
  if (!wire->peers[to]) {
    copse_status status = open_peer(wire, to);
    if (status != COPSE_OK) return status;
  }
  ucs_status_ptr_t it =
      ucp_tag_send_nbx(wire->peers[to], bytes, n, wire->rank << 32 | (uint64_t)tag, &plain);
  if (UCS_PTR_IS_ERR(it)) return failed(wire, "ucp_tag_send_nbx", UCS_PTR_STATUS(it));
  *request = it ? it : &sent;
  wire->n_sent++;
  return COPSE_OK;
}

static copse_status next_message(void *context, int *from, unsigned *tag, size_t *n,
                                 void **message) {
  struct wire *wire = context;
  ucp_tag_recv_info_t info;
  *message = NULL;
  ucp_tag_message_h it = ucp_tag_probe_nb(wire->worker, 0, 0, 1, &info);
  if (!it) {
    progress(wire);
    wire->tests = 0;
    it = ucp_tag_probe_nb(wire->worker, 0, 0, 1, &info);
  }
  if (!it) return COPSE_OK;
  *from = (int)(info.sender_tag >> 32);
  *tag = (unsigned)info.sender_tag;
  *n = info.length;
  *message = it;
  return COPSE_OK;
}

static copse_status receive_message(void *context, void *message, void *bytes, size_t n,
                                    void **request) {
  static const ucp_request_param_t plain = {.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL};
  struct wire *wire = context;
  ucs_status_ptr_t it = ucp_tag_msg_recv_nbx(wire->worker, bytes, n, message, &plain);
  *request = it;
  if (!UCS_PTR_IS_ERR(it)) return COPSE_OK;
  return failed(wire, "ucp_tag_msg_recv_nbx", UCS_PTR_STATUS(it));
}

static copse_status test_request(void *context, void *request, int *done) {
  struct wire *wire = context;
  *done = 1;
  if (request == &sent) return COPSE_OK;
  ucs_status_t code = ucp_request_check_status(request);
  if (code == UCS_INPROGRESS && ++wire->tests > TESTS_A_LOOK) {
    progress(wire);
    code = ucp_request_check_status(request);
  }
  *done = code != UCS_INPROGRESS;
  if (!*done) return COPSE_OK;
  ucp_request_free(request);
  return code == UCS_OK ? COPSE_OK : failed(wire, "a message", code);
}

/* Waits for events. Progress that was made while the caller looked at one message may have ended
 * another: no sleep before all were looked at again. A worker that can't be armed twice without
 * progress in between waits for a slot at a receiver, which nothing signals. */
static void wait_for_events(void *context, unsigned microseconds) {
  struct wire *wire = context;
  const struct timespec limit = {0, (long)microseconds * 1000}, nap = {0, NAP_NANOSECONDS};
  struct pollfd event = {.fd = wire->event_fd, .events = POLLIN};
  unsigned done = wire->done;
  wire->done = 0;
  bool was_busy = wire->busy;
  wire->busy = done == 0 && ucp_worker_arm(wire->worker) != UCS_OK;
  if (done > 0) return;
  if (!wire->busy)
    (void)ppoll(&event, 1, &limit, NULL);
  else if (was_busy)
    (void)ppoll(NULL, 0, &nap, NULL);
}

static const char *why(void *context) { return ((struct wire *)context)->text; }

/* Flushes what UCX holds. A send is done for UCX when its bytes may change: what TCP's socket has
 * no room for, and a rendezvous's last word, wait within UCX until this process makes progress. A
 * rank that leaves its last call without it would leave the receiver hanging. */
static copse_status flush(void *context, int *done) {
  static const ucp_request_param_t plain = {.op_attr_mask = 0};
  struct wire *wire = context;
  ucs_status_t code = UCS_OK;
  if (!wire->flushing) {
    wire->n_flushed = wire->n_sent;
    wire->flushing = ucp_worker_flush_nbx(wire->worker, &plain);
  }
  if (UCS_PTR_IS_ERR(wire->flushing)) {
    code = UCS_PTR_STATUS(wire->flushing);
  } else if (wire->flushing) {
    progress(wire);
    code = ucp_request_check_status(wire->flushing);
    if (code != UCS_INPROGRESS) ucp_request_free(wire->flushing);
  }
  if (code != UCS_INPROGRESS) wire->flushing = NULL;
  *done = code == UCS_OK && wire->n_flushed == wire->n_sent;
  return code == UCS_OK || code == UCS_INPROGRESS ? COPSE_OK : failed(wire, "flushing", code);
}

static void drop(struct wire *wire) {
  if (wire->worker) ucp_worker_destroy(wire->worker);
  if (wire->context) ucp_cleanup(wire->context);
  free(wire->peers);
  free(wire->addresses);
  free(wire);
}

/* Ends the wire in order. Where others may be gone, messages that are on their way may still use
 * memory of the caller's: everything stays as it is. */
static void end_wire(void *context, int orderly) {
  struct wire *wire = context;
  int done = 0;
  if (!orderly) return;
  for (double end = copse_clock_seconds() + FLUSH_SECONDS; !done && copse_clock_seconds() < end;)
    if (flush(wire, &done) != COPSE_OK) break;
  drop(wire);
}

static copse_status gather(struct wire *wire, const copse_bootstrap *bootstrap, const void *mine,
                           void *all, size_t bytes) {
  copse_status status = bootstrap->all_gather(bootstrap->context, mine, all, bytes);
  if (status != COPSE_OK && !wire->text[0])
    snprintf(wire->text, sizeof wire->text, "the bootstrap's all_gather failed");
  return status;
}

static bool has_rdma(void) {
  DIR *devices = opendir("/sys/class/infiniband");
  bool found = false;
  if (!devices) return false;
  for (const struct dirent *it; !found && (it = readdir(devices));) found = it->d_name[0] != '.';
  (void)closedir(devices);
  return found;
}

/* Whether some ranks are on a host without RDMA. */
static copse_status lacks_rdma(struct wire *wire, const copse_bootstrap *bootstrap, bool *lacks) {
  unsigned char mine = !has_rdma(), *all = calloc((size_t)wire->n_ranks, 1);
  if (!all) return no_memory(wire);
  copse_status status = gather(wire, bootstrap, &mine, all, 1);
  *lacks = status == COPSE_OK && memchr(all, 1, (size_t)wire->n_ranks);
  free(all);
  return status;
}

static copse_status open_worker(struct wire *wire, bool sends_at_once) {
  static const ucp_params_t parameters = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                          .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP};
  static const ucp_worker_params_t of_worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                                .thread_mode = UCS_THREAD_MODE_SERIALIZED};
  ucp_config_t *config;
  ucs_status_t code = ucp_config_read(NULL, NULL, &config);
  if (code != UCS_OK) return failed(wire, "ucp_config_read", code);
  if (!getenv("UCX_TLS")) code = ucp_config_modify(config, "TLS", "^posix");
  if (sends_at_once && !getenv("UCX_RNDV_THRESH") && code == UCS_OK)
    code = ucp_config_modify(config, "RNDV_THRESH", "inf");
  if (!getenv("UCX_MM_FIFO_SIZE") && code == UCS_OK)
    code = ucp_config_modify(config, "MM_FIFO_SIZE", SLOTS);
  if (!getenv("UCX_MM_SEG_SIZE") && code == UCS_OK)
    code = ucp_config_modify(config, "MM_SEG_SIZE", SLOT_BYTES);
  if (code == UCS_OK) code = ucp_init(&parameters, config, &wire->context);
  ucp_config_release(config);
  if (code != UCS_OK) return failed(wire, "ucp_init", code);
  code = ucp_worker_create(wire->context, &of_worker, &wire->worker);
  if (code != UCS_OK) return failed(wire, "ucp_worker_create", code);
  code = ucp_worker_get_efd(wire->worker, &wire->event_fd);
  return code == UCS_OK ? COPSE_OK : failed(wire, "ucp_worker_get_efd", code);
}

/* Addresses have lengths of their own: all are given the room of the longest. */
static copse_status gather_addresses(struct wire *wire, const copse_bootstrap *bootstrap,
                                     const ucp_address_t *address, size_t n) {
  size_t ranks = (size_t)wire->n_ranks;
  uint64_t mine = n, *lengths = calloc(ranks, sizeof *lengths);
  unsigned char *padded = NULL;
  if (!lengths) return no_memory(wire);
  copse_status status = gather(wire, bootstrap, &mine, lengths, sizeof mine);
  for (size_t r = 0; r < ranks && status == COPSE_OK; r++)
    if (lengths[r] > wire->address_bytes) wire->address_bytes = lengths[r];
  free(lengths);
  if (status != COPSE_OK) return status;
  padded = calloc(1, wire->address_bytes);
  wire->addresses = calloc(ranks, wire->address_bytes);
  if (!padded || !wire->addresses) {
    free(padded);
    return no_memory(wire);
  }
  memcpy(padded, address, n);
  status = gather(wire, bootstrap, padded, wire->addresses, wire->address_bytes);
  free(padded);
  return status;
}

static copse_status connect_all(struct wire *wire, const copse_bootstrap *bootstrap) {
  ucp_address_t *address;
  size_t n;
  wire->peers = calloc((size_t)wire->n_ranks, sizeof *wire->peers);
  if (!wire->peers) return no_memory(wire);
  bool sends_at_once;
  copse_status status = lacks_rdma(wire, bootstrap, &sends_at_once);
  if (status == COPSE_OK) status = open_worker(wire, sends_at_once);
  if (status != COPSE_OK) return status;
  ucs_status_t code = ucp_worker_get_address(wire->worker, &address, &n);
  if (code != UCS_OK) return failed(wire, "ucp_worker_get_address", code);
  status = gather_addresses(wire, bootstrap, address, n);
  ucp_worker_release_address(wire->worker, address);
  return status;
}

copse_status copse_wire_new_ucx(int n_ranks, int rank, const copse_bootstrap *bootstrap,
                                copse_wire *out) {
  /* Stands for a wire that could not be made: only its text is used. */
  static _Thread_local struct wire failure;
  *out = (copse_wire){.context = &failure,
                      .most_tag = UINT32_MAX,
                      .send = send_message,
                      .next = next_message,
                      .receive = receive_message,
                      .test = test_request,
                      .why = why,
                      .end = end_wire,
                      .wait = wait_for_events,
                      .flush = flush};
  if (n_ranks < 1 || rank < 0 || rank >= n_ranks || !bootstrap || !bootstrap->all_gather) {
    snprintf(failure.text, sizeof failure.text, "rank %d of %d makes no sense, or no bootstrap",
             rank, n_ranks);
    return COPSE_INVALID;
  }
  struct wire *wire = calloc(1, sizeof *wire);
  if (!wire) return no_memory(&failure);
  wire->n_ranks = n_ranks;
  wire->rank = (uint64_t)rank;
  copse_status status = connect_all(wire, bootstrap);
  if (status != COPSE_OK) {
    snprintf(failure.text, sizeof failure.text, "%s", wire->text);
    drop(wire);
    return status;
  }
  out->context = wire;
  out->n_ranks = n_ranks;
  out->rank = rank;
  return COPSE_OK;
}

/* Starts as the entry that `copse run` looks up by name: the processes meet at `where`. `text` gets
 * the reason. COPSE_UNSUPPORTED for another version of copse. */
COPSE_API copse_status copse_ucx_start(const char *version, const struct copse_meeting *meeting,
                                       copse_wire *out, char *text, size_t size);
copse_status copse_ucx_start(const char *version, const struct copse_meeting *meeting,
                             copse_wire *out, char *text, size_t size) {
  if (strcmp(version, COPSE_VERSION_STRING) != 0) {
    snprintf(text, size, "libcopse-ucx is of copse %s, and this is copse %s", COPSE_VERSION_STRING,
             version);
    return COPSE_UNSUPPORTED;
  }
  struct rendezvous *met;
  copse_status status = rendezvous_new(meeting, &met, text, size);
  if (status != COPSE_OK) return status;
  const copse_bootstrap bootstrap = {rendezvous_all_gather, met};
  status = copse_wire_new_ucx(meeting->n_ranks, meeting->rank, &bootstrap, out);
  if (status != COPSE_OK && !text[0]) snprintf(text, size, "%s", out->why(out->context));
  rendezvous_free(met);
  return status;
}
