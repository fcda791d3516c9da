/* Plans in memory: loading with full validation, writing, and what a launch needs. */
#pragma once

#include "base/types.h"
#include "base/err.h"
#include "base/file.h"
#include "runtime/plan/plan_abi.h"

/* Immutable once decoded. `name` is NUL-terminated; header.name_bytes is its length. */
struct copse_plan {
  struct copse_plan_header header;
  const struct copse_plan_rank *ranks;       /* [n_ranks] */
  const struct copse_plan_worker *workers;   /* [n_workers], grouped by rank */
  const struct copse_plan_op *ops;           /* [n_ops], grouped by worker */
  const struct copse_plan_operand *operands; /* [n_operands] */
  const struct copse_plan_piece *pieces;     /* [n_pieces] */
  const struct copse_plan_region *regions;   /* [n_regions], grouped by rank */
  const struct copse_plan_channel *channels; /* [n_channels] */
  const struct copse_plan_extent *extents;   /* [n_extents], NULL without */
  const char *name;
};

/*
 * Validates the tables so that no executor needs another check: every index in range,
 * tables partitioned exactly (ranks into workers, workers into ops), sources on the
 * worker's own rank or a group's, whose slots lie alike, blocks within the buffer, no write to an
 * input, a region's piece equal to the op's, each channel signalled and waited on only by its two
 * workers, pieces ordered fractions, counts that fit memory. Fills nothing in. COPSE_BAD_INPUT
 * naming the first defect ("op 17: ..."). What it does not prove (right result, no deadlock, no
 * race) is `copse check`'s.
 */
copse_status copse_plan_validate(const struct copse_plan *plan, const char *label,
                                 struct copse_err *err) COPSE_CHECKED;

/* Whether some operation is multicast (plan_abi.h). O(operations). */
bool copse_plan_has_groups(const struct copse_plan *plan);

/* Writes the plan's bytes with magic, sizes and checksum filled in; the caller frees *bytes. */
copse_status copse_plan_encode(const struct copse_plan *plan, char **bytes, size_t *size,
                               struct copse_err *err) COPSE_CHECKED;
/* Computes the checksum at the end of these bytes. */
copse_status copse_plan_checksum(const struct copse_plan *plan, uint8_t digest[COPSE_SHA256_BYTES],
                                 struct copse_err *err) COPSE_CHECKED;

/*
 * Digests what each rank has to do, as SHA-256: digests[r] is that of its workers' operations and
 * of what all ranks have in common (collective, chunks, protocol, extents). Numbers over the whole
 * plan, which shift when another rank's part changes, don't count: a piece is named by its
 * fractions, a channel by the two workers that it joins and its place among their channels, a
 * region by its place at its rank. The sizes that the plan is for don't count either. A rank with
 * equal digests does the same in both plans. COPSE_NOMEM. O(plan * log of channels).
 */
copse_status copse_plan_digest_parts(const struct copse_plan *plan,
                                     uint8_t (*digests)[COPSE_SHA256_BYTES],
                                     struct copse_err *err) COPSE_CHECKED;

/* Does the opposite: checks magic, version, sizes, checksum, then copse_plan_validate. The plan
 * owns its memory; free with copse_plan_free (not for plans built by hand). */
copse_status copse_plan_decode(const char *label, const char *bytes, size_t size,
                               struct copse_plan **out, struct copse_err *err) COPSE_CHECKED;
/* Copies the plan, made by hand, as one that owns its memory: validated, and what decode(encode)
 * gives. */
copse_status copse_plan_copy(const struct copse_plan *plan, struct copse_plan **out,
                             struct copse_err *err) COPSE_CHECKED;
copse_status copse_plan_open(const char *path, struct copse_plan **out,
                             struct copse_err *err) COPSE_CHECKED;
