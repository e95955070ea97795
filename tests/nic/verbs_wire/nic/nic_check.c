/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/nic/verbs_wire/nic/nic_delivery.h"

static void note_gpu(struct nic_delivery *delivery, const struct wire_region_entry *region)
{
    if (region->is_gpu)
        delivery->request->way = WIRE_BY_COPY;
}

static enum ibv_wc_status list_local(struct nic_delivery *delivery, struct nic_segments *segments,
                                     unsigned access)
{
    const struct wire_request *request = delivery->request;
    if ((request->flags & IBV_SEND_INLINE) != 0) {
        segments->list[0] = (struct nic_segment){
            .pair = delivery->mine, .inlined = request->inlined, .n_bytes = request->n_bytes};
        segments->n = 1;
        return IBV_WC_SUCCESS;
    }
    for (segments->n = 0; segments->n < request->n_sges; segments->n++) {
        const struct wire_sge *sge = &request->sges[segments->n];
        const struct wire_region_entry *region =
            wire_local_region(delivery->nic->job.file, delivery->mine, sge, access);
        if (region == NULL)
            return IBV_WC_LOC_PROT_ERR;
        segments->list[segments->n] = (struct nic_segment){.pair = delivery->mine,
                                                           .region = region,
                                                           .address = sge->address,
                                                           .n_bytes = sge->n_bytes};
        note_gpu(delivery, region);
    }
    return IBV_WC_SUCCESS;
}

static enum ibv_wc_status list_remote(struct nic_delivery *delivery, struct nic_segments *segments,
                                      unsigned access)
{
    const struct wire_request *request = delivery->request;
    const struct wire_region_entry *region =
        wire_region_of(delivery->nic->job.file, delivery->peer, request->rkey);
    if ((delivery->peer->access & access) == 0 || region == NULL ||
        !vm_range_allows(&region->range, request->remote_address, request->n_bytes, access))
        return IBV_WC_REM_ACCESS_ERR;
    segments->list[0] = (struct nic_segment){.pair = delivery->peer,
                                             .region = region,
                                             .address = request->remote_address,
                                             .n_bytes = request->n_bytes};
    segments->n = 1;
    note_gpu(delivery, region);
    return IBV_WC_SUCCESS;
}

static enum ibv_wc_status list_receive(struct nic_delivery *delivery, struct nic_segments *segments)
{
    struct wire_pair_entry *peer = delivery->peer;
    const struct wire_receive *receive =
        &peer->receives[nic_count_spent(delivery) % peer->max_recv];
    uint64_t n_bytes = 0;
    for (segments->n = 0; segments->n < receive->n_sges; segments->n++) {
        const struct wire_sge *sge = &receive->sges[segments->n];
        const struct wire_region_entry *region =
            wire_local_region(delivery->nic->job.file, peer, sge, IBV_ACCESS_LOCAL_WRITE);
        if (region == NULL)
            return IBV_WC_REM_OP_ERR;
        segments->list[segments->n] = (struct nic_segment){
            .pair = peer, .region = region, .address = sge->address, .n_bytes = sge->n_bytes};
        note_gpu(delivery, region);
        n_bytes += sge->n_bytes;
    }
    return n_bytes < delivery->request->n_bytes ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_SUCCESS;
}

enum ibv_wc_status nic_check(struct nic_delivery *delivery)
{
    const struct wire_request *request = delivery->request;
    const bool is_read = request->opcode == IBV_WR_RDMA_READ;
    enum ibv_wc_status status = list_local(delivery, is_read ? &delivery->to : &delivery->from,
                                           is_read ? IBV_ACCESS_LOCAL_WRITE : 0);
    if (status != IBV_WC_SUCCESS)
        return status;
    if (request->n_bytes > delivery->mine->max_msg_bytes ||
        request->n_bytes > delivery->peer->max_msg_bytes)
        return IBV_WC_LOC_LEN_ERR;
    if (is_read)
        return list_remote(delivery, &delivery->from, IBV_ACCESS_REMOTE_READ);
    if (request->opcode == IBV_WR_SEND || request->opcode == IBV_WR_SEND_WITH_IMM)
        return list_receive(delivery, &delivery->to);
    return list_remote(delivery, &delivery->to, IBV_ACCESS_REMOTE_WRITE);
}
