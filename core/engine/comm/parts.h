/* SPDX-License-Identifier: Apache-2.0
 *
 * For the files of this folder and for tests.
 */
#ifndef GYRE_COMM_PARTS_H
#define GYRE_COMM_PARTS_H

#include "core/engine/call/batch.h"
#include "core/engine/comm.h"
#include "core/engine/health/health.h"

/** gyre_comm_exchange() inside a call: this thread holds the communicator (api.c). */
gyre_status gyre_comm_gather(gyre_comm *comm, const void *mine, size_t n_bytes, void *all_out);

/** Use the communicator's device on this thread, which gyre started. @comm: or NULL. */
void gyre_comm_attach(const gyre_comm *comm);

/** End the init, after success or failure. */
void gyre_comm_set_made(gyre_comm *comm);

/** Wait for all works and one-sided operations, or a failure. Waits for signals that can no longer
 * come end with an error. */
void gyre_comm_drain(gyre_comm *comm);

/* ---- make.c ------------------------------------------------------------------------------- */

struct gyre_init_request {
    int n_ranks;
    int rank;
    gyre_unique_id id;
    /* Finds the three members above; may wait for other ranks. NULL = they are set. @comm: NULL =
     * this rank takes part but gets none */
    gyre_status (*find)(struct gyre_init_request *request, gyre_comm *comm);
    gyre_comm *parent; /* for find() */
    bool has_id;       /* grow: this rank gives `id` */
    int color;         /* split */
    int key;
    bool takes_failures; /* find() without comm tells the others of `failure` */
    gyre_status failure; /* why this rank cannot take part */
    char failure_text[256];
    bool *is_member; /* shrink: by rank of the parent; freed by make and refuse */
    bool is_aborted; /* shrink: the parent was aborted */
};

/** In the background if it does not block (IN_PROGRESS) or in a group (SUCCESS; the group's end
 * sets *comm_out). @config: of gyre_config_take(). @comm_out: NULL = only take part in
 * request->find. */
gyre_status gyre_comm_make(const gyre_config *config, const struct gyre_init_request *request,
                           gyre_comm **comm_out);

/** This rank cannot take part; the others wait in request->find. Frees request->is_member. @config:
 * may that block? @request: with parent and takes_failures. @status: with gyre_cause(), which
 * stays. */
gyre_status gyre_comm_refuse(const gyre_config *config, const struct gyre_init_request *request,
                             gyre_status status);

/* ---- split.c ------------------------------------------------------------------------------ */

/** The parent's if @given is NULL; on its device unless @given names another. Errors: as
 * gyre_config_take(). */
gyre_status gyre_comm_child_config(const gyre_comm *parent, const gyre_config *given,
                                   gyre_config *config_out);

/** The parent's links then report what concerns the child. @parent_ranks: by rank of the child.
 * Errors: the parent's fault, OUT_OF_MEMORY. */
gyre_status gyre_comm_open_origin(const struct gyre_init_request *request, gyre_comm *child,
                                  enum gyre_origin_kind kind, const int *parent_ranks);

/* ---- parts.c ------------------------------------------------------------------------------ */

/** @given: of any version; NULL = defaults. Errors: INVALID_ARGUMENT if it was not initialised. */
gyre_status gyre_config_take(const gyre_config *given, gyre_config *config_out);

/** What needs no other rank. @given: complete. */
gyre_status gyre_comm_make_local(const gyre_config *given, gyre_comm **comm_out);

/** Does not wait. Leaves the registry. */
void gyre_comm_free(gyre_comm *comm);

/** The ranks have joined the rendezvous. A failure becomes the communicator's fault, and the other
 * ranks are told. */
gyre_status gyre_comm_connect(gyre_comm *comm);

/* ---- window.c ------------------------------------------------------------------------------- */

/** The executor is idle or aborted. */
void gyre_windows_fini(gyre_comm *comm);

void gyre_registrations_init(struct gyre_registrations *registrations);
void gyre_registrations_fini(struct gyre_registrations *registrations);

size_t gyre_registrations_count(struct gyre_registrations *registrations);

/* ---- signals.c ------------------------------------------------------------------------------ */

/** Unless they exist. @to_processes: some rank is another process. Errors: OUT_OF_MEMORY, DEVICE,
 * UNSUPPORTED. */
gyre_status gyre_signals_export(gyre_comm *comm, bool to_processes,
                                struct gyre_share_handle *handle_out);

/** Unless they are mapped. Errors: as gyre_share_import(); REMOTE: that rank has ended its
 * communicator. */
gyre_status gyre_signals_import(gyre_comm *comm, int rank, const struct gyre_share_handle *handle);

/** The executor is closed. */
void gyre_signals_fini(gyre_comm *comm);

/* ---- put_peers.c: one-sided calls to proxied ranks -------------------------------------- */

/** Unless it was done, or no proxy serves any pair. Collective. A failure ends the communicator on
 * all ranks. */
gyre_status gyre_put_peers_open(gyre_comm *comm);

/** Other ranks may already write into it. NULL: it is in the list, or there is none. */
void gyre_put_peers_expect(gyre_comm *comm, struct gyre_window_entry *entry);

/** Wait until all messages that any rank sent before its call are taken. Collective. Errors: the
 * fault, TIMEOUT (GYRE_BOOTSTRAP_TIMEOUT). */
gyre_status gyre_put_peers_fence(gyre_comm *comm);

/** Tell that this rank waits for signals. Does not block; a later call tells ranks whose link had
 * no room. */
void gyre_put_peers_tell_blocked(gyre_comm *comm, uint64_t n_ended);

/** 0 = none told; all the rank's earlier signals have arrived. */
uint64_t gyre_put_peers_blocked_of(const gyre_comm *comm, int rank);

/** No one-sided call follows. */
void gyre_put_peers_leave(gyre_comm *comm);

/** No message reaches the executor any more. */
void gyre_put_peers_detach(gyre_comm *comm);

/** The executor is closed. */
void gyre_put_peers_close(gyre_comm *comm);

#endif
