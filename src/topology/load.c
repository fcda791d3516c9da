/* Where a topology comes from: a file or memory, told apart by content. */
#include <stdlib.h>
#include <string.h>

#include "topology/topology_builder.h"

static const struct copse_topology_options default_options = {COPSE_LINKS_DEFAULT, NULL};

/* The first byte that counts, or 0 where there is none. */
static char first_byte(const char *data, size_t size) {
  size_t at = size >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* a BOM */
  while (at < size && data[at] != '\0' && strchr(" \t\r\n", data[at])) at++;
  return at < size ? data[at] : '\0';
}

static bool is_blank(const char *data, size_t size) {
  return first_byte(data, size) == '\0' && memchr(data, '\0', size) == NULL;
}

static copse_status parse_at(const char *label, const char *data, size_t size,
                             const struct copse_topology_options *options, int depth,
                             struct copse_topology **out, struct copse_err *err) {
  if (!options) options = &default_options;
  switch (first_byte(data, size)) {
    case '<': return copse_read_nccl_xml(label, data, size, options, out, err);
    case '{':
    case '[': return copse_read_topology_json(label, data, size, options, depth, out, err);
    default: break;
  }
  if (is_blank(data, size))
    return copse_fail_at(err, COPSE_BAD_INPUT, label, 1,
                         "empty, where topology JSON or NCCL topology XML was expected");
  return copse_fail_at(err, COPSE_BAD_INPUT, label, 1,
                       "neither topology JSON (which begins with '{') nor NCCL topology XML "
                       "(which begins with '<')");
}

copse_status copse_topology_parse(const char *label, const char *data, size_t size,
                                  const struct copse_topology_options *options,
                                  struct copse_topology **out, struct copse_err *err) {
  *out = NULL;
  return parse_at(label, data, size, options, 0, out, err);
}

copse_status copse_topology_load_at(const char *path, const struct copse_topology_options *options,
                                    int depth, struct copse_topology **out, struct copse_err *err) {
  char *data = NULL;
  size_t size = 0;
  *out = NULL;
  copse_status status = copse_file_read(path, &data, &size, err);
  if (status == COPSE_OK)
    status = parse_at(copse_file_label(path), data, size, options, depth, out, err);
  free(data);
  return status;
}

copse_status copse_topology_load(const char *path, const struct copse_topology_options *options,
                                 struct copse_topology **out, struct copse_err *err) {
  return copse_topology_load_at(path, options, 0, out, err);
}
