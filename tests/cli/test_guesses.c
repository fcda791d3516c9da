/* Constants that nobody measured: which version of NCCL they are from, where NCCL reads a file
 * otherwise, bounds that rest on them, and what replaces them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/command.h"
#include "support/support.h"

#define LINK(bus, class, speed, inner)                                                   \
  "<pci busid='" bus "' class='" class "' link_speed='" speed "' link_width='16'>" inner \
                                       "</"                                              \
                                       "pci>\n"
#define GPU(bus, speed) LINK(bus, "0x030200", speed, "<gpu dev='0' sm='80'/>")
#define HOST(cpu, speed) \
  "<system version='1'>\n<cpu numaid='0' host_hash='0x1' " cpu ">\n" GPU(         \
      "0000:01:00.0", speed) GPU("0000:02:00.0", speed) "</cpu>\n<cpu numaid='1'" \
  " host_hash='0x1' " cpu ">\n" GPU("0000:03:00.0", speed) GPU("0000:04:00.0", speed) "</cpu></system>"
#define INTEL(model) "arch='x86_64' vendor='GenuineIntel' familyid='6' modelid='" model "'"
#define AMD(family) "arch='x86_64' vendor='AuthenticAMD' familyid='" family "' modelid='17'"
#define GEN4 "16.0 GT/s PCIe"

static const struct {
  const char *text, *version, *expected; /* GB/s between the CPUs */
} sockets[] = {
    {HOST(INTEL("79"), GEN4), "2.18", "6"},     {HOST(INTEL("85"), GEN4), "2.31", "10"},
    {HOST(INTEL("143"), GEN4), "2.25", "10"},   {HOST(INTEL("143"), GEN4), "2.26", "22"},
    {HOST(INTEL("173"), GEN4), "2.30.7", "22"}, {HOST(INTEL("173"), GEN4), "2.31", "40"},
    {HOST(INTEL("175"), GEN4), "2.31", "40"},   {HOST(INTEL("207"), GEN4), "2.25.1", "10"},
    {HOST(INTEL("207"), GEN4), "2.26", "40"},   {HOST(AMD("143"), GEN4), "2.31", "16"},
    {HOST(AMD("175"), GEN4), "2.30", "16"},     {HOST(AMD("175"), GEN4), "2.31", "24"},
    {HOST(AMD("25"), GEN4), "2.31", "24"},      {HOST(AMD("191"), GEN4), "2.31", "32"},
    {HOST(AMD("26"), GEN4), "2.31.2", "32"},    {HOST(AMD("191"), GEN4), "2.19", "16"},
    {HOST(AMD("191"), GEN4), "2.18.6", "5000"}, {HOST("arch='arm64'", GEN4), "2.31", "6"},
    {HOST("arch='aarch64'", GEN4), "2.31", "6"}};

START_TEST(sockets_by_processor_and_version) {
  char expected[64];
  copse_test_write("t.xml", sockets[_i].text);
  ck_assert_int_eq(
      copse_test_command("@ topo %%/t.xml --links all --nccl-version %s -o -", sockets[_i].version),
      0);
  snprintf(expected, sizeof expected, "\"dst\": \"cpu@1\", \"bandwidth\": %s, \"guess\": \"sockets\"}",
           sockets[_i].expected);
  ck_assert_msg(strstr(copse_test_result.out, expected) != NULL, "%s: %s", sockets[_i].version,
                copse_test_result.out);
}
END_TEST

START_TEST(nvlinks_by_version) {
  static const char text[] = "<system version='1'><cpu numaid='0' arch='arm64'>" LINK(
      "0000:01:00.0", "0x0302", GEN4,
      "<gpu sm='100'><nvlink target='0000:02:00.0' count='1' tclass='0x0302'/></gpu>")
      LINK("0000:02:00.0", "0x0302", GEN4,
           "<gpu sm='90'><nvlink target='0000:01:00.0' count='1' "
           "tclass='0x0302'/></gpu>") "</cpu></system>";
  static const struct {
    const char *version, *blackwell, *hopper;
  } cases[] = {{"2.31", "40.1", "20.6"},
               {"2.27.3", "40", "20.6"},
               {"2.24", "20.6", "20.6"},
               {"2.19", "20", "20"}};
  char part[100];
  copse_test_write("n.xml", text);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    copse_test_command("@ topo %%/n.xml --links nvlink --nccl-version %s -o -", cases[i].version);
    if (strcmp(cases[i].blackwell, cases[i].hopper) == 0)
      snprintf(part, sizeof part, "\"bandwidth\": %s}]", cases[i].hopper);
    else
      snprintf(part, sizeof part, "\"bandwidth\": %s, \"duplex\": false},\n", cases[i].blackwell);
    ck_assert_msg(strstr(copse_test_result.out, part) != NULL, "%s: %s", cases[i].version,
                  copse_test_result.out);
  }
}
END_TEST

START_TEST(bad_versions_are_refused) {
  static const char *const cases[][2] = {
      {"topo dgx-a100 --nccl-version 3.0", "must be a version of NCCL such as 2.31"},
      {"topo dgx-a100 --nccl-version 2", "must be a version of NCCL"},
      {"topo dgx-a100 --nccl-version 2.31.", "must be a version of NCCL"},
      {"topo dgx-a100 --nccl-version 2.31.2.1", "must be a version of NCCL"},
      {"topo dgx-a100 --nccl-version latest", "must be a version of NCCL"}};
  copse_test_all_refused(cases, sizeof cases / sizeof *cases);
}
END_TEST

static const struct {
  const char *text, *remark;
} readings[] = {
    {HOST(AMD("143"), "16.0 GT/s"),
     "link_speed=\"16.0 GT/s\" (and 3 more): NCCL takes it for Gen3, half or less"},
    {HOST(AMD("143"), "64 GT/s"), "link_speed=\"64 GT/s\" (and 3 more): NCCL takes it for Gen3"},
    {HOST(AMD("143"), "Unknown"), "(and 3 more): no speed that is known; Gen3 is assumed"},
    {HOST("arch='aarch64'", GEN4),
     "NCCL takes 5000 GB/s between CPUs where \"arm64\" has 6, as here"},
    {HOST("arch='x86_64' vendor='Somebody'", GEN4), "it has no number for arch=\"x86_64\""},
    {HOST(AMD("191"), GEN4), "as in NCCL up to 2.30; 2.31 has 32 (--nccl-version 2.31)"},
    {HOST(AMD("143"), GEN4), NULL},
    {HOST(AMD("143"), "16 GT/s"), NULL}};

START_TEST(what_nccl_reads_otherwise_is_said) {
  copse_test_write("t.xml", readings[_i].text);
  ck_assert_int_eq(copse_test_command("@ topo %%/t.xml --links all"), 0);
  if (readings[_i].remark)
    ck_assert_msg(strstr(copse_test_result.err, readings[_i].remark) != NULL, "%s",
                  copse_test_result.err);
  else
    ck_assert_str_eq(copse_test_result.err, "");
}
END_TEST

#define SKYLAKE "tests/data/nccl/pcie-8-2s-skl.topo.xml"

START_TEST(a_bound_on_a_guess_says_so) {
  ck_assert_int_eq(copse_test_command("@ solve " SKYLAKE " -c allgather --bound-only"), 0);
  ck_assert_ptr_nonnull(strstr(copse_test_result.out,
                               "the bound rests on a guess: cpu@1 -> cpu@0, 10 GB/s: NCCL's "
                               "constant for such CPUs. To measure it: sendrecv_perf"));
  ck_assert_int_eq(copse_test_command("@ solve " SKYLAKE " -c allgather --bound-only --json"), 0);
  ck_assert_ptr_nonnull(strstr(copse_test_result.out,
                               "\"guessed\": [{\"src\": \"cpu@1\", \"dst\": \"cpu@0\", "
                               "\"bandwidth_GBps\": 10, \"reason\": "));
  ck_assert_int_eq(copse_test_command("@ report " SKYLAKE " -c allgather -o %%/r.html"), 0);
  char *page = copse_test_read("r.html");
  ck_assert_ptr_nonnull(strstr(page, "<p class=\"guess\">The bound rests on a guess: cpu@1 -&gt;"));
  free(page);
}
END_TEST

START_TEST(audit_says_what_is_guessed_and_what_nccl_reads_otherwise) {
  ck_assert_int_eq(
      copse_test_command("sed 's/16.0 GT.s PCIe/16.0 GT\\/s/' " SKYLAKE " >%%/odd.xml"), 0);
  ck_assert_int_eq(copse_test_command("@ audit %%/odd.xml --json"), 0);
  ck_assert_ptr_nonnull(
      strstr(copse_test_result.out, "\"what\": \"NCCL reads a file otherwise than it is meant\""));
  ck_assert_ptr_nonnull(strstr(copse_test_result.out, "(and 15 more): NCCL takes it for Gen3"));
  ck_assert_ptr_nonnull(strstr(copse_test_result.out, "which rests on a guess: cpu@"));
  ck_assert_ptr_nonnull(strstr(copse_test_result.out, "sendrecv_perf of nccl-tests"));
  ck_assert_int_eq(copse_test_command("@ audit " SKYLAKE " --json"), 0);
  ck_assert_ptr_null(strstr(copse_test_result.out, "NCCL reads the topology file otherwise"));
}
END_TEST

/* Measured, or behind a cut without a guess, the bound says nothing of it. */
START_TEST(a_bound_without_a_guess_is_silent) {
  copse_test_write("p.json", "{\"format\": \"copse-profile/1\", \"rates\": {\"inter_cpu\": 9.5}}");
  copse_test_write("q.json",
                   "{\"format\": \"copse-profile/1\", \"links\": [{\"src_type\": \"cpu\", "
                   "\"dst_type\": \"cpu\", \"bandwidth\": 9.5}]}");
  ck_assert_int_eq(
      copse_test_command("@ solve " SKYLAKE " -c allgather --bound-only --profile %%/p.json"), 0);
  ck_assert_ptr_nonnull(strstr(copse_test_result.out, "bottleneck: "));
  ck_assert_ptr_null(strstr(copse_test_result.out, "guess"));
  copse_test_command("@ solve " SKYLAKE " -c allgather --bound-only --profile %%/q.json");
  ck_assert_ptr_null(strstr(copse_test_result.out, "guess"));
  copse_test_command("@ solve " SKYLAKE " -c alltoall --bound-only --json --ranks 0,1");
  ck_assert_ptr_null(strstr(copse_test_result.out, "guess"));
}
END_TEST

/* Parts of a cluster and of a changed topology stay guesses. */
START_TEST(guesses_go_with_links) {
  char folder[512], text[1024];
  ck_assert_ptr_nonnull(getcwd(folder, sizeof folder));
  snprintf(text, sizeof text,
           "{\"format\": \"copse-cluster/1\", \"host\": \"%s/" SKYLAKE
           "\", \"hosts\": 2, "
           "\"fabric\": {\"type\": \"flat\", \"bandwidth\": 1}}",
           folder);
  copse_test_write("c.json", text);
  ck_assert_int_eq(copse_test_command("@ solve %%/c.json -c alltoall --bound-only --ranks 0-7"), 0);
  ck_assert_ptr_nonnull(strstr(copse_test_result.out, "guess: h0.cpu@0 -> h0.cpu@1"));
  ck_assert_int_eq(copse_test_command("@ solve " SKYLAKE " -c alltoall --bound-only "
                                      "--derate 'cpu@0>cpu@1=0.5'"),
                   0);
  ck_assert_ptr_nonnull(strstr(copse_test_result.out, "guess: cpu@0 -> cpu@1"));
}
END_TEST

/* What `topo -o` writes keeps the marks, and the checksum of the file is that of what was read. */
START_TEST(guesses_stay_in_json) {
  ck_assert_int_eq(copse_test_command("@ topo " SKYLAKE " -o %%/g.json"), 0);
  char *text = copse_test_read("g.json");
  ck_assert_ptr_nonnull(
      strstr(text, "\"dst\": \"cpu@1\", \"bandwidth\": 10, \"guess\": \"sockets\"}"));
  free(text);
  ck_assert_int_eq(
      copse_test_command("@ topo %%/g.json -o %%/again.json && cmp %%/g.json %%/again.json"), 0);
  ck_assert_int_eq(copse_test_command("@ solve %%/g.json -c allgather -o %%/s.json"), 0);
  ck_assert_ptr_nonnull(
      strstr(copse_test_result.out, "the bound rests on a guess: cpu@1 -> cpu@0, 10 GB/s: NCCL's"));
  ck_assert_int_eq(copse_test_command("@ verify %%/s.json -t " SKYLAKE), 0);
  ck_assert_ptr_null(strstr(copse_test_result.err, "other"));
  ck_assert_int_eq(copse_test_command("sed s/sockets/nobody/ %%/g.json >%%/bad.json"), 0);
  ck_assert_int_eq(copse_test_command("@ topo %%/bad.json"), 2);
  ck_assert_ptr_nonnull(strstr(copse_test_result.err, "\"guess\" is \"nobody\": give \"sockets\""));
}
END_TEST

START_TEST(trays_of_one_domain_are_solved) {
  ck_assert_int_eq(copse_test_command("@ topo tests/data/nccl/gb200-mnnvl-2trays.topo.xml"), 0);
  ck_assert_ptr_nonnull(strstr(copse_test_result.out, "1 nvswitch"));
  ck_assert_int_eq(copse_test_command("@ solve tests/data/nccl/gb200-mnnvl-2trays.topo.xml -c "
                                      "allgather --links nvlink --exact -o %%/m.json"),
                   0);
  /* 7 of 8 shards into each GPU over 18 links of 40.1 */
  ck_assert_ptr_nonnull(strstr(copse_test_result.out, "35/28872 s/GB"));
  ck_assert_int_eq(copse_test_command("@ verify %%/m.json --links nvlink -t "
                                      "tests/data/nccl/gb200-mnnvl-2trays.topo.xml"),
                   0);
}
END_TEST

START_TEST(a_domain_of_72) {
  const char *path = COPSE_TEST_OUTSIDE "/nccl/data/gb200-nvl72.topo.xml";
  if (access(path, R_OK) != 0) COPSE_SKIP("no %s", path);
  ck_assert_int_eq(
      copse_test_command("@ solve %s -c allgather --links nvlink --exact -o %%/m.json", path), 0);
  ck_assert_ptr_nonnull(strstr(copse_test_result.out, "355/259848 s/GB")); /* 71/72 / 721.8 */
  ck_assert_int_eq(copse_test_command("@ verify %%/m.json --links nvlink -t %s", path), 0);
}
END_TEST

START_TEST(a_matrix_guesses_its_class) {
  copse_test_write("m.txt", "GPU0 GPU1\nGPU0 X NV4\nGPU1 NV4 X\n");
  ck_assert_int_eq(copse_test_command("@ solve %%/m.txt -c allgather --bound-only"), 0);
  ck_assert_ptr_nonnull(strstr(copse_test_result.out, "guess: gpu1 -> gpu0, "));
  ck_assert_ptr_nonnull(strstr(copse_test_result.out, "the usual one of hosts with such GPUs"));
  copse_test_command("@ solve %%/m.txt -c allgather --bound-only --gpu a100");
  ck_assert_ptr_null(strstr(copse_test_result.out, "guess"));
}
END_TEST

int main(void) {
  Suite *suite = suite_create("cli/guesses");
  TCase *all = tcase_create("guesses");
  copse_test_folder();
  tcase_set_timeout(all, 120);
  tcase_add_loop_test(all, sockets_by_processor_and_version, 0,
                      (int)(sizeof sockets / sizeof *sockets));
  tcase_add_test(all, nvlinks_by_version);
  tcase_add_test(all, bad_versions_are_refused);
  tcase_add_loop_test(all, what_nccl_reads_otherwise_is_said, 0,
                      (int)(sizeof readings / sizeof *readings));
  tcase_add_test(all, a_bound_on_a_guess_says_so);
  tcase_add_test(all, audit_says_what_is_guessed_and_what_nccl_reads_otherwise);
  tcase_add_test(all, a_bound_without_a_guess_is_silent);
  tcase_add_test(all, guesses_go_with_links);
  tcase_add_test(all, guesses_stay_in_json);
  tcase_add_test(all, trays_of_one_domain_are_solved);
  tcase_add_test(all, a_domain_of_72);
  tcase_add_test(all, a_matrix_guesses_its_class);
  suite_add_tcase(suite, all);
  return copse_test_run(suite);
}
