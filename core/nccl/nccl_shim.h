/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files of libnccl.so.2, which calls only the functions of gyre.h. A feature that
 * gyre does not have is refused with ncclInvalidUsage and named, or passed on to a library of
 * NVIDIA that the user names. docs/nccl_compat.md has a table of all functions.
 */
#ifndef GYRE_NCCL_SHIM_H
#define GYRE_NCCL_SHIM_H

#include "core/gyre.h"
#include "core/nccl/nccl.h"

#include <pthread.h>

#define NCCL_EXPORT __attribute__((visibility("default")))

/* ncclX is a weak name for pncclX, so that a profiling tool can define its own ncclX and call
 * pncclX. It stands in the file that defines pncclX. */
#define NCCL_ALIAS(type, name, parameters) \
    NCCL_EXPORT type nccl##name parameters __attribute__((weak, alias("pnccl" #name)));

#define NCCL_CAUSE_MAX_BYTES 1024

struct nccl_comm {
    ncclComm_t handle;
    gyre_comm *comm; /* atomic; NULL until the end of the group that makes it */
    gyre_comm *made; /* written by gyre at that end, and copied to `comm` */
    ncclComm_t twin; /* of the same ranks in NVIDIA's library; atomic */
    pthread_mutex_t twin_lock;
    struct nccl_comm *next;          /* this and the next four under the lock of the table */
    int n_users;                     /* the live handle, a group that will make `comm`, calls */
    int is_promised;                 /* 1: the end of a group will set `comm` */
    int is_dropped;                  /* 1: the user ended the handle; the group's end ends it */
    int is_aborted;                  /* 1: by an abort */
    int is_finalized;                /* atomic */
    int is_revoked;                  /* atomic */
    unsigned n_forks;                /* when the handle was made */
    ncclResult_t failure;            /* why the group could not make `comm`; atomic */
    struct nccl_comm *next_promised; /* in the thread's group */
    int wants_profile;               /* 1: a plugin is named and does not know it yet */
    struct nccl_profile *profile;    /* NULL = no plugin */
};

struct nccl_window_wish {
    gyre_comm *comm;
    void *buffer;
    size_t n_bytes;
    ncclWindow_t *win; /* unchanged if no window is made; may be NULL */
};

/* ---- nccl_result.c ------------------------------------------------------------------------ */

/** Set this thread's last error. Returns `result`. */
ncclResult_t nccl_refuse(ncclResult_t result, const char *text);

/** A function that only calls this is "refused" in docs/nccl_compat.md; a test compares the two. */
ncclResult_t nccl_unsupported(const char *text);

ncclResult_t nccl_translate(gyre_status status);

/** Of the gyre call that just ended on this thread. A failure's cause becomes the last error.
 * Inside a group IN_PROGRESS becomes ncclSuccess. */
ncclResult_t nccl_result_of(gyre_status status);

/* ---- nccl_handles.c ----------------------------------------------------------------------- */

/* The function that a user has called, in its pncclX. */
#define NCCL_CALL (__func__ + 1)

/** Keep what a handle stands for until nccl_comm_unpin(). Any thread. @call: for the error's text.
 * NULL with a last error if the handle is NULL, destroyed, aborted or never made
 * (ncclInvalidArgument), or of the process that this one was forked from (ncclInvalidUsage). */
struct nccl_comm *nccl_comm_pin(ncclComm_t handle, const char *call, ncclResult_t *result_out);
void nccl_comm_unpin(struct nccl_comm *comm);

/** NULL as nccl_comm_pin(), or if the handle has no communicator before its group ends. gyre itself
 * refuses one that another thread has destroyed since. */
gyre_comm *nccl_usable(ncclComm_t handle, const char *call, ncclResult_t *result_out);

/* Declare `own`, the gyre communicator of the handle `comm`, and `result`, or return why there is
 * none. */
#define NCCL_USE(comm)                                      \
    ncclResult_t result;                                    \
    gyre_comm *own = nccl_usable(comm, NCCL_CALL, &result); \
    if (own == NULL)                                        \
    return result

/** NULL = out of memory. */
struct nccl_comm *nccl_comm_new(void);

/** Give it a handle, which is returned. */
ncclComm_t nccl_comm_publish(struct nccl_comm *comm);

/** A group's end will make the communicator, and pins it until then. nccl_comm_keep_promise - it
 * has ended; 1 = the user ended the handle before. */
void nccl_comm_promise(struct nccl_comm *comm);
int nccl_comm_keep_promise(struct nccl_comm *comm);

/** End a handle: no later call finds it. With is_dropped set a group's end ends the communicator;
 * else the caller does, and unpins it. NULL as nccl_comm_pin(). */
struct nccl_comm *nccl_comm_claim(ncclComm_t handle, const char *call, int aborts,
                                  ncclResult_t *result_out);

/* ---- nccl_config.c ------------------------------------------------------------------------ */

/** Was a struct initialised? It begins with its size, a magic number, and the version of the
 * caller's header. @what: for the error's text. @least_bytes: of its first version. Errors:
 * ncclInvalidArgument, also if `given` is NULL. */
ncclResult_t nccl_check_head(const char *what, const void *given, unsigned magic,
                             size_t least_bytes);

/** NULL = all defaults. Strings are not copied. Errors: ncclInvalidArgument, ncclInvalidUsage (a
 * network that gyre does not have). */
ncclResult_t nccl_config_take(const ncclConfig_t *given, gyre_config *config_out);

/* ---- nccl_comm.c -------------------------------------------------------------------------- */

/** @given: NULL = all defaults. *comm_out is NULL after a failure. */
ncclResult_t nccl_comm_init(ncclComm_t *comm_out, int n_ranks, const ncclUniqueId *id, int rank,
                            const ncclConfig_t *given);

/** @id: NULL unless this rank gives it. */
ncclResult_t nccl_comm_grow(gyre_comm *own, int n_ranks, const gyre_unique_id *id,
                            ncclComm_t *comm_out, const ncclConfig_t *given);

/** Tell the other ranks this thread's last error, which stays. */
void nccl_comm_refuse_growth(gyre_comm *own, int n_ranks, const gyre_unique_id *id);

/** Destroy the communicators, after an abort if the handle ended by one. nccl_comm_end_twin - only
 * that in NVIDIA's library. */
ncclResult_t nccl_comm_end(struct nccl_comm *comm);
void nccl_comm_end_twin(struct nccl_comm *comm);

/* ---- nccl_group.c ------------------------------------------------------------------------- */

int nccl_group_depth(void);

/** Since the library was loaded. A handle of another number is the parent's: its lock and its
 * plugin may be in any state. */
unsigned nccl_n_forks(void);

/** Record a call's result, which is returned. After a failure the group's end reports it and
 * launches nothing. */
ncclResult_t nccl_group_note(ncclResult_t result);

void nccl_group_promise(struct nccl_comm *comm);

/** Inside a group at its end. */
ncclResult_t nccl_group_want_window(const struct nccl_window_wish *wish);

void nccl_group_forget(const gyre_comm *comm);

/* ---- nccl_profile.c ----------------------------------------------------------------------- */

/** Let the plugin see the communicator's calls, if one is named and the communicator is made. May
 * be repeated. By a thread that may make calls on it. */
void nccl_profile_attach(struct nccl_comm *comm);

/** nccl_profile_enter, nccl_profile_exit - around a call, which outside groups becomes a group, as
 * in NCCL. @is_own_group: what enter returned. */
int nccl_profile_enter(ncclComm_t handle);
ncclResult_t nccl_profile_exit(int is_own_group, ncclResult_t result);

/** In a forked child. */
void nccl_profile_forget(void);

/** nccl_profile_group_ending, nccl_profile_group_ended - around the end of the thread's outermost
 * group. */
void nccl_profile_group_ending(void);
void nccl_profile_group_ended(void);

/** Is NCCL_PROFILER_PLUGIN set, and did no earlier attempt fail? */
bool nccl_plugin_is_asked(void);

/** In a forked child, which starts the plugin anew. */
void nccl_plugin_forget(void);

/* ---- nccl_real.c -------------------------------------------------------------------------- */

/* GYRE_NCCL_FALLBACK=path names a real libnccl.so.2 for calls that gyre does not have. It does not
 * know gyre's communicators, so each one with such a call gets a twin there. X(name, parameters) */
#define NCCL_FALLBACK_FUNCTIONS(X)                                                  \
    X(GetUniqueId, (ncclUniqueId * uniqueId))                                       \
    X(CommInitRank, (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank)) \
    X(CommDestroy, (ncclComm_t comm))                                               \
    X(CommAbort, (ncclComm_t comm))                                                 \
    X(CommWindowRegister,                                                           \
      (ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int winFlags))  \
    X(CommWindowDeregister, (ncclComm_t comm, ncclWindow_t win))                    \
    X(DevCommCreate, (ncclComm_t comm, const void *requirements, void *devComm))    \
    X(DevCommDestroy, (ncclComm_t comm, const void *devComm))                       \
    X(MemAlloc, (void **ptr, size_t size))                                          \
    X(MemFree, (void *ptr))

struct nccl_fallback {
#define NCCL_FALLBACK_FIELD(name, parameters) ncclResult_t(*name) parameters;
    NCCL_FALLBACK_FUNCTIONS(NCCL_FALLBACK_FIELD)
#undef NCCL_FALLBACK_FIELD
    const char *(*GetLastError)(ncclComm_t comm);
};

/** NULL = none. The first call loads it. */
const struct nccl_fallback *nccl_fallback_get(void);

#endif
