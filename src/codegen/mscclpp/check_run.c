#include "codegen/mscclpp/check_run.h"

#include <stdlib.h>

#include "base/rational.h"
#include "codegen/mscclpp/check_launch.h"

#define MAX_SLICES 64

/* ---- one block ------------------------------------------------------------------------- */

static int rounds_of(const struct copse_pj_launch *r, const struct copse_pj_op *op) {
  int64_t n = (op->unit_chunks * r->chunk_bytes + op->unit - 1) / op->unit;
  return n > 0 ? (int)n : 1;
}

/* The op at which the block stands; a barrier's other blocks may be moved as well. */
static copse_status do_op(struct copse_pj_launch *r, int block, const struct copse_pj_op *op,
                          bool *done) {
  struct copse_pj_state *s = &r->states[block];
  *done = true;
  switch (op->type->kind) {
    case COPSE_PJ_NOP: return copse_pj_meet(r, block);
    case COPSE_PJ_SYNC: return copse_pj_try_sync(r, block, op, done);
    case COPSE_PJ_FLUSH: return copse_pj_flush(r, block, op);
    case COPSE_PJ_BARRIER: return copse_pj_try_barrier(r, block, op, done);
    case COPSE_PJ_ACQUIRE: return copse_pj_try_acquire(r, block, op, done);
    case COPSE_PJ_RELEASE: return copse_pj_release(r, block, op);
    case COPSE_PJ_PIPELINE:
      s->loop = s->op;
      s->round = 0;
      s->rounds = rounds_of(r, op);
      return COPSE_OK;
    default: return copse_pj_do_data(r, block, op, done);
  }
}

static copse_status advance(struct copse_pj_launch *r, int block, bool *progress) {
  const struct copse_pj_block *b = &r->f->blocks[block];
  struct copse_pj_state *s = &r->states[block];
  copse_status status = COPSE_OK;
  while (s->op < b->n_ops || s->loop >= 0) {
    if (s->loop >= 0 && s->op == s->loop + b->ops[s->loop].n_inner + 1) {
      bool again = ++s->round < s->rounds;
      if (again) s->op = s->loop + 1;
      if (!again) s->loop = -1;
      continue;
    }
    bool done;
    COPSE_TRY(do_op(r, block, &b->ops[s->op], &done));
    if (!done) break;
    s->op++;
    *progress = true;
    ++*r->actions;
  }
out:
  return status;
}

/* ---- all together ---------------------------------------------------------------------- */

bool copse_pj_has_pipeline(const struct copse_pj_file *f) {
  for (int b = 0; b < f->n_blocks; b++)
    for (int o = 0; o < f->blocks[b].n_ops; o++)
      if (f->blocks[b].ops[o].type->kind == COPSE_PJ_PIPELINE) return true;
  return false;
}

/* The smallest chunk of which some pipeline's unit is a whole; 0 without pipelines. */
static int64_t unit_bytes(const struct copse_pj_file *f) {
  int64_t least = 0;
  for (int b = 0; b < f->n_blocks; b++)
    for (int o = 0; o < f->blocks[b].n_ops; o++) {
      const struct copse_pj_op *op = &f->blocks[b].ops[o];
      if (op->type->kind != COPSE_PJ_PIPELINE) continue;
      int64_t bytes = (op->unit + op->unit_chunks - 1) / op->unit_chunks;
      if (least == 0 || bytes < least) least = bytes;
    }
  return least;
}

/* Chunks so large that the shortest pipeline runs `rounds` times, sliced where any op cuts. */
static copse_status choose_slices(struct copse_pj_launch *r, int rounds) {
  const struct copse_pj_file *f = r->f;
  int64_t slices = 1;
  copse_status status = COPSE_OK;
  r->chunk_bytes = unit_bytes(f) * rounds;
  for (int b = 0; b < f->n_blocks; b++) {
    int end = -1, loops = 1;
    for (int o = 0; o < f->blocks[b].n_ops; o++) {
      const struct copse_pj_op *op = &f->blocks[b].ops[o];
      if (op->type->kind == COPSE_PJ_PIPELINE) {
        end = o + op->n_inner;
        loops = rounds_of(r, op);
      }
      int cut = o <= end ? loops : op->parts, size = op->n_src > 0 ? op->src[0].size : 0;
      if (cut <= 1 || size == 0) continue;
      COPSE_TRY(copse_lcm(slices, cut / copse_gcd(cut, size), &slices, r->err));
      if (slices > MAX_SLICES)
        return copse_fail_at(r->err, COPSE_UNSUPPORTED, f->label, op->line,
                             "chunks are cut in more ways than this checker follows");
    }
  }
  r->slices = (int)slices;
out:
  return status;
}

static copse_status make_cells(struct copse_pj_launch *r) {
  const struct copse_pj_file *f = r->f;
  r->first_entry = f->n_blocks;
  r->first_proxy = r->first_entry + f->n_ranks;
  r->first_end = r->first_proxy + f->n_ends;
  r->first_packet = r->first_end + f->n_ranks;
  struct copse_cells_of of = {
      .n_ranks = f->n_ranks,
      .n_threads = r->first_packet + f->n_blocks * COPSE_PJ_MAX_OPS * COPSE_PJ_PACKET_THREADS,
      .n_groups = f->n_blocks,
      .slices = r->slices,
      .collective = f->collective,
      .chunks = f->chunks,
      .block = f->block,
      .in_place = f->in_place,
      .scratch = f->scratch,
      .label = f->label,
      .name = copse_pj_name_action,
      .ctx = r};
  copse_status status = copse_cells_new(&of, &r->cells, r->err);
  if (status == COPSE_OK) r->threads = copse_cells_threads(r->cells);
  return status;
}

/* Every block knows that its own rank has entered. */
static copse_status enter(struct copse_pj_launch *r) {
  copse_status status = COPSE_OK;
  for (int g = 0; g < r->f->n_ranks; g++) {
    struct copse_history *h;
    copse_threads_act(r->threads, r->first_entry + g);
    COPSE_TRY(copse_history_take(r->threads, r->first_entry + g, &h, r->err));
    for (int b = r->f->first_block[g]; b < r->f->first_block[g + 1] && status == COPSE_OK; b++)
      status = copse_history_learn(r->threads, b, h, r->err);
    copse_history_drop(h);
    if (status != COPSE_OK) return status;
  }
out:
  return status;
}

/* A rank's end comes after all that its blocks did and learned. */
static copse_status leave(struct copse_pj_launch *r) {
  copse_status status = COPSE_OK;
  for (int b = 0; b < r->f->n_blocks; b++) {
    COPSE_TRY(copse_pj_meet(r, b));
    COPSE_TRY(copse_pj_tell(r, b, r->first_end + r->f->blocks[b].rank));
  }
  COPSE_TRY(copse_cells_check_left(r->cells, r->first_end, r->first_proxy, r->err));
out:
  return status;
}

/* What is left over would be taken by the next launch for its own. */
static copse_status check_balance(const struct copse_pj_launch *r) {
  for (int e = 0; e < r->f->n_ends; e++)
    if (r->ends[e].in.first < r->ends[e].in.n) {
      int from = r->ends[r->f->ends[e].partner].signaller;
      return copse_fail_at(r->err, COPSE_REFUTED, r->f->label, 0,
                           "gpu %d tb %d signals gpu %d %zu times more than that waits: the next "
                           "launch starts too early",
                           r->f->ends[e].peer, r->f->blocks[from].id, r->f->ends[e].rank,
                           r->ends[e].in.n - r->ends[e].in.first);
    }
  for (int s = 0; s < r->f->n_semaphores; s++)
    if (r->semaphores[s].value != r->f->semaphores[s])
      return copse_fail_at(r->err, COPSE_REFUTED, r->f->label, 0,
                           "a semaphore ends at %lld and starts at %d: the next launch differs",
                           (long long)r->semaphores[s].value, r->f->semaphores[s]);
  return COPSE_OK;
}

static copse_status make_states(struct copse_pj_launch *r) {
  const struct copse_pj_file *f = r->f;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)f->n_blocks, sizeof *r->states, &r->states, r->err));
  COPSE_TRY(copse_calloc((size_t)f->n_ends, sizeof *r->ends, &r->ends, r->err));
  COPSE_TRY(copse_calloc((size_t)f->n_semaphores, sizeof *r->semaphores, &r->semaphores, r->err));
  COPSE_TRY(copse_calloc((size_t)f->n_ranks, sizeof *r->packets, &r->packets, r->err));
  for (int b = 0; b < f->n_blocks; b++) r->states[b].loop = -1;
  for (int e = 0; e < f->n_ends; e++) r->ends[e].waiter = r->ends[e].signaller = -1;
  for (int s = 0; s < f->n_semaphores; s++) {
    r->semaphores[s].value = f->semaphores[s];
    r->semaphores[s].acquirer = -1;
  }
out:
  return status;
}

static void free_list(struct copse_pj_histories *list) {
  copse_pj_drop_all(list);
  free(list->v);
}

static void free_run(struct copse_pj_launch *r) {
  for (int b = 0; r->states && b < r->f->n_blocks; b++) {
    free(r->states[b].op_of);
    free_list(&r->states[b].learned);
  }
  for (int e = 0; r->ends && e < r->f->n_ends; e++) {
    free_list(&r->ends[e].in);
    free(r->ends[e].op_of);
  }
  for (int s = 0; r->semaphores && s < r->f->n_semaphores; s++)
    free_list(&r->semaphores[s].released);
  for (int g = 0; r->packets && g < r->f->n_ranks; g++) {
    for (int i = 0; r->packets[g] && i < r->f->scratch[g] * r->slices; i++)
      copse_history_drop(r->packets[g][i].history);
    free(r->packets[g]);
  }
  free(r->states);
  free(r->ends);
  free(r->semaphores);
  free(r->packets);
  copse_cells_free(r->cells);
}

/* One launch. `before`: reads that the one before may have left going on, `after`: its own. */
static copse_status launch(const struct copse_pj_file *file, int rounds, uint64_t *actions,
                           const struct copse_late_reads *before, struct copse_late_reads **after,
                           struct copse_err *err) {
  struct copse_pj_launch r = {.f = file, .actions = actions, .err = err};
  bool progress = true;
  copse_status status;
  COPSE_TRY(make_states(&r));
  COPSE_TRY(choose_slices(&r, rounds));
  COPSE_TRY(make_cells(&r));
  copse_cells_guard(r.cells, before, r.first_entry);
  COPSE_TRY(enter(&r));
  while (progress) {
    progress = false;
    for (int b = 0; b < file->n_blocks; b++) COPSE_TRY(advance(&r, b, &progress));
  }
  for (int b = 0; b < file->n_blocks; b++)
    if (r.states[b].op < file->blocks[b].n_ops) {
      status = copse_pj_refute(&r, b, "waits forever: a deadlock");
      goto out;
    }
  COPSE_TRY(leave(&r));
  COPSE_TRY(copse_cells_check_result(r.cells, err));
  COPSE_TRY(check_balance(&r));
  if (after) status = copse_late_reads_take(r.cells, r.first_proxy, r.first_end, after, err);
out:
  free_run(&r);
  return status;
}

copse_status copse_pj_run(const struct copse_pj_file *file, int rounds, uint64_t *actions,
                          struct copse_err *err) {
  struct copse_late_reads *late = NULL;
  copse_status status = launch(file, rounds, actions, NULL, &late, err);
  if (status == COPSE_OK && late) {
    uint64_t again = 0;
    status = launch(file, rounds, &again, late, NULL, err);
  }
  copse_late_reads_free(late);
  return status;
}
