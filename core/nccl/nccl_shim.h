/* SPDX-License-Identifier: Apache-2.0
 *
 * libnccl.so.2 calls only functions of gyre.h. What gyre lacks is refused with ncclInvalidUsage and
 * named, or passed on to NVIDIA's library. docs/nccl_compat.md lists all functions.
 */
#ifndef GYRE_NCCL_SHIM_H
#define GYRE_NCCL_SHIM_H

#include "core/gyre.h"
#include "core/nccl/nccl.h"

#include <pthread.h>

#define NCCL_EXPORT __attribute__((visibility("default")))

/* Weak, so that profiling tools can define ncclX and call pncclX. Belongs in pncclX's file. */
#define NCCL_ALIAS(type, name, parameters) \
    NCCL_EXPORT type nccl##name parameters __attribute__((weak, alias("pnccl" #name)));

#define NCCL_CAUSE_MAX_BYTES 1024

struct nccl_comm {
    ncclComm_t handle;
    gyre_comm *comm; /* atomic; NULL until its group ends */
    gyre_comm *made; /* written by gyre at that end, then copied to `comm` */
    ncclComm_t twin; /* same ranks in NVIDIA's library; atomic */
    pthread_mutex_t twin_lock;
    struct nccl_comm *next;          /* down to is_aborted under the table's lock */
    int n_users;                     /* live handle, promising group, calls */
    int is_promised;                 /* 1: a group's end will set `comm` */
    int is_dropped;                  /* 1: ended by the user; the group's end ends it */
    int is_aborted;                  /* 1: by an abort */
    int is_finalized;                /* atomic */
    int is_revoked;                  /* atomic */
    unsigned n_forks;                /* of its maker */
    ncclResult_t failure;            /* why there is no `comm`; atomic */
    struct nccl_comm *next_promised; /* of the thread's group */
    int wants_profile;               /* 1: the named plugin is not told yet */
    struct nccl_profile *profile;    /* NULL = no plugin */
};

struct nccl_window_wish {
    gyre_comm *comm;
    void *buffer;
    size_t n_bytes;
    ncclWindow_t *win; /* unchanged without a window; may be NULL */
};

/** Sets this thread's last error. Returns `result`. */
ncclResult_t nccl_refuse(ncclResult_t result, const char *text);

/** In docs/nccl_compat.md functions that only call this are "refused", which a test checks. */
ncclResult_t nccl_unsupported(const char *text);

ncclResult_t nccl_translate(gyre_status status);

/** Of this thread's last gyre call, with its cause. In a group IN_PROGRESS becomes ncclSuccess. */
ncclResult_t nccl_result_of(gyre_status status);

/* In pncclX: the function that the user called. */
#define NCCL_CALL (__func__ + 1)

/** The object lives until nccl_comm_unpin(). Any thread. @call: for the error's text. NULL with a
 * last error: ncclInvalidArgument for a handle that is NULL, destroyed, aborted or never made;
 * ncclInvalidUsage in a forked child. */
struct nccl_comm *nccl_comm_pin(ncclComm_t handle, const char *call, ncclResult_t *result_out);
void nccl_comm_unpin(struct nccl_comm *comm);

static inline void nccl_comm_unpin_held(struct nccl_comm **comm)
{
    if (*comm != NULL)
        nccl_comm_unpin(*comm);
}

/* Of a pointer: its object is given up when the block ends. */
#define NCCL_PINNED __attribute__((cleanup(nccl_comm_unpin_held))) struct nccl_comm

/** As pin; NULL also before the handle's group has ended. gyre refuses what is destroyed since. */
gyre_comm *nccl_usable(ncclComm_t handle, const char *call, ncclResult_t *result_out);

/* Declares `own`, the communicator of handle `comm`, and `result`, or returns the error. */
#define NCCL_USE(comm)                                      \
    ncclResult_t result;                                    \
    gyre_comm *own = nccl_usable(comm, NCCL_CALL, &result); \
    if (own == NULL)                                        \
    return result

struct nccl_comm *nccl_comm_new(void);

/** Returns the new handle. */
ncclComm_t nccl_comm_publish(struct nccl_comm *comm);

/** A group's end will make the communicator, and pins it until then. nccl_comm_keep_promise: it has
 * ended; 1 = the user ended the handle before. */
void nccl_comm_promise(struct nccl_comm *comm);
int nccl_comm_keep_promise(struct nccl_comm *comm);

/** No later call finds the handle. With is_dropped a group's end ends the communicator; else the
 * caller, who unpins it. NULL as nccl_comm_pin(). */
struct nccl_comm *nccl_comm_claim(ncclComm_t handle, const char *call, int aborts,
                                  ncclResult_t *result_out);

/** A struct begins with its size, a magic number, and the version of the caller's header. @what:
 * for the error's text. @least_bytes: of its first version. Errors: ncclInvalidArgument, for NULL
 * too. */
ncclResult_t nccl_check_head(const char *what, const void *given, unsigned magic,
                             size_t least_bytes);

/** NULL = defaults. Copies no string. Errors: ncclInvalidArgument, ncclInvalidUsage (network). */
ncclResult_t nccl_config_take(const ncclConfig_t *given, gyre_config *config_out);

/** @given: NULL = defaults. A failure sets *comm_out to NULL. */
ncclResult_t nccl_comm_init(ncclComm_t *comm_out, int n_ranks, const ncclUniqueId *id, int rank,
                            const ncclConfig_t *given);

/** @id: NULL unless this rank gives it. */
ncclResult_t nccl_comm_grow(gyre_comm *own, int n_ranks, const gyre_unique_id *id,
                            ncclComm_t *comm_out, const ncclConfig_t *given);

/** Tells the other ranks this thread's last error, which stays. */
void nccl_comm_refuse_growth(gyre_comm *own, int n_ranks, const gyre_unique_id *id);

/** Destroys the communicators, after an abort if one ended the handle. end_twin: only NVIDIA's. */
ncclResult_t nccl_comm_end(struct nccl_comm *comm);
void nccl_comm_end_twin(struct nccl_comm *comm);

int nccl_group_depth(void);

/** A handle of another number is the parent's: its lock and plugin may be in any state. */
unsigned nccl_n_forks(void);

/** Returns `result`. After a failure the group's end reports it and launches nothing. */
ncclResult_t nccl_group_note(ncclResult_t result);

void nccl_group_promise(struct nccl_comm *comm);

/** In a group: at its end. */
ncclResult_t nccl_group_want_window(const struct nccl_window_wish *wish);

void nccl_group_forget(const gyre_comm *comm);

/** Shows the plugin, if any, a made communicator's calls. Repeatable; by a calling thread. */
void nccl_profile_attach(struct nccl_comm *comm);

/** Around a call, which outside groups becomes one, as in NCCL. @is_own_group: enter's result. */
int nccl_profile_enter(ncclComm_t handle);
ncclResult_t nccl_profile_exit(int is_own_group, ncclResult_t result);

/** In a forked child. */
void nccl_profile_forget(void);

/** Around the end of the thread's outermost group. */
void nccl_profile_group_ending(void);
void nccl_profile_group_ended(void);

/** Is NCCL_PROFILER_PLUGIN set, without an earlier failure? */
bool nccl_plugin_is_asked(void);

/** In a forked child: the plugin starts anew. */
void nccl_plugin_forget(void);

/* GYRE_NCCL_FALLBACK=path names a real libnccl.so.2 for calls that gyre lacks. It does not know
 * gyre's communicators, so each one gets a twin there on demand. X(name, parameters) */
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
