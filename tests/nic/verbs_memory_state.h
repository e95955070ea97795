/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of the device in memory: verbs_memory.c (devices, objects, events, what tests set) and
 * verbs_memory_move.c (completions, moving data, queue pair states).
 */
#ifndef GYRE_TESTS_VERBS_MEMORY_STATE_H
#define GYRE_TESTS_VERBS_MEMORY_STATE_H

#include "tests/nic/verbs_memory.h"

#include <pthread.h>

#define MAX_REGIONS     512
#define MAX_QUEUE_PAIRS 512
#define MAX_CONTEXTS    64
#define MAX_EVENTS      32

struct context {
    struct ibv_context ibv;
    struct device *device;
    struct ibv_async_event events[MAX_EVENTS];
    int n_events;
};

struct completion {
    struct ibv_wc wc;
    struct queue_pair *qp;
    uint64_t retires; /* sends of its QP up to here; 0 = a receive */
};

struct queue {
    struct ibv_cq ibv;
    struct completion *entries;
    uint64_t head, tail;
    bool is_armed;
    bool has_event;
};

struct waiting {
    struct ibv_send_wr wr;
    struct ibv_sge sges[2];
    unsigned char inlined[VM_INLINE_BYTES];
    uint64_t position;
    struct waiting *next;
};

struct queue_pair {
    struct ibv_qp ibv;
    struct ibv_qp_attr attr;
    uint32_t sq_psn;
    uint32_t max_send, max_recv;
    uint64_t n_sent, n_retired;
    uint64_t *recv_ids;
    uint64_t recv_head, recv_tail;
    struct waiting *waiting, **waiting_end;
};

struct device {
    struct ibv_device ibv;
    struct vm_device model;
};

struct vm_hidden; /* bytes that a NIC has written, but that are not in memory yet */

/* All of it is under vm_lock. */
struct vm_state {
    struct device devices[VM_MAX_DEVICES];
    int n_devices;
    struct ibv_mr *regions[MAX_REGIONS];
    int access[MAX_REGIONS];
    struct queue_pair *queue_pairs[MAX_QUEUE_PAIRS];
    struct context *contexts[MAX_CONTEXTS];
    int n_objects; /* PDs, CQs, channels, lists */
    bool is_send_failing;
    enum ibv_wr_opcode failing_opcode;
    enum ibv_wc_status failing_status;
    enum ibv_wc_status failing_recv; /* SUCCESS = none */
    enum ibv_qp_state failing_state;
    int failing_errno, failing_times;
    int reg_errno, reg_after;
    bool is_hiding;
    bool is_scrambling;
    struct vm_hidden *hidden;
    struct vm_counters counters;
};

extern pthread_mutex_t vm_lock;
extern struct vm_state vm;

static inline struct device *device_of(const struct ibv_context *context)
{
    return (struct device *)(void *)context->device;
}

static inline struct vm_port *port_of(const struct queue_pair *qp)
{
    return &device_of(qp->ibv.context)->model.ports[qp->attr.port_num - 1];
}

/* The caller holds the lock. */

/** What was written and is not in memory yet never comes. */
void vm_hidden_drop(struct vm_hidden **first);

/** On all contexts of the device. */
void vm_raise_event(const struct device *device, const struct ibv_async_event *event);

/** Its queue pair is in error from then. */
void vm_fail_request(struct queue_pair *qp, const struct ibv_send_wr *wr, uint64_t position,
                     enum ibv_wc_status status);

/** With what waits for the link, if it is up. */
void vm_go_on(struct queue_pair *qp);

/* Each takes the lock. */
int vm_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wcs);
int vm_req_notify_cq(struct ibv_cq *cq, int solicited);
int vm_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int vm_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int vm_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);

#endif
