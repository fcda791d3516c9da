/*
 * Connection matrices, what devices say of each other: the text of `nvidia-smi topo -m` and of
 * `rocm-smi --showtopo`, and the graph of a host that it means, which then goes the way of NCCL's
 * dumps (nccl_graph.h). Nearness makes classes of devices, those make PCIe switches and CPUs; links
 * make NVLinks, or an NVSwitch where a GPU has fewer than are shown.
 *
 *        GPU0 GPU1 NIC0            cpu0
 *   GPU0  X   NV12 PIX               |
 *   GPU1 NV12  X   SYS     =>      pcie0      cpu1       GPU0 == GPU1 by NVLink
 *   NIC0 PIX  SYS   X              /   \       |
 *                               GPU0  NIC0   GPU1
 *
 * PIX and PXB make PCIe switches, PHB and NODE (and equal NUMA affinity, where NVLink hides the
 * rest) a CPU, SYS links between CPUs. NICs have no network speed there; it comes from a cluster's
 * fabric.
 *
 * docs/formats.md, "Connection matrix".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/graph.h"
#include "base/text.h"
#include "topology/input/nccl_bandwidth.h"
#include "topology/input/nccl_graph.h"
#include "topology/input/readers.h"

#define MAX_DEVICES 1024
#define MAX_WORDS (MAX_DEVICES + 8)

/* How near two devices are, by what lies between them. */
enum near {
  NEAR_UNKNOWN,
  NEAR_PIX,  /* at most one PCIe bridge */
  NEAR_PXB,  /* several bridges */
  NEAR_NODE, /* the CPU of one NUMA node */
  NEAR_SYS   /* different CPUs */
};

struct device {
  const char *id;
  bool gpu;
  const char *affinity; /* equal texts: at the same CPU; NULL: unknown */
  long line;
};

/* One pair's links, if any: `links` between them, or (a row's largest) to a switch. */
struct cell {
  enum near near;
  int links;
  struct copse_q bandwidth; /* of all of them; zero: links times the rate */
  /* as the tables of rocm-smi have it */
  int weight;
  bool xgmi;
  int64_t least, most; /* MB/s */
};

struct matrix {
  struct device *devices; /* [n] */
  struct cell *cells;     /* [n * n], both halves */
  int n;
};

/* A tool's text being read. */
struct reader {
  const struct copse_input *in;
  struct copse_err *err;
  struct copse_lines *lines;
  char **words; /* [MAX_WORDS] */
  struct matrix matrix;
  struct copse_arena *arena;
  /* nvidia-smi */
  const char **columns; /* [n] names as the header has them */
  bool numa;            /* the header has a NUMA column */
  /* rocm-smi */
  bool header; /* the next line with words is a table's header */
  enum table { TABLE_NONE, TABLE_WEIGHT, TABLE_TYPE, TABLE_BANDWIDTH, N_TABLES } table;
  bool seen[N_TABLES];
};

#define refuse(r, ...) \
  copse_fail_at((r)->err, COPSE_BAD_INPUT, (r)->in->label, (r)->lines->line, __VA_ARGS__)

static struct cell *cell(const struct matrix *m, int i, int j) {
  return &m->cells[(size_t)i * (size_t)m->n + (size_t)j];
}

static copse_status make_matrix(struct reader *r, int n) {
  struct matrix *m = &r->matrix;
  size_t devices = (size_t)n;
  COPSE_DO(COPSE_ARRAY(r->arena, devices, m->devices, r->err));
  COPSE_DO(COPSE_ARRAY(r->arena, devices * devices, m->cells, r->err));
  m->n = n;
  return COPSE_OK;
}

/* Counts how many links a device has; *widest gets its cell with the most. */
static int count_row(const struct matrix *m, int i, const struct cell **widest) {
  int sum = 0;
  *widest = cell(m, i, 0);
  for (int j = 0; j < m->n; j++) {
    sum += cell(m, i, j)->links;
    if (cell(m, i, j)->links > (*widest)->links) *widest = cell(m, i, j);
  }
  return sum;
}

/* Counts the most links of a GPU in sum, and the most of a pair. */
static void count_links(const struct matrix *m, int *sum, int *pair) {
  const struct cell *widest;
  *sum = *pair = 0;
  for (int i = 0; i < m->n; i++) {
    int row = count_row(m, i, &widest);
    if (widest->links > *pair) *pair = widest->links;
    if (row > *sum) *sum = row;
  }
}

/* ---- nvidia-smi ------------------------------------------------------------------------------ */

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

static bool parse_word(const char *word, struct cell *out) {
  static const struct {
    const char *word;
    enum near near;
  } known[] = {{"PIX", NEAR_PIX}, {"PXB", NEAR_PXB}, {"PHB", NEAR_NODE},  {"NODE", NEAR_NODE},
               {"SYS", NEAR_SYS}, {"SOC", NEAR_SYS}, {"X", NEAR_UNKNOWN}, {"N/A", NEAR_UNKNOWN}};
  *out = (struct cell){.bandwidth = COPSE_Q_ZERO};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strcmp(known[i].word, word) == 0) {
      out->near = known[i].near;
      return true;
    }
  out->links = copse_numbered(word, "NV");
  return out->links > 0 && out->links <= 64;
}

/* Whether the line is the header: it begins with GPU0 and goes on with a device's name (numbered)
 * or its end. */
static bool is_header(char **words, int n) {
  struct cell cell;
  if (n < 1 || copse_numbered(words[0], "GPU") < 0) return false;
  if (n < 2 || parse_word(words[1], &cell)) return false;
  return strcmp(words[1], "CPU") == 0 || strpbrk(words[1], "0123456789") != NULL;
}

static int count_columns(char **words, int n) {
  for (int i = 0; i < n; i++) {
    bool numa = i + 1 < n && strcmp(words[i], "GPU") == 0 && strcmp(words[i + 1], "NUMA") == 0;
    if (numa || strcmp(words[i], "CPU") == 0 || strcmp(words[i], "NUMA") == 0) return i;
  }
  return n;
}

copse_status copse_find_nvidia_smi(const struct copse_input *in, bool *found,
                                   struct copse_err *err) {
  COPSE_AT_END(copse_lines_free) struct copse_lines lines = {0};
  char *words[2];
  *found = false;
  if (memchr(in->data, '\0', in->size)) return COPSE_OK; /* binary */
  COPSE_DO(copse_lines_open("", in->data, in->size, &lines, err));
  for (char *line; !*found && (line = copse_lines_next(&lines));) {
    int n = copse_split_words(line, words, 2);
    *found = is_header(words, n < 2 ? n : 2);
  }
  return COPSE_OK;
}

/* Names a device: "gpu0"; a NIC "nic@mlx5_0", or "nic0" until a legend says its name. */
static copse_status name_device(struct reader *r, int i, const char *word) {
  struct device *device = &r->matrix.devices[i];
  bool numbered = copse_numbered(word, "NIC") >= 0;
  device->gpu = copse_numbered(word, "GPU") >= 0;
  const char *prefix = device->gpu ? "gpu" : numbered ? "nic" : "nic@";
  COPSE_DO(copse_arena_text(r->arena, word, &r->columns[i], r->err));
  device->id =
      copse_arena_printf(r->arena, "%s%s", prefix, word + (device->gpu || numbered ? 3 : 0));
  device->line = r->lines->line;
  return device->id ? COPSE_OK : copse_fail_nomem(r->err);
}

static int find_column(const struct reader *r, const char *name) {
  for (int i = 0; i < r->matrix.n; i++)
    if (strcmp(r->columns[i], name) == 0) return i;
  return -1;
}

static copse_status read_header(struct reader *r, int n_words) {
  int n = count_columns(r->words, n_words < MAX_WORDS ? n_words : MAX_WORDS);
  if (n_words > MAX_WORDS || n > MAX_DEVICES)
    return refuse(r, "more than 1024 devices, which no host has");
  for (int i = n; i < n_words; i++) r->numa |= strcmp(r->words[i], "NUMA") == 0;
  struct matrix *m = &r->matrix;
  COPSE_DO(make_matrix(r, n));
  COPSE_DO(COPSE_ARRAY(r->arena, (size_t)n, r->columns, r->err));
  for (m->n = 0; m->n < n; m->n++) {
    if (find_column(r, r->words[m->n]) >= 0)
      return refuse(r, "the column %.40s twice; each device has one", r->words[m->n]);
    COPSE_DO(name_device(r, m->n, r->words[m->n]));
  }
  return COPSE_OK;
}

/* Reads the NUMA column if it is set, else the CPUs; equal texts are the same place. */
static copse_status read_affinity(struct reader *r, int row, int n_words) {
  int at = r->matrix.n + 1;
  const char *text = at < n_words ? r->words[at] : NULL;
  if (r->numa && at + 1 < n_words && strcmp(r->words[at + 1], "N/A") != 0) text = r->words[at + 1];
  if (!text || strcmp(text, "N/A") == 0) return COPSE_OK;
  return copse_arena_text(r->arena, text, &r->matrix.devices[row].affinity, r->err);
}

static copse_status read_row(struct reader *r, int row, int n_words) {
  struct matrix *m = &r->matrix;
  if (n_words > MAX_WORDS) n_words = MAX_WORDS;
  if (n_words < m->n + 1)
    return refuse(r, "the row %.40s has %d cells; the header has %d columns", r->words[0],
                  n_words - 1, m->n);
  for (int i = 0; i < m->n; i++) {
    struct cell *to = cell(m, row, i);
    const char *word = r->words[i + 1];
    if (!parse_word(word, to) || (strcmp(word, "X") == 0) != (i == row))
      return refuse(r,
                    "\"%.20s\" between %.40s and %.40s; X (itself), NV1 to NV64, PIX, PXB, "
                    "PHB, NODE and SYS are known",
                    word, r->columns[row], r->columns[i]);
    if (to->links > 0 && !(m->devices[row].gpu && m->devices[i].gpu))
      return refuse(r, "an NVLink to what is no GPU");
  }
  m->devices[row].line = r->lines->line;
  return m->devices[row].gpu ? read_affinity(r, row, n_words) : COPSE_OK;
}

/* Reads "NIC0: mlx5_0" below the matrix. */
static copse_status read_legend(struct reader *r, int n_words) {
  if (n_words != 2 || strncmp(r->words[0], "NIC", 3) != 0) return COPSE_OK;
  size_t n = strlen(r->words[0]);
  if (r->words[0][n - 1] != ':') return COPSE_OK;
  r->words[0][n - 1] = '\0';
  int i = find_column(r, r->words[0]);
  if (i < 0) return COPSE_OK;
  r->matrix.devices[i].id = copse_arena_printf(r->arena, "nic@%s", r->words[1]);
  return r->matrix.devices[i].id ? COPSE_OK : copse_fail_nomem(r->err);
}

static copse_status read_rows(struct reader *r) {
  bool *seen;
  COPSE_DO(COPSE_ARRAY(r->arena, (size_t)r->matrix.n, seen, r->err));
  for (char *line; (line = copse_lines_next(r->lines));) {
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

/* Checks that both halves agree; where a NIC's row is missing, its column stands for it. */
static copse_status check_halves(struct reader *r) {
  struct matrix *m = &r->matrix;
  for (int i = 0; i < m->n; i++)
    for (int j = 0; j < i; j++) {
      struct cell *a = cell(m, i, j), *b = cell(m, j, i);
      bool no_a = a->near == NEAR_UNKNOWN && a->links == 0;
      bool no_b = b->near == NEAR_UNKNOWN && b->links == 0;
      if (no_a) *a = *b;
      if (no_b) *b = *a;
      if (!no_a && !no_b && (a->near != b->near || a->links != b->links))
        return copse_fail_at(r->err, COPSE_BAD_INPUT, r->in->label, m->devices[i].line,
                             "%.40s to %.40s isn't what %.40s to %.40s is; both halves of the "
                             "matrix must agree",
                             r->columns[i], r->columns[j], r->columns[j], r->columns[i]);
    }
  return COPSE_OK;
}

/* Guesses by the number of links; a switch shows all of a GPU's links for every pair. */
static const char *guess_nvidia(const struct matrix *m) {
  int sum, pair;
  count_links(m, &sum, &pair);
  int links = sum > 18 ? pair : sum;
  return links > 12 ? "h100" : links > 6 || links == 0 ? "a100" : "v100";
}

static copse_status read_matrix(struct reader *r) {
  for (char *line; (line = copse_lines_next(r->lines));) {
    int n = copse_split_words(line, r->words, MAX_WORDS);
    if (!is_header(r->words, n)) continue;
    COPSE_DO(read_header(r, n));
    COPSE_DO(read_rows(r));
    return check_halves(r);
  }
  return refuse(r, "no matrix of `nvidia-smi topo -m`: its header begins with GPU0");
}

/* ---- rocm-smi -------------------------------------------------------------------------------- */

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
/* Reads a title: "=== Link Type between two GPUs ===" begins a table; any other such line ends
 * one. */
static bool read_title(struct reader *r, const char *line) {
  if (!strstr(line, "====")) return false;
  r->table = strstr(line, "Weight between")      ? TABLE_WEIGHT
             : strstr(line, "Link Type between") ? TABLE_TYPE
             : strstr(line, " Bandwidth ")       ? TABLE_BANDWIDTH
                                                 : TABLE_NONE;
  r->header = r->table != TABLE_NONE;
  return true;
}

/* Reads a table's header; the first one says how many GPUs there are. */
static copse_status read_table_header(struct reader *r, int n_words) {
  if (n_words > MAX_DEVICES) return refuse(r, "more than 1024 GPUs, which no host has");
  if (r->matrix.n > 0 && n_words != r->matrix.n)
    return refuse(r, "tables of different sizes in one file; they must be of one host");
  for (int i = 0; i < n_words; i++)
    if (copse_numbered(r->words[i], "GPU") != i)
      return refuse(r, "a table's header must be GPU0 GPU1 ..");
  if (r->matrix.n > 0) return COPSE_OK;
  COPSE_DO(make_matrix(r, n_words));
  for (int i = 0; i < n_words; i++) {
    r->matrix.devices[i] = (struct device){
        .id = copse_arena_printf(r->arena, "gpu%d", i), .gpu = true, .line = r->lines->line};
    if (!r->matrix.devices[i].id) return copse_fail_nomem(r->err);
  }
  return COPSE_OK;
}

/* Parses "50000-200000" or "N/A". */
static bool parse_range(const char *word, struct cell *to) {
  if (strcmp(word, "N/A") == 0) return true;
  return copse_text_number(&word, 18, &to->least) && *word++ == '-' &&
         copse_text_number(&word, 18, &to->most) && !*word && to->most <= 1 << 30 &&
         to->least <= to->most;
}

static bool parse_cell(enum table table, const char *word, struct cell *to) {
  size_t digits = strspn(word, "0123456789");
  switch (table) {
    case TABLE_WEIGHT:
      to->weight = digits > 0 && digits < 7 && !word[digits] ? atoi(word) : -1;
      return to->weight >= 0;
    case TABLE_TYPE:
      to->xgmi = strcmp(word, "XGMI") == 0;
      return to->xgmi || strcmp(word, "PCIE") == 0 || strcmp(word, "0") == 0 ||
             strcmp(word, "N/A") == 0;
    case TABLE_BANDWIDTH: return parse_range(word, to);
    default: return true;
  }
}

static copse_status read_table_row(struct reader *r, int row, int n_words) {
  int n = r->matrix.n;
  if (row >= n || n_words != n + 1) return refuse(r, "a row that isn't as long as its header");
  for (int i = 0; i < n; i++) {
    if (!parse_cell(r->table, r->words[i + 1], cell(&r->matrix, row, i)))
      return refuse(r, "\"%.20s\" between GPU%d and GPU%d; %s", r->words[i + 1], row, i,
                    r->table == TABLE_WEIGHT ? "a weight is a whole number"
                    : r->table == TABLE_TYPE ? "XGMI, PCIE and 0 (itself) are known"
                                             : "MB/s are such as 50000-200000");
  }
  r->seen[r->table] = true;
  return COPSE_OK;
}

/* Reads "GPU[0]  : (Topology) Numa Node: 0". */
static copse_status read_numa(struct reader *r, const char *line) {
  const char *at = strstr(line, "Numa Node: ");
  if (strncmp(line, "GPU[", 4) != 0 || !at) return COPSE_OK;
  int gpu = atoi(line + 4);
  size_t digits = strspn(line + 4, "0123456789");
  if (digits == 0 || digits > 4 || gpu >= r->matrix.n)
    return refuse(r, "the NUMA node of a GPU that the tables above lack");
  char *text = copse_arena_strdup(r->arena, at + strlen("Numa Node: "));
  if (!text) return copse_fail_nomem(r->err);
  text[strcspn(text, " \t")] = '\0';
  r->matrix.devices[gpu].affinity = strcmp(text, "-1") == 0 ? NULL : text;
  return COPSE_OK;
}

static copse_status read_tables(struct reader *r) {
  for (char *line; (line = copse_lines_next(r->lines));) {
    if (read_title(r, line)) continue;
    COPSE_DO(read_numa(r, line));
    if (r->table == TABLE_NONE) continue;
    int n_words = copse_split_words(line, r->words, MAX_WORDS);
    int row = n_words > 0 ? copse_numbered(r->words[0], "GPU") : -1;
    if (row < 0) continue; /* a remark */
    COPSE_DO(r->header ? read_table_header(r, n_words) : read_table_row(r, row, n_words));
    r->header = false;
  }
  if (r->seen[TABLE_TYPE]) return COPSE_OK;
  return refuse(r, "no table \"Link Type between two GPUs\"; `rocm-smi --showtopo` prints it");
}

/* ---- what the tables mean -------------------------------------------------------------------- */

static int least_weight(const struct reader *r) {
  int least = 0, n = r->matrix.n;
  for (int i = 0; i < n * n; i++) {
    const struct cell *pair = &r->matrix.cells[i];
    if (pair->xgmi && pair->weight > 0 && (least == 0 || pair->weight < least))
      least = pair->weight;
  }
  return least;
}

/* Returns how many links join a pair; one where the file doesn't tell. */
static int links_of(const struct reader *r, const struct cell *pair, int direct) {
  if (!pair->xgmi) return 0;
  if (!r->seen[TABLE_BANDWIDTH]) return !r->seen[TABLE_WEIGHT] || pair->weight == direct;
  return pair->least > 0 ? (int)(pair->most / pair->least) : 0;
}

/* Whether the bandwidth table counts: unless the user says better. */
static bool has_own_links(const struct reader *r) {
  return r->seen[TABLE_BANDWIDTH] && !r->in->options->gpu && !r->in->options->profile;
}

static copse_status fill_cells(struct reader *r) {
  struct matrix *m = &r->matrix;
  bool own = has_own_links(r);
  int n = m->n, direct = least_weight(r);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) {
      struct cell *a = cell(m, i, j), *b = cell(m, j, i);
      if (a->xgmi != b->xgmi || a->weight != b->weight || a->most != b->most)
        return copse_fail_at(r->err, COPSE_BAD_INPUT, r->in->label, m->devices[i].line,
                             "GPU%d to GPU%d isn't what GPU%d to GPU%d is; both halves of a table "
                             "must agree",
                             i, j, j, i);
      a->links = i == j ? 0 : links_of(r, a, direct);
      a->bandwidth = COPSE_Q_ZERO;
      if (own && a->links > 0) COPSE_DO(copse_q_make(a->most, 1000, &a->bandwidth, r->err));
    }
  return COPSE_OK;
}

/* Guesses the class: eight that are all joined are an MI300X's box; others are commonest with
 * MI250. */
static const char *guess_amd(const struct matrix *m) {
  int sum, pair;
  count_links(m, &sum, &pair);
  return m->n == 8 && sum == 7 && pair == 1 ? "mi300x" : "mi250";
}

/* ---- classes of devices -------------------------------------------------------------------- */

struct build {
  const struct matrix *m;
  const struct copse_matrix_rates *rates;
  struct copse_err *err;
  struct copse_nccl_graph *graph;
  int *pix, *pxb, *cpu, *hive; /* [n] the first device of each device's class */
  int *node;                   /* [3 * n] of devices, outer bridges, inner bridges */
  int *above;                  /* [n] of a CPU's first device: the CPU's node */
};

static bool same_affinity(const struct device *a, const struct device *b) {
  return a->affinity && b->affinity && strcmp(a->affinity, b->affinity) == 0;
}

static void classify(struct build *b) {
  const struct matrix *m = b->m;
  for (int i = 0; i < m->n; i++) b->pix[i] = b->pxb[i] = b->cpu[i] = b->hive[i] = i;
  for (int i = 0; i < m->n; i++)
    for (int j = 0; j < i; j++) {
      enum near near = cell(m, i, j)->near;
      if (near == NEAR_PIX) copse_sets_unite(b->pix, i, j);
      if (near == NEAR_PIX || near == NEAR_PXB) copse_sets_unite(b->pxb, i, j);
      if (near != NEAR_UNKNOWN && near != NEAR_SYS) copse_sets_unite(b->cpu, i, j);
      if (cell(m, i, j)->links > 0) copse_sets_unite(b->hive, i, j);
    }
}

/*
 * Unites devices of equal affinity at one CPU where NVLink hides what lies between them; but not
 * what others show to be apart: virtual machines give all their GPUs the same affinity.
 */
static copse_status unite_by_affinity(struct build *b) {
  const struct matrix *m = b->m;
  size_t n = (size_t)m->n;
  bool *apart; /* [n * n] by the classes' first devices */
  COPSE_DO(COPSE_ARRAY(&b->graph->arena, n * n, apart, b->err));
  for (int i = 0; i < m->n; i++)
    for (int j = 0; j < m->n; j++)
      if (cell(m, i, j)->near == NEAR_SYS)
        apart[(size_t)copse_sets_find(b->cpu, i) * n + (size_t)copse_sets_find(b->cpu, j)] = true;
  for (int i = 0; i < m->n; i++)
    for (int j = 0; j < i; j++) {
      size_t p = (size_t)copse_sets_find(b->cpu, i), q = (size_t)copse_sets_find(b->cpu, j);
      bool hidden = cell(m, i, j)->near == NEAR_UNKNOWN;
      if (!hidden || p == q || apart[p * n + q] || !same_affinity(&m->devices[i], &m->devices[j]))
        continue;
      copse_sets_unite(b->cpu, i, j);
      size_t stays = p < q ? p : q, goes = p < q ? q : p;
      for (size_t k = 0; k < n; k++) {
        apart[stays * n + k] |= apart[goes * n + k];
        apart[k * n + stays] |= apart[k * n + goes];
      }
    }
  return COPSE_OK;
}

static void name_classes(struct build *b) {
  int *const classes[] = {b->pix, b->pxb, b->cpu, b->hive};
  for (int c = 0; c < 4; c++)
    for (int i = 0; i < b->m->n; i++) classes[c][i] = copse_sets_find(classes[c], i);
}

/* Notes pairs said to be at different CPUs that third devices put at one. */
static void note_contradictions(struct build *b) {
  const struct matrix *m = b->m;
  int pairs = 0, first = -1, second = -1;
  for (int i = 0; i < m->n; i++)
    for (int j = 0; j < i; j++)
      if (cell(m, i, j)->near == NEAR_SYS && b->cpu[i] == b->cpu[j] && pairs++ == 0)
        first = j, second = i;
  if (pairs > 0)
    copse_nccl_note(b->graph, m->devices[second].line,
                    "%s and %s (and %d pairs more) are said to be at different CPUs, and by other "
                    "devices at one; taken for one",
                    m->devices[first].id, m->devices[second].id, pairs - 1);
}

/* ---- nodes and links ----------------------------------------------------------------------- */

static copse_status add_node(struct build *b, enum copse_nccl_node_kind kind, const char *id,
                             long line, int *index) {
  return copse_nccl_add_node(b->graph, kind, 0, id, line, index, b->err);
}

static copse_status add_link(struct build *b, enum copse_nccl_link_kind kind, int src, int dst,
                             struct copse_q bandwidth) {
  COPSE_DO(copse_nccl_add_duplex(b->graph, kind, src, dst, bandwidth, 0, b->err));
  copse_nccl_guess(b->graph, 2, b->rates->guess[kind]);
  return COPSE_OK;
}

static copse_status add_devices(struct build *b) {
  for (int i = 0; i < b->m->n; i++) {
    const struct device *device = &b->m->devices[i];
    COPSE_DO(add_node(b, device->gpu ? COPSE_NCCL_GPU : COPSE_NCCL_NIC, device->id, device->line,
                      &b->node[i]));
  }
  return COPSE_OK;
}

static copse_status add_cpus(struct build *b) {
  char id[24];
  int n = 0;
  for (int i = 0; i < b->m->n; i++) {
    if (b->cpu[i] != i) continue;
    snprintf(id, sizeof id, "cpu%d", n++);
    COPSE_DO(add_node(b, COPSE_NCCL_CPU, id, 0, &b->above[i]));
    for (int j = 0; j < i; j++)
      if (b->cpu[j] == j)
        COPSE_DO(add_link(b, COPSE_NCCL_SYS, b->above[j], b->above[i], b->rates->inter_cpu));
  }
  return COPSE_OK;
}

static int members(const int *class, int n, int first) {
  int count = 0;
  for (int i = 0; i < n; i++) count += class[i] == first;
  return count;
}

static copse_status add_bridge(struct build *b, int *n, int parent, int *index) {
  char id[24];
  snprintf(id, sizeof id, "pcie%d", (*n)++);
  COPSE_DO(add_node(b, COPSE_NCCL_BRIDGE, id, 0, index));
  return add_link(b, COPSE_NCCL_PCI, *index, parent, b->rates->pcie);
}

/* Adds a bridge below the CPU for every PXB class of several devices, and below that for PIX. */
static copse_status add_pcie(struct build *b) {
  int n = b->m->n, n_bridges = 0;
  for (int i = 0; i < n; i++) {
    int outer = b->pxb[i], inner = b->pix[i], cpu = b->above[b->cpu[i]];
    bool only = members(b->pix, n, inner) == members(b->pxb, n, outer);
    int top = cpu;
    if (members(b->pxb, n, outer) > 1) {
      if (i == outer) COPSE_DO(add_bridge(b, &n_bridges, cpu, &b->node[n + i]));
      top = b->node[n + outer];
    }
    int parent = top;
    if (!only && members(b->pix, n, inner) > 1) {
      if (i == inner) COPSE_DO(add_bridge(b, &n_bridges, top, &b->node[2 * n + i]));
      parent = b->node[2 * n + inner];
    }
    COPSE_DO(add_link(b, COPSE_NCCL_PCI, b->node[i], parent, b->rates->pcie));
  }
  return COPSE_OK;
}

static copse_status bandwidth_of(struct build *b, const struct cell *at, struct copse_q *out) {
  *out = at->bandwidth;
  if (out->num > 0) return COPSE_OK;
  return copse_q_mul(b->rates->link, (struct copse_q){at->links, 1}, out, b->err);
}

/* Adds the GPUs that NVLink joins. A matrix shows a switch as links between every two GPUs, more
 * than a GPU has. */
static copse_status add_hive(struct build *b, int hive, int *n_switches) {
  const struct matrix *m = b->m;
  const struct cell *widest;
  struct copse_q bandwidth;
  char id[24] = "nvswitch";
  int hub = -1;
  bool switched = false;
  for (int i = hive; i < m->n; i++)
    switched |= b->hive[i] == hive && count_row(m, i, &widest) > b->rates->max_links;
  if (switched && ++*n_switches > 1) snprintf(id, sizeof id, "nvswitch%d", *n_switches - 1);
  if (switched) COPSE_DO(add_node(b, COPSE_NCCL_NVSWITCH, id, 0, &hub));
  for (int i = hive; i < m->n; i++) {
    if (b->hive[i] != hive) continue;
    if (switched) {
      (void)count_row(m, i, &widest);
      COPSE_DO(bandwidth_of(b, widest, &bandwidth));
      COPSE_DO(add_link(b, COPSE_NCCL_NVLINK, b->node[i], hub, bandwidth));
    }
    for (int j = 0; !switched && j < i; j++) {
      if (cell(m, i, j)->links == 0) continue;
      COPSE_DO(bandwidth_of(b, cell(m, i, j), &bandwidth));
      COPSE_DO(add_link(b, COPSE_NCCL_NVLINK, b->node[j], b->node[i], bandwidth));
    }
  }
  return COPSE_OK;
}

static copse_status add_all(struct build *b) {
  const struct matrix *m = b->m;
  int n_switches = 0;
  COPSE_DO(add_devices(b));
  COPSE_DO(add_cpus(b));
  COPSE_DO(add_pcie(b));
  for (int i = 0; i < m->n; i++)
    if (b->hive[i] == i && members(b->hive, m->n, i) > 1) COPSE_DO(add_hive(b, i, &n_switches));
  return COPSE_OK;
}

static copse_status build(const struct reader *r, const struct copse_matrix_rates *rates,
                          struct copse_topology **out) {
  COPSE_AT_END(copse_nccl_graph_free)
  struct copse_nccl_graph graph = {
      .file = r->in->label, .notes = r->in->options->notes, .n_hosts = 1};
  struct build b = {.m = &r->matrix, .rates = rates, .graph = &graph, .err = r->err};
  size_t n = (size_t)b.m->n;
  COPSE_DO(COPSE_ARRAYS(&graph.arena, n, int, b.err, &b.pix, &b.pxb, &b.cpu, &b.hive, &b.above));
  COPSE_DO(COPSE_ARRAY(&graph.arena, 3 * n, b.node, b.err));
  classify(&b);
  COPSE_DO(unite_by_affinity(&b));
  name_classes(&b);
  note_contradictions(&b);
  COPSE_DO(add_all(&b));
  copse_note_unused_options(r->in, "a matrix", COPSE_USES_LINKS | COPSE_USES_GPU);
  return copse_nccl_build(&graph, r->in->options->links, out, b.err);
}

/* ---- together ------------------------------------------------------------------------------- */

static copse_status read_nvidia(struct reader *r, struct copse_topology **out) {
  struct copse_matrix_rates rates;
  COPSE_DO(read_matrix(r));
  COPSE_DO(copse_matrix_rates(r->in->label, r->in->options, false, false, guess_nvidia(&r->matrix),
                              &rates, r->err));
  return build(r, &rates, out);
}

static copse_status read_amd(struct reader *r, struct copse_topology **out) {
  struct copse_matrix_rates rates;
  COPSE_DO(read_tables(r));
  COPSE_DO(fill_cells(r));
  COPSE_DO(copse_matrix_rates(r->in->label, r->in->options, true, has_own_links(r),
                              guess_amd(&r->matrix), &rates, r->err));
  rates.max_links = INT32_MAX; /* there is no switch */
  if (!r->seen[TABLE_BANDWIDTH])
    copse_note(r->in->options->notes,
               "%s: the tables don't say how many links join two GPUs; taken for one "
               "(rocm-smi --shownodesbw says it)",
               r->in->label);
  return build(r, &rates, out);
}

copse_status copse_read_matrix(const struct copse_input *in, bool amd, struct copse_topology **out,
                               struct copse_err *err) {
  COPSE_AT_END(copse_lines_free) struct copse_lines lines = {0};
  COPSE_AT_END(copse_arena_free) struct copse_arena arena = {0};
  struct reader r = {.in = in, .lines = &lines, .arena = &arena, .err = err};
  *out = NULL;
  COPSE_DO(copse_lines_open(in->label, in->data, in->size, &lines, err));
  COPSE_DO(COPSE_ARRAY(&arena, MAX_WORDS, r.words, err));
  return amd ? read_amd(&r, out) : read_nvidia(&r, out);
}
