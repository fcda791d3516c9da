#include "cli/kinds.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "nccl/reports.h"

/* In the order of the bits; JSON by its "format". */
static const struct {
  const char *name, *format;
} kinds[] = {{"a topology", "copse-topology"},
             {"a profile", "copse-profile"},
             {"a demand matrix", "copse-demand"},
             {"a schedule", "copse-schedule"},
             {"an index of groups", "copse-groups"},
             {"an index of schedules for failures", "copse-failures"},
             {"an index of plans", "copse-plans"},
             {"a plan", NULL},
             {"the text form of a plan", "copse-plan-text"},
             {"an MSCCL program", NULL},
             {"an MSCCL++ plan", NULL},
             {"a certificate of rings", "copse-rings"},
             {"a graph dump of NCCL", NULL},
             {"a log or report of NCCL", NULL},
             {"a routing trace", "copse-trace"},
             {"a placement of experts", "copse-placement"},
             {"a table of compute times", "copse-compute"},
             {"a table of copse quality", NULL},
             {"a picture or page", NULL}};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

/* ---- telling ------------------------------------------------------------------------------- */

static bool has(const char *data, size_t size, const char *text) {
  return memmem(data, size, text, strlen(text)) != NULL;
}

/* The kind of what stands after "format":, its version aside. */
static unsigned kind_of_format(const char *name, size_t n) {
  static const char *const others[] = {"copse-cluster", "copse-synthetic"}; /* topologies too */
  for (int i = 0; i < N_KINDS; i++)
    if (kinds[i].format && strlen(kinds[i].format) == n && memcmp(kinds[i].format, name, n) == 0)
      return 1u << i;
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (strlen(others[i]) == n && memcmp(others[i], name, n) == 0) return COPSE_KIND_TOPOLOGY;
  return COPSE_KIND_UNKNOWN;
}

static unsigned kind_of_json(const char *data, size_t size) {
  static const char key[] = "\"format\"";
  const char *end = data + size, *at = data;
  while ((at = memmem(at, (size_t)(end - at), key, sizeof key - 1))) {
    at += sizeof key - 1;
    while (at < end && strchr(" \t\r\n", *at) && *at) at++;
    if (at == end || *at++ != ':') continue;
    while (at < end && strchr(" \t\r\n", *at) && *at) at++;
    if (at == end || *at++ != '"') continue;
    size_t n = 0;
    while (at + n < end && at[n] && !strchr("/\"", at[n])) n++;
    return kind_of_format(at, n);
  }
  return has(data, size, "\"threadblocks\"") ? COPSE_KIND_MSCCLPP : COPSE_KIND_UNKNOWN;
}

static unsigned kind_of_xml(const char *data, size_t size) {
  static const struct {
    const char *text;
    unsigned kind;
  } marks[] = {{"<algo", COPSE_KIND_MSCCL},
               {"<graphs", COPSE_KIND_GRAPHS},
               {"<system", COPSE_KIND_TOPOLOGY},
               {"<svg", COPSE_KIND_PICTURE},
               {"<html", COPSE_KIND_PICTURE}};
  for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
    if (has(data, size < 4096 ? size : 4096, marks[i].text)) return marks[i].kind;
  return COPSE_KIND_UNKNOWN;
}

enum copse_cli_kind copse_cli_kind_of(const char *data, size_t size) {
  size_t at = size >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
  unsigned kind = COPSE_KIND_UNKNOWN;
  if (size >= 8 && memcmp(data, "COPSEPLN", 8) == 0) return COPSE_KIND_PLAN;
  while (at < size && data[at] && strchr(" \t\r\n", data[at])) at++;
  if (at == size || memchr(data, '\0', size)) return COPSE_KIND_UNKNOWN;
  if (data[at] == '<') kind = kind_of_xml(data + at, size - at);
  if (data[at] == '{') kind = kind_of_json(data + at, size - at);
  if (size - at > 15 && memcmp(data + at, "# copse-quality", 15) == 0) return COPSE_KIND_QUALITY;
  if (kind) return (enum copse_cli_kind)kind;
  unsigned theirs = copse_nccl_detect(data, size);
  if (theirs & COPSE_NCCL_IS_TOPOLOGY) return COPSE_KIND_TOPOLOGY;
  if (theirs & (COPSE_NCCL_IS_NVBANDWIDTH | COPSE_NCCL_IS_PROFILE)) return COPSE_KIND_PROFILE;
  return theirs ? COPSE_KIND_LOG : COPSE_KIND_UNKNOWN;
}

/* ---- what is expected ---------------------------------------------------------------------- */

enum { MOST_INPUTS = 64 };
static struct {
  const char *path, *option;
  unsigned kinds;
} inputs[MOST_INPUTS];
static int n_inputs;

/* Puts a file of the same content in place of a pipe. What can't be done is left. */
static void make_stdin_readable_again(void) {
  static char piece[65536];
  struct stat about;
  if (fstat(STDIN_FILENO, &about) != 0 || !S_ISFIFO(about.st_mode)) return;
  int copy = memfd_create("stdin", MFD_CLOEXEC);
  if (copy < 0) return;
  size_t all = 0;
  for (ssize_t n; all <= COPSE_FILE_MAX_BYTES && (n = read(STDIN_FILENO, piece, sizeof piece)) > 0;
       all += (size_t)n)
    for (ssize_t done = 0, m; done < n; done += m)
      if ((m = write(copy, piece + done, (size_t)(n - done))) <= 0) break;
  if (lseek(copy, 0, SEEK_SET) == 0) dup2(copy, STDIN_FILENO);
  close(copy);
}

void copse_cli_kinds_expect(const char *path, unsigned expected, const char *option) {
  if (expected == 0 || n_inputs == MOST_INPUTS) return;
  if (strcmp(path, "-") == 0) make_stdin_readable_again();
  inputs[n_inputs].path = path;
  inputs[n_inputs].kinds = expected;
  inputs[n_inputs++].option = option;
}

static struct {
  const char *path, *option;
} outputs[4];
static int n_outputs;

void copse_cli_kinds_write(const char *path, const char *option) {
  if (n_outputs == sizeof outputs / sizeof *outputs) return;
  outputs[n_outputs].path = path;
  outputs[n_outputs++].option = option;
}

/* A device, such as /dev/stdout, is no file that would be lost, nor is a folder. */
const char *copse_cli_kinds_find_overwritten(const char **input) {
  for (int o = 0; o < n_outputs; o++)
    for (int i = 0; i < n_inputs; i++) {
      struct stat in, out;
      if (stat(outputs[o].path, &out) != 0 || stat(inputs[i].path, &in) != 0) continue;
      if (!S_ISREG(out.st_mode) || in.st_dev != out.st_dev || in.st_ino != out.st_ino) continue;
      *input = inputs[i].path;
      return outputs[o].option;
    }
  return NULL;
}

/* ---- the answer ---------------------------------------------------------------------------- */

static unsigned kind_of_file(const char *path) {
  COPSE_AT_END(copse_free_at) char *data = NULL;
  size_t size;
  struct stat about;
  bool is_stdin = strcmp(path, "-") == 0;
  if (is_stdin ? fstat(STDIN_FILENO, &about) != 0 : stat(path, &about) != 0) return 0;
  if (!S_ISREG(about.st_mode)) return COPSE_KIND_UNKNOWN;
  if (is_stdin && (clearerr(stdin), fseek(stdin, 0, SEEK_SET)) != 0) return COPSE_KIND_UNKNOWN;
  if (copse_file_read(path, &data, &size, NULL) != COPSE_OK) return COPSE_KIND_UNKNOWN;
  return copse_cli_kind_of(data, size);
}

void copse_cli_kinds_add_names(struct copse_line *line, unsigned expected) {
  const char *before = "";
  for (int i = 0; i < N_KINDS; i++) {
    if (!(expected & 1u << i)) continue;
    expected &= ~(1u << i);
    copse_line_add(line, "%s%s", before, kinds[i].name);
    before = expected & (expected - 1) ? ", " : " or ";
  }
}

bool copse_cli_kinds_find_misplaced(struct copse_cli_misplaced *out) {
  for (int i = 0; i < n_inputs; i++) {
    unsigned kind = kind_of_file(inputs[i].path);
    if (kind == COPSE_KIND_UNKNOWN || kind & inputs[i].kinds) continue;
    *out = (struct copse_cli_misplaced){inputs[i].path, inputs[i].option, kind, inputs[i].kinds};
    return true;
  }
  return false;
}

/* The first by name whose content may stand in place of the folder. */
static void find_inside(const char *folder, unsigned expected, char inside[256]) {
  struct dirent **entries = NULL;
  char path[PATH_MAX];
  int n = scandir(folder, &entries, NULL, alphasort);
  for (int i = 0; i < n; i++) {
    const char *name = entries[i]->d_name;
    bool fits = snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path;
    if (!*inside && fits && kind_of_file(path) & expected) snprintf(inside, 256, "%s", name);
    free(entries[i]);
  }
  free(entries);
}

bool copse_cli_kinds_find_folder(struct copse_cli_misplaced *out, char inside[256]) {
  struct stat about;
  *inside = '\0';
  for (int i = 0; i < n_inputs; i++) {
    if (stat(inputs[i].path, &about) != 0 || !S_ISDIR(about.st_mode)) continue;
    *out = (struct copse_cli_misplaced){inputs[i].path, inputs[i].option, COPSE_KIND_UNKNOWN,
                                        inputs[i].kinds};
    find_inside(inputs[i].path, inputs[i].kinds, inside);
    return true;
  }
  return false;
}
