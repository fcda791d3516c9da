/* Images of links under a permutation of the nodes. */
#include <stdlib.h>

#include "base/memory.h"
#include "solver/network/network.h"

struct keyed {
  int64_t key;
  int link;
};

static int compare_keys(const void *a, const void *b) {
  const struct keyed *x = a, *y = b;
  return (x->key > y->key) - (x->key < y->key);
}

static int64_t key_of(int src, int dst) { return (int64_t)src << 32 | dst; }

copse_status copse_links_image(const struct copse_network *network,
                               const struct copse_permutation *rotation, int **image,
                               struct copse_err *err) {
  size_t m = (size_t)network->n_links;
  struct keyed *sorted = NULL;
  copse_status status;
  *image = NULL;
  COPSE_TRY(copse_calloc(m, sizeof **image, image, err));
  COPSE_TRY(copse_calloc(m, sizeof *sorted, &sorted, err));
  for (int e = 0; e < network->n_links; e++) {
    (*image)[e] = e;
    sorted[e] = (struct keyed){key_of(network->links[e].src, network->links[e].dst), e};
  }
  if (!rotation->image) goto out; /* the identity */
  qsort(sorted, m, sizeof *sorted, compare_keys);
  for (int e = 0; e < network->n_links; e++) {
    const struct copse_net_link *link = &network->links[e];
    struct keyed want = {key_of(rotation->image[link->src], rotation->image[link->dst]), 0};
    const struct keyed *found = bsearch(&want, sorted, m, sizeof *sorted, compare_keys);
    if (!found || network->links[found->link].capacity != link->capacity) {
      status = copse_fail(err, COPSE_INTERNAL, "a claimed symmetry is none");
      goto out;
    }
    (*image)[e] = found->link;
  }
out:
  free(sorted);
  if (status != COPSE_OK) {
    free(*image);
    *image = NULL;
  }
  return status;
}
