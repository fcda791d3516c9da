/*
 * The numbers that steer which rings and chains are proposed to NCCL, and what `copse audit` says
 * of a job. None decides a bound: those are proved. "Not measured": nothing is on record.
 */
#pragma once

#include <stdint.h>

/* ---- rings and chains (best.c) ---- */

/*
 * A channel is a thread block or two on each GPU, and takes about this much, GB/s, or a 16th of
 * all: NCCL's own search gives 12 channels of 20 on eight A100, 12 of 30 on H100, 16 of 45 on B200.
 * More than 16 are only for rings that are no good with fewer: NCCL up to 2.24 reads no more.
 */
#define CHANNEL_GBPS 20
#define CHANNELS 16
/* Chains may lose this part for fewer channels; rings nothing. Where orders are not searched in
 * full neither is searched further when it is as near to its bound, which may not be reached at
 * all. */
#define CHAIN_PART 64

/* ---- the order of hosts (tune/order.c) ---- */

/* Rounds of 2-opt; on tori of 64 hosts 3 are enough. */
#define MOST_ORDER_ROUNDS 20

/* ---- causes (audit/) ---- */

/* A gap below this is a step of speeds or a rounding, not worth a line. Not measured. */
#define GAP_WORTH 0.03
/* What is within a tenth of a limit has reached it; what is below this part of its like is slow: a
 * pair of GPUs, a choice for a size. Round numbers, not measured. */
#define AT_LIMIT 0.9
#define SLOW 0.8
/* So few channels or fewer are a cause by themselves. Not measured. */
#define FEW_CHANNELS 4
/* Bytes of a message for which the model's bandwidth is asked, and from which on a measured time
 * is all bandwidth. Round numbers, not measured. */
#define MODEL_BYTES (UINT64_C(1) << 30)
#define MEASURED_BYTES (INT64_C(64) << 20)
