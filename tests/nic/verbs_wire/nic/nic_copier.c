/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/nic/verbs_wire/nic/nic_copier.h"

#include "core/base/sync.h"
#include "tests/nic/verbs_wire/file.h"
#include "tests/nic/verbs_wire/gpu.h"
#include "tests/nic/verbs_wire/say.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* cuda.h */
#define ATTRIBUTE_MPS_ENABLED 133
#define HOST_PORTABLE_MAPPED  3
#define STREAM_NON_BLOCKING   1
#define ERROR_NOT_READY       600
#define ERROR_HOST_REGISTERED 712

#define LIMIT_NS              10000000000ULL
#define IDLE_NS               100000000ULL /* the kernel ends by itself after this long without a copy */
#define LOOK_NS               20000ULL /* a copy that takes longer may wait for a kernel that has ended */

struct nic_copier {
    struct nic_copier_config config;
    struct nic_copier_queue *queue;
    unsigned long long mapped_queue; /* its address on the GPU */
    void *function;
    void *stream;
    uint64_t launch;                      /* number of the last one */
    bool is_running;                      /* or it has ended by itself */
    uint64_t numbers[NIC_COPIER_WORKERS]; /* of the last copy of each worker */
};

bool nic_copier_is_wanted(int device)
{
    const char *wish = getenv("VERBS_WIRE_KERNEL");
    const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
    char pipe[PATH_MAX];
    int is_shared = 0;
    if (wish != NULL && (strcmp(wish, "0") == 0 || strcmp(wish, "1") == 0))
        return wish[0] == '1';
    if (!wire_gpu_load()->has_kernels)
        return false;
    if (wire_gpu_load()->attribute_of_device(&is_shared, ATTRIBUTE_MPS_ENABLED, device) == 0 &&
        is_shared != 0)
        return true;
    snprintf(pipe, sizeof(pipe), "%s/control", folder != NULL ? folder : "");
    return folder != NULL && access(pipe, F_OK) == 0;
}

static void pop(void)
{
    void *context;
    (void)WIRE_CU(pop, &context);
}

static bool launch(struct nic_copier *copier)
{
    uint64_t number = copier->launch + 1;
    uint64_t idle_ns = IDLE_NS;
    void *arguments[] = {&copier->mapped_queue, &number, &idle_ns};
    if (!WIRE_CU(push, copier->config.context))
        return false;
    copier->is_running = WIRE_CU(launch, copier->function, NIC_COPIER_WORKERS, 1, 1,
                                 NIC_COPIER_THREADS, 1, 1, 0, copier->stream, arguments, NULL);
    pop();
    copier->launch += copier->is_running;
    return copier->is_running;
}

/* Whether the kernel runs, or is about to. Returns false if it failed; that was said. */
static bool look(struct nic_copier *copier)
{
    if (!WIRE_CU(push, copier->config.context))
        return false;
    const int result = wire_gpu_load()->query(copier->stream);
    pop();
    copier->is_running = result == ERROR_NOT_READY;
    return result == ERROR_NOT_READY || wire_gpu_is_fine(result, "the resident copy kernel");
}

/* ---- open ----------------------------------------------------------------------------------- */

/* The context of the GPU is current. */
static bool map_memory(struct nic_copier *copier)
{
    const struct nic_copier_config *config = &copier->config;
    unsigned long long mapped = 0;
    void *queue = NULL;
    /* For all GPUs, by the first of them. */
    const int result = wire_gpu_load()->host_register(config->memory, (size_t)config->n_bytes,
                                                      HOST_PORTABLE_MAPPED);
    if (result != ERROR_HOST_REGISTERED && !wire_gpu_is_fine(result, "host_register"))
        return false;
    if (!WIRE_CU(host_address, &mapped, config->memory, 0))
        return false;
    if (mapped != (uintptr_t)config->memory) {
        wire_say("the GPU maps host memory at other addresses: no resident copy kernel");
        return false;
    }
    if (!WIRE_CU(host_alloc, &queue, sizeof(*copier->queue), HOST_PORTABLE_MAPPED))
        return false;
    memset(queue, 0, sizeof(*copier->queue));
    copier->queue = queue;
    return WIRE_CU(host_address, &copier->mapped_queue, queue, 0);
}

static bool load_kernel(struct nic_copier *copier)
{
    void *module = NULL;
    return WIRE_CU(load_module, &module, nic_copier_image) &&
           WIRE_CU(function, &copier->function, module, "nic_copier_kernel") &&
           WIRE_CU(stream, &copier->stream, STREAM_NON_BLOCKING);
}

struct nic_copier *nic_copier_open(const struct nic_copier_config *config)
{
    if (nic_copier_image == NULL || !wire_gpu_load()->has_kernels) {
        wire_say("no resident copy kernel: %s", nic_copier_image == NULL
                                                    ? "built without CUDA"
                                                    : "libcuda lacks functions for it");
        return NULL;
    }
    struct nic_copier *copier = calloc(1, sizeof(*copier));
    if (copier == NULL)
        return NULL;
    copier->config = *config;
    if (copier->config.limit_ns == 0)
        copier->config.limit_ns = LIMIT_NS;
    bool is_ready = false;
    if (WIRE_CU(push, config->context)) {
        is_ready = map_memory(copier) && load_kernel(copier);
        pop();
    }
    if (is_ready && launch(copier))
        return copier;
    if (copier->queue != NULL)
        (void)WIRE_CU(host_free, copier->queue);
    free(copier);
    wire_say("no resident copy kernel: short copies take longer");
    return NULL;
}

/* ---- copies --------------------------------------------------------------------------------- */

static void post(struct nic_copier *copier, uint32_t worker, uint64_t to, uint64_t from,
                 uint64_t n_bytes)
{
    const uint64_t tag = ++copier->numbers[worker] << 32;
    uint64_t *words = copier->queue->mailboxes[worker].words;
    const uint64_t halves[NIC_COPIER_N_WORDS] = {
        [NIC_COPIER_TO_LOW] = to & 0xffffffffU,
        [NIC_COPIER_TO_HIGH] = to >> 32,
        [NIC_COPIER_FROM_LOW] = from & 0xffffffffU,
        [NIC_COPIER_FROM_HIGH] = from >> 32,
        [NIC_COPIER_BYTES] = n_bytes,
    };
    for (int i = 0; i < NIC_COPIER_N_WORDS; i++)
        gyre_store_release_u64(&words[i], tag | halves[i]);
}

/* Starts the kernel again if it has ended before this copy was in place. */
static bool await_worker(struct nic_copier *copier, uint32_t worker, uint64_t until_ns)
{
    const uint64_t *n_done = &copier->queue->n_done[worker];
    uint64_t look_at_ns = wire_now_ns() + LOOK_NS;
    while (gyre_load_acquire_u64(n_done) != copier->numbers[worker]) {
        gyre_cpu_relax();
        const uint64_t now_ns = wire_now_ns();
        if (now_ns < look_at_ns)
            continue;
        if (!look(copier) || (!copier->is_running && !launch(copier)))
            return false;
        if (now_ns > until_ns) {
            wire_say("the resident copy kernel did not copy within %llu ms: is the GPU full of "
                     "kernels that wait for this copy?",
                     (unsigned long long)(copier->config.limit_ns / 1000000));
            return false;
        }
        sched_yield();
        look_at_ns = now_ns + LOOK_NS;
    }
    return true;
}

bool nic_copier_copy(struct nic_copier *copier, uint64_t to, uint64_t from, uint64_t n_bytes)
{
    const uint64_t until_ns = wire_now_ns() + copier->config.limit_ns;
    uint32_t n_workers = 0;
    if (!copier->is_running && !launch(copier))
        return false;
    for (uint64_t at = 0; at < n_bytes; at += NIC_COPIER_PART_BYTES) {
        const uint64_t left = n_bytes - at;
        post(copier, n_workers++, to + at, from + at,
             left < NIC_COPIER_PART_BYTES ? left : NIC_COPIER_PART_BYTES);
    }
    for (uint32_t i = 0; i < n_workers; i++)
        if (!await_worker(copier, i, until_ns))
            return false;
    return true;
}

bool nic_copier_pause(struct nic_copier *copier)
{
    const uint64_t until_ns = wire_now_ns() + copier->config.limit_ns;
    gyre_store_release_u64(&copier->queue->ended, copier->launch);
    while (copier->is_running) {
        if (!look(copier))
            return false;
        if (copier->is_running && wire_now_ns() > until_ns) {
            wire_say("the resident copy kernel did not end within %llu ms",
                     (unsigned long long)(copier->config.limit_ns / 1000000));
            return false;
        }
        sched_yield();
    }
    return true;
}

void nic_copier_close(struct nic_copier *copier)
{
    if (!nic_copier_pause(copier))
        return;
    if (WIRE_CU(push, copier->config.context)) {
        (void)WIRE_CU(host_free, copier->queue);
        pop();
    }
    free(copier);
}
