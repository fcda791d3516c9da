#include "codegen/msccl/program.h"

#include <stdlib.h>

#include "base/memory.h"

copse_status copse_msccl_program_start(struct copse_msccl_program *p, int n_ranks, int max_blocks,
                                       struct copse_err *err) {
  size_t n = (size_t)n_ranks;
  copse_status status;
  *p = (struct copse_msccl_program){
      .n_ranks = n_ranks, .max_blocks = max_blocks, .crowded_rank = -1, .err = err};
  COPSE_TRY(copse_calloc(n, sizeof *p->ranks, &p->ranks, err));
  COPSE_TRY(copse_calloc(n * n, COPSE_MSCCL_MAX_CHANNELS * sizeof *p->load, &p->load, err));
out:
  return status;
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
  if (best < 0) return -1;
  *load_of(p, src, dst, best) += count;
  return best;
}

/* ---- blocks --------------------------------------------------------------------------- */

static copse_status add_block(struct copse_msccl_program *p, int rank, int send, int recv,
                              int channel, int *block) {
  struct rank_blocks *r = &p->ranks[rank];
  copse_status status;
  if (r->n >= 2 * p->max_blocks) {
    p->crowded_rank = rank;
    return COPSE_UNSUPPORTED;
  }
  COPSE_TRY(
      copse_grow(&p->blocks, &p->capacity, (size_t)p->n_blocks + 1, sizeof *p->blocks, p->err));
  COPSE_TRY(copse_grow(&r->ids, &r->capacity, (size_t)r->n + 1, sizeof *r->ids, p->err));
  p->blocks[p->n_blocks] = (struct copse_msccl_block){
      .rank = rank, .send = send, .recv = recv, .channel = channel, .id = r->n};
  r->ids[r->n++] = p->n_blocks;
  *block = p->n_blocks++;
out:
  return status;
}

/* The rank's block with this peer on the channel, or -1. */
static int owner(const struct copse_msccl_program *p, int rank, int peer, int channel, bool send) {
  const struct rank_blocks *r = &p->ranks[rank];
  for (int i = 0; i < r->n; i++) {
    const struct copse_msccl_block *b = &p->blocks[r->ids[i]];
    if (b->channel == channel && (send ? b->send : b->recv) == peer) return r->ids[i];
  }
  return -1;
}

/* The rank's block without peers; it names channel 0, as it must name one. */
static copse_status local_block(struct copse_msccl_program *p, int rank, int *block) {
  const struct rank_blocks *r = &p->ranks[rank];
  for (int i = 0; i < r->n; i++) {
    *block = r->ids[i];
    if (p->blocks[*block].send < 0 && p->blocks[*block].recv < 0) return COPSE_OK;
  }
  return add_block(p, rank, -1, -1, 0, block);
}

copse_status copse_msccl_block(struct copse_msccl_program *p, int rank, int send, int recv,
                               int channel, int *block) {
  const struct rank_blocks *r = &p->ranks[rank];
  bool sends = send >= 0;
  int peer = sends ? send : recv;
  if (peer < 0) return local_block(p, rank, block);
  *block = owner(p, rank, peer, channel, sends);
  if (*block < 0 && p->sharing != COPSE_MSCCL_SHARE_NONE) {
    for (int i = 0; i < r->n && *block < 0; i++) {
      struct copse_msccl_block *b = &p->blocks[r->ids[i]];
      if (b->channel == channel && (sends ? b->send : b->recv) < 0) *block = r->ids[i];
    }
    if (*block >= 0) *(sends ? &p->blocks[*block].send : &p->blocks[*block].recv) = peer;
  }
  return *block >= 0 ? COPSE_OK : add_block(p, rank, send, recv, channel, block);
}

copse_status copse_msccl_block_of_both(struct copse_msccl_program *p, int rank, int send, int recv,
                                       int channel, int *block) {
  int s = owner(p, rank, send, channel, true), r = owner(p, rank, recv, channel, false);
  *block = -1;
  if (s < 0 && r < 0) return add_block(p, rank, send, recv, channel, block);
  if (s == r) {
    *block = s;
  } else if (s < 0 && p->blocks[r].send < 0) {
    p->blocks[r].send = send;
    *block = r;
  } else if (r < 0 && p->blocks[s].recv < 0) {
    p->blocks[s].recv = recv;
    *block = s;
  }
  return COPSE_OK;
}

/* ---- steps ---------------------------------------------------------------------------- */

static copse_status append(struct copse_msccl_program *p, struct copse_msccl_block *b,
                           const struct copse_msccl_step *step) {
  copse_status status =
      copse_grow(&b->steps, &b->capacity, (size_t)b->n_steps + 1, sizeof *b->steps, p->err);
  if (status == COPSE_OK) b->steps[b->n_steps++] = *step;
  return status;
}

/* Whether an earlier step of the block has waited for `ref` or what comes after it. */
static bool waited(const struct copse_msccl_block *b, struct copse_msccl_ref ref) {
  for (int s = 0; s < b->n_steps; s++)
    if (b->steps[s].after.block == ref.block && b->steps[s].after.step >= ref.step) return true;
  return false;
}

copse_status copse_msccl_add(struct copse_msccl_program *p, int block,
                             const struct copse_msccl_step *step,
                             const struct copse_msccl_ref *after, int n_after,
                             struct copse_msccl_ref *out) {
  struct copse_msccl_block *b = &p->blocks[block];
  struct copse_msccl_step real = *step;
  copse_status status = COPSE_OK;
  real.after = COPSE_MSCCL_NO_REF;
  real.awaited = false;
  for (int i = 0; i < n_after; i++) {
    if (after[i].block < 0 || after[i].block == block || waited(b, after[i])) continue;
    if (real.after.block >= 0)
      COPSE_TRY(append(
          p, b,
          &(struct copse_msccl_step){
              .op = COPSE_MSCCL_NOP, .src = {'i', -1}, .dst = {'o', -1}, .after = real.after}));
    real.after = after[i];
    p->blocks[after[i].block].steps[after[i].step].awaited = true;
  }
  COPSE_TRY(append(p, b, &real));
  *out = (struct copse_msccl_ref){block, b->n_steps - 1};
out:
  return status;
}

struct copse_msccl_place copse_msccl_scratch(struct copse_msccl_program *p, int rank, int count) {
  int at = p->ranks[rank].scratch;
  /* past the end of what fits: the limits are checked when the program is whole */
  if (at <= COPSE_MSCCL_MAX_CHUNKS) p->ranks[rank].scratch += count;
  return (struct copse_msccl_place){'s', at};
}

copse_status copse_msccl_finish(struct copse_msccl_program *p) {
  int number[COPSE_MSCCL_MAX_CHANNELS] = {0}, n = 0, block;
  copse_status status = COPSE_OK;
  for (int r = 0; r < p->n_ranks; r++)
    if (p->ranks[r].n == 0) COPSE_TRY(local_block(p, r, &block));
  for (int b = 0; b < p->n_blocks; b++) number[p->blocks[b].channel] = 1;
  for (int c = 0; c < COPSE_MSCCL_MAX_CHANNELS; c++)
    if (number[c]) number[c] = n++;
  for (int b = 0; b < p->n_blocks; b++) p->blocks[b].channel = number[p->blocks[b].channel];
  p->n_channels = n;
out:
  return status;
}
