/* Lines on standard error as COPSE_DEBUG asks for them, with host, process and rank as NCCL_DEBUG
 * has. */
#include "base/debug.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/syscall.h>
#include <unistd.h>

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
