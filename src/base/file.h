/* Whole files in and out. "-" is standard input or output. Output is written beside
 * its target and renamed, so that a reader never sees half a file. */
#pragma once

#include <sys/select.h> /* sigset_t */

#include "base/err.h"
#include "base/text.h"

/* Inputs beyond this are refused: no topology, schedule or plan comes near it. */
#define COPSE_FILE_MAX_BYTES ((size_t)1 << 30)

/* Reads all of `path`, unpacked where it is gzip's (RFC 1952; told by content). *data has a NUL
 * after its *size bytes; the caller frees it. COPSE_IO where it can't be read (a folder, no such
 * file), COPSE_BAD_INPUT beyond COPSE_FILE_MAX_BYTES and where it is damaged. */
copse_status copse_file_read(const char *path, char **data, size_t *size,
                             struct copse_err *err) COPSE_CHECKED;

/* Prints `thing` to the file `path`, packed by gzip where the name ends with ".gz". The file is
 * written whole or not at all, but for standard output. A symbolic link is followed. Takes little
 * memory. Equal things make equal files. COPSE_IO, also for a loop of links; COPSE_NOMEM where the
 * disk is full. */
copse_status copse_file_print(const char *path, copse_text_printer *print, const void *thing,
                              struct copse_err *err) COPSE_CHECKED;
/* Writes `size` bytes in the same way. */
copse_status copse_file_write(const char *path, const void *data, size_t size,
                              struct copse_err *err) COPSE_CHECKED;

/* Whether a name ends so, and is more than that. */
bool copse_file_ends_with(const char *name, const char *end);

/* Prepares a program's files at its start. A file that is opened then never takes the number of
 * standard input, output or error where that is closed, whose use still fails. A file past the
 * limit of the shell is an error (EFBIG), not the end by SIGXFSZ, so that nothing half made
 * stays. */
void copse_file_begin(void);

/* SIGINT, SIGTERM and SIGHUP, 0 behind them: they wait in this thread until they are released, so
 * that no file is left half made; copse_file_print holds them while it writes. */
extern const int copse_file_endings[];
sigset_t copse_file_hold_endings(void);
void copse_file_release_endings(const sigset_t *before);

/* Returns how messages name an input: the path, or "<stdin>" for "-". */
const char *copse_file_label(const char *path);

/* Makes the path of `name` relative to the folder of `base` (as it is if absolute); the caller
 * frees it. */
copse_status copse_file_beside(const char *base, const char *name, char **out,
                               struct copse_err *err) COPSE_CHECKED;

/* SHA-256 in lower-case hex (FIPS 180-4, by libmd). */
#define COPSE_SHA256_HEX 65
void copse_sha256_hex(const void *data, size_t size, char hex[COPSE_SHA256_HEX]);
#define COPSE_SHA256_BYTES 32
void copse_sha256(const void *data, size_t size, uint8_t digest[COPSE_SHA256_BYTES]);
void copse_sha256_text(const uint8_t digest[COPSE_SHA256_BYTES], char hex[COPSE_SHA256_HEX]);

/* ==== programs as filters ===================================================================== */

/* Another program as a filter: text in, text out, within limits. */

/*
 * Runs argv[0] (looked up in PATH, no shell) with `input` as its standard input; *out gets its
 * standard output, NUL-terminated, which the caller frees. Its standard error is dropped.
 * COPSE_UNSUPPORTED where there is no such program; COPSE_IO where it fails or writes
 * more than max_bytes; COPSE_NOMEM, also where it takes longer than `seconds` and is ended.
 */
copse_status copse_process_filter(char *const argv[], const char *input, size_t input_size,
                                  int seconds, size_t max_bytes, char **out, size_t *out_size,
                                  struct copse_err *err) COPSE_CHECKED;
