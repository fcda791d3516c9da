/* The alltoall of FAST: balance inside the host, one-to-one steps between hosts, hand on. */
#include <stdlib.h>
#include <string.h>

#include "predict/baseline_birkhoff.h"
#include "predict/baseline_work.h"

/*
 * Amounts are in units times the ranks of a host, so that a host's total divides among them.
 * The rail of place g from host A to host B carries pieces one after the other.
 */
struct piece {
  int src, dst;
  int64_t units;
};

struct fast {
  struct copse_baseline_work *w;
  const struct copse_hosts *hosts;
  int n_hosts, places;
  int64_t *matrix; /* [n_hosts * n_hosts] what a host has for another; 0 on the diagonal */
  struct copse_birkhoff steps;
  struct piece *pieces;
  size_t n_pieces, pieces_capacity;
  size_t *rail;     /* [n_hosts * n_hosts * places + 1] first piece, by (from, to, place) */
  size_t *next;     /* [same] the piece to send next */
  int64_t *sent;    /* [same] how much of it was sent */
  int *balanced;    /* [same * places] the transfer that brought pieces of a place, -1 */
  int *list;        /* [places + 4] scratch */
  int64_t *amounts; /* [places] scratch */
};

static int member(const struct fast *f, int host, int place) {
  return f->hosts->members[f->hosts->first[host] + place];
}

static size_t rail_of(const struct fast *f, int from, int to, int place) {
  return ((size_t)from * (size_t)f->n_hosts + (size_t)to) * (size_t)f->places + (size_t)place;
}

static copse_status add_up_hosts(struct fast *f) {
  const struct copse_topology *t = f->w->topology;
  for (int i = 0; i < t->n_ranks; i++) {
    for (int j = 0; j < t->n_ranks; j++) {
      int from = f->hosts->of_rank[i], to = f->hosts->of_rank[j];
      int64_t *sum = &f->matrix[(size_t)from * (size_t)f->n_hosts + (size_t)to], spare;
      if (from == to) continue;
      if (copse_add_overflows(*sum, copse_baseline_units(f->w, i, j), sum) ||
          copse_mul_overflows(*sum, f->places, &spare))
        return copse_fail(f->w->err, COPSE_OVERFLOW, "the demand of a host needs over 63 bits");
    }
  }
  return COPSE_OK;
}

/* ---- balance --------------------------------------------------------------------------- */

/* What a rank has for another host, by receiving place from its own on: a queue. */
struct queue {
  int src, to, k; /* the receiving place is (own + k) mod places */
  int64_t left;   /* of place k */
};

static int64_t queue_load(const struct fast *f, struct queue *q) {
  int place = (f->hosts->place[q->src] + q->k) % f->places;
  return copse_baseline_units(f->w, q->src, member(f, q->to, place)) * f->places;
}

/* Moves `units` from the queue's front to the end of the pieces. */
static copse_status take(struct fast *f, struct queue *q, int64_t units) {
  copse_status status = COPSE_OK;
  while (units > 0) {
    int place = (f->hosts->place[q->src] + q->k) % f->places;
    int64_t now = q->left < units ? q->left : units;
    if (now > 0) {
      COPSE_TRY(copse_grow(&f->pieces, &f->pieces_capacity, f->n_pieces + 1, sizeof *f->pieces,
                           f->w->err));
      f->pieces[f->n_pieces++] = (struct piece){q->src, member(f, q->to, place), now};
    }
    units -= now;
    q->left -= now;
    if (q->left > 0) continue;
    if (++q->k == f->places) break;
    q->left = queue_load(f, q);
  }
out:
  return status;
}

/* Ranks that have more than their part of what goes from host to host give it to those that
 * have less; in order, so at most 2 * places moves. */
static copse_status balance(struct fast *f, int from, int to, struct queue *queues) {
  int64_t part = f->matrix[(size_t)from * (size_t)f->n_hosts + (size_t)to];
  int giver = 0;
  copse_status status = COPSE_OK;
  for (int a = 0; a < f->places; a++) {
    f->amounts[a] = 0;
    for (int b = 0; b < f->places; b++)
      f->amounts[a] += copse_baseline_units(f->w, member(f, from, a), member(f, to, b)) * f->places;
    queues[a] = (struct queue){.src = member(f, from, a), .to = to};
    queues[a].left = queue_load(f, &queues[a]);
  }
  for (int a = 0; a < f->places; a++) { /* rail by rail: its own, then what it is given */
    int64_t own = f->amounts[a] < part ? f->amounts[a] : part, lacks = part - own;
    f->rail[rail_of(f, from, to, a)] = f->n_pieces;
    COPSE_TRY(take(f, &queues[a], own));
    while (lacks > 0) {
      /* a giver keeps its part for its own rail, whether that came before or is to come */
      int64_t spare = f->amounts[giver] - part;
      int64_t now = spare < lacks ? spare : lacks;
      if (now <= 0) {
        giver++;
        continue;
      }
      /* `amounts` of a giver shrinks to `part`, so its own take is as large as ever */
      COPSE_TRY(take(f, &queues[giver], now));
      f->amounts[giver] -= now;
      lacks -= now;
    }
  }
out:
  return status;
}

static copse_status balance_all(struct fast *f) {
  struct queue *queues = NULL;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)f->places, sizeof *queues, &queues, f->w->err));
  for (int from = 0; from < f->n_hosts; from++)
    for (int to = 0; to < f->n_hosts; to++) COPSE_TRY(balance(f, from, to, queues));
  f->rail[rail_of(f, f->n_hosts, 0, 0)] = f->n_pieces;
out:
  free(queues);
  return status;
}

/* ---- shipments ------------------------------------------------------------------------- */

static copse_status ship_rail(struct fast *f, int from, int to, int place) {
  size_t rail = rail_of(f, from, to, place);
  copse_status status = COPSE_OK;
  for (size_t p = f->rail[rail]; p < f->rail[rail + 1]; p++) {
    const struct piece *piece = &f->pieces[p];
    int middle[] = {member(f, from, place), member(f, to, place), piece->dst};
    struct copse_shipment s = {piece->src, piece->dst, {piece->src}, 1, piece->units};
    for (int i = 0; i < 3; i++)
      if (s.stops[s.n_stops - 1] != middle[i]) s.stops[s.n_stops++] = middle[i];
    COPSE_TRY(copse_baseline_ship(f->w, &s));
  }
out:
  return status;
}

static copse_status ship_all(struct fast *f) {
  const struct copse_topology *t = f->w->topology;
  copse_status status = COPSE_OK;
  for (int i = 0; i < t->n_ranks; i++) {
    for (int j = 0; j < t->n_ranks; j++) {
      int64_t units = copse_baseline_units(f->w, i, j) * f->places;
      if (i == j || units == 0 || f->hosts->of_rank[i] != f->hosts->of_rank[j]) continue;
      struct copse_shipment s = {i, j, {i, j}, 2, units};
      COPSE_TRY(copse_baseline_ship(f->w, &s));
    }
  }
  for (int from = 0; from < f->n_hosts; from++)
    for (int to = 0; to < f->n_hosts; to++)
      for (int place = 0; place < f->places; place++) COPSE_TRY(ship_rail(f, from, to, place));
out:
  return status;
}

/* ---- transfers ------------------------------------------------------------------------- */

/* At the start: demand inside the host, and the moves of the balance. */
static copse_status send_inside(struct fast *f, int host) {
  copse_status status = COPSE_OK;
  for (int a = 0; a < f->places; a++) {
    for (int k = 1; k < f->places; k++) {
      int src = member(f, host, a), dst = member(f, host, (a + k) % f->places);
      int64_t units = copse_baseline_units(f->w, src, dst) * f->places;
      /* what must go on to other hosts goes first */
      struct copse_sim_transfer t = {.order = f->n_hosts + k};
      if (units > 0) COPSE_TRY(copse_baseline_send(f->w, src, dst, units, &t, NULL));
    }
  }
out:
  return status;
}

static copse_status send_balance(struct fast *f, int from, int to, int place) {
  size_t rail = rail_of(f, from, to, place);
  copse_status status = COPSE_OK;
  memset(f->amounts, 0, (size_t)f->places * sizeof *f->amounts);
  for (size_t p = f->rail[rail]; p < f->rail[rail + 1]; p++)
    f->amounts[f->hosts->place[f->pieces[p].src]] += f->pieces[p].units;
  for (int a = 0; a < f->places; a++) {
    struct copse_sim_transfer t = {.order = (to - from + f->n_hosts) % f->n_hosts};
    int *id = &f->balanced[rail * (size_t)f->places + (size_t)a];
    *id = -1;
    if (a == place || f->amounts[a] == 0) continue;
    COPSE_TRY(copse_baseline_send(f->w, member(f, from, a), member(f, from, place), f->amounts[a],
                                  &t, id));
  }
out:
  return status;
}

/* Takes the next `units` off the rail and hands them on from where transfer `step` brought them. */
static copse_status hand_on(struct fast *f, size_t rail, int at, int64_t units, int step) {
  copse_status status = COPSE_OK;
  memset(f->amounts, 0, (size_t)f->places * sizeof *f->amounts);
  while (units > 0) {
    const struct piece *piece = &f->pieces[f->next[rail]];
    int64_t left = piece->units - f->sent[rail], now = left < units ? left : units;
    f->amounts[f->hosts->place[piece->dst]] += now;
    f->sent[rail] += now;
    units -= now;
    if (f->sent[rail] < piece->units) continue;
    f->next[rail]++;
    f->sent[rail] = 0;
  }
  for (int b = 0; b < f->places; b++) {
    int dst = member(f, f->hosts->of_rank[at], b);
    struct copse_sim_transfer t = {.after = &step, .n_after = 1};
    if (dst != at && f->amounts[b] > 0)
      COPSE_TRY(copse_baseline_send(f->w, at, dst, f->amounts[b], &t, NULL));
  }
out:
  return status;
}

/* One rail's part of a step, after its own part of the step before and its balance. */
static copse_status send_step(struct fast *f, int from, int to, int place, int64_t units,
                              int *last_sent, int *last_received) {
  size_t rail = rail_of(f, from, to, place);
  int src = member(f, from, place), dst = member(f, to, place), n = 0, id;
  copse_status status;
  if (last_sent[src] >= 0) f->list[n++] = last_sent[src];
  if (last_received[dst] >= 0) f->list[n++] = last_received[dst];
  for (int a = 0; a < f->places; a++)
    if (f->balanced[rail * (size_t)f->places + (size_t)a] >= 0)
      f->list[n++] = f->balanced[rail * (size_t)f->places + (size_t)a];
  struct copse_sim_transfer t = {.after = f->list, .n_after = n};
  COPSE_TRY(copse_baseline_send(f->w, src, dst, units, &t, &id));
  last_sent[src] = id;
  last_received[dst] = id;
  status = hand_on(f, rail, dst, units, id);
out:
  return status;
}

static copse_status send_steps(struct fast *f) {
  size_t ranks = (size_t)f->w->topology->n_ranks, n = (size_t)f->n_hosts;
  int *last = NULL; /* [2 * n_ranks] sent, received */
  copse_status status;
  COPSE_TRY(copse_calloc(2 * ranks, sizeof *last, &last, f->w->err));
  for (size_t i = 0; i < 2 * ranks; i++) last[i] = -1;
  for (int s = 0; s < f->steps.n_steps; s++) {
    for (int from = 0; from < f->n_hosts; from++) {
      size_t i = (size_t)s * n + (size_t)from;
      if (f->steps.sent[i] == 0) continue;
      for (int place = 0; place < f->places; place++)
        COPSE_TRY(send_step(f, from, f->steps.to[i], place, f->steps.sent[i], last, last + ranks));
    }
  }
out:
  free(last);
  return status;
}

static copse_status send_all(struct fast *f) {
  copse_status status = COPSE_OK;
  for (int from = 0; from < f->n_hosts; from++)
    for (int to = 0; to < f->n_hosts; to++)
      for (int place = 0; place < f->places; place++) COPSE_TRY(send_balance(f, from, to, place));
  for (int host = 0; host < f->n_hosts; host++) COPSE_TRY(send_inside(f, host));
  status = send_steps(f);
out:
  return status;
}

copse_status copse_baseline_birkhoff(struct copse_baseline_work *w) {
  struct fast f = {.w = w, .hosts = &w->hosts, .n_hosts = w->hosts.n_hosts};
  copse_status status;
  f.places = w->hosts.first[1];
  size_t hosts = (size_t)f.n_hosts, rails = hosts * hosts * (size_t)f.places;
  if (copse_mul_overflows(w->m, f.places, &w->whole))
    return copse_fail(w->err, COPSE_OVERFLOW, "the demand of a rank needs over 63 bits");
  COPSE_TRY(copse_calloc(hosts * hosts, sizeof *f.matrix, &f.matrix, w->err));
  COPSE_TRY(copse_calloc(rails + 1, sizeof *f.rail, &f.rail, w->err));
  COPSE_TRY(copse_calloc(rails + 1, sizeof *f.next, &f.next, w->err));
  COPSE_TRY(copse_calloc(rails + 1, sizeof *f.sent, &f.sent, w->err));
  COPSE_TRY(copse_calloc(rails * (size_t)f.places, sizeof *f.balanced, &f.balanced, w->err));
  COPSE_TRY(copse_calloc((size_t)f.places + 4, sizeof *f.list, &f.list, w->err));
  COPSE_TRY(copse_calloc((size_t)f.places, sizeof *f.amounts, &f.amounts, w->err));
  COPSE_TRY(add_up_hosts(&f));
  COPSE_TRY(balance_all(&f));
  COPSE_TRY(ship_all(&f));
  if (!w->dag) goto out;
  memcpy(f.next, f.rail, rails * sizeof *f.next);
  COPSE_TRY(copse_birkhoff_decompose(f.matrix, f.n_hosts, &f.steps, w->err));
  status = send_all(&f);
out:
  copse_birkhoff_free(&f.steps);
  free(f.matrix);
  free(f.pieces);
  free(f.rail);
  free(f.next);
  free(f.sent);
  free(f.balanced);
  free(f.list);
  free(f.amounts);
  return status;
}
