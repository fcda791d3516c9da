#include "schedule/solve/instance.h"

#include "base/memory.h"

static copse_status refuse_unbalanced(const struct copse_topology *topology, const char *label,
                                      struct copse_err *err) {
  int node;
  struct copse_q in, out;
  char in_text[COPSE_Q_TEXT], out_text[COPSE_Q_TEXT];
  copse_status status = copse_topology_find_unbalanced(topology, &node, &in, &out, err);
  if (status != COPSE_OK || node < 0) return status;
  return copse_fail_at(err, COPSE_BAD_INPUT, label, 0,
                       "relay '%s' takes in %s GB/s and lets out %s GB/s; trees need them equal",
                       topology->nodes[node].id, copse_q_text(in, in_text),
                       copse_q_text(out, out_text));
}

static copse_status scale_links(const struct copse_topology *topology, bool reversed,
                                struct copse_instance *instance, struct copse_err *err) {
  instance->scale = 1;
  for (int i = 0; i < topology->n_links; i++)
    COPSE_DO(copse_lcm(instance->scale, topology->links[i].bandwidth.den, &instance->scale, err));
  for (int i = 0; i < topology->n_links; i++) {
    const struct copse_link *link = &topology->links[i];
    struct copse_net_link *out = &instance->links[i];
    out->src = reversed ? link->dst : link->src;
    out->dst = reversed ? link->src : link->dst;
    if (copse_mul_overflows(link->bandwidth.num, instance->scale / link->bandwidth.den,
                            &out->capacity))
      return copse_fail(err, COPSE_OVERFLOW,
                        "the bandwidths need more than 63 bits once brought to a common "
                        "denominator; use fewer digits");
  }
  return COPSE_OK;
}

static copse_status make(const struct copse_topology *topology, bool reversed,
                         struct copse_instance *out, struct copse_err *err) {
  size_t links = (size_t)topology->n_links, ranks = (size_t)topology->n_ranks;
  *out = (struct copse_instance){0};
  COPSE_DO(COPSE_ARRAY(&out->arena, links, out->links, err));
  COPSE_DO(COPSE_ARRAY(&out->arena, ranks, out->roots, err));
  COPSE_DO(scale_links(topology, reversed, out, err));
  out->network = (struct copse_network){
      .n_nodes = topology->n_nodes,
      .n_links = topology->n_links,
      .n_terminals = topology->n_ranks,
      .links = out->links,
      .terminals = topology->rank_nodes,
      .roots = out->roots,
  };
  return COPSE_OK;
}

copse_status copse_instance_make(const struct copse_topology *topology, const char *label, int root,
                                 bool reversed, struct copse_instance *out, struct copse_err *err) {
  *out = (struct copse_instance){0};
  COPSE_DO(refuse_unbalanced(topology, label, err));
  COPSE_DO(make(topology, reversed, out, err));
  for (int r = 0; r < topology->n_ranks; r++)
    if (root < 0 || r == root)
      out->roots[out->network.n_roots++] = (struct copse_net_root){topology->rank_nodes[r], 1};
  return COPSE_OK;
}

copse_status copse_instance_scale(const struct copse_topology *topology, struct copse_instance *out,
                                  struct copse_err *err) {
  return make(topology, false, out, err);
}

void copse_instance_free(struct copse_instance *instance) {
  copse_arena_free(&instance->arena);
  *instance = (struct copse_instance){0};
}

copse_status copse_groups_symmetries(const struct copse_topology *topology,
                                     const struct copse_group *groups, int n,
                                     struct copse_symmetry *out, struct copse_err *err) {
  COPSE_AT_END(copse_arena_free) struct copse_arena scratch = {0};
  struct copse_node_set *sets;
  COPSE_DO(COPSE_ARRAY(&scratch, (size_t)n, sets, err));
  for (int g = 0; g < n; g++)
    sets[g] = (struct copse_node_set){.kind = (int)groups[g].collective,
                                      .root = groups[g].root,
                                      .n = groups[g].n,
                                      .nodes = groups[g].nodes};
  return copse_topology_set_symmetries(topology, sets, n, out, err);
}

copse_status copse_fabric_symmetries(const struct copse_topology *topology,
                                     struct copse_symmetry *out, struct copse_err *err) {
  const struct copse_group all = {.collective = COPSE_ALLREDUCE,
                                  .root = -1,
                                  .nodes = (int *)topology->rank_nodes,
                                  .n = topology->n_ranks};
  return copse_groups_symmetries(topology, &all, 1, out, err);
}
