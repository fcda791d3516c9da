#include "codegen/mscclpp/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

enum { MAX_RANKS = 4096, MAX_CHUNKS = 1 << 20, MAX_OPS = 64, MAX_LISTED = 16, MAX_BARRIERS = 16 };

/*                name         kind                waits  relaxed  pkt_src pkt_dst signals gets */
static const struct copse_pj_type types[] = {
    {"nop", COPSE_PJ_NOP, false, false, false, false, false, false},
    {"signal", COPSE_PJ_SYNC, false, false, false, false, false, false},
    {"wait", COPSE_PJ_SYNC, true, false, false, false, false, false},
    {"rlxsignal", COPSE_PJ_SYNC, false, true, false, false, false, false},
    {"rlxwait", COPSE_PJ_SYNC, true, true, false, false, false, false},
    {"flush", COPSE_PJ_FLUSH, false, false, false, false, false, false},
    {"barrier", COPSE_PJ_BARRIER, false, false, false, false, false, false},
    {"sem_acquire", COPSE_PJ_ACQUIRE, false, false, false, false, false, false},
    {"sem_release", COPSE_PJ_RELEASE, false, false, false, false, false, false},
    {"pipeline", COPSE_PJ_PIPELINE, false, false, false, false, false, false},
    {"copy", COPSE_PJ_MOVE, false, false, false, false, false, false},
    {"put", COPSE_PJ_MOVE, false, false, false, false, false, false},
    {"pws", COPSE_PJ_MOVE, false, false, false, false, true, false},
    {"pwsf", COPSE_PJ_MOVE, false, false, false, false, true, false},
    {"get", COPSE_PJ_MOVE, false, false, false, false, false, true},
    {"re", COPSE_PJ_SUM, false, false, false, false, false, false},
    {"res", COPSE_PJ_SUM, false, false, false, false, false, false},
    {"rre", COPSE_PJ_SUM, false, false, false, false, false, true},
    {"rres", COPSE_PJ_SUM, false, false, false, false, false, true},
    {"cpkt", COPSE_PJ_MOVE, false, false, false, true, false, false},
    {"upkt", COPSE_PJ_MOVE, false, false, true, false, false, false},
    {"ppkt", COPSE_PJ_MOVE, false, false, false, true, false, false},
    {"rppkt", COPSE_PJ_SUM, false, false, true, true, false, false},
    {"repkt", COPSE_PJ_SUM, false, false, true, false, false, false},
    {"respkt", COPSE_PJ_SUM, false, false, true, true, false, false},
    {"recpkt", COPSE_PJ_SUM, false, false, true, true, false, false},
    {"recspkt", COPSE_PJ_SUM, false, false, true, true, false, false},
    {"gstore", COPSE_PJ_MULTIMEM, false, false, false, false, false, false},
    {"glres", COPSE_PJ_MULTIMEM, false, false, false, false, false, false},
};

/* A list of numbers that grows. */
struct ints {
  int *v;
  int n;
  size_t capacity;
};

/* What one rank declares, and one block of it lists. */
struct rank_tables {
  struct ints ends[2]; /* flat channels by type: index into the file's ends */
  struct ints remote_rank, remote_letter;
  const cJSON *switches; /* the first switch channel declaration's array, or NULL */
  int first_semaphore, n_semaphores;
};

struct block_lists {
  struct ints channels[3]; /* of memory and port: ends; of switches: flat numbers */
  struct ints remotes[2];  /* numbers of the rank's remote buffers */
};

struct reader {
  struct copse_json json;
  struct copse_pj_file *file;
  struct rank_tables *tables; /* [n_ranks] */
  size_t ends_capacity, semaphores_capacity, blocks_capacity;
  int rank, tb, op; /* being read, for messages */
  struct copse_err *err;
};

static copse_status add_int(struct reader *r, struct ints *list, int v) {
  copse_status status =
      copse_grow(&list->v, &list->capacity, (size_t)list->n + 1, sizeof *list->v, r->err);
  if (status == COPSE_OK) list->v[list->n++] = v;
  return status;
}

static copse_status get_int(struct reader *r, const cJSON *object, const char *key, int64_t min,
                            int64_t max, int *out) {
  int64_t v;
  copse_status status = copse_json_get_int(&r->json, object, key, min, max, &v, r->err);
  if (status == COPSE_OK) *out = (int)v;
  return status;
}

static copse_status item_int(struct reader *r, const cJSON *item, const cJSON *parent,
                             const char *what, int64_t min, int64_t max, int *out) {
  int64_t v;
  copse_status status = copse_json_int(&r->json, item, parent, what, min, max, &v, r->err);
  if (status == COPSE_OK) *out = (int)v;
  return status;
}

static copse_status get_channel(struct reader *r, const cJSON *object, const char *key,
                                enum copse_pj_channel *out) {
  static const char *const names[] = {"memory", "port", "switch", "none"};
  const char *text;
  copse_status status = copse_json_get_string(&r->json, object, key, &text, r->err);
  if (status != COPSE_OK) return status;
  for (int i = 0; i < 4; i++)
    if (strcmp(text, names[i]) == 0) {
      *out = (enum copse_pj_channel)i;
      return COPSE_OK;
    }
  return copse_fail_at(r->err, COPSE_BAD_INPUT, r->json.file, copse_json_line(object, NULL),
                       "\"%s\": \"%.20s\" must be memory, port, switch or none", key, text);
}

static copse_status get_letter(struct reader *r, const cJSON *object, const char *key, int *out) {
  const char *text;
  copse_status status = copse_json_get_string(&r->json, object, key, &text, r->err);
  if (status != COPSE_OK) return status;
  const char *letters = "ios", *at = text[0] && !text[1] ? strchr(letters, text[0]) : NULL;
  if (at) {
    *out = (int)(at - letters);
    return COPSE_OK;
  }
  return copse_fail_at(r->err, COPSE_BAD_INPUT, r->json.file, copse_json_line(object, NULL),
                       "\"%s\": \"%.20s\" must be i, o or s", key, text);
}

/* A number that names one of n things of the op's block. */
static copse_status check_id(struct reader *r, long line, const char *key, int id, int n) {
  if (id < n) return COPSE_OK;
  return copse_fail_at(r->err, COPSE_REFUTED, r->json.file, line,
                       "gpu %d tb %d op %d: %s %d, of which its block has %d", r->rank, r->tb,
                       r->op, key, id, n);
}

/* ---- channels and remote buffers ------------------------------------------------------- */

static copse_status add_end(struct reader *r, int rank, int peer, enum copse_pj_channel type) {
  struct copse_pj_file *f = r->file;
  copse_status status;
  COPSE_TRY(
      copse_grow(&f->ends, &r->ends_capacity, (size_t)f->n_ends + 1, sizeof *f->ends, r->err));
  COPSE_TRY(add_int(r, &r->tables[rank].ends[type], f->n_ends));
  f->ends[f->n_ends++] = (struct copse_pj_end){rank, peer, -1, type};
out:
  return status;
}

static copse_status read_channels(struct reader *r, const cJSON *gpu, int rank) {
  const cJSON *channels, *peers;
  copse_status status;
  COPSE_TRY(copse_json_get_array(&r->json, gpu, "channels", &channels, r->err));
  COPSE_JSON_EACH (c, channels) {
    enum copse_pj_channel type;
    COPSE_TRY(get_channel(r, c, "channel_type", &type));
    if (type == COPSE_PJ_NONE) continue;
    if (type == COPSE_PJ_SWITCH) {
      if (r->tables[rank].switches)
        return copse_fail_at(r->err, COPSE_UNSUPPORTED, r->json.file, copse_json_line(c, channels),
                             "gpu %d has several switch declarations; this checker reads one",
                             rank);
      r->tables[rank].switches = c;
      continue;
    }
    COPSE_TRY(copse_json_get_array(&r->json, c, "connected_to", &peers, r->err));
    COPSE_JSON_EACH (p, peers) {
      int peer;
      COPSE_TRY(item_int(r, p, c, "a peer in connected_to", 0, r->file->n_ranks - 1, &peer));
      COPSE_TRY(add_end(r, rank, peer, type));
    }
  }
out:
  return status;
}

static copse_status read_remotes(struct reader *r, const cJSON *gpu, int rank) {
  const cJSON *remotes;
  int peer, letter;
  copse_status status;
  COPSE_TRY(copse_json_get_array(&r->json, gpu, "remote_buffers", &remotes, r->err));
  COPSE_JSON_EACH (b, remotes) {
    COPSE_TRY(get_int(r, b, "rank", 0, r->file->n_ranks - 1, &peer));
    COPSE_TRY(get_letter(r, b, "type", &letter));
    COPSE_TRY(add_int(r, &r->tables[rank].remote_rank, peer));
    COPSE_TRY(add_int(r, &r->tables[rank].remote_letter, letter));
  }
out:
  return status;
}

static copse_status read_semaphores(struct reader *r, const cJSON *gpu, int rank) {
  struct copse_pj_file *f = r->file;
  const cJSON *semaphores;
  copse_status status = COPSE_OK;
  r->tables[rank].first_semaphore = f->n_semaphores;
  if (!copse_json_get(gpu, "semaphores")) return COPSE_OK;
  COPSE_TRY(copse_json_get_array(&r->json, gpu, "semaphores", &semaphores, r->err));
  COPSE_JSON_EACH (s, semaphores) {
    COPSE_TRY(copse_grow(&f->semaphores, &r->semaphores_capacity, (size_t)f->n_semaphores + 1,
                         sizeof(int), r->err));
    COPSE_TRY(get_int(r, s, "init_value", 0, 1 << 20, &f->semaphores[f->n_semaphores]));
    f->n_semaphores++;
  }
  r->tables[rank].n_semaphores = f->n_semaphores - r->tables[rank].first_semaphore;
out:
  return status;
}

static int compare_ends(const void *a, const void *b, void *ctx) {
  const struct copse_pj_end *ends = ctx, *x = &ends[*(const int *)a], *y = &ends[*(const int *)b];
  int xl = x->rank < x->peer ? x->rank : x->peer, yl = y->rank < y->peer ? y->rank : y->peer;
  if (xl != yl) return xl - yl;
  if (x->rank + x->peer != y->rank + y->peer) return x->rank + x->peer - y->rank - y->peer;
  if (x->type != y->type) return (int)x->type - (int)y->type;
  if (x->rank != y->rank) return x->rank - y->rank;
  return *(const int *)a - *(const int *)b;
}

/* The k-th channel of a type from A to B is the k-th from B to A. */
static copse_status pair_ends(struct reader *r) {
  struct copse_pj_file *f = r->file;
  int *order = NULL, n = f->n_ends;
  copse_status status = copse_calloc((size_t)n + 1, sizeof *order, &order, r->err);
  if (status != COPSE_OK) return status;
  for (int i = 0; i < n; i++) order[i] = i;
  qsort_r(order, (size_t)n, sizeof *order, compare_ends, f->ends);
  for (int from = 0, middle, to; from < n; from = to) { /* [from, middle): A to B, rest: B to A */
    const struct copse_pj_end *a = &f->ends[order[from]];
    for (middle = from; middle < n; middle++) {
      const struct copse_pj_end *e = &f->ends[order[middle]];
      if (e->rank != a->rank || e->peer != a->peer || e->type != a->type) break;
    }
    for (to = middle; to < n; to++) {
      const struct copse_pj_end *e = &f->ends[order[to]];
      if (e->rank != a->peer || e->peer != a->rank || e->type != a->type) break;
    }
    for (int k = 0; from + k < middle && middle + k < to; k++) {
      f->ends[order[from + k]].partner = order[middle + k];
      f->ends[order[middle + k]].partner = order[from + k];
    }
  }
  free(order);
  return COPSE_OK;
}

/* ---- blocks ---------------------------------------------------------------------------- */

/* Numbers of a block's own list, turned into what `table` has there. */
static copse_status read_list(struct reader *r, const cJSON *entry, const char *key,
                              const struct ints *table, int n, struct ints *out) {
  const cJSON *ids;
  copse_status status;
  COPSE_TRY(copse_json_get_array(&r->json, entry, key, &ids, r->err));
  COPSE_JSON_EACH (i, ids) {
    int id;
    COPSE_TRY(item_int(r, i, entry, key, 0, n - 1, &id));
    COPSE_TRY(add_int(r, out, table ? table->v[id] : id));
    if (out->n > MAX_LISTED)
      return copse_fail_at(r->err, COPSE_REFUTED, r->json.file, copse_json_line(entry, NULL),
                           "more than %d in %s of a block, which overruns the executor's record",
                           MAX_LISTED, key);
  }
out:
  return status;
}

static copse_status read_block_lists(struct reader *r, const cJSON *tb, int rank,
                                     struct block_lists *out) {
  struct rank_tables *t = &r->tables[rank];
  const cJSON *list;
  enum copse_pj_channel type;
  copse_status status;
  COPSE_TRY(copse_json_get_array(&r->json, tb, "channels", &list, r->err));
  COPSE_JSON_EACH (c, list) {
    COPSE_TRY(get_channel(r, c, "channel_type", &type));
    if (type == COPSE_PJ_NONE) continue;
    bool groups = type == COPSE_PJ_SWITCH;
    const cJSON *declared =
        groups && t->switches ? copse_json_get(t->switches, "rank_groups") : NULL;
    COPSE_TRY(read_list(r, c, "channel_ids", groups ? NULL : &t->ends[type],
                        groups ? cJSON_GetArraySize(declared) : t->ends[type].n,
                        &out->channels[type]));
  }
  if (!copse_json_get(tb, "remote_buffer_refs")) return COPSE_OK;
  COPSE_TRY(copse_json_get_array(&r->json, tb, "remote_buffer_refs", &list, r->err));
  COPSE_JSON_EACH (c, list) {
    COPSE_TRY(get_channel(r, c, "access_channel_type", &type));
    if (type != COPSE_PJ_MEMORY && type != COPSE_PJ_PORT)
      return copse_fail_at(r->err, COPSE_BAD_INPUT, r->json.file, copse_json_line(c, tb),
                           "access_channel_type must be memory or port");
    COPSE_TRY(read_list(r, c, "remote_buffer_ids", NULL, t->remote_rank.n, &out->remotes[type]));
  }
out:
  return status;
}

static void free_lists(struct block_lists *lists) {
  for (int i = 0; i < 3; i++) free(lists->channels[i].v);
  for (int i = 0; i < 2; i++) free(lists->remotes[i].v);
}

/* ---- operations ------------------------------------------------------------------------ */

static copse_status read_switch(struct reader *r, const cJSON *entry, int rank,
                                const struct block_lists *lists, struct copse_pj_place *out) {
  const cJSON *declared = r->tables[rank].switches, *ranks;
  int id, letter, n = 0, *members;
  copse_status status;
  COPSE_TRY(get_int(r, entry, "switch_channel_id", 0, MAX_CHUNKS, &id));
  COPSE_TRY(check_id(r, copse_json_line(entry, NULL), "switch_channel_id", id,
                     lists->channels[COPSE_PJ_SWITCH].n));
  COPSE_TRY(get_letter(r, declared, "buffer_type", &letter));
  const cJSON *group = copse_json_first(copse_json_get(declared, "rank_groups"));
  for (int i = 0; i < lists->channels[COPSE_PJ_SWITCH].v[id]; i++) group = group->next;
  COPSE_TRY(copse_json_get_array(&r->json, group, "ranks", &ranks, r->err));
  members = copse_arena_alloc(&r->file->arena, (size_t)cJSON_GetArraySize(ranks) + 1, sizeof(int));
  if (!members) return copse_fail_nomem(r->err);
  COPSE_JSON_EACH (m, ranks)
    COPSE_TRY(item_int(r, m, group, "a rank of a group", 0, r->file->n_ranks - 1, &members[n++]));
  if (n == 0)
    return copse_fail_at(r->err, COPSE_BAD_INPUT, r->json.file, copse_json_line(group, declared),
                         "a rank group without ranks");
  out->rank = -1;
  out->members = members;
  out->n_members = n;
  out->letter = (enum copse_buffer_letter)letter;
out:
  return status;
}

static copse_status read_place(struct reader *r, const cJSON *entry, int rank,
                               const struct copse_pj_op *op, const struct block_lists *lists,
                               struct copse_pj_place *out) {
  int id, letter = 0;
  copse_status status;
  *out = (struct copse_pj_place){.rank = rank};
  COPSE_TRY(get_int(r, entry, "index", 0, MAX_CHUNKS, &out->index));
  COPSE_TRY(get_int(r, entry, "size", 0, MAX_CHUNKS, &out->size));
  if (copse_json_get(entry, "switch_channel_id")) return read_switch(r, entry, rank, lists, out);
  if (copse_json_get(entry, "buffer_id")) {
    if (op->channel != COPSE_PJ_MEMORY && op->channel != COPSE_PJ_PORT)
      return copse_fail_at(r->err, COPSE_BAD_INPUT, r->json.file, op->line,
                           "an op with a buffer_id needs \"channel_type\" memory or port");
    const struct ints *remotes = &lists->remotes[op->channel];
    COPSE_TRY(get_int(r, entry, "buffer_id", 0, MAX_CHUNKS, &id));
    COPSE_TRY(check_id(r, op->line, "buffer_id", id, remotes->n));
    out->rank = r->tables[rank].remote_rank.v[remotes->v[id]];
    letter = r->tables[rank].remote_letter.v[remotes->v[id]];
  } else if (copse_json_get(entry, "type")) {
    COPSE_TRY(get_letter(r, entry, "type", &letter));
  }
  out->letter = (enum copse_buffer_letter)letter;
out:
  return status;
}

static copse_status read_places(struct reader *r, const cJSON *object, const char *key, int rank,
                                const struct copse_pj_op *op, const struct block_lists *lists,
                                struct copse_pj_place *out, int *n) {
  const cJSON *list;
  copse_status status = COPSE_OK;
  if (!copse_json_get(object, key)) return COPSE_OK;
  COPSE_TRY(copse_json_get_array(&r->json, object, key, &list, r->err));
  COPSE_JSON_EACH (e, list) {
    if (*n == COPSE_PJ_MAX_PLACES)
      return copse_fail_at(r->err, COPSE_REFUTED, r->json.file, op->line,
                           "more than %d entries in %s, for which an op has no room",
                           COPSE_PJ_MAX_PLACES, key);
    COPSE_TRY(read_place(r, e, rank, op, lists, &out[*n]));
    ++*n;
  }
out:
  return status;
}

static copse_status read_ids(struct reader *r, const cJSON *object, const char *key, int max,
                             const struct ints *list, int base, int n, struct copse_pj_op *op) {
  const cJSON *ids;
  copse_status status = COPSE_OK;
  if (!copse_json_get(object, key)) return COPSE_OK;
  COPSE_TRY(copse_json_get_array(&r->json, object, key, &ids, r->err));
  COPSE_JSON_EACH (i, ids) {
    int id;
    if (op->n_ends == max)
      return copse_fail_at(r->err, COPSE_REFUTED, r->json.file, op->line,
                           "more than %d in %s, for which an op has no room", max, key);
    COPSE_TRY(item_int(r, i, object, key, 0, MAX_CHUNKS, &id));
    COPSE_TRY(check_id(r, op->line, key, id, n));
    op->ends[op->n_ends++] = list ? list->v[id] : base + id;
  }
out:
  return status;
}

static copse_status read_op(struct reader *r, const cJSON *object, int rank,
                            const struct block_lists *lists, struct copse_pj_op *op) {
  const char *name;
  const cJSON *group = copse_json_get(object, "tbg_info");
  copse_status status;
  *op = (struct copse_pj_op){.channel = COPSE_PJ_NONE, .parts = 1};
  op->line = copse_json_line(object, NULL);
  COPSE_TRY(copse_json_get_string(&r->json, object, "name", &name, r->err));
  for (size_t i = 0; i < sizeof types / sizeof *types && !op->type; i++)
    if (strcmp(types[i].name, name) == 0) op->type = &types[i];
  if (!op->type || strcmp(name, "gstorepkt") == 0)
    return copse_fail_at(r->err, COPSE_BAD_INPUT, r->json.file, op->line,
                         "operation \"%.30s\" is not one that MSCCL++ has", name);
  if (copse_json_get(object, "channel_type"))
    COPSE_TRY(get_channel(r, object, "channel_type", &op->channel));
  bool semaphores = op->type->kind == COPSE_PJ_ACQUIRE || op->type->kind == COPSE_PJ_RELEASE;
  if (!semaphores && (op->channel == COPSE_PJ_MEMORY || op->channel == COPSE_PJ_PORT))
    COPSE_TRY(read_ids(r, object, "channel_ids", 8, &lists->channels[op->channel], 0,
                       lists->channels[op->channel].n, op));
  if (semaphores)
    COPSE_TRY(read_ids(r, object, "semaphore_ids", 16, NULL, r->tables[rank].first_semaphore,
                       r->tables[rank].n_semaphores, op));
  if (op->type->kind == COPSE_PJ_BARRIER) {
    COPSE_TRY(get_int(r, object, "barrier_id", 0, MAX_BARRIERS - 1, &op->barrier));
    COPSE_TRY(get_int(r, object, "num_threadblocks", 1, 1024, &op->barrier_blocks));
  }
  if (group) {
    COPSE_TRY(get_int(r, group, "tbg_size", 1, 64, &op->parts));
    COPSE_TRY(get_int(r, group, "tb_id", 0, op->parts - 1, &op->part));
  }
  COPSE_TRY(read_places(r, object, "src_buff", rank, op, lists, op->src, &op->n_src));
  COPSE_TRY(read_places(r, object, "dst_buff", rank, op, lists, op->dst, &op->n_dst));
out:
  return status;
}

static copse_status read_ops(struct reader *r, const cJSON *list, int rank,
                             const struct block_lists *lists, struct copse_pj_block *block,
                             bool inner) {
  copse_status status = COPSE_OK;
  COPSE_JSON_EACH (o, list) {
    if (block->n_ops == MAX_OPS)
      return copse_fail_at(r->err, COPSE_REFUTED, r->json.file, copse_json_line(o, list),
                           "gpu %d tb %d has more than %d operations, which the executor refuses",
                           block->rank, block->id, MAX_OPS);
    r->op = block->n_ops;
    struct copse_pj_op *op = &block->ops[block->n_ops++];
    const cJSON *context, *ops;
    COPSE_TRY(read_op(r, o, rank, lists, op));
    if (op->type->kind != COPSE_PJ_PIPELINE) continue;
    if (inner)
      return copse_fail_at(r->err, COPSE_REFUTED, r->json.file, op->line,
                           "gpu %d tb %d op %d: a pipeline in a pipeline, which the executor drops",
                           block->rank, block->id, block->n_ops - 1);
    context = copse_json_get(o, "iter_context");
    if (!copse_json_is_object(context))
      return copse_fail_at(r->err, COPSE_BAD_INPUT, r->json.file, op->line,
                           "a pipeline needs \"iter_context\"");
    COPSE_TRY(copse_json_get_int(&r->json, context, "unit_size", 1, INT32_MAX, &op->unit, r->err));
    COPSE_TRY(get_int(r, context, "num_chunks", 1, MAX_CHUNKS, &op->unit_chunks));
    COPSE_TRY(copse_json_get_array(&r->json, o, "ops", &ops, r->err));
    int first = block->n_ops;
    COPSE_TRY(read_ops(r, ops, rank, lists, block, true));
    op->n_inner = block->n_ops - first;
  }
out:
  return status;
}

static copse_status read_block(struct reader *r, const cJSON *tb, int rank, int position) {
  struct copse_pj_file *f = r->file;
  struct block_lists lists = {0};
  struct copse_pj_block *block;
  const cJSON *ops;
  int id;
  copse_status status;
  COPSE_TRY(get_int(r, tb, "id", 0, 1023, &id));
  if (id != position)
    return copse_fail_at(r->err, COPSE_REFUTED, r->json.file, copse_json_line(tb, NULL),
                         "gpu %d: the threadblock at place %d has id %d", rank, position, id);
  COPSE_TRY(copse_grow(&f->blocks, &r->blocks_capacity, (size_t)f->n_blocks + 1, sizeof *f->blocks,
                       r->err));
  block = &f->blocks[f->n_blocks++];
  *block = (struct copse_pj_block){.rank = rank, .id = id};
  r->rank = rank;
  r->tb = id;
  COPSE_TRY(read_block_lists(r, tb, rank, &lists));
  COPSE_TRY(copse_json_get_array(&r->json, tb, "ops", &ops, r->err));
  block->ops = copse_arena_alloc(&f->arena, MAX_OPS + 1, sizeof *block->ops);
  if (!block->ops) {
    status = copse_fail_nomem(r->err);
    goto out;
  }
  COPSE_TRY(read_ops(r, ops, rank, &lists, block, false));
  f->n_ops += block->n_ops;
out:
  free_lists(&lists);
  return status;
}

/* ---- the plan -------------------------------------------------------------------------- */

static copse_status read_collective(struct reader *r) {
  static const char *const names[] = {"allreduce", "allgather", "reducescatter", "alltoall"};
  static const copse_collective collectives[] = {COPSE_ALLREDUCE, COPSE_ALLGATHER,
                                                 COPSE_REDUCE_SCATTER, COPSE_ALLTOALL};
  const char *text;
  copse_status status = copse_json_get_string(&r->json, r->json.root, "collective", &text, r->err);
  if (status != COPSE_OK) return status;
  for (int i = 0; i < 4; i++)
    if (strcmp(text, names[i]) == 0) {
      r->file->collective = collectives[i];
      return COPSE_OK;
    }
  return copse_fail_at(r->err, COPSE_UNSUPPORTED, r->json.file, 0,
                       "collective \"%.30s\": what it must do is known for allreduce, allgather, "
                       "reducescatter and alltoall",
                       text);
}

/* Chunks are of one size, on every rank and in every buffer. */
static copse_status read_sizes(struct reader *r, const cJSON *gpu, int rank) {
  struct copse_pj_file *f = r->file;
  int in, out, want_in, want_out;
  copse_status status;
  COPSE_TRY(get_int(r, gpu, "input_chunks", 1, MAX_CHUNKS, &in));
  COPSE_TRY(get_int(r, gpu, "output_chunks", 1, MAX_CHUNKS, &out));
  COPSE_TRY(get_int(r, gpu, "scratch_chunks", 0, MAX_CHUNKS, &f->scratch[rank]));
  if (rank == 0) f->chunks = f->collective == COPSE_ALLGATHER ? out : in;
  bool blocks = f->collective != COPSE_ALLREDUCE;
  f->block = blocks ? f->chunks / f->n_ranks : f->chunks;
  want_in = f->collective == COPSE_ALLGATHER ? f->block : f->chunks;
  want_out = f->collective == COPSE_REDUCE_SCATTER ? f->block : f->chunks;
  if (in != want_in || out != want_out || (blocks && f->chunks % f->n_ranks != 0))
    return copse_fail_at(r->err, COPSE_REFUTED, r->json.file, copse_json_line(gpu, NULL),
                         "gpu %d has %d input and %d output chunks; an %s of %d ranks has chunks "
                         "of one size everywhere",
                         rank, in, out, copse_collective_name(f->collective), f->n_ranks);
out:
  return status;
}

static copse_status read_gpus(struct reader *r, const cJSON *gpus) {
  struct copse_pj_file *f = r->file;
  const cJSON *tbs;
  int rank = 0, id;
  copse_status status = COPSE_OK;
  COPSE_JSON_EACH (g, gpus) {
    COPSE_TRY(get_int(r, g, "id", 0, MAX_RANKS, &id));
    if (id != rank)
      return copse_fail_at(r->err, COPSE_REFUTED, r->json.file, copse_json_line(g, gpus),
                           "the gpu at place %d has id %d", rank, id);
    COPSE_TRY(read_sizes(r, g, rank));
    COPSE_TRY(read_channels(r, g, rank));
    COPSE_TRY(read_remotes(r, g, rank));
    COPSE_TRY(read_semaphores(r, g, rank));
    rank++;
  }
  COPSE_TRY(pair_ends(r));
  rank = 0;
  COPSE_JSON_EACH (g, gpus) {
    int position = 0;
    COPSE_TRY(copse_json_get_array(&r->json, g, "threadblocks", &tbs, r->err));
    f->first_block[rank] = f->n_blocks;
    COPSE_JSON_EACH (tb, tbs) COPSE_TRY(read_block(r, tb, rank, position++));
    if (position == 0)
      return copse_fail_at(r->err, COPSE_REFUTED, r->json.file, copse_json_line(g, gpus),
                           "gpu %d has no threadblocks, with which a launch fails", rank);
    f->first_block[++rank] = f->n_blocks;
  }
out:
  return status;
}

static copse_status read_plan(struct reader *r) {
  struct copse_pj_file *f = r->file;
  const cJSON *root = r->json.root, *gpus;
  const char *name, *protocol;
  copse_status status;
  if (!copse_json_is_object(root) || !copse_json_get(root, "gpus"))
    return copse_fail_at(r->err, COPSE_BAD_INPUT, r->json.file, 0,
                         "no MSCCL++ plan: it has no \"gpus\"");
  COPSE_TRY(copse_json_get_string(&r->json, root, "name", &name, r->err));
  snprintf(f->name, sizeof f->name, "%s", name);
  COPSE_TRY(read_collective(r));
  COPSE_TRY(copse_json_get_string(&r->json, root, "protocol", &protocol, r->err));
  f->low_latency = strcmp(protocol, "LL") == 0;
  if (!copse_json_get(root, "inplace"))
    return copse_fail_at(r->err, COPSE_BAD_INPUT, r->json.file, 0, "no \"inplace\"");
  COPSE_TRY(copse_json_get_bool_or(&r->json, root, "inplace", false, &f->in_place, r->err));
  COPSE_TRY(copse_json_get_bool_or(&r->json, root, "use_double_scratch_buffer", false,
                                   &f->double_scratch, r->err));
  COPSE_TRY(copse_json_get_array(&r->json, root, "gpus", &gpus, r->err));
  f->n_ranks = cJSON_GetArraySize(gpus);
  if (f->n_ranks < 1 || f->n_ranks > MAX_RANKS)
    return copse_fail_at(r->err, COPSE_BAD_INPUT, r->json.file, 0, "\"gpus\" must have 1 to %d",
                         MAX_RANKS);
  COPSE_TRY(copse_calloc((size_t)f->n_ranks, sizeof *r->tables, &r->tables, r->err));
  f->scratch = copse_arena_alloc(&f->arena, (size_t)f->n_ranks, sizeof(int));
  f->first_block = copse_arena_alloc(&f->arena, (size_t)f->n_ranks + 1, sizeof(int));
  if (!f->scratch || !f->first_block) return copse_fail_nomem(r->err);
  COPSE_TRY(read_gpus(r, gpus));
out:
  return status;
}

copse_status copse_pj_parse(const char *label, const char *data, size_t size,
                            struct copse_pj_file *out, struct copse_err *err) {
  struct reader r = {.file = out, .err = err};
  copse_status status;
  *out = (struct copse_pj_file){.label = label};
  COPSE_TRY(copse_json_parse(label, data, size, &r.json, err));
  COPSE_TRY(read_plan(&r));
out:
  for (int g = 0; r.tables && g < out->n_ranks; g++) {
    for (int i = 0; i < 2; i++) free(r.tables[g].ends[i].v);
    free(r.tables[g].remote_rank.v);
    free(r.tables[g].remote_letter.v);
  }
  free(r.tables);
  copse_json_free(&r.json);
  if (status != COPSE_OK) copse_pj_free(out);
  return status;
}

void copse_pj_free(struct copse_pj_file *file) {
  free(file->blocks);
  free(file->ends);
  free(file->semaphores);
  copse_arena_free(&file->arena);
  *file = (struct copse_pj_file){0};
}
