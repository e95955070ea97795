/* SPDX-License-Identifier: Apache-2.0
 *
 * What the proxies of connections between hosts do with slots of LL.
 */
#include "transport/lines.h"

#include "core/foundation/base/sync.h"

#include <string.h>

/* A proxy asks for the slots of all its FIFOs in each of its rounds, and a division takes long. */
static uint64_t slot_of(const struct gyre_line_slots *ring, uint64_t number)
{
    const uint32_t mask = ring->depth - 1;
    return (ring->depth & mask) == 0 ? number & mask : number % ring->depth;
}

static uint64_t *words_of(const struct gyre_line_slots *ring, uint64_t number)
{
    return (uint64_t *)(void *)(ring->slots + slot_of(ring, number) * ring->slot_bytes);
}

static uint64_t flag_of(uint64_t number)
{
    return (uint64_t)gyre_ll_flag(number) << 32;
}

bool gyre_lines_announced(const struct gyre_line_slots *ring, const struct gyre_inbox *inbox,
                          uint64_t number, uint32_t *n_lines_out)
{
    const uint64_t announcement =
        gyre_load_acquire_u64(&inbox->slot_info[GYRE_FIRST_LINE_INFO + slot_of(ring, number)]);
    const uint64_t *words = words_of(ring, number);
    *n_lines_out = (uint32_t)announcement;
    if (!gyre_ll_is_announced(announcement, number))
        return false;
    /* The last line usually comes last, so a proxy that waits for the slot mostly looks at one
     * word. */
    for (uint32_t i = 2 * *n_lines_out; i > 0; i--)
        if (gyre_load_relaxed_u64(&words[i - 1]) >> 32 != flag_of(number) >> 32)
            return false;
    return true;
}

uint32_t gyre_lines_clean(const struct gyre_line_slots *ring, uint64_t number, uint32_t n_lines)
{
    const uint32_t n_all = ring->slot_bytes / GYRE_LL_LINE_BYTES;
    uint64_t *words = words_of(ring, number);
    if (number < ring->depth || !gyre_ll_cleans(number, ring->depth))
        return n_lines;
    for (uint32_t i = 2 * n_lines; i < 2 * n_all; i++)
        gyre_store_relaxed_u64(&words[i], flag_of(number));
    return n_all;
}

void gyre_lines_unpack(const struct gyre_line_slots *ring, uint64_t number, uint32_t n_lines,
                       unsigned char *to)
{
    const uint64_t *words = words_of(ring, number);
    for (uint32_t i = 0; i < 2 * n_lines; i++) {
        const uint32_t data = (uint32_t)gyre_load_relaxed_u64(&words[i]);
        memcpy(to + i * sizeof(data), &data, sizeof(data));
    }
}

void gyre_lines_pack(const struct gyre_line_slots *ring, uint64_t number, uint32_t n_lines,
                     const unsigned char *from)
{
    uint64_t *words = words_of(ring, number);
    for (uint32_t i = 0; i < 2 * n_lines; i++) {
        uint32_t data;
        memcpy(&data, from + i * sizeof(data), sizeof(data));
        gyre_store_relaxed_u64(&words[i], flag_of(number) | data);
    }
}
