/* SPDX-License-Identifier: Apache-2.0
 *
 * What the two stand-in RDMA devices share, the one in memory (verbs_memory) and the one between
 * processes (verbs_wire): devices, ports and GID tables as data, the answers to queries about them,
 * and the rules that both hold callers to. Pure functions.
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

/** vm_parse_gid - IPv4 as ::ffff:a.b.c.d; NULL and "" are zero. False: not an address. */
bool vm_parse_gid(const char *address, union ibv_gid *gid_out);

void vm_fill_device(const struct vm_device *device, struct ibv_device_attr *attr_out);

/** vm_fill_port - @number: from 1. */
void vm_fill_port(const struct vm_device *device, uint8_t number, struct ibv_port_attr *attr_out);

/** vm_fill_gids - the rows that are not empty, as _ibv_query_gid_table; returns how many. */
ssize_t vm_fill_gids(const struct vm_device *device, struct ibv_gid_entry *entries_out,
                     size_t max_entries, size_t entry_bytes);

/** vm_check_step - may a queue pair go from one state to the other with these attributes? 0 or
 * EINVAL. The masks are those that ibv_modify_qp(3) requires of RC, and no others. */
int vm_check_step(enum ibv_qp_state from, enum ibv_qp_state to, int mask);

/** vm_check_rtr - do MTU and addresses of a step to RTR fit the port? 0 or EINVAL. */
int vm_check_rtr(const struct vm_port *port, const struct ibv_qp_attr *attr);

/** vm_check_cap - a queue pair that these devices make. 0 or EINVAL. */
int vm_check_cap(const struct ibv_qp_init_attr *attr);

/** A registered range and what may be done with it. */
struct vm_range {
    uint64_t base;
    uint64_t n_bytes;
    unsigned access; /* IBV_ACCESS_* */
};

/** vm_range_allows - does [address, address + n_bytes) lie in it, with all of that access? */
bool vm_range_allows(const struct vm_range *range, uint64_t address, uint64_t n_bytes,
                     unsigned access);

#endif
