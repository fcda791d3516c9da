#include "support/msccl_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/support.h"

/* ---- text ------------------------------------------------------------------------------ */

static int number_of(const char *line, const char *key) {
  char pattern[32];
  snprintf(pattern, sizeof pattern, " %s=\"", key);
  const char *at = strstr(line, pattern);
  ck_assert_msg(at != NULL, "no %s in %.100s", key, line);
  return atoi(at + strlen(pattern));
}

static void word_of(const char *line, const char *key, char *out, size_t size) {
  char pattern[32];
  snprintf(pattern, sizeof pattern, " %s=\"", key);
  const char *at = strstr(line, pattern);
  ck_assert_msg(at != NULL, "no %s in %.100s", key, line);
  at += strlen(pattern);
  snprintf(out, size, "%.*s", (int)strcspn(at, "\""), at);
}

static struct copse_test_mx_step read_step(const char *line) {
  struct copse_test_mx_step s = {.srcoff = number_of(line, "srcoff"),
                                 .dstoff = number_of(line, "dstoff"),
                                 .cnt = number_of(line, "cnt"),
                                 .depid = number_of(line, "depid"),
                                 .deps = number_of(line, "deps"),
                                 .hasdep = number_of(line, "hasdep")};
  char letter[4];
  word_of(line, "type", s.type, sizeof s.type);
  word_of(line, "srcbuf", letter, sizeof letter);
  s.src = letter[0];
  word_of(line, "dstbuf", letter, sizeof letter);
  s.dst = letter[0];
  return s;
}

static void read_line(struct copse_test_mx *m, const char *line, int *gpu) {
  struct copse_test_mx_tb *tb = &m->tbs[m->n_tbs - (m->n_tbs > 0)];
  if (strncmp(line, "<algo ", 6) == 0) {
    snprintf(m->head, sizeof m->head, "%.*s", (int)strcspn(line, "\n"), line);
    word_of(line, "coll", m->coll, sizeof m->coll);
    m->n_ranks = number_of(line, "ngpus");
    m->chunks = number_of(line, "nchunksperloop");
    m->in_place = number_of(line, "inplace");
    m->out_of_place = number_of(line, "outofplace");
    ck_assert_int_le(m->n_ranks, 64);
  } else if (strncmp(line, "  <gpu ", 7) == 0) {
    *gpu = number_of(line, "id");
    m->sizes[*gpu][0] = number_of(line, "i_chunks");
    m->sizes[*gpu][1] = number_of(line, "o_chunks");
    m->sizes[*gpu][2] = number_of(line, "s_chunks");
  } else if (strncmp(line, "    <tb ", 8) == 0) {
    m->tbs = realloc(m->tbs, (size_t)(m->n_tbs + 1) * sizeof *m->tbs);
    m->tbs[m->n_tbs++] = (struct copse_test_mx_tb){.gpu = *gpu,
                                                   .id = number_of(line, "id"),
                                                   .send = number_of(line, "send"),
                                                   .recv = number_of(line, "recv"),
                                                   .chan = number_of(line, "chan")};
  } else if (strncmp(line, "      <step ", 12) == 0) {
    ck_assert_int_eq(number_of(line, "s"), tb->n);
    tb->steps[tb->n++] = read_step(line);
  }
}

struct copse_test_mx *copse_test_mx_read(const char *xml) {
  struct copse_test_mx *m = calloc(1, sizeof *m);
  int gpu = -1;
  for (const char *line = xml; *line; line += strcspn(line, "\n") + 1) {
    char copy[512];
    snprintf(copy, sizeof copy, "%.*s", (int)strcspn(line, "\n"), line);
    read_line(m, copy, &gpu);
  }
  ck_assert_int_gt(m->n_tbs, 0);
  return m;
}

void copse_test_mx_restore(struct copse_test_mx *changed, const struct copse_test_mx *m) {
  struct copse_test_mx_tb *tbs = changed->tbs;
  ck_assert_int_eq(changed->n_tbs, m->n_tbs);
  *changed = *m;
  changed->tbs = tbs;
  memcpy(tbs, m->tbs, (size_t)m->n_tbs * sizeof *m->tbs);
}

void copse_test_mx_free(struct copse_test_mx *m) {
  free(m->tbs);
  free(m);
}

char *copse_test_mx_write(const struct copse_test_mx *m) {
  char *text = NULL;
  size_t size;
  FILE *f = open_memstream(&text, &size);
  fprintf(f, "%s\n", m->head);
  for (int t = 0, gpu = -1; t < m->n_tbs; t++) {
    const struct copse_test_mx_tb *tb = &m->tbs[t];
    if (tb->gpu != gpu) {
      if (gpu >= 0) fprintf(f, "  </gpu>\n");
      gpu = tb->gpu;
      fprintf(f, "  <gpu id=\"%d\" i_chunks=\"%d\" o_chunks=\"%d\" s_chunks=\"%d\">\n", gpu,
              m->sizes[gpu][0], m->sizes[gpu][1], m->sizes[gpu][2]);
    }
    fprintf(f, "    <tb id=\"%d\" send=\"%d\" recv=\"%d\" chan=\"%d\">\n", tb->id, tb->send,
            tb->recv, tb->chan);
    for (int s = 0; s < tb->n; s++) {
      const struct copse_test_mx_step *p = &tb->steps[s];
      fprintf(f,
              "      <step s=\"%d\" type=\"%s\" srcbuf=\"%c\" srcoff=\"%d\" dstbuf=\"%c\" "
              "dstoff=\"%d\" cnt=\"%d\" depid=\"%d\" deps=\"%d\" hasdep=\"%d\"/>\n",
              s, p->type, p->src, p->srcoff, p->dst, p->dstoff, p->cnt, p->depid, p->deps,
              p->hasdep);
    }
    fprintf(f, "    </tb>\n");
  }
  fprintf(f, "  </gpu>\n</algo>\n");
  fclose(f);
  return text;
}

/* Waits for steps from `from` on of a tb move by `by`. */
static void shift_waits(struct copse_test_mx *m, int tb, int from, int by) {
  for (int t = 0; t < m->n_tbs; t++)
    for (int s = 0; s < m->tbs[t].n && m->tbs[t].gpu == m->tbs[tb].gpu; s++) {
      struct copse_test_mx_step *p = &m->tbs[t].steps[s];
      if (p->depid == m->tbs[tb].id && p->deps >= from) p->deps += by;
    }
}

void copse_test_mx_drop(struct copse_test_mx *m, int tb, int step) {
  struct copse_test_mx_tb *b = &m->tbs[tb];
  b->n--;
  memmove(&b->steps[step], &b->steps[step + 1], (size_t)(b->n - step) * sizeof *b->steps);
  shift_waits(m, tb, step + 1, -1);
}

void copse_test_mx_double(struct copse_test_mx *m, int tb, int step) {
  struct copse_test_mx_tb *b = &m->tbs[tb];
  memmove(&b->steps[step + 1], &b->steps[step], (size_t)(b->n - step) * sizeof *b->steps);
  b->n++;
  shift_waits(m, tb, step, 1);
}

/* ---- running --------------------------------------------------------------------------- */

enum { ROOM = 2 };

struct wire {
  int src, dst, chan, n;
  uint64_t items[ROOM][80];
};

struct world {
  const struct copse_test_mx *m;
  uint64_t *cells; /* by rank, letter, offset; in place the letters share */
  int width;       /* of a buffer */
  bool in_place;
  int *pc, *published;
  struct wire *wires;
  int n_wires;
};

static uint64_t input_of(int rank, int chunk) {
  uint64_t state = (uint64_t)(rank * 100003 + chunk);
  return copse_test_random(&state);
}

static int block_of(const struct copse_test_mx *m) {
  return strcmp(m->coll, "allreduce") == 0 ? m->chunks : m->chunks / m->n_ranks;
}

static uint64_t *cell(struct world *w, int rank, char letter, int offset) {
  int l = letter == 'i' ? 0 : letter == 'o' ? 1 : 2, own = rank * block_of(w->m);
  if (offset < 0 || offset >= w->width) return NULL;
  if (w->in_place && l < 2) {
    if (strcmp(w->m->coll, "allgather") == 0 && l == 0) offset += own;
    if (strcmp(w->m->coll, "reducescatter") == 0 && l == 1) offset += own;
    l = strcmp(w->m->coll, "reducescatter") == 0 ? 0 : 1;
  }
  return offset < w->width ? &w->cells[(rank * 3 + l) * w->width + offset] : NULL;
}

static struct wire *wire_of(struct world *w, int src, int dst, int chan) {
  for (int i = 0; i < w->n_wires; i++)
    if (w->wires[i].src == src && w->wires[i].dst == dst && w->wires[i].chan == chan)
      return &w->wires[i];
  w->wires[w->n_wires] = (struct wire){.src = src, .dst = dst, .chan = chan};
  return &w->wires[w->n_wires++];
}

static bool wait_is_over(const struct world *w, const struct copse_test_mx_tb *tb,
                         const struct copse_test_mx_step *s) {
  if (s->depid < 0) return true;
  for (int t = 0; t < w->m->n_tbs; t++)
    if (w->m->tbs[t].gpu == tb->gpu && w->m->tbs[t].id == s->depid)
      return w->published[t] >= s->deps;
  return false;
}

/* Does the tb's next step if it can be done; false also where it is out of range. */
static bool try_step(struct world *w, int t) {
  const struct copse_test_mx_tb *tb = &w->m->tbs[t];
  const struct copse_test_mx_step *s = &tb->steps[w->pc[t]];
  bool nop = strcmp(s->type, "nop") == 0, local = !strcmp(s->type, "cpy") || !strcmp(s->type, "re");
  bool recv = s->type[0] == 'r' && !local,
       send = !nop && !local && s->type[strlen(s->type) - 1] == 's';
  bool reads = !nop && strcmp(s->type, "r") != 0 && strcmp(s->type, "rcs") != 0;
  bool writes = !nop && strcmp(s->type, "s") != 0 && strcmp(s->type, "rrs") != 0;
  bool adds = !strcmp(s->type, "re") || (s->type[0] == 'r' && s->type[1] == 'r');
  if (!wait_is_over(w, tb, s)) return false;
  struct wire *in = recv ? wire_of(w, tb->recv, tb->gpu, tb->chan) : NULL;
  struct wire *out = send ? wire_of(w, tb->gpu, tb->send, tb->chan) : NULL;
  if ((in && in->n == 0) || (out && out->n == ROOM)) return false;
  for (int j = 0; j < s->cnt; j++) {
    uint64_t *src = cell(w, tb->gpu, s->src, s->srcoff + j);
    uint64_t *dst = cell(w, tb->gpu, s->dst, s->dstoff + j);
    if ((reads && !src) || (writes && !dst)) return false;
    uint64_t v = in ? in->items[0][j] : reads ? *src : 0;
    if (adds) v = in ? v + *src : *dst + *src;
    if (writes) *dst = v;
    if (out) out->items[out->n][j] = v;
  }
  if (in) memmove(in->items[0], in->items[1], sizeof in->items[0] * (size_t)--in->n);
  if (out) out->n++;
  if (s->hasdep) w->published[t] = w->pc[t];
  w->pc[t]++;
  return true;
}

static uint64_t expected(const struct copse_test_mx *m, int rank, int j) {
  int block = block_of(m);
  uint64_t sum = 0;
  if (strcmp(m->coll, "allgather") == 0) return input_of(j / block, j % block);
  if (strcmp(m->coll, "alltoall") == 0) return input_of(j / block, rank * block + j % block);
  for (int q = 0; q < m->n_ranks; q++)
    sum += input_of(q, strcmp(m->coll, "reducescatter") == 0 ? rank * block + j : j);
  return sum;
}

static bool run_once(const struct copse_test_mx *m, bool in_place, uint64_t *seed) {
  struct world w = {.m = m, .in_place = in_place};
  int n_in = strcmp(m->coll, "allgather") == 0 ? block_of(m) : m->chunks;
  int n_out = strcmp(m->coll, "reducescatter") == 0 ? block_of(m) : m->chunks;
  int left = m->n_tbs, idle = 0;
  bool right = true;
  w.width = m->chunks;
  for (int r = 0; r < m->n_ranks; r++)
    if (m->sizes[r][2] > w.width) w.width = m->sizes[r][2];
  w.cells = calloc((size_t)m->n_ranks * 3 * (size_t)w.width, sizeof *w.cells);
  w.pc = calloc((size_t)m->n_tbs, sizeof *w.pc);
  w.published = malloc((size_t)m->n_tbs * sizeof *w.published);
  w.wires = calloc((size_t)m->n_tbs * 2, sizeof *w.wires);
  for (int t = 0; t < m->n_tbs; t++) w.published[t] = -1;
  for (int r = 0; r < m->n_ranks; r++) {
    for (int j = 0; j < 3 * w.width; j++) w.cells[r * 3 * w.width + j] = copse_test_random(seed);
    for (int j = 0; j < n_in; j++) *cell(&w, r, 'i', j) = input_of(r, j);
  }
  while (left > 0 && idle <= m->n_tbs) { /* a whole round without a step is a hang */
    int first = copse_test_random_int(seed, 0, m->n_tbs - 1), t;
    for (idle = 0; idle <= m->n_tbs; idle++) {
      t = (first + idle) % m->n_tbs;
      if (w.pc[t] < m->tbs[t].n && try_step(&w, t)) break;
    }
    left = 0;
    for (t = 0; t < m->n_tbs; t++) left += w.pc[t] < m->tbs[t].n;
  }
  for (int i = 0; i < w.n_wires; i++) right = right && w.wires[i].n == 0;
  for (int r = 0; r < m->n_ranks && left == 0; r++)
    for (int j = 0; j < n_out; j++) right = right && *cell(&w, r, 'o', j) == expected(m, r, j);
  free(w.cells);
  free(w.pc);
  free(w.published);
  free(w.wires);
  return left == 0 && right;
}

bool copse_test_mx_runs(const struct copse_test_mx *m, int rounds, uint64_t *seed) {
  for (int i = 0; i < rounds; i++)
    if ((m->in_place && !run_once(m, true, seed)) || (m->out_of_place && !run_once(m, false, seed)))
      return false;
  return true;
}
