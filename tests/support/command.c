#include "support/command.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "support/support.h"

struct copse_test_result copse_test_result;

static char folder[] = "/tmp/copse-command-XXXXXX";
static bool made;
static pid_t maker;

static void remove_folder(void) {
  char command[64];
  if (getpid() != maker) return; /* Check's forks */
  snprintf(command, sizeof command, "rm -rf %s", folder);
  if (system(command) != 0) fprintf(stderr, "%s stays\n", folder);
}

const char *copse_test_folder(void) {
  if (!made) {
    if (!mkdtemp(folder)) abort(); /* before Check runs there is nothing to fail */
    maker = getpid();
    made = true;
    atexit(remove_folder);
  }
  return folder;
}

char *copse_test_read(const char *name) {
  struct copse_err err = COPSE_ERR_INIT;
  char path[256], *data = NULL;
  size_t size;
  snprintf(path, sizeof path, "%s/%s", copse_test_folder(), name);
  ASSERT_OK(copse_file_read(path, &data, &size, &err), &err);
  return data;
}

void copse_test_write(const char *name, const char *text) {
  struct copse_err err = COPSE_ERR_INIT;
  char path[256];
  snprintf(path, sizeof path, "%s/%s", copse_test_folder(), name);
  ASSERT_OK(copse_file_write(path, text, strlen(text), &err), &err);
}

bool copse_test_exists(const char *name) {
  char path[256];
  snprintf(path, sizeof path, "%s/%s", copse_test_folder(), name);
  return access(path, F_OK) == 0;
}

int copse_test_command(const char *fmt, ...) {
  char line[2048], command[8192];
  const char *bin = getenv("COPSE_BIN");
  size_t n = 2;
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(line, sizeof line, fmt, ap);
  va_end(ap);
  memcpy(command, "{ ", 2);
  for (const char *p = line; *p && n + 256 < sizeof command; p++) {
    if (*p == '@' && (p == line || p[-1] == ' '))
      n += (size_t)snprintf(command + n, sizeof command - n, "%s", bin ? bin : "build/copse");
    else if (*p == '%')
      n += (size_t)snprintf(command + n, sizeof command - n, "%s", copse_test_folder());
    else
      command[n++] = *p;
  }
  snprintf(command + n, sizeof command - n, "\n} >%s/.out 2>%s/.err", folder, folder);
  int status = system(command);
  ck_assert_msg(WIFEXITED(status), "%s: killed by a signal", line);
  free(copse_test_result.out);
  free(copse_test_result.err);
  copse_test_result = (struct copse_test_result){WEXITSTATUS(status), copse_test_read(".out"),
                                                 copse_test_read(".err")};
  return copse_test_result.status;
}

void copse_test_refused(int status, const char *part) {
  const struct copse_test_result *r = &copse_test_result;
  ck_assert_msg(r->status == status, "exit status %d, '%s'", r->status, r->err);
  ck_assert_msg(strncmp(r->err, "copse: ", 7) == 0, "'%s'", r->err);
  ck_assert_msg(strchr(r->err, '\n') == r->err + strlen(r->err) - 1, "not one line: '%s'", r->err);
  ck_assert_msg(strstr(r->err, part) != NULL, "'%s' lacks '%s'", r->err, part);
  bool is_object = strncmp(r->out, "{", 1) == 0 && strstr(r->out, "\"error\": ") &&
                   strchr(r->out, '\n') == r->out + strlen(r->out) - 1;
  ck_assert_msg(is_object || !*r->out, "'%s' on standard output", r->out);
}

void copse_test_all_refused(const char *const cases[][2], size_t n) {
  for (size_t i = 0; i < n; i++) {
    copse_test_command("@ %s", cases[i][0]);
    copse_test_refused(2, cases[i][1]);
  }
}
