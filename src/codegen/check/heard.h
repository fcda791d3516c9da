/*
 * Inside src/codegen only: of which ranks a rank has heard in a launch through packets. A
 * packet region has two copies for even and odd launches, and nobody says when one is read. So
 * whoever writes launch e + 2's packets must know that their reader has left launch e: it does
 * if in launch e + 1 it heard, over any chain of packets, that the reader had entered that. Only
 * packets that are sent for every message count: those of a block's last piece, the one piece
 * that is never empty. And only launches with elements have a number.
 */
#ifndef COPSE_CODEGEN_CHECK_HEARD_H
#define COPSE_CODEGEN_CHECK_HEARD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "runtime/plan/plan.h"

struct copse_heard;

/* NULL in *out for a plan without packets; the functions below take it and do nothing. */
copse_status copse_heard_new(const struct copse_plan *plan, struct copse_heard **out,
                             struct copse_err *err) COPSE_CHECKED;
void copse_heard_free(struct copse_heard *heard);
void copse_heard_reset(struct copse_heard *heard);

/* The worker writes a region's packets; `entered`: it knows by signals that the region's rank
 * has entered this launch, and needs no more. */
void copse_heard_write(struct copse_heard *heard, uint32_t worker, uint32_t region, bool entered);
void copse_heard_read(struct copse_heard *heard, uint32_t worker, uint32_t region);

/* COPSE_REFUTED, naming a writer that need not have heard of its reader. At the end of a
 * launch. */
copse_status copse_heard_check(const struct copse_heard *heard, const char *label,
                               struct copse_err *err) COPSE_CHECKED;

#endif
