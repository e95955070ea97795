/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's functions, looked up in whatever libnccl.so.2 the user names. Their types are written out
 * here instead of coming from nccl.h, so that one build of the benches can load any NCCL from 2.20
 * to 2.32 and tests can load a stand-in on host memory.
 */
#ifndef GYRE_BENCH_NCCL_API_H
#define GYRE_BENCH_NCCL_API_H

#include "bench/driver/rank.h"

/* ncclUniqueId, which is passed by value. */
struct bench_nccl_id {
    char bytes[128];
};

/* ncclConfig_t as of 2.28. NCCL reads `size` first and copies no more bytes than it knows, and it
 * sets a field to its default if the field is newer than `version`. Therefore an older NCCL ignores
 * the end of this struct, and a newer NCCL uses defaults for the fields that are missing here. */
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

/* X(member, symbol, result, parameters). NULL in the struct if the
 * library lacks the function. Without the configuration there is no zero-sm mode. For the others a
 * group of sends and receives stands in. */
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

/** bench_nccl_find - look up a function of a library. @function_out: the address of a pointer to a
 * function of the right type. Returns false and stores NULL if the library lacks it. */
bool bench_nccl_find(void *library, const char *symbol, void *function_out);

/** bench_nccl_api_load - load a library and look up its functions. @path: as dlopen() takes it.
 * Errors: UNSUPPORTED (no such library, a function of the required table is missing, older than
 * BENCH_NCCL_MIN_VERSION, gyre's own libnccl.so.2). */
gyre_status bench_nccl_api_load(const char *path, struct bench_nccl_api *api_out);

/** bench_nccl_api_look_up - as bench_nccl_api_load() for a library that is loaded, gyre's too. */
gyre_status bench_nccl_api_look_up(void *library, const char *path, struct bench_nccl_api *api_out);

/** bench_nccl_api_missing - list the collectives that the library lacks, and say what stands in for
 * them; "" if it has all of them. */
void bench_nccl_api_missing(const struct bench_nccl_api *api, char *text_out, size_t n_bytes);

/** bench_nccl_api_check - turn one of NCCL's results into a status. @call: its name in the message.
 * Errors: DEVICE with NCCL's own text. */
gyre_status bench_nccl_api_check(const struct bench_nccl_api *api, int result, const char *call);

/** bench_nccl_config_of - a configuration with all defaults and this policy for multiprocessors. */
struct bench_nccl_config bench_nccl_config_of(const struct bench_nccl_api *api, int cta_policy);

#define BENCH_NCCL_POLICY_ZERO 2 /* NCCL_CTA_POLICY_ZERO: use no multiprocessors where possible */

/** bench_nccl_call - carry out a call over a communicator of NCCL's, on a stream. */
gyre_status bench_nccl_call(const struct bench_nccl_api *api, void *comm,
                            const struct bench_member *member, const struct bench_call *call,
                            void *stream);

#endif
