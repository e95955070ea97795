/* SPDX-License-Identifier: Apache-2.0
 *
 * The communicator, as its own files see it. Each part has one owner: connect.c makes the links,
 * plan_cache.c the plans, group.c collects calls, launch.c launches them, health.c and
 * health_stall.c watch, make.c and split.c make it, origin.c knows its parent, registry.c keeps the
 * live ones, calling.c lets threads use them, comm.c ends them.
 */
#ifndef GYRE_COMM_COMM_H
#define GYRE_COMM_COMM_H

#include "core/engine/call/group.h"
#include "core/engine/comm/put_peers.h"
#include "core/engine/comm/registration.h"
#include "core/engine/comm/signals.h"
#include "core/engine/comm/window.h"
#include "core/engine/health/health.h"
#include "core/engine/plan/tuning_file.h"

#define GYRE_MAX_USER_OPS 64

/* A sum with a scalar, made by gyre_op_create_premul_sum. */
struct gyre_user_op {
    bool is_used;
    gyre_dtype dtype;
    uint64_t scalar;
};

/* The background work of a communicator. Calls are refused while there is any. */
enum gyre_phase {
    GYRE_PHASE_READY,
    GYRE_PHASE_INIT,       /* its ranks join the rendezvous; only fault, device and config exist */
    GYRE_PHASE_REGROUPING, /* its ranks gather the members of a split or a shrink */
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
    uint32_t is_finalized;  /* no more calls; written by the caller, release */
    struct gyre_comm *next; /* in the registry */
    bool is_destroyed;      /* a thread is in gyre_comm_destroy(); under the registry's lock */
    bool is_ending;         /* destroyed by the user; its end is under way */
    uint32_t n_pins;        /* calls of other threads that look at it; under the registry's lock */
    uint32_t in_call; /* 1: a thread makes a call on it. Set under the registry's lock, cleared
                       * by that thread, release */
};

/** gyre_comm_gather - gyre_comm_exchange() inside a call: this thread holds the communicator. */
gyre_status gyre_comm_gather(gyre_comm *comm, const void *mine, size_t n_bytes, void *all_out);

/** gyre_comm_attach - make the communicator's device the device of this thread, which gyre started.
 * @comm: may be NULL. */
void gyre_comm_attach(const gyre_comm *comm);

/** gyre_comm_set_made - end the init, after success or failure: the phase becomes READY. */
void gyre_comm_set_made(gyre_comm *comm);

/** gyre_comm_drain - wait until all works and one-sided operations of this rank are done, or the
 * communicator has failed. Waits for signals of ranks that leave too, and send none any more, end
 * with an error. */
void gyre_comm_drain(gyre_comm *comm);

/* ---- calling.c: may a thread use it? ------------------------------------------------------- */

/** gyre_comm_begin_call - is this a live handle that may take calls? Then it is this thread's until
 * gyre_comm_end_call(), and is not freed before that. A thread that comes while another one is in a
 * call is refused, and the communicator ends on all ranks: no order of the two calls is the same on
 * every rank. Errors: INVALID_ARGUMENT (NULL), INVALID_USAGE (destroyed, finalized, still being
 * made, another thread's), or what the communicator failed with. */
gyre_status gyre_comm_begin_call(gyre_comm *comm);

/** gyre_comm_begin_launch - as gyre_comm_begin_call(), but of a communicator that is busy with a
 * split too: for calls that were taken before a split of the same group began. */
gyre_status gyre_comm_begin_launch(gyre_comm *comm);
void gyre_comm_end_call(gyre_comm *comm);

/** gyre_comm_check - may the communicator take calls? The caller holds or has pinned it. Errors:
 * INVALID_USAGE (finalized, still being made), or the communicator's fault. */
gyre_status gyre_comm_check(gyre_comm *comm);

/** gyre_comm_pin_made - may it be asked about its ranks and devices, by any thread at any time? As
 * gyre_comm_begin_call(), but failed and finalized communicators are fine, and other threads' calls
 * too. Then it is pinned. */
gyre_status gyre_comm_pin_made(gyre_comm *comm);

/** gyre_comm_give_up - end the communicator on all ranks with `status` and the thread's cause,
 * because this rank cannot take part in an all-gather that the other ranks wait in. Returns
 * `status`. */
gyre_status gyre_comm_give_up(gyre_comm *comm, gyre_status status);

/* ---- registry.c: the live handles --------------------------------------------------------- */

/** gyre_comm_pin - gyre_registry_check(), and the memory of the handle stays until
 * gyre_comm_unpin(), whatever other threads do with it. */
gyre_status gyre_comm_pin(gyre_comm *comm);
void gyre_comm_unpin(gyre_comm *comm);

/** gyre_registry_check - is it a handle that may still be used? Errors: INVALID_ARGUMENT (NULL),
 * INVALID_USAGE (destroyed, or of the process that this one was forked from). */
gyre_status gyre_registry_check(const gyre_comm *comm);

void gyre_registry_add(gyre_comm *comm, enum gyre_phase phase);
void gyre_registry_remove(gyre_comm *comm);

/* What became of a thread's attempt to take a communicator for a call. */
enum gyre_entry {
    GYRE_ENTRY_TAKEN,
    GYRE_ENTRY_NO_HANDLE, /* it is no live handle */
    GYRE_ENTRY_BUSY,      /* another thread makes a call on it; it is pinned now */
    GYRE_ENTRY_DESTROYED  /* another thread destroys it; it is pinned now */
};

/** gyre_registry_enter - take a communicator for a call of this thread until
 * gyre_comm_end_call(), whatever the communicator's state. */
enum gyre_entry gyre_registry_enter(gyre_comm *comm);

/** gyre_registry_wait_unpinned - wait until no other thread has pinned the communicator. */
void gyre_registry_wait_unpinned(gyre_comm *comm);

/** gyre_registry_claim_end - let one thread of several destroy a communicator. From now on no
 * thread may begin a call. Errors: INVALID_USAGE (another thread does), as
 * gyre_registry_check. */
gyre_status gyre_registry_claim_end(gyre_comm *comm);

/** gyre_registry_end - the user's handle has ended: the communicator can no longer be pinned. */
void gyre_registry_end(gyre_comm *comm);

/** gyre_registry_wait_job - wait until all ranks of a job in this process are freed, if none of
 * them is in use any more. One thread may destroy several ranks of a job one after the other. */
void gyre_registry_wait_job(uint64_t job);

/** gyre_registry_set / wait - a flag that one thread sets once and another waits for. */
void gyre_registry_set(bool *flag);
void gyre_registry_wait(const bool *flag);

/** gyre_registry_number - the greatest number of a communicator that was made in this process.
 * gyre_registry_note_number - a communicator was made with this number. */
uint64_t gyre_registry_number(void);
void gyre_registry_note_number(uint64_t number);

/** gyre_registry_take_stream - on the host: this rank's next launch goes to the stream, which is
 * not the one of its latest. Returns another rank of the communicator in this process whose launch
 * on the stream is not finished, and then changes nothing; -1: there is none. */
int gyre_registry_take_stream(gyre_comm *comm, gyre_stream stream);

void gyre_comm_set_phase(gyre_comm *comm, enum gyre_phase phase);
enum gyre_phase gyre_comm_phase(const gyre_comm *comm);

/** gyre_registry_set_ready - set the phase to READY. If the communicator has failed, change nothing
 * and return false. */
bool gyre_registry_set_ready(gyre_comm *comm);

/** gyre_registry_is_init_running - is the init still running? If not, gyre_registry_set_ready() has
 * returned. */
bool gyre_registry_is_init_running(const gyre_comm *comm);

/** gyre_comm_wait_ready - wait until the communicator has no work in the background. */
void gyre_comm_wait_ready(gyre_comm *comm);

/** gyre_comm_set_job - count the communicator as one of this job from now on. Other threads may be
 * counting. */
void gyre_comm_set_job(gyre_comm *comm, uint64_t job);

/* ---- config.c ----------------------------------------------------------------------------- */

/** gyre_config_take - a caller's struct of any version, or NULL = all defaults. Errors:
 * INVALID_ARGUMENT for one that was not initialised. */
gyre_status gyre_config_take(const gyre_config *given, gyre_config *config_out);

/** gyre_config_resolve - fill undefined fields from the environment and check the ranges.
 * @params: config.net replaces its NET, which transports read; the resolved `net` lies in it. */
gyre_status gyre_config_resolve(const gyre_config *given, struct gyre_params *params,
                                gyre_config *config_out);

/* ---- make.c ------------------------------------------------------------------------------- */

/* How the ranks of a new communicator find each other. */
struct gyre_init_request {
    int n_ranks;
    int rank;
    gyre_unique_id id;
    /* Finds the three members above; may wait for other ranks. NULL = they are set. @comm: the new
     * communicator; NULL = this rank takes part but gets no communicator. */
    gyre_status (*find)(struct gyre_init_request *request, gyre_comm *comm);
    gyre_comm *parent; /* used by find() only */
    bool has_id;       /* grow: this rank gives the rendezvous, `id` */
    int color;         /* split */
    int key;
    bool takes_failures; /* find() with comm NULL tells the other ranks of `failure` */
    gyre_status failure; /* this rank cannot take part, for `failure_text` */
    char failure_text[256];
    bool *is_member; /* shrink: by rank of the parent; malloc'ed, freed by make and refuse */
    bool is_aborted; /* shrink: the parent was aborted */
};

/** gyre_comm_make - make a communicator; in the background if it does not block (IN_PROGRESS) or
 * inside a group (SUCCESS; the group's end waits for it and sets *comm_out).
 * @config: complete (gyre_config_take). @comm_out: NULL = only take part in request->find. */
gyre_status gyre_comm_make(const gyre_config *config, const struct gyre_init_request *request,
                           gyre_comm **comm_out);

/** gyre_comm_refuse - end a split, shrink or growth whose arguments are wrong on this rank. The
 * other ranks of the parent wait for this rank in request->find, so it takes part there and tells
 * its failure.
 * @request: with parent and takes_failures. @status: of the failure; gyre_cause() has the text.
 * Returns @status, with its text. */
gyre_status gyre_comm_refuse(const struct gyre_init_request *request, gyre_status status);

/* ---- split.c ------------------------------------------------------------------------------ */

/** gyre_comm_child_config - the configuration of a communicator that is made of `parent`: the
 * caller's, or the parent's if @given is NULL; on the parent's device unless it says otherwise.
 * Errors: as gyre_config_take(). */
gyre_status gyre_comm_child_config(const gyre_comm *parent, const gyre_config *given,
                                   gyre_config *config_out);

/** gyre_comm_blame_parent - the parent's fault if the parent failed, because the fault says more
 * than the error of an all-gather; else `status`. Waits a moment for a fault that is still under
 * way. */
gyre_status gyre_comm_blame_parent(gyre_comm *parent, gyre_status status);

/* ---- parts.c ------------------------------------------------------------------------------ */

/** gyre_comm_make_local - a communicator with everything that needs no other rank.
 * @given: complete. */
gyre_status gyre_comm_make_local(const gyre_config *given, gyre_comm **comm_out);

/** gyre_comm_free - free all parts of a communicator that exist, without waiting, and take it out
 * of the registry. */
void gyre_comm_free(gyre_comm *comm);

/** gyre_comm_connect - connect ranks that have joined the rendezvous. A failure becomes the
 * communicator's fault, and the other ranks are told. */
gyre_status gyre_comm_connect(gyre_comm *comm);

#endif
