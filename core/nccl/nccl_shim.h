/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations that the source files of libnccl.so.2 share. The library implements NCCL's ABI and
 * calls only the functions of gyre.h. It translates NCCL's types, operations and results. A feature
 * that gyre does not have is refused with ncclInvalidUsage, and the last error names the feature.
 * If the user names a library of NVIDIA, the call is passed on to that library instead.
 * docs/nccl_compat.md has a table of all functions.
 */
#ifndef GYRE_NCCL_SHIM_H
#define GYRE_NCCL_SHIM_H

#include "core/gyre.h"
#include "core/nccl/nccl.h"
#include "core/nccl/nccl_windows.h"

#include <pthread.h>

#define NCCL_EXPORT __attribute__((visibility("default")))

/* An entry of NCCL's function tables (nccl.h) as an alias: ncclX is a weak name for the function
 * pncclX. A profiling tool can then define its own ncclX and call pncclX in it. An alias must stand
 * in the file that defines its function. */
#define NCCL_ALIAS(type, name, parameters) \
    NCCL_EXPORT type nccl##name parameters __attribute__((weak, alias("pnccl" #name)));

#define NCCL_CAUSE_MAX_BYTES 1024

/* A communicator handle points to this. */
struct ncclComm {
    gyre_comm *comm; /* NULL until the end of the group that makes it */
    pthread_mutex_t lock;
    ncclComm_t twin; /* the communicator of the same ranks in NVIDIA's library, made when the first
                      * call is passed on; guarded by `lock` */
    struct ncclComm *next_promised; /* next handle that the end of its thread's group completes */
    int is_promised;                /* 1: the end of a group will set `comm`; guarded by `lock` */
    int is_dropped;                 /* 1: the user destroyed the handle before the group ended;
                                     * guarded by `lock` */
    int is_aborted;                 /* 1: the user aborted it before then; guarded by `lock` */
    int is_revoked;                 /* 1: the user revoked it; guarded by `lock` */
    ncclResult_t failure;           /* why the group could not make `comm` */
    unsigned n_forks;               /* nccl_n_forks() when the handle was made */
    int wants_profile;              /* 1: a profiler plugin is named and does not know it yet */
    struct nccl_profile *profile;   /* NULL = no plugin; nccl_profile.c */
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

/** nccl_usable - the gyre communicator of a handle. Returns NULL if the handle has none, or has
 * none before its group ends; the last error then says which. */
gyre_comm *nccl_usable(struct ncclComm *comm, ncclResult_t *result_out);

/** nccl_comm_init - a rank joins a new communicator.
 * @given: NULL = all defaults. *comm_out is set, and NULL after a failure. */
ncclResult_t nccl_comm_init(ncclComm_t *comm_out, int n_ranks, const ncclUniqueId *id, int rank,
                            const ncclConfig_t *given);

/** nccl_comm_grow - a rank of a communicator grows it. @id: NULL unless this rank gives the id. */
ncclResult_t nccl_comm_grow(gyre_comm *own, int n_ranks, const gyre_unique_id *id,
                            ncclComm_t *comm_out, const ncclConfig_t *given);

/** nccl_comm_refuse_growth - tell the other ranks of a growth this thread's last error, because
 * they wait for this rank. The last error stays. */
void nccl_comm_refuse_growth(gyre_comm *own, int n_ranks, const gyre_unique_id *id);

/** nccl_comm_end - destroy the handle's communicators, after an abort if `aborts` is set, and free
 * the handle. */
ncclResult_t nccl_comm_end(struct ncclComm *comm, int aborts);

/* ---- nccl_calls.c ------------------------------------------------------------------------- */

/** nccl_to_op - gyre's operation for NCCL's. If the value is out of range, the result is no
 * operation of gyre, so gyre refuses the call. */
gyre_op nccl_to_op(ncclRedOp_t op);

/* ---- nccl_group.c ------------------------------------------------------------------------- */

/** nccl_group_depth - how many groups of this thread are open, one in the other. */
int nccl_group_depth(void);

/** nccl_n_forks - how many forks lie between the process that loaded the library and this one. A
 * handle of another number is the parent's: its lock and its plugin may be in any state. */
unsigned nccl_n_forks(void);

/** nccl_group_is_open - is this thread inside a group? */
int nccl_group_is_open(void);

/** nccl_group_note - record the result of a call in a group. If a call failed, the group's end
 * reports the first failure and launches nothing. Returns `result`. */
ncclResult_t nccl_group_note(ncclResult_t result);

/** nccl_group_promise - note that the end of this thread's group makes the communicator of the
 * handle. */
void nccl_group_promise(struct ncclComm *comm);

/** nccl_group_drop - if a group has not made the handle's communicator yet, let the group's end
 * destroy the handle, and return 1. Otherwise return 0. Any thread may call it. */
int nccl_group_drop(struct ncclComm *comm, int aborts);

/** nccl_group_want_window - make a symmetric window; inside a group, at the group's end. */
ncclResult_t nccl_group_want_window(const struct nccl_window_wish *wish);

/** nccl_group_forget - make none of the communicator's windows at the group's end. */
void nccl_group_forget(const gyre_comm *comm);

/* ---- nccl_profile.c ----------------------------------------------------------------------- */

/** nccl_profile_attach - let the profiler plugin see the communicator's calls, if one is named and
 * the communicator is made. May be repeated. Only by a thread that may make calls on it. */
void nccl_profile_attach(struct ncclComm *comm);

/** nccl_profile_enter / nccl_profile_exit - around a call that is profiled. A call outside groups
 * becomes a group of its own then, as in NCCL. @is_own_group: what enter returned. */
int nccl_profile_enter(struct ncclComm *comm);
ncclResult_t nccl_profile_exit(int is_own_group, ncclResult_t result);

/** nccl_profile_forget - in a forked child: the thread's open group is the parent's. */
void nccl_profile_forget(void);

/** nccl_profile_group_ending / nccl_profile_group_ended - around the end of the thread's outermost
 * group. */
void nccl_profile_group_ending(void);
void nccl_profile_group_ended(void);

#endif
