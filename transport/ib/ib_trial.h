/* SPDX-License-Identifier: Apache-2.0
 *
 * The two processes tell each other their ports and ends by a way of their own. Each call ends
 * within a few seconds.
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

/* Sent between processes: fixed layout, no pointers. */
struct gyre_ib_trial_port {
    char name[72];
    char device[64];
    char cause[320]; /* "" = the port can be used */
    uint32_t port;   /* from 1 */
    uint32_t is_roce;
    uint32_t mtu_bytes;
    uint32_t max_msg_bytes;
    uint32_t gbit_per_s; /* 0 = unknown */
    uint32_t lid;
    uint32_t n_gids;
    struct gyre_ib_gid_row gids[GYRE_IB_TRIAL_GIDS]; /* best first */
};

struct gyre_ib_trial_end {
    uint64_t address; /* of what the peer writes to */
    uint32_t rkey;
    uint32_t qpn;
    uint32_t psn;
    uint32_t unused;
};

struct gyre_ib_trial_peer {
    const struct gyre_ib_trial_port *port;
    const struct gyre_ib_trial_end *end;
    bool is_receiver; /* else this process sends */
};

struct gyre_ib_trial;

/** A port that cannot be used has a cause. Errors: UNSUPPORTED (no library, no active port),
 * INVALID_ARGUMENT (a variable), OUT_OF_MEMORY. */
gyre_status gyre_ib_trial_open(const struct gyre_params *params, struct gyre_ib_trial **trial_out);

void gyre_ib_trial_close(struct gyre_ib_trial *trial);

int gyre_ib_trial_n_ports(const struct gyre_ib_trial *trial);

/** By PCI path; valid until close. */
const struct gyre_ib_trial_port *gyre_ib_trial_port(const struct gyre_ib_trial *trial, int i);

/** One at a time. Errors: of gyre_ib_qp_create(); UNSUPPORTED with the port's cause. */
gyre_status gyre_ib_trial_begin(struct gyre_ib_trial *trial, int i,
                                struct gyre_ib_trial_end *end_out);

/** The peer must stay for the calls that follow. Errors: UNSUPPORTED (no two GIDs fit, printing
 * both tables; RoCE and InfiniBand), TIMEOUT or SYSTEM (the peer's address cannot be resolved). */
gyre_status gyre_ib_trial_connect(struct gyre_ib_trial *trial,
                                  const struct gyre_ib_trial_peer *peer);

/** @latency_us_out: one way, on the sender; else NAN. Errors: REMOTE (no acknowledgement, or wrong
 * bytes), TIMEOUT (the peer sent nothing). */
gyre_status gyre_ib_trial_small(struct gyre_ib_trial *trial, double *latency_us_out);

/** @gbytes_per_s_out: on the sender; else NAN. Errors: as gyre_ib_trial_small(). */
gyre_status gyre_ib_trial_large(struct gyre_ib_trial *trial, double *gbytes_per_s_out);

/** NULL does nothing. */
void gyre_ib_trial_finish(struct gyre_ib_trial *trial);

#endif
