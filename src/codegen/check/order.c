/* The order of a plan's operations: see order.h. */
#include "codegen/check/order.h"

#include <string.h>

/* Channels by sender, then receiver: those between two workers, or to a rank, stand together. */
struct channel {
  uint32_t dst;
  uint32_t seen[2];     /* when the last signal taken in was sent: of those that order; of all */
  uint32_t first, last; /* under way, in the pool */
  uint32_t pending;
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
  uint32_t first_channel; /* that it signals on */
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
  struct worker *workers;   /* [n_workers + 1] the last for its first_channel alone */
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

/* By counting, twice: by receiver, then, keeping that order, by sender. */
static copse_status sort_channels(struct copse_order *o, struct copse_err *err) {
  const struct copse_plan_header *h = &o->plan->header;
  const struct copse_plan_channel *ends = o->plan->channels;
  struct copse_arena scratch COPSE_AT_END(copse_arena_free) = {0};
  uint32_t *by_dst, *count;
  COPSE_DO(COPSE_ARRAY(&scratch, h->n_channels, by_dst, err));
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)h->n_workers + 1, count, err));
  for (uint32_t i = 0; i < h->n_channels; i++) count[ends[i].dst_worker + 1]++;
  for (uint32_t w = 0; w < h->n_workers; w++) count[w + 1] += count[w];
  for (uint32_t i = 0; i < h->n_channels; i++) by_dst[count[ends[i].dst_worker]++] = i;
  memset(count, 0, ((size_t)h->n_workers + 1) * sizeof *count);
  for (uint32_t i = 0; i < h->n_channels; i++) count[ends[i].src_worker + 1]++;
  for (uint32_t w = 0; w < h->n_workers; w++) count[w + 1] += count[w];
  for (uint32_t w = 0; w <= h->n_workers; w++) o->workers[w].first_channel = count[w];
  for (uint32_t i = 0; i < h->n_channels; i++) {
    const struct copse_plan_channel *c = &ends[by_dst[i]];
    o->position[by_dst[i]] = count[c->src_worker];
    o->channels[count[c->src_worker]++].dst = c->dst_worker;
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
  COPSE_DO(COPSE_ARRAY(arena, (size_t)h->n_workers + 1, o->workers, err));
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
    o->channels[i] = (struct channel){.dst = o->channels[i].dst, .first = NONE};
  return COPSE_OK;
}

struct copse_event copse_order_tick(struct copse_order *o, uint32_t worker) {
  return (struct copse_event){worker, ++o->workers[worker].time};
}

copse_status copse_order_send(struct copse_order *o, uint32_t channel, struct copse_err *err) {
  struct channel *c = &o->channels[o->position[channel]];
  uint32_t at = o->spare;
  if (at == NONE) {
    COPSE_DO(COPSE_GROW_IN(&o->launch, o->pool, o->pool_room, o->n_pool + 1, err));
    at = (uint32_t)o->n_pool++;
  } else {
    o->spare = o->pool[at].next;
  }
  o->pool[at] = (struct signal){o->workers[o->plan->channels[channel].src_worker].time, NONE};
  *(c->pending++ > 0 ? &o->pool[c->last].next : &c->first) = at;
  c->last = at;
  return COPSE_OK;
}

uint32_t copse_order_pending(const struct copse_order *o, uint32_t channel) {
  return o->channels[o->position[channel]].pending;
}

void copse_order_receive(struct copse_order *o, uint32_t channel, bool orders) {
  struct channel *c = &o->channels[o->position[channel]];
  uint32_t src = o->plan->channels[channel].src_worker, at = c->first, time = o->pool[at].time;
  struct worker *dst = &o->workers[c->dst];
  c->first = o->pool[at].next;
  c->pending--;
  o->pool[at].next = o->spare;
  o->spare = at;
  c->seen[1] = time; /* a sender's times only grow */
  if (orders) c->seen[0] = time;
  if (orders) copse_order_note_entered(o, c->dst, o->plan->workers[src].rank);
  dst->heard[dst->n_heard++] = (struct heard){dst->time, time, src & INT32_MAX, orders};
}

/* ---- questions ----------------------------------------------------------------------------------
 */

/* Whether one of the channels from a worker to the workers from `dst` to before `end` has brought a
 * signal that was sent at `time` or later. */
static bool was_told(const struct copse_order *o, struct copse_event event, uint32_t dst,
                     uint32_t end, bool announced) {
  uint32_t low = o->workers[event.worker].first_channel,
           stop = o->workers[event.worker + 1].first_channel;
  for (uint32_t high = stop; low < high;) {
    uint32_t middle = low + (high - low) / 2;
    if (o->channels[middle].dst < dst)
      low = middle + 1;
    else
      high = middle;
  }
  for (; low < stop && o->channels[low].dst < end; low++)
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
