/* SPDX-License-Identifier: Apache-2.0
 *
 * The device API's host helpers let programs that need the names load.
 */
#include "core/nccl/nccl_shim.h"

#include "core/nccl/nccl_device.h"
#include "core/nccl/nccl_later.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    pthread_once_t once;
    int is_loaded;
    struct nccl_fallback functions;
    char problem[1200];
} loaded = {.once = PTHREAD_ONCE_INIT};

/* its nccl* calls must reach itself, not our names */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LOAD_FLAGS (RTLD_NOW | RTLD_LOCAL) /* the sanitizer refuses DEEPBIND */
#else
#define LOAD_FLAGS (RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND)
#endif

static void load(void)
{
    char path[1024] = "";
    if (gyre_get_variable("GYRE_NCCL_FALLBACK", path, sizeof(path)) != GYRE_SUCCESS) {
        snprintf(loaded.problem, sizeof(loaded.problem), "%s", gyre_last_error());
        return;
    }
    if (path[0] == '\0')
        return;
    void *library = dlopen(path, LOAD_FLAGS);
    if (library == NULL) {
        snprintf(loaded.problem, sizeof(loaded.problem), "GYRE_NCCL_FALLBACK: %s", dlerror());
        return;
    }
#define TAKE(name, parameters)                                                                     \
    *(void **)&loaded.functions.name = dlsym(library, "nccl" #name);                               \
    if (loaded.functions.name == NULL) {                                                           \
        snprintf(loaded.problem, sizeof(loaded.problem), "GYRE_NCCL_FALLBACK: %s has no %s", path, \
                 "nccl" #name);                                                                    \
        return;                                                                                    \
    }
    NCCL_FALLBACK_FUNCTIONS(TAKE)
    TAKE(GetLastError, )
#undef TAKE
    loaded.is_loaded = 1;
}

const struct nccl_fallback *nccl_fallback_get(void)
{
    pthread_once(&loaded.once, load);
    return loaded.is_loaded ? &loaded.functions : NULL;
}

NCCL_EXPORT ncclResult_t pncclCommRegister(const ncclComm_t comm, void *buff, size_t size,
                                           void **handle)
{
    gyre_registration made = NULL;
    NCCL_USE(comm);
    if (handle == NULL)
        return nccl_refuse(ncclInvalidArgument, "ncclCommRegister: handle is NULL");
    result = nccl_result_of(gyre_comm_register(own, buff, size, &made));
    *handle = made;
    return result;
}

NCCL_EXPORT ncclResult_t pncclCommDeregister(const ncclComm_t comm, void *handle)
{
    ncclResult_t result;
    gyre_comm *own = nccl_usable(comm, NCCL_CALL, &result);
    if (own == NULL || handle == NULL) /* no registration, as NCCL for unused buffers */
        return result;
    return nccl_result_of(gyre_comm_deregister(own, handle));
}

static ncclResult_t unsupported_unless_real(const char *text)
{
    char all[1400];
    pthread_once(&loaded.once, load);
    const char *problem = loaded.problem;
    snprintf(all, sizeof(all), "%s%s%s", text, problem[0] != '\0' ? "; " : "", problem);
    return nccl_unsupported(all);
}

static ncclResult_t result_of_real(ncclResult_t result, ncclComm_t twin)
{
    if (result != ncclSuccess && result != ncclInProgress) {
        char all[NCCL_CAUSE_MAX_BYTES];
        snprintf(all, sizeof(all), "GYRE_NCCL_FALLBACK: %s",
                 nccl_fallback_get()->GetLastError(twin));
        nccl_refuse(result, all);
    }
    return result;
}

/* Gathered: fixed layout. */
struct twin_offer {
    ncclUniqueId id;
    ncclResult_t result;
};

static ncclResult_t make_twin(gyre_comm *own, const struct nccl_fallback *real,
                              ncclComm_t *twin_out)
{
    int rank = 0;
    int n_ranks = 0;
    struct twin_offer offer;
    memset(&offer, 0, sizeof(offer));
    ncclResult_t result = nccl_result_of(gyre_comm_rank(own, &rank));
    if (result == ncclSuccess)
        result = nccl_result_of(gyre_comm_count(own, &n_ranks));
    if (result != ncclSuccess)
        return result;
    if (rank == 0)
        offer.result = result_of_real(real->GetUniqueId(&offer.id), NULL);
    struct twin_offer *offers = calloc((size_t)n_ranks, sizeof(*offers));
    if (offers == NULL) {
        (void)gyre_comm_abort(own);
        return nccl_refuse(ncclSystemError, "out of host memory");
    }
    result = nccl_result_of(gyre_comm_exchange(own, &offer, sizeof(offer), offers));
    if (result == ncclSuccess && offers[0].result != ncclSuccess)
        result =
            nccl_refuse(offers[0].result, "GYRE_NCCL_FALLBACK: ncclGetUniqueId failed on rank 0");
    if (result == ncclSuccess)
        result = result_of_real(real->CommInitRank(twin_out, n_ranks, offers[0].id, rank), NULL);
    free(offers);
    return result;
}

/* By the first call that is passed on, a collective one. */
static ncclResult_t get_twin(ncclComm_t handle, const char *call, ncclComm_t *twin_out)
{
    ncclResult_t result;
    gyre_comm *own = nccl_usable(handle, call, &result);
    NCCL_PINNED *comm = own != NULL ? nccl_comm_pin(handle, call, &result) : NULL;
    if (comm == NULL)
        return result;
    pthread_mutex_lock(&comm->twin_lock);
    *twin_out = __atomic_load_n(&comm->twin, __ATOMIC_ACQUIRE);
    if (*twin_out == NULL)
        result = make_twin(own, nccl_fallback_get(), twin_out);
    __atomic_store_n(&comm->twin, *twin_out, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&comm->twin_lock);
    return result;
}

#define RETURN_FROM_TWIN(comm, function, ...)                                                 \
    do {                                                                                      \
        ncclComm_t twin = NULL;                                                               \
        const ncclResult_t made = get_twin(comm, NCCL_CALL, &twin);                           \
        return made != ncclSuccess ? made                                                     \
                                   : result_of_real(real->function(twin, __VA_ARGS__), twin); \
    } while (0)

NCCL_EXPORT ncclResult_t pncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size,
                                                 ncclWindow_t *win, int winFlags)
{
    const struct nccl_fallback *real = nccl_fallback_get();
    ncclResult_t result;
    gyre_comm *own = nccl_usable(comm, NCCL_CALL, &result);
    const int is_right = buff != NULL && size > 0 && win != NULL;
    if (own == NULL)
        return nccl_group_note(result);
    if (win != NULL)
        *win = NULL; /* documented: no window, an ordinary buffer */
    if (real == NULL && (winFlags & NCCL_WIN_COLL_SYMMETRIC) != 0) {
        /* gyre refuses, and tells the other ranks */
        const struct nccl_window_wish wish = {own, buff, size, win};
        return nccl_group_note(nccl_group_want_window(&wish));
    }
    if (!is_right)
        return nccl_group_note(nccl_refuse(ncclInvalidArgument,
                                           "ncclCommWindowRegister: buff or win is NULL, or size "
                                           "is 0"));
    if (real == NULL) /* otherwise buffers may lie differently on ranks */
        return ncclSuccess;
    RETURN_FROM_TWIN(comm, CommWindowRegister, buff, size, win, winFlags);
}

NCCL_EXPORT ncclResult_t pncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win)
{
    const struct nccl_fallback *real = nccl_fallback_get();
    ncclResult_t result;
    gyre_comm *own = nccl_usable(comm, NCCL_CALL, &result);
    if (own == NULL || win == NULL)
        return result;
    if (real == NULL) {
        /* Failed ranks cannot agree, and callers give windows back before they destroy a
         * communicator. */
        gyre_status ended = GYRE_SUCCESS;
        const gyre_status status = gyre_window_deregister(own, (gyre_window)(uintptr_t)win);
        if (status == GYRE_ERROR_REMOTE) /* another rank's end, perhaps not known yet */
            return ncclSuccess;
        if (status != GYRE_SUCCESS && gyre_comm_async_error(own, &ended) == GYRE_SUCCESS &&
            ended != GYRE_SUCCESS && ended != GYRE_IN_PROGRESS)
            return ncclSuccess;
        return nccl_result_of(status);
    }
    RETURN_FROM_TWIN(comm, CommWindowDeregister, win);
}

NCCL_EXPORT ncclResult_t pncclDevCommCreate(ncclComm_t comm, const void *requirements,
                                            void *devComm)
{
    const struct nccl_fallback *real = nccl_fallback_get();
    if (real == NULL)
        return unsupported_unless_real("gyre does not have NCCL's device API (ncclDevCommCreate)");
    RETURN_FROM_TWIN(comm, DevCommCreate, requirements, devComm);
}

NCCL_EXPORT ncclResult_t pncclDevCommDestroy(ncclComm_t comm, const void *devComm)
{
    const struct nccl_fallback *real = nccl_fallback_get();
    if (real == NULL)
        return unsupported_unless_real("gyre does not have NCCL's device API (ncclDevCommDestroy)");
    RETURN_FROM_TWIN(comm, DevCommDestroy, devComm);
}

/* The real library wants its own memory for windows. */
NCCL_EXPORT ncclResult_t pncclMemAlloc(void **ptr, size_t size)
{
    const struct nccl_fallback *real = nccl_fallback_get();
    return real != NULL ? result_of_real(real->MemAlloc(ptr, size), NULL)
                        : nccl_result_of(gyre_mem_alloc(ptr, size, GYRE_DEVICE_AUTO, -1));
}

NCCL_EXPORT ncclResult_t pncclMemFree(void *ptr)
{
    const struct nccl_fallback *real = nccl_fallback_get();
    return real != NULL ? result_of_real(real->MemFree(ptr), NULL)
                        : nccl_result_of(gyre_mem_free(ptr, GYRE_DEVICE_AUTO));
}

NCCL_MEMORY_FUNCTIONS(NCCL_ALIAS)

NCCL_EXPORT ncclResult_t pncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *uniqueId)
{
    ncclResult_t result;
    return nccl_usable(comm, NCCL_CALL, &result) == NULL ? result : pncclGetUniqueId(uniqueId);
}

static ncclResult_t grow(ncclComm_t comm, int n_ranks, const ncclUniqueId *id, int rank,
                         ncclComm_t *comm_out, const ncclConfig_t *given)
{
    gyre_unique_id own_id;
    ncclResult_t result;
    if (comm == NULL && id == NULL)
        return nccl_refuse(ncclInvalidArgument,
                           "ncclCommGrow: a new rank needs the unique id; a rank of the "
                           "communicator passes its communicator");
    if (comm == NULL)
        return nccl_comm_init(comm_out, n_ranks, id, rank, given);
    gyre_comm *own = nccl_usable(comm, "ncclCommGrow", &result);
    if (own == NULL)
        return result;
    if (id != NULL)
        memcpy(own_id.bytes, id->internal, sizeof(own_id.bytes));
    const gyre_unique_id *own_id_or_null = id != NULL ? &own_id : NULL;
    if (rank == -1 && comm_out != NULL)
        return nccl_comm_grow(own, n_ranks, own_id_or_null, comm_out, given);
    nccl_refuse(ncclInvalidArgument,
                comm_out == NULL
                    ? "ncclCommGrow: newcomm is NULL"
                    : "ncclCommGrow: a rank of the communicator keeps its rank and passes -1");
    nccl_comm_refuse_growth(own, n_ranks, own_id_or_null);
    return ncclInvalidArgument;
}

NCCL_EXPORT ncclResult_t pncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId,
                                       int rank, ncclComm_t *newcomm, ncclConfig_t *config)
{
    if (newcomm != NULL)
        *newcomm = NULL;
    return nccl_group_note(grow(comm, nRanks, uniqueId, rank, newcomm, config));
}

NCCL_EXPORT ncclResult_t pncclCommSuspend(ncclComm_t comm, int flags)
{
    (void)comm;
    (void)flags;
    return nccl_unsupported("gyre does not suspend communicators (ncclCommSuspend), because other "
                            "ranks map the memory of their connections; destroy it instead");
}

NCCL_EXPORT ncclResult_t pncclCommResume(ncclComm_t comm)
{
    (void)comm;
    return nccl_unsupported("gyre does not suspend communicators (ncclCommResume)");
}

/* Other ranks map all connection memory: nothing can be suspended. */
NCCL_EXPORT ncclResult_t pncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value)
{
    gyre_properties facts = GYRE_PROPERTIES_INIT;
    NCCL_USE(comm);
    if (value == NULL || (int)stat < ncclStatGpuMemSuspend || (int)stat > ncclStatGpuMemTotal)
        return nccl_refuse(ncclInvalidArgument,
                           "ncclCommMemStats: value is NULL, or stat is none of 0..3");
    result = nccl_result_of(gyre_comm_properties(own, &facts));
    if (result == ncclSuccess)
        *value =
            stat == ncclStatGpuMemPersist || stat == ncclStatGpuMemTotal ? facts.device_bytes : 0;
    return result;
}

NCCL_EXPORT ncclResult_t pncclSetEncryption(const ncclEncryptionConfig_t *config)
{
    const ncclResult_t result = nccl_check_head(
        "ncclSetEncryption: the config is not as NCCL_ENCRYPTION_CONFIG_INITIALIZER makes it",
        config, NCCL_API_MAGIC, sizeof(*config));
    if (result != ncclSuccess)
        return result;
    if (config->mode == NCCL_ENCRYPTION_MODE_NONE)
        return ncclSuccess;
    return nccl_refuse(ncclInvalidUsage,
                       "gyre does not encrypt its sockets (ncclSetEncryption): ranks prove that "
                       "they know the job's secret, but the data is sent in the clear");
}

NCCL_EXPORT ncclResult_t pncclCommQueryProperties(ncclComm_t comm, ncclCommProperties_t *props)
{
    gyre_properties facts = GYRE_PROPERTIES_INIT;
    ncclCommProperties_t known;
    NCCL_USE(comm);
    result = nccl_check_head("ncclCommQueryProperties: the properties are not as "
                             "NCCL_COMM_PROPERTIES_INITIALIZER makes them",
                             props, NCCL_API_MAGIC, offsetof(ncclCommProperties_t, rank));
    if (result == ncclSuccess)
        result = nccl_result_of(gyre_comm_properties(own, &facts));
    if (result != ncclSuccess)
        return result;
    memset(&known, 0, sizeof(known));
    known.size = props->size;
    known.magic = props->magic;
    known.version = props->version;
    known.rank = facts.rank;
    known.nRanks = facts.n_ranks;
    known.cudaDev = facts.device_ordinal;
    known.nvmlDev = facts.device_ordinal;
    known.nLsaTeams = facts.can_window ? 1 : facts.n_ranks;
    known.hostRmaSupport = facts.device_kind == GYRE_DEVICE_HOST;
    known.commHash = facts.id;
    memcpy(props, &known, known.size < sizeof(known) ? known.size : sizeof(known));
    return ncclSuccess;
}

NCCL_LATER_COMM_FUNCTIONS(NCCL_ALIAS)
NCCL_PROPERTY_FUNCTIONS(NCCL_ALIAS)

/* A team of no ranks and a negative number are no answers. */
static const ncclTeam_t no_team = {0, 0, 0};
#define RESULT_ncclTeam_t(refusal)   ((void)(refusal), no_team)
#define RESULT_ncclResult_t(refusal) (refusal)
#define RESULT_int(refusal)          ((void)(refusal), -1)

#define REFUSE(type, name, parameters)                                                 \
    NCCL_EXPORT type pnccl##name parameters                                            \
    {                                                                                  \
        return RESULT_##type(                                                          \
            nccl_unsupported("gyre does not have NCCL's device API (nccl" #name ")")); \
    }

#pragma GCC diagnostic ignored "-Wunused-parameter"
NCCL_DEVICE_FUNCTIONS(REFUSE)
NCCL_DEVICE_FUNCTIONS(NCCL_ALIAS)
