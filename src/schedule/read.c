/*
 * Reads schedule JSON, "copse-schedule/1": trees or flows, and the compact form's permutations and
 * changes; the bound with its certificate in read_bound.c. Checks all that needs no topology. Node
 * ids become numbers in the order in which the file names them; ranks come first. docs/formats.md,
 * "Schedule" and "Compact form".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/types.h"
#include "schedule/chunks.h"
#include "schedule/read_internal.h"

/* Fails with `untrue` for a schedule that is well formed but not one of its collective. */
static copse_status refute(struct copse_reader *r, const cJSON *item, const cJSON *parent,
                           const char *what) {
  return copse_fail_at(r->err, r->untrue, r->json.file, copse_json_line(item, parent), "%s", what);
}

/* Finds the index of a node id, new ones appended. */
copse_status copse_reader_intern(struct copse_reader *r, const char *id, int *index) {
  *index = copse_reader_known(r, id);
  if (*index >= 0) return COPSE_OK;
  COPSE_DO(copse_grow(&r->nodes, &r->nodes_capacity, r->n_nodes + 1, sizeof *r->nodes, r->err));
  COPSE_DO(copse_index_map_add(&r->index, copse_key_text(id), (int)r->n_nodes, r->err));
  *index = (int)r->n_nodes;
  return copse_arena_text(&r->schedule->arena, id, &r->nodes[r->n_nodes++], r->err);
}

/* Reads the member `key`: an array of node ids. `what` is the complaint about anything else. */
static copse_status read_nodes_or(struct copse_reader *r, const cJSON *object, const char *key,
                                  const char *what, const int **out, int *n) {
  const cJSON *array = copse_json_get(object, key);
  int *nodes = NULL;
  *n = 0;
  if (!array || !copse_json_is_array(array)) return copse_reader_refuse(r, array, object, what);
  COPSE_DO(copse_reader_take(r, (size_t)cJSON_GetArraySize(array), sizeof *nodes, &nodes));
  COPSE_JSON_EACH (item, array) {
    if (!copse_json_is_string(item)) return copse_reader_refuse(r, item, object, what);
    COPSE_DO(copse_reader_intern(r, item->valuestring, &nodes[(*n)++]));
  }
  *out = nodes;
  return COPSE_OK;
}

copse_status copse_reader_nodes(struct copse_reader *r, const cJSON *object, const char *key,
                                const int **out, int *n) {
  char what[64];
  snprintf(what, sizeof what, "\"%s\" must be an array of node ids", key);
  return read_nodes_or(r, object, key, what, out, n);
}

/* Reads one permutation: every node of the file has one image, and is the image of one node. */
static copse_status read_images(struct copse_reader *r, const cJSON *item, const int *nodes,
                                int n_from, struct copse_permutation *out) {
  const int *images;
  int *image, n_to;
  char *hit;
  int64_t order;
  COPSE_DO(copse_json_get_int(&r->json, item, "order", 2, 1 << 22, &order, r->err));
  COPSE_DO(copse_reader_nodes(r, item, "images", &images, &n_to));
  COPSE_DO(copse_reader_take(r, r->n_nodes, sizeof *image, &image));
  COPSE_DO(copse_reader_take(r, r->n_nodes, 1, &hit));
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
  return COPSE_OK;
}

/* Reads the compact form of flows and of trees. */
static copse_status read_rotation(struct copse_reader *r, const cJSON *item) {
  struct copse_schedule *s = r->schedule;
  struct copse_permutation *rotation;
  const int *nodes;
  int n;
  COPSE_DO(copse_reader_take(r, 1, sizeof *rotation, &rotation));
  COPSE_DO(copse_json_expect_object(&r->json, item, r->json.root, "\"rotation\"", rotation_keys,
                                    r->err));
  COPSE_DO(copse_reader_nodes(r, item, "nodes", &nodes, &n));
  COPSE_DO(read_images(r, item, nodes, n, rotation));
  s->rotations = rotation;
  s->n_rotations = 1;
  return COPSE_OK;
}

/* Reads those that symmetries have and the cluster has not. They are numbered behind the ranks. */
static copse_status read_absent(struct copse_reader *r, const cJSON *item) {
  struct copse_schedule *s = r->schedule;
  const int *absent;
  int *all;
  size_t before = r->n_nodes;
  if (!copse_json_get(item, "absent")) return COPSE_OK;
  COPSE_DO(copse_reader_nodes(r, item, "absent", &absent, &s->n_absent));
  if (before + (size_t)s->n_absent != r->n_nodes)
    return copse_reader_refuse(r, item, NULL,
                               "\"absent\" must name other nodes than \"ranks\", each once");
  COPSE_DO(copse_reader_take(r, r->n_nodes, sizeof *all, &all));
  for (size_t v = 0; v < r->n_nodes; v++)
    all[v] = (int)v < s->n_ranks ? s->rank_nodes[v] : absent[(int)v - s->n_ranks];
  s->rank_nodes = all;
  return copse_arena_array(&r->scratch, r->n_nodes, 1, &r->seen, r->err);
}

/* Returns all ranks that listed trees have. */
static int all_ranks(const struct copse_schedule *s) { return s->n_ranks + s->n_absent; }

static copse_status read_symmetry(struct copse_reader *r, const cJSON *item) {
  struct copse_schedule *s = r->schedule;
  struct copse_permutation *out;
  const cJSON *generators;
  const int *nodes;
  int n;
  COPSE_DO(copse_json_expect_object(&r->json, item, r->json.root, "\"symmetry\"", symmetry_keys,
                                    r->err));
  COPSE_DO(read_absent(r, item));
  COPSE_DO(copse_reader_nodes(r, item, "nodes", &nodes, &n));
  COPSE_DO(copse_json_get_array(&r->json, item, "generators", &generators, r->err));
  int count = cJSON_GetArraySize(generators);
  if (count < 1 || count > COPSE_SCHEDULE_MAX_ROTATIONS)
    return copse_reader_refuse(r, generators, item, "\"generators\" must have 1 to 32 entries");
  COPSE_DO(copse_reader_take(r, (size_t)count, sizeof *out, &out));
  COPSE_JSON_EACH (generator, generators) {
    COPSE_DO(
        copse_json_expect_object(&r->json, generator, item, "a generator", generator_keys, r->err));
    COPSE_DO(read_images(r, generator, nodes, n, &out[s->n_rotations++]));
  }
  s->rotations = out;
  return COPSE_OK;
}

/* Spreads shares [n_ranks] of the trees listed to those of all images. */
static copse_status spread_shares(struct copse_reader *r, struct copse_q *shares) {
  const struct copse_schedule *s = r->schedule;
  int *rank_of, *image, n = all_ranks(s);
  bool good = true;
  COPSE_DO(COPSE_ARRAY(&r->scratch, r->n_nodes, rank_of, r->err));
  COPSE_DO(COPSE_ARRAY(&r->scratch, (size_t)n, image, r->err));
  for (size_t v = 0; v < r->n_nodes; v++) rank_of[v] = -1;
  for (int i = 0; i < n; i++) rank_of[s->rank_nodes[i]] = i;
  for (int i = 0; i < s->n_rotations && good; i++) {
    for (int k = 0; k < n; k++) {
      image[k] = rank_of[s->rotations[i].image[s->rank_nodes[k]]];
      good = good && image[k] >= 0;
    }
    good = good && copse_sum_cycles(s->rotations[i].order, image, n, shares, NULL) == COPSE_OK;
  }
  if (good) return COPSE_OK;
  return refute(r, r->json.root, NULL,
                "\"symmetry\" must take ranks to ranks, each generator's order "
                "times without effect");
}

static copse_status check_ends(struct copse_reader *r, const cJSON *item, const int *path, int n,
                               int src, int dst) {
  const int *rank_nodes = r->schedule->rank_nodes;
  if (n >= 2 && path[0] == rank_nodes[src] && path[n - 1] == rank_nodes[dst]) return COPSE_OK;
  return refute(r, item, NULL, "\"path\" must lead from the node of src to the node of dst");
}

static copse_status read_path(struct copse_reader *r, const cJSON *item, const cJSON *parent,
                              const struct copse_schedule_flow *flow,
                              struct copse_schedule_path *path) {
  COPSE_DO(copse_json_expect_object(&r->json, item, parent, "a path", path_keys, r->err));
  COPSE_DO(copse_reader_nodes(r, item, "path", &path->nodes, &path->n_nodes));
  COPSE_DO(copse_json_get_rational(&r->json, item, "weight", &path->weight, r->err));
  if (path->weight.num <= 0)
    return copse_reader_refuse(r, item, NULL, "\"weight\" must be positive");
  return check_ends(r, item, path->nodes, path->n_nodes, flow->src, flow->dst);
}

static copse_status read_flow(struct copse_reader *r, const cJSON *item,
                              struct copse_schedule_flow *flow) {
  struct copse_schedule_path *out;
  const cJSON *paths;
  int n = r->schedule->n_ranks;
  COPSE_DO(copse_json_expect_object(&r->json, item, r->json.root, "a flow", flow_keys, r->err));
  COPSE_DO(copse_json_get_index(&r->json, item, "src", n, &flow->src, r->err));
  COPSE_DO(copse_json_get_index(&r->json, item, "dst", n, &flow->dst, r->err));
  COPSE_DO(copse_reader_take_list(r, item, "paths", sizeof *out, &paths, &out));
  if (flow->src == flow->dst)
    return copse_reader_refuse(r, item, NULL, "a flow from a rank to itself");
  COPSE_JSON_EACH (path, paths) COPSE_DO(read_path(r, path, item, flow, &out[flow->n_paths++]));
  flow->paths = out;
  return COPSE_OK;
}

static copse_status read_demand(struct copse_reader *r, const cJSON *rows) {
  int n = r->schedule->n_ranks;
  size_t at = 0;
  if (!copse_json_is_array(rows) || cJSON_GetArraySize(rows) != n)
    return copse_reader_refuse(r, rows, r->json.root, "\"demand\" must have a row per rank");
  int64_t *bytes;
  COPSE_DO(copse_reader_take(r, (size_t)n * (size_t)n, sizeof *bytes, &bytes));
  COPSE_JSON_EACH (row, rows) {
    if (!copse_json_is_array(row) || cJSON_GetArraySize(row) != n)
      return copse_reader_refuse(r, row, r->json.root,
                                 "a row of \"demand\" must have a number per rank");
    COPSE_JSON_EACH (item, row)
      COPSE_DO(copse_json_int(&r->json, item, r->json.root, "an entry of \"demand\"", 0,
                              (int64_t)1 << 42, &bytes[at++], r->err));
  }
  r->schedule->demand = bytes;
  return COPSE_OK;
}

/* Takes zeroed memory for the items of a list that is still text, and checks that it is one. */
copse_status copse_reader_take_items(struct copse_reader *r, const cJSON *object, const char *name,
                                     size_t size, const struct copse_json_list **list,
                                     void *out_pointer) {
  const cJSON *array;
  COPSE_DO(copse_json_get_array(&r->json, object, name + (*name == '/'), &array, r->err));
  *list = copse_json_list(&r->json, name);
  if ((*list)->n > INT32_MAX) return copse_reader_refuse(r, object, NULL, "too many items");
  return copse_reader_take(r, (*list)->n, size, out_pointer);
}

/* Reads "flows", "demand", "forward" and "rotation" of an alltoall. */
static copse_status read_flows(struct copse_reader *r) {
  struct copse_schedule *s = r->schedule;
  struct copse_schedule_flow *out;
  const struct copse_json_list *flows;
  const cJSON *root = r->json.root;
  bool forward;
  COPSE_DO(copse_reader_take_items(r, root, "flows", sizeof *out, &flows, &out));
  COPSE_DO(copse_json_get_bool_or(&r->json, root, "forward", true, &forward, r->err));
  s->no_forward = !forward;
  for (size_t i = 0; i < flows->n; i++) {
    COPSE_AT_END(copse_json_free_at) struct copse_json flow;
    COPSE_DO(copse_json_item(&r->json, flows, i, &flow, r->err));
    COPSE_DO(read_flow(r, flow.root, &out[s->n_flows++]));
  }
  s->flows = out;
  if (copse_json_get(root, "demand")) COPSE_DO(read_demand(r, copse_json_get(root, "demand")));
  if (copse_json_get(root, "rotation"))
    COPSE_DO(read_rotation(r, copse_json_get(root, "rotation")));
  return COPSE_OK;
}

static copse_status read_ranks(struct copse_reader *r) {
  struct copse_schedule *s = r->schedule;
  COPSE_DO(copse_reader_nodes(r, r->json.root, "ranks", &s->rank_nodes, &s->n_ranks));
  if (s->n_ranks == 0) return copse_reader_refuse(r, r->json.root, NULL, "\"ranks\" is empty");
  if ((size_t)s->n_ranks != r->n_nodes)
    return copse_reader_refuse(r, r->json.root, NULL, "a node stands twice in \"ranks\"");
  return copse_arena_array(&r->scratch, (size_t)s->n_ranks, 1, &r->seen, r->err);
}

/* Reads, if it is there, "exclude" or "relay". */
static copse_status read_others(struct copse_reader *r) {
  const char *others = "relay";
  if (copse_json_get(r->json.root, "others"))
    COPSE_DO(copse_json_get_string(&r->json, r->json.root, "others", &others, r->err));
  r->schedule->others_excluded = strcmp(others, "exclude") == 0;
  if (!r->schedule->others_excluded && strcmp(others, "relay") != 0)
    return copse_reader_refuse(r, r->json.root, NULL, "\"others\" must be relay or exclude");
  return COPSE_OK;
}

/* Reads, if they are there, the switches that the time counts on. */
static copse_status read_switches(struct copse_reader *r) {
  static const char not_ids[] = "\"in_network\" must hold arrays of node ids";
  const cJSON *item = copse_json_get(r->json.root, "in_network");
  struct copse_schedule *s = r->schedule;
  if (!item) return COPSE_OK;
  COPSE_DO(copse_json_expect_object(&r->json, item, r->json.root, "\"in_network\"", in_network_keys,
                                    r->err));
  if (copse_json_get(item, "multicast"))
    COPSE_DO(read_nodes_or(r, item, "multicast", not_ids, &s->copying, &s->n_copying));
  if (copse_json_get(item, "aggregation"))
    COPSE_DO(read_nodes_or(r, item, "aggregation", not_ids, &s->adding, &s->n_adding));
  return COPSE_OK;
}

static copse_status read_topology(struct copse_reader *r) {
  struct copse_schedule *s = r->schedule;
  const cJSON *topology = copse_json_get(r->json.root, "topology");
  const char *name = "", *sha256 = "";
  COPSE_DO(copse_json_expect_object(&r->json, topology, r->json.root, "\"topology\"", topology_keys,
                                    r->err));
  COPSE_DO(copse_json_get_string(&r->json, topology, "name", &name, r->err));
  if (copse_json_get(topology, "sha256"))
    COPSE_DO(copse_json_get_string(&r->json, topology, "sha256", &sha256, r->err));
  COPSE_DO(copse_arena_text(&s->arena, name, &s->topology_name, r->err));
  return copse_arena_text(&s->arena, sha256, &s->topology_sha256, r->err);
}

/* Reads an edge between the first n ranks. */
static copse_status read_edge(struct copse_reader *r, const cJSON *item, const cJSON *parent, int n,
                              struct copse_schedule_edge *edge) {
  COPSE_DO(copse_json_expect_object(&r->json, item, parent, "an edge", edge_keys, r->err));
  COPSE_DO(copse_json_get_index(&r->json, item, "src", n, &edge->src, r->err));
  COPSE_DO(copse_json_get_index(&r->json, item, "dst", n, &edge->dst, r->err));
  COPSE_DO(copse_reader_nodes(r, item, "path", &edge->path, &edge->n_path));
  return check_ends(r, item, edge->path, edge->n_path, edge->src, edge->dst);
}

/*
 * Checks a tree. Broadcast: each src is the root or was a dst before, each dst is new. Reduce: the
 * same from the last edge on, which leads to the root.
 */
static copse_status check_tree(struct copse_reader *r, const cJSON *item,
                               const struct copse_schedule_tree *tree) {
  int n = all_ranks(r->schedule);
  bool reduce = tree->phase == COPSE_PHASE_REDUCE;
  memset(r->seen, 0, (size_t)n);
  if (tree->stage == 0 && tree->n_edges != n - 1)
    return refute(r, item, NULL, "a tree must span all ranks: one edge fewer than ranks");
  r->seen[tree->root] = 1;
  for (int i = 0; i < tree->n_edges; i++) {
    const struct copse_schedule_edge *edge = &tree->edges[reduce ? tree->n_edges - 1 - i : i];
    int parent = reduce ? edge->dst : edge->src, child = reduce ? edge->src : edge->dst;
    if (!r->seen[parent] || r->seen[child])
      return refute(r, item, NULL,
                    reduce
                        ? "edges of a reduce tree must leave every rank but the root once, each "
                          "after those that lead to it"
                        : "edges of a broadcast tree must reach every rank once, each src before");
    r->seen[child] = 1;
  }
  return COPSE_OK;
}

static copse_status read_edges(struct copse_reader *r, const cJSON *item,
                               struct copse_schedule_tree *tree) {
  struct copse_schedule_edge *out;
  const cJSON *edges;
  COPSE_DO(copse_reader_take_list(r, item, "edges", sizeof *out, &edges, &out));
  COPSE_JSON_EACH (edge, edges)
    COPSE_DO(read_edge(r, edge, item, all_ranks(r->schedule), &out[tree->n_edges++]));
  tree->edges = out;
  return check_tree(r, item, tree);
}

/* Reads the stage of a tree of an allreduce in stages. */
static copse_status read_stage(struct copse_reader *r, const cJSON *item,
                               struct copse_schedule_tree *tree) {
  const struct copse_schedule *s = r->schedule;
  if (!copse_json_get(item, "stage") && !copse_json_get(item, "piece")) return COPSE_OK;
  COPSE_DO(copse_json_get_index(&r->json, item, "stage", INT32_MAX, &tree->stage, r->err));
  COPSE_DO(copse_json_get_index(&r->json, item, "piece", INT32_MAX, &tree->piece, r->err));
  if (s->collective == COPSE_ALLREDUCE && tree->stage > 0 && s->n_rotations == 0 &&
      copse_schedule_doubles(s))
    return COPSE_OK;
  return copse_reader_refuse(
      r, item, NULL, "\"stage\", from 1, is for all trees of an allreduce without symmetry");
}

static copse_status read_tree(struct copse_reader *r, const cJSON *item,
                              struct copse_schedule_tree *tree) {
  const struct copse_schedule *s = r->schedule;
  const char *phase;
  COPSE_DO(copse_json_expect_object(&r->json, item, r->json.root, "a tree", tree_keys, r->err));
  COPSE_DO(copse_json_get_index(&r->json, item, "root", all_ranks(s), &tree->root, r->err));
  COPSE_DO(copse_json_get_string(&r->json, item, "phase", &phase, r->err));
  COPSE_DO(copse_json_get_rational(&r->json, item, "weight", &tree->weight, r->err));
  if (strcmp(phase, "broadcast") == 0 && copse_collective_broadcasts(s->collective))
    tree->phase = COPSE_PHASE_BROADCAST;
  else if (strcmp(phase, "reduce") == 0 && copse_collective_reduces(s->collective))
    tree->phase = COPSE_PHASE_REDUCE;
  else
    return copse_reader_refuse(r, item, NULL, "\"phase\" must be one that the collective has");
  if (tree->weight.num <= 0)
    return copse_reader_refuse(r, item, NULL, "\"weight\" must be positive");
  COPSE_DO(read_stage(r, item, tree));
  return read_edges(r, item, tree);
}

static copse_status add_weight(struct copse_reader *r, struct copse_q weight, struct copse_q *sum) {
  if (copse_q_add(*sum, weight, sum, NULL) == COPSE_OK) return COPSE_OK;
  return copse_reader_refuse(r, r->json.root, NULL,
                             "the weights have no common denominator in 64 bits");
}

/* Adds up shares [all_ranks]: of each root in a phase, over all its trees. */
static copse_status add_shares(struct copse_reader *r, enum copse_phase phase,
                               struct copse_q *shares) {
  const struct copse_schedule *s = r->schedule;
  for (int i = 0; i < all_ranks(s); i++) shares[i] = COPSE_Q_ZERO;
  for (int i = 0; i < s->n_trees; i++) {
    const struct copse_schedule_tree *tree = &s->trees[i];
    if (tree->phase != phase) continue;
    COPSE_DO(add_weight(r, tree->weight, &shares[tree->root]));
  }
  return s->n_rotations > 0 ? spread_shares(r, shares) : COPSE_OK;
}

/* Refutes at the root's first tree; at the document where it has none. */
static copse_status refute_shares(struct copse_reader *r, int root, struct copse_q sum,
                                  struct copse_q due) {
  const struct copse_json_list *trees = copse_json_list(&r->json, "trees");
  int i = 0;
  while (i < r->schedule->n_trees && r->schedule->trees[i].root != root) i++;
  long line = (size_t)i < trees->n ? trees->items[i].line : copse_json_line(r->json.root, NULL);
  return copse_fail_at(r->err, r->untrue, r->json.file, line,
                       "the weights of root %d's trees don't add up to its share: %s, not %s", root,
                       COPSE_Q_STRING(sum), COPSE_Q_STRING(due));
}

static copse_status check_phase_shares(struct copse_reader *r, const struct copse_q *shares) {
  const struct copse_schedule *s = r->schedule;
  struct copse_q whole = COPSE_Q_ZERO, equal = {1, s->n_ranks};
  for (int i = 0; i < s->n_ranks; i++) {
    struct copse_q due = copse_collective_rooted(s->collective)
                             ? (i == s->root ? COPSE_Q_ONE : COPSE_Q_ZERO)
                             : equal;
    if (s->collective != COPSE_ALLREDUCE && !copse_q_eq(shares[i], due))
      return refute_shares(r, i, shares[i], due);
    COPSE_DO(add_weight(r, shares[i], &whole));
  }
  if (!copse_q_eq(whole, COPSE_Q_ONE))
    return refute(r, r->json.root, NULL, "the weights of a phase don't add up to 1");
  return COPSE_OK;
}

/* Whether a tree of stages is of the same or the next piece, stage or root as the one before it. */
static bool follows(const struct copse_schedule_tree *tree,
                    const struct copse_schedule_tree *before) {
  if (!before || tree->piece == before->piece + 1)
    return tree->stage == 1 && (before || tree->piece == 0);
  return tree->piece == before->piece && copse_q_eq(tree->weight, before->weight) &&
         (tree->stage == before->stage ? tree->root > before->root && tree->phase == before->phase
                                       : tree->stage == before->stage + 1);
}

/* Whether none of a tree's ranks is in another reduce tree of the stage; they are now in this
 * one. */
static bool is_apart(struct copse_reader *r, const struct copse_schedule_tree *tree) {
  if (tree->phase == COPSE_PHASE_BROADCAST) return true;
  bool apart = r->seen[tree->root]++ == 0;
  for (int e = 0; e < tree->n_edges; e++) apart = r->seen[tree->edges[e].src]++ == 0 && apart;
  return apart;
}

/* Checks stages: they come in order, and pieces are all of M. */
static copse_status check_stages(struct copse_reader *r) {
  const struct copse_schedule_tree *before = NULL, *trees = r->schedule->trees;
  struct copse_q whole = COPSE_Q_ZERO;
  for (int t = 0; t < r->schedule->n_trees; before = &trees[t++]) {
    if (!before || before->piece < trees[t].piece || before->stage < trees[t].stage)
      memset(r->seen, 0, (size_t)all_ranks(r->schedule));
    if (!follows(&trees[t], before) || !is_apart(r, &trees[t]))
      return refute(r, r->json.root, NULL,
                    "trees in stages come by piece, stage and root, a piece's with one weight, a "
                    "stage's of one phase, reduce trees without a rank in common");
    if (!before || before->piece < trees[t].piece) COPSE_DO(add_weight(r, trees[t].weight, &whole));
  }
  if (copse_q_eq(whole, COPSE_Q_ONE)) return COPSE_OK;
  return refute(r, r->json.root, NULL, "the weights of the pieces don't add up to 1");
}

static copse_status check_shares(struct copse_reader *r) {
  const struct copse_schedule *s = r->schedule;
  size_t n = (size_t)all_ranks(s);
  struct copse_q *shares;
  bool broadcasts = copse_collective_broadcasts(s->collective);
  bool aggregates = copse_collective_reduces(s->collective);
  if (copse_schedule_doubles(s)) return check_stages(r);
  COPSE_DO(COPSE_ARRAY(&r->scratch, 2 * n, shares, r->err));
  COPSE_DO(add_shares(r, COPSE_PHASE_BROADCAST, shares));
  COPSE_DO(add_shares(r, COPSE_PHASE_REDUCE, shares + n));
  if (broadcasts) COPSE_DO(check_phase_shares(r, shares));
  if (aggregates) COPSE_DO(check_phase_shares(r, shares + n));
  if (broadcasts && aggregates && memcmp(shares, shares + n, (size_t)s->n_ranks * sizeof *shares))
    return refute(r, r->json.root, NULL, "a root's shares differ between the two phases");
  return COPSE_OK;
}

/* Reads the edges that changes have by their numbers, if they are there. */
static copse_status read_shared_edges(struct copse_reader *r) {
  const cJSON *edges;
  if (!copse_json_get(r->json.root, "edges")) return COPSE_OK;
  COPSE_DO(copse_reader_take_list(r, r->json.root, "edges", sizeof *r->edges, &edges, &r->edges));
  COPSE_JSON_EACH (edge, edges)
    COPSE_DO(read_edge(r, edge, r->json.root, r->schedule->n_ranks, &r->edges[r->n_edges++]));
  return COPSE_OK;
}

/* Reads an edge of a change, or the number of one that is shared. */
static copse_status read_change_edge(struct copse_reader *r, const cJSON *item, const cJSON *parent,
                                     struct copse_schedule_edge *edge) {
  int64_t number;
  if (!copse_json_is_number(item)) return read_edge(r, item, parent, r->schedule->n_ranks, edge);
  COPSE_DO(copse_json_int(&r->json, item, parent, "edges", 0, r->n_edges - 1, &number, r->err));
  *edge = r->edges[number];
  return COPSE_OK;
}

/* Reads a change of the compact form: by tree, then by image, of those that there are. */
static copse_status read_change(struct copse_reader *r, const cJSON *item, int images,
                                struct copse_schedule_change *c) {
  const struct copse_schedule *s = r->schedule;
  const struct copse_schedule_change *before = c > s->changes ? c - 1 : NULL;
  struct copse_schedule_edge *to;
  const cJSON *edges;
  int image;
  COPSE_DO(copse_json_expect_object(&r->json, item, r->json.root, "a change", change_keys, r->err));
  COPSE_DO(copse_json_get_index(&r->json, item, "tree", s->n_trees, &c->tree, r->err));
  COPSE_DO(copse_json_get_index(&r->json, item, "image", images, &image, r->err));
  COPSE_DO(copse_json_get_rational(&r->json, item, "weight", &c->weight, r->err));
  c->image = image;
  if (before && (before->tree > c->tree || (before->tree == c->tree && before->image > c->image)))
    return copse_reader_refuse(r, item, NULL, "\"changes\" must come by tree, then by image");
  COPSE_DO(copse_reader_take_list(r, item, "edges", sizeof *to, &edges, &to));
  COPSE_JSON_EACH (edge, edges) COPSE_DO(read_change_edge(r, edge, item, &to[c->n_edges++]));
  c->edges = to;
  return COPSE_OK;
}

/* Reads changes, if they are there. */
static copse_status read_changes(struct copse_reader *r) {
  struct copse_schedule *s = r->schedule;
  const struct copse_json_list *changes;
  struct copse_schedule_change *out;
  int images = copse_schedule_images(s) <= all_ranks(s) ? (int)copse_schedule_images(s) : 0;
  if (s->n_absent > 0 && !copse_json_get(r->json.root, "changes"))
    return copse_reader_refuse(r, r->json.root, NULL, "\"absent\" ranks need \"changes\"");
  if (!copse_json_get(r->json.root, "changes")) return COPSE_OK;
  COPSE_DO(read_shared_edges(r));
  if (s->n_rotations == 0 || images == 0)
    return copse_reader_refuse(r, r->json.root, NULL,
                               "\"changes\" are for a \"symmetry\" of no more images than ranks");
  COPSE_DO(copse_reader_take_items(r, r->json.root, "changes", sizeof *out, &changes, &out));
  s->changes = out;
  s->excepted = true;
  for (size_t i = 0; i < changes->n; i++) {
    COPSE_AT_END(copse_json_free_at) struct copse_json change;
    COPSE_DO(copse_json_item(&r->json, changes, i, &change, r->err));
    COPSE_DO(read_change(r, change.root, images, &out[s->n_changes++]));
  }
  return COPSE_OK;
}

static copse_status read_trees(struct copse_reader *r) {
  struct copse_schedule *s = r->schedule;
  struct copse_schedule_tree *out;
  const struct copse_json_list *trees;
  if (copse_json_get(r->json.root, "symmetry"))
    COPSE_DO(read_symmetry(r, copse_json_get(r->json.root, "symmetry")));
  COPSE_DO(copse_reader_take_items(r, r->json.root, "trees", sizeof *out, &trees, &out));
  s->trees = out;
  for (size_t i = 0; i < trees->n; i++) {
    COPSE_AT_END(copse_json_free_at) struct copse_json tree;
    COPSE_DO(copse_json_item(&r->json, trees, i, &tree, r->err));
    COPSE_DO(read_tree(r, tree.root, &out[s->n_trees++]));
  }
  COPSE_DO(check_shares(r));
  return read_changes(r);
}

static copse_status read_collective(struct copse_reader *r) {
  struct copse_schedule *s = r->schedule;
  const char *name;
  COPSE_DO(copse_json_get_string(&r->json, r->json.root, "collective", &name, r->err));
  if (!copse_collective_from_name(name, &s->collective))
    return copse_reader_refuse(
        r, r->json.root, NULL,
        "\"collective\" must be allgather, reduce_scatter, allreduce, broadcast, reduce "
        "or alltoall");
  return COPSE_OK;
}

/* Reads the root, if it is there: older or foreign files say it through the trees alone. */
static copse_status read_root(struct copse_reader *r) {
  struct copse_schedule *s = r->schedule;
  const struct copse_json_list *trees = copse_json_list(&r->json, "trees");
  const cJSON *holder = copse_json_get(r->json.root, "root") ? r->json.root : NULL;
  COPSE_AT_END(copse_json_free_at) struct copse_json first = {0};
  s->root = -1;
  if (!copse_collective_rooted(s->collective)) {
    if (holder)
      return copse_reader_refuse(r, r->json.root, NULL, "\"root\" is for broadcast and reduce");
    return COPSE_OK;
  }
  if (!holder && trees->n > 0) COPSE_DO(copse_json_item(&r->json, trees, 0, &first, r->err));
  if (!holder) holder = first.root;
  if (!holder || !copse_json_is_object(holder))
    return copse_reader_refuse(r, r->json.root, NULL, "\"root\" is missing");
  return copse_json_get_index(&r->json, holder, "root", s->n_ranks, &s->root, r->err);
}

/* Checks the rounded inverse of the time, for readers; a wrong one would mislead them. */
static copse_status check_algbw(struct copse_reader *r) {
  const struct copse_schedule *s = r->schedule;
  const cJSON *item = copse_json_get(r->json.root, "algbw_GBps");
  struct copse_q algbw;
  if (!item || (cJSON_IsNull(item) && s->time_per_GB.num == 0)) return COPSE_OK;
  COPSE_DO(copse_json_rational(&r->json, item, r->json.root, "\"algbw_GBps\"", &algbw, r->err));
  double algbw_by_time = copse_q_to_double(algbw) * copse_q_to_double(s->time_per_GB);
  if (algbw_by_time < 1 - 1e-6 || algbw_by_time > 1 + 1e-6)
    return refute(r, item, r->json.root, "\"algbw_GBps\" is not 1 / \"time_per_GB\"");
  return COPSE_OK;
}

/* Reads the objective that the schedule was made for, if the file states one. */
static copse_status read_objective(struct copse_reader *r) {
  const cJSON *item = copse_json_get(r->json.root, "objective");
  struct copse_schedule_objective *o = &r->schedule->objective;
  int64_t chunks, fifo = 0;
  if (!item) return COPSE_OK;
  COPSE_DO(copse_json_expect_object(&r->json, item, r->json.root, "\"objective\"", objective_keys,
                                    r->err));
  COPSE_DO(copse_json_get_int(&r->json, item, "bytes", 1, INT64_MAX, &o->bytes, r->err));
  COPSE_DO(
      copse_json_get_int(&r->json, item, "chunks", 1, COPSE_SCHEDULE_MAX_CHUNKS, &chunks, r->err));
  o->chunks = (int)chunks;
  if (copse_json_get(item, "fifo"))
    COPSE_DO(copse_json_get_int(&r->json, item, "fifo", 1, COPSE_MOST_FIFO, &fifo, r->err));
  o->fifo = (int)fifo;
  o->alpha_us = COPSE_Q_ZERO;
  COPSE_DO(
      copse_json_get_bool_or(&r->json, item, "alpha_occupies", false, &o->alpha_occupies, r->err));
  COPSE_DO(copse_json_get_bool_or(&r->json, item, "far_first", false, &o->far_first, r->err));
  return copse_json_get_amount_or(&r->json, item, "alpha_us", false, &o->alpha_us, r->err);
}

/* Whether every tree carries a multiple of 1/(roots * k), where k is stated. Of an allreduce only
 * the broadcast's: the reduction may have a k of its own. */
static bool fits_k(const struct copse_schedule *s) {
  bool broadcasts = copse_collective_broadcasts(s->collective);
  int64_t roots = copse_collective_rooted(s->collective) ? 1 : s->n_ranks, whole;
  for (int t = 0; t < s->n_trees && s->k > 0; t++) {
    const struct copse_schedule_tree *tree = &s->trees[t];
    if (broadcasts && tree->phase == COPSE_PHASE_REDUCE) continue;
    if (copse_mul_overflows(s->k, roots, &whole) || whole % tree->weight.den != 0) return false;
  }
  for (int c = 0; c < s->n_changes && s->k > 0; c++)
    if (copse_mul_overflows(s->k, roots, &whole) || whole % s->changes[c].weight.den != 0)
      return false;
  return true;
}

static copse_status read_document(struct copse_reader *r) {
  const cJSON *root = r->json.root;
  struct copse_schedule *s = r->schedule;
  const cJSON *name = copse_json_is_object(root) ? copse_json_get(root, "collective") : NULL;
  bool flows = name && copse_json_is_string(name) && strcmp(name->valuestring, "alltoall") == 0;
  COPSE_DO(copse_json_expect_format(&r->json, "copse-schedule/1", r->err));
  COPSE_DO(copse_json_expect_variant(&r->json, root, NULL, "a schedule", schedule_keys,
                                     flows ? FLOWS : TREES, r->err));
  COPSE_DO(read_collective(r));
  COPSE_DO(read_ranks(r));
  COPSE_DO(read_others(r));
  COPSE_DO(read_root(r));
  COPSE_DO(read_topology(r));
  if (copse_json_get(root, "k"))
    COPSE_DO(copse_json_get_int(&r->json, root, "k", 0, INT64_MAX, &s->k, r->err));
  COPSE_DO(copse_json_get_rational(&r->json, root, "time_per_GB", &s->time_per_GB, r->err));
  COPSE_DO(check_algbw(r));
  COPSE_DO(read_switches(r));
  COPSE_DO(read_objective(r));
  if (flows)
    COPSE_DO(read_flows(r));
  else
    COPSE_DO(read_trees(r));
  if (copse_json_get(root, "bound_at"))
    COPSE_DO(copse_reader_bound_at(r, copse_json_get(root, "bound_at")));
  if (copse_json_get(root, "routes"))
    COPSE_DO(copse_reader_routes(r, copse_json_get(root, "routes")));
  COPSE_DO(copse_reader_bound(r)); /* last: keys "src>dst" are split by the ids known by then */
  if (r->n_rotation_nodes > 0 && r->n_rotation_nodes != r->n_nodes)
    return copse_reader_refuse(r, root, NULL,
                               "\"rotation\" or \"symmetry\" must map every node of the schedule");
  if (!fits_k(s))
    return refute(r, root, NULL,
                  "\"k\" doesn't fit the weights: each must be a multiple of 1/(roots * k)");
  const char **nodes;
  COPSE_DO(copse_reader_take(r, r->n_nodes, sizeof *nodes, &nodes));
  memcpy(nodes, r->nodes, r->n_nodes * sizeof *nodes);
  s->nodes = nodes;
  s->n_nodes = (int)r->n_nodes;
  return COPSE_OK;
}

static void release(struct copse_reader *r) {
  copse_schedule_free(r->schedule);
  copse_json_free(&r->json);
  free(r->nodes);
  copse_index_map_free(&r->index);
  copse_arena_free(&r->scratch);
}

/* Fails with COPSE_NOMEM, before they are read, where memory does not suffice for the items of all
 * lists. An object is an edge, a path or a flow, and what stands between two commas is at most a
 * node. */
static copse_status check_room(const struct copse_json *json, struct copse_err *err) {
  const uint64_t object = sizeof(struct copse_schedule_edge) + 16, node = sizeof(int);
  uint64_t bytes = 0;
  for (int i = 0; i < COPSE_JSON_LISTS; i++) {
    const struct copse_json_list *list = &json->lists[i];
    const char *at = list->n > 0 ? list->items[0].from : NULL;
    const char *end = list->n > 0 ? list->items[list->n - 1].end : NULL;
    for (; at < end; at++) bytes += *at == '{' ? object : *at == ',' ? node : 0;
  }
  return copse_memory_check(bytes, json->file, "a schedule of fewer ranks", err,
                            "what is listed in it");
}

static copse_status parse(const char *label, const char *data, size_t size, copse_status untrue,
                          struct copse_schedule **out, struct copse_err *err) {
  COPSE_AT_END(release) struct copse_reader r = {.untrue = untrue, .err = err};
  *out = NULL;
  static const char *const lists[COPSE_JSON_LISTS] = {"trees", "flows", "changes", "/cuts"};
  COPSE_DO(copse_json_parse_lists(label, data, size, lists, &r.json, err));
  COPSE_DO(check_room(&r.json, err));
  COPSE_DO(copse_calloc(1, sizeof *r.schedule, &r.schedule, err));
  COPSE_DO(read_document(&r));
  *out = r.schedule;
  r.schedule = NULL;
  return COPSE_OK;
}

copse_status copse_schedule_parse(const char *label, const char *data, size_t size,
                                  struct copse_schedule **out, struct copse_err *err) {
  return parse(label, data, size, COPSE_BAD_INPUT, out, err);
}

static copse_status load(const char *path, copse_status untrue, struct copse_schedule **out,
                         struct copse_err *err) {
  COPSE_AT_END(copse_free_at) char *data = NULL;
  size_t size;
  *out = NULL;
  COPSE_DO(copse_file_read(path, &data, &size, err));
  return parse(copse_file_label(path), data, size, untrue, out, err);
}

copse_status copse_schedule_load(const char *path, struct copse_schedule **out,
                                 struct copse_err *err) {
  return load(path, COPSE_BAD_INPUT, out, err);
}

copse_status copse_schedule_load_claim(const char *path, struct copse_schedule **out,
                                       struct copse_err *err) {
  return load(path, COPSE_REFUTED, out, err);
}
