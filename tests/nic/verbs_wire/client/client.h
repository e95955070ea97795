/* SPDX-License-Identifier: Apache-2.0
 *
 * A libibverbs.so.1 between the programs of one machine, for tests. The client checks calls, posts
 * requests to the job's shared file (protocol.h), and takes completions from it. The NIC process of
 * its host moves the bytes. README.md has the variables.
 *
 *   client_start.c   joining the job, starting the NIC process, the helper thread, the end
 *   client_device.c  devices, ports, GIDs, and what tests inject
 *   client_memory.c  protection domains and regions; where GPU memory is
 *   client_pair.c    queue pairs and their states
 *   client_move.c    posting, messages, completion queues and channels; payload of closed processes
 *   client_words.c   names of statuses and events; client_refused.c what this device does not have
 */
#ifndef GYRE_TESTS_WIRE_CLIENT_H
#define GYRE_TESTS_WIRE_CLIENT_H

#include "tests/nic/verbs_wire/file.h"
#include "tests/nic/verbs_wire/say.h"

#include <pthread.h>

struct wire_device {
    struct ibv_device ibv;
    struct vm_device model;
    uint32_t index;
    uint32_t ps_per_byte; /* 0 = no limit */
    uint32_t latency_ns;
    bool is_used; /* a queue pair was made */
};

#define WIRE_MAX_EVENTS 64

struct wire_context {
    struct ibv_context ibv;
    struct wire_device *device;
    struct wire_faults seen; /* for which events were raised */
    struct ibv_async_event events[WIRE_MAX_EVENTS];
    int n_events;
    struct wire_context *next;
};

struct wire_pd {
    struct ibv_pd ibv;
    uint32_t number;
};

struct wire_region {
    struct ibv_mr ibv;
    struct wire_region_entry *entry;
};

struct wire_queue {
    struct ibv_cq ibv;
    struct wire_queue_entry *entry;
    struct wire_pair *pairs[2]; /* that send, that receive */
};

struct wire_channel {
    struct ibv_comp_channel ibv;
    uint32_t number;
};

struct wire_pair {
    struct ibv_qp ibv;
    struct wire_pair_entry *entry;
    struct wire_pd *pd;
    struct wire_context *context;
    uint8_t port;
    bool is_signaling_all;
    uint64_t n_retired;    /* sends up to the last polled completion */
    uint64_t n_polled;     /* sends whose end was seen */
    uint64_t recv_head;    /* receives that are complete */
    uint64_t n_staged;     /* requests whose payload is in `staged` */
    uint64_t bytes_staged; /* of request n_staged */
    bool is_staging;
    struct ibv_qp_attr attr; /* as set by modify_qp, for query_qp */
    struct ibv_qp_init_attr init_attr;
    struct wire_pair *next_of_queue[2]; /* of the send queue, of the receive queue */
    struct wire_pair *next;             /* of all */
};

struct wire {
    struct wire_job job;
    struct wire_process_entry *process;
    struct wire_nic_entry *nic;
    uint64_t nic_looked_at_ns;
    uint32_t n_lines; /* of the NIC's, printed */
    uint32_t n_pds, n_channels;
    struct wire_pair *pairs;
    struct wire_context *contexts;
    struct wire_queue *queues[WIRE_MAX_QUEUES]; /* this process's, by index in the file */
};

extern struct wire wire;          /* one per process; under wire_lock */
extern pthread_mutex_t wire_lock; /* everything above */

/** Once per process. False, and says why. */
bool wire_start(void);

/** Of the NIC process since the last call. */
void wire_print_lines(void);

bool wire_is_nic_alive(void);

/** If VERBS_WIRE_STATS asks for it. */
void wire_print_stats(void);

/** If a test may inject faults. */
bool wire_watch_faults(void);

bool wire_has_fault(const struct wire_context *context, enum wire_fault_kind kind);

/** If a test asks for it. Returns whether it did. */
bool wire_hang(const struct wire_context *context, bool is_rtr);

struct vm_device wire_model_of(const struct wire_context *context);

int wire_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wcs);
int wire_req_notify_cq(struct ibv_cq *cq, int solicited);

static inline struct wire_queue *wire_queue_of(struct ibv_cq *cq)
{
    return (struct wire_queue *)(void *)cq;
}

/** The NIC takes a pair with a failed request to ERR. */
enum ibv_qp_state wire_state_of(struct wire_pair *pair);

/** Until no NIC reads or writes memory of this pair. */
void wire_wait_left(const struct wire_pair_entry *entry);

int wire_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int wire_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/** Store payloads from the ring, and complete at most n receives. */
int wire_take(struct wire_pair *pair, int n, struct ibv_wc *wcs);

/** If this process is closed to NICs, put payload where its NIC finds it, as far as there is room.
 */
void wire_stage(struct wire_pair *pair);

#endif
