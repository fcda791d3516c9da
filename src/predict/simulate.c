/*
 * The simulator: chunks of transfers queue at links, one event for each chunk and link.
 *
 *   dag --frame_make--> frame --frame_run(size)--> result     one frame, any number of sizes
 *
 *   issue --> [ link 0 ] --> serve --> [ link 1 ] --> serve ... --> arrive --> issue dependents
 *    ^            |                                                    |
 *    +-- next chunk, when link 0 has taken this one                    +-- chunks that stream on
 *
 * A frame holds what simulations of the same transfers share, whatever the size; copse_simulate_all
 * makes one for each dag and answers its questions on several threads. The model is in simulate.h;
 * with latencies that keep links busy it is that of TACCL (arXiv 2111.04867) and TACOS (arXiv
 * 2304.05301).
 */
#include "predict/simulate.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/parallel.h"
#include "predict/event_queue.h"
#include "predict/policy.h"
#include "predict/simulate_dag.h"
#include "schedule/chunks.h"

struct wire {
  double us_per_byte, latency_us;
  double held_us;           /* for how long a chunk keeps it beside its bytes */
  double left_us;           /* for how long the bytes still to come keep it */
  double free_us, taken_us; /* when it is free again, for how long it was taken */
};

/* A transfer at work; a cache line of its own, which has what most steps look at: simulations hold
 * more than a processor's cache does. */
struct flight {
  double chunk_bytes;
  double free_us;    /* when the first link has taken the chunk before */
  size_t first_link; /* into dag->ints */
  int n_links : 30;
  bool reduces : 1; /* as in the dag */
  bool adds_up : 1; /* some transfer that it streams from reduces */
  int n_chunks;
  int issued, arrived; /* chunks that asked for their first link, that arrived */
  int waits; /* transfers in `after` that haven't arrived; of a frame of only streams, those
                of `streams` whose part of the next chunk hasn't */
  int streams_from;    /* the place of the only one, or one of the above */
  int first_dependent; /* into the frame's list */
  int n_dependents;
  int transfer; /* its number in the dag */
  int worker;   /* the sending worker, index into worker_free_us; -1: none */
};

_Static_assert(sizeof(struct flight) == 64, "a cache line");

enum { NO_STREAM = -1, SEVERAL_STREAMS = -2 };

/* Flights stand by the transfers' `order` and then by number: that is how events of the same
 * moment come, and so mostly how memory is read. */
struct frame {
  const struct copse_topology *topology; /* borrowed, as the dag */
  const struct copse_sim_dag *dag;
  struct flight *flights; /* [n_transfers + 1] before anything moves, in no chunks */
  int *places;            /* [n_transfers] of each transfer; NULL: its number */
  int *dependents;        /* of all flights; ~p: p streams from it, p: comes after it */
  struct wire *wires;     /* [n_links of the topology] free */
  double *loads;          /* [n_links] the amounts of all transfers; NULL where switches copy */
  struct copse_sim_shape shape;
  bool delays;            /* some transfer has a delay */
  struct copse_arena arena;
  bool only_streams; /* no chunk c waits for a chunk after c of any transfer */
};

static inline int place_of(const struct frame *frame, int transfer) {
  return frame->places ? frame->places[transfer] : transfer;
}

/* ---- places ------------------------------------------------------------------------------ */

/* Bits of an order by which transfers are dealt out at a time. */
#define PLACE_BITS 11

/* Sorts by `order`, then by number, by radix: another sort would take some tenth of a plan's
 * simulation. Leaves `places` NULL where they are so already. */
static copse_status find_places(struct frame *f, struct copse_arena *tmp, struct copse_err *err) {
  const struct copse_sim_item *items = f->dag->items;
  int n = f->dag->n_transfers, sorted = 1, least = INT_MAX, most = INT_MIN, *from, *to;
  while (sorted < n && items[sorted - 1].order <= items[sorted].order) sorted++;
  if (sorted >= n) return COPSE_OK;
  COPSE_DO(copse_arena_array(&f->arena, (size_t)n, sizeof *f->places, &f->places, err));
  COPSE_DO(copse_arena_array(tmp, (size_t)n, sizeof *from, &from, err));
  COPSE_DO(copse_arena_array(tmp, (size_t)n, sizeof *to, &to, err));
  for (int t = 0; t < n; t++) {
    least = items[t].order < least ? items[t].order : least;
    most = items[t].order > most ? items[t].order : most;
    from[t] = t;
  }
  for (int bit = 0; bit < 32 && ((uint32_t)most - (uint32_t)least) >> bit > 0; bit += PLACE_BITS) {
    int next[(1 << PLACE_BITS) + 1] = {0}, *dealt = to;
    const uint32_t mask = (1 << PLACE_BITS) - 1, base = (uint32_t)least;
    for (int t = 0; t < n; t++) next[(((uint32_t)items[t].order - base) >> bit & mask) + 1]++;
    for (uint32_t d = 0; d < mask; d++) next[d + 1] += next[d];
    for (int i = 0; i < n; i++)
      dealt[next[((uint32_t)items[from[i]].order - base) >> bit & mask]++] = from[i];
    to = from;
    from = dealt;
  }
  for (int p = 0; p < n; p++) f->places[from[p]] = p;
  return COPSE_OK;
}

/* ---- flights ----------------------------------------------------------------------------- */

static bool adds_up(const struct copse_sim_dag *dag, int t) {
  const int *streams = copse_sim_streams(dag, t);
  bool any = false;
  for (int i = 0; i < dag->items[t].n_streams; i++) any = any || dag->items[streams[i]].reduces;
  return any;
}

static int worker_of(const struct frame *f, int t) {
  const struct copse_sim_item *item = &f->dag->items[t];
  if (item->n_links == 0) return -1;
  int rank = f->topology->nodes[f->topology->links[copse_sim_links(f->dag, t)[0]].src].rank;
  return rank < 0 ? -1 : rank * f->dag->n_workers + item->worker;
}

static int streams_from(const struct frame *f, int t) {
  int n = f->dag->items[t].n_streams;
  if (n == 0) return NO_STREAM;
  if (n > 1) return SEVERAL_STREAMS;
  return place_of(f, copse_sim_streams(f->dag, t)[0]);
}

static copse_status make_flights(struct frame *f, struct copse_err *err) {
  const struct copse_sim_dag *dag = f->dag;
  COPSE_DO(copse_arena_array(&f->arena, (size_t)dag->n_transfers + 1, sizeof *f->flights,
                             &f->flights, err));
  for (int t = 0; t < dag->n_transfers; t++) {
    const struct copse_sim_item *item = &dag->items[t];
    const int *links = copse_sim_links(dag, t);
    for (int i = 0; i < item->n_links; i++)
      if (links[i] < 0 || links[i] >= f->topology->n_links)
        return copse_fail(err, COPSE_INVALID, "transfer %d: the topology has no link %d", t,
                          links[i]);
    if (item->reduces && (item->adder < 0 || item->adder >= f->topology->n_ranks))
      return copse_fail(err, COPSE_INVALID, "transfer %d: the topology has no rank %d", t,
                        item->adder);
    f->flights[place_of(f, t)] = (struct flight){.first_link = item->first,
                                                 .n_links = item->n_links,
                                                 .reduces = item->reduces,
                                                 .adds_up = adds_up(dag, t),
                                                 .worker = worker_of(f, t),
                                                 .waits = item->n_after + item->n_streams,
                                                 .streams_from = streams_from(f, t),
                                                 .transfer = t};
    f->delays = f->delays || item->delay_us > 0;
    f->only_streams = f->only_streams && item->n_after == 0 && item->amount > 0;
  }
  for (int t = 0; t < dag->n_transfers && !f->only_streams; t++)
    f->flights[place_of(f, t)].waits = dag->items[t].n_after;
  return COPSE_OK;
}

/* Lists for each flight the ones that wait for it, in the order of their transfers' numbers. */
static copse_status find_dependents(struct frame *f, struct copse_err *err) {
  const struct copse_sim_dag *dag = f->dag;
  struct flight *p = f->flights;
  size_t total = 0;
  for (int t = 0; t < dag->n_transfers; t++) {
    const int *list = copse_sim_after(dag, t); /* `streams` follow at once */
    int n = dag->items[t].n_after + dag->items[t].n_streams;
    for (int i = 0; i < n; i++) p[place_of(f, list[i])].n_dependents++;
    total += (size_t)n;
    if (total > INT32_MAX) return copse_fail(err, COPSE_OVERFLOW, "too many dependencies");
  }
  COPSE_DO(copse_arena_array(&f->arena, total, sizeof *f->dependents, &f->dependents, err));
  for (int i = 0; i < dag->n_transfers; i++) {
    p[i + 1].first_dependent = p[i].first_dependent + p[i].n_dependents;
    p[i].n_dependents = 0;
  }
  for (int t = 0; t < dag->n_transfers; t++) {
    const int *list = copse_sim_after(dag, t);
    int n_after = dag->items[t].n_after, n = n_after + dag->items[t].n_streams;
    int place = place_of(f, t);
    for (int i = 0; i < n; i++) {
      struct flight *from = &p[place_of(f, list[i])];
      f->dependents[from->first_dependent + from->n_dependents++] = i < n_after ? place : ~place;
    }
  }
  return COPSE_OK;
}

/* ---- loads ------------------------------------------------------------------------------- */

/* Finds the links' loads where no switch copies: a copy takes a link once, for several
 * transfers. */
static copse_status find_loads(struct frame *f, struct copse_err *err) {
  const struct copse_sim_dag *dag = f->dag;
  if (dag->n_copies > 0) return COPSE_OK;
  COPSE_DO(copse_arena_array(&f->arena, (size_t)f->topology->n_links, sizeof *f->loads, &f->loads,
                             err));
  for (int t = 0; t < dag->n_transfers; t++) {
    const int *links = copse_sim_links(dag, t);
    for (int i = 0; i < dag->items[t].n_links; i++) f->loads[links[i]] += dag->items[t].amount;
  }
  return COPSE_OK;
}

/* ---- all together ------------------------------------------------------------------------ */

static copse_status frame_make(const struct copse_topology *topology,
                               const struct copse_sim_dag *dag, struct frame *frame,
                               struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  *frame = (struct frame){.topology = topology, .dag = dag, .only_streams = true};
  COPSE_DO(find_places(frame, &scratch, err));
  COPSE_DO(make_flights(frame, err));
  COPSE_DO(find_dependents(frame, err));
  COPSE_DO(copse_sim_dag_shape(dag, &frame->shape, err));
  COPSE_DO(find_loads(frame, err));
  COPSE_DO(copse_arena_array(&frame->arena, (size_t)topology->n_links, sizeof *frame->wires,
                             &frame->wires, err));
  for (int i = 0; i < topology->n_links; i++) {
    const struct copse_link *link = &topology->links[i];
    frame->wires[i].us_per_byte = 1e-3 / copse_q_to_double(link->bandwidth);
    frame->wires[i].latency_us = copse_q_to_double(link->latency);
  }
  return COPSE_OK;
}

static void frame_free(struct frame *frame) {
  copse_arena_free(&frame->arena);
  *frame = (struct frame){0};
}

const struct copse_sim_options copse_sim_defaults = COPSE_SIM_DEFAULTS(0);

/* A chunk asks for its worker (hop 0), for link `hop` - 1 of its transfer, or, beyond the last
 * link, arrives. */
struct event {
  double time;
  int place, chunk, hop;
};

struct sim {
  const struct frame *frame;
  const struct copse_sim_options *options;
  struct wire *wires;
  struct flight *flights; /* [n_transfers + 1] */
  double *copies;         /* [n_copies][max_chunks] when the copy took its link, < 0: not yet */
  int max_chunks;
  int fifo;        /* slots of a transfer; 0: as many as there are chunks */
  double *left_us; /* [n_transfers][fifo] when chunk c leaves its last link, at c mod fifo; < 0:
                      that isn't known yet */
  struct copse_sim_queue *queue;
  int hop_bits;       /* of an event's key: place, chunk, hop, from the highest on */
  double *arrival_us; /* may be NULL */
  double most_us;     /* as of a question; INFINITY: it runs to its end */
  bool too_late;      /* it is known to take longer */
  int *under_way;     /* [n_ranks][n_ranks] transfers between two ranks; NULL: it doesn't matter */
  double *adder_free_us;  /* [n_ranks] when a rank has added what came so far */
  double *worker_free_us; /* [n_ranks][n_workers] when a worker has sent what it had to */
  struct copse_sim_result *result;
  struct copse_arena scratch;
  struct copse_err *err;
};

/* ---- the events, earliest first ------------------------------------------------------- */

/* Pushes an event so that what happens at the same time happens in the order of places, chunks and
 * hops on every run. */
static copse_status push(struct sim *s, double time, int place, int chunk, int hop) {
  uint64_t key = (uint64_t)place << 32 | (uint64_t)chunk << s->hop_bits | (uint64_t)hop;
  return copse_sim_queue_push(s->queue, time, key, s->err);
}

static copse_status pop(struct sim *s, struct event *out) {
  struct copse_sim_event event;
  COPSE_DO(copse_sim_queue_pop(s->queue, &event, s->err));
  uint32_t low = (uint32_t)event.key;
  *out = (struct event){copse_sim_event_us(&event), (int)(event.key >> 32),
                        (int)(low >> s->hop_bits), (int)(low & ((1u << s->hop_bits) - 1))};
  return COPSE_OK;
}

static inline const int *links_of(const struct sim *s, const struct flight *p) {
  return s->frame->dag->ints + p->first_link;
}

/* ---- what a transfer waits for --------------------------------------------------------- */

/* Whether so much of `from` is there as chunk c needs. */
static inline bool has_come(const struct flight *from, const struct flight *p, int c) {
  if (from->n_chunks == p->n_chunks) return from->arrived > c;
  return from->arrived >= (((int64_t)c + 1) * from->n_chunks + p->n_chunks - 1) / p->n_chunks;
}

/* Whether chunk c may start: its part of every transfer that it streams from is there. */
static bool is_ready(const struct sim *s, const struct flight *p, int c) {
  const struct copse_sim_dag *dag = s->frame->dag;
  if (p->waits > 0) return false;
  if (s->frame->only_streams) return true;
  if (p->streams_from == NO_STREAM) return true;
  if (p->streams_from >= 0) return has_come(&s->flights[p->streams_from], p, c);
  const int *streams = copse_sim_streams(dag, p->transfer);
  for (int i = 0; i < dag->items[p->transfer].n_streams; i++)
    if (!has_come(&s->flights[place_of(s->frame, streams[i])], p, c)) return false;
  return true;
}

/* Counts for how many the next chunk waits, in a frame of only streams (as many chunks
 * everywhere). */
static int count_missing(const struct sim *s, const struct flight *p) {
  const struct copse_sim_dag *dag = s->frame->dag;
  if (p->streams_from == NO_STREAM || p->issued == p->n_chunks) return 0;
  if (p->streams_from >= 0) return s->flights[p->streams_from].arrived <= p->issued;
  const int *streams = copse_sim_streams(dag, p->transfer);
  int missing = 0;
  for (int i = 0; i < dag->items[p->transfer].n_streams; i++)
    missing += s->flights[place_of(s->frame, streams[i])].arrived <= p->issued;
  return missing;
}

/* Finds the ranks at the ends of a transfer that has links; -1 for another node. */
static void find_ends(const struct sim *s, const struct flight *p, int *from, int *to) {
  const struct copse_topology *topology = s->frame->topology;
  const int *links = links_of(s, p);
  *from = topology->nodes[topology->links[links[0]].src].rank;
  *to = topology->nodes[topology->links[links[p->n_links - 1]].dst].rank;
}

/* Returns how many transfers are on their way as this one goes, or, `back`, against it. NULL where
 * they don't matter, and for one that goes nowhere or not from rank to rank. */
static int *count_of(const struct sim *s, const struct flight *p, bool back) {
  int from, to;
  if (!s->under_way || p->n_links == 0) return NULL;
  find_ends(s, p, &from, &to);
  if (from < 0 || to < 0) return NULL;
  size_t n = (size_t)s->frame->topology->n_ranks;
  return &s->under_way[back ? (size_t)to * n + (size_t)from : (size_t)from * n + (size_t)to];
}

static void count(const struct sim *s, const struct flight *p, int more) {
  int *it = count_of(s, p, false);
  if (it) *it += more;
}

/* Returns where the time is kept at which the last chunk left that used the given chunk's slot;
 * NULL where slots don't matter. Where a transfer has one link, free_us says the same. */
static inline double *slot_of(const struct sim *s, const struct flight *p, int place, int chunk) {
  if (!s->left_us || p->n_links < 2) return NULL;
  return &s->left_us[(size_t)place * (size_t)s->fifo + (size_t)(chunk % s->fifo)];
}

/* Whether the next chunk's slot is free from a time on that is known. */
static inline bool has_slot(const struct sim *s, const struct flight *p, int place) {
  const double *slot = slot_of(s, p, place, p->issued);
  return !slot || *slot >= 0;
}

static inline bool holds(const struct sim *s, const struct flight *p) {
  return p->reduces && s->fifo > 0 && s->frame->only_streams;
}

/* Whether all that goes on from what the transfer brings has gone so far that the next chunk's slot
 * at its end is free. Nobody waits for nobody so: chunk c waits for such before c alone. */
static bool is_taken(const struct sim *s, const struct flight *p) {
  const int *dependents = s->frame->dependents + p->first_dependent;
  if (!holds(s, p)) return true;
  for (int i = 0; i < p->n_dependents; i++)
    if (s->flights[~dependents[i]].issued <= p->issued - s->fifo) return false;
  return true;
}

static copse_status issue(struct sim *s, int place, double now);

/* Frees the slots of what a chunk was added up from, when it goes on. */
static copse_status free_slots(struct sim *s, const struct flight *p, double now) {
  const struct copse_sim_dag *dag = s->frame->dag;
  if (!p->adds_up) return COPSE_OK;
  const int *streams = copse_sim_streams(dag, p->transfer);
  for (int i = 0; i < dag->items[p->transfer].n_streams; i++) {
    int place = place_of(s->frame, streams[i]);
    if (holds(s, &s->flights[place])) COPSE_DO(issue(s, place, now));
  }
  return COPSE_OK;
}

/* Lets every chunk go that may: over links one at a time, see serve(). */
static copse_status issue(struct sim *s, int place, double now) {
  struct flight *p = &s->flights[place];
  while (p->issued < p->n_chunks && p->free_us < INFINITY && is_ready(s, p, p->issued) &&
         has_slot(s, p, place) && is_taken(s, p)) {
    if (p->issued == 0) {
      p->free_us = s->frame->delays ? now + s->frame->dag->items[p->transfer].delay_us : now;
      count(s, p, 1);
    }
    double start = p->free_us > now ? p->free_us : now;
    double *slot = slot_of(s, p, place, p->issued);
    if (slot && *slot > start) start = *slot;
    if (slot) *slot = -1;
    COPSE_DO(push(s, start, place, p->issued, s->worker_free_us && p->n_links > 0 ? 0 : 1));
    p->issued++;
    if (s->frame->only_streams) p->waits = count_missing(s, p);
    if (p->n_links > 0) p->free_us = INFINITY; /* until the first link took it */
    if (s->fifo > 0) COPSE_DO(free_slots(s, p, now));
  }
  return COPSE_OK;
}

static copse_status arrive(struct sim *s, int place, double now) {
  struct flight *p = &s->flights[place];
  bool whole = ++p->arrived == p->n_chunks;
  if (now > s->result->us) s->result->us = now;
  if (whole && s->arrival_us) s->arrival_us[p->transfer] = now;
  if (whole) count(s, p, -1);
  const int *dependents = s->frame->dependents + p->first_dependent;
  for (int i = 0; i < p->n_dependents; i++) {
    int d = dependents[i];
    if (d >= 0 ? whole : s->frame->only_streams && s->flights[~d].issued + 1 == p->arrived)
      s->flights[d < 0 ? ~d : d].waits--;
    if (d < 0 || whole) COPSE_DO(issue(s, d < 0 ? ~d : d, now));
  }
  return COPSE_OK;
}

/* Whether nothing waits for a chunk and nobody counts it: its arrival is no event then. */
static inline bool ends_here(const struct sim *s, const struct flight *p) {
  return p->n_dependents == 0 && !s->under_way;
}

static inline void note_end(struct sim *s, struct flight *p, double now) {
  if (now > s->result->us) s->result->us = now;
  if (s->arrival_us && (p->arrived == 0 || now > s->arrival_us[p->transfer]))
    s->arrival_us[p->transfer] = now;
  p->arrived++;
}

/* ---- workers ----------------------------------------------------------------------------- */

/* Returns when a chunk is sent. A worker sends one after the other, and takes a time for each. */
static double send(struct sim *s, const struct event *e) {
  const struct flight *p = &s->flights[e->place];
  double us = s->options->message_us;
  const int *copies = s->copies ? copse_sim_copies(s->frame->dag, p->transfer) : NULL;
  /* what a switch copies was sent once */
  if (p->worker < 0 ||
      (copies && copies[0] >= 0 &&
       s->copies[(size_t)copies[0] * (size_t)s->max_chunks + (size_t)e->chunk] >= 0))
    return e->time;
  double *free_us = &s->worker_free_us[p->worker], start = *free_us > e->time ? *free_us : e->time;
  *free_us = start + us;
  return start;
}

/* ---- links ----------------------------------------------------------------------------- */

/* Whether all that the link still has to carry can't arrive in time; but for rounding. */
static inline bool ends_late(const struct sim *s, const struct wire *wire) {
  double sent_us = wire->free_us - wire->held_us + wire->left_us;
  return sent_us + wire->latency_us + s->options->alpha_us > s->most_us * (1 + SAME_TIME);
}

/* Returns when the chunk starts on its link; a further user of the same copy takes none of its
 * time. */
static inline double take_link(struct sim *s, const struct event *e, const struct flight *p,
                               struct wire *wire, double taken) {
  double *copy = NULL;
  if (s->copies) {
    const int *copies = copse_sim_copies(s->frame->dag, p->transfer);
    if (copies && copies[e->hop - 1] >= 0)
      copy = &s->copies[(size_t)copies[e->hop - 1] * (size_t)s->max_chunks + (size_t)e->chunk];
    if (copy && *copy >= 0) return e->time > *copy ? e->time : *copy;
  }
  double start = e->time > wire->free_us ? e->time : wire->free_us;
  wire->free_us = start + taken + wire->held_us;
  wire->taken_us += taken + wire->held_us;
  wire->left_us -= taken;
  if (ends_late(s, wire)) s->too_late = true;
  if (copy) *copy = start;
  return start;
}

/* Returns when what came at `now` has been added, where that takes time. */
static double add_up(struct sim *s, const struct flight *p, double now) {
  double us = p->chunk_bytes * s->options->reduce_us_per_byte;
  if (us == 0 || !p->reduces) return now;
  int from, to = s->frame->dag->items[p->transfer].adder;
  if (p->n_links > 0) find_ends(s, p, &from, &to);
  if (to < 0) return now;
  double *free_us = &s->adder_free_us[to];
  *free_us = (*free_us > now ? *free_us : now) + us;
  return *free_us;
}

/* Sends the chunk on to its next link, or to its end. */
static inline copse_status send_on(struct sim *s, const struct event *e, struct flight *p,
                                   double bytes, double start) {
  const int *links = links_of(s, p) + e->hop - 1;
  const struct wire *wire = &s->wires[links[0]];
  double taken = bytes * wire->us_per_byte, next;
  if (e->hop < p->n_links) {
    /* On a faster link the tail must not overtake itself: it starts as much later. */
    double lag = taken - bytes * s->wires[links[1]].us_per_byte;
    next = start + wire->latency_us + (lag > 0 ? lag : 0);
  } else {
    next = add_up(s, p, start + taken + wire->latency_us + s->options->alpha_us);
    if (ends_here(s, p)) {
      note_end(s, p, next);
      return COPSE_OK;
    }
  }
  return push(s, next, e->place, e->chunk, e->hop + 1);
}

static copse_status serve(struct sim *s, const struct event *e) {
  struct flight *p = &s->flights[e->place];
  struct wire *wire = &s->wires[links_of(s, p)[e->hop - 1]];
  const int *against = count_of(s, p, true);
  double bytes = p->chunk_bytes * (against && *against > 0 ? s->options->duplex : 1);
  double taken = bytes * wire->us_per_byte;
  double start = take_link(s, e, p, wire, taken);
  COPSE_DO(send_on(s, e, p, bytes, start));
  if (e->hop == 1) {
    p->free_us = start + taken;
    COPSE_DO(issue(s, e->place, e->time));
  } else if (s->left_us && e->hop == p->n_links) {
    *slot_of(s, p, e->place, e->chunk) = start + taken;
    COPSE_DO(issue(s, e->place, e->time));
  }
  return COPSE_OK;
}

/* Lets a transfer within a rank arrive at once, or after the time of its sum. */
static copse_status serve_here(struct sim *s, const struct event *e) {
  double then = e->hop == 1 ? add_up(s, &s->flights[e->place], e->time) : e->time;
  if (then == e->time) return arrive(s, e->place, then);
  return push(s, then, e->place, e->chunk, 2);
}

/* Whether the simulation has passed the time limit. */
static inline bool is_over(const struct sim *s) {
  return s->too_late || s->result->us > s->most_us;
}

/* Asks the cache for a flight that an event comes for; when that is there, for what it points
 * to. */
static void fetch(const void *context, uint64_t key, bool next) {
  const struct sim *s = context;
  size_t place = key >> 32;
  const struct flight *p = &s->flights[place];
  __builtin_prefetch(p);
  if (!next) return;
  __builtin_prefetch(links_of(s, p));
  __builtin_prefetch(s->frame->dependents + p->first_dependent);
  if (s->left_us) __builtin_prefetch(&s->left_us[place * (size_t)s->fifo]);
}

static copse_status run(struct sim *s) {
  const struct copse_sim_dag *dag = s->frame->dag;
  for (int i = 0; i < dag->n_transfers; i++)
    if (s->flights[i].waits == 0 && s->flights[i].streams_from == NO_STREAM)
      COPSE_DO(issue(s, i, 0));
  while (!copse_sim_queue_is_empty(s->queue) && !is_over(s)) {
    struct event e;
    COPSE_DO(pop(s, &e));
    if (s->queue->next < s->queue->batch.n) /* by when its turn comes it is in the cache */
      __builtin_prefetch(&s->flights[s->queue->batch.items[s->queue->next].key >> 32]);
    if (e.hop == 0) {
      double start = send(s, &e);
      e.hop = 1;
      if (start > e.time) {
        COPSE_DO(push(s, start, e.place, e.chunk, 1));
        continue;
      } /* else nothing comes between: its key would be the next one */
    }
    if (s->flights[e.place].n_links == 0)
      COPSE_DO(serve_here(s, &e));
    else if (e.hop <= s->flights[e.place].n_links)
      COPSE_DO(serve(s, &e));
    else
      COPSE_DO(arrive(s, e.place, e.time));
  }
  for (int i = 0; i < dag->n_transfers && !is_over(s); i++)
    if (s->flights[i].arrived < s->flights[i].n_chunks)
      return copse_fail(s->err, COPSE_INTERNAL, "the simulation stopped before transfer %d",
                        s->flights[i].transfer);
  return COPSE_OK;
}

/* ---- setting up ------------------------------------------------------------------------ */

static int chunks_of(double bytes, double chunk_bytes, int most) {
  double n = ceil(bytes / chunk_bytes);
  return n >= most ? most : n < 1 ? 1 : (int)n;
}

/* Returns the bits of an event's key for the hop. */
static int hop_bits_of(const struct copse_sim_shape *shape) {
  int bits = 2;
  while (bits < 31 && (shape->longest + 1) >> bits > 0) bits++;
  return bits;
}

/* Returns the most chunks of a transfer: as many as there are steps for, and as a key can tell. */
static int most_chunks(const struct copse_sim_shape *shape, int64_t steps) {
  int bits = hop_bits_of(shape);
  int64_t room = shape->n_links > 0 ? steps / shape->n_links : steps;
  int64_t limit = bits < 12 ? 1 << 20 : INT64_C(1) << (32 - bits);
  return room > limit ? (int)limit : room < 1 ? 1 : (int)room;
}

int copse_sim_chunks(const struct copse_sim_shape *shape, const struct copse_sim_options *o,
                     double unit_bytes, bool *coarse) {
  double largest = shape->largest * unit_bytes, needed = ceil(largest / o->max_chunk_bytes);
  int part = o->quick_part > 1 ? o->quick_part : 1, most = most_chunks(shape, o->max_steps / part);
  if (part > 1 && needed > most) most = most_chunks(shape, o->max_steps);
  int pipeline = o->pipeline_chunks ? o->pipeline_chunks : copse_pipeline_chunks(shape->levels);
  int wanted = chunks_of(largest, o->min_chunk_bytes, pipeline);
  int fewest = chunks_of(largest, o->max_chunk_bytes, most);
  *coarse = needed > most;
  return wanted < fewest ? fewest : wanted < most ? wanted : most;
}

static void cut_into_chunks(struct sim *s, double unit_bytes) {
  const struct copse_sim_dag *dag = s->frame->dag;
  s->max_chunks = copse_sim_chunks(&s->frame->shape, s->options, unit_bytes, &s->result->coarse);
  for (int i = 0; i < dag->n_transfers; i++) {
    struct flight *p = &s->flights[i];
    double bytes = dag->items[p->transfer].amount * unit_bytes;
    p->n_chunks = bytes > 0 ? s->max_chunks : 1;
    p->chunk_bytes = bytes / p->n_chunks;
    s->result->chunks += p->n_chunks;
  }
}

static copse_status copy_flights(struct sim *s) {
  size_t n = (size_t)s->frame->dag->n_transfers + 1, size = sizeof *s->flights;
  s->flights = n <= SIZE_MAX / size ? aligned_alloc(size, n * size) : NULL;
  if (!s->flights) return copse_fail_nomem(s->err);
  memcpy(s->flights, s->frame->flights, n * size);
  return COPSE_OK;
}

/* Makes slots, only where they are fewer than chunks. */
static copse_status make_slots(struct sim *s) {
  size_t n = (size_t)s->frame->dag->n_transfers;
  s->fifo = s->options->fifo;
  if (s->max_chunks <= s->fifo) s->fifo = 0;
  if (s->fifo == 0 || s->frame->shape.longest < 2) return COPSE_OK;
  return copse_arena_array(&s->scratch, n, sizeof *s->left_us * (size_t)s->fifo, &s->left_us,
                           s->err);
}

/* Holds a link busy for what it delays, where options->alpha_occupies. */
static void hold_links(struct sim *s) {
  const struct copse_topology *topology = s->frame->topology;
  for (int i = 0; i < topology->n_links && s->options->alpha_occupies; i++) {
    bool ends_hop = topology->nodes[topology->links[i].dst].rank >= 0;
    s->wires[i].held_us = s->wires[i].latency_us + (ends_hop ? s->options->alpha_us : 0);
  }
}

/* Loads links with what they have to carry; says whether that alone takes too long. */
static void load_links(struct sim *s, double unit_bytes) {
  const double *loads = s->frame->loads;
  for (int i = 0; i < s->frame->topology->n_links && loads && s->most_us < INFINITY; i++) {
    struct wire *wire = &s->wires[i];
    wire->left_us = loads[i] * unit_bytes * wire->us_per_byte;
    if (wire->left_us > 0 && ends_late(s, wire)) s->too_late = true;
  }
}

static copse_status set_up(struct sim *s, double unit_bytes) {
  const struct frame *f = s->frame;
  size_t links = (size_t)f->topology->n_links, ranks = (size_t)f->topology->n_ranks;
  COPSE_DO(copse_arena_array(&s->scratch, links, sizeof *s->wires, &s->wires, s->err));
  memcpy(s->wires, f->wires, links * sizeof *s->wires);
  hold_links(s);
  load_links(s, unit_bytes);
  if (s->too_late) return COPSE_OK;
  COPSE_DO(copy_flights(s));
  COPSE_DO(
      copse_arena_array(&s->scratch, ranks, sizeof *s->adder_free_us, &s->adder_free_us, s->err));
  if (s->options->duplex > 1)
    COPSE_DO(
        copse_arena_array(&s->scratch, ranks * ranks, sizeof *s->under_way, &s->under_way, s->err));
  s->hop_bits = hop_bits_of(&f->shape);
  if (s->options->message_us > 0)
    COPSE_DO(copse_arena_array(&s->scratch, ranks * (size_t)f->dag->n_workers,
                               sizeof *s->worker_free_us, &s->worker_free_us, s->err));
  cut_into_chunks(s, unit_bytes);
  COPSE_DO(make_slots(s));
  size_t n = (size_t)f->dag->n_copies * (size_t)s->max_chunks;
  if (n > 0) COPSE_DO(copse_arena_array(&s->scratch, n, sizeof *s->copies, &s->copies, s->err));
  for (size_t i = 0; i < n; i++) s->copies[i] = -1;
  return COPSE_OK;
}

/* Frees what a run has. It is the inside of copse_simulate; `frame` is only read. */
static void sim_free(struct sim *s) {
  copse_arena_free(&s->scratch);
  free(s->flights);
}

static copse_status frame_run(const struct frame *frame, const struct copse_sim_options *options,
                              double unit_bytes, double most_us, struct copse_sim_result *result,
                              double *arrival_us, struct copse_err *err) {
  COPSE_AT_END(copse_sim_queue_free) struct copse_sim_queue queue = {0};
  COPSE_AT_END(sim_free)
  struct sim s = {.frame = frame,
                  .queue = &queue,
                  .options = options ? options : &copse_sim_defaults,
                  .arrival_us = arrival_us,
                  .most_us = most_us > 0 ? most_us : INFINITY,
                  .result = result,
                  .err = err};
  *result = (struct copse_sim_result){0};
  if (!(s.options->min_chunk_bytes > 0) || !(s.options->max_chunk_bytes > 0) ||
      s.options->pipeline_chunks < 0 || s.options->fifo < 0 ||
      s.options->fifo > COPSE_SIM_MAX_FIFO || !(s.options->alpha_us >= 0) ||
      !(s.options->message_us >= 0) || !(unit_bytes >= 0) ||
      !(s.options->duplex == 0 || s.options->duplex >= 1) || !(s.options->reduce_us_per_byte >= 0))
    return copse_fail(err, COPSE_INVALID, "a simulation needs positive chunks and sizes");
  COPSE_DO(set_up(&s, unit_bytes));
  queue.comes = fetch;
  queue.context = &s;
  if (!s.too_late) COPSE_DO(run(&s));
  if (is_over(&s)) result->us = INFINITY;
  for (int i = 0; i < frame->topology->n_links; i++)
    if (s.wires[i].taken_us > result->busiest_us) result->busiest_us = s.wires[i].taken_us;
  return COPSE_OK;
}

copse_status copse_simulate(const struct copse_topology *topology, const struct copse_sim_dag *dag,
                            const struct copse_sim_options *options, double unit_bytes,
                            struct copse_sim_result *result, double *arrival_us,
                            struct copse_err *err) {
  COPSE_AT_END(frame_free) struct frame frame = {0};
  *result = (struct copse_sim_result){0};
  COPSE_DO(frame_make(topology, dag, &frame, err));
  return frame_run(&frame, options, unit_bytes, 0, result, arrival_us, err);
}

/* ---- several questions ---- */

int copse_simulate_threads = 0;

struct all {
  const struct copse_topology *topology;
  struct copse_sim_question *questions;
  struct frame *frames;  /* [n_frames] one for questions about the same transfers */
  int *frame_of, *first; /* [n questions], [n_frames] */
  int n_frames;
};

static copse_status make_one(void *arg, int i, struct copse_err *err) {
  const struct all *all = arg;
  return frame_make(all->topology, all->questions[all->first[i]].dag, &all->frames[i], err);
}

static copse_status answer(void *arg, int i, struct copse_err *err) {
  const struct all *all = arg;
  struct copse_sim_question *q = &all->questions[i];
  return frame_run(&all->frames[all->frame_of[i]], q->options, q->unit_bytes, q->most_us,
                   &q->result, NULL, err);
}

static int count_threads(const struct copse_sim_question *questions, int n) {
  size_t steps = 0;
  if (copse_simulate_threads > 0) return copse_simulate_threads;
  for (int i = 0; i < n; i++) steps += questions[i].dag->n_ints;
  return steps < STEPS_FOR_THREADS ? 1 : copse_processors();
}

static void free_frames(struct all *all) {
  for (int i = 0; i < all->n_frames; i++) frame_free(&all->frames[i]);
}

copse_status copse_simulate_all(const struct copse_topology *topology,
                                struct copse_sim_question *questions, int n,
                                struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  COPSE_AT_END(free_frames) struct all all = {.topology = topology, .questions = questions};
  int threads = count_threads(questions, n);
  COPSE_DO(copse_arena_array(&scratch, (size_t)n, sizeof *all.frames, &all.frames, err));
  COPSE_DO(COPSE_ARRAYS(&scratch, (size_t)n, int, err, &all.frame_of, &all.first));
  for (int i = 0; i < n; i++) {
    if (i == 0 || questions[i].dag != questions[i - 1].dag) all.first[all.n_frames++] = i;
    all.frame_of[i] = all.n_frames - 1;
  }
  COPSE_DO(copse_parallel(all.n_frames, threads, make_one, &all, err));
  return copse_parallel(n, threads, answer, &all, err);
}
