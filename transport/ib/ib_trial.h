/* SPDX-License-Identifier: Apache-2.0
 *
 * A trial of RDMA between two ports: small messages there and back whose bytes are checked, then
 * large writes.
 *
 * The two processes make the same calls and tell each other their ports and ends by a way of their
 * own. Each call ends within a few seconds, also if the other process is gone.
 *
 *   both      open, port        -> tell the ports
 *   both      begin             -> tell the ends
 *   both      connect, small, large (after each they tell each other whether it went well)
 *   both      finish
 */
#ifndef GYRE_IB_TRIAL_H
#define GYRE_IB_TRIAL_H

#include "core/foundation/base/param.h"
#include "core/foundation/base/status.h"
#include "transport/ib/rules/ib_gid.h"

#define GYRE_IB_TRIAL_GIDS 8

/* Processes send it to each other: fixed layout, no pointers. */
struct gyre_ib_trial_port {
    char name[72];
    char device[64];
    char cause[320]; /* why the port cannot be used; "" = it can */
    uint32_t port;   /* from 1 */
    uint32_t is_roce;
    uint32_t mtu_bytes;
    uint32_t max_msg_bytes;
    uint32_t gbit_per_s; /* 0 = unknown */
    uint32_t lid;
    uint32_t n_gids;
    struct gyre_ib_gid_row gids[GYRE_IB_TRIAL_GIDS]; /* best first */
};

/* Fixed layout, no pointers. */
struct gyre_ib_trial_end {
    uint64_t address; /* of the memory that the peer writes to */
    uint32_t rkey;
    uint32_t qpn;
    uint32_t psn;
    uint32_t unused;
};

struct gyre_ib_trial_peer {
    const struct gyre_ib_trial_port *port;
    const struct gyre_ib_trial_end *end;
    bool is_receiver; /* this process receives and the peer sends */
};

struct gyre_ib_trial;

/** gyre_ib_trial_open - open all active ports that IB_HCA allows. A port that cannot be used is
 * listed with its cause. Errors: UNSUPPORTED (no library, no active port), INVALID_ARGUMENT (a
 * variable), OUT_OF_MEMORY. */
gyre_status gyre_ib_trial_open(const struct gyre_params *params, struct gyre_ib_trial **trial_out);

void gyre_ib_trial_close(struct gyre_ib_trial *trial);

int gyre_ib_trial_n_ports(const struct gyre_ib_trial *trial);

/** gyre_ib_trial_port - from 0 in the order of PCI paths; valid until close. */
const struct gyre_ib_trial_port *gyre_ib_trial_port(const struct gyre_ib_trial *trial, int i);

/** gyre_ib_trial_begin - make a queue pair at port i. One at a time. Errors: of
 * gyre_ib_qp_create(); UNSUPPORTED with the port's cause. */
gyre_status gyre_ib_trial_begin(struct gyre_ib_trial *trial, int i,
                                struct gyre_ib_trial_end *end_out);

/** gyre_ib_trial_connect - choose the GIDs of both. The peer must stay for the calls that follow.
 * Errors: UNSUPPORTED (no two GIDs fit, printing both tables; RoCE and InfiniBand), TIMEOUT or
 * SYSTEM (the peer's address cannot be resolved). */
gyre_status gyre_ib_trial_connect(struct gyre_ib_trial *trial,
                                  const struct gyre_ib_trial_peer *peer);

/** gyre_ib_trial_small - @latency_us_out: one way, on the sender; NAN on the receiver. Errors:
 * REMOTE (no acknowledgement, or wrong bytes), TIMEOUT (the peer sent nothing). */
gyre_status gyre_ib_trial_small(struct gyre_ib_trial *trial, double *latency_us_out);

/** gyre_ib_trial_large - one large write whose bytes the receiver checks, then as many as fit into
 * a few tens of milliseconds. @gbytes_per_s_out: on the sender; NAN on the receiver. Errors: as
 * gyre_ib_trial_small(). */
gyre_status gyre_ib_trial_large(struct gyre_ib_trial *trial, double *gbytes_per_s_out);

/** gyre_ib_trial_finish - NULL does nothing. */
void gyre_ib_trial_finish(struct gyre_ib_trial *trial);

#endif
