/* copse rings and copse verify of its certificates, as a user's script runs them. */
#include "support/command.h"
#include "support/support.h"

#include <string.h>

#define OK(...) ck_assert_msg(copse_test_command(__VA_ARGS__) == 0, "%s", copse_test_result.err)
#define SAYS(part) \
  ck_assert_msg(strstr(copse_test_result.out, part) != NULL, "%s", copse_test_result.out)

/* Six rings of 20 GB/s use every NVLink of a DGX-1: NCCL's constants. */
START_TEST(a_certificate_is_written_and_verified) {
  OK("@ rings tests/data/nccl/dgx1-v100.topo.xml -o %%/r.json");
  SAYS("120 GB/s, busbw 120, and no set of rings has more");
  OK("@ verify %%/r.json -t tests/data/nccl/dgx1-v100.topo.xml");
  SAYS("verified, 1 host of 8 GPUs");
  SAYS("and no set of rings has more (by all orders)");
  OK("@ verify --json %%/r.json -t tests/data/nccl/dgx1-v100.topo.xml");
  SAYS("\"optimal\": true");
  ck_assert_int_eq(copse_test_command("sed 's/\"120\"/\"121\"/' %%/r.json > %%/changed.json"), 0);
  ck_assert_int_eq(
      copse_test_command("@ verify %%/changed.json -t tests/data/nccl/dgx1-v100.topo.xml"), 1);
  ck_assert_int_eq(copse_test_command("@ verify %%/r.json -t pcie-8-2s"), 1);
}
END_TEST

START_TEST(hosts_are_repeated_where_one_is_given) {
  OK("@ rings tests/data/nccl/pcie-8-2s-skl.topo.xml --hosts 2 -o %%/r.json --json");
  SAYS("\"hosts\": 2");
  SAYS("\"busbw_GBps\": 20}");
  SAYS("\"bound_busbw_GBps\": 24");
  OK("@ verify %%/r.json -t tests/data/nccl/pcie-8-2s-skl.topo.xml");
  SAYS("2 hosts of 8 GPUs");
  OK("@ rings a100-x2 --channels 8");
  SAYS("no rings are as fast as these chains");
}
END_TEST

/* Eight rails, of which one is without its first host: the others' chains must take the same seven, two
 * each; what they find alone lies otherwise. 350: seven NICs of 50 GB/s. */
START_TEST(rails_of_the_slowest_host_are_taken_by_all) {
  OK("@ rings mi300x-x4 --down h0.nic0 -o %%/r.json");
  SAYS("4 hosts of 2 kinds");
  SAYS("rings: 14 channels of 25 GB/s: 350 GB/s, busbw 350, and no set of rings has more");
  SAYS("chains: 14 channels of 12.5 GB/s: 175 GB/s");
  SAYS("at the host's place in NCCL's trees"); /* why the slower host's chains may be faster */
  OK("@ verify %%/r.json -t mi300x-x4 --down h0.nic0");
}
END_TEST

/* Products of cycles fall apart into Hamiltonian cycles, which are the optimum; most have more GPUs
 * than the dynamic programme finds an order of. */
static const struct {
  const char *rings, *verify, *busbw;
} products[] = {
    {"--synthetic torus:6x6@100", "--synthetic torus:6x6@100", "busbw 400,"},
    {"--synthetic torus:5x7@100 --channels 16", "--synthetic torus:5x7@100", "busbw 400,"},
    {"--synthetic torus:4x4x4@100", "--synthetic torus:4x4x4@100", "busbw 600,"},
    {"--synthetic torus:3x4x5@100", "--synthetic torus:3x4x5@100", "busbw 600,"},
    {"hypercube-4", "-t hypercube-4", "busbw 200,"},
    {"hypercube-6", "-t hypercube-6", "busbw 300,"},
    {"--synthetic torus:8x8@100", "--synthetic torus:8x8@100", "busbw 400,"},
    {"--synthetic torus:16x16@100", "--synthetic torus:16x16@100", "busbw 400,"}};

START_TEST(a_torus_has_rings_on_all_links) {
  OK("@ rings %s -o %%/r.json", products[_i].rings);
  SAYS(products[_i].busbw);
  SAYS("and no set of rings has more");
  OK("@ verify %%/r.json %s", products[_i].verify);
  SAYS("and no set of rings has more (by ");
}
END_TEST

/* Five links a GPU: no cycles and their reverses use all of them, but five cycles one way do, and opened
 * they are chains that have each link twice: 250 GB/s, a link of 32 below what chains could have. */
START_TEST(chains_are_a_link_short_where_links_are_odd) {
  OK("@ rings --synthetic hypercube:5@100 -o %%/r.json --json");
  SAYS("\"GBps\": \"250\", \"bound_GBps\": \"8000/31\"");
  OK("@ verify %%/r.json --synthetic hypercube:5@100");
}
END_TEST

START_TEST(hosts_that_differ_have_channels_of_their_own) {
  OK("@ rings mixed-a100-h100 -o %%/r.json --json");
  SAYS("\"GBps\": \"200\", \"bound_GBps\": \"200\", \"optimal\": true");
  SAYS("{\"hosts\": [2, 3]");
  OK("@ verify %%/r.json -t mixed-a100-h100");
  SAYS("verified, 4 hosts of 2 kinds, 32 GPUs");
  SAYS("200 GB/s, and no set of rings has more");
  /* a group's hosts, and their agreement */
  static const char *const changes[] = {"s/\\[2,3\\]/[2]/", "s/\\[2,3\\]/[1,2,3]/",
                                        "s/\\[0,1\\]/[0,2]/;s/\\[2,3\\]/[1,3]/"};
  for (int i = 0; i < 3; i++) {
    ck_assert_int_eq(copse_test_command("sed '%s' %%/r.json > %%/changed.json", changes[i]), 0);
    ck_assert_int_eq(copse_test_command("@ verify %%/changed.json -t mixed-a100-h100"), 1);
  }
}
END_TEST

START_TEST(what_makes_no_ring_is_refused) {
  static const struct {
    int status;
    const char *arguments, *said;
  } cases[] = {{2, "a100-x2 --hosts 3", "a100-x2 has 2 hosts: 3 of them are for a topology of a single host"},
               {3, "--synthetic gpus:1@10", "one GPU makes no ring"},
               {3, "hypercube-4 --hosts 2", "hypercube-4: host 0 has no NIC"},
               {3,
                "hypercube-4 --down 'gpu0>gpu1' --down 'gpu0>gpu2' --down 'gpu0>gpu4' "
                "--down 'gpu0>gpu8'",
                "hypercube-4: rank 1 (gpu1) can't be reached from rank 0 (gpu0) inside of their "
                "host: add links that lead there"},
               {2, "--synthetic switch:300@10", "for 256 at most"},
               {2, "dgx1-v100 --json -o -", "standard output"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    copse_test_command("@ rings %s", cases[i].arguments);
    copse_test_refused(cases[i].status, cases[i].said);
  }
}
END_TEST

/* Four GPUs at a switch that is marked. Its sums are no part of rings and chains, nor of the bound
 * beside them: 306.25, halfway between the GPUs of 300 and those of 312.5 GB/s. A reduce_scatter and
 * an allgather in turn have 300, which chains exceed. */
START_TEST(the_bound_beside_chains_is_of_sums_by_gpus) {
  ck_assert_int_eq(copse_test_command("@ rings docs/examples/topology.json"), 0);
  ck_assert_ptr_nonnull(strstr(copse_test_result.out,
                               "all schedules without the switches that copy and add: busbw 306.25 "
                               "at most; rings reach 98.0 % of it, chains 99.8 %"));
  ck_assert_int_eq(copse_test_command("@ audit docs/examples/topology.json --json"), 0);
  ck_assert_ptr_nonnull(strstr(copse_test_result.out, "\"bound_busbw_GBps\": 306.25"));
}
END_TEST

int main(void) {
  Suite *suite = suite_create("cli/rings");
  TCase *cases = tcase_create("rings");
  copse_test_folder();
  tcase_add_test(cases, a_certificate_is_written_and_verified);
  tcase_add_test(cases, hosts_are_repeated_where_one_is_given);
  tcase_add_test(cases, rails_of_the_slowest_host_are_taken_by_all);
  tcase_add_test(cases, hosts_that_differ_have_channels_of_their_own);
  tcase_add_loop_test(cases, a_torus_has_rings_on_all_links, 0,
                      COPSE_TEST_SWEEPS ? (int)(sizeof products / sizeof *products) : 6);
  tcase_add_test(cases, chains_are_a_link_short_where_links_are_odd);
  tcase_add_test(cases, the_bound_beside_chains_is_of_sums_by_gpus);
  tcase_add_test(cases, what_makes_no_ring_is_refused);
  suite_add_tcase(suite, cases);
  return copse_test_run(suite);
}
