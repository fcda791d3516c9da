/* Reads MSCCL++ plans as the executor loads them (microsoft/mscclpp,
 * src/executor/execution_plan.cc; arXiv 2504.09014): numbers become the things that they name. */
#include "codegen/mscclpp/file.h"

#include <stdio.h>
#include <string.h>

#include "base/graph.h"
#include "base/json.h"

enum { MAX_RANKS = 4096, MAX_CHUNKS = 1 << 20, MAX_LISTED = 16, MAX_BARRIERS = 16 };

static const struct copse_pj_type types[] = {
    {.name = "nop", .kind = COPSE_PJ_NOP},
    {.name = "signal", .kind = COPSE_PJ_SYNC},
    {.name = "wait", .kind = COPSE_PJ_SYNC, .waits = true},
    {.name = "rlxsignal", .kind = COPSE_PJ_SYNC, .relaxed = true},
    {.name = "rlxwait", .kind = COPSE_PJ_SYNC, .waits = true, .relaxed = true},
    {.name = "flush", .kind = COPSE_PJ_FLUSH},
    {.name = "barrier", .kind = COPSE_PJ_BARRIER},
    {.name = "sem_acquire", .kind = COPSE_PJ_ACQUIRE},
    {.name = "sem_release", .kind = COPSE_PJ_RELEASE},
    {.name = "pipeline", .kind = COPSE_PJ_PIPELINE},
    {.name = "copy", .kind = COPSE_PJ_MOVE},
    {.name = "put", .kind = COPSE_PJ_MOVE},
    {.name = "pws", .kind = COPSE_PJ_MOVE, .signals = true},
    {.name = "pwsf", .kind = COPSE_PJ_MOVE, .signals = true},
    {.name = "get", .kind = COPSE_PJ_MOVE, .gets = true},
    {.name = "re", .kind = COPSE_PJ_SUM},
    {.name = "res", .kind = COPSE_PJ_SUM},
    {.name = "rre", .kind = COPSE_PJ_SUM, .gets = true},
    {.name = "rres", .kind = COPSE_PJ_SUM, .gets = true},
    {.name = "cpkt", .kind = COPSE_PJ_MOVE, .pkt_dst = true},
    {.name = "upkt", .kind = COPSE_PJ_MOVE, .pkt_src = true},
    {.name = "ppkt", .kind = COPSE_PJ_MOVE, .pkt_dst = true},
    {.name = "rppkt", .kind = COPSE_PJ_SUM, .pkt_src = true, .pkt_dst = true},
    {.name = "repkt", .kind = COPSE_PJ_SUM, .pkt_src = true},
    {.name = "respkt", .kind = COPSE_PJ_SUM, .pkt_src = true, .pkt_dst = true},
    {.name = "recpkt", .kind = COPSE_PJ_SUM, .pkt_src = true, .pkt_dst = true},
    {.name = "recspkt", .kind = COPSE_PJ_SUM, .pkt_src = true, .pkt_dst = true},
    {.name = "gstore", .kind = COPSE_PJ_MULTIMEM},
    {.name = "glres", .kind = COPSE_PJ_MULTIMEM},
};

/* The channels and buffers that a rank declares, and those that one of its blocks lists. */
struct rank_tables {
  struct copse_pj_ints ends[2]; /* flat channels by type: index into the file's ends */
  struct copse_pj_ints remote_rank, remote_letter;
  const cJSON *switches; /* the first switch channel declaration's array, or NULL */
  int first_semaphore, n_semaphores;
};

struct block_lists {
  struct copse_pj_ints channels[3]; /* of memory and port: ends; of switches: flat numbers */
  struct copse_pj_ints remotes[2];  /* numbers of the rank's remote buffers */
};

/* The first defect is kept in `status`; after it all reads give harmless values. */
struct reader {
  struct copse_json json;
  struct copse_pj_file *file;
  struct rank_tables *tables; /* [n_ranks] */
  int rank, tb, op;           /* being read */
  struct copse_arena scratch;
  copse_status status;
  struct copse_err *err;
};

/* Keeps a defect, if it is the first. */
#define FAIL(r, kind, line, ...) \
  COPSE_KEEP(r, copse_fail_at((r)->err, (kind), (r)->json.file, (line), __VA_ARGS__))

static void add_int(struct reader *r, struct copse_pj_ints *list, int v) {
  COPSE_KEEP(r, copse_pj_ints_add(&r->scratch, list, v, r->err));
}

/* Gets a member of an object: a number in [min, max], min after a defect; below a text, "" after
 * one; an array, NULL after one. */
static int get_int(struct reader *r, const cJSON *object, const char *key, int64_t min,
                   int64_t max) {
  int64_t v = min;
  COPSE_KEEP(r, copse_json_get_int(&r->json, object, key, min, max, &v, r->err));
  return r->status == COPSE_OK ? (int)v : (int)min;
}

static int item_int(struct reader *r, const cJSON *item, const cJSON *parent, const char *what,
                    int64_t max) {
  int64_t v = 0;
  COPSE_KEEP(r, copse_json_int(&r->json, item, parent, what, 0, max, &v, r->err));
  return r->status == COPSE_OK ? (int)v : 0;
}

static const char *get_string(struct reader *r, const cJSON *object, const char *key) {
  const char *text = "";
  COPSE_KEEP(r, copse_json_get_string(&r->json, object, key, &text, r->err));
  return r->status == COPSE_OK ? text : "";
}

static const cJSON *get_array(struct reader *r, const cJSON *object, const char *key) {
  const cJSON *array = NULL;
  COPSE_KEEP(r, copse_json_get_array(&r->json, object, key, &array, r->err));
  return r->status == COPSE_OK ? array : NULL;
}

/* Gets an array that may be missing. */
static const cJSON *get_array_or(struct reader *r, const cJSON *object, const char *key) {
  return copse_json_get(object, key) ? get_array(r, object, key) : NULL;
}

/* Gets the index of a member's value among n names; the last after a defect. */
static int get_word(struct reader *r, const cJSON *object, const char *key,
                    const char *const *names, int n, const char *all) {
  const char *text = get_string(r, object, key);
  for (int i = 0; i < n; i++)
    if (strcmp(text, names[i]) == 0) return i;
  FAIL(r, COPSE_BAD_INPUT, copse_json_line(object, NULL), "\"%s\": \"%.20s\" must be %s", key, text,
       all);
  return n - 1;
}

static enum copse_pj_channel get_channel(struct reader *r, const cJSON *object, const char *key) {
  static const char *const names[] = {"memory", "port", "switch", "none"};
  return (enum copse_pj_channel)get_word(r, object, key, names, 4, "memory, port, switch or none");
}

static int get_letter(struct reader *r, const cJSON *object, const char *key) {
  static const char *const names[] = {"i", "o", "s"};
  return get_word(r, object, key, names, COPSE_N_LETTERS, "i, o or s");
}

/* Checks a number that names one of n things of the op's block. Whether it does. */
static bool check_id(struct reader *r, long line, const char *key, int id, int n) {
  if (id >= n)
    FAIL(r, COPSE_REFUTED, line, "gpu %d tb %d op %d: %s %d, of which its block has %d", r->rank,
         r->tb, r->op, key, id, n);
  return r->status == COPSE_OK;
}

/* ---- channels and remote buffers ------------------------------------------------------- */

static void add_end(struct reader *r, int rank, int peer, enum copse_pj_channel type) {
  struct copse_pj_file *f = r->file;
  add_int(r, &r->tables[rank].ends[type], f->n_ends);
  f->ends[f->n_ends++] = (struct copse_pj_end){rank, peer, -1, type};
}

static void read_channels(struct reader *r, const cJSON *gpu, int rank) {
  const cJSON *channels = get_array(r, gpu, "channels");
  COPSE_JSON_EACH (c, channels) {
    enum copse_pj_channel type = get_channel(r, c, "channel_type");
    if (type == COPSE_PJ_NONE) continue;
    if (type == COPSE_PJ_SWITCH) {
      if (r->tables[rank].switches)
        FAIL(r, COPSE_UNSUPPORTED, copse_json_line(c, channels),
             "gpu %d has several switch declarations; this checker reads one", rank);
      r->tables[rank].switches = c;
      continue;
    }
    const cJSON *peers = get_array(r, c, "connected_to");
    COPSE_JSON_EACH (p, peers)
      add_end(r, rank, item_int(r, p, c, "a peer in connected_to", r->file->n_ranks - 1), type);
  }
}

static void read_remotes(struct reader *r, const cJSON *gpu, int rank) {
  const cJSON *remotes = get_array(r, gpu, "remote_buffers");
  COPSE_JSON_EACH (b, remotes) {
    add_int(r, &r->tables[rank].remote_rank, get_int(r, b, "rank", 0, r->file->n_ranks - 1));
    add_int(r, &r->tables[rank].remote_letter, get_letter(r, b, "type"));
  }
}

static void read_semaphores(struct reader *r, const cJSON *gpu, int rank) {
  struct copse_pj_file *f = r->file;
  r->tables[rank].first_semaphore = f->n_semaphores;
  const cJSON *semaphores = get_array_or(r, gpu, "semaphores");
  COPSE_JSON_EACH (s, semaphores)
    f->semaphores[f->n_semaphores++] = get_int(r, s, "init_value", 0, 1 << 20);
  r->tables[rank].n_semaphores = f->n_semaphores - r->tables[rank].first_semaphore;
}

/* Pairs the k-th channel of a type from A to B with the k-th from B to A. */
static void pair_ends(struct reader *r) {
  struct copse_pj_file *f = r->file;
  COPSE_AT_END(copse_index_map_free) struct copse_index_map alone = {0};
  for (int i = 0; i < f->n_ends; i++) {
    struct copse_pj_end *e = &f->ends[i];
    int type = (int)e->type, other;
    size_t cursor = 0;
    if (e->rank == e->peer) continue;
    do other = copse_index_map_next(&alone, copse_key_pair(e->peer, 2 * e->rank + type), &cursor);
    while (other >= 0 && f->ends[other].partner >= 0);
    e->partner = other;
    if (other >= 0)
      f->ends[other].partner = i;
    else
      COPSE_KEEP(
          r, copse_index_map_add(&alone, copse_key_pair(e->rank, 2 * e->peer + type), i, r->err));
  }
}

/* ---- blocks ---------------------------------------------------------------------------- */

/* Reads numbers of a block's own list, turned into what `table` has there. */
static void read_list(struct reader *r, const cJSON *entry, const char *key,
                      const struct copse_pj_ints *table, int n, struct copse_pj_ints *out) {
  const cJSON *ids = get_array(r, entry, key);
  COPSE_JSON_EACH (i, ids) {
    int id = item_int(r, i, entry, key, n - 1);
    if (r->status != COPSE_OK) return;
    add_int(r, out, table ? table->v[id] : id);
    if (out->n > MAX_LISTED)
      FAIL(r, COPSE_REFUTED, copse_json_line(entry, NULL),
           "more than %d in %s of a block, which overruns the executor's record", MAX_LISTED, key);
  }
}

static void read_block_lists(struct reader *r, const cJSON *tb, struct block_lists *out) {
  struct rank_tables *t = &r->tables[r->rank];
  const cJSON *channels = get_array(r, tb, "channels");
  COPSE_JSON_EACH (c, channels) {
    enum copse_pj_channel type = get_channel(r, c, "channel_type");
    if (type == COPSE_PJ_NONE) continue;
    bool groups = type == COPSE_PJ_SWITCH;
    const cJSON *declared =
        groups && t->switches ? copse_json_get(t->switches, "rank_groups") : NULL;
    read_list(r, c, "channel_ids", groups ? NULL : &t->ends[type],
              groups ? cJSON_GetArraySize(declared) : t->ends[type].n, &out->channels[type]);
  }
  const cJSON *remotes = get_array_or(r, tb, "remote_buffer_refs");
  COPSE_JSON_EACH (c, remotes) {
    enum copse_pj_channel type = get_channel(r, c, "access_channel_type");
    if (type == COPSE_PJ_MEMORY || type == COPSE_PJ_PORT)
      read_list(r, c, "remote_buffer_ids", NULL, t->remote_rank.n, &out->remotes[type]);
    else
      FAIL(r, COPSE_BAD_INPUT, copse_json_line(c, tb),
           "access_channel_type must be memory or port");
  }
}

/* ---- operations ------------------------------------------------------------------------ */

static void read_switch(struct reader *r, const cJSON *entry, const struct block_lists *lists,
                        struct copse_pj_place *out) {
  const cJSON *declared = r->tables[r->rank].switches;
  const struct copse_pj_ints *ids = &lists->channels[COPSE_PJ_SWITCH];
  int id = get_int(r, entry, "switch_channel_id", 0, MAX_CHUNKS), *members = NULL;
  if (!check_id(r, copse_json_line(entry, NULL), "switch_channel_id", id, ids->n)) return;
  out->rank = -1;
  out->letter = (enum copse_buffer_letter)get_letter(r, declared, "buffer_type");
  const cJSON *group = copse_json_first(copse_json_get(declared, "rank_groups"));
  for (int i = 0; i < ids->v[id]; i++) group = group->next;
  const cJSON *ranks = get_array(r, group, "ranks");
  COPSE_KEEP(r, COPSE_ARRAY(&r->file->arena, (size_t)cJSON_GetArraySize(ranks), members, r->err));
  if (r->status != COPSE_OK) return;
  out->members = members;
  COPSE_JSON_EACH (m, ranks)
    members[out->n_members++] = item_int(r, m, group, "a rank of a group", r->file->n_ranks - 1);
  if (out->n_members == 0)
    FAIL(r, COPSE_BAD_INPUT, copse_json_line(group, declared), "a rank group without ranks");
}

static void read_place(struct reader *r, const cJSON *entry, const struct copse_pj_op *op,
                       const struct block_lists *lists, struct copse_pj_place *out) {
  const struct rank_tables *t = &r->tables[r->rank];
  *out = (struct copse_pj_place){.rank = r->rank};
  out->index = get_int(r, entry, "index", 0, MAX_CHUNKS);
  out->size = get_int(r, entry, "size", 0, MAX_CHUNKS);
  if (copse_json_get(entry, "switch_channel_id")) {
    read_switch(r, entry, lists, out);
  } else if (copse_json_get(entry, "buffer_id")) {
    if (op->channel != COPSE_PJ_MEMORY && op->channel != COPSE_PJ_PORT) {
      FAIL(r, COPSE_BAD_INPUT, op->line,
           "an op with a buffer_id needs \"channel_type\" memory or port");
      return;
    }
    const struct copse_pj_ints *remotes = &lists->remotes[op->channel];
    int id = get_int(r, entry, "buffer_id", 0, MAX_CHUNKS);
    if (!check_id(r, op->line, "buffer_id", id, remotes->n)) return;
    out->rank = t->remote_rank.v[remotes->v[id]];
    out->letter = (enum copse_buffer_letter)t->remote_letter.v[remotes->v[id]];
  } else if (copse_json_get(entry, "type")) {
    out->letter = (enum copse_buffer_letter)get_letter(r, entry, "type");
  }
}

static int read_places(struct reader *r, const cJSON *object, const char *key,
                       const struct copse_pj_op *op, const struct block_lists *lists,
                       struct copse_pj_place *out) {
  int n = 0;
  const cJSON *places = get_array_or(r, object, key);
  COPSE_JSON_EACH (e, places) {
    if (n == COPSE_PJ_MAX_PLACES)
      FAIL(r, COPSE_REFUTED, op->line, "more than %d entries in %s, for which an op has no room",
           COPSE_PJ_MAX_PLACES, key);
    if (r->status != COPSE_OK) break;
    read_place(r, e, op, lists, &out[n++]);
  }
  return n;
}

/* Reads up to `max` numbers below n: what `list` has there, or counted from `base` on. */
static void read_ids(struct reader *r, const cJSON *object, const char *key, int max,
                     const struct copse_pj_ints *list, int base, int n, struct copse_pj_op *op) {
  const cJSON *ids = get_array_or(r, object, key);
  COPSE_JSON_EACH (i, ids) {
    if (op->n_ends == max)
      FAIL(r, COPSE_REFUTED, op->line, "more than %d in %s, for which an op has no room", max, key);
    int id = item_int(r, i, object, key, MAX_CHUNKS);
    if (!check_id(r, op->line, key, id, n)) return;
    op->ends[op->n_ends++] = list ? list->v[id] : base + id;
  }
}

static void read_op(struct reader *r, const cJSON *object, const struct block_lists *lists,
                    struct copse_pj_op *op) {
  const struct rank_tables *t = &r->tables[r->rank];
  const cJSON *group = copse_json_get(object, "tbg_info");
  const char *name = get_string(r, object, "name");
  *op = (struct copse_pj_op){.channel = COPSE_PJ_NONE, .parts = 1};
  op->line = copse_json_line(object, NULL);
  for (size_t i = 0; i < sizeof types / sizeof *types && !op->type; i++)
    if (strcmp(types[i].name, name) == 0) op->type = &types[i];
  if (!op->type)
    FAIL(r, COPSE_BAD_INPUT, op->line, "operation \"%.30s\" is not one that MSCCL++ has", name);
  if (r->status != COPSE_OK) return;
  if (copse_json_get(object, "channel_type")) op->channel = get_channel(r, object, "channel_type");
  if (op->type->kind == COPSE_PJ_ACQUIRE || op->type->kind == COPSE_PJ_RELEASE)
    read_ids(r, object, "semaphore_ids", 16, NULL, t->first_semaphore, t->n_semaphores, op);
  else if (op->channel == COPSE_PJ_MEMORY || op->channel == COPSE_PJ_PORT)
    read_ids(r, object, "channel_ids", 8, &lists->channels[op->channel], 0,
             lists->channels[op->channel].n, op);
  if (op->type->kind == COPSE_PJ_BARRIER) {
    op->barrier = get_int(r, object, "barrier_id", 0, MAX_BARRIERS - 1);
    op->barrier_blocks = get_int(r, object, "num_threadblocks", 1, 1024);
  }
  if (group) {
    op->parts = get_int(r, group, "tbg_size", 1, 64);
    op->part = get_int(r, group, "tb_id", 0, op->parts - 1);
  }
  op->n_src = read_places(r, object, "src_buff", op, lists, op->src);
  op->n_dst = read_places(r, object, "dst_buff", op, lists, op->dst);
}

static void read_ops(struct reader *r, const cJSON *list, const struct block_lists *lists,
                     struct copse_pj_block *block, bool inner);

static void read_pipeline(struct reader *r, const cJSON *object, const struct block_lists *lists,
                          struct copse_pj_block *block, struct copse_pj_op *op, bool inner) {
  const cJSON *context = copse_json_get(object, "iter_context");
  int first = block->n_ops;
  if (inner)
    FAIL(r, COPSE_REFUTED, op->line,
         "gpu %d tb %d op %d: a pipeline in a pipeline, which the executor drops", block->rank,
         block->id, first - 1);
  if (!copse_json_is_object(context))
    FAIL(r, COPSE_BAD_INPUT, op->line, "a pipeline needs \"iter_context\"");
  op->unit = get_int(r, context, "unit_size", 1, INT32_MAX);
  op->unit_chunks = get_int(r, context, "num_chunks", 1, MAX_CHUNKS);
  read_ops(r, get_array(r, object, "ops"), lists, block, true);
  op->n_inner = block->n_ops - first;
  int64_t bytes = (op->unit + op->unit_chunks - 1) / op->unit_chunks;
  if (r->file->unit_bytes == 0 || bytes < r->file->unit_bytes) r->file->unit_bytes = bytes;
}

static void read_ops(struct reader *r, const cJSON *list, const struct block_lists *lists,
                     struct copse_pj_block *block, bool inner) {
  COPSE_JSON_EACH (o, list) {
    if (block->n_ops == COPSE_PJ_MAX_OPS)
      FAIL(r, COPSE_REFUTED, copse_json_line(o, list),
           "gpu %d tb %d has more than %d operations, which the executor refuses", block->rank,
           block->id, COPSE_PJ_MAX_OPS);
    if (r->status != COPSE_OK) return;
    r->op = block->n_ops;
    struct copse_pj_op *op = &block->ops[block->n_ops++];
    read_op(r, o, lists, op);
    if (r->status == COPSE_OK && op->type->kind == COPSE_PJ_PIPELINE)
      read_pipeline(r, o, lists, block, op, inner);
  }
}

static void read_block(struct reader *r, const cJSON *tb, int rank, int position) {
  struct copse_pj_file *f = r->file;
  struct block_lists lists = {0};
  int id = get_int(r, tb, "id", 0, 1023);
  if (id != position)
    FAIL(r, COPSE_REFUTED, copse_json_line(tb, NULL),
         "gpu %d: the threadblock at place %d has id %d", rank, position, id);
  struct copse_pj_block *block = &f->blocks[f->n_blocks++];
  *block = (struct copse_pj_block){.rank = rank, .id = id};
  r->rank = rank;
  r->tb = id;
  read_block_lists(r, tb, &lists);
  const cJSON *ops = get_array(r, tb, "ops");
  COPSE_KEEP(r, COPSE_ARRAY(&f->arena, COPSE_PJ_MAX_OPS, block->ops, r->err));
  if (r->status != COPSE_OK) return;
  read_ops(r, ops, &lists, block, false);
  f->n_ops += block->n_ops;
}

/* ---- the plan -------------------------------------------------------------------------- */

static void read_collective(struct reader *r) {
  static const char *const names[] = {"allreduce", "allgather", "reducescatter", "alltoall"};
  static const copse_collective collectives[] = {COPSE_ALLREDUCE, COPSE_ALLGATHER,
                                                 COPSE_REDUCE_SCATTER, COPSE_ALLTOALL};
  const char *text = get_string(r, r->json.root, "collective");
  for (int i = 0; i < 4; i++)
    if (strcmp(text, names[i]) == 0) {
      r->file->collective = collectives[i];
      return;
    }
  FAIL(r, COPSE_UNSUPPORTED, 0,
       "collective \"%.30s\": what it must do is known for allreduce, allgather, reducescatter and "
       "alltoall",
       text);
}

/* Reads sizes: chunks are of one size, on every rank and in every buffer. */
static void read_sizes(struct reader *r, const cJSON *gpu, int rank) {
  struct copse_pj_file *f = r->file;
  int in = get_int(r, gpu, "input_chunks", 1, MAX_CHUNKS);
  int out = get_int(r, gpu, "output_chunks", 1, MAX_CHUNKS);
  f->scratch[rank] = get_int(r, gpu, "scratch_chunks", 0, MAX_CHUNKS);
  if (rank == 0) f->chunks = f->collective == COPSE_ALLGATHER ? out : in;
  bool blocks = f->collective != COPSE_ALLREDUCE;
  f->block = blocks ? f->chunks / f->n_ranks : f->chunks;
  int want_in = f->block * copse_collective_inputs(f->collective, f->n_ranks);
  int want_out = f->block * copse_collective_outputs(f->collective, f->n_ranks);
  if (in != want_in || out != want_out || (blocks && f->chunks % f->n_ranks != 0))
    FAIL(r, COPSE_REFUTED, copse_json_line(gpu, NULL),
         "gpu %d has %d input and %d output chunks; an %s of %d ranks has chunks of one size "
         "everywhere",
         rank, in, out, copse_collective_name(f->collective), f->n_ranks);
}

/* Makes room for what all ranks have. */
static copse_status make_room(struct reader *r, const cJSON *gpus) {
  struct copse_pj_file *f = r->file;
  size_t n = (size_t)f->n_ranks, n_blocks = 0, n_ends = 0, n_semaphores = 0;
  COPSE_JSON_EACH (g, gpus) {
    const cJSON *channels = copse_json_get(g, "channels");
    n_blocks += (size_t)cJSON_GetArraySize(copse_json_get(g, "threadblocks"));
    n_semaphores += (size_t)cJSON_GetArraySize(copse_json_get(g, "semaphores"));
    COPSE_JSON_EACH (c, channels)
      n_ends += (size_t)cJSON_GetArraySize(copse_json_get(c, "connected_to"));
  }
  COPSE_DO(COPSE_ARRAY(&r->scratch, n, r->tables, r->err));
  COPSE_DO(COPSE_ARRAY(&f->arena, n, f->scratch, r->err));
  COPSE_DO(COPSE_ARRAY(&f->arena, n + 1, f->first_block, r->err));
  COPSE_DO(COPSE_ARRAY(&f->arena, n_blocks, f->blocks, r->err));
  COPSE_DO(COPSE_ARRAY(&f->arena, n_ends, f->ends, r->err));
  return COPSE_ARRAY(&f->arena, n_semaphores, f->semaphores, r->err);
}

static void read_gpus(struct reader *r, const cJSON *gpus) {
  struct copse_pj_file *f = r->file;
  int rank = 0;
  COPSE_JSON_EACH (g, gpus) {
    int id = get_int(r, g, "id", 0, MAX_RANKS);
    if (id != rank)
      FAIL(r, COPSE_REFUTED, copse_json_line(g, gpus), "the gpu at place %d has id %d", rank, id);
    read_sizes(r, g, rank);
    read_channels(r, g, rank);
    read_remotes(r, g, rank);
    read_semaphores(r, g, rank);
    rank++;
  }
  pair_ends(r);
  rank = 0;
  COPSE_JSON_EACH (g, gpus) {
    int position = 0;
    f->first_block[rank] = f->n_blocks;
    const cJSON *tbs = get_array(r, g, "threadblocks");
    COPSE_JSON_EACH (tb, tbs) read_block(r, tb, rank, position++);
    if (position == 0)
      FAIL(r, COPSE_REFUTED, copse_json_line(g, gpus),
           "gpu %d has no threadblocks, with which a launch fails", rank);
    f->first_block[++rank] = f->n_blocks;
  }
}

static copse_status read_plan(struct reader *r) {
  struct copse_pj_file *f = r->file;
  const cJSON *root = r->json.root;
  if (!copse_json_is_object(root) || !copse_json_get(root, "gpus"))
    FAIL(r, COPSE_BAD_INPUT, 0, "no MSCCL++ plan: it has no \"gpus\"");
  snprintf(f->name, sizeof f->name, "%s", get_string(r, root, "name"));
  read_collective(r);
  f->low_latency = strcmp(get_string(r, root, "protocol"), "LL") == 0;
  if (!copse_json_get(root, "inplace")) FAIL(r, COPSE_BAD_INPUT, 0, "no \"inplace\"");
  COPSE_DO(r->status);
  COPSE_DO(copse_json_get_bool_or(&r->json, root, "inplace", false, &f->in_place, r->err));
  COPSE_DO(copse_json_get_bool_or(&r->json, root, "use_double_scratch_buffer", false,
                                  &f->double_scratch, r->err));
  const cJSON *gpus = get_array(r, root, "gpus");
  COPSE_DO(r->status);
  f->n_ranks = cJSON_GetArraySize(gpus);
  if (f->n_ranks < 1 || f->n_ranks > MAX_RANKS)
    return copse_fail_at(r->err, COPSE_BAD_INPUT, r->json.file, 0, "\"gpus\" must have 1 to %d",
                         MAX_RANKS);
  COPSE_DO(make_room(r, gpus));
  read_gpus(r, gpus);
  return r->status;
}

static void end_reader(struct reader *r) {
  copse_arena_free(&r->scratch);
  copse_json_free(&r->json);
}

copse_status copse_pj_parse(const char *label, const char *data, size_t size,
                            struct copse_pj_file *out, struct copse_err *err) {
  COPSE_AT_END(end_reader) struct reader r = {.file = out, .err = err};
  *out = (struct copse_pj_file){.label = label};
  COPSE_DO(copse_json_parse(label, data, size, &r.json, err));
  return read_plan(&r);
}
