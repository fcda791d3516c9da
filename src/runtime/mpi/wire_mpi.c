/*
 * MPI as a wire: libcopse-mpi.so. Nothing else in copse calls MPI. Messages of two ranks keep their
 * order (MPI standard, "Semantics of Point-to-Point Communication").
 *
 * Speed over TCP. Open MPI sends a message beyond its eager limit (64 KiB) only after a question
 * and an answer, which go through the same stream as the data. Where one of two ranks that exchange
 * messages starts first, the other's answer leaves before its own question, and both messages go
 * one after the other. (With --mca btl_tcp_flags 1 Open MPI sends in pieces of 128 KiB, and answers
 * get in between.) So a plan for TCP does best with chunks below that limit, many of them on their
 * way, and no more workers than trees, since a process has one thread for all of them: `copse lower
 * --chunk 61440 --fifo 32 --instances 1`.
 */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "copse/mpi.h"
#include "copse/wire.h"

#define DEFAULT_TIMEOUT_SECONDS 600.0

struct wire {
  MPI_Comm comm; /* copse's own */
  char text[MPI_MAX_ERROR_STRING + 64];
};

/* A message or a request, as MPI's may be integers or pointers. */
struct handle {
  MPI_Request request;
  MPI_Message message;
};

/* Keeps what MPI says about its error `code` for why(). */
static copse_status failed(struct wire *wire, const char *call, int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) text[0] = '\0';
  snprintf(wire->text, sizeof wire->text, "%s: %s", call, text);
  return COPSE_DEVICE;
}

static copse_status no_memory(struct wire *wire) {
  snprintf(wire->text, sizeof wire->text, "out of memory");
  return COPSE_NOMEM;
}

static copse_status send_message(void *context, int to, unsigned tag, const void *bytes, size_t n,
                                 void **request) {
  struct wire *wire = context;
  *request = NULL;
  if (n > INT_MAX) {
    snprintf(wire->text, sizeof wire->text,
             "a chunk of %zu bytes; MPI takes %d: lower the plan with smaller chunks", n, INT_MAX);
    return COPSE_UNSUPPORTED;
  }
  struct handle *handle = malloc(sizeof *handle);
  if (!handle) return no_memory(wire);
  int code = MPI_Isend(bytes, (int)n, MPI_BYTE, to, (int)tag, wire->comm, &handle->request);
  if (code != MPI_SUCCESS) {
    free(handle);
    return failed(wire, "MPI_Isend", code);
  }
  *request = handle;
  return COPSE_OK;
}

static copse_status next_message(void *context, int *from, unsigned *tag, size_t *n,
                                 void **message) {
  struct wire *wire = context;
  MPI_Message it;
  MPI_Status status;
  int is_there = 0, bytes = 0;
  *message = NULL;
  int code = MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, wire->comm, &is_there, &it, &status);
  if (code != MPI_SUCCESS) return failed(wire, "MPI_Improbe", code);
  if (!is_there) return COPSE_OK;
  code = MPI_Get_count(&status, MPI_BYTE, &bytes);
  if (code != MPI_SUCCESS) return failed(wire, "MPI_Get_count", code);
  struct handle *handle = malloc(sizeof *handle);
  if (!handle) return no_memory(wire);
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
  return failed(context, "MPI_Imrecv", code);
}

static copse_status test_request(void *context, void *request, int *done) {
  struct handle *handle = request;
  int code = MPI_Test(&handle->request, done, MPI_STATUS_IGNORE);
  if (code == MPI_SUCCESS && !*done) return COPSE_OK;
  free(handle);
  return code == MPI_SUCCESS ? COPSE_OK : failed(context, "MPI_Test", code);
}

static const char *why(void *context) { return ((struct wire *)context)->text; }

/* Ends the wire; freeing a communicator is collective. Where others may be gone it stays as it is,
 * for messages on their way too. */
static void end_wire(void *context, int orderly) {
  struct wire *wire = context;
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

static copse_status begin_arrival(struct wire *wire, MPI_Comm comm, struct arrival *arrival,
                                  MPI_Request *request) {
  int code = MPI_Comm_rank(comm, &arrival->rank);
  if (code == MPI_SUCCESS) code = MPI_Comm_size(comm, &arrival->n_ranks);
  if (code != MPI_SUCCESS) return failed(wire, "an MPI communicator", code);
  arrival->here = calloc((size_t)arrival->n_ranks + 1, 1);
  if (!arrival->here) return no_memory(wire);
  char *mine = &arrival->here[arrival->n_ranks];
  *mine = 1;
  code = MPI_Iallgather(mine, 1, MPI_BYTE, arrival->here, 1, MPI_BYTE, comm, request);
  return code == MPI_SUCCESS ? COPSE_OK : failed(wire, "MPI_Iallgather", code);
}

/* Tells "nothing has come from ranks 1, 3 ...". */
static void tell_missing(struct wire *wire, const struct arrival *arrival, double seconds) {
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

/* Duplicates by MPI_Comm_dup with a timeout. After a failure MPI may still write to `arrival`. */
static copse_status duplicate(struct wire *wire, MPI_Comm comm, double seconds) {
  static const struct timespec nap = {0, 100000};
  MPI_Request requests[2];
  struct arrival arrival;
  int done = 0;
  copse_status status = begin_arrival(wire, comm, &arrival, &requests[0]);
  if (status != COPSE_OK) return status;
  int code = MPI_Comm_idup(comm, &wire->comm, &requests[1]);
  if (code != MPI_SUCCESS) return failed(wire, "MPI_Comm_idup", code);
  for (double end = now() + seconds; !done;) {
    code = MPI_Testall(2, requests, &done, MPI_STATUSES_IGNORE);
    if (code != MPI_SUCCESS) return failed(wire, "MPI_Comm_idup", code);
    if (!done && now() > end) {
      tell_missing(wire, &arrival, seconds);
      return COPSE_TIMEOUT;
    }
    if (!done) nanosleep(&nap, NULL);
  }
  free(arrival.here);
  return COPSE_OK;
}

/* Finds ranks and tags of wire->comm, which from here on returns its errors. */
static copse_status describe(struct wire *wire, copse_wire *out) {
  void *most = NULL;
  int found = 0, code = MPI_Comm_set_errhandler(wire->comm, MPI_ERRORS_RETURN);
  if (code == MPI_SUCCESS) code = MPI_Comm_rank(wire->comm, &out->rank);
  if (code == MPI_SUCCESS) code = MPI_Comm_get_attr(wire->comm, MPI_TAG_UB, &most, &found);
  if (code == MPI_SUCCESS) code = MPI_Comm_size(wire->comm, &out->n_ranks);
  out->most_tag = found ? (unsigned)*(int *)most : 32767u;
  return code == MPI_SUCCESS ? COPSE_OK : failed(wire, "an MPI communicator", code);
}

static const copse_wire functions = {.send = send_message,
                                     .next = next_message,
                                     .receive = receive_message,
                                     .test = test_request,
                                     .why = why,
                                     .end = end_wire};

copse_status copse_wire_new_mpi(MPI_Comm comm, double timeout_seconds, copse_wire *out) {
  /* Stands for a wire that could not be made: only its text is used. */
  static struct wire failure;
  int is_up = 0, is_down = 0;
  *out = functions;
  out->context = &failure;
  (void)MPI_Initialized(&is_up);
  (void)MPI_Finalized(&is_down);
  if (!is_up || is_down) {
    snprintf(failure.text, sizeof failure.text,
             is_up ? "MPI_Finalize has been called" : "MPI_Init must be called before");
    return COPSE_INVALID;
  }
  struct wire *wire = calloc(1, sizeof *wire);
  if (!wire) return no_memory(&failure);
  double seconds = timeout_seconds > 0 ? timeout_seconds : DEFAULT_TIMEOUT_SECONDS;
  copse_status status = duplicate(wire, comm, seconds);
  if (status == COPSE_OK) status = describe(wire, out);
  if (status == COPSE_OK) {
    out->context = wire;
    return COPSE_OK;
  }
  out->n_ranks = 0;
  snprintf(failure.text, sizeof failure.text, "%s", wire->text);
  return status; /* MPI may still write to the wire */
}

/* ---- a process of its own: `copse run` --------------------------------------------------------
 * MPI has no time limits, and Open MPI waits forever within MPI_Init for a process that doesn't
 * come, and now and then within any call for one that has died: a clock ends the process then, and
 * names the rank that the messages so far make likely. */

#define EXIT_RESOURCES 4
/* A call that lasts so many ticks, 1.5 times the time limit, won't return: the other ranks have
 * given up by then. */
#define TICKS_PER_TIMEOUT 4
#define MOST_TICKS 6

#define NOBODY (-1)

static double limit;
static char first_words[200]; /* up to the reason */
static const char *default_reason;
static volatile sig_atomic_t is_inside;
static volatile int sending_to = NOBODY;
static volatile unsigned n_calls;
/* When, in ticks, something last came from each rank; its own entry is not looked at. */
static volatile unsigned *last_tick; /* [n_ranks], NULL before MPI_Init has returned */
static volatile unsigned n_ticks;
static int my_rank, n_ranks;

/* Finds the rank that a message is being sent to, else the one that has been silent for longest. */
static int find_suspect(void) {
  int suspect = NOBODY;
  if (sending_to != NOBODY) return sending_to;
  for (int r = 0; r < n_ranks; r++)
    if (r != my_rank && (suspect == NOBODY || last_tick[r] < last_tick[suspect])) suspect = r;
  return suspect;
}

/* Appends to a text of `size` bytes and returns the new length. printf must not be called in a
 * handler of signals. */
static size_t add(char *text, size_t size, size_t used, const char *more) {
  while (*more && used + 1 < size) text[used++] = *more++;
  text[used] = '\0';
  return used;
}

static size_t add_number(char *text, size_t size, size_t used, unsigned number) {
  char digits[16];
  size_t at = sizeof digits - 1;
  digits[at] = '\0';
  do digits[--at] = (char)('0' + number % 10);
  while (number /= 10);
  return add(text, size, used, digits + at);
}

static void give_up(int signal) {
  char text[600];
  (void)signal;
  size_t used = add(text, sizeof text, 0, first_words);
  used = add(text, sizeof text, used, default_reason);
  if (last_tick && find_suspect() != NOBODY) {
    used = add(text, sizeof text, used,
               sending_to != NOBODY ? ", maybe the one that it sends to, rank "
                                    : ", maybe the one silent for longest, rank ");
    used = add_number(text, sizeof text, used, (unsigned)find_suspect());
  }
  used = add(text, sizeof text, used, "\n");
  (void)!write(STDERR_FILENO, text, used);
  _exit(EXIT_RESOURCES);
}

static void tick(int signal) {
  static unsigned last_call, n_inside;
  n_inside = is_inside && n_calls == last_call ? n_inside + 1 : 0;
  last_call = n_calls;
  n_ticks++;
  if (n_inside >= MOST_TICKS) give_up(signal);
}

static struct timeval interval(double seconds) {
  struct timeval it = {.tv_sec = (time_t)seconds};
  it.tv_usec = (suseconds_t)(1e6 * (seconds - (double)it.tv_sec));
  return it;
}

static void stop_watching(void) {
  const struct itimerval none = {.it_interval = {0, 0}};
  (void)setitimer(ITIMER_REAL, &none, NULL);
}

static void start_watching(const struct itimerval *timer, void (*handler)(int),
                           const char *reason) {
  default_reason = reason;
  (void)signal(SIGALRM, handler);
  (void)setitimer(ITIMER_REAL, timer, NULL);
}

/* Watches one call that lets nothing else happen meanwhile. */
static void watch(const char *call, const char *reason) {
  const struct itimerval timer = {.it_value = interval(limit)};
  const char *rank = getenv("PMIX_RANK"); /* the launcher's word, before MPI has it */
  int used = rank ? snprintf(first_words, sizeof first_words, "copse: rank %.10s: ", rank)
                  : snprintf(first_words, sizeof first_words, "copse: ");
  snprintf(first_words + used, sizeof first_words - (size_t)used,
           "%s did not end within %.3g s: ", call, limit);
  start_watching(&timer, give_up, reason);
}

/* Watches all calls that don't block. The line begins with a newline: Open MPI may be in the midst
 * of one of its own, the same again and again. */
static void watch_calls(void) {
  const struct timeval period = interval(limit / TICKS_PER_TIMEOUT);
  const struct itimerval timer = {.it_interval = period, .it_value = period};
  snprintf(first_words, sizeof first_words,
           "\ncopse: rank %d: MPI has not returned for %.3g s from a call that doesn't wait: ",
           my_rank, limit * MOST_TICKS / TICKS_PER_TIMEOUT);
  start_watching(&timer, tick, "another process has died");
}

/* ---- the wire, watched ----------------------------------------------------------------------- */

#define WATCHED(call)    \
  do {                   \
    n_calls++;           \
    is_inside = 1;       \
    status = call;       \
    is_inside = 0;       \
    sending_to = NOBODY; \
  } while (0)

static copse_status send_watched(void *context, int to, unsigned tag, const void *bytes, size_t n,
                                 void **request) {
  copse_status status;
  sending_to = to;
  WATCHED(functions.send(context, to, tag, bytes, n, request));
  return status;
}

static copse_status next_watched(void *context, int *from, unsigned *tag, size_t *n,
                                 void **message) {
  copse_status status;
  WATCHED(functions.next(context, from, tag, n, message));
  if (status == COPSE_OK && *message) last_tick[*from] = n_ticks;
  return status;
}

static copse_status receive_watched(void *context, void *message, void *bytes, size_t n,
                                    void **request) {
  copse_status status;
  WATCHED(functions.receive(context, message, bytes, n, request));
  return status;
}

static copse_status test_watched(void *context, void *request, int *done) {
  copse_status status;
  WATCHED(functions.test(context, request, done));
  return status;
}

/* Ends MPI by MPI_Finalize. Where others may be gone that would wait for them: the process just
 * ends. */
static void end_process(void *context, int orderly) {
  stop_watching();
  free(context);
  if (!orderly) return;
  watch("MPI_Finalize", "another process has died");
  (void)MPI_Finalize();
  stop_watching();
}

static copse_status begin_counting(struct wire *wire, const copse_wire *out) {
  unsigned *ticks = calloc((size_t)out->n_ranks, sizeof *ticks);
  if (!ticks) return no_memory(wire);
  my_rank = out->rank;
  n_ranks = out->n_ranks;
  last_tick = ticks;
  return COPSE_OK;
}

/* Starts as the entry that `copse run` looks up by name: MPI_Init, and a wire over all processes,
 * whose orderly end is MPI_Finalize. Both end the process (exit status 4, one line) where they take
 * longer than timeout_seconds. COPSE_UNSUPPORTED for another version of copse. `text` gets the
 * reason. */
COPSE_API copse_status copse_mpi_start(const char *version, double timeout_seconds, copse_wire *out,
                                       char *text, size_t size);
copse_status copse_mpi_start(const char *version, double timeout_seconds, copse_wire *out,
                             char *text, size_t size) {
  int given = 0;
  if (strcmp(version, COPSE_VERSION_STRING) != 0) {
    snprintf(text, size, "libcopse-mpi is of copse %s, and this is copse %s", COPSE_VERSION_STRING,
             version);
    return COPSE_UNSUPPORTED;
  }
  struct wire *wire = calloc(1, sizeof *wire);
  if (!wire) return COPSE_NOMEM;
  wire->comm = MPI_COMM_WORLD;
  limit = timeout_seconds;
  (void)signal(SIGPIPE, SIG_IGN); /* Open MPI writes to the sockets of processes that have died */
  watch("MPI_Init", "a process of the job has not started");
  int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &given);
  stop_watching();
  *out = functions;
  out->context = wire;
  copse_status status = code == MPI_SUCCESS ? describe(wire, out) : failed(wire, "MPI_Init", code);
  if (status == COPSE_OK) status = begin_counting(wire, out);
  if (status != COPSE_OK) {
    snprintf(text, size, "%s", wire->text);
    free(wire);
    return status;
  }
  out->send = send_watched;
  out->next = next_watched;
  out->receive = receive_watched;
  out->test = test_watched;
  out->end = end_process;
  watch_calls();
  return COPSE_OK;
}
