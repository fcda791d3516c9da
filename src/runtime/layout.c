#include "runtime/layout.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

copse_status copse_layout_new(const struct copse_plan *plan, struct copse_layout *layout,
                              struct copse_err *err) {
  const struct copse_plan_header *h = &plan->header;
  copse_status status;
  memset(layout, 0, sizeof *layout);
  layout->plan = plan;
  COPSE_TRY(copse_calloc(h->n_pieces, sizeof *layout->pieces, &layout->pieces, err));
  COPSE_TRY(
      copse_calloc(h->n_regions, sizeof *layout->region_offsets, &layout->region_offsets, err));
  COPSE_TRY(copse_calloc(h->n_regions, sizeof *layout->slot_bytes, &layout->slot_bytes, err));
  COPSE_TRY(copse_calloc(h->n_ranks, sizeof *layout->scratch_bytes, &layout->scratch_bytes, err));
  return COPSE_OK;
out:
  copse_layout_free(layout);
  return status;
}

void copse_layout_free(struct copse_layout *layout) {
  free(layout->pieces);
  free(layout->region_offsets);
  free(layout->slot_bytes);
  free(layout->scratch_bytes);
  memset(layout, 0, sizeof *layout);
}

static copse_status check_size(const struct copse_layout *layout, uint64_t count,
                               uint32_t element_bytes, struct copse_err *err) {
  const struct copse_plan_header *h = &layout->plan->header;
  uint64_t blocks = h->input_blocks > h->output_blocks ? h->input_blocks : h->output_blocks;
  uint64_t limit = COPSE_BUFFER_MAX_BYTES / (blocks * element_bytes);
  if (count > limit)
    return copse_fail(err, COPSE_INVALID, "%llu elements a block, the most is %llu",
                      (unsigned long long)count, (unsigned long long)limit);
  return COPSE_OK;
}

/* Regions one after the other in their rank's scratch; they are grouped by rank. */
static copse_status place_regions(struct copse_layout *layout, struct copse_err *err) {
  const struct copse_plan *plan = layout->plan;
  memset(layout->scratch_bytes, 0, plan->header.n_ranks * sizeof *layout->scratch_bytes);
  layout->total_scratch = 0;
  for (uint32_t i = 0; i < plan->header.n_regions; i++) {
    const struct copse_plan_region *region = &plan->regions[i];
    uint64_t elements =
        copse_slot_elements(layout->pieces[region->piece], layout->n_chunks, layout->unit);
    layout->slot_bytes[i] = elements * layout->element_bytes;
    uint64_t bytes = layout->slot_bytes[i] * plan->header.fifo;
    layout->region_offsets[i] = layout->scratch_bytes[region->rank];
    layout->scratch_bytes[region->rank] += bytes;
    /* A slot is below 2^49 bytes and a region below 2^55, so the sum can't wrap around. */
    layout->total_scratch += bytes;
    if (layout->total_scratch > COPSE_BUFFER_MAX_BYTES)
      return copse_fail(err, COPSE_INVALID,
                        "%llu elements a block need more scratch than 2^48 bytes",
                        (unsigned long long)layout->count);
  }
  return COPSE_OK;
}

copse_status copse_layout_set(struct copse_layout *layout, uint64_t count, uint32_t element_bytes,
                              struct copse_err *err) {
  const struct copse_plan *plan = layout->plan;
  copse_status status = check_size(layout, count, element_bytes, err);
  if (status != COPSE_OK) return status;
  layout->count = count;
  layout->element_bytes = element_bytes;
  layout->unit = COPSE_PLAN_ALIGN_BYTES / element_bytes;
  uint64_t largest = 0;
  for (uint32_t p = 0; p < plan->header.n_pieces; p++) {
    layout->pieces[p] = copse_piece_span(&plan->pieces[p], plan->extents, count, layout->unit);
    if (layout->pieces[p].count > largest) largest = layout->pieces[p].count;
  }
  layout->n_chunks = copse_chunk_count(&plan->header, largest * element_bytes);
  return place_regions(layout, err);
}
