/*
 * NCCL's tuner interface, versions 1 to 6, as nccl/plugin/tuner.h of NCCL 2.19 to 2.31 has it. Each
 * version is a struct of functions under the name ncclTunerPlugin_vN; NCCL takes the newest that
 * both know: v1 2.19 and 2.20, v2 from 2.21, v3 from 2.22, v4 from 2.24, v5 from 2.28, v6
 * from 2.30.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef enum { ncclSuccess = 0 } ncclResult_t;
typedef unsigned int ncclFunc_t; /* an enumeration; numbers that are not known may come */

enum { NCCL_LOG_WARN = 2, NCCL_LOG_INFO = 3 };
enum { NCCL_SUBSYS_INIT = 0x1, NCCL_SUBSYS_TUNING = 0x40 };
typedef void (*ncclDebugLogger_t)(int level, unsigned long flags, const char *file, int line,
                                  const char *fmt, ...);

typedef struct {
  const char *name;
  ncclResult_t (*init)(size_t nRanks, size_t nNodes, ncclDebugLogger_t log);
  ncclResult_t (*getCollInfo)(ncclFunc_t coll, size_t nBytes, int collNetSupport, int nvlsSupport,
                              int numPipeOps, int *algorithm, int *protocol, int *nChannels);
  ncclResult_t (*destroy)(void);
} ncclTuner_v1_t;

typedef struct {
  const char *name;
  ncclResult_t (*init)(size_t nRanks, size_t nNodes, ncclDebugLogger_t log, void **context);
  ncclResult_t (*getCollInfo)(void *context, ncclFunc_t coll, size_t nBytes, int collNetSupport,
                              int nvlsSupport, int numPipeOps, int *algorithm, int *protocol,
                              int *nChannels);
  ncclResult_t (*destroy)(void *context);
} ncclTuner_v2_t;

/* collCostTable is declared as rows and is one block, float[numAlgo][numProto]: microseconds that
 * NCCL expects, -1 where the pair can't be used. */
typedef struct {
  const char *name;
  ncclResult_t (*init)(size_t nRanks, size_t nNodes, ncclDebugLogger_t log, void **context);
  ncclResult_t (*getCollInfo)(void *context, ncclFunc_t coll, size_t nBytes, int numPipeOps,
                              float **collCostTable, int numAlgo, int numProto, int *nChannels);
  ncclResult_t (*destroy)(void *context);
} ncclTuner_v3_t;

typedef struct {
  const char *name;
  ncclResult_t (*init)(size_t nRanks, size_t nNodes, ncclDebugLogger_t log, void **context);
  ncclResult_t (*getCollInfo)(void *context, ncclFunc_t coll, size_t nBytes, int numPipeOps,
                              float **collCostTable, int numAlgo, int numProto, int regBuff,
                              int *nChannels);
  ncclResult_t (*destroy)(void *context);
} ncclTuner_v4_t;

/* What init gets beside, in v5 and v6: the domains of NVLink, and constants of NCCL's model. */
typedef struct ncclNvlDomainInfo ncclNvlDomainInfo_t;
typedef struct ncclTunerConstants ncclTunerConstants_t;

typedef struct {
  const char *name;
  ncclResult_t (*init)(void **context, uint64_t commId, size_t nRanks, size_t nNodes,
                       ncclDebugLogger_t log, ncclNvlDomainInfo_t *domains,
                       ncclTunerConstants_t *constants);
  ncclResult_t (*getCollInfo)(void *context, ncclFunc_t coll, size_t nBytes, int numPipeOps,
                              float **collCostTable, int numAlgo, int numProto, int regBuff,
                              int *nChannels);
  ncclResult_t (*finalize)(void *context);
} ncclTuner_v5_t;

typedef struct {
  const char *name;
  ncclResult_t (*init)(void **context, uint64_t commId, size_t nRanks, size_t nNodes,
                       ncclDebugLogger_t log, ncclNvlDomainInfo_t *domains,
                       ncclTunerConstants_t *constants);
  ncclResult_t (*getCollInfo)(void *context, ncclFunc_t coll, size_t nBytes, int numPipeOps,
                              float **collCostTable, int numAlgo, int numProto, int regBuff,
                              int *nChannels);
  ncclResult_t (*finalize)(void *context);
  ncclResult_t (*getChunkSize)(void *context, ncclFunc_t coll, size_t nBytes, int algo, int proto,
                               int nChannels, size_t *chunkSize);
} ncclTuner_v6_t;
