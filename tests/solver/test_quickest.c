/* Quickest flows beside maximum flows in networks with a copy of every node for each moment. */
#include "solver/network/quickest.h"

#include <stdlib.h>

#include "support/oracle.h"
#include "support/support.h"

#define MAX_N 7
#define MAX_LINKS 20
#define MAX_TIME 24

struct network {
  int n, n_links, n_from, n_to;
  struct copse_quickest_link links[MAX_LINKS];
  struct copse_quickest_end from[2], to[2];
};

static struct network random_network(uint64_t *state) {
  struct network w = {.n = copse_test_random_int(state, 2, MAX_N)};
  bool taken[MAX_N][MAX_N] = {{false}};
  int want = copse_test_random_int(state, w.n, MAX_LINKS);
  for (int i = 0; i < want; i++) {
    int u = copse_test_random_int(state, 0, w.n - 1), v = copse_test_random_int(state, 0, w.n - 1);
    if (u == v || taken[u][v]) continue;
    taken[u][v] = true;
    w.links[w.n_links++] = (struct copse_quickest_link){u, v, copse_test_random_int(state, 1, 6),
                                                        copse_test_random_int(state, 0, 4)};
  }
  w.n_from = w.n > 3 ? copse_test_random_int(state, 1, 2) : 1;
  w.n_to = w.n > 3 ? copse_test_random_int(state, 1, 2) : 1;
  for (int i = 0; i < w.n_from; i++)
    w.from[i] = (struct copse_quickest_end){i, copse_test_random_int(state, 0, 1) * i};
  for (int i = 0; i < w.n_to; i++)
    w.to[i] = (struct copse_quickest_end){w.n - 1 - i, copse_test_random_int(state, 0, 1) * i};
  return w;
}

/* The most that can come within `moments`: a unit of time each, node v at moment m is v + n m. */
static int64_t most_within(const struct network *w, int moments) {
  if (moments <= 0) return 0;
  int n = w->n * moments + 2, s = n - 2, t = n - 1;
  const int64_t plenty = 1000000;
  int64_t *capacities = calloc((size_t)n * (size_t)n, sizeof *capacities);
  ck_assert_ptr_nonnull(capacities);
  for (int m = 0; m < moments; m++) {
    for (int v = 0; v < w->n && m + 1 < moments; v++)
      capacities[(v + w->n * m) * n + v + w->n * (m + 1)] = plenty;
    for (int e = 0; e < w->n_links; e++) {
      const struct copse_quickest_link *l = &w->links[e];
      int there = m + (int)l->delay;
      if (there < moments)
        capacities[(l->src + w->n * m) * n + l->dst + w->n * there] += l->capacity;
    }
    for (int i = 0; i < w->n_from; i++)
      if (m >= w->from[i].delay) capacities[s * n + w->from[i].node + w->n * m] = plenty;
    for (int i = 0; i < w->n_to; i++)
      if (m + w->to[i].delay < moments) capacities[(w->to[i].node + w->n * m) * n + t] = plenty;
  }
  int64_t most = copse_test_simple_flow(n, capacities, s, t);
  free(capacities);
  return most;
}

/* Between whole moments what can come grows evenly: delays are whole. */
static void check_time(const struct network *w, struct copse_q amount, struct copse_q time) {
  int before = (int)(time.num / time.den);
  mpq_t at, low, high, part, due;
  mpq_inits(at, low, high, part, due, NULL);
  copse_test_set_q(at, time);
  copse_test_set_q(due, amount);
  mpq_set_si(low, most_within(w, before), 1);
  mpq_set_si(high, most_within(w, before + 1), 1);
  mpq_set_si(part, before, 1);
  mpq_sub(part, at, part);
  mpq_sub(high, high, low);
  mpq_mul(high, high, part);
  mpq_add(low, low, high);
  ck_assert(mpq_equal(low, due));
  mpq_clears(at, low, high, part, due, NULL);
}

/* The times of nodes are a cut of exactly the amount. */
static void check_proof(const struct network *w, struct copse_q amount, struct copse_q time,
                        const struct copse_q *times) {
  mpq_t sum, term, other, end;
  mpq_inits(sum, term, other, end, NULL);
  copse_test_set_q(end, time);
  for (int v = 0; v < w->n; v++) {
    copse_test_set_q(term, times[v]);
    ck_assert(mpq_sgn(term) >= 0 && mpq_cmp(term, end) <= 0);
  }
  for (int i = 0; i < w->n_from; i++)
    ck_assert_int_le(copse_q_cmp(times[w->from[i].node], (struct copse_q){w->from[i].delay, 1}), 0);
  for (int i = 0; i < w->n_to; i++) {
    copse_test_set_q(term, times[w->to[i].node]);
    mpq_set_si(other, w->to[i].delay, 1);
    mpq_add(term, term, other);
    ck_assert(mpq_cmp(term, end) >= 0);
  }
  for (int e = 0; e < w->n_links; e++) {
    copse_test_set_q(term, times[w->links[e].dst]);
    copse_test_set_q(other, times[w->links[e].src]);
    mpq_sub(term, term, other);
    mpq_set_si(other, w->links[e].delay, 1);
    mpq_sub(term, term, other);
    if (mpq_sgn(term) <= 0) continue;
    mpq_set_si(other, w->links[e].capacity, 1);
    mpq_mul(term, term, other);
    mpq_add(sum, sum, term);
  }
  copse_test_set_q(term, amount);
  ck_assert(mpq_equal(sum, term));
  mpq_clears(sum, term, other, end, NULL);
}

START_TEST(least_time_and_its_proof) {
  uint64_t state = (uint64_t)_i + 1;
  struct copse_err err = COPSE_ERR_INIT;
  struct network w = random_network(&state);
  struct copse_quickest *quickest = NULL;
  ASSERT_OK(copse_quickest_new(w.n, w.links, w.n_links, &quickest, &err), &err);
  for (int i = 0; i < 4; i++) { /* the same object again */
    struct copse_q amount, time, times[MAX_N], same;
    ASSERT_OK(copse_q_make(copse_test_random_int(&state, 1, i < 2 ? 8 : 80),
                           copse_test_random_int(&state, 1, 5), &amount, &err),
              &err);
    struct copse_quickest_question question = {w.from, w.to, w.n_from, w.n_to, amount, NULL};
    copse_status status = copse_quickest_run(quickest, &question, &time, times, &err);
    if (status == COPSE_INFEASIBLE) {
      ck_assert_int_eq(most_within(&w, MAX_TIME), 0);
      break;
    }
    ASSERT_OK(status, &err);
    check_proof(&w, amount, time, times);
    if (time.num / time.den < MAX_TIME) check_time(&w, amount, time);
    question.give_up = &time;
    ASSERT_OK(copse_quickest_run(quickest, &question, &same, NULL, &err), &err);
    ck_assert_int_eq(same.num, 0); /* at most what was known */
  }
  copse_quickest_free(quickest);
}
END_TEST

START_TEST(overflows_are_errors) {
  const struct copse_quickest_link links[] = {
      {0, 1, (int64_t)1 << 60, 7}, {0, 2, (int64_t)1 << 60, 0}, {2, 1, (int64_t)1 << 60, 7}};
  const struct copse_quickest_end from = {0, 0}, to = {1, 0};
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_quickest *quickest = NULL;
  struct copse_q time;
  ASSERT_OK(copse_quickest_new(3, links, 3, &quickest, &err), &err);
  struct copse_quickest_question question = {&from, &to, 1, 1, COPSE_Q_ONE, NULL};
  ASSERT_FAILS(copse_quickest_run(quickest, &question, &time, NULL, &err), COPSE_OVERFLOW, &err, "bits");
  question.sinks = &from;
  ck_assert_int_eq(copse_quickest_run(quickest, &question, &time, NULL, NULL), COPSE_INTERNAL);
  copse_quickest_free(quickest);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("quickest");
  TCase *flows = tcase_create("flows");
  tcase_add_loop_test(flows, least_time_and_its_proof, 0, COPSE_TEST_UP_TO(400, 60));
  tcase_add_test(flows, overflows_are_errors);
  suite_add_tcase(suite, flows);
  return copse_test_run(suite);
}
