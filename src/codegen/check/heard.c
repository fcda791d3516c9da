#include "codegen/check/heard.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define NOBODY UINT32_MAX

struct copse_heard {
  const struct copse_plan *plan;
  size_t n_words;    /* of a set of ranks */
  uint64_t *workers; /* [n_workers][n_words] ranks that each has heard of */
  uint64_t *packets; /* [n_regions][n_words] what a region's packets tell of */
  uint32_t *writer;  /* [n_regions] worker that must have heard of the reader, or NOBODY */
};

copse_status copse_heard_new(const struct copse_plan *plan, struct copse_heard **out,
                             struct copse_err *err) {
  const struct copse_plan_header *h = &plan->header;
  struct copse_heard *heard = NULL;
  copse_status status = COPSE_OK;
  *out = NULL;
  if (h->protocol != COPSE_PROTOCOL_LOW_LATENCY) return COPSE_OK;
  COPSE_TRY(copse_calloc(1, sizeof *heard, &heard, err));
  heard->plan = plan;
  heard->n_words = (h->n_ranks + 63) / 64;
  size_t bytes = heard->n_words * sizeof(uint64_t);
  COPSE_TRY(copse_calloc(h->n_workers, bytes, &heard->workers, err));
  COPSE_TRY(copse_calloc(h->n_regions, bytes, &heard->packets, err));
  COPSE_TRY(copse_calloc(h->n_regions, sizeof *heard->writer, &heard->writer, err));
  *out = heard;
  return COPSE_OK;
out:
  copse_heard_free(heard);
  return status;
}

void copse_heard_free(struct copse_heard *heard) {
  if (!heard) return;
  free(heard->workers);
  free(heard->packets);
  free(heard->writer);
  free(heard);
}

static uint64_t *of_worker(const struct copse_heard *heard, uint32_t w) {
  return heard->workers + (size_t)w * heard->n_words;
}

static uint64_t *of_region(const struct copse_heard *heard, uint32_t r) {
  return heard->packets + (size_t)r * heard->n_words;
}

static bool has(const uint64_t *set, uint32_t rank) { return set[rank / 64] >> (rank % 64) & 1; }

void copse_heard_reset(struct copse_heard *heard) {
  if (!heard) return;
  const struct copse_plan_header *h = &heard->plan->header;
  memset(heard->workers, 0, h->n_workers * heard->n_words * sizeof(uint64_t));
  memset(heard->packets, 0, h->n_regions * heard->n_words * sizeof(uint64_t));
  for (uint32_t w = 0; w < h->n_workers; w++) {
    uint32_t rank = heard->plan->workers[w].rank;
    of_worker(heard, w)[rank / 64] |= (uint64_t)1 << (rank % 64);
  }
  for (uint32_t r = 0; r < h->n_regions; r++) heard->writer[r] = NOBODY;
}

void copse_heard_write(struct copse_heard *heard, uint32_t worker, uint32_t region, bool entered) {
  if (!heard) return;
  memcpy(of_region(heard, region), of_worker(heard, worker), heard->n_words * sizeof(uint64_t));
  if (!entered) heard->writer[region] = worker;
}

void copse_heard_read(struct copse_heard *heard, uint32_t worker, uint32_t region) {
  if (!heard) return;
  const struct copse_plan_piece *piece = &heard->plan->pieces[heard->plan->regions[region].piece];
  bool never_empty = piece->hi_num == piece->hi_den && piece->lo_num < piece->lo_den;
  if (!never_empty) return;
  for (size_t i = 0; i < heard->n_words; i++)
    of_worker(heard, worker)[i] |= of_region(heard, region)[i];
}

/* A rank's workers leave a launch together. */
static bool rank_has_heard(const struct copse_heard *heard, uint32_t rank, uint32_t of) {
  const struct copse_plan_rank *r = &heard->plan->ranks[rank];
  for (uint32_t w = r->first_worker; w < r->first_worker + r->n_workers; w++)
    if (has(of_worker(heard, w), of)) return true;
  return false;
}

copse_status copse_heard_check(const struct copse_heard *heard, const char *label,
                               struct copse_err *err) {
  if (!heard) return COPSE_OK;
  for (uint32_t r = 0; r < heard->plan->header.n_regions; r++) {
    if (heard->writer[r] == NOBODY) continue;
    uint32_t from = heard->plan->workers[heard->writer[r]].rank;
    uint32_t to = heard->plan->regions[r].rank;
    if (!rank_has_heard(heard, from, to))
      return copse_fail_at(err, COPSE_REFUTED, label, 0,
                           "rank %u sends packets[%u] to rank %u and need not hear of it in return: "
                           "two launches later it may overwrite them unread",
                           from, r, to);
  }
  return COPSE_OK;
}
