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
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/msccl/file.h"

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

/* The chunks that the buffer has; the collective decides, the file only for scratch. */
static int size_of(const struct copse_mx_file *f, int gpu, enum copse_buffer_letter letter) {
  if (letter == COPSE_LETTER_S) return f->gpus[gpu].declared[letter];
  return f->block * (letter == COPSE_LETTER_I
                         ? copse_collective_inputs(f->collective, f->n_ranks)
                         : copse_collective_outputs(f->collective, f->n_ranks));
}

/* `rrc` is the one type whose offsets the parsers never look at. */
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

/* The waits of pending nops and of the step itself; tb and step for now, not yet an op. */
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

/* A wait ends with the first published operation whose number is at least the one it names. */
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

static int compare_ends(const void *a, const void *b) {
  const struct end *x = a, *y = b;
  int order = compare_keys(x, y);
  return order ? order : x->tb - y->tb;
}

/* The tb's first op that sends (receives), or n_ops. */
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
  qsort(*ends, (size_t)*n, sizeof **ends, compare_ends);
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

/* A connection is a queue: the k-th send is for the k-th receive. */
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

/* The executors keep at most 32 peers of a channel and direction. */
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

/* All tbs side by side, by gpu. */
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
