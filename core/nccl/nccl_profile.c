/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's profiler events from gyre's observer, in versions 5 and 6; in brackets a second parent:
 *
 *     GroupApi                        the thread's outermost group; a call alone is one, too
 *       CollApi, P2pApi               the call
 *         Coll, P2p  [Group]          the call in its launch
 *           KernelCh                  each of its channels
 *       KernelLaunch                  the launch
 *     Group                           the launch
 *
 * Version 4 has Group, Coll, P2p and KernelCh; Group is the parent of Coll and P2p. As in NCCL, an
 * event is also started for the sake of a child.
 */
#include "core/nccl/nccl_plugin.h"
#include "core/nccl/nccl_shim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_KINDS      8
#define MAX_CHANNELS 64
#define NAME_BYTES   64

/* For whose sake an event is started. */
#define FOR_COLL     (NCCL_EVENT_COLL | NCCL_EVENT_KERNEL_CH)
#define FOR_P2P      (NCCL_EVENT_P2P | NCCL_EVENT_KERNEL_CH)
#define FOR_GROUP    (NCCL_EVENT_GROUP | FOR_COLL | FOR_P2P)
#define FOR_COLL_API (NCCL_EVENT_COLL_API | FOR_COLL)
#define FOR_P2P_API  (NCCL_EVENT_P2P_API | FOR_P2P)
#define FOR_GROUP_API \
    (NCCL_EVENT_GROUP_API | NCCL_EVENT_KERNEL_LAUNCH | FOR_GROUP | FOR_COLL_API | FOR_P2P_API)

/* The plugin may keep it until the communicator ends. */
struct text {
    struct text *next;
    char bytes[];
};

struct nccl_profile {
    int n_holders; /* communicator, open groups; atomic */
    void *context;
    int rank;
    char name[NAME_BYTES];
    uint64_t sequence[N_KINDS]; /* calls come from one thread at a time */
    struct text *texts;
};

struct call {
    int mask;
    bool is_p2p;
    void *api;
    void *group_api;
    void *handle;
    void *group;
    void *launch;
    int n_channels;
    void *channels[MAX_CHANNELS];
};

static _Thread_local struct {
    struct nccl_profile *profile; /* of the first call, or NULL */
    void *handle;
    int mask;
} open_group;

void nccl_profile_forget(void)
{
    memset(&open_group, 0, sizeof(open_group));
}

static void release(void *context)
{
    struct nccl_profile *profile = context;
    if (__atomic_fetch_sub(&profile->n_holders, 1, __ATOMIC_ACQ_REL) != 1)
        return;
    nccl_plugin_leave(profile->context);
    for (struct text *next, *text = profile->texts; text != NULL; text = next) {
        next = text->next;
        free(text);
    }
    free(profile);
}

static const char *func_of(const gyre_observed_call *call)
{
    static const char *const names[] = {
        [GYRE_CALL_ALL_REDUCE] = "AllReduce",
        [GYRE_CALL_BROADCAST] = "Broadcast",
        [GYRE_CALL_REDUCE] = "Reduce",
        [GYRE_CALL_ALL_GATHER] = "AllGather",
        [GYRE_CALL_REDUCE_SCATTER] = "ReduceScatter",
        [GYRE_CALL_ALL_TO_ALL] = "AlltoAll",
        [GYRE_CALL_GATHER] = "Gather",
        [GYRE_CALL_SCATTER] = "Scatter",
    };
    return call->kind < N_KINDS               ? names[call->kind]
           : call->kind == GYRE_OBSERVED_SEND ? "Send"
                                              : "Recv";
}

static const char *datatype_of(const gyre_observed_call *call)
{
    static const char *const names[ncclNumTypes] = {
        "ncclInt8",    "ncclUint8",    "ncclInt32",      "ncclUint32",
        "ncclInt64",   "ncclUint64",   "ncclFloat16",    "ncclFloat32",
        "ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2",
    };
    return names[call->dtype];
}

/* In capital letters, as NCCL's "RING" and "LL128". "" = no memory. */
static const char *keep(struct nccl_profile *profile, const char *word)
{
    char capitals[NAME_BYTES];
    size_t n = 0;
    for (; word[n] != '\0' && n + 1 < sizeof(capitals); n++)
        capitals[n] = (char)(word[n] >= 'a' && word[n] <= 'z' ? word[n] - 'a' + 'A' : word[n]);
    capitals[n] = '\0';
    for (struct text *text = profile->texts; text != NULL; text = text->next)
        if (strcmp(text->bytes, capitals) == 0)
            return text->bytes;
    struct text *text = malloc(sizeof(*text) + n + 1);
    if (text == NULL)
        return "";
    memcpy(text->bytes, capitals, n + 1);
    text->next = profile->texts;
    profile->texts = text;
    return text->bytes;
}

void nccl_profile_group_ending(void)
{
    if (open_group.profile != NULL)
        nccl_plugin_record(open_group.handle, NCCL_STATE_GROUP_END_API_START, 0);
}

void nccl_profile_group_ended(void)
{
    struct nccl_profile *profile = open_group.profile;
    if (profile == NULL)
        return;
    nccl_plugin_stop(open_group.handle);
    open_group.profile = NULL;
    release(profile);
}

static void *on_submitted(void *context, const gyre_observed_call *told)
{
    struct nccl_profile *profile = context;
    struct call *call = calloc(1, sizeof(*call));
    if (call == NULL)
        return NULL;
    if (open_group.profile == NULL) {
        __atomic_fetch_add(&profile->n_holders, 1, __ATOMIC_RELAXED);
        open_group.profile = profile;
        open_group.mask = nccl_plugin_mask();
        open_group.handle = NULL;
        if ((open_group.mask & FOR_GROUP_API) != 0) {
            struct nccl_event opened = {.rank = profile->rank,
                                        .group_api = {false, nccl_group_depth()}};
            open_group.handle =
                nccl_plugin_start(profile->context, NCCL_EVENT_GROUP_API, &opened, NULL);
            nccl_plugin_record(open_group.handle, NCCL_STATE_GROUP_START_API_STOP, 0);
        }
    }
    call->mask = open_group.mask;
    call->is_p2p = told->kind >= N_KINDS;
    call->group_api = open_group.handle;
    struct nccl_event event = {.parent = call->group_api, .rank = profile->rank};
    if ((call->mask & (call->is_p2p ? FOR_P2P_API : FOR_COLL_API)) == 0)
        return call;
    if (call->is_p2p) {
        event.p2p_api.func = func_of(told);
        event.p2p_api.count = told->count;
        event.p2p_api.datatype = datatype_of(told);
        event.p2p_api.stream = told->stream;
    } else {
        event.coll_api.func = func_of(told);
        event.coll_api.count = told->count;
        event.coll_api.datatype = datatype_of(told);
        event.coll_api.root = told->root < 0 ? 0 : told->root;
        event.coll_api.stream = told->stream;
    }
    call->api = nccl_plugin_start(
        profile->context, call->is_p2p ? NCCL_EVENT_P2P_API : NCCL_EVENT_COLL_API, &event, NULL);
    nccl_plugin_stop(call->api);
    return call;
}

/* Stands for its launch. */
static struct call *first_of(const gyre_observed_call *calls, int n_calls)
{
    struct call *first = NULL;
    for (int i = 0; i < n_calls && first == NULL; i++)
        first = calls[i].tag;
    return first;
}

static void on_launching(void *context, const gyre_observed_call *calls, int n_calls)
{
    struct nccl_profile *profile = context;
    struct call *first = first_of(calls, n_calls);
    struct nccl_event launch = {.rank = profile->rank}, group = {.rank = profile->rank};
    if (first == NULL)
        return;
    if ((first->mask & NCCL_EVENT_KERNEL_LAUNCH) != 0) {
        launch.parent = first->group_api;
        launch.kernel_launch.stream = calls[0].stream;
        first->launch =
            nccl_plugin_start(profile->context, NCCL_EVENT_KERNEL_LAUNCH, &launch, NULL);
    }
    if ((first->mask & FOR_GROUP) != 0)
        first->group = nccl_plugin_start(profile->context, NCCL_EVENT_GROUP, &group, NULL);
    for (int i = 0; i < n_calls; i++) {
        struct call *call = calls[i].tag;
        if (call == NULL)
            continue;
        call->group = first->group;
        /* plugins wait for as many as announced */
        call->n_channels = !calls[i].is_timed                   ? 0
                           : calls[i].n_channels < MAX_CHANNELS ? calls[i].n_channels
                                                                : MAX_CHANNELS;
        const gyre_observed_call *told = &calls[i];
        struct nccl_event event = {.parent = call->api, .rank = profile->rank};
        const uint64_t sequence = call->is_p2p ? 0 : profile->sequence[told->kind]++;
        if ((call->mask & (call->is_p2p ? FOR_P2P : FOR_COLL)) == 0)
            continue;
        if (call->is_p2p) {
            event.p2p.func = func_of(told);
            event.p2p.buffer =
                told->kind == GYRE_OBSERVED_SEND ? (void *)(uintptr_t)told->send : told->recv;
            event.p2p.datatype = datatype_of(told);
            event.p2p.count = told->count;
            event.p2p.peer = told->root;
            event.p2p.n_channels = (uint8_t)call->n_channels;
            event.p2p.group = call->group;
        } else {
            event.coll.sequence = sequence;
            event.coll.func = func_of(told);
            event.coll.send = told->send;
            event.coll.recv = told->recv;
            event.coll.count = told->count;
            event.coll.root = told->root < 0 ? 0 : told->root;
            event.coll.datatype = datatype_of(told);
            event.coll.n_channels = (uint8_t)call->n_channels;
            event.coll.algorithm = keep(profile, told->algorithm);
            event.coll.protocol = keep(profile, told->protocol);
            event.coll.group = call->group;
        }
        call->handle = nccl_plugin_start(
            profile->context, call->is_p2p ? NCCL_EVENT_P2P : NCCL_EVENT_COLL, &event, call->group);
    }
}

static void on_launched(void *context, const gyre_observed_call *calls, int n_calls)
{
    const struct call *first = first_of(calls, n_calls);
    (void)context;
    if (first == NULL)
        return;
    for (int i = 0; i < n_calls; i++)
        if (calls[i].tag != NULL)
            nccl_plugin_stop(((const struct call *)calls[i].tag)->handle);
    nccl_plugin_stop(first->group);
    nccl_plugin_stop(first->launch);
}

static void on_begun(void *context, void *tag, uint64_t now_ns)
{
    const struct nccl_profile *profile = context;
    struct call *call = tag;
    if (call == NULL || call->handle == NULL || (call->mask & NCCL_EVENT_KERNEL_CH) == 0)
        return;
    for (int i = 0; i < call->n_channels; i++) {
        struct nccl_event event = {.parent = call->handle, .rank = profile->rank};
        event.kernel_ch.channel = (uint8_t)i;
        event.kernel_ch.time = now_ns;
        call->channels[i] = nccl_plugin_start(profile->context, NCCL_EVENT_KERNEL_CH, &event, NULL);
    }
}

static void on_ended(void *context, void *tag, uint64_t now_ns)
{
    struct call *call = tag;
    (void)context;
    if (call == NULL)
        return;
    for (int i = 0; i < call->n_channels; i++) {
        nccl_plugin_record(call->channels[i], NCCL_STATE_KERNEL_CH_STOP, now_ns);
        nccl_plugin_stop(call->channels[i]);
        call->channels[i] = NULL;
    }
}

/* Of a launch that failed after its begin. */
static void on_finished(void *context, void *tag)
{
    struct call *call = tag;
    (void)context;
    for (int i = 0; call != NULL && i < call->n_channels; i++)
        nccl_plugin_stop(call->channels[i]);
    free(call);
}

void nccl_profile_attach(struct nccl_comm *comm)
{
    gyre_properties facts = GYRE_PROPERTIES_INIT;
    gyre_comm *own = __atomic_load_n(&comm->comm, __ATOMIC_ACQUIRE);
    if (!comm->wants_profile || own == NULL || gyre_comm_properties(own, &facts) != GYRE_SUCCESS)
        return;
    comm->wants_profile = 0;
    struct nccl_profile *profile = calloc(1, sizeof(*profile));
    if (profile == NULL)
        return;
    profile->n_holders = 1;
    profile->rank = facts.rank;
    snprintf(profile->name, sizeof(profile->name), "%s", facts.name);
    const struct nccl_plugin_comm joined = {profile->name, facts.id, facts.n_hosts, facts.n_ranks,
                                            facts.rank};
    if (!nccl_plugin_join(&joined, &profile->context)) {
        free(profile);
        return;
    }
    const gyre_observer observer = {
        .struct_bytes = sizeof(observer),
        .version = GYRE_VERSION,
        .context = profile,
        .submitted = on_submitted,
        .launching = on_launching,
        .launched = on_launched,
        .begun = on_begun,
        .ended = on_ended,
        .finished = on_finished,
        .closed = release,
    };
    if (gyre_comm_observe(own, &observer) == GYRE_SUCCESS)
        comm->profile = profile;
    else
        release(profile);
}

int nccl_profile_enter(ncclComm_t handle)
{
    ncclResult_t result;
    NCCL_PINNED *comm = nccl_comm_pin(handle, "a profiled call", &result);
    if (comm == NULL)
        return 0;
    nccl_profile_attach(comm);
    return comm->profile != NULL && nccl_group_depth() == 0 && pncclGroupStart() == ncclSuccess;
}

ncclResult_t nccl_profile_exit(int is_own_group, ncclResult_t result)
{
    return is_own_group ? pncclGroupEnd() : result;
}
