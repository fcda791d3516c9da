/*
 * Instances of rings and chains. A channel of speed 1 puts 1 on every link of the ways between
 * neighbours (what equal ways share is a fraction; `unit` makes all of them whole numbers). A chain
 * carries sums up and results down: both directions. Over hosts, NCCL's double binary tree
 * (Sanders, Speck, Traeff 2009; NVIDIA/nccl src/graph/trees.cc): each of the two trees carries half
 * of it.
 */
#include "nccl/channels.h"

#include <stdlib.h>

/* Links of a host to other hosts in both trees, each for half a channel. */
struct role {
  int host, up, child[2];
};

/* A step on its way: amounts by row, not yet whole numbers. */
struct draft {
  struct copse_q *amount; /* [n_rows] */
  int *rows;              /* [n_rows] rows with an amount other than 0 */
  int n;
};

struct maker {
  struct copse_nccl_machine *machine;
  struct copse_nccl_channels *out;
  const int *ranks;                                     /* [n] of the host */
  const struct copse_nccl_port *ports;                  /* [n_ports] */
  const bool *like;                                     /* [n_hosts] or NULL: all */
  int host, first_port, n, n_ports, n_roles, host_rows; /* rows of one role */
  struct role *roles;
  struct copse_q *whole; /* [host_rows] bandwidth */
  int *row_of;           /* [n_links] in the first role, or -1 */
  struct draft draft;
  struct part { /* of all steps, one after the other */
    int row;
    struct copse_q amount;
  } * parts;
  size_t n_parts, capacity;
  int64_t common; /* denominator of all amounts */
  struct copse_arena scratch;
};

/* ---- roles in trees -------------------------------------------------------------------------- */

/* Finds parent and children of h among H, -1 without; a child below its parent is child 0. */
static void plain_tree(int h, int H, int *parent, int child[2]) {
  int bit = 1;
  *parent = child[0] = child[1] = -1;
  while (bit < H && (h == 0 || !(h & bit))) bit <<= 1;
  if (h == 0) {
    if (H > 1) child[1] = bit >> 1;
    return;
  }
  *parent = ((h ^ bit) | (bit << 1)) < H ? (h ^ bit) | (bit << 1) : h ^ bit;
  if (bit > 1) child[0] = h - bit / 2;
  for (int low = bit / 2; low > 0 && child[1] < 0; low >>= 1)
    if (h + low < H) child[1] = h + low;
}

static void add_tree(struct role *role, int h, int H) {
  int parent, child[2];
  plain_tree(h, H, &parent, child);
  role->up += parent >= 0;
  role->child[0] += child[0] >= 0;
  role->child[1] += child[1] >= 0;
}

static bool covers(const struct role *a, const struct role *b) {
  return a->up >= b->up && a->child[0] >= b->child[0] && a->child[1] >= b->child[1];
}

/* Finds the roles that hosts have. A role whose links are all another role's too is left out. */
static copse_status find_roles(struct maker *m, struct copse_err *err) {
  int H = m->out->n_hosts;
  COPSE_DO(COPSE_ARRAY(&m->scratch, (size_t)H, m->roles, err));
  m->n_roles = 0;
  for (int h = 0; h < H; h++) {
    struct role role = {.host = h};
    bool covered = false;
    int kept = 0;
    if (m->like && !m->like[h]) continue;
    add_tree(&role, h, H);
    add_tree(&role, H % 2 == 0 ? H - 1 - h : (h + H - 1) % H, H);
    for (int i = 0; i < m->n_roles; i++) covered = covered || covers(&m->roles[i], &role);
    if (covered) continue;
    for (int i = 0; i < m->n_roles; i++)
      if (!covers(&role, &m->roles[i])) m->roles[kept++] = m->roles[i];
    m->roles[kept++] = role;
    m->n_roles = kept;
  }
  return COPSE_OK;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static bool is_inside(const struct maker *m, int node) {
  return m->machine->host_of_node[node] == m->host;
}

/* Finds what joins a port and the network, in one direction; zero: the topology has no network. */
static copse_status find_cable(const struct copse_nccl_machine *m,
                               const struct copse_nccl_port *port, bool outward,
                               struct copse_q *sum, struct copse_err *err) {
  const struct copse_topology *t = m->topology;
  *sum = COPSE_Q_ZERO;
  for (int i = 0; i < t->n_links; i++) {
    const struct copse_link *l = &t->links[i];
    if ((outward ? l->src : l->dst) == port->node &&
        m->host_of_node[outward ? l->dst : l->src] != port->host)
      COPSE_DO(copse_q_add(*sum, l->bandwidth, sum, err));
  }
  return COPSE_OK;
}

/* Lists the host's links, then cables: in and out of port p at host_rows - 2 * (n_ports - p). */
static copse_status list_rows(struct maker *m, struct copse_err *err) {
  const struct copse_topology *t = m->machine->topology;
  struct copse_nccl_row *rows;
  size_t most = (size_t)t->n_links + 2 * (size_t)m->n_ports;
  COPSE_DO(COPSE_ARRAY(&m->scratch, (size_t)t->n_links, m->row_of, err));
  COPSE_DO(COPSE_ARRAY(&m->scratch, most, m->whole, err));
  COPSE_DO(COPSE_ARRAY(&m->scratch, most, rows, err));
  for (int i = 0; i < t->n_links; i++) {
    bool inside = is_inside(m, t->links[i].src) && is_inside(m, t->links[i].dst);
    m->row_of[i] = inside ? m->host_rows : -1;
    if (!inside) continue;
    rows[m->host_rows] = (struct copse_nccl_row){i, -1, false, 0};
    m->whole[m->host_rows++] = t->links[i].bandwidth;
  }
  for (int i = 0; i < 2 * m->n_ports; i++) {
    COPSE_DO(find_cable(m->machine, &m->ports[i / 2], i % 2 == 1, &m->whole[m->host_rows], err));
    rows[m->host_rows++] = (struct copse_nccl_row){-1, i / 2, i % 2 == 1, 0};
  }
  size_t all = (size_t)m->host_rows * (size_t)m->n_roles;
  COPSE_DO(COPSE_ARRAY(&m->out->arena, all, m->out->rows, err));
  for (size_t i = 0; i < all; i++) {
    m->out->rows[i] = rows[i % (size_t)m->host_rows];
    m->out->rows[i].host = m->roles[i / (size_t)m->host_rows].host;
  }
  m->out->instance.n_rows = (int)all;
  COPSE_DO(COPSE_ARRAY(&m->scratch, all, m->draft.amount, err));
  for (size_t i = 0; i < all; i++) m->draft.amount[i] = COPSE_Q_ZERO;
  return COPSE_ARRAY(&m->scratch, all, m->draft.rows, err);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static copse_status add_row(struct maker *m, int row, struct copse_q amount,
                            struct copse_err *err) {
  struct draft *d = &m->draft;
  if (d->amount[row].num == 0) d->rows[d->n++] = row;
  return copse_q_add(d->amount[row], amount, &d->amount[row], err);
}

static copse_status add_route(struct maker *m, const struct copse_nccl_route *route, int role,
                              int times, struct copse_err *err) {
  for (int i = 0; route && times > 0 && i < route->n_hops; i++) {
    struct copse_q amount;
    int row = m->row_of[route->hops[i].link] + role * m->host_rows;
    COPSE_DO(copse_q_mul(route->hops[i].share, (struct copse_q){times, 1}, &amount, err));
    COPSE_DO(add_row(m, row, amount, err));
  }
  return COPSE_OK;
}

/* Adds the move from GPU i to GPU j in every role. */
static copse_status add_move(struct maker *m, int i, int j, int times, struct copse_err *err) {
  const int *nodes = m->machine->topology->rank_nodes;
  const struct copse_nccl_route *route;
  enum copse_nccl_path *type = &m->out->move_type[i * m->n + j];
  COPSE_DO(copse_nccl_find_route(m->machine, nodes[m->ranks[i]], nodes[m->ranks[j]], &route, err));
  if (route->type > *type) *type = route->type;
  for (int role = 0; role < m->n_roles; role++) COPSE_DO(add_route(m, route, role, times, err));
  return COPSE_OK;
}

/* Adds the way between GPU i and port p of the network, in one direction. */
static copse_status add_way(struct maker *m, int i, int p, bool outward, int role, int times,
                            struct copse_err *err) {
  const struct copse_nccl_route *first = NULL, *last;
  enum copse_nccl_path *worst = &(outward ? m->out->out_type : m->out->in_type)[p * m->n + i], type;
  int relay = -1, rank = m->ranks[i], cable = m->host_rows - 2 * (m->n_ports - p) + outward;
  if (times == 0) return COPSE_OK;
  if (outward)
    COPSE_DO(
        copse_nccl_find_way_out(m->machine, rank, m->first_port + p, &relay, &first, &last, err));
  else
    COPSE_DO(copse_nccl_find_route(m->machine, m->ports[p].node,
                                   m->machine->topology->rank_nodes[rank], &last, err));
  type = relay >= 0 && last->type < COPSE_NCCL_PATH_PXN ? COPSE_NCCL_PATH_PXN : last->type;
  if (type > *worst) *worst = type;
  COPSE_DO(add_route(m, first, role, times, err));
  COPSE_DO(add_route(m, last, role, times, err));
  if (m->whole[cable].num == 0) return COPSE_OK;
  return add_row(m, cable + role * m->host_rows, (struct copse_q){times, 1}, err);
}

static copse_status add_both_ways(struct maker *m, int i, int p, int role, int times,
                                  struct copse_err *err) {
  COPSE_DO(add_way(m, i, p, false, role, times, err));
  return add_way(m, i, p, true, role, times, err);
}

/* Makes a step of the draft, which is empty again; its loads are parts until all are known. */
static copse_status end_step(struct maker *m, struct copse_ring_step *step, struct copse_err *err) {
  struct draft *d = &m->draft;
  COPSE_DO(COPSE_GROW(m->parts, m->capacity, m->n_parts + (size_t)d->n, err));
  *step = (struct copse_ring_step){true, d->n, NULL};
  for (int i = 0; i < d->n; i++) {
    struct copse_q *amount = &d->amount[d->rows[i]];
    COPSE_DO(copse_lcm(m->common, amount->den, &m->common, err));
    m->parts[m->n_parts++] = (struct part){d->rows[i], *amount};
    *amount = COPSE_Q_ZERO;
  }
  d->n = 0;
  return COPSE_OK;
}

/* ---- instances ------------------------------------------------------------------------------- */

static bool is_chain(const struct maker *m) { return m->out->kind >= COPSE_NCCL_CHAINS; }

/* Returns what one link of a chain is: two trees, each for half of a channel, where there are
 * hosts. */
static int trees(const struct maker *m) { return is_chain(m) && m->out->n_hosts > 1 ? 2 : 1; }

static copse_status make_moves(struct maker *m, struct copse_ring_step *steps,
                               struct copse_err *err) {
  bool both = is_chain(m) || m->out->kind == COPSE_NCCL_TWIN_RINGS;
  for (int i = 0; i < m->n; i++) {
    for (int j = 0; j < m->n; j++) {
      if (i == j) continue;
      COPSE_DO(add_move(m, i, j, trees(m), err));
      if (both) COPSE_DO(add_move(m, j, i, trees(m), err));
      COPSE_DO(end_step(m, &steps[i * m->n + j], err));
    }
  }
  return COPSE_OK;
}

/* Whether NCCL has a way between GPU i and port p: not where they are in different trays of an
 * NVLink domain. */
static bool can_enter(const struct maker *m, int i, int p) {
  return copse_nccl_dev_system(m->machine->devs[m->ranks[i]]) ==
         copse_nccl_dev_system(m->ports[p].dev);
}

/* Makes the steps at a chain's ports: those at its first GPU, and at the second. */
static copse_status make_tree_ports(struct maker *m, struct copse_ring_step *enter,
                                    struct copse_ring_step *second, struct copse_err *err) {
  for (int p = 0; p < m->n_ports; p++) {
    for (int i = 0; i < m->n; i++) {
      for (int role = 0; role < m->n_roles; role++) {
        const struct role *r = &m->roles[role];
        COPSE_DO(
            add_both_ways(m, i, p, role, r->up + r->child[1] + (second ? 0 : r->child[0]), err));
      }
      COPSE_DO(end_step(m, &enter[p * m->n + i], err));
      enter[p * m->n + i].exists = m->ports[p].shared && can_enter(m, i, p); /* of one rail */
      if (!second) continue;
      for (int role = 0; role < m->n_roles; role++)
        COPSE_DO(add_both_ways(m, i, p, role, m->roles[role].child[0], err));
      COPSE_DO(end_step(m, &second[p * m->n + i], err));
      second[p * m->n + i].exists = can_enter(m, i, p);
    }
  }
  return COPSE_OK;
}

/* Whether data from the port get to the GPU as directly as from it to any, or over PCIe switches
 * alone: NCCL receives by no other GPU, and further away over the host's memory. */
static copse_status find_near(struct maker *m, int i, int p, bool *near, struct copse_err *err) {
  const struct copse_nccl_route *route, *other;
  const int *nodes = m->machine->topology->rank_nodes;
  COPSE_DO(copse_nccl_find_route(m->machine, m->ports[p].node, nodes[m->ranks[i]], &route, err));
  *near = can_enter(m, i, p);
  for (int k = 0; k < m->n && route->type > COPSE_NCCL_PATH_PXB; k++) {
    if (!can_enter(m, k, p)) continue;
    COPSE_DO(copse_nccl_find_route(m->machine, m->ports[p].node, nodes[m->ranks[k]], &other, err));
    *near = *near && route->type <= other->type;
  }
  return COPSE_OK;
}

/*
 * Keeps the ports of channels that are run, not those of the bound: data come in at GPUs near the
 * port, and go out there too where there are two. A ring takes one rail in all hosts.
 */
static copse_status keep_near_ports(struct maker *m, struct copse_ring_step *enter,
                                    struct copse_ring_step *leave, struct copse_err *err) {
  for (int p = 0; p < m->n_ports; p++) {
    int n_near = 0;
    for (int i = 0; i < m->n; i++) {
      bool *near = &enter[p * m->n + i].exists;
      COPSE_DO(find_near(m, i, p, near, err));
      *near = *near && m->ports[p].shared;
      n_near += enter[p * m->n + i].exists;
    }
    bool twins = m->out->kind == COPSE_NCCL_TWIN_RINGS; /* where it goes out, the other comes in */
    for (int i = 0; i < m->n; i++)
      leave[p * m->n + i].exists = m->ports[p].shared && can_enter(m, i, p) &&
                                   (!(twins || n_near > 1) || enter[p * m->n + i].exists);
  }
  return COPSE_OK;
}

static copse_status make_ring_ports(struct maker *m, struct copse_ring_step *enter,
                                    struct copse_ring_step *leave, struct copse_err *err) {
  bool twins = m->out->kind == COPSE_NCCL_TWIN_RINGS;
  for (int p = 0; p < m->n_ports; p++) {
    for (int i = 0; i < m->n; i++) {
      COPSE_DO(add_way(m, i, p, false, 0, 1, err));
      if (twins) COPSE_DO(add_way(m, i, p, true, 0, 1, err));
      COPSE_DO(end_step(m, &enter[p * m->n + i], err));
      COPSE_DO(add_way(m, i, p, true, 0, 1, err));
      if (twins) COPSE_DO(add_way(m, i, p, false, 0, 1, err));
      COPSE_DO(end_step(m, &leave[p * m->n + i], err));
    }
  }
  if (m->out->kind != COPSE_NCCL_RINGS) return keep_near_ports(m, enter, leave, err);
  return COPSE_OK;
}

/* Makes whole numbers of the steps' parts, in the order in which the steps were made. */
static copse_status fill_steps(struct maker *m, struct copse_ring_step *steps, int n, size_t *at,
                               struct copse_ring_load *loads, struct copse_err *err) {
  for (int i = 0; i < n; i++) {
    struct copse_ring_step *step = &steps[i];
    step->loads = loads + *at;
    for (int k = 0; k < step->n; k++, ++*at) {
      struct copse_q amount = m->parts[*at].amount;
      int64_t whole = m->common / amount.den;
      if (copse_mul_overflows(whole, amount.num, &whole) || whole > 1 << 20)
        return copse_fail(err, COPSE_OVERFLOW, "equal ways share in too small fractions");
      loads[*at] = (struct copse_ring_load){m->parts[*at].row, (int)whole};
    }
  }
  return COPSE_OK;
}

static copse_status finish(struct maker *m, struct copse_ring_step *moves,
                           struct copse_ring_step *first, struct copse_ring_step *other,
                           struct copse_err *err) {
  struct copse_ring_instance *instance = &m->out->instance;
  size_t rows = (size_t)instance->n_rows, at = 0;
  int steps = instance->n_ports * m->n;
  struct copse_ring_load *loads;
  struct copse_q *bandwidth;
  COPSE_DO(COPSE_ARRAY(&m->out->arena, m->n_parts, loads, err));
  COPSE_DO(COPSE_ARRAY(&m->out->arena, rows, bandwidth, err));
  COPSE_DO(fill_steps(m, moves, m->n * m->n, &at, loads, err));
  for (int i = 0; i < steps; i++) { /* made by turns */
    COPSE_DO(fill_steps(m, &first[i], 1, &at, loads, err));
    if (other) COPSE_DO(fill_steps(m, &other[i], 1, &at, loads, err));
  }
  m->out->unit = (struct copse_q){m->common * trees(m), 1};
  for (size_t r = 0; r < rows; r++) {
    struct copse_q whole = m->whole[r % (size_t)m->host_rows];
    if (whole.num == 0) whole = COPSE_Q_ONE; /* no such cable: any bandwidth will do */
    COPSE_DO(copse_q_mul(whole, m->out->unit, &bandwidth[r], err));
  }
  instance->bandwidth = bandwidth;
  return COPSE_OK;
}

static copse_status make(struct maker *m, struct copse_err *err) {
  struct copse_nccl_channels *out = m->out;
  struct copse_ring_instance *instance = &out->instance;
  size_t n = (size_t)m->n, steps = (size_t)m->n_ports * n;
  struct copse_ring_step *moves, *first = NULL, *other = NULL;
  bool several = out->n_hosts > 1, chain = is_chain(m);
  bool has_other = several && out->kind != COPSE_NCCL_CHAINS;
  COPSE_DO(find_roles(m, err));
  if (!chain) { /* in a ring all hosts have the same role */
    m->n_roles = 1;
    m->roles[0] = (struct role){.host = m->host};
  }
  COPSE_DO(list_rows(m, err));
  COPSE_DO(COPSE_ARRAY(&out->arena, n * n, moves, err));
  COPSE_DO(COPSE_ARRAY(&out->arena, n * n, out->move_type, err));
  COPSE_DO(COPSE_ARRAY(&out->arena, steps, out->in_type, err));
  COPSE_DO(COPSE_ARRAY(&out->arena, steps, out->out_type, err));
  COPSE_DO(COPSE_ARRAY(&out->arena, steps, first, err));
  if (has_other) COPSE_DO(COPSE_ARRAY(&out->arena, steps, other, err));
  instance->n_gpus = m->n;
  instance->move = moves;
  instance->closed = !several && !chain;
  instance->n_ports = several ? m->n_ports : 0;
  instance->same_port = chain || out->kind == COPSE_NCCL_RAIL_RINGS;
  instance->enter = first;
  if (chain)
    instance->second = other;
  else
    instance->leave = other;
  COPSE_DO(make_moves(m, moves, err));
  if (several && chain) COPSE_DO(make_tree_ports(m, first, other, err));
  if (several && !chain) COPSE_DO(make_ring_ports(m, first, other, err));
  return finish(m, moves, first, other, err);
}

copse_status copse_nccl_channels_make(struct copse_nccl_machine *machine,
                                      enum copse_nccl_channel_kind kind, int host, int hosts,
                                      const bool *like, struct copse_nccl_channels *out,
                                      struct copse_err *err) {
  struct maker m = {.machine = machine,
                    .out = out,
                    .host = host,
                    .like = like,
                    .ranks = machine->members + machine->first[host],
                    .n = machine->first[host + 1] - machine->first[host],
                    .first_port = machine->first_port[host],
                    .common = 1};
  m.ports = machine->ports + m.first_port;
  m.n_ports = hosts > 1 ? machine->first_port[host + 1] - m.first_port : 0;
  *out = (struct copse_nccl_channels){.kind = kind, .n_hosts = hosts};
  if (hosts > 1 && m.n_ports == 0)
    return copse_fail(err, COPSE_INFEASIBLE,
                      "host %d has no NIC, and can't reach the others: its "
                      "topology needs NICs with links to its GPUs",
                      host);
  bool shared = machine->n_hosts == 1 || hosts == 1;
  for (int p = 0; p < m.n_ports; p++) shared = shared || m.ports[p].shared;
  if (!shared)
    return copse_fail(
        err, COPSE_INFEASIBLE,
        "no NIC of host %d reaches one of every other host over the network alone, and "
        "NCCL's rings and trees go that way: add links that lead there",
        host);
  copse_status status = make(&m, err);
  free(m.parts);
  copse_arena_free(&m.scratch);
  return status;
}

copse_status copse_nccl_channels_level(const struct copse_nccl_machine *machine, int host,
                                       struct copse_nccl_channels *channels,
                                       struct copse_err *err) {
  struct copse_ring_instance *instance = &channels->instance;
  struct copse_q *bandwidth, cable;
  COPSE_DO(COPSE_ARRAY(&channels->arena, (size_t)instance->n_rows, bandwidth, err));
  for (int r = 0; r < instance->n_rows; r++) {
    const struct copse_nccl_row *row = &channels->rows[r];
    bandwidth[r] = instance->bandwidth[r];
    if (row->link >= 0) continue;
    int rail = machine->ports[machine->first_port[host] + row->port].rail;
    for (int p = 0; p < machine->n_ports; p++) {
      if (machine->ports[p].rail != rail) continue;
      COPSE_DO(find_cable(machine, &machine->ports[p], row->outward, &cable, err));
      COPSE_DO(copse_q_mul(cable, channels->unit, &cable, err));
      if (cable.num > 0 && copse_q_cmp(cable, bandwidth[r]) < 0) bandwidth[r] = cable;
    }
  }
  instance->bandwidth = bandwidth;
  return COPSE_OK;
}

/* Returns what a channel by a port puts on a row, or 0. */
static int load_of_port(const struct copse_ring_step *steps, int n, int port, int row) {
  for (int i = 0; steps && i < n; i++)
    for (int k = 0; k < steps[port * n + i].n; k++)
      if (steps[port * n + i].loads[k].row == row) return steps[port * n + i].loads[k].amount;
  return 0;
}

copse_status copse_nccl_channels_share(struct copse_nccl_channels *channels, const int *counts,
                                       struct copse_q speed, struct copse_err *err) {
  struct copse_ring_instance *instance = &channels->instance;
  struct copse_ring_step *enter = (struct copse_ring_step *)(uintptr_t)instance->enter;
  struct copse_q *bandwidth, most;
  COPSE_DO(COPSE_ARRAY(&channels->arena, (size_t)instance->n_rows, bandwidth, err));
  for (int r = 0; r < instance->n_rows; r++) {
    const struct copse_nccl_row *row = &channels->rows[r];
    bandwidth[r] = instance->bandwidth[r];
    int load = row->link >= 0 ? 0 : load_of_port(enter, instance->n_gpus, row->port, r);
    if (row->link < 0 && load == 0)
      load = load_of_port(instance->leave, instance->n_gpus, row->port, r);
    if (load == 0 || counts[row->port] == 0) continue;
    COPSE_DO(
        copse_q_mul(speed, (struct copse_q){(int64_t)load * counts[row->port], 1}, &most, err));
    if (copse_q_cmp(most, bandwidth[r]) < 0) bandwidth[r] = most;
  }
  for (int i = 0; i < instance->n_ports * instance->n_gpus; i++)
    enter[i].exists = enter[i].exists && counts[i / instance->n_gpus] > 0;
  instance->bandwidth = bandwidth;
  return COPSE_OK;
}
