/*
 * The verifier's part for alltoalls: flows that must carry the demand, and the bound by duality of
 * linear programming: for any link lengths l >= 0, T/M >= sum over pairs of share * distance_l /
 * sum over links of bandwidth * l. (The Japanese theorem: Onaga and Kakusho 1971, Iri 1971, for
 * multicommodity flows.) And bounds for a size, by flows over time (Ford and Fulkerson 1958).
 */
#include "verify/internal.h"

#include "base/graph.h"
#include "base/types.h"

/* ---- demand ----------------------------------------------------------------------- */

/* Computes M in the units of the demand: the largest row sum; the number of ranks when uniform. */
static copse_status demand_unit(struct copse_verify_checker *c, mpq_t m) {
  const struct copse_schedule *s = c->schedule;
  size_t n = (size_t)s->n_ranks;
  COPSE_MPQ(row);
  mpq_set_si(m, s->demand ? 0 : s->n_ranks, 1);
  for (size_t i = 0; i < n && s->demand; i++) {
    mpz_set_ui(mpq_numref(row), 0);
    for (size_t j = 0; j < n; j++)
      mpz_add_ui(mpq_numref(row), mpq_numref(row), (unsigned long)s->demand[i * n + j]);
    if (mpq_cmp(row, m) > 0) mpq_set(m, row);
  }
  return mpq_sgn(m) > 0 ? COPSE_OK : refute(c, "the demand is all zero");
}

static int64_t demand_of(const struct copse_schedule *s, int src, int dst) {
  if (src == dst) return 0;
  return s->demand ? s->demand[(size_t)src * (size_t)s->n_ranks + (size_t)dst] : 1;
}

/* ---- flows ------------------------------------------------------------------------ */

static copse_status walk_path(struct copse_verify_checker *c, int f,
                              const struct copse_schedule_path *path, const mpq_t weight) {
  const struct copse_schedule *s = c->schedule;
  const struct copse_schedule_flow *flow = &s->flows[f];
  if (path->n_nodes < 2 || path->nodes[0] != s->rank_nodes[flow->src] ||
      path->nodes[path->n_nodes - 1] != s->rank_nodes[flow->dst] || path->weight.num <= 0)
    return refute(c, "flow %d: a path doesn't lead from rank %d to rank %d", f, flow->src,
                  flow->dst);
  c->n_walked++;
  for (int i = 0; i < path->n_nodes; i++) {
    int node = c->node_of[path->nodes[i]], last = i > 0 ? c->node_of[path->nodes[i - 1]] : -1;
    int link = i > 0 && node >= 0 ? copse_topology_find_link(c->topology, last, node) : -1;
    bool inside = i > 0 && i + 1 < path->n_nodes;
    if (node < 0 || (i > 0 && link < 0))
      return refute(c, "flow %d: the topology has no link '%s' -> '%s'", f,
                    s->nodes[path->nodes[i > 0 ? i - 1 : 0]], s->nodes[path->nodes[i]]);
    if (c->visited[node] == c->n_walked)
      return refute(c, "flow %d: a path visits '%s' twice", f, s->nodes[path->nodes[i]]);
    if (inside && s->no_forward && c->topology->nodes[node].rank >= 0)
      return refute(c, "flow %d: a path passes through rank %d, which must not forward", f,
                    c->topology->nodes[node].rank);
    if (link >= 0) mpq_add(c->loads[link], c->loads[link], weight);
    c->visited[node] = c->n_walked;
  }
  return COPSE_OK;
}

/* Checks that the pair and, in the compact form, its images are served by this flow alone. */
static copse_status cover_pairs(struct copse_verify_checker *c, int f) {
  const struct copse_schedule *s = c->schedule;
  int src = s->flows[f].src, dst = s->flows[f].dst;
  for (int64_t g = 0; g < copse_schedule_images(s); g++) {
    size_t pair = (size_t)src * (size_t)s->n_ranks + (size_t)dst;
    if (c->covered[pair])
      return refute(c, "flow %d: rank %d to rank %d has a flow already", f, src, dst);
    c->covered[pair] = 1;
    if (s->n_rotations > 0) {
      src = c->symmetry.ranks[0][src];
      dst = c->symmetry.ranks[0][dst];
    }
  }
  return COPSE_OK;
}

/* Checks that the weights of a pair's paths add up to its part of M. */
static copse_status check_flow(struct copse_verify_checker *c, int f, const mpq_t m) {
  const struct copse_schedule_flow *flow = &c->schedule->flows[f];
  COPSE_MPQ(sum);
  COPSE_MPQ(q);
  COPSE_DO(cover_pairs(c, f));
  for (int p = 0; p < flow->n_paths; p++) {
    copse_mpq_set(q, flow->paths[p].weight);
    COPSE_DO(walk_path(c, f, &flow->paths[p], q));
    mpq_add(sum, sum, q);
  }
  mpq_set_si(q, demand_of(c->schedule, flow->src, flow->dst), 1);
  mpq_div(q, q, m);
  if (mpq_equal(sum, q)) return COPSE_OK;
  return refute(c, "flow %d: its weights don't add up to the demand of rank %d to rank %d", f,
                flow->src, flow->dst);
}

/* Checks that the rotation keeps the demand too. */
static copse_status check_rotation(struct copse_verify_checker *c) {
  const struct copse_schedule *s = c->schedule;
  const int *image = c->symmetry.ranks[0];
  for (int i = 0; i < s->n_ranks && s->n_rotations > 0 && s->demand; i++)
    for (int j = 0; j < s->n_ranks; j++)
      if (demand_of(s, i, j) != demand_of(s, image[i], image[j]))
        return refute(c, "the rotation does not keep the demand");
  return COPSE_OK;
}

copse_status copse_verify_flows(struct copse_verify_checker *c) {
  const struct copse_schedule *s = c->schedule;
  size_t n = (size_t)s->n_ranks, nodes = (size_t)c->topology->n_nodes;
  COPSE_MPQ(m);
  COPSE_DO(COPSE_ARRAY(&c->scratch.arena, nodes, c->visited, c->err));
  COPSE_DO(COPSE_ARRAY(&c->scratch.arena, n * n, c->covered, c->err));
  COPSE_DO(check_rotation(c));
  COPSE_DO(demand_unit(c, m));
  for (int f = 0; f < s->n_flows; f++) COPSE_DO(check_flow(c, f, m));
  for (size_t pair = 0; pair < n * n; pair++) {
    int src = (int)(pair / n), dst = (int)(pair % n);
    if (demand_of(s, src, dst) > 0 && !c->covered[pair])
      return refute(c, "rank %d to rank %d has no flow", src, dst);
  }
  return COPSE_OK;
}

/* ---- the bound -------------------------------------------------------------------- */

/* Converts lengths to integers over a common denominator, which cancels in the quotient. A link has
 * one: two would count twice in the bound for a size, which adds them up as they are listed. */
static copse_status integer_lengths(struct copse_verify_checker *c, int64_t *lengths) {
  const struct copse_bound *b = &c->schedule->bound;
  int64_t common = 1;
  char *seen;
  COPSE_DO(COPSE_ARRAY(&c->scratch.arena, (size_t)c->topology->n_links, seen, c->err));
  for (int i = 0; i < b->n_lengths; i++)
    if (copse_lcm(common, b->lengths[i].length.den, &common, NULL) != COPSE_OK)
      return refute(c, "the bound's lengths have no common denominator in 64 bits");
  for (int i = 0; i < b->n_lengths; i++) {
    const struct copse_schedule_length *l = &b->lengths[i];
    int link = copse_topology_find_link(c->topology, c->node_of[l->src], c->node_of[l->dst]);
    int64_t value;
    if (link < 0)
      return refute(c, "the bound's lengths name '%s' -> '%s', which is no link",
                    c->schedule->nodes[l->src], c->schedule->nodes[l->dst]);
    if (seen[link]++)
      return refute(c, "the bound's lengths name '%s' -> '%s' twice", c->schedule->nodes[l->src],
                    c->schedule->nodes[l->dst]);
    if (copse_mul_overflows(l->length.num, common / l->length.den, &value) || value < 0 ||
        value > INT64_MAX / (c->topology->n_nodes + 1))
      return refute(c, "the bound's lengths are out of range");
    lengths[link] = value;
  }
  return COPSE_OK;
}

struct search_space {
  int64_t *lengths, *distance;
  struct copse_adjacency out; /* links by source */
  struct copse_queue queue;   /* [n_nodes + 1], round */
  char *queued;
};

/* Finds distances by a queue of labels that are corrected until they settle (Bellman-Ford-Moore).
 * Label-setting by a heap would share the solver's code; this is as exact. */
static void distances(struct copse_verify_checker *c, int source, struct search_space *w) {
  const struct copse_topology *t = c->topology;
  int size = t->n_nodes + 1;
  for (int v = 0; v < t->n_nodes; v++) w->distance[v] = INT64_MAX;
  w->distance[source] = 0;
  copse_queue_push_around(&w->queue, size, source);
  w->queued[source] = 1;
  while (!copse_queue_is_empty(&w->queue)) {
    int v = copse_queue_pop_around(&w->queue, size);
    w->queued[v] = 0;
    if (v != source && c->schedule->no_forward && t->nodes[v].rank >= 0) continue;
    for (int i = w->out.first[v]; i < w->out.first[v + 1]; i++) {
      int to = t->links[w->out.item[i]].dst;
      int64_t d = w->distance[v] + w->lengths[w->out.item[i]];
      if (d >= w->distance[to]) continue;
      w->distance[to] = d;
      if (w->queued[to]) continue;
      w->queued[to] = 1;
      copse_queue_push_around(&w->queue, size, to);
    }
  }
}

/* Adds demand * distance over all sinks of one source. */
static copse_status add_source(struct copse_verify_checker *c, int source, const int64_t *distance,
                               mpq_t need) {
  const struct copse_schedule *s = c->schedule;
  COPSE_MPZ(product);
  for (int j = 0; j < s->n_ranks; j++) {
    int64_t demand = demand_of(s, source, j), d = distance[c->topology->rank_nodes[j]];
    if (demand == 0) continue;
    if (d == INT64_MAX) return refute(c, "rank %d can't be reached from rank %d", j, source);
    mpz_set_si(product, demand);
    mpz_mul_si(product, product, d);
    mpz_add(mpq_numref(need), mpq_numref(need), product);
  }
  return COPSE_OK;
}

static copse_status make_space(struct copse_verify_checker *c, struct search_space *w) {
  const struct copse_topology *t = c->topology;
  size_t n = (size_t)t->n_nodes, m = (size_t)t->n_links;
  COPSE_DO(COPSE_ARRAY(&c->scratch.arena, m, w->lengths, c->err));
  COPSE_DO(COPSE_ARRAY(&c->scratch.arena, n, w->distance, c->err));
  COPSE_DO(COPSE_ARRAY(&c->scratch.arena, n + 1, w->queue.items, c->err));
  COPSE_DO(COPSE_ARRAY(&c->scratch.arena, n, w->queued, c->err));
  return copse_adjacency_by(&c->scratch.arena, t->n_nodes, t->n_links, COPSE_KEYS(t->links, src),
                            sizeof *t->links, &w->out, c->err);
}

/* Computes what a certificate proves: need / (M * room), what the demand takes in its units over
 * what the links have per second; `refusal` is for a certificate without room. */
static copse_status time_of(struct copse_verify_checker *c, const mpq_t need, const mpq_t room,
                            const char *refusal, mpq_t bound) {
  COPSE_MPQ(m);
  if (mpq_sgn(room) == 0) return refute(c, "%s", refusal);
  COPSE_DO(demand_unit(c, m));
  mpq_div(bound, need, m);
  mpq_div(bound, bound, room);
  return COPSE_OK;
}

/* Computes sum of demand * distance / (M * sum of bandwidth * length). */
static copse_status lengths_bound(struct copse_verify_checker *c, mpq_t bound) {
  const struct copse_topology *t = c->topology;
  struct search_space w = {0};
  COPSE_MPQ(need);
  COPSE_MPQ(room);
  COPSE_MPQ(q);
  COPSE_MPQ(length);
  COPSE_DO(make_space(c, &w));
  COPSE_DO(integer_lengths(c, w.lengths));
  for (int i = 0; i < c->schedule->n_ranks; i++) {
    distances(c, t->rank_nodes[i], &w);
    COPSE_DO(add_source(c, i, w.distance, need));
  }
  for (int e = 0; e < t->n_links; e++) {
    copse_mpq_set(q, t->links[e].bandwidth);
    mpq_set_si(length, w.lengths[e], 1);
    mpq_mul(q, q, length);
    mpq_add(room, room, q);
  }
  return time_of(c, need, room, "the bound's lengths are all zero", bound);
}

/* Finds the bound of a cut: all that must leave S over the bandwidth that leaves it. */
static copse_status cut_bound(struct copse_verify_checker *c, mpq_t bound) {
  const struct copse_schedule *s = c->schedule;
  const struct copse_topology *t = c->topology;
  COPSE_MPQ(need);
  COPSE_MPQ(room);
  char *inside;
  COPSE_DO(COPSE_ARRAY(&c->scratch.arena, (size_t)t->n_nodes, inside, c->err));
  for (int i = 0; i < s->bound.n_cut; i++) {
    int node = c->node_of[s->bound.cut[i]];
    if (node < 0)
      return refute(c, "the cut names '%s', which the topology lacks", s->nodes[s->bound.cut[i]]);
    inside[node] = 1;
  }
  for (int i = 0; i < s->n_ranks; i++)
    for (int j = 0; j < s->n_ranks; j++)
      if (inside[t->rank_nodes[i]] && !inside[t->rank_nodes[j]])
        mpz_add_ui(mpq_numref(need), mpq_numref(need), (unsigned long)demand_of(s, i, j));
  copse_verify_cut_bandwidth(t, inside, false, room);
  return time_of(c, need, room, "nothing leaves the bound's cut", bound);
}

copse_status copse_verify_flow_bound(struct copse_verify_checker *c, mpq_t bound) {
  const struct copse_bound *b = &c->schedule->bound;
  if (b->kind == COPSE_BOUND_LENGTHS && b->n_lengths > 0) return lengths_bound(c, bound);
  if (b->kind != COPSE_BOUND_LENGTHS && c->schedule->n_ranks > 1) return cut_bound(c, bound);
  mpq_set_ui(bound, 0, 1); /* nothing is claimed */
  return COPSE_OK;
}

/* ---- the bound for a size: flows over time --------------------------------------------------- */

/* Adds the equation of a struct copse_bound_at up again, in rationals. Why it bounds:
 * docs/theory.md, "Every size". */
struct at_checker {
  struct copse_verify_checker *all; /* of the schedule, with memory and rationals */
  const struct copse_schedule *schedule;
  const struct copse_topology *topology;
  const struct copse_bound_at *at;
  const int *node_of;
  const char *label;
  char *seen;             /* [n_nodes] has a time */
  char *sends, *receives; /* [n_ranks] */
  int *part;              /* [n_nodes] -1: none */
  mpq_t *time, *latency;  /* [n_nodes]; [n_links] with alpha */
  mpq_t *opens, *after;   /* [n_nodes] least latency from where data are, and to a rank; -1 */
  mpq_t us, sum, due, term, width; /* due: in parts of M */
  struct copse_err *err;
};

static int at_end(const struct at_checker *c, int e, bool src) {
  const struct copse_link *l = &c->topology->links[e];
  return src != c->at->reversed ? l->src : l->dst;
}

static copse_status at_node(struct at_checker *c, int listed, int *node) {
  *node = c->node_of[listed];
  if (*node < 0)
    return refute(c, "\"bound_at\" names '%s', which the topology lacks",
                  c->schedule->nodes[listed]);
  if (c->seen[*node]++)
    return refute(c, "\"bound_at\" names '%s' twice", c->schedule->nodes[listed]);
  return COPSE_OK;
}

static copse_status at_times(struct at_checker *c, const struct copse_schedule_times *times) {
  for (int v = 0; v < c->topology->n_nodes; v++) mpq_set(c->time[v], c->us);
  for (int i = 0; i < times->n; i++)
    for (int j = 0; j < times->parts[i].n_nodes; j++) {
      int node;
      COPSE_DO(at_node(c, times->parts[i].nodes[j], &node));
      copse_mpq_set(c->time[node], times->parts[i].us);
      if (mpq_sgn(c->time[node]) < 0 || mpq_cmp(c->time[node], c->us) > 0)
        return refute(c, "\"bound_at\": the time of '%s' is not between 0 and the bound",
                      c->topology->nodes[node].id);
    }
  return COPSE_OK;
}

/* Adds width * max(0, closes - opens - latency). */
static void at_add(struct at_checker *c, int e, const mpq_t opens, const mpq_t closes) {
  mpq_sub(c->term, closes, opens);
  mpq_sub(c->term, c->term, c->latency[e]);
  if (mpq_sgn(c->term) <= 0) return;
  mpq_mul(c->term, c->term, c->width);
  mpq_add(c->sum, c->sum, c->term);
}

/* Computes an alltoall's demand from the ranks that send to the ranks that receive, as a part of M.
 */
static copse_status at_demand(struct at_checker *c) {
  const struct copse_schedule *s = c->schedule;
  COPSE_MPQ(m);
  COPSE_DO(demand_unit(c->all, m));
  mpz_set_ui(mpq_numref(c->due), 0);
  mpz_set(mpq_denref(c->due), mpq_numref(m));
  for (int i = 0; i < s->n_ranks; i++)
    for (int j = 0; j < s->n_ranks; j++)
      if (c->sends[i] && c->receives[j])
        mpz_add_ui(mpq_numref(c->due), mpq_numref(c->due), (unsigned long)demand_of(s, i, j));
  mpq_canonicalize(c->due);
  return COPSE_OK;
}

/* Computes what must go from ranks of time 0 to those of the end. */
static copse_status at_due(struct at_checker *c) {
  const struct copse_schedule *s = c->schedule;
  unsigned long n = (unsigned long)s->n_ranks, n_send = 0, n_receive = 0;
  bool reversed = c->at->reversed, root_first = (s->collective == COPSE_REDUCE) == reversed;
  for (int r = 0; r < s->n_ranks; r++) {
    const mpq_t *time = &c->time[c->topology->rank_nodes[r]];
    bool first = mpq_sgn(*time) == 0, last = mpq_equal(*time, c->us) != 0;
    n_send += (unsigned long)(c->sends[r] = reversed ? last : first);
    n_receive += (unsigned long)(c->receives[r] = reversed ? first : last);
    if (r == c->at->rank && !last)
      return refute(c, "\"bound_at\" is not about rank %d, as it says", r);
  }
  if (n_send == 0 || n_receive == 0)
    return refute(c, "\"bound_at\": no rank has the time %s",
                  (reversed ? n_receive : n_send) == 0
                      ? "0 in \"times\""
                      : "\"us\", as those have that \"times\" leaves out");
  if ((s->collective == COPSE_BROADCAST && !c->sends[s->root]) ||
      (s->collective == COPSE_REDUCE && !c->receives[s->root]))
    return refute(c, "\"bound_at\": the root, rank %d, must have the time %s", s->root,
                  root_first ? "0 in \"times\"" : "\"us\", so \"times\" must leave it out");
  if (s->collective == COPSE_ALLTOALL) return at_demand(c);
  mpq_set_ui(c->due, 1, 1);
  if (s->collective == COPSE_ALLGATHER) mpq_set_ui(c->due, n_send, n);
  if (s->collective == COPSE_REDUCE_SCATTER) mpq_set_ui(c->due, n_receive, n);
  mpq_canonicalize(c->due);
  return COPSE_OK;
}

static copse_status at_cut(struct at_checker *c) {
  COPSE_DO(at_times(c, &c->at->times));
  for (int e = 0; e < c->topology->n_links; e++) {
    copse_mpq_set(c->width, c->topology->links[e].bandwidth);
    at_add(c, e, c->time[at_end(c, e, true)], c->time[at_end(c, e, false)]);
  }
  return at_due(c);
}

/* Finds the least latencies from the ranks, or from one, to each node; `back`: from each node to
 * them. */
static void at_distances(struct at_checker *c, int rank, bool back, mpq_t *least) {
  const struct copse_topology *t = c->topology;
  bool changed = true;
  for (int v = 0; v < t->n_nodes; v++)
    mpq_set_si(least[v], t->nodes[v].rank >= 0 && (rank < 0 || t->nodes[v].rank == rank) ? 0 : -1,
               1);
  while (changed) {
    changed = false;
    for (int e = 0; e < c->topology->n_links; e++) {
      int from = at_end(c, e, !back), to = at_end(c, e, back);
      if (mpq_sgn(least[from]) < 0) continue;
      mpq_add(c->term, least[from], c->latency[e]);
      if (mpq_sgn(least[to]) >= 0 && mpq_cmp(c->term, least[to]) >= 0) continue;
      mpq_set(least[to], c->term);
      changed = true;
    }
  }
}

/* Checks that every part has `part_ranks` ranks or more, and that every rank is in one part. */
static copse_status at_parts(struct at_checker *c) {
  const struct copse_topology *t = c->topology;
  for (int v = 0; v < t->n_nodes; v++) c->part[v] = c->at->n_parts > 0 ? -1 : t->nodes[v].rank;
  if (c->at->n_parts == 0 && c->at->part_ranks > 1)
    return refute(c, "\"bound_at\" has \"part_ranks\" and no \"parts\"");
  for (int i = 0; i < c->at->n_parts; i++) {
    int n_ranks = 0;
    for (int j = 0; j < c->at->parts[i].n_nodes; j++) {
      int node;
      COPSE_DO(at_node(c, c->at->parts[i].nodes[j], &node));
      c->part[node] = i;
      n_ranks += t->nodes[node].rank >= 0;
    }
    if (n_ranks < c->at->part_ranks)
      return refute(c, "\"bound_at\": part %d has %d rank%s", i, n_ranks, COPSE_S(n_ranks));
  }
  for (int r = 0; r < t->n_ranks && c->at->kind != COPSE_BOUND_AT_NESTED; r++)
    if (c->part[t->rank_nodes[r]] < 0) return refute(c, "\"bound_at\": rank %d is in no part", r);
  return COPSE_OK;
}

/* Checks that messages into parts may be counted: no link carries one for several. */
static copse_status at_may_count(struct at_checker *c) {
  copse_collective collective = c->schedule->collective;
  bool nested = c->at->kind == COPSE_BOUND_AT_NESTED, all = collective == COPSE_ALLREDUCE;
  bool reduce = collective == COPSE_REDUCE || (nested && collective == COPSE_REDUCE_SCATTER);
  const char *kind = nested ? "nested" : c->at->kind == COPSE_BOUND_AT_ROUNDS ? "rounds" : "volume";
  if (!reduce && !all && collective != COPSE_BROADCAST &&
      !(nested && collective == COPSE_ALLGATHER))
    return refute(c, "\"bound_at\" of kind \"%s\" is not for %s", kind,
                  copse_collective_name(collective));
  if (reduce != c->at->reversed)
    return refute(c, "\"bound_at\" of kind \"%s\": \"reversed\" must be %s for %s", kind,
                  reduce ? "true" : "false", copse_collective_name(collective));
  for (int v = 0; v < c->topology->n_nodes; v++)
    if ((c->topology->nodes[v].multicast && !reduce) ||
        (c->topology->nodes[v].aggregation && (reduce || all)))
      return refute(c, "\"bound_at\": '%s' makes one message of several", c->topology->nodes[v].id);
  return COPSE_OK;
}

/* Lowers `least` to a + b where that is less; a or b < 0: there is no way. */
static void at_lower(struct at_checker *c, mpq_t least, const mpq_t a, const mpq_t b) {
  if (mpq_sgn(a) < 0 || mpq_sgn(b) < 0) return;
  mpq_add(c->width, a, b);
  if (mpq_cmp(c->width, least) < 0) mpq_set(least, c->width);
}

/* Finds the least that a message takes from a rank to a rank, and (at least) from part to part;
 * where that is all of the time, no more. c->opens is of any rank. */
static void at_messages(struct at_checker *c, mpq_t any, mpq_t cross) {
  COPSE_MPQ(leaving);
  COPSE_MPQ(entering);
  COPSE_MPQ(here);
  mpq_set(any, c->us);
  mpq_set(cross, c->us);
  mpq_set(leaving, c->us);
  mpq_set(entering, c->us);
  for (int e = 0; e < c->topology->n_links; e++) {
    int src = at_end(c, e, true), dst = at_end(c, e, false), from = c->part[src], to = c->part[dst];
    if (from < 0 && to >= 0) at_lower(c, entering, c->latency[e], c->after[dst]);
    if (mpq_sgn(c->opens[src]) < 0) continue;
    mpq_add(here, c->opens[src], c->latency[e]);
    at_lower(c, any, here, c->after[dst]);
    if (from >= 0 && to < 0 && mpq_cmp(here, leaving) < 0) mpq_set(leaving, here);
    if (from >= 0 && to >= 0 && from != to) at_lower(c, cross, here, c->after[dst]);
  }
  at_lower(c, cross, leaving, entering);
  if (mpq_cmp(cross, any) < 0)
    mpq_set(cross, any); /* it is of a rank that leaves, another enters */
}

/* Computes what can come into parts, `copies` times, if what is in a part leaves `later`. */
static copse_status at_cross(struct at_checker *c, const struct copse_schedule_times *times,
                             long copies, const mpq_t later) {
  const struct copse_topology *t = c->topology;
  int root = c->schedule->root < 0 ? -1 : c->part[t->rank_nodes[c->schedule->root]];
  COPSE_MPQ(opens);
  COPSE_MPQ(closes);
  for (int v = 0; v < t->n_nodes; v++) c->seen[v] = c->part[v] >= 0; /* has no time of its own */
  COPSE_DO(at_times(c, times));
  for (int e = 0; e < t->n_links; e++) {
    int src = at_end(c, e, true), dst = at_end(c, e, false), from = c->part[src], to = c->part[dst];
    if (from >= 0 && (from == to || mpq_sgn(c->opens[src]) < 0)) continue;
    if (to >= 0 && (to == root || mpq_sgn(c->after[dst]) < 0)) continue;
    mpq_set(opens, c->time[src]);
    mpq_set(closes, c->time[dst]);
    if (from >= 0) mpq_add(opens, c->opens[src], later);
    if (to >= 0) mpq_sub(closes, c->us, c->after[dst]);
    mpq_set_si(c->width, copies, 1);
    copse_mpq_set(c->term, t->links[e].bandwidth);
    mpq_mul(c->width, c->width, c->term);
    at_add(c, e, opens, closes);
  }
  return COPSE_OK;
}

/* Adds up all copies; see struct copse_bound_at. */
static copse_status at_copies(struct at_checker *c, int n, const mpq_t any, const mpq_t cross) {
  bool both = c->schedule->collective == COPSE_ALLREDUCE,
       rounds = c->at->kind == COPSE_BOUND_AT_ROUNDS;
  long s = c->at->part_ranks, sent_on = rounds ? (n - 1) * s : 0;
  const long copies[] = {1, both ? 2 * (s - 1) : s - 1, both ? (s - 1) * (s - 1) : 0, sent_on,
                         sent_on * (s - 1)};
  const struct copse_schedule_times *times = &c->at->times;
  int next = 0;
  COPSE_MPQ(later);
  for (int i = 0; i < 5; i++) {
    if (copies[i] == 0) continue;
    if (!times) return refute(c, "\"bound_at\": \"later\" lacks times");
    mpq_set_si(later, i % 3, 1);
    mpq_mul(later, later, any);
    if (i >= 3) mpq_add(later, later, cross);
    COPSE_DO(at_cross(c, times, copies[i], later));
    times = next < c->at->n_later ? &c->at->later[next] : NULL;
    next++;
  }
  mpq_set_si(c->due, (long)(rounds ? n : both ? 2 : 1) * (n - 1) * s * (both ? s : 1), 1);
  return times ? refute(c, "\"bound_at\": \"later\" has more times than count") : COPSE_OK;
}

/* Counts as a volume, in files of older versions, an allreduce in which nothing that came can be
 * sent on: in less time than two messages one after the other take, each part sends a message to
 * every other. */
static void at_direct(struct at_checker *c, int n, const mpq_t cross) {
  COPSE_MPQ(twice);
  mpq_add(twice, cross, cross);
  if (mpq_cmp(c->us, twice) <= 0 && n > 2 && c->at->n_later == 0)
    mpq_set_si(c->due, (long)n * (n - 1), 1);
}

static copse_status at_volume(struct at_checker *c) {
  const struct copse_schedule *s = c->schedule;
  int n = c->at->n_parts > 0 ? c->at->n_parts : c->topology->n_ranks;
  bool all = s->collective == COPSE_ALLREDUCE;
  COPSE_MPQ(any);
  COPSE_MPQ(cross);
  COPSE_DO(at_may_count(c));
  if (c->at->kind == COPSE_BOUND_AT_ROUNDS && !all)
    return refute(c, "\"bound_at\": rounds bound an allreduce alone");
  COPSE_DO(at_parts(c));
  at_distances(c, -1, false, c->opens);
  at_distances(c, -1, true, c->after);
  at_messages(c, any, cross);
  if (s->root >= 0) at_distances(c, s->root, false, c->opens);
  COPSE_DO(at_copies(c, n, any, cross));
  if (all && c->at->kind == COPSE_BOUND_AT_VOLUME) at_direct(c, n, cross);
  return COPSE_OK;
}

/* ---- parts in parts -------------------------------------------------------------------------- */

/* What is in a part, and what counts of it otherwise; why: docs/theory.md, "Parts in parts". */
struct nested {
  char *inside; /* [n_nodes] */
  int *from;    /* [n_nodes] */
  mpq_t any, cross, later, all, entries, wide;
};

static void nested_release(struct nested *n) {
  mpq_clears(n->any, n->cross, n->later, n->all, n->entries, n->wide, NULL);
}

/* Adds up links into ranks inside (`back`: out of ranks outside) that come from other parts over
 * relays, which n->from tells apart: -1 none, n_nodes several. */
static void nested_entries(struct at_checker *c, struct nested *n, bool back) {
  const struct copse_topology *t = c->topology;
  bool changed = true;
  for (int v = 0; v < t->n_nodes; v++)
    n->from[v] = t->nodes[v].rank < 0 ? -1 : c->part[v] < 0 ? t->n_nodes : c->part[v];
  while (changed) {
    changed = false;
    for (int e = 0; e < t->n_links; e++) {
      int near = n->from[at_end(c, e, !back)], far = at_end(c, e, back), *of = &n->from[far];
      if (t->nodes[far].rank >= 0 || near < 0 || *of == near || *of == t->n_nodes) continue;
      *of = *of < 0 ? near : t->n_nodes;
      changed = true;
    }
  }
  mpq_set_ui(n->entries, 0, 1);
  for (int e = 0; e < t->n_links; e++) {
    int near = n->from[at_end(c, e, !back)], far = at_end(c, e, back);
    if (t->nodes[far].rank < 0 || n->inside[far] == back || near < 0 || near == c->part[far])
      continue;
    copse_mpq_set(c->term, t->links[e].bandwidth);
    mpq_add(n->entries, n->entries, c->term);
  }
}

/* Adds what can come otherwise: (cross wide + any entries / part_ranks) / parts. */
static void nested_otherwise(struct at_checker *c, struct nested *n, bool back, long parts) {
  if (c->at->part_ranks > 1) nested_entries(c, n, back);
  mpq_mul(c->term, n->any, n->entries);
  mpq_set_si(c->width, c->at->part_ranks, 1);
  mpq_div(c->term, c->term, c->width);
  mpq_mul(c->width, n->cross, n->wide);
  mpq_add(c->term, c->term, c->width);
  mpq_set_si(c->width, parts, 1);
  mpq_div(c->term, c->term, c->width);
  mpq_add(n->all, n->all, c->term);
}

/* Marks what is inside: all nodes without a time. Counts parts outside and inside, whole ones. */
static copse_status nested_mark(struct at_checker *c, struct nested *n, long count[2]) {
  const struct copse_topology *t = c->topology;
  const struct copse_schedule_times *times = &c->at->times;
  int *first;
  COPSE_DO(COPSE_ARRAY(&c->all->scratch.arena, (size_t)t->n_nodes, n->inside, c->err));
  COPSE_DO(COPSE_ARRAY(&c->all->scratch.arena, (size_t)t->n_nodes, n->from, c->err));
  COPSE_DO(COPSE_ARRAY(&c->all->scratch.arena, (size_t)t->n_nodes, first, c->err));
  for (int v = 0; v < t->n_nodes; v++) n->inside[v] = 1, c->seen[v] = 0, first[v] = -1;
  for (int i = 0; i < times->n; i++)
    for (int j = 0; j < times->parts[i].n_nodes; j++) {
      int node = c->node_of[times->parts[i].nodes[j]];
      if (node >= 0) n->inside[node] = 0; /* at_times refuses others */
    }
  for (int v = 0; v < t->n_nodes; v++) {
    int part = c->part[v];
    if (part < 0) continue;
    if (first[part] < 0) count[(int)n->inside[v]]++;
    if (first[part] >= 0 && n->inside[v] != n->inside[first[part]])
      return refute(c, "\"bound_at\": '%s' and '%s' are of one part, and \"times\" has one of them",
                    t->nodes[first[part]].id, t->nodes[v].id);
    first[part] = v;
    if (!n->inside[v] && c->schedule->collective != COPSE_ALLREDUCE) c->part[v] = -1;
  }
  return COPSE_OK;
}

/* Checks that every rank that counts is in a part, and each of those has `part_ranks`. */
static copse_status nested_parts(struct at_checker *c, const struct nested *n) {
  const struct copse_topology *t = c->topology;
  bool all = c->schedule->collective == COPSE_ALLREDUCE;
  int n_ranks = 0, root = c->schedule->root;
  for (int r = 0; r < t->n_ranks; r++) {
    int v = t->rank_nodes[r];
    n_ranks += n->inside[v] != 0;
    if (c->part[v] < 0 && (all || n->inside[v]))
      return refute(c, "\"bound_at\": rank %d is in no part", r);
    if (!n->inside[v] && (all || root < 0 || r == root) && mpq_sgn(c->time[v]) != 0)
      return refute(c, "\"bound_at\" of kind \"nested\": rank %d, outside, must have the time 0",
                    r);
  }
  if (root >= 0 && n->inside[t->rank_nodes[root]])
    return refute(c, "\"bound_at\": the root, rank %d, must have a time", root);
  for (int v = 0; v < t->n_nodes && all; v++)
    if (!n->inside[v] && mpq_sgn(c->opens[v]) >= 0 && mpq_cmp(c->time[v], c->opens[v]) > 0)
      return refute(c, "\"bound_at\": '%s' may send before its time", t->nodes[v].id);
  mpq_set_si(c->due, root < 0 && !all ? t->n_ranks - n_ranks : t->n_ranks, (unsigned)t->n_ranks);
  mpq_canonicalize(c->due);
  return COPSE_OK;
}

/* Adds up what can come in the time without what parts take, and what is due beside what can come
 * otherwise. */
static copse_status nested_sum(struct at_checker *c, struct nested *n, const long count[2]) {
  const struct copse_topology *t = c->topology;
  bool all = c->schedule->collective == COPSE_ALLREDUCE;
  mpq_sub(c->us, c->us, n->later);
  if (mpq_sgn(c->us) < 0) mpq_set_ui(c->us, 0, 1);
  COPSE_DO(at_times(c, &c->at->times));
  COPSE_DO(nested_parts(c, n));
  for (int v = 0; v < t->n_nodes; v++)
    if (n->inside[v] && mpq_sgn(c->after[v]) >= 0) mpq_sub(c->time[v], c->us, c->after[v]);
  for (int e = 0; e < t->n_links; e++) {
    int src = at_end(c, e, true), dst = at_end(c, e, false);
    if (n->inside[src]) continue; /* what counts has not been there */
    copse_mpq_set(c->width, t->links[e].bandwidth);
    if (n->inside[dst]) mpq_add(n->wide, n->wide, c->width);
    at_add(c, e, c->time[src], c->time[dst]);
  }
  nested_otherwise(c, n, false, count[1]);
  if (all) nested_otherwise(c, n, true, count[0]);
  mpq_set_si(c->term, 1000, 1); /* to parts of M */
  mpq_set_si(c->width, c->at->bytes, 1);
  mpq_div(c->term, c->term, c->width);
  mpq_mul(n->all, n->all, c->term);
  mpq_sub(c->due, c->due, n->all);
  return COPSE_OK;
}

static copse_status at_nested(struct at_checker *c) {
  COPSE_AT_END(nested_release) struct nested n = {0};
  long count[2] = {0};
  bool all = c->schedule->collective == COPSE_ALLREDUCE;
  mpq_inits(n.any, n.cross, n.later, n.all, n.entries, n.wide, NULL);
  COPSE_DO(at_may_count(c));
  COPSE_DO(at_parts(c));
  COPSE_DO(nested_mark(c, &n, count));
  if (count[1] == 0 || (all && count[0] == 0))
    return refute(c, "\"bound_at\" of kind \"nested\" has no parts %s",
                  count[1] ? "outside" : "inside");
  at_distances(c, -1, false, c->opens);
  at_distances(c, -1, true, c->after);
  at_messages(c, n.any, n.cross);
  if (c->at->part_ranks == 1) mpq_set_ui(n.any, 0, 1);
  mpq_add(n.later, n.any, n.cross);
  if (all) mpq_add(n.later, n.later, n.later);
  return nested_sum(c, &n, count);
}

/* Takes the lengths of the schedule's own bound, which has been checked. */
static copse_status at_lengths(struct at_checker *c) {
  const struct copse_bound *b = &c->schedule->bound;
  if (b->kind != COPSE_BOUND_LENGTHS)
    return refute(c, "\"bound_at\" is by lengths, and the bound has none");
  at_distances(c, -1, false, c->opens);
  at_distances(c, -1, true, c->after);
  mpq_set_ui(c->due, 0, 1);
  for (int i = 0; i < b->n_lengths; i++) {
    const struct copse_schedule_length *l = &b->lengths[i];
    int src = c->node_of[l->src], dst = c->node_of[l->dst];
    int e = copse_topology_find_link(c->topology, src, dst);
    if (e < 0 || mpq_sgn(c->opens[src]) < 0 || mpq_sgn(c->after[dst]) < 0)
      return refute(c, "\"bound_at\": a length is of no link that is of use");
    copse_mpq_set(c->width, l->length);
    copse_mpq_set(c->term, c->topology->links[e].bandwidth);
    mpq_mul(c->width, c->width, c->term);
    mpq_add(c->due, c->due, c->width);
    mpq_sub(c->time[dst], c->us, c->after[dst]);
    at_add(c, e, c->opens[src], c->time[dst]);
  }
  copse_mpq_set(c->term, b->time_per_GB);
  mpq_mul(c->due, c->due, c->term);
  return COPSE_OK;
}

static copse_status at_prepare(struct at_checker *c) {
  const struct copse_topology *t = c->topology;
  struct copse_verify_scratch *scratch = &c->all->scratch;
  COPSE_DO(COPSE_ARRAY(&scratch->arena, (size_t)t->n_nodes, c->seen, c->err));
  COPSE_DO(COPSE_ARRAY(&scratch->arena, 2 * (size_t)t->n_ranks, c->sends, c->err));
  c->receives = c->sends + t->n_ranks;
  COPSE_DO(COPSE_ARRAY(&scratch->arena, (size_t)t->n_nodes, c->part, c->err));
  COPSE_DO(copse_verify_rationals(scratch, t->n_nodes, &c->time, c->err));
  COPSE_DO(copse_verify_rationals(scratch, t->n_links, &c->latency, c->err));
  COPSE_DO(copse_verify_rationals(scratch, t->n_nodes, &c->opens, c->err));
  COPSE_DO(copse_verify_rationals(scratch, t->n_nodes, &c->after, c->err));
  for (int e = 0; e < t->n_links; e++) {
    copse_mpq_set(c->latency[e], t->links[e].latency);
    copse_mpq_set(c->term, c->at->alpha_us);
    if (t->nodes[t->links[e].dst].rank >= 0) mpq_add(c->latency[e], c->latency[e], c->term);
  }
  return COPSE_OK;
}

static void at_release(struct at_checker *c) {
  mpq_clears(c->us, c->sum, c->due, c->term, c->width, NULL);
}

copse_status copse_verify_bound_at(struct copse_verify_checker *all) {
  COPSE_AT_END(at_release)
  struct at_checker c = {.all = all,
                         .schedule = all->schedule,
                         .topology = all->topology,
                         .at = all->schedule->bound_at,
                         .node_of = all->node_of,
                         .label = all->label,
                         .err = all->err};
  mpq_inits(c.us, c.sum, c.due, c.term, c.width, NULL);
  copse_mpq_set(c.us, c.at->us);
  COPSE_DO(at_prepare(&c));
  if (c.at->kind == COPSE_BOUND_AT_CUT)
    COPSE_DO(at_cut(&c));
  else
    COPSE_DO(c.at->kind == COPSE_BOUND_AT_LENGTHS  ? at_lengths(&c)
             : c.at->kind == COPSE_BOUND_AT_NESTED ? at_nested(&c)
                                                   : at_volume(&c));
  mpq_set_si(c.term, c.at->bytes, 1000); /* GB/s are 1000 bytes per us */
  mpq_canonicalize(c.term);
  mpq_mul(c.due, c.due, c.term);
  /* Less is proof enough: other ranks may be due at the end too, and files of before count some
   * links for longer. */
  if (mpq_sgn(c.due) > 0 && mpq_cmp(c.sum, c.due) <= 0) return COPSE_OK;
  return refute(&c,
                mpq_sgn(c.due) > 0
                    ? "\"bound_at\" does not prove its \"us\": within it the links can carry more "
                      "than must cross them, so less time may do"
                    : "\"bound_at\" proves nothing: nothing must go between its ranks of time 0 "
                      "and those of time \"us\"");
}
