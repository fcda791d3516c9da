/*
 * Vector clocks, and who is notified of whom by packets.
 *
 * Clocks. Every worker has a clock: for each worker the number of its operations known to be done.
 * A signal carries the clock of its sender, and a wait takes the later of both, entry by entry.
 * Workers that no chain of channels joins are never ordered, so a clock only spans one connected
 * component.
 *
 * Notified: why two copies of packets are enough. A region of packets exists twice, for even and
 * odd launches, at a distance that no size changes. No signal says that packets were read. So
 * whoever writes in launch e + 2 must know that the reader has left launch e. It knows if in launch
 * e + 1 its rank was notified, over any chain of packets, that the reader had entered that one:
 *
 *   launch      e          e + 1                  e + 2
 *   writer   packets --+   ... is notified -+---> writes the copy of launch e again
 *                      |                    |
 *   reader      reads <+   enters e + 1 ----+     (so it has left e)
 *
 * Or the writer knows by a real signal that the reader has entered launch e + 2. Three things
 * follow:
 * - Only packets that are sent in *every* launch notify. A piece may be empty where a message is
 *   short; the one piece of a block that never is, is its last (hi = 1). An alltoall by demand,
 *   whose blocks may be empty, has no plan of packets, nor does one take counts of pairs at launch.
 * - In an allreduce, allgather, reduce_scatter and alltoall every rank that sends to another is
 *   notified of it anyway. In a broadcast and a reduce nobody answers: there receivers *greet* with
 *   a real signal that they have entered, and senders wait for it (lower/packets.c).
 * - A launch without elements sends nothing, so it is no launch: it has no number.
 *
 * The numbers start again after 2^32 launches, half a day of small ones. A short message leaves a
 * longer one's packets as they are, whose flags would then pass for new: a rank clears the copies
 * of launches 2^32 - 2 and 2^32 - 1 when it has left them (copse_epoch_is_last).
 */
#include "codegen/check/clock.h"

#include <string.h>

#include "base/graph.h"
#include "base/memory.h"

/* A worker's clock on its way, as long as the component. */
struct snapshot {
  struct snapshot *next;
  uint32_t clock[];
};

struct worker {
  int component;          /* its least worker (copse_sets_find) */
  uint32_t local;         /* index within the component */
  uint32_t size;          /* of the component, at its least worker */
  struct snapshot *spare; /* there too: to be used again */
  uint32_t *now;
};

struct queue {
  struct snapshot *first, *last;
  uint32_t n;
};

struct copse_clocks {
  const struct copse_plan *plan;
  struct worker *workers; /* [n_workers] */
  struct queue *queues;   /* [n_channels] */
  struct copse_arena *arena;
};

static copse_status find_components(struct copse_clocks *c, struct copse_err *err) {
  const struct copse_plan *plan = c->plan;
  int *sets, n = (int)plan->header.n_workers;
  COPSE_DO(copse_arena_array(c->arena, (size_t)n, sizeof *sets, &sets, err));
  copse_sets_init(sets, n);
  for (uint32_t i = 0; i < plan->header.n_channels; i++)
    copse_sets_unite(sets, (int)plan->channels[i].src_worker, (int)plan->channels[i].dst_worker);
  for (int w = 0; w < n; w++) {
    c->workers[w].component = copse_sets_find(sets, w);
    c->workers[w].local = c->workers[c->workers[w].component].size++;
  }
  return COPSE_OK;
}

static struct worker *component_of(const struct copse_clocks *c, uint32_t worker) {
  return &c->workers[c->workers[worker].component];
}

copse_status copse_clocks_new(struct copse_arena *arena, const struct copse_plan *plan,
                              struct copse_clocks **out, struct copse_err *err) {
  const struct copse_plan_header *h = &plan->header;
  struct copse_clocks *c;
  COPSE_DO(copse_arena_array(arena, 1, sizeof *c, &c, err));
  c->plan = plan;
  c->arena = arena;
  COPSE_DO(copse_arena_array(arena, h->n_workers, sizeof *c->workers, &c->workers, err));
  COPSE_DO(copse_arena_array(arena, h->n_channels, sizeof *c->queues, &c->queues, err));
  COPSE_DO(find_components(c, err));
  for (uint32_t w = 0; w < h->n_workers; w++)
    COPSE_DO(copse_arena_array(arena, component_of(c, w)->size, sizeof(uint32_t),
                               &c->workers[w].now, err));
  *out = c;
  return COPSE_OK;
}

/* Takes the oldest one in at the other end of the channel; it may be used again at once. */
static const uint32_t *take(struct copse_clocks *c, uint32_t channel) {
  struct worker *component = component_of(c, c->plan->channels[channel].dst_worker);
  struct queue *q = &c->queues[channel];
  struct snapshot *taken = q->first;
  q->first = taken->next;
  q->n--;
  taken->next = component->spare;
  component->spare = taken;
  return taken->clock;
}

void copse_clocks_reset(struct copse_clocks *c) {
  for (uint32_t w = 0; w < c->plan->header.n_workers; w++)
    memset(c->workers[w].now, 0, component_of(c, w)->size * sizeof(uint32_t));
  for (uint32_t i = 0; i < c->plan->header.n_channels; i++)
    while (c->queues[i].n > 0) take(c, i);
}

struct copse_event copse_clocks_tick(struct copse_clocks *c, uint32_t worker) {
  return (struct copse_event){worker, ++c->workers[worker].now[c->workers[worker].local]};
}

copse_status copse_clocks_signal(struct copse_clocks *c, uint32_t channel, struct copse_err *err) {
  uint32_t src = c->plan->channels[channel].src_worker;
  struct worker *component = component_of(c, src);
  size_t bytes = component->size * sizeof(uint32_t);
  struct queue *q = &c->queues[channel];
  struct snapshot *s = component->spare;
  if (s)
    component->spare = s->next;
  else
    COPSE_DO(copse_arena_array(c->arena, 1, sizeof *s + bytes, &s, err));
  memcpy(s->clock, c->workers[src].now, bytes);
  *(q->n++ > 0 ? &q->last->next : &q->first) = s;
  q->last = s;
  return COPSE_OK;
}

uint32_t copse_clocks_pending(const struct copse_clocks *c, uint32_t channel) {
  return c->queues[channel].n;
}

void copse_clocks_wait(struct copse_clocks *c, uint32_t channel, bool learns) {
  uint32_t dst = c->plan->channels[channel].dst_worker, n = component_of(c, dst)->size;
  uint32_t *now = c->workers[dst].now;
  const uint32_t *theirs = take(c, channel);
  for (uint32_t i = 0; i < n && learns; i++) now[i] = theirs[i] > now[i] ? theirs[i] : now[i];
}

bool copse_clocks_before(const struct copse_clocks *c, struct copse_event event, uint32_t worker) {
  if (event.time == 0 || event.worker == worker) return true;
  const struct worker *of = &c->workers[event.worker], *by = &c->workers[worker];
  return of->component == by->component && by->now[of->local] >= event.time;
}

bool copse_clocks_entered(const struct copse_clocks *c, uint32_t worker, uint32_t rank) {
  const struct copse_plan_rank *r = &c->plan->ranks[rank];
  for (uint32_t w = r->first_worker; w < r->first_worker + r->n_workers; w++)
    if (copse_clocks_before(c, (struct copse_event){w, 1}, worker)) return true;
  return false;
}

bool copse_clocks_known_at(const struct copse_clocks *c, struct copse_event event, uint32_t rank) {
  const struct copse_plan_rank *r = &c->plan->ranks[rank];
  for (uint32_t w = r->first_worker; w < r->first_worker + r->n_workers; w++)
    if (copse_clocks_before(c, event, w)) return true;
  return false;
}

/* ---- notified -------------------------------------------------------------------------- */

#define NOBODY UINT32_MAX

struct copse_notified {
  const struct copse_plan *plan;
  size_t n_words;    /* of a set of ranks */
  uint64_t *workers; /* [n_workers][n_words] ranks that each is notified of */
  uint64_t *packets; /* [n_regions][n_words] the ranks that a region's packets name */
  uint32_t *writer;  /* [n_regions] worker whose rank must be notified of the reader, or NOBODY */
};

copse_status copse_notified_new(struct copse_arena *arena, const struct copse_plan *plan,
                                struct copse_notified **out, struct copse_err *err) {
  const struct copse_plan_header *h = &plan->header;
  struct copse_notified *notified;
  *out = NULL;
  if (h->protocol != COPSE_PROTOCOL_LOW_LATENCY) return COPSE_OK;
  COPSE_DO(copse_arena_array(arena, 1, sizeof *notified, &notified, err));
  notified->plan = plan;
  notified->n_words = (h->n_ranks + 63) / 64;
  size_t bytes = notified->n_words * sizeof(uint64_t);
  COPSE_DO(copse_arena_array(arena, h->n_workers, bytes, &notified->workers, err));
  COPSE_DO(copse_arena_array(arena, h->n_regions, bytes, &notified->packets, err));
  COPSE_DO(copse_arena_array(arena, h->n_regions, sizeof(uint32_t), &notified->writer, err));
  *out = notified;
  return COPSE_OK;
}

static uint64_t *of_worker(const struct copse_notified *notified, uint32_t w) {
  return notified->workers + (size_t)w * notified->n_words;
}

static uint64_t *of_region(const struct copse_notified *notified, uint32_t r) {
  return notified->packets + (size_t)r * notified->n_words;
}

static bool has(const uint64_t *set, uint32_t rank) { return set[rank / 64] >> (rank % 64) & 1; }

void copse_notified_reset(struct copse_notified *notified) {
  if (!notified) return;
  const struct copse_plan_header *h = &notified->plan->header;
  memset(notified->workers, 0, h->n_workers * notified->n_words * sizeof(uint64_t));
  memset(notified->packets, 0, h->n_regions * notified->n_words * sizeof(uint64_t));
  for (uint32_t w = 0; w < h->n_workers; w++) {
    uint32_t rank = notified->plan->workers[w].rank;
    of_worker(notified, w)[rank / 64] |= (uint64_t)1 << (rank % 64);
  }
  for (uint32_t r = 0; r < h->n_regions; r++) notified->writer[r] = NOBODY;
}

void copse_notified_write(struct copse_notified *notified, uint32_t worker, uint32_t region,
                          bool entered) {
  if (!notified) return;
  memcpy(of_region(notified, region), of_worker(notified, worker),
         notified->n_words * sizeof(uint64_t));
  if (!entered) notified->writer[region] = worker;
}

void copse_notified_read(struct copse_notified *notified, uint32_t worker, uint32_t region) {
  if (!notified) return;
  const struct copse_plan_piece *piece =
      &notified->plan->pieces[notified->plan->regions[region].piece];
  bool never_empty = piece->hi_num == piece->hi_den && piece->lo_num < piece->lo_den;
  if (!never_empty) return;
  for (size_t i = 0; i < notified->n_words; i++)
    of_worker(notified, worker)[i] |= of_region(notified, region)[i];
}

/* A rank's workers leave a launch together. */
static bool rank_is_notified(const struct copse_notified *notified, uint32_t rank, uint32_t of) {
  const struct copse_plan_rank *r = &notified->plan->ranks[rank];
  for (uint32_t w = r->first_worker; w < r->first_worker + r->n_workers; w++)
    if (has(of_worker(notified, w), of)) return true;
  return false;
}

copse_status copse_notified_check(const struct copse_notified *notified, const char *label,
                                  struct copse_err *err) {
  if (!notified) return COPSE_OK;
  for (uint32_t r = 0; r < notified->plan->header.n_regions; r++) {
    if (notified->writer[r] == NOBODY) continue;
    uint32_t from = notified->plan->workers[notified->writer[r]].rank;
    uint32_t to = notified->plan->regions[r].rank;
    if (!rank_is_notified(notified, from, to))
      return copse_fail_at(
          err, COPSE_REFUTED, label, 0,
          "rank %u sends packets[%u] to rank %u and need not be notified of it in return: "
          "two launches later it may overwrite them unread",
          from, r, to);
  }
  return COPSE_OK;
}
