/* SPDX-License-Identifier: Apache-2.0
 *
 * Attributes and masks are those of ibv_modify_qp(3) for RC.
 */
#include "transport/ib/ib_qp.h"

#include "core/foundation/base/util.h"
#include "transport/ib/ib_transport.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

uint64_t gyre_ib_ack_timeout_ns(unsigned t)
{
    return t == 0 ? 0 : 4096ULL << (t > 31 ? 31 : t);
}

uint64_t gyre_ib_retry_window_ns(unsigned t, unsigned retries)
{
    return gyre_ib_ack_timeout_ns(t) * (retries + 1);
}

/* RFC 3168: the two low bits of the ToS byte. */
static const char *const ecn_names[] = {"Not-ECT", "ECT(1)", "ECT(0)", "CE"};

const char *gyre_ib_class_to_text(unsigned traffic_class, char *text_out, size_t text_bytes)
{
    snprintf(text_out, text_bytes, "TC %u = DSCP %u + %s", traffic_class, traffic_class >> 2,
             ecn_names[traffic_class & 3]);
    return text_out;
}

const char *gyre_ib_class_warning(unsigned traffic_class, bool is_set, char *text_out,
                                  size_t text_bytes)
{
    if (traffic_class == 0) {
        snprintf(text_out, text_bytes,
                 "RoCE runs with TC 0 (DSCP 0)%s: that is the lossy class of most switches; set "
                 "GYRE_IB_TC to DSCP x 4 (+ 2 for ECT(0)), e.g. 106 for DSCP 26",
                 is_set ? "" : ", the default");
        return text_out;
    }
    /* Probably meant as a priority 0..7 or a DSCP. */
    if (traffic_class < 8) {
        snprintf(text_out, text_bytes,
                 "TC %u is the whole ToS byte: DSCP %u with ECN bits %s, not priority %u; for the "
                 "priority that DSCP d maps to, set d x 4",
                 traffic_class, traffic_class >> 2, ecn_names[traffic_class & 3], traffic_class);
        return text_out;
    }
    if ((traffic_class & 3) == 3 || (traffic_class & 3) == 1) {
        snprintf(text_out, text_bytes,
                 "TC %u sets the ECN bits to %s; data is sent with 0 (Not-ECT) or 2 (ECT(0)): %u "
                 "or %u",
                 traffic_class, ecn_names[traffic_class & 3], traffic_class & ~3U,
                 (traffic_class & ~3U) + 2);
        return text_out;
    }
    return NULL;
}

unsigned gyre_ib_mtu_bytes(enum ibv_mtu mtu)
{
    return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128U << (unsigned)mtu : 0;
}

/* X(status, name, hint) */
#define WC_TABLE(X)                                                                              \
    X(IBV_WC_LOC_LEN_ERR, "LOC_LEN", "a message did not fit what was posted for it: a bug here") \
    X(IBV_WC_LOC_QP_OP_ERR, "LOC_QP_OP",                                                         \
      "the device could not execute the request (on rxe: the link is down)")                     \
    X(IBV_WC_LOC_PROT_ERR, "LOC_PROT", "local memory is not registered as used")                 \
    X(IBV_WC_WR_FLUSH_ERR, "WR_FLUSH",                                                           \
      "the queue pair had failed before; look for the first error of this connection")           \
    X(IBV_WC_BAD_RESP_ERR, "BAD_RESP", "the peer's answer makes no sense: firmware or cabling")  \
    X(IBV_WC_LOC_ACCESS_ERR, "LOC_ACCESS", "local memory does not allow the remote write")       \
    X(IBV_WC_REM_INV_REQ_ERR, "REM_INV_REQ", "the peer's device refused the request as invalid") \
    X(IBV_WC_REM_ACCESS_ERR, "REM_ACCESS",                                                       \
      "the peer's memory is not registered (any more) at that address with that key")            \
    X(IBV_WC_REM_OP_ERR, "REM_OP", "the peer could not execute the request; see its log")        \
    X(IBV_WC_RETRY_EXC_ERR, "RETRY_EXC",                                                         \
      "the peer does not answer: process or host gone, link down, packets dropped on the way "   \
      "(MTU, PFC/ECN of that DSCP), or a GID that is not routed")                                \
    X(IBV_WC_RNR_RETRY_EXC_ERR, "RNR_RETRY_EXC",                                                 \
      "the peer had no receive posted: a bug here, or its device lost them")                     \
    X(IBV_WC_REM_ABORT_ERR, "REM_ABORT", "the peer's device aborted the request")                \
    X(IBV_WC_FATAL_ERR, "FATAL", "the device failed; see dmesg")                                 \
    X(IBV_WC_RESP_TIMEOUT_ERR, "RESP_TIMEOUT", "the peer's device answered too late")            \
    X(IBV_WC_GENERAL_ERR, "GENERAL", "the device gives no reason; see dmesg")

const char *gyre_ib_wc_name(enum ibv_wc_status status)
{
    switch (status) {
#define WC_NAME(status, name, hint) \
    case status:                    \
        return name;
        WC_TABLE(WC_NAME)
#undef WC_NAME
    default:
        return "unknown status";
    }
}

const char *gyre_ib_wc_hint(enum ibv_wc_status status)
{
    switch (status) {
#define WC_HINT(status, name, hint) \
    case status:                    \
        return hint;
        WC_TABLE(WC_HINT)
#undef WC_HINT
    default:
        return "see the status in verbs.h";
    }
}

const char *gyre_ib_rtr_hint(int error_number)
{
    switch (error_number) {
    case ETIMEDOUT:
        return "nobody answered for the peer's GID (ARP or neighbour discovery): wrong VLAN, a "
               "link-local GID, or the peer is down; try ping from this GID's interface";
    case ENETUNREACH:
    case EHOSTUNREACH:
        return "no route from this GID's interface to the peer's subnet: the rails are not routed "
               "to each other, or the wrong GID was taken (GYRE_IB_ADDR_RANGE)";
    case EINVAL:
        return "the GIDs' types or families differ, the local GID index is empty, or the path MTU "
               "is larger than the port's";
    case ENODEV:
        return "this GID's interface is not visible in this network namespace (container without "
               "host network)";
    case ENOMEM:
        return "out of memory, or over the memlock limit (ulimit -l)";
    default:
        return "see dmesg of both hosts";
    }
}

/* 0.64 ms until a NIC sends again to a receiver without a posted receive, which never happens here.
 * 7 retries would be for ever. */
#define MIN_RNR_TIMER 12
#define RNR_RETRIES   6
#define RTR_RETRY_MS  100
/* For routed RoCE. The kernel replaces it by the route's limit. */
#define HOP_LIMIT 255

gyre_status gyre_ib_random_psn(uint32_t *psn_out)
{
    uint32_t psn;
    GYRE_TRY(gyre_random_bytes(&psn, sizeof(psn)));
    *psn_out = psn & 0xffffff;
    return GYRE_SUCCESS;
}

gyre_status gyre_ib_qp_create(const struct gyre_verbs *verbs, struct ibv_pd *pd, struct ibv_cq *cq,
                              const struct gyre_ib_qp_path *path, int access,
                              struct gyre_ib_qp_size *size, struct ibv_qp **qp_out)
{
    struct ibv_qp_init_attr attr;
    struct ibv_qp *qp = NULL;
    uint32_t inline_bytes = size->inline_bytes;
    for (;;) {
        memset(&attr, 0, sizeof(attr));
        attr.send_cq = cq;
        attr.recv_cq = cq;
        attr.qp_type = IBV_QPT_RC;
        attr.cap.max_send_wr = size->n_send;
        attr.cap.max_recv_wr = size->n_recv;
        attr.cap.max_send_sge = 2;
        attr.cap.max_recv_sge = 1;
        attr.cap.max_inline_data = inline_bytes;
        qp = verbs->create_qp(pd, &attr);
        if (qp != NULL || inline_bytes == 0 || errno == ENOMEM)
            break;
        inline_bytes /= 2;
    }
    if (qp == NULL && errno == ENOMEM)
        return gyre_ib_memlock_fail("ibv_create_qp", (size_t)(size->n_send + size->n_recv) * 128);
    if (qp == NULL)
        return gyre_fail_errno(errno, "ibv_create_qp(RC, %u sends, %u receives)", size->n_send,
                               size->n_recv);
    struct ibv_qp_attr init;
    memset(&init, 0, sizeof(init));
    init.qp_state = IBV_QPS_INIT;
    init.pkey_index = path->pkey_index;
    init.port_num = path->port;
    init.qp_access_flags = (unsigned)access;
    const int error = verbs->modify_qp(
        qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (error != 0) {
        const gyre_status status =
            gyre_fail_errno(error, "ibv_modify_qp(qpn 0x%x, RESET->INIT, port %u, pkey index %u)",
                            qp->qp_num, path->port, path->pkey_index);
        verbs->destroy_qp(qp);
        return status;
    }
    size->inline_bytes =
        attr.cap.max_inline_data < inline_bytes ? attr.cap.max_inline_data : inline_bytes;
    *qp_out = qp;
    return GYRE_SUCCESS;
}

/* The kernel resolves the peer's address in this call. */
static gyre_status to_rtr(const struct gyre_verbs *verbs, struct ibv_qp *qp,
                          const struct gyre_ib_qp_path *path, uint64_t deadline_ns)
{
    struct ibv_qp_attr attr;
    char local[48];
    char remote[48];
    const struct timespec pause = {.tv_nsec = RTR_RETRY_MS * 1000000L};
    for (;;) {
        memset(&attr, 0, sizeof(attr));
        attr.qp_state = IBV_QPS_RTR;
        attr.path_mtu = path->local.mtu < path->remote.mtu ? path->local.mtu : path->remote.mtu;
        attr.dest_qp_num = path->remote.qpn;
        attr.rq_psn = path->remote.psn;
        attr.max_dest_rd_atomic = 1;
        attr.min_rnr_timer = MIN_RNR_TIMER;
        attr.ah_attr.port_num = path->port;
        attr.ah_attr.sl = path->service_level;
        if (path->is_roce) {
            attr.ah_attr.is_global = 1;
            memcpy(attr.ah_attr.grh.dgid.raw, path->remote.gid, sizeof(path->remote.gid));
            attr.ah_attr.grh.sgid_index = path->gid_index;
            attr.ah_attr.grh.hop_limit = HOP_LIMIT;
            attr.ah_attr.grh.traffic_class = path->traffic_class;
        } else {
            attr.ah_attr.dlid = path->remote.lid;
        }
        const int error =
            verbs->modify_qp(qp, &attr,
                             IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
        if (error == 0)
            return GYRE_SUCCESS;
        if (error == ETIMEDOUT && gyre_now_ns() < deadline_ns) {
            nanosleep(&pause, NULL);
            continue;
        }
        gyre_fail_errno(error,
                        "ibv_modify_qp(qpn 0x%x, INIT->RTR, local GID %u %s, remote GID %s, "
                        "MTU %u/%u, TC %u)",
                        qp->qp_num, path->gid_index,
                        gyre_ib_gid_to_text(path->local.gid, local, sizeof(local)),
                        gyre_ib_gid_to_text(path->remote.gid, remote, sizeof(remote)),
                        gyre_ib_mtu_bytes(path->local.mtu), gyre_ib_mtu_bytes(path->remote.mtu),
                        path->traffic_class);
        char cause[GYRE_CAUSE_MAX_BYTES];
        snprintf(cause, sizeof(cause), "%s", gyre_cause());
        return gyre_fail(error == ETIMEDOUT ? GYRE_ERROR_TIMEOUT : GYRE_ERROR_SYSTEM, "%.600s - %s",
                         cause, gyre_ib_rtr_hint(error));
    }
}

gyre_status gyre_ib_qp_connect(const struct gyre_verbs *verbs, struct ibv_qp *qp,
                               const struct gyre_ib_qp_path *path, uint64_t deadline_ns)
{
    GYRE_TRY(to_rtr(verbs, qp, path, deadline_ns));
    struct ibv_qp_attr attr;
    memset(&attr, 0, sizeof(attr));
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = path->local.psn;
    attr.timeout = path->timeout;
    attr.retry_cnt = path->retries;
    attr.rnr_retry = RNR_RETRIES;
    attr.max_rd_atomic = 1;
    const int error =
        verbs->modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                             IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
    if (error != 0)
        return gyre_fail_errno(error, "ibv_modify_qp(qpn 0x%x, RTR->RTS, timeout %u, retries %u)",
                               qp->qp_num, path->timeout, path->retries);
    return GYRE_SUCCESS;
}

void gyre_ib_qp_stop(const struct gyre_verbs *verbs, struct ibv_qp *qp)
{
    struct ibv_qp_attr attr;
    memset(&attr, 0, sizeof(attr));
    attr.qp_state = IBV_QPS_ERR;
    verbs->modify_qp(qp, &attr, IBV_QP_STATE);
}
