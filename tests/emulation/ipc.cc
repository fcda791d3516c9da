/*
 * Device memory for other processes: a handle names the file of the device in the process that
 * has it. It works between processes of one user that see each other's /proc.
 */
#include <errno.h>
#include <fcntl.h>
#include <map>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

using namespace copse_emulation;

namespace {

constexpr uint64_t magic = 0x63706963646d7531;

struct Handle {
  uint64_t magic;
  int32_t process, file, device, group;
  uint64_t offset, bytes, id;
};
static_assert(sizeof(Handle) <= sizeof(cudaIpcMemHandle_t), "a handle has 64 bytes");

struct Mapping {
  Handle handle;
  void *pages;
  size_t bytes; /* of the pages */
  int opened;
};
struct Mappings {
  std::mutex lock;
  std::map<void *, Mapping> by_address;
};
Mappings &mappings() {
  static Mappings *m = new Mappings;
  return *m;
}

cudaError_t get_handle(cudaIpcMemHandle_t *out, void *p) {
  Memory memory;
  if (!out || !find_memory(p, &memory) || memory.kind != MemoryKind::Device || memory.base != p)
    return misuse(cudaErrorInvalidValue, "%p is not the start of memory of cudaMalloc", p);
  Place place = place_of(memory);
  Handle handle = {magic, getpid(),     place.file,   memory.device,
                   group_of(memory.device), place.offset, memory.bytes, memory.id};
  memset(out, 0, sizeof *out);
  memcpy(out, &handle, sizeof handle);
  return cudaSuccess;
}

/* Maps the pages that hold the memory. */
bool map(const Handle &handle, Mapping *mapping, void **address) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", handle.process, handle.file);
  int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return false;
  size_t page = (size_t)sysconf(_SC_PAGESIZE), before = handle.offset % page;
  *mapping = {handle, nullptr, before + handle.bytes, 1};
  mapping->pages = mmap(nullptr, mapping->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file,
                        (off_t)(handle.offset - before));
  close(file);
  *address = static_cast<char *>(mapping->pages) + before;
  return mapping->pages != MAP_FAILED;
}

cudaError_t open_handle(void **out, const cudaIpcMemHandle_t &bytes, unsigned flags) {
  Handle handle;
  memcpy(&handle, &bytes, sizeof handle);
  if (!out || flags != cudaIpcMemLazyEnablePeerAccess) return cudaErrorInvalidValue;
  if (handle.magic != magic) return misuse(cudaErrorInvalidResourceHandle, "not a memory handle");
  if (handle.process == getpid() && !config().alone)
    return misuse(cudaErrorDeviceUninitialized, "the handle is of this very process");
  if (handle.group != group_of(current_device())) return cudaErrorPeerAccessUnsupported;
  cudaError_t error = check_unsafe();
  if (error) return error;
  std::lock_guard<std::mutex> hold(mappings().lock);
  for (auto &entry : mappings().by_address)
    if (memcmp(&entry.second.handle, &handle, sizeof handle) == 0) {
      entry.second.opened++;
      *out = entry.first;
      return cudaSuccess;
    }
  Mapping mapping;
  void *address;
  if (!map(handle, &mapping, &address))
    return misuse(cudaErrorMapBufferObjectFailed, "the memory of process %d: %s", handle.process,
                  strerror(errno));
  mappings().by_address[address] = mapping;
  add_mapped(address, handle.bytes, current_device());
  *out = address;
  return cudaSuccess;
}

cudaError_t close_handle(void *p) {
  cudaError_t error = check_unsafe();
  if (error) return error;
  for (int d = 0; d < config().devices; d++) wait_for_device(d);
  std::lock_guard<std::mutex> hold(mappings().lock);
  auto at = mappings().by_address.find(p);
  if (at == mappings().by_address.end())
    return misuse(cudaErrorInvalidValue, "%p is not an opened handle's", p);
  if (--at->second.opened > 0) return cudaSuccess;
  Memory removed;
  remove_memory(p, MemoryKind::Mapped, &removed);
  munmap(at->second.pages, at->second.bytes);
  mappings().by_address.erase(at);
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *p) {
  return api("cudaIpcGetMemHandle", [=] { return get_handle(handle, p); });
}
cudaError_t cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t handle, unsigned flags) {
  return api("cudaIpcOpenMemHandle", [&] { return open_handle(p, handle, flags); });
}
cudaError_t cudaIpcCloseMemHandle(void *p) {
  return api("cudaIpcCloseMemHandle", [=] { return close_handle(p); });
}
}
