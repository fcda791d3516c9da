/*
 * MPI as a wire: libcopse-mpi.so. Nothing else in copse knows MPI.
 *
 * Speed over TCP. Open MPI sends a message beyond its eager limit (64 KiB) only after a question and
 * an answer, which go through the same stream as the data. Where one of two ranks that exchange
 * messages starts first, the other's answer leaves before its own question, and both messages go one
 * after the other. (With --mca btl_tcp_flags 1 Open MPI sends in pieces of 128 KiB, and answers get
 * in between.) So a plan for TCP does best with chunks below that limit, many of them on their way,
 * and no more workers than trees, since a process has one thread for all of them:
 * `copse lower --chunk 61440 --fifo 32 --instances 1`.
 */
#include "runtime/mpi/wire_mpi.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEFAULT_TIMEOUT_SECONDS 600.0

/* A message or a request, as MPI's may be integers or pointers. */
struct handle {
  MPI_Request request;
  MPI_Message message;
};

copse_status copse_mpi_failed(struct copse_mpi_wire *wire, const char *call, int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) text[0] = '\0';
  snprintf(wire->text, sizeof wire->text, "%s: %s", call, text);
  return COPSE_DEVICE;
}

copse_status copse_mpi_no_memory(struct copse_mpi_wire *wire) {
  snprintf(wire->text, sizeof wire->text, "out of memory");
  return COPSE_NOMEM;
}

static copse_status send_message(void *context, int to, unsigned tag, const void *bytes, size_t n,
                                 void **request) {
  struct copse_mpi_wire *wire = context;
  *request = NULL;
  if (n > INT_MAX) {
    snprintf(wire->text, sizeof wire->text,
             "a chunk of %zu bytes; MPI takes %d: lower the plan with smaller chunks", n, INT_MAX);
    return COPSE_UNSUPPORTED;
  }
  struct handle *handle = malloc(sizeof *handle);
  if (!handle) return copse_mpi_no_memory(wire);
  int code = MPI_Isend(bytes, (int)n, MPI_BYTE, to, (int)tag, wire->comm, &handle->request);
  if (code != MPI_SUCCESS) {
    free(handle);
    return copse_mpi_failed(wire, "MPI_Isend", code);
  }
  *request = handle;
  return COPSE_OK;
}

static copse_status next_message(void *context, int *from, unsigned *tag, size_t *n,
                                 void **message) {
  struct copse_mpi_wire *wire = context;
  MPI_Message it;
  MPI_Status status;
  int is_there = 0, bytes = 0;
  *message = NULL;
  int code = MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, wire->comm, &is_there, &it, &status);
  if (code != MPI_SUCCESS) return copse_mpi_failed(wire, "MPI_Improbe", code);
  if (!is_there) return COPSE_OK;
  code = MPI_Get_count(&status, MPI_BYTE, &bytes);
  if (code != MPI_SUCCESS) return copse_mpi_failed(wire, "MPI_Get_count", code);
  struct handle *handle = malloc(sizeof *handle);
  if (!handle) return copse_mpi_no_memory(wire);
  handle->message = it;
  *from = status.MPI_SOURCE;
  *tag = (unsigned)status.MPI_TAG;
  *n = (size_t)bytes;
  *message = handle;
  return COPSE_OK;
}

static copse_status receive_message(void *context, void *message, void *bytes, size_t n,
                                    void **request) {
  struct handle *handle = message;
  int code = MPI_Imrecv(bytes, (int)n, MPI_BYTE, &handle->message, &handle->request);
  *request = handle;
  if (code == MPI_SUCCESS) return COPSE_OK;
  free(handle);
  return copse_mpi_failed(context, "MPI_Imrecv", code);
}

static copse_status test_request(void *context, void *request, int *done) {
  struct handle *handle = request;
  int code = MPI_Test(&handle->request, done, MPI_STATUS_IGNORE);
  if (code == MPI_SUCCESS && !*done) return COPSE_OK;
  free(handle);
  return code == MPI_SUCCESS ? COPSE_OK : copse_mpi_failed(context, "MPI_Test", code);
}

static const char *why(void *context) { return ((struct copse_mpi_wire *)context)->text; }

/* Freeing a communicator is collective. Where others may be gone it stays as it is, for
 * messages on their way too. */
static void end_wire(void *context, int orderly) {
  struct copse_mpi_wire *wire = context;
  if (orderly) {
    (void)MPI_Comm_free(&wire->comm);
    free(wire);
  }
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/*
 * Before there is a channel of ours: a collective of the caller's communicator, in which every rank
 * sends all others a byte. Open MPI's goes from rank to rank straight into the buffer, so at any
 * time this shows who has come. Only for the words of an error: another MPI may bring all at once,
 * and then nothing has come from anybody.
 */
struct arrival {
  int rank, n_ranks;
  char *here; /* [n_ranks] and one more, which is sent */
};

static copse_status begin_arrival(struct copse_mpi_wire *wire, MPI_Comm comm,
                                  struct arrival *arrival, MPI_Request *request) {
  int code = MPI_Comm_rank(comm, &arrival->rank);
  if (code == MPI_SUCCESS) code = MPI_Comm_size(comm, &arrival->n_ranks);
  if (code != MPI_SUCCESS) return copse_mpi_failed(wire, "an MPI communicator", code);
  arrival->here = calloc((size_t)arrival->n_ranks + 1, 1);
  if (!arrival->here) return copse_mpi_no_memory(wire);
  char *mine = &arrival->here[arrival->n_ranks];
  *mine = 1;
  code = MPI_Iallgather(mine, 1, MPI_BYTE, arrival->here, 1, MPI_BYTE, comm, request);
  return code == MPI_SUCCESS ? COPSE_OK : copse_mpi_failed(wire, "MPI_Iallgather", code);
}

/* "nothing has come from ranks 1, 3 ..." */
static void tell_missing(struct copse_mpi_wire *wire, const struct arrival *arrival,
                         double seconds) {
  const volatile char *here = arrival->here;
  const size_t room = sizeof wire->text - 80; /* for what follows the list */
  size_t used = 0;
  int missing = 0;
  for (int r = 0; r < arrival->n_ranks; r++) missing += r != arrival->rank && !here[r];
  if (missing > 0)
    used =
        (size_t)snprintf(wire->text, room, "nothing has come from rank%s", missing > 1 ? "s" : "");
  else
    used = (size_t)snprintf(wire->text, room, "a rank");
  const char *before = " ";
  for (int r = 0; r < arrival->n_ranks && missing > 0; r++) {
    if (r == arrival->rank || here[r]) continue;
    if (used + 20 > room) {
      used += (size_t)snprintf(wire->text + used, sizeof wire->text - used, " and more");
      break;
    }
    used += (size_t)snprintf(wire->text + used, room - used, "%s%d", before, r);
    before = ", ";
  }
  snprintf(wire->text + used, sizeof wire->text - used, " of the MPI communicator%s within %.3g s",
           missing > 0 ? "" : " has not come", seconds);
}

/* MPI_Comm_dup with a timeout. After a failure MPI may still write to `arrival`. */
static copse_status duplicate(struct copse_mpi_wire *wire, MPI_Comm comm, double seconds) {
  static const struct timespec nap = {0, 100000};
  MPI_Request requests[2];
  struct arrival arrival;
  int done = 0;
  copse_status status = begin_arrival(wire, comm, &arrival, &requests[0]);
  if (status != COPSE_OK) return status;
  int code = MPI_Comm_idup(comm, &wire->comm, &requests[1]);
  if (code != MPI_SUCCESS) return copse_mpi_failed(wire, "MPI_Comm_idup", code);
  for (double end = now() + seconds; !done;) {
    code = MPI_Testall(2, requests, &done, MPI_STATUSES_IGNORE);
    if (code != MPI_SUCCESS) return copse_mpi_failed(wire, "MPI_Comm_idup", code);
    if (!done && now() > end) {
      tell_missing(wire, &arrival, seconds);
      return COPSE_TIMEOUT;
    }
    if (!done) nanosleep(&nap, NULL);
  }
  free(arrival.here);
  return COPSE_OK;
}

copse_status copse_mpi_describe(struct copse_mpi_wire *wire, copse_wire *out) {
  void *most = NULL;
  int found = 0, code = MPI_Comm_set_errhandler(wire->comm, MPI_ERRORS_RETURN);
  if (code == MPI_SUCCESS) code = MPI_Comm_rank(wire->comm, &out->rank);
  if (code == MPI_SUCCESS) code = MPI_Comm_get_attr(wire->comm, MPI_TAG_UB, &most, &found);
  if (code == MPI_SUCCESS) code = MPI_Comm_size(wire->comm, &out->n_ranks);
  out->most_tag = found ? (unsigned)*(int *)most : 32767u;
  return code == MPI_SUCCESS ? COPSE_OK : copse_mpi_failed(wire, "an MPI communicator", code);
}

const copse_wire copse_mpi_functions = {.send = send_message,
                                        .next = next_message,
                                        .receive = receive_message,
                                        .test = test_request,
                                        .why = why,
                                        .end = end_wire};

copse_status copse_wire_new_mpi(MPI_Comm comm, double timeout_seconds, copse_wire *out) {
  static struct copse_mpi_wire failure; /* where there is none: only its text is ever used */
  int is_up = 0, is_down = 0;
  *out = copse_mpi_functions;
  out->context = &failure;
  (void)MPI_Initialized(&is_up);
  (void)MPI_Finalized(&is_down);
  if (!is_up || is_down) {
    snprintf(failure.text, sizeof failure.text,
             is_up ? "MPI_Finalize has been called" : "MPI_Init must be called before");
    return COPSE_INVALID;
  }
  struct copse_mpi_wire *wire = calloc(1, sizeof *wire);
  if (!wire) return copse_mpi_no_memory(&failure);
  double seconds = timeout_seconds > 0 ? timeout_seconds : DEFAULT_TIMEOUT_SECONDS;
  copse_status status = duplicate(wire, comm, seconds);
  if (status == COPSE_OK) status = copse_mpi_describe(wire, out);
  if (status == COPSE_OK) {
    out->context = wire;
    return COPSE_OK;
  }
  out->n_ranks = 0;
  snprintf(failure.text, sizeof failure.text, "%s", wire->text);
  return status; /* MPI may still write to the wire */
}
