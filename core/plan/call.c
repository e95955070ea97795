/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the window in which a call's result lies.
 */
#include "core/plan/call.h"

void gyre_window_find(const struct gyre_windows *windows, uint32_t n_ranks, struct gyre_call *call)
{
    const bool is_gather = call->coll == GYRE_COLL_ALL_GATHER;
    const uintptr_t at = (uintptr_t)call->recv;
    const struct gyre_window_entry *entry = windows->newest;
    call->window = NULL;
    call->window_offset = 0;
    if (entry == NULL ||
        (!is_gather && call->coll != GYRE_COLL_ALL_REDUCE && call->coll != GYRE_COLL_BROADCAST))
        return;
    const uint64_t n_bytes =
        call->count * gyre_dtype_bytes(call->dtype) * (is_gather ? (uint64_t)n_ranks : 1);
    for (; entry != NULL; entry = entry->next) {
        const uintptr_t base = (uintptr_t)entry->base;
        if (at < base || at - base > entry->n_bytes || n_bytes > entry->n_bytes - (at - base))
            continue;
        call->window = entry;
        call->window_offset = at - base;
        return;
    }
}
