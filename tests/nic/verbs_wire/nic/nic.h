/* SPDX-License-Identifier: Apache-2.0
 *
 * The NIC process of a host: it executes the requests that clients posted. One thread, so nothing
 * in it has a lock.
 *
 *   nic_main.c     start, the loop, clients that ended, the end
 *   nic_pair.c     one queue pair: what was posted, when it goes out, arrives, and is complete
 *   nic_deliver.c  one request that has arrived at its peer (with nic_delivery.h)
 *   nic_check.c    what is checked of a request at both ends
 *   nic_move.c     how a request's bytes travel
 *   nic_gpu.c      GPU memory of clients, mapped by CUDA IPC
 */
#ifndef GYRE_TESTS_WIRE_NIC_H
#define GYRE_TESTS_WIRE_NIC_H

#include "tests/nic/verbs_wire/file.h"

#define NIC_FOREVER      UINT64_MAX
#define NIC_BOUNCE_BYTES 262144 /* stays in the processor's cache between its two copies */

/* A sending port. */
struct nic_port {
    uint64_t free_ps; /* when what was sent so far has left, since the start of this process */
};

enum nic_verdict {
    NIC_DELIVERED,
    NIC_NO_PEER,    /* no answer: as if packets got lost */
    NIC_NO_RECEIVE, /* receiver not ready */
    NIC_NO_ROOM,    /* in a ring, or its payload is not staged yet */
    NIC_FAILED
};

/* When a request was seen, then when it arrives, then when its answer does. */
struct nic_pair {
    struct wire_pair_entry *entry;
    uint32_t number;                                /* of the entry that this state is about */
    bool is_active;                                 /* in the loop's list */
    uint64_t n_seen, n_sent, n_arrived, n_answered; /* requests */
    uint64_t bytes_sent;                            /* of request n_sent */
    uint64_t bytes_arrived;                         /* of request n_arrived */
    bool is_by_ring;                                /* request n_arrived, at either end */
    uint64_t *times_ns;                             /* by request, modulo max_send */
    enum nic_verdict stalled_by;
    uint64_t stalled_since_ns; /* 0 = not */
    uint64_t retry_at_ns;
    uint64_t peer_alive_at_ns; /* when that was last looked at */
};

struct nic {
    struct wire_job job;
    uint32_t index; /* of its entry */
    struct wire_nic_entry *entry;
    uint64_t began_ns;
    struct nic_port ports[VM_MAX_DEVICES];
    struct nic_pair pairs[WIRE_MAX_QUEUE_PAIRS];
    unsigned char *bounce; /* NIC_BOUNCE_BYTES */
};

/* ---- nic_pair.c ----------------------------------------------------------------------------- */

/** nic_pair_progress - do what can be done for a queue pair now.
 * @next_ns_out: when there is more to do: the time now = at once, NIC_FOREVER = when it is
 * announced again. Returns whether anything was done. */
bool nic_pair_progress(struct nic *nic, struct nic_pair *pair, uint64_t *next_ns_out);

/* ---- nic_deliver.c -------------------------------------------------------------------------- */

/** nic_peer_of - the entry that a pair's destination number names, if it is that still. */
struct wire_pair_entry *nic_peer_of(struct nic *nic, const struct wire_pair_entry *entry);

/** nic_deliver - execute a request that has arrived. @status_out: set when it failed. */
enum nic_verdict nic_deliver(struct nic *nic, struct nic_pair *pair, struct wire_request *request,
                             enum ibv_wc_status *status_out);

/* ---- nic_gpu.c ------------------------------------------------------------------------------ */

/** nic_gpu_read, nic_gpu_write - between a client's GPU memory and memory of this process.
 * @address: in the client. False: it failed, and was said. */
bool nic_gpu_read(const struct wire_region_entry *region, uint64_t address, void *to,
                  uint64_t n_bytes);
bool nic_gpu_write(const struct wire_region_entry *region, uint64_t address, const void *from,
                   uint64_t n_bytes);

/** nic_gpu_copy - between two clients' GPU memory, without a way through this process. */
bool nic_gpu_copy(const struct wire_region_entry *to_region, uint64_t to,
                  const struct wire_region_entry *from_region, uint64_t from, uint64_t n_bytes);

/** nic_gpu_close_unused - close mappings of allocations that have no valid region any more. */
void nic_gpu_close_unused(const struct wire_file *file);

#endif
