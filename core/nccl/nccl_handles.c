/* SPDX-License-Identifier: Apache-2.0
 *
 * No number is used twice in a process, so a destroyed handle is refused even when its memory is
 * used again. Numbers are neither addresses nor adjacent: no pointer and no handle plus an offset
 * passes for a communicator.
 */
#include "core/nccl/nccl_shim.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* No user address has these bits on x86-64 and arm64. */
#define HANDLE_MARK  0x6e63000000000000ULL
#define HANDLE_SHIFT 12

static struct {
    pthread_mutex_t lock;
    struct nccl_comm *first;
    uint64_t last_number;
} table = {PTHREAD_MUTEX_INITIALIZER, NULL, 0};

static void lock_table(void)
{
    pthread_mutex_lock(&table.lock);
}

static void unlock_table(void)
{
    pthread_mutex_unlock(&table.lock);
}

/* A child refuses its parent's handles (nccl_n_forks). */
static void watch_forks(void)
{
    /* without memory a child of several threads may hang */
    (void)pthread_atfork(lock_table, unlock_table, unlock_table);
}

struct nccl_comm *nccl_comm_new(void)
{
    struct nccl_comm *comm = calloc(1, sizeof(*comm));
    if (comm == NULL) {
        nccl_refuse(ncclSystemError, "out of host memory");
        return NULL;
    }
    pthread_mutex_init(&comm->twin_lock, NULL);
    comm->n_users = 1;
    comm->n_forks = nccl_n_forks();
    comm->wants_profile = nccl_plugin_is_asked();
    return comm;
}

ncclComm_t nccl_comm_publish(struct nccl_comm *comm)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    lock_table();
    comm->handle = (ncclComm_t)(uintptr_t)(HANDLE_MARK | ++table.last_number << HANDLE_SHIFT);
    comm->next = table.first;
    table.first = comm;
    unlock_table();
    return comm->handle;
}

/* A live handle's link, or the list's end. Under the lock. */
static struct nccl_comm **find(ncclComm_t handle)
{
    struct nccl_comm **at = &table.first;
    while (*at != NULL && (*at)->handle != handle)
        at = &(*at)->next;
    return at;
}

static ncclResult_t check(const struct nccl_comm *found, ncclComm_t handle, const char *call)
{
    char text[200];
    if (found != NULL && found->n_forks == nccl_n_forks())
        return ncclSuccess;
    if (found != NULL)
        snprintf(text, sizeof(text),
                 "%s: the communicator belongs to the process that this one was forked from; a "
                 "forked process has to make its own",
                 call);
    else if (handle == NULL)
        snprintf(text, sizeof(text), "%s: the communicator is NULL", call);
    else
        snprintf(text, sizeof(text),
                 "%s: %p is no communicator: it was destroyed or aborted, or never made", call,
                 (void *)handle);
    return nccl_refuse(found != NULL ? ncclInvalidUsage : ncclInvalidArgument, text);
}

struct nccl_comm *nccl_comm_pin(ncclComm_t handle, const char *call, ncclResult_t *result_out)
{
    lock_table();
    struct nccl_comm *comm = *find(handle);
    *result_out = check(comm, handle, call);
    if (*result_out != ncclSuccess)
        comm = NULL;
    else
        comm->n_users++;
    unlock_table();
    return comm;
}

void nccl_comm_unpin(struct nccl_comm *comm)
{
    lock_table();
    const int is_last = --comm->n_users == 0;
    unlock_table();
    if (!is_last)
        return;
    nccl_comm_end_twin(comm);
    pthread_mutex_destroy(&comm->twin_lock);
    free(comm);
}

gyre_comm *nccl_usable(ncclComm_t handle, const char *call, ncclResult_t *result_out)
{
    char text[200];
    struct nccl_comm *comm = nccl_comm_pin(handle, call, result_out);
    if (comm == NULL)
        return NULL;
    gyre_comm *own = __atomic_load_n(&comm->comm, __ATOMIC_ACQUIRE);
    const ncclResult_t failure = __atomic_load_n(&comm->failure, __ATOMIC_ACQUIRE);
    nccl_comm_unpin(comm);
    *result_out = own != NULL ? ncclSuccess : failure != ncclSuccess ? failure : ncclInvalidUsage;
    if (own != NULL)
        return own;
    snprintf(text, sizeof(text), "%s: %s", call,
             failure != ncclSuccess ? "the group that was to make the communicator failed"
                                    : "the group that makes the communicator has not ended");
    nccl_refuse(*result_out, text);
    return NULL;
}

void nccl_comm_promise(struct nccl_comm *comm)
{
    lock_table();
    comm->is_promised = 1;
    comm->n_users++;
    unlock_table();
}

int nccl_comm_keep_promise(struct nccl_comm *comm)
{
    lock_table();
    comm->is_promised = 0;
    const int is_dropped = comm->is_dropped;
    unlock_table();
    return is_dropped;
}

struct nccl_comm *nccl_comm_claim(ncclComm_t handle, const char *call, int aborts,
                                  ncclResult_t *result_out)
{
    lock_table();
    struct nccl_comm **at = find(handle);
    struct nccl_comm *comm = *at;
    *result_out = check(comm, handle, call);
    if (*result_out == ncclSuccess) {
        *at = comm->next;
        comm->is_dropped = comm->is_promised;
        comm->is_aborted = aborts;
    } else {
        comm = NULL;
    }
    unlock_table();
    return comm;
}
