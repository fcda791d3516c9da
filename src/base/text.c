/*
 * The growable text buffer, and what writers escape: JSON strings and numbers (RFC 8259), XML,
 * UTF-8 (RFC 3629). Lines and words of what tools print, without the escape sequences of terminals.
 */
#include "base/text.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes that gather before they are passed on. */
#define PIECE ((size_t)1 << 16)

void copse_text_end(struct copse_text *text) {
  if (!text->failed && text->size > 0) text->failed = !text->pass(text->to, text->data, text->size);
  text->size = 0;
}

static bool count(void *to, const char *data, size_t size) {
  (void)data;
  *(size_t *)to += size;
  return true;
}

size_t copse_text_measure(copse_text_printer *print, const void *thing) {
  size_t size = 0;
  struct copse_text text = {.pass = count, .to = &size};
  print(thing, &text);
  copse_text_end(&text);
  copse_text_free(&text);
  return size;
}

void copse_text_add(struct copse_text *text, const char *fmt, ...) {
  if (text->pass && text->size >= PIECE) copse_text_end(text);
  if (text->failed) return;
  for (int attempt = 0; attempt < 2; attempt++) {
    size_t room = text->capacity - text->size;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text->data ? text->data + text->size : NULL, text->data ? room : 0, fmt, ap);
    va_end(ap);
    if (n < 0) break;
    if ((size_t)n < room) {
      text->size += (size_t)n;
      return;
    }
    if (copse_grow(&text->data, &text->capacity, text->size + (size_t)n + 1, 1, NULL) != COPSE_OK)
      break;
  }
  text->failed = true;
}

void copse_text_append(struct copse_text *text, const char *bytes, size_t n) {
  if (text->pass && text->size + n >= PIECE) copse_text_end(text);
  if (text->failed) return;
  if (text->pass && n >= PIECE) {
    text->failed = !text->pass(text->to, bytes, n);
    return;
  }
  if (copse_grow(&text->data, &text->capacity, text->size + n + 1, 1, NULL) != COPSE_OK) {
    text->failed = true;
    return;
  }
  if (n > 0) memcpy(text->data + text->size, bytes, n); /* an empty text has no bytes */
  text->size += n;
  text->data[text->size] = '\0';
}

void copse_text_add_json_string(struct copse_text *text, const char *s) {
  copse_text_append(text, "\"", 1);
  const char *from = s;
  for (; *s; s++) {
    unsigned char c = (unsigned char)*s;
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    copse_text_append(text, from, (size_t)(s - from));
    if (c < 0x20)
      copse_text_add(text, "\\u%04x", c);
    else
      copse_text_add(text, "\\%c", c);
    from = s + 1;
  }
  copse_text_append(text, from, (size_t)(s - from));
  copse_text_append(text, "\"", 1);
}

/* Returns the bytes of the character at s that XML allows, 0 if it is none. */
static int xml_character(const char *s, const char *end) {
  int n = copse_utf8_length(s, end);
  bool control = n == 1 && (unsigned char)*s < 0x20 && *s != '\t' && *s != '\n';
  bool none = n == 3 && memcmp(s, "\xef\xbf", 2) == 0 && (unsigned char)s[2] >= 0xbe;
  return control || none ? 0 : n;
}

void copse_text_add_shell(struct copse_text *text, const char *s) {
  bool plain = *s && !s[strcspn(s, " \t\r\n>&;|*?[]$<'\"()\\`#~!{}")];
  copse_text_add(text, "%s", plain ? "" : "'");
  for (const char *p = s; *p; p++)
    if (*p == '\'')
      copse_text_add(text, "'\\''");
    else
      copse_text_append(text, p, 1);
  copse_text_add(text, "%s", plain ? "" : "'");
}

void copse_text_add_xml(struct copse_text *text, const char *s) {
  for (const char *end = s + strlen(s); s < end;) {
    int n = xml_character(s, end);
    switch (*s) {
      case '&': copse_text_add(text, "&amp;"); break;
      case '<': copse_text_add(text, "&lt;"); break;
      case '>': copse_text_add(text, "&gt;"); break;
      case '"': copse_text_add(text, "&quot;"); break;
      case '\'': copse_text_add(text, "&#39;"); break;
      default:
        if (n > 0)
          copse_text_append(text, s, (size_t)n);
        else
          copse_text_add(text, "\xef\xbf\xbd");
    }
    s += n > 0 ? n : 1;
  }
}

size_t copse_text_characters(const char *s) {
  size_t n = 0;
  for (; *s; s++) n += ((unsigned char)*s & 0xc0) != 0x80;
  return n;
}

void copse_text_add_json_number(struct copse_text *text, double v) {
  if (isfinite(v))
    copse_text_add(text, "%.10g", v);
  else
    copse_text_add(text, "null");
}

copse_status copse_text_status(const struct copse_text *text, struct copse_err *err) {
  return text->failed ? copse_fail_nomem(err) : COPSE_OK;
}

copse_status copse_text_take(struct copse_text *text, char **out, size_t *size,
                             struct copse_err *err) {
  COPSE_AT_END(copse_text_free) struct copse_text taken = *text;
  *text = (struct copse_text){0};
  COPSE_DO(copse_text_status(&taken, err));
  *out = taken.data;
  *size = taken.size;
  taken.data = NULL;
  return COPSE_OK;
}

void copse_text_free(struct copse_text *text) {
  free(text->data);
  *text = (struct copse_text){0};
}

void copse_line_add(struct copse_line *line, const char *fmt, ...) {
  const size_t room = sizeof line->text - line->used;
  va_list list;
  va_start(list, fmt);
  int n = vsnprintf(line->text + line->used, room, fmt, list);
  va_end(list);
  line->used += n < (int)room ? (size_t)n : room - 1;
}

char *copse_arena_printf(struct copse_arena *arena, const char *fmt, ...) {
  va_list ap, again;
  va_start(ap, fmt);
  va_copy(again, ap);
  int n = vsnprintf(NULL, 0, fmt, ap);
  char *text = n < 0 ? NULL : copse_arena_alloc(arena, (size_t)n + 1, 1);
  if (text) vsnprintf(text, (size_t)n + 1, fmt, again);
  va_end(ap);
  va_end(again);
  return text;
}

bool copse_text_number(const char **at, int most, int64_t *out) {
  int digits = (int)strspn(*at, "0123456789");
  if (digits < 1 || digits > most) return false;
  *out = 0;
  for (; digits > 0; digits--) *out = *out * 10 + (*(*at)++ - '0');
  return true;
}

#define MOST_EDITED 63

int copse_text_edits(const char *a, const char *b) {
  int rows[3][MOST_EDITED + 1], *before = rows[0], *last = rows[1], *row = rows[2];
  int n = (int)strnlen(a, MOST_EDITED), m = (int)strnlen(b, MOST_EDITED);
  for (int j = 0; j <= m; j++) last[j] = j;
  for (int i = 1; i <= n; i++) {
    row[0] = i;
    for (int j = 1; j <= m; j++) {
      int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
      int least = last[j - 1] + (x != y);
      if (last[j] + 1 < least) least = last[j] + 1;
      if (row[j - 1] + 1 < least) least = row[j - 1] + 1;
      bool swapped = i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
                     y == tolower((unsigned char)a[i - 2]);
      if (swapped && before[j - 2] + 1 < least) least = before[j - 2] + 1;
      row[j] = least;
    }
    int *free_row = before;
    before = last;
    last = row;
    row = free_row;
  }
  return last[m];
}

bool copse_text_is_near(const char *a, const char *b) {
  size_t m = strlen(a), n = strlen(b) < m ? strlen(b) : m;
  return copse_text_edits(a, b) <= (n < 4 ? 1 : n < 9 ? 2 : 3);
}

int copse_utf8_length(const char *text, const char *end) {
  const unsigned char *p = (const unsigned char *)text;
  ptrdiff_t left = end - text;
  int n = p[0] < 0x80   ? 1
          : p[0] < 0xc2 ? 0
          : p[0] < 0xe0 ? 2
          : p[0] < 0xf0 ? 3
          : p[0] < 0xf5 ? 4
                        : 0;
  if (n == 0 || n > left) return 0;
  for (int i = 1; i < n; i++)
    if ((p[i] & 0xc0) != 0x80) return 0;
  if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f)) return 0;
  if ((p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f)) return 0;
  return n;
}

bool copse_text_prints(const char *text) {
  const char *end = text + strlen(text);
  while (text < end) {
    int n = copse_utf8_length(text, end);
    if (n == 0 || (n == 1 && ((unsigned char)*text < 0x20 || *text == 0x7f))) return false;
    text += n;
  }
  return true;
}

/* Measures an escape sequence: ESC [ parameters letter; of nvidia-smi's underlining also what
 * pasting leaves of it. */
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

/* ---- near names ---------------------------------------------------------------------------- */

void copse_near_name_consider(struct copse_near_name *nearest, const char *name) {
  int edits = copse_text_edits(nearest->given, name);
  if (!copse_text_is_near(nearest->given, name) || (nearest->name && edits >= nearest->edits))
    return;
  nearest->name = name;
  nearest->edits = edits;
}

/* ---- a piece at a time ---------------------------------------------------------------------- */

/* Reading of text a piece at a time; numbers by the exact decimals of base/rational.h. */

bool copse_scan_line(struct copse_scan *text, struct copse_scan *line) {
  if (text->at >= text->end) return false;
  const char *end = memchr(text->at, '\n', (size_t)(text->end - text->at));
  *line = (struct copse_scan){text->at, end ? end : text->end};
  text->at = end ? end + 1 : text->end;
  if (line->end > line->at && line->end[-1] == '\r') line->end--;
  return true;
}

void copse_scan_blanks(struct copse_scan *s) {
  while (s->at < s->end && (*s->at == ' ' || *s->at == '\t')) s->at++;
}

bool copse_scan_is_empty(const struct copse_scan *s) {
  struct copse_scan rest = *s;
  copse_scan_blanks(&rest);
  return rest.at == rest.end;
}

bool copse_scan_begins(const struct copse_scan *s, const char *literal) {
  size_t n = strlen(literal);
  return (size_t)(s->end - s->at) >= n && memcmp(s->at, literal, n) == 0;
}

bool copse_scan_literal(struct copse_scan *s, const char *literal) {
  if (!copse_scan_begins(s, literal)) return false;
  s->at += strlen(literal);
  return true;
}

bool copse_scan_to(struct copse_scan *s, const char *text) {
  size_t n = strlen(text);
  const char *found = memmem(s->at, (size_t)(s->end - s->at), text, n);
  if (found) s->at = found + n;
  return found != NULL;
}

bool copse_scan_int(struct copse_scan *s, bool negative, int64_t *out) {
  const char *p = s->at;
  bool minus = negative && p < s->end && *p == '-';
  const char *first = p += minus;
  int64_t value = 0;
  while (p < s->end && *p >= '0' && *p <= '9' && p - first < 18) value = value * 10 + (*p++ - '0');
  if (p == first || (p < s->end && *p >= '0' && *p <= '9')) return false;
  *out = minus ? -value : value;
  s->at = p;
  return true;
}

bool copse_scan_index(struct copse_scan *s, int *out) {
  struct copse_scan rest = *s;
  int64_t value;
  if (!copse_scan_int(&rest, true, &value) || value < -1 || value > INT_MAX - 1) return false;
  *out = (int)value;
  *s = rest;
  return true;
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = (char)(c | 32);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool copse_scan_hex(struct copse_scan *s, uint64_t *out) {
  struct copse_scan rest = *s;
  copse_scan_literal(&rest, "0x");
  const char *first = rest.at;
  uint64_t value = 0;
  while (rest.at < rest.end && hex_digit(*rest.at) >= 0 && rest.at - first < 16)
    value = value << 4 | (uint64_t)hex_digit(*rest.at++);
  if (rest.at == first || (rest.at < rest.end && hex_digit(*rest.at) >= 0)) return false;
  *out = value;
  *s = rest;
  return true;
}

bool copse_scan_word(struct copse_scan *s, struct copse_scan *word) {
  struct copse_scan rest = *s;
  copse_scan_blanks(&rest);
  word->at = rest.at;
  while (rest.at < rest.end && *rest.at != ' ' && *rest.at != '\t') rest.at++;
  word->end = rest.at;
  if (word->at == word->end) return false;
  *s = rest;
  return true;
}

bool copse_scan_is(const struct copse_scan *s, const char *text) {
  return (size_t)(s->end - s->at) == strlen(text) && copse_scan_begins(s, text);
}

/* Takes C's "1e+06" too, as JSON's form has it, in which the decimals of base/rational.h are
 * read. */
bool copse_scan_decimal(const struct copse_scan *piece, struct copse_q *out) {
  char text[48];
  size_t n = (size_t)(piece->end - piece->at);
  if (n == 0 || n >= sizeof text || memchr(piece->at, '\0', n)) return false;
  memcpy(text, piece->at, n);
  text[n] = '\0';
  return copse_q_parse_decimal(text, out, NULL) == COPSE_OK;
}

bool copse_scan_number(struct copse_scan *s, struct copse_q *out) {
  struct copse_scan rest = *s, word;
  if (!copse_scan_word(&rest, &word) || !copse_scan_decimal(&word, out)) return false;
  *s = rest;
  return true;
}

copse_status copse_scan_text(struct copse_arena *arena, const struct copse_scan *piece,
                             const char **out, struct copse_err *err) {
  *out = copse_arena_printf(arena, "%.*s", (int)copse_smaller(piece->end - piece->at, 4096),
                            piece->at);
  return *out ? COPSE_OK : copse_fail_nomem(err);
}
