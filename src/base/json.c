/*
 * JSON (RFC 8259) by cJSON, which keeps no lines and reads numbers as doubles. So the text is
 * checked and rewritten first: a number becomes a marked string, read exactly later, and every
 * object gets a member with its line, which refusals name.
 */
#include "base/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* Marks that no document can contain: strings with control characters are refused, so a
 * string that begins with MARK is a rewritten number and a key of MARK is a line. */
#define MARK '\x01'
#define LINE_KEY "\x01"
#define MAX_DEPTH 64

/* Values cost cJSON some 150 bytes each; no input that copse can use has this many. */
#define MAX_VALUES (1 << 26)

struct pass {
  const char *file, *p, *end;
  long line;
  char nesting[MAX_DEPTH]; /* '{' or '[' */
  int depth;
  int values;       /* commas and containers seen: within a factor of two of cJSON's items */
  const char *name; /* the last string, without quotes */
  size_t name_size;
  struct copse_json_list *lists; /* NULL: none */
  struct copse_text out;
  struct copse_err *err;
};

static copse_status refuse(const struct pass *s, const char *what) {
  return copse_fail_at(s->err, COPSE_BAD_INPUT, s->file, s->line, "%s", what);
}

/* Whether \u0000 to \u001f stands here: it would bring control characters (and our marks) past the
 * check of raw bytes. */
static bool escapes_control(const char *p, const char *end) {
  return end - p >= 6 && p[1] == 'u' && p[2] == '0' && p[3] == '0' && (p[4] == '0' || p[4] == '1');
}

static copse_status copy_string(struct pass *s) {
  const char *from = s->p++;
  for (; s->p < s->end && *s->p != '"'; s->p++) {
    int n = copse_utf8_length(s->p, s->end);
    if (n == 0) return refuse(s, "a string that is not UTF-8");
    s->p += n - 1;
    if ((unsigned char)*s->p < 0x20) return refuse(s, "a control character inside a string");
    if (*s->p != '\\') continue;
    if (escapes_control(s->p, s->end)) return refuse(s, "a control character inside a string");
    if (++s->p == s->end) break;
  }
  if (s->p >= s->end) return refuse(s, "the file ends inside a string");
  s->p++;
  copse_text_append(&s->out, from, (size_t)(s->p - from));
  s->name = from + 1;
  s->name_size = (size_t)(s->p - from) - 2;
  return COPSE_OK;
}

static bool in_number(char c) {
  return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

/* Returns the next byte that is no white space, 0 at the end. */
static char next_byte(const char *p, const char *end) {
  while (p < end && *p && strchr(" \t\r\n", *p)) p++;
  return p < end ? *p : '\0';
}

/* Copies a number's digits as they are; whoever asks for the value checks them. */
static copse_status mark_number(struct pass *s) {
  const char *from = s->p;
  while (s->p < s->end && in_number(*s->p)) s->p++;
  if (s->p - from > 400) return refuse(s, "a number of more than 400 digits");
  /* Rewritten to a string it would pass for a key. */
  if (next_byte(s->p, s->end) == ':') return refuse(s, "a number where a key was expected");
  copse_text_add(&s->out, "\"%c%ld:%.*s\"", MARK, s->line, (int)(s->p - from), from);
  return COPSE_OK;
}

/* Whether an object is empty: it must not get "line", and then a comma before '}'. */
static bool next_is_brace(const struct pass *s) { return next_byte(s->p + 1, s->end) == '}'; }

static copse_status open_container(struct pass *s) {
  if (s->depth == MAX_DEPTH) return refuse(s, "nested more than 64 levels deep");
  if (++s->values > MAX_VALUES) return refuse(s, "more than 64 million values");
  s->nesting[s->depth++] = *s->p;
  if (*s->p == '[')
    copse_text_add(&s->out, "[");
  else
    copse_text_add(&s->out, "{\"%s\":\"%ld\"%s", LINE_KEY, s->line, next_is_brace(s) ? "" : ",");
  s->p++;
  return COPSE_OK;
}

static copse_status close_container(struct pass *s) {
  char opener = *s->p == '}' ? '{' : '[';
  if (s->depth == 0 || s->nesting[s->depth - 1] != opener)
    return refuse(s, *s->p == '}' ? "'}' closes nothing" : "']' closes nothing");
  s->depth--;
  copse_text_append(&s->out, s->p++, 1);
  return COPSE_OK;
}

/* ---- lists that stay text ------------------------------------------------------------------ */

/* Finds the list that an array is which begins here, or NULL. */
static struct copse_json_list *find_list(const struct pass *s) {
  if (!s->lists || !s->name || s->depth < 1 || s->depth > 2) return NULL;
  if (s->nesting[0] != '{' || s->nesting[s->depth - 1] != '{') return NULL;
  for (int i = 0; i < COPSE_JSON_LISTS; i++) {
    const char *name = s->lists[i].name;
    if (!name || (*name == '/') != (s->depth == 2)) continue;
    name += *name == '/';
    if (strlen(name) == s->name_size && memcmp(name, s->name, s->name_size) == 0)
      return &s->lists[i];
  }
  return NULL;
}

/* Moves behind a string, or to the end. */
static void skip_string(struct pass *s) {
  for (s->p++; s->p < s->end && *s->p != '"'; s->p++) {
    s->line += *s->p == '\n';
    if (*s->p == '\\' && s->p + 1 < s->end) s->p++;
  }
  if (s->p < s->end) s->p++;
}

/* Skips to the comma or bracket that ends an item. */
static void skip_item(struct pass *s) {
  int depth = 0;
  while (s->p < s->end) {
    char c = *s->p;
    if (c == '"') {
      skip_string(s);
      continue;
    }
    if (depth == 0 && (c == ',' || c == ']' || c == '}')) return;
    depth += c == '{' || c == '[';
    depth -= c == '}' || c == ']';
    s->line += c == '\n';
    s->p++;
  }
}

static void skip_space(struct pass *s) {
  for (; s->p < s->end && *s->p && strchr(" \t\r\n", *s->p); s->p++) s->line += *s->p == '\n';
}

/* Keeps a list as text. Brackets of other kinds than they were opened by are found when an item is
 * parsed. */
static copse_status keep_list(struct pass *s, struct copse_json_list *list) {
  long before = s->line;
  s->p++;
  skip_space(s);
  for (bool more = s->p < s->end && *s->p != ']'; more;) {
    COPSE_DO(COPSE_GROW(list->items, list->capacity, list->n + 1, s->err));
    struct copse_json_piece *it = &list->items[list->n++];
    *it = (struct copse_json_piece){.from = s->p, .line = s->line};
    skip_item(s);
    it->end = s->p;
    more = s->p < s->end && *s->p == ',';
    if (more) s->p++;
    if (more) skip_space(s);
  }
  if (s->p == s->end) return refuse(s, "the file ends inside an object or array");
  if (*s->p != ']') return refuse(s, "'}' closes nothing");
  s->p++;
  copse_text_add(&s->out, "[]");
  for (; before < s->line; before++) copse_text_append(&s->out, "\n", 1);
  return COPSE_OK;
}

/* ---- the pass ------------------------------------------------------------------------------ */

/* Reads one token, or a run of bytes that are copied as they are. */
static copse_status step(struct pass *s) {
  char c = *s->p;
  if (c == '"') return copy_string(s);
  if (c == '-' || (c >= '0' && c <= '9')) return mark_number(s);
  struct copse_json_list *list = c == '[' ? find_list(s) : NULL;
  if (list) return keep_list(s, list);
  if (c == '{' || c == '[') return open_container(s);
  if (c == '}' || c == ']') return close_container(s);
  if (c == '\n') s->line++;
  if (c == ',' && ++s->values > MAX_VALUES) return refuse(s, "more than 64 million values");
  if (!strchr(" \t\r\n,:truefalsn", c) || c == '\0')
    return refuse(s, (unsigned char)c >= 0x80 || c < 0x20 ? "not JSON: a byte outside of text"
                                                          : "not JSON: an unexpected character");
  copse_text_append(&s->out, s->p++, 1);
  return COPSE_OK;
}

static copse_status annotate(struct pass *s) {
  while (s->p < s->end) COPSE_DO(step(s));
  if (s->depth > 0) return refuse(s, "the file ends inside an object or array");
  return copse_text_status(&s->out, s->err);
}

static void release(struct pass *s) { copse_text_free(&s->out); }

static long count_lines(const char *from, const char *to) {
  long lines = 1;
  for (; from < to; from++) lines += *from == '\n';
  return lines;
}

/* Lets cJSON parse the annotated text. */
static copse_status parse(struct pass *s, struct copse_json *out) {
  long first = s->line;
  COPSE_DO(annotate(s));
  if (s->out.size == 0) return refuse(s, "empty, where JSON was expected");
  const char *stop = NULL;
  out->root = cJSON_ParseWithLengthOpts(s->out.data, s->out.size + 1, &stop, true);
  if (out->root) return COPSE_OK;
  /* cJSON doesn't say whether it was the text or the memory; see whether there is any */
  void *probe = malloc(16 * s->out.size);
  free(probe);
  if (!probe) return copse_fail_at(s->err, COPSE_NOMEM, s->file, 0, "out of memory");
  long line = stop ? first - 1 + count_lines(s->out.data, stop) : 0;
  return copse_fail_at(s->err, COPSE_BAD_INPUT, s->file, line, "not valid JSON");
}

copse_status copse_json_parse_lists(const char *file, const char *data, size_t size,
                                    const char *const names[COPSE_JSON_LISTS],
                                    struct copse_json *out, struct copse_err *err) {
  bool has_bom = size >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0;
  COPSE_AT_END(release)
  struct pass s = {
      .file = file, .p = data + (has_bom ? 3 : 0), .end = data + size, .line = 1, .err = err};
  *out = (struct copse_json){NULL, file, {{0}}};
  for (int i = 0; names && i < COPSE_JSON_LISTS; i++) out->lists[i].name = names[i];
  if (names) s.lists = out->lists;
  return parse(&s, out);
}

copse_status copse_json_parse(const char *file, const char *data, size_t size,
                              struct copse_json *out, struct copse_err *err) {
  return copse_json_parse_lists(file, data, size, NULL, out, err);
}

const struct copse_json_list *copse_json_list(const struct copse_json *json, const char *name) {
  static const struct copse_json_list none;
  for (int i = 0; i < COPSE_JSON_LISTS; i++)
    if (json->lists[i].name && strcmp(json->lists[i].name, name) == 0) return &json->lists[i];
  return &none;
}

copse_status copse_json_item(const struct copse_json *json, const struct copse_json_list *list,
                             size_t i, struct copse_json *out, struct copse_err *err) {
  const struct copse_json_piece *it = &list->items[i];
  COPSE_AT_END(release)
  struct pass s = {.file = json->file, .p = it->from, .end = it->end, .line = it->line, .err = err};
  *out = (struct copse_json){NULL, json->file, {{0}}};
  return parse(&s, out);
}

void copse_json_free(struct copse_json *json) {
  cJSON_Delete(json->root);
  json->root = NULL;
  for (int i = 0; i < COPSE_JSON_LISTS; i++) {
    free(json->lists[i].items);
    json->lists[i] = (struct copse_json_list){0};
  }
}

bool copse_json_is_object(const cJSON *item) { return cJSON_IsObject(item); }
bool copse_json_is_array(const cJSON *item) { return cJSON_IsArray(item); }
bool copse_json_is_number(const cJSON *item) {
  return cJSON_IsString(item) && item->valuestring[0] == MARK;
}
bool copse_json_is_string(const cJSON *item) {
  return cJSON_IsString(item) && item->valuestring[0] != MARK;
}

static bool is_line_member(const cJSON *item) {
  return item->string && strcmp(item->string, LINE_KEY) == 0;
}

const cJSON *copse_json_first(const cJSON *container) {
  const cJSON *first = container->child;
  return first && is_line_member(first) ? first->next : first;
}

long copse_json_line(const cJSON *item, const cJSON *parent) {
  if (item && copse_json_is_object(item) && item->child && is_line_member(item->child))
    return strtol(item->child->valuestring, NULL, 10);
  if (item && copse_json_is_number(item)) return strtol(item->valuestring + 1, NULL, 10);
  return parent ? copse_json_line(parent, NULL) : 0;
}

const cJSON *copse_json_get(const cJSON *object, const char *key) {
  if (!object || !copse_json_is_object(object)) return NULL; /* an array's items have no names */
  COPSE_JSON_EACH (item, object)
    if (strcmp(item->string, key) == 0) return item;
  return NULL;
}

/* ---- the keys of an object ------------------------------------------------------------------- */

static const struct copse_json_key *find_key(const char *name, const struct copse_json_key keys[]) {
  for (; keys->name; keys++)
    if (strcmp(keys->name, name) == 0) return keys;
  return NULL;
}

/* Lists keys as "a", "b" or "c". */
static void list_keys(const struct copse_json_key keys[], struct copse_line *line) {
  for (size_t i = 0; keys[i].name; i++)
    copse_line_add(line, "%s\"%s\"", i == 0 ? "" : keys[i + 1].name ? ", " : " or ", keys[i].name);
}

/* Names an object in messages: its kind, and its "id" or "src" and "dst" where it has them. */
static void name_object(const char *what, const cJSON *object, struct copse_line *line) {
  const cJSON *id = copse_json_get(object, "id");
  const cJSON *src = copse_json_get(object, "src"), *dst = copse_json_get(object, "dst");
  copse_line_add(line, "%s", what);
  if (id && copse_json_is_string(id)) copse_line_add(line, " (\"%.80s\")", id->valuestring);
  if (src && dst && copse_json_is_string(src) && copse_json_is_string(dst))
    copse_line_add(line, " (\"%.80s\" to \"%.80s\")", src->valuestring, dst->valuestring);
}

static copse_status refuse_key(const struct copse_json *json, const cJSON *object, const char *name,
                               const char *what, const struct copse_json_key keys[],
                               struct copse_err *err) {
  struct copse_line known = {.used = 0}, named = {.used = 0};
  struct copse_near_name near = {.given = name};
  for (const struct copse_json_key *key = keys; key->name; key++)
    copse_near_name_consider(&near, key->name);
  name_object(what, object, &named);
  if (near.name)
    return copse_fail_at(err, COPSE_BAD_INPUT, json->file, copse_json_line(object, NULL),
                         "unknown key \"%.60s\" in %s; did you mean \"%s\"?", name, named.text,
                         near.name);
  list_keys(keys, &known);
  return copse_fail_at(err, COPSE_BAD_INPUT, json->file, copse_json_line(object, NULL),
                       "unknown key \"%.60s\" in %s, which may have %s", name, named.text,
                       known.text);
}

static bool is_of_type(const cJSON *item, enum copse_json_kind kind) {
  switch (kind) {
    case COPSE_JSON_STRING: return copse_json_is_string(item);
    case COPSE_JSON_BOOL: return cJSON_IsBool(item);
    case COPSE_JSON_ARRAY: return copse_json_is_array(item);
    case COPSE_JSON_OBJECT: return copse_json_is_object(item);
    case COPSE_JSON_INDEX:
    case COPSE_JSON_COUNT: return copse_json_is_number(item);
    case COPSE_JSON_ANY: return true;
    default: return cJSON_IsString(item); /* a number, or "p/q" */
  }
}

/* Parses the value of a number; the text of a failure goes to `why`. */
static copse_status parse_value(const cJSON *item, struct copse_q *out, struct copse_err *why) {
  return copse_json_is_number(item)
             ? copse_q_parse_decimal(strchr(item->valuestring, ':') + 1, out, why)
             : copse_q_parse_fraction(item->valuestring, out, why);
}

static bool in_range(struct copse_q q, enum copse_json_kind kind) {
  bool integer = kind == COPSE_JSON_INDEX || kind == COPSE_JSON_COUNT;
  if (integer && q.den != 1) return false;
  if (kind == COPSE_JSON_POSITIVE || kind == COPSE_JSON_COUNT) return q.num > 0;
  return kind == COPSE_JSON_NUMBER || q.num >= 0;
}

/* Checks a value against its kind. */
static copse_status check_value(const struct copse_json *json, const cJSON *object,
                                const cJSON *item, const char *what,
                                const struct copse_json_key *key, struct copse_err *err) {
  static const char *const types[COPSE_JSON_KINDS] = {
      [COPSE_JSON_STRING] = "a string",         [COPSE_JSON_BOOL] = "true or false",
      [COPSE_JSON_ARRAY] = "an array",          [COPSE_JSON_OBJECT] = "an object",
      [COPSE_JSON_INDEX] = "an integer from 0", [COPSE_JSON_COUNT] = "an integer from 1"};
  enum copse_json_kind kind = COPSE_JSON_KIND(key->kind);
  const char *type = types[kind] ? types[kind] : "a number or a string \"p/q\"";
  struct copse_err why = COPSE_ERR_INIT;
  struct copse_line named = {.used = 0};
  struct copse_q q = COPSE_Q_ZERO;
  long line = copse_json_line(item, object);
  bool typed = is_of_type(item, kind);
  if (typed && kind < COPSE_JSON_NUMBER) return COPSE_OK;
  copse_status status = typed ? parse_value(item, &q, &why) : COPSE_OK;
  if (typed && status == COPSE_OK && in_range(q, kind)) return COPSE_OK;
  name_object(what, object, &named);
  if (status != COPSE_OK)
    return copse_fail_at(err, COPSE_BAD_INPUT, json->file, line, "%s: \"%s\": %s; %s", named.text,
                         key->name, why.text, key->is);
  if (typed && (kind == COPSE_JSON_POSITIVE || kind == COPSE_JSON_NOT_NEGATIVE))
    return copse_fail_at(err, COPSE_BAD_INPUT, json->file, line,
                         "%s: \"%s\" must %s (it is %s): %s", named.text, key->name,
                         kind == COPSE_JSON_POSITIVE ? "be positive" : "not be negative",
                         COPSE_Q_STRING(q), key->is);
  return copse_fail_at(err, COPSE_BAD_INPUT, json->file, line, "%s: \"%s\" must be %s: %s",
                       named.text, key->name, type, key->is);
}

copse_status copse_json_expect_object(const struct copse_json *json, const cJSON *item,
                                      const cJSON *parent, const char *what,
                                      const struct copse_json_key keys[], struct copse_err *err) {
  static const struct copse_json_key schema = {"$schema", COPSE_JSON_STRING,
                                               "the schema of the file, for editors"};
  long line = copse_json_line(item, parent);
  struct copse_line named = {.used = 0};
  if (!copse_json_is_object(item))
    return copse_fail_at(err, COPSE_BAD_INPUT, json->file, line, "%s must be an object", what);
  COPSE_JSON_EACH (member, item) {
    const struct copse_json_key *key = find_key(member->string, keys);
    if (!key && item == json->root && strcmp(member->string, schema.name) == 0) key = &schema;
    if (!key) return refuse_key(json, item, member->string, what, keys, err);
    if (copse_json_get(item, member->string) != member)
      return copse_fail_at(err, COPSE_BAD_INPUT, json->file, line, "key \"%s\" twice in %s",
                           member->string, what);
    COPSE_DO(check_value(json, item, member, what, key, err));
  }
  while (keys->name && (!(keys->kind & COPSE_JSON_NEEDED) || copse_json_get(item, keys->name)))
    keys++;
  if (!keys->name) return COPSE_OK;
  name_object(what, item, &named);
  return copse_fail_at(err, COPSE_BAD_INPUT, json->file, line, "%s needs \"%s\": %s", named.text,
                       keys->name, keys->is);
}

copse_status copse_json_expect_variant(const struct copse_json *json, const cJSON *item,
                                       const cJSON *parent, const char *what,
                                       const struct copse_json_key keys[], unsigned variant,
                                       struct copse_err *err) {
  struct copse_json_key own[COPSE_JSON_MOST_KEYS + 1] = {{0}};
  for (int n = 0; keys->name && n < COPSE_JSON_MOST_KEYS; keys++) {
    unsigned of = keys->kind / COPSE_JSON_OF(1);
    if (of == 0 || of & variant) own[n++] = *keys;
  }
  return copse_json_expect_object(json, item, parent, what, own, err);
}

static copse_status bad_member(const struct copse_json *json, const cJSON *object, const char *key,
                               const char *problem, struct copse_err *err) {
  const cJSON *item = copse_json_get(object, key);
  long line = copse_json_line(item, object);
  if (!item) return copse_fail_at(err, COPSE_BAD_INPUT, json->file, line, "\"%s\" is missing", key);
  return copse_fail_at(err, COPSE_BAD_INPUT, json->file, line, "\"%s\" %s", key, problem);
}

copse_status copse_json_get_string(const struct copse_json *json, const cJSON *object,
                                   const char *key, const char **out, struct copse_err *err) {
  const cJSON *item = copse_json_get(object, key);
  if (!item || !copse_json_is_string(item))
    return bad_member(json, object, key, "must be a string", err);
  *out = item->valuestring;
  return COPSE_OK;
}

copse_status copse_json_get_array(const struct copse_json *json, const cJSON *object,
                                  const char *key, const cJSON **out, struct copse_err *err) {
  *out = copse_json_get(object, key);
  if (!*out || !copse_json_is_array(*out))
    return bad_member(json, object, key, "must be an array", err);
  return COPSE_OK;
}

copse_status copse_json_get_bool_or(const struct copse_json *json, const cJSON *object,
                                    const char *key, bool fallback, bool *out,
                                    struct copse_err *err) {
  const cJSON *item = copse_json_get(object, key);
  if (item && !cJSON_IsBool(item))
    return bad_member(json, object, key, "must be true or false", err);
  *out = item ? cJSON_IsTrue(item) : fallback;
  return COPSE_OK;
}

copse_status copse_json_int(const struct copse_json *json, const cJSON *item, const cJSON *parent,
                            const char *what, int64_t min, int64_t max, int64_t *out,
                            struct copse_err *err) {
  struct copse_q q;
  struct copse_err ignored = COPSE_ERR_INIT;
  if (!copse_json_is_number(item) ||
      copse_q_parse_decimal(strchr(item->valuestring, ':') + 1, &q, &ignored) != COPSE_OK ||
      q.den != 1 || q.num < min || q.num > max)
    return copse_fail_at(err, COPSE_BAD_INPUT, json->file, copse_json_line(item, parent),
                         "%s must be an integer from %" PRId64 " to %" PRId64, what, min, max);
  *out = q.num;
  return COPSE_OK;
}

copse_status copse_json_get_int(const struct copse_json *json, const cJSON *object, const char *key,
                                int64_t min, int64_t max, int64_t *out, struct copse_err *err) {
  const cJSON *item = copse_json_get(object, key);
  char what[80];
  if (!item) return bad_member(json, object, key, "", err);
  snprintf(what, sizeof what, "\"%s\"", key);
  return copse_json_int(json, item, object, what, min, max, out, err);
}

copse_status copse_json_expect_format(const struct copse_json *json, const char *format,
                                      struct copse_err *err) {
  const cJSON *item = copse_json_get(json->root, "format");
  if (!copse_json_is_object(json->root))
    return copse_fail_at(err, COPSE_BAD_INPUT, json->file, 1,
                         "the document must be an object with \"format\": \"%s\"", format);
  if (!item || !copse_json_is_string(item))
    return copse_fail_at(err, COPSE_BAD_INPUT, json->file, copse_json_line(json->root, NULL),
                         "\"format\" must be a string, here \"%s\"", format);
  const char *found = item->valuestring;
  if (strcmp(found, format) == 0) return COPSE_OK;
  return copse_fail_at(err, COPSE_BAD_INPUT, json->file, copse_json_line(json->root, NULL),
                       "unknown \"format\" \"%.60s\"; this version reads \"%s\"", found, format);
}

copse_status copse_json_get_index(const struct copse_json *json, const cJSON *object,
                                  const char *key, int n, int *out, struct copse_err *err) {
  int64_t index = 0;
  copse_status status = copse_json_get_int(json, object, key, 0, n - 1, &index, err);
  if (status == COPSE_OK) *out = (int)index;
  return status;
}

copse_status copse_json_get_count_or(const struct copse_json *json, const cJSON *object,
                                     const char *key, int most, int *out, struct copse_err *err) {
  int64_t n = 0;
  if (!copse_json_get(object, key)) return COPSE_OK;
  copse_status status = copse_json_get_int(json, object, key, 1, most, &n, err);
  if (status == COPSE_OK) *out = (int)n;
  return status;
}

copse_status copse_json_rational(const struct copse_json *json, const cJSON *item,
                                 const cJSON *parent, const char *what, struct copse_q *out,
                                 struct copse_err *err) {
  long line = copse_json_line(item, parent);
  struct copse_err local = COPSE_ERR_INIT;
  if (!cJSON_IsString(item)) /* as it keeps numbers too */
    return copse_fail_at(err, COPSE_BAD_INPUT, json->file, line,
                         "%s must be a number or a string \"p/q\"", what);
  if (parse_value(item, out, &local) != COPSE_OK)
    return copse_fail_at(err, COPSE_BAD_INPUT, json->file, line, "%s: %s", what, local.text);
  return COPSE_OK;
}

copse_status copse_json_get_rational(const struct copse_json *json, const cJSON *object,
                                     const char *key, struct copse_q *out, struct copse_err *err) {
  const cJSON *item = copse_json_get(object, key);
  char what[80];
  if (!item) return bad_member(json, object, key, "", err);
  snprintf(what, sizeof what, "\"%s\"", key);
  return copse_json_rational(json, item, object, what, out, err);
}

copse_status copse_json_get_amount_or(const struct copse_json *json, const cJSON *object,
                                      const char *key, bool positive, struct copse_q *out,
                                      struct copse_err *err) {
  if (!copse_json_get(object, key)) return COPSE_OK;
  copse_status status = copse_json_get_rational(json, object, key, out, err);
  if (status != COPSE_OK || out->num > 0 || (out->num == 0 && !positive)) return status;
  return copse_fail_at(err, COPSE_BAD_INPUT, json->file,
                       copse_json_line(copse_json_get(object, key), object), "\"%s\" must %s", key,
                       positive ? "be positive" : "not be negative");
}

int64_t copse_json_int_or(const struct copse_json *json, const cJSON *object, const char *key,
                          int64_t otherwise) {
  int64_t value;
  const cJSON *item = copse_json_get(object, key);
  if (!item || copse_json_int(json, item, object, key, 0, INT64_MAX, &value, NULL) != COPSE_OK)
    return otherwise;
  return value;
}

const char *copse_json_text_or(const cJSON *object, const char *key, const char *otherwise) {
  const cJSON *item = copse_json_get(object, key);
  return item && copse_json_is_string(item) ? item->valuestring : otherwise;
}
