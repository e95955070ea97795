/* SPDX-License-Identifier: Apache-2.0
 *
 * Slots of LL between hosts, into which a NIC or the proxy writes lines. Steps work on plain bytes.
 */
#include "kernels/host/host_exec.h"

#include "core/foundation/base/sync.h"
#include "core/foundation/model/line.h"

#include <string.h>

static uint64_t *words_of(const struct gyre_host_end *end)
{
    return (uint64_t *)(void *)(end->slots + (size_t)end->slot * end->slot_bytes);
}

bool gyre_host_lines_arrived(struct gyre_host_end *end, uint64_t n_bytes)
{
    const uint64_t flag = gyre_ll_flag(end->n_moved);
    const uint64_t n_words = 2ULL * gyre_ll_lines(n_bytes);
    const uint64_t *words = words_of(end);
    /* Each word carries its flag, so loads need no order. */
    while (end->n_seen < n_words && gyre_load_relaxed_u64(&words[end->n_seen]) >> 32 == flag)
        end->n_seen++;
    return end->n_seen >= n_words;
}

void gyre_host_lines_unpack(const struct gyre_host_end *end, unsigned char *to, uint64_t n_bytes)
{
    const uint64_t *words = words_of(end);
    const uint64_t n_whole = n_bytes / sizeof(uint32_t);
    uint32_t data;
    for (uint64_t i = 0; i < n_whole; i++) {
        data = (uint32_t)gyre_load_relaxed_u64(&words[i]);
        memcpy(to + i * sizeof(data), &data, sizeof(data));
    }
    if (n_bytes % sizeof(data) != 0) {
        data = (uint32_t)gyre_load_relaxed_u64(&words[n_whole]);
        memcpy(to + n_whole * sizeof(data), &data, n_bytes % sizeof(data));
    }
}

void gyre_host_lines_send(const struct gyre_host_end *end, const unsigned char *from,
                          uint64_t n_bytes)
{
    const uint64_t flag = (uint64_t)gyre_ll_flag(end->n_moved) << 32;
    const uint32_t n_lines = gyre_ll_lines(n_bytes);
    const uint64_t n_whole = n_bytes / sizeof(uint32_t);
    uint64_t *words = words_of(end);
    uint32_t data;
    for (uint64_t i = 0; i < n_whole; i++) {
        memcpy(&data, from + i * sizeof(data), sizeof(data));
        gyre_store_relaxed_u64(&words[i], flag | data);
    }
    for (uint64_t i = n_whole; i < 2ULL * n_lines; i++) {
        data = 0;
        if (i * sizeof(data) < n_bytes)
            memcpy(&data, from + i * sizeof(data), n_bytes % sizeof(data));
        gyre_store_relaxed_u64(&words[i], flag | data);
    }
    gyre_store_release_u64(&end->inbox->slot_info[GYRE_FIRST_LINE_INFO + end->slot],
                           gyre_ll_announcement(end->n_moved, n_lines));
}
