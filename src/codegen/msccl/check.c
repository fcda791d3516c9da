/*
 * The proof of an MSCCL file. It runs the file's operations (file.c) once on names: a cell is
 * a chunk (check/cells.c).
 *
 * Why one execution decides. Blocks are sequential, every connection has one sender and one
 * receiver, and a wait depends on one block. So whether something can go on never depends on the
 * interleaving, and one greedy run decides on deadlock (G. Kahn 1974).
 *
 * Room. A step moves its chunks in groups of as many as fit a slot of the connection; a connection
 * has room for 2 groups (Simple) or 8. How many chunks a group has follows from the largest message
 * served and the smaller slot of the executors that can run the file. Only data order memory, never
 * room. One loop is enough: by then all queues are empty, and other loops touch other bytes.
 *
 * Mutants that are no defects. The tests change every step of what is written and run what the
 * proof accepts in a second model (random order, on numbers). Some changes must be accepted: a copy
 * done twice; two sends, two `nop`s or two parts of a sum exchanged; a wait for a later step of the
 * same block; `hasdep` taken from a step when a later one of its block is published; the scratch
 * offset of an `rcs`, which passes on what came in; a source in scratch exchanged for the place it
 * was copied from.
 */
#include "codegen/msccl/check.h"

#include <stdio.h>
#include <string.h>

#include "codegen/msccl/file.h"

enum { MAX_ROOM = 8 };

/* A connection: groups of chunks on their way. */
struct queue {
  struct item {
    struct copse_history *history; /* what the sender knew */
    struct copse_value *values;    /* [group] */
  } items[MAX_ROOM];
  int first, n;
};

/* One operation of a thread block. */
struct progress {
  uint32_t started_at;             /* time before its first action */
  struct copse_history *published; /* what waiters take over, kept for those to come */
  int waiters;                     /* still to come */
};

struct state {
  int op;               /* the next one */
  int moved;            /* chunks of the operation that have moved */
  bool started;         /* its waits are over */
  struct progress *ops; /* [n_ops] */
};

struct run {
  const struct copse_mx_file *f;
  struct copse_cells *cells;
  struct copse_threads *threads; /* the cells' */
  struct state *states;
  struct queue *queues;
  int room, group;
  struct copse_arena arena;
  struct copse_err *err;
};

/* ---- places and names ----------------------------------------------------------------- */

static long name_action(const void *ctx, struct copse_action action, char text[64]) {
  const struct run *r = ctx;
  const struct copse_mx_tb *tb = &r->f->tbs[action.thread];
  int op = 0;
  while (op + 1 < tb->n_ops && op < r->states[action.thread].op &&
         r->states[action.thread].ops[op + 1].started_at < action.time)
    op++;
  snprintf(text, 64, "gpu %d tb %d step %d", tb->gpu, tb->id, tb->ops[op].first);
  return tb->ops[op].step->line;
}

/* Returns how many chunks of a step go in one slot, for the largest messages that the file is
 * for. */
static int group_of(const struct copse_mx_file *f) {
  static const int64_t slots_rccl[] = {2097152, 16384, 50176};
  static const int64_t slots_nccl[] = {2097152, 32768, 576000};
  int64_t slot = (f->on_rccl ? slots_rccl : slots_nccl)[f->protocol];
  if (f->max_bytes == 0) return 1;
  int64_t chunk = (f->max_bytes - 1) / f->chunks + 1, group = slot / (chunk > 0 ? chunk : 1);
  return group < 1 ? 1 : group > 71 ? 71 : (int)group;
}

/* ---- one step ------------------------------------------------------------------------- */

static struct copse_cell_at cell_at(const struct copse_mx_tb *tb, struct copse_mx_place at,
                                    int chunk) {
  return (struct copse_cell_at){tb->gpu, at.letter, at.offset + chunk};
}

/* Moves chunks [from, to) of a step with connections. */
static copse_status move(struct run *r, int t, const struct copse_mx_step *s, int from, int to) {
  const struct copse_mx_tb *tb = &r->f->tbs[t];
  const struct copse_mx_type *type = &copse_mx_types[s->op];
  struct copse_action action = copse_threads_act(r->threads, t);
  struct item *in = NULL, *out = NULL;
  if (type->receives) {
    struct queue *q = &r->queues[tb->in];
    in = &q->items[q->first];
    q->first = (q->first + 1) % r->room;
    q->n--;
    COPSE_DO(copse_history_learn(r->threads, t, in->history, r->err));
    copse_history_drop(in->history);
  }
  if (type->sends) {
    struct queue *q = &r->queues[tb->out];
    out = &q->items[(q->first + q->n++) % r->room];
  }
  for (int j = from; j < to; j++) {
    struct copse_value v = {COPSE_SET_UNDEFINED, 0, {0, 0}}, own;
    if (in) v = in->values[j - from];
    if (type->reads_src) {
      COPSE_DO(copse_cells_read(r->cells, action, cell_at(tb, s->src, j), &own, r->err));
      if (type->adds)
        COPSE_DO(copse_cells_add(r->cells, action, &v, own, r->err));
      else
        v = own;
    }
    if (type->writes_dst)
      COPSE_DO(copse_cells_write(r->cells, action, cell_at(tb, s->dst, j), v, r->err));
    if (out) out->values[j - from] = v;
  }
  return out ? copse_history_take(r->threads, t, &out->history, r->err) : COPSE_OK;
}

/* Does a local step: cpy, or `re` steps that run as one. */
static copse_status compute(struct run *r, int t, const struct copse_mx_run_op *op) {
  const struct copse_mx_tb *tb = &r->f->tbs[t];
  struct copse_action action = copse_threads_act(r->threads, t);
  for (int j = 0; j < op->step->count; j++) {
    struct copse_cell_at dst = cell_at(tb, op->step->dst, j);
    struct copse_value v = {COPSE_SET_UNDEFINED, 0, {0, 0}}, own;
    bool adds = op->step->op == COPSE_MX_RE;
    if (adds) COPSE_DO(copse_cells_read(r->cells, action, dst, &v, r->err));
    for (int i = 0; i < op->n_steps; i++) {
      if (op->step[i].op == COPSE_MX_NOP) continue;
      COPSE_DO(copse_cells_read(r->cells, action, cell_at(tb, op->step[i].src, j), &own, r->err));
      if (adds)
        COPSE_DO(copse_cells_add(r->cells, action, &v, own, r->err));
      else
        v = own;
    }
    /* a chunk copied onto itself, as in-place calls have it, is only read */
    if (!adds && copse_cells_same(r->cells, dst, cell_at(tb, op->step->src, j))) continue;
    COPSE_DO(copse_cells_write(r->cells, action, dst, v, r->err));
  }
  return COPSE_OK;
}

/* ---- one thread block ----------------------------------------------------------------- */

static bool waits_over(const struct run *r, const struct copse_mx_run_op *op) {
  for (int w = 0; w < op->n_waits; w++)
    if (r->states[op->waits[w].tb].op <= op->waits[w].op) return false;
  return true;
}

static copse_status start(struct run *r, int t, const struct copse_mx_run_op *op) {
  struct state *s = &r->states[t];
  for (int w = 0; w < op->n_waits; w++) {
    const struct copse_mx_wait *wait = &op->waits[w];
    struct progress *other = &r->states[wait->tb].ops[wait->op];
    COPSE_DO(copse_history_learn(r->threads, t, other->published, r->err));
    if (--other->waiters == 0) copse_history_drop(other->published);
  }
  s->started = true;
  s->ops[s->op].started_at = copse_threads_time(r->threads, t);
  return COPSE_OK;
}

static copse_status finish(struct run *r, int t, const struct copse_mx_run_op *op) {
  struct state *s = &r->states[t];
  if (op->waiters > 0)
    COPSE_DO(copse_history_take(r->threads, t, &s->ops[s->op].published, r->err));
  s->op++;
  s->moved = 0;
  s->started = false;
  return COPSE_OK;
}

/* Whether the connections let the op's next group through. */
static bool can_move(const struct run *r, int t, const struct copse_mx_run_op *op) {
  const struct copse_mx_tb *tb = &r->f->tbs[t];
  const struct copse_mx_type *type = &copse_mx_types[op->step->op];
  return (!type->receives || r->queues[tb->in].n > 0) &&
         (!type->sends || r->queues[tb->out].n < r->room);
}

/* Runs as far as the block gets; *progress if that is anywhere. */
static copse_status advance(struct run *r, int t, bool *progress, uint64_t *actions) {
  const struct copse_mx_tb *tb = &r->f->tbs[t];
  struct state *s = &r->states[t];
  while (s->op < tb->n_ops) {
    const struct copse_mx_run_op *op = &tb->ops[s->op];
    const struct copse_mx_type *type = &copse_mx_types[op->step->op];
    if (!s->started && !waits_over(r, op)) break;
    if (!s->started) COPSE_DO(start(r, t, op));
    if (type->sends || type->receives) {
      while (s->moved < op->step->count && can_move(r, t, op)) {
        int left = op->step->count - s->moved, n = left < r->group ? left : r->group;
        COPSE_DO(move(r, t, op->step, s->moved, s->moved + n));
        s->moved += n;
        *progress = true;
      }
      if (s->moved < op->step->count) break;
    } else {
      COPSE_DO(compute(r, t, op));
    }
    ++*actions;
    *progress = true;
    COPSE_DO(finish(r, t, op));
  }
  return COPSE_OK;
}

/* ---- deadlock ------------------------------------------------------------------------- */

/* Returns what a stuck block waits for: the block that would have to move, and in words. */
static int blocker(const struct run *r, int t, char *text, size_t size) {
  const struct copse_mx_tb *tb = &r->f->tbs[t], *other;
  const struct state *s = &r->states[t];
  const struct copse_mx_run_op *op = &tb->ops[s->op];
  for (int w = 0; w < op->n_waits && !s->started; w++) {
    if (r->states[op->waits[w].tb].op > op->waits[w].op) continue;
    other = &r->f->tbs[op->waits[w].tb];
    snprintf(text, size, "gpu %d tb %d step %d waits for step %d of tb %d", tb->gpu, tb->id,
             op->first, other->ops[op->waits[w].op].first, other->id);
    return op->waits[w].tb;
  }
  bool receives = copse_mx_types[op->step->op].receives && r->queues[tb->in].n == 0;
  int next = receives ? r->f->connections[tb->in].sender : r->f->connections[tb->out].receiver;
  other = &r->f->tbs[next];
  snprintf(text, size,
           receives ? "gpu %d tb %d step %d waits for data from gpu %d tb %d"
                    : "gpu %d tb %d step %d waits for room to send to gpu %d tb %d",
           tb->gpu, tb->id, op->first, other->gpu, other->id);
  return next;
}

/* Refutes a deadlock: every stuck block waits for a stuck one, so there is a ring, which is what to
 * say. */
static copse_status refute_deadlock(const struct run *r) {
  char first[100], second[100];
  int t = 0, length = 1, start;
  while (r->states[t].op == r->f->tbs[t].n_ops) t++;
  for (int i = 0; i < r->f->n_tbs; i++) t = blocker(r, t, first, sizeof first);
  start = t;
  for (int u = blocker(r, t, first, sizeof first); u != start; length++)
    u = blocker(r, u, second, sizeof second);
  t = blocker(r, start, first, sizeof first);
  blocker(r, t, second, sizeof second);
  const struct copse_mx_tb *tb = &r->f->tbs[start];
  char hint[160] = "";
  if (strstr(first, "for room") || strstr(second, "for room"))
    snprintf(hint, sizeof hint,
             "; a connection has room for %d times %d chunks of the largest message: a smaller "
             "\"maxBytes\", or sends and receives in blocks of their own",
             r->room, r->group);
  return copse_fail_at(r->err, COPSE_REFUTED, r->f->label, tb->ops[r->states[start].op].step->line,
                       "a deadlock: %s, %s, and so on in a ring of %d waits%s", first, second,
                       length, hint);
}

/* ---- all together --------------------------------------------------------------------- */

typedef copse_status check_op(const struct run *r, const struct copse_mx_tb *tb,
                              const struct copse_mx_run_op *op);

/* Checks that the caller's send buffer is kept: it is not the program's to change, unless it is the
 * output as well. */
static copse_status check_input_kept(const struct run *r, const struct copse_mx_tb *tb,
                                     const struct copse_mx_run_op *op) {
  const struct copse_mx_step *s = op->step;
  const struct copse_mx_type *type = &copse_mx_types[s->op];
  if (!type->writes_dst || s->dst.letter != COPSE_LETTER_I || s->count == 0) return COPSE_OK;
  return copse_mx_refute(r->f, tb, op->first, r->err,
                         "writes the caller's input i[%d], and the file serves calls out of place",
                         s->dst.offset);
}

/* Checks that ranges don't overlap in part: all threads of a block copy at once, which has no
 * defined result then. */
static copse_status check_overlap(const struct run *r, const struct copse_mx_tb *tb,
                                  const struct copse_mx_run_op *op) {
  const struct copse_mx_step *s = op->step;
  const struct copse_mx_type *type = &copse_mx_types[s->op];
  for (int d = 1; d < s->count && type->reads_src && type->writes_dst; d++)
    if (copse_cells_same(r->cells, cell_at(tb, s->src, 0), cell_at(tb, s->dst, d)) ||
        copse_cells_same(r->cells, cell_at(tb, s->src, d), cell_at(tb, s->dst, 0)))
      return copse_fail_at(r->err, COPSE_REFUTED, r->f->label, s->line,
                           "gpu %d tb %d step %d (%s): source and destination overlap in part",
                           tb->gpu, tb->id, op->first, type->name);
  return COPSE_OK;
}

static copse_status check_all(const struct run *r, check_op *check) {
  for (int t = 0; t < r->f->n_tbs; t++)
    for (int o = 0; o < r->f->tbs[t].n_ops; o++)
      COPSE_DO(check(r, &r->f->tbs[t], &r->f->tbs[t].ops[o]));
  return COPSE_OK;
}

static copse_status make_states(struct run *r) {
  const struct copse_mx_file *f = r->f;
  struct copse_arena *arena = &r->arena;
  size_t n_queues = (size_t)f->n_connections, group = (size_t)r->group;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)f->n_tbs, r->states, r->err));
  COPSE_DO(COPSE_ARRAY(arena, n_queues, r->queues, r->err));
  for (size_t i = 0; i < n_queues * (size_t)r->room; i++) {
    struct item *item = &r->queues[i / (size_t)r->room].items[i % (size_t)r->room];
    COPSE_DO(COPSE_ARRAY(arena, group, item->values, r->err));
  }
  for (int t = 0; t < f->n_tbs; t++) {
    struct state *s = &r->states[t];
    COPSE_DO(COPSE_ARRAY(arena, (size_t)f->tbs[t].n_ops, s->ops, r->err));
    for (int o = 0; o < f->tbs[t].n_ops; o++) s->ops[o].waiters = f->tbs[t].ops[o].waiters;
  }
  return COPSE_OK;
}

static copse_status make_cells(struct run *r, bool in_place) {
  const struct copse_mx_file *f = r->f;
  int *scratch;
  COPSE_DO(COPSE_ARRAY(&r->arena, (size_t)f->n_ranks, scratch, r->err));
  for (int g = 0; g < f->n_ranks; g++) scratch[g] = f->gpus[g].declared[COPSE_LETTER_S];
  struct copse_cells_of of = {.n_ranks = f->n_ranks,
                              .n_threads = r->f->n_tbs,
                              .collective = f->collective,
                              .block = f->block,
                              .in_place = in_place,
                              .scratch = scratch,
                              .label = f->label,
                              .name = name_action,
                              .ctx = r};
  return copse_cells_new(&r->arena, &of, &r->cells, &r->threads, r->err);
}

static void end_run(struct run *r) {
  copse_cells_free(r->cells);
  copse_arena_free(&r->arena);
}

/* Runs once, in place or not; `actions` grows by what was followed. */
static copse_status run_once(const struct copse_mx_file *f, bool in_place, uint64_t *actions,
                             struct copse_err *err) {
  COPSE_AT_END(end_run)
  struct run r = {.f = f,
                  .room = f->protocol == COPSE_MX_SIMPLE ? 2 : MAX_ROOM,
                  .group = group_of(f),
                  .err = err};
  bool progress = true;
  COPSE_DO(make_states(&r));
  COPSE_DO(make_cells(&r, in_place));
  if (!in_place) COPSE_DO(check_all(&r, check_input_kept));
  COPSE_DO(check_all(&r, check_overlap));
  while (progress) {
    progress = false;
    for (int t = 0; t < f->n_tbs; t++) COPSE_DO(advance(&r, t, &progress, actions));
  }
  for (int t = 0; t < f->n_tbs; t++)
    if (r.states[t].op < f->tbs[t].n_ops) return refute_deadlock(&r);
  return copse_cells_check_result(r.cells, err);
}

static void end_file(struct copse_mx_file *file) { copse_arena_free(&file->arena); }

copse_status copse_check_msccl(const char *label, const char *data, size_t size,
                               struct copse_check_msccl_report *report, struct copse_err *err) {
  COPSE_AT_END(end_file) struct copse_mx_file file;
  COPSE_DO(copse_mx_parse(label, data, size, &file, err));
  *report = (struct copse_check_msccl_report){.collective = file.collective,
                                              .n_ranks = file.n_ranks,
                                              .n_channels = file.n_channels,
                                              .chunks = file.chunks,
                                              .in_place = file.in_place,
                                              .out_of_place = file.out_of_place,
                                              .min_bytes = file.min_bytes,
                                              .max_bytes = file.max_bytes,
                                              .missing = file.missing};
  snprintf(report->name, sizeof report->name, "%s", file.name);
  for (int g = 0; g < file.n_ranks; g++)
    for (int t = 0; t < file.gpus[g].n_tbs; t++) report->n_steps += file.gpus[g].tbs[t].n_steps;
  COPSE_DO(copse_mx_fold(&file, err));
  report->n_tbs = file.n_tbs;
  report->on_rccl = file.on_rccl;
  if (file.in_place) COPSE_DO(run_once(&file, true, &report->actions, err));
  return file.out_of_place ? run_once(&file, false, &report->actions, err) : COPSE_OK;
}
