/* SPDX-License-Identifier: Apache-2.0
 *
 * A process that NICs may not read copies its own payload, request by request, into `staged` of the
 * queue pair.
 */
#include "tests/nic/verbs_wire/client/client.h"

#include <string.h>

/* Host memory in a region. The NIC takes nothing else from `staged`: inline payload, GPU memory,
 * elements that it will refuse. */
static bool is_staged(const struct wire_pair_entry *entry, const struct wire_request *request,
                      const struct wire_sge *sge)
{
    if ((request->flags & IBV_SEND_INLINE) != 0 || request->opcode == IBV_WR_RDMA_READ)
        return false;
    const struct wire_region_entry *region = wire_local_region(wire.job.file, entry, sge, 0);
    return region != NULL && !region->is_gpu;
}

/* At most `room` bytes from `offset` on. Returns how many. */
static uint64_t put(struct wire_pair_entry *entry, const struct wire_sge *sge, uint64_t offset,
                    uint64_t room)
{
    const unsigned char *from = (const unsigned char *)(uintptr_t)sge->address + offset;
    uint64_t at = entry->bytes_staged;
    const uint64_t n_bytes = sge->n_bytes - offset < room ? sge->n_bytes - offset : room;
    for (uint64_t left = n_bytes; left > 0;) {
        const uint64_t here = WIRE_RING_BYTES - at % WIRE_RING_BYTES;
        const uint64_t n = left < here ? left : here;
        memcpy(entry->staged + at % WIRE_RING_BYTES, from, n);
        from += n;
        at += n;
        left -= n;
    }
    gyre_store_release_u64(&entry->bytes_staged, at);
    return n_bytes;
}

static bool stage_request(struct wire_pair *pair)
{
    struct wire_pair_entry *entry = pair->entry;
    const struct wire_request *request = &entry->requests[pair->n_staged % entry->max_send];
    uint64_t begin = 0; /* the element's position in the request */
    for (uint32_t i = 0; i < request->n_sges; i++) {
        const struct wire_sge *sge = &request->sges[i];
        if (!is_staged(entry, request, sge))
            continue;
        if (pair->bytes_staged < begin + sge->n_bytes) {
            const uint64_t room = WIRE_RING_BYTES - (entry->bytes_staged -
                                                     gyre_load_acquire_u64(&entry->bytes_fetched));
            pair->bytes_staged += put(entry, sge, pair->bytes_staged - begin, room);
        }
        begin += sge->n_bytes;
        if (pair->bytes_staged < begin)
            return false;
    }
    return true;
}

void wire_stage(struct wire_pair *pair)
{
    struct wire_pair_entry *entry = pair->entry;
    if (wire_load(&wire.process->is_closed) == 0 || wire_load(&entry->state) != IBV_QPS_RTS)
        return;
    /* The NIC found it closed at the first request that it has not read. */
    if (!pair->is_staging)
        pair->n_staged = gyre_load_acquire_u64(&entry->n_started);
    pair->is_staging = true;
    const uint64_t before = entry->bytes_staged;
    while (pair->n_staged < entry->n_posted && stage_request(pair)) {
        pair->n_staged++;
        pair->bytes_staged = 0;
    }
    if (entry->bytes_staged != before)
        wire_announce(wire.nic, (uint32_t)(entry - wire.job.file->pairs));
}
