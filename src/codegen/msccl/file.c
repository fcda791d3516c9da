/* Reads MSCCL XML as the executors do: first as XML, then with the limits of their own scanner. */
#include "codegen/msccl/file.h"

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

/* The index of an attribute's value among n names, `stride` bytes apart. */
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

/* A number that older MSCCL files don't have. */
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

/* How many children have the name; others are passed over, as the executors do. */
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

/* Which calls are served. */
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

/* The executors' scanner knows less than XML: no prolog, no tabs, all attributes of an element
 * on one line, in double quotes, no entities. */
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
