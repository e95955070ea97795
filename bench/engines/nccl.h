/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's functions and buffers, of whatever libnccl.so.2 the user names. Their types are written
 * out here, so that one build can load any NCCL from 2.20 to 2.32, and tests a stand-in on host
 * memory.
 */
#ifndef GYRE_BENCH_NCCL_H
#define GYRE_BENCH_NCCL_H

#include "bench/driver/rank.h"

/* Passed by value. */
struct bench_nccl_id {
    char bytes[128];
};

/* ncclConfig_t as of 2.28. NCCL copies no more bytes than it knows, and sets fields that are newer
 * than `version` to their defaults. So an older NCCL ignores the end of this struct, and a newer
 * one has defaults for what is missing here. */
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

/* X(member, symbol, result, parameters). ncclResult_t is an int with 0 = success; types and
 * operations are ints with the same numbers as gyre's; handles and streams are pointers. */
#define BENCH_NCCL_REQUIRED_TABLE(X)                                                              \
    X(get_version, ncclGetVersion, int, (int *version))                                           \
    X(get_id, ncclGetUniqueId, int, (struct bench_nccl_id * id))                                  \
    X(error_text, ncclGetErrorString, const char *, (int result))                                 \
    X(init_rank, ncclCommInitRank, int,                                                           \
      (void **comm, int n_ranks, struct bench_nccl_id id, int rank))                              \
    X(destroy, ncclCommDestroy, int, (void *comm))                                                \
    X(abort, ncclCommAbort, int, (void *comm))                                                    \
    X(all_reduce, ncclAllReduce, int,                                                             \
      (const void *send, void *recv, size_t count, int type, int op, void *comm, void *stream))   \
    X(broadcast, ncclBroadcast, int,                                                              \
      (const void *send, void *recv, size_t count, int type, int root, void *comm, void *stream)) \
    X(reduce, ncclReduce, int,                                                                    \
      (const void *send, void *recv, size_t count, int type, int op, int root, void *comm,        \
       void *stream))                                                                             \
    X(all_gather, ncclAllGather, int,                                                             \
      (const void *send, void *recv, size_t count, int type, void *comm, void *stream))           \
    X(reduce_scatter, ncclReduceScatter, int,                                                     \
      (const void *send, void *recv, size_t count, int type, int op, void *comm, void *stream))   \
    X(send, ncclSend, int,                                                                        \
      (const void *send, size_t count, int type, int peer, void *comm, void *stream))             \
    X(recv, ncclRecv, int,                                                                        \
      (void *recv, size_t count, int type, int peer, void *comm, void *stream))                   \
    X(group_start, ncclGroupStart, int, (void))                                                   \
    X(group_end, ncclGroupEnd, int, (void))

/* NULL in the struct if the library lacks the function. Without the configuration there is no
 * zero-sm mode; for the others a group of sends and receives stands in. */
#define BENCH_NCCL_OPTIONAL_TABLE(X)                                \
    X(init_config, ncclCommInitRankConfig, int,                     \
      (void **comm, int n_ranks, struct bench_nccl_id id, int rank, \
       struct bench_nccl_config *config))                           \
    BENCH_NCCL_REPLACED_TABLE(X)

#define BENCH_NCCL_REPLACED_TABLE(X)                                                              \
    X(all_to_all, ncclAlltoAll, int,                                                              \
      (const void *send, void *recv, size_t count, int type, void *comm, void *stream))           \
    X(gather, ncclGather, int,                                                                    \
      (const void *send, void *recv, size_t count, int type, int root, void *comm, void *stream)) \
    X(scatter, ncclScatter, int,                                                                  \
      (const void *send, void *recv, size_t count, int type, int root, void *comm, void *stream))

#define BENCH_NCCL_MIN_VERSION     22000 /* 2.20.0: the oldest that is tried */
#define BENCH_NCCL_ZERO_SM_VERSION 22800 /* since 2.28 copy engines may carry collectives out */

struct bench_nccl_api {
    void *library; /* from dlopen(); stays loaded, because NCCL's threads may end later */
    int version;   /* 22803 is 2.28.3 */
#define BENCH_NCCL_MEMBER(member, symbol, result, parameters) result(*member) parameters;
    BENCH_NCCL_REQUIRED_TABLE(BENCH_NCCL_MEMBER)
    BENCH_NCCL_OPTIONAL_TABLE(BENCH_NCCL_MEMBER)
#undef BENCH_NCCL_MEMBER
};

/** bench_nccl_find - @function_out: the address of a pointer. Returns false and stores NULL if the
 * library lacks it. */
bool bench_nccl_find(void *library, const char *symbol, void *function_out);

/** bench_nccl_api_load - @path as dlopen() takes it. Errors: UNSUPPORTED (no such library, a
 * required function is missing, older than BENCH_NCCL_MIN_VERSION, gyre's own libnccl.so.2). */
gyre_status bench_nccl_api_load(const char *path, struct bench_nccl_api *api_out);

/** bench_nccl_api_look_up - of a library that is loaded, gyre's too. */
gyre_status bench_nccl_api_look_up(void *library, const char *path, struct bench_nccl_api *api_out);

/** bench_nccl_api_missing - the collectives that the library lacks and what stands in for them; ""
 * = none. */
void bench_nccl_api_missing(const struct bench_nccl_api *api, char *text_out, size_t n_bytes);

/** bench_nccl_api_check - errors: DEVICE with NCCL's text, if @result of @call is one. */
gyre_status bench_nccl_api_check(const struct bench_nccl_api *api, int result, const char *call);

struct bench_nccl_config bench_nccl_config_of(const struct bench_nccl_api *api, int cta_policy);

#define BENCH_NCCL_POLICY_ZERO 2 /* NCCL_CTA_POLICY_ZERO: use no multiprocessors where possible */

gyre_status bench_nccl_call(const struct bench_nccl_api *api, void *comm,
                            const struct bench_member *member, const struct bench_call *call,
                            void *stream);

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

/* Buffers that NCCL allocates itself and knows in advance: symmetric windows for its kernels on
 * symmetric memory (2.27) and its copy engines (2.28), registrations for rings without staging
 * (2.19).
 */
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

/** bench_nccl_windows_load - @library: from dlopen(). @path: its name in messages. Errors:
 * UNSUPPORTED. */
gyre_status bench_nccl_windows_load(void *library, const char *path,
                                    enum bench_nccl_buffer_kind kind,
                                    struct bench_nccl_windows *windows_out);

/** bench_nccl_windows_open - both buffers of at least n_bytes each, registered. Collective; the
 * rank's GPU must be the current one. Close the windows after a failure too. @comm: outlives the
 * windows. Errors: DEVICE (with NCCL's own text), UNSUPPORTED (NCCL makes no windows here). */
gyre_status bench_nccl_windows_open(const struct bench_member *member, void *comm, size_t n_bytes,
                                    struct bench_nccl_windows *windows);

/** bench_nccl_windows_close - @is_orderly: all ranks close together and the communicator works;
 * deregistering may wait for the other ranks. Else it was aborted, which ends its windows too. */
void bench_nccl_windows_close(struct bench_nccl_windows *windows, bool is_orderly);

#endif
