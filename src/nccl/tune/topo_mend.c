/*
 * Topology XML that is there, written anew in the syntax of NCCL's reader, which is no XML parser,
 * and with values that it takes for others mended. What it misreads: NVIDIA/nccl src/graph/topo.cc
 * (kvDictPciGen, kvDictCpuArch) and xml.cc, seen with 2.30.7.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/xml.h"
#include "nccl/tune/topo_write.h"

#define MAX_ELEMENTS 256
#define MAX_ATTRIBUTES 16
#define MAX_LENGTH 254

struct mender {
  const struct copse_xml *xml;
  const struct copse_notes *notes;
  struct copse_text text;
  const char *host; /* the first CPU's host_hash */
  int n_elements;
  struct copse_err *err;
};

#define REFUSE(m, status, element, ...) \
  copse_fail_at((m)->err, status, (m)->xml->file, copse_xml_line(element), __VA_ARGS__)

/* ---- values
 * -------------------------------------------------------------------------------------- */

/* Speeds as NCCL knows them; any other string is 8 GT/s to it. The first of a rate is written. */
static const struct {
  const char *rate, *as[2];
} speeds[] = {{"2.5", {"2.5 GT/s PCIe", "2.5 GT/s"}},  {"5.0", {"5.0 GT/s PCIe", "5 GT/s"}},
              {"8.0", {"8.0 GT/s PCIe", "8 GT/s"}},    {"16.0", {"16.0 GT/s PCIe", "16 GT/s"}},
              {"32.0", {"32.0 GT/s PCIe", "32 GT/s"}}, {"64.0", {"64.0 GT/s PCIe", NULL}}};
enum { N_SPEEDS = sizeof speeds / sizeof *speeds };

/* Returns what NCCL reads as the speed that `value` means; itself where that is it, or unknown. */
static const char *mend_speed(const char *value) {
  char rate[16];
  size_t n = strspn(value, "0123456789.");
  if (n == 0 || n > 8) return value;
  snprintf(rate, sizeof rate, "%.*s%s", (int)n, value, memchr(value, '.', n) ? "" : ".0");
  for (int i = 0; i < N_SPEEDS; i++) {
    if (strcmp(rate, speeds[i].rate) != 0) continue;
    for (int k = 0; k < 2; k++)
      if (speeds[i].as[k] && strcmp(value, speeds[i].as[k]) == 0) return value;
    return speeds[i].as[0];
  }
  return value;
}

static bool is_bus_id(const char *key) {
  return strcmp(key, "busid") == 0 || strcmp(key, "target") == 0;
}

/* Returns the value to write instead, in `lower` or static. */
static const char *mend_value(const char *key, const char *value, char lower[MAX_LENGTH + 1]) {
  if (strcmp(key, "link_speed") == 0) return mend_speed(value);
  if (strcmp(key, "arch") == 0 && strcmp(value, "aarch64") == 0) return "arm64";
  if (!is_bus_id(key)) return value;
  for (size_t i = 0; i <= strlen(value); i++) lower[i] = (char)tolower((unsigned char)value[i]);
  return lower;
}

/* Whether NCCL's reader takes the text as it is: it has no entities, and ends a value at the
 * quote. */
static bool is_plain(const char *text) {
  for (const unsigned char *p = (const unsigned char *)text; *p; p++)
    if (*p < 0x20 || *p > 0x7e || strchr("\"<>&", *p)) return false;
  return strlen(text) <= MAX_LENGTH;
}

static copse_status add_attribute(struct mender *m, const xmlNode *element, const char *key,
                                  const char *value) {
  char lower[MAX_LENGTH + 1];
  if (!is_plain(key) || !is_plain(value))
    return REFUSE(m, COPSE_UNSUPPORTED, element,
                  "%.40s: NCCL reads values of up to %d printing characters without markup", key,
                  MAX_LENGTH);
  const char *mended = mend_value(key, value, lower);
  if (strcmp(mended, value) != 0)
    copse_note(m->notes, "%s:%ld: %s=\"%s\", which NCCL misreads, is written as \"%s\"",
               m->xml->file, copse_xml_line(element), key, value, mended);
  copse_text_add(&m->text, " %s=\"%s\"", key, mended);
  return COPSE_OK;
}

/* ---- elements
 * ------------------------------------------------------------------------------------ */

static copse_status add_attributes(struct mender *m, const xmlNode *element) {
  int n = 0;
  for (const xmlAttr *a = element->properties; a; a = a->next) {
    const char *key = (const char *)a->name, *value = copse_xml_attribute(element, key);
    if (strcmp(key, "keep") == 0) continue; /* NCCL would keep devices that do not exist */
    if (++n > MAX_ATTRIBUTES)
      return REFUSE(m, COPSE_UNSUPPORTED, element, "more than %d attributes, which NCCL reads",
                    MAX_ATTRIBUTES);
    COPSE_DO(add_attribute(m, element, key, value ? value : ""));
  }
  return COPSE_OK;
}

static copse_status check_host(struct mender *m, const xmlNode *element) {
  const char *hash = copse_xml_attribute(element, "host_hash");
  if (!copse_xml_is(element, "cpu")) return COPSE_OK;
  if (!m->host) m->host = hash ? hash : "";
  if (strcmp(m->host, hash ? hash : "") == 0) return COPSE_OK;
  return REFUSE(m, COPSE_UNSUPPORTED, element,
                "several hosts, as NCCL fuses them; it loads a file of one host");
}

/* Adds an element with what is in it. Nesting is bounded by libxml2 (256). */
static copse_status add_element(struct mender *m, const xmlNode *element, int depth) {
  if (++m->n_elements > MAX_ELEMENTS)
    return REFUSE(m, COPSE_UNSUPPORTED, element, "more than %d elements, which NCCL reads",
                  MAX_ELEMENTS);
  if (!is_plain(copse_xml_name(element)))
    return REFUSE(m, COPSE_UNSUPPORTED, element, "an element that NCCL can't read");
  COPSE_DO(check_host(m, element));
  copse_text_add(&m->text, "%*s<%s", 2 * depth, "", copse_xml_name(element));
  COPSE_DO(add_attributes(m, element));
  const xmlNode *child = copse_xml_first(element);
  copse_text_add(&m->text, child ? ">\n" : "/>\n");
  if (!child) return COPSE_OK;
  for (; child; child = copse_xml_next(child)) COPSE_DO(add_element(m, child, depth + 1));
  copse_text_add(&m->text, "%*s</%s>\n", 2 * depth, "", copse_xml_name(element));
  return COPSE_OK;
}

copse_status copse_nccl_topo_mend(const char *label, const char *data, size_t size,
                                  const struct copse_notes *notes, char **text, size_t *out_size,
                                  struct copse_err *err) {
  COPSE_AT_END(copse_xml_free) struct copse_xml xml = {0};
  struct mender m = {.xml = &xml, .notes = notes, .err = err};
  *text = NULL;
  COPSE_DO(copse_xml_parse(label, data, size, &xml, err));
  const xmlNode *root = copse_xml_root(&xml);
  if (!copse_xml_is(root, "system"))
    return REFUSE(&m, COPSE_BAD_INPUT, root,
                  "the root element is <%.40s>; an NCCL topology has <system>",
                  copse_xml_name(root));
  copse_status status = add_element(&m, root, 0);
  if (status == COPSE_OK) status = copse_text_take(&m.text, text, out_size, err);
  copse_text_free(&m.text);
  return status;
}
