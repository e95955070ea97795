/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/plan/call.h"

void gyre_window_find(const struct gyre_windows *windows, uint32_t n_ranks, struct gyre_call *call)
{
    const bool has_blocks =
        call->coll == GYRE_COLL_ALL_GATHER || call->coll == GYRE_COLL_ALL_TO_ALL;
    const uintptr_t at = (uintptr_t)call->recv;
    const struct gyre_window_entry *entry = windows->newest;
    call->window = NULL;
    call->window_offset = 0;
    if (entry == NULL ||
        (!has_blocks && call->coll != GYRE_COLL_ALL_REDUCE && call->coll != GYRE_COLL_BROADCAST))
        return;
    const uint64_t n_bytes =
        call->count * gyre_dtype_bytes(call->dtype) * (has_blocks ? (uint64_t)n_ranks : 1);
    for (; entry != NULL; entry = entry->next) {
        const uintptr_t base = (uintptr_t)entry->base;
        if (entry->is_remote || at < base || at - base > entry->n_bytes ||
            n_bytes > entry->n_bytes - (at - base))
            continue;
        call->window = entry;
        call->window_offset = at - base;
        return;
    }
}

struct gyre_reduction gyre_call_reduction(const struct gyre_call *call, uint32_t n_ranks)
{
    struct gyre_reduction reduction = {
        .dtype = (uint8_t)call->dtype, .op = (uint8_t)call->op, .divisor = 1};
    if (!gyre_collectives[call->coll].reduces) {
        reduction.op = GYRE_SUM;
    } else if ((int)call->op >= GYRE_FIRST_USER_OP) {
        reduction.op = GYRE_SUM;
        reduction.premultiply = 1;
        reduction.scalar = call->scalar;
    } else if (call->op == GYRE_AVG) {
        reduction.op = GYRE_SUM;
        if (gyre_dtype_is_float(call->dtype)) {
            reduction.premultiply = n_ranks > 1;
            reduction.scalar = gyre_premultiply_scalar(call->dtype, n_ranks);
        } else {
            reduction.divisor = n_ranks;
        }
    }
    return reduction;
}
