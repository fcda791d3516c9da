/*
 * Whole files, written beside their target and renamed; standard input and output; gzip (RFC 1952)
 * by zlib; SHA-256 (FIPS 180-4) by libmd. Programs as filters.
 */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sha2.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ZLIB_CONST
#include <zlib.h>

#include "base/clock.h"
#include "base/memory.h"

const char *copse_file_label(const char *path) { return strcmp(path, "-") == 0 ? "<stdin>" : path; }

static copse_status cannot(const char *what, const char *path, int error, struct copse_err *err) {
  bool full = error == ENOSPC || error == EDQUOT; /* a resource ran out; the name was right */
  return copse_fail(err, full ? COPSE_NOMEM : COPSE_IO, "%s: cannot %s: %s", path, what,
                    strerror(error));
}

static copse_status too_large(const char *label, struct copse_err *err) {
  return copse_fail(err, COPSE_BAD_INPUT, "%s: larger than 1 GiB, which no input of copse is",
                    label);
}

/* More is asked of a file than it has, to see its end. */
enum { READ_BYTES = 1 << 16 };

/* Makes room for a file of about that size, if it is known, so that it is not copied while it
 * grows. */
static copse_status make_room(const char *label, size_t size, char **buffer, size_t *capacity,
                              struct copse_err *err) {
  if (size == 0) return COPSE_OK;
  COPSE_DO(copse_memory_check(size, label, NULL, err, "reading it"));
  *capacity = size + READ_BYTES + 1;
  return copse_calloc(*capacity, 1, buffer, err);
}

static copse_status read_all(FILE *in, const char *label, char **data, size_t *size,
                             struct copse_err *err) {
  COPSE_AT_END(copse_free_at) char *buffer = NULL;
  size_t capacity = 0, used = 0;
  struct stat about;
  if (fstat(fileno(in), &about) == 0 && S_ISREG(about.st_mode)) {
    if (about.st_size > (off_t)COPSE_FILE_MAX_BYTES) return too_large(label, err);
    COPSE_DO(make_room(label, (size_t)about.st_size, &buffer, &capacity, err));
  }
  for (size_t n = 1; n > 0; used += n) {
    COPSE_DO(copse_grow(&buffer, &capacity, used + READ_BYTES + 1, 1, err));
    n = fread(buffer + used, 1, capacity - used - 1, in);
    if (used + n > COPSE_FILE_MAX_BYTES) return too_large(label, err);
  }
  if (ferror(in)) return cannot("read", label, errno, err);
  buffer[used] = '\0';
  *data = buffer;
  *size = used;
  buffer = NULL;
  return COPSE_OK;
}

/* ---- gzip ------------------------------------------------------------------------------------ */

enum { GZIP = 16 + MAX_WBITS }; /* zlib's way to say gzip's format, with the largest window */

static void end_inflate(z_stream *z) { inflateEnd(z); }
static void end_deflate(z_stream **z) { deflateEnd(*z); }

/* Returns how many bytes zlib takes at once: its counts have 32 bits. */
static uInt some(size_t n) { return n > (1u << 30) ? 1u << 30 : (uInt)n; }

static copse_status no_memory(const char *label, struct copse_err *err) {
  return copse_fail(err, COPSE_NOMEM, "%s: out of memory for gzip", label);
}

/* Returns what the last four bytes say that a member unpacks to, 0 where that can't be (deflate
 * makes at most 1032 bytes of one): of several members it is the last one's. */
static size_t unpacked_size(const char *packed, size_t size) {
  const unsigned char *end = (const unsigned char *)packed + size;
  if (size < 18) return 0; /* no member is as short */
  size_t said = end[-4] | (size_t)end[-3] << 8 | (size_t)end[-2] << 16 | (size_t)end[-1] << 24;
  return said <= COPSE_FILE_MAX_BYTES && said / 1032 <= size ? said : 0;
}

/* Unpacks gzip's members, one or more in a row. Nothing may follow them. */
static copse_status unpack(const char *label, const char *packed, size_t size, char **data,
                           size_t *unpacked, struct copse_err *err) {
  COPSE_AT_END(copse_free_at) char *buffer = NULL;
  COPSE_AT_END(end_inflate) z_stream z = {0};
  size_t capacity = 0, used = 0, taken = 0;
  if (inflateInit2(&z, GZIP) != Z_OK) return no_memory(label, err);
  COPSE_DO(make_room(label, unpacked_size(packed, size), &buffer, &capacity, err));
  for (int status = Z_OK; taken < size || status != Z_STREAM_END;) {
    if (status == Z_STREAM_END && inflateReset(&z) != Z_OK) return no_memory(label, err);
    COPSE_DO(copse_grow(&buffer, &capacity, used + READ_BYTES + 1, 1, err));
    uInt in = some(size - taken), out = some(capacity - used - 1);
    z.next_in = (const Bytef *)packed + taken;
    z.next_out = (Bytef *)buffer + used;
    z.avail_in = in;
    z.avail_out = out;
    status = inflate(&z, Z_NO_FLUSH);
    taken += in - z.avail_in;
    used += out - z.avail_out;
    if (status == Z_MEM_ERROR) return no_memory(label, err);
    if ((status != Z_OK && status != Z_STREAM_END) || (status == Z_OK && z.avail_out > 0))
      return copse_fail(err, COPSE_BAD_INPUT,
                        "%s: damaged gzip data after %zu bytes; 'gzip -t' tells more", label,
                        taken);
    if (used > COPSE_FILE_MAX_BYTES)
      return copse_fail(err, COPSE_BAD_INPUT,
                        "%s: unpacks to more than 1 GiB, which no input of copse has", label);
  }
  buffer[used] = '\0';
  *data = buffer;
  *unpacked = used;
  buffer = NULL;
  return COPSE_OK;
}

bool copse_file_ends_with(const char *name, const char *end) {
  size_t n = strlen(name), m = strlen(end);
  return n > m && strcmp(name + n - m, end) == 0;
}

copse_status copse_file_read(const char *path, char **data, size_t *size, struct copse_err *err) {
  *data = NULL;
  *size = 0;
  const char *label = copse_file_label(path);
  bool standard = strcmp(path, "-") == 0;
  FILE *in = standard ? stdin : fopen(path, "rbe");
  if (!in) return cannot("open", path, errno, err);
  copse_status status = read_all(in, label, data, size, err);
  if (!standard) fclose(in);
  if (status != COPSE_OK || *size < 3 || memcmp(*data, "\x1f\x8b\x08", 3) != 0) return status;
  COPSE_AT_END(copse_free_at) char *packed = *data;
  size_t n = *size;
  *data = NULL;
  *size = 0;
  return unpack(label, packed, n, data, size, err);
}

/* ---- writing ------------------------------------------------------------------------------- */

/* Where a file's text goes. */
struct sink {
  const char *path;
  copse_text_printer *print;
  const void *thing;
  int fd;
  bool stays_open;
  z_stream z; /* where it is packed */
  copse_status status;
  struct copse_err *err;
};

static bool put(void *to, const char *data, size_t size) {
  struct sink *s = to;
  while (size > 0 && s->status == COPSE_OK) {
    ssize_t n = write(s->fd, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      s->status = cannot("write", s->path, errno, s->err);
      break;
    }
    data += n;
    size -= (size_t)n;
  }
  return s->status == COPSE_OK;
}

/* Compresses bytes and writes what comes out; `flush` is zlib's Z_NO_FLUSH, or Z_FINISH for the
 * last bytes. */
static bool pack(struct sink *s, const char *data, size_t size, int flush) {
  char packed[1 << 14];
  do {
    s->z.next_in = (const Bytef *)data;
    s->z.avail_in = some(size);
    data += s->z.avail_in;
    size -= s->z.avail_in;
    do {
      s->z.next_out = (Bytef *)packed;
      s->z.avail_out = sizeof packed;
      deflate(&s->z, size > 0 ? Z_NO_FLUSH : flush);
      if (!put(s, packed, sizeof packed - s->z.avail_out)) return false;
    } while (s->z.avail_out == 0);
  } while (size > 0);
  return true;
}

static bool put_packed(void *to, const char *data, size_t size) {
  return pack(to, data, size, Z_NO_FLUSH);
}

/* Prints all into the open file and closes it, but for standard output. */
static copse_status fill(struct sink *s) {
  COPSE_AT_END(copse_text_free) struct copse_text text = {.pass = put, .to = s};
  COPSE_AT_END(end_deflate) z_stream *z = &s->z;
  bool packs = copse_file_ends_with(s->path, ".gz");
  if (packs) text.pass = put_packed;
  if (packs &&
      deflateInit2(z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    s->status = no_memory(s->path, s->err);
  text.failed = s->status != COPSE_OK;
  s->print(s->thing, &text);
  copse_text_end(&text);
  if (packs && !text.failed) text.failed = !pack(s, NULL, 0, Z_FINISH);
  if (text.failed && s->status == COPSE_OK) s->status = no_memory(s->path, s->err);
  if (!s->stays_open && close(s->fd) != 0 && s->status == COPSE_OK)
    s->status = cannot("write", s->path, errno, s->err);
  return s->status;
}

void copse_file_begin(void) {
  signal(SIGXFSZ, SIG_IGN);
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
        open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
      _exit(4); /* there is nowhere to say why */
}

/* Whether the path is a device or a pipe (/dev/null, /dev/stdout), which is written in place: it
 * can't be replaced. */
static bool is_special(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 && !S_ISREG(st.st_mode);
}

/* Returns the new file's permissions: the old one's, else as for any new file. */
static mode_t mode_for(const char *path) {
  struct stat st;
  if (stat(path, &st) == 0) return st.st_mode & 07777;
  mode_t mask = umask(0);
  umask(mask);
  return 0666 & ~mask;
}

const int copse_file_endings[] = {SIGINT, SIGTERM, SIGHUP, 0};

sigset_t copse_file_hold_endings(void) {
  sigset_t held, before;
  sigemptyset(&held);
  for (const int *it = copse_file_endings; *it; it++) sigaddset(&held, *it);
  pthread_sigmask(SIG_BLOCK, &held, &before);
  return before;
}

void copse_file_release_endings(const sigset_t *before) {
  pthread_sigmask(SIG_SETMASK, before, NULL);
}

static copse_status write_beside(struct sink *s, const char *path) {
  COPSE_AT_END(copse_free_at) char *temporary = NULL;
  COPSE_AT_END(copse_file_release_endings) sigset_t before = copse_file_hold_endings();
  if (access(path, F_OK) == 0 && access(path, W_OK) != 0)
    return cannot("write", path, errno, s->err);
  size_t bytes = strlen(path) + sizeof ".XXXXXX";
  COPSE_DO(copse_calloc(bytes, 1, &temporary, s->err));
  snprintf(temporary, bytes, "%s.XXXXXX", path);
  s->fd = mkstemp(temporary);
  if (s->fd < 0) return cannot("write", path, errno, s->err);
  if (fchmod(s->fd, mode_for(path)) != 0) s->status = cannot("write", path, errno, s->err);
  copse_status status = fill(s);
  if (status == COPSE_OK && rename(temporary, path) != 0)
    status = cannot("write", path, errno, s->err);
  if (status != COPSE_OK) unlink(temporary);
  return status;
}

/* Follows a link that leads nowhere yet: the file is made there. NULL: it is no link. */
static copse_status follow_link(const char *path, char **target, struct copse_err *err) {
  char text[4096];
  for (int links = 0; links < 40; links++) { /* as many as the kernel follows */
    char *from = *target;
    ssize_t n = readlink(from ? from : path, text, sizeof text - 1);
    if (n <= 0) break;
    text[n] = '\0';
    copse_status status = copse_file_beside(from ? from : path, text, target, err);
    free(from);
    COPSE_DO(status);
  }
  return COPSE_OK;
}

copse_status copse_file_print(const char *path, copse_text_printer *print, const void *thing,
                              struct copse_err *err) {
  struct sink s = {.path = path, .print = print, .thing = thing, .err = err};
  if (strcmp(path, "-") == 0) {
    s.path = "<stdout>";
    s.fd = STDOUT_FILENO;
    s.stays_open = true;
    return fflush(stdout) == 0 ? fill(&s) : cannot("write", s.path, errno, err);
  }
  if (!is_special(path)) {
    COPSE_AT_END(copse_free_at) char *target = realpath(path, NULL);
    if (!target && errno == ELOOP) return cannot("write", path, ELOOP, err); /* it stays */
    if (!target) COPSE_DO(follow_link(path, &target, err));
    return write_beside(&s, target ? target : path);
  }
  s.fd = open(path, O_WRONLY | O_CLOEXEC);
  return s.fd < 0 ? cannot("write", path, errno, err) : fill(&s);
}

struct bytes {
  const void *data;
  size_t size;
};

static void print_bytes(const void *thing, struct copse_text *text) {
  const struct bytes *bytes = thing;
  copse_text_append(text, bytes->data, bytes->size);
}

copse_status copse_file_write(const char *path, const void *data, size_t size,
                              struct copse_err *err) {
  return copse_file_print(path, print_bytes, &(struct bytes){data, size}, err);
}

copse_status copse_file_beside(const char *base, const char *name, char **out,
                               struct copse_err *err) {
  const char *slash = strcmp(base, "-") == 0 ? NULL : strrchr(base, '/');
  int folder = name[0] == '/' || !slash ? 0 : (int)(slash - base) + 1;
  size_t bytes = (size_t)folder + strlen(name) + 1;
  copse_status status = copse_calloc(bytes, 1, out, err);
  if (status == COPSE_OK) snprintf(*out, bytes, "%.*s%s", folder, base, name);
  return status;
}

void copse_sha256(const void *data, size_t size, uint8_t digest[COPSE_SHA256_BYTES]) {
  SHA2_CTX context;
  SHA256Init(&context);
  SHA256Update(&context, data, size);
  SHA256Final(digest, &context);
}

void copse_sha256_text(const uint8_t digest[COPSE_SHA256_BYTES], char hex[COPSE_SHA256_HEX]) {
  for (int i = 0; i < COPSE_SHA256_BYTES; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}

void copse_sha256_hex(const void *data, size_t size, char hex[COPSE_SHA256_HEX]) {
  uint8_t digest[COPSE_SHA256_BYTES];
  copse_sha256(data, size, digest);
  copse_sha256_text(digest, hex);
}

/* ==== programs as filters ===================================================================== */

/* A program as a filter: a pipe to its input and one from its output, both served in turn, with
 * limits of time and size. */

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
