/* Folders that commands write sets of files into. */
#ifndef COPSE_CLI_FOLDER_H
#define COPSE_CLI_FOLDER_H

#include <stddef.h>

#include "base/err.h"

/* Makes it, unless it is there. COPSE_IO. */
copse_status copse_cli_make_folder(const char *folder, struct copse_err *err) COPSE_CHECKED;

/* Whole or not at all, as copse_file_write. */
copse_status copse_cli_write_in(const char *folder, const char *name, const void *data, size_t size,
                                struct copse_err *err) COPSE_CHECKED;

/* Takes it away again, if it is there. */
void copse_cli_remove_in(const char *folder, const char *name);

#endif
