/*
 * Lowering to MSCCL: the cut into chunks, the search for numbers of channels that keep every
 * rank within the executors' limits, and what to say where there are none.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/collective.h"
#include "base/memory.h"
#include "codegen/msccl_emit.h"

/* ---- chunks --------------------------------------------------------------------------- */

static copse_status add_span(struct copse_msccl_job *job, const struct copse_msccl_span *span,
                             struct copse_err *err) {
  copse_status status =
      copse_grow(&job->spans, &job->spans_capacity, job->n_spans + 1, sizeof *job->spans, err);
  if (status == COPSE_OK) job->spans[job->n_spans++] = *span;
  return status;
}

static int chunk_of(const struct copse_msccl_job *job, struct copse_q at) {
  return (int)(at.num * (job->block / at.den)); /* block is a multiple of every denominator */
}

/* The chunks of [lo, hi) of a block. */
static copse_status add_spans(struct copse_msccl_job *job, struct copse_msccl_span span,
                              struct copse_q lo, struct copse_q hi, struct copse_err *err) {
  int end = chunk_of(job, hi);
  copse_status status = COPSE_OK;
  for (span.offset = chunk_of(job, lo); span.offset < end; span.offset += span.count) {
    int stop = (span.offset / COPSE_MSCCL_MAX_COUNT + 1) * COPSE_MSCCL_MAX_COUNT;
    span.count = (stop < end ? stop : end) - span.offset;
    COPSE_TRY(add_span(job, &span, err));
  }
out:
  return status;
}

static copse_status cut_into_chunks(struct copse_msccl_job *job, struct copse_err *err) {
  const struct copse_schedule *s = job->schedule;
  int64_t block = 1, blocks = s->collective == COPSE_ALLREDUCE ? 1 : s->n_ranks;
  copse_status status = COPSE_OK;
  for (int i = 0; i < job->units.n_units && block <= COPSE_MSCCL_MAX_CHUNKS; i++)
    COPSE_TRY(copse_lcm(block, job->units.units[i].hi.den, &block, err));
  for (int i = 0; i < job->chains.n_chains && block <= COPSE_MSCCL_MAX_CHUNKS; i++)
    COPSE_TRY(copse_lcm(block, job->chains.chains[i].hi.den, &block, err));
  if (block * blocks > COPSE_MSCCL_MAX_CHUNKS)
    return copse_fail(err, COPSE_UNSUPPORTED,
                      "the cuts of this schedule need a message of %lld chunks%s; MSCCL numbers "
                      "at most %d: solve again with a small --k, such as --k 1%s",
                      (long long)(block * blocks), block > COPSE_MSCCL_MAX_CHUNKS ? " or more" : "",
                      COPSE_MSCCL_MAX_CHUNKS,
                      job->options.instances > 1 ? ", or take fewer --instances" : "");
  job->block = (int)block;
  job->chunks = (int)(block * blocks);
  for (int i = 0; i < job->units.n_units; i++) {
    const struct copse_unit *u = &job->units.units[i];
    COPSE_TRY(
        add_spans(job, (struct copse_msccl_span){.block = u->block, .unit = u}, u->lo, u->hi, err));
  }
  for (int i = 0; i < job->chains.n_chains; i++) {
    const struct copse_chain *c = &job->chains.chains[i];
    COPSE_TRY(add_spans(job, (struct copse_msccl_span){.chain = c}, c->lo, c->hi, err));
  }
out:
  return status;
}

/* ---- limits --------------------------------------------------------------------------- */

/* A limit that a program breaks: what, at which rank, and by how much. */
struct misfit {
  const char *what;
  int rank, need, limit;
};

static bool over(struct misfit *m, const char *what, int rank, int need, int limit) {
  if (need <= limit) return false;
  *m = (struct misfit){what, rank, need, limit};
  return true;
}

static bool fits(const struct copse_msccl_job *job, const struct copse_msccl_program *p,
                 struct misfit *m) {
  for (int r = 0; r < p->n_ranks; r++) {
    int steps = 0;
    if (over(m, "thread blocks", r, p->ranks[r].n, job->options.max_blocks)) return false;
    for (int i = 0; i < p->ranks[r].n; i++) {
      const struct copse_msccl_block *b = &p->blocks[p->ranks[r].ids[i]];
      steps += b->n_steps;
      if (over(m, "steps in one thread block", r, b->n_steps, COPSE_MSCCL_MAX_STEPS)) return false;
    }
    if (over(m, "elements in the executors' parser", r, 1 + p->n_ranks + p->ranks[r].n + steps,
             COPSE_MSCCL_MAX_NODES) ||
        over(m, "chunks of scratch", r, p->ranks[r].scratch, COPSE_MSCCL_MAX_CHUNKS))
      return false;
  }
  return true;
}

/* One attempt; COPSE_UNSUPPORTED with *m where it doesn't fit. */
static copse_status attempt(const struct copse_msccl_job *job, int channels, bool pair,
                            struct copse_msccl_program *p, struct misfit *m,
                            struct copse_err *err) {
  struct copse_err why = COPSE_ERR_INIT;
  copse_status status;
  *m = (struct misfit){"connections in one channel", 0, COPSE_MSCCL_MAX_CONNECTIONS + 1,
                       COPSE_MSCCL_MAX_CONNECTIONS};
  COPSE_TRY(copse_msccl_program_start(p, job->schedule->n_ranks, &why));
  p->end_channel = channels;
  p->pair = pair;
  COPSE_TRY(job->schedule->collective == COPSE_ALLTOALL ? copse_msccl_emit_chains(job, p)
                                                        : copse_msccl_emit_trees(job, p));
  if (!fits(job, p, m)) status = COPSE_UNSUPPORTED;
out:
  if (status == COPSE_OK) return COPSE_OK;
  copse_msccl_program_free(p);
  return status == COPSE_UNSUPPORTED ? status : copse_fail(err, status, "%s", why.text);
}

/*
 * The most channels from `most` down to `least` that fit: sends and receives in blocks of
 * their own run at once, so sharing a block comes after fewer channels.
 */
static copse_status search(const struct copse_msccl_job *job, int most, int least,
                           struct copse_msccl_program *p, int *channels, struct misfit *m,
                           struct copse_err *err) {
  struct misfit first = {0};
  for (int pair = 0; pair < 2; pair++) {
    for (*channels = most; *channels >= least; --*channels) {
      copse_status status = attempt(job, *channels, pair, p, m, err);
      if (status != COPSE_UNSUPPORTED) return status;
      /* what stands in the way of the fewest blocks says most */
      if (!first.what || m->need - m->limit <= first.need - first.limit) first = *m;
    }
  }
  *m = first;
  return COPSE_UNSUPPORTED;
}

static copse_status say_misfit(const struct copse_msccl_job *job, const struct misfit *m,
                               struct copse_err *err) {
  const struct copse_schedule *s = job->schedule;
  struct copse_msccl_program p;
  struct misfit other;
  char hint[160] = "; no number of channels helps (--to plan has no such limit)";
  int channels;
  int64_t k = s->k * m->limit / m->need;
  copse_status status = COPSE_UNSUPPORTED;
  if (job->options.channels > 0)
    status = search(job, COPSE_MSCCL_MAX_CHANNELS, 1, &p, &channels, &other, err);
  if (status == COPSE_OK) {
    snprintf(hint, sizeof hint, "; --channels %d fits", channels);
    copse_msccl_program_free(&p);
  } else if (status != COPSE_UNSUPPORTED) {
    return status;
  } else if (job->options.instances > 1) {
    snprintf(hint, sizeof hint, "; take fewer --instances than %d", job->options.instances);
  } else if (s->k > 1) {
    snprintf(hint, sizeof hint, "; solve again with --k %lld or less",
             (long long)(k < 1      ? 1
                         : k < s->k ? k
                                    : s->k - 1));
  }
  return copse_fail(err, COPSE_UNSUPPORTED, "rank %d needs %d %s, of which MSCCL has %d%s", m->rank,
                    m->need, m->what, m->limit, hint);
}

/* ---- all together --------------------------------------------------------------------- */

static copse_status check_options(struct copse_msccl_job *job, struct copse_err *err) {
  struct copse_msccl_options *o = &job->options;
  bool nccl = o->executor == COPSE_MSCCL_NCCL;
  int blocks = nccl ? COPSE_MSCCL_MAX_DEP_BLOCK : 64;
  if (o->max_blocks == 0) o->max_blocks = nccl ? 108 : 64;
  if (o->instances == 0) o->instances = 1;
  if (o->max_blocks < 1 || o->max_blocks > blocks)
    return copse_fail(err, COPSE_INVALID, "workers must be from 1 to %d for this executor", blocks);
  if (o->channels < 0 || o->channels > COPSE_MSCCL_MAX_CHANNELS)
    return copse_fail(err, COPSE_INVALID, "channels must be from 1 to %d",
                      COPSE_MSCCL_MAX_CHANNELS);
  if (o->instances < 1 || o->instances > 64)
    return copse_fail(err, COPSE_INVALID, "instances must be from 1 to 64");
  if (o->min_bytes < 0 || o->max_bytes < 0 || (o->max_bytes > 0 && o->max_bytes < o->min_bytes))
    return copse_fail(err, COPSE_INVALID, "the smallest message must not exceed the largest");
  if (job->schedule->collective == COPSE_ALLTOALL) {
    if (o->layout == COPSE_MSCCL_IN_PLACE)
      return copse_fail(err, COPSE_UNSUPPORTED, "an alltoall is lowered out of place only");
    o->layout = COPSE_MSCCL_OUT_OF_PLACE;
  }
  job->fused = nccl;
  job->skip_copy = o->layout == COPSE_MSCCL_IN_PLACE;
  return COPSE_OK;
}

static copse_status cut(struct copse_msccl_job *job, struct copse_err *err) {
  const struct copse_schedule *s = job->schedule;
  copse_status status;
  if (copse_collective_rooted(s->collective))
    return copse_fail(err, COPSE_UNSUPPORTED,
                      "MSCCL does not look at a call's root, so a %s is not lowered to it (--to "
                      "plan does it)",
                      copse_collective_name(s->collective));
  if (s->collective == COPSE_ALLTOALL)
    COPSE_TRY(copse_chains_make(s, job->options.instances, &job->chains, err));
  else
    COPSE_TRY(copse_units_make(s, job->options.instances, &job->units, err));
  COPSE_TRY(cut_into_chunks(job, err));
out:
  return status;
}

/* The loop counter of the executors ends at 65536 slots of this size for every chunk. */
static void bound_bytes(struct copse_msccl_job *job) {
  static const int64_t slot[] = {2097152, 16384, 50176};
  int64_t most = slot[job->options.protocol] * 65536 * job->chunks;
  struct copse_msccl_options *o = &job->options;
  if (o->protocol == COPSE_MSCCL_SIMPLE && o->max_bytes == 0) return; /* 128 GiB a chunk */
  if (o->max_bytes == 0 || o->max_bytes > most) o->max_bytes = most;
}

static void summarize(const struct copse_msccl_job *job, const struct copse_msccl_program *p,
                      struct copse_msccl_summary *out) {
  *out = (struct copse_msccl_summary){
      .channels = p->n_channels, .chunks = job->chunks, .multiple = job->block};
  for (int r = 0; r < p->n_ranks; r++) {
    if (p->ranks[r].n > out->blocks) out->blocks = p->ranks[r].n;
    if (p->ranks[r].scratch > out->scratch) out->scratch = p->ranks[r].scratch;
  }
  for (int b = 0; b < p->n_blocks; b++)
    if (p->blocks[b].n_steps > out->steps) out->steps = p->blocks[b].n_steps;
}

copse_status copse_lower_msccl(const struct copse_schedule *schedule,
                               const struct copse_msccl_options *options, char **text, size_t *size,
                               struct copse_msccl_summary *summary, struct copse_err *err) {
  struct copse_msccl_job job = {.schedule = schedule, .options = *options};
  struct copse_msccl_program p = {0};
  struct copse_text out = {0};
  struct misfit misfit;
  int channels;
  copse_status status;
  COPSE_TRY(check_options(&job, err));
  COPSE_TRY(cut(&job, err));
  bound_bytes(&job);
  int most = job.options.channels ? job.options.channels : COPSE_MSCCL_MAX_CHANNELS;
  int least = job.options.channels ? job.options.channels : 1;
  status = search(&job, most, least, &p, &channels, &misfit, err);
  if (status == COPSE_UNSUPPORTED) status = say_misfit(&job, &misfit, err);
  if (status != COPSE_OK) goto out;
  copse_msccl_renumber_channels(&p);
  COPSE_TRY(copse_msccl_write(&job, &p, &out, err));
  summarize(&job, &p, summary);
  *text = out.data;
  *size = out.size;
  out.data = NULL;
out:
  copse_text_free(&out);
  copse_msccl_program_free(&p);
  copse_units_free(&job.units);
  copse_chains_free(&job.chains);
  free(job.spans);
  return status;
}
