/* SPDX-License-Identifier: Apache-2.0
 *
 * Buffers of NCCL's own in symmetric windows, which NCCL's kernels for symmetric memory (2.27 and
 * later) need. The functions are called through pointers whose types are written out here, because
 * nccl.h before 2.27 lacks some of them, and because tests of builds without NCCL use a stand-in.
 */
#ifndef GYRE_BENCH_NCCL_WINDOW_H
#define GYRE_BENCH_NCCL_WINDOW_H

#include "bench/driver/rank.h"

/* X(member, symbol, result, parameters). ncclResult_t is an int with 0 = success, and NCCL's
 * handles are pointers. */
#define BENCH_NCCL_WINDOW_TABLE(X)                                        \
    X(alloc, ncclMemAlloc, int, (void **ptr, size_t n_bytes))             \
    X(free, ncclMemFree, int, (void *ptr))                                \
    X(add, ncclCommWindowRegister, int,                                   \
      (void *comm, void *base, size_t n_bytes, void **window, int flags)) \
    X(remove, ncclCommWindowDeregister, int, (void *comm, void *window))  \
    X(error_text, ncclGetErrorString, const char *, (int result))

#define BENCH_NCCL_WINDOW_SYMMETRIC 1 /* NCCL_WIN_COLL_SYMMETRIC */

struct bench_nccl_windows {
#define BENCH_NCCL_WINDOW_MEMBER(member, symbol, result, parameters) result(*member) parameters;
    BENCH_NCCL_WINDOW_TABLE(BENCH_NCCL_WINDOW_MEMBER)
#undef BENCH_NCCL_WINDOW_MEMBER
    void *comm; /* the ncclComm_t; NULL until bench_nccl_windows_open() */
    struct bench_buffers buffers;
    void *windows[2]; /* of send and recv */
};

/** bench_nccl_windows_load - look up the functions in a library.
 * @library: from dlopen(). @path: the library's name in messages.
 * Errors: UNSUPPORTED with the name of the missing function (NCCL before 2.27). */
gyre_status bench_nccl_windows_load(void *library, const char *path,
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
 * deregistering waits for the other ranks. False when the communicator was aborted, which ends its
 * windows too. */
void bench_nccl_windows_close(struct bench_nccl_windows *windows, bool is_orderly);

#endif
