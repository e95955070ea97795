/* SPDX-License-Identifier: Apache-2.0
 *
 * The communicator, as its own files see it.
 */
#ifndef GYRE_COMM_COMM_H
#define GYRE_COMM_COMM_H

#include "core/engine/call/caller.h"
#include "core/engine/health/health.h"
#include "core/engine/plan/tuning_file.h"

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
    struct gyre_plan_cache *plans;
    struct gyre_windows windows;
    struct gyre_signals signals;
    struct gyre_put_peers puts;
    struct gyre_caller caller;
    struct gyre_health *health;
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

/** gyre_comm_gather - gyre_comm_exchange() inside a call: this thread holds the communicator
 * (api.c). */
gyre_status gyre_comm_gather(gyre_comm *comm, const void *mine, size_t n_bytes, void *all_out);

/** gyre_comm_attach - make the communicator's device that of this thread, which gyre started.
 * @comm: or NULL. */
void gyre_comm_attach(const gyre_comm *comm);

/** gyre_comm_set_made - end the init, after success or failure: the phase becomes READY. */
void gyre_comm_set_made(gyre_comm *comm);

/** gyre_comm_drain - wait until all works and one-sided operations are done, or the communicator
 * has failed. Waits for signals that can no longer come end with an error. */
void gyre_comm_drain(gyre_comm *comm);

/** gyre_comm_begin_call - hold a live handle that may take calls for this thread, until
 * gyre_comm_end_call(). If another thread is in a call, this one is refused and the communicator
 * ends on all ranks, which would not all have the same order of calls. Errors: INVALID_ARGUMENT
 * (NULL), INVALID_USAGE (destroyed, finalized, still being made, another thread's), or what the
 * communicator failed with. */
gyre_status gyre_comm_begin_call(gyre_comm *comm);

/** gyre_comm_begin_launch - likewise, also of a communicator that is busy with a split: for calls
 * that were taken before it began. */
gyre_status gyre_comm_begin_launch(gyre_comm *comm);
void gyre_comm_end_call(gyre_comm *comm);

/** gyre_comm_enter - likewise, in any state. */
gyre_status gyre_comm_enter(gyre_comm *comm);

/* Return the status of `work`, which is done while this thread holds the communicator. */
#define GYRE_RETURN_IN_CALL(comm, work)             \
    do {                                            \
        GYRE_TRY(gyre_comm_begin_call(comm));       \
        const gyre_status status_of_work_ = (work); \
        gyre_comm_end_call(comm);                   \
        return status_of_work_;                     \
    } while (0)

/** gyre_comm_check - may it take calls? It is held or pinned. Errors: INVALID_USAGE (finalized,
 * still being made), or its fault. */
gyre_status gyre_comm_check(gyre_comm *comm);

/** gyre_comm_pin_made - pin it to ask about its ranks and devices. Any thread at any time, also of
 * failed and finalized ones. Errors: INVALID_ARGUMENT, INVALID_USAGE, or why it was never made. */
gyre_status gyre_comm_pin_made(gyre_comm *comm);

/** gyre_comm_give_up - end it on all ranks with `status` and the thread's cause, because the other
 * ranks wait for this one in an all-gather. Returns the fault's status. */
gyre_status gyre_comm_give_up(gyre_comm *comm, gyre_status status);

/* ---- registry.c: the live handles, and which thread may use them ----------------------------- */

/** gyre_comm_pin - gyre_registry_check(), and its memory stays until gyre_comm_unpin(). */
gyre_status gyre_comm_pin(gyre_comm *comm);
void gyre_comm_unpin(gyre_comm *comm);

/** gyre_registry_check - Errors: INVALID_ARGUMENT (NULL), INVALID_USAGE (destroyed, or of the
 * process that this one was forked from). */
gyre_status gyre_registry_check(const gyre_comm *comm);

void gyre_registry_add(gyre_comm *comm, enum gyre_phase phase);
void gyre_registry_remove(gyre_comm *comm);

/** gyre_registry_wait_unpinned - wait until no other thread has pinned the communicator. */
void gyre_registry_wait_unpinned(gyre_comm *comm);

/** gyre_registry_claim_end - let one thread destroy it; no thread may begin a call any more.
 * Errors: as gyre_registry_check(), INVALID_USAGE (another thread does). */
gyre_status gyre_registry_claim_end(gyre_comm *comm);

/** gyre_registry_end - it can no longer be pinned. */
void gyre_registry_end(gyre_comm *comm);

/** gyre_registry_wait_job - wait until all ranks of a job in this process are freed, if none is in
 * use any more. One thread may destroy them one after the other. */
void gyre_registry_wait_job(uint64_t job);

/** gyre_registry_set / wait - a flag that is set once. */
void gyre_registry_set(bool *flag);
void gyre_registry_wait(const bool *flag);

/** gyre_registry_raise_number - a communicator was made with this number, or 0. Returns the
 * greatest number of those of this process. */
uint64_t gyre_registry_raise_number(uint64_t number);

/** gyre_registry_take_stream - host device: this rank's next launch goes to another stream than its
 * latest. Returns another rank of the communicator in this process with an unfinished launch there,
 * and then changes nothing; -1: there is none. */
int gyre_registry_take_stream(gyre_comm *comm, gyre_stream stream);

void gyre_comm_set_phase(gyre_comm *comm, enum gyre_phase phase);
enum gyre_phase gyre_comm_phase(const gyre_comm *comm);

/** gyre_registry_set_ready - the phase becomes READY, unless the communicator has failed (false).
 */
bool gyre_registry_set_ready(gyre_comm *comm);

/** gyre_registry_is_init_running - if not, gyre_registry_set_ready() has returned. */
bool gyre_registry_is_init_running(const gyre_comm *comm);

/** gyre_comm_wait_ready - wait until the phase is READY. */
void gyre_comm_wait_ready(gyre_comm *comm);

/** gyre_comm_set_job - under the lock, because other threads may be counting. */
void gyre_comm_set_job(gyre_comm *comm, uint64_t job);

/* ---- make.c ------------------------------------------------------------------------------- */

/* How the ranks of a new communicator find each other. */
struct gyre_init_request {
    int n_ranks;
    int rank;
    gyre_unique_id id;
    /* finds the three members above; may wait for other ranks. NULL = they are set. @comm: NULL =
     * this rank takes part but gets none */
    gyre_status (*find)(struct gyre_init_request *request, gyre_comm *comm);
    gyre_comm *parent; /* used by find() only */
    bool has_id;       /* grow: this rank gives the rendezvous, `id` */
    int color;         /* split */
    int key;
    bool takes_failures; /* find() with comm NULL tells the other ranks of `failure` */
    gyre_status failure; /* this rank cannot take part, for `failure_text` */
    char failure_text[256];
    bool *is_member; /* shrink: by rank of the parent; freed by make and refuse */
    bool is_aborted; /* shrink: the parent was aborted */
};

/** gyre_comm_make - in the background if it does not block (IN_PROGRESS) or inside a group
 * (SUCCESS; the group's end waits and sets *comm_out).
 * @config: complete (gyre_config_take). @comm_out: NULL = only take part in request->find. */
gyre_status gyre_comm_make(const gyre_config *config, const struct gyre_init_request *request,
                           gyre_comm **comm_out);

/** gyre_comm_refuse - tell the other ranks of a split, shrink or growth, which wait in
 * request->find, that this rank cannot take part. Frees request->is_member.
 * @config: may that block? @request: with parent and takes_failures. @status: of the failure;
 * gyre_cause() has the text and keeps it. */
gyre_status gyre_comm_refuse(const gyre_config *config, const struct gyre_init_request *request,
                             gyre_status status);

/* ---- split.c ------------------------------------------------------------------------------ */

/** gyre_comm_child_config - the caller's configuration, or the parent's if @given is NULL; on the
 * parent's device unless it names another. Errors: as gyre_config_take(). */
gyre_status gyre_comm_child_config(const gyre_comm *parent, const gyre_config *given,
                                   gyre_config *config_out);

/** gyre_comm_open_origin - let the parent's links report what concerns the child. @parent_ranks: by
 * rank of the child. Errors: the parent's fault, OUT_OF_MEMORY. */
gyre_status gyre_comm_open_origin(const struct gyre_init_request *request, gyre_comm *child,
                                  enum gyre_origin_kind kind, const int *parent_ranks);

/** gyre_comm_blame_parent - the parent's fault, which says more than the error of an all-gather;
 * else `status`. Waits a moment for a fault that is under way. */
gyre_status gyre_comm_blame_parent(gyre_comm *parent, gyre_status status);

/* ---- parts.c ------------------------------------------------------------------------------ */

/** gyre_config_take - a struct of any version; NULL = all defaults. Errors: INVALID_ARGUMENT for
 * one that was not initialised. */
gyre_status gyre_config_take(const gyre_config *given, gyre_config *config_out);

/** gyre_comm_make_local - make what needs no other rank. @given: complete. */
gyre_status gyre_comm_make_local(const gyre_config *given, gyre_comm **comm_out);

/** gyre_comm_free - free what exists, without waiting, and leave the registry. */
void gyre_comm_free(gyre_comm *comm);

/** gyre_comm_connect - make what needs the other ranks, which have joined the rendezvous. A failure
 * becomes the communicator's fault, and the other ranks are told. */
gyre_status gyre_comm_connect(gyre_comm *comm);

/* ---- window.c: windows and registered buffers -------------------------------------------- */

/** gyre_windows_fini - the executor is idle or aborted. */
void gyre_windows_fini(gyre_comm *comm);

void gyre_registrations_init(struct gyre_registrations *registrations);
void gyre_registrations_fini(struct gyre_registrations *registrations);

/** gyre_registrations_count - how many ranges are registered. */
size_t gyre_registrations_count(struct gyre_registrations *registrations);

/* ---- signals.c --------------------------------------------------------------------------- */

/** gyre_signals_export - make this rank's counters, unless they exist, and describe them.
 * @to_processes: some rank is another process. Errors: OUT_OF_MEMORY, DEVICE, UNSUPPORTED with the
 * reason. */
gyre_status gyre_signals_export(gyre_comm *comm, bool to_processes,
                                struct gyre_share_handle *handle_out);

/** gyre_signals_import - map a rank's counters, unless they are mapped. Errors: as
 * gyre_share_import(); REMOTE: that rank has ended its communicator. */
gyre_status gyre_signals_import(gyre_comm *comm, int rank, const struct gyre_share_handle *handle);

/** gyre_signals_fini - give back all counters. The executor is closed. */
void gyre_signals_fini(gyre_comm *comm);

/* ---- put_peers.c: one-sided calls to ranks that a proxy serves --------------------------- */

/** gyre_put_peers_open - make this rank's put links, unless they exist or no proxy serves any pair.
 * Collective. A failure ends the communicator on all ranks. */
gyre_status gyre_put_peers_open(gyre_comm *comm);

/** gyre_put_peers_expect - other ranks may write into this window already. NULL: it is in the list
 * now, or there is none. */
void gyre_put_peers_expect(gyre_comm *comm, struct gyre_window_entry *entry);

/** gyre_put_peers_lock / unlock - around every change of the list of windows. */
void gyre_put_peers_lock(gyre_comm *comm);
void gyre_put_peers_unlock(gyre_comm *comm);

/** gyre_put_peers_fence - wait until all messages have been taken that any rank sent to this one
 * before its call. Collective. Errors: the fault, TIMEOUT (GYRE_BOOTSTRAP_TIMEOUT). */
gyre_status gyre_put_peers_fence(gyre_comm *comm);

/** gyre_put_peers_tell_blocked - tell the ranks behind put links that this rank waits for signals.
 * Does not block; a later call tells ranks whose link has no room. */
void gyre_put_peers_tell_blocked(gyre_comm *comm, uint64_t n_ended);

/** gyre_put_peers_blocked_of - the n_ended that a rank behind a put link has told, 0 = none; all
 * its signals before have arrived. */
uint64_t gyre_put_peers_blocked_of(const gyre_comm *comm, int rank);

/** gyre_put_peers_leave - this rank makes no one-sided call any more. */
void gyre_put_peers_leave(gyre_comm *comm);

/** gyre_put_peers_detach - messages do not reach the executor any more. */
void gyre_put_peers_detach(gyre_comm *comm);

/** gyre_put_peers_close - close the put links. The executor is closed. */
void gyre_put_peers_close(gyre_comm *comm);

#endif
