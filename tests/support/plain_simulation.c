#include "support/plain_simulation.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "predict/simulate_dag.h"

/* A chunk asks for its worker (hop -1), for link `hop` of its transfer, or, beyond the last link,
 * arrives. */
struct event {
  double time;
  int order, transfer, chunk, hop;
};

struct wire {
  double us_per_byte, latency_us;
  double free_us, taken_us; /* when it is free again, for how long it was taken */
};

struct progress {
  int n_chunks;
  int issued, arrived; /* chunks that asked for their first link, that arrived */
  int waits;           /* transfers in `after` that haven't arrived */
  double chunk_bytes;
  double free_us;      /* when the first link has taken the chunk before */
  int first_dependent; /* into sim.dependents, up to the next transfer's */
  double *left_us;     /* [n_chunks] when each left its last link; < 0: not yet known */
};

struct sim {
  const struct copse_sim_dag *dag;
  const struct copse_sim_options *options;
  struct wire *wires;
  struct progress *progress; /* [n_transfers + 1] */
  int *dependents;           /* of all transfers; ~t: t streams, t: t comes after */
  double *copies;            /* [n_copies][max_chunks] when the copy took its link, < 0: not yet */
  int max_chunks;
  struct event *heap;
  size_t n_heap, heap_capacity;
  double *arrival_us; /* may be NULL */
  const struct copse_topology *topology;
  int *under_way; /* [n_ranks][n_ranks] transfers between two ranks; NULL: it doesn't matter */
  double *worker_free_us; /* [n_ranks][n_workers] when a worker may send again */
  double *adder_free_us;  /* [n_ranks] when a rank has added what came so far */
  struct copse_sim_result *result;
  struct copse_err *err;
};

/* ---- the events, earliest first ------------------------------------------------------- */

/* A total order: what happens at the same time happens in the same order on every run. */
static bool before(const struct event *a, const struct event *b) {
  if (a->time != b->time) return a->time < b->time;
  if (a->order != b->order) return a->order < b->order;
  if (a->transfer != b->transfer) return a->transfer < b->transfer;
  if (a->chunk != b->chunk) return a->chunk < b->chunk;
  return a->hop < b->hop;
}

static copse_status push(struct sim *s, struct event e) {
  copse_status status = COPSE_OK;
  COPSE_TRY(copse_grow(&s->heap, &s->heap_capacity, s->n_heap + 1, sizeof *s->heap, s->err));
  size_t i = s->n_heap++;
  for (; i > 0 && before(&e, &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
    s->heap[i] = s->heap[(i - 1) / 2];
  s->heap[i] = e;
out:
  return status;
}

static struct event pop(struct sim *s) {
  struct event top = s->heap[0], last = s->heap[--s->n_heap];
  size_t i = 0;
  for (size_t child; (child = 2 * i + 1) < s->n_heap; i = child) {
    if (child + 1 < s->n_heap && before(&s->heap[child + 1], &s->heap[child])) child++;
    if (!before(&s->heap[child], &last)) break;
    s->heap[i] = s->heap[child];
  }
  s->heap[i] = last;
  return top;
}

/* ---- what a transfer waits for --------------------------------------------------------- */

/* Whether chunk c may start: its part of every transfer that it streams from is there. */
static bool is_ready(const struct sim *s, int t, int c) {
  const struct progress *p = &s->progress[t];
  const int *streams = copse_sim_streams(s->dag, t);
  if (p->waits > 0) return false;
  for (int i = 0; i < s->dag->items[t].n_streams; i++) {
    const struct progress *from = &s->progress[streams[i]];
    int64_t need = (((int64_t)c + 1) * from->n_chunks + p->n_chunks - 1) / p->n_chunks;
    if (from->arrived < need) return false;
  }
  return true;
}

/* The ranks at the ends of a transfer that has links; -1 for another node. */
static void find_ends(const struct sim *s, int t, int *from, int *to) {
  const struct copse_topology *topology = s->topology;
  const int *links = copse_sim_links(s->dag, t);
  *from = topology->nodes[topology->links[links[0]].src].rank;
  *to = topology->nodes[topology->links[links[s->dag->items[t].n_links - 1]].dst].rank;
}

/* How many transfers are on their way as transfer t goes, or, `back`, against it. NULL where they
 * don't matter, and for one that goes nowhere or not from rank to rank. */
static int *count_of(const struct sim *s, int t, bool back) {
  int from, to;
  if (!s->under_way || s->dag->items[t].n_links == 0) return NULL;
  find_ends(s, t, &from, &to);
  if (from < 0 || to < 0) return NULL;
  size_t n = (size_t)s->topology->n_ranks;
  return &s->under_way[back ? (size_t)to * n + (size_t)from : (size_t)from * n + (size_t)to];
}

static void count(const struct sim *s, int t, int more) {
  int *it = count_of(s, t, false);
  if (it) *it += more;
}

/* When the chunk before which `fifo` others may be on their way has left; < 0: not yet known. */
static double slot_us(const struct sim *s, int t, int c) {
  int fifo = s->options->fifo;
  if (fifo == 0 || c < fifo || s->dag->items[t].n_links == 0) return 0;
  return s->progress[t].left_us[c - fifo];
}

/* Transfers of which none waits for another as a whole. */
static bool only_streams(const struct copse_sim_dag *dag) {
  for (int t = 0; t < dag->n_transfers; t++)
    if (dag->items[t].n_after > 0 || dag->items[t].amount <= 0) return false;
  return true;
}

/* A reduction runs at most `fifo` chunks ahead of what is made of it. */
static bool may_run_ahead(const struct sim *s, int t) {
  const struct progress *p = &s->progress[t];
  if (s->options->fifo == 0 || !s->dag->items[t].reduces || !only_streams(s->dag)) return true;
  for (int i = p->first_dependent; i < p[1].first_dependent; i++)
    if (p->issued - s->progress[~s->dependents[i]].issued >= s->options->fifo) return false;
  return true;
}

/* Lets every chunk go that may: over links one at a time, see serve(). */
static copse_status issue(struct sim *s, int t, double now) {
  const struct copse_sim_item *item = &s->dag->items[t];
  struct progress *p = &s->progress[t];
  copse_status status = COPSE_OK;
  while (p->free_us < INFINITY && p->issued < p->n_chunks && is_ready(s, t, p->issued) &&
         slot_us(s, t, p->issued) >= 0 && may_run_ahead(s, t)) {
    if (p->issued == 0) {
      p->free_us = now + item->delay_us;
      count(s, t, 1);
    }
    double start = p->free_us > now ? p->free_us : now, slot = slot_us(s, t, p->issued);
    if (slot > start) start = slot;
    COPSE_TRY(
        push(s, (struct event){start, item->order, t, p->issued, item->n_links > 0 ? -1 : 0}));
    p->issued++;
    if (item->n_links > 0) p->free_us = INFINITY; /* until the first link took it */
    for (int i = 0; i < item->n_streams; i++)     /* those may have waited for this */
      COPSE_TRY(issue(s, copse_sim_streams(s->dag, t)[i], now));
  }
out:
  return status;
}

static copse_status arrive(struct sim *s, int t, double now) {
  struct progress *p = &s->progress[t];
  copse_status status = COPSE_OK;
  bool whole = ++p->arrived == p->n_chunks;
  if (now > s->result->us) s->result->us = now;
  if (whole && s->arrival_us) s->arrival_us[t] = now;
  if (whole) count(s, t, -1);
  for (int i = p->first_dependent; i < p[1].first_dependent; i++) {
    int d = s->dependents[i];
    if (d >= 0 && whole) s->progress[d].waits--;
    if (d < 0 || whole) COPSE_TRY(issue(s, d < 0 ? ~d : d, now));
  }
out:
  return status;
}

/* ---- workers ----------------------------------------------------------------------------- */

/* A rank's worker sends one chunk at a time; what a switch has copied already is not sent again. */
static copse_status send(struct sim *s, struct event e) {
  const int *copies = copse_sim_copies(s->dag, e.transfer);
  int from, to;
  find_ends(s, e.transfer, &from, &to);
  bool copied = copies && copies[0] >= 0 &&
                s->copies[(size_t)copies[0] * (size_t)s->max_chunks + (size_t)e.chunk] >= 0;
  if (from >= 0 && !copied) {
    double *free_us =
        &s->worker_free_us[from * s->dag->n_workers + s->dag->items[e.transfer].worker];
    if (*free_us > e.time) e.time = *free_us;
    *free_us = e.time + s->options->message_us;
  }
  e.hop = 0;
  return push(s, e);
}

/* ---- links ----------------------------------------------------------------------------- */

/* When the chunk starts on its link; a further user of the same copy takes none of its time. */
static double take_link(struct sim *s, const struct event *e, struct wire *wire, double taken) {
  const int *copies = copse_sim_copies(s->dag, e->transfer);
  double *copy = NULL;
  if (copies && copies[e->hop] >= 0)
    copy = &s->copies[(size_t)copies[e->hop] * (size_t)s->max_chunks + (size_t)e->chunk];
  if (copy && *copy >= 0) return e->time > *copy ? e->time : *copy;
  double start = e->time > wire->free_us ? e->time : wire->free_us;
  wire->free_us = start + taken;
  wire->taken_us += taken;
  if (copy) *copy = start;
  return start;
}

/* When what came at `now` has been added, where that takes time. */
static double add_up(struct sim *s, int t, double now) {
  double us = s->progress[t].chunk_bytes * s->options->reduce_us_per_byte;
  int from, to = s->dag->items[t].adder;
  if (us == 0 || !s->dag->items[t].reduces) return now;
  if (s->dag->items[t].n_links > 0) find_ends(s, t, &from, &to);
  if (to < 0) return now;
  double *free_us = &s->adder_free_us[to];
  *free_us = (*free_us > now ? *free_us : now) + us;
  return *free_us;
}

static copse_status serve(struct sim *s, const struct event *e) {
  const struct copse_sim_item *item = &s->dag->items[e->transfer];
  struct progress *p = &s->progress[e->transfer];
  const int *links = copse_sim_links(s->dag, e->transfer);
  struct wire *wire = &s->wires[links[e->hop]];
  const int *against = count_of(s, e->transfer, true);
  double bytes = p->chunk_bytes * (against && *against > 0 ? s->options->duplex : 1);
  double taken = bytes * wire->us_per_byte;
  double start = take_link(s, e, wire, taken), next;
  copse_status status;
  if (e->hop + 1 < item->n_links) {
    /* On a faster link the tail must not overtake itself: it starts as much later. */
    double lag = taken - bytes * s->wires[links[e->hop + 1]].us_per_byte;
    next = start + wire->latency_us + (lag > 0 ? lag : 0);
  } else {
    next = add_up(s, e->transfer, start + taken + wire->latency_us + s->options->alpha_us);
  }
  COPSE_TRY(push(s, (struct event){next, e->order, e->transfer, e->chunk, e->hop + 1}));
  if (e->hop + 1 == item->n_links) p->left_us[e->chunk] = start + taken;
  if (e->hop == 0) p->free_us = start + taken;
  COPSE_TRY(issue(s, e->transfer, e->time));
out:
  return status;
}

static copse_status run(struct sim *s) {
  const struct copse_sim_dag *dag = s->dag;
  copse_status status = COPSE_OK;
  for (int t = 0; t < dag->n_transfers; t++)
    if (dag->items[t].n_after + dag->items[t].n_streams == 0) COPSE_TRY(issue(s, t, 0));
  while (s->n_heap > 0) {
    struct event e = pop(s);
    double then = e.time;
    if (dag->items[e.transfer].n_links == 0 && e.hop == 0) then = add_up(s, e.transfer, e.time);
    if (e.hop < 0)
      COPSE_TRY(send(s, e));
    else if (e.hop < dag->items[e.transfer].n_links)
      COPSE_TRY(serve(s, &e));
    else if (then > e.time)
      COPSE_TRY(push(s, (struct event){then, e.order, e.transfer, e.chunk, 1}));
    else
      COPSE_TRY(arrive(s, e.transfer, e.time));
  }
  for (int t = 0; t < dag->n_transfers; t++)
    if (s->progress[t].arrived < s->progress[t].n_chunks)
      return copse_fail(s->err, COPSE_INTERNAL, "the simulation stopped before transfer %d", t);
out:
  return status;
}

/* ---- setting up ------------------------------------------------------------------------ */

static int chunks_of(double bytes, double chunk_bytes, int most) {
  double n = ceil(bytes / chunk_bytes);
  return n >= most ? most : n < 1 ? 1 : (int)n;
}

/* Transfers over links that stream into t, t included, while all of them reduce or none does. */
static int chain_to(const struct copse_sim_dag *dag, int t, bool reduces) {
  int most = 0;
  if (dag->items[t].reduces != reduces) return 0;
  for (int i = 0; i < dag->items[t].n_streams; i++) {
    int n = chain_to(dag, copse_sim_streams(dag, t)[i], reduces);
    if (n > most) most = n;
  }
  return most + (dag->items[t].n_links > 0 ? 1 : 0);
}

/* Eight times what the longest chains have in all, less one. */
static int default_chunks(const struct copse_sim_dag *dag) {
  int most[2] = {0, 0};
  for (int t = 0; t < dag->n_transfers; t++)
    for (int r = 0; r < 2; r++)
      if (chain_to(dag, t, r == 1) > most[r]) most[r] = chain_to(dag, t, r == 1);
  return most[0] + most[1] > 1 ? 8 * (most[0] + most[1]) - 8 : 1;
}

static void cut_into_chunks(struct sim *s, double unit_bytes) {
  const struct copse_sim_options *o = s->options;
  double largest = 0;
  int64_t links = 0;
  for (int t = 0; t < s->dag->n_transfers; t++) {
    double bytes = s->dag->items[t].amount * unit_bytes;
    links += s->dag->items[t].n_links;
    if (bytes > largest) largest = bytes;
  }
  int64_t room = links > 0 ? o->max_steps / links : o->max_steps;
  int most = room > (1 << 20) ? 1 << 20 : room < 1 ? 1 : (int)room;
  int pipeline = o->pipeline_chunks ? o->pipeline_chunks : default_chunks(s->dag);
  int wanted = chunks_of(largest, o->min_chunk_bytes, pipeline);
  int fewest = chunks_of(largest, o->max_chunk_bytes, most);
  s->max_chunks = wanted < fewest ? fewest : wanted < most ? wanted : most;
  for (int t = 0; t < s->dag->n_transfers; t++) {
    struct progress *p = &s->progress[t];
    double bytes = s->dag->items[t].amount * unit_bytes;
    p->n_chunks = bytes > 0 ? s->max_chunks : 1;
    p->chunk_bytes = bytes / p->n_chunks;
    p->waits = s->dag->items[t].n_after;
    s->result->chunks += p->n_chunks;
  }
}

/* Lists for each transfer the ones that wait for it, in the order of their numbers. */
static copse_status find_dependents(struct sim *s) {
  const struct copse_sim_dag *dag = s->dag;
  struct progress *p = s->progress;
  size_t total = 0;
  copse_status status = COPSE_OK;
  for (int t = 0; t < dag->n_transfers; t++) {
    const int *list = copse_sim_after(dag, t); /* `streams` follow at once */
    int n = dag->items[t].n_after + dag->items[t].n_streams;
    for (int i = 0; i < n; i++) p[list[i] + 1].first_dependent++;
    total += (size_t)n;
  }
  if (total > INT32_MAX) return copse_fail(s->err, COPSE_OVERFLOW, "too many dependencies");
  COPSE_TRY(copse_calloc(total, sizeof *s->dependents, &s->dependents, s->err));
  for (int t = 0; t < dag->n_transfers; t++) p[t + 1].first_dependent += p[t].first_dependent;
  for (int t = dag->n_transfers - 1; t >= 0; t--) { /* fills each list from its end */
    const int *list = copse_sim_after(dag, t);
    int n_after = dag->items[t].n_after, n = n_after + dag->items[t].n_streams;
    for (int i = n - 1; i >= 0; i--)
      s->dependents[--p[list[i] + 1].first_dependent] = i < n_after ? t : ~t;
  }
  /* Each start has moved down by one place: to where the list of its own transfer begins. */
  for (int t = 0; t < dag->n_transfers; t++) p[t].first_dependent = p[t + 1].first_dependent;
  p[dag->n_transfers].first_dependent = (int)total;
out:
  return status;
}

static copse_status set_up(struct sim *s, const struct copse_topology *topology,
                           double unit_bytes) {
  const struct copse_sim_dag *dag = s->dag;
  copse_status status;
  size_t n = (size_t)dag->n_transfers + 1;
  COPSE_TRY(copse_calloc((size_t)topology->n_links, sizeof *s->wires, &s->wires, s->err));
  COPSE_TRY(copse_calloc(n, sizeof *s->progress, &s->progress, s->err));
  for (int i = 0; i < topology->n_links; i++) {
    const struct copse_link *link = &topology->links[i];
    s->wires[i].us_per_byte = 1e-3 / copse_q_to_double(link->bandwidth);
    s->wires[i].latency_us = copse_q_to_double(link->latency);
  }
  for (int t = 0; t < dag->n_transfers; t++)
    for (int i = 0; i < dag->items[t].n_links; i++)
      if (copse_sim_links(dag, t)[i] < 0 || copse_sim_links(dag, t)[i] >= topology->n_links)
        return copse_fail(s->err, COPSE_INVALID, "transfer %d: the topology has no link %d", t,
                          copse_sim_links(dag, t)[i]);
  size_t ranks = (size_t)topology->n_ranks;
  COPSE_TRY(copse_calloc(ranks, sizeof *s->adder_free_us, &s->adder_free_us, s->err));
  COPSE_TRY(copse_calloc(ranks * (size_t)(s->dag->n_workers + 1), sizeof *s->worker_free_us,
                         &s->worker_free_us, s->err));
  if (s->options->duplex > 1) {
    COPSE_TRY(copse_calloc(ranks * ranks, sizeof *s->under_way, &s->under_way, s->err));
  }
  COPSE_TRY(find_dependents(s));
  cut_into_chunks(s, unit_bytes);
  for (int t = 0; t < dag->n_transfers; t++) {
    struct progress *p = &s->progress[t];
    COPSE_TRY(copse_calloc((size_t)p->n_chunks, sizeof *p->left_us, &p->left_us, s->err));
    for (int c = 0; c < p->n_chunks; c++) p->left_us[c] = -1;
  }
  n = (size_t)dag->n_copies * (size_t)s->max_chunks;
  COPSE_TRY(copse_calloc(n, sizeof *s->copies, &s->copies, s->err));
  for (size_t i = 0; i < n; i++) s->copies[i] = -1;
out:
  return status;
}

copse_status copse_test_plain_simulate(const struct copse_topology *topology,
                                       const struct copse_sim_dag *dag,
                                       const struct copse_sim_options *options, double unit_bytes,
                                       struct copse_sim_result *result, double *arrival_us,
                                       struct copse_err *err) {
  struct sim s = {.dag = dag,
                  .options = options ? options : &copse_sim_defaults,
                  .arrival_us = arrival_us,
                  .topology = topology,
                  .result = result,
                  .err = err};
  copse_status status;
  *result = (struct copse_sim_result){0};
  if (!(s.options->min_chunk_bytes > 0) || !(s.options->max_chunk_bytes > 0) ||
      s.options->pipeline_chunks < 0 || s.options->fifo < 0 || !(s.options->alpha_us >= 0) ||
      !(unit_bytes >= 0) || !(s.options->duplex == 0 || s.options->duplex >= 1) ||
      !(s.options->reduce_us_per_byte >= 0))
    return copse_fail(err, COPSE_INVALID, "a simulation needs positive chunks and sizes");
  COPSE_TRY(set_up(&s, topology, unit_bytes));
  COPSE_TRY(run(&s));
  for (int i = 0; i < topology->n_links; i++)
    if (s.wires[i].taken_us > result->busiest_us) result->busiest_us = s.wires[i].taken_us;
out:
  free(s.wires);
  for (int t = 0; s.progress && t < dag->n_transfers; t++) free(s.progress[t].left_us);
  free(s.progress);
  free(s.dependents);
  free(s.copies);
  free(s.under_way);
  free(s.adder_free_us);
  free(s.worker_free_us);
  free(s.heap);
  return status;
}
