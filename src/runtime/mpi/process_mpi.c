/*
 * A process of its own: `copse run`. MPI has no time limits, and Open MPI waits forever within
 * MPI_Init for a process that doesn't come, and now and then within any call for one that has
 * died: a clock ends the process then.
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

static double limit;
static char last_words[200];
static volatile sig_atomic_t is_inside;
static volatile unsigned n_calls;

static void give_up(int signal) {
  (void)signal;
  (void)!write(STDERR_FILENO, last_words, strlen(last_words));
  _exit(EXIT_RESOURCES);
}

static void tick(int signal) {
  static unsigned last_call, n_ticks;
  n_ticks = is_inside && n_calls == last_call ? n_ticks + 1 : 0;
  last_call = n_calls;
  if (n_ticks >= MOST_TICKS) give_up(signal);
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

/* One call that lets nothing else happen meanwhile. */
static void watch(const char *call, const char *hint) {
  const struct itimerval timer = {.it_value = interval(limit)};
  snprintf(last_words, sizeof last_words, "copse: %s did not end within %.3g s: %s\n", call, limit,
           hint);
  (void)signal(SIGALRM, give_up);
  (void)setitimer(ITIMER_REAL, &timer, NULL);
}

/* All calls that don't block. The line begins with a newline: Open MPI may be in the midst of one
 * of its own, the same again and again. */
static void watch_calls(int rank) {
  const struct timeval period = interval(limit / TICKS_PER_TIMEOUT);
  const struct itimerval timer = {.it_interval = period, .it_value = period};
  snprintf(
      last_words, sizeof last_words,
      "\ncopse: rank %d: MPI has not returned for %.3g s from a call that doesn't wait: another "
      "process has died\n",
      rank, limit * MOST_TICKS / TICKS_PER_TIMEOUT);
  (void)signal(SIGALRM, tick);
  (void)setitimer(ITIMER_REAL, &timer, NULL);
}

/* ---- the wire, watched ----------------------------------------------------------------------- */

#define WATCHED(call)            \
  do {                           \
    n_calls++;                   \
    is_inside = 1;               \
    copse_status status_ = call; \
    is_inside = 0;               \
    return status_;              \
  } while (0)

static copse_status send_watched(void *context, int to, unsigned tag, const void *bytes, size_t n,
                                 void **request) {
  WATCHED(copse_mpi_functions.send(context, to, tag, bytes, n, request));
}

static copse_status next_watched(void *context, int *from, unsigned *tag, size_t *n,
                                 void **message) {
  WATCHED(copse_mpi_functions.next(context, from, tag, n, message));
}

static copse_status receive_watched(void *context, void *message, void *bytes, size_t n,
                                    void **request) {
  WATCHED(copse_mpi_functions.receive(context, message, bytes, n, request));
}

static copse_status test_watched(void *context, void *request, int *done) {
  WATCHED(copse_mpi_functions.test(context, request, done));
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
  watch_calls(out->rank);
  return COPSE_OK;
}
