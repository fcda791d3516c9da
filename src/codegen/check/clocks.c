/* Vector clocks of a plan's workers: see clocks.h. */
#include "codegen/check/clocks.h"

#include <string.h>

#include "base/graph.h"

/* What the receiver of a signal may learn of its sender's clock: the entries that were later than
 * its own when the signal was sent. Its own only grow, so the others would tell it nothing. Pairs
 * of index and time or, where these would take more, the whole clock. */
struct snapshot {
  struct snapshot *next;
  uint32_t n;    /* pairs; WHOLE: the clock */
  uint32_t room; /* log2 of the words that fit */
  uint32_t words[];
};
#define WHOLE UINT32_MAX
enum { LEAST_ROOM = 2 };

struct worker {
  int component;  /* its least worker (copse_sets_find) */
  uint32_t local; /* index within the component */
  uint32_t size;  /* of the component, at its least worker */
  uint32_t *now;
};

struct queue {
  struct snapshot *first, *last;
  uint32_t n;
};

struct copse_clocks {
  const struct copse_plan *plan;
  struct worker *workers;     /* [n_workers] */
  struct queue *queues;       /* [n_channels] */
  struct snapshot *spare[33]; /* by room: to be used again */
  uint32_t *pairs;            /* [2 * n_workers] scratch */
  struct copse_arena *arena;
};

static copse_status find_components(struct copse_clocks *c, struct copse_err *err) {
  const struct copse_plan *plan = c->plan;
  int *sets, n = (int)plan->header.n_workers;
  COPSE_DO(COPSE_ARRAY(c->arena, (size_t)n, sets, err));
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
  COPSE_DO(COPSE_ARRAY(arena, 1, c, err));
  c->plan = plan;
  c->arena = arena;
  COPSE_DO(COPSE_ARRAY(arena, h->n_workers, c->workers, err));
  COPSE_DO(COPSE_ARRAY(arena, h->n_channels, c->queues, err));
  COPSE_DO(COPSE_ARRAY(arena, 2 * (size_t)h->n_workers, c->pairs, err));
  COPSE_DO(find_components(c, err));
  for (uint32_t w = 0; w < h->n_workers; w++)
    COPSE_DO(COPSE_ARRAY(arena, component_of(c, w)->size, c->workers[w].now, err));
  *out = c;
  return COPSE_OK;
}

/* Takes the oldest one in at the other end of the channel; it may be used again at once. */
static const struct snapshot *take(struct copse_clocks *c, uint32_t channel) {
  struct queue *q = &c->queues[channel];
  struct snapshot *taken = q->first;
  q->first = taken->next;
  q->n--;
  taken->next = c->spare[taken->room];
  c->spare[taken->room] = taken;
  return taken;
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

/* One with room for n words. */
static copse_status new_snapshot(struct copse_clocks *c, uint32_t n, struct snapshot **out,
                                 struct copse_err *err) {
  uint32_t room = LEAST_ROOM;
  char *bytes;
  while ((uint64_t)1 << room < n) room++;
  *out = c->spare[room];
  if (*out) {
    c->spare[room] = (*out)->next;
    return COPSE_OK;
  }
  COPSE_DO(copse_arena_array(c->arena, 1, sizeof **out + (sizeof(uint32_t) << room), &bytes, err));
  *out = (struct snapshot *)(void *)bytes;
  (*out)->room = room;
  return COPSE_OK;
}

copse_status copse_clocks_send(struct copse_clocks *c, uint32_t channel, struct copse_err *err) {
  const struct copse_plan_channel *ends = &c->plan->channels[channel];
  const uint32_t *ours = c->workers[ends->src_worker].now;
  const uint32_t *theirs = c->workers[ends->dst_worker].now;
  struct queue *q = &c->queues[channel];
  struct snapshot *s;
  uint32_t n = 0, size = component_of(c, ends->src_worker)->size;
  for (uint32_t i = 0; i < size; i++) {
    c->pairs[2 * n] = i;
    c->pairs[2 * n + 1] = ours[i];
    n += ours[i] > theirs[i];
  }
  bool whole = 2 * n >= size;
  COPSE_DO(new_snapshot(c, whole ? size : 2 * n, &s, err));
  s->n = whole ? WHOLE : n;
  memcpy(s->words, whole ? ours : c->pairs, (whole ? size : 2 * n) * sizeof(uint32_t));
  *(q->n++ > 0 ? &q->last->next : &q->first) = s;
  q->last = s;
  return COPSE_OK;
}

uint32_t copse_clocks_pending(const struct copse_clocks *c, uint32_t channel) {
  return c->queues[channel].n;
}

void copse_clocks_receive(struct copse_clocks *c, uint32_t channel, bool learns) {
  uint32_t dst = c->plan->channels[channel].dst_worker, *now = c->workers[dst].now;
  const struct snapshot *s = take(c, channel);
  uint32_t n = s->n == WHOLE ? component_of(c, dst)->size : s->n;
  for (uint32_t i = 0; i < n && learns; i++) {
    uint32_t entry = s->n == WHOLE ? i : s->words[2 * i];
    uint32_t time = s->n == WHOLE ? s->words[i] : s->words[2 * i + 1];
    now[entry] = time > now[entry] ? time : now[entry];
  }
}

bool copse_clocks_before(const struct copse_clocks *c, struct copse_event event, uint32_t worker) {
  if (event.time == 0 || event.worker == worker) return true;
  const struct worker *of = &c->workers[event.worker], *by = &c->workers[worker];
  return of->component == by->component && by->now[of->local] >= event.time;
}

bool copse_clocks_knows_entered(const struct copse_clocks *c, uint32_t worker, uint32_t rank) {
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
