#include "topology/input/gpu_class.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "topology/input/nccl_bandwidth.h"

/*
 * Links of a GPU by NVIDIA's and AMD's data sheets; PCIe by its generation at 16 lanes, and
 * CPUs as NCCL counts them: Broadwell 6, Skylake 10, Sapphire Rapids 22, AMD 16.
 */
static const struct row {
  const char *name, *gcn; /* gcn: AMD's */
  int sm, max_links, pcie, inter_cpu;
} rows[] = {
    {"p100", NULL, 60, 4, 12, 6},       {"v100", NULL, 70, 6, 12, 10},
    {"t4", NULL, 75, 0, 12, 10},        {"a100", NULL, 80, 12, 24, 16},
    {"a800", NULL, 80, 8, 24, 16},      {"a30", NULL, 80, 4, 24, 16},
    {"a40", NULL, 86, 4, 24, 16},       {"a6000", NULL, 86, 4, 24, 16},
    {"a10", NULL, 86, 0, 24, 16},       {"l40", NULL, 89, 0, 24, 16},
    {"l4", NULL, 89, 0, 24, 16},        {"h100", NULL, 90, 18, 48, 22},
    {"h200", NULL, 90, 18, 48, 22},     {"h800", NULL, 90, 8, 48, 22},
    {"h20", NULL, 90, 18, 48, 22},      {"gh200", NULL, 90, 18, 48, 6},
    {"b200", NULL, 100, 18, 48, 22},    {"b300", NULL, 100, 18, 96, 22},
    {"gb200", NULL, 100, 18, 48, 6},    {"mi50", "906", 0, 2, 24, 16},
    {"mi100", "908", 0, 3, 24, 16},     {"mi210", "gfx90a", 0, 3, 24, 16},
    {"mi250", "gfx90a", 0, 8, 24, 16},  {"mi300x", "gfx942", 0, 7, 48, 16},
    {"mi325x", "gfx942", 0, 7, 48, 16},
};
#define N_ROWS (sizeof rows / sizeof *rows)

const char *copse_gpu_class_names(bool amd) {
  return amd ? "mi50, mi100, mi210, mi250, mi300x, mi325x"
             : "p100, v100, t4, a100, a800, a30, a40, a6000, a10, l40, l4, h100, h200, h800, h20, "
               "gh200, b200, b300, gb200";
}

/* "NVIDIA A100-SXM4-80GB" names a100: the word begins where no letter or digit stands before. */
static bool names(const char *text, const char *name) {
  size_t n = strlen(name);
  for (const char *p = text; *p; p++) {
    bool starts = p == text || !isalnum((unsigned char)p[-1]);
    if (starts && strncasecmp(p, name, n) == 0 &&
        (!isalnum((unsigned char)p[n]) || strchr("xXsS", p[n])))
      return true;
  }
  return false;
}

bool copse_gpu_class_find(const char *name, struct copse_gpu_class *out) {
  for (size_t i = 0; i < N_ROWS; i++) {
    const struct row *row = &rows[i];
    if (!names(name, row->name)) continue;
    *out = (struct copse_gpu_class){
        row->name,      row->gcn != NULL,
        row->max_links, row->gcn ? copse_nccl_xgmi(row->gcn) : copse_nccl_nvlink(row->sm),
        {row->pcie, 1}, {row->inter_cpu, 1}};
    return true;
  }
  return false;
}

static void note_rates(const char *file, const struct copse_topology_options *options,
                       const struct copse_gpu_class *class, bool own_links,
                       const struct copse_matrix_rates *r) {
  char link[COPSE_Q_TEXT + 32] = "", number[COPSE_Q_TEXT], pcie[COPSE_Q_TEXT], cpu[COPSE_Q_TEXT];
  if (!own_links)
    snprintf(link, sizeof link, "%s GB/s an %s, ", copse_q_text(r->link, number),
             class->amd ? "xGMI link" : "NVLink");
  copse_note(options->notes,
             "%s: the matrix lacks speeds; %s%s%s: %s%s GB/s a PCIe link, %s GB/s "
             "between CPUs%s",
             file, options->gpu ? "for " : "its GPUs are taken for ", class->name,
             options->profile ? " and the profile" : "", link, copse_q_text(r->pcie, pcie),
             copse_q_text(r->inter_cpu, cpu),
             options->gpu ? "" : " (--gpu names the class, --profile gives measured numbers)");
}

copse_status copse_matrix_rates(const char *file, const struct copse_topology_options *options,
                                bool amd, bool own_links, const char *guess,
                                struct copse_matrix_rates *out, struct copse_err *err) {
  const struct copse_profile *profile = options->profile;
  struct copse_gpu_class class;
  const char *name = options->gpu ? options->gpu : guess;
  if (!copse_gpu_class_find(name, &class) || class.amd != amd)
    return copse_fail_at(err, COPSE_BAD_INPUT, file, 0,
                         "\"%.40s\" is no class of GPU for this file; known are %s", name,
                         copse_gpu_class_names(amd));
  out->link = copse_profile_rate(profile, amd ? COPSE_RATE_XGMI : COPSE_RATE_NVLINK, class.link);
  out->pcie = copse_profile_rate(profile, COPSE_RATE_PCIE, class.pcie);
  out->inter_cpu = copse_profile_rate(profile, COPSE_RATE_INTER_CPU, class.inter_cpu);
  out->max_links = class.max_links;
  note_rates(file, options, &class, own_links, out);
  return COPSE_OK;
}
