/* SPDX-License-Identifier: Apache-2.0
 *
 * How communicators are made and ended, for the files of this folder and for tests.
 */
#ifndef GYRE_COMM_PARTS_H
#define GYRE_COMM_PARTS_H

#include "core/engine/call/batch.h"
#include "core/engine/comm.h"
#include "core/engine/health/health.h"

/** gyre_comm_exchange() inside a call: this thread holds the communicator (api.c). */
gyre_status gyre_comm_gather(gyre_comm *comm, const void *mine, size_t n_bytes, void *all_out);

/** Make its device that of this thread, which gyre started. @comm: or NULL. */
void gyre_comm_attach(const gyre_comm *comm);

/** End the init, after success or failure. */
void gyre_comm_set_made(gyre_comm *comm);

/** Until all works and one-sided operations are done, or the communicator has failed. Waits for
 * signals that can no longer come end with an error. */
void gyre_comm_drain(gyre_comm *comm);

/* ---- make.c ------------------------------------------------------------------------------- */

/* How a new communicator's ranks find each other. */
struct gyre_init_request {
    int n_ranks;
    int rank;
    gyre_unique_id id;
    /* Finds the three members above; may wait for other ranks. NULL = they are set. @comm: NULL =
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
    bool is_aborted; /* shrink: of the parent */
};

/** In the background if it does not block (IN_PROGRESS) or inside a group (SUCCESS; the group's end
 * waits and sets *comm_out). @config: complete (gyre_config_take). @comm_out: NULL = only take part
 * in request->find. */
gyre_status gyre_comm_make(const gyre_config *config, const struct gyre_init_request *request,
                           gyre_comm **comm_out);

/** Tell the other ranks, which wait in request->find, that this rank cannot take part. Frees
 * request->is_member. @config: may that block? @request: with parent and takes_failures. @status:
 * gyre_cause() has its text and keeps it. */
gyre_status gyre_comm_refuse(const gyre_config *config, const struct gyre_init_request *request,
                             gyre_status status);

/* ---- split.c ------------------------------------------------------------------------------ */

/** The parent's if @given is NULL; on the parent's device unless it names another. Errors: as
 * gyre_config_take(). */
gyre_status gyre_comm_child_config(const gyre_comm *parent, const gyre_config *given,
                                   gyre_config *config_out);

/** Let the parent's links report what concerns the child. @parent_ranks: by rank of the child.
 * Errors: the parent's fault, OUT_OF_MEMORY. */
gyre_status gyre_comm_open_origin(const struct gyre_init_request *request, gyre_comm *child,
                                  enum gyre_origin_kind kind, const int *parent_ranks);

/* ---- parts.c ------------------------------------------------------------------------------ */

/** A struct of any version; NULL = all defaults. Errors: INVALID_ARGUMENT for one that was not
 * initialised. */
gyre_status gyre_config_take(const gyre_config *given, gyre_config *config_out);

/** What needs no other rank. @given: complete. */
gyre_status gyre_comm_make_local(const gyre_config *given, gyre_comm **comm_out);

/** Without waiting. Leaves the registry. */
void gyre_comm_free(gyre_comm *comm);

/** What needs the other ranks, which have joined the rendezvous. A failure becomes the
 * communicator's fault, and the other ranks are told. */
gyre_status gyre_comm_connect(gyre_comm *comm);

/* ---- window.c ------------------------------------------------------------------------------- */

/** The executor is idle or aborted. */
void gyre_windows_fini(gyre_comm *comm);

void gyre_registrations_init(struct gyre_registrations *registrations);
void gyre_registrations_fini(struct gyre_registrations *registrations);

size_t gyre_registrations_count(struct gyre_registrations *registrations);

/* ---- signals.c ------------------------------------------------------------------------------ */

/** Make this rank's counters, unless they exist. @to_processes: some rank is another process.
 * Errors: OUT_OF_MEMORY, DEVICE, UNSUPPORTED with the reason. */
gyre_status gyre_signals_export(gyre_comm *comm, bool to_processes,
                                struct gyre_share_handle *handle_out);

/** Unless they are mapped. Errors: as gyre_share_import(); REMOTE: that rank has ended its
 * communicator. */
gyre_status gyre_signals_import(gyre_comm *comm, int rank, const struct gyre_share_handle *handle);

/** The executor is closed. */
void gyre_signals_fini(gyre_comm *comm);

/* ---- put_peers.c: one-sided calls to ranks that a proxy serves -------------------------- */

/** Make put links, unless they exist or no proxy serves any pair. Collective. A failure ends the
 * communicator on all ranks. */
gyre_status gyre_put_peers_open(gyre_comm *comm);

/** Other ranks may write into this window already. NULL: it is in the list, or there is none. */
void gyre_put_peers_expect(gyre_comm *comm, struct gyre_window_entry *entry);

/** Around every change of the list of windows. */
void gyre_put_peers_lock(gyre_comm *comm);
void gyre_put_peers_unlock(gyre_comm *comm);

/** Until all messages have been taken that any rank sent to this one before its call. Collective.
 * Errors: the fault, TIMEOUT (GYRE_BOOTSTRAP_TIMEOUT). */
gyre_status gyre_put_peers_fence(gyre_comm *comm);

/** Tell ranks behind put links that this rank waits for signals. Does not block; a later call tells
 * ranks whose link has no room. */
void gyre_put_peers_tell_blocked(gyre_comm *comm, uint64_t n_ended);

/** As told by a rank behind a put link, 0 = none; all its signals before have arrived. */
uint64_t gyre_put_peers_blocked_of(const gyre_comm *comm, int rank);

/** This rank makes no one-sided call any more. */
void gyre_put_peers_leave(gyre_comm *comm);

/** Messages do not reach the executor any more. */
void gyre_put_peers_detach(gyre_comm *comm);

/** The executor is closed. */
void gyre_put_peers_close(gyre_comm *comm);

#endif
