/*
 * Errors as one line, the first one kept; the text of the last error of each thread; lines on
 * standard error as COPSE_DEBUG asks for them, with host, process and rank as those of NCCL_DEBUG.
 * And what else has a name: collectives, element types, reductions.
 */
#include "base/err.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/types.h"

static _Thread_local char last_error[sizeof((struct copse_err *)0)->text];

/* Keeps a message to one printable line; UTF-8 in names is left alone. */
static void make_printable(char *text) {
  for (char *p = text; *p; p++) {
    unsigned char c = (unsigned char)*p;
    if (c < 0x20 || c == 0x7f) *p = '?';
  }
}

static void format_text(char *out, size_t size, const char *fmt, va_list ap) {
  int n = vsnprintf(out, size, fmt, ap);
  if (n >= (int)size && size > 4) memcpy(out + size - 4, "...", 4);
  make_printable(out);
}

copse_status copse_fail(struct copse_err *err, copse_status status, const char *fmt, ...) {
  if (!err || err->status != COPSE_OK) return status;
  va_list ap;
  va_start(ap, fmt);
  format_text(err->text, sizeof err->text, fmt, ap);
  va_end(ap);
  err->status = status;
  return status;
}

copse_status copse_fail_at(struct copse_err *err, copse_status status, const char *file, long line,
                           const char *fmt, ...) {
  if (!err || err->status != COPSE_OK) return status;
  char message[sizeof err->text];
  va_list ap;
  va_start(ap, fmt);
  format_text(message, sizeof message, fmt, ap);
  va_end(ap);
  if (!file) return copse_fail(err, status, "%s", message);
  if (line <= 0) return copse_fail(err, status, "%s: %s", file, message);
  return copse_fail(err, status, "%s:%ld: %s", file, line, message);
}

copse_status copse_fail_nomem(struct copse_err *err) {
  return copse_fail(err, COPSE_NOMEM, "out of memory");
}

void copse_note(const struct copse_notes *notes, const char *fmt, ...) {
  if (!notes || !notes->note) return;
  char text[512];
  va_list ap;
  va_start(ap, fmt);
  format_text(text, sizeof text, fmt, ap);
  va_end(ap);
  notes->note(notes->ctx, text);
}

copse_status copse_publish_error(const struct copse_err *err) {
  if (err->status != COPSE_OK) memcpy(last_error, err->text, sizeof last_error);
  return err->status;
}

const char *copse_last_error(void) { return last_error; }

const char *copse_version(void) { return COPSE_VERSION_STRING; }

const char *copse_status_string(copse_status status) {
  switch (status) {
    case COPSE_OK: return "ok";
    case COPSE_REFUTED: return "refuted";
    case COPSE_INVALID: return "invalid argument";
    case COPSE_BAD_INPUT: return "bad input";
    case COPSE_IO: return "input or output error";
    case COPSE_INFEASIBLE: return "infeasible";
    case COPSE_OVERFLOW: return "overflow";
    case COPSE_NOMEM: return "out of memory";
    case COPSE_UNSUPPORTED: return "unsupported";
    case COPSE_INTERNAL: return "internal error";
    case COPSE_DEVICE: return "device failure";
    case COPSE_TIMEOUT: return "timed out";
    case COPSE_ABORTED: return "aborted";
  }
  return "unknown status";
}

static const char *const names[] = {"NONE", "WARN", "INFO", "TRACE"};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static enum copse_debug_level wanted;
static char host[64];

static void print_line(const char *level, int rank, const char *text) {
  char line[1200], whose[16] = "";
  if (rank >= 0) snprintf(whose, sizeof whose, " [%d]", rank);
  int n = snprintf(line, sizeof line - 1, "%s:%d:%ld%s COPSE %s %s", host, (int)getpid(),
                   (long)syscall(SYS_gettid), whose, level, text);
  size_t bytes = n < (int)sizeof line - 2 ? (size_t)n : sizeof line - 2;
  line[bytes++] = '\n';
  ssize_t wrote = write(STDERR_FILENO, line, bytes);
  (void)wrote; /* nobody to tell */
}

static void read_environment(void) {
  const char *text = getenv("COPSE_DEBUG");
  if (!text || !*text) return;
  if (gethostname(host, sizeof host - 1) != 0) strcpy(host, "?");
  host[strcspn(host, ".")] = '\0';
  for (int level = COPSE_DEBUG_NONE; level <= COPSE_DEBUG_TRACE; level++)
    if (strcasecmp(text, names[level]) == 0) {
      wanted = (enum copse_debug_level)level;
      return;
    }
  wanted = COPSE_DEBUG_WARN;
  print_line("WARN", -1, "COPSE_DEBUG is none of NONE, WARN, INFO, TRACE; WARN is used");
}

bool copse_debug_wants(enum copse_debug_level level) {
  (void)pthread_once(&once, read_environment);
  return level != COPSE_DEBUG_NONE && level <= wanted;
}

void copse_debug(enum copse_debug_level level, int rank, const char *fmt, ...) {
  if (!copse_debug_wants(level)) return;
  int saved = errno;
  char text[1024];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  print_line(names[level], rank, text);
  errno = saved;
}

/* ---- names and kinds of collectives, names of element types and reductions --------------------
 */

static const char *const type_names[COPSE_N_TYPES] = {"int8",   "uint8",    "int32",  "uint32",
                                                      "int64",  "uint64",   "half",   "float",
                                                      "double", "bfloat16", "f8e4m3", "f8e5m2"};
static const char *const redop_names[COPSE_N_REDOPS] = {"sum", "prod", "max", "min", "avg"};

const char *copse_type_name(enum copse_type type) { return type_names[type]; }

const char *copse_redop_name(enum copse_redop redop) { return redop_names[redop]; }

static const struct {
  const char *name;
  bool broadcasts, aggregates, rooted, many_inputs, many_outputs;
} collectives[] = {
    [COPSE_ALLGATHER] = {"allgather", true, false, false, false, true},
    [COPSE_REDUCE_SCATTER] = {"reduce_scatter", false, true, false, true, false},
    [COPSE_ALLREDUCE] = {"allreduce", true, true, false, false, false},
    [COPSE_BROADCAST] = {"broadcast", true, false, true, false, false},
    [COPSE_REDUCE] = {"reduce", false, true, true, false, false},
    [COPSE_ALLTOALL] = {"alltoall", false, false, false, true, true},
};

const char *copse_collective_name(copse_collective collective) {
  return (unsigned)collective < COPSE_N_COLLECTIVES ? collectives[collective].name : "unknown";
}

/* Whether both are spelled with the same letters: without case, '_', '-' and blanks. */
static bool is_spelled(const char *name, const char *given) {
  for (;; name++, given++) {
    while (*name == '_') name++;
    while (*given && strchr("_- ", *given)) given++;
    if (tolower((unsigned char)*given) != *name) return false;
    if (!*name) return true;
  }
}

bool copse_collective_from_name(const char *name, copse_collective *out) {
  for (size_t i = 0; i < sizeof collectives / sizeof *collectives; i++) {
    if (!is_spelled(collectives[i].name, name)) continue;
    *out = (copse_collective)i;
    return true;
  }
  return false;
}

bool copse_collective_broadcasts(copse_collective collective) {
  return collectives[collective].broadcasts;
}
bool copse_collective_reduces(copse_collective collective) {
  return collectives[collective].aggregates;
}
bool copse_collective_rooted(copse_collective collective) { return collectives[collective].rooted; }
double copse_collective_bus_factor(copse_collective collective, int n_ranks) {
  double others = (double)(n_ranks - 1) / n_ranks;
  if (collective == COPSE_ALLREDUCE) return 2 * others;
  return copse_collective_rooted(collective) ? 1 : others;
}

int copse_collective_inputs(copse_collective collective, int n_ranks) {
  return collectives[collective].many_inputs ? n_ranks : 1;
}
int copse_collective_outputs(copse_collective collective, int n_ranks) {
  return collectives[collective].many_outputs ? n_ranks : 1;
}
