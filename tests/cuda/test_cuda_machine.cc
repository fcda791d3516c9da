/* The CUDA machine on emulated GPUs: the kernels and host code of src/runtime/cuda, run by CPU
 * threads against the CPU executors' test data. */

#include "cuda/device_case.h"
#include "emulation/emulation.h"

extern "C" {
#include "support/support.h"
}

extern uint32_t copse_cuda_threads;

static const struct pb_options small = {2, 2, 2, 3, 512, 64};

static void setup(void) {
  copse_emulated_config config = copse_emulated_defaults();
  config.devices = 3;
  config.multiprocessors = 64;
  copse_emulated_configure(&config);
  copse_cuda_threads = 3;
}

static void teardown(void) {
  ck_assert_int_eq(copse_emulated_misuses(), 0);
  ck_assert_int_eq(copse_emulated_leaks(), 0);
}

static struct copse_plan *tree_plan(copse_collective collective, uint32_t n) {
  return pb_tree_plan(collective, n, exec_case_root(collective, n), small);
}

/* Every collective, type, reduction and a few counts, in and out of place. */
START_TEST(every_collective_is_right) {
  const copse_collective collective = (copse_collective)_i;
  static const uint64_t counts[] = {1, 37, 1000};
  struct copse_plan *plan = tree_plan(collective, 3);
  struct device_plan d;
  device_plan_open(&d, plan, 1, ONE_STREAM);
  int redops = copse_collective_reduces(collective) ? COPSE_N_REDOPS : 1;
  for (int type = 0; type < COPSE_N_TYPES; type++)
    for (int redop = 0; redop < redops; redop++)
      for (int k = 0; k < 3; k++) {
        bool in_place = copse_buffers_has_in_place(collective) && (type + redop + k) % 2;
        struct exec_case it = {(copse_type)type, (copse_redop)redop, counts[k], in_place};
        DEVICE_ASSERT(device_case_run(&d, it) == 0, "%s of %llu %s, %s, in place %d",
                      copse_collective_name(collective), (unsigned long long)it.count,
                      copse_type_name(it.type), copse_redop_name(it.redop), in_place);
        if (k == 2)
          DEVICE_ASSERT(device_case_compare(&d, it, (uint64_t)(type * 7 + redop)) == 0,
                        "bits of %s of %s, %s", copse_collective_name(collective),
                        copse_type_name(it.type), copse_redop_name(it.redop));
      }
  device_plan_close(&d);
  pb_free(plan);
}
END_TEST

START_TEST(devices_and_streams_of_their_own) {
  const copse_collective collective = (copse_collective)_i;
  struct copse_plan *plan = tree_plan(collective, 4);
  for (int devices = 1; devices <= 3; devices++) {
    struct device_plan d;
    device_plan_open(&d, plan, devices, STREAM_PER_RANK);
    for (int round = 0; round < 4; round++) {
      struct exec_case it = {COPSE_FLOAT, COPSE_SUM, (uint64_t)(100 + 333 * round), false};
      DEVICE_ASSERT(device_case_run(&d, it) == 0, "%s on %d devices",
                    copse_collective_name(collective), devices);
    }
    device_plan_close(&d);
  }
  pb_free(plan);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("cuda/machine");
  TCase *tc = tcase_create("machine");
  tcase_add_checked_fixture(tc, setup, teardown);
  tcase_set_timeout(tc, 120);
  tcase_add_loop_test(tc, every_collective_is_right, 0, COPSE_N_COLLECTIVES);
  tcase_add_loop_test(tc, devices_and_streams_of_their_own, 0, COPSE_N_COLLECTIVES);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
