/*
 * Memory. Each device's is one file without a name (memfd), mapped once: other processes can map
 * parts of it. It is laid out twice as large as the device, since every allocation has a gap
 * behind it; AddressSanitizer knows the gaps and what is free.
 */
#include <map>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define FORBID(p, bytes) __asan_poison_memory_region(p, bytes)
#define ALLOW(p, bytes) __asan_unpoison_memory_region(p, bytes)
#else
#define FORBID(p, bytes) ((void)0)
#define ALLOW(p, bytes) ((void)0)
#endif

namespace copse_emulation {

namespace {

constexpr size_t unit = 512;            /* alignment of device memory */
constexpr size_t page = 4096;           /* and of pinned memory */
constexpr size_t stale_bytes = 1 << 20; /* so much of an allocation is filled with rubbish */
constexpr int stale = 0xcb;
constexpr size_t punch_bytes = 256 << 10; /* from here on freed memory goes back to the system */

struct Heap {
  int file = -1;
  char *base = nullptr;
  size_t used = 0;                /* without gaps */
  std::map<size_t, size_t> holes; /* offset, bytes */
};

struct Entry {
  Memory memory;
  bool is_leaving; /* cudaFreeAsync is on its way */
};

struct Table {
  std::mutex lock;
  std::map<const char *, Entry> entries; /* by base */
  std::vector<Heap> heaps;
  uint64_t next_id = 1;
};
Table &table() {
  static Table *t = new Table;
  return *t;
}

size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }
size_t heap_bytes() { return 2 * round_up(config().memory, page); }

void open_heap(Heap &heap) {
  size_t bytes = heap_bytes();
  heap.file = memfd_create("copse-emulated-device", MFD_CLOEXEC);
  void *base = MAP_FAILED;
  if (heap.file >= 0 && ftruncate(heap.file, (off_t)bytes) == 0)
    base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, heap.file, 0);
  if (base == MAP_FAILED) {
    perror("emulated CUDA: the memory of a device");
    abort();
  }
  heap.base = static_cast<char *>(base);
  heap.holes[0] = bytes;
}

/* Under the table's lock. */
Heap &heap_of(int device) {
  std::vector<Heap> &heaps = table().heaps;
  if (heaps.empty()) heaps.resize((size_t)config().devices);
  Heap &heap = heaps[(size_t)device];
  if (!heap.base) open_heap(heap);
  return heap;
}

/* First fit; NULL where nothing fits. */
char *take(Heap &heap, size_t bytes) {
  if (bytes > config().memory || heap.used + bytes > config().memory) return nullptr;
  for (auto hole = heap.holes.begin(); hole != heap.holes.end(); ++hole) {
    size_t offset = hole->first, left = hole->second;
    if (left < bytes + unit) continue;
    heap.holes.erase(hole);
    if (left > bytes + unit) heap.holes[offset + bytes + unit] = left - bytes - unit;
    heap.used += bytes;
    return heap.base + offset;
  }
  return nullptr;
}

void give_back(Heap &heap, char *base, size_t bytes) {
  size_t offset = (size_t)(base - heap.base), size = bytes + unit;
  heap.used -= bytes;
  if (size >= punch_bytes) {
    size_t first = round_up(offset, page), end = (offset + size) / page * page;
    madvise(heap.base + first, end - first, MADV_REMOVE);
  }
  auto next = heap.holes.lower_bound(offset);
  if (next != heap.holes.end() && offset + size == next->first) {
    size += next->second;
    next = heap.holes.erase(next);
  }
  if (next != heap.holes.begin()) {
    auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += size;
      return;
    }
  }
  heap.holes[offset] = size;
}

void enter_entry(Memory memory) {
  memory.id = table().next_id++;
  table().entries[memory.base] = {memory, false};
}

cudaError_t allocate(void **p, size_t bytes, int device, MemoryKind kind) {
  if (!p) return cudaErrorInvalidValue;
  *p = nullptr;
  if (!is_device(device)) return cudaErrorNoDevice;
  if (bytes == 0) return cudaSuccess;
  if (bytes > config().memory) return cudaErrorMemoryAllocation;
  std::lock_guard<std::mutex> hold(table().lock);
  size_t whole = round_up(bytes, unit);
  char *base = take(heap_of(device), whole);
  if (!base) return cudaErrorMemoryAllocation;
  ALLOW(base, bytes);
  FORBID(base + bytes, whole - bytes + unit);
  memset(base, stale, bytes < stale_bytes ? bytes : stale_bytes);
  enter_entry({base, bytes, device, kind, 0});
  *p = base;
  return cudaSuccess;
}

/* Under the table's lock. */
void release(const Memory &memory) {
  FORBID(memory.base, memory.bytes);
  give_back(heap_of(memory.device), memory.base, round_up(memory.bytes, unit));
}

std::map<const char *, Entry>::iterator holder(const void *address) {
  const char *p = static_cast<const char *>(address);
  auto at = table().entries.upper_bound(p);
  if (at == table().entries.begin()) return table().entries.end();
  --at;
  return p < at->first + at->second.memory.bytes ? at : table().entries.end();
}

cudaError_t free_now(void *p) {
  if (!p) return cudaSuccess;
  Memory memory;
  if (!find_memory(p, &memory) || memory.base != p ||
      (memory.kind != MemoryKind::Device && memory.kind != MemoryKind::Pool))
    return misuse(cudaErrorInvalidValue, "%p is not the start of device memory", p);
  cudaError_t error = check_unsafe();
  if (error) return error;
  wait_for_device(memory.device);
  std::lock_guard<std::mutex> hold(table().lock);
  auto at = table().entries.find(memory.base);
  if (at == table().entries.end() || at->second.memory.id != memory.id)
    return misuse(cudaErrorInvalidValue, "%p was freed twice", p);
  release(memory);
  table().entries.erase(at);
  return cudaSuccess;
}

/* In the stream's order. */
void free_later(const Memory &memory) {
  std::lock_guard<std::mutex> hold(table().lock);
  auto at = table().entries.find(memory.base);
  if (at == table().entries.end() || at->second.memory.id != memory.id) {
    misuse(cudaErrorIllegalAddress, "%p was freed before cudaFreeAsync had its turn",
           (void *)memory.base);
    return fault(cudaErrorIllegalAddress);
  }
  release(memory);
  table().entries.erase(at);
}

cudaError_t free_async(void *p, const Stream &stream) {
  if (!p) return cudaSuccess;
  Memory memory;
  {
    std::lock_guard<std::mutex> hold(table().lock);
    auto at = holder(p);
    if (at == table().entries.end() || at->first != p || at->second.is_leaving ||
        at->second.memory.kind != MemoryKind::Pool)
      return misuse(cudaErrorInvalidValue, "%p is not the start of memory of cudaMallocAsync", p);
    at->second.is_leaving = true;
    memory = at->second.memory;
  }
  cudaError_t error = submit(stream, [memory] { free_later(memory); });
  if (error) {
    std::lock_guard<std::mutex> hold(table().lock);
    auto at = holder(p);
    if (at != table().entries.end()) at->second.is_leaving = false;
  }
  return error;
}

cudaError_t refuse_capture(const Stream &stream) {
  std::lock_guard<std::mutex> hold(order);
  if (!stream->capture) return cudaSuccess;
  return misuse(cudaErrorStreamCaptureUnsupported, "memory nodes of graphs are not emulated");
}

cudaError_t host_alloc(void **p, size_t bytes) {
  if (!p) return cudaErrorInvalidValue;
  *p = nullptr;
  if (!config().devices) return cudaErrorNoDevice;
  if (!bytes) return cudaSuccess;
  cudaError_t error = check_unsafe();
  if (error) return error;
  if (posix_memalign(p, page, bytes)) return cudaErrorMemoryAllocation;
  std::lock_guard<std::mutex> hold(table().lock);
  enter_entry({static_cast<char *>(*p), bytes, current_device(), MemoryKind::Host, 0});
  return cudaSuccess;
}

cudaError_t host_register(void *p, size_t bytes) {
  if (!p || !bytes) return cudaErrorInvalidValue;
  std::lock_guard<std::mutex> hold(table().lock);
  char *base = static_cast<char *>(p);
  auto next = table().entries.lower_bound(base);
  if (holder(p) != table().entries.end() ||
      (next != table().entries.end() && next->first < base + bytes))
    return cudaErrorHostMemoryAlreadyRegistered;
  enter_entry({base, bytes, current_device(), MemoryKind::Registered, 0});
  return cudaSuccess;
}

cudaError_t host_release(void *p, MemoryKind kind, cudaError_t otherwise) {
  cudaError_t error = check_unsafe();
  if (error) return error;
  /* pending copies may still use it */
  for (int d = 0; d < config().devices; d++) wait_for_device(d);
  Memory removed;
  if (remove_memory(p, kind, &removed)) return cudaSuccess;
  return misuse(otherwise, "%p is not the start of such host memory", p);
}

cudaError_t attributes_of(cudaPointerAttributes *out, const void *p) {
  Memory memory;
  if (!out) return cudaErrorInvalidValue;
  if (!find_memory(p, &memory)) {
    *out = {cudaMemoryTypeUnregistered, cudaInvalidDeviceId, nullptr, const_cast<void *>(p)};
    return cudaSuccess;
  }
  bool is_host = memory.is_host();
  *out = {is_host ? cudaMemoryTypeHost : cudaMemoryTypeDevice, memory.device, const_cast<void *>(p),
          is_host ? const_cast<void *>(p) : nullptr};
  return cudaSuccess;
}

}  // namespace

bool find_memory(const void *address, Memory *found) {
  std::lock_guard<std::mutex> hold(table().lock);
  auto at = holder(address);
  if (at == table().entries.end()) return false;
  *found = at->second.memory;
  return true;
}

Place place_of(const Memory &memory) {
  std::lock_guard<std::mutex> hold(table().lock);
  Heap &heap = heap_of(memory.device);
  return {heap.file, (size_t)(memory.base - heap.base)};
}

void add_mapped(void *base, size_t bytes, int device) {
  std::lock_guard<std::mutex> hold(table().lock);
  enter_entry({static_cast<char *>(base), bytes, device, MemoryKind::Mapped, 0});
}

bool charge(int device, size_t bytes) {
  std::lock_guard<std::mutex> hold(table().lock);
  Heap &heap = heap_of(device);
  if (heap.used + bytes > config().memory) return false;
  heap.used += bytes;
  return true;
}

void discharge(int device, size_t bytes) {
  std::lock_guard<std::mutex> hold(table().lock);
  heap_of(device).used -= bytes;
}

bool remove_memory(const void *base, MemoryKind kind, Memory *removed) {
  std::lock_guard<std::mutex> hold(table().lock);
  auto at = table().entries.find(static_cast<const char *>(base));
  if (at == table().entries.end() || at->second.memory.kind != kind) return false;
  *removed = at->second.memory;
  table().entries.erase(at);
  return true;
}

int report_memory() {
  static const char *const names[] = {"device memory", "memory of cudaMallocAsync", "host memory",
                                      "registered host memory", "mapped memory"};
  std::lock_guard<std::mutex> hold(table().lock);
  for (auto &entry : table().entries) {
    const Memory &m = entry.second.memory;
    fprintf(stderr, "emulated CUDA: leaked: %zu bytes of %s at %p, device %d\n", m.bytes,
            names[(int)m.kind], (void *)m.base, m.device);
  }
  return (int)table().entries.size();
}

void reset_memory() {
  std::lock_guard<std::mutex> hold(table().lock);
  for (Heap &heap : table().heaps) {
    if (!heap.base) continue;
    ALLOW(heap.base, heap_bytes());
    munmap(heap.base, heap_bytes());
    close(heap.file);
  }
  table().heaps.clear();
}

}  // namespace copse_emulation

using namespace copse_emulation;

extern "C" {

cudaError_t cudaMalloc(void **p, size_t bytes) {
  return api("cudaMalloc", [=] {
    cudaError_t error = check_unsafe();
    return error ? error : allocate(p, bytes, current_device(), MemoryKind::Device);
  });
}
cudaError_t cudaFree(void *p) {
  return api("cudaFree", [=] { return free_now(p); });
}
cudaError_t cudaMallocAsync(void **p, size_t bytes, cudaStream_t handle) {
  return api("cudaMallocAsync", [=] {
    Stream stream = find_stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    cudaError_t error = refuse_capture(stream);
    return error ? error : allocate(p, bytes, stream->device, MemoryKind::Pool);
  });
}
cudaError_t cudaFreeAsync(void *p, cudaStream_t handle) {
  return api("cudaFreeAsync", [=] {
    Stream stream = find_stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    cudaError_t error = refuse_capture(stream);
    return error ? error : free_async(p, stream);
  });
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned) {
  return api("cudaHostAlloc", [=] { return host_alloc(p, bytes); });
}
cudaError_t cudaMallocHost(void **p, size_t bytes) {
  return api("cudaMallocHost", [=] { return host_alloc(p, bytes); });
}
cudaError_t cudaFreeHost(void *p) {
  return api("cudaFreeHost", [=] {
    if (!p) return cudaSuccess;
    cudaError_t error = host_release(p, MemoryKind::Host, cudaErrorInvalidValue);
    if (!error) free(p);
    return error;
  });
}
cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned) {
  return api("cudaHostRegister", [=] { return host_register(p, bytes); });
}
cudaError_t cudaHostUnregister(void *p) {
  return api("cudaHostUnregister", [=] {
    return host_release(p, MemoryKind::Registered, cudaErrorHostMemoryNotRegistered);
  });
}
cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags) {
  return api("cudaHostGetDevicePointer", [=] {
    Memory memory;
    if (flags || !find_memory(host, &memory) || !memory.is_host()) return cudaErrorInvalidValue;
    *device = host;
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
  return api("cudaMemGetInfo", [=] {
    if (!is_device(current_device())) return cudaErrorNoDevice;
    std::lock_guard<std::mutex> hold(table().lock);
    *total = config().memory;
    *free_bytes = config().memory - heap_of(current_device()).used;
    return cudaSuccess;
  });
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *p) {
  return api("cudaPointerGetAttributes", [=] { return attributes_of(attributes, p); });
}
}
