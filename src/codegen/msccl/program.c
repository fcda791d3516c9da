/* Thread blocks, channels and steps of an MSCCL program while it grows; program.h says why no
 * program made so can deadlock. */
#include "codegen/msccl/program.h"

#include <stdlib.h>

#include "base/memory.h"

copse_status copse_msccl_program_start(struct copse_msccl_program *p, int n_ranks, int max_blocks,
                                       struct copse_err *err) {
  size_t n = (size_t)n_ranks;
  *p = (struct copse_msccl_program){
      .n_ranks = n_ranks, .max_blocks = max_blocks, .crowded_rank = -1, .err = err};
  COPSE_DO(copse_calloc(n, sizeof *p->ranks, &p->ranks, err));
  return copse_calloc(n * n, COPSE_MSCCL_MAX_CHANNELS * sizeof *p->load, &p->load, err);
}

void copse_msccl_program_free(struct copse_msccl_program *p) {
  for (int b = 0; b < p->n_blocks; b++) free(p->blocks[b].steps);
  for (int r = 0; p->ranks && r < p->n_ranks; r++) free(p->ranks[r].ids);
  free(p->blocks);
  free(p->ranks);
  free(p->load);
  *p = (struct copse_msccl_program){0};
}

/* ---- channels ------------------------------------------------------------------------- */

static int *load_of(struct copse_msccl_program *p, int src, int dst, int channel) {
  size_t pair = (size_t)src * (size_t)p->n_ranks + (size_t)dst;
  return &p->load[pair * COPSE_MSCCL_MAX_CHANNELS + (size_t)channel];
}

/* Blocks of the rank that send (or receive) on the channel. */
static int connections(const struct copse_msccl_program *p, int rank, int channel, bool send) {
  const struct rank_blocks *r = &p->ranks[rank];
  int n = 0;
  for (int i = 0; i < r->n; i++) {
    const struct copse_msccl_block *b = &p->blocks[r->ids[i]];
    n += b->channel == channel && (send ? b->send : b->recv) >= 0;
  }
  return n;
}

static bool has_room(struct copse_msccl_program *p, int src, int dst, int channel) {
  return *load_of(p, src, dst, channel) > 0 ||
         (connections(p, src, channel, true) < COPSE_MSCCL_MAX_CONNECTIONS &&
          connections(p, dst, channel, false) < COPSE_MSCCL_MAX_CONNECTIONS);
}

int copse_msccl_channel(struct copse_msccl_program *p, int src, int dst, int wish, int count) {
  int best = -1;
  if (p->status != COPSE_OK) return -1;
  for (int c = p->first_channel; c < p->end_channel; c++) {
    int load = *load_of(p, src, dst, c);
    if (p->sharing == COPSE_MSCCL_SHARE_ALL && load > 0) {
      best = c;
      break;
    }
    int least = best < 0 ? 0 : *load_of(p, src, dst, best);
    if ((best < 0 || load < least || (load == least && c == wish)) && has_room(p, src, dst, c))
      best = c;
  }
  if (best >= 0)
    *load_of(p, src, dst, best) += count;
  else
    p->status =
        copse_fail(p->err, COPSE_UNSUPPORTED, "no channel is left from rank %d to %d", src, dst);
  return best;
}

/* ---- blocks --------------------------------------------------------------------------- */

static int add_block(struct copse_msccl_program *p, int rank, int send, int recv, int channel) {
  struct rank_blocks *r = &p->ranks[rank];
  copse_status status;
  if (r->n >= 2 * p->max_blocks) {
    p->crowded_rank = rank;
    p->status = COPSE_UNSUPPORTED;
    return -1;
  }
  COPSE_TRY(
      copse_grow(&p->blocks, &p->capacity, (size_t)p->n_blocks + 1, sizeof *p->blocks, p->err));
  COPSE_TRY(copse_grow(&r->ids, &r->capacity, (size_t)r->n + 1, sizeof *r->ids, p->err));
  p->blocks[p->n_blocks] = (struct copse_msccl_block){
      .rank = rank, .send = send, .recv = recv, .channel = channel, .id = r->n};
  r->ids[r->n++] = p->n_blocks;
  return p->n_blocks++;
out:
  p->status = status;
  return -1;
}

/* The rank's block whose send (or receive) peer on the channel is `peer`, or -1. */
static int owner(const struct copse_msccl_program *p, int rank, int peer, int channel, bool send) {
  const struct rank_blocks *r = &p->ranks[rank];
  for (int i = 0; i < r->n; i++) {
    const struct copse_msccl_block *b = &p->blocks[r->ids[i]];
    if (b->channel == channel && (send ? b->send : b->recv) == peer) return r->ids[i];
  }
  return -1;
}

/* The rank's block without peers; it names channel 0, as it must name one. */
static int local_block(struct copse_msccl_program *p, int rank) {
  const struct rank_blocks *r = &p->ranks[rank];
  for (int i = 0; i < r->n; i++) {
    const struct copse_msccl_block *b = &p->blocks[r->ids[i]];
    if (b->send < 0 && b->recv < 0) return r->ids[i];
  }
  return add_block(p, rank, -1, -1, 0);
}

int copse_msccl_block(struct copse_msccl_program *p, int rank, int send, int recv, int channel) {
  bool sends = send >= 0;
  int peer = sends ? send : recv;
  if (p->status != COPSE_OK) return -1;
  if (peer < 0) return local_block(p, rank);
  int block = owner(p, rank, peer, channel, sends);
  if (block < 0 && p->sharing != COPSE_MSCCL_SHARE_NONE) {
    block = owner(p, rank, -1, channel, sends); /* one that does the other alone so far */
    if (block >= 0) *(sends ? &p->blocks[block].send : &p->blocks[block].recv) = peer;
  }
  return block >= 0 ? block : add_block(p, rank, send, recv, channel);
}

int copse_msccl_block_of_both(struct copse_msccl_program *p, int rank, int send, int recv,
                              int channel) {
  if (p->status != COPSE_OK) return -1;
  int s = owner(p, rank, send, channel, true), r = owner(p, rank, recv, channel, false);
  if (s < 0 && r < 0) return add_block(p, rank, send, recv, channel);
  if (s == r) return s;
  if (s < 0 && p->blocks[r].send < 0) {
    p->blocks[r].send = send;
    return r;
  }
  if (r >= 0 || p->blocks[s].recv >= 0) return -1;
  p->blocks[s].recv = recv;
  return s;
}

/* ---- steps ---------------------------------------------------------------------------- */

static void append(struct copse_msccl_program *p, struct copse_msccl_block *b,
                   const struct copse_msccl_step *step) {
  p->status = copse_grow(&b->steps, &b->capacity, (size_t)b->n_steps + 1, sizeof *b->steps, p->err);
  if (p->status == COPSE_OK) b->steps[b->n_steps++] = *step;
}

/* Whether an earlier step of the block has waited for `ref` or what comes after it. */
static bool waited(const struct copse_msccl_block *b, struct copse_msccl_ref ref) {
  for (int s = 0; s < b->n_steps; s++)
    if (b->steps[s].after.block == ref.block && b->steps[s].after.step >= ref.step) return true;
  return false;
}

void copse_msccl_publish(struct copse_msccl_program *p, struct copse_msccl_ref ref) {
  if (p->status == COPSE_OK) p->blocks[ref.block].steps[ref.step].awaited = true;
}

struct copse_msccl_ref copse_msccl_add(struct copse_msccl_program *p, int block,
                                       const struct copse_msccl_step *step,
                                       const struct copse_msccl_ref *after, int n_after) {
  struct copse_msccl_step real = *step;
  real.after = COPSE_MSCCL_NO_REF;
  real.awaited = false;
  for (int i = 0; i < n_after && p->status == COPSE_OK; i++) {
    struct copse_msccl_block *b = &p->blocks[block];
    if (after[i].block < 0 || after[i].block == block || waited(b, after[i])) continue;
    if (real.after.block >= 0)
      append(p, b,
             &(struct copse_msccl_step){
                 .op = COPSE_MSCCL_NOP, .src = {'i', -1}, .dst = {'o', -1}, .after = real.after});
    real.after = after[i];
    copse_msccl_publish(p, after[i]);
  }
  if (p->status == COPSE_OK) append(p, &p->blocks[block], &real);
  if (p->status != COPSE_OK) return COPSE_MSCCL_NO_REF;
  return (struct copse_msccl_ref){block, p->blocks[block].n_steps - 1};
}

struct copse_msccl_place copse_msccl_scratch(struct copse_msccl_program *p, int rank, int count) {
  int at = p->ranks[rank].scratch;
  /* past the end of what fits: the limits are checked when the program is whole */
  if (at <= COPSE_MSCCL_MAX_CHUNKS) p->ranks[rank].scratch += count;
  return (struct copse_msccl_place){'s', at};
}

copse_status copse_msccl_finish(struct copse_msccl_program *p) {
  int number[COPSE_MSCCL_MAX_CHANNELS] = {0};
  for (int r = 0; r < p->n_ranks && p->status == COPSE_OK; r++)
    if (p->ranks[r].n == 0) local_block(p, r);
  for (int b = 0; b < p->n_blocks; b++) number[p->blocks[b].channel] = 1;
  p->n_channels = 0;
  for (int c = 0; c < COPSE_MSCCL_MAX_CHANNELS; c++)
    if (number[c]) number[c] = p->n_channels++;
  for (int b = 0; b < p->n_blocks; b++) p->blocks[b].channel = number[p->blocks[b].channel];
  return p->status;
}
