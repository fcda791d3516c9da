/* Plan files: a round trip, refusal of every damage, and hostile files. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "runtime/comm/executor.h"
#include "runtime/plan/plan.h"
#include "support/exec_support.h"
#include "support/plan_builder.h"
#include "support/support.h"

static const struct pb_options small = {2, 2, 2, 4, 256, 64};

static struct copse_plan *sample(copse_collective collective) {
  return pb_tree_plan(collective, 3, exec_case_root(collective, 3), small);
}

struct bytes {
  char *at;
  size_t size;
};

static struct bytes encode(const struct copse_plan *plan) {
  struct copse_err err = COPSE_ERR_INIT;
  struct bytes b;
  ASSERT_OK(copse_plan_encode(plan, &b.at, &b.size, &err), &err);
  return b;
}

static copse_status decode(const struct bytes *b, struct copse_err *err) {
  struct copse_plan *plan;
  copse_status status = copse_plan_decode("it.plan", b->at, b->size, &plan, err);
  ck_assert((status == COPSE_OK) == (plan != NULL));
  if (plan) copse_plan_free(plan);
  return status;
}

/* As somebody would who knows the format. */
static void forge_checksum(struct bytes *b) {
  size_t rest = b->size - COPSE_SHA256_BYTES;
  copse_sha256(b->at, rest, (uint8_t *)b->at + rest);
}

#define CHECK_TABLE(a, b, table, n) \
  ck_assert((n) == 0 || memcmp((a)->table, (b)->table, (n) * sizeof *(a)->table) == 0)

START_TEST(a_plan_comes_back_as_it_was) {
  struct copse_err err = COPSE_ERR_INIT;
  for (int c = 0; c < 6; c++) {
    struct copse_plan *plan = sample((copse_collective)c), *back;
    struct bytes b = encode(plan);
    ASSERT_OK(copse_plan_decode("it.plan", b.at, b.size, &back, &err), &err);
    const struct copse_plan_header *h = &back->header;
    ck_assert_uint_eq(h->version, COPSE_PLAN_VERSION);
    ck_assert_uint_eq(h->file_bytes, b.size);
    ck_assert_int_eq(h->root, plan->header.root);
    ck_assert_uint_eq(h->chunk_bytes, 256);
    CHECK_TABLE(plan, back, ranks, h->n_ranks);
    CHECK_TABLE(plan, back, workers, h->n_workers);
    CHECK_TABLE(plan, back, ops, h->n_ops);
    CHECK_TABLE(plan, back, operands, h->n_operands);
    CHECK_TABLE(plan, back, pieces, h->n_pieces);
    CHECK_TABLE(plan, back, regions, h->n_regions);
    CHECK_TABLE(plan, back, channels, h->n_channels);
    ck_assert_str_eq(back->name, plan->name);
    struct bytes again = encode(back);
    ck_assert_uint_eq(again.size, b.size);
    ck_assert_mem_eq(again.at, b.at, b.size);
    free(b.at);
    free(again.at);
    copse_plan_free(back);
    pb_free(plan);
  }
}
END_TEST

START_TEST(a_file_is_written_and_loaded) {
  struct copse_err err = COPSE_ERR_INIT;
  char path[] = "/tmp/copse-plan-XXXXXX";
  int fd = mkstemp(path);
  ck_assert_int_ge(fd, 0);
  close(fd);
  struct copse_plan *plan = sample(COPSE_ALLREDUCE), *back;
  struct bytes b = encode(plan);
  ASSERT_OK(copse_file_write(path, b.at, b.size, &err), &err);
  ASSERT_OK(copse_plan_open(path, &back, &err), &err);
  copse_plan_free(back);
  unlink(path);
  ASSERT_FAILS(copse_plan_open(path, &back, &err), COPSE_IO, &err, path);
  ck_assert_ptr_null(back);
  copse_plan_free(NULL);
  free(b.at);
  pb_free(plan);
}
END_TEST

START_TEST(the_first_fields_are_little_endian) {
  struct copse_plan *plan = sample(COPSE_REDUCE);
  struct bytes b = encode(plan);
  ck_assert_mem_eq(b.at, "COPSEPLN\x02\0\0\0\x98\0\0\0", 16);
  ck_assert_int_eq(b.at[24], COPSE_REDUCE);
  ck_assert_int_eq(b.at[28], 1); /* root */
  ck_assert_mem_eq(b.at + b.size - COPSE_SHA256_BYTES - 10, "hand-built", 10);
  free(b.at);
  pb_free(plan);
}
END_TEST

START_TEST(every_single_byte_change_is_refused) {
  struct copse_plan *plan = sample(COPSE_ALLREDUCE);
  struct bytes b = encode(plan);
  uint64_t state = 1;
  for (size_t i = 0; i < b.size; i++)
    for (int k = 0; k < 3; k++) {
      struct copse_err err = COPSE_ERR_INIT;
      char kept = b.at[i];
      b.at[i] = (char)(kept ^ (k < 2 ? 1 << 7 * k : copse_test_random_int(&state, 1, 255)));
      if (decode(&b, &err) != COPSE_BAD_INPUT) ck_abort_msg("byte %zu", i);
      b.at[i] = kept;
    }
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(decode(&b, &err), &err);
  free(b.at);
  pb_free(plan);
}
END_TEST

START_TEST(every_other_length_is_refused) {
  struct copse_plan *plan = sample(COPSE_BROADCAST);
  struct bytes b = encode(plan);
  for (size_t size = 0; size < b.size; size++) {
    struct copse_err err = COPSE_ERR_INIT;
    /* an allocation of its own, so that a read behind the end is seen */
    struct bytes part = {malloc(size ? size : 1), size};
    memcpy(part.at, b.at, size);
    if (decode(&part, &err) != COPSE_BAD_INPUT) ck_abort_msg("size %zu", size);
    if (size > sizeof(struct copse_plan_header) + COPSE_SHA256_BYTES) forge_checksum(&part);
    struct copse_err again = COPSE_ERR_INIT;
    if (decode(&part, &again) != COPSE_BAD_INPUT) ck_abort_msg("size %zu, forged", size);
    free(part.at);
  }
  struct copse_err err = COPSE_ERR_INIT;
  struct bytes longer = {calloc(b.size + 1, 1), b.size + 1};
  memcpy(longer.at, b.at, b.size);
  ASSERT_FAILS(decode(&longer, &err), COPSE_BAD_INPUT, &err, "it.plan: the plan has");
  free(longer.at);
  free(b.at);
  pb_free(plan);
}
END_TEST

START_TEST(what_is_no_plan_is_told_so) {
  static const char *const cases[][2] = {
      {"", "it.plan: is empty"},
      {"{\"format\": \"copse-schedule/1\"}", "it.plan: is not a copse plan"},
      {"COP", "it.plan: the plan is cut off: 3 bytes"},
      {"COPSEPLN", "it.plan: the plan is cut off: 8 bytes"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_plan *plan;
    ASSERT_FAILS(copse_plan_decode("it.plan", cases[i][0], strlen(cases[i][0]), &plan, &err),
                 COPSE_BAD_INPUT, &err, cases[i][1]);
    ck_assert_ptr_null(plan);
  }
}
END_TEST

/* ---- each rule of the validation ------------------------------------------------------- */

enum table { HEADER, RANKS, WORKERS, OPS, OPERANDS, PIECES, REGIONS, CHANNELS };

static size_t table_start(const struct copse_plan *plan, enum table table) {
  const struct copse_plan_header *h = &plan->header;
  const size_t bytes[] = {sizeof *h,
                          h->n_ranks * sizeof *plan->ranks,
                          h->n_workers * sizeof *plan->workers,
                          h->n_ops * sizeof *plan->ops,
                          h->n_operands * sizeof *plan->operands,
                          h->n_pieces * sizeof *plan->pieces,
                          h->n_regions * sizeof *plan->regions};
  size_t at = 0;
  for (int t = 0; t < (int)table; t++) at += bytes[t];
  return at;
}

/* Writes `bytes` of `value` into the file and expects the forged file to be refused. */
static void expect_refused(enum table table, size_t offset, uint64_t value, size_t bytes,
                           const char *text) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_plan *plan = sample(COPSE_REDUCE);
  struct bytes b = encode(plan);
  memcpy(b.at + table_start(plan, table) + offset, &value, bytes);
  forge_checksum(&b);
  ASSERT_FAILS(decode(&b, &err), COPSE_BAD_INPUT, &err, text);
  free(b.at);
  pb_free(plan);
}
#define REFUSED(table, type, field, value, text)                                      \
  expect_refused(table, offsetof(struct copse_plan_##type, field), (uint64_t)(value), \
                 sizeof((struct copse_plan_##type *)0)->field, text)

START_TEST(a_bad_header_is_refused) {
  REFUSED(HEADER, header, version, 1, "a plan of version 1; this copse reads version 2");
  REFUSED(HEADER, header, version, 3, "a plan of version 3; this copse reads version 2");
  REFUSED(HEADER, header, protocol, 2, "unknown protocol 2");
  REFUSED(HEADER, header, min_bytes, 1u << 31, "for messages from 2147483648 to 1073741824 bytes");
  REFUSED(HEADER, header, header_bytes, 127, "a header of 127 bytes");
  REFUSED(HEADER, header, file_bytes, 1, "its header says 1");
  REFUSED(HEADER, header, n_ops, 0xffffffff, "its tables make");
  REFUSED(HEADER, header, n_ranks, 0, "its tables make");
  REFUSED(HEADER, header, collective, 6, "unknown collective 6");
  REFUSED(HEADER, header, root, 3, "root 3 is no rank of 0..2");
  REFUSED(HEADER, header, root, -1, "root -1 is no rank");
  REFUSED(HEADER, header, collective, COPSE_ALLREDUCE, "allreduce has no root");
  REFUSED(HEADER, header, collective, COPSE_ALLGATHER, "has 1 input and 3 output blocks");
  REFUSED(HEADER, header, input_blocks, 3, "not 3 and 1");
  REFUSED(HEADER, header, output_blocks, 0, "not 1 and 0");
  REFUSED(HEADER, header, fifo, 0, "fifo of 0 slots");
  REFUSED(HEADER, header, fifo, 65, "fifo of 65 slots");
  REFUSED(HEADER, header, pipeline_chunks, 0, "0 pipeline chunks");
  REFUSED(HEADER, header, pipeline_chunks, (1 << 20) + 1, "1048577 pipeline chunks");
  REFUSED(HEADER, header, chunk_bytes, 0, "chunks of 0 bytes");
  REFUSED(HEADER, header, chunk_bytes, UINT64_MAX, "chunks of 18446744073709551615 bytes");
  REFUSED(HEADER, header, min_chunk_bytes, 0, "smallest chunk of 0");
  REFUSED(HEADER, header, min_chunk_bytes, 257, "smallest chunk of 257 bytes, must be 1..256");
}
END_TEST

START_TEST(a_bad_table_is_refused) {
  REFUSED(RANKS, rank, first_worker, 1, "rank 0: workers 1 + 2");
  REFUSED(RANKS, rank, n_workers, 1, "rank 1: workers 2 + 2, must start at 1");
  REFUSED(RANKS, rank, n_workers, 0xffffffff, "rank 0: workers");
  REFUSED(WORKERS, worker, rank, 1, "worker 0: is not one of rank 1");
  REFUSED(WORKERS, worker, rank, 3, "worker 0: is not one of rank 3");
  REFUSED(WORKERS, worker, first_op, 1, "worker 0: operations 1 +");
  REFUSED(WORKERS, worker, n_ops, 0xffffffff, "worker 0: operations");
  REFUSED(PIECES, piece, lo_num, -1, "piece 0: [-1/2, 1/2)");
  REFUSED(PIECES, piece, lo_num, 2, "piece 0: [2/2, 1/2)");
  REFUSED(PIECES, piece, lo_den, 0, "piece 0");
  REFUSED(PIECES, piece, hi_den, -2, "piece 0");
  REFUSED(PIECES, piece, hi_num, 3, "piece 0: [0/2, 3/2)");
  REFUSED(REGIONS, region, rank, 3, "region 0: no rank 3");
  REFUSED(REGIONS, region, rank, 2, "after rank 2, regions must be grouped by rank");
  REFUSED(REGIONS, region, piece, 2, "region 0: no piece 2");
  REFUSED(REGIONS, region, kind, 2, "region 0: unknown kind 2");
  REFUSED(REGIONS, region, kind, 1, "region 0: packets, in a plan of another protocol");
  REFUSED(PIECES, piece, pair, 1, "piece 0: pair 1 of 0");
  REFUSED(PIECES, piece, zero, 1, "piece 0: pair 0 of 0");
  REFUSED(CHANNELS, channel, src_worker, 6, "channel 0: no worker 6");
  REFUSED(CHANNELS, channel, dst_worker, 0xffffffff, "channel 0: no worker 4294967295");
}
END_TEST

/* In the sample, rank 0's first worker is a leaf: wait ready (twice), MOVE, signal. */
enum { LEAF_WAIT = 0, LEAF_MOVE = 2, LEAF_SIGNAL = 3 };
#define REFUSED_OP(op, field, value, text)                                                         \
  expect_refused(OPS, (op) * sizeof(struct copse_plan_op) + offsetof(struct copse_plan_op, field), \
                 value, sizeof((struct copse_plan_op *)0)->field, text)
#define REFUSED_OPERAND(operand, field, value, text)                                              \
  expect_refused(                                                                                 \
      OPERANDS,                                                                                   \
      (operand) * sizeof(struct copse_plan_operand) + offsetof(struct copse_plan_operand, field), \
      value, 4, text)

START_TEST(a_bad_operation_is_refused) {
  struct copse_plan *plan = sample(COPSE_REDUCE);
  const struct copse_plan_op *move = &plan->ops[LEAF_MOVE];
  ck_assert(plan->ops[LEAF_WAIT].kind == COPSE_OP_WAIT && move->kind == COPSE_OP_MOVE);
  ck_assert(plan->ops[LEAF_SIGNAL].kind == COPSE_OP_SIGNAL);
  REFUSED_OP(LEAF_MOVE, kind, 3, "op 2: unknown kind 3");
  REFUSED_OP(LEAF_MOVE, when, 5, "op 2: unknown condition 5");
  REFUSED_OP(LEAF_MOVE, flags, 8, "op 2: unknown flags 0x8");
  REFUSED_OP(LEAF_MOVE, n_src, 0, "op 2: 0 sources");
  REFUSED_OP(LEAF_MOVE, n_dst, 0, "op 2: 1 sources and 0 destinations");
  REFUSED_OP(LEAF_MOVE, n_dst, 255, "op 2: operands");
  REFUSED_OP(LEAF_MOVE, zero[2], 1, "op 2: reserved bytes");
  REFUSED_OP(LEAF_MOVE, piece, 2, "op 2: no piece 2");
  REFUSED_OP(LEAF_MOVE, piece, 1, "region");
  REFUSED_OP(LEAF_MOVE, operand, 0xffffffff, "op 2: operands 4294967295 + 2");
  REFUSED_OP(LEAF_MOVE, operand, plan->header.n_operands - 1, "op 2: operands");
  REFUSED_OP(LEAF_MOVE, channel, 1, "op 2: a MOVE has no channel");
  REFUSED_OP(LEAF_WAIT, channel, plan->header.n_channels, "op 0: no channel");
  REFUSED_OP(LEAF_WAIT, n_src, 1, "op 0: a WAIT has a channel only");
  REFUSED_OP(LEAF_WAIT, kind, COPSE_OP_SIGNAL, "is signalled by worker");
  REFUSED_OP(LEAF_SIGNAL, kind, COPSE_OP_WAIT, "is waited on by worker");
  REFUSED_OP(LEAF_SIGNAL, flags, 1, "op 3: unknown flags 0x1");
  pb_free(plan);
}
END_TEST

START_TEST(a_bad_operand_is_refused) {
  struct copse_plan *plan = sample(COPSE_REDUCE);
  uint32_t src = plan->ops[LEAF_MOVE].operand, dst = src + 1;
  ck_assert_uint_eq(plan->operands[src].rank, 0);
  ck_assert_uint_eq(plan->operands[dst].buffer, COPSE_BUFFER_SCRATCH);
  uint32_t to = plan->operands[dst].rank;
  REFUSED_OPERAND(src, rank, 1, "a source at rank 1, the worker's rank is 0");
  REFUSED_OPERAND(src, rank, 3, "no rank 3");
  REFUSED_OPERAND(src, index, 1, "index 1, must be below 1");
  REFUSED_OPERAND(src, buffer, 4, "unknown buffer 4");
  REFUSED_OPERAND(dst, buffer, COPSE_BUFFER_PACKETS, "is of the other kind");
  REFUSED_OPERAND(dst, buffer, COPSE_BUFFER_INPUT, "writes an input");
  REFUSED_OPERAND(dst, index, plan->header.n_regions, "must be below");
  REFUSED_OPERAND(dst, rank, (to + 1) % 3, "region");
  pb_free(plan);
}
END_TEST

START_TEST(a_region_of_another_piece_is_refused) {
  struct copse_err err = COPSE_ERR_INIT;
  struct plan_builder *b = pb_new(COPSE_REDUCE, 1, 0);
  uint32_t w = pb_worker(b, 0), whole = pb_piece(b, 0, 1, 1, 1), half = pb_piece(b, 0, 1, 1, 2);
  uint32_t region = pb_region(b, 0, half);
  pb_move(b, w, whole, 0);
  pb_src(b, pb_input(0, 0));
  pb_dst(b, pb_scratch(0, region));
  struct copse_plan *plan = pb_finish(b);
  ASSERT_FAILS(copse_plan_validate(plan, "plan", &err), COPSE_BAD_INPUT, &err,
               "plan: op 0: operand 1: region 0 is for piece 1, the operation's is 0");
  pb_free(plan);
}
END_TEST

/* ---- hostile files ------------------------------------------------------------------------ */

static void mutate(struct bytes *b, uint64_t *state) {
  size_t rest = b->size - COPSE_SHA256_BYTES;
  for (int n = copse_test_random_int(state, 1, 3); n > 0; n--) {
    size_t at = copse_test_random(state) % rest;
    if (copse_test_random_int(state, 0, 1)) { /* a field of 4 bytes: a small or extreme value */
      static const uint32_t extreme[] = {0, 1, 2, 3, 0x7fffffff, 0x80000000, 0xffffffff};
      at = at / 4 * 4;
      uint32_t value = extreme[copse_test_random_int(state, 0, 6)];
      memcpy(b->at + at, &value, rest - at < 4 ? rest - at : 4);
    } else {
      b->at[at] = (char)(b->at[at] ^ (1 << copse_test_random_int(state, 0, 7)));
    }
  }
  forge_checksum(b);
}

/* Runs whatever validated; any result will do, and a deadlock, but no crash. */
static void run_mutant(const struct copse_plan *plan, uint64_t *state) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_exec *exec;
  if (copse_exec_new(plan, COPSE_BACKEND_CPU, &exec, &err) != COPSE_OK) return;
  struct exec_case it = {(enum copse_type)copse_test_random_int(state, 0, COPSE_N_TYPES - 1),
                         (enum copse_redop)copse_test_random_int(state, 0, COPSE_N_REDOPS - 1),
                         (uint64_t)copse_test_random_int(state, 0, 300),
                         copse_test_random_int(state, 0, 1)};
  copse_status status = exec_case_status(exec, plan, it, &err);
  if (status != COPSE_OK && status != COPSE_REFUTED)
    ck_abort_msg("%s: %s", copse_status_string(status), err.text);
  copse_exec_free(exec);
}

START_TEST(a_forged_mutant_is_refused_or_runs_without_a_crash) {
  copse_collective collective = (copse_collective)_i;
  struct copse_plan *plan = sample(collective);
  struct bytes original = encode(plan);
  struct bytes b = {malloc(original.size), original.size};
  uint64_t state = 100 + (uint64_t)_i;
  int valid = 0, refused = 0;
  for (int round = 0; round < 5000; round++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_plan *mutant;
    memcpy(b.at, original.at, b.size);
    mutate(&b, &state);
    if (copse_plan_decode("it.plan", b.at, b.size, &mutant, &err) != COPSE_OK) {
      if (err.status != COPSE_BAD_INPUT || strchr(err.text, '\n')) ck_abort_msg("%s", err.text);
      refused++;
      continue;
    }
    valid++;
    run_mutant(mutant, &state);
    copse_plan_free(mutant);
  }
  ck_assert_int_gt(valid, 100);
  ck_assert_int_gt(refused, 100);
  free(b.at);
  free(original.at);
  pb_free(plan);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("runtime/plan_file");
  TCase *tc = tcase_create("plan_file");
  tcase_add_test(tc, a_plan_comes_back_as_it_was);
  tcase_add_test(tc, a_file_is_written_and_loaded);
  tcase_add_test(tc, the_first_fields_are_little_endian);
  tcase_add_test(tc, every_single_byte_change_is_refused);
  tcase_add_test(tc, every_other_length_is_refused);
  tcase_add_test(tc, what_is_no_plan_is_told_so);
  tcase_add_test(tc, a_bad_header_is_refused);
  tcase_add_test(tc, a_bad_table_is_refused);
  tcase_add_test(tc, a_bad_operation_is_refused);
  tcase_add_test(tc, a_bad_operand_is_refused);
  tcase_add_test(tc, a_region_of_another_piece_is_refused);
  tcase_add_loop_test(tc, a_forged_mutant_is_refused_or_runs_without_a_crash, 0, 6);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
