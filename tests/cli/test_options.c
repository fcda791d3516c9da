/*
 * One table of options for each command: --help, the manual page and the completion of bash tell of
 * the same options, and what a command refuses it refuses by its table.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/command.h"
#include "support/support.h"

#define run copse_test_command
#define result copse_test_result

static const char *const commands[] = {"topo",  "solve",   "verify",   "expand", "lower",
                                       "plans", "check",   "simulate", "place",  "report",
                                       "run",   "quality", NULL};

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
  ck_assert_int_eq(run("@ solve --help"), 0);
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
  assert_completes("copse lower s.json -t m", "msccl mscclpp");
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

START_TEST(long_options_may_be_abbreviated_and_stand_anywhere) {
  ck_assert_int_eq(run("@ topo --synth ring:4@50 --js"), 0);
  ck_assert_int_eq(run("@ place --generate --exp 4 --ranks=2 --steps 1 --tok 4"),
                   2); /* or -bytes */
  copse_test_refused(2, "'--tok' is unknown");
  ck_assert_int_eq(run("@ topo --json=1"), 2);
  copse_test_refused(2, "'--json=1' is unknown or takes no value");
  ck_assert_int_eq(run("@ solve --oth exclude --synthetic ring:4@50 -c allgather"), 2);
  copse_test_refused(2, "--others is for --ranks"); /* its two rows of help are one option */
}
END_TEST

START_TEST(values_are_refused_by_range_and_word) {
  static const char *const cases[][2] = {
      {"solve x -c allgather -k 0", "--k must be from 1 to 1048576"},
      {"solve x -c allgather --root -1", "--root must be a rank"},
      {"solve x -c alltoal", "unknown collective 'alltoal': allgather, reduce_scatter"},
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
      {"check -Z", "unknown option '-Z'"},
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
  tcase_add_test(tc, values_are_refused_by_range_and_word);
  suite_add_tcase(suite, tc);
  return copse_test_run(suite);
}
