/* SPDX-License-Identifier: Apache-2.0
 *
 * An RDMA device in memory, behind the table of verbs functions: devices, ports, GID tables,
 * memory regions with bounds and access checks, RC queue pairs between the threads of this process,
 * and every completion error and asynchronous event on demand. What it does is checked harder than
 * hardware does: too many work requests, a completion queue that overruns, a receive that is
 * missing are failures at once. Nothing depends on time.
 */
#ifndef GYRE_TESTS_VERBS_MEMORY_H
#define GYRE_TESTS_VERBS_MEMORY_H

#include "tests/nic/verbs_model.h"

/** One device with one port, which all hosts of a test share. */
static const struct vm_device vm_one_nic[] = {
    {.name = "mem0",
     .n_ports = 1,
     .ports = {{.state = IBV_PORT_ACTIVE,
                .active_mtu = IBV_MTU_4096,
                .max_msg_bytes = 1 << 30,
                .gids = {{"fe80::5054:ff:fe77:1", 2}, {"10.0.0.1", 2}}}}},
    {.name = NULL},
};

/** vm_install - these devices exist from now on, in place of any library. Everything that was made
 * before must have been destroyed; returns false if something was not. */
bool vm_install(const struct vm_device *devices);

/** vm_uninstall - back to the library; false if something was not destroyed. */
bool vm_uninstall(void);

/** vm_port_set - link down (messages wait) or up again (they go on); raises the event. */
void vm_port_set(const char *device, int port, bool is_active);

/** vm_expire - what waits on that device fails now, as after the last retry (RETRY_EXC). */
void vm_expire(const char *device);

/** vm_event - raise an asynchronous event on all contexts of the device. */
void vm_event(const char *device, enum ibv_event_type type, int port);

/** vm_fail_send - the next request with this opcode completes with `status`, nothing is moved. */
void vm_fail_send(enum ibv_wr_opcode opcode, enum ibv_wc_status status);

/** vm_fail_recv - the next message that consumes a receive completes it with `status`. */
void vm_fail_recv(enum ibv_wc_status status);

/** vm_fail_modify - the next `times` moves to that state fail with this errno. */
void vm_fail_modify(enum ibv_qp_state state, int error_number, int times);

/** vm_fail_reg_mr - registrations after `after` more of them fail with this errno; 0 = none. */
void vm_fail_reg_mr(int error_number, int after);

/** vm_hide - as GPUs before Hopper see it: what RDMA WRITE without an immediate value brings comes
 * into memory with the next RDMA READ through the same NIC, not before. */
void vm_hide(bool is_hiding);

/** vm_scramble - the words of RDMA WRITEs without an immediate value come in another order, and
 * some of them twice, as when packets are lost and sent again. */
void vm_scramble(bool is_scrambling);

struct vm_counters {
    uint64_t n_writes; /* RDMA WRITE */
    uint64_t n_reads;  /* RDMA READ */
    uint64_t n_imms;   /* WRITE_WITH_IMM */
    uint64_t n_inline;
    uint64_t n_posts; /* calls */
    uint64_t n_cqes;  /* of sends */
    uint64_t largest_bytes;
    uint32_t last_traffic_class;
    uint32_t last_path_mtu;
    uint32_t n_queue_pairs_used; /* that ever sent */
};

struct vm_counters vm_counters(void);

#endif
