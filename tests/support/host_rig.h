/* SPDX-License-Identifier: Apache-2.0
 *
 * A communicator without a transport: n executors of one device whose connectors are memory of this
 * process.
 */
#ifndef GYRE_TESTS_HOST_RIG_H
#define GYRE_TESTS_HOST_RIG_H

#include "core/foundation/base/util.h"
#include "core/foundation/device/host_stream.h"
#include "kernels/executor.h"
#include "tests/support/check.h"

enum { HOST_RIG_MAX_RANKS = 9 };

struct host_rig {
    int n_ranks;
    struct gyre_fifo_spec spec;
    struct gyre_device *device;
    struct gyre_inbox *inboxes; /* [from][to][fifo] */
    struct gyre_credit *credits;
    unsigned char *slots;
    struct gyre_fault faults[HOST_RIG_MAX_RANKS];
    struct gyre_executor *executors[HOST_RIG_MAX_RANKS];
    gyre_stream streams[HOST_RIG_MAX_RANKS];
};

static inline void host_rig_connect(struct host_rig *rig, int rank,
                                    struct gyre_connector *connectors)
{
    const struct gyre_fifo_spec *spec = &rig->spec;
    const size_t fifo_bytes = (size_t)spec->depth * spec->slot_bytes[GYRE_PROTO_SIMPLE];
    for (int peer = 0; peer < rig->n_ranks; peer++) {
        for (uint32_t fifo = 0; fifo < spec->n_fifos; fifo++) {
            for (int is_send = 0; is_send < 2; is_send++) {
                const int from = is_send ? rank : peer;
                const int to = is_send ? peer : rank;
                const size_t i = (size_t)(from * rig->n_ranks + to) * spec->n_fifos + fifo;
                struct gyre_connector *connector =
                    &connectors[gyre_connector_index(spec, (uint32_t)peer, fifo, is_send != 0)];
                if (peer == rank)
                    continue;
                connector->slots[GYRE_PROTO_SIMPLE] = rig->slots + i * fifo_bytes;
                connector->inbox = &rig->inboxes[i];
                connector->credit = &rig->credits[i];
                connector->slot_bytes = spec->slot_bytes[GYRE_PROTO_SIMPLE];
                connector->depth = (uint16_t)spec->depth;
            }
        }
    }
}

/** @trace: NULL = none. */
static inline void host_rig_open_traced(struct host_rig *rig, int n_ranks, uint32_t n_fifos,
                                        uint32_t depth, uint32_t slot_bytes,
                                        struct gyre_trace *trace)
{
    const size_t n_ends = (size_t)n_ranks * (size_t)n_ranks * n_fifos;
    memset(rig, 0, sizeof(*rig));
    rig->n_ranks = n_ranks;
    rig->spec.n_fifos = n_fifos;
    rig->spec.depth = depth;
    rig->spec.slot_bytes[GYRE_PROTO_SIMPLE] = slot_bytes;
    rig->inboxes = calloc(n_ends, sizeof(*rig->inboxes));
    rig->credits = calloc(n_ends, sizeof(*rig->credits));
    rig->slots = malloc(n_ends * depth * slot_bytes);
    CHECK_OK(gyre_device_host.open(-1, &rig->device));
    for (int rank = 0; rank < n_ranks; rank++) {
        struct gyre_connector *connectors =
            calloc((size_t)n_ranks * n_fifos * 2, sizeof(*connectors));
        host_rig_connect(rig, rank, connectors);
        gyre_fault_init(&rig->faults[rank]);
        const struct gyre_executor_config config = {
            .device = rig->device,
            .rank = rank,
            .n_ranks = n_ranks,
            .spec = rig->spec,
            .connectors = connectors,
            .fault = &rig->faults[rank],
            .trace = trace,
        };
        CHECK_OK(gyre_executor_host.open(&config, &rig->executors[rank]));
        CHECK_OK(gyre_host_stream_create(&rig->streams[rank]));
        free(connectors);
    }
}

static inline void host_rig_open(struct host_rig *rig, int n_ranks, uint32_t n_fifos,
                                 uint32_t depth, uint32_t slot_bytes)
{
    host_rig_open_traced(rig, n_ranks, n_fifos, depth, slot_bytes, NULL);
}

static inline void host_rig_free_memory(struct host_rig *rig)
{
    free(rig->inboxes);
    free(rig->credits);
    free(rig->slots);
}

static inline void host_rig_close(struct host_rig *rig)
{
    for (int rank = 0; rank < rig->n_ranks; rank++) {
        gyre_executor_host.close(rig->executors[rank]);
        CHECK_OK(gyre_host_stream_destroy(rig->streams[rank]));
        gyre_fault_fini(&rig->faults[rank]);
    }
    host_rig_free_memory(rig);
}

/** Until all ranks' streams are idle; false after 200 seconds: they hang. That is less than a
 * test's time limit, so the test itself says so. */
static inline bool host_rig_run_in_one_thread(struct host_rig *rig)
{
    const uint64_t end_ns = gyre_now_ns() + 200000000000ULL;
    for (bool is_idle = false; !is_idle;) {
        is_idle = true;
        for (int rank = 0; rank < rig->n_ranks; rank++)
            is_idle &= gyre_host_stream_query(rig->streams[rank]) == GYRE_SUCCESS;
        if (gyre_now_ns() > end_ns)
            return false;
    }
    return true;
}

#endif
