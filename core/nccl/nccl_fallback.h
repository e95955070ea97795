/* SPDX-License-Identifier: Apache-2.0
 *
 * GYRE_NCCL_FALLBACK=path names a real libnccl.so.2. Calls that gyre does not have are passed on to
 * it. By default there is none. The real library does not know gyre's communicators, so each
 * communicator with such a call gets a twin in the real library.
 */
#ifndef GYRE_NCCL_FALLBACK_H
#define GYRE_NCCL_FALLBACK_H

#include "core/nccl/nccl.h"

/* The functions that are used of the real library. X(name, parameters) */
#define NCCL_FALLBACK_FUNCTIONS(X)                                                  \
    X(GetUniqueId, (ncclUniqueId * uniqueId))                                       \
    X(CommInitRank, (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank)) \
    X(CommDestroy, (ncclComm_t comm))                                               \
    X(CommAbort, (ncclComm_t comm))                                                 \
    X(CommWindowRegister,                                                           \
      (ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int winFlags))  \
    X(CommWindowDeregister, (ncclComm_t comm, ncclWindow_t win))                    \
    X(DevCommCreate, (ncclComm_t comm, const void *requirements, void *devComm))    \
    X(DevCommDestroy, (ncclComm_t comm, const void *devComm))                       \
    X(MemAlloc, (void **ptr, size_t size))                                          \
    X(MemFree, (void *ptr))

struct nccl_fallback {
#define NCCL_FALLBACK_FIELD(name, parameters) ncclResult_t(*name) parameters;
    NCCL_FALLBACK_FUNCTIONS(NCCL_FALLBACK_FIELD)
#undef NCCL_FALLBACK_FIELD
    const char *(*GetLastError)(ncclComm_t comm);
};

/** nccl_fallback_get - the real library, or NULL if there is none. The first call loads it. */
const struct nccl_fallback *nccl_fallback_get(void);

/** nccl_fallback_problem - why the library could not be loaded although the variable is set; else
 * "". */
const char *nccl_fallback_problem(void);

#endif
