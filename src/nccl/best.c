/*
 * Which rings and chains: a machine's instances (channels.c) are solved and packed into 1 to 32
 * channels (solver/rings). NCCL wants equally many of both: of the numbers that are best for rings
 * one that is best for chains is taken.
 *
 * Several hosts: rings come back to the NIC by which they came (crossnic 0), or go in pairs that
 * are each other's mirror (crossnic 2); the bound is for any choice of NICs.
 */
#include "nccl/best.h"

#include <string.h>

/*
 * A channel is a thread block or two on each GPU, and takes about this much, GB/s, or a 16th of
 * all: NCCL's own search gives 12 channels of 20 on eight A100, 12 of 30 on H100, 16 of 45 on B200.
 * More than 16 are only for rings that are no good with fewer: NCCL up to 2.24 reads no more.
 */
#define CHANNEL_GBPS 20
#define CHANNELS 16
/* Chains may lose this part for fewer channels; rings nothing. Where orders are not searched in
 * full neither is searched further when it is as near to its bound, which may not be reached at
 * all. */
#define CHAIN_PART 64

/* A kind of channels, solved. */
struct solved {
  struct copse_nccl_channels channels;
  struct copse_ring_set set;
  struct copse_ring_packing packings[COPSE_RINGS_MAX_CHANNELS];
  int width;       /* channels that a packing's ring is */
  bool has, packs; /* is of use here; is packed */
};

enum { N_KINDS = COPSE_NCCL_SPLIT_CHAINS + 1 };

struct finder {
  struct copse_nccl_machine machine;
  struct copse_nccl_best *out;
  struct solved kinds[N_KINDS];
  int most; /* channels */
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
  if (a->n_gpus != b->n_gpus || a->n_rows != b->n_rows || a->n_doors != b->n_doors) return false;
  for (int r = 0; r < a->n_rows; r++)
    if (!copse_q_eq(a->bandwidth[r], b->bandwidth[r])) return false;
  return same_steps(a->move, b->move, a->n_gpus * a->n_gpus) &&
         same_steps(a->enter, b->enter, a->n_doors * a->n_gpus) &&
         same_steps(a->leave, b->leave, a->n_doors * a->n_gpus);
}

/* That every host's instance is that of the first. */
static copse_status check_hosts(struct finder *f, const struct copse_nccl_channels *first,
                                struct copse_err *err) {
  struct copse_nccl_machine *m = &f->machine;
  for (int h = 1; h < m->n_hosts; h++) {
    struct copse_nccl_channels other;
    copse_status status =
        copse_nccl_channels_make(m, COPSE_NCCL_RINGS, h, f->out->n_hosts, &other, err);
    bool same = status == COPSE_OK && same_instance(&first->instance, &other.instance);
    copse_nccl_channels_free(&other);
    COPSE_DO(status);
    if (!same)
      return copse_fail(
          err, COPSE_UNSUPPORTED,
          "host %d differs from host 0, and NCCL's graphs are found for hosts that "
          "are alike: take the same parts down in each (--down '*.nic0'), or give one host "
          "of each kind",
          h);
  }
  return COPSE_OK;
}

/* ---- one kind -------------------------------------------------------------------------------- */

static copse_status solve_kind(struct finder *f, enum copse_nccl_channel_kind kind,
                               struct copse_err *err) {
  struct solved *s = &f->kinds[kind];
  s->has = true;
  s->width = kind == COPSE_NCCL_TWIN_RINGS ? 2 : 1;
  s->packs = kind != COPSE_NCCL_RINGS || f->out->n_hosts == 1;
  COPSE_DO(copse_nccl_channels_make(&f->machine, kind, 0, f->out->n_hosts, &s->channels, err));
  if (kind == COPSE_NCCL_RINGS) COPSE_DO(check_hosts(f, &s->channels, err));
  struct copse_err why = COPSE_ERR_INIT;
  copse_status status = copse_rings_solve(&s->channels.instance, &s->set, &why);
  /* Twins come in at both their ends: not where one GPU alone is beside the only NIC. */
  s->has = status != COPSE_INFEASIBLE || kind != COPSE_NCCL_TWIN_RINGS;
  if (!s->has) return COPSE_OK;
  if (status != COPSE_OK) return copse_fail(err, status, "%s", why.text);
  if (!s->packs) return COPSE_OK;
  return copse_rings_pack(&s->channels.instance, &s->set, f->most / s->width, s->packings, err);
}

static copse_status solve_kinds(struct finder *f, struct copse_err *err) {
  int gpus = f->out->n_gpus;
  bool several = f->out->n_hosts > 1;
  if (gpus == 1 && !several) return COPSE_OK;
  if (gpus > COPSE_RINGS_MAX_GPUS)
    return copse_fail(err, COPSE_UNSUPPORTED,
                      "hosts of %d GPUs: rings are found for %d at most; give fewer with --ranks",
                      gpus, COPSE_RINGS_MAX_GPUS);
  COPSE_DO(solve_kind(f, COPSE_NCCL_RINGS, err));
  COPSE_DO(solve_kind(f, COPSE_NCCL_CHAINS, err));
  if (!several) return COPSE_OK;
  COPSE_DO(solve_kind(f, COPSE_NCCL_RAIL_RINGS, err));
  if (f->most > 1) COPSE_DO(solve_kind(f, COPSE_NCCL_TWIN_RINGS, err));
  if (gpus > 1 && gpus <= COPSE_RINGS_EXACT_GPUS)
    COPSE_DO(solve_kind(f, COPSE_NCCL_SPLIT_CHAINS, err));
  return COPSE_OK;
}

/* ---- how many channels ----------------------------------------------------------------------- */

/* The packing of n channels, NULL without one. */
static const struct copse_ring_packing *packing_of(const struct finder *f, int kind, int n) {
  const struct solved *s = &f->kinds[kind];
  if (!s->has || !s->packs || n % s->width != 0) return NULL;
  const struct copse_ring_packing *p = &s->packings[n / s->width - 1];
  return p->n > 0 ? p : NULL;
}

/* The fastest of the rings (or chains) of n channels; the first of equal kinds. -1 without any. */
static int fastest(const struct finder *f, bool chains, int n, struct copse_q *GBps) {
  int from = chains ? COPSE_NCCL_CHAINS : 0, best = -1;
  *GBps = COPSE_Q_ZERO;
  for (int kind = from; kind < (chains ? N_KINDS : COPSE_NCCL_CHAINS); kind++) {
    const struct copse_ring_packing *p = packing_of(f, kind, n);
    struct copse_q all;
    if (!p || copse_q_mul(p->speed, (struct copse_q){n, 1}, &all, NULL) != COPSE_OK) continue;
    if (copse_q_cmp(all, *GBps) > 0) *GBps = all, best = kind;
  }
  return best;
}

static struct copse_q larger(struct copse_q a, struct copse_q b) {
  return copse_q_cmp(a, b) < 0 ? b : a;
}

/* What copies of better packings give for n channels, and searches of kinds not at their bounds. */
static copse_status improve(struct finder *f, bool chains, int n, bool thorough,
                            struct copse_err *err) {
  for (int kind = chains ? COPSE_NCCL_CHAINS : 0; kind < (chains ? N_KINDS : COPSE_NCCL_CHAINS);
       kind++) {
    struct solved *s = &f->kinds[kind];
    if (!packing_of(f, kind, n)) continue;
    COPSE_DO(copse_rings_improve(&s->channels.instance, &s->set, n / s->width, thorough,
                                 s->packings, err));
  }
  return COPSE_OK;
}

/* The most that packings of these reach, for all that is proved: of rings no more than those of any
 * NICs. */
static struct copse_q bound_of(const struct finder *f, bool chains) {
  struct copse_q most = COPSE_Q_ZERO;
  for (int kind = chains ? COPSE_NCCL_CHAINS : 0; kind < (chains ? N_KINDS : COPSE_NCCL_CHAINS);
       kind++) {
    const struct solved *s = &f->kinds[kind];
    struct copse_q bound;
    if (s->has && s->packs &&
        copse_q_mul(s->set.bound.GBps, (struct copse_q){s->width, 1}, &bound, NULL) == COPSE_OK)
      most = larger(most, bound);
  }
  const struct solved *any = &f->kinds[COPSE_NCCL_RINGS];
  if (!chains && any->has && copse_q_cmp(any->set.bound.GBps, most) < 0) most = any->set.bound.GBps;
  return most;
}

/* But for a CHAIN_PART of it, a quantity is all of another. */
static bool is_within(struct copse_q a, struct copse_q most) {
  struct copse_q part;
  return copse_q_mul(most, (struct copse_q){CHAIN_PART - 1, CHAIN_PART}, &part, NULL) == COPSE_OK &&
         copse_q_cmp(a, part) >= 0;
}

/* The best of rings (or chains) over the numbers of channels that `may` allows (NULL: all). First
 * as they come, then searched for at the bound, then if that is not reached at less. */
static copse_status find_most(struct finder *f, bool chains, const bool *may, struct copse_q *most,
                              struct copse_err *err) {
  struct copse_q bound = bound_of(f, chains), GBps;
  *most = COPSE_Q_ZERO;
  for (int pass = 0; pass < 3; pass++) {
    if (pass == 2 && copse_q_cmp(*most, bound) >= 0) break;
    if (pass > 0 && f->out->n_gpus > COPSE_RINGS_EXACT_GPUS && is_within(*most, bound)) break;
    for (int n = 1; n <= f->most; n++) {
      if (may && !may[n - 1]) continue;
      if (pass > 0) COPSE_DO(improve(f, chains, n, pass == 2, err));
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

/* 0: there are no rings. */
static copse_status choose(struct finder *f, int *chosen, struct copse_err *err) {
  struct copse_q rings, chains, GBps;
  bool may[COPSE_NCCL_MAX_CHANNELS] = {false}, few = false;
  *chosen = 0;
  COPSE_DO(find_most(f, false, NULL, &rings, err));
  for (int n = 1; n <= f->most; n++) {
    may[n - 1] =
        !(few && n > CHANNELS) && fastest(f, false, n, &GBps) >= 0 && copse_q_cmp(GBps, rings) >= 0;
    few = few || may[n - 1];
  }
  COPSE_DO(find_most(f, true, may, &chains, err));
  for (int n = 1; n <= f->most; n++) {
    if (!may[n - 1] || fastest(f, true, n, &GBps) < 0 || !is_within(GBps, chains)) continue;
    *chosen = n;
    if (is_fine(rings, n)) break;
  }
  return COPSE_OK;
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static void worst(enum copse_nccl_path *type, enum copse_nccl_path other) {
  if (other > *type) *type = other;
}

/* Channel c from one ring of a packing; backwards with exchanged NICs as the second of twins. */
static copse_status make_channel(struct finder *f, const struct solved *s,
                                 const struct copse_ring *ring, bool backwards,
                                 struct copse_nccl_graph_search *graph,
                                 struct copse_nccl_channel *channel, struct copse_err *err) {
  struct copse_nccl_best *out = f->out;
  const struct copse_nccl_machine *m = &f->machine;
  int n = out->n_gpus;
  COPSE_DO(COPSE_ARRAY(&out->graphs.arena, (size_t)n, channel->devs, err));
  channel->n_gpus = n;
  for (int i = 0; i < n; i++) {
    int at = ring->gpus[backwards ? n - 1 - i : i];
    channel->devs[i] = m->devs[m->members[at]];
    if (i > 0 || s->channels.instance.closed) {
      int last = ring->gpus[(backwards ? 2 * n - i : i + n - 1) % n];
      worst(&graph->type_intra, s->channels.move_type[last * n + at]);
    }
  }
  for (int end = 0; end < 2 && ring->doors[end] >= 0; end++) {
    int door = ring->doors[end], gpu = ring->gpus[end == 0 ? 0 : n - 1];
    channel->nets[backwards ? 1 - end : end] = m->ports[door].dev;
    channel->n_nets = 2;
    bool chain = s->channels.kind >= COPSE_NCCL_CHAINS, in = (end == 0) != backwards;
    if (chain && end == 1) continue; /* a tree's links are at its first GPUs */
    if (chain || in) worst(&graph->type_inter, s->channels.in_type[door * n + gpu]);
    if (chain || !in) worst(&graph->type_inter, s->channels.out_type[door * n + gpu]);
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

static copse_status make_graph(struct finder *f, int id, int kind, int n, struct copse_err *err) {
  static const int patterns[N_KINDS] = {COPSE_NCCL_PATTERN_RING, COPSE_NCCL_PATTERN_RING,
                                        COPSE_NCCL_PATTERN_RING, COPSE_NCCL_PATTERN_TREE,
                                        COPSE_NCCL_PATTERN_BALANCED_TREE};
  struct copse_nccl_graph_search *graph = &f->out->graphs.graph[id];
  const struct copse_ring_packing *packing = packing_of(f, kind, n);
  const struct solved *s = &f->kinds[kind];
  *graph = (struct copse_nccl_graph_search){.id = id,
                                            .pattern = patterns[kind],
                                            .crossnic = kind == COPSE_NCCL_TWIN_RINGS ? 2 : 0,
                                            .n_channels = n,
                                            .speed_intra = packing->speed,
                                            .speed_inter = packing->speed,
                                            .latency_inter = COPSE_Q_ZERO};
  COPSE_DO(COPSE_ARRAY(&f->out->graphs.arena, (size_t)n, graph->channels, err));
  for (int c = 0; c < n; c++)
    COPSE_DO(make_channel(f, s, &s->set.rings[packing->channels[c / s->width]], c % s->width == 1,
                          graph, &graph->channels[c], err));
  graph->same_channels = same_orders(graph);
  f->out->graphs.present[id] = true;
  return COPSE_OK;
}

/* ---- what is reported ------------------------------------------------------------------------ */

static copse_status note_optimum(struct finder *f, int kind, int bound_kind, int n,
                                 struct copse_nccl_optimum *optimum, struct copse_err *err) {
  const struct solved *proof = &f->kinds[bound_kind];
  const struct copse_ring_packing *packing = packing_of(f, kind, n);
  const struct copse_ring_bound *bound = &proof->set.bound;
  int rows = proof->channels.instance.n_rows;
  *optimum = (struct copse_nccl_optimum){.kind = (enum copse_nccl_channel_kind)kind,
                                         .n = n,
                                         .speed = packing->speed,
                                         .bound = bound->GBps,
                                         .bound_exact = bound->exact};
  COPSE_DO(
      copse_q_div((struct copse_q){bound->least, 1}, proof->channels.unit, &optimum->least, err));
  COPSE_DO(copse_q_mul(packing->speed, (struct copse_q){n, 1}, &optimum->GBps, err));
  COPSE_DO(COPSE_ARRAY(&f->out->arena, (size_t)rows, optimum->lengths, err));
  for (int r = 0; r < rows; r++)
    if (bound->lengths[r] > 0)
      optimum->lengths[optimum->n_lengths++] =
          (struct copse_nccl_length){proof->channels.rows[r], bound->lengths[r]};
  return COPSE_OK;
}

static copse_status find(struct finder *f, struct copse_err *err) {
  struct copse_nccl_best *out = f->out;
  struct copse_q GBps;
  int n;
  COPSE_DO(solve_kinds(f, err));
  COPSE_DO(choose(f, &n, err));
  if (n == 0) return COPSE_OK;
  int ring = fastest(f, false, n, &GBps), chain = fastest(f, true, n, &GBps);
  COPSE_DO(make_graph(f, COPSE_NCCL_RING, ring, n, err));
  COPSE_DO(make_graph(f, COPSE_NCCL_TREE, chain, n, err));
  COPSE_DO(note_optimum(f, ring, COPSE_NCCL_RINGS, n, &out->ring, err));
  return note_optimum(f, chain, chain, n, &out->chain, err);
}

copse_status copse_nccl_best_find(const struct copse_topology *topology,
                                  const struct copse_nccl_best_options *options,
                                  struct copse_nccl_best *out, struct copse_err *err) {
  struct finder f = {.out = out};
  int most = options->max_channels;
  *out = (struct copse_nccl_best){0};
  f.most = most > 0 && most < COPSE_NCCL_MAX_CHANNELS ? most : COPSE_NCCL_MAX_CHANNELS;
  copse_status status = copse_nccl_machine_open(topology, &f.machine, err);
  if (status == COPSE_OK) {
    out->n_hosts = options->hosts > 0 ? options->hosts : f.machine.n_hosts;
    out->n_gpus = f.machine.first[1];
    if (f.machine.n_hosts > 1 && out->n_hosts != f.machine.n_hosts)
      status = copse_fail(err, COPSE_INVALID, "%s has %d hosts: %d can't be asked for",
                          topology->name, f.machine.n_hosts, options->hosts);
  }
  if (status == COPSE_OK) status = find(&f, err);
  for (int kind = 0; kind < N_KINDS; kind++) {
    copse_ring_set_free(&f.kinds[kind].set);
    copse_nccl_channels_free(&f.kinds[kind].channels);
  }
  copse_nccl_machine_free(&f.machine);
  return status;
}

void copse_nccl_best_free(struct copse_nccl_best *best) {
  copse_nccl_graphs_free(&best->graphs);
  copse_arena_free(&best->arena);
  *best = (struct copse_nccl_best){0};
}
