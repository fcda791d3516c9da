/*
 * MSCCL XML. The executors read it with a scanner of their own: no prolog, no tabs, all
 * attributes on one line, no entities, a comment whose first word has no '='.
 */
#include <inttypes.h>

#include "codegen/msccl/emit.h"

static const char *const op_names[] = {"s", "r", "rcs", "rrs", "rrc", "cpy", "re", "nop"};

static void add_step(struct copse_text *text, const struct copse_msccl_program *p,
                     const struct copse_msccl_step *s, int number) {
  int dep = s->after.block < 0 ? -1 : p->blocks[s->after.block].id;
  copse_text_add(text,
                 "      <step s=\"%d\" type=\"%s\" srcbuf=\"%c\" srcoff=\"%d\" dstbuf=\"%c\" "
                 "dstoff=\"%d\" cnt=\"%d\" depid=\"%d\" deps=\"%d\" hasdep=\"%d\"/>\n",
                 number, op_names[s->op], s->src.buffer, s->src.offset, s->dst.buffer,
                 s->dst.offset, s->count, dep, s->after.step, s->awaited);
}

static void add_rank(struct copse_text *text, const struct copse_msccl_job *job,
                     const struct copse_msccl_program *p, int rank) {
  copse_collective c = job->schedule->collective;
  copse_text_add(text, "  <gpu id=\"%d\" i_chunks=\"%d\" o_chunks=\"%d\" s_chunks=\"%d\">\n", rank,
                 c == COPSE_ALLGATHER ? job->cut.block : job->cut.chunks,
                 c == COPSE_REDUCE_SCATTER ? job->cut.block : job->cut.chunks,
                 p->ranks[rank].scratch);
  for (int i = 0; i < p->ranks[rank].n; i++) {
    const struct copse_msccl_block *b = &p->blocks[p->ranks[rank].ids[i]];
    copse_text_add(text, "    <tb id=\"%d\" send=\"%d\" recv=\"%d\" chan=\"%d\">\n", b->id, b->send,
                   b->recv, b->channel);
    for (int s = 0; s < b->n_steps; s++) add_step(text, p, &b->steps[s], s);
    copse_text_add(text, "    </tb>\n");
  }
  copse_text_add(text, "  </gpu>\n");
}

copse_status copse_msccl_write(const struct copse_msccl_job *job,
                               const struct copse_msccl_program *p, struct copse_text *text,
                               struct copse_err *err) {
  static const char *const protocols[] = {"Simple", "LL", "LL128"};
  const struct copse_msccl_options *o = &job->options;
  const char *coll = copse_collective_name(job->schedule->collective);
  if (job->schedule->collective == COPSE_REDUCE_SCATTER) coll = "reducescatter";
  copse_text_add(text, "<!-- written by copse %s; counts that are multiples of %d are served -->\n",
                 COPSE_VERSION_STRING, job->cut.block);
  copse_text_add(text, "<algo name=\"");
  copse_chunks_add_name(&job->cut, text);
  copse_text_add(text,
                 "_%s\" proto=\"%s\" nchannels=\"%d\" nchunksperloop=\"%d\" ngpus=\"%d\" "
                 "coll=\"%s\" inplace=\"%d\" outofplace=\"%d\" minBytes=\"%" PRId64
                 "\" maxBytes=\"%" PRId64 "\">\n",
                 coll, protocols[o->protocol], p->n_channels, job->cut.chunks, p->n_ranks, coll,
                 o->layout != COPSE_MSCCL_OUT_OF_PLACE, o->layout != COPSE_MSCCL_IN_PLACE,
                 o->min_bytes, o->max_bytes);
  for (int r = 0; r < p->n_ranks; r++) add_rank(text, job, p, r);
  copse_text_add(text, "</algo>\n");
  return copse_text_status(text, err);
}
