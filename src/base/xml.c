/* XML documents by libxml2. A DOCTYPE, and more elements than any topology has, stop the parser: a
 * hostile file can neither read other files nor grow. Refusals name the line. */
#include "base/xml.h"

#include <errno.h>
#include <inttypes.h>
#include <libxml/SAX2.h>
#include <libxml/parser.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* A tree takes some hundred bytes an element: a hostile file ends before memory does. */
#define MAX_ELEMENTS (1 << 22)

struct guard {
  bool doctype;
  int elements;
};

/* Stops the parser before it reads the first declaration of a DOCTYPE, which could define entities
 * that expand without end or point at files and hosts. No topology has one. */
static void stop_at_doctype(void *ctx, const xmlChar *name, const xmlChar *external_id,
                            const xmlChar *system_id) {
  (void)name;
  (void)external_id;
  (void)system_id;
  xmlParserCtxt *parser = ctx;
  ((struct guard *)parser->_private)->doctype = true;
  xmlStopParser(parser);
}

static void count_element(void *ctx, const xmlChar *name, const xmlChar *prefix, const xmlChar *uri,
                          int n_namespaces, const xmlChar **namespaces, int n_attributes,
                          int n_defaulted, const xmlChar **attributes) {
  xmlParserCtxt *parser = ctx;
  if (++((struct guard *)parser->_private)->elements > MAX_ELEMENTS)
    xmlStopParser(parser);
  else
    xmlSAX2StartElementNs(ctx, name, prefix, uri, n_namespaces, namespaces, n_attributes,
                          n_defaulted, attributes);
}

static copse_status explain(const xmlParserCtxt *parser, const char *file, struct copse_err *err) {
  const struct guard *guard = parser->_private;
  long line = parser->input ? parser->input->line : 0;
  if (guard->doctype)
    return copse_fail_at(err, COPSE_BAD_INPUT, file, line,
                         "a DOCTYPE, which no NCCL topology has; remove it");
  if (guard->elements > MAX_ELEMENTS)
    return copse_fail_at(err, COPSE_BAD_INPUT, file, line,
                         "more than %d elements, the most an XML input can have", MAX_ELEMENTS);
  const xmlError *error = xmlCtxtGetLastError((void *)(uintptr_t)parser);
  if (!error) return copse_fail_at(err, COPSE_BAD_INPUT, file, 0, "not well-formed XML");
  if (error->code == XML_ERR_NO_MEMORY) return copse_fail_nomem(err);
  const char *message = error->message ? error->message : "";
  if (strncmp(message, "Excessive depth", 15) == 0) message = "nested more than 256 levels deep";
  size_t n = strcspn(message, "\r\n");
  return copse_fail_at(err, COPSE_BAD_INPUT, file, error->line, "not well-formed XML: %.*s",
                       n > 200 ? 200 : (int)n, message);
}

/* libxml2 compares each attribute of a tag with all others: a tag of a megabyte takes it
 * minutes. Real tags have some hundred bytes. The line of the first that is too long, or 0. */
#define MAX_TAG_BYTES 65536

/* Returns the end of what begins like a tag but is none: a comment and so on; NULL for a tag. */
static const char *end_of_other(const char *open, size_t size) {
  static const char *const kinds[][2] = {{"<!--", "-->"}, {"<![CDATA[", "]]>"}, {"<?", "?>"}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (size >= strlen(kinds[i][0]) && memcmp(open, kinds[i][0], strlen(kinds[i][0])) == 0) {
      const char *close = memmem(open, size, kinds[i][1], strlen(kinds[i][1]));
      return close ? close : open + size;
    }
  return NULL;
}

/* Returns where a tag ends: at the first '>' that is not part of a value. */
static const char *end_of_tag(const char *open, const char *end) {
  char quote = 0;
  for (; open < end && (quote || *open != '>'); open++)
    if (*open == quote)
      quote = 0;
    else if (!quote && (*open == '"' || *open == '\''))
      quote = *open;
  return open;
}

static long long_tag(const char *data, size_t size) {
  const char *end = data + size, *p = data;
  long line = 1;
  while (p < end) {
    const char *open = memchr(p, '<', (size_t)(end - p));
    for (const char *q = p; q < (open ? open : end); q++) line += *q == '\n';
    if (!open) return 0;
    const char *close = end_of_other(open, (size_t)(end - open));
    if (!close) {
      close = end_of_tag(open, end);
      if (close - open > MAX_TAG_BYTES) return line;
    }
    for (const char *q = open; q < close; q++) line += *q == '\n';
    p = close;
  }
  return 0;
}

copse_status copse_xml_parse(const char *file, const char *data, size_t size, struct copse_xml *out,
                             struct copse_err *err) {
  const int options =
      XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING | XML_PARSE_BIG_LINES;
  struct guard guard = {false, 0};
  *out = (struct copse_xml){NULL, file};
  if (size > INT_MAX)
    return copse_fail_at(err, COPSE_BAD_INPUT, file, 0, "an XML file of more than 2 GiB");
  long line = long_tag(data, size);
  if (line > 0)
    return copse_fail_at(err, COPSE_BAD_INPUT, file, line,
                         "a tag of more than 64 KiB; those of a topology are short");
  xmlParserCtxt *parser = xmlNewParserCtxt();
  if (!parser) return copse_fail_nomem(err);
  parser->_private = &guard;
  parser->sax->internalSubset = stop_at_doctype;
  parser->sax->startElementNs = count_element;
  xmlDoc *doc = xmlCtxtReadMemory(parser, data, (int)size, NULL, NULL, options);
  copse_status status = COPSE_OK;
  if (!doc || guard.doctype || guard.elements > MAX_ELEMENTS) {
    status = explain(parser, file, err);
    xmlFreeDoc(doc);
  } else {
    out->doc = doc;
  }
  xmlFreeParserCtxt(parser);
  return status;
}

void copse_xml_free(struct copse_xml *xml) {
  xmlFreeDoc(xml->doc);
  xml->doc = NULL;
}

const xmlNode *copse_xml_root(const struct copse_xml *xml) {
  return xmlDocGetRootElement(xml->doc);
}

/* Skips comments, processing instructions and text, which are siblings too. */
static const xmlNode *skip_to_element(const xmlNode *node) {
  while (node && node->type != XML_ELEMENT_NODE) node = node->next;
  return node;
}

const xmlNode *copse_xml_first(const xmlNode *element) {
  return skip_to_element(element->children);
}

const xmlNode *copse_xml_next(const xmlNode *element) { return skip_to_element(element->next); }

const xmlNode *copse_xml_child(const xmlNode *element, const char *name) {
  const xmlNode *child = copse_xml_first(element);
  while (child && !copse_xml_is(child, name)) child = copse_xml_next(child);
  return child;
}

const char *copse_xml_remark(const struct copse_xml *xml, const char *key, size_t *length) {
  size_t n = strlen(key);
  for (const xmlNode *node = xml->doc->children; node; node = node->next) {
    if (node->type == XML_ELEMENT_NODE) return NULL;
    const char *line = node->type == XML_COMMENT_NODE ? (const char *)node->content : NULL;
    for (const char *end; line; line = *end ? end + 1 : NULL) {
      line += strspn(line, " \t");
      end = line + strcspn(line, "\r\n");
      if (strncmp(line, key, n) != 0 || line[n] != ':') continue;
      line += n + 1;
      line += strspn(line, " \t");
      while (end > line && strchr(" \t", end[-1])) end--;
      if (end == line) return NULL;
      *length = (size_t)(end - line);
      return line;
    }
  }
  return NULL;
}

const char *copse_xml_name(const xmlNode *element) { return (const char *)element->name; }

bool copse_xml_is(const xmlNode *element, const char *name) {
  return strcmp(copse_xml_name(element), name) == 0;
}

long copse_xml_line(const xmlNode *element) { return xmlGetLineNo(element); }

const char *copse_xml_attribute(const xmlNode *element, const char *name) {
  for (const xmlAttr *a = element->properties; a; a = a->next) {
    if (strcmp((const char *)a->name, name) != 0) continue;
    if (!a->children) return "";
    return a->children->content ? (const char *)a->children->content : "";
  }
  return NULL;
}

/* Parses whole text only; strtoll alone would take "12abc", " 12" and "". */
static bool parse_int(const char *text, int64_t *out) {
  const char *digits = text[0] == '-' ? text + 1 : text;
  bool hex = digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X');
  if (hex) digits += 2;
  if (!digits[0] || digits[strspn(digits, hex ? "0123456789abcdefABCDEF" : "0123456789")])
    return false;
  errno = 0;
  long long v = strtoll(digits, NULL, hex ? 16 : 10);
  if (errno != 0) return false;
  *out = text[0] == '-' ? -v : v;
  return true;
}

copse_status copse_xml_get_int(const struct copse_xml *xml, const xmlNode *element,
                               struct copse_xml_int wanted, int64_t *out, bool *present,
                               struct copse_err *err) {
  const char *text = copse_xml_attribute(element, wanted.name);
  if (present) *present = text != NULL;
  *out = wanted.fallback;
  if (!text) return COPSE_OK;
  if (parse_int(text, out) && *out >= wanted.min && *out <= wanted.max) return COPSE_OK;
  return copse_fail_at(err, COPSE_BAD_INPUT, xml->file, copse_xml_line(element),
                       "%s=\"%.40s\" of <%s> must be an integer from %" PRId64 " to %" PRId64,
                       wanted.name, text, copse_xml_name(element), wanted.min, wanted.max);
}
