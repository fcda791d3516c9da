/* The compact form: an alltoall's "rotation", the "symmetry" of trees. */
#include <stdlib.h>

#include "schedule/read_internal.h"

/* One permutation: every node of the file has an image, and is one once. */
static copse_status read_images(struct copse_schedule_reader *r, const cJSON *item,
                                const int *nodes, int n_from, struct copse_permutation *out) {
  const int *images;
  int n_to;
  int64_t order;
  copse_status status;
  COPSE_TRY(copse_json_get_int(&r->json, item, "order", 2, 1 << 22, &order, r->err));
  COPSE_TRY(copse_reader_nodes(r, copse_json_get(item, "images"), item,
                               "\"images\" must be an array of node ids", &images, &n_to));
  int *image = copse_reader_take(r, r->n_nodes, sizeof *image);
  char *hit = copse_reader_take(r, r->n_nodes, 1);
  if (!image || !hit) return copse_fail_nomem(r->err);
  for (size_t v = 0; v < r->n_nodes; v++) image[v] = -1;
  bool good = n_from == n_to && (size_t)n_from == r->n_nodes;
  for (int i = 0; i < n_from && good; i++) {
    good = image[nodes[i]] < 0 && !hit[images[i]];
    image[nodes[i]] = images[i];
    hit[images[i]] = 1;
  }
  if (!good)
    return copse_reader_refuse(r, item, NULL,
                               "\"images\" must map every node of the schedule to one, each once");
  *out = (struct copse_permutation){.order = (int)order, .image = image};
  r->n_rotation_nodes = r->n_nodes;
out:
  return status;
}

copse_status copse_reader_rotation(struct copse_schedule_reader *r, const cJSON *item) {
  static const char *const keys[] = {"order", "nodes", "images", NULL};
  struct copse_schedule *s = r->schedule;
  struct copse_permutation *rotation = copse_reader_take(r, 1, sizeof *rotation);
  const int *nodes;
  int n;
  copse_status status;
  if (!rotation) return copse_fail_nomem(r->err);
  COPSE_TRY(copse_json_expect_object(&r->json, item, r->json.root, "\"rotation\"", keys, r->err));
  COPSE_TRY(copse_reader_nodes(r, copse_json_get(item, "nodes"), item,
                               "\"nodes\" must be an array of node ids", &nodes, &n));
  COPSE_TRY(read_images(r, item, nodes, n, rotation));
  s->rotations = rotation;
  s->n_rotations = 1;
out:
  return status;
}

copse_status copse_reader_symmetry(struct copse_schedule_reader *r, const cJSON *item) {
  static const char *const keys[] = {"nodes", "generators", NULL};
  static const char *const generator_keys[] = {"order", "images", NULL};
  struct copse_schedule *s = r->schedule;
  const cJSON *generators;
  const int *nodes;
  int n;
  copse_status status;
  COPSE_TRY(copse_json_expect_object(&r->json, item, r->json.root, "\"symmetry\"", keys, r->err));
  COPSE_TRY(copse_reader_nodes(r, copse_json_get(item, "nodes"), item,
                               "\"nodes\" must be an array of node ids", &nodes, &n));
  COPSE_TRY(copse_json_get_array(&r->json, item, "generators", &generators, r->err));
  int count = cJSON_GetArraySize(generators);
  if (count < 1 || count > COPSE_SCHEDULE_MAX_ROTATIONS)
    return copse_reader_refuse(r, generators, item, "\"generators\" must have 1 to 32 entries");
  struct copse_permutation *out = copse_reader_take(r, (size_t)count, sizeof *out);
  if (!out) return copse_fail_nomem(r->err);
  COPSE_JSON_EACH (generator, generators) {
    COPSE_TRY(
        copse_json_expect_object(&r->json, generator, item, "a generator", generator_keys, r->err));
    COPSE_TRY(read_images(r, generator, nodes, n, &out[s->n_rotations++]));
  }
  s->rotations = out;
out:
  return status;
}

/* Sums shares over the cycles of ranks; false where a cycle leaves the ranks, its length does not
 * divide the order, or 64 bits are too few. */
static bool spread(const struct copse_schedule *s, const struct copse_permutation *rotation,
                   const int *rank_of, char *done, struct copse_q *shares) {
  for (int r = 0; r < s->n_ranks; r++) {
    struct copse_q sum = COPSE_Q_ZERO;
    int length = 0, at = r;
    if (done[r]) continue;
    do {
      if (copse_q_add(sum, shares[at], &sum, NULL) != COPSE_OK) return false;
      at = rank_of[rotation->image[s->rank_nodes[at]]];
      length++;
    } while (at >= 0 && at != r);
    struct copse_q times = {rotation->order / length, 1};
    if (at < 0 || rotation->order % length != 0 || copse_q_mul(sum, times, &sum, NULL) != COPSE_OK)
      return false;
    do {
      shares[at] = sum;
      done[at] = 1;
      at = rank_of[rotation->image[s->rank_nodes[at]]];
    } while (at != r);
  }
  return true;
}

copse_status copse_reader_spread(struct copse_schedule_reader *r, struct copse_q *shares) {
  const struct copse_schedule *s = r->schedule;
  int *rank_of = NULL;
  char *done = NULL;
  copse_status status;
  COPSE_TRY(copse_calloc(r->n_nodes, sizeof *rank_of, &rank_of, r->err));
  for (size_t v = 0; v < r->n_nodes; v++) rank_of[v] = -1;
  for (int i = 0; i < s->n_ranks; i++) rank_of[s->rank_nodes[i]] = i;
  for (int i = 0; i < s->n_rotations && status == COPSE_OK; i++) {
    COPSE_TRY(copse_calloc((size_t)s->n_ranks, 1, &done, r->err));
    if (!spread(s, &s->rotations[i], rank_of, done, shares))
      status = copse_reader_refute(r, r->json.root, NULL,
                                   "\"symmetry\" must take ranks to ranks, each generator's order "
                                   "times without effect");
    free(done);
    done = NULL;
  }
out:
  free(rank_of);
  return status;
}
