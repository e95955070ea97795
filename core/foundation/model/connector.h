/* SPDX-License-Identifier: Apache-2.0
 *
 * The ring of slots is the only interface between executors and transports. Sender and receiver of
 * a FIFO are two ranks, or a rank and its proxy. `tail` counts published slots, `head` consumed
 * ones; neither is reset while the communicator lives. The n-th message uses slot n % depth.
 *
 * sender: wait until posted - head < depth; write slot; slot_info; tail = ++posted (release)
 *
 * receiver: wait until tail > consumed (acquire); read slot; head = ++consumed (release)
 *
 * `posted` is private to the sending executor, `consumed` to the receiving one. Other protocols
 * than SIMPLE mark valid data inside the slot and use only `head`. Each protocol has its own slots
 * and counters, except LAMPORT, which uses LL128's (gyre_proto_slots()). Valid as C11 and as CUDA.
 */
#ifndef GYRE_MODEL_CONNECTOR_H
#define GYRE_MODEL_CONNECTOR_H

#include "core/foundation/model/schedule.h"

#define GYRE_MAX_DEPTH 8

/* Programs with a larger min_depth are refused. */
#define GYRE_COMM_DEPTH 4

/* Byte count in the low half, the call's signature in the high half. The receiver compares both
 * with its own call's before it uses the data. */
static GYRE_HOST_DEVICE inline uint64_t gyre_slot_info(uint32_t n_bytes, uint32_t signature)
{
    return (uint64_t)signature << 32 | n_bytes;
}

/* In the receiver's memory and polled there, written by the sending side. */
struct gyre_inbox {
    uint64_t tail[8];                       /* one writer: the sender or the receiving proxy */
    uint64_t slot_info[2 * GYRE_MAX_DEPTH]; /* SIMPLE: written before the slot's tail */
};

/* On a proxy's connection, entry GYRE_FIRST_LINE_INFO + slot of the sender's slot_info announces a
 * slot of lines (gyre_ll_announcement()). It may be stored before the lines, as the proxy looks at
 * each line's flag: no tail, no fence. The receiver polls the lines. */
#define GYRE_FIRST_LINE_INFO GYRE_MAX_DEPTH

/* In the sender's memory and polled there, written by the receiving side. */
struct gyre_credit {
    uint64_t head[8]; /* one writer: the receiver or the sending proxy */
};

/* The entry of head[] for placed data. A receiver that enters a call writes 1 + the slots consumed
 * before that call. The sender must read this value before it writes into the receiver's OUT,
 * because an earlier operation may still use that buffer. */
#define GYRE_HEAD_ENTERED 7

/* Of an ordered pair of ranks, for SIMPLE. */
struct gyre_fifo_size {
    uint32_t n_fifos;
    uint32_t slot_bytes;
};

/* The same on all ranks of a communicator. */
struct gyre_fifo_spec {
    uint32_t n_fifos;                        /* of an ordered pair; FIFO channel * n_lanes + lane */
    uint32_t depth;                          /* 2..GYRE_MAX_DEPTH */
    uint32_t slot_bytes[GYRE_N_SLOT_PROTOS]; /* 0 = no such protocol */
    uint32_t ring_slot_bytes;                /* from the ring's predecessor; 0 = as elsewhere */
    uint32_t net_line_bytes;                 /* LL where a proxy serves; 0 = SIMPLE alone */
    struct gyre_fifo_size far;               /* a pair that no algorithm for large calls uses
                                                (gyre_near_peers_find()); n_fifos 0 = none */
};

/* One side of a FIFO, with this rank's device's addresses. Read by devices. */
struct gyre_connector {
    unsigned char *slots[GYRE_N_SLOT_PROTOS]; /* a sender's: the peer's or the proxy's memory */
    struct gyre_inbox *inbox;
    struct gyre_credit *credit;
    uint32_t slot_bytes; /* of SIMPLE; others: gyre_fifo_spec */
    uint16_t depth;
    uint16_t is_proxied; /* 1: a proxy moves slots, by SIMPLE, or LL if spec.net_line_bytes > 0 */
};

GYRE_STATIC_ASSERT(2 * GYRE_COMM_DEPTH <= GYRE_MAX_DEPTH, "gyre_transport_send_depth()");
GYRE_STATIC_ASSERT(sizeof(struct gyre_inbox) == 192, "shared between processes and devices");
GYRE_STATIC_ASSERT(sizeof(struct gyre_credit) == 64, "shared between processes and devices");
GYRE_STATIC_ASSERT(sizeof(struct gyre_connector) == 48, "read by devices");

static GYRE_HOST_DEVICE inline uint32_t gyre_slot_payload_bytes(enum gyre_proto proto,
                                                                uint32_t slot_bytes)
{
    switch (proto) {
#define GYRE_PROTO_PAYLOAD(id, name, data, line) \
    case GYRE_PROTO_##id:                        \
        return slot_bytes / line * data;
        GYRE_PROTO_TABLE(GYRE_PROTO_PAYLOAD)
#undef GYRE_PROTO_PAYLOAD
    default:
        return slot_bytes;
    }
}

/** Both ranks compute the same. */
static inline struct gyre_fifo_size gyre_fifo_size_of(const struct gyre_fifo_spec *spec,
                                                      bool is_far)
{
    const struct gyre_fifo_size near = {spec->n_fifos, spec->slot_bytes[GYRE_PROTO_SIMPLE]};
    return is_far && spec->far.n_fifos > 0 ? spec->far : near;
}

/** Every pair has room for spec->n_fifos; a far pair's missing connectors are zero. */
static inline uint32_t gyre_connector_index(const struct gyre_fifo_spec *spec, uint32_t peer,
                                            uint32_t fifo, bool is_send)
{
    return (peer * spec->n_fifos + fifo) * 2 + (is_send ? 1 : 0);
}

#endif
