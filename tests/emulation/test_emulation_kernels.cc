/* Emulated kernels: barriers, warps, launches, residency, and kernels that wait for others. */
#include <cooperative_groups.h>
#include <signal.h>

#include "emulation_tests.h"

static inline __global__ void add_kernel(AddArgs a) {
  a.data[blockIdx.x * blockDim.x + threadIdx.x] += a.value;
}
struct ShiftArgs {
  int *out;
  int rounds;
};
/* Each round a thread takes its neighbour's value of the round before. Plain memory: the
 * barriers alone order it. */
static __global__ void shift_kernel(ShiftArgs a) {
  int *shared = static_cast<int *>(copse_emulated_shared());
  unsigned n = blockDim.x, me = threadIdx.x;
  shared[me] = (int)me;
  for (int round = 0; round < a.rounds; round++) {
    __syncthreads();
    int value = shared[(me + 1) % n];
    __syncthreads();
    shared[me] = value;
  }
  a.out[blockIdx.x * n + me] = shared[me];
}

START_TEST(barriers_order_the_threads_of_a_block) {
  for (unsigned threads : {1u, 4u, 33u, 64u}) {
    const unsigned blocks = 3;
    const int rounds = 40;
    int *out = new_device<int>(blocks * threads);
    launch(shift_kernel, blocks, threads, ShiftArgs{out, rounds}, cudaStream_t(0),
           threads * sizeof(int));
    std::vector<int> values = read_back(out, blocks * threads);
    for (unsigned i = 0; i < blocks * threads; i++)
      ck_assert_int_eq(values[i], (int)((i % threads + rounds) % threads));
    OK(cudaFree(out));
  }
  finish(0);
}
END_TEST

#if defined(__SANITIZE_THREAD__)
static __global__ void racing_kernel(ShiftArgs a) {
  int *shared = static_cast<int *>(copse_emulated_shared());
  shared[threadIdx.x] = (int)threadIdx.x;
  a.out[threadIdx.x] = shared[(threadIdx.x + 1) % blockDim.x]; /* a barrier is missing */
}

/* Threads take turns on one core, and yet ThreadSanitizer must know them apart: then the program
 * ends with its status, 66. */
START_TEST(a_race_within_a_block_is_found) {
  int *out = new_device<int>(4);
  launch(racing_kernel, 1, 4, ShiftArgs{out, 0}, cudaStream_t(0), 4 * sizeof(int));
  OK(cudaStreamSynchronize(0));
  OK(cudaFree(out));
}
END_TEST
#endif

static __global__ void flag_kernel(ShiftArgs a) {
  volatile char room[20000]; /* of a stack of its own */
  for (int i = 0; i < 20000; i += 1000) room[i] = (char)threadIdx.x;
  if (threadIdx.x == 0) /* the others come to their barrier, or to the end, meanwhile */
    while (!__atomic_load_n(&a.out[7], __ATOMIC_ACQUIRE)) __nanosleep(100);
  if (threadIdx.x == 1) __atomic_store_n(&a.out[7], 1, __ATOMIC_RELEASE);
  __syncthreads();
  a.out[threadIdx.x] = room[19000];
}

START_TEST(threads_of_a_block_wait_for_each_other_in_loops) {
  int *out = new_device<int>(8);
  OK(cudaMemset(out, 0, 8 * sizeof *out));
  launch(flag_kernel, 1, 7, ShiftArgs{out, 0}, cudaStream_t(0));
  std::vector<int> values = read_back(out, 8);
  for (int i = 0; i < 7; i++) ck_assert_int_eq(values[(size_t)i], i);
  OK(cudaFree(out));
  finish(0);
}
END_TEST

static __global__ void two_barriers_kernel(ShiftArgs) {
  if (threadIdx.x % 2)
    __syncthreads();
  else
    __syncwarp();
}

/* Aborts: on a GPU it would hang. */
START_TEST(threads_at_different_barriers_are_told_of) {
  launch(two_barriers_kernel, 1, 4, ShiftArgs{nullptr, 0}, cudaStream_t(0));
  (void)cudaDeviceSynchronize();
}
END_TEST

struct VoteArgs {
  int *out; /* [thread][4] */
};
static __global__ void vote_kernel(VoteArgs a) {
  int me = (int)threadIdx.x;
  if (me >= 6) return; /* who has left isn't waited for */
  int *mine = a.out + 4 * me;
  mine[0] = __syncthreads_or(me == 3);
  mine[1] = __syncthreads_or(0);
  mine[2] = __syncthreads_and(me >= 0) + 2 * __syncthreads_and(me > 0);
  mine[3] = __syncthreads_count(me % 2);
}

START_TEST(votes_count_the_threads_that_are_left) {
  int *out = new_device<int>(4 * 8);
  launch(vote_kernel, 1, 8, VoteArgs{out}, cudaStream_t(0));
  std::vector<int> values = read_back(out, 4 * 8);
  for (int i = 0; i < 8; i++) {
    const int expected[4] = {1, 0, 1, 3};
    for (int k = 0; k < 4; k++) ck_assert_int_eq(values[4 * i + k], i < 6 ? expected[k] : 0);
  }
  OK(cudaFree(out));
  finish(0);
}
END_TEST

static __global__ void warp_kernel(VoteArgs a) {
  int me = (int)threadIdx.x, lane = me % warpSize, *mine = a.out + 4 * me;
  int sum = lane;
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  mine[0] = sum;
  mine[1] = (int)__ballot_sync(~0u, lane == 1 || lane == 31);
  mine[2] = __shfl_down_sync(~0u, me, 1);
  mine[3] =
      __shfl_sync(~0u, me, 5) + 1000 * __all_sync(~0u, me < 32) + 2000 * __any_sync(~0u, me == 40);
  __syncwarp();
}

START_TEST(warps_exchange_values) {
  int *out = new_device<int>(4 * 64);
  launch(warp_kernel, 1, 64, VoteArgs{out}, cudaStream_t(0));
  std::vector<int> values = read_back(out, 4 * 64);
  for (int me = 0; me < 64; me++) {
    int warp = me / 32;
    ck_assert_int_eq(values[4 * me], 31 * 32 / 2);
    ck_assert_uint_eq((unsigned)values[4 * me + 1], 0x80000002u);
    ck_assert_int_eq(values[4 * me + 2], me % 32 == 31 ? me : me + 1);
    ck_assert_int_eq(values[4 * me + 3], 32 * warp + 5 + 1000 * (1 + warp));
  }
  OK(cudaFree(out));
  finish(0);
}
END_TEST

struct IndexArgs {
  uint4 *out;
};
static __global__ void index_kernel(IndexArgs a) {
  unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  a.out[block * blockDim.x * blockDim.y * blockDim.z + thread] =
      make_uint4(threadIdx.y, threadIdx.z, blockIdx.y, blockIdx.z);
}

START_TEST(indices_cover_the_grid) {
  const unsigned n = 2 * 3 * 2 * 3 * 2 * 2;
  uint4 *out = new_device<uint4>(n);
  IndexArgs args = {out};
  void *list[] = {&args};
  OK(cudaLaunchKernel(index_kernel, dim3(2, 3, 2), dim3(3, 2, 2), list));
  std::vector<uint4> values = read_back(out, n);
  for (unsigned i = 0; i < n; i++) {
    ck_assert_uint_eq(values[i].x, i / 3 % 2);
    ck_assert_uint_eq(values[i].y, i / 6 % 2);
    ck_assert_uint_eq(values[i].z, i / 12 / 2 % 3);
    ck_assert_uint_eq(values[i].w, i / 12 / 6);
  }
  OK(cudaFree(out));
  finish(0);
}
END_TEST

static __global__ void two_parameters(int *out, AddArgs a) { *out = a.value; }
static __global__ void no_parameters() {}
static __global__ void never_named(AddArgs a) { a.data[0] = -1; }
template <class T>
static __global__ void by_type(AddArgs a) {
  a.data[0] = (int)sizeof(T);
}

START_TEST(kernels_are_launched_in_every_form) {
  int *data = new_device<int>(1);
  AddArgs args = {data, 4};
  void *list[] = {&args};
  cudaLaunchConfig_t config = {};
  config.gridDim = 1;
  config.blockDim = 1;
  OK(cudaLaunchKernel(append_kernel, 1, 1, list, 0, 0));
  args.value = 5; /* the launch has its own copy */
  OK(cudaLaunchKernelEx(&config, append_kernel, args));
  args.value = 6;
  OK(cudaLaunchKernelExC(&config, append_kernel, list));
  args.value = 7;
  OK(cudaLaunchKernelExC(&config, (const void *)append_kernel, list));
  ck_assert_int_eq(read_back(data, 1)[0], 4567);

  EXPECT(cudaLaunchKernelExC(&config, (const void *)never_named, list),
         cudaErrorInvalidDeviceFunction);
  const void *table[] = {copse_emulated_kernel(by_type<char>),
                         copse_emulated_kernel(by_type<double>)};
  OK(cudaLaunchKernelExC(&config, table[1], list));
  ck_assert_int_eq(read_back(data, 1)[0], 8);
  OK(cudaLaunchKernelEx(&config, two_parameters, data, AddArgs{NULL, 21}));
  OK(cudaLaunchKernelEx(&config, no_parameters));
  ck_assert_int_eq(read_back(data, 1)[0], 21);
  EXPECT(cudaLaunchKernel(append_kernel, 1, 1, NULL, 0, 0), cudaErrorInvalidValue);
  OK(cudaFree(data));
  finish(1);
}
END_TEST

static __global__ void fill_shared(AddArgs a) {
  unsigned char *shared = static_cast<unsigned char *>(copse_emulated_shared());
  for (int i = 0; i < a.value; i++) shared[i] = (unsigned char)i;
  a.data[0] = shared[a.value - 1];
}

START_TEST(limits_of_a_launch_are_checked) {
  configure(1, 2, 256, 1 << 20);
  int *data = new_device<int>(1), blocks;
  AddArgs args = {data, 100 << 10};
  void *list[] = {&args};
  EXPECT(cudaLaunchKernel(fill_shared, 0, 1, list), cudaErrorInvalidConfiguration);
  EXPECT(cudaLaunchKernel(fill_shared, 1, 1025, list), cudaErrorInvalidConfiguration);
  EXPECT(cudaLaunchKernel(fill_shared, dim3(1, 65536), 1, list), cudaErrorInvalidConfiguration);
  EXPECT(cudaLaunchKernel(fill_shared, 1, 512, list), cudaErrorLaunchOutOfResources);
  EXPECT(cudaLaunchKernel(fill_shared, 1, 1, list, 100 << 10), cudaErrorInvalidValue);
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fill_shared, 32, 100 << 10));
  ck_assert_int_eq(blocks, 0);
  EXPECT(cudaFuncSetAttribute(fill_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 << 10),
         cudaErrorInvalidValue);
  OK(cudaFuncSetAttribute(fill_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10));
  OK(cudaLaunchKernel(fill_shared, 1, 1, list, 100 << 10));
  ck_assert_int_eq(read_back(data, 1)[0], 255);
  cudaFuncAttributes attributes;
  OK(cudaFuncGetAttributes(&attributes, fill_shared));
  ck_assert_int_eq(attributes.maxDynamicSharedSizeBytes, 100 << 10);
  /* by shared memory 2, by threads 256 / 64 (33 take two warps), by the limit of blocks 8 */
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fill_shared, 32, 100 << 10));
  ck_assert_int_eq(blocks, 2);
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fill_shared, 33, 0));
  ck_assert_int_eq(blocks, 4);
  OK(cudaFree(data));
  finish(0);
}
END_TEST

struct CrowdArgs {
  int *now, *most, *total;
};
/* Counts the blocks that are there at once. */
static __global__ void crowd_kernel(CrowdArgs a) {
  if (threadIdx.x == 0) {
    int now = atomicAdd(a.now, 1) + 1;
    for (int most = 0, seen; most < now; most = seen) {
      seen = atomicCAS(a.most, most, now);
      if (seen == most) break;
    }
    atomicAdd(a.total, 1);
    __nanosleep(200000);
    atomicAdd(a.now, -1);
  }
}

START_TEST(only_blocks_with_room_are_resident) {
  configure(1, 2, 96, 1 << 20); /* room for 2 * 3 blocks of a warp */
  int *counts = new_device<int>(3);
  CrowdArgs args = {counts, counts + 1, counts + 2};
  cudaStream_t streams[2] = {new_stream(cudaStreamNonBlocking), new_stream(cudaStreamNonBlocking)};
  EXPECT(launch_cooperative(crowd_kernel, 7, 2, args, streams[0]),
         cudaErrorCooperativeLaunchTooLarge);
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeCooperative;
  attributes[0].val.cooperative = 1;
  cudaLaunchConfig_t config = {7, 2, 0, streams[0], attributes, 1};
  EXPECT(cudaLaunchKernelEx(&config, crowd_kernel, args), cudaErrorCooperativeLaunchTooLarge);
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {2, 1, 1};
  config.numAttrs = 2;
  EXPECT(cudaLaunchKernelEx(&config, crowd_kernel, args), cudaErrorNotSupported);
  OK(launch_cooperative(crowd_kernel, 6, 2, args, streams[0]));
  OK(launch_cooperative(crowd_kernel, 5, 2, args, streams[1])); /* when the first is done */
  launch(crowd_kernel, 40, 2, args, streams[0]);                /* as blocks leave */
  OK(cudaDeviceSynchronize());
  std::vector<int> values = read_back(counts, 3);
  ck_assert_int_eq(values[0], 0);
  ck_assert_int_le(values[1], 6);
  ck_assert_int_ge(values[1], 2);
  ck_assert_int_eq(values[2], 6 + 5 + 40);
  OK(cudaFree(counts));
  for (cudaStream_t stream : streams) OK(cudaStreamDestroy(stream));
  finish(1);
}
END_TEST

struct HoldArgs {
  int *started, *leave;
};
static __global__ void hold_kernel(HoldArgs a) {
  atomicAdd(a.started, 1);
  while (!atomicAdd(a.leave, 0)) __nanosleep(100);
}

START_TEST(a_cooperative_launch_starts_whole) {
  configure(1, 2, 96, 1 << 20); /* room for 6 blocks */
  int *flags = new_device<int>(4);
  cudaStream_t holder = new_stream(cudaStreamNonBlocking),
               other = new_stream(cudaStreamNonBlocking);
  launch(hold_kernel, 3, 1, HoldArgs{flags, flags + 1}, holder);
  /* the host may look, and write, as with mapped memory */
  while (__atomic_load_n(&flags[0], __ATOMIC_RELAXED) < 3) usleep(100);
  OK(launch_cooperative(hold_kernel, 6, 1, HoldArgs{flags + 2, flags + 1}, other));
  usleep(20000);
  ck_assert_int_eq(__atomic_load_n(&flags[2], __ATOMIC_RELAXED), 0);
  __atomic_store_n(&flags[1], 1, __ATOMIC_RELAXED);
  OK(cudaDeviceSynchronize());
  ck_assert_int_eq(read_back(flags, 3)[2], 6);
  OK(cudaFree(flags));
  OK(cudaStreamDestroy(holder));
  OK(cudaStreamDestroy(other));
  finish(0);
}
END_TEST

struct GridArgs {
  int *values, *sums;
};
static __global__ void grid_kernel(GridArgs a) {
  auto grid = cooperative_groups::this_grid();
  unsigned me = (unsigned)grid.thread_rank(), n = (unsigned)grid.size();
  a.values[me] = (int)me;
  grid.sync();
  for (unsigned i = 0; i < n; i++) a.sums[me] += a.values[i];
}

START_TEST(a_cooperative_grid_is_synchronised) {
  const int blocks = 6, threads = 4, n = blocks * threads;
  int *data = new_device<int>(2 * n);
  OK(launch_cooperative(grid_kernel, blocks, threads, GridArgs{data, data + n}, 0));
  for (int sum : read_back(data + n, n)) ck_assert_int_eq(sum, n * (n - 1) / 2);
  OK(cudaFree(data));
  finish(0);
}
END_TEST

static __global__ void part_of_grid_kernel(GridArgs) {
  if (blockIdx.x > 0) cooperative_groups::this_grid().sync();
}

/* Aborts: on a GPU it would hang. */
START_TEST(a_block_that_leaves_does_not_meet_the_grid) {
  (void)launch_cooperative(part_of_grid_kernel, 2, 3, GridArgs{nullptr, nullptr}, 0);
  (void)cudaDeviceSynchronize();
}
END_TEST

START_TEST(kernels_of_two_streams_or_devices_wait_for_each_other) {
  configure(2, 2, 256, 1 << 20);
  const int rounds = 9;
  for (int second = 0; second < 2; second++) {
    OK(cudaSetDevice(0));
    uint32_t *flags = new_device<uint32_t>(2);
    unsigned *data = new_device<unsigned>(1);
    cudaStream_t streams[2];
    for (int k = 0; k < 2; k++) {
      OK(cudaSetDevice(k * second));
      streams[k] = new_stream(cudaStreamNonBlocking);
      launch(ping_kernel, 1, 4, PingArgs{flags + k, flags + 1 - k, data, rounds, k}, streams[k]);
    }
    for (cudaStream_t stream : streams) OK(cudaStreamSynchronize(stream));
    ck_assert_uint_eq(read_back(data, 1)[0], ping_result(rounds));
    OK(cudaFree(flags));
    OK(cudaFree(data));
    for (cudaStream_t stream : streams) OK(cudaStreamDestroy(stream));
  }
  finish(0);
}
END_TEST

struct FenceArgs {
  int *data, *flag, *out;
};
static __global__ void fence_kernel(FenceArgs a) {
  if (blockIdx.x == 0) {
    a.data[0] = 42;
    __threadfence();
    atomicExch(a.flag, 1);
  } else {
    while (!atomicAdd(a.flag, 0)) __nanosleep(100);
    __threadfence();
    a.out[0] = a.data[0];
  }
}

START_TEST(fences_order_plain_memory) {
  int *data = new_device<int>(3);
  OK(launch_cooperative(fence_kernel, 2, 1, FenceArgs{data, data + 1, data + 2}, 0));
  ck_assert_int_eq(read_back(data, 3)[2], 42);
  OK(cudaFree(data));
  finish(0);
}
END_TEST

START_TEST(thousands_of_small_kernels) {
  cudaStream_t stream = new_stream(cudaStreamNonBlocking);
  int *data = new_device<int>(8);
  for (int i = 0; i < 1500; i++) launch(add_kernel, 2, 4, AddArgs{data, i % 7}, stream);
  OK(cudaStreamSynchronize(stream));
  int expected = 0;
  for (int i = 0; i < 1500; i++) expected += i % 7;
  for (int value : read_back(data, 8)) ck_assert_int_eq(value, expected);
  OK(cudaFree(data));
  OK(cudaStreamDestroy(stream));
  finish(0);
}
END_TEST

static Suite *suite() {
  Suite *s = suite_create("emulation/kernels");
  TCase *t = tcase_create("kernels");
  tcase_add_test(t, barriers_order_the_threads_of_a_block);
#if defined(__SANITIZE_THREAD__)
  tcase_add_exit_test(t, a_race_within_a_block_is_found, 66);
#endif
  tcase_add_test(t, threads_of_a_block_wait_for_each_other_in_loops);
  tcase_add_test_raise_signal(t, threads_at_different_barriers_are_told_of, SIGABRT);
  tcase_add_test(t, votes_count_the_threads_that_are_left);
  tcase_add_test(t, warps_exchange_values);
  tcase_add_test(t, indices_cover_the_grid);
  tcase_add_test(t, kernels_are_launched_in_every_form);
  tcase_add_test(t, limits_of_a_launch_are_checked);
  tcase_add_test(t, only_blocks_with_room_are_resident);
  tcase_add_test(t, a_cooperative_launch_starts_whole);
  tcase_add_test(t, a_cooperative_grid_is_synchronised);
  tcase_add_test_raise_signal(t, a_block_that_leaves_does_not_meet_the_grid, SIGABRT);
  tcase_add_test(t, kernels_of_two_streams_or_devices_wait_for_each_other);
  tcase_add_test(t, fences_order_plain_memory);
  tcase_add_test(t, thousands_of_small_kernels);
  suite_add_tcase(s, t);
  return s;
}

int main() { return copse_test_run(suite()); }
