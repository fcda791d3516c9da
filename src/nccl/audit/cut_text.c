/*
 * Links and cuts in a machine's owner's words: kinds by the types of the nodes that a link joins,
 * equal links of a cut counted together, and the smaller side of the cut by host, GPU or number.
 */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "nccl/audit/audit.h"

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
  if (joins(t, l, "gpu", "nvswitch") || joins(t, l, "gpu", "gpu"))
    return (struct kind){"GPU's NVLinks", "GPUs' NVLinks"};
  if (joins(t, l, "nic", "net") || is_one("net", src, dst) || joins(t, l, "nic", "switch"))
    return (struct kind){"NIC", "NICs"};
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

const char *copse_audit_link_text(struct copse_audit *audit, const struct copse_topology *t,
                                  int link) {
  const struct copse_link *l = &t->links[link];
  return copse_arena_printf(&audit->arena, "%s -> %s (%s, %.4g GB/s)", t->nodes[l->src].id,
                            t->nodes[l->dst].id, kind_of(t, l).one,
                            copse_q_to_double(l->bandwidth));
}

/* The smaller side by its ranks. */
struct side {
  const struct copse_nccl_machine *m;
  const bool *inside; /* [n_nodes] */
  bool shown;         /* the side that is named is inside */
  int n;              /* its ranks */
};

static void add_side(const struct side *s, struct copse_text *text) {
  const struct copse_topology *t = s->m->topology;
  int first = -1, hosts = 0, listed = 0;
  bool whole = true;
  for (int h = 0; h < s->m->n_hosts; h++) {
    int size = s->m->first[h + 1] - s->m->first[h], in = 0;
    for (int i = s->m->first[h]; i < s->m->first[h + 1]; i++)
      in += s->inside[t->rank_nodes[s->m->members[i]]] == s->shown;
    if (in > 0 && first < 0) first = h;
    hosts += in > 0;
    whole = whole && (in == 0 || in == size);
  }
  if (whole && s->m->n_hosts > 1 && hosts == 1) {
    copse_text_add(text, "host h%d", first);
    return;
  }
  if (whole && s->m->n_hosts > 1) {
    copse_text_add(text, "%d hosts (h%d, ..)", hosts, first);
    return;
  }
  if (s->n > 4) copse_text_add(text, "%d GPUs (", s->n);
  for (int r = 0; r < t->n_ranks; r++) {
    if (s->inside[t->rank_nodes[r]] != s->shown || listed == 4) continue;
    copse_text_add(text, "%s%s", listed++ > 0 ? ", " : "", t->nodes[t->rank_nodes[r]].id);
  }
  if (s->n > 4) copse_text_add(text, ", ..)");
}

/* Links that cross, equal ones together. */
static void add_links(const struct side *s, bool reduces, struct copse_text *text) {
  const struct copse_topology *t = s->m->topology;
  int groups = 0;
  for (int i = 0; i < t->n_links; i++) {
    const struct copse_link *l = &t->links[i];
    int n = 0;
    bool known = false;
    if (s->inside[l->src] == reduces || s->inside[l->dst] != reduces) continue;
    for (int k = 0; k < t->n_links && !known; k++) {
      const struct copse_link *o = &t->links[k];
      if (s->inside[o->src] == reduces || s->inside[o->dst] != reduces) continue;
      if (!copse_q_eq(o->bandwidth, l->bandwidth) ||
          strcmp(kind_of(t, o).one, kind_of(t, l).one) != 0)
        continue;
      known = k < i;
      n++;
    }
    if (known || groups++ >= 4) continue;
    copse_text_add(text, "%s%d %s of %.4g GB/s", groups > 1 ? ", " : ": ", n,
                   n > 1 ? kind_of(t, l).many : kind_of(t, l).one, copse_q_to_double(l->bandwidth));
  }
}

const char *copse_audit_cut_text(struct copse_audit *audit, const struct copse_nccl_machine *m,
                                 const int *cut, int n_cut, bool reduces) {
  const struct copse_topology *t = m->topology;
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  COPSE_AT_END(copse_text_free) struct copse_text text = {0};
  bool *inside = copse_arena_alloc(&scratch, (size_t)t->n_nodes, sizeof *inside);
  int ranks = 0;
  if (!inside) return NULL;
  for (int i = 0; i < n_cut; i++) inside[cut[i]] = true;
  for (int r = 0; r < t->n_ranks; r++) ranks += inside[t->rank_nodes[r]];
  bool shown = 2 * ranks <= t->n_ranks;
  struct side side = {m, inside, shown, shown ? ranks : t->n_ranks - ranks};
  copse_text_add(&text, "%s ", shown == reduces ? "into" : "out of");
  add_side(&side, &text);
  add_links(&side, reduces, &text);
  return text.failed ? NULL : copse_arena_strdup(&audit->arena, text.data);
}
