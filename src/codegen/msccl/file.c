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

struct reader {
  struct copse_xml xml;
  struct copse_mx_file *file;
  struct copse_err *err;
};

/* ---- attributes ----------------------------------------------------------------------- */

static copse_status get_text(struct reader *r, const xmlNode *e, const char *name,
                             const char **out) {
  *out = copse_xml_attribute(e, name);
  if (*out) return COPSE_OK;
  return copse_fail_at(r->err, COPSE_BAD_INPUT, r->xml.file, copse_xml_line(e),
                       "<%s> lacks %s=\"...\", which the executors require", copse_xml_name(e),
                       name);
}

static copse_status get_int(struct reader *r, const xmlNode *e, const char *name, int64_t min,
                            int64_t max, int *out) {
  const char *text;
  int64_t v;
  copse_status status;
  COPSE_TRY(get_text(r, e, name, &text));
  if (text[0] == '0' && text[1] >= '0' && text[1] <= '9')
    return copse_fail_at(r->err, COPSE_BAD_INPUT, r->xml.file, copse_xml_line(e),
                         "%s=\"%.20s\" of <%s> is octal to the executors; leave out the leading 0",
                         name, text, copse_xml_name(e));
  COPSE_TRY(
      copse_xml_get_int(&r->xml, e, (struct copse_xml_int){name, 0, min, max}, &v, NULL, r->err));
  *out = (int)v;
out:
  return status;
}

/* The index of an attribute's value among `names`. */
static copse_status get_word(struct reader *r, const xmlNode *e, const char *name,
                             const char *const names[], int n, const char *all, int *out) {
  const char *text;
  copse_status status;
  COPSE_TRY(get_text(r, e, name, &text));
  for (*out = 0; *out < n; ++*out)
    if (strcmp(names[*out], text) == 0) return COPSE_OK;
  return copse_fail_at(r->err, COPSE_BAD_INPUT, r->xml.file, copse_xml_line(e),
                       "%s=\"%.20s\" of <%s> must be one of %s", name, text, copse_xml_name(e),
                       all);
out:
  return status;
}

/* A number that older MSCCL files don't have. */
static copse_status get_newer(struct reader *r, const xmlNode *e, const char *name, int64_t max,
                              int64_t fallback, int64_t *out) {
  bool present;
  copse_status status = copse_xml_get_int(
      &r->xml, e, (struct copse_xml_int){name, fallback, 0, max}, out, &present, r->err);
  if (status == COPSE_OK && !present) r->file->missing = name;
  return status;
}

static copse_status get_place(struct reader *r, const xmlNode *e, const char *buffer,
                              const char *offset, struct copse_mx_place *out) {
  static const char *const names[] = {"i", "o", "s"};
  int letter;
  copse_status status;
  COPSE_TRY(get_word(r, e, buffer, names, COPSE_N_LETTERS, "i, o, s", &letter));
  out->letter = (enum copse_buffer_letter)letter;
  COPSE_TRY(get_int(r, e, offset, -1, 32767, &out->offset));
out:
  return status;
}

/* ---- elements ------------------------------------------------------------------------- */

/* How many children have the name; others are passed over, as the executors do. */
static int count_children(const xmlNode *e, const char *name) {
  int n = 0;
  for (const xmlNode *c = copse_xml_first(e); c; c = copse_xml_next(c)) n += copse_xml_is(c, name);
  return n;
}

static copse_status read_step(struct reader *r, const xmlNode *e, int position,
                              struct copse_mx_step *out) {
  static const char *const names[] = {"s", "r", "rcs", "rrs", "rrc", "rrcs", "cpy", "re", "nop"};
  int s, op, published;
  copse_status status;
  out->line = copse_xml_line(e);
  COPSE_TRY(get_int(r, e, "s", 0, MAX_STEPS - 1, &s));
  if (s != position)
    return copse_fail_at(r->err, COPSE_REFUTED, r->xml.file, out->line,
                         "step s=\"%d\" is at place %d of its tb: the executors go by the place, "
                         "whatever s says",
                         s, position);
  COPSE_TRY(get_word(r, e, "type", names, COPSE_N_MX_OPS, "s, r, rcs, rrs, rrc, rrcs, cpy, re, nop",
                     &op));
  out->op = (enum copse_mx_op)op;
  COPSE_TRY(get_place(r, e, "srcbuf", "srcoff", &out->src));
  COPSE_TRY(get_place(r, e, "dstbuf", "dstoff", &out->dst));
  COPSE_TRY(get_int(r, e, "cnt", 0, MAX_COUNT, &out->count));
  COPSE_TRY(get_int(r, e, "depid", -1, MAX_TBS - 1, &out->dep_tb));
  COPSE_TRY(get_int(r, e, "deps", -1, MAX_STEPS - 1, &out->dep_step));
  COPSE_TRY(get_int(r, e, "hasdep", 0, 1, &published));
  out->published = published;
out:
  return status;
}

static copse_status read_tb(struct reader *r, const xmlNode *e, struct copse_mx_gpu *gpu,
                            int rank) {
  int id, n = count_children(e, "step"), last = r->file->n_ranks - 1;
  struct copse_mx_tb *tb;
  copse_status status;
  COPSE_TRY(get_int(r, e, "id", 0, MAX_TBS - 1, &id));
  if (id >= gpu->n_tbs || gpu->tbs[id].line > 0)
    return copse_fail_at(r->err, COPSE_REFUTED, r->xml.file, copse_xml_line(e),
                         "tb id %d of gpu %d: the ids of its %d tbs must be 0 to %d, each once", id,
                         rank, gpu->n_tbs, gpu->n_tbs - 1);
  tb = &gpu->tbs[id];
  tb->line = copse_xml_line(e);
  COPSE_TRY(get_int(r, e, "send", -1, last, &tb->send));
  COPSE_TRY(get_int(r, e, "recv", -1, last, &tb->recv));
  COPSE_TRY(get_int(r, e, "chan", 0, r->file->n_channels - 1, &tb->channel));
  if (tb->send == rank || tb->recv == rank)
    return copse_fail_at(r->err, COPSE_REFUTED, r->xml.file, tb->line,
                         "gpu %d tb %d has its own gpu as a peer", rank, id);
  if (n > MAX_STEPS)
    return copse_fail_at(r->err, COPSE_REFUTED, r->xml.file, tb->line,
                         "gpu %d tb %d has %d steps; the executors take %d", rank, id, n,
                         MAX_STEPS);
  COPSE_TRY(copse_arena_array(&r->file->arena, (size_t)n, sizeof *tb->steps, &tb->steps, r->err));
  for (const xmlNode *c = copse_xml_first(e); c; c = copse_xml_next(c)) {
    if (!copse_xml_is(c, "step")) continue;
    COPSE_TRY(read_step(r, c, tb->n_steps, &tb->steps[tb->n_steps]));
    tb->n_steps++;
  }
out:
  return status;
}

static copse_status read_gpu(struct reader *r, const xmlNode *e) {
  struct copse_mx_file *f = r->file;
  struct copse_mx_gpu *gpu;
  int id, steps = 0;
  copse_status status;
  COPSE_TRY(get_int(r, e, "id", 0, f->n_ranks - 1, &id));
  gpu = &f->gpus[id];
  if (gpu->line > 0)
    return copse_fail_at(r->err, COPSE_REFUTED, r->xml.file, copse_xml_line(e),
                         "gpu %d is there twice; the first is at line %ld", id, gpu->line);
  gpu->line = copse_xml_line(e);
  COPSE_TRY(get_int(r, e, "i_chunks", 0, INT32_MAX, &gpu->declared[COPSE_LETTER_I]));
  COPSE_TRY(get_int(r, e, "o_chunks", 0, INT32_MAX, &gpu->declared[COPSE_LETTER_O]));
  COPSE_TRY(get_int(r, e, "s_chunks", 0, MAX_CHUNKS, &gpu->declared[COPSE_LETTER_S]));
  gpu->n_tbs = count_children(e, "tb");
  if (gpu->n_tbs < 1 || gpu->n_tbs > MAX_TBS)
    return copse_fail_at(r->err, COPSE_REFUTED, r->xml.file, gpu->line,
                         "gpu %d has %d tbs; the executors take 1 to %d", id, gpu->n_tbs, MAX_TBS);
  COPSE_TRY(copse_arena_array(&f->arena, (size_t)gpu->n_tbs, sizeof *gpu->tbs, &gpu->tbs, r->err));
  for (const xmlNode *c = copse_xml_first(e); c; c = copse_xml_next(c))
    if (copse_xml_is(c, "tb")) COPSE_TRY(read_tb(r, c, gpu, id));
  for (int t = 0; t < gpu->n_tbs; t++) steps += gpu->tbs[t].n_steps;
  if (1 + f->n_ranks + gpu->n_tbs + steps > MAX_NODES)
    return copse_fail_at(r->err, COPSE_REFUTED, r->xml.file, gpu->line,
                         "gpu %d has %d tbs and %d steps; with %d gpus the executors' parsers take "
                         "%d in all",
                         id, gpu->n_tbs, steps, f->n_ranks, MAX_NODES - 1 - f->n_ranks);
out:
  return status;
}

/* ---- the algorithm -------------------------------------------------------------------- */

static copse_status read_collective(struct reader *r, const xmlNode *e) {
  static const char *const names[] = {"allreduce", "allgather", "reducescatter",
                                      "alltoall",  "broadcast", "reduce"};
  static const copse_collective collectives[] = {COPSE_ALLREDUCE,      COPSE_ALLGATHER,
                                                 COPSE_REDUCE_SCATTER, COPSE_ALLTOALL,
                                                 COPSE_BROADCAST,      COPSE_REDUCE};
  struct copse_mx_file *f = r->file;
  int i;
  copse_status status;
  COPSE_TRY(get_word(r, e, "coll", names, 6,
                     "allreduce, allgather, reducescatter, alltoall, broadcast, reduce, whose "
                     "results are defined",
                     &i));
  f->collective = collectives[i];
  bool parts = f->collective == COPSE_ALLGATHER || f->collective == COPSE_REDUCE_SCATTER ||
               f->collective == COPSE_ALLTOALL;
  if (parts && f->chunks % f->n_ranks != 0)
    return copse_fail_at(r->err, COPSE_REFUTED, r->xml.file, f->line,
                         "nchunksperloop %d of an %s must be a multiple of ngpus %d", f->chunks,
                         names[i], f->n_ranks);
  f->block = parts ? f->chunks / f->n_ranks : f->chunks;
out:
  return status;
}

/* Which calls are served. */
static copse_status read_service(struct reader *r, const xmlNode *e) {
  struct copse_mx_file *f = r->file;
  int64_t out_of_place;
  int in_place;
  copse_status status;
  COPSE_TRY(get_int(r, e, "inplace", 0, INT32_MAX, &in_place));
  COPSE_TRY(get_newer(r, e, "outofplace", INT32_MAX, !in_place, &out_of_place));
  COPSE_TRY(get_newer(r, e, "minBytes", INT64_MAX, 0, &f->min_bytes));
  COPSE_TRY(get_newer(r, e, "maxBytes", INT64_MAX, 0, &f->max_bytes));
  f->in_place = in_place != 0;
  f->out_of_place = out_of_place != 0;
  if (!f->in_place && !f->out_of_place)
    return copse_fail_at(r->err, COPSE_REFUTED, r->xml.file, f->line,
                         "no call is served: inplace and outofplace are both 0");
  if (f->max_bytes > 0 && f->max_bytes < f->min_bytes)
    return copse_fail_at(r->err, COPSE_REFUTED, r->xml.file, f->line,
                         "no call is served: minBytes is above maxBytes");
out:
  return status;
}

static copse_status read_algo(struct reader *r, const xmlNode *e) {
  static const char *const protocols[] = {"Simple", "LL", "LL128"};
  struct copse_mx_file *f = r->file;
  const char *name = copse_xml_attribute(e, "name");
  int protocol;
  copse_status status;
  f->line = copse_xml_line(e);
  f->name = copse_arena_strdup(&f->arena, name ? name : "");
  if (!f->name) return copse_fail_nomem(r->err);
  COPSE_TRY(get_word(r, e, "proto", protocols, 3, "Simple, LL, LL128", &protocol));
  f->protocol = (enum copse_mx_protocol)protocol;
  COPSE_TRY(get_int(r, e, "nchannels", 1, MAX_CHANNELS, &f->n_channels));
  COPSE_TRY(get_int(r, e, "nchunksperloop", 1, MAX_CHUNKS, &f->chunks));
  COPSE_TRY(get_int(r, e, "ngpus", 1, MAX_RANKS, &f->n_ranks));
  COPSE_TRY(read_collective(r, e));
  COPSE_TRY(read_service(r, e));
  COPSE_TRY(copse_arena_array(&f->arena, (size_t)f->n_ranks, sizeof *f->gpus, &f->gpus, r->err));
  for (const xmlNode *c = copse_xml_first(e); c; c = copse_xml_next(c))
    if (copse_xml_is(c, "gpu")) COPSE_TRY(read_gpu(r, c));
  for (int g = 0; g < f->n_ranks; g++)
    if (f->gpus[g].line == 0)
      return copse_fail_at(r->err, COPSE_REFUTED, r->xml.file, f->line,
                           "gpu %d is missing; ngpus is %d", g, f->n_ranks);
out:
  return status;
}

/*
 * The executors' scanner knows less than XML: no prolog, no tabs, all attributes of an element
 * on one line, in double quotes, no entities.
 */
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

copse_status copse_mx_parse(const char *label, const char *data, size_t size,
                            struct copse_mx_file *out, struct copse_err *err) {
  struct reader r = {.file = out, .err = err};
  copse_status status;
  *out = (struct copse_mx_file){.label = label};
  COPSE_TRY(copse_xml_parse(label, data, size, &r.xml, err));
  const xmlNode *root = copse_xml_root(&r.xml);
  if (!root || !copse_xml_is(root, "algo")) {
    status = copse_fail_at(err, COPSE_BAD_INPUT, label, root ? copse_xml_line(root) : 0,
                           "<%.40s> is no MSCCL algorithm; it starts with <algo ...>",
                           root ? copse_xml_name(root) : "");
    goto out;
  }
  COPSE_TRY(check_scanner(label, data, size, err));
  COPSE_TRY(read_algo(&r, root));
out:
  copse_xml_free(&r.xml);
  if (status != COPSE_OK) copse_mx_free(out);
  return status;
}

void copse_mx_free(struct copse_mx_file *file) { copse_arena_free(&file->arena); }
