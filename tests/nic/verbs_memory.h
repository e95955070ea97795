/* SPDX-License-Identifier: Apache-2.0
 *
 * An RDMA device in memory: RC queue pairs between the threads of this process, with every
 * completion error and asynchronous event on demand. It checks harder than hardware: too many work
 * requests, a completion queue that overruns, or a missing receive fail at once. Nothing depends on
 * time.
 */
#ifndef GYRE_TESTS_VERBS_MEMORY_H
#define GYRE_TESTS_VERBS_MEMORY_H

#include "tests/nic/verbs_model.h"

/** Shared by all hosts of a test. */
static const struct vm_device vm_one_nic[] = {
    {.name = "mem0",
     .n_ports = 1,
     .ports = {{.state = IBV_PORT_ACTIVE,
                .active_mtu = IBV_MTU_4096,
                .max_msg_bytes = 1 << 30,
                .gids = {{"fe80::5054:ff:fe77:1", 2}, {"10.0.0.1", 2}}}}},
    {.name = NULL},
};

/** In place of any library. False if something made before was not destroyed. */
bool vm_install(const struct vm_device *devices);

/** False if something was not destroyed. */
bool vm_uninstall(void);

/** Messages wait while the link is down; raises the event. */
void vm_port_set(const char *device, int port, bool is_active);

/** What waits on that device fails, as after the last retry (RETRY_EXC). */
void vm_expire(const char *device);

/** On all contexts of the device. */
void vm_event(const char *device, enum ibv_event_type type, int port);

/** The next request with this opcode moves nothing. */
void vm_fail_send(enum ibv_wr_opcode opcode, enum ibv_wc_status status);

/** Of the next message that consumes a receive. */
void vm_fail_recv(enum ibv_wc_status status);

void vm_fail_modify(enum ibv_qp_state state, int error_number, int times);

/** After `after` more registrations; 0 = none. */
void vm_fail_reg_mr(int error_number, int after);

/** As with GPUs before Hopper, what RDMA WRITE without an immediate value brings comes into memory
 * only with the next RDMA READ through the same NIC. */
void vm_hide(bool is_hiding);

/** The words of RDMA WRITEs without an immediate value come in another order, and some twice, as
 * after losses. */
void vm_scramble(bool is_scrambling);

struct vm_counters {
    uint64_t n_writes; /* RDMA WRITE */
    uint64_t n_reads;  /* RDMA READ */
    uint64_t n_imms;   /* WRITE_WITH_IMM */
    uint64_t n_inline;
    uint64_t n_posts; /* calls */
    uint64_t n_cqes;  /* of sends */
    uint64_t n_events_taken;
    uint64_t largest_bytes;
    uint32_t last_traffic_class;
    uint32_t last_path_mtu;
    uint32_t n_queue_pairs_used; /* that ever sent */
};

struct vm_counters vm_counters(void);

#endif
