/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a trial (transport/ib/ib_trial.h), shared by its two files: ib_trial.c opens the
 * ports and connects the queue pair, ib_trial_messages.c moves and checks bytes over it.
 */
#ifndef GYRE_IB_TRIAL_STATE_H
#define GYRE_IB_TRIAL_STATE_H

#include "transport/ib/ib_transport.h"
#include "transport/ib/ib_trial.h"

#define GYRE_IB_TRIAL_LARGE_BYTES ((size_t)256 << 10)
/* The memory of a trial: what this end sends, then the area that the peer writes to. */
#define GYRE_IB_TRIAL_MEMORY_BYTES (2 * GYRE_IB_TRIAL_LARGE_BYTES)

struct gyre_ib_trial_open_port {
    struct gyre_ib_trial_port told;
    struct gyre_ib_port port;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
};

struct gyre_ib_trial {
    const struct gyre_params *params;
    struct gyre_ib_scan scan;
    struct gyre_ib_trial_open_port ports[GYRE_IB_MAX_PORTS];
    unsigned char *memory; /* GYRE_IB_TRIAL_MEMORY_BYTES */
    /* The queue pair of the present trial. */
    struct gyre_ib_trial_open_port *at; /* NULL = none */
    struct ibv_qp *qp;
    struct gyre_ib_qp_path path;
    struct gyre_ib_trial_peer peer;
    uint32_t their_gid_index;
    uint64_t n_posted, n_done; /* sends */
    uint64_t n_imms;           /* messages of the peer that have come */
    uint64_t n_taken;          /* of those, the ones that a step has waited for. A message may come
                                * before its step begins to wait */
    uint64_t last_ns;          /* time of the last completion */
    int wait_s;                /* how long a step waits for the peer or the adapter */
};

/** gyre_ib_trial_post_receives - post n receives at the queue pair. Each takes one message of the
 * peer that carries an immediate value. Errors: SYSTEM. */
gyre_status gyre_ib_trial_post_receives(struct gyre_ib_trial *trial, int n);

#endif
