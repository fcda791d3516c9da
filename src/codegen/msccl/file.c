/*
 * Reads MSCCL XML as the executors do: first as XML, then with the limits of their own scanner.
 * Their readers: microsoft/msccl src/graph/topo.cc; src/misc/msccl/msccl_parser.cc of
 * Azure/msccl-executor-nccl and of ROCm/rccl; the scanner of all is NCCL's src/graph/xml.cc.
 */
#include "codegen/msccl/file.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/xml.h"

enum {
  MAX_RANKS = 4096,
  MAX_CHUNKS = 32767 + 71, /* an int16 offset and a step's count */
  MAX_TBS = 1024,
  MAX_STEPS = 64,
  MAX_COUNT = 71,
  MAX_CHANNELS = 128,
  MAX_NODES = 4095
};

const struct copse_mx_type copse_mx_types[COPSE_N_MX_OPS] = {
    /*  name   sends  recvs  reads  writes adds   on_rccl */
    {"s", true, false, true, false, false, true},     {"r", false, true, false, true, false, true},
    {"rcs", true, true, false, true, false, false},   {"rrs", true, true, true, false, true, false},
    {"rrc", false, true, true, true, true, false},    {"rrcs", true, true, true, true, true, false},
    {"cpy", false, false, true, true, false, true},   {"re", false, false, true, true, true, true},
    {"nop", false, false, false, false, false, true},
};

/* The first defect is kept in `status`; after it all reads give harmless values. */
struct reader {
  struct copse_xml xml;
  struct copse_mx_file *file;
  copse_status status;
  struct copse_err *err;
};

/* Keeps a defect of an element, if it is the first. */
#define FAIL(r, kind, line, ...) \
  COPSE_KEEP(r, copse_fail_at((r)->err, (kind), (r)->xml.file, (line), __VA_ARGS__))

static void *allocate(struct reader *r, int n, size_t size) {
  void *p = NULL;
  COPSE_KEEP(r, copse_arena_array(&r->file->arena, (size_t)n, size, &p, r->err));
  return p;
}

/* ---- attributes ----------------------------------------------------------------------- */

static const char *get_text(struct reader *r, const xmlNode *e, const char *name) {
  const char *text = copse_xml_attribute(e, name);
  if (text) return text;
  FAIL(r, COPSE_BAD_INPUT, copse_xml_line(e), "<%s> lacks %s=\"...\", which the executors require",
       copse_xml_name(e), name);
  return "";
}

static int get_int(struct reader *r, const xmlNode *e, const char *name, int64_t min, int64_t max) {
  const char *text = get_text(r, e, name);
  int64_t v = min;
  if (text[0] == '0' && text[1] >= '0' && text[1] <= '9')
    FAIL(r, COPSE_BAD_INPUT, copse_xml_line(e),
         "%s=\"%.20s\" of <%s> is octal to the executors; leave out the leading 0", name, text,
         copse_xml_name(e));
  COPSE_KEEP(r, copse_xml_get_int(&r->xml, e, (struct copse_xml_int){name, 0, min, max}, &v, NULL,
                                  r->err));
  return r->status == COPSE_OK ? (int)v : (int)min;
}

/* Gets the index of an attribute's value among n names, `stride` bytes apart. */
static int get_word(struct reader *r, const xmlNode *e, const char *name, const char *const *names,
                    size_t stride, int n, const char *all) {
  const char *text = get_text(r, e, name);
  for (int i = 0; i < n; i++)
    if (strcmp(*(const char *const *)((const char *)names + (size_t)i * stride), text) == 0)
      return i;
  FAIL(r, COPSE_BAD_INPUT, copse_xml_line(e), "%s=\"%.20s\" of <%s> must be one of %s", name, text,
       copse_xml_name(e), all);
  return 0;
}

/* Gets a number that older MSCCL files don't have. */
static int64_t get_newer(struct reader *r, const xmlNode *e, const char *name, int64_t max,
                         int64_t fallback) {
  bool present = true;
  int64_t v = fallback;
  COPSE_KEEP(r, copse_xml_get_int(&r->xml, e, (struct copse_xml_int){name, fallback, 0, max}, &v,
                                  &present, r->err));
  if (r->status == COPSE_OK && !present) r->file->missing = name;
  return v;
}

static struct copse_mx_place get_place(struct reader *r, const xmlNode *e, const char *buffer,
                                       const char *offset) {
  static const char *const names[] = {"i", "o", "s"};
  int letter = get_word(r, e, buffer, names, sizeof *names, COPSE_N_LETTERS, "i, o, s");
  return (struct copse_mx_place){(enum copse_buffer_letter)letter,
                                 get_int(r, e, offset, -1, 32767)};
}

/* ---- elements ------------------------------------------------------------------------- */

/* Counts how many children have the name; others are passed over, as the executors do. */
static int count_children(const xmlNode *e, const char *name) {
  int n = 0;
  for (const xmlNode *c = copse_xml_first(e); c; c = copse_xml_next(c)) n += copse_xml_is(c, name);
  return n;
}

static void read_step(struct reader *r, const xmlNode *e, int position, struct copse_mx_step *out) {
  int s = get_int(r, e, "s", 0, MAX_STEPS - 1);
  out->line = copse_xml_line(e);
  if (s != position)
    FAIL(r, COPSE_REFUTED, out->line,
         "step s=\"%d\" is at place %d of its tb: the executors go by the place, whatever s says",
         s, position);
  out->op =
      (enum copse_mx_op)get_word(r, e, "type", &copse_mx_types[0].name, sizeof *copse_mx_types,
                                 COPSE_N_MX_OPS, "s, r, rcs, rrs, rrc, rrcs, cpy, re, nop");
  out->src = get_place(r, e, "srcbuf", "srcoff");
  out->dst = get_place(r, e, "dstbuf", "dstoff");
  out->count = get_int(r, e, "cnt", 0, MAX_COUNT);
  out->dep_tb = get_int(r, e, "depid", -1, MAX_TBS - 1);
  out->dep_step = get_int(r, e, "deps", -1, MAX_STEPS - 1);
  out->published = get_int(r, e, "hasdep", 0, 1) != 0;
}

static void read_tb(struct reader *r, const xmlNode *e, struct copse_mx_gpu *gpu, int rank) {
  int id = get_int(r, e, "id", 0, MAX_TBS - 1), n = count_children(e, "step");
  int last = r->file->n_ranks - 1;
  if (id >= gpu->n_tbs || gpu->tbs[id].line > 0)
    FAIL(r, COPSE_REFUTED, copse_xml_line(e),
         "tb id %d of gpu %d: the ids of its %d tbs must be 0 to %d, each once", id, rank,
         gpu->n_tbs, gpu->n_tbs - 1);
  if (r->status != COPSE_OK) return;
  struct copse_mx_tb *tb = &gpu->tbs[id];
  *tb = (struct copse_mx_tb){.gpu = rank, .id = id, .line = copse_xml_line(e), .in = -1, .out = -1};
  tb->send = get_int(r, e, "send", -1, last);
  tb->recv = get_int(r, e, "recv", -1, last);
  tb->channel = get_int(r, e, "chan", 0, r->file->n_channels - 1);
  if (tb->send == rank || tb->recv == rank)
    FAIL(r, COPSE_REFUTED, tb->line, "gpu %d tb %d has its own gpu as a peer", rank, id);
  if (n > MAX_STEPS)
    FAIL(r, COPSE_REFUTED, tb->line, "gpu %d tb %d has %d steps; the executors take %d", rank, id,
         n, MAX_STEPS);
  tb->steps = allocate(r, n, sizeof *tb->steps);
  for (const xmlNode *c = copse_xml_first(e); c && r->status == COPSE_OK; c = copse_xml_next(c)) {
    if (!copse_xml_is(c, "step")) continue;
    read_step(r, c, tb->n_steps, &tb->steps[tb->n_steps]);
    tb->n_steps++;
  }
}

static void read_gpu(struct reader *r, const xmlNode *e) {
  struct copse_mx_file *f = r->file;
  int id = get_int(r, e, "id", 0, f->n_ranks - 1), steps = 0;
  struct copse_mx_gpu *gpu = &f->gpus[id];
  if (gpu->line > 0)
    FAIL(r, COPSE_REFUTED, copse_xml_line(e), "gpu %d is there twice; the first is at line %ld", id,
         gpu->line);
  gpu->line = copse_xml_line(e);
  gpu->declared[COPSE_LETTER_I] = get_int(r, e, "i_chunks", 0, INT32_MAX);
  gpu->declared[COPSE_LETTER_O] = get_int(r, e, "o_chunks", 0, INT32_MAX);
  gpu->declared[COPSE_LETTER_S] = get_int(r, e, "s_chunks", 0, MAX_CHUNKS);
  gpu->n_tbs = count_children(e, "tb");
  if (gpu->n_tbs < 1 || gpu->n_tbs > MAX_TBS)
    FAIL(r, COPSE_REFUTED, gpu->line, "gpu %d has %d tbs; the executors take 1 to %d", id,
         gpu->n_tbs, MAX_TBS);
  gpu->tbs = allocate(r, gpu->n_tbs, sizeof *gpu->tbs);
  for (const xmlNode *c = copse_xml_first(e); c && r->status == COPSE_OK; c = copse_xml_next(c))
    if (copse_xml_is(c, "tb")) read_tb(r, c, gpu, id);
  for (int t = 0; t < gpu->n_tbs && r->status == COPSE_OK; t++) steps += gpu->tbs[t].n_steps;
  if (1 + f->n_ranks + gpu->n_tbs + steps > MAX_NODES)
    FAIL(r, COPSE_REFUTED, gpu->line,
         "gpu %d has %d tbs and %d steps; with %d gpus the executors' parsers take %d in all", id,
         gpu->n_tbs, steps, f->n_ranks, MAX_NODES - 1 - f->n_ranks);
}

/* ---- the algorithm -------------------------------------------------------------------- */

static void read_collective(struct reader *r, const xmlNode *e) {
  static const char *const names[] = {"allreduce", "allgather", "reducescatter",
                                      "alltoall",  "broadcast", "reduce"};
  static const copse_collective collectives[] = {COPSE_ALLREDUCE,      COPSE_ALLGATHER,
                                                 COPSE_REDUCE_SCATTER, COPSE_ALLTOALL,
                                                 COPSE_BROADCAST,      COPSE_REDUCE};
  struct copse_mx_file *f = r->file;
  int i = get_word(r, e, "coll", names, sizeof *names, 6,
                   "allreduce, allgather, reducescatter, alltoall, broadcast, reduce, whose "
                   "results are defined");
  f->collective = collectives[i];
  bool parts = f->collective != COPSE_ALLREDUCE && !copse_collective_rooted(f->collective);
  if (parts && f->chunks % f->n_ranks != 0)
    FAIL(r, COPSE_REFUTED, f->line, "nchunksperloop %d of an %s must be a multiple of ngpus %d",
         f->chunks, names[i], f->n_ranks);
  f->block = parts ? f->chunks / f->n_ranks : f->chunks;
}

/* Reads which calls are served. */
static void read_service(struct reader *r, const xmlNode *e) {
  struct copse_mx_file *f = r->file;
  f->in_place = get_int(r, e, "inplace", 0, INT32_MAX) != 0;
  f->out_of_place = get_newer(r, e, "outofplace", INT32_MAX, !f->in_place) != 0;
  f->min_bytes = get_newer(r, e, "minBytes", INT64_MAX, 0);
  f->max_bytes = get_newer(r, e, "maxBytes", INT64_MAX, 0);
  if (!f->in_place && !f->out_of_place)
    FAIL(r, COPSE_REFUTED, f->line, "no call is served: inplace and outofplace are both 0");
  if (f->max_bytes > 0 && f->max_bytes < f->min_bytes)
    FAIL(r, COPSE_REFUTED, f->line, "no call is served: minBytes is above maxBytes");
}

static void read_algo(struct reader *r, const xmlNode *e) {
  static const char *const protocols[] = {"Simple", "LL", "LL128"};
  struct copse_mx_file *f = r->file;
  const char *name = copse_xml_attribute(e, "name");
  f->line = copse_xml_line(e);
  f->name = copse_arena_strdup(&f->arena, name ? name : "");
  if (!f->name) r->status = copse_fail_nomem(r->err);
  f->protocol = (enum copse_mx_protocol)get_word(r, e, "proto", protocols, sizeof *protocols, 3,
                                                 "Simple, LL, LL128");
  f->n_channels = get_int(r, e, "nchannels", 1, MAX_CHANNELS);
  f->chunks = get_int(r, e, "nchunksperloop", 1, MAX_CHUNKS);
  f->n_ranks = get_int(r, e, "ngpus", 1, MAX_RANKS);
  read_collective(r, e);
  read_service(r, e);
  f->gpus = allocate(r, f->n_ranks, sizeof *f->gpus);
  for (const xmlNode *c = copse_xml_first(e); c && r->status == COPSE_OK; c = copse_xml_next(c))
    if (copse_xml_is(c, "gpu")) read_gpu(r, c);
  for (int g = 0; g < f->n_ranks && r->status == COPSE_OK; g++)
    if (f->gpus[g].line == 0)
      FAIL(r, COPSE_REFUTED, f->line, "gpu %d is missing; ngpus is %d", g, f->n_ranks);
}

/* Checks what the executors' scanner reads, which is less than XML: no prolog, no tabs, all
 * attributes of an element on one line, in double quotes, no entities. */
static copse_status check_scanner(const char *label, const char *data, size_t size,
                                  struct copse_err *err) {
  long line = 1;
  bool tag = false, quoted = false;
  const char *what = NULL;
  for (size_t i = 0; i < size && !what; i++) {
    size_t left = size - i;
    if (left >= 4 && memcmp(data + i, "<!--", 4) == 0) {
      const char *end = memmem(data + i, left, "-->", 3);
      if (!end) break;
      if (memchr(data + i + 4, '=', strcspn(data + i + 4, " \n"))) {
        what = "'=' in the first word of a comment; start it with a blank";
        break;
      }
      for (; data + i < end; i++) line += data[i] == '\n';
      continue;
    }
    if (data[i] == '\t') what = "a tab; write blanks";
    if (left >= 2 && memcmp(data + i, "<?", 2) == 0) what = "a prolog; leave it out";
    if (tag && !quoted && data[i] == '\n') what = "attributes on several lines; write one";
    if (tag && !quoted && data[i] == '\'') what = "single quotes; write double ones";
    if (quoted && data[i] == '&') what = "an entity; none is decoded";
    if (data[i] == '"' && tag) quoted = !quoted;
    if (!quoted && (data[i] == '<' || data[i] == '>')) tag = data[i] == '<';
    line += data[i] == '\n';
  }
  if (!what) return COPSE_OK;
  return copse_fail_at(err, COPSE_REFUTED, label, line, "the executors' parser fails at %s", what);
}

static void end_reader(struct reader *r) { copse_xml_free(&r->xml); }

copse_status copse_mx_parse(const char *label, const char *data, size_t size,
                            struct copse_mx_file *out, struct copse_err *err) {
  COPSE_AT_END(end_reader) struct reader r = {.file = out, .err = err};
  *out = (struct copse_mx_file){.label = label};
  COPSE_DO(copse_xml_parse(label, data, size, &r.xml, err));
  const xmlNode *root = copse_xml_root(&r.xml);
  if (!root || !copse_xml_is(root, "algo"))
    return copse_fail_at(err, COPSE_BAD_INPUT, label, root ? copse_xml_line(root) : 0,
                         "<%.40s> is no MSCCL algorithm; it starts with <algo ...>",
                         root ? copse_xml_name(root) : "");
  COPSE_DO(check_scanner(label, data, size, err));
  read_algo(&r, root);
  return r.status;
}

/* ==== operations ============================================================================== */

/*
 * An MSCCL file as the executors run it: nops become waits of the next step, neighbouring `re`
 * run as one, and steps get the numbers that are published at run time. A wait ends with the first
 * published operation of at least its number, and that one alone is sure to have happened.
 *
 *   step   0 nop depid 1   1 re depid 2   2 re   3 s        the file
 *   op     0: re re, waits for tb 1 and tb 2     1: s       what runs
 *   number 2                                     3          what is published
 *
 * Traps of the executors' parsers are refuted: a wait that is lost in fusion, a sixteenth fused
 * `re`, a number that shifts. Connections are queues that find both their ends here.
 */

enum { MAX_FUSED = 15, MAX_DEP_TB = 127, MAX_PER_CHANNEL = 32, MAX_RCCL_TBS = 64 };

copse_status copse_mx_refute(const struct copse_mx_file *f, const struct copse_mx_tb *tb, int step,
                             struct copse_err *err, const char *what, ...) {
  char text[256];
  va_list args;
  va_start(args, what);
  vsnprintf(text, sizeof text, what, args);
  va_end(args);
  return copse_fail_at(err, COPSE_REFUTED, f->label, tb->steps[step].line,
                       "gpu %d tb %d step %d (%s) %s", tb->gpu, tb->id, step,
                       copse_mx_types[tb->steps[step].op].name, text);
}

/* ---- one step on its own -------------------------------------------------------------- */

/* Returns the chunks that the buffer has; the collective decides, the file only for scratch. */
static int size_of(const struct copse_mx_file *f, int gpu, enum copse_buffer_letter letter) {
  if (letter == COPSE_LETTER_S) return f->gpus[gpu].declared[letter];
  return f->block * (letter == COPSE_LETTER_I
                         ? copse_collective_inputs(f->collective, f->n_ranks)
                         : copse_collective_outputs(f->collective, f->n_ranks));
}

/* Checks a place; `rrc` is the one type whose offsets the parsers never look at. */
static copse_status check_place(const struct copse_mx_file *f, const struct copse_mx_tb *tb,
                                int step, struct copse_mx_place at, struct copse_err *err) {
  static const char letters[] = "ios";
  const struct copse_mx_step *s = &tb->steps[step];
  int size = size_of(f, tb->gpu, at.letter), declared = f->gpus[tb->gpu].declared[at.letter];
  if (at.offset < 0 || at.offset + s->count > size)
    return copse_mx_refute(f, tb, step, err, "uses %c[%d] to %c[%d]; there are %d chunks",
                           letters[at.letter], at.offset, letters[at.letter],
                           at.offset + s->count - 1, size);
  if (s->op != COPSE_MX_RRC && at.offset >= declared)
    return copse_mx_refute(f, tb, step, err,
                           "uses %c[%d], but %c_chunks=\"%d\": the executors refuse that",
                           letters[at.letter], at.offset, letters[at.letter], declared);
  return COPSE_OK;
}

static copse_status check_step(const struct copse_mx_file *f, const struct copse_mx_tb *tb,
                               int step, struct copse_err *err) {
  const struct copse_mx_step *s = &tb->steps[step];
  const struct copse_mx_type *t = &copse_mx_types[s->op];
  if (s->dep_tb >= f->gpus[tb->gpu].n_tbs)
    return copse_mx_refute(f, tb, step, err, "waits for a tb that its gpu does not have");
  if (s->dep_tb > MAX_DEP_TB)
    return copse_mx_refute(f, tb, step, err,
                           "waits for a tb above 127, which the executors can't name");
  if (s->dep_tb >= 0 && s->dep_step < 0)
    return copse_mx_refute(f, tb, step, err, "waits for a tb, but for no step of it");
  if (t->sends && tb->send < 0)
    return copse_mx_refute(f, tb, step, err, "sends, but its tb has send=\"-1\"");
  if (t->receives && tb->recv < 0)
    return copse_mx_refute(f, tb, step, err, "receives, but its tb has recv=\"-1\"");
  if (s->count == 0) return COPSE_OK;
  if (t->reads_src) COPSE_DO(check_place(f, tb, step, s->src, err));
  if (t->writes_dst) COPSE_DO(check_place(f, tb, step, s->dst, err));
  return COPSE_OK;
}

/* ---- folding -------------------------------------------------------------------------- */

static bool fuses(const struct copse_mx_run_op *last, const struct copse_mx_step *step) {
  const struct copse_mx_step *s = last->step;
  return s->op == COPSE_MX_RE && step->op == COPSE_MX_RE && !last->published && step->dep_tb < 0 &&
         s->dst.letter == step->dst.letter && s->dst.offset == step->dst.offset &&
         s->src.letter == step->src.letter;
}

static copse_status fuse(const struct copse_mx_file *f, const struct copse_mx_tb *tb,
                         struct copse_mx_run_op *op, int step, int n_pending,
                         struct copse_err *err) {
  const struct copse_mx_step *s = &tb->steps[step];
  if (n_pending > 0)
    return copse_mx_refute(f, tb, step, err,
                           "runs as one with the re before: the wait of the nop between them "
                           "is lost; give it a depid of its own");
  if (s->count != op->step->count)
    return copse_mx_refute(f, tb, step, err,
                           "runs as one with the re before, which has another cnt");
  if (op->n_steps == MAX_FUSED)
    return copse_mx_refute(f, tb, step, err,
                           "is the 16th re in a row that the executors run as one; they have "
                           "room for 15: publish one before, or give it a depid");
  op->n_steps = step - op->first + 1;
  op->number++;
  op->published = s->published;
  return COPSE_OK;
}

/* Takes the waits of pending nops and of the step itself; tb and step for now, not yet an op. */
static void take_waits(const struct copse_mx_tb *tb, struct copse_mx_run_op *op, int step,
                       int n_pending) {
  for (int s = step; s >= 0 && (n_pending > 0 || s == step); s--) {
    const struct copse_mx_step *from = &tb->steps[s];
    if (from->dep_tb < 0) continue;
    op->waits[op->n_waits++] = (struct copse_mx_wait){from->dep_tb, from->dep_step, s};
    n_pending -= s < step;
  }
}

static copse_status fold(struct copse_mx_file *f, struct copse_mx_tb *tb, struct copse_err *err) {
  int n_pending = 0, done = 0;
  COPSE_DO(COPSE_ARRAY(&f->arena, (size_t)tb->n_steps, tb->ops, err));
  for (int s = 0; s < tb->n_steps; s++) {
    const struct copse_mx_step *step = &tb->steps[s];
    struct copse_mx_run_op *last = tb->n_ops > 0 ? &tb->ops[tb->n_ops - 1] : NULL;
    COPSE_DO(check_step(f, tb, s, err));
    if (!copse_mx_types[step->op].on_rccl) f->on_rccl = false;
    if (step->op == COPSE_MX_NOP) {
      n_pending += step->dep_tb >= 0;
      continue;
    }
    if (last && fuses(last, step)) {
      COPSE_DO(fuse(f, tb, last, s, n_pending, err));
      done++;
      continue;
    }
    if (n_pending > 0 && step->dep_tb < 0)
      return copse_mx_refute(f, tb, s, err,
                             "needs a depid of its own, for the nops before it have one");
    struct copse_mx_run_op *op = &tb->ops[tb->n_ops++];
    done += n_pending + 1;
    *op = (struct copse_mx_run_op){
        .step = step, .n_steps = 1, .first = s, .number = done - 1, .published = step->published};
    COPSE_DO(COPSE_ARRAY(&f->arena, (size_t)n_pending + 1, op->waits, err));
    take_waits(tb, op, s, n_pending);
    n_pending = 0;
  }
  return COPSE_OK;
}

/* Resolves waits: one ends with the first published operation whose number is at least the one it
 * names. */
static copse_status resolve_waits(struct copse_mx_file *f, int tb_index, struct copse_err *err) {
  struct copse_mx_tb *tb = &f->tbs[tb_index];
  for (int o = 0; o < tb->n_ops; o++)
    for (int w = 0; w < tb->ops[o].n_waits; w++) {
      struct copse_mx_wait *wait = &tb->ops[o].waits[w];
      int target = (int)(f->gpus[tb->gpu].tbs - f->tbs) + wait->tb, i = 0;
      struct copse_mx_tb *other = &f->tbs[target];
      while (i < other->n_ops && (!other->ops[i].published || other->ops[i].number < wait->op)) i++;
      if (i == other->n_ops)
        return copse_fail_at(
            err, COPSE_REFUTED, f->label, tb->steps[wait->step].line,
            "gpu %d tb %d step %d waits for step %d of tb %d, but neither that nor "
            "a later one there is published (hasdep=\"1\"): it waits forever",
            tb->gpu, tb->id, wait->step, wait->op, other->id);
      if (target == tb_index && i >= o)
        return copse_mx_refute(f, tb, wait->step, err,
                               "waits for itself or a later step of its own tb");
      wait->tb = target;
      wait->op = i;
      other->ops[i].waiters++;
    }
  return COPSE_OK;
}

/* ---- connections ---------------------------------------------------------------------- */

struct end {
  int src, dst, channel, tb;
};

static int compare_keys(const struct end *x, const struct end *y) {
  if (x->src != y->src) return x->src - y->src;
  if (x->dst != y->dst) return x->dst - y->dst;
  return x->channel - y->channel;
}

COPSE_ORDER(compare_ends, struct end, compare_keys(a, b) ?: COPSE_UP(tb))

/* Returns the tb's first op that sends (receives), or n_ops. */
static int next_op(const struct copse_mx_tb *tb, int from, bool sends) {
  while (from < tb->n_ops) {
    const struct copse_mx_type *t = &copse_mx_types[tb->ops[from].step->op];
    if (sends ? t->sends : t->receives) break;
    from++;
  }
  return from;
}

static copse_status collect_ends(struct copse_mx_file *f, bool sends, struct copse_arena *scratch,
                                 struct end **ends, int *n, struct copse_err *err) {
  COPSE_DO(COPSE_ARRAY(scratch, (size_t)f->n_tbs, *ends, err));
  *n = 0;
  for (int i = 0; i < f->n_tbs; i++) {
    const struct copse_mx_tb *tb = &f->tbs[i];
    if (next_op(tb, 0, sends) == tb->n_ops) continue;
    (*ends)[(*n)++] = sends ? (struct end){tb->gpu, tb->send, tb->channel, i}
                            : (struct end){tb->recv, tb->gpu, tb->channel, i};
  }
  COPSE_SORT(*ends, *n, compare_ends);
  for (int i = 1; i < *n; i++) {
    const struct copse_mx_tb *a = &f->tbs[(*ends)[i - 1].tb], *b = &f->tbs[(*ends)[i].tb];
    if (compare_keys(&(*ends)[i - 1], &(*ends)[i]) == 0)
      return copse_fail_at(err, COPSE_REFUTED, f->label, b->line,
                           "gpu %d: tb %d and tb %d both %s gpu %d on channel %d; one may", b->gpu,
                           a->id, b->id, sends ? "send to" : "receive from",
                           sends ? b->send : b->recv, b->channel);
  }
  return COPSE_OK;
}

/* Checks a connection, which is a queue: the k-th send is for the k-th receive. */
static copse_status check_pairs(const struct copse_mx_file *f, const struct copse_mx_tb *s,
                                const struct copse_mx_tb *r, struct copse_err *err) {
  int i = next_op(s, 0, true), j = next_op(r, 0, false);
  for (; i < s->n_ops && j < r->n_ops; i = next_op(s, i + 1, true), j = next_op(r, j + 1, false)) {
    const struct copse_mx_run_op *a = &s->ops[i], *b = &r->ops[j];
    if (a->step->count != b->step->count)
      return copse_fail_at(err, COPSE_REFUTED, f->label, b->step->line,
                           "gpu %d tb %d step %d receives %d chunks of the %d that gpu %d tb %d "
                           "step %d sends",
                           r->gpu, r->id, b->first, b->step->count, a->step->count, s->gpu, s->id,
                           a->first);
  }
  if (i < s->n_ops)
    return copse_fail_at(
        err, COPSE_REFUTED, f->label, s->ops[i].step->line,
        "gpu %d tb %d step %d sends on channel %d what gpu %d tb %d never receives", s->gpu, s->id,
        s->ops[i].first, s->channel, r->gpu, r->id);
  if (j < r->n_ops)
    return copse_fail_at(err, COPSE_REFUTED, f->label, r->ops[j].step->line,
                         "gpu %d tb %d step %d waits forever on channel %d: gpu %d tb %d has sent "
                         "all it sends",
                         r->gpu, r->id, r->ops[j].first, r->channel, s->gpu, s->id);
  return COPSE_OK;
}

static copse_status refute_lone(const struct copse_mx_file *f, const struct end *e, bool sends,
                                struct copse_err *err) {
  const struct copse_mx_tb *tb = &f->tbs[e->tb];
  const struct copse_mx_run_op *op = &tb->ops[next_op(tb, 0, sends)];
  return copse_fail_at(err, COPSE_REFUTED, f->label, op->step->line,
                       sends ? "gpu %d tb %d step %d sends to gpu %d on channel %d, where no tb "
                               "receives from it"
                             : "gpu %d tb %d step %d receives from gpu %d on channel %d, where no "
                               "tb sends to it",
                       tb->gpu, tb->id, op->first, sends ? e->dst : e->src, e->channel);
}

static copse_status connect(struct copse_mx_file *f, struct copse_err *err) {
  struct end *senders, *receivers;
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  int n = 0, n_receivers = 0;
  COPSE_DO(collect_ends(f, true, &scratch, &senders, &n, err));
  COPSE_DO(collect_ends(f, false, &scratch, &receivers, &n_receivers, err));
  COPSE_DO(COPSE_ARRAY(&f->arena, (size_t)n, f->connections, err));
  for (int i = 0; i < n || i < n_receivers; i++) {
    int order = i == n ? 1 : i == n_receivers ? -1 : compare_keys(&senders[i], &receivers[i]);
    if (order != 0)
      COPSE_DO(refute_lone(f, order < 0 ? &senders[i] : &receivers[i], order < 0, err));
    struct copse_mx_tb *s = &f->tbs[senders[i].tb], *r = &f->tbs[receivers[i].tb];
    COPSE_DO(check_pairs(f, s, r, err));
    s->out = r->in = f->n_connections;
    f->connections[f->n_connections++] =
        (struct copse_mx_connection){senders[i].tb, receivers[i].tb};
  }
  return COPSE_OK;
}

/* Checks that a channel and direction has at most 32 peers, as many as the executors keep. */
static copse_status check_channels(const struct copse_mx_file *f, struct copse_err *err) {
  for (int g = 0; g < f->n_ranks; g++) {
    const struct copse_mx_gpu *gpu = &f->gpus[g];
    int count[2][128] = {{0}};
    for (int t = 0; t < gpu->n_tbs; t++)
      for (int d = 0; d < 2; d++)
        if ((d == 0 ? gpu->tbs[t].send : gpu->tbs[t].recv) >= 0 &&
            ++count[d][gpu->tbs[t].channel] > MAX_PER_CHANNEL)
          return copse_fail_at(err, COPSE_REFUTED, f->label, gpu->tbs[t].line,
                               "gpu %d tb %d is the 33rd on channel %d that %s; the executors take "
                               "32",
                               g, t, gpu->tbs[t].channel, d == 0 ? "sends" : "receives");
  }
  return COPSE_OK;
}

/* ---- all together --------------------------------------------------------------------- */

/* Lists all tbs side by side, by gpu. */
static copse_status list_tbs(struct copse_mx_file *f, struct copse_err *err) {
  for (int g = 0; g < f->n_ranks; g++) f->n_tbs += f->gpus[g].n_tbs;
  COPSE_DO(COPSE_ARRAY(&f->arena, (size_t)f->n_tbs, f->tbs, err));
  struct copse_mx_tb *at = f->tbs;
  for (int g = 0; g < f->n_ranks; g++) {
    struct copse_mx_gpu *gpu = &f->gpus[g];
    memcpy(at, gpu->tbs, (size_t)gpu->n_tbs * sizeof *at);
    gpu->tbs = at;
    at += gpu->n_tbs;
    if (gpu->n_tbs > MAX_RCCL_TBS) f->on_rccl = false;
  }
  return COPSE_OK;
}

copse_status copse_mx_fold(struct copse_mx_file *f, struct copse_err *err) {
  f->on_rccl = true;
  COPSE_DO(list_tbs(f, err));
  for (int t = 0; t < f->n_tbs; t++) COPSE_DO(fold(f, &f->tbs[t], err));
  COPSE_DO(check_channels(f, err));
  for (int t = 0; t < f->n_tbs; t++) COPSE_DO(resolve_waits(f, t, err));
  return connect(f, err);
}
