/* SPDX-License-Identifier: Apache-2.0
 *
 * A communicator without a transport, for tests: n executors of one device whose connectors are
 * plain memory of this process.
 */
#ifndef GYRE_TESTS_HOST_WORLD_H
#define GYRE_TESTS_HOST_WORLD_H

#include "core/base/util.h"
#include "core/device/host_stream.h"
#include "kernels/executor.h"
#include "tests/support/check.h"

enum { WORLD_MAX_RANKS = 9 };

struct world {
    int n_ranks;
    struct gyre_fifo_spec spec;
    struct gyre_device *device;
    struct gyre_inbox *inboxes; /* [from][to][fifo] */
    struct gyre_credit *credits;
    unsigned char *slots;
    struct gyre_fault faults[WORLD_MAX_RANKS];
    struct gyre_executor *executors[WORLD_MAX_RANKS];
    gyre_stream streams[WORLD_MAX_RANKS];
};

static inline void world_connect(struct world *world, int rank, struct gyre_connector *connectors)
{
    const struct gyre_fifo_spec *spec = &world->spec;
    const size_t fifo_bytes = (size_t)spec->depth * spec->slot_bytes[GYRE_PROTO_SIMPLE];
    for (int peer = 0; peer < world->n_ranks; peer++) {
        for (uint32_t fifo = 0; fifo < spec->n_fifos; fifo++) {
            for (int is_send = 0; is_send < 2; is_send++) {
                const int from = is_send ? rank : peer;
                const int to = is_send ? peer : rank;
                const size_t i = (size_t)(from * world->n_ranks + to) * spec->n_fifos + fifo;
                struct gyre_connector *connector =
                    &connectors[gyre_connector_index(spec, (uint32_t)peer, fifo, is_send != 0)];
                if (peer == rank)
                    continue;
                connector->slots[GYRE_PROTO_SIMPLE] = world->slots + i * fifo_bytes;
                connector->inbox = &world->inboxes[i];
                connector->credit = &world->credits[i];
                connector->slot_bytes = spec->slot_bytes[GYRE_PROTO_SIMPLE];
                connector->depth = (uint16_t)spec->depth;
            }
        }
    }
}

static inline void world_open(struct world *world, int n_ranks, uint32_t n_fifos, uint32_t depth,
                              uint32_t slot_bytes)
{
    const size_t n_ends = (size_t)n_ranks * (size_t)n_ranks * n_fifos;
    memset(world, 0, sizeof(*world));
    world->n_ranks = n_ranks;
    world->spec.n_fifos = n_fifos;
    world->spec.depth = depth;
    world->spec.slot_bytes[GYRE_PROTO_SIMPLE] = slot_bytes;
    world->inboxes = calloc(n_ends, sizeof(*world->inboxes));
    world->credits = calloc(n_ends, sizeof(*world->credits));
    world->slots = malloc(n_ends * depth * slot_bytes);
    CHECK_OK(gyre_device_host.open(-1, &world->device));
    for (int rank = 0; rank < n_ranks; rank++) {
        struct gyre_connector *connectors =
            calloc((size_t)n_ranks * n_fifos * 2, sizeof(*connectors));
        world_connect(world, rank, connectors);
        gyre_fault_init(&world->faults[rank]);
        const struct gyre_executor_config config = {
            .device = world->device,
            .rank = rank,
            .n_ranks = n_ranks,
            .spec = world->spec,
            .connectors = connectors,
            .fault = &world->faults[rank],
        };
        CHECK_OK(gyre_executor_host.open(&config, &world->executors[rank]));
        CHECK_OK(gyre_host_stream_create(&world->streams[rank]));
        free(connectors);
    }
}

static inline void world_free_memory(struct world *world)
{
    free(world->inboxes);
    free(world->credits);
    free(world->slots);
}

static inline void world_close(struct world *world)
{
    for (int rank = 0; rank < world->n_ranks; rank++) {
        gyre_executor_host.close(world->executors[rank]);
        CHECK_OK(gyre_host_stream_destroy(world->streams[rank]));
        gyre_fault_fini(&world->faults[rank]);
    }
    world_free_memory(world);
}

/** Drive all ranks' streams from this thread until they are idle; false after 30 seconds. */
static inline bool world_run_in_one_thread(struct world *world)
{
    const uint64_t end_ns = gyre_now_ns() + 30000000000ULL;
    for (bool is_idle = false; !is_idle;) {
        is_idle = true;
        for (int rank = 0; rank < world->n_ranks; rank++)
            is_idle &= gyre_host_stream_query(world->streams[rank]) == GYRE_SUCCESS;
        if (gyre_now_ns() > end_ns)
            return false;
    }
    return true;
}

#endif
