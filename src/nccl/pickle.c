/*
 * Python's pickles (protocols 2 to 5) without anything that runs code: a stack machine whose values
 * are JSON texts. A container is an object that may be stored and fetched before it is complete.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "nccl/calls.h"

/* Values have a depth of about 6: each byte is copied so often, and not much oftener. */
#define GROWTH 16
#define GROWTH_FREE (1 << 20)
/* A value of one byte takes some 100 here. */
#define LARGEST ((size_t)64 << 20)

enum kind { KIND_MARK, KIND_PLAIN, KIND_TEXT, KIND_LIST, KIND_DICT };

struct object {
  enum kind kind;
  struct copse_text text; /* of containers: what is between the brackets */
  struct object *next;    /* of all */
};

struct machine {
  const char *label;
  const unsigned char *at, *start, *end;
  struct object **stack, **memo;
  size_t n_stack, n_memo, stack_capacity, memo_capacity, copied;
  struct object *all;
  struct copse_err *err;
};

static void release(struct machine *m) {
  while (m->all) {
    struct object *next = m->all->next;
    copse_text_free(&m->all->text);
    free(m->all);
    m->all = next;
  }
  free(m->stack);
  free(m->memo);
}

static copse_status refuse(const struct machine *m, const char *why) {
  return copse_fail_at(m->err, COPSE_BAD_INPUT, m->label, 0,
                       "no flight recorder's pickle: %s at byte %zu", why,
                       (size_t)(m->at - m->start));
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static copse_status take(struct machine *m, uint64_t n, const unsigned char **bytes) {
  *bytes = m->at;
  if (n > (uint64_t)(m->end - m->at)) return refuse(m, "it ends within a value");
  m->at += n;
  return COPSE_OK;
}

/* Little-endian, without a sign. */
static copse_status take_number(struct machine *m, int n, uint64_t *out) {
  const unsigned char *bytes;
  COPSE_DO(take(m, (uint64_t)n, &bytes));
  *out = 0;
  for (int i = n - 1; i >= 0; i--) *out = *out << 8 | bytes[i];
  return COPSE_OK;
}

/* ---- values ---------------------------------------------------------------------------------- */

static copse_status push(struct machine *m, struct object *object) {
  COPSE_DO(COPSE_GROW(m->stack, m->stack_capacity, m->n_stack + 1, m->err));
  m->stack[m->n_stack++] = object;
  return COPSE_OK;
}

static copse_status make(struct machine *m, enum kind kind, struct object **out) {
  COPSE_DO(copse_calloc(1, sizeof **out, out, m->err));
  (*out)->kind = kind;
  (*out)->next = m->all;
  m->all = *out;
  return push(m, *out);
}

static copse_status push_plain(struct machine *m, const char *text) {
  struct object *object;
  COPSE_DO(make(m, KIND_PLAIN, &object));
  copse_text_add(&object->text, "%s", text);
  return copse_text_status(&object->text, m->err);
}

static copse_status push_int(struct machine *m, int64_t value) {
  char text[32];
  snprintf(text, sizeof text, "%" PRId64, value);
  return push_plain(m, text);
}

/* Two's complement, of at most 8 bytes. */
static copse_status push_long(struct machine *m, uint64_t n) {
  uint64_t value = 0;
  if (n > 8) return refuse(m, "an integer of more than 64 bits");
  if (n > 0) COPSE_DO(take_number(m, (int)n, &value));
  if (n > 0 && n < 8 && value >> (8 * n - 1)) value |= ~UINT64_C(0) << 8 * n;
  return push_int(m, (int64_t)value);
}

static copse_status push_double(struct machine *m) {
  const unsigned char *bytes;
  uint64_t bits = 0;
  double value;
  char text[40];
  COPSE_DO(take(m, 8, &bytes));
  for (int i = 0; i < 8; i++) bits = bits << 8 | bytes[i];
  memcpy(&value, &bits, sizeof value);
  snprintf(text, sizeof text, "%.9g", value);
  return push_plain(m, isfinite(value) ? text : "null");
}

static copse_status push_text(struct machine *m, int width) {
  const unsigned char *bytes;
  uint64_t n;
  struct object *object;
  COPSE_DO(take_number(m, width, &n));
  COPSE_DO(take(m, n, &bytes));
  COPSE_AT_END(copse_free_at) char *text = NULL;
  COPSE_DO(copse_calloc(n + 1, 1, &text, m->err));
  for (uint64_t i = 0; i < n; i++) text[i] = bytes[i] ? (char)bytes[i] : '?';
  COPSE_DO(make(m, KIND_TEXT, &object));
  copse_text_add_json_string(&object->text, text);
  return copse_text_status(&object->text, m->err);
}

/* ---- containers ------------------------------------------------------------------------------ */

static copse_status copy(struct machine *m, struct object *to, const struct object *from) {
  const char *text = from->text.data ? from->text.data : "";
  bool list = from->kind == KIND_LIST, dict = from->kind == KIND_DICT;
  if (from == to || from->kind == KIND_MARK) return refuse(m, "a value within itself");
  m->copied += from->text.size + 8;
  if (m->copied > GROWTH * (size_t)(m->end - m->start) + GROWTH_FREE)
    return refuse(m, "values that grow out of proportion");
  copse_text_add(&to->text, "%s", list ? "[" : dict ? "{" : "");
  copse_text_append(&to->text, text, from->text.size);
  copse_text_add(&to->text, "%s", list ? "]" : dict ? "}" : "");
  return copse_text_status(&to->text, m->err);
}

static copse_status add_item(struct machine *m, struct object *list, const struct object *item) {
  if (list->text.size > 0) copse_text_add(&list->text, ",");
  return copy(m, list, item);
}

static copse_status add_pair(struct machine *m, struct object *dict, const struct object *key,
                             const struct object *value) {
  bool text = key->kind == KIND_TEXT;
  if (!text && key->kind != KIND_PLAIN) return refuse(m, "a key that is no text");
  if (dict->text.size > 0) copse_text_add(&dict->text, ",");
  copse_text_add(&dict->text, "%s", text ? "" : "\"");
  COPSE_DO(copy(m, dict, key));
  copse_text_add(&dict->text, "%s:", text ? "" : "\"");
  if (!text || strcmp(key->text.data, "\"frames\"") != 0) return copy(m, dict, value);
  copse_text_add(&dict->text, "null");
  return copse_text_status(&dict->text, m->err);
}

/* What is on the stack above `from`, into the container below; all of it then goes. */
static copse_status fill(struct machine *m, size_t from, bool pairs) {
  struct object *to = from > 0 ? m->stack[from - 1] : NULL;
  size_t n = m->n_stack - from, first = n > 0 && m->stack[from]->kind == KIND_MARK;
  enum kind kind = pairs ? KIND_DICT : KIND_LIST;
  if (!to || to->kind != kind || (pairs && (n - first) % 2 != 0))
    return refuse(m, "items without a container");
  for (size_t i = from + first; i < m->n_stack; i += 1 + (size_t)pairs)
    COPSE_DO(pairs ? add_pair(m, to, m->stack[i], m->stack[i + 1]) : add_item(m, to, m->stack[i]));
  m->n_stack = from;
  return COPSE_OK;
}

static copse_status find_mark(struct machine *m, size_t *mark) {
  *mark = m->n_stack;
  while (*mark > 0 && m->stack[*mark - 1]->kind != KIND_MARK) --*mark;
  return (*mark)-- > 0 ? COPSE_OK : refuse(m, "no mark");
}

/* The topmost n values as a list, in their place. */
static copse_status make_tuple(struct machine *m, size_t n) {
  struct object *tuple = NULL;
  if (n > m->n_stack) return refuse(m, "too few values");
  size_t from = m->n_stack - n;
  COPSE_DO(make(m, KIND_LIST, &tuple));
  memmove(m->stack + from + 1, m->stack + from, n * sizeof *m->stack);
  m->stack[from] = tuple;
  return fill(m, from + 1, false);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static copse_status put(struct machine *m, uint64_t index) {
  if (m->n_stack == 0 || index > (uint64_t)(m->end - m->start))
    return refuse(m, "a number that no value has");
  if (index >= m->n_memo) {
    COPSE_DO(COPSE_GROW(m->memo, m->memo_capacity, index + 1, m->err));
    memset(m->memo + m->n_memo, 0, (index + 1 - m->n_memo) * sizeof *m->memo);
    m->n_memo = index + 1;
  }
  m->memo[index] = m->stack[m->n_stack - 1];
  return COPSE_OK;
}

static copse_status get(struct machine *m, uint64_t index) {
  if (index >= m->n_memo || !m->memo[index]) return refuse(m, "a number that no value has");
  return push(m, m->memo[index]);
}

/* ---- codes ----------------------------------------------------------------------------------- */

/* Those with a number behind them: how many bytes it has. */
static int width_of(unsigned char code) {
  switch (code) {
    case 0x80:
    case 'K':
    case 'h':
    case 'q':
    case 0x8a: return 1;
    case 'M': return 2;
    case 'J':
    case 'j':
    case 'r': return 4;
    case 0x95: return 8;
    default: return 0;
  }
}

static copse_status do_numbered(struct machine *m, unsigned char code, uint64_t number) {
  switch (code) {
    case 'K':
    case 'M': return push_int(m, (int64_t)number);
    case 'J': return push_int(m, (int32_t)number);
    case 0x8a: return push_long(m, number);
    case 'h':
    case 'j': return get(m, number);
    case 'q':
    case 'r': return put(m, number);
    default: return COPSE_OK; /* protocol, frame */
  }
}

static copse_status do_marked(struct machine *m, unsigned char code) {
  size_t mark;
  COPSE_DO(find_mark(m, &mark));
  if (code != 't') return fill(m, mark, code == 'u');
  memmove(m->stack + mark, m->stack + mark + 1, (m->n_stack - mark - 1) * sizeof *m->stack);
  m->n_stack--;
  return make_tuple(m, m->n_stack - mark);
}

static copse_status do_code(struct machine *m, unsigned char code) {
  struct object *made;
  switch (code) {
    case '(': return make(m, KIND_MARK, &made);
    case '}': return make(m, KIND_DICT, &made);
    case ']':
    case ')': return make(m, KIND_LIST, &made);
    case 'N': return push_plain(m, "null");
    case 0x88: return push_plain(m, "true");
    case 0x89: return push_plain(m, "false");
    case 'G': return push_double(m);
    case 'X': return push_text(m, 4);
    case 0x8c: return push_text(m, 1);
    case 0x8d: return push_text(m, 8);
    case 0x85:
    case 0x86:
    case 0x87: return make_tuple(m, code - 0x84u);
    case 0x94: return put(m, m->n_memo);
    case 'a': return m->n_stack < 2 ? refuse(m, "no list") : fill(m, m->n_stack - 1, false);
    case 's': return m->n_stack < 3 ? refuse(m, "no dict") : fill(m, m->n_stack - 2, true);
    case 'u':
    case 'e':
    case 't': return do_marked(m, code);
    default: return refuse(m, "a code that is not of plain data");
  }
}

copse_status copse_pickle_to_json(const char *label, const char *data, size_t size, char **text,
                                  size_t *text_size, struct copse_err *err) {
  COPSE_AT_END(release)
  struct machine m = {.label = label, .at = (const unsigned char *)data, .err = err};
  struct object *whole;
  m.start = m.at;
  m.end = m.at + size;
  *text = NULL;
  if (size > LARGEST) return refuse(&m, "more than 64 MiB");
  for (unsigned char code; m.at < m.end && *m.at != '.';) {
    uint64_t number;
    code = *m.at++;
    int width = width_of(code);
    if (width > 0) COPSE_DO(take_number(&m, width, &number));
    COPSE_DO(width > 0 ? do_numbered(&m, code, number) : do_code(&m, code));
  }
  if (m.at == m.end || m.n_stack != 1) return refuse(&m, "it is cut");
  struct object *last = m.stack[0];
  COPSE_DO(make(&m, KIND_PLAIN, &whole));
  COPSE_DO(copy(&m, whole, last));
  return copse_text_take(&whole->text, text, text_size, err);
}
