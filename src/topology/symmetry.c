#include "topology/symmetry.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* A node and its colour on the two sides of a candidate; equal colours must match. */
struct coloured {
  uint64_t colour;
  int node;
};

struct finder {
  const struct copse_topology *topology;
  struct copse_symmetry *out;
  uint64_t *link_colour;  /* [n_links] */
  uint64_t *alike;        /* [n_nodes] colours of the topology itself */
  uint64_t *left, *right; /* [n_nodes] with the ranks told apart, before and after */
  uint64_t *sums;         /* [n_nodes] scratch of a round */
  struct coloured *sorted_left, *sorted_right; /* [n_nodes] the relays */
  int *image;                                  /* [n_nodes] */
  int n_tried;                                 /* candidates that the colours did not refuse */
  struct copse_err *err;
};

static uint64_t mix(uint64_t x) { /* splitmix64's finaliser */
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

copse_status copse_topology_is_automorphism(const struct copse_topology *topology, const int *image,
                                            bool *is, struct copse_err *err) {
  char *hit = NULL;
  copse_status status;
  *is = false;
  COPSE_TRY(copse_calloc((size_t)topology->n_nodes, 1, &hit, err));
  for (int v = 0; v < topology->n_nodes; v++) {
    if (image[v] < 0 || image[v] >= topology->n_nodes || hit[image[v]]++) goto out;
    const struct copse_node *a = &topology->nodes[v], *b = &topology->nodes[image[v]];
    if ((a->rank >= 0) != (b->rank >= 0) || a->multicast != b->multicast ||
        a->aggregation != b->aggregation)
      goto out;
  }
  for (int e = 0; e < topology->n_links; e++) {
    const struct copse_link *link = &topology->links[e];
    int f = copse_topology_find_link(topology, image[link->src], image[link->dst]);
    if (f < 0 || !copse_q_eq(topology->links[f].bandwidth, link->bandwidth)) goto out;
  }
  *is = true; /* an injection of links into links of a finite graph is a bijection */
out:
  free(hit);
  return status;
}

/* ---- colours -------------------------------------------------------------------------------- */

static uint64_t first_colour(const struct copse_node *node) {
  return mix((uint64_t)(node->rank >= 0) | (uint64_t)node->multicast << 1 |
             (uint64_t)node->aggregation << 2);
}

/* A round of colour refinement; ranks keep their colours if told to. Hashes: a collision costs a
 * candidate, which is checked, and no proof. */
static void refine(struct finder *f, uint64_t *colours, bool ranks_too) {
  const struct copse_topology *t = f->topology;
  for (int v = 0; v < t->n_nodes; v++) f->sums[v] = 0;
  for (int e = 0; e < t->n_links; e++) {
    const struct copse_link *link = &t->links[e];
    f->sums[link->src] += mix(colours[link->dst] ^ f->link_colour[e]);
    f->sums[link->dst] += mix((colours[link->src] ^ f->link_colour[e]) + 1);
  }
  for (int v = 0; v < t->n_nodes; v++)
    if (ranks_too || t->nodes[v].rank < 0) colours[v] = mix(colours[v] ^ f->sums[v]);
}

static int compare_coloured(const void *a, const void *b) {
  const struct coloured *x = a, *y = b;
  if (x->colour != y->colour) return x->colour < y->colour ? -1 : 1;
  return (x->node > y->node) - (x->node < y->node);
}

/* The relays by colour; returns how many colours there are. */
static int sort_relays(const struct finder *f, const uint64_t *colours, struct coloured *sorted,
                       int *n_relays) {
  int n = 0, distinct = 0;
  for (int v = 0; v < f->topology->n_nodes; v++)
    if (f->topology->nodes[v].rank < 0) sorted[n++] = (struct coloured){colours[v], v};
  qsort(sorted, (size_t)n, sizeof *sorted, compare_coloured);
  for (int i = 0; i < n; i++) distinct += i == 0 || sorted[i].colour != sorted[i - 1].colour;
  *n_relays = n;
  return distinct;
}

/* The sum over all relays: different sums, different colours. */
static uint64_t sum_of(const struct finder *f, const uint64_t *colours) {
  uint64_t sum = 0;
  for (int v = 0; v < f->topology->n_nodes; v++)
    if (f->topology->nodes[v].rank < 0) sum += mix(colours[v]);
  return sum;
}

/* So many rounds tell apart what a cluster has: a relay is few hops from a rank. */
#define MOST_ROUNDS 16

/*
 * Given the images of the ranks: those of the relays, by colours that start from the ranks, all
 * different. Relays of one colour are as a rule alike (parallel spines) and taken in order.
 */
static bool extend_to_relays(struct finder *f) {
  const struct copse_topology *t = f->topology;
  int n, n_right, distinct = -1;
  for (int v = 0; v < t->n_nodes; v++) f->left[v] = f->right[v] = first_colour(&t->nodes[v]);
  for (int r = 0; r < t->n_ranks; r++) {
    int node = t->rank_nodes[r];
    f->left[node] = f->right[f->image[node]] = mix((uint64_t)r + 8);
  }
  for (int round = 0; round < MOST_ROUNDS; round++) {
    refine(f, f->left, false);
    refine(f, f->right, false);
    if (sum_of(f, f->left) != sum_of(f, f->right)) return false;
    int now = sort_relays(f, f->left, f->sorted_left, &n);
    if (now == distinct) break;
    distinct = now;
  }
  sort_relays(f, f->left, f->sorted_left, &n);
  sort_relays(f, f->right, f->sorted_right, &n_right);
  for (int i = 0; i < n; i++) {
    if (f->sorted_left[i].colour != f->sorted_right[i].colour) return false;
    f->image[f->sorted_left[i].node] = f->sorted_right[i].node;
  }
  return true;
}

/* ---- candidates ----------------------------------------------------------------------------- */

/* Turns every block of `block` ranks by `step`; false where the colours forbid it. */
static bool turn_ranks(struct finder *f, int block, int step) {
  const struct copse_topology *t = f->topology;
  for (int r = 0; r < t->n_ranks; r++) {
    int from = t->rank_nodes[r], to = t->rank_nodes[r - r % block + (r % block + step) % block];
    if (f->alike[from] != f->alike[to]) return false;
    f->image[from] = to;
  }
  return true;
}

/* Whether `order` turns bring every node back, and it commutes with the generators so far. */
static bool fits(struct finder *f, int order) {
  int n = f->topology->n_nodes;
  uint64_t *done = f->sums;
  for (int v = 0; v < n; v++) done[v] = 0;
  for (int v = 0; v < n; v++) {
    int length = 0;
    if (done[v]) continue;
    for (int u = v; !done[u]; u = f->image[u]) {
      done[u] = 1;
      length++;
    }
    if (order % length != 0) return false;
  }
  for (int g = 0; g < f->out->n; g++) {
    const int *other = f->out->generators[g].image;
    for (int v = 0; v < n; v++)
      if (other[f->image[v]] != f->image[other[v]]) return false;
  }
  return true;
}

/* Where ranks are alike but numbered anyhow, no candidate holds: so many are enough to give up. */
#define MOST_TRIED 128

static copse_status try_turn(struct finder *f, int block, int step, bool *good) {
  struct copse_symmetry *out = f->out;
  *good = turn_ranks(f, block, step) && f->n_tried++ < MOST_TRIED && extend_to_relays(f) &&
          fits(f, block / step);
  if (!*good) return COPSE_OK;
  copse_status status = copse_topology_is_automorphism(f->topology, f->image, good, f->err);
  if (status != COPSE_OK || !*good) return status;
  out->generators[out->n++] = (struct copse_symmetry_generator){block / step, f->image};
  out->n_products *= block / step;
  f->image = NULL;
  return copse_calloc((size_t)f->topology->n_nodes, sizeof *f->image, &f->image, f->err);
}

static int next_divisor(int n, int below) {
  int d = below - 1;
  while (d > 1 && n % d != 0) d--;
  return d;
}

/*
 * From the largest blocks to the smallest. Within blocks of B the smallest step that holds makes
 * the largest orbits; what is left to be moved are blocks of that step.
 */
static copse_status find_all(struct finder *f) {
  int n = f->topology->n_ranks;
  copse_status status = COPSE_OK;
  for (int block = n; block > 1;) {
    bool good = false;
    int step = 1;
    for (; step < block && !good; step++)
      if (block % step == 0) COPSE_TRY(try_turn(f, block, step, &good));
    block = good ? step - 1 : next_divisor(n, block);
  }
out:
  return status;
}

/* Colours of the topology itself, until a round tells no more apart. */
static void colour_alike(struct finder *f) {
  const struct copse_topology *t = f->topology;
  for (int v = 0; v < t->n_nodes; v++) f->alike[v] = first_colour(&t->nodes[v]);
  for (int round = 0; round < MOST_ROUNDS; round++) refine(f, f->alike, true);
}

static copse_status prepare(struct finder *f) {
  const struct copse_topology *t = f->topology;
  size_t nodes = (size_t)t->n_nodes;
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)t->n_links, sizeof(uint64_t), &f->link_colour, f->err));
  COPSE_TRY(copse_calloc(nodes, sizeof(uint64_t), &f->alike, f->err));
  COPSE_TRY(copse_calloc(nodes, sizeof(uint64_t), &f->left, f->err));
  COPSE_TRY(copse_calloc(nodes, sizeof(uint64_t), &f->right, f->err));
  COPSE_TRY(copse_calloc(nodes, sizeof(uint64_t), &f->sums, f->err));
  COPSE_TRY(copse_calloc(nodes, sizeof *f->sorted_left, &f->sorted_left, f->err));
  COPSE_TRY(copse_calloc(nodes, sizeof *f->sorted_right, &f->sorted_right, f->err));
  COPSE_TRY(copse_calloc(nodes, sizeof *f->image, &f->image, f->err));
  /* every generator at least doubles the number of products, which is at most that of ranks */
  COPSE_TRY(copse_calloc(32, sizeof *f->out->generators, &f->out->generators, f->err));
  for (int e = 0; e < t->n_links; e++)
    f->link_colour[e] =
        mix(mix((uint64_t)t->links[e].bandwidth.num) ^ (uint64_t)t->links[e].bandwidth.den);
out:
  return status;
}

copse_status copse_topology_symmetry(const struct copse_topology *topology,
                                     struct copse_symmetry *out, struct copse_err *err) {
  struct finder f = {.topology = topology, .out = out, .err = err};
  copse_status status;
  *out = (struct copse_symmetry){.n_products = 1};
  COPSE_TRY(prepare(&f));
  colour_alike(&f);
  COPSE_TRY(find_all(&f));
out:
  free(f.link_colour);
  free(f.alike);
  free(f.left);
  free(f.right);
  free(f.sums);
  free(f.sorted_left);
  free(f.sorted_right);
  free(f.image);
  if (status != COPSE_OK) copse_symmetry_free(out);
  return status;
}

void copse_symmetry_free(struct copse_symmetry *symmetry) {
  for (int g = 0; g < symmetry->n; g++) free(symmetry->generators[g].image);
  free(symmetry->generators);
  *symmetry = (struct copse_symmetry){.n_products = 1};
}
