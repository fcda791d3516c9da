/* Which groups of sends and receives are all-to-alls. */
#include "dropin/calls.h"

#include <string.h>

#include "nccl/nccl_support.h"

static char in[4096], out[4096];
static struct copse_nccl_call calls[64], found[8];
static size_t n_calls, n_found;

static struct copse_nccl_call send_to(int peer, size_t count) {
  return (struct copse_nccl_call){.function = COPSE_NCCL_SEND,
                                  .send = in + (size_t)peer * count * 4,
                                  .count = count,
                                  .type = NCCL_INT32,
                                  .root = peer};
}

static struct copse_nccl_call recv_from(int peer, size_t count) {
  return (struct copse_nccl_call){.function = COPSE_NCCL_RECV,
                                  .recv = out + (size_t)peer * count * 4,
                                  .count = count,
                                  .type = NCCL_INT32,
                                  .root = peer};
}

/* As PyTorch and nccl-tests issue it. */
static void add_exchange(size_t count) {
  for (int peer = 0; peer < N; peer++) {
    calls[n_calls++] = send_to(peer, count);
    calls[n_calls++] = recv_from(peer, count);
  }
}

static void setup(void) {
  n_calls = 0;
  add_exchange(5);
}

static size_t find(void) {
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(copse_nccl_find_exchanges(calls, n_calls, N, found, &n_found, &err), &err);
  return n_found;
}

START_TEST(the_usual_pattern_is_one_all_to_all) {
  ck_assert_uint_eq(find(), 1);
  ck_assert_int_eq(found[0].function, COPSE_NCCL_ALL_TO_ALL);
  ck_assert_ptr_eq(found[0].send, in);
  ck_assert_ptr_eq(found[0].recv, out);
  ck_assert_uint_eq(found[0].count, 5);
  ck_assert_uint_eq(found[0].type, NCCL_INT32);
}
END_TEST

START_TEST(the_order_of_calls_does_not_matter) {
  uint64_t state = (uint64_t)_i;
  for (int i = 2 * N - 1; i > 0; i--) {
    int j = copse_test_random_int(&state, 0, i);
    struct copse_nccl_call tmp = calls[i];
    calls[i] = calls[j];
    calls[j] = tmp;
  }
  ck_assert_uint_eq(find(), 1);
  ck_assert_ptr_eq(found[0].send, in);
  ck_assert_ptr_eq(found[0].recv, out);
}
END_TEST

START_TEST(several_rounds_are_several_all_to_alls) {
  add_exchange(9); /* of another count */
  calls[2 * N].stream = NULL;
  ck_assert_uint_eq(find(), 2);
  ck_assert_uint_eq(found[0].count, 5);
  ck_assert_uint_eq(found[1].count, 9);
}
END_TEST

START_TEST(near_misses_are_none) {
  struct copse_nccl_call *c = &calls[4];
  switch (_i) {
    case 0: c->count++; break;                          /* an uneven count */
    case 1: n_calls--; break;                           /* no receive from the last */
    case 2: n_calls -= 2; break;                        /* a peer less */
    case 3: c->root = 3; break;                         /* one peer twice, another never */
    case 4: c->type = NCCL_FLOAT; break;                /* another type */
    case 5: c->send = (const char *)c->send + 4; break; /* another place */
    case 6: c->stream = (cudaStream_t)in; break;        /* another stream */
    case 7: c->root = N; break;                         /* nobody */
    case 8: c->root = -1; break;
    case 9: calls[n_calls++] = send_to(1, 5); break; /* one more */
    case 10:
      add_exchange(9);
      calls[9].count++;
      break;
    case 11:
      for (int i = 0; i < 2 * N; i += 2) calls[i].send = calls[i + 1].recv; /* in place */
      break;
    case 12: /* blocks in the order of ranks backwards */
      for (int i = 0; i < 2 * N; i += 2) calls[i].send = in + (3 - i / 2) * 20;
      break;
    case 13:
      c->function = COPSE_NCCL_RECV;
      c->recv = out;
      break;
    case 14: n_calls = 0; break;
    case 16: /* nothing to move */
      for (int i = 0; i < 2 * N; i++) calls[i].count = 0;
      break;
    case 15:
      for (int i = 0; i < 2 * N; i++) calls[i].count = SIZE_MAX / 2;
      break;
  }
  ck_assert_uint_eq(find(), 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("nccl/exchange");
  TCase *tc = tcase_create("exchange");
  tcase_add_checked_fixture(tc, setup, NULL);
  tcase_add_test(tc, the_usual_pattern_is_one_all_to_all);
  tcase_add_loop_test(tc, the_order_of_calls_does_not_matter, 0, 20);
  tcase_add_test(tc, several_rounds_are_several_all_to_alls);
  tcase_add_loop_test(tc, near_misses_are_none, 0, 17);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
