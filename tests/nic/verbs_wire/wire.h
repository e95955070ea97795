/* SPDX-License-Identifier: Apache-2.0
 *
 * An RDMA device between the processes of one machine, as a libibverbs.so.1 of its own: the whole
 * verbs path of a program runs over it without hardware. For tests only.
 *
 * The processes of a job map one file in /dev/shm. It has tables of queue pairs, memory regions and
 * completion queues; an entry is claimed by compare-exchange of its owner and given back by zero,
 * so that a killed process leaves no lock behind, only entries with a dead owner. A queue pair of
 * type RC has one peer, so its ring of arriving messages has one writer (that peer) and one reader
 * (its owner).
 *
 *   sender, in ibv_post_send: check the regions of both ends, then
 *     payload of at most WIRE_SMALL_BYTES        into the ring of the peer's queue pair
 *     larger                                     process_vm_writev into the peer's memory, or in
 *                                                pieces through the ring where that is refused
 *     GPU memory at either end                   a CUDA copy (wire_gpu.c)
 *     with an immediate value                    a message in the ring, last
 *   receiver, in ibv_poll_cq: store what is in the ring, complete receives
 *
 * What cannot be sent now (no receive posted, ring full, no such peer) waits in order; a thread per
 * process tries again every millisecond and gives up after the queue pair's own times. Each process
 * has one lock for all its objects.
 *
 * VERBS_WIRE_JOB      name of the file; processes with the same name reach each other.
 *                     Default: the number of the parent process, which ranks of mpirun share
 * VERBS_WIRE_HOST     1..250, the last part of the default addresses (1)
 * VERBS_WIRE_DEVICES  name=address,...;name=...  each address gives a RoCE v1 and a v2 row behind
 *                     the link-local ones (wire0=10.77.0.HOST;wire1=10.77.1.HOST)
 * VERBS_WIRE_MOVE     "ring": as if process_vm_writev were refused
 * VERBS_WIRE_GPU      how GPU memory may be registered: dmabuf (default), peermem (by ibv_reg_mr,
 * as with the nvidia-peermem module), none VERBS_WIRE_STATS    1: each device prints at close what
 * it moved and how
 */
#ifndef GYRE_TESTS_WIRE_H
#define GYRE_TESTS_WIRE_H

#include "core/base/sync.h"
#include "tests/nic/verbs_model.h"

#include <pthread.h>
#include <sys/types.h>

#define WIRE_MAX_PROCESSES   128
#define WIRE_MAX_QUEUE_PAIRS 1024
#define WIRE_MAX_REGIONS     2048
#define WIRE_MAX_QUEUES      512
#define WIRE_MESSAGES        2048 /* of a ring; more than gyre posts receives */
#define WIRE_RING_BYTES      131072
#define WIRE_PIECE_BYTES     32768
#define WIRE_SMALL_BYTES     512
#define WIRE_MAX_WR          4096
#define WIRE_IPC_BYTES       64

/* ---- the file ------------------------------------------------------------------------------- */

/* An owner is a process: start time and pid, so that a number used again is another owner. */
typedef uint64_t wire_owner;

/* The place of GPU memory, as other processes find it. */
struct wire_gpu_place {
    unsigned char ipc[WIRE_IPC_BYTES]; /* cuIpcMemHandle of the allocation */
    uint64_t allocation;               /* its address in the owner's process */
    uint64_t allocation_bytes;
};

struct wire_region_entry {
    uint64_t owner;
    uint32_t generation;
    uint32_t key; /* 0 = not valid; written last */
    uint32_t pd;
    uint32_t is_gpu;
    struct vm_range range;
    struct wire_gpu_place gpu;
};

struct wire_queue_entry {
    uint64_t owner;
    uint32_t
        is_armed; /* changed by atomic exchange; the process that takes the 1 sends the event */
    uint32_t channel;
};

struct wire_message {
    uint64_t address; /* in the receiver's process */
    uint32_t n_bytes; /* of payload in the ring */
    uint32_t total_bytes;
    uint32_t imm;
    uint32_t has_imm;
};

struct wire_pair_entry {
    uint64_t owner;
    uint32_t generation;
    uint32_t number; /* 0 = not valid; written last */
    uint32_t state;  /* enum ibv_qp_state; by the owner */
    uint32_t busy;   /* by the peer: its pid while it may write to memory of the owner, else 0 */
    uint32_t pd;
    uint32_t recv_queue;
    uint32_t access;
    uint32_t dest_number;
    uint32_t rq_psn;
    uint32_t path_mtu;
    uint32_t max_msg_bytes;
    uint32_t pad;
    union ibv_gid local_gid;
    union ibv_gid dest_gid;
    uint64_t n_receives; /* posted so far; by the owner */
    uint64_t n_taken;    /* messages; by the owner */
    uint64_t bytes_taken;
    uint64_t n_messages; /* by the peer, after the message */
    uint64_t n_imms;     /* by the peer: receives spent */
    uint64_t bytes_put;  /* by the peer */
    struct wire_message messages[WIRE_MESSAGES];
    unsigned char ring[WIRE_RING_BYTES];
};

struct wire_file {
    uint64_t magic;
    uint64_t processes[WIRE_MAX_PROCESSES];
    uint32_t next_pair, next_region, next_queue; /* where the search for a free entry begins */
    struct wire_queue_entry queues[WIRE_MAX_QUEUES];
    struct wire_region_entry regions[WIRE_MAX_REGIONS];
    struct wire_pair_entry pairs[WIRE_MAX_QUEUE_PAIRS];
};

/* Keys and numbers: index in the low bits, generation above, never 0. */
#define WIRE_INDEX_BITS 12
#define WIRE_INDEX_MASK ((1u << WIRE_INDEX_BITS) - 1)
#define WIRE_LOCAL_KEY  0x80000000u /* the bit that tells lkeys from rkeys */

/* Store, then look at what the other side stored: both ends of these pairs need one order. */
static inline uint32_t wire_exchange(uint32_t *word, uint32_t value)
{
    return __atomic_exchange_n(word, value, __ATOMIC_SEQ_CST);
}

static inline uint32_t wire_load(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

/* ---- objects of this process ---------------------------------------------------------------- */

struct wire_stats {
    uint64_t n_writes, n_imms, n_bytes;
    uint64_t n_direct, n_ring, n_gpu; /* requests by the way their payload went */
};

struct wire_device {
    struct ibv_device ibv;
    struct vm_device model;
    struct wire_stats stats;
    bool is_used; /* a queue pair was made */
};

struct wire_context {
    struct ibv_context ibv;
    struct wire_device *device;
};

struct wire_mapping;

struct wire_pd {
    struct ibv_pd ibv;
    uint32_t number;
    int gpu;                       /* of its first GPU region; -1 = none */
    struct wire_mapping *mappings; /* of peers' GPU memory */
};

struct wire_region {
    struct ibv_mr ibv;
    struct wire_region_entry *entry;
};

struct wire_completion {
    struct ibv_wc wc;
    struct wire_pair *pair;
    uint64_t retires; /* sends of the pair up to here; 0 = a receive */
};

struct wire_queue {
    struct ibv_cq ibv;
    struct wire_queue_entry *entry;
    struct wire_completion *completions;
    uint64_t head, tail;
    struct wire_pair *pairs; /* that receive into this queue */
};

struct wire_channel {
    struct ibv_comp_channel ibv;
    uint32_t number;
};

enum wire_verdict {
    WIRE_SENT,
    WIRE_NO_PEER,    /* no answer: as if packets got lost */
    WIRE_NO_RECEIVE, /* receiver not ready */
    WIRE_NO_ROOM,    /* in the ring */
    WIRE_FAILED
};

/* A send that waits; copied as a NIC's queue entry is: inline data now, the rest when it is
 * sent. */
struct wire_waiting {
    struct ibv_send_wr wr;
    struct ibv_sge sges[4];
    unsigned char inlined[VM_INLINE_BYTES];
    uint64_t position;
    struct wire_waiting *next;
};

struct wire_pair {
    struct ibv_qp ibv;
    struct wire_pair_entry *entry;
    struct wire_pd *pd;
    struct wire_context *context;
    uint8_t port;
    uint32_t sq_psn;
    uint64_t retry_window_ns; /* 0 = for ever */
    uint64_t rnr_window_ns;   /* likewise */
    uint32_t max_send, max_recv;
    uint64_t n_sent, n_retired;
    uint64_t *recv_ids;
    uint64_t recv_head, recv_tail;
    uint64_t n_moved; /* bytes of the first waiting send that are in the ring */
    enum wire_verdict stalled_by;
    uint64_t stalled_since_ns; /* 0 = not */
    uint64_t peer_alive_at_ns; /* when that was last looked at */
    struct wire_waiting *waiting, **waiting_end;
    struct wire_pair *next_of_queue;
    struct wire_pair *next; /* of all */
};

struct wire {
    struct wire_file *file;
    wire_owner owner;
    char job[64];
    bool is_direct; /* process_vm_writev is allowed, as far as known */
    int event_fd;   /* sends events of channels */
    uint32_t n_pds, n_channels;
    struct wire_pair *pairs;
    struct wire_queue *queues[WIRE_MAX_QUEUES]; /* this process's, by index in the file */
    int n_stalled;                              /* pairs with waiting sends */
};

extern struct wire wire;          /* one per process, as a NIC's driver is; under wire_lock */
extern pthread_mutex_t wire_lock; /* everything above */
extern pthread_cond_t wire_work;  /* n_stalled or is_direct changed */

/* ---- wire_file.c ---------------------------------------------------------------------------- */

/** wire_attach - map the job's file, once per process. False with errno, and says why. */
bool wire_attach(void);

/** wire_claim - take a free entry, or one whose owner died. @next: where to begin.
 * @stride: bytes of an entry, whose first word is its owner. Returns the index; -1 = all taken. */
int wire_claim(void *entries, size_t stride, uint32_t n, uint32_t *next);

/** wire_is_alive - false also for a process that was killed and not yet waited for. */
bool wire_is_alive(wire_owner owner);
bool wire_is_running(pid_t pid);
static inline pid_t wire_pid_of(wire_owner owner)
{
    return (pid_t)(owner & 0x3fffff);
}

uint64_t wire_now_ns(void);

/** wire_say - a line on stderr, with the process. */
__attribute__((format(printf, 1, 2))) void wire_say(const char *format, ...);

/* ---- wire_device.c -------------------------------------------------------------------------- */

/** wire_print_stats - if VERBS_WIRE_STATS asks for it. */
void wire_print_stats(void);

/* ---- wire_queue.c --------------------------------------------------------------------------- */

/** wire_complete - add a completion; an overrun ends the process, since gyre's queues cannot. */
void wire_complete(struct wire_pair *pair, bool is_recv, const struct wire_completion *completion);

int wire_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wcs);
int wire_req_notify_cq(struct ibv_cq *cq, int solicited);

/** wire_notify - send the event if the queue is armed. */
void wire_notify(struct wire_queue_entry *entry);

/* ---- wire_pair.c ---------------------------------------------------------------------------- */

int wire_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int wire_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/** wire_take - store payloads from the pair's ring, and complete at most n receives. */
int wire_take(struct wire_pair *pair, int n, struct ibv_wc *wcs);

/** wire_fail - complete a send with an error and flush the pair. */
void wire_fail(struct wire_pair *pair, const struct ibv_send_wr *wr, uint64_t position,
               enum ibv_wc_status status);

/** wire_flush - to ERR: what is posted completes with WR_FLUSH_ERR; the peer has left its memory
 * when this returns. */
void wire_flush(struct wire_pair *pair);

/* ---- wire_move.c ---------------------------------------------------------------------------- */

/** wire_send - execute a request or keep it waiting. */
void wire_send(struct wire_pair *pair, const struct ibv_send_wr *wr, uint64_t position);

/** wire_drop_waiting - forget what waits, handing each to `each` (may be NULL) first. */
void wire_drop_waiting(struct wire_pair *pair,
                       void (*each)(struct wire_pair *pair, const struct wire_waiting *waiting));

/** wire_go_on - try what waits again; gives up after the pair's times. */
void wire_go_on(struct wire_pair *pair);

/** wire_peer_entry - the entry that a pair's destination number names, if it is that still. */
struct wire_pair_entry *wire_peer_entry(const struct wire_pair *pair);

/** wire_peer_region - a valid region of the peer's protection domain by its key. */
struct wire_region_entry *wire_peer_region(const struct wire_pair_entry *peer, uint32_t key);

/** wire_wait_left - until no peer writes to memory of this pair. */
void wire_wait_left(struct wire_pair_entry *entry);

/* ---- wire_gpu.c ----------------------------------------------------------------------------- */

/** wire_gpu_takes - does VERBS_WIRE_GPU allow this way? */
bool wire_gpu_takes(const char *way);

/** wire_gpu_describe - where this GPU memory is. @ordinal_out: of its device.
 * False with errno, and says why: no libcuda, not GPU memory, no IPC handle. */
bool wire_gpu_describe(uint64_t address, uint64_t n_bytes, struct wire_gpu_place *place_out,
                       int *ordinal_out);

/** wire_gpu_is_dmabuf - is this descriptor a dma-buf of at least n bytes? False with errno. */
bool wire_gpu_is_dmabuf(int fd, uint64_t n_bytes);

/** wire_gpu_map - map a peer's allocation into this process for copies from the domain's device;
 * slow, so done when queue pairs are connected, not while kernels wait for data. */
bool wire_gpu_map(struct wire_pd *pd, const struct wire_region_entry *region);
void wire_gpu_unmap_all(struct wire_pd *pd);

struct wire_gpu_copy {
    uint64_t to; /* address in the peer's process */
    const struct wire_region_entry *to_region;
    const void *from; /* local, GPU or host */
    uint64_t n_bytes;
};

/** wire_gpu_move - copy and wait until it is done, on a stream of the device. */
bool wire_gpu_move(struct wire_pd *pd, const struct wire_gpu_copy *copy);

#endif
