/* SPDX-License-Identifier: Apache-2.0
 *
 * Symmetric windows of NCCL's interface, made of gyre's.
 */
#ifndef GYRE_NCCL_WINDOWS_H
#define GYRE_NCCL_WINDOWS_H

#include "core/gyre.h"
#include "core/nccl/nccl.h"

/* A window that was asked for. */
struct nccl_window_wish {
    gyre_comm *comm;
    void *buffer;
    size_t n_bytes;
    ncclWindow_t *win; /* NULL, or where it goes; stays as it is where none is made */
};

/** nccl_windows_make - make windows, on all ranks of each communicator: those of one communicator
 * in order, several communicators side by side. None is made, which is no failure, where ranks
 * cannot address each other, or where one thread asks for two ranks of a communicator: it would
 * wait for itself when it gives them back. All ranks agree on that.
 * A rank that runs out of memory aborts the communicators, whose other ranks would wait for it.
 * @cause_out: of a failure. Returns the first one's status. */
gyre_status nccl_windows_make(const struct nccl_window_wish *wishes, size_t n_wishes,
                              char *cause_out, size_t cause_bytes);

#endif
