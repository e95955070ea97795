/* SPDX-License-Identifier: Apache-2.0
 *
 * The ring of slots: the only place where executors and transports meet. A FIFO has a sending end
 * and a receiving end, on two ranks or on the two sides of a proxy. Data flows into slots; `tail`
 * says how many slots were published, `head` how many were consumed; both only grow and are
 * never reset while the communicator lives. Slot of step s = s % depth.
 *
 *   sender:   wait until posted - head < depth;  write slot;  slot_info;  tail = ++posted (release)
 *   receiver: wait until tail > consumed (acquire);  read slot;        head = ++consumed (release)
 *
 * `posted` and `consumed` are private to the executor end that owns them. Protocols other than
 * SIMPLE carry readiness inside their lines and use `head` only. Each protocol counts for itself,
 * but LAMPORT, which has LL128's slots and counters (gyre_proto_slots()). Valid as C11 and as CUDA.
 */
#ifndef GYRE_MODEL_CONNECTOR_H
#define GYRE_MODEL_CONNECTOR_H

#include "core/model/schedule.h"

/* Most slots of a FIFO. The verifier looks for the least depth at which a shape completes, from 1
 * up to this. */
#define GYRE_MAX_DEPTH 8

/* Slots of each FIFO of a communicator. A program whose min_depth is larger verifies, but a
 * communicator refuses it. */
#define GYRE_COMM_DEPTH 4

/* Bytes in the low half, the call's signature in the high half: both ends compare it, so that
 * calls that do not fit each other are noticed before their data is used. */
static GYRE_HOST_DEVICE inline uint64_t gyre_slot_info(uint32_t n_bytes, uint32_t signature)
{
    return (uint64_t)signature << 32 | n_bytes;
}

/* Lives where the receiver polls. Written by the sending side. */
struct gyre_inbox {
    uint64_t tail[8]; /* by protocol; one writer: the sender, or the receiving proxy */
    uint64_t slot_info[GYRE_MAX_DEPTH]; /* of SIMPLE; written before the tail that publishes it */
};

/* Lives where the sender polls. Written by the receiving side. */
struct gyre_credit {
    uint64_t head[8]; /* by protocol; one writer: the receiver, or the sending proxy */
};

/* The entry of head[] for placed data: 1 + the slots consumed before the call that the receiver is
 * in. Until it says so, the receiver's OUT may still be in use for something else. */
#define GYRE_HEAD_ENTERED 7

/* How FIFOs are dimensioned; the same on all ranks of a communicator. */
struct gyre_fifo_spec {
    uint32_t n_fifos; /* per ordered pair of ranks: channel * lanes + lane counts into it */
    uint32_t depth;   /* slots; 2..GYRE_MAX_DEPTH */
    uint32_t slot_bytes[GYRE_N_SLOT_PROTOS]; /* memory of one slot; 0 = protocol not available.
                                              * SIMPLE: payload. LL: twice, LL128: 16/15 of it,
                                              * or LAMPORT's payload. */
    uint32_t near_slot_bytes; /* SIMPLE slots for data from the rank before in the order of rings:
                               * rings carry the largest calls; 0 = as all others */
};

/* One end, as an executor on this rank's device can address it. Read by devices. */
struct gyre_connector {
    unsigned char *slots[GYRE_N_SLOT_PROTOS]; /* depth slots of slot_bytes[]; sending end: where to
                                               * write (the peer's memory, or staging of a proxy) */
    struct gyre_inbox *inbox;
    struct gyre_credit *credit;
    uint32_t slot_bytes; /* of SIMPLE; lines have the spec's */
    uint16_t depth;
    uint16_t is_proxied; /* a proxy moves the slots: SIMPLE only */
};

GYRE_STATIC_ASSERT(GYRE_COMM_DEPTH <= GYRE_MAX_DEPTH, "slot_info has room");
GYRE_STATIC_ASSERT(sizeof(struct gyre_inbox) == 128, "shared between processes and devices");
GYRE_STATIC_ASSERT(sizeof(struct gyre_credit) == 64, "shared between processes and devices");
GYRE_STATIC_ASSERT(sizeof(struct gyre_connector) == 48, "read by devices");

/** gyre_slot_payload_bytes - most data bytes of one slot, so also of a tile. LL spends half of its
 * memory on flags, and LL128 8 of every 128 bytes.
 * @slot_bytes: memory of the slot, as in gyre_fifo_spec.slot_bytes[gyre_proto_slots(proto)]. */
static GYRE_HOST_DEVICE inline uint32_t gyre_slot_payload_bytes(enum gyre_proto proto,
                                                                uint32_t slot_bytes)
{
    switch (proto) {
    case GYRE_PROTO_LL:
        return slot_bytes / 2;
    case GYRE_PROTO_LL128:
        return slot_bytes / 128 * 120;
    default:
        return slot_bytes / 16 * 16;
    }
}

/** gyre_connector_index - where the end of FIFO `fifo` to or from `peer` stands in a
 * communicator's table of connectors. */
static inline uint32_t gyre_connector_index(const struct gyre_fifo_spec *spec, uint32_t peer,
                                            uint32_t fifo, bool is_send)
{
    return (peer * spec->n_fifos + fifo) * 2 + (is_send ? 1 : 0);
}

#endif
