/* What nvidia-smi topo -m and rocm-smi --showtopo print. */
#include "helpers.h"

static struct copse_topology *read_as(const char *text, enum copse_link_mode links,
                                      const char *gpu) {
  const struct copse_notes notes = {take_note, NULL};
  const struct copse_topology_options options = {.links = links, .notes = &notes, .gpu = gpu};
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_topology *t = NULL;
  seen_notes[0] = '\0';
  ASSERT_OK(copse_topology_parse("t", text, strlen(text), &options, &t, &err), &err);
  return t;
}

static int count_type(const struct copse_topology *t, const char *type) {
  int n = 0;
  for (int i = 0; i < t->n_nodes; i++) n += strcmp(t->nodes[i].type, type) == 0;
  return n;
}

/* ---- nvidia-smi --------------------------------------------------------------------------- */

/* A DGX A100's first half, with a prompt, the underlining and both legends. */
#define A100                                                                                     \
  "$ nvidia-smi topo -m\n"                                                                       \
  "\t\033[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID"        \
  "\033[0m\r\n"                                                                                  \
  "GPU0\t X \tNV12\tNV12\tNV12\tPXB\tSYS\t48-63,176-191\t3\t\tN/A\r\n"                           \
  "GPU1\tNV12\t X \tNV12\tNV12\tPXB\tSYS\t48-63,176-191\t3\t\tN/A\r\n"                           \
  "GPU2\tNV12\tNV12\t X \tNV12\tSYS\tPXB\t16-31,144-159\t1\t\tN/A\r\n"                           \
  "GPU3\tNV12\tNV12\tNV12\t X \tSYS\tPXB\t16-31,144-159\t1\t\tN/A\r\n"                           \
  "NIC0\tPXB\tPXB\tSYS\tSYS\t X \tSYS\t\t\t\t\r\n"                                               \
  "NIC1\tSYS\tSYS\tPXB\tPXB\tSYS\t X \t\t\t\t\r\n\r\n"                                           \
  "Legend:\r\n\r\n  X    = Self\r\n  NV#  = Connection traversing a bonded set of # NVLinks\r\n" \
  "\r\nNIC Legend:\r\n\r\n  NIC0: mlx5_0\r\n  NIC1: mlx5_4\r\n"

START_TEST(more_links_than_a_gpu_has_are_a_switch) {
  struct copse_topology *t = read_as(A100, COPSE_LINKS_ALL, "a100");
  ck_assert_int_eq(t->n_ranks, 4);
  ck_assert_int_eq(count_type(t, "nvswitch"), 1);
  ck_assert_int_eq(count_type(t, "cpu"), 2);
  ck_assert_int_eq(count_type(t, "pcie"), 2);
  ck_assert_str_eq(bandwidth(t, "gpu2", "nvswitch"), "240");
  ck_assert_str_eq(bandwidth(t, "gpu0", "gpu1"), "none");
  ck_assert_str_eq(bandwidth(t, "gpu1", "pcie0"), "24");
  ck_assert_str_eq(bandwidth(t, "nic@mlx5_0", "pcie0"), "24");
  ck_assert_str_eq(bandwidth(t, "nic@mlx5_4", "pcie1"), "24");
  ck_assert_str_eq(bandwidth(t, "pcie1", "cpu1"), "24");
  ck_assert_str_eq(bandwidth(t, "cpu1", "cpu0"), "16");
  ck_assert_ptr_nonnull(strstr(seen_notes, "for a100: 20 GB/s an NVLink, 24 GB/s a PCIe link"));
  copse_topology_free(t);
}
END_TEST

START_TEST(the_class_or_a_noted_guess_gives_the_speeds) {
  struct copse_topology *t = read_as(A100, COPSE_LINKS_NVLINK, "NVIDIA H100 80GB HBM3");
  ck_assert_str_eq(bandwidth(t, "gpu0", "nvswitch"), "1236/5"); /* 12 * 20.6 */
  copse_topology_free(t);
  t = read_as(A100, COPSE_LINKS_NVLINK, NULL);
  ck_assert_str_eq(bandwidth(t, "gpu0", "nvswitch"), "240");
  ck_assert_ptr_nonnull(strstr(seen_notes, "its GPUs are taken for a100"));
  copse_topology_free(t);
  const struct copse_topology_options options = {.gpu = "mi250"};
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_FAILS(copse_topology_parse("t", A100, strlen(A100), &options, &t, &err), COPSE_BAD_INPUT,
               &err, "\"mi250\" is no class of GPU for this file; known are p100");
}
END_TEST

/* DGX-1 with V100 and four NICs, in the older layout. */
#define DGX1                                                                                   \
  "        GPU0 GPU1 GPU2 GPU3 GPU4 GPU5 GPU6 GPU7 mlx5_0 mlx5_2 mlx5_1 mlx5_3 CPU Affinity\n" \
  "GPU0     X   NV1  NV1  NV2  NV2  SYS  SYS  SYS  PIX SYS PHB SYS 0-19,40-59\n"               \
  "GPU1    NV1   X   NV2  NV1  SYS  NV2  SYS  SYS  PIX SYS PHB SYS 0-19,40-59\n"               \
  "GPU2    NV1  NV2   X   NV2  SYS  SYS  NV1  SYS  PHB SYS PIX SYS 0-19,40-59\n"               \
  "GPU3    NV2  NV1  NV2   X   SYS  SYS  SYS  NV1  PHB SYS PIX SYS 0-19,40-59\n"               \
  "GPU4    NV2  SYS  SYS  SYS   X   NV1  NV1  NV2  SYS PIX SYS PHB 20-39,60-79\n"              \
  "GPU5    SYS  NV2  SYS  SYS  NV1   X   NV2  NV1  SYS PIX SYS PHB 20-39,60-79\n"              \
  "GPU6    SYS  SYS  NV1  SYS  NV1  NV2   X   NV2  SYS PHB SYS PIX 20-39,60-79\n"              \
  "GPU7    SYS  SYS  SYS  NV1  NV2  NV1  NV2   X   SYS PHB SYS PIX 20-39,60-79\n"

START_TEST(few_links_are_cables_and_nic_rows_may_be_missing) {
  struct copse_topology *t = read_as(DGX1, COPSE_LINKS_DEFAULT, "v100");
  ck_assert_int_eq(count_type(t, "nvswitch"), 0);
  ck_assert_str_eq(bandwidth(t, "gpu0", "gpu3"), "40");
  ck_assert_str_eq(bandwidth(t, "gpu2", "gpu6"), "20");
  ck_assert_str_eq(bandwidth(t, "gpu0", "gpu5"), "none");
  ck_assert_int_eq(count_type(t, "cpu"), 0); /* on no way to a NIC */
  ck_assert_str_eq(bandwidth(t, "gpu6", "pcie3"), "12");
  ck_assert_str_eq(bandwidth(t, "nic@mlx5_3", "pcie3"), "12");
  copse_topology_free(t);
}
END_TEST

START_TEST(pcie_alone_makes_a_tree) {
  struct copse_topology *t = read_as(
      "GPU0 GPU1 GPU2 GPU3 GPU4 CPU Affinity NUMA Affinity\n"
      "GPU0 X PIX PXB PHB SYS 0-7 0\n"
      "GPU1 PIX X PXB PHB SYS 0-7 0\n"
      "GPU2 PXB PXB X PHB SYS 0-7 0\n"
      "GPU3 PHB PHB PHB X SYS 0-7 0\n"
      "GPU4 SYS SYS SYS SYS X 8-15 1\n",
      COPSE_LINKS_DEFAULT, "a100");
  ck_assert_int_eq(t->n_nodes, 5 + 2 + 2);
  ck_assert_str_eq(bandwidth(t, "gpu0", "pcie1"), "24"); /* the inner switch of the two */
  ck_assert_str_eq(bandwidth(t, "pcie1", "pcie0"), "24");
  ck_assert_str_eq(bandwidth(t, "gpu2", "pcie0"), "24");
  ck_assert_str_eq(bandwidth(t, "pcie0", "cpu0"), "24");
  ck_assert_str_eq(bandwidth(t, "gpu3", "cpu0"), "24");
  ck_assert_str_eq(bandwidth(t, "gpu4", "cpu1"), "24");
  ck_assert_str_eq(bandwidth(t, "cpu0", "cpu1"), "16");
  copse_topology_free(t);
}
END_TEST

START_TEST(affinity_places_gpus_that_nvlink_hides) {
  struct copse_topology *t = read_as(
      "GPU0 GPU1 GPU2 CPU Affinity NUMA Affinity\n"
      "GPU0 X NV4 NV4 0-31 0\nGPU1 NV4 X NV4 0-31 0\nGPU2 NV4 NV4 X 32-63 1\n",
      COPSE_LINKS_ALL, "a100");
  ck_assert_int_eq(count_type(t, "cpu"), 2);
  ck_assert_str_eq(bandwidth(t, "gpu1", "cpu0"), "24");
  ck_assert_str_eq(bandwidth(t, "gpu2", "cpu1"), "24");
  ck_assert_str_eq(bandwidth(t, "gpu1", "gpu2"), "80");
  copse_topology_free(t);
}
END_TEST

START_TEST(affinity_unites_no_gpus_that_their_nics_show_apart) {
  struct copse_topology *t = read_as(
      "GPU0 GPU1 NIC0 NIC1 CPU Affinity NUMA Affinity\n"
      "GPU0 X NV4 PXB SYS 0-103 0\nGPU1 NV4 X SYS PXB 0-103 0\n"
      "NIC0 PXB SYS X SYS\nNIC1 SYS PXB SYS X\n",
      COPSE_LINKS_ALL, "a100");
  ck_assert_int_eq(count_type(t, "cpu"), 2);
  ck_assert_str_eq(bandwidth(t, "gpu0", "pcie0"), "24"); /* a GPU and a NIC are enough for a switch */
  ck_assert_ptr_null(strstr(seen_notes, "different CPUs"));
  copse_topology_free(t);
  t = read_as("GPU0 GPU1 GPU2\nGPU0 X PHB SYS\nGPU1 PHB X PHB\nGPU2 SYS PHB X\n", COPSE_LINKS_ALL,
              "a100");
  ck_assert_int_eq(count_type(t, "cpu"), 1);
  ck_assert_ptr_nonnull(strstr(seen_notes, "gpu0 and gpu2 (and 0 pairs more) are said to be"));
  copse_topology_free(t);
}
END_TEST

/* Two GPUs of a board with a switch: their cable carries as much. */
START_TEST(a_slice_of_two_is_a_cable) {
  struct copse_topology *t = read_as(
      "GPU0 GPU1 CPU Affinity NUMA Affinity GPU NUMA ID\n"
      "GPU0 X NV18 0-95 0-1 N/A\nGPU1 NV18 X 0-95 0-1 N/A\n",
      COPSE_LINKS_NVLINK, "h100");
  ck_assert_str_eq(bandwidth(t, "gpu0", "gpu1"), "1854/5");
  copse_topology_free(t);
}
END_TEST

static const struct {
  const char *text, *part;
} bad_nvidia[] = {
    {"GPU0 GPU1 CPU Affinity\nGPU0 X NV1 0\n", "t:2: the row of GPU1 is missing"},
    {"GPU0 GPU1\nGPU0 X\nGPU1 NV1 X\n", "t:2: the row GPU0 has 1 cells; the header has 2 columns"},
    {"GPU0 GPU1\nGPU0 X FOO\nGPU1 NV1 X\n", "t:2: \"FOO\" between GPU0 and GPU1"},
    {"GPU0 GPU1\nGPU0 NV1 X\nGPU1 NV1 X\n", "t:2: \"NV1\" between GPU0 and GPU0"},
    {"GPU0 GPU1\nGPU0 X X\nGPU1 NV1 X\n", "t:2: \"X\" between GPU0 and GPU1"},
    {"GPU0 GPU1\nGPU0 X NV1\nGPU1 NV2 X\n", "GPU1 to GPU0 isn't what GPU0 to GPU1 is"},
    {"GPU0 GPU1\nGPU0 X NV0\nGPU1 NV0 X\n", "\"NV0\" between"},
    {"GPU0 GPU1\nGPU0 X NV65\nGPU1 NV65 X\n", "\"NV65\" between"},
    {"GPU0 GPU1\nGPU0 X NV4x\nGPU1 NV4x X\n", "\"NV4x\" between"},
    {"GPU0 GPU1\nGPU0 X NV\nGPU1 NV X\n", "\"NV\" between"},
    {"GPU0 GPU1\nGPU0 X PIX\nGPU0 X PIX\n", "t:3: a second row GPU0"},
    {"GPU0 GPU0\nGPU0 X PIX\n", "the column GPU0 twice"},
    {"GPU0 NIC0\nGPU0 X NV1\n", "an NVLink to what is no GPU"},
};

START_TEST(bad_matrices_are_refused) { expect_refusal(bad_nvidia[_i].text, bad_nvidia[_i].part); }
END_TEST

/* ---- rocm-smi ------------------------------------------------------------------------------- */

#define TITLE "============================ ROCm System Management Interface =================\n"
#define WEIGHTS                                                                 \
  "======================== Weight between two GPUs ========================\n" \
  "       GPU0         GPU1         GPU2         GPU3         \n"               \
  "GPU0   0            15           15           30           \n"               \
  "GPU1   15           0            30           15           \n"               \
  "GPU2   15           30           0            15           \n"               \
  "GPU3   30           15           15           0            \n\n"
#define TYPES(between)                                                           \
  "======================= Link Type between two GPUs =======================\n" \
  "       GPU0         GPU1         GPU2         GPU3         \n"                \
  "GPU0   0            " between " " between " " between                         \
  "\n"                                                                           \
  "GPU1   " between " 0            " between " " between                         \
  "\n"                                                                           \
  "GPU2   " between " " between " 0            " between                         \
  "\n"                                                                           \
  "GPU3   " between " " between " " between " 0           \n\n"
#define NUMA                                                                       \
  "=============================== Numa Nodes =================\n"                 \
  "GPU[0]\t\t: (Topology) Numa Node: 0\nGPU[0]\t\t: (Topology) Numa Affinity: 0\n" \
  "GPU[1]\t\t: (Topology) Numa Node: 0\nGPU[2]\t\t: (Topology) Numa Node: 1\n"     \
  "GPU[3]\t\t: (Topology) Numa Node: 1\n"                                          \
  "==================== End of ROCm SMI Log ====================\n"
#define BANDWIDTHS                                                            \
  "================================= Bandwidth ===========================\n" \
  "       GPU0         GPU1         GPU2         GPU3         \n"             \
  "GPU0   N/A          50000-200000 50000-50000  0-0\n"                       \
  "GPU1   50000-200000 N/A          0-0          50000-100000\n"              \
  "GPU2   50000-50000  0-0          N/A          50000-200000\n"              \
  "GPU3   0-0          50000-100000 50000-200000 N/A\n"                       \
  "Format: min-max; Units: mps\n"                                             \
  "\"0-0\" min-max bandwidth indicates devices are not connected directly\n"

START_TEST(xgmi_cables_are_told_by_the_weight) {
  struct copse_topology *t = read_as(TITLE WEIGHTS TYPES("XGMI") NUMA, COPSE_LINKS_ALL, "mi250");
  ck_assert_str_eq(bandwidth(t, "gpu0", "gpu2"), "36");
  ck_assert_str_eq(bandwidth(t, "gpu0", "gpu3"), "none");
  ck_assert_str_eq(bandwidth(t, "gpu3", "cpu1"), "24");
  ck_assert_str_eq(bandwidth(t, "cpu0", "cpu1"), "16");
  ck_assert_ptr_nonnull(strstr(seen_notes, "taken for one (rocm-smi --shownodesbw says it)"));
  copse_topology_free(t);
}
END_TEST

START_TEST(the_bandwidth_table_tells_cables_and_how_many) {
  const char *text = TITLE WEIGHTS TYPES("XGMI") NUMA BANDWIDTHS;
  struct copse_topology *t = read_as(text, COPSE_LINKS_NVLINK, NULL);
  ck_assert_str_eq(bandwidth(t, "gpu0", "gpu1"), "200");
  ck_assert_str_eq(bandwidth(t, "gpu3", "gpu1"), "100");
  ck_assert_str_eq(bandwidth(t, "gpu1", "gpu2"), "none");
  copse_topology_free(t);
  t = read_as(text, COPSE_LINKS_NVLINK, "mi250");
  ck_assert_str_eq(bandwidth(t, "gpu0", "gpu1"), "144");
  ck_assert_str_eq(bandwidth(t, "gpu3", "gpu1"), "72");
  copse_topology_free(t);
}
END_TEST

START_TEST(pcie_gpus_of_amd_meet_at_their_cpus) {
  struct copse_topology *t = read_as(TITLE TYPES("PCIE") NUMA, COPSE_LINKS_DEFAULT, "mi210");
  ck_assert_int_eq(t->n_nodes, 6);
  ck_assert_str_eq(bandwidth(t, "gpu0", "gpu1"), "none");
  ck_assert_str_eq(bandwidth(t, "gpu0", "cpu0"), "24");
  copse_topology_free(t);
}
END_TEST

static const struct {
  const char *text, *part;
} bad_rocm[] = {
    {TITLE WEIGHTS NUMA, "no table \"Link Type between two GPUs\""},
    {TITLE TYPES("NVL"), "t:4: \"NVL\" between GPU0 and GPU1; XGMI, PCIE and 0"},
    {"== Link Type between two GPUs ==\n", "no table"},
    {"==== Link Type between two GPUs ====\nGPU0 GPU2\n", "a table's header must be GPU0 GPU1"},
    {"==== Link Type between two GPUs ====\nGPU0 GPU1\nGPU0 0\n", "t:3: a row that isn't as long"},
    {"==== Link Type between two GPUs ====\nGPU0 GPU1\nGPU2 0 XGMI\n", "a row that isn't as long"},
    {"==== Link Type between two GPUs ====\nGPU0 GPU1\nGPU0 0 XGMI\nGPU1 PCIE 0\n",
     "GPU0 to GPU1 isn't what GPU1 to GPU0 is"},
    {TITLE WEIGHTS "==== Link Type between two GPUs ====\nGPU0 GPU1\n", "different sizes"},
    {TITLE TYPES("XGMI") "GPU[4] : (Topology) Numa Node: 0\n", "the NUMA node of a GPU that"},
};

START_TEST(bad_tables_are_refused) { expect_refusal(bad_rocm[_i].text, bad_rocm[_i].part); }
END_TEST

#define N(a) (int)(sizeof(a) / sizeof *(a))
int main(void) {
  Suite *suite = suite_create("topology/matrices");
  TCase *all = tcase_create("matrices");
  tcase_add_test(all, more_links_than_a_gpu_has_are_a_switch);
  tcase_add_test(all, the_class_or_a_noted_guess_gives_the_speeds);
  tcase_add_test(all, few_links_are_cables_and_nic_rows_may_be_missing);
  tcase_add_test(all, pcie_alone_makes_a_tree);
  tcase_add_test(all, affinity_places_gpus_that_nvlink_hides);
  tcase_add_test(all, affinity_unites_no_gpus_that_their_nics_show_apart);
  tcase_add_test(all, a_slice_of_two_is_a_cable);
  tcase_add_loop_test(all, bad_matrices_are_refused, 0, N(bad_nvidia));
  tcase_add_test(all, xgmi_cables_are_told_by_the_weight);
  tcase_add_test(all, the_bandwidth_table_tells_cables_and_how_many);
  tcase_add_test(all, pcie_gpus_of_amd_meet_at_their_cpus);
  tcase_add_loop_test(all, bad_tables_are_refused, 0, N(bad_rocm));
  suite_add_tcase(suite, all);
  return copse_test_run(suite);
}
