/* A growable text buffer that writers print into (failure is kept and reported once), or one that
 * passes on what they print a piece at a time. And a reader of the text that tools print, line by
 * line and word by word, without the escape sequences of terminals (nvidia-smi underlines its
 * header). */
#pragma once

#include "base/err.h"
#include "base/memory.h"
#include "base/rational.h"

/* Zero-initialise; free `data` with copse_text_free. */
struct copse_text {
  char *data; /* NUL-terminated once anything was added */
  size_t size, capacity;
  bool failed; /* memory ran out, or `pass` failed; further additions do nothing */
  /* Where text goes that has gathered; NULL: it stays. False after a failure. */
  bool (*pass)(void *to, const char *data, size_t size);
  void *to;
};
/* Prints a thing into a text: twice the same. */
typedef void copse_text_printer(const void *thing, struct copse_text *text);
/* Passes on what is left. */
void copse_text_end(struct copse_text *text);
/* Returns how many bytes a printer prints. */
size_t copse_text_measure(copse_text_printer *print, const void *thing);

void copse_text_add(struct copse_text *text, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Appends `n` bytes as they are; the fast way for long runs. */
void copse_text_append(struct copse_text *text, const char *bytes, size_t n);
/* How a document of ours begins: its format, and its schema, which docs/schemas has. */
#define COPSE_JSON_HEAD(name) \
  "{\"format\": \"copse-" name "/1\", \"$schema\": \"urn:copse:schema:" name ":1\""
/* "1 rank", "2 ranks". */
#define COPSE_S(n) ((n) == 1 ? "" : "s")

/* Appends `s` as a JSON string, quotes included. */
void copse_text_add_json_string(struct copse_text *text, const char *s);
/* Appends `s` as text of XML or an attribute's value: markup is escaped, and what XML can't have
 * (control characters, bytes that are no UTF-8) becomes U+FFFD. */
void copse_text_add_xml(struct copse_text *text, const char *s);
/* Appends `s` as one word of a shell's command line: in quotes where it needs them. */
void copse_text_add_shell(struct copse_text *text, const char *s);
/* Counts the characters of UTF-8 text. */
size_t copse_text_characters(const char *s);
/* Appends `v` as a JSON number with up to 10 significant digits, or null where it isn't finite. */
void copse_text_add_json_number(struct copse_text *text, double v);
/* Returns COPSE_NOMEM if any addition failed. */
copse_status copse_text_status(const struct copse_text *text, struct copse_err *err) COPSE_CHECKED;
/* Hands the text and its length to the caller, who frees it; COPSE_NOMEM, and then nothing, if any
 * addition failed. Either way the buffer is empty afterwards. */
copse_status copse_text_take(struct copse_text *text, char **out, size_t *size,
                             struct copse_err *err) COPSE_CHECKED;
void copse_text_free(struct copse_text *text);

/* A line for people, which ends where its room does. Zero-initialise. */
struct copse_line {
  char text[480];
  size_t used;
};
void copse_line_add(struct copse_line *line, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Returns formatted text in the arena's memory; NULL when memory ran out. */
char *copse_arena_printf(struct copse_arena *arena, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Reads the decimal number of 1 to `most` digits (18 at most) at *at, which is moved behind it;
 * returns false, and moves nothing, where there is none or a longer one. */
bool copse_text_number(const char **at, int most, int64_t *out);

/* Counts the characters that must be inserted, removed, replaced or swapped with the next to make b
 * of a; capitals and small letters are the same. Words of more than 63 characters are cut there. */
int copse_text_edits(const char *a, const char *b);
/* Whether b may be meant where a was written: few edits for the length. */
bool copse_text_is_near(const char *a, const char *b);

/* The one of several names that may be meant. Initialise .given, consider the names one by one;
 * `name` then is the nearest, the first of several, or NULL if none is near. */
struct copse_near_name {
  const char *given, *name; /* name: as it was considered, not copied */
  int edits;
};
void copse_near_name_consider(struct copse_near_name *nearest, const char *name);

/* Returns the bytes of the UTF-8 character at p, 0 if it is none (overlong forms and surrogates
 * too). */
int copse_utf8_length(const char *text, const char *end);
/* Whether the text is UTF-8 without control characters: what a name may be that JSON is to
 * carry. */
bool copse_text_prints(const char *text);
struct copse_lines {
  char *text; /* a copy, cut up by reading */
  char *next;
  long line; /* of what copse_lines_next last returned */
};

/* Refuses text with NUL bytes. Release with copse_lines_free, whatever the outcome. */
copse_status copse_lines_open(const char *file, const char *data, size_t size,
                              struct copse_lines *out, struct copse_err *err) COPSE_CHECKED;
void copse_lines_free(struct copse_lines *lines);

/* Returns the next line without its end, or NULL. */
char *copse_lines_next(struct copse_lines *lines);

/* Cuts a line at blanks; at most `max` words are stored, all are counted. */
int copse_split_words(char *line, char **words, int max);

/* Returns the number of a word: "GPU12" with prefix "GPU" is 12; -1 for anything else, and from a
 * million on. */
int copse_numbered(const char *word, const char *prefix);

/*
 * Reading of text without changing it, a piece at a time. Each function moves the place behind the
 * text that it has read, or leaves the place and returns false.
 */

/* The rest of a text, such as a line without its end. */
struct copse_scan {
  const char *at, *end;
};

/* Takes the next line of a text without its end ("\n" or "\r\n"); false at the end of the text. */
bool copse_scan_line(struct copse_scan *text, struct copse_scan *line);

void copse_scan_blanks(struct copse_scan *s);
bool copse_scan_is_empty(const struct copse_scan *s); /* but for blanks */
/* Takes these bytes, as they are. */
bool copse_scan_literal(struct copse_scan *s, const char *literal);
/* Moves behind the first place of `text`. */
bool copse_scan_to(struct copse_scan *s, const char *text);
bool copse_scan_begins(const struct copse_scan *s, const char *literal);
/* Takes a decimal, a minus before it if `negative`, of at most 18 digits. */
bool copse_scan_int(struct copse_scan *s, bool negative, int64_t *out);
/* Takes the same in the range of ints, not negative but for -1. */
bool copse_scan_index(struct copse_scan *s, int *out);
/* Takes a hexadecimal number with or without 0x, at most 16 digits. */
bool copse_scan_hex(struct copse_scan *s, uint64_t *out);
/* Takes the bytes up to the next blank: at least one. */
bool copse_scan_word(struct copse_scan *s, struct copse_scan *word);
/* Whether a piece is this text. */
bool copse_scan_is(const struct copse_scan *s, const char *text);
/* Reads the exact value of a piece such as "12.50", "1e+06" or "-3". */
bool copse_scan_decimal(const struct copse_scan *piece, struct copse_q *out);
/* Takes the next word as such a number. */
bool copse_scan_number(struct copse_scan *s, struct copse_q *out);

/* Copies a piece. */
copse_status copse_scan_text(struct copse_arena *arena, const struct copse_scan *piece,
                             const char **out, struct copse_err *err) COPSE_CHECKED;
