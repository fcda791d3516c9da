/*
 * A machine as text:
 *
 *   hosts x 4: h0 (ranks 0-7) .. h3 (ranks 24-31)
 *     NVSwitch nvswitch               8 GPUs at 300 GB/s
 *     GPU 0                           NVSwitch nvswitch at 300 GB/s
 *       NIC nic0                      25 GB/s; fabric at 25 GB/s
 *   fabric
 *     switches x 8: rail0 .. rail7    4 NICs at 25 GB/s
 *
 * A host is a forest: CPUs, what hangs on them over PCIe, and what no CPU reaches. All that is not
 * of the forest (NVLinks, links between sockets, to the fabric) stands at the end of a row.
 */
#include "view/outline.h"

#include <stdio.h>
#include <string.h>

#include "base/graph.h"
#include "topology/words.h"

#define MOST_ROWS 96  /* of a host, or of the fabric */
#define MOST_NAMED 6  /* partners of one bandwidth; more are counted */
#define DETAILS_AT 34 /* column */

struct outline {
  const struct copse_topology *topology;
  struct copse_text *text;
  struct copse_places places;
  struct copse_adjacency out, in; /* links by source, by destination */
  int *parent;                    /* [n_nodes] in the forest of its host; -1: a root */
  int *roots;                     /* [n_nodes] in order of their rows */
  int n_roots;
  struct copse_adjacency of_host; /* roots by host */
  int *partners;                  /* [n_nodes] scratch */
  bool *listed;                   /* [n_nodes] scratch */
  int rows;
  struct copse_arena arena;
  struct copse_err *err;
};

static void free_outline(struct outline *o) { copse_arena_free(&o->arena); }

/* ---- names ----------------------------------------------------------------------------------- */

static const struct type {
  const char *type, *one, *many;
} types[] = {{"gpu", "GPU", "GPUs"},          {"nvswitch", "NVSwitch", "NVSwitches"},
             {"cpu", "CPU", "CPUs"},          {"pcie", "PCIe", "PCIe switches"},
             {"nic", "NIC", "NICs"},          {"net", "port", "ports"},
             {"switch", "switch", "switches"}};

static struct type type_of(const struct outline *o, int v) {
  const char *type = o->topology->nodes[v].type;
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (strcmp(type, types[i].type) == 0) return types[i];
  return (struct type){type, type, type};
}

static bool is_type(const struct outline *o, int v, const char *type) {
  return strcmp(o->topology->nodes[v].type, type) == 0;
}

static bool is_switch(const struct outline *o, int v) {
  return is_type(o, v, "nvswitch") || is_type(o, v, "switch");
}

/* Names a node without the host, and of "nic@0000:0c:00.0" by what the type does not say. */
static const char *name_of(const struct outline *o, int v) {
  const char *id = o->topology->nodes[v].id, *type = o->topology->nodes[v].type;
  size_t n = strlen(type);
  if (o->places.of[v] >= 0) id += copse_id_prefix(id);
  return strncmp(id, type, n) == 0 && id[n] == '@' && id[n + 1] ? id + n + 1 : id;
}

static void add_name(const struct outline *o, int v, struct copse_text *text) {
  const struct copse_node *node = &o->topology->nodes[v];
  int number = o->places.numbers[v];
  if (number < 0) {
    copse_text_add(text, "%s %s", type_of(o, v).one, name_of(o, v));
    return;
  }
  copse_text_add(text, "GPU %d", number);
  if (copse_numbered(name_of(o, v), "gpu") != number) copse_text_add(text, " %s", name_of(o, v));
  if (o->places.n == 0 && node->rank != number) copse_text_add(text, ", rank %d", node->rank);
}

/* ---- links of a node ------------------------------------------------------------------------- */

static int find(const struct outline *o, int src, int dst) {
  return copse_topology_find_link(o->topology, src, dst);
}

/* Prints "300", or "450 out, 400 in". */
static void rate_of(const struct outline *o, int v, int u, char text[64]) {
  int there = find(o, v, u), back = find(o, u, v);
  const struct copse_link *links = o->topology->links;
  if (there >= 0 && back >= 0 && copse_q_eq(links[there].bandwidth, links[back].bandwidth))
    snprintf(text, 64, "%.5g GB/s", copse_q_to_double(links[there].bandwidth));
  else
    snprintf(text, 64, "%.5g GB/s out, %.5g in",
             there < 0 ? 0. : copse_q_to_double(links[there].bandwidth),
             back < 0 ? 0. : copse_q_to_double(links[back].bandwidth));
}

/* Finds all neighbours into o->partners; each once. */
static int find_partners(struct outline *o, int v) {
  const struct copse_link *links = o->topology->links;
  int n = 0;
  for (int i = o->out.first[v]; i < o->out.first[v + 1]; i++)
    o->partners[n++] = links[o->out.item[i]].dst;
  for (int i = o->in.first[v]; i < o->in.first[v + 1]; i++)
    if (find(o, v, links[o->in.item[i]].src) < 0) o->partners[n++] = links[o->in.item[i]].src;
  return n;
}

static bool alike(const struct outline *o, int v, int a, int b) {
  char one[64], other[64];
  if (strcmp(o->topology->nodes[a].type, o->topology->nodes[b].type) != 0) return false;
  rate_of(o, v, a, one);
  rate_of(o, v, b, other);
  return strcmp(one, other) == 0;
}

/* Adds a node's links of one kind and bandwidth, by the names or the number of their ends. Names of
 * the fabric's switches are left to their own rows. */
static void add_alike(struct outline *o, int v, const int *partners, int n, bool counted) {
  char rate[64];
  int k = 0;
  bool fabric = o->places.n > 0 && o->places.of[partners[0]] < 0;
  for (int i = 0; i < n; i++) k += alike(o, v, partners[0], partners[i]);
  rate_of(o, v, partners[0], rate);
  if (fabric && !counted) { /* which switch differs between hosts that are alike */
    copse_text_add(o->text, k > 1 ? "%d switches of the fabric" : "fabric", k);
  } else if (counted || k > MOST_NAMED) {
    struct type type = type_of(o, partners[0]);
    copse_text_add(o->text, "%d %s", k, k > 1 ? type.many : type.one);
  } else {
    bool first = true;
    for (int i = 0; i < n; i++) {
      if (!alike(o, v, partners[0], partners[i])) continue;
      copse_text_add(o->text, "%s", first ? "" : ", ");
      if (o->places.numbers[partners[i]] >= 0)
        copse_text_add(o->text, "GPU %d", o->places.numbers[partners[i]]);
      else
        add_name(o, partners[i], o->text);
      first = false;
    }
  }
  copse_text_add(o->text, " at %s", rate);
}

/* Adds what v is joined to beside its row's parent and children; "" for nothing. */
static void add_partners(struct outline *o, int v, bool counted, bool again) {
  int n = find_partners(o, v), kept = 0;
  for (int i = 0; i < n; i++) {
    int u = o->partners[i];
    if (o->parent[v] != u && o->parent[u] != v) o->partners[kept++] = u;
  }
  for (int i = 0; i < kept; i++) {
    bool known = false;
    for (int k = 0; k < i && !known; k++) known = alike(o, v, o->partners[k], o->partners[i]);
    if (known) continue;
    copse_text_add(o->text, "%s", again ? "; " : "");
    add_alike(o, v, o->partners + i, kept - i, counted);
    again = true;
  }
}

/* ---- the forest of a host -------------------------------------------------------------------- */

/* Whether a link is the forest's: NVLinks, links between sockets and those to the fabric are
 * not. */
static bool is_branch(const struct outline *o, int v, int u) {
  const struct copse_node *nodes = o->topology->nodes;
  if (o->places.of[v] != o->places.of[u] || (o->places.n > 0 && o->places.of[v] < 0)) return false;
  if (is_switch(o, v) || is_switch(o, u)) return false;
  return strcmp(nodes[v].type, nodes[u].type) != 0 || is_type(o, v, "pcie");
}

static void grow(struct outline *o, int root, bool *reached, struct copse_queue *queue) {
  queue->head = queue->tail = 0;
  copse_queue_push(queue, root);
  reached[root] = true;
  o->roots[o->n_roots++] = root;
  while (!copse_queue_is_empty(queue)) {
    int v = copse_queue_pop(queue), n = find_partners(o, v);
    for (int i = 0; i < n; i++) {
      int u = o->partners[i];
      if (reached[u] || !is_branch(o, v, u)) continue;
      reached[u] = true;
      o->parent[u] = v;
      copse_queue_push(queue, u);
    }
  }
}

/* Chooses the roots: switches first, as all look for them; then CPUs, PCIe switches, GPUs, anything
 * else. */
static copse_status plant(struct outline *o) {
  static const char *const order[] = {"nvswitch", "switch", "cpu", "pcie", "gpu", NULL};
  int n = o->topology->n_nodes;
  bool *reached;
  struct copse_queue queue = {0};
  COPSE_DO(COPSE_ARRAY(&o->arena, (size_t)n, reached, o->err));
  COPSE_DO(COPSE_ARRAY(&o->arena, (size_t)n, queue.items, o->err));
  for (int v = 0; v < n; v++) o->parent[v] = -1;
  for (int k = 0; k < (int)(sizeof order / sizeof *order); k++)
    for (int v = 0; v < n; v++)
      if (!reached[v] && (!order[k] || is_type(o, v, order[k]))) grow(o, v, reached, &queue);
  int *host; /* the host of each root; 0 where no hosts are told apart */
  COPSE_DO(COPSE_ARRAY(&o->arena, (size_t)n, host, o->err));
  for (int i = 0; i < n; i++)
    host[i] = i >= o->n_roots ? -1 : o->places.n > 0 ? o->places.of[o->roots[i]] : 0;
  return copse_adjacency_by(&o->arena, o->places.n > 0 ? o->places.n : 1, n, host, sizeof *host,
                            &o->of_host, o->err);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Adds details of row `v` from a fixed column on. */
static void add_details(struct outline *o, int v, size_t start) {
  char rate[64];
  size_t used = o->text->size - start;
  size_t before = o->text->size;
  int sm = o->topology->nodes[v].sm;
  copse_text_add(o->text, "%*s", used + 2 < DETAILS_AT ? (int)(DETAILS_AT - used) : 2, "");
  size_t empty = o->text->size;
  if (sm > 0) copse_text_add(o->text, "sm_%d", sm);
  if (o->parent[v] >= 0) {
    rate_of(o, v, o->parent[v], rate);
    copse_text_add(o->text, "%s%s", sm > 0 ? "; " : "", rate);
  }
  add_partners(o, v, is_switch(o, v), o->text->size > empty);
  if (o->text->size == empty && !o->text->failed) {
    o->text->size = before;
    o->text->data[before] = '\0';
  }
  copse_text_add(o->text, "\n");
}

static bool has_children(struct outline *o, int v) {
  int n = find_partners(o, v);
  for (int i = 0; i < n; i++)
    if (o->parent[o->partners[i]] == v) return true;
  return false;
}

static void add_row(struct outline *o, int v, int depth) {
  size_t start = o->text->size;
  if (o->rows++ >= MOST_ROWS) return;
  copse_text_add(o->text, "%*s", 2 + 2 * depth, "");
  add_name(o, v, o->text);
  add_details(o, v, start);
}

/* Adds children that are no GPUs and have nothing below them, of one kind and bandwidth, as one
 * row. */
static void add_leaves(struct outline *o, const int *leaves, int n, int depth) {
  size_t start = o->text->size;
  if (n == 1) {
    add_row(o, leaves[0], depth);
    return;
  }
  if (o->rows++ >= MOST_ROWS) return;
  copse_text_add(o->text, "%*s%s x %d: %s .. %s", 2 + 2 * depth, "", type_of(o, leaves[0]).many, n,
                 name_of(o, leaves[0]), name_of(o, leaves[n - 1]));
  add_details(o, leaves[0], start);
}

static copse_status add_tree(struct outline *o, int v, int depth);

static copse_status add_children(struct outline *o, int v, int depth) {
  int n = find_partners(o, v), kept = 0, *children;
  COPSE_DO(COPSE_ARRAY(&o->arena, (size_t)n, children, o->err));
  for (int i = 0; i < n; i++)
    if (o->parent[o->partners[i]] == v) children[kept++] = o->partners[i];
  for (int i = 0, end; i < kept; i = end) {
    bool leaf = o->places.numbers[children[i]] < 0 && !has_children(o, children[i]);
    for (end = i + 1; leaf && end < kept; end++)
      if (!alike(o, v, children[i], children[end]) || has_children(o, children[end])) break;
    if (leaf)
      add_leaves(o, children + i, end - i, depth);
    else
      COPSE_DO(add_tree(o, children[i], depth));
  }
  return COPSE_OK;
}

/* As deep as a chain of PCIe switches may go; a file of more is cut there. */
#define MOST_DEPTH 24

static copse_status add_tree(struct outline *o, int v, int depth) {
  add_row(o, v, depth);
  return depth < MOST_DEPTH && o->rows <= MOST_ROWS ? add_children(o, v, depth + 1) : COPSE_OK;
}

static void end_rows(struct outline *o) {
  if (o->rows > MOST_ROWS) copse_text_add(o->text, "  .. and more: copse topo TOPO --ids \"*\"\n");
  o->rows = 0;
}

/* ---- hosts ----------------------------------------------------------------------------------- */

struct host {
  char *rows;
  int first_rank, last_rank, like; /* like: the first host that this one is like */
  bool in_a_row;
};

static copse_status draw_host(struct outline *o, int g, char **rows) {
  COPSE_AT_END(copse_text_free) struct copse_text own = {0};
  struct copse_text *text = o->text;
  copse_status status = COPSE_OK;
  o->text = &own;
  for (int i = o->of_host.first[g]; i < o->of_host.first[g + 1] && status == COPSE_OK; i++)
    status = add_tree(o, o->roots[o->of_host.item[i]], 0);
  end_rows(o);
  o->text = text;
  COPSE_DO(status);
  COPSE_DO(copse_text_status(&own, o->err));
  *rows = copse_arena_strdup(&o->arena, own.data ? own.data : "");
  return *rows ? COPSE_OK : copse_fail_nomem(o->err);
}

static void find_ranks(const struct outline *o, struct host *hosts) {
  const struct copse_topology *t = o->topology;
  for (int h = 0; h < o->places.n; h++) hosts[h].first_rank = -1;
  for (int r = 0; r < t->n_ranks; r++) {
    struct host *h = &hosts[o->places.of[t->rank_nodes[r]]];
    h->in_a_row = h->first_rank < 0 || (h->in_a_row && r == h->last_rank + 1);
    if (h->first_rank < 0) h->first_rank = r;
    h->last_rank = r;
  }
}

static void add_host_name(const struct outline *o, const struct host *hosts, int h) {
  copse_text_add(o->text, "%s", o->places.names[h]);
  if (!hosts[h].in_a_row) return;
  if (hosts[h].first_rank == hosts[h].last_rank)
    copse_text_add(o->text, " (rank %d)", hosts[h].first_rank);
  else
    copse_text_add(o->text, " (ranks %d-%d)", hosts[h].first_rank, hosts[h].last_rank);
}

static void add_alike_hosts(const struct outline *o, const struct host *hosts, int h) {
  int n = 0, second = -1, last = h;
  for (int k = h; k < o->places.n; k++) {
    if (hosts[k].like != h) continue;
    if (++n == 2) second = k;
    last = k;
  }
  if (n == 1)
    copse_text_add(o->text, "host ");
  else
    copse_text_add(o->text, "hosts x %d: ", n);
  add_host_name(o, hosts, h);
  if (n > 1) {
    copse_text_add(o->text, last == second ? ", " : " .. ");
    add_host_name(o, hosts, last);
  }
  copse_text_add(o->text, "\n%s", hosts[h].rows);
}

static copse_status add_hosts(struct outline *o) {
  COPSE_AT_END(copse_index_map_free) struct copse_index_map known = {0};
  struct host *hosts;
  COPSE_DO(COPSE_ARRAY(&o->arena, (size_t)o->places.n, hosts, o->err));
  find_ranks(o, hosts);
  for (int h = 0; h < o->places.n; h++) {
    size_t cursor = 0;
    COPSE_DO(draw_host(o, h, &hosts[h].rows));
    uint64_t key = copse_key_text(hosts[h].rows);
    hosts[h].like = copse_index_map_next(&known, key, &cursor);
    if (hosts[h].like >= 0) continue; /* equal texts have equal keys, others almost never */
    hosts[h].like = h;
    COPSE_DO(copse_index_map_add(&known, key, h, o->err));
  }
  for (int h = 0; h < o->places.n; h++)
    if (hosts[h].like == h) add_alike_hosts(o, hosts, h);
  return COPSE_OK;
}

/* ---- the fabric ------------------------------------------------------------------------------ */

/* A node of the fabric as others see it: its type and what it is joined to. */
struct row {
  const char *what;
  int first, last, n;
};

static copse_status describe(struct outline *o, int v, const char **what) {
  COPSE_AT_END(copse_text_free) struct copse_text own = {0};
  struct copse_text *text = o->text;
  o->text = &own;
  copse_text_add(&own, "%s\n", type_of(o, v).one);
  add_partners(o, v, true, false);
  o->text = text;
  *what = own.failed ? NULL : copse_arena_strdup(&o->arena, own.data);
  return *what ? COPSE_OK : copse_fail_nomem(o->err);
}

static void add_fabric_row(struct outline *o, const struct row *row) {
  size_t start = o->text->size;
  if (o->rows++ >= MOST_ROWS) return;
  copse_text_add(o->text, "  ");
  if (row->n > 1)
    copse_text_add(o->text, "%s x %d: %s .. %s", type_of(o, row->first).many, row->n,
                   name_of(o, row->first), name_of(o, row->last));
  else
    add_name(o, row->first, o->text);
  size_t used = o->text->size - start;
  copse_text_add(o->text, "%*s%s\n", used + 2 < DETAILS_AT ? (int)(DETAILS_AT - used) : 2, "",
                 strchr(row->what, '\n') + 1);
}

static copse_status add_fabric(struct outline *o) {
  COPSE_AT_END(copse_index_map_free) struct copse_index_map known = {0};
  struct row *rows;
  int n = 0;
  COPSE_DO(COPSE_ARRAY(&o->arena, (size_t)o->topology->n_nodes, rows, o->err));
  for (int v = 0; v < o->topology->n_nodes; v++) {
    size_t cursor = 0;
    const char *what;
    if (o->places.of[v] >= 0) continue;
    COPSE_DO(describe(o, v, &what));
    uint64_t key = copse_key_text(what);
    int at = copse_index_map_next(&known, key, &cursor);
    if (at < 0) {
      at = n++;
      rows[at] = (struct row){.what = what, .first = v};
      COPSE_DO(copse_index_map_add(&known, key, at, o->err));
    }
    rows[at].last = v;
    rows[at].n++;
  }
  if (n > 0) copse_text_add(o->text, "fabric\n");
  for (int i = 0; i < n; i++) add_fabric_row(o, &rows[i]);
  end_rows(o);
  return COPSE_OK;
}

static copse_status start(struct outline *o) {
  const struct copse_topology *t = o->topology;
  size_t n = (size_t)t->n_nodes;
  COPSE_DO(copse_places_find(t, &o->arena, &o->places, o->err));
  COPSE_DO(copse_adjacency_by(&o->arena, t->n_nodes, t->n_links, COPSE_KEYS(t->links, src),
                              sizeof *t->links, &o->out, o->err));
  COPSE_DO(copse_adjacency_by(&o->arena, t->n_nodes, t->n_links, COPSE_KEYS(t->links, dst),
                              sizeof *t->links, &o->in, o->err));
  return COPSE_ARRAYS(&o->arena, n, int, o->err, &o->parent, &o->roots, &o->partners);
}

copse_status copse_outline(const struct copse_topology *topology, struct copse_text *text,
                           struct copse_err *err) {
  COPSE_AT_END(free_outline) struct outline o = {.topology = topology, .text = text, .err = err};
  char *rows;
  COPSE_DO(start(&o));
  COPSE_DO(plant(&o));
  if (o.places.n == 0) {
    COPSE_DO(draw_host(&o, 0, &rows));
    copse_text_add(text, "%s", rows);
    return copse_text_status(text, err);
  }
  COPSE_DO(add_hosts(&o));
  COPSE_DO(add_fabric(&o));
  return copse_text_status(text, err);
}

/* ---- the matrix ------------------------------------------------------------------------------ */

struct way {
  int hops; /* -1: none */
  int cpus, pcie;
  bool nvswitch, other, fabric;
  struct copse_q width;
};

static const char *way_kind(const struct way *w) {
  if (w->hops == 1) return "direct";
  if (w->nvswitch) return "NVS";
  if (w->fabric) return "net";
  if (w->cpus > 1) return "SYS";
  if (w->cpus == 1) return "PHB";
  return w->pcie > 1 ? "PXB" : w->pcie == 1 ? "PIX" : "relay";
}

static struct way extend(const struct outline *o, const struct way *w, int v, int link) {
  struct way next = *w;
  if (next.hops++ > 0) {
    next.cpus += is_type(o, v, "cpu");
    next.pcie += is_type(o, v, "pcie");
    next.nvswitch = next.nvswitch || is_type(o, v, "nvswitch");
    next.fabric =
        next.fabric || (is_type(o, v, "switch") && (o->places.n == 0 || o->places.of[v] < 0));
  }
  struct copse_q width = o->topology->links[link].bandwidth;
  if (next.width.num == 0 || copse_q_cmp(width, next.width) < 0) next.width = width;
  return next;
}

/* Whether a way inside a host may take the link: one of the fabric leads out and back again, and
 * from one NIC of a host to another's GPUs there is none. */
static bool stays_inside(const struct outline *o, int link) {
  const struct copse_link *l = &o->topology->links[link];
  return o->places.n == 0 || o->places.of[l->src] < 0 ||
         o->places.of[l->src] == o->places.of[l->dst];
}

/* Finds the ways of the fewest links, through no GPU; of hosts, inside the host. */
static void find_ways(const struct outline *o, int from, struct way *ways,
                      struct copse_queue *queue) {
  for (int v = 0; v < o->topology->n_nodes; v++) ways[v].hops = -1;
  queue->head = queue->tail = 0;
  ways[from] = (struct way){.width = COPSE_Q_ZERO};
  copse_queue_push(queue, from);
  while (!copse_queue_is_empty(queue)) {
    int v = copse_queue_pop(queue);
    if (v != from && o->topology->nodes[v].rank >= 0) continue;
    for (int i = o->out.first[v]; i < o->out.first[v + 1]; i++) {
      int link = o->out.item[i], u = o->topology->links[link].dst;
      if (ways[u].hops >= 0 || !stays_inside(o, link)) continue;
      ways[u] = extend(o, &ways[v], v, link);
      copse_queue_push(queue, u);
    }
  }
}

#define MATRIX_GPUS 16 /* columns */

static bool is_shown(const struct outline *o, int v, bool columns) {
  if (o->places.n > 0 && o->places.of[v] != 0) return false;
  return o->topology->nodes[v].rank >= 0 || (!columns && is_type(o, v, "nic"));
}

struct matrix {
  struct outline o;
  int columns[MATRIX_GPUS], n; /* nodes */
  int all;                     /* GPUs of the host */
  bool json, first;            /* the next row is the first */
};

static void add_matrix_head(struct matrix *m) {
  struct outline *o = &m->o;
  const char *host = o->places.n > 0 ? o->places.names[0] : "";
  if (m->json) {
    copse_text_add(o->text, "{\"name\": ");
    copse_text_add_json_string(o->text, o->topology->name);
    copse_text_add(o->text, ", \"host\": ");
    if (*host) copse_text_add_json_string(o->text, host);
    copse_text_add(o->text, "%s, \"gpus\": %d, \"columns\": [", *host ? "" : "null", m->all);
  } else {
    copse_text_add(o->text, "%-20s", host);
  }
  for (int c = 0; c < m->n; c++) {
    char head[24];
    snprintf(head, sizeof head, "GPU %d", o->places.numbers[m->columns[c]]);
    if (m->json && c > 0) copse_text_add(o->text, ", ");
    if (m->json)
      copse_text_add_json_string(o->text, o->topology->nodes[m->columns[c]].id);
    else
      copse_text_add(o->text, " %11s", head);
  }
  copse_text_add(o->text, m->json ? "], \"rows\": [" : "\n");
}

static void add_json_row(struct matrix *m, int v, const struct way *ways) {
  struct copse_text *text = m->o.text;
  copse_text_add(text, "%s\n  {\"id\": ", m->first ? "" : ",");
  m->first = false;
  copse_text_add_json_string(text, m->o.topology->nodes[v].id);
  for (int kinds = 0; kinds < 2; kinds++) {
    copse_text_add(text, kinds ? "], \"through\": [" : ", \"GBps\": [");
    for (int c = 0; c < m->n; c++) {
      const struct way *w = &ways[m->columns[c]];
      copse_text_add(text, "%s", c > 0 ? ", " : "");
      if (v == m->columns[c] || w->hops < 0)
        copse_text_add(text, "null");
      else if (kinds)
        copse_text_add(text, "\"%s\"", way_kind(w));
      else
        copse_text_add(text, "%.10g", copse_q_to_double(w->width));
    }
  }
  copse_text_add(text, "]}");
}

static void add_matrix_row(struct matrix *m, int v, const struct way *ways) {
  struct outline *o = &m->o;
  COPSE_AT_END(copse_text_free) struct copse_text name = {0};
  if (m->json) {
    add_json_row(m, v, ways);
    return;
  }
  if (o->topology->nodes[v].rank >= 0)
    copse_text_add(&name, "GPU %d", o->places.numbers[v]);
  else
    copse_text_add(&name, "NIC %s", name_of(o, v));
  copse_text_add(o->text, "%-20.40s", name.data ? name.data : "");
  for (int c = 0; c < m->n; c++) {
    char cell[48] = "X";
    const struct way *w = &ways[m->columns[c]];
    if (v != m->columns[c] && w->hops < 0) snprintf(cell, sizeof cell, "-");
    if (v != m->columns[c] && w->hops > 0)
      snprintf(cell, sizeof cell, "%.4g %s", copse_q_to_double(w->width), way_kind(w));
    copse_text_add(o->text, " %11s", cell);
  }
  copse_text_add(o->text, "\n");
}

static void free_matrix(struct matrix *m) { free_outline(&m->o); }

copse_status copse_outline_matrix(const struct copse_topology *topology, bool json,
                                  struct copse_text *text, struct copse_err *err) {
  COPSE_AT_END(free_matrix)
  struct matrix m = {
      .o = {.topology = topology, .text = text, .err = err}, .json = json, .first = true};
  struct copse_queue queue = {0};
  struct way *ways;
  COPSE_DO(start(&m.o));
  COPSE_DO(COPSE_ARRAY(&m.o.arena, (size_t)topology->n_nodes, ways, err));
  COPSE_DO(COPSE_ARRAY(&m.o.arena, (size_t)topology->n_nodes, queue.items, err));
  for (int r = 0; r < topology->n_ranks; r++)
    if (is_shown(&m.o, topology->rank_nodes[r], true) && m.all++ < MATRIX_GPUS)
      m.columns[m.n++] = topology->rank_nodes[r];
  add_matrix_head(&m);
  for (int v = 0; v < topology->n_nodes; v++) {
    if (!is_shown(&m.o, v, false) ||
        (topology->nodes[v].rank >= 0 && m.all > MATRIX_GPUS && v > m.columns[m.n - 1]))
      continue;
    find_ways(&m.o, v, ways, &queue);
    add_matrix_row(&m, v, ways);
  }
  if (json) {
    copse_text_add(text, "]}\n");
    return copse_text_status(text, err);
  }
  if (m.all > m.n) copse_text_add(text, "(the first %d of %d GPUs)\n", m.n, m.all);
  copse_text_add(text,
                 "GB/s of the narrowest link. NVS: through an NVSwitch, PIX: one PCIe switch, PXB: "
                 "several,\nPHB: a CPU, SYS: two CPUs, relay: a switch of the host,\nnet: switches "
                 "of the fabric, -: no way inside the host\n");
  return copse_text_status(text, err);
}
