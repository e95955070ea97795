/* SPDX-License-Identifier: Apache-2.0
 *
 * PLUGIN_VERSION is the table's: 4, 5 or 6. 0 makes a library without a table, 1 a table of version
 * 5 without a function.
 */
#include "tests/nccl/profiler_plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

#if PLUGIN_VERSION > 0
static struct profiler_records *records(void)
{
    void *address = NULL;
    const char *text = getenv("TEST_PLUGIN_RECORDS");
    return text != NULL && sscanf(text, "%p", &address) == 1 ? address : NULL;
}

static ncclResult_t join(void **context, uint64_t id, int *mask, const char *name, int n_ranks,
                         int rank, nccl_plugin_log *log)
{
    struct profiler_records *all = records();
    pthread_mutex_lock(&all->lock);
    struct profiler_comm *comm = &all->comms[all->n_comms++];
    comm->id = id;
    comm->n_ranks = n_ranks;
    comm->rank = rank;
    snprintf(comm->name, sizeof(comm->name), "%s", name);
    *context = comm;
    all->mask = mask;
    __atomic_store_n(mask, all->first_mask, __ATOMIC_RELAXED);
    const ncclResult_t result = all->fails ? ncclSystemError : ncclSuccess;
    pthread_mutex_unlock(&all->lock);
    log(2, 1, __FILE__, __LINE__, "the plugin's own line of rank %d", rank);
    return result;
}

static ncclResult_t start(void *context, void **handle, struct nccl_event *given)
{
    struct profiler_records *all = records();
    pthread_mutex_lock(&all->lock);
    if (all->n_events < MAX_EVENTS) {
        struct profiler_event *event = &all->events[all->n_events++];
        event->type = PLUGIN_VERSION == 4 ? given->type_v4 : (unsigned)given->type;
        event->parent = given->parent;
        event->context = context;
        event->rank = given->rank;
        event->started = ++all->order;
        event->root_or_peer = -1;
        switch (event->type) {
        case NCCL_EVENT_GROUP_API:
            event->count = (size_t)given->group_api.depth;
            break;
        case NCCL_EVENT_COLL_API:
            snprintf(event->func, sizeof(event->func), "%s", given->coll_api.func);
            snprintf(event->datatype, sizeof(event->datatype), "%s", given->coll_api.datatype);
            event->count = given->coll_api.count;
            event->root_or_peer = given->coll_api.root;
            break;
        case NCCL_EVENT_P2P_API:
            snprintf(event->func, sizeof(event->func), "%s", given->p2p_api.func);
            snprintf(event->datatype, sizeof(event->datatype), "%s", given->p2p_api.datatype);
            event->count = given->p2p_api.count;
            break;
        case NCCL_EVENT_COLL:
            snprintf(event->func, sizeof(event->func), "%s", given->coll.func);
            snprintf(event->datatype, sizeof(event->datatype), "%s", given->coll.datatype);
            snprintf(event->algorithm, sizeof(event->algorithm), "%s", given->coll.algorithm);
            snprintf(event->protocol, sizeof(event->protocol), "%s", given->coll.protocol);
            event->count = given->coll.count;
            event->sequence = given->coll.sequence;
            event->root_or_peer = given->coll.root;
            event->n_channels = given->coll.n_channels;
            event->group = PLUGIN_VERSION == 4 ? NULL : given->coll.group;
            break;
        case NCCL_EVENT_P2P:
            snprintf(event->func, sizeof(event->func), "%s", given->p2p.func);
            snprintf(event->datatype, sizeof(event->datatype), "%s", given->p2p.datatype);
            event->count = given->p2p.count;
            event->root_or_peer = given->p2p.peer;
            event->n_channels = given->p2p.n_channels;
            event->group = PLUGIN_VERSION == 4 ? NULL : given->p2p.group;
            break;
        case NCCL_EVENT_KERNEL_CH:
            event->channel = given->kernel_ch.channel;
            event->start_time = given->kernel_ch.time;
            break;
        default:
            break;
        }
        *handle = event;
    }
    pthread_mutex_unlock(&all->lock);
    return ncclSuccess;
}

static struct profiler_event *known(struct profiler_records *all, void *handle)
{
    for (int i = 0; i < all->n_events; i++)
        if (handle == &all->events[i])
            return handle;
    all->n_wrong++;
    return NULL;
}

static ncclResult_t stop(void *handle)
{
    struct profiler_records *all = records();
    pthread_mutex_lock(&all->lock);
    struct profiler_event *event = known(all, handle);
    if (event != NULL) {
        event->stopped = ++all->order;
        event->n_stops++;
    }
    pthread_mutex_unlock(&all->lock);
    return ncclSuccess;
}

static ncclResult_t record(void *handle, int state, union nccl_event_state *args)
{
    struct profiler_records *all = records();
    pthread_mutex_lock(&all->lock);
    struct profiler_event *event = known(all, handle);
    if (event != NULL && state >= 0 && state < N_STATES) {
        event->states[state] = ++all->order;
        if (state == NCCL_STATE_KERNEL_CH_STOP)
            event->stop_time = args->kernel_ch_time;
    }
    pthread_mutex_unlock(&all->lock);
    return ncclSuccess;
}

static ncclResult_t finalize(void *context)
{
    struct profiler_records *all = records();
    pthread_mutex_lock(&all->lock);
    for (int i = 0; i < all->n_comms; i++)
        if (context == &all->comms[i])
            all->comms[i].n_finalized++;
    pthread_mutex_unlock(&all->lock);
    return ncclSuccess;
}
#endif

#if PLUGIN_VERSION == 4
static ncclResult_t init(void **context, int *mask, const char *name, uint64_t id, int n_hosts,
                         int n_ranks, int rank, nccl_plugin_log *log)
{
    return n_hosts == 1 ? join(context, id, mask, name, n_ranks, rank, log) : ncclInternalError;
}

EXPORT const struct nccl_plugin ncclProfiler_v4 = {"test", {.v4 = init}, start,
                                                   stop,   record,       finalize};
#elif PLUGIN_VERSION > 0
static ncclResult_t init(void **context, uint64_t id, int *mask, const char *name, int n_hosts,
                         int n_ranks, int rank, nccl_plugin_log *log)
{
    return n_hosts == 1 ? join(context, id, mask, name, n_ranks, rank, log) : ncclInternalError;
}

#define STOP (PLUGIN_VERSION == 1 ? NULL : stop)
#if PLUGIN_VERSION == 6
EXPORT const struct nccl_plugin ncclProfiler_v6 = {"test", {.v5 = init}, start,
                                                   STOP,   record,       finalize};
#else
EXPORT const struct nccl_plugin ncclProfiler_v5 = {"test", {.v5 = init}, start,
                                                   STOP,   record,       finalize};
#endif
#else
EXPORT int profiler_without_a_table(void);
EXPORT int profiler_without_a_table(void)
{
    return 0;
}
#endif
