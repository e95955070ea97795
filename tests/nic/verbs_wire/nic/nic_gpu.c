/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/nic/verbs_wire/nic/nic_gpu.h"

#include "tests/nic/verbs_wire/gpu.h"
#include "tests/nic/verbs_wire/nic/nic_copier.h"
#include "tests/nic/verbs_wire/say.h"

#include <string.h>

#define MAX_GPUS            16
#define STREAM_NON_BLOCKING 1 /* cuda.h */

static struct {
    int device;
    void *context;
    void *stream;
    uint32_t peers;            /* bit: GPU that it may reach */
    bool has_decided;          /* whether it gets a resident kernel */
    struct nic_copier *copier; /* NULL: the driver makes all copies */
} gpus[MAX_GPUS];              /* kept until the process ends, as libcuda is */

static void *host_memory;
static uint64_t host_bytes;
static uint64_t n_by_kernel;

void nic_gpu_begin(void *memory, uint64_t n_bytes)
{
    host_memory = memory;
    host_bytes = n_bytes;
}

void nic_gpu_pause(void)
{
    for (int i = 0; i < MAX_GPUS; i++)
        if (gpus[i].copier != NULL)
            (void)nic_copier_pause(gpus[i].copier);
}

void nic_gpu_end(void)
{
    for (int i = 0; i < MAX_GPUS; i++) {
        if (gpus[i].copier != NULL)
            nic_copier_close(gpus[i].copier);
        gpus[i].copier = NULL;
    }
}

bool nic_gpu_push(int ordinal)
{
    if (gpus[ordinal].context == NULL &&
        (!WIRE_CU(device, &gpus[ordinal].device, ordinal) ||
         !WIRE_CU(retain, &gpus[ordinal].context, gpus[ordinal].device)))
        return false;
    if (!WIRE_CU(push, gpus[ordinal].context))
        return false;
    if (gpus[ordinal].stream != NULL || WIRE_CU(stream, &gpus[ordinal].stream, STREAM_NON_BLOCKING))
        return true;
    nic_gpu_pop();
    return false;
}

void nic_gpu_pop(void)
{
    void *context;
    (void)WIRE_CU(pop, &context);
}

int nic_gpu_find(const unsigned char *uuid)
{
    int n = 0;
    if (wire_gpu_load() == NULL || !WIRE_CU(count, &n))
        return -1;
    for (int i = 0; i < n && i < MAX_GPUS; i++) {
        int device;
        struct wire_uuid own;
        if (WIRE_CU(device, &device, i) && WIRE_CU(uuid, &own, device) &&
            memcmp(own.bytes, uuid, sizeof(own.bytes)) == 0)
            return i;
    }
    wire_say("a client's GPU is none of the %d that its NIC sees", n);
    return -1;
}

void nic_gpu_let_reach(int ordinal, int other)
{
    if ((gpus[ordinal].peers >> other & 1) != 0 || ordinal == other)
        return;
    nic_gpu_pause();
    if (!nic_gpu_push(other))
        return;
    nic_gpu_pop();
    if (!nic_gpu_push(ordinal))
        return;
    (void)wire_gpu_load()->enable_peer(gpus[other].context, 0);
    nic_gpu_pop();
    gpus[ordinal].peers |= 1u << other;
}

bool nic_gpu_has_kernel(int ordinal, uint64_t n_bytes)
{
    if (n_bytes > NIC_COPIER_MAX_BYTES)
        return false;
    if (gpus[ordinal].has_decided)
        return gpus[ordinal].copier != NULL;
    if (!nic_gpu_push(ordinal)) /* makes the context */
        return false;
    nic_gpu_pop();
    gpus[ordinal].has_decided = true;
    if (!nic_copier_is_wanted(gpus[ordinal].device))
        return false;
    nic_gpu_pause();
    gpus[ordinal].copier =
        nic_copier_open(&(struct nic_copier_config){.context = gpus[ordinal].context,
                                                    .device = gpus[ordinal].device,
                                                    .memory = host_memory,
                                                    .n_bytes = host_bytes});
    return gpus[ordinal].copier != NULL;
}

bool nic_gpu_move_by_driver(int ordinal, uint64_t to, uint64_t from, uint64_t n_bytes)
{
    if (!nic_gpu_push(ordinal))
        return false;
    const bool is_copied = WIRE_CU(copy, to, from, n_bytes, gpus[ordinal].stream) &&
                           WIRE_CU(wait, gpus[ordinal].stream);
    nic_gpu_pop();
    return is_copied;
}

bool nic_gpu_move(int ordinal, uint64_t to, uint64_t from, uint64_t n_bytes)
{
    if (!nic_gpu_has_kernel(ordinal, n_bytes))
        return nic_gpu_move_by_driver(ordinal, to, from, n_bytes);
    n_by_kernel++;
    return nic_copier_copy(gpus[ordinal].copier, to, from, n_bytes);
}

uint64_t nic_gpu_n_by_kernel(void)
{
    return n_by_kernel;
}
