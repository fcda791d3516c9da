/* Strided copies, and the functions of the driver that are asked for by name. */
#include <map>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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

/* ---- memory that is made and mapped apart, and groups of it (cuda.h, "Virtual Memory Management" and
 * "Multicast Object Management") ------------------------------------------------------------------------
 * The address of a group's memory belongs to nobody: only multimem instructions find the members. */

constexpr size_t granularity = 2 << 20;
constexpr int not_supported = 801, invalid = 1, no_memory = 2;

struct Physical {
  int device;
  size_t bytes;
  int file;
  char *at; /* where it is mapped, or NULL */
};
struct Bound {
  int device;
  uint64_t memory; /* 0: none is bound yet */
};
struct Group {
  unsigned n_devices;
  size_t bytes;
  std::vector<Bound> bound; /* the devices, in the order in which they were added */
  char *at;
};
struct Handles {
  std::mutex lock;
  uint64_t next = 1;
  std::map<uint64_t, Physical> physical;
  std::map<uint64_t, Group> groups;
  std::map<char *, size_t> reserved;
};
Handles &handles() {
  static Handles *h = new Handles;
  return *h;
}

/* What kernels find, who must not lock: locks would order for TSan what nothing orders on a GPU. */
struct View {
  char *at;
  size_t bytes;
  std::vector<char *> members; /* NULL: nothing is bound or mapped */
};
std::atomic<const std::vector<View> *> views;

void publish() {
  static std::vector<std::unique_ptr<const std::vector<View>>> *all =
      new std::vector<std::unique_ptr<const std::vector<View>>>; /* kernels may still read old ones */
  auto fresh = std::make_unique<std::vector<View>>();
  for (auto &entry : handles().groups) {
    View view = {entry.second.at, entry.second.bytes, {}};
    for (const Bound &it : entry.second.bound) {
      auto memory = handles().physical.find(it.memory);
      view.members.push_back(memory == handles().physical.end() ? nullptr : memory->second.at);
    }
    if (view.at) fresh->push_back(view);
  }
  views.store(fresh.get(), std::memory_order_release);
  all->push_back(std::move(fresh));
}

/* A CUresult, whose numbers are cudaError's. */
int driver(const char *function, const std::function<int()> &body) {
  return api(function, [&] {
    std::lock_guard<std::mutex> hold(handles().lock);
    const int result = body();
    publish();
    return (cudaError_t)result;
  });
}

int wrong(const char *what) { return misuse(cudaErrorInvalidValue, "%s", what); }

struct AllocationProperties {
  int type, handle_types;
  Location location;
  void *windows;
  unsigned char flags[8];
};
struct GroupProperties {
  unsigned n_devices;
  size_t bytes;
  unsigned long long handle_types, flags;
};
struct Access {
  Location location;
  int flags;
};

int device_attribute(int *value, int which, int device) {
  if (!is_device(device)) return 101;
  if (which != 132) return invalid; /* MULTICAST_SUPPORTED */
  *value = config().multicast;
  return 0;
}

int mem_create(uint64_t *handle, size_t bytes, const AllocationProperties *p, unsigned long long flags) {
  return driver("cuMemCreate", [&] {
    if (flags || p->type != 1 || p->location.type != 1 || !is_device(p->location.id) || !bytes ||
        bytes % granularity)
      return wrong("not pinned memory of a device in whole pages");
    if (!charge(p->location.id, bytes)) return no_memory;
    const int file = memfd_create("copse-emulated-physical", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)bytes) != 0) return no_memory;
    *handle = handles().next++;
    handles().physical[*handle] = {p->location.id, bytes, file, nullptr};
    return 0;
  });
}

int mem_release(uint64_t handle) {
  return driver("cuMemRelease", [&] {
    auto it = handles().physical.find(handle);
    if (it == handles().physical.end())
      return handles().groups.erase(handle) ? 0 : wrong("not a handle");
    if (it->second.at) return wrong("memory that is mapped"); /* CUDA would keep it until then */
    discharge(it->second.device, it->second.bytes);
    close(it->second.file);
    handles().physical.erase(it);
    return 0;
  });
}

int address_reserve(uint64_t *out, size_t bytes, size_t, uint64_t, unsigned long long) {
  return driver("cuMemAddressReserve", [&] {
    if (!bytes || bytes % granularity) return wrong("not whole pages");
    void *at = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return no_memory;
    handles().reserved[static_cast<char *>(at)] = bytes;
    *out = reinterpret_cast<uint64_t>(at);
    return 0;
  });
}

int address_free(uint64_t pointer, size_t bytes) {
  return driver("cuMemAddressFree", [&] {
    auto it = handles().reserved.find(reinterpret_cast<char *>(pointer));
    if (it == handles().reserved.end() || it->second != bytes) return wrong("not a reserved range");
    munmap(it->first, bytes);
    handles().reserved.erase(it);
    return 0;
  });
}

int mem_map(uint64_t pointer, size_t bytes, size_t offset, uint64_t handle, unsigned long long) {
  return driver("cuMemMap", [&] {
    char *at = reinterpret_cast<char *>(pointer);
    auto it = handles().reserved.find(at);
    if (it == handles().reserved.end() || it->second != bytes || offset) return wrong("not reserved");
    auto group = handles().groups.find(handle);
    if (group != handles().groups.end()) {
      if (group->second.bytes != bytes || group->second.at) return wrong("another size, or mapped twice");
      group->second.at = at;
      return 0;
    }
    auto memory = handles().physical.find(handle);
    if (memory == handles().physical.end() || memory->second.bytes != bytes || memory->second.at)
      return wrong("no such memory, another size, or mapped twice");
    memory->second.at = at; /* usable when some device has access */
    return 0;
  });
}

int set_access(uint64_t pointer, size_t bytes, const Access *access, size_t n) {
  return driver("cuMemSetAccess", [&] {
    for (size_t i = 0; i < n; i++)
      if (access[i].flags != 3 || access[i].location.type != 1 || !is_device(access[i].location.id))
        return wrong("not reading and writing by a device");
    for (auto &entry : handles().groups)
      if (reinterpret_cast<uint64_t>(entry.second.at) == pointer && entry.second.bytes == bytes) return 0;
    for (auto &entry : handles().physical) {
      Physical &it = entry.second;
      if (reinterpret_cast<uint64_t>(it.at) != pointer || it.bytes != bytes) continue;
      if (mmap(it.at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, it.file, 0) == MAP_FAILED)
        return no_memory;
      memset(it.at, 0xcb, bytes); /* rubbish, as in other new memory */
      add_mapped(it.at, bytes, it.device);
      return 0;
    }
    return wrong("nothing is mapped there");
  });
}

int mem_unmap(uint64_t pointer, size_t bytes) {
  for (int d = 0; d < config().devices; d++) wait_for_device(d); /* kernels take the lock */
  return driver("cuMemUnmap", [&] {
    char *at = reinterpret_cast<char *>(pointer);
    for (auto &entry : handles().groups)
      if (entry.second.at == at) return entry.second.at = nullptr, 0;
    for (auto &entry : handles().physical) {
      Memory removed;
      if (entry.second.at != at) continue;
      (void)remove_memory(at, MemoryKind::Mapped, &removed);
      mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
      return entry.second.at = nullptr, 0;
    }
    return wrong("nothing is mapped there");
  });
}

int group_granularity(size_t *out, const GroupProperties *p, int) {
  if (!p->n_devices || p->flags) return invalid;
  *out = granularity;
  return 0;
}

int group_create(uint64_t *handle, const GroupProperties *p) {
  return driver("cuMulticastCreate", [&] {
    if (!config().multicast) return not_supported;
    if (!p->n_devices || !p->bytes || p->bytes % granularity || p->flags) return wrong("bad properties");
    *handle = handles().next++;
    handles().groups[*handle] = {p->n_devices, p->bytes, {}, nullptr};
    return 0;
  });
}

int group_add(uint64_t handle, int device) {
  return driver("cuMulticastAddDevice", [&] {
    auto group = handles().groups.find(handle);
    if (group == handles().groups.end() || !is_device(device)) return wrong("no such object or device");
    for (const Bound &it : group->second.bound)
      if (it.device == device) return wrong("a device twice");
    if (group->second.bound.size() == group->second.n_devices) return wrong("more devices than it is for");
    group->second.bound.push_back({device, 0});
    return 0;
  });
}

int group_bind(uint64_t handle, size_t offset, uint64_t memory, size_t from, size_t bytes,
               unsigned long long flags) {
  return driver("cuMulticastBindMem", [&] {
    auto group = handles().groups.find(handle);
    auto it = handles().physical.find(memory);
    if (group == handles().groups.end() || it == handles().physical.end()) return wrong("no such handle");
    if (offset || from || flags || bytes != group->second.bytes || bytes != it->second.bytes)
      return wrong("only whole objects are emulated");
    if (group->second.bound.size() != group->second.n_devices) return wrong("before all devices were added");
    for (Bound &bound : group->second.bound)
      if (bound.device == it->second.device && !bound.memory) return bound.memory = memory, 0;
    return wrong("memory of a device that isn't in it, or has memory there");
  });
}

int group_unbind(uint64_t handle, int device, size_t, size_t) {
  return driver("cuMulticastUnbind", [&] {
    auto group = handles().groups.find(handle);
    if (group == handles().groups.end()) return wrong("no such object");
    for (Bound &bound : group->second.bound)
      if (bound.device == device && bound.memory) return bound.memory = 0, 0;
    return wrong("nothing is bound");
  });
}

const View &view_at(const char *address) {
  for (const View &it : *views.load(std::memory_order_acquire))
    if (address >= it.at && address < it.at + it.bytes) return it;
  fprintf(stderr, "emulated CUDA: multimem at %p, which is no group's\n", (const void *)address);
  abort();
}

struct Named {
  const char *name;
  void *function;
};
const Named driver_functions[] = {
    {"cuMemGetAddressRange", reinterpret_cast<void *>(get_address_range)},
    {"cuPointerGetAttribute", reinterpret_cast<void *>(get_attribute)},
    {"cuMemPoolGetAccess", reinterpret_cast<void *>(get_pool_access)},
    {"cuMemGetAccess", reinterpret_cast<void *>(get_access)},
    {"cuDeviceGetAttribute", reinterpret_cast<void *>(device_attribute)},
    {"cuMemCreate", reinterpret_cast<void *>(mem_create)},
    {"cuMemRelease", reinterpret_cast<void *>(mem_release)},
    {"cuMemAddressReserve", reinterpret_cast<void *>(address_reserve)},
    {"cuMemAddressFree", reinterpret_cast<void *>(address_free)},
    {"cuMemMap", reinterpret_cast<void *>(mem_map)},
    {"cuMemUnmap", reinterpret_cast<void *>(mem_unmap)},
    {"cuMemSetAccess", reinterpret_cast<void *>(set_access)},
    {"cuMulticastGetGranularity", reinterpret_cast<void *>(group_granularity)},
    {"cuMulticastCreate", reinterpret_cast<void *>(group_create)},
    {"cuMulticastAddDevice", reinterpret_cast<void *>(group_add)},
    {"cuMulticastBindMem", reinterpret_cast<void *>(group_bind)},
    {"cuMulticastUnbind", reinterpret_cast<void *>(group_unbind)}};

}  // namespace

int copse_emulation::report_handles() {
  std::lock_guard<std::mutex> hold(handles().lock);
  const size_t n = handles().physical.size() + handles().groups.size() + handles().reserved.size();
  if (n) fprintf(stderr, "emulated CUDA: leaked: %zu handles or ranges of the driver\n", n);
  return (int)n;
}

unsigned copse_emulated_members(const void *address) {
  return (unsigned)view_at(static_cast<const char *>(address)).members.size();
}

unsigned char *copse_emulated_member(const void *address, unsigned i, size_t bytes) {
  const char *at = static_cast<const char *>(address);
  const View &view = view_at(at);
  const size_t offset = (size_t)(at - view.at);
  if (offset + bytes > view.bytes || reinterpret_cast<uintptr_t>(at) % bytes || !view.members[i]) {
    fprintf(stderr, "emulated CUDA: multimem beyond its memory, or uneven, or where nothing is bound\n");
    abort();
  }
  return reinterpret_cast<unsigned char *>(view.members[i]) + offset;
}

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
