/*
 * The proof of a plan tries few numbers of chunks and claims all (codegen/check/chunk_counts.h).
 * Random plans, most with channels that no lowering makes, are proved and, where the proof accepts,
 * executed here with many numbers of chunks, by an executor of its own that takes the workers in
 * random orders: two launches, one after the other, must end with the right results.
 */
#include <stdlib.h>
#include <string.h>

#include "codegen/check/chunk_counts.h"
#include "codegen/check/proof.h"
#include "runtime/plan/plan_math.h"
#include "support/plan_builder.h"
#include "support/support.h"

/* ---- an executor in random orders ------------------------------------------------------------ */

enum { LAUNCHES = 2 };

/* One piece, one block at each rank; the collectives are BROADCAST and REDUCE to rank 0. */
struct machine {
  const struct copse_plan *plan;
  uint32_t n;                 /* chunks */
  uint64_t *inputs, *outputs; /* [n_ranks][n] */
  uint64_t *slots;            /* [n_regions][fifo] */
  uint64_t *raised, *taken;   /* [n_channels] */
  struct copse_cursor *at;    /* [n_workers] */
  uint32_t *launch;           /* [n_workers] that it is in */
  uint32_t *entered;          /* [n_ranks] launches */
  int64_t *priority;          /* [n_workers + n_ranks] */
  uint64_t random;
  bool in_place;
  const char *wrong;
};

static uint64_t datum(uint32_t rank, uint32_t launch, uint32_t c) {
  uint64_t state = 1 + rank * 1000003u + launch * 7919u + c * 104729u;
  return copse_test_random(&state);
}

static uint64_t finished(uint64_t sum) { return 3 * sum + 1; }

static uint64_t *memory_of(struct machine *m, const struct copse_plan_operand *o, uint32_t c) {
  if (o->buffer == COPSE_BUFFER_SCRATCH)
    return &m->slots[o->index * m->plan->header.fifo + c % m->plan->header.fifo];
  bool root = (int32_t)o->rank == m->plan->header.root;
  bool input = o->buffer == COPSE_BUFFER_INPUT || (m->in_place && root);
  return &(input ? m->inputs : m->outputs)[o->rank * m->n + c];
}

static bool through(const struct machine *m, uint32_t rank, uint32_t launch) {
  const struct copse_plan_rank *r = &m->plan->ranks[rank];
  for (uint32_t w = r->first_worker; w < r->first_worker + r->n_workers; w++)
    if (m->launch[w] < launch) return false;
  return true;
}

/* What the caller finds in its buffers. */
static void check_outputs(struct machine *m, uint32_t rank, uint32_t launch) {
  const struct copse_plan_header *h = &m->plan->header;
  bool reduces = h->collective == COPSE_REDUCE;
  if (reduces && (int32_t)rank != h->root) return;
  struct copse_plan_operand output = {rank, COPSE_BUFFER_OUTPUT, 0};
  for (uint32_t c = 0; c < m->n; c++) {
    uint64_t right = 0;
    for (uint32_t r = 0; r < h->n_ranks; r++)
      if (reduces || (int32_t)r == h->root) right += datum(r, launch, c);
    if (*memory_of(m, &output, c) != (reduces ? finished(right) : right)) m->wrong = "a result";
  }
}

static void enter(struct machine *m, uint32_t rank) {
  uint32_t launch = m->entered[rank]++;
  if (launch > 0) check_outputs(m, rank, launch - 1);
  for (uint32_t c = 0; c < m->n; c++) {
    m->outputs[rank * m->n + c] = copse_test_random(&m->random);
    m->inputs[rank * m->n + c] = datum(rank, launch, c);
  }
}

static void do_move(struct machine *m, const struct copse_plan_op *op, uint32_t c) {
  const struct copse_plan_operand *o = &m->plan->operands[op->operand];
  uint64_t sum = 0;
  for (uint32_t i = 0; i < op->n_src; i++) sum += *memory_of(m, &o[i], c);
  if (op->flags & COPSE_MOVE_FINAL) sum = finished(sum);
  for (uint32_t i = 0; i < op->n_dst; i++) *memory_of(m, &o[op->n_src + i], c) = sum;
}

/* One operation; false where the worker must wait. */
static bool step(struct machine *m, uint32_t w) {
  const struct copse_plan_worker *worker = &m->plan->workers[w];
  if (m->launch[w] == LAUNCHES || m->entered[worker->rank] <= m->launch[w]) return false;
  if (m->at[w].op == worker->n_ops) {
    m->at[w].op = 0;
    if (++m->at[w].chunk < m->n) return true;
    m->at[w].chunk = 0;
    m->launch[w]++;
    return true;
  }
  const struct copse_plan_op *op = &m->plan->ops[worker->first_op + m->at[w].op];
  if (copse_op_runs(op->when, m->at[w].chunk, m->n, m->plan->header.fifo)) {
    if (op->kind == COPSE_OP_WAIT && m->taken[op->channel] == m->raised[op->channel]) return false;
    if (op->kind == COPSE_OP_WAIT) m->taken[op->channel]++;
    if (op->kind == COPSE_OP_SIGNAL) m->raised[op->channel]++;
    if (op->kind == COPSE_OP_MOVE) do_move(m, op, m->at[w].chunk);
  }
  m->at[w].op++;
  return true;
}

/* A worker's step or, for those beyond, a rank's entry. */
static bool act(struct machine *m, uint32_t actor) {
  uint32_t n_workers = m->plan->header.n_workers;
  if (actor < n_workers) return step(m, actor);
  uint32_t rank = actor - n_workers;
  if (m->entered[rank] > LAUNCHES || !through(m, rank, m->entered[rank])) return false;
  enter(m, rank);
  return true;
}

/* Whoever of the highest priority can act, does; now and then it loses its priority. */
static void run_all(struct machine *m) {
  uint32_t actors = m->plan->header.n_workers + m->plan->header.n_ranks;
  for (int64_t lowest = -1;;) {
    bool tried[64] = {false};
    uint32_t best;
    do {
      best = actors;
      for (uint32_t a = 0; a < actors; a++)
        if (!tried[a] && (best == actors || m->priority[a] > m->priority[best])) best = a;
      if (best < actors) tried[best] = true;
    } while (best < actors && !act(m, best));
    if (best == actors) break;
    if (copse_test_random_int(&m->random, 0, 20) == 0) m->priority[best] = lowest--;
  }
  for (uint32_t r = 0; r < m->plan->header.n_ranks; r++)
    if (m->entered[r] <= LAUNCHES) m->wrong = "stands still";
}

static void *zeros(size_t n) {
  void *p = calloc(n + 1, sizeof(uint64_t));
  ck_assert_ptr_nonnull(p);
  return p;
}

/* NULL where all is right. */
static const char *execute(const struct copse_plan *plan, uint32_t chunks, bool in_place,
                           uint64_t seed) {
  const struct copse_plan_header *h = &plan->header;
  struct machine m = {.plan = plan, .n = chunks, .in_place = in_place, .random = seed};
  m.inputs = zeros(h->n_ranks * chunks);
  m.outputs = zeros(h->n_ranks * chunks);
  m.slots = zeros(h->n_regions * h->fifo);
  m.raised = zeros(h->n_channels);
  m.taken = zeros(h->n_channels);
  m.at = zeros(h->n_workers);
  m.launch = zeros(h->n_workers);
  m.entered = zeros(h->n_ranks);
  m.priority = zeros(h->n_workers + h->n_ranks);
  for (uint32_t a = 0; a < h->n_workers + h->n_ranks; a++)
    m.priority[a] = copse_test_random_int(&m.random, 0, 1000);
  run_all(&m);
  void *all[] = {m.inputs, m.outputs, m.slots,   m.raised,  m.taken,
                 m.at,     m.launch,  m.entered, m.priority};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
  return m.wrong;
}

static void check_executes(const struct copse_plan *plan, uint64_t seed, int orders) {
  for (uint32_t n = 1; n <= 4 * plan->header.fifo + 5; n++)
    for (int order = 0; order < orders; order++)
      for (int in_place = 0; in_place < 2; in_place++) {
        const char *wrong = execute(plan, n, in_place, seed + 31 * (uint64_t)order);
        ck_assert_msg(!wrong, "proved, and with %u chunks, fifo %u, %s goes wrong: %s", n,
                      plan->header.fifo, in_place ? "in place" : "out of place", wrong);
      }
}

static bool is_proved(const struct copse_plan *plan) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_proof_report report;
  ASSERT_OK(copse_plan_validate(plan, "plan", &err), &err);
  copse_status status = copse_prove_plan(plan, "plan", &report, &err);
  ck_assert_msg(status == COPSE_OK || status == COPSE_REFUTED, "%s", err.text);
  return status == COPSE_OK;
}

/* ---- random plans ------------------------------------------------------------------------------
 */

enum { MOST_SYNCS = 6 };

/* A signal and a wait, and whether each stands on the side of the MOVE where it guards. */
struct sync {
  enum copse_plan_when signal, wait;
  bool after, before;
  uint32_t channel;
};

struct link {
  struct sync syncs[MOST_SYNCS];
  int n;
};

/* Whens that balance for every number of chunks, if each comes with the same. */
static struct sync random_sync(uint64_t *state, uint32_t channel, bool plain) {
  static const enum copse_plan_when pairs[][2] = {{COPSE_WHEN_ALWAYS, COPSE_WHEN_ALWAYS},
                                                  {COPSE_WHEN_ALWAYS, COPSE_WHEN_ALWAYS},
                                                  {COPSE_WHEN_ALWAYS, COPSE_WHEN_ALWAYS},
                                                  {COPSE_WHEN_FIRST, COPSE_WHEN_FIRST},
                                                  {COPSE_WHEN_LAST, COPSE_WHEN_LAST},
                                                  {COPSE_WHEN_BEFORE_FIFO, COPSE_WHEN_AFTER_FIFO},
                                                  {COPSE_WHEN_BEFORE_FIFO, COPSE_WHEN_AFTER_FIFO},
                                                  {COPSE_WHEN_FIRST, COPSE_WHEN_LAST},
                                                  {COPSE_WHEN_BEFORE_FIFO, COPSE_WHEN_BEFORE_FIFO},
                                                  {COPSE_WHEN_AFTER_FIFO, COPSE_WHEN_AFTER_FIFO},
                                                  {COPSE_WHEN_AFTER_FIFO, COPSE_WHEN_BEFORE_FIFO}};
  int64_t most = plain ? 6 : sizeof pairs / sizeof *pairs - 1;
  int64_t which = copse_test_random_int(state, 0, most);
  return (struct sync){pairs[which][0], pairs[which][1], copse_test_random_int(state, 0, 7) > 0,
                       copse_test_random_int(state, 0, 7) > 0, channel};
}

/* Several syncs on one or two channels: random ones or, often, most of those of which signals pile
 * up where no other guard is (see signals_that_pile_up_are_refuted). `plain`: on two or three,
 * credits on one of them, and nothing piles up. */
static struct link random_link(struct plan_builder *b, uint64_t *state, uint32_t from, uint32_t to,
                               bool plain) {
  struct link link = {.n = (int)copse_test_random_int(state, 1, 4)};
  uint32_t channels[3] = {pb_channel(b, from, to), pb_channel(b, from, to),
                          pb_channel(b, from, to)};
  const struct sync piles[] = {
      {COPSE_WHEN_ALWAYS, COPSE_WHEN_ALWAYS, true, true, channels[0]},
      {COPSE_WHEN_ALWAYS, COPSE_WHEN_ALWAYS, true, true, channels[0]},
      {COPSE_WHEN_BEFORE_FIFO, COPSE_WHEN_AFTER_FIFO, true, true, channels[0]},
      {COPSE_WHEN_BEFORE_FIFO, COPSE_WHEN_BEFORE_FIFO, true, true, channels[1]},
      {COPSE_WHEN_AFTER_FIFO, COPSE_WHEN_AFTER_FIFO, true, true, channels[1]}};
  for (int i = 0; i < link.n; i++)
    link.syncs[i] = random_sync(state, channels[copse_test_random_int(state, 0, 5) == 0], plain);
  for (int i = 0; plain && i < link.n; i++)
    if (link.syncs[i].wait == COPSE_WHEN_AFTER_FIFO) link.syncs[i].channel = channels[2];
  if (plain || copse_test_random_int(state, 0, 1) == 0) return link;
  link.n = 0;
  for (size_t i = 0; i < sizeof piles / sizeof *piles; i++)
    if (copse_test_random_int(state, 0, 9) > 0) link.syncs[link.n++] = piles[i];
  if (copse_test_random_int(state, 0, 2) == 0)
    link.syncs[link.n++] = random_sync(state, channels[copse_test_random_int(state, 0, 1)], false);
  return link;
}

static void signals(struct plan_builder *b, uint32_t w, const struct link *link, bool after) {
  for (int i = 0; i < link->n; i++)
    if (link->syncs[i].after == after)
      pb_signal(b, w, link->syncs[i].channel, link->syncs[i].signal);
}

static void waits(struct plan_builder *b, uint32_t w, const struct link *link, bool before) {
  for (int i = 0; i < link->n; i++)
    if (link->syncs[i].before == before) pb_wait(b, w, link->syncs[i].channel, link->syncs[i].wait);
}

/* A chain from rank 0 with puts, or towards it over scratch with credits: random links for the
 * data, and back for the credits; others say who has entered and, but for some plain plans, that
 * all is there. `irregular`: besides, two workers do nothing but make the plan irregular. */
static struct copse_plan *random_plan(uint64_t *state, bool plain, bool irregular) {
  bool reduce = copse_test_random_int(state, 0, 1) == 1;
  uint32_t n = (uint32_t)copse_test_random_int(state, 2, 3);
  struct plan_builder *b = pb_new(reduce ? COPSE_REDUCE : COPSE_BROADCAST, n, 0);
  pb_header(b)->fifo = (uint32_t)copse_test_random_int(state, 1, 4);
  uint32_t piece = pb_piece(b, 0, 1, 1, 1), w[3], greet[3], region[3];
  struct link data[3], credit[3];
  for (uint32_t r = 0; r < n; r++) w[r] = pb_worker(b, r);
  for (uint32_t r = 0; r + 1 < n; r++) { /* between r and r + 1 */
    uint32_t from = w[reduce ? r + 1 : r], to = w[reduce ? r : r + 1];
    data[r] = random_link(b, state, from, to, plain);
    credit[r] = (struct link){.n = 0};
    greet[r] = pb_channel(b, to, from);
    if (reduce) credit[r] = random_link(b, state, to, from, plain);
    if (reduce) region[r] = pb_region(b, r, piece);
  }
  for (uint32_t r = 0; r < n; r++) {
    bool in = reduce ? r + 1 < n : r > 0, out = reduce ? r > 0 : r + 1 < n;
    uint32_t i = reduce ? r : r - 1, o = reduce ? r - 1 : r;
    if (in) pb_signal(b, w[r], greet[i], COPSE_WHEN_FIRST);
    if (out) pb_wait(b, w[r], greet[o], COPSE_WHEN_FIRST);
    if (out) waits(b, w[r], &credit[o], true);
    if (in) waits(b, w[r], &data[i], true);
    if (out) signals(b, w[r], &data[o], false);
    if (in) signals(b, w[r], &credit[i], false);
    if (reduce || out) {
      pb_move(b, w[r], piece, reduce && r == 0 ? COPSE_MOVE_FINAL : 0);
      pb_src(b, !reduce && r > 0 ? pb_output(r, 0) : pb_input(r, 0));
      if (reduce && in) pb_src(b, pb_scratch(r, region[i]));
      if (!reduce && r == 0) pb_dst(b, pb_output(0, 0));
      if (reduce) pb_dst(b, r == 0 ? pb_output(0, 0) : pb_scratch(r - 1, region[o]));
      if (!reduce) pb_dst(b, pb_output(r + 1, 0));
    }
    if (out) signals(b, w[r], &data[o], true);
    if (in) signals(b, w[r], &credit[i], true);
    if (out) waits(b, w[r], &credit[o], false);
    if (in) waits(b, w[r], &data[i], false);
  }
  if (irregular) {
    uint32_t from = pb_worker(b, n - 1), channel = pb_channel(b, from, pb_worker(b, n - 1));
    pb_signal(b, from, channel, COPSE_WHEN_AFTER_FIFO);
    pb_wait(b, from + 1, channel, COPSE_WHEN_AFTER_FIFO);
  }
  return pb_finish(b);
}

START_TEST(what_is_proved_goes_right_with_any_number_of_chunks) {
  uint64_t state = (uint64_t)_i + 5;
  int proved = 0, irregular = 0;
  for (int i = 0; i < 1000; i++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_plan *plan = random_plan(&state, false, false);
    bool regular;
    if (is_proved(plan)) {
      ASSERT_OK(copse_plan_is_regular(plan, &regular, &err), &err);
      proved++;
      irregular += !regular;
      check_executes(plan, copse_test_random(&state), 3);
    }
    pb_free(plan);
  }
  ck_assert_int_gt(irregular, 10);
  ck_assert_int_gt(proved - irregular, 10);
}
END_TEST

/* Of a regular plan the proof follows two numbers of chunks, of the same plan with two workers more
 * that make it irregular all numbers, with all that is in memory: it must say the same. */
START_TEST(few_numbers_of_chunks_say_what_all_say) {
  uint64_t state = (uint64_t)_i + 77;
  int proved = 0, refuted = 0;
  for (int i = 0; i < 2000; i++) {
    struct copse_err err = COPSE_ERR_INIT;
    uint64_t again = state;
    struct copse_plan *plan = random_plan(&state, true, false);
    struct copse_plan *longer = random_plan(&again, true, true);
    bool regular, irregular;
    ASSERT_OK(copse_plan_is_regular(plan, &regular, &err), &err);
    ASSERT_OK(copse_plan_is_regular(longer, &irregular, &err), &err);
    ck_assert(!irregular);
    if (regular) {
      bool right = is_proved(plan);
      ck_assert_msg(right == is_proved(longer), "plan %d: %s by few numbers of chunks only", i,
                    right ? "proved" : "refuted");
      *(right ? &proved : &refuted) += 1;
    }
    pb_free(plan);
    pb_free(longer);
  }
  ck_assert_int_gt(proved, 50);
  ck_assert_int_gt(refuted, 50);
}
END_TEST

/* ---- by hand -----------------------------------------------------------------------------------
 */

/*
 * Rank 0 puts, rank 1 passes on. On channel x rank 0 raises twice after each put, and once more
 * while f chunks follow; rank 1 waits twice before its own put, and once more from chunk f on. So
 * two signals of earlier chunks are under way before chunk 2 of 5, with f = 3, and its waits guard
 * nothing. Only chunks that f chunks follow, or that follow f chunks, have another guard. With 1,
 * 2, 4 and 7 chunks all is right.
 */
START_TEST(signals_that_pile_up_are_refuted) {
  struct plan_builder *b = pb_new(COPSE_BROADCAST, 3, 0);
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_proof_report report;
  pb_header(b)->fifo = 3;
  uint32_t piece = pb_piece(b, 0, 1, 1, 1), w0 = pb_worker(b, 0), w1 = pb_worker(b, 1),
           w2 = pb_worker(b, 2);
  uint32_t x = pb_channel(b, w0, w1), y = pb_channel(b, w0, w1), z = pb_channel(b, w0, w1);
  uint32_t greet1 = pb_channel(b, w1, w0), greet2 = pb_channel(b, w2, w1),
           all = pb_channel(b, w1, w2);
  pb_wait(b, w0, greet1, COPSE_WHEN_FIRST);
  pb_move(b, w0, piece, 0);
  pb_src(b, pb_input(0, 0));
  pb_dst(b, pb_output(0, 0));
  pb_dst(b, pb_output(1, 0));
  pb_signal(b, w0, x, COPSE_WHEN_ALWAYS);
  pb_signal(b, w0, x, COPSE_WHEN_ALWAYS);
  pb_signal(b, w0, x, COPSE_WHEN_BEFORE_FIFO);
  pb_signal(b, w0, y, COPSE_WHEN_BEFORE_FIFO);
  pb_signal(b, w0, z, COPSE_WHEN_AFTER_FIFO);
  pb_signal(b, w1, greet1, COPSE_WHEN_FIRST);
  pb_wait(b, w1, greet2, COPSE_WHEN_FIRST);
  pb_wait(b, w1, x, COPSE_WHEN_ALWAYS);
  pb_wait(b, w1, x, COPSE_WHEN_ALWAYS);
  pb_wait(b, w1, x, COPSE_WHEN_AFTER_FIFO);
  pb_wait(b, w1, y, COPSE_WHEN_BEFORE_FIFO);
  pb_wait(b, w1, z, COPSE_WHEN_AFTER_FIFO);
  pb_move(b, w1, piece, 0);
  pb_src(b, pb_output(1, 0));
  pb_dst(b, pb_output(2, 0));
  pb_signal(b, w1, all, COPSE_WHEN_ALWAYS);
  pb_signal(b, w2, greet2, COPSE_WHEN_FIRST);
  pb_wait(b, w2, all, COPSE_WHEN_ALWAYS);
  struct copse_plan *plan = pb_finish(b);
  static const uint32_t right[] = {1, 2, 4, 7};
  for (uint64_t seed = 0; seed < 40; seed++)
    for (int i = 0; i < 4; i++) ck_assert_ptr_null(execute(plan, right[i], false, seed));
  int wrong = 0;
  for (uint64_t seed = 0; seed < 40; seed++) wrong += execute(plan, 5, false, seed) != NULL;
  ck_assert_int_gt(wrong, 0);
  ASSERT_OK(copse_plan_validate(plan, "plan", &err), &err);
  ASSERT_FAILS(copse_prove_plan(plan, "plan", &report, &err), COPSE_REFUTED, &err,
               "chunk 2 of 5: output[0] of rank 1 is read while it may still be written");
  pb_free(plan);
}
END_TEST

/* The root of two or three ranks writes all outputs, and tells. */
static void put_and_tell(struct plan_builder *b, uint32_t n) {
  pb_move(b, 0, pb_piece(b, 0, 1, 1, 1), 0);
  pb_src(b, pb_input(0, 0));
  for (uint32_t r = 0; r < n; r++) pb_dst(b, pb_output(r, 0));
  for (uint32_t r = 1; r < n; r++) {
    uint32_t data = pb_channel(b, 0, r);
    pb_signal(b, 0, data, COPSE_WHEN_ALWAYS);
    pb_wait(b, r, data, COPSE_WHEN_ALWAYS);
  }
}

static struct plan_builder *broadcast_of(uint32_t n) {
  struct plan_builder *b = pb_new(COPSE_BROADCAST, n, 0);
  for (uint32_t r = 0; r < n; r++) pb_worker(b, r);
  return b;
}

/* `right`: numbers of chunks with which nothing goes wrong. */
static void expect_refuted(struct plan_builder *b, const uint32_t *right, int n, const char *part) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_proof_report report;
  struct copse_plan *plan = pb_finish(b);
  for (uint64_t seed = 0; seed < 40; seed++)
    for (int i = 0; i < n; i++) ck_assert_ptr_null(execute(plan, right[i], false, seed));
  ASSERT_OK(copse_plan_validate(plan, "plan", &err), &err);
  ASSERT_FAILS(copse_prove_plan(plan, "plan", &report, &err), COPSE_REFUTED, &err, part);
  pb_free(plan);
}

/* One chunk is the first and the last: two workers then wait for one another. */
START_TEST(a_ring_of_waits_in_one_chunk_is_refuted) {
  struct plan_builder *b = broadcast_of(2);
  uint32_t greet = pb_channel(b, 1, 0), a = pb_worker(b, 0), c = pb_worker(b, 1);
  uint32_t there = pb_channel(b, a, c), back = pb_channel(b, c, a);
  static const uint32_t right[] = {2, 3, 4, 5, 6, 9};
  pb_signal(b, 1, greet, COPSE_WHEN_FIRST);
  pb_wait(b, 0, greet, COPSE_WHEN_FIRST);
  put_and_tell(b, 2);
  pb_wait(b, a, back, COPSE_WHEN_LAST);
  pb_signal(b, a, there, COPSE_WHEN_FIRST);
  pb_wait(b, c, there, COPSE_WHEN_FIRST);
  pb_signal(b, c, back, COPSE_WHEN_LAST);
  expect_refuted(b, right, 6, "deadlock");
}
END_TEST

/* Rank 1 says in every chunk that it has entered, which the root takes in after it has written. */
START_TEST(an_entry_known_from_the_second_chunk_on_is_refuted) {
  struct plan_builder *b = broadcast_of(2);
  uint32_t greet = pb_channel(b, 1, 0);
  pb_signal(b, 1, greet, COPSE_WHEN_ALWAYS);
  put_and_tell(b, 2);
  pb_wait(b, 0, greet, COPSE_WHEN_ALWAYS);
  expect_refuted(b, NULL, 0, "output[0] of rank 1 is written before its rank has entered");
}
END_TEST

/* Rank 1 signals to the root for the last chunk, then that rank 2 has entered. Where the first is
 * the last chunk, the root takes the one for the other. */
START_TEST(signals_out_of_order_in_one_chunk_are_refuted) {
  struct plan_builder *b = broadcast_of(3);
  uint32_t greet = pb_channel(b, 2, 1), both = pb_channel(b, 1, 0);
  static const uint32_t right[] = {2, 3, 4, 5, 6, 9};
  pb_signal(b, 2, greet, COPSE_WHEN_FIRST);
  pb_signal(b, 1, both, COPSE_WHEN_LAST);
  pb_wait(b, 1, greet, COPSE_WHEN_FIRST);
  pb_signal(b, 1, both, COPSE_WHEN_FIRST);
  pb_wait(b, 0, both, COPSE_WHEN_FIRST);
  put_and_tell(b, 3);
  pb_wait(b, 0, both, COPSE_WHEN_LAST);
  expect_refuted(b, right, 6,
                 "chunk 0 of 1: output[0] of rank 2 is written before its rank has entered");
}
END_TEST

/* With two slots, what was read in the first chunk is signalled after it, all else in the last chunk
 * before it: chunk 3 of 5 writes over what chunk 1 need not have read. */
START_TEST(credits_for_the_ends_alone_are_refuted) {
  struct plan_builder *b = pb_new(COPSE_REDUCE, 2, 0);
  uint32_t piece = pb_piece(b, 0, 1, 1, 1), w0 = pb_worker(b, 0), w1 = pb_worker(b, 1);
  uint32_t greet = pb_channel(b, w0, w1), start = pb_channel(b, w0, w1),
           end = pb_channel(b, w0, w1), data = pb_channel(b, w1, w0),
           region = pb_region(b, 0, piece);
  static const uint32_t right[] = {1, 2, 3, 4};
  pb_header(b)->fifo = 2;
  pb_signal(b, w0, greet, COPSE_WHEN_FIRST);
  pb_signal(b, w0, end, COPSE_WHEN_LAST);
  pb_wait(b, w0, data, COPSE_WHEN_ALWAYS);
  pb_move(b, w0, piece, COPSE_MOVE_FINAL);
  pb_src(b, pb_input(0, 0));
  pb_src(b, pb_scratch(0, region));
  pb_dst(b, pb_output(0, 0));
  pb_signal(b, w0, start, COPSE_WHEN_FIRST);
  pb_wait(b, w1, greet, COPSE_WHEN_FIRST);
  pb_wait(b, w1, end, COPSE_WHEN_LAST);
  pb_move(b, w1, piece, 0);
  pb_src(b, pb_input(1, 0));
  pb_dst(b, pb_scratch(0, region));
  pb_signal(b, w1, data, COPSE_WHEN_ALWAYS);
  pb_wait(b, w1, start, COPSE_WHEN_FIRST);
  expect_refuted(b, right, 4,
                 "chunk 3 of 5: scratch[0] of rank 0 is written while it may still be used");
}
END_TEST

/* Plans of trees, rings and direct exchange are regular: two numbers of chunks prove them. */
START_TEST(textbook_plans_are_regular) {
  for (int c = 0; c <= COPSE_ALLTOALL; c++) {
    struct copse_err err = COPSE_ERR_INIT;
    struct pb_options options = PB_OPTIONS_DEFAULT;
    bool regular, rooted = copse_collective_rooted((copse_collective)c);
    options.fifo = 5;
    struct copse_plan *plan = pb_tree_plan((copse_collective)c, 5, rooted ? 2 : -1, options);
    ASSERT_OK(copse_plan_is_regular(plan, &regular, &err), &err);
    ck_assert_msg(regular, "%s", copse_collective_name((copse_collective)c));
    ck_assert(is_proved(plan));
    pb_free(plan);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("codegen/chunk_counts");
  TCase *tc = tcase_create("all");
  tcase_set_timeout(tc, 240);
  tcase_add_test(tc, signals_that_pile_up_are_refuted);
  tcase_add_test(tc, a_ring_of_waits_in_one_chunk_is_refuted);
  tcase_add_test(tc, an_entry_known_from_the_second_chunk_on_is_refuted);
  tcase_add_test(tc, signals_out_of_order_in_one_chunk_are_refuted);
  tcase_add_test(tc, credits_for_the_ends_alone_are_refuted);
  tcase_add_test(tc, textbook_plans_are_regular);
  tcase_add_loop_test(tc, few_numbers_of_chunks_say_what_all_say, 0,
                      COPSE_TEST_SWEEPS ? 100 : COPSE_TEST_UP_TO(4, 1));
  tcase_add_loop_test(tc, what_is_proved_goes_right_with_any_number_of_chunks, 0,
                      COPSE_TEST_SWEEPS ? 100 : COPSE_TEST_UP_TO(4, 1));
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
