/* Blocks, channels and operations of an MSCCL++ plan while it grows, and their JSON. */
#include "codegen/mscclpp/plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

static const char *const channel_types[] = {"memory", "port"};

copse_status copse_pp_start(struct copse_pp_plan *p, int n_ranks, int n_blocks, const int *host,
                            struct copse_err *err) {
  *p = (struct copse_pp_plan){.n_ranks = n_ranks, .n_blocks = n_blocks, .host = host, .err = err};
  COPSE_DO(copse_calloc((size_t)n_ranks * (size_t)n_blocks, sizeof *p->blocks, &p->blocks, err));
  return copse_calloc((size_t)n_ranks, sizeof *p->scratch, &p->scratch, err);
}

void copse_pp_free(struct copse_pp_plan *p) {
  for (int b = 0; p->blocks && b < p->n_ranks * p->n_blocks; b++) {
    free(p->blocks[b].peers);
    free(p->blocks[b].remotes);
    copse_text_free(&p->blocks[b].ops);
  }
  free(p->blocks);
  free(p->scratch);
  *p = (struct copse_pp_plan){0};
}

static struct copse_pp_block *block_of(const struct copse_pp_plan *p, int rank, int block) {
  return &p->blocks[rank * p->n_blocks + block];
}

bool copse_pp_same_host(const struct copse_pp_plan *p, int a, int b) {
  return p->host[a] == p->host[b];
}

struct copse_pp_place copse_pp_scratch(struct copse_pp_plan *p, int rank, int count) {
  struct copse_pp_place at = {rank, 's', p->scratch[rank]};
  p->scratch[rank] += count;
  return at;
}

/* ---- channels and remote buffers ------------------------------------------------------- */

static void add_peer(struct copse_pp_plan *p, int rank, int block, int peer) {
  struct copse_pp_block *b = block_of(p, rank, block);
  for (int i = 0; i < b->n_peers; i++)
    if (b->peers[i] == peer) return;
  COPSE_KEEP(p, copse_grow(&b->peers, &b->peers_capacity, (size_t)b->n_peers + 1, sizeof *b->peers,
                           p->err));
  if (p->status == COPSE_OK) b->peers[b->n_peers++] = peer;
}

void copse_pp_link(struct copse_pp_plan *p, int block, int a, int b) {
  add_peer(p, a, block, b);
  add_peer(p, b, block, a);
}

copse_status copse_pp_status(const struct copse_pp_plan *p) {
  copse_status status = p->status;
  for (int b = 0; b < p->n_ranks * p->n_blocks && status == COPSE_OK; b++)
    status = copse_text_status(&p->blocks[b].ops, p->err);
  return status;
}

/* The number of the peer's channel among the block's of its type. */
static int channel_id(const struct copse_pp_plan *p, int rank, int block, int peer) {
  const struct copse_pp_block *b = block_of(p, rank, block);
  bool near = copse_pp_same_host(p, rank, peer);
  int id = 0;
  for (int i = 0; i < b->n_peers && b->peers[i] != peer; i++)
    id += copse_pp_same_host(p, rank, b->peers[i]) == near;
  return id;
}

/* The number of a peer's buffer among the block's of its channel's type. */
static int remote_id(struct copse_pp_plan *p, int rank, int block, struct copse_pp_place at) {
  struct copse_pp_block *b = block_of(p, rank, block);
  bool near = copse_pp_same_host(p, rank, at.rank);
  int id = 0;
  for (int i = 0; i < b->n_remotes; i++) {
    if (b->remotes[i].peer == at.rank && b->remotes[i].buffer == at.buffer) return id;
    id += copse_pp_same_host(p, rank, b->remotes[i].peer) == near;
  }
  COPSE_KEEP(p, copse_grow(&b->remotes, &b->remotes_capacity, (size_t)b->n_remotes + 1,
                           sizeof *b->remotes, p->err));
  if (p->status == COPSE_OK)
    b->remotes[b->n_remotes++] = (struct copse_pp_remote){at.rank, at.buffer};
  return id;
}

/* ---- operations ------------------------------------------------------------------------ */

/* A pipeline starts with its first op: one without any would be none. */
static void open_loop(struct copse_pp_block *b) {
  copse_text_add(&b->ops,
                 "%s\n        {\"name\": \"pipeline\", \"iter_context\": {\"unit_size\": %" PRId64
                 ", \"num_chunks\": %d}, \"ops\": [",
                 b->listed ? "," : "", b->loop_bytes, b->loop_chunks);
  b->n_ops++;
  b->loop_chunks = 0;
  b->listed = false;
  b->in_loop = true;
}

static struct copse_text *start_op(struct copse_pp_block *b, const char *name) {
  if (b->loop_chunks > 0) open_loop(b);
  copse_text_add(&b->ops, "%s\n        {\"name\": \"%s\"", b->listed ? "," : "", name);
  b->n_ops++;
  b->listed = true;
  b->met = false;
  return &b->ops;
}

void copse_pp_loop(struct copse_pp_plan *p, int rank, int block, int64_t bytes, int chunks) {
  struct copse_pp_block *b = block_of(p, rank, block);
  b->loop_bytes = bytes;
  b->loop_chunks = chunks;
}

void copse_pp_end_loop(struct copse_pp_plan *p, int rank, int block) {
  struct copse_pp_block *b = block_of(p, rank, block);
  if (b->in_loop) copse_text_add(&b->ops, "]}");
  if (b->in_loop) b->listed = true;
  b->in_loop = false;
  b->loop_chunks = 0;
}

void copse_pp_meet(struct copse_pp_plan *p, int rank, int block) {
  struct copse_pp_block *b = block_of(p, rank, block);
  if (b->met || b->n_ops == 0) return;
  copse_text_add(start_op(b, "nop"), "}");
  b->met = true;
}

static void add_ids(const struct copse_pp_plan *p, int rank, int block, const int *peers, int n,
                    struct copse_text *text) {
  copse_text_add(text, ", \"channel_ids\": [");
  for (int i = 0; i < n; i++)
    copse_text_add(text, "%s%d", i > 0 ? ", " : "", channel_id(p, rank, block, peers[i]));
  copse_text_add(text, "]");
}

void copse_pp_sync(struct copse_pp_plan *p, int rank, int block, const char *name, const int *peers,
                   int n_peers) {
  struct copse_pp_block *b = block_of(p, rank, block);
  for (int type = 0; type < 2; type++) {
    int ids[COPSE_PP_MAX_IDS], n = 0;
    for (int i = 0; i < n_peers; i++) {
      if (copse_pp_same_host(p, rank, peers[i]) == (type == 0)) ids[n++] = peers[i];
      if (n == 0 || (n < COPSE_PP_MAX_IDS && i + 1 < n_peers)) continue;
      struct copse_text *text = start_op(b, name);
      copse_text_add(text, ", \"channel_type\": \"%s\"", channel_types[type]);
      add_ids(p, rank, block, ids, n, text);
      copse_text_add(text, "}");
      n = 0;
    }
  }
}

static void add_places(struct copse_pp_plan *p, int rank, int block, const char *key,
                       const struct copse_pp_place *at, int n, int count) {
  struct copse_text *text = &block_of(p, rank, block)->ops;
  copse_text_add(text, ", \"%s\": [", key);
  for (int i = 0; i < n; i++) {
    copse_text_add(text, "%s{", i > 0 ? ", " : "");
    if (at[i].rank == rank)
      copse_text_add(text, "\"type\": \"%c\"", at[i].buffer);
    else
      copse_text_add(text, "\"buffer_id\": %d", remote_id(p, rank, block, at[i]));
    copse_text_add(text, ", \"index\": %d, \"size\": %d}", at[i].index, count);
  }
  copse_text_add(text, "]");
}

void copse_pp_data(struct copse_pp_plan *p, int rank, int block, const char *name,
                   const struct copse_pp_place *src, int n_src, const struct copse_pp_place *dst,
                   int n_dst, int count) {
  struct copse_text *text = start_op(block_of(p, rank, block), name);
  int peers[COPSE_PP_MAX_IDS], n = 0;
  bool near = true;
  for (int i = 0; i < n_dst; i++)
    if (dst[i].rank != rank) {
      near = copse_pp_same_host(p, rank, dst[i].rank);
      peers[n++] = dst[i].rank;
    }
  if (n > 0) copse_text_add(text, ", \"channel_type\": \"%s\"", channel_types[!near]);
  if (n > 0 && !near) add_ids(p, rank, block, peers, n, text);
  if (name[0] == 'r') copse_text_add(text, ", \"reduce_op\": \"sum\"");
  add_places(p, rank, block, "src_buff", src, n_src, count);
  add_places(p, rank, block, "dst_buff", dst, n_dst, count);
  copse_text_add(text, "}");
}

/* ---- text ------------------------------------------------------------------------------ */

/* Peers by type, over all blocks: the rank's channels, numbered in this order. */
static void write_channels(const struct copse_pp_plan *p, int rank, struct copse_text *text) {
  bool any = false;
  copse_text_add(text, "    \"channels\": [");
  for (int type = 0; type < 2; type++) {
    bool first = true;
    for (int b = 0; b < p->n_blocks; b++)
      for (int i = 0; i < block_of(p, rank, b)->n_peers; i++) {
        int peer = block_of(p, rank, b)->peers[i];
        if (copse_pp_same_host(p, rank, peer) != (type == 0)) continue;
        if (first)
          copse_text_add(text, "%s{\"channel_type\": \"%s\", \"connected_to\": [%d",
                         any ? ", " : "", channel_types[type], peer);
        else
          copse_text_add(text, ", %d", peer);
        first = false;
        any = true;
      }
    if (!first) copse_text_add(text, "]}");
  }
  copse_text_add(text, "],\n");
}

static void write_remotes(const struct copse_pp_plan *p, int rank, struct copse_text *text) {
  bool first = true;
  copse_text_add(text, "    \"remote_buffers\": [");
  for (int b = 0; b < p->n_blocks; b++)
    for (int i = 0; i < block_of(p, rank, b)->n_remotes; i++) {
      const struct copse_pp_remote *r = &block_of(p, rank, b)->remotes[i];
      copse_text_add(text, "%s{\"rank\": %d, \"type\": \"%c\", \"access_channel_types\": [\"%s\"]}",
                     first ? "" : ", ", r->peer, r->buffer,
                     channel_types[!copse_pp_same_host(p, rank, r->peer)]);
      first = false;
    }
  copse_text_add(text, "],\n");
}

/* One list of a block, by type: its numbers among the rank's. `base` counts those of earlier
 * blocks: channels by type, remote buffers over both. */
static void write_lists(const struct copse_pp_plan *p, int rank, int block, bool channels,
                        const int base[2], struct copse_text *text) {
  const struct copse_pp_block *b = block_of(p, rank, block);
  int n = channels ? b->n_peers : b->n_remotes;
  bool any = false;
  copse_text_add(text, channels ? "\"channels\": [" : "\"remote_buffer_refs\": [");
  for (int type = 0; type < 2; type++) {
    int id = base[type];
    bool first = true;
    for (int i = 0; i < n; i++) {
      int peer = channels ? b->peers[i] : b->remotes[i].peer;
      bool mine = copse_pp_same_host(p, rank, peer) == (type == 0);
      if (mine && first)
        copse_text_add(text,
                       channels ? "%s{\"channel_type\": \"%s\", \"channel_ids\": [%d"
                                : "%s{\"access_channel_type\": \"%s\", "
                                  "\"remote_buffer_ids\": [%d",
                       any ? ", " : "", channel_types[type], id);
      else if (mine)
        copse_text_add(text, ", %d", id);
      if (mine) any = true, first = false;
      id += mine || !channels;
    }
    if (!first) copse_text_add(text, "]}");
  }
  copse_text_add(text, "]");
}

void copse_pp_write_rank(const struct copse_pp_plan *p, int rank, struct copse_text *text) {
  int channels[2] = {0, 0}, remotes[2] = {0, 0};
  write_channels(p, rank, text);
  write_remotes(p, rank, text);
  copse_text_add(text, "    \"threadblocks\": [");
  for (int b = 0; b < p->n_blocks; b++) {
    const struct copse_pp_block *block = block_of(p, rank, b);
    copse_text_add(text, "%s\n     {\"id\": %d, ", b > 0 ? "," : "", b);
    write_lists(p, rank, b, true, channels, text);
    copse_text_add(text, ", ");
    write_lists(p, rank, b, false, remotes, text);
    copse_text_add(text, ", \"ops\": [");
    if (block->n_ops > 0) copse_text_append(text, block->ops.data, block->ops.size);
    copse_text_add(text, "]}");
    for (int i = 0; i < block->n_peers; i++)
      channels[!copse_pp_same_host(p, rank, block->peers[i])]++;
    remotes[0] += block->n_remotes;
    remotes[1] += block->n_remotes;
  }
  copse_text_add(text, "]");
}
