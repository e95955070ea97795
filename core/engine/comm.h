/* SPDX-License-Identifier: Apache-2.0
 *
 * The communicator with all of its parts, the records of its calls, and which thread may use it.
 */
#ifndef GYRE_ENGINE_COMM_H
#define GYRE_ENGINE_COMM_H

#include "core/engine/links/links.h"
#include "core/engine/plan/plan_cache.h"

#include <pthread.h>

/* ---- records of calls (record.c) ----------------------------------------------------------- */

/* Each rank posts every call in its own call log. Call logs are compared only when a wait stalls or
 * GYRE_CHECK=calls asks for it. Ranks send records: fixed layout. */
struct gyre_record {
    uint64_t sequence; /* from 1, of the communicator's collectives, or of a pair's messages in this
                        * direction; 0 = no call */
    uint64_t count;
    uint8_t coll; /* enum gyre_collective; SEND_RECV for both directions */
    uint8_t dtype;
    uint8_t op; /* 0 without a reduction; GYRE_FIRST_USER_OP for every user operation */
    uint8_t is_send;
    int32_t root; /* or the peer; -1 without one */
    uint64_t window_offset;
    uint32_t window;  /* that holds recv; 0 = none */
    uint32_t options; /* hash; 0 = none */
};

_Static_assert(sizeof(struct gyre_record) == 40, "ranks send it to each other");

/** @text_out: >= 128 bytes. */
const char *gyre_record_text(const struct gyre_record *record, char *text_out, size_t text_bytes);

/** Equal for calls that fit each other; travels with every slot. @rank: the caller's. */
uint32_t gyre_record_signature(const struct gyre_record *record, int rank);

/** One collective call, or both ends of a message? */
bool gyre_record_same_place(const struct gyre_record *a, int rank_a, const struct gyre_record *b,
                            int rank_b);

/** After gyre_record_same_place(). */
bool gyre_record_fits(const struct gyre_record *a, const struct gyre_record *b);

#define GYRE_CALL_LOG_RECORDS 256
#define GYRE_CALL_LOG_WORKS   4096

/* Posted by the caller's thread, read by the health thread. */
struct gyre_call_log {
    pthread_mutex_t lock;
    uint64_t n_posted; /* record i stands in records[i % GYRE_CALL_LOG_RECORDS] */
    uint64_t n_collectives;
    struct gyre_record records[GYRE_CALL_LOG_RECORDS];
    uint64_t record_of_work[GYRE_CALL_LOG_WORKS]; /* one writer: the caller; release */
};

void gyre_call_log_init(struct gyre_call_log *call_log);
void gyre_call_log_fini(struct gyre_call_log *call_log);

/** Returns its index, and numbers a collective. */
uint64_t gyre_call_log_post(struct gyre_call_log *call_log, struct gyre_record *record);

/** Before the launch. @work: as the executor counts. */
void gyre_call_log_launched(struct gyre_call_log *call_log, uint64_t work, uint64_t record);

/** @work: of the latest GYRE_CALL_LOG_WORKS. Any thread. */
uint64_t gyre_call_log_record_of(const struct gyre_call_log *call_log, uint64_t work);

/** False if it is not posted yet or overwritten. */
bool gyre_call_log_get(struct gyre_call_log *call_log, uint64_t index,
                       struct gyre_record *record_out);

/** This rank's record that must fit @other, if it has one. */
bool gyre_call_log_find(struct gyre_call_log *call_log, int rank, const struct gyre_record *other,
                        int other_rank, struct gyre_record *record_out);

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

/* NCCL's ABI needs one handle for each registered range; no plan reads them. Any thread may
 * register. */
struct gyre_registrations {
    pthread_mutex_t lock; /* guards the fields below */
    struct gyre_registered *first;
    uint64_t last_handle; /* counts up from 1, never reused */
};

/* Made with the first window; zeros until then. */
struct gyre_signals {
    uint64_t **counters;                 /* by rank, at this rank's addresses; NULL = not mapped */
    struct gyre_share_mapping *mappings; /* by rank; own rank: all zero */
    bool is_exported;                    /* to other processes */
};

/* Zeros but for the lock until the first window, and where no proxy serves any pair. */
struct gyre_put_peers {
    struct gyre_put_transports transports;
    struct gyre_put_links *links;
    struct gyre_remote_puts remote;
    pthread_mutex_t lock; /* around changes of the windows: another thread takes messages */
    struct gyre_window_entry *newest; /* not in the list yet */
    bool is_detached;                 /* under lock: the executor may be closed */
    uint32_t *n_fences;               /* by rank: received; by the proxy's thread */
    uint32_t n_sent;                  /* to each rank */
    uint64_t *blocked;                /* by rank: n_ended of its BLOCKED; by the proxy's thread */
    uint64_t *told_blocked;           /* by rank: as sent to it */
};

/* Calls are refused during background work. */
enum gyre_phase {
    GYRE_PHASE_READY,
    GYRE_PHASE_INIT, /* only fault, device and config exist */
    GYRE_PHASE_REGROUPING,
    GYRE_PHASE_LEAVING
};

struct gyre_comm {
    struct gyre_rank self;
    struct gyre_links links;
    struct gyre_tuning tuning;
    struct gyre_algo_file algo_file;
    struct gyre_executor *executor;
    struct gyre_plan_cache plans;
    struct gyre_windows windows;
    struct gyre_signals signals;
    struct gyre_put_peers puts;
    struct gyre_call_log call_log;
    struct gyre_trace_buffer *recorded; /* NULL = launches are not recorded */
    struct gyre_metrics *metrics;       /* NULL = GYRE_METRICS_FILE is unset */
    struct gyre_observing *observing;
    uint32_t has_metrics;  /* 1: metrics is set, for other threads; by the thread that makes the
                            * communicator, release */
    uint32_t has_observer; /* likewise; by the calling thread */
    uint64_t *n_p2p;       /* by peer * 2 + is_send */
    uint32_t *latest;      /* likewise: zeros, for gyre_order_messages() */
    uint64_t stream;       /* host: address of the latest launch's stream, 0 = none. Set under the
                            * registry's lock; the calling thread reads it without */
    uint64_t
        stream_works;  /* n_launched after that launch; one writer: the calling thread; release */
    bool has_captured; /* of a graph; by the calling thread */
    struct gyre_health *health;
    void (*pass_on)(struct gyre_health *health); /* gyre_health_pass_on(), which lies above */
    struct gyre_origin *origin;                  /* NULL = neither split nor shrunk */
    struct gyre_user_op user_ops[GYRE_MAX_USER_OPS];
    struct gyre_registrations registrations;
    uint32_t phase;         /* enum gyre_phase; written under the registry's lock, release */
    bool is_made;           /* all members are set */
    uint32_t is_finalized;  /* 1: no more calls; by the thread that finalizes, release */
    struct gyre_comm *next; /* in the registry */
    bool is_destroyed;      /* under the registry's lock: a thread is in gyre_comm_destroy() */
    bool is_ending;         /* under the registry's lock: destroyed, not freed yet */
    uint32_t n_pins;        /* under the registry's lock: threads that look at it */
    uint32_t in_call; /* set under the registry's lock, cleared by the calling thread, release */
};

/* ---- which thread may use it (registry.c) -------------------------------------------------- */

/** Hold a live handle until gyre_comm_end_call(). If another thread is in a call, the communicator
 * ends on all ranks, because their calls' order could differ. Errors: INVALID_ARGUMENT (NULL),
 * INVALID_USAGE (destroyed, finalized, still being made, another thread's), or its fault. */
gyre_status gyre_comm_begin_call(gyre_comm *comm);

/** Likewise, also during a split: for earlier calls. */
gyre_status gyre_comm_begin_launch(gyre_comm *comm);
void gyre_comm_end_call(gyre_comm *comm);

/** Likewise, in any state. */
gyre_status gyre_comm_enter(gyre_comm *comm);

/** gyre_comm_begin_call() until the block ends. */
#define GYRE_IN_CALL(comm)                \
    GYRE_TRY(gyre_comm_begin_call(comm)); \
    __attribute__((unused, cleanup(gyre_comm_end_held))) gyre_comm *held_ = (comm)

static inline void gyre_comm_end_held(gyre_comm **comm)
{
    gyre_comm_end_call(*comm);
}

/** The communicator is held or pinned. Errors: INVALID_USAGE, or its fault. */
gyre_status gyre_comm_check(gyre_comm *comm);

/** For questions about its ranks and devices. Any thread, also after failure and finalize. Errors:
 * INVALID_ARGUMENT, INVALID_USAGE, or why it was never made. */
gyre_status gyre_comm_pin_made(gyre_comm *comm);

/** End it on all ranks with the thread's cause, because they wait in an all-gather. Returns the
 * fault's status. */
gyre_status gyre_comm_give_up(gyre_comm *comm, gyre_status status);

/** Its memory stays until gyre_comm_unpin(). Errors: as gyre_registry_check(). */
gyre_status gyre_comm_pin(gyre_comm *comm);
void gyre_comm_unpin(gyre_comm *comm);

/** gyre_comm_pin_made() until the block ends. */
#define GYRE_PINNED(comm)               \
    GYRE_TRY(gyre_comm_pin_made(comm)); \
    __attribute__((unused, cleanup(gyre_comm_unpin_held))) gyre_comm *pinned_ = (comm)

static inline void gyre_comm_unpin_held(gyre_comm **comm)
{
    gyre_comm_unpin(*comm);
}

/** Errors: INVALID_ARGUMENT (NULL), INVALID_USAGE (destroyed, or made before a fork). */
gyre_status gyre_registry_check(const gyre_comm *comm);

void gyre_registry_add(gyre_comm *comm, enum gyre_phase phase);
void gyre_registry_remove(gyre_comm *comm);

void gyre_registry_wait_unpinned(gyre_comm *comm);

/** From now on no call may begin. Errors: as gyre_registry_check(), INVALID_USAGE (another thread
 * destroys it). */
gyre_status gyre_registry_claim_end(gyre_comm *comm);

/** It can no longer be pinned. */
void gyre_registry_end(gyre_comm *comm);

/** Until the job's ranks in this process are freed, if none is in use: a second at most while
 * communicators of other jobs are, else until all jobs' are. One thread may destroy them one after
 * the other. */
void gyre_registry_wait_job(uint64_t job);

/** A flag that is set once. */
void gyre_registry_set(bool *flag);
void gyre_registry_wait(const bool *flag);

/** Returns the greatest of this process. @number: of a new communicator, or 0. */
uint64_t gyre_registry_raise_number(uint64_t number);

/** Host device, before a launch on another stream. Returns another rank in this process with an
 * unfinished launch there, and then changes nothing; -1 = none. */
int gyre_registry_take_stream(gyre_comm *comm, gyre_stream stream);

void gyre_comm_set_phase(gyre_comm *comm, enum gyre_phase phase);
enum gyre_phase gyre_comm_phase(const gyre_comm *comm);

/** False if the communicator has failed. */
bool gyre_registry_set_ready(gyre_comm *comm);

/** If not, gyre_registry_set_ready() has returned. */
bool gyre_registry_is_init_running(const gyre_comm *comm);

void gyre_comm_wait_ready(gyre_comm *comm);

/** Under the lock, because other threads may be counting. */
void gyre_comm_set_job(gyre_comm *comm, uint64_t job);

#endif
