#include "support/free_run.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "runtime/plan/layout.h"
#include "runtime/interpreter/expected.h"
#include "runtime/interpreter/element_tile_cpu.h"
#include "runtime/interpreter/view.h"
#include "support/support.h"

#define LOOKS_AWAKE 8
#define MOST_NAP 40 /* microseconds */

struct launch {
  struct copse_buffers buffers;
  struct copse_rank_memory *ranks; /* [n_ranks] */
  struct copse_view view;
  uint32_t epoch;
};

struct channel {
  _Atomic uint64_t signals;
  uint64_t waits;
};

struct machine {
  const struct copse_plan *plan;
  const struct free_run_options *options;
  struct copse_layout layout;
  unsigned char **packets; /* [n_ranks] two copies */
  uint64_t packets_copy;
  struct launch *launches;
  struct channel *channels;
  pthread_barrier_t *barriers; /* [n_ranks] its workers enter a launch together */
  double give_up_at;
  _Atomic bool stood_still;
};

struct worker {
  struct machine *m;
  uint32_t index;
  uint64_t random;
  pthread_t thread;
};

static void *zeroed(size_t n, size_t size) {
  void *p = calloc(n ? n : 1, size);
  if (!p) abort();
  return p;
}

/* ---- a worker ---------------------------------------------------------------------------- */

static void dawdle(struct worker *self) {
  int most = self->m->options->most_delay;
  if (most > 0 && copse_test_random_int(&self->random, 0, 15) == 0)
    usleep((useconds_t)copse_test_random_int(&self->random, 0, most));
}

/* Who waits looks often at first, which is when something between two looks may go wrong, and
 * then naps for a random while: yielding on would take the cores from those it waits for. False
 * when all is given up. */
static bool look_again(struct worker *self, int looks) {
  struct machine *m = self->m;
  if (looks < LOOKS_AWAKE)
    sched_yield();
  else
    usleep((useconds_t)copse_test_random_int(&self->random, 1, MOST_NAP));
  if (copse_clock_seconds() > m->give_up_at) atomic_store(&m->stood_still, true);
  return !atomic_load(&m->stood_still);
}

static bool wait_for(struct worker *self, struct channel *channel) {
  int looks = 0;
  while (atomic_load_explicit(&channel->signals, memory_order_acquire) <= channel->waits)
    if (!look_again(self, looks++)) return false;
  channel->waits++;
  return true;
}

static bool do_move(struct worker *self, const struct launch *launch,
                    const struct copse_plan_op *op) {
  const struct copse_view *view = &launch->view;
  struct copse_place places[2 * COPSE_MOVE_MAX_OPERANDS];
  struct copse_span chunk = copse_view_chunk(view, op->piece, 0);
  uint64_t bytes = chunk.count * view->shape.element_bytes;
  int looks = 0;
  if (chunk.count == 0) return true;
  for (uint32_t k = 0; k < (uint32_t)op->n_src + op->n_dst; k++)
    places[k] = copse_view_operand(view, &view->operands[op->operand + k], chunk, 0, launch->epoch);
  for (uint32_t k = 0; k < op->n_src; k++)
    while (places[k].epoch && !copse_packets_are_there(&places[k], bytes))
      if (!look_again(self, looks++)) return false;
  const struct copse_move move = {.type = view->type,
                                  .redop = view->redop,
                                  .n_src = op->n_src,
                                  .n_dst = op->n_dst,
                                  .divisor = copse_view_divisor(view, op),
                                  .count = chunk.count,
                                  .src = places,
                                  .dst = places + op->n_src};
  return copse_move_run(&move, 0, 1);
}

static bool do_launch(struct worker *self, const struct launch *launch) {
  struct machine *m = self->m;
  const struct copse_plan_worker *worker = &m->plan->workers[self->index];
  for (uint32_t i = worker->first_op; i < worker->first_op + worker->n_ops; i++) {
    const struct copse_plan_op *op = &m->plan->ops[i];
    if (!copse_op_runs(op->when, 0, 1, m->plan->header.fifo)) continue;
    dawdle(self);
    if (op->kind == COPSE_OP_MOVE) {
      if (!do_move(self, launch, op)) return false;
    } else if (op->flags & COPSE_SYNC_IN_DATA) {
      continue;
    } else if (op->kind == COPSE_OP_SIGNAL) {
      atomic_fetch_add_explicit(&m->channels[op->channel].signals, 1, memory_order_release);
    } else if (!wait_for(self, &m->channels[op->channel])) {
      return false;
    }
  }
  return true;
}

/* See copse_epoch_is_last. */
static void clear_copy(const struct machine *m, uint32_t rank, uint32_t epoch) {
  uint64_t *words = (uint64_t *)(void *)(m->packets[rank] + (epoch & 1) * m->packets_copy);
  for (uint64_t i = 0; i < m->packets_copy / sizeof *words; i++)
    __atomic_store_n(&words[i], 0, __ATOMIC_RELAXED);
}

static void *worker_main(void *argument) {
  struct worker *self = argument;
  struct machine *m = self->m;
  uint32_t rank = m->plan->workers[self->index].rank;
  bool goes_on = true; /* else it only keeps the others from waiting for it */
  for (int l = 0; l < m->options->launches; l++) {
    const struct launch *launch = &m->launches[l];
    if (launch->view.shape.count == 0) continue;
    if (goes_on) goes_on = do_launch(self, launch);
    pthread_barrier_wait(&m->barriers[rank]);
    if (!copse_epoch_is_last(launch->epoch)) continue;
    if (self->index == m->plan->ranks[rank].first_worker) clear_copy(m, rank, launch->epoch);
    pthread_barrier_wait(&m->barriers[rank]);
  }
  return NULL;
}

/* ---- the machine --------------------------------------------------------------------------- */

static void fill_launch(struct machine *m, struct launch *launch, uint64_t *random) {
  const struct copse_plan_header *h = &m->plan->header;
  struct copse_err err = COPSE_ERR_INIT;
  bool reduces = copse_collective_reduces((copse_collective)h->collective);
  copse_type type = (copse_type)copse_test_random_int(random, 0, COPSE_N_TYPES - 1);
  copse_redop redop =
      reduces ? (copse_redop)copse_test_random_int(random, 0, COPSE_N_REDOPS - 1) : COPSE_SUM;
  uint64_t bytes = copse_plan_block_bytes(m->plan, h->max_bytes), size = copse_type_bytes(type);
  uint64_t most = copse_test_random_int(random, 0, 1) ? bytes / size : 6;
  uint64_t count = copse_test_random(random) % ((most < bytes / size ? most : bytes / size) + 1);
  bool in_place = copse_buffers_has_in_place((copse_collective)h->collective) &&
                  copse_test_random_int(random, 0, 1);
  struct copse_data data = {.collective = (copse_collective)h->collective,
                            .n_ranks = h->n_ranks,
                            .root = h->root,
                            .count = count,
                            .type = type,
                            .redop = redop,
                            .seed = copse_test_random(random)};
  ASSERT_OK(copse_buffers_new(h->n_ranks, h->input_blocks * count * size,
                              h->output_blocks * count * size, &launch->buffers, &err),
            &err);
  copse_buffers_fill(&launch->buffers, &data, in_place);
  launch->ranks = zeroed(h->n_ranks, sizeof *launch->ranks);
  for (uint32_t r = 0; r < h->n_ranks; r++)
    launch->ranks[r] = (struct copse_rank_memory){launch->buffers.inputs[r],
                                                  launch->buffers.outputs[r], NULL, m->packets[r]};
  launch->view = (struct copse_view){.ops = m->plan->ops,
                                     .operands = m->plan->operands,
                                     .pieces = m->plan->pieces,
                                     .places = m->layout.places,
                                     .ranks = launch->ranks,
                                     .packets_copy = m->packets_copy,
                                     .n_ranks = h->n_ranks,
                                     .type = type,
                                     .redop = redop};
  ASSERT_OK(copse_layout_shape(&m->layout, count, (uint32_t)size, &launch->view.shape, &err), &err);
}

static void make_machine(struct machine *m) {
  const struct copse_plan_header *h = &m->plan->header;
  struct copse_err err = COPSE_ERR_INIT;
  uint64_t random = m->options->seed;
  uint32_t epoch = 0, from = m->options->epoch;
  ASSERT_OK(copse_layout_new(m->plan, &m->layout, &err), &err);
  m->packets = zeroed(h->n_ranks, sizeof *m->packets);
  m->barriers = zeroed(h->n_ranks, sizeof *m->barriers);
  m->channels = zeroed(h->n_channels, sizeof *m->channels);
  m->launches = zeroed((size_t)m->options->launches, sizeof *m->launches);
  for (uint32_t r = 0; r < h->n_ranks; r++) {
    uint64_t bytes = copse_round_up(copse_layout_most_packet_bytes(&m->layout, r), 64);
    ck_assert_uint_eq(m->layout.slots[r].n, 0);
    if (bytes > m->packets_copy) m->packets_copy = bytes;
    if (m->plan->ranks[r].n_workers > 0)
      pthread_barrier_init(&m->barriers[r], NULL, m->plan->ranks[r].n_workers);
  }
  for (uint32_t r = 0; r < h->n_ranks; r++) m->packets[r] = zeroed(2, m->packets_copy);
  for (int l = 0; l < m->options->launches; l++) {
    fill_launch(m, &m->launches[l], &random);
    if (from != 0 && l == m->options->jump) epoch = from + ((from ^ epoch) & 1);
    if (m->launches[l].view.shape.count > 0) epoch = copse_next_epoch(epoch);
    m->launches[l].epoch = epoch;
  }
}

/* The number of wrong elements. */
static uint64_t free_machine(struct machine *m) {
  uint64_t wrong = 0;
  for (int l = 0; l < m->options->launches; l++) {
    wrong += copse_buffers_count_wrong(&m->launches[l].buffers);
    copse_buffers_free(&m->launches[l].buffers);
    free(m->launches[l].ranks);
  }
  for (uint32_t r = 0; r < m->plan->header.n_ranks; r++) {
    free(m->packets[r]);
    if (m->plan->ranks[r].n_workers > 0) pthread_barrier_destroy(&m->barriers[r]);
  }
  free(m->packets);
  free(m->barriers);
  free(m->channels);
  free(m->launches);
  copse_layout_free(&m->layout);
  return wrong;
}

uint64_t free_run(const struct copse_plan *plan, const struct free_run_options *options) {
  uint32_t n = plan->header.n_workers;
  struct machine m = {.plan = plan, .options = options};
  struct worker *workers = zeroed(n, sizeof *workers);
  make_machine(&m);
  m.give_up_at = copse_clock_seconds() + options->seconds;
  for (uint32_t w = 0; w < n; w++) {
    workers[w] = (struct worker){.m = &m, .index = w, .random = options->seed + 77 * w};
    if (pthread_create(&workers[w].thread, NULL, worker_main, &workers[w]) != 0) abort();
  }
  for (uint32_t w = 0; w < n; w++) pthread_join(workers[w].thread, NULL);
  free(workers);
  bool stood_still = atomic_load(&m.stood_still);
  uint64_t wrong = free_machine(&m);
  return stood_still ? UINT64_MAX : wrong;
}
