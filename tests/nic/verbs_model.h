/* SPDX-License-Identifier: Apache-2.0
 *
 * What the two stand-in RDMA devices share, verbs_memory and verbs_wire: devices, ports and GID
 * tables as data, the answers to queries, and the rules for callers.
 */
#ifndef GYRE_TESTS_VERBS_MODEL_H
#define GYRE_TESTS_VERBS_MODEL_H

#include "transport/ib/ib_verbs.h"

#define VM_MAX_DEVICES  4
#define VM_MAX_PORTS    2
#define VM_MAX_GIDS     16

#define VM_INLINE_BYTES 512

struct vm_gid {
    const char *address; /* NULL ends the table; "" is an empty row */
    int version;         /* 1 or 2 */
};

struct vm_port {
    enum ibv_port_state state;
    bool is_infiniband;
    enum ibv_mtu active_mtu;
    uint32_t max_msg_bytes;
    uint8_t active_speed, active_width; /* InfiniBand's codes; 0 = 25 Gbit/s a lane, 4 lanes */
    struct vm_gid gids[VM_MAX_GIDS];
};

struct vm_device {
    const char *name; /* NULL ends the list */
    int n_ports;
    struct vm_port ports[VM_MAX_PORTS];
    int max_cqe;   /* 0 = plenty */
    int max_qp_wr; /* 0 = plenty */
};

/** IPv4 as ::ffff:a.b.c.d; NULL and "" are zero. False: not an address. */
bool vm_parse_gid(const char *address, union ibv_gid *gid_out);

void vm_fill_device(const struct vm_device *device, struct ibv_device_attr *attr_out);

/** @number: from 1. */
void vm_fill_port(const struct vm_device *device, uint8_t number, struct ibv_port_attr *attr_out);

/** As _ibv_query_gid_table; returns how many. */
ssize_t vm_fill_gids(const struct vm_device *device, struct ibv_gid_entry *entries_out,
                     size_t max_entries, size_t entry_bytes);

/** 0 or EINVAL. The masks are exactly those that ibv_modify_qp(3) requires of RC. */
int vm_check_step(enum ibv_qp_state from, enum ibv_qp_state to, int mask);

/** MTU and addresses fit the port: 0 or EINVAL. */
int vm_check_rtr(const struct vm_port *port, const struct ibv_qp_attr *attr);

/** 0 or EINVAL. */
int vm_check_cap(const struct ibv_qp_init_attr *attr);

struct vm_range {
    uint64_t base;
    uint64_t n_bytes;
    unsigned access; /* IBV_ACCESS_* */
};

/** All of [address, address + n_bytes), with all of that access. */
bool vm_range_allows(const struct vm_range *range, uint64_t address, uint64_t n_bytes,
                     unsigned access);

#endif
