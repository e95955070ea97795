/* SPDX-License-Identifier: Apache-2.0
 *
 * RC queue pairs: the walk RESET - INIT - RTR - RTS and back, the timers and traffic classes in
 * words, and what an errno of that walk or a failed completion means for the person who reads it.
 */
#ifndef GYRE_IB_QP_H
#define GYRE_IB_QP_H

#include "transport/ib/ib_verbs.h"

#define GYRE_IB_TEXT_BYTES 160

/* ---- timers -------------------------------------------------------------------------------- */

/** gyre_ib_ack_timeout_ns - 4.096 us x 2^t (InfiniBand specification 1.4, 9.7.6.1.3); 0 for 0,
 * which means for ever. */
uint64_t gyre_ib_ack_timeout_ns(unsigned t);

/** gyre_ib_retry_window_ns - how long a peer may be unreachable before RETRY_EXC: the first try and
 * `retries` more. NICs may wait up to four times as long, and may have a floor for t. */
uint64_t gyre_ib_retry_window_ns(unsigned t, unsigned retries);

/* ---- traffic class and service level ----------------------------------------------------------
 */

/** gyre_ib_class_to_text - "TC 106 = DSCP 26 + ECT(0)". */
const char *gyre_ib_class_to_text(unsigned traffic_class, char *text_out, size_t text_bytes);

/** gyre_ib_class_warning - what is probably wrong with this class on RoCE, in words.
 * @is_set: the user chose it. Returns NULL if nothing is. */
const char *gyre_ib_class_warning(unsigned traffic_class, bool is_set, char *text_out,
                                  size_t text_bytes);

/* ---- words --------------------------------------------------------------------------------- */

unsigned gyre_ib_mtu_bytes(enum ibv_mtu mtu);

/** gyre_ib_wc_name - "RETRY_EXC", as perftest and the specification call it. */
const char *gyre_ib_wc_name(enum ibv_wc_status status);

/** gyre_ib_wc_hint - what this status usually means and what to look at; never NULL. */
const char *gyre_ib_wc_hint(enum ibv_wc_status status);

/** gyre_ib_rtr_hint - what an errno of ibv_modify_qp(INIT->RTR) means; never NULL. */
const char *gyre_ib_rtr_hint(int error_number);

/* ---- the walk ------------------------------------------------------------------------------- */

struct gyre_ib_qp_size {
    uint32_t n_send; /* work requests */
    uint32_t n_recv;
    uint32_t inline_bytes; /* wanted; create halves it until the device takes it */
};

/* One end of a connection; what the ends tell each other. */
struct gyre_ib_qp_end {
    uint32_t qpn;
    uint32_t psn; /* 24 bits, random */
    uint16_t lid;
    enum ibv_mtu mtu;
    uint8_t gid[16];
};

struct gyre_ib_qp_path {
    struct gyre_ib_qp_end local;
    struct gyre_ib_qp_end remote;
    uint8_t port;
    bool is_roce;
    uint8_t gid_index;
    uint8_t traffic_class;
    uint8_t service_level;
    uint16_t pkey_index;
    uint8_t timeout;
    uint8_t retries;
};

/** gyre_ib_qp_create - a QP in INIT, ready for receives to be posted.
 * @size: n_send and inline_bytes are what was had on return.
 * @access: of the remote side: IBV_ACCESS_REMOTE_WRITE where it may write.
 * Errors: OUT_OF_MEMORY explaining memlock, SYSTEM, UNSUPPORTED. */
gyre_status gyre_ib_qp_create(const struct gyre_verbs *verbs, struct ibv_pd *pd, struct ibv_cq *cq,
                              const struct gyre_ib_qp_path *path, int access,
                              struct gyre_ib_qp_size *size, struct ibv_qp **qp_out);

/** gyre_ib_qp_connect - INIT, RTR, RTS. The RTR step resolves the peer's address and is tried again
 * on ETIMEDOUT until the deadline. Errors: with the explanation of gyre_ib_rtr_hint. */
gyre_status gyre_ib_qp_connect(const struct gyre_verbs *verbs, struct ibv_qp *qp,
                               const struct gyre_ib_qp_path *path, uint64_t deadline_ns);

/** gyre_ib_qp_stop - to ERR: everything posted is flushed, nothing more arrives. */
void gyre_ib_qp_stop(const struct gyre_verbs *verbs, struct ibv_qp *qp);

/** gyre_ib_random_psn - 24 random bits. */
gyre_status gyre_ib_random_psn(uint32_t *psn_out);

#endif
