/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks of the ib transport over the verbs device in memory: their proxies are threads of this
 * process, and the test plays all executors.
 */
#ifndef GYRE_TESTS_IB_RIG_H
#define GYRE_TESTS_IB_RIG_H

#include "core/foundation/base/thread.h"
#include "tests/nic/verbs_memory.h"
#include "transport/ib/ib_transport.h"
#include "transport/transport.h"

#define IB_RIG_MAX_RANKS 4
#define IB_RIG_DEPTH     4

/** One device with one active port, ended by a nameless one. */
extern const struct vm_device ib_rig_one_nic[];

struct ib_rig_end {
    struct gyre_transport *transport;
    struct gyre_fault fault;
    struct gyre_transport_config config;
    uint16_t peers[IB_RIG_MAX_RANKS];
    uint8_t is_far[IB_RIG_MAX_RANKS];
    struct gyre_connector *connectors;
    uint64_t *published; /* by FIFO of the table of connectors */
    uint64_t *consumed;
};

struct ib_rig {
    const struct vm_device *devices; /* NULL = ib_rig_one_nic */
    char **environment;              /* NULL = empty */
    struct gyre_params params;
    struct gyre_device *device;
    struct gyre_peer_info infos[IB_RIG_MAX_RANKS];
    struct ib_rig_end ranks[IB_RIG_MAX_RANKS];
    int n_ranks;
    struct gyre_fifo_spec spec;
    void (*spoil)(unsigned char *blob); /* what rank 0 tells; NULL = it stays */
};

/** ib_rig_load_params - @environment: NULL = empty. */
void ib_rig_load_params(struct ib_rig *rig, char **environment);

/** ib_rig_describe - ranks on hosts of their own, before anything is opened. */
void ib_rig_describe(struct ib_rig *rig, int n_ranks, uint32_t n_fifos, uint32_t slot_bytes);

/** ib_rig_describe_far - after ib_rig_describe: pairs of an even and an odd rank have FIFOs of
 * another size. */
void ib_rig_describe_far(struct ib_rig *rig, struct gyre_fifo_size far);

/** ib_rig_prepare, ib_rig_open - install the rig's devices, read its environment, describe; and
 * connect, which succeeds. */
void ib_rig_prepare(struct ib_rig *rig, int n_ranks, uint32_t n_fifos, uint32_t slot_bytes);
void ib_rig_open(struct ib_rig *rig, int n_ranks, uint32_t n_fifos, uint32_t slot_bytes);

/** ib_rig_connect - open all, exchange blobs as the bootstrap does, connect all. */
gyre_status ib_rig_connect(struct ib_rig *rig);

/** ib_rig_close - also takes the device away and checks that nothing is left of it; the thread's
 * cause stays. */
void ib_rig_close(struct ib_rig *rig);

bool ib_rig_has_fault(const struct ib_rig *rig);

/** ib_rig_byte - byte i of what is sent in a step. */
unsigned char ib_rig_byte(int from, int to, uint32_t fifo, uint64_t step, size_t i);

/** ib_rig_step_bytes - how much a step of ib_rig_exchange sends: all kinds of sizes in turn. */
uint32_t ib_rig_step_bytes(const struct ib_rig *rig, uint64_t step);

/** ib_rig_send - the sending executor: publish one slot if there is room. */
bool ib_rig_send(struct ib_rig *rig, int from, int to, uint32_t fifo, uint32_t n_bytes);

/** ib_rig_receive - the receiving executor: take one slot if there is one, and check it. */
bool ib_rig_receive(struct ib_rig *rig, int from, int to, uint32_t fifo, uint32_t n_bytes);

/** ib_rig_exchange - n slots through every FIFO of every ordered pair, or until a fault or 60 s.
 * Returns whether all came. */
bool ib_rig_exchange(struct ib_rig *rig, uint64_t n_slots);

#endif
