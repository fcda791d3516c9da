/*
 * copse: a compiler for collective communication. The public C API.
 *
 *   question                                        function
 *   ---------------------------------------------   -----------------------------
 *   what went wrong in my last call?                copse_last_error
 *   read a topology (JSON, NCCL XML, cluster)       copse_topology_read
 *   compute an exactly optimal schedule             copse_solve
 *   read or write a schedule                        copse_schedule_read, _write
 *   prove a schedule against a topology             copse_schedule_verify
 *   turn a schedule into an executable plan         copse_lower
 *   read or write a plan                            copse_plan_read, _write
 *   prove a plan                                    copse_plan_check
 *
 * Conventions. Every function returns a copse_status; on anything but COPSE_OK the
 * calling thread's copse_last_error() has one line of text, `T **out` is NULL and
 * nothing was written. No function prints, exits or reads the environment. Objects
 * are immutable once made and may be shared between threads; whoever receives one
 * frees it with the matching _free, which takes NULL.
 */
#ifndef COPSE_COPSE_H
#define COPSE_COPSE_H

#include <stddef.h>
#include <stdint.h>

#define COPSE_VERSION_MAJOR 0
#define COPSE_VERSION_MINOR 1
#define COPSE_VERSION_PATCH 0
#define COPSE_VERSION_STRING "0.1.0"

#if defined(__GNUC__)
#define COPSE_API __attribute__((visibility("default")))
#define COPSE_CHECKED __attribute__((warn_unused_result))
#else
#define COPSE_API
#define COPSE_CHECKED
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Values are stable: new ones are added at the end. */
typedef enum copse_status {
  COPSE_OK = 0,
  COPSE_REFUTED = 1,      /* a check ran to its end and failed (verify, check, run) */
  COPSE_INVALID = 2,      /* the caller's argument makes no sense */
  COPSE_BAD_INPUT = 3,    /* a file's content is wrong; the text names the place */
  COPSE_IO = 4,           /* a file can't be opened, read or written */
  COPSE_INFEASIBLE = 5,   /* the problem has no solution: a rank can't be reached */
  COPSE_OVERFLOW = 6,     /* exact arithmetic would leave 64 bits */
  COPSE_NOMEM = 7,        /* memory or another resource ran out */
  COPSE_UNSUPPORTED = 8,  /* valid, and not covered by this version */
  COPSE_INTERNAL = 9      /* a bug in copse */
} copse_status;

/* The enum's name in words, such as "bad input"; never NULL. */
COPSE_API const char *copse_status_string(copse_status status);

/* "0.1.0". */
COPSE_API const char *copse_version(void);

/*
 * The text of this thread's last failed call, "" before any. Valid until the
 * thread's next copse call.
 */
COPSE_API const char *copse_last_error(void);

typedef enum copse_collective {
  COPSE_ALLGATHER = 0,
  COPSE_REDUCE_SCATTER = 1,
  COPSE_ALLREDUCE = 2,
  COPSE_BROADCAST = 3,
  COPSE_REDUCE = 4,
  COPSE_ALLTOALL = 5
} copse_collective;

#ifdef __cplusplus
}
#endif
#endif
