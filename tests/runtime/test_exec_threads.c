/* The threads executor: right, the same bits as the cooperative one, and never hanging. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/exec_support.h"
#include "support/plan_builder.h"
#include "support/support.h"

static const uint64_t counts[] = {0, 1, 17, 1000, UINT64_MAX};
static const struct pb_options small_chunks = {2, 2, 2, 16, 256, 64};
static const struct pb_options deep_fifo = {1, 3, 5, 64, 4096, 16};

#define N_COLLECTIVES 6

START_TEST(every_collective_is_right) {
  copse_collective collective = (copse_collective)_i;
  int32_t root = exec_case_root(collective, 4);
  struct copse_plan *plan = pb_tree_plan(collective, 4, root, small_chunks);
  exec_check_all(plan, COPSE_BACKEND_THREADS, counts);
  pb_free(plan);
}
END_TEST

/* Values whose sums round differently in every order. */
static void fill_rough(void *memory, uint64_t bytes, enum copse_type type, uint64_t *state) {
  for (uint64_t i = 0; i < bytes / copse_type_bytes(type); i++) {
    double v = (double)copse_test_random_int(state, -1000000, 1000000) / 12345.0;
    uint64_t bits = copse_test_random(state);
    switch (type) {
      case COPSE_FLOAT: ((float *)memory)[i] = (float)v; break;
      case COPSE_DOUBLE: ((double *)memory)[i] = v; break;
      /* exponents in the middle of the small types */
      case COPSE_HALF: ((uint16_t *)memory)[i] = (uint16_t)((bits & 0x8fff) + 0x3000); break;
      case COPSE_BFLOAT16: ((uint16_t *)memory)[i] = (uint16_t)((bits & 0x81ff) + 0x3e80); break;
      case COPSE_FLOAT8_E4M3: ((uint8_t *)memory)[i] = (uint8_t)((bits & 0x9f) + 0x28); break;
      case COPSE_FLOAT8_E5M2: ((uint8_t *)memory)[i] = (uint8_t)((bits & 0x9f) + 0x34); break;
      default: memcpy((char *)memory + i * copse_type_bytes(type), &bits, copse_type_bytes(type));
    }
  }
}

static void *allocate(uint64_t bytes) {
  void *p = calloc(bytes ? bytes : 1, 1);
  if (!p) abort();
  return p;
}

/* The outputs of all ranks, one after the other. */
static unsigned char *run_rough(const struct copse_plan *plan, enum copse_backend backend,
                                struct exec_case it) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_exec *exec;
  uint64_t state = it.count, bytes = it.count * copse_type_bytes(it.type);
  uint64_t in_bytes = plan->header.input_blocks * bytes;
  uint64_t out_bytes = plan->header.output_blocks * bytes;
  uint32_t n = plan->header.n_ranks;
  unsigned char *in = allocate(n * in_bytes), *out = allocate(n * out_bytes);
  void **inputs = allocate(n * sizeof(void *)), **outputs = allocate(n * sizeof(void *));
  fill_rough(in, n * in_bytes, it.type, &state);
  for (uint32_t r = 0; r < n; r++) {
    inputs[r] = in + r * in_bytes;
    outputs[r] = out + r * out_bytes;
  }
  ASSERT_OK(copse_exec_new(plan, backend, &exec, &err), &err);
  const struct copse_launch launch = {it.count, it.type, it.redop, inputs, outputs, NULL};
  ASSERT_OK(copse_exec_run(exec, &launch, &err), &err);
  copse_exec_free(exec);
  free(in);
  free(inputs);
  free(outputs);
  return out;
}

START_TEST(bits_are_those_of_the_cooperative_executor) {
  int n = 0;
  for (int c = 0; c < N_COLLECTIVES; c++)
    for (int type = 0; type < COPSE_N_TYPES; type++)
      for (int redop = 0; redop < COPSE_N_REDOPS; redop++) {
        copse_collective collective = (copse_collective)c;
        if (n++ % COPSE_TEST_ONE_IN) continue;
        struct copse_plan *plan =
            pb_tree_plan(collective, 5, exec_case_root(collective, 5), deep_fifo);
        struct exec_case it = {(enum copse_type)type, (enum copse_redop)redop, 777, false};
        unsigned char *a = run_rough(plan, COPSE_BACKEND_CPU, it);
        unsigned char *b = run_rough(plan, COPSE_BACKEND_THREADS, it);
        uint64_t bytes = 5 * plan->header.output_blocks * 777 * copse_type_bytes(it.type);
        ck_assert_msg(memcmp(a, b, bytes) == 0, "%s %s %s differs",
                      copse_collective_name(collective), copse_type_name(it.type),
                      copse_redop_name(it.redop));
        free(a);
        free(b);
        pb_free(plan);
      }
}
END_TEST

START_TEST(many_launches_of_changing_size_follow_each_other) {
  struct copse_err err = COPSE_ERR_INIT;
  for (int c = 0; c < N_COLLECTIVES; c++) {
    copse_collective collective = (copse_collective)c;
    struct copse_plan *plan =
        pb_tree_plan(collective, 4, exec_case_root(collective, 4), small_chunks);
    struct copse_exec *exec;
    ASSERT_OK(copse_exec_new(plan, COPSE_BACKEND_THREADS, &exec, &err), &err);
    uint64_t state = 1;
    for (int i = 0; i < 60; i++) {
      struct exec_case it = {(enum copse_type)copse_test_random_int(&state, 0, COPSE_N_TYPES - 1),
                             (enum copse_redop)copse_test_random_int(&state, 0, COPSE_N_REDOPS - 1),
                             (uint64_t)copse_test_random_int(&state, 0, 500),
                             collective != COPSE_ALLTOALL && copse_test_random_int(&state, 0, 1)};
      ck_assert_uint_eq(exec_case_run(exec, plan, it), 0);
    }
    copse_exec_free(exec);
    pb_free(plan);
  }
}
END_TEST

START_TEST(hundreds_of_threads_run) {
  struct copse_err err = COPSE_ERR_INIT;
  struct pb_options options = {4, 2, 2, 8, 1 << 16, 64};
  struct copse_plan *plan = pb_tree_plan(COPSE_ALLREDUCE, 40, -1, options);
  struct copse_exec *exec;
  ASSERT_OK(copse_exec_new(plan, COPSE_BACKEND_THREADS, &exec, &err), &err);
  for (int i = 0; i < 5; i++)
    ck_assert_uint_eq(
        exec_case_run(exec, plan, (struct exec_case){COPSE_FLOAT, COPSE_SUM, 3000, i % 2}), 0);
  copse_exec_free(exec);
  pb_free(plan);
}
END_TEST

START_TEST(an_executor_that_never_ran_is_freed) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_plan *plan = pb_tree_plan(COPSE_ALLREDUCE, 8, -1, small_chunks);
  struct copse_exec *exec;
  ASSERT_OK(copse_exec_new(plan, COPSE_BACKEND_THREADS, &exec, &err), &err);
  copse_exec_free(exec);
  pb_free(plan);
}
END_TEST

/* Two ranks that wait for each other, and a third that works on. */
START_TEST(a_stall_is_reported_with_names_and_ends) {
  struct copse_err err = COPSE_ERR_INIT;
  struct plan_builder *b = pb_new(COPSE_BROADCAST, 3, 0);
  uint32_t piece = pb_piece(b, 0, 1, 1, 1);
  uint32_t w0 = pb_worker(b, 0), w1 = pb_worker(b, 1), w2 = pb_worker(b, 2);
  uint32_t forth = pb_channel(b, w0, w1), back = pb_channel(b, w1, w0);
  pb_wait(b, w0, back, COPSE_WHEN_ALWAYS);
  pb_signal(b, w0, forth, COPSE_WHEN_ALWAYS);
  pb_wait(b, w1, forth, COPSE_WHEN_ALWAYS);
  pb_signal(b, w1, back, COPSE_WHEN_ALWAYS);
  pb_move(b, w2, piece, 0);
  pb_src(b, pb_input(2, 0));
  pb_dst(b, pb_output(2, 0));
  struct copse_plan *plan = pb_finish(b);
  struct copse_exec *exec;
  ASSERT_OK(copse_plan_validate(plan, "plan", &err), &err);
  ASSERT_OK(copse_exec_new(plan, COPSE_BACKEND_THREADS, &exec, &err), &err);
  copse_exec_set_stall_seconds(exec, 0.3);
  struct exec_case it = {COPSE_FLOAT, COPSE_SUM, 1000, false};
  time_t start = time(NULL);
  ck_assert_int_eq(exec_case_status(exec, plan, it, &err), COPSE_REFUTED);
  ck_assert_int_lt(time(NULL) - start, 20);
  ck_assert_str_eq(err.text,
                   "nothing moved for 0.3 s: rank 0 worker 0 waits for rank 1 worker 0 (channel 1, "
                   "chunk 0), which waits for rank 0 worker 0 (channel 0, chunk 0)");
  copse_exec_free(exec);
  pb_free(plan);
}
END_TEST

START_TEST(a_signal_that_nobody_takes_is_refused) {
  struct copse_err err = COPSE_ERR_INIT;
  struct plan_builder *b = pb_new(COPSE_BROADCAST, 2, 0);
  uint32_t w0 = pb_worker(b, 0), w1 = pb_worker(b, 1);
  pb_signal(b, w0, pb_channel(b, w0, w1), COPSE_WHEN_ALWAYS);
  struct copse_plan *plan = pb_finish(b);
  struct copse_exec *exec;
  ASSERT_OK(copse_exec_new(plan, COPSE_BACKEND_THREADS, &exec, &err), &err);
  ASSERT_FAILS(exec_case_status(exec, plan, (struct exec_case){.count = 1}, &err), COPSE_REFUTED,
               &err, "channel 0 from rank 0 worker 0 to rank 1 worker 0 is unbalanced: 1 more");
  copse_exec_free(exec);
  pb_free(plan);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("runtime/exec_threads");
  TCase *tc = tcase_create("exec_threads");
  tcase_add_loop_test(tc, every_collective_is_right, 0, N_COLLECTIVES);
  tcase_add_test(tc, bits_are_those_of_the_cooperative_executor);
  tcase_add_test(tc, many_launches_of_changing_size_follow_each_other);
  tcase_add_test(tc, hundreds_of_threads_run);
  tcase_add_test(tc, an_executor_that_never_ran_is_freed);
  tcase_add_test(tc, a_stall_is_reported_with_names_and_ends);
  tcase_add_test(tc, a_signal_that_nobody_takes_is_refused);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
