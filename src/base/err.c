/* Errors as one line, the first one kept; the text of the last error of each thread. */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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
