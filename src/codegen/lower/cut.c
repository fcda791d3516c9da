#include "codegen/lower/cut.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/collective.h"

copse_status copse_cut_start(struct copse_cut *cut, const struct copse_schedule *schedule,
                             int instances, int stretch, struct copse_err *err) {
  *cut = (struct copse_cut){.schedule = schedule, .stretch = stretch};
  if (copse_collective_rooted(schedule->collective))
    return copse_fail(err, COPSE_UNSUPPORTED,
                      "this format has no root, so a %s is not lowered to it (--to plan does it)",
                      copse_collective_name(schedule->collective));
  cut->blocks = schedule->collective == COPSE_ALLREDUCE ? 1 : schedule->n_ranks;
  if (schedule->collective == COPSE_ALLTOALL)
    return copse_chains_make(schedule, instances, &cut->chains, err);
  return copse_units_make(schedule, instances, &cut->units, err);
}

void copse_cut_free(struct copse_cut *cut) {
  copse_units_free(&cut->units);
  copse_chains_free(&cut->chains);
  free(cut->spans);
}

copse_status copse_cut_exact(const struct copse_cut *cut, int most, int64_t *block,
                             struct copse_err *err) {
  copse_status status = COPSE_OK;
  *block = 1;
  for (int i = 0; i < cut->units.n_units && *block <= most; i++)
    COPSE_TRY(copse_lcm(*block, cut->units.units[i].hi.den, block, err));
  for (int i = 0; i < cut->chains.n_chains && *block <= most; i++)
    COPSE_TRY(copse_lcm(*block, cut->chains.chains[i].hi.den, block, err));
out:
  return status;
}

static copse_status add_span(struct copse_cut *cut, const struct copse_span *span,
                             struct copse_err *err) {
  copse_status status =
      copse_grow(&cut->spans, &cut->spans_capacity, cut->n_spans + 1, sizeof *cut->spans, err);
  if (status == COPSE_OK) cut->spans[cut->n_spans++] = *span;
  return status;
}

static int chunk_of(const struct copse_cut *cut, struct copse_q at) {
  __int128 twice = 2 * (__int128)at.num * cut->block;
  return (int)((twice + at.den) / (2 * (__int128)at.den));
}

/* The chunks of [lo, hi) of a block. */
static copse_status add_spans(struct copse_cut *cut, struct copse_span span, struct copse_q lo,
                              struct copse_q hi, struct copse_err *err) {
  int end = chunk_of(cut, hi);
  copse_status status = COPSE_OK;
  for (span.offset = chunk_of(cut, lo); span.offset < end; span.offset += span.count) {
    int stop = (span.offset / cut->stretch + 1) * cut->stretch;
    span.count = (stop < end ? stop : end) - span.offset;
    COPSE_TRY(add_span(cut, &span, err));
  }
out:
  return status;
}

copse_status copse_cut_into(struct copse_cut *cut, int block, struct copse_err *err) {
  copse_status status = COPSE_OK;
  cut->block = block;
  cut->chunks = block * cut->blocks;
  cut->n_spans = 0;
  for (int i = 0; i < cut->units.n_units; i++) {
    const struct copse_unit *u = &cut->units.units[i];
    COPSE_TRY(add_spans(cut, (struct copse_span){.block = u->block, .unit = u}, u->lo, u->hi, err));
  }
  for (int i = 0; i < cut->chains.n_chains; i++) {
    const struct copse_chain *c = &cut->chains.chains[i];
    COPSE_TRY(add_spans(cut, (struct copse_span){.chain = c}, c->lo, c->hi, err));
  }
out:
  return status;
}

void copse_cut_add_name(const struct copse_cut *cut, struct copse_text *text) {
  const char *name = cut->schedule->topology_name;
  for (int i = 0; i < 100 && name[i]; i++)
    copse_text_add(text, "%c",
                   isalnum((unsigned char)name[i]) || strchr("_.-", name[i]) ? name[i] : '_');
}
