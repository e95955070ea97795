/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of the CUDA driver with which the NIC process starts its resident copy kernel, and
 * that kernel as threads: one for each block, with the rules of nic_copier_queue.h.
 */
#include "core/base/sync.h"
#include "tests/nic/verbs_wire/fake_cuda/fake_cuda.h"
#include "tests/nic/verbs_wire/nic/nic_copier_queue.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NOT_READY = 600, ALREADY_REGISTERED = 712 };

static uint32_t fault; /* enum fake_kernel_fault */
static uint32_t n_launches;
static uint32_t n_running;
static void *registered;

struct worker {
    struct nic_copier_queue *queue;
    uint64_t launch;
    uint64_t idle_ns;
    uint32_t index;
};

void fake_kernel_break(enum fake_kernel_fault new_fault)
{
    gyre_store_release_u32(&fault, new_fault);
}

unsigned fake_kernel_n_launches(void)
{
    return gyre_load_acquire_u32(&n_launches);
}

unsigned fake_kernel_n_running(void)
{
    return gyre_load_acquire_u32(&n_running);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static bool take(const struct nic_copier_mailbox *mailbox, uint64_t number, uint64_t *halves)
{
    for (int i = 0; i < NIC_COPIER_N_WORDS; i++) {
        const uint64_t word = gyre_load_acquire_u64(&mailbox->words[i]);
        if (word >> 32 != (number & 0xffffffffU))
            return false;
        halves[i] = word & 0xffffffffU;
    }
    return gyre_load_acquire_u32(&fault) != FAKE_KERNEL_DEAF;
}

static void copy(const uint64_t *halves)
{
    const uint64_t to = halves[NIC_COPIER_TO_HIGH] << 32 | halves[NIC_COPIER_TO_LOW];
    const uint64_t from = halves[NIC_COPIER_FROM_HIGH] << 32 | halves[NIC_COPIER_FROM_LOW];
    const size_t n_bytes = halves[NIC_COPIER_BYTES];
    unsigned char *target = fake_cuda_reach(to, n_bytes);
    const unsigned char *source = fake_cuda_reach(from, n_bytes);
    if (target == NULL || source == NULL)
        abort();
    memcpy(target, source, n_bytes);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct nic_copier_queue *queue = worker->queue;
    uint64_t *n_done = &queue->n_done[worker->index];
    uint64_t number = gyre_load_acquire_u64(n_done) + 1;
    uint64_t since_ns = now_ns();
    uint64_t halves[NIC_COPIER_N_WORDS];
    for (;;) {
        if (take(&queue->mailboxes[worker->index], number, halves)) {
            copy(halves);
            gyre_store_release_u64(n_done, number++);
            since_ns = now_ns();
        } else if (gyre_load_acquire_u64(&queue->ended) >= worker->launch) {
            break;
        } else if (worker->index == 0 && now_ns() - since_ns > worker->idle_ns) {
            gyre_store_release_u64(&queue->ended, worker->launch);
        }
        sched_yield();
    }
    free(worker);
    __atomic_fetch_sub(&n_running, 1, __ATOMIC_ACQ_REL);
    return NULL;
}

int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   void *stream, void **arguments, void **extra)
{
    struct worker common = {.index = 0};
    cu_address queue;
    if (function != (void *)&n_launches || grid_x != NIC_COPIER_WORKERS || grid_y * grid_z != 1 ||
        block_x != NIC_COPIER_THREADS || block_y * block_z != 1 || shared_bytes != 0 ||
        stream == NULL || extra != NULL || fake_kernel_n_running() != 0)
        return INVALID_VALUE;
    memcpy(&queue, arguments[0], sizeof(queue));
    memcpy(&common.launch, arguments[1], sizeof(common.launch));
    memcpy(&common.idle_ns, arguments[2], sizeof(common.idle_ns));
    common.queue = (struct nic_copier_queue *)(uintptr_t)queue;
    gyre_fetch_add_u32(&n_launches, 1);
    gyre_fetch_add_u32(&n_running, NIC_COPIER_WORKERS);
    for (; common.index < NIC_COPIER_WORKERS; common.index++) {
        pthread_t thread;
        struct worker *worker = malloc(sizeof(*worker));
        if (worker == NULL)
            abort();
        *worker = common;
        if (pthread_create(&thread, NULL, work, worker) != 0)
            abort();
        pthread_detach(thread);
    }
    return OK;
}

int cuStreamQuery(void *stream)
{
    if (stream == NULL)
        return INVALID_VALUE;
    return fake_kernel_n_running() != 0 ? NOT_READY : OK;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    *value = 0; /* no MPS */
    return attribute == 133 && device >= 100 ? OK : INVALID_VALUE;
}

int cuMemHostAlloc(void **memory, size_t n_bytes, unsigned flags)
{
    *memory = calloc(1, n_bytes);
    return *memory != NULL && flags == 3 ? OK : INVALID_VALUE;
}

int cuMemFreeHost(void *memory)
{
    free(memory);
    return OK;
}

int cuMemHostRegister_v2(void *memory, size_t n_bytes, unsigned flags)
{
    if (((uintptr_t)memory | n_bytes) % 4096 != 0 || flags != 3)
        return INVALID_VALUE;
    if (registered == memory)
        return ALREADY_REGISTERED;
    registered = memory;
    return OK;
}

int cuMemHostGetDevicePointer_v2(cu_address *at, void *memory, unsigned flags)
{
    *at = (uintptr_t)memory;
    return flags == 0 ? OK : INVALID_VALUE;
}

int cuModuleLoadData(void **module, const void *image)
{
    *module = (void *)(uintptr_t)image;
    return gyre_load_acquire_u32(&fault) != FAKE_KERNEL_NO_BINARY ? OK : NO_BINARY;
}

int cuModuleGetFunction(void **function, void *module, const char *name)
{
    *function = &n_launches;
    return module != NULL && strcmp(name, "nic_copier_kernel") == 0 ? OK : INVALID_VALUE;
}
