#include "topology/input/nccl_bandwidth.h"

#include <string.h>
#include <strings.h>

struct copse_q copse_nccl_nvlink(int64_t sm) {
  if (sm >= 100) return (struct copse_q){401, 10};
  if (sm >= 90) return (struct copse_q){103, 5};
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
 * The decimal that `text` begins with, in units of 1/1000; -1 for none. "16", "16.0 GT/s"
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
    if (unit == 0 && *text != '0') return -1; /* finer than any speed that is known */
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

copse_status copse_nccl_pci(int64_t width, const char *link_speed, struct copse_q *out,
                            struct copse_err *err) {
  return copse_q_make((width == 0 ? 16 : width) * lane_rate(link_speed), 80, out, err);
}

copse_status copse_nccl_net(int64_t mbps, struct copse_q *out, struct copse_err *err) {
  return copse_q_make(mbps <= 0 ? 10000 : mbps, 8000, out, err);
}

static bool starts_with(const char *text, const char *start) {
  return text && strncmp(text, start, strlen(start)) == 0;
}

static struct copse_q intel(const struct copse_nccl_cpu *cpu) {
  int64_t model = cpu->family == 6 ? cpu->model : -1;
  if (model >= 0xcf) return (struct copse_q){40, 1};
  if (model >= 0x8f) return (struct copse_q){22, 1};
  if (model >= 0x55) return (struct copse_q){10, 1};
  return (struct copse_q){6, 1};
}

struct copse_q copse_nccl_inter_cpu(const struct copse_nccl_cpu *cpu) {
  if (starts_with(cpu->arch, "ppc64")) return (struct copse_q){32, 1};
  if (starts_with(cpu->arch, "arm64") || starts_with(cpu->arch, "aarch64"))
    return (struct copse_q){6, 1};
  if (cpu->arch && !starts_with(cpu->arch, "x86_64")) return COPSE_NCCL_LOCAL;
  if (starts_with(cpu->vendor, "GenuineIntel")) return intel(cpu);
  if (starts_with(cpu->vendor, "AuthenticAMD")) return (struct copse_q){16, 1};
  if (starts_with(cpu->vendor, "CentaurHauls") || starts_with(cpu->vendor, "  Shanghai  "))
    return (struct copse_q){cpu->family == 7 && cpu->model == 0x5b ? 9 : 6, 1};
  return COPSE_NCCL_LOCAL;
}
