/* The NCCL behind a bootstrap that was made elsewhere, so that ranks on several hosts can send each
 * other messages. The drop-in sets it: it has a bootstrap of its own, and a look-up of NCCL's
 * functions by name would find the drop-in itself. */
#pragma once

#include "copse/comm.h"

/* A function of NCCL by its name, or NULL. */
typedef void *(*copse_nccl_find_type)(const char *name);

/* Looks in the bootstrap's NCCL; NULL where the bootstrap isn't the source's, or none is set. */
typedef copse_nccl_find_type (*copse_nccl_source_type)(const copse_bootstrap *bootstrap);
copse_nccl_find_type copse_nccl_source_of(const copse_bootstrap *bootstrap);
/* Sets where NCCL's functions come from. Any thread may call it; the last call counts. */
void copse_nccl_source_set(copse_nccl_source_type source);
