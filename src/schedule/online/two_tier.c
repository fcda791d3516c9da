/*
 * Two-tier fabrics: whether a topology is one, and of which figures.
 *
 *      fabric      one switch (flat), or one for each index in the host (rails)
 *      /    \
 *    up      up    each rank's own way to it, all equally wide: the NIC
 *    |       |
 *   rank -- hub -- rank     one switch inside the host joins its ranks
 *
 * Everything is looked up in the graph; names only tell hosts. docs/theory.md,
 * "src/solver/online/".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/graph.h"
#include "base/memory.h"
#include "base/rational.h"
#include "predict/predict.h"
#include "schedule/online/internal.h"
#include "solver/policy.h"

int64_t copse_online_hop_ns(void) { return (int64_t)(1e3 * copse_predict_defaults.sim.alpha_us); }

copse_status copse_online_link_units(const struct copse_topology *t, struct copse_arena *arena,
                                     int64_t **units, int64_t *scale, struct copse_err *err) {
  *scale = 1;
  COPSE_DO(copse_arena_array(arena, (size_t)t->n_links, sizeof **units, units, err));
  for (int e = 0; e < t->n_links; e++)
    COPSE_DO(copse_lcm(*scale, t->links[e].bandwidth.den, scale, err));
  for (int e = 0; e < t->n_links; e++) {
    struct copse_q bandwidth = t->links[e].bandwidth;
    if (copse_mul_overflows(bandwidth.num, *scale / bandwidth.den, &(*units)[e]) ||
        (*units)[e] > ((int64_t)1 << 62) / t->n_links)
      return copse_fail(err, COPSE_OVERFLOW, "the bandwidths have no common unit of 64 bits");
  }
  return COPSE_OK;
}

/* What is known while looking. */
struct search {
  const struct copse_topology *t;
  struct copse_two_tier *tier;
  int64_t *units;             /* [links] */
  int *host;                  /* [nodes]; -1: outside of all hosts */
  struct copse_adjacency out; /* links that leave each node */
  bool *claimed;              /* [links] on some rank's way out */
  bool *outside, *several;    /* [nodes] of a cut; with several neighbours */
  int *parent;                /* [nodes] */
  struct copse_queue queue;   /* [nodes] */
  int n_up;
  struct copse_arena scratch;
};

static bool no(struct search *s, const char *why, const char *node) {
  snprintf(s->tier->why_not, sizeof s->tier->why_not, "%s%s%.80s", why, node ? " " : "",
           node ? node : "");
  return false;
}

static const char *id_of(const struct search *s, int node) { return s->t->nodes[node].id; }
static int rank_node(const struct search *s, int rank) { return s->t->rank_nodes[rank]; }

/* Returns the bandwidth from a to b, 0 where there is no link. */
static int64_t between(const struct search *s, int a, int b) {
  int e = copse_topology_find_link(s->t, a, b);
  return e < 0 ? 0 : s->units[e];
}

/* ---- hosts -------------------------------------------------------------------------------- */

static bool find_hosts(struct search *s) {
  const struct copse_topology *t = s->t;
  struct copse_online_model *m = &s->tier->model;
  int named = 0, top = 0;
  for (int r = 0; r < t->n_ranks; r++) {
    int host = copse_online_host_of(id_of(s, rank_node(s, r)));
    named += host >= 0;
    if (host > top) top = host;
  }
  if (named > 0 && named < t->n_ranks) return no(s, "some ranks belong to a host, others don't", 0);
  if (t->n_ranks == 0) return no(s, "there are no ranks", 0);
  m->hosts = named ? top + 1 : 1;
  if (m->hosts > COPSE_ONLINE_MAX_HOSTS || t->n_ranks % m->hosts != 0 ||
      t->n_ranks / m->hosts > COPSE_ONLINE_MAX_LOCAL)
    return no(s, "the hosts don't have equally many ranks, or there are too many", 0);
  m->ranks_per_host = t->n_ranks / m->hosts;
  for (int v = 0; v < t->n_nodes; v++) s->host[v] = named ? copse_online_host_of(id_of(s, v)) : 0;
  for (int r = 0; r < t->n_ranks; r++)
    if (s->host[rank_node(s, r)] != r / m->ranks_per_host)
      return no(s, "ranks are not numbered host by host:", id_of(s, rank_node(s, r)));
  return true;
}

/* Checks that ranks are only joined through relays. */
static bool check_no_mesh(struct search *s) {
  for (int e = 0; e < s->t->n_links; e++)
    if (s->t->nodes[s->t->links[e].src].rank >= 0 && s->t->nodes[s->t->links[e].dst].rank >= 0)
      return no(s, "ranks are joined directly:", id_of(s, s->t->links[e].src));
  return true;
}

/* Finds the relay of the host that joins all its ranks; of several the one with the most
 * bandwidth. */
static bool find_hub(struct search *s, int h) {
  const struct copse_online_model *m = &s->tier->model;
  int g = m->ranks_per_host;
  int64_t best = 0;
  s->tier->hub[h] = -1;
  if (g == 1) return true;
  for (int v = 0; v < s->t->n_nodes; v++) {
    if (s->host[v] != h || s->t->nodes[v].rank >= 0) continue;
    int64_t sum = 0;
    for (int i = 0; i < g && sum >= 0; i++) {
      int r = rank_node(s, h * g + i);
      int64_t out = between(s, r, v), in = between(s, v, r);
      sum = out && in ? sum + out : -1;
    }
    if (sum > best) {
      best = sum;
      s->tier->hub[h] = v;
    }
  }
  return s->tier->hub[h] >= 0 ||
         no(s, "no switch joins the ranks of host of", id_of(s, rank_node(s, h * g)));
}

static bool find_hubs(struct search *s) {
  struct copse_online_model *m = &s->tier->model;
  int g = m->ranks_per_host;
  m->intra_out = m->intra_in = 1;
  for (int h = 0; h < m->hosts; h++) {
    if (!find_hub(s, h)) return false;
    for (int i = 0; i < g && g > 1; i++) {
      int r = rank_node(s, h * g + i), hub = s->tier->hub[h];
      if (h == 0 && i == 0) {
        m->intra_out = between(s, r, hub);
        m->intra_in = between(s, hub, r);
      }
      if (between(s, r, hub) != m->intra_out || between(s, hub, r) != m->intra_in)
        return no(s, "another bandwidth inside the host than elsewhere:", id_of(s, r));
    }
  }
  return true;
}

/* ---- the ways out ---------------------------------------------------------------------------- */

static void keep_way(struct search *s, int rank, int end) {
  int n = 0;
  for (int v = end; v >= 0; v = s->parent[v]) n++;
  s->tier->up_start[rank + 1] = s->n_up + n;
  for (int v = end, k = n - 1; v >= 0; v = s->parent[v], k--) s->tier->up[s->n_up + k] = v;
  for (int k = s->n_up; k + 1 < s->n_up + n; k++) {
    int a = s->tier->up[k], b = s->tier->up[k + 1];
    s->claimed[copse_topology_find_link(s->t, a, b)] = true;
    s->claimed[copse_topology_find_link(s->t, b, a)] = true;
  }
  s->n_up += n;
}

/* Finds the shortest way over links that no other rank uses, both ways equally wide, through
 * relays of the host but its switch. */
static bool find_way(struct search *s, int rank) {
  int start = rank_node(s, rank), h = s->host[start];
  for (int v = 0; v < s->t->n_nodes; v++) s->parent[v] = -2;
  s->parent[start] = -1;
  copse_queue_reset(&s->queue);
  copse_queue_push(&s->queue, start);
  while (!copse_queue_is_empty(&s->queue)) {
    int v = copse_queue_pop(&s->queue);
    for (int i = s->out.first[v]; i < s->out.first[v + 1]; i++) {
      int e = s->out.item[i], w = s->t->links[e].dst;
      if (s->parent[w] != -2 || s->claimed[e] || between(s, w, v) != s->units[e] ||
          s->t->nodes[w].rank >= 0 || w == s->tier->hub[h] || (s->host[w] != h && s->host[w] != -1))
        continue;
      s->parent[w] = v;
      if (s->host[w] == -1) {
        keep_way(s, rank, w);
        return true;
      }
      copse_queue_push(&s->queue, w);
    }
  }
  return no(s, "no way of its own to the fabric for", id_of(s, start));
}

static int64_t width(const struct search *s, int rank) {
  int64_t least = INT64_MAX;
  for (int k = s->tier->up_start[rank]; k + 1 < s->tier->up_start[rank + 1]; k++) {
    int64_t here = between(s, s->tier->up[k], s->tier->up[k + 1]);
    if (here < least) least = here;
  }
  return least;
}

static int fabric_switch(const struct search *s, int rank) {
  return s->tier->up[s->tier->up_start[rank + 1] - 1];
}

static bool find_ways(struct search *s) {
  struct copse_online_model *m = &s->tier->model;
  int g = m->ranks_per_host;
  m->nic = 1;
  if (m->hosts == 1) return true;
  s->tier->flat = true;
  for (int r = 0; r < s->t->n_ranks; r++) {
    if (!find_way(s, r)) return false;
    if (r == 0) m->nic = width(s, r);
    if (width(s, r) != m->nic)
      return no(s, "another bandwidth to the fabric than elsewhere:", id_of(s, rank_node(s, r)));
    if (fabric_switch(s, r) != fabric_switch(s, r % g))
      return no(s, "not on the switch of its index in host 0:", id_of(s, rank_node(s, r)));
    if (fabric_switch(s, r) != fabric_switch(s, 0)) s->tier->flat = false;
  }
  return true;
}

/* ---- latencies ---------------------------------------------------------------------------- */

static double latency(const struct search *s, int a, int b) {
  return 1e3 * copse_q_to_double(s->t->links[copse_topology_find_link(s->t, a, b)].latency);
}

/* Whether a link is a rank's to or from its host's switch. */
static bool is_inside(const struct search *s, int rank, int other) {
  return other == s->tier->hub[rank / s->tier->model.ranks_per_host];
}

/* Whether the relays of all ways out are joined to nothing else, and ranks to nothing but their
 * host's switch and their own way. */
static bool ways_are_separate(struct search *s) {
  bool *on_way = s->outside;
  memset(on_way, 0, (size_t)s->t->n_nodes * sizeof *on_way);
  for (int r = 0; r < s->t->n_ranks; r++)
    for (int k = s->tier->up_start[r] + 1; k + 1 < s->tier->up_start[r + 1]; k++)
      on_way[s->tier->up[k]] = true;
  for (int e = 0; e < s->t->n_links; e++) {
    int a = s->t->links[e].src, b = s->t->links[e].dst;
    int from = s->t->nodes[a].rank, to = s->t->nodes[b].rank;
    if (s->claimed[e]) continue;
    if (on_way[a] || on_way[b]) return false;
    if ((from >= 0 && !is_inside(s, from, b)) || (to >= 0 && !is_inside(s, to, a))) return false;
  }
  return true;
}

/* Finds the latencies in nanoseconds, rounded down; the least of all hosts, since the bound is of
 * them too. */
static void find_latencies(struct search *s) {
  struct copse_online_model *m = &s->tier->model;
  double hub = 1e9, up = 1e9, down = 1e9;
  for (int r = 0; r < s->t->n_ranks; r++) {
    int v = rank_node(s, r), relay = s->tier->hub[r / m->ranks_per_host];
    double there = 0, back = 0,
           inside = relay < 0 ? 0 : latency(s, v, relay) + latency(s, relay, v);
    for (int k = s->tier->up_start[r]; k + 1 < s->tier->up_start[r + 1]; k++) {
      there += latency(s, s->tier->up[k], s->tier->up[k + 1]);
      back += latency(s, s->tier->up[k + 1], s->tier->up[k]);
    }
    hub = inside < hub ? inside : hub;
    up = there < up ? there : up;
    down = back < down ? back : down;
  }
  m->hop_ns = copse_online_hop_ns();
  m->message_ns = (int64_t)(1e3 * copse_predict_defaults.sim.message_us / COPSE_ONLINE_WORKERS);
  m->hub_ns = (int64_t)hub;
  m->fabric_ns = m->hosts > 1 ? (int64_t)(up + down) : 0;
  m->flat = s->tier->flat;
  m->separate = m->hosts > 1 && ways_are_separate(s);
}

/* ---- cuts --------------------------------------------------------------------------------- */

/* Puts the relays of a rank's way that come after its narrowest link outside of the cut. */
static void leave_out(struct search *s, int rank) {
  int end = s->tier->up_start[rank + 1];
  for (int k = end - 2; k >= s->tier->up_start[rank]; k--) {
    if (between(s, s->tier->up[k], s->tier->up[k + 1]) == s->tier->model.nic) return;
    s->outside[s->tier->up[k]] = true;
  }
}

/* Returns what leaves (or enters) a host at most, by two cuts: around all of it, and through the
 * narrowest links of its ranks' ways, where a NIC is narrower inside than outside. */
static int64_t host_cut(struct search *s, int h, bool entering) {
  int g = s->tier->model.ranks_per_host;
  int64_t all = 0, inner = 0;
  bool *outside = s->outside;
  for (int v = 0; v < s->t->n_nodes; v++) outside[v] = s->host[v] != h;
  for (int i = 0; i < g; i++) leave_out(s, h * g + i);
  for (int e = 0; e < s->t->n_links; e++) {
    int a = s->t->links[e].src, b = s->t->links[e].dst;
    if (entering) {
      int swap = a;
      a = b;
      b = swap;
    }
    if (s->host[a] == h && s->host[b] != h) all += s->units[e];
    if (!outside[a] && outside[b]) inner += s->units[e];
  }
  return all < inner ? all : inner;
}

/* Leaves out dead ends: relays that are joined to one node alone, and then relays that are so
 * without these. */
static void leave_out_dead_ends(struct search *s) {
  bool *dead = s->outside, *several = s->several;
  memset(dead, 0, (size_t)s->t->n_nodes * sizeof *dead);
  for (bool more = true; more;) {
    more = false;
    for (int v = 0; v < s->t->n_nodes; v++) {
      s->parent[v] = -1;
      several[v] = s->t->nodes[v].rank >= 0;
    }
    for (int e = 0; e < s->t->n_links; e++) {
      int ends[2] = {s->t->links[e].src, s->t->links[e].dst};
      for (int i = 0; i < 2 && !dead[ends[0]] && !dead[ends[1]]; i++) {
        int *only = &s->parent[ends[i]];
        if (*only >= 0 && *only != ends[1 - i]) several[ends[i]] = true;
        *only = ends[1 - i];
      }
    }
    for (int v = 0; v < s->t->n_nodes; v++) {
      if (several[v] || dead[v]) continue;
      dead[v] = more = true;
    }
  }
}

/* Finds cuts around each rank and host; a host with more than its NICs is another shape: the plan
 * would leave some of it idle. */
static bool find_cuts(struct search *s) {
  struct copse_online_model *m = &s->tier->model;
  const struct copse_topology *t = s->t;
  leave_out_dead_ends(s);
  for (int r = 0; r < t->n_ranks; r++) {
    int64_t out = 0, in = 0;
    for (int e = 0; e < t->n_links; e++) {
      if (s->outside[t->links[e].src] || s->outside[t->links[e].dst]) continue;
      if (t->links[e].src == rank_node(s, r)) out += s->units[e];
      if (t->links[e].dst == rank_node(s, r)) in += s->units[e];
    }
    if (out > m->rank_out) m->rank_out = out;
    if (in > m->rank_in) m->rank_in = in;
  }
  m->host_out = m->host_in = (int64_t)m->ranks_per_host * m->nic;
  for (int h = 0; h < m->hosts && m->hosts > 1; h++)
    if (host_cut(s, h, false) != m->host_out || host_cut(s, h, true) != m->host_in)
      return no(s, "more or other bandwidth out of the host than one NIC per rank: host of",
                id_of(s, rank_node(s, h * m->ranks_per_host)));
  return true;
}

/* ---- the whole ---- */

static copse_status allocate(struct search *s, struct copse_arena *arena, struct copse_err *err) {
  size_t nodes = (size_t)s->t->n_nodes, links = (size_t)s->t->n_links;
  struct copse_two_tier *tier = s->tier;
  COPSE_DO(copse_online_link_units(s->t, &s->scratch, &s->units, &tier->model.scale, err));
  COPSE_DO(copse_adjacency_by(&s->scratch, s->t->n_nodes, s->t->n_links,
                              COPSE_KEYS(s->t->links, src), sizeof *s->t->links, &s->out, err));
  COPSE_DO(COPSE_ARRAYS(&s->scratch, nodes, int, err, &s->host, &s->parent, &s->queue.items));
  COPSE_DO(COPSE_ARRAY(&s->scratch, links, s->claimed, err));
  COPSE_DO(COPSE_ARRAYS(&s->scratch, nodes, bool, err, &s->outside, &s->several));
  COPSE_DO(COPSE_ARRAY(arena, (size_t)s->t->n_ranks, tier->hub, err));
  /* every way claims its links: together they have at most one node more per rank */
  COPSE_DO(COPSE_ARRAY(arena, links + (size_t)s->t->n_ranks, tier->up, err));
  return COPSE_ARRAY(arena, (size_t)s->t->n_ranks + 1, tier->up_start, err);
}

copse_status copse_two_tier_find(const struct copse_topology *topology, struct copse_arena *arena,
                                 struct copse_two_tier *tier, struct copse_err *err) {
  struct search s = {.t = topology, .tier = tier};
  *tier = (struct copse_two_tier){0};
  copse_status status = allocate(&s, arena, err);
  if (status == COPSE_OK)
    tier->found =
        find_hosts(&s) && check_no_mesh(&s) && find_hubs(&s) && find_ways(&s) && find_cuts(&s);
  if (tier->found) find_latencies(&s);
  copse_arena_free(&s.scratch);
  return status;
}
