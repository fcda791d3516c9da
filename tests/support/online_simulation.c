/*
 * The two-tier plan as transfers for the simulator. The hops of all pieces are added up to
 * messages: one for each step, kind, sender and receiver. What waits for what is in the header.
 */
#include "support/online_simulation.h"

#include <stdlib.h>

#include "base/memory.h"

/* What a NIC has under way, at the sender and at the receiver, before its next message: three
 * messages of 128 KiB, of which one is on the wire and one fills the time that the word of an
 * arrival needs. BALANCE is as far ahead again. LOCAL fills the time of 14 us at 300 GB/s. */
enum { WINDOW_BYTES = 384 << 10, LOCAL_BYTES = 4 << 20 };

struct message {
  int step;
  int place; /* in the order of a step */
  int from;
  int turn; /* to rank from + turn: each rank starts with the one after it */
  int64_t bytes;
};

/* LOCAL, which can wait, comes last. */
enum { BALANCE, INTER, SCATTER, LOCAL };

struct past {
  int id;
  int64_t bytes;
};

/* The messages of a NIC, one way, so far. */
struct history {
  struct past *all;
  size_t n, capacity;
};

/* Messages of the step at hand that a rank has got. */
struct group {
  int *ids;
  size_t n, capacity;
  int join; /* one that is over when all of them are; -1: not made yet */
};

struct sim {
  const struct copse_topology *topology;
  struct copse_two_tier tier;
  struct copse_sim_dag *dag;
  struct copse_err *err;
  int n, g; /* ranks, in all and of a host */
  struct message *messages;
  size_t n_messages, capacity;
  copse_status collected;
  struct history *sent, *received, *local; /* [ranks] INTER; LOCAL by sender */
  struct group *balanced, *entered;        /* [ranks] BALANCE and INTER to it */
  int after[3];                            /* what a message waits for */
  int *path;                               /* nodes of one way */
  struct copse_arena scratch;
};

/* ---- messages ------------------------------------------------------------------------------ */

static void add_hop(struct sim *s, const struct copse_online_piece *p, int place, int from,
                    int to) {
  if (from == to || s->collected != COPSE_OK) return;
  s->collected = COPSE_GROW(s->messages, s->capacity, s->n_messages + 1, s->err);
  if (s->collected != COPSE_OK) return;
  s->messages[s->n_messages++] =
      (struct message){p->step, place, from, (to - from + s->n) % s->n, p->bytes};
}

static void collect(void *ctx, const struct copse_online_piece *p) {
  struct sim *s = ctx;
  if (p->via_src < 0) {
    add_hop(s, p, LOCAL, p->origin, p->final);
    return;
  }
  add_hop(s, p, BALANCE, p->origin, p->via_src);
  add_hop(s, p, INTER, p->via_src, p->via_dst);
  add_hop(s, p, SCATTER, p->via_dst, p->final);
}

COPSE_ORDER(by_place, struct message,
            COPSE_UP(step) ?: COPSE_UP(place) ?: COPSE_UP(turn) ?: COPSE_UP(from))

/* One message for each step, kind, sender and receiver; parts of LOCAL stay apart. */
static void merge(struct sim *s) {
  size_t n = 0;
  COPSE_SORT(s->messages, s->n_messages, by_place);
  for (size_t i = 0; i < s->n_messages; i++) {
    struct message *m = &s->messages[i];
    if (n > 0 && m->place != LOCAL && by_place(m, &s->messages[n - 1]) == 0)
      s->messages[n - 1].bytes += m->bytes;
    else
      s->messages[n++] = *m;
  }
  s->n_messages = n;
}

/* ---- single transfers ---------------------------------------------------------------------- */

/* Inside the host over its switch; else up the sender's way and down the receiver's, which end at
 * the same switch. */
static int path_of(const struct sim *s, int from, int to) {
  const struct copse_two_tier *tier = &s->tier;
  int n = 0;
  if (from / s->g == to / s->g) {
    s->path[n++] = s->topology->rank_nodes[from];
    s->path[n++] = tier->hub[from / s->g];
    s->path[n++] = s->topology->rank_nodes[to];
    return n;
  }
  for (int k = tier->up_start[from]; k < tier->up_start[from + 1]; k++) s->path[n++] = tier->up[k];
  for (int k = tier->up_start[to + 1] - 2; k >= tier->up_start[to]; k--) s->path[n++] = tier->up[k];
  return n;
}

/* Starts when s->after [n_after] are over; -1 among these is none. */
static copse_status send(struct sim *s, const struct message *m, int n_after, int *id) {
  int n = 0, to = (m->from + m->turn) % s->n;
  for (int i = 0; i < n_after; i++)
    if (s->after[i] >= 0) s->after[n++] = s->after[i];
  struct copse_sim_transfer transfer = {.amount = (double)m->bytes, /* for simulated seconds */
                                        .after = s->after,
                                        .n_after = n,
                                        .order = m->place == LOCAL};
  return copse_sim_dag_add_path(s->dag, s->topology, s->path, path_of(s, m->from, to), &transfer,
                                id, s->err);
}

/* ---- what must be over first -------------------------------------------------------------- */

static copse_status add_to_group(struct sim *s, struct group *group, int id) {
  COPSE_DO(COPSE_GROW(group->ids, group->capacity, group->n + 1, s->err));
  group->ids[group->n++] = id;
  return COPSE_OK;
}

/* group->join gets what is over when all of a group's messages are; -1 for none. */
static copse_status join(struct sim *s, struct group *group) {
  if (group->join >= 0 || group->n == 0) return COPSE_OK;
  struct copse_sim_transfer all = {.after = group->ids, .n_after = (int)group->n};
  if (group->n > 1) return copse_sim_dag_add(s->dag, &all, &group->join, s->err);
  group->join = group->ids[0];
  return COPSE_OK;
}

/* The message that must be over before the NIC's next one starts; -1: none. */
static int must_be_over(const struct history *h, int64_t window) {
  int64_t under_way = 0;
  for (size_t k = h->n; k-- > 1;) {
    under_way += h->all[k].bytes;
    if (under_way >= window) return h->all[k - 1].id;
  }
  return -1;
}

static copse_status remember(struct sim *s, struct history *h, int id, int64_t bytes) {
  COPSE_DO(COPSE_GROW(h->all, h->capacity, h->n + 1, s->err));
  h->all[h->n++] = (struct past){id, bytes};
  return COPSE_OK;
}

/* ---- one step ----------------------------------------------------------------------------- */

static copse_status add_balance(struct sim *s, const struct message *m) {
  int to = (m->from + m->turn) % s->n, id;
  s->after[0] = must_be_over(&s->sent[to], 2 * WINDOW_BYTES);
  COPSE_DO(send(s, m, 1, &id));
  return add_to_group(s, &s->balanced[to], id);
}

static copse_status add_inter(struct sim *s, const struct message *m) {
  int to = (m->from + m->turn) % s->n, id;
  COPSE_DO(join(s, &s->balanced[m->from]));
  s->after[0] = s->balanced[m->from].join;
  s->after[1] = must_be_over(&s->sent[m->from], WINDOW_BYTES);
  s->after[2] = must_be_over(&s->received[to], WINDOW_BYTES);
  COPSE_DO(send(s, m, 3, &id));
  COPSE_DO(add_to_group(s, &s->entered[to], id));
  COPSE_DO(remember(s, &s->received[to], id, m->bytes));
  return remember(s, &s->sent[m->from], id, m->bytes);
}

static copse_status add_scatter(struct sim *s, const struct message *m) {
  COPSE_DO(join(s, &s->entered[m->from]));
  s->after[0] = s->entered[m->from].join;
  return send(s, m, 1, NULL);
}

static copse_status add_local(struct sim *s, const struct message *m) {
  int id;
  struct history *h = &s->local[m->from];
  s->after[0] = s->tier.model.hosts > 1 ? must_be_over(h, LOCAL_BYTES) : -1;
  s->after[1] = must_be_over(&s->sent[m->from], WINDOW_BYTES);
  COPSE_DO(send(s, m, 2, &id));
  return remember(s, h, id, m->bytes);
}

static copse_status add_message(struct sim *s, const struct message *m) {
  switch (m->place) {
    case BALANCE: return add_balance(s, m);
    case INTER: return add_inter(s, m);
    case SCATTER: return add_scatter(s, m);
    default: return add_local(s, m);
  }
}

static void end_step(struct sim *s) {
  for (int r = 0; r < s->n; r++) {
    s->balanced[r].n = s->entered[r].n = 0;
    s->balanced[r].join = s->entered[r].join = -1;
  }
}

/* ---- the whole ---- */

static copse_status open_sim(struct sim *s) {
  size_t n = (size_t)s->n;
  struct copse_arena *a = &s->scratch;
  COPSE_DO(COPSE_ARRAYS(a, n, struct history, s->err, &s->sent, &s->received, &s->local));
  COPSE_DO(COPSE_ARRAYS(a, n, struct group, s->err, &s->balanced, &s->entered));
  for (size_t r = 0; r < n; r++) s->balanced[r].join = s->entered[r].join = -1;
  return COPSE_ARRAY(a, 2 * (size_t)s->topology->n_nodes, s->path, s->err);
}

static void release(struct sim *s) {
  for (int r = 0; r < s->n && s->entered; r++) {
    free(s->sent[r].all);
    free(s->received[r].all);
    free(s->local[r].all);
    free(s->balanced[r].ids);
    free(s->entered[r].ids);
  }
  free(s->messages);
  copse_arena_free(&s->scratch);
}

copse_status copse_test_online_simulation(const struct copse_topology *topology,
                                          struct copse_online *online, struct copse_sim_dag *dag,
                                          struct copse_err *err) {
  COPSE_AT_END(release)
  struct sim s = {.topology = topology, .dag = dag, .err = err, .n = topology->n_ranks};
  COPSE_DO(copse_two_tier_find(topology, &s.scratch, &s.tier, err));
  s.g = s.tier.model.ranks_per_host;
  COPSE_DO(open_sim(&s));
  copse_online_walk(online, collect, &s);
  COPSE_DO(s.collected);
  merge(&s);
  for (size_t i = 0; i < s.n_messages; i++) {
    if (i > 0 && s.messages[i].step != s.messages[i - 1].step) end_step(&s);
    COPSE_DO(add_message(&s, &s.messages[i]));
  }
  return COPSE_OK;
}
