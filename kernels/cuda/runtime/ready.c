/* SPDX-License-Identifier: Apache-2.0
 *
 * Everything of a launch that does not depend on a call's buffers, once for each plan and for each
 * pair of a send and a receive.
 */
#include "kernels/cuda/host/lower.h"
#include "kernels/cuda/runtime/state.h"

#include "core/foundation/base/sync.h"

#include <stdlib.h>

static uint32_t element_of(const struct gyre_ready *ready)
{
    return gyre_dtype_bytes((gyre_dtype)ready->reduction.dtype);
}

static bool places_blocks(const struct gyre_cuda_executor *executor,
                          const struct gyre_cuda_ready *ready, uint32_t n_places)
{
    return ready->base.loaded->proto == GYRE_PROTO_SIMPLE && n_places < executor->n_sms &&
           ready->transferred_bytes >= executor->block_placement_bytes;
}

/* Recorded fused launches have both ends with each peer, and one row of blocks. */
static void choose_form(const struct gyre_cuda_executor *executor,
                        const struct gyre_cuda_ready *ready, enum gyre_fused_pattern pattern,
                        bool is_in_place, bool records, struct gyre_cuda_form *form)
{
    const struct gyre_loaded *loaded = ready->base.loaded;
    const struct gyre_reduction *reduction = &ready->base.reduction;
    struct gyre_fused_call call = loaded->fused_call;
    call.pattern = records && gyre_fused_is_message(pattern) ? GYRE_FUSED_NONE : pattern;
    call.arithmetic =
        !gyre_fused_patterns[ready->base.loaded->fused_call.pattern].reduces
            ? gyre_cuda_only_copies(ready->base.loaded, &ready->base.reduction) ? GYRE_FUSED_COPY
                                                                                : GYRE_FUSED_OTHER
        : gyre_lamport_adds((gyre_dtype)ready->base.reduction.dtype, ready->base.reduction.op)
            ? GYRE_FUSED_FLOAT_SUM
            : GYRE_FUSED_OTHER;
    call.is_aligned = ready->base.is_aligned &&
                      ready->base.split.count * element_of(&ready->base) % 16 == 0 &&
                      ready->base.split.unit_elems * element_of(&ready->base) == 16;
    call.is_unscaled = reduction->premultiply == 0 && reduction->divisor <= 1;
    call.places_blocks = places_blocks(executor, ready, loaded->n_channels);
    call.n_channels = loaded->n_channels;
    call.n_tiles = (uint32_t)gyre_min_u64(gyre_tile_count(&ready->base.split), UINT32_MAX);
    call.step_bytes = ready->step_bytes;
    call.fits_two_rows = !records && !is_in_place && 2 * loaded->n_channels <= executor->n_sms;
    gyre_kernel_choose(&call, &form->run);
    if (form->run.kernel != NULL) {
        if (form->run.places_blocks)
            form->run.n_blocks = (uint16_t)executor->n_sms;
        for (int is_lean = 0; is_lean < 2; is_lean++)
            form->kernels[is_lean] =
                gyre_cuda_fused_function(&form->run, &call, reduction, is_lean != 0);
        return;
    }
    const uint32_t n_places = loaded->n_channels * loaded->n_workers;
    form->run.places_blocks = places_blocks(executor, ready, n_places);
    form->run.n_blocks = (uint16_t)(form->run.places_blocks ? executor->n_sms : n_places);
    form->run.n_threads =
        (uint16_t)gyre_cuda_block_threads(loaded->proto, ready->step_bytes, loaded->n_threads);
    form->run.shared_bytes = loaded->shared_bytes;
    for (int is_lean = 0; is_lean < 2; is_lean++)
        form->kernels[is_lean] = gyre_cuda_interpreter_function(
            loaded->proto, gyre_cuda_only_copies(loaded, reduction), reduction->dtype,
            reduction->op, is_lean != 0 && !loaded->is_proxied);
}

static gyre_status allow_interpreters(const struct gyre_ready *ready, bool is_lean)
{
    const struct gyre_loaded *loaded = ready->loaded;
    const bool copies = gyre_cuda_only_copies(loaded, &ready->reduction);
    const uint32_t numbers[] = {1, GYRE_CUDA_MAX_WORKS}; /* few and many */
    GYRE_TRY(gyre_cuda_allow_shared(gyre_cuda_interpreter_function(loaded->proto, copies,
                                                                   ready->reduction.dtype,
                                                                   ready->reduction.op, is_lean),
                                    loaded->shared_bytes));
    for (int i = 0; i < 2 && copies; i++) {
        GYRE_TRY(gyre_cuda_allow_shared(
            gyre_cuda_copier_function(loaded->proto, numbers[i], is_lean), loaded->shared_bytes));
        GYRE_TRY(
            gyre_cuda_allow_shared(gyre_cuda_mixer_function(numbers[i]), loaded->shared_bytes));
    }
    return GYRE_SUCCESS;
}

static gyre_status check(const struct gyre_cuda_executor *executor, const struct gyre_ready *wanted)
{
    const struct gyre_loaded *loaded = wanted->loaded;
    const struct gyre_ready_needs needs = {
        .n_channels = loaded->n_channels,
        .n_chunks = loaded->n_chunks,
        .most_tile_bytes =
            loaded->n_connections + loaded->n_areas > 0 ? loaded->tile_bytes : UINT64_MAX,
    };
    GYRE_TRY(gyre_ready_check(wanted, &needs));
    if (loaded->proto == GYRE_PROTO_LAMPORT &&
        !gyre_lamport_adds((gyre_dtype)wanted->reduction.dtype, wanted->reduction.op))
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "protocol lamport is for sums of floating point of 16 bits at least, not "
                         "for %s of %s",
                         gyre_op_names[wanted->reduction.op],
                         gyre_dtype_names[wanted->reduction.dtype]);
    if (loaded->program == NULL || loaded->shared_bytes <= executor->default_shared_bytes)
        return GYRE_SUCCESS;
    struct gyre_cuda_apart apart = {0};
    GYRE_TRY(gyre_cuda_enter_apart(executor->device->ordinal, &apart));
    gyre_status status = allow_interpreters(wanted, false);
    if (status == GYRE_SUCCESS)
        status = allow_interpreters(wanted, true);
    gyre_cuda_leave_apart(&apart);
    return status;
}

gyre_status gyre_cuda_ready(struct gyre_executor *base, const struct gyre_ready *wanted,
                            struct gyre_ready **ready_out)
{
    struct gyre_cuda_executor *executor = gyre_cuda_own(base);
    const struct gyre_loaded *loaded = wanted->loaded;
    GYRE_TRY(check(executor, wanted));
    const bool is_message = gyre_fused_is_message(loaded->fused_call.pattern);
    struct gyre_cuda_ready *ready =
        calloc(1, is_message ? sizeof(*ready) + sizeof(*ready->pair) : sizeof(*ready));
    if (ready == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "a plan of %zu bytes", sizeof(*ready));
    ready->base = *wanted;
    ready->pair = is_message ? (struct gyre_cuda_pair *)(ready + 1) : NULL;
    const struct gyre_split *split = &wanted->split;
    const uint64_t chunk_elems =
        gyre_div_round_up(split->count, (uint64_t)split->n_channels * split->n_chunks) +
        split->unit_elems;
    ready->step_bytes = gyre_min_u64(chunk_elems, split->tile_elems) * element_of(wanted);
    ready->transferred_bytes = gyre_div_round_up(wanted->split.count, wanted->split.n_chunks) *
                               loaded->n_transfers * element_of(wanted);
    for (int records = 0; records < 2; records++)
        choose_form(executor, ready, loaded->fused_call.pattern, wanted->is_in_place, records != 0,
                    &ready->forms[records]);
    ready->args.work = (struct gyre_cuda_work){
        .split = gyre_cuda_split_make(&wanted->split),
        .divisor = wanted->reduction.divisor,
        .channel_stride = loaded->channel_stride,
        .area_bytes = loaded->area_bytes,
        .n_areas = loaded->n_areas,
        .elem_bytes = (uint8_t)element_of(wanted),
        .premultiply = wanted->reduction.premultiply,
        .in_blocks = loaded->in_blocks,
        .out_blocks = loaded->out_blocks,
        .n_workers = (uint16_t)loaded->n_workers,
        .n_variants = (uint16_t)loaded->n_variants,
        .n_in_flight = loaded->n_in_flight,
        .posts_late = loaded->posts_late,
        .shares_steps = loaded->shares_steps,
        .max_connections = loaded->max_connections,
        .traced = loaded->traced,
    };
    /* Offsets become bytes, and peers are rotated (struct gyre_cuda_fused). */
    const uint32_t n_peers = loaded->fused.n_peers;
    const bool is_rotated = loaded->proto == GYRE_PROTO_LAMPORT ||
                            (loaded->proto == GYRE_PROTO_SIMPLE && loaded->fused.reduces != 0);
    const uint32_t first = is_rotated ? loaded->fused.own_place : 0;
    const uint64_t n_bytes = wanted->split.count * element_of(wanted);
    ready->args.fused = loaded->fused;
    ready->args.fused.own_offset *= n_bytes;
    ready->args.fused.own_out_offset *= n_bytes;
    /* A send that fills a FIFO leaves no room for the peer's next one. It gives credit ahead
     * (fused_message.cuh). */
    if (loaded->fused_call.pattern == GYRE_FUSED_SEND &&
        gyre_tile_count(&wanted->split) >= ready->args.fused.depth)
        ready->args.fused.n_channels_behind = (uint16_t)loaded->n_channels;
    for (uint32_t p = 0; p < n_peers; p++) {
        ready->args.fused.peers[p] = loaded->fused.peers[(first + p) % n_peers];
        ready->args.fused.peers[p].in_offset *= n_bytes;
        ready->args.fused.peers[p].out_offset *= n_bytes;
    }
    /* Not under the executor's lock: a launch that holds it may wait for a kernel that only ends
     * after this thread's next call. */
    ready->number = 1 + gyre_fetch_add_u64(&executor->n_ready, 1);
    ready->base.run = ready->forms[executor->recorder.recorder != NULL].run;
    *ready_out = &ready->base;
    return GYRE_SUCCESS;
}

static bool is_of(const struct gyre_work *work, enum gyre_fused_pattern pattern)
{
    return work->ready->loaded->fused_call.pattern == pattern;
}

struct gyre_cuda_pair *gyre_cuda_find_pair(struct gyre_cuda_executor *executor,
                                           const struct gyre_work *works)
{
    const bool sends_first = is_of(&works[0], GYRE_FUSED_SEND);
    const struct gyre_work *out = &works[!sends_first], *in = &works[sends_first];
    struct gyre_cuda_ready *send = gyre_cuda_own_ready(out), *receive = gyre_cuda_own_ready(in);
    struct gyre_cuda_pair *pair = gyre_cuda_own_ready(&works[0])->pair;
    const uint64_t other = gyre_cuda_own_ready(&works[1])->number;
    const bool is_in_place = out->in == in->out;
    if (!is_of(out, GYRE_FUSED_SEND) || !is_of(in, GYRE_FUSED_RECEIVE))
        return NULL;
    if (pair->other == other && pair->is_in_place == is_in_place)
        return pair;
    pair->other = other;
    pair->is_in_place = is_in_place;
    pair->send = !sends_first;
    const struct gyre_split *a = &send->base.split, *b = &receive->base.split;
    const bool has_joint_ends =
        send->base.loaded->proto == receive->base.loaded->proto &&
        gyre_cuda_fused_joins(&send->base.loaded->fused, &receive->base.loaded->fused);
    const bool are_alike = has_joint_ends && a->count == b->count &&
                           a->n_channels == b->n_channels && a->tile_elems == b->tile_elems &&
                           a->unit_elems == b->unit_elems &&
                           send->base.reduction.dtype == receive->base.reduction.dtype;
    for (int records = 0; records < 2; records++)
        choose_form(executor, gyre_cuda_own_ready(&works[0]),
                    are_alike ? GYRE_FUSED_SEND_RECEIVE : GYRE_FUSED_NONE, is_in_place,
                    records != 0, &pair->forms[records]);
    /* The send needs at most a FIFO's slots. The peer frees them when it comes to this message, by
     * its receive or by a send before it. */
    pair->goes_apart = sends_first && pair->forms[0].run.kernel == NULL &&
                       (send->base.loaded->n_channels + receive->base.loaded->n_channels >
                            gyre_kernel_limits[GYRE_LIMIT_BLOCKS_TOGETHER].number &&
                        gyre_tile_count(&send->base.split) <= executor->spec.depth &&
                        send->forms[0].run.kernel != NULL && receive->forms[0].run.kernel != NULL &&
                        has_joint_ends);
    pair->args.work = send->args.work;
    pair->args.fused =
        gyre_cuda_fused_join(&send->base.loaded->fused, &receive->base.loaded->fused);
    return pair;
}
