/* Which nodes belong together, what their labels are and how large they are. */
#include <stdio.h>
#include <string.h>

#include "view/arrangement_internal.h"

/* ---- labels -------------------------------------------------------------------------------- */

#define LABEL_CHARACTERS 16
#define CHARACTER_WIDTH 6.4 /* of the 11 pixel font */

/* The length of "NAME." at the start of an id, NAME a word; 0 if it has none. */
static size_t prefix_length(const char *id) {
  size_t n = 0;
  if (!((id[0] | 32) >= 'a' && (id[0] | 32) <= 'z')) return 0;
  while (id[n] == '_' || id[n] == '-' || (id[n] >= '0' && id[n] <= '9') ||
         ((id[n] | 32) >= 'a' && (id[n] | 32) <= 'z'))
    n++;
  return id[n] == '.' && id[n + 1] ? n + 1 : 0;
}

/* "h3.gpu0": "gpu0"; "gpu@0000:c1:00.0": "c1:00.0"; of what is still too long the end. */
static const char *short_label(struct copse_arena *arena, const char *id, bool in_host) {
  const char *text = id + (in_host ? prefix_length(id) : 0), *at = strrchr(text, '@');
  if (at && at[1]) text = at + 1;
  if (strncmp(text, "0000:", 5) == 0 && text[5]) text += 5;
  size_t n = copse_text_characters(text);
  if (n <= LABEL_CHARACTERS) return copse_arena_strdup(arena, text);
  for (; n > LABEL_CHARACTERS - 1; text++) n -= ((unsigned char)text[1] & 0xc0) != 0x80;
  char *label = copse_arena_alloc(arena, strlen(text) + 4, 1);
  if (label) sprintf(label, "\xe2\x80\xa6%s", text); /* an ellipsis */
  return label;
}

static struct copse_arrangement_box size_of(const struct copse_node *node, const char *label) {
  static const struct {
    const char *type;
    double width, height;
  } sizes[] = {{"gpu", 54, 36},  {"nvswitch", 110, 26}, {"nic", 44, 22},
               {"pcie", 56, 22}, {"cpu", 60, 28},       {"switch", 72, 26}};
  struct copse_arrangement_box box = {0, 0, 56, 24};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    if (strcmp(sizes[i].type, node->type) == 0)
      box = (struct copse_arrangement_box){0, 0, sizes[i].width, sizes[i].height};
  double text = (double)copse_text_characters(label) * CHARACTER_WIDTH + 12;
  if (text > box.width) box.width = text;
  return box;
}

static copse_status make_labels(struct copse_arrangement_work *w) {
  for (int v = 0; v < w->topology->n_nodes; v++) {
    const struct copse_node *node = &w->topology->nodes[v];
    w->labels[v] = short_label(w->arena, node->id, w->framed && w->group_of[v] >= 0);
    if (!w->labels[v]) return copse_fail_nomem(w->err);
    w->nodes[v] = size_of(node, w->labels[v]);
  }
  return COPSE_OK;
}

/* ---- hosts --------------------------------------------------------------------------------- */

static bool same_prefix(const char *a, const char *b) {
  size_t n = prefix_length(a);
  return n > 0 && n == prefix_length(b) && strncmp(a, b, n) == 0;
}

/* By names: every rank has a prefix, and there are at least two of them with two nodes. */
static int groups_by_name(struct copse_arrangement_work *w) {
  const struct copse_topology *t = w->topology;
  int *first = w->local; /* a rank's node of each group, for now */
  int n = 0, pairs = 0;
  for (int r = 0; r < t->n_ranks; r++) {
    const char *id = t->nodes[t->rank_nodes[r]].id;
    int g = 0;
    if (prefix_length(id) == 0) return 0;
    while (g < n && !same_prefix(t->nodes[first[g]].id, id)) g++;
    if (g == n) first[n++] = t->rank_nodes[r];
  }
  for (int v = 0; v < t->n_nodes; v++) {
    w->group_of[v] = -1;
    for (int g = 0; g < n && w->group_of[v] < 0; g++)
      if (same_prefix(t->nodes[first[g]].id, t->nodes[v].id)) w->group_of[v] = g;
    pairs += w->group_of[v] >= 0 && first[w->group_of[v]] != v;
  }
  return n >= 2 && pairs >= n ? n : 0;
}

static bool is_fabric(const struct copse_node *node) { return strcmp(node->type, "switch") == 0; }

/* What hangs together without the network's switches; a repeated sweep is enough for pictures. */
static void spread(struct copse_arrangement_work *w) {
  const struct copse_topology *t = w->topology;
  for (bool changed = true; changed;) {
    changed = false;
    for (int i = 0; i < t->n_links; i++) {
      int *a = &w->group_of[t->links[i].src], *b = &w->group_of[t->links[i].dst];
      if (*a < 0 || *b < 0 || *a == *b) continue;
      *(*a < *b ? b : a) = *a < *b ? *a : *b;
      changed = true;
    }
  }
}

/* By links: components without the switches, of at least two ranks each. */
static int groups_by_links(struct copse_arrangement_work *w) {
  const struct copse_topology *t = w->topology;
  int n = 0;
  for (int v = 0; v < t->n_nodes; v++) w->group_of[v] = is_fabric(&t->nodes[v]) ? -1 : v;
  spread(w);
  for (int v = 0; v < t->n_nodes; v++) w->local[v] = 0; /* ranks of the component named v */
  for (int r = 0; r < t->n_ranks; r++) w->local[w->group_of[t->rank_nodes[r]]]++;
  for (int v = 0; v < t->n_nodes; v++) {
    if (w->local[v] == 1) return 0;
    if (w->local[v] > 1) w->local[v] = ++n; /* numbered from 1 */
  }
  for (int v = 0; v < t->n_nodes; v++)
    w->group_of[v] = w->group_of[v] < 0 ? -1 : w->local[w->group_of[v]] - 1;
  return n >= 2 ? n : 0;
}

static const char *part_name(struct copse_arrangement_work *w, int v, int g, bool by_name) {
  const char *id = w->topology->nodes[v].id;
  char *name = copse_arena_alloc(w->arena, strlen(id) + 24, 1);
  if (!name) return NULL;
  if (by_name)
    memcpy(name, id, prefix_length(id) - 1);
  else
    sprintf(name, "host %d", g);
  return name;
}

static copse_status make_parts(struct copse_arrangement_work *w, bool by_name) {
  const struct copse_topology *t = w->topology;
  w->parts = copse_arena_alloc(w->arena, (size_t)w->n_parts, sizeof *w->parts);
  int *members = copse_arena_alloc(w->arena, (size_t)t->n_nodes, sizeof *members);
  struct copse_arrangement_box *boxes =
      copse_arena_alloc(w->arena, (size_t)t->n_nodes, sizeof *boxes);
  if (!w->parts || !members || !boxes) return copse_fail_nomem(w->err);
  for (int v = 0; v < t->n_nodes; v++)
    if (w->group_of[v] >= 0) w->local[v] = w->parts[w->group_of[v]].n_members++;
  for (int g = 0, from = 0; g < w->n_parts; from += w->parts[g++].n_members) {
    w->parts[g].members = members + from;
    w->parts[g].boxes = boxes + from;
    w->parts[g].name = "";
  }
  for (int v = 0; v < t->n_nodes; v++) {
    int g = w->group_of[v];
    if (g < 0) continue;
    members[w->parts[g].members - members + w->local[v]] = v;
    if (w->framed && w->local[v] == 0) w->parts[g].name = part_name(w, v, g, by_name);
    if (!w->parts[g].name) return copse_fail_nomem(w->err);
  }
  return COPSE_OK;
}

copse_status copse_arrangement_find_parts(struct copse_arrangement_work *w) {
  copse_status status;
  bool by_name = true;
  w->n_parts = groups_by_name(w);
  if (w->n_parts == 0) {
    by_name = false;
    w->n_parts = groups_by_links(w);
  }
  w->framed = w->n_parts > 0;
  if (!w->framed) { /* one part of everything */
    w->n_parts = 1;
    for (int v = 0; v < w->topology->n_nodes; v++) w->group_of[v] = 0;
  }
  COPSE_TRY(make_parts(w, by_name));
  status = make_labels(w);
out:
  return status;
}
