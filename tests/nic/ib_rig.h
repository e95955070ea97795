/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks of the ib transport over the device in memory. The test plays all executors.
 */
#ifndef GYRE_TESTS_IB_RIG_H
#define GYRE_TESTS_IB_RIG_H

#include "core/foundation/base/thread.h"
#include "tests/nic/verbs_memory.h"
#include "transport/ib/ib_transport.h"
#include "transport/transport.h"

#define IB_RIG_MAX_RANKS 4
#define IB_RIG_DEPTH     4

/** Ended by a nameless one. */
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
    void (*spoil)(unsigned char *blob); /* what rank 0 tells; may be NULL */
};

/** @environment: NULL = empty. */
void ib_rig_load_params(struct ib_rig *rig, char **environment);

/** Ranks on hosts of their own, before anything is opened. */
void ib_rig_describe(struct ib_rig *rig, int n_ranks, uint32_t n_fifos, uint32_t slot_bytes);

/** Pairs of an even and an odd rank have FIFOs of another size. */
void ib_rig_describe_far(struct ib_rig *rig, struct gyre_fifo_size far);

/** ib_rig_prepare, ib_rig_open - install the devices, read the environment, describe; and connect,
 * which succeeds. */
void ib_rig_prepare(struct ib_rig *rig, int n_ranks, uint32_t n_fifos, uint32_t slot_bytes);
void ib_rig_open(struct ib_rig *rig, int n_ranks, uint32_t n_fifos, uint32_t slot_bytes);

/** Passes on blobs as the bootstrap does. */
gyre_status ib_rig_connect(struct ib_rig *rig);

/** Checks that nothing of the device is left; the thread's cause stays. */
void ib_rig_close(struct ib_rig *rig);

bool ib_rig_has_fault(const struct ib_rig *rig);

unsigned char ib_rig_byte(int from, int to, uint32_t fifo, uint64_t step, size_t i);

/** All kinds of sizes in turn. */
uint32_t ib_rig_step_bytes(const struct ib_rig *rig, uint64_t step);

/** Publish one slot if there is room. */
bool ib_rig_send(struct ib_rig *rig, int from, int to, uint32_t fifo, uint32_t n_bytes);

/** Take and check one slot if there is one. */
bool ib_rig_receive(struct ib_rig *rig, int from, int to, uint32_t fifo, uint32_t n_bytes);

/** N slots through every FIFO of every ordered pair, or until a fault or 60 s. True if all came. */
bool ib_rig_send_all(struct ib_rig *rig, uint64_t n_slots);

#endif
