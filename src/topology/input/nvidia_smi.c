/*
 * The text of `nvidia-smi topo -m`:
 *
 *           GPU0  GPU1  NIC0  CPU Affinity  NUMA Affinity  GPU NUMA ID
 *     GPU0   X    NV12  PXB   0-31          0              N/A
 *     ...
 *     Legend: ...
 *     NIC Legend:
 *       NIC0: mlx5_0
 *
 * What stands around it (a prompt, the output of other commands) is passed over.
 */
#include <string.h>

#include "base/text.h"
#include "topology/input/matrix.h"
#include "topology/input/readers.h"

#define MAX_WORDS (COPSE_MATRIX_MAX + 8)

struct reader {
  const char *file;
  struct copse_err *err;
  struct copse_lines lines;
  char **words; /* [MAX_WORDS] */
  struct copse_matrix matrix;
  const char **columns; /* [n] names as the header has them */
  struct copse_arena arena;
  bool numa; /* the header has a NUMA column */
};

static bool parse_cell(const char *word, struct copse_matrix_cell *out) {
  static const struct {
    const char *word;
    enum copse_near near;
  } known[] = {{"PIX", COPSE_NEAR_PIX},   {"PXB", COPSE_NEAR_PXB},    {"PHB", COPSE_NEAR_NODE},
               {"NODE", COPSE_NEAR_NODE}, {"SYS", COPSE_NEAR_SYS},    {"SOC", COPSE_NEAR_SYS},
               {"X", COPSE_NEAR_UNKNOWN}, {"N/A", COPSE_NEAR_UNKNOWN}};
  *out = (struct copse_matrix_cell){.bandwidth = COPSE_Q_ZERO};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strcmp(known[i].word, word) == 0) {
      out->near = known[i].near;
      return true;
    }
  out->links = copse_numbered(word, "NV");
  return out->links > 0 && out->links <= 64;
}

/* The header begins with GPU0 and goes on with a device's name (numbered) or its end. */
static bool is_header(char **words, int n) {
  struct copse_matrix_cell cell;
  if (n < 1 || copse_numbered(words[0], "GPU") < 0) return false;
  if (n < 2 || parse_cell(words[1], &cell)) return false;
  return strcmp(words[1], "CPU") == 0 || strpbrk(words[1], "0123456789") != NULL;
}

static int count_columns(char **words, int n) {
  for (int i = 0; i < n; i++) {
    bool numa = i + 1 < n && strcmp(words[i], "GPU") == 0 && strcmp(words[i + 1], "NUMA") == 0;
    if (numa || strcmp(words[i], "CPU") == 0 || strcmp(words[i], "NUMA") == 0) return i;
  }
  return n;
}

copse_status copse_find_nvidia_smi(const char *data, size_t size, bool *found,
                                   struct copse_err *err) {
  struct copse_lines lines;
  char *words[2];
  *found = false;
  if (memchr(data, '\0', size)) return COPSE_OK; /* binary */
  copse_status status = copse_lines_open("", data, size, &lines, err);
  for (char *line; status == COPSE_OK && !*found && (line = copse_lines_next(&lines));) {
    int n = copse_split_words(line, words, 2);
    *found = is_header(words, n < 2 ? n : 2);
  }
  copse_lines_free(&lines);
  return status;
}

#define refuse(r, ...) \
  copse_fail_at((r)->err, COPSE_BAD_INPUT, (r)->file, (r)->lines.line, __VA_ARGS__)

/* ---- header and rows ------------------------------------------------------------------------ */

/* "gpu0"; of a NIC "nic@mlx5_0", or "nic0" until a legend says its name. */
static copse_status name_device(struct reader *r, int i, const char *word) {
  struct copse_matrix_device *device = &r->matrix.devices[i];
  bool numbered = copse_numbered(word, "NIC") >= 0;
  device->gpu = copse_numbered(word, "GPU") >= 0;
  const char *prefix = device->gpu ? "gpu" : numbered ? "nic" : "nic@";
  COPSE_DO(copse_arena_text(&r->arena, word, &r->columns[i], r->err));
  device->id =
      copse_arena_printf(&r->arena, "%s%s", prefix, word + (device->gpu || numbered ? 3 : 0));
  device->line = r->lines.line;
  return device->id ? COPSE_OK : copse_fail_nomem(r->err);
}

static int find_column(const struct reader *r, const char *name) {
  for (int i = 0; i < r->matrix.n; i++)
    if (strcmp(r->columns[i], name) == 0) return i;
  return -1;
}

static copse_status read_header(struct reader *r, int n_words) {
  int n = count_columns(r->words, n_words < MAX_WORDS ? n_words : MAX_WORDS);
  if (n_words > MAX_WORDS || n > COPSE_MATRIX_MAX)
    return refuse(r, "more than 1024 devices, which no host has");
  for (int i = n; i < n_words; i++) r->numa |= strcmp(r->words[i], "NUMA") == 0;
  size_t cells = (size_t)n * (size_t)n;
  COPSE_DO(copse_arena_array(&r->arena, (size_t)n, sizeof *r->matrix.devices, &r->matrix.devices,
                             r->err));
  COPSE_DO(copse_arena_array(&r->arena, (size_t)n, sizeof *r->columns, &r->columns, r->err));
  COPSE_DO(copse_arena_array(&r->arena, cells, sizeof *r->matrix.cells, &r->matrix.cells, r->err));
  for (; r->matrix.n < n; r->matrix.n++) {
    if (find_column(r, r->words[r->matrix.n]) >= 0)
      return refuse(r, "the column %.40s twice; each device has one", r->words[r->matrix.n]);
    COPSE_DO(name_device(r, r->matrix.n, r->words[r->matrix.n]));
  }
  return COPSE_OK;
}

/* The NUMA column if it tells, else the CPUs; equal texts are the same place. */
static copse_status read_affinity(struct reader *r, int row, int n_words) {
  int at = r->matrix.n + 1;
  const char *text = at < n_words ? r->words[at] : NULL;
  if (r->numa && at + 1 < n_words && strcmp(r->words[at + 1], "N/A") != 0) text = r->words[at + 1];
  if (!text || strcmp(text, "N/A") == 0) return COPSE_OK;
  return copse_arena_text(&r->arena, text, &r->matrix.devices[row].affinity, r->err);
}

static copse_status read_row(struct reader *r, int row, int n_words) {
  struct copse_matrix *m = &r->matrix;
  if (n_words > MAX_WORDS) n_words = MAX_WORDS;
  if (n_words < m->n + 1)
    return refuse(r, "the row %.40s has %d cells; the header has %d columns", r->words[0],
                  n_words - 1, m->n);
  for (int i = 0; i < m->n; i++) {
    struct copse_matrix_cell *cell = &m->cells[(size_t)row * (size_t)m->n + (size_t)i];
    const char *word = r->words[i + 1];
    if (!parse_cell(word, cell) || (strcmp(word, "X") == 0) != (i == row))
      return refuse(r,
                    "\"%.20s\" between %.40s and %.40s; X (itself), NV1 to NV64, PIX, PXB, "
                    "PHB, NODE and SYS are known",
                    word, r->columns[row], r->columns[i]);
    if (cell->links > 0 && !(m->devices[row].gpu && m->devices[i].gpu))
      return refuse(r, "an NVLink to what is no GPU");
  }
  m->devices[row].line = r->lines.line;
  return m->devices[row].gpu ? read_affinity(r, row, n_words) : COPSE_OK;
}

/* "NIC0: mlx5_0" below the matrix. */
static copse_status read_legend(struct reader *r, int n_words) {
  if (n_words != 2 || strncmp(r->words[0], "NIC", 3) != 0) return COPSE_OK;
  size_t n = strlen(r->words[0]);
  if (r->words[0][n - 1] != ':') return COPSE_OK;
  r->words[0][n - 1] = '\0';
  int i = find_column(r, r->words[0]);
  if (i < 0) return COPSE_OK;
  r->matrix.devices[i].id = copse_arena_printf(&r->arena, "nic@%s", r->words[1]);
  return r->matrix.devices[i].id ? COPSE_OK : copse_fail_nomem(r->err);
}

static copse_status read_rows(struct reader *r) {
  bool *seen;
  COPSE_DO(copse_arena_array(&r->arena, (size_t)r->matrix.n, sizeof *seen, &seen, r->err));
  for (char *line; (line = copse_lines_next(&r->lines));) {
    int n_words = copse_split_words(line, r->words, MAX_WORDS);
    int row = n_words > 1 ? find_column(r, r->words[0]) : -1;
    if (row < 0) {
      COPSE_DO(read_legend(r, n_words));
      continue;
    }
    if (seen[row]) return refuse(r, "a second row %.40s; one matrix is one host", r->words[0]);
    seen[row] = true;
    COPSE_DO(read_row(r, row, n_words));
  }
  for (int i = 0; i < r->matrix.n; i++)
    if (!seen[i] && r->matrix.devices[i].gpu)
      return refuse(r, "the row of %.40s is missing", r->columns[i]);
  return COPSE_OK;
}

/* Both halves must agree; where a NIC's row is missing, its column stands for it. */
static copse_status check_halves(struct reader *r) {
  struct copse_matrix *m = &r->matrix;
  for (int i = 0; i < m->n; i++)
    for (int j = 0; j < i; j++) {
      struct copse_matrix_cell *a = &m->cells[(size_t)i * (size_t)m->n + (size_t)j];
      struct copse_matrix_cell *b = &m->cells[(size_t)j * (size_t)m->n + (size_t)i];
      bool no_a = a->near == COPSE_NEAR_UNKNOWN && a->links == 0;
      bool no_b = b->near == COPSE_NEAR_UNKNOWN && b->links == 0;
      if (no_a) *a = *b;
      if (no_b) *b = *a;
      if (!no_a && !no_b && (a->near != b->near || a->links != b->links))
        return copse_fail_at(r->err, COPSE_BAD_INPUT, r->file, m->devices[i].line,
                             "%.40s to %.40s isn't what %.40s to %.40s is; both halves of the "
                             "matrix must agree",
                             r->columns[i], r->columns[j], r->columns[j], r->columns[i]);
    }
  return COPSE_OK;
}

/* ---- together ------------------------------------------------------------------------------- */

/* Guesses by the number of links; a switch shows all of a GPU's links for every pair. */
static const char *guess_class(const struct copse_matrix *m) {
  int sum, pair;
  copse_matrix_count_links(m, &sum, &pair);
  int links = sum > 18 ? pair : sum;
  return links > 12 ? "h100" : links > 6 || links == 0 ? "a100" : "v100";
}

static copse_status read_matrix(struct reader *r) {
  COPSE_DO(copse_arena_array(&r->arena, MAX_WORDS, sizeof *r->words, &r->words, r->err));
  for (char *line; (line = copse_lines_next(&r->lines));) {
    int n = copse_split_words(line, r->words, MAX_WORDS);
    if (!is_header(r->words, n)) continue;
    COPSE_DO(read_header(r, n));
    COPSE_DO(read_rows(r));
    return check_halves(r);
  }
  return refuse(r, "no matrix of `nvidia-smi topo -m`: its header begins with GPU0");
}

copse_status copse_read_nvidia_smi(const char *label, const char *data, size_t size,
                                   const struct copse_topology_options *options,
                                   struct copse_topology **out, struct copse_err *err) {
  struct reader r = {.file = label, .err = err, .matrix = {.file = label}};
  struct copse_matrix_rates rates;
  copse_status status;
  *out = NULL;
  COPSE_TRY(copse_lines_open(label, data, size, &r.lines, err));
  COPSE_TRY(read_matrix(&r));
  COPSE_TRY(copse_matrix_rates(label, options, false, false, guess_class(&r.matrix), &rates, err));
  status = copse_matrix_build(&r.matrix, &rates, options, out, err);
out:
  copse_lines_free(&r.lines);
  copse_arena_free(&r.arena);
  return status;
}
