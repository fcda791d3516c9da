/*
 * The text of `rocm-smi --showtopo`, with `--shownodesbw` in the same file if there is:
 *
 *     === Link Type between two GPUs ===
 *            GPU0         GPU1
 *     GPU0   0            XGMI
 *     GPU1   XGMI         0
 *     === Numa Nodes ===
 *     GPU[0]  : (Topology) Numa Node: 0
 *
 * Two GPUs of a hive are shown as XGMI whether or not a cable joins them, and one hop apart
 * (ROCm/rocm-systems issue 5763). The bandwidth table says where cables are, if it is there
 * ("0-0": not connected; in MB/s, of one link and of all), else the weight does: 15 for each hop.
 */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "topology/input/matrix.h"
#include "topology/input/readers.h"

#define MAX_WORDS (COPSE_MATRIX_MAX + 1)

enum table { TABLE_NONE, TABLE_WEIGHT, TABLE_TYPE, TABLE_BANDWIDTH, N_TABLES };

struct pair {
  int weight;
  bool xgmi, pcie;
  int64_t least, most; /* MB/s */
};

struct reader {
  const char *file;
  struct copse_err *err;
  struct copse_lines lines;
  char **words;
  bool header; /* the next line with words is a table's header */
  enum table table;
  bool seen[N_TABLES];
  struct pair *pairs; /* [n * n] */
  struct copse_matrix matrix;
  struct copse_arena arena;
};

#define refuse(r, ...) \
  copse_fail_at((r)->err, COPSE_BAD_INPUT, (r)->file, (r)->lines.line, __VA_ARGS__)

/* "=== Link Type between two GPUs ===" begins a table; any other such line ends one. */
static bool read_title(struct reader *r, const char *line) {
  if (!strstr(line, "====")) return false;
  r->table = strstr(line, "Weight between")      ? TABLE_WEIGHT
             : strstr(line, "Link Type between") ? TABLE_TYPE
             : strstr(line, " Bandwidth ")       ? TABLE_BANDWIDTH
                                                 : TABLE_NONE;
  r->header = r->table != TABLE_NONE;
  return true;
}

/* The first header says how many GPUs there are. */
static copse_status read_header(struct reader *r, int n_words) {
  if (n_words > COPSE_MATRIX_MAX) return refuse(r, "more than 1024 GPUs, which no host has");
  if (r->matrix.n > 0 && n_words != r->matrix.n)
    return refuse(r, "tables of different sizes in one file; they must be of one host");
  for (int i = 0; i < n_words; i++)
    if (copse_numbered(r->words[i], "GPU") != i)
      return refuse(r, "a table's header must be GPU0 GPU1 ..");
  if (r->matrix.n > 0) return COPSE_OK;
  size_t n = (size_t)n_words;
  COPSE_DO(copse_arena_array(&r->arena, n, sizeof *r->matrix.devices, &r->matrix.devices, r->err));
  COPSE_DO(copse_arena_array(&r->arena, n * n, sizeof *r->matrix.cells, &r->matrix.cells, r->err));
  COPSE_DO(copse_arena_array(&r->arena, n * n, sizeof *r->pairs, &r->pairs, r->err));
  for (int i = 0; i < n_words; i++) {
    r->matrix.devices[i] = (struct copse_matrix_device){
        .id = copse_arena_printf(&r->arena, "gpu%d", i), .gpu = true, .line = r->lines.line};
    if (!r->matrix.devices[i].id) return copse_fail_nomem(r->err);
  }
  r->matrix.n = n_words;
  return COPSE_OK;
}

/* "50000-200000" or "N/A". */
static bool parse_range(const char *word, struct pair *pair) {
  if (strcmp(word, "N/A") == 0) return true;
  return copse_text_number(&word, 18, &pair->least) && *word++ == '-' &&
         copse_text_number(&word, 18, &pair->most) && !*word && pair->most <= 1 << 30 &&
         pair->least <= pair->most;
}

static bool parse_cell(enum table table, const char *word, struct pair *pair) {
  size_t digits = strspn(word, "0123456789");
  switch (table) {
    case TABLE_WEIGHT:
      pair->weight = digits > 0 && digits < 7 && !word[digits] ? atoi(word) : -1;
      return pair->weight >= 0;
    case TABLE_TYPE:
      pair->xgmi = strcmp(word, "XGMI") == 0;
      pair->pcie = strcmp(word, "PCIE") == 0;
      return pair->xgmi || pair->pcie || strcmp(word, "0") == 0 || strcmp(word, "N/A") == 0;
    case TABLE_BANDWIDTH: return parse_range(word, pair);
    default: return true;
  }
}

static copse_status read_row(struct reader *r, int row, int n_words) {
  int n = r->matrix.n;
  if (row >= n || n_words != n + 1) return refuse(r, "a row that isn't as long as its header");
  for (int i = 0; i < n; i++) {
    struct pair *pair = &r->pairs[(size_t)row * (size_t)n + (size_t)i];
    if (!parse_cell(r->table, r->words[i + 1], pair))
      return refuse(r, "\"%.20s\" between GPU%d and GPU%d; %s", r->words[i + 1], row, i,
                    r->table == TABLE_WEIGHT ? "a weight is a whole number"
                    : r->table == TABLE_TYPE ? "XGMI, PCIE and 0 (itself) are known"
                                             : "MB/s are such as 50000-200000");
  }
  r->seen[r->table] = true;
  return COPSE_OK;
}

/* "GPU[0]  : (Topology) Numa Node: 0" */
static copse_status read_numa(struct reader *r, const char *line) {
  const char *at = strstr(line, "Numa Node: ");
  if (strncmp(line, "GPU[", 4) != 0 || !at) return COPSE_OK;
  int gpu = atoi(line + 4);
  size_t digits = strspn(line + 4, "0123456789");
  if (digits == 0 || digits > 4 || gpu >= r->matrix.n)
    return refuse(r, "the NUMA node of a GPU that the tables above lack");
  char *text = copse_arena_strdup(&r->arena, at + strlen("Numa Node: "));
  if (!text) return copse_fail_nomem(r->err);
  text[strcspn(text, " \t")] = '\0';
  r->matrix.devices[gpu].affinity = strcmp(text, "-1") == 0 ? NULL : text;
  return COPSE_OK;
}

static copse_status read_tables(struct reader *r) {
  COPSE_DO(copse_arena_array(&r->arena, MAX_WORDS, sizeof *r->words, &r->words, r->err));
  for (char *line; (line = copse_lines_next(&r->lines));) {
    if (read_title(r, line)) continue;
    COPSE_DO(read_numa(r, line));
    if (r->table == TABLE_NONE) continue;
    int n_words = copse_split_words(line, r->words, MAX_WORDS);
    int row = n_words > 0 ? copse_numbered(r->words[0], "GPU") : -1;
    if (row < 0) continue; /* a remark */
    COPSE_DO(r->header ? read_header(r, n_words) : read_row(r, row, n_words));
    r->header = false;
  }
  if (r->seen[TABLE_TYPE]) return COPSE_OK;
  return refuse(r, "no table \"Link Type between two GPUs\"; `rocm-smi --showtopo` prints it");
}

/* ---- what the tables mean -------------------------------------------------------------------- */

static int least_weight(const struct reader *r) {
  int least = 0, n = r->matrix.n;
  for (int i = 0; i < n * n; i++) {
    const struct pair *pair = &r->pairs[i];
    if (pair->xgmi && pair->weight > 0 && (least == 0 || pair->weight < least))
      least = pair->weight;
  }
  return least;
}

/* How many links join a pair; one where the file doesn't tell. */
static int count_links(const struct reader *r, const struct pair *pair, int direct) {
  if (!pair->xgmi) return 0;
  if (!r->seen[TABLE_BANDWIDTH]) return !r->seen[TABLE_WEIGHT] || pair->weight == direct;
  return pair->least > 0 ? (int)(pair->most / pair->least) : 0;
}

/* The bandwidth table counts, unless the user knows better. */
static bool has_own_links(const struct reader *r, const struct copse_topology_options *options) {
  return r->seen[TABLE_BANDWIDTH] && !options->gpu && !options->profile;
}

static copse_status fill_cells(struct reader *r, const struct copse_topology_options *options) {
  struct copse_matrix *m = &r->matrix;
  bool own = has_own_links(r, options);
  int n = m->n, direct = least_weight(r);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) {
      const struct pair *a = &r->pairs[(size_t)i * (size_t)n + (size_t)j];
      const struct pair *b = &r->pairs[(size_t)j * (size_t)n + (size_t)i];
      struct copse_matrix_cell *cell = &m->cells[(size_t)i * (size_t)n + (size_t)j];
      if (a->xgmi != b->xgmi || a->weight != b->weight || a->most != b->most)
        return copse_fail_at(r->err, COPSE_BAD_INPUT, r->file, m->devices[i].line,
                             "GPU%d to GPU%d isn't what GPU%d to GPU%d is; both halves of a table "
                             "must agree",
                             i, j, j, i);
      cell->links = i == j ? 0 : count_links(r, a, direct);
      cell->bandwidth = COPSE_Q_ZERO;
      if (!own || cell->links == 0) continue;
      COPSE_DO(copse_q_make(a->most, 1000, &cell->bandwidth, r->err));
    }
  return COPSE_OK;
}

/* Eight that are all joined are an MI300X's box; others are commonest with MI250. */
static const char *guess_class(const struct copse_matrix *m) {
  int sum, pair;
  copse_matrix_count_links(m, &sum, &pair);
  return m->n == 8 && sum == 7 && pair == 1 ? "mi300x" : "mi250";
}

copse_status copse_read_rocm_smi(const char *label, const char *data, size_t size,
                                 const struct copse_topology_options *options,
                                 struct copse_topology **out, struct copse_err *err) {
  struct reader r = {.file = label, .err = err, .matrix = {.file = label}};
  struct copse_matrix_rates rates;
  copse_status status;
  *out = NULL;
  COPSE_TRY(copse_lines_open(label, data, size, &r.lines, err));
  COPSE_TRY(read_tables(&r));
  COPSE_TRY(fill_cells(&r, options));
  COPSE_TRY(copse_matrix_rates(label, options, true, has_own_links(&r, options),
                               guess_class(&r.matrix), &rates, err));
  rates.max_links = INT32_MAX; /* there is no switch */
  if (!r.seen[TABLE_BANDWIDTH])
    copse_note(options->notes,
               "%s: the tables don't say how many links join two GPUs; taken for one "
               "(rocm-smi --shownodesbw says it)",
               label);
  status = copse_matrix_build(&r.matrix, &rates, options, out, err);
out:
  copse_lines_free(&r.lines);
  copse_arena_free(&r.arena);
  return status;
}
