/* SPDX-License-Identifier: Apache-2.0
 *
 * Buffers that NCCL allocates itself and knows in advance. In symmetric windows they serve NCCL's
 * kernels for symmetric memory (2.27 and later) and its copy engines (2.28 and later). Registered
 * ones serve its rings without staging (2.19 and later).
 */
#ifndef GYRE_BENCH_NCCL_WINDOW_H
#define GYRE_BENCH_NCCL_WINDOW_H

#include "bench/engines/nccl_api.h"

enum bench_nccl_buffer_kind {
    BENCH_NCCL_IN_WINDOWS, /* ncclCommWindowRegister() with the flag for symmetric windows */
    BENCH_NCCL_REGISTERED, /* ncclCommRegister() */
};

/* X(member, symbol, result, parameters, the kind that needs it, or -1 = both) */
#define BENCH_NCCL_WINDOW_TABLE(X)                                                                \
    X(alloc, ncclMemAlloc, int, (void **ptr, size_t n_bytes), -1)                                 \
    X(free, ncclMemFree, int, (void *ptr), -1)                                                    \
    X(add, ncclCommWindowRegister, int,                                                           \
      (void *comm, void *base, size_t n_bytes, void **window, int flags), BENCH_NCCL_IN_WINDOWS)  \
    X(remove, ncclCommWindowDeregister, int, (void *comm, void *window), BENCH_NCCL_IN_WINDOWS)   \
    X(add_buffer, ncclCommRegister, int, (void *comm, void *base, size_t n_bytes, void **handle), \
      BENCH_NCCL_REGISTERED)                                                                      \
    X(remove_buffer, ncclCommDeregister, int, (void *comm, void *handle), BENCH_NCCL_REGISTERED)  \
    X(error_text, ncclGetErrorString, const char *, (int result), -1)

#define BENCH_NCCL_WINDOW_SYMMETRIC 1 /* NCCL_WIN_COLL_SYMMETRIC */

struct bench_nccl_windows {
#define BENCH_NCCL_WINDOW_MEMBER(member, symbol, result, parameters, kind) \
    result(*member) parameters;
    BENCH_NCCL_WINDOW_TABLE(BENCH_NCCL_WINDOW_MEMBER)
#undef BENCH_NCCL_WINDOW_MEMBER
    enum bench_nccl_buffer_kind kind;
    void *comm; /* the ncclComm_t; NULL until bench_nccl_windows_open() */
    struct bench_buffers buffers;
    void *handles[2]; /* of send and recv: windows or registrations */
};

/** bench_nccl_windows_load - look up the functions that buffers of this kind need.
 * @library: from dlopen(). @path: the library's name in messages.
 * Errors: UNSUPPORTED with the name of the missing function. */
gyre_status bench_nccl_windows_load(void *library, const char *path,
                                    enum bench_nccl_buffer_kind kind,
                                    struct bench_nccl_windows *windows_out);

/** bench_nccl_windows_open - allocate both buffers of at least n_bytes each and register them.
 * Collective; the rank's GPU must be the current one.
 * @comm: the ncclComm_t. The caller keeps it, and it must outlive the windows.
 * Errors: DEVICE (with NCCL's own text), UNSUPPORTED (NCCL makes no windows here). Call
 * bench_nccl_windows_close() after a failure too. */
gyre_status bench_nccl_windows_open(const struct bench_member *member, void *comm, size_t n_bytes,
                                    struct bench_nccl_windows *windows);

/** bench_nccl_windows_close - release what was opened.
 * @is_orderly: true when all ranks close together and the communicator still works, because
 * deregistering may wait for the other ranks. False when the communicator was aborted, which ends
 * its windows and registrations too. */
void bench_nccl_windows_close(struct bench_nccl_windows *windows, bool is_orderly);

#endif
