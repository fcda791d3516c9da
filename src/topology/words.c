/*
 * Parts of a topology in words: hosts by ids or by links, kinds of links by the types of the nodes
 * that they join, cuts with equal links counted together, and ids that users write.
 */
#include "topology/words.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "base/graph.h"

/* ---- hosts ----------------------------------------------------------------------------------- */

static bool is_letter(char c) { return (c | 32) >= 'a' && (c | 32) <= 'z'; }

size_t copse_id_prefix(const char *id) {
  size_t n = 0;
  if (!is_letter(id[0])) return 0;
  while (id[n] == '_' || id[n] == '-' || (id[n] >= '0' && id[n] <= '9') || is_letter(id[n])) n++;
  return id[n] == '.' && id[n + 1] ? n + 1 : 0;
}

struct finding {
  const struct copse_topology *topology;
  int *of;    /* [n_nodes] */
  int *first; /* [n_ranks] a node of each host; of those by links sets, and [n_nodes] */
  struct copse_index_map prefixes;
  struct copse_err *err;
};

static void free_finding(struct finding *f) { copse_index_map_free(&f->prefixes); }

static uint64_t prefix_key(const char *id) {
  uint64_t key = 0;
  for (size_t i = 0, n = copse_id_prefix(id); i < n; i++)
    key = copse_mix(key ^ (unsigned char)id[i]);
  return key;
}

static bool same_prefix(const char *a, const char *b) {
  size_t n = copse_id_prefix(a);
  return n > 0 && n == copse_id_prefix(b) && strncmp(a, b, n) == 0;
}

/* Finds the host whose first node has the prefix of this id, or -1. */
static int find_prefix(const struct finding *f, const char *id) {
  size_t cursor = 0;
  int g;
  if (copse_id_prefix(id) == 0) return -1;
  while ((g = copse_index_map_next(&f->prefixes, prefix_key(id), &cursor)) >= 0)
    if (same_prefix(f->topology->nodes[f->first[g]].id, id)) return g;
  return -1;
}

static copse_status find_by_name(struct finding *f, int *n_hosts) {
  const struct copse_topology *t = f->topology;
  int n = 0, pairs = 0;
  *n_hosts = 0;
  for (int r = 0; r < t->n_ranks; r++) {
    const char *id = t->nodes[t->rank_nodes[r]].id;
    if (copse_id_prefix(id) == 0) return COPSE_OK;
    if (find_prefix(f, id) >= 0) continue;
    f->first[n] = t->rank_nodes[r];
    COPSE_DO(copse_index_map_add(&f->prefixes, prefix_key(id), n++, f->err));
  }
  for (int v = 0; v < t->n_nodes; v++) {
    f->of[v] = find_prefix(f, t->nodes[v].id);
    pairs += f->of[v] >= 0 && f->first[f->of[v]] != v;
  }
  *n_hosts = n >= 2 && pairs >= n ? n : 0;
  return COPSE_OK;
}

static bool is_fabric(const struct copse_node *node) { return strcmp(node->type, "switch") == 0; }

static int find_by_links(struct finding *f) {
  const struct copse_topology *t = f->topology;
  int n = 0, *sets = f->first, *of = f->of;
  copse_sets_init(sets, t->n_nodes);
  for (int i = 0; i < t->n_links; i++)
    if (!is_fabric(&t->nodes[t->links[i].src]) && !is_fabric(&t->nodes[t->links[i].dst]))
      (void)copse_sets_unite(sets, t->links[i].src, t->links[i].dst);
  for (int v = 0; v < t->n_nodes; v++)
    of[v] = is_fabric(&t->nodes[v]) ? -1 : copse_sets_find(sets, v);
  for (int v = 0; v < t->n_nodes; v++) sets[v] = 0; /* ranks of the component named v */
  for (int r = 0; r < t->n_ranks; r++) sets[of[t->rank_nodes[r]]]++;
  for (int v = 0; v < t->n_nodes; v++) {
    if (sets[v] == 1) return 0;
    if (sets[v] > 1) sets[v] = ++n; /* numbered from 1 */
  }
  for (int v = 0; v < t->n_nodes; v++) of[v] = of[v] < 0 ? -1 : sets[of[v]] - 1;
  return n >= 2 ? n : 0;
}

static copse_status name_hosts(struct finding *f, bool by_name, struct copse_arena *arena,
                               struct copse_places *out) {
  const char **names;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)out->n, names, f->err));
  for (int g = 0; g < out->n; g++) {
    const char *id = by_name ? f->topology->nodes[f->first[g]].id : "";
    names[g] = by_name ? copse_arena_printf(arena, "%.*s", (int)copse_id_prefix(id) - 1, id)
                       : copse_arena_printf(arena, "host %d", g);
    if (!names[g]) return copse_fail_nomem(f->err);
  }
  out->names = names;
  return COPSE_OK;
}

#define DEVICE_BITS 56 /* of a node's dev; above them the number of its system */

static int number_of(const struct copse_node *node, bool in_host, int next) {
  int named = copse_numbered(node->id + (in_host ? copse_id_prefix(node->id) : 0), "gpu");
  if (node->has_dev) return (int)(node->dev & (((uint64_t)1 << DEVICE_BITS) - 1) & 0xffffff);
  return named >= 0 ? named : next;
}

static copse_status number_ranks(struct finding *f, struct copse_arena *arena,
                                 struct copse_places *out) {
  const struct copse_topology *t = f->topology;
  int *numbers, *next;
  COPSE_DO(COPSE_ARRAY(arena, (size_t)t->n_nodes, numbers, f->err));
  COPSE_DO(COPSE_ARRAY(arena, (size_t)out->n + 1, next, f->err));
  for (int v = 0; v < t->n_nodes; v++) numbers[v] = -1;
  for (int r = 0; r < t->n_ranks; r++) {
    int v = t->rank_nodes[r], host = f->of[v];
    numbers[v] = number_of(&t->nodes[v], host >= 0, next[host < 0 ? out->n : host]++);
  }
  out->numbers = numbers;
  return COPSE_OK;
}

copse_status copse_places_find(const struct copse_topology *topology, struct copse_arena *arena,
                               struct copse_places *out, struct copse_err *err) {
  COPSE_AT_END(free_finding) struct finding f = {.topology = topology, .err = err};
  bool by_name = true;
  COPSE_DO(COPSE_ARRAYS(arena, (size_t)topology->n_nodes, int, err, &f.of, &f.first));
  *out = (struct copse_places){.of = f.of};
  COPSE_DO(find_by_name(&f, &out->n));
  if (out->n == 0) {
    by_name = false;
    out->n = find_by_links(&f);
  }
  for (int v = 0; out->n == 0 && v < topology->n_nodes; v++) f.of[v] = -1;
  COPSE_DO(name_hosts(&f, by_name, arena, out));
  return number_ranks(&f, arena, out);
}

/* ---- nodes and links ------------------------------------------------------------------------- */

void copse_node_words(const struct copse_topology *topology, const struct copse_places *hosts,
                      int node, struct copse_text *text) {
  const char *id = topology->nodes[node].id;
  int host = hosts->of[node], number = hosts->numbers[node];
  if (number < 0) {
    copse_text_add(text, "%s", id);
    return;
  }
  copse_text_add(text, "GPU %d", number);
  if (host >= 0) copse_text_add(text, " of %s", hosts->names[host]);
  if (copse_numbered(id + (host >= 0 ? copse_id_prefix(id) : 0), "gpu") != number)
    copse_text_add(text, " (%s)", id);
}

struct kind {
  const char *one, *many;
};

static bool is_one(const char *type, const char *a, const char *b) {
  return strcmp(type, a) == 0 || strcmp(type, b) == 0;
}

static bool joins(const struct copse_topology *t, const struct copse_link *l, const char *a,
                  const char *b) {
  const char *src = t->nodes[l->src].type, *dst = t->nodes[l->dst].type;
  return (strcmp(src, a) == 0 && strcmp(dst, b) == 0) ||
         (strcmp(src, b) == 0 && strcmp(dst, a) == 0);
}

static struct kind kind_of(const struct copse_topology *t, const struct copse_link *l) {
  const char *src = t->nodes[l->src].type, *dst = t->nodes[l->dst].type;
  if (joins(t, l, "gpu", "nvswitch")) return (struct kind){"GPU's NVLinks", "GPUs' NVLinks"};
  if (joins(t, l, "gpu", "gpu")) /* NVLink, xGMI, PCIe: topologies don't say */
    return (struct kind){"link between GPUs", "links between GPUs"};
  if (joins(t, l, "nic", "net") || is_one("net", src, dst) || joins(t, l, "nic", "switch"))
    return (struct kind){"NIC", "NICs"};
  if (joins(t, l, "nic", "gpu")) return (struct kind){"NIC", "NICs"};
  if (is_one("nic", src, dst)) return (struct kind){"PCIe link of a NIC", "PCIe links of NICs"};
  if (joins(t, l, "cpu", "cpu"))
    return (struct kind){"link between sockets", "links between sockets"};
  if (joins(t, l, "gpu", "cpu"))
    return (struct kind){"link of a GPU to its CPU", "links of GPUs to their CPUs"};
  if (is_one("pcie", src, dst) && is_one("gpu", src, dst))
    return (struct kind){"PCIe link of a GPU", "PCIe links of GPUs"};
  if (is_one("pcie", src, dst)) return (struct kind){"PCIe link", "PCIe links"};
  if (joins(t, l, "switch", "switch"))
    return (struct kind){"link between switches", "links between switches"};
  return (struct kind){"link", "links"};
}

const char *copse_link_kind(const struct copse_topology *topology, int link, bool many) {
  struct kind kind = kind_of(topology, &topology->links[link]);
  return many ? kind.many : kind.one;
}

const char *copse_link_words(const struct copse_topology *topology, int link,
                             struct copse_arena *arena) {
  const struct copse_link *l = &topology->links[link];
  return copse_arena_printf(arena, "%s -> %s (%s, %.4g GB/s)", topology->nodes[l->src].id,
                            topology->nodes[l->dst].id, kind_of(topology, l).one,
                            copse_q_to_double(l->bandwidth));
}

/* ---- cuts ------------------------------------------------------------------------------------ */

/* The smaller side by its ranks. */
struct side {
  const struct copse_topology *topology;
  const struct copse_places *hosts;
  const bool *inside; /* [n_nodes] */
  bool shown;         /* the side that is named is inside */
  int n;              /* its ranks */
  int *sizes, *in;    /* [n_hosts] ranks of each host, and of these on the side */
};

static bool is_on(const struct side *s, int r) {
  return s->inside[s->topology->rank_nodes[r]] == s->shown;
}

/* Counts a side's hosts if they are whole, and finds the first; 0 where the side has a part of
 * one. */
static int count_hosts(const struct side *s, int *first) {
  const struct copse_topology *t = s->topology;
  int n = 0;
  *first = -1;
  for (int r = 0; r < t->n_ranks; r++) {
    int host = s->hosts->of[t->rank_nodes[r]];
    if (host < 0) return 0;
    s->sizes[host]++;
    s->in[host] += is_on(s, r);
  }
  for (int h = 0; h < s->hosts->n; h++) {
    if (s->in[h] == 0) continue;
    if (s->in[h] < s->sizes[h]) return 0;
    if (n++ == 0) *first = h;
  }
  return n;
}

#define LISTED 4 /* ranks, and kinds of links */

static void add_side(const struct side *s, struct copse_text *text) {
  int first, listed = 0, hosts = count_hosts(s, &first);
  const char *name = hosts > 0 ? s->hosts->names[first] : "";
  if (hosts == 1) {
    copse_text_add(text, "%s%s", strncmp(name, "host ", 5) == 0 ? "" : "host ", name);
    return;
  }
  if (hosts > 1) {
    copse_text_add(text, "%d hosts (%s, ..)", hosts, name);
    return;
  }
  if (s->n > LISTED) copse_text_add(text, "%d GPUs (", s->n);
  for (int r = 0; r < s->topology->n_ranks && listed < LISTED; r++) {
    if (!is_on(s, r)) continue;
    copse_text_add(text, "%s", listed++ > 0 ? ", " : "");
    copse_node_words(s->topology, s->hosts, s->topology->rank_nodes[r], text);
  }
  if (s->n > LISTED) copse_text_add(text, ", ..)");
}

/* Links of one kind and bandwidth that cross. */
struct crossing {
  int first, n;
};

static void add_crossings(const struct side *s, const struct crossing *kinds, int n_kinds,
                          struct copse_text *text) {
  const struct copse_topology *t = s->topology;
  struct copse_q sum = COPSE_Q_ZERO;
  bool exact = true;
  int n = 0;
  for (int k = 0; k < n_kinds; k++) {
    struct copse_q all, each = t->links[kinds[k].first].bandwidth;
    exact = exact && copse_q_mul(each, (struct copse_q){kinds[k].n, 1}, &all, NULL) == COPSE_OK &&
            copse_q_add(sum, all, &sum, NULL) == COPSE_OK;
    n += kinds[k].n;
    if (k < LISTED)
      copse_text_add(text, "%s%d %s of %.4g GB/s", k > 0 ? ", " : ": ", kinds[k].n,
                     copse_link_kind(t, kinds[k].first, kinds[k].n > 1), copse_q_to_double(each));
  }
  if (n_kinds > LISTED) copse_text_add(text, ", ..");
  if (exact && n > 1) copse_text_add(text, " (%.10g GB/s)", copse_q_to_double(sum));
}

static bool crosses(const struct side *s, const struct copse_link *l, bool reduces) {
  return s->inside[l->src] != reduces && s->inside[l->dst] == reduces;
}

/* Lists a side's links by kind; `kinds` has room for all links. */
static void add_links(const struct side *s, bool reduces, struct crossing *kinds,
                      struct copse_text *text) {
  const struct copse_topology *t = s->topology;
  int n = 0, at;
  for (int i = 0; i < t->n_links; i++) {
    const struct copse_link *l = &t->links[i];
    if (!crosses(s, l, reduces)) continue;
    for (at = 0; at < n; at++) {
      const struct copse_link *o = &t->links[kinds[at].first];
      if (copse_q_eq(o->bandwidth, l->bandwidth) &&
          strcmp(kind_of(t, o).one, kind_of(t, l).one) == 0)
        break;
    }
    if (at == n) kinds[n++] = (struct crossing){i, 0};
    kinds[at].n++;
  }
  add_crossings(s, kinds, n, text);
}

const char *copse_cut_words(const struct copse_topology *topology, const int *cut, int n_cut,
                            bool reduces, struct copse_arena *arena) {
  const struct copse_topology *t = topology;
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  COPSE_AT_END(copse_text_free) struct copse_text text = {0};
  struct copse_places hosts;
  struct crossing *kinds;
  bool *inside;
  int ranks = 0;
  if (copse_places_find(t, &scratch, &hosts, NULL) != COPSE_OK ||
      COPSE_ARRAY(&scratch, (size_t)t->n_nodes, inside, NULL) != COPSE_OK ||
      COPSE_ARRAY(&scratch, (size_t)t->n_links, kinds, NULL) != COPSE_OK)
    return NULL;
  for (int i = 0; i < n_cut; i++) inside[cut[i]] = true;
  for (int r = 0; r < t->n_ranks; r++) ranks += inside[t->rank_nodes[r]];
  struct side side = {.topology = t,
                      .hosts = &hosts,
                      .inside = inside,
                      .shown = 2 * ranks <= t->n_ranks,
                      .n = 2 * ranks <= t->n_ranks ? ranks : t->n_ranks - ranks};
  if (COPSE_ARRAY(&scratch, (size_t)hosts.n, side.sizes, NULL) != COPSE_OK ||
      COPSE_ARRAY(&scratch, (size_t)hosts.n, side.in, NULL) != COPSE_OK)
    return NULL;
  copse_text_add(&text, "%s ", side.shown == reduces ? "into" : "out of");
  add_side(&side, &text);
  add_links(&side, reduces, kinds, &text);
  return text.failed ? NULL : copse_arena_strdup(arena, text.data);
}

/* ---- ids that users write -------------------------------------------------------------------- */

bool copse_id_matches(const char *pattern, const char *id) {
  const char *in_host = id + copse_id_prefix(id), *at = strchr(in_host, '@');
  return fnmatch(pattern, id, 0) == 0 || fnmatch(pattern, in_host, 0) == 0 ||
         (at && fnmatch(pattern, at + 1, 0) == 0);
}

/* Reads "GPU 3", "gpu 3" or "GPU3" as 3; else -1. */
static int gpu_number(const char *written) {
  int64_t number;
  if (strncasecmp(written, "gpu", 3) != 0) return -1;
  const char *at = written + 3;
  while (*at == ' ') at++;
  return copse_text_number(&at, 6, &number) && !*at ? (int)number : -1;
}

static bool ends_in(const char *id, const char *end) {
  size_t n = strlen(id), m = strlen(end);
  return m > 2 && n > m && strcasecmp(id + n - m, end) == 0;
}

/* Returns the id that may have been meant, or NULL: an id that ends in the text, the id of the GPU
 * that "GPU 3" or "gpu3" names, or an id that a few edits make. */
static const char *near_id(const struct copse_topology *topology, const char *written) {
  const struct copse_topology *t = topology;
  int number = gpu_number(written), least = INT32_MAX;
  const char *near = NULL;
  for (int v = 0; v < t->n_nodes; v++)
    if (ends_in(t->nodes[v].id, written)) return t->nodes[v].id;
  if (number >= 0 && number < t->n_ranks) return t->nodes[t->rank_nodes[number]].id;
  for (int v = 0; v < t->n_nodes; v++) {
    const char *id = t->nodes[v].id;
    int edits = copse_text_edits(written, id);
    if (edits >= least || !copse_text_is_near(written, id)) continue;
    least = edits;
    near = id;
  }
  return near;
}

const char *copse_near_text(const struct copse_topology *topology, const char *written,
                            char text[COPSE_NEAR_TEXT]) {
  const char *near = near_id(topology, written);
  if (near)
    snprintf(text, COPSE_NEAR_TEXT, "; did you mean \"%.80s\"?", near);
  else
    snprintf(text, COPSE_NEAR_TEXT, "; 'copse topo TOPO --ids \"*\"' lists the ids");
  return text;
}
