/*
 * The alltoall baselines: pairwise and spread-out exchange, Tutel's 2DH, FAST.
 *
 * 2DH (arXiv 2206.03382), hosts of two ranks, what rank 0 has for host 1:
 *
 *   host 0   r0 --inside--> r1         r0 hands r1 all that goes to places like r1's
 *             |              |
 *            NIC            NIC        then equal places exchange between hosts
 *             v              v
 *   host 1   r2             r3
 *
 * FAST (Lei et al., arXiv 2505.09764): ranks of a host even out what they have for each other host;
 * then, step by step, each host sends to one host and receives from one, by Birkhoff's
 * decomposition of the host matrix (Tres observaciones sobre el algebra lineal, 1946); what arrives
 * is handed on.
 */
#include "predict/baseline_internal.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/rational.h"

struct birkhoff {
  int n;
  int64_t *left;  /* [n * n] of the matrix */
  int64_t *empty; /* [n * n] what fills up all rows and columns to the same sum */
  int *row_of;    /* [n] the row matched to a column, -1: none */
  char *tried;    /* [n] columns of this search */
  int64_t least;  /* entries below it don't count */
  int step;
  struct copse_arena scratch;
  size_t amounts_capacity, to_capacity, sent_capacity;
  struct copse_birkhoff *out;
  struct copse_err *err;
};

static size_t at(const struct birkhoff *w, int row, int column) {
  return (size_t)row * (size_t)w->n + (size_t)column;
}

static int64_t entry(const struct birkhoff *w, int row, int column) {
  return w->left[at(w, row, column)] + w->empty[at(w, row, column)];
}

/* Computes row and column sums, rows first; *most is the largest. */
static copse_status add_up(const struct birkhoff *w, int64_t *sums, int64_t *most) {
  *most = 0;
  for (int i = 0; i < w->n; i++) {
    for (int j = 0; j < w->n; j++) {
      int64_t v = w->left[at(w, i, j)];
      if (v < 0) return copse_fail(w->err, COPSE_INVALID, "an amount to send is negative");
      if (copse_add_overflows(sums[i], v, &sums[i]) ||
          copse_add_overflows(sums[w->n + j], v, &sums[w->n + j]))
        return copse_fail(w->err, COPSE_OVERFLOW, "the amounts to send need over 63 bits");
    }
  }
  for (int i = 0; i < 2 * w->n; i++)
    if (sums[i] > *most) *most = sums[i];
  return COPSE_OK;
}

static copse_status fill_up(struct birkhoff *w, int64_t *most) {
  int64_t *sums = NULL;
  COPSE_DO(copse_arena_array(&w->scratch, 2 * (size_t)w->n, sizeof *sums, &sums, w->err));
  COPSE_DO(add_up(w, sums, most));
  for (int i = 0, j = 0; i < w->n && j < w->n;) {
    int64_t row = *most - sums[i], column = *most - sums[w->n + j];
    int64_t v = row < column ? row : column;
    w->empty[at(w, i, j)] += v;
    sums[i] += v;
    sums[w->n + j] += v;
    if (sums[i] == *most)
      i++;
    else
      j++;
  }
  return COPSE_OK;
}

/* Matches a row by augmenting paths; each row begins further right than the one before, and with
 * each step. */
static bool match_row(struct birkhoff *w, int row) {
  for (int k = 0; k < w->n; k++) {
    int column = (row + 1 + w->step + k) % w->n;
    if (w->tried[column] || entry(w, row, column) < w->least) continue;
    w->tried[column] = 1;
    if (w->row_of[column] >= 0 && !match_row(w, w->row_of[column])) continue;
    w->row_of[column] = row;
    return true;
  }
  return false;
}

static bool match_all(struct birkhoff *w) {
  for (int c = 0; c < w->n; c++) w->row_of[c] = -1;
  for (int r = 0; r < w->n; r++) {
    memset(w->tried, 0, (size_t)w->n);
    if (!match_row(w, r)) return false;
  }
  return true;
}

/* Takes the matching out of the matrix, its least entry everywhere; *amount is that. */
static copse_status take_step(struct birkhoff *w, int64_t *amount) {
  struct copse_birkhoff *b = w->out;
  size_t n = (size_t)w->n, s = (size_t)b->n_steps;
  COPSE_DO(copse_grow(&b->amounts, &w->amounts_capacity, s + 1, sizeof *b->amounts, w->err));
  COPSE_DO(copse_grow(&b->to, &w->to_capacity, (s + 1) * n, sizeof *b->to, w->err));
  COPSE_DO(copse_grow(&b->sent, &w->sent_capacity, (s + 1) * n, sizeof *b->sent, w->err));
  *amount = INT64_MAX;
  for (int c = 0; c < w->n; c++)
    if (entry(w, w->row_of[c], c) < *amount) *amount = entry(w, w->row_of[c], c);
  for (int c = 0; c < w->n; c++) {
    int row = w->row_of[c];
    int64_t *left = &w->left[at(w, row, c)], sent = *left < *amount ? *left : *amount;
    b->to[s * n + (size_t)row] = c;
    b->sent[s * n + (size_t)row] = sent;
    *left -= sent;
    w->empty[at(w, row, c)] -= *amount - sent;
  }
  b->amounts[s] = *amount;
  b->n_steps++;
  return COPSE_OK;
}

static copse_status decompose(struct birkhoff *w) {
  int64_t rest, amount;
  COPSE_DO(fill_up(w, &rest));
  for (w->least = 1; w->least <= rest / 2;) w->least *= 2;
  while (rest > 0) {
    /* All sums are equal, so with least = 1 there is a matching (Birkhoff, Hall). */
    if (!match_all(w)) {
      if (w->least == 1)
        return copse_fail(w->err, COPSE_INTERNAL, "Birkhoff: a matrix without a permutation");
      w->least /= 2;
      continue;
    }
    COPSE_DO(take_step(w, &amount));
    rest -= amount;
    w->step++;
  }
  return COPSE_OK;
}

copse_status copse_birkhoff_decompose(const int64_t *matrix, int n, struct copse_birkhoff *out,
                                      struct copse_err *err) {
  struct birkhoff w = {.n = n, .out = out, .err = err};
  size_t size = (size_t)n * (size_t)n;
  copse_status status;
  *out = (struct copse_birkhoff){.n = n};
  COPSE_TRY(copse_arena_array(&w.scratch, size, sizeof *w.left, &w.left, err));
  COPSE_TRY(copse_arena_array(&w.scratch, size, sizeof *w.empty, &w.empty, err));
  COPSE_TRY(copse_arena_array(&w.scratch, (size_t)n, sizeof *w.row_of, &w.row_of, err));
  COPSE_TRY(copse_arena_array(&w.scratch, (size_t)n, 1, &w.tried, err));
  memcpy(w.left, matrix, size * sizeof *matrix);
  status = decompose(&w);
out:
  copse_arena_free(&w.scratch);
  if (status != COPSE_OK) copse_birkhoff_free(out);
  return status;
}

void copse_birkhoff_free(struct copse_birkhoff *b) {
  free(b->amounts);
  free(b->to);
  free(b->sent);
  *b = (struct copse_birkhoff){0};
}

/* Ships `units` by way of stops [4]; of equal ones that follow each other only the first counts. */
static copse_status baseline_ship(struct copse_baseline_work *w, const int stops[4],
                                  int64_t units) {
  struct copse_shipment s = {.src = stops[0], .dst = stops[3], .units = units};
  for (int i = 0; i < 4; i++)
    if (i == 0 || stops[i] != stops[i - 1]) s.stops[s.n_stops++] = stops[i];
  return COPSE_PUSH(w->shipments, w->n_shipments, w->shipments_capacity, w->err, s);
}

/* Adds the transfer of `units` over the route from src to dst; `transfer` has the rest. */
static copse_status baseline_send(struct copse_baseline_work *w, int src, int dst, int64_t units,
                                  const struct copse_sim_transfer *transfer, int *last) {
  struct copse_sim_transfer t = *transfer;
  int n;
  const int *nodes = copse_route(&w->routes, src, dst, &n);
  COPSE_DO(copse_route_require(w->topology, src, dst, n, w->err));
  t.amount = copse_q_to_double((struct copse_q){units, w->whole});
  return copse_sim_dag_add_path(w->dag, w->topology, nodes, n, &t, last, w->err);
}

/* Returns the rank of host h at a place. */
static int member(const struct copse_hosts *h, int host, int place) {
  return h->members[h->first[host] + place];
}

/* Ships all pairs with demand, each over its route; with `by_place` by way of the rank of the
 * source's host that has the destination's place. */
static copse_status ship_pairs(struct copse_baseline_work *w, bool by_place) {
  int n = w->topology->n_ranks;
  const struct copse_hosts *h = &w->hosts;
  for (int i = 0; i < n; i++) {
    for (int j = 0; j < n; j++) {
      int64_t units = copse_baseline_units(w, i, j);
      int middle = by_place ? member(h, h->of_rank[i], h->place[j]) : j;
      if (i != j && units > 0) COPSE_DO(baseline_ship(w, (int[]){i, middle, j, j}, units));
    }
  }
  return COPSE_OK;
}

/* ---- pairwise -------------------------------------------------------------------------- */

/* Sends in a round; last, next [2 * n_ranks]: the send and the receive of each rank in a round; -1:
 * none yet. */
static copse_status send_in_round(struct copse_baseline_work *w, int src, int dst, const int *last,
                                  int *next) {
  /* the partner posts its receive when its own round is over */
  const int waits[] = {last[2 * src], last[2 * src + 1], last[2 * dst], last[2 * dst + 1]};
  int after[4], n = 0, id;
  int64_t units = copse_baseline_units(w, src, dst);
  if (units == 0) return COPSE_OK;
  for (int i = 0; i < 4; i++)
    if (waits[i] >= 0) after[n++] = waits[i];
  struct copse_sim_transfer t = {.after = after, .n_after = n};
  COPSE_DO(baseline_send(w, src, dst, units, &t, &id));
  next[2 * src] = next[2 * dst + 1] = id;
  return COPSE_OK;
}

copse_status copse_baseline_pairwise(struct copse_baseline_work *w) {
  int n = w->topology->n_ranks;
  size_t ends = 2 * (size_t)n;
  bool power = (n & (n - 1)) == 0;
  int *last = NULL, *next = NULL;
  COPSE_DO(ship_pairs(w, false));
  if (!w->dag) return COPSE_OK;
  COPSE_DO(copse_arena_array(&w->scratch, ends, sizeof *last, &last, w->err));
  COPSE_DO(copse_arena_array(&w->scratch, ends, sizeof *next, &next, w->err));
  for (size_t i = 0; i < ends; i++) next[i] = -1;
  for (int round = 1; round < n; round++) {
    memcpy(last, next, ends * sizeof *last);
    for (int i = 0; i < n; i++)
      COPSE_DO(send_in_round(w, i, power ? i ^ round : (i + round) % n, last, next));
  }
  return COPSE_OK;
}

copse_status copse_baseline_spread_out(struct copse_baseline_work *w) {
  int n = w->topology->n_ranks;
  COPSE_DO(ship_pairs(w, false));
  for (int i = 0; i < n && w->dag; i++) {
    for (int k = 1; k < n; k++) {
      struct copse_sim_transfer t = {.order = k};
      int64_t units = copse_baseline_units(w, i, (i + k) % n);
      if (units > 0) COPSE_DO(baseline_send(w, i, (i + k) % n, units, &t, NULL));
    }
  }
  return COPSE_OK;
}

/* ---- 2DH ------------------------------------------------------------------------------- */

/* Computes all that rank i hands first to the neighbour at `place`, for itself and its like. */
static int64_t handed_over(const struct copse_baseline_work *w, int i, int place) {
  int64_t units = 0; /* at most the row's sum, which fits */
  for (int host = 0; host < w->hosts.n_hosts; host++)
    units += copse_baseline_units(w, i, member(&w->hosts, host, place));
  return units;
}

/* Computes what rank k sends to `to`, the rank of its index in another host: what k's host has for
 * it. */
static copse_status gathered(const struct copse_baseline_work *w, int k, int to, int64_t *units) {
  int host = w->hosts.of_rank[k];
  *units = 0;
  for (int i = w->hosts.first[host]; i < w->hosts.first[host + 1]; i++)
    if (copse_add_overflows(*units, copse_baseline_units(w, w->hosts.members[i], to), units))
      return copse_fail(w->err, COPSE_OVERFLOW, "the demand of a host needs over 63 bits");
  return COPSE_OK;
}

/* Exchanges inside the host; sends[a * places + b]: the transfer from place a to b. */
static copse_status exchange_inside(struct copse_baseline_work *w, int host, int *sends) {
  int places = w->hosts.first[1];
  for (int a = 0; a < places; a++) {
    for (int k = 1; k < places; k++) {
      int b = (a + k) % places, src = member(&w->hosts, host, a);
      int64_t units = handed_over(w, src, b);
      struct copse_sim_transfer t = {.order = k};
      sends[a * places + b] = -1;
      if (units > 0)
        COPSE_DO(
            baseline_send(w, src, member(&w->hosts, host, b), units, &t, &sends[a * places + b]));
    }
  }
  return COPSE_OK;
}

/* Sends then from the rank at `place` to the ranks of its place elsewhere, when its own part of the
 * first phase is over. */
static copse_status exchange_outside(struct copse_baseline_work *w, int host, int place,
                                     const int *sends, int *list) {
  int places = w->hosts.first[1], hosts = w->hosts.n_hosts, n = 0, barrier;
  int src = member(&w->hosts, host, place);
  for (int b = 0; b < places; b++) {
    if (b == place) continue;
    if (sends[place * places + b] >= 0) list[n++] = sends[place * places + b];
    if (sends[b * places + place] >= 0) list[n++] = sends[b * places + place];
  }
  struct copse_sim_transfer join = {.after = list, .n_after = n};
  COPSE_DO(copse_sim_dag_add(w->dag, &join, &barrier, w->err));
  for (int k = 1; k < hosts; k++) {
    int dst = member(&w->hosts, (host + k) % hosts, place);
    int64_t units;
    struct copse_sim_transfer t = {.after = &barrier, .n_after = 1, .order = k};
    COPSE_DO(gathered(w, src, dst, &units));
    if (units > 0) COPSE_DO(baseline_send(w, src, dst, units, &t, NULL));
  }
  return COPSE_OK;
}

copse_status copse_baseline_2dh(struct copse_baseline_work *w) {
  size_t places = (size_t)w->hosts.first[1];
  int *sends = NULL, *list = NULL;
  COPSE_DO(ship_pairs(w, true));
  if (!w->dag) return COPSE_OK;
  COPSE_DO(copse_arena_array(&w->scratch, places * places, sizeof *sends, &sends, w->err));
  COPSE_DO(copse_arena_array(&w->scratch, 2 * places, sizeof *list, &list, w->err));
  for (int host = 0; host < w->hosts.n_hosts; host++) {
    COPSE_DO(exchange_inside(w, host, sends));
    for (int place = 0; place < (int)places; place++)
      COPSE_DO(exchange_outside(w, host, place, sends, list));
  }
  return COPSE_OK;
}

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
  return copse_baseline_units(f->w, q->src, member(f->hosts, q->to, place)) * f->places;
}

/* Moves `units` from the queue's front to the end of the pieces. */
static copse_status take(struct fast *f, struct queue *q, int64_t units) {
  while (units > 0) {
    int place = (f->hosts->place[q->src] + q->k) % f->places;
    int64_t now = q->left < units ? q->left : units;
    if (now > 0) {
      COPSE_DO(COPSE_PUSH(f->pieces, f->n_pieces, f->pieces_capacity, f->w->err,
                          (struct piece){q->src, member(f->hosts, q->to, place), now}));
    }
    units -= now;
    q->left -= now;
    if (q->left > 0) continue;
    if (++q->k == f->places) break;
    q->left = queue_load(f, q);
  }
  return COPSE_OK;
}

/* Balances the bytes from one host to another over the host's ranks: a rank with more than its part
 * gives to ranks with less. In order, so at most 2 * places moves. */
static copse_status balance(struct fast *f, int from, int to, struct queue *queues) {
  int64_t part = f->matrix[(size_t)from * (size_t)f->n_hosts + (size_t)to];
  int giver = 0;
  for (int a = 0; a < f->places; a++) {
    f->amounts[a] = 0;
    for (int b = 0; b < f->places; b++)
      f->amounts[a] +=
          copse_baseline_units(f->w, member(f->hosts, from, a), member(f->hosts, to, b)) *
          f->places;
    queues[a] = (struct queue){.src = member(f->hosts, from, a), .to = to};
    queues[a].left = queue_load(f, &queues[a]);
  }
  for (int a = 0; a < f->places; a++) { /* rail by rail: its own, then what it is given */
    int64_t own = f->amounts[a] < part ? f->amounts[a] : part, lacks = part - own;
    f->rail[rail_of(f, from, to, a)] = f->n_pieces;
    COPSE_DO(take(f, &queues[a], own));
    while (lacks > 0) {
      /* a giver keeps its part for its own rail, whether that came before or is to come */
      int64_t spare = f->amounts[giver] - part;
      int64_t now = spare < lacks ? spare : lacks;
      if (now <= 0) {
        giver++;
        continue;
      }
      /* `amounts` of a giver shrinks to `part`, so its own take is as large as ever */
      COPSE_DO(take(f, &queues[giver], now));
      f->amounts[giver] -= now;
      lacks -= now;
    }
  }
  return COPSE_OK;
}

static copse_status balance_all(struct fast *f) {
  struct queue *queues = NULL;
  COPSE_DO(
      copse_arena_array(&f->w->scratch, (size_t)f->places, sizeof *queues, &queues, f->w->err));
  for (int from = 0; from < f->n_hosts; from++)
    for (int to = 0; to < f->n_hosts; to++) COPSE_DO(balance(f, from, to, queues));
  f->rail[rail_of(f, f->n_hosts, 0, 0)] = f->n_pieces;
  return COPSE_OK;
}

/* ---- shipments ------------------------------------------------------------------------- */

static copse_status ship_rail(struct fast *f, int from, int to, int place) {
  size_t rail = rail_of(f, from, to, place);
  for (size_t p = f->rail[rail]; p < f->rail[rail + 1]; p++) {
    const struct piece *piece = &f->pieces[p];
    int stops[] = {piece->src, member(f->hosts, from, place), member(f->hosts, to, place),
                   piece->dst};
    COPSE_DO(baseline_ship(f->w, stops, piece->units));
  }
  return COPSE_OK;
}

static copse_status ship_all(struct fast *f) {
  const struct copse_topology *t = f->w->topology;
  for (int i = 0; i < t->n_ranks; i++) {
    for (int j = 0; j < t->n_ranks; j++) {
      int64_t units = copse_baseline_units(f->w, i, j) * f->places;
      if (i == j || units == 0 || f->hosts->of_rank[i] != f->hosts->of_rank[j]) continue;
      COPSE_DO(baseline_ship(f->w, (int[]){i, j, j, j}, units));
    }
  }
  for (int from = 0; from < f->n_hosts; from++)
    for (int to = 0; to < f->n_hosts; to++)
      for (int place = 0; place < f->places; place++) COPSE_DO(ship_rail(f, from, to, place));
  return COPSE_OK;
}

/* ---- transfers ------------------------------------------------------------------------- */

/* Sends at the start demand inside the host, and the moves of the balance. */
static copse_status send_inside(struct fast *f, int host) {
  for (int a = 0; a < f->places; a++) {
    for (int k = 1; k < f->places; k++) {
      int src = member(f->hosts, host, a), dst = member(f->hosts, host, (a + k) % f->places);
      int64_t units = copse_baseline_units(f->w, src, dst) * f->places;
      /* what must go on to other hosts goes first */
      struct copse_sim_transfer t = {.order = f->n_hosts + k};
      if (units > 0) COPSE_DO(baseline_send(f->w, src, dst, units, &t, NULL));
    }
  }
  return COPSE_OK;
}

static copse_status send_balance(struct fast *f, int from, int to, int place) {
  size_t rail = rail_of(f, from, to, place);
  memset(f->amounts, 0, (size_t)f->places * sizeof *f->amounts);
  for (size_t p = f->rail[rail]; p < f->rail[rail + 1]; p++)
    f->amounts[f->hosts->place[f->pieces[p].src]] += f->pieces[p].units;
  for (int a = 0; a < f->places; a++) {
    struct copse_sim_transfer t = {.order = (to - from + f->n_hosts) % f->n_hosts};
    int *id = &f->balanced[rail * (size_t)f->places + (size_t)a];
    *id = -1;
    if (a == place || f->amounts[a] == 0) continue;
    COPSE_DO(baseline_send(f->w, member(f->hosts, from, a), member(f->hosts, from, place),
                           f->amounts[a], &t, id));
  }
  return COPSE_OK;
}

/* Takes the next `units` off the rail and hands them on from where transfer `step` brought them. */
static copse_status hand_on(struct fast *f, size_t rail, int at, int64_t units, int step) {
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
    int dst = member(f->hosts, f->hosts->of_rank[at], b);
    struct copse_sim_transfer t = {.after = &step, .n_after = 1};
    if (dst != at && f->amounts[b] > 0)
      COPSE_DO(baseline_send(f->w, at, dst, f->amounts[b], &t, NULL));
  }
  return COPSE_OK;
}

/* Sends one rail's part of a step, after its own part of the step before and its balance. */
static copse_status send_step(struct fast *f, int from, int to, int place, int64_t units,
                              int *last_sent, int *last_received) {
  size_t rail = rail_of(f, from, to, place);
  int src = member(f->hosts, from, place), dst = member(f->hosts, to, place), n = 0, id;
  if (last_sent[src] >= 0) f->list[n++] = last_sent[src];
  if (last_received[dst] >= 0) f->list[n++] = last_received[dst];
  for (int a = 0; a < f->places; a++)
    if (f->balanced[rail * (size_t)f->places + (size_t)a] >= 0)
      f->list[n++] = f->balanced[rail * (size_t)f->places + (size_t)a];
  struct copse_sim_transfer t = {.after = f->list, .n_after = n};
  COPSE_DO(baseline_send(f->w, src, dst, units, &t, &id));
  last_sent[src] = id;
  last_received[dst] = id;
  return hand_on(f, rail, dst, units, id);
}

static copse_status send_steps(struct fast *f) {
  size_t ranks = (size_t)f->w->topology->n_ranks, n = (size_t)f->n_hosts;
  int *last = NULL; /* [2 * n_ranks] sent, received */
  COPSE_DO(copse_arena_array(&f->w->scratch, 2 * ranks, sizeof *last, &last, f->w->err));
  for (size_t i = 0; i < 2 * ranks; i++) last[i] = -1;
  for (int s = 0; s < f->steps.n_steps; s++) {
    for (int from = 0; from < f->n_hosts; from++) {
      size_t i = (size_t)s * n + (size_t)from;
      if (f->steps.sent[i] == 0) continue;
      for (int place = 0; place < f->places; place++)
        COPSE_DO(send_step(f, from, f->steps.to[i], place, f->steps.sent[i], last, last + ranks));
    }
  }
  return COPSE_OK;
}

static copse_status send_all(struct fast *f) {
  for (int from = 0; from < f->n_hosts; from++)
    for (int to = 0; to < f->n_hosts; to++)
      for (int place = 0; place < f->places; place++) COPSE_DO(send_balance(f, from, to, place));
  for (int host = 0; host < f->n_hosts; host++) COPSE_DO(send_inside(f, host));
  return send_steps(f);
}

copse_status copse_baseline_birkhoff(struct copse_baseline_work *w) {
  struct fast f = {.w = w, .hosts = &w->hosts, .n_hosts = w->hosts.n_hosts};
  copse_status status;
  f.places = w->hosts.first[1];
  size_t hosts = (size_t)f.n_hosts, rails = hosts * hosts * (size_t)f.places;
  if (copse_mul_overflows(w->m, f.places, &w->whole))
    return copse_fail(w->err, COPSE_OVERFLOW, "the demand of a rank needs over 63 bits");
  COPSE_TRY(copse_arena_array(&w->scratch, hosts * hosts, sizeof *f.matrix, &f.matrix, w->err));
  COPSE_TRY(copse_arena_array(&w->scratch, rails + 1, sizeof *f.rail, &f.rail, w->err));
  COPSE_TRY(copse_arena_array(&w->scratch, rails + 1, sizeof *f.next, &f.next, w->err));
  COPSE_TRY(copse_arena_array(&w->scratch, rails + 1, sizeof *f.sent, &f.sent, w->err));
  COPSE_TRY(copse_arena_array(&w->scratch, rails * (size_t)f.places, sizeof *f.balanced,
                              &f.balanced, w->err));
  COPSE_TRY(copse_arena_array(&w->scratch, (size_t)f.places + 4, sizeof *f.list, &f.list, w->err));
  COPSE_TRY(
      copse_arena_array(&w->scratch, (size_t)f.places, sizeof *f.amounts, &f.amounts, w->err));
  COPSE_TRY(add_up_hosts(&f));
  COPSE_TRY(balance_all(&f));
  COPSE_TRY(ship_all(&f));
  if (!w->dag) goto out;
  memcpy(f.next, f.rail, rails * sizeof *f.next);
  COPSE_TRY(copse_birkhoff_decompose(f.matrix, f.n_hosts, &f.steps, w->err));
  status = send_all(&f);
out:
  copse_birkhoff_free(&f.steps);
  free(f.pieces);
  return status;
}
