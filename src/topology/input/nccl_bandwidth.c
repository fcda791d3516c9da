/*
 * Speeds that files leave out: NCCL's and RCCL's constants for links (NVIDIA/nccl src/graph/topo.h
 * and topo.cc, ROCm/rccl src/graph/topo.h), and a table of GPU classes that use them.
 */
#include "topology/input/nccl_bandwidth.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

int copse_nccl_version(const struct copse_topology_options *options) {
  return options->nccl_version > 0 ? options->nccl_version : COPSE_NCCL_USUAL;
}

struct copse_q copse_nccl_nvlink(int64_t sm, int version) {
  if (sm >= 100 && version >= 22705) return (struct copse_q){401, 10};
  if (sm >= 100 && version >= 22500) return (struct copse_q){40, 1};
  if (sm >= 90) return version >= 22000 ? (struct copse_q){103, 5} : (struct copse_q){20, 1};
  if (sm == 86) return (struct copse_q){12, 1};
  if (sm >= 70) return (struct copse_q){20, 1};
  if (sm >= 60) return (struct copse_q){18, 1};
  return (struct copse_q){20, 1};
}

/* Dumps say "910" (RCCL before 5.7), "gfx90a" or with features "gfx942:sramecc+:xnack-". */
struct copse_q copse_nccl_xgmi(const char *gcn) {
  const struct copse_q vega = {24, 1}, mi200 = {36, 1}, mi300 = {48, 1};
  if (!gcn) return vega;
  if (strncasecmp(gcn, "gfx", 3) == 0) gcn += 3;
  size_t n = strcspn(gcn, ":");
  if (n != 3) return vega;
  if (strncmp(gcn, "910", 3) == 0 || strncasecmp(gcn, "90a", 3) == 0) return mi200;
  return strncmp(gcn, "94", 2) == 0 ? mi300 : vega;
}

/*
 * Returns the decimal that `text` begins with, in units of 1/1000; -1 for none. "16", "16.0 GT/s"
 * and "16.0 GT/s PCIe" are the same speed; kernels have written all of them.
 */
static int64_t leading_thousandths(const char *text) {
  if (*text < '0' || *text > '9') return -1;
  int64_t v = 0;
  for (; *text >= '0' && *text <= '9'; text++)
    if (v < 1000000) v = v * 10 + (*text - '0');
  v *= 1000;
  if (*text != '.') return v;
  text++;
  for (int64_t unit = 100; *text >= '0' && *text <= '9'; text++, unit /= 10) {
    if (unit == 0 && *text != '0') return -1; /* finer than all known speeds */
    v += unit * (*text - '0');
  }
  return v;
}

static int64_t lane_rate(const char *link_speed) {
  static const struct {
    int64_t thousandths, rate;
  } known[] = {{2500, 15}, {5000, 30}, {8000, 60}, {16000, 120}, {32000, 240}, {64000, 480}};
  int64_t speed = link_speed ? leading_thousandths(link_speed) : -1;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (known[i].thousandths == speed) return known[i].rate;
  return 60;
}

/* Looks up NCCL's own table: it looks for these at the beginning of the text. */
static int64_t lane_rate_as_nccl(const char *link_speed) {
  static const struct {
    const char *text;
    int64_t rate;
  } known[] = {{"2.5 GT/s", 15},       {"5 GT/s", 30},          {"8 GT/s", 60},
               {"16 GT/s", 120},       {"32 GT/s", 240},        {"5.0 GT/s PCIe", 30},
               {"8.0 GT/s PCIe", 60},  {"16.0 GT/s PCIe", 120}, {"32.0 GT/s PCIe", 240},
               {"64.0 GT/s PCIe", 480}};
  for (size_t i = 0; link_speed && i < sizeof known / sizeof *known; i++)
    if (strncmp(link_speed, known[i].text, strlen(known[i].text)) == 0) return known[i].rate;
  return 60;
}

bool copse_nccl_reads_slower(const char *link_speed) {
  return lane_rate_as_nccl(link_speed) < lane_rate(link_speed);
}

bool copse_nccl_knows_speed(const char *link_speed) {
  return lane_rate(link_speed) != 60 || (link_speed && leading_thousandths(link_speed) == 8000);
}

copse_status copse_nccl_pci(int64_t width, const char *link_speed, struct copse_q *out,
                            struct copse_err *err) {
  return copse_q_make((width == 0 ? 16 : width) * lane_rate(link_speed), 80, out, err);
}

static bool starts_with(const char *text, const char *start) {
  return text && strncmp(text, start, strlen(start)) == 0;
}

/* Returns the GB/s between Intel's sockets. Sapphire Rapids and later have values of their own from
 * 2.26 on, Granite Rapids and Sierra Forest (0xad to 0xaf) that of Emerald Rapids (0xcf) from 2.31
 * on. */
static int64_t intel(const struct copse_nccl_cpu *cpu, int version) {
  int64_t model = cpu->family == 6 ? cpu->model : -1;
  bool granite = model >= 0xad && model <= 0xaf;
  if (model >= 0x55 && version < 22600) return 10;
  if (model >= 0xcf || (granite && version >= 23100)) return 40;
  return model >= 0x8f ? 22 : model >= 0x55 ? 10 : 6;
}

/* Returns the GB/s between AMD's sockets: all alike up to 2.30, whose `familyid` is base +
 * (extended << 4): 175 for family 25, Zen 3 and 4 (Milan, Genoa), 191 for 26, Zen 5 (Turin). From
 * 2.31 on it may be either. */
static struct copse_q amd(const struct copse_nccl_cpu *cpu, int version) {
  bool zen3 = cpu->family == 175 || cpu->family == 25;
  bool zen5 = cpu->family == 191 || cpu->family == 26;
  if (version < 21900) return COPSE_NCCL_LOCAL;
  return (struct copse_q){version < 23100 ? 16 : zen5 ? 32 : zen3 ? 24 : 16, 1};
}

struct copse_q copse_nccl_inter_cpu(const struct copse_nccl_cpu *cpu, int version) {
  if (starts_with(cpu->arch, "ppc64")) return (struct copse_q){32, 1};
  if (starts_with(cpu->arch, "arm64") || starts_with(cpu->arch, "aarch64"))
    return (struct copse_q){6, 1};
  if (cpu->arch && !starts_with(cpu->arch, "x86_64")) return COPSE_NCCL_LOCAL;
  if (starts_with(cpu->vendor, "GenuineIntel")) return (struct copse_q){intel(cpu, version), 1};
  if (starts_with(cpu->vendor, "AuthenticAMD")) return amd(cpu, version);
  if (starts_with(cpu->vendor, "CentaurHauls") || starts_with(cpu->vendor, "  Shanghai  "))
    return (struct copse_q){cpu->family == 7 && cpu->model == 0x5b ? 9 : 6, 1};
  return COPSE_NCCL_LOCAL;
}

/*
 * Links of a GPU by NVIDIA's and AMD's data sheets; PCIe by its generation at 16 lanes, and
 * CPUs as NCCL counts them: Broadwell 6, Skylake 10, Sapphire Rapids 22, AMD 16.
 */
static const struct row {
  const char *name, *gcn; /* gcn: AMD's */
  int sm;                 /* NVIDIA's */
  int max_links;          /* NVLinks or xGMI links of one GPU; 0: none */
  int pcie;               /* GB/s of its PCIe link, x16 */
  int inter_cpu;          /* and between the sockets of the hosts it usually is in */
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

/* Lists the classes of a vendor, "p100, v100, ...". */
static const char *gpu_class_names(bool amd) {
  return amd ? "mi50, mi100, mi210, mi250, mi300x, mi325x"
             : "p100, v100, t4, a100, a800, a30, a40, a6000, a10, l40, l4, h100, h200, h800, h20, "
               "gh200, b200, b300, gb200";
}

/* Whether the text names a class: "NVIDIA A100-SXM4-80GB" names a100, as the word begins where no
 * letter or digit stands before. */
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

/* Finds a row by a name such as "a100" or "NVIDIA A100-SXM4-80GB"; NULL for an unknown one. */
static const struct row *find_row(const char *name) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (names(name, rows[i].name)) return &rows[i];
  return NULL;
}

static void note_rates(const char *file, const struct copse_topology_options *options,
                       const struct row *row, bool own_links, const struct copse_matrix_rates *r) {
  char link[COPSE_Q_TEXT + 32] = "", number[COPSE_Q_TEXT], pcie[COPSE_Q_TEXT], cpu[COPSE_Q_TEXT];
  if (!own_links)
    snprintf(link, sizeof link, "%s GB/s an %s, ", copse_q_text(r->link, number),
             row->gcn ? "xGMI link" : "NVLink");
  copse_note(options->notes,
             "%s: the matrix lacks speeds; %s%s%s: %s%s GB/s a PCIe link, %s GB/s "
             "between CPUs%s",
             file, options->gpu ? "for " : "its GPUs are taken for ", row->name,
             options->profile ? " and the profile" : "", link, copse_q_text(r->pcie, pcie),
             copse_q_text(r->inter_cpu, cpu),
             options->gpu ? "" : " (--gpu names the class, --profile gives measured numbers)");
}

/* Marks the rates that are guesses. A class that was named or a number that was given is none;
 * which CPUs there are is not said. */
static void set_guesses(const struct copse_topology_options *options, bool own_links,
                        struct copse_matrix_rates *out) {
  const struct copse_q none = COPSE_Q_ZERO;
  const struct copse_profile *profile = options->profile;
  memset(out->guess, 0, sizeof out->guess);
  if (copse_profile_rate(profile, COPSE_RATE_INTER_CPU, none).num == 0)
    out->guess[COPSE_NCCL_SYS] = COPSE_GUESS_SOCKETS;
  if (options->gpu) return;
  if (copse_profile_rate(profile, COPSE_RATE_PCIE, none).num == 0)
    out->guess[COPSE_NCCL_PCI] = COPSE_GUESS_CLASS;
  if (!own_links && copse_profile_rate(profile, COPSE_RATE_NVLINK, none).num == 0 &&
      copse_profile_rate(profile, COPSE_RATE_XGMI, none).num == 0)
    out->guess[COPSE_NCCL_NVLINK] = COPSE_GUESS_CLASS;
}

copse_status copse_matrix_rates(const char *file, const struct copse_topology_options *options,
                                bool amd, bool own_links, const char *guess,
                                struct copse_matrix_rates *out, struct copse_err *err) {
  const struct copse_profile *profile = options->profile;
  const char *name = options->gpu ? options->gpu : guess;
  const struct row *row = find_row(name);
  if (!row || (row->gcn != NULL) != amd)
    return copse_fail_at(err, COPSE_BAD_INPUT, file, 0,
                         "\"%.40s\" is no class of GPU for this file; known are %s", name,
                         gpu_class_names(amd));
  out->link = amd ? copse_profile_rate(profile, COPSE_RATE_XGMI, copse_nccl_xgmi(row->gcn))
                  : copse_profile_rate(profile, COPSE_RATE_NVLINK,
                                       copse_nccl_nvlink(row->sm, copse_nccl_version(options)));
  out->pcie = copse_profile_rate(profile, COPSE_RATE_PCIE, (struct copse_q){row->pcie, 1});
  out->inter_cpu =
      copse_profile_rate(profile, COPSE_RATE_INTER_CPU, (struct copse_q){row->inter_cpu, 1});
  out->max_links = row->max_links;
  set_guesses(options, own_links, out);
  note_rates(file, options, row, own_links, out);
  return COPSE_OK;
}
