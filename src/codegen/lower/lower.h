/* From a schedule to a native plan. */
#pragma once

#include "codegen/lower/options.h"
#include "runtime/plan/plan.h"
#include "schedule/schedule.h"

/*
 * Makes the plan of a schedule: each tree moves one piece of the buffer, chunk by chunk;
 * broadcasts put straight into the peers' output, reductions go through FIFO slots with
 * credits. What a rank does is dealt to its workers by the bytes to move, and every worker goes
 * from the sources on to the ends, so that no two wait for each other.
 * The plan owns its memory (copse_plan_free). COPSE_INVALID for options out of range,
 * COPSE_UNSUPPORTED where a protocol doesn't fit the schedule (one hop: where not all pairs of
 * ranks send to each other in its trees) and for a compact schedule, COPSE_OVERFLOW where cuts need
 * more than 64 bits, COPSE_NOMEM. Deterministic. Complexity: linear in trees * ranks.
 */
copse_status copse_lower_schedule(const struct copse_schedule *schedule,
                                  const struct copse_lower_options *options,
                                  struct copse_plan **out, struct copse_err *err) COPSE_CHECKED;

/* Says before anything is made, of a schedule that may be compact, that memory does not suffice for
 * the plan of all flows or trees, or that the plan of all trees, in chunks and not in packets,
 * would be larger than a file can be: COPSE_NOMEM. options: NULL, of no native plan. place: the
 * schedule's file. */
copse_status copse_lower_check_size(const struct copse_schedule *schedule,
                                    const struct copse_lower_options *options, const char *place,
                                    struct copse_err *err) COPSE_CHECKED;

/* Digests what each rank does of a schedule lowered so (copse_plan_digest_parts): *parts [n_ranks]
 * is of the arena. Errors as of copse_lower_schedule. */
copse_status copse_lower_digest(const struct copse_schedule *schedule,
                                const struct copse_lower_options *options,
                                struct copse_arena *arena, struct copse_plan_header *header,
                                uint8_t (**parts)[COPSE_SHA256_BYTES],
                                struct copse_err *err) COPSE_CHECKED;

/*
 * Finds how a plan was lowered from its schedule: in chunks, packets or packets of one hop, for
 * its sizes, the rest as *options has it; *found where a plan made so does what `parts` digests.
 * Errors but COPSE_UNSUPPORTED as of copse_lower_schedule.
 */
copse_status copse_lower_find(const struct copse_schedule *schedule,
                              const struct copse_plan_header *header,
                              uint8_t (*const parts)[COPSE_SHA256_BYTES],
                              struct copse_arena *arena, struct copse_lower_options *options,
                              bool *found, struct copse_err *err) COPSE_CHECKED;

/* Writes the plan as JSON for people: every worker's operations in words. The caller frees it. */
copse_status copse_plan_to_text(const struct copse_plan *plan, char **text, size_t *size,
                                struct copse_err *err) COPSE_CHECKED;
