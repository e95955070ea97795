/* SPDX-License-Identifier: Apache-2.0
 *
 * The records are the test's; it gives their address to the plugin in the variable
 * TEST_PLUGIN_RECORDS.
 */
#ifndef GYRE_TESTS_PROFILER_PLUGIN_H
#define GYRE_TESTS_PROFILER_PLUGIN_H

#include "core/nccl/nccl_plugin.h"

#include <pthread.h>

enum { MAX_EVENTS = 512, N_STATES = 32 };

/* In order: 1, 2, 3, ...; 0 = never. */
struct profiler_event {
    unsigned type;
    const struct profiler_event *parent;
    const struct profiler_event *group; /* version 5: parent of coll and p2p besides */
    void *context;
    int rank;
    int started;
    int stopped;
    int n_stops;
    int states[N_STATES]; /* when each was recorded */
    char func[24];
    char datatype[24];
    char algorithm[24];
    char protocol[24];
    size_t count;
    uint64_t sequence;
    int root_or_peer;
    int n_channels;
    int channel;
    uint64_t start_time;
    uint64_t stop_time;
};

struct profiler_comm {
    char name[64];
    uint64_t id;
    int n_ranks;
    int rank;
    int n_finalized;
};

struct profiler_records {
    pthread_mutex_t lock;
    int first_mask; /* set by the test: what init asks for */
    int fails;      /* set by the test: init fails */
    int *mask;      /* the library's, after init */
    int order;
    int n_comms;
    int n_wrong; /* of no library: an unknown handle or context */
    int n_events;
    struct profiler_comm comms[16];
    struct profiler_event events[MAX_EVENTS];
};

#endif
