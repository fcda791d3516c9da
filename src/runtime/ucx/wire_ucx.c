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
 * Between hosts without RDMA a message is sent at once, however long (RNDV_THRESH inf): asking first
 * costs a way to and fro behind the data that queues on the links, and TCP has no zero copy to win.
 */
#include <dirent.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include "copse/ucx.h"
#include "base/clock.h"
#include "runtime/ucx/rendezvous.h"

/* How long an orderly end waits for messages to leave. */
#define FLUSH_SECONDS 5.0
/* Tests that make no progress of their own after next_message has: over TCP each is a system call. */
#define TESTS_A_LOOK 64

struct wire {
  ucp_context_h context;
  ucp_worker_h worker;
  int n_ranks;
  ucp_ep_h *peers; /* [n_ranks], NULL until something is sent there */
  unsigned char *addresses;
  size_t address_bytes; /* room for one */
  uint64_t rank;
  int event_fd;  /* readable when the worker has something to do, after ucp_worker_arm */
  unsigned done; /* what progress has done since wait_for_events was last called */
  int tests;     /* since next_message made progress */
  char text[300];
};

/* Room for a host's name. */
#define HOST_BYTES 64

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

/* Progress that was made while the caller looked at one message may have ended another: no sleep
 * before all were looked at again. */
static void wait_for_events(void *context, unsigned microseconds) {
  struct wire *wire = context;
  const struct timespec limit = {0, (long)microseconds * 1000};
  struct pollfd event = {.fd = wire->event_fd, .events = POLLIN};
  unsigned done = wire->done;
  wire->done = 0;
  if (done == 0 && ucp_worker_arm(wire->worker) == UCS_OK) (void)ppoll(&event, 1, &limit, NULL);
}

static const char *why(void *context) { return ((struct wire *)context)->text; }

/* What was sent leaves this process. */
static void flush(struct wire *wire) {
  static const ucp_request_param_t plain = {.op_attr_mask = 0};
  ucs_status_ptr_t it = ucp_worker_flush_nbx(wire->worker, &plain);
  if (!it || UCS_PTR_IS_ERR(it)) return;
  for (double end = copse_clock_seconds() + FLUSH_SECONDS;
       ucp_request_check_status(it) == UCS_INPROGRESS && copse_clock_seconds() < end;)
    (void)ucp_worker_progress(wire->worker);
  ucp_request_free(it);
}

static void drop(struct wire *wire) {
  if (wire->worker) ucp_worker_destroy(wire->worker);
  if (wire->context) ucp_cleanup(wire->context);
  free(wire->peers);
  free(wire->addresses);
  free(wire);
}

/* Where others may be gone, messages that are on their way may still use memory of the caller's:
 * everything stays as it is. */
static void end_wire(void *context, int orderly) {
  struct wire *wire = context;
  if (!orderly) return;
  flush(wire);
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

/* Whether some ranks can be reached over TCP alone. */
static copse_status needs_tcp(struct wire *wire, const copse_bootstrap *bootstrap, bool *needs) {
  struct host {
    char name[HOST_BYTES];
    bool rdma;
  } mine, *all = calloc((size_t)wire->n_ranks, sizeof *all);
  if (!all) return no_memory(wire);
  memset(&mine, 0, sizeof mine);
  (void)gethostname(mine.name, sizeof mine.name - 1);
  mine.rdma = has_rdma();
  copse_status status = gather(wire, bootstrap, &mine, all, sizeof mine);
  *needs = false;
  for (int r = 0; r < wire->n_ranks && status == COPSE_OK; r++)
    *needs = *needs || (strncmp(all[r].name, mine.name, HOST_BYTES) != 0 && !(all[r].rdma && mine.rdma));
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
  copse_status status = needs_tcp(wire, bootstrap, &sends_at_once);
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
  static _Thread_local struct wire failure; /* where there is none: only its text is ever used */
  *out = (copse_wire){.context = &failure,
                      .most_tag = UINT32_MAX,
                      .send = send_message,
                      .next = next_message,
                      .receive = receive_message,
                      .test = test_request,
                      .why = why,
                      .end = end_wire,
                      .wait = wait_for_events};
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

/* The entry that `copse run` looks up by name: the processes meet at `where`. `text` gets the
 * reason. COPSE_UNSUPPORTED for another version of copse. */
COPSE_API copse_status copse_ucx_start(const char *version, const struct copse_meeting *meeting,
                                       copse_wire *out, char *text, size_t size);
copse_status copse_ucx_start(const char *version, const struct copse_meeting *meeting,
                             copse_wire *out, char *text, size_t size) {
  if (strcmp(version, COPSE_VERSION_STRING) != 0) {
    snprintf(text, size, "libcopse-ucx is of copse %s, and this is copse %s", COPSE_VERSION_STRING,
             version);
    return COPSE_UNSUPPORTED;
  }
  struct copse_rendezvous *met;
  copse_status status = copse_rendezvous_new(meeting, &met, text, size);
  if (status != COPSE_OK) return status;
  const copse_bootstrap bootstrap = {copse_rendezvous_all_gather, met};
  status = copse_wire_new_ucx(meeting->n_ranks, meeting->rank, &bootstrap, out);
  if (status != COPSE_OK && !text[0]) snprintf(text, size, "%s", out->why(out->context));
  copse_rendezvous_free(met);
  return status;
}
