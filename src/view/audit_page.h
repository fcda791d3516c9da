/* An audit in its three forms: a page of text, one JSON object, and one page of HTML that fetches
 * nothing. */
#pragma once

#include "base/text.h"
#include "nccl/audit/audit.h"

void copse_audit_to_text(const struct copse_audit *audit, struct copse_text *text);
/* Writes an audit as docs/nccl.md says of it. */
void copse_audit_to_json(const struct copse_audit *audit, struct copse_text *text);
void copse_audit_to_page(const struct copse_audit *audit, const char *made_by,
                         struct copse_text *text);
