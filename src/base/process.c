/* A program as a filter: a pipe to its input and one from its output, both served in turn, with
 * limits of time and size. */
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"

extern char **environ;

struct filter {
  const char *name;
  pid_t pid;
  int to, from; /* pipe ends, -1 when closed */
  const char *input;
  size_t left; /* of input */
  char *data;
  size_t size, capacity;
  struct copse_err *err;
};

static void close_end(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

static copse_status failed(const struct filter *f, const char *what, int error) {
  return copse_fail(f->err, COPSE_IO, "%s: %s: %s", f->name, what, strerror(error));
}

static copse_status spawn(struct filter *f, char *const argv[]) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  sigset_t signals;
  int in[2] = {-1, -1}, out[2] = {-1, -1};
  if (pipe2(in, O_CLOEXEC) != 0) return failed(f, "cannot make a pipe", errno);
  if (pipe2(out, O_CLOEXEC) != 0) {
    int error = errno;
    close(in[0]);
    close(in[1]);
    return failed(f, "cannot make a pipe", error);
  }
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_init(&attributes);
  sigemptyset(&signals);
  sigaddset(&signals, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &signals); /* ignored here, below */
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  int error = posix_spawnp(&f->pid, argv[0], &actions, &attributes, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  close(in[0]);
  close(out[1]);
  f->to = in[1];
  f->from = out[0];
  if (error == 0) return COPSE_OK;
  f->pid = 0;
  if (error == ENOENT || error == EACCES)
    return copse_fail(f->err, COPSE_UNSUPPORTED, "no program '%s' in PATH", f->name);
  return failed(f, "cannot start", error);
}

static void write_some(struct filter *f) {
  ssize_t n = write(f->to, f->input, f->left < 4096 ? f->left : 4096);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (n >= 0) {
    f->input += n;
    f->left -= (size_t)n;
  }
  if (n < 0 || f->left == 0) close_end(&f->to); /* one that stops reading will say why by exiting */
}

static copse_status read_some(struct filter *f, size_t max_bytes) {
  COPSE_DO(copse_grow(&f->data, &f->capacity, f->size + 65537, 1, f->err));
  ssize_t n = read(f->from, f->data + f->size, f->capacity - f->size - 1);
  if (n < 0 && errno == EINTR) return COPSE_OK;
  if (n < 0) return failed(f, "cannot read from it", errno);
  if (n == 0) close_end(&f->from);
  f->size += (size_t)n;
  f->data[f->size] = '\0';
  if (f->size <= max_bytes) return COPSE_OK;
  return copse_fail(f->err, COPSE_IO, "%s: wrote more than %zu bytes", f->name, max_bytes);
}

static copse_status exchange(struct filter *f, int seconds, size_t max_bytes) {
  double deadline = copse_clock_seconds() + seconds;
  if (f->left == 0) close_end(&f->to);
  while (f->from >= 0) {
    struct pollfd ends[2] = {{.fd = f->from, .events = POLLIN}, {.fd = f->to, .events = POLLOUT}};
    double left = deadline - copse_clock_seconds();
    int n = left > 0 ? poll(ends, 2, (int)(1000 * left) + 1) : 0;
    if (n < 0 && errno != EINTR) return failed(f, "cannot wait for it", errno);
    if (n == 0)
      return copse_fail(f->err, COPSE_NOMEM, "%s: not done within %d s", f->name, seconds);
    if (n > 0 && ends[1].revents) write_some(f);
    if (n > 0 && ends[0].revents) COPSE_DO(read_some(f, max_bytes));
  }
  return COPSE_OK;
}

copse_status copse_process_filter(char *const argv[], const char *input, size_t input_size,
                                  int seconds, size_t max_bytes, char **out, size_t *out_size,
                                  struct copse_err *err) {
  struct filter f = {
      .name = argv[0], .to = -1, .from = -1, .input = input, .left = input_size, .err = err};
  struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
  int how = 0;
  *out = NULL;
  *out_size = 0;
  sigaction(SIGPIPE, &ignore, &before);
  copse_status status = spawn(&f, argv);
  if (status == COPSE_OK) fcntl(f.to, F_SETFL, O_NONBLOCK);
  if (status == COPSE_OK) status = exchange(&f, seconds, max_bytes);
  close_end(&f.to);
  close_end(&f.from);
  if (f.pid > 0) {
    if (status != COPSE_OK) kill(f.pid, SIGKILL);
    while (waitpid(f.pid, &how, 0) < 0 && errno == EINTR) continue;
  }
  sigaction(SIGPIPE, &before, NULL);
  if (status == COPSE_OK && !(WIFEXITED(how) && WEXITSTATUS(how) == 0))
    status = copse_fail(err, COPSE_IO, "%s: failed", argv[0]);
  if (status == COPSE_OK) {
    *out = f.data;
    *out_size = f.size;
    f.data = NULL;
  }
  free(f.data);
  return status;
}
