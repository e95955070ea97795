/* SPDX-License-Identifier: Apache-2.0
 *
 * A request on its way from one queue pair to another.
 */
#ifndef GYRE_TESTS_WIRE_NIC_DELIVERY_H
#define GYRE_TESTS_WIRE_NIC_DELIVERY_H

#include "tests/nic/verbs_wire/nic/nic.h"

struct nic_segment {
    struct wire_pair_entry *pair; /* of the owner */
    const struct wire_region_entry *region;
    const unsigned char *inlined; /* instead of an address */
    uint64_t address;
    uint64_t n_bytes;
};

struct nic_segments {
    struct nic_segment list[WIRE_MAX_SGE];
    uint64_t n;
};

struct nic_delivery {
    struct nic *nic;
    struct nic_pair *pair;
    struct wire_pair_entry *mine, *peer;
    struct wire_request *request;
    struct nic_segments from, to;
    bool needs_receive;
    enum wire_arrival kind;
    enum ibv_wc_status status;
};

static inline struct wire_process_entry *nic_process_of(const struct nic_delivery *delivery,
                                                        const struct wire_pair_entry *pair)
{
    return &delivery->nic->job.file->processes[pair->process];
}

static inline bool nic_is_closed(const struct nic_delivery *delivery,
                                 const struct wire_pair_entry *pair)
{
    return wire_load(&nic_process_of(delivery, pair)->is_closed) != 0;
}

/* Besides those of started requests. A held one may need one more, because its bytes go by the ring
 * if the kernel refuses to write them. */
static inline uint64_t nic_count_room(const struct nic_delivery *delivery)
{
    const struct wire_pair_entry *peer = delivery->peer;
    const struct nic_copies *copies = &delivery->pair->copies;
    return WIRE_MESSAGES - copies->n_receives - copies->n_held -
           (peer->n_messages - gyre_load_acquire_u64(&peer->n_taken));
}

static inline uint64_t nic_count_spent(const struct nic_delivery *delivery)
{
    return delivery->peer->n_spent + delivery->pair->copies.n_receives;
}

static inline void nic_put_message(const struct nic_delivery *delivery,
                                   const struct wire_message *message)
{
    struct wire_pair_entry *peer = delivery->peer;
    peer->messages[peer->n_messages % WIRE_MESSAGES] = *message;
    gyre_store_release_u64(&peer->n_messages, peer->n_messages + 1);
}

/* To tell when it has room or a receive. */
static inline enum nic_verdict nic_ask_peer(const struct nic_delivery *delivery,
                                            enum nic_verdict verdict)
{
    (void)wire_exchange(&delivery->peer->peer_waits, 1);
    return verdict;
}

/** As many of a checked request's next bytes as go at once, counted in bytes_moved. NIC_DELIVERED:
 * they are in place, or pair->copies tells of them: under way or held. delivery->status is set if
 * it fails. */
enum nic_verdict nic_move_piece(struct nic_delivery *delivery);

/** Of a request that takes a receive. */
void nic_announce(const struct nic_delivery *delivery);

/** nic_is_late, nic_send_late - the checked request lands late or never: it counts as delivered,
 * and its bytes are read now. */
bool nic_is_late(const struct nic_delivery *delivery);
enum nic_verdict nic_send_late(struct nic_delivery *delivery);

enum nic_verdict nic_read_all(struct nic_delivery *delivery, unsigned char *bytes_out);
enum nic_verdict nic_write_all(struct nic_delivery *delivery, const unsigned char *bytes);

/** If they are held. The requests before it must have arrived. NIC_NO_PEER, or NIC_FAILED with
 * delivery->status: they are not in place. */
enum nic_verdict nic_put_held(struct nic_delivery *delivery);

#endif
