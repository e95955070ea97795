/* SPDX-License-Identifier: Apache-2.0
 *
 * GPU memory of clients. An allocation is opened by CUDA IPC when a request first names it, in the
 * primary context of its GPU in this process, so no call waits for what a client does in its own
 * context. It is closed when no region is in it any more.
 *
 * Each GPU has a stream for the copies into its memory, which are waited for together, and for
 * those from its memory to this process.
 */
#include "tests/nic/verbs_wire/nic/nic.h"

#include "tests/nic/verbs_wire/gpu.h"
#include "tests/nic/verbs_wire/say.h"

#include <stdlib.h>
#include <string.h>

#define MAX_GPUS            16
#define STREAM_NON_BLOCKING 1 /* cuda.h */
#define IPC_LAZY_PEER       1
#define MAX_COPIES          64 /* on a stream; another one waits for these */
#define BUFFER_BYTES        ((uint64_t)4 * NIC_BOUNCE_BYTES)

static struct {
    void *context;
    void *stream;
    uint32_t peers;    /* bit: GPU that it may reach */
    uint32_t n_copies; /* started on the stream and not waited for */
} gpus[MAX_GPUS];      /* kept until the process ends, as libcuda is */

/* The copies that are waited for together. */
static struct {
    uint32_t failed; /* bit: GPU; copies into its memory may not be in place */
    uint64_t n_waits;
    uint64_t n_used; /* bytes of `buffer` */
    unsigned char buffer[BUFFER_BYTES];
} batch;

struct mapping {
    struct wire_gpu_place place;
    int ordinal;
    unsigned long long mapped; /* address of place.allocation in this process */
    struct mapping *next;
};

static struct mapping *mappings;

/* Make a GPU's context current; its stream is made on the first use. */
static bool push(int ordinal)
{
    int device;
    if (gpus[ordinal].context == NULL &&
        (!WIRE_CU(device, &device, ordinal) || !WIRE_CU(retain, &gpus[ordinal].context, device)))
        return false;
    if (!WIRE_CU(push, gpus[ordinal].context))
        return false;
    if (gpus[ordinal].stream != NULL || WIRE_CU(stream, &gpus[ordinal].stream, STREAM_NON_BLOCKING))
        return true;
    (void)wire_gpu_load()->pop(&(void *){NULL});
    return false;
}

static void pop(void)
{
    void *context;
    (void)WIRE_CU(pop, &context);
}

static int find_gpu(const unsigned char *uuid)
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

/* The mapping of a region's allocation, made now if there is none. */
static const struct mapping *map(const struct wire_region_entry *region)
{
    struct wire_ipc_handle handle;
    struct mapping *mapping = mappings;
    while (mapping != NULL && memcmp(&mapping->place, &region->gpu, sizeof(region->gpu)) != 0)
        mapping = mapping->next;
    if (mapping != NULL)
        return mapping;
    const int ordinal = find_gpu(region->gpu.uuid);
    if (ordinal < 0 || !push(ordinal))
        return NULL;
    unsigned long long mapped = 0;
    memcpy(handle.bytes, region->gpu.ipc, sizeof(handle.bytes));
    const bool is_open = WIRE_CU(ipc_open, &mapped, handle, IPC_LAZY_PEER);
    pop();
    mapping = is_open ? calloc(1, sizeof(*mapping)) : NULL;
    if (mapping == NULL)
        return NULL;
    *mapping = (struct mapping){
        .place = region->gpu, .ordinal = ordinal, .mapped = mapped, .next = mappings};
    mappings = mapping;
    return mapping;
}

static unsigned long long address_in(const struct mapping *mapping, uint64_t address)
{
    return mapping->mapped + (address - mapping->place.allocation);
}

int nic_gpu_of(const struct wire_region_entry *region)
{
    const struct mapping *mapping = map(region);
    return mapping != NULL ? mapping->ordinal : -1;
}

/* Waits for all copies on a GPU's stream. Which of them a failure is about is not known. */
static bool wait_for_stream(int ordinal)
{
    bool is_fine = push(ordinal);
    if (is_fine) {
        is_fine = WIRE_CU(wait, gpus[ordinal].stream);
        pop();
    }
    if (!is_fine && gpus[ordinal].n_copies > 0)
        batch.failed |= 1u << ordinal;
    gpus[ordinal].n_copies = 0;
    batch.n_waits++;
    return is_fine;
}

static void wait_for_all(void)
{
    for (int i = 0; i < MAX_GPUS; i++)
        if (gpus[i].n_copies > 0)
            (void)wait_for_stream(i);
    batch.n_used = 0;
}

static bool start(int ordinal, unsigned long long to, unsigned long long from, uint64_t n_bytes)
{
    if (gpus[ordinal].n_copies == MAX_COPIES)
        (void)wait_for_stream(ordinal);
    if (!push(ordinal))
        return false;
    const bool is_started = WIRE_CU(copy, to, from, n_bytes, gpus[ordinal].stream);
    pop();
    return is_started;
}

static bool start_in_batch(int ordinal, unsigned long long to, unsigned long long from,
                           uint64_t n_bytes)
{
    const bool is_started = start(ordinal, to, from, n_bytes);
    gpus[ordinal].n_copies += is_started;
    return is_started;
}

bool nic_gpu_read(const struct wire_region_entry *region, uint64_t address, void *to,
                  uint64_t n_bytes)
{
    const struct mapping *from = map(region);
    return from != NULL &&
           start(from->ordinal, (uintptr_t)to, address_in(from, address), n_bytes) &&
           wait_for_stream(from->ordinal);
}

unsigned char *nic_gpu_take_buffer(uint64_t n_bytes)
{
    if (BUFFER_BYTES - batch.n_used < n_bytes)
        wait_for_all();
    unsigned char *part = batch.buffer + batch.n_used;
    batch.n_used += n_bytes;
    return part;
}

bool nic_gpu_start_write(const struct wire_region_entry *region, uint64_t address,
                         const unsigned char *from, uint64_t n_bytes)
{
    const struct mapping *to = map(region);
    return to != NULL &&
           start_in_batch(to->ordinal, address_in(to, address), (uintptr_t)from, n_bytes);
}

/* Lets copies on one GPU reach the other directly; without it the driver takes them through host
 * memory, so what fails here is no error. */
static void let_reach(int ordinal, int other)
{
    if ((gpus[ordinal].peers >> other & 1) != 0 || ordinal == other || !push(other))
        return;
    pop();
    if (!push(ordinal))
        return;
    (void)wire_gpu_load()->enable_peer(gpus[other].context, 0);
    pop();
    gpus[ordinal].peers |= 1u << other;
}

bool nic_gpu_start_copy(const struct wire_region_entry *to_region, uint64_t to,
                        const struct wire_region_entry *from_region, uint64_t from,
                        uint64_t n_bytes)
{
    const struct mapping *target = map(to_region);
    const struct mapping *source = map(from_region);
    if (target == NULL || source == NULL)
        return false;
    let_reach(target->ordinal, source->ordinal);
    return start_in_batch(target->ordinal, address_in(target, to), address_in(source, from),
                          n_bytes);
}

uint32_t nic_gpu_finish(uint64_t *n_waits_out)
{
    wait_for_all();
    const uint32_t failed = batch.failed;
    batch.failed = 0;
    *n_waits_out = batch.n_waits;
    return failed;
}

static bool is_used(const struct wire_file *file, const struct mapping *mapping)
{
    for (int i = 0; i < WIRE_MAX_REGIONS; i++) {
        const struct wire_region_entry *region = &file->regions[i];
        if (wire_load(&region->key) != 0 && region->is_gpu &&
            memcmp(&region->gpu, &mapping->place, sizeof(mapping->place)) == 0)
            return true;
    }
    return false;
}

void nic_gpu_close_unused(const struct wire_file *file)
{
    for (struct mapping **at = &mappings; *at != NULL;) {
        struct mapping *mapping = *at;
        if (is_used(file, mapping)) {
            at = &mapping->next;
            continue;
        }
        *at = mapping->next;
        if (push(mapping->ordinal)) {
            (void)WIRE_CU(ipc_close, mapping->mapped);
            pop();
        }
        free(mapping);
    }
}
