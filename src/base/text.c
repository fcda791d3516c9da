#include "base/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

void copse_text_add(struct copse_text *text, const char *fmt, ...) {
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
  if (text->failed) return;
  if (copse_grow(&text->data, &text->capacity, text->size + n + 1, 1, NULL) != COPSE_OK) {
    text->failed = true;
    return;
  }
  memcpy(text->data + text->size, bytes, n);
  text->size += n;
  text->data[text->size] = '\0';
}

void copse_text_add_json_string(struct copse_text *text, const char *s) {
  copse_text_add(text, "\"");
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
  copse_text_add(text, "%s\"", from);
}

/* The length of the character at s that XML allows, 0 if there is none. */
static size_t xml_character(const unsigned char *s) {
  static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
  if (s[0] < 0x80) return s[0] >= 0x20 || s[0] == '\t' || s[0] == '\n' ? 1 : 0;
  size_t n = s[0] >= 0xf8 ? 0 : s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : s[0] >= 0xc0 ? 2 : 0;
  unsigned code = n ? s[0] & (0xffu >> (n + 1)) : 0;
  for (size_t i = 1; i < n; i++) {
    if ((s[i] & 0xc0) != 0x80) return 0;
    code = code << 6 | (s[i] & 0x3f);
  }
  bool surrogate = code >= 0xd800 && code < 0xe000, none = code == 0xfffe || code == 0xffff;
  return n == 0 || code < least[n] || code > 0x10ffff || surrogate || none ? 0 : n;
}

void copse_text_add_xml(struct copse_text *text, const char *s) {
  while (*s) {
    size_t n = xml_character((const unsigned char *)s);
    switch (*s) {
      case '&': copse_text_add(text, "&amp;"); break;
      case '<': copse_text_add(text, "&lt;"); break;
      case '>': copse_text_add(text, "&gt;"); break;
      case '"': copse_text_add(text, "&quot;"); break;
      case '\'': copse_text_add(text, "&#39;"); break;
      default:
        if (n > 0)
          copse_text_append(text, s, n);
        else
          copse_text_add(text, "\xef\xbf\xbd");
    }
    s += n > 0 ? n : 1;
  }
}

size_t copse_utf8_length(const char *s) {
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

void copse_text_free(struct copse_text *text) {
  free(text->data);
  *text = (struct copse_text){0};
}
