/* SPDX-License-Identifier: Apache-2.0
 *
 * An allocation is opened by CUDA IPC when a request first names it, in primary contexts of this
 * process, so no call waits for a client's context. It is closed when no region is in it any more.
 *
 * A copy between GPUs runs in the context of the target's GPU, where the source is opened, too:
 * else CUDA orders the two contexts, which makes each copy slow.
 *
 * Each GPU has a stream for the copies into its memory, which are waited for together, and one for
 * those to this process.
 */
#include "tests/nic/verbs_wire/nic/nic.h"

#include "tests/nic/verbs_wire/gpu.h"
#include "tests/nic/verbs_wire/say.h"

#include <stdlib.h>
#include <string.h>

#define MAX_GPUS            16
#define STREAM_NON_BLOCKING 1 /* cuda.h */
#define IPC_LAZY_PEER       1
#define MAX_COPIES          64 /* on a stream */
#define BUFFER_BYTES        ((uint64_t)4 * NIC_BOUNCE_BYTES)

static struct {
    void *context;
    void *stream;
    uint32_t closed;   /* bit: GPU whose memory its context cannot open */
    uint32_t n_copies; /* started and not waited for */
} gpus[MAX_GPUS];      /* kept until the process ends */

/* Waited for together. */
static struct {
    uint32_t failed; /* bit: GPU; copies into it may not be in place */
    uint64_t n_waits;
    uint64_t n_used; /* bytes of `buffer` */
    unsigned char buffer[BUFFER_BYTES];
} batch;

struct mapping {
    struct wire_gpu_place place;
    int context;               /* GPU of its context */
    unsigned long long mapped; /* address in this process */
    struct mapping *next;
};

static struct mapping *mappings;

/* The stream is made on the first use. */
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

static struct wire_uuid uuids[MAX_GPUS];
static int n_uuids = -1; /* not asked for yet */

static void ask_for_uuids(void)
{
    int n = 0;
    n_uuids = 0;
    if (wire_gpu_load() == NULL || !WIRE_CU(count, &n))
        return;
    for (int i = 0; i < n && i < MAX_GPUS; i++) {
        int device;
        if (!WIRE_CU(device, &device, i) || !WIRE_CU(uuid, &uuids[i], device))
            return;
        n_uuids = i + 1;
    }
}

static int find_gpu(const unsigned char *uuid)
{
    if (n_uuids < 0)
        ask_for_uuids();
    for (int i = 0; i < n_uuids; i++)
        if (memcmp(uuids[i].bytes, uuid, sizeof(uuids[i].bytes)) == 0)
            return i;
    wire_say("a client's GPU is none of the %d that its NIC sees", n_uuids);
    return -1;
}

static const struct mapping *find_mapping(const struct wire_region_entry *region, int context)
{
    const struct mapping *mapping = mappings;
    while (mapping != NULL && (mapping->context != context ||
                               memcmp(&mapping->place, &region->gpu, sizeof(region->gpu)) != 0))
        mapping = mapping->next;
    return mapping;
}

/* Made now if there is none. */
static const struct mapping *map(const struct wire_region_entry *region, int context)
{
    struct wire_ipc_handle handle;
    unsigned long long mapped = 0;
    const struct mapping *known = find_mapping(region, context);
    if (known != NULL)
        return known;
    if (!push(context))
        return NULL;
    memcpy(handle.bytes, region->gpu.ipc, sizeof(handle.bytes));
    const bool is_open = WIRE_CU(ipc_open, &mapped, handle, IPC_LAZY_PEER);
    pop();
    struct mapping *mapping = is_open ? calloc(1, sizeof(*mapping)) : NULL;
    if (mapping == NULL)
        return NULL;
    *mapping = (struct mapping){
        .place = region->gpu, .context = context, .mapped = mapped, .next = mappings};
    mappings = mapping;
    return mapping;
}

static unsigned long long address_in(const struct mapping *mapping, uint64_t address)
{
    return mapping->mapped + (address - mapping->place.allocation);
}

int nic_gpu_of(const struct wire_region_entry *region)
{
    return find_gpu(region->gpu.uuid);
}

/* Which copy has failed is not known. */
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
    const int gpu = nic_gpu_of(region);
    const struct mapping *from = gpu >= 0 ? map(region, gpu) : NULL;
    return from != NULL && start(gpu, (uintptr_t)to, address_in(from, address), n_bytes) &&
           wait_for_stream(gpu);
}

bool nic_gpu_write(const struct wire_region_entry *region, uint64_t address, const void *from,
                   uint64_t n_bytes)
{
    const int gpu = nic_gpu_of(region);
    const struct mapping *to = gpu >= 0 ? map(region, gpu) : NULL;
    return to != NULL && start(gpu, address_in(to, address), (uintptr_t)from, n_bytes) &&
           wait_for_stream(gpu);
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
    const int gpu = nic_gpu_of(region);
    const struct mapping *to = gpu >= 0 ? map(region, gpu) : NULL;
    return to != NULL && start_in_batch(gpu, address_in(to, address), (uintptr_t)from, n_bytes);
}

/* Where the GPU cannot reach the source's, that is opened in its own context, and the driver copies
 * through host memory. */
static const struct mapping *map_source(const struct wire_region_entry *region, int gpu)
{
    const int own = nic_gpu_of(region);
    const struct mapping *mapping = NULL;
    if (own < 0)
        return NULL;
    if ((gpus[gpu].closed >> own & 1) == 0)
        mapping = map(region, gpu);
    if (mapping != NULL || own == gpu)
        return mapping;
    mapping = map(region, own);
    if (mapping != NULL) /* so the GPUs cannot */
        gpus[gpu].closed |= 1u << own;
    return mapping;
}

bool nic_gpu_start_copy(const struct wire_region_entry *to_region, uint64_t to,
                        const struct wire_region_entry *from_region, uint64_t from,
                        uint64_t n_bytes)
{
    const int gpu = nic_gpu_of(to_region);
    const struct mapping *target = gpu >= 0 ? map(to_region, gpu) : NULL;
    const struct mapping *source = target != NULL ? map_source(from_region, gpu) : NULL;
    return source != NULL &&
           start_in_batch(gpu, address_in(target, to), address_in(source, from), n_bytes);
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
        if (push(mapping->context)) {
            (void)WIRE_CU(ipc_close, mapping->mapped);
            pop();
        }
        free(mapping);
    }
}
