/* Which nodes are alike: orbits under the symmetries that are known, with ways from one to another.
 */
#include <stdlib.h>

#include "base/memory.h"
#include "topology/symmetry/symmetry.h"

/* First `from` (NULL: nothing), then `step`: that takes `node` to a new member. */
static copse_status add_member(struct copse_orbit *orbit, size_t *room, int node, const int *from,
                               const int *step, int n_nodes, struct copse_err *err) {
  size_t room_images = *room, n = (size_t)orbit->n;
  int *image = NULL;
  copse_status status;
  COPSE_TRY(copse_grow(&orbit->images, &room_images, n + 1, sizeof *orbit->images, err));
  COPSE_TRY(copse_grow(&orbit->members, room, n + 1, sizeof *orbit->members, err));
  COPSE_TRY(copse_calloc((size_t)n_nodes, sizeof *image, &image, err));
  for (int v = 0; v < n_nodes; v++) {
    int at = from ? from[v] : v;
    image[v] = step ? step[at] : at;
  }
  orbit->images[n] = image;
  orbit->members[n] = image[node];
  orbit->n++;
out:
  return status;
}

copse_status copse_orbit_find(const struct copse_symmetry *symmetry, int n_nodes, int node,
                              struct copse_orbit *out, struct copse_err *err) {
  char *seen = NULL;
  size_t room = 0;
  copse_status status;
  *out = (struct copse_orbit){0};
  COPSE_TRY(copse_calloc((size_t)n_nodes, 1, &seen, err));
  COPSE_TRY(add_member(out, &room, node, NULL, NULL, n_nodes, err));
  seen[node] = 1;
  for (int i = 0; i < out->n; i++) {
    for (int a = 0; a < symmetry->n + symmetry->n_others; a++) {
      const int *step = symmetry->generators[a].image;
      int to = step[out->members[i]];
      if (seen[to]) continue;
      seen[to] = 1;
      COPSE_TRY(add_member(out, &room, node, out->images[i], step, n_nodes, err));
    }
  }
out:
  free(seen);
  return status;
}

void copse_orbit_free(struct copse_orbit *orbit) {
  for (int i = 0; i < orbit->n; i++) free(orbit->images[i]);
  free(orbit->images);
  free(orbit->members);
  *orbit = (struct copse_orbit){0};
}
