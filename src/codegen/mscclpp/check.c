#include "codegen/mscclpp/check.h"

#include <stdio.h>

#include "codegen/mscclpp/check_run.h"

copse_status copse_check_mscclpp(const char *label, const char *data, size_t size,
                                 struct copse_check_mscclpp_report *report, struct copse_err *err) {
  struct copse_pj_file file;
  copse_status status = copse_pj_parse(label, data, size, &file, err);
  if (status != COPSE_OK) return status;
  *report = (struct copse_check_mscclpp_report){.collective = file.collective,
                                                .n_ranks = file.n_ranks,
                                                .n_blocks = file.n_blocks,
                                                .n_ops = file.n_ops,
                                                .chunks = file.chunks,
                                                .in_place = file.in_place};
  snprintf(report->name, sizeof report->name, "%s", file.name);
  int most = copse_pj_has_pipeline(&file) ? 3 : 1;
  for (int rounds = 1; rounds <= most && status == COPSE_OK; rounds++)
    status = copse_pj_run(&file, rounds, &report->actions, err);
  copse_pj_free(&file);
  return status;
}
