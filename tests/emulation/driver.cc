/* Strided copies, and the one function of the driver that is asked for by name. */
#include <string.h>

#include "internal.h"

using namespace copse_emulation;

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream) {
  size_t most = (size_t)config().pitch;
  if (width > dst_pitch || width > src_pitch || dst_pitch > most || src_pitch > most)
    return cudaErrorInvalidPitchValue;
  for (size_t row = 0; row < height; row++) {
    cudaError_t error =
        cudaMemcpyAsync(static_cast<char *>(dst) + row * dst_pitch,
                        static_cast<const char *>(src) + row * src_pitch, width, kind, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

/* CUresult cuMemGetAddressRange(CUdeviceptr *, size_t *, CUdeviceptr) */
static int get_address_range(uint64_t *base, size_t *size, uint64_t pointer) {
  Memory memory;
  if (!find_memory(reinterpret_cast<const void *>(pointer), &memory)) return 1;
  if (base) *base = reinterpret_cast<uint64_t>(memory.base);
  if (size) *size = memory.bytes;
  return 0;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned int,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult *result) {
  bool known = strcmp(symbol, "cuMemGetAddressRange") == 0;
  *function = known ? reinterpret_cast<void *>(get_address_range) : nullptr;
  if (result) *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
