#include "cli/folder.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/text.h"

copse_status copse_cli_make_folder(const char *folder, struct copse_err *err) {
  struct stat about;
  if (mkdir(folder, 0777) == 0) return COPSE_OK;
  int why = errno;
  if (why == EEXIST && stat(folder, &about) == 0 && S_ISDIR(about.st_mode)) return COPSE_OK;
  return copse_fail_at(err, COPSE_IO, folder, 0, "cannot be made a folder: %s", strerror(why));
}

void copse_cli_remove_in(const char *folder, const char *name) {
  struct copse_text path = {0};
  copse_text_add(&path, "%s/%s", folder, name);
  if (!path.failed) remove(path.data);
  copse_text_free(&path);
}

copse_status copse_cli_write_in(const char *folder, const char *name, const void *data, size_t size,
                                struct copse_err *err) {
  struct copse_text path = {0};
  copse_text_add(&path, "%s/%s", folder, name);
  copse_status status = copse_text_status(&path, err);
  if (status == COPSE_OK) status = copse_file_write(path.data, data, size, err);
  copse_text_free(&path);
  return status;
}
