/* Inside src/runtime: running one round of calls. */
#ifndef COPSE_RUNTIME_COMM_CLIQUE_LAUNCH_H
#define COPSE_RUNTIME_COMM_CLIQUE_LAUNCH_H

#include "runtime/comm/clique.h"

/* The gathering's launch: picks the plan and hands the round to the machine. */
copse_status copse_clique_launch(void *clique, const struct copse_call *calls, bool *breaks,
                                 struct copse_err *err) COPSE_CHECKED;

#endif
