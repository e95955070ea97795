/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/plan/plan.h"

#include "core/foundation/base/log.h"
#include "core/engine/plan/plan_cache.h"
#include "core/engine/plan/plan_describe.h"
#include "core/engine/plan/plan_choice.h"

#include <errno.h>
#include <stdlib.h>

/* Plans are made from their key alone, so none depends on a fact that the key lacks. */
static struct gyre_call call_of(const struct gyre_plan_key *key)
{
    static const struct gyre_window_entry small_pages, large_pages = {.has_large_pages = true};
    struct gyre_call call = {
        .coll = (enum gyre_collective)key->coll,
        .count = key->count,
        .dtype = (gyre_dtype)key->dtype,
        .op = (gyre_op)key->op,
        .root = key->root,
        .is_send = (key->flags & GYRE_KEY_SEND) != 0,
        .terms = key->terms,
    };
    if ((key->flags & GYRE_KEY_IN_WINDOW) != 0)
        call.window = (key->flags & GYRE_KEY_LARGE_PAGES) != 0 ? &large_pages : &small_pages;
    return call;
}

static gyre_status make_plan(struct gyre_plan_cache *cache, const struct gyre_plan_key *key,
                             struct gyre_plan *plan)
{
    struct gyre_executor *executor = cache->programs.executor;
    const struct gyre_call call = call_of(key);
    const bool is_p2p = call.coll == GYRE_COLL_SEND_RECV;
    const uint32_t element = gyre_dtype_bytes(call.dtype);
    uint16_t rank_of[2] = {0, 0};
    struct gyre_ready wanted = {
        .reduction = gyre_call_reduction(&call, cache->facts.n_ranks),
        .is_in_place = (key->flags & GYRE_KEY_IN_PLACE) != 0,
    };
    plan->key = *key;
    plan->scalar = wanted.reduction.scalar;
    GYRE_TRY(gyre_plan_choose(cache, &call, &plan->choice, &plan->variants, rank_of));
    GYRE_TRY(gyre_programs_load(&cache->programs, plan->variants, &plan->choice,
                                is_p2p ? rank_of : NULL, &wanted.loaded));
    const struct gyre_program *program = plan->variants->programs[0];
    plan->is_placed = program->is_placed;
    plan->waits =
        call.count > 0 && cache->facts.n_ranks > 1 && !(is_p2p && call.root == cache->member->rank);
    wanted.is_aligned = (key->flags & GYRE_KEY_ALIGNED) != 0 &&
                        (!plan->is_placed || (key->flags & GYRE_KEY_WINDOW_ALIGNED) != 0);
    wanted.split = (struct gyre_split){
        .count = call.count,
        .n_channels = plan->choice.n_channels,
        .n_chunks = program->n_chunks,
        .tile_elems = gyre_piece_bytes(plan->choice.tile_bytes, program->max_range) / element,
        .unit_elems = 16 / element,
    };
    return executor->ops->ready(executor, &wanted, &plan->ready);
}

gyre_status gyre_plan_get(struct gyre_plan_cache *cache, const struct gyre_call *call,
                          const struct gyre_plan **plan_out)
{
    struct gyre_plan_key key;
    /* In place, because copying fields that were just written takes 10 ns. */
    const struct gyre_collective_traits *traits = &gyre_collectives[call->coll];
    const struct gyre_window_entry *window = call->window;
    const uint64_t block_bytes = call->count * gyre_dtype_bytes(call->dtype);
    const uintptr_t addresses = (uintptr_t)call->send | (uintptr_t)call->recv;
    uint32_t op = traits->reduces ? (uint32_t)call->op : GYRE_SUM, flags = 0;
    if (op > GYRE_FIRST_USER_OP)
        op = GYRE_FIRST_USER_OP;
    if (call->is_send)
        flags |= GYRE_KEY_SEND;
    if (call->send == call->recv)
        flags |= GYRE_KEY_IN_PLACE;
    if (((addresses | block_bytes) & 15) == 0)
        flags |= GYRE_KEY_ALIGNED;
    if (window != NULL) {
        const uint64_t place = (uint64_t)window->residue + call->window_offset;
        flags |= GYRE_KEY_IN_WINDOW;
        if (window->has_large_pages)
            flags |= GYRE_KEY_LARGE_PAGES;
        if (window->residue >= 0 && (place & 15) == 0)
            flags |= GYRE_KEY_WINDOW_ALIGNED;
    }
    key = (struct gyre_plan_key){
        .count = call->count,
        .terms = call->terms,
        .settings = cache->settings,
        .root = traits->has_root ? call->root : -1,
        .flags = (uint16_t)flags,
        .coll = (uint8_t)call->coll,
        .dtype = (uint8_t)call->dtype,
        .op = (uint8_t)op,
    };
    *plan_out = gyre_plan_table_find(&cache->plans, &key);
    if (*plan_out != NULL)
        return GYRE_SUCCESS;
    struct gyre_plan *plan = calloc(1, sizeof(*plan));
    if (plan == NULL)
        return gyre_fail_errno(ENOMEM, "plan of %s", gyre_collectives[call->coll].name);
    const gyre_status status = make_plan(cache, &key, plan);
    if (status != GYRE_SUCCESS) {
        free(plan);
        return status;
    }
    cache->n_made++;
    gyre_plan_table_add(&cache->plans, plan);
    *plan_out = plan;
    return GYRE_SUCCESS;
}

void gyre_plan_sweep(struct gyre_plan_cache *cache)
{
    gyre_plan_table_sweep(&cache->plans);
}

uint64_t gyre_plans_made(const struct gyre_plan_cache *cache)
{
    return cache->n_made;
}

void gyre_plan_work(struct gyre_plan_cache *cache, const struct gyre_plan *plan,
                    const struct gyre_call *call, struct gyre_work *work_out)
{
    *work_out = (struct gyre_work){
        .ready = plan->ready,
        .in = call->send,
        .out = call->recv,
        .scalar = plan->key.op == GYRE_FIRST_USER_OP ? call->scalar : plan->scalar,
    };
    if (plan->is_placed) {
        work_out->placement = &call->window->placement;
        work_out->out_offset_bytes = call->window_offset;
    }
    if (gyre_log_enabled(GYRE_LOG_INFO, GYRE_LOG_TUNING))
        gyre_plan_log_choice(cache, call, &plan->choice, &plan->ready->run);
}
