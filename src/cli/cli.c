#include "cli/cli.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"

static int exit_of(copse_status status) {
  switch (status) {
    case COPSE_OK: return COPSE_EXIT_DONE;
    case COPSE_REFUTED: return COPSE_EXIT_REFUTED;
    case COPSE_INVALID:
    case COPSE_BAD_INPUT:
    case COPSE_IO:
    case COPSE_UNSUPPORTED: return COPSE_EXIT_USAGE;
    case COPSE_INFEASIBLE: return COPSE_EXIT_INFEASIBLE;
    case COPSE_OVERFLOW:
    case COPSE_NOMEM:
    case COPSE_DEVICE:
    case COPSE_TIMEOUT:
    case COPSE_ABORTED:
    case COPSE_INTERNAL: return COPSE_EXIT_INTERNAL;
  }
  return COPSE_EXIT_INTERNAL;
}

int copse_cli_fail(const struct copse_err *err) {
  fflush(stdout);
  fprintf(stderr, "copse: %s\n", err->text[0] ? err->text : copse_status_string(err->status));
  return exit_of(err->status);
}

int copse_cli_fail_in(const char *label, const struct copse_err *err) {
  struct copse_err placed = COPSE_ERR_INIT;
  bool about_it = err->status == COPSE_UNSUPPORTED || err->status == COPSE_OVERFLOW;
  if (!about_it || strncmp(err->text, label, strlen(label)) == 0) return copse_cli_fail(err);
  (void)copse_fail_at(&placed, err->status, label, 0, "%s", err->text);
  return copse_cli_fail(&placed);
}

void copse_cli_print_refuted(const char *key, const struct copse_err *err) {
  struct copse_text text = {0};
  copse_text_add(&text, "{\"%s\": false, \"reason\": ", key);
  copse_text_add_json_string(&text, err->text);
  copse_text_add(&text, "}\n");
  if (!text.failed) fputs(text.data, stdout);
  copse_text_free(&text);
}

int copse_cli_usage(const char *command, const char *fmt, ...) {
  char text[400];
  struct copse_err err = COPSE_ERR_INIT; /* for its care with what does not print */
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  (void)copse_fail(&err, COPSE_INVALID, "%s: %s (see 'copse %s --help')", command, text, command);
  return copse_cli_fail(&err);
}

int copse_cli_bad_option(const char *command, char **argv, int option) {
  if (option == ':') return copse_cli_usage(command, "option '%s' needs a value", argv[optind - 1]);
  if (strncmp(argv[optind - 1], "--", 2) == 0 && strchr(argv[optind - 1], '='))
    return copse_cli_usage(command, "option '%s' is unknown or takes no value", argv[optind - 1]);
  if (optopt && optopt < 256) return copse_cli_usage(command, "unknown option '-%c'", optopt);
  return copse_cli_usage(command, "option '%s' is unknown or takes no value", argv[optind - 1]);
}

bool copse_cli_parse_int(const char *text, int64_t min, int64_t max, int64_t *out) {
  char *end;
  errno = 0;
  if (!(text[0] == '-' || (text[0] >= '0' && text[0] <= '9'))) return false;
  int64_t v = strtoimax(text, &end, 10);
  if (errno != 0 || *end || end == text || v < min || v > max) return false;
  *out = v;
  return true;
}

bool copse_cli_parse_size(const char *text, uint64_t most, uint64_t *out) {
  uint64_t v = 0;
  const char *p = text;
  for (; *p >= '0' && *p <= '9'; p++)
    if (__builtin_mul_overflow(v, 10u, &v) || __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
      return false;
  if (p == text) return false;
  if (*p) {
    const char *letters = "kKmMgGtT", *found = strchr(letters, *p);
    if (!found) return false;
    unsigned shift = 10 * ((unsigned)(found - letters) / 2 + 1);
    if (v > UINT64_MAX >> shift) return false;
    v <<= shift;
    p++;
  }
  if (*p || v > most) return false;
  *out = v;
  return true;
}

/* Notes wait until the command has succeeded: an error is one line and no more. */
#define MAX_NOTES 32
static char *notes[MAX_NOTES];
static int n_notes;

static void keep_note(void *ctx, const char *text) {
  (void)ctx;
  if (n_notes < MAX_NOTES) notes[n_notes] = strdup(text);
  n_notes++;
}

const struct copse_notes copse_cli_notes = {keep_note, NULL};

void copse_cli_print_notes(void) {
  for (int i = 0; i < n_notes && i < MAX_NOTES; i++) {
    if (notes[i]) fprintf(stderr, "copse: note: %s\n", notes[i]);
    free(notes[i]);
  }
  if (n_notes > MAX_NOTES) fprintf(stderr, "copse: note: and %d more\n", n_notes - MAX_NOTES);
}

/* At most ten lines a second, overwriting each other; nothing in the first half second. */
static void show_progress(void *ctx, const char *phase, int64_t done, int64_t total) {
  struct copse_cli_progress *state = ctx;
  double now = copse_clock_seconds();
  if (now - state->last < (state->shown ? 0.1 : 0.5)) return;
  state->last = now;
  state->shown = true;
  fprintf(stderr, "\r%-8s %3d %%", phase, total > 0 ? (int)(100 * done / total) : 0);
  fflush(stderr);
}

struct copse_progress copse_cli_progress_start(struct copse_cli_progress *state, bool asked) {
  *state = (struct copse_cli_progress){.enabled = asked || isatty(STDERR_FILENO),
                                       .last = copse_clock_seconds()};
  return (struct copse_progress){.report = state->enabled ? show_progress : NULL, .ctx = state};
}

void copse_cli_progress_end(struct copse_cli_progress *state) {
  if (state->shown) fprintf(stderr, "\r              \r");
}
