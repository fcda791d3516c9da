/* Whole files, written beside their target and renamed; standard input and output; SHA-256 by
 * libmd. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"

const char *copse_file_label(const char *path) { return strcmp(path, "-") == 0 ? "<stdin>" : path; }

static copse_status cannot(const char *what, const char *path, int error, struct copse_err *err) {
  bool full = error == ENOSPC || error == EDQUOT; /* a resource ran out; the name was right */
  return copse_fail(err, full ? COPSE_NOMEM : COPSE_IO, "%s: cannot %s: %s", path, what,
                    strerror(error));
}

static copse_status read_all(FILE *in, const char *label, char **data, size_t *size,
                             struct copse_err *err) {
  COPSE_AT_END(copse_free_at) char *buffer = NULL;
  size_t capacity = 0, used = 0;
  for (size_t n = 1; n > 0; used += n) {
    COPSE_DO(copse_grow(&buffer, &capacity, used + 65537, 1, err));
    n = fread(buffer + used, 1, capacity - used - 1, in);
    if (used + n > COPSE_FILE_MAX_BYTES)
      return copse_fail(err, COPSE_BAD_INPUT, "%s: larger than 1 GiB, which no input of copse is",
                        label);
  }
  if (ferror(in)) return cannot("read", label, errno, err);
  buffer[used] = '\0';
  *data = buffer;
  *size = used;
  buffer = NULL;
  return COPSE_OK;
}

copse_status copse_file_read(const char *path, char **data, size_t *size, struct copse_err *err) {
  *data = NULL;
  *size = 0;
  if (strcmp(path, "-") == 0) return read_all(stdin, copse_file_label(path), data, size, err);
  FILE *in = fopen(path, "rbe");
  if (!in) return cannot("open", path, errno, err);
  copse_status status = read_all(in, path, data, size, err);
  fclose(in);
  return status;
}

static copse_status write_and_close(int fd, const char *path, const char *data, size_t size,
                                    struct copse_err *err) {
  copse_status status = COPSE_OK;
  while (size > 0 && status == COPSE_OK) {
    ssize_t n = write(fd, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      status = cannot("write", path, errno, err);
      break;
    }
    data += n;
    size -= (size_t)n;
  }
  if (close(fd) != 0 && status == COPSE_OK) status = cannot("write", path, errno, err);
  return status;
}

/* A device or a pipe (/dev/null, /dev/stdout) is written in place: it can't be replaced. */
static bool is_special(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 && !S_ISREG(st.st_mode);
}

/* What the new file's permissions are: the old one's, else as for any new file. */
static mode_t mode_for(const char *path) {
  struct stat st;
  if (stat(path, &st) == 0) return st.st_mode & 07777;
  mode_t mask = umask(0);
  umask(mask);
  return 0666 & ~mask;
}

static copse_status write_beside(const char *path, const void *data, size_t size,
                                 struct copse_err *err) {
  COPSE_AT_END(copse_free_at) char *temporary = NULL;
  copse_status status = COPSE_OK;
  if (access(path, F_OK) == 0 && access(path, W_OK) != 0) return cannot("write", path, errno, err);
  size_t bytes = strlen(path) + sizeof ".XXXXXX";
  COPSE_DO(copse_calloc(bytes, 1, &temporary, err));
  snprintf(temporary, bytes, "%s.XXXXXX", path);
  int fd = mkstemp(temporary);
  if (fd < 0) return cannot("write", path, errno, err);
  if (fchmod(fd, mode_for(path)) != 0) status = cannot("write", path, errno, err);
  copse_status wrote = write_and_close(fd, path, data, size, err);
  if (status == COPSE_OK) status = wrote;
  if (status == COPSE_OK && rename(temporary, path) != 0)
    status = cannot("write", path, errno, err);
  if (status != COPSE_OK) unlink(temporary);
  return status;
}

copse_status copse_file_write(const char *path, const void *data, size_t size,
                              struct copse_err *err) {
  if (strcmp(path, "-") == 0) {
    if (fflush(stdout) != 0 || fwrite(data, 1, size, stdout) != size || fflush(stdout) != 0)
      return cannot("write", "<stdout>", errno, err);
    return COPSE_OK;
  }
  if (!is_special(path)) { /* behind a link: the file that it leads to */
    char *target = realpath(path, NULL);
    copse_status status = write_beside(target ? target : path, data, size, err);
    free(target);
    return status;
  }
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return cannot("write", path, errno, err);
  return write_and_close(fd, path, data, size, err);
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

void copse_sha256_hex(const void *data, size_t size, char hex[COPSE_SHA256_HEX]) {
  uint8_t digest[COPSE_SHA256_BYTES];
  copse_sha256(data, size, digest);
  for (int i = 0; i < COPSE_SHA256_BYTES; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}
