/*
 * Which rings and chains: a machine's instances (channels.c) are solved and packed into 1 to 32
 * channels (solver/rings). NCCL takes equally many of both: of the numbers that are best for rings
 * one that is best for chains is taken.
 *
 * Several hosts: rings come back to the NIC by which they came (crossnic 0), or go in pairs that
 * are each other's mirror (crossnic 2); the bound is for any choice of NICs.
 *
 * Hosts that differ: what one does in its inside limits no other, so each group is solved alone,
 * and of n channels all have the speed of the slowest group, as NCCL's hosts agree (init.cc). The
 * least bound of a group is that of all.
 */
#include "nccl/best.h"

#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "nccl/policy.h"

/* A kind of channels, solved. */
struct solved {
  struct copse_nccl_channels channels;
  struct copse_ring_set set;
  struct copse_ring_packing packings[COPSE_RINGS_MAX_CHANNELS];
  int width;       /* channels that a packing's ring is */
  bool has, packs; /* is of use here; is packed */
};

enum { N_KINDS = COPSE_NCCL_SPLIT_CHAINS + 1 };

/* Hosts alike. */
struct group {
  int host;   /* the first */
  bool *like; /* [n_hosts]; NULL: all hosts */
  int n_gpus;
  struct solved kinds[N_KINDS];
  struct solved level[2]; /* rings, chains with all hosts' least of each rail, if need be */
};

struct finder {
  struct copse_nccl_machine *machine;
  struct copse_nccl_best *out;
  struct group *groups; /* [out->n_groups] */
  int most;             /* channels */
  bool quick;
};

/* ---- hosts alike ----------------------------------------------------------------------------- */

static bool same_steps(const struct copse_ring_step *a, const struct copse_ring_step *b, int n) {
  for (int i = 0; i < n; i++)
    if (a[i].n != b[i].n ||
        (a[i].n > 0 && memcmp(a[i].loads, b[i].loads, (size_t)a[i].n * sizeof *a[i].loads) != 0))
      return false;
  return true;
}

static bool same_instance(const struct copse_ring_instance *a,
                          const struct copse_ring_instance *b) {
  if (a->n_gpus != b->n_gpus || a->n_rows != b->n_rows || a->n_ports != b->n_ports) return false;
  for (int r = 0; r < a->n_rows; r++)
    if (!copse_q_eq(a->bandwidth[r], b->bandwidth[r])) return false;
  return same_steps(a->move, b->move, a->n_gpus * a->n_gpus) &&
         same_steps(a->enter, b->enter, a->n_ports * a->n_gpus) &&
         same_steps(a->leave, b->leave, a->n_ports * a->n_gpus);
}

/* Whether graphs name GPUs and NICs of two hosts alike, and these are on the same rails. */
static bool same_names(const struct copse_nccl_machine *m, int a, int b) {
  for (int i = 0; i < m->first[a + 1] - m->first[a]; i++)
    if (m->devs[m->members[m->first[a] + i]] != m->devs[m->members[m->first[b] + i]]) return false;
  for (int i = 0; i < m->first_port[a + 1] - m->first_port[a]; i++) {
    const struct copse_nccl_port *x = &m->ports[m->first_port[a] + i];
    const struct copse_nccl_port *y = &m->ports[m->first_port[b] + i];
    if (x->dev != y->dev || x->rail != y->rail) return false;
  }
  return true;
}

/* Sets a host's group: the first whose instance is its own, or a new one. */
static copse_status place_host(struct finder *f, int host, struct copse_nccl_channels *channels,
                               struct copse_err *err) {
  struct copse_nccl_best *out = f->out;
  struct copse_nccl_channels own;
  int g = 0;
  copse_status status =
      copse_nccl_channels_make(f->machine, COPSE_NCCL_RINGS, host, out->n_hosts, NULL, &own, err);
  while (status == COPSE_OK && g < out->n_groups &&
         !(same_instance(&channels[g].instance, &own.instance) &&
           same_names(f->machine, f->groups[g].host, host)))
    g++;
  out->group_of[host] = g;
  if (status != COPSE_OK || g < out->n_groups) {
    copse_nccl_channels_free(&own);
    return status;
  }
  f->groups[g] =
      (struct group){.host = host, .n_gpus = f->machine->first[host + 1] - f->machine->first[host]};
  channels[out->n_groups++] = own;
  return COPSE_OK;
}

static copse_status find_groups(struct finder *f, struct copse_err *err) {
  struct copse_nccl_best *out = f->out;
  int hosts = f->machine->n_hosts;
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct copse_nccl_channels *channels;
  COPSE_DO(COPSE_ARRAY(&out->arena, (size_t)out->n_hosts, out->group_of, err));
  COPSE_DO(COPSE_ARRAY(&out->arena, (size_t)out->n_hosts, out->graphs, err));
  COPSE_DO(COPSE_ARRAY(&out->arena, (size_t)hosts, f->groups, err));
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)hosts, channels, err));
  copse_status status = COPSE_OK;
  if (hosts == 1) { /* whose rings need not be made for a comparison */
    f->groups[out->n_groups++] = (struct group){.n_gpus = f->machine->first[1]};
    return COPSE_ARRAY(&out->arena, 1, out->groups, err);
  }
  for (int h = 0; status == COPSE_OK && h < hosts; h++) status = place_host(f, h, channels, err);
  for (int g = 0; g < out->n_groups; g++) copse_nccl_channels_free(&channels[g]);
  COPSE_DO(status);
  for (int g = 0; out->n_groups > 1 && g < out->n_groups; g++) {
    COPSE_DO(COPSE_ARRAY(&out->arena, (size_t)hosts, f->groups[g].like, err));
    for (int h = 0; h < hosts; h++) f->groups[g].like[h] = out->group_of[h] == g;
  }
  return COPSE_ARRAY(&out->arena, (size_t)out->n_groups, out->groups, err);
}

/* Returns the group of hosts that a dump is of: that of its first rank, where it says ranks, else
 * the next one, in the order of the files. */
static int group_of_graph(const struct finder *f, const struct copse_nccl_graphs *graphs,
                          int next) {
  const struct copse_nccl_graph_search *ring = copse_nccl_graph(graphs, COPSE_NCCL_RING);
  int rank = ring && ring->channels[0].ranks ? ring->channels[0].ranks[0] : -1;
  bool says = rank >= 0 && rank < f->machine->topology->n_ranks;
  return says ? f->out->group_of[f->machine->host_of_rank[rank]] : next;
}

copse_status copse_nccl_graphs_by_host(struct copse_nccl_machine *machine,
                                       const struct copse_nccl_graphs *graphs, int n,
                                       const struct copse_nccl_graphs **each,
                                       struct copse_err *err) {
  COPSE_AT_END(copse_nccl_best_free) struct copse_nccl_best best = {.n_hosts = machine->n_hosts};
  struct finder f = {.machine = machine, .out = &best};
  COPSE_DO(find_groups(&f, err));
  if (best.n_groups != n)
    return copse_fail(
        err, COPSE_INVALID,
        "%d graph files, and the topology has hosts of %d kind%s: give one for all, or "
        "one of each kind, in the order of their first hosts",
        n, best.n_groups, COPSE_S(best.n_groups));
  for (int h = 0; h < best.n_hosts; h++) each[h] = NULL;
  for (int i = 0; i < n; i++) {
    int group = group_of_graph(&f, &graphs[i], i);
    for (int h = 0; h < best.n_hosts; h++)
      if (best.group_of[h] == group) each[h] = &graphs[i];
  }
  for (int h = 0; h < best.n_hosts; h++)
    if (!each[h])
      return copse_fail(
          err, COPSE_INVALID,
          "two graph files are of one kind of hosts, and none is of host %d: give one "
          "of each kind",
          h);
  return COPSE_OK;
}

/* ---- one kind -------------------------------------------------------------------------------- */

static copse_status solve_kind(struct finder *f, struct group *g, enum copse_nccl_channel_kind kind,
                               struct copse_err *err) {
  struct solved *s = &g->kinds[kind];
  s->has = true;
  s->width = kind == COPSE_NCCL_TWIN_RINGS ? 2 : 1;
  s->packs = kind != COPSE_NCCL_RINGS || f->out->n_hosts == 1;
  COPSE_DO(copse_nccl_channels_make(f->machine, kind, g->host, f->out->n_hosts, g->like,
                                    &s->channels, err));
  s->channels.instance.quick = f->quick;
  struct copse_err why = COPSE_ERR_INIT;
  copse_status status = copse_rings_solve(&s->channels.instance, &s->set, &why);
  /* Twins come in at both their ends: not where one GPU alone is beside the only NIC. */
  s->has = status != COPSE_INFEASIBLE || kind != COPSE_NCCL_TWIN_RINGS;
  if (!s->has) return COPSE_OK;
  if (status != COPSE_OK) return copse_fail(err, status, "%s", why.text);
  if (!s->packs) return COPSE_OK;
  return copse_rings_pack(&s->channels.instance, &s->set, f->most / s->width, s->packings, err);
}

/* Whether some ports of a host can't reach each other's rails. */
static bool rails_are_apart(const struct copse_nccl_machine *m) {
  for (int p = 1; m->n_hosts > 1 && p < m->n_ports; p++)
    if (m->ports[p].host == m->ports[p - 1].host && m->ports[p].rail != m->ports[p - 1].rail)
      return true;
  return false;
}

/* Whether channels may be twins. A twin leaves a host by the other rail than it comes by, so the
 * next host must run the other of the two lists. */
static bool may_have_twins(const struct finder *f) {
  bool turns = f->out->n_hosts % 2 == 0 && f->out->n_groups == 1;
  return f->most > 1 && (turns || !rails_are_apart(f->machine));
}

static copse_status solve_kinds(struct finder *f, struct group *g, struct copse_err *err) {
  bool several = f->out->n_hosts > 1;
  if (g->n_gpus == 1 && !several) return COPSE_OK;
  if (g->n_gpus > COPSE_RINGS_MAX_GPUS)
    return copse_fail(err, COPSE_UNSUPPORTED,
                      "hosts of %d GPUs: rings are found for %d at most; give fewer with --ranks",
                      g->n_gpus, COPSE_RINGS_MAX_GPUS);
  COPSE_DO(solve_kind(f, g, COPSE_NCCL_RINGS, err));
  COPSE_DO(solve_kind(f, g, COPSE_NCCL_CHAINS, err));
  if (!several) return COPSE_OK;
  COPSE_DO(solve_kind(f, g, COPSE_NCCL_RAIL_RINGS, err));
  if (may_have_twins(f)) COPSE_DO(solve_kind(f, g, COPSE_NCCL_TWIN_RINGS, err));
  if (g->n_gpus > 1 && g->n_gpus <= COPSE_RINGS_EXACT_GPUS)
    COPSE_DO(solve_kind(f, g, COPSE_NCCL_SPLIT_CHAINS, err));
  return COPSE_OK;
}

/* ---- how many channels ----------------------------------------------------------------------- */

/* Returns the packing of n channels, NULL without one. */
static const struct copse_ring_packing *packing_of(const struct group *g, int kind, int n) {
  const struct solved *s = &g->kinds[kind];
  if (!s->has || !s->packs || n % s->width != 0) return NULL;
  const struct copse_ring_packing *p = &s->packings[n / s->width - 1];
  return p->n > 0 ? p : NULL;
}

/* Returns the fastest of the rings (or chains) of n channels; the first of equal kinds. -1 without
 * any. */
static int fastest_of(const struct group *g, bool chains, int n, struct copse_q *GBps) {
  int from = chains ? COPSE_NCCL_CHAINS : 0, best = -1;
  *GBps = COPSE_Q_ZERO;
  for (int kind = from; kind < (chains ? N_KINDS : COPSE_NCCL_CHAINS); kind++) {
    const struct copse_ring_packing *p = packing_of(g, kind, n);
    struct copse_q all;
    if (!p || copse_q_mul(p->speed, (struct copse_q){n, 1}, &all, NULL) != COPSE_OK) continue;
    if (copse_q_cmp(all, *GBps) > 0) *GBps = all, best = kind;
  }
  return best;
}

/* Finds the fastest speed of all groups: hosts agree on the least. False: one has none. */
static bool fastest(const struct finder *f, bool chains, int n, struct copse_q *GBps) {
  for (int g = 0; g < f->out->n_groups; g++) {
    struct copse_q own;
    if (fastest_of(&f->groups[g], chains, n, &own) < 0) {
      *GBps = COPSE_Q_ZERO;
      return false;
    }
    if (g == 0 || copse_q_cmp(own, *GBps) < 0) *GBps = own;
  }
  return true;
}

static struct copse_q larger(struct copse_q a, struct copse_q b) {
  return copse_q_cmp(a, b) < 0 ? b : a;
}

/* Returns the most that packings of these reach, for all that is proved: of rings no more than
 * those of any NICs. */
static struct copse_q bound_of(const struct group *g, bool chains) {
  struct copse_q most = COPSE_Q_ZERO;
  for (int kind = chains ? COPSE_NCCL_CHAINS : 0; kind < (chains ? N_KINDS : COPSE_NCCL_CHAINS);
       kind++) {
    const struct solved *s = &g->kinds[kind];
    struct copse_q bound;
    if (s->has && s->packs &&
        copse_q_mul(s->set.bound.GBps, (struct copse_q){s->width, 1}, &bound, NULL) == COPSE_OK)
      most = larger(most, bound);
  }
  const struct solved *any = &g->kinds[COPSE_NCCL_RINGS];
  if (!chains && any->has && copse_q_cmp(any->set.bound.GBps, most) < 0) most = any->set.bound.GBps;
  return most;
}

static struct copse_q least_bound(const struct finder *f, bool chains) {
  struct copse_q least = bound_of(&f->groups[0], chains);
  for (int g = 1; g < f->out->n_groups; g++) {
    struct copse_q bound = bound_of(&f->groups[g], chains);
    if (copse_q_cmp(bound, least) < 0) least = bound;
  }
  return least;
}

/* Tries better packings for n channels: copies of packings for fewer, and searches for the kinds
 * that are not at their bounds. Groups that are as fast as the bound of all are left alone. */
static copse_status improve(struct finder *f, bool chains, int n, bool thorough,
                            struct copse_q bound, struct copse_err *err) {
  for (int i = 0; i < f->out->n_groups; i++) {
    struct group *g = &f->groups[i];
    struct copse_q GBps;
    if (f->out->n_groups > 1 && fastest_of(g, chains, n, &GBps) >= 0 &&
        copse_q_cmp(GBps, bound) >= 0)
      continue;
    for (int kind = chains ? COPSE_NCCL_CHAINS : 0; kind < (chains ? N_KINDS : COPSE_NCCL_CHAINS);
         kind++) {
      struct solved *s = &g->kinds[kind];
      if (!packing_of(g, kind, n)) continue;
      COPSE_DO(copse_rings_improve(&s->channels.instance, &s->set, n / s->width, thorough,
                                   s->packings, err));
    }
  }
  return COPSE_OK;
}

static bool is_large(const struct finder *f) {
  for (int g = 0; g < f->out->n_groups; g++)
    if (f->groups[g].n_gpus > COPSE_RINGS_EXACT_GPUS) return true;
  return false;
}

/* Whether a quantity is all of another but for a CHAIN_PART of it. */
static bool is_within(struct copse_q a, struct copse_q most) {
  struct copse_q part;
  return copse_q_mul(most, (struct copse_q){CHAIN_PART - 1, CHAIN_PART}, &part, NULL) == COPSE_OK &&
         copse_q_cmp(a, part) >= 0;
}

/* Finds the best of rings (or chains) over the numbers of channels that `may` allows (NULL: all).
 * First as they come, then searched for at the bound, then if that is not reached at less. */
static copse_status find_most(struct finder *f, bool chains, const bool *may, struct copse_q *most,
                              struct copse_err *err) {
  struct copse_q bound = least_bound(f, chains), GBps;
  *most = COPSE_Q_ZERO;
  for (int pass = 0; pass < 3; pass++) {
    if (pass == 2 && copse_q_cmp(*most, bound) >= 0) break;
    if (pass > 0 && is_large(f) && is_within(*most, bound)) break;
    for (int n = 1; n <= f->most; n++) {
      if (may && !may[n - 1]) continue;
      if (pass > 0) COPSE_DO(improve(f, chains, n, pass == 2, bound, err));
      (void)fastest(f, chains, n, &GBps);
      *most = larger(*most, GBps);
    }
  }
  return COPSE_OK;
}

/* Whether channels are no faster than NCCL makes its own. */
static bool is_fine(struct copse_q all, int n) {
  struct copse_q each = {0, 1}, part = {0, 1};
  return copse_q_div(all, (struct copse_q){CHANNELS, 1}, &part, NULL) == COPSE_OK &&
         copse_q_div(all, (struct copse_q){n, 1}, &each, NULL) == COPSE_OK &&
         (copse_q_cmp(each, (struct copse_q){CHANNEL_GBPS, 1}) <= 0 ||
          copse_q_cmp(each, part) <= 0);
}

/* Chooses the number of channels; 0: there are no rings. */
static copse_status choose(struct finder *f, int *chosen, struct copse_err *err) {
  struct copse_q rings, chains, GBps;
  bool may[COPSE_NCCL_MAX_CHANNELS] = {false}, few = false;
  *chosen = 0;
  COPSE_DO(find_most(f, false, NULL, &rings, err));
  for (int n = 1; n <= f->most; n++) {
    may[n - 1] =
        !(few && n > CHANNELS) && fastest(f, false, n, &GBps) && copse_q_cmp(GBps, rings) >= 0;
    few = few || may[n - 1];
  }
  COPSE_DO(find_most(f, true, may, &chains, err));
  for (int n = 1; n <= f->most; n++) {
    if (!may[n - 1] || !fastest(f, true, n, &GBps) || !is_within(GBps, chains)) continue;
    *chosen = n;
    if (is_fine(rings, n)) break;
  }
  return COPSE_OK;
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static void worst(enum copse_nccl_path *type, enum copse_nccl_path other) {
  if (other > *type) *type = other;
}

/* Makes channel c from one ring of a packing; backwards with exchanged NICs as the second of
 * twins. */
static copse_status make_channel(struct finder *f, const struct group *g, const struct solved *s,
                                 const struct copse_ring *ring, bool backwards,
                                 struct copse_nccl_graph_search *graph,
                                 struct copse_nccl_channel *channel, struct copse_err *err) {
  const struct copse_nccl_machine *m = f->machine;
  const int *members = m->members + m->first[g->host];
  int n = g->n_gpus;
  COPSE_DO(COPSE_ARRAY(&f->out->arena, (size_t)n, channel->devs, err));
  channel->n_gpus = n;
  for (int i = 0; i < n; i++) {
    int at = ring->gpus[backwards ? n - 1 - i : i];
    channel->devs[i] = m->devs[members[at]];
    if (i > 0 || s->channels.instance.closed) {
      int last = ring->gpus[(backwards ? 2 * n - i : i + n - 1) % n];
      worst(&graph->type_intra, s->channels.move_type[last * n + at]);
    }
  }
  for (int end = 0; end < 2 && ring->ports[end] >= 0; end++) {
    int port = ring->ports[end], gpu = ring->gpus[end == 0 ? 0 : n - 1];
    channel->nets[backwards ? 1 - end : end] = m->ports[m->first_port[g->host] + port].dev;
    channel->n_nets = 2;
    bool chain = s->channels.kind >= COPSE_NCCL_CHAINS, in = (end == 0) != backwards;
    if (chain && end == 1) continue; /* a tree's links are at its first GPUs */
    if (chain || in) worst(&graph->type_inter, s->channels.in_type[port * n + gpu]);
    if (chain || !in) worst(&graph->type_inter, s->channels.out_type[port * n + gpu]);
  }
  return COPSE_OK;
}

static bool same_orders(const struct copse_nccl_graph_search *graph) {
  const struct copse_nccl_channel *first = &graph->channels[0];
  for (int c = 1; c < graph->n_channels; c++)
    if (memcmp(first->devs, graph->channels[c].devs, (size_t)first->n_gpus * sizeof *first->devs) !=
        0)
      return false;
  return true;
}

static copse_status make_graph(struct finder *f, int i, int id, const struct solved *s, int n,
                               struct copse_q speed, struct copse_err *err) {
  static const int patterns[N_KINDS] = {COPSE_NCCL_PATTERN_RING, COPSE_NCCL_PATTERN_RING,
                                        COPSE_NCCL_PATTERN_RING, COPSE_NCCL_PATTERN_TREE,
                                        COPSE_NCCL_PATTERN_BALANCED_TREE};
  struct copse_nccl_graphs *graphs = &f->out->groups[i].graphs;
  struct copse_nccl_graph_search *graph = &graphs->graph[id];
  const struct group *g = &f->groups[i];
  const struct copse_ring_packing *packing = &s->packings[n / s->width - 1];
  int kind = s->channels.kind;
  *graph = (struct copse_nccl_graph_search){.id = id,
                                            .pattern = patterns[kind],
                                            .crossnic = kind == COPSE_NCCL_TWIN_RINGS ? 2 : 0,
                                            .n_channels = n,
                                            .speed_intra = speed,
                                            .speed_inter = speed,
                                            .latency_inter = COPSE_Q_ZERO};
  COPSE_DO(COPSE_ARRAY(&f->out->arena, (size_t)n, graph->channels, err));
  for (int c = 0; c < n; c++)
    COPSE_DO(make_channel(f, g, s, &s->set.rings[packing->channels[c / s->width]],
                          c % s->width == 1, graph, &graph->channels[c], err));
  graph->same_channels = same_orders(graph);
  graphs->present[id] = true;
  return COPSE_OK;
}

/* ---- rails ------------------------------------------------------------------------------------
 */

static const struct copse_nccl_port *port_named(const struct finder *f, int i, uint64_t dev) {
  const struct copse_nccl_machine *m = f->machine;
  return &m->ports[copse_nccl_find_port(m, f->groups[i].host, dev)];
}

/* Whether channels of two groups have their NICs on the same rails, or better the same leaves. */
static bool match(const struct finder *f, int i, const struct copse_nccl_channel *a, int k,
                  const struct copse_nccl_channel *b, bool leaves) {
  for (int end = 0; end < 2; end++) {
    const struct copse_nccl_port *x = port_named(f, i, a->nets[end]);
    const struct copse_nccl_port *y = port_named(f, k, b->nets[end]);
    if (x->rail != y->rail || (leaves && x->leaf != y->leaf)) return false;
  }
  return true;
}

/* Orders the channels of a group so that each is on the rail of the first group's, and where it can
 * be on its leaf; pairs stay together. False: rails are apart, and some channel has none. */
static bool align(struct finder *f, int i, int id) {
  struct copse_nccl_graph_search *first = &f->out->groups[0].graphs.graph[id];
  struct copse_nccl_graph_search *own = &f->out->groups[i].graphs.graph[id];
  int width = own->crossnic == 2 || first->crossnic == 2 ? 2 : 1;
  bool all = true;
  for (int c = 0; c + width <= own->n_channels; c += width) {
    int at = -1;
    for (int leaves = 1; leaves >= 0 && at < 0; leaves--)
      for (int k = c; k < own->n_channels && at < 0; k += width) {
        bool fits = true;
        for (int w = 0; w < width; w++)
          fits = fits && match(f, 0, &first->channels[c + w], i, &own->channels[k + w], leaves);
        if (fits) at = k;
      }
    all = all && at >= 0;
    for (int w = 0; w < width && at > c; w++) {
      struct copse_nccl_channel other = own->channels[c + w];
      own->channels[c + w] = own->channels[at + w];
      own->channels[at + w] = other;
    }
  }
  return all;
}

/* ---- what is reported ------------------------------------------------------------------------ */

static copse_status note_optimum(struct finder *f, int i, int kind, int bound_kind, int n,
                                 struct copse_q speed, struct copse_nccl_optimum *optimum,
                                 struct copse_err *err) {
  const struct solved *proof = &f->groups[i].kinds[bound_kind];
  const struct copse_ring_bound *bound = &proof->set.bound;
  int rows = proof->channels.instance.n_rows;
  *optimum = (struct copse_nccl_optimum){
      .kind = (enum copse_nccl_channel_kind)kind, .n = n, .speed = speed, .bound = bound->GBps};
  COPSE_DO(
      copse_q_div((struct copse_q){bound->least, 1}, proof->channels.unit, &optimum->least, err));
  COPSE_DO(copse_q_mul(speed, (struct copse_q){n, 1}, &optimum->GBps, err));
  COPSE_DO(COPSE_ARRAY(&f->out->arena, (size_t)rows, optimum->lengths, err));
  for (int r = 0; r < rows; r++)
    if (bound->lengths[r] > 0)
      optimum->lengths[optimum->n_lengths++] =
          (struct copse_nccl_length){proof->channels.rows[r], bound->lengths[r]};
  return COPSE_OK;
}

/* Makes graphs of n channels from one kind in every group; *aligned: all channels have their
 * rails. */
static copse_status make_graphs(struct finder *f, bool chains, int n, bool level, bool *aligned,
                                struct copse_err *err) {
  struct copse_nccl_best *out = f->out;
  struct copse_nccl_optimum *all = chains ? &out->chain : &out->ring;
  int id = chains ? COPSE_NCCL_TREE : COPSE_NCCL_RING;
  struct copse_q own, speed;
  const struct solved *used;
  *aligned = true;
  for (int i = 0; i < out->n_groups; i++) { /* of the slowest */
    const struct group *g = &f->groups[i];
    used = level ? &g->level[chains] : &g->kinds[fastest_of(g, chains, n, &own)];
    own = used->packings[n / used->width - 1].speed;
    if (i == 0 || copse_q_cmp(own, speed) < 0) speed = own;
  }
  for (int i = 0; i < out->n_groups; i++) {
    struct group *g = &f->groups[i];
    struct copse_nccl_optimum *o = chains ? &out->groups[i].chain : &out->groups[i].ring;
    used = level ? &g->level[chains] : &g->kinds[fastest_of(g, chains, n, &own)];
    int kind = used->channels.kind;
    COPSE_DO(make_graph(f, i, id, used, n, speed, err));
    COPSE_DO(note_optimum(f, i, kind, chains ? kind : COPSE_NCCL_RINGS, n, speed, o, err));
    if (i == 0 || copse_q_cmp(o->bound, all->bound) < 0) *all = *o;
    *aligned = *aligned && (i == 0 || out->n_hosts == 1 || align(f, i, id));
  }
  return COPSE_OK;
}

/* Finds channels that fit what all hosts have on each rail; `counts` [ports] and `speed`: or just
 * so many channels on each (NULL: any). *has: there are n of them. */
static copse_status solve_level_of(struct finder *f, struct group *g, bool chains, int n,
                                   const int *counts, struct copse_q speed, bool *has,
                                   struct copse_err *err) {
  struct solved *s = &g->level[chains];
  struct copse_err why = COPSE_ERR_INIT;
  copse_ring_set_free(&s->set);
  copse_nccl_channels_free(&s->channels);
  *s = (struct solved){.width = 1};
  COPSE_DO(copse_nccl_channels_make(f->machine, chains ? COPSE_NCCL_CHAINS : COPSE_NCCL_RAIL_RINGS,
                                    g->host, f->out->n_hosts, g->like, &s->channels, err));
  s->channels.instance.quick = f->quick;
  COPSE_DO(copse_nccl_channels_level(f->machine, g->host, &s->channels, err));
  if (counts) COPSE_DO(copse_nccl_channels_share(&s->channels, counts, speed, err));
  copse_status status = copse_rings_solve(&s->channels.instance, &s->set, &why);
  if (status != COPSE_OK) return copse_fail(err, status, "%s", why.text);
  COPSE_DO(copse_rings_pack(&s->channels.instance, &s->set, f->most, s->packings, err));
  *has = s->packings[n - 1].n > 0;
  for (int thorough = 0; thorough < 2 && *has; thorough++)
    COPSE_DO(
        copse_rings_improve(&s->channels.instance, &s->set, n, thorough == 1, s->packings, err));
  return COPSE_OK;
}

static copse_status solve_level(struct finder *f, bool chains, int n, bool *has,
                                struct copse_err *err) {
  *has = true;
  for (int i = 0; i < f->out->n_groups && *has; i++)
    COPSE_DO(solve_level_of(f, &f->groups[i], chains, n, NULL, COPSE_Q_ZERO, has, err));
  return COPSE_OK;
}

/* Gives all groups the rails of the slowest one's channels, as many on each: sets of equal worth
 * may lie on others. */
static copse_status share_rails(struct finder *f, bool chains, int n, bool *has,
                                struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  const struct copse_nccl_machine *m = f->machine;
  int slowest = 0, *on_rail, *counts;
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)m->topology->n_nodes, on_rail, err));
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)m->n_ports, counts, err));
  for (int i = 1; i < f->out->n_groups; i++)
    if (copse_q_cmp(f->groups[i].level[chains].packings[n - 1].speed,
                    f->groups[slowest].level[chains].packings[n - 1].speed) < 0)
      slowest = i;
  struct copse_q speed = f->groups[slowest].level[chains].packings[n - 1].speed;
  const struct copse_nccl_graph_search *graph =
      &f->out->groups[slowest].graphs.graph[chains ? COPSE_NCCL_TREE : COPSE_NCCL_RING];
  for (int c = 0; c < n; c++) on_rail[port_named(f, slowest, graph->channels[c].nets[0])->rail]++;
  *has = true;
  for (int i = 0; i < f->out->n_groups && *has; i++) {
    int first = m->first_port[f->groups[i].host], end = m->first_port[f->groups[i].host + 1];
    if (i == slowest) continue;
    for (int p = first; p < end; p++) counts[p - first] = on_rail[m->ports[p].rail];
    COPSE_DO(solve_level_of(f, &f->groups[i], chains, n, counts, speed, has, err));
  }
  return COPSE_OK;
}

/* Makes rings or chains of n channels in every group. */
static copse_status make_part(struct finder *f, bool chains, int n, struct copse_err *err) {
  bool aligned, has;
  COPSE_DO(make_graphs(f, chains, n, false, &aligned, err));
  if (aligned) return COPSE_OK;
  COPSE_DO(solve_level(f, chains, n, &has, err));
  if (has) COPSE_DO(make_graphs(f, chains, n, true, &aligned, err));
  if (aligned) return COPSE_OK;
  if (has) COPSE_DO(share_rails(f, chains, n, &has, err));
  if (has) COPSE_DO(make_graphs(f, chains, n, true, &aligned, err));
  if (aligned) return COPSE_OK;
  return copse_fail(
      err, COPSE_UNSUPPORTED,
      "hosts differ, and no %s were found that take the same rails in all of them, as "
      "the network needs: take the same NICs down in each (--down '*.nic0')",
      chains ? "chains" : "rings");
}

static copse_status find(struct finder *f, struct copse_err *err) {
  struct copse_nccl_best *out = f->out;
  int n;
  COPSE_DO(find_groups(f, err));
  for (int i = 0; i < out->n_groups; i++) COPSE_DO(solve_kinds(f, &f->groups[i], err));
  COPSE_DO(choose(f, &n, err));
  for (int i = 0; i < out->n_groups; i++) out->groups[i].host = f->groups[i].host;
  for (int h = 0; h < out->n_hosts; h++) out->graphs[h] = &out->groups[out->group_of[h]].graphs;
  if (n == 0) return COPSE_OK;
  COPSE_DO(make_part(f, false, n, err));
  return make_part(f, true, n, err);
}

copse_status copse_nccl_best_find(const struct copse_topology *topology,
                                  const struct copse_nccl_best_options *options,
                                  struct copse_nccl_best *out, struct copse_err *err) {
  struct copse_nccl_machine machine = {0};
  struct finder f = {.out = out, .machine = &machine, .quick = options->quick};
  int most = options->max_channels;
  *out = (struct copse_nccl_best){0};
  f.most = most > 0 && most < COPSE_NCCL_MAX_CHANNELS ? most : COPSE_NCCL_MAX_CHANNELS;
  copse_status status = copse_nccl_machine_open(topology, &machine, err);
  if (status == COPSE_OK) {
    int hosts = machine.n_hosts;
    out->n_hosts = options->hosts > 0 ? options->hosts : hosts;
    out->n_ranks = topology->n_ranks * (hosts == 1 ? out->n_hosts : 1);
    if (hosts > 1 && out->n_hosts != hosts)
      status = copse_fail(err, COPSE_INVALID,
                          "%s has %d hosts: %d of them are for a topology of a single host",
                          topology->name, hosts, options->hosts);
  }
  if (status == COPSE_OK) status = find(&f, err);
  for (int i = 0; i < out->n_groups; i++)
    for (int k = 0; k < N_KINDS + 2; k++) {
      struct solved *s = k < N_KINDS ? &f.groups[i].kinds[k] : &f.groups[i].level[k - N_KINDS];
      copse_ring_set_free(&s->set);
      copse_nccl_channels_free(&s->channels);
    }
  copse_nccl_machine_free(&machine);
  return status;
}

void copse_nccl_best_free(struct copse_nccl_best *best) {
  copse_arena_free(&best->arena);
  *best = (struct copse_nccl_best){0};
}

/* ---- certificates (docs/nccl-rings.md): one channel, and one length, a line -------------------
 */

struct writer {
  const struct copse_nccl_best *best;
  const struct copse_topology *topology;
  struct copse_nccl_machine machine;
  struct copse_text text;
};

static void add_node(struct writer *w, int node) {
  copse_text_add_json_string(&w->text, w->topology->nodes[node].id);
}

static void add_channel(struct writer *w, int host, const struct copse_nccl_channel *channel) {
  const int *nodes = w->topology->rank_nodes;
  copse_text_add(&w->text, "    {\"gpus\": [");
  for (int i = 0; i < channel->n_gpus; i++) {
    copse_text_add(&w->text, "%s", i > 0 ? "," : "");
    add_node(w, nodes[copse_nccl_find_rank(&w->machine, host, channel->devs[i])]);
  }
  copse_text_add(&w->text, "]");
  for (int i = 0; i < channel->n_nets; i++) {
    int port = copse_nccl_find_port(&w->machine, host, channel->nets[i]);
    copse_text_add(&w->text, "%s", i == 0 ? ", \"nics\": [" : ",");
    add_node(w, w->machine.ports[port].node);
  }
  copse_text_add(&w->text, "%s}", channel->n_nets > 0 ? "]" : "");
}

/* Adds a row's name: "a>b"; "*" is the network; "#2": in the place of host 2 in the trees, not of
 * the first host. */
static copse_status add_row(struct writer *w, int host, const struct copse_nccl_row *row,
                            struct copse_err *err) {
  COPSE_AT_END(copse_text_free) struct copse_text name = {0};
  const struct copse_node *nodes = w->topology->nodes;
  if (row->link >= 0) {
    const struct copse_link *link = &w->topology->links[row->link];
    copse_text_add(&name, "%s>%s", nodes[link->src].id, nodes[link->dst].id);
  } else {
    int port = w->machine.first_port[host] + row->port;
    copse_text_add(&name, row->outward ? "%s>*" : "*>%s", nodes[w->machine.ports[port].node].id);
  }
  if (row->host != host) copse_text_add(&name, "#%d", row->host);
  COPSE_DO(copse_text_status(&name, err));
  copse_text_add_json_string(&w->text, name.data);
  return COPSE_OK;
}

static copse_status add_part(struct writer *w, int host, const char *what, const char *kind,
                             int value, const struct copse_nccl_graph_search *graph,
                             const struct copse_nccl_optimum *optimum, struct copse_err *err) {
  copse_text_add(&w->text, ",\n \"%s\": {\"%s\": %d, \"speed\": \"%s\", \"GBps\": \"%s\",\n", what,
                 kind, value, COPSE_Q_STRING(optimum->speed), COPSE_Q_STRING(optimum->GBps));
  copse_text_add(&w->text, "  \"channels\": [\n");
  for (int c = 0; c < graph->n_channels; c++) {
    add_channel(w, host, &graph->channels[c]);
    copse_text_add(&w->text, "%s\n", c + 1 < graph->n_channels ? "," : "],");
  }
  copse_text_add(&w->text, "  \"bound\": {\"GBps\": \"%s\", \"least\": \"%s\", \"lengths\": {",
                 COPSE_Q_STRING(optimum->bound), COPSE_Q_STRING(optimum->least));
  for (int i = 0; i < optimum->n_lengths; i++) {
    copse_text_add(&w->text, "%s\n    ", i > 0 ? "," : "");
    COPSE_DO(add_row(w, host, &optimum->lengths[i].row, err));
    copse_text_add(&w->text, ": %" PRId64, optimum->lengths[i].length);
  }
  copse_text_add(&w->text, "}}}");
  return COPSE_OK;
}

static copse_status add_group(struct writer *w, const struct copse_nccl_best_group *g,
                              struct copse_err *err) {
  const struct copse_nccl_graph_search *ring = &g->graphs.graph[COPSE_NCCL_RING];
  const struct copse_nccl_graph_search *tree = &g->graphs.graph[COPSE_NCCL_TREE];
  COPSE_DO(add_part(w, g->host, "rings", "crossnic", ring->crossnic, ring, &g->ring, err));
  return add_part(w, g->host, "chains", "pattern", tree->pattern, tree, &g->chain, err);
}

static copse_status write(struct writer *w, char **text, size_t *size, struct copse_err *err) {
  const struct copse_nccl_best *best = w->best;
  char sha256[COPSE_SHA256_HEX];
  COPSE_DO(copse_nccl_machine_open(w->topology, &w->machine, err));
  COPSE_DO(copse_topology_sha256(w->topology, sha256, err));
  copse_text_add(&w->text, COPSE_JSON_HEAD("rings") ",\n \"topology\": {\"name\": ");
  copse_text_add_json_string(&w->text, w->topology->name);
  copse_text_add(&w->text, ", \"sha256\": \"%s\"},\n \"hosts\": %d", sha256, best->n_hosts);
  if (best->n_groups == 1) COPSE_DO(add_group(w, &best->groups[0], err));
  for (int g = 0; best->n_groups > 1 && g < best->n_groups; g++) {
    const char *comma = "";
    copse_text_add(&w->text, g == 0 ? ",\n \"groups\": [\n {\"hosts\": [" : ",\n {\"hosts\": [");
    for (int h = 0; h < best->n_hosts; h++) {
      if (best->group_of[h] != g) continue;
      copse_text_add(&w->text, "%s%d", comma, h);
      comma = ",";
    }
    copse_text_add(&w->text, "]");
    COPSE_DO(add_group(w, &best->groups[g], err));
    copse_text_add(&w->text, g + 1 < best->n_groups ? "}" : "}]");
  }
  copse_text_add(&w->text, "}\n");
  return copse_text_take(&w->text, text, size, err);
}

copse_status copse_nccl_best_to_json(const struct copse_nccl_best *best,
                                     const struct copse_topology *topology, char **text,
                                     size_t *size, struct copse_err *err) {
  struct writer w = {.best = best, .topology = topology};
  *text = NULL;
  if (best->ring.n == 0)
    return copse_fail(err, COPSE_INFEASIBLE,
                      "one GPU makes no ring: give two GPUs or, by "
                      "--hosts, several hosts");
  copse_status status = write(&w, text, size, err);
  copse_nccl_machine_free(&w.machine);
  copse_text_free(&w.text);
  return status;
}
