/* SPDX-License-Identifier: Apache-2.0
 *
 * The communicator: one struct with all of its parts, the records of its calls, and which thread
 * may use it. core/engine/health, core/engine/call and core/engine/comm include this header.
 */
#ifndef GYRE_ENGINE_COMM_H
#define GYRE_ENGINE_COMM_H

#include "core/engine/links/links.h"
#include "core/engine/plan/plan_cache.h"

#include <pthread.h>

/* ---- records of calls (record.c) ----------------------------------------------------------- */

/* The record of one call. A rank posts a record of every call in its own call log and waits for no
 * other rank. Call logs are compared only when a wait stalls or when GYRE_CHECK=calls asks for it.
 * Ranks send records to each other, so the layout is fixed. */
struct gyre_record {
    uint64_t sequence; /* collectives: n-th of the communicator; point to point: n-th of this pair
                        * and direction; from 1, 0 = no call */
    uint64_t count;
    uint8_t coll; /* enum gyre_collective; SEND_RECV for both directions */
    uint8_t dtype;
    uint8_t op; /* 0 where nothing is reduced; GYRE_FIRST_USER_OP for every user operation */
    uint8_t is_send;
    int32_t root;           /* or the peer; -1 where the collective has none */
    uint64_t window_offset; /* of recv, where data may be placed */
    uint32_t window;        /* in which; 0 = none */
    uint32_t terms;         /* hash of the call's own terms; 0 = it has none */
};

_Static_assert(sizeof(struct gyre_record) == 40, "exchanged between ranks");

/** "all_reduce(1048576 B, 262144 x float sum, seq 41)". @text_out: >= 128 bytes. */
const char *gyre_record_text(const struct gyre_record *record, char *text_out, size_t text_bytes);

/** Equal for calls that fit each other; travels with every slot. @rank: the caller's, for point to
 * point. */
uint32_t gyre_record_signature(const struct gyre_record *record, int rank);

/** Are these two ranks' records of calls that must fit each other (the same collective call number,
 * or the two ends of the same message)? */
bool gyre_record_same_place(const struct gyre_record *a, int rank_a, const struct gyre_record *b,
                            int rank_b);

/** Given gyre_record_same_place: do they agree? */
bool gyre_record_fits(const struct gyre_record *a, const struct gyre_record *b);

#define GYRE_CALL_LOG_RECORDS 256
#define GYRE_CALL_LOG_WORKS   4096

/* The latest calls of one rank. Posted by the caller's thread, read by the health thread. */
struct gyre_call_log {
    pthread_mutex_t lock;
    uint64_t n_posted; /* record i (from 0) stands in records[i % GYRE_CALL_LOG_RECORDS] */
    uint64_t n_collectives;
    struct gyre_record records[GYRE_CALL_LOG_RECORDS];
    uint64_t record_of_work[GYRE_CALL_LOG_WORKS]; /* one writer: the caller; release */
};

void gyre_call_log_init(struct gyre_call_log *call_log);
void gyre_call_log_fini(struct gyre_call_log *call_log);

/** Add a record; its index in the call log. A collective gets its number, record->sequence. */
uint64_t gyre_call_log_post(struct gyre_call_log *call_log, struct gyre_record *record);

/** Work number `work`, as the executor counts them, carries out record `record`. Before the launch.
 */
void gyre_call_log_launched(struct gyre_call_log *call_log, uint64_t work, uint64_t record);

/** The record that a work carries out, which must be one of the latest GYRE_CALL_LOG_WORKS. Any
 * thread. */
uint64_t gyre_call_log_record_of(const struct gyre_call_log *call_log, uint64_t work);

/** Record `index`; false if it was not posted yet or was overwritten. */
bool gyre_call_log_get(struct gyre_call_log *call_log, uint64_t index,
                       struct gyre_record *record_out);

/** This rank's record that must fit the other rank's; false if there is none (yet, or any more). */
bool gyre_call_log_find(struct gyre_call_log *call_log, int rank, const struct gyre_record *other,
                        int other_rank, struct gyre_record *record_out);

/* ---- the communicator ---------------------------------------------------------------------- */

struct gyre_health;
struct gyre_metrics;
struct gyre_observing;
struct gyre_origin;
struct gyre_put_links;
struct gyre_share_handle;

#define GYRE_MAX_USER_OPS 64

/* A sum with a scalar, made by gyre_op_create_premul_sum. */
struct gyre_user_op {
    bool is_used;
    gyre_dtype dtype;
    uint64_t scalar;
};

struct gyre_registered;

/* NCCL's ABI needs a handle for a registered buffer, the same one for the same range, and a refusal
 * of other handles; no plan reads the ranges. Any thread may register. */
struct gyre_registrations {
    pthread_mutex_t lock; /* guards the fields below */
    struct gyre_registered *first;
    uint64_t last_handle; /* handles count up from 1 and are never used again */
};

/* Counters of signals (kernels/executor.h), made and shared with the first window. All zero until
 * then. */
struct gyre_signals {
    uint64_t **counters;                 /* by rank, as addresses of this rank; NULL = not mapped */
    struct gyre_share_mapping *mappings; /* by rank; own rank: all zero */
    bool is_exported;                    /* other processes map this rank's counters */
};

/* Put links. All zero until the first window, and where no proxy serves any pair of ranks. */
struct gyre_put_peers {
    struct gyre_put_transports transports;
    struct gyre_put_links *links; /* NULL = not open */
    struct gyre_remote_puts remote;
    pthread_mutex_t lock; /* guards the windows against the thread that takes messages */
    struct gyre_window_entry *newest; /* made on all ranks, not in the list yet */
    bool is_detached;                 /* under lock: the executor may be closed */
    uint32_t *n_fences;               /* by rank: fences that have come; by the proxy's thread */
    uint32_t n_sent;                  /* fences that were sent to each rank */
    uint64_t *blocked;                /* by rank: n_ended of its BLOCKED; by the proxy's thread */
    uint64_t *told_blocked;           /* by rank: n_ended of the BLOCKED sent to it */
};

/* Background work. Calls are refused while there is any. */
enum gyre_phase {
    GYRE_PHASE_READY,
    GYRE_PHASE_INIT,       /* its ranks join the rendezvous; only fault, device and config exist */
    GYRE_PHASE_REGROUPING, /* its ranks gather for a split, shrink or growth */
    GYRE_PHASE_LEAVING     /* finalize waits for its work */
};

struct gyre_comm {
    struct gyre_member member;
    struct gyre_links links;
    struct gyre_tuning tuning;
    struct gyre_algo_file algo_file;
    struct gyre_executor *executor;
    struct gyre_plan_cache plans;
    struct gyre_windows windows;
    struct gyre_signals signals;
    struct gyre_put_peers puts;
    struct gyre_call_log call_log;
    struct gyre_trace_buffer *recorded; /* gets launches; NULL = they are not recorded */
    struct gyre_metrics *metrics;       /* NULL = GYRE_METRICS_FILE is unset */
    struct gyre_observing *observing;   /* NULL = no observer */
    uint64_t *n_p2p;                    /* by peer * 2 + is_send: messages so far */
    uint32_t *latest;                   /* likewise: zeros; room for gyre_order_messages() */
    uint64_t stream; /* host: address of the stream of this rank's latest launch, 0 = none.
                      * Set under the registry's lock; the calling thread reads it without */
    uint64_t
        stream_works;  /* n_launched after that launch; one writer: the calling thread; release */
    bool has_captured; /* of a graph; by the calling thread */
    struct gyre_health *health;
    void (*pass_on)(struct gyre_health *health); /* gyre_health_pass_on(), which lies above */
    struct gyre_origin *origin; /* of a communicator from a split or a shrink; else NULL */
    struct gyre_user_op user_ops[GYRE_MAX_USER_OPS];
    struct gyre_registrations registrations;
    uint32_t phase;         /* enum gyre_phase; written under the registry's lock, release */
    bool is_made;           /* rank, links, health and all other members are set */
    uint32_t is_finalized;  /* 1: no more calls; by the thread that finalizes, release */
    struct gyre_comm *next; /* in the registry */
    bool is_destroyed;      /* a thread is in gyre_comm_destroy(); under the registry's lock */
    bool is_ending;         /* destroyed by the user, not freed yet; under the registry's lock */
    uint32_t n_pins;        /* threads that look at it; under the registry's lock */
    uint32_t in_call; /* 1: a thread makes a call. Set under the registry's lock, cleared by that
                       * thread, release */
};

/* ---- which thread may use it (registry.c) -------------------------------------------------- */

/** Hold a live handle that may take calls for this thread, until gyre_comm_end_call(). If another
 * thread is in a call, this one is refused and the communicator ends on all ranks, which would not
 * all have the same order of calls. Errors: INVALID_ARGUMENT (NULL), INVALID_USAGE (destroyed,
 * finalized, still being made, another thread's), or what the communicator failed with. */
gyre_status gyre_comm_begin_call(gyre_comm *comm);

/** Likewise, also of a communicator that is busy with a split: for calls that were taken before it
 * began. */
gyre_status gyre_comm_begin_launch(gyre_comm *comm);
void gyre_comm_end_call(gyre_comm *comm);

/** Likewise, in any state. */
gyre_status gyre_comm_enter(gyre_comm *comm);

/* Return the status of `work`, which is done while this thread holds the communicator. */
#define GYRE_RETURN_IN_CALL(comm, work)             \
    do {                                            \
        GYRE_TRY(gyre_comm_begin_call(comm));       \
        const gyre_status status_of_work_ = (work); \
        gyre_comm_end_call(comm);                   \
        return status_of_work_;                     \
    } while (0)

/** May it take calls? It is held or pinned. Errors: INVALID_USAGE (finalized, still being made), or
 * its fault. */
gyre_status gyre_comm_check(gyre_comm *comm);

/** Pin it to ask about its ranks and devices. Any thread at any time, also of failed and finalized
 * ones. Errors: INVALID_ARGUMENT, INVALID_USAGE, or why it was never made. */
gyre_status gyre_comm_pin_made(gyre_comm *comm);

/** End it on all ranks with `status` and the thread's cause, because the other ranks wait for this
 * one in an all-gather. Returns the fault's status. */
gyre_status gyre_comm_give_up(gyre_comm *comm, gyre_status status);

/** gyre_registry_check(), and its memory stays until gyre_comm_unpin(). */
gyre_status gyre_comm_pin(gyre_comm *comm);
void gyre_comm_unpin(gyre_comm *comm);

/** Errors: INVALID_ARGUMENT (NULL), INVALID_USAGE (destroyed, or of the process that this one was
 * forked from). */
gyre_status gyre_registry_check(const gyre_comm *comm);

void gyre_registry_add(gyre_comm *comm, enum gyre_phase phase);
void gyre_registry_remove(gyre_comm *comm);

/** Wait until no other thread has pinned the communicator. */
void gyre_registry_wait_unpinned(gyre_comm *comm);

/** Let one thread destroy it; no thread may begin a call any more. Errors: as
 * gyre_registry_check(), INVALID_USAGE (another thread does). */
gyre_status gyre_registry_claim_end(gyre_comm *comm);

/** It can no longer be pinned. */
void gyre_registry_end(gyre_comm *comm);

/** Wait until all ranks of a job in this process are freed, if none is in use any more. One thread
 * may destroy them one after the other. */
void gyre_registry_wait_job(uint64_t job);

/** gyre_registry_set / wait - a flag that is set once. */
void gyre_registry_set(bool *flag);
void gyre_registry_wait(const bool *flag);

/** A communicator was made with this number, or 0. Returns the greatest number of those of this
 * process. */
uint64_t gyre_registry_raise_number(uint64_t number);

/** Host device: this rank's next launch goes to another stream than its latest. Returns another
 * rank of the communicator in this process with an unfinished launch there, and then changes
 * nothing; -1: there is none. */
int gyre_registry_take_stream(gyre_comm *comm, gyre_stream stream);

void gyre_comm_set_phase(gyre_comm *comm, enum gyre_phase phase);
enum gyre_phase gyre_comm_phase(const gyre_comm *comm);

/** The phase becomes READY, unless the communicator has failed (false). */
bool gyre_registry_set_ready(gyre_comm *comm);

/** If not, gyre_registry_set_ready() has returned. */
bool gyre_registry_is_init_running(const gyre_comm *comm);

/** Wait until the phase is READY. */
void gyre_comm_wait_ready(gyre_comm *comm);

/** Under the lock, because other threads may be counting. */
void gyre_comm_set_job(gyre_comm *comm, uint64_t job);

#endif
