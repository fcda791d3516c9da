/* The two-tier plan as a set of transfers for the simulator. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "schedule/online/internal.h"

/* What a NIC has under way, at the sender and at the receiver: two steps, or more where they are
 * short, until they fill the time that the word of an arrival needs (256 KiB: 10 us at 25
 * GB/s). */
enum { HISTORY = 16, WINDOW_BYTES = 256 << 10 };

/* The last transfers of a NIC, newest at (n - 1) % HISTORY. */
struct history {
  int n, id[HISTORY];
  int64_t bytes[HISTORY];
};

/* Bytes of each step, [steps * ranks * g] by the sender and the receiver's index. */
struct loads {
  int n, g;
  int64_t *balance, *local, *scatter;
  int64_t *inter; /* [steps * ranks] by the sender */
  int *inter_to;  /* [steps * ranks] */
};

struct sim {
  struct copse_planner *p;
  struct copse_sim_dag *dag;
  struct copse_err *err;
  struct loads loads;
  struct history *sent, *received; /* [ranks] INTER */
  int *balanced; /* [ranks * g] BALANCE of the step by receiver, then sender; -1 */
  int *handed;   /* [ranks * g] last BALANCE by sender, then receiver; -1 */
  int *entered;  /* [ranks] INTER of this step that enters a rank; -1 */
  int *left;     /* [ranks] INTER of this step that leaves a rank; -1 */
  int *path;     /* nodes of one way */
};

static void collect(void *ctx, const struct copse_online_piece *p) {
  struct loads *l = ctx;
  size_t at = (size_t)p->step * (size_t)l->n, g = (size_t)l->g;
  if (p->via_src < 0) {
    if (p->origin != p->final)
      l->local[(at + (size_t)p->origin) * g + (size_t)(p->final % l->g)] += p->bytes;
    return;
  }
  if (p->origin != p->via_src)
    l->balance[(at + (size_t)p->origin) * g + (size_t)(p->via_src % l->g)] += p->bytes;
  l->inter[at + (size_t)p->via_src] += p->bytes;
  l->inter_to[at + (size_t)p->via_src] = p->via_dst;
  if (p->final != p->via_dst)
    l->scatter[(at + (size_t)p->via_dst) * g + (size_t)(p->final % l->g)] += p->bytes;
}

/* ---- single transfers ---------------------------------------------------------------------- */

static copse_status add_inside(struct sim *s, int from, int to, int64_t bytes, const int *after,
                               int n_after, int *id) {
  const struct copse_topology *t = s->p->topology;
  int nodes[3] = {t->rank_nodes[from], s->p->tier.hub[from / s->loads.g], t->rank_nodes[to]};
  struct copse_sim_transfer transfer = {.amount = (double)bytes /* for simulated seconds */};
  int list[2], n = 0;
  for (int i = 0; i < n_after; i++)
    if (after[i] >= 0) list[n++] = after[i];
  transfer.after = list;
  transfer.n_after = n;
  return copse_sim_dag_add_path(s->dag, t, nodes, 3, &transfer, id, s->err);
}

/* Up the sender's way, down the receiver's; both end at the same switch. */
static copse_status add_between(struct sim *s, int from, int to, int64_t bytes, const int *after,
                                int n_after, int *id) {
  const struct copse_two_tier *tier = &s->p->tier;
  struct copse_sim_transfer transfer = {
      .amount = (double)bytes /* for simulated seconds */, .after = after, .n_after = n_after};
  int n = 0;
  for (int k = tier->up_start[from]; k < tier->up_start[from + 1]; k++) s->path[n++] = tier->up[k];
  for (int k = tier->up_start[to + 1] - 2; k >= tier->up_start[to]; k--) s->path[n++] = tier->up[k];
  return copse_sim_dag_add_path(s->dag, s->p->topology, s->path, n, &transfer, id, s->err);
}

/* ---- what must be over first ------------------------------------------------------------------
 */

static void remember(struct history *h, int id, int64_t bytes) {
  h->id[h->n % HISTORY] = id;
  h->bytes[h->n++ % HISTORY] = bytes;
}

/* The transfer that must have arrived before the NIC's next one starts; -1: none. */
static int must_be_over(const struct history *h) {
  int64_t under_way = 0;
  for (int k = 1; k < HISTORY && k < h->n; k++) {
    under_way += h->bytes[(h->n - k) % HISTORY];
    if (under_way >= WINDOW_BYTES) return h->id[(h->n - k - 1) % HISTORY];
  }
  return h->n > HISTORY ? h->id[h->n % HISTORY] : -1;
}

/* ---- one step ---------------------------------------------------------------------------------
 */

/* BALANCE waits for the sender's last one to the same rank and for its NIC to be two steps
 * behind at most; LOCAL likewise keeps step with the NIC. */
static copse_status add_balance(struct sim *s, int step) {
  size_t n = (size_t)s->loads.n, g = (size_t)s->loads.g;
  copse_status status = COPSE_OK;
  for (size_t i = 0; i < n * g; i++) s->balanced[i] = -1;
  for (size_t r = 0; r < n; r++)
    for (size_t j = 0; j < g; j++) {
      int64_t bytes = s->loads.balance[((size_t)step * n + r) * g + j];
      size_t to = r / g * g + j;
      const int after[] = {s->handed[r * g + j], must_be_over(&s->sent[to])};
      if (bytes == 0) continue;
      COPSE_TRY(add_inside(s, (int)r, (int)to, bytes, after, 2, &s->balanced[to * g + r % g]));
      s->handed[r * g + j] = s->balanced[to * g + r % g];
    }
out:
  return status;
}

static copse_status add_inter(struct sim *s, int step) {
  size_t n = (size_t)s->loads.n, g = (size_t)s->loads.g;
  copse_status status = COPSE_OK;
  for (size_t r = 0; r < n; r++) s->entered[r] = s->left[r] = -1;
  for (size_t r = 0; r < n; r++) {
    int after[COPSE_ONLINE_MAX_LOCAL + 2], n_after = 0;
    int64_t bytes = s->loads.inter[(size_t)step * n + r];
    int to = s->loads.inter_to[(size_t)step * n + r];
    if (bytes == 0) continue;
    for (size_t i = 0; i < g; i++)
      if (s->balanced[r * g + i] >= 0) after[n_after++] = s->balanced[r * g + i];
    int before = must_be_over(&s->sent[r]);
    if (before >= 0) after[n_after++] = before;
    before = must_be_over(&s->received[to]);
    if (before >= 0) after[n_after++] = before;
    COPSE_TRY(add_between(s, (int)r, to, bytes, after, n_after, &s->left[r]));
    s->entered[to] = s->left[r];
  }
out:
  return status;
}

static copse_status add_scatter(struct sim *s, int step) {
  size_t n = (size_t)s->loads.n, g = (size_t)s->loads.g;
  copse_status status = COPSE_OK;
  for (size_t r = 0; r < n; r++)
    for (size_t j = 0; j < g; j++) {
      size_t at = ((size_t)step * n + r) * g + j;
      int to = (int)(r / g * g + j), before = must_be_over(&s->sent[r]);
      if (s->loads.scatter[at] > 0)
        COPSE_TRY(add_inside(s, (int)r, to, s->loads.scatter[at], &s->entered[r], 1, NULL));
      if (s->loads.local[at] > 0)
        COPSE_TRY(add_inside(s, (int)r, to, s->loads.local[at], &before, 1, NULL));
    }
out:
  return status;
}

static void end_step(struct sim *s, int step) {
  size_t n = (size_t)s->loads.n;
  for (size_t r = 0; r < n; r++) {
    size_t at = (size_t)step * n + r;
    if (s->left[r] < 0) continue;
    remember(&s->sent[r], s->left[r], s->loads.inter[at]);
    remember(&s->received[s->loads.inter_to[at]], s->left[r], s->loads.inter[at]);
  }
}

/* ---- the whole
 * ----------------------------------------------------------------------------------- */

static copse_status allocate(struct sim *s, struct copse_err *err) {
  struct loads *l = &s->loads;
  l->n = s->p->topology->n_ranks;
  l->g = s->p->tier.model.ranks_per_host;
  size_t n = (size_t)l->n, g = (size_t)l->g, steps = (size_t)copse_online_steps(s->p->online);
  copse_status status;
  COPSE_TRY(copse_calloc(steps * n * g, sizeof *l->balance, &l->balance, err));
  COPSE_TRY(copse_calloc(steps * n * g, sizeof *l->local, &l->local, err));
  COPSE_TRY(copse_calloc(steps * n * g, sizeof *l->scatter, &l->scatter, err));
  COPSE_TRY(copse_calloc(steps * n, sizeof *l->inter, &l->inter, err));
  COPSE_TRY(copse_calloc(steps * n, sizeof *l->inter_to, &l->inter_to, err));
  COPSE_TRY(copse_calloc(n, sizeof *s->sent, &s->sent, err));
  COPSE_TRY(copse_calloc(n, sizeof *s->received, &s->received, err));
  COPSE_TRY(copse_calloc(n * g, sizeof *s->balanced, &s->balanced, err));
  COPSE_TRY(copse_calloc(n * g, sizeof *s->handed, &s->handed, err));
  COPSE_TRY(copse_calloc(n, sizeof *s->entered, &s->entered, err));
  COPSE_TRY(copse_calloc(n, sizeof *s->left, &s->left, err));
  COPSE_TRY(copse_calloc(2 * (size_t)s->p->topology->n_nodes, sizeof *s->path, &s->path, err));
  memset(s->handed, 0xff, n * g * sizeof *s->handed);
out:
  return status;
}

static void release(struct sim *s) {
  void *all[] = {s->loads.balance,  s->loads.local, s->loads.scatter, s->loads.inter,
                 s->loads.inter_to, s->sent,        s->received,      s->balanced,
                 s->handed,         s->entered,     s->left,          s->path};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

copse_status copse_online_add_to_sim(struct copse_planner *planner, struct copse_sim_dag *dag,
                                     struct copse_err *err) {
  struct sim s = {.p = planner, .dag = dag, .err = err};
  copse_status status;
  COPSE_TRY(allocate(&s, err));
  copse_online_walk(planner->online, -1, collect, &s.loads);
  for (int step = 0; step < copse_online_steps(planner->online); step++) {
    COPSE_TRY(add_balance(&s, step));
    COPSE_TRY(add_inter(&s, step));
    COPSE_TRY(add_scatter(&s, step));
    end_step(&s, step);
  }
out:
  release(&s);
  return status;
}
