/* The kernels of a Mixture-of-Experts layer (cuda/moe.cu) on the emulated GPU: the same cases and
 * the same bits as on the CPU. */
#include <cuda_runtime.h>
#include <emulation.h>

extern "C" {
#include "support/moe_driver.h"
#include "support/support.h"
}

static void copy(void *to, const void *from, size_t bytes) {
  ck_assert_int_eq(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), cudaSuccess);
}

static const struct moe_driver gpu = {&copse_moe_cuda, 0, copy};

static void start(void) {
  copse_emulated_config config = copse_emulated_defaults();
  config.multiprocessors = 2; /* so that blocks have more rows than one */
  copse_emulated_configure(&config);
}

static void end(void) {
  ck_assert_int_eq(cudaDeviceSynchronize(), cudaSuccess);
  ck_assert_int_eq(copse_emulated_leaks(), 0);
  ck_assert_int_eq(copse_emulated_misuses(), 0);
}

START_TEST(random_layers_are_those_of_the_reference) {
  uint64_t state = 11;
  start();
  for (int i = 0; i < 12; i++) {
    struct moe_options options = moe_options_random(&state);
    moe_drive(&gpu, &options, &state);
  }
  end();
}
END_TEST

/* Many tokens: runs of several tokens a thread, blocks of several rows, rows of several units. */
START_TEST(large_layers_are_those_of_the_reference) {
  uint64_t state = 12;
  start();
  for (int i = 0; i < 4; i++) {
    struct moe_options options = moe_options_random(&state);
    options.n_ranks = 2;
    options.config.n_experts = 3;
    options.config.max_tokens = 300;
    options.config.capacity = i % 2 ? COPSE_MOE_EXACT : 100;
    options.config.padded = i == 0;
    options.config.row.elements = i % 2 ? 520 : 77;
    options.routing = i % 2 ? MOE_UNIFORM : MOE_DROPPED;
    moe_drive(&gpu, &options, &state);
  }
  end();
}
END_TEST

START_TEST(every_float_type_is_scaled_and_summed_bit_for_bit) {
  uint64_t state = 13;
  start();
  for (int type = COPSE_HALF; type < COPSE_N_TYPES; type++) {
    struct moe_options options = {};
    options.n_ranks = 2;
    options.config.n_experts = 2;
    options.config.top_k = 2;
    options.config.max_tokens = 9;
    options.config.capacity = COPSE_MOE_EXACT;
    options.config.row = {19, (copse_type)type};
    options.weights = options.scales = true;
    moe_drive(&gpu, &options, &state);
  }
  end();
}
END_TEST

START_TEST(memory_that_is_not_there_is_reported) {
  struct copse_err err = COPSE_ERR_INIT;
  void *memory;
  start();
  ASSERT_FAILS(copse_moe_cuda.take(0, (uint64_t)1 << 50, &memory, &err), COPSE_NOMEM, &err,
               "cudaMalloc");
  ck_assert_ptr_null(memory);
  static const char *const calls[] = {"cudaMemset", "cudaDeviceSynchronize"};
  for (const char *call : calls) {
    err = COPSE_ERR_INIT;
    copse_emulated_fail(call, 1, cudaErrorLaunchFailure);
    ASSERT_FAILS(copse_moe_cuda.take(0, 1000, &memory, &err), COPSE_DEVICE, &err, call);
    ck_assert_ptr_null(memory);
  }
  ck_assert_int_eq(copse_emulated_leaks(), 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("runtime/moe_emulated");
  TCase *tc = tcase_create("moe_emulated");
  tcase_add_test(tc, random_layers_are_those_of_the_reference);
  tcase_add_test(tc, large_layers_are_those_of_the_reference);
  tcase_add_test(tc, every_float_type_is_scaled_and_summed_bit_for_bit);
  tcase_add_test(tc, memory_that_is_not_there_is_reported);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
