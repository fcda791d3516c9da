/*
 * One maximum flow per sink, shared by threads, each on its copy of the graph. Neighbours differ
 * little, so the flow to a sink is made from that to the one before by moving where it ends:
 *
 *     source ==> roots ==> ... ==> u - - -> v        what flowed to u goes on to v
 *
 * and a sink v to which all that reaches u evidently goes on, and back, is not asked at all.
 */
#include "solver/network/sinks.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/parallel.h"
#include "base/rational.h"
#include "solver/policy.h"

/* ---- the graph --------------------------------------------------------------------------- */

static int64_t capped_product(int64_t a, int64_t b) {
  int64_t product;
  return copse_mul_overflows(a, b, &product) ? INT64_MAX : product;
}

copse_status copse_sinks_graph(const struct copse_network *network, const int64_t *capacities,
                               int64_t scale, int64_t rate, struct copse_flow **out,
                               int64_t *demand, struct copse_err *err) {
  *demand = 0;
  COPSE_DO(copse_flow_new(network->n_nodes + 1, out, err));
  for (int i = 0; i < network->n_links; i++) {
    const struct copse_net_link *link = &network->links[i];
    int64_t capacity = capped_product(capacities ? capacities[i] : link->capacity, scale);
    if (capacity > 0) COPSE_DO(copse_flow_change(*out, link->src, link->dst, capacity, err));
  }
  for (int i = 0; i < network->n_roots; i++) {
    int64_t amount = capped_product(network->roots[i].weight, rate);
    if (copse_add_overflows(*demand, amount, demand) || *demand > COPSE_FLOW_MAX)
      return copse_fail(err, COPSE_OVERFLOW,
                        "the bandwidths need more than 61 bits once brought to a common "
                        "denominator; use fewer digits");
    COPSE_DO(copse_flow_change(*out, network->n_nodes, network->roots[i].node, amount, err));
  }
  return COPSE_OK;
}

/* ---- threads ----------------------------------------------------------------------------- */

struct worker {
  struct sinks_state *state;
  struct copse_flow *flow; /* the first one's is the graph itself */
  int at;                  /* the sink that the demand flows to; -1: none */
};

struct sinks_state {
  int n_nodes;
  const struct copse_sink_question *question;
  int *asked; /* [n_asked] places of the sinks that stand for all */
  int n_asked;
  int64_t *leaving, *entering; /* [n_nodes] capacities of the sink that stands for the next ones */
  size_t asked_capacity, cuts_capacity, flags_capacity;
  struct copse_sink_cut *cuts; /* [n_cuts] by place; room for one more */
  unsigned char *flags;        /* what the cuts' `inside` lie in */
  pthread_mutex_t mutex;       /* guards the cuts */
  int n_cuts, n_short, most;
  atomic_int next;  /* into `asked` */
  atomic_int bound; /* into `asked`: from here on nothing matters any more */
  struct copse_flow *copies[COPSE_SINKS_THREADS];
  struct copse_arena arena; /* of the arrays [n_nodes] */
};

static copse_status make_state(struct copse_sinks *sinks, int n_nodes, struct copse_err *err) {
  struct sinks_state *state = NULL;
  if (sinks->state && sinks->state->n_nodes == n_nodes) return COPSE_OK;
  copse_sinks_free(sinks);
  COPSE_DO(copse_calloc(1, sizeof *state, &state, err));
  state->n_nodes = n_nodes;
  pthread_mutex_init(&state->mutex, NULL);
  sinks->state = state;
  return COPSE_ARRAYS(&state->arena, (size_t)n_nodes, int64_t, err, &state->leaving,
                      &state->entering);
}

void copse_sinks_free(struct copse_sinks *sinks) {
  struct sinks_state *state = sinks->state;
  *sinks = (struct copse_sinks){0};
  if (!state) return;
  for (int i = 0; i < COPSE_SINKS_THREADS; i++) copse_flow_free(state->copies[i]);
  pthread_mutex_destroy(&state->mutex);
  free(state->asked);
  copse_arena_free(&state->arena);
  free(state->cuts);
  free(state->flags);
  free(state);
}

/* ---- sinks that stand for others --------------------------------------------------------- */

/* Notes (sign 1) or forgets (0) what leaves and enters u. */
static void note_links(struct sinks_state *state, struct copse_flow *flow, int u, int sign) {
  struct copse_flow_neighbours list = copse_flow_leaving(flow, u);
  for (int i = 0; i < list.n; i++) state->leaving[list.nodes[i]] = sign * list.capacities[i];
  list = copse_flow_entering(flow, u);
  for (int i = 0; i < list.n; i++) state->entering[list.nodes[i]] = sign * list.capacities[i];
}

/* Over the link from u to v, or back, and over one node in between: these ways share no link.
 * `noted` are the links of u, `list` those of v. */
static bool evidently_flows(const int64_t *noted, struct copse_flow_neighbours list, int u,
                            int64_t amount) {
  for (int i = 0; i < list.n && amount > 0; i++) {
    int64_t over = noted[list.nodes[i]];
    amount -= list.nodes[i] == u || list.capacities[i] < over ? list.capacities[i] : over;
  }
  return amount <= 0;
}

static copse_status choose_sinks(struct sinks_state *state, struct copse_flow *flow,
                                 struct copse_err *err) {
  const struct copse_sink_question *q = state->question;
  int64_t amount = q->demand + (q->tight ? 1 : 0);
  int last = -1;
  COPSE_DO(COPSE_GROW(state->asked, state->asked_capacity, (size_t)q->n_sinks, err));
  state->n_asked = 0;
  for (int i = 0; i < q->n_sinks; i++) {
    int place = (q->start + i) % q->n_sinks, v = q->sinks[place];
    if (last >= 0 && evidently_flows(state->leaving, copse_flow_entering(flow, v), last, amount) &&
        evidently_flows(state->entering, copse_flow_leaving(flow, v), last, amount))
      continue;
    if (last >= 0) note_links(state, flow, last, 0);
    note_links(state, flow, v, 1);
    last = v;
    state->asked[state->n_asked++] = place;
  }
  if (last >= 0) note_links(state, flow, last, 0);
  return COPSE_OK;
}

/* ---- asking ------------------------------------------------------------------------------ */

/* Room for all cuts of the answer, and for one that then turns out not to be among them. */
static copse_status make_room(struct sinks_state *state, struct copse_err *err) {
  const struct copse_sink_question *q = state->question;
  state->most = q->most < state->n_asked ? q->most : state->n_asked;
  size_t n = (size_t)(q->tight ? state->n_asked : state->most) + 1,
         n_nodes = (size_t)state->n_nodes;
  COPSE_DO(COPSE_GROW(state->cuts, state->cuts_capacity, n, err));
  COPSE_DO(copse_grow(&state->flags, &state->flags_capacity, n * n_nodes, 1, err));
  for (size_t i = 0; i < n; i++) state->cuts[i].inside = state->flags + i * n_nodes;
  state->n_cuts = state->n_short = 0;
  return COPSE_OK;
}

/* Where a cut goes in the answer; its place is one in `asked` until the answer is whole. */
static struct copse_sink_cut *insert_cut(struct sinks_state *state, int place) {
  int at = state->n_cuts++;
  struct copse_sink_cut cut = state->cuts[at];
  for (; at > 0 && state->cuts[at - 1].place > place; at--) state->cuts[at] = state->cuts[at - 1];
  state->cuts[at] = cut;
  state->cuts[at].place = place;
  return &state->cuts[at];
}

/* Once `most` sinks have fallen short, what comes after the last of them does not matter. */
static void drop_rest(struct sinks_state *state) {
  if (state->n_short < state->most) return;
  while (state->n_short > state->most ||
         state->cuts[state->n_cuts - 1].flows == state->question->demand)
    state->n_short -= state->cuts[--state->n_cuts].flows < state->question->demand;
  atomic_store(&state->bound, state->cuts[state->n_cuts - 1].place + 1);
}

static void record_cut(const struct worker *worker, int i, int64_t flows) {
  struct sinks_state *state = worker->state;
  COPSE_HOLD(&state->mutex);
  if (i >= atomic_load(&state->bound)) return;
  struct copse_sink_cut *cut = insert_cut(state, i);
  cut->flows = flows;
  for (int v = 0; v < state->n_nodes; v++)
    cut->inside[v] = !copse_flow_on_source_side(worker->flow, v);
  state->n_short += flows < state->question->demand;
  drop_rest(state);
}

/* Asks for one sink; the flow then ends there, or where it ended before. */
static void ask_sink(struct worker *worker, int i) {
  const struct copse_sink_question *q = worker->state->question;
  int v = q->sinks[worker->state->asked[i]];
  int64_t flows = worker->at >= 0 ? copse_flow_move(worker->flow, worker->at, v, q->demand)
                                  : copse_flow_max(worker->flow, q->source, v, q->demand);
  bool falls_short = flows < q->demand;
  if (!falls_short && q->tight) copse_flow_find_sides(worker->flow, v);
  if (falls_short || q->tight) record_cut(worker, i, flows);
  if (!falls_short)
    worker->at = v;
  else if (worker->at >= 0 && !copse_flow_take_back(worker->flow))
    worker->at = -1;
}

/* What worker i does; where fewer threads can be had than workers, the last find nothing left. */
static copse_status ask_sinks(void *workers, int i, struct copse_err *err) {
  struct worker *worker = (struct worker *)workers + i;
  struct sinks_state *state = worker->state;
  (void)err;
  for (;;) {
    int first = atomic_fetch_add(&state->next, COPSE_SINKS_AT_ONCE);
    for (int at = first; at < first + COPSE_SINKS_AT_ONCE; at++) {
      if (at >= atomic_load(&state->bound)) return COPSE_OK;
      ask_sink(worker, at);
    }
  }
}

static int count_threads(const struct sinks_state *state, struct copse_flow *flow) {
  int n = state->question->threads;
  if (n <= 0) {
    if ((int64_t)state->n_asked * copse_flow_links(flow) < COPSE_SINKS_WORK_FOR_THREADS) return 1;
    n = copse_processors();
  }
  return n > COPSE_SINKS_THREADS ? COPSE_SINKS_THREADS : n;
}

/* The workers beside the first one, each with a copy of the graph, as far as memory goes. */
static int make_workers(struct sinks_state *state, struct copse_flow *flow, struct worker *workers,
                        int n) {
  struct copse_err ignored = COPSE_ERR_INIT;
  for (int i = 1; i < n; i++) {
    if (copse_flow_copy(flow, &state->copies[i], &ignored) != COPSE_OK) return i;
    workers[i] = (struct worker){.state = state, .flow = state->copies[i], .at = -1};
  }
  return n;
}

copse_status copse_sinks_ask(struct copse_sinks *sinks, struct copse_flow *flow,
                             const struct copse_sink_question *question, struct copse_err *err) {
  sinks->n_cuts = 0;
  COPSE_DO(make_state(sinks, copse_flow_nodes(flow), err));
  struct sinks_state *state = sinks->state;
  struct worker workers[COPSE_SINKS_THREADS] = {{.state = state, .flow = flow, .at = -1}};
  state->question = question;
  COPSE_DO(choose_sinks(state, flow, err));
  COPSE_DO(make_room(state, err));
  atomic_init(&state->next, 1);
  atomic_init(&state->bound, state->n_asked);
  if (state->n_asked > 0) ask_sink(workers, 0); /* as a rule the one that fell short last time */
  if (atomic_load(&state->bound) > 1) {
    int n = make_workers(state, flow, workers, count_threads(state, flow));
    COPSE_DO(copse_parallel(n, n, ask_sinks, workers, err));
  }
  for (int i = 0; i < state->n_cuts; i++) state->cuts[i].place = state->asked[state->cuts[i].place];
  sinks->n_cuts = state->n_cuts;
  sinks->cuts = state->cuts;
  return COPSE_OK;
}
