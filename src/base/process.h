/* Another program as a filter: text in, text out, within limits. */
#pragma once

#include "base/err.h"

/*
 * Runs argv[0] (looked up in PATH, no shell) with `input` as its standard input; *out gets its
 * standard output, NUL-terminated, which the caller frees. Its standard error is dropped.
 * COPSE_UNSUPPORTED where there is no such program; COPSE_IO where it fails or writes
 * more than max_bytes; COPSE_NOMEM, also where it takes longer than `seconds` and is ended.
 */
copse_status copse_process_filter(char *const argv[], const char *input, size_t input_size,
                                  int seconds, size_t max_bytes, char **out, size_t *out_size,
                                  struct copse_err *err) COPSE_CHECKED;
