/* A folder of files that belong together. */
#ifndef COPSE_CLI_FOLDER_H
#define COPSE_CLI_FOLDER_H

#include "base/err.h"

/* Makes the folder; one that is there is as good. */
copse_status copse_cli_make_folder(const char *folder, struct copse_err *err) COPSE_CHECKED;

/* Writes a file in it, whole or not at all. */
copse_status copse_cli_write_in(const char *folder, const char *name, const char *data, size_t size,
                                struct copse_err *err) COPSE_CHECKED;

#endif
