/* Copies and fills. Host memory is read and written when the stream gets there. */
#include <string.h>

#include "internal.h"

using namespace copse_emulation;

namespace {

enum class Side { Host, Device, Any };

/* One end of a copy: its allocation's id, 0 for ordinary host memory. */
cudaError_t check_end(const void *p, size_t bytes, Side side, const char *end, uint64_t *id) {
  Memory memory;
  *id = 0;
  if (!find_memory(p, &memory)) {
    if (side != Side::Device && p) return cudaSuccess;
    return misuse(cudaErrorInvalidValue, "the %s %p is not device memory", end, p);
  }
  if (side == Side::Host && !memory.is_host())
    return misuse(cudaErrorInvalidValue, "the %s %p is device memory, not the host's", end, p);
  size_t offset = (size_t)(static_cast<const char *>(p) - memory.base);
  if (bytes > memory.bytes - offset)
    return misuse(cudaErrorInvalidValue, "the %s's %zu bytes from %zu on leave its %zu bytes", end,
                  bytes, offset, memory.bytes);
  *id = memory.id;
  return cudaSuccess;
}

bool still_alive(const void *p, uint64_t id, const char *function) {
  Memory memory;
  if (!id || (find_memory(p, &memory) && memory.id == id)) return true;
  misuse(cudaErrorIllegalAddress, "%s found its memory freed", function);
  fault(cudaErrorIllegalAddress);
  return false;
}

struct Copy {
  void *dst;
  const void *src;
  size_t bytes;
  Side to, from;
};

Copy copy_of(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind) {
  Side to = Side::Any, from = Side::Any;
  if (kind != cudaMemcpyDefault) {
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    to = to_device ? Side::Device : Side::Host;
    from = from_device ? Side::Device : Side::Host;
  }
  return {dst, src, bytes, to, from};
}

cudaError_t submit_copy(const Copy &c, const Stream &stream, CompletionPtr *done) {
  uint64_t to = 0, from = 0;
  if (c.bytes) {
    cudaError_t error = check_end(c.dst, c.bytes, c.to, "destination", &to);
    if (!error) error = check_end(c.src, c.bytes, c.from, "source", &from);
    if (error) return error;
  }
  const char *function = current_function();
  Work run = [=] {
    if (!still_alive(c.dst, to, function) || !still_alive(c.src, from, function)) return;
    if (c.bytes) memmove(c.dst, c.src, c.bytes);
  };
  return submit(stream, run, {}, done);
}

cudaError_t copy_async(const Copy &c, cudaStream_t handle) {
  Stream stream = find_stream(handle);
  return stream ? submit_copy(c, stream, nullptr) : cudaErrorInvalidResourceHandle;
}

/* As CUDA: a copy between devices, or a fill, need not be over when the call returns. */
cudaError_t copy_now(const Copy &c) {
  cudaError_t error = check_unsafe();
  if (error) return error;
  Stream stream = find_stream(0);
  if (!stream) return cudaErrorNoDevice;
  CompletionPtr done;
  error = submit_copy(c, stream, &done);
  if (error) return error;
  Memory to, from;
  bool has_host =
      !find_memory(c.dst, &to) || to.is_host() || !find_memory(c.src, &from) || from.is_host();
  if (has_host) done->wait();
  return current_fault();
}

cudaError_t check_peer(const void *p, int device, size_t bytes) {
  if (!is_device(device)) return cudaErrorInvalidDevice;
  Memory memory;
  if (bytes && find_memory(p, &memory) && !memory.is_host() && memory.device != device)
    return misuse(cudaErrorInvalidValue, "%p is of device %d, not %d", p, memory.device, device);
  return cudaSuccess;
}

cudaError_t set_async(void *p, int value, size_t bytes, cudaStream_t handle) {
  Stream stream = find_stream(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  uint64_t id = 0;
  cudaError_t error = bytes ? check_end(p, bytes, Side::Device, "destination", &id) : cudaSuccess;
  if (error) return error;
  const char *function = current_function();
  return submit(stream, [=] {
    if (bytes && still_alive(p, id, function)) memset(p, value, bytes);
  });
}

}  // namespace

extern "C" {

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind) {
  return api("cudaMemcpy", [=] { return copy_now(copy_of(dst, src, bytes, kind)); });
}
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return api("cudaMemcpyAsync", [=] { return copy_async(copy_of(dst, src, bytes, kind), stream); });
}
cudaError_t cudaMemcpyPeer(void *dst, int to, const void *src, int from, size_t bytes) {
  return api("cudaMemcpyPeer", [=] {
    cudaError_t error = check_peer(dst, to, bytes);
    if (!error) error = check_peer(src, from, bytes);
    return error ? error : copy_now({dst, src, bytes, Side::Device, Side::Device});
  });
}
cudaError_t cudaMemcpyPeerAsync(void *dst, int to, const void *src, int from, size_t bytes,
                                cudaStream_t stream) {
  return api("cudaMemcpyPeerAsync", [=] {
    cudaError_t error = check_peer(dst, to, bytes);
    if (!error) error = check_peer(src, from, bytes);
    return error ? error : copy_async({dst, src, bytes, Side::Device, Side::Device}, stream);
  });
}
cudaError_t cudaMemset(void *p, int value, size_t bytes) {
  return api("cudaMemset", [=] {
    cudaError_t error = check_unsafe();
    return error ? error : set_async(p, value, bytes, 0);
  });
}
cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream) {
  return api("cudaMemsetAsync", [=] { return set_async(p, value, bytes, stream); });
}
}
