/* SPDX-License-Identifier: Apache-2.0
 *
 * GPU memory of clients. An allocation is opened by CUDA IPC when a request first names it, in the
 * primary context of its GPU in this process, so no call waits for what a client does in its own
 * context. A resident kernel on another GPU needs it opened in the context of that GPU, too. It is
 * closed when no region is in it any more.
 */
#include "tests/nic/verbs_wire/nic/nic.h"

#include "tests/nic/verbs_wire/gpu.h"
#include "tests/nic/verbs_wire/nic/nic_gpu.h"
#include "tests/nic/verbs_wire/say.h"

#include <stdlib.h>
#include <string.h>

#define IPC_LAZY_PEER 1 /* cuda.h */

struct mapping {
    struct wire_gpu_place place;
    int home;                  /* the GPU whose memory it is */
    int ordinal;               /* the GPU in whose context it is open */
    unsigned long long mapped; /* address of place.allocation in this process; 0 = it failed */
    struct mapping *next;
};

static struct mapping *mappings;

static struct mapping *find(const struct wire_gpu_place *place, int ordinal)
{
    struct mapping *mapping = mappings;
    while (mapping != NULL && ((ordinal < 0 ? mapping->home : ordinal) != mapping->ordinal ||
                               memcmp(&mapping->place, place, sizeof(*place)) != 0))
        mapping = mapping->next;
    return mapping;
}

/* The mapping of a region's allocation in the context of a GPU, made now if there is none.
 * @ordinal: -1 = the GPU whose memory it is. What fails for another GPU is remembered: the driver
 * makes those copies. */
static const struct mapping *map(const struct wire_region_entry *region, int ordinal)
{
    struct wire_ipc_handle handle;
    struct mapping *mapping = find(&region->gpu, ordinal);
    if (mapping != NULL)
        return mapping->mapped != 0 ? mapping : NULL;
    const int home = nic_gpu_find(region->gpu.uuid);
    const int where = ordinal < 0 ? home : ordinal;
    nic_gpu_pause();
    if (home < 0 || !nic_gpu_push(where))
        return NULL;
    unsigned long long mapped = 0;
    memcpy(handle.bytes, region->gpu.ipc, sizeof(handle.bytes));
    const bool is_open = WIRE_CU(ipc_open, &mapped, handle, IPC_LAZY_PEER);
    nic_gpu_pop();
    mapping = is_open || where != home ? calloc(1, sizeof(*mapping)) : NULL;
    if (mapping == NULL)
        return NULL;
    *mapping = (struct mapping){.place = region->gpu,
                                .home = home,
                                .ordinal = where,
                                .mapped = is_open ? mapped : 0,
                                .next = mappings};
    mappings = mapping;
    return is_open ? mapping : NULL;
}

static unsigned long long address_in(const struct mapping *mapping, uint64_t address)
{
    return mapping->mapped + (address - mapping->place.allocation);
}

bool nic_gpu_read(const struct wire_region_entry *region, uint64_t address, void *to,
                  uint64_t n_bytes)
{
    const struct mapping *from = map(region, -1);
    return from != NULL &&
           nic_gpu_move(from->ordinal, (uintptr_t)to, address_in(from, address), n_bytes);
}

bool nic_gpu_write(const struct wire_region_entry *region, uint64_t address, const void *from,
                   uint64_t n_bytes)
{
    const struct mapping *to = map(region, -1);
    return to != NULL &&
           nic_gpu_move(to->ordinal, address_in(to, address), (uintptr_t)from, n_bytes);
}

bool nic_gpu_copy(const struct wire_region_entry *to_region, uint64_t to,
                  const struct wire_region_entry *from_region, uint64_t from, uint64_t n_bytes)
{
    const struct mapping *target = map(to_region, -1);
    const struct mapping *source = map(from_region, -1);
    if (target == NULL || source == NULL)
        return false;
    const int ordinal = source->ordinal;
    if (target->ordinal == ordinal)
        return nic_gpu_move(ordinal, address_in(target, to), address_in(source, from), n_bytes);
    nic_gpu_let_reach(ordinal, target->ordinal);
    const struct mapping *here =
        nic_gpu_has_kernel(ordinal, n_bytes) ? map(to_region, ordinal) : NULL;
    if (here != NULL)
        return nic_gpu_move(ordinal, address_in(here, to), address_in(source, from), n_bytes);
    return nic_gpu_move_by_driver(ordinal, address_in(target, to), address_in(source, from),
                                  n_bytes);
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
        nic_gpu_pause();
        if (mapping->mapped != 0 && nic_gpu_push(mapping->ordinal)) {
            (void)WIRE_CU(ipc_close, mapping->mapped);
            nic_gpu_pop();
        }
        free(mapping);
    }
}
