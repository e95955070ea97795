/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/plan/plan.h"

#include "core/engine/plan/plan_cache.h"
#include "core/foundation/base/log.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* 0 if there is no prediction. */
static double predict_us(struct gyre_plan_cache *cache, enum gyre_collective coll,
                         const struct gyre_choice *choice, uint64_t n_bytes)
{
    double time_ns;
    if (coll == GYRE_COLL_SEND_RECV || choice->path == GYRE_PATH_COPY_ENGINE ||
        gyre_tuner_predict(&cache->facts, gyre_plan_cost(cache), coll, choice, n_bytes, &time_ns) !=
            GYRE_SUCCESS)
        return 0;
    return time_ns / 1e3;
}

/* Not inlined, because gyre_plan_work() is part of every call. */
__attribute__((noinline)) static void log_choice(struct gyre_plan_cache *cache,
                                                 const struct gyre_call *call,
                                                 const struct gyre_choice *choice,
                                                 const struct gyre_run *run)
{
    const uint64_t n_bytes = call->count * gyre_dtype_bytes(call->dtype);
    const double us = predict_us(cache, call->coll, choice, n_bytes);
    const struct gyre_shape shape = {.coll = call->coll,
                                     .n_ranks = (uint16_t)cache->facts.n_ranks,
                                     .grouping = cache->facts.grouping};
    const double bound_us =
        gyre_bound_ns(&shape, gyre_plan_cost(cache),
                      gyre_tuner_all_bytes(&cache->facts, call->coll, n_bytes)) /
        1e3;
    char prediction[96] = "", share[32] = "", kernel[64] = "", won[192];
    /* unknown, as on one host without its links' rates */
    if (us > 0 && bound_us > 0)
        snprintf(share, sizeof(share), ", %.0f%% of the bound", 100 * bound_us / us);
    if (us > 0)
        gyre_text_format(prediction, sizeof(prediction), ", predicted %.2f us (%s constants)%s", us,
                         cache->is_tuned ? "measured" : "shipped", share);
    /* " (h200.rows:35,146,182)": the rows that chose. */
    const char *file = NULL;
    won[0] = '\0';
    for (int i = 0; i < GYRE_N_WON; i++) {
        const struct gyre_row *row = choice->won[i];
        if (row == NULL)
            continue;
        const bool is_same = row->file == file;
        gyre_text_append(won, sizeof(won), "%s%s%s%u",
                         is_same        ? ","
                         : file != NULL ? " "
                                        : " (",
                         is_same ? "" : row->file, is_same ? "" : ":", row->line);
        file = row->file;
    }
    if (file != NULL)
        gyre_text_append(won, sizeof(won), ")");
    if (run->kernel != NULL)
        snprintf(kernel, sizeof(kernel), ", kernel %s (kernels:%u)", run->kernel, run->row);
    const char *path_name = choice->path == GYRE_PATH_STAGED ? "" : gyre_path_names[choice->path];
    const bool is_mixed =
        call->coll != GYRE_COLL_SEND_RECV && gyre_tuner_mixes_protos(&cache->facts, choice);
    GYRE_INFO(TUNING, "%s %" PRIu64 " B: %s%s %s%s%s%s%s, %u channels, tiles of %u B%s%s%s",
              gyre_collectives[call->coll].name, n_bytes, choice->algorithm->name,
              choice->algorithm->given != NULL ? " (from the file)" : "",
              gyre_proto_names[choice->proto], is_mixed ? "/" : "",
              is_mixed ? gyre_proto_names[choice->net_proto] : "", path_name[0] != '\0' ? " " : "",
              path_name, choice->n_channels, choice->tile_bytes, prediction, won, kernel);
}

gyre_status gyre_plan_describe(struct gyre_plan_cache *cache, const struct gyre_call *call,
                               struct gyre_plan_summary *summary_out)
{
    struct gyre_call found = *call;
    struct gyre_choice choice;
    const struct gyre_variants *variants;
    uint16_t rank_of[2];
    gyre_window_find(cache->windows, cache->facts.n_ranks, &found);
    GYRE_TRY(gyre_plan_choose(cache, &found, &choice, &variants, rank_of));
    /* If copy engines carry the call, a kernel copies only this rank's own block. */
    struct gyre_plan_summary summary = {
        .n_channels = choice.n_channels,
        .slot_bytes = choice.tile_bytes,
        .n_blocks = choice.path == GYRE_PATH_COPY_ENGINE &&
                            gyre_program_copy_tail(variants->programs[0]) == 0
                        ? GYRE_COPY_BLOCKS
                        : choice.n_channels * variants->most_workers};
    summary.predicted_us =
        predict_us(cache, call->coll, &choice, call->count * gyre_dtype_bytes(call->dtype));
    snprintf(summary.algorithm, sizeof(summary.algorithm), "%s", choice.algorithm->name);
    snprintf(summary.proto, sizeof(summary.proto), "%s", gyre_proto_names[choice.proto]);
    if (cache->facts.is_proxied)
        snprintf(summary.net_proto, sizeof(summary.net_proto), "%s",
                 gyre_proto_names[choice.net_proto]);
    snprintf(summary.path, sizeof(summary.path), "%s", gyre_path_names[choice.path]);
    snprintf(summary.transports, sizeof(summary.transports), "%s", cache->links->summary);
    *summary_out = summary;
    return GYRE_SUCCESS;
}

static gyre_status make_plan(struct gyre_plan_cache *cache, const struct gyre_plan_key *key,
                             struct gyre_plan *plan)
{
    struct gyre_executor *executor = cache->programs.executor;
    /* Plans are made from their key alone, so none depends on a fact that the key lacks. */
    static const struct gyre_window_entry small_pages, large_pages = {.has_large_pages = true};
    struct gyre_call call = {
        .coll = (enum gyre_collective)key->coll,
        .count = key->count,
        .dtype = (gyre_dtype)key->dtype,
        .op = (gyre_op)key->op,
        .root = key->root,
        .is_send = (key->flags & GYRE_KEY_SEND) != 0,
        .options = key->options,
    };
    if ((key->flags & GYRE_KEY_IN_WINDOW) != 0)
        call.window = (key->flags & GYRE_KEY_LARGE_PAGES) != 0 ? &large_pages : &small_pages;
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
        call.count > 0 && cache->facts.n_ranks > 1 && !(is_p2p && call.root == cache->self->rank);
    wanted.is_aligned = (key->flags & GYRE_KEY_ALIGNED) != 0 &&
                        (!plan->is_placed || (key->flags & GYRE_KEY_WINDOW_ALIGNED) != 0);
    wanted.split = (struct gyre_split){
        .count = call.count,
        .n_channels = plan->choice.n_channels,
        .n_chunks = program->n_chunks,
        .tile_elems = gyre_piece_bytes(plan->choice.tile_bytes, program->max_range) / element,
        .unit_elems = 16 / element,
    };
    if (program->max_range > 1) { /* pieces lie as far apart in a slot as tiles are long */
        const uint64_t longest = gyre_chunk_range(&wanted.split, 0, 0).n_elems;
        const uint64_t least = gyre_round_up(gyre_max_u64(longest, 1), wanted.split.unit_elems);
        wanted.split.tile_elems = (uint32_t)gyre_min_u64(wanted.split.tile_elems, least);
    }
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
        .options = call->options,
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
        log_choice(cache, call, &plan->choice, &plan->ready->run);
}
