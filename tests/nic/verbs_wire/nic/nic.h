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
 *   nic_faults.c   what tests inject
 *   nic_gpu.c      GPU memory of clients, mapped by CUDA IPC
 *
 * Copies into GPU memory are done in batches. The requests of one round of the loop start their
 * copies; then the round waits once for each stream with copies; then the requests count as
 * arrived. Until then both ends' marks (is_executing, is_entered) stay set. A short write to host
 * memory that comes behind copies of its queue pair does not end the batch: its bytes are read when
 * it is due ("held"), and put in place when the copies are finished.
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
    NIC_STARTED,       /* delivered, once the copies of its pair are finished */
    NIC_BEHIND_COPIES, /* must not begin before the copies of its pair are finished */
    NIC_NO_PEER,       /* no answer: as if packets got lost */
    NIC_NO_RECEIVE,    /* receiver not ready */
    NIC_NO_ROOM,       /* in a ring, or its payload is not staged yet */
    NIC_FAILED
};

struct nic_late; /* a packet on its way, with its bytes */
struct nic_held; /* the payload of one request, in memory of this process */

/* The copies of a queue pair that are under way: of requests n_arrived to n_started. Some of these
 * requests may be held, in the order in which they were posted. */
struct nic_copies {
    struct wire_pair_entry *peer; /* whose mark is_entered is kept; NULL: there are no copies */
    int gpu;                      /* whose stream all of them are on */
    uint32_t n_receives;          /* of the peer, that these requests take */
    uint32_t n_held;
    uint64_t held_bytes;
    struct nic_held *first_held, *last_held; /* of those that are not in place yet */
    enum ibv_wc_status status; /* request n_started fails with it after them, or success */
};

struct nic_pair {
    struct wire_pair_entry *entry;
    uint32_t number;                                /* of the entry that this state is about */
    bool is_active;                                 /* in the loop's list */
    uint64_t n_seen, n_sent, n_arrived, n_answered; /* requests */
    uint64_t n_started;                             /* those that arrived, and those with copies */
    uint64_t bytes_sent;                            /* of request n_sent */
    uint64_t bytes_moved; /* of request n_started, including those whose copy is under way */
    struct nic_copies copies;
    /* By request, modulo max_send: when it was seen, then when it arrives, then when its answer
     * does. */
    uint64_t *times_ns;
    enum nic_verdict stalled_by;
    uint64_t stalled_since_ns; /* 0 = not */
    uint64_t retry_at_ns;
    uint64_t unanswered_since_ns; /* 0 = no answer is lost */
    uint64_t peer_alive_at_ns;    /* when that was last looked at */
};

struct nic {
    struct wire_job job;
    uint32_t index; /* of its entry */
    struct wire_nic_entry *entry;
    uint64_t began_ns;
    struct nic_port ports[VM_MAX_DEVICES];
    struct nic_pair pairs[WIRE_MAX_QUEUE_PAIRS];
    struct nic_pair *copying[WIRE_MAX_QUEUE_PAIRS]; /* those with copies under way */
    uint32_t n_copying;
    unsigned char *bounce; /* NIC_BOUNCE_BYTES */
    uint64_t faults_inode; /* of the text that was read last */
    long faults_ns;
    struct nic_late *first_late;
};

/** nic_pair_progress - do what can be done for a queue pair now.
 * @next_ns_out: when there is more to do: a time that is not later than now = at once, NIC_FOREVER
 * = when it is announced again. If copies are under way afterwards, the pair is in nic->copying,
 * and nic_pair_finish must follow in the same round. Returns whether anything was done. */
bool nic_pair_progress(struct nic *nic, struct nic_pair *pair, uint64_t *next_ns_out);

/** nic_pair_finish - the copies of a pair are finished, so their requests have arrived once the
 * bytes of those that were held are in place; the marks of both ends are taken away. @has_failed: a
 * wait for these copies failed, so the first of the requests fails and the pair's other requests
 * are not executed. */
void nic_pair_finish(struct nic *nic, struct nic_pair *pair, bool has_failed);

/** nic_peer_of - the entry that a pair's destination number names, if it is that still. */
struct wire_pair_entry *nic_peer_of(struct nic *nic, const struct wire_pair_entry *entry);

/** nic_deliver - execute a request that has arrived, or start its copies behind those of the pair
 * that are under way. @status_out: set when it failed. */
enum nic_verdict nic_deliver(struct nic *nic, struct nic_pair *pair, struct wire_request *request,
                             enum ibv_wc_status *status_out);

/** nic_deliver_copied - the rest of a request that was started, after the copies: its bytes if they
 * were held, its message and its statistics. @status_out: set when it failed. If the answer is not
 * NIC_DELIVERED, nothing of it has arrived. */
enum nic_verdict nic_deliver_copied(struct nic *nic, struct nic_pair *pair,
                                    struct wire_request *request, enum ibv_wc_status *status_out);

/** nic_drop_held - forget the bytes that a pair holds. */
void nic_drop_held(struct nic_copies *copies);

/** nic_look_for_faults - read the text that VERBS_WIRE_FAULTS names, if it is another one. */
bool nic_look_for_faults(struct nic *nic);

/** nic_faults_of - those of a pair's port. */
const struct wire_faults *nic_faults_of(const struct nic *nic, const struct wire_pair_entry *entry);

/** nic_loses - are packets from one pair to the other lost now? */
bool nic_loses(const struct nic *nic, const struct wire_pair_entry *from,
               const struct wire_pair_entry *to);

/** nic_land_late - packets that are due. Returns when to come again; 0 = at once. */
uint64_t nic_land_late(struct nic *nic);

/** nic_gpu_of - number of the GPU that a region is on. -1: it cannot be reached, and that was said.
 */
int nic_gpu_of(const struct wire_region_entry *region);

/** nic_gpu_read - from a client's GPU memory to memory of this process; waits for the copy.
 * @address: in the client. False: it failed, and was said. */
bool nic_gpu_read(const struct wire_region_entry *region, uint64_t address, void *to,
                  uint64_t n_bytes);

/** nic_gpu_take_buffer - a part of the memory from which nic_gpu_start_write copies. It is not used
 * again before nic_gpu_finish, or before all copies are waited for because no part is left.
 * @n_bytes: at most NIC_BOUNCE_BYTES. */
unsigned char *nic_gpu_take_buffer(uint64_t n_bytes);

/** nic_gpu_start_write, nic_gpu_start_copy - start a copy to a client's GPU memory, from memory of
 * nic_gpu_take_buffer or from GPU memory. Copies to the same GPU are done in the order in which
 * they were started. False: it was not started, and that was said. */
bool nic_gpu_start_write(const struct wire_region_entry *region, uint64_t address,
                         const unsigned char *from, uint64_t n_bytes);
bool nic_gpu_start_copy(const struct wire_region_entry *to_region, uint64_t to,
                        const struct wire_region_entry *from_region, uint64_t from,
                        uint64_t n_bytes);

/** nic_gpu_finish - wait for all copies that were started. Returns the GPUs (bits) of which a wait
 * for copies to them has failed since the last call. @n_waits_out: all waits so far. */
uint32_t nic_gpu_finish(uint64_t *n_waits_out);

/** nic_gpu_close_unused - close mappings of allocations that have no valid region any more. */
void nic_gpu_close_unused(const struct wire_file *file);

#endif
