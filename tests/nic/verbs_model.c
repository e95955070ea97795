/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/nic/verbs_model.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#define PLENTY 65536

bool vm_parse_gid(const char *address, union ibv_gid *gid_out)
{
    static const uint8_t prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    memset(gid_out, 0, sizeof(*gid_out));
    if (address == NULL || address[0] == '\0')
        return true;
    if (inet_pton(AF_INET, address, gid_out->raw + 12) != 1)
        return inet_pton(AF_INET6, address, gid_out->raw) == 1;
    memcpy(gid_out->raw, prefix, sizeof(prefix));
    return true;
}

void vm_fill_device(const struct vm_device *device, struct ibv_device_attr *attr_out)
{
    memset(attr_out, 0, sizeof(*attr_out));
    attr_out->phys_port_cnt = (uint8_t)device->n_ports;
    attr_out->max_cqe = device->max_cqe > 0 ? device->max_cqe : PLENTY;
    attr_out->max_mr_size = UINT64_MAX;
    attr_out->max_qp = attr_out->max_cq = attr_out->max_mr = attr_out->max_pd = PLENTY;
    attr_out->max_sge = 4;
    attr_out->max_qp_rd_atom = attr_out->max_qp_init_rd_atom = 16;
    attr_out->max_pkeys = 1;
    attr_out->max_qp_wr = device->max_qp_wr > 0 ? device->max_qp_wr : PLENTY;
}

void vm_fill_port(const struct vm_device *device, uint8_t number, struct ibv_port_attr *attr_out)
{
    const struct vm_port *port = &device->ports[number - 1];
    attr_out->state = port->state;
    attr_out->active_mtu = port->active_mtu;
    attr_out->max_mtu = IBV_MTU_4096;
    attr_out->max_msg_sz = port->max_msg_bytes;
    attr_out->gid_tbl_len = VM_MAX_GIDS;
    attr_out->pkey_tbl_len = 1;
    attr_out->phys_state = 5; /* the link is up */
    attr_out->lid = (uint16_t)(port->is_infiniband ? number : 0);
    attr_out->active_speed = port->active_speed > 0 ? port->active_speed : 32;
    attr_out->active_width = port->active_width > 0 ? port->active_width : 2;
    attr_out->link_layer =
        port->is_infiniband ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
}

ssize_t vm_fill_gids(const struct vm_device *device, struct ibv_gid_entry *entries_out,
                     size_t max_entries, size_t entry_bytes)
{
    size_t n = 0;
    if (entry_bytes != sizeof(*entries_out))
        return -EINVAL;
    for (int port = 0; port < device->n_ports; port++) {
        const struct vm_gid *gids = device->ports[port].gids;
        for (uint32_t i = 0; i < VM_MAX_GIDS && gids[i].address != NULL && n < max_entries; i++) {
            if (gids[i].address[0] == '\0')
                continue;
            memset(&entries_out[n], 0, sizeof(entries_out[n]));
            (void)vm_parse_gid(gids[i].address, &entries_out[n].gid);
            entries_out[n].gid_index = i;
            entries_out[n].port_num = (uint32_t)port + 1;
            entries_out[n].gid_type =
                gids[i].version == 2 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
            n++;
        }
    }
    return (ssize_t)n;
}

int vm_check_step(enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
    static const struct {
        enum ibv_qp_state from, to;
        int mask;
    } steps[] = {
        {IBV_QPS_RESET, IBV_QPS_INIT,
         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
        {IBV_QPS_INIT, IBV_QPS_RTR,
         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER},
        {IBV_QPS_RTR, IBV_QPS_RTS,
         IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
             IBV_QP_MAX_QP_RD_ATOMIC},
    };
    if (to == IBV_QPS_ERR)
        return 0;
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
        if (steps[i].from == from && steps[i].to == to && steps[i].mask == mask)
            return 0;
    return EINVAL;
}

int vm_check_rtr(const struct vm_port *port, const struct ibv_qp_attr *attr)
{
    static const uint8_t zero[16];
    union ibv_gid local;
    if (attr->path_mtu > port->active_mtu)
        return EINVAL;
    if (port->is_infiniband)
        return attr->ah_attr.is_global ? EINVAL : 0;
    if (!attr->ah_attr.is_global || attr->ah_attr.grh.sgid_index >= VM_MAX_GIDS)
        return EINVAL;
    (void)vm_parse_gid(port->gids[attr->ah_attr.grh.sgid_index].address, &local);
    /* An empty row, or families that differ. */
    if (memcmp(local.raw, zero, 16) == 0 ||
        (local.raw[0] == 0) != (attr->ah_attr.grh.dgid.raw[0] == 0))
        return EINVAL;
    return 0;
}

int vm_check_cap(const struct ibv_qp_init_attr *attr)
{
    return attr->cap.max_inline_data > VM_INLINE_BYTES || attr->qp_type != IBV_QPT_RC ? EINVAL : 0;
}

bool vm_range_allows(const struct vm_range *range, uint64_t address, uint64_t n_bytes,
                     unsigned access)
{
    return address >= range->base && n_bytes <= range->n_bytes &&
           address - range->base <= range->n_bytes - n_bytes && (range->access & access) == access;
}
