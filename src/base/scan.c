/* Reading of text a piece at a time; numbers by the exact decimals of base/rational.h. */
#include "base/scan.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

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

/* "1e+06" is C's; the decimals of base/rational.h take JSON's form, which has it too. */
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
