/* For readers in src/topology and of MSCCL XML: XML input on libxml2, hardened. No DOCTYPE,
 * hence no entities of the file's own; nothing is fetched; nesting is bounded by libxml2. Comments,
 * processing instructions and text between elements are passed over. */
#pragma once

#include <libxml/tree.h>

#include "base/err.h"

struct copse_xml {
  xmlDoc *doc;
  const char *file; /* borrowed; names the document in messages */
};

copse_status copse_xml_parse(const char *file, const char *data, size_t size, struct copse_xml *out,
                             struct copse_err *err) COPSE_CHECKED;
void copse_xml_free(struct copse_xml *xml);

const xmlNode *copse_xml_root(const struct copse_xml *xml);
/* Returns the first child element (copse_xml_next: the next sibling element), or NULL. */
const xmlNode *copse_xml_first(const xmlNode *element);
const xmlNode *copse_xml_next(const xmlNode *element);
/* Returns the first child element of that name, or NULL. */
const xmlNode *copse_xml_child(const xmlNode *element, const char *name);

/* Finds what stands behind "KEY:" on a line of a comment before the root element, without the
 * blanks around it; NULL if there is none. *length gets its bytes. */
const char *copse_xml_remark(const struct copse_xml *xml, const char *key, size_t *length);

const char *copse_xml_name(const xmlNode *element);
bool copse_xml_is(const xmlNode *element, const char *name);
long copse_xml_line(const xmlNode *element);

/* Returns the attribute's value, borrowed from the document; NULL if there is none. */
const char *copse_xml_attribute(const xmlNode *element, const char *name);

/* An attribute that is an integer (decimal or 0x hexadecimal). A missing one gives
 * `fallback`, *present (may be NULL) tells; a garbled one is COPSE_BAD_INPUT. */
struct copse_xml_int {
  const char *name;
  int64_t fallback, min, max;
};
copse_status copse_xml_get_int(const struct copse_xml *xml, const xmlNode *element,
                               struct copse_xml_int wanted, int64_t *out, bool *present,
                               struct copse_err *err) COPSE_CHECKED;
