/* CPUs as a backend. The engine of struct copse_comm_shape says who runs the workers: one thread
 * those of all ranks, a thread each, or this process those of its rank with the others behind a
 * transport. */
#pragma once

#include "runtime/backend/backend.h"
#include "runtime/interpreter/interpreter.h"

extern const struct copse_engine copse_threads_engine; /* a thread for each worker */

/* CPUs as a backend; what it prepares for a plan is an interpreter. */
extern const struct copse_backend_ops copse_cpu_backend;
