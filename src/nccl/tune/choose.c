/*
 * Rules of the model's choices: ranges of sizes are halved until both ends of each choose alike.
 * Beyond the largest size that is tried bandwidth alone counts, so that the last choice stays.
 */
#include "nccl/tune/choose.h"

#include <math.h>

#define LARGEST ((uint64_t)1 << 40)

bool copse_nccl_choose(const struct copse_nccl_model *model, int collective, uint64_t bytes,
                       int *algorithm, int *protocol) {
  double least = INFINITY;
  for (int a = 0; a < COPSE_TUNER_N_ALGORITHMS; a++)
    for (int p = 0; p < COPSE_TUNER_N_PROTOCOLS; p++) {
      double us = copse_nccl_model_us(model, collective, a, p, bytes);
      if (us >= least) continue;
      least = us;
      *algorithm = a;
      *protocol = p;
    }
  return isfinite(least);
}

struct chooser {
  const struct copse_nccl_model *model;
  struct copse_tuner_table *table;
  struct copse_tuner_rule rule; /* being extended */
  int collective;
  struct copse_err *err;
};

static copse_status end_rule(struct chooser *c) {
  struct copse_tuner_rule other = c->rule;
  COPSE_DO(copse_tuner_table_add(c->table, &c->rule, c->err));
  if (c->rule.algorithm == COPSE_TUNER_RING && c->rule.protocol != COPSE_TUNER_LL128)
    return COPSE_OK;
  other.algorithm = COPSE_TUNER_RING;
  other.protocol = COPSE_TUNER_SIMPLE;
  return copse_tuner_table_add(c->table, &other, c->err);
}

static copse_status take(struct chooser *c, uint64_t from, uint64_t to, int algorithm,
                         int protocol) {
  if (from > 0 && c->rule.algorithm == algorithm && c->rule.protocol == protocol) {
    c->rule.max_bytes = to;
    return COPSE_OK;
  }
  if (from > 0) COPSE_DO(end_rule(c));
  c->rule = (struct copse_tuner_rule){.collective = c->collective,
                                      .algorithm = algorithm,
                                      .protocol = protocol,
                                      .min_bytes = from,
                                      .max_bytes = to,
                                      .nodes = c->model->nodes,
                                      .ranks = c->model->ranks,
                                      .pipe_ops = COPSE_TUNER_ANY,
                                      .registered = COPSE_TUNER_ANY};
  return COPSE_OK;
}

/* Sizes from..to, within a factor of two, where the model's curves have no steps. */
static copse_status split(struct chooser *c, uint64_t from, uint64_t to) {
  int algorithm[2] = {0}, protocol[2] = {0};
  (void)copse_nccl_choose(c->model, c->collective, from, &algorithm[0], &protocol[0]);
  (void)copse_nccl_choose(c->model, c->collective, to, &algorithm[1], &protocol[1]);
  if (from == to || (algorithm[0] == algorithm[1] && protocol[0] == protocol[1]))
    return take(c, from, to, algorithm[0], protocol[0]);
  COPSE_DO(split(c, from, from + (to - from) / 2));
  return split(c, from + (to - from) / 2 + 1, to);
}

copse_status copse_nccl_choose_rules(const struct copse_nccl_model *model, int collective,
                                     struct copse_tuner_table *table, struct copse_err *err) {
  struct chooser c = {.model = model, .table = table, .collective = collective, .err = err};
  int algorithm, protocol;
  if (!copse_nccl_choose(model, collective, 0, &algorithm, &protocol)) return COPSE_OK;
  COPSE_DO(split(&c, 0, 63));
  for (uint64_t from = 64; from < LARGEST; from *= 2) COPSE_DO(split(&c, from, 2 * from - 1));
  c.rule.max_bytes = UINT64_MAX;
  return end_rule(&c);
}
