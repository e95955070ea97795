/* SPDX-License-Identifier: Apache-2.0
 *
 * The states of a queue pair: RESET, INIT, RTR, RTS. Attributes and masks are those of
 * ibv_modify_qp(3) for RC.
 */
#include "transport/ib/ib_qp.h"

#include "core/foundation/base/util.h"
#include "transport/ib/rules/ib_gid.h"
#include "transport/ib/ib_mr.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* The time before a NIC sends again to a receiver without a posted receive: code 12 is 0.64 ms.
 * This case never happens here, because there are more receives than slots. A retry count of 7
 * would mean to retry for ever, so a smaller one is used. */
#define MIN_RNR_TIMER 12
#define RNR_RETRIES   6
#define RTR_RETRY_MS  100
/* Routed RoCE needs more than one hop. The kernel replaces this limit by the limit of the route. */
#define HOP_LIMIT 255

gyre_status gyre_ib_random_psn(uint32_t *psn_out)
{
    uint32_t psn;
    GYRE_TRY(gyre_random_bytes(&psn, sizeof(psn)));
    *psn_out = psn & 0xffffff;
    return GYRE_SUCCESS;
}

static gyre_status to_init(const struct gyre_verbs *verbs, struct ibv_qp *qp,
                           const struct gyre_ib_qp_path *path, int access)
{
    struct ibv_qp_attr attr;
    memset(&attr, 0, sizeof(attr));
    attr.qp_state = IBV_QPS_INIT;
    attr.pkey_index = path->pkey_index;
    attr.port_num = path->port;
    attr.qp_access_flags = (unsigned)access;
    const int error = verbs->modify_qp(
        qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (error != 0)
        return gyre_fail_errno(error,
                               "ibv_modify_qp(qpn 0x%x, RESET->INIT, port %u, pkey index %u)",
                               qp->qp_num, path->port, path->pkey_index);
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
        /* A device does not report how much inline data it takes, so try smaller sizes. */
        if (qp != NULL || inline_bytes == 0 || errno == ENOMEM)
            break;
        inline_bytes /= 2;
    }
    if (qp == NULL && errno == ENOMEM)
        return gyre_ib_memlock_fail("ibv_create_qp", (size_t)(size->n_send + size->n_recv) * 128);
    if (qp == NULL)
        return gyre_fail_errno(errno, "ibv_create_qp(RC, %u sends, %u receives)", size->n_send,
                               size->n_recv);
    const gyre_status status = to_init(verbs, qp, path, access);
    if (status != GYRE_SUCCESS) {
        verbs->destroy_qp(qp);
        return status;
    }
    size->inline_bytes =
        attr.cap.max_inline_data < inline_bytes ? attr.cap.max_inline_data : inline_bytes;
    *qp_out = qp;
    return GYRE_SUCCESS;
}

static void fill_rtr(const struct gyre_ib_qp_path *path, struct ibv_qp_attr *attr)
{
    memset(attr, 0, sizeof(*attr));
    attr->qp_state = IBV_QPS_RTR;
    attr->path_mtu = path->local.mtu < path->remote.mtu ? path->local.mtu : path->remote.mtu;
    attr->dest_qp_num = path->remote.qpn;
    attr->rq_psn = path->remote.psn;
    attr->max_dest_rd_atomic = 1;
    attr->min_rnr_timer = MIN_RNR_TIMER;
    attr->ah_attr.port_num = path->port;
    attr->ah_attr.sl = path->service_level;
    if (path->is_roce) {
        attr->ah_attr.is_global = 1;
        memcpy(attr->ah_attr.grh.dgid.raw, path->remote.gid, sizeof(path->remote.gid));
        attr->ah_attr.grh.sgid_index = path->gid_index;
        attr->ah_attr.grh.hop_limit = HOP_LIMIT;
        attr->ah_attr.grh.traffic_class = path->traffic_class;
    } else {
        attr->ah_attr.dlid = path->remote.lid;
    }
}

/* Go to RTR. The kernel resolves the peer's address inside this call and gives up after seconds.
 * The call is tried again, because the peer's interface may just have come up. */
static gyre_status to_rtr(const struct gyre_verbs *verbs, struct ibv_qp *qp,
                          const struct gyre_ib_qp_path *path, uint64_t deadline_ns)
{
    struct ibv_qp_attr attr;
    char local[48];
    char remote[48];
    const struct timespec pause = {.tv_nsec = RTR_RETRY_MS * 1000000L};
    for (;;) {
        fill_rtr(path, &attr);
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

static gyre_status to_rts(const struct gyre_verbs *verbs, struct ibv_qp *qp,
                          const struct gyre_ib_qp_path *path)
{
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

gyre_status gyre_ib_qp_connect(const struct gyre_verbs *verbs, struct ibv_qp *qp,
                               const struct gyre_ib_qp_path *path, uint64_t deadline_ns)
{
    GYRE_TRY(to_rtr(verbs, qp, path, deadline_ns));
    return to_rts(verbs, qp, path);
}

void gyre_ib_qp_stop(const struct gyre_verbs *verbs, struct ibv_qp *qp)
{
    struct ibv_qp_attr attr;
    memset(&attr, 0, sizeof(attr));
    attr.qp_state = IBV_QPS_ERR;
    verbs->modify_qp(qp, &attr, IBV_QP_STATE);
}
