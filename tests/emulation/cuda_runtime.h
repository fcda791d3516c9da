/*
 * CUDA for g++ (README.md). The typed forms below are those that nvcc's own header has; each
 * remembers how to call the kernel that it is given, so that the untyped forms work from then
 * on with the same kernel's address.
 */
#ifndef COPSE_EMULATED_CUDA_RUNTIME_H
#define COPSE_EMULATED_CUDA_RUNTIME_H

#include <tuple>
#include <utility>

#include "cuda_runtime_api.h"
#include "device_language.h"

/* How to copy the arguments of a kernel at launch, and to call it with them later. */
struct copse_emulated_signature {
  size_t bytes; /* of all arguments */
  void *(*copy)(void **args);
  void (*call)(const void *kernel, const void *copied);
  void (*free)(void *copied);
};
__attribute__((visibility("default"))) /* also to libraries with kernels */
void copse_emulated_register(const void *kernel, const copse_emulated_signature *signature);

template <class... P>
struct copse_emulated_caller {
  static_assert((std::is_trivially_copyable<P>::value && ...),
                "a kernel's parameters must be trivially copyable");
  typedef std::tuple<P...> values;
  template <size_t... I>
  static values gather(void **args, std::index_sequence<I...>) {
    (void)args; /* a kernel without parameters */
    return values(*static_cast<const P *>(args[I])...);
  }
  static void *copy(void **args) {
    return new values(gather(args, std::index_sequence_for<P...>()));
  }
  static void call(const void *kernel, const void *copied) {
    std::apply(reinterpret_cast<void (*)(P...)>(const_cast<void *>(kernel)),
               *static_cast<const values *>(copied));
  }
  static void free(void *copied) { delete static_cast<values *>(copied); }
  static constexpr copse_emulated_signature signature = {(sizeof(P) + ... + 0), copy, call, free};
};

/* Registers a kernel and returns it without its type: for tables of kernels. */
template <class... P>
const void *copse_emulated_kernel(void (*kernel)(P...)) {
  const void *address = reinterpret_cast<const void *>(kernel);
  copse_emulated_register(address, &copse_emulated_caller<P...>::signature);
  return address;
}

template <class... P>
cudaError_t cudaLaunchKernel(void (*kernel)(P...), dim3 grid, dim3 block, void **args,
                             size_t shared = 0, cudaStream_t stream = 0) {
  return cudaLaunchKernel(copse_emulated_kernel(kernel), grid, block, args, shared, stream);
}
template <class... P>
cudaError_t cudaLaunchCooperativeKernel(void (*kernel)(P...), dim3 grid, dim3 block, void **args,
                                        size_t shared = 0, cudaStream_t stream = 0) {
  return cudaLaunchCooperativeKernel(copse_emulated_kernel(kernel), grid, block, args, shared,
                                     stream);
}
template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(P...), A &&...a) {
  std::tuple<P...> values(std::forward<A>(a)...);
  return std::apply(
      [&](P &...value) {
        void *args[] = {&value..., nullptr};
        return cudaLaunchKernelExC(config, copse_emulated_kernel(kernel), args);
      },
      values);
}
/* nvcc takes the kernel as `const void *` here; typed, it needs no cast in either compiler. */
template <class... P>
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, void (*kernel)(P...),
                                void **args) {
  return cudaLaunchKernelExC(config, copse_emulated_kernel(kernel), args);
}
template <class... P>
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attr, void (*kernel)(P...)) {
  return cudaFuncGetAttributes(attr, copse_emulated_kernel(kernel));
}
template <class... P>
cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), enum cudaFuncAttribute attr, int value) {
  return cudaFuncSetAttribute(copse_emulated_kernel(kernel), attr, value);
}
template <class... P>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void (*kernel)(P...),
                                                          int threads, size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, copse_emulated_kernel(kernel),
                                                       threads, shared);
}

template <class T>
cudaError_t cudaMalloc(T **p, size_t bytes) {
  return cudaMalloc(reinterpret_cast<void **>(p), bytes);
}
template <class T>
cudaError_t cudaMallocAsync(T **p, size_t bytes, cudaStream_t stream) {
  return cudaMallocAsync(reinterpret_cast<void **>(p), bytes, stream);
}
template <class T>
cudaError_t cudaHostAlloc(T **p, size_t bytes, unsigned flags) {
  return cudaHostAlloc(reinterpret_cast<void **>(p), bytes, flags);
}
template <class T>
cudaError_t cudaMallocHost(T **p, size_t bytes) {
  return cudaMallocHost(reinterpret_cast<void **>(p), bytes);
}
template <class T>
cudaError_t cudaHostGetDevicePointer(T **p, void *host, unsigned flags) {
  return cudaHostGetDevicePointer(reinterpret_cast<void **>(p), host, flags);
}

#endif
