/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GYRE_IB_QP_H
#define GYRE_IB_QP_H

#include "transport/ib/ib_verbs.h"

#define GYRE_IB_TEXT_BYTES 160

/** 4.096 us x 2^t (InfiniBand specification 1.4, 9.7.6.1.3); 0 for t = 0: no timeout. */
uint64_t gyre_ib_ack_timeout_ns(unsigned t);

/** How long a peer may be unreachable before RETRY_EXC. A NIC may wait four times as long, and have
 * a minimum for t. */
uint64_t gyre_ib_retry_window_ns(unsigned t, unsigned retries);

/** "TC 106 = DSCP 26 + ECT(0)". */
const char *gyre_ib_class_to_text(unsigned traffic_class, char *text_out, size_t text_bytes);

/** The probable mistake on RoCE; NULL = none. @is_set: the user chose the class. */
const char *gyre_ib_class_warning(unsigned traffic_class, bool is_set, char *text_out,
                                  size_t text_bytes);

/** 0 = unknown. */
unsigned gyre_ib_mtu_bytes(enum ibv_mtu mtu);

/** As in perftest, e.g. "RETRY_EXC". */
const char *gyre_ib_wc_name(enum ibv_wc_status status);

/** What to check. Never NULL. */
const char *gyre_ib_wc_hint(enum ibv_wc_status status);

/** Of ibv_modify_qp(INIT->RTR). Never NULL. */
const char *gyre_ib_rtr_hint(int error_number);

struct gyre_ib_qp_size {
    uint32_t n_send;
    uint32_t n_recv;
    uint32_t inline_bytes; /* wanted; halved until accepted */
};

/* As the peers tell each other. */
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

/** A QP in INIT, which takes receives. @size: on return as the device made it. @access: of the
 * peer. Errors: OUT_OF_MEMORY explaining memlock, SYSTEM, UNSUPPORTED. */
gyre_status gyre_ib_qp_create(const struct gyre_verbs *verbs, struct ibv_pd *pd, struct ibv_cq *cq,
                              const struct gyre_ib_qp_path *path, int access,
                              struct gyre_ib_qp_size *size, struct ibv_qp **qp_out);

/** Tries RTR again on ETIMEDOUT until the deadline. Errors: TIMEOUT or SYSTEM, with
 * gyre_ib_rtr_hint(). */
gyre_status gyre_ib_qp_connect(const struct gyre_verbs *verbs, struct ibv_qp *qp,
                               const struct gyre_ib_qp_path *path, uint64_t deadline_ns);

/** To ERR: all posted requests are flushed, and nothing more arrives. */
void gyre_ib_qp_stop(const struct gyre_verbs *verbs, struct ibv_qp *qp);

gyre_status gyre_ib_random_psn(uint32_t *psn_out);

#endif
