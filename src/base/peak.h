/* How much memory the process has held at most, in MiB; -1 where the system does not tell. */
#ifndef COPSE_BASE_PEAK_H
#define COPSE_BASE_PEAK_H

long copse_peak_mib(void);

#endif
