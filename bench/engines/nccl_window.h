/* SPDX-License-Identifier: Apache-2.0
 *
 * Buffers of NCCL's own in symmetric windows: what its kernels for symmetric memory (2.27 and
 * later) need. Called through pointers with NCCL's types spelt out, because nccl.h before 2.27
 * lacks some, and so that builds without NCCL can try it against a stand-in.
 */
#ifndef GYRE_BENCH_NCCL_WINDOW_H
#define GYRE_BENCH_NCCL_WINDOW_H

#include "bench/driver/rank.h"

/* X(member, symbol, result, parameters); ncclResult_t is an int, 0 = success, its handles are
 * pointers. */
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
    void *comm; /* the ncclComm_t; NULL until open */
    struct bench_buffers buffers;
    void *windows[2]; /* of send and recv */
};

/** bench_nccl_windows_load - find the functions.
 * @library: of dlopen(); @path: what to call it.
 * Errors: UNSUPPORTED naming the function that is missing (NCCL before 2.27). */
gyre_status bench_nccl_windows_load(void *library, const char *path,
                                    struct bench_nccl_windows *windows_out);

/** bench_nccl_windows_open - allocate both buffers, of at least n_bytes each, and register them.
 * Collective; the rank's GPU is current.
 * @comm: the ncclComm_t; stays the caller's, and outlives the windows.
 * Errors: DEVICE (NCCL's own words), UNSUPPORTED (NCCL registers nothing here). Close it after a
 * failure too. */
gyre_status bench_nccl_windows_open(const struct bench_member *member, void *comm, size_t n_bytes,
                                    struct bench_nccl_windows *windows);

/** bench_nccl_windows_close - what was not opened does nothing.
 * @is_orderly: all ranks do so, and the communicator lives: deregistering waits for the others.
 * Else the communicator was aborted, and its windows with it. */
void bench_nccl_windows_close(struct bench_nccl_windows *windows, bool is_orderly);

#endif
