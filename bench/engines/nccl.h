/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's types are written out, so that one build can load any NCCL from 2.20 to 2.32, and tests a
 * stand-in on host memory.
 */
#ifndef GYRE_BENCH_NCCL_H
#define GYRE_BENCH_NCCL_H

#include "bench/driver/rank.h"

/* Passed by value. */
struct bench_nccl_id {
    char bytes[128];
};

/* ncclConfig_t of 2.28. NCCL copies only bytes that it knows, and gives fields newer than `version`
 * their defaults, so it works with older and newer NCCL. */
struct bench_nccl_config {
    size_t size;
    unsigned magic;
    unsigned version;
    int blocking;
    int cga_cluster_size;
    int min_ctas;
    int max_ctas;
    const char *net_name;
    int split_share;
    int traffic_class;
    const char *comm_name;
    int collnet_enable;
    int cta_policy;
    int shrink_share;
    int nvls_ctas;
    int channels_per_net_peer;
    int nvlink_centric_sched;
};

/* X(member, symbol, result, parameters). ncclResult_t is an int, 0 = success. Handles and streams
 * are pointers. */
#define BENCH_NCCL_TABLE(X)                                          \
    X(get_version, ncclGetVersion, int, (int *version))              \
    X(get_id, ncclGetUniqueId, int, (struct bench_nccl_id * id))     \
    X(error_text, ncclGetErrorString, const char *, (int result))    \
    X(init_rank, ncclCommInitRank, int,                              \
      (void **comm, int n_ranks, struct bench_nccl_id id, int rank)) \
    X(destroy, ncclCommDestroy, int, (void *comm))                   \
    X(abort, ncclCommAbort, int, (void *comm))

/* X(member of struct bench_library, symbol). Their parameters are those of gyre's functions: types
 * and operations have gyre's numbers. */
#define BENCH_NCCL_CALL_TABLE(X)         \
    X(all_reduce, ncclAllReduce)         \
    X(broadcast, ncclBroadcast)          \
    X(reduce, ncclReduce)                \
    X(all_gather, ncclAllGather)         \
    X(reduce_scatter, ncclReduceScatter) \
    X(send, ncclSend)                    \
    X(recv, ncclRecv)                    \
    X(group_start, ncclGroupStart)       \
    X(group_end, ncclGroupEnd)

/* NULL before 2.28. Grouped sends and receives replace them. */
#define BENCH_NCCL_REPLACED_TABLE(X) \
    X(all_to_all, ncclAlltoAll)      \
    X(gather, ncclGather)            \
    X(scatter, ncclScatter)

#define BENCH_NCCL_MIN_VERSION     22000 /* 2.20.0, the oldest tested */
#define BENCH_NCCL_ZERO_SM_VERSION 22800 /* copy engines since 2.28 */

struct bench_nccl_api {
    void *library; /* of dlopen(), stays loaded for threads that end later */
    int version;   /* 22803 is 2.28.3 */
#define BENCH_NCCL_MEMBER(member, symbol, result, parameters) result(*member) parameters;
    BENCH_NCCL_TABLE(BENCH_NCCL_MEMBER)
#undef BENCH_NCCL_MEMBER
    /* ncclCommInitRankConfig(), NULL = the library lacks it, and so zero-sm. */
    int (*init_config)(void **comm, int n_ranks, struct bench_nccl_id id, int rank,
                       struct bench_nccl_config *config);
    struct bench_library calls; /* whose results are ncclResult_t */
};

/** @function_out: address of a pointer. False, storing NULL, if the library lacks it. */
bool bench_nccl_find(void *library, const char *symbol, void *function_out);

/** @path: for dlopen(). Errors: UNSUPPORTED (no library, no required function, too old, or gyre's
 * own libnccl.so.2). */
gyre_status bench_nccl_api_load(const char *path, struct bench_nccl_api *api_out);

/** As bench_nccl_api_load(), for a library that is loaded, gyre's too. */
gyre_status bench_nccl_api_look_up(void *library, const char *path, struct bench_nccl_api *api_out);

/** Names missing collectives and what replaces them. "" = none. */
void bench_nccl_api_missing(const struct bench_nccl_api *api, char *text_out, size_t n_bytes);

/** Turns NCCL's error into DEVICE with NCCL's text. */
gyre_status bench_nccl_api_check(const struct bench_nccl_api *api, int result, const char *call);

struct bench_nccl_config bench_nccl_config_of(const struct bench_nccl_api *api, int cta_policy);

#define BENCH_NCCL_POLICY_ZERO 2 /* NCCL_CTA_POLICY_ZERO */

/** @rank: its communicator is an ncclComm_t. */
gyre_status bench_nccl_call(const struct bench_nccl_api *api, const struct bench_rank *rank,
                            const struct bench_call *call);

enum bench_nccl_buffer_kind {
    BENCH_NCCL_IN_WINDOWS, /* ncclCommWindowRegister(), symmetric */
    BENCH_NCCL_REGISTERED, /* ncclCommRegister() */
};

/* X(member, symbol, result, parameters, kind that needs it, -1 = both) */
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

/* NCCL's own buffers: symmetric windows for kernels (2.27) and copy engines (2.28), registrations
 * for rings without staging (2.19). */
struct bench_nccl_windows {
#define BENCH_NCCL_WINDOW_MEMBER(member, symbol, result, parameters, kind) \
    result(*member) parameters;
    BENCH_NCCL_WINDOW_TABLE(BENCH_NCCL_WINDOW_MEMBER)
#undef BENCH_NCCL_WINDOW_MEMBER
    enum bench_nccl_buffer_kind kind;
    void *comm; /* the ncclComm_t, NULL before bench_nccl_windows_open() */
    struct bench_buffers buffers;
    void *handles[2]; /* of send and recv */
};

/** @library: from dlopen(). @path: for messages. Errors: UNSUPPORTED. */
gyre_status bench_nccl_windows_load(void *library, const char *path,
                                    enum bench_nccl_buffer_kind kind,
                                    struct bench_nccl_windows *windows_out);

/** Registers two buffers of at least n_bytes. Collective, on the rank's current GPU. Close them
 * after a failure too. @comm: outlives them. Errors: DEVICE (with NCCL's text), UNSUPPORTED (no
 * windows here). */
gyre_status bench_nccl_windows_open(const struct bench_self *self, void *comm, size_t n_bytes,
                                    struct bench_nccl_windows *windows);

/** @is_orderly: all ranks close together with a working communicator, as deregistering may wait for
 * them. Else it was aborted with its windows. */
void bench_nccl_windows_close(struct bench_nccl_windows *windows, bool is_orderly);

#endif
