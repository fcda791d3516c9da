/* Builds without CUDA: no GPU backend. */
#include "runtime/gpu/gpu.h"

const struct copse_gpu_support *copse_gpu(void) { return NULL; }
