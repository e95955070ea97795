/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's profiler plugin interface, versions 4 to 6: names, values and layouts of its ABI. gyre
 * uses the newest table of the plugin that NCCL_PROFILER_PLUGIN names.
 */
#ifndef GYRE_NCCL_PLUGIN_H
#define GYRE_NCCL_PLUGIN_H

#include "core/nccl/nccl.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

/* One bit each, also in the plugin's mask. */
enum {
    NCCL_EVENT_GROUP = 1 << 0,
    NCCL_EVENT_COLL = 1 << 1,
    NCCL_EVENT_P2P = 1 << 2,
    NCCL_EVENT_KERNEL_CH = 1 << 6,
    NCCL_EVENT_GROUP_API = 1 << 8, /* since version 5, as those below */
    NCCL_EVENT_COLL_API = 1 << 9,
    NCCL_EVENT_P2P_API = 1 << 10,
    NCCL_EVENT_KERNEL_LAUNCH = 1 << 11
};

enum {
    NCCL_STATE_KERNEL_CH_STOP = 22,
    NCCL_STATE_GROUP_START_API_STOP = 23,
    NCCL_STATE_GROUP_END_API_START = 24
};

/* For startEvent(). In version 4 `type` has one byte, and coll and p2p lack their last field. */
struct nccl_event {
    union {
        uint64_t type;
        uint8_t type_v4;
    };
    void *parent;
    int rank;
    union {
        struct {
            bool is_captured;
            int depth;
        } group_api;
        struct {
            const char *func;
            size_t count;
            const char *datatype;
            int root;
            void *stream;
            bool is_captured;
        } coll_api;
        struct {
            const char *func;
            size_t count;
            const char *datatype;
            void *stream;
            bool is_captured;
        } p2p_api;
        struct {
            void *stream;
        } kernel_launch;
        struct {
            uint64_t sequence;
            const char *func;
            const void *send;
            void *recv;
            size_t count;
            int root;
            const char *datatype;
            uint8_t n_channels;
            uint8_t n_warps;
            const char *algorithm;
            const char *protocol;
            void *group;
        } coll;
        struct {
            const char *func;
            void *buffer;
            const char *datatype;
            size_t count;
            int peer;
            uint8_t n_channels;
            void *group;
        } p2p;
        struct {
            uint8_t channel;
            uint64_t time;
        } kernel_ch;
    };
};
static_assert(offsetof(struct nccl_event, parent) == 8 && offsetof(struct nccl_event, rank) == 16 &&
                  offsetof(struct nccl_event, coll.func) == 32 &&
                  offsetof(struct nccl_event, coll.algorithm) == 88 &&
                  offsetof(struct nccl_event, p2p.peer) == 56,
              "the plugin's layout");

/* For recordEventState(); NCCL has more members. */
union nccl_event_state {
    uint64_t kernel_ch_time;
    uint64_t size[1];
};

typedef void nccl_plugin_log(int level, unsigned long flags, const char *file, int line,
                             const char *format, ...);

/* Version 4 has another init(), and no events from NCCL_EVENT_GROUP_API on. */
struct nccl_plugin {
    const char *name;
    union {
        ncclResult_t (*v4)(void **context, int *mask, const char *comm_name, uint64_t comm_id,
                           int n_hosts, int n_ranks, int rank, nccl_plugin_log *log);
        ncclResult_t (*v5)(void **context, uint64_t comm_id, int *mask, const char *comm_name,
                           int n_hosts, int n_ranks, int rank, nccl_plugin_log *log);
    } init;
    ncclResult_t (*start)(void *context, void **handle, struct nccl_event *event);
    ncclResult_t (*stop)(void *handle);
    ncclResult_t (*record)(void *handle, int state, union nccl_event_state *args);
    ncclResult_t (*finalize)(void *context);
};

struct nccl_plugin_comm {
    const char *name; /* valid until nccl_plugin_leave() */
    uint64_t id;
    int n_hosts;
    int n_ranks;
    int rank;
};

/** The first communicator loads the plugin. False = none, after one warning. */
bool nccl_plugin_join(const struct nccl_plugin_comm *comm, void **context_out);

/** After the communicator and its events ended. The last one unloads the plugin. */
void nccl_plugin_leave(void *context);

/* Below: only after joining. Any thread. */

/** What the plugin asks for now. */
int nccl_plugin_mask(void);

/** Returns the plugin's handle; NULL = not wanted. @group: version 4's parent of coll and p2p. */
void *nccl_plugin_start(void *context, unsigned type, struct nccl_event *event, void *group);

/** @handle: NULL does nothing. */
void nccl_plugin_stop(void *handle);
void nccl_plugin_record(void *handle, int state, uint64_t kernel_ch_time);

#endif
