/* The alltoall baselines without a plan: pairwise, spread-out, 2DH. */
#include <stdlib.h>

#include "predict/baseline_work.h"

copse_status copse_baseline_ship(struct copse_baseline_work *w,
                                 const struct copse_shipment *shipment) {
  copse_status status;
  COPSE_TRY(copse_grow(&w->shipments, &w->shipments_capacity, w->n_shipments + 1,
                       sizeof *w->shipments, w->err));
  w->shipments[w->n_shipments++] = *shipment;
out:
  return status;
}

copse_status copse_baseline_send(struct copse_baseline_work *w, int src, int dst, int64_t units,
                                 const struct copse_sim_transfer *transfer, int *last) {
  struct copse_sim_transfer t = *transfer;
  int n;
  const int *nodes = copse_route(&w->routes, src, dst, &n);
  t.amount = copse_q_to_double((struct copse_q){units, w->whole});
  return copse_sim_dag_add_path(w->dag, w->topology, nodes, n, &t, last, w->err);
}

/* All pairs with demand, each over its route. */
static copse_status ship_directly(struct copse_baseline_work *w) {
  int n = w->topology->n_ranks;
  copse_status status = COPSE_OK;
  for (int i = 0; i < n; i++) {
    for (int j = 0; j < n; j++) {
      int64_t units = copse_baseline_units(w, i, j);
      if (i == j || units == 0) continue;
      struct copse_shipment s = {i, j, {i, j}, 2, units};
      COPSE_TRY(copse_baseline_ship(w, &s));
    }
  }
out:
  return status;
}

/* ---- pairwise -------------------------------------------------------------------------- */

/* A rank's send and receive of its last round; -1 before the first. */
struct round_end {
  int sent, received;
};

static copse_status send_in_round(struct copse_baseline_work *w, int src, int dst,
                                  const struct round_end *last, struct round_end *next) {
  int after[4], n = 0, id;
  int64_t units = copse_baseline_units(w, src, dst);
  copse_status status = COPSE_OK;
  if (units == 0) return COPSE_OK;
  if (last[src].sent >= 0) after[n++] = last[src].sent;
  if (last[src].received >= 0) after[n++] = last[src].received;
  /* the partner posts its receive when its own round is over */
  if (last[dst].sent >= 0) after[n++] = last[dst].sent;
  if (last[dst].received >= 0) after[n++] = last[dst].received;
  struct copse_sim_transfer t = {.after = after, .n_after = n};
  COPSE_TRY(copse_baseline_send(w, src, dst, units, &t, &id));
  next[src].sent = id;
  next[dst].received = id;
out:
  return status;
}

copse_status copse_baseline_pairwise(struct copse_baseline_work *w) {
  int n = w->topology->n_ranks;
  bool power = (n & (n - 1)) == 0;
  struct round_end *last = NULL, *next = NULL;
  copse_status status;
  COPSE_TRY(ship_directly(w));
  if (!w->dag) return COPSE_OK;
  COPSE_TRY(copse_calloc((size_t)n, sizeof *last, &last, w->err));
  COPSE_TRY(copse_calloc((size_t)n, sizeof *next, &next, w->err));
  for (int i = 0; i < n; i++) next[i] = last[i] = (struct round_end){-1, -1};
  for (int round = 1; round < n; round++) {
    for (int i = 0; i < n; i++)
      COPSE_TRY(send_in_round(w, i, power ? i ^ round : (i + round) % n, last, next));
    for (int i = 0; i < n; i++) last[i] = next[i];
  }
out:
  free(last);
  free(next);
  return status;
}

copse_status copse_baseline_spread_out(struct copse_baseline_work *w) {
  int n = w->topology->n_ranks;
  copse_status status;
  COPSE_TRY(ship_directly(w));
  for (int i = 0; i < n && w->dag; i++) {
    for (int k = 1; k < n; k++) {
      struct copse_sim_transfer t = {.order = k};
      int64_t units = copse_baseline_units(w, i, (i + k) % n);
      if (units > 0) COPSE_TRY(copse_baseline_send(w, i, (i + k) % n, units, &t, NULL));
    }
  }
out:
  return status;
}

/* ---- 2DH ------------------------------------------------------------------------------- */

/* The rank of host h at a place. */
static int member(const struct copse_hosts *h, int host, int place) {
  return h->members[h->first[host] + place];
}

static copse_status ship_2dh(struct copse_baseline_work *w) {
  int n = w->topology->n_ranks;
  const struct copse_hosts *h = &w->hosts;
  copse_status status = COPSE_OK;
  for (int i = 0; i < n; i++) {
    for (int j = 0; j < n; j++) {
      int64_t units = copse_baseline_units(w, i, j);
      if (i == j || units == 0) continue;
      int middle = member(h, h->of_rank[i], h->place[j]);
      bool direct = middle == i || middle == j;
      struct copse_shipment s = {i, j, {i, direct ? j : middle, j}, direct ? 2 : 3, units};
      COPSE_TRY(copse_baseline_ship(w, &s));
    }
  }
out:
  return status;
}

/* First all that rank i hands to the neighbour at `place`, for itself and its like. */
static int64_t handed_over(const struct copse_baseline_work *w, int i, int place) {
  int64_t units = 0; /* at most the row's sum, which fits */
  for (int host = 0; host < w->hosts.n_hosts; host++)
    units += copse_baseline_units(w, i, member(&w->hosts, host, place));
  return units;
}

/* What rank k sends to its like in another host: what its host has for it. */
static copse_status gathered(const struct copse_baseline_work *w, int k, int to, int64_t *units) {
  int host = w->hosts.of_rank[k];
  *units = 0;
  for (int i = w->hosts.first[host]; i < w->hosts.first[host + 1]; i++)
    if (copse_add_overflows(*units, copse_baseline_units(w, w->hosts.members[i], to), units))
      return copse_fail(w->err, COPSE_OVERFLOW, "the demand of a host needs over 63 bits");
  return COPSE_OK;
}

/* The exchange inside the host; sends[a * places + b]: the transfer from place a to b. */
static copse_status exchange_inside(struct copse_baseline_work *w, int host, int *sends) {
  int places = w->hosts.first[1];
  copse_status status = COPSE_OK;
  for (int a = 0; a < places; a++) {
    for (int k = 1; k < places; k++) {
      int b = (a + k) % places, src = member(&w->hosts, host, a);
      int64_t units = handed_over(w, src, b);
      struct copse_sim_transfer t = {.order = k};
      sends[a * places + b] = -1;
      if (units > 0)
        COPSE_TRY(copse_baseline_send(w, src, member(&w->hosts, host, b), units, &t,
                                      &sends[a * places + b]));
    }
  }
out:
  return status;
}

/* Then the rank at `place` sends to its likes, when its own part of the first phase is over. */
static copse_status exchange_outside(struct copse_baseline_work *w, int host, int place,
                                     const int *sends, int *list) {
  int places = w->hosts.first[1], hosts = w->hosts.n_hosts, n = 0, barrier;
  int src = member(&w->hosts, host, place);
  copse_status status;
  for (int b = 0; b < places; b++) {
    if (b == place) continue;
    if (sends[place * places + b] >= 0) list[n++] = sends[place * places + b];
    if (sends[b * places + place] >= 0) list[n++] = sends[b * places + place];
  }
  struct copse_sim_transfer join = {.after = list, .n_after = n};
  COPSE_TRY(copse_sim_dag_add(w->dag, &join, &barrier, w->err));
  for (int k = 1; k < hosts; k++) {
    int dst = member(&w->hosts, (host + k) % hosts, place);
    int64_t units;
    struct copse_sim_transfer t = {.after = &barrier, .n_after = 1, .order = k};
    COPSE_TRY(gathered(w, src, dst, &units));
    if (units > 0) COPSE_TRY(copse_baseline_send(w, src, dst, units, &t, NULL));
  }
out:
  return status;
}

copse_status copse_baseline_2dh(struct copse_baseline_work *w) {
  size_t places = (size_t)w->hosts.first[1];
  int *sends = NULL, *list = NULL;
  copse_status status;
  COPSE_TRY(ship_2dh(w));
  if (!w->dag) return COPSE_OK;
  COPSE_TRY(copse_calloc(places * places, sizeof *sends, &sends, w->err));
  COPSE_TRY(copse_calloc(2 * places, sizeof *list, &list, w->err));
  for (int host = 0; host < w->hosts.n_hosts; host++) {
    COPSE_TRY(exchange_inside(w, host, sends));
    for (int place = 0; place < (int)places; place++)
      COPSE_TRY(exchange_outside(w, host, place, sends, list));
  }
out:
  free(sends);
  free(list);
  return status;
}
