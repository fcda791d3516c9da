/* Lines and words of what tools print, without the escape sequences of terminals. */
#include "topology/input/text_lines.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"

/* ESC [ parameters letter; of nvidia-smi's underlining also what pasting leaves of it. */
static size_t escape_length(const char *p, const char *end) {
  if (end - p >= 3 && (memcmp(p, "[4m", 3) == 0 || memcmp(p, "[0m", 3) == 0)) return 3;
  if (end - p < 2 || p[0] != 033 || p[1] != '[') return 0;
  const char *q = p + 2;
  while (q < end && *q >= 0x20 && *q < 0x40) q++;
  return q < end ? (size_t)(q - p) + 1 : 0;
}

copse_status copse_lines_open(const char *file, const char *data, size_t size,
                              struct copse_lines *out, struct copse_err *err) {
  *out = (struct copse_lines){0};
  if (memchr(data, '\0', size))
    return copse_fail_at(err, COPSE_BAD_INPUT, file, 0, "a NUL byte in text; it is binary");
  COPSE_DO(copse_calloc(size + 1, 1, &out->text, err));
  char *to = out->text;
  for (const char *p = data, *end = data + size; p < end;) {
    size_t escape = escape_length(p, end);
    if (escape > 0)
      p += escape;
    else
      *to++ = *p++;
  }
  *to = '\0';
  out->next = out->text;
  return COPSE_OK;
}

void copse_lines_free(struct copse_lines *lines) {
  free(lines->text);
  lines->text = NULL;
}

char *copse_lines_next(struct copse_lines *lines) {
  char *line = lines->next;
  if (!line || !*line) return NULL;
  lines->line++;
  char *end = strchr(line, '\n');
  lines->next = end ? end + 1 : line + strlen(line);
  if (end) *end = '\0';
  size_t n = strlen(line);
  if (n > 0 && line[n - 1] == '\r') line[n - 1] = '\0';
  return line;
}

int copse_split_words(char *line, char **words, int max) {
  char *save = NULL;
  int n = 0;
  for (char *p = strtok_r(line, " \t\r\v\f", &save); p; p = strtok_r(NULL, " \t\r\v\f", &save)) {
    if (n < max) words[n] = p;
    n++;
  }
  return n;
}

int copse_numbered(const char *word, const char *prefix) {
  size_t n = strlen(prefix);
  int64_t number;
  if (strncmp(word, prefix, n) != 0) return -1;
  word += n;
  return copse_text_number(&word, 6, &number) && !*word ? (int)number : -1;
}
