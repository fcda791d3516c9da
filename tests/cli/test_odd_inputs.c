/* Inputs that only a mistake or an enemy makes, and options that would be heeded by nobody. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/command.h"
#include "support/support.h"

#define run copse_test_command
#define result copse_test_result
#define FABRIC "--synthetic 'gpus:4@100'"

/* ---- MSCCL++ ------------------------------------------------------------------------------ */

/* Arrays where objects belong: their items have no names. */
START_TEST(arrays_for_objects_are_refused) {
  static const char *const gpus[] = {
      "[[1]]", "[{\"id\": 0, \"threadblocks\": [[]]}]",
      "[{\"id\": 0, \"threadblocks\": [{\"id\": 0, \"ops\": [[\"x\"]]}]}]"};
  for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++) {
    char text[400];
    snprintf(text, sizeof text,
             "{\"name\": \"x\", \"collective\": \"allreduce\", \"protocol\": \"Simple\", "
             "\"inplace\": true, \"gpus\": %s}",
             gpus[i]);
    copse_test_write("arrays.json", text);
    run("@ check %%/arrays.json");
    copse_test_refused(2, "arrays.json");
    run("@ simulate %%/arrays.json " FABRIC);
    copse_test_refused(2, "arrays.json");
  }
}
END_TEST

/* What a lowered program's first operation becomes, in place of it. */
static void write_with_first_op(const char *op) {
  ck_assert_int_eq(run("@ solve " FABRIC " -c allgather -o %%/s.json"), 0);
  ck_assert_int_eq(run("@ lower %%/s.json --to mscclpp -o %%/good.json"), 0);
  ck_assert_int_eq(run("@ check %%/good.json"), 0);
  char *good = copse_test_read("good.json"), *at = strstr(good, "\"ops\"");
  ck_assert_ptr_nonnull(at);
  at = strchr(at, '[') + 1;
  char *rest = at + strspn(at, " \n");
  size_t size = strlen(good) + strlen(op) + 2;
  char *bad = malloc(size);
  snprintf(bad, size, "%.*s%s,%s", (int)(at - good), good, op, rest);
  copse_test_write("bad.json", bad);
  free(bad);
  free(good);
}

/* Channels of an operation on semaphores: there are as many channels, and no semaphore. */
START_TEST(channels_are_no_semaphores) {
  static const char *const names[] = {"sem_acquire", "sem_release"};
  char op[200];
  snprintf(op, sizeof op, "{\"name\": \"%s\", \"channel_type\": \"memory\", \"channel_ids\": [2]}",
           names[_i]);
  write_with_first_op(op);
  ck_assert_msg(run("@ check %%/bad.json") == 0, "%d: %s", result.status, result.err);
}
END_TEST

/* A part of a part of 2^16 chunks: more than fits into 32 bits. */
START_TEST(parts_of_many_chunks_are_counted_right) {
  copse_test_write(
      "many.json",
      "{\"name\": \"x\", \"collective\": \"allreduce\", \"protocol\": \"Simple\", \"inplace\": "
      "false, "
      "\"num_threads_per_block\": 1024, \"use_double_scratch_buffer\": false, "
      "\"buffer_alignment\": "
      "16, \"min_message_size\": 0, \"max_message_size\": 1048576, \"reuse_resources\": false, "
      "\"gpus\": [{\"id\": 0, \"input_chunks\": 65536, \"output_chunks\": 65536, "
      "\"scratch_chunks\": "
      "0, \"channels\": [], \"remote_buffers\": [], \"semaphores\": [], \"threadblocks\": "
      "[{\"id\": 0, "
      "\"channels\": [], \"remote_buffer_refs\": [], \"ops\": [{\"name\": \"pipeline\", "
      "\"iter_context\": {\"unit_size\": 1, \"num_chunks\": 65536}, \"ops\": [{\"name\": \"copy\", "
      "\"src_buff\": [{\"type\": \"i\", \"index\": 0, \"size\": 65536}], \"dst_buff\": [{\"type\": "
      "\"o\", \"index\": 0, \"size\": 65536}]}]}]}]}]}");
  ck_assert_msg(run("timeout 60 @ check %%/many.json") == 0, "%d: %s", result.status, result.err);
  ck_assert_ptr_nonnull(strstr(result.out, "proved for 1 rank,"));
}
END_TEST

/* ---- XML ----------------------------------------------------------------------------------- */

/* libxml2 compares each attribute with all others, so a tag must be short; what hides its end, or
 * its start, doesn't help. */
START_TEST(a_tag_with_endless_attributes_is_refused_at_once) {
  static const char *const before[] = {"<system ", "<system x='>' ", "<?x <!--?><system ",
                                       "<!-- \" --><system y=\"'>\" "};
  copse_test_write("start", before[_i]);
  run("(cat %%/start; awk 'BEGIN { for (i = 0; i < 200000; i++) printf \"a%%d=\\\"1\\\" \", i; "
      "print "
      "\"/>\" }') >%%/many.xml; timeout 20 @ topo %%/many.xml");
  copse_test_refused(2, "64 KiB");
}
END_TEST

/* A '<' in a comment, in text of its own kind and in instructions begins no tag. */
START_TEST(long_comments_and_the_like_are_no_tags) {
  ck_assert_int_eq(
      run("{ printf '<?xml version=\"1.0\"?><!-- <a \"'; head -c 100000 /dev/zero | tr '\\0' x; "
          "printf -- '--><system version=\"1\"><?p <'; head -c 100000 /dev/zero | tr '\\0' x; "
          "printf "
          "'?><cpu numaid=\"0\"><![CDATA[<'; head -c 100000 /dev/zero | tr '\\0' x; printf "
          "']]></cpu></system>'; } >%%/long.xml; @ topo %%/long.xml"),
      2);
  ck_assert_ptr_null(strstr(result.err, "64 KiB"));
}
END_TEST

/* ---- files ---------------------------------------------------------------------------------- */

START_TEST(a_schedule_is_verified_from_a_pipe) {
  ck_assert_int_eq(run("@ solve " FABRIC " -c allgather -o %%/s.json"), 0);
  ck_assert_int_eq(run("cat %%/s.json | @ verify /dev/stdin " FABRIC), 0);
}
END_TEST

START_TEST(what_cannot_be_lowered_is_said_of_its_file) {
  ck_assert_int_eq(run("@ solve " FABRIC " -c allreduce -o %%/r.json"), 0);
  run("@ lower %%/r.json --to msccl --protocol LL --chunks 4 --min-bytes 1000G -o %%/r.xml");
  copse_test_refused(2, "r.json: the executors run this program with messages of at most");
  ck_assert(!copse_test_exists("r.xml"));
}
END_TEST

/* A set of plans without some of them is none. */
START_TEST(plans_that_fail_leave_nothing) {
  run("@ plans --search 0.05 " FABRIC " -c allgather -c allreduce -w 1 -o %%/half");
  copse_test_refused(2,
                     "the number of workers must be from 2 to 1024: both phases of an allreduce");
  ck_assert_int_eq(run("ls %%/half | grep -c ."), 1); /* grep finds none */
}
END_TEST

/* Wherever a folder of plans is read; nobody takes it for another fabric's, or for other sizes. */
START_TEST(an_index_that_is_none_of_its_plans_is_refused) {
  static const char *const edits[][2] = {
      {"s/\"plan\": \"allgather-1.plan\"/\"plan\": 5/", "\"plan\" must be a string"},
      {"s/\"min_bytes\": 0/\"min_bytes\": -1/", "index.json:3: a range: \"min_bytes\" must be"},
      {"3s/\"max_bytes\": [0-9]*/\"max_bytes\": 0/",
       "index.json:3: \"max_bytes\" is not that of all"},
      {"3s/\"max_bytes\": [0-9]*/&00000000000000000000/", "\"max_bytes\" must be an integer"},
      {"3s/allgather/allreduce/", "index.json:3: \"collective\" is not that of"},
      {"s/\"nranks\": 4/\"nranks\": 5/", "\"nranks\" is not that of"},
      {"1s/\"topology\": \"/&x/", "\"topology\" is not that of"},
      {"3s/\"min/\"root\": 1, &/", "\"root\" is not that of"},
      {"0,/\"us\": [0-9.]*/s//\"us\": -5/", "\"us\" must be a number from 0"},
      {"s/allgather-2.plan/allgather-1.plan/", "names allgather-1.plan, which has a range already"},
      {"s/\"ranges\": .*/\"ranges\": []}/;3,$d", "\"ranges\" is empty"},
      {"s/copse-plans/copse-planz/", "unknown \"format\""},
      {"1,$d", "empty, where JSON was expected"}};
  ck_assert_int_eq(run("@ plans " FABRIC " -c allgather --search 0 -o %%/set"), 0);
  ck_assert_int_eq(run("cp %%/set/index.json %%/good.json; ls %%/set/allgather-2.plan"), 0);
  ck_assert_int_eq(run("@ simulate %%/set " FABRIC " -b 1M -e 1M"), 0);
  for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
    ck_assert_int_eq(run("sed '%s' %%/good.json >%%/set/index.json", edits[i][0]), 0);
    run(i % 2 ? "@ plans " FABRIC " --search 0 --from %%/set -o %%/new"
              : "@ simulate %%/set " FABRIC);
    copse_test_refused(2, edits[i][1]);
    copse_test_refused(2, "; make the plans again, or remove this file");
  }
  for (size_t i = 0; i < 2; i++) {
    ck_assert_int_eq(run("head -c 200000 /dev/zero | tr '\\0' '[' >%%/set/index.json"), 0);
    run(i ? "@ plans " FABRIC " --search 0 --from %%/set -o %%/new" : "@ simulate %%/set " FABRIC);
    copse_test_refused(2, "index.json:1: nested more than 64 levels deep");
  }
  ck_assert(!copse_test_exists("new"));
  ck_assert_int_eq(run("rm %%/set/index.json; @ simulate %%/set " FABRIC " -b 1M -e 1M"), 0);
}
END_TEST

/* What is said to fit does so; that others may is said where they are looked for. */
START_TEST(workers_that_fit_are_those_of_the_schedule) {
  const char *const lower = "@ lower %%/m.json -t mixed-a100-h100 --to msccl -o %%/m.xml";
  char line[200];
  ck_assert_int_eq(run("@ solve mixed-a100-h100 -c reduce_scatter -o %%/m.json"), 0);
  snprintf(line, sizeof line, "%s -w 4 --chunks 3", lower);
  run(line);
  copse_test_refused(2,
                     "--workers 13 fits this schedule as it is; others may fit fewer, above all");
  snprintf(line, sizeof line, "%s -w 13 --chunks 3", lower);
  ck_assert_int_eq(run(line), 0);
  snprintf(line, sizeof line, "%s -w 4", lower);
  ck_assert_int_eq(run(line), 0);
}
END_TEST

START_TEST(an_underline_that_copying_left_is_no_json) {
  copse_test_write("pasted.txt",
                   "[4mGPU0\tGPU1\tCPU Affinity\tNUMA Affinity[0m\n"
                   "GPU0\t X \tNV12\t0-1\t0\nGPU1\tNV12\t X \t0-1\t0\n");
  ck_assert_int_eq(run("@ topo %%/pasted.txt --gpu a100"), 0);
  ck_assert_ptr_nonnull(strstr(result.out, "2 ranks"));
  copse_test_write("list.json", "[4]");
  run("@ topo %%/list.json");
  copse_test_refused(2, "list.json");
}
END_TEST

/* Which inputs have a use for which of the readers' options; the others are named. */
START_TEST(options_without_effect_are_told) {
  static const struct {
    const char *args, *note; /* NULL: none */
  } cases[] = {
      {FABRIC " --links all", "--links has no effect on a synthetic line"},
      {FABRIC " --nvlink-switch 240", "--nvlink-switch has no effect on a synthetic line"},
      {FABRIC " --gpu a100", "--gpu has no effect on a synthetic line"},
      {FABRIC " --links default", NULL},
      {"%/t.json --links nvlink", "t.json: --links has no effect on topology JSON"},
      {"%/t.json --gpu h100", "t.json: --gpu has no effect on topology JSON"},
      {"dgx-a100 --gpu h100", "dgx-a100.xml: --gpu has no effect on XML"},
      {"dgx-a100 --links all", NULL},
      {"%/m.txt --nvlink-switch 240", "m.txt: --nvlink-switch has no effect on a matrix"},
      {"%/m.txt --gpu a100 --links all", NULL},
  };
  copse_test_write("m.txt",
                   "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\n"
                   "GPU0\t X \tNV12\t0-1\t0\nGPU1\tNV12\t X \t0-1\t0\n");
  ck_assert_int_eq(run("@ topo " FABRIC " -o %%/t.json"), 0);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ck_assert_msg(run("@ topo %s", cases[i].args) == 0, "%s: %s", cases[i].args, result.err);
    const char *at = strstr(result.err, cases[i].note ? cases[i].note : "no effect");
    ck_assert_msg((at != NULL) == (cases[i].note != NULL), "%s: %s", cases[i].args, result.err);
    ck_assert_msg(!at || !strstr(at + strlen(cases[i].note), "no effect"), "%s: %s", cases[i].args,
                  result.err);
  }
}
END_TEST

/* A flow of no paths between a pair that sends nothing is a valid way to say so. */
START_TEST(flows_of_nothing_are_lowered) {
  copse_test_write("demand.json", "{\"format\": \"copse-demand/1\", \"bytes\": [[0, 8], [0, 0]]}");
  ck_assert_int_eq(
      run("@ solve --synthetic gpus:2@100 -c alltoall --demand %%/demand.json -o %%/f.json"), 0);
  char *text = copse_test_read("f.json"), *flows = strstr(text, "\"flows\"");
  ck_assert_ptr_nonnull(flows);
  size_t to = (size_t)(strchr(flows, '[') + 1 - text), size = strlen(text) + 100;
  char *more = malloc(size);
  snprintf(more, size, "%.*s{\"src\": 1, \"dst\": 0, \"paths\": []},%s", (int)to, text, text + to);
  copse_test_write("none.json", more);
  ck_assert_int_eq(run("@ verify %%/none.json --synthetic gpus:2@100"), 0);
  ck_assert_int_eq(run("@ lower %%/none.json --to plan -o %%/none.plan && @ check %%/none.plan"),
                   0);
  free(more);
  free(text);
}
END_TEST

/* One rank has nothing to send, on whatever routes. */
START_TEST(a_single_rank_has_every_schedule) {
  static const char *const ways[] = {"-c allreduce", "-c allgather --routes fabric",
                                     "-c allreduce --routes fabric", "-c broadcast -r 0",
                                     "-c alltoall"};
  copse_test_write("one.json",
                   "{\"format\": \"copse-topology/1\", \"name\": \"one\", \"nodes\": "
                   "[{\"id\": \"a\", \"type\": \"gpu\"}], \"links\": []}");
  ck_assert_msg(run("@ solve %%/one.json %s -o %%/s.json", ways[_i]) == 0, "%s", result.err);
  ck_assert_msg(run("@ verify %%/s.json -t %%/one.json") == 0, "%s", result.err);
}
END_TEST

/* ---- gzip --------------------------------------------------------------------------------- */

/* Written by the name, read by the content, of one member or several, as gzip itself does. */
START_TEST(gzip_goes_in_and_out) {
  ck_assert_int_eq(run("@ topo " FABRIC " -o %%/t.json.gz"), 0);
  ck_assert_int_eq(
      run("@ topo " FABRIC " -o %%/t.json && gunzip -c %%/t.json.gz | cmp - %%/t.json"), 0);
  ck_assert_int_eq(run("@ topo " FABRIC " -o %%/again.gz && cmp %%/again.gz %%/t.json.gz"), 0);
  ck_assert_int_eq(run("@ solve %%/t.json.gz -c allgather -o %%/s.json.gz"), 0);
  ck_assert_int_eq(run("@ verify %%/s.json.gz -t %%/t.json"), 0);
  ck_assert_int_eq(run("cat %%/s.json.gz | @ verify - -t %%/t.json.gz"), 0);
  ck_assert_int_eq(run("@ expand %%/s.json.gz -o %%/s.json && gunzip -c %%/s.json.gz | "
                       "cmp - %%/s.json"),
                   0);
  ck_assert_int_eq(
      run("@ lower %%/s.json.gz --to plan -o %%/p.gz && @ lower %%/s.json --to plan -o "
          "%%/p && gunzip -c %%/p.gz | cmp - %%/p && @ check %%/p.gz"),
      0);
  ck_assert_int_eq(run("{ head -c 50 %%/t.json | gzip; tail -c +51 %%/t.json | gzip; } >%%/two && "
                       "@ topo %%/two -o - | cmp - %%/t.json"),
                   0);
}
END_TEST

/* Beside another kind of bound nobody looks at them. */
START_TEST(cuts_that_prove_nothing_are_refused) {
  ck_assert_int_eq(run("@ solve " FABRIC " -c allgather -o %%/s.json"), 0);
  run("sed 's/\"bound\": {/&\"cuts\": [x], /' %%/s.json >%%/c.json && @ verify %%/c.json " FABRIC);
  copse_test_refused(2, "\"cuts\" are for an allreduce's bound, and need \"kind\": \"forests\"");
}
END_TEST

START_TEST(damaged_gzip_is_refused) {
  static const char *const ways[] = {"head -c 3 %s", "head -c 60 %s", "{ cat %s; echo x; }",
                                     "head -c -1 %s", "{ head -c 40 %s; head -c 40 /dev/zero; }"};
  char name[300], way[400];
  snprintf(name, sizeof name, "%s/t.json.gz", copse_test_folder());
  snprintf(way, sizeof way, ways[_i], name);
  ck_assert_int_eq(run("@ topo " FABRIC " -o %%/t.json.gz"), 0);
  run("%s >%%/bad.gz && @ topo %%/bad.gz", way);
  copse_test_refused(2, "damaged gzip data");
}
END_TEST

/* 1.2 GB of zeros in a megabyte, as many members. */
START_TEST(what_unpacks_to_too_much_is_refused) {
  run("head -c 1000000 /dev/zero | gzip >%%/m && for i in $(seq 1200); do cat %%/m; done "
      ">%%/bomb.gz && "
      "@ topo %%/bomb.gz");
  copse_test_refused(2, "unpacks to more than 1 GiB");
}
END_TEST

/* ---- options ------------------------------------------------------------------------------- */

START_TEST(options_that_nobody_would_heed_are_refused) {
  static const char *const cases[][2] = {
      {"plans " FABRIC " -o %/none -r 3", "--root is for broadcast and reduce"},
      {"place --demand t.json -t x --seed 4", "--seed is for --generate"},
      {"place --demand t.json -t x --tokens 4", "--tokens is for --generate"},
      {"place --generate --experts 4 --ranks 2 --capacity 3", "leave out --capacity"},
      {"simulate s.json --overlap s.json -b 1M " FABRIC, "--overlap prints no table"},
      {"simulate s.json --overlap s.json --no-baselines " FABRIC, "--overlap prints no table"},
      {"solve " FABRIC " -c allreduce --pareto --in-network", "leave out --in-network"},
      {"solve " FABRIC " -c allgather --pareto --compact", "leave out --in-network and --compact"},
  };
  copse_test_all_refused(cases, sizeof cases / sizeof *cases);
}
END_TEST

/* No command writes over what it reads, by whatever path; what goes through pipes is no such file. */
START_TEST(an_input_is_not_written_over) {
  static const char *const cases[][2] = {
      {"solve %/mine.json -c allreduce -o %/mine.json", "--output would overwrite the input"},
      {"solve %/mine.json -c allreduce --draw %/link.svg", "--draw would overwrite the input"},
      {"topo %/mine.json -o %/./mine.json", "mine.json: name another file"},
      {"lower %/s.json --to plan -o %/s.json", "--output would overwrite the input"},
      {"expand %/s.json -o %/s.json", "--output would overwrite the input"},
      {"simulate %/s.json -t %/mine.json --nccl ''", "option '--nccl' needs a value"},
      {"plans %/mine.json -o ''", "option '--output' needs a value"},
      {"solve %/mine.json -c allreduce --output=", "option '--output' needs a value"}};
  ck_assert_int_eq(run("@ topo " FABRIC " -o %%/mine.json && ln -sf mine.json %%/link.svg && "
                       "cp %%/mine.json %%/kept.json && "
                       "@ solve %%/mine.json -c allgather -o %%/s.json && cp %%/s.json %%/kept-s"),
                   0);
  copse_test_all_refused(cases, sizeof cases / sizeof *cases);
  ck_assert_int_eq(run("cmp %%/mine.json %%/kept.json && cmp %%/s.json %%/kept-s"), 0);
  ck_assert_int_eq(run("@ topo - -o - <%%/mine.json | cmp - %%/mine.json"), 0);
  ck_assert_int_eq(run("@ topo %%/mine.json -o /dev/null && @ topo %%/kept.json -o %%/mine.json"), 0);
}
END_TEST

/* What a stranger types, and what the line must name. */
START_TEST(what_is_down_is_said) {
  static const char *const cases[][2] = {
      {"solve " FABRIC " -c allgather --down gpu1 --derate gpu1=0.5", "--down and --derate of gpu1"},
      {"solve " FABRIC " -c allgather --derate gpu1=0.5 --down gpu1", "give one of them"},
      {"help foo", "unknown command 'foo' (see"},
      {"help tpo", "did you mean topo?"},
      {"topo %/capitals.json", "\"n\" has type \"NIC\": write \"nic\""}};
  copse_test_write("host.json",
                   "{\"format\": \"copse-topology/1\", \"nodes\": [{\"id\": \"g\", \"type\": \"gpu\"},\n"
                   "{\"id\": \"n\", \"type\": \"NIC\"}],\n"
                   "\"links\": [{\"src\": \"g\", \"dst\": \"n\", \"bandwidth\": 25}]}");
  copse_test_write("capitals.json",
                   "{\"format\": \"copse-cluster/1\", \"host\": \"host.json\", \"hosts\": 2,\n"
                   "\"fabric\": {\"type\": \"flat\", \"bandwidth\": 25}}");
  copse_test_all_refused(cases, sizeof cases / sizeof *cases);
  run("@ solve --synthetic 'hosts:2 gpus:2@300 nics:2@25 rails' -c allgather --down 'h0.nic*'");
  copse_test_refused(3, "; what is down: --down 'h0.nic*'");
}
END_TEST

/* ---- files of another kind ---------------------------------------------------------------- */

/* A file of each kind, as little of it as tells what it is, and what messages call it. */
static const struct {
  const char *text, *name;
} kinds[] = {
    {"{\"format\": \"copse-topology/1\"}", "a topology"},
    {"{\"version\": 1, \"format\" : \"copse-cluster/1\"}", "a topology"},
    {"<system version=\"1\"></system>", "a topology"},
    {"{\"format\": \"copse-profile/1\"}", "a profile"},
    {"{\"bytes\": [[0]], \"format\": \"copse-demand/1\"}", "a demand matrix"},
    {"{\"format\": \"copse-schedule/1\"}", "a schedule"},
    {"{\"format\": \"copse-groups/1\"}", "an index of groups"},
    {"{\"format\": \"copse-failures/1\"}", "an index of schedules for failures"},
    {"{\"format\": \"copse-plans/1\"}", "an index of plans"},
    {"COPSEPLN and more", "a plan"},
    {"{\"format\": \"copse-plan-text/1\"}", "the text form of a plan"},
    {"<algo name=\"x\" nchunksperloop=\"1\"></algo>", "an MSCCL program"},
    {"{\"name\": \"x\", \"gpus\": [{\"id\": 0, \"threadblocks\": []}]}", "an MSCCL++ plan"},
    {"{\"format\": \"copse-rings/1\"}", "a certificate of rings"},
    {"<graphs version=\"1\"></graphs>", "a graph dump of NCCL"},
    {"node1:7:9 [0] NCCL INFO Bootstrap: Using eth0\n", "a log or report of NCCL"},
    {"{\"format\": \"copse-trace/1\"}", "a routing trace"},
    {"{\"format\": \"copse-placement/1\"}", "a placement of experts"},
    {"{\"format\": \"copse-compute/1\"}", "a table of compute times"},
    {"# copse-quality/1\n", "a table of copse quality"},
    {"<svg xmlns=\"http://www.w3.org/2000/svg\"></svg>", "a picture or page"}};

/* Commands and options that take files, by the names of the kinds that they take. */
#define PROGRAMS "a plan, an MSCCL program, an MSCCL++ plan"
static const struct {
  const char *before, *after, *takes, *place;
} takers[] = {
    {"topo", "-o %/out", "a topology", "copse topo"},
    {"solve", "-c allgather -o %/out", "a topology", "copse solve"},
    {"plans", "-o %/out", "a topology", "copse plans"},
    {"report", "-c allgather -o %/out", "a topology", "copse report"},
    {"rings", "-o %/out", "a topology", "copse rings"},
    {"tune", "-o %/out", "a topology", "copse tune"},
    {"audit", "-o %/out", "a topology, a profile, a graph dump of NCCL, a log or report of NCCL",
     "copse audit"},
    {"verify", FABRIC, "a schedule, an index of groups, a certificate of rings", "copse verify"},
    {"expand", "-o %/out", "a schedule", "copse expand"},
    {"lower", "--to plan -o %/out", "a schedule", "copse lower"},
    {"check", "", PROGRAMS, "copse check"},
    {"run", "", "a plan", "copse run"},
    {"simulate", FABRIC, "a schedule, " PROGRAMS, "copse simulate"},
    {"verify %/s.json -t", "", "a topology", "--topology"},
    {"simulate %/s.json -t", "", "a topology", "--topology"},
    {"solve " FABRIC " -c alltoall --demand", "", "a demand matrix", "--demand"},
    {"solve " FABRIC " -c allgather --profile", "", "a profile", "--profile"},
    {"place " FABRIC " --demand", "-o %/out", "a routing trace", "--demand"},
    {"report " FABRIC " -o %/out -c allgather --nccl", "", "a graph dump of NCCL", "--nccl"},
    {"quality --table", "%/none", "a table of copse quality", "--table"}};
enum { N_TAKERS = sizeof takers / sizeof *takers };

/* Every kind that is not taken is called by its name, with who takes it and what is taken. By default each taker is
 * given one kind in three, each kind to one taker in three. */
START_TEST(a_file_of_another_kind_is_called_by_its_name) {
  ck_assert_int_eq(run("@ solve " FABRIC " -c allgather -o %%/s.json"), 0);
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    char part[160];
    if (strstr(takers[_i].takes, kinds[k].name) || (!copse_test_all() && ((int)k + _i) % 5 != 0))
      continue;
    copse_test_write("kind", kinds[k].text);
    run("@ %s %%/kind %s", takers[_i].before, takers[_i].after);
    snprintf(part, sizeof part, "kind: %s", kinds[k].name);
    copse_test_refused(2, part);
    snprintf(part, sizeof part, "; %s takes ", takers[_i].place);
    copse_test_refused(2, part);
    ck_assert(!copse_test_exists("out"));
  }
}
END_TEST

/* A folder in a file's place is said to be one, with what may be meant; SVG has SVG's names. */
START_TEST(folders_and_names_of_pictures) {
  run("rm -rf %%/d && mkdir %%/d && echo no >%%/d/a.txt && "
      "@ solve dgx-h100 -c allgather -o %%/d/s.json && @ lower %%/d/s.json --to plan -o "
      "%%/d/x.plan");
  run("@ run %%/d");
  copse_test_refused(2, "is a folder; copse run takes a file: a plan, such as ");
  copse_test_refused(2, "/d/x.plan");
  run("@ verify %%/d -t dgx-h100");
  copse_test_refused(2, "/d/s.json");
  run("@ topo dgx-h100 --draw %%/c.png");
  copse_test_refused(2, "--draw writes SVG: give it a name that ends in .svg");
  run("@ solve dgx-h100 -c allgather --draw %%/c.PDF");
  copse_test_refused(2, "--draw writes SVG");
  ck_assert(!copse_test_exists("c.png"));
  run("@ run %%/d/x.plan -b 64K -e 64K -n 1");
  ck_assert_ptr_null(strstr(result.err, "was made for messages"));
  run("@ lower %%/d/s.json --to plan --min-bytes 4096 --max-bytes 65536 -o %%/d/y.plan; "
      "@ run %%/d/y.plan -b 1K -e 1K -n 1");
  ck_assert_ptr_nonnull(strstr(result.err, "y.plan was made for messages of 4096 to 65536 bytes"));
}
END_TEST

START_TEST(kinds_are_told_from_a_pipe_and_in_json) {
  ck_assert_int_eq(run("@ solve " FABRIC " -c allgather -o - | @ topo - --json"), 2);
  copse_test_refused(2,
                     "<stdin>: a schedule, for copse verify, expand, lower, simulate; copse "
                     "topo takes a topology\n");
  ck_assert_str_eq(result.out,
                   "{\"error\": \"<stdin>: a schedule, for copse verify, expand, lower, simulate; "
                   "copse topo takes a topology\", \"exit\": 2}\n");
  ck_assert_int_eq(run("@ solve " FABRIC " -c allgather -o - | @ verify - " FABRIC), 0);
}
END_TEST

/* ---- failures as JSON ---------------------------------------------------------------------- */

START_TEST(failures_are_one_object_with_json) {
  static const struct {
    const char *command;
    int exit;
    const char *starts;
  } cases[] = {
      {"solve nothing --json -c allgather", 2, "{\"error\": \"nothing: no such file"},
      {"solve " FABRIC " --json -c nothing", 2, "{\"error\": \"solve: unknown collective"},
      {"solve " FABRIC " --jsno -c nothing -j", 2, "{\"error\": \"solve: unknown option '--jsno'"},
      {"solve --synthetic line:2@1 --down gpu0 -c allgather --ranks 0,1 --json", 2, "{\"error\": "},
      {"solve --synthetic line:3@1 --down gpu1 -c allgather --json", 3, "{\"error\": "},
      {"verify %/s.json --synthetic line:4@1 --json", 1, "{\"verified\": false, \"reason\": "},
      {"run --json %/none", 2, "{\"error\": "},
      {"quality --json --table %/none", 2, "{\"error\": "},
      {"audit --json %/none", 2, "{\"error\": "},
  };
  char ends[40];
  ck_assert_int_eq(run("@ solve --synthetic ring:4@50 -c allgather -o %%/s.json"), 0);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ck_assert_int_eq(run("@ %s", cases[i].command), cases[i].exit);
    ck_assert_msg(strncmp(result.out, cases[i].starts, strlen(cases[i].starts)) == 0, "%s: '%s'",
                  cases[i].command, result.out);
    copse_test_refused(cases[i].exit, "");
    snprintf(ends, sizeof ends, "\", \"exit\": %d}\n", cases[i].exit);
    ck_assert_msg(strstr(result.out, ends) == result.out + strlen(result.out) - strlen(ends), "%s",
                  result.out);
  }
}
END_TEST

/* docs/json.md: every key of a command's row is in what it prints. */
START_TEST(documented_keys_are_printed) {
  static const char *const commands[][2] = {
      {"verify", "verify %/s.json --synthetic ring:4@50"},
      {"expand", "expand %/s.json -o %/expanded.json"},
      {"rings", "rings dgx1-v100"},
      {"quality", "quality %/t.json --table %/q.txt --update -c allgather"},
      {"topo", "topo --list"}};
  char row[20], key[60];
  ck_assert_int_eq(run("@ topo --synthetic ring:4@50 -o %%/t.json && "
                       "@ solve %%/t.json -c allgather -o %%/s.json && cat docs/json.md"),
                   0);
  char *document = strdup(result.out);
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    snprintf(row, sizeof row, "\n| `%s` | ", commands[i][0]);
    char *at = strstr(document, row), *end = at ? strchr(at + 1, '\n') : NULL;
    ck_assert_msg(end != NULL, "docs/json.md: no row of %s", commands[i][0]);
    if (i == 4) at = strstr(at, "`topologies`") - strlen(row); /* of --list */
    ck_assert_int_eq(run("@ %s --json", commands[i][1]), 0);
    int n = 0;
    for (char *p = strchr(at + strlen(row), '`'); p && p < end;
         p = strchr(strchr(p + 1, '`') + 1, '`'), n++) {
      snprintf(key, sizeof key, "\"%.*s\": ", (int)strcspn(p + 1, "`"), p + 1);
      ck_assert_msg(strstr(result.out, key) != NULL, "%s --json lacks %s", commands[i][0], key);
    }
    ck_assert_int_gt(n, 3);
  }
  free(document);
}
END_TEST

/* With fewer thread blocks than peers: few peers at the switch, and links as full. Chains of all 12
 * take 11 hops; and what an exact file loses is said too. */
START_TEST(few_thread_blocks_have_few_peers) {
  ck_assert_int_eq(run("@ solve --synthetic switch:12@100 -c allgather -o %%/s.json"), 0);
  ck_assert_int_eq(run("@ lower %%/s.json --to msccl -w 4 --json -o %%/x.xml"), 0);
  ck_assert_ptr_nonnull(strstr(result.out, "\"instead\": \"3 peers at a switch\""));
  const char *slower = strstr(result.out, "\"simulated_percent\": ");
  ck_assert_ptr_nonnull(slower);
  ck_assert_double_lt(atof(strchr(slower, ':') + 1), 3);
  ck_assert_int_eq(run("@ check %%/x.xml"), 0);
  /* a NIC that all GPUs of a host share is one GPU's then, and rings take 88 % longer */
  ck_assert_int_eq(
      run("@ solve --synthetic 'hosts:2 gpus:8@300 nics:1@25 flat' -c allgather -o %%/s.json"), 0);
  ck_assert_int_eq(run("@ lower %%/s.json --to msccl -w 6 --json -o %%/x.xml"), 0);
  slower = strstr(result.out, "\"simulated_percent\": ");
  ck_assert_ptr_nonnull(slower);
  ck_assert_double_lt(atof(strchr(slower, ':') + 1), 3);
  ck_assert_int_eq(run("@ check %%/x.xml"), 0);
  ck_assert_int_eq(run("@ solve --synthetic torus:4x4@100 -c allgather -o %%/s.json"), 0);
  ck_assert_int_eq(run("@ lower %%/s.json --to msccl -w 4 -o %%/x.xml"), 0);
  ck_assert_ptr_nonnull(strstr(result.err, "note: shares are exact, but the file is "));
  ck_assert_int_eq(run("@ lower %%/s.json --to msccl -o %%/x.xml"), 0);
  ck_assert_str_eq(result.err, "");
}
END_TEST

/* Whether `solve` and `verify` call a schedule optimal, of both phases or of forests: with the same
 * words. */
START_TEST(solve_and_verify_call_the_same_optimal) {
  static const char *const cases[][2] = {
      {"a100-x2 -c allgather", "\"optimal\": true"},
      {"a100-x2 -c allreduce", "\"phases_optimal\": true"},
      {"a100-x2 -c alltoall", "\"optimal\": true"},
      {"a100-x2 -c allreduce --down h0.nic1", "\"forests_optimal\": true"},
      {"--synthetic ring:6@50 -c allreduce --k 1", ""}};
  static const char *const keys[] = {
      "\"optimal\": ", "\"phases_optimal\": ", "\"forests_optimal\": "};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    bool solved[3];
    ck_assert_int_eq(run("@ solve %s --json -o %%/s.json", cases[i][0]), 0);
    ck_assert_msg(strstr(result.out, cases[i][1]) != NULL, "%s: %s", cases[i][0], result.out);
    for (int k = 0; k < 3; k++)
      solved[k] = strncmp(strstr(result.out, keys[k]) + strlen(keys[k]), "true", 4) == 0;
    const char *end = strstr(cases[i][0], " -c "), *down = strstr(cases[i][0], "--down");
    ck_assert_int_eq(run("@ verify %%/s.json %s%.*s %s --json", cases[i][0][0] == '-' ? "" : "-t ",
                         (int)(end - cases[i][0]), cases[i][0], down ? down : ""),
                     0);
    for (int k = 0; k < 3; k++)
      ck_assert_msg(
          solved[k] == (strncmp(strstr(result.out, keys[k]) + strlen(keys[k]), "true", 4) == 0),
          "%s: %s%s", cases[i][0], keys[k], result.out);
  }
}
END_TEST

START_TEST(solve_and_verify_say_topology_gap_and_cut_as_json) {
  ck_assert_int_eq(run("@ solve --synthetic ring:4@50 -c allgather --json -o %%/s.json"), 0);
  ck_assert_ptr_nonnull(strstr(result.out, "{\"topology\": \"ring:4@50\", "));
  ck_assert_ptr_nonnull(strstr(result.out,
                               "\"optimal\": true, \"phases_optimal\": false, "
                               "\"forests_optimal\": false, \"gap_percent\": 0,"));
  ck_assert_int_eq(run("@ verify --json %%/s.json --synthetic ring:4@50"), 0);
  ck_assert_ptr_nonnull(strstr(result.out,
                               "\"topology\": \"ring:4@50\", \"bound_kind\": \"cut\", "
                               "\"gap_percent\": 0, \"cut\": [\"gpu"));
  ck_assert_int_eq(run("@ verify %%/s.json --synthetic ring:4@50"), 0);
  ck_assert_ptr_nonnull(strstr(result.out, "\nbottleneck: into GPU "));
  ck_assert_int_eq(run("@ solve --synthetic ring:4@50 -c allgather --k 1 --json"), 0);
  ck_assert_ptr_nonnull(strstr(result.out, "\"optimal\": false, "));
}
END_TEST

/* Links that lead one way: pairs of ranks that can't be reached matter only to what uses them. */
START_TEST(what_need_not_be_reached_sinks_nothing) {
  static const char *const commands[] = {
      "solve %/one_way.json -c reduce --root 0 --down 'c>a'",
      "solve %/one_way.json -c reduce --root 0 --derate 'c>a=0.5'",
      "solve %/one_way.json -c broadcast --root 2 --down 'c>a'",
      "solve %/one_way.json -c reduce --root 0 --objective 1M",
      "solve %/one_way.json -c broadcast --root 2 --objective 64K",
      "solve %/one_way.json -c reduce --root 0 --predict",
      "solve %/one_way.json -c alltoall --demand %/sent.json --predict",
      "solve %/one_way.json -c reduce --root 0 --routes fabric",
      "solve %/one_way.json -c broadcast --root 2 --routes fabric",
      "solve %/one_way.json -c reduce --root 0 --pareto",
      "plans %/one_way.json -c reduce --root 0 -o %/one_way.plans",
      "simulate %/one_way.plans -t %/one_way.json"};
  copse_test_write(
      "sent.json",
      "{\"format\": \"copse-demand/1\", \"bytes\": [[0, 0, 0], [5, 0, 0], [7, 3, 0]]}");
  copse_test_write("one_way.json",
                   "{\"format\": \"copse-topology/1\", \"name\": \"one_way\", \"nodes\": ["
                   "{\"id\": \"a\", \"type\": \"gpu\"}, {\"id\": \"b\", \"type\": \"gpu\"}, "
                   "{\"id\": \"c\", \"type\": \"gpu\"}], \"links\": ["
                   "{\"src\": \"b\", \"dst\": \"a\", \"bandwidth\": 10, \"duplex\": false}, "
                   "{\"src\": \"c\", \"dst\": \"b\", \"bandwidth\": 10, \"duplex\": false}, "
                   "{\"src\": \"c\", \"dst\": \"a\", \"bandwidth\": 5, \"duplex\": false}]}");
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    ck_assert_msg(run("@ %s", commands[i]) == 0, "%s: %d: %s", commands[i], result.status,
                  result.err);
    if (strncmp(commands[i], "solve", 5) != 0 || strstr(commands[i], "alltoall")) continue;
    ck_assert_msg(strstr(result.out, "algbw 10 GB/s"), "%s: %s", commands[i], result.out);
    if (strstr(commands[i], "--d")) ck_assert_ptr_nonnull(strstr(result.out, "healthy: algbw 10"));
  }
  ck_assert_int_eq(run("@ solve %%/one_way.json -c reduce --root 0 -o %%/one_way.s"), 0);
  ck_assert_int_eq(run("@ simulate %%/one_way.s -t %%/one_way.json"), 0);
  ck_assert_ptr_nonnull(strstr(result.out, "# tree       not applicable: rank 2 (c) can't be "));
  ck_assert_ptr_nonnull(strstr(result.out, "# direct     algbw 5 GB/s"));
  ck_assert_int_eq(run("@ solve %%/one_way.json -c reduce --root 1 --predict"), 3);
  ck_assert_ptr_nonnull(strstr(result.err, "rank 1 (b) can't be reached from rank 0 (a)"));
}
END_TEST

int main(void) {
  Suite *suite = suite_create("cli/odd_inputs");
  TCase *tests = tcase_create("odd_inputs");
  copse_test_folder();
  tcase_set_timeout(tests, 120);
  tcase_add_test(tests, arrays_for_objects_are_refused);
  tcase_add_loop_test(tests, channels_are_no_semaphores, 0, 2);
  tcase_add_test(tests, parts_of_many_chunks_are_counted_right);
  tcase_add_loop_test(tests, a_tag_with_endless_attributes_is_refused_at_once, 0, 4);
  tcase_add_test(tests, long_comments_and_the_like_are_no_tags);
  tcase_add_test(tests, a_schedule_is_verified_from_a_pipe);
  tcase_add_test(tests, what_cannot_be_lowered_is_said_of_its_file);
  tcase_add_test(tests, plans_that_fail_leave_nothing);
  tcase_add_test(tests, an_index_that_is_none_of_its_plans_is_refused);
  tcase_add_test(tests, workers_that_fit_are_those_of_the_schedule);
  tcase_add_test(tests, an_underline_that_copying_left_is_no_json);
  tcase_add_test(tests, options_without_effect_are_told);
  tcase_add_test(tests, flows_of_nothing_are_lowered);
  tcase_add_test(tests, options_that_nobody_would_heed_are_refused);
  tcase_add_test(tests, an_input_is_not_written_over);
  tcase_add_test(tests, what_is_down_is_said);
  tcase_add_test(tests, what_need_not_be_reached_sinks_nothing);
  tcase_add_loop_test(tests, a_single_rank_has_every_schedule, 0, 5);
  tcase_add_test(tests, gzip_goes_in_and_out);
  tcase_add_test(tests, cuts_that_prove_nothing_are_refused);
  tcase_add_loop_test(tests, damaged_gzip_is_refused, 0, 5);
  if (copse_test_all()) tcase_add_test(tests, what_unpacks_to_too_much_is_refused);
  tcase_add_loop_test(tests, a_file_of_another_kind_is_called_by_its_name, 0, N_TAKERS);
  tcase_add_test(tests, folders_and_names_of_pictures);
  tcase_add_test(tests, kinds_are_told_from_a_pipe_and_in_json);
  tcase_add_test(tests, failures_are_one_object_with_json);
  tcase_add_test(tests, documented_keys_are_printed);
  tcase_add_test(tests, few_thread_blocks_have_few_peers);
  tcase_add_test(tests, solve_and_verify_call_the_same_optimal);
  tcase_add_test(tests, solve_and_verify_say_topology_gap_and_cut_as_json);
  suite_add_tcase(suite, tests);
  return copse_test_run(suite);
}
