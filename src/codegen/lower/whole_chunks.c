/*
 * A schedule in whole chunks. MSCCL and MSCCL++ cut a message into C equal chunks once and for all,
 * so shares become whole chunks: C is the least number on which every boundary of the schedule
 * falls, or what --chunks says, with boundaries rounded to the nearest chunk. The executors serve
 * only sizes that C divides: a C with odd factors (k = 3) shuts out powers of two, and `copse
 * lower` says so.
 */
#include "codegen/lower/whole_chunks.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/types.h"

copse_status copse_chunks_start(struct copse_whole_chunks *w, const struct copse_schedule *schedule,
                                int instances, int stretch, struct copse_err *err) {
  *w = (struct copse_whole_chunks){.schedule = schedule, .stretch = stretch};
  if (copse_collective_rooted(schedule->collective))
    return copse_fail(err, COPSE_UNSUPPORTED,
                      "this format has no root, so a %s is not lowered to it (--to plan does it)",
                      copse_collective_name(schedule->collective));
  w->blocks = schedule->collective == COPSE_ALLREDUCE ? 1 : schedule->n_ranks;
  if (schedule->demand)
    return copse_fail(err, COPSE_UNSUPPORTED,
                      "an alltoall by demand has blocks of different sizes, which only a native "
                      "plan (--to plan) can move");
  if (schedule->n_rotations > 0)
    return copse_fail(err, COPSE_UNSUPPORTED,
                      "a compact schedule must be expanded before it is lowered");
  return copse_units_make(&w->arena, schedule, instances, true, &w->units, err);
}

void copse_chunks_free(struct copse_whole_chunks *w) {
  copse_arena_free(&w->arena);
  free(w->runs);
}

copse_status copse_chunks_exact(const struct copse_whole_chunks *w, int most, int64_t *block,
                                struct copse_err *err) {
  *block = 1;
  for (int i = 0; i < w->units.n_units && *block <= most; i++)
    COPSE_DO(copse_lcm(*block, w->units.units[i].hi.den, block, err));
  return COPSE_OK;
}

static int chunk_at(const struct copse_whole_chunks *w, struct copse_q at) {
  __int128 twice = 2 * (__int128)at.num * w->block;
  return (int)((twice + at.den) / (2 * (__int128)at.den));
}

copse_status copse_chunks_cut(struct copse_whole_chunks *w, int block, struct copse_err *err) {
  w->block = block;
  w->chunks = block * w->blocks;
  w->n_runs = 0;
  for (int u = 0; u < w->units.n_units; u++) {
    struct copse_chunk_run run = {.unit = &w->units.units[u]};
    int end = chunk_at(w, run.unit->hi);
    for (run.offset = chunk_at(w, run.unit->lo); run.offset < end; run.offset += run.count) {
      int stop = (run.offset / w->stretch + 1) * w->stretch;
      run.count = (stop < end ? stop : end) - run.offset;
      COPSE_DO(copse_grow(&w->runs, &w->runs_capacity, w->n_runs + 1, sizeof *w->runs, err));
      w->runs[w->n_runs++] = run;
    }
  }
  return COPSE_OK;
}

void copse_chunks_add_name(const struct copse_whole_chunks *w, struct copse_text *text) {
  const char *name = w->schedule->topology_name;
  for (int i = 0; i < 100 && name[i]; i++)
    copse_text_add(text, "%c",
                   isalnum((unsigned char)name[i]) || strchr("_.-", name[i]) ? name[i] : '_');
}
