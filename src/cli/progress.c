/*
 * Progress on standard error, of every command: from the second second on one line that a thread
 * writes anew, five times a second, and that is cleared before any other line. And what --verbose
 * says.
 *
 *   command --report(phase, part)--> bar --thread--> "\rpack      42 %   12 s"
 *   results, errors, --verbose ----> the line is cleared first
 */
#include <pthread.h>
#include <stdarg.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"

#define SILENT_SECONDS 1.0
#define EVERY_NS 200000000L

struct copse_cli_asked copse_cli_asked;

static struct {
  pthread_mutex_t lock; /* of all that follows */
  pthread_cond_t stop;
  pthread_t thread;
  bool runs, ends, shown;
  double start, phase_begun; /* phase_begun 0: nothing has been reported */
  char phase[24];
  int percent; /* < 0: not known */
} bar = {.lock = PTHREAD_MUTEX_INITIALIZER, .stop = PTHREAD_COND_INITIALIZER};

/* By write(): the thread of a forked process must find no lock of stdio taken. */
static void put(const char *text, int n) {
  ssize_t written = write(STDERR_FILENO, text, (size_t)n);
  (void)written; /* nobody can be told */
}

static void clear_line(void) {
  if (bar.shown) put("\r\033[K", 4);
  bar.shown = false;
}

static void show(double seconds) {
  char line[80], part[16] = "";
  if (bar.percent >= 0) snprintf(part, sizeof part, "%3d %%", bar.percent);
  int n = snprintf(line, sizeof line, "\r\033[K%-10s %5s %4.0f s", bar.phase, part, seconds);
  put(line, n);
  bar.shown = true;
}

static void *show_again_and_again(void *unused) {
  (void)unused;
  pthread_mutex_lock(&bar.lock);
  while (!bar.ends) {
    struct timespec next;
    clock_gettime(CLOCK_REALTIME, &next);
    next.tv_nsec += EVERY_NS;
    next.tv_sec += next.tv_nsec / 1000000000L;
    next.tv_nsec %= 1000000000L;
    pthread_cond_timedwait(&bar.stop, &bar.lock, &next);
    double seconds = copse_clock_seconds() - bar.start;
    if (!bar.ends && seconds >= SILENT_SECONDS) show(seconds);
  }
  clear_line();
  pthread_mutex_unlock(&bar.lock);
  return NULL;
}

/* With --verbose a phase that has ended is said with its time. */
static void begin_phase(const char *phase) {
  double now = copse_clock_seconds();
  if (copse_cli_asked.verbose && bar.phase_begun > 0) {
    clear_line();
    fprintf(stderr, "copse: %s: %.3f s\n", bar.phase, now - bar.phase_begun);
  }
  bar.phase_begun = now;
  snprintf(bar.phase, sizeof bar.phase, "%s", phase);
}

static void report(void *ctx, const char *phase, int64_t done, int64_t total) {
  (void)ctx;
  pthread_mutex_lock(&bar.lock);
  if (strncmp(bar.phase, phase, sizeof bar.phase - 1) != 0) begin_phase(phase);
  bar.percent = total > 0 ? (int)(100 * (done < total ? done : total) / total) : -1;
  pthread_mutex_unlock(&bar.lock);
}

void copse_cli_phase(const char *phase) { report(NULL, phase, 0, 0); }

static void tried(void *ctx, const char *text) {
  (void)ctx;
  copse_cli_say("tried %s", text);
}

struct copse_progress copse_cli_progress_start(void) {
  bool shows = copse_cli_asked.progress || isatty(STDERR_FILENO);
  bar.start = copse_clock_seconds();
  bar.percent = -1;
  bar.ends = false;
  snprintf(bar.phase, sizeof bar.phase, "%s",
           copse_cli_asked.command ? copse_cli_asked.command : "");
  sigset_t all, before; /* signals are the main thread's, which knows what it is changing */
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  if (shows && !bar.runs)
    bar.runs = pthread_create(&bar.thread, NULL, show_again_and_again, NULL) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  /* what is printed before the end comes after it, else it would meet the line */
  if (bar.runs && isatty(STDOUT_FILENO)) {
    fflush(stdout);
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
  }
  return (struct copse_progress){.report = bar.runs || copse_cli_asked.verbose ? report : NULL,
                                 .tried = copse_cli_asked.verbose ? tried : NULL};
}

void copse_cli_progress_end(void) {
  if (copse_cli_asked.verbose && bar.phase_begun > 0) begin_phase("");
  bar.phase_begun = 0;
  if (!bar.runs) return;
  pthread_mutex_lock(&bar.lock);
  bar.ends = true;
  pthread_cond_signal(&bar.stop);
  pthread_mutex_unlock(&bar.lock);
  pthread_join(bar.thread, NULL);
  bar.runs = false;
}

void copse_cli_say(const char *fmt, ...) {
  char text[600];
  va_list ap;
  if (!copse_cli_asked.verbose) return;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  pthread_mutex_lock(&bar.lock);
  clear_line();
  fprintf(stderr, "copse: %s\n", text);
  pthread_mutex_unlock(&bar.lock);
}
