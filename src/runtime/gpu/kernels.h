/* The kernels as the host launches them: kernels.cu. */
#pragma once

#include <stddef.h>

#include "copse/types.h"
#include "runtime/gpu/kernel_args.h"

/* Threads of a block: at most so many, since their registers must fit a multiprocessor; and at
 * least, where several blocks share one. */
#define COPSE_CUDA_MAX_THREADS 512
#define COPSE_CUDA_LEAST_THREADS 128

#if defined(__CUDACC__)
#define COPSE_GRID_CONSTANT __grid_constant__
/* The argument of untyped launch functions. The emulation of tests needs the kernel's type here. */
#define COPSE_KERNEL_ADDRESS(kernel) reinterpret_cast<const void *>(kernel)
#else
#define COPSE_GRID_CONSTANT
#define COPSE_KERNEL_ADDRESS(kernel) (kernel)
#endif

typedef void (*copse_kernel)(const struct copse_kernel_args args);

/* Returns the kernel for an element type of a collective that reduces, or doesn't. One that reduces
 * also runs calls that don't, of any type. */
copse_kernel copse_kernel_of(copse_type type, bool reduces);

/* Whether a switch that adds and copies has the reduction. */
bool copse_kernel_switches(copse_type type, copse_redop redop);

/* Grid: a block per sending rank. */
typedef void (*copse_unstage_kernel_type)(const struct copse_unstage_args args);
copse_unstage_kernel_type copse_unstage_kernel(void);

/* Grid: a block per item. */
typedef void (*copse_unpack_kernel_type)(const struct copse_unpack_args args);
copse_unpack_kernel_type copse_unpack_kernel(void);

/* One thread. Stores copse_control.underway. */
typedef void (*copse_mark_kernel_type)(uint64_t *underway, uint64_t value);
copse_mark_kernel_type copse_mark_kernel(void);

/* Returns the bytes of dynamic shared memory of each block. */
size_t copse_kernel_shared_bytes(void);
