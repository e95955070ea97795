/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows: buffers of all ranks that every rank can address. Where OUT of a call lies in one, data
 * may be placed. A window is a number, the same on all ranks, because registering is collective.
 */
#ifndef GYRE_COMM_WINDOW_H
#define GYRE_COMM_WINDOW_H

#include "kernels/executor.h"
#include "transport/transport.h"

struct gyre_comm;
struct gyre_call;

struct gyre_window_entry {
    struct gyre_window_entry *next;      /* older ones */
    uint32_t number;                     /* from 1 */
    unsigned char *base;                 /* this rank's */
    uint64_t n_bytes;                    /* of the smallest */
    struct gyre_share_mapping *mappings; /* by rank */
    void **bases;                        /* likewise; own included */
    bool has_large_pages;                /* on all ranks, as the others map it; see window.c */
    struct gyre_placement placement;
};

struct gyre_windows {
    struct gyre_window_entry *newest;
    uint32_t n_made;
};

/** gyre_window_of - the newest window that holds a call's OUT, or NULL: of collectives where every
 * rank has an OUT of the same size.
 * @offset_out: of OUT in it; 0 without one. */
const struct gyre_window_entry *gyre_window_of(const struct gyre_comm *comm,
                                               const struct gyre_call *call, uint64_t *offset_out);

/** gyre_windows_fini - give back what is left; the executor is idle or aborted. */
void gyre_windows_fini(struct gyre_comm *comm);

#endif
