/* SPDX-License-Identifier: Apache-2.0
 *
 * The file in /dev/shm that the programs of a job ("clients") and its NIC processes share. A client
 * posts requests to the rings of its queue pairs; its host's NIC process executes them. Each word
 * has one writer, which its comment names:
 *
 *   owner   the client whose entry it is
 *   NIC     the NIC process of the owner's host
 *   peer    the NIC process of the host of the connected queue pair
 *
 * The owner claims an entry by a compare-exchange and gives it back by zero, so a killed process
 * leaves no lock behind, only entries with a dead owner. Zeros are the initial state.
 */
#ifndef GYRE_TESTS_WIRE_PROTOCOL_H
#define GYRE_TESTS_WIRE_PROTOCOL_H

#include "core/foundation/base/sync.h"
#include "tests/nic/verbs_model.h"

#define WIRE_MAX_PROCESSES   128
#define WIRE_MAX_HOSTS       16
#define WIRE_MAX_QUEUE_PAIRS 1024
#define WIRE_MAX_REGIONS     2048
#define WIRE_MAX_QUEUES      512
#define WIRE_MESSAGES        2048 /* arrivals that the owner did not take yet */
#define WIRE_RING_BYTES      131072
#define WIRE_PIECE_BYTES     32768
#define WIRE_MAX_WR          4096
#define WIRE_MAX_SGE         4
#define WIRE_IPC_BYTES       64
#define WIRE_UUID_BYTES      16
#define WIRE_LINES           8
#define WIRE_LINE_BYTES      240
#define WIRE_PAGE_BYTES      4096

/* Start time and pid, so that a number that is used again is another owner. */
typedef uint64_t wire_owner;

struct wire_stats {
    uint64_t n_writes, n_imms, n_bytes;
    uint64_t n_direct, n_ring, n_gpu; /* requests by way of payload */
};

struct wire_process_entry {
    uint64_t owner;
    uint32_t is_closed; /* 1: NICs may not read or write its memory; by any NIC, or the owner */
    uint32_t nic;       /* index in `nics`; by the owner */
    struct wire_stats stats[VM_MAX_DEVICES]; /* by the NIC */
};

enum wire_fault_kind {
    WIRE_DOWN = 1,
    WIRE_LOSE_OUT = 2,
    WIRE_LOSE_IN = 4,
    WIRE_LOSE_ANSWERS = 8,
    WIRE_ONLY_ANSWER = 16,
    WIRE_NO_FLUSHES = 32,
    WIRE_UNFENCED = 64,
    WIRE_HOLD = 128
};

/* At a port; 0 = none. */
struct wire_faults {
    uint32_t kinds; /* enum wire_fault_kind */
    uint32_t late_ms;
    uint32_t mbit_per_s;
    uint32_t gid_rows; /* by which the addresses have moved */
    uint32_t rtr_ms, destroy_ms;
};

/* `bits` announces queue pairs with requests; a sleeping NIC is woken. */
struct wire_nic_entry {
    uint64_t owner;         /* 0: none, or it has ended */
    char host[64];          /* by the client that starts it, under the lock of the file */
    uint32_t is_asleep;     /* a futex; the NIC sets it, whoever wakes the NIC clears it */
    uint32_t n_lines;       /* of `lines`, so far; by the NIC */
    uint64_t n_waits;       /* for copies of GPU memory, so far; by the NIC */
    uint32_t n_fault_texts; /* read so far, a futex; by the NIC, after `faults` */
    struct wire_faults faults[VM_MAX_DEVICES]; /* by the NIC */
    uint64_t bits[WIRE_MAX_QUEUE_PAIRS / 64];
    char lines[WIRE_LINES][WIRE_LINE_BYTES]; /* what the NIC has to say; clients print it */
};

/* Where GPU memory is. */
struct wire_gpu_place {
    unsigned char ipc[WIRE_IPC_BYTES];   /* cuIpcMemHandle of the allocation */
    unsigned char uuid[WIRE_UUID_BYTES]; /* of the GPU: ordinals differ between processes */
    uint64_t allocation;                 /* its address in the owner's process */
    uint64_t allocation_bytes;
};

/* By the owner. */
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
    uint32_t is_armed; /* by atomic exchange; the process that takes the 1 sends the event */
    uint32_t channel;
};

struct wire_sge {
    uint64_t address; /* in the owner's process */
    uint32_t n_bytes;
    uint32_t lkey;
};

/* Copies are CUDA's, at either end. */
enum wire_way { WIRE_DIRECT, WIRE_BY_RING, WIRE_BY_COPY };

/* By the owner, but for status and way. */
struct wire_request {
    uint64_t wr_id;
    uint64_t remote_address;
    uint32_t rkey;
    uint32_t imm;
    uint32_t opcode; /* enum ibv_wr_opcode */
    uint32_t flags;  /* IBV_SEND_* */
    uint32_t n_sges;
    uint32_t status; /* enum ibv_wc_status; by the NIC, before n_done */
    uint32_t way;    /* enum wire_way; by the NIC, while it executes the request */
    uint64_t n_bytes;
    struct wire_sge sges[WIRE_MAX_SGE];
    unsigned char inlined[VM_INLINE_BYTES]; /* payload of IBV_SEND_INLINE */
};

/* A posted receive. By the owner. */
struct wire_receive {
    uint64_t wr_id;
    uint64_t n_sges;
    struct wire_sge sges[WIRE_MAX_SGE];
};

enum wire_arrival { WIRE_PAYLOAD, WIRE_WRITE_IMM, WIRE_SEND_PLAIN, WIRE_SEND_IMM };

/* Something that arrived. By the peer. */
struct wire_message {
    uint64_t address;     /* in the owner's process: where its payload in the ring belongs */
    uint32_t n_bytes;     /* of payload in the ring */
    uint32_t total_bytes; /* of the request */
    uint32_t imm;
    uint32_t kind; /* enum wire_arrival; all but WIRE_PAYLOAD complete a receive */
};

struct wire_pair_entry {
    uint64_t owner;
    uint32_t generation;
    uint32_t number;       /* 0 = not valid; by the owner, last */
    uint32_t state;        /* enum ibv_qp_state; by the owner, and by the NIC from RTS to ERR */
    uint32_t is_executing; /* by the NIC: its pid while it executes requests of this pair */
    uint32_t is_entered;   /* by the peer: its pid while it may write to memory of the owner */
    uint32_t peer_waits; /* the peer sets it when it lacks a receive or room; the owner takes it */
    /* By the owner, before the state that needs them. */
    uint32_t process, pd, device;
    uint32_t send_queue, recv_queue;
    uint32_t max_send, max_recv;
    uint32_t access, path_mtu, max_msg_bytes;
    uint32_t dest_number, rq_psn, sq_psn, traffic_class;
    uint32_t ps_per_byte; /* of its port; 0 = no limit */
    uint32_t latency_ns;
    uint64_t retry_window_ns; /* 0 = for ever */
    uint64_t rnr_window_ns;   /* likewise */
    union ibv_gid local_gid, dest_gid;
    /* Counts from the step to RESET on. */
    uint64_t n_posted;      /* requests; by the owner */
    uint64_t n_started;     /* requests whose payload the NIC has read; by the NIC */
    uint64_t n_done;        /* requests that are complete; by the NIC */
    uint64_t bytes_staged;  /* payload in `staged`; by the owner */
    uint64_t bytes_fetched; /* payload taken from `staged`; by the NIC */
    uint64_t n_receives;    /* posted; by the owner */
    uint64_t n_spent;       /* receives; by the peer */
    uint64_t n_messages;    /* by the peer, after the message */
    uint64_t n_taken;       /* messages; by the owner */
    uint64_t bytes_put;     /* into `ring`; by the peer */
    uint64_t bytes_taken;   /* out of `ring`; by the owner */
    /* For processes that are closed to the NIC. */
    _Alignas(WIRE_PAGE_BYTES) struct wire_request requests[WIRE_MAX_WR]; /* modulo max_send */
    struct wire_receive receives[WIRE_MAX_WR];                           /* modulo max_recv */
    struct wire_message messages[WIRE_MESSAGES];
    unsigned char ring[WIRE_RING_BYTES];
    unsigned char staged[WIRE_RING_BYTES];
};

struct wire_file {
    uint64_t magic;
    struct wire_process_entry processes[WIRE_MAX_PROCESSES];
    struct wire_nic_entry nics[WIRE_MAX_HOSTS];
    uint32_t next_pair, next_region, next_queue; /* to search for a free entry */
    uint32_t n_unregistered;                     /* GPU regions so far; NICs close mappings then */
    struct wire_queue_entry queues[WIRE_MAX_QUEUES];
    struct wire_region_entry regions[WIRE_MAX_REGIONS];
    struct wire_pair_entry pairs[WIRE_MAX_QUEUE_PAIRS];
};

/* Keys and numbers: index in the low bits, generation above, never 0. */
#define WIRE_INDEX_BITS 12
#define WIRE_INDEX_MASK ((1u << WIRE_INDEX_BITS) - 1)
#define WIRE_LOCAL_KEY  0x80000000u /* the bit that tells lkeys from rkeys */

/* Store, then look at what the other side stored: both need one order. */
static inline uint32_t wire_exchange(uint32_t *word, uint32_t value)
{
    return __atomic_exchange_n(word, value, __ATOMIC_SEQ_CST);
}

static inline uint32_t wire_load(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

#endif
