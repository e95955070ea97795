/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's ABI over gyre.h and nothing else: libnccl.so.2. Values of types, operations and results
 * are translated; what gyre does not have is refused with ncclInvalidUsage and a last error that
 * names the feature, or handed to a real library if the user names one. docs/nccl_compat.md is the
 * table of all functions. This header is what the shim's files share.
 */
#ifndef GYRE_NCCL_SHIM_H
#define GYRE_NCCL_SHIM_H

#include "core/gyre.h"
#include "core/nccl/nccl.h"
#include "core/nccl/nccl_windows.h"

#include <pthread.h>

#define NCCL_EXPORT __attribute__((visibility("default")))

/* The plain names are weak, so that a tool may stand in front of them and call the pnccl twins. For
 * a table of nccl.h, in the file that defines its functions. */
#define NCCL_ALIAS(type, name, parameters) \
    NCCL_EXPORT type nccl##name parameters __attribute__((weak, alias("pnccl" #name)));

#define NCCL_CAUSE_MAX_BYTES 1024

/* What a communicator handle points to. */
struct ncclComm {
    gyre_comm *comm; /* NULL until the end of the group that makes it */
    pthread_mutex_t lock;
    ncclComm_t twin; /* in the real library, once a call was handed over; under `lock` */
    struct ncclComm *next_promised; /* in the list of its thread's group */
    int is_promised;                /* the end of a group writes `comm`; under `lock` */
    int is_dropped;                 /* given back by the user before that; under `lock` */
    int is_aborted;                 /* likewise, by an abort */
    ncclResult_t failure;           /* why the group made no `comm` */
};

/* ---- nccl_result.c ------------------------------------------------------------------------ */

/** nccl_refuse - set this thread's last error. Returns `result`. */
ncclResult_t nccl_refuse(ncclResult_t result, const char *text);

/** nccl_unsupported - refuse what gyre does not have. Every function that does nothing but this is
 * "refused" in docs/nccl_compat.md, which a test compares. */
ncclResult_t nccl_unsupported(const char *text);

/** nccl_translate - a status in NCCL's values. */
ncclResult_t nccl_translate(gyre_status status);

/** nccl_result_of - the result of a gyre call that just ended on this thread; a failure's cause is
 * the last error. Inside a group only its end says that something is in progress. */
ncclResult_t nccl_result_of(gyre_status status);

/* ---- nccl_config.c ------------------------------------------------------------------------ */

/** nccl_config_take - the caller's configuration, or NULL = all defaults; its strings stay the
 * caller's. Errors: ncclInvalidArgument, ncclInvalidUsage (a network that gyre does not have). */
ncclResult_t nccl_config_take(const ncclConfig_t *given, gyre_config *config_out);

/* ---- nccl_comm.c -------------------------------------------------------------------------- */

/** nccl_usable - the handle's communicator, for calls; NULL and the last error when there is none
 * (yet). */
gyre_comm *nccl_usable(struct ncclComm *comm, ncclResult_t *result_out);

/** nccl_comm_end - destroy, or abort and destroy, what the handle has, and free it. */
ncclResult_t nccl_comm_end(struct ncclComm *comm, int aborts);

/* ---- nccl_group.c ------------------------------------------------------------------------- */

/** nccl_group_is_open - is this thread inside a group? */
int nccl_group_is_open(void);

/** nccl_group_note - what a call ended with that a group collects: the group's end reports the
 * first failure, and launches nothing then. Returns `result`. */
ncclResult_t nccl_group_note(ncclResult_t result);

/** nccl_group_promise - the end of this thread's group makes the handle's communicator, or fails.
 */
void nccl_group_promise(struct ncclComm *comm);

/** nccl_group_drop - is the handle promised? Then its group's end ends it. Any thread. */
int nccl_group_drop(struct ncclComm *comm, int aborts);

/** nccl_group_want_window - make a symmetric window, in a group at its end. */
ncclResult_t nccl_group_want_window(const struct nccl_window_wish *wish);

/** nccl_group_forget - make none of the communicator's windows at the group's end. */
void nccl_group_forget(const gyre_comm *comm);

#endif
