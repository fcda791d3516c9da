#include "codegen/msccl/check.h"

#include <stdio.h>

#include "codegen/msccl/check_run.h"

copse_status copse_check_msccl(const char *label, const char *data, size_t size,
                               struct copse_check_msccl_report *report, struct copse_err *err) {
  struct copse_mx_file file;
  struct copse_mx_program program;
  copse_status status = copse_mx_parse(label, data, size, &file, err);
  if (status != COPSE_OK) return status;
  *report = (struct copse_check_msccl_report){.collective = file.collective,
                                              .n_ranks = file.n_ranks,
                                              .n_channels = file.n_channels,
                                              .chunks = file.chunks,
                                              .in_place = file.in_place,
                                              .out_of_place = file.out_of_place,
                                              .min_bytes = file.min_bytes,
                                              .max_bytes = file.max_bytes,
                                              .missing = file.missing};
  snprintf(report->name, sizeof report->name, "%s", file.name);
  for (int g = 0; g < file.n_ranks; g++)
    for (int t = 0; t < file.gpus[g].n_tbs; t++) report->n_steps += file.gpus[g].tbs[t].n_steps;
  COPSE_TRY(copse_mx_program_make(&file, &program, err));
  report->n_tbs = program.n_tbs;
  report->on_rccl = program.on_rccl;
  if (file.in_place) status = copse_mx_run(&program, true, &report->actions, err);
  if (status == COPSE_OK && file.out_of_place)
    status = copse_mx_run(&program, false, &report->actions, err);
  copse_mx_program_free(&program);
out:
  copse_mx_free(&file);
  return status;
}
