/* SPDX-License-Identifier: Apache-2.0
 *
 * Fences, for GPUs before Hopper. A NIC's completion says that data have left the NIC, but not that
 * they have reached the GPU's memory. The processor then writes the tail, which may arrive before
 * the data. A fence reads the GPU's memory through the same NIC. Such a read may not pass the NIC's
 * earlier writes (PCI Express base specification, transaction ordering: a read request does not
 * pass a posted write), so the data have arrived when the read is answered. The read uses a queue
 * pair that is connected to itself and needs no other machine.
 */
#include "core/foundation/base/util.h"
#include "core/foundation/base/text.h"
#include "transport/ib/ib_path.h"

#include <string.h>

/* The queue pair connects to its own port, so no peer's address has to be resolved. */
#define CONNECT_NS 5000000000ULL

static gyre_status open_fence(struct gyre_ib_transport *ib, struct gyre_ib_rail *rail)
{
    struct gyre_ib_qp_size size = {.n_send = 1, .n_recv = 0};
    struct gyre_ib_qp_path path;
    GYRE_TRY(gyre_ib_path_begin(ib, rail, &path));
    if (rail->port.is_roce) {
        path.gid_index = (uint8_t)rail->gids[0].index;
        memcpy(path.local.gid, rail->gids[0].raw, sizeof(path.local.gid));
    }
    GYRE_TRY(gyre_ib_qp_create(ib->verbs, rail->pd, rail->cq, &path, IBV_ACCESS_REMOTE_READ, &size,
                               &rail->fence));
    path.local.qpn = rail->fence->qp_num;
    path.remote = path.local;
    return gyre_ib_qp_connect(ib->verbs, rail->fence, &path, gyre_now_ns() + CONNECT_NS);
}

gyre_status gyre_ib_fences_open(struct gyre_ib_transport *ib)
{
    for (int i = 0; i < ib->n_rails && ib->fence.is_needed; i++) {
        const gyre_status status = open_fence(ib, &ib->rails[i]);
        if (status != GYRE_SUCCESS)
            return gyre_fail_context(status, "NET/IB %s: fence", ib->rails[i].port.name);
    }
    return GYRE_SUCCESS;
}

void gyre_ib_fences_close(struct gyre_ib_transport *ib)
{
    for (int i = 0; i < ib->n_rails; i++) {
        if (ib->rails[i].fence == NULL)
            continue;
        gyre_ib_qp_stop(ib->verbs, ib->rails[i].fence);
        ib->verbs->destroy_qp(ib->rails[i].fence);
        ib->rails[i].fence = NULL;
    }
}

/* Note the slots that the next fence covers: in each FIFO, the slots that are complete now, up to
 * the first slot that is not. */
static void note_complete(struct gyre_ib_transport *ib)
{
    const uint32_t depth = ib->config.spec.depth;
    for (int i = 0; i < ib->config.n_peers; i++)
        for (uint32_t fifo = 0; fifo < ib->peers[i].size.n_fifos; fifo++) {
            struct gyre_ib_recv *recv = &ib->peers[i].recvs[fifo];
            recv->fencing = recv->arrived;
            while (recv->fencing < recv->arrived + depth &&
                   gyre_ib_is_complete(recv, (uint32_t)(recv->fencing % depth)))
                recv->fencing++;
        }
}

static void raise(struct gyre_ib_transport *ib, const struct gyre_ib_rail *rail, const char *words)
{
    gyre_fail(GYRE_ERROR_DEVICE, "NET/IB %s:%u: the read that lets the GPU see received data: %s",
              rail->port.name, rail->port.port, words);
    ib->is_failed = true;
    gyre_fault_raise(ib->config.fault, GYRE_ERROR_DEVICE, gyre_cause());
}

static bool post_read(struct gyre_ib_transport *ib, const struct gyre_ib_rail *rail)
{
    /* Read into the last word of `landing`. The value that the read returns is not used. */
    struct ibv_sge sge = {.addr = (uintptr_t)ib->landing + ib->landing_bytes - sizeof(uint64_t),
                          .length = sizeof(uint64_t),
                          .lkey = rail->landing->lkey};
    struct ibv_send_wr wr, *bad = NULL;
    memset(&wr, 0, sizeof(wr));
    wr.wr_id = GYRE_IB_WR_IS_FENCE;
    wr.opcode = IBV_WR_RDMA_READ;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.wr.rdma.remote_addr = (uintptr_t)ib->recv_slots;
    wr.wr.rdma.rkey = rail->recv_slots->rkey;
    const int error = ibv_post_send(rail->fence, &wr, &bad);
    if (error != 0)
        raise(ib, rail, gyre_text_error(error));
    return error == 0;
}

bool gyre_ib_fence_begin(struct gyre_ib_transport *ib)
{
    if (!ib->fence.is_wanted || ib->fence.n_left > 0 || ib->is_failed)
        return false;
    ib->fence.is_wanted = false;
    note_complete(ib);
    for (int i = 0; i < ib->n_rails && post_read(ib, &ib->rails[i]); i++)
        ib->fence.n_left++;
    return true;
}

bool gyre_ib_fence_end(struct gyre_ib_transport *ib, const struct gyre_ib_rail *rail,
                       const struct ibv_wc *wc)
{
    if (wc->status != IBV_WC_SUCCESS) {
        raise(ib, rail, gyre_ib_wc_name(wc->status));
        return false;
    }
    return --ib->fence.n_left == 0;
}
