/*
 * A process of its own: `copse run`. MPI has no time limits, and Open MPI waits forever within
 * MPI_Init for a process that doesn't come, and now and then within any call for one that has
 * died: a clock ends the process then, and names the rank that the messages so far make likely.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "runtime/mpi/start.h"
#include "runtime/mpi/wire_mpi.h"

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

/* The rank that a message is being sent to, else the one that has been silent for longest. */
static int find_suspect(void) {
  int suspect = NOBODY;
  if (sending_to != NOBODY) return sending_to;
  for (int r = 0; r < n_ranks; r++)
    if (r != my_rank && (suspect == NOBODY || last_tick[r] < last_tick[suspect])) suspect = r;
  return suspect;
}

/* Append to a text of `size` bytes and return the new length. printf must not be called in a
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

/* One call that lets nothing else happen meanwhile. */
static void watch(const char *call, const char *reason) {
  const struct itimerval timer = {.it_value = interval(limit)};
  const char *rank = getenv("PMIX_RANK"); /* the launcher's word, before MPI knows */
  int used = rank ? snprintf(first_words, sizeof first_words, "copse: rank %.10s: ", rank)
                  : snprintf(first_words, sizeof first_words, "copse: ");
  snprintf(first_words + used, sizeof first_words - (size_t)used,
           "%s did not end within %.3g s: ", call, limit);
  start_watching(&timer, give_up, reason);
}

/* All calls that don't block. The line begins with a newline: Open MPI may be in the midst of one
 * of its own, the same again and again. */
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
  WATCHED(copse_mpi_functions.send(context, to, tag, bytes, n, request));
  return status;
}

static copse_status next_watched(void *context, int *from, unsigned *tag, size_t *n,
                                 void **message) {
  copse_status status;
  WATCHED(copse_mpi_functions.next(context, from, tag, n, message));
  if (status == COPSE_OK && *message) last_tick[*from] = n_ticks;
  return status;
}

static copse_status receive_watched(void *context, void *message, void *bytes, size_t n,
                                    void **request) {
  copse_status status;
  WATCHED(copse_mpi_functions.receive(context, message, bytes, n, request));
  return status;
}

static copse_status test_watched(void *context, void *request, int *done) {
  copse_status status;
  WATCHED(copse_mpi_functions.test(context, request, done));
  return status;
}

/* Where others may be gone MPI_Finalize would wait for them: the process just ends. */
static void end_process(void *context, int orderly) {
  stop_watching();
  free(context);
  if (!orderly) return;
  watch("MPI_Finalize", "another process has died");
  (void)MPI_Finalize();
  stop_watching();
}

static copse_status begin_counting(struct copse_mpi_wire *wire, const copse_wire *out) {
  unsigned *ticks = calloc((size_t)out->n_ranks, sizeof *ticks);
  if (!ticks) return copse_mpi_no_memory(wire);
  my_rank = out->rank;
  n_ranks = out->n_ranks;
  last_tick = ticks;
  return COPSE_OK;
}

copse_status copse_mpi_start(const char *version, double timeout_seconds, copse_wire *out,
                             char *text, size_t size) {
  int given = 0;
  if (strcmp(version, COPSE_VERSION_STRING) != 0) {
    snprintf(text, size, "libcopse-mpi is of copse %s, and this is copse %s", COPSE_VERSION_STRING,
             version);
    return COPSE_UNSUPPORTED;
  }
  struct copse_mpi_wire *wire = calloc(1, sizeof *wire);
  if (!wire) return COPSE_NOMEM;
  wire->comm = MPI_COMM_WORLD;
  limit = timeout_seconds;
  (void)signal(SIGPIPE, SIG_IGN); /* Open MPI writes to the sockets of processes that have died */
  watch("MPI_Init", "a process of the job has not started");
  int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &given);
  stop_watching();
  *out = copse_mpi_functions;
  out->context = wire;
  copse_status status = code == MPI_SUCCESS ? copse_mpi_describe(wire, out)
                                            : copse_mpi_failed(wire, "MPI_Init", code);
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
