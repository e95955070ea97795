/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/device/pool_cuda.h"

#include "core/foundation/base/thread.h"
#include "core/foundation/device/cuda_error.h"

#include <pthread.h>
#include <stdlib.h>

struct allocation {
    struct allocation *next;
    void *ptr;
    size_t n_bytes;
    int ordinal;
    enum gyre_cuda_pool_kind kind;
    bool is_parked;
};

/* One list a process, because freeing memory waits for the kernels of all GPUs that map it. `lock`
 * is held meanwhile: a new executor could launch kernels that CUDA would wait for, too. */
static struct {
    pthread_mutex_t lock;
    struct allocation *first;
    unsigned n_executors;
    bool has_late_work; /* of a closed executor: parked memory may still be written */
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

static gyre_status new_memory(struct allocation *allocation)
{
    struct gyre_cuda_apart apart = {0};
    cudaError_t error;
    GYRE_TRY(gyre_cuda_enter_apart(allocation->ordinal, &apart));
    if (allocation->kind == GYRE_CUDA_POOL_DEVICE)
        error = cudaMalloc(&allocation->ptr, allocation->n_bytes);
    else
        error = cudaHostAlloc(&allocation->ptr, allocation->n_bytes,
                              cudaHostAllocPortable | cudaHostAllocMapped);
    gyre_cuda_leave_apart(&apart);
    if (error == cudaSuccess)
        return GYRE_SUCCESS;
    return gyre_cuda_fail(error, allocation->kind == GYRE_CUDA_POOL_DEVICE ? "cudaMalloc"
                                                                           : "cudaHostAlloc");
}

/* Under the lock. */
static gyre_status give_back(struct allocation **link)
{
    struct allocation *allocation = *link;
    struct gyre_cuda_apart apart = {0};
    const gyre_status status = gyre_cuda_enter_apart(allocation->ordinal, &apart);
    cudaError_t error = cudaSuccess;
    if (status == GYRE_SUCCESS) {
        error = allocation->kind == GYRE_CUDA_POOL_DEVICE ? cudaFree(allocation->ptr)
                                                          : cudaFreeHost(allocation->ptr);
        gyre_cuda_leave_apart(&apart);
    }
    *link = allocation->next;
    free(allocation);
    return error == cudaSuccess ? status : gyre_cuda_fail(error, "cudaFree");
}

gyre_status gyre_cuda_pool_alloc(int ordinal, enum gyre_cuda_pool_kind kind, size_t n_bytes,
                                 void **ptr_out)
{
    const size_t n_wanted = n_bytes > 0 ? n_bytes : 1;
    struct allocation *allocation = NULL;
    pthread_mutex_lock(&pool.lock);
    if (!pool.has_late_work)
        allocation = pool.first;
    while (allocation != NULL && (!allocation->is_parked || allocation->ordinal != ordinal ||
                                  allocation->kind != kind || allocation->n_bytes != n_wanted))
        allocation = allocation->next;
    if (allocation != NULL) {
        allocation->is_parked = false;
        *ptr_out = allocation->ptr;
    }
    pthread_mutex_unlock(&pool.lock);
    if (allocation != NULL)
        return GYRE_SUCCESS;
    allocation = malloc(sizeof(*allocation));
    if (allocation == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "an allocation of %zu bytes", n_bytes);
    *allocation = (struct allocation){.n_bytes = n_wanted, .ordinal = ordinal, .kind = kind};
    const gyre_status status = new_memory(allocation);
    if (status != GYRE_SUCCESS) {
        free(allocation);
        return status;
    }
    *ptr_out = allocation->ptr;
    pthread_mutex_lock(&pool.lock);
    allocation->next = pool.first;
    pool.first = allocation;
    pthread_mutex_unlock(&pool.lock);
    return GYRE_SUCCESS;
}

gyre_status gyre_cuda_pool_free(void *ptr)
{
    gyre_status status = GYRE_SUCCESS;
    if (ptr == NULL)
        return GYRE_SUCCESS;
    GYRE_LOCKED(&pool.lock);
    struct allocation **link = &pool.first;
    while (*link != NULL && (*link)->ptr != ptr)
        link = &(*link)->next;
    if (*link == NULL)
        status = gyre_fail(GYRE_ERROR_INTERNAL, "%p is not of the pool", ptr);
    else if (pool.n_executors > 0)
        (*link)->is_parked = true;
    else
        status = give_back(link);
    return status;
}

void gyre_cuda_pool_enter(void)
{
    GYRE_LOCKED(&pool.lock);
    pool.n_executors++;
}

void gyre_cuda_pool_leave(bool is_idle)
{
    GYRE_LOCKED(&pool.lock);
    pool.has_late_work = pool.has_late_work || !is_idle;
    if (--pool.n_executors == 0) {
        struct allocation **link = &pool.first;
        while (*link != NULL) {
            if ((*link)->is_parked)
                (void)give_back(link);
            else
                link = &(*link)->next;
        }
        pool.has_late_work = false;
    }
}
