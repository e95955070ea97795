/* SPDX-License-Identifier: Apache-2.0
 *
 * Symmetric windows of NCCL's interface, which are gyre's windows.
 */
#ifndef GYRE_NCCL_WINDOWS_H
#define GYRE_NCCL_WINDOWS_H

#include "core/gyre.h"
#include "core/nccl/nccl.h"

/* A window that the caller wants. */
struct nccl_window_wish {
    gyre_comm *comm;
    void *buffer;
    size_t n_bytes;
    ncclWindow_t *win; /* receives the window; unchanged if none is made; may be NULL */
};

/** nccl_windows_make - make windows on all ranks of each communicator. The windows of one
 * communicator are made in order, those of different communicators at the same time. In two cases
 * no window is made, on all ranks, and that is no failure: if the ranks cannot reach each other's
 * memory, and if one thread serves two ranks of the communicator, because it would wait for itself
 * when it deregisters the windows. A rank that runs out of memory aborts the communicators, because
 * their other ranks wait for it.
 * @cause_out: the cause of the first failure. Returns its status. */
gyre_status nccl_windows_make(const struct nccl_window_wish *wishes, size_t n_wishes,
                              char *cause_out, size_t cause_bytes);

/** nccl_windows_forget - in a forked child, which is another process than its parent. */
void nccl_windows_forget(void);

#endif
