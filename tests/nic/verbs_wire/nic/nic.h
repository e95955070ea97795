/* SPDX-License-Identifier: Apache-2.0
 *
 * The NIC process of a host executes requests. It has one thread, so nothing has a lock.
 *
 *   nic_main.c     start, the loop, clients that ended, the end
 *   nic_pair.c     one queue pair: what was posted, when it goes out, arrives, and is complete
 *   nic_deliver.c  one request that has arrived at its peer (with nic_delivery.h), and its checks
 *   nic_move.c     how a request's bytes travel
 *   nic_faults.c   what tests inject
 *   nic_capture.c  the packets of delivered requests, as a file
 *   nic_gpu.c      GPU memory of clients, mapped by CUDA IPC
 *
 * Copies into GPU memory are batched. The requests of one round start their copies; then the round
 * waits once for each stream; then the requests count as arrived. Until then both ends' marks
 * (is_executing, is_entered) stay set. A short write to host memory behind copies of its queue pair
 * is "held": its bytes are read when it is due, and put in place when the copies are finished.
 */
#ifndef GYRE_TESTS_WIRE_NIC_H
#define GYRE_TESTS_WIRE_NIC_H

#include "tests/nic/verbs_wire/file.h"

#define NIC_FOREVER      UINT64_MAX
#define NIC_BOUNCE_BYTES 262144 /* stays in the processor's cache */

/* A sending port. */
struct nic_port {
    uint64_t free_ps; /* when all before has left, since the start of this process */
};

enum nic_verdict {
    NIC_DELIVERED,
    NIC_STARTED,       /* delivered when its pair's copies are finished */
    NIC_BEHIND_COPIES, /* must not begin before its pair's copies are finished */
    NIC_NO_PEER,       /* as if packets got lost */
    NIC_NO_RECEIVE,    /* receiver not ready */
    NIC_NO_ROOM,       /* in a ring, or not staged yet */
    NIC_FAILED
};

struct nic_late; /* a packet on its way, with its bytes */
struct nic_held; /* one request's payload, here */

/* Under way: of requests n_arrived to n_started. Some may be held, in the order of posting. */
struct nic_copies {
    struct wire_pair_entry *peer; /* whose mark is_entered is kept; NULL: no copies */
    int gpu;                      /* whose stream all of them are on */
    uint32_t n_receives;          /* of the peer, that these take */
    uint32_t n_held;
    uint64_t held_bytes;
    struct nic_held *first_held, *last_held; /* of those not in place */
    enum ibv_wc_status status;               /* of request n_started, after them */
};

struct nic_pair {
    struct wire_pair_entry *entry;
    uint32_t number;                                /* of this state's entry */
    bool is_active;                                 /* in the loop's list */
    uint64_t n_seen, n_sent, n_arrived, n_answered; /* requests */
    uint64_t n_started;                             /* those that arrived, and those with copies */
    uint64_t bytes_sent;                            /* of request n_sent */
    uint64_t bytes_moved; /* of request n_started, with its copy under way */
    struct nic_copies copies;
    /* By request, modulo max_send: when it was seen, arrives, is answered. */
    uint64_t *times_ns;
    enum nic_verdict stalled_by;
    uint64_t stalled_since_ns; /* 0 = not */
    uint64_t retry_at_ns;
    uint64_t unanswered_since_ns; /* 0 = no answer is lost */
    uint64_t peer_alive_at_ns;    /* when that was last looked at */
    uint32_t n_packets;           /* captured */
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
    uint64_t faults_inode; /* of the last text */
    long faults_ns;
    struct nic_late *first_late;
};

/** @next_ns_out: when there is more to do: not later than now = at once, NIC_FOREVER = when it is
 * announced again. If copies are under way afterwards, the pair is in nic->copying, and
 * nic_pair_finish must follow in the same round. Returns whether anything was done. */
bool nic_pair_progress(struct nic *nic, struct nic_pair *pair, uint64_t *next_ns_out);

/** After the copies: puts held bytes in place and takes both ends' marks away. @has_failed: a wait
 * for these copies failed, so the first request fails and the pair's others are not executed. */
void nic_pair_finish(struct nic *nic, struct nic_pair *pair, bool has_failed);

/** If the destination number still names it. */
struct wire_pair_entry *nic_peer_of(struct nic *nic, const struct wire_pair_entry *entry);

/** Execute a request, or start its copies behind those of the pair. @status_out: set when it
 * failed. */
enum nic_verdict nic_deliver(struct nic *nic, struct nic_pair *pair, struct wire_request *request,
                             enum ibv_wc_status *status_out);

/** The rest of a request after its copies: held bytes, message and statistics. @status_out: set
 * when it failed. Unless NIC_DELIVERED, nothing of it has arrived. */
enum nic_verdict nic_deliver_copied(struct nic *nic, struct nic_pair *pair,
                                    struct wire_request *request, enum ibv_wc_status *status_out);

/** The packets of a delivered request go to the file that VERBS_WIRE_PCAP names, if it does. */
void nic_capture(const struct nic *nic, struct nic_pair *pair, const struct wire_request *request);

void nic_drop_held(struct nic_copies *copies);

/** In the text that VERBS_WIRE_FAULTS names, if it is another one. */
bool nic_look_for_faults(struct nic *nic);

/** Those of a pair's port. */
const struct wire_faults *nic_faults_of(const struct nic *nic, const struct wire_pair_entry *entry);

bool nic_loses(const struct nic *nic, const struct wire_pair_entry *from,
               const struct wire_pair_entry *to);

/** Returns when to come again; 0 = at once. */
uint64_t nic_land_late(struct nic *nic);

/** -1: not reached, which was said. */
int nic_gpu_of(const struct wire_region_entry *region);

/** Waits for the copy. @address: in the client. False: it failed, and was said. */
bool nic_gpu_read(const struct wire_region_entry *region, uint64_t address, void *to,
                  uint64_t n_bytes);
bool nic_gpu_write(const struct wire_region_entry *region, uint64_t address, const void *from,
                   uint64_t n_bytes);

/** For nic_gpu_start_write. Not used again before nic_gpu_finish, or before all copies are waited
 * for because no part is left. @n_bytes: at most NIC_BOUNCE_BYTES. */
unsigned char *nic_gpu_take_buffer(uint64_t n_bytes);

/** nic_gpu_start_write, nic_gpu_start_copy - from memory of nic_gpu_take_buffer or GPU memory.
 * Copies to one GPU are done in the order of their start. False: not started, which was said. */
bool nic_gpu_start_write(const struct wire_region_entry *region, uint64_t address,
                         const unsigned char *from, uint64_t n_bytes);
bool nic_gpu_start_copy(const struct wire_region_entry *to_region, uint64_t to,
                        const struct wire_region_entry *from_region, uint64_t from,
                        uint64_t n_bytes);

/** Waits for all. Returns the GPUs (bits) of which a wait has failed since the last call.
 * @n_waits_out: all so far. */
uint32_t nic_gpu_finish(uint64_t *n_waits_out);

/** Mappings without a valid region. */
void nic_gpu_close_unused(const struct wire_file *file);

#endif
