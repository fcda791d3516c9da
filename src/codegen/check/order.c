/* The order of a plan's operations: see order.h. */
#include "codegen/check/order.h"

#include <string.h>

/* Channels by receiving rank, sender, then receiver: those between two workers, or to a rank, stand
 * together, and what a rank's workers wait for and ask about lies near. Half a line of the cache. */
struct channel {
  uint32_t src, dst;
  uint32_t seen[2]; /* when the last signal taken in was sent: of those that order; of all */
  uint32_t pending; /* under way; the oldest was sent at `time`, */
  uint32_t time;
  uint32_t first, last; /* the others are in the pool */
};

struct signal {
  uint32_t time, next;
};

/* A worker has waited: what it did next, from `after` on, comes after the sender's `time`. */
struct heard {
  uint32_t after, time;
  uint32_t src : 31, orders : 1;
};

struct worker {
  uint32_t time;
  struct heard *heard;    /* in the order of time */
  uint32_t n_heard;
  /* of a search: valid where `search` is the present one's number */
  uint32_t search, reach, looked;
  bool queued;
};

struct copse_order {
  const struct copse_plan *plan;
  uint32_t *position;       /* [n_channels] in `channels` */
  struct channel *channels; /* [n_channels] */
  uint32_t *first_channel;  /* [n_ranks + 1] that the rank's workers wait on */
  struct worker *workers;   /* [n_workers] */
  uint64_t *entered;        /* [n_workers][n_words] ranks that each knows to have entered */
  size_t n_words;
  struct signal *pool;
  size_t n_pool, pool_room;
  uint32_t spare;  /* free ones in the pool, by next; NONE */
  uint32_t *stack; /* [n_workers] of a search */
  uint32_t n_stack, search;
  struct copse_arena *arena;
  struct copse_arena launch; /* what was heard in this launch */
};
#define NONE UINT32_MAX

/* One pass of a sort by counting: `order` by the key of each, in the order of `by` where keys are the
 * same. `first` [n_keys + 1]: where each key begins. */
static void sort_by(const uint32_t *by, size_t n, const uint32_t *key, uint32_t n_keys,
                    uint32_t *first, uint32_t *order) {
  memset(first, 0, ((size_t)n_keys + 1) * sizeof *first);
  for (size_t i = 0; i < n; i++) first[key[i] + 1]++;
  for (uint32_t k = 0; k < n_keys; k++) first[k + 1] += first[k];
  for (size_t i = 0; i < n; i++) order[first[key[by[i]]]++] = by[i];
  memmove(first + 1, first, n_keys * sizeof *first);
  first[0] = 0;
}

static copse_status sort_channels(struct copse_order *o, struct copse_err *err) {
  const struct copse_plan_header *h = &o->plan->header;
  const struct copse_plan_channel *ends = o->plan->channels;
  struct copse_arena scratch COPSE_AT_END(copse_arena_free) = {0};
  uint32_t *by, *order, *key, *first, n = h->n_channels;
  COPSE_DO(COPSE_ARRAY(&scratch, n, by, err));
  COPSE_DO(COPSE_ARRAY(&scratch, n, order, err));
  COPSE_DO(COPSE_ARRAY(&scratch, n, key, err));
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)h->n_workers + 1, first, err));
  for (uint32_t i = 0; i < n; i++) by[i] = i, key[i] = ends[i].dst_worker;
  sort_by(by, n, key, h->n_workers, first, order);
  for (uint32_t i = 0; i < n; i++) key[i] = ends[i].src_worker;
  sort_by(order, n, key, h->n_workers, first, by);
  for (uint32_t i = 0; i < n; i++) key[i] = o->plan->workers[ends[i].dst_worker].rank;
  sort_by(by, n, key, h->n_ranks, o->first_channel, order);
  for (uint32_t i = 0; i < n; i++) {
    const struct copse_plan_channel *c = &ends[order[i]];
    o->position[order[i]] = i;
    o->channels[i] = (struct channel){.src = c->src_worker, .dst = c->dst_worker};
  }
  return COPSE_OK;
}

copse_status copse_order_new(struct copse_arena *arena, const struct copse_plan *plan,
                             struct copse_order **out, struct copse_err *err) {
  const struct copse_plan_header *h = &plan->header;
  struct copse_order *o;
  COPSE_DO(COPSE_ARRAY(arena, 1, o, err));
  *out = o;
  o->plan = plan;
  o->arena = arena;
  o->n_words = (h->n_ranks + 63) / 64;
  COPSE_DO(COPSE_ARRAY(arena, h->n_channels, o->position, err));
  COPSE_DO(COPSE_ARRAY(arena, h->n_channels, o->channels, err));
  COPSE_DO(COPSE_ARRAY(arena, (size_t)h->n_ranks + 1, o->first_channel, err));
  COPSE_DO(COPSE_ARRAY(arena, h->n_workers, o->workers, err));
  COPSE_DO(COPSE_ARRAY(arena, h->n_workers, o->stack, err));
  COPSE_DO(
      copse_arena_array(arena, h->n_workers, o->n_words * sizeof *o->entered, &o->entered, err));
  return sort_channels(o, err);
}

void copse_order_free(struct copse_order *o) {
  if (o) copse_arena_free(&o->launch);
}

/* How often an operation runs in a launch. */
static uint32_t times_of(uint8_t when, uint32_t chunks, uint32_t fifo) {
  if (when == COPSE_WHEN_ALWAYS) return chunks;
  if (when == COPSE_WHEN_FIRST || when == COPSE_WHEN_LAST) return 1;
  return chunks > fifo ? chunks - fifo : 0;
}

copse_status copse_order_reset(struct copse_order *o, uint32_t chunks, struct copse_err *err) {
  const struct copse_plan *plan = o->plan;
  const struct copse_plan_header *h = &plan->header;
  copse_arena_free(&o->launch);
  o->pool = NULL;
  o->n_pool = o->pool_room = 0;
  o->spare = NONE;
  memset(o->entered, 0, h->n_workers * o->n_words * sizeof *o->entered);
  for (uint32_t w = 0; w < h->n_workers; w++) {
    struct worker *worker = &o->workers[w];
    size_t waits = 0;
    for (uint32_t i = 0; i < plan->workers[w].n_ops; i++) {
      const struct copse_plan_op *op = &plan->ops[plan->workers[w].first_op + i];
      if (op->kind == COPSE_OP_WAIT) waits += times_of(op->when, chunks, h->fifo);
    }
    worker->time = worker->n_heard = 0;
    COPSE_DO(COPSE_ARRAY(&o->launch, waits, worker->heard, err));
  }
  for (uint32_t i = 0; i < h->n_channels; i++)
    o->channels[i] = (struct channel){.src = o->channels[i].src, .dst = o->channels[i].dst};
  return COPSE_OK;
}

struct copse_event copse_order_tick(struct copse_order *o, uint32_t worker) {
  return (struct copse_event){worker, ++o->workers[worker].time};
}

copse_status copse_order_send(struct copse_order *o, uint32_t channel, struct copse_err *err) {
  struct channel *c = &o->channels[o->position[channel]];
  uint32_t at = o->spare, now = o->workers[c->src].time;
  if (c->pending++ == 0) {
    c->time = now;
    return COPSE_OK;
  }
  if (at == NONE) {
    COPSE_DO(COPSE_GROW_IN(&o->launch, o->pool, o->pool_room, o->n_pool + 1, err));
    at = (uint32_t)o->n_pool++;
  } else {
    o->spare = o->pool[at].next;
  }
  o->pool[at] = (struct signal){now, NONE};
  *(c->pending > 2 ? &o->pool[c->last].next : &c->first) = at;
  c->last = at;
  return COPSE_OK;
}

void copse_order_expect(const struct copse_order *o, uint32_t channel) {
  __builtin_prefetch(&o->channels[o->position[channel]], 1);
}

uint32_t copse_order_pending(const struct copse_order *o, uint32_t channel) {
  return o->channels[o->position[channel]].pending;
}

void copse_order_receive(struct copse_order *o, uint32_t channel, bool orders) {
  struct channel *c = &o->channels[o->position[channel]];
  uint32_t at = c->first, time = c->time;
  struct worker *dst = &o->workers[c->dst];
  if (--c->pending > 0) {
    c->time = o->pool[at].time;
    c->first = o->pool[at].next;
    o->pool[at].next = o->spare;
    o->spare = at;
  }
  c->seen[1] = time; /* a sender's times only grow */
  if (orders) c->seen[0] = time;
  if (orders) copse_order_note_entered(o, c->dst, o->plan->workers[c->src].rank);
  dst->heard[dst->n_heard++] = (struct heard){dst->time, time, c->src & INT32_MAX, orders};
}

/* ---- questions ----------------------------------------------------------------------------------
 */

/* Whether one of the channels from a worker to the workers of one rank from `dst` to before `end` has
 * brought a signal that was sent at `time` or later. */
static bool was_told(const struct copse_order *o, struct copse_event event, uint32_t dst,
                     uint32_t end, bool announced) {
  uint32_t rank = o->plan->workers[dst].rank;
  uint32_t low = o->first_channel[rank], stop = o->first_channel[rank + 1];
  for (uint32_t high = stop; low < high;) {
    uint32_t middle = low + (high - low) / 2;
    const struct channel *c = &o->channels[middle];
    if (c->src < event.worker || (c->src == event.worker && c->dst < dst))
      low = middle + 1;
    else
      high = middle;
  }
  for (; low < stop && o->channels[low].src == event.worker && o->channels[low].dst < end; low++)
    if (o->channels[low].seen[announced] >= event.time) return true;
  return false;
}

/* The worker's past up to `time` is before what the search asks about. */
static void reach(struct copse_order *o, uint32_t worker, uint32_t time) {
  struct worker *w = &o->workers[worker];
  if (w->search != o->search) {
    w->search = o->search;
    w->reach = w->looked = 0;
    w->queued = false;
  }
  if (time <= w->reach) return;
  w->reach = time;
  if (w->queued) return;
  w->queued = true;
  o->stack[o->n_stack++] = worker;
}

/* Goes back from the present of the workers from `by` to before `by_end` until a worker from `of`
 * to before `of_end` is reached at `time` or later. What a worker heard is looked at once. O(waits
 * so far). */
static bool search_back(struct copse_order *o, uint32_t by, uint32_t by_end, uint32_t of,
                        uint32_t of_end, uint32_t time, bool announced) {
  o->search++;
  o->n_stack = 0;
  for (uint32_t w = by; w < by_end; w++) reach(o, w, o->workers[w].time);
  while (o->n_stack > 0) {
    uint32_t worker = o->stack[--o->n_stack];
    struct worker *w = &o->workers[worker];
    w->queued = false;
    if (worker >= of && worker < of_end && w->reach >= time) return true;
    for (; w->looked < w->n_heard && w->heard[w->looked].after <= w->reach; w->looked++)
      if (announced || w->heard[w->looked].orders)
        reach(o, w->heard[w->looked].src, w->heard[w->looked].time);
  }
  return false;
}

bool copse_order_before(struct copse_order *o, struct copse_event event, uint32_t worker,
                        bool announced) {
  if (event.time == 0 || event.worker == worker) return true;
  return was_told(o, event, worker, worker + 1, announced) ||
         search_back(o, worker, worker + 1, event.worker, event.worker + 1, event.time, announced);
}

void copse_order_note_entered(struct copse_order *o, uint32_t worker, uint32_t rank) {
  o->entered[worker * o->n_words + rank / 64] |= (uint64_t)1 << (rank % 64);
}

bool copse_order_knows_entered(struct copse_order *o, uint32_t worker, uint32_t rank) {
  const struct copse_plan_rank *r = &o->plan->ranks[rank];
  if (o->entered[worker * o->n_words + rank / 64] >> (rank % 64) & 1) return true;
  if (!search_back(o, worker, worker + 1, r->first_worker, r->first_worker + r->n_workers, 1,
                   false))
    return false;
  copse_order_note_entered(o, worker, rank);
  return true;
}

bool copse_order_known_at(struct copse_order *o, struct copse_event event, uint32_t rank) {
  const struct copse_plan_rank *r = &o->plan->ranks[rank];
  uint32_t end = r->first_worker + r->n_workers;
  if (event.time == 0 || (event.worker >= r->first_worker && event.worker < end)) return true;
  return was_told(o, event, r->first_worker, end, false) ||
         search_back(o, r->first_worker, end, event.worker, event.worker + 1, event.time, false);
}
