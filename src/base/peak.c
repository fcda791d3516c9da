#include "base/peak.h"

#include <sys/resource.h>

long copse_peak_mib(void) {
  struct rusage usage;
  return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_maxrss / 1024 : -1;
}
