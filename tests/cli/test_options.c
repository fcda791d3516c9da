/*
 * One table of options for each command: --help, the manual page and the completion of shells tell
 * of the same options, letters mean the same everywhere, and what a command refuses it refuses by
 * its table.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/command.h"
#include "support/support.h"

#define run copse_test_command
#define result copse_test_result
#define COPSE_TEST_MOST_OPTIONS 80

static const char *const commands[] = {"topo",     "solve", "verify", "expand",  "lower", "plans",
                                       "check",    "place", "report", "quality", "audit", "rings",
                                       "simulate", "tune",  "run",    NULL};

/* The line of a command's options in the script of completion: " --output --draw ... ". */
static void options_of(const char *command, char *to, size_t size) {
  ck_assert_int_eq(
      run("@ help --completion | sed -n \"s/^    \\*:%s) options='\\(.*\\)' ;;/ \\1 /p\"", command),
      0);
  ck_assert_uint_lt(strlen(result.out), size);
  strcpy(to, result.out);
  ck_assert_ptr_nonnull(strstr(to, " --help "));
}

START_TEST(help_shows_the_options_that_shells_complete) {
  char options[2048], with_blanks[80];
  for (int c = 0; commands[c]; c++) {
    options_of(commands[c], options, sizeof options);
    ck_assert_int_eq(run("@ %s --help", commands[c]), 0);
    for (const char *p = strstr(options, " --"); p; p = strstr(p + 1, " --")) {
      int n = (int)strcspn(p + 1, " ");
      snprintf(with_blanks, sizeof with_blanks, "%.*s", n, p + 1);
      if (strcmp(with_blanks, "--help") == 0) continue;
      const char *at = strstr(result.out, with_blanks);
      while (at && (isalnum((unsigned char)at[n]) || at[n] == '-'))
        at = strstr(at + 1, with_blanks);
      ck_assert_msg(at != NULL, "%s --help lacks %s", commands[c], with_blanks);
    }
    ck_assert_msg(!strstr(result.out, "\n\n\n"), "%s --help: empty lines", commands[c]);
    for (const char *p = result.out; *p; p++) /* also an option's letter that nobody can type */
      ck_assert_msg(*p == '\n' || isprint((unsigned char)*p), "%s --help: byte %d", commands[c], *p);
  }
}
END_TEST

static int count(const char *text, const char *part) {
  int n = 0;
  for (const char *p = strstr(text, part); p; p = strstr(p + 1, part)) n++;
  return n;
}

START_TEST(shared_options_stand_once_in_the_manual_and_in_each_help) {
  ck_assert_int_eq(run("@ help --man"), 0);
  ck_assert_int_eq(count(result.out, "\\fB\\-\\-nvlink\\-switch\\fP"), 1);
  ck_assert_int_eq(count(result.out, "\\fB\\-\\-down\\fP"), 1);
  ck_assert_int_eq(count(result.out, "\\fB\\-\\-equal\\-shares\\fP"), 1);
  ck_assert_int_eq(count(result.out, ".SS copse "), 15);
  ck_assert_int_eq(count(result.out, ".SS Topology options\n"), 1);
  ck_assert_int_eq(run("@ help --man | grep -c \"^'\\|^[.][^A-Zb]\""), 1); /* no stray requests */
  ck_assert_int_eq(run("@ help inputs"), 0);
  ck_assert_int_eq(count(result.out, "--nvlink-switch BW"), 1);
}
END_TEST

/* What bash offers after these words, sorted. */
static void assert_completes(const char *words, const char *offers) {
  ck_assert_int_eq(
      run("@ help --completion >%%/copse.bash && PATH=$(dirname $(realpath @)):$PATH bash -c "
          "'. %%/copse.bash; COMP_WORDS=(%s); COMP_CWORD=$((${#COMP_WORDS[*]} - 1)); _copse; "
          "echo \"${COMPREPLY[*]}\" | tr \" \" \"\\n\" | sort | xargs'",
          words),
      0);
  ck_assert_msg(strcmp(result.err, "") == 0, "%s: %s", words, result.err);
  result.out[strcspn(result.out, "\n")] = '\0';
  ck_assert_msg(strcmp(result.out, offers) == 0, "%s: '%s'", words, result.out);
}

START_TEST(bash_completes_commands_options_and_values) {
  assert_completes("copse s", "simulate solve");
  assert_completes("copse help pl", "place plans");
  assert_completes("copse solve --p", "--pareto --predict --profile --progress");
  assert_completes("copse topo x --links \"\"", "all default nvlink");
  assert_completes("copse topo x --links = nv", "nvlink"); /* as bash splits --links=nv */
  assert_completes("copse lower s.json --to m", "msccl mscclpp");
  assert_completes("copse run p -d f", "f8e4m3 f8e5m2 float");
  assert_completes("copse solve --root \"\"", "");
  assert_completes("copse verify s.json -t dgx-h", "dgx-h100 dgx-h200");
  copse_test_write("schedule one.json", "{}");
  ck_assert_int_eq(
      run("@ help --completion >%%/c && cd %% && bash -c '. ./c; COMP_WORDS=(copse check sch); "
          "COMP_CWORD=2; _copse; echo \"${COMPREPLY[0]}\"'"),
      0);
  ck_assert_str_eq(result.out, "schedule one.json\n");
}
END_TEST

/* "  -o, --output FILE    where ...": the letter, or '\0', and the name; false for other lines. */
static bool parse_row(const char *line, char *letter, char name[40]) {
  size_t n = 0;
  if (strncmp(line, "  ", 2) != 0) return false;
  *letter = line[2] == '-' && line[4] == ',' ? line[3] : '\0';
  if (!*letter && strncmp(line, "      --", 8) != 0) return false;
  for (const char *p = line + 6; (isalnum((unsigned char)*p) || *p == '-' || *p == '_') && n < 39;)
    name[n++] = *p++;
  name[n] = '\0';
  return n > 2;
}

/* What a letter means, in all commands but run: an option's name. */
static char meanings[256][40];

/* Every option of --help in one group only (rows of one name that follow each other are one
 * option), with the same letter as in other commands. */
static void check_rows(const char *command, char *help) {
  char seen[COPSE_TEST_MOST_OPTIONS][40], last[40] = "", letter, name[40];
  int n = 0;
  for (char *line = strtok(help, "\n"); line; line = strtok(NULL, "\n")) {
    ck_assert_msg(strlen(line) <= 80, "%s --help: %s", command, line);
    if (!parse_row(line, &letter, name) || strcmp(name, last) == 0) continue;
    strcpy(last, name);
    for (int i = 0; i < n; i++)
      ck_assert_msg(strcmp(seen[i], name) != 0, "%s --help: %s in two groups", command, name);
    ck_assert_int_lt(n, COPSE_TEST_MOST_OPTIONS);
    strcpy(seen[n++], name);
    char *meaning = meanings[(unsigned char)letter];
    if (!letter) continue;
    if (strcmp(command, "run") == 0 && strchr("befinwcdo", letter)) continue; /* of nccl-tests */
    if (!*meaning) strcpy(meaning, name);
    ck_assert_msg(strcmp(meaning, name) == 0, "-%c: %s, in %s %s", letter, meaning, command, name);
  }
  ck_assert_int_gt(n, 2);
}

START_TEST(a_letter_means_one_option_and_an_option_is_in_one_group) {
  for (int c = 0; commands[c]; c++) {
    ck_assert_int_eq(run("@ %s --help", commands[c]), 0);
    check_rows(commands[c], result.out);
  }
  ck_assert_str_eq(meanings['t'], "--topology");
  ck_assert_str_eq(meanings['c'], "--collective");
  ck_assert_str_eq(meanings['o'], "--output");
  ck_assert_str_eq(meanings['e'], "--maxbytes");
  ck_assert_int_eq(run("@ help inputs"), 0);
  check_rows("help inputs", result.out);
  ck_assert_int_eq(run("@ --help | awk 'length > 80'"), 0);
  ck_assert_str_eq(result.out, "");
}
END_TEST

START_TEST(help_has_few_common_options_then_an_example_then_groups) {
  for (int c = 0; commands[c]; c++) {
    char letter, name[40];
    int n = 0;
    ck_assert_int_eq(run("@ help %s", commands[c]), 0);
    ck_assert_msg(strncmp(result.out, "usage: copse ", 13) == 0, "%s", commands[c]);
    char *common = strstr(result.out, "\ncommon options:\n"), *example;
    ck_assert_msg(common != NULL, "%s --help: no common options", commands[c]);
    example = strstr(common, "\n\nexample: copse ");
    ck_assert_msg(example != NULL, "%s --help: no example", commands[c]);
    ck_assert_msg(strstr(example, "\n\nGeneral options:\n") != NULL, "%s --help", commands[c]);
    *example = '\0';
    for (char *line = strtok(common, "\n"); line; line = strtok(NULL, "\n"))
      n += parse_row(line, &letter, name);
    ck_assert_msg(n >= 1 && n <= 6, "%s --help: %d common options", commands[c], n);
  }
}
END_TEST

START_TEST(near_names_are_suggested) {
  static const char *const cases[][2] = {
      {"sovle x", "unknown command 'sovle'; did you mean solve?"},
      {"Verfiy x", "did you mean verify?"},
      {"solve x --outptu y", "unknown option '--outptu'; did you mean --output?"},
      {"plans x --nolowlatency", "did you mean --no-low-latency?"},
      {"topo dgxh100",
       "dgxh100: no such file or topology; did you mean dgx-h100 (copse topo --list)"},
      {"solve x -c allgahter", "unknown collective 'allgahter'; did you mean allgather?"},
      {"help nothing", "unknown command 'nothing' (see"},
      {"help inptus", "unknown command 'inptus'; did you mean inputs?"},
      {"hlep", "did you mean help?"},
      {"simulate s -t x --model lnks", "--model must be plan or links; did you mean links?"},
      {"solve x -c allgather --routes fabrc", "did you mean fabric?"},
      {"topo --synthetic trus:4x4@50", "an unknown kind; ring, line,"},
      {"help --completion tcsh", "--completion bash, zsh or fish"},
  };
  copse_test_all_refused(cases, sizeof cases / sizeof *cases);
}
END_TEST

START_TEST(collectives_are_understood_in_any_spelling) {
  static const char *const spellings[] = {"allreduce", "all_reduce", "all-reduce", "AllReduce",
                                          "ALL_REDUCE", "ncclAllReduce"};
  char *first = NULL;
  for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
    ck_assert_int_eq(run("@ solve --synthetic ring:3@50 -c %s -o -", spellings[i]), 0);
    if (!first) first = strdup(result.out);
    ck_assert_str_eq(result.out, first);
  }
  ck_assert_ptr_nonnull(strstr(first, "\"collective\": \"allreduce\""));
  free(first);
  ck_assert_int_eq(
      run("@ plans --synthetic ring:2@50 -c reduceScatter,all-gather -c ncclBcast --json "
          "--no-low-latency -o %%/any-spelling"),
      0);
  ck_assert_ptr_nonnull(strstr(result.out, "\"collective\": \"reduce_scatter\""));
  ck_assert_int_eq(run("@ solve --synthetic ring:4@50 -c Reduce-Scatter -o %%/rs.json && "
                       "sed -i s/reduce_scatter/ReduceScatter/ %%/rs.json && "
                       "@ verify %%/rs.json --synthetic ring:4@50"),
                   0);
  copse_test_write("groups.txt", "all_gather 0,1\nBroadcast:0 2,3\n");
  ck_assert_int_eq(run("@ solve --synthetic full:4@50 -c all_to_all --groups %%/groups.txt"), 0);
  ck_assert_ptr_nonnull(strstr(result.out, "allgather"));
}
END_TEST

/* What fish offers, sorted; the test is passed over, visibly, where there is no fish. */
START_TEST(fish_completes_commands_options_and_values) {
  static const char *const cases[][2] = {
      {"copse s", "simulate solve"},
      {"copse solve --p", "--pareto --predict --profile --progress"},
      {"copse topo x --links ", "all default nvlink"},
      {"copse verify s.json -t dgx-h1", "dgx-h100"},
      {"copse lower s.json --to m", "msccl mscclpp"}};
  if (run("command -v fish") != 0) {
    fprintf(stderr, "test_options: no fish here, its completion is not tested\n");
    return;
  }
  ck_assert_int_eq(run("@ help --completion fish >%%/copse.fish && fish -n %%/copse.fish"), 0);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    run("PATH=$(dirname $(realpath @)):$PATH fish -c 'source %%/copse.fish; complete -C \"%s\"' | "
        "cut -f1 | sort -u | xargs",
        cases[i][0]);
    result.out[strcspn(result.out, "\n")] = '\0';
    ck_assert_msg(strcmp(result.out, cases[i][1]) == 0, "%s: '%s'", cases[i][0], result.out);
  }
}
END_TEST

START_TEST(zsh_takes_its_completion) {
  ck_assert_int_eq(run("@ help --completion zsh >%%/_copse && head -1 %%/_copse"), 0);
  ck_assert_str_eq(result.out, "#compdef copse\n");
  if (run("command -v zsh") != 0) {
    fprintf(stderr, "test_options: no zsh here, its completion is not tested\n");
    return;
  }
  ck_assert_int_eq(run("zsh -n %%/_copse"), 0);
  ck_assert_int_eq(run("grep -c \"'\\*'{-c+,--collective=}\" %%/_copse"), 0);
  ck_assert_str_eq(result.out, "4\n"); /* solve, plans, report, quality */
}
END_TEST

/* ---- progress and --verbose ---------------------------------------------------------------- */

/* On a terminal what takes long shows a line, which is cleared before results and errors. The
 * topology comes through a pipe after more than two seconds. */
START_TEST(progress_is_shown_on_a_terminal_and_cleared) {
  static const char *const clear = "\r\033[K";
  const char *const after[] = {"ring:4@50: 4 ranks", "copse: "};
  if (run("command -v script") != 0) {
    fprintf(stderr, "test_options: no script(1) here, progress is not tested\n");
    return;
  }
  ck_assert_int_eq(run("@ topo --synthetic ring:4@50 -o %%/slow.json && mkfifo %%/pipe-%d", _i), 0);
  run("{ sleep 2.2; %s %%/slow.json; } >%%/pipe-%d & "
      "timeout 20 script -qec \"$(realpath @) topo %%/pipe-%d\" %%/typescript </dev/null "
      ">/dev/null",
      _i == 0 ? "cat" : "head -c 50", _i, _i);
  char *said = copse_test_read("typescript"), *line = strstr(said, after[_i]);
  ck_assert_msg(line != NULL, "%s", said);
  char *shown = strstr(said, "\r\033[Ktopo");
  ck_assert_msg(shown && shown < line, "%s", said);
  ck_assert_msg(strncmp(line - strlen(clear), clear, strlen(clear)) == 0, "%s", said);
  free(said);
}
END_TEST

START_TEST(verbose_tells_what_was_tried) {
  ck_assert_int_eq(run("@ solve --synthetic ring:4@50 -c allgather -v -o -"), 0);
  ck_assert_ptr_nonnull(strstr(result.err, "copse: bound 0.0075 s/GB: cut, of 3 nodes"));
  ck_assert_ptr_nonnull(strstr(result.err, "copse: reached 0.0075 s/GB: k = 2, 8 trees"));
  ck_assert_ptr_nonnull(strstr(result.err, "copse: optimum: 0."));
  ck_assert_int_eq(count(result.out, "copse: "), 0);
  ck_assert_int_eq(run("@ solve --synthetic ring:4@50 -c allgather --verbose --objective 4K"), 0);
  ck_assert_int_gt(count(result.err, "copse: tried "), 3);
  ck_assert_ptr_nonnull(strstr(result.err, ", the fastest so far\n"));
  ck_assert_int_eq(run("@ verify -v --help"), 0);
  ck_assert_int_eq(run("@ solve --synthetic ring:4@50 -c allgather"), 0);
  ck_assert_str_eq(result.err, "");
}
END_TEST

/* Three ranks at a switch: two links each, of which each tree takes one. */
START_TEST(stages_are_the_graphs_on_the_way_to_trees) {
  ck_assert_int_eq(run("@ solve --synthetic switch:3@50 -c allgather --stages"), 0);
  const char *network = strstr(result.out, "network, 1 tree per root:\n");
  const char *split = strstr(result.out, "split graph, 1 tree per root:\n");
  ck_assert_msg(network != NULL && split > network, "%s", result.out);
  ck_assert_ptr_nonnull(strstr(network, "  gpu0 -> switch 2\n"));
  ck_assert_ptr_nonnull(strstr(split, "  gpu0 -> gpu2 1, gpu1 1\n"));
}
END_TEST

START_TEST(long_options_may_be_abbreviated_and_stand_anywhere) {
  ck_assert_int_eq(run("@ topo --synth ring:4@50 --js"), 0);
  ck_assert_int_eq(run("@ place --generate --exp 4 --ranks=2 --steps 1 --tok 4"), 2);
  copse_test_refused(2, "'--tok' may be any of --tokens, --token-bytes");
  ck_assert_int_eq(run("@ topo --json=1"), 2);
  copse_test_refused(2, "topo: option '--json' takes no value");
  ck_assert_int_eq(run("@ solve --oth exclude --synthetic ring:4@50 -c allgather"), 2);
  copse_test_refused(2, "--others is for --ranks"); /* its two rows of help are one option */
}
END_TEST

START_TEST(a_second_value_is_refused_and_the_same_one_is_not) {
  ck_assert_int_eq(run("@ plans ring-8 -c broadcast -r 0 --root 5 -o %%/never"), 2);
  ck_assert_ptr_nonnull(strstr(result.err, "--root is given twice, as 0 and 5"));
  ck_assert_int_eq(run("@ solve ring-8 -c allreduce -c all_gather"), 2);
  ck_assert_ptr_nonnull(strstr(result.err, "one collective at a time, not allreduce and allgather"));
  ck_assert_int_eq(run("@ solve ring-8 -c allgather -c allGather --k 1 --k 1 --json --json"), 0);
}
END_TEST

START_TEST(values_are_refused_by_range_and_word) {
  static const char *const cases[][2] = {
      {"solve x -c allgather -k 0", "--k must be from 1 to 1048576"},
      {"solve x -c allgather --root -1", "--root must be a rank"},
      {"solve x -c scatter", "unknown collective 'scatter': allgather, reduce_scatter"},
      {"lower s --fifo 65", "--fifo must be from 1 to 64"},
      {"lower s --protocol ll", "--protocol must be Simple, LL or LL128"},
      {"lower s --pipeline 1Z", "--pipeline must be a number of bytes, such as 1000, 64K or 1G"},
      {"plans x -w 0", "--workers must be a number up to 1024"},
      {"simulate s -t x -f 1", "-f must be an integer of at least 2"},
      {"simulate s -t x --duplex 0.9", "--duplex must be a number from 1, such as 1.9"},
      {"place --zipf 8.5", "--zipf must be a number from 0 to 8"},
      {"run p -n 0", "-n '0' must be an integer of at least 1"},
      {"run p --max-memory 0", "--max-memory '0' must be a number of bytes of at least 1"},
      {"quality --jobs 1025", "--jobs must be from 1 to 1024"},
      {"run p -b", "option '-b' needs a value"},
      {"check -Z", "check: unknown option '-Z'"},
      {"rings ring-8 --root 0", "rings: unknown option '--root' (see"},
      {"solve ring -c allgather --objective",
       "option '--objective' needs a value: throughput, latency or a size such as 64K"},
      {"topo --example", "option '--example' needs a value: cluster-clos, "},
      {"topo x -l", "option '-l' needs a value: nvlink, all or default (see"},
      {"topo ring-8 --draw - --matrix", "of --matrix, -o - and --draw - only one"},
      {"solve ring-8 -c broadcast --root 0,4",
       "--root 0,4: one root is wanted; 'copse plans' takes lists"},
      {"solve x -c broadcast,reduce",
       "-c 'broadcast,reduce': one collective is wanted; 'copse plans' takes a list"},
      {"plans x -o y -c broadcast,reduc", "unknown collective 'reduc'; did you mean reduce?"},
      {"plans x -o y -c broadcast,", "unknown collective ''"},
  };
  copse_test_all_refused(cases, sizeof cases / sizeof *cases);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("options");
  TCase *tc = tcase_create("options");
  copse_test_folder();
  tcase_set_timeout(tc, 120);
  tcase_add_test(tc, help_shows_the_options_that_shells_complete);
  tcase_add_test(tc, shared_options_stand_once_in_the_manual_and_in_each_help);
  tcase_add_test(tc, bash_completes_commands_options_and_values);
  tcase_add_test(tc, long_options_may_be_abbreviated_and_stand_anywhere);
  tcase_add_test(tc, a_letter_means_one_option_and_an_option_is_in_one_group);
  tcase_add_test(tc, help_has_few_common_options_then_an_example_then_groups);
  tcase_add_test(tc, near_names_are_suggested);
  tcase_add_test(tc, collectives_are_understood_in_any_spelling);
  tcase_add_test(tc, fish_completes_commands_options_and_values);
  tcase_add_test(tc, zsh_takes_its_completion);
  tcase_add_loop_test(tc, progress_is_shown_on_a_terminal_and_cleared, 0, 2);
  tcase_add_test(tc, verbose_tells_what_was_tried);
  tcase_add_test(tc, stages_are_the_graphs_on_the_way_to_trees);
  tcase_add_test(tc, a_second_value_is_refused_and_the_same_one_is_not);
  tcase_add_test(tc, values_are_refused_by_range_and_word);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
