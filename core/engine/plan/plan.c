/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns a call into a work: chooses how the call is carried out, loads the program, and fills in
 * the work. The work of a call that came before is found again without a new choice.
 */
#include "core/engine/plan/plan.h"

#include "core/foundation/base/log.h"
#include "core/engine/plan/plan_cache.h"
#include "core/engine/plan/plan_describe.h"
#include "core/engine/plan/plan_program.h"

/* Make the call's choice, and load its program so that it can be launched with this reduction. */
static gyre_status make_ready(struct gyre_plan_cache *cache, const struct gyre_call *call,
                              const struct gyre_reduction *reduction,
                              struct gyre_choice *choice_out,
                              const struct gyre_variants **variants_out,
                              struct gyre_loaded **loaded_out)
{
    const bool is_p2p = call->coll == GYRE_COLL_SEND_RECV;
    uint16_t rank_of[2] = {0, 0};
    struct gyre_executor *executor = cache->programs.executor;
    GYRE_TRY(gyre_plan_choose(cache, call, choice_out, variants_out, rank_of));
    GYRE_TRY(gyre_programs_load(&cache->programs, *variants_out, choice_out,
                                is_p2p ? rank_of : NULL, loaded_out));
    return executor->ops->prepare(executor, *loaded_out, reduction);
}

gyre_status gyre_plan_prepare(struct gyre_plan_cache *cache, const struct gyre_call *call)
{
    const struct gyre_variants *variants;
    struct gyre_choice choice;
    struct gyre_loaded *loaded = NULL;
    if (gyre_recent_find(&cache->recent, call) != NULL)
        return GYRE_SUCCESS;
    const struct gyre_reduction reduction = gyre_call_reduction(call, cache->facts.n_ranks);
    return make_ready(cache, call, &reduction, &choice, &variants, &loaded);
}

static gyre_status make_work(struct gyre_plan_cache *cache, const struct gyre_call *call,
                             struct gyre_work *work_out, enum gyre_proto *proto_out)
{
    const struct gyre_reduction reduction = gyre_call_reduction(call, cache->facts.n_ranks);
    const uint32_t element = gyre_dtype_bytes(call->dtype);
    const struct gyre_variants *variants;
    struct gyre_choice choice;
    struct gyre_loaded *loaded = NULL;
    GYRE_TRY(make_ready(cache, call, &reduction, &choice, &variants, &loaded));
    const struct gyre_program *program = variants->programs[0];
    *work_out = (struct gyre_work){
        .loaded = loaded,
        .in = call->send,
        .out = call->recv,
        .split = {.count = call->count,
                  .n_channels = choice.n_channels,
                  .n_chunks = program->n_chunks,
                  .tile_elems = gyre_piece_bytes(choice.tile_bytes, program->max_range) / element,
                  .unit_elems = 16 / element},
        .reduction = reduction,
    };
    if (program->is_placed) {
        work_out->placement = &call->window->placement;
        work_out->out_offset_bytes = call->window_offset;
    }
    if (gyre_log_enabled(GYRE_LOG_INFO, GYRE_LOG_TUNING))
        gyre_plan_log_choice(cache, call, &choice);
    *proto_out = choice.proto;
    return GYRE_SUCCESS;
}

gyre_status gyre_plan_work(struct gyre_plan_cache *cache, const struct gyre_call *call,
                           struct gyre_work *work_out)
{
    struct gyre_recent *recent = &cache->recent;
    const bool tells = gyre_log_enabled(GYRE_LOG_INFO, GYRE_LOG_TUNING); /* each call's choice */
    const struct gyre_recent_work *known = tells ? NULL : gyre_recent_find(recent, call);
    enum gyre_proto proto;
    if (known != NULL) {
        *work_out = known->work;
        return GYRE_SUCCESS;
    }
    GYRE_TRY(make_work(cache, call, work_out, &proto));
    gyre_recent_keep(recent, call, work_out, proto);
    return GYRE_SUCCESS;
}

gyre_status gyre_plan_proto(struct gyre_plan_cache *cache, const struct gyre_call *call,
                            enum gyre_proto *proto_out)
{
    const struct gyre_recent_work *known = gyre_recent_find(&cache->recent, call);
    struct gyre_choice choice;
    if (known != NULL) {
        *proto_out = known->proto;
        return GYRE_SUCCESS;
    }
    GYRE_TRY(gyre_plan_choice(cache, call, &choice));
    *proto_out = choice.proto;
    return GYRE_SUCCESS;
}
