/*
 * Certificates of rings and chains, read and checked. A link's load is worked out step by step from
 * the channels' lists; lengths of steps from the same steps. See rings.h. docs/nccl-rings.md, "How,
 * and what is proved".
 */
#include "verify/rings.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "verify/ways.h"

#define MOST_HOSTS 65536
#define MOST_CHANNELS 1024
/* Hosts with lengths: as many as have unlike places in the trees. */
#define MOST_PLACES 4

/* A host's links to others in the two trees, in halves of a channel. */
struct place {
  int up, child[2];
};

struct length {
  int host, row;
  int64_t value;
};

/* Rings or chains as stated. */
struct part {
  bool chains;
  const char *what;
  int kind, n; /* crossnic or pattern; channels */
  int *gpus;   /* [n * n_gpus] by place in the host */
  int *nics;   /* [n * 2] */
  struct copse_q speed, GBps, bound, least;
  struct length *lengths;
  int n_lengths;
};

struct checker {
  const char *label;
  const struct copse_topology *topology;
  struct copse_json json;
  struct copse_verify_ways ways;
  int n_hosts;
  struct place *places; /* [n_hosts] */
  int *rails[2];        /* [channels * 2] of rings', of chains' NICs in all hosts; NULL: not yet */
  int *row_of;          /* [topology n_links] among its host's, -1: not inside one */
  /* of the hosts alike whose channels are looked at: */
  int first, n_alike, *alike; /* the first, whose parts are named; [n_alike] */
  int n_gpus, n_nics;         /* of one such host */
  int n_links, n_rows;        /* links inside a host; rows: these, then cables in and out of NICs */
  struct copse_q *load;       /* [n_rows] */
  struct copse_arena arena;
};

enum step { MOVE, FIRST, SECOND, LAST };

/* ---- hosts ----------------------------------------------------------------------------------- */

static int parent_of(int h, int hosts) {
  int bit = h & -h;
  if (h == 0) return -1;
  return ((h ^ bit) | bit << 1) < hosts ? (h ^ bit) | bit << 1 : h ^ bit;
}

/* Adds links of every host in one tree, in which host h stands at `at(h)`. */
static void add_tree(struct place *places, int hosts, bool second) {
  for (int h = 0; h < hosts; h++) {
    int at = !second ? h : hosts % 2 == 0 ? hosts - 1 - h : (h + hosts - 1) % hosts;
    int parent = parent_of(at, hosts);
    if (parent < 0) continue;
    int there = !second ? parent : hosts % 2 == 0 ? hosts - 1 - parent : (parent + 1) % hosts;
    places[h].up++;
    places[there].child[at > parent]++;
  }
}

/* Returns which of the topology's hosts stands for a host of the certificate. */
static int stand_in(const struct checker *c, int host) { return c->ways.n_hosts > 1 ? host : 0; }

static int gpu_node(const struct checker *c, int host, int gpu) {
  return c->ways.gpus[c->ways.first_gpu[host] + gpu];
}

static int nic_node(const struct checker *c, int host, int nic) {
  return c->ways.nics[c->ways.first_nic[host] + nic];
}

/* Returns the link of a row: the rows of a host inside of it are its links in their order. */
static int link_of(const struct checker *c, int host, int row) {
  return c->ways.inside.item[c->ways.inside.first[host] + row];
}

static copse_status number_rows(struct checker *c, struct copse_err *err) {
  const struct copse_adjacency *inside = &c->ways.inside;
  COPSE_DO(COPSE_ARRAY(&c->arena, (size_t)c->topology->n_links, c->row_of, err));
  for (int i = 0; i < c->topology->n_links; i++) c->row_of[i] = -1;
  for (int h = 0; h < c->ways.n_hosts; h++)
    for (int k = inside->first[h]; k < inside->first[h + 1]; k++)
      c->row_of[inside->item[k]] = k - inside->first[h];
  return COPSE_OK;
}

/* Takes hosts alike; all must have as many of all parts. */
static copse_status take_hosts(struct checker *c, const int *hosts, int n, struct copse_err *err) {
  const struct copse_verify_ways *w = &c->ways;
  c->first = stand_in(c, hosts[0]);
  c->n_alike = n;
  COPSE_DO(COPSE_ARRAY(&c->arena, (size_t)n, c->alike, err));
  memcpy(c->alike, hosts, (size_t)n * sizeof *hosts);
  c->n_gpus = w->first_gpu[c->first + 1] - w->first_gpu[c->first];
  c->n_nics = w->first_nic[c->first + 1] - w->first_nic[c->first];
  c->n_links = w->inside.first[c->first + 1] - w->inside.first[c->first];
  c->n_rows = c->n_links + 2 * c->n_nics;
  if (c->n_gpus > COPSE_VERIFY_MOST_GPUS)
    return copse_fail(err, COPSE_UNSUPPORTED,
                      "%s: rings of hosts of %d GPUs are not checked: at most %d", c->label,
                      c->n_gpus, COPSE_VERIFY_MOST_GPUS);
  for (int i = 0; i < n; i++) {
    int h = stand_in(c, hosts[i]);
    if (w->inside.first[h + 1] - w->inside.first[h] != c->n_links ||
        w->first_gpu[h + 1] - w->first_gpu[h] != c->n_gpus ||
        w->first_nic[h + 1] - w->first_nic[h] != c->n_nics)
      return copse_fail(err, COPSE_REFUTED, "%s: host %d of %s has other parts than host %d",
                        c->label, h, c->topology->name, c->first);
  }
  return COPSE_ARRAY(&c->arena, (size_t)c->n_rows, c->load, err);
}

/* Sums the cable of a NIC in one direction; zero: the topology has no network. */
static copse_status cable_bandwidth(const struct checker *c, int host, int row, struct copse_q *sum,
                                    struct copse_err *err) {
  int node = nic_node(c, host, (row - c->n_links) / 2);
  bool out = (row - c->n_links) % 2 == 1;
  *sum = COPSE_Q_ZERO;
  for (int i = 0; i < c->topology->n_links; i++) {
    const struct copse_link *l = &c->topology->links[i];
    if (c->row_of[i] < 0 && (out ? l->src : l->dst) == node)
      COPSE_DO(copse_q_add(*sum, l->bandwidth, sum, err));
  }
  return COPSE_OK;
}

static copse_status row_bandwidth(const struct checker *c, int host, int row,
                                  struct copse_q *bandwidth, struct copse_err *err) {
  if (row >= c->n_links) return cable_bandwidth(c, host, row, bandwidth, err);
  *bandwidth = c->topology->links[link_of(c, host, row)].bandwidth;
  return COPSE_OK;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static copse_status add_part_of(struct checker *c, const struct copse_verify_way *way,
                                struct copse_q amount, struct copse_err *err) {
  for (int i = 0; way && i < way->n; i++) {
    struct copse_q part, *load = &c->load[c->row_of[way->links[i]]];
    COPSE_DO(copse_q_mul(amount, way->parts[i], &part, err));
    COPSE_DO(copse_q_add(*load, part, load, err));
  }
  return COPSE_OK;
}

/* Adds the move from GPU i of a host to GPU j. */
static copse_status add_move(struct checker *c, int host, int i, int j, struct copse_err *err) {
  const struct copse_verify_way *way;
  COPSE_DO(copse_verify_find_way(&c->ways, gpu_node(c, host, i), gpu_node(c, host, j), &way, err));
  return add_part_of(c, way, COPSE_Q_ONE, err);
}

/* Adds the way between GPU and NIC of a host and the network. */
static copse_status add_way(struct checker *c, int host, int gpu, int nic, bool out,
                            struct copse_q amount, struct copse_err *err) {
  struct copse_q *cable = &c->load[c->n_links + 2 * nic + out];
  const struct copse_verify_way *first = NULL, *last;
  int a = gpu_node(c, host, gpu), b = nic_node(c, host, nic);
  COPSE_DO(out ? copse_verify_find_way_out(&c->ways, a, b, &first, &last, err)
               : copse_verify_find_way(&c->ways, b, a, &last, err));
  COPSE_DO(add_part_of(c, first, amount, err));
  COPSE_DO(add_part_of(c, last, amount, err));
  return copse_q_add(*cable, amount, cable, err);
}

/* Returns how many halves of a chain are between its first (second) GPU and other hosts. */
static int halves(const struct part *p, const struct place *at, enum step step) {
  int both = at->child[0] + at->child[1];
  int second = p->kind == 1 ? at->child[0] : p->kind == 2 ? both : 0;
  return step == FIRST ? at->up + both - second : second;
}

/* Adds what a step of a channel of speed 1 loads in a host: a MOVE from GPU a to b, else GPU a and
 * NIC b. */
static copse_status add_step(struct checker *c, const struct part *p, int host, enum step step,
                             int a, int b, struct copse_err *err) {
  int machine_host = stand_in(c, host);
  if (step == MOVE) {
    COPSE_DO(add_move(c, machine_host, a, b, err));
    return p->chains ? add_move(c, machine_host, b, a, err) : COPSE_OK;
  }
  if (c->n_hosts == 1) return COPSE_OK;
  if (!p->chains) {
    if (step == SECOND) return COPSE_OK;
    return add_way(c, machine_host, a, b, step == LAST, COPSE_Q_ONE, err);
  }
  struct copse_q amount;
  if (step == LAST) return COPSE_OK;
  COPSE_DO(copse_q_make(halves(p, &c->places[host], step), 2, &amount, err));
  if (amount.num == 0) return COPSE_OK;
  COPSE_DO(add_way(c, machine_host, a, b, false, amount, err));
  return add_way(c, machine_host, a, b, true, amount, err);
}

static void clear_load(struct checker *c) {
  for (int r = 0; r < c->n_rows; r++) c->load[r] = COPSE_Q_ZERO;
}

/* ---- loads ----------------------------------------------------------------------------------- */

static copse_status add_channel(struct checker *c, const struct part *p, int host, int channel,
                                struct copse_err *err) {
  int n = c->n_gpus;
  const int *gpus = p->gpus + channel * n, *nics = p->nics + channel * 2;
  for (int i = 0; i + 1 < n; i++) COPSE_DO(add_step(c, p, host, MOVE, gpus[i], gpus[i + 1], err));
  if (c->n_hosts == 1)
    return p->chains ? COPSE_OK : add_step(c, p, host, MOVE, gpus[n - 1], gpus[0], err);
  COPSE_DO(add_step(c, p, host, FIRST, gpus[0], nics[0], err));
  if (n > 1) COPSE_DO(add_step(c, p, host, SECOND, gpus[1], nics[1], err));
  return add_step(c, p, host, LAST, gpus[n - 1], nics[1], err);
}

/* Checks that at the stated speed no row of the host has more than its bandwidth. */
static copse_status check_host(struct checker *c, const struct part *p, int host,
                               struct copse_err *err) {
  clear_load(c);
  for (int i = 0; i < p->n; i++) COPSE_DO(add_channel(c, p, host, i, err));
  for (int r = 0; r < c->n_rows; r++) {
    struct copse_q most, used;
    COPSE_DO(row_bandwidth(c, stand_in(c, host), r, &most, err));
    COPSE_DO(copse_q_mul(c->load[r], p->speed, &used, err));
    if ((r >= c->n_links && most.num == 0) || copse_q_cmp(used, most) <= 0) continue;
    if (r >= c->n_links)
      return copse_fail(
          err, COPSE_REFUTED, "%s: %s: the cable of NIC %d of host %d has %s GB/s of %s", c->label,
          p->what, (r - c->n_links) / 2, host, COPSE_Q_STRING(used), COPSE_Q_STRING(most));
    const struct copse_link *l = &c->topology->links[link_of(c, stand_in(c, host), r)];
    return copse_fail(err, COPSE_REFUTED, "%s: %s: %s -> %s has %s GB/s of %s", c->label, p->what,
                      c->topology->nodes[l->src].id, c->topology->nodes[l->dst].id,
                      COPSE_Q_STRING(used), COPSE_Q_STRING(most));
  }
  return COPSE_OK;
}

/* Whether an earlier host has the same loads. */
static bool is_repeated(const struct checker *c, const struct part *p, int i) {
  bool repeated = false;
  if (c->ways.n_hosts > 1) return false;
  for (int k = i - 1; k >= 0 && k > i - 8 && !repeated; k--)
    repeated = !p->chains || memcmp(&c->places[k], &c->places[i], sizeof *c->places) == 0;
  return repeated;
}

static copse_status check_loads(struct checker *c, const struct part *p, struct copse_err *err) {
  struct copse_q all;
  COPSE_DO(copse_q_mul(p->speed, (struct copse_q){p->n, 1}, &all, err));
  if (!copse_q_eq(all, p->GBps))
    return copse_fail(err, COPSE_REFUTED, "%s: %s: %d channels of %s GB/s are %s, not %s", c->label,
                      p->what, p->n, COPSE_Q_STRING(p->speed), COPSE_Q_STRING(all),
                      COPSE_Q_STRING(p->GBps));
  for (int i = 0; i < c->n_alike; i++)
    if (!is_repeated(c, p, i)) COPSE_DO(check_host(c, p, c->alike[i], err));
  return COPSE_OK;
}

/* Checks that a channel's NICs are on the same rails in all hosts, which reach each other there. */
static copse_status check_rails(struct checker *c, const struct part *p, struct copse_err *err) {
  const struct copse_verify_ways *w = &c->ways;
  bool first = !c->rails[p->chains];
  if (w->n_hosts == 1) return COPSE_OK;
  if (first) COPSE_DO(COPSE_ARRAY(&c->arena, (size_t)p->n * 2, c->rails[p->chains], err));
  int *rails = c->rails[p->chains];
  for (int i = 0; i < c->n_alike; i++)
    for (int k = 0; k < 2 * p->n; k++) {
      int rail = w->rail[w->first_nic[c->alike[i]] + p->nics[k]];
      if (first && i == 0) rails[k] = rail;
      if (rail != rails[k])
        return copse_fail(err, COPSE_REFUTED,
                          "%s: %s: channel %d has a NIC of host %d that doesn't reach that of the "
                          "hosts before it",
                          c->label, p->what, k / 2, c->alike[i]);
    }
  return COPSE_OK;
}

/* ---- bounds ---------------------------------------------------------------------------------- */

/* Measures the length of a step, in all hosts that have lengths. */
static copse_status measure(struct checker *c, const struct part *p, enum step step, int a, int b,
                            struct copse_q *length, struct copse_err *err) {
  *length = COPSE_Q_ZERO;
  for (int i = 0; i < p->n_lengths; i++) {
    const struct length *l = &p->lengths[i];
    struct copse_q part;
    if (i == 0 || l->host != l[-1].host) {
      clear_load(c);
      COPSE_DO(add_step(c, p, l->host, step, a, b, err));
    }
    COPSE_DO(copse_q_mul(c->load[l->row], (struct copse_q){l->value, 1}, &part, err));
    COPSE_DO(copse_q_add(*length, part, length, err));
  }
  return COPSE_OK;
}

/* All steps of a kind [rows * n_gpus], as whole numbers once times `common`. */
struct table {
  struct copse_q *lengths;
  int64_t *whole;
  int n;
};

static copse_status fill(struct checker *c, const struct part *p, enum step step,
                         struct table *table, int64_t *common, struct copse_err *err) {
  int rows = step == MOVE ? c->n_gpus : c->n_nics;
  table->n = rows * c->n_gpus;
  COPSE_DO(COPSE_ARRAY(&c->arena, (size_t)table->n, table->lengths, err));
  COPSE_DO(COPSE_ARRAY(&c->arena, (size_t)table->n, table->whole, err));
  for (int i = 0; i < table->n; i++) {
    int row = i / c->n_gpus, gpu = i % c->n_gpus;
    table->lengths[i] = COPSE_Q_ZERO;
    if (step == MOVE && row == gpu) continue;
    COPSE_DO(measure(c, p, step, step == MOVE ? row : gpu, step == MOVE ? gpu : row,
                     &table->lengths[i], err));
    COPSE_DO(copse_lcm(*common, table->lengths[i].den, common, err));
  }
  return COPSE_OK;
}

static copse_status make_whole(struct table *table, int64_t common, struct copse_err *err) {
  for (int i = 0; i < table->n; i++) {
    const struct copse_q *q = &table->lengths[i];
    if (copse_mul_overflows(q->num, common / q->den, &table->whole[i]) ||
        table->whole[i] > COPSE_VERIFY_LONGEST_STEP)
      return copse_fail(err, COPSE_OVERFLOW, "lengths of a bound are too large to be added up");
  }
  return COPSE_OK;
}

/* Whether NCCL has a way between NIC and GPU of a host at all. */
static bool can_enter(const struct checker *c, int host, int gpu, int nic) {
  return copse_verify_tray(&c->ways, gpu_node(c, host, gpu)) ==
         copse_verify_tray(&c->ways, nic_node(c, host, nic));
}

/* Finds the least length of a channel, of any order and with any NICs. */
static copse_status least_length(struct checker *c, const struct part *p, struct copse_q *least,
                                 bool *all, struct copse_err *err) {
  struct table tables[4] = {0};
  int64_t common = 1, whole;
  bool several = c->n_hosts > 1;
  struct copse_verify_orders o = {.n = c->n_gpus,
                                  .n_ports = several ? c->n_nics : 0,
                                  .closed = !several && !p->chains,
                                  .same_port = p->chains};
  for (int step = MOVE; step <= (several ? LAST : MOVE); step++)
    COPSE_DO(fill(c, p, (enum step)step, &tables[step], &common, err));
  for (int step = MOVE; step <= LAST; step++) COPSE_DO(make_whole(&tables[step], common, err));
  for (int i = 0; several && p->chains && i < tables[FIRST].n; i++) { /* trees are of one rail */
    bool enters = can_enter(c, c->first, i % c->n_gpus, i / c->n_gpus);
    if (!c->ways.shared[c->ways.first_nic[c->first] + i / c->n_gpus] || !enters)
      tables[FIRST].whole[i] = COPSE_VERIFY_LONGEST_STEP;
    if (p->kind != 3 && !enters) tables[SECOND].whole[i] = COPSE_VERIFY_LONGEST_STEP;
  }
  o.move = tables[MOVE].whole;
  o.first = tables[FIRST].whole;
  o.second = c->n_gpus > 1 ? tables[SECOND].whole : NULL;
  o.last = tables[LAST].whole;
  COPSE_DO(copse_verify_least_order(&o, &whole, all, err));
  return copse_q_make(whole, common, least, err);
}

static copse_status check_bound(struct checker *c, const struct part *p,
                                struct copse_verify_rings_part *report, struct copse_err *err) {
  struct copse_q sum = COPSE_Q_ZERO, least, bandwidth;
  COPSE_DO(least_length(c, p, &least, &report->all_orders, err));
  for (int i = 0; i < p->n_lengths; i++) {
    const struct length *l = &p->lengths[i];
    COPSE_DO(row_bandwidth(c, stand_in(c, l->host), l->row, &bandwidth, err));
    if (bandwidth.num == 0)
      return copse_fail(err, COPSE_REFUTED, "%s: %s: a length on a cable that is not there",
                        c->label, p->what);
    COPSE_DO(copse_q_mul(bandwidth, (struct copse_q){l->value, 1}, &bandwidth, err));
    COPSE_DO(copse_q_add(sum, bandwidth, &sum, err));
  }
  if (least.num <= 0)
    return copse_fail(err, COPSE_REFUTED,
                      "%s: %s: a channel has length 0, so the bound proves nothing", c->label,
                      p->what);
  COPSE_DO(copse_q_div(sum, least, &report->bound, err));
  if (copse_q_cmp(p->least, least) > 0 || copse_q_cmp(p->bound, report->bound) < 0)
    return copse_fail(
        err, COPSE_REFUTED,
        "%s: %s: the shortest channel has length %s, not %s: the bound is %s GB/s, not %s",
        c->label, p->what, COPSE_Q_STRING(least), COPSE_Q_STRING(p->least),
        COPSE_Q_STRING(report->bound), COPSE_Q_STRING(p->bound));
  if (copse_q_cmp(p->GBps, report->bound) > 0)
    return copse_fail(err, COPSE_REFUTED, "%s: %s: faster than their bound", c->label, p->what);
  return COPSE_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int node_of(const struct checker *c, const char *id, size_t n) {
  char text[512];
  if (n >= sizeof text) return -1;
  memcpy(text, id, n);
  text[n] = '\0';
  return copse_topology_find(c->topology, text);
}

/* Returns the NIC, the GPU of the first host alike that a node is, or -1. */
static int nic_of(const struct checker *c, int node) {
  for (int i = 0; node >= 0 && i < c->n_nics; i++)
    if (nic_node(c, c->first, i) == node) return i;
  return -1;
}

static int gpu_of(const struct checker *c, int node) {
  for (int i = 0; node >= 0 && i < c->n_gpus; i++)
    if (gpu_node(c, c->first, i) == node) return i;
  return -1;
}

/* Finds the row of "a>b", "*>a", "a>*" of that host, of n characters; -1 for anything else. */
static int row_named(const struct checker *c, const char *name, size_t n) {
  for (size_t i = 1; i + 1 < n; i++) {
    if (name[i] != '>') continue;
    bool from = i == 1 && name[0] == '*', to = i + 2 == n && name[i + 1] == '*';
    int a = node_of(c, name, i), b = node_of(c, name + i + 1, n - i - 1);
    int nic = from ? nic_of(c, b) : to ? nic_of(c, a) : -1;
    if (nic >= 0) return c->n_links + 2 * nic + to;
    int link = a >= 0 && b >= 0 ? copse_topology_find_link(c->topology, a, b) : -1;
    if (link >= 0 && c->row_of[link] >= 0 && c->ways.host[a] == c->first) return c->row_of[link];
  }
  return -1;
}

static bool is_alike(const struct checker *c, long host) {
  for (int i = 0; i < c->n_alike; i++)
    if (c->alike[i] == host) return true;
  return false;
}

static copse_status read_length(struct checker *c, const cJSON *item, const cJSON *parent,
                                struct part *p, struct length *out, struct copse_err *err) {
  const char *name = item->string, *hash = strrchr(name, '#');
  out->host = c->alike[0];
  out->row = row_named(c, name, strlen(name));
  if (out->row < 0 && hash) {
    char *end;
    long host = strtol(hash + 1, &end, 10);
    bool is = hash[1] >= '0' && hash[1] <= '9' && *end == '\0' && is_alike(c, host);
    if (is) out->host = (int)host;
    if (is) out->row = row_named(c, name, (size_t)(hash - name));
  }
  if (out->row < 0 || (!p->chains && out->host != c->alike[0]))
    return copse_fail(err, COPSE_REFUTED, "%s: %s: a length on %s, which is no link inside host %d",
                      c->label, p->what, name, c->alike[0]);
  for (const struct length *l = p->lengths; l < out; l++)
    if (l->host == out->host && l->row == out->row)
      return copse_fail(err, COPSE_REFUTED, "%s: %s: two lengths on %s", c->label, p->what, name);
  return copse_json_int(&c->json, item, parent, "length", 1, (int64_t)1 << 40, &out->value, err);
}

COPSE_ORDER(by_host, struct length, COPSE_UP(host) ?: COPSE_UP(row))

static copse_status read_bound(struct checker *c, const cJSON *object, struct part *p,
                               struct copse_err *err) {
  static const struct copse_json_key keys[] = {
      {"GBps", COPSE_JSON_NEEDED | COPSE_JSON_NUMBER, "GB/s that no channels exceed, such as 240"},
      {"least", COPSE_JSON_NEEDED | COPSE_JSON_NUMBER,
       "GB/s of the slowest channel allowed, such as 20"},
      {"lengths", COPSE_JSON_NEEDED | COPSE_JSON_OBJECT,
       "of links, such as {\"h0.gpu0>h0.gpu1\": 1}"},
      {0}};
  const cJSON *bound = copse_json_get(object, "bound"), *lengths;
  int n = 0;
  COPSE_DO(copse_json_expect_object(&c->json, bound, object, "bound", keys, err));
  COPSE_DO(copse_json_get_rational(&c->json, bound, "GBps", &p->bound, err));
  COPSE_DO(copse_json_get_rational(&c->json, bound, "least", &p->least, err));
  lengths = copse_json_get(bound, "lengths");
  if (!copse_json_is_object(lengths))
    return copse_fail_at(err, COPSE_BAD_INPUT, c->label, copse_json_line(bound, object),
                         "a bound needs its \"lengths\", an object");
  COPSE_JSON_EACH (item, lengths) n++;
  if (n > MOST_PLACES * c->n_rows || n == 0)
    return copse_fail(err, COPSE_REFUTED, "%s: %s: %d lengths", c->label, p->what, n);
  COPSE_DO(COPSE_ARRAY(&c->arena, (size_t)n, p->lengths, err));
  COPSE_JSON_EACH (item, lengths)
    COPSE_DO(read_length(c, item, lengths, p, &p->lengths[p->n_lengths++], err));
  COPSE_SORT(p->lengths, p->n_lengths, by_host);
  return COPSE_OK;
}

/* Reads GPUs of the first host alike, each once. */
static copse_status read_gpus(struct checker *c, const cJSON *channel, struct part *p, int *gpus,
                              struct copse_err *err) {
  const cJSON *list;
  int n = 0;
  COPSE_DO(copse_json_get_array(&c->json, channel, "gpus", &list, err));
  COPSE_JSON_EACH (item, list) {
    const char *id = copse_json_is_string(item) ? item->valuestring : "?";
    int gpu = gpu_of(c, copse_topology_find(c->topology, id));
    for (int i = 0; i < n && gpu >= 0; i++)
      if (gpus[i] == gpu)
        return copse_fail(err, COPSE_REFUTED, "%s: %s: a channel has %s twice", c->label, p->what,
                          id);
    if (gpu < 0)
      return copse_fail(err, COPSE_REFUTED, "%s: %s: %s is no GPU of host %d", c->label, p->what,
                        id, c->alike[0]);
    gpus[n++] = gpu;
  }
  if (n < c->n_gpus)
    return copse_fail(err, COPSE_REFUTED, "%s: %s: a channel has %d of the %d GPUs of a host",
                      c->label, p->what, n, c->n_gpus);
  return COPSE_OK;
}

static copse_status read_nics(struct checker *c, const cJSON *channel, struct part *p, int *nics,
                              struct copse_err *err) {
  const cJSON *list = copse_json_get(channel, "nics");
  int n = 0;
  COPSE_JSON_EACH (item, copse_json_is_array(list) ? list : NULL) {
    const char *id = copse_json_is_string(item) ? item->valuestring : "?";
    int nic = nic_of(c, copse_topology_find(c->topology, id));
    if (nic < 0 || n == 2)
      return copse_fail(err, COPSE_REFUTED, "%s: %s: %s is %s %d", c->label, p->what, id,
                        n == 2 ? "a third NIC of host" : "no NIC of host", c->alike[0]);
    nics[n++] = nic;
  }
  if (n != (c->n_hosts > 1 ? 2 : 0))
    return copse_fail(err, COPSE_REFUTED, "%s: %s: a channel has %d NICs", c->label, p->what, n);
  return COPSE_OK;
}

/* Checks the NICs by crossnic: 0: back to the NIC it came by; 2: in pairs that are each other's
 * mirror. */
static copse_status check_nics(struct checker *c, const struct part *p, struct copse_err *err) {
  bool twins = !p->chains && p->kind == 2;
  if (twins && p->n % 2 != 0)
    return copse_fail(err, COPSE_REFUTED, "%s: %s: crossnic 2 of %d channels", c->label, p->what,
                      p->n);
  for (int i = 0; c->n_hosts > 1 && i < p->n; i++) {
    const int *nics = p->nics + i * 2, *gpus = p->gpus + i * c->n_gpus;
    bool good =
        twins ? i % 2 == 0 || (nics[0] == nics[-1] && nics[1] == nics[-2]) : nics[0] == nics[1];
    for (int k = 0; good && twins && i % 2 == 1 && k < c->n_gpus; k++)
      good = gpus[k] == gpus[-1 - k];
    int last = !p->chains ? c->n_gpus - 1 : p->kind == 3 || c->n_gpus == 1 ? 0 : 1;
    if (!good)
      return copse_fail(err, COPSE_REFUTED, "%s: %s: channel %d %s", c->label, p->what, i,
                        twins ? "is not the mirror of the one before it"
                              : "leaves by another NIC than it comes by");
    if (!can_enter(c, c->first, gpus[0], nics[0]) || !can_enter(c, c->first, gpus[last], nics[1]))
      return copse_fail(err, COPSE_REFUTED,
                        "%s: %s: channel %d has a NIC of another tray than its GPU", c->label,
                        p->what, i);
  }
  return COPSE_OK;
}

static copse_status read_part(struct checker *c, const cJSON *root, const char *what, bool chains,
                              struct part *p, struct copse_err *err) {
  enum { RINGS = 1, CHAINS = 2 };
  static const struct copse_json_key keys[] = {
      {"crossnic", COPSE_JSON_NEEDED | COPSE_JSON_INDEX | COPSE_JSON_OF(RINGS),
       "NCCL's: 0, or 2 for channels in pairs"},
      {"pattern", COPSE_JSON_NEEDED | COPSE_JSON_INDEX | COPSE_JSON_OF(CHAINS),
       "NCCL's, from 1 to 3"},
      {"speed", COPSE_JSON_NEEDED | COPSE_JSON_POSITIVE, "GB/s of a channel, such as 20"},
      {"GBps", COPSE_JSON_NEEDED | COPSE_JSON_NUMBER, "GB/s of all channels, such as 240"},
      {"channels", COPSE_JSON_NEEDED | COPSE_JSON_ARRAY,
       "such as [{\"gpus\": [\"h0.gpu0\", \"h0.gpu1\"]}]"},
      {"bound", COPSE_JSON_NEEDED | COPSE_JSON_OBJECT,
       "such as {\"GBps\": \"240\", \"least\": \"20\", \"lengths\": {}}"},
      {0}};
  static const struct copse_json_key channel_keys[] = {
      {"gpus", COPSE_JSON_NEEDED | COPSE_JSON_ARRAY,
       "the GPUs of host 0 in order, such as [\"h0.gpu0\", \"h0.gpu1\"]"},
      {"nics", COPSE_JSON_ARRAY, "in and out, such as [\"h0.nic0\", \"h0.nic0\"]"},
      {0}};
  const cJSON *object = copse_json_get(root, what), *list;
  int64_t kind;
  *p = (struct part){.chains = chains, .what = what};
  COPSE_DO(
      copse_json_expect_variant(&c->json, object, root, what, keys, chains ? CHAINS : RINGS, err));
  COPSE_DO(copse_json_get_int(&c->json, object, chains ? "pattern" : "crossnic", chains ? 1 : 0,
                              chains ? 3 : 2, &kind, err));
  p->kind = (int)kind;
  if (!chains && kind == 1)
    return copse_fail(err, COPSE_REFUTED, "%s: rings: crossnic 1 is not 0 or 2", c->label);
  COPSE_DO(copse_json_get_rational(&c->json, object, "speed", &p->speed, err));
  COPSE_DO(copse_json_get_rational(&c->json, object, "GBps", &p->GBps, err));
  COPSE_DO(copse_json_get_array(&c->json, object, "channels", &list, err));
  COPSE_JSON_EACH (item, list) p->n++;
  if (p->n < 1 || p->n > MOST_CHANNELS || p->speed.num <= 0)
    return copse_fail(err, COPSE_REFUTED, "%s: %s: %d channels of %s GB/s", c->label, what, p->n,
                      COPSE_Q_STRING(p->speed));
  COPSE_DO(COPSE_ARRAY(&c->arena, (size_t)p->n * (size_t)c->n_gpus, p->gpus, err));
  COPSE_DO(COPSE_ARRAY(&c->arena, (size_t)p->n * 2, p->nics, err));
  int i = 0;
  COPSE_JSON_EACH (item, list) {
    COPSE_DO(copse_json_expect_object(&c->json, item, list, "channel", channel_keys, err));
    COPSE_DO(read_gpus(c, item, p, p->gpus + i * c->n_gpus, err));
    COPSE_DO(read_nics(c, item, p, p->nics + i * 2, err));
    i++;
  }
  COPSE_DO(check_nics(c, p, err));
  return read_bound(c, object, p, err);
}

/* ---- the whole certificate ------------------------------------------------------------------- */

static copse_status read_head(struct checker *c, bool *same, struct copse_err *err) {
  enum { ALIKE = 1, GROUPS = 2 };
  static const struct copse_json_key keys[] = {
      {"format", COPSE_JSON_NEEDED | COPSE_JSON_STRING, "\"copse-rings/1\""},
      {"topology", COPSE_JSON_NEEDED | COPSE_JSON_OBJECT,
       "such as {\"name\": \"a100-x2\", \"sha256\": \"..\"}"},
      {"hosts", COPSE_JSON_NEEDED | COPSE_JSON_COUNT, "how many there are, such as 2"},
      {"rings", COPSE_JSON_NEEDED | COPSE_JSON_OBJECT | COPSE_JSON_OF(ALIKE),
       "the channels and their bound"},
      {"chains", COPSE_JSON_NEEDED | COPSE_JSON_OBJECT | COPSE_JSON_OF(ALIKE),
       "the channels and their bound"},
      {"groups", COPSE_JSON_NEEDED | COPSE_JSON_ARRAY | COPSE_JSON_OF(GROUPS),
       "hosts alike, each with \"hosts\", \"rings\" and \"chains\""},
      {0}};
  static const struct copse_json_key topology_keys[] = {
      {"name", COPSE_JSON_STRING, "the name of the topology"},
      {"sha256", COPSE_JSON_NEEDED | COPSE_JSON_STRING,
       "of the canonical topology JSON, 64 hexadecimal digits"},
      {0}};
  const cJSON *root = c->json.root, *about;
  char sha256[COPSE_SHA256_HEX];
  const char *theirs = "";
  int64_t hosts;
  COPSE_DO(copse_json_expect_format(&c->json, "copse-rings/1", err));
  COPSE_DO(copse_json_expect_variant(&c->json, root, NULL, "a certificate of rings", keys,
                                     copse_json_get(root, "groups") ? GROUPS : ALIKE, err));
  about = copse_json_get(root, "topology");
  COPSE_DO(copse_json_expect_object(&c->json, about, root, "topology", topology_keys, err));
  COPSE_DO(copse_json_get_string(&c->json, about, "sha256", &theirs, err));
  COPSE_DO(copse_topology_sha256(c->topology, sha256, err));
  *same = strcmp(theirs, sha256) == 0;
  COPSE_DO(copse_json_get_int(&c->json, root, "hosts", 1, MOST_HOSTS, &hosts, err));
  c->n_hosts = (int)hosts;
  if (c->ways.n_hosts > 1 && c->ways.n_hosts != c->n_hosts)
    return copse_fail(err, COPSE_REFUTED, "%s: for %d hosts, but %s has %d", c->label, c->n_hosts,
                      c->topology->name, c->ways.n_hosts);
  COPSE_DO(COPSE_ARRAY(&c->arena, (size_t)c->n_hosts, c->places, err));
  add_tree(c->places, c->n_hosts, false);
  add_tree(c->places, c->n_hosts, true);
  return number_rows(c, err);
}

/* Checks that hosts of several groups agree on channels and speed; the least bound is that of
 * all. */
static copse_status check_part(struct checker *c, const cJSON *object, const char *what,
                               bool chains, struct copse_verify_rings_part *report,
                               struct copse_err *err) {
  struct part p;
  struct copse_verify_rings_part own = {0};
  COPSE_DO(read_part(c, object, what, chains, &p, err));
  COPSE_DO(check_loads(c, &p, err));
  COPSE_DO(check_rails(c, &p, err));
  COPSE_DO(check_bound(c, &p, &own, err));
  own.n = p.n;
  own.kind = p.kind;
  own.speed = p.speed;
  own.GBps = p.GBps;
  bool first = report->n == 0;
  if (!first && (own.n != report->n || !copse_q_eq(own.speed, report->speed)))
    return copse_fail(err, COPSE_REFUTED,
                      "%s: %s: host %d has %d channels of %s GB/s, others %d "
                      "of %s: hosts must agree",
                      c->label, what, c->alike[0], own.n, COPSE_Q_STRING(own.speed), report->n,
                      COPSE_Q_STRING(report->speed));
  if (first || copse_q_cmp(own.bound, report->bound) < 0) *report = own;
  return COPSE_OK;
}

static copse_status check_hosts(struct checker *c, const cJSON *object, const int *hosts, int n,
                                struct copse_verify_rings_report *report, struct copse_err *err) {
  COPSE_DO(take_hosts(c, hosts, n, err));
  report->n_groups++;
  report->n_gpus += n * c->n_gpus;
  COPSE_DO(check_part(c, object, "rings", false, &report->rings, err));
  return check_part(c, object, "chains", true, &report->chains, err);
}

/* Checks hosts alike with their channels: every host is in one of them. */
static copse_status check_groups(struct checker *c, struct copse_verify_rings_report *report,
                                 struct copse_err *err) {
  static const struct copse_json_key keys[] = {
      {"hosts", COPSE_JSON_NEEDED | COPSE_JSON_ARRAY, "their numbers, such as [0, 1]"},
      {"rings", COPSE_JSON_NEEDED | COPSE_JSON_OBJECT, "the channels and their bound"},
      {"chains", COPSE_JSON_NEEDED | COPSE_JSON_OBJECT, "the channels and their bound"},
      {0}};
  const cJSON *groups = copse_json_get(c->json.root, "groups"), *list;
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  int *hosts, left = c->n_hosts;
  bool *seen;
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)c->n_hosts, hosts, err));
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)c->n_hosts, seen, err));
  COPSE_JSON_EACH (item, groups) {
    int n = 0;
    COPSE_DO(copse_json_expect_object(&c->json, item, groups, "group", keys, err));
    COPSE_DO(copse_json_get_array(&c->json, item, "hosts", &list, err));
    COPSE_JSON_EACH (number, list) {
      int64_t host;
      COPSE_DO(copse_json_int(&c->json, number, list, "host", 0, c->n_hosts - 1, &host, err));
      if (seen[host])
        return copse_fail(err, COPSE_REFUTED, "%s: host %d is in two groups", c->label, (int)host);
      seen[host] = true;
      hosts[n++] = (int)host;
    }
    left -= n;
    if (n == 0) return copse_fail(err, COPSE_REFUTED, "%s: a group has no hosts", c->label);
    COPSE_DO(check_hosts(c, item, hosts, n, report, err));
  }
  if (left == 0) return COPSE_OK;
  return copse_fail(err, COPSE_REFUTED, "%s: %d hosts are in no group", c->label, left);
}

static copse_status check(struct checker *c, struct copse_verify_rings_report *report,
                          struct copse_err *err) {
  COPSE_AT_END(copse_free_at) int *all = NULL;
  COPSE_DO(copse_verify_ways_open(c->topology, &c->ways, err));
  COPSE_DO(read_head(c, &report->same_topology, err));
  report->n_hosts = c->n_hosts;
  if (copse_json_get(c->json.root, "groups")) return check_groups(c, report, err);
  COPSE_DO(copse_calloc((size_t)c->n_hosts, sizeof *all, &all, err));
  for (int h = 0; h < c->n_hosts; h++) all[h] = h;
  return check_hosts(c, c->json.root, all, c->n_hosts, report, err);
}

copse_status copse_verify_rings(const char *label, const char *data, size_t size,
                                const struct copse_topology *topology,
                                struct copse_verify_rings_report *report, struct copse_err *err) {
  struct checker c = {.label = label, .topology = topology};
  *report = (struct copse_verify_rings_report){0};
  copse_status status = copse_json_parse(label, data, size, &c.json, err);
  if (status == COPSE_OK) status = check(&c, report, err);
  copse_json_free(&c.json);
  copse_verify_ways_free(&c.ways);
  copse_arena_free(&c.arena);
  return status;
}
