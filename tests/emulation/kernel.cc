/*
 * Kernels: the limits of a launch, the room that blocks take on the multiprocessors, and a
 * thread of the pool for every block that has room.
 */
#include <algorithm>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "block.h"
#include "cuda_runtime.h"
#include "device.h"
#include "internal.h"

namespace copse_emulation {

namespace {

constexpr int shared_fill = 0xa5; /* rubbish, as shared memory starts with */
constexpr size_t shared_alignment = 128;

struct Kernel {
  const copse_emulated_signature *signature;
  int max_shared; /* dynamic, of a block */
};

struct Kernels {
  std::mutex lock;
  std::unordered_map<const void *, Kernel> known;
};
Kernels &kernels() {
  static Kernels *k = new Kernels;
  return *k;
}

bool find_kernel(const void *function, Kernel *found) {
  std::lock_guard<std::mutex> hold(kernels().lock);
  auto at = kernels().known.find(function);
  if (at == kernels().known.end()) {
    misuse(cudaErrorInvalidDeviceFunction,
           "kernel %p is not known: pass it with its type, or through copse_emulated_kernel",
           function);
    return false;
  }
  *found = at->second;
  return true;
}

/* ---- residency -------------------------------------------------------------------------- */

/* What a block takes of a multiprocessor. */
struct Need {
  int threads, shared;
};

Need need_of(int threads, size_t shared) {
  return {(threads + warpSize - 1) / warpSize * warpSize,
          (int)((shared + shared_alignment - 1) / shared_alignment * shared_alignment) +
              shared_reserved};
}

int blocks_per_multiprocessor(Need need) {
  return std::min({max_resident_blocks, config().threads / need.threads,
                   shared_per_multiprocessor / need.shared});
}

/* The multiprocessors of one device. */
class Residency {
 public:
  Residency() : rooms_((size_t)config().multiprocessors) {}

  /* Room for up to `count` blocks, at least one; for all of them where `all`. Waits until there
   * is. Returns each block's multiprocessor. */
  std::vector<size_t> take(Need need, size_t count, bool all) {
    std::unique_lock<std::mutex> hold(lock_);
    for (;;) {
      std::vector<Room> rooms = rooms_;
      std::vector<size_t> places = place(rooms, need, count);
      if (places.size() == count || (!all && !places.empty())) {
        rooms_ = rooms;
        return places;
      }
      changed_.wait(hold);
    }
  }
  void leave(Need need, size_t place) {
    std::lock_guard<std::mutex> hold(lock_);
    Room &room = rooms_[place];
    room.threads += need.threads;
    room.shared += need.shared;
    room.blocks++;
    changed_.notify_all();
  }

 private:
  struct Room {
    int threads = config().threads, shared = shared_per_multiprocessor;
    int blocks = max_resident_blocks;
  };
  static std::vector<size_t> place(std::vector<Room> &rooms, Need need, size_t count) {
    std::vector<size_t> places;
    size_t full = 0;
    for (size_t at = 0; places.size() < count && full < rooms.size();
         at = (at + 1) % rooms.size()) {
      Room &room = rooms[at];
      full++;
      if (room.threads < need.threads || room.shared < need.shared || !room.blocks) continue;
      room.threads -= need.threads;
      room.shared -= need.shared;
      room.blocks--;
      places.push_back(at);
      full = 0;
    }
    return places;
  }
  std::mutex lock_;
  std::condition_variable changed_;
  std::vector<Room> rooms_;
};

struct Residencies {
  std::mutex lock;
  std::unordered_map<int, std::shared_ptr<Residency>> of;
};
Residencies &residencies() {
  static Residencies *r = new Residencies;
  return *r;
}
std::shared_ptr<Residency> residency(int device) {
  std::lock_guard<std::mutex> hold(residencies().lock);
  std::shared_ptr<Residency> &one = residencies().of[device];
  if (!one) one = std::make_shared<Residency>();
  return one;
}

/* ---- a launch ----------------------------------------------------------------------------- */

struct Launch {
  const void *function;
  const copse_emulated_signature *signature;
  void *arguments; /* copied at the call */
  dim3 grid, block;
  size_t shared;
  int device;
  bool is_cooperative;
  size_t n_blocks;
  int n_threads; /* of a block */
  Launch() = default;
  Launch(const Launch &) = delete;
  Launch &operator=(const Launch &) = delete;
  ~Launch() { signature->free(arguments); }
};
typedef std::shared_ptr<const Launch> LaunchPtr;

struct Run {
  LaunchPtr launch;
  std::shared_ptr<Residency> where;
  Need need;
  Barrier grid;
  std::atomic<size_t> left; /* blocks */
  Completion done;
  Run(const LaunchPtr &l)
      : launch(l),
        where(residency(l->device)),
        need(need_of(l->n_threads, l->shared)),
        left(l->n_blocks) {
    if (l->is_cooperative) grid.start((unsigned)l->n_blocks * (unsigned)l->n_threads);
  }
  void finish(size_t blocks) {
    if (left.fetch_sub(blocks) == blocks) done.finish();
  }
};

struct RunningBlock : Block {
  std::shared_ptr<Run> run;
  size_t place; /* its multiprocessor */
  RunningBlock(const std::shared_ptr<Run> &r, size_t number, size_t at)
      : Block(r->launch->n_threads), run(r), place(at) {
    const Launch &l = *run->launch;
    index = {(unsigned)(number % l.grid.x), (unsigned)(number / l.grid.x % l.grid.y),
             (unsigned)(number / l.grid.x / l.grid.y)};
    if (l.is_cooperative) grid = &run->grid;
    if (!l.shared) return;
    if (posix_memalign(&shared, shared_alignment, l.shared)) abort();
    memset(shared, shared_fill, l.shared);
  }
  ~RunningBlock() {
    ::free(shared);
    run->where->leave(run->need, place);
    run->finish(1);
  }
};

void call_kernel(void *argument) {
  const Launch &l = *static_cast<const Launch *>(argument);
  l.signature->call(l.function, l.arguments);
}

void run_block(RunningBlock *block) {
  OnDevice here;
  Launch &l = const_cast<Launch &>(*block->run->launch);
  run_threads(block, l.block, l.grid, call_kernel, &l);
  delete block;
}

/* Starts the blocks from `first` on that have room. False where the system has no threads. */
bool start_blocks(const std::shared_ptr<Run> &run, size_t *first) {
  const Launch &l = *run->launch;
  std::vector<size_t> places = run->where->take(run->need, l.n_blocks - *first, l.is_cooperative);
  std::vector<RunningBlock *> blocks;
  std::vector<Work> work;
  for (size_t place : places) {
    RunningBlock *block = new RunningBlock(run, (*first)++, place);
    blocks.push_back(block);
    work.push_back([block] { run_block(block); });
  }
  if (start_threads(std::move(work))) return true;
  for (RunningBlock *block : blocks) delete block;
  return false;
}

void run_kernel(const LaunchPtr &launch) {
  auto run = std::make_shared<Run>(launch);
  for (size_t next = 0; next < launch->n_blocks;) {
    if (!start_blocks(run, &next)) {
      misuse(cudaErrorLaunchOutOfResources, "the system has no threads for %zu blocks of %d",
             launch->n_blocks, launch->n_threads);
      fault(cudaErrorLaunchOutOfResources);
      if (next < launch->n_blocks) run->finish(launch->n_blocks - next);
      break;
    }
  }
  run->done.wait();
}

struct Request {
  const void *function;
  void **arguments;
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
  bool is_cooperative;
};

cudaError_t check_shape(const Request &r, const Kernel &kernel) {
  const dim3 &g = r.grid, &b = r.block;
  if (!g.x || !g.y || !g.z || !b.x || !b.y || !b.z || g.x > (unsigned)max_grid_width ||
      g.y > (unsigned)max_grid_height || g.z > (unsigned)max_grid_height ||
      b.x > (unsigned)max_block_threads || b.y > (unsigned)max_block_threads ||
      b.z > (unsigned)max_block_depth || b.x * b.y * b.z > (unsigned)max_block_threads)
    return cudaErrorInvalidConfiguration;
  if (r.shared > (size_t)kernel.max_shared) return cudaErrorInvalidValue;
  int resident = blocks_per_multiprocessor(need_of((int)(b.x * b.y * b.z), r.shared));
  if (!resident) return cudaErrorLaunchOutOfResources;
  size_t n_blocks = (size_t)g.x * g.y * g.z;
  if (r.is_cooperative && n_blocks > (size_t)resident * (size_t)config().multiprocessors)
    return cudaErrorCooperativeLaunchTooLarge;
  return cudaSuccess;
}

std::atomic<int> n_cooperative;

cudaError_t launch_kernel(const Request &r) {
  Kernel kernel;
  if (!find_kernel(r.function, &kernel)) return cudaErrorInvalidDeviceFunction;
  if (!r.arguments && kernel.signature->bytes) return cudaErrorInvalidValue;
  if (kernel.signature->bytes > (size_t)max_parameter_bytes) return cudaErrorInvalidValue;
  Stream stream = find_stream(r.stream);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (stream->device != current_device())
    return misuse(cudaErrorInvalidResourceHandle, "a stream of device %d, but device %d is set",
                  stream->device, current_device());
  cudaError_t error = check_shape(r, kernel);
  if (error) return error;
  auto launch = std::make_shared<Launch>();
  launch->function = r.function;
  launch->signature = kernel.signature;
  launch->arguments = kernel.signature->copy(r.arguments);
  launch->grid = r.grid;
  launch->block = r.block;
  launch->shared = r.shared;
  launch->device = stream->device;
  launch->is_cooperative = r.is_cooperative;
  n_cooperative += r.is_cooperative;
  launch->n_blocks = (size_t)r.grid.x * r.grid.y * r.grid.z;
  launch->n_threads = (int)(r.block.x * r.block.y * r.block.z);
  return submit(stream, [launch = LaunchPtr(launch)] { run_kernel(launch); });
}

cudaError_t read_attributes(const cudaLaunchConfig_t &c, Request *r) {
  for (unsigned i = 0; i < c.numAttrs; i++) {
    const cudaLaunchAttribute &a = c.attrs[i];
    switch (a.id) {
      case cudaLaunchAttributeCooperative: r->is_cooperative = a.val.cooperative != 0; break;
      case cudaLaunchAttributeClusterDimension:
        if (a.val.clusterDim.x * a.val.clusterDim.y * a.val.clusterDim.z != 1)
          return misuse(cudaErrorNotSupported, "clusters are not emulated");
        break;
      /* hints, which change no result */
      case cudaLaunchAttributeIgnore:
      case cudaLaunchAttributeProgrammaticStreamSerialization:
      case cudaLaunchAttributePriority:
      case cudaLaunchAttributeMemSyncDomain: break;
      default:
        return misuse(cudaErrorNotSupported, "launch attribute %d is not emulated", (int)a.id);
    }
  }
  return cudaSuccess;
}

cudaError_t set_attribute(const void *function, cudaFuncAttribute which, int value) {
  Kernel kernel;
  if (!find_kernel(function, &kernel)) return cudaErrorInvalidDeviceFunction;
  if (which == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
  if (which != cudaFuncAttributeMaxDynamicSharedMemorySize)
    return misuse(cudaErrorInvalidValue, "attribute %d is not emulated", (int)which);
  if (value < 0 || value > shared_per_block_optin) return cudaErrorInvalidValue;
  std::lock_guard<std::mutex> hold(kernels().lock);
  kernels().known[function].max_shared = value;
  return cudaSuccess;
}

cudaError_t get_attributes(cudaFuncAttributes *out, const void *function) {
  Kernel kernel;
  if (!find_kernel(function, &kernel)) return cudaErrorInvalidDeviceFunction;
  memset(out, 0, sizeof *out);
  out->maxThreadsPerBlock = max_block_threads;
  out->numRegs = 32;
  out->ptxVersion = out->binaryVersion = 10 * capability_major;
  out->maxDynamicSharedSizeBytes = kernel.max_shared;
  return cudaSuccess;
}

cudaError_t get_occupancy(int *blocks, const void *function, int threads, size_t shared) {
  Kernel kernel;
  if (!find_kernel(function, &kernel)) return cudaErrorInvalidDeviceFunction;
  if (!blocks || threads <= 0) return cudaErrorInvalidValue;
  bool fits = threads <= max_block_threads && shared <= (size_t)kernel.max_shared;
  *blocks = fits ? blocks_per_multiprocessor(need_of(threads, shared)) : 0;
  return cudaSuccess;
}

}  // namespace

void reset_residency() {
  std::lock_guard<std::mutex> hold(residencies().lock);
  residencies().of.clear();
}

}  // namespace copse_emulation

using namespace copse_emulation;

int copse_emulated_cooperative(void) { return n_cooperative; }

void copse_emulated_register(const void *function, const copse_emulated_signature *signature) {
  std::lock_guard<std::mutex> hold(kernels().lock);
  kernels().known.insert({function, {signature, shared_per_block}});
}

extern "C" {

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments,
                             size_t shared, cudaStream_t stream) {
  return api("cudaLaunchKernel", [=] {
    return launch_kernel({function, arguments, grid, block, shared, stream, false});
  });
}
cudaError_t cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block,
                                        void **arguments, size_t shared, cudaStream_t stream) {
  return api("cudaLaunchCooperativeKernel", [=] {
    return launch_kernel({function, arguments, grid, block, shared, stream, true});
  });
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *function,
                                void **arguments) {
  return api("cudaLaunchKernelExC", [=] {
    Request r = {function,  arguments, c->gridDim, c->blockDim, c->dynamicSmemBytes,
                 c->stream, false};
    cudaError_t error = read_attributes(*c, &r);
    return error ? error : launch_kernel(r);
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *function) {
  return api("cudaFuncGetAttributes", [=] { return get_attributes(attributes, function); });
}
cudaError_t cudaFuncSetAttribute(const void *function, cudaFuncAttribute which, int value) {
  return api("cudaFuncSetAttribute", [=] { return set_attribute(function, which, value); });
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function,
                                                          int threads, size_t shared) {
  return api("cudaOccupancyMaxActiveBlocksPerMultiprocessor",
             [=] { return get_occupancy(blocks, function, threads, shared); });
}
}
