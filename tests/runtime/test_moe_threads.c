/*
 * Mixture-of-Experts layers through the public API, on communicators of the CPU: a thread per
 * rank, or one thread for all, against the reference of tests/support/moe_case.c.
 */
#include "copse/moe.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "support/moe_case.h"
#include "support/plan_builder.h"
#include "support/support.h"

#define MAX_RANKS 8

/* ---- communicators with the plans that a layer needs ------------------------------------- */

static struct copse_plan *plans[MAX_RANKS + 1][2]; /* allgather, alltoall */
static copse_comm *comms[MAX_RANKS + 1][MAX_RANKS];

#define OK(call)                                                               \
  do {                                                                         \
    if ((call) != COPSE_OK) ck_abort_msg("%s: %s", #call, copse_last_error()); \
  } while (0)

static copse_comm **comms_of(uint32_t n) {
  if (comms[n][0]) return comms[n];
  OK(copse_comm_init_all(comms[n], (int)n, NULL));
  if (n == 1) return comms[n]; /* one rank needs no plans */
  plans[n][0] = pb_ring_allgather(n, PB_OPTIONS_DEFAULT);
  plans[n][1] = pb_tree_plan(COPSE_ALLTOALL, n, -1, PB_OPTIONS_DEFAULT);
  for (int i = 0; i < 2; i++) OK(copse_comm_add_plan(comms[n][0], plans[n][i]));
  return comms[n];
}

static void free_comms(void) {
  for (uint32_t n = 1; n <= MAX_RANKS; n++)
    for (uint32_t r = 0; r < n && comms[n][0]; r++) OK(copse_comm_destroy(comms[n][r]));
  memset(comms, 0, sizeof comms);
  for (uint32_t n = 1; n <= MAX_RANKS; n++)
    for (int i = 0; i < 2; i++)
      if (plans[n][i]) pb_free(plans[n][i]);
  memset(plans, 0, sizeof plans);
}

/* ---- one rank's calls -------------------------------------------------------------------- */

struct seat {
  const struct moe_case *c;
  uint32_t rank;
  copse_moe *moe;
  unsigned char *rows, *tokens;
  copse_status status; /* of a thread */
  char text[256];
};

static unsigned char *poisoned(size_t bytes) {
  unsigned char *p = malloc(bytes + 1);
  if (!p) abort();
  memset(p, MOE_POISON, bytes + 1);
  return p;
}

static copse_moe_dispatch_args dispatch_args(struct seat *s) {
  const struct moe_rank *r = &s->c->ranks[s->rank];
  s->rows = poisoned((size_t)copse_moe_max_rows(s->moe) * s->c->row_bytes);
  return (copse_moe_dispatch_args){.tokens = r->tokens,
                                   .n_tokens = r->n_tokens,
                                   .expert_ids = r->expert_ids,
                                   .scales = r->scales,
                                   .order = r->order,
                                   .rows = s->rows};
}

static copse_moe_combine_args combine_args(struct seat *s) {
  const struct moe_rank *r = &s->c->ranks[s->rank];
  s->tokens = poisoned((size_t)r->n_tokens * s->c->combined_bytes);
  return (copse_moe_combine_args){.rows = r->answers, .weights = r->weights, .tokens = s->tokens};
}

/* After both; in the test's own thread, so that a failure is the test's. */
static void check(struct seat *s) {
  const struct moe_rank *r = &s->c->ranks[s->rank];
  copse_moe_view view;
  OK(copse_moe_get_view(s->moe, &view));
  ck_assert_int_eq(view.first_expert, (int)r->first_expert);
  ck_assert_int_eq(view.n_local, (int)r->n_local);
  moe_check_counts(s->c, s->rank, view.expert_counts, view.expert_offsets, view.taken, view.chosen);
  moe_check_rows(s->c, s->rank, s->rows, copse_moe_max_rows(s->moe));
  moe_check_combined(s->c, s->rank, s->tokens);
  free(s->rows);
  free(s->tokens);
}

static void *both(void *argument) {
  struct seat *s = argument;
  copse_moe_dispatch_args dispatch = dispatch_args(s);
  copse_moe_combine_args combine = combine_args(s);
  s->status = copse_moe_dispatch(s->moe, &dispatch);
  if (s->status == COPSE_OK) s->status = copse_moe_combine(s->moe, &combine);
  strncpy(s->text, copse_last_error(), sizeof s->text - 1);
  return NULL;
}

static void in_threads(struct seat *seats, uint32_t n) {
  pthread_t threads[MAX_RANKS];
  for (uint32_t r = 0; r < n; r++)
    ck_assert_int_eq(pthread_create(&threads[r], NULL, both, &seats[r]), 0);
  for (uint32_t r = 0; r < n; r++) pthread_join(threads[r], NULL);
  for (uint32_t r = 0; r < n; r++)
    if (seats[r].status != COPSE_OK) ck_abort_msg("rank %u: %s", r, seats[r].text);
}

static void in_one_thread(struct seat *seats, uint32_t n) {
  copse_moe *moes[MAX_RANKS];
  copse_moe_dispatch_args dispatch[MAX_RANKS];
  copse_moe_combine_args combine[MAX_RANKS];
  for (uint32_t r = 0; r < n; r++) {
    moes[r] = seats[r].moe;
    dispatch[r] = dispatch_args(&seats[r]);
    combine[r] = combine_args(&seats[r]);
  }
  OK(copse_moe_dispatch_all(moes, dispatch, (int)n));
  OK(copse_moe_combine_all(moes, combine, (int)n));
}

/* A layer, used twice. */
static void run_layer(const struct moe_options *options, bool threads, uint64_t *state) {
  const uint32_t n = options->n_ranks;
  struct seat seats[MAX_RANKS] = {{0}};
  for (uint32_t r = 0; r < n; r++)
    OK(copse_moe_create(comms_of(n)[r], &options->config, &seats[r].moe));
  for (int round = 0; round < 2; round++) {
    struct moe_case *c = moe_case_new(options, state);
    for (uint32_t r = 0; r < n; r++) {
      seats[r].c = c;
      seats[r].rank = r;
    }
    if (threads)
      in_threads(seats, n);
    else
      in_one_thread(seats, n);
    for (uint32_t r = 0; r < n; r++) check(&seats[r]);
    moe_case_free(c);
  }
  for (uint32_t r = 0; r < n; r++) copse_moe_free(seats[r].moe);
}

/* ---- right ------------------------------------------------------------------------------- */

START_TEST(random_layers_with_a_thread_per_rank) {
  uint64_t state = 21;
  for (int i = 0; i < 60; i++) {
    struct moe_options options = moe_options_random(&state);
    run_layer(&options, true, &state);
  }
  free_comms();
}
END_TEST

START_TEST(random_layers_from_one_thread) {
  uint64_t state = 22;
  for (int i = 0; i < 150; i++) {
    struct moe_options options = moe_options_random(&state);
    options.config.exact_messages = i % 2; /* nothing on the CPU */
    run_layer(&options, false, &state);
  }
  free_comms();
}
END_TEST

START_TEST(identity_experts_give_back_the_tokens) {
  static const int top_ks[] = {1, 2, 4};
  uint64_t state = 23;
  for (copse_type type = COPSE_HALF; type < COPSE_N_TYPES; type++)
    for (int i = 0; i < 3; i++) {
      struct moe_options options = {.n_ranks = 4, .identity = true};
      options.config = (copse_moe_config){.n_experts = 8,
                                          .top_k = top_ks[i],
                                          .max_tokens = 30,
                                          .capacity = COPSE_MOE_EXACT,
                                          .row = {40, type}};
      /* what the reference expects are the tokens: test_moe_steps */
      run_layer(&options, false, &state);
    }
  free_comms();
}
END_TEST

/* Two layers on one communicator: each has its own routing. */
START_TEST(layers_do_not_disturb_each_other) {
  uint64_t state = 24;
  struct moe_options options = {.n_ranks = 2, .weights = true};
  options.config =
      (copse_moe_config){.n_experts = 4, .top_k = 2, .max_tokens = 20, .row = {8, COPSE_FLOAT}};
  options.config.capacity = COPSE_MOE_EXACT;
  struct seat seats[2][2] = {{{0}}};
  copse_moe *moes[2][2];
  struct moe_case *cases[2];
  for (int layer = 0; layer < 2; layer++) {
    copse_moe_dispatch_args args[2];
    cases[layer] = moe_case_new(&options, &state);
    for (uint32_t r = 0; r < 2; r++) {
      OK(copse_moe_create(comms_of(2)[r], &options.config, &moes[layer][r]));
      seats[layer][r] = (struct seat){.c = cases[layer], .rank = r, .moe = moes[layer][r]};
      args[r] = dispatch_args(&seats[layer][r]);
    }
    OK(copse_moe_dispatch_all(moes[layer], args, 2));
  }
  for (int layer = 0; layer < 2; layer++) {
    copse_moe_combine_args args[2];
    for (uint32_t r = 0; r < 2; r++) args[r] = combine_args(&seats[layer][r]);
    OK(copse_moe_combine_all(moes[layer], args, 2));
    for (uint32_t r = 0; r < 2; r++) {
      check(&seats[layer][r]);
      copse_moe_free(moes[layer][r]);
    }
    moe_case_free(cases[layer]);
  }
  free_comms();
}
END_TEST

START_TEST(capacities_are_those_of_tutel) {
  ck_assert_int_eq(copse_moe_tutel_capacity(1024, 8, 2, 1.0, 1), 256);
  ck_assert_int_eq(copse_moe_tutel_capacity(1025, 8, 2, 1.0, 1), 258);
  ck_assert_int_eq(copse_moe_tutel_capacity(1024, 8, 2, 1.25, 1), 320);
  ck_assert_int_eq(copse_moe_tutel_capacity(10, 4, 1, 1.5, 1), 4); /* floor(1.5 * 3) */
  ck_assert_int_eq(copse_moe_tutel_capacity(10, 4, 1, 1.5, 8), 8);
  ck_assert_int_eq(copse_moe_tutel_capacity(10, 4, 2, 0.1, 1), 0);
  ck_assert_int_eq(copse_moe_tutel_capacity(1024, 8, 2, -1.25, 1), 320);
  ck_assert_int_eq(copse_moe_tutel_capacity(100, 8, 2, 0, 1), 200);
  ck_assert_int_eq(copse_moe_tutel_capacity(0, 8, 2, 1, 1), 0);
  ck_assert_int_eq(copse_moe_tutel_capacity(INT64_MAX, 1, 8, 8, 1), INT32_MAX);
  ck_assert_int_eq(copse_moe_tutel_capacity(-1, 8, 2, 1, 1), 0);
  ck_assert_int_eq(copse_moe_tutel_capacity(8, 0, 2, 1, 1), 0);
  ck_assert_int_eq(copse_moe_tutel_capacity(8, 8, 2, 0.0 / 0.0, 1), 0);
}
END_TEST

/* ---- refused ----------------------------------------------------------------------------- */

#define REFUSED(call, status, part)                                                  \
  do {                                                                               \
    ck_assert_int_eq((call), (status));                                              \
    ck_assert_msg(strstr(copse_last_error(), (part)) != NULL, "\"%s\" lacks \"%s\"", \
                  copse_last_error(), (part));                                       \
    ck_assert_msg(strchr(copse_last_error(), '\n') == NULL, "more than one line");   \
  } while (0)

static const copse_moe_config good = {.n_experts = 4,
                                      .top_k = 2,
                                      .max_tokens = 8,
                                      .capacity = COPSE_MOE_EXACT,
                                      .row = {4, COPSE_FLOAT}};

static void refuse_config(const copse_moe_config *config, copse_status status, const char *part) {
  copse_moe *moe = (copse_moe *)(void *)&status;
  REFUSED(copse_moe_create(comms_of(2)[0], config, &moe), status, part);
  ck_assert_ptr_null(moe);
}

START_TEST(configurations_that_make_no_sense_are_refused) {
  copse_moe *moe;
#define REFUSE(change, status, part)  \
  do {                                \
    copse_moe_config it = good;       \
    it.change;                        \
    refuse_config(&it, status, part); \
  } while (0)
  REFUSE(n_experts = 0, COPSE_INVALID, "n_experts is 0, must be at least 1");
  REFUSE(top_k = 0, COPSE_INVALID, "top_k is 0, must be 1 to 256");
  REFUSE(top_k = 257, COPSE_INVALID, "top_k is 257");
  REFUSE(max_tokens = -1, COPSE_INVALID, "max_tokens is -1");
  REFUSE(max_tokens = INT64_MAX, COPSE_OVERFLOW, "lower max_tokens");
  REFUSE(max_tokens = INT32_MAX / 4 + 1, COPSE_OVERFLOW, "on 2 ranks");
  REFUSE(n_experts = INT32_MAX, COPSE_OVERFLOW, "experts on 2 ranks are too many");
  REFUSE(capacity = -2, COPSE_INVALID, "capacity is -2");
  REFUSE(padded = 1, COPSE_INVALID, "padded rows need a capacity");
  REFUSE(row.elements = 0, COPSE_INVALID, "row.elements is 0");
  REFUSE(row.elements = INT32_MAX, COPSE_INVALID, "row.elements is 2147483647");
  REFUSE(row.type = (copse_type)12, COPSE_INVALID, "row.type is 12");
  REFUSE(combined.elements = -3, COPSE_INVALID, "combined.elements is -3");
#undef REFUSE
  copse_moe_config padded = good;
  padded.capacity = INT32_MAX;
  padded.padded = 1;
  refuse_config(&padded, COPSE_OVERFLOW, "or capacity");
  REFUSED(copse_moe_create(NULL, &good, &moe), COPSE_INVALID, "comm is NULL");
  REFUSED(copse_moe_create(comms_of(2)[0], NULL, &moe), COPSE_INVALID, "config is NULL");
  REFUSED(copse_moe_create(comms_of(2)[0], &good, NULL), COPSE_INVALID, "out is NULL");
  copse_moe_free(NULL);
  free_comms();
}
END_TEST

START_TEST(a_communicator_without_plans_is_refused) {
  copse_comm *bare[2];
  copse_moe *moe;
  OK(copse_comm_init_all(bare, 2, NULL));
  REFUSED(copse_moe_create(bare[0], &good, &moe), COPSE_UNSUPPORTED, "needs an allgather plan");
  struct copse_plan *plan = pb_ring_allgather(2, PB_OPTIONS_DEFAULT);
  OK(copse_comm_add_plan(bare[0], plan));
  REFUSED(copse_moe_create(bare[0], &good, &moe), COPSE_UNSUPPORTED, "needs an alltoall plan");
  for (int r = 0; r < 2; r++) OK(copse_comm_destroy(bare[r]));
  pb_free(plan);
}
END_TEST

START_TEST(arguments_that_make_no_sense_are_refused) {
  float tokens[8 * 4] = {0}, rows[16 * 4], weights[16] = {0};
  int32_t ids[16] = {0};
  copse_moe *moe, *integers;
  copse_moe_view view;
  copse_moe_config config = good;
  OK(copse_moe_create(comms_of(1)[0], &config, &moe));
  config.row.type = COPSE_INT32;
  OK(copse_moe_create(comms_of(1)[0], &config, &integers));
  const copse_moe_dispatch_args right = {
      .tokens = tokens, .n_tokens = 8, .expert_ids = ids, .rows = rows};
  const copse_moe_combine_args back = {.rows = rows, .tokens = tokens};
#define REFUSE(change, part)                                      \
  do {                                                            \
    copse_moe_dispatch_args it = right;                           \
    it.change;                                                    \
    REFUSED(copse_moe_dispatch(moe, &it), COPSE_INVALID, (part)); \
  } while (0)
  REFUSED(copse_moe_combine(moe, &back), COPSE_INVALID, "needs a copse_moe_dispatch before");
  REFUSE(n_tokens = 9, "n_tokens is 9, must be 0 to 8");
  REFUSE(n_tokens = -1, "n_tokens is -1");
  REFUSE(tokens = NULL, "tokens is NULL");
  REFUSE(tokens = (char *)tokens + 1, "tokens is not aligned to its elements of 4 bytes");
  REFUSE(expert_ids = NULL, "expert_ids is NULL");
  REFUSE(expert_ids = (int32_t *)(void *)((char *)ids + 2), "expert_ids is not aligned");
  REFUSE(scales = (char *)weights + 1, "scales is not aligned");
  REFUSE(order = (int32_t *)(void *)((char *)ids + 1), "order is not aligned");
  REFUSE(rows = NULL, "rows is NULL");
#undef REFUSE
  copse_moe_dispatch_args scaled = right;
  scaled.scales = weights;
  REFUSED(copse_moe_dispatch(integers, &scaled), COPSE_INVALID, "float type, not int32");
  OK(copse_moe_dispatch(integers, &right));
  REFUSED(copse_moe_combine(integers, &back), COPSE_INVALID, "float type, not int32");
  OK(copse_moe_dispatch(moe, &right));
  copse_moe_combine_args it = back;
  it.rows = NULL;
  REFUSED(copse_moe_combine(moe, &it), COPSE_INVALID, "rows is NULL");
  it = back;
  it.tokens = NULL;
  REFUSED(copse_moe_combine(moe, &it), COPSE_INVALID, "tokens is NULL");
  it = back;
  it.weights = (char *)weights + 2;
  REFUSED(copse_moe_combine(moe, &it), COPSE_INVALID, "weights is not aligned");
  REFUSED(copse_moe_dispatch(NULL, &right), COPSE_INVALID, "layer 0 of 1 is NULL");
  REFUSED(copse_moe_dispatch(moe, NULL), COPSE_INVALID, "args is NULL");
  REFUSED(copse_moe_dispatch_all(&moe, &right, 0), COPSE_INVALID, "n must be at least 1");
  REFUSED(copse_moe_combine_all(NULL, &back, 1), COPSE_INVALID, "moes is NULL");
  REFUSED(copse_moe_get_view(moe, NULL), COPSE_INVALID, "view is NULL");
  REFUSED(copse_moe_get_view(NULL, &view), COPSE_INVALID, "moe is NULL");
  copse_moe_free(moe);
  copse_moe_free(integers);
  free_comms();
}
END_TEST

START_TEST(layers_that_do_not_belong_together_are_refused) {
  copse_moe *moes[2], *other;
  const copse_moe_dispatch_args args[2] = {{.n_tokens = 0}, {.n_tokens = 0}};
  copse_moe_config config = good;
  for (int r = 0; r < 2; r++) OK(copse_moe_create(comms_of(2)[r], &good, &moes[r]));
  config.top_k = 3;
  OK(copse_moe_create(comms_of(2)[1], &config, &other));
  copse_moe *mixed[2] = {moes[0], other}, *twice[2] = {moes[1], moes[1]};
  REFUSED(copse_moe_dispatch_all(mixed, args, 2), COPSE_INVALID, "layers 0 and 1 differ");
  copse_moe_free(other);
  config = good;
  config.exact_messages = 1;
  OK(copse_moe_create(comms_of(2)[1], &config, &other));
  mixed[1] = other;
  REFUSED(copse_moe_dispatch_all(mixed, args, 2), COPSE_INVALID, "layers 0 and 1 differ");
  REFUSED(copse_moe_dispatch_all(twice, args, 2), COPSE_INVALID, "are both of rank 1");
  for (int r = 0; r < 2; r++) copse_moe_free(moes[r]);
  copse_moe_free(other);
  free_comms();
}
END_TEST

/* What a failed dispatch left half done is not combined. */
START_TEST(combining_after_a_failed_dispatch_is_refused) {
  float tokens[8 * 4] = {0}, rows[32 * 4];
  int32_t ids[16] = {0};
  copse_moe *moes[2];
  copse_moe_dispatch_args dispatch[2];
  copse_moe_combine_args combine[2];
  for (int r = 0; r < 2; r++) {
    OK(copse_moe_create(comms_of(2)[r], &good, &moes[r]));
    dispatch[r] =
        (copse_moe_dispatch_args){.tokens = tokens, .n_tokens = r, .expert_ids = ids, .rows = rows};
    combine[r] = (copse_moe_combine_args){.rows = rows, .tokens = tokens};
  }
  float other[32 * 4];
  dispatch[1].rows = other;
  OK(copse_moe_dispatch_all(moes, dispatch, 2));
  dispatch[0].n_tokens = 8;
  dispatch[1].n_tokens = 9;
  REFUSED(copse_moe_dispatch_all(moes, dispatch, 2), COPSE_INVALID, "n_tokens is 9");
  REFUSED(copse_moe_combine_all(moes, combine, 2), COPSE_INVALID, "needs a copse_moe_dispatch");
  for (int r = 0; r < 2; r++) copse_moe_free(moes[r]);
  free_comms();
}
END_TEST

/* Calls of a group run at its end, but a layer's steps need the collectives' results. */
START_TEST(a_layer_in_a_group_is_refused) {
  copse_moe *moe;
  float tokens[4] = {0}, rows[32 * 4];
  int32_t ids[2] = {0};
  const copse_moe_dispatch_args args = {
      .tokens = tokens, .n_tokens = 1, .expert_ids = ids, .rows = rows};
  OK(copse_moe_create(comms_of(2)[0], &good, &moe));
  OK(copse_group_start());
  REFUSED(copse_moe_dispatch(moe, &args), COPSE_INVALID, "copse_moe_dispatch_all");
  OK(copse_group_end());
  copse_moe_free(moe);
  free_comms();
}
END_TEST

/* A peer that never calls: the wait ends and says so. */
START_TEST(a_missing_rank_is_a_timeout) {
  copse_moe *moe;
  float tokens[4] = {0}, rows[32 * 4];
  int32_t ids[2] = {0};
  const copse_moe_dispatch_args args = {
      .tokens = tokens, .n_tokens = 1, .expert_ids = ids, .rows = rows};
  OK(copse_moe_create(comms_of(2)[0], &good, &moe));
  OK(copse_comm_set_timeout(comms_of(2)[0], 0.05));
  ck_assert_int_eq(copse_moe_dispatch(moe, &args), COPSE_TIMEOUT);
  ck_assert_str_ne(copse_last_error(), "");
  copse_moe_free(moe);
  free_comms();
}
END_TEST

int main(void) {
  Suite *suite = suite_create("runtime/moe_threads");
  TCase *tc = tcase_create("moe_threads");
  tcase_add_test(tc, random_layers_with_a_thread_per_rank);
  tcase_add_test(tc, random_layers_from_one_thread);
  tcase_add_test(tc, identity_experts_give_back_the_tokens);
  tcase_add_test(tc, layers_do_not_disturb_each_other);
  tcase_add_test(tc, capacities_are_those_of_tutel);
  tcase_add_test(tc, configurations_that_make_no_sense_are_refused);
  tcase_add_test(tc, a_communicator_without_plans_is_refused);
  tcase_add_test(tc, arguments_that_make_no_sense_are_refused);
  tcase_add_test(tc, layers_that_do_not_belong_together_are_refused);
  tcase_add_test(tc, combining_after_a_failed_dispatch_is_refused);
  tcase_add_test(tc, a_layer_in_a_group_is_refused);
  tcase_add_test(tc, a_missing_rank_is_a_timeout);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
