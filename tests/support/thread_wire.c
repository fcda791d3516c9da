#include "support/thread_wire.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct message {
  int from, receiver;
  unsigned tag;
  size_t n;
  struct message *next;
  void *to;         /* where it is being received */
  const void *sent; /* of a ticket: the sender's bytes, which stay as they are until it is done */
  unsigned delay;
  unsigned char bytes[];
};

struct end {
  struct thread_wires *wires;
  int rank;
  unsigned random;
  struct message *head, **tail; /* that have come for it */
  struct message *held, **held_tail;
  unsigned looks;
};

struct thread_wires {
  pthread_mutex_t lock;
  int n;
  unsigned latest;
  _Atomic int cut, deaf; /* a rank, or -1 */
  bool holds;
  size_t longest, n_messages;
  struct end ends[];
};

struct thread_wires *thread_wires_new(int n_ranks, unsigned latest) {
  struct thread_wires *wires = calloc(1, sizeof *wires + (size_t)n_ranks * sizeof *wires->ends);
  if (!wires || pthread_mutex_init(&wires->lock, NULL) != 0) abort();
  wires->n = n_ranks;
  wires->latest = latest;
  atomic_init(&wires->cut, -1);
  atomic_init(&wires->deaf, -1);
  for (int r = 0; r < n_ranks; r++) {
    wires->ends[r] = (struct end){.wires = wires, .rank = r, .random = (unsigned)r + 1};
    wires->ends[r].tail = &wires->ends[r].head;
    wires->ends[r].held_tail = &wires->ends[r].held;
  }
  return wires;
}

void thread_wires_hold(struct thread_wires *wires) { wires->holds = true; }

void thread_wires_cut(struct thread_wires *wires, int rank) { atomic_store(&wires->cut, rank); }

void thread_wires_deafen(struct thread_wires *wires, int rank) { atomic_store(&wires->deaf, rank); }

size_t thread_wires_longest(const struct thread_wires *wires) { return wires->longest; }

size_t thread_wires_messages(const struct thread_wires *wires) { return wires->n_messages; }

void thread_wires_free(struct thread_wires *wires) {
  for (int r = 0; r < wires->n; r++)
    while (wires->ends[r].head) {
      struct message *next = wires->ends[r].head->next;
      free(wires->ends[r].head);
      wires->ends[r].head = next;
    }
  pthread_mutex_destroy(&wires->lock);
  free(wires);
}

static unsigned delay(struct end *end) {
  end->random = end->random * 1664525u + 1013904223u;
  return end->wires->latest ? (end->random >> 8) % (end->wires->latest + 1) : 0;
}

/* What is held goes to its receivers. Under the lock. */
static void let_go(struct end *end) {
  for (struct message *it = end->held, *next; it; it = next) {
    struct end *other = &end->wires->ends[it->receiver];
    next = it->next;
    it->next = NULL;
    *other->tail = it;
    other->tail = &it->next;
  }
  end->held = NULL;
  end->held_tail = &end->held;
}

/* The bytes are copied: a request is a number of tests to wait, and has a copy of its own. */
static copse_status send_message(void *context, int to, unsigned tag, const void *bytes, size_t n,
                                 void **request) {
  struct end *end = context;
  if (atomic_load(&end->wires->cut) == to) return COPSE_DEVICE;
  struct message *it = malloc(sizeof *it + n), *ticket = calloc(1, sizeof *ticket + n);
  if (!it || !ticket) abort();
  *it = (struct message){.from = end->rank, .receiver = to, .tag = tag, .n = n};
  if (n > 0) memcpy(it->bytes, bytes, n);
  if (n > 0) memcpy(ticket->bytes, bytes, n);
  ticket->sent = bytes;
  ticket->n = n;
  ticket->delay = 16 * delay(end); /* the receiver may have answered before */
  pthread_mutex_lock(&end->wires->lock);
  *end->held_tail = it;
  end->held_tail = &it->next;
  if (!end->wires->holds) let_go(end);
  end->wires->n_messages++;
  if (n > end->wires->longest) end->wires->longest = n;
  pthread_mutex_unlock(&end->wires->lock);
  *request = ticket;
  return COPSE_OK;
}

static copse_status next_message(void *context, int *from, unsigned *tag, size_t *n,
                                 void **message) {
  struct end *end = context;
  pthread_mutex_lock(&end->wires->lock);
  if (++end->looks % 256 == 0) let_go(end);
  struct message *it = atomic_load(&end->wires->deaf) == end->rank ? NULL : end->head;
  if (it) {
    end->head = it->next;
    if (!end->head) end->tail = &end->head;
  }
  pthread_mutex_unlock(&end->wires->lock);
  *message = it;
  if (!it) return COPSE_OK;
  *from = it->from;
  *tag = it->tag;
  *n = it->n;
  return COPSE_OK;
}

static copse_status receive(void *context, void *message, void *bytes, size_t n, void **request) {
  struct message *it = message;
  if (n != it->n) abort();
  it->to = bytes;
  it->delay = delay(context);
  *request = it;
  return COPSE_OK;
}

static copse_status test(void *context, void *request, int *done) {
  struct message *it = request;
  (void)context;
  *done = it->delay == 0;
  if (it->delay > 0) {
    it->delay--;
    return COPSE_OK;
  }
  if (it->sent && memcmp(it->sent, it->bytes, it->n) != 0) return COPSE_INTERNAL;
  if (it->to && it->n > 0) memcpy(it->to, it->bytes, it->n);
  free(it);
  return COPSE_OK;
}

static copse_status flush(void *context, int *done) {
  struct end *end = context;
  pthread_mutex_lock(&end->wires->lock);
  let_go(end);
  pthread_mutex_unlock(&end->wires->lock);
  *done = 1;
  return COPSE_OK;
}

static const char *why(void *context) {
  (void)context;
  return "the cable is cut";
}

static void end_wire(void *context, int orderly) { (void)context, (void)orderly; }

copse_wire thread_wire(struct thread_wires *wires, int rank) {
  return (copse_wire){.context = &wires->ends[rank],
                      .n_ranks = wires->n,
                      .rank = rank,
                      .most_tag = 32767,
                      .send = send_message,
                      .next = next_message,
                      .receive = receive,
                      .test = test,
                      .why = why,
                      .end = end_wire,
                      .flush = flush};
}
