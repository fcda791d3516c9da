/*
 * Lower bounds of a demand on two tiers: cuts around a rank or a host, exact; and with latencies,
 * for reports. The arguments are in docs/theory.md.
 */
#include "base/rational.h"
#include "solver/online/internal.h"

/* ---- cuts --------------------------------------------------------------------------------- */

void copse_online_raise_bound(struct copse_online_bound *best, enum copse_online_limit limit,
                              int index, int64_t bytes, int64_t bandwidth) {
  if ((__int128)bytes * best->bandwidth <= (__int128)best->bytes * bandwidth) return;
  best->limit = limit;
  best->index = index;
  best->bytes = bytes;
  best->bandwidth = bandwidth;
}

void copse_online_find_bound(struct copse_online *o) {
  const struct copse_online_model *m = &o->model;
  size_t h = (size_t)o->h, n = (size_t)o->n;
  struct copse_online_bound best = {.index = -1, .bandwidth = 1};
  for (size_t i = 0; i < n; i++) {
    int64_t own = o->bytes[i * n + i], sent = o->to_host[i * h + i / (size_t)o->g];
    o->local = copse_larger(o->local, copse_larger(sent, o->within[i]) - own);
    copse_online_raise_bound(&best, COPSE_ONLINE_RANK_OUT, (int)i, o->out[i] - own, m->rank_out);
    copse_online_raise_bound(&best, COPSE_ONLINE_RANK_IN, (int)i, o->into[i] - own, m->rank_in);
  }
  for (size_t a = 0; a < h; a++) {
    copse_online_raise_bound(&best, COPSE_ONLINE_HOST_OUT, (int)a, o->row[a], m->host_out);
    copse_online_raise_bound(&best, COPSE_ONLINE_HOST_IN, (int)a, o->col[a], m->host_in);
  }
  o->bound = best;
}

/* ---- with latencies ------------------------------------------------------------------------- */

/* What crosses the NICs of one host, one way. */
struct crossing {
  double bytes;
  double turned;  /* of that, to another index than the sender's */
  double at_once; /* of that, what NICs can carry while only bytes of their own rank are there */
  double most;    /* of one rank */
};

static double largest(double a, double b) { return a > b ? a : b; }

/* Bytes of a rank to its like in all other hosts, or from them. */
static int64_t straight(const struct copse_online *o, int rank, bool out) {
  size_t n = (size_t)o->n, r = (size_t)rank;
  int64_t sum = -o->bytes[r * n + r];
  for (size_t other = r % (size_t)o->g; other < n; other += (size_t)o->g)
    sum += out ? o->bytes[r * n + other] : o->bytes[other * n + r];
  return sum;
}

static struct crossing cross(const struct copse_online *o, int host, bool out) {
  const struct copse_online_model *m = &o->model;
  struct crossing c = {.bytes = (double)(out ? o->row[host] : o->col[host])};
  double hop = (double)(m->hop_ns + m->hub_ns) * (double)m->nic / (double)m->scale;
  c.turned = c.bytes;
  for (int r = host * o->g; r < (host + 1) * o->g; r++) {
    int64_t own = out ? o->out[r] - o->to_host[(size_t)r * (size_t)o->h + (size_t)host]
                      : o->into[r] - o->within[r];
    c.turned -= (double)straight(o, r, out);
    c.at_once += (double)own < hop ? (double)own : hop;
    c.most = largest(c.most, (double)own);
  }
  return c;
}

/*
 * For a hop inside the host after the first bytes leave (before the last arrive), a NIC has only
 * what is its own rank's. On rails, what changes its index takes a hop inside before or after: with
 * f ns for the NIC beside these, it carries f by each of both ways, which overlap but for that hop.
 */
static double crossing_ns(const struct copse_online *o, const struct crossing *c) {
  const struct copse_online_model *m = &o->model;
  double per_byte = (double)m->scale / (double)m->nic / o->g;
  double hop = (double)(m->hop_ns + m->hub_ns), way = (double)(m->hop_ns + m->fabric_ns);
  double ns = c->bytes > 0 ? way + c->bytes * per_byte : 0;
  if (!m->separate || c->bytes <= 0) return ns;
  double after = hop + (c->bytes - c->at_once) * per_byte, before = c->most * per_byte * o->g;
  ns = largest(ns, way + (c->bytes > c->at_once ? after : before));
  if (m->flat || c->turned <= 0) return ns;
  double t = c->turned * per_byte;
  return largest(ns, way + hop + largest(t / 2, t - hop));
}

/* On rails all bytes that change their index cross a switch inside some host. */
static void raise_by_turns(const struct copse_online *o, struct copse_online_bound *bound) {
  const struct copse_online_model *m = &o->model;
  int64_t width = copse_smaller(m->intra_out, m->intra_in), all;
  __int128 bytes = 0;
  if (!o->bytes || !m->separate || m->flat || copse_mul_overflows(width, o->n, &all)) return;
  for (int r = 0; r < o->n; r++)
    bytes += o->out[r] - straight(o, r, true) - o->bytes[(size_t)r * (size_t)o->n + (size_t)r];
  if (bytes <= INT64_MAX)
    copse_online_raise_bound(bound, COPSE_ONLINE_TURNS, 0, (int64_t)bytes, all);
}

static double floor_ns(const struct copse_online *o, const struct copse_online_bound *bound) {
  const struct copse_online_model *m = &o->model;
  double ns = 0;
  if (bound->bytes > 0)
    ns = (double)bound->bytes * (double)m->scale / (double)bound->bandwidth +
         (double)(m->hop_ns + (o->h == 1 ? m->hub_ns : copse_smaller(m->hub_ns, m->fabric_ns)));
  for (int a = 0; a < o->h && o->h > 1; a++)
    for (int out = 0; out < 2; out++) {
      struct crossing c = cross(o, a, out);
      ns = largest(ns, crossing_ns(o, &c));
    }
  return ns;
}

void copse_online_bound(const struct copse_online *o, struct copse_online_bound *bound) {
  *bound = o->bound;
  raise_by_turns(o, bound);
  double GBps_seconds = (double)bound->bandwidth / (double)o->model.scale;
  bound->seconds = (double)bound->bytes / 1e9 / GBps_seconds;
  bound->with_latency = o->bytes ? floor_ns(o, bound) / 1e9 : 0;
}
