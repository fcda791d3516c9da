/*
 * Which algorithm and protocol a call should take, by NCCL's own model (nccl/model.h): rules for a
 * tuner's table.
 */
#pragma once

#include "nccl/model.h"

/* The fastest for so many bytes; false: the model has none. */
bool copse_nccl_choose(const struct copse_nccl_model *model, int collective, uint64_t bytes,
                       int *algorithm, int *protocol);

/*
 * Adds rules for communicators of the model's nodes and ranks, for every size from 0 to 2^64 - 1
 * without a gap; channels are NCCL's choice. After a rule whose pair NCCL may not have there stands
 * one of ring and simple. Adds none where the model has none. COPSE_NOMEM.
 */
copse_status copse_nccl_choose_rules(const struct copse_nccl_model *model, int collective,
                                     struct copse_tuner_table *table,
                                     struct copse_err *err) COPSE_CHECKED;
