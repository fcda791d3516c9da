/* Strided copies, and the functions of the driver that are asked for by name. */
#include <fcntl.h>
#include <map>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
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
 * The address of a group's memory belongs to nobody: only multimem instructions find the members.
 *
 * Both are files without a name, whose descriptors are what other processes import. The last page says
 * what a file is; a group's also who is in it, and in which process each member's memory is. */

constexpr size_t granularity = 2 << 20, tag_bytes = 4096;
constexpr int not_supported = 801, invalid = 1, no_memory = 2;
constexpr int file_descriptors = 1; /* CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR */
constexpr unsigned most_members = 128;

struct Tag {
  uint64_t magic;
  size_t bytes;
  uint64_t is_group;
};
constexpr uint64_t tag_magic = 0x646e616d756c7463;

struct Physical {
  int device;
  size_t bytes;
  int file;
  char *at; /* where it is mapped, or NULL */
  unsigned long long types;
  bool is_imported; /* whoever made it is charged for it and fills it */
};
struct Member {
  std::atomic<int> process, device; /* whose it is; process 0: nobody's yet */
  std::atomic<int> file;            /* 1 + the descriptor, there, of the memory that is bound; 0: none */
};
struct Shared {
  unsigned n_devices;
  size_t bytes;
  unsigned long long types;
  std::atomic<unsigned> n_added; /* the devices, in the order in which they were added */
  Member members[most_members];
};
static_assert(sizeof(Shared) <= tag_bytes, "one page");
/* Where other processes' memory is mapped, once a kernel has looked for it. */
struct Mapped {
  std::atomic<char *> at[most_members] = {};
};
struct Group {
  Shared *shared;
  int file;
  char *at;
  std::shared_ptr<Mapped> mapped;
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
  Shared *shared;
  std::vector<char *> own; /* by members: this process's memory; else NULL */
  std::shared_ptr<Mapped> others;
};
std::atomic<const std::vector<View> *> views;

void publish() {
  static std::vector<std::unique_ptr<const std::vector<View>>> *all =
      new std::vector<std::unique_ptr<const std::vector<View>>>; /* kernels may still read old ones */
  auto fresh = std::make_unique<std::vector<View>>();
  for (auto &entry : handles().groups) {
    Shared *shared = entry.second.shared;
    View view = {entry.second.at, shared->bytes, shared, {}, entry.second.mapped};
    for (unsigned i = 0; i < shared->n_devices; i++) {
      char *own = nullptr;
      for (auto &it : handles().physical)
        if (shared->members[i].process == getpid() && it.second.file + 1 == shared->members[i].file)
          own = it.second.at;
      view.own.push_back(own);
    }
    if (view.at) fresh->push_back(view);
  }
  views.store(fresh.get(), std::memory_order_release);
  all->push_back(std::move(fresh));
}

/* A file of so many bytes and a tag, or -1. */
int new_file(size_t bytes, bool is_group) {
  const Tag tag = {tag_magic, bytes, is_group};
  const int file = memfd_create("copse-emulated-driver", MFD_CLOEXEC);
  if (file >= 0 && ftruncate(file, (off_t)(bytes + tag_bytes)) == 0 &&
      pwrite(file, &tag, sizeof tag, (off_t)bytes) == (ssize_t)sizeof tag)
    return file;
  if (file >= 0) close(file);
  return -1;
}

/* A CUresult, whose numbers are cudaError's. */
int driver(const char *function, const Body<int> &body) {
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
    const int file = new_file(bytes, false);
    if (file < 0) return no_memory;
    *handle = handles().next++;
    handles().physical[*handle] = {p->location.id, bytes, file, nullptr, (unsigned)p->handle_types, false};
    return 0;
  });
}

int release_group(uint64_t handle) {
  auto group = handles().groups.find(handle);
  if (group == handles().groups.end()) return wrong("not a handle");
  if (group->second.at) return wrong("a group that is mapped"); /* as with memory */
  munmap(group->second.shared, tag_bytes);
  close(group->second.file);
  handles().groups.erase(group);
  return 0;
}

int mem_release(uint64_t handle) {
  return driver("cuMemRelease", [&] {
    auto it = handles().physical.find(handle);
    if (it == handles().physical.end()) return release_group(handle);
    if (it->second.at) return wrong("memory that is mapped"); /* CUDA would keep it until then */
    if (!it->second.is_imported) discharge(it->second.device, it->second.bytes);
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
      if (group->second.shared->bytes != bytes || group->second.at)
        return wrong("another size, or mapped twice");
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
      if (reinterpret_cast<uint64_t>(entry.second.at) == pointer && entry.second.shared->bytes == bytes)
        return 0;
    for (auto &entry : handles().physical) {
      Physical &it = entry.second;
      if (reinterpret_cast<uint64_t>(it.at) != pointer || it.bytes != bytes) continue;
      if (mmap(it.at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, it.file, 0) == MAP_FAILED)
        return no_memory;
      if (!it.is_imported) memset(it.at, 0xcb, bytes); /* rubbish, as in other new memory */
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
    for (auto &entry : handles().groups) {
      if (entry.second.at != at) continue;
      for (std::atomic<char *> &other : entry.second.mapped->at)
        if (char *pages = other.exchange(nullptr)) munmap(pages, bytes);
      return entry.second.at = nullptr, 0;
    }
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

/* The group in a file. */
int enter_group(uint64_t *handle, int file) {
  void *shared = mmap(nullptr, tag_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (shared == MAP_FAILED) return close(file), no_memory;
  *handle = handles().next++;
  handles().groups[*handle] = {static_cast<Shared *>(shared), file, nullptr, std::make_shared<Mapped>()};
  return 0;
}

int group_create(uint64_t *handle, const GroupProperties *p) {
  return driver("cuMulticastCreate", [&] {
    if (!config().multicast) return not_supported;
    if (!p->n_devices || p->n_devices > most_members || !p->bytes || p->bytes % granularity || p->flags)
      return wrong("bad properties");
    const int file = new_file(tag_bytes, true);
    if (file < 0 || enter_group(handle, file) != 0) return no_memory;
    Shared *shared = handles().groups[*handle].shared;
    shared->n_devices = p->n_devices;
    shared->bytes = p->bytes;
    shared->types = p->handle_types;
    return 0;
  });
}

int mem_export(void *out, uint64_t handle, int type, unsigned long long flags) {
  return driver("cuMemExportToShareableHandle", [&] {
    auto memory = handles().physical.find(handle);
    auto group = handles().groups.find(handle);
    if (memory == handles().physical.end() && group == handles().groups.end()) return wrong("not a handle");
    const bool is_group = memory == handles().physical.end();
    const unsigned long long types = is_group ? group->second.shared->types : memory->second.types;
    if (type != file_descriptors || !(types & file_descriptors) || flags)
      return wrong("not made to be exported so");
    const int file = fcntl(is_group ? group->second.file : memory->second.file, F_DUPFD_CLOEXEC, 0);
    if (file < 0) return no_memory;
    *static_cast<int *>(out) = file;
    return 0;
  });
}

int mem_import(uint64_t *handle, void *descriptor, int type) {
  return driver("cuMemImportFromShareableHandle", [&] {
    Tag tag;
    const int given = (int)reinterpret_cast<intptr_t>(descriptor);
    const off_t end = lseek(given, 0, SEEK_END);
    if (type != file_descriptors || end < (off_t)tag_bytes ||
        pread(given, &tag, sizeof tag, end - (off_t)tag_bytes) != (ssize_t)sizeof tag ||
        tag.magic != tag_magic)
      return wrong("not a descriptor of exported memory");
    const int file = fcntl(given, F_DUPFD_CLOEXEC, 0); /* the caller closes its own */
    if (file < 0) return no_memory;
    if (tag.is_group) return enter_group(handle, file);
    *handle = handles().next++;
    handles().physical[*handle] = {0, tag.bytes, file, nullptr, 0, true};
    return 0;
  });
}

int group_add(uint64_t handle, int device) {
  return driver("cuMulticastAddDevice", [&] {
    auto group = handles().groups.find(handle);
    if (group == handles().groups.end() || !is_device(device)) return wrong("no such object or device");
    Shared *shared = group->second.shared;
    for (const Member &it : shared->members)
      if (it.process == getpid() && it.device == device) return wrong("a device twice");
    const unsigned i = shared->n_added++;
    if (i >= shared->n_devices) return wrong("more devices than it is for");
    shared->members[i].device = device;
    shared->members[i].process = getpid();
    return 0;
  });
}

/* The member that is a device of this process; NULL where there is none. */
Member *member_of(const Group &group, int device) {
  for (Member &it : group.shared->members)
    if (it.process == getpid() && it.device == device) return &it;
  return nullptr;
}

int group_bind(uint64_t handle, size_t offset, uint64_t memory, size_t from, size_t bytes,
               unsigned long long flags) {
  return driver("cuMulticastBindMem", [&] {
    auto group = handles().groups.find(handle);
    auto it = handles().physical.find(memory);
    if (group == handles().groups.end() || it == handles().physical.end()) return wrong("no such handle");
    const Shared *shared = group->second.shared;
    if (offset || from || flags || bytes != shared->bytes || bytes != it->second.bytes)
      return wrong("only whole objects are emulated");
    if (shared->types && !it->second.types) return wrong("a group for several processes, memory that isn't");
    if (shared->n_added < shared->n_devices) return wrong("before all devices were added");
    Member *member = it->second.is_imported ? nullptr : member_of(group->second, it->second.device);
    if (!member || member->file) return wrong("memory of a device that isn't in it, or has memory there");
    member->file = it->second.file + 1;
    return 0;
  });
}

int group_unbind(uint64_t handle, int device, size_t, size_t) {
  return driver("cuMulticastUnbind", [&] {
    auto group = handles().groups.find(handle);
    if (group == handles().groups.end()) return wrong("no such object");
    Member *member = member_of(group->second, device);
    if (!member || !member->file) return wrong("nothing is bound");
    member->file = 0;
    return 0;
  });
}

const View &view_at(const char *address) {
  for (const View &it : *views.load(std::memory_order_acquire))
    if (address >= it.at && address < it.at + it.bytes) return it;
  fprintf(stderr, "emulated CUDA: multimem at %p, which is no group's\n", (const void *)address);
  abort();
}

/* The memory of a member; NULL where none is bound. Another process's is mapped at its first use. */
char *memory_of(const View &view, unsigned i) {
  char path[64];
  if (view.own[i]) return view.own[i];
  char *there = view.others->at[i].load(std::memory_order_relaxed);
  const Member &member = view.shared->members[i];
  if (there || !member.file || member.process == getpid()) return there;
  snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)member.process, member.file - 1);
  const int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  /* past TSan, which takes mmap for a write by this thread that nothing orders before the others' accesses */
  const long mapped = syscall(SYS_mmap, nullptr, view.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (mapped == -1) return nullptr;
  void *pages = reinterpret_cast<void *>(mapped);
  if (view.others->at[i].compare_exchange_strong(there, static_cast<char *>(pages), std::memory_order_relaxed))
    return static_cast<char *>(pages);
  munmap(pages, view.bytes);
  return there;
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
    {"cuMemExportToShareableHandle", reinterpret_cast<void *>(mem_export)},
    {"cuMemImportFromShareableHandle", reinterpret_cast<void *>(mem_import)},
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

static std::atomic<long> multimems{0};

unsigned copse_emulated_members(const void *address) {
  multimems.fetch_add(1, std::memory_order_relaxed);
  return view_at(static_cast<const char *>(address)).shared->n_devices;
}

long copse_emulated_multimems(void) { return multimems.load(std::memory_order_relaxed); }

unsigned char *copse_emulated_member(const void *address, unsigned i, size_t bytes) {
  const char *at = static_cast<const char *>(address);
  const View &view = view_at(at);
  const size_t offset = (size_t)(at - view.at);
  char *memory = memory_of(view, i);
  if (offset + bytes > view.bytes || reinterpret_cast<uintptr_t>(at) % bytes || !memory) {
    fprintf(stderr, "emulated CUDA: multimem beyond its memory, or uneven, or where nothing is bound\n");
    abort();
  }
  return reinterpret_cast<unsigned char *>(memory) + offset;
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
