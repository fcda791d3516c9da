/* Bandwidth profiles: measured numbers over nominal ones. */
#include "helpers.h"
#include "topology/input/profile.h"

#define PROFILE(rest) "{\"format\": \"copse-profile/1\", \"source\": \"a test\", " rest "}"
#define XML                                                                                    \
  "<system version=\"1\"><cpu numaid=\"0\" arch=\"x86_64\" vendor=\"AuthenticAMD\">"           \
  "<pci busid=\"0000:01:00.0\" class=\"0x0302\" link_speed=\"16 GT/s\" link_width=\"16\">"     \
  "<gpu sm=\"80\"><nvlink target=\"0000:02:00.0\" count=\"2\" tclass=\"0x0302\"/></gpu></pci>" \
  "<pci busid=\"0000:02:00.0\" class=\"0x0302\" link_speed=\"16 GT/s\" link_width=\"16\">"     \
  "<gpu sm=\"80\"><nvlink target=\"0000:01:00.0\" count=\"2\" tclass=\"0x0302\"/></gpu></pci>" \
  "<pci busid=\"0000:03:00.0\" class=\"0x0200\" link_speed=\"16 GT/s\" link_width=\"16\">"     \
  "<nic><net name=\"m\" speed=\"200000\"/></nic></pci></cpu>"                                  \
  "<cpu numaid=\"1\" arch=\"x86_64\" vendor=\"AuthenticAMD\"/></system>"

static struct copse_topology *read_with(const char *profile_text, const char *text) {
  const struct copse_notes notes = {take_note, NULL};
  /* of topology JSON a remark would say that it has no effect */
  const enum copse_link_mode links = text[0] == '{' ? COPSE_LINKS_DEFAULT : COPSE_LINKS_ALL;
  struct copse_topology_options options = {.links = links, .notes = &notes};
  struct copse_profile *profile = NULL;
  struct copse_topology *t = NULL;
  struct copse_err err = COPSE_ERR_INIT;
  seen_notes[0] = '\0';
  ASSERT_OK(copse_profile_parse("p", profile_text, strlen(profile_text), &profile, &err), &err);
  options.profile = profile;
  ASSERT_OK(copse_topology_parse("t", text, strlen(text), &options, &t, &err), &err);
  copse_profile_free(profile);
  return t;
}

START_TEST(rates_replace_the_constants_of_xml) {
  struct copse_topology *t =
      read_with(PROFILE("\"rates\": {\"nvlink\": 22.5, \"pcie\": 21, \"inter_cpu\": 13,"
                        " \"net\": \"49/2\"}"),
                XML);
  ck_assert_str_eq(bandwidth(t, "gpu@0000:01:00.0", "gpu@0000:02:00.0"), "45");
  ck_assert_str_eq(bandwidth(t, "gpu@0000:01:00.0", "cpu@0"), "21");
  ck_assert_str_eq(bandwidth(t, "cpu@1", "cpu@0"), "13");
  ck_assert_str_eq(bandwidth(t, "nic@0000:03:00.0", "net@m"), "49/2");
  copse_topology_free(t);
}
END_TEST

START_TEST(rates_replace_the_constants_of_matrices) {
  struct copse_topology *t =
      read_with(PROFILE("\"rates\": {\"nvlink\": 23}"), "GPU0 GPU1\nGPU0 X NV4\nGPU1 NV4 X\n");
  ck_assert_str_eq(bandwidth(t, "gpu0", "gpu1"), "92");
  ck_assert_ptr_nonnull(strstr(seen_notes, "taken for v100 and the profile: 23 GB/s an NVLink"));
  copse_topology_free(t);
}
END_TEST

#define STAR                                                                                    \
  "{\"format\": \"copse-topology/1\", \"name\": \"star\", \"description\": \"d\", \"nodes\": [" \
  "{\"id\": \"g0\", \"type\": \"gpu\"}, {\"id\": \"g1\", \"type\": \"gpu\"},"                   \
  "{\"id\": \"sw\", \"type\": \"switch\", \"multicast\": true}], \"links\": ["                  \
  "{\"src\": \"g0\", \"dst\": \"sw\", \"bandwidth\": 100},"                                     \
  "{\"src\": \"g1\", \"dst\": \"sw\", \"bandwidth\": 100, \"latency\": 1}]}"

START_TEST(the_last_rule_that_matches_counts) {
  struct copse_topology *t = read_with(
      PROFILE("\"links\": [{\"src_type\": \"gpu\", \"dst_type\": \"switch\", \"scale\": 0.9},"
              " {\"src\": \"g[1-9]\", \"bandwidth\": \"85/2\", \"latency\": 2.5}]"),
      STAR);
  ck_assert_str_eq(bandwidth(t, "g0", "sw"), "90");
  ck_assert_str_eq(bandwidth(t, "sw", "g0"), "90");
  ck_assert_str_eq(bandwidth(t, "g1", "sw"), "85/2");
  ck_assert_str_eq(bandwidth(t, "sw", "g1"), "85/2");
  ck_assert_int_eq(t->links[2].latency.num, 5);
  ck_assert(t->nodes[2].multicast);
  ck_assert_str_eq(t->name, "star");
  ck_assert_str_eq(t->description, "d");
  ck_assert_str_eq(seen_notes, "");
  copse_topology_free(t);
}
END_TEST

START_TEST(one_direction_can_be_meant) {
  struct copse_topology *t =
      read_with(PROFILE("\"links\": [{\"src\": \"g0\", \"dst\": \"*\", \"bandwidth\": 80,"
                        " \"duplex\": false},\n {\"src\": \"h*\", \"scale\": 2}]"),
                STAR);
  ck_assert_str_eq(bandwidth(t, "g0", "sw"), "80");
  ck_assert_str_eq(bandwidth(t, "sw", "g0"), "100");
  ck_assert_ptr_nonnull(strstr(seen_notes, "p:2: the rule changes no link of star"));
  copse_topology_free(t);
}
END_TEST

START_TEST(rules_are_for_the_whole_of_a_cluster) {
  const char *folder = temp_folder();
  temp_file(folder, "host.json",
            "{\"format\": \"copse-synthetic/1\", \"synthetic\": \"gpus:1@100 nics:1@25\"}");
  const char *path = temp_file(folder, "c.json",
                               "{\"format\": \"copse-cluster/1\", \"host\": \"host.json\","
                               " \"hosts\": 2, \"fabric\": {\"type\": \"flat\","
                               " \"bandwidth\": 25}}");
  const char *text = PROFILE("\"links\": [{\"src\": \"*nic0\", \"scale\": \"1/2\"}]");
  struct copse_profile *profile = NULL;
  struct copse_topology *t = NULL;
  struct copse_err err = COPSE_ERR_INIT;
  ASSERT_OK(copse_profile_parse("p", text, strlen(text), &profile, &err), &err);
  const struct copse_topology_options options = {.profile = profile};
  ASSERT_OK(copse_topology_load(path, &options, &t, &err), &err);
  ck_assert_str_eq(bandwidth(t, "h1.nic0", "fabric"), "25/2");
  ck_assert_str_eq(bandwidth(t, "h1.nic0", "h1.gpu0"), "25/2"); /* once, not twice */
  copse_topology_free(t);
  copse_profile_free(profile);
  remove_folder(folder);
}
END_TEST

static const struct {
  const char *text, *part;
} refusals[] = {
    {"", "p"},
    {"{\"format\": \"copse-topology/1\"}", "this version reads \"copse-profile/1\""},
    {PROFILE("\"rate\": {}"), "unknown key \"rate\""},
    {PROFILE("\"rates\": {\"nvlnk\": 3}"), "unknown key \"nvlnk\""},
    {PROFILE("\"rates\": {\"nvlink\": 0}"), "\"nvlink\" must be positive"},
    {PROFILE("\"rates\": 7"), "must be an object"},
    {PROFILE("\"links\": {}"), "\"links\" must be an array"},
    {PROFILE("\"links\": [\n{\"src\": \"a\"}]"), "p:2: a rule without"},
    {PROFILE("\"links\": [{\"scale\": 2, \"bandwidth\": 3}]"), "both \"bandwidth\" and \"scale\""},
    {PROFILE("\"links\": [{\"scale\": -2}]"), "\"scale\" must be positive"},
    {PROFILE("\"links\": [{\"latency\": -2}]"), "\"latency\" must not be negative"},
    {PROFILE("\"costs\": {\"alpha\": 2}"), "unknown key \"alpha\""},
    {PROFILE("\"costs\": {\"hop_us\": -2}"), "\"hop_us\" must not be negative"},
    {PROFILE("\"costs\": {\"reduce_GBps\": 0}"), "\"reduce_GBps\" must be positive"},
    {PROFILE("\"costs\": {\"duplex\": 0.5}"), "\"duplex\" must be at least 1"},
};

START_TEST(costs_are_given_or_not) {
  const char *text = PROFILE("\"costs\": {\"hop_us\": 0, \"message_us\": \"1/4\"}");
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_profile *profile = NULL;
  ASSERT_OK(copse_profile_parse("p", text, strlen(text), &profile, &err), &err);
  ck_assert_int_eq(copse_profile_cost(profile, COPSE_COST_HOP).num, 0);
  ck_assert_int_eq(copse_profile_cost(profile, COPSE_COST_MESSAGE).den, 4);
  ck_assert_int_lt(copse_profile_cost(profile, COPSE_COST_REDUCE).num, 0);
  ck_assert_int_lt(copse_profile_cost(profile, COPSE_COST_DUPLEX).num, 0);
  copse_profile_free(profile);
}
END_TEST

START_TEST(bad_profiles_are_refused) {
  struct copse_err err = COPSE_ERR_INIT;
  struct copse_profile *profile = NULL;
  const char *text = refusals[_i].text;
  ASSERT_FAILS(copse_profile_parse("p", text, strlen(text), &profile, &err), COPSE_BAD_INPUT, &err,
               refusals[_i].part);
  ck_assert_ptr_null(profile);
}
END_TEST

/* Two GPUs on an NVSwitch and on PCIe; measured as in tests/data/nccl/nvbandwidth-2.txt. */
#define GPU(bus)                                                                        \
  "<pci busid=\"" bus                                                                   \
  "\" class=\"0x0302\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"><gpu sm=\"90\">" \
  "<nvlink target=\"0000:05:00.0\" count=\"18\" tclass=\"0x068000\"/></gpu></pci>"
static const char switched[] =
    "<system version=\"1\"><cpu numaid=\"0\" arch=\"x86_64\" vendor=\"AuthenticAMD\">" GPU(
        "0000:1b:00.0") GPU("0000:43:00.0") "</cpu></system>";

START_TEST(nvbandwidth_is_a_profile) {
  struct copse_err err = COPSE_ERR_INIT;
  COPSE_AT_END(copse_free_at) char *text = NULL;
  size_t size = 0;
  ASSERT_OK(copse_file_read(copse_test_data("nccl/nvbandwidth-2.txt"), &text, &size, &err), &err);
  struct copse_topology *t = read_with(text, switched);
  /* from 0 to 1 392.5 ("read" has it at row 1), back 393.75: the less of both ways */
  ck_assert_str_eq(bandwidth(t, "gpu@0000:1b:00.0", "nvswitch"), "785/2");
  ck_assert_str_eq(bandwidth(t, "nvswitch", "gpu@0000:43:00.0"), "785/2");
  ck_assert_str_eq(bandwidth(t, "gpu@0000:1b:00.0", "cpu@0"), "109/2");   /* 55.02 and 54.5 */
  ck_assert_str_eq(bandwidth(t, "cpu@0", "gpu@0000:43:00.0"), "2749/50"); /* 54.98 and 55.25 */
  ck_assert_ptr_nonnull(strstr(seen_notes, "nvbandwidth measured 8 of the 8 links of t"));
  copse_topology_free(t);
  t = read_with(text, XML); /* other bus ids */
  ck_assert_str_eq(bandwidth(t, "gpu@0000:01:00.0", "gpu@0000:02:00.0"), "40");
  ck_assert_ptr_nonnull(strstr(seen_notes, "measured 0 of the 12 links of t; GPUs go by bus id"));
  copse_topology_free(t);
  t = read_with(text, "GPU0 GPU1\nGPU0 X NV4\nGPU1 NV4 X\n"); /* no bus ids: by number */
  ck_assert_str_eq(bandwidth(t, "gpu0", "gpu1"), "785/2");
  ck_assert_str_eq(bandwidth(t, "gpu1", "gpu0"), "1575/4");
  copse_topology_free(t);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("topology/profile");
  TCase *all = tcase_create("profile");
  tcase_add_test(all, rates_replace_the_constants_of_xml);
  tcase_add_test(all, rates_replace_the_constants_of_matrices);
  tcase_add_test(all, the_last_rule_that_matches_counts);
  tcase_add_test(all, one_direction_can_be_meant);
  tcase_add_test(all, rules_are_for_the_whole_of_a_cluster);
  tcase_add_test(all, costs_are_given_or_not);
  tcase_add_loop_test(all, bad_profiles_are_refused, 0, (int)(sizeof refusals / sizeof *refusals));
  tcase_add_test(all, nvbandwidth_is_a_profile);
  suite_add_tcase(suite, all);
  return copse_test_run(suite);
}
