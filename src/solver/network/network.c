/*
 * Links of a network by their ends, their images under a permutation of the nodes, terminals;
 * shortest ways (E. W. Dijkstra 1959). docs/theory.md, "src/solver/network/".
 */
#include "solver/network/network.h"

#include "base/graph.h"
#include "base/memory.h"

copse_status copse_links_by_source(const struct copse_network *network, struct copse_arena *arena,
                                   struct copse_adjacency *out, struct copse_err *err) {
  return copse_adjacency_by(arena, network->n_nodes, network->n_links,
                            COPSE_KEYS(network->links, src), sizeof *network->links, out, err);
}

copse_status copse_links_by_destination(const struct copse_network *network,
                                        struct copse_arena *arena, struct copse_adjacency *out,
                                        struct copse_err *err) {
  return copse_adjacency_by(arena, network->n_nodes, network->n_links,
                            COPSE_KEYS(network->links, dst), sizeof *network->links, out, err);
}

copse_status copse_links_image(const struct copse_network *network,
                               const struct copse_permutation *rotation, struct copse_arena *arena,
                               int **image, struct copse_err *err) {
  COPSE_AT_END(copse_index_map_free) struct copse_index_map by_ends = {0};
  COPSE_DO(COPSE_ARRAY(arena, (size_t)network->n_links, *image, err));
  for (int e = 0; e < network->n_links; e++) {
    const struct copse_net_link *link = &network->links[e];
    (*image)[e] = e;
    COPSE_DO(copse_index_map_add(&by_ends, copse_key_pair(link->src, link->dst), e, err));
  }
  for (int e = 0; rotation->image && e < network->n_links; e++) {
    const struct copse_net_link *link = &network->links[e];
    uint64_t key = copse_key_pair(rotation->image[link->src], rotation->image[link->dst]);
    size_t cursor = 0;
    int found = copse_index_map_next(&by_ends, key, &cursor);
    if (found < 0 || network->links[found].capacity != link->capacity)
      return copse_fail(err, COPSE_INTERNAL, "a claimed symmetry is none");
    (*image)[e] = found;
  }
  return COPSE_OK;
}

copse_status copse_links_orbits(const struct copse_network *network,
                                const struct copse_permutation *generators, int n,
                                struct copse_arena *arena, int **first, struct copse_err *err) {
  COPSE_DO(COPSE_ARRAY(arena, (size_t)network->n_links, *first, err));
  copse_sets_init(*first, network->n_links);
  for (int i = 0; i < n; i++) {
    COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
    int *image;
    COPSE_DO(copse_links_image(network, &generators[i], &scratch, &image, err));
    for (int e = 0; e < network->n_links; e++) copse_sets_unite(*first, e, image[e]);
  }
  for (int e = 0; e < network->n_links; e++) (*first)[e] = copse_sets_find(*first, e);
  return COPSE_OK;
}

copse_status copse_nodes_orbits(const struct copse_network *network,
                                const struct copse_permutation *generators, int n,
                                struct copse_arena *arena, int **first, struct copse_err *err) {
  COPSE_DO(COPSE_ARRAY(arena, (size_t)network->n_nodes, *first, err));
  copse_sets_init(*first, network->n_nodes);
  for (int i = 0; i < n; i++)
    for (int v = 0; generators[i].image && v < network->n_nodes; v++)
      copse_sets_unite(*first, v, generators[i].image[v]);
  for (int v = 0; v < network->n_nodes; v++) (*first)[v] = copse_sets_find(*first, v);
  return COPSE_OK;
}

copse_status copse_network_terminals(const struct copse_network *network, struct copse_arena *arena,
                                     bool **flags, struct copse_err *err) {
  COPSE_DO(COPSE_ARRAY(arena, (size_t)network->n_nodes, *flags, err));
  for (int i = 0; i < network->n_terminals; i++) (*flags)[network->terminals[i]] = true;
  return COPSE_OK;
}

bool copse_network_equal_weights(const struct copse_network *network) {
  for (int i = 1; i < network->n_roots; i++)
    if (network->roots[i].weight != network->roots[0].weight) return false;
  return true;
}

/* ---- shortest ways ------------------------------------------------------------------------- */

/* E. W. Dijkstra, "A note on two problems in connexion with graphs", Numerische Mathematik 1
 * (1959), on a binary heap. The low bits of a distance count hops, so that one comparison decides
 * both. */

/* Of a distance; a path has less than 2^12 links. */
#define HOP_BITS 12

copse_status copse_shortest_prepare(const struct copse_network *network, struct copse_arena *arena,
                                    struct copse_shortest *out, struct copse_err *err) {
  size_t n = (size_t)network->n_nodes;
  *out = (struct copse_shortest){.network = network};
  COPSE_DO(copse_nearest_prepare(arena, network->n_nodes, &out->nearest, err));
  COPSE_DO(COPSE_ARRAYS(arena, n, int, err, &out->via, &out->order));
  return copse_links_by_source(network, arena, &out->leaving, err);
}

static void relax(struct copse_shortest *s, int node, const int64_t *lengths) {
  for (int i = s->leaving.first[node]; i < s->leaving.first[node + 1]; i++) {
    int link = s->leaving.item[i], to = s->network->links[link].dst;
    int64_t distance = s->nearest.distance[node] + (lengths[link] << HOP_BITS) + 1;
    if (copse_nearest_offer(&s->nearest, to, distance)) s->via[to] = link;
  }
}

void copse_shortest_run(struct copse_shortest *s, int source, const int64_t *lengths,
                        const bool *blocked) {
  for (int v = 0; v < s->network->n_nodes; v++) s->via[v] = -1;
  s->n_order = 0;
  copse_nearest_reset(&s->nearest);
  copse_nearest_offer(&s->nearest, source, 0);
  while (s->nearest.n > 0) {
    int node = copse_nearest_take(&s->nearest);
    s->order[s->n_order++] = node;
    if (node == source || !blocked || !blocked[node]) relax(s, node, lengths);
  }
}

int64_t copse_shortest_length(const struct copse_shortest *s, int node) {
  int64_t distance = s->nearest.distance[node];
  return distance == INT64_MAX ? -1 : distance >> HOP_BITS;
}

/* ---- contraction ---------------------------------------------------------------------------- */

/*
 * Relays that never bind are merged into a neighbour, and what goes round in the rest is lifted
 * back.
 *
 *     GPU == NIC == leaf ==== spine        ====: as much room as all other links of the relay
 *                   leaf ---- spine              together; NIC and leaf above become one with
 *                                                their neighbours, the leaf below stays
 */

/* A relay that was merged, with all relays that were part of it. The link `to` its neighbour
 * carries all that its other links bring in, the link `back` all that they take away; -1: there is
 * none. */
struct copse_merge {
  int to, back;
  int n_in, n_out;
  const int *in, *out; /* [n_in], [n_out] links */
};

struct search {
  const struct copse_network *network;
  const bool *fixed, *apart;
  int *part;       /* [n_nodes] of which node it is part: itself, or one that is merged further */
  int *neighbours; /* [n_nodes] how many, when last looked at */
  int *seen;       /* [n_nodes] by which look it was come upon, counted */
  int looks;
  int *first,
      *last; /* [n_nodes] of a list of the ends of its links: 2 e at the source of link e, */
  int *next; /* [2 n_links] 2 e + 1 where it leads to; -1: none follows */
  struct copse_merge *merges; /* [n_nodes] */
  struct copse_contraction *out;
  struct copse_err *err;
};

static int root_of(struct search *s, int node) { return copse_sets_find(s->part, node); }

/* ---- one relay ----------------------------------------------------------------------------- */

/* The links of a node. */
struct ends {
  __int128 in, out; /* capacities */
  int n_in, n_out;
  int n; /* neighbours */
};

/* Returns the other node of a link's end; the node itself where both have become one. */
static int beyond(struct search *s, int end) {
  const struct copse_net_link *link = &s->network->links[end / 2];
  return root_of(s, end % 2 ? link->src : link->dst);
}

static struct ends look_at(struct search *s, int node) {
  struct ends ends = {0};
  s->looks++;
  for (int end = s->first[node]; end >= 0; end = s->next[end]) {
    int v = beyond(s, end);
    if (v == node) continue;
    *(end % 2 ? &ends.in : &ends.out) += s->network->links[end / 2].capacity;
    ++*(end % 2 ? &ends.n_in : &ends.n_out);
    if (s->seen[v] != s->looks) ends.n++;
    s->seen[v] = s->looks;
  }
  return ends;
}

/* Whether a node has a link with one that the last look came upon, besides `but`. */
static bool joins_seen(struct search *s, int node, int but) {
  for (int end = s->first[node]; end >= 0; end = s->next[end]) {
    int v = beyond(s, end);
    if (v != node && v != but && s->seen[v] == s->looks) return true;
  }
  return false;
}

/* Finds the links between a relay and a neighbour, and whether they have room for all others. */
static bool has_room(struct search *s, int relay, int neighbour, const struct ends *ends, int *to,
                     int *back) {
  __int128 room = 0, room_back = 0;
  *to = *back = -1;
  for (int end = s->first[relay]; end >= 0; end = s->next[end]) {
    if (beyond(s, end) != neighbour) continue;
    *(end % 2 ? back : to) = end / 2;
    *(end % 2 ? &room_back : &room) = s->network->links[end / 2].capacity;
  }
  return room >= ends->in - room_back && room_back >= ends->out - room;
}

static copse_status merge(struct search *s, int relay, int neighbour, const struct ends *ends,
                          int to, int back) {
  int *in = copse_arena_alloc(&s->out->arena, (size_t)ends->n_in, sizeof *in);
  int *out = copse_arena_alloc(&s->out->arena, (size_t)ends->n_out, sizeof *out);
  struct copse_merge *m = &s->merges[s->out->n_merges];
  if (!in || !out) return copse_fail_nomem(s->err);
  *m = (struct copse_merge){to, back, 0, 0, in, out};
  for (int end = s->first[relay]; end >= 0; end = s->next[end]) {
    if (end / 2 == to || end / 2 == back || beyond(s, end) == relay) continue;
    if (end % 2)
      in[m->n_in++] = end / 2;
    else
      out[m->n_out++] = end / 2;
  }
  s->part[relay] = neighbour;
  s->next[s->last[neighbour]] = s->first[relay]; /* both have links */
  s->last[neighbour] = s->last[relay];
  s->out->n_merges++;
  return COPSE_OK;
}

/* Merges a relay into the neighbour that has most neighbours, rather a switch than a terminal. None
 * of several that have: by which of them symmetries would be lost. */
static copse_status try_relay(struct search *s, int relay, int most, bool *done) {
  int best = -1, best_to = -1, best_back = -1, to, back;
  struct ends ends = look_at(s, relay);
  *done = false;
  s->neighbours[relay] = ends.n;
  if (ends.n == 0 || ends.n > most) return COPSE_OK;
  for (int v = 0; v < s->network->n_nodes; v++) {
    if (s->seen[v] != s->looks || s->apart[v]) continue;
    if (best >= 0 && s->neighbours[v] < s->neighbours[best]) continue;
    if (!has_room(s, relay, v, &ends, &to, &back) || joins_seen(s, v, relay)) continue;
    *done = best < 0 || s->neighbours[v] > s->neighbours[best];
    best = v;
    best_to = to;
    best_back = back;
  }
  return *done ? merge(s, relay, best, &ends, best_to, best_back) : COPSE_OK;
}

/* ---- all ----------------------------------------------------------------------------------- */

static void list_ends(struct search *s) {
  copse_sets_init(s->part, s->network->n_nodes);
  for (int v = 0; v < s->network->n_nodes; v++) s->first[v] = s->last[v] = -1;
  for (int end = 0; end < 2 * s->network->n_links; end++) {
    const struct copse_net_link *link = &s->network->links[end / 2];
    int node = end % 2 ? link->dst : link->src;
    s->next[end] = -1;
    *(s->last[node] < 0 ? &s->first[node] : &s->next[s->last[node]]) = end;
    s->last[node] = end;
  }
}

/* Merges first those with two neighbours, then any: what is alike is treated alike. */
static copse_status merge_all(struct search *s) {
  for (int v = 0; v < s->network->n_nodes; v++) s->neighbours[v] = look_at(s, v).n;
  for (int pass = 0; pass < 2; pass++)
    for (bool again = true; again;) {
      again = false;
      for (int v = 0; v < s->network->n_nodes; v++) {
        bool done;
        if (s->part[v] != v || s->fixed[v] || s->apart[v]) continue;
        COPSE_DO(try_relay(s, v, pass == 0 ? 2 : s->network->n_nodes, &done));
        again = again || done;
      }
    }
  return COPSE_OK;
}

/* Numbers the nodes that are left, in the old order. */
static copse_status number(struct search *s) {
  const struct copse_network *from = s->network;
  struct copse_network *to = &s->out->network;
  size_t nodes = (size_t)from->n_nodes, n_links = (size_t)from->n_links;
  int *node = copse_arena_alloc(&s->out->arena, nodes, sizeof *node);
  int *link = copse_arena_alloc(&s->out->arena, n_links, sizeof *link);
  struct copse_net_link *links = copse_arena_alloc(&s->out->arena, n_links, sizeof *links);
  if (!node || !link || !links) return copse_fail_nomem(s->err);
  for (int v = 0; v < from->n_nodes; v++)
    if (s->part[v] == v) node[v] = to->n_nodes++;
  for (int v = 0; v < from->n_nodes; v++) node[v] = node[root_of(s, v)];
  for (int e = 0; e < from->n_links; e++) {
    const struct copse_net_link *l = &from->links[e];
    link[e] = node[l->src] == node[l->dst] ? -1 : to->n_links++;
    if (link[e] >= 0)
      links[link[e]] = (struct copse_net_link){node[l->src], node[l->dst], l->capacity};
  }
  to->links = links;
  s->out->node = node;
  s->out->link = link;
  s->out->merges = s->merges;
  return COPSE_OK;
}

copse_status copse_contract(const struct copse_network *network, const bool *fixed,
                            const bool *apart, struct copse_contraction *out,
                            struct copse_err *err) {
  struct search s = {.network = network, .fixed = fixed, .apart = apart, .out = out, .err = err};
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  size_t nodes = (size_t)network->n_nodes;
  *out = (struct copse_contraction){0};
  COPSE_DO(
      COPSE_ARRAYS(&scratch, nodes, int, err, &s.part, &s.neighbours, &s.seen, &s.first, &s.last));
  COPSE_DO(COPSE_ARRAY(&scratch, 2 * (size_t)network->n_links, s.next, err));
  COPSE_DO(COPSE_ARRAY(&out->arena, nodes, s.merges, err));
  list_ends(&s);
  COPSE_DO(merge_all(&s));
  return number(&s);
}

/* ---- back ---------------------------------------------------------------------------------- */

/* Undoes the last merge first: the links that it gives amounts may be the links of an earlier
 * merge. */
void copse_contraction_lift(const struct copse_contraction *contraction, const int64_t *from,
                            int64_t *to, int n_links) {
  for (int e = 0; e < n_links; e++)
    to[e] = contraction->link[e] >= 0 ? from[contraction->link[e]] : 0;
  for (int i = contraction->n_merges - 1; i >= 0; i--) {
    const struct copse_merge *m = &contraction->merges[i];
    for (int k = 0; k < m->n_in; k++) to[m->to] += to[m->in[k]];
    for (int k = 0; k < m->n_out; k++) to[m->back] += to[m->out[k]];
  }
}

bool copse_contraction_map(const struct copse_contraction *contraction, const int *from, int *to,
                           int n_nodes) {
  for (int v = 0; v < contraction->network.n_nodes; v++) to[v] = -1;
  for (int v = 0; v < n_nodes; v++) {
    int *image = &to[contraction->node[v]], node = contraction->node[from[v]];
    if (*image >= 0 && *image != node) return false;
    *image = node;
  }
  return true;
}
