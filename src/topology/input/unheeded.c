/* Options that an input has no use for: said, not silently dropped. */
#include "topology/builder.h"

void copse_note_unheeded(const char *label, const char *what, unsigned heeded,
                         const struct copse_topology_options *options) {
  if (options->links != COPSE_LINKS_DEFAULT && !(heeded & COPSE_HEEDS_LINKS))
    copse_note(options->notes, "%s: --links has no effect on %s, which says its links itself", label,
               what);
  if (options->nvlink_switch.num != 0 && !(heeded & COPSE_HEEDS_NVLINK_SWITCH))
    copse_note(options->notes, "%s: --nvlink-switch has no effect on %s; it is for XML", label, what);
  if (options->gpu && !(heeded & COPSE_HEEDS_GPU))
    copse_note(options->notes, "%s: --gpu has no effect on %s; it is for matrices", label, what);
}
