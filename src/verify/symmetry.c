#include "verify/symmetry.h"

#include <stdlib.h>

#include "verify/internal.h"

struct checker {
  const struct copse_schedule *schedule;
  const struct copse_topology *topology;
  const int *node_of;
  const char *label;
  struct copse_verify_symmetry *out;
  struct copse_err *err;
};

/* The permutation on the topology's nodes. */
static copse_status map_nodes(struct checker *c, int i) {
  const struct copse_schedule *s = c->schedule;
  const struct copse_topology *t = c->topology;
  int *image;
  copse_status status;
  if (s->n_nodes != t->n_nodes) return refute(c, "a rotation must map every node of the topology");
  COPSE_TRY(copse_calloc((size_t)t->n_nodes, sizeof *image, &c->out->nodes[i], c->err));
  image = c->out->nodes[i];
  for (int v = 0; v < t->n_nodes; v++) image[v] = -1;
  for (int v = 0; v < s->n_nodes; v++) {
    if (c->node_of[v] < 0) return refute(c, "a rotation names '%s', which is unknown", s->nodes[v]);
    image[c->node_of[v]] = c->node_of[s->rotations[i].image[v]];
  }
out:
  return status;
}

static copse_status check_nodes(struct checker *c, int i) {
  const struct copse_topology *t = c->topology;
  const int *image = c->out->nodes[i];
  char *hit = NULL;
  copse_status status = copse_calloc((size_t)t->n_nodes, 1, &hit, c->err);
  for (int v = 0; v < t->n_nodes && status == COPSE_OK; v++) {
    const struct copse_node *a = &t->nodes[v], *b = image[v] < 0 ? NULL : &t->nodes[image[v]];
    if (!b || hit[image[v]]++)
      status = refute(c, "a rotation does not map the nodes one to one: see '%s'", a->id);
    else if ((a->rank >= 0) != (b->rank >= 0) || a->multicast != b->multicast ||
             a->aggregation != b->aggregation)
      status = refute(c, "a rotation maps '%s' to '%s'", a->id, b->id);
  }
  free(hit);
  return status;
}

static copse_status map_links(struct checker *c, int i) {
  const struct copse_topology *t = c->topology;
  const int *image = c->out->nodes[i];
  copse_status status;
  COPSE_TRY(copse_calloc((size_t)t->n_links, sizeof(int), &c->out->links[i], c->err));
  COPSE_TRY(copse_calloc((size_t)t->n_ranks, sizeof(int), &c->out->ranks[i], c->err));
  for (int e = 0; e < t->n_links; e++) {
    const struct copse_link *l = &t->links[e];
    int f = copse_topology_find_link(t, image[l->src], image[l->dst]);
    if (f < 0 || !copse_q_eq(t->links[f].bandwidth, l->bandwidth))
      return refute(c, "a rotation maps the link '%s' -> '%s' to none like it", t->nodes[l->src].id,
                    t->nodes[l->dst].id);
    c->out->links[i][e] = f;
  }
  for (int r = 0; r < t->n_ranks; r++) c->out->ranks[i][r] = t->nodes[image[t->rank_nodes[r]]].rank;
out:
  return status;
}

copse_status copse_verify_symmetry_make(const struct copse_schedule *schedule,
                                        const struct copse_topology *topology, const int *node_of,
                                        const char *label, struct copse_verify_symmetry *out,
                                        struct copse_err *err) {
  struct checker c = {schedule, topology, node_of, label, out, err};
  copse_status status = COPSE_OK;
  *out = (struct copse_verify_symmetry){0};
  if (schedule->n_rotations > COPSE_SCHEDULE_MAX_ROTATIONS)
    return refute(&c, "more than %d rotations", COPSE_SCHEDULE_MAX_ROTATIONS);
  for (int i = 0; i < schedule->n_rotations; i++) {
    out->orders[out->n++] = schedule->rotations[i].order;
    COPSE_TRY(map_nodes(&c, i));
    COPSE_TRY(check_nodes(&c, i));
    COPSE_TRY(map_links(&c, i));
  }
out:
  return status;
}

void copse_verify_symmetry_free(struct copse_verify_symmetry *symmetry) {
  for (int i = 0; i < symmetry->n; i++) {
    free(symmetry->nodes[i]);
    free(symmetry->links[i]);
    free(symmetry->ranks[i]);
  }
  *symmetry = (struct copse_verify_symmetry){0};
}

static copse_status spread_one(int order, const int *image, int n, mpq_t *values, char *done,
                               const char *label, struct copse_err *err) {
  mpq_t sum, times;
  copse_status status = COPSE_OK;
  mpq_inits(sum, times, NULL);
  for (int i = 0; i < n && status == COPSE_OK; i++) {
    int length = 0, j = i;
    if (done[i]) continue;
    mpq_set_ui(sum, 0, 1);
    do {
      mpq_add(sum, sum, values[j]);
      j = image[j];
      length++;
    } while (j != i);
    if (order % length != 0)
      status = copse_verify_refute(err, label, "the order of a rotation is not %d", order);
    mpq_set_ui(times, (unsigned long)(order / length), 1);
    mpq_mul(sum, sum, times);
    do {
      mpq_set(values[j], sum);
      done[j] = 1;
      j = image[j];
    } while (j != i);
  }
  mpq_clears(sum, times, NULL);
  return status;
}

copse_status copse_verify_spread(const struct copse_verify_symmetry *symmetry, int *const *images,
                                 int n, mpq_t *values, const char *label, struct copse_err *err) {
  copse_status status = COPSE_OK;
  for (int i = 0; i < symmetry->n && status == COPSE_OK; i++) {
    char *done = NULL;
    status = copse_calloc((size_t)n, 1, &done, err);
    if (status == COPSE_OK)
      status = spread_one(symmetry->orders[i], images[i], n, values, done, label, err);
    free(done);
  }
  return status;
}
