/*
 * Damaged inputs of every format: read or refused with one line, never a crash (the
 * sanitizers watch), and what is read comes back from what is written of it.
 */
#include "helpers.h"
#include "topology/fabric/fabric.h"
#include "topology/input/profile.h"

static const char nvidia[] =
    "\tGPU0\tGPU1\tGPU2\tmlx5_0\tNIC1\tCPU Affinity\tNUMA Affinity\n"
    "GPU0\t X \tNV12\tNV12\tPXB\tSYS\t0-15\t0\nGPU1\tNV12\t X \tNV12\tPXB\tSYS\t0-15\t0\n"
    "GPU2\tNV12\tNV12\t X \tSYS\tPIX\t16-31\t1\nmlx5_0\tPXB\tPXB\tSYS\t X \tSYS\n"
    "NIC1\tSYS\tSYS\tPIX\tSYS\t X \nNIC Legend:\n  NIC1: mlx5_1\n";
static const char rocm[] =
    "==== Weight between two GPUs ====\n GPU0 GPU1 GPU2\nGPU0 0 15 30\nGPU1 15 0 15\n"
    "GPU2 30 15 0\n==== Link Type between two GPUs ====\n GPU0 GPU1 GPU2\nGPU0 0 XGMI XGMI\n"
    "GPU1 XGMI 0 XGMI\nGPU2 XGMI XGMI 0\n==== Bandwidth ====\n GPU0 GPU1 GPU2\n"
    "GPU0 N/A 50000-200000 0-0\nGPU1 50000-200000 N/A 50000-50000\nGPU2 0-0 50000-50000 N/A\n"
    "==== Numa Nodes ====\nGPU[0] : (Topology) Numa Node: 0\nGPU[1] : (Topology) Numa Node: 1\n";
static const char xml[] =
    "<!-- description: a\n source: b --><system version=\"1\"><cpu numaid=\"0\" host_hash=\"1\">"
    "<pci busid=\"0000:01:00.0\" class=\"0x0302\" link_speed=\"16 GT/s\" link_width=\"16\">"
    "<gpu sm=\"90\" rank=\"0\"><nvlink target=\"0000:02:00.0\" count=\"2\" tclass=\"0x0302\"/>"
    "<nvlink target=\"x\" count=\"3\" tclass=\"0x068000\"/><c2c bw=\"44712\" count=\"10\"/></gpu>"
    "</pci><pci busid=\"0000:02:00.0\" class=\"0x0302\"><gpu sm=\"90\" rank=\"1\">"
    "<nvlink target=\"0000:01:00.0\" count=\"2\" tclass=\"0x068001\"/></gpu></pci>"
    "<pci busid=\"0000:03:00.0\" class=\"0x0200\"><nic><net name=\"m\" speed=\"4\"/></nic></pci>"
    "</cpu><cpu numaid=\"1\" host_hash=\"2\"><nic><net name=\"e\"/></nic></cpu></system>";
static const char json[] =
    "{\"format\": \"copse-topology/1\", \"name\": \"n\", \"source\": \"s\", \"nodes\": ["
    "{\"id\": \"a\", \"type\": \"gpu\"}, {\"id\": \"b\", \"type\": \"switch\"},"
    "{\"id\": \"c\", \"type\": \"gpu\"}], \"links\": ["
    "{\"src\": \"a\", \"dst\": \"b\", \"bandwidth\": \"3/2\", \"latency\": 0.1},"
    "{\"src\": \"b\", \"dst\": \"c\", \"bandwidth\": 2}],"
    "\"routes\": [{\"path\": [\"a\", \"b\", \"c\"], \"duplex\": false}]}";
static const char synthetic[] =
    "{\"format\": \"copse-synthetic/1\", \"synthetic\": \"hosts:4 gpus:2@30 nics:2@5 clos:2/3\"}";
static const char tree[] = /* of NCCL's log */
    "a:1:2 [0] NCCL INFO === System : maxBw 48.0 totalBw 48.0 ===\n"
    "a:1:2 [0] NCCL INFO CPU/0-0 (1/1/3)\n"
    "a:1:2 [0] NCCL INFO + PCI[24.0] - GPU/0-1000 (0)\n"
    "a:1:2 [0] NCCL INFO               + NVL[48.0] - GPU/0-2000\n"
    "a:1:2 [0] NCCL INFO + PCI[24.0] - GPU/0-2000 (1)\n"
    "a:1:2 [0] NCCL INFO               + NVL[48.0] - GPU/0-1000\n"
    "a:1:2 [0] NCCL INFO + PCI[12.0] - NIC/0-3000\n"
    "a:1:2 [0] NCCL INFO               + NET[12.5] - NET/0-0 (0/1/12.500000)\n"
    "a:1:2 [0] NCCL INFO ==========================================\n";
static const char *const topologies[] = {nvidia, rocm, xml, json, synthetic, tree};

static const char slurm[] =
    "SwitchName=a Nodes=n[01-03,7]x[1-2],m LinkSpeed=3\nSwitchName=b Nodes=q # c\n"
    "SwitchName=t Switches=a,b\n";
static const char ib[] =
    "Switch\t41 \"S-a\"\t# \"one\" lid 7\n[1]\t\"H-1\"[1](1)\t# \"n1 mlx5_0\" lid 12 4xHDR\n"
    "[2]\t\"S-b\"[1]\t# \"two\" lid 9 4xNDR\nSwitch\t41 \"S-b\"\t# \"two\"\n"
    "[1]\t\"S-a\"[2]\t# \"one\" lid 7 4xNDR\nCa\t1 \"H-1\"\t# \"n1 mlx5_0\"\n"
    "[1](1)\t\"S-a\"[1]\t# lid 12 lmc 0 \"one\" lid 7 4xHDR\n";
static const char profile_text[] =
    "{\"format\": \"copse-profile/1\", \"rates\": {\"nvlink\": 2.5}, \"costs\": {\"hop_us\": 3}, "
    "\"links\": ["
    "{\"src\": \"g[0-9]*\", \"scale\": \"1/2\"}, {\"dst_type\": \"nic\", \"latency\": 3}]}";

/* A few changes of kinds that parsers stumble over. The caller frees the text. */
static char *damage(const char *text, size_t *size, uint64_t *state) {
  static const char *const bits[] = {"\"", "[", "]",          "{",    "<",     ">", "@",
                                     ":",  "-", "9999999999", "0",    "\n",    "x", "/",
                                     ",",  " ", "\t",         "GPU0", "[1-9]", "-1"};
  size_t n = strlen(text), capacity = n + 256;
  char *copy = calloc(capacity, 1);
  memcpy(copy, text, n);
  for (int i = copse_test_random_int(state, 1, 4); i > 0 && n > 0; i--) {
    size_t at = copse_test_random(state) % n;
    size_t span = 1 + copse_test_random(state) % 24;
    if (span > n - at) span = n - at;
    switch (copse_test_random_int(state, 0, 4)) {
      case 0: copy[at] = (char)copse_test_random(state); break;
      case 1: /* cut out */
        memmove(copy + at, copy + at + span, n - at - span);
        n -= span;
        break;
      case 2: /* double */
        if (n + span > capacity) break;
        memmove(copy + at + span, copy + at, n - at);
        n += span;
        break;
      case 3: n = at; break; /* cut off */
      default: {
        const char *bit = bits[copse_test_random(state) % (sizeof bits / sizeof *bits)];
        size_t m = strlen(bit);
        if (n + m > capacity) break;
        memmove(copy + at + m, copy + at, n - at);
        memcpy(copy + at, bit, m);
        n += m;
      }
    }
  }
  char *exact = malloc(n + 1); /* so that the sanitizer sees one byte too far */
  memcpy(exact, copy, n);
  free(copy);
  *size = n;
  return realloc(exact, n ? n : 1);
}

/* Too large to be worth it, though right: hosts:99999 and the like. */
static bool is_large(const struct copse_topology *t) { return t->n_links > 20000; }

static void check_round_trip(const struct copse_topology *t) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *again = NULL;
  char *text = to_json(t);
  ASSERT_OK(copse_topology_parse("again", text, strlen(text), NULL, &again, &err), &err);
  char *second = to_json(again);
  ck_assert_str_eq(text, second);
  free(text);
  free(second);
  copse_topology_free(again);
}

static void check_error(copse_status status, const struct copse_err *err) {
  if (status == COPSE_OK) return;
  ck_assert_int_ne(status, COPSE_INTERNAL);
  ck_assert_uint_gt(strlen(err->text), 0);
  ck_assert_ptr_null(strchr(err->text, '\n'));
}

enum { ROUNDS = 4000 };

START_TEST(damaged_topologies_are_read_or_refused) {
  uint64_t state = 7 + (uint64_t)_i;
  int good = 0;
  for (int round = 0; round < ROUNDS; round++) {
    size_t size = 0;
    char *text = damage(topologies[_i], &size, &state);
    const struct copse_notes notes = {take_note, NULL};
    const struct copse_topology_options options = {.links = (enum copse_link_mode)(round % 3),
                                                   .notes = &notes,
                                                   .nvlink_switch = {round % 2, 1}};
    struct copse_err err = COPSE_ERR_INIT;
    struct copse_topology *t = NULL;
    seen_notes[0] = '\0';
    copse_status status = copse_topology_parse("t", text, size, &options, &t, &err);
    ck_assert_int_eq(status == COPSE_OK, t != NULL);
    check_error(status, &err);
    good += t != NULL;
    if (t && !is_large(t)) check_round_trip(t);
    copse_topology_free(t);
    free(text);
  }
  ck_assert_int_gt(good, 0);
}
END_TEST

START_TEST(damaged_fabrics_are_read_or_refused) {
  uint64_t state = 77;
  for (int round = 0; round < 2 * ROUNDS; round++) {
    size_t size = 0;
    bool is_ib = round % 2;
    char *text = damage(is_ib ? ib : slurm, &size, &state);
    struct copse_fabric_map map = {0};
    struct copse_err err = COPSE_ERR_INIT;
    copse_status status = is_ib ? copse_read_ibnetdiscover("f", text, size, &map, &err)
                                : copse_read_slurm("f", text, size, NULL, &map, &err);
    check_error(status, &err);
    copse_fabric_map_sort(&map);
    copse_fabric_map_free(&map);
    free(text);
  }
}
END_TEST

START_TEST(damaged_profiles_are_read_or_refused) {
  uint64_t state = 777;
  for (int round = 0; round < ROUNDS; round++) {
    size_t size = 0;
    char *text = damage(profile_text, &size, &state);
    struct copse_topology_options options = {0};
    struct copse_profile *profile = NULL;
    struct copse_topology *t = NULL;
    struct copse_err err = COPSE_ERR_INIT;
    copse_status status = copse_profile_parse("p", text, size, &profile, &err);
    check_error(status, &err);
    options.profile = profile;
    if (profile) {
      status = copse_topology_parse("t", nvidia, strlen(nvidia), &options, &t, &err);
      check_error(status, &err);
    }
    copse_topology_free(t);
    copse_profile_free(profile);
    free(text);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("topology/mutations");
  TCase *all = tcase_create("mutations");
  tcase_set_timeout(all, 300);
  tcase_add_loop_test(all, damaged_topologies_are_read_or_refused, 0,
                      (int)(sizeof topologies / sizeof *topologies));
  tcase_add_test(all, damaged_fabrics_are_read_or_refused);
  tcase_add_test(all, damaged_profiles_are_read_or_refused);
  suite_add_tcase(suite, all);
  return copse_test_run(suite);
}
