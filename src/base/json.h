/*
 * JSON input on cJSON, with what copse needs beyond it: the exact digits of numbers,
 * the line of every object and number, and strictness (no duplicate or unknown keys,
 * no control characters, bounded nesting).
 *
 * How: before cJSON parses, a lexical pass rewrites number literals into marked strings
 * that hold line and digits, and gives every object a hidden first member with its
 * line. The pass keeps line breaks, so cJSON's own error position is the file's.
 */
#pragma once

#include <cjson/cJSON.h>

#include "base/err.h"
#include "base/rational.h"

/* Items of an array that are still text. */
struct copse_json_list {
  const char *name; /* the root's key; "/key": that of an object in the root */
  struct copse_json_piece {
    const char *from, *end;
    long line;
  } * items; /* [n] */
  size_t n, capacity;
};
#define COPSE_JSON_LISTS 4

/* One parsed document; `file` is borrowed and names it in messages. */
struct copse_json {
  cJSON *root;
  const char *file;
  struct copse_json_list lists[COPSE_JSON_LISTS];
};

copse_status copse_json_parse(const char *file, const char *data, size_t size,
                              struct copse_json *out, struct copse_err *err) COPSE_CHECKED;
void copse_json_free(struct copse_json *json);

/*
 * Parses the same, but leaves the items of the arrays `names` [COPSE_JSON_LISTS] (NULL: none) as
 * text, to be parsed one by one: a value costs some 150 bytes, and a file may have a hundred
 * million. The arrays are empty in the document. `data` stays the caller's, for as long as items
 * are parsed; an item that is no JSON is found then.
 */
copse_status copse_json_parse_lists(const char *file, const char *data, size_t size,
                                    const char *const names[COPSE_JSON_LISTS],
                                    struct copse_json *out, struct copse_err *err) COPSE_CHECKED;
/* Returns the list of that name; one without items where the document has no such array. */
const struct copse_json_list *copse_json_list(const struct copse_json *json, const char *name);
/* Parses item i, to be freed as a document. */
copse_status copse_json_item(const struct copse_json *json, const struct copse_json_list *list,
                             size_t i, struct copse_json *out, struct copse_err *err) COPSE_CHECKED;
static inline void copse_json_free_at(struct copse_json *json) { copse_json_free(json); }

/* Returns the line of an object or number; for other values that of `parent`, 0 if unknown. */
long copse_json_line(const cJSON *item, const cJSON *parent);

bool copse_json_is_object(const cJSON *item);
bool copse_json_is_array(const cJSON *item);
bool copse_json_is_string(const cJSON *item); /* a real string, not a marked number */
bool copse_json_is_number(const cJSON *item);

/* Returns the member `key`, NULL if there is none. */
const cJSON *copse_json_get(const cJSON *object, const char *key);

/* What the value of a key must be. */
enum copse_json_kind {
  COPSE_JSON_ANY, /* the reader checks it */
  COPSE_JSON_STRING,
  COPSE_JSON_BOOL,
  COPSE_JSON_ARRAY,
  COPSE_JSON_OBJECT,
  COPSE_JSON_NUMBER, /* exact: a number or a string "p/q" */
  COPSE_JSON_POSITIVE,
  COPSE_JSON_NOT_NEGATIVE,
  COPSE_JSON_INDEX, /* an integer from 0 */
  COPSE_JSON_COUNT, /* an integer from 1 */
  COPSE_JSON_KINDS,
  COPSE_JSON_NEEDED = 64 /* or'ed to a kind: the key must be there */
};
/* or'ed to a kind: only these variants of the object, 1, 2, 4 and so on, have the key. */
#define COPSE_JSON_OF(variants) ((unsigned)(variants) << 8)
/* The kind alone. */
#define COPSE_JSON_KIND(kind) ((enum copse_json_kind)((kind) % COPSE_JSON_NEEDED))

/* A key of an object. `is` says in messages what it holds: unit and example. */
struct copse_json_key {
  const char *name;
  unsigned kind;
  const char *is;
};

/*
 * Checks that `item` is an object (`what` names it in messages) and has the keys of a table, which
 * ends with a row of zeros: none else, each once, those that are needed, each value of its kind.
 * The document's root (no parent) may also have "$schema", a string.
 */
copse_status copse_json_expect_object(const struct copse_json *json, const cJSON *item,
                                      const cJSON *parent, const char *what,
                                      const struct copse_json_key keys[],
                                      struct copse_err *err) COPSE_CHECKED;
/* The same for one variant of an object: keys of others alone are unknown to it. A table has at
 * most COPSE_JSON_MOST_KEYS. */
#define COPSE_JSON_MOST_KEYS 24
copse_status copse_json_expect_variant(const struct copse_json *json, const cJSON *item,
                                       const cJSON *parent, const char *what,
                                       const struct copse_json_key keys[], unsigned variant,
                                       struct copse_err *err) COPSE_CHECKED;

/* Gets a member of `object` that has a type, as all of these do. A required member that is missing,
 * and any of the wrong type, is COPSE_BAD_INPUT naming the key and the line. The _or variants give
 * a default for a missing member. Strings are borrowed from the document. */
copse_status copse_json_get_string(const struct copse_json *json, const cJSON *object,
                                   const char *key, const char **out,
                                   struct copse_err *err) COPSE_CHECKED;
copse_status copse_json_get_array(const struct copse_json *json, const cJSON *object,
                                  const char *key, const cJSON **out,
                                  struct copse_err *err) COPSE_CHECKED;
copse_status copse_json_get_bool_or(const struct copse_json *json, const cJSON *object,
                                    const char *key, bool fallback, bool *out,
                                    struct copse_err *err) COPSE_CHECKED;
/* Checks that the document is an object whose member "format" is this one; called before its keys
 * are. */
copse_status copse_json_expect_format(const struct copse_json *json, const char *format,
                                      struct copse_err *err) COPSE_CHECKED;
/* Gets an integer in [min, max]. */
copse_status copse_json_get_int(const struct copse_json *json, const cJSON *object, const char *key,
                                int64_t min, int64_t max, int64_t *out,
                                struct copse_err *err) COPSE_CHECKED;
/* Gets an integer from 0 to n - 1. */
copse_status copse_json_get_index(const struct copse_json *json, const cJSON *object,
                                  const char *key, int n, int *out,
                                  struct copse_err *err) COPSE_CHECKED;
/* Gets an integer from 1 to `most`, if it is there; else *out stays. */
copse_status copse_json_get_count_or(const struct copse_json *json, const cJSON *object,
                                     const char *key, int most, int *out,
                                     struct copse_err *err) COPSE_CHECKED;
/* Gets a number with its exact digits, or a string "p/q". */
copse_status copse_json_get_rational(const struct copse_json *json, const cJSON *object,
                                     const char *key, struct copse_q *out,
                                     struct copse_err *err) COPSE_CHECKED;

/* Gets such a number, if it is there, and not negative (`positive`: above zero); else *out
 * stays. */
copse_status copse_json_get_amount_or(const struct copse_json *json, const cJSON *object,
                                      const char *key, bool positive, struct copse_q *out,
                                      struct copse_err *err) COPSE_CHECKED;

/* Reads the exact value of a number item or "p/q" string; `what` names it in messages. */
copse_status copse_json_rational(const struct copse_json *json, const cJSON *item,
                                 const cJSON *parent, const char *what, struct copse_q *out,
                                 struct copse_err *err) COPSE_CHECKED;
/* Reads the value of a number item that is an integer in [min, max]. */
copse_status copse_json_int(const struct copse_json *json, const cJSON *item, const cJSON *parent,
                            const char *what, int64_t min, int64_t max, int64_t *out,
                            struct copse_err *err) COPSE_CHECKED;

/* Returns a member, or `otherwise` where it is missing or of another type, for texts of tools that
 * vary. */
int64_t copse_json_int_or(const struct copse_json *json, const cJSON *object, const char *key,
                          int64_t otherwise); /* not negative */
const char *copse_json_text_or(const cJSON *object, const char *key, const char *otherwise);

/* Iterates over the real members of an object or the elements of an array. */
#define COPSE_JSON_EACH(item, container)                                           \
  for (const cJSON *item = (container) ? copse_json_first(container) : NULL; item; \
       item = item->next)
const cJSON *copse_json_first(const cJSON *container);
