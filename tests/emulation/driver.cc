/* Strided copies, and the functions of the driver that are asked for by name. */
#include <map>
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

/* ---- memory whose owner decides who uses it ------------------------------------------------------ */

namespace {

struct Grant {
  bool pool;
  int n_devices;
};
std::map<const void *, Grant> grants; /* by where allocations begin; under `order` */

/* Of the allocation that holds the address. */
bool find_grant(uint64_t pointer, Memory *memory, Grant *grant) {
  if (!find_memory(reinterpret_cast<const void *>(pointer), memory)) return false;
  std::lock_guard<std::mutex> hold(order);
  auto it = grants.find(memory->base);
  if (it == grants.end()) return false;
  *grant = it->second;
  return true;
}

/* CUresult cuPointerGetAttribute(void *, CUpointer_attribute, CUdeviceptr) */
int get_attribute(void *value, int attribute, uint64_t pointer) {
  Memory memory;
  Grant grant = {false, 0};
  if (!find_memory(reinterpret_cast<const void *>(pointer), &memory)) return 1;
  const bool granted = find_grant(pointer, &memory, &grant);
  switch (attribute) {
    case 2: *static_cast<int *>(value) = memory.is_host() ? 1 : 2; return 0; /* MEMORY_TYPE */
    case 7: *static_cast<unsigned long long *>(value) = memory.id; return 0; /* BUFFER_ID */
    case 8: *static_cast<int *>(value) = 0; return 0;                        /* IS_MANAGED */
    case 10: *static_cast<int *>(value) = !granted; return 0; /* IS_LEGACY_CUDA_IPC_CAPABLE */
    case 17: /* MEMPOOL_HANDLE */
      *static_cast<void **>(value) = grant.pool ? reinterpret_cast<void *>(pointer) : nullptr;
      return 0;
  }
  return 1;
}

struct Location {
  int type, id;
};

int access_of(uint64_t pointer, const Location *location) {
  Memory memory;
  Grant grant;
  if (location->type != 1 || !find_grant(pointer, &memory, &grant)) return -1;
  return location->id < grant.n_devices || location->id == memory.device ? 3 : 0;
}

/* CUresult cuMemPoolGetAccess(CUmemAccess_flags *, CUmemoryPool, CUmemLocation *) */
int get_pool_access(int *flags, void *pool, const Location *location) {
  *flags = access_of(reinterpret_cast<uint64_t>(pool), location);
  return *flags < 0;
}

/* CUresult cuMemGetAccess(unsigned long long *, const CUmemLocation *, CUdeviceptr) */
int get_access(unsigned long long *flags, const Location *location, uint64_t pointer) {
  int found = access_of(pointer, location);
  *flags = static_cast<unsigned long long>(found);
  return found < 0;
}

struct Named {
  const char *name;
  void *function;
};
const Named driver_functions[] = {
    {"cuMemGetAddressRange", reinterpret_cast<void *>(get_address_range)},
    {"cuPointerGetAttribute", reinterpret_cast<void *>(get_attribute)},
    {"cuMemPoolGetAccess", reinterpret_cast<void *>(get_pool_access)},
    {"cuMemGetAccess", reinterpret_cast<void *>(get_access)}};

}  // namespace

void copse_emulated_grant(const void *memory, bool pool, int n_devices) {
  std::lock_guard<std::mutex> hold(order);
  grants[memory] = {pool, n_devices};
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned int,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult *result) {
  *function = nullptr;
  for (const Named &it : driver_functions)
    if (strcmp(symbol, it.name) == 0) *function = it.function;
  if (result)
    *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
