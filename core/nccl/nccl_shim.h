/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of libnccl.so.2 share. The library implements NCCL's ABI and uses only gyre.h.
 * Values of types, operations and results are translated. Features that gyre does not have are
 * refused with ncclInvalidUsage and a last error that names the feature, or passed on to a real
 * library if the user names one. docs/nccl_compat.md has a table of all functions.
 */
#ifndef GYRE_NCCL_SHIM_H
#define GYRE_NCCL_SHIM_H

#include "core/gyre.h"
#include "core/nccl/nccl.h"
#include "core/nccl/nccl_windows.h"

#include <pthread.h>

#define NCCL_EXPORT __attribute__((visibility("default")))

/* Defines the plain names as weak aliases of the pnccl names, so that a tool can replace a plain
 * name and call the pnccl one. For a table of nccl.h, in the file that defines its functions. */
#define NCCL_ALIAS(type, name, parameters) \
    NCCL_EXPORT type nccl##name parameters __attribute__((weak, alias("pnccl" #name)));

#define NCCL_CAUSE_MAX_BYTES 1024

/* A communicator handle points to this. */
struct ncclComm {
    gyre_comm *comm; /* NULL until the end of the group that makes it */
    pthread_mutex_t lock;
    ncclComm_t twin; /* in the real library, after a call was passed on; guarded by `lock` */
    struct ncclComm *next_promised; /* in the list of its thread's group */
    int is_promised;                /* 1: the end of a group will set `comm`; guarded by `lock` */
    int is_dropped;                 /* 1: the user destroyed it before that; guarded by `lock` */
    int is_aborted;                 /* 1: the user aborted it before that; guarded by `lock` */
    ncclResult_t failure;           /* why the group made no `comm` */
};

/* ---- nccl_result.c ------------------------------------------------------------------------ */

/** nccl_refuse - set this thread's last error to `text`. Returns `result`. */
ncclResult_t nccl_refuse(ncclResult_t result, const char *text);

/** nccl_unsupported - refuse a feature that gyre does not have. A function that only calls this is
 * "refused" in docs/nccl_compat.md; a test compares the two. */
ncclResult_t nccl_unsupported(const char *text);

/** nccl_translate - NCCL's value of a status. */
ncclResult_t nccl_translate(gyre_status status);

/** nccl_result_of - NCCL's result of the gyre call that just ended on this thread. The cause of a
 * failure becomes the last error. Inside a group IN_PROGRESS becomes ncclSuccess; only the group's
 * end reports it. */
ncclResult_t nccl_result_of(gyre_status status);

/* ---- nccl_config.c ------------------------------------------------------------------------ */

/** nccl_config_take - translate the caller's configuration; NULL = all defaults. Strings are not
 * copied. Errors: ncclInvalidArgument, ncclInvalidUsage (a network that gyre does not have). */
ncclResult_t nccl_config_take(const ncclConfig_t *given, gyre_config *config_out);

/* ---- nccl_comm.c -------------------------------------------------------------------------- */

/** nccl_usable - the gyre communicator of a handle. If there is none, or none yet, it is NULL, and
 * the last error says why. */
gyre_comm *nccl_usable(struct ncclComm *comm, ncclResult_t *result_out);

/** nccl_comm_end - destroy the handle's communicators, after an abort if `aborts` is set, and free
 * the handle. */
ncclResult_t nccl_comm_end(struct ncclComm *comm, int aborts);

/* ---- nccl_group.c ------------------------------------------------------------------------- */

/** nccl_group_is_open - is this thread inside a group? */
int nccl_group_is_open(void);

/** nccl_group_note - record the result of a call in a group. If a call failed, the group's end
 * reports the first failure and launches nothing. Returns `result`. */
ncclResult_t nccl_group_note(ncclResult_t result);

/** nccl_group_promise - note that the end of this thread's group will make the handle's
 *
 * communicator. */
void nccl_group_promise(struct ncclComm *comm);

/** nccl_group_drop - let the group's end destroy the handle, if the group is still to make its
 * communicator. Returns whether that is so. Any thread. */
int nccl_group_drop(struct ncclComm *comm, int aborts);

/** nccl_group_want_window - make a symmetric window; inside a group, at the group's end. */
ncclResult_t nccl_group_want_window(const struct nccl_window_wish *wish);

/** nccl_group_forget - make none of the communicator's windows at the group's end. */
void nccl_group_forget(const gyre_comm *comm);

#endif
