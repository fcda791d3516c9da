/* Running the tool as a user's script does, in a folder that goes when the program ends. */
#ifndef COPSE_TESTS_COMMAND_H
#define COPSE_TESTS_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

struct copse_test_result {
  int status;
  char *out, *err; /* valid until the next run */
};
extern struct copse_test_result copse_test_result;

/* Runs a shell command in which @ is the tool and % the folder; returns its exit status. */
int copse_test_command(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* One line that starts with "copse: " and contains `part`; on standard output nothing, or with
 * --json one object. */
void copse_test_refused(int status, const char *part);
/* n pairs of a command's arguments and what its line contains; exit status 2. */
void copse_test_all_refused(const char *const cases[][2], size_t n);

/* Files of the folder. */
void copse_test_write(const char *name, const char *text);
char *copse_test_read(const char *name); /* the caller frees it; fails the test without a file */
bool copse_test_exists(const char *name);
/* Makes the folder at its first call, which belongs into main(): tests run in forks. */
const char *copse_test_folder(void);

#endif
