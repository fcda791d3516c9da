/* What there is to know about the emulated devices, and the limits that kernels meet. */
#include <stdio.h>
#include <string.h>

#include "device.h"
#include "internal.h"

using namespace copse_emulation;

namespace {

/* Pairs (device, peer) whose access was enabled. */
struct Peers {
  std::mutex lock;
  std::vector<std::pair<int, int>> enabled;
};
Peers &peers() {
  static Peers *p = new Peers;
  return *p;
}

cudaError_t fill_properties(cudaDeviceProp *p, int device) {
  if (!is_device(device)) return cudaErrorInvalidDevice;
  memset(p, 0, sizeof *p);
  snprintf(p->name, sizeof p->name, "emulated device %d", device);
  snprintf(p->uuid.bytes, sizeof p->uuid.bytes, "emulated-%d", device);
  p->totalGlobalMem = config().memory;
  p->sharedMemPerBlock = shared_per_block;
  p->sharedMemPerBlockOptin = shared_per_block_optin;
  p->sharedMemPerMultiprocessor = shared_per_multiprocessor;
  p->reservedSharedMemPerBlock = shared_reserved;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->warpSize = 32;
  p->maxThreadsPerBlock = max_block_threads;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = max_block_threads;
  p->maxThreadsDim[2] = max_block_depth;
  p->maxGridSize[0] = max_grid_width;
  p->maxGridSize[1] = p->maxGridSize[2] = max_grid_height;
  p->major = capability_major;
  p->minor = 0;
  p->multiProcessorCount = config().multiprocessors;
  p->maxThreadsPerMultiProcessor = config().threads;
  p->maxBlocksPerMultiProcessor = max_resident_blocks;
  p->canMapHostMemory = p->concurrentKernels = p->unifiedAddressing = 1;
  p->cooperativeLaunch = p->hostRegisterSupported = p->memoryPoolsSupported = 1;
  p->pciBusID = device + 1;
  p->asyncEngineCount = 3;
  p->l2CacheSize = 50 << 20;
  return cudaSuccess;
}

cudaError_t attribute(int *value, cudaDeviceAttr which, int device) {
  cudaDeviceProp p;
  cudaError_t error = fill_properties(&p, device);
  if (error) return error;
  switch (which) {
    case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = (int)p.sharedMemPerBlock; break;
    case cudaDevAttrWarpSize: *value = p.warpSize; break;
    case cudaDevAttrMaxPitch: *value = config().pitch; break;
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrIntegrated: *value = p.integrated; break;
    case cudaDevAttrCanMapHostMemory: *value = p.canMapHostMemory; break;
    case cudaDevAttrConcurrentKernels: *value = p.concurrentKernels; break;
    case cudaDevAttrPciBusId: *value = p.pciBusID; break;
    case cudaDevAttrPciDeviceId: *value = p.pciDeviceID; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrUnifiedAddressing: *value = p.unifiedAddressing; break;
    case cudaDevAttrPciDomainId: *value = p.pciDomainID; break;
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = (int)p.sharedMemPerMultiprocessor;
      break;
    case cudaDevAttrCooperativeLaunch: *value = p.cooperativeLaunch; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)p.sharedMemPerBlockOptin; break;
    case cudaDevAttrHostRegisterSupported: *value = p.hostRegisterSupported; break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = p.maxBlocksPerMultiProcessor; break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = (int)p.reservedSharedMemPerBlock; break;
    case cudaDevAttrMemoryPoolsSupported: *value = p.memoryPoolsSupported; break;
    case cudaDevAttrIpcEventSupport: *value = p.ipcEventSupported; break;
    default: return misuse(cudaErrorInvalidValue, "attribute %d is not emulated", (int)which);
  }
  return cudaSuccess;
}

}  // namespace

void copse_emulation::reset_peers() {
  std::lock_guard<std::mutex> hold(peers().lock);
  peers().enabled.clear();
}

extern "C" {

cudaError_t cudaDriverGetVersion(int *version) {
  return api("cudaDriverGetVersion", [=] { return *version = CUDART_VERSION, cudaSuccess; });
}
cudaError_t cudaRuntimeGetVersion(int *version) {
  return api("cudaRuntimeGetVersion", [=] { return *version = CUDART_VERSION, cudaSuccess; });
}
cudaError_t cudaGetDeviceCount(int *count) {
  return api("cudaGetDeviceCount", [=] {
    *count = config().devices;
    return *count ? cudaSuccess : cudaErrorNoDevice;
  });
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device) {
  return api("cudaGetDeviceProperties", [=] { return fill_properties(properties, device); });
}
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr which, int device) {
  return api("cudaDeviceGetAttribute", [=] { return attribute(value, which, device); });
}
cudaError_t cudaDeviceGetPCIBusId(char *id, int length, int device) {
  return api("cudaDeviceGetPCIBusId", [=] {
    if (!is_device(device)) return cudaErrorInvalidDevice;
    int written = snprintf(id, (size_t)length, "0000:%02X:00.0", device + 1);
    return written < length ? cudaSuccess : cudaErrorInvalidValue;
  });
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  return api("cudaDeviceGetStreamPriorityRange", [=] {
    *least = 0;
    *greatest = greatest_priority;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
  return api("cudaDeviceCanAccessPeer", [=] {
    if (!is_device(device) || !is_device(peer)) return cudaErrorInvalidDevice;
    *can = device != peer && group_of(device) == group_of(peer);
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return api("cudaDeviceEnablePeerAccess", [=] {
    if (flags) return cudaErrorInvalidValue;
    if (!is_device(peer) || peer == current_device()) return cudaErrorInvalidDevice;
    if (group_of(peer) != group_of(current_device())) return cudaErrorPeerAccessUnsupported;
    std::lock_guard<std::mutex> hold(peers().lock);
    for (auto &pair : peers().enabled)
      if (pair == std::make_pair(current_device(), peer)) return cudaErrorPeerAccessAlreadyEnabled;
    peers().enabled.emplace_back(current_device(), peer);
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  return api("cudaDeviceDisablePeerAccess", [=] {
    if (!is_device(peer)) return cudaErrorInvalidDevice;
    std::lock_guard<std::mutex> hold(peers().lock);
    auto &list = peers().enabled;
    for (size_t i = 0; i < list.size(); i++)
      if (list[i] == std::make_pair(current_device(), peer)) {
        list.erase(list.begin() + (ptrdiff_t)i);
        return cudaSuccess;
      }
    return cudaErrorPeerAccessNotEnabled;
  });
}
}
