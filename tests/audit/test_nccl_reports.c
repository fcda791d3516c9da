/* Output of nccl-tests, rccl-tests, nvbandwidth, RAS, Inspector and flight recorder: told apart,
 * read exactly, and refused or read in part where it is damaged. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "nccl/calls.h"
#include "nccl/log.h"
#include "nccl/reports.h"
#include "support/support.h"
#include "topology/input/profile.h"

static const struct {
  const char *name;
  unsigned kinds;
} samples[] = {{"nccl/nccl-2.18.1.log", COPSE_NCCL_IS_LOG},
               {"nccl/nccl-2.20.5-2hosts.log", COPSE_NCCL_IS_LOG},
               {"nccl/nccl-2.29-split.log", COPSE_NCCL_IS_LOG},
               {"nccl/all_reduce_2.19.txt", COPSE_NCCL_IS_LOG | COPSE_NCCL_IS_TESTS},
               {"nccl/all_reduce_2.9.txt", COPSE_NCCL_IS_TESTS},
               {"nccl/all_reduce_2.19.json", COPSE_NCCL_IS_TESTS},
               {"nccl/rccl-tests.csv", COPSE_NCCL_IS_TESTS},
               {"nccl/rccl-tests.json", COPSE_NCCL_IS_TESTS},
               {"nccl/rccl-tests-in-place.txt", COPSE_NCCL_IS_TESTS},
               {"nccl/nvbandwidth-2.txt", COPSE_NCCL_IS_NVBANDWIDTH},
               {"nccl/nvbandwidth-2.json", COPSE_NCCL_IS_NVBANDWIDTH},
               {"nccl/ras.txt", COPSE_NCCL_IS_RAS},
               {"nccl/ras.json", COPSE_NCCL_IS_RAS},
               {"nccl/ras-monitor.txt", COPSE_NCCL_IS_RAS},
               {"nccl/inspector.log", COPSE_NCCL_IS_CALLS},
               {"nccl/inspector.prom", COPSE_NCCL_IS_CALLS},
               {"nccl/flight-rank0.pickle", COPSE_NCCL_IS_CALLS},
               {"nccl/flight-rank1.json", COPSE_NCCL_IS_CALLS},
               {"dumps/ibm_h100_gx3d.xml", COPSE_NCCL_IS_TOPOLOGY},
               {"dumps/azure_ndv4.xml", COPSE_NCCL_IS_TOPOLOGY},
               {"reference/ring-8.json", COPSE_NCCL_IS_TOPOLOGY},
               {"README.md", 0}};
#define N_SAMPLES ((int)(sizeof samples / sizeof *samples))

START_TEST(kinds_by_content) {
  size_t size = 0;
  COPSE_AT_END(copse_free_at) char *data = copse_test_load(copse_test_data(samples[_i].name), &size);
  ck_assert_msg(copse_nccl_detect(data, size) == samples[_i].kinds, "%s is %s", samples[_i].name,
                copse_nccl_kind_name(copse_nccl_detect(data, size)));
}
END_TEST

static void read_tests(const char *name, struct copse_tests *tests) {
  struct copse_err err = COPSE_ERR_INIT;
  size_t size = 0;
  char *data = copse_test_load(copse_test_data(name), &size);
  ASSERT_OK(copse_tests_parse("t", data, size, tests, &err), &err);
  free(data);
}

static void expect_time(const struct copse_tests_time *time, const char *expected) {
  char text[200] = "none";
  if (time->present)
    snprintf(text, sizeof text, "%s us, %s, %s, %lld", COPSE_Q_STRING(time->time_us),
             COPSE_Q_STRING(time->algbw), COPSE_Q_STRING(time->busbw), (long long)time->wrong);
  ck_assert_str_eq(text, expected);
}

START_TEST(the_table_of_nccl_tests) {
  struct copse_tests t;
  read_tests("nccl/all_reduce_2.19.txt", &t);
  ck_assert_str_eq(t.version, "2.19.6");
  ck_assert_int_eq(t.n_ranks, 2);
  ck_assert_int_eq(t.n_rows, 3);
  ck_assert_str_eq(t.rows[0].collective, "allreduce");
  ck_assert_str_eq(t.rows[0].type, "float");
  ck_assert_str_eq(t.rows[0].redop, "sum");
  ck_assert_int_eq(t.rows[0].bytes, 1024);
  ck_assert_int_eq(t.rows[0].count, 256);
  ck_assert_int_eq(t.rows[0].root, -1);
  expect_time(&t.rows[0].out, "57/4 us, 7/100, 7/100, 0");
  expect_time(&t.rows[1].out, "1000000 us, 3/20, 3/20, -1");
  expect_time(&t.rows[1].in, "699/50 us, 3/20, 3/20, 3");
  expect_time(&t.rows[2].out, "none"); /* a blank block */
  expect_time(&t.rows[2].in, "14 us, 29/100, 29/100, 0");
  ck_assert_int_eq(t.n_devices, 2);
  ck_assert_str_eq(t.devices[1].bus, "0000:43:00");
  ck_assert_str_eq(t.devices[1].name, "NVIDIA H100 80GB HBM3");
  ck_assert_str_eq(t.devices[1].host, "node-a");
  ck_assert_int_eq(t.devices[1].pid, 52817);
  ck_assert_int_eq(t.n_wrong, 1);
  ck_assert(copse_q_eq(t.average_busbw, (struct copse_q){11, 100}));
  ck_assert_int_eq(t.n_damaged, 0);
  copse_tests_free(&t);
}
END_TEST

START_TEST(an_old_table_tells_its_collective_by_its_ratio) {
  struct copse_tests t;
  read_tests("nccl/all_reduce_2.9.txt", &t);
  ck_assert_int_eq(t.n_ranks, 4);
  ck_assert_int_eq(t.n_rows, 1);
  ck_assert_str_eq(t.rows[0].collective, "allreduce");
  ck_assert_int_eq(t.rows[0].root, -1); /* it has no such column */
  ck_assert_str_eq(t.devices[3].bus, "0x61");
  expect_time(&t.rows[0].in, "2099/10 us, 999/25, 1199/20, -1");
  copse_tests_free(&t);
}
END_TEST

START_TEST(json_of_nccl_tests) {
  struct copse_tests t;
  read_tests("nccl/all_reduce_2.19.json", &t);
  ck_assert_int_eq(t.n_rows, 2);
  ck_assert_str_eq(t.rows[0].collective, "allreduce");
  expect_time(&t.rows[0].out, "57/4 us, 3593/50000, 3593/50000, 0");
  expect_time(&t.rows[1].out, "none");
  expect_time(&t.rows[1].in, "699/50 us, 29299/200000, 29299/200000, -1");
  ck_assert_int_eq(t.rows[1].root, -1);
  ck_assert_str_eq(t.devices[0].host, "node-a");
  ck_assert_int_eq(t.n_wrong, 0);
  ck_assert(copse_q_eq(t.average_busbw, (struct copse_q){24353, 250000}));
  copse_tests_free(&t);
}
END_TEST

START_TEST(rccl_tests) {
  struct copse_tests t;
  read_tests("nccl/rccl-tests.csv", &t);
  ck_assert_int_eq(t.n_rows, 2);
  ck_assert_int_eq(t.n_ranks, 8);
  ck_assert_str_eq(t.rows[0].collective, "reduce_scatter");
  expect_time(&t.rows[0].out, "5231/100 us, 401/20, 877/50, 0");
  expect_time(&t.rows[0].in, "none");
  expect_time(&t.rows[1].in, "2551/50 us, 411/20, 899/50, 0");
  copse_tests_free(&t);
  read_tests("nccl/rccl-tests.json", &t);
  ck_assert_int_eq(t.n_rows, 2);
  ck_assert_int_eq(t.n_ranks, 8);
  ck_assert_str_eq(t.rows[1].collective, "allreduce");
  expect_time(&t.rows[0].out, "5231/100 us, 401/20, 877/25, 0");
  expect_time(&t.rows[1].in, "2551/50 us, 411/20, 3597/100, -1");
  copse_tests_free(&t);
  read_tests("nccl/rccl-tests-in-place.txt", &t);
  ck_assert_int_eq(t.n_rows, 1);
  expect_time(&t.rows[0].out, "none");
  expect_time(&t.rows[0].in, "57/4 us, 7/100, 7/100, 0");
  copse_tests_free(&t);
}
END_TEST

/* With -I (four columns behind each #wrong), -S 1 (a time stamp at the end), and launchers' marks.
 */
START_TEST(tables_with_more_columns) {
  static const char head[] =
      "#       size         count      type   redop    root     time   algbw   busbw  #wrong   "
      "i_min "
      "  i_max   i_p99   i_cv%     time   algbw   busbw  #wrong   i_min   i_max   i_p99   i_cv%\n";
  static const char *const texts[] = {
      "1024 256 float sum -1 14.25 0.07 0.08 0 13.1 15.2 15.1 2.5 13.86 0.09 0.10 4 1 2 3 4\n",
      "  1024 256 float sum -1 14.25 0.07 0.08 0 1 2 3 4 13.86 0.09 0.10 4 1 2 3 4 2026-01-02 "
      "03:04:05\n",
      "[1,0]<stdout>: 1024 256 float sum -1 14.25 0.07 0.08 0 1 2 3 4 13.86 0.09 0.10 4 1 2 3 4\n",
      "0:    1024 256 float sum -1 14.25 0.07 0.08 0 1 2 3 4 13.86 0.09 0.10 4 1 2 3 4\n"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    char text[1024];
    struct copse_tests t;
    struct copse_err err = COPSE_ERR_INIT;
    snprintf(text, sizeof text, "%s%s", head, texts[i]);
    ASSERT_OK(copse_tests_parse("t", text, strlen(text), &t, &err), &err);
    ck_assert_int_eq(t.n_rows, 1);
    expect_time(&t.rows[0].out, "57/4 us, 7/100, 2/25, 0");
    expect_time(&t.rows[0].in, "693/50 us, 9/100, 1/10, 4");
    ck_assert_int_eq(t.n_damaged, 0);
    copse_tests_free(&t);
  }
}
END_TEST

static void read_nvbandwidth(const char *name, struct copse_nvbandwidth *out) {
  struct copse_err err = COPSE_ERR_INIT;
  size_t size = 0;
  char *data = copse_test_load(copse_test_data(name), &size);
  ASSERT_OK(copse_nvbandwidth_parse("n", data, size, out, &err), &err);
  free(data);
}

START_TEST(nvbandwidth_arrows) {
  struct copse_nvbandwidth n;
  struct copse_q pairs[4], to_gpu[2], to_host[2];
  read_nvbandwidth("nccl/nvbandwidth-2.txt", &n);
  ck_assert_int_eq(n.n_devices, 2);
  ck_assert_str_eq(n.devices[0].bus, "0000:1b:00");
  ck_assert_str_eq(n.devices[0].name, "NVIDIA H100 80GB HBM3");
  ck_assert_int_eq(n.n_tests, 5);
  ck_assert(n.tests[4].is_latency);
  copse_nvbandwidth_pairs(&n, pairs);
  /* from 0 to 1: what "write" has at (0, 1), and "read" at (1, 0) */
  ck_assert(copse_q_eq(pairs[1], (struct copse_q){785, 2}));
  ck_assert(copse_q_eq(pairs[2], (struct copse_q){1575, 4}));
  ck_assert_int_lt(pairs[0].num, 0);
  copse_nvbandwidth_hosts(&n, to_gpu, to_host);
  ck_assert(copse_q_eq(to_gpu[0], (struct copse_q){2751, 50}));
  ck_assert(copse_q_eq(to_host[1], (struct copse_q){221, 4}));
  copse_nvbandwidth_free(&n);
  read_nvbandwidth("nccl/nvbandwidth-2.json", &n);
  ck_assert_int_eq(n.n_tests, 5); /* the bidirectional one has three */
  ck_assert_str_eq(n.tests[4].name, "device_to_device_bidirectional_memcpy_write_ce_total");
  ck_assert(copse_q_eq(n.tests[4].cells[2], (struct copse_q){6, 1}));
  copse_nvbandwidth_pairs(&n, pairs);
  ck_assert(copse_q_eq(pairs[1], (struct copse_q){1401, 4}));
  ck_assert(copse_q_eq(pairs[2], (struct copse_q){1575, 4}));
  copse_nvbandwidth_free(&n);
}
END_TEST

START_TEST(ras_reports) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_ras ras;
  size_t size = 0;
  COPSE_AT_END(copse_free_at) char *text = copse_test_load(copse_test_data("nccl/ras.txt"), &size);
  ASSERT_OK(copse_ras_parse("r", text, size, &ras, &err), &err);
  ck_assert_str_eq(ras.version, "2.30.7");
  ck_assert_int_eq(ras.n_comms, 2);
  ck_assert_int_eq(ras.comms[0].n_ranks, 16);
  ck_assert_str_eq(ras.comms[0].errors, "OK");
  ck_assert_str_eq(ras.comms[1].errors, "INCOMPLETE, MISMATCH");
  ck_assert_int_eq(ras.comms[1].times, 2);
  ck_assert_int_eq(ras.n_lines, 3);
  ck_assert_str_eq(ras.lines[0], "#1-0 (2b7a) MISMATCH");
  copse_ras_free(&ras);
  COPSE_AT_END(copse_free_at) char *json = copse_test_load(copse_test_data("nccl/ras.json"), &size);
  ASSERT_OK(copse_ras_parse("r", json, size, &ras, &err), &err);
  ck_assert_int_eq(ras.n_comms, 1);
  ck_assert_int_eq(ras.comms[0].n_missing, 1);
  ck_assert_str_eq(ras.comms[0].status, "ABORT");
  ck_assert_str_eq(ras.lines[0], "0x2b7a: rank 1 has async error 6");
  ck_assert_str_eq(ras.lines[1], "0x2b7a: rank 3 on 192.0.2.11, process 77, is considered dead");
  copse_ras_free(&ras);
}
END_TEST

/* The events of its monitor: a death is trouble, the others are not. */
START_TEST(ras_events) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_ras ras;
  size_t size = 0;
  COPSE_AT_END(copse_free_at) char *text = copse_test_load(copse_test_data("nccl/ras-monitor.txt"), &size);
  ASSERT_OK(copse_ras_parse("r", text, size, &ras, &err), &err);
  ck_assert_int_eq(ras.n_events, 3);
  ck_assert_int_eq(ras.n_lines, 1);
  ck_assert(strstr(ras.lines[0], "192.0.2.11 process 78"));
  copse_ras_free(&ras);
}
END_TEST

static void add_calls(struct copse_calls *calls, const char *name) {
  struct copse_err err = COPSE_ERR_INIT;
  size_t size = 0;
  COPSE_AT_END(copse_free_at) char *text = copse_test_load(copse_test_data(name), &size);
  ASSERT_OK(copse_calls_add(calls, name, text, size, &err), &err);
}

START_TEST(inspector_calls_are_joined_over_ranks) {
  struct copse_calls calls = {0};
  add_calls(&calls, "nccl/inspector.log");
  copse_calls_finish(&calls);
  ck_assert_int_eq(calls.n_calls, 1);
  ck_assert_int_eq(calls.n_damaged, 1); /* the last is cut */
  ck_assert_str_eq(calls.calls[0].comm, "0x7f8c");
  ck_assert_int_eq(calls.calls[0].n_seen, 2);
  ck_assert_int_eq(calls.calls[0].bytes, 1048576);
  ck_assert(copse_q_eq(calls.calls[0].time_us, (struct copse_q){50, 1})); /* the slowest */
  copse_calls_free(&calls);
}
END_TEST

/* Means by size, of each GPU; those of sends are passed over. */
START_TEST(inspector_s_prometheus_text) {
  struct copse_calls calls = {0};
  add_calls(&calls, "nccl/inspector.prom");
  ck_assert_int_eq(calls.n_calls, 1);
  ck_assert_int_eq(calls.n_damaged, 0);
  ck_assert_str_eq(calls.calls[0].collective, "AllReduce");
  ck_assert_str_eq(calls.calls[0].choice, "RING_SIMPLE");
  ck_assert_int_eq(calls.calls[0].number, -1);
  ck_assert_int_eq(calls.calls[0].bytes, 64 << 20);
  ck_assert_int_eq(calls.calls[0].n_ranks, 2);
  ck_assert_int_eq(calls.calls[0].n_seen, 2);
  ck_assert(copse_q_eq(calls.calls[0].time_us, (struct copse_q){2073, 1}));
  ck_assert(copse_q_eq(calls.calls[0].busbw, (struct copse_q){161, 4}));
  copse_calls_free(&calls);
}
END_TEST

/* Two of four ranks, a pickle and JSON: one call that both completed, and who is behind. */
START_TEST(flight_recorders_are_joined) {
  struct copse_calls calls = {0};
  add_calls(&calls, "nccl/flight-rank0.pickle");
  add_calls(&calls, "nccl/flight-rank1.json");
  copse_calls_finish(&calls);
  ck_assert_int_eq(calls.n_damaged, 0);
  ck_assert_int_eq(calls.n_calls, 2);
  const struct copse_recorded_call *call = &calls.calls[0];
  ck_assert_str_eq(call->collective, "all_reduce");
  ck_assert_int_eq(call->n_ranks, 4);
  ck_assert_int_eq(call->n_seen, 2);
  ck_assert_int_eq(call->bytes, 64 << 20);
  ck_assert(copse_q_eq(call->time_us, (struct copse_q){1500, 1}));
  ck_assert_double_eq_tol(copse_q_to_double(call->busbw), 67108864 / 1.5e6 * 1.5, 1e-6);
  ck_assert_int_eq(calls.calls[1].bytes, 32 << 20); /* the output, of two bytes an element */
  ck_assert_int_eq(calls.n_flights, 2);
  ck_assert_int_eq(calls.flights[0].done, 2);
  ck_assert_int_eq(calls.flights[0].enqueued, 3);
  ck_assert_str_eq(calls.flights[0].waits, "all_reduce");
  ck_assert_int_eq(calls.flights[1].done, 1);
  ck_assert_str_eq(calls.flights[1].waits, "all_gather");
  ck_assert_str_eq(calls.flights[1].state, "scheduled");
  copse_calls_free(&calls);
}
END_TEST

static void pickle_is(const char *data, size_t size, const char *expected) {
  struct copse_err err = COPSE_ERR_INIT;
  char *text = NULL;
  size_t n;
  copse_status status = copse_pickle_to_json("p", data, size, &text, &n, &err);
  if (expected[0] != '!') {
    ASSERT_OK(status, &err);
    ck_assert_str_eq(text, expected);
  } else {
    ck_assert_int_eq(status, COPSE_BAD_INPUT);
    ck_assert_msg(strstr(err.text, expected + 1) != NULL, "%s", err.text);
  }
  free(text);
}

/* Plain data of protocols 2 to 4, and nothing that would run code. */
START_TEST(pickles) {
#define PICKLE(data, expected) pickle_is(data, sizeof(data) - 1, expected)
  PICKLE(
      "\x80\x02}q\x00(X\x01\x00\x00\x00"
      "aq\x01K\x05X\x01\x00\x00\x00"
      "b]q\x02(NN\x88\x89"
      "eu.",
      "{\"a\":5,\"b\":[null,null,true,false]}");
  PICKLE(
      "\x80\x04\x95\x09\x00\x00\x00\x00\x00\x00\x00\x8c\x02"
      "h\"\x94\x8a\x01\xff\x86\x94.",
      "[\"h\\\"\",-1]");
  PICKLE("\x80\x02(J\xfe\xff\xff\xffM\x01\x02G?\xf8\x00\x00\x00\x00\x00\x00t.", "[-2,513,1.5]");
  PICKLE(
      "\x80\x02}q\x00X\x06\x00\x00\x00"
      "framesq\x01]q\x02s.",
      "{\"frames\":null}");
  PICKLE(
      "\x80\x02]q\x00h\x00"
      "a.",
      "!a value within itself");
  PICKLE("\x80\x02cos\nsystem\n(X\x04\x00\x00\x00trueq\x00tR.",
         "!a code that is not of plain data");
  PICKLE(
      "\x80\x02X\xff\xff\xff\x7f"
      "a.",
      "!it ends within a value");
  PICKLE("\x80\x02h\x07.", "!a number that no value has");
  PICKLE("\x80\x02K\x01K\x02.", "!it is cut");
  PICKLE("\x80\x02t.", "!no mark");
  /* each list has the last one twice */
  char bomb[400] = "\x80\x02]q";
  size_t n = 5; /* its number is 0 */
  for (int i = 0; i < 40; i++) {
    const char step[] = {']', 'q', (char)(i + 1), '(', 'h', (char)i, 'h', (char)i, 'e'};
    memcpy(bomb + n, step, sizeof step);
    n += sizeof step;
  }
  bomb[n++] = '.';
  pickle_is(bomb, n, "!out of proportion");
}
END_TEST

static void expect_read_or_refused(copse_status status, const struct copse_err *err) {
  if (status == COPSE_OK) return;
  ck_assert_int_eq(status, COPSE_BAD_INPUT);
  ck_assert(err->text[0] && !strchr(err->text, '\n'));
}

/* Every reader on every text: what a text is taken for, and what it isn't. */
static void read_all(const char *text, size_t size) {
  struct copse_err err[5] = {COPSE_ERR_INIT, COPSE_ERR_INIT, COPSE_ERR_INIT, COPSE_ERR_INIT,
                             COPSE_ERR_INIT};
  struct copse_tests tests;
  struct copse_ras ras;
  struct copse_calls calls = {0};
  struct copse_nvbandwidth nv;
  struct copse_nccl_log log;
  copse_nccl_kind_name(copse_nccl_detect(text, size));
  expect_read_or_refused(copse_tests_parse("t", text, size, &tests, &err[0]), &err[0]);
  copse_tests_free(&tests);
  expect_read_or_refused(copse_ras_parse("t", text, size, &ras, &err[1]), &err[1]);
  copse_ras_free(&ras);
  expect_read_or_refused(copse_calls_add(&calls, "t", text, size, &err[2]), &err[2]);
  copse_calls_free(&calls);
  copse_status status = copse_nvbandwidth_parse("t", text, size, &nv, &err[3]);
  expect_read_or_refused(status, &err[3]);
  if (status == COPSE_OK) {
    size_t n = (size_t)nv.n_devices;
    COPSE_AT_END(copse_free_at) struct copse_q *pairs = calloc(n * n + 2 * n, sizeof *pairs);
    copse_nvbandwidth_pairs(&nv, pairs);
    copse_nvbandwidth_hosts(&nv, pairs + n * n, pairs + n * n + n);
  }
  copse_nvbandwidth_free(&nv);
  ASSERT_OK(copse_nccl_log_open(&log, &err[4]), &err[4]);
  ASSERT_OK(copse_nccl_log_add(&log, text, size, &err[4]), &err[4]);
  ASSERT_OK(copse_nccl_log_finish(&log, "t", NULL, &err[4]), &err[4]);
  copse_nccl_log_free(&log);
}

START_TEST(texts_that_end_at_any_line) {
  size_t size = 0;
  COPSE_AT_END(copse_free_at) char *data = copse_test_load(copse_test_data(samples[_i].name), &size);
  for (size_t end = 0; end <= size && end < 8192; end++)
    if (end == 0 || data[end - 1] == '\n' || end % 31 == 0) {
      COPSE_AT_END(copse_free_at) char *text = malloc(end + !end);
      memcpy(text, data, end); /* of its own size: a sanitizer sees what reads beyond */
      read_all(text, end);
    }
}
END_TEST

START_TEST(damaged_texts) {
  size_t size = 0;
  COPSE_AT_END(copse_free_at) char *data = copse_test_load(copse_test_data(samples[_i].name), &size);
  COPSE_AT_END(copse_free_at) char *text = malloc(size);
  uint64_t state = 99 + (uint64_t)_i;
  for (int round = 0; round < 60; round++) {
    memcpy(text, data, size);
    for (int k = 0; k < 1 + round % 12; k++) {
      size_t at = copse_test_random(&state) % size, from = copse_test_random(&state) % size;
      size_t n = copse_test_random(&state) % 50;
      if (round % 3 == 0)
        text[at] = (char)copse_test_random(&state);
      else if (round % 3 == 1)
        text[at] = "0123456789-/[]{}:\"#,. \n"[copse_test_random(&state) % 23];
      else if (at + n < size && from + n < size)
        memmove(text + at, data + from, n);
    }
    read_all(text, size);
  }
}
END_TEST

START_TEST(shared_samples) {
  size_t size = 0;
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_tests t;
  struct copse_nvbandwidth n;
  const char *table = COPSE_TEST_OUTSIDE "/nccl/logs/nccl-tests-all_reduce-h100x8.txt";
  const char *matrix = COPSE_TEST_OUTSIDE "/nccl/logs/nvbandwidth-h100x8.txt";
  if (access(table, R_OK) != 0 || access(matrix, R_OK) != 0) COPSE_SKIP("no %s", table);
  COPSE_AT_END(copse_free_at) char *text = copse_test_load(table, &size);
  ck_assert_uint_eq(copse_nccl_detect(text, size), COPSE_NCCL_IS_TESTS);
  ASSERT_OK(copse_tests_parse("t", text, size, &t, &err), &err);
  ck_assert_int_eq(t.n_rows, 24);
  ck_assert_int_eq(t.n_ranks, 8);
  ck_assert_int_eq(t.rows[23].bytes, 8589934592);
  expect_time(&t.rows[23].out, "157332/5 us, 27299/100, 47773/100, 0");
  copse_tests_free(&t);
  COPSE_AT_END(copse_free_at) char *nv = copse_test_load(matrix, &size);
  ck_assert_uint_eq(copse_nccl_detect(nv, size), COPSE_NCCL_IS_NVBANDWIDTH);
  ASSERT_OK(copse_nvbandwidth_parse("n", nv, size, &n, &err), &err);
  ck_assert_int_eq(n.n_tests, 2);
  ck_assert_int_eq(n.n_devices, 8);
  ck_assert(copse_q_eq(n.tests[1].cells[8 * 7 + 6], (struct copse_q){9847, 25}));
  copse_nvbandwidth_free(&n);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("audit/nccl_reports");
  TCase *all = tcase_create("reports");
  tcase_set_timeout(all, 120);
  tcase_add_loop_test(all, kinds_by_content, 0, N_SAMPLES);
  tcase_add_test(all, the_table_of_nccl_tests);
  tcase_add_test(all, an_old_table_tells_its_collective_by_its_ratio);
  tcase_add_test(all, json_of_nccl_tests);
  tcase_add_test(all, rccl_tests);
  tcase_add_test(all, tables_with_more_columns);
  tcase_add_test(all, nvbandwidth_arrows);
  tcase_add_test(all, ras_reports);
  tcase_add_test(all, ras_events);
  tcase_add_test(all, inspector_calls_are_joined_over_ranks);
  tcase_add_test(all, inspector_s_prometheus_text);
  tcase_add_test(all, flight_recorders_are_joined);
  tcase_add_test(all, pickles);
  tcase_add_loop_test(all, texts_that_end_at_any_line, 0, N_SAMPLES);
  tcase_add_loop_test(all, damaged_texts, 0, N_SAMPLES);
  tcase_add_test(all, shared_samples);
  suite_add_tcase(suite, all);
  return copse_test_run(suite);
}
