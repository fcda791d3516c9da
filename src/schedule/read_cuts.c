/* The certificate of an allreduce with free shares: weighted cuts and potentials of relays. */
#include <string.h>

#include "schedule/read_internal.h"

static copse_status read_cut(struct copse_schedule_reader *r, const cJSON *item,
                             const cJSON *parent, struct copse_schedule_cut *cut) {
  static const char *const keys[] = {"phase", "weight", "cut", NULL};
  const char *phase;
  copse_status status;
  COPSE_TRY(copse_json_expect_object(&r->json, item, parent, "a cut", keys, r->err));
  COPSE_TRY(copse_json_get_string(&r->json, item, "phase", &phase, r->err));
  COPSE_TRY(copse_json_get_rational(&r->json, item, "weight", &cut->weight, r->err));
  COPSE_TRY(copse_reader_nodes(r, copse_json_get(item, "cut"), item,
                               "\"cut\" must be an array of node ids", &cut->nodes, &cut->n_nodes));
  cut->phase = strcmp(phase, "reduce") == 0 ? COPSE_PHASE_REDUCE : COPSE_PHASE_BROADCAST;
  if (cut->phase == COPSE_PHASE_BROADCAST && strcmp(phase, "broadcast") != 0)
    return copse_reader_refuse(r, item, NULL, "\"phase\" must be broadcast or reduce");
  if (cut->weight.num <= 0)
    return copse_reader_refuse(r, item, NULL, "\"weight\" must be positive");
out:
  return status;
}

static copse_status read_potential(struct copse_schedule_reader *r, const cJSON *item,
                                   const cJSON *parent,
                                   struct copse_schedule_potential *potential) {
  static const char *const keys[] = {"node", "value", NULL};
  const char *node;
  copse_status status;
  COPSE_TRY(copse_json_expect_object(&r->json, item, parent, "a potential", keys, r->err));
  COPSE_TRY(copse_json_get_string(&r->json, item, "node", &node, r->err));
  COPSE_TRY(copse_json_get_rational(&r->json, item, "value", &potential->value, r->err));
  status = copse_reader_intern(r, node, &potential->node);
out:
  return status;
}

copse_status copse_reader_cuts(struct copse_schedule_reader *r, const cJSON *bound) {
  struct copse_bound *b = &r->schedule->bound;
  const cJSON *cuts, *potentials;
  copse_status status;
  COPSE_TRY(copse_json_get_array(&r->json, bound, "cuts", &cuts, r->err));
  COPSE_TRY(copse_json_get_array(&r->json, bound, "potentials", &potentials, r->err));
  struct copse_schedule_cut *cut =
      copse_reader_take(r, (size_t)cJSON_GetArraySize(cuts), sizeof *cut);
  struct copse_schedule_potential *potential =
      copse_reader_take(r, (size_t)cJSON_GetArraySize(potentials), sizeof *potential);
  if (!cut || !potential) return copse_fail_nomem(r->err);
  COPSE_JSON_EACH (item, cuts) COPSE_TRY(read_cut(r, item, bound, &cut[b->n_cuts++]));
  COPSE_JSON_EACH (item, potentials)
    COPSE_TRY(read_potential(r, item, bound, &potential[b->n_potentials++]));
  b->kind = COPSE_BOUND_FORESTS;
  b->cuts = cut;
  b->potentials = potential;
out:
  return status;
}
