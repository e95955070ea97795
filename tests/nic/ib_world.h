/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks of the ib transport over the verbs device in memory: their proxies are threads of this
 * process, and the test plays all executors.
 */
#ifndef GYRE_TESTS_IB_WORLD_H
#define GYRE_TESTS_IB_WORLD_H

#include "core/base/fault.h"
#include "tests/nic/verbs_memory.h"
#include "transport/ib/ib_transport.h"
#include "transport/transport.h"

#define IB_WORLD_MAX_RANKS 4
#define IB_WORLD_DEPTH     4

/** One device with one active port, ended by a nameless one. */
extern const struct vm_device ib_world_one_nic[];

struct ib_world_end {
    struct gyre_transport *transport;
    struct gyre_fault fault;
    struct gyre_transport_config config;
    uint16_t peers[IB_WORLD_MAX_RANKS];
    struct gyre_connector *connectors;
    uint64_t *published; /* by FIFO of the table of connectors */
    uint64_t *consumed;
};

struct ib_world {
    struct gyre_params params;
    struct gyre_device *device;
    struct gyre_peer_info infos[IB_WORLD_MAX_RANKS];
    struct ib_world_end ranks[IB_WORLD_MAX_RANKS];
    int n_ranks;
    struct gyre_fifo_spec spec;
    void (*spoil)(unsigned char *blob); /* what rank 0 tells; NULL = it stays */
};

/** ib_world_load_params - @environment: NULL = empty. */
void ib_world_load_params(struct ib_world *world, char **environment);

/** ib_world_describe - ranks on hosts of their own, before anything is opened. */
void ib_world_describe(struct ib_world *world, int n_ranks, uint32_t n_fifos, uint32_t slot_bytes);

/** ib_world_connect - open all, exchange blobs as the bootstrap does, connect all. */
gyre_status ib_world_connect(struct ib_world *world);

/** ib_world_close - also takes the device away and checks that nothing is left of it; the thread's
 * cause stays. */
void ib_world_close(struct ib_world *world);

bool ib_world_has_fault(const struct ib_world *world);

/** ib_world_byte - byte i of what is sent in a step. */
unsigned char ib_world_byte(int from, int to, uint32_t fifo, uint64_t step, size_t i);

/** ib_world_step_bytes - how much a step of ib_world_exchange sends: all kinds of sizes in turn. */
uint32_t ib_world_step_bytes(const struct ib_world *world, uint64_t step);

/** ib_world_send - the sending executor: publish one slot if there is room. */
bool ib_world_send(struct ib_world *world, int from, int to, uint32_t fifo, uint32_t n_bytes);

/** ib_world_receive - the receiving executor: take one slot if there is one, and check it. */
bool ib_world_receive(struct ib_world *world, int from, int to, uint32_t fifo, uint32_t n_bytes);

/** ib_world_exchange - n slots through every FIFO of every ordered pair, or until a fault or 60 s.
 * Returns whether all came. */
bool ib_world_exchange(struct ib_world *world, uint64_t n_slots);

#endif
