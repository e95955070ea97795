/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads or forked processes pass on blobs through shared memory, and a stand-in for executors
 * moves numbered slots through every FIFO at once and checks every byte.
 */
#ifndef GYRE_TESTS_TRANSPORT_RIG_H
#define GYRE_TESTS_TRANSPORT_RIG_H

#include "transport/transport.h"

#define RIG_MAX_RANKS  8
#define RIG_BLOB_BYTES 1024
#define RIG_SECRET     ((const uint8_t *)"0123456789abcdef0123456789abcdef")

/* In memory that forked processes share. */
struct rig_shared {
    uint32_t n_ranks;
    uint32_t n_arrived; /* at barriers, ever */
    uint32_t n_failures;
    struct gyre_peer_info infos[RIG_MAX_RANKS];
    size_t blob_bytes[RIG_MAX_RANKS];
    unsigned char blobs[RIG_MAX_RANKS][RIG_BLOB_BYTES];
};

struct rig_options {
    const struct gyre_transport_ops *ops;
    struct gyre_fifo_spec spec;
    int n_ranks;
    bool use_processes;
    uint32_t n_slots;         /* that the traffic moves through every FIFO */
    const char *ifname;       /* GYRE_SOCKET_IFNAME */
    char *const *environment; /* all variables, ended by NULL; NULL = none */
    void (*body)(struct gyre_transport *transport, struct gyre_connector *connectors, int rank,
                 void *context); /* NULL = rig_traffic, then a barrier */
};

/* Given to `body` as context. */
struct rig_rank {
    const struct rig_options *options;
    struct rig_shared *shared;
    int rank;
    struct gyre_params params;
    struct gyre_fault fault;
    uint32_t n_barriers;
    bool is_closed; /* `body` closed the transport itself */
};

/** Failed checks of processes count here too. */
void rig_run(const struct rig_options *options);

/** Gives up after 30 s with a failed check. */
bool rig_barrier(struct rig_rank *rank);

/** N_slots through every FIFO in both directions; false if it failed. */
bool rig_traffic(struct rig_rank *rank, struct gyre_connector *connectors);

/** All defaults that transports read. */
void rig_params(struct gyre_params *params, const char *ifname);

struct gyre_device *rig_device(void);

#endif
