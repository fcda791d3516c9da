/*
 * Causes that measurements and logs show: results that are wrong, links faster or slower than their
 * constants, few channels, transports that are not the best there is, settings that bind NCCL's
 * hands, sizes with a bad choice, other groups on the same hosts. docs/nccl.md, "Causes that it
 * looks for".
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/types.h"
#include "nccl/audit/audit.h"
#include "nccl/policy.h"

struct measured {
  const struct copse_audit_input *in;
  struct copse_audit *audit;
  const struct copse_audit_row *row; /* of allreduce */
  struct copse_nccl_verdict ring;
  double best_links; /* bus bandwidth that links allow the fastest algorithm that NCCL has */
  struct copse_err *err;
};

#define say(m, ...) copse_arena_printf(&(m)->audit->arena, __VA_ARGS__)

static double share_of(const struct measured *m, double lost) {
  return m->row->bound > 0 ? lost / m->row->bound : 0;
}

/* Returns what is missing between NCCL's graph, or where that is not known the bound, and the
 * measurement; 0 without one. */
static double lost(const struct measured *m) {
  double gap = (isfinite(m->row->nccl) ? m->row->nccl : m->row->bound) - m->row->measured;
  return isfinite(gap) && gap > 0 ? share_of(m, gap) : 0;
}

static double busbw_of(const struct measured *m, double time) {
  return time > 0 ? copse_collective_bus_factor(COPSE_ALLREDUCE, m->in->topology->n_ranks) / time
                  : NAN;
}

static const char *size_text(struct measured *m, int64_t bytes) {
  static const char *const units[] = {"bytes", "KiB", "MiB", "GiB"};
  int unit = 0;
  while (unit < 3 && bytes >= 1024 && bytes % 1024 == 0) {
    bytes /= 1024;
    unit++;
  }
  return say(m, "%" PRId64 " %s", bytes, units[unit]);
}

/* ---- results --------------------------------------------------------------------------------- */

static copse_status find_wrong(struct measured *m) {
  for (int i = 0; i < m->in->n_tests; i++) {
    const struct copse_tests *t = &m->in->tests[i];
    int64_t wrong = 0, rows = 0;
    for (int r = 0; r < t->n_rows; r++) {
      int64_t here = (t->rows[r].out.wrong > 0 ? t->rows[r].out.wrong : 0) +
                     (t->rows[r].in.wrong > 0 ? t->rows[r].in.wrong : 0);
      wrong += here;
      rows += here > 0;
    }
    if (rows == 0) continue;
    COPSE_DO(copse_audit_add(
        m->audit, COPSE_STEP_OWN, 1, "results are wrong",
        say(m, "nccl-tests counted %" PRId64 " wrong elements in %" PRId64 " of %d rows", wrong,
            rows, t->n_rows),
        "run the test on fewer GPUs, or with NCCL_P2P_DISABLE=1, until the GPU or link is found; "
        "no "
        "bandwidth counts before",
        m->err));
  }
  return COPSE_OK;
}

/* ---- links and channels ---------------------------------------------------------------------- */

/* Finds a measurement above what links allow: the narrowest is faster than the topology has it. */
static copse_status find_faster_link(struct measured *m) {
  const struct copse_topology *t = m->in->topology;
  int link = m->ring.link;
  if (link < 0 || !(m->row->measured > m->best_links * (1 + 1 - AT_LIMIT))) return COPSE_OK;
  bool socket = strcmp(t->nodes[t->links[link].src].type, "cpu") == 0 &&
                strcmp(t->nodes[t->links[link].dst].type, "cpu") == 0;
  double needed = copse_q_to_double(m->ring.load[link]) * m->row->measured /
                  copse_collective_bus_factor(COPSE_ALLREDUCE, t->n_ranks);
  return copse_audit_add(
      m->audit, COPSE_STEP_OWN, share_of(m, m->row->measured - m->best_links),
      socket ? "the link between the sockets is faster than NCCL guesses"
             : "a link is faster than the topology has it",
      say(m,
          "%.4g GB/s were measured, which put %.4g GB/s on %s; by its constant the ring ends at "
          "%.4g, and NCCL makes no more channels than that",
          m->row->measured, needed, copse_audit_link(m->in, m->audit, link), m->best_links),
      say(m,
          "measure it (nvbandwidth -j, and --profile with its output), then %s; or "
          "NCCL_MIN_NCHANNELS of twice what it has now",
          m->in->tune),
      m->err);
}

/* Returns the bus bandwidth that the links allow without the links between sockets, whose speed
 * NCCL guesses. */
static double without_sockets(const struct measured *m, int *link) {
  const struct copse_topology *t = m->in->topology;
  double worst = 0;
  *link = -1;
  for (int i = 0; i < t->n_links; i++) {
    const struct copse_link *l = &t->links[i];
    double time = copse_q_to_double(m->ring.load[i]) / copse_q_to_double(l->bandwidth);
    bool socket =
        strcmp(t->nodes[l->src].type, "cpu") == 0 && strcmp(t->nodes[l->dst].type, "cpu") == 0;
    if (socket || time <= worst) continue;
    worst = time;
    *link = i;
  }
  return busbw_of(m, worst);
}

static copse_status find_few_channels(struct measured *m) {
  int channels = m->in->comm && m->in->comm->n_channels > 0 ? m->in->comm->n_channels
                                                            : m->in->judge->joined.n_channels;
  int link;
  double limit = without_sockets(m, &link);
  if (channels > FEW_CHANNELS || link < 0 || !(m->row->measured < AT_LIMIT * limit))
    return COPSE_OK;
  return copse_audit_add(
      m->audit, COPSE_STEP_OWN, share_of(m, limit - m->row->measured), "few channels",
      say(m,
          "%d channel%s, %.4g GB/s of bus bandwidth each; but for links between sockets, whose "
          "speed NCCL guesses, these rings could have %.4g, until %s is full",
          channels, COPSE_S(channels), m->row->measured / channels, limit,
          copse_audit_link(m->in, m->audit, link)),
      say(m, "NCCL_MIN_NCHANNELS=%d, then measure again (a channel is one thread block of a GPU)",
          channels <= 2 ? 8 : 16),
      m->err);
}

/* ---- transports ------------------------------------------------------------------------------ */

struct transports {
  int p2p, shm, net, shm_near, no_gdr, sockets;
  const struct copse_log_edge *near, *plain; /* examples */
};

static copse_status count_edge(struct measured *m, const int *place, const struct copse_log_edge *e,
                               struct transports *n) {
  const struct copse_topology *t = m->in->topology;
  bool ranks = e->src >= 0 && e->dst >= 0 && e->src < t->n_ranks && e->dst < t->n_ranks;
  if (e->connection > 0 || !ranks) return COPSE_OK;
  n->p2p += e->via == COPSE_VIA_P2P || e->via == COPSE_VIA_MNNVL;
  n->net += e->via == COPSE_VIA_NET;
  n->sockets += e->via == COPSE_VIA_NET && strcmp(e->net, "Socket") == 0;
  if (e->via == COPSE_VIA_NET && !e->gdr && n->no_gdr++ == 0) n->plain = e;
  if (e->via != COPSE_VIA_SHM) return COPSE_OK;
  int a = place[e->src], b = place[e->dst];
  const struct copse_nccl_route *route;
  n->shm++;
  if (m->in->machine->host_of_rank[a] != m->in->machine->host_of_rank[b]) return COPSE_OK;
  COPSE_DO(
      copse_nccl_find_route(m->in->machine, t->rank_nodes[a], t->rank_nodes[b], &route, m->err));
  if (route->type <= COPSE_NCCL_PATH_PXB && n->shm_near++ == 0) n->near = e;
  return COPSE_OK;
}

static copse_status add_transports(struct measured *m, const struct transports *n) {
  if (n->shm_near > 0)
    COPSE_DO(copse_audit_add(
        m->audit, COPSE_STEP_MEASURED, lost(m), "GPUs on one switch talk through host memory",
        say(m,
            "%d of %d connections in hosts are SHM between GPUs that NVLink or a PCIe switch "
            "joins, such as rank %d to %d",
            n->shm_near, n->p2p + n->shm, n->near->src, n->near->dst),
        "peer to peer access: unset NCCL_P2P_DISABLE and NCCL_P2P_LEVEL, turn ACS of the PCIe "
        "switches off (nvidia-smi topo -p2p r shows it)",
        m->err));
  if (n->sockets > 0)
    COPSE_DO(copse_audit_add(
        m->audit, COPSE_STEP_MEASURED, lost(m), "the network is TCP sockets",
        say(m, "%d of %d connections between hosts are NET/Socket", n->sockets, n->net),
        "the NICs' own plugin or IB verbs (NCCL_DEBUG=INFO says why NET/IB is "
        "not used; NCCL_IB_DISABLE must not be set)",
        m->err));
  if (n->no_gdr > n->sockets)
    COPSE_DO(copse_audit_add(
        m->audit, COPSE_STEP_MEASURED, lost(m), "data between GPU and NIC go through host memory",
        say(m, "%d of %d connections between hosts are without GDRDMA, such as rank %d to %d",
            n->no_gdr, n->net, n->plain->src, n->plain->dst),
        "load nvidia-peermem (or use DMA-BUF), and see NCCL_NET_GDR_LEVEL", m->err));
  return COPSE_OK;
}

static copse_status find_transports(struct measured *m) {
  COPSE_AT_END(copse_free_at) int *place = NULL;
  struct transports n = {0};
  bool by_bus;
  if (!m->in->comm || m->in->comm->n_ranks != m->in->topology->n_ranks) return COPSE_OK;
  COPSE_DO(copse_calloc((size_t)m->in->comm->n_ranks, sizeof *place, &place, m->err));
  COPSE_DO(copse_nccl_place_ranks(m->in->comm, m->in->machine, place, &by_bus, m->err));
  for (int i = 0; i < m->in->comm->n_edges; i++)
    COPSE_DO(count_edge(m, place, &m->in->comm->edges[i], &n));
  return add_transports(m, &n);
}

/* ---- what the log says ----------------------------------------------------------------------- */

static copse_status find_settings(struct measured *m) {
  static const char *const binding[] = {
      "NCCL_ALGO=",        "NCCL_PROTO=",         "NCCL_P2P_DISABLE=", "NCCL_SHM_DISABLE=",
      "NCCL_IB_DISABLE=",  "NCCL_NET_GDR_LEVEL=", "NCCL_P2P_LEVEL=",   "NCCL_MAX_NCHANNELS=",
      "NCCL_MAX_CTAS=",    "NCCL_NVLS_ENABLE=",   "NCCL_NTHREADS=",    "NCCL_BUFFSIZE=",
      "NCCL_PXN_DISABLE=", "NCCL_CROSS_NIC=",     "NCCL_IB_HCA=",      "NCCL_SOCKET_IFNAME=",
      "NCCL_NVB_DISABLE="};
  COPSE_AT_END(copse_text_free) struct copse_text found = {0};
  int n = 0;
  for (int i = 0; i < m->in->log->n_settings; i++) {
    const struct copse_log_said *s = &m->in->log->settings[i];
    for (size_t k = 0; k < sizeof binding / sizeof *binding; k++)
      if (strncmp(s->text, binding[k], strlen(binding[k])) == 0 && n++ < 8)
        copse_text_add(&found, "%s%.80s", n > 1 ? ", " : "", s->text);
  }
  if (n == 0) return COPSE_OK;
  return copse_audit_add(m->audit, COPSE_STEP_OWN, 0, "settings bind NCCL's choice",
                         say(m, "%d in the log: %s%s", n, found.data, n > 8 ? ", .." : ""),
                         "measure without them, one by one", m->err);
}

static copse_status find_warnings(struct measured *m) {
  for (int i = 0; i < m->in->log->n_warnings && i < 3; i++) {
    const struct copse_log_said *s = &m->in->log->warnings[i];
    COPSE_DO(
        copse_audit_add(m->audit, COPSE_STEP_OWN, 0, "NCCL warned",
                        say(m, "%" PRId64 " line%s: %.200s", s->times, COPSE_S(s->times), s->text),
                        "mend what it names, then measure again", m->err));
  }
  return COPSE_OK;
}

static bool same_text(const char *a, const char *b) { return !a || !b || strcmp(a, b) == 0; }

/* Whether a loss before the measurement is explained. */
static bool has_cause(const struct measured *m) {
  for (int i = 0; i < m->audit->n_findings; i++) {
    const struct copse_audit_finding *f = &m->audit->findings[i];
    if (f->step == COPSE_STEP_MEASURED && f->share > 0) return true;
  }
  return false;
}

/* Finds communicators of other ranks on the same hosts, at work in the same job; they explain what
 * nothing else does. */
static copse_status find_groups(struct measured *m) {
  const struct copse_nccl_log *log = m->in->log;
  int others = 0, shared = 0, most = 0;
  for (int c = 0; c < log->n_comms; c++) {
    const struct copse_log_comm *o = &log->comms[c];
    bool same = false;
    if (o == m->in->comm || o->n_ranks < 2 || !same_text(o->version, m->in->comm->version))
      continue; /* itself, or of another job */
    for (int i = 0; i < o->n_known && !same; i++)
      for (int k = 0; k < m->in->comm->n_known && !same; k++)
        same = strcmp(o->ranks[i].host, m->in->comm->ranks[k].host) == 0;
    others++;
    shared += same;
    if (same && o->n_ranks > most) most = o->n_ranks;
  }
  if (shared == 0) return COPSE_OK;
  double share = has_cause(m) || m->row->measured >= AT_LIMIT * m->row->nccl ? 0 : lost(m);
  const char *loss = share > 0 ? say(m, "; %.4g GB/s were measured, %.4g less than could be",
                                     m->row->measured, share * m->row->bound)
                               : "";
  return copse_audit_add(
      m->audit, COPSE_STEP_MEASURED, share, "other groups of ranks use the same links",
      say(m,
          "%d of %d other communicators in the log have ranks on the same hosts, the largest has "
          "%d%s",
          shared, others, most, loss ? loss : ""),
      "what they get together: copse solve TOPO -c allreduce --groups FILE; measure one alone",
      m->err);
}

static copse_status find_other_rings(struct measured *m) {
  const struct copse_nccl_joined *j = &m->in->judge->joined;
  if (m->in->channels_differ == 0) return COPSE_OK;
  return copse_audit_add(
      m->audit, COPSE_STEP_OWN, 0, "the job ran other rings than the graph dump has",
      say(m, "%d of %d channels' rings in the log are not those that the dump joins to",
          m->in->channels_differ, j->n_channels),
      "judged are the log's; give the dump of the same job", m->err);
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static double time_busbw(const struct copse_tests_row *row) {
  double out = row->out.present ? copse_q_to_double(row->out.busbw) : 0;
  double in = row->in.present ? copse_q_to_double(row->in.busbw) : 0;
  return out > in ? out : in;
}

/* Returns "RING LL128" of what the log says for a size, or NULL. */
static const char *pick_text(struct measured *m, const char *collective, int64_t bytes) {
  for (int i = 0; m->in->comm && i < m->in->comm->n_picks; i++) {
    const struct copse_log_pick *p = &m->in->comm->picks[i];
    copse_collective a, b;
    bool same = copse_collective_from_name(p->function, &a) &&
                copse_collective_from_name(collective, &b) && a == b;
    if (p->bytes == bytes && (same || p->function[0] == '\0'))
      return say(m, "%s %s", p->algorithm, p->protocol);
  }
  return NULL;
}

/* Finds the deepest fall of bus bandwidth from one size to the next. */
static copse_status find_dip(struct measured *m, const struct copse_tests *t) {
  double deepest = SLOW;
  int at = -1;
  for (int i = 1; i < t->n_rows; i++) {
    const struct copse_tests_row *a = &t->rows[i - 1], *b = &t->rows[i];
    double before = time_busbw(a), after = time_busbw(b);
    bool next = strcmp(a->collective, b->collective) == 0 && a->bytes < b->bytes && before > 0;
    if (!next || after <= 0 || after / before >= deepest) continue;
    deepest = after / before;
    at = i;
  }
  if (at < 0) return COPSE_OK;
  const struct copse_tests_row *a = &t->rows[at - 1], *b = &t->rows[at];
  const char *before = pick_text(m, a->collective, a->bytes);
  const char *after = pick_text(m, b->collective, b->bytes);
  const char *picks =
      before && after ? say(m, "; the log has %s and %s for them", before, after) : "";
  return copse_audit_add(
      m->audit, COPSE_STEP_OWN, share_of(m, time_busbw(a) - time_busbw(b)),
      say(m, "a bad choice for messages of %s", size_text(m, b->bytes)),
      say(m, "%.4g GB/s at %s, %.4g at %s%s", time_busbw(a), size_text(m, a->bytes), time_busbw(b),
          size_text(m, b->bytes), picks ? picks : ""),
      say(m, "a row for that size in the tuner's table (tuner.csv of %s)", m->in->tune), m->err);
}

/* ---- links that nvbandwidth measured --------------------------------------------------------- */

COPSE_ORDER(by_value, double, COPSE_COMPARE(*a, *b))

/* A way between two GPUs, or a GPU and its CPU, and what it had. */
struct timed_way {
  int from, to; /* nodes */
  double GBps;
  const struct copse_nccl_route *route;
};

struct timed_ways {
  int n;
  struct timed_way *ways;
  double *sorted; /* [n] */
};

/* Whether two ways are of one kind, and so should be as fast. */
static bool are_alike(const struct timed_way *a, const struct timed_way *b) {
  return a->route->type == b->route->type && copse_q_eq(a->route->width, b->route->width);
}

static double median_alike(const struct timed_ways *all, const struct timed_way *of) {
  int n = 0;
  for (int i = 0; i < all->n; i++)
    if (are_alike(&all->ways[i], of)) all->sorted[n++] = all->ways[i].GBps;
  COPSE_SORT(all->sorted, n, by_value);
  return all->sorted[n / 2];
}

/* Returns the most that a slow way can cost: the loss between NCCL's graph and the measurement,
 * where known. */
static double cost_of_slow(const struct measured *m, double part) {
  double most = isfinite(m->row->nccl) ? m->row->nccl : m->row->bound;
  double cost = isfinite(most) ? share_of(m, most * (1 - part)) : 0;
  return isfinite(m->row->measured) ? fmin(cost, lost(m)) : cost;
}

static copse_status add_slow(struct measured *m, const struct timed_way *worst, double median,
                             int slow, int counted) {
  const struct copse_topology *t = m->in->topology;
  return copse_audit_add(
      m->audit, COPSE_STEP_MEASURED, cost_of_slow(m, worst->GBps / median), "slow pairs of GPUs",
      say(m,
          "%d of %d ways in nvbandwidth; the slowest is %s -> %s, %.4g GB/s where its like have "
          "%.4g",
          slow, counted, t->nodes[worst->from].id, t->nodes[worst->to].id, worst->GBps, median),
      "nvidia-smi nvlink -e and dmesg for errors of that link, and the PCIe width and speed under "
      "load (lspci -vv: LnkSta); until then --derate the link here",
      m->err);
}

/* Returns the narrowest link of a way. */
static int narrowest_of(const struct measured *m, const struct copse_nccl_route *route) {
  int link = route->hops[0].link;
  for (int i = 1; i < route->n_hops; i++)
    if (copse_q_cmp(m->in->topology->links[route->hops[i].link].bandwidth,
                    m->in->topology->links[link].bandwidth) < 0)
      link = route->hops[i].link;
  return link;
}

/* Adds ways of one kind that are slow all alike, against the topology's figure. */
static copse_status add_slow_kind(struct measured *m, const struct timed_ways *all,
                                  const struct timed_way *of, double median) {
  const struct copse_topology *t = m->in->topology;
  double width = copse_q_to_double(of->route->width);
  int n = 0;
  for (int i = 0; i < all->n; i++) n += are_alike(&all->ways[i], of);
  return copse_audit_add(
      m->audit, COPSE_STEP_MEASURED, cost_of_slow(m, median / width),
      "links are slower than the topology has them, all alike",
      say(m,
          "half of the %d ways such as %s -> %s have %.4g GB/s or less in nvbandwidth; by %s they "
          "should have %.4g",
          n, t->nodes[of->from].id, t->nodes[of->to].id, median,
          copse_audit_link(m->in, m->audit, narrowest_of(m, of->route)), width),
      "the width and speed of links under load (lspci -vv: LnkSta; nvidia-smi nvlink -s), clocks, "
      "and whether this is the machine of the topology; --profile with nvbandwidth's output has "
      "everything here go by the measured speeds",
      m->err);
}

static copse_status judge_ways(struct measured *m, const struct timed_ways *all) {
  const struct timed_way *worst = NULL;
  int slow = 0;
  double worst_part = SLOW, worst_median = 0;
  for (int i = 0; i < all->n; i++) {
    const struct timed_way *way = &all->ways[i];
    double median = median_alike(all, way), width = copse_q_to_double(way->route->width);
    int first = 0;
    while (!are_alike(&all->ways[first], way)) first++;
    if (first == i && median < SLOW * width) COPSE_DO(add_slow_kind(m, all, way, median));
    slow += way->GBps < SLOW * median;
    if (way->GBps / median >= worst_part) continue;
    worst_part = way->GBps / median;
    worst_median = median;
    worst = way;
  }
  return worst ? add_slow(m, worst, worst_median, slow, all->n) : COPSE_OK;
}

static copse_status add_way(struct measured *m, int from, int to, struct copse_q GBps,
                            struct timed_ways *all) {
  struct timed_way *way = &all->ways[all->n];
  if (GBps.num <= 0 || from < 0 || to < 0 || from == to) return COPSE_OK;
  *way = (struct timed_way){.from = from, .to = to, .GBps = copse_q_to_double(GBps)};
  copse_status status = copse_nccl_find_route(m->in->machine, from, to, &way->route,
                                              &(struct copse_err)COPSE_ERR_INIT);
  if (status == COPSE_INFEASIBLE) return COPSE_OK; /* the topology leaves such ways out */
  if (status != COPSE_OK) return copse_fail(m->err, status, "no way can be found");
  all->n += way->route->n_hops > 0;
  return COPSE_OK;
}

/* Finds the CPU of host 0 that is nearest to a GPU; -1: the topology has none. */
static copse_status find_cpu(struct measured *m, int gpu, int *cpu) {
  const struct copse_topology *t = m->in->topology;
  const struct copse_nccl_route *route, *best = NULL;
  *cpu = -1;
  for (int v = 0; gpu >= 0 && v < t->n_nodes; v++) {
    if (strcmp(t->nodes[v].type, "cpu") != 0 ||
        m->in->machine->host_of_node[v] != m->in->machine->host_of_node[gpu])
      continue;
    copse_status status =
        copse_nccl_find_route(m->in->machine, v, gpu, &route, &(struct copse_err)COPSE_ERR_INIT);
    if (status == COPSE_INFEASIBLE) continue;
    if (status != COPSE_OK) return copse_fail(m->err, status, "no way can be found");
    if (best && route->n_hops >= best->n_hops) continue;
    best = route;
    *cpu = v;
  }
  return COPSE_OK;
}

/* Finds slow links between GPUs, then between GPUs and their CPUs. The two kinds are compared
 * apart. */
static copse_status find_slow_links(struct measured *m) {
  const struct copse_nvbandwidth *report = m->in->nvbandwidth;
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  size_t n = (size_t)report->n_devices, most = n * n + 2 * n;
  struct copse_q *pairs, *hosts[2];
  struct timed_ways between = {0}, to_cpu = {0};
  int *node;
  COPSE_DO(COPSE_ARRAY(&scratch, n * n, pairs, m->err));
  COPSE_DO(COPSE_ARRAYS(&scratch, n, struct copse_q, m->err, &hosts[0], &hosts[1]));
  COPSE_DO(COPSE_ARRAYS(&scratch, most, struct timed_way, m->err, &between.ways, &to_cpu.ways));
  COPSE_DO(COPSE_ARRAYS(&scratch, most, double, m->err, &between.sorted, &to_cpu.sorted));
  COPSE_DO(COPSE_ARRAY(&scratch, n, node, m->err));
  copse_nvbandwidth_pairs(report, pairs);
  copse_nvbandwidth_hosts(report, hosts[0], hosts[1]);
  for (size_t i = 0; i < n; i++) {
    int rank = copse_nccl_has_buses(m->in->machine)
                   ? copse_nccl_rank_of_bus(m->in->machine, report->devices[i].bus)
               : n == (size_t)m->in->machine->first[1] ? m->in->machine->members[i]
                                                       : -1;
    node[i] = rank < 0 ? -1 : m->in->topology->rank_nodes[rank];
  }
  for (size_t i = 0; i < n * n; i++)
    COPSE_DO(add_way(m, node[i / n], node[i % n], pairs[i], &between));
  for (size_t i = 0; i < n; i++) {
    int cpu;
    COPSE_DO(find_cpu(m, node[i], &cpu));
    COPSE_DO(add_way(m, cpu, node[i], hosts[0][i], &to_cpu));
    COPSE_DO(add_way(m, node[i], cpu, hosts[1][i], &to_cpu));
  }
  COPSE_DO(judge_ways(m, &between));
  return judge_ways(m, &to_cpu);
}

static copse_status find_ras(struct measured *m) {
  const struct copse_ras *ras = m->in->ras;
  for (int i = 0; i < ras->n_lines && i < 3; i++)
    COPSE_DO(copse_audit_add(m->audit, COPSE_STEP_OWN, 0, "NCCL's RAS service reports trouble",
                             say(m, "%d lines, such as: %.200s", ras->n_lines, ras->lines[i]),
                             "look at the ranks it names before anything is measured", m->err));
  return COPSE_OK;
}

/* Makes the text "call 12, all_reduce of 64 MiB (started)". */
static const char *call_text(struct measured *m, const struct copse_flight *f) {
  return say(m, "call %lld, %.60s of %lld bytes (%.20s)", (long long)f->done + 1, f->waits,
             (long long)f->waits_bytes, f->state);
}

/* Finds a group's processes of the flight recorder, of which some wait: who is behind. */
static copse_status find_stuck(struct measured *m, const struct copse_flight *all, int n) {
  const struct copse_flight *last = NULL, *first = &all[0];
  int waiting = 0;
  for (int i = 0; i < n; i++) {
    waiting += all[i].waits[0] != '\0';
    if (all[i].done > first->done) first = &all[i];
    bool behind = !last || all[i].enqueued < last->enqueued ||
                  (all[i].enqueued == last->enqueued && all[i].done < last->done);
    if (behind) last = &all[i];
  }
  if (waiting == 0) return COPSE_OK;
  const struct copse_flight *named = first->waits[0] ? first : last;
  const char *call = call_text(m, named), *ranks = "";
  if (first->n_ranks > n)
    ranks = say(m, "; %d of %d ranks' files were not given", first->n_ranks - n, first->n_ranks);
  return copse_audit_add(
      m->audit, COPSE_STEP_OWN, 0, "calls that did not complete, by PyTorch's flight recorder",
      say(m,
          "group %.60s: %d of %d processes wait, the furthest for %s; the one that is most behind, "
          "%.200s, has enqueued call %lld and completed call %lld%s",
          first->group, waiting, n, call ? call : "", last->file, (long long)last->enqueued,
          (long long)last->done, ranks ? ranks : ""),
      "look at what the process that is behind does (its stack is in the dump), before anything is "
      "measured",
      m->err);
}

static copse_status find_flights(struct measured *m) {
  const struct copse_flight *all = m->in->calls->flights;
  for (int i = 0, n; i < m->in->calls->n_flights; i += n) {
    for (n = 1; i + n < m->in->calls->n_flights && all[i + n].group == all[i].group;) n++;
    COPSE_DO(find_stuck(m, all + i, n));
  }
  return COPSE_OK;
}

/* ---- gaps without a cause -------------------------------------------------------------------- */

/* Returns what to do about a loss that nothing explains: what was not given first. */
static const char *next_step(const struct measured *m, const struct copse_audit_row *row) {
  if (row->bytes < MEASURED_BYTES)
    return "measure longer messages (nccl-tests with -e 8G): bandwidth of short ones is latency";
  if (!m->in->log)
    return "run it with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,TUNING,NET and give its "
           "output, which says what transports, channels and algorithms ran";
  if (!m->in->nvbandwidth) return "run nvbandwidth -j, and give its output: links may be slow";
  return "look for other jobs on the same links, clocks that are held down (nvidia-smi -q -d "
         "PERFORMANCE) and errors of links (nvidia-smi nvlink -e)";
}

/* Finds the collective that falls most short of what NCCL's graph allows, where nothing above says
 * why. */
static copse_status find_unexplained(struct measured *m) {
  const struct copse_audit_row *worst = NULL;
  for (int i = 0; i < m->audit->n_rows; i++) {
    const struct copse_audit_row *row = &m->audit->rows[i];
    if (!(row->measured < AT_LIMIT * row->nccl)) continue;
    if (!worst || row->measured / row->nccl < worst->measured / worst->nccl) worst = row;
  }
  if (!worst || has_cause(m)) return COPSE_OK;
  return copse_audit_add(
      m->audit, COPSE_STEP_MEASURED, (worst->nccl - worst->measured) / worst->bound,
      "measured is less than NCCL's graph allows, and nothing that was given says why",
      say(m, "%s: %.4g GB/s at %s, %.0f %% of %.4g", copse_collective_name(worst->collective),
          worst->measured, size_text(m, worst->bytes), 100 * worst->measured / worst->nccl,
          worst->nccl),
      next_step(m, worst), m->err);
}

/* ---- all ------------------------------------------------------------------------------------- */

static copse_status find_links(struct measured *m) {
  for (int a = 0; a < COPSE_NCCL_GRAPHS; a++) {
    struct copse_nccl_verdict v;
    if (!copse_nccl_judge_has(m->in->judge, (enum copse_nccl_graph_id)a, COPSE_ALLREDUCE)) continue;
    COPSE_DO(copse_nccl_judge(m->in->judge, (enum copse_nccl_graph_id)a, COPSE_ALLREDUCE, 0, &v,
                              m->err));
    double links = copse_audit_busbw(m->in->topology, COPSE_ALLREDUCE, v.links_time);
    bool may_run = a == (int)m->row->algorithm || a > COPSE_NCCL_TREE; /* sums in switches */
    if (may_run && !(m->best_links >= links)) m->best_links = links;
    if (a == COPSE_NCCL_RING) m->ring = v;
  }
  if (m->ring.load && isfinite(m->row->measured)) {
    COPSE_DO(find_faster_link(m));
    COPSE_DO(find_few_channels(m));
  }
  return COPSE_OK;
}

copse_status copse_audit_measured_causes(const struct copse_audit_input *in,
                                         struct copse_audit *audit, struct copse_err *err) {
  struct measured measured = {
      .in = in, .audit = audit, .err = err, .best_links = NAN, .ring = {.link = -1}};
  struct measured *m = &measured;
  for (int i = 0; i < audit->n_rows; i++)
    if (audit->rows[i].collective == COPSE_ALLREDUCE) m->row = &audit->rows[i];
  if (!m->row || in->topology->n_ranks < 2) return COPSE_OK;
  COPSE_DO(find_wrong(m));
  if (in->judge) COPSE_DO(find_links(m));
  if (in->judge) COPSE_DO(find_other_rings(m));
  COPSE_DO(find_transports(m));
  if (in->nvbandwidth) COPSE_DO(find_slow_links(m));
  if (in->comm) COPSE_DO(find_groups(m));
  COPSE_DO(find_unexplained(m));
  for (int i = 0; i < in->n_tests; i++) COPSE_DO(find_dip(m, &in->tests[i]));
  if (in->ras) COPSE_DO(find_ras(m));
  if (in->calls) COPSE_DO(find_flights(m));
  if (!in->log) return COPSE_OK;
  COPSE_DO(find_settings(m));
  return find_warnings(m);
}
